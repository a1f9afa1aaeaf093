//! One update: the loss of a mini-batch summed over its micro-batches, its gradient, clipping
//! and AdamW. Lines 10–11 of Algorithm 1, for one mini-batch.

use crate::algorithm::objective::{self, Sums};
use crate::algorithm::{
    Dapo, Kl, Row, SeenResponse, StepTotals, Tokens, WeightShift, aggregation, weight_shift,
};
use crate::base::{rng::Stream, workers};
use crate::numerics::{NumericsError, Tally, halving};
use crate::policy::batch::{self, Cut, Pass};
use crate::policy::{Gradients, Policy, Qwen2, UpdateScale, frozen};
use crate::training::UpdateError;
use tch::Tensor;

/// How every update of a run is made.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// The objective.
    pub dapo: &'a Dapo,
    /// Temperature at which the responses were sampled.
    pub temperature: f64,
    /// How the mini-batch is cut.
    pub cut: Cut,
}

/// The rows of a rollout step, what frozen policies say about them, and which of them this
/// update uses.
#[derive(Debug, Clone, Copy)]
pub struct MiniBatch<'a> {
    /// All rows of the step.
    pub rows: &'a [Row],
    /// Indices of this mini-batch's rows.
    pub members: &'a [usize],
    /// log π_old of each response token: one list for each row of the step.
    pub old_log_probs: &'a [Vec<f64>],
    /// log π_ref likewise, for a KL penalty.
    pub ref_log_probs: Option<&'a [Vec<f64>]>,
    /// The log-probs that the responses were sampled with, for a method that asks for them.
    pub sampler_log_probs: Option<&'a [Vec<f64>]>,
    /// Draws of a method that chooses among tokens.
    pub choice: &'a Stream,
    /// Totals of the step, for a normaliser that spans it.
    pub totals: StepTotals,
}

/// What an update was.
#[derive(Debug, Clone)]
pub struct Updated {
    /// Sums over the mini-batch's tokens; `loss` is −J of Eq. 8.
    pub sums: Sums,
    /// Global L2 norm of the gradient, before clipping.
    pub gradient_norm: f64,
    /// SHA-256 of the gradient before clipping, as the ledger has it.
    pub gradients_sha256: String,
    /// Loss weight that the aggregation moved between responses; `None` when all are masked.
    pub weight_shift: Option<WeightShift>,
    /// What rounding into windows changed; `None` under fast arithmetic.
    pub rounding: Option<Rounding>,
    /// Passes that memory did not hold and that were made in halves.
    pub passes_halved: u64,
}

/// What rounding into windows changed in an update.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rounding {
    /// Numbers of the policy's weights.
    pub weights: Tally,
    /// Numbers of the forward passes.
    pub activations: Tally,
    /// Numbers of the backward passes.
    pub gradients: Tally,
}

impl Rounding {
    /// Adds another update.
    pub fn add(&mut self, other: &Self) {
        self.weights.add(other.weights);
        self.activations.add(other.activations);
        self.gradients.add(other.gradients);
    }
}

/// Improves the policy on one mini-batch.
///
/// # Errors
/// When the loss, a gradient, or what the update would make of the weights and moments is not finite;
/// weights and moments are then unchanged.
pub fn update(
    policy: &mut Policy,
    batch: &MiniBatch,
    settings: &Settings,
    learning_rate: f64,
) -> Result<Updated, UpdateError> {
    let Cut { micro_batch_rollouts, pass_tokens } = settings.cut;
    let micro_batches = batch::micro_batches(batch.rows, batch.members, micro_batch_rollouts);
    let weights = row_weights(batch, &micro_batches, settings.dapo);
    let tokens = micro_batches.iter().flatten().map(|&row| batch.rows[row].loss_tokens());
    let weighted: Vec<(u64, f64)> = tokens.zip(weights.iter().flatten().copied()).collect();
    let weight_shift = weight_shift::weight_shift(&weighted);
    let scale = update_scale(batch, &micro_batches, &weights, settings.dapo);
    let mut passes = Vec::new();
    for (members, weights) in micro_batches.iter().zip(weights) {
        let mut weights = weights.into_iter();
        for members in batch::passes(batch.rows, members, pass_tokens) {
            passes.push(members.into_iter().zip(weights.by_ref()).collect::<Vec<Weighted>>());
        }
    }
    let looked = look(policy.model(), batch, settings)?;
    let marks = looked.as_ref().map(|looked| &looked.marks[..]);
    let add = |made: &mut UpdateMade, model: &Qwen2, rows: &[Weighted]| {
        let sums = pass(&mut made.gradients, model, batch, rows, marks, settings, scale)?;
        made.sums.add(&sums);
        Ok(())
    };
    let model = policy.model();
    let (UpdateMade { gradients, sums }, passes_halved) = if model.is_large() {
        // One set of gradients, which memory may end in the middle of a pass.
        let all = |passes: &[Vec<Weighted>]| {
            let mut made = UpdateMade::default();
            passes.iter().try_for_each(|rows| add(&mut made, model, rows))?;
            Ok::<UpdateMade, NumericsError>(made)
        };
        workers::together(|| halving::together(passes, all))?
    } else {
        let one = |model: &Qwen2, rows: &Vec<Weighted>| {
            let mut made = UpdateMade::default();
            add(&mut made, model, rows)?;
            Ok::<UpdateMade, NumericsError>(made)
        };
        let mut made = UpdateMade::default();
        for pass in workers::map(&passes, || model.share(), one) {
            let UpdateMade { gradients, sums } = pass?;
            made.sums.add(&sums);
            made.gradients.add(gradients);
        }
        (made, 0)
    };
    if !sums.loss.is_finite() {
        return Err(UpdateError::Loss(sums.loss));
    }
    if gradients.tallies().is_some_and(|[_, backward]| backward.not_finite) {
        return Err(UpdateError::Backward);
    }
    let tallies = policy.model().weight_tally().zip(gradients.tallies());
    let rounding = tallies.map(|(weights, [activations, gradients])| Rounding {
        weights,
        activations,
        gradients,
    });
    let passes_halved = passes_halved + looked.map_or(0, |looked| looked.passes_halved);
    let (gradients_sha256, gradient_norm) = policy.update(gradients, learning_rate)?;
    Ok(Updated { sums, gradient_norm, gradients_sha256, weight_shift, rounding, passes_halved })
}

/// What the method says before the update.
struct Looked {
    /// Of each token of the mini-batch, for each row of the step.
    marks: Vec<Vec<f64>>,
    passes_halved: u64,
}

/// `None` when the method does not look.
fn look(
    model: &Qwen2,
    batch: &MiniBatch,
    settings: &Settings,
) -> Result<Option<Looked>, NumericsError> {
    let rules = settings.dapo.rules();
    if !rules.looks_ahead() {
        return Ok(None);
    }
    let (rows, members) = (batch.rows, batch.members);
    let frozen = frozen::read_members(model, rows, members, settings.temperature, settings.cut)?;
    let responses: Vec<SeenResponse> = members
        .iter()
        .map(|&row| SeenResponse {
            log_probs: &frozen.log_probs[row],
            old_log_probs: &batch.old_log_probs[row],
            entropy: &frozen.entropy[row],
            advantage: rows[row].advantage,
            in_loss: rows[row].in_loss,
        })
        .collect();
    let mut choice = batch.choice.clone();
    let made = rules.marks(&responses, settings.dapo, &mut || choice.uniform());
    let mut marks = vec![Vec::new(); rows.len()];
    for (&row, made) in members.iter().zip(made) {
        marks[row] = made;
    }
    Ok(Some(Looked { marks, passes_halved: frozen.passes_halved }))
}

/// A row by its index, and its weight in the loss.
type Weighted = (usize, f64);

/// What passes add up to.
#[derive(Default)]
struct UpdateMade {
    gradients: Gradients,
    sums: Sums,
}

/// Adds the gradients of one pass, and returns the sums over its tokens.
fn pass(
    gradients: &mut Gradients,
    model: &Qwen2,
    batch: &MiniBatch,
    rows: &[Weighted],
    marks: Option<&[Vec<f64>]>,
    settings: &Settings,
    scale: UpdateScale,
) -> Result<Sums, NumericsError> {
    let (members, row_weights): (Vec<usize>, Vec<f64>) = rows.iter().copied().unzip();
    let pass = Pass::new(batch.rows, &members);
    let chosen = |values: &[Vec<f64>], kind| {
        let values: Vec<f64> = members.iter().flat_map(|&row| &values[row]).copied().collect();
        Tensor::from_slice(&values).unsqueeze(-1).to_kind(kind)
    };
    pass.add_gradients(gradients, model, settings.temperature, scale, |log_probs| {
        let log_probs = log_probs.unsqueeze(-1);
        let kind = log_probs.kind();
        let of_tokens = |values: Option<&[Vec<f64>]>| values.map(|values| chosen(values, kind));
        let (reference, sampler) =
            (of_tokens(batch.ref_log_probs), of_tokens(batch.sampler_log_probs));
        let marks = of_tokens(marks);
        // The objective's rows are tokens here, each with the weight of its response.
        let tokens = Tokens {
            log_probs: &log_probs,
            old_log_probs: &chosen(batch.old_log_probs, kind),
            ref_log_probs: reference.as_ref(),
            sampler_log_probs: sampler.as_ref(),
            marks: marks.as_ref(),
            advantages: &pass.advantages.unsqueeze(-1).to_kind(kind),
            response_mask: &pass.loss_mask.unsqueeze(-1),
            row_weights: &pass.for_each_token(&row_weights),
            response_lengths: pass.lengths(),
            numerics: model.numerics(),
        };
        let objective = objective::objective(&tokens, settings.dapo);
        (objective.loss, objective.sums)
    })
}

/// What every pass of the mini-batch shares, whatever the cut: the largest weight of a log-prob
/// in the loss at ratio 1, and the number of tokens.
fn update_scale(
    batch: &MiniBatch,
    micro_batches: &[Vec<usize>],
    weights: &[Vec<f64>],
    dapo: &Dapo,
) -> UpdateScale {
    let penalty = match dapo.kl {
        Kl::None {} => 0.0,
        Kl::Penalty { coefficient, .. } => coefficient,
    };
    let weighted = micro_batches.iter().flatten().zip(weights.iter().flatten());
    let largest_weight = weighted
        .map(|(&row, weight)| weight * (batch.rows[row].advantage.abs() + penalty))
        .fold(0.0, f64::max);
    let tokens = batch.members.iter().map(|&row| batch.rows[row].tokens.len()).sum();
    UpdateScale { largest_weight, tokens }
}

/// Weights of each micro-batch's rows. The normaliser spans the mini-batch or more, so it is
/// computed before the rows are looked at one micro-batch at a time.
fn row_weights(batch: &MiniBatch, micro_batches: &[Vec<usize>], dapo: &Dapo) -> Vec<Vec<f64>> {
    let mut described = Vec::new();
    for (micro_batch, members) in micro_batches.iter().enumerate() {
        described.extend(members.iter().map(|&row| aggregation::ResponseRow {
            tokens: batch.rows[row].loss_tokens(),
            group: batch.rows[row].group,
            micro_batch,
        }));
    }
    let weights = dapo.rules().row_weights(&described, dapo, batch.totals);
    let mut weights = weights.into_iter();
    micro_batches.iter().map(|members| weights.by_ref().take(members.len()).collect()).collect()
}
