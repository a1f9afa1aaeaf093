//! Every key that changes a number, as a setting of TRL, or refused by name: what `keys.toml` does not say. Source: TRL
//! 1.16.0, trl/trainer/grpo_trainer.py and grpo_config.py.

use crate::algorithm::{
    Aggregation, DynamicSampling, Kl, KlEstimator, LogRatioClamp, Method, Punishment, Std,
    TokenMeanUnit,
};
use crate::engines::demand::{Demand, EngineKeys};
use crate::engines::rendered;
use crate::experiment::{Device, Experiment, MiniBatchOrder, NonFinite};
use crate::numerics::Numerics;
use crate::policy::optimizer;
use std::sync::LazyLock;

pub static KEYS: LazyLock<EngineKeys> =
    LazyLock::new(|| EngineKeys::parse(include_str!("keys.toml")));

/// Added to a group's standard deviation; TRL has no setting for it.
const EPSILON: f64 = 1e-4;

/// Settings of `GRPOConfig`, and of the script under `harness.`, and what TRL cannot do. `processes` share each pass.
pub fn demand(experiment: &Experiment, processes: u64) -> Demand {
    let mut demand = Demand::of(&KEYS);
    numbers(&mut demand, experiment);
    batches(&mut demand, experiment, processes);
    sampling(&mut demand, experiment);
    loss(&mut demand, experiment, processes);
    rewards(&mut demand, experiment);
    optimizer_of(&mut demand, experiment);
    script(&mut demand, experiment);
    demand.filled(experiment)
}

fn numbers(demand: &mut Demand, experiment: &Experiment) {
    demand.need(experiment.numerics == Numerics::Fast, "numerics", &experiment.numerics);
    let execution = &experiment.execution;
    demand.set("use_cpu", execution.device.unwrap_or_default() == Device::Cpu);
    demand.need(execution.weights.is_none(), "execution.weights", &execution.weights);
    let recompute = execution.memory.is_some_and(|memory| memory.recompute_layers);
    demand.set("gradient_checkpointing", recompute);
    let chunk = execution.memory.map_or(0, |memory| memory.logits_chunk_tokens);
    demand.need(chunk == 0, "execution.memory.logits_chunk_tokens", &chunk);
    let tokens = execution.pass_tokens;
    demand.need(tokens.is_none(), "execution.pass_tokens", &tokens);
}

fn batches(demand: &mut Demand, experiment: &Experiment, processes: u64) {
    let training = &experiment.training;
    let (micro, mini) = (experiment.execution.micro_batch_rollouts, training.mini_batch_rollouts);
    let rows = training.prompts_per_step.saturating_mul(experiment.rollout.group_size);
    let micro = micro.min(mini).max(1);
    let is_cut = mini > 0 && rows.is_multiple_of(mini);
    demand.need(is_cut, "training.mini_batch_rollouts", &mini);
    demand.need(mini.is_multiple_of(micro), "execution.micro_batch_rollouts", &micro);
    let is_shared = micro.is_multiple_of(processes);
    demand.need(is_shared, "execution.micro_batch_rollouts#processes", &micro);
    demand.set("per_device_train_batch_size", micro / processes);
    demand.set("harness.processes", processes);
    demand.set("gradient_accumulation_steps", mini / micro);
    demand.set("steps_per_generation", rows / micro);
    let epochs = training.epochs_per_step;
    demand.need(epochs == 1, "training.epochs_per_step", &epochs);
    let order = training.mini_batch_order;
    let is_shuffled = order == MiniBatchOrder::ShuffledRollouts;
    demand.need(is_shuffled, "training.mini_batch_order", &order);
    demand.set("max_steps", training.rollout_steps.saturating_mul(rows / mini.max(1)));
    let sampling = experiment.dapo.dynamic_sampling;
    demand.need(sampling == DynamicSampling::None {}, "dapo.dynamic_sampling", &sampling);
}

fn sampling(demand: &mut Demand, experiment: &Experiment) {
    let rollout = &experiment.rollout;
    let (log_probs, weights) = (rollout.sampling.log_probs, rollout.sampler_weights);
    demand.need(log_probs.is_none(), "rollout.sampling.log_probs", &log_probs);
    demand.need(rollout.stop.is_none(), "rollout.stop", &rollout.stop);
    demand.need(weights.is_none(), "rollout.sampler_weights", &weights);
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
        Some(method) => demand.need(false, "dapo.method", &method),
    }
    demand.set("epsilon", clip.low);
    demand.set("epsilon_high", clip.high);
    demand.set("importance_sampling_level", level);
    let over_responses = dr_grpo || dapo.aggregation != Aggregation::TokenMean;
    let filter = dapo.overlong.filter;
    demand.need(!(filter && over_responses), "dapo.overlong.filter", &filter);
    let kind = if dr_grpo { Some("dr_grpo") } else { loss_type(demand, experiment, processes) };
    demand.set("loss_type", kind.unwrap_or_default());
    let (std, epsilon) = (dapo.advantage.std, dapo.advantage.epsilon);
    let scale = if dr_grpo || std == Std::None { "none" } else { "group" };
    demand.set("scale_rewards", scale);
    if scale == "group" {
        demand.need(std == Std::Sample, "dapo.advantage.std", &std);
        demand.need(epsilon == EPSILON, "dapo.advantage.epsilon", &epsilon);
    }
    let clamp = dapo.log_ratio_clamp;
    demand.need(clamp == LogRatioClamp::None {}, "dapo.log_ratio_clamp", &clamp);
    let beta = match dapo.kl {
        Kl::None {} => 0.0,
        Kl::Penalty { estimator, coefficient } => {
            demand.need(estimator == KlEstimator::K3, "dapo.kl.estimator", &estimator);
            coefficient
        }
    };
    demand.set("beta", beta);
}

/// `bnpo` averages over tokens of a process's share of a pass: the mini-batch if one pass of one process holds it.
fn loss_type(demand: &mut Demand, experiment: &Experiment, processes: u64) -> Option<&'static str> {
    let (dapo, mini) = (&experiment.dapo, experiment.training.mini_batch_rollouts);
    let whole = processes == 1 && experiment.execution.micro_batch_rollouts >= mini;
    let (aggregation, unit) = (dapo.aggregation, dapo.token_mean_unit);
    let kind = match (aggregation, unit) {
        (Aggregation::ResponseMean, _) => Some("grpo"),
        (Aggregation::ResponseSum, _) => Some("luspo"),
        (_, TokenMeanUnit::RolloutStep) => Some("dapo"),
        (_, TokenMeanUnit::MicroBatch) => (processes == 1).then_some("bnpo"),
        (_, TokenMeanUnit::MiniBatch) => whole.then_some("bnpo"),
        (_, TokenMeanUnit::Group) => None,
    };
    demand.need(kind.is_some(), "dapo.token_mean_unit", &unit);
    kind
}

fn rewards(demand: &mut Demand, experiment: &Experiment) {
    let verifier = &experiment.reward.verifier;
    rendered::need_program(demand, verifier);
    demand.set("harness.verifier", rendered::verifier(verifier));
    if let Punishment::Soft { cache_tokens, factor, .. } = experiment.dapo.overlong.punishment {
        demand.set("harness.overlong_cache_tokens", cache_tokens);
        demand.set("reward_weights", vec![1.0, factor]);
    }
}

fn optimizer_of(demand: &mut Demand, experiment: &Experiment) {
    let own = &experiment.optimizer;
    let skips = own.non_finite == Some(NonFinite::Skip);
    demand.need(!skips, "optimizer.non_finite", &own.non_finite);
    let steps = 0..experiment.training.rollout_steps;
    let rates: Vec<f64> = steps.map(|step| optimizer::learning_rate(own, step)).collect();
    demand.set("harness.learning_rates", rates);
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
    demand.set("harness.policies", policies);
    demand.set("harness.checkpoints", saved);
}
