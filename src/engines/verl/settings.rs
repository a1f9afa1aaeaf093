//! Every key that changes a number, as an override of verl's configuration, or refused by name: what `keys.toml` does
//! not say. Source: verl 0.9.1, verl/trainer/ppo/v1 and verl/trainer/config.

use crate::algorithm::{
    Aggregation, AtCap, DualClip, DynamicSampling, Kl, KlEstimator, Method, Punishment, Std,
    TokenMeanUnit,
};
use crate::engines::demand::{Demand, EngineKeys};
use crate::engines::rendered;
use crate::experiment::{Experiment, NonFinite, Sampling, WarmUpStart, WeightKind};
use serde_json::{Value, json};
use std::sync::LazyLock;

pub static KEYS: LazyLock<EngineKeys> =
    LazyLock::new(|| EngineKeys::parse(include_str!("keys.toml")));

/// Added to a group's standard deviation.
const EPSILON: f64 = 1e-6;

/// Cannot act: the ratio is at most e^20 < 5e8.
pub const NO_DUAL_CLIP: f64 = 1e9;

/// `ppo_trainer.yaml` lacks it.
pub const MIXED_PRECISION: &str = "fsdp_config.mixed_precision";

const BARE_TEMPLATE: &str = "{% for message in messages %}{{ message['content'] }}{% endfor %}";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub struct Cards {
    /// Machines that verl trains on. Default: 1.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub nodes: Option<u64>,
    /// Cards of each machine. Default: 8.
    #[arg(long = "gpus-per-node", value_parser = clap::value_parser!(u64).range(1..=64))]
    pub per_node: Option<u64>,
}

impl Cards {
    pub fn all(self) -> u64 {
        self.nodes().saturating_mul(self.per_node())
    }

    fn nodes(self) -> u64 {
        self.nodes.unwrap_or(1)
    }

    fn per_node(self) -> u64 {
        self.per_node.unwrap_or(8)
    }
}

/// Includes what verl cannot do.
pub fn demand(experiment: &Experiment, cards: Cards) -> Demand {
    let mut demand = Demand::of(&KEYS, experiment);
    numbers(&mut demand, experiment);
    batches(&mut demand, experiment, cards);
    dynamic_sampling(&mut demand, experiment);
    sampling(&mut demand, experiment);
    loss(&mut demand, experiment);
    advantage(&mut demand, experiment);
    rewards(&mut demand, experiment);
    optimizer(&mut demand, experiment);
    evaluation(&mut demand, experiment);
    demand.set("trainer.nnodes", cards.nodes());
    demand.set("trainer.n_gpus_per_node", cards.per_node());
    demand.set("trainer.save_freq", save_every(experiment));
    demand
}

fn numbers(demand: &mut Demand, experiment: &Experiment) {
    let execution = &experiment.execution;
    let kind = match execution.weights.unwrap_or_default() {
        WeightKind::Bf16 => "bfloat16",
        WeightKind::F32 => {
            let f32 =
                json!({"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"});
            demand.set("actor_rollout_ref.actor.fsdp_config.mixed_precision", f32.clone());
            demand.set("actor_rollout_ref.ref.fsdp_config.mixed_precision", f32);
            "float32"
        }
    };
    demand.set("actor_rollout_ref.actor.fsdp_config.dtype", kind);
    demand.set("actor_rollout_ref.rollout.dtype", kind);
    let recompute = execution.memory.is_some_and(|memory| memory.recompute_layers);
    demand.set("actor_rollout_ref.model.enable_gradient_checkpointing", recompute);
    let longest = experiment.rollout.max_prompt_tokens + experiment.rollout.max_response_tokens;
    let tokens = longest.max(execution.pass_tokens.unwrap_or(0));
    demand.set("actor_rollout_ref.actor.ppo_max_token_len_per_gpu", tokens);
}

fn batches(demand: &mut Demand, experiment: &Experiment, cards: Cards) {
    let (training, group) = (&experiment.training, experiment.rollout.group_size);
    let mini = training.mini_batch_rollouts;
    let rows = training.prompts_per_step.saturating_mul(group);
    let whole = mini > 0 && mini.is_multiple_of(group) && rows.is_multiple_of(mini);
    demand.need(whole, "training.mini_batch_rollouts");
    let shared = mini.is_multiple_of(cards.all().max(1));
    demand.need(shared, "training.mini_batch_rollouts#cards");
    demand.set("actor_rollout_ref.actor.ppo_mini_batch_size", mini / group.max(1));
}

fn dynamic_sampling(demand: &mut Demand, experiment: &Experiment) {
    let DynamicSampling::Resample { max_rounds, at_cap, .. } = experiment.dapo.dynamic_sampling
    else {
        return demand.set("data.gen_batch_size", Value::Null);
    };
    demand.need(max_rounds == 0 && at_cap == AtCap::Stop, "dapo.dynamic_sampling.max_rounds");
    let drawn = experiment.rollout.prompts_per_round;
    demand.need(drawn == experiment.training.prompts_per_step, "rollout.prompts_per_round");
}

fn top_k(sampling: Sampling) -> i64 {
    if sampling.top_k == 0 { -1 } else { sampling.top_k as i64 }
}

fn sampling(demand: &mut Demand, experiment: &Experiment) {
    demand.set("actor_rollout_ref.rollout.top_k", top_k(experiment.rollout.sampling));
    let prompt = &experiment.prompt;
    // What is more than the template is rendered into train.parquet.
    let chat = prompt.template.is_chat() && prompt.is_template_alone();
    let template = if chat { Value::Null } else { json!(BARE_TEMPLATE) };
    demand.set("actor_rollout_ref.model.custom_chat_template", template);
}

/// verl's names of the plain loss and of GRPO's advantages.
const PLAIN: (&str, &str) = ("vanilla", "grpo");

/// A method's loss and advantages in verl, if it has them. GMPO is not here: verl averages a pass, not the mini-batch.
fn names(method: Option<Method>) -> Option<(&'static str, &'static str)> {
    let (loss, advantages) = PLAIN;
    Some(match method {
        None | Some(Method::DrGrpo(_)) => PLAIN,
        Some(Method::Cispo(_)) => ("cispo", advantages),
        Some(Method::Gspo(_)) => ("gspo", advantages),
        Some(Method::Sapo(_)) => ("sapo", advantages),
        Some(Method::Opo(_)) => (loss, "opo"),
        Some(Method::ReinforcePlusPlusBaseline(_)) => (loss, "reinforce_plus_plus_baseline"),
        Some(Method::Rloo(_)) => (loss, "rloo"),
        Some(_) => return None,
    })
}

fn loss(demand: &mut Demand, experiment: &Experiment) {
    let dapo = &experiment.dapo;
    let dr_grpo = matches!(dapo.method, Some(Method::DrGrpo(_)));
    let known = names(dapo.method);
    demand.need(known.is_some(), "dapo.method");
    let (mode, _) = known.unwrap_or(PLAIN);
    demand.set("actor_rollout_ref.actor.policy_loss.loss_mode", mode);
    let clip = dapo.rules().clip(dapo);
    demand.set("actor_rollout_ref.actor.clip_ratio_low", clip.low);
    demand.set("actor_rollout_ref.actor.clip_ratio_high", clip.high);
    if let Some(Method::Sapo(_)) = dapo.method {
        demand.need(dapo.aggregation == Aggregation::ResponseMean, "dapo.aggregation");
    }
    demand.need(mode == PLAIN.0 || dapo.dual_clip == DualClip::None {}, "dapo.dual_clip");
    let mode = match (dr_grpo, dapo.aggregation) {
        (true, _) => "seq-mean-token-sum-norm",
        (_, Aggregation::ResponseMean) => "seq-mean-token-mean",
        (_, Aggregation::ResponseSum) => "seq-mean-token-sum",
        (_, Aggregation::TokenMean) => "token-mean",
    };
    demand.set("actor_rollout_ref.actor.loss_agg_mode", mode);
    let scale = dr_grpo.then_some(experiment.rollout.max_response_tokens);
    demand.set("actor_rollout_ref.actor.loss_scale_factor", json!(scale));
    if dapo.aggregation == Aggregation::TokenMean {
        demand.need(dapo.token_mean_unit == TokenMeanUnit::MiniBatch, "dapo.token_mean_unit");
    }
    demand.set("actor_rollout_ref.actor.clip_ratio_c", NO_DUAL_CLIP);
    if let Kl::Penalty { estimator, .. } = dapo.kl {
        let kind = match estimator {
            KlEstimator::K1 => "kl",
            KlEstimator::K2 => "mse",
            KlEstimator::K3 => "low_var_kl",
        };
        demand.set("actor_rollout_ref.actor.kl_loss_type", kind);
    }
    demand.set("algorithm.rollout_correction.rollout_is", Value::Null);
    demand.set("algorithm.rollout_correction.rollout_rs", Value::Null);
}

fn advantage(demand: &mut Demand, experiment: &Experiment) {
    let own = experiment.dapo.advantage;
    let (_, estimator) = names(experiment.dapo.method).unwrap_or(PLAIN);
    demand.set("algorithm.adv_estimator", estimator);
    let divides = own.std != Std::None
        && estimator == PLAIN.1
        && !matches!(experiment.dapo.method, Some(Method::DrGrpo(_)));
    demand.set("algorithm.norm_adv_by_std_in_grpo", divides);
    if divides {
        demand.need(own.std == Std::Sample, "dapo.advantage.std");
        demand.need(own.epsilon == EPSILON, "dapo.advantage.epsilon");
    }
}

fn rewards(demand: &mut Demand, experiment: &Experiment) {
    let name = "reward.custom_reward_function.reward_kwargs.verifier";
    demand.set(name, rendered::verifier(&experiment.reward.verifier));
    if let Some(prefix) = &experiment.prompt.response_prefix {
        let is_plain = !prefix.contains(char::is_control) && !prefix.contains("${");
        demand.need(is_plain, "prompt.response_prefix");
    }
    if let Punishment::Soft { factor, .. } = experiment.dapo.overlong.punishment {
        demand.need(factor < 2.0, "dapo.overlong.punishment.factor");
    }
}

fn optimizer(demand: &mut Demand, experiment: &Experiment) {
    let own = &experiment.optimizer;
    demand.set("actor_rollout_ref.actor.optim.betas", json!([own.beta1, own.beta2]));
    let own_config = json!({"eps": own.epsilon});
    demand.set("actor_rollout_ref.actor.optim.override_optimizer_config", own_config);
    demand.need(own.non_finite == Some(NonFinite::Skip), "optimizer.non_finite");
    let warm_up = own.warm_up;
    let from_zero = warm_up.start == WarmUpStart::Zero || warm_up.rollout_steps <= 1;
    demand.need(from_zero, "optimizer.warm_up.start");
    let at_once = warm_up.start == WarmUpStart::FirstStep && warm_up.rollout_steps <= 1;
    let steps = if at_once { 0 } else { warm_up.rollout_steps };
    demand.set("actor_rollout_ref.actor.optim.lr_warmup_steps", steps);
}

/// verl's samples of each problem, and validation rows: one if all sets ask for equally many, else one a sample.
pub fn validation(experiment: &Experiment) -> (u64, Vec<(String, u64)>) {
    let own = &experiment.evaluation;
    let samples = |set: &String| own.samples.get(set).copied().unwrap_or(1);
    let sets = own.during_training.iter().map(|set| (set.clone(), samples(set)));
    let sets: Vec<(String, u64)> = sets.collect();
    match sets.first() {
        Some(&(_, same)) if sets.iter().all(|(_, samples)| *samples == same) => {
            (same, sets.into_iter().map(|(set, _)| (set, 1)).collect())
        }
        _ => (1, sets),
    }
}

fn evaluation(demand: &mut Demand, experiment: &Experiment) {
    let own = &experiment.evaluation;
    demand.set("actor_rollout_ref.rollout.val_kwargs.n", validation(experiment).0);
    demand.set("actor_rollout_ref.rollout.val_kwargs.top_k", top_k(own.sampling));
    let samples = own.sampling.temperature > 0.0;
    demand.set("actor_rollout_ref.rollout.val_kwargs.do_sample", samples);
    let any = !own.during_training.is_empty();
    let every = if any && own.every_steps > 0 { own.every_steps as i64 } else { -1 };
    demand.set("trainer.test_freq", every);
    demand.set("trainer.val_before_train", any);
}

/// The harness needs weights for evaluations, verl for resuming.
pub fn save_every(experiment: &Experiment) -> u64 {
    match greatest_divisor(experiment.evaluation.every_steps, experiment.checkpoints.every_steps) {
        0 => experiment.training.rollout_steps,
        every => every,
    }
}

fn greatest_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_divisor(other, one % other) }
}
