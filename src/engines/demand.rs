//! An arm's demands on another trainer: its settings with our keys, and what it cannot do.

use serde::Serialize;
use serde_json::Value;
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

#[derive(Debug, Default)]
pub struct Demand {
    settings: Vec<Setting>,
    refusals: Vec<DemandRefusal>,
}

impl Demand {
    /// The trainer does what `key` asks.
    pub fn set(&mut self, name: &str, value: impl Into<Value>, key: &str) {
        self.set_with(name, value, key, "");
    }

    /// The remark is for readers of the trainer's settings.
    pub fn set_with(&mut self, name: &str, value: impl Into<Value>, key: &str, remark: &str) {
        let (name, key) = (name.to_string(), key.to_string());
        self.settings.push(Setting { name, value: value.into(), key, remark: remark.to_string() });
    }

    /// Unless `holds`, the trainer cannot do what `key` asks.
    pub fn need(&mut self, holds: bool, key: &str, asked: &impl Serialize, reason: &str) {
        if holds {
            return;
        }
        let asked = serde_json::to_string(asked).unwrap_or_default();
        self.refusals.push(DemandRefusal {
            key: key.to_string(),
            asked,
            reason: reason.to_string(),
        });
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
        let Setting { name, value, key, remark } = setting;
        let about = [key.as_str(), remark].into_iter().filter(|text| !text.is_empty());
        let about = about.collect::<Vec<_>>().join("; ");
        let comment = if about.is_empty() { String::new() } else { format!("  # {about}") };
        format!("{name}: {}{comment}\n", yaml_value(value))
    };
    settings.iter().map(line).collect()
}

/// JSON is YAML except numbers such as 1e-8, which YAML 1.1 reads as text.
fn yaml_value(value: &Value) -> String {
    let text = value.to_string();
    match value {
        Value::Number(_) if !text.contains('.') => text.replace('e', ".0e"),
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(yaml_value).collect();
            format!("[{}]", values.join(", "))
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_has_numbers_that_python_reads_as_numbers() {
        let mut demand = Demand::default();
        demand.set("adam_epsilon", 1e-8, "optimizer.epsilon");
        demand.set_with("rates", vec![1e-7, 0.5], "", "in order");
        demand.set("loss_type", "grpo", "dapo.aggregation");
        let expected = "adam_epsilon: 1.0e-8  # optimizer.epsilon\nrates: [1.0e-7, 0.5]  # in order\n\
                        loss_type: \"grpo\"  # dapo.aggregation\n";
        assert_eq!(yaml(&demand.finish().unwrap()), expected);
    }
}
