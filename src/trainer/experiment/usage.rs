//! How a key is used: what it can be, and what the arms of this repository set there.

use crate::experiment::{compare, diagnose, sources, starter};
use serde::Serialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct KeyUsage {
    pub allowed: Option<String>,
    /// GRPO's value on the embedded benchmark.
    pub base: Option<Json>,
    /// Arm → its value, where it differs from GRPO's.
    pub arms: BTreeMap<String, Json>,
}

pub fn of(path: &str) -> KeyUsage {
    // No experiment here has a set with a program of its own; its table is that of the program for all.
    let path = path.replace("evaluation.sets.*.verifier.", "reward.verifier.").replace('*', "dev");
    let tables = starter::experiments();
    let all = tables.iter().filter_map(|(name, table)| Some((name, diagnose::parse(table).ok()?)));
    let flat: Vec<_> = all.map(|(name, parsed)| (name, compare::flat(&parsed))).collect();
    let base = flat.first().and_then(|(_, values)| values.get(&path)).cloned();
    let set = flat.iter().filter_map(|(name, values)| {
        let value = values.get(&path).filter(|value| Some(*value) != base.as_ref())?;
        Some((name.to_string(), value.clone()))
    });
    // A table with a kind has the key in some arms only.
    let names = tables.iter().find_map(|(_, table)| diagnose::allowed(table, &path));
    let names = names.map(|names| match names.as_str() {
        "f64" => "a number".to_string(),
        "u64" => "an integer".to_string(),
        _ => names,
    });
    let range = sources::of(&path).and_then(|key| key.range).map(|range| range.to_string());
    let allowed = match (names, range) {
        (Some(names), Some(range)) => Some(format!("{names}, {range}")),
        (names, range) => names.or(range),
    };
    KeyUsage { allowed, arms: set.collect(), base }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_types_ranges_and_the_values_of_arms_are_known() {
        let clip = of("dapo.clip.high");
        assert_eq!(clip.base, Some(Json::from(0.2)));
        assert_eq!(clip.arms["clip-higher"], 0.28);
        assert!(clip.allowed.unwrap().starts_with("a number"));
        let kind = of("dapo.dynamic_sampling.kind").allowed.unwrap();
        assert_eq!(kind, "\"none\" or \"resample\"");
        let aggregation = of("dapo.aggregation").allowed.unwrap();
        assert!(aggregation.contains("\"token-mean\""), "{aggregation}");
        let beta = of("optimizer.beta1").allowed.unwrap();
        assert_eq!(beta, "a number, in [0, 1)");
        assert!(of("dapo.method.clip.low").arms.contains_key("gspo"));
        assert!(of("evaluation.samples.*").base.is_some());
        // Keys that methods of one kind alone have.
        let level = of("dapo.method.level").allowed.unwrap();
        assert_eq!(level, "\"token\" or \"sequence\" or \"sequence-mean\"");
        assert_eq!(of("dapo.method.clipped_share").allowed.unwrap(), "a number, in (0, 1]");
        assert_eq!(of("execution.threads").allowed.unwrap(), "an integer, from 1 to 1024");
        assert_eq!(of("execution.pass_tokens").allowed.unwrap(), "an integer, from 1 to 16777216");
    }
}
