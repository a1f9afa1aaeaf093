//! A policy that is being trained: the model, its f32 weights, and AdamW's state. Gradients go out
//! of the tensors, new weights go back in; nothing else mutates the model.

use crate::experiment::Optimizer;
use crate::policy::{AdamW, DeviceAdamW, Gradients, Moments, OptimizerError, Qwen2, Stepped};
use crate::policy::{checkpoint, digests, optimizer};
use crate::records::{Components, TensorDigest, ledger};
use std::collections::BTreeMap;
use std::sync::Arc;
use tch::{Kind, Tensor};

/// Model, f32 weights and optimiser state.
#[derive(Debug)]
pub struct Policy {
    model: Qwen2,
    trained: Trained,
}

#[derive(Debug)]
enum Trained {
    Plain(AdamW),
    /// Tensors where the policy is, for large ones. Weights in f32 are the model's own.
    OnDevice(DeviceAdamW),
}

impl Policy {
    /// Makes a model trainable, before its first update.
    pub fn new(model: Qwen2, optimizer: &Optimizer) -> Self {
        Self::resume(model, None, optimizer, optimizer::OptimizerState::default())
    }

    /// Goes on with a checkpoint's weights and moments. `stored` are the weights as the checkpoint holds them,
    /// where the model computes in a narrower form; without them the model's own are the weights.
    pub fn resume(
        model: Qwen2,
        stored: Option<&BTreeMap<String, Tensor>>,
        optimizer: &Optimizer,
        state: impl Into<Arc<optimizer::OptimizerState>>,
    ) -> Self {
        let state = state.into();
        let trained = if model.is_native() {
            Trained::Plain(AdamW::from_state(optimizer, state))
        } else {
            for tensor in model.parameters().values() {
                let _ = tensor.set_requires_grad(true);
            }
            let stored = stored.unwrap_or(model.parameters());
            // Weights that are there in f32 already are shared.
            let wide = |(name, own): (&String, &Tensor)| {
                let weight = match model.kind() {
                    Kind::Float => own.detach(),
                    _ => stored[name].detach().to_device(model.device()).to_kind(Kind::Float),
                };
                (name.clone(), weight)
            };
            let weights = model.parameters().iter().map(wide).collect();
            Trained::OnDevice(DeviceAdamW::new(optimizer, weights, &state))
        };
        Self { model, trained }
    }

    pub fn model(&self) -> &Qwen2 {
        &self.model
    }

    pub fn into_model(self) -> Qwen2 {
        if let Trained::OnDevice(_) = self.trained {
            for tensor in self.model.parameters().values() {
                let _ = tensor.set_requires_grad(false);
            }
        }
        self.model
    }

    /// The weights that a checkpoint holds: f32, whatever the model computes in.
    pub fn weights(&self) -> &BTreeMap<String, Tensor> {
        match &self.trained {
            Trained::Plain(_) => self.model.parameters(),
            Trained::OnDevice(adamw) => adamw.weights(),
        }
    }

    /// AdamW's state, as a checkpoint holds it.
    pub fn moments(&self) -> &dyn Moments {
        match &self.trained {
            Trained::Plain(optimizer) => &**optimizer.state(),
            Trained::OnDevice(adamw) => adamw,
        }
    }

    /// The ledger's components `weights` and `moments`, as they are now.
    pub fn components(&self) -> Components {
        let [weights, moments] = match &self.trained {
            Trained::Plain(optimizer) => {
                let state = optimizer.state();
                std::thread::scope(|scope| {
                    let moments =
                        scope.spawn(|| checkpoint::moments_digest(state, TensorDigest::Bytes));
                    let weights = ledger::tensors(&*self.model.plain_parameters());
                    [weights, moments.join().expect("a digest")]
                })
            }
            Trained::OnDevice(adamw) => adamw.digests(),
        };
        [("weights".to_string(), weights), ("moments".to_string(), moments)].into()
    }

    /// Clips the gradients, makes one AdamW update and writes the weights back. Returns the gradients' SHA-256 (the
    /// ledger's) and norm before clipping. Errors: a gradient, new weight, moment or product of weights (under exact
    /// arithmetic) that is not finite; weights and moments are then unchanged.
    pub fn update(
        &mut self,
        gradients: Gradients,
        learning_rate: f64,
    ) -> Result<(String, f64), OptimizerError> {
        let _no_graph = tch::no_grad_guard();
        let model = &mut self.model;
        match &mut self.trained {
            Trained::Plain(adamw) => update_plain(model, adamw, gradients, learning_rate),
            Trained::OnDevice(adamw) => update_on_device(model, adamw, gradients, learning_rate),
        }
    }
}

fn update_plain(
    model: &mut Qwen2,
    optimizer: &mut AdamW,
    gradients: Gradients,
    learning_rate: f64,
) -> Result<(String, f64), OptimizerError> {
    let is_large = model.is_large();
    let mut weights = model.take_parameters();
    let gradients = gradients.values(model, &weights);
    let (digest, stepped) = std::thread::scope(|scope| {
        let digest = scope.spawn(|| ledger::tensors(&gradients));
        let own = Arc::make_mut(&mut weights);
        let stepped = model.shared(|| optimizer.step(own, &gradients, learning_rate));
        // A small policy's matrices are made beside the digest, a large one's when the gradients are gone.
        if !is_large {
            model.put(std::mem::take(&mut weights));
        }
        (digest.join().expect("a digest"), stepped)
    });
    drop(gradients);
    if is_large {
        model.put(weights);
    }
    let Stepped { norm, before } = stepped?;
    // Exact arithmetic makes its matrices now rather than at their next use.
    let tally = model.weight_tally();
    if let Some(before) = before
        && tally.is_some_and(|tally| tally.not_finite)
    {
        model.put(optimizer.go_back(before));
        return Err(OptimizerError::Products);
    }
    Ok((digest, norm))
}

fn update_on_device(
    model: &Qwen2,
    optimizer: &mut DeviceAdamW,
    gradients: Gradients,
    learning_rate: f64,
) -> Result<(String, f64), OptimizerError> {
    let gradients = gradients.into_tensors();
    let norm = optimizer.step(&gradients, learning_rate)?;
    if model.kind() != Kind::Float {
        for (tensor, weight) in model.parameters().values().zip(optimizer.weights().values()) {
            tensor.shallow_clone().copy_(weight);
        }
    }
    model.parameters_changed();
    let mut all = gradients.iter();
    let named = model.parameters().iter().map(|(name, parameter)| match all.next() {
        Some(gradient) if gradient.defined() => (name, gradient.shallow_clone()),
        _ => (name, parameter.zeros_like()),
    });
    Ok((digests::tensors(named, digests::of_device(model.device())), norm))
}
