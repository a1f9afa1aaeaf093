//! A configuration's values in verl, ours or a user's: composed by the installed verl, or stated by a file.

use crate::base::files;
use crate::engines::configuration::{self, Configured, interpolation};
use crate::engines::verl::{overrides, settings::KEYS};
use crate::engines::{Effective, EngineError, Setting, process};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::path::Path;

const SCRIPT: &str = include_str!("compose.py");

const TABLES: [&str; 5] = ["actor_rollout_ref", "algorithm", "data", "trainer", "model_engine"];

const INSTEAD: &str = "run the command of your training with --cfg job at its end, which prints its \
    configuration and trains nothing (python3 -m verl.trainer.main_ppo … --cfg job > job.yaml), then: \
    dapo engine check verl job.yaml";

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Composed {
    /// Empty where a file does not state it.
    pub version: String,
    /// Values at the start of training.
    pub effective: Value,
    /// Not in verl's own; unknown for composed files.
    pub added: Vec<String>,
    /// Keys of verl's own at other values; unknown for composed files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// The error of verl's own validation.
    pub validation: Option<String>,
    /// Why that validation did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unchecked: Option<String>,
    /// Keys may be stated elsewhere: missing ones are unknown.
    #[serde(default)]
    pub partial: bool,
    /// Of the DAPO recipe before 0.9, whose trainer filters groups itself.
    #[serde(default)]
    pub recipe: bool,
    #[serde(skip)]
    pub left_out: Vec<usize>,
}

impl Composed {
    /// `name` has dots; `None` if missing or unknown.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.stated(name).filter(|value| !interpolation::is_open(value))
    }

    pub fn stated(&self, name: &str) -> Option<&Value> {
        name.split('.').try_fold(&self.effective, |value, part| value.get(part))
    }

    /// A key that 0.9.0 introduced decides.
    pub fn since_0_9(&self) -> bool {
        self.get("trainer.use_v1").is_some()
    }

    /// Messages name it so.
    pub fn named(&self) -> String {
        match self.version.as_str() {
            "" if self.partial => "verl, a part of a configuration".to_string(),
            "" => "verl, its version not stated".to_string(),
            version => format!("verl {version}"),
        }
    }

    /// `None` where the file does not say.
    pub fn beside(&self, settings: Vec<Setting>) -> Vec<Effective> {
        let of = |setting: Setting| {
            let absent = || Value::String("verl has no such key here".to_string());
            let value = match self.stated(&setting.name) {
                Some(value) if interpolation::is_open(value) => None,
                Some(value) => Some(value.clone()),
                None => (!self.partial).then(absent),
            };
            Effective { value, setting, is_default: false }
        };
        settings.into_iter().map(of).collect()
    }
}

pub fn of_settings(python: &str, settings: &[Setting]) -> Result<Composed, EngineError> {
    let overrides: Vec<String> = settings.iter().map(overrides::line).collect();
    let reason = |reason| EngineError::Program { program: python.to_string(), reason };
    asked(python, &json!({"overrides": overrides}))?.map_err(reason)
}

/// Or Hydra's error.
fn asked(python: &str, input: &Value) -> Result<Result<Composed, String>, EngineError> {
    let found: Value = process::ask(python, SCRIPT, input)?;
    if let Some(reason) = found.get("refused").and_then(Value::as_str) {
        return Ok(Err(reason.to_string()));
    }
    let mut composed: Composed = serde_json::from_value(found).map_err(|error| {
        let reason = format!("its answer is not read: {error}");
        EngineError::Program { program: python.to_string(), reason }
    })?;
    composed.recipe &= !composed.since_0_9();
    composed.effective = migrated(composed.effective);
    Ok(Ok(composed))
}

/// Any form of [`configuration`], or JSON of `asked.py`; only lists (overrides, `defaults`) need a Python with verl.
/// Errors: a file that cannot be read or composed, with what to do instead.
pub fn of_file(python: &str, path: &Path) -> Result<Composed, EngineError> {
    let refused = |what: &str| configuration::refusal(what, INSTEAD).of(path);
    let with_verl = |what: &str, input: Value| match asked(python, &input) {
        Ok(Ok(composed)) => Ok(composed),
        Ok(Err(reason)) => Err(refused(&format!("Hydra does not compose {what}: {reason}"))),
        Err(error) => Err(refused(&format!("{what} are composed by verl, and {error}"))),
    };
    let (configured, left_out) = configuration::read(path, &TABLES, INSTEAD)?;
    match configured {
        Configured::Pickled => Err(refused("it is a pickle")),
        Configured::Overrides(all) => {
            let name = primary(path)?;
            with_verl("overrides", json!({"overrides": all, "name": name}))
        }
        Configured::Defaults(text) => {
            let folder = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
            let folder = folder.parent().unwrap_or(path);
            with_verl("the defaults", json!({"text": text, "folder": folder}))
        }
        Configured::Values(effective) if effective.get(configuration::RECORDED).is_some() => {
            serde_json::from_value(effective).map_err(|error| refused(&error.to_string()))
        }
        Configured::Values(effective) => {
            let recipe = effective.pointer("/trainer/use_v1").is_none()
                && effective.pointer("/reward_model/overlong_buffer").is_some();
            let effective = migrated(effective);
            let mut composed = Composed { effective, recipe, left_out, ..Composed::default() };
            composed.partial = KEYS.whole.iter().any(|key| composed.get(key).is_none());
            Ok(composed)
        }
    }
}

/// Reads `.hydra/hydra.yaml` beside the overrides, if it exists.
fn primary(path: &Path) -> Result<String, EngineError> {
    let beside = path.with_file_name("hydra.yaml");
    if !beside.is_file() {
        return Ok("ppo_trainer".to_string());
    }
    let text = files::read_text_up_to(&beside, 1 << 20)?;
    let found = configuration::yaml::parsed(&text).map_err(|error| error.of(&beside))?;
    let name = found.pointer("/hydra/job/config_name").and_then(Value::as_str);
    Ok(name.unwrap_or("ppo_trainer").to_string())
}

/// Reward keys of earlier versions: verl 0.7 and 0.8 move `reward_model.*` and `custom_reward_function` to `reward.*`
/// (migrate_legacy_reward_impl); older ones have no `reward`.
pub fn migrated(mut effective: Value) -> Value {
    let since_0_9 = effective.pointer("/trainer/use_v1").is_some();
    let legacy = |name: &str| effective.get(name).cloned().filter(|it| !it.is_null());
    let (Some(model), false) = (legacy("reward_model"), since_0_9) else { return effective };
    let custom = legacy("custom_reward_function");
    let stated =
        |value: &Value| value.as_object().is_some_and(|it| it.values().any(|it| !it.is_null()));
    let reward = effective.as_object_mut().map(|all| all.entry("reward").or_insert(json!({})));
    if let Some(Value::Object(reward)) = reward {
        let table = |reward: &mut Map<String, Value>, name: &str, key: &str, value: &Value| {
            let found = reward.entry(name).or_insert(json!({}));
            if let (Value::Object(found), false) = (found, value.is_null()) {
                found.insert(key.to_string(), value.clone());
            }
        };
        table(reward, "reward_manager", "name", &model["reward_manager"]);
        table(reward, "reward_manager", "source", &model["reward_loop_source"]);
        if model["reward_kwargs"].is_object() {
            reward.insert("reward_kwargs".to_string(), model["reward_kwargs"].clone());
        }
        // Name in the DAPO recipe.
        if model["overlong_buffer"].is_object() {
            table(reward, "reward_kwargs", "overlong_buffer_cfg", &model["overlong_buffer"]);
        }
        if let Some(custom) = custom.filter(stated) {
            reward.insert("custom_reward_function".to_string(), custom);
        }
    }
    if let Value::Object(all) = &mut effective {
        for name in ["reward_model", "custom_reward_function", "sandbox_fusion"] {
            all.remove(name);
        }
    }
    effective
}
