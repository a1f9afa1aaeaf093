//! What verl before its V1 trainer reads otherwise. Source: verl 0.4.1 to 0.8.0, workers/actor/dp_actor.py,
//! trainer/main_ppo.py, trainer/ppo/core_algos.py, and recipe/dapo.

use crate::algorithm::{AtCap, DynamicSampling};
use crate::engines::verl::compose::Composed;
use crate::engines::verl::settings::{self, Cards, KEYS, MIXED_PRECISION};
use crate::engines::{DemandRefusal, Effective, Setting};
use crate::experiment::{Experiment, MiniBatchOrder};
use serde_json::{Value, json};

pub const CLIP_GRAD: &str = "actor_rollout_ref.actor.optim.clip_grad";
pub const GRAD_CLIP: &str = "actor_rollout_ref.actor.grad_clip";
pub const SHUFFLE: &str = "actor_rollout_ref.actor.shuffle";
pub const AGGREGATION: &str = "actor_rollout_ref.actor.loss_agg_mode";
pub const RESPONSE_MEANS: &str = "seq-mean-token-mean";
pub const LOSS_MODE: &str = "actor_rollout_ref.actor.policy_loss.loss_mode";
pub const DUAL_CLIP: &str = "actor_rollout_ref.actor.clip_ratio_c";
const CLIP_LOW: &str = "actor_rollout_ref.actor.clip_ratio_low";
const CLIP_HIGH: &str = "actor_rollout_ref.actor.clip_ratio_high";
const GENERATED: &str = "data.gen_batch_size";
const WORKERS: &str = "trainer.use_legacy_worker_impl";
const STRATEGY: &str = "actor_rollout_ref.actor.strategy";
const BALANCED: &str = "trainer.balance_batch";
const MODEL_ENGINE: &str = "model_engine";
const STEPS: &str = "trainer.total_training_steps";
const DECAY_STEPS: &str = "actor_rollout_ref.actor.optim.lr_decay_steps";
pub const WARM_UP: &str = "actor_rollout_ref.actor.optim.lr_warmup_steps";
pub const WARM_UP_RATIO: &str = "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio";

/// Keys that decide which code runs.
pub const DECIDING: [&str; 4] = [WORKERS, STRATEGY, BALANCED, MODEL_ENGINE];

impl Composed {
    /// The workers before the engine workers train; `None` where the file does not say.
    pub fn is_legacy(&self) -> Option<bool> {
        if self.since_0_9() {
            return Some(false);
        }
        match self.get(WORKERS) {
            // Before 0.7.0 the actor has one worker.
            Some(kind) => {
                Some(kind != "disable" || self.lacks("actor_rollout_ref.actor.loss_scale_factor"))
            }
            None => (!self.partial).then(|| self.before_0_7_1()),
        }
    }

    /// As `is_legacy`, of FSDP's worker.
    pub fn is_legacy_fsdp(&self) -> Option<bool> {
        Some(self.is_legacy()? && self.get(STRATEGY)?.as_str()?.starts_with("fsdp"))
    }

    pub fn before_0_7_1(&self) -> bool {
        self.lacks(MODEL_ENGINE)
    }

    pub fn engine(&self) -> &str {
        let named = [STRATEGY, MODEL_ENGINE].iter().find_map(|name| self.get(name)?.as_str());
        named.filter(|name| *name != "dp").unwrap_or("fsdp")
    }

    /// What another engine than FSDP reads in place of the key; empty where that is not known.
    fn own_names(&self, name: &str) -> Option<Vec<(&'static String, &'static Value)>> {
        let engine = self.engine();
        let names = KEYS.megatron.get(name).filter(|_| !engine.starts_with("fsdp"))?;
        Some(names.iter().filter(|_| engine == "megatron").collect())
    }

    pub fn warms_up_by_ratio(&self) -> bool {
        let is_legacy = self.is_legacy_fsdp() == Some(true);
        let by_ratio = |steps: f64| steps < 0.0 || (steps == 0.0 && !is_legacy);
        match self.stated(WARM_UP) {
            Some(steps) => steps.is_null() || steps.as_f64().is_some_and(by_ratio),
            None => !self.partial,
        }
    }

    fn warm_up(&self) -> Option<Value> {
        if !self.warms_up_by_ratio() {
            return self.get(WARM_UP).cloned();
        }
        let ratio = self.get(WARM_UP_RATIO)?.as_f64()?;
        let all = || [DECAY_STEPS, STEPS].iter().find_map(|name| self.get(name)?.as_f64());
        let steps = if ratio == 0.0 { 0.0 } else { ratio * all()? };
        Some(steps.floor().into())
    }

    pub fn counts_refills(&self) -> bool {
        self.recipe && self.stated("trainer.npu_profile").is_some()
    }

    /// The loss takes the mean of each response, whatever `loss_agg_mode` says.
    pub fn ignores_aggregation(&self) -> bool {
        match self.get(LOSS_MODE).and_then(Value::as_str) {
            Some("gspo") => self.lacks("trainer.use_v1"),
            Some("sapo") => true,
            _ => false,
        }
    }

    /// Whether the loss reads a bound of the ratio.
    pub fn reads(&self, name: &str) -> bool {
        let mode = self.get(LOSS_MODE).and_then(Value::as_str);
        match name {
            DUAL_CLIP => mode.is_none_or(|mode| mode == "vanilla"),
            CLIP_LOW | CLIP_HIGH => mode != Some("sapo"),
            _ => true,
        }
    }

    pub fn lacks(&self, name: &str) -> bool {
        !self.partial && self.stated(name).is_none()
    }
}

/// What an arm demands of this version, and what it cannot do.
pub fn demand(
    composed: &Composed,
    asked: &Experiment,
    cards: Cards,
) -> (Vec<Setting>, Vec<DemandRefusal>) {
    let recipe = composed.recipe;
    let is_fsdp = composed.is_legacy_fsdp() == Some(true);
    let is_balanced = composed.get(BALANCED) == Some(&json!(true));
    let in_bands =
        asked.training.mini_batch_order == MiniBatchOrder::LengthBands && is_fsdp && is_balanced;
    let (drawn, most, at_cap) = match asked.dapo.dynamic_sampling {
        DynamicSampling::Resample { max_rounds, at_cap, .. } if recipe => {
            (asked.rollout.prompts_per_round, max_rounds, at_cap)
        }
        _ => (asked.training.prompts_per_step, 0, AtCap::Stop),
    };
    let mut demand = settings::demand(asked, cards);
    demand.need(most == 0 || at_cap == AtCap::Stop, "dapo.dynamic_sampling.at_cap");
    let (mut settings, mut refusals) = demand.into_parts();
    let before = composed.lacks("trainer.use_v1") || recipe;
    let is_of_v1 =
        |name: &str| name.starts_with("trainer.v1.") || name.ends_with(".max_inflight_gen_batches");
    settings.retain(|it| !(before && is_of_v1(&it.name)));
    let is_generated = composed.stated(GENERATED).is_some();
    settings.retain(|it| !before || is_generated || it.name != GENERATED);
    settings.retain(|it| composed.reads(&it.name));
    // Of the recipe it is data.max_response_length.
    settings.retain(|it| !(recipe && it.name == "reward.reward_kwargs.max_resp_len"));
    for setting in &mut settings {
        match setting.name.as_str() {
            CLIP_GRAD if is_fsdp => {
                setting.name = GRAD_CLIP.to_string();
                setting.remark.clear();
            }
            SHUFFLE if in_bands => setting.value = false.into(),
            GENERATED if before => setting.value = drawn.into(),
            "algorithm.filter_groups.max_num_gen_batches" if recipe => setting.value = most.into(),
            _ => {}
        }
    }
    let own = |setting: Setting| match composed.own_names(&setting.name) {
        Some(names) if !names.is_empty() => {
            let named = |(name, value): (&String, &Value)| {
                let value = if value == "" { setting.value.clone() } else { value.clone() };
                Setting { name: name.clone(), value, ..setting.clone() }
            };
            names.into_iter().map(named).collect()
        }
        _ => vec![setting],
    };
    let mut settings: Vec<Setting> = settings.into_iter().flat_map(own).collect();
    settings.dedup_by(|one, other| one.name == other.name);
    refusals.retain(|it| match it.key.as_str() {
        "dapo.dynamic_sampling.max_rounds" | "rollout.prompts_per_round" => !recipe,
        "dapo.token_mean_unit" => composed.is_legacy() != Some(true),
        "training.mini_batch_order" => !in_bands,
        _ => true,
    });
    (settings, refusals)
}

/// What this version does where it reads another key, or none.
pub fn as_read(composed: &Composed, mut row: Effective) -> Effective {
    let name = row.setting.name.as_str();
    let own = composed.own_names(name);
    if own.is_some_and(|own| own.iter().all(|(own, _)| *own != name)) {
        row.value = None;
    } else if name == WARM_UP {
        row.value = composed.warm_up();
    } else if name == SHUFFLE && composed.is_legacy_fsdp() == Some(true) {
        row.value = Some(json!(false));
    } else if name == AGGREGATION && composed.ignores_aggregation() {
        row.value = Some(json!(RESPONSE_MEANS));
    } else if composed.lacks(name) {
        let is_known =
            composed.since_0_9() || KEYS.lacking.iter().any(|part| name.starts_with(part));
        row.value = match predecessor(composed, name) {
            Some(earlier) => composed.get(earlier).cloned(),
            None => unstated(composed, &row.setting).or(row.value.filter(|_| is_known)),
        };
    }
    row
}

fn predecessor(composed: &Composed, name: &str) -> Option<&'static String> {
    let is_on = |value: &Value| !is_off(value) && value.as_f64().is_none_or(|value| value > 0.0);
    let mut names = KEYS.predecessors.get(name).filter(|_| !composed.since_0_9())?.iter();
    names.find(|name| composed.stated(name).is_some_and(is_on))
}

fn is_off(value: &Value) -> bool {
    value.is_null() || *value == false
}

fn unstated(composed: &Composed, Setting { name, value, .. }: &Setting) -> Option<Value> {
    let precision = format!("actor_rollout_ref.actor.{MIXED_PRECISION}");
    let is_of_precision = name == "actor_rollout_ref.actor.fsdp_config.dtype";
    let earlier = KEYS.earlier.get(name).filter(|_| !composed.since_0_9());
    if is_of_precision && composed.get(&precision).is_some() {
        return None;
    }
    earlier.or(Some(value).filter(|value| is_off(value))).cloned()
}
