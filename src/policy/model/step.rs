//! The operations of a decode step of an f32 policy on the CPU: the products are LibTorch's, all
//! else is done on slices between them.

use crate::numerics::{HeadNorms, Operations, fast, slices};
use crate::policy::{RowCache, Weight};
use tch::Tensor;

/// One step of all rows.
pub struct DecodeStep<'a> {
    pub epsilon: f64,
    pub inner_width: usize,
    /// e^{iφ} of each row's position: `[rows, head_dim / 2, 2]`.
    pub rotation: Vec<f32>,
    /// Of each layer, gate and up as one matrix `[2 · intermediate, hidden]`.
    pub gates_and_ups: &'a [Tensor],
    pub cache: &'a mut RowCache,
    /// Slices that are no longer read: the next operation writes into one.
    pub spare: Vec<Vec<f32>>,
}

impl DecodeStep<'_> {
    /// `input` `[rows, in]` · weightᵀ + bias → `[rows, out]`.
    fn multiply(&mut self, input: Vec<f32>, weight: &Tensor, bias: Option<&Tensor>) -> Vec<f32> {
        let product = {
            let width = weight.size()[1];
            fast::linear(&Tensor::from_slice(&input).view([-1, width]), weight, bias)
        };
        let mut output = input;
        copy_into(&mut output, &product);
        output
    }
}

/// The tensor's numbers, row by row.
pub fn copy_into(slice: &mut Vec<f32>, tensor: &Tensor) {
    slice.resize(tensor.numel(), 0.0);
    tensor.copy_data(slice, tensor.numel());
}

impl Operations for DecodeStep<'_> {
    type Tokens = Tensor;
    type Rows = Vec<f32>;
    type Weight = Weight;

    fn embedding(&mut self, table: &Weight, tokens: &Tensor) -> Vec<f32> {
        let mut hidden = Vec::new();
        copy_into(&mut hidden, &fast::embedding(table.matrix(), tokens));
        hidden
    }

    fn rms_norm(&mut self, x: &Vec<f32>, width: usize) -> Vec<f32> {
        let mut normed = self.spare.pop().unwrap_or_default();
        slices::rms_norm(x, width, self.epsilon, &mut normed);
        normed
    }

    fn attention(
        &mut self,
        layer: usize,
        x: Vec<f32>,
        qkv: &Weight,
        norms: Option<&HeadNorms<Weight>>,
    ) -> Vec<f32> {
        assert!(norms.is_none(), "rows of slices are for policies without norms of heads");
        let mut joined = self.multiply(x, qkv.matrix(), qkv.parts[0].bias.as_ref());
        let mut mixed = self.spare.pop().unwrap_or_default();
        self.cache.attend(layer, &mut joined, &self.rotation, &mut mixed);
        self.spare.push(joined);
        mixed
    }

    fn attention_output(&mut self, x: Vec<f32>, weight: &Weight) -> Vec<f32> {
        self.multiply(x, weight.matrix(), None)
    }

    fn swiglu(&mut self, layer: usize, x: Vec<f32>, _gate: &Weight, _up: &Weight) -> Vec<f32> {
        let gates_and_ups = self.gates_and_ups;
        let product = self.multiply(x, &gates_and_ups[layer], None);
        let mut inner = self.spare.pop().unwrap_or_default();
        slices::swiglu(&product, self.inner_width, &mut inner);
        self.spare.push(product);
        inner
    }

    fn swiglu_output(&mut self, x: Vec<f32>, weight: &Weight) -> Vec<f32> {
        self.multiply(x, weight.matrix(), None)
    }

    fn add(&mut self, mut x: Vec<f32>, more: Vec<f32>) -> Vec<f32> {
        slices::add(&mut x, &more);
        self.spare.push(more);
        x
    }

    fn scale(&mut self, x: Vec<f32>, weight: &Weight) -> Vec<f32> {
        let mut weights = self.spare.pop().unwrap_or_default();
        copy_into(&mut weights, weight.matrix());
        let mut scaled = x;
        for row in scaled.chunks_exact_mut(weights.len()) {
            row.iter_mut().zip(&weights).for_each(|(x, weight)| *x *= weight);
        }
        scaled
    }
}
