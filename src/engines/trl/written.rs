//! A user's `GRPOConfig` (YAML, JSON, `training_args.bin`) against an arm's demands. Source of the
//! traps: TRL 1.16.0, trl/trainer/grpo_trainer.py and grpo_config.py.

use crate::algorithm::{Aggregation, Dapo, DynamicSampling, Kl, Method, Std, TokenMeanUnit};
use crate::engines::configuration::{self, Configured};
use crate::engines::trl::settings::{self, KEYS};
use crate::engines::{DemandRefusal, Effective, EngineError, Setting, Trap, Unread};
use crate::engines::{process, rendered};
use crate::experiment::{Experiment, WarmUpStart, diagnose};
use crate::policy::optimizer;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::Path;

const PICKLE: &str = include_str!("pickle.py");
const FILLED: &str = include_str!("filled.py");

const SCHEDULE: [&str; 3] = ["lr_scheduler_type", "warmup_steps", "warmup_ratio"];

const RATES: &str = "harness.learning_rates";

const GENERATED: &str = "generation_batch_size";
const PASS: &str = "per_device_train_batch_size";
const PASSES: &str = "gradient_accumulation_steps";
const STEPS: &str = "steps_per_generation";
const ITERATIONS: &str = "num_iterations";
const MAX_STEPS: &str = "max_steps";
const DELTA: &str = "delta";

const CORRECTION: &str = "vllm_importance_sampling_correction";

const INSTEAD: &str = "give the GRPOConfig as YAML or JSON, or write it where it is made: \
    open(\"config.json\", \"w\").write(config.to_json_string()), then: dapo engine check trl config.json";

/// As `filled.py` says it, but for what the file states.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub struct TrlConfig {
    pub values: Map<String, Value>,
    /// Why TRL's own values are unknown.
    #[serde(skip)]
    pub unasked: Option<String>,
    /// Keys that the installed TRL has not, where it was asked.
    pub unknown: Vec<String>,
    /// Keys that the file states at other values than TRL's own; without TRL all that it states but for nulls.
    pub changed: Vec<String>,
    /// Keys that the file does not state, and that TRL filled in.
    #[serde(skip)]
    pub filled: Vec<String>,
    pub version: Option<String>,
    /// Why TRL refuses the file's `generation_batch_size`.
    #[serde(skip)]
    pub contradiction: Option<String>,
    #[serde(skip)]
    pub left_out: Vec<usize>,
}

impl TrlConfig {
    /// The TRL of `python`, if any, fills in missing values. `processes` share each pass. Errors: a file that is no
    /// configuration of TRL, with what to do instead.
    pub fn of_file(python: &str, path: &Path, processes: u64) -> Result<Self, EngineError> {
        let refused = |what: &str| configuration::refusal(what, INSTEAD).of(path);
        let whole: Vec<&str> = KEYS.whole.iter().map(String::as_str).collect();
        let mut is_pickled = false;
        let (configured, left_out) = configuration::read(path, &whole, INSTEAD)?;
        let values = match configured {
            Configured::Values(Value::Object(values)) => values,
            Configured::Pickled => {
                let found = process::ask(python, PICKLE, &json!({"path": path}));
                let found: Map<String, Value> =
                    found.map_err(|error| refused(&format!("its pickle is not read ({error})")))?;
                if !whole.iter().any(|name| found.contains_key(*name)) {
                    return Err(refused("its pickle holds no GRPOConfig"));
                }
                is_pickled = true;
                found
            }
            _ => return Err(refused("it is no GRPOConfig")),
        };
        let mut config = Self { values, left_out, ..Self::default() };
        config.count_steps(processes);
        let asked = json!({"values": config.values, "processes": processes});
        match process::ask(python, FILLED, &asked) {
            Ok(Self { values, unknown, changed, version, .. }) => {
                let is_filled = |name: &&String| !config.values.contains_key(*name);
                config.filled = values.keys().filter(is_filled).cloned().collect();
                // What TRL has not keeps the file's value.
                config.values.extend(values);
                (config.unknown, config.changed, config.version) = (unknown, changed, version);
            }
            Err(error) => {
                config.unasked = Some(error.to_string());
                let stated = config.values.iter().filter(|(_, value)| !value.is_null());
                config.changed = stated.map(|(name, _)| name.clone()).collect();
            }
        }
        if is_pickled {
            // TRL accepted these names, and its object has more than its settings.
            config.unknown.clear();
        }
        // Earlier names, and meanings of null.
        for (said, kind) in [(true, "group"), (false, "none")] {
            if config.values.get("scale_rewards") == Some(&json!(said)) {
                config.values.insert("scale_rewards".to_string(), kind.into());
            }
        }
        let is_vllms = config.values.get("use_vllm") == Some(&json!(true));
        let top_k = config.values.get("top_k");
        if top_k == Some(&Value::Null) || (is_vllms && top_k == Some(&json!(-1))) {
            config.values.insert("top_k".to_string(), 0.into());
        }
        let is_counted = config.contradiction.is_none();
        if is_counted && config.values.get("steps_per_generation") == Some(&Value::Null) {
            let same = config.values.get("gradient_accumulation_steps").cloned();
            config.values.extend(same.map(|it| ("steps_per_generation".to_string(), it)));
        }
        Ok(config)
    }

    /// `generation_batch_size` counts the rows of all processes.
    fn count_steps(&mut self, processes: u64) {
        let [rows, size] = [GENERATED, PASS].map(|name| self.number(name));
        let (Some(rows), Some(size)) = (rows, size) else { return };
        let size = size * processes as f64;
        let passes = format!("passes of {size} rows ({PASS} times --processes)");
        match self.number(STEPS) {
            Some(steps) if steps * size != rows => {
                self.contradiction = Some(format!("{STEPS} is {steps}, of {passes}"));
            }
            Some(_) => {}
            None if size > 0.0 && rows % size == 0.0 => {
                self.values.insert(STEPS.to_string(), ((rows / size) as u64).into());
                self.values.remove(GENERATED);
            }
            None => self.contradiction = Some(format!("it is no whole number of {passes}")),
        }
    }

    /// Keys of the file that may change a number, and that nothing here looks at.
    pub fn unread(&self, asked: &Experiment) -> Vec<Unread> {
        let settings = settings::demand(asked, 1).into_parts().0;
        let is_read = |key: &str| {
            SCHEDULE.contains(&key)
                || key == DELTA
                || KEYS.whole.iter().any(|name| name == key)
                || settings.iter().any(|setting| setting.name == key)
                || !KEYS.is_held(key)
        };
        let unread = |key: &String| Unread {
            key: key.clone(),
            value: self.values.get(key).cloned().unwrap_or_default(),
        };
        self.changed.iter().filter(|key| !is_read(key)).map(unread).collect()
    }

    fn other_schedule(&self, asked: &Experiment) -> Option<&str> {
        let kind = self.values.get(SCHEDULE[0])?.as_str()?;
        let length = warm_up(asked);
        let warms_up = length > 0.0;
        let from_zero = asked.optimizer.warm_up.start == WarmUpStart::Zero;
        let is_same = match kind {
            "constant" => !warms_up,
            "constant_with_warmup" if warms_up && !from_zero => false,
            "constant_with_warmup" if !warms_up => self.warm_up()? == 0.0,
            "constant_with_warmup" => self.warm_up_updates()? == length,
            _ => false,
        };
        (!is_same && !self.values.contains_key(RATES)).then_some(kind)
    }

    /// Kind and warm-up; TRL's own are transformers', which falls to 0 (training_args.py, `lr_scheduler_type`).
    fn schedule(&self, asked: &Experiment) -> [Effective; 2] {
        let length = warm_up(asked);
        let stated = self.values.get(SCHEDULE[0]).cloned();
        let is = |kind: &str| stated.as_ref().is_some_and(|stated| *stated == kind);
        let kind = if length > 0.0 { "constant_with_warmup" } else { "constant" };
        let updates = if is("constant") { Some(0.0) } else { self.warm_up_updates() };
        let same = length == 0.0 && is("constant_with_warmup");
        let value = if same { Some(kind.into()) } else { stated };
        let row = |name: &str, key: &str, asked: Value, value: Option<Value>| {
            let is_default = self.filled.iter().any(|filled| filled == name);
            let setting = Setting::new(name, asked, key, "in updates");
            Effective { setting, value, is_default }
        };
        [
            row(SCHEDULE[0], "optimizer.learning_rate", kind.into(), value),
            row(SCHEDULE[1], "optimizer.warm_up", length.into(), updates.map(Value::from)),
        ]
    }

    /// A number of updates, or a share of all; without steps transformers takes the ratio.
    fn warm_up(&self) -> Option<f64> {
        let [_, steps, ratio] = SCHEDULE.map(|name| self.number(name));
        ratio.filter(|_| steps.is_none_or(|steps| steps == 0.0)).or(steps)
    }

    /// transformers takes less than 1 for a share of all updates.
    fn warm_up_updates(&self) -> Option<f64> {
        let steps = self.warm_up()?;
        if steps == 0.0 || steps >= 1.0 {
            return Some(steps.floor());
        }
        Some((steps * self.number(MAX_STEPS).filter(|all| *all > 0.0)?).ceil())
    }

    pub fn named(&self) -> String {
        self.version.as_ref().map_or("TRL".to_string(), |version| format!("TRL {version}"))
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.values.get(name).and_then(Value::as_f64)
    }

    /// Differing demands, and what TRL cannot do. `processes` share each pass.
    pub fn compared(
        &self,
        asked: &Experiment,
        processes: u64,
    ) -> (Vec<Effective>, Vec<DemandRefusal>) {
        let mut asked = asked.clone();
        let size = self.number(PASS);
        if let Some(rows) = size {
            asked.execution.micro_batch_rollouts = (rows as u64).saturating_mul(processes);
        }
        let (mut settings, mut refusals) = settings::demand(&asked, processes).into_parts();
        // Of the file's own size, rows differ.
        refusals.retain(|it| size.is_none() || it.key != "execution.micro_batch_rollouts");
        // No name: TRL cannot do it, and a trap has what the file states.
        let kind = self.values.get("loss_type").and_then(Value::as_str);
        let of_asked = kind.map(|kind| self.is_loss_of(kind, &asked.dapo));
        settings.retain(|it| it.value != "" || of_asked != Some(Some(false)));
        let is_unknown = of_asked == Some(None) && settings.iter().any(|it| it.value == "");
        for it in settings.iter_mut().filter(|it| it.value == "") {
            let same = kind.filter(|_| of_asked == Some(Some(true)));
            let same = same.map(|kind| json!(if kind == "cispo" { "dapo" } else { kind }));
            it.value = same.unwrap_or_else(|| json!(asked.dapo.token_mean_unit));
        }
        if self.values.contains_key(DELTA) && settings.iter().all(|it| it.name != DELTA) {
            settings.push(Setting::new(DELTA, Value::Null, "dapo.dual_clip", ""));
        }
        let sets_rates = self.values.contains_key(RATES);
        settings.retain(|it| KEYS.is_held(&it.name) || (sets_rates && it.name == RATES));
        let of = |setting: Setting| {
            let is_default = self.filled.contains(&setting.name);
            let mut value = self.values.get(&setting.name).cloned();
            if setting.name == "epsilon_high" && value == Some(Value::Null) {
                value = self.values.get("epsilon").cloned();
            }
            if setting.name == "loss_type" && is_unknown {
                value = None;
            }
            // Else num_train_epochs counts.
            if setting.name == MAX_STEPS {
                value = value.filter(|value| value.as_f64().is_some_and(|steps| steps > 0.0));
            }
            // Of as many functions; of others it is not known which one punishes.
            let count = |value: &Value| value.as_array().map(Vec::len);
            if setting.name == "reward_weights" {
                value = value.filter(|value| count(value) == count(&setting.value));
            }
            Effective { value, setting, is_default }
        };
        let schedule = (!sets_rates).then(|| self.schedule(&asked)).into_iter().flatten();
        (settings.into_iter().map(of).chain(schedule).collect(), refusals)
    }

    /// Seen from an arm's demands. A missing value is no trap, but for a correction that is on by default.
    pub fn traps(&self, asked: &Experiment) -> Vec<Trap> {
        let mut traps = Vec::new();
        let mut found = |name: &'static str, key: &str, mut what: String| {
            let value = self.values.get(key).cloned().unwrap_or_else(|| json!("not stated"));
            if self.filled.iter().any(|name| name == key) {
                what = format!("{what} ({}'s default)", self.named());
            }
            traps.push(Trap { name, key: key.to_string(), value, what });
        };
        let settings = settings::demand(asked, 1).into_parts().0;
        let names: Vec<String> = settings.into_iter().map(|setting| setting.name).collect();
        for key in &self.unknown {
            let near = names.iter().find(|name| diagnose::is_misspelt(key, name));
            let near = near.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
            found("unknown-key", key, format!("the installed TRL has no such key{near}"));
        }
        let others = self.values.keys().filter(|key| !names.contains(key));
        for key in others.filter(|_| self.unknown.is_empty()) {
            let is_absent = |name: &&String| !self.values.contains_key(*name);
            let mut absent = names.iter().filter(is_absent);
            if let Some(name) = absent.find(|name| diagnose::is_misspelt(key, name)) {
                let what = format!("did you mean `{name}`? The file does not state it");
                found("unknown-key", key, what);
            }
        }
        if let Some(what) = &self.contradiction {
            found("batch-sizes", GENERATED, KEYS.trap("batch-sizes", "") + what);
        }
        for name in [PASS, PASSES, STEPS, ITERATIONS, "num_generations"] {
            if let Some(count) = self.number(name).filter(|count| *count < 1.0) {
                found("batch-sizes", name, format!("TRL cannot run with {count}; set at least 1"));
            }
        }
        let dapo = &asked.dapo;
        let text = |name: &str| self.values.get(name).and_then(Value::as_str);
        let dr_grpo = matches!(dapo.method, Some(Method::DrGrpo(_)));
        let kind = text("loss_type");
        if let Some(kind) = kind.filter(|kind| self.is_loss_of(kind, dapo) == Some(false)) {
            found("loss-normaliser", "loss_type", KEYS.trap("loss-normaliser", kind));
        }
        let wanted = rendered::updates_of_step(asked) as f64;
        if let Some(updates) = self.updates().filter(|updates| *updates != wanted) {
            let nothing = ": the ratio is 1 there, and epsilon clips nothing";
            let clip = if updates <= 1.0 { nothing } else { "" };
            let what = format!(
                "{updates} updates a generation (steps_per_generation / gradient_accumulation_steps · \
                 num_iterations){clip}; {wanted} are asked for"
            );
            found("steps-per-generation", "steps_per_generation", what);
        }
        if let Some(kind) = self.other_schedule(asked) {
            let name = "learning-rate-schedule";
            found(name, SCHEDULE[0], KEYS.trap(name, kind));
        }
        let scale = if dr_grpo || dapo.advantage.std == Std::None { "none" } else { "group" };
        if let Some(other) = text("scale_rewards").filter(|kind| *kind != scale) {
            found("scale-rewards", "scale_rewards", KEYS.trap("scale-rewards", other));
        }
        let absent = self.values.get("epsilon_high") == Some(&Value::Null);
        if absent && self.number("epsilon").is_some_and(|low| low != dapo.clip.high) {
            let what =
                format!("it is epsilon on both sides; {} is asked for above", dapo.clip.high);
            found("no-clip-higher", "epsilon_high", what);
        }
        let filter = dapo.overlong.filter;
        let masked = self.values.get("mask_truncated_completions").and_then(Value::as_bool);
        let counts = matches!(text("loss_type"), Some("grpo" | "dr_grpo" | "luspo"));
        let variant = match masked {
            Some(masked) if masked != filter => Some(if masked { "masked" } else { "trained" }),
            Some(true) if counts => Some("counted"),
            _ => None,
        };
        if let Some(variant) = variant {
            let name = "truncated-completions";
            found(name, "mask_truncated_completions", KEYS.trap(name, variant));
        }
        if dapo.kl == (Kl::None {}) && self.number("beta").is_some_and(|beta| beta != 0.0) {
            found("kl", "beta", KEYS.trap("kl", ""));
        }
        let is_on = |name: &str| self.values.get(name).and_then(Value::as_bool);
        // A TRL without the key does not correct.
        let is_part = KEYS.dumped.iter().any(|name| !self.values.contains_key(name));
        let corrects = is_on(CORRECTION).unwrap_or(self.version.is_none() && is_part);
        let is_asked = matches!(dapo.method, Some(Method::Tis(_) | Method::Mis(_)));
        if is_on("use_vllm") == Some(true) && corrects && !is_asked {
            found("importance-correction", CORRECTION, KEYS.trap("importance-correction", ""));
        }
        if dapo.dynamic_sampling != (DynamicSampling::None {}) {
            found("no-refill", "num_generations", KEYS.trap("no-refill", ""));
        }
        traps
    }

    /// Whether the loss is divided as is asked; `None` where it rests on keys that are not stated.
    fn is_loss_of(&self, kind: &str, dapo: &Dapo) -> Option<bool> {
        let dr_grpo = matches!(dapo.method, Some(Method::DrGrpo(_)));
        let is_token_mean = dapo.aggregation == Aggregation::TokenMean;
        match kind {
            "dapo" | "cispo"
                if is_token_mean && dapo.token_mean_unit != TokenMeanUnit::RolloutStep =>
            {
                self.updates().map(|updates| updates <= 1.0)
            }
            "dapo" | "cispo" => Some(is_token_mean),
            "grpo" | "sapo" => Some(dapo.aggregation == Aggregation::ResponseMean && !dr_grpo),
            "bnpo" => Some(is_token_mean && dapo.token_mean_unit == TokenMeanUnit::MicroBatch),
            "dr_grpo" => Some(dr_grpo),
            "luspo" => Some(dapo.aggregation == Aggregation::ResponseSum),
            _ => Some(false),
        }
    }

    /// Of a generation; every TRL has one iteration where none is stated. `None` also where TRL cannot run.
    fn updates(&self) -> Option<f64> {
        let (steps, passes) = self.number(STEPS).zip(self.number(PASSES))?;
        let iterations = self.number(ITERATIONS).unwrap_or(1.0);
        let can_run = [steps, passes, iterations].iter().all(|count| *count >= 1.0);
        can_run.then(|| steps / passes * iterations)
    }
}

fn warm_up(asked: &Experiment) -> f64 {
    let own = &asked.optimizer;
    let warms_up = optimizer::learning_rate(own, 0) < own.learning_rate;
    let updates = rendered::updates_of_step(asked) as f64;
    if warms_up { own.warm_up.rollout_steps as f64 * updates } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::starter;

    fn stated(values: Value) -> TrlConfig {
        TrlConfig { values: values.as_object().unwrap().clone(), ..TrlConfig::default() }
    }

    #[test]
    fn a_schedule_and_a_length_penalty_that_are_not_stated_are_no_agreement() {
        let mut paper = starter::paper().unwrap();
        paper.optimizer.warm_up.start = WarmUpStart::Zero;
        let passes = "gradient_accumulation_steps";
        let ([kind, steps, _], cache) = (SCHEDULE, "harness.overlong_cache_tokens");
        for (values, name, agrees) in [
            (json!({}), kind, None),
            (json!({}), steps, None),
            (json!({}), cache, None),
            (json!({}), "reward_weights", None),
            (json!({kind: "linear", steps: 320}), kind, Some(false)),
            (json!({kind: "linear", steps: 320}), steps, Some(true)),
            (json!({kind: "constant_with_warmup"}), kind, Some(true)),
            (json!({kind: "constant_with_warmup"}), steps, None),
            (json!({kind: "constant_with_warmup", steps: 20}), steps, Some(false)),
            (json!({kind: "constant", steps: 320}), steps, Some(false)),
            (json!({RATES: [1e-6]}), RATES, Some(false)),
            (json!({cache: 1}), cache, Some(false)),
            (json!({"reward_weights": [1.0, 0.0]}), "reward_weights", Some(false)),
            (json!({"reward_weights": [1.0, 1.0]}), "reward_weights", Some(true)),
            (json!({"reward_weights": [1.0, 0.0, 0.5]}), "reward_weights", None),
            (json!({MAX_STEPS: 10}), MAX_STEPS, Some(false)),
            (json!({MAX_STEPS: -1}), MAX_STEPS, None),
            (json!({DELTA: 4.0}), DELTA, Some(false)),
            (json!({DELTA: null}), DELTA, Some(true)),
            (json!({PASS: 56, STEPS: 4}), STEPS, Some(false)),
            (json!({PASS: 256, STEPS: 32}), STEPS, Some(true)),
            (json!({}), "loss_type", None),
            (json!({"loss_type": "dapo", PASS: 4}), "loss_type", None),
            (json!({"loss_type": "dapo", STEPS: 4, PASS: 4, passes: 4}), "loss_type", Some(true)),
            (json!({"loss_type": "cispo", STEPS: 4, PASS: 4, passes: 4}), "loss_type", Some(false)),
            (json!({"bf16": true}), "bf16", Some(false)),
        ] {
            let (rows, _) = stated(values.clone()).compared(&paper, 1);
            let row = rows.into_iter().find(|it| it.setting.name == name).unwrap();
            assert_eq!(row.value.as_ref().map(|_| row.agrees()), agrees, "{values}: {name}");
        }
    }

    #[test]
    fn one_iteration_counts_where_none_is_stated() {
        let paper = starter::paper().unwrap();
        for steps in [4, 64] {
            let stated = stated(
                json!({"loss_type": "dapo", STEPS: steps, "gradient_accumulation_steps": 4}),
            );
            let names: Vec<&str> = stated.traps(&paper).iter().map(|it| it.name).collect();
            assert_eq!(names.contains(&"steps-per-generation"), steps == 4, "{names:?}");
            assert_eq!(names.contains(&"loss-normaliser"), steps == 64, "{names:?}");
        }
    }

    #[test]
    fn a_count_of_zero_is_named_and_divides_nothing() {
        let paper = starter::paper().unwrap();
        for zero in [PASS, PASSES, STEPS, ITERATIONS, "num_generations"] {
            let mut config = stated(json!({PASSES: 4, STEPS: 64, "loss_type": "dapo"}));
            config.values.insert(zero.to_string(), 0.into());
            let traps = config.traps(&paper);
            let named = traps.iter().find(|it| it.name == "batch-sizes").unwrap();
            assert!(named.key == zero && named.what.contains("cannot run with 0"), "{named:?}");
            let words = ["NaN", "inf ", "0 updates"];
            assert!(!traps.iter().any(|it| words.iter().any(|word| it.what.starts_with(word))));
            assert!(traps.len() >= 2 && config.compared(&paper, 1).0.len() > 20);
        }
    }

    #[test]
    fn only_what_a_program_wrote_is_whole() {
        let paper = starter::paper().unwrap();
        let is_found = |names: &[&Vec<String>]| {
            let names = names.iter().copied().flatten();
            let values: Map<String, Value> = names.map(|it| (it.clone(), Value::Null)).collect();
            let mut config = stated(Value::Object(values));
            config.values.insert("use_vllm".to_string(), true.into());
            config.traps(&paper).iter().any(|it| it.name == "importance-correction")
        };
        assert!(is_found(&[&KEYS.whole]));
        assert!(!is_found(&[&KEYS.whole, &KEYS.dumped]));
    }
}
