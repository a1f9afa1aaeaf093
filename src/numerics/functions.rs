//! Functions that the standard library and LibTorch leave to the machine, from one pinned
//! implementation: the `libm` crate in f64, and here e^x in f32 for loops over many numbers.

/// e^x in f32, within 2 units in the last place: 2^n · e^r with |r| ≤ ln 2 / 2, the polynomial
/// of Cephes' `expf`. Results below the smallest normal number become about that number, results
/// above 2^127 become infinity, NaN stays NaN. No product and sum are fused, so the bits are the
/// same everywhere.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding and subtracting 1.5 · 2²³ rounds to a whole number.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 = HIGH + LOW, HIGH with few bits: n · HIGH is exact.
    const HIGH: f32 = 0.693_359_4;
    const LOW: f32 = -2.121_944_4e-4;
    // Comparisons, not `max` and `min`, which would lose a NaN.
    let x = if x < -87.3 { -87.3 } else { x };
    let above = x > 88.0;
    let x = if above { 88.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * HIGH) - n * LOW;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let e_r = p * (r * r) + r + 1.0;
    // The low bits of `shifted` are n; shifted into the exponent's place they make 2^n.
    let power = (shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits());
    let result = e_r * f32::from_bits(power);
    if above { f32::INFINITY } else { result }
}

/// A distribution over a vocabulary, in f64. The sampler draws from it and the exact training
/// forward reads log-probs from it, so both agree bit by bit where the logits do.
#[derive(Debug, Clone)]
pub struct Distribution {
    /// 1 / temperature.
    scale: f64,
    /// Largest scaled logit.
    most: f64,
    /// e^(scaled logit − most), by token id.
    pub weights: Vec<f64>,
    /// Σ weights, in the order of token ids.
    pub total: f64,
    log_total: f64,
}

impl Distribution {
    /// softmax(logits / temperature). `temperature` must be positive.
    ///
    /// `None` when the logits are no distribution: NaN or +∞ is among them, or all are −∞.
    pub fn new(logits: &[f64], temperature: f64) -> Option<Self> {
        let scale = 1.0 / temperature;
        let most = logits.iter().fold(f64::NEG_INFINITY, |most, logit| most.max(logit * scale));
        let weights: Vec<f64> =
            logits.iter().map(|logit| libm::exp(logit * scale - most)).collect();
        // `f64::max` passes over a NaN; the sum of the weights does not.
        let total: f64 = weights.iter().sum();
        let is_distribution = most.is_finite() && total.is_finite();
        is_distribution.then(|| Self { scale, most, weights, total, log_total: libm::log(total) })
    }

    /// Log-prob in nats of a token with this logit.
    pub fn log_prob(&self, logit: f64) -> f64 {
        logit * self.scale - self.most - self.log_total
    }

    pub fn probability(&self, token: usize) -> f64 {
        self.weights[token] / self.total
    }

    /// Entropy in nats, summed in the order of token ids; `logits` are those it was made of.
    pub fn entropy(&self, logits: &[f64]) -> f64 {
        let terms = logits.iter().enumerate().map(|(token, &logit)| {
            let probability = self.probability(token);
            if probability == 0.0 { 0.0 } else { probability * self.log_prob(logit) }
        });
        -terms.sum::<f64>()
    }

    /// The derivative of token's log-prob by each logit.
    pub fn derivative(&self, token: usize) -> impl Iterator<Item = f64> {
        let one = move |at| if at == token { 1.0 } else { 0.0 };
        (0..self.weights.len()).map(move |at| (one(at) - self.probability(at)) * self.scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prelude::prop_assert, proptest};

    proptest! {
        #[test]
        fn exp_is_libms_within_two_units_in_the_last_place(x in -87.3f32..88.0) {
            let exact = libm::exp(f64::from(x));
            let unit = f64::from(f32::EPSILON) * exact;
            prop_assert!((f64::from(exp(x)) - exact).abs() <= 2.0 * unit, "{x}: {} {exact}", exp(x));
        }
    }

    #[test]
    fn exp_at_its_ends() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(89.0), f32::INFINITY);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert!(exp(f32::NEG_INFINITY) < 1.3e-38 && exp(-200.0) < 1.3e-38);
        assert!(exp(f32::NAN).is_nan());
    }
}
