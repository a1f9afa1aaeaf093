//! Arms × seeds: TOML ([`mod@file`]), resolved. A study keeps it as `grids/<grid>.json` and needs no other file.

pub mod axes;
pub mod file;
pub mod text;

use crate::base::files;
use crate::experiment::compare::{self, ComparedSide, Difference};
use crate::experiment::{Experiment, ExperimentError, sets::Sets, sources::is_within, validate};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use toml::Table;

pub const MOST_ARMS: usize = 256;

pub const MOST_SEEDS: usize = 1024;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Letters, digits, `-`, `_`, `+` and `.`; names the file in a study.
    pub name: String,
    pub question: String,
    /// The sets of scores and comparisons, and of curves; see [`Sets`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary_set: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve_set: Option<String>,
    pub seeds: Vec<u64>,
    /// In the order of tables.
    pub arms: Vec<Arm>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Letters, digits, `-`, `_`, `+` and `.`; unique in the grid.
    pub name: String,
    pub label: String,
    /// The arm that this one's patch is applied to; `None`: the grid's base.
    pub after: Option<String>,
    pub compared_with: Option<String>,
    pub paper: Option<PaperRow>,
    /// Keys in which the arm differs from the one before, with its values; not those that went with a replaced table.
    pub set: BTreeMap<String, Value>,
    /// SHA-256 of the arm's canonical JSON.
    pub arm_sha256: String,
    /// The resolved experiment. Its seed and execution are the base's.
    pub experiment: Experiment,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperRow {
    pub table: String,
    pub row: String,
}

impl Grid {
    pub fn sets(&self) -> Sets {
        Sets { primary: self.primary_set.clone(), curve: self.curve_set.clone() }
    }

    pub fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }

    pub fn path(study: &Path, name: &str) -> PathBuf {
        study.join("grids").join(format!("{name}.json"))
    }

    pub fn write(&self, study: &Path) -> Result<PathBuf, ExperimentError> {
        let path = Self::path(study, &self.name);
        files::write_json(&path, self)?;
        Ok(path)
    }

    /// Reads a resolved grid, which may come from somebody else.
    pub fn read(path: &Path) -> Result<Self, ExperimentError> {
        let grid: Self = files::read_json(path)?;
        let problems = grid.problems();
        if problems.is_empty() {
            return Ok(grid);
        }
        let at = |problem: String| format!("{}: {problem}", path.display());
        Err(ExperimentError::Invalid { problems: problems.into_iter().map(at).collect() })
    }

    fn problems(&self) -> Vec<String> {
        let name = text::plain(&self.name).map(|problem| format!("name: {problem}"));
        let mut problems = Vec::from_iter(name);
        problems.extend(text::seeds(&self.seeds).map(|problem| format!("seeds: {problem}")));
        if self.arms.is_empty() || self.arms.len() > MOST_ARMS {
            let count = self.arms.len();
            problems.push(format!("arms: there must be 1 to {MOST_ARMS}, got {count}"));
        }
        let (mut names, sets) = (BTreeSet::new(), self.sets());
        for arm in &self.arms {
            let at = |problem: String| format!("arm {:?}: {problem}", arm.name);
            problems.extend(text::plain(&arm.name).map(at));
            let unknown = text::unknown_arms(&names, &arm.after, &arm.compared_with);
            problems.extend(unknown.into_iter().map(at));
            if !names.insert(arm.name.clone()) {
                problems.push(at("name: another arm has it".to_string()));
            }
            if arm.arm_sha256 != arm.experiment.arm_sha256() {
                problems.push(at("`arm_sha256` is not the hash of `experiment`".to_string()));
            }
            problems.extend(validate::problems(&arm.experiment).into_iter().map(at));
            let known = arm.experiment.set_names();
            let unknown = sets.unknown(&known).map(|(key, problem)| format!("{key}: {problem}"));
            problems.extend(unknown.map(at));
        }
        problems.extend(self.contradictions());
        problems
    }

    /// What an arm says of itself and its experiment does not: a forger can exchange the experiments
    /// of two arms. The name is the grid's and the arm's, and an arm differs from the one that it
    /// comes after (without one: from the first) in nothing but what `set` states.
    fn contradictions(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let flat: Vec<BTreeMap<String, Value>> =
            self.arms.iter().map(|arm| compare::flat(&arm.experiment)).collect();
        for (arm, values) in self.arms.iter().zip(&flat) {
            let at = |problem: String| format!("arm {:?}: {problem}", arm.name);
            let (stated, name) = (&arm.experiment.name, format!("{}.{}", self.name, arm.name));
            if *stated != name {
                problems.push(at(format!("its experiment is named {stated:?}, not {name:?}")));
            }
            let wrong = arm.set.iter().find(|(key, value)| {
                !values.get(*key).is_some_and(|resolved| compare::same(resolved, value))
            });
            if let Some((key, value)) = wrong {
                let says = format!("`set` says that {key} is {value}, its experiment does not");
                problems.push(at(says));
            }
            if let Some((key, other)) = self.silent_change(arm, values, &flat) {
                let differs = format!("differs from arm {:?} in {key}", other.name);
                problems.push(at(format!("{differs}, which `set` does not state")));
            }
        }
        problems
    }

    /// A key in which an arm differs from the one that it comes after, that `set` does not state, and
    /// that other arm. Without one it is the first arm, whose own `set` counts too.
    fn silent_change<'a>(
        &'a self,
        arm: &Arm,
        values: &'a BTreeMap<String, Value>,
        flat: &'a [BTreeMap<String, Value>],
    ) -> Option<(&'a String, &'a Arm)> {
        let after = arm.after.as_ref();
        let after = after.and_then(|after| self.arms.iter().position(|other| other.name == *after));
        let mut stated: Vec<&String> = arm.set.keys().collect();
        if after.is_none() {
            stated.extend(self.arms[0].set.keys());
        }
        let other = after.unwrap_or(0);
        let mut differing = compare::differing_keys(values, &flat[other]).into_iter();
        let key = differing.find(|key| {
            let in_both = values.contains_key(*key) && flat[other].contains_key(*key);
            let is_stated =
                stated.iter().any(|stated| stated == key || (!in_both && replaces(stated, key)));
            *key != "name" && !is_stated
        })?;
        Some((key, &self.arms[other]))
    }
}

/// Whether a key is the table of a stated one, or stands in it: a table of another kind takes the place of the whole
/// table, and of a value.
fn replaces(stated: &str, key: &str) -> bool {
    stated.rsplit_once('.').is_some_and(|(table, _)| is_within(key, table))
}

/// Every key in which `arm` differs from the experiment that its patch was applied to.
pub fn differences(before: &Experiment, arm: &Experiment) -> Vec<Difference> {
    let [before, arm] = [before, arm].map(ComparedSide::experiment);
    let mut differences = compare::differences(&before, &arm);
    // An arm has a name of its own.
    differences.retain(|difference| difference.key != "name");
    differences
}

/// An arm as a grid file states it, before it is applied to what it comes after.
#[derive(Debug, Clone, Default)]
struct StatedArm {
    pub name: String,
    pub label: Option<String>,
    pub after: Option<String>,
    pub compared_with: Option<String>,
    pub paper: Option<PaperRow>,
    pub set: Table,
    /// An axis may have the base's own value; a patch may not say what is so already.
    pub may_restate: bool,
}

#[cfg(test)]
mod tests;
