//! What is computed, as pure functions: statistics, arithmetic and the algorithms of the paper.

pub mod base; // files, workers, random streams: knows nothing of RL
pub mod statistics; // intervals, tests, verdicts
pub mod numerics; // arithmetic: exact, fast
pub mod algorithm; // the paper: one technique a file, with its settings
