//! The cartesian form of a grid: each axis is a key with its values, each arm one combination.

use crate::experiment::grid::{MOST_ARMS, StatedArm, text};
use crate::experiment::{Experiment, Keys, extends, sources, validate};
use std::collections::BTreeSet;
use toml::{Table, Value};

struct Axis {
    number: usize,
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
        .filter_map(|(index, table)| axis(place, index + 1, table, problems))
        .collect();
    for (index, axis) in axes.iter().enumerate() {
        let earlier = axes[..index].iter();
        let overwritten = earlier.filter(|other| extends::overlap(&axis.key, &other.key));
        problems.extend(overwritten.map(|other| overwrites(place, axis, other)));
    }
    let count = axes.iter().try_fold(1usize, |count, axis| count.checked_mul(axis.values.len()));
    if count.is_none_or(|count| count > MOST_ARMS) {
        problems.push(format!("{place}: axes: more than {MOST_ARMS} combinations"));
    }
    if problems.len() > known {
        return Vec::new();
    }
    let base = Table::try_from(base).unwrap_or_default();
    let mut combinations: Vec<Vec<(&Axis, &Value)>> = vec![Vec::new()];
    for axis in &axes {
        let mut longer = Vec::new();
        for one in &combinations {
            longer.extend(axis.values.iter().map(|value| [&one[..], &[(axis, value)]].concat()));
        }
        combinations = longer;
    }
    let mut arms: Vec<StatedArm> = Vec::new();
    for (pairs, name) in combinations.iter().zip(names(&combinations)) {
        let mut set = Table::new();
        for (axis, value) in pairs {
            extends::state(&mut set, &base, &axis.key, value);
        }
        let part = |(axis, value): &(&Axis, &Value)| axis.part(" = ", value);
        arms.push(StatedArm {
            label: Some(pairs.iter().map(part).collect::<Vec<_>>().join(", ")),
            compared_with: arms.first().map(|first| first.name.clone()),
            set,
            may_restate: true,
            name,
            ..StatedArm::default()
        });
    }
    arms
}

fn axis(place: &str, number: usize, table: Table, problems: &mut Vec<String>) -> Option<Axis> {
    let mut keys = Keys::of(format!("{place}, axis {number}"), table, problems);
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
    Some(Axis { number, key: key?, values: values? })
}

fn overwrites(place: &str, axis: &Axis, earlier: &Axis) -> String {
    let Axis { number, key, .. } = axis;
    let is_part = key != &earlier.key && sources::is_within(key, &earlier.key);
    let part = if is_part { "a part of " } else { "" };
    format!(
        "{place}, axis {number}: key: {key} overwrites {part}{} of axis {}; each key can be in one axis",
        earlier.key, earlier.number
    )
}

/// Keys with values; values alone where one of those is no name; numbers where one of these is none or two are equal.
fn names(combinations: &[Vec<(&Axis, &Value)>]) -> Vec<String> {
    let joined = |part: fn(&(&Axis, &Value)) -> String| -> Vec<String> {
        let name = |pairs: &Vec<_>| pairs.iter().map(part).collect::<Vec<_>>().join("_");
        let plain = |name: String| name.replace(|character| !validate::is_plain(character), "-");
        combinations.iter().map(name).map(plain).collect()
    };
    let are_usable = |names: &Vec<String>| {
        let is_name = |name: &String| !name.starts_with('-') && text::plain(name).is_none();
        names.iter().all(is_name) && BTreeSet::from_iter(names).len() == names.len()
    };
    let digits = combinations.len().to_string().len().max(2);
    let numbered = || (1..=combinations.len()).map(|at| format!("arm-{at:0digits$}")).collect();
    let with_keys = joined(|(axis, value)| axis.part("-", value));
    let values = || joined(|(axis, value)| shown_among(&axis.values, value));
    Some(with_keys)
        .filter(are_usable)
        .or_else(|| Some(values()).filter(are_usable))
        .unwrap_or_else(numbered)
}

impl Axis {
    fn part(&self, joint: &str, value: &Value) -> String {
        format!("{}{joint}{}", short(&self.key), shown_among(&self.values, value))
    }
}

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
