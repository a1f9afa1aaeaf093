//! Weights as native products read them, and their gradients.

use crate::base::workers;
use crate::numerics::native::{elementwise, product};
use crate::numerics::{Arithmetic, Folded, Left, Panels, SomeRows, Tally, Window, Windows};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

pub type Parameters = BTreeMap<String, Vec<f32>>;

#[derive(Debug, Clone)]
pub struct NativeWeight<A> {
    /// Place of its gradient in [`NativeGradients`].
    pub slot: usize,
    /// Of the weight of a norm, as many numbers as it norms; empty of a matrix.
    pub vector: Vec<f32>,
    /// The transpose of a matrix `[outputs, inputs]`: right operand of the forward product, by blocks of the backward.
    pub forward: Arc<Panels<A>>,
    /// The right operand of the backward product, where the matrix is small: made with the first.
    backward: OnceLock<Panels<A>>,
    pub bias: Option<Vec<f32>>,
    pub tally: Tally,
}

impl<A: Arithmetic> NativeWeight<A> {
    /// Folds and rounds the parameters. Products, then one rounding into the window.
    pub fn new(slot: usize, folded: &Folded, parameters: &Parameters, windows: &Windows) -> Self {
        let inputs = folded.inputs;
        let rows = folded.rows(parameters);
        // A panel at a time, so that nothing but the panels is as large as the matrix.
        let of_panel = |rows: &&[&[f32]]| {
            let (mut values, mut tally) = (rows.concat(), Tally::default());
            if let Some(norm) = &folded.norm {
                values = elementwise::scale_columns(&values, &parameters[norm]);
            }
            elementwise::round::<A>(&mut values, windows.weight, &mut tally);
            (values, tally)
        };
        let mut tally = Tally::default();
        let (mut vector, mut parts) = (Vec::new(), Vec::new());
        let of_heads = matches!(&folded.parts[..], [part] if part.interleaved_heads.is_some());
        if rows.len() == 1 || of_heads {
            (vector, tally) = of_panel(&&rows[..]);
        } else {
            let panels: Vec<&[&[f32]]> = rows.chunks(A::PANEL).collect();
            let packed = workers::in_parts(&panels, |rows| {
                let (values, tally) = of_panel(rows);
                (Panels::of_columns(&values, inputs, windows.weight), tally)
            });
            for (panel, of_panel) in packed {
                parts.push(panel);
                tally.add(of_panel);
            }
        }
        let bias = folded.bias(parameters).map(|mut bias| {
            elementwise::round::<A>(&mut bias, windows.weight, &mut tally);
            bias
        });
        let forward = Arc::new(Panels::side_by_side(parts, inputs, windows.weight));
        Self { slot, vector, forward, backward: OnceLock::new(), bias, tally }
    }

    pub fn with_slot(&self, slot: usize) -> Self {
        Self { slot, ..self.clone() }
    }

    /// Gradients of the inputs from those of the outputs, out of `window`: `[rows, outputs]` → `[rows, inputs]`.
    pub fn multiply_back(&self, g: &[f32], window: Window) -> Vec<f32> {
        /// Numbers of matrices that are worth a second copy.
        const SMALL: usize = 1 << 18;
        if self.outputs() * self.inputs() > SMALL {
            return product::multiply_transposed(g, window, &self.forward);
        }
        let backward = self.backward.get_or_init(|| self.forward.transposed_whole());
        product::multiply_rounded(Left::Rows(g, window), backward)
    }

    pub fn outputs(&self) -> usize {
        self.forward.columns
    }

    pub fn inputs(&self) -> usize {
        self.forward.terms
    }
}

/// Sums over tokens for a matrix of weights, empty before the first.
#[derive(Debug, Clone)]
pub enum SlotSums {
    Wide(Vec<f64>),
    /// Of a large policy's matrices in f32: sums in f64 would be twice as large as the policy.
    Narrow(Vec<f32>),
}

impl Default for SlotSums {
    fn default() -> Self {
        Self::Wide(Vec::new())
    }
}

/// Sums over tokens, by the weights' slots: the matrix `[outputs, inputs]` and the bias.
#[derive(Debug, Default, Clone)]
pub struct NativeGradients {
    slots: Vec<(SlotSums, Vec<f64>)>,
    is_narrow: bool,
    /// Those of the embedding's table, for the tokens that were read.
    embedding: SomeRows,
    /// The loss weight that is 1 in these sums.
    pub unit: f64,
    /// Numbers of the forward pass that were rounded.
    pub activations: Tally,
    pub gradients: Tally,
}

impl NativeGradients {
    pub fn zeros(slots: usize, unit: f64, is_narrow: bool) -> Self {
        Self { slots: vec![Default::default(); slots], is_narrow, unit, ..Self::default() }
    }

    pub fn matrix<A: Arithmetic>(&mut self, weight: &NativeWeight<A>) -> &mut SlotSums {
        let length = weight.outputs() * weight.inputs();
        let sums = &mut self.slots[weight.slot].0;
        match sums {
            SlotSums::Wide(wide) if wide.is_empty() && self.is_narrow => {
                *sums = SlotSums::Narrow(Vec::new());
            }
            SlotSums::Wide(wide) => drop(sized(wide, length)),
            SlotSums::Narrow(_) => {}
        }
        sums
    }

    pub fn vector<A: Arithmetic>(&mut self, weight: &NativeWeight<A>) -> &mut [f64] {
        match &mut self.slots[weight.slot].0 {
            SlotSums::Wide(sums) => sized(sums, weight.vector.len()),
            SlotSums::Narrow(_) => panic!("sums of a vector in f32"),
        }
    }

    pub fn bias<A: Arithmetic>(&mut self, weight: &NativeWeight<A>) -> &mut [f64] {
        sized(&mut self.slots[weight.slot].1, weight.outputs())
    }

    pub fn embedding(&mut self, token: u32, width: usize) -> &mut [f64] {
        sized(self.embedding.entry(token).or_default(), width)
    }

    /// Adds the sums of other tokens of the same loss: exact, so that their order is free.
    pub fn add(&mut self, other: Self) {
        if self.slots.is_empty() {
            *self = other;
            return;
        }
        let add = |sums: &mut Vec<f64>, more: Vec<f64>| {
            if sums.is_empty() {
                *sums = more
            } else {
                sums.iter_mut().zip(&more).for_each(|(sum, more)| *sum += more)
            }
        };
        for ((matrix, bias), (more_matrix, more_bias)) in self.slots.iter_mut().zip(other.slots) {
            match (matrix, more_matrix) {
                (SlotSums::Wide(matrix), SlotSums::Wide(more)) => add(matrix, more),
                _ => panic!("sums in f32 are added to by one pass after another"),
            }
            add(bias, more_bias);
        }
        for (token, more) in other.embedding {
            add(self.embedding.entry(token).or_default(), more);
        }
        self.activations.add(other.activations);
        self.gradients.add(other.gradients);
    }

    /// Gradients of the parameters: the derivative of folding, in f64 and the order of the
    /// weights, then one rounding to f32. Parameters that took no part have zeros. No parameter is in two
    /// of the `groups`, each of weights by their slots; the first of all reads the embedding's table.
    pub fn of_parameters(
        self,
        groups: &[Vec<(usize, &Folded)>],
        parameters: &Parameters,
    ) -> Parameters {
        let Self { slots, embedding, unit, .. } = self;
        let slots: Vec<Mutex<_>> = slots.into_iter().map(Mutex::new).collect();
        let table = groups[0][0].1;
        let of_group = |group: &Vec<(usize, &Folded)>| {
            let (mut gradients, mut norms) = (Parameters::new(), BTreeMap::new());
            for (slot, folded) in group {
                let mut slot = slots[*slot].lock().unwrap_or_else(PoisonError::into_inner);
                let (matrix, bias) = std::mem::take(&mut *slot);
                let some = (*folded == table).then_some(&embedding);
                gradients.extend(match matrix {
                    SlotSums::Wide(it) => folded.turn_rows(it, some, unit, parameters, &mut norms),
                    SlotSums::Narrow(it) => {
                        folded.turn_rows(it, some, unit, parameters, &mut norms)
                    }
                });
                gradients.extend(folded.turn_bias(&bias, unit, parameters));
            }
            let rounded =
                |sums: Vec<f64>| sums.into_iter().map(|sum| (sum * unit) as f32).collect();
            gradients.extend(norms.into_iter().map(|(name, sums)| (name, rounded(sums))));
            gradients
        };
        workers::in_parts(groups, of_group).into_iter().flatten().collect()
    }
}

fn sized(sums: &mut Vec<f64>, length: usize) -> &mut [f64] {
    if sums.is_empty() {
        sums.resize(length, 0.0);
    }
    sums
}
