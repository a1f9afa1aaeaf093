//! How a run ended, in words.

use crate::records::{Ending, NotFinite, Outcome};
use crate::report::text;

/// Without a full stop.
pub fn sentence(outcome: &Outcome) -> String {
    let step = outcome.step();
    match outcome.ending {
        Ending::Finished => format!("all {step} rollout steps were trained"),
        Ending::Saturated => format!(
            "no group of rollout step {step} had both right and wrong responses, so that nothing was left to learn from"
        ),
        Ending::Stalled => format!(
            "every response of rollout step {step} was wrong, so that there was nothing to learn from"
        ),
        // Records up to format 3 hold the value in a sentence alone.
        Ending::Diverged => match &outcome.not_finite {
            Some(value) => format!("in rollout step {step}, {}", value_in_words(value)),
            None => text::visible(outcome.reason.trim_end_matches('.')),
        },
    }
}

fn value_in_words(value: &NotFinite) -> String {
    match value {
        NotFinite::SamplerLogits { prompt, token } => format!(
            "the logits for token {token} of a response to prompt {prompt} were NaN or infinite"
        ),
        NotFinite::Loss { update, value } => {
            format!("the loss of update {update} was {}", text::visible(value))
        }
        NotFinite::BackwardPass { update } => {
            format!("a number of the backward pass of update {update} was NaN or infinite")
        }
        NotFinite::Gradient { update, tensor, element, elements } => format!(
            "the gradient of {} in update {update} was NaN or infinite at element {element} of {elements}",
            text::visible(tensor)
        ),
        NotFinite::GradientNorm { update } => {
            format!("the norm of the gradient of update {update} was infinite")
        }
        NotFinite::Updated { update, tensor, value } => format!(
            "update {update} would have made a {} of {} NaN or infinite",
            text::visible(value),
            text::visible(tensor)
        ),
        NotFinite::Products { update } => {
            format!("update {update} would have made products of weights infinite")
        }
    }
}
