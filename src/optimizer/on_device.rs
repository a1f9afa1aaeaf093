//! AdamW on tensors, where the policy is: for policies that a processor's loops over plain values
//! would hold up. The same updates as [`crate::optimizer::AdamW`], element arithmetic in f32.

use crate::config::Optimizer;
use crate::ledger;
use crate::optimizer::Error;
use crate::optimizer::State;
use crate::optimizer::Tensors;
use crate::optimizer::Update;
use crate::optimizer::clip_coefficient;
use std::collections::BTreeMap;
use tch::Device;
use tch::Kind;
use tch::Tensor;

/// Tensors by name, all f32 and on one device.
pub type OnDevice = BTreeMap<String, Tensor>;

/// f32 weights and moments of a policy.
#[derive(Debug)]
pub struct DeviceAdamW {
    config: Optimizer,
    updates: u64,
    weights: OnDevice,
    /// m and v of each weight.
    moments: BTreeMap<String, [Tensor; 2]>,
}

impl DeviceAdamW {
    /// Goes on with weights, f32 and on one device, which are updated in place, and a kept state.
    ///
    /// # Panics
    /// When the state is of other tensors.
    pub fn new(config: &Optimizer, weights: OnDevice, state: &State) -> Self {
        let moment = |moments: &Tensors, name: &String, weight: &Tensor| match state.updates {
            0 => weight.zeros_like(),
            _ => Tensor::from_slice(&moments[name]).view_as(weight).to_device(weight.device()),
        };
        let moments = weights.iter().map(|(name, weight)| {
            let both = [&state.first_moments, &state.second_moments];
            (name.clone(), both.map(|moments| moment(moments, name, weight)))
        });
        Self { config: config.clone(), updates: state.updates, moments: moments.collect(), weights }
    }

    /// The f32 weights.
    pub fn weights(&self) -> &OnDevice {
        &self.weights
    }

    /// Updates so far.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// First and second moment of a tensor.
    ///
    /// # Panics
    /// When there is no such tensor.
    pub fn moments(&self, name: &str) -> [Vec<f32>; 2] {
        let [first, second] = &self.moments[name];
        [plain(first), plain(second)]
    }

    /// SHA-256 of the weights, and of the moments, as the ledger has them.
    pub fn digests(&self) -> [String; 2] {
        let moments = [0, 1].map(|which| {
            // Before the first update there are none.
            let made = if self.updates == 0 { 0 } else { self.moments.len() };
            let all: Vec<_> = self.moments.iter().take(made).collect();
            all.into_iter().map(move |(name, both)| (name, plain(&both[which])))
        });
        let weights = self.weights.iter().map(|(name, weight)| (name, plain(weight)));
        [ledger::each_tensor(weights), ledger::each_moment(self.updates, moments)]
    }

    /// One update in place. Gradients in the order of names; an undefined one counts as 0. Returns
    /// the global L2 norm before clipping.
    ///
    /// # Errors
    /// A gradient that is not finite; nothing is changed then.
    ///
    /// # Panics
    /// When there are not as many gradients as weights.
    pub fn step(&mut self, gradients: &[Tensor], learning_rate: f64) -> Result<f64, Error> {
        assert!(gradients.is_empty() || gradients.len() == self.weights.len(), "a gradient each");
        let norm = self.finite_norm(gradients)?;
        let scale = clip_coefficient(norm, self.config.max_gradient_norm);
        self.updates += 1;
        let update = Update::new(&self.config, learning_rate, self.updates);
        let mut gradients = gradients.iter();
        for (weight, moments) in self.weights.values_mut().zip(self.moments.values_mut()) {
            let zero;
            let gradient = match gradients.next() {
                Some(gradient) if gradient.defined() => gradient,
                _ => {
                    zero = weight.zeros_like();
                    &zero
                }
            };
            let [first, second] = &*moments;
            for rows in parts(weight) {
                let scaled = part(gradient, rows).to_kind(Kind::Float) * scale;
                let mut moments = [part(first, rows), part(second, rows)];
                update.apply_to(&mut part(weight, rows), &mut moments, &scaled);
            }
        }
        Ok(norm)
    }

    /// The squares of each part of a tensor are summed in f64 where they are; one number comes over.
    fn finite_norm(&self, gradients: &[Tensor]) -> Result<f64, Error> {
        let sum = |part: Tensor| part.square().sum(Kind::Double);
        let defined = gradients.iter().filter(|gradient| gradient.defined());
        let sums = |gradient| parts(gradient).map(move |rows| sum(part(gradient, rows)));
        let sums: Vec<Tensor> = defined.flat_map(sums).collect();
        if sums.is_empty() {
            return Ok(0.0);
        }
        let norm = Tensor::stack(&sums, 0).sum(Kind::Double).double_value(&[]).sqrt();
        if norm.is_finite() {
            return Ok(norm);
        }
        for (tensor, gradient) in self.weights.keys().zip(gradients) {
            if gradient.defined()
                && let Some(index) = plain(gradient).iter().position(|value| !value.is_finite())
            {
                let (tensor, count) = (tensor.clone(), gradient.numel());
                return Err(Error::NotFinite { tensor, index, count });
            }
        }
        Err(Error::NormOverflow)
    }
}

impl Update {
    /// [`Update::apply`] on all elements, in f32.
    fn apply_to(&self, weight: &mut Tensor, [first, second]: &mut [Tensor; 2], gradient: &Tensor) {
        let _ = first.lerp_(gradient, self.first_weight);
        *second *= self.beta2;
        *second += gradient.square() * self.second_weight;
        let root = second.sqrt() / self.second_correction_root + self.epsilon;
        *weight *= self.keep;
        *weight -= &*first / root * self.step_size;
    }
}

/// First row and number of rows of the parts of a tensor that are updated at once. What an update
/// computes on the way is as large as a part five times.
fn parts(tensor: &Tensor) -> impl Iterator<Item = (i64, i64)> {
    const NUMBERS: i64 = 1 << 24;
    let rows = tensor.size().first().copied().unwrap_or(1).max(1);
    let width = (tensor.numel() as i64 / rows).max(1);
    let size = (NUMBERS / width).max(1);
    (0..rows).step_by(size as usize).map(move |from| (from, size.min(rows - from)))
}

/// Some rows of a tensor, or its one number.
fn part(tensor: &Tensor, (from, count): (i64, i64)) -> Tensor {
    match tensor.dim() {
        0 => tensor.shallow_clone(),
        _ => tensor.narrow(0, from, count),
    }
}

/// A tensor's numbers.
pub fn plain(tensor: &Tensor) -> Vec<f32> {
    let flat = tensor.detach().to_kind(Kind::Float).to_device(Device::Cpu).contiguous();
    Vec::try_from(flat.flatten(0, -1)).expect("a dense f32 tensor")
}

#[cfg(test)]
mod tests;
