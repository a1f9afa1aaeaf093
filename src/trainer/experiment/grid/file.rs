//! A grid as TOML: a base experiment and arms as patches on it, or axes whose values are combined.
//!
//! ```toml
//! name = "clip"
//! question = "How much does the upper clip bound matter?"
//! base = "../dapo.toml"            # relative to this file
//! seeds = [1, 2, 3]
//! primary_set = "mini-aime-plus"   # scores and comparisons; without it: the only test set
//! curve_set = "dev"                # without it: dev
//!
//! [[arms]]
//! name = "dapo"                    # the base itself
//!
//! [[arms]]
//! name = "symmetric"
//! label = "ε_high = ε_low"
//! after = "dapo"                   # the arm that `set` is applied to; without it: the base
//! compared_with = "dapo"           # without it: `after`, else the arm that is the base, if there is one
//! paper = { table = "Table 1", row = "..." }
//! [arms.set.dapo.clip]             # merged as `extends` merges a file into its parent
//! high = 0.2
//! ```
//!
//! In place of arms, `[[axes]]` with `key = "dapo.clip.high"` and `values = [0.2, 0.28, 0.4]`.

use crate::base::{files, program};
use crate::experiment::ExperimentError;
use crate::experiment::grid::{MOST_ARMS, StatedArm, axes, differences, text};
use crate::experiment::{
    Arm, Chain, Experiment, Grid, Keys, PaperRow, compare, diagnose, extends, named, shipped,
};
use crate::experiment::{sets::Sets, sources::is_within};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use toml::Table;

#[derive(Debug, Clone, PartialEq)]
pub struct BaseSource {
    pub grid: Grid,
    pub base: Experiment,
    pub notes: Vec<String>,
}

impl BaseSource {
    /// The experiment that an arm's patch was applied to.
    pub fn before(&self, arm: &Arm) -> &Experiment {
        let after = arm.after.as_ref().and_then(|name| self.grid.arm(name));
        after.map_or(&self.base, |arm| &arm.experiment)
    }
}

pub fn in_folder(folder: &Path) -> Option<PathBuf> {
    Some(folder.join("grid.toml")).filter(|path| path.is_file())
}

/// A file, a folder with a `grid.toml`, or a grid's name here or in the program. Errors: a name that no grid has.
pub fn find(grid: &str) -> Result<PathBuf, ExperimentError> {
    if let Some(path) = in_folder(Path::new(grid)) {
        return Ok(path);
    }
    if grid.ends_with(".json") || (grid.contains('/') && Path::new(grid).is_dir()) {
        let takes = "a grid is a TOML file, a name, or a folder with a grid.toml";
        return Err(format!("{grid} is no grid: {takes}").into());
    }
    if grid.contains('/') || grid.ends_with(".toml") {
        return Ok(PathBuf::from(grid));
    }
    let path = Path::new(shipped::GRIDS).join(format!("{grid}.toml"));
    if path.exists() || shipped::text(&path).is_some() {
        return Ok(path);
    }
    if let Ok(path) = named::find(Path::new(grid))
        && path.extension().is_some()
    {
        return Err(experiment(&path, grid));
    }
    let here = files::list(Path::new(shipped::GRIDS)).unwrap_or_default().into_iter();
    let here = here.filter(|name| name.ends_with(".toml"));
    let own = shipped::all().map(|(path, _)| path).filter(|it| it.starts_with(shipped::GRIDS));
    let known: BTreeSet<String> = here.chain(own).map(|path| shipped::name(&path)).collect();
    let reason = diagnose::known(grid, "the grids here are", &Vec::from_iter(known));
    Err(format!("{grid} is no file, no folder with a grid.toml, and no grid; {reason}").into())
}

fn experiment(path: &Path, name: &str) -> ExperimentError {
    let word = program::path_word(Path::new(name));
    format!(
        "{} is an experiment, which `dapo train {word}` runs; a grid names it as its `base` and has [[arms]]",
        path.display()
    )
    .into()
}

/// Reads a grid. Errors: a file or an arm that cannot be used.
pub fn load(path: &Path) -> Result<BaseSource, ExperimentError> {
    load_overridden(path, &[])
}

/// Reads a grid whose base has overrides `KEY=VALUE`, which no arm may state. Errors: a bad file, arm or override.
pub fn load_overridden(path: &Path, set: &[String]) -> Result<BaseSource, ExperimentError> {
    let place = path.display().to_string();
    let mut problems = Vec::new();
    let table = extends::read_table(path)?;
    let has = |names: &[&str]| names.iter().any(|name| table.contains_key(*name));
    if has(&["extends", "rollout", "training", "dapo"]) && !has(&["base", "arms", "axes"]) {
        return Err(experiment(path, &place));
    }
    let mut keys = Keys::of(place.clone(), table, &mut problems);
    let name = keys.name();
    let question = keys.needed_text("question");
    if question.as_ref().is_some_and(|text| text.trim().is_empty()) {
        keys.problem("question", "is empty");
    }
    let base = keys.needed_text("base");
    let seeds = seeds(&mut keys);
    let stated = Sets { primary: keys.text("primary_set"), curve: keys.text("curve_set") };
    let (arms, axes) = (keys.tables("arms"), keys.tables("axes"));
    match (arms.is_empty(), axes.is_empty()) {
        (true, true) => keys.problem("arms", "there must be [[arms]] or [[axes]]"),
        (false, false) => keys.problem("axes", "a grid has [[arms]] or [[axes]], not both"),
        _ => {}
    }
    keys.finish();
    let folder = path.parent().unwrap_or(Path::new(""));
    let Some(base) = base.map(|base| extends::normal(&folder.join(base))) else {
        return Err(ExperimentError::Invalid { problems });
    };
    extends::named(path, "base", &base)?;
    let chain = extends::overridden(extends::chain(&base)?, set)?;
    let base = extends::resolve(chain.clone())?;
    let sets = stated.resolved(&base).unwrap_or_else(|(key, problem)| {
        problems.push(format!("{place}: {key}: {problem}"));
        Sets::default()
    });
    let mut written = if axes.is_empty() {
        patches(&place, arms, &mut problems)
    } else {
        axes::arms(&place, axes, &base, &mut problems)
    };
    written.iter_mut().for_each(|arm| extends::resolve_paths(&mut arm.set, folder));
    let overridden = set.iter().map(|text| text.split('=').next().unwrap_or_default().trim());
    for (key, arm) in overridden.flat_map(|key| written.iter().map(move |arm| (key, arm))) {
        if declared(&arm.set).iter().any(|own| extends::overlap(own, key)) {
            let name = &arm.name;
            problems.push(format!("--set {key}: arm {name:?} of {place} states it itself"));
        }
    }
    let name = name.unwrap_or_default();
    let context = FileContext { place: &place, grid: &name, chain: &chain, base: &base };
    let (arms, mut notes) = context.resolve(written, &mut problems);
    if arms.len() > 1 && arms.iter().all(|arm| arm.compared_with.is_none()) {
        let advice = "state `compared_with`, or declare comparisons";
        notes.push(format!("{place}: no arm is compared with another: {advice}"));
    }
    if !problems.is_empty() {
        return Err(ExperimentError::Invalid { problems });
    }
    let question = question.unwrap_or_default();
    let Sets { primary: primary_set, curve: curve_set } = sets;
    let grid = Grid { name, question, primary_set, curve_set, seeds, arms };
    Ok(BaseSource { grid, base, notes })
}

fn seeds(keys: &mut Keys) -> Vec<u64> {
    let Some(value) = keys.take("seeds") else {
        keys.problem("seeds", "is missing");
        return Vec::new();
    };
    let Ok(seeds) = value.clone().try_into::<Vec<u64>>() else {
        let problem = format!("expected a list of seeds, whole numbers from 0, got {value}");
        keys.problem("seeds", &problem);
        return Vec::new();
    };
    if let Some(problem) = text::seeds(&seeds) {
        keys.problem("seeds", &problem);
    }
    seeds
}

fn patches(place: &str, tables: Vec<Table>, problems: &mut Vec<String>) -> Vec<StatedArm> {
    let mut arms = Vec::new();
    for (index, table) in tables.into_iter().enumerate().take(MOST_ARMS + 1) {
        let own = table.get("name").and_then(toml::Value::as_str);
        let place = match own {
            Some(name) => format!("{place}, arm {name:?}"),
            None => format!("{place}, arm {}", index + 1),
        };
        let mut keys = Keys::of(place, table, problems);
        let name = keys.name();
        let label = keys.text("label");
        let after = keys.text("after");
        let compared_with = keys.text("compared_with");
        let set = keys.table("set").unwrap_or_default();
        let paper = paper(&mut keys);
        keys.finish();
        let name = name.unwrap_or_else(|| format!("arm-{}", index + 1));
        arms.push(StatedArm { name, label, after, compared_with, paper, set, may_restate: false });
    }
    arms
}

fn paper(keys: &mut Keys) -> Option<PaperRow> {
    let mut row = keys.inside("paper")?;
    let (table, label) = (row.needed_text("table"), row.needed_text("row"));
    row.finish();
    Some(PaperRow { table: table?, row: label? })
}

struct FileContext<'a> {
    place: &'a str,
    grid: &'a str,
    chain: &'a Chain,
    base: &'a Experiment,
}

struct Resolved {
    arm: Arm,
    chain: Chain,
    notes: Vec<String>,
}

impl FileContext<'_> {
    fn resolve(
        &self,
        written: Vec<StatedArm>,
        problems: &mut Vec<String>,
    ) -> (Vec<Arm>, Vec<String>) {
        if written.len() > MOST_ARMS {
            let count = written.len();
            problems.push(format!("{}: arms: at most {MOST_ARMS}, got {count}", self.place));
            return (Vec::new(), Vec::new());
        }
        let mut names: BTreeSet<String> = BTreeSet::new();
        let mut resolved: Vec<Resolved> = Vec::new();
        for arm in written {
            let place = format!("{}, arm {:?}", self.place, arm.name);
            if names.contains(&arm.name) {
                problems.push(format!("{place}: name: another arm has it"));
                continue;
            }
            let unknown = text::unknown_arms(&names, &arm.after, &arm.compared_with);
            problems.extend(unknown.into_iter().map(|problem| format!("{place}: {problem}")));
            names.insert(arm.name.clone());
            match self.one(&place, arm, &resolved) {
                Ok(arm) => resolved.push(arm),
                // What is wrong with an arm is wrong with those that stand on it.
                Err(of_arm) => {
                    for problem in of_arm {
                        if !problems.contains(&problem) {
                            problems.push(problem);
                        }
                    }
                }
            }
        }
        for (index, one) in resolved.iter().enumerate() {
            let same = |other: &&Resolved| other.arm.arm_sha256 == one.arm.arm_sha256;
            if let Some(other) = resolved[..index].iter().find(same) {
                problems.push(format!(
                    "{}, arm {:?}: is the same configuration as arm {:?}",
                    self.place, one.arm.name, other.arm.name
                ));
            }
        }
        let notes = resolved.iter().flat_map(|arm| arm.notes.iter().cloned()).collect();
        (resolved.into_iter().map(|resolved| resolved.arm).collect(), notes)
    }

    fn one(
        &self,
        place: &str,
        arm: StatedArm,
        before: &[Resolved],
    ) -> Result<Resolved, Vec<String>> {
        let after = match &arm.after {
            None => None,
            // Said already where the name was looked up, or with the arm that failed.
            Some(name) => {
                Some(before.iter().find(|other| other.arm.name == *name).ok_or(Vec::new())?)
            }
        };
        let parent = after.map_or(self.base, |after| &after.arm.experiment);
        let mut chain = vec![(PathBuf::from(place), arm.set.clone())];
        chain.extend(after.map_or(self.chain, |after| &after.chain).iter().cloned());
        let mut experiment = extends::resolve(chain.clone()).map_err(|error| match error {
            ExperimentError::Invalid { problems } => problems,
            other => vec![format!("{place}: {other}")],
        })?;
        let changed = differences(parent, &experiment).into_iter().map(|it| (it.key, it.b));
        let changed: BTreeMap<String, Option<Value>> = changed.collect();
        let notes = check(place, &arm, &changed, after.is_some() || !before.is_empty())?;
        experiment.name = format!("{}.{}", self.grid, arm.name);
        let base_arm = before.first().filter(|first| first.arm.set.is_empty());
        let base_arm = base_arm.map(|first| first.arm.name.clone());
        Ok(Resolved {
            arm: Arm {
                label: arm.label.unwrap_or_else(|| arm.name.clone()),
                compared_with: arm.compared_with.or_else(|| arm.after.clone()).or(base_arm),
                name: arm.name,
                after: arm.after,
                paper: arm.paper,
                set: changed.into_iter().filter_map(|(key, value)| Some((key, value?))).collect(),
                arm_sha256: experiment.arm_sha256(),
                experiment,
            },
            chain,
            notes,
        })
    }
}

/// Whether a patch changes something of the arm's identity, and nothing else. Notes name keys that it restates.
fn check(
    place: &str,
    arm: &StatedArm,
    changed: &BTreeMap<String, Option<Value>>,
    must_change: bool,
) -> Result<Vec<String>, Vec<String>> {
    let (mut problems, mut notes) = (Vec::new(), Vec::new());
    let declared = declared(&arm.set);
    for unit in &declared {
        if !compare::in_arm(unit) {
            problems.push(format!(
                "{place}: {unit}: is no part of an arm's identity, so that two arms which differ in \
                 it would share their cells; state it in the base"
            ));
        } else if !arm.may_restate && !changed.keys().any(|key| is_within(key, unit)) {
            notes.push(format!("{place}: {unit}: changes nothing: it has this value already"));
        }
    }
    let nothing = must_change && changed.is_empty() && !arm.may_restate;
    if nothing && declared.is_empty() {
        problems.push(format!("{place}: set: is missing or empty: the arm changes nothing"));
    }
    // A switch that does nothing is how an ablation fails silently.
    if changed.is_empty() {
        problems.append(&mut notes);
    }
    for key in changed.keys().filter(|key| !declared.iter().any(|unit| is_within(key, unit))) {
        problems.push(format!("{place}: {key}: differs without being declared"));
    }
    if problems.is_empty() { Ok(notes) } else { Err(problems) }
}

/// The keys that a patch states; of a table with a `kind`, which is replaced whole, the table.
pub(super) fn declared(set: &Table) -> Vec<String> {
    extends::keys(set, |table| table.contains_key("kind"))
}
