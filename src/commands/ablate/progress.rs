//! Progress of a grid on standard error: on a terminal a bar for the whole and for each running
//! cell; elsewhere a line when a cell begins or ends, and one a minute.

use crate::commands::{Progress, output::tell};
use crate::report::cells;
use crate::report::text::{duration, percent};
use crate::study::ablate::jobs::JobState;
use crate::study::ablate::schedule::ScheduleEvent;
use crate::study::{Job, ScheduleProgress};
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::time::Duration;

/// Cells that begin and end print enough in the first minute.
const PLAIN_INTERVAL: Duration = Duration::from_secs(60);

pub struct GridProgress {
    cells: usize,
    progress: Progress,
    /// By title; a bar's length is the cell's steps.
    running: BTreeMap<String, ProgressBar>,
}

impl GridProgress {
    pub fn new(cells: usize) -> Self {
        let progress = Progress::of_parts("ablate", PLAIN_INTERVAL);
        Self { cells, progress, running: BTreeMap::new() }
    }

    pub fn show(&mut self, event: &ScheduleEvent) {
        match event {
            ScheduleEvent::Started(job) => self.started(job),
            ScheduleEvent::Ended(job) => {
                self.running.remove(&job.title()).iter().for_each(ProgressBar::finish_and_clear);
                self.note(&format!("{}: {}", job.title(), result(job)));
            }
            ScheduleEvent::Note(text) => self.note(text),
            ScheduleEvent::Progress(progress) => self.progress(progress),
        }
    }

    pub fn note(&self, line: &str) {
        self.progress.note(line);
    }

    pub fn finish(self) {
        self.progress.clear();
    }

    fn started(&mut self, job: &Job) {
        if !self.progress.is_drawn() {
            let recorded = match job.state {
                JobState::Unfinished { steps } if steps > 0 => {
                    format!(", {steps} steps are recorded")
                }
                _ => String::new(),
            };
            tell(format!("begins: {}{recorded}", job.title()));
        }
        self.running.insert(job.title(), self.progress.part(&job.title(), job.steps()));
    }

    fn progress(&mut self, progress: &ScheduleProgress) {
        let ScheduleProgress { done, waiting, running, steps_done, steps_planned, .. } = progress;
        let left = progress.seconds_left.map_or("?".to_string(), duration);
        let (all, at_work) = (self.cells, running.len());
        let message = format!(
            "{done} of {all} cells, {at_work} running, {waiting} waiting; {steps_done}/{steps_planned} steps; {left} left"
        );
        for status in running {
            let Some(bar) = self.running.get(&status.title) else { continue };
            let dev = status.dev_accuracy.map(|share| format!("dev {}", percent(share)));
            bar.set_position(status.steps);
            bar.set_message(dev.unwrap_or_default());
        }
        self.progress.set_of((*steps_done, (*steps_planned).max(1)), &message, || message.clone());
    }
}

fn result(job: &Job) -> String {
    match (&job.state, job.state.cell()) {
        (state, None) => format!("left {}; the same command continues", state.name()),
        (JobState::Failed(_), Some(cell)) => format!("failed: {}", cell.reason),
        (state, Some(cell)) => {
            let time = duration(cell.wall_seconds);
            format!("{} in {time}: {}", state.name(), cells::scores(cell))
        }
    }
}
