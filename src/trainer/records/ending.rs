//! How a run ended, as data; the only sentences are in [`sentence`], which is part of formats 1 to 3.

use crate::records::Counters;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    Finished,
    /// No group of a whole step had a useful gradient.
    Saturated,
    /// As `Saturated`, with every response of the step wrong.
    Stalled,
    Diverged,
}

impl Ending {
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Saturated => "saturated",
            Self::Stalled => "stalled",
            Self::Diverged => "diverged",
        }
    }

    /// `correct`: responses of the last step, which could not train.
    pub fn without_gradient(correct: usize) -> Self {
        if correct == 0 { Self::Stalled } else { Self::Saturated }
    }
}

/// Updates are counted over the run, from 1. As text it is a part of [`sentence`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "component", rename_all = "kebab-case", deny_unknown_fields)]
pub enum NotFinite {
    /// A response token was to be drawn from these logits.
    #[error("prompt {prompt}: the logits of response token {token} are not finite")]
    SamplerLogits { prompt: usize, token: usize },
    /// `value` is `NaN`, `inf` or `-inf`.
    #[error("update {update}: the loss is {value}")]
    Loss { update: u64, value: String },
    /// Exact arithmetic, before rounding into the window.
    #[error("update {update}: a number of the backward pass is not finite")]
    BackwardPass { update: u64 },
    /// The gradient of `tensor` at `element` of `elements`.
    #[error(
        "update {update}: the gradient of {tensor} is not finite at element {element} of {elements}"
    )]
    Gradient { update: u64, tensor: String, element: usize, elements: usize },
    /// Gradients are finite, the sum of their squares is not.
    #[error("update {update}: the gradient's norm is infinite")]
    GradientNorm { update: u64 },
    /// An updated `value`: `weight`, `first moment` or `second moment`.
    #[error("update {update}: the update would make the {value} of {tensor} NaN or infinite")]
    Updated { update: u64, tensor: String, value: String },
    /// The updated weights are finite, their products are not.
    #[error("update {update}: the update would make products of the weights infinite")]
    Products { update: u64 },
}

/// `outcome.json`, written last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    pub ending: Ending,
    /// Diverged runs have it, from format 4 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_finite: Option<NotFinite>,
    /// Formats 1 to 3: a [`sentence`], which the ledger binds; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub counters: Counters,
    /// File under the run folder → SHA-256.
    pub digests: BTreeMap<String, String>,
}

impl Outcome {
    pub fn new(
        format: u64,
        ending: Ending,
        not_finite: Option<NotFinite>,
        counters: Counters,
    ) -> Self {
        let mut outcome =
            Self { ending, not_finite, reason: String::new(), counters, digests: BTreeMap::new() };
        if format <= LAST_WITH_SENTENCES {
            let step = outcome.step();
            outcome.reason = sentence(ending, step, outcome.not_finite.take().as_ref());
        }
        outcome
    }

    /// The last step, or the one that could not be made.
    pub fn step(&self) -> u64 {
        self.counters.rollout_steps + u64::from(self.ending != Ending::Finished)
    }
}

/// `diverged/divergence.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DivergenceRecord {
    pub step: u64,
    /// As in the run's [`Outcome`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_finite: Option<NotFinite>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Measured before the failure; finite values only.
    pub metrics: BTreeMap<String, f64>,
}

/// Ledgers of later formats bind no [`sentence`].
pub const LAST_WITH_SENTENCES: u64 = 3;

/// Endings in `outcome.json` and ledgers of formats 1 to 3. It never changes; texts for readers are made elsewhere.
pub fn sentence(ending: Ending, step: u64, not_finite: Option<&NotFinite>) -> String {
    match ending {
        Ending::Finished => format!("{step} rollout steps were done"),
        Ending::Saturated => {
            format!(
                "no group of rollout step {step} was partly correct: nothing left to learn from"
            )
        }
        Ending::Stalled => {
            format!(
                "every response of rollout step {step} was wrong: there was nothing to learn from"
            )
        }
        Ending::Diverged => {
            let place = not_finite.map(NotFinite::to_string).unwrap_or_default();
            format!("rollout step {step}, {place}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Digests of runs with formats 1 to 3 hold these bytes.
    #[test]
    fn the_encoding_of_formats_1_to_3_never_changes() {
        let loss = NotFinite::Loss { update: 7, value: "NaN".to_string() };
        let sentences = [
            sentence(Ending::Finished, 40, None),
            sentence(Ending::Saturated, 3, None),
            sentence(Ending::Stalled, 1, None),
            sentence(Ending::Diverged, 2, Some(&loss)),
        ];
        assert_eq!(
            sentences,
            [
                "40 rollout steps were done",
                "no group of rollout step 3 was partly correct: nothing left to learn from",
                "every response of rollout step 1 was wrong: there was nothing to learn from",
                "rollout step 2, update 7: the loss is NaN",
            ]
        );
    }

    #[test]
    fn an_outcome_has_a_sentence_up_to_format_3_and_data_from_format_4_on() {
        let counters = Counters { rollout_steps: 4, updates: 13, generation_rounds: 5 };
        let value = NotFinite::Gradient {
            update: 14,
            tensor: "lm_head".to_string(),
            element: 3,
            elements: 8,
        };
        let of_format =
            |format| Outcome::new(format, Ending::Diverged, Some(value.clone()), counters);
        let (third, fourth) = (of_format(3), of_format(4));
        let text =
            "rollout step 5, update 14: the gradient of lm_head is not finite at element 3 of 8";
        assert_eq!((third.reason.as_str(), third.not_finite), (text, None));
        assert_eq!(
            serde_json::to_value(&fourth).unwrap(),
            json!({
                "ending": "diverged",
                "not_finite": {"component": "gradient", "update": 14, "tensor": "lm_head", "element": 3, "elements": 8},
                "counters": {"rollout_steps": 4, "updates": 13, "generation_rounds": 5},
                "digests": {},
            })
        );
        let read: Outcome = serde_json::from_value(serde_json::to_value(&fourth).unwrap()).unwrap();
        assert_eq!(read, fourth);
        let stray = json!({"component": "gradient-norm", "update": 1, "tensor": "x"});
        assert!(serde_json::from_value::<NotFinite>(stray).is_err());
    }
}
