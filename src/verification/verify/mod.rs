//! Verifies an untrusted run folder: hashes every file, computes derived values and challenged rollout steps again, bit
//! for bit. It changes nothing and uses no network. `timings.jsonl`, `environment.json` and `sessions.jsonl` (time and
//! machine) cannot be checked.

pub mod checkpoints;
pub mod ending;
pub mod inputs;
pub mod records;
pub mod replay;
pub mod scores;
pub mod steps;
pub mod study;

use crate::base::{files, visible};
use crate::records::ending::LAST_WITH_SENTENCES;
use crate::records::run_folder::UNGRADED;
use crate::records::{
    Counters, Ending, FolderEntries, RunFolder, RunRecords, Session, environment,
};
use crate::training::run;
use crate::verification::verify::inputs::Local;
use crate::verification::{Replay, VerificationError};
use serde::Serialize;
use std::fmt::Display;
use std::path::PathBuf;

/// The whole has the worst verdict of all checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerifyVerdict {
    /// Everything was compared and agrees.
    #[default]
    Verified,
    /// Something is missing or cannot be compared here.
    Inconclusive,
    Mismatch,
}

impl VerifyVerdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Inconclusive => "inconclusive",
            Self::Mismatch => "mismatch",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Never [`VerifyVerdict::Verified`].
    pub verdict: VerifyVerdict,
    /// File, step, component, row or key.
    pub place: String,
    pub what: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub verdict: VerifyVerdict,
    pub compared: String,
    pub findings: Vec<Finding>,
    pub further_findings: u64,
}

const MOST_FINDINGS: usize = 20;

impl Check {
    fn new(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    fn mismatch(&mut self, place: impl Display, what: impl Display) {
        self.find(VerifyVerdict::Mismatch, place, what);
    }

    fn inconclusive(&mut self, place: impl Display, what: impl Display) {
        self.find(VerifyVerdict::Inconclusive, place, what);
    }

    fn find(&mut self, verdict: VerifyVerdict, place: impl Display, what: impl Display) {
        self.verdict = self.verdict.max(verdict);
        if self.findings.len() == MOST_FINDINGS {
            self.further_findings += 1;
            return;
        }
        // Line ends in a name must not print a verdict of their own.
        let line = |text: String| visible::message(&text.replace('\n', "\\n"));
        let (place, what) = (line(place.to_string()), line(what.to_string()));
        self.findings.push(Finding { verdict, place, what });
    }

    fn unfinished_as_told(&mut self) {
        self.verdict = self.verdict.max(VerifyVerdict::Inconclusive);
    }

    /// An error in an ended run; a killed one may have it.
    fn half_done(&mut self, records: &RunRecords, place: impl Display, what: impl Display) {
        if records.is_unfinished() {
            self.inconclusive(place, format!("{what}; the run is unfinished"))
        } else {
            self.mismatch(place, what)
        }
    }

    fn equal<T: PartialEq + Display>(&mut self, place: impl Display, found: T, expected: T) {
        if found != expected {
            self.mismatch(place, format!("is {found}, should be {expected}"));
        }
    }

    fn same_counters(&mut self, place: impl Display, found: Counters, expected: Counters) {
        if found != expected {
            self.mismatch(place, format!("are {found:?}, should be {expected:?}"));
        }
    }

    /// A mismatch if it cannot be read.
    fn read<T>(&mut self, place: impl Display, read: Result<T, impl Display>) -> Option<T> {
        read.map_err(|error| self.mismatch(place, error)).ok()
    }

    fn compared(mut self, what: impl Into<String>) -> Self {
        self.compared = what.into();
        self
    }

    fn not_begun(name: &'static str, why: &str) -> Self {
        let mut check = Self::new(name);
        check.inconclusive(name, why);
        check.compared("nothing")
    }

    fn excuse_removed(&mut self, folder: &RunFolder) {
        let is_gone = |finding: &&mut Finding| {
            let path = finding.place.split(", ").next().unwrap_or_default();
            let is_none = |path: PathBuf| matches!(files::kind(&path), Ok(None));
            path.contains('/') && folder.inside(path).is_ok_and(is_none)
        };
        for finding in self.findings.iter_mut().filter(is_gone) {
            finding.verdict = VerifyVerdict::Inconclusive;
            finding.what += "; it is gone, and the run goes on";
        }
        if self.further_findings == 0 && !self.findings.is_empty() {
            let verdicts = self.findings.iter().map(|finding| finding.verdict);
            self.verdict = verdicts.max().unwrap_or_default();
        }
    }

    fn all_findings(&self) -> u64 {
        self.findings.len() as u64 + self.further_findings
    }

    fn failed(&self) -> bool {
        self.verdict == VerifyVerdict::Mismatch
    }
}

/// What a reviewer has, and asks for.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Options {
    /// Folder of the base policy; without it the embedded benchmark's, which the program holds. A
    /// path that the run folder names is never opened.
    #[arg(long, value_name = "FOLDER")]
    pub base: Option<PathBuf>,
    /// Folder of the problem files, of a run on files.
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<PathBuf>,
    /// Your own copy of the program that graded a run (or math-verify): it is started if its digest is the recorded
    /// one, with the Python of DAPO_PYTHON. Without it no program is started, and rewards are taken as recorded.
    /// Repeat it where sets have programs of their own; a run on files needs --data, too.
    #[arg(long = "run-rewards", value_name = "FILE")]
    pub rewards: Vec<PathBuf>,
    #[arg(skip)]
    pub replay: Option<replay::ReplayRequest>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Extent {
    pub steps: u64,
    pub evaluations: u64,
    /// Saturated, stalled or diverged.
    pub ends_early: bool,
    pub imported: bool,
    /// A program graded the responses, and was not started here.
    pub rewards_as_recorded: bool,
    /// A program of their own graded these sets, and was not started here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets_as_recorded: Vec<String>,
    pub unfinished: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub running: bool,
    /// Which base policy, and from where.
    pub base: String,
    pub put_aside: Vec<String>,
    /// Such runs can have a higher level of exactness.
    #[serde(skip)]
    pub has_lower_level: bool,
    /// Format 4 has the rewards of evaluations by a program.
    #[serde(skip)]
    pub lacks_rewards: bool,
}

impl Extent {
    fn of(records: &RunRecords) -> Self {
        let RunRecords { experiment, manifest, evaluations, .. } = records;
        let ending = records.outcome.as_ref().map(|outcome| outcome.ending);
        let higher =
            run::inputs::levels(experiment).split_last().map_or(&[][..], |(_, higher)| higher);
        let is_graded_by_program = experiment.reward.verifier.program().is_some();
        Self {
            steps: records.steps(),
            evaluations: records.evaluations.len() as u64,
            ends_early: ending.is_some_and(|ending| ending != Ending::Finished),
            imported: !records.experiment.engine.is_native(),
            unfinished: records.is_unfinished(),
            has_lower_level: !higher.is_empty() && !higher.contains(&manifest.exactness.as_str()),
            lacks_rewards: is_graded_by_program
                && experiment.record_format() > LAST_WITH_SENTENCES
                && evaluations.iter().all(|evaluation| evaluation.reward_mean.is_none()),
            ..Self::default()
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct VerifySubject<'a> {
    folder: &'a RunFolder,
    records: &'a RunRecords,
    local: &'a Local,
    entries: &'a FolderEntries,
}

/// Of a run or of a study, of which nothing is executed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verification {
    pub schema: &'static str,
    pub verdict: VerifyVerdict,
    pub summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extent: Option<Extent>,
    pub checks: Vec<Check>,
    pub replay: Option<Replay>,
    pub not_checked: Vec<String>,
    /// That train the cheapest cell of a study again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

pub fn worst(checks: &[Check]) -> VerifyVerdict {
    checks.iter().map(|check| check.verdict).max().unwrap_or_default()
}

pub fn verify(
    folder: &RunFolder,
    options: &Options,
    watch: &mut dyn FnMut(&str),
) -> Result<Verification, VerificationError> {
    if files::kind(&folder.path("manifest.json")).unwrap_or(None).is_none() {
        return Err(VerificationError::NotARun(folder.clone()));
    }
    let is_running = || folder.is_locked().unwrap_or(false);
    let mut extent = Extent { running: is_running(), ..Extent::default() };
    let mut checks = Vec::new();
    let replay = examine(folder, options, &mut checks, &mut extent, watch)?;
    if extent.running && worst(&checks) != VerifyVerdict::Verified {
        if !is_running() {
            return verify(folder, options, watch);
        }
        checks.iter_mut().for_each(|check| check.excuse_removed(folder));
    }
    tell_of_other_sources(folder, &mut checks);
    let verdict = worst(&checks);
    Ok(Verification {
        schema: "dapo-verification/2",
        verdict,
        summary: summary(verdict, &extent, replay.as_ref()),
        not_checked: not_checked(folder, &extent, replay.as_ref()),
        commands: Vec::new(),
        extent: Some(extent),
        checks,
        replay,
    })
}

fn other_sources(folder: &RunFolder) -> Option<String> {
    let sessions = folder.sessions().unwrap_or_default();
    let others = environment::other_sources(&folder.environment().ok()?, &sessions)?;
    let here = &environment::SOURCES_SHA256[..12];
    Some(format!(
        "; the run, or a part of it, was made by a program with other sources ({others}; here {here}): this program \
         need not make the same bits"
    ))
}

fn tell_of_other_sources(folder: &RunFolder, checks: &mut [Check]) {
    let computed =
        checks.iter_mut().filter(|it| ["rollout steps", "evaluations"].contains(&it.name));
    let mut findings = computed.flat_map(|check| &mut check.findings);
    let differing = findings.find(|finding| finding.verdict == VerifyVerdict::Mismatch);
    if let Some((finding, others)) = differing.zip(other_sources(folder)) {
        finding.what += &visible::message(&others);
    }
}

fn summary(verdict: VerifyVerdict, extent: &Extent, replay: Option<&Replay>) -> String {
    if verdict == VerifyVerdict::Inconclusive && extent.unfinished {
        let steps = extent.steps;
        let next = match extent {
            Extent { running: true, .. } => {
                "a process works in it: verify it again when that has ended"
            }
            Extent { imported: true, .. } => {
                "the command that imported it goes on with --resume; then verify it again"
            }
            _ => "resume it (dapo train EXPERIMENT --out FOLDER --resume) and verify it again",
        };
        return format!("inconclusive: the run is unfinished after {steps} rollout steps; {next}");
    }
    if verdict != VerifyVerdict::Verified {
        return verdict.name().to_string();
    }
    let steps = replay.map_or(0, |replay| replay.covered.len());
    if extent.imported {
        let Extent { steps, evaluations, base, .. } = extent;
        return format!(
            "verified (records); another trainer made the {steps} rollout steps, {evaluations} evaluations not replayed; {base}"
        );
    }
    let mut summary = format!("verified (records), training replayed {steps} of {}", extent.steps);
    let evaluations = replay.map(|replay| &replay.evaluations);
    let executed = evaluations.map_or(0, |it| it.executed.len());
    summary += &format!(", evaluations replayed {executed} of {}", extent.evaluations);
    if let Some(evaluations) = evaluations.filter(|it| it.executed_problems > 0) {
        let (some, all) = (evaluations.executed_problems, evaluations.all_problems);
        summary += &format!(" ({some} of {all} problems)");
    }
    if extent.ends_early {
        let is_executed = replay.is_some_and(|replay| replay.ending == Some(true));
        summary += if is_executed { ", ending replayed" } else { ", ending not replayed" };
    }
    if extent.rewards_as_recorded {
        summary += ", rewards as recorded";
    }
    if !extent.sets_as_recorded.is_empty() {
        let sets = extent.sets_as_recorded.join(", ");
        summary += &format!(", correctness on {sets} as recorded");
    }
    summary + "; " + &extent.base
}

/// Stops where further checks make no sense.
fn examine(
    folder: &RunFolder,
    options: &Options,
    checks: &mut Vec<Check>,
    extent: &mut Extent,
    watch: &mut dyn FnMut(&str),
) -> Result<Option<Replay>, VerificationError> {
    watch("walking the folder");
    let entries = FolderEntries::of(folder)?;
    checks.push(records::folder(&entries, extent.running));
    // Links may lead to files that the sender wants read.
    if entries.has_links() {
        return Ok(None);
    }
    let (check, records) = records::read(folder);
    checks.push(check);
    let Some(records) = records else { return Ok(None) };
    *extent = Extent { running: extent.running, ..Extent::of(&records) };
    let entries = if extent.running { FolderEntries::of(folder)? } else { entries };
    if entries.has_engine && !extent.imported {
        checks[0].mismatch("engine", "has no place in a run of this harness: it was added");
    }
    checks.push(records::digests(folder, &entries, &records));
    checks.push(records::identity(&records));
    let (check, local) = inputs::find(folder, &records, options)?;
    extent.base.clone_from(&local.origin);
    extent.rewards_as_recorded = local.grader.is_none();
    extent.sets_as_recorded = local.ungraded_sets();
    extent.put_aside.clone_from(&entries.put_aside);
    checks.push(check);
    checks.push(records::ledger(&records));
    watch("computing the rollout steps' records again");
    let subject = VerifySubject { folder, records: &records, local: &local, entries: &entries };
    let (check, waiting) = steps::check(subject);
    checks.push(check);
    watch("checkpoints");
    let (check, kept) = checkpoints::check(subject, &waiting);
    checks.push(check);
    watch("evaluations and report");
    checks.push(ending::check(subject, &waiting));
    checks.push(scores::evaluations(subject));
    checks.push(scores::report(subject));
    let Some(request) = &options.replay else { return Ok(None) };
    let why = match extent {
        Extent { imported: true, .. } => {
            "another trainer made the rollout steps; dapo eval samples from the checkpoints"
        }
        Extent { running: true, .. } => "not begun: a process works in the folder",
        _ if checks.iter().any(Check::failed) => {
            "not begun: the checks above found mismatches already"
        }
        _ => "",
    };
    if !why.is_empty() {
        checks.push(Check::not_begun("replay", why));
        return Ok(None);
    }
    let (check, replay) = replay::replay(subject, &kept, request, watch);
    checks.push(check);
    Ok(Some(replay))
}

fn not_checked(folder: &RunFolder, extent: &Extent, replay: Option<&Replay>) -> Vec<String> {
    let notes = [
        "the words and pictures of the report, and report.html and report.md as a whole: dapo report RUN \
         writes them again from the records",
        "timings.jsonl, environment.json and sessions.jsonl, and the seconds, machine facts and \
         sessions that the report takes from them: only whoever ran it vouches for them",
        "the name of the run, the version of the program, the paths of its inputs, the schedule of its checkpoints, the \
         Python and seconds of a program of rewards and, under exact arithmetic, threads and batch sizes: no number \
         depends on them",
    ];
    let mut notes = notes.map(str::to_string).to_vec();
    if folder.sessions().is_ok_and(|all| all.iter().any(Session::went_back)) {
        let note = "sessions.jsonl: a session ended before it started: its clock was set back";
        notes.push(note.to_string());
    }
    for name in ["plan.json", UNGRADED, "ro-crate-metadata.json", "statement.json"] {
        if folder.path(name).exists() {
            notes.push(format!("{name}: nothing of the run is read from it"));
        }
    }
    if extent.imported {
        let note = "engine/, and whether the policy of a rollout step gave its responses, and the updates its \
                    weights: another trainer made them, and this harness cannot execute them again";
        notes.push(note.to_string());
    }
    for name in &extent.put_aside {
        let what = "a damaged checkpoint that a session put aside and nothing reads";
        notes.push(format!("{}: {what}", visible::message(name)));
    }
    if extent.rewards_as_recorded {
        let note = "rewards and correctness: a program graded the responses, and none was started here \
                    (--run-rewards FILE starts your own copy of it, in a run on files with --data FOLDER); they are \
                    taken as recorded";
        notes.push(note.to_string());
    }
    if !extent.sets_as_recorded.is_empty() {
        notes.push(format!(
            "correctness in the evaluations of {}: a program of their own graded them, and none was started here \
             (--run-rewards FILE starts your own copy of it, in a run on files with --data FOLDER); it is taken as \
             recorded",
            extent.sets_as_recorded.join(", ")
        ));
    }
    if extent.has_lower_level {
        let note = "the level of exactness in manifest.json, the lower one of such runs: at it another machine's replay \
                    finds no mismatch, but what may differ";
        notes.push(note.to_string());
    }
    if extent.lacks_rewards {
        let note = "rewards of evaluations: a program graded them, and the records have none, as those of an earlier \
                    program";
        notes.push(note.to_string());
    }
    let missing = extent.steps - replay.map_or(0, |replay| replay.covered.len() as u64);
    if missing > 0 && !extent.imported {
        notes.push(format!(
            "generation and updates of the {missing} rollout steps that were not executed again \
             (--replay N --challenge SEED): rollouts, metrics of the policy, the loss and the optimizer, a \
             program's own numbers, gradients and weights that were made otherwise are not noticed there"
        ));
    }
    let executed = replay.map(|replay| &replay.evaluations);
    if executed.is_none_or(|it| it.executed_problems < it.all_problems) {
        let graded = if extent.rewards_as_recorded {
            "their grades are taken as recorded"
        } else {
            "they are graded again as they are stored"
        };
        notes.push(format!(
            "whether the policy gave the responses of evaluations to problems that were not executed \
             again: {graded}"
        ));
    }
    if extent.ends_early && replay.is_none_or(|replay| replay.ending != Some(true)) {
        let note = "whether the run ends early as it says: the step was not executed again";
        notes.push(note.to_string());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Environment;

    #[test]
    fn a_checkpoint_that_a_running_process_removed_is_no_mismatch() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::at(folder.path());
        files::write_atomic(&run.path("checkpoints/step-000002/trainer.json"), b"{}").unwrap();
        let verdict = |places: &[&str]| {
            let mut check = Check::new("checkpoints");
            places.iter().for_each(|place| check.mismatch(place, "is another"));
            check.excuse_removed(&run);
            check.verdict
        };
        let gone = ["checkpoints/step-000001", "checkpoints/step-000001/trainer.json, counters"];
        assert_eq!(verdict(&gone), VerifyVerdict::Inconclusive);
        for kept in
            ["checkpoints/step-000002/trainer.json", "metrics.jsonl, step 1", "../a/b", "run_key"]
        {
            assert_eq!(verdict(&[gone[0], kept]), VerifyVerdict::Mismatch, "{kept}");
        }
        let mut many = Check::new("checkpoints");
        (0..=MOST_FINDINGS).for_each(|_| many.mismatch(gone[0], "is another"));
        many.excuse_removed(&run);
        assert!(many.failed());
        let mut unfinished = Check::new("ledger");
        unfinished.unfinished_as_told();
        unfinished.excuse_removed(&run);
        assert_eq!(unfinished.verdict, VerifyVerdict::Inconclusive);
    }

    #[test]
    fn what_to_do_about_an_unfinished_run_depends_on_its_lock_and_engine() {
        let said = |running, imported| {
            let extent = Extent { unfinished: true, running, imported, ..Extent::default() };
            summary(VerifyVerdict::Inconclusive, &extent, None)
        };
        assert!(said(false, false).contains("--out FOLDER --resume"));
        assert!(said(false, true).contains("the command that imported it"));
        for imported in [false, true] {
            let said = said(true, imported);
            assert!(said.contains("a process works in it") && !said.contains("resume"), "{said}");
        }
    }

    #[test]
    fn a_difference_tells_once_of_other_sources_and_keeps_its_verdict() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::at(folder.path());
        let told = |sources: Option<&str>| {
            let facts = sources.map(|it| (environment::SOURCES.to_string(), it.to_string()));
            let environment = Environment { facts: facts.into_iter().collect() };
            files::write_json(&run.path("environment.json"), &environment).unwrap();
            let mut checks = ["folder", "rollout steps", "evaluations"].map(Check::new);
            checks.iter_mut().for_each(|check| check.mismatch("step 1", "is 1, should be 2"));
            tell_of_other_sources(&run, &mut checks);
            assert_eq!(worst(&checks), VerifyVerdict::Mismatch);
            checks.map(|check| check.findings[0].what.clone())
        };
        for silent in [None, Some(environment::SOURCES_SHA256)] {
            assert_eq!(told(silent), ["is 1, should be 2"; 3]);
        }
        let [digests, steps, evaluations] = told(Some("0123456789abcdef"));
        assert_eq!([&digests, &evaluations], ["is 1, should be 2"; 2]);
        assert!(steps.contains("other sources (0123456789ab; here "), "{steps}");
        assert_eq!(other_sources(&RunFolder::at(folder.path().join("none"))), None);
    }
}
