//! The hash chain of a run: a line for inputs, for each rollout step, and for the ending. A line has a
//! digest of each component and a head over the head before it, so the last head binds the whole run.
//!
//! It has no times and no facts about the machine. Values have one form in bytes: counts and lengths are
//! little-endian u64, text and lists are preceded by their length, reals are little-endian f64 (an f32
//! log-prob is widened, which is exact). Weights, moments and gradients are hashed as f32, on a card by [`on_a_card`].
//!
//! A forger who writes every line anew gets a chain that holds: only computing a run again checks its computation.

use crate::base::files::{self, FileError};
use crate::experiment::{Device, Experiment};
use crate::records::{EvaluationRecord, Manifest, Outcome, RolloutRow, RunFolder, StepMetrics};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

pub const FILE: &str = "ledger.jsonl";

/// In the order of computation. The table of rollouts shows the first six.
pub const STEP_COMPONENTS: [&str; 11] = [
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

pub type Components = BTreeMap<String, String>;

pub type Tensors = BTreeMap<String, Vec<f32>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The first line: inputs.
    Genesis,
    RolloutStep,
    /// The last line of a finished run: evaluations and ending.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerEntry {
    pub kind: Kind,
    /// From 1; 0 for the genesis, the last step for the end.
    pub step: u64,
    /// SHA-256, hexadecimal.
    pub components: Components,
    /// SHA-256, hexadecimal, of the head before and of this line without its head.
    pub head: String,
}

impl LedgerEntry {
    /// `previous`: the head of the line before, empty at the genesis.
    pub fn after(previous: &str, kind: Kind, step: u64, components: Components) -> Self {
        let content = json!({"kind": kind, "step": step, "components": components});
        let line = previous.to_string() + &files::canonical_json_line(&content);
        Self { kind, step, head: files::sha256(line.as_bytes()), components }
    }

    /// The head fits this content after `previous`.
    pub fn follows(&self, previous: &str) -> bool {
        Self::after(previous, self.kind, self.step, self.components.clone()).head == self.head
    }

    pub fn binds(&self, line: &StepMetrics) -> bool {
        self.step == line.step && self.components.get("metrics") == Some(&metrics(line))
    }

    /// Components of a table of rollouts that this line has otherwise.
    pub fn unlike(&self, rows: &[RolloutRow]) -> Vec<String> {
        let differs = |(name, digest): &(String, String)| self.components.get(name) != Some(digest);
        rollouts(rows).into_iter().filter(differs).map(|(name, _)| name).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("the ledger is empty")]
    Empty,
    #[error("line {line}: its head does not follow from the line before and its content")]
    Head { line: usize },
    #[error("line {line}: {kind:?} of step {step} cannot stand here")]
    Place { line: usize, kind: Kind, step: u64 },
}

/// The chain has a genesis, rollout steps 1, 2, 3, … and at most one end. Returns the number of steps.
pub fn check_chain(entries: &[LedgerEntry]) -> Result<u64, Broken> {
    match chained(entries) {
        (steps, None) => Ok(steps),
        (_, Some(broken)) => Err(broken),
    }
}

/// The number of steps up to which the chain holds, and where it breaks.
pub fn chained(entries: &[LedgerEntry]) -> (u64, Option<Broken>) {
    let mut previous = "";
    let mut steps = 0;
    for (index, entry) in entries.iter().enumerate() {
        let line = index + 1;
        let in_place = match entry.kind {
            Kind::Genesis => index == 0 && entry.step == 0,
            Kind::RolloutStep => index > 0 && entry.step == index as u64,
            Kind::End => index > 0 && line == entries.len() && entry.step == index as u64 - 1,
        };
        if !entry.follows(previous) {
            return (steps, Some(Broken::Head { line }));
        }
        if !in_place {
            let LedgerEntry { kind, step, .. } = *entry;
            return (steps, Some(Broken::Place { line, kind, step }));
        }
        steps += u64::from(entry.kind == Kind::RolloutStep);
        previous = &entry.head;
    }
    (steps, entries.is_empty().then_some(Broken::Empty))
}

pub fn append(
    folder: &RunFolder,
    previous: &str,
    (kind, step): (Kind, u64),
    components: Components,
) -> Result<LedgerEntry, FileError> {
    let entry = LedgerEntry::after(previous, kind, step, components);
    files::append_line(&folder.path(FILE), &entry)?;
    Ok(entry)
}

/// Everything that the run's key binds.
pub fn genesis(manifest: &Manifest, experiment: &Experiment) -> LedgerEntry {
    let mut components = manifest.inputs.clone();
    components.insert("arm".to_string(), manifest.arm_sha256.clone());
    let number = |number: u64| {
        let mut digest = Digest::default();
        digest.count(number);
        digest.finish()
    };
    components.insert("seed".to_string(), number(experiment.execution.seed));
    // Format 1 came first and does not name itself.
    if experiment.record_format() > 1 {
        components.insert("format".to_string(), number(experiment.record_format()));
    }
    // Settings that cannot change a bit are outside the chain.
    let execution = files::canonical_json_line(&experiment.bound_execution());
    components.insert("execution".to_string(), files::sha256(execution.as_bytes()));
    LedgerEntry::after("", Kind::Genesis, 0, components)
}

/// `problems`, `tokens`, `sampler_log_probs`, `rewards`, `kept_groups` and `advantages`, in the table's order.
pub fn rollouts(rows: &[RolloutRow]) -> Components {
    let mut digests: [Digest; 6] = Default::default();
    let [problems, tokens, log_probs, rewards, kept_groups, advantages] = &mut digests;
    for digest in [&mut *tokens, &mut *log_probs, &mut *rewards, &mut *advantages] {
        digest.count(rows.len() as u64);
    }
    let groups: Vec<&[RolloutRow]> = rows.chunk_by(|a, b| a.group == b.group).collect();
    problems.count(groups.len() as u64);
    kept_groups.count(groups.len() as u64);
    for (group, first) in groups.iter().filter_map(|group| Some((group, group.first()?))) {
        for text in [&first.problem, &first.question, &first.answer] {
            problems.text(text);
        }
        problems.count(u64::from(first.attempt));
        problems.count(group.len() as u64);
        kept_groups.count(u64::from(first.trained));
    }
    for row in rows {
        tokens.counts(row.tokens.iter().map(|token| u64::from(*token)));
        tokens.count(u64::from(row.truncated));
        log_probs.reals(row.rollout_log_probs.iter().copied());
        rewards.count(u64::from(row.is_correct));
        rewards.count(u64::from(row.prediction.is_some()));
        rewards.text(row.prediction.as_deref().unwrap_or_default());
        rewards.real(row.correctness_reward);
        rewards.real(row.overlong_penalty);
        rewards.real(row.reward);
        advantages.real(row.advantage);
    }
    STEP_COMPONENTS.into_iter().map(String::from).zip(digests.map(Digest::finish)).collect()
}

/// `old_log_probs`: the training forward at θ_old, a list for each row, in nats.
pub fn log_probs<T: Copy + Into<f64>>(rows: &[Vec<T>]) -> String {
    let mut digest = Digest::default();
    digest.count(rows.len() as u64);
    for row in rows {
        digest.reals(row.iter().map(|value| (*value).into()));
    }
    digest.finish()
}

/// Tensors in order of names, one value at a time, since a policy may be large: `weights`, or an update's gradient
/// before clipping.
pub fn tensors<'a, V: AsRef<[f32]>>(
    tensors: impl IntoIterator<Item = (&'a String, V), IntoIter: ExactSizeIterator>,
) -> String {
    let mut digest = Digest::default();
    digest.tensors(tensors);
    digest.finish()
}

/// `moments`: AdamW's number of updates, first and second moments, one value at a time.
pub fn moments<'a, V: AsRef<[f32]>>(
    updates: u64,
    moments: [impl IntoIterator<Item = (&'a String, V), IntoIter: ExactSizeIterator>; 2],
) -> String {
    let mut digest = Digest::default();
    digest.count(updates);
    moments.into_iter().for_each(|moment| digest.tensors(moment));
    digest.finish()
}

/// How the ledger has the numbers of tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorDigest {
    Bytes,
    /// Sums that a card computes: [`on_a_card`].
    OnACard,
}

impl TensorDigest {
    /// As this harness wrote the run, or another trainer's files were imported.
    pub fn of(experiment: &Experiment) -> Self {
        match experiment.execution.device {
            Some(Device::Cuda(_)) if experiment.engine.is_native() => Self::OnACard,
            _ => Self::Bytes,
        }
    }
}

/// What a card says of tensors: names with their counts of numbers, and sums over all of them.
#[derive(Debug)]
pub struct Summed<'a> {
    pub counts: Vec<(&'a String, usize)>,
    pub sums: Vec<u64>,
}

/// As [`tensors`], on a card. Copying 0.5 GB to the processor and hashing it there took most of an update's time.
pub fn on_a_card(summed: &Summed) -> String {
    let mut digest = Digest::default();
    digest.summed(summed);
    digest.finish()
}

/// As [`moments`], of a policy on a card.
pub fn moments_on_a_card(updates: u64, moments: &[Summed; 2]) -> String {
    let mut digest = Digest::default();
    digest.count(updates);
    moments.iter().for_each(|moment| digest.summed(moment));
    digest.finish()
}

/// `gradients`, over the updates of a step.
pub fn sequence(digests: &[String]) -> String {
    let mut all = Digest::default();
    all.count(digests.len() as u64);
    digests.iter().for_each(|digest| all.text(digest));
    all.finish()
}

/// `metrics`, with the step's clocks.
pub fn metrics(line: &StepMetrics) -> String {
    let mut digest = Digest::default();
    let clocks = line.counters;
    digest.counts([line.step, clocks.generation_rounds, clocks.rollout_steps, clocks.updates]);
    digest.count(line.metrics.len() as u64);
    for (name, value) in &line.metrics {
        digest.text(name);
        digest.real(*value);
    }
    digest.finish()
}

/// `evaluations`: every record in order; `ending`: with its value and clocks.
pub fn end(evaluations: &[EvaluationRecord], outcome: &Outcome) -> Components {
    let mut records = Digest::default();
    records.count(evaluations.len() as u64);
    evaluations.iter().for_each(|record| records.text(&files::canonical_json_line(record)));
    let mut ending = Digest::default();
    ending.text(&files::canonical_json_line(&outcome.ending));
    match outcome.reason.as_str() {
        "" => ending.text(&files::canonical_json_line(&outcome.not_finite)),
        sentence_of_formats_1_to_3 => ending.text(sentence_of_formats_1_to_3),
    }
    ending.text(&files::canonical_json_line(&outcome.counters));
    [("evaluations", records), ("ending", ending)]
        .map(|(name, digest)| (name.to_string(), digest.finish()))
        .into()
}

impl RunFolder {
    /// [`check_chain`] tells whether the chain holds.
    pub fn ledger(&self) -> Result<Vec<LedgerEntry>, FileError> {
        files::read_lines(&self.inside(FILE)?)
    }
}

/// Values have one form in bytes.
#[derive(Debug, Clone, Default)]
struct Digest(Sha256);

impl Digest {
    fn count(&mut self, count: u64) {
        self.0.update(count.to_le_bytes());
    }

    fn counts(&mut self, counts: impl IntoIterator<Item = u64, IntoIter: ExactSizeIterator>) {
        let counts = counts.into_iter();
        self.count(counts.len() as u64);
        counts.for_each(|count| self.count(count));
    }

    fn real(&mut self, value: f64) {
        self.0.update(value.to_le_bytes());
    }

    fn reals(&mut self, values: impl ExactSizeIterator<Item = f64>) {
        self.count(values.len() as u64);
        values.for_each(|value| self.real(value));
    }

    fn text(&mut self, text: &str) {
        self.count(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    fn tensors<'a, V: AsRef<[f32]>>(
        &mut self,
        tensors: impl IntoIterator<Item = (&'a String, V), IntoIter: ExactSizeIterator>,
    ) {
        let tensors = tensors.into_iter();
        self.count(tensors.len() as u64);
        // Fits into a core's first cache.
        const PART: usize = 2048;
        let mut bytes = [0; 4 * PART];
        for (name, values) in tensors {
            let values = values.as_ref();
            self.text(name);
            self.count(values.len() as u64);
            for values in values.chunks(PART) {
                let (places, _) = bytes.as_chunks_mut::<4>();
                places.iter_mut().zip(values).for_each(|(place, x)| *place = x.to_le_bytes());
                self.0.update(&bytes[..4 * values.len()]);
            }
        }
    }

    fn summed(&mut self, Summed { counts, sums }: &Summed) {
        self.count(counts.len() as u64);
        for (name, count) in counts {
            self.text(name);
            self.count(*count as u64);
        }
        if !sums.is_empty() {
            self.counts(sums.iter().copied());
        }
    }

    fn finish(self) -> String {
        files::hexadecimal(&self.0.finalize())
    }
}

#[cfg(test)]
mod tests;
