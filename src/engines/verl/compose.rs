//! What the installed verl makes of a configuration, ours or a user's.

use crate::base::files;
use crate::engines::verl::overrides;
use crate::engines::{Effective, EngineError, Setting, process};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::Path;

const SCRIPT: &str = include_str!("compose.py");

/// A composed configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Composed {
    /// Of verl.
    pub version: String,
    /// Every key, as the trainer begins with it.
    pub effective: Value,
    /// Keys that were added to verl's own.
    pub added: Vec<String>,
    /// Why verl's own validation refuses it.
    pub validation: Option<String>,
}

impl Composed {
    /// The value of a dotted name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        name.split('.').try_fold(&self.effective, |value, part| value.get(part))
    }

    /// Whether it is of this version or a later one.
    pub fn since(&self, major: u64, minor: u64) -> bool {
        let mut parts = self.version.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (major, minor)
    }

    /// Settings beside what they became.
    pub fn beside(&self, settings: Vec<Setting>) -> Vec<Effective> {
        let of = |setting: Setting| {
            let found = self.get(&setting.name).cloned();
            let absent = || Value::String(format!("verl {} has no such key", self.version));
            Effective { value: Some(found.unwrap_or_else(absent)), setting }
        };
        settings.into_iter().map(of).collect()
    }
}

/// Of the settings of an arm.
pub fn of_settings(python: &str, settings: &[Setting]) -> Result<Composed, EngineError> {
    let overrides: Vec<String> = settings.iter().map(overrides::line).collect();
    process::ask(python, SCRIPT, &json!({"overrides": overrides}))
}

/// Of a file that a user wrote: YAML (`*.yaml`, `*.yml`), overrides one a line, or the shell script
/// that passes them; or, in JSON, what this function gave before.
///
/// # Errors
/// A file that cannot be read or composed.
pub fn of_file(python: &str, path: &Path) -> Result<Composed, EngineError> {
    let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
    if extension == "json" {
        return Ok(files::read_json(path)?);
    }
    let yaml = ["yaml", "yml"].contains(&extension);
    let text = files::read_text(path)?;
    process::ask(python, SCRIPT, &json!({"text": text, "yaml": yaml}))
}
