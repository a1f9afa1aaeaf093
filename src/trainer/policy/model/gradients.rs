use crate::numerics::{NativeGradients, Parameters, Tally};
use crate::policy::Qwen2;
use tch::{Kind, Tensor};

/// Gradients of every parameter, of the passes that were added so far.
#[derive(Debug, Default)]
pub enum Gradients {
    #[default]
    None,
    /// One tensor for each parameter, in the order of names; undefined where a parameter took no part.
    Fast(Vec<Tensor>),
    Native(NativeGradients),
}

/// Adds a parameter's gradient to a sum, which is f32 where weights are bf16. No other tensor shares the sum's memory.
pub(super) fn add_to(sum: &mut Tensor, term: &Tensor) {
    if !term.defined() {
        return;
    }
    if sum.defined() {
        *sum += term;
        return;
    }
    *sum = match term.kind() {
        Kind::BFloat16 => term.to_kind(Kind::Float),
        _ => term.copy(),
    };
}

impl Gradients {
    pub(super) fn add_of(&mut self, loss: &Tensor, model: &Qwen2) {
        let parameters: Vec<&Tensor> = model.parameters().values().collect();
        let terms = Tensor::run_backward(&[loss], &parameters, false, false);
        // Each term is dropped as soon as it is added.
        for (sum, term) in self.fast(parameters.len()).iter_mut().zip(terms) {
            add_to(sum, &term);
        }
    }

    /// LibTorch's sums, all undefined where no pass was added.
    pub(super) fn fast(&mut self, parameters: usize) -> &mut [Tensor] {
        if matches!(self, Self::None) {
            *self = Self::Fast((0..parameters).map(|_| Tensor::default()).collect());
        }
        match self {
            Self::Fast(sums) => sums,
            _ => panic!("gradients of two arithmetics"),
        }
    }

    /// Adds the gradients of another pass. The order of passes is the order of the sum; exact sums do not depend on it.
    pub fn add(&mut self, other: Self) {
        match (&mut *self, other) {
            (_, Self::None) => {}
            (Self::None, other) => *self = other,
            (Self::Fast(sums), Self::Fast(terms)) => {
                for (sum, term) in sums.iter_mut().zip(terms) {
                    if !sum.defined() {
                        *sum = term;
                    } else if term.defined() {
                        *sum += term;
                    }
                }
            }
            (Self::Native(sums), Self::Native(terms)) => sums.add(terms),
            _ => panic!("gradients of two arithmetics"),
        }
    }

    /// LibTorch's tensors, none where no pass was added.
    pub fn into_tensors(self) -> Vec<Tensor> {
        match self {
            Self::None => Vec::new(),
            Self::Fast(tensors) => tensors,
            Self::Native(_) => panic!("tensors of the native engine's sums"),
        }
    }

    /// The native engine's as plain values by name, 0 where no pass was added. `weights` are those that made them.
    pub fn values(self, model: &Qwen2, weights: &Parameters) -> Parameters {
        let zeros = |(name, values): (&String, &Vec<f32>)| (name.clone(), vec![0.0; values.len()]);
        match (self, model.native()) {
            (Self::Native(sums), Some(native)) => native.of_parameters(sums, weights),
            (Self::None, _) => weights.iter().map(zeros).collect(),
            _ => panic!("plain values of LibTorch's sums"),
        }
    }

    /// How much rounding into windows changed in the forward and in the backward passes; `None` under fast arithmetic.
    pub fn tallies(&self) -> Option<[Tally; 2]> {
        match self {
            Self::Native(sums) => Some([sums.activations, sums.gradients]),
            _ => None,
        }
    }
}
