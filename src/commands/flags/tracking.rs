//! Where curves are sent, for every verb that sends them.

use crate::commands::{exit, output};
use crate::records::RunFolder;
use crate::report::export::curves;
use crate::report::{CurveSender, ReportError, Tracker};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub struct TrackerArgs {
    /// Project of wandb and trackio, experiment of mlflow. Default: the folder's name.
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
    /// The Python that has the tracker's package. Default: python3.
    #[arg(long, value_name = "PROGRAM")]
    tracker_python: Option<PathBuf>,
}

impl TrackerArgs {
    pub fn check(&self, tracker: Option<Tracker>, by: &str) -> Result<()> {
        let flags = [
            ("--project", self.project.is_some()),
            ("--tracker-python", self.tracker_python.is_some()),
        ];
        if matches!(tracker, None | Some(Tracker::Tensorboard)) {
            let why = format!("is for wandb, mlflow and trackio; name one of them with {by}");
            exit::refuse_flags(&flags, &why)?;
        }
        Ok(())
    }

    /// Errors: a tracker without the Python that it needs.
    pub fn sender(
        &self,
        tracker: Tracker,
        out: &Path,
        folder: &Path,
    ) -> Result<CurveSender, ReportError> {
        let name = || folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let project = self.project.clone().or_else(name).unwrap_or_else(|| "dapo".to_string());
        let python = self.tracker_python.as_deref().unwrap_or(Path::new("python3"));
        CurveSender::new(tracker, out, &project, python)
    }
}

/// Sends a run's curves during training, which a failing tracker does not end.
#[derive(Debug)]
pub struct LiveCurves {
    sender: Option<CurveSender>,
    looked: Option<Instant>,
}

const LEAST: Duration = Duration::from_secs(2);

impl LiveCurves {
    pub fn new(sender: Option<CurveSender>) -> Self {
        Self { sender, looked: None }
    }

    /// Nothing is sent after a failure, which `note` gets.
    pub fn look(&mut self, run: &RunFolder, note: &mut dyn FnMut(&str)) {
        if self.looked.is_some_and(|last| last.elapsed() < LEAST) {
            return;
        }
        self.looked = Some(Instant::now());
        let Some(sender) = &mut self.sender else { return };
        if let Err(error) = curves::of_run(run, None).and_then(|curves| sender.send(&curves)) {
            note(&format!("warning: the curves are no longer followed: {error}"));
            self.sender = None;
        }
    }

    pub fn end(mut self, run: &RunFolder) {
        self.looked = None;
        self.look(run, &mut |text| output::tell(text));
        if let Some(Err(error)) = self.sender.map(CurveSender::end) {
            output::tell(format!("warning: the curves were not all followed: {error}"));
        }
    }
}
