//! Executes challenged rollout steps and evaluations, and an early ending, from the nearest earlier checkpoint. Every
//! step on the way is compared with the ledger bit for bit. A step is *altered* if its ledger line is not what
//! executing it from the state before (a checkpoint or the step before) gives; honest steps after it are not. Executed
//! altered steps are always caught, or under `fast` arithmetic elsewhere suspected.

pub mod evaluations;

use crate::algorithm::Kl;
use crate::base::rng::{Id, stream};
use crate::base::{Purpose, files};
use crate::experiment::{Device, Grading, compare::differing_keys};
use crate::policy::checkpoint;
use crate::records::ledger::STEP_COMPONENTS;
use crate::records::{
    RolloutRow, RunFolder, RunRecords, StepMetrics, environment, run_folder::is_portable, tables,
};
use crate::task::Grader;
use crate::training::run::inputs::{self, Inputs};
use crate::training::run::rows::{rollout_rows, step_components};
use crate::training::{StepOutcome, Trainer, run};
use crate::verification::verify::{Check, Extent, VerifySubject, ending, other_sources};
use crate::verification::{Executed, Picked};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayRequest {
    /// Steps, and evaluations, to pick.
    pub steps: u64,
    /// Number in each picked evaluation.
    pub problems: u64,
    /// The reviewer's seed, unknown to the sender.
    pub challenge: u64,
}

impl ReplayRequest {
    /// Includes the run's last head: a known seed picks other steps of every run.
    fn picked<'a>(&self, head: &'a str, purpose: &[Id<'a>], all: usize, most: usize) -> Vec<usize> {
        let ids = [&[Id::from(head)], purpose].concat();
        let mut picked: Vec<usize> = (0..all).collect();
        stream(self.challenge, Purpose::Challenge, &ids).shuffle(&mut picked);
        picked.truncate(most);
        picked.sort_unstable();
        picked
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Replay {
    pub steps: u64,
    pub challenge: String,
    pub picked: Vec<u64>,
    /// Executed and compared, ascending.
    pub covered: Vec<u64>,
    pub covered_share: f64,
    pub detection: Vec<Detection>,
    pub evaluations: Executed,
    /// Executed; `None` without an early ending.
    pub ending: Option<bool>,
}

/// The probability of catching at least one of k altered steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Detection {
    /// k.
    pub altered_steps: u64,
    /// A lower bound over seeds, for steps altered before the seed was known. Steps on the way do not count.
    pub at_least: f64,
    /// Holds for the executed steps, if all sets of k steps are equally likely.
    pub uniform: f64,
}

/// For k = 1, 2, 5 and 10, up to the number of steps.
pub fn detections(steps: u64, picked: u64, covered: u64) -> Vec<Detection> {
    let detection = |altered_steps| Detection {
        altered_steps,
        at_least: 1.0 - missed(steps, picked, altered_steps),
        uniform: 1.0 - missed(steps, covered, altered_steps),
    };
    [1, 2, 5, 10].into_iter().filter(|altered| *altered <= steps).map(detection).collect()
}

/// The probability of catching altered outcomes in one evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AlteredProblems {
    /// k, altered before the challenge's seed was known.
    pub altered_problems: u64,
    /// A lower bound over the seeds.
    pub at_least: f64,
}

/// For k = 1, 5, 20, 100. `share`: executed evaluations; `evaluations`: problems of each, and those sampled again.
pub fn altered_problems(share: f64, evaluations: &[(u64, u64)]) -> Vec<AlteredProblems> {
    let largest = evaluations.iter().map(|(problems, _)| *problems).max().unwrap_or(0);
    let caught = |altered_problems: u64| {
        let each = evaluations.iter().map(|&(problems, executed)| {
            1.0 - missed(problems, executed, altered_problems.min(problems))
        });
        AlteredProblems { altered_problems, at_least: share * each.fold(1.0, f64::min) }
    };
    [1, 5, 20, 100].into_iter().filter(|altered| *altered <= largest).map(caught).collect()
}

/// C(T − n, k) / C(T, k): probability that n of T steps, drawn without replacement, miss k marked ones.
fn missed(steps: u64, drawn: u64, altered: u64) -> f64 {
    let left = steps.saturating_sub(drawn);
    (0..altered).map(|i| left.saturating_sub(i) as f64 / (steps - i) as f64).product()
}

/// Policy states to reach.
#[derive(Debug, Default)]
struct ReplayWork {
    /// Checkpoint (0: base policy) → last step.
    segments: BTreeMap<u64, u64>,
    unreachable: Vec<String>,
    evaluations: BTreeMap<u64, Vec<Picked>>,
    /// The last recorded step before an early ending.
    ending: Option<u64>,
}

impl ReplayWork {
    fn plan(
        picked: &[u64],
        evaluations: Vec<Picked>,
        ending: Option<u64>,
        kept: &BTreeSet<u64>,
        base: bool,
    ) -> Self {
        let mut work = Self::default();
        let checkpoint = |state: u64| {
            let newest = kept.range(..=state).next_back().copied();
            newest.filter(|step| *step > 0).or(base.then_some(0))
        };
        for &step in picked {
            match checkpoint(step - 1) {
                Some(start) => drop(work.segments.insert(start, step)),
                None => work.unreachable.push(format!("step {step}")),
            }
        }
        for evaluation in evaluations {
            if work.reach(evaluation.step, checkpoint) {
                work.evaluations.entry(evaluation.step).or_default().push(evaluation)
            } else {
                work.unreachable.push(evaluation.name())
            }
        }
        if let Some(last) = ending {
            if work.reach(last, checkpoint) {
                work.ending = Some(last)
            } else {
                work.unreachable.push(format!("step {}", last + 1))
            }
        }
        work
    }

    /// Returns false if rollout step `state` cannot be reached.
    fn reach(&mut self, state: u64, checkpoint: impl Fn(u64) -> Option<u64>) -> bool {
        if self.segments.iter().any(|(start, end)| (start..=end).contains(&&state)) {
            return true;
        }
        let start = checkpoint(state);
        self.segments.extend(start.map(|start| (start, state)));
        start.is_some()
    }
}

pub fn replay(
    subject: VerifySubject,
    kept: &BTreeSet<u64>,
    request: &ReplayRequest,
    watch: &mut dyn FnMut(&str),
) -> (Check, Replay) {
    let VerifySubject { folder, records, local, .. } = subject;
    let mut check = Check::new("replay");
    let (steps, picked) = (records.steps(), pick(records, request));
    let ending = Extent::of(records).ends_early.then_some(steps);
    let chosen = evaluations::pick(records, local, request);
    let work = ReplayWork::plan(&picked, chosen, ending, kept, local.base.is_some());
    for place in &work.unreachable {
        let what =
            "there is no earlier checkpoint, and the base policy is not here (--base FOLDER)";
        check.inconclusive(place, what);
    }
    let mut done = ReplayDone::default();
    match prepare(subject, kept) {
        Ok(inputs) => {
            let machine = other_machine(folder, records);
            let sources = other_sources(folder);
            let mut replayed = Replayed { subject, inputs: &inputs, machine, sources, check, done };
            for (&start, &end) in &work.segments {
                replayed.segment((start, end), &work, watch);
            }
            (check, done) = (replayed.check, replayed.done);
        }
        Err(reason) => check.inconclusive("replay", reason),
    }
    let (count, picks) = (done.covered.len() as u64, picked.len() as u64);
    let replay = Replay {
        steps,
        challenge: format!("seed {} of the reviewer", request.challenge),
        picked,
        covered_share: if steps == 0 { 0.0 } else { count as f64 / steps as f64 },
        detection: detections(steps, picks.min(count), count),
        covered: done.covered.into_iter().collect(),
        evaluations: evaluations::executed(records, done.evaluations),
        ending: ending.map(|_| done.ending),
    };
    let compared = format!(
        "{count} of {steps} rollout steps executed again, every ledger component compared bit for \
         bit; {}",
        replay.evaluations.compared()
    );
    (check.compared(compared), replay)
}

/// Ascending; the first ones of a permutation from the challenge.
fn pick(records: &RunRecords, request: &ReplayRequest) -> Vec<u64> {
    let most = usize::try_from(request.steps).unwrap_or(usize::MAX);
    let picked = request.picked(records.head(), &[], records.steps() as usize, most);
    picked.into_iter().map(|place| place as u64 + 1).collect()
}

/// Without the base policy a checkpoint has tokenizer and configuration; a KL penalty needs the base policy itself.
fn prepare(subject: VerifySubject, kept: &BTreeSet<u64>) -> Result<Inputs, String> {
    let VerifySubject { folder, records, local, .. } = subject;
    let Some(source) = local.source.clone().filter(|_| local.data.is_some()) else {
        return Err("the problems are not here (--data FOLDER)".to_string());
    };
    let mut experiment = records.experiment.clone();
    experiment.inputs.data = source;
    experiment.inputs.model = match (&local.base, kept.last()) {
        (Some(base), _) => base.clone(),
        (None, Some(step)) if experiment.dapo.kl == Kl::None {} => folder.checkpoint(*step),
        _ => return Err("the base policy is not here (--base FOLDER)".to_string()),
    };
    if experiment.reward.verifier.rule().is_none() {
        // The sender's paths and commands are never used.
        let Some(program) = local.grader.as_ref().and_then(Grader::program) else {
            return Err("a program graded the responses (--run-rewards FILE)".to_string());
        };
        experiment.reward.verifier = Grading::Program(Box::new(program.clone()));
    }
    for (name, set) in &mut experiment.evaluation.sets {
        if set.verifier.as_ref().is_some_and(|own| own.program().is_some()) {
            let here = local.grader_of(name).and_then(Grader::program);
            set.verifier = here.map(|program| Grading::Program(Box::new(program.clone())));
        }
    }
    inputs::prepare(experiment).map_err(|error| error.to_string())
}

/// Differences from the run's machine, on which bits depend outside the native engine; `None` if bits must agree.
fn other_machine(folder: &RunFolder, records: &RunRecords) -> Option<String> {
    if is_portable(&records.manifest.exactness) {
        return None;
    }
    if matches!(records.experiment.execution.device, Some(Device::Cuda(_))) {
        return Some("a graphics card, whose sums have no fixed order".to_string());
    }
    let here = environment::describe(records.experiment.execution.threads).facts;
    let Ok(there) = folder.environment() else {
        return Some("environment.json cannot be read".to_string());
    };
    let differing = environment::differing_machine(differing_keys(&here, &there.facts));
    let mut differing: Vec<String> = differing.into_iter().cloned().collect();
    let sessions = folder.sessions().unwrap_or_default();
    let changed = sessions.iter().flat_map(|session| session.changed.keys());
    let changed = environment::differing_machine(changed).into_iter();
    differing.extend(changed.map(|name| format!("{name} within the run")));
    (!differing.is_empty()).then(|| differing.join(", "))
}

#[derive(Debug, Default)]
struct ReplayDone {
    covered: BTreeSet<u64>,
    evaluations: Vec<Picked>,
    ending: bool,
}

struct Replayed<'a> {
    subject: VerifySubject<'a>,
    inputs: &'a Inputs,
    /// Differences that may matter.
    machine: Option<String>,
    sources: Option<String>,
    check: Check,
    done: ReplayDone,
}

impl Replayed<'_> {
    /// Stops at the first difference, after which the start would differ.
    fn segment(
        &mut self,
        (start, end): (u64, u64),
        work: &ReplayWork,
        watch: &mut dyn FnMut(&str),
    ) {
        let folder = self.subject.folder;
        let name = format!("checkpoints/step-{start:06}");
        let loaded = (start > 0).then(|| checkpoint::load(&folder.checkpoint(start))).transpose();
        let Some(loaded) = self.check.read(&name, loaded) else { return };
        let trainer = run::trainer(self.inputs, loaded);
        let Some(mut trainer) = self.check.read(&name, trainer) else { return };
        for state in start..=end {
            if state > start {
                watch(&format!("executing rollout step {state} again"));
                self.done.covered.insert(state);
                if !self.step(&mut trainer, state) {
                    return;
                }
            }
            for picked in work.evaluations.get(&state).into_iter().flatten() {
                // Segments may share a state.
                if !self.done.evaluations.contains(picked) {
                    watch(&format!("executing {} again", picked.name()));
                    self.evaluation(trainer.policy().model(), picked);
                    self.done.evaluations.push(picked.clone());
                }
            }
            if work.ending == Some(state) && !self.done.ending {
                watch(&format!("executing the end, rollout step {}", state + 1));
                self.done.ending = true;
                for (place, what) in ending::executed_again(self.subject, &mut trainer) {
                    self.differs(place, what);
                }
            }
        }
    }

    fn step(&mut self, trainer: &mut Trainer, step: u64) -> bool {
        let place = format!("step {step}");
        let trained = match trainer.step(&mut |_| ()) {
            Ok(StepOutcome::Trained(trained)) => Ok(trained),
            Ok(StepOutcome::Diverged(divergence)) => {
                let value = files::canonical_json_line(&divergence.not_finite);
                Err(format!("diverges here: {}", value.trim_end()))
            }
            Ok(_) => Err("finds nothing to train on here".to_string()),
            Err(error) => Err(format!("cannot be made here: {error}")),
        };
        let Some(trained) = trained.map_err(|what| self.differs(&place, what)).ok() else {
            return false;
        };
        let rows = rollout_rows(&trained);
        let metrics = StepMetrics { step, counters: trainer.counters(), metrics: trained.metrics };
        let again = step_components(&rows, &metrics, trained.components);
        let differing: Vec<&str> = STEP_COMPONENTS
            .into_iter()
            .filter(|name| again.get(*name) != self.subject.records.component(step, name))
            .collect();
        let Some(first) = differing.first() else { return true };
        let detail = match *first {
            "metrics" => self.metric(&metrics),
            "old_log_probs" | "gradients" | "weights" | "moments" => None,
            _ => self.row(step, &rows),
        };
        let detail = detail.map_or(String::new(), |detail| format!("; first in {detail}"));
        let what = format!("executed again it differs in {}{detail}", differing.join(", "));
        self.differs(&format!("{place}, component {first}"), what);
        false
    }

    /// A forgery only where the bits must agree.
    fn differs(&mut self, place: &str, mut what: String) {
        what += &self.sources.take().unwrap_or_default();
        let Some(facts) = &self.machine else { return self.check.mismatch(place, what) };
        let may = "fast arithmetic may differ here, for the run was made elsewhere";
        self.check.inconclusive(place, format!("{what}; {may} ({facts})"));
    }

    fn row(&self, step: u64, again: &[RolloutRow]) -> Option<String> {
        let stored = tables::read_rollouts(&self.subject.folder.rollouts(step)).ok()?;
        let (all, here) = (stored.len(), again.len());
        if all != here {
            return Some(format!("the number of rollouts: {all} stored, {here} here"));
        }
        let (number, (old, new)) =
            stored.iter().zip(again).enumerate().find(|(_, (a, b))| a != b)?;
        let token = old.tokens.iter().zip(&new.tokens).position(|(a, b)| a != b);
        let column = match (old.problem == new.problem, token) {
            (false, _) => format!("the problem: {} stored, {} here", old.problem, new.problem),
            (true, Some(at)) => {
                format!("token {at}: {} stored, {} here", old.tokens[at], new.tokens[at])
            }
            (true, None) => "log-probs, reward or advantage".to_string(),
        };
        Some(format!("row {number} (problem {}, sample {}): {column}", old.problem, old.sample))
    }

    fn metric(&self, again: &StepMetrics) -> Option<String> {
        let stored = self.subject.records.line(again.step)?;
        let (name, value) =
            again.metrics.iter().find(|(name, value)| stored.metrics.get(*name) != Some(value))?;
        let stored = files::canonical_json_line(&stored.metrics.get(name));
        Some(format!("{name}: {stored} stored, {value} here"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(picked: &[u64], states: &[u64], base: bool) -> ReplayWork {
        let evaluation =
            |&step: &u64| Picked { set: "dev".to_string(), step, problems: Vec::new() };
        let kept = BTreeSet::from([5, 10, 20]);
        ReplayWork::plan(picked, states.iter().map(evaluation).collect(), None, &kept, base)
    }

    #[test]
    fn a_known_seed_picks_other_steps_of_another_run() {
        let request = ReplayRequest { steps: 4, problems: 1, challenge: 90210 };
        let picked = |head: &str| request.picked(head, &[], 40, 4);
        assert_eq!(picked("a"), picked("a"));
        assert_ne!(picked("a"), picked("b"));
    }

    #[test]
    fn each_picked_step_is_reached_from_the_nearest_earlier_checkpoint_in_one_pass() {
        let work = plan(&[3, 5, 6, 9, 20, 31], &[], true);
        assert_eq!(work.segments, BTreeMap::from([(0, 5), (5, 9), (10, 20), (20, 31)]));
        assert_eq!(work.unreachable, [""; 0]);
        let work = plan(&[3, 6], &[], false);
        assert_eq!(work.segments, BTreeMap::from([(5, 6)]));
        assert_eq!(work.unreachable, ["step 3"]);
    }

    #[test]
    fn evaluations_are_made_on_the_way_or_from_the_nearest_checkpoint() {
        let work = plan(&[7], &[0, 6, 8, 20, 22], true);
        assert_eq!(work.segments, BTreeMap::from([(0, 0), (5, 8), (20, 22)]));
        assert_eq!(work.evaluations.keys().copied().collect::<Vec<u64>>(), [0, 6, 8, 20, 22]);
        let work = plan(&[], &[0, 5], false);
        assert_eq!(work.segments, BTreeMap::from([(5, 5)]));
        assert_eq!(work.unreachable, ["evaluations/dev-step-000000.parquet"]);
    }

    #[test]
    fn the_chance_is_the_hypergeometric_one_counted_by_hand() {
        // 10 steps, 3 executed. C(7, 2) / C(10, 2) = 21 / 45; C(7, 5) / C(10, 5) = 21 / 252.
        let found = detections(10, 3, 3);
        let expected = [(1, 0.3), (2, 1.0 - 21.0 / 45.0), (5, 1.0 - 21.0 / 252.0), (10, 1.0)];
        for (detection, (k, chance)) in found.iter().zip(expected) {
            assert_eq!(detection.altered_steps, k);
            assert!((detection.uniform - chance).abs() < 1e-12, "{detection:?}");
            assert!((detection.at_least - chance).abs() < 1e-12, "{detection:?}");
        }
        assert_eq!(found.len(), 4);
        // Half of the evaluations; of the larger one 4 of 20 problems: C(16, 5) / C(20, 5).
        let found = altered_problems(0.5, &[(20, 4), (4, 2)]);
        let missed = 16.0 * 15.0 * 14.0 * 13.0 * 12.0 / (20.0 * 19.0 * 18.0 * 17.0 * 16.0);
        let expected = [(1, 0.5 * 0.2), (5, 0.5 * (1.0 - missed)), (20, 0.5)];
        assert_eq!(found.len(), expected.len());
        for (found, (k, chance)) in found.iter().zip(expected) {
            assert_eq!(found.altered_problems, k);
            assert!((found.at_least - chance).abs() < 1e-12, "{found:?}");
        }
        assert_eq!(detections(2, 1, 2).len(), 2);
        assert_eq!(detections(2, 1, 2)[0].uniform, 1.0);
    }
}
