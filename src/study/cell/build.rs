//! Builds a record from a run folder, whose files must agree with `outcome.json` and the ledger, unless the run failed.

use crate::base::files;
use crate::experiment::Experiment;
use crate::records::audit::{self, DigestFault, RECORDS};
use crate::records::tables::{self, OutcomeRecord as Row};
use crate::records::{
    Ending, EvaluationRecord, FolderEntries, Manifest, Outcome, RunFolder, RunRecords, Session,
    StepMetrics, StepTimings, metrics,
};
use crate::study::cell::numbers::{self, DIGITS, FEWEST_DIGITS, GENERATED, significant};
use crate::study::cell::{FORMAT, MAX_BYTES, check};
use crate::study::{Cell, CellEnding, CellEvaluation, ProblemIds, StudyError};
use crate::training::evaluation;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};

const MOST_REASON: usize = 1000;

/// A record of so many bytes keeps more digits than the fewest.
const SHORT_BYTES: u64 = 50_000;

/// Bytes, significant digits, and the prefixes of metrics that are kept. The first row that a record fits into applies.
const ROOM: [(u64, usize, &[&str]); 6] = [
    (SHORT_BYTES, DIGITS, &[""]),
    (SHORT_BYTES, 6, &[""]),
    (SHORT_BYTES, FEWEST_DIGITS, &[""]),
    (MAX_BYTES, FEWEST_DIGITS, &[""]),
    (MAX_BYTES, FEWEST_DIGITS, &["rollout/", "policy/", "loss/", "train/", "effect/"]),
    (
        MAX_BYTES,
        FEWEST_DIGITS,
        &[
            "rollout/accuracy",
            "rollout/reward_mean",
            "rollout/response_tokens_mean",
            GENERATED,
            "policy/",
        ],
    ),
];

/// Hashes each file again, compares it with `outcome.json` and the ledger, and computes each score
/// again from its outcomes. A checkpoint may be missing as a whole.
pub fn build(folder: &RunFolder) -> Result<Cell, StudyError> {
    let records = RunRecords::read(folder).map_err(|it| it.source)?;
    let refuse = |file: &str, reason: String| StudyError::invalid(folder.path(file), reason);
    let begun = begun(&records.experiment, &records.manifest, &records.metrics);
    check::identity(&begun).map_err(|reason| refuse("manifest.json", reason))?;
    let Some(outcome) = &records.outcome else {
        return Err(refuse("outcome.json", "is missing: the run is unfinished".to_string()));
    };
    check_digests(folder, outcome)?;
    if let Some(contradiction) = records.contradictions().first() {
        return Err(refuse(&contradiction.place(), contradiction.to_string()));
    }
    let mut problems = BTreeMap::new();
    let mut evaluations = Vec::new();
    for record in &records.evaluations {
        evaluations.push(evaluation(folder, record, &begun, &mut problems)?);
    }
    let ending = match outcome.ending {
        Ending::Finished => CellEnding::Finished,
        Ending::Saturated => CellEnding::Saturated,
        Ending::Stalled => CellEnding::Stalled,
        Ending::Diverged => CellEnding::Diverged,
    };
    let mut digests = outcome.digests.clone();
    digests.retain(|name, _| RECORDS.contains(&name.as_str()));
    digests.extend(last_weights(outcome));
    let timings = folder.timings()?;
    let cell = fitted(Cell {
        ending,
        not_finite: outcome.not_finite.clone(),
        reason: outcome.reason.clone(),
        problems,
        evaluations,
        ledger_head: records.ledger.last().map(|entry| entry.head.clone()),
        digests,
        environment: folder.environment()?.facts,
        wall_seconds: wall_seconds(&folder.sessions()?, &timings),
        step_seconds: step_seconds(&timings, begun.counters.len()),
        ..begun
    });
    check::check(&cell).map_err(|reason| StudyError::invalid(folder.root(), reason))?;
    Ok(cell)
}

/// The record of a run that ended without an outcome. Nothing in it is a result.
pub fn failed(
    experiment: &Experiment,
    manifest: &Manifest,
    folder: &RunFolder,
    reason: &str,
) -> Cell {
    // Unreadable files are expected here and are left out.
    fn lines<T: DeserializeOwned>(folder: &RunFolder, name: &str) -> Vec<T> {
        files::complete_lines(&folder.path(name)).unwrap_or_default()
    }
    let metrics: Vec<StepMetrics> = lines(folder, "metrics.jsonl");
    let records: Vec<EvaluationRecord> = lines(folder, "evaluations.jsonl");
    let (sessions, timings) = (lines(folder, "sessions.jsonl"), lines(folder, "timings.jsonl"));
    let mut problems = BTreeMap::new();
    let begun = begun(experiment, manifest, &metrics);
    let read = |record| evaluation(folder, record, &begun, &mut problems).ok();
    let evaluations: Vec<CellEvaluation> = records.iter().filter_map(read).collect();
    problems.retain(|set, _| evaluations.iter().any(|evaluation| evaluation.set == *set));
    let cell = fitted(Cell {
        reason: reason.chars().take(MOST_REASON).collect(),
        problems,
        evaluations,
        environment: folder.environment().map(|it| it.facts).unwrap_or_default(),
        wall_seconds: wall_seconds(&sessions, &timings),
        ..begun
    });
    if bytes(&cell) <= MAX_BYTES {
        return cell;
    }
    // These always fit.
    let (metrics, counters, evaluations) = (BTreeMap::new(), Vec::new(), Vec::new());
    Cell { metrics, counters, evaluations, problems: BTreeMap::new(), ..cell }.sealed()
}

fn begun(experiment: &Experiment, manifest: &Manifest, metrics: &[StepMetrics]) -> Cell {
    let Manifest { harness, name, arm_sha256, seed, run_key, exactness, inputs } = manifest.clone();
    Cell {
        format: FORMAT,
        name,
        arm_sha256,
        seed,
        run_key,
        exactness,
        harness,
        ending: CellEnding::Failed,
        not_finite: None,
        reason: String::new(),
        experiment: experiment.clone(),
        inputs,
        counters: metrics.iter().map(|line| line.counters).collect(),
        metrics: columns(metrics),
        problems: BTreeMap::new(),
        evaluations: Vec::new(),
        ledger_head: None,
        digests: BTreeMap::new(),
        environment: BTreeMap::new(),
        wall_seconds: 0.0,
        step_seconds: Vec::new(),
        record_sha256: String::new(),
    }
}

fn bytes(cell: &Cell) -> u64 {
    files::canonical_json_line(cell).len() as u64 + 1
}

/// Metrics that the record of a run like this has, and this one lacks. Records that were too long for them are long still.
pub fn lacking(cell: &Cell) -> Vec<&'static str> {
    const LEAST_WITHOUT: u64 = MAX_BYTES / 10;
    if cell.counters.is_empty() || cell.ending == CellEnding::Failed {
        return Vec::new();
    }
    let due = metrics::all().iter().filter(|it| it.is_always_recorded_by(&cell.experiment));
    let names = due.map(|metric| metric.name.as_str());
    let mut lacking: Vec<_> = names.filter(|name| !cell.metrics.contains_key(*name)).collect();
    if !lacking.is_empty() && bytes(cell) > LEAST_WITHOUT {
        let [.., (_, _, kept)] = ROOM;
        lacking.retain(|name| kept.iter().any(|start| name.starts_with(start)));
    }
    lacking
}

/// A checkpoint may be missing as a whole; files that nobody has digests of are no part of the record.
fn check_digests(folder: &RunFolder, outcome: &Outcome) -> Result<(), StudyError> {
    let faults = audit::digest_faults(folder, &FolderEntries::of(folder)?, outcome);
    let counts = |(name, fault): &(String, DigestFault)| match fault {
        DigestFault::NoCheckpoint => false,
        DigestFault::Added => RECORDS.contains(&name.as_str()),
        _ => true,
    };
    match faults.into_iter().find(counts) {
        Some((_, DigestFault::Unreadable(error))) => Err(error.into()),
        Some((name, fault)) => Err(StudyError::invalid(folder.path(&name), fault.to_string())),
        None => Ok(()),
    }
}

fn evaluation(
    folder: &RunFolder,
    record: &EvaluationRecord,
    begun: &Cell,
    problems: &mut BTreeMap<String, ProblemIds>,
) -> Result<CellEvaluation, StudyError> {
    let path = folder.recorded_outcomes(&record.set, record.counters.rollout_steps)?;
    let refuse = |reason: String| StudyError::invalid(&path, reason);
    let outcomes_sha256 = files::sha256_file(&path)?;
    if outcomes_sha256 != record.outcomes_sha256 {
        return Err(refuse("is not the table that evaluations.jsonl has the digest of".into()));
    }
    let rows = tables::read_outcomes(&path)?;
    let tags = files::optional(folder.tags())?.unwrap_or_default();
    let ids = problem_ids(&rows, record.samples).map_err(refuse)?;
    let ids = ProblemIds::of(&ids, tags.get(&record.set));
    if *problems.entry(record.set.clone()).or_insert_with(|| ids.clone()) != ids {
        return Err(refuse("its problems are not those of the set's other evaluations".into()));
    }
    let by_step = begun.metric(GENERATED);
    let evaluation = CellEvaluation {
        set: record.set.clone(),
        counters: record.counters,
        generated_rollouts: numbers::generated(&begun.experiment, record.counters, by_step),
        samples: record.samples,
        outcomes: rows.iter().map(|row| row.is_correct).collect(),
        cons_at_k: record.cons_at_k,
        truncated_share: record.truncated_share,
        response_tokens_mean: record.response_tokens_mean,
        reward_mean: record.reward_mean,
        outcomes_sha256,
    };
    let (found, written) = (evaluation.avg_at_k(), record.avg_at_k);
    let is_written = (found - written).abs() <= 1e-9;
    if !is_written {
        return Err(refuse(format!("its avg@k is {found}, evaluations.jsonl says {written}")));
    }
    let rewards = evaluation::reward_mean(&rows);
    let is_written = match (rewards, record.reward_mean) {
        (Some(found), Some(written)) => (found - written).abs() <= 1e-9 * found.abs().max(1.0),
        (_, written) => written.is_none(),
    };
    if !is_written {
        return Err(refuse("its mean reward is not that of evaluations.jsonl".to_owned()));
    }
    Ok(evaluation)
}

/// Requires samples 0 to k − 1 in order of each problem.
fn problem_ids(rows: &[Row], samples: u64) -> Result<Vec<&str>, String> {
    let mut ids = Vec::new();
    for rows in rows.chunk_by(|a, b| a.problem == b.problem) {
        let whole = rows.len() as u64 == samples
            && rows.iter().zip(0u32..).all(|(row, sample)| row.sample == sample);
        if !whole {
            return Err(format!(
                "problem {:?} does not have the samples 0 to k - 1",
                rows[0].problem
            ));
        }
        ids.push(rows[0].problem.as_str());
    }
    let distinct: BTreeSet<&str> = ids.iter().copied().collect();
    if distinct.len() != ids.len() {
        return Err("a problem occurs in two places".to_string());
    }
    Ok(ids)
}

fn columns(metrics: &[StepMetrics]) -> BTreeMap<String, Vec<Option<f64>>> {
    let names: BTreeSet<&String> = metrics.iter().flat_map(|line| line.metrics.keys()).collect();
    let column =
        |name: &String| metrics.iter().map(|line| line.metrics.get(name).copied()).collect();
    names.into_iter().map(|name| (name.clone(), column(name))).collect()
}

fn last_weights(outcome: &Outcome) -> Option<(String, String)> {
    const NAME: &str = "model.safetensors";
    let of_checkpoint = |(path, digest): (&String, &String)| {
        let step = path.strip_prefix("checkpoints/step-")?.strip_suffix(&format!("/{NAME}"))?;
        Some((step.parse::<u64>().ok()?, digest.clone()))
    };
    let newest = outcome.digests.iter().filter_map(of_checkpoint).max()?;
    Some((NAME.to_string(), newest.1))
}

/// Sums all sessions. A killed session ends with its last record.
fn wall_seconds(sessions: &[Session], timings: &[StepTimings]) -> f64 {
    let mut milliseconds = 0;
    for (index, session) in sessions.iter().enumerate() {
        let Some(started) = session.started_ms else { continue };
        let next = sessions.get(index + 1).and_then(|next| next.started_ms).unwrap_or(u64::MAX);
        let within = |ended: &u64| (started..next).contains(ended);
        let last = timings.iter().filter_map(|line| line.ended_ms).filter(within).max();
        let ended = session.ended_ms.or(last).unwrap_or(started);
        milliseconds += ended.saturating_sub(started);
    }
    milliseconds as f64 / 1000.0
}

/// Of each rollout step, to a millisecond, without evaluations and checkpoints; none where a step has no line.
fn step_seconds(timings: &[StepTimings], steps: usize) -> Vec<f64> {
    const AROUND: [&str; 2] = ["evaluation", "checkpoint"];
    let of_step = |step: usize| {
        // A step that was repeated after a stop counts as it went the last time.
        let mut lines = timings.iter().rev().filter(|line| line.step == step as u64);
        let line = lines.find(|line| AROUND.iter().all(|phase| !line.seconds.contains_key(*phase)));
        line.and_then(|line| Some((line.seconds.get("total")? * 1000.0).round() / 1000.0))
    };
    let seconds: Option<Vec<f64>> = (1..=steps).map(of_step).collect();
    seconds.unwrap_or_default()
}

/// Writing refuses a record that is still too large.
fn fitted(cell: Cell) -> Cell {
    let fit = |digits: usize, kept: &[&str]| {
        let rounded = |values: &[Option<f64>]| {
            values.iter().map(|value| value.map(|value| significant(value, digits))).collect()
        };
        let wanted = |name: &String| kept.iter().any(|start| name.starts_with(start));
        let metrics = cell.metrics.iter().filter(|(name, _)| wanted(name));
        let metrics = metrics.map(|(name, values)| (name.clone(), rounded(values))).collect();
        Cell { metrics, ..cell.clone() }.sealed()
    };
    let fitted = |(most, digits, kept)| Some(fit(digits, kept)).filter(|cell| bytes(cell) <= most);
    let [.., (_, digits, kept)] = ROOM;
    ROOM.into_iter().find_map(fitted).unwrap_or_else(|| fit(digits, kept))
}

#[cfg(test)]
pub(in crate::study) mod tests {
    use super::*;
    use crate::experiment::extends;
    use crate::records::Counters;
    use crate::training::run::inputs;
    use std::path::Path;

    pub fn digests<const N: usize>(names: [&str; N]) -> BTreeMap<String, String> {
        names.map(|name| (name.to_string(), files::sha256(name.as_bytes()))).into()
    }

    pub fn bare(experiment: &Experiment) -> Cell {
        let [config, tokenizer, weights] =
            ["base/config.json", "base/tokenizer.json", "base/model.safetensors"];
        let inputs = digests(["data/train", "data/dev", config, tokenizer, weights]);
        let manifest = Manifest {
            harness: "0.1.0".into(),
            name: "dapo".into(),
            arm_sha256: experiment.arm_sha256(),
            seed: experiment.execution.seed,
            run_key: inputs::run_key(experiment, &inputs),
            exactness: "exact".into(),
            inputs,
        };
        failed(experiment, &manifest, &RunFolder::at("no/such/folder"), "")
    }

    fn long(steps: u64, metrics: u64) -> Cell {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let experiment = extends::load(&root.join("experiments/dapo.toml")).unwrap();
        let name = |number| match number {
            0 => "rollout/accuracy".to_string(),
            1 => GENERATED.to_string(),
            _ => format!("effect/measure_{number}"),
        };
        let value = |step, metric| Some((step as f64 * 0.317 + metric as f64).sin());
        let column = |metric| (0..steps).map(|step| value(step, metric)).collect();
        Cell {
            counters: vec![Counters::default(); steps as usize],
            metrics: (0..metrics).map(|metric| (name(metric), column(metric))).collect(),
            ..bare(&experiment)
        }
    }

    #[test]
    fn a_short_record_lacks_what_every_step_has_and_a_long_one_what_was_left_out() {
        let finished = |steps| Cell { ending: CellEnding::Finished, ..long(steps, 2) };
        let [short, cut] = [2, 4000].map(|steps| lacking(&finished(steps)));
        assert!(short.contains(&"loss/ratio_max") && !cut.contains(&"loss/ratio_max"));
        assert!(cut.contains(&"policy/entropy") && !short.contains(&GENERATED), "{short:?}");
        assert_eq!(lacking(&long(2, 2)), [""; 0]);
        assert_eq!(lacking(&finished(0)), [""; 0]);
    }

    #[test]
    fn records_fit_their_limit_with_fewer_digits_and_then_with_fewer_metrics() {
        let folder = tempfile::tempdir().unwrap();
        for (steps, metrics, kept) in [(40, 40, 40), (60, 80, 80), (400, 80, 80), (4000, 80, 2)] {
            let cell = fitted(long(steps, metrics));
            let path = cell.write(folder.path()).unwrap();
            assert!(files::size_bytes(&path).unwrap() <= MAX_BYTES);
            assert_eq!(Cell::read(&path).unwrap(), cell);
            assert_eq!(cell.metrics.len(), kept);
            assert!(cell.metrics.contains_key(GENERATED));
        }
        // What no room can be made for is refused, not cut.
        let refused = fitted(long(60_000, 2)).write(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("more than 1000000"), "{refused}");
    }

    #[test]
    fn metrics_keep_nine_digits_and_counts_keep_all() {
        assert_eq!(significant(1.0 / 3.0, 9), 0.333333333);
        assert_eq!(significant(-67_732.0, 9), -67_732.0);
        assert_eq!(significant(0.0, 9), 0.0);
        assert_eq!(significant(2.054_164_363e-7, 4), 2.054e-7);
    }

    #[test]
    fn a_session_that_was_killed_took_until_its_last_record() {
        let session = |started_ms, ended_ms| Session {
            from_step: 0,
            changed: BTreeMap::new(),
            started_ms: Some(started_ms),
            ended_ms,
        };
        let line =
            |ended_ms| StepTimings { step: 1, seconds: BTreeMap::new(), ended_ms: Some(ended_ms) };
        let sessions = [session(1_000, None), session(100_000, Some(105_500))];
        assert_eq!(wall_seconds(&sessions, &[line(3_000), line(4_000), line(104_000)]), 8.5);
        assert_eq!(wall_seconds(&[session(5, None)], &[]), 0.0);
    }

    #[test]
    fn a_step_takes_as_long_as_the_last_time_without_what_is_around_it() {
        let line = |step, phase: &str, total| StepTimings {
            step,
            seconds: [(phase.to_string(), total), ("total".to_string(), total)].into(),
            ended_ms: None,
        };
        let lines = [
            line(0, "evaluation", 9.0),
            line(1, "update", 2.0),
            line(1, "checkpoint", 8.0),
            line(2, "update", 3.0),
            line(2, "update", 1.000_4),
            line(2, "evaluation", 9.0),
        ];
        assert_eq!(step_seconds(&lines, 2), [2.0, 1.0]);
        assert!(step_seconds(&lines, 3).is_empty());
        assert!(step_seconds(&[], 1).is_empty());
    }
}
