//! verl's calling conventions, and nowhere else: runs the project's own functions on vectors
//! that verl's functions produced, and compares every output.
//!
//! A file's stem names the function. The format is that of `golden/verl`: `{meta, cases}`, a
//! bare list of cases, or JSON lines; a case is `{name, note?, inputs, outputs}`, or flat with
//! its outputs under `expected` or `output`.

pub mod values;
pub mod case;
pub mod compare;
pub mod aggregation;
pub mod losses;
pub mod estimates;
pub mod rewards;
pub mod training;

use crate::verl_vectors::case::{Case, cases};
use crate::verl_vectors::values::Outputs;
use std::path::Path;

/// The result of one vector file.
#[derive(Debug, Clone, PartialEq)]
pub struct FileReport {
    /// Number of cases.
    pub cases: usize,
    /// Outputs that disagreed, and inputs that no adapter reads: they might change the result.
    pub failures: Vec<String>,
}

/// An adapter: a file's stem, the inputs it reads, and the project's functions behind verl's
/// signature.
type Function = (&'static str, &'static [&'static str], fn(&Case) -> Outputs);

const FUNCTIONS: [Function; 14] = [
    ("adamw_with_grad_clip", training::ADAMW, training::adamw),
    ("agg_loss", aggregation::AGG_LOSS, aggregation::agg_loss),
    ("balance_batch", training::BALANCE_BATCH, training::balance_batch),
    ("compute_grpo_outcome_advantage", rewards::ADVANTAGE, rewards::advantage),
    ("compute_policy_loss", losses::POLICY_LOSS, losses::policy_loss),
    ("compute_policy_loss_vanilla", losses::POLICY_LOSS_VANILLA, losses::policy_loss_vanilla),
    ("dapo_overlong_reward_manager", rewards::REWARD_MANAGER, rewards::reward_manager),
    ("dynamic_sampling_filter", training::DYNAMIC_SAMPLING, training::dynamic_sampling),
    ("entropy_and_logprobs", estimates::ENTROPY, estimates::entropy_and_log_probs),
    ("kl_penalty", estimates::KL_PENALTY, estimates::kl_penalty),
    ("lr_schedule", training::LR_SCHEDULE, training::lr_schedule),
    ("math_dapo_cases", rewards::MATH_DAPO, rewards::math_dapo),
    ("normalize_final_answer", rewards::NORMALISE, rewards::normalise_final_answer),
    ("token_mean_gradient_accumulation", aggregation::ACCUMULATION, aggregation::accumulation),
];

/// Runs one vector file. What cannot be read panics.
pub fn check_file(path: &Path) -> FileReport {
    let stem = path.file_stem().unwrap();
    let (_, inputs, run) = FUNCTIONS.iter().find(|(name, ..)| *name == stem).unwrap();
    let mut report = FileReport { cases: 0, failures: Vec::new() };
    for case in cases(path) {
        report.cases += 1;
        let differ = compare::differences(&run(&case), &case.outputs, case.tolerance());
        report.failures.extend(differ.into_iter().map(|line| format!("{}: {line}", case.name)));
        let unread = case.inputs.iter().filter(|(key, value)| {
            !inputs.contains(&key.as_str()) && *key != "dtype" && !value.is_null()
        });
        report.failures.extend(unread.map(|(key, _)| format!("{}: {key}: not read", case.name)));
    }
    report
}
