//! The decoder's operations on LibTorch tensors, with their automatic derivatives, in two layouts
//! of the same weights.

use crate::numerics::{Folded, HeadNorms, Operations, fast, folded::FoldedPart};
use crate::policy::Config;
use std::collections::BTreeMap;
use tch::{Device, Kind, Tensor};

/// How the matrices of a pass lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// As [`crate::numerics::folded`] has it: fewer and shorter operations, at the price of another
    /// copy of the weights. For policies that fit into a processor's caches.
    Folded,
    /// As the checkpoint stores them, norms beside the matrices and heads in two halves: no copy,
    /// and no product of weights that a narrow type would round.
    Stored,
}

impl Layout {
    /// Parameters from which on a copy of the weights costs more than it saves.
    pub const MANY: usize = 1 << 26;

    /// The layout for a policy with these tensors.
    pub fn of(parameters: &BTreeMap<String, Tensor>) -> Self {
        let first = parameters.values().next();
        let wide = first.is_none_or(|tensor| {
            tensor.device() == Device::Cpu && [Kind::Float, Kind::Double].contains(&tensor.kind())
        });
        match wide && parameters.values().map(Tensor::numel).sum::<usize>() < Self::MANY {
            true => Self::Folded,
            false => Self::Stored,
        }
    }

    /// As [`fast::linear`].
    pub fn linear(self, x: &Tensor, matrix: &Tensor, bias: Option<&Tensor>) -> Tensor {
        match self {
            Self::Folded => fast::linear(x, matrix, bias),
            Self::Stored => fast::linear_of_large(x, matrix, bias),
        }
    }
}

/// A product with a matrix.
#[derive(Debug)]
pub struct Linear {
    /// `[outputs, inputs]`, or a vector.
    pub matrix: Tensor,
    /// `[outputs]`.
    pub bias: Option<Tensor>,
}

impl Linear {
    /// x `[..., inputs]` → `[..., outputs]`.
    pub fn apply(&self, x: &Tensor, layout: Layout) -> Tensor {
        layout.linear(x, &self.matrix, self.bias.as_ref())
    }

    /// The same tensors.
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
    /// Matrices whose results stand next to each other; folded, it is one.
    pub parts: Vec<Linear>,
    /// The weight of the norm before it, `[inputs]`, where it is not folded into the matrix.
    pub norm: Option<Tensor>,
}

impl Weight {
    /// A policy's parameters in a layout.
    pub fn new(folded: &Folded, parameters: &BTreeMap<String, Tensor>, layout: Layout) -> Self {
        match layout {
            Layout::Folded => Self::folded(folded, parameters),
            Layout::Stored => {
                let shared = |name: &String| parameters[name].shallow_clone();
                let linear = |part: &FoldedPart| Linear {
                    matrix: shared(&part.weight),
                    bias: part.bias.as_ref().map(shared),
                };
                let parts = folded.parts.iter().map(linear).collect();
                Self { parts, norm: folded.norm.as_ref().map(shared) }
            }
        }
    }

    fn folded(folded: &Folded, parameters: &BTreeMap<String, Tensor>) -> Self {
        let joined = |tensors: Vec<Tensor>| match tensors.len() {
            1 => tensors[0].shallow_clone(),
            _ => Tensor::cat(&tensors, 0),
        };
        let part =
            |part: &FoldedPart| interleaved(&parameters[&part.weight], part.interleaved_heads);
        let matrix = joined(folded.parts.iter().map(part).collect());
        let matrix = match &folded.norm {
            Some(norm) => matrix * &parameters[norm],
            None => matrix,
        };
        let bias = |part: &FoldedPart| {
            Some(interleaved(&parameters[part.bias.as_ref()?], part.interleaved_heads))
        };
        let biases: Option<Vec<Tensor>> = folded.parts.iter().map(bias).collect();
        Self { parts: vec![Linear { matrix, bias: biases.map(joined) }], norm: None }
    }

    /// The only matrix, or the vector of a norm.
    pub fn matrix(&self) -> &Tensor {
        assert_eq!(self.parts.len(), 1, "one matrix");
        &self.parts[0].matrix
    }

    /// x `[..., inputs]` → `[..., outputs]` of the only matrix.
    fn multiply(&self, x: &Tensor, layout: Layout) -> Tensor {
        assert_eq!(self.parts.len(), 1, "one matrix");
        self.parts[0].apply(x, layout)
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
pub struct TensorOperations<'a> {
    pub config: &'a Config,
    pub layout: Layout,
    /// Cosine and sine of each token's angles: folded as complex numbers
    /// `[tokens, 1, head_dim / 2]`, stored as pairs `[tokens, 1, head_dim / 2, 2]`.
    pub rotation: Tensor,
    pub attend: &'a mut Attend<'a>,
}

impl TensorOperations<'_> {
    /// x as the product with a weight reads it. Where norms are beside the matrices, this makes a
    /// norm and its weight one operation, and [`Operations::rms_norm`] passes its input on.
    fn normed(&self, x: Tensor, norm: Option<&Tensor>) -> Tensor {
        match norm {
            None => x,
            Some(weight) => fast::weighted_rms_norm(&x, weight, self.config.rms_norm_eps),
        }
    }

    /// Heads of queries or keys, normed by the architecture's norm of heads where it has one.
    fn normed_heads(&self, x: Tensor, norm: Option<&Weight>) -> Tensor {
        match (norm, self.layout) {
            (None, _) => x,
            (Some(norm), Layout::Folded) => {
                fast::rms_norm(&x, self.config.rms_norm_eps) * norm.matrix()
            }
            (Some(norm), Layout::Stored) => self.normed(x, Some(norm.matrix())),
        }
    }

    fn turned(&self, x: &Tensor) -> Tensor {
        match self.layout {
            Layout::Folded => fast::rotary(x, &self.rotation),
            Layout::Stored => fast::rotary_halves(x, &self.rotation),
        }
    }
}

impl Operations for TensorOperations<'_> {
    type Tokens = Tensor;
    type Rows = Tensor;
    type Weight = Weight;

    fn embedding(&mut self, table: &Weight, tokens: &Tensor) -> Tensor {
        fast::embedding(table.matrix(), tokens)
    }

    fn rms_norm(&mut self, x: &Tensor, _width: usize) -> Tensor {
        match self.layout {
            Layout::Folded => fast::rms_norm(x, self.config.rms_norm_eps),
            Layout::Stored => x.shallow_clone(),
        }
    }

    fn attention(
        &mut self,
        layer: usize,
        x: Tensor,
        qkv: &Weight,
        norms: Option<&HeadNorms<Weight>>,
    ) -> Tensor {
        let (heads, kv_heads) = (self.config.num_attention_heads, self.config.num_key_value_heads);
        let x = self.normed(x, qkv.norm.as_ref());
        let by_head = |part: &Linear| {
            part.apply(&x, self.layout).view([x.size()[0], -1, self.config.head_dim])
        };
        let (queries, keys, values) = match &qkv.parts[..] {
            [joined] if norms.is_none() => {
                // Queries and keys turn together.
                let parts = by_head(joined).split_with_sizes([heads + kv_heads, kv_heads], 1);
                let turned = self.turned(&parts[0]).split_with_sizes([heads, kv_heads], 1);
                let [queries, keys] = <[Tensor; 2]>::try_from(turned).expect("two parts");
                (queries, keys, parts[1].shallow_clone())
            }
            parts => {
                let parts = match parts {
                    [joined] => by_head(joined).split_with_sizes([heads, kv_heads, kv_heads], 1),
                    parts => parts.iter().map(by_head).collect(),
                };
                let [queries, keys, values] =
                    <[Tensor; 3]>::try_from(parts).expect("queries, keys and values");
                let queries = self.normed_heads(queries, norms.map(|norms| &norms.queries));
                let keys = self.normed_heads(keys, norms.map(|norms| &norms.keys));
                (self.turned(&queries), self.turned(&keys), values)
            }
        };
        (self.attend)(layer, queries, keys, values)
    }

    fn attention_output(&mut self, x: Tensor, weight: &Weight) -> Tensor {
        weight.multiply(&x, self.layout)
    }

    fn swiglu(&mut self, _layer: usize, x: Tensor, gate: &Weight, up: &Weight) -> Tensor {
        let x = self.normed(x, gate.norm.as_ref());
        let gates = gate.multiply(&x, self.layout);
        match gates.size()[1] == self.config.intermediate_size {
            true => fast::swiglu(&gates, &up.multiply(&x, self.layout)),
            // One product made both.
            false => {
                let halves = gates.chunk(2, 1);
                fast::swiglu(&halves[0], &halves[1])
            }
        }
    }

    fn swiglu_output(&mut self, x: Tensor, weight: &Weight) -> Tensor {
        weight.multiply(&x, self.layout)
    }

    fn add(&mut self, x: Tensor, more: Tensor) -> Tensor {
        x + more
    }

    fn scale(&mut self, x: Tensor, weight: &Weight) -> Tensor {
        match self.layout {
            Layout::Folded => x * weight.matrix(),
            Layout::Stored => self.normed(x, Some(weight.matrix())),
        }
    }
}
