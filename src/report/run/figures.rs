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

/// A quantity that `metrics.jsonl` holds.
struct Plan {
    paper_figure: Option<&'static str>,
    title: &'static str,
    unit: &'static str,
    /// (metric, its name in the legend).
    metrics: &'static [(&'static str, &'static str)],
    remark: &'static str,
}

const fn plan(
    title: &'static str,
    unit: &'static str,
    metrics: &'static [(&'static str, &'static str)],
) -> Plan {
    Plan { paper_figure: None, title, unit, metrics, remark: "" }
}

impl Plan {
    const fn beside(self, figure: &'static str, remark: &'static str) -> Self {
        Self { paper_figure: Some(figure), remark, ..self }
    }
}

const PAPER_FIGURES: [Plan; 6] = [
    plan(
        "Mean response length",
        "tokens",
        &[
            ("rollout/response_tokens_mean", "all generated"),
            ("train/response_tokens_mean", "after filtering"),
        ],
    )
    .beside("7a", "Lengths are in each model's own tokens."),
    plan(
        "Reward",
        "reward",
        &[("rollout/reward_mean", "all generated"), ("train/reward_mean", "after filtering")],
    )
    .beside(
        "7b",
        "Both are ±1 for correctness plus the length penalty. Ours is drawn before and after \
         filtering, because the paper does not say which it plots.",
    ),
    plan(
        "Entropy of the policy",
        "nats",
        &[("policy/rollout_entropy", "all rollouts"), ("policy/entropy", "batch")],
    )
    .beside("7c", "Depends on the vocabulary; only the course over training can be compared."),
    plan(
        "Mean probability of sampled tokens",
        "probability",
        &[
            ("policy/rollout_token_probability_mean", "all rollouts"),
            ("policy/token_probability_mean", "batch"),
        ],
    )
    .beside("7d", "The mirror image of the entropy."),
    plan(
        "Mean probability of up-clipped tokens",
        "probability",
        &[("loss/up_clipped_probability_mean", "this run")],
    )
    .beside(
        "3a",
        "Ours: tokens with a positive advantage whose ratio exceeds 1 + ε_high; steps without \
         such a token are left out.",
    ),
    plan(
        "Share of prompts with accuracy 1",
        "percent",
        &[("rollout/groups_all_correct_share", "all generated")],
    )
    .beside("3b", "The share that Dynamic Sampling drops for being solved."),
];

/// The development score and the paper's Figs 7 and 3, in that order.
pub fn beside_the_paper(metrics: &[StepMetrics], results: &[SetResult]) -> Vec<Figure> {
    let mut figures: Vec<Figure> = accuracy(results).into_iter().collect();
    for plan in &PAPER_FIGURES {
        let Some(name) = plan.paper_figure else { continue };
        figures.push(Figure {
            paper_figure: Some(name),
            title: plan.title.to_owned(),
            x: "updates",
            unit: plan.unit,
            ours: lines(metrics, plan),
            paper: paper_lines(name, 1),
            paper_unit: plan.unit,
            remark: format!("{} Paper: {}.", plan.remark, paper::figure(name)[0].remark),
        });
    }
    figures
}

/// Fig. 1: avg@k over updates, of the set that was evaluated most often.
fn accuracy(results: &[SetResult]) -> Option<Figure> {
    // The last of the longest histories: the development set is last.
    let result = results.iter().max_by_key(|result| result.history.len())?;
    let line = Line {
        label: format!("avg@{} with its interval for these problems", result.samples),
        points: result.history.iter().map(|(x, y, _)| (*x as f64, 100.0 * y)).collect(),
        half_widths: result.history.iter().map(|(_, _, half)| 100.0 * half).collect(),
    };
    Some(Figure {
        paper_figure: Some("1"),
        title: format!("avg@{} on {}", result.samples, result.set),
        x: "updates",
        unit: "percent",
        ours: vec![line],
        paper: paper_lines("1", 1),
        paper_unit: "percent",
        remark: format!(
            "Ours: {} problems × {} samples. Paper: {}.",
            result.problems,
            result.samples,
            paper::figure("1")[0].remark
        ),
    })
}

fn paper_lines(figure: &str, count: usize) -> Vec<Line> {
    let line = |curve: &&paper::Curve| {
        let scale = if curve.y_unit == "share" { 100.0 } else { 1.0 };
        Line {
            label: curve.label.clone(),
            points: curve.points.iter().map(|(x, y)| (*x, scale * y)).collect(),
            half_widths: Vec::new(),
        }
    };
    paper::figure(figure).iter().take(count).map(line).collect()
}

fn lines(metrics: &[StepMetrics], plan: &Plan) -> Vec<Line> {
    let scale = if plan.unit == "percent" { 100.0 } else { 1.0 };
    plan.metrics
        .iter()
        .map(|(name, label)| Line {
            label: (*label).to_owned(),
            points: dynamics::curve(metrics, name)
                .into_iter()
                .map(|(x, y)| (x, scale * y))
                .collect(),
            half_widths: Vec::new(),
        })
        .filter(|line| !line.points.is_empty())
        .collect()
}

const OWN_FIGURES: [Plan; 8] = [
    plan(
        "Accuracy in training",
        "percent",
        &[("rollout/accuracy", "all generated"), ("train/accuracy", "after filtering")],
    ),
    plan(
        "Groups",
        "percent",
        &[
            ("rollout/groups_useful_share", "useful"),
            ("rollout/groups_all_correct_share", "all correct"),
            ("rollout/groups_all_wrong_share", "all wrong"),
        ],
    ),
    plan(
        "Truncated responses",
        "percent",
        &[
            ("rollout/truncated_share", "all generated"),
            ("train/truncated_share", "after filtering"),
        ],
    ),
    plan(
        "Clipped tokens",
        "percent",
        &[("loss/clip_fraction_high", "from above"), ("loss/clip_fraction_low", "from below")],
    ),
    plan(
        "Gradient norm before clipping",
        "L2 norm",
        &[("optimizer/gradient_norm_max", "largest"), ("optimizer/gradient_norm_mean", "mean")],
    ),
    plan(
        "Sampler against trainer",
        "nats",
        &[("policy/mismatch_max", "largest"), ("policy/mismatch_mean", "mean")],
    ),
    plan("Generation rounds of one step", "rounds", &[("rollout/rounds", "rounds")]),
    plan("Divergence from π_old", "nats", &[("loss/approx_kl", "approximate KL")]),
];

const EFFECT_FIGURES: [Plan; 4] = [
    plan(
        "Tokens above 1 + ε_low, advantage > 0",
        "percent",
        &[
            ("effect/clip_higher_let_through_share", "let through"),
            ("loss/clip_fraction_high", "clipped"),
        ],
    ),
    plan("Groups dropped", "percent", &[("effect/dynamic_sampling_dropped_share", "dropped")]),
    plan(
        "Loss weight moved between responses",
        "percent",
        &[("effect/token_level_loss_moved_share_mean", "against the response mean")],
    ),
    plan("Responses punished", "percent", &[("effect/soft_punishment_punished_share", "punished")]),
];

/// What each technique did, where the run recorded it.
pub fn effects(metrics: &[StepMetrics]) -> Vec<Figure> {
    own_figures(metrics, &EFFECT_FIGURES)
}

/// What the paper does not plot but a reader of a run needs; empty quantities are left out.
pub fn own(metrics: &[StepMetrics]) -> Vec<Figure> {
    let mut figures = own_figures(metrics, &OWN_FIGURES);
    figures.push(own_figure("Solution styles", "updates", "percent", styles(metrics)));
    figures.retain(|figure| !figure.ours.is_empty());
    figures
}

fn own_figures(metrics: &[StepMetrics], plans: &[Plan]) -> Vec<Figure> {
    let figure = |plan: &Plan| own_figure(plan.title, "updates", plan.unit, lines(metrics, plan));
    plans.iter().map(figure).filter(|figure| !figure.ours.is_empty()).collect()
}

/// Unbiased pass@k over k, the base policy beside the final one, for each set.
pub fn pass_at_k(results: &[SetResult]) -> Vec<Figure> {
    let line = |label: &str, passes: &BTreeMap<u64, f64>| Line {
        label: label.to_owned(),
        points: passes.iter().map(|(k, pass)| (*k as f64, 100.0 * pass)).collect(),
        half_widths: Vec::new(),
    };
    let figure = |result: &SetResult| {
        let base = result.base.as_ref().map(|base| line("base", &base.pass_at_k));
        let last = result.last.as_ref().map(|last| line("final", &last.pass_at_k));
        let title = format!("pass@k on {}", result.set);
        own_figure(&title, "k", "percent", last.into_iter().chain(base).collect())
    };
    results.iter().filter(|result| result.samples > 1).map(figure).collect()
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
    let names: BTreeSet<&str> = metrics
        .iter()
        .flat_map(|step| step.metrics.keys())
        .filter_map(|name| name.strip_prefix("rollout/style_")?.strip_suffix("_share"))
        .collect();
    names
        .into_iter()
        .map(|style| Line {
            label: text::visible(style),
            points: dynamics::curve(metrics, &format!("rollout/style_{style}_share"))
                .into_iter()
                .map(|(x, y)| (x, 100.0 * y))
                .collect(),
            half_widths: Vec::new(),
        })
        .collect()
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
