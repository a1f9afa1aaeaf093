//! AdamW on tensors, on the policy's device: for policies that are too large for loops over plain
//! values. The same updates as [`crate::policy::optimizer::AdamW`], with element arithmetic in f32.

use crate::experiment::Optimizer;
use crate::numerics::fast;
use crate::policy::optimizer::{
    OptimizerError, OptimizerState, OptimizerTensors, clip_coefficient,
};
use crate::policy::{Element, Update};
use crate::records::ledger;
use std::collections::BTreeMap;
use tch::{Kind, Tensor};

/// Tensors by name, all f32 and on one device.
pub type OnDevice = BTreeMap<String, Tensor>;

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
    pub fn new(config: &Optimizer, weights: OnDevice, state: &OptimizerState) -> Self {
        let moment =
            |moments: &OptimizerTensors, name: &String, weight: &Tensor| match state.updates {
                0 => weight.zeros_like(),
                _ => Tensor::from_slice(&moments[name]).view_as(weight).to_device(weight.device()),
            };
        let moments = weights.iter().map(|(name, weight)| {
            let both = [&state.first_moments, &state.second_moments];
            (name.clone(), both.map(|moments| moment(moments, name, weight)))
        });
        Self { config: config.clone(), updates: state.updates, moments: moments.collect(), weights }
    }

    pub fn weights(&self) -> &OnDevice {
        &self.weights
    }

    pub fn updates(&self) -> u64 {
        self.updates
    }

    pub fn moments(&self, name: &str) -> [Vec<f32>; 2] {
        let [first, second] = &self.moments[name];
        [fast::values(first), fast::values(second)]
    }

    /// SHA-256 of the weights, and of the moments, as the ledger has them.
    pub fn digests(&self) -> [String; 2] {
        let moments = [0, 1].map(|which| {
            // Before the first update there are none.
            let count = if self.updates == 0 { 0 } else { self.moments.len() };
            let all: Vec<_> = self.moments.iter().take(count).collect();
            all.into_iter().map(move |(name, both)| (name, fast::values(&both[which])))
        });
        let weights = self.weights.iter().map(|(name, weight)| (name, fast::values(weight)));
        [ledger::each_tensor(weights), ledger::each_moment(self.updates, moments)]
    }

    /// One update in place. Gradients in the order of names; an undefined one counts as 0. Returns
    /// the global L2 norm before clipping.
    ///
    /// # Errors
    /// A gradient, or a new weight or moment, that is not finite; nothing is changed then.
    pub fn step(
        &mut self,
        gradients: &[Tensor],
        learning_rate: f64,
    ) -> Result<f64, OptimizerError> {
        assert!(gradients.is_empty() || gradients.len() == self.weights.len(), "a gradient each");
        let norm = self.finite_norm(gradients)?;
        let scale = clip_coefficient(norm, self.config.max_gradient_norm);
        let update = Update::new(&self.config, learning_rate, self.updates + 1);
        // A copy of weights and moments may not fit beside them. Only when their sizes are near
        // f32's largest number is the update first tried on copies, part by part.
        if !update.stays_finite(self.largest(), norm * scale) {
            self.each_part(gradients, scale, |name, weight, moments, gradient| {
                let (mut weight, mut moments) =
                    (weight.copy(), moments.map(|moment| moment.copy()));
                update.apply_to(&mut weight, &mut moments, gradient);
                let [first, second] = &moments;
                for (what, new) in
                    [("weight", &weight), ("first moment", first), ("second moment", second)]
                {
                    if !bool::try_from(new.isfinite().all()).expect("one truth value") {
                        return Err(OptimizerError::Overflow { what, tensor: name.clone() });
                    }
                }
                Ok(())
            })?;
        }
        self.updates += 1;
        self.each_part(gradients, scale, |_, mut weight, mut moments, gradient| {
            update.apply_to(&mut weight, &mut moments, gradient);
            Ok(())
        })?;
        Ok(norm)
    }

    /// Calls `each` with a tensor's name and every part of it: weight, moments, clipped gradient.
    fn each_part(
        &self,
        gradients: &[Tensor],
        scale: f64,
        mut each: impl FnMut(&String, Tensor, [Tensor; 2], &Tensor) -> Result<(), OptimizerError>,
    ) -> Result<(), OptimizerError> {
        let mut gradients = gradients.iter();
        for ((name, weight), moments) in self.weights.iter().zip(self.moments.values()) {
            let zero;
            let gradient = match gradients.next() {
                Some(gradient) if gradient.defined() => gradient,
                _ => {
                    zero = weight.zeros_like();
                    &zero
                }
            };
            for rows in parts(weight) {
                let scaled = part(gradient, rows).to_kind(Kind::Float) * scale;
                let moments = moments.each_ref().map(|moment| part(moment, rows));
                each(name, part(weight, rows), moments, &scaled)?;
            }
        }
        Ok(())
    }

    /// The largest sizes of a weight and of each moment, NaN where one is NaN. Only three numbers
    /// come to the processor.
    fn largest(&self) -> Element {
        let largest = |tensors: &mut dyn Iterator<Item = &Tensor>| {
            let sizes: Vec<Tensor> = tensors
                .filter(|tensor| tensor.numel() > 0)
                .map(|tensor| {
                    let (least, most) = tensor.aminmax(None, false);
                    most.maximum(&-least)
                })
                .collect();
            if sizes.is_empty() { 0.0 } else { Tensor::stack(&sizes, 0).max().double_value(&[]) }
        };
        Element {
            parameter: largest(&mut self.weights.values()),
            first_moment: largest(&mut self.moments.values().map(|[first, _]| first)),
            second_moment: largest(&mut self.moments.values().map(|[_, second]| second)),
        }
    }

    /// The device sums the squares of each part of a tensor in f64; one number comes to the processor.
    fn finite_norm(&self, gradients: &[Tensor]) -> Result<f64, OptimizerError> {
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
                && let Some(index) =
                    fast::values(gradient).iter().position(|value| !value.is_finite())
            {
                let (tensor, count) = (tensor.clone(), gradient.numel());
                return Err(OptimizerError::NotFinite { tensor, index, count });
            }
        }
        Err(OptimizerError::NormOverflow)
    }
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

/// First row and number of rows of the parts of a tensor that are updated at once. The intermediate
/// results of an update are five times as large as a part.
fn parts(tensor: &Tensor) -> impl Iterator<Item = (i64, i64)> {
    const NUMBERS: i64 = 1 << 24;
    let rows = tensor.size().first().copied().unwrap_or(1).max(1);
    let width = (tensor.numel() as i64 / rows).max(1);
    let size = (NUMBERS / width).max(1);
    (0..rows).step_by(size as usize).map(move |from| (from, size.min(rows - from)))
}

fn part(tensor: &Tensor, (from, count): (i64, i64)) -> Tensor {
    match tensor.dim() {
        0 => tensor.shallow_clone(),
        _ => tensor.narrow(0, from, count),
    }
}

#[cfg(test)]
mod tests;
