//! verl's verifier, reward manager and group advantage.

use crate::verl_vectors::case::Case;
use crate::verl_vectors::values::{Got, Outputs, count, number, outputs, raised};
use dapo::algorithm::advantage::advantages;
use dapo::algorithm::overlong::soft_punishment;
use dapo::algorithm::{Advantage, Beyond, Punishment, Std};
use dapo::experiment::Verifier;
use dapo::task::reward;
use dapo::task::reward::answer::normalise;
use dapo::task::reward::python_text::last_code_points;
use dapo::task::reward::strict_box::last_box_in;
use serde_json::Value;
use std::collections::BTreeMap;
use tch::{Kind, Tensor};

/// `math_dapo.compute_score` (verl/utils/reward_score/math_dapo.py:220-272).
pub fn math_dapo(case: &Case) -> Outputs {
    let (response, ground_truth) = (case.text("response"), case.text("ground_truth"));
    let strict = case.flag_or("strict_box_verify", case.text_or("mode", "minerva") == "strict");
    let verifier = if strict { Verifier::StrictBox } else { Verifier::AnswerLine };
    let grade = match case.optional("pause_tokens_index").filter(|_| strict) {
        None => reward::grade(response, ground_truth, verifier),
        Some(index) => {
            let Some([_, _, _, last]) = index.as_array().map(Vec::as_slice) else {
                return raised("AssertionError", "");
            };
            let last = number(last) as i64;
            let window = last_code_points(response, reward::WINDOW);
            let prediction = last_box_in(slice_from(window, last - 100)).map(str::to_owned);
            let is_correct = prediction.as_deref() == Some(ground_truth);
            reward::Grade::of_rule(is_correct, prediction)
        }
    };
    outputs([
        ("score", Got::Number(grade.reward)),
        ("acc", Got::Flag(grade.is_correct)),
        ("pred", Got::optional_text(grade.released_prediction(verifier))),
    ])
}

/// Python's `text[start:]`.
fn slice_from(text: &str, start: i64) -> &str {
    if start < 0 {
        return last_code_points(text, start.unsigned_abs() as usize);
    }
    text.char_indices().nth(start as usize).map_or("", |(start, _)| &text[start..])
}

/// `normalize_final_answer`.
pub fn normalise_final_answer(case: &Case) -> Outputs {
    outputs([("output", Got::Text(normalise(case.text("input"))))])
}

/// `DAPORewardManager.__call__` (verl/workers/reward_manager/dapo.py:53-149). A vector lists
/// each row's length, text and ground truth among its outputs.
pub fn reward_manager(case: &Case) -> Outputs {
    let Some(config) = case.optional("overlong_buffer_cfg") else {
        // verl reads `.enable` of None.
        return raised("AttributeError", "");
    };
    let enabled = config.get("enable").and_then(Value::as_bool).unwrap_or(false);
    let mut buffer = None;
    if enabled {
        buffer = Some((count(&config["len"]), number(&config["penalty_factor"]) as f32));
    }
    let max = case.optional("max_resp_len").map(count);
    let max = if enabled { max.unwrap() } else { 0 };
    let padded = case.count("padded_response_length");
    let rows = case.outputs["rows"].as_array().unwrap().iter();
    let graded = rows.map(|row| Got::Map(reward_row(row, padded, max, buffer))).collect();
    outputs([("rows", Got::List(graded)), ("reward_tensor_dtype", Got::Text("float32".to_owned()))])
}

fn reward_row(
    row: &Value,
    padded: u64,
    max_response_tokens: u64,
    buffer: Option<(u64, f32)>,
) -> Outputs {
    let text = |key: &str| row[key].as_str().unwrap();
    let length = count(&row["valid_response_length"]);
    assert!(length <= padded, "{length} of {padded}");
    let (response, ground_truth) = (text("response_text"), text("ground_truth"));
    // verl decodes the valid tokens: of none, empty text.
    let graded = if length == 0 { "" } else { response };
    let grade = reward::grade(graded, ground_truth, Verifier::AnswerLine);
    // verl divides and adds 0-dimensional tensors, in float32.
    let penalty = buffer.map(|(cache_tokens, factor)| {
        let line = Punishment::Soft { cache_tokens, factor: 1.0, beyond: Beyond::Unclamped };
        soft_punishment(length, max_response_tokens, &line) as f32 * factor
    });
    let reward = grade.reward as f32 + penalty.unwrap_or(0.0);
    // An empty response writes to index −1: the last padded column.
    let position = if length == 0 { padded.checked_sub(1) } else { Some(length - 1) };
    let written = position.filter(|_| reward != 0.0);
    let mut row = outputs([
        ("valid_response_length", Got::Integer(length)),
        ("response_text", Got::Text(response.to_owned())),
        ("ground_truth", Got::Text(ground_truth.to_owned())),
        ("score", Got::Number(grade.reward)),
        ("acc", Got::Flag(grade.is_correct)),
        ("pred", Got::optional_text(grade.released_prediction(Verifier::AnswerLine))),
        ("reward_sum", Got::Number(f64::from(reward))),
        ("reward_nonzero_positions", Got::integers(written.map(|position| position as usize))),
        ("overlong_reward", Got::Null),
        ("overlong", Got::Null),
    ]);
    if let Some(penalty) = penalty {
        row.insert("overlong_reward".to_owned(), Got::Number(f64::from(penalty)));
        row.insert("overlong".to_owned(), Got::Flag(penalty < 0.0));
    }
    row
}

/// `compute_grpo_outcome_advantage` (verl/trainer/ppo/core_algos.py:266-330): the score of a
/// response is the sum of its token rewards, not masked; advantages are spread over the mask.
pub fn advantage(case: &Case) -> Outputs {
    let kind = case.kind();
    let rewards = case.array("token_level_rewards", 2);
    let mask = case.mask_like("response_mask", &rewards);
    let epsilon = case.optional_number("epsilon").unwrap_or(1e-6);
    let normalised = case.flag_or("norm_adv_by_std_in_grpo", true);
    let index = case.list("index");
    assert_eq!(index.len(), rewards.shape[0], "{}", case.name);
    let scores = rewards.tensor(Some(kind)).sum_dim_intlist(-1, false, None::<Kind>);
    let scores = Vec::<f64>::try_from(scores.to_kind(Kind::Double)).expect("a tensor of doubles");
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (row, group) in index.iter().enumerate() {
        groups.entry(group.to_string()).or_default().push(row);
    }
    let std = if normalised { Std::Sample } else { Std::None };
    let mut result = vec![0.0; scores.len()];
    for rows in groups.values() {
        let group: Vec<f64> = rows.iter().map(|row| scores[*row]).collect();
        let values = if is_well_spread(&group, kind) {
            advantages(&group, &Advantage { std, epsilon })
        } else {
            released_advantages(&group, normalised.then_some(epsilon), kind)
        };
        for (row, value) in rows.iter().zip(values) {
            result[*row] = value;
        }
    }
    let advantages = Tensor::from_slice(&result).to_kind(kind).unsqueeze(-1); // [batch, 1]
    let advantages = Got::tensor(&(advantages * mask.tensor(None)));
    outputs([("advantages", advantages.clone()), ("returns", advantages)])
}

/// Whether the group's spread stands clear of the rounding of its kind. Elsewhere verl
/// returns its rounding error divided by ε (a constant group) or the reward itself (a group
/// of one), where Eq. 9 as implemented here gives 0.
fn is_well_spread(group: &[f64], kind: Kind) -> bool {
    let top = group.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let bottom = group.iter().copied().fold(f64::INFINITY, f64::min);
    let rounding = if kind == Kind::Float { f64::from(f32::EPSILON) } else { f64::EPSILON };
    /// Rounding errors below a millionth of the spread vanish in any tolerance used here.
    const CLEAR: f64 = 1e6;
    group.len() > 1 && top - bottom > CLEAR * rounding * top.abs().max(bottom.abs())
}

/// verl's own arithmetic on one group, in its kind.
fn released_advantages(group: &[f64], epsilon: Option<f64>, kind: Kind) -> Vec<f64> {
    let scores = Tensor::from_slice(group).to_kind(kind);
    let (mean, std) = if group.len() == 1 {
        // verl's constants 0 and 1 are float32 whatever the scores are: 1 + ε rounds.
        (Tensor::from(0f32), Tensor::from(1f32))
    } else {
        (scores.mean(None), scores.std(true))
    };
    let centred = scores - mean;
    let result = match epsilon {
        Some(epsilon) => centred / (std + epsilon),
        None => centred,
    };
    Vec::<f64>::try_from(result.to_kind(Kind::Double)).expect("a tensor of doubles")
}
