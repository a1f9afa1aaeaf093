//! verl's calling conventions, and nowhere else: runs the project's own functions on vectors
//! that verl's functions produced, and compares every output.
//!
//! A file's stem names the function. The format is that of `golden/verl`: `{meta, cases}`, a
//! bare list of cases, or JSON lines; a case is `{name, note?, inputs, outputs}`, or flat with
//! its outputs under `outputs`, `expected` or `output`.

pub mod values;
pub mod case;
pub mod compare;
pub mod aggregation;
pub mod losses;
pub mod estimates;
pub mod rewards;
pub mod training;

use crate::verl_vectors::case::{Case, cases};
use crate::verl_vectors::compare::{Mismatch, compare};
use crate::verl_vectors::values::{Malformed, Outputs};
use dapo::base::files;
use std::path::{Path, PathBuf};

/// Vectors that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder that cannot be read, or is not JSON.
    #[error(transparent)]
    File(#[from] files::FileError),
    /// A folder without any vector file.
    #[error("{}: there is no .json or .jsonl file", .0.display())]
    Empty(PathBuf),
    /// No adapter for this file's stem.
    #[error("{}: unknown function `{function}`; known are {known}", path.display())]
    UnknownFunction {
        /// The file.
        path: PathBuf,
        /// Its stem.
        function: String,
        /// All stems that have an adapter.
        known: String,
    },
    /// A case that does not follow the format.
    #[error("{}: case `{case}`: {problem}", path.display())]
    Case {
        /// The file.
        path: PathBuf,
        /// The case's name.
        case: String,
        /// What is wrong, with the key.
        problem: Malformed,
    },
    /// A file whose text is JSON but not a list of cases.
    #[error("{}: {problem}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: Malformed,
    },
}

/// The result of one vector file.
#[derive(Debug, Clone, PartialEq)]
pub struct FileReport {
    /// Number of cases.
    pub cases: usize,
    /// Cases of which every output agreed.
    pub passed: usize,
    /// Outputs that disagreed.
    pub failures: Vec<Failure>,
    /// Inputs that no adapter reads: they might change the result.
    pub unread_inputs: Vec<String>,
}

/// One output that disagreed.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// The case's name.
    pub case: String,
    /// What disagreed.
    pub mismatch: Mismatch,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Mismatch { field, got, want } = &self.mismatch;
        write!(f, "{}: {field}: got {got}, want {want}", self.case)
    }
}

/// An adapter: the inputs it reads, and the project's functions behind verl's signature.
struct Function {
    name: &'static str,
    inputs: &'static [&'static str],
    run: fn(&Case) -> Result<Outputs, Malformed>,
}

/// Every function with vectors, by file stem.
const FUNCTIONS: [Function; 14] = [
    Function { name: "adamw_with_grad_clip", inputs: training::ADAMW, run: training::adamw },
    Function { name: "agg_loss", inputs: aggregation::AGG_LOSS, run: aggregation::agg_loss },
    Function {
        name: "balance_batch",
        inputs: training::BALANCE_BATCH,
        run: training::balance_batch,
    },
    Function {
        name: "compute_grpo_outcome_advantage",
        inputs: rewards::ADVANTAGE,
        run: rewards::advantage,
    },
    Function { name: "compute_policy_loss", inputs: losses::POLICY_LOSS, run: losses::policy_loss },
    Function {
        name: "compute_policy_loss_vanilla",
        inputs: losses::POLICY_LOSS_VANILLA,
        run: losses::policy_loss_vanilla,
    },
    Function {
        name: "dapo_overlong_reward_manager",
        inputs: rewards::REWARD_MANAGER,
        run: rewards::reward_manager,
    },
    Function {
        name: "dynamic_sampling_filter",
        inputs: training::DYNAMIC_SAMPLING,
        run: training::dynamic_sampling,
    },
    Function {
        name: "entropy_and_logprobs",
        inputs: estimates::ENTROPY,
        run: estimates::entropy_and_log_probs,
    },
    Function { name: "kl_penalty", inputs: estimates::KL_PENALTY, run: estimates::kl_penalty },
    Function { name: "lr_schedule", inputs: training::LR_SCHEDULE, run: training::lr_schedule },
    Function { name: "math_dapo_cases", inputs: rewards::MATH_DAPO, run: rewards::math_dapo },
    Function {
        name: "normalize_final_answer",
        inputs: rewards::NORMALISE,
        run: rewards::normalise_final_answer,
    },
    Function {
        name: "token_mean_gradient_accumulation",
        inputs: aggregation::ACCUMULATION,
        run: aggregation::accumulation,
    },
];

/// The vector files of a folder, in name order: `.json` and `.jsonl`.
///
/// # Errors
/// When the folder cannot be listed or holds none.
pub fn vector_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_vector = |name: &String| name.ends_with(".json") || name.ends_with(".jsonl");
    let names = files::list(folder)?;
    let paths: Vec<PathBuf> =
        names.into_iter().filter(is_vector).map(|name| folder.join(name)).collect();
    if paths.is_empty() { Err(Error::Empty(folder.to_path_buf())) } else { Ok(paths) }
}

/// Runs one vector file.
///
/// # Errors
/// When the file cannot be read, its function is unknown, or a case is malformed. A value
/// that disagrees is no error: it is in the report.
pub fn check_file(path: &Path) -> Result<FileReport, Error> {
    let name = |part: Option<&std::ffi::OsStr>| {
        part.map_or_else(String::new, |part| part.to_string_lossy().into_owned())
    };
    let stem = name(path.file_stem());
    let function = FUNCTIONS.iter().find(|function| function.name == stem).ok_or_else(|| {
        let known = FUNCTIONS.map(|function| function.name).join(", ");
        Error::UnknownFunction { path: path.to_path_buf(), function: stem.clone(), known }
    })?;
    let mut report =
        FileReport { cases: 0, passed: 0, failures: Vec::new(), unread_inputs: Vec::new() };
    for case in cases(path)? {
        let at =
            |problem| Error::Case { path: path.to_path_buf(), case: case.name.clone(), problem };
        let tolerance = case.tolerance().map_err(at)?;
        let got = (function.run)(&case).map_err(at)?;
        let comparison = compare(&got, &case.outputs, tolerance);
        report.cases += 1;
        report.passed += usize::from(comparison.mismatches.is_empty());
        let failure = |mismatch| Failure { case: case.name.clone(), mismatch };
        report.failures.extend(comparison.mismatches.into_iter().map(failure));
        let unread = case.inputs.iter().filter(|(key, value)| {
            !function.inputs.contains(&key.as_str()) && *key != "dtype" && !value.is_null()
        });
        report.unread_inputs.extend(unread.map(|(key, _)| format!("{}: {key}", case.name)));
    }
    Ok(report)
}
