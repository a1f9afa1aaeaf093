//! Whether two records are of the same run.

use crate::base::visible;
use crate::study::Cell;
use serde_json::Value;
use std::collections::BTreeSet;

/// Fields of time, place and names, which a repetition need not share.
const OUTSIDE: [&str; 6] =
    ["name", "environment", "wall_seconds", "step_seconds", "record_sha256", "harness"];

/// No part of an arm's identity; they change no number.
const OUTSIDE_EXPERIMENT: [&str; 4] = ["name", "inputs", "execution", "checkpoints"];

/// The first difference of each field, as `field: one, other`.
pub fn differences(one: &Cell, other: &Cell) -> Vec<String> {
    let value = |cell: &Cell| {
        let mut value = serde_json::to_value(cell).unwrap_or_default();
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|name, _| !OUTSIDE.contains(&name.as_str()));
        }
        if let Some(experiment) = value.get_mut("experiment").and_then(Value::as_object_mut) {
            experiment.retain(|name, _| !OUTSIDE_EXPERIMENT.contains(&name.as_str()));
            // A program's place is none of its identity, its digest is among the inputs.
            let verifier = cell.experiment.reward.verifier.of_arm();
            experiment
                .insert("reward".to_string(), serde_json::to_value(verifier).unwrap_or_default());
        }
        value
    };
    let (one, other) = (value(one), value(other));
    let first = |name: &String| {
        let leaf = leaves(name, &one[name], &other[name]).into_iter().next()?;
        Some(format!("{}: {}, {}", leaf.place, leaf.one, leaf.other))
    };
    keys(&one, &other).iter().filter_map(first).collect()
}

/// Values are shortened.
#[derive(Debug)]
pub struct DifferingLeaf {
    pub place: String,
    pub one: String,
    pub other: String,
    pub are_texts: bool,
}

/// In the order of keys; lists of different lengths are leaves.
pub fn leaves(place: &str, one: &Value, other: &Value) -> Vec<DifferingLeaf> {
    match (one, other) {
        (one, other) if one == other => Vec::new(),
        (Value::Object(_), Value::Object(_)) => {
            let inside = |key: &String| {
                let place = format!("{place}, {key}");
                match (one.get(key), other.get(key)) {
                    (Some(one), Some(other)) => leaves(&place, one, other),
                    (one, other) => vec![differing(&place, one, other)],
                }
            };
            keys(one, other).iter().flat_map(inside).collect()
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let inside = |(index, (a, b))| leaves(&format!("{place}[{index}]"), a, b);
            a.iter().zip(b).enumerate().flat_map(inside).collect()
        }
        (one, other) => vec![differing(place, Some(one), Some(other))],
    }
}

fn differing(place: &str, one: Option<&Value>, other: Option<&Value>) -> DifferingLeaf {
    let shown = |value: Option<&Value>| {
        value.map_or("absent".to_string(), |value| visible::shortened(&value.to_string(), 120))
    };
    let are_texts = one.is_some_and(Value::is_string) && other.is_some_and(Value::is_string);
    DifferingLeaf { place: place.to_string(), one: shown(one), other: shown(other), are_texts }
}

fn keys(one: &Value, other: &Value) -> BTreeSet<String> {
    let objects = [one, other].into_iter().filter_map(Value::as_object);
    objects.flat_map(|object| object.keys().cloned()).collect()
}
