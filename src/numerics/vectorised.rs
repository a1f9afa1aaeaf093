//! Loops compiled for every instruction set, the best of which is chosen at run time: once for the
//! whole process, and here alone.

use pulp::Arch;
use pulp::Simd;
use pulp::WithSimd;
use std::sync::OnceLock;

/// Compiled instruction sets, from the oldest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Instructions {
    /// One number at a time: what every machine of the architecture has.
    Scalar,
    /// x86-64-v3: 256 bits and fused multiply-add.
    Avx2,
    /// x86-64-v4: 512 bits.
    Avx512,
}

impl std::fmt::Display for Instructions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        })
    }
}

/// An instruction set that cannot be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The machine lacks it.
    #[error("this machine has no {0} instructions")]
    Missing(Instructions),
    /// Loops ran before the choice.
    #[error("{0} instructions are in use already")]
    InUse(Instructions),
}

static CHOSEN: OnceLock<Arch> = OnceLock::new();

/// Chooses an instruction set for the whole process, before anything is computed. Nothing that is
/// `exact` may depend on it: this is how that is tried.
///
/// # Errors
/// When the machine lacks it, or another is in use already.
pub fn choose(wanted: Instructions) -> Result<(), Error> {
    let arch = arch_of(wanted).ok_or(Error::Missing(wanted))?;
    CHOSEN.get_or_init(|| arch);
    match chosen() {
        chosen if chosen == wanted => Ok(()),
        chosen => Err(Error::InUse(chosen)),
    }
}

/// The instruction set of this process: the chosen one, or the best that the machine has.
pub fn chosen() -> Instructions {
    match CHOSEN.get_or_init(Arch::new) {
        #[cfg(target_arch = "x86_64")]
        Arch::V3(_) => Instructions::Avx2,
        #[cfg(target_arch = "x86_64")]
        Arch::V4(_) => Instructions::Avx512,
        _ => Instructions::Scalar,
    }
}

fn arch_of(wanted: Instructions) -> Option<Arch> {
    match wanted {
        Instructions::Scalar => Some(Arch::Scalar),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => pulp::x86::V3::try_new().map(Arch::V3),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => pulp::x86::V4::try_new().map(Arch::V4),
        #[cfg(not(target_arch = "x86_64"))]
        Instructions::Avx2 | Instructions::Avx512 => None,
    }
}

/// Runs an operation, compiled for the process's instruction set.
#[inline(always)]
pub fn dispatch<W: WithSimd>(operation: W) -> W::Output {
    CHOSEN.get_or_init(Arch::new).dispatch(operation)
}

/// Runs `work`, compiled for the process's instruction set. The closure must be marked
/// `#[inline(always)]`, or it is compiled for the oldest.
#[inline(always)]
pub fn vectorised<R>(work: impl FnMut() -> R) -> R {
    dispatch(Work(work))
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
