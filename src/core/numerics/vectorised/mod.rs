//! Loops compiled for every instruction set. A process uses one: what [`VARIABLE`] names, else the machine's best.

use crate::numerics::NumericsError;
use pulp::{Arch, Simd, WithSimd};
use std::ffi::OsString;
use std::sync::OnceLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Instructions {
    /// One number at a time: what every machine of the architecture has.
    Scalar,
    /// x86-64-v3: 256 bits and fused multiply-add.
    Avx2,
    /// x86-64-v4: 512 bits.
    Avx512,
}

impl Instructions {
    pub const ALL: [Self; 3] = [Self::Scalar, Self::Avx2, Self::Avx512];

    /// The value of [`VARIABLE`] that forces it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    fn of(arch: Arch) -> Self {
        match arch {
            #[cfg(target_arch = "x86_64")]
            Arch::V3(_) => Self::Avx2,
            #[cfg(target_arch = "x86_64")]
            Arch::V4(_) => Self::Avx512,
            _ => Self::Scalar,
        }
    }

    /// `None` when the machine lacks it.
    fn arch(self) -> Option<Arch> {
        match self {
            Self::Scalar => Some(Arch::Scalar),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => pulp::x86::V3::try_new().map(Arch::V3),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => pulp::x86::V4::try_new().map(Arch::V4),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => None,
        }
    }
}

/// Asks for the cache line that begins with a number; it changes nothing but time.
#[inline(always)]
pub fn prefetch<T>(number: &T) {
    #[cfg(target_arch = "x86_64")]
    safe_arch::prefetch_t1(number);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = number;
}

pub const VARIABLE: &str = "DAPO_INSTRUCTIONS";

fn wanted() -> Result<Arch, NumericsError> {
    of_value(std::env::var_os(VARIABLE).unwrap_or_default())
}

fn of_value(value: OsString) -> Result<Arch, NumericsError> {
    if value.is_empty() {
        return Ok(Arch::new());
    }
    let named = Instructions::ALL.into_iter().find(|instructions| value == instructions.name());
    let named = named
        .ok_or_else(|| NumericsError::UnknownInstructions(value.to_string_lossy().into_owned()))?;
    named.arch().ok_or(NumericsError::MissingInstructions(named.name()))
}

/// Whether the environment asks for an instruction set that can be used here. If it does not, the loops panic.
pub fn check() -> Result<(), NumericsError> {
    wanted().map(drop)
}

pub fn chosen() -> Instructions {
    Instructions::of(arch())
}

fn arch() -> Arch {
    static CHOSEN: OnceLock<Arch> = OnceLock::new();
    #[cfg(test)]
    if let Some(forced) = tests::forced() {
        return forced;
    }
    // A test that names an instruction set which is not there must not pass under another one.
    *CHOSEN.get_or_init(|| wanted().unwrap_or_else(|error| panic!("{error}")))
}

/// Runs an operation, compiled for the process's instruction set.
#[inline(always)]
pub fn dispatch<W: WithSimd>(operation: W) -> W::Output {
    arch().dispatch(operation)
}

/// Runs `work`, compiled for the process's instruction set. The closure must be marked
/// `#[inline(always)]`, or it is compiled for the oldest.
#[inline(always)]
pub fn vectorised<R>(work: impl FnMut() -> R) -> R {
    dispatch(Work(work))
}

/// Calls the closure as `FnMut`: a call as `FnOnce` goes through a shim that is not inlined.
struct Work<F>(F);

impl<R, F: FnMut() -> R> WithSimd for Work<F> {
    type Output = R;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _simd: S) -> R {
        (self.0)()
    }
}

#[cfg(test)]
mod tests;
