//! Compares stored records of one rollout step or evaluation.

use crate::records::{
    Counters, DivergenceRecord, EvaluationRecord, Outcome, RolloutRow, StepMetrics,
    tables::OutcomeRecord,
};
use crate::verification::diff::finding::DiffFinding;
use crate::verification::diff::ulps::Value;
use crate::verification::{DiffPlace, DiffTally};
use std::collections::{BTreeMap, BTreeSet};

const NO_ROW: &str = "no such rollout";

fn text(value: impl ToString) -> Value {
    Value::Text(value.to_string())
}

fn optional(value: &Option<String>) -> Value {
    value.as_ref().map_or(Value::Absent, text)
}

/// Row by row; one finding for each component of the ledger.
pub fn rollouts(a: &[RolloutRow], b: &[RolloutRow], file: &str) -> Vec<DiffFinding> {
    let [mut problems, mut tokens, mut log_probs, mut rewards, mut kept, mut advantages] = [
        ("problems", "values"),
        ("tokens", "tokens"),
        ("sampler_log_probs", "log-probs"),
        ("rewards", "values"),
        ("kept_groups", "rollouts"),
        ("advantages", "advantages"),
    ]
    .map(|(component, unit)| DiffTally::new(component, file, unit));
    for index in 0..a.len().max(b.len()) {
        let (Some(a), Some(b)) = (a.get(index), b.get(index)) else {
            let row = a.get(index).or(b.get(index)).map(place).unwrap_or_default();
            let side =
                |row: Option<&RolloutRow>| row.map_or(text(NO_ROW), |row| text(&row.problem));
            problems.compare(side(a.get(index)), side(b.get(index)), || row);
            continue;
        };
        let field = |tally: &mut DiffTally, name: &str, value: fn(&RolloutRow) -> Value| {
            tally.compare(value(a), value(b), || place(a).within("field", name));
        };
        field(&mut problems, "problem", |row| text(&row.problem));
        field(&mut problems, "question", |row| text(&row.question));
        field(&mut problems, "answer", |row| text(&row.answer));
        field(&mut problems, "group", |row| text(row.group));
        field(&mut problems, "attempt", |row| text(row.attempt));
        field(&mut problems, "sample", |row| text(row.sample));
        list(&mut tokens, &a.tokens, &b.tokens, |token| text(token), a);
        field(&mut tokens, "truncated", |row| text(row.truncated));
        field(&mut tokens, "response", |row| text(&row.response));
        list(&mut log_probs, &a.rollout_log_probs, &b.rollout_log_probs, |it| Value::F64(*it), a);
        field(&mut rewards, "is_correct", |row| text(row.is_correct));
        field(&mut rewards, "prediction", |row| optional(&row.prediction));
        field(&mut rewards, "correctness_reward", |row| Value::F64(row.correctness_reward));
        field(&mut rewards, "overlong_penalty", |row| Value::F64(row.overlong_penalty));
        field(&mut rewards, "reward", |row| Value::F64(row.reward));
        kept.compare(text(a.trained), text(b.trained), || place(a));
        advantages.compare(Value::F64(a.advantage), Value::F64(b.advantage), || place(a));
    }
    let all = [problems, tokens, log_probs, rewards, kept, advantages];
    all.into_iter().filter_map(DiffTally::finish).collect()
}

fn list<T>(tally: &mut DiffTally, a: &[T], b: &[T], value: impl Fn(&T) -> Value, row: &RolloutRow) {
    for token in 0..a.len().max(b.len()) {
        let side = |list: &[T]| list.get(token).map_or(Value::Absent, &value);
        tally.compare(side(a), side(b), || place(row).within("token", token));
    }
}

fn place(row: &RolloutRow) -> DiffPlace {
    DiffPlace(vec![
        ("problem", row.problem.clone()),
        ("attempt", row.attempt.to_string()),
        ("sample", row.sample.to_string()),
    ])
}

pub fn metrics(a: &StepMetrics, b: &StepMetrics) -> Option<DiffFinding> {
    let mut tally = DiffTally::new("metrics", "metrics.jsonl", "metrics");
    let at = |name: &str| DiffPlace(vec![("metric", name.to_string())]);
    counters(&mut tally, a.counters, b.counters, at);
    by_name(&mut tally, &a.metrics, &b.metrics, |value| Value::F64(*value), at);
    tally.finish()
}

/// Without digests of files, and without what one of two formats does not state.
pub fn ending(a: &Outcome, b: &Outcome) -> Option<DiffFinding> {
    let mut tally = DiffTally::new("ending", "outcome.json", "values");
    let at = |name: &str| DiffPlace(vec![("value", name.to_string())]);
    tally.compare(text(a.ending.name()), text(b.ending.name()), || at("ending"));
    counters(&mut tally, a.counters, b.counters, at);
    let has_one_format = a.reason.is_empty() == b.reason.is_empty();
    if has_one_format || (a.not_finite.is_some() && b.not_finite.is_some()) {
        let value = |side: &Outcome| side.not_finite.as_ref().map_or(Value::Absent, text);
        tally.compare(value(a), value(b), || at("not_finite"));
    }
    if has_one_format {
        tally.compare(text(&a.reason), text(&b.reason), || at("reason"));
    }
    tally.finish()
}

pub fn divergence(a: &DivergenceRecord, b: &DivergenceRecord, file: &str) -> Option<DiffFinding> {
    let mut tally = DiffTally::new("metrics", file, "metrics");
    let at = |name: &str| DiffPlace(vec![("metric", name.to_string())]);
    by_name(&mut tally, &a.metrics, &b.metrics, |value| Value::F64(*value), at);
    tally.finish()
}

fn counters(tally: &mut DiffTally, a: Counters, b: Counters, at: impl Fn(&str) -> DiffPlace) {
    for (name, a, b) in [
        ("generation_rounds", a.generation_rounds, b.generation_rounds),
        ("rollout_steps", a.rollout_steps, b.rollout_steps),
        ("updates", a.updates, b.updates),
    ] {
        tally.compare(text(a), text(b), || at(name));
    }
}

fn by_name<T>(
    tally: &mut DiffTally,
    a: &BTreeMap<String, T>,
    b: &BTreeMap<String, T>,
    value: impl Fn(&T) -> Value,
    at: impl Fn(&str) -> DiffPlace,
) {
    for name in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
        let side = |values: &BTreeMap<String, T>| values.get(name).map_or(Value::Absent, &value);
        tally.compare(side(a), side(b), || at(name));
    }
}

pub fn outcomes(a: &[OutcomeRecord], b: &[OutcomeRecord], file: &str) -> Option<DiffFinding> {
    let mut tally = DiffTally::new("evaluations", file, "values");
    let by_sample = |rows| {
        let rows: &[OutcomeRecord] = rows;
        let keyed = rows.iter().map(|row| ((row.problem.clone(), row.sample), row));
        keyed.collect::<BTreeMap<(String, u32), &OutcomeRecord>>()
    };
    let (others, own) = (by_sample(b), by_sample(a));
    let only_b = b.iter().filter(|row| !own.contains_key(&(row.problem.clone(), row.sample)));
    for named in a.iter().chain(only_b) {
        let key = (named.problem.clone(), named.sample);
        let (one, other) = (own.get(&key).copied(), others.get(&key).copied());
        let at = |field: &str| {
            DiffPlace(vec![
                ("problem", named.problem.clone()),
                ("sample", named.sample.to_string()),
                ("field", field.to_string()),
            ])
        };
        let mut field = |name: &str, value: &dyn Fn(&OutcomeRecord) -> Value| {
            let side = |row: Option<&OutcomeRecord>| row.map_or(Value::Absent, value);
            tally.compare(side(one), side(other), || at(name));
        };
        field("sample", &|row| text(row.sample));
        if one.is_none() || other.is_none() {
            continue;
        }
        field("response", &|row| text(&row.response));
        field("response_tokens", &|row| text(row.response_tokens));
        field("truncated", &|row| text(row.truncated));
        field("prediction", &|row| optional(&row.prediction));
        field("answer", &|row| text(&row.answer));
        field("is_correct", &|row| text(row.is_correct));
        field("reward", &|row| row.reward.map_or(Value::Absent, Value::F64));
    }
    tally.finish()
}

/// Compares the statistics, not the digests of files.
pub fn evaluation(a: &EvaluationRecord, b: &EvaluationRecord) -> Option<DiffFinding> {
    let mut tally = DiffTally::new("evaluations", "evaluations.jsonl", "values");
    let at = |name: &str| DiffPlace(vec![("set", a.set.clone()), ("value", name.to_string())]);
    by_name(&mut tally, &values(a), &values(b), Value::clone, at);
    tally.finish()
}

fn values(record: &EvaluationRecord) -> BTreeMap<String, Value> {
    let counters = record.counters;
    let stated = [
        ("generation_rounds", text(counters.generation_rounds)),
        ("updates", text(counters.updates)),
        ("problems", text(record.problems)),
        ("samples", text(record.samples)),
        ("avg_at_k", Value::F64(record.avg_at_k)),
        ("standard_error_fixed_problems", Value::F64(record.standard_error_fixed_problems)),
        ("standard_error_new_problems", Value::F64(record.standard_error_new_problems)),
        ("cons_at_k", Value::F64(record.cons_at_k)),
        ("truncated_share", Value::F64(record.truncated_share)),
        ("response_tokens_mean", Value::F64(record.response_tokens_mean)),
    ];
    let pass = record.pass_at_k.iter();
    let pass = pass.map(|(k, value)| (format!("pass_at_{k}"), Value::F64(*value)));
    let reward = record.reward_mean.map(|mean| ("reward_mean", Value::F64(mean)));
    let stated = stated.into_iter().chain(reward);
    stated.map(|(name, value)| (name.to_string(), value)).chain(pass).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Ending, NotFinite};

    #[test]
    fn endings_of_two_formats_are_compared_by_what_both_state() {
        let ended = |format, ending, update| {
            let value = NotFinite::BackwardPass { update };
            let value = Some(value).filter(|_| ending == Ending::Diverged);
            Outcome::new(format, ending, value, Counters { updates: 7, ..Counters::default() })
        };
        let differing = |a: &Outcome, b: &Outcome| ending(a, b).map_or(0, |it| it.differing);
        let diverged = |format, update| ended(format, Ending::Diverged, update);
        for ending in [Ending::Finished, Ending::Diverged] {
            assert_eq!(differing(&ended(3, ending, 7), &ended(4, ending, 7)), 0);
        }
        assert_eq!(differing(&diverged(3, 7), &diverged(3, 8)), 1);
        assert_eq!(differing(&diverged(4, 7), &diverged(4, 8)), 1);
        let gone = Outcome { not_finite: None, ..diverged(4, 7) };
        assert_eq!(differing(&diverged(4, 7), &gone), 1);
        assert_eq!(differing(&ended(3, Ending::Finished, 7), &ended(4, Ending::Saturated, 7)), 1);
    }
}
