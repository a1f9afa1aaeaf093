//! Progress of a grid on standard error: on a terminal a line for the whole and one for each
//! running cell; elsewhere plain lines, one when a cell begins or ends and one a minute.

use crate::base::visible;
use crate::commands::{ablate_table, output};
use crate::study::ablate::jobs::JobState;
use crate::study::ablate::schedule::ScheduleEvent;
use crate::study::{Job, ScheduleProgress};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often a plain line is printed.
const PLAIN_INTERVAL: Duration = Duration::from_secs(60);

/// The lines of a grid.
pub struct Shown {
    cells: usize,
    bars: Option<Bars>,
    titles: BTreeMap<String, AblateProgressRunning>,
    printed: Option<Instant>,
}

/// A cell that runs.
struct AblateProgressRunning {
    steps: u64,
    bar: Option<ProgressBar>,
}

struct Bars {
    all: MultiProgress,
    grid: ProgressBar,
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

impl Shown {
    /// Of so many cells.
    pub fn new(cells: usize) -> Self {
        let bars = output::may_draw().then(|| {
            let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
            let grid = all.add(ProgressBar::new(1));
            grid.set_style(style("ablate [{bar:24}] {elapsed} {wide_msg}"));
            grid.enable_steady_tick(Duration::from_millis(500));
            Bars { all, grid }
        });
        Self { cells, bars, titles: BTreeMap::new(), printed: None }
    }

    /// Shows an event.
    pub fn show(&mut self, event: &ScheduleEvent) {
        match event {
            ScheduleEvent::Started(job) => self.started(job),
            ScheduleEvent::Ended(job) => self.ended(job),
            ScheduleEvent::Note(text) => self.note(text),
            ScheduleEvent::Progress(progress) => self.progress(progress),
        }
    }

    /// Prints a line that stays.
    pub fn note(&self, line: &str) {
        let line = visible::message(line);
        match &self.bars {
            // A line that a terminal refuses is lost like any other.
            Some(bars) => drop(bars.all.println(line)),
            None => eprintln!("{line}"),
        }
    }

    /// Ends the lines.
    pub fn finish(self) {
        if let Some(bars) = self.bars {
            bars.grid.finish_and_clear();
            drop(bars.all.clear());
        }
    }

    fn started(&mut self, job: &Job) {
        let title = visible::message(&job.title());
        let bar = self.bars.as_ref().map(|bars| {
            let bar = bars.all.add(ProgressBar::new(job.steps()));
            bar.set_style(style("  {prefix} [{bar:16}] {pos}/{len} {wide_msg}"));
            bar.set_prefix(title.clone());
            bar
        });
        if bar.is_none() {
            let from = match job.state {
                JobState::Unfinished { steps } if steps > 0 => {
                    format!(", {steps} steps are recorded")
                }
                _ => String::new(),
            };
            eprintln!("begins: {title}{from}");
        }
        self.titles.insert(job.title(), AblateProgressRunning { steps: job.steps(), bar });
    }

    fn ended(&mut self, job: &Job) {
        if let Some(bar) = self.titles.remove(&job.title()).and_then(|running| running.bar) {
            bar.finish_and_clear();
        }
        self.note(&format!("{}: {}", job.title(), said(job)));
    }

    fn progress(&mut self, progress: &ScheduleProgress) {
        let left = progress.seconds_left.map(ablate_table::duration);
        let message = format!(
            "{} of {} cells, {} running, {} waiting; {}/{} steps; {} left",
            progress.done,
            self.cells,
            progress.running.len(),
            progress.waiting,
            progress.steps_done,
            progress.steps_planned,
            left.as_deref().unwrap_or("?"),
        );
        let dev = |accuracy: Option<f64>| {
            accuracy.map_or(String::new(), |share| format!("dev {:.1} %", 100.0 * share))
        };
        if let Some(bars) = &self.bars {
            bars.grid.set_length(progress.steps_planned.max(1));
            bars.grid.set_position(progress.steps_done);
            bars.grid.set_message(message);
            for status in &progress.running {
                let Some(bar) = self.titles.get(&status.title).and_then(|it| it.bar.as_ref())
                else {
                    continue;
                };
                bar.set_position(status.steps);
                bar.set_message(dev(status.dev_accuracy));
            }
            return;
        }
        // Where cells begin and end says enough in the first minute.
        let printed = *self.printed.get_or_insert_with(Instant::now);
        if printed.elapsed() < PLAIN_INTERVAL {
            return;
        }
        self.printed = Some(Instant::now());
        let running = progress.running.iter().map(|status| {
            let steps = self.titles.get(&status.title).map_or(0, |running| running.steps);
            let line =
                format!("{} {}/{steps} {}", status.title, status.steps, dev(status.dev_accuracy));
            line.trim_end().to_string()
        });
        let running: Vec<String> = running.collect();
        eprintln!("{}", visible::message(&format!("{message}; {}", running.join("; "))));
    }
}

/// How a cell ended, in one line.
fn said(job: &Job) -> String {
    let Some(cell) = job.state.cell() else {
        return format!("left {}; the same command goes on", job.state.name());
    };
    if matches!(job.state, JobState::Failed(_)) {
        return format!("failed: {}", cell.reason);
    }
    let scores: Vec<String> = cell
        .problems
        .keys()
        .filter_map(|set| {
            Some(format!("{set} {:.1} %", 100.0 * cell.last_evaluation(set)?.avg_at_k()))
        })
        .collect();
    let time = ablate_table::duration(cell.wall_seconds);
    format!("{} in {time}: {}", job.state.name(), scores.join(", "))
}
