//! Loops compiled for every instruction set, the best of which is chosen at run time.

use pulp::Arch;
use pulp::Simd;
use pulp::WithSimd;

/// Runs `work`, compiled for this machine's instruction set. The closure must be marked
/// `#[inline(always)]`, or it is compiled for the oldest.
#[inline(always)]
pub fn vectorised<R>(work: impl FnMut() -> R) -> R {
    Arch::new().dispatch(Work(work))
}

/// A closure of its own kind: one that is called as `FnOnce` goes through a shim that is not
/// inlined.
struct Work<F>(F);

impl<R, F: FnMut() -> R> WithSimd for Work<F> {
    type Output = R;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _simd: S) -> R {
        (self.0)()
    }
}
