//! Continues an interrupted evaluation: outcomes are kept as JSON lines, and draws depend on problem and sample only.

use crate::base::files::{self, foreign};
use crate::policy::Qwen2;
use crate::records::{Counters, EvaluationRecord, tables, tables::OutcomeRecord};
use crate::task::{Grader, Tokenizer, data};
use crate::training::{Protocol, TrainingError, evaluation, evaluation::Set};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Larger parts waste less: the last responses of a part leave most of the sampler's rows empty.
const BATCHES_OF_A_PART: u64 = 4;

const PARTIAL: &str = "partial.jsonl";

#[derive(Debug, Serialize, Deserialize)]
enum ResumableLine {
    /// The first line: SHA-256 of what is evaluated and how.
    Key(String),
    Outcome(OutcomeRecord),
    PartEnds {},
}

/// As [`evaluation::outcomes`], but appends each part's outcomes to `kept` and uses those that it holds under the same
/// `key`. `None` once `is_stopped`, asked before each part, returns true. Errors: a file of another key.
pub fn outcomes(
    model: &Qwen2,
    tokenizer: &Tokenizer,
    (protocol, grader): (&Protocol, &Grader),
    set: Set,
    (kept, key): (&Path, &str),
    is_stopped: &dyn Fn() -> bool,
    mut progress: impl FnMut(usize, usize),
) -> Result<Option<Vec<OutcomeRecord>>, TrainingError> {
    let mut outcomes = begun(kept, key)?;
    // Drops everything after the last whole part.
    let first = std::iter::once(ResumableLine::Key(key.to_string()));
    files::write_lines(kept, &first.chain(part_of(&outcomes)).collect::<Vec<_>>())?;
    let total = set.problems.len() * set.samples as usize;
    let part = (BATCHES_OF_A_PART * protocol.batch_rows).div_ceil(set.samples.max(1)) as usize;
    let done = outcomes.len() / set.samples.max(1) as usize;
    progress(outcomes.len(), total);
    for problems in set.problems[done.min(set.problems.len())..].chunks(part.max(1)) {
        if is_stopped() {
            return Ok(None);
        }
        let before = outcomes.len();
        let part = Set { problems, ..set };
        let of_part =
            evaluation::outcomes(model, tokenizer, (protocol, grader), part, |done, _| {
                progress(before + done, total);
            })?;
        files::append_lines(kept, &part_of(&of_part))?;
        outcomes.extend(of_part);
    }
    Ok(Some(outcomes))
}

/// What is evaluated and how: policy and tokenizer (`identity`, an object), protocol, problems and grader.
pub fn key(
    identity: &Value,
    (protocol, grader): (&Protocol, &Grader),
    set: Set,
) -> Result<Value, TrainingError> {
    let mut key = identity.clone();
    key["protocol"] = json!(protocol);
    key["problems"] = json!(data::digest(set.problems));
    key["samples"] = json!(set.samples);
    let program = grader.inputs()?;
    if !program.is_empty() {
        key["program"] = json!(program);
    }
    Ok(key)
}

pub type Evaluated = (EvaluationRecord, Vec<OutcomeRecord>);

/// What an earlier command with the same `key` wrote: `STEM.parquet`, and `STEM.json` with the key. Errors:
/// files of another key, or of something else, that an evaluation would replace.
pub fn kept(stem: &Path, key: &Value) -> Result<Option<Evaluated>, TrainingError> {
    let [stated, table] = ["json", "parquet"].map(|kind| stem.with_added_extension(kind));
    let other = |path: &Path, what: String| {
        let reason = format!("holds {what}, which this one would replace; choose another --out");
        Err(TrainingError::Folder { folder: path.to_path_buf(), reason })
    };
    if files::kind(&stated)?.is_none() {
        let partial = stem.with_added_extension(PARTIAL);
        if files::kind(&partial)?.is_none() && files::kind(&table)?.is_some() {
            return other(&table, "something else than an evaluation that was begun here".into());
        }
        begun(&partial, &digest(key))?;
        return Ok(None);
    }
    let mut record: Value = files::read_json(&stated).unwrap_or_default();
    let Some(known) = record.as_object_mut().and_then(|record| record.remove("key")) else {
        let what = "something else, or an evaluation that states neither policy nor settings";
        return other(&stated, what.into());
    };
    if known != *key {
        let names = differing(&known, key).join(", ");
        return other(&stated, format!("an evaluation that differs in {names}"));
    }
    let damaged = |reason| TrainingError::Folder { folder: stated.clone(), reason };
    let record: EvaluationRecord = serde_json::from_value(record)
        .map_err(|error| damaged(format!("is damaged: {error}; delete it and evaluate again")))?;
    if files::sha256_file(&table)? != record.outcomes_sha256 {
        let reason = "does not fit the table beside it; delete both and evaluate again";
        return Err(damaged(reason.to_string()));
    }
    Ok(Some((record, tables::read_outcomes(&table)?)))
}

fn differing(known: &Value, own: &Value) -> Vec<String> {
    let [known, own] = [known, own].map(|key| {
        let mut flat = key.as_object().cloned().unwrap_or_default();
        if let Some(Value::Object(protocol)) = flat.remove("protocol") {
            flat.extend(protocol);
        }
        flat
    });
    let names: BTreeSet<&String> = known.keys().chain(own.keys()).collect();
    names.into_iter().filter(|name| known.get(*name) != own.get(*name)).cloned().collect()
}

fn digest(key: &Value) -> String {
    files::sha256(files::canonical_json_line(key).as_bytes())
}

/// Evaluates a set into `STEM.parquet` and `STEM.json`, and `STEM.partial.jsonl` until then. What is begun there
/// goes on under the same [`key`]. `counters` are those of the policy.
/// Errors: a prompt or a policy that cannot be used, and a file that cannot be written.
pub fn evaluate_into(
    stem: &Path,
    (key, counters): (&Value, Counters),
    (model, tokenizer): (&Qwen2, &Tokenizer),
    (protocol, grader): (&Protocol, &Grader),
    set: Set,
    is_stopped: &dyn Fn() -> bool,
    progress: impl FnMut(usize, usize),
) -> Result<Option<Evaluated>, TrainingError> {
    let (partial, digest) = (stem.with_added_extension(PARTIAL), digest(key));
    let begun = (partial.as_path(), digest.as_str());
    let outcomes =
        outcomes(model, tokenizer, (protocol, grader), set, begun, is_stopped, progress)?;
    let Some(outcomes) = outcomes else { return Ok(None) };
    if let Err(batch) = grader.close(&format!("the evaluation of {}", set.name)) {
        files::remove_file(&partial)?;
        return Err(batch.into());
    }
    let path = stem.with_added_extension("parquet");
    tables::write_outcomes(&path, &outcomes)?;
    let record = evaluation::record(set, counters, &outcomes, files::sha256_file(&path)?)?;
    let mut stated = json!(record);
    stated["key"] = key.clone();
    files::write_json(&stem.with_added_extension("json"), &stated)?;
    files::remove_file(&partial)?;
    Ok(Some((record, outcomes)))
}

fn part_of(outcomes: &[OutcomeRecord]) -> Vec<ResumableLine> {
    let lines = outcomes.iter().cloned().map(ResumableLine::Outcome);
    lines.chain([ResumableLine::PartEnds {}]).collect()
}

/// Whole parts under this key. A killed session may have left part of a line.
fn begun(kept: &Path, key: &str) -> Result<Vec<OutcomeRecord>, TrainingError> {
    if !kept.exists() {
        return Ok(Vec::new());
    }
    let (file, size) = foreign::open_regular(kept)?;
    let (mut outcomes, mut part, mut known) = (Vec::new(), Vec::new(), None);
    let mut take = |line: ResumableLine| match line {
        ResumableLine::Key(of) => known = Some(of),
        ResumableLine::Outcome(outcome) => part.push(outcome),
        ResumableLine::PartEnds {} => outcomes.append(&mut part),
    };
    let mut is_whole = true;
    foreign::each_line(kept, io::BufReader::new(file), foreign::DATA, |number, line| {
        match files::parse_line(kept, number, line) {
            Ok(Some(line)) if is_whole => take(line),
            _ => is_whole = false,
        }
        Ok::<(), files::FileError>(())
    })?;
    if size > 0 && known.as_deref() != Some(key) {
        let reason = "holds an interrupted evaluation of another policy, of other problems or with other settings: its \
                      own command continues it; delete the file, or choose another --out";
        return Err(TrainingError::Folder { folder: kept.to_path_buf(), reason: reason.into() });
    }
    Ok(outcomes)
}
