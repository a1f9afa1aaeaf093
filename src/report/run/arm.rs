//! What was run: each technique of the paper, on or off, with its settings, and every choice that the paper leaves open with the value taken.

use crate::algorithm::{
    Aggregation, AtCap, Beyond, DualClip, DynamicSampling, Kl, LogRatioClamp, Punishment, Std,
    Surplus, TokenMeanUnit,
};
use crate::experiment::{Experiment, Sampling, Verifier, compare};
use crate::report::text;
use serde::Serialize;

/// One technique of the paper.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Technique {
    /// The paper's name.
    pub name: &'static str,
    /// Section and equation.
    pub place: &'static str,
    /// Whether this arm uses it.
    pub on: bool,
    /// Its settings, or what takes its place.
    pub settings: String,
}

/// A choice that the paper leaves open, or that paper and released code decide differently.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decision {
    /// What is chosen.
    pub choice: &'static str,
    /// This run's value.
    pub value: String,
    /// What the paper says.
    pub paper: &'static str,
    /// What the released code does.
    pub released_code: &'static str,
}

/// The technique manifest.
pub fn techniques(experiment: &Experiment) -> Vec<Technique> {
    let dapo = &experiment.dapo;
    vec![
        Technique {
            name: "Clip-Higher",
            place: "§3.1, Eq. 10",
            on: dapo.clip.high > dapo.clip.low,
            settings: format!("ε_low = {}, ε_high = {}", dapo.clip.low, dapo.clip.high),
        },
        dynamic_sampling(dapo.dynamic_sampling),
        Technique {
            name: "Token-level loss",
            place: "§3.3, Eq. 12",
            on: dapo.aggregation == Aggregation::TokenMean,
            settings: match dapo.aggregation {
                Aggregation::TokenMean => {
                    format!("mean over the tokens {}", unit(dapo.token_mean_unit))
                }
                Aggregation::ResponseMean => {
                    "mean of each response, then over responses".to_owned()
                }
                Aggregation::ResponseSum => "sum of each response, mean over responses".to_owned(),
            },
        },
        Technique {
            name: "Overlong Filtering",
            place: "§3.4",
            on: dapo.overlong.filter,
            settings: format!(
                "truncated responses {} the loss",
                if dapo.overlong.filter { "leave" } else { "stay in" }
            ),
        },
        soft_overlong_punishment(experiment),
    ]
}

fn dynamic_sampling(dynamic_sampling: DynamicSampling) -> Technique {
    Technique {
        name: "Dynamic Sampling",
        place: "§3.2, Eq. 11",
        on: matches!(dynamic_sampling, DynamicSampling::Resample { .. }),
        settings: match dynamic_sampling {
            DynamicSampling::None {} => "every group trains".to_owned(),
            DynamicSampling::Resample { max_rounds: 0, .. } => "resample without a cap".to_owned(),
            DynamicSampling::Resample { max_rounds, .. } => {
                format!("resample, at most {max_rounds} rounds a step")
            }
        },
    }
}

fn soft_overlong_punishment(experiment: &Experiment) -> Technique {
    let punishment = experiment.dapo.overlong.punishment;
    Technique {
        name: "Soft Overlong Punishment",
        place: "§3.4, Eq. 13",
        on: matches!(punishment, Punishment::Soft { .. }),
        settings: match punishment {
            Punishment::None {} => "no length penalty".to_owned(),
            Punishment::Soft { cache_tokens, factor, .. } => format!(
                "L_max = {}, L_cache = {cache_tokens}, factor {factor}",
                experiment.rollout.max_response_tokens
            ),
        },
    }
}

fn unit(unit: TokenMeanUnit) -> &'static str {
    match unit {
        TokenMeanUnit::MiniBatch => "of the mini-batch",
        TokenMeanUnit::Group => "of each group, then over groups",
        TokenMeanUnit::RolloutStep => "of the rollout step",
        TokenMeanUnit::MicroBatch => "of each micro-batch, row-weighted",
    }
}

impl Decision {
    fn new(
        choice: &'static str,
        value: String,
        paper: &'static str,
        released_code: &'static str,
    ) -> Self {
        Self { choice, value, paper, released_code }
    }
}

fn idle() -> String {
    "no effect in this arm".to_owned()
}

/// Every open decision and its value, those that are fixed in the code included.
pub fn decisions(experiment: &Experiment) -> Vec<Decision> {
    let mut decisions = loss_decisions(experiment);
    decisions.extend(group_decisions(experiment));
    decisions.extend(trainer_decisions(experiment));
    decisions
}

fn loss_decisions(experiment: &Experiment) -> Vec<Decision> {
    let dapo = &experiment.dapo;
    vec![
        Decision::new(
            "normaliser of the token mean",
            match dapo.aggregation {
                Aggregation::TokenMean => format!("tokens {}", unit(dapo.token_mean_unit)),
                _ => idle(),
            },
            "tokens of one prompt's group (Eq. 12)",
            "intends the mini-batch; its default path takes micro-batches",
        ),
        Decision::new(
            "standard deviation of the advantage",
            match dapo.advantage.std {
                Std::Sample => format!("sample (n − 1), + {:e}", dapo.advantage.epsilon),
                Std::Population => format!("population (n), + {:e}", dapo.advantage.epsilon),
                Std::None => "no division".to_owned(),
            },
            "not stated",
            "sample (n − 1), + 1e-6",
        ),
        Decision::new(
            "group statistics",
            "f64; a constant group has advantage exactly 0".to_owned(),
            "not stated",
            "f32; rounding can leave a constant group a non-zero advantage",
        ),
        Decision::new("reward of the advantage", "shaped".to_owned(), "shaped", "shaped"),
        Decision::new(
            "dual clip",
            match dapo.dual_clip {
                DualClip::None {} => "off".to_owned(),
                DualClip::Constant { c } => format!("c = {c}"),
            },
            "none (Eq. 8)",
            "c = 10",
        ),
        Decision::new(
            "clamp of the log-ratio",
            match dapo.log_ratio_clamp {
                LogRatioClamp::None {} => "off".to_owned(),
                LogRatioClamp::Symmetric { bound } => format!("±{bound}"),
            },
            "none (Eq. 9)",
            "±20",
        ),
        Decision::new(
            "KL to a reference policy",
            match dapo.kl {
                Kl::None {} => "none".to_owned(),
                Kl::Penalty { estimator, coefficient } => {
                    format!("{}, coefficient {coefficient}", key(&estimator))
                }
            },
            "none (§2.3)",
            "none",
        ),
    ]
}

fn group_decisions(experiment: &Experiment) -> Vec<Decision> {
    let dapo = &experiment.dapo;
    vec![
        Decision::new(
            "what Dynamic Sampling filters on",
            match dapo.dynamic_sampling {
                DynamicSampling::None {} => idle(),
                DynamicSampling::Resample { .. } => "correctness only".to_owned(),
            },
            "correctness (Eq. 11)",
            "configurable; `acc` in the scripts",
        ),
        Decision::new(
            "at the cap on refill rounds",
            match dapo.dynamic_sampling {
                DynamicSampling::None {} => idle(),
                DynamicSampling::Resample { max_rounds: 0, .. } => "no cap".to_owned(),
                DynamicSampling::Resample { max_rounds, at_cap, .. } => match at_cap {
                    AtCap::Stop => format!("{max_rounds} rounds, then stop with an error"),
                    AtCap::Train => format!("{max_rounds} rounds, then train on what there is"),
                },
            },
            "not stated",
            "10 rounds, then stop with an error",
        ),
        Decision::new(
            "surplus groups",
            match dapo.dynamic_sampling {
                DynamicSampling::None {} => idle(),
                DynamicSampling::Resample { surplus: Surplus::Discard, .. } => {
                    "discarded in data order".to_owned()
                }
                DynamicSampling::Resample { surplus: Surplus::Carry, .. } => {
                    "carried to the next step".to_owned()
                }
            },
            "not stated",
            "discarded in data order",
        ),
        Decision::new(
            "overlong filter",
            match dapo.overlong.filter {
                true => "masks the loss; the reward stays in the group".to_owned(),
                false => idle(),
            },
            "masks the loss",
            "not in the released recipe",
        ),
        Decision::new(
            "soft punishment beyond L_max",
            match dapo.overlong.punishment {
                Punishment::None {} => idle(),
                Punishment::Soft { beyond: Beyond::Clamped, .. } => "clamped at −1".to_owned(),
                Punishment::Soft { beyond: Beyond::Unclamped, .. } => "unclamped".to_owned(),
            },
            "−1 (Eq. 13)",
            "unclamped",
        ),
    ]
}

fn trainer_decisions(experiment: &Experiment) -> Vec<Decision> {
    let warm_up = experiment.optimizer.warm_up;
    vec![
        Decision::new(
            "warm-up",
            match warm_up.rollout_steps {
                0 => "none".to_owned(),
                steps => format!("{steps} rollout steps, start: {}", key(&warm_up.start)),
            },
            "20 rollout steps",
            "10 rollout steps; the first one trains nothing",
        ),
        Decision::new(
            "order of the mini-batches",
            key(&experiment.training.mini_batch_order),
            "not stated",
            "length bands, from balancing ranks",
        ),
        Decision::new(
            "π_old",
            "recomputed by the training forward".to_owned(),
            "policy before the update",
            "recomputed by the training forward",
        ),
        Decision::new(
            "end of sequence",
            "a response token inside the mask".to_owned(),
            "not stated",
            "a response token inside the mask",
        ),
        Decision::new(
            "verifier",
            match experiment.reward.verifier {
                Verifier::AnswerLine => "last `Answer:` line, normalised".to_owned(),
                Verifier::StrictBox => "last `\\boxed{}`, compared raw".to_owned(),
            },
            "rule-based (Eq. 7)",
            "last `Answer:` line, normalised",
        ),
        Decision::new(
            "sampling in training",
            sampling(&experiment.rollout.sampling),
            "not stated",
            "temperature 1, top-p 1, no top-k",
        ),
        Decision::new(
            "sampling in evaluation",
            sampling(&experiment.evaluation.sampling),
            "temperature 1, top-p 0.7",
            "temperature 1, top-p 0.7, no top-k",
        ),
    ]
}

fn sampling(sampling: &Sampling) -> String {
    let top_k = match sampling.top_k {
        0 => "no top-k".to_owned(),
        k => format!("top-k {k}"),
    };
    format!("temperature {}, top-p {}, {top_k}", sampling.temperature, sampling.top_p)
}

/// The name that a choice has in an experiment file.
fn key(choice: &impl Serialize) -> String {
    match serde_json::to_value(choice) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a choice without data is a string, got {other:?}"),
    }
}

/// The other settings of the arm as `table.key` → value, in the order of their names.
pub fn settings(experiment: &Experiment) -> Vec<(String, String)> {
    let values = compare::flat(experiment);
    let mut settings = Vec::new();
    for table in [
        "rollout.",
        "training.",
        "optimizer.",
        "evaluation.",
        "prompt.",
        "execution.",
        "checkpoints.",
    ] {
        for (key, value) in values.iter().filter(|(key, _)| key.starts_with(table)) {
            let shown = match value {
                serde_json::Value::String(choice) => text::visible(choice),
                other => other.to_string(),
            };
            settings.push((text::visible(key), shown));
        }
    }
    settings
}
