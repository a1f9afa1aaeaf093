//! AdamW, gradient clipping, learning-rate schedule; the state is our own so that a run can be resumed exactly. Loops
//! in tensor-name order, f64 arithmetic, one rounding to f32 per stored number: no machine changes a bit.

pub mod on_device;

use crate::base::workers;
use crate::experiment::{Optimizer, WarmUpStart};
use crate::numerics::vectorised::vectorised;
use crate::policy::OptimizerError;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Values by tensor name. The order of names is the order of every sum.
pub type OptimizerTensors = BTreeMap<String, Vec<f32>>;

#[derive(Debug)]
pub struct Stepped {
    /// Global L2 norm of the gradients before clipping.
    pub norm: f64,
    /// What to go back to when a product of two new weights is not finite; `None` where all surely are.
    pub before: Option<BeforeStep>,
}

/// Weights and state before an update.
pub type BeforeStep = (OptimizerTensors, Arc<OptimizerState>);

/// What has to be kept to resume.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OptimizerState {
    /// Updates made so far: t of the bias corrections.
    pub updates: u64,
    /// m by tensor name, as v below; empty before the first update.
    pub first_moments: OptimizerTensors,
    pub second_moments: OptimizerTensors,
}

/// AdamW's state as a checkpoint writes it, one tensor at a time: all together are twice as large as the policy.
pub trait Moments {
    fn updates(&self) -> u64;

    /// First and second moment of a tensor. Asked for after the first update.
    fn of(&self, name: &str) -> [Vec<f32>; 2];
}

impl Moments for OptimizerState {
    fn updates(&self) -> u64 {
        self.updates
    }

    fn of(&self, name: &str) -> [Vec<f32>; 2] {
        [self.first_moments[name].clone(), self.second_moments[name].clone()]
    }
}

/// AdamW with decoupled weight decay on all parameters and clipping of the global gradient norm:
/// `torch.nn.utils.clip_grad_norm_` followed by one step of `torch.optim.AdamW` with one parameter group.
#[derive(Debug, Clone)]
pub struct AdamW {
    config: Optimizer,
    /// Twice as large as the policy: a checkpoint that is being written shares it.
    state: Arc<OptimizerState>,
    /// The largest moment as [`size`], where it is known.
    largest: Option<u32>,
}

impl AdamW {
    pub fn new(config: &Optimizer) -> Self {
        Self::from_state(config, OptimizerState::default())
    }

    pub fn from_state(config: &Optimizer, state: impl Into<Arc<OptimizerState>>) -> Self {
        Self { config: config.clone(), state: state.into(), largest: None }
    }

    pub fn state(&self) -> &Arc<OptimizerState> {
        &self.state
    }

    /// One update in place; weights and state are copied first only where a result might not be finite. Errors: a
    /// gradient, new weight or moment that is not finite; nothing is changed then. Panics when tensors do not match.
    /// Deviation: the released code skips an update whose norm is not finite (verl/workers/actor/dp_actor.py:410-414).
    pub fn step(
        &mut self,
        parameters: &mut OptimizerTensors,
        gradients: &OptimizerTensors,
        learning_rate: f64,
    ) -> Result<Stepped, OptimizerError> {
        assert!(are_alike(parameters, gradients), "a gradient for each weight");
        if self.state.updates > 0 {
            let moments = [&self.state.first_moments, &self.state.second_moments];
            let are_all = moments.iter().all(|moments| are_alike(parameters, moments));
            assert!(are_all, "both moments for each weight");
        }
        // No gradient is larger than the norm.
        let norm = finite_norm(gradients)?;
        let is_sure = self.stays_small(parameters, norm, learning_rate);
        let before = (!is_sure).then(|| (parameters.clone(), self.state.clone()));
        let state = Arc::make_mut(&mut self.state);
        if state.updates == 0 {
            // Written at once: new memory that is read first is mapped twice.
            let zeros = |(name, values): (&String, &Vec<f32>)| {
                let mut zeros = Vec::new();
                zeros.resize(values.len(), 0.0);
                (name.clone(), zeros)
            };
            state.first_moments = parameters.iter().map(zeros).collect();
            state.second_moments = parameters.iter().map(zeros).collect();
        }
        state.updates += 1;
        let scale = clip_coefficient(norm, self.config.max_gradient_norm);
        let update = Update::new(&self.config, learning_rate, state.updates);
        const PART: usize = 1 << 14;
        let mut parts = Vec::new();
        let moments = state.first_moments.values_mut().zip(state.second_moments.values_mut());
        for ((values, gradients), (first, second)) in
            parameters.values_mut().zip(gradients.values()).zip(moments)
        {
            let moments = first.chunks_mut(PART).zip(second.chunks_mut(PART));
            let values = values.chunks_mut(PART).zip(gradients.chunks(PART));
            parts.extend(values.zip(moments).map(|part| (part, 0)));
        }
        workers::by_rows(&mut parts, 1, |_, parts| {
            for (((values, gradients), (first, second)), most) in parts {
                *most = update.apply_all(values, first, second, gradients, scale);
            }
        });
        self.largest = parts.iter().map(|(_, most)| *most).max();
        let Some(before) = before else { return Ok(Stepped { norm, before: None }) };
        let of_weights = check_finite("weight", parameters);
        let of_moments = || check_finite("first moment", &self.state.first_moments);
        let of_second = |()| check_finite("second moment", &self.state.second_moments);
        if let Err(error) = of_weights.and_then(|()| of_moments()).and_then(of_second) {
            *parameters = self.go_back(before);
            return Err(error);
        }
        Ok(Stepped { norm, before: Some(before) })
    }

    /// The weights before an update, whose moments are the optimiser's again.
    pub fn go_back(&mut self, (parameters, state): BeforeStep) -> OptimizerTensors {
        (self.state, self.largest) = (state, None);
        parameters
    }

    /// Whether no number is so large that one of the next update, or a product of two new weights, might not be finite.
    fn stays_small(
        &mut self,
        parameters: &OptimizerTensors,
        norm: f64,
        learning_rate: f64,
    ) -> bool {
        // A step moves a weight by at most η / (1 − β₁) · |m| / ε: less than 1e17.
        const LARGEST: f32 = 1e6;
        let OptimizerState { first_moments, second_moments, .. } = &*self.state;
        let look = || largest(first_moments).max(largest(second_moments));
        let of_moments = self.largest.take().unwrap_or_else(look);
        let moves = learning_rate / (1.0 - self.config.beta1);
        of_moments.max(largest(parameters)) <= size(LARGEST)
            && norm <= f64::from(LARGEST)
            && self.config.epsilon >= 1e-10
            && (0.0..=1e1).contains(&moves)
    }
}

/// The factor of `torch.nn.utils.clip_grad_norm_`: `max_norm / (norm + 1e-6)`, at most 1.
pub fn clip_coefficient(norm: f64, max_norm: f64) -> f64 {
    /// torch's guard against division by 0.
    const GUARD: f64 = 1e-6;
    let coefficient = max_norm / (norm + GUARD);
    // `f64::min` would hide a NaN.
    if coefficient > 1.0 { 1.0 } else { coefficient }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Element {
    pub parameter: f64,
    pub first_moment: f64,
    pub second_moment: f64,
}

#[derive(Debug, Clone, Copy)]
pub struct Update {
    keep: f64,
    first_weight: f64,
    beta2: f64,
    second_weight: f64,
    step_size: f64,
    second_correction_root: f64,
    epsilon: f64,
}

impl Update {
    /// The constants of update number `updates`, from 1.
    pub fn new(config: &Optimizer, learning_rate: f64, updates: u64) -> Self {
        let t = updates as f64;
        Self {
            keep: 1.0 - learning_rate * config.weight_decay,
            first_weight: 1.0 - config.beta1,
            beta2: config.beta2,
            second_weight: 1.0 - config.beta2,
            step_size: learning_rate / (1.0 - libm::pow(config.beta1, t)),
            second_correction_root: (1.0 - libm::pow(config.beta2, t)).sqrt(),
            epsilon: config.epsilon,
        }
    }

    /// [`Update::apply`] to every element, with gradients times `scale`. Returns the largest new moment as [`size`].
    fn apply_all(
        &self,
        parameters: &mut [f32],
        first: &mut [f32],
        second: &mut [f32],
        gradients: &[f32],
        scale: f64,
    ) -> u32 {
        vectorised(
            #[inline(always)]
            || {
                let mut most = 0;
                let moments = first.iter_mut().zip(second.iter_mut());
                let values = parameters.iter_mut().zip(gradients);
                for ((parameter, gradient), (first, second)) in values.zip(moments) {
                    let before = Element {
                        parameter: f64::from(*parameter),
                        first_moment: f64::from(*first),
                        second_moment: f64::from(*second),
                    };
                    let after = self.apply(before, f64::from(*gradient) * scale);
                    *parameter = after.parameter as f32;
                    *first = after.first_moment as f32;
                    *second = after.second_moment as f32;
                    most = size(*first).max(size(*second)).max(most);
                }
                most
            },
        )
    }

    /// `torch.optim.AdamW` on one element, in torch's order of operations:
    /// ```text
    /// θ ← θ (1 − η λ)      m ← m + (1 − β₁)(g − m)      v ← β₂ v + (1 − β₂) g²
    /// θ ← θ − η/(1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)
    /// ```
    #[inline(always)]
    pub fn apply(&self, element: Element, gradient: f64) -> Element {
        let Element { parameter, first_moment, second_moment } = element;
        let first_moment = first_moment + self.first_weight * (gradient - first_moment);
        let second_moment = second_moment * self.beta2 + self.second_weight * gradient * gradient;
        let root = second_moment.sqrt() / self.second_correction_root + self.epsilon;
        let parameter = parameter * self.keep - self.step_size * (first_moment / root);
        Element { parameter, first_moment, second_moment }
    }
}

/// How far some updates of AdamW can move a weight, whatever the gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateReach {
    /// Σ η c_t, each times what later updates keep of it.
    moved: f64,
    /// |1 − Π (1 − η λ)|: the share that weight decay takes.
    decayed: f64,
    /// How much larger a weight may have been on the way: more than 1 where η λ is above 2.
    grown: f64,
    updates: u64,
}

impl UpdateReach {
    /// Of updates with these learning rates η that follow on `before` others. By the inequality of
    /// Cauchy and Schwarz, |m_t| ≤ (1 − β₁)/√(1 − β₂) · √(Σ_{k<t} (β₁²/β₂)ᵏ) · √v_t, so that update t
    /// moves a weight by at most η c_t with
    /// ```text
    /// c_t = (1 − β₁)/√(1 − β₂) · √(Σ_{k<t} (β₁²/β₂)ᵏ) · √(1 − β₂ᵗ)/(1 − β₁ᵗ)
    /// ```
    /// c_1 is 1, and c_∞ is 7.3 for β₁ = 0.9, β₂ = 0.999.
    pub fn of(config: &Optimizer, before: u64, rates: &[f64]) -> Self {
        let ratio = config.beta1 * config.beta1 / config.beta2;
        let geometric =
            |t: f64| if ratio == 1.0 { t } else { (1.0 - libm::pow(ratio, t)) / (1.0 - ratio) };
        let scale = (1.0 - config.beta1) / (1.0 - config.beta2).sqrt();
        let (mut moved, mut kept, mut grown) = (0.0, 1.0, 1.0f64);
        for (rate, t) in rates.iter().zip(before + 1..) {
            let t = t as f64;
            let corrections =
                (1.0 - libm::pow(config.beta2, t)).sqrt() / (1.0 - libm::pow(config.beta1, t));
            let keep: f64 = 1.0 - rate * config.weight_decay;
            moved = moved * keep.abs() + rate * scale * geometric(t).sqrt() * corrections;
            kept *= keep;
            grown *= keep.abs().max(1.0);
        }
        Self { moved, decayed: f64::abs(1.0 - kept), grown, updates: rates.len() as u64 }
    }

    /// The largest change of a weight with this value. Each update rounds to f32.
    pub fn from(&self, weight: f64) -> f64 {
        let weight = weight.abs();
        let rounding = 2.0 * f64::from(f32::EPSILON) * self.updates as f64;
        1.001 * self.moved + self.decayed * weight + rounding * (self.grown * weight + self.moved)
    }
}

/// The learning rate of a rollout step, counted from 0: linear warm-up, then constant. With [`WarmUpStart::FirstStep`]
/// the factor is `(step + 1) / length`, with [`WarmUpStart::Zero`] it is `step / length`
/// (verl/utils/torch_functional.py:752-774), both at most 1. All updates of a rollout step share the rate.
pub fn learning_rate(config: &Optimizer, rollout_step: u64) -> f64 {
    let length = config.warm_up.rollout_steps;
    let reached = match config.warm_up.start {
        WarmUpStart::FirstStep => rollout_step + 1,
        WarmUpStart::Zero => rollout_step,
    };
    if reached >= length {
        return config.learning_rate;
    }
    config.learning_rate * (reached as f64 / length as f64)
}

/// Bits without the sign, which are in the order of sizes, NaN above all.
fn size(x: f32) -> u32 {
    x.abs().to_bits()
}

/// The largest number as [`size`].
fn largest(tensors: &OptimizerTensors) -> u32 {
    let all: Vec<&Vec<f32>> = tensors.values().collect();
    let most = |x: &&Vec<f32>| x.iter().fold(0, |most, x| size(*x).max(most));
    workers::in_parts(&all, most).into_iter().max().unwrap_or(0)
}

/// The L2 norm of all elements as one f64 sum, in the order of names.
fn finite_norm(gradients: &OptimizerTensors) -> Result<f64, OptimizerError> {
    let squares = |sum, tensor: &Vec<f32>| {
        tensor.iter().fold(sum, |sum: f64, element| sum + f64::from(*element) * f64::from(*element))
    };
    let norm = gradients.values().fold(0.0, squares).sqrt();
    if norm.is_finite() {
        return Ok(norm);
    }
    // The square of an f32 cannot overflow f64: some element is not finite itself.
    let error = gradients.iter().find_map(|(tensor, values)| not_finite(tensor, values));
    Err(error.expect("a sum of squares of finite f32 values is finite"))
}

/// The first number of a gradient that is not finite.
fn not_finite(tensor: &str, values: &[f32]) -> Option<OptimizerError> {
    let index = values.iter().position(|value| !value.is_finite())?;
    let (tensor, count) = (tensor.to_string(), values.len());
    Some(OptimizerError::NotFinite { tensor, index, count })
}

fn check_finite(what: &'static str, tensors: &OptimizerTensors) -> Result<(), OptimizerError> {
    for (tensor, values) in tensors {
        // Without a branch for each number, so that the loop is compiled to vectors.
        if !values.iter().fold(true, |all, value| all & value.is_finite()) {
            return Err(OptimizerError::Overflow { what, tensor: tensor.clone() });
        }
    }
    Ok(())
}

/// Whether gradients or moments are of the same tensors as the weights.
fn are_alike(parameters: &OptimizerTensors, others: &OptimizerTensors) -> bool {
    let mut pairs = parameters.iter().zip(others);
    parameters.len() == others.len()
        && pairs.all(|((name, ours), (other, theirs))| name == other && ours.len() == theirs.len())
}

#[cfg(test)]
mod tests;
