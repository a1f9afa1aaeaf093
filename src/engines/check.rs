//! What another trainer does, beside what an arm asks: an installed one, or as a configuration from outside says.

use crate::engines::run::{self, EngineOptions};
use crate::engines::{DemandRefusal, Effective, EngineError, Trap, Unread, process, trl, verl};
use crate::experiment::{Engine, Experiment};
use crate::training::run::inputs::Inputs;
use std::collections::BTreeMap;
use std::path::Path;

/// The installed trainer with an arm's settings.
#[derive(Debug)]
pub struct ArmCheck {
    pub versions: BTreeMap<String, String>,
    pub effective: Vec<Effective>,
    /// What the trainer's own validation says against them, or why it was not asked.
    pub problem: Option<String>,
    pub traps: Vec<Trap>,
}

impl ArmCheck {
    pub fn agrees(&self) -> bool {
        let settings = self.effective.iter().all(Effective::agrees);
        settings && self.problem.is_none() && self.traps.is_empty()
    }
}

/// Errors: an arm that the trainer cannot run, or a trainer that is not installed.
pub fn arm(inputs: &Inputs, options: &EngineOptions) -> Result<ArmCheck, EngineError> {
    let engine = inputs.experiment.engine;
    let versions = process::versions(&options.python(engine), run::packages(engine))?;
    let settings = run::all_settings(inputs, options)?;
    if engine != Engine::Verl {
        let effective = trl::check::effective(&options.python(engine), settings)?;
        return Ok(ArmCheck { versions, effective, problem: None, traps: Vec::new() });
    }
    let composed = verl::compose::of_settings(&options.python(engine), &settings)?;
    let unchecked = composed.unchecked.as_ref().map(|why| format!("it is not asked: {why}"));
    let effective = composed.beside(settings);
    let problem = composed.validation.or(unchecked);
    let traps = verl::tokenizer::traps(inputs, &options.python(engine))?;
    Ok(ArmCheck { versions, effective, problem, traps })
}

/// A configuration from outside, with what an arm asks.
#[derive(Debug)]
pub struct ConfigurationCheck {
    /// The trainer, with its version where that is stated.
    pub of: String,
    pub effective: Vec<Effective>,
    /// What no configuration of the trainer can do.
    pub refusals: Vec<DemandRefusal>,
    pub traps: Vec<Trap>,
    /// Set at other values than the trainer's own; `None` where those are not known.
    pub unread: Option<Vec<Unread>>,
    pub is_cut: bool,
    pub note: Option<String>,
}

impl ConfigurationCheck {
    pub fn agrees(&self) -> bool {
        self.traps.is_empty() && self.effective.iter().all(Effective::agrees)
    }

    pub fn is_whole(&self) -> bool {
        let are_read = self.unread.as_ref().is_some_and(Vec::is_empty);
        are_read && !self.is_cut && self.not_stated().is_empty() && self.refusals.is_empty()
    }

    pub fn not_stated(&self) -> Vec<&str> {
        let absent = self.effective.iter().filter(|setting| setting.value.is_none());
        absent.map(|setting| setting.setting.name.as_str()).collect()
    }
}

/// `engine` is not the native one. Errors: a configuration that cannot be read.
pub fn configuration(
    engine: Engine,
    path: &Path,
    asked: &Experiment,
    options: &EngineOptions,
) -> Result<ConfigurationCheck, EngineError> {
    if engine != Engine::Verl {
        let python = options.python(engine);
        let config = trl::written::TrlConfig::of_file(&python, path, options.processes())?;
        let (effective, refusals) = config.compared(asked, options.processes());
        let (traps, unread) = (config.traps(asked), config.unread(asked));
        let is_whole = unread.is_empty() && effective.iter().all(|it| it.value.is_some());
        let of = config.named();
        let traps = traps.into_iter().chain(texts(&effective)).collect();
        let note = config.unasked.filter(|_| !is_whole).map(|reason| {
            format!("TRL's own values of keys that are not stated, or not looked at, are not known: {reason}")
        });
        let (unread, is_cut) = (Some(unread), !config.left_out.is_empty());
        let note = joined([left_out(&config.left_out), note]);
        return Ok(ConfigurationCheck { of, effective, refusals, traps, unread, is_cut, note });
    }
    let composed = verl::compose::of_file(&options.python(engine), path)?;
    let (effective, refusals) = verl::traps::compared(&composed, asked, options.cards);
    let (mut traps, unread) = verl::traps::found(&composed, asked);
    traps.extend(texts(&effective));
    let note = if composed.version.is_empty() {
        let known = verl::defaults::version(&composed);
        let keys = match &unread {
            Some(_) => format!("; what is set was told by the own values of verl {known}"),
            None if composed.partial => String::new(),
            None => format!(
                ", nor keys that nothing here looks at: the file lacks keys of verl {known}, so that its version's own \
                 values are not known"
            ),
        };
        Some(format!(
            "not checked: verl's own validation{keys}; .hydra/overrides.yaml and a Python with that verl decide"
        ))
    } else {
        composed.unchecked.as_ref().map(|why| format!("not checked: verl's own validation: {why}"))
    };
    let engine = composed.engine();
    let other = (!engine.starts_with("fsdp"))
        .then(|| format!("what is known of FSDP alone is not compared for {engine}: not stated"));
    let (of, is_cut) = (composed.named(), !composed.left_out.is_empty());
    let note = joined([left_out(&composed.left_out), other, note]);
    Ok(ConfigurationCheck { of, effective, refusals, traps, unread, is_cut, note })
}

fn joined<const COUNT: usize>(notes: [Option<String>; COUNT]) -> Option<String> {
    notes.into_iter().flatten().reduce(|one, other| format!("{one}; {other}"))
}

fn left_out(lines: &[usize]) -> Option<String> {
    let first = lines.iter().min()?;
    let count = match lines.len() {
        1 => String::new(),
        count => format!(" and {} more beside the configuration", count - 1),
    };
    Some(format!(
        "left out as of a log: line {first}{count}; if the configuration has keys there, give it in a file of its own"
    ))
}

fn texts(effective: &[Effective]) -> Vec<Trap> {
    let trap = |row: &Effective| {
        let text = row.value.as_ref()?.as_str()?;
        let asked = &row.setting.value;
        let is_number = asked.is_number() && text.trim().parse::<f64>().is_ok_and(f64::is_finite);
        let is_switch = asked.is_boolean() && text.trim().to_lowercase().parse::<bool>().is_ok();
        let kind = if is_number { "number" } else { "truth value" };
        (is_number || is_switch).then(|| Trap {
            name: "text",
            key: row.setting.name.clone(),
            value: row.value.clone().unwrap_or_default(),
            what: format!("a text, and no {kind}: write it without quotes"),
        })
    };
    effective.iter().filter_map(trap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::files;
    use crate::engines::demand;
    use crate::experiment::extends;
    use serde_json::{Map, Value, json};

    fn loaded(name: &str) -> Experiment {
        extends::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
    }

    fn changed(plain: &Value, base: &Value, arm: &Value) -> Value {
        match (plain, base, arm) {
            _ if base == arm => plain.clone(),
            (Value::Object(plain), Value::Object(base), Value::Object(arm))
                if base.get("kind") == arm.get("kind") =>
            {
                let of = |all: &Map<String, Value>, key: &String| {
                    all.get(key).cloned().unwrap_or_default()
                };
                let members = arm.iter().map(|(key, value)| {
                    (key.clone(), changed(&of(plain, key), &of(base, key), value))
                });
                members.collect()
            }
            _ => arm.clone(),
        }
    }

    fn nested(settings: &[demand::Setting]) -> Value {
        let mut all = json!({});
        for setting in settings {
            let path = setting.name.split('.');
            *path.fold(&mut all, |all, part| &mut all[part]) = setting.value.clone();
        }
        all
    }

    #[test]
    fn no_arm_agrees_with_the_configuration_of_plain_grpo() {
        let base = demand::name(&loaded("experiments/base.toml"));
        let mut arms = Vec::new();
        for folder in ["experiments/arms", "experiments/methods"] {
            let names = files::list(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap();
            arms.extend(
                names.iter().map(|name| demand::name(&loaded(&format!("{folder}/{name}")))),
            );
        }
        for (key, value) in [
            ("kl", json!({"kind": "penalty", "estimator": "k3", "coefficient": 0.001})),
            ("dual_clip", json!({"kind": "constant", "c": 3.0})),
        ] {
            let mut arm = base.clone();
            arm["dapo"][key] = value;
            arms.push(arm);
        }
        let folder = tempfile::tempdir().unwrap();
        let python = Some("no-python".to_string());
        let options = EngineOptions { python, ..EngineOptions::default() };
        let agree = |engine: Engine, written: &Value, asked: &Experiment| {
            let path = folder.path().join("config.json");
            files::write_json(&path, written).unwrap();
            let check = configuration(engine, &path, asked, &options).unwrap();
            (check.agrees() && check.is_whole(), check)
        };
        let mut of_trl = loaded("experiments/engines/grpo.toml");
        of_trl.optimizer.warm_up.rollout_steps = 0;
        let of_verl = loaded("golden/engines/verl/grpo.toml");
        let settings = trl::settings::demand(&of_trl, 1).finish().unwrap();
        let flat = |is_own: &dyn Fn(&str) -> bool| -> Value {
            let own = settings.iter().filter(|it| is_own(&it.name));
            own.map(|it| (it.name.clone(), it.value.clone())).collect()
        };
        let mut of_user = flat(&|name| !name.starts_with("harness."));
        of_user["lr_scheduler_type"] = json!("constant");
        let verl = verl::settings::demand(&of_verl, options.cards).finish().unwrap();
        let verl = verl::defaults::with("0.9.1", &nested(&verl));
        for (engine, configuration, plain) in [
            (Engine::Trl, flat(&|_| true), &of_trl),
            (Engine::Trl, of_user, &of_trl),
            (Engine::Verl, verl.clone(), &of_verl),
        ] {
            let (is_same, check) = agree(engine, &configuration, plain);
            assert!(is_same, "{engine:?}: {check:#?}");
            for arm in &arms {
                let asked = changed(&demand::name(plain), &base, arm);
                let asked: Experiment = serde_json::from_value(asked).unwrap();
                assert!(!agree(engine, &configuration, &asked).0, "{engine:?}: {:?}", asked.dapo);
            }
        }
        let mut own = verl.clone();
        own["reward"]["custom_reward_function"]["reward_kwargs"]["verifier"] = json!("mine");
        own["trainer"]["critic_warmup"] = json!(5);
        own["actor_rollout_ref"]["model"]["override_config"] = json!({"attention_dropout": 0.1});
        let (is_same, check) = agree(Engine::Verl, &own, &of_verl);
        let keys = check.unread.as_ref().unwrap().iter().map(|it| it.key.as_str());
        let expected = [
            "actor_rollout_ref.model.override_config.attention_dropout",
            "reward.custom_reward_function.path",
            "trainer.critic_warmup",
        ];
        assert_eq!(keys.collect::<Vec<_>>(), expected);
        assert!(check.agrees() && !is_same);
        let mut other = verl;
        other["trainer"].as_object_mut().unwrap().remove("critic_warmup");
        let (is_same, check) = agree(Engine::Verl, &other, &of_verl);
        assert!(check.unread.is_none() && check.agrees() && !is_same);
        assert!(check.note.unwrap().contains("lacks keys of verl 0.9.1"));
        let quoted = json!({"learning_rate": "1e-6", "mask_truncated_completions": "true", "beta": 0.0,
            "use_vllm": true, "top_k": -1});
        let (_, check) = agree(Engine::Trl, &quoted, &of_trl);
        let texts = check.traps.iter().filter(|it| it.name == "text").map(|it| it.key.as_str());
        let texts: Vec<&str> = texts.collect();
        assert_eq!(texts, ["mask_truncated_completions", "learning_rate"]);
        let top_k = check.effective.iter().find(|it| it.setting.name == "top_k").unwrap();
        assert!(top_k.agrees() && top_k.value.is_some());
    }
}
