//! [`crate::policy::sampling::sampler`] for all rows of a batch at once, on the policy's device: the same
//! rule on the same uniforms, in f32 with sums in f64. Nothing waits for the processor.

use crate::experiment::{LogProbsOver, Sampling};
use crate::numerics::{Numerics, fast, operations};
use tch::{Kind, Tensor};

#[derive(Debug)]
pub struct Drawn {
    /// Token ids `[rows]`.
    pub tokens: Tensor,
    /// Their log-probs in nats, `[rows]`.
    pub log_probs: Tensor,
    /// Entropy of each row's distribution in nats, `[rows]`, where it was asked for.
    pub entropy: Option<Tensor>,
}

/// Draws one token for each row: logits `[rows, vocab]`, uniforms `[rows]` in f64 → token ids `[rows]`, and their
/// log-probs `[rows]` in f32 under softmax(logits / temperature) over the whole vocabulary; not finite where the logits
/// are no distribution. Of the tokens that top-k and top-p keep, in the order of ids, the one whose interval of the
/// cumulative distribution holds the uniform. With `entropy` also the entropies `[rows]` of the whole distributions.
pub fn sample(logits: &Tensor, sampling: &Sampling, entropy: bool, uniforms: &Tensor) -> Drawn {
    let greedy = sampling.temperature == 0.0;
    let temperature = if greedy { 1.0 } else { sampling.temperature };
    let distribution = fast::log_distribution(logits, temperature);
    let probabilities =
        (entropy || !greedy).then(|| operations::exp(&distribution, Numerics::Fast));
    let kept = probabilities.as_ref().filter(|_| !greedy).map(|all| kept(all, sampling));
    let tokens = match &kept {
        Some(kept) => invert(kept, uniforms),
        None => first_of_the_best(&distribution),
    };
    let mut log_probs = distribution.gather(-1, &tokens.unsqueeze(-1), false).squeeze_dim(-1);
    if let (Some(LogProbsOver::KeptTokens), Some(kept)) = (sampling.log_probs, kept) {
        log_probs = (log_probs - fast::log_mass(&kept)).clamp_max(0.0);
    }
    let entropy = probabilities.filter(|_| entropy);
    let entropy =
        entropy.map(|probabilities| fast::expected_surprise(&probabilities, &distribution));
    Drawn { tokens, log_probs, entropy }
}

/// The lowest id among the largest values. LibTorch's argmax promises none.
fn first_of_the_best(values: &Tensor) -> Tensor {
    let vocabulary = values.size()[1];
    let best = values.eq_tensor(&values.amax([-1i64], true));
    let ids = Tensor::arange(vocabulary, (Kind::Int64, values.device()));
    // Of NaN there is no best value; the id has to be one of the vocabulary all the same.
    let ids = ids.where_scalarother(&best, vocabulary - 1);
    ids.amin([-1i64], false)
}

/// Probabilities `[rows, vocab]` with 0 where top-k or top-p drop a token.
fn kept(probabilities: &Tensor, sampling: &Sampling) -> Tensor {
    if !sampling.keeps_a_part() {
        return probabilities.shallow_clone();
    }
    // Stable: of equal probabilities the lower id comes first.
    let (mut sorted, order) = probabilities.sort_stable(true, -1, true);
    let vocabulary = sorted.size()[1];
    if sampling.top_k > 0 && (sampling.top_k as i64) < vocabulary {
        let dropped = vocabulary - sampling.top_k as i64;
        let _ = sorted.narrow(1, sampling.top_k as i64, dropped).zero_();
    }
    let mass = sorted.cumsum(-1, Kind::Double);
    // Top-p looks at what top-k left, as in transformers and vLLM. A token stays while what is before it is not enough.
    let enough = mass.narrow(1, vocabulary - 1, 1) * sampling.top_p;
    let stays = (&mass - &sorted).lt_tensor(&enough).to_kind(sorted.kind());
    sorted *= stays;
    probabilities.zeros_like().scatter(1, &order, &sorted)
}

/// The id whose interval of the cumulative weights `[rows, vocab]` holds each uniform `[rows]`. The vocabulary is cut
/// into about as many blocks as each has tokens: two sums of 390 numbers are faster and round less than one of 152,064.
fn invert(weights: &Tensor, uniforms: &Tensor) -> Tensor {
    let (rows, vocabulary) = weights.size2().expect("weights have two dimensions");
    let width = (vocabulary as f64).sqrt().ceil() as i64;
    let count = (vocabulary + width - 1) / width;
    let padded = weights.constant_pad_nd([0, count * width - vocabulary]);
    let blocks = padded.view([rows, count, width]);
    let sums = blocks.sum_dim_intlist([-1i64].as_slice(), false, Kind::Double); // [rows, count]
    let masses = sums.cumsum(-1, Kind::Double);
    let targets = (uniforms * masses.select(1, count - 1)).unsqueeze(-1); // [rows, 1]
    let block = interval(&masses, &sums, &targets); // [rows, 1]
    let before = (&masses - &sums).gather(1, &block, false);
    let at = block.unsqueeze(-1).expand([rows, 1, width], false);
    let inside = blocks.gather(1, &at, false).squeeze_dim(1); // [rows, width]
    let masses = inside.cumsum(-1, Kind::Double) + before;
    let place = interval(&masses, &inside, &targets);
    (block * width + place).squeeze_dim(-1)
}

/// The first place whose cumulative mass exceeds the target, and at most the last whose own mass is above 0: rounding
/// may leave a target at the very end. Masses and weights `[rows, places]`, targets `[rows, 1]` → `[rows, 1]`.
fn interval(masses: &Tensor, weights: &Tensor, targets: &Tensor) -> Tensor {
    let places = masses.size()[1];
    let ids = Tensor::arange(places, (Kind::Int64, masses.device()));
    let last = (ids * weights.gt(0.0)).amax([-1i64], true);
    let passed = masses.le_tensor(targets).sum_dim_intlist([-1i64].as_slice(), true, Kind::Int64);
    passed.minimum(&last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Purpose;
    use crate::base::rng::stream;
    use crate::policy::sampling::sampler;

    fn logits(rows: usize, vocabulary: usize) -> Vec<Vec<f64>> {
        let mut draws = stream(5, Purpose::Initialisation, &[]);
        let row =
            |_| (0..vocabulary).map(|_| f64::from((draws.normals().0 * 3.0) as f32)).collect();
        (0..rows).map(row).collect()
    }

    fn drawn(logits: &[Vec<f64>], sampling: &Sampling, uniforms: &[f64]) -> Drawn {
        let rows = logits.len() as i64;
        let tensor = Tensor::from_slice(&logits.concat()).view([rows, -1]).to_kind(Kind::Float);
        sample(&tensor, sampling, true, &Tensor::from_slice(uniforms))
    }

    fn doubles(values: &Tensor) -> Vec<f64> {
        Vec::try_from(values.to_kind(Kind::Double)).unwrap()
    }

    fn together(logits: &[Vec<f64>], sampling: &Sampling, uniforms: &[f64]) -> Vec<(i64, f64)> {
        let drawn = drawn(logits, sampling, uniforms);
        let tokens: Vec<i64> = Vec::try_from(drawn.tokens).unwrap();
        tokens.into_iter().zip(doubles(&drawn.log_probs)).collect()
    }

    #[test]
    fn every_row_gets_the_token_that_the_sampler_of_one_row_draws() {
        // A prime, so that the last block is not full.
        let logits = logits(40, 997);
        let uniforms: Vec<f64> = (0..40).map(|row| f64::from(row) / 40.0).collect();
        for sampling in [
            Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, log_probs: None },
            Sampling { temperature: 0.6, top_p: 0.7, top_k: 0, log_probs: None },
            Sampling { temperature: 1.3, top_p: 1.0, top_k: 7, log_probs: None },
            Sampling { temperature: 1.0, top_p: 0.5, top_k: 20, log_probs: None },
            Sampling { temperature: 1.0, top_p: 0.9, top_k: 5000, log_probs: None },
            Sampling {
                temperature: 0.8,
                top_p: 0.6,
                top_k: 0,
                log_probs: Some(LogProbsOver::KeptTokens),
            },
            Sampling {
                temperature: 1.0,
                top_p: 1.0,
                top_k: 1,
                log_probs: Some(LogProbsOver::KeptTokens),
            },
            Sampling { temperature: 0.0, top_p: 1.0, top_k: 0, log_probs: None },
        ] {
            let pairs = together(&logits, &sampling, &uniforms);
            let entropy = doubles(&drawn(&logits, &sampling, &uniforms).entropy.unwrap());
            for (row, (token, log_prob)) in pairs.into_iter().enumerate() {
                let alone = sampler::sample(&logits[row], &sampling, true, uniforms[row]).unwrap();
                assert_eq!(token, i64::from(alone.id), "{sampling:?}, {row}");
                assert!((log_prob - alone.log_prob).abs() < 1e-5 && log_prob <= 0.0);
                assert!((entropy[row] - alone.entropy.unwrap()).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn a_token_of_probability_zero_is_never_drawn() {
        let infinity = f64::INFINITY;
        let row = vec![-infinity, 0.3, -infinity, -0.2, -infinity];
        for uniform in [0.0, 0.3, 0.62, 0.63, 0.999_999_999_999_999_9] {
            for top_p in [0.3, 1.0] {
                let sampling = Sampling { temperature: 0.7, top_p, top_k: 0, log_probs: None };
                let (token, log_prob) =
                    together(std::slice::from_ref(&row), &sampling, &[uniform])[0];
                assert!(token == 1 || token == 3, "{token} at {uniform}");
                assert!(log_prob.is_finite());
            }
        }
    }

    #[test]
    fn logits_that_are_no_distribution_have_no_finite_log_prob_and_a_known_id() {
        let infinity = f64::INFINITY;
        let rows =
            [vec![0.0, f64::NAN, 1.0], vec![0.0, infinity, 1.0], vec![-infinity; 3], vec![0.0; 3]];
        for temperature in [0.0, 1.0] {
            for top_p in [0.5, 1.0] {
                let sampling = Sampling { temperature, top_p, top_k: 0, log_probs: None };
                let drawn = together(&rows, &sampling, &[0.5; 4]);
                assert!(drawn.iter().all(|(token, _)| (0..3).contains(token)));
                let finite: Vec<bool> = drawn.iter().map(|(_, p)| p.is_finite()).collect();
                assert_eq!(finite, [false, false, false, true]);
            }
        }
    }
}
