//! Seconds and bytes of a run's files, written into a scratch folder where the run will write.

use crate::algorithm::{Group, ScoredRollout};
use crate::base::files;
use crate::policy::{Policy, Progress, checkpoint};
use crate::records::tables::{self, Outcome};
use crate::training::TableRate;
use crate::training::run::Error;
use crate::training::run::inputs::Inputs;
use crate::training::run::rows::rollout_rows;
use crate::training::step::Step;
use std::path::Path;
use std::time::Instant;

/// What was measured.
pub struct Storage {
    /// Writing one checkpoint with its digests.
    pub checkpoint_seconds: f64,
    /// Its bytes.
    pub checkpoint_bytes: f64,
    /// Tables of rollouts.
    pub rollout_table: TableRate,
    /// Tables of outcomes.
    pub evaluation_table: TableRate,
}

/// Writes one checkpoint and a few tables.
///
/// # Errors
/// A folder that cannot be written.
pub fn measure(
    inputs: &Inputs,
    policy: &Policy,
    training: &[Group<ScoredRollout>],
    evaluation: &[Group<ScoredRollout>],
    folder: &Path,
) -> Result<Storage, Error> {
    let scratch = files::scratch_folder(folder)?;
    let checkpoint = scratch.path().join("checkpoint");
    let started = Instant::now();
    let base = &inputs.experiment.inputs.model;
    let progress = Progress::default();
    checkpoint::save(&checkpoint, policy.weights(), policy.moments(), base, &progress)?;
    for name in files::list(&checkpoint)? {
        files::sha256_file(&checkpoint.join(name))?;
    }
    let checkpoint_seconds = started.elapsed().as_secs_f64();
    let path = scratch.path().join("table.parquet");
    let rollout_table = table(&path, training, |path, groups| {
        Ok(tables::write_rollouts(path, &rollout_rows(&step(groups)))?)
    })?;
    let evaluation_table = table(&path, evaluation, |path, groups| {
        Ok(tables::write_outcomes(path, &outcomes(groups))?)
    })?;
    let checkpoint_bytes = files::size_bytes(&checkpoint)? as f64;
    Ok(Storage { checkpoint_seconds, checkpoint_bytes, rollout_table, evaluation_table })
}

/// Writes no group, the groups with the shorter responses and those with the longer ones: the
/// three sizes give the bytes of a file, a row and a token.
fn table(
    path: &Path,
    groups: &[Group<ScoredRollout>],
    write: impl Fn(&Path, Vec<Group<ScoredRollout>>) -> Result<(), Error>,
) -> Result<TableRate, Error> {
    let tokens = |groups: &[Group<ScoredRollout>]| -> f64 {
        let rollouts = groups.iter().flat_map(|group| &group.rollouts);
        rollouts.map(|scored| scored.rollout.tokens.len() as f64).sum()
    };
    let mut sorted = groups.to_vec();
    sorted.sort_by(|a, b| {
        tokens(std::slice::from_ref(a)).total_cmp(&tokens(std::slice::from_ref(b)))
    });
    let half = sorted.len() / 2;
    let (short, long) = (sorted[..half].to_vec(), sorted[sorted.len() - half..].to_vec());
    let rows = |groups: &[Group<ScoredRollout>]| {
        groups.iter().map(|group| group.rollouts.len() as f64).sum::<f64>()
    };
    let written = |groups: Vec<Group<ScoredRollout>>| -> Result<(f64, f64), Error> {
        let started = Instant::now();
        write(path, groups)?;
        files::sha256_file(path)?;
        let seconds = started.elapsed().as_secs_f64();
        Ok((seconds, files::size_bytes(path)? as f64))
    };
    let (half_rows, short_tokens, long_tokens) = (rows(&short), tokens(&short), tokens(&long));
    // The first write also pays for what is set up once.
    written(Vec::new())?;
    let (file_seconds, file_bytes) = written(Vec::new())?;
    let (short_seconds, short_bytes) = written(short)?;
    let (long_seconds, long_bytes) = written(long)?;
    let ratio = |part: f64, whole: f64| if whole > 0.0 { (part / whole).max(0.0) } else { 0.0 };
    let token_bytes = ratio(long_bytes - short_bytes, long_tokens - short_tokens);
    Ok(TableRate {
        file_seconds,
        row_seconds: ratio((short_seconds + long_seconds) / 2.0 - file_seconds, half_rows),
        file_bytes,
        row_bytes: ratio(short_bytes - file_bytes - token_bytes * short_tokens, half_rows),
        token_bytes,
    })
}

/// The groups as a rollout step that trained on all of them.
fn step(groups: Vec<Group<ScoredRollout>>) -> Step {
    let trained = groups
        .iter()
        .enumerate()
        .map(|(index, group)| (index, vec![1.0 / 3.0; group.rollouts.len()]))
        .collect();
    Step { groups, trained, ..Step::default() }
}

fn outcomes(groups: Vec<Group<ScoredRollout>>) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for group in groups {
        for (sample, scored) in group.rollouts.into_iter().enumerate() {
            outcomes.push(Outcome {
                problem: group.prompt.problem.id.clone(),
                sample: sample as u32,
                is_correct: scored.is_correct,
                response_tokens: scored.rollout.tokens.len() as u32,
                truncated: scored.rollout.truncated(),
                prediction: scored.prediction,
                answer: group.prompt.problem.answer.clone(),
                response: scored.rollout.text,
            });
        }
    }
    outcomes
}
