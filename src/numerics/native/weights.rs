//! Weights as native products read them, and their gradients.

use crate::numerics::{Arithmetic, Folded, Panels, Tally, Windows, native::elementwise};
use std::collections::BTreeMap;

/// Parameters by name.
pub type Parameters = BTreeMap<String, Vec<f32>>;

/// A matrix or vector of weights in its window.
#[derive(Debug)]
pub struct NativeWeight<A> {
    /// Place of its gradient in [`NativeGradients`].
    pub slot: usize,
    /// `[outputs, inputs]`; of a vector `[1, inputs]`.
    pub values: Vec<f32>,
    pub inputs: usize,
    /// Its transpose, as the right operand of the forward product; empty of a vector.
    pub forward: Panels<A>,
    /// Itself, as the right operand of the backward product.
    pub backward: Panels<A>,
    pub bias: Option<Vec<f32>>,
    pub tally: Tally,
}

impl<A: Arithmetic> NativeWeight<A> {
    /// Folds and rounds the parameters. Products, then one rounding into the window.
    pub fn new(slot: usize, folded: &Folded, parameters: &Parameters, windows: &Windows) -> Self {
        let inputs = folded.inputs;
        let mut values = folded.rows(parameters);
        if let Some(norm) = &folded.norm {
            values = elementwise::scale_columns(&values, &parameters[norm]);
        }
        let mut tally = Tally::default();
        elementwise::round::<A>(&mut values, windows.weight, &mut tally);
        let bias = folded.bias(parameters).map(|mut bias| {
            elementwise::round::<A>(&mut bias, windows.weight, &mut tally);
            bias
        });
        let forward = Panels::of_columns(&values, inputs, windows.weight);
        let backward = Panels::of_rows(&values, inputs, windows.weight);
        Self { slot, values, inputs, forward, backward, bias, tally }
    }

    /// Rows of the matrix.
    pub fn outputs(&self) -> usize {
        self.values.len() / self.inputs
    }
}

/// Sums over tokens, by the weights' slots: the matrix `[outputs, inputs]` and the bias.
#[derive(Debug, Default, Clone)]
pub struct NativeGradients {
    slots: Vec<(Vec<f64>, Vec<f64>)>,
    /// The loss weight that is 1 in these sums.
    pub unit: f64,
    /// Numbers of the forward pass that were rounded.
    pub activations: Tally,
    pub gradients: Tally,
}

impl NativeGradients {
    /// Zeros.
    pub fn zeros(slots: usize, unit: f64) -> Self {
        Self { slots: vec![(Vec::new(), Vec::new()); slots], unit, ..Self::default() }
    }

    /// The sums of a weight.
    pub fn matrix<A: Arithmetic>(&mut self, weight: &NativeWeight<A>) -> &mut [f64] {
        sized(&mut self.slots[weight.slot].0, weight.values.len())
    }

    /// The sums of a weight's bias.
    pub fn bias<A: Arithmetic>(&mut self, weight: &NativeWeight<A>) -> &mut [f64] {
        sized(&mut self.slots[weight.slot].1, weight.outputs())
    }

    /// Adds the sums of other tokens of the same loss: exact, so that their order is free.
    pub fn add(&mut self, other: Self) {
        if self.slots.is_empty() {
            *self = other;
            return;
        }
        for ((matrix, bias), (more_matrix, more_bias)) in self.slots.iter_mut().zip(other.slots) {
            for (sums, more) in [(matrix, more_matrix), (bias, more_bias)] {
                if sums.is_empty() {
                    *sums = more;
                } else {
                    sums.iter_mut().zip(&more).for_each(|(sum, more)| *sum += more);
                }
            }
        }
        self.activations.add(other.activations);
        self.gradients.add(other.gradients);
    }

    /// Gradients of the parameters: the derivative of folding, in f64 and the order of the
    /// weights, then one rounding to f32. Parameters that took no part have zeros.
    pub fn of_parameters<'a>(
        &self,
        folded: impl Iterator<Item = (usize, &'a Folded)>,
        parameters: &Parameters,
    ) -> Parameters {
        let zeros = |(name, values): (&String, &Vec<f32>)| (name.clone(), vec![0f64; values.len()]);
        let mut sums: BTreeMap<String, Vec<f64>> = parameters.iter().map(zeros).collect();
        for (slot, folded) in folded {
            let (matrix, bias) = &self.slots[slot];
            if !matrix.is_empty() {
                folded.give_rows(matrix, parameters, &mut sums);
            }
            if !bias.is_empty() {
                folded.give_bias(bias, &mut sums);
            }
        }
        let rounded =
            |sums: Vec<f64>| sums.into_iter().map(|sum| (sum * self.unit) as f32).collect();
        sums.into_iter().map(|(name, sums)| (name, rounded(sums))).collect()
    }
}

fn sized(sums: &mut Vec<f64>, length: usize) -> &mut [f64] {
    if sums.is_empty() {
        sums.resize(length, 0.0);
    }
    sums
}
