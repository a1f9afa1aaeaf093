//! Finds where two runs first differ, and in what. Ledgers give rollout step and component; stored records give
//! problem, sample, token, tensor or metric in ulps. Both are compared, so that a file that contradicts its ledger is
//! found too. Configuration, inputs and machine are listed. Whether a run is genuine is for `verify`.

pub mod finding;
pub mod records;
pub mod search;
pub mod side;
pub mod text;
pub mod ulps;
pub mod weights;

use crate::experiment::compare;
use crate::records::{RunFolder, environment, ledger::STEP_COMPONENTS};
use crate::verification::diff::finding::DiffFinding;
use crate::verification::diff::side::{DiffSide, DiffSummary};
use crate::verification::{Search, VerificationError};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiffVerdict {
    /// Numbers, arm, seed and inputs agree.
    Identical,
    /// One run goes further.
    Prefix,
    Different,
    /// One run lacks records.
    Inconclusive,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    Ledgers,
    /// A run has no ledger.
    Files,
}

/// A rollout step; else an evaluation, or the ending.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FirstDifference {
    /// From 1; 0 for an evaluation of the base policy.
    pub step: u64,
    /// By [`STEP_COMPONENTS`]; `evaluations`, `checkpoint` or `ending` where no rollout step differs.
    pub component: String,
    pub differing: Vec<String>,
    /// Counts only components that could be compared.
    pub agreeing: Vec<String>,
    /// Otherwise only stored records differ.
    pub by_ledger: bool,
    pub evaluation_step: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Named {
    pub name: String,
    pub a: Option<String>,
    pub b: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunDiff {
    pub schema: &'static str,
    pub a: DiffSummary,
    pub b: DiffSummary,
    pub verdict: DiffVerdict,
    pub basis: Basis,
    /// One run has stored records that the other lacks.
    pub lacking: bool,
    pub agreeing_steps: u64,
    pub first: Option<FirstDifference>,
    pub findings: Vec<DiffFinding>,
    /// Differing arm, seed, exactness and inputs.
    pub identity: Vec<Named>,
    pub config: Vec<compare::Difference>,
    pub environment: Vec<Named>,
    /// Gaps of the comparison, and contradictions.
    pub notes: Vec<String>,
}

pub fn compare(a: &RunFolder, b: &RunFolder) -> Result<RunDiff, VerificationError> {
    let (a, b) = (DiffSide::read(a)?, DiffSide::read(b)?);
    let both_ledgers = a.has_ledger() && b.has_ledger();
    let mut search = Search::between(&a, &b);
    search.note_ledgers();
    search.note_experiments();
    let found = search.first()?;
    let agreeing_steps = match &found {
        Some(found) if is_step(&found.0.component) => found.0.step - 1,
        _ => a.steps().min(b.steps()),
    };
    let (first, mut findings) = found.unzip();
    if let Some(first) = &first {
        search.add_unseen(first, findings.get_or_insert_default())?;
    }
    let (own, other) = (a.identity(), b.identity());
    let identity = named(compare::differing_keys(&own, &other), &own, &other);
    let length = |side: &DiffSide| {
        (side.steps(), side.records.is_unfinished(), side.records.evaluations.len())
    };
    let verdict = match () {
        () if first.is_some() || !identity.is_empty() => DiffVerdict::Different,
        () if a.contradicting() != b.contradicting() => DiffVerdict::Different,
        () if length(&a) != length(&b) => DiffVerdict::Prefix,
        () if !both_ledgers && search.lacking => DiffVerdict::Inconclusive,
        () => DiffVerdict::Identical,
    };
    let sides = [&a, &b].map(|side| compare::ComparedSide::experiment(&side.records.experiment));
    Ok(RunDiff {
        schema: "dapo-diff/1",
        a: a.summary(),
        b: b.summary(),
        verdict,
        basis: if both_ledgers { Basis::Ledgers } else { Basis::Files },
        lacking: search.lacking,
        agreeing_steps,
        first,
        findings: findings.unwrap_or_default(),
        identity,
        config: compare::differences(&sides[0], &sides[1]),
        environment: differing_facts(&a.environment, &b.environment),
        notes: search.notes,
    })
}

fn is_step(component: &str) -> bool {
    STEP_COMPONENTS.contains(&component)
}

fn differing_facts(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> Vec<Named> {
    named(environment::differing(a, b), a, b)
}

fn named(
    names: BTreeSet<&String>,
    a: &BTreeMap<String, String>,
    b: &BTreeMap<String, String>,
) -> Vec<Named> {
    let pair = |name: &String| Named {
        name: name.clone(),
        a: a.get(name).cloned(),
        b: b.get(name).cloned(),
    };
    names.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_a_differing_fact_where_both_runs_state_them() {
        let facts = |sources: &[&str]| -> BTreeMap<String, String> {
            let of = |it: &&str| (environment::SOURCES.to_string(), it.to_string());
            sources.iter().map(of).collect()
        };
        let (a, b, old) = (facts(&["a"]), facts(&["b"]), facts(&[]));
        let name = environment::SOURCES.to_string();
        let differing = vec![Named { name, a: Some("a".to_string()), b: Some("b".to_string()) }];
        assert_eq!(differing_facts(&a, &b), differing);
        for (one, other) in [(&a, &a), (&a, &old), (&old, &b)] {
            assert_eq!(differing_facts(one, other), []);
        }
    }
}
