//! Continues an interrupted evaluation: outcomes are kept as JSON lines, and draws depend on problem and sample only.

use crate::base::files::{self, foreign, locks::BriefLock};
use crate::policy::Qwen2;
use crate::records::{Counters, EvaluationRecord, RunFolder, tables, tables::OutcomeRecord};
use crate::task::{Grader, Tokenizer, data};
use crate::training::{Protocol, TrainingError, evaluation, evaluation::Set};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

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
    let samples = set.samples.max(1) as usize;
    outcomes.truncate(in_order(set, &outcomes) / samples * samples);
    let first = std::iter::once(ResumableLine::Key(key.to_string()));
    files::write_lines(kept, &first.chain(part_of(&outcomes)).collect::<Vec<_>>())?;
    let total = set.problems.len() * set.samples as usize;
    let part = (BATCHES_OF_A_PART * protocol.batch_rows).div_ceil(samples as u64) as usize;
    progress(outcomes.len(), total);
    for problems in set.problems[outcomes.len() / samples..].chunks(part.max(1)) {
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

/// How many rows from the first on are those of the set: each problem with each of its samples.
fn in_order(set: Set, outcomes: &[OutcomeRecord]) -> usize {
    let samples = |problem| (0..set.samples).map(move |sample| (problem, sample));
    let due = set.problems.iter().map(|it| it.id.as_str()).flat_map(samples);
    let rows = outcomes.iter().map(|row| (row.problem.as_str(), u64::from(row.sample)));
    due.zip(rows).take_while(|(due, row)| due == row).count()
}

fn is_whole(set: Set, outcomes: &[OutcomeRecord]) -> bool {
    let total = set.problems.len() * set.samples as usize;
    outcomes.len() == total && in_order(set, outcomes) == total
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

/// What an earlier command with the same `key` wrote (`STEM.parquet`, `STEM.json`), or the hold on the stem.
/// Errors: files of another key, or of something else, that would be replaced; another process at work there.
pub fn begin(
    stem: &Path,
    key: &Value,
    set: Set,
) -> Result<(Option<Evaluated>, Option<BriefLock>), TrainingError> {
    let mut lock = None;
    if files::kind(&stem.with_added_extension("json"))?.is_none() {
        if let Some(folder) = stem.parent() {
            files::create_folder(folder)?;
        }
        lock = files::locks::lock_briefly(&stem.with_added_extension("partial.lock"))?;
        if lock.is_none() {
            return Err(TrainingError::InUse { folder: stem.to_path_buf() });
        }
    }
    Ok((kept(stem, key, set)?, lock))
}

fn kept(stem: &Path, key: &Value, set: Set) -> Result<Option<Evaluated>, TrainingError> {
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
    let unlike = "does not fit the table beside it; delete both and evaluate again";
    if files::sha256_file(&table)? != record.outcomes_sha256 {
        return Err(damaged(unlike.to_string()));
    }
    let outcomes = tables::read_outcomes(&table)?;
    if !is_whole(set, &outcomes) {
        let reason = "does not have each sample of each problem once; delete it and the table beside it, and evaluate again";
        return Err(damaged(reason.to_string()));
    }
    if !evaluation::is_of_outcomes(&record, &outcomes) {
        return Err(damaged(unlike.to_string()));
    }
    Ok(Some((record, outcomes)))
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
/// goes on under the same [`key`]. The caller holds what [`begin`] gave it. `counters` are those of the policy.
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
    if !is_whole(set, &outcomes) {
        let reason = "does not have each sample of each problem once; delete it and evaluate again";
        return Err(TrainingError::Folder { folder: partial, reason: reason.to_string() });
    }
    if let Err(batch) = grader.close(&format!("the evaluation of {}", set.name)) {
        files::remove_file(&partial)?;
        return Err(batch.into());
    }
    let path = stem.with_added_extension("parquet");
    tables::write_outcomes(&path, &outcomes)?;
    let record = evaluation::record(set.name, counters, &outcomes, files::sha256_file(&path)?)?;
    let mut stated = json!(record);
    stated["key"] = key.clone();
    files::write_json(&stem.with_added_extension("json"), &stated)?;
    files::remove_file(&partial)?;
    Ok(Some((record, outcomes)))
}

pub fn record(folder: &RunFolder, records: &[EvaluationRecord]) -> Result<(), TrainingError> {
    let _held = loop {
        match files::locks::lock_briefly(&folder.path("evaluations.jsonl.lock"))? {
            Some(held) => break held,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let mut all = files::optional(folder.evaluations())?.unwrap_or_default();
    for record in records {
        if !all.contains(record) {
            all.push(record.clone());
        }
    }
    Ok(files::write_lines(&folder.path("evaluations.jsonl"), &all)?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Problem;

    fn rows(keys: &[(&str, u32)]) -> Vec<OutcomeRecord> {
        let row = |&(problem, sample): &(&str, u32)| OutcomeRecord {
            problem: problem.to_string(),
            sample,
            is_correct: true,
            response_tokens: 1,
            truncated: false,
            prediction: None,
            answer: "1".to_string(),
            response: String::new(),
            reward: None,
        };
        keys.iter().map(row).collect()
    }

    fn problems() -> [Problem; 2] {
        ["a", "b"].map(|id| Problem {
            id: id.to_string(),
            question: "q".to_string(),
            answer: "1".to_string(),
        })
    }

    #[test]
    fn rows_count_as_far_as_they_are_those_of_the_set() {
        let set = Set { name: "set", problems: &problems(), samples: 2 };
        let whole = [("a", 0), ("a", 1), ("b", 0), ("b", 1)];
        assert!(is_whole(set, &rows(&whole)));
        assert!(!is_whole(set, &rows(&[whole, whole].concat())));
        for (keys, count) in [
            (&[("a", 0), ("a", 1), ("a", 0), ("a", 1)][..], 2),
            (&[("a", 0), ("b", 0)], 1),
            (&[("b", 0)], 0),
            (&whole[..3], 3),
        ] {
            assert_eq!(in_order(set, &rows(keys)), count);
            assert!(!is_whole(set, &rows(keys)));
        }
    }

    #[test]
    fn one_process_evaluates_into_a_stem_and_nothing_is_left_of_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let (stem, key) = (folder.path().join("evaluations/set"), json!({"weights": "w"}));
        let set = Set { name: "set", problems: &problems()[..1], samples: 2 };
        let begun = begin(&stem, &key, set).unwrap();
        assert!(begun.0.is_none() && begun.1.is_some());
        let refused = begin(&stem, &key, set).unwrap_err().to_string();
        assert!(refused.contains("set is in use by another process"), "{refused}");
        assert!(begin(&stem.with_file_name("other"), &key, set).is_ok());
        drop(begun);
        let state = |keys: &[(&str, u32)]| {
            let (rows, table) = (rows(keys), stem.with_added_extension("parquet"));
            tables::write_outcomes(&table, &rows).unwrap();
            let digest = files::sha256_file(&table).unwrap();
            let record = evaluation::record("set", Counters::default(), &rows, digest).unwrap();
            let mut stated = json!(record);
            stated["key"] = key.clone();
            files::write_json(&stem.with_added_extension("json"), &stated).unwrap();
            begin(&stem, &key, set)
        };
        let (kept, held) = state(&[("a", 0), ("a", 1)]).unwrap();
        assert!(kept.is_some() && held.is_none());
        let path = stem.with_added_extension("json");
        let mut stated: Value = files::read_json(&path).unwrap();
        stated["avg_at_k"] = json!(0.875);
        files::write_json(&path, &stated).unwrap();
        let refused = begin(&stem, &key, set).unwrap_err().to_string();
        assert!(refused.contains("does not fit the table beside it"), "{refused}");
        let refused = state(&[("a", 0), ("a", 1), ("a", 0), ("a", 1)]).unwrap_err().to_string();
        assert!(refused.contains("does not have each sample of each problem once"), "{refused}");
        let left = files::list(stem.parent().unwrap()).unwrap();
        assert_eq!(left, ["set.json", "set.parquet"]);
    }

    #[test]
    fn records_that_another_process_adds_meanwhile_stay() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::at(folder.path());
        let of = |name: &str| {
            let rows = rows(&[("a", 0)]);
            evaluation::record(name, Counters::default(), &rows, String::new()).unwrap()
        };
        let held = files::locks::lock_briefly(&run.path("evaluations.jsonl.lock")).unwrap();
        std::thread::scope(|scope| {
            let adding = scope.spawn(|| record(&run, &[of("dev"), of("test")]));
            std::thread::sleep(Duration::from_millis(100));
            assert!(!run.path("evaluations.jsonl").exists());
            files::write_lines(&run.path("evaluations.jsonl"), &[of("test")]).unwrap();
            drop(held);
            adding.join().unwrap().unwrap();
        });
        assert_eq!(run.evaluations().unwrap(), [of("test"), of("dev")]);
        assert_eq!(files::list(folder.path()).unwrap(), ["evaluations.jsonl"]);
    }
}
