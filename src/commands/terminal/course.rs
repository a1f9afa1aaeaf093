//! The course of a run: on a terminal its curves below the progress bar, elsewhere a line a rollout step.

use crate::commands::Progress;
use crate::records::{StepMetrics, StepTimings};
use crate::report::text;
use indicatif::ProgressBar;

/// Title, metrics of which the first one is shown that a step has, factor, decimals and unit. An engine may
/// record only trained groups.
const CURVES: [(&str, &[&str], f64, usize, &str); 5] = [
    ("reward", &["rollout/reward_mean", "train/reward_mean"], 1.0, 2, ""),
    ("accuracy", &["rollout/accuracy", "train/accuracy"], 100.0, 1, " %"),
    ("length", &["rollout/response_tokens_mean", "train/response_tokens_mean"], 1.0, 0, ""),
    ("entropy", &["policy/entropy"], 1.0, 3, ""),
    ("useful", &["rollout/groups_useful_share"], 100.0, 1, " %"),
];

/// Characters of a sparkline.
const WIDTH: usize = 40;

#[derive(Default)]
pub struct RunCourse {
    points: [Vec<(f64, f64)>; CURVES.len()],
    lines: Vec<ProgressBar>,
}

impl RunCourse {
    /// A step that an earlier session did is drawn and not told.
    pub fn earlier(&mut self, bar: &Progress, metrics: &StepMetrics) {
        self.add(metrics);
        self.draw(bar);
    }

    pub fn step(&mut self, bar: &Progress, metrics: &StepMetrics, timings: &StepTimings) {
        self.add(metrics);
        if bar.is_drawn() {
            self.draw(bar);
        } else {
            let seconds = timings.seconds.get("total").copied().unwrap_or(f64::NAN);
            let decimals = usize::from(seconds < 10.0);
            let told = told(metrics);
            bar.note(&format!("step {:>3}  {told}  {seconds:.decimals$} s", metrics.step));
        }
    }

    /// Leaves the last state: a line that is dropped unfinished clears what is printed after it.
    pub fn finish(self) {
        self.lines.iter().for_each(ProgressBar::abandon);
    }

    fn add(&mut self, metrics: &StepMetrics) {
        for (points, (_, names, factor, ..)) in self.points.iter_mut().zip(CURVES) {
            points.extend(value(metrics, names).map(|value| (metrics.step as f64, factor * value)));
        }
    }

    fn draw(&mut self, bar: &Progress) {
        if self.lines.is_empty() {
            self.lines = CURVES.iter().map(|_| bar.line()).collect();
        }
        for ((line, points), (title, _, _, decimals, unit)) in
            self.lines.iter().zip(&self.points).zip(CURVES)
        {
            let Some((_, last)) = points.last() else { continue };
            let spark = text::sparkline(points, WIDTH);
            line.set_message(format!("{title:<9}{:>10}  {spark}", shown(*last, decimals, unit)));
        }
    }
}

fn value(metrics: &StepMetrics, names: &[&str]) -> Option<f64> {
    let known = names.iter().filter_map(|name| metrics.metrics.get(*name));
    known.copied().find(|value| value.is_finite())
}

fn shown(value: f64, decimals: usize, unit: &str) -> String {
    format!("{value:.decimals$}{unit}").replace('-', "−")
}

fn told(metrics: &StepMetrics) -> String {
    let parts = CURVES.map(|(title, names, factor, decimals, unit)| {
        let value = value(metrics, names).map(|value| shown(factor * value, decimals, unit));
        let title = match title {
            "accuracy" => "acc",
            "length" => "len",
            title => title,
        };
        format!("{title} {}", value.unwrap_or("–".to_string()))
    });
    parts.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Counters;

    #[test]
    fn a_plain_line_names_what_a_step_has_and_marks_what_it_has_not() {
        let metrics =
            [("train/reward_mean", -0.5), ("rollout/accuracy", 0.25), ("policy/entropy", f64::NAN)];
        let metrics = metrics.map(|(name, value)| (name.to_string(), value)).into();
        let line = told(&StepMetrics { step: 3, counters: Counters::default(), metrics });
        assert_eq!(line, "reward −0.50  acc 25.0 %  len –  entropy –  useful –");
    }
}
