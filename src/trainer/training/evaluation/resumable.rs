//! Continues an interrupted evaluation: outcomes are kept as JSON lines, and draws depend on problem and sample only.

use crate::base::files::{self, foreign};
use crate::policy::Qwen2;
use crate::records::{Counters, EvaluationRecord, tables, tables::OutcomeRecord};
use crate::task::{Grader, Tokenizer, data};
use crate::training::{Protocol, TrainingError, evaluation, evaluation::Set};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io;
use std::path::Path;

/// Larger parts waste less: the last responses of a part leave most of the sampler's rows empty.
const BATCHES_OF_A_PART: u64 = 4;

#[derive(Debug, Serialize, Deserialize)]
enum ResumableLine {
    /// The first line: SHA-256 of what is evaluated and how.
    Key(String),
    Outcome(OutcomeRecord),
    PartEnds {},
}

/// As [`evaluation::outcomes`], but appends each part's outcomes to `kept` and uses those that it holds under the same
/// `key`; another key starts anew. `None` once `is_stopped`, asked before each part, returns true.
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
        let made = evaluation::outcomes(model, tokenizer, (protocol, grader), part, |done, _| {
            progress(before + done, total);
        })?;
        files::append_lines(kept, &part_of(&made))?;
        outcomes.extend(made);
    }
    Ok(Some(outcomes))
}

/// Evaluates a set into `folder`: NAME.parquet and NAME.json, and NAME.partial.jsonl until then. What is begun there
/// goes on under the same `identity` (an object: policy and tokenizer), protocol and problems.
/// Errors: a prompt or a policy that cannot be used, and a file that cannot be written.
pub fn evaluate_into(
    folder: &Path,
    identity: &Value,
    (model, tokenizer): (&Qwen2, &Tokenizer),
    (protocol, grader): (&Protocol, &Grader),
    set: Set,
    is_stopped: &dyn Fn() -> bool,
    progress: impl FnMut(usize, usize),
) -> Result<Option<(EvaluationRecord, Vec<OutcomeRecord>)>, TrainingError> {
    let mut key = identity.clone();
    key["protocol"] = json!(protocol);
    key["problems"] = json!(data::digest(set.problems));
    key["samples"] = json!(set.samples);
    let program = grader.inputs()?;
    if !program.is_empty() {
        key["program"] = json!(program);
    }
    let key = files::sha256(files::canonical_json_line(&key).as_bytes());
    let kept = folder.join(format!("{}.partial.jsonl", set.name));
    let begun = (kept.as_path(), key.as_str());
    let outcomes =
        outcomes(model, tokenizer, (protocol, grader), set, begun, is_stopped, progress)?;
    let Some(outcomes) = outcomes else { return Ok(None) };
    let path = folder.join(format!("{}.parquet", set.name));
    tables::write_outcomes(&path, &outcomes)?;
    let sha256 = files::sha256_file(&path)?;
    let record = evaluation::record(set, Counters::default(), &outcomes, sha256)?;
    files::write_json(&folder.join(format!("{}.json", set.name)), &record)?;
    files::remove_file(&kept)?;
    Ok(Some((record, outcomes)))
}

fn part_of(outcomes: &[OutcomeRecord]) -> Vec<ResumableLine> {
    let lines = outcomes.iter().cloned().map(ResumableLine::Outcome);
    lines.chain([ResumableLine::PartEnds {}]).collect()
}

/// Whole parts under this key. A killed session may have left part of a line.
fn begun(kept: &Path, key: &str) -> Result<Vec<OutcomeRecord>, files::FileError> {
    if !kept.exists() {
        return Ok(Vec::new());
    }
    let (file, _size) = foreign::open_regular(kept)?;
    let (mut outcomes, mut part, mut is_same) = (Vec::new(), Vec::new(), false);
    let mut take = |line: ResumableLine| match line {
        ResumableLine::Key(of) => is_same = of == key,
        ResumableLine::Outcome(outcome) => part.push(outcome),
        ResumableLine::PartEnds {} if is_same => outcomes.append(&mut part),
        ResumableLine::PartEnds {} => part.clear(),
    };
    let mut is_whole = true;
    foreign::each_line(kept, io::BufReader::new(file), foreign::DATA, |number, line| {
        match files::parse_line(kept, number, line) {
            Ok(Some(line)) if is_whole => take(line),
            _ => is_whole = false,
        }
        Ok::<(), files::FileError>(())
    })?;
    Ok(outcomes)
}
