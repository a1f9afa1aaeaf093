//! Seconds of frozen forward passes and of updates, on a copy of the policy.

use crate::algorithm::{Group, Kl, Row, ScoredRollout, StepTotals, step};
use crate::experiment::Experiment;
use crate::policy::batch::Cut;
use crate::policy::{Policy, Qwen2, checkpoint, frozen};
use crate::training::plan::cost;
use crate::training::plan::lengths::{self, Pass};
use crate::training::run::Error;
use crate::training::{PassRate, Stopwatch, update};

/// Longest time that one measured micro-batch may take, by projection from a shorter one.
const MICRO_BATCH_SECONDS: f64 = 3.0;

/// What was measured, and the copy that it was measured on.
pub struct Speed {
    /// Frozen forward passes.
    pub old_log_probs: PassRate,
    /// Forward and backward passes.
    pub update: PassRate,
    /// The rest of an update.
    pub optimizer_seconds: f64,
    /// The copy, with moments.
    pub policy: Policy,
}

/// Measures one micro-batch of the run's size with the probe's own responses, with all
/// responses at L_max, and with all of them short: the last two give the price of a token,
/// the first how much of its padding is computed. One row of one token gives what an update
/// costs beside its passes.
///
/// # Errors
/// A model that cannot be read, or an update that is not finite.
pub fn measure(
    experiment: &Experiment,
    model: &Qwen2,
    groups: &[Group<ScoredRollout>],
) -> Result<Speed, Error> {
    let copy = checkpoint::load_model(&experiment.inputs.model)?;
    let copy = copy.placed(experiment.execution.place())?;
    let copy = copy.with_numerics(experiment.numerics)?;
    let mut policy = Policy::new(copy, &experiment.optimizer);
    let (_, rows) = step::rows(&groups.iter().collect::<Vec<_>>(), &experiment.dapo);
    let micro = experiment.execution.micro_batch_rollouts;
    let count = micro.min(experiment.training.mini_batch_rollouts).min(rows.len() as u64) as usize;
    let rows: Vec<Row> = rows.into_iter().take(count.max(1)).collect();
    let most = experiment.rollout.max_response_tokens as usize;
    let shorter = (most / 4).max(1);
    let mut time = |rows: &[Row]| -> Result<Timed, Error> {
        let (first, again) = (
            time(experiment, model, &mut policy, rows)?,
            time(experiment, model, &mut policy, rows)?,
        );
        // What else the machine does can only add.
        Ok(Timed {
            frozen_seconds: first.frozen_seconds.min(again.frozen_seconds),
            update_seconds: first.update_seconds.min(again.update_seconds),
            ..first
        })
    };
    let one = vec![with_response(&rows[0], 1)];
    // The second pass does not pay for what is set up once.
    let one = time(&one)?;
    let short = time(&all_with_response(&rows, shorter))?;
    let long = match short.update_seconds * most as f64 / shorter as f64 {
        projected if projected < MICRO_BATCH_SECONDS => time(&all_with_response(&rows, most))?,
        _ => short,
    };
    let mixed = time(&rows)?;
    let frozen = rate([one, short, long], mixed, |timed| timed.frozen_seconds);
    let both = rate([one, short, long], mixed, |timed| timed.update_seconds);
    // An update's constant is the optimizer's share and a micro-batch's; the passes of a
    // micro-batch are one forward and two backward.
    let micro_batch_seconds = (3.0 * frozen.micro_batch_seconds).min(both.micro_batch_seconds);
    Ok(Speed {
        old_log_probs: frozen,
        optimizer_seconds: both.micro_batch_seconds - micro_batch_seconds,
        update: PassRate { micro_batch_seconds, ..both },
        policy,
    })
}

/// One micro-batch, timed.
#[derive(Clone, Copy)]
struct Timed {
    pass: Pass,
    frozen_seconds: f64,
    update_seconds: f64,
}

fn time(
    experiment: &Experiment,
    model: &Qwen2,
    policy: &mut Policy,
    rows: &[Row],
) -> Result<Timed, Error> {
    let temperature = experiment.rollout.sampling.temperature;
    let execution = &experiment.execution;
    let cut = Cut { micro_batch_rollouts: rows.len(), ..Cut::of(execution) };
    let watch = Stopwatch::start(experiment.execution.threads);
    let old = frozen::read(model, rows, temperature, cut)
        .map_err(|error| Error::TrialUpdate(error.into()))?;
    let frozen_seconds = watch.seconds();
    let members: Vec<usize> = (0..rows.len()).collect();
    let totals = StepTotals {
        tokens: rows.iter().map(Row::loss_tokens).sum(),
        mini_batches: 1,
        max_response_tokens: experiment.rollout.max_response_tokens,
    };
    let penalised = experiment.dapo.kl != Kl::None {};
    let batch = update::MiniBatch {
        rows,
        members: &members,
        old_log_probs: &old.log_probs,
        ref_log_probs: penalised.then_some(&old.log_probs[..]),
        totals,
    };
    let settings = update::Settings { dapo: &experiment.dapo, temperature, cut };
    let watch = Stopwatch::start(experiment.execution.threads);
    // A rate of 0 costs the same and leaves the weights as they are.
    update::update(policy, &batch, &settings, 0.0).map_err(Error::TrialUpdate)?;
    let update_seconds = watch.seconds();
    let mut descending: Vec<f64> = rows.iter().map(|row| row.response_tokens() as f64).collect();
    descending.sort_by(|a, b| b.total_cmp(a));
    let prompts: usize = rows.iter().map(|row| row.prompt_tokens).sum();
    let prompt = prompts as f64 / rows.len() as f64;
    let pass = lengths::pass(&descending, prompt, rows.len());
    Ok(Timed { pass, frozen_seconds, update_seconds })
}

/// A constant and a price for each token from rows of one length, then the share of padding
/// that rows of mixed lengths paid.
fn rate(uniform: [Timed; 3], mixed: Timed, seconds: impl Fn(&Timed) -> f64) -> PassRate {
    let points = uniform.map(|timed| [1.0, timed.pass.padded_tokens, seconds(&timed)]);
    let (micro_batch_seconds, token_seconds) = cost::fit(&points);
    let padding = mixed.pass.padded_tokens - mixed.pass.tokens;
    let paid = (seconds(&mixed) - micro_batch_seconds) / token_seconds - mixed.pass.tokens;
    let share = paid / padding;
    let padding_share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 1.0 };
    PassRate { micro_batch_seconds, token_seconds, padding_share }
}

fn all_with_response(rows: &[Row], tokens: usize) -> Vec<Row> {
    rows.iter().map(|row| with_response(row, tokens)).collect()
}

/// The row with its response cut or repeated to a length.
fn with_response(row: &Row, tokens: usize) -> Row {
    let (prompt, response) = row.tokens.split_at(row.prompt_tokens);
    // A response has at least one token; a prompt's last token stands in where it has none.
    let source = if response.is_empty() { &prompt[prompt.len() - 1..] } else { response };
    let repeated = source.iter().copied().cycle().take(tokens);
    Row { tokens: prompt.iter().copied().chain(repeated).collect(), ..row.clone() }
}
