//! The first correct, wrong and truncated rollouts of the first and last step, in the table's order: not handpicked.

use crate::records::RolloutRow;
use crate::report::page::{Block, Section};
use crate::report::{RunReportLoaded, text};
use serde::Serialize;
use std::collections::BTreeSet;

/// All texts are shown by [`text::visible`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SampleRollout {
    pub step: u64,
    /// `correct`, `wrong` or `truncated`.
    pub kind: &'static str,
    pub problem: String,
    /// Counts samplings of the problem within the step.
    pub attempt: u32,
    /// Within the group.
    pub sample: u32,
    pub trained: bool,
    pub question: String,
    pub answer: String,
    pub prediction: Option<String>,
    pub correctness_reward: f64,
    pub overlong_penalty: f64,
    /// Â.
    pub advantage: f64,
    pub response_tokens: usize,
    /// The sampler's, in nats.
    pub mean_log_prob: Option<f64>,
    /// At most about 600 characters.
    pub response: String,
}

const SHOWN: [(&str, usize); 3] = [("correct", 2), ("wrong", 2), ("truncated", 1)];
const RESPONSE_CHARACTERS: usize = 600;
const QUESTION_CHARACTERS: usize = 400;
const ANSWER_CHARACTERS: usize = 80;

/// At most one sample a problem.
pub fn samples(loaded: &RunReportLoaded) -> Vec<SampleRollout> {
    let mut samples = Vec::new();
    for (step, rows) in &loaded.rollouts {
        let mut order: Vec<&RolloutRow> = rows.iter().collect();
        order.sort_by_key(|row| (row.group, row.sample));
        let mut problems = BTreeSet::new();
        for (kind, count) in SHOWN {
            let of_kind = order.iter().filter(|row| kind_of(row) == kind);
            let fresh = of_kind.filter(|row| problems.insert((row.problem.as_str(), row.group)));
            samples.extend(fresh.take(count).map(|row| sample(*step, kind, row)));
        }
    }
    samples
}

fn kind_of(row: &RolloutRow) -> &'static str {
    match row {
        RolloutRow { truncated: true, .. } => "truncated",
        RolloutRow { is_correct: true, .. } => "correct",
        _ => "wrong",
    }
}

fn sample(step: u64, kind: &'static str, row: &RolloutRow) -> SampleRollout {
    let short = |text: &str| text::excerpt(text, ANSWER_CHARACTERS);
    let log_probs = &row.rollout_log_probs;
    let mean = log_probs.iter().sum::<f64>() / log_probs.len() as f64;
    SampleRollout {
        step,
        kind,
        problem: text::visible(&row.problem),
        attempt: row.attempt,
        sample: row.sample,
        trained: row.trained,
        question: text::excerpt(&row.question, QUESTION_CHARACTERS),
        answer: short(&row.answer),
        prediction: row.prediction.as_deref().map(short),
        correctness_reward: row.correctness_reward,
        overlong_penalty: row.overlong_penalty,
        advantage: row.advantage,
        response_tokens: row.tokens.len(),
        mean_log_prob: (!log_probs.is_empty()).then_some(mean),
        response: text::excerpt(&row.response, RESPONSE_CHARACTERS),
    }
}

pub fn section(samples: &[SampleRollout]) -> Section {
    let intro = if samples.is_empty() {
        "No rollout is recorded yet."
    } else {
        "The first correct, wrong and truncated rollouts of the first and the last \
             rollout step, in the order in which they were sampled; nobody picked them. \
             Characters that do not print are shown as escapes, line ends as ⏎, and long \
             texts lose their middle."
    };
    let blocks = [Block::text(intro)].into_iter().chain(samples.iter().flat_map(blocks));
    Section::new("samples", "Sample rollouts", blocks.collect())
}

fn blocks(sample: &SampleRollout) -> [Block; 3] {
    let SampleRollout { step, kind, problem, attempt, sample: number, .. } = sample;
    let mean =
        sample.mean_log_prob.map(|mean| format!(", mean log-prob {}", text::signed(mean, 3)));
    [
        Block::Heading(format!(
            "Step {step}, {kind}: {problem}, attempt {attempt}, sample {number}"
        )),
        Block::Code(format!("{}\n\n{}", sample.question, sample.response)),
        Block::Text(format!(
            "Answer {}, read {}; {} tokens{}, reward {}, penalty {}, advantage {}, {}.",
            sample.answer,
            sample.prediction.as_deref().unwrap_or("nothing"),
            text::grouped(sample.response_tokens as u64),
            mean.unwrap_or_default(),
            text::Unit::Plain.signed(sample.correctness_reward),
            text::number(sample.overlong_penalty),
            text::signed(sample.advantage, 2),
            if sample.trained { "trained on" } else { "not trained on" }
        )),
    ]
}
