//! What the loss sees of one pass, and sums over the tokens of a response.

use crate::numerics::Numerics;
use tch::{Kind, Tensor};

/// The tokens of one pass. Tensors are `[batch, length]` in f32 or f64, but for the last ones.
#[derive(Debug, Clone, Copy)]
pub struct Tokens<'a> {
    /// log π_θ, with the graph to the weights.
    pub log_probs: &'a Tensor,
    /// log π_old, from the training forward at θ_old; no graph.
    pub old_log_probs: &'a Tensor,
    /// log π_ref, needed by a KL penalty; no graph.
    pub ref_log_probs: Option<&'a Tensor>,
    /// The log-probs that the tokens were sampled with; no graph.
    pub sampler_log_probs: Option<&'a Tensor>,
    /// What the method's `marks` said of each token before the update.
    pub marks: Option<&'a Tensor>,
    /// Â, `[batch, length]` or `[batch, 1]`; no graph.
    pub advantages: &'a Tensor,
    /// True (or not 0) on response tokens that enter the loss.
    pub response_mask: &'a Tensor,
    /// Weights of the responses in the loss, `[batch]`.
    pub row_weights: &'a Tensor,
    /// How many elements of `[batch, length]` each response has, one after another in the order of
    /// memory: `length` for each row, or other lengths where `length` is 1 and responses are packed.
    pub response_lengths: &'a [usize],
    /// Whose e^x is used.
    pub numerics: Numerics,
}

impl Tokens<'_> {
    /// The mean of `values` over the masked-in tokens of each response, at each token of that
    /// response: `[batch, length]`, no graph; 0 for a response that is masked out.
    pub fn response_means(&self, values: &Tensor) -> Tensor {
        self.of_responses(values, |sum, tokens| if tokens == 0.0 { 0.0 } else { sum / tokens })
    }

    /// As [`Tokens::response_means`], the sum.
    pub fn response_sums(&self, values: &Tensor) -> Tensor {
        self.of_responses(values, |sum, _| sum)
    }

    /// `of` the sum over each response's masked-in tokens and their number, at each of its tokens. Each sum runs over
    /// one response in token order, in f64: neither its neighbours nor the cut into passes can change it.
    fn of_responses(&self, values: &Tensor, of: impl Fn(f64, f64) -> f64) -> Tensor {
        let flat = |tensor: &Tensor| -> Vec<f64> {
            let dense = tensor.detach().to_kind(Kind::Double).contiguous().view(-1);
            Vec::try_from(dense).expect("a dense tensor")
        };
        let (terms, mask) = (flat(values), flat(self.response_mask));
        assert_eq!(terms.len(), mask.len(), "values must be [batch, length]");
        let mut spread = Vec::with_capacity(terms.len());
        for &length in self.response_lengths {
            let response = spread.len()..spread.len() + length;
            let inside = terms[response.clone()].iter().zip(&mask[response]);
            let (sum, tokens) = inside
                .filter(|(_, mask)| **mask != 0.0)
                .fold((0.0, 0.0), |(sum, tokens), (term, _)| (sum + term, tokens + 1.0));
            spread.resize(spread.len() + length, of(sum, tokens));
        }
        assert_eq!(spread.len(), terms.len(), "response_lengths must cover every token");
        Tensor::from_slice(&spread).reshape(values.size()).to_kind(values.kind())
    }
}

/// `values` with `derivatives` by log π_θ, neither with a graph. Element by element: no order changes the gradient.
pub fn with_derivatives(values: &Tensor, derivatives: &Tensor, log_probs: &Tensor) -> Tensor {
    values + derivatives * (log_probs - log_probs.detach())
}

/// `values`, which have no graph, with the gradient of `own`: a number of a whole response that each of its tokens
/// carries with a derivative of 1 by its own term. Element by element, as above.
pub fn with_gradient_of(values: &Tensor, own: &Tensor) -> Tensor {
    values + (own - own.detach())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_of_its_own_response_and_each_token_has_its_own_gradient() {
        let values = [0.5, 1.5, f64::NAN, -1.0, 4.0, 7.0];
        let mask = [true, true, false, true, true, false];
        let mean = |lengths: &[usize], shape: [i64; 2]| {
            let values = Tensor::from_slice(&values).reshape(shape);
            let tokens = Tokens {
                log_probs: &values,
                old_log_probs: &values,
                ref_log_probs: None,
                sampler_log_probs: None,
                marks: None,
                advantages: &values,
                response_mask: &Tensor::from_slice(&mask).reshape(shape),
                row_weights: &values,
                response_lengths: lengths,
                numerics: Numerics::Exact,
            };
            Vec::<f64>::try_from(tokens.response_means(&values).view(-1)).unwrap()
        };
        let expected = [1.0, 1.0, 1.0, 1.5, 1.5, 1.5];
        assert_eq!(mean(&[3, 3], [2, 3]), expected);
        assert_eq!(mean(&[3, 3], [6, 1]), expected);
        assert_eq!(mean(&[2, 1, 3], [6, 1]), [1.0, 1.0, 0.0, 1.5, 1.5, 1.5]);

        let own = Tensor::from_slice(&[2.0, 3.0]).set_requires_grad(true);
        let carried = with_gradient_of(&Tensor::from_slice(&[2.5, 2.5]), &own);
        let gradient = Tensor::run_backward(&[carried.sum(Kind::Double)], &[&own], false, false);
        assert_eq!(Vec::<f64>::try_from(&carried.detach()).unwrap(), [2.5, 2.5]);
        assert_eq!(Vec::<f64>::try_from(&gradient[0]).unwrap(), [1.0, 1.0]);
    }
}
