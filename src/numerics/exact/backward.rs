//! The backward pass: gradients of rows on their way back through the recorded operations, and
//! the weights' sums over tokens.

use crate::numerics::exact::{elementwise, product};
use crate::numerics::{ExactGradients, ExactWeight, Left, Panels, Window, Windows, slices};

/// What a backward pass needs beside its gradient.
#[derive(Debug, Clone, Copy)]
pub struct BackwardSetting {
    pub window: Window,
    /// The loss weight that counts as 1.
    pub unit: f64,
    pub tokens_in_all: usize,
    pub slots: usize,
}

/// A backward pass under way.
pub struct Backward {
    /// Gradients of nodes that have not been handed on.
    pub waiting: Vec<Option<Vec<f32>>>,
    pub gradients: ExactGradients,
    pub setting: BackwardSetting,
    /// Of the forward pass.
    pub windows: Windows,
}

impl Backward {
    /// Adds to a node's gradient. Everything is rounded into the window of gradients.
    pub fn give(&mut self, node: usize, mut gradient: Vec<f32>) {
        let tally = &mut self.gradients.gradients;
        elementwise::round(&mut gradient, self.setting.window, tally);
        match &mut self.waiting[node] {
            Some(sum) => {
                // Two numbers of the window add up to an f32 without rounding.
                slices::add(sum, &gradient);
                elementwise::round(sum, self.setting.window, tally);
            }
            empty => *empty = Some(gradient),
        }
    }

    /// The gradient of a linear layer's input, and its weight's added to the sums.
    pub fn linear(
        &mut self,
        g: &[f32],
        x: &[f32],
        window: Window,
        weight: &ExactWeight,
    ) -> Vec<f32> {
        let left = Left::Columns(g, self.setting.window);
        let right = Panels::of_rows(x, weight.inputs, window);
        let tokens = self.setting.tokens_in_all;
        product::multiply_onto(self.gradients.matrix(weight), left, &right, tokens);
        if weight.bias.is_some() {
            elementwise::add_rows(self.gradients.bias(weight), g);
        }
        product::multiply_rounded(Left::Rows(g, self.setting.window), &weight.backward)
    }

    /// Adds g · x over tokens to the sums of a vector of weights.
    pub fn scale(&mut self, g: &[f32], x: &[f32], weight: &ExactWeight) {
        elementwise::add_products(self.gradients.matrix(weight), g, x);
    }
}
