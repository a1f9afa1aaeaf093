//! A declared mismatch: a sampler whose weights are rounded, as those of an inference engine are.

use crate::experiment::SamplerWeights;
use crate::policy::Qwen2;
use tch::{Kind, Tensor};

/// The policy with rounded weights, in the form and arithmetic of the policy.
pub fn rounded(model: &Qwen2, weights: SamplerWeights) -> Qwen2 {
    model.changed(|weight| match weights {
        SamplerWeights::Bf16 => weight.to_kind(Kind::BFloat16).to_kind(weight.kind()),
        SamplerWeights::Int8 if weight.dim() == 2 => int8(weight),
        SamplerWeights::Int8 => weight.shallow_clone(),
    })
}

/// Each row `[width]` of a matrix to 255 multiples of its largest absolute value / 127.
fn int8(weight: &Tensor) -> Tensor {
    let step = weight.abs().amax([-1i64], true) / 127.0;
    let zero = step.eq(0.0);
    let step = step.ones_like().where_self(&zero, &step);
    (weight / &step).round() * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn int8_keeps_the_largest_weight_and_moves_none_by_more_than_half_a_step() {
        let weight = Tensor::from_slice(&[0.5f32, -1.27, 0.004, 0.3, 0.0, 0.0]).view([3, 2]);
        let rounded = int8(&weight);
        assert_eq!(rounded.double_value(&[0, 1]), weight.double_value(&[0, 1]));
        assert_eq!(rounded.double_value(&[2, 0]), 0.0);
        let step = weight.abs().amax([-1i64], true) / 127.0;
        let moved = (&rounded - &weight).abs() / step.clamp_min(1e-9);
        assert!(moved.max().double_value(&[]) <= 0.5 + 1e-4);
        assert!(rounded.double_value(&[1, 0]) != weight.double_value(&[1, 0]));
    }
}
