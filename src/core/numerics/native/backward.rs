//! The backward pass: gradients of rows through the recorded operations, and the weights' sums over tokens.

use crate::numerics::native::{elementwise, product};
use crate::numerics::{Arithmetic, Left, NativeGradients, NativeWeight, Panels, Window};
use std::marker::PhantomData;
use std::sync::Arc;

#[derive(Debug, Clone, Copy)]
pub struct BackwardSetting {
    pub window: Window,
    pub tokens_in_all: usize,
}

pub struct Backward<A> {
    /// Gradients of nodes that have not been handed on.
    pub waiting: Vec<Option<Arc<Vec<f32>>>>,
    pub gradients: NativeGradients,
    pub setting: BackwardSetting,
    pub sums: PhantomData<A>,
}

/// Tokens whose products are added up in one part of a sum over tokens: as many as caches hold both operands of.
pub const fn part_of_sums<A>() -> usize {
    2048 / size_of::<A>()
}

impl<A: Arithmetic> Backward<A> {
    /// Adds to a node's gradient. Everything is rounded into the window of gradients, where sums are exact.
    pub fn give(&mut self, node: usize, gradient: impl Into<Arc<Vec<f32>>>) {
        let mut gradient: Arc<Vec<f32>> = gradient.into();
        let tally = &mut self.gradients.gradients;
        if A::EXACT {
            let own: &mut Vec<f32> = Arc::make_mut(&mut gradient);
            elementwise::round::<A>(own, self.setting.window, tally);
        }
        match &mut self.waiting[node] {
            Some(sum) => {
                let sum = Arc::make_mut(sum);
                // Two numbers of the window add up to an f32 without rounding.
                elementwise::add(sum, &gradient);
                elementwise::round::<A>(sum, self.setting.window, tally);
            }
            empty => *empty = Some(gradient),
        }
    }

    /// The gradients of an input x by each of the linear layers that read it, whose weights' are added to the sums;
    /// each with the gradient of its outputs.
    pub fn linear<const LAYERS: usize>(
        &mut self,
        layers: [(&[f32], &NativeWeight<A>); LAYERS],
        x: &[f32],
        window: Window,
    ) -> [Vec<f32>; LAYERS] {
        let BackwardSetting { window: of_gradients, tokens_in_all } = self.setting;
        let (part, inputs) = (part_of_sums::<A>(), layers[0].1.inputs());
        for (at, x) in x.chunks(part * inputs).enumerate() {
            let right = Panels::<A>::of_rows(x, inputs, window);
            for (g, weight) in layers {
                let outputs = weight.outputs();
                let g = &g[at * part * outputs..][..x.len() / inputs * outputs];
                let left = Left::Columns(g, of_gradients);
                let sums = self.gradients.matrix(weight);
                product::multiply_onto(sums, left, &right, tokens_in_all);
            }
        }
        layers.map(|(g, weight)| {
            if weight.bias.is_some() {
                elementwise::add_rows(self.gradients.bias(weight), g);
            }
            weight.multiply_back(g, of_gradients)
        })
    }

    pub fn scale(&mut self, g: &[f32], x: &[f32], weight: &NativeWeight<A>) {
        elementwise::add_products(self.gradients.vector(weight), g, x);
    }
}
