//! How a key is used: what it can be, what the arms of this repository set there, and what the method makes of it.

use crate::algorithm::methods::{Method, tis::WeightLevel};
use crate::experiment::{Experiment, compare, diagnose, sources, starter};
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

pub fn truncated_sampling(experiment: &Experiment) -> Option<String> {
    let sampling = experiment.rollout.sampling;
    let level = match experiment.dapo.method {
        Some(Method::Tis(tis)) => Some(tis.level),
        Some(Method::Mis(mis)) => Some(mis.level),
        _ => None,
    };
    let why = match (sampling.log_probs, level) {
        (None, _) => {
            "the ratio is over all of it: its expectation is off by 1 / the kept mass; \
             rollout.sampling.log_probs = \"kept-tokens\" with dapo.method.kind = \"tis\" and level = \"token\" \
             corrects it"
        }
        (Some(_), None) => {
            "dapo.method.kind = \"tis\" and \"mis\" alone read rollout.sampling.log_probs: the ratio of this arm is \
             over the whole vocabulary all the same, and its expectation is off by 1 / the kept mass; \"tis\" with \
             level = \"token\" corrects it"
        }
        (Some(_), Some(WeightLevel::SequenceMean)) => {
            "dapo.method.level = \"sequence-mean\" weighs a response with the geometric mean of its tokens' \
             π_old / π_sampler, which corrects it in part; level = \"token\" corrects it"
        }
        (Some(_), Some(WeightLevel::Token | WeightLevel::Sequence)) => return None,
    };
    let keeps = "rollout.sampling keeps a part of the vocabulary, and";
    sampling.keeps_a_part().then(|| format!("{keeps} {why}"))
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
