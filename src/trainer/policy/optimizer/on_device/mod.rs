//! AdamW on tensors, on the policy's device: for policies that are too large for loops over plain
//! values. The same updates as [`crate::policy::optimizer::AdamW`], with element arithmetic in f32.

use crate::experiment::Optimizer;
use crate::numerics::fast;
use crate::numerics::flat::{Part, Parts};
use crate::policy::digests;
use crate::policy::optimizer::{self, OptimizerError, OptimizerState, clip_coefficient};
use crate::policy::{Element, Moments, Update};
use std::collections::BTreeMap;
use tch::{Device, Kind, Tensor};

/// Tensors by name, all f32, contiguous and on one device.
pub type OnDevice = BTreeMap<String, Tensor>;

#[derive(Debug)]
pub struct DeviceAdamW {
    config: Optimizer,
    updates: u64,
    weights: OnDevice,
    /// Of the weights' numbers.
    parts: Parts,
    /// m and v of all weights in the order of names, flat.
    moments: [Tensor; 2],
}

impl DeviceAdamW {
    /// Goes on with weights, which are updated in place, and a kept state.
    pub fn new(config: &Optimizer, weights: OnDevice, state: &OptimizerState) -> Self {
        let parts = Parts::of(weights.values().map(Tensor::numel));
        let total: usize = weights.values().map(Tensor::numel).sum();
        let device = weights.values().next().map_or(Device::Cpu, Tensor::device);
        let both = [&state.first_moments, &state.second_moments];
        let moments = both.map(|moments| {
            let all = Tensor::zeros([total as i64], (Kind::Float, device));
            if state.updates > 0 {
                let mut at = 0;
                for name in weights.keys() {
                    let moment = Tensor::from_slice(&moments[name]);
                    let count = moment.numel() as i64;
                    all.narrow(0, at, count).copy_(&moment);
                    at += count;
                }
            }
            all
        });
        Self { config: config.clone(), updates: state.updates, weights, parts, moments }
    }

    pub fn weights(&self) -> &OnDevice {
        &self.weights
    }

    /// Digests of the weights, and of the moments, as the ledger has them.
    pub fn digests(&self) -> [String; 2] {
        // Before the first update there are none.
        let count = if self.updates == 0 { 0 } else { self.weights.len() };
        let sizes: Vec<i64> = self.weights.values().map(|weight| weight.numel() as i64).collect();
        let moments = self
            .moments
            .each_ref()
            .map(|all| self.weights.keys().zip(all.split_with_sizes(&sizes, 0)).take(count));
        let how = digests::of_device(self.device());
        let weights = digests::tensors(digests::shared(&self.weights), how);
        [weights, digests::moments(self.updates, moments, how)]
    }

    fn device(&self) -> Device {
        self.moments[0].device()
    }

    /// One update in place. Gradients in the order of names; an undefined one counts as 0. Returns the global L2 norm
    /// before clipping. Errors: a gradient, or a new weight or moment, that is not finite; nothing is changed then.
    pub fn step(
        &mut self,
        gradients: &[Tensor],
        learning_rate: f64,
    ) -> Result<f64, OptimizerError> {
        assert!(gradients.is_empty() || gradients.len() == self.weights.len(), "a gradient each");
        let norm = self.finite_norm(gradients)?;
        let scale = clip_coefficient(norm, self.config.max_gradient_norm);
        let update = Update::new(&self.config, learning_rate, self.updates + 1);
        let weights: Vec<&Tensor> = self.weights.values().collect();
        let updated = |part: Part, moments: &mut [Tensor; 2]| {
            let mut weight = part.gathered(self.device(), |tensor| Some(weights[tensor]));
            let gradient = part.gathered(self.device(), |tensor| defined(gradients, tensor));
            update.apply_to(&mut weight, moments, &(gradient * scale));
            weight
        };
        // A copy of weights and moments may not fit beside them. Only when their sizes are near
        // f32's largest number is the update first tried on copies, part by part.
        if !update.stays_finite(self.largest(), norm * scale) {
            for (part, first) in self.parts.iter() {
                let mut moments = self.of_part(part, first).map(|moment| moment.copy());
                let weight = updated(part, &mut moments);
                let [first, second] = &moments;
                for (what, new) in
                    [("weight", &weight), ("first moment", first), ("second moment", second)]
                {
                    if let Some(tensor) = self.not_finite(part, new) {
                        return Err(OptimizerError::Overflow { what, tensor });
                    }
                }
            }
        }
        for (part, first) in self.parts.iter() {
            let weight = updated(part, &mut self.of_part(part, first));
            part.put(&weight, |tensor| weights[tensor]);
        }
        self.updates += 1;
        Ok(norm)
    }

    /// Both moments of a part's numbers, in place.
    fn of_part(&self, part: Part, first: i64) -> [Tensor; 2] {
        self.moments.each_ref().map(|all| all.narrow(0, first, part.count()))
    }

    /// The name of the first tensor with a number of the part that is not finite.
    fn not_finite(&self, part: Part, numbers: &Tensor) -> Option<String> {
        let finite = numbers.isfinite();
        if bool::try_from(finite.all()).expect("one truth value") {
            return None;
        }
        let at = Vec::<bool>::try_from(finite).expect("truth values");
        let at = at.into_iter().position(|finite| !finite).expect("one that is not finite");
        self.weights.keys().nth(part.tensor_of(at)).cloned()
    }

    /// The largest sizes of a weight and of each moment, NaN where one is NaN: three numbers come to the processor.
    fn largest(&self) -> Element {
        let largest = |tensors: &mut dyn Iterator<Item = Tensor>| {
            let size = |tensor: Tensor| {
                let (least, most) = tensor.aminmax(None, false);
                most.maximum(&-least)
            };
            let sizes: Vec<Tensor> = tensors.filter(|it| it.numel() > 0).map(size).collect();
            if sizes.is_empty() { 0.0 } else { Tensor::stack(&sizes, 0).max().double_value(&[]) }
        };
        let weights: Vec<&Tensor> = self.weights.values().collect();
        let weight =
            |(part, _): (Part, i64)| part.gathered(self.device(), |tensor| Some(weights[tensor]));
        let [first, second] = &self.moments;
        Element {
            parameter: largest(&mut self.parts.iter().map(weight)),
            first_moment: largest(&mut [first.shallow_clone()].into_iter()),
            second_moment: largest(&mut [second.shallow_clone()].into_iter()),
        }
    }

    /// The device sums the squares of each part in f64; one number comes to the processor.
    fn finite_norm(&self, gradients: &[Tensor]) -> Result<f64, OptimizerError> {
        let sum = |(part, _): (Part, i64)| {
            let gradient = part.gathered(self.device(), |tensor| defined(gradients, tensor));
            gradient.square().sum(Kind::Double)
        };
        let sums: Vec<Tensor> = self.parts.iter().map(sum).collect();
        if sums.is_empty() {
            return Ok(0.0);
        }
        let norm = Tensor::stack(&sums, 0).sum(Kind::Double).double_value(&[]).sqrt();
        if norm.is_finite() {
            return Ok(norm);
        }
        let mut named = self.weights.keys().zip(gradients).filter(|(_, all)| all.defined());
        let error = named.find_map(|(name, all)| optimizer::not_finite(name, &fast::values(all)));
        Err(error.unwrap_or(OptimizerError::NormOverflow))
    }
}

impl Moments for DeviceAdamW {
    fn updates(&self) -> u64 {
        self.updates
    }

    fn of(&self, name: &str) -> [Vec<f32>; 2] {
        let before = self.weights.iter().take_while(|(other, _)| other.as_str() < name);
        let first: usize = before.map(|(_, weight)| weight.numel()).sum();
        let count = self.weights[name].numel() as i64;
        self.moments.each_ref().map(|all| fast::values(&all.narrow(0, first as i64, count)))
    }
}

fn defined(gradients: &[Tensor], tensor: usize) -> Option<&Tensor> {
    gradients.get(tensor).filter(|gradient| gradient.defined())
}

impl Update {
    /// Whether weights and moments surely stay finite in f32, and every number on the way, when none is larger
    /// than `largest`, no second moment is negative, and no clipped gradient is larger than `gradient`.
    fn stays_finite(&self, largest: Element, gradient: f64) -> bool {
        let first_moment = largest.first_moment + gradient;
        let second_moment = largest.second_moment + gradient * gradient;
        let quotient = first_moment / self.epsilon;
        let parameter = largest.parameter * (1.0 + self.keep.abs()) + quotient * self.step_size;
        // Half of f32's range: what is left is more than rounding adds.
        let fits = |number: f64| number < f64::from(f32::MAX) / 2.0;
        [first_moment, second_moment, quotient, parameter].into_iter().all(fits)
    }

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

#[cfg(test)]
mod tests;
