//! The small set of operations that the model and the losses are written in, and the two engines that carry them out:
//! - [`crate::numerics::native`]: policies on the processor. Exact sums have the same bits on any machine, in any batch
//!   and in any order; those in f32 on any machine, and a gradient then depends on the cut into passes.
//! - [`crate::numerics::fast`]: LibTorch's own kernels with automatic derivatives, for large policies and cards. Their
//!   bits depend on the instruction set, on LibTorch's build and on the batch's shape: `exact-here` at best.

use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Numerics {
    /// The same bits on any machine, by construction.
    Exact,
    /// f32, in the native engine or by LibTorch's kernels.
    Fast,
}

impl std::fmt::Display for Numerics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Exact => "exact",
            Self::Fast => "fast",
        })
    }
}

/// What a decoder is made of. Rows hold the numbers of one token each, `[tokens, width]`. The caller
/// does not use an argument again that an operation takes by value.
pub trait Operations {
    type Tokens: ?Sized;
    type Rows;
    /// A matrix of weights, with what is folded into it.
    type Weight;

    /// The table's row of each token.
    fn embedding(&mut self, table: &Self::Weight, tokens: &Self::Tokens) -> Self::Rows;

    /// x / √(mean(x²) + ε) of each row. The norm's weight is inside the matrix that follows.
    fn rms_norm(&mut self, x: &Self::Rows) -> Self::Rows;

    /// Queries, keys and values of normed rows; norms of each query and key, `[head_dim]` both, where Qwen3 has them;
    /// rotary embedding; causal attention. The mixture of each token's values, heads next to each other.
    fn attention(
        &mut self,
        layer: usize,
        x: Self::Rows,
        qkv: &Self::Weight,
        norms: Option<&[Self::Weight; 2]>,
    ) -> Self::Rows;

    /// The product that follows [`Operations::attention`].
    fn attention_output(&mut self, x: Self::Rows, weight: &Self::Weight) -> Self::Rows;

    /// SwiGLU of normed rows: `silu(x · gateᵀ) · (x · upᵀ)`.
    fn swiglu(&mut self, x: Self::Rows, gate: &Self::Weight, up: &Self::Weight) -> Self::Rows;

    /// The product that follows [`Operations::swiglu`].
    fn swiglu_output(&mut self, x: Self::Rows, weight: &Self::Weight) -> Self::Rows;

    fn add(&mut self, x: Self::Rows, more: Self::Rows) -> Self::Rows;

    /// Normed rows times a norm's weight.
    fn scale(&mut self, x: Self::Rows, weight: &Self::Weight) -> Self::Rows;
}

/// e^x, number by number: LibTorch's, or the pinned one of f64 numbers, the same everywhere.
pub fn exp(x: &Tensor, numerics: Numerics) -> Tensor {
    if numerics == Numerics::Fast {
        return x.exp();
    }
    let values: Vec<f64> =
        Vec::try_from(x.detach().contiguous().flatten(0, -1)).expect("a dense f64 tensor");
    let values: Vec<f64> = values.into_iter().map(libm::exp).collect();
    let value = Tensor::from_slice(&values).view(x.size().as_slice());
    if !x.requires_grad() {
        return value;
    }
    // LibTorch knows no derivative of our function: this factor is 1 and has the derivative of x.
    value * ((x - x.detach()) + 1.0)
}

/// Σ x in f64, of a tensor without a graph, each number first rounded to a multiple of 2^−36. As
/// long as the sum stays below 2^16 it is exact, whatever its order; so are sums of such sums.
pub fn sum(x: &Tensor) -> f64 {
    // Adding 1.5 · 2^(52 − 36) leaves no bit below 2^−36.
    const SHIFT: f64 = 1.5 * (1u64 << 16) as f64;
    let x = x.detach().to_kind(Kind::Double);
    let rounded = (x + SHIFT) - SHIFT;
    rounded.sum(Kind::Double).double_value(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_of_doubles_is_libms_and_its_own_derivative() {
        let x = Tensor::from_slice(&[-2.5f64, 0.0, 1.25]).set_requires_grad(true);
        let y = exp(&x, Numerics::Exact);
        let gradient = Tensor::run_backward(&[y.sum(Kind::Double)], &[&x], false, false);
        for (at, x) in [-2.5, 0.0, 1.25].into_iter().enumerate() {
            assert_eq!(y.double_value(&[at as i64]), libm::exp(x));
            assert_eq!(gradient[0].double_value(&[at as i64]), libm::exp(x));
        }
    }

    #[test]
    fn a_sum_does_not_depend_on_how_it_is_cut() {
        let values: Vec<f64> = (0..1000).map(|at| libm::sin(f64::from(at) * 0.37) * 3.0).collect();
        let whole = sum(&Tensor::from_slice(&values));
        for size in [1, 7, 64] {
            let parts = values.rchunks(size).map(|part| sum(&Tensor::from_slice(part)));
            assert_eq!(parts.sum::<f64>(), whole);
        }
        assert!((whole - values.iter().sum::<f64>()).abs() < 1e-7);
        assert!(sum(&Tensor::from_slice(&[1.0, f64::NAN])).is_nan());
    }
}
