//! Every key that changes a number, as an override of verl's configuration, or refused by name.
//! Source: verl 0.9.1, verl/trainer/ppo/v1 and verl/trainer/config.

use crate::algorithm::{
    Aggregation, AtCap, DualClip, DynamicSampling, Kl, KlEstimator, LogRatioClamp, Method,
    Punishment, Std, Surplus, TokenMeanUnit,
};
use crate::engines::demand::Demand;
use crate::engines::rendered;
use crate::experiment::{Experiment, MiniBatchOrder, NonFinite, Sampling, WarmUpStart, WeightKind};
use crate::numerics::Numerics;
use serde_json::{Value, json};

/// Added to a group's standard deviation.
const EPSILON: f64 = 1e-6;

/// verl's hard bound on the log-ratio.
pub const LOG_RATIO_BOUND: f64 = 20.0;

/// Cannot act: the ratio is at most e^20 < 5e8.
pub const NO_DUAL_CLIP: f64 = 1e9;

/// `ppo_trainer.yaml` lacks it.
pub const MIXED_PRECISION: &str = "fsdp_config.mixed_precision";

/// The message alone.
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

/// Includes what verl cannot do. Names without a dot in front are those of `ppo_trainer.yaml`.
pub fn demand(experiment: &Experiment, cards: Cards) -> Demand {
    let mut demand = Demand::default();
    numbers(&mut demand, experiment);
    batches(&mut demand, experiment, cards);
    dynamic_sampling(&mut demand, experiment);
    sampling(&mut demand, experiment);
    loss(&mut demand, experiment);
    advantage(&mut demand, experiment);
    rewards(&mut demand, experiment);
    optimizer(&mut demand, experiment);
    evaluation(&mut demand, experiment);
    outputs(&mut demand, experiment, cards);
    demand
}

const ACTOR: &str = "actor_rollout_ref.actor";
const ROLLOUT: &str = "actor_rollout_ref.rollout";

fn actor(name: &str) -> String {
    format!("{ACTOR}.{name}")
}

fn rollout(name: &str) -> String {
    format!("{ROLLOUT}.{name}")
}

fn numbers(demand: &mut Demand, experiment: &Experiment) {
    let execution = &experiment.execution;
    let reason = "verl computes in bf16 or f32 with PyTorch; \"fast\" is what it can do";
    demand.need(experiment.numerics == Numerics::Fast, "numerics", &experiment.numerics, reason);
    let remark = "execution.device says where the harness evaluates";
    demand.set_with("trainer.device", "cuda", "", remark);
    demand.set(&actor("fsdp_config.model_dtype"), "fp32", "execution.weights");
    let key = "execution.weights";
    let kind = match execution.weights.unwrap_or_default() {
        WeightKind::Bf16 => "bfloat16",
        WeightKind::F32 => {
            let f32 =
                json!({"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"});
            let remark = "verl's passes are in bf16 without it";
            for model in ["actor", "ref"] {
                let name = format!("actor_rollout_ref.{model}.{MIXED_PRECISION}");
                demand.set_with(&name, f32.clone(), key, remark);
            }
            "float32"
        }
    };
    demand.set(&actor("fsdp_config.dtype"), kind, key);
    demand.set(&rollout("dtype"), kind, key);
    let seed = execution.seed;
    demand.set_with("data.seed", seed, "execution.seed", "train.parquet is in order already");
    demand.set(&rollout("seed"), seed, "execution.seed");
    demand.set(&actor("data_loader_seed"), seed, "execution.seed");
    demand.set(&actor("fsdp_config.seed"), seed, "execution.seed");
    let remark =
        "verl's documentation demands trainer.use_v1=false for it, which lacks Dynamic Sampling";
    demand.set_with(&rollout("full_determinism"), false, "execution.seed", remark);
    demand.set(&actor("fsdp_config.full_determinism"), false, "execution.seed");
    demand.set_with("trainer.use_v1", true, "", "the trainer that was read for these settings");
    demand.set("trainer.v1.trainer_mode", "sync", "");
    let recompute = execution.memory.is_some_and(|memory| memory.recompute_layers);
    let name = "actor_rollout_ref.model.enable_gradient_checkpointing";
    demand.set(name, recompute, "execution.memory.recompute_layers");
    let longest = experiment.rollout.max_prompt_tokens + experiment.rollout.max_response_tokens;
    let tokens = longest.max(execution.pass_tokens.unwrap_or(0));
    demand.set(&actor("use_dynamic_bsz"), true, "execution.pass_tokens");
    let name = actor("ppo_max_token_len_per_gpu");
    demand.set_with(&name, tokens, "execution.pass_tokens", "at least the longest row");
}

fn batches(demand: &mut Demand, experiment: &Experiment, cards: Cards) {
    let (training, group) = (&experiment.training, experiment.rollout.group_size);
    let (prompts, mini) = (training.prompts_per_step, training.mini_batch_rollouts);
    let rows = prompts.saturating_mul(group);
    demand.set("data.train_batch_size", prompts, "training.prompts_per_step");
    demand.set(&rollout("n"), group, "rollout.group_size");
    let key = "training.mini_batch_rollouts";
    let whole = mini > 0 && mini.is_multiple_of(group) && rows.is_multiple_of(mini);
    let reason = "verl counts a mini-batch in prompts; take a multiple of group_size that divides \
                  prompts_per_step times group_size";
    demand.need(whole, key, &mini, reason);
    let shared = mini.is_multiple_of(cards.all().max(1));
    let reason = "all cards share a mini-batch equally; take a multiple of their number";
    demand.need(shared, key, &mini, reason);
    let remark = "in prompts: times rollout.n";
    demand.set_with(&actor("ppo_mini_batch_size"), mini / group.max(1), key, remark);
    demand.set(&actor("ppo_epochs"), training.epochs_per_step, "training.epochs_per_step");
    let (key, order) = ("training.mini_batch_order", training.mini_batch_order);
    let reason = "verl takes the rollouts in the order of their completion, or shuffles single \
                  rollouts; ask for \"shuffled-rollouts\"";
    demand.need(order == MiniBatchOrder::ShuffledRollouts, key, &order, reason);
    let remark = "each card shuffles its share, which verl makes of equal work";
    demand.set_with(&actor("shuffle"), true, key, remark);
    demand.set("trainer.total_training_steps", training.rollout_steps, "training.rollout_steps");
    demand.set_with("trainer.total_epochs", 1, "", "train.parquet has the draws of all steps");
    demand.set_with("data.shuffle", false, "", "train.parquet is in the order of training");
    demand.set(
        "data.max_prompt_length",
        experiment.rollout.max_prompt_tokens,
        "rollout.max_prompt_tokens",
    );
    demand.set("data.truncation", "error", "rollout.max_prompt_tokens");
    demand.set("data.filter_overlong_prompts", false, "rollout.max_prompt_tokens");
}

fn dynamic_sampling(demand: &mut Demand, experiment: &Experiment) {
    let (prompts, drawn) =
        (experiment.training.prompts_per_step, experiment.rollout.prompts_per_round);
    let key = "dapo.dynamic_sampling";
    let filter = |name: &str| format!("algorithm.filter_groups.{name}");
    let DynamicSampling::Resample { max_rounds, at_cap, surplus } =
        experiment.dapo.dynamic_sampling
    else {
        demand.set(&filter("enable"), false, key);
        demand.set("data.gen_batch_size", Value::Null, "rollout.prompts_per_round");
        return;
    };
    demand.set(&filter("enable"), true, key);
    demand.set_with(&filter("metric"), "acc", key, "correctness, never the shaped score");
    let reason = "verl has no cap on refills (it ignores max_num_gen_batches); ask for 0, and for at_cap = \"stop\"";
    let uncapped = max_rounds == 0 && at_cap == AtCap::Stop;
    demand.need(uncapped, "dapo.dynamic_sampling.max_rounds", &max_rounds, reason);
    demand.set(&filter("max_num_gen_batches"), 0, "dapo.dynamic_sampling.max_rounds");
    demand.set(&filter("max_inflight_gen_batches"), 1, "rollout.prompts_per_round");
    let reason = "verl discards surplus groups";
    let key = "dapo.dynamic_sampling.surplus";
    demand.need(surplus == Surplus::Discard, key, &surplus, reason);
    let reason = "verl draws train_batch_size prompts first, then two for each evicted group; ask for \
                  prompts_per_step";
    demand.need(drawn == prompts, "rollout.prompts_per_round", &drawn, reason);
    let remark = "verl fetches single prompts: two for each evicted group";
    demand.set_with("data.gen_batch_size", 1, "rollout.prompts_per_round", remark);
}

fn top_k(sampling: Sampling) -> i64 {
    if sampling.top_k == 0 { -1 } else { sampling.top_k as i64 }
}

fn sampling(demand: &mut Demand, experiment: &Experiment) {
    let own = &experiment.rollout;
    let sampling = own.sampling;
    demand.set(&rollout("temperature"), sampling.temperature, "rollout.sampling.temperature");
    demand.set(&rollout("top_p"), sampling.top_p, "rollout.sampling.top_p");
    demand.set_with(&rollout("top_k"), top_k(sampling), "rollout.sampling.top_k", "-1 keeps all");
    demand.set("data.max_response_length", own.max_response_tokens, "rollout.max_response_tokens");
    demand.set(&rollout("ignore_eos"), false, "rollout.max_response_tokens");
    let reason = "verl takes the ratio over the whole vocabulary";
    let key = "rollout.sampling.log_probs";
    demand.need(sampling.log_probs.is_none(), key, &sampling.log_probs, reason);
    let reason = "verl's sampler has the trained weights in bf16, as execution.weights says";
    let weights = own.sampler_weights;
    demand.need(weights.is_none(), "rollout.sampler_weights", &weights, reason);
    let remark = "measures the mismatch of sampler and trainer";
    demand.set_with(&rollout("calculate_log_probs"), true, "", remark);
    let stop = "verl gives its sampler no stop strings; leave the key out";
    demand.need(own.stop.is_none(), "rollout.stop", &own.stop, stop);
    let prompt = &experiment.prompt;
    // What is more than the template is rendered into train.parquet.
    let chat = prompt.template.is_chat() && prompt.is_template_alone();
    let template = if chat { Value::Null } else { json!(BARE_TEMPLATE) };
    demand.set("actor_rollout_ref.model.custom_chat_template", template, "prompt.template");
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
    let reason = "verl lacks it, or computes something else under its name";
    demand.need(known.is_some(), "dapo.method", &dapo.method, reason);
    let (mode, _) = known.unwrap_or(PLAIN);
    demand.set(&actor("policy_loss.loss_mode"), mode, "dapo.method");
    let clip = dapo.rules().clip(dapo);
    demand.set(&actor("clip_ratio_low"), clip.low, "dapo.clip.low");
    demand.set(&actor("clip_ratio_high"), clip.high, "dapo.clip.high");
    if let Some(Method::Sapo(own)) = dapo.method {
        demand.set(&actor("tau_pos"), own.tau_positive, "dapo.method.tau_positive");
        demand.set(&actor("tau_neg"), own.tau_negative, "dapo.method.tau_negative");
        let (key, reason) = ("dapo.aggregation", "verl's SAPO takes the mean of each response");
        demand.need(dapo.aggregation == Aggregation::ResponseMean, key, &dapo.aggregation, reason);
    }
    if mode != PLAIN.0 {
        let reason = "verl's loss of this method has no dual clip";
        let none = dapo.dual_clip == DualClip::None {};
        demand.need(none, "dapo.dual_clip", &dapo.dual_clip, reason);
    }
    let mode = match (dr_grpo, dapo.aggregation) {
        (true, _) => "seq-mean-token-sum-norm",
        (_, Aggregation::ResponseMean) => "seq-mean-token-mean",
        (_, Aggregation::ResponseSum) => "seq-mean-token-sum",
        (_, Aggregation::TokenMean) => "token-mean",
    };
    demand.set(&actor("loss_agg_mode"), mode, "dapo.aggregation");
    let scale = dr_grpo.then_some(experiment.rollout.max_response_tokens);
    demand.set(&actor("loss_scale_factor"), json!(scale), "dapo.aggregation");
    if dapo.aggregation == Aggregation::TokenMean {
        let unit = dapo.token_mean_unit;
        let reason = "verl's token mean is over the mini-batch of all cards";
        demand.need(unit == TokenMeanUnit::MiniBatch, "dapo.token_mean_unit", &unit, reason);
    }
    let clamp = dapo.log_ratio_clamp;
    let reason = "verl clamps the log-ratio to ±20; ask for kind = \"symmetric\", bound = 20.0";
    let same = clamp == LogRatioClamp::Symmetric { bound: LOG_RATIO_BOUND };
    demand.need(same, "dapo.log_ratio_clamp", &clamp, reason);
    match dapo.dual_clip {
        DualClip::Constant { c } => demand.set(&actor("clip_ratio_c"), c, "dapo.dual_clip.c"),
        DualClip::None {} => {
            let remark = "verl cannot switch it off; the ratio never reaches this";
            demand.set_with(&actor("clip_ratio_c"), NO_DUAL_CLIP, "dapo.dual_clip", remark);
        }
    }
    demand.set_with(&actor("entropy_coeff"), 0, "", "no arm has an entropy bonus");
    demand.set("algorithm.use_kl_in_reward", false, "dapo.kl");
    match dapo.kl {
        Kl::None {} => demand.set(&actor("use_kl_loss"), false, "dapo.kl"),
        Kl::Penalty { estimator, coefficient } => {
            let kind = match estimator {
                KlEstimator::K1 => "kl",
                KlEstimator::K2 => "mse",
                KlEstimator::K3 => "low_var_kl",
            };
            demand.set(&actor("use_kl_loss"), true, "dapo.kl");
            let remark = "verl bounds k3 of a token to ±10";
            demand.set_with(&actor("kl_loss_type"), kind, "dapo.kl.estimator", remark);
            demand.set(&actor("kl_loss_coef"), coefficient, "dapo.kl.coefficient");
        }
    }
    for name in ["rollout_is", "rollout_rs"] {
        let name = format!("algorithm.rollout_correction.{name}");
        demand.set(&name, Value::Null, "dapo.method");
    }
    let remark = "π_old is of the training forward";
    demand.set_with("algorithm.rollout_correction.bypass_mode", false, "dapo.method", remark);
}

fn advantage(demand: &mut Demand, experiment: &Experiment) {
    let own = experiment.dapo.advantage;
    let (_, estimator) = names(experiment.dapo.method).unwrap_or(PLAIN);
    demand.set("algorithm.adv_estimator", estimator, "dapo.advantage");
    let divides = own.std != Std::None
        && estimator == PLAIN.1
        && !matches!(experiment.dapo.method, Some(Method::DrGrpo(_)));
    demand.set("algorithm.norm_adv_by_std_in_grpo", divides, "dapo.advantage.std");
    if divides {
        let (key, reason) = ("dapo.advantage.std", "verl divides by the sample standard deviation");
        demand.need(own.std == Std::Sample, key, &own.std, reason);
        let reason = "verl adds 1e-6, and has no setting for it";
        demand.need(own.epsilon == EPSILON, "dapo.advantage.epsilon", &own.epsilon, reason);
    }
}

fn rewards(demand: &mut Demand, experiment: &Experiment) {
    let overlong = experiment.dapo.overlong;
    demand.set("reward.reward_manager.source", "register", "reward.verifier");
    demand.set("reward.reward_manager.name", "dapo", "reward.verifier");
    let custom = |name: &str| format!("reward.custom_reward_function.{name}");
    let prefix = &experiment.prompt.response_prefix;
    let verifier = &experiment.reward.verifier;
    demand.set(&custom("path"), "{folder}/reward.py", "reward.verifier");
    let remark = match verifier.rule() {
        Some(_) => "verl 0.9.1's own math_dapo takes a box where an answer line is missing",
        None => "a program gets the columns that it gets here",
    };
    demand.set_with(&custom("name"), "compute_score", "reward.verifier", remark);
    let kept = custom("reward_kwargs.verifier");
    demand.set_with(&kept, rendered::verifier(verifier), "reward.verifier", "dapo data grade");
    rendered::need_program(demand, verifier);
    if let Some(prefix) = prefix {
        let (kept, key) = (custom("reward_kwargs.response_prefix"), "prompt.response_prefix");
        demand.set_with(
            &kept,
            prefix.as_str(),
            key,
            "dapo data grade reads it before the response",
        );
        let is_plain = !prefix.contains(char::is_control) && !prefix.contains("${");
        let reason = "an override of verl is one line, and ${ begins an interpolation";
        demand.need(is_plain, key, prefix, reason);
    }
    let (key, reason) = ("dapo.overlong.filter", "verl does not mask truncated responses");
    demand.need(!overlong.filter, key, &overlong.filter, reason);
    let key = "dapo.overlong.punishment";
    let Punishment::Soft { cache_tokens, factor, .. } = overlong.punishment else { return };
    let reason =
        "the shaped score would not tell a correct response from a wrong one; take less than 2";
    demand.need(factor < 2.0, "dapo.overlong.punishment.factor", &factor, reason);
    let buffer = |name: &str| format!("reward.reward_kwargs.overlong_buffer_cfg.{name}");
    demand.set(&buffer("enable"), true, key);
    demand.set(&buffer("len"), cache_tokens, "dapo.overlong.punishment.cache_tokens");
    demand.set(&buffer("penalty_factor"), factor, "dapo.overlong.punishment.factor");
    demand.set_with(&buffer("log"), false, key, "verl reads it without a default");
    let limit = experiment.rollout.max_response_tokens;
    demand.set("reward.reward_kwargs.max_resp_len", limit, "rollout.max_response_tokens");
}

fn optimizer(demand: &mut Demand, experiment: &Experiment) {
    let own = &experiment.optimizer;
    let optim = |name: &str| actor(&format!("optim.{name}"));
    demand.set(&optim("optimizer_impl"), "torch.optim", "optimizer");
    demand.set(&optim("optimizer"), "AdamW", "optimizer");
    demand.set(&optim("lr"), own.learning_rate, "optimizer.learning_rate");
    demand.set(&optim("betas"), json!([own.beta1, own.beta2]), "optimizer.beta1");
    let own_config = json!({"eps": own.epsilon});
    demand.set(&optim("override_optimizer_config"), own_config, "optimizer.epsilon");
    demand.set(&optim("weight_decay"), own.weight_decay, "optimizer.weight_decay");
    let remark = "not actor.grad_clip, which verl 0.9.1 does not read";
    demand.set_with(
        &optim("clip_grad"),
        own.max_gradient_norm,
        "optimizer.max_gradient_norm",
        remark,
    );
    let skips = own.non_finite == Some(NonFinite::Skip);
    let reason = "verl leaves out an update whose gradient is not finite; ask for \"skip\"";
    demand.need(skips, "optimizer.non_finite", &own.non_finite, reason);
    let warm_up = own.warm_up;
    let from_zero = warm_up.start == WarmUpStart::Zero || warm_up.rollout_steps <= 1;
    let reason = "verl's warm-up starts at rate 0; ask for start = \"zero\"";
    demand.need(from_zero, "optimizer.warm_up.start", &warm_up.start, reason);
    let at_once = warm_up.start == WarmUpStart::FirstStep && warm_up.rollout_steps <= 1;
    let steps = if at_once { 0 } else { warm_up.rollout_steps };
    let remark = "verl moves its schedule once a rollout step";
    demand.set_with(&optim("lr_warmup_steps"), steps, "optimizer.warm_up.rollout_steps", remark);
    demand.set(&optim("lr_warmup_steps_ratio"), 0.0, "optimizer.warm_up.rollout_steps");
    demand.set(&optim("lr_scheduler_type"), "constant", "optimizer.learning_rate");
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
    let sampling = own.sampling;
    let kept = |name: &str| rollout(&format!("val_kwargs.{name}"));
    let remark = "val.parquet repeats problems where the sets ask for different numbers";
    demand.set_with(&kept("n"), validation(experiment).0, "evaluation.samples", remark);
    demand.set(&kept("temperature"), sampling.temperature, "evaluation.sampling.temperature");
    demand.set(&kept("top_p"), sampling.top_p, "evaluation.sampling.top_p");
    demand.set(&kept("top_k"), top_k(sampling), "evaluation.sampling.top_k");
    let samples = sampling.temperature > 0.0;
    demand.set(&kept("do_sample"), samples, "evaluation.sampling.temperature");
    let any = !own.during_training.is_empty();
    let every = if any && own.every_steps > 0 { own.every_steps as i64 } else { -1 };
    let remark = "verl's own; the harness evaluates the weights again";
    demand.set_with("trainer.test_freq", every, "evaluation.every_steps", remark);
    demand.set("trainer.val_before_train", any, "evaluation.during_training");
}

/// The harness needs weights for evaluations, verl for resuming.
pub fn save_every(experiment: &Experiment) -> u64 {
    let divisor = |a: u64, b: u64| {
        let (mut a, mut b) = (a, b);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    match divisor(experiment.evaluation.every_steps, experiment.checkpoints.every_steps) {
        0 => experiment.training.rollout_steps,
        every => every,
    }
}

fn outputs(demand: &mut Demand, experiment: &Experiment, cards: Cards) {
    demand.set(&rollout("name"), "vllm", "");
    demand.set("trainer.nnodes", cards.nodes(), "");
    demand.set("trainer.n_gpus_per_node", cards.per_node(), "");
    let remark = "the import reads each step";
    demand.set_with("trainer.logger", json!(["console", "file"]), "", remark);
    demand.set("trainer.project_name", "dapo", "");
    demand.set("trainer.experiment_name", experiment.name.as_str(), "name");
    for (name, place) in [
        ("trainer.rollout_data_dir", "rollouts"),
        ("trainer.validation_data_dir", "validation"),
        ("trainer.default_local_dir", "checkpoints"),
        ("data.train_files", "train.parquet"),
        ("data.val_files", "val.parquet"),
    ] {
        demand.set(name, format!("{{folder}}/{place}"), "");
    }
    demand.set("trainer.save_freq", save_every(experiment), "evaluation.every_steps");
    let contents = json!(["model", "optimizer", "extra", "hf_model"]);
    let remark = "hf_model: weights that the harness reads";
    demand.set_with(&actor("checkpoint.save_contents"), contents, "checkpoints", remark);
    demand.set("trainer.resume_mode", "auto", "");
}
