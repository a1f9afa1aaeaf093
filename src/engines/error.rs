use crate::base::files;
use crate::engines::DemandRefusal;
use crate::experiment::Engine;
use crate::study::StudyError;
use crate::task::TaskError;
use crate::training::TrainingError;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    File(#[from] files::FileError),
    #[error(transparent)]
    Study(#[from] StudyError),
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error(transparent)]
    Training(#[from] TrainingError),
    #[error("{} cannot run {experiment}:{}", engine.name(), listed(refusals))]
    Refused { engine: Engine, experiment: String, refusals: Vec<DemandRefusal> },
    #[error("--engine-set {text}: {reason}")]
    Override { text: String, reason: String },
    #[error("{program} cannot be started: {source}")]
    Start { program: String, source: io::Error },
    #[error("{program} has no {package}; install it there, or name another Python with --python")]
    NotInstalled { program: String, package: String },
    #[error("{program}: {reason}")]
    Program { program: String, reason: String },
    /// Steps count from 1.
    #[error(
        "{} ended before rollout step {step} was complete ({reason}); its log is {}",
        engine.name(), log.display()
    )]
    Ended { engine: Engine, step: u64, reason: String, log: PathBuf },
    /// A file of another trainer, or a missing one.
    #[error("{}: {reason}", path.display())]
    Output { path: PathBuf, reason: String },
}

impl From<EngineError> for TrainingError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Training(error) => error,
            other => Self::OtherTrainer(Box::new(other)),
        }
    }
}

fn listed(refusals: &[DemandRefusal]) -> String {
    refusals.iter().map(|refusal| format!("\n  {refusal}")).collect()
}
