//! An arm's demands on another trainer: its settings with our keys, and what it cannot do.

use crate::experiment::{Experiment, compare};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
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
    pub fn new(name: &str, value: Value, key: &str, remark: &str) -> Self {
        let [name, key, remark] = [name, key, remark].map(str::to_string);
        Self { name, value, key, remark }
    }

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
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineKeys {
    settings: Vec<SettingRow>,
    refusals: Vec<RefusalRow>,
    pub not_held: BTreeMap<String, String>,
    pub metrics: Vec<(String, String)>,
    pub free: Vec<String>,
    machine: Vec<String>,
    pub whole: Vec<String>,
    pub dumped: Vec<String>,
    /// Values of versions that lack the key.
    pub earlier: BTreeMap<String, Value>,
    pub predecessors: BTreeMap<String, Vec<String>>,
    pub megatron: BTreeMap<String, BTreeMap<String, Value>>,
    /// Beginnings of names whose absence means that nothing does it.
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
        self.traps.get(&format!("{name}#{variant}")).unwrap_or_else(|| &self.traps[name]).clone()
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

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SettingRow {
    name: String,
    key: String,
    value: Option<Value>,
    computed: bool,
    when: Option<String>,
    unless: Option<String>,
    remark: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusalRow {
    key: String,
    only: Option<Vec<Value>>,
    reason: String,
}

#[derive(Debug)]
pub struct Demand {
    keys: &'static EngineKeys,
    arm: Value,
    computed: BTreeMap<&'static str, Value>,
    /// Rows of refusals.
    unmet: BTreeSet<usize>,
}

impl Demand {
    pub fn of(keys: &'static EngineKeys, experiment: &Experiment) -> Self {
        Self { keys, arm: name(experiment), computed: BTreeMap::new(), unmet: BTreeSet::new() }
    }

    fn stated(&self, key: &str) -> Option<&Value> {
        self.arm.pointer(&format!("/{}", key.replace('.', "/")))
    }

    /// The value of a setting that `keys.toml` has as computed.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.computed.insert(name, value.into());
    }

    /// Unless `holds`, the trainer cannot do what a key asks; `key` is that of a refusal of `keys.toml`.
    pub fn need(&mut self, holds: bool, key: &str) {
        let row = self.keys.refusals.iter().position(|row| row.key == key);
        self.unmet.extend((!holds).then(|| row.expect("a refusal of keys.toml")));
    }

    pub fn finish(self) -> Result<Vec<Setting>, Vec<DemandRefusal>> {
        let (settings, refusals) = self.into_parts();
        if refusals.is_empty() { Ok(settings) } else { Err(refusals) }
    }

    /// Every setting of `keys.toml` that the arm asks for, and the refusals, both in its order.
    pub fn into_parts(self) -> (Vec<Setting>, Vec<DemandRefusal>) {
        let is_stated = |key: &String| self.stated(key).is_some();
        let setting = |row: &SettingRow| {
            let SettingRow { name, key, value, computed, when, unless, remark } = row;
            if !when.as_ref().is_none_or(is_stated) || unless.as_ref().is_some_and(is_stated) {
                return None;
            }
            let given = if *computed { self.computed.get(name.as_str()) } else { value.as_ref() };
            let value = given.or_else(|| self.stated(key).filter(|_| !computed))?.clone();
            Some(Setting::new(name, value, key, remark))
        };
        let refusal = |(place, RefusalRow { key, only, reason }): (usize, &RefusalRow)| {
            let key = key.split('#').next()?;
            let asked = self.stated(key);
            let stated = asked.filter(|value| !value.is_null());
            let is_other = only.as_ref().zip(stated).is_some_and(|(only, it)| !only.contains(it));
            (is_other || self.unmet.contains(&place)).then(|| DemandRefusal {
                key: key.to_string(),
                asked: asked.unwrap_or(&Value::Null).to_string(),
                reason: reason.clone(),
            })
        };
        let refusals = self.keys.refusals.iter().enumerate().filter_map(refusal).collect();
        (self.keys.settings.iter().filter_map(setting).collect(), refusals)
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
        self.value.as_ref().is_none_or(|found| compare::same(found, &self.setting.value))
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
        let settings = [
            Setting::new("adam_epsilon", 1e-8.into(), "optimizer.epsilon", ""),
            Setting::new("rates", vec![1e-7, 0.5].into(), "", "in order"),
            Setting::new("loss_type", "grpo".into(), "dapo.aggregation", ""),
            Setting::new("prefix", "a\n\u{2028}\u{85}é".into(), "", ""),
        ];
        let expected = "adam_epsilon: 1.0e-8  # optimizer.epsilon\nrates: [1.0e-7, 0.5]  # in order\n\
                        loss_type: \"grpo\"  # dapo.aggregation\n\
                        prefix: \"a\\n\\u2028\\u0085é\"\n";
        assert_eq!(yaml(&settings), expected);
    }
}
