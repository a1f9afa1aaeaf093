//! An arm's demands on another trainer: its settings with our keys, and what it cannot do.

use crate::experiment::Experiment;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// In the trainer, such as `actor_rollout_ref.actor.clip_ratio_high`.
    pub name: String,
    pub value: Value,
    /// Our key; empty where only the import needs the setting.
    pub key: String,
    /// May be empty.
    pub remark: String,
}

impl Setting {
    /// Key and remark, as a comment says them; may be empty.
    pub fn about(&self) -> String {
        let about = [self.key.as_str(), &self.remark].into_iter().filter(|text| !text.is_empty());
        about.collect::<Vec<_>>().join("; ")
    }
}

/// The trainer cannot do what the key asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DemandRefusal {
    pub key: String,
    /// As TOML.
    pub asked: String,
    /// What the trainer does instead, and possible values.
    pub reason: String,
}

impl fmt::Display for DemandRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}: {}", self.key, self.asked, self.reason)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trap {
    pub name: &'static str,
    pub key: String,
    pub value: Value,
    /// Behaviour of the run.
    pub what: String,
}

/// A key that a configuration sets, and that no comparison and no trap looks at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Unread {
    pub key: String,
    pub value: Value,
}

/// What is known of a trainer's keys: its `keys.toml`, which says what each part is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineKeys {
    settings: Vec<SettingRow>,
    refusals: BTreeMap<String, String>,
    pub not_held: BTreeMap<String, String>,
    pub metrics: Vec<(String, String)>,
    #[serde(default)]
    pub free: Vec<String>,
    machine: Vec<String>,
    pub whole: Vec<String>,
    #[serde(default)]
    pub dumped: Vec<String>,
    /// Values of versions that lack the key.
    #[serde(default)]
    pub earlier: BTreeMap<String, Value>,
    #[serde(default)]
    pub predecessors: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub megatron: BTreeMap<String, BTreeMap<String, Value>>,
    /// Beginnings of names whose absence means that nothing does it.
    #[serde(default)]
    pub lacking: Vec<String>,
    traps: BTreeMap<String, String>,
}

impl EngineKeys {
    /// `text` is that of a `keys.toml`, which tests read.
    pub fn parse(text: &str) -> Self {
        toml::from_str(text).expect("keys of a trainer")
    }

    /// What a trap does: the text of its variant, else its own.
    pub fn trap(&self, name: &str, variant: &str) -> String {
        let text = self.traps.get(&format!("{name}#{variant}"));
        text.unwrap_or_else(|| &self.traps[name]).clone()
    }

    /// Whether a rendered setting may be another one where the outputs are imported.
    pub fn is_of_machine(&self, name: &str) -> bool {
        self.machine.iter().chain(&self.free).any(|other| other == name)
    }

    /// Whether a configuration from outside is held to the setting.
    pub fn is_held(&self, name: &str) -> bool {
        !self.not_held.keys().any(|other| name.starts_with(other))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingRow {
    name: String,
    #[serde(default)]
    key: String,
    value: Option<Value>,
    #[serde(default)]
    computed: bool,
    when: Option<String>,
    unless: Option<String>,
    #[serde(default)]
    remark: String,
}

#[derive(Debug)]
pub struct Demand {
    keys: &'static EngineKeys,
    computed: BTreeMap<&'static str, Value>,
    settings: Vec<Setting>,
    refusals: Vec<DemandRefusal>,
}

impl Demand {
    pub fn of(keys: &'static EngineKeys) -> Self {
        let (computed, settings, refusals) = Default::default();
        Self { keys, computed, settings, refusals }
    }

    /// The value of a setting that `keys.toml` has as computed.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.computed.insert(name, value.into());
    }

    /// Unless `holds`, the trainer cannot do what a key asks; `reason` is the key in the refusals of `keys.toml`.
    pub fn need(&mut self, holds: bool, reason: &str, asked: &impl Serialize) {
        if holds {
            return;
        }
        self.refusals.push(DemandRefusal {
            key: reason.split('#').next().unwrap_or_default().to_string(),
            asked: serde_json::to_string(asked).unwrap_or_default(),
            reason: self.keys.refusals[reason].clone(),
        });
    }

    /// Every setting of `keys.toml` that the arm asks for, in its order.
    #[must_use]
    pub fn filled(mut self, experiment: &Experiment) -> Self {
        let arm = name(experiment);
        let stated = |key: &String| arm.pointer(&format!("/{}", key.replace('.', "/")));
        for SettingRow { name, key, value, computed, when, unless, remark } in &self.keys.settings {
            if when.as_ref().is_some_and(|key| stated(key).is_none())
                || unless.as_ref().is_some_and(|key| stated(key).is_some())
            {
                continue;
            }
            let given = if *computed { self.computed.get(name.as_str()) } else { value.as_ref() };
            let value = given.or_else(|| stated(key).filter(|_| !computed));
            let [name, key, remark] = [name, key, remark].map(String::clone);
            self.settings.extend(value.cloned().map(|value| Setting { name, value, key, remark }));
        }
        self
    }

    pub fn finish(self) -> Result<Vec<Setting>, Vec<DemandRefusal>> {
        if self.refusals.is_empty() { Ok(self.settings) } else { Err(self.refusals) }
    }

    /// Possible settings and refusals.
    pub fn into_parts(self) -> (Vec<Setting>, Vec<DemandRefusal>) {
        (self.settings, self.refusals)
    }
}

/// The installed version's value; `None` for settings of the script.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    pub setting: Setting,
    pub value: Option<Value>,
    /// Filled in by the installed trainer.
    pub is_default: bool,
}

impl Effective {
    pub fn agrees(&self) -> bool {
        let number = |value: &Value| value.as_f64();
        self.value.as_ref().is_none_or(|found| match (number(found), number(&self.setting.value)) {
            (Some(found), Some(asked)) => found == asked,
            _ => *found == self.setting.value,
        })
    }
}

/// As in an experiment file.
pub fn name(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Flat; each setting has its key as a comment.
pub fn yaml(settings: &[Setting]) -> String {
    let line = |setting: &Setting| {
        let about = setting.about();
        let comment = if about.is_empty() { String::new() } else { format!("  # {about}") };
        format!("{}: {}{comment}\n", setting.name, yaml_value(&setting.value))
    };
    settings.iter().map(line).collect()
}

/// JSON is YAML except numbers such as 1e-8, which YAML 1.1 reads as text, and characters that it takes for ends of lines
/// or refuses.
fn yaml_value(value: &Value) -> String {
    let text = value.to_string();
    match value {
        Value::Number(_) if !text.contains('.') => text.replace('e', ".0e"),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(yaml_value).collect();
            format!("[{}]", values.join(", "))
        }
        Value::String(_) => text.chars().map(yaml_character).collect(),
        _ => text,
    }
}

fn yaml_character(character: char) -> String {
    if character.is_control() || "\u{2028}\u{2029}".contains(character) {
        format!("\\u{:04x}", u32::from(character))
    } else {
        character.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_has_numbers_that_python_reads_as_numbers() {
        let setting = |name: &str, value: Value, key: &str, remark: &str| {
            let [name, key, remark] = [name, key, remark].map(str::to_string);
            Setting { name, value, key, remark }
        };
        let settings = [
            setting("adam_epsilon", 1e-8.into(), "optimizer.epsilon", ""),
            setting("rates", vec![1e-7, 0.5].into(), "", "in order"),
            setting("loss_type", "grpo".into(), "dapo.aggregation", ""),
            setting("prefix", "a\n\u{2028}\u{85}é".into(), "", ""),
        ];
        let expected = "adam_epsilon: 1.0e-8  # optimizer.epsilon\nrates: [1.0e-7, 0.5]  # in order\n\
                        loss_type: \"grpo\"  # dapo.aggregation\n\
                        prefix: \"a\\n\\u2028\\u0085é\"\n";
        assert_eq!(yaml(&settings), expected);
    }
}
