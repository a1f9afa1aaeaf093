//! Makes the record of a run that has ended, on this machine or on another one.

use crate::base::files;
use crate::study::ablate::{AblateStudy, jobs::JobState};
use crate::study::{Job, StudyError, cell::build};

/// Attempts at a cell whose process was killed or whose run folder contradicts itself.
pub const ATTEMPTS: u32 = 2;

/// Returns what is wrong, and writes no record, where the run folder contradicts itself.
pub fn record(study: &AblateStudy, job: &mut Job) -> Result<Option<String>, StudyError> {
    let cell = match build::build(&job.folder) {
        Ok(cell) if cell.run_key == job.manifest.run_key => cell,
        Ok(_) => return Ok(Some(format!("{} holds another run", job.folder.root().display()))),
        Err(error) if files::kind(job.folder.root())?.is_none() => {
            return Err(StudyError::Unread { source: Box::new(error) });
        }
        Err(error) => return error.contradiction().map(Some),
    };
    match cell.write(&study.cells()) {
        Err(error @ StudyError::Invalid { .. }) => fail(study, job, &error.to_string())?,
        Err(error) => return Err(error),
        Ok(_) => job.state = JobState::Recorded(Box::new(cell)),
    }
    Ok(None)
}

pub fn fail(study: &AblateStudy, job: &mut Job, reason: &str) -> Result<(), StudyError> {
    let cell = build::failed(&job.experiment, &job.manifest, &job.folder, reason);
    cell.write(&study.cells())?;
    job.state = JobState::Failed(Box::new(cell));
    Ok(())
}

/// Returns lines that say why, and where the files are now.
pub fn set_aside(job: &mut Job, reason: &str) -> Result<Vec<String>, StudyError> {
    let mut notes = vec![format!("{}: {reason}", job.title())];
    for path in [job.record.clone(), job.folder.root().to_path_buf()] {
        if files::kind(&path)?.is_some() {
            notes.push(format!("set aside: {}", files::leftovers::set_aside(&path)?.display()));
        }
    }
    job.state = JobState::Missing;
    Ok(notes)
}
