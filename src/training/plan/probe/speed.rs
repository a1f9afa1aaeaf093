//! Seconds of frozen forward passes and of updates, on a copy of the policy.

use crate::algorithm::{Group, Kl, Row, ScoredRollout, StepTotals, step};
use crate::base::{Purpose, rng::stream};
use crate::experiment::Experiment;
use crate::policy::{Policy, batch::Cut, checkpoint, frozen};
use crate::training::{Rates, TrainingError, UpdateError, update};
use std::time::Instant;

/// Measures one micro-batch of the run's size with the probe's own responses, and one row with a
/// response of one token: what both have in common is what an update costs beside its passes. Of the
/// micro-batch so many rows are taken as fit in the time, by what the one row took.
///
/// # Errors
/// A model that cannot be read, or an update that is not finite.
pub fn measure(
    experiment: &Experiment,
    groups: &[Group<ScoredRollout>],
    most_seconds: f64,
) -> Result<Rates, TrainingError> {
    let copy = checkpoint::load_model(&experiment.inputs.model)?;
    let copy = copy.placed(experiment.execution.place())?;
    let copy = copy.with_numerics(experiment.numerics)?;
    let mut policy = Policy::new(copy, &experiment.optimizer);
    let (_, rows) = step::rows(&groups.iter().collect::<Vec<_>>(), &experiment.dapo);
    let micro = experiment.execution.micro_batch_rollouts;
    let count = micro.min(experiment.training.mini_batch_rollouts).min(rows.len() as u64) as usize;
    let mut rows: Vec<Row> = rows.into_iter().take(count.max(1)).collect();
    let one = vec![with_one_response_token(&rows[0])];
    let temperature = experiment.rollout.sampling.temperature;
    let longest = experiment.rollout.max_response_tokens;
    let mut time = |rows: &[Row]| {
        let cut = Cut { micro_batch_rollouts: rows.len(), ..Cut::of(&experiment.execution) };
        let settings = update::Settings { dapo: &experiment.dapo, temperature, cut };
        time(&mut policy, rows, &settings, longest).map_err(TrainingError::TrialUpdate)
    };
    // The second pass does not pay for what is set up once.
    time(&one)?;
    let one = time(&one)?;
    let token_seconds = (one.frozen_seconds + one.update_seconds) / one.tokens.max(1.0);
    let mut left = most_seconds;
    let fits = |row: &&Row| {
        left -= token_seconds * row.tokens.len() as f64;
        left > 0.0
    };
    let fitting = rows.iter().take_while(fits).count();
    rows.truncate(fitting.max(1));
    let whole = time(&rows)?;
    let tokens = (whole.tokens - one.tokens).max(1.0);
    let rate = |whole: f64, one: f64| ((whole - one) / tokens).max(0.0);
    let update_token_seconds = rate(whole.update_seconds, one.update_seconds);
    Ok(Rates {
        old_log_probs_token_seconds: rate(whole.frozen_seconds, one.frozen_seconds),
        update_token_seconds,
        optimizer_seconds: (one.update_seconds - one.tokens * update_token_seconds).max(0.0),
        ..Rates::default()
    })
}

/// One micro-batch, timed.
#[derive(Clone, Copy)]
pub struct Timed {
    /// Prompts and responses.
    pub tokens: f64,
    pub frozen_seconds: f64,
    pub update_seconds: f64,
}

/// Reads the rows as π_old does and makes one update with them. Its rate is 0, which costs the same
/// and leaves the weights as they are.
pub fn time(
    policy: &mut Policy,
    rows: &[Row],
    settings: &update::Settings,
    max_response_tokens: u64,
) -> Result<Timed, UpdateError> {
    let started = Instant::now();
    let old = frozen::read(policy.model(), rows, settings.temperature, settings.cut)?;
    let frozen_seconds = started.elapsed().as_secs_f64();
    let members: Vec<usize> = (0..rows.len()).collect();
    let tokens = rows.iter().map(Row::loss_tokens).sum();
    let penalised = settings.dapo.kl != Kl::None {};
    let batch = update::MiniBatch {
        rows,
        members: &members,
        old_log_probs: &old.log_probs,
        ref_log_probs: penalised.then_some(&old.log_probs[..]),
        sampler_log_probs: Some(&old.log_probs),
        choice: &stream(0, Purpose::Plan, &[]),
        totals: StepTotals { tokens, mini_batches: 1, max_response_tokens },
    };
    let started = Instant::now();
    update::update(policy, &batch, settings, 0.0)?;
    let update_seconds = started.elapsed().as_secs_f64();
    let tokens = rows.iter().map(|row| row.tokens.len() as f64).sum();
    Ok(Timed { tokens, frozen_seconds, update_seconds })
}

/// The row with its response cut to one token; a prompt's last token stands in where it has none.
fn with_one_response_token(row: &Row) -> Row {
    let mut tokens = row.tokens.clone();
    tokens.truncate(row.prompt_tokens + 1);
    if tokens.len() == row.prompt_tokens {
        tokens.extend(tokens.last().copied());
    }
    Row { tokens, ..row.clone() }
}
