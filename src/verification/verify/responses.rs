//! Checks a stored rollout: place, reward, text and ending.

use crate::algorithm::{Group, ScoredRollout};
use crate::experiment::Experiment;
use crate::records::RolloutRow;
use crate::task::reward;
use crate::verification::verify::{Check, VerifySubject};

/// Groups must be whole and in order: later steps index them.
pub fn well_formed(
    check: &mut Check,
    name: &str,
    rows: &[RolloutRow],
    experiment: &Experiment,
) -> bool {
    let size = experiment.rollout.group_size as usize;
    for (group, members) in rows.chunk_by(|a, b| a.group == b.group).enumerate() {
        let place = || format!("{name}, group {group}");
        let same = |row: &RolloutRow| {
            let first = &members[0];
            let of = |it: &RolloutRow| (it.problem.clone(), it.question.clone(), it.answer.clone());
            (of(row), row.attempt, row.trained) == (of(first), first.attempt, first.trained)
        };
        let numbered = members.iter().zip(0u32..).all(|(row, sample)| row.sample == sample);
        if members[0].group as usize != group || members.len() != size || !numbered {
            check.mismatch(place(), format!("is not the next group, or has not {size} rollouts"));
            return false;
        }
        if !members.iter().all(same) {
            check.mismatch(place(), "its rollouts are of several problems");
            return false;
        }
        for row in members {
            let probable = |value: &f64| value.is_finite() && *value <= 0.0;
            let recorded = experiment.engine.is_native() || !row.rollout_log_probs.is_empty();
            if row.tokens.is_empty()
                || (recorded && row.tokens.len() != row.rollout_log_probs.len())
                || !row.rollout_log_probs.iter().all(probable)
            {
                let what = "a token has no log-prob, or one that is none";
                check.mismatch(format!("{}, sample {}", place(), row.sample), what);
                return false;
            }
        }
    }
    true
}

pub fn graded(group: &Group<ScoredRollout>, experiment: &Experiment) -> Group<ScoredRollout> {
    let again = |scored: &ScoredRollout| scored.rollout.clone();
    let sampled = Group {
        prompt: group.prompt.clone(),
        attempt: group.attempt,
        rollouts: group.rollouts.iter().map(again).collect(),
    };
    let mut group = reward::grade_group(sampled, experiment.reward.verifier);
    let (limit, dapo) = (experiment.rollout.max_response_tokens, &experiment.dapo);
    dapo.rules().shape(&mut group, limit, dapo);
    group
}

/// Eq. 7 and the shaping.
pub fn same_grade(check: &mut Check, place: &str, row: &RolloutRow, again: &ScoredRollout) {
    let at = |column: &str| format!("{place}, {column}");
    check.equal(at("is_correct"), row.is_correct, again.is_correct);
    check.equal(at("correctness_reward"), row.correctness_reward, again.correctness_reward);
    check.equal(at("overlong_penalty"), row.overlong_penalty, again.overlong_penalty);
    check.equal(at("reward"), row.reward, again.reward());
    same_prediction(check, place, &row.prediction, &again.prediction);
}

pub fn same_prediction(
    check: &mut Check,
    place: &str,
    found: &Option<String>,
    expected: &Option<String>,
) {
    if found != expected {
        let what = format!("is {found:?}, the response has {expected:?}");
        check.mismatch(format!("{place}, prediction"), what);
    }
}

/// Requires at most L_max tokens, and exactly L_max if truncated.
pub fn length(check: &mut Check, place: &str, length: u64, truncated: bool, limit: u64) {
    if length > limit || (truncated && length < limit) {
        let what = format!("is {truncated}, with {length} of at most {limit} tokens");
        check.mismatch(format!("{place}, truncated"), what);
    }
}

pub fn decoded(check: &mut Check, place: &str, row: &RolloutRow, subject: VerifySubject) {
    let VerifySubject { records, local, .. } = subject;
    let limit = records.experiment.rollout.max_response_tokens;
    length(check, place, row.tokens.len() as u64, row.truncated, limit);
    let Some(tokenizer) = &local.tokenizer else { return };
    if tokenizer.decode(&row.tokens) != row.response {
        check.mismatch(format!("{place}, response"), "is not the text of its tokens");
    }
    let stops = |token: &u32| tokenizer.stop_tokens().contains(token);
    let first = row.tokens.iter().position(stops);
    let expected = (!row.truncated).then(|| row.tokens.len() - 1);
    if first != expected {
        let what = "a response ends with its first stop token, a truncated one has none";
        check.mismatch(format!("{place}, tokens"), what);
    }
}
