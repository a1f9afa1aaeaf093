//! Progress on long work: a bar on a terminal, plain lines elsewhere. Everything goes to
//! standard error; standard output is data. Names of files and sets are made visible here.

use crate::base::visible;
use crate::commands::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// How often a plain line is printed.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// Progress of `total` units of work.
pub struct Progress {
    bar: Option<ProgressBar>,
    label: String,
    total: u64,
    started: Instant,
    printed: Option<Instant>,
}

impl Progress {
    /// Starts at 0 of `total`.
    pub fn new(label: &str, total: u64) -> Self {
        let label = visible::message(label);
        let bar = output::may_draw().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            let template = "{prefix} [{bar:24}] {pos}/{len} {elapsed}<{eta} {wide_msg}";
            let style = ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("=> ");
            bar.set_style(style);
            bar.set_prefix(label.clone());
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        Self { bar, label, total, started: Instant::now(), printed: None }
    }

    /// `done` units are done; `message` says what matters now.
    pub fn set(&mut self, done: u64, message: &str) {
        let message = visible::message(message);
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(message);
            return;
        }
        let due = self.printed.is_none_or(|at| at.elapsed() >= PLAIN_INTERVAL);
        if due || done == self.total {
            self.printed = Some(Instant::now());
            let seconds = self.started.elapsed().as_secs();
            eprintln!("{} {done}/{} {seconds}s {message}", self.label, self.total);
        }
    }

    /// Says what is being done, without moving.
    pub fn message(&mut self, message: &str) {
        let message = &visible::message(message);
        match &self.bar {
            Some(bar) => bar.set_message(message.to_string()),
            None => self.plain(message),
        }
    }

    fn plain(&mut self, message: &str) {
        if self.printed.is_none_or(|at| at.elapsed() >= PLAIN_INTERVAL) {
            self.printed = Some(Instant::now());
            eprintln!("{} {message}", self.label);
        }
    }

    /// Prints a line that stays.
    pub fn note(&self, line: &str) {
        let line = &visible::message(line);
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    /// Ends the bar and takes it off the terminal.
    pub fn clear(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    /// Ends the bar, leaving its last state.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.abandon();
        }
    }
}
