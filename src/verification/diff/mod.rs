//! Where two runs first differ, and in what.
//!
//! Their ledgers say at which rollout step and in which component; the stored records say which
//! problem, sample, token, tensor or metric, by how many units in the last place. Both are
//! compared, so that a file which is not what its ledger says is found too. What differs in
//! configuration, inputs and machine stands beside it. Nothing is judged: whether a run is what
//! it claims to be is for `verify`.

pub mod finding;
pub mod records;
pub mod search;
pub mod side;
pub mod text;
pub mod ulps;
pub mod weights;

use crate::base::files;
use crate::experiment::compare;
use crate::policy::checkpoint;
use crate::records::{RunFolder, tables};
use crate::verification::Search;
use crate::verification::diff::finding::Finding;
use crate::verification::diff::side::{Side, Summary};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Two runs that cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No run was ever started here.
    #[error("{} is not a run folder: {source}", root.display())]
    NotARun {
        /// The folder that was named.
        root: PathBuf,
        /// What is missing.
        source: files::Error,
    },
    /// A record.
    #[error(transparent)]
    File(#[from] files::Error),
    /// A table.
    #[error(transparent)]
    Table(#[from] tables::Error),
    /// A checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
}

/// Components of a rollout step, in the order in which they are computed.
pub const COMPONENTS: [&str; 11] = [
    "problems",
    "tokens",
    "sampler_log_probs",
    "rewards",
    "kept_groups",
    "advantages",
    "old_log_probs",
    "gradients",
    "weights",
    "moments",
    "metrics",
];

/// The result in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every recorded number agrees, and both are the same arm, seed and inputs.
    Identical,
    /// As far as both go they are identical; one goes further.
    Prefix,
    /// Something differs.
    Different,
    /// Nothing differs in what both have, and one lacks records that the other has.
    Inconclusive,
}

/// What two runs were compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The ledgers, and the stored records.
    Ledgers,
    /// The stored records alone: at least one run has no ledger.
    Files,
}

/// The first rollout step that differs; where none does, the first evaluation, or the ending.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct First {
    /// Rollout step, from 1; 0 where only an evaluation of the base policy differs.
    pub step: u64,
    /// The first component, in the order of [`COMPONENTS`]; `evaluations` or `ending` where no
    /// rollout step differs.
    pub component: String,
    /// Every component of that step that differs.
    pub differing: Vec<String>,
    /// Those that agree, as far as they could be compared.
    pub agreeing: Vec<String>,
    /// Whether the two ledgers tell it; otherwise only the stored records do.
    pub by_ledger: bool,
    /// Rollout step after which an evaluation first differs; `None`: none does.
    pub evaluation_step: Option<u64>,
}

/// A named value in both runs; `None` where one has none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Named {
    /// What it is.
    pub name: String,
    /// In the first run.
    pub a: Option<String>,
    /// In the second run.
    pub b: Option<String>,
}

/// How two runs differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunDiff {
    /// `dapo-diff/1`.
    pub schema: &'static str,
    /// The first run.
    pub a: Summary,
    /// The second run.
    pub b: Summary,
    /// The result in one word.
    pub verdict: Verdict,
    /// What it rests on.
    pub basis: Basis,
    /// Rollout steps from the first on that agree in both.
    pub agreeing_steps: u64,
    /// The first difference; `None` when no recorded number differs.
    pub first: Option<First>,
    /// What of it the records show.
    pub findings: Vec<Finding>,
    /// Arm, seed, exactness and inputs that differ.
    pub identity: Vec<Named>,
    /// Keys of the experiment that differ.
    pub config: Vec<compare::Difference>,
    /// Facts about the machine that differ.
    pub environment: Vec<Named>,
    /// What could not be compared, and what contradicts itself.
    pub notes: Vec<String>,
}

/// Compares two run folders, finished or not.
///
/// # Errors
/// A folder without a run, or a record that is there and cannot be read.
pub fn compare(a: &RunFolder, b: &RunFolder) -> Result<RunDiff, Error> {
    let (a, b) = (Side::read(a)?, Side::read(b)?);
    let both_ledgers = a.ledger.is_some() && b.ledger.is_some();
    let mut search = Search::between(&a, &b);
    search.note_ledgers();
    let found = search.first()?;
    let agreeing_steps = match &found {
        Some(found) if is_step(&found.0.component) => found.0.step - 1,
        _ => a.steps().min(b.steps()),
    };
    let (first, mut findings) = found.unzip();
    if let Some(first) = &first {
        search.add_unseen(first, findings.get_or_insert_default())?;
    }
    let identity = named(&a.identity(), &b.identity());
    let length = |side: &Side| (side.steps(), side.outcome.is_some(), side.evaluations.len());
    let verdict = match () {
        () if first.is_some() || !identity.is_empty() => Verdict::Different,
        () if length(&a) != length(&b) => Verdict::Prefix,
        () if !both_ledgers && search.lacking => Verdict::Inconclusive,
        () => Verdict::Identical,
    };
    let sides = [&a, &b].map(|side| compare::Side::experiment(&side.experiment));
    Ok(RunDiff {
        schema: "dapo-diff/1",
        a: a.summary(),
        b: b.summary(),
        verdict,
        basis: if both_ledgers { Basis::Ledgers } else { Basis::Files },
        agreeing_steps,
        first,
        findings: findings.unwrap_or_default(),
        identity,
        config: compare::differences(&sides[0], &sides[1]),
        environment: named(&a.environment, &b.environment),
        notes: search.notes,
    })
}

/// Whether a component is of a rollout step, not of what comes after it.
fn is_step(component: &str) -> bool {
    COMPONENTS.contains(&component)
}

/// The entries in which two maps differ.
fn named(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> Vec<Named> {
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let pair = |name: &String| Named {
        name: name.clone(),
        a: a.get(name).cloned(),
        b: b.get(name).cloned(),
    };
    names.into_iter().map(pair).filter(|pair| pair.a != pair.b).collect()
}
