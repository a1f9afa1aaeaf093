//! Settings as Hydra's overrides, one a line, below a comment with the key.

use crate::engines::Setting;
use crate::engines::verl::settings::MIXED_PRECISION;
use serde_json::Value;

/// `ppo_trainer.yaml` lacks these tables; Hydra needs a plus to add names.
const ADDED: [&str; 2] = ["reward.reward_kwargs.", "reward.custom_reward_function.reward_kwargs."];

/// `name=value`.
pub fn line(setting: &Setting) -> String {
    let added = ADDED.iter().any(|table| setting.name.starts_with(table));
    let plus = if added || setting.name.ends_with(MIXED_PRECISION) { "+" } else { "" };
    format!("{plus}{}={}", setting.name, written(&setting.value))
}

/// Read by the folder's script.
pub fn file(settings: &[Setting]) -> String {
    let line = |setting: &Setting| {
        let about = setting.about();
        let comment = if about.is_empty() { String::new() } else { format!("# {about}\n") };
        format!("{comment}{}\n", line(setting))
    };
    settings.iter().map(line).collect()
}

/// Quoted, or Hydra would read `null`, `1e-6` or a brace in the text.
fn written(value: &Value) -> String {
    let all = |parts: Vec<String>| parts.join(",");
    match value {
        Value::String(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
        Value::Array(values) => format!("[{}]", all(values.iter().map(written).collect())),
        Value::Object(values) => {
            let pair = |(name, value): (&String, &Value)| format!("{name}:{}", written(value));
            format!("{{{}}}", all(values.iter().map(pair).collect()))
        }
        other => other.to_string(),
    }
}
