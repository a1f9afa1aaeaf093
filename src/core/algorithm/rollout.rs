//! Plain data of the pipeline: `Problem` → `Prompt` → `Group<Rollout>` → `Group<ScoredRollout>`.

use serde::{Deserialize, Serialize};

/// One row of a data set: a question with a verifiable answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Unique within its data set; part of the key of every random draw for this problem.
    pub id: String,
    /// The question's text, before any template.
    pub question: String,
    /// The ground truth, as the verifier of Eq. 7 compares it (un-normalised).
    pub answer: String,
}

/// A problem as the policy sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    pub problem: Problem,
    /// Token ids of the rendered template, without padding.
    pub tokens: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finish {
    /// A stop token was sampled. It is the response's last token.
    Stop,
    /// The text contains a stop string, whose tokens are the response's last.
    StopString,
    /// The response reached L_max without either: it is *truncated*.
    Length,
}

/// One sampled response o_i.
#[derive(Debug, Clone, PartialEq)]
pub struct Rollout {
    /// Response token ids. A sampled stop token is part of the response.
    pub tokens: Vec<u32>,
    /// log π(token | prompt, earlier tokens) of the sampler at the sampling temperature, over the whole vocabulary
    /// (before top-p and top-k), in nats; one per token. Empty where another trainer's sampler did not record them.
    pub rollout_log_probs: Vec<f64>,
    /// Entropy in nats of the distribution that each token was drawn from; empty where nobody asked for it.
    pub rollout_entropy: Vec<f64>,
    pub finish: Finish,
    /// What is graded: from where the prompt begins the response, up to a stop string.
    pub text: String,
}

impl Rollout {
    /// Panics unless every token has its log-prob, or none has.
    pub fn new(
        tokens: Vec<u32>,
        rollout_log_probs: Vec<f64>,
        finish: Finish,
        text: String,
    ) -> Self {
        let fits = rollout_log_probs.is_empty() || tokens.len() == rollout_log_probs.len();
        assert!(fits, "a rollout needs one log-prob per token");
        Self { tokens, rollout_log_probs, rollout_entropy: Vec::new(), finish, text }
    }

    pub fn truncated(&self) -> bool {
        self.finish == Finish::Length
    }
}

/// A rollout with its reward R_i.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredRollout {
    pub rollout: Rollout,
    /// `is_equivalent(answer, response)` of Eq. 7. Dynamic Sampling looks at this alone.
    pub is_correct: bool,
    /// What the verifier read as the answer, normalised; `None` when it found nothing.
    pub prediction: Option<String>,
    /// Eq. 7: +1 when correct, −1 otherwise.
    pub correctness_reward: f64,
    /// Eq. 13: in [−1, 0] when clamped; 0 when the technique is off.
    pub overlong_penalty: f64,
}

impl ScoredRollout {
    pub fn new(rollout: Rollout, is_correct: bool, correctness_reward: f64) -> Self {
        Self { rollout, is_correct, prediction: None, correctness_reward, overlong_penalty: 0.0 }
    }

    /// The shaped reward R_i: Eq. 7 plus Eq. 13.
    pub fn reward(&self) -> f64 {
        self.correctness_reward + self.overlong_penalty
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Group<R> {
    pub prompt: Prompt,
    /// How often this problem had been sampled before in the same rollout step.
    pub attempt: u32,
    pub rollouts: Vec<R>,
}

impl Group<ScoredRollout> {
    /// Number of correct rollouts: the count that Eq. 11 bounds.
    pub fn correct(&self) -> usize {
        self.rollouts.iter().filter(|rollout| rollout.is_correct).count()
    }

    pub fn rewards_differ(&self) -> bool {
        self.rollouts.windows(2).any(|two| two[0].correctness_reward != two[1].correctness_reward)
    }
}
