//! The errors of arithmetic.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NumericsError {
    #[error("DAPO_INSTRUCTIONS is {0:?}; it can be scalar, avx2 or avx512")]
    UnknownInstructions(String),
    #[error("DAPO_INSTRUCTIONS is {0}, which this machine does not have")]
    MissingInstructions(&'static str),
    #[error("memory does not hold one row: {0}")]
    OutOfMemory(String),
    #[error(
        "exact arithmetic: {sum} would need {bits} bits, an f64 has 53; this policy needs numerics = \"fast\" (--numerics fast)"
    )]
    Bits { sum: &'static str, bits: u32 },
    #[error(
        "exact arithmetic: it has no norms of queries and keys; this policy needs numerics = \"fast\" (--numerics fast)"
    )]
    HeadNorms,
    #[error(
        "exact arithmetic: with {tokens} tokens in an update and {outputs} outputs of a layer, {width} bits are left for a gradient, fewer than {least}; use smaller mini-batches, or numerics = \"fast\", which any size can have"
    )]
    Gradient { width: u32, tokens: usize, outputs: usize, least: u32 },
}
