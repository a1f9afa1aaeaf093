//! The outputs of a trainer that may still run.

use crate::engines::{EngineError, Running};
use crate::experiment::Engine;
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

/// Interval of looking at growing outputs.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Following {
    engine: Engine,
    running: RefCell<Option<Running>>,
    log: PathBuf,
}

impl Following {
    /// Without a process the outputs are complete; `log` is for errors.
    pub fn new(engine: Engine, running: Option<Running>, log: PathBuf) -> Self {
        Self { engine, running: RefCell::new(running), log }
    }

    /// Waits until `complete` gives something.
    ///
    /// # Errors
    /// A trainer that ended before.
    pub fn until<T>(
        &self,
        step: u64,
        complete: impl Fn() -> Result<Option<T>, EngineError>,
    ) -> Result<T, EngineError> {
        loop {
            // Before reading: an ended process has written everything.
            let ended = match &mut *self.running.borrow_mut() {
                Some(running) => {
                    running.ended().map(|reason| (reason, running.output().to_path_buf()))
                }
                None => Some(("its outputs end here".to_string(), self.log.clone())),
            };
            if let Some(found) = complete()? {
                return Ok(found);
            }
            if let Some((reason, log)) = ended {
                return Err(EngineError::Ended { engine: self.engine, step, reason, log });
            }
            std::thread::sleep(PAUSE);
        }
    }
}
