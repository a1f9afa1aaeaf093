//! The outputs of a trainer that may still run.

use crate::engines::{EngineError, Running};
use crate::experiment::Engine;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The started script first removes what an ended one wrote after its checkpoint, then writes this file: before that
/// the outputs are the ended script's.
pub const STARTED: &str = "started";

const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Following {
    engine: Engine,
    running: RefCell<Option<Running>>,
    folder: PathBuf,
    log: PathBuf,
}

impl Following {
    /// Without a process the outputs in the folder are complete; `log` is for errors.
    pub fn new(engine: Engine, running: Option<Running>, folder: &Path, log: &str) -> Self {
        let (folder, log) = (folder.to_path_buf(), folder.join(log));
        Self { engine, running: RefCell::new(running), folder, log }
    }

    /// Waits until `complete` gives something; before, it says what is missing. Errors: a trainer that ended before.
    pub fn until<T>(
        &self,
        step: u64,
        complete: impl Fn() -> Result<Result<T, String>, EngineError>,
    ) -> Result<T, EngineError> {
        loop {
            // Before reading: an ended process has written everything.
            let ended = match &mut *self.running.borrow_mut() {
                Some(running) => {
                    running.ended().map(|reason| (reason, running.output().to_path_buf()))
                }
                None => Some(("its outputs end here".to_string(), self.log.clone())),
            };
            let has_started =
                self.running.borrow().is_none() || self.folder.join(STARTED).is_file();
            let missing = if has_started {
                match complete()? {
                    Ok(found) => return Ok(found),
                    Err(missing) => missing,
                }
            } else {
                "all of its outputs".to_string()
            };
            if let Some((reason, log)) = ended {
                let reason = format!("{reason}; missing: {missing}");
                return Err(EngineError::Ended { engine: self.engine, step, reason, log });
            }
            std::thread::sleep(PAUSE);
        }
    }
}
