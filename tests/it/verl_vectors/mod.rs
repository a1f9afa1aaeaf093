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
use serde_json::Value;
use std::path::Path;

pub struct FileReport {
    pub cases: usize,
    /// Outputs that disagreed, and inputs that no adapter reads: they might change the result.
    pub failures: Vec<String>,
}

/// The project's functions behind the signature of verl's function of this name.
fn adapter(stem: &str) -> fn(&Case) -> Value {
    match stem {
        "adamw_with_grad_clip" => training::adamw,
        "agg_loss" => aggregation::agg_loss,
        "balance_batch" => training::balance_batch,
        "compute_grpo_outcome_advantage" => rewards::advantage,
        "compute_policy_loss" => losses::policy_loss,
        "compute_policy_loss_vanilla" => losses::policy_loss_vanilla,
        "dapo_overlong_reward_manager" => rewards::reward_manager,
        "dynamic_sampling_filter" => training::dynamic_sampling,
        "entropy_and_logprobs" => estimates::entropy_and_log_probs,
        "kl_penalty" => estimates::kl_penalty,
        "lr_schedule" => training::lr_schedule,
        "math_dapo_cases" => rewards::math_dapo,
        "normalize_final_answer" => rewards::normalise_final_answer,
        "token_mean_gradient_accumulation" => aggregation::accumulation,
        _ => panic!("{stem} is no function of verl that is compared"),
    }
}

/// Runs one vector file. What cannot be read panics.
pub fn check_file(path: &Path) -> FileReport {
    let run = adapter(path.file_stem().unwrap().to_str().unwrap());
    let cases = cases(path);
    let mut failures = Vec::new();
    for case in &cases {
        let outputs = run(case);
        let mut lines = compare::differences(&outputs, &case.outputs, case.tolerance());
        // What raises need not look at the rest.
        if !outputs["error"].is_string() {
            lines.extend(case.unread().map(|key| format!("{key}: not read")));
        }
        failures.extend(lines.into_iter().map(|line| format!("{}: {line}", case.name)));
    }
    FileReport { cases: cases.len(), failures }
}
