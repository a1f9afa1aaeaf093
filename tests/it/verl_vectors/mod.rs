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
type Function = (&'static str, &'static str, fn(&Case) -> Outputs);

const FUNCTIONS: [Function; 14] = [
    (
        "adamw_with_grad_clip",
        "p0 grads lr betas eps weight_decay grad_clip_max_norm",
        training::adamw,
    ),
    (
        "agg_loss",
        "loss_mat loss_mask loss_agg_mode dp_size batch_num_tokens global_batch_size loss_scale_factor",
        aggregation::agg_loss,
    ),
    ("balance_batch", "seqlens dp_size", training::balance_batch),
    (
        "compute_grpo_outcome_advantage",
        "token_level_rewards response_mask index epsilon norm_adv_by_std_in_grpo",
        rewards::advantage,
    ),
    (
        "compute_policy_loss",
        "old_log_prob log_prob advantages response_mask cliprange cliprange_low cliprange_high clip_ratio_c loss_agg_mode",
        losses::policy_loss,
    ),
    (
        "compute_policy_loss_vanilla",
        "old_log_prob log_prob advantages response_mask clip_ratio clip_ratio_low clip_ratio_high clip_ratio_c loss_agg_mode global_batch_info rollout_is_weights",
        losses::policy_loss_vanilla,
    ),
    (
        "dapo_overlong_reward_manager",
        "padded_response_length max_resp_len overlong_buffer_cfg",
        rewards::reward_manager,
    ),
    (
        "dynamic_sampling_filter",
        "rollout_n train_batch_size max_num_gen_batches metric gen_batches",
        training::dynamic_sampling,
    ),
    (
        "entropy_and_logprobs",
        "logits labels response_mask temperature_for_scaled",
        estimates::entropy_and_log_probs,
    ),
    ("kl_penalty", "logprob ref_logprob kl_penalty", estimates::kl_penalty),
    ("lr_schedule", "lr lr_warmup_steps", training::lr_schedule),
    (
        "math_dapo_cases",
        "response ground_truth strict_box_verify mode pause_tokens_index",
        rewards::math_dapo,
    ),
    ("normalize_final_answer", "input", rewards::normalise_final_answer),
    (
        "token_mean_gradient_accumulation",
        "ranks_micro_lengths loss_mats loss_masks loss_agg_mode",
        aggregation::accumulation,
    ),
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
            !inputs.split(' ').any(|input| input == *key) && *key != "dtype" && !value.is_null()
        });
        report.failures.extend(unread.map(|(key, _)| format!("{}: {key}: not read", case.name)));
    }
    report
}
