//! A policy's weights as a pass uses them.

use crate::numerics::Folded;
use crate::policy::{Decoder, Layer, Linear, Weight};
use std::collections::BTreeMap;
use tch::Tensor;

/// Weights as LibTorch's products read them, with their graph to the parameters.
pub type Prepared = Decoder<Weight>;

/// Matrices that sampling multiplies at once. The parameters are views of them: nothing is held twice.
#[derive(Debug)]
pub struct Joined {
    qkv: Linear,
    /// `[2 · intermediate, hidden]`.
    gate_and_up: Tensor,
}

/// For the products of few rows: `joined` has the matrices of each layer that are multiplied at once.
pub fn for_sampling(mut prepared: Prepared, joined: &[Joined]) -> Prepared {
    for (layer, joined) in prepared.layers.iter_mut().zip(joined) {
        layer.qkv.parts = vec![joined.qkv.share()];
        layer.gate.parts = vec![Linear { matrix: joined.gate_and_up.shallow_clone(), bias: None }];
    }
    prepared
}

impl Joined {
    /// Joins the matrices of a layer and makes its parameters views of them.
    pub fn new(layer: &Layer<Folded>, parameters: &mut BTreeMap<String, Tensor>) -> Self {
        let mut join = |names: &[&String]| {
            let parts: Vec<Tensor> = names.iter().map(|name| parameters[*name].detach()).collect();
            let sizes: Vec<i64> = parts.iter().map(|part| part.size()[0]).collect();
            let joined = Tensor::cat(&parts, 0);
            for (name, view) in names.iter().zip(joined.split_with_sizes(&sizes, 0)) {
                let trains = parameters[*name].requires_grad();
                parameters.insert((*name).clone(), view.set_requires_grad(trains));
            }
            joined
        };
        let weights: Vec<&String> = layer.qkv.parts.iter().map(|part| &part.weight).collect();
        let biases: Option<Vec<&String>> =
            layer.qkv.parts.iter().map(|part| part.bias.as_ref()).collect();
        let qkv = Linear { matrix: join(&weights), bias: biases.map(|names| join(&names)) };
        let gate_and_up = join(&[&layer.gate.parts[0].weight, &layer.up.parts[0].weight]);
        Self { qkv, gate_and_up }
    }

    pub fn share(&self) -> Self {
        Self { qkv: self.qkv.share(), gate_and_up: self.gate_and_up.shallow_clone() }
    }
}
