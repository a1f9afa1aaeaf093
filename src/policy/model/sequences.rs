//! What a training forward reads: whole sequences, and the states whose next token is asked for.

use tch::Tensor;

/// Sequences one after another, without padding.
#[derive(Debug, Clone, Default)]
pub struct Sequences {
    pub tokens: Vec<u32>,
    pub lengths: Vec<usize>,
    /// Where in `tokens` the states lie that predict a target, ascending.
    pub states: Vec<usize>,
    /// The token that each of them predicts.
    pub targets: Vec<u32>,
}

impl Sequences {
    /// Appends a sequence. Its states from `first` on predict `targets`, one after another.
    pub fn push(&mut self, tokens: &[u32], first: usize, targets: &[u32]) {
        let start = self.tokens.len();
        self.states.extend((0..targets.len()).map(|at| start + first + at));
        self.targets.extend_from_slice(targets);
        self.tokens.extend_from_slice(tokens);
        self.lengths.push(tokens.len());
    }

    /// The tokens as a right-padded matrix `[sequences, longest]`, and where in it, flattened,
    /// each state lies.
    pub fn padded(&self) -> (Tensor, Tensor) {
        let longest = self.lengths.iter().copied().max().unwrap_or(0);
        let mut tokens = vec![0i64; self.lengths.len() * longest];
        let mut places = Vec::with_capacity(self.tokens.len());
        for (row, &length) in self.lengths.iter().enumerate() {
            places.extend(row * longest..row * longest + length);
        }
        for (&place, &token) in places.iter().zip(&self.tokens) {
            tokens[place] = i64::from(token);
        }
        let states: Vec<i64> = self.states.iter().map(|&state| places[state] as i64).collect();
        let size = [self.lengths.len() as i64, longest as i64];
        (Tensor::from_slice(&tokens).view(size), Tensor::from_slice(&states))
    }

    /// The targets as a tensor, `[states]`.
    pub fn target_tensor(&self) -> Tensor {
        let targets: Vec<i64> = self.targets.iter().map(|&token| i64::from(token)).collect();
        Tensor::from_slice(&targets)
    }
}
