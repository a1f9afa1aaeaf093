//! What native arithmetic computes its sums of products in: f64 of numbers out of windows, which is exact, or f32.

use pulp::Simd;
use std::borrow::Cow;
use std::fmt::Debug;

/// Bytes of a row of a panel: whole registers of every instruction set.
const PANEL_BYTES: usize = 128;

/// A number that sums of products are made in.
pub trait Arithmetic:
    Copy + Debug + Default + From<f32> + Into<f64> + Send + Sync + 'static
{
    /// Whether numbers are rounded into windows, so that no sum depends on its order.
    const EXACT: bool;

    const PANEL: usize = PANEL_BYTES / size_of::<Self>();

    /// A register.
    type Vector<S: Simd>: Copy;

    fn vectors_of_a_panel<S: Simd>() -> usize {
        PANEL_BYTES / size_of::<Self::Vector<S>>()
    }

    fn splat<S: Simd>(simd: S, x: Self) -> Self::Vector<S>;

    /// a · b + sum, rounded once.
    fn multiply_add<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        sum: Self::Vector<S>,
    ) -> Self::Vector<S>;

    /// As whole registers, and what is left.
    fn vectors<S: Simd>(x: &[Self]) -> (&[Self::Vector<S>], &[Self]);

    fn vectors_mut<S: Simd>(x: &mut [Self]) -> (&mut [Self::Vector<S>], &mut [Self]);

    fn widened(x: &[f32]) -> Cow<'_, [Self]>;

    fn rounded(x: Vec<Self>) -> Vec<f32>;

    fn to_f64(self) -> f64;

    /// The nearest number of this kind.
    fn of_f64(x: f64) -> Self;

    /// Numbers of f32 as this kind, where it is f32.
    fn of_f32s(x: &mut [f32]) -> Option<&mut [Self]>;

    fn sums_in_f64<'a>(rows: Vec<&'a mut [f64]>) -> Sums<'a, Self>;
}

/// Rows that a product is added to.
pub enum Sums<'a, A> {
    Own(Vec<&'a mut [A]>),
    /// In f64, each number of an f32 product by itself.
    Wide(Vec<&'a mut [f64]>),
}

impl<A> Sums<'_, A> {
    pub fn rows(&self) -> usize {
        match self {
            Self::Own(rows) => rows.len(),
            Self::Wide(rows) => rows.len(),
        }
    }
}

macro_rules! arithmetic {
    ($kind:ty, $exact:literal, $vector:ident, $splat:ident, $multiply_add:ident, $vectors:ident,
     $vectors_mut:ident, $widened:expr, $rounded:expr, $of_f32s:expr, $sums:ident) => {
        impl Arithmetic for $kind {
            const EXACT: bool = $exact;

            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn splat<S: Simd>(simd: S, x: Self) -> S::$vector {
                simd.$splat(x)
            }

            #[inline(always)]
            fn multiply_add<S: Simd>(
                simd: S,
                a: S::$vector,
                b: S::$vector,
                sum: S::$vector,
            ) -> S::$vector {
                simd.$multiply_add(a, b, sum)
            }

            #[inline(always)]
            fn vectors<S: Simd>(x: &[Self]) -> (&[S::$vector], &[Self]) {
                S::$vectors(x)
            }

            #[inline(always)]
            fn vectors_mut<S: Simd>(x: &mut [Self]) -> (&mut [S::$vector], &mut [Self]) {
                S::$vectors_mut(x)
            }

            fn widened(x: &[f32]) -> Cow<'_, [Self]> {
                $widened(x)
            }

            fn rounded(x: Vec<Self>) -> Vec<f32> {
                $rounded(x)
            }

            fn of_f32s(x: &mut [f32]) -> Option<&mut [Self]> {
                $of_f32s(x)
            }

            fn sums_in_f64<'a>(rows: Vec<&'a mut [f64]>) -> Sums<'a, Self> {
                Sums::$sums(rows)
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn of_f64(x: f64) -> Self {
                x as $kind
            }
        }
    };
}

arithmetic! {
    f32, false, f32s, splat_f32s, mul_add_f32s, as_simd_f32s, as_mut_simd_f32s,
    Cow::Borrowed, |x| x, Some, Wide
}
arithmetic! {
    f64, true, f64s, splat_f64s, mul_add_f64s, as_simd_f64s, as_mut_simd_f64s,
    |x: &[f32]| x.iter().map(|x| f64::from(*x)).collect(),
    |x: Vec<f64>| x.into_iter().map(|x| x as f32).collect(), |_| None, Own
}
