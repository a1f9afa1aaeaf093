//! Training passes by fast arithmetic that hold less: layers whose activations are computed again in the backward pass,
//! and logits of a part of the targets at a time. The gradients are those of the plain pass, but for rounding.

use crate::experiment::Memory;
use crate::numerics::{Folded, Operations, fast};
use crate::policy::model::gradients::add_to;
use crate::policy::model::tensors::TensorOperations;
use crate::policy::{Decoder, Gradients, Qwen2, Sequences, Weight};
use std::collections::BTreeMap;
use tch::{Device, Tensor};

pub struct RecomputePass<'a> {
    model: &'a Qwen2,
    memory: Memory,
    folded: Decoder<Folded>,
    /// `[sequences · longest]`.
    tokens: Tensor,
    length: i64,
    /// e^{iφ} of each token's position.
    rotation: Tensor,
    /// Where the states lie that predict a target.
    states: Tensor,
    targets: Tensor,
    temperature: f64,
}

type RecomputeSums<'a> = BTreeMap<&'a str, &'a mut Tensor>;

impl<'a> RecomputePass<'a> {
    pub fn new(model: &'a Qwen2, memory: Memory, sequences: &Sequences, temperature: f64) -> Self {
        let device = model.device();
        let (tokens, states) = sequences.padded();
        let (batch, length) = tokens.size2().expect("tokens have two dimensions");
        Self {
            model,
            memory,
            folded: Decoder::of(model.config()),
            tokens: tokens.view([-1]).to_device(device),
            length,
            rotation: model.rotation_of(batch, length),
            states: states.to_device(device),
            targets: sequences.target_tensor().to_device(device),
            temperature,
        }
    }

    /// Log-prob and entropy of each target, both `[targets]` in nats, without a graph.
    pub fn statistics(&self) -> [Tensor; 2] {
        let _no_graph = tch::no_grad_guard();
        let chosen =
            self.finish(&self.residuals(&mut |_residual| ())).index_select(0, &self.states);
        let parts = self.parts().map(|(from, count)| {
            let logits = self.model.logits(&chosen.narrow(0, from, count));
            let targets = self.targets.narrow(0, from, count);
            fast::log_probs_and_entropy(&logits, &targets, self.temperature)
        });
        let (log_probs, entropy): (Vec<Tensor>, Vec<Tensor>) = parts.unzip();
        [log_probs, entropy].map(|parts| Tensor::cat(&parts, 0).to_device(Device::Cpu))
    }

    /// Adds the gradients of a loss of the targets' log-probs, as [`Qwen2::add_gradients`] has it.
    pub fn add_gradients<R>(
        &self,
        sums: &mut Gradients,
        loss: impl FnOnce(&Tensor) -> (Tensor, R),
    ) -> R {
        let names = self.model.parameters().keys().map(String::as_str);
        let mut sums: RecomputeSums = names.zip(sums.fast(self.model.parameters().len())).collect();
        if self.memory.recompute_layers {
            return self.by_layer(loss, &mut sums);
        }
        let tokens = self.tokens.view([-1, self.length]);
        let hidden = self.model.forward(&tokens).flatten(0, 1);
        let chosen = hidden.index_select(0, &self.states);
        let (by_chosen, found) = self.by_chosen(&chosen, loss, &mut sums);
        let names: Vec<&String> = self.model.parameters().keys().collect();
        self.through(&chosen, &by_chosen, &[], &names, &mut sums);
        found
    }

    /// One layer's graph at a time, the last one first.
    fn by_layer<R>(
        &self,
        loss: impl FnOnce(&Tensor) -> (Tensor, R),
        sums: &mut RecomputeSums,
    ) -> R {
        let mut residuals = Vec::new();
        let last = fast::without_graph(|| self.residuals(&mut |residual| residuals.push(residual)));
        let last = last.set_requires_grad(true);
        let chosen = self.finish(&last).index_select(0, &self.states);
        let (by_chosen, found) = self.by_chosen(&chosen, loss, sums);
        let norm = "model.norm.weight".to_string();
        let mut by_residual = self.through(&chosen, &by_chosen, &[&last], &[&norm], sums).remove(0);
        for (index, residual) in residuals.into_iter().enumerate().rev() {
            let residual = residual.set_requires_grad(true);
            let after = self.layer(index, residual.shallow_clone());
            let prefix = format!("model.layers.{index}.");
            let names = self.model.parameters().keys().filter(|name| name.starts_with(&prefix));
            let names: Vec<&String> = names.collect();
            by_residual = self.through(&after, &by_residual, &[&residual], &names, sums).remove(0);
        }
        let table = "model.embed_tokens.weight".to_string();
        let embedded = fast::embedding(&self.model.parameters()[&table], &self.tokens);
        self.through(&embedded, &by_residual, &[], &[&table], sums);
        found
    }

    /// Derivative of the loss by the chosen states; that by the head's matrix goes to `sums`.
    fn by_chosen<R>(
        &self,
        chosen: &Tensor,
        loss: impl FnOnce(&Tensor) -> (Tensor, R),
        sums: &mut RecomputeSums,
    ) -> (Tensor, R) {
        let chosen = chosen.detach();
        let log_probs = |from: i64, count: i64, states: &Tensor| {
            let targets = self.targets.narrow(0, from, count);
            fast::log_probs(&self.model.logits(states), &targets, self.temperature)
        };
        let parts = fast::without_graph(|| {
            let part = |(from, count)| log_probs(from, count, &chosen.narrow(0, from, count));
            self.parts().map(part).collect::<Vec<Tensor>>()
        });
        let leaf = Tensor::cat(&parts, 0).to_device(Device::Cpu).set_requires_grad(true);
        let (loss, found) = loss(&leaf);
        let by_log_probs = Tensor::run_backward(&[loss], &[&leaf], false, false).remove(0);
        let by_log_probs = by_log_probs.to_device(chosen.device());
        let head = self.model.config().head_name().to_string();
        let mut by_chosen = Vec::new();
        for (from, count) in self.parts() {
            let states = chosen.narrow(0, from, count).set_requires_grad(true);
            let part = log_probs(from, count, &states);
            let by_part = by_log_probs.narrow(0, from, count);
            by_chosen.extend(self.through(&part, &by_part, &[&states], &[&head], sums));
        }
        (Tensor::cat(&by_chosen, 0), found)
    }

    /// The derivatives of Σ `output` · `by_output` by `inputs`, and by the named parameters, which go to `sums`.
    fn through(
        &self,
        output: &Tensor,
        by_output: &Tensor,
        inputs: &[&Tensor],
        names: &[&String],
        sums: &mut RecomputeSums,
    ) -> Vec<Tensor> {
        let parameters = names.iter().map(|name| &self.model.parameters()[*name]);
        let all: Vec<&Tensor> = inputs.iter().copied().chain(parameters).collect();
        let sum = (output * by_output).sum(output.kind());
        let mut gradients = Tensor::run_backward(&[sum], &all, false, false);
        for (name, gradient) in names.iter().zip(gradients.drain(inputs.len()..)) {
            add_to(sums.get_mut(name.as_str()).expect("a sum for each parameter"), &gradient);
        }
        gradients
    }

    /// First target of each part of the targets, and their number.
    fn parts(&self) -> impl Iterator<Item = (i64, i64)> {
        let targets = self.targets.size()[0];
        let size = match self.memory.logits_chunk_tokens {
            0 => targets.max(1),
            tokens => tokens as i64,
        };
        // One part without targets where there are none.
        let starts = (0..targets.max(1)).step_by(size as usize);
        starts.map(move |from| (from, size.min(targets - from)))
    }

    /// The residual stream after the last layer; `keep` gets what goes into each.
    fn residuals(&self, keep: &mut dyn FnMut(Tensor)) -> Tensor {
        let table = &self.model.parameters()["model.embed_tokens.weight"];
        let mut hidden = fast::embedding(table, &self.tokens);
        for index in 0..self.folded.layers.len() {
            keep(hidden.shallow_clone());
            hidden = self.layer(index, hidden);
        }
        hidden
    }

    /// One layer, with weights that live as long as its graph does.
    fn layer(&self, index: usize, hidden: Tensor) -> Tensor {
        let parameters = self.model.parameters();
        let layer = &self.folded.layers[index];
        let layer = layer.map(|folded| Weight::new(folded, parameters));
        self.with_operations(|operations| layer.run(operations, index, hidden))
    }

    fn finish(&self, hidden: &Tensor) -> Tensor {
        let norm = Weight::new(&self.folded.norm, self.model.parameters());
        self.with_operations(|operations| {
            let normed = operations.rms_norm(hidden);
            operations.scale(normed, &norm)
        })
    }

    fn with_operations<T>(&self, run: impl FnOnce(&mut TensorOperations) -> T) -> T {
        let mut attend = |_, queries: Tensor, keys: Tensor, values: Tensor| {
            fast::causal_attention(&queries, &keys, &values, self.length)
        };
        let rotation = self.rotation.shallow_clone();
        let config = self.model.config();
        run(&mut TensorOperations { config, rotation, attend: &mut attend })
    }
}

#[cfg(test)]
mod tests;
