//! Experiments as flat lists of keys, and how two of them differ.

use crate::experiment::{Experiment, config::OUTSIDE_OF_ARM, sources, sources::Key};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Key path → value of every setting: `dapo.clip.low` → 0.2. A list is one value.
pub fn flat(experiment: &Experiment) -> BTreeMap<String, Value> {
    fn walk(path: &str, value: Value, flat: &mut BTreeMap<String, Value>) {
        let Value::Object(table) = value else {
            flat.insert(path.to_string(), value);
            return;
        };
        for (name, value) in table {
            let path = if path.is_empty() { name } else { format!("{path}.{name}") };
            walk(&path, value, flat);
        }
    }
    let mut values = BTreeMap::new();
    walk("", json!(experiment), &mut values);
    values
}

/// The keys in which two maps differ, those that only one of them has included.
pub fn differing_keys<'a, V: PartialEq>(
    a: &'a BTreeMap<String, V>,
    b: &'a BTreeMap<String, V>,
) -> BTreeSet<&'a String> {
    a.keys().chain(b.keys()).filter(|key| a.get(*key) != b.get(*key)).collect()
}

/// Whether a key decides what is computed and is thus part of the arm's identity.
pub fn in_arm(path: &str) -> bool {
    ["inputs.base", "inputs.data.variant"].contains(&path)
        || !OUTSIDE_OF_ARM.contains(&path.split('.').next().unwrap_or(path))
}

#[derive(Debug, Clone, PartialEq)]
pub struct ComparedSide {
    pub values: BTreeMap<String, Value>,
    /// Every key is stated, so that an absent key is not used. False for a publication.
    pub complete: bool,
}

impl ComparedSide {
    pub fn experiment(experiment: &Experiment) -> Self {
        Self { values: flat(experiment), complete: true }
    }

    pub fn publication(publication: Publication) -> Self {
        Self { values: publication.values(), complete: false }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publication {
    Paper,
    /// The released code's 32B script.
    ReleasedCode,
}

impl Publication {
    /// Holds every key whose value the source states in a form that an experiment could take.
    pub fn values(self) -> BTreeMap<String, Value> {
        let stated = |key: &Key| {
            let stated = match self {
                Self::Paper => &key.paper,
                Self::ReleasedCode => &key.released_code,
            };
            let value = serde_json::from_str(stated.value.as_ref()?);
            Some((key.path.clone(), value.expect("the table holds JSON literals")))
        };
        sources::all().filter_map(stated).collect()
    }
}

/// A key whose two values differ; a side is `None` if it has no such key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    pub key: String,
    pub a: Option<Value>,
    pub b: Option<Value>,
    pub in_arm: bool,
}

/// By path. A key that an experiment lacks differs from any value; one that a publication lacks is left out.
pub fn differences(a: &ComparedSide, b: &ComparedSide) -> Vec<Difference> {
    let paths: BTreeSet<&String> = a.values.keys().chain(b.values.keys()).collect();
    let differ = |path: &&String| match (a.values.get(*path), b.values.get(*path)) {
        (Some(a), Some(b)) => !same(a, b),
        (None, _) => a.complete,
        (_, None) => b.complete,
    };
    let difference = |path: &String| Difference {
        key: path.clone(),
        a: a.values.get(path).cloned(),
        b: b.values.get(path).cloned(),
        in_arm: in_arm(path),
    };
    paths.into_iter().filter(differ).map(difference).collect()
}

/// Treats 1 and 1.0 as equal.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests;
