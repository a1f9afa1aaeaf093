//! A policy's weights as a pass uses them.

use crate::numerics::Folded;
use crate::policy::{Config, Decoder, Layer, Layout, Linear, Weight};
use std::collections::BTreeMap;
use tch::Tensor;

/// Weights in the form in which fast arithmetic uses them, with their graph to the parameters.
#[derive(Debug)]
pub struct Prepared {
    pub decoder: Decoder<Weight>,
    /// Of each layer, gate and up as one matrix `[2 · intermediate, hidden]`: for sampling under
    /// [`Layout::Folded`] only, otherwise empty.
    pub gates_and_ups: Vec<Tensor>,
}

/// Matrices that sampling multiplies at once. The parameters are views of them: nothing is held
/// twice.
#[derive(Debug)]
pub struct Joined {
    qkv: Linear,
    /// `[2 · intermediate, hidden]`.
    gate_and_up: Tensor,
}

impl Prepared {
    /// For a forward and its backward pass.
    pub fn new(config: &Config, parameters: &BTreeMap<String, Tensor>, layout: Layout) -> Self {
        let decoder = Decoder::of(config).map(|folded| Weight::new(folded, parameters, layout));
        Self { decoder, gates_and_ups: Vec::new() }
    }

    /// For the products of few rows. For stored weights, `joined` has the matrices of each layer that
    /// are multiplied at once; for folded weights it is empty.
    pub fn for_sampling(mut self, joined: &[Joined]) -> Self {
        if joined.is_empty() {
            return self.by_column();
        }
        for (layer, joined) in self.decoder.layers.iter_mut().zip(joined) {
            layer.qkv.parts = vec![joined.qkv.share()];
            layer.gate.parts =
                vec![Linear { matrix: joined.gate_and_up.shallow_clone(), bias: None }];
        }
        self
    }

    /// The same folded matrices, stored by column, gates and ups as one.
    fn by_column(mut self) -> Self {
        let by_column = |matrix: &Tensor| matrix.tr().contiguous().tr();
        for layer in &mut self.decoder.layers {
            let joined = by_column(&Tensor::cat(&[layer.gate.matrix(), layer.up.matrix()], 0));
            // Both are views: the prompts' pass and the steps share one copy.
            let halves = joined.chunk(2, 0);
            layer.gate.parts[0].matrix = halves[0].shallow_clone();
            layer.up.parts[0].matrix = halves[1].shallow_clone();
            self.gates_and_ups.push(joined);
            for weight in [&mut layer.qkv, &mut layer.o, &mut layer.down] {
                weight.parts[0].matrix = by_column(weight.matrix());
            }
        }
        self
    }
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

    /// The same tensors.
    pub fn share(&self) -> Self {
        Self { qkv: self.qkv.share(), gate_and_up: self.gate_and_up.shallow_clone() }
    }
}
