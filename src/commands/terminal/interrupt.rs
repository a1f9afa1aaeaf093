//! Ctrl-C, SIGTERM, SIGUSR1 (from Slurm before a time limit), and a reader of standard error that left: the first
//! asks for a stop with a checkpoint at the next safe point, a second signal ends the process at once.

use crate::commands::output;
use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGPIPE, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A shell adds the signal's number.
const SIGNALLED: usize = 128;

#[derive(Debug)]
pub struct Interrupt {
    signal: Arc<AtomicUsize>,
    is_known: AtomicBool,
}

impl Interrupt {
    /// Errors: a handler that the system refuses.
    pub fn listen() -> Result<Self> {
        let signal = Arc::new(AtomicUsize::new(0));
        let second = Arc::new(AtomicBool::new(false));
        for number in [SIGINT, SIGTERM, SIGUSR1] {
            // Handlers run in order of registration: the shutdown sees the first signal's flag, not its own.
            let code = SIGNALLED as i32 + number;
            flag::register_conditional_shutdown(number, code, Arc::clone(&second))?;
            flag::register(number, Arc::clone(&second))?;
            flag::register_usize(number, Arc::clone(&signal), number as usize)?;
        }
        Ok(Self { signal, is_known: AtomicBool::new(false) })
    }

    pub fn asked(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0 || output::NOBODY_LISTENS.load(Ordering::Relaxed)
    }

    /// True at the first call after a request to stop.
    pub fn news(&self) -> bool {
        self.asked() && !self.is_known.swap(true, Ordering::Relaxed)
    }

    /// Exit code of a process that stopped as asked.
    pub fn exit_code(&self) -> u8 {
        match self.signal.load(Ordering::Relaxed) {
            0 => (SIGNALLED + SIGPIPE as usize) as u8,
            signal => (SIGNALLED + signal) as u8,
        }
    }
}
