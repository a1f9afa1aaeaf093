//! What a statistic refuses.

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StatisticsError {
    #[error("{method} needs at least {needed} {what}, got {got}")]
    TooFew { method: &'static str, what: &'static str, needed: usize, got: usize },
    #[error("{method} needs finite values, got {value}")]
    NotFinite { method: &'static str, value: f64 },
    #[error("{method} needs times from 0 on, got {value}")]
    Negative { method: &'static str, value: f64 },
    #[error("a confidence level must lie between 0 and 1, got {0}")]
    Level(f64),
    #[error("a margin must be a positive number, got {0}")]
    Margin(f64),
    #[error("alpha must lie between 0 and 0.5, got {0}")]
    Alpha(f64),
    #[error(
        "{method} needs every run on the same tasks: run {run} (from 0) has {got}, not {expected}"
    )]
    Ragged { method: &'static str, run: usize, expected: usize, got: usize },
    #[error("an evaluation needs at least one problem, got none")]
    NoProblems,
    #[error("problem {index} (from 0) has no samples")]
    NoSamples { index: usize },
}

pub(crate) fn check(
    method: &'static str,
    values: &[f64],
    needed: usize,
) -> Result<(), StatisticsError> {
    if values.len() < needed {
        return Err(StatisticsError::TooFew { method, what: "runs", needed, got: values.len() });
    }
    match values.iter().find(|value| !value.is_finite()) {
        Some(value) => Err(StatisticsError::NotFinite { method, value: *value }),
        None => Ok(()),
    }
}

pub(crate) fn check_level(level: f64) -> Result<(), StatisticsError> {
    if level > 0.0 && level < 1.0 { Ok(()) } else { Err(StatisticsError::Level(level)) }
}
