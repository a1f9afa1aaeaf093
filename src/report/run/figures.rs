//! Curves of the run. The paper's curve of the same quantity is a shape reference: it has its own panel and axes.

use crate::experiment::Experiment;
use crate::records::StepMetrics;
use crate::records::metrics::{self as registry, DrawnMetric, Quantity, RunPlace};
use crate::report::page::{CurveLine, Curves};
use crate::report::{SetResult, run::dynamics, text};
use crate::study::{effect_checks::findings, paper};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq)]
pub struct RunFigure {
    /// Such as `7a`.
    pub paper_figure: &'static str,
    pub curves: Curves,
    /// A reader needs it before comparing the two.
    pub remark: String,
}

/// The development score and the paper's Figs 7 and 3.
pub fn beside_the_paper(
    experiment: &Experiment,
    metrics: &[StepMetrics],
    results: &[SetResult],
) -> Vec<RunFigure> {
    let figure = |quantity: &'static Quantity| {
        let name = quantity.paper.iter().find(|name| name.starts_with(['3', '7']));
        let curves = of_quantity(experiment, metrics, quantity);
        beside(name.map_or("", String::as_str), curves, quantity.run_remark())
    };
    accuracy(results).into_iter().chain(in_place(RunPlace::Paper).map(figure)).collect()
}

pub fn effects(experiment: &Experiment, metrics: &[StepMetrics]) -> Vec<Curves> {
    let reads_no_clip = findings::reads_no_clip(experiment);
    let shown = in_place(RunPlace::Effects).filter(|it| !(reads_no_clip && it.id == "above"));
    let curves = shown.map(|quantity| of_quantity(experiment, metrics, quantity));
    curves.filter(|curves| !curves.lines.is_empty()).collect()
}

/// Not in the paper; quantities without values are left out.
pub fn own(experiment: &Experiment, metrics: &[StepMetrics]) -> Vec<Curves> {
    let curves = in_place(RunPlace::Own).map(|it| of_quantity(experiment, metrics, it));
    let styles = over_updates("Solution styles", "%", styles(metrics));
    curves.chain([styles]).filter(|curves| !curves.lines.is_empty()).collect()
}

fn in_place(place: RunPlace) -> impl Iterator<Item = &'static Quantity> {
    registry::quantities().iter().filter(move |quantity| quantity.run == Some(place))
}

/// Base and final policy, for each set.
pub fn pass_at_k(results: &[SetResult]) -> Vec<Curves> {
    let line = |label: &str, passes: &BTreeMap<u64, f64>| {
        line(label, passes.iter().map(|(k, pass)| (*k as f64, 100.0 * pass)))
    };
    let curves = |result: &SetResult| {
        let base = result.base.as_ref().map(|base| line("base", &base.pass_at_k));
        let last = result.last.as_ref().map(|last| line("final", &last.pass_at_k));
        let title = format!("pass@k on {}", result.set);
        let lines = last.into_iter().chain(base).collect();
        Curves { x: "k".to_owned(), doubling: true, ..over_updates(&title, "%", lines) }
    };
    results.iter().filter(|result| result.samples > 1).map(curves).collect()
}

/// Fig. 1: avg@k over updates of the set with most evaluations.
pub fn accuracy(results: &[SetResult]) -> Option<RunFigure> {
    // The last of equally long histories is the development set.
    let result = results.iter().max_by_key(|result| result.history.len())?;
    let points = result.history.iter().map(|(x, y, _)| (*x as f64, 100.0 * y));
    let band = result.history.iter().filter_map(|(x, y, half)| {
        let (y, half) = (100.0 * y, 100.0 * (*half)?);
        let [low, high] = [y - half, y + half].map(|percent| percent.clamp(0.0, 100.0));
        Some((*x as f64, low, high))
    });
    let band: Vec<_> = band.collect();
    let title = format!("avg@{} on {}", result.samples, result.set);
    let interval = match band.len() {
        0 if result.samples == 1 => ", no interval: k = 1",
        0 => ", no interval",
        1 => "",
        _ => " with its interval for these problems",
    };
    let lines = vec![CurveLine { band, ..line(&format!("{title}{interval}"), points) }];
    let remark = format!("Ours: {} problems × {} samples.", result.problems, result.samples);
    Some(beside("1", over_updates(&title, "%", lines), &remark))
}

fn beside(paper_figure: &'static str, curves: Curves, remark: &str) -> RunFigure {
    let remark = format!("{remark} Paper: {}.", paper::figure(paper_figure)[0].remark);
    RunFigure { paper_figure, curves, remark }
}

fn of_quantity(
    experiment: &Experiment,
    metrics: &[StepMetrics],
    quantity: &'static Quantity,
) -> Curves {
    let legend =
        |drawn: &'static DrawnMetric| experiment.dapo.counted(&drawn.name).unwrap_or(&drawn.legend);
    let scale = if quantity.unit == "%" { 100.0 } else { 1.0 };
    let lines = quantity.metrics.iter();
    let lines = lines.map(|drawn| course(metrics, &drawn.name, legend(drawn), scale));
    let lines = lines.filter(|line| !line.centre.is_empty()).collect();
    over_updates(&quantity.title, &quantity.unit, lines)
}

fn course(metrics: &[StepMetrics], name: &str, label: &str, scale: f64) -> CurveLine {
    // Rounding errors around 0 would fill the axis.
    let shown = |y: f64| if y.abs() < 1e-12 { 0.0 } else { scale * y };
    line(label, dynamics::curve(metrics, name).into_iter().map(|(x, y)| (x, shown(y))))
}

fn line(label: &str, points: impl IntoIterator<Item = (f64, f64)>) -> CurveLine {
    let centre = points.into_iter().collect();
    CurveLine { label: label.to_owned(), centre, ..CurveLine::default() }
}

fn over_updates(title: &str, unit: &str, mut lines: Vec<CurveLine>) -> Curves {
    (10..).zip(&mut lines).for_each(|(style, line)| line.style = style);
    Curves::new(title, "updates", unit, lines)
}

fn styles(metrics: &[StepMetrics]) -> Vec<CurveLine> {
    let names = metrics.iter().flat_map(|step| step.metrics.keys());
    let names: BTreeSet<&String> = names
        .filter(|name| name.starts_with("rollout/style_") && name.ends_with("_share"))
        .collect();
    let style = |name: &&String| {
        let style = name.trim_start_matches("rollout/style_").trim_end_matches("_share");
        course(metrics, name, &text::visible(style), 100.0)
    };
    names.iter().map(style).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::extends;
    use crate::records::Counters;
    use std::path::Path;

    fn loaded(name: &str) -> Experiment {
        let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/methods");
        extends::load(&experiments.join(name)).unwrap()
    }

    #[test]
    fn a_learning_curve_names_its_set_and_has_the_intervals_that_its_evaluations_have() {
        let drawn = |samples, halves: &[Option<f64>]| {
            let points = halves.iter().zip(0..).map(|(half, x)| (x, 0.5, *half));
            let result = SetResult {
                set: "dev".to_owned(),
                problems: 4,
                samples,
                base: None,
                last: None,
                difference: None,
                history: points.collect(),
            };
            let line = accuracy(&[result]).unwrap().curves.lines.remove(0);
            (line.label, line.band)
        };
        let (label, band) = drawn(1, &[None, None]);
        assert_eq!((label.as_str(), band), ("avg@1 on dev, no interval: k = 1", vec![]));
        assert_eq!(drawn(2, &[None]).0, "avg@2 on dev, no interval");
        assert_eq!(drawn(2, &[Some(0.25)]), ("avg@2 on dev".to_owned(), vec![(0.0, 25.0, 75.0)]));
        let (label, band) = drawn(2, &[None, Some(0.25), Some(0.75)]);
        assert_eq!(label, "avg@2 on dev with its interval for these problems");
        assert_eq!(band, [(1.0, 25.0, 75.0), (2.0, 0.0, 100.0)]);
    }

    #[test]
    fn entropy_of_all_rollouts_stands_beside_the_batchs_where_it_was_recorded() {
        let labels = |names: &[&str]| -> Vec<String> {
            let metrics = names.iter().map(|name| ((*name).to_owned(), 0.25)).collect();
            let line = StepMetrics { step: 1, counters: Counters::default(), metrics };
            let figures = beside_the_paper(&loaded("rloo.toml"), &[line], &[]);
            let entropy = figures.iter().find(|figure| figure.paper_figure == "7c");
            entropy.unwrap().curves.lines.iter().map(|line| line.label.clone()).collect()
        };
        assert_eq!(labels(&["policy/entropy"]), ["batch"]);
        let both = ["policy/entropy", "policy/rollout_entropy"];
        assert_eq!(labels(&both), ["all rollouts", "batch"]);
    }

    #[test]
    fn tokens_above_the_clip_range_are_drawn_where_the_method_reads_it() {
        let drawn = |name: &str| {
            let metrics = [("effect/clip_higher_let_through_share".to_owned(), 0.25)].into();
            let line = [StepMetrics { step: 1, counters: Counters::default(), metrics }];
            let is_drawn = !effects(&loaded(name), &line).is_empty();
            assert_eq!(is_drawn, !dynamics::rows(&loaded(name), &line).is_empty(), "{name}");
            is_drawn
        };
        let unread = ["cispo", "dppo-tv", "gmpo", "gspo", "kl-cov", "luspo", "sapo", "vespo"];
        assert!(drawn("rloo.toml") && drawn("mis.toml"));
        assert!(!unread.iter().any(|name| drawn(&format!("{name}.toml"))));
    }

    #[test]
    fn a_curve_of_clipped_tokens_says_which_tokens_its_method_counts() {
        let legend = |name: &str| {
            let metrics = [("loss/up_clipped_probability_mean".to_owned(), 0.25)].into();
            let line = [StepMetrics { step: 1, counters: Counters::default(), metrics }];
            let figures = beside_the_paper(&loaded(name), &line, &[]);
            let up_clipped = figures.iter().find(|figure| figure.paper_figure == "3a");
            up_clipped.unwrap().curves.lines[0].label.clone()
        };
        assert_eq!(legend("tis.toml"), "advantage > 0, ratio > 1 + ε_high");
        assert_eq!(legend("cispo.toml"), "ratio > 1 + high, any advantage");
        assert_eq!(legend("dppo-tv.toml"), "advantage > 0, π_θ − π_old > high");
        assert_eq!(legend("luspo.toml"), "advantage > 0, response’s ratio > 1 + high");
    }
}
