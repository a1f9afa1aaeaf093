//! Ctrl-C, SIGHUP, SIGTERM, SIGUSR1 (from Slurm before a time limit; none that was ignored before, as by `nohup`), and
//! a reader of standard error that left: the first asks for a stop with a checkpoint, a second signal ends the process.

use crate::base::files;
use crate::commands::output;
use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGUSR1};
use signal_hook::flag;
use std::path::Path;
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
        let status = files::kernel_text(Path::new("/proc/self/status")).unwrap_or_default();
        for number in heeded(&status) {
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

fn heeded(status: &str) -> impl Iterator<Item = i32> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let signals = [SIGHUP, SIGINT, SIGTERM, SIGUSR1].into_iter();
    signals.filter(move |number| ignored >> (number - 1) & 1 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_were_ignored_before_stay_ignored() {
        let heeded = |status: &str| heeded(status).collect::<Vec<_>>();
        assert_eq!(heeded(""), [SIGHUP, SIGINT, SIGTERM, SIGUSR1]);
        let nohup = "SigBlk:\t0000000000000003\nSigIgn:\t0000000000001001\n";
        assert_eq!(heeded(nohup), [SIGINT, SIGTERM, SIGUSR1]);
        assert_eq!(heeded("SigIgn:\t0000000000000007\n"), [SIGTERM, SIGUSR1]);
    }
}
