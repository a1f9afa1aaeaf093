//! The outputs of a trainer that may still run.

use crate::engines::{EngineError, Running};
use crate::experiment::Engine;
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

/// How often growing outputs are looked at.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Following {
    engine: Engine,
    running: RefCell<Option<Running>>,
    log: PathBuf,
}

impl Following {
    /// Without a process the outputs do not grow; `log` is named where they end.
    pub fn new(engine: Engine, running: Option<Running>, log: PathBuf) -> Self {
        Self { engine, running: RefCell::new(running), log }
    }

    /// What `complete` gives of a rollout step, once it gives anything.
    ///
    /// # Errors
    /// A trainer that ended before.
    pub fn until<T>(
        &self,
        step: u64,
        complete: impl Fn() -> Result<Option<T>, EngineError>,
    ) -> Result<T, EngineError> {
        loop {
            // Asked before the files: what an ended process wrote is then all there.
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
