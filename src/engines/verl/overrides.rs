//! Settings as overrides of Hydra's: a file of one a line, each below a comment with its key.

use crate::engines::Setting;
use serde_json::Value;

/// Tables that `ppo_trainer.yaml` lacks; Hydra adds a name there where it has a plus.
const ADDED: [&str; 2] = ["reward.reward_kwargs.", "reward.custom_reward_function.reward_kwargs."];

/// `name=value`.
pub fn line(setting: &Setting) -> String {
    let plus = if ADDED.iter().any(|table| setting.name.starts_with(table)) { "+" } else { "" };
    format!("{plus}{}={}", setting.name, written(&setting.value))
}

/// The file that the script of the folder reads.
pub fn file(settings: &[Setting]) -> String {
    let line = |setting: &Setting| {
        let about = [setting.key.as_str(), setting.remark.as_str()];
        let about: Vec<&str> = about.into_iter().filter(|text| !text.is_empty()).collect();
        let comment =
            if about.is_empty() { String::new() } else { format!("# {}\n", about.join("; ")) };
        format!("{comment}{}\n", line(setting))
    };
    settings.iter().map(line).collect()
}

/// Text is quoted: Hydra would read `null`, `1e-6` or a brace in it.
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
