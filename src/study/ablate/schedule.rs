//! The queue of cells: runs up to `at_once` at a time and records each when it ends.

use crate::base::{Lock, Pace, files};
use crate::experiment::sets;
use crate::records::{EvaluationRecord, RunFolder};
use crate::study::ablate::recording::{self, ATTEMPTS};
use crate::study::ablate::{AblateStudy, jobs, jobs::JobState, process::Process};
use crate::study::{Job, ProcessEnded, StudyError};
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const TURN: Duration = Duration::from_millis(100);

/// Interval at which progress reads the records of running cells.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleOptions {
    pub program: PathBuf,
    pub at_once: usize,
    pub retry_failed: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleStatus {
    pub title: String,
    pub steps: u64,
    /// avg@k of the last evaluation of the development set, a share.
    pub dev_accuracy: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleProgress {
    pub done: usize,
    pub running: Vec<ScheduleStatus>,
    pub waiting: usize,
    /// Counts all cells that are recorded or running.
    pub steps_done: u64,
    pub steps_planned: u64,
    /// From the mean time of a step, evaluations included: this call's steps, and `at_once` recorded cells.
    pub seconds_left: Option<f64>,
}

#[derive(Debug)]
pub enum ScheduleEvent<'a> {
    Started(&'a Job),
    /// A cell is recorded or was left unfinished.
    Ended(&'a Job),
    Note(String),
    Progress(&'a ScheduleProgress),
}

struct Queue<'a> {
    study: &'a AblateStudy,
    lock: &'a Lock,
    options: &'a ScheduleOptions,
    jobs: &'a mut [Job],
    watch: &'a mut dyn FnMut(ScheduleEvent),
    attempts: Vec<u32>,
    waiting: VecDeque<usize>,
    running: Vec<(usize, Process)>,
    stopping: bool,
    begun: Instant,
    pace: Pace,
    told: BTreeSet<usize>,
}

/// When `stop` returns true, each process ends after its present rollout step with a checkpoint.
pub fn run(
    (study, lock): (&AblateStudy, &Lock),
    jobs: &mut [Job],
    options: &ScheduleOptions,
    stop: &dyn Fn() -> bool,
    watch: &mut dyn FnMut(ScheduleEvent),
) -> Result<(), StudyError> {
    let mut queue = Queue {
        study,
        lock,
        options,
        attempts: vec![0; jobs.len()],
        waiting: (0..jobs.len())
            .filter(|index| jobs[*index].is_to_run(options.retry_failed))
            .collect(),
        running: Vec::new(),
        stopping: false,
        begun: Instant::now(),
        pace: pace(jobs, options.at_once),
        told: BTreeSet::new(),
        jobs,
        watch,
    };
    let mut looked = None::<Instant>;
    loop {
        queue.held()?;
        if stop() && !queue.stopping {
            queue.stopping = true;
            queue.waiting.clear();
            queue.running.iter_mut().for_each(|(_, process)| process.ask_to_stop());
        }
        queue.start()?;
        queue.collect()?;
        if queue.running.is_empty() && queue.waiting.is_empty() {
            return Ok(());
        }
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            looked = Some(Instant::now());
            let progress = queue.progress();
            (queue.watch)(ScheduleEvent::Progress(&progress));
        }
        std::thread::sleep(TURN);
    }
}

impl Queue<'_> {
    fn held(&self) -> Result<(), StudyError> {
        if self.lock.is_held()? {
            return Ok(());
        }
        Err(StudyError::LockLost { study: self.study.root().to_path_buf() })
    }

    /// A cell waits while a process of an earlier call has its folder locked.
    fn start(&mut self) -> Result<(), StudyError> {
        let mut held = Vec::new();
        while self.running.len() < self.options.at_once {
            let Some(index) = self.waiting.pop_front() else { break };
            self.held()?;
            let job = &self.jobs[index];
            if job.folder.is_locked()? {
                held.push(index);
                if self.told.insert(index) {
                    let folder = job.folder.root().display();
                    self.note(format!("{folder}: waits for the process that works in it"));
                }
                continue;
            }
            if let JobState::Unusable { reason } = job.state.clone() {
                self.set_aside(index, &reason)?;
            }
            if self.jobs[index].state == JobState::Ended {
                self.record(index)?;
                continue;
            }
            let process = Process::start(&self.options.program, self.study, &self.jobs[index])?;
            self.attempts[index] += 1;
            (self.watch)(ScheduleEvent::Started(&self.jobs[index]));
            self.running.push((index, process));
        }
        for index in held.into_iter().rev() {
            self.waiting.push_front(index);
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<(), StudyError> {
        for at in (0..self.running.len()).rev() {
            let wait = |source| StudyError::Wait { program: self.options.program.clone(), source };
            if let Some(ended) = self.running[at].1.ended().map_err(wait)? {
                let (index, _) = self.running.remove(at);
                self.held()?;
                self.after(index, &ended)?;
            }
        }
        Ok(())
    }

    fn after(&mut self, index: usize, ended: &ProcessEnded) -> Result<(), StudyError> {
        let job = &mut self.jobs[index];
        if jobs::has_outcome(&job.folder)? {
            return self.record(index);
        }
        job.state = JobState::Unfinished { steps: jobs::steps_done(&job.folder) };
        let elsewhere = job.folder.is_locked()?;
        let what = format!("{}: {}", job.title(), ended.reason());
        if self.stopping && ended.by_signal() {
            self.tell_ended(index);
        } else if elsewhere || (ended.by_signal() && self.attempts[index] < ATTEMPTS) {
            self.note(format!("{what}; it is gone on with"));
            self.waiting.push_front(index);
        } else if ended.by_machine() {
            self.note(format!("{what}; it is not recorded"));
            self.tell_ended(index);
        } else {
            self.fail(index, &ended.reason())?;
        }
        Ok(())
    }

    fn tell_ended(&mut self, index: usize) {
        (self.watch)(ScheduleEvent::Ended(&self.jobs[index]));
    }

    fn note(&mut self, text: String) {
        (self.watch)(ScheduleEvent::Note(text));
    }

    fn fail(&mut self, index: usize, reason: &str) -> Result<(), StudyError> {
        recording::fail(self.study, &mut self.jobs[index], reason)?;
        self.tell_ended(index);
        Ok(())
    }

    /// A run folder that contradicts itself is set aside and the run repeated, once.
    fn record(&mut self, index: usize) -> Result<(), StudyError> {
        let problem = match recording::record(self.study, &mut self.jobs[index]) {
            Err(error @ StudyError::Unread { .. }) => {
                self.note(format!("{}: {error}", self.jobs[index].title()));
                None
            }
            problem => problem?,
        };
        let Some(problem) = problem else {
            self.tell_ended(index);
            return Ok(());
        };
        if self.attempts[index] >= ATTEMPTS {
            return self.fail(index, &problem);
        }
        self.set_aside(index, &problem)?;
        self.waiting.push_front(index);
        Ok(())
    }

    fn set_aside(&mut self, index: usize, reason: &str) -> Result<(), StudyError> {
        let notes = recording::set_aside(&mut self.jobs[index], reason)?;
        notes.into_iter().for_each(|note| self.note(note));
        Ok(())
    }

    fn progress(&mut self) -> ScheduleProgress {
        let mut running = Vec::new();
        for (index, _) in &self.running {
            let job = &mut self.jobs[*index];
            let steps = jobs::steps_done(&job.folder);
            job.state = JobState::Unfinished { steps };
            let dev_accuracy = dev_accuracy(&job.folder);
            running.push(ScheduleStatus { title: job.title(), steps, dev_accuracy });
        }
        let steps_planned: u64 = self.jobs.iter().map(Job::steps).sum();
        let steps_done: u64 = self.jobs.iter().map(Job::steps_done).sum();
        let left = |job: &Job| job.steps().saturating_sub(job.steps_done());
        let longest = self.jobs.iter().map(left).max().unwrap_or(0);
        // The last cell runs alone.
        let left =
            self.jobs.iter().map(left).sum::<u64>().max(longest * self.options.at_once as u64);
        let now = self.begun.elapsed().as_secs_f64();
        ScheduleProgress {
            done: self.jobs.iter().filter_map(|job| job.state.cell()).count(),
            running,
            waiting: self.waiting.len(),
            steps_done,
            steps_planned,
            seconds_left: self.pace.seconds_left(now, steps_done, left as f64),
        }
    }
}

/// Mean time of a step in recorded cells, with the weight of `at_once` cells.
fn pace(jobs: &[Job], at_once: usize) -> Pace {
    let (mut cells, mut units, mut seconds) = (0.0, 0.0, 0.0);
    for job in jobs {
        if let JobState::Recorded(cell) = &job.state
            && cell.wall_seconds > 0.0
        {
            cells += 1.0;
            units += job.steps_done() as f64;
            seconds += cell.wall_seconds;
        }
    }
    let cells = f64::max(cells, 1.0);
    Pace::with_prior(units * at_once as f64 / cells, seconds / cells)
}

fn dev_accuracy(folder: &RunFolder) -> Option<f64> {
    let path = folder.path("evaluations.jsonl");
    let records: Vec<EvaluationRecord> = files::complete_lines(&path).unwrap_or_default();
    records.iter().rfind(|record| record.set == sets::DEV).map(|record| record.avg_at_k)
}
