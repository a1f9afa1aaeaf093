//! Compares stored records of one rollout step or evaluation.

use crate::records::{EvaluationRecord, RolloutRow, StepMetrics, tables::OutcomeRecord};
use crate::verification::diff::finding::DiffFinding;
use crate::verification::diff::ulps::Value;
use crate::verification::{DiffPlace, DiffTally};
use std::collections::{BTreeMap, BTreeSet};

/// Value of a row that only one run has.
const NO_ROW: &str = "no such rollout";

fn text(value: impl ToString) -> Value {
    Value::Text(value.to_string())
}

fn optional(value: &Option<String>) -> Value {
    value.as_ref().map_or(Value::Absent, text)
}

/// Row by row; one finding for each component of the ledger.
pub fn rollouts(a: &[RolloutRow], b: &[RolloutRow], file: &str) -> Vec<DiffFinding> {
    let tally = |component, unit| DiffTally::new(component, Some(file), unit);
    let mut problems = tally("problems", "values");
    let mut tokens = tally("tokens", "tokens");
    let mut log_probs = tally("sampler_log_probs", "log-probs");
    let mut rewards = tally("rewards", "values");
    let mut kept = tally("kept_groups", "rollouts");
    let mut advantages = tally("advantages", "advantages");
    for index in 0..a.len().max(b.len()) {
        let (Some(a), Some(b)) = (a.get(index), b.get(index)) else {
            let row = a.get(index).or(b.get(index)).map(place).unwrap_or_default();
            let side =
                |row: Option<&RolloutRow>| row.map_or(text(NO_ROW), |row| text(&row.problem));
            problems.compare(side(a.get(index)), side(b.get(index)), || row);
            continue;
        };
        let field = |name: &str| place(a).within("field", name);
        for (name, one, other) in [
            ("problem", &a.problem, &b.problem),
            ("question", &a.question, &b.question),
            ("answer", &a.answer, &b.answer),
        ] {
            problems.compare(text(one), text(other), || field(name));
        }
        for (name, one, other) in [
            ("group", a.group, b.group),
            ("attempt", a.attempt, b.attempt),
            ("sample", a.sample, b.sample),
        ] {
            problems.compare(text(one), text(other), || field(name));
        }
        list(&mut tokens, &a.tokens, &b.tokens, |token| text(token), a);
        tokens.compare(text(a.truncated), text(b.truncated), || field("truncated"));
        tokens.compare(text(&a.response), text(&b.response), || field("response"));
        list(&mut log_probs, &a.rollout_log_probs, &b.rollout_log_probs, |it| Value::F64(*it), a);
        rewards.compare(text(a.is_correct), text(b.is_correct), || field("is_correct"));
        rewards.compare(optional(&a.prediction), optional(&b.prediction), || field("prediction"));
        for (name, one, other) in [
            ("correctness_reward", a.correctness_reward, b.correctness_reward),
            ("overlong_penalty", a.overlong_penalty, b.overlong_penalty),
            ("reward", a.reward, b.reward),
        ] {
            rewards.compare(Value::F64(one), Value::F64(other), || field(name));
        }
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
    let mut tally = DiffTally::new("metrics", Some("metrics.jsonl"), "metrics");
    let at = |name: &str| DiffPlace(vec![("metric", name.to_string())]);
    for (name, a, b) in [
        ("generation_rounds", a.counters.generation_rounds, b.counters.generation_rounds),
        ("rollout_steps", a.counters.rollout_steps, b.counters.rollout_steps),
        ("updates", a.counters.updates, b.counters.updates),
    ] {
        tally.compare(text(a), text(b), || at(name));
    }
    let names: BTreeSet<&String> = a.metrics.keys().chain(b.metrics.keys()).collect();
    for name in names {
        let side = |line: &StepMetrics| line.metrics.get(name).map_or(Value::Absent, float);
        tally.compare(side(a), side(b), || at(name));
    }
    tally.finish()
}

fn float(value: &f64) -> Value {
    Value::F64(*value)
}

pub fn outcomes(a: &[OutcomeRecord], b: &[OutcomeRecord], file: &str) -> Option<DiffFinding> {
    let mut tally = DiffTally::new("evaluations", Some(file), "values");
    for index in 0..a.len().max(b.len()) {
        let (one, other) = (a.get(index), b.get(index));
        let Some(named) = one.or(other) else { continue };
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
        field("problem", &|row| text(&row.problem));
        field("sample", &|row| text(row.sample));
        field("response", &|row| text(&row.response));
        field("response_tokens", &|row| text(row.response_tokens));
        field("truncated", &|row| text(row.truncated));
        field("prediction", &|row| optional(&row.prediction));
        field("answer", &|row| text(&row.answer));
        field("is_correct", &|row| text(row.is_correct));
    }
    tally.finish()
}

/// Compares the statistics, not the digests of files.
pub fn evaluation(a: &EvaluationRecord, b: &EvaluationRecord) -> Option<DiffFinding> {
    let mut tally = DiffTally::new("evaluations", Some("evaluations.jsonl"), "values");
    let (one, other) = (values(a), values(b));
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    for name in names {
        let side =
            |values: &BTreeMap<String, Value>| values.get(name).map_or(Value::Absent, Clone::clone);
        tally.compare(side(&one), side(&other), || {
            DiffPlace(vec![("set", a.set.clone()), ("value", name.clone())])
        });
    }
    tally.finish()
}

fn values(record: &EvaluationRecord) -> BTreeMap<String, Value> {
    let counters = record.counters;
    let mut values: BTreeMap<String, Value> = [
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
    ]
    .into_iter()
    .map(|(name, value)| (name.to_string(), value))
    .collect();
    for (k, value) in &record.pass_at_k {
        values.insert(format!("pass_at_{k}"), Value::F64(*value));
    }
    values
}
