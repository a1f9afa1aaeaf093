//! The backward pass: gradients of rows through the recorded operations, and the weights' sums over tokens.

use crate::numerics::native::{elementwise, product};
use crate::numerics::{Arithmetic, Left, NativeGradients, NativeWeight, Panels, Window};
use std::marker::PhantomData;

#[derive(Debug, Clone, Copy)]
pub struct BackwardSetting {
    pub window: Window,
    pub tokens_in_all: usize,
}

pub struct Backward<A> {
    /// Gradients of nodes that have not been handed on.
    pub waiting: Vec<Option<Vec<f32>>>,
    pub gradients: NativeGradients,
    pub setting: BackwardSetting,
    pub sums: PhantomData<A>,
}

/// Tokens whose products are added up in one part of a sum over tokens: as many as caches hold both operands of.
pub const fn part_of_sums<A>() -> usize {
    2048 / size_of::<A>()
}

impl<A: Arithmetic> Backward<A> {
    /// Adds to a node's gradient. Everything is rounded into the window of gradients.
    pub fn give(&mut self, node: usize, mut gradient: Vec<f32>) {
        let tally = &mut self.gradients.gradients;
        elementwise::round::<A>(&mut gradient, self.setting.window, tally);
        match &mut self.waiting[node] {
            Some(sum) => {
                // Two numbers of the window add up to an f32 without rounding.
                elementwise::add(sum, &gradient);
                elementwise::round::<A>(sum, self.setting.window, tally);
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
        weight: &NativeWeight<A>,
    ) -> Vec<f32> {
        let tokens = self.setting.tokens_in_all;
        let part = part_of_sums::<A>();
        let parts = g.chunks(part * weight.outputs()).zip(x.chunks(part * weight.inputs()));
        for (g, x) in parts {
            let left = Left::Columns(g, self.setting.window);
            let right = Panels::<A>::of_rows(x, weight.inputs(), window);
            product::multiply_onto(self.gradients.matrix(weight), left, &right, tokens);
        }
        if weight.bias.is_some() {
            elementwise::add_rows(self.gradients.bias(weight), g);
        }
        weight.multiply_back(g, self.setting.window)
    }

    pub fn scale(&mut self, g: &[f32], x: &[f32], weight: &NativeWeight<A>) {
        elementwise::add_products(self.gradients.vector(weight), g, x);
    }
}
