//! Searches ledgers and stored records for the first difference, step by step.

use crate::base::files;
use crate::experiment::compare::differing_keys;
use crate::records::ledger::{self, Kind, STEP_COMPONENTS};
use crate::records::run_folder::{CHECKPOINT, COMPANIONS};
use crate::records::{DivergenceRecord, Ending, EvaluationRecord, Outcome, tables};
use crate::verification::diff::side::DiffSide;
use crate::verification::diff::{finding::DiffFinding, is_step, records, side, weights};
use crate::verification::{FirstDifference, VerificationError};
use std::collections::BTreeSet;

pub type FoundDifference = (FirstDifference, Vec<DiffFinding>);

#[derive(Debug)]
pub struct Search<'a> {
    a: &'a DiffSide,
    b: &'a DiffSide,
    pub notes: Vec<String>,
    pub lacking: bool,
}

impl<'a> Search<'a> {
    pub fn between(a: &'a DiffSide, b: &'a DiffSide) -> Self {
        Self { a, b, notes: Vec::new(), lacking: false }
    }

    fn sides(&self) -> [(&'static str, &'a DiffSide); 2] {
        [("a", self.a), ("b", self.b)]
    }

    pub fn note_ledgers(&mut self) {
        for (name, side) in self.sides() {
            if !side.has_ledger() {
                self.notes.push(format!(
                    "{name} has no ledger (made before there were ledgers, or it is gone): compared by its stored records"
                ));
            } else if let Err(broken) = ledger::check_chain(&side.records.ledger) {
                self.notes
                    .push(format!("{name}'s ledger does not hold: {broken}; see `dapo verify`"));
            }
        }
    }

    pub fn note_experiments(&mut self) {
        for (name, side) in self.sides() {
            let contradicting: Vec<&str> = side.contradicting().into_keys().collect();
            if !contradicting.is_empty() {
                self.notes.push(format!(
                    "{name}'s experiment.json is not that of its manifest.json ({}); see `dapo verify`",
                    contradicting.join(", ")
                ));
            }
        }
    }

    /// The first differing step and evaluation; without one, a checkpoint's files, then the ending and its step.
    pub fn first(&mut self) -> Result<Option<FoundDifference>, VerificationError> {
        let steps = self.a.steps().min(self.b.steps());
        let mut found = None;
        let mut unseen = 1..=steps;
        while found.is_none()
            && let Some(step) = unseen.next()
        {
            found = self.step(step)?;
        }
        for step in 0..=steps {
            if let Some(finding) = self.evaluations(step)? {
                let (first, findings) = found.get_or_insert_with(|| {
                    let differing = vec!["evaluations".to_string()];
                    (first_in(step, differing, Vec::new(), false), Vec::new())
                });
                first.evaluation_step = Some(step);
                findings.push(finding);
                break;
            }
        }
        if found.is_none() {
            found = self.checkpoints(steps)?;
        }
        if found.is_none() {
            found = self.end();
        }
        if found.is_none() {
            let findings = self.diverged()?;
            let ending = || first_in(steps, vec!["ending".to_string()], Vec::new(), false);
            found = (!findings.is_empty()).then(|| (ending(), findings));
        }
        Ok(found)
    }

    fn step(&mut self, step: u64) -> Result<Option<FoundDifference>, VerificationError> {
        let mut differing: BTreeSet<String> = BTreeSet::new();
        let mut compared: BTreeSet<String> = BTreeSet::new();
        let entries = [self.a, self.b].map(|side| side.components(Kind::RolloutStep, step));
        if let [Some(a), Some(b)] = entries {
            compared.extend(a.keys().chain(b.keys()).cloned());
            differing.extend(differing_keys(a, b).into_iter().cloned());
        }
        let by_ledger = !differing.is_empty();
        let findings = self.stored(step, &mut compared)?;
        let shown: BTreeSet<String> =
            findings.iter().map(|finding| finding.component.clone()).collect();
        // At least one of them contradicts its ledger.
        let contradicted: Vec<&str> = shown.difference(&differing).map(String::as_str).collect();
        if entries.iter().all(Option::is_some) && !contradicted.is_empty() {
            self.notes.push(format!(
                "the ledgers agree on {} of rollout step {step} and the stored records do not: \
                 {}; see `dapo verify`",
                contradicted.join(", "),
                self.liars(step)
            ));
        }
        differing.extend(shown);
        let agreeing = in_order(&compared.difference(&differing).cloned().collect());
        let differing = in_order(&differing);
        let differs = !differing.is_empty();
        Ok(differs.then(|| (first_in(step, differing, agreeing, by_ledger), findings)))
    }

    fn stored(
        &mut self,
        step: u64,
        compared: &mut BTreeSet<String>,
    ) -> Result<Vec<DiffFinding>, VerificationError> {
        let mut findings = Vec::new();
        let paths = [self.a, self.b].map(|side| side.folder.rollouts(step));
        let file = format!("rollouts/step-{step:06}.parquet");
        if self.both(&file, paths.each_ref().map(|path| path.exists())) {
            compared.extend(STEP_COMPONENTS[..6].iter().map(|name| name.to_string()));
            if let Some([a, b]) = side::if_differing(&paths, tables::read_rollouts)? {
                findings.extend(records::rollouts(&a, &b, &file));
            }
        }
        let folders = [self.a, self.b].map(|side| side.folder.checkpoint(step));
        let name = format!("checkpoints/step-{step:06}");
        if self.both(&name, folders.each_ref().map(|folder| folder.is_dir())) {
            compared.extend(["weights", "moments"].map(str::to_string));
            findings.extend(weights::findings([&self.a.folder, &self.b.folder], &name)?);
        }
        let lines = [self.a, self.b].map(|side| side.records.line(step));
        let name = format!("step {step} of metrics.jsonl");
        if self.both(&name, lines.each_ref().map(Option::is_some))
            && let [Some(a), Some(b)] = lines
        {
            compared.insert("metrics".to_string());
            findings.extend(records::metrics(a, b));
        }
        Ok(findings)
    }

    fn both(&mut self, record: &str, [a, b]: [bool; 2]) -> bool {
        if a != b {
            let side = if a { "b" } else { "a" };
            self.notes.push(format!("{side} has no {record}: not compared"));
            self.lacking = true;
        }
        a && b
    }

    /// Runs whose table of rollouts contradicts their ledger.
    fn liars(&self, step: u64) -> String {
        let mut changed = Vec::new();
        for (name, side) in self.sides() {
            let rows = tables::read_rollouts(&side.folder.rollouts(step)).unwrap_or_default();
            let entry = side.entry(Kind::RolloutStep, step);
            if !rows.is_empty() && entry.is_none_or(|entry| !entry.unlike(&rows).is_empty()) {
                changed.push(format!("{name}'s rollouts are not those of its ledger"));
            }
        }
        if changed.is_empty() {
            changed.push("a file was changed after it was written".to_string());
        }
        changed.join(", ")
    }

    fn evaluations(&mut self, step: u64) -> Result<Option<DiffFinding>, VerificationError> {
        let is_of_step = |it: &&EvaluationRecord| it.counters.rollout_steps == step;
        for one in self.a.records.evaluations.iter().filter(is_of_step) {
            let mut others = self.b.records.evaluations.iter().filter(is_of_step);
            let Some(other) = others.find(|it| it.set == one.set) else { continue };
            let path = |side: &DiffSide| side.folder.recorded_outcomes(&one.set, step);
            let paths = [path(self.a)?, path(self.b)?];
            let file = format!("evaluations/{}-step-{step:06}.parquet", one.set);
            let mut finding = None;
            if self.both(&file, paths.each_ref().map(|path| path.exists()))
                && let Some([a, b]) = side::if_differing(&paths, tables::read_outcomes)?
            {
                finding = records::outcomes(&a, &b, &file);
            }
            finding = finding.or_else(|| records::evaluation(one, other));
            if finding.is_some() {
                return Ok(finding);
            }
        }
        Ok(None)
    }

    fn checkpoints(&mut self, steps: u64) -> Result<Option<FoundDifference>, VerificationError> {
        for step in 0..=steps {
            let folders = [self.a, self.b].map(|side| side.folder.checkpoint(step));
            if !folders.iter().all(|folder| folder.is_dir()) {
                continue;
            }
            let findings = self.policy(&format!("checkpoints/step-{step:06}"))?;
            if !findings.is_empty() {
                let differing = vec!["checkpoint".to_string()];
                return Ok(Some((first_in(step, differing, Vec::new(), false), findings)));
            }
        }
        Ok(None)
    }

    fn policy(&mut self, folder: &str) -> Result<Vec<DiffFinding>, VerificationError> {
        let mut findings = weights::findings([&self.a.folder, &self.b.folder], folder)?;
        for name in CHECKPOINT.into_iter().chain(COMPANIONS) {
            let file = format!("{folder}/{name}");
            let paths = [self.a, self.b].map(|side| side.folder.path(&file));
            if self.both(&file, paths.each_ref().map(|path| path.exists())) {
                findings.extend(weights::companion(name, &file, &paths)?);
            }
        }
        Ok(findings)
    }

    /// `diverged/` of two diverged runs of the same length: the step that was not finite.
    fn diverged(&mut self) -> Result<Vec<DiffFinding>, VerificationError> {
        let has = |side: &DiffSide| side.folder.path("diverged").is_dir();
        let both_diverged = self.outcomes().is_some_and(|outcomes| {
            outcomes.iter().all(|outcome| outcome.ending == Ending::Diverged)
        });
        if !both_diverged || !self.both("diverged/", [has(self.a), has(self.b)]) {
            return Ok(Vec::new());
        }
        let mut findings = Vec::new();
        let [file, record] = ["diverged/rollouts.parquet", "diverged/divergence.json"];
        let paths = [self.a, self.b].map(|side| side.folder.path(file));
        if self.both(file, paths.each_ref().map(|path| path.exists()))
            && let Some([a, b]) = side::if_differing(&paths, tables::read_rollouts)?
        {
            findings.extend(records::rollouts(&a, &b, file));
        }
        let paths = [self.a, self.b].map(|side| side.folder.path(record));
        if self.both(record, paths.each_ref().map(|path| path.exists()))
            && let Some([a, b]) = side::if_differing(&paths, files::read_json::<DivergenceRecord>)?
        {
            findings.extend(records::divergence(&a, &b, record));
        }
        findings.extend(self.policy("diverged/checkpoint")?);
        Ok(findings)
    }

    /// Compares endings of two ended runs of the same length, by ledger and `outcome.json`.
    fn end(&mut self) -> Option<FoundDifference> {
        let steps = self.a.steps();
        let entries = [self.a, self.b].map(|side| side.components(Kind::End, steps));
        let (mut differing, mut agreeing) = (Vec::new(), Vec::new());
        if let [Some(a), Some(b)] = entries {
            differing.extend(differing_keys(a, b).into_iter().cloned());
            differing.retain(|name| name != "ending" || !self.is_worded_differently());
            agreeing.extend(a.keys().filter(|name| !differing.contains(name)).cloned());
        }
        let by_ledger = !differing.is_empty();
        let is_ending = |name: &String| name == "ending";
        let stored = self.outcomes().and_then(|[a, b]| records::ending(a, b));
        if stored.is_some() && !differing.iter().any(is_ending) {
            if entries.iter().all(Option::is_some) {
                let changed = self.changed_outcomes();
                self.notes.push(format!(
                    "the ledgers agree on how the runs ended and outcome.json does not: {changed}; see `dapo verify`"
                ));
            }
            agreeing.retain(|name| !is_ending(name));
            differing.push("ending".to_string());
        }
        if differing.is_empty() {
            return None;
        }
        let remark = "only the last lines of the ledgers tell that it differs".to_string();
        let is_stored = stored.is_some();
        let unseen = differing.iter().filter(|name| !is_stored || !is_ending(name));
        let findings = unseen.map(|name| DiffFinding::unseen(name, remark.clone()));
        let findings = findings.chain(stored).collect();
        Some((first_in(steps, differing, agreeing, by_ledger), findings))
    }

    fn outcomes(&self) -> Option<[&'a Outcome; 2]> {
        let (a, b) = (self.a.records.outcome.as_ref(), self.b.records.outcome.as_ref());
        Some([a?, b?]).filter(|_| self.a.steps() == self.b.steps())
    }

    /// Formats 1 to 3 hash the sentence of an ending, and may lack what was not finite.
    fn is_worded_differently(&self) -> bool {
        self.outcomes().is_some_and(|[a, b]| {
            a.reason.is_empty() != b.reason.is_empty() && records::ending(a, b).is_none()
        })
    }

    fn changed_outcomes(&self) -> String {
        let mut changed = Vec::new();
        for (name, side) in self.sides() {
            let bound = side.components(Kind::End, side.steps()).and_then(|it| it.get("ending"));
            let outcome = side.records.outcome.as_ref();
            let again = outcome.map(|outcome| ledger::end(&side.records.evaluations, outcome));
            if again.is_some_and(|again| again.get("ending") != bound) {
                changed.push(format!("{name}'s outcome.json is not that of its ledger"));
            }
        }
        changed.join(", ")
    }

    /// Adds components that the step's own records do not show.
    pub fn add_unseen(
        &self,
        first: &FirstDifference,
        findings: &mut Vec<DiffFinding>,
    ) -> Result<(), VerificationError> {
        if !is_step(&first.component) {
            return Ok(());
        }
        let evaluation = findings.iter().position(|it| !is_step(&it.component));
        let evaluation = evaluation.map(|place| findings.remove(place));
        let shown: BTreeSet<String> = findings.iter().map(|it| it.component.clone()).collect();
        let shows_tensors = ["weights", "moments"].iter().any(|name| shown.contains(*name));
        let mut later = if shows_tensors { Vec::new() } else { self.later_tensors(first.step)? };
        // Otherwise it is unknown when the weights began to differ.
        let ledgers = self.a.has_ledger() && self.b.has_ledger();
        later.retain(|it| !ledgers || first.differing.contains(&it.component));
        let is_later = |name: &String| later.iter().any(|it| it.component == *name);
        let is_unseen = |name: &&String| !shown.contains(*name) && !is_later(name);
        for name in first.differing.iter().filter(is_unseen) {
            findings.push(DiffFinding::unseen(name, match name.as_str() {
                "gradients" | "old_log_probs" => {
                    "not stored in a run folder: the ledgers alone tell".to_string()
                }
                "weights" | "moments" => format!(
                    "the ledgers tell; the runs have no checkpoint in common from step {} on that shows it",
                    first.step
                ),
                _ => "the ledgers tell; the stored records that both have do not differ".to_string(),
            }));
        }
        findings.extend(later);
        findings.sort_by_key(|it| STEP_COMPONENTS.iter().position(|name| *name == it.component));
        findings.extend(evaluation);
        Ok(())
    }

    /// The nearest checkpoint of both runs at the step or after it.
    fn later_tensors(&self, from: u64) -> Result<Vec<DiffFinding>, VerificationError> {
        let (a, b) = (self.a.folder.checkpoint_steps()?, self.b.folder.checkpoint_steps()?);
        let common = a.into_iter().filter(|step| b.contains(step)).find(|step| *step >= from);
        let Some(step) = common else { return Ok(Vec::new()) };
        let name = format!("checkpoints/step-{step:06}");
        let mut found = weights::findings([&self.a.folder, &self.b.folder], &name)?;
        if step > from {
            let remark =
                format!("after rollout step {step}, the nearest checkpoint that both runs have");
            found.iter_mut().for_each(|finding| finding.remark = Some(remark.clone()));
        }
        Ok(found)
    }
}

fn first_in(
    step: u64,
    differing: Vec<String>,
    agreeing: Vec<String>,
    by_ledger: bool,
) -> FirstDifference {
    let component = differing[0].clone();
    FirstDifference { step, component, differing, agreeing, by_ledger, evaluation_step: None }
}

fn in_order(names: &BTreeSet<String>) -> Vec<String> {
    let known =
        STEP_COMPONENTS.iter().filter(|name| names.contains(**name)).map(|it| it.to_string());
    known.chain(names.iter().filter(|name| !is_step(name)).cloned()).collect()
}
