//! verl's verifier, reward manager and group advantage.

use crate::verl_vectors::case::Case;
use crate::verl_vectors::values::{count, doubles, float, nested, raised};
use dapo::algorithm::advantage::advantages;
use dapo::algorithm::overlong::soft_punishment;
use dapo::algorithm::{Advantage, Beyond, Punishment, Std};
use dapo::experiment::Verifier;
use dapo::task::reward;
use dapo::task::reward::answer::normalise;
use dapo::task::reward::python_text::last_code_points;
use dapo::task::reward::strict_box::last_box_in;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tch::{Kind, Tensor};

/// `math_dapo.compute_score` (verl/utils/reward_score/math_dapo.py:220-272).
pub fn math_dapo(case: &Case) -> Value {
    let (response, ground_truth) = (case.text("response"), case.text("ground_truth"));
    let strict = case.flag_or("strict_box_verify", case.text_or("mode", "minerva") == "strict");
    let verifier = if strict { Verifier::StrictBox } else { Verifier::AnswerLine };
    let grade = match case.optional("pause_tokens_index").filter(|_| strict) {
        None => reward::grade(response, ground_truth, verifier),
        Some(index) => {
            let Some([_, _, _, last]) = index.as_array().map(Vec::as_slice) else {
                return raised("AssertionError", "");
            };
            let last = float(last) as i64;
            let window = last_code_points(response, reward::WINDOW);
            let prediction = last_box_in(slice_from(window, last - 100)).map(str::to_owned);
            let is_correct = prediction.as_deref() == Some(ground_truth);
            reward::Grade::of_rule(is_correct, prediction)
        }
    };
    graded(&grade, verifier)
}

fn graded(grade: &reward::Grade, verifier: Verifier) -> Value {
    let prediction = grade.released_prediction(verifier);
    json!({"score": grade.reward, "acc": grade.is_correct, "pred": prediction})
}

/// Python's `text[start:]`.
fn slice_from(text: &str, start: i64) -> &str {
    if start < 0 {
        return last_code_points(text, start.unsigned_abs() as usize);
    }
    text.char_indices().nth(start as usize).map_or("", |(start, _)| &text[start..])
}

/// `normalize_final_answer`.
pub fn normalise_final_answer(case: &Case) -> Value {
    json!({"output": normalise(case.text("input"))})
}

/// `DAPORewardManager.__call__` (verl/workers/reward_manager/dapo.py:53-149). A vector lists
/// each row's length, text and ground truth among its outputs.
pub fn reward_manager(case: &Case) -> Value {
    let Some(config) = case.optional("overlong_buffer_cfg") else {
        // verl reads `.enable` of None.
        return raised("AttributeError", "");
    };
    let enabled = config.get("enable").and_then(Value::as_bool).unwrap_or(false);
    let max = case.optional("max_resp_len").map(count);
    let buffer = enabled.then(|| {
        let (tokens, factor) = (count(&config["len"]), float(&config["penalty_factor"]) as f32);
        (tokens, factor, max.unwrap())
    });
    let padded = case.count("padded_response_length");
    let rows = case.outputs["rows"].as_array().unwrap().iter();
    let rows: Vec<Value> = rows.map(|row| reward_row(row, padded, buffer)).collect();
    json!({"rows": rows, "reward_tensor_dtype": "float32"})
}

/// `buffer` has its tokens, the factor of its penalty, and the most tokens of a response.
fn reward_row(row: &Value, padded: u64, buffer: Option<(u64, f32, u64)>) -> Value {
    let length = count(&row["valid_response_length"]);
    assert!(length <= padded, "{length} of {padded}");
    // verl decodes the valid tokens: of none, empty text.
    let response = if length == 0 { "" } else { row["response_text"].as_str().unwrap() };
    let truth = row["ground_truth"].as_str().unwrap();
    let grade = reward::grade(response, truth, Verifier::AnswerLine);
    // verl divides and adds 0-dimensional tensors, in float32.
    let penalty = buffer.map(|(cache_tokens, factor, max)| {
        let line = Punishment::Soft { cache_tokens, factor: 1.0, beyond: Beyond::Unclamped };
        soft_punishment(length, max, &line) as f32 * factor
    });
    let reward = grade.reward as f32 + penalty.unwrap_or(0.0);
    // An empty response writes to index −1: the last padded column.
    let position = if length == 0 { padded.checked_sub(1) } else { Some(length - 1) };
    let written: Vec<u64> = position.into_iter().filter(|_| reward != 0.0).collect();
    let mut outputs = graded(&grade, Verifier::AnswerLine);
    let row = json!({
        "valid_response_length": length,
        "response_text": row["response_text"],
        "ground_truth": truth,
        "reward_sum": reward,
        "reward_nonzero_positions": written,
        "overlong_reward": penalty,
        "overlong": penalty.map(|penalty| penalty < 0.0),
    });
    outputs.as_object_mut().unwrap().extend(row.as_object().unwrap().clone());
    outputs
}

/// `compute_grpo_outcome_advantage` (verl/trainer/ppo/core_algos.py:266-330): the score of a
/// response is the sum of its token rewards, not masked; advantages are spread over the mask.
pub fn advantage(case: &Case) -> Value {
    let kind = case.kind();
    let rewards = case.array("token_level_rewards", 2);
    let mask = case.mask("response_mask", &rewards.shape);
    let epsilon = case.number_or("epsilon", 1e-6);
    let normalised = case.flag_or("norm_adv_by_std_in_grpo", true);
    let index = case.list("index");
    assert_eq!(index.len(), rewards.shape[0], "{}", case.name);
    let scores = doubles(&rewards.tensor(kind).sum_dim_intlist(-1, false, None::<Kind>));
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
        rows.iter().zip(values).for_each(|(row, value)| result[*row] = value);
    }
    let advantages = Tensor::from_slice(&result).to_kind(kind).unsqueeze(-1); // [batch, 1]
    let advantages = nested(&(advantages * mask.own()));
    json!({"advantages": advantages, "returns": advantages})
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
    doubles(&epsilon.map_or_else(|| centred.shallow_clone(), |epsilon| &centred / (std + epsilon)))
}
