//! Windows: which multiples of a power of two a kind of number may be, and the bits that a sum of products needs.

use crate::numerics::NumericsError;

/// Bits of an f64's significand: a sum of multiples of 2^low below 2^(low + 53) is exact, whatever its order.
pub const SIGNIFICANT_BITS: u32 = 53;

/// Multiples of 2^low of size at most 2^high. With at most 22 bits of width every one of them is
/// an f32, and so are sums and differences of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub high: i32,
    pub low: i32,
}

/// 2^exponent of a normal f32.
const fn power(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

impl Window {
    /// The window of `width` bits below 2^high.
    pub const fn below(high: i32, width: u32) -> Self {
        Self { high, low: high - width as i32 }
    }

    /// high − low: a number of the window is an integer of so many bits and a sign, times 2^low.
    pub const fn width(self) -> u32 {
        (self.high - self.low) as u32
    }

    /// The largest size, 2^high.
    pub const fn bound(self) -> f32 {
        power(self.high)
    }

    /// The distance of two neighbours, 2^low.
    pub const fn spacing(self) -> f32 {
        power(self.low)
    }

    pub const fn rounder(self) -> Rounder {
        Rounder { bound: self.bound(), shift: 1.5 * power(23 + self.low) }
    }
}

/// Rounds into a window.
#[derive(Debug, Clone, Copy)]
pub struct Rounder {
    pub bound: f32,
    /// Adding 1.5 · 2^(23 + low) leaves no bit below 2^low.
    shift: f32,
}

impl Rounder {
    /// The nearest number of the window, ties to even. What is too large becomes the largest size, a NaN stays one.
    #[inline(always)]
    pub fn round(self, x: f32) -> f32 {
        // Comparisons, not `clamp`, whose NaN rules cost a branch.
        let x = if x > self.bound { self.bound } else { x };
        let x = if x < -self.bound { -self.bound } else { x };
        (x + self.shift) - self.shift
    }
}

/// Bits that a sum of `terms` products needs, one factor of each window.
pub const fn bits(a: Window, b: Window, terms: usize) -> u32 {
    a.width() + b.width() + ceil_log2(terms)
}

/// ⌈log2 n⌉, 0 for n ≤ 1.
pub const fn ceil_log2(n: usize) -> u32 {
    if n <= 1 { 0 } else { usize::BITS - (n - 1).leading_zeros() }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub rounded: u64,
    pub saturated: u64,
    /// Those that were not 0 and became 0.
    pub flushed: u64,
    /// Whether NaN or an infinity was among them: rounding hides an infinity in the window's largest number.
    pub not_finite: bool,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        self.rounded += other.rounded;
        self.saturated += other.saturated;
        self.flushed += other.flushed;
        self.not_finite |= other.not_finite;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Weights, folded with the norm before them, and biases.
    pub weight: Window,
    pub residual: Window,
    /// Normed rows, which a product reads: at most √hidden in size.
    pub normed: Window,
    /// Normed rows times the final norm's weight.
    pub last: Window,
    /// Turned queries and keys.
    pub key: Window,
    /// Values of attention, and their mixtures.
    pub value: Window,
    pub inner: Window,
    /// Attention weights, before and after they are normalised.
    pub share: Window,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowShape {
    pub hidden: usize,
    pub inner: usize,
    pub head: usize,
    /// Query heads that share a head of keys.
    pub group: usize,
    /// Most tokens of a sequence.
    pub positions: usize,
    /// Outputs of the widest product, the vocabulary included.
    pub outputs: usize,
}

/// Fewest bits of a gradient: below, too many small ones become 0.
const LEAST_GRADIENT_BITS: u32 = 16;

impl Windows {
    /// Where sums are not exact, nothing is rounded.
    pub const UNUSED: Self = {
        let any = Window::below(4, 18);
        Self {
            weight: any,
            residual: any,
            normed: any,
            last: any,
            key: any,
            value: any,
            inner: any,
            share: any,
        }
    };

    pub fn new(shape: WindowShape) -> Result<Self, NumericsError> {
        let squares = (SIGNIFICANT_BITS - ceil_log2(shape.hidden)) / 2;
        let windows = Self {
            weight: Window::below(3, 22),
            residual: Window::below(8, if squares < 22 { squares } else { 22 }),
            normed: Window::below(ceil_log2(shape.hidden).div_ceil(2) as i32, 18),
            last: Window::below(7, 18),
            key: Window::below(6, 18),
            value: Window::below(5, 18),
            inner: Window::below(7, 18),
            share: Window::below(0, 20),
        };
        let (weight, positions) = (windows.weight, shape.positions);
        let gradient = windows.gradient(shape, 1)?;
        for (sum, bits) in [
            ("a product with the normed rows", bits(windows.normed, weight, shape.hidden)),
            ("a product with SwiGLU's result", bits(windows.inner, weight, shape.inner)),
            ("a score", bits(windows.key, windows.key, shape.head)),
            ("a mixture of values", bits(windows.share, windows.value, positions)),
            ("a gradient of a value", bits(windows.share, gradient, shape.group * positions)),
            ("a gradient of a key", bits(windows.key, gradient, shape.group * positions)),
            ("a gradient of a norm", bits(windows.normed, gradient, shape.hidden)),
        ] {
            if bits > SIGNIFICANT_BITS {
                return Err(NumericsError::Bits { sum, bits });
            }
        }
        Ok(windows)
    }

    /// The window of gradients, in units of the largest loss weight, when sums over tokens have `tokens` terms.
    pub fn gradient(self, shape: WindowShape, tokens: usize) -> Result<Window, NumericsError> {
        let over_tokens = SIGNIFICANT_BITS - self.normed.width();
        let over_outputs = SIGNIFICANT_BITS - self.weight.width();
        let width = over_tokens
            .saturating_sub(ceil_log2(tokens))
            .min(over_outputs.saturating_sub(ceil_log2(shape.outputs)))
            .min(22);
        if width < LEAST_GRADIENT_BITS {
            let (outputs, least) = (shape.outputs, LEAST_GRADIENT_BITS);
            return Err(NumericsError::Gradient { width, tokens, outputs, least });
        }
        Ok(Window::below(4, width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq};
    use proptest::proptest;

    #[test]
    fn logarithms_are_rounded_up() {
        assert_eq!([0, 1, 2, 3, 4, 5, 128, 129].map(ceil_log2), [0, 0, 1, 2, 2, 3, 7, 8]);
    }

    #[test]
    fn a_window_keeps_its_own_numbers_and_saturates() {
        let rounder = Window::below(4, 18).rounder();
        for x in [0.0, -0.0, 1.0, 16.0, -16.0, power(-14), -5.0 * power(-14)] {
            assert_eq!(rounder.round(x), x);
        }
        assert_eq!(rounder.round(17.0), 16.0);
        assert_eq!(rounder.round(f32::NEG_INFINITY), -16.0);
        assert_eq!(rounder.round(0.4 * power(-14)), 0.0);
        assert!(rounder.round(f32::NAN).is_nan());
    }

    #[test]
    fn a_shape_whose_sums_do_not_fit_is_refused_by_the_sum() {
        let mut shape = WindowShape {
            hidden: 128,
            inner: 384,
            head: 32,
            group: 2,
            positions: 192,
            outputs: 384,
        };
        let windows = Windows::new(shape).unwrap();
        assert_eq!(windows.gradient(shape, 1 << 13).unwrap().width(), 22);
        assert_eq!(windows.gradient(shape, 1 << 15).unwrap().width(), 20);
        assert!(matches!(
            windows.gradient(shape, 1 << 20),
            Err(NumericsError::Gradient { width: 15, .. })
        ));
        shape.inner = 1 << 14;
        let error = Windows::new(shape).unwrap_err();
        assert_eq!(error, NumericsError::Bits { sum: "a product with SwiGLU's result", bits: 54 });
        shape.outputs = 152_000;
        assert!(matches!(Windows::new(shape), Err(NumericsError::Gradient { width: 13, .. })));
    }

    proptest! {
        #[test]
        fn rounding_is_to_the_nearest_multiple(x in -20f32..20.0, width in 8u32..=22) {
            let window = Window::below(4, width);
            let rounded = window.rounder().round(x);
            let steps = f64::from(rounded) / f64::from(power(window.low));
            prop_assert_eq!(steps, steps.round());
            prop_assert!(rounded.abs() <= 16.0);
            if x.abs() <= 16.0 {
                prop_assert!((rounded - x).abs() <= 0.5 * power(window.low));
            }
        }
    }
}
