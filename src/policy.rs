//! A policy that is being trained: the model, its weights as plain values, and AdamW's state.
//! Gradients go out of the tensors, new weights go back in; nothing else mutates the model.

use crate::checkpoint;
use crate::config::Optimizer;
use crate::ledger;
use crate::ledger::Components;
use crate::model::gradients::Gradients;
use crate::model::qwen2::Qwen2;
use crate::optimizer;
use crate::optimizer::AdamW;
use crate::optimizer::Tensors;
use std::sync::Arc;
use tch::Tensor;

/// Model, master weights and optimiser state.
#[derive(Debug)]
pub struct Policy {
    model: Qwen2,
    weights: Tensors,
    optimizer: AdamW,
}

impl Policy {
    /// Makes a model trainable, before its first update.
    pub fn new(model: Qwen2, optimizer: &Optimizer) -> Self {
        Self::resume(model, optimizer, optimizer::State::default())
    }

    /// Goes on with a checkpoint's weights and moments.
    pub fn resume(
        model: Qwen2,
        optimizer: &Optimizer,
        state: impl Into<Arc<optimizer::State>>,
    ) -> Self {
        for tensor in model.parameters().values() {
            let _ = tensor.set_requires_grad(true);
        }
        let weights = checkpoint::values(&model)
            .into_iter()
            .map(|(name, (_, values))| (name, values))
            .collect();
        Self { model, weights, optimizer: AdamW::from_state(optimizer, state) }
    }

    /// The model with its newest weights.
    pub fn model(&self) -> &Qwen2 {
        &self.model
    }

    /// The model alone, no longer trainable.
    pub fn into_model(self) -> Qwen2 {
        for tensor in self.model.parameters().values() {
            let _ = tensor.set_requires_grad(false);
        }
        self.model
    }

    /// AdamW's state.
    pub fn optimizer(&self) -> &AdamW {
        &self.optimizer
    }

    /// The ledger's components `weights` and `moments`, as they are now.
    pub fn components(&self) -> Components {
        let state = self.optimizer.state();
        let moments = ledger::moments(state.updates, &state.first_moments, &state.second_moments);
        let named = [("weights", ledger::tensors(&self.weights)), ("moments", moments)];
        named.map(|(name, digest)| (name.to_string(), digest)).into()
    }

    /// Clips the gradients, makes one AdamW update and writes the weights back. Returns the
    /// gradients and their norm, both before clipping.
    ///
    /// # Errors
    /// When a gradient is NaN or infinite; the weights are then unchanged.
    pub fn update(
        &mut self,
        gradients: Gradients,
        learning_rate: f64,
    ) -> Result<(Tensors, f64), optimizer::Error> {
        let gradients = gradients.values(&self.model);
        let norm = self.optimizer.step(&mut self.weights, &gradients, learning_rate)?;
        tch::no_grad(|| {
            for (name, tensor) in self.model.parameters() {
                let values = Tensor::from_slice(&self.weights[name]).view(tensor.size().as_slice());
                tensor.shallow_clone().copy_(&values);
            }
        });
        self.model.parameters_changed();
        Ok((gradients, norm))
    }
}
