//! Progress on standard error: bars on a terminal, plain lines elsewhere. Names are made visible here.

use crate::base::{Pace, visible};
use crate::commands::output;
use crate::report::text;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::time::{Duration, Instant};

const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

pub struct Progress {
    /// `None` where no bar is drawn.
    bars: Option<MultiProgress>,
    bar: ProgressBar,
    label: String,
    interval: Duration,
    printed: Option<Instant>,
    pace: Pace,
}

fn styled(bar: ProgressBar, template: &str, prefix: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a template of this file");
    let style = style.progress_chars("=> ").with_key("elapsed", elapsed);
    bar.with_style(style).with_prefix(prefix.to_string())
}

fn elapsed(state: &ProgressState, out: &mut dyn Write) {
    let _ = out.write_str(&text::duration(state.elapsed().as_secs_f64()));
}

impl Progress {
    pub fn new(label: &str, total: u64) -> Self {
        Self::with_template(label, total, "{prefix} [{bar:20}] {pos}/{len}  {elapsed}  {wide_msg}")
    }

    /// The first plain line is printed after `interval`.
    pub fn of_parts(label: &str, interval: Duration) -> Self {
        let whole = Self::with_template(label, 1, "{prefix} [{bar:20}] {elapsed}  {wide_msg}");
        Self { interval, printed: Some(Instant::now()), ..whole }
    }

    fn with_template(label: &str, total: u64, template: &str) -> Self {
        let label = visible::message(label);
        let target = ProgressDrawTarget::stderr;
        let bars = output::may_draw().then(|| MultiProgress::with_draw_target(target()));
        let bar = match &bars {
            Some(bars) => bars.add(ProgressBar::new(total)),
            None => ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden()),
        };
        let bar = styled(bar, template, &label);
        if bars.is_some() {
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        Self { bars, bar, label, interval: PLAIN_INTERVAL, printed: None, pace: Pace::default() }
    }

    pub fn is_drawn(&self) -> bool {
        self.bars.is_some()
    }

    pub fn part(&self, title: &str, total: u64) -> ProgressBar {
        let Some(bars) = &self.bars else { return ProgressBar::hidden() };
        let bar = bars.add(ProgressBar::new(total));
        styled(bar, "  {prefix} [{bar:16}] {pos}/{len} {wide_msg}", &visible::message(title))
    }

    pub fn line(&self) -> ProgressBar {
        let Some(bars) = &self.bars else { return ProgressBar::hidden() };
        styled(bars.add(ProgressBar::new(1)), "  {wide_msg}", "")
    }

    /// `message`: what matters now.
    pub fn set(&mut self, done: u64, message: &str) {
        let total = self.bar.length().unwrap_or(0);
        let seconds = self.bar.elapsed().as_secs_f64();
        let steps_left = total.saturating_sub(done) as f64;
        let left = self.pace.seconds_left(seconds, done, steps_left);
        if done == total {
            self.printed = None;
        }
        let left = left.filter(|_| done < total).map(text::duration);
        let message = left.map_or(String::new(), |left| format!("{left} left  ")) + message;
        let passed = text::duration(seconds);
        self.set_of((done, total), &message, || format!("{done}/{total}  {passed}  {message}"));
    }

    /// Sets a new total; `plain` is the plain line.
    pub fn set_of(&mut self, (done, total): (u64, u64), message: &str, plain: impl Fn() -> String) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.set_message(visible::message(message));
        self.plain(plain);
    }

    pub fn message(&mut self, message: &str) {
        self.bar.set_message(visible::message(message));
        self.plain(|| message.to_string());
    }

    /// If no bar is drawn and a line is due.
    fn plain(&mut self, line: impl FnOnce() -> String) {
        if self.is_drawn() || self.printed.is_some_and(|at| at.elapsed() < self.interval) {
            return;
        }
        self.printed = Some(Instant::now());
        output::tell(format!("{} {}", self.label, line()));
    }

    pub fn note(&self, line: &str) {
        match &self.bars {
            // A line that a terminal refuses is lost.
            Some(bars) => drop(bars.println(visible::message(line))),
            None => output::tell(line),
        }
    }

    /// Removes the bars.
    pub fn clear(self) {
        self.bar.finish_and_clear();
        if let Some(bars) = self.bars {
            drop(bars.clear());
        }
    }

    pub fn finish(self) {
        self.bar.abandon();
    }
}
