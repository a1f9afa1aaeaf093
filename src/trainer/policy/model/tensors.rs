//! The decoder's operations on LibTorch tensors, with automatic derivatives. Weights are as the checkpoint stores them,
//! norms apart and heads in two halves: no copy, and no product of weights that a narrow type would round.

use crate::numerics::{Folded, Operations, fast, folded::FoldedPart};
use crate::policy::Config;
use std::collections::BTreeMap;
use tch::Tensor;

#[derive(Debug)]
pub struct Linear {
    /// `[outputs, inputs]`, or a vector.
    pub matrix: Tensor,
    /// `[outputs]`.
    pub bias: Option<Tensor>,
}

impl Linear {
    /// x `[..., inputs]` → `[..., outputs]`.
    pub fn apply(&self, x: &Tensor) -> Tensor {
        fast::linear(x, &self.matrix, self.bias.as_ref())
    }

    pub fn share(&self) -> Self {
        Self {
            matrix: self.matrix.shallow_clone(),
            bias: self.bias.as_ref().map(Tensor::shallow_clone),
        }
    }
}

/// A matrix of the forward pass, with its graph to the parameters.
#[derive(Debug)]
pub struct Weight {
    /// Matrices whose results stand next to each other.
    pub parts: Vec<Linear>,
    /// The weight of the norm before it, `[inputs]`.
    pub norm: Option<Tensor>,
}

impl Weight {
    pub fn new(folded: &Folded, parameters: &BTreeMap<String, Tensor>) -> Self {
        let shared = |name: &String| parameters[name].shallow_clone();
        let linear = |part: &FoldedPart| Linear {
            matrix: shared(&part.weight),
            bias: part.bias.as_ref().map(shared),
        };
        let parts = folded.parts.iter().map(linear).collect();
        Self { parts, norm: folded.norm.as_ref().map(shared) }
    }

    /// The only matrix, or the vector of a norm.
    fn only(&self) -> &Linear {
        assert_eq!(self.parts.len(), 1, "one matrix");
        &self.parts[0]
    }
}

/// Attention of a layer: its index, queries `[tokens, heads, head_dim]`, keys and values
/// `[tokens, kv_heads, head_dim]` → `[tokens, heads · head_dim]`.
type Attend<'a> = dyn FnMut(usize, Tensor, Tensor, Tensor) -> Tensor + 'a;

pub struct TensorOperations<'a> {
    pub config: &'a Config,
    /// Cosine and sine of each token's angles: `[tokens, 1, head_dim / 2, 2]`.
    pub rotation: Tensor,
    pub attend: &'a mut Attend<'a>,
}

impl TensorOperations<'_> {
    /// x as the product with a weight reads it. A norm and its weight are one operation here, and
    /// [`Operations::rms_norm`] passes its input on.
    fn normed(&self, x: Tensor, norm: Option<&Tensor>) -> Tensor {
        match norm {
            None => x,
            Some(weight) => fast::rms_norm(&x, weight, self.config.rms_norm_eps),
        }
    }

    /// Heads of queries or keys, normed by the architecture's norm of heads where it has one, turned.
    fn heads(&self, x: Tensor, norm: Option<&Weight>) -> Tensor {
        fast::rotary_halves(&self.normed(x, norm.map(|norm| &norm.only().matrix)), &self.rotation)
    }
}

impl Operations for TensorOperations<'_> {
    type Tokens = Tensor;
    type Rows = Tensor;
    type Weight = Weight;

    fn embedding(&mut self, table: &Weight, tokens: &Tensor) -> Tensor {
        fast::embedding(&table.only().matrix, tokens)
    }

    fn rms_norm(&mut self, x: &Tensor) -> Tensor {
        x.shallow_clone()
    }

    fn attention(
        &mut self,
        layer: usize,
        x: Tensor,
        qkv: &Weight,
        norms: Option<&[Weight; 2]>,
    ) -> Tensor {
        let (heads, kv_heads) = (self.config.num_attention_heads, self.config.num_key_value_heads);
        let x = self.normed(x, qkv.norm.as_ref());
        let by_head = |part: &Linear| part.apply(&x).view([x.size()[0], -1, self.config.head_dim]);
        let parts = match &qkv.parts[..] {
            [joined] => by_head(joined).split_with_sizes([heads, kv_heads, kv_heads], 1),
            parts => parts.iter().map(by_head).collect(),
        };
        let [queries, keys, values] =
            <[Tensor; 3]>::try_from(parts).expect("queries, keys and values");
        let queries = self.heads(queries, norms.map(|[queries, _]| queries));
        let keys = self.heads(keys, norms.map(|[_, keys]| keys));
        (self.attend)(layer, queries, keys, values)
    }

    fn attention_output(&mut self, x: Tensor, weight: &Weight) -> Tensor {
        weight.only().apply(&x)
    }

    fn swiglu(&mut self, x: Tensor, gate: &Weight, up: &Weight) -> Tensor {
        let x = self.normed(x, gate.norm.as_ref());
        let gates = gate.only().apply(&x);
        if gates.size()[1] == self.config.intermediate_size {
            return fast::swiglu(&gates, &up.only().apply(&x));
        }
        // One product made both.
        let halves = gates.chunk(2, 1);
        fast::swiglu(&halves[0], &halves[1])
    }

    fn swiglu_output(&mut self, x: Tensor, weight: &Weight) -> Tensor {
        weight.only().apply(&x)
    }

    fn add(&mut self, x: Tensor, more: Tensor) -> Tensor {
        x + more
    }

    fn scale(&mut self, x: Tensor, weight: &Weight) -> Tensor {
        self.normed(x, Some(&weight.only().matrix))
    }
}
