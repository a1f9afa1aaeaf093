//! What a training forward reads: whole sequences, and the states whose next token is asked for.

use crate::numerics::Span;
use tch::Tensor;

/// Sequences one after another, without padding.
#[derive(Debug, Clone, Default)]
pub struct Sequences {
    pub tokens: Vec<u32>,
    pub spans: Vec<Span>,
    /// Where in `tokens` the states lie that predict a target.
    pub states: Vec<usize>,
    /// The token that each of them predicts.
    pub targets: Vec<u32>,
    /// No gradient is expected: the native engine goes forward a second time where there is one after all.
    pub without_gradient: bool,
}

impl Sequences {
    /// Prompts, each with the state that predicts what follows it.
    pub fn of_prompts(prompts: &[&[u32]]) -> Self {
        let mut all = Self::default();
        for prompt in prompts {
            all.push(prompt, 0, &[]);
            all.states.push(all.tokens.len() - 1);
        }
        all
    }

    /// Appends a sequence. Its states from `first` on predict `targets`, one after another.
    pub fn push(&mut self, tokens: &[u32], first: usize, targets: &[u32]) {
        let start = self.tokens.len();
        self.states.extend((0..targets.len()).map(|at| start + first + at));
        self.targets.extend_from_slice(targets);
        self.tokens.extend_from_slice(tokens);
        self.spans.push(Span { own: start..self.tokens.len(), before: 0..0 });
    }

    /// Appends what goes on after the newest sequence that stands alone, its prompt. The prompt's last state predicts
    /// the first target, the own states the others. Only for the native engine: not for [`Sequences::padded`].
    pub fn push_after(&mut self, tokens: &[u32], targets: &[u32]) {
        let prompt = self.spans.iter().rfind(|span| span.before.is_empty());
        let before = prompt.expect("a prompt before what follows it").own.clone();
        let start = self.tokens.len();
        self.states.push(before.end - 1);
        self.states.extend(start..start + targets.len() - 1);
        self.targets.extend_from_slice(targets);
        self.tokens.extend_from_slice(tokens);
        if !tokens.is_empty() {
            self.spans.push(Span { own: start..self.tokens.len(), before });
        }
    }

    /// The tokens as a right-padded matrix `[sequences, longest]`, and where in it, flattened, each state lies.
    pub fn padded(&self) -> (Tensor, Tensor) {
        let longest = self.spans.iter().map(|span| span.own.len()).max().unwrap_or(0);
        let mut tokens = vec![0i64; self.spans.len() * longest];
        let mut places = Vec::with_capacity(self.tokens.len());
        for (row, span) in self.spans.iter().enumerate() {
            assert!(span.before.is_empty(), "whole sequences");
            places.extend(row * longest..row * longest + span.own.len());
        }
        for (&place, &token) in places.iter().zip(&self.tokens) {
            tokens[place] = i64::from(token);
        }
        let states: Vec<i64> = self.states.iter().map(|&state| places[state] as i64).collect();
        let size = [self.spans.len() as i64, longest as i64];
        (Tensor::from_slice(&tokens).view(size), Tensor::from_slice(&states))
    }

    /// The targets as a tensor, `[states]`.
    pub fn target_tensor(&self) -> Tensor {
        let targets: Vec<i64> = self.targets.iter().map(|&token| i64::from(token)).collect();
        Tensor::from_slice(&targets)
    }
}
