//! One update (Algorithm 1, lines 10–11): a mini-batch's loss summed over micro-batches, gradient, clipping, AdamW.

use crate::algorithm::objective::{self, Objective, Sums};
use crate::algorithm::{
    Dapo, Kl, Row, SeenResponse, StepTotals, Tokens, WeightShift, aggregation, weight_shift,
};
use crate::base::{rng::Stream, workers};
use crate::numerics::{Numerics, NumericsError, Tally, halving};
use crate::policy::batch::{self, Cut, Pass};
use crate::policy::{Gradients, Policy, Qwen2, UpdateScale, frozen};
use crate::training::UpdateError;
use tch::{Kind, Tensor};

#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    pub dapo: &'a Dapo,
    pub temperature: f64,
    pub cut: Cut,
}

/// The rows of a rollout step, their log-probs under frozen policies, and the update's members.
#[derive(Debug, Clone, Copy)]
pub struct MiniBatch<'a> {
    pub rows: &'a [Row],
    pub members: &'a [usize],
    /// log π_old: one list for each row of the step.
    pub old_log_probs: &'a [Vec<f64>],
    /// log π_ref likewise, for a KL penalty.
    pub ref_log_probs: Option<&'a [Vec<f64>]>,
    /// log-probs of sampling, for a method that asks for them.
    pub sampler_log_probs: Option<&'a [Vec<f64>]>,
    /// A method that chooses among tokens draws from it.
    pub choice: &'a Stream,
    /// A normaliser that spans the step needs them.
    pub totals: StepTotals,
}

#[derive(Debug, Clone)]
pub struct Updated {
    /// Over the mini-batch's tokens; `loss` is −J of Eq. 8.
    pub sums: Sums,
    /// Global L2 norm before clipping.
    pub gradient_norm: f64,
    /// Before clipping, as in the ledger.
    pub gradients_sha256: String,
    /// Loss weight moved between responses by the aggregation; `None` when all are masked.
    pub weight_shift: Option<WeightShift>,
    /// `None` under fast arithmetic.
    pub rounding: Option<Rounding>,
    /// Distance between the native engine's log-probs and π_old.
    pub distance: Distance,
    /// Passes that were halved because memory did not hold them.
    pub passes_halved: u64,
}

/// Distance between log-probs of the same tokens, in nats.
#[derive(Debug, Clone, Copy, Default)]
pub struct Distance {
    pub sum: f64,
    pub most: f64,
}

impl Distance {
    fn add(&mut self, distance: f64) {
        self.sum += distance;
        self.most = self.most.max(distance);
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rounding {
    pub weights: Tally,
    pub activations: Tally,
    pub gradients: Tally,
}

impl Rounding {
    pub fn add(&mut self, other: &Self) {
        self.weights.add(other.weights);
        self.activations.add(other.activations);
        self.gradients.add(other.gradients);
    }
}

/// Errors: a loss, gradient, updated weight or moment that is not finite; weights and moments are then unchanged.
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
    let marks = looked.as_ref().map(|(marks, _)| &marks[..]);
    let work = Work { batch, marks, settings, scale };
    let (Accumulated { gradients, sums, distance }, passes_halved) = if policy.model().is_native() {
        (work.in_the_native_engine(policy.model(), &passes)?, 0)
    } else {
        work.in_libtorch(policy.model(), passes)?
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
    let passes_halved = passes_halved + looked.map_or(0, |(_, halved)| halved);
    let (gradients_sha256, gradient_norm) = policy.update(gradients, learning_rate)?;
    Ok(Updated {
        sums,
        gradient_norm,
        gradients_sha256,
        weight_shift,
        rounding,
        distance,
        passes_halved,
    })
}

/// One value for each token, by row of the step, and the halved passes.
type Looked = (Vec<Vec<f64>>, u64);

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
    let of_members = rules.marks(&responses, settings.dapo, &mut || choice.uniform());
    let mut marks = vec![Vec::new(); rows.len()];
    for (&row, of_row) in members.iter().zip(of_members) {
        marks[row] = of_row;
    }
    Ok(Some((marks, frozen.passes_halved)))
}

/// Index of a row, and its weight in the loss.
type Weighted = (usize, f64);

#[derive(Default)]
struct Accumulated {
    gradients: Gradients,
    sums: Sums,
    distance: Distance,
}

#[derive(Clone, Copy)]
struct Work<'a> {
    batch: &'a MiniBatch<'a>,
    marks: Option<&'a [Vec<f64>]>,
    settings: &'a Settings<'a>,
    scale: UpdateScale,
}

impl Work<'_> {
    /// Accumulates one set of gradients. Memory may end within a pass: returns the halved passes, too.
    fn in_libtorch(
        self,
        model: &Qwen2,
        passes: Vec<Vec<Weighted>>,
    ) -> Result<(Accumulated, u64), NumericsError> {
        let all = |passes: &[Vec<Weighted>]| {
            let mut accumulated = Accumulated::default();
            for rows in passes {
                let (members, weights): (Vec<usize>, Vec<f64>) = rows.iter().copied().unzip();
                let pass = Pass::new(self.batch.rows, &members, false);
                let loss = |log_probs: &Tensor| {
                    let Objective { loss, sums, .. } =
                        self.objective(&pass, &members, &weights, log_probs, model);
                    (loss, sums)
                };
                let (sums, temperature) = (&mut accumulated.gradients, self.settings.temperature);
                let added =
                    model.add_gradients(sums, &pass.sequences, temperature, self.scale, loss);
                accumulated.sums.add(&added?);
            }
            Ok::<Accumulated, NumericsError>(accumulated)
        };
        workers::together(|| halving::together(passes, all))
    }

    /// Threads take passes of their own cut. Sums over tokens follow `passes`, whose order decides the rounding.
    fn in_the_native_engine(
        self,
        model: &Qwen2,
        passes: &[Vec<Weighted>],
    ) -> Result<Accumulated, NumericsError> {
        let Self { batch, settings, scale, .. } = self;
        let mut weights = vec![0.0; batch.rows.len()];
        passes.iter().flatten().for_each(|&(row, weight)| weights[row] = weight);
        // A prompt's rounded gradient depends on its responses.
        let shares = model.numerics() == Numerics::Fast;
        // Rows of a group that is all right or all wrong; without a penalty they have no gradient, and only go forward.
        let is_idle = |row: &usize| batch.rows[*row].advantage == 0.0 || !batch.rows[*row].in_loss;
        let (idle, useful): (Vec<usize>, Vec<usize>) =
            batch.members.iter().partition(|row| shares && is_idle(row));
        let (tokens, at_once) = (settings.cut.pass_tokens, model.side_by_side());
        let penalised = settings.dapo.kl != Kl::None {};
        // A method may have a penalty of its own.
        let are_idle_alike = !penalised && settings.dapo.method.is_none();
        // The numbers of a forward pass do not depend on the cut: short passes, after which threads end together.
        let idle_tokens = if are_idle_alike && at_once > 1 { tokens / 2 } else { tokens };
        let cut =
            [(useful, tokens), (idle, idle_tokens)].into_iter().flat_map(|(members, tokens)| {
                batch::balanced(batch.rows, &members, tokens, at_once, shares)
            });
        let cut: Vec<Vec<usize>> = cut.collect();
        let only_forward = |members: &[usize]| shares && !penalised && members.iter().all(is_idle);
        let work = |members: &[usize]| {
            let forward = batch::fed_tokens(batch.rows, members, shares);
            if only_forward(members) { forward } else { 3 * forward }
        };
        let add = |model: &Qwen2, members: &[usize], sums: &mut Gradients| {
            let mut pass = Pass::new(batch.rows, members, shares);
            pass.sequences.without_gradient = only_forward(members);
            let weights: Vec<f64> = members.iter().map(|&row| weights[row]).collect();
            let loss = |log_probs: &Tensor| {
                let loss = if pass.sequences.without_gradient && are_idle_alike {
                    (log_probs * 0.0).sum(log_probs.kind())
                } else {
                    self.objective(&pass, members, &weights, log_probs, model).loss
                };
                (loss, pass.by_row(&log_probs.detach()))
            };
            model.add_gradients(sums, &pass.sequences, settings.temperature, scale, loss)
        };
        let (gradients, of_passes) = batch::sum_of_passes(model, &cut, work, add)?;
        let mut accumulated = Accumulated { gradients, ..Accumulated::default() };
        let mut log_probs = vec![Vec::new(); batch.rows.len()];
        for (members, of_rows) in cut.iter().zip(of_passes) {
            members.iter().zip(of_rows).for_each(|(&row, of_row)| log_probs[row] = of_row);
        }
        let sums = |model: &Qwen2, rows: &Vec<Weighted>| {
            let _no_graph = tch::no_grad_guard();
            let (members, weights): (Vec<usize>, Vec<f64>) = rows.iter().copied().unzip();
            let log_probs = chosen(&log_probs, &members, Kind::Double).squeeze_dim(-1);
            let pass = Pass::new(batch.rows, &members, false);
            self.objective(&pass, &members, &weights, &log_probs, model).sums
        };
        for sums in workers::map(passes, || model.share(), sums) {
            accumulated.sums.add(&sums);
        }
        for &row in batch.members {
            for (ours, theirs) in log_probs[row].iter().zip(&batch.old_log_probs[row]) {
                accumulated.distance.add((ours - theirs).abs());
            }
        }
        Ok(accumulated)
    }

    /// Rows are tokens, each with its response's weight.
    fn objective(
        self,
        pass: &Pass,
        members: &[usize],
        row_weights: &[f64],
        log_probs: &Tensor,
        model: &Qwen2,
    ) -> Objective {
        let Self { batch, marks, settings, .. } = self;
        let log_probs = log_probs.unsqueeze(-1);
        let kind = log_probs.kind();
        let of_tokens =
            |values: Option<&[Vec<f64>]>| values.map(|values| chosen(values, members, kind));
        let (reference, sampler) =
            (of_tokens(batch.ref_log_probs), of_tokens(batch.sampler_log_probs));
        let marks = of_tokens(marks);
        let tokens = Tokens {
            log_probs: &log_probs,
            old_log_probs: &chosen(batch.old_log_probs, members, kind),
            ref_log_probs: reference.as_ref(),
            sampler_log_probs: sampler.as_ref(),
            marks: marks.as_ref(),
            advantages: &pass.advantages.unsqueeze(-1).to_kind(kind),
            response_mask: &pass.loss_mask.unsqueeze(-1),
            row_weights: &pass.for_each_token(row_weights),
            response_lengths: &pass.lengths,
            numerics: if model.is_native() { Numerics::Exact } else { Numerics::Fast },
        };
        objective::objective(&tokens, settings.dapo)
    }
}

/// One value for each response token, `[tokens, 1]`.
fn chosen(values: &[Vec<f64>], members: &[usize], kind: Kind) -> Tensor {
    let values: Vec<f64> = members.iter().flat_map(|&row| &values[row]).copied().collect();
    Tensor::from_slice(&values).unsqueeze(-1).to_kind(kind)
}

/// The same for any cut: the largest weight of a log-prob in the loss at ratio 1, and the number of tokens.
fn update_scale(
    batch: &MiniBatch,
    micro_batches: &[Vec<usize>],
    weights: &[Vec<f64>],
    dapo: &Dapo,
) -> UpdateScale {
    let of_kl = match dapo.kl {
        Kl::None {} => 0.0,
        Kl::Penalty { coefficient, .. } => coefficient,
    };
    let penalty = of_kl + dapo.rules().penalty_weight();
    let weighted = micro_batches.iter().flatten().zip(weights.iter().flatten());
    let largest_weight = weighted
        .map(|(&row, weight)| weight * (batch.rows[row].advantage.abs() + penalty))
        .fold(0.0, f64::max);
    let tokens = batch.members.iter().map(|&row| batch.rows[row].tokens.len()).sum();
    UpdateScale { largest_weight, tokens }
}

/// One list a micro-batch. The normaliser spans the mini-batch or more, so it is computed first.
fn row_weights(batch: &MiniBatch, micro_batches: &[Vec<usize>], dapo: &Dapo) -> Vec<Vec<f64>> {
    let mut described = Vec::new();
    for (micro_batch, members) in micro_batches.iter().enumerate() {
        described.extend(members.iter().map(|&row| aggregation::ResponseRow {
            tokens: batch.rows[row].loss_tokens(),
            group: batch.rows[row].group,
            micro_batch,
        }));
    }
    let mut weights = dapo.rules().row_weights(&described, dapo, batch.totals).into_iter();
    micro_batches.iter().map(|members| weights.by_ref().take(members.len()).collect()).collect()
}
