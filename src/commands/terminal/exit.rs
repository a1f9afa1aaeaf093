//! Exit codes: one table for every verb.

use crate::base::files::{self, FileError};
use crate::engines::EngineError;
use crate::experiment::ExperimentError;
use crate::numerics::NumericsError;
use crate::policy::PolicyError;
use crate::records::tables::TableError;
use crate::report::ReportError;
use crate::study::StudyError;
use crate::task::TaskError;
use crate::training::TrainingError;
use crate::verification::VerificationError;
use std::fmt::Display;
use std::io::{self, ErrorKind};

pub const SUCCESS: u8 = 0;
/// A bug, or the machine failed.
pub const BUG: u8 = 1;
/// Arguments that do not fit; also clap's.
pub const USAGE: u8 = 2;
/// A configuration, a model, or data that cannot be used.
pub const INVALID: u8 = 3;
/// Something does not agree with its reference.
pub const MISMATCH: u8 = 4;
/// A weight, a loss, a gradient or a logit was not finite.
pub const DIVERGED: u8 = 5;
/// A gap, another trainer's early end, or nothing to compare on this machine.
pub const INCONCLUSIVE: u8 = 6;

pub fn agreed(agrees: bool) -> u8 {
    if agrees { SUCCESS } else { MISMATCH }
}

/// clap accepts these arguments, the verb does not.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Input that a verb itself refuses.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Diverged(pub String);

macro_rules! bail_usage {
    ($($text:tt)+) => { return Err($crate::commands::exit::Usage(format!($($text)+)).into()) };
}
pub(crate) use bail_usage;

macro_rules! bail_invalid {
    ($($text:tt)+) => { return Err($crate::commands::exit::Invalid(format!($($text)+)).into()) };
}
pub(crate) use bail_invalid;

/// Errors: the first of the flags that is given, and why it cannot be.
pub fn refuse_flags(flags: &[(&str, bool)], why: &str) -> Result<(), Usage> {
    match flags.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(Usage(format!("{flag} {why}"))),
        None => Ok(()),
    }
}

/// Errors: the problems of a file or folder, one a line, if there are any.
pub fn refuse_problems(place: impl Display, problems: &[String]) -> Result<(), Invalid> {
    if problems.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = problems.iter().map(|it| format!("{place}: {it}")).collect();
    Err(Invalid(lines.join("\n")))
}

type Cause = dyn std::error::Error + 'static;
type IsKind = fn(&Cause) -> bool;

/// Decided by what in the chain of causes the user can mend.
pub fn code(error: &anyhow::Error) -> u8 {
    let kinds: [(IsKind, u8); 5] = [
        (|cause| cause.is::<Usage>(), USAGE),
        (is_divergence, DIVERGED),
        (is_lacking, INCONCLUSIVE),
        (is_machine, BUG),
        (is_input, INVALID),
    ];
    let kind = kinds.into_iter().find(|(is_kind, _)| error.chain().any(is_kind));
    kind.map_or(BUG, |(_, code)| code)
}

/// Adds causes on the same line, without causes that an earlier message contains.
pub fn message(error: &anyhow::Error) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = files::without_code(&cause.to_string());
        if !parts.last().is_some_and(|last| last.contains(&text)) {
            parts.push(text);
        }
    }
    parts.join(": ")
}

/// Not finite: weights or their products.
fn is_divergence(cause: &Cause) -> bool {
    cause.is::<Diverged>()
        || matches!(cause.downcast_ref(), Some(TrainingError::StageDiverged { .. }))
        || matches!(cause.downcast_ref(), Some(PolicyError::Logits { .. }))
}

fn is_lacking(cause: &Cause) -> bool {
    use EngineError::{Ended, NotInstalled, Program, Start};
    matches!(cause.downcast_ref(), Some(NumericsError::MissingInstructions(_)))
        || matches!(cause.downcast_ref(), Some(ReportError::Tracker { .. }))
        || engine_error(cause).is_some_and(|error| {
            matches!(error, Ended { .. } | NotInstalled { .. } | Program { .. } | Start { .. })
        })
}

/// Alone or as the error of a run.
fn engine_error(cause: &Cause) -> Option<&EngineError> {
    match cause.downcast_ref() {
        Some(TrainingError::OtherTrainer(error)) => error.downcast_ref(),
        _ => cause.downcast_ref(),
    }
}

fn is_machine(cause: &Cause) -> bool {
    const ASKED_FOR: [ErrorKind; 3] =
        [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem, ErrorKind::AlreadyExists];
    let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
    kind.is_some_and(|kind| !ASKED_FOR.contains(&kind)) && files::is_unread(cause)
        || matches!(cause.downcast_ref(), Some(TrainingError::LockLost { .. }))
        || matches!(cause.downcast_ref(), Some(StudyError::LockLost { .. }))
}

fn is_input(cause: &Cause) -> bool {
    cause.is::<Invalid>()
        || cause.is::<toml::de::Error>()
        || cause.is::<FileError>()
        || cause.is::<TableError>()
        || cause.is::<ExperimentError>()
        || cause.is::<TaskError>()
        || cause.is::<NumericsError>()
        || cause.is::<PolicyError>()
        || cause.is::<TrainingError>()
        || cause.is::<EngineError>()
        || cause.is::<StudyError>()
        || cause.is::<ReportError>()
        || cause.is::<VerificationError>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_missing_file_is_told_once_and_is_the_users_to_mend() {
        let missing = files::read(Path::new("nowhere")).unwrap_err();
        let error = anyhow::Error::from(missing).context("the experiment");
        let told = "the experiment: cannot read nowhere: No such file or directory";
        assert_eq!(message(&error), told);
        assert_eq!(code(&error), INVALID);
    }

    #[test]
    fn a_full_disk_is_the_machines_failure_and_a_path_that_cannot_be_is_the_users() {
        let full = files::append_line(Path::new("/dev/full"), &1u64).unwrap_err();
        let error = anyhow::Error::from(TrainingError::from(full));
        assert_eq!(code(&error), BUG, "{}", message(&error));
        let below_a_file = files::write_atomic(Path::new("/dev/null/x"), b"").unwrap_err();
        assert_eq!(code(&anyhow::Error::from(TrainingError::from(below_a_file))), INVALID);
        let source = io::Error::from_raw_os_error(rustix::io::Errno::LOOP.raw_os_error());
        let looped = FileError::Io { action: "read", path: "x".into(), source };
        assert_eq!(code(&anyhow::Error::from(looped)), INVALID);
    }

    #[test]
    fn a_folder_that_was_taken_away_is_no_failure_of_the_arm() {
        let lost = TrainingError::LockLost { folder: "runs/a".into() };
        assert_eq!(code(&anyhow::Error::from(lost)), BUG);
        let lost = StudyError::LockLost { study: "study".into() };
        assert_eq!(code(&anyhow::Error::from(lost)), BUG);
        let source = io::Error::from_raw_os_error(10);
        let error = anyhow::Error::from(StudyError::Wait { program: "dapo".into(), source });
        let told = "cannot tell whether a process of dapo has ended: No child processes";
        assert!(message(&error).starts_with(told), "{}", message(&error));
        assert_eq!(code(&error), BUG);
    }

    #[test]
    fn another_trainer_that_is_missing_is_told_from_an_arm_that_it_cannot_run() {
        let missing = || EngineError::NotInstalled {
            program: "python3".to_string(),
            package: "trl".to_string(),
        };
        assert_eq!(code(&anyhow::Error::from(missing())), INCONCLUSIVE);
        let of_a_run = anyhow::Error::from(TrainingError::from(missing())).context("a run");
        assert_eq!(code(&of_a_run), INCONCLUSIVE);
        let refused = EngineError::Refused {
            engine: crate::experiment::Engine::Trl,
            experiment: "dapo".to_string(),
            refusals: Vec::new(),
        };
        assert_eq!(code(&anyhow::Error::from(refused)), INVALID);
    }

    #[test]
    fn a_tracker_that_is_missing_or_ends_early_is_like_another_trainer() {
        let error = ReportError::Tracker { python: "python3".into(), reason: "gone".to_string() };
        assert_eq!(code(&anyhow::Error::from(error)), INCONCLUSIVE);
    }

    #[test]
    fn an_error_that_no_input_explains_is_a_bug() {
        assert_eq!(code(&anyhow::anyhow!("something else")), BUG);
        assert_eq!(code(&anyhow::Error::from(Usage("--x".into()))), USAGE);
    }
}
