//! Functions that the standard library and LibTorch leave to the machine, from one pinned
//! implementation: the `libm` crate in f64, and here e^x in f32 for loops over many numbers.

use crate::numerics::vectorised::vectorised;

/// e^x in f32, within 2 units in the last place: 2^n · e^r with |r| ≤ ln 2 / 2, the polynomial of Cephes'
/// `expf`. Results below the smallest normal number become about that number, results above 2^127 become
/// infinity, NaN stays NaN. No product and sum are fused, so the bits are the same everywhere.
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

/// e^x in place, number by number: the bits of `libm::exp`, in loops that are compiled to vectors.
pub fn exp_all(x: &mut [f64]) {
    let mut others = false;
    vectorised(
        #[inline(always)]
        || {
            for x in x.iter_mut() {
                // What `libm::exp` treats apart: results below the smallest normal number, and above 1.
                others |= !(*x > -708.0 && *x <= 0.0);
            }
        },
    );
    if others {
        // −∞ is a token that cannot come, and the usual one of them.
        x.iter_mut().for_each(|x| *x = if *x < -745.2 { 0.0 } else { libm::exp(*x) });
        return;
    }
    vectorised(
        #[inline(always)]
        || x.iter_mut().for_each(|x| *x = exp_below_one(*x)),
    );
}

/// `libm::exp` between −708 and 0, without a branch: FreeBSD's algorithm and its order of operations.
#[inline(always)]
fn exp_below_one(x: f64) -> f64 {
    const HIGH: f64 = 6.931_471_803_691_238e-1;
    const LOW: f64 = 1.908_214_929_270_587_7e-10;
    const P: [f64; 5] = [
        1.666_666_666_666_660_2e-1,
        -2.777_777_777_701_559_3e-3,
        6.613_756_321_437_934e-5,
        -1.653_390_220_546_525_2e-6,
        4.138_136_797_057_238e-8,
    ];
    let high_word = (x.to_bits() >> 32) & 0x7fff_ffff;
    // Up to ln 2 / 2 nothing is taken off.
    let whole = (std::f64::consts::LOG2_E * x - 0.5) as i32;
    let k = if high_word > 0x3fd6_2e42 { whole } else { 0 };
    let (high, low) = (x - f64::from(k) * HIGH, f64::from(k) * LOW);
    let r = high - low;
    let rr = r * r;
    let c = r - rr * (P[0] + rr * (P[1] + rr * (P[2] + rr * (P[3] + rr * P[4]))));
    let y = 1.0 + (r * c / (2.0 - c) - low + high);
    let y = if high_word > 0x3e30_0000 { y } else { 1.0 + x };
    y * f64::from_bits(((1023 + k) as u64) << 52)
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
    /// Σ weights, added up in the one order of `sum`.
    pub total: f64,
    log_total: f64,
}

const BLOCK: usize = 512;

const LANES: usize = 8;

/// Σ x in one order: more than BLOCK numbers are added up by blocks, whose sums have LANES numbers side by side.
fn sum(x: &[f64]) -> f64 {
    if x.len() <= BLOCK { x.iter().sum() } else { x.chunks(BLOCK).map(sum_of_block).sum() }
}

fn sum_of_block(x: &[f64]) -> f64 {
    let (blocks, rest) = x.as_chunks::<LANES>();
    let mut lanes = [0f64; LANES];
    vectorised(
        #[inline(always)]
        || {
            for block in blocks {
                lanes.iter_mut().zip(block).for_each(|(lane, x)| *lane += x);
            }
        },
    );
    lanes.iter().chain(rest).sum()
}

impl Distribution {
    /// softmax(logits / temperature), temperature > 0; `None` when NaN or +∞ is among the logits, or all are −∞.
    pub fn new(logits: &[impl Copy + Into<f64>], temperature: f64) -> Option<Self> {
        let scale = 1.0 / temperature;
        let mut weights = vec![0.0; logits.len()];
        let mut most = f64::NEG_INFINITY;
        // The larger of two that passes over a NaN; the sum of the weights does not.
        let larger = |a: f64, b: f64| if b > a { b } else { a };
        vectorised(
            #[inline(always)]
            || {
                let scaled = weights.iter_mut().zip(logits);
                scaled.for_each(|(weight, &logit)| *weight = logit.into() * scale);
                let (blocks, rest) = weights.as_chunks::<LANES>();
                let mut lanes = [f64::NEG_INFINITY; LANES];
                for block in blocks {
                    lanes.iter_mut().zip(block).for_each(|(lane, x)| *lane = larger(*lane, *x));
                }
                most = lanes.iter().chain(rest).fold(most, |most, x| larger(most, *x));
                weights.iter_mut().for_each(|weight| *weight -= most);
            },
        );
        exp_all(&mut weights);
        let total = sum(&weights);
        let is_distribution = most.is_finite() && total.is_finite();
        is_distribution.then(|| Self { scale, most, weights, total, log_total: libm::log(total) })
    }

    /// Log-prob in nats of a token with this logit.
    #[inline(always)]
    pub fn log_prob(&self, logit: f64) -> f64 {
        logit * self.scale - self.most - self.log_total
    }

    /// Entropy in nats; `logits` are those it was made of.
    pub fn entropy(&self, logits: &[impl Copy + Into<f64>]) -> f64 {
        let mut terms = vec![0.0; logits.len()];
        vectorised(
            #[inline(always)]
            || {
                let each = terms.iter_mut().zip(&self.weights).zip(logits);
                for ((term, weight), &logit) in each {
                    let probability = weight / self.total;
                    let all = probability * self.log_prob(logit.into());
                    *term = if probability == 0.0 { 0.0 } else { all };
                }
            },
        );
        -sum(&terms)
    }

    /// The token whose interval of the weights' sums, in the order of token ids, holds `target`.
    pub fn token_at(&self, target: f64) -> usize {
        let mut before = 0.0;
        for (block, weights) in self.weights.chunks(BLOCK).enumerate() {
            if self.weights.len() > BLOCK {
                let after = before + sum_of_block(weights);
                if target >= after {
                    before = after;
                    continue;
                }
            }
            let tokens = weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0);
            for (token, weight) in tokens {
                before += weight;
                if target < before {
                    return block * BLOCK + token;
                }
            }
        }
        // Rounding may leave the target at the very end: the last possible token takes it.
        self.weights.iter().rposition(|weight| *weight != 0.0).unwrap_or(0)
    }

    /// Gives the places of the logits the derivative of `share` · the token's log-prob by each, in f32.
    pub fn differentiate<T: From<f32>>(&self, token: usize, share: f64, logits: &mut [T]) {
        let by_logit =
            |one: f64, weight: f64| (share * ((one - weight / self.total) * self.scale)) as f32;
        vectorised(
            #[inline(always)]
            || {
                let places = logits.iter_mut().zip(&self.weights);
                places.for_each(|(place, weight)| *place = T::from(by_logit(0.0, *weight)));
            },
        );
        logits[token] = T::from(by_logit(1.0, self.weights[token]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq};
    use proptest::proptest;

    proptest! {
        #[test]
        fn exp_is_libms_within_two_units_in_the_last_place(x in -87.3f32..88.0) {
            let exact = libm::exp(f64::from(x));
            let unit = f64::from(f32::EPSILON) * exact;
            prop_assert!((f64::from(exp(x)) - exact).abs() <= 2.0 * unit, "{x}: {} {exact}", exp(x));
        }
    }

    proptest! {
        #[test]
        fn exp_of_all_is_libms_bit_by_bit(
            mut x in proptest::collection::vec(-708f64..=0.0, 1..40),
            exponent in -60i32..=10,
        ) {
            // Small ones too, whose own branches `libm::exp` has.
            x.push(-libm::ldexp(1.0 + x[0] / -708.0, exponent).min(707.9));
            let expected: Vec<u64> = x.iter().map(|x| libm::exp(*x).to_bits()).collect();
            exp_all(&mut x);
            prop_assert_eq!(x.iter().map(|x| x.to_bits()).collect::<Vec<u64>>(), expected);
        }
    }

    #[test]
    fn exp_of_all_is_libms_at_the_ends_of_its_cases() {
        let half = std::f64::consts::LN_2 / 2.0;
        let mut at =
            vec![0.0, -0.0, -f64::MIN_POSITIVE, -708.0, f64::NEG_INFINITY, -745.1, 1.0, 710.0];
        for near in [half, 3.0 * half, 2f64.powi(-28), 708.0, 0.346_574_2, 0.346_573_6] {
            at.extend(
                (-40i64..=40)
                    .map(|step| -f64::from_bits((near.to_bits() as i64 + (step << 26)) as u64)),
            );
            at.extend(
                (-40i64..=40).map(|step| -f64::from_bits((near.to_bits() as i64 + step) as u64)),
            );
        }
        for part in [1, at.len()] {
            let mut x = at.clone();
            x.chunks_mut(part).for_each(exp_all);
            for (at, x) in at.iter().zip(x) {
                assert_eq!(x.to_bits(), libm::exp(*at).to_bits(), "{at:e}");
            }
        }
        let mut nan = [f64::NAN, -1.0];
        exp_all(&mut nan);
        assert!(nan[0].is_nan() && nan[1] == libm::exp(-1.0));
    }

    #[test]
    fn a_large_vocabulary_is_a_distribution_as_a_small_one_is() {
        let logit = |token: usize| (((token * 7919) % 1009) as f64 - 504.0) / 60.0;
        for size in [LANES, BLOCK, BLOCK + 1, 5 * BLOCK + 3] {
            let mut logits: Vec<f64> = (0..size).map(logit).collect();
            logits[1] = f64::NEG_INFINITY;
            let distribution = Distribution::new(&logits, 0.7).unwrap();
            let most = logits.iter().fold(f64::MIN, |most, x| most.max(x / 0.7));
            let weights: Vec<f64> = logits.iter().map(|x| libm::exp(x / 0.7 - most)).collect();
            let total: f64 = weights.iter().sum();
            assert!((distribution.total / total - 1.0).abs() < 1e-12);
            let entropy: f64 =
                weights.iter().map(|w| w / total).filter(|p| *p > 0.0).map(|p| -p * p.ln()).sum();
            assert!((distribution.entropy(&logits) / entropy - 1.0).abs() < 1e-12);
            // The token whose interval holds a target, by one sum after another.
            for share in [0.0, 0.1, 0.5, 0.77, 0.999_999, 1.0, 1.1] {
                let target = share * distribution.total;
                let mut sum = 0.0;
                let found = weights.iter().position(|weight| {
                    sum += weight;
                    target < sum
                });
                assert_eq!(
                    distribution.token_at(target),
                    found.unwrap_or(size - 1),
                    "{size} {share}"
                );
            }
            let mut by_logit = vec![0f64; size];
            distribution.differentiate(3, -2.0, &mut by_logit);
            let expected =
                |at: usize| -2.0 * (f64::from(u8::from(at == 3)) - weights[at] / total) / 0.7;
            for (at, by_logit) in by_logit.iter().enumerate() {
                assert!((by_logit - expected(at)).abs() < 1e-6, "{size} {at}");
            }
        }
        let nan = |at: usize| {
            let mut logits = vec![0.5; 2 * BLOCK];
            logits[at] = f64::NAN;
            Distribution::new(&logits, 1.0).is_none()
        };
        assert!([0, 9, BLOCK, 2 * BLOCK - 1].into_iter().all(nan));
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
