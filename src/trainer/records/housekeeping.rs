//! Lists what could be deleted, and changes nothing. Unknown folders, links and their targets are no candidates.

use crate::base::files::{self, FileError, FileKind};
use crate::records::{Ending, EvaluationRecord, FolderEntries, RunFolder, audit, ledger};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Search depth: `runs/NAME` and `runs/STUDY/NAME`; the folder `runs` of a study counts as none.
const DEPTH: u32 = 2;

/// If the last checkpoint is damaged, the run resumes from the one before.
const KEPT_WHILE_UNFINISHED: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HousekeepingState {
    /// No outcome, and no process works on it.
    Unfinished,
    Running,
    Damaged,
    #[serde(untagged)]
    Ended(Ending),
}

impl HousekeepingState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Unfinished => "unfinished",
            Self::Running => "running",
            Self::Damaged => "damaged",
            Self::Ended(ending) => ending.name(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    pub folder: PathBuf,
    pub name: Option<String>,
    pub seed: Option<u64>,
    pub arm_sha256: Option<String>,
    pub state: HousekeepingState,
    pub damage: Option<String>,
    pub steps_done: u64,
    pub steps_planned: Option<u64>,
    pub size_bytes: u64,
    /// Last evaluation of each set: avg@k in [0, 1].
    pub accuracy: BTreeMap<String, f64>,
    pub evaluated_at_step: BTreeMap<String, u64>,
}

impl RunSummary {
    pub fn place(&self, set: &str) -> String {
        let steps = &self.evaluated_at_step;
        match steps.get(set) {
            Some(0) => " (base)".to_owned(),
            Some(step) if steps.values().any(|other| other != step) => format!(" (step {step})"),
            _ => String::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    pub path: PathBuf,
    pub size_bytes: u64,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HousekeepingRules {
    /// Newest checkpoints of each run, at least 1.
    pub keep_last: usize,
    pub unfinished: bool,
}

const FILES_OF_A_RUN: [&str; 5] =
    ["manifest.json", "experiment.json", "metrics.jsonl", ledger::FILE, "outcome.json"];

fn has(folder: &Path, name: &str, kind: FileKind) -> Result<bool, FileError> {
    Ok(files::kind(&folder.join(name))? == Some(kind))
}

/// Whether a folder has any file that only a run has.
pub fn is_run(folder: &Path) -> Result<bool, FileError> {
    for name in FILES_OF_A_RUN {
        if has(folder, name, FileKind::File)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `root` or folders below it, sorted. Folders that are too deep and links are named in a warning.
pub fn runs(root: &Path) -> Result<Vec<RunFolder>, FileError> {
    let mut found = Vec::new();
    // The named folder may be a link; folders below may not.
    files::list(root)?;
    let mut passed_over = Vec::new();
    collect(root, DEPTH, &mut found, &mut passed_over)?;
    if let [first, others @ ..] = &passed_over[..] {
        let more = match others.len() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        tracing::warn!("not looked into: {}{more}; name one to look into it", first.display());
    }
    Ok(found)
}

fn collect(
    folder: &Path,
    depth: u32,
    found: &mut Vec<RunFolder>,
    passed_over: &mut Vec<PathBuf>,
) -> Result<(), FileError> {
    if is_run(folder)? {
        found.push(RunFolder::at(folder));
        return Ok(());
    }
    let is_study =
        has(folder, "grids", FileKind::Folder)? || has(folder, "cells", FileKind::Folder)?;
    for name in files::list(folder)? {
        let path = folder.join(&name);
        let below =
            if is_study && name == "runs" { Some(depth.max(1)) } else { depth.checked_sub(1) };
        match (files::kind(&path)?, below) {
            (Some(FileKind::Folder), Some(below)) => {
                if let Err(error) = collect(&path, below, found, passed_over) {
                    tracing::warn!("{error}; {} is passed over", path.display());
                }
            }
            (Some(FileKind::Folder), None) if !is_study => passed_over.push(path),
            (Some(FileKind::Other), _) if path.is_dir() => passed_over.push(path),
            (None, _) if path.to_string_lossy().contains(char::REPLACEMENT_CHARACTER) => {
                tracing::warn!("{}: passed over, its name is not UTF-8; rename it", path.display())
            }
            _ => {}
        }
    }
    Ok(())
}

pub fn summary(run: &RunFolder) -> Result<RunSummary, FileError> {
    let lost = audit::lost(run);
    let is_whole = matches!(lost, Ok(None));
    let mut damage: Vec<String> = Vec::new();
    match lost {
        Ok(lost) => damage.extend(lost.map(|it| format!("its {it} is missing; bring it back"))),
        Err(error) => damage.push(error.to_string()),
    }
    let mut note = |error: FileError| {
        if damage.is_empty() || !error.is_missing() {
            damage.push(error.to_string());
        }
    };
    let manifest = run.manifest().map_err(&mut note).ok();
    let experiment = run.experiment().map_err(&mut note).ok();
    let outcome = files::optional(run.outcome()).map_err(&mut note);
    let metrics = files::optional(run.metrics()).map_err(&mut note).ok().flatten();
    let evaluations = files::optional(run.evaluations()).map_err(&mut note).ok().flatten();
    let ended = outcome.as_ref().ok().and_then(Option::as_ref);
    let recorded = metrics.iter().flatten().last().map(|line| line.counters);
    let end = ended.map(|it| it.counters).or(recorded).unwrap_or_default();
    let diverged = ended.is_some_and(|it| it.ending == Ending::Diverged);
    // A lock that is no file is suspicious: the run has no candidates.
    let locked = run.is_locked().map_err(&mut note).ok();
    // The named folder may be a link.
    let size_bytes = files::size_bytes(&run.path(".")).map_err(&mut note).ok();
    let is_known = locked.is_some() && size_bytes.is_some();
    let can_go_on = is_whole && is_known && manifest.is_some() && experiment.is_some();
    let state = match outcome {
        _ if locked == Some(true) => HousekeepingState::Running,
        Ok(Some(outcome)) if damage.is_empty() => HousekeepingState::Ended(outcome.ending),
        // A killed run may have half a last line.
        Ok(None) if can_go_on => HousekeepingState::Unfinished,
        _ => HousekeepingState::Damaged,
    };
    let last = evaluations.into_iter().flatten().map(|record| (record.set.clone(), record));
    let mut last: BTreeMap<_, _> = last.collect();
    last.retain(|_, record| record.counters.is_result_of(end, diverged));
    let step = |record: &EvaluationRecord| (record.set.clone(), record.counters.rollout_steps);
    Ok(RunSummary {
        folder: run.root().to_path_buf(),
        name: manifest.as_ref().map(|manifest| manifest.name.clone()),
        seed: manifest.as_ref().map(|manifest| manifest.seed),
        arm_sha256: manifest.map(|manifest| manifest.arm_sha256),
        state,
        damage: (!damage.is_empty()).then(|| damage.join("; ")),
        steps_done: metrics.iter().flatten().last().map_or(0, |line| line.step),
        steps_planned: experiment.map(|experiment| experiment.training.rollout_steps),
        size_bytes: size_bytes.unwrap_or(0),
        evaluated_at_step: last.values().map(step).collect(),
        accuracy: last.into_iter().map(|(set, record)| (set, record.avg_at_k)).collect(),
    })
}

/// Leftovers of killed writes (`.partial…`), refused checkpoints, all but the newest ones and, if asked, runs without
/// an outcome. Runs that a process works on, damaged runs and links are never candidates.
pub fn candidates(root: &Path, rules: HousekeepingRules) -> Result<Vec<Candidate>, FileError> {
    let mut found = Vec::new();
    for run in runs(root)? {
        let RunSummary { state, size_bytes, .. } = summary(&run)?;
        if matches!(state, HousekeepingState::Running | HousekeepingState::Damaged) {
            continue;
        }
        if state == HousekeepingState::Unfinished && rules.unfinished {
            let (path, reason) = (run.root().to_path_buf(), "a run without an outcome".to_string());
            found.push(Candidate { path, size_bytes, reason });
            continue;
        }
        let least = if state == HousekeepingState::Unfinished { KEPT_WHILE_UNFINISHED } else { 1 };
        let entries = FolderEntries::of(&run)?;
        let partial = entries.partial.iter().map(|name| (name, "left by a write that was killed"));
        let aside = entries.put_aside.iter().map(|name| (name, "a checkpoint refused as damaged"));
        for (name, reason) in partial.chain(aside) {
            found.push(candidate(run.path(name), reason.to_string())?);
        }
        let kept = rules.keep_last.max(least);
        let steps = entries.steps("checkpoints/step-", "/model.safetensors");
        for &step in steps.iter().take(steps.len().saturating_sub(kept)) {
            let reason = format!("checkpoint of step {step}, older than the newest {kept}");
            found.push(candidate(run.checkpoint(step), reason)?);
        }
    }
    Ok(found)
}

fn candidate(path: PathBuf, reason: String) -> Result<Candidate, FileError> {
    let size_bytes = files::size_bytes(&path)?;
    Ok(Candidate { path, size_bytes, reason })
}

/// `13 kB`, `1.2 GB`.
pub fn readable(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 999.5 {
            let decimals = usize::from(unit != "B" && value < 10.0);
            return format!("{value:.decimals$} {unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Counters, Outcome, StepMetrics};

    fn found(root: &Path) -> Vec<String> {
        let name = |run: &RunFolder| run.root().strip_prefix(root).unwrap().display().to_string();
        runs(root).unwrap().iter().map(name).collect()
    }

    #[test]
    fn scores_are_those_of_the_trained_policy_with_their_steps() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::at(folder.path());
        let counters =
            |step: u64| Counters { rollout_steps: step, updates: 2 * step, ..Counters::default() };
        let evaluations =
            [("dev", 0), ("test", 0), ("dev", 5), ("other", 10)].map(|(set, step)| {
                EvaluationRecord {
                    counters: counters(step),
                    set: set.to_owned(),
                    problems: 2,
                    samples: 1,
                    avg_at_k: 0.5,
                    standard_error_fixed_problems: 0.0,
                    standard_error_new_problems: 0.0,
                    pass_at_k: BTreeMap::new(),
                    cons_at_k: 0.5,
                    truncated_share: 0.0,
                    response_tokens_mean: 1.0,
                    reward_mean: None,
                    outcomes_sha256: String::new(),
                }
            });
        files::write_lines(&run.path("evaluations.jsonl"), &evaluations[..2]).unwrap();
        let shown = || {
            let summary = summary(&run).unwrap();
            let place = |set: &String| format!("{set}{}", summary.place(set));
            summary.accuracy.keys().map(place).collect::<Vec<_>>()
        };
        assert_eq!(shown(), ["dev (base)", "test (base)"]);
        let line = StepMetrics { step: 11, counters: counters(11), metrics: BTreeMap::new() };
        files::write_lines(&run.path("metrics.jsonl"), &[line]).unwrap();
        assert!(shown().is_empty());
        files::write_lines(&run.path("evaluations.jsonl"), &evaluations[..3]).unwrap();
        assert_eq!(shown(), ["dev"]);
        files::write_lines(&run.path("evaluations.jsonl"), &evaluations).unwrap();
        assert_eq!(shown(), ["dev (step 5)", "other (step 10)"]);
        files::write_lines(&run.path("evaluations.jsonl"), &evaluations[..2]).unwrap();
        files::write_lines::<StepMetrics>(&run.path("metrics.jsonl"), &[]).unwrap();
        let outcome = Outcome::new(4, Ending::Diverged, None, counters(0));
        files::write_json(&run.path("outcome.json"), &outcome).unwrap();
        assert!(shown().is_empty());
    }

    #[test]
    fn half_copies_are_damaged_runs_and_those_of_a_study_lie_at_any_place() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for file in ["group/study/grids/g.json", "group/study/cells/c.json", "a/b/c/d/outcome.json"]
        {
            files::write_atomic(&root.join(file), b"{}").unwrap();
        }
        for name in FILES_OF_A_RUN {
            files::write_atomic(&root.join("group/study/runs").join(name).join(name), b"").unwrap();
            files::write_atomic(&root.join("half").join(name).join(name), b"").unwrap();
        }
        assert_eq!(found(root).len(), 2 * FILES_OF_A_RUN.len());
        assert_eq!(found(&root.join("a/b")), ["c/d"]);
        for run in runs(root).unwrap() {
            let summary = summary(&run).unwrap();
            assert_eq!(summary.state, HousekeepingState::Damaged, "{summary:?}");
            assert!(summary.damage.as_ref().is_some_and(|it| it.contains(".json")), "{summary:?}");
        }
        let rules = HousekeepingRules { keep_last: 1, unfinished: true };
        assert_eq!(candidates(root, rules).unwrap(), []);
    }
}
