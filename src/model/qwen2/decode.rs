//! A decode step of an f32 policy on the CPU: the products are LibTorch's, all else is done on
//! slices between them.

use crate::model::cache::RowCache;
use crate::model::qwen2::Prepared;
use crate::model::qwen2::Qwen2;
use crate::numerics;
use crate::numerics::slices;
use tch::Tensor;

/// Slices that a step writes and the next product reads, reused from layer to layer.
#[derive(Default)]
struct Scratch {
    /// What a product returned.
    product: Vec<f32>,
    /// What the next product reads.
    input: Vec<f32>,
}

impl Scratch {
    /// `input` `[rows, in]` · weightᵀ + bias, in `product` `[rows, out]`.
    fn multiply(&mut self, rows: usize, weight: &Tensor, bias: Option<&Tensor>) {
        let input = Tensor::from_slice(&self.input).view([rows as i64, -1]);
        copy_into(&mut self.product, &numerics::linear(&input, weight, bias));
    }
}

/// The tensor's numbers, row by row.
fn copy_into(slice: &mut Vec<f32>, tensor: &Tensor) {
    slice.resize(tensor.numel(), 0.0);
    tensor.copy_data(slice, tensor.numel());
}

impl Qwen2 {
    /// [`Qwen2::decode`] with a cache of rows.
    pub(super) fn decode_on_slices(
        &self,
        prepared: &Prepared,
        tokens: &Tensor,
        positions: &Tensor,
        cache: &mut RowCache,
    ) -> Tensor {
        let rows = tokens.numel();
        let (width, inner_width) =
            (self.config.hidden_size as usize, self.config.intermediate_size as usize);
        let epsilon = self.config.rms_norm_eps;
        let mut rotation = Vec::new(); // [rows, head_dim / 2, 2]
        let turns = self.rotation.index_select(0, positions);
        copy_into(&mut rotation, &turns.view_as_real());
        let mut hidden = Vec::new(); // [rows, hidden]
        copy_into(&mut hidden, &numerics::embedding(&self.embed_tokens, tokens));
        let mut scratch = Scratch::default();
        for (index, layer) in prepared.layers.iter().enumerate() {
            slices::rms_norm(&hidden, width, epsilon, &mut scratch.input);
            scratch.multiply(rows, &layer.qkv, Some(&layer.qkv_bias));
            cache.attend(index, &mut scratch.product, &rotation, &mut scratch.input);
            scratch.multiply(rows, &layer.o, None);
            slices::add(&mut hidden, &scratch.product);
            slices::rms_norm(&hidden, width, epsilon, &mut scratch.input);
            scratch.multiply(rows, &prepared.gates_and_ups[index], None);
            slices::swiglu(&scratch.product, inner_width, &mut scratch.input);
            scratch.multiply(rows, &layer.down, None);
            slices::add(&mut hidden, &scratch.product);
        }
        slices::rms_norm(&hidden, width, epsilon, &mut scratch.input);
        Tensor::from_slice(&scratch.input).view([rows as i64, -1]) * &self.norm
    }
}
