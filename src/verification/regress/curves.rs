//! Runs whose curves must be within margins of the golden ones.

use crate::base::files;
use crate::records::{Ending, RunFolder};
use crate::statistics::estimators::mean;
use crate::statistics::{Equivalence, equivalence, equivalence::EquivalenceVerdict};
use crate::training::run::inputs;
use crate::verification::regress::rule::{METRICS, RegressPoint};
use crate::verification::regress::{self, Blessed};
use crate::verification::{Fast, Golden, VerificationError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const SCHEMA: &str = "dapo-curves/1";

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegressCurves {
    pub schema: String,
    /// [`Fast::sha256`] of the rule.
    pub rule_sha256: String,
    pub arm_sha256: String,
    /// Digests of data, tokenizer and base policy.
    pub inputs: BTreeMap<String, String>,
    pub seeds: Vec<u64>,
    /// Metric, or `evaluation/<set>` → rollout step → a value for each seed.
    pub values: BTreeMap<String, BTreeMap<u64, Vec<f64>>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RegressJudged {
    pub point: RegressPoint,
    pub golden: f64,
    pub new: f64,
    #[serde(flatten)]
    pub equivalence: Equivalence,
}

pub fn check(golden: &Golden, rule: &Fast) -> Result<(), VerificationError> {
    let experiment = golden.experiment(&rule.experiment)?;
    let last = experiment.training.rollout_steps;
    for point in &rule.points {
        let set = point.value.strip_prefix("evaluation/");
        let first = u64::from(set.is_none());
        let reason = if point.steps[1] > last || point.steps[0] < first {
            format!("the experiment has the rollout steps {first} to {last}")
        } else if set.is_some_and(|set| !experiment.evaluation.samples.contains_key(set)) {
            "evaluation.samples of the experiment has no such set".to_string()
        } else {
            continue;
        };
        let (path, name) = (golden.rule(), point.name());
        return Err(VerificationError::Refused(format!("{}: {name}: {reason}", path.display())));
    }
    Ok(())
}

/// Runs every seed below `folder`. `watch` gets each finished seed.
pub fn run(
    golden: &Golden,
    rule: &Fast,
    folder: &Path,
    watch: &mut dyn FnMut(u64),
) -> Result<RegressCurves, VerificationError> {
    let mut curves = RegressCurves {
        schema: SCHEMA.to_string(),
        rule_sha256: rule.sha256(),
        seeds: rule.seeds.clone(),
        ..RegressCurves::default()
    };
    for &seed in &rule.seeds {
        let mut experiment = golden.experiment(&rule.experiment)?;
        experiment.execution.seed = seed;
        let inputs = inputs::prepare(experiment)?;
        let run = RunFolder::at(folder.join(format!("seed-{seed}")));
        let outcome = regress::complete(&inputs, &run)?;
        if outcome.ending != Ending::Finished {
            let (step, ending) = (outcome.step(), outcome.ending.name());
            return Err(VerificationError::Refused(format!(
                "seed {seed}: the run ended in rollout step {step} ({ending}) and not after its last one"
            )));
        }
        curves.arm_sha256 = inputs.manifest.arm_sha256;
        curves.inputs = inputs.manifest.inputs;
        let mut put = |name: String, step: u64, value: f64| {
            curves.values.entry(name).or_default().entry(step).or_default().push(value);
        };
        for line in run.metrics()? {
            let named = METRICS.iter().filter_map(|name| Some((*name, *line.metrics.get(*name)?)));
            named.for_each(|(name, value)| put(name.to_string(), line.step, value));
        }
        for record in run.evaluations()? {
            let name = format!("evaluation/{}", record.set);
            put(name, record.counters.rollout_steps, record.avg_at_k);
        }
        watch(seed);
    }
    Ok(curves)
}

impl RegressCurves {
    /// The mean over the point's steps, by seed.
    pub fn values_of(&self, point: &RegressPoint) -> Result<Vec<f64>, VerificationError> {
        let [first, last] = point.steps;
        let missing = |seed: u64| {
            VerificationError::Refused(format!(
                "seed {seed}: the run does not record {} at all of the rollout steps {first} to {last}",
                point.value
            ))
        };
        let empty = BTreeMap::new();
        let curve = self.values.get(&point.value).unwrap_or(&empty);
        let steps: Vec<&Vec<f64>> = curve.range(first..=last).map(|(_, values)| values).collect();
        let is_of_each_step = METRICS.contains(&point.value.as_str());
        if is_of_each_step && (first..=last).any(|step| !curve.contains_key(&step)) {
            return Err(missing(self.seeds.first().copied().unwrap_or_default()));
        }
        let of_seed = |(place, seed): (usize, &u64)| {
            let at: Option<Vec<f64>> =
                steps.iter().map(|values| values.get(place).copied()).collect();
            Ok(mean(&at.filter(|at| !at.is_empty()).ok_or_else(|| missing(*seed))?))
        };
        self.seeds.iter().enumerate().map(of_seed).collect()
    }
}

pub fn load(golden: &Golden, rule: &Fast) -> Result<RegressCurves, VerificationError> {
    let path = golden.curves();
    let curves: Option<RegressCurves> = files::optional(files::read_json(&path))?;
    let curves = curves.ok_or(VerificationError::NotBlessed { path })?;
    stale(golden, "schema", &curves.schema, SCHEMA)?;
    stale(golden, "the rule", &curves.rule_sha256, &rule.sha256())?;
    let arm = golden.experiment(&rule.experiment)?.arm_sha256();
    stale(golden, "the arm", &curves.arm_sha256, &arm)?;
    Ok(curves)
}

fn stale(golden: &Golden, what: &str, old: &str, now: &str) -> Result<(), VerificationError> {
    if old == now {
        return Ok(());
    }
    let (path, what) = (golden.curves(), what.to_string());
    Err(VerificationError::Stale { path, what, golden: old.to_string(), now: now.to_string() })
}

pub fn compare(
    golden: &Golden,
    rule: &Fast,
    old: &RegressCurves,
    new: &RegressCurves,
) -> Result<Vec<RegressJudged>, VerificationError> {
    stale(golden, "the arm", &old.arm_sha256, &new.arm_sha256)?;
    let inputs = files::canonical_json_line;
    stale(golden, "the inputs", &inputs(&old.inputs), &inputs(&new.inputs))?;
    let judge = |point: &RegressPoint| {
        let (before, after) = (old.values_of(point)?, new.values_of(point)?);
        let test = equivalence::equivalence(&before, &after, rule.alpha, point.margin);
        let statistics = |source| VerificationError::Statistics { point: point.name(), source };
        Ok(RegressJudged {
            point: point.clone(),
            golden: mean(&before),
            new: mean(&after),
            equivalence: test.map_err(statistics)?,
        })
    };
    rule.points.iter().map(judge).collect()
}

/// Repeated golden values have to pass: otherwise the margins are too narrow for so many seeds.
pub fn bless(
    golden: &Golden,
    rule: &Fast,
    curves: &RegressCurves,
) -> Result<Blessed, VerificationError> {
    for RegressJudged { point, equivalence, .. } in compare(golden, rule, curves, curves)? {
        if equivalence.verdict != EquivalenceVerdict::Reproduced {
            let (point, Equivalence { half_width, margin, .. }) = (point.name(), equivalence);
            return Err(VerificationError::Refused(format!(
                "{point}: the half width {half_width} of its own noise is not below the margin {margin}: more seeds \
                 or a wider margin"
            )));
        }
    }
    let path = golden.curves();
    let before = files::optional(files::sha256_file(&path))?;
    let bytes = files::canonical_json(curves).into_bytes();
    Ok(Blessed { part: "fast", before, now: files::sha256(&bytes), files: vec![(path, bytes)] })
}

/// Every point must be reproduced.
pub fn verdict(judged: &[RegressJudged]) -> EquivalenceVerdict {
    use EquivalenceVerdict::{Inconclusive, NotReproduced, Reproduced};
    let is_of_a_point =
        |verdict: &EquivalenceVerdict| judged.iter().any(|it| it.equivalence.verdict == *verdict);
    [NotReproduced, Inconclusive].into_iter().find(is_of_a_point).unwrap_or(Reproduced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_every_step_of_its_window() {
        let steps: BTreeMap<u64, Vec<f64>> = [(1, vec![0.0, 1.0]), (2, vec![0.5, 2.0])].into();
        let values =
            ["rollout/accuracy", "evaluation/dev"].map(|it| (it.to_string(), steps.clone()));
        let (seeds, values) = (vec![1, 2], values.into());
        let curves = RegressCurves { seeds, values, ..RegressCurves::default() };
        let values = |value: &str, steps| {
            curves.values_of(&RegressPoint { value: value.to_string(), steps, margin: 1.0 })
        };
        assert_eq!(values("rollout/accuracy", [1, 2]).unwrap(), [0.25, 1.5]);
        assert!(values("rollout/accuracy", [1, 3]).is_err());
        assert_eq!(values("evaluation/dev", [0, 2]).unwrap(), [0.25, 1.5]);
    }
}
