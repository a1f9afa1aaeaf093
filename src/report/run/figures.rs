//! The curves of the run. Where the paper shows the same quantity, its curve stands beside
//! ours as a shape reference: in its own panel, with its own axes, never on ours.

use crate::records::StepMetrics;
use crate::report::run::dynamics;
use crate::report::{SetResult, text};
use crate::study::paper;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// One quantity over updates.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The paper's figure, such as `7a`; `None` where the paper has no counterpart.
    pub paper_figure: Option<&'static str>,
    /// What is shown.
    pub title: String,
    /// What x counts: `updates`, or `k` (which doubles from point to point).
    pub x: &'static str,
    /// Unit of our values.
    pub unit: &'static str,
    /// This run.
    pub ours: Vec<Line>,
    /// The paper's run.
    pub paper: Vec<Line>,
    /// Unit of the paper's values.
    pub paper_unit: &'static str,
    /// What a reader must know before comparing the two.
    pub remark: String,
}

/// One line of a panel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Its name in the legend.
    pub label: String,
    /// (updates, value).
    pub points: Vec<(f64, f64)>,
    /// Half the width of each point's 95 % interval; empty where there is none.
    pub half_widths: Vec<f64>,
}

/// Title, unit, and the metrics of `metrics.jsonl` with their names in the legend.
type Plan = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// A quantity, the paper's figure of it, and what a reader must know before comparing.
const PAPER_FIGURES: [(Plan, &str, &str); 6] = [
    (
        (
            "Mean response length",
            "tokens",
            &[
                ("rollout/response_tokens_mean", "all generated"),
                ("train/response_tokens_mean", "after filtering"),
            ],
        ),
        "7a",
        "Lengths are in each model's own tokens.",
    ),
    (
        (
            "Reward",
            "reward",
            &[("rollout/reward_mean", "all generated"), ("train/reward_mean", "after filtering")],
        ),
        "7b",
        "Both are ±1 for correctness plus the length penalty. Ours is drawn before and after \
         filtering, because the paper does not say which it plots.",
    ),
    (
        (
            "Entropy of the policy",
            "nats",
            &[("policy/rollout_entropy", "all rollouts"), ("policy/entropy", "batch")],
        ),
        "7c",
        "Depends on the vocabulary; only the course over training can be compared.",
    ),
    (
        (
            "Mean probability of sampled tokens",
            "probability",
            &[
                ("policy/rollout_token_probability_mean", "all rollouts"),
                ("policy/token_probability_mean", "batch"),
            ],
        ),
        "7d",
        "The mirror image of the entropy.",
    ),
    (
        (
            "Mean probability of up-clipped tokens",
            "probability",
            &[("loss/up_clipped_probability_mean", "this run")],
        ),
        "3a",
        "Ours: tokens with a positive advantage whose ratio exceeds 1 + ε_high; steps without \
         such a token are left out.",
    ),
    (
        (
            "Share of prompts with accuracy 1",
            "percent",
            &[("rollout/groups_all_correct_share", "all generated")],
        ),
        "3b",
        "The share that Dynamic Sampling drops for being solved.",
    ),
];

const OWN_FIGURES: [Plan; 8] = [
    (
        "Accuracy in training",
        "percent",
        &[("rollout/accuracy", "all generated"), ("train/accuracy", "after filtering")],
    ),
    (
        "Groups",
        "percent",
        &[
            ("rollout/groups_useful_share", "useful"),
            ("rollout/groups_all_correct_share", "all correct"),
            ("rollout/groups_all_wrong_share", "all wrong"),
        ],
    ),
    (
        "Truncated responses",
        "percent",
        &[
            ("rollout/truncated_share", "all generated"),
            ("train/truncated_share", "after filtering"),
        ],
    ),
    (
        "Clipped tokens",
        "percent",
        &[("loss/clip_fraction_high", "from above"), ("loss/clip_fraction_low", "from below")],
    ),
    (
        "Gradient norm before clipping",
        "L2 norm",
        &[("optimizer/gradient_norm_max", "largest"), ("optimizer/gradient_norm_mean", "mean")],
    ),
    (
        "Sampler against trainer",
        "nats",
        &[("policy/mismatch_max", "largest"), ("policy/mismatch_mean", "mean")],
    ),
    ("Generation rounds of one step", "rounds", &[("rollout/rounds", "rounds")]),
    ("Divergence from π_old", "nats", &[("loss/approx_kl", "approximate KL")]),
];

const EFFECT_FIGURES: [Plan; 4] = [
    (
        "Tokens above 1 + ε_low, advantage > 0",
        "percent",
        &[
            ("effect/clip_higher_let_through_share", "let through"),
            ("loss/clip_fraction_high", "clipped"),
        ],
    ),
    ("Groups dropped", "percent", &[("effect/dynamic_sampling_dropped_share", "dropped")]),
    (
        "Loss weight moved between responses",
        "percent",
        &[("effect/token_level_loss_moved_share_mean", "against the response mean")],
    ),
    ("Responses punished", "percent", &[("effect/soft_punishment_punished_share", "punished")]),
];

/// The development score and the paper's Figs 7 and 3, in that order.
pub fn beside_the_paper(metrics: &[StepMetrics], results: &[SetResult]) -> Vec<Figure> {
    let figure = |(plan, name, remark): &(Plan, &'static str, &str)| {
        of_plan(metrics, plan).beside(name, remark)
    };
    accuracy(results).into_iter().chain(PAPER_FIGURES.iter().map(figure)).collect()
}

/// What each technique did, where the run recorded it.
pub fn effects(metrics: &[StepMetrics]) -> Vec<Figure> {
    let figures = EFFECT_FIGURES.iter().map(|plan| of_plan(metrics, plan));
    figures.filter(|figure| !figure.ours.is_empty()).collect()
}

/// What the paper does not plot but a reader of a run needs; empty quantities are left out.
pub fn own(metrics: &[StepMetrics]) -> Vec<Figure> {
    let figures = OWN_FIGURES.iter().map(|plan| of_plan(metrics, plan));
    let styles = own_figure("Solution styles", "updates", "percent", styles(metrics));
    figures.chain([styles]).filter(|figure| !figure.ours.is_empty()).collect()
}

/// Unbiased pass@k over k, the base policy beside the final one, for each set.
pub fn pass_at_k(results: &[SetResult]) -> Vec<Figure> {
    let line = |label: &str, passes: &BTreeMap<u64, f64>| {
        line(label, passes.iter().map(|(k, pass)| (*k as f64, 100.0 * pass)))
    };
    let figure = |result: &SetResult| {
        let base = result.base.as_ref().map(|base| line("base", &base.pass_at_k));
        let last = result.last.as_ref().map(|last| line("final", &last.pass_at_k));
        let title = format!("pass@k on {}", result.set);
        own_figure(&title, "k", "percent", last.into_iter().chain(base).collect())
    };
    results.iter().filter(|result| result.samples > 1).map(figure).collect()
}

/// Fig. 1: avg@k over updates, of the set that was evaluated most often.
fn accuracy(results: &[SetResult]) -> Option<Figure> {
    // The last of the longest histories: the development set is last.
    let result = results.iter().max_by_key(|result| result.history.len())?;
    let label = format!("avg@{} with its interval for these problems", result.samples);
    let points = result.history.iter().map(|(x, y, _)| (*x as f64, 100.0 * y));
    let half_widths = result.history.iter().map(|(_, _, half)| 100.0 * half).collect();
    let ours = vec![Line { half_widths, ..line(&label, points) }];
    let title = format!("avg@{} on {}", result.samples, result.set);
    let remark = format!("Ours: {} problems × {} samples.", result.problems, result.samples);
    Some(own_figure(&title, "updates", "percent", ours).beside("1", &remark))
}

impl Figure {
    fn beside(self, name: &'static str, remark: &str) -> Self {
        let published = paper::figure(name)[0];
        let scale = if published.y_unit == "share" { 100.0 } else { 1.0 };
        let points = published.points.iter().map(|(x, y)| (*x, scale * y));
        Self {
            paper_figure: Some(name),
            paper: vec![line(&published.label, points)],
            remark: format!("{remark} Paper: {}.", published.remark),
            ..self
        }
    }
}

fn of_plan(metrics: &[StepMetrics], (title, unit, names): &Plan) -> Figure {
    let scale = if *unit == "percent" { 100.0 } else { 1.0 };
    let lines = names.iter().map(|(name, label)| course(metrics, name, label, scale));
    own_figure(title, "updates", unit, lines.filter(|line| !line.points.is_empty()).collect())
}

fn course(metrics: &[StepMetrics], name: &str, label: &str, scale: f64) -> Line {
    line(label, dynamics::curve(metrics, name).into_iter().map(|(x, y)| (x, scale * y)))
}

fn line(label: &str, points: impl Iterator<Item = (f64, f64)>) -> Line {
    Line { label: label.to_owned(), points: points.collect(), half_widths: Vec::new() }
}

fn own_figure(title: &str, x: &'static str, unit: &'static str, ours: Vec<Line>) -> Figure {
    Figure {
        paper_figure: None,
        title: title.to_owned(),
        x,
        unit,
        ours,
        paper: Vec::new(),
        paper_unit: unit,
        remark: String::new(),
    }
}

fn styles(metrics: &[StepMetrics]) -> Vec<Line> {
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
    use crate::records::Counters;

    #[test]
    fn entropy_of_all_rollouts_stands_beside_the_batchs_where_it_was_recorded() {
        let labels = |names: &[&str]| -> Vec<String> {
            let metrics = names.iter().map(|name| ((*name).to_owned(), 0.25)).collect();
            let line = StepMetrics { step: 1, counters: Counters::default(), metrics };
            let figures = beside_the_paper(&[line], &[]);
            let entropy = figures.iter().find(|figure| figure.paper_figure == Some("7c"));
            entropy.unwrap().ours.iter().map(|line| line.label.clone()).collect()
        };
        assert_eq!(labels(&["policy/entropy"]), ["batch"]);
        let both = ["policy/entropy", "policy/rollout_entropy"];
        assert_eq!(labels(&both), ["all rollouts", "batch"]);
    }
}
