//! The hash chain of a run: one line for its inputs, one for each rollout step, one for its ending.
//! Each line has a digest for each component and a head over the head before it. So the last head
//! binds the whole run: nobody can change, leave out or move a line unseen.
//!
//! It has no times and no facts about the machine. Every value has one form in bytes: counts and
//! lengths are little-endian u64, text and lists are preceded by their length, reals are the
//! little-endian bits of an f64 (an f32 that stands for a log-prob is widened, which is exact).
//! Weights, moments and gradients are stored as f32 and hashed as f32.
//!
//! A forger who writes every line anew gets a chain that holds. Only computing a run again checks
//! what its chain says of the computation.

use crate::base::files;
use crate::experiment::Experiment;
use crate::records::{EvaluationRecord, Manifest, Outcome, RolloutRow, RunFolder, StepMetrics};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

/// The ledger's name in a run folder.
pub const FILE: &str = "ledger.jsonl";

/// Components of a rollout step, in the order in which they are computed. The first six are those
/// that the table of rollouts shows.
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

/// Digests by the name of what they are of.
pub type Components = BTreeMap<String, String>;

pub type Tensors = BTreeMap<String, Vec<f32>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// What went in. The first line.
    Genesis,
    RolloutStep,
    /// The evaluations and the ending. The last line of a finished run.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LedgerEntry {
    pub kind: Kind,
    /// Rollout step, from 1; 0 for the genesis, the last step for the end.
    pub step: u64,
    /// Component → SHA-256, hexadecimal.
    pub components: Components,
    /// SHA-256 of the head before and of this line without its head, hexadecimal.
    pub head: String,
}

/// What a head is over, beside the head before it.
#[derive(Serialize)]
struct LedgerContent<'a> {
    kind: Kind,
    step: u64,
    components: &'a Components,
}

impl LedgerEntry {
    /// The line that follows on `previous`, the head of the line before (empty at the genesis).
    pub fn after(previous: &str, kind: Kind, step: u64, components: Components) -> Self {
        let content = LedgerContent { kind, step, components: &components };
        let line = previous.to_string() + &files::canonical_json_line(&content);
        Self { kind, step, head: files::sha256(line.as_bytes()), components }
    }

    /// Whether the head is that of this content after `previous`.
    pub fn follows(&self, previous: &str) -> bool {
        let again = Self::after(previous, self.kind, self.step, self.components.clone());
        again.head == self.head
    }
}

/// Where a chain does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    #[error("the ledger is empty")]
    Empty,
    #[error("line {line}: its head does not follow from the line before and its content")]
    Head { line: usize },
    #[error("line {line}: {kind:?} of step {step} cannot stand here")]
    Place { line: usize, kind: Kind, step: u64 },
}

/// Checks that the lines are a genesis, the rollout steps 1, 2, 3, … and at most one end, each
/// chained to the one before. Returns the number of rollout steps.
pub fn check_chain(entries: &[LedgerEntry]) -> Result<u64, Broken> {
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
            return Err(Broken::Head { line });
        }
        if !in_place {
            return Err(Broken::Place { line, kind: entry.kind, step: entry.step });
        }
        steps += u64::from(entry.kind == Kind::RolloutStep);
        previous = &entry.head;
    }
    if entries.is_empty() { Err(Broken::Empty) } else { Ok(steps) }
}

/// Appends a line to a run's ledger and returns it.
pub fn append(
    folder: &RunFolder,
    previous: &str,
    (kind, step): (Kind, u64),
    components: Components,
) -> Result<LedgerEntry, files::FileError> {
    let entry = LedgerEntry::after(previous, kind, step, components);
    files::append_line(&folder.path(FILE), &entry)?;
    Ok(entry)
}

/// The first line of a run: everything that its key binds.
pub fn genesis(manifest: &Manifest, experiment: &Experiment) -> LedgerEntry {
    let mut components = manifest.inputs.clone();
    components.insert("arm".to_string(), manifest.arm_sha256.clone());
    let number = |number: u64| {
        let mut digest = Digest::default();
        digest.count(number);
        digest.finish()
    };
    components.insert("seed".to_string(), number(experiment.execution.seed));
    // Format 1 came before there was another, and its first line does not say it.
    if experiment.record_format() > 1 {
        components.insert("format".to_string(), number(experiment.record_format()));
    }
    // Settings that cannot change a bit are attested beside the chain.
    let execution = files::canonical_json_line(&experiment.bound_execution());
    components.insert("execution".to_string(), files::sha256(execution.as_bytes()));
    LedgerEntry::after("", Kind::Genesis, 0, components)
}

/// The components that a step's table of rollouts shows: `problems`, `tokens`,
/// `sampler_log_probs`, `rewards`, `kept_groups` and `advantages`, over all rollouts in the
/// table's order.
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
        rewards.optional_text(row.prediction.as_deref());
        rewards.real(row.correctness_reward);
        rewards.real(row.overlong_penalty);
        rewards.real(row.reward);
        advantages.real(row.advantage);
    }
    let names = ["problems", "tokens", "sampler_log_probs", "rewards", "kept_groups", "advantages"];
    names.into_iter().map(String::from).zip(digests.map(Digest::finish)).collect()
}

/// `old_log_probs`: the training forward at θ_old, one list for each row of the batch, in nats.
pub fn log_probs<T: Copy + Into<f64>>(rows: &[Vec<T>]) -> String {
    let mut digest = Digest::default();
    digest.count(rows.len() as u64);
    for row in rows {
        digest.reals(row.iter().map(|value| (*value).into()));
    }
    digest.finish()
}

/// Tensors in the order of their names: `weights`, or the gradient of one update before
/// clipping.
pub fn tensors(tensors: &Tensors) -> String {
    each_tensor(tensors.iter())
}

/// As [`tensors`], of values that are made one after another: a policy's may be large.
pub fn each_tensor<'a, V: AsRef<[f32]>>(
    tensors: impl ExactSizeIterator<Item = (&'a String, V)>,
) -> String {
    let mut digest = Digest::default();
    digest.tensors(tensors);
    digest.finish()
}

/// `moments`: AdamW's number of updates, first and second moments.
pub fn moments(updates: u64, first: &Tensors, second: &Tensors) -> String {
    each_moment(updates, [first.iter(), second.iter()])
}

/// As [`moments`], of values that are made one after another.
pub fn each_moment<'a, V: AsRef<[f32]>>(
    updates: u64,
    moments: [impl ExactSizeIterator<Item = (&'a String, V)>; 2],
) -> String {
    let mut digest = Digest::default();
    digest.count(updates);
    moments.into_iter().for_each(|moment| digest.tensors(moment));
    digest.finish()
}

/// One digest over several in their order: `gradients`, over the updates of a step.
pub fn sequence(digests: &[String]) -> String {
    let mut all = Digest::default();
    all.count(digests.len() as u64);
    digests.iter().for_each(|digest| all.text(digest));
    all.finish()
}

/// `metrics`: a step's clocks and metrics.
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

/// The components of the last line: `evaluations`, every record in its order, and `ending`: how the
/// run ended, with which value, and its clocks.
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
    /// `ledger.jsonl`, in order. [`check_chain`] tells whether it holds.
    pub fn ledger(&self) -> Result<Vec<LedgerEntry>, files::FileError> {
        files::read_lines(&self.inside(FILE)?)
    }
}

/// SHA-256 over values that have one way to be written as bytes.
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

    fn optional_text(&mut self, text: Option<&str>) {
        self.count(u64::from(text.is_some()));
        self.text(text.unwrap_or_default());
    }

    fn tensors<'a, V: AsRef<[f32]>>(
        &mut self,
        tensors: impl ExactSizeIterator<Item = (&'a String, V)>,
    ) {
        self.count(tensors.len() as u64);
        // A part at a time, which a core's first cache holds.
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

    fn finish(self) -> String {
        files::hexadecimal(&self.0.finalize())
    }
}

#[cfg(test)]
mod tests;
