//! Whether two records are of the same run.

use crate::study::Cell;
use serde_json::Value;
use std::collections::BTreeSet;

/// Fields of time, place and names, which a repetition need not share.
const OUTSIDE: [&str; 5] = ["name", "environment", "wall_seconds", "record_sha256", "harness"];

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
        }
        value
    };
    let (one, other) = (value(one), value(other));
    let mut differences = Vec::new();
    for name in names(&one, &other) {
        let (one, other) = (one.get(&name), other.get(&name));
        differences.extend(first(&name, one, other));
    }
    differences
}

fn names(one: &Value, other: &Value) -> BTreeSet<String> {
    let keys = |value: &Value| -> Vec<String> {
        value.as_object().map(|it| it.keys().cloned().collect()).unwrap_or_default()
    };
    keys(one).into_iter().chain(keys(other)).collect()
}

fn first(place: &str, one: Option<&Value>, other: Option<&Value>) -> Option<String> {
    if one == other {
        return None;
    }
    match (one, other) {
        (Some(a @ Value::Object(_)), Some(b @ Value::Object(_))) => names(a, b)
            .into_iter()
            .find_map(|name| first(&format!("{place}.{name}"), a.get(&name), b.get(&name))),
        (Some(Value::Array(a)), Some(Value::Array(b))) => (0..a.len().max(b.len()))
            .find_map(|index| first(&format!("{place}[{index}]"), a.get(index), b.get(index))),
        _ => {
            let shown = |value: Option<&Value>| {
                let text = value.map_or("absent".to_string(), ToString::to_string);
                crate::base::visible::shortened(&text, 120)
            };
            Some(format!("{place}: {}, {}", shown(one), shown(other)))
        }
    }
}
