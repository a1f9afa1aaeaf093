//! What the installed TRL makes of the settings of an arm.

use crate::engines::{EngineError, Setting, process};
use serde_json::{Map, Value};
use std::io::Write as _;
use std::process::Stdio;

const SCRIPT: &str = include_str!("check.py");

/// A setting and what the installed version makes of it; `None` for those of the script.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    pub setting: Setting,
    pub value: Option<Value>,
}

impl Effective {
    pub fn agrees(&self) -> bool {
        let asked = &self.setting.value;
        self.value.as_ref().is_none_or(|found| match (found.as_f64(), asked.as_f64()) {
            (Some(found), Some(asked)) => found == asked,
            // `report_to = "none"` becomes an empty list.
            _ => found == asked || (asked == "none" && *found == Value::Array(Vec::new())),
        })
    }
}

/// Builds the installed `GRPOConfig`, which refuses names that it does not know.
pub fn effective(python: &str, settings: Vec<Setting>) -> Result<Vec<Effective>, EngineError> {
    let own = |setting: &Setting| setting.name.starts_with("harness.");
    let asked = settings.iter().filter(|setting| !own(setting));
    let asked: Map<String, Value> =
        asked.map(|setting| (setting.name.clone(), setting.value.clone())).collect();
    let start = |source| EngineError::Start { program: python.to_string(), source };
    let mut command = process::command(python);
    command.args(["-c", SCRIPT]).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(start)?;
    if let Some(mut input) = child.stdin.take() {
        // A process that ends early says why.
        let _gone = input.write_all(Value::Object(asked).to_string().as_bytes());
    }
    let output = child.wait_with_output().map_err(start)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().last().unwrap_or_default();
    let Ok(Value::Object(mut found)) = serde_json::from_str(line) else {
        let errors = String::from_utf8_lossy(&output.stderr);
        let reason = errors.lines().rev().find(|line| !line.trim().is_empty());
        let reason = reason.unwrap_or("it said nothing").to_string();
        return Err(EngineError::Program { program: python.to_string(), reason });
    };
    let of = |setting: Setting| {
        let value = if own(&setting) { None } else { found.remove(&setting.name) };
        Effective { setting, value }
    };
    Ok(settings.into_iter().map(of).collect())
}
