//! The installed TRL's values of an arm's settings.

use crate::engines::{Effective, EngineError, Setting, process};
use serde_json::{Map, Value};

const SCRIPT: &str = include_str!("check.py");

/// `GRPOConfig` refuses unknown names.
pub fn effective(python: &str, settings: Vec<Setting>) -> Result<Vec<Effective>, EngineError> {
    let own = |setting: &Setting| setting.name.starts_with("harness.");
    let asked = settings.iter().filter(|setting| !own(setting));
    let asked: Value = asked.map(|it| (it.name.clone(), it.value.clone())).collect();
    let mut found: Map<String, Value> = process::ask(python, SCRIPT, &asked)?;
    let of = |setting: Setting| {
        let mut value = if own(&setting) { None } else { found.remove(&setting.name) };
        // TRL makes "none" an empty list.
        if setting.value == "none" && value == Some(Value::Array(Vec::new())) {
            value = Some(setting.value.clone());
        }
        Effective { setting, value, is_default: false }
    };
    Ok(settings.into_iter().map(of).collect())
}
