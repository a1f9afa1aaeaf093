//! Every key that changes a number, as a setting of TRL, or refused by name: what `keys.toml` does not say. Source: TRL
//! 1.16.0, trl/trainer/grpo_trainer.py and grpo_config.py.

use crate::algorithm::{Aggregation, Kl, Method, Punishment, Std, TokenMeanUnit};
use crate::engines::demand::{Demand, EngineKeys};
use crate::engines::rendered;
use crate::experiment::{Device, Experiment};
use crate::policy::optimizer;
use serde_json::Value;
use std::sync::LazyLock;

pub static KEYS: LazyLock<EngineKeys> =
    LazyLock::new(|| EngineKeys::parse(include_str!("keys.toml")));

/// Added to a group's standard deviation; TRL has no setting for it.
const EPSILON: f64 = 1e-4;

/// Settings of `GRPOConfig`, and of the script under `harness.`, and what TRL cannot do. `processes` share each pass.
pub fn demand(experiment: &Experiment, processes: u64) -> Demand {
    let mut demand = Demand::of(&KEYS, experiment);
    numbers(&mut demand, experiment);
    batches(&mut demand, experiment, processes);
    loss(&mut demand, experiment, processes);
    rewards(&mut demand, experiment);
    script(&mut demand, experiment);
    demand
}

fn numbers(demand: &mut Demand, experiment: &Experiment) {
    let execution = &experiment.execution;
    demand.set("use_cpu", execution.device.unwrap_or_default() == Device::Cpu);
    let recompute = execution.memory.is_some_and(|memory| memory.recompute_layers);
    demand.set("gradient_checkpointing", recompute);
}

fn batches(demand: &mut Demand, experiment: &Experiment, processes: u64) {
    let training = &experiment.training;
    let (micro, mini) = (experiment.execution.micro_batch_rollouts, training.mini_batch_rollouts);
    let rows = training.prompts_per_step.saturating_mul(experiment.rollout.group_size);
    let micro = micro.min(mini).max(1);
    demand.need(mini > 0 && rows.is_multiple_of(mini), "training.mini_batch_rollouts");
    demand.need(mini.is_multiple_of(micro), "execution.micro_batch_rollouts");
    demand.need(micro.is_multiple_of(processes), "execution.micro_batch_rollouts#processes");
    demand.set("per_device_train_batch_size", quotient(micro, processes));
    demand.set("harness.processes", processes);
    demand.set("gradient_accumulation_steps", quotient(mini, micro));
    demand.set("steps_per_generation", quotient(rows, micro));
    let updates = rendered::updates_of_step(experiment);
    demand.set("max_steps", training.rollout_steps.saturating_mul(updates));
}

fn quotient(rows: u64, size: u64) -> Value {
    let is_whole = rows.is_multiple_of(size);
    if is_whole { (rows / size).into() } else { (rows as f64 / size as f64).into() }
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
        Some(_) => demand.need(false, "dapo.method"),
    }
    demand.set("epsilon", clip.low);
    demand.set("epsilon_high", clip.high);
    demand.set("importance_sampling_level", level);
    let over_responses = dr_grpo || dapo.aggregation != Aggregation::TokenMean;
    demand.need(!(dapo.overlong.filter && over_responses), "dapo.overlong.filter");
    let kind = if dr_grpo { Some("dr_grpo") } else { loss_type(demand, experiment, processes) };
    demand.set("loss_type", kind.unwrap_or_default());
    let (std, epsilon) = (dapo.advantage.std, dapo.advantage.epsilon);
    let scale = if dr_grpo || std == Std::None { "none" } else { "group" };
    demand.set("scale_rewards", scale);
    if scale == "group" {
        demand.need(std == Std::Sample, "dapo.advantage.std");
        demand.need(epsilon == EPSILON, "dapo.advantage.epsilon");
    }
    let beta = if let Kl::Penalty { coefficient, .. } = dapo.kl { coefficient } else { 0.0 };
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
    demand.need(kind.is_some(), "dapo.token_mean_unit");
    kind
}

fn rewards(demand: &mut Demand, experiment: &Experiment) {
    demand.set("harness.verifier", rendered::verifier(&experiment.reward.verifier));
    if let Punishment::Soft { cache_tokens, factor, .. } = experiment.dapo.overlong.punishment {
        demand.set("harness.overlong_cache_tokens", cache_tokens);
        demand.set("reward_weights", vec![1.0, factor]);
    }
}

/// Settings beside `GRPOConfig`.
fn script(demand: &mut Demand, experiment: &Experiment) {
    let (evaluation, checkpoints) = (&experiment.evaluation, &experiment.checkpoints);
    let steps = experiment.training.rollout_steps;
    let rate = |step| optimizer::learning_rate(&experiment.optimizer, step);
    demand.set("harness.learning_rates", (0..steps).map(rate).collect::<Vec<f64>>());
    let due = |every: &[u64]| -> Vec<u64> {
        let is_due = |step: u64| every.iter().any(|every| step.is_multiple_of(*every));
        (1..=steps).filter(|&step| step == steps || is_due(step)).collect()
    };
    demand.set("harness.policies", due(&[evaluation.every_steps, checkpoints.every_steps]));
    demand.set("harness.checkpoints", due(&[checkpoints.every_steps]));
}
