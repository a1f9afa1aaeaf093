//! What the configuration of another trainer's run states of what an audit can see.

use crate::engines::EngineError;
use crate::engines::trl::written::TrlConfig;
use crate::engines::verl::compose::{self, Composed};
use crate::experiment::Engine;
use crate::records::{TrackedRun, tracked::TrackedCurve};
use serde_json::Value;
use std::path::Path;

const FILTER: &str = "algorithm.filter_groups.enable";
const PENALTY: &str = "reward.reward_kwargs.overlong_buffer_cfg.enable";

/// A key of the configuration and its value; `None` where it does not state the key.
pub type StatedKey = Option<(&'static str, Value)>;

#[derive(Debug, Default)]
pub struct StatedSettings {
    pub group_size: StatedKey,
    pub batch_size: StatedKey,
    pub filter: StatedKey,
    pub filter_metric: StatedKey,
    pub length_penalty: StatedKey,
    pub reward_manager: StatedKey,
    pub longest_response: StatedKey,
    pub penalty_zone: StatedKey,
    /// Of TRL's reward functions; empty where it states none.
    pub reward_weights: Vec<f64>,
    pub scale_rewards: StatedKey,
    pub is_one_generation: bool,
}

impl StatedSettings {
    /// Nothing is stated without a configuration. Errors: an unreadable one, or rewards that are no weighted sum.
    pub fn of(engine: Engine, config: Option<&Path>, python: &str) -> Result<Self, EngineError> {
        match (config, engine) {
            (None, _) => Ok(Self::default()),
            (Some(path), Engine::Verl) => of_verl(path, python),
            (Some(path), _) => of_trl(path, python),
        }
    }

    pub fn is_empty(&self) -> bool {
        let Self { group_size, batch_size, filter, filter_metric, .. } = self;
        let Self { length_penalty, longest_response, .. } = self;
        let keys =
            [group_size, batch_size, filter, filter_metric, length_penalty, longest_response];
        keys.into_iter().all(Option::is_none) && self.reward_weights.is_empty()
    }

    pub fn is_held(&self, log: &TrackedRun, step: u64) -> bool {
        let has = |curve: &TrackedCurve, step: u64| curve.iter().any(|it| it.0 == step as f64);
        let is_logged = log.curves.get("reward").is_some_and(|it| has(it, step));
        let is_alone = step < 2 || log.curves.values().any(|it| has(it, step - 1));
        self.is_one_generation && is_logged && is_alone
    }

    pub fn is_sum(&self) -> bool {
        self.reward_weights.iter().filter(|weight| **weight != 0.0).count() > 1
    }
}

fn of_verl(path: &Path, python: &str) -> Result<StatedSettings, EngineError> {
    Ok(of_composed(&compose::of_file(python, path)?))
}

fn of_composed(composed: &Composed) -> StatedSettings {
    let stated = |key: &'static str| Some((key, composed.get(key)?.clone()));
    let is = |key: &str, wanted: &Value| {
        composed.get(key).is_none_or(|value| value.is_null() || value == wanted)
    };
    let off = |key: &'static str| composed.lacks(key).then(|| (key, Value::Bool(false)));
    let is_verls = is("reward.custom_reward_function.path", &Value::Null);
    let is_sync = is("trainer.v1.trainer_mode", &Value::from("sync"));
    let batch_size = stated("data.train_batch_size");
    StatedSettings {
        group_size: stated("actor_rollout_ref.rollout.n"),
        batch_size: batch_size.filter(|(_, size)| is_sync && is("data.gen_batch_size", size)),
        filter: stated(FILTER).or(off(FILTER)),
        filter_metric: stated("algorithm.filter_groups.metric"),
        length_penalty: stated(PENALTY).or(off(PENALTY).filter(|_| is_verls)),
        reward_manager: stated("reward.reward_manager.name"),
        longest_response: stated("data.max_response_length"),
        penalty_zone: stated("reward.reward_kwargs.overlong_buffer_cfg.len"),
        ..StatedSettings::default()
    }
}

fn of_trl(path: &Path, python: &str) -> Result<StatedSettings, EngineError> {
    let refuse = |reason: String| Err(EngineError::Output { path: path.to_path_buf(), reason });
    let mut config = TrlConfig::of_file(python, path, 1)?;
    let key = "multi_objective_aggregation";
    if let Some(kind) = config.values.get(key).filter(|kind| **kind != "sum_then_normalize") {
        return refuse(format!(
            "{key} = {kind} is not audited: the sum of the rewards is no reward then"
        ));
    }
    let reward_weights = match config.values.remove("reward_weights") {
        None | Some(Value::Null) => Vec::new(),
        Some(weights) => match serde_json::from_value(weights) {
            Ok(weights) => weights,
            Err(error) => return refuse(format!("reward_weights: {error}")),
        },
    };
    let [passes, steps] = ["gradient_accumulation_steps", "steps_per_generation"]
        .map(|key| config.values.get(key).and_then(Value::as_f64));
    let is_evaluated = config.values.get("eval_strategy").is_some_and(|it| *it != "no");
    let is_one_generation = steps.zip(passes).is_some_and(|(steps, passes)| steps >= passes);
    let mut stated = |key| config.values.remove(key).map(|value| (key, value));
    Ok(StatedSettings {
        group_size: stated("num_generations"),
        scale_rewards: stated("scale_rewards"),
        is_one_generation: is_one_generation && !is_evaluated,
        reward_weights,
        ..StatedSettings::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_whole_configuration_without_a_switch_has_it_off() {
        let effective = json!({"algorithm": {"adv_estimator": "grpo"}});
        for (partial, expected) in [(false, Some(json!(false))), (true, None)] {
            let effective = effective.clone();
            let of = of_composed(&Composed { effective, partial, ..Composed::default() });
            for switch in [of.filter, of.length_penalty] {
                assert_eq!(switch.map(|it| it.1), expected);
            }
        }
        // A reward function of the user's may lower rewards of long responses itself.
        let effective = json!({"reward": {"custom_reward_function": {"path": "mine.py"}}});
        let of = of_composed(&Composed { effective, ..Composed::default() });
        assert!(of.filter.is_some() && of.length_penalty.is_none());
    }
}
