//! The decoder's operations on LibTorch tensors, with their automatic derivatives.

use crate::model::config::Config;
use crate::numerics::HeadNorms;
use crate::numerics::Operations;
use crate::numerics::fast;
use crate::numerics::folded::Folded;
use crate::numerics::folded::Part;
use std::collections::BTreeMap;
use tch::Tensor;

/// A matrix of the forward pass, with its graph to the parameters.
#[derive(Debug)]
pub struct Weight {
    /// `[outputs, inputs]`.
    pub matrix: Tensor,
    /// `[outputs]`.
    pub bias: Option<Tensor>,
}

impl Weight {
    /// Folds a policy's parameters.
    pub fn new(folded: &Folded, parameters: &BTreeMap<String, Tensor>) -> Self {
        let joined = |tensors: Vec<Tensor>| match tensors.len() {
            1 => tensors[0].shallow_clone(),
            _ => Tensor::cat(&tensors, 0),
        };
        let part = |part: &Part| interleaved(&parameters[&part.weight], part.interleaved_heads);
        let matrix = joined(folded.parts.iter().map(part).collect());
        let matrix = match &folded.norm {
            Some(norm) => matrix * &parameters[norm],
            None => matrix,
        };
        let bias = |part: &Part| {
            Some(interleaved(&parameters[part.bias.as_ref()?], part.interleaved_heads))
        };
        let biases: Option<Vec<Tensor>> = folded.parts.iter().map(bias).collect();
        Self { matrix, bias: biases.map(joined) }
    }

    /// x `[..., inputs]` → `[..., outputs]`.
    pub fn multiply(&self, x: &Tensor) -> Tensor {
        fast::linear(x, &self.matrix, self.bias.as_ref())
    }

    /// The same numbers, stored by column: the layout for products of few rows.
    pub fn by_column(self) -> Self {
        match self.matrix.dim() {
            2 => Self { matrix: self.matrix.tr().contiguous().tr(), ..self },
            _ => self,
        }
    }
}

fn interleaved(tensor: &Tensor, heads: Option<usize>) -> Tensor {
    let Some(heads) = heads else { return tensor.shallow_clone() };
    let size = tensor.size();
    let half = size[0] / (2 * heads as i64);
    tensor.view([heads as i64, 2, half, -1]).transpose(1, 2).reshape(size.as_slice())
}

/// Attention of a layer: its index, queries `[tokens, heads, head_dim]`, keys and values
/// `[tokens, kv_heads, head_dim]` → `[tokens, heads · head_dim]`.
type Attend<'a> = dyn FnMut(usize, Tensor, Tensor, Tensor) -> Tensor + 'a;

/// The operations of one pass.
pub struct Tensors<'a> {
    /// The policy's shape.
    pub config: &'a Config,
    /// e^{iφ} of each token's position: `[tokens, 1, head_dim / 2]`.
    pub rotation: Tensor,
    /// Attention itself.
    pub attend: &'a mut Attend<'a>,
}

impl Operations for Tensors<'_> {
    type Tokens = Tensor;
    type Rows = Tensor;
    type Weight = Weight;

    fn embedding(&mut self, table: &Weight, tokens: &Tensor) -> Tensor {
        fast::embedding(&table.matrix, tokens)
    }

    fn rms_norm(&mut self, x: &Tensor, _width: usize) -> Tensor {
        fast::rms_norm(x, self.config.rms_norm_eps)
    }

    fn attention(
        &mut self,
        layer: usize,
        x: Tensor,
        qkv: &Weight,
        norms: Option<&HeadNorms<Weight>>,
    ) -> Tensor {
        let (heads, kv_heads) = (self.config.num_attention_heads, self.config.num_key_value_heads);
        let tokens = x.size()[0];
        let joined = qkv.multiply(&x).view([tokens, heads + 2 * kv_heads, self.config.head_dim]);
        let parts = joined.split_with_sizes([heads + kv_heads, kv_heads], 1);
        let turned = match norms {
            None => fast::rotary(&parts[0], &self.rotation),
            Some(norms) => {
                let heads = parts[0].split_with_sizes([heads, kv_heads], 1);
                let normed = |x: &Tensor, norm: &Weight| {
                    fast::rms_norm(x, self.config.rms_norm_eps) * &norm.matrix
                };
                let heads = [normed(&heads[0], &norms.queries), normed(&heads[1], &norms.keys)];
                fast::rotary(&Tensor::cat(&heads, 1), &self.rotation)
            }
        };
        let turned = turned.split_with_sizes([heads, kv_heads], 1);
        let (queries, keys) = (turned[0].shallow_clone(), turned[1].shallow_clone());
        (self.attend)(layer, queries, keys, parts[1].shallow_clone())
    }

    fn attention_output(&mut self, x: Tensor, weight: &Weight) -> Tensor {
        weight.multiply(&x)
    }

    fn swiglu(&mut self, _layer: usize, x: Tensor, gate: &Weight, up: &Weight) -> Tensor {
        let gates = gate.multiply(&x);
        fast::swiglu(&gates, &up.multiply(&x))
    }

    fn swiglu_output(&mut self, x: Tensor, weight: &Weight) -> Tensor {
        weight.multiply(&x)
    }

    fn add(&mut self, x: Tensor, more: Tensor) -> Tensor {
        x + more
    }

    fn scale(&mut self, x: Tensor, weight: &Weight) -> Tensor {
        x * &weight.matrix
    }
}
