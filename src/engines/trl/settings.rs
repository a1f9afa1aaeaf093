//! Every key that changes a number, as a setting of TRL, or refused by name. Source: TRL 1.16.0,
//! trl/trainer/grpo_trainer.py and grpo_config.py.

use crate::algorithm::{
    Aggregation, DualClip, DynamicSampling, Kl, KlEstimator, LogRatioClamp, Method, Punishment,
    Std, TokenMeanUnit,
};
use crate::engines::demand::Demand;
use crate::engines::{DemandRefusal, Setting, rendered};
use crate::experiment::{Device, Experiment, MiniBatchOrder, NonFinite};
use crate::numerics::Numerics;
use crate::policy::optimizer;

/// Added to a group's standard deviation; TRL has no setting for it.
const EPSILON: f64 = 1e-4;

/// Settings of `GRPOConfig`, and of the script under `harness.`. `processes` share each pass. Errors: everything that
/// TRL cannot do as the arm asks.
pub fn settings(
    experiment: &Experiment,
    processes: u64,
) -> Result<Vec<Setting>, Vec<DemandRefusal>> {
    demand(experiment, processes).finish()
}

pub fn demand(experiment: &Experiment, processes: u64) -> Demand {
    let mut demand = Demand::default();
    numbers(&mut demand, experiment);
    batches(&mut demand, experiment, processes);
    sampling(&mut demand, experiment);
    loss(&mut demand, experiment, processes);
    rewards(&mut demand, experiment);
    optimizer_of(&mut demand, experiment);
    script(&mut demand, experiment);
    demand
}

fn numbers(demand: &mut Demand, experiment: &Experiment) {
    let reason = "TRL computes in f32 or bf16 with PyTorch; \"fast\" is what it can do";
    demand.need(experiment.numerics == Numerics::Fast, "numerics", &experiment.numerics, reason);
    let execution = &experiment.execution;
    let cpu = execution.device.unwrap_or_default() == Device::Cpu;
    demand.set("use_cpu", cpu, "execution.device");
    demand.set("bf16", false, "execution.weights");
    let reason = "the harness starts TRL with weights and moments in f32";
    demand.need(execution.weights.is_none(), "execution.weights", &execution.weights, reason);
    demand.set("seed", execution.seed, "execution.seed");
    demand.set("data_seed", execution.seed, "execution.seed");
}

fn batches(demand: &mut Demand, experiment: &Experiment, processes: u64) {
    let (training, rollout) = (&experiment.training, &experiment.rollout);
    let (micro, mini) = (experiment.execution.micro_batch_rollouts, training.mini_batch_rollouts);
    let rows = training.prompts_per_step.saturating_mul(rollout.group_size);
    let micro = micro.min(mini).max(1);
    let reason = "TRL cuts a rollout step into equal mini-batches; take a divisor of \
                  prompts_per_step times group_size";
    let key = "training.mini_batch_rollouts";
    demand.need(mini > 0 && rows.is_multiple_of(mini), key, &mini, reason);
    let reason = "TRL cuts a mini-batch into equal passes; take a divisor of mini_batch_rollouts";
    demand.need(mini.is_multiple_of(micro), "execution.micro_batch_rollouts", &micro, reason);
    let reason = "accelerate's processes share each pass; take a multiple of their number";
    let key = "execution.micro_batch_rollouts";
    demand.need(micro.is_multiple_of(processes), key, &micro, reason);
    demand.set("per_device_train_batch_size", micro / processes, key);
    demand.set("harness.processes", processes, "");
    let key = "training.mini_batch_rollouts";
    demand.set("gradient_accumulation_steps", mini / micro, key);
    demand.set("steps_per_generation", rows / micro, "training.prompts_per_step");
    demand.set("num_generations", rollout.group_size, "rollout.group_size");
    let reason = "TRL goes through the same mini-batches again in each epoch, without a new order";
    let epochs = training.epochs_per_step;
    demand.need(epochs == 1, "training.epochs_per_step", &epochs, reason);
    demand.set("num_iterations", epochs, "training.epochs_per_step");
    let order = training.mini_batch_order;
    let reason = "TRL shuffles single rollouts; ask for \"shuffled-rollouts\"";
    let key = "training.mini_batch_order";
    demand.need(order == MiniBatchOrder::ShuffledRollouts, key, &order, reason);
    let updates = training.rollout_steps.saturating_mul(rows / mini.max(1));
    demand.set_with("max_steps", updates, "training.rollout_steps", "in updates");
    demand.set_with("shuffle_dataset", false, "", "prompts.jsonl is in the order of training");
    let sampling = experiment.dapo.dynamic_sampling;
    let reason = "TRL does not sample again in place of groups without a gradient";
    let none = sampling == DynamicSampling::None {};
    demand.need(none, "dapo.dynamic_sampling", &sampling, reason);
}

fn sampling(demand: &mut Demand, experiment: &Experiment) {
    let rollout = &experiment.rollout;
    let sampling = rollout.sampling;
    demand.set("temperature", sampling.temperature, "rollout.sampling.temperature");
    demand.set("top_p", sampling.top_p, "rollout.sampling.top_p");
    demand.set("top_k", sampling.top_k, "rollout.sampling.top_k");
    demand.set("max_completion_length", rollout.max_response_tokens, "rollout.max_response_tokens");
    let reason = "TRL takes the ratio over the whole vocabulary";
    let key = "rollout.sampling.log_probs";
    demand.need(sampling.log_probs.is_none(), key, &sampling.log_probs, reason);
    let reason = "TRL's sampler has the trained weights";
    let weights = rollout.sampler_weights;
    let stop = "TRL calls generate() without the tokenizer, which stop strings need, and counts a response \
                whose last token is no stop token as truncated; leave the key out";
    demand.need(rollout.stop.is_none(), "rollout.stop", &rollout.stop, stop);
    demand.need(weights.is_none(), "rollout.sampler_weights", &weights, reason);
}

fn loss(demand: &mut Demand, experiment: &Experiment, processes: u64) {
    let dapo = &experiment.dapo;
    let mut clip = dapo.clip;
    let mut level = "token";
    let mut dr_grpo = false;
    match dapo.method {
        None => {}
        Some(Method::DrGrpo(_)) => dr_grpo = true,
        Some(Method::Gspo(gspo)) => (clip, level) = (gspo.clip, "sequence"),
        Some(method) => {
            let reason = "the harness starts TRL with GRPO, its techniques, dr-grpo and gspo alone";
            demand.need(false, "dapo.method", &method, reason);
        }
    }
    demand.set("epsilon", clip.low, "dapo.clip.low");
    demand.set("epsilon_high", clip.high, "dapo.clip.high");
    demand.set("importance_sampling_level", level, "dapo.method");
    let over_responses = dr_grpo || dapo.aggregation != Aggregation::TokenMean;
    let filter = dapo.overlong.filter;
    demand.need(
        !(filter && over_responses),
        "dapo.overlong.filter",
        &filter,
        "TRL counts filtered responses in the mean over responses; ask for a token mean",
    );
    demand.set("mask_truncated_completions", filter, "dapo.overlong.filter");
    let kind = if dr_grpo { Some("dr_grpo") } else { loss_type(demand, experiment, processes) };
    demand.set("loss_type", kind.unwrap_or_default(), "dapo.aggregation");
    let std = dapo.advantage.std;
    let scale = if dr_grpo || std == Std::None { "none" } else { "group" };
    demand.set("scale_rewards", scale, "dapo.advantage.std");
    if scale == "group" {
        let (key, reason) = ("dapo.advantage.std", "TRL divides by the sample standard deviation");
        demand.need(std == Std::Sample, key, &std, reason);
        let epsilon = dapo.advantage.epsilon;
        let reason = "TRL adds 1e-4, and has no setting for it";
        demand.need(epsilon == EPSILON, "dapo.advantage.epsilon", &epsilon, reason);
    }
    match dapo.dual_clip {
        DualClip::None {} => {}
        DualClip::Constant { c } => demand.set("delta", c, "dapo.dual_clip.c"),
    }
    let clamp = dapo.log_ratio_clamp;
    let reason = "TRL does not clamp the log-ratio";
    demand.need(clamp == LogRatioClamp::None {}, "dapo.log_ratio_clamp", &clamp, reason);
    let beta = match dapo.kl {
        Kl::None {} => 0.0,
        Kl::Penalty { estimator, coefficient } => {
            let k3 = estimator == KlEstimator::K3;
            demand.need(k3, "dapo.kl.estimator", &estimator, "TRL has k3 alone");
            coefficient
        }
    };
    demand.set("beta", beta, "dapo.kl");
}

/// `bnpo` averages over tokens of a process's share of a pass: the mini-batch if one pass of one process holds it.
fn loss_type(demand: &mut Demand, experiment: &Experiment, processes: u64) -> Option<&'static str> {
    let (dapo, mini) = (&experiment.dapo, experiment.training.mini_batch_rollouts);
    let whole = processes == 1 && experiment.execution.micro_batch_rollouts >= mini;
    let (aggregation, unit) = (dapo.aggregation, dapo.token_mean_unit);
    let found = match (aggregation, unit) {
        (Aggregation::ResponseMean, _) => Some("grpo"),
        (Aggregation::ResponseSum, _) => Some("luspo"),
        (_, TokenMeanUnit::RolloutStep) => Some("dapo"),
        (_, TokenMeanUnit::MicroBatch) => (processes == 1).then_some("bnpo"),
        (_, TokenMeanUnit::MiniBatch) => whole.then_some("bnpo"),
        (_, TokenMeanUnit::Group) => None,
    };
    let reason = "TRL's token mean is over a pass (bnpo) or the rollout step (dapo); ask for \
                  \"rollout-step\", or for one process and passes as large as the mini-batch";
    demand.need(found.is_some(), "dapo.token_mean_unit", &unit, reason);
    found
}

fn rewards(demand: &mut Demand, experiment: &Experiment) {
    let verifier = &experiment.reward.verifier;
    rendered::need_program(demand, verifier);
    let kept = rendered::verifier(verifier);
    demand.set_with("harness.verifier", kept, "reward.verifier", "dapo data grade");
    if let Some(prefix) = &experiment.prompt.response_prefix {
        let remark = "dapo data grade reads it before the response";
        let key = "prompt.response_prefix";
        demand.set_with("harness.response_prefix", prefix.as_str(), key, remark);
    }
    let Punishment::Soft { cache_tokens, factor, .. } = experiment.dapo.overlong.punishment else {
        return;
    };
    let key = "dapo.overlong.punishment";
    demand.set_with("harness.overlong_cache_tokens", cache_tokens, key, "trl.rewards");
    demand.set("reward_weights", vec![1.0, factor], key);
}

fn optimizer_of(demand: &mut Demand, experiment: &Experiment) {
    let own = &experiment.optimizer;
    demand.set("learning_rate", own.learning_rate, "optimizer.learning_rate");
    let remark = "the script makes AdamW over all weights; transformers would leave biases and \
                  norms out";
    demand.set_with("weight_decay", own.weight_decay, "optimizer.weight_decay", remark);
    demand.set("adam_beta1", own.beta1, "optimizer.beta1");
    demand.set("adam_beta2", own.beta2, "optimizer.beta2");
    demand.set("adam_epsilon", own.epsilon, "optimizer.epsilon");
    demand.set("max_grad_norm", own.max_gradient_norm, "optimizer.max_gradient_norm");
    let skips = own.non_finite == Some(NonFinite::Skip);
    let reason = "TRL makes an update that is not finite";
    demand.need(!skips, "optimizer.non_finite", &own.non_finite, reason);
    let steps = 0..experiment.training.rollout_steps;
    let rates: Vec<f64> = steps.map(|step| optimizer::learning_rate(own, step)).collect();
    let remark = "the rate of each rollout step";
    demand.set_with("harness.learning_rates", rates, "optimizer.warm_up", remark);
}

/// Settings beside `GRPOConfig`.
fn script(demand: &mut Demand, experiment: &Experiment) {
    let (evaluation, checkpoints) = (&experiment.evaluation, &experiment.checkpoints);
    let steps = experiment.training.rollout_steps;
    let due = |every: u64, step: u64| every > 0 && step.is_multiple_of(every);
    let list = |wanted: &dyn Fn(u64) -> bool| -> Vec<u64> {
        (1..=steps).filter(|&step| step == steps || wanted(step)).collect()
    };
    let saved = list(&|step| due(checkpoints.every_steps, step));
    let policies =
        list(&|step| due(evaluation.every_steps, step) || due(checkpoints.every_steps, step));
    let remark = "after these rollout steps the weights are written";
    demand.set_with("harness.policies", policies, "evaluation.every_steps", remark);
    let remark = "after these rollout steps TRL can go on";
    demand.set_with("harness.checkpoints", saved, "checkpoints.every_steps", remark);
    let threads = experiment.execution.threads;
    demand.set("harness.threads", threads, "execution.threads");
    demand.set_with("logging_steps", 1, "", "the import reads each update");
    demand.set("report_to", "none", "");
}
