//! Ctrl-C, SIGTERM, and SIGUSR1 (which Slurm sends before a time limit): the first asks for a stop at the next safe point, the second ends the
//! process at once. Nothing is lost either way; the first only saves what was done since the
//! last checkpoint.

use anyhow::Result;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A shell's code for a process that a signal ended is this plus the signal's number.
const SIGNALLED: usize = 128;

/// Remembers the signal that asked for a stop.
#[derive(Debug)]
pub struct Interrupt {
    signal: Arc<AtomicUsize>,
    told: AtomicBool,
}

impl Interrupt {
    /// Listens from now on.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn listen() -> Result<Self> {
        let signal = Arc::new(AtomicUsize::new(0));
        let second = Arc::new(AtomicBool::new(false));
        for number in [SIGINT, SIGTERM, SIGUSR1] {
            // Handlers run in order of registration: the shutdown sees the flag of the first
            // signal, not of its own.
            let code = SIGNALLED as i32 + number;
            flag::register_conditional_shutdown(number, code, Arc::clone(&second))?;
            flag::register(number, Arc::clone(&second))?;
            flag::register_usize(number, Arc::clone(&signal), number as usize)?;
        }
        Ok(Self { signal, told: AtomicBool::new(false) })
    }

    pub fn asked(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// True once, at the first call after a stop was asked for.
    pub fn news(&self) -> bool {
        self.asked() && !self.told.swap(true, Ordering::Relaxed)
    }

    /// The exit code of a process that stopped as asked.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from((SIGNALLED + self.signal.load(Ordering::Relaxed)) as u8)
    }
}
