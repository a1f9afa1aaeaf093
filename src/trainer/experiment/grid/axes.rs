//! The cartesian form of a grid: each axis is a key with its values, each arm one combination.

use crate::experiment::grid::{MOST_ARMS, StatedArm, text};
use crate::experiment::{Experiment, Keys, extends, validate};
use toml::{Table, Value};

struct Axis {
    key: String,
    values: Vec<Value>,
}

/// All combinations on the base, the last axis fastest; all are compared with the first. A key inside a table with a
/// `kind` sets that key alone.
pub(super) fn arms(
    place: &str,
    tables: Vec<Table>,
    base: &Experiment,
    problems: &mut Vec<String>,
) -> Vec<StatedArm> {
    let known = problems.len();
    let axes: Vec<Axis> = tables
        .into_iter()
        .enumerate()
        .filter_map(|(index, table)| axis(&format!("{place}, axis {}", index + 1), table, problems))
        .collect();
    for (index, axis) in axes.iter().enumerate() {
        if axes[..index].iter().any(|other| other.key == axis.key) {
            problems.push(format!("{place}, axis {}: key: another axis has it", index + 1));
        }
    }
    let count = axes.iter().try_fold(1usize, |count, axis| count.checked_mul(axis.values.len()));
    if count.is_none_or(|count| count > MOST_ARMS) {
        problems.push(format!("{place}: axes: more than {MOST_ARMS} combinations"));
    }
    if problems.len() > known {
        return Vec::new();
    }
    let base = Table::try_from(base).unwrap_or_default();
    let mut combinations: Vec<Vec<&Value>> = vec![Vec::new()];
    for axis in &axes {
        let mut longer = Vec::new();
        for one in &combinations {
            longer.extend(axis.values.iter().map(|value| [&one[..], &[value]].concat()));
        }
        combinations = longer;
    }
    let mut arms: Vec<StatedArm> = Vec::new();
    for values in combinations {
        let pairs: Vec<(&Axis, &Value)> = axes.iter().zip(values).collect();
        let mut set = Table::new();
        for (axis, value) in &pairs {
            extends::state(&mut set, &base, &axis.key, value);
        }
        let parts = |joint: &str| -> Vec<String> {
            let part = |(axis, value): &(&Axis, &Value)| {
                format!("{}{joint}{}", short(&axis.key), shown_among(&axis.values, value))
            };
            pairs.iter().map(part).collect()
        };
        let name = parts("-").join("_").replace(|character| !validate::is_plain(character), "-");
        if let Some(problem) = text::plain(&name) {
            problems.push(format!("{place}: axes: an arm's name {problem}"));
        }
        arms.push(StatedArm {
            label: Some(parts(" = ").join(", ")),
            compared_with: arms.first().map(|first| first.name.clone()),
            set,
            may_restate: true,
            name,
            ..StatedArm::default()
        });
    }
    arms
}

fn axis(place: &str, table: Table, problems: &mut Vec<String>) -> Option<Axis> {
    let mut keys = Keys::of(place.to_string(), table, problems);
    let key = keys.needed_text("key");
    let values = match keys.take("values") {
        Some(Value::Array(values)) if values.len() >= 2 => {
            let is_again = |(place, value): &(usize, &Value)| values[..*place].contains(value);
            if let Some((_, value)) = values.iter().enumerate().find(is_again) {
                keys.problem("values", &format!("{value} occurs twice"));
            }
            Some(values)
        }
        _ => {
            keys.problem("values", "expected a list of at least two values");
            None
        }
    };
    keys.finish();
    Some(Axis { key: key?, values: values? })
}

/// The last part of a key, with the part before it if the last is `kind`.
fn short(key: &str) -> String {
    let parts: Vec<&str> = key.split('.').collect();
    let kept = if parts.last() == Some(&"kind") { 2 } else { 1 };
    parts[parts.len().saturating_sub(kept)..].join(".")
}

/// A kind that other values have too comes with the keys in which they differ.
fn shown_among(values: &[Value], value: &Value) -> String {
    let (kind, table) = (shown(value), value.as_table());
    let others = values.iter().filter(|other| shown(other) == kind).filter_map(Value::as_table);
    let others: Vec<&Table> = others.collect();
    let entries = table.into_iter().flatten();
    let differing = entries
        .filter(|(key, value)| others.iter().any(|other| other.get(*key) != Some(*value)))
        .map(|(key, value)| format!("-{key}-{}", shown(value)));
    kind + &differing.collect::<String>()
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Table(table) => match table.get("kind").and_then(Value::as_str) {
            Some(kind) => kind.to_string(),
            None => {
                let pairs: Vec<String> =
                    table.iter().map(|(key, value)| format!("{key}-{}", shown(value))).collect();
                pairs.join("-")
            }
        },
        other => other.to_string(),
    }
}
