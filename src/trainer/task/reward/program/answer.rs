//! What a process that grades answers.

use crate::base::files::foreign;
use crate::base::visible;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Ready {
    /// Several by commas; empty for a command.
    pub function: String,
    pub form: CallForm,
    /// Parameters that get the response and the answer, where verl or TRL do not say it.
    pub roles: Vec<String>,
    /// Parameters of functions of TRL that get the ground truth where the rows have no such column.
    pub truths: Vec<String>,
    /// Versions of Python and of the packages that were asked for.
    pub packages: BTreeMap<String, String>,
    /// Installed packages that its files import and that nobody asked for.
    pub unstated_packages: Vec<String>,
    /// The program's file and the user's files that it executes, also while it grades, named as `placed` reads it.
    pub files: Vec<String>,
    pub data: Vec<String>,
    pub waits: bool,
}

impl Ready {
    /// How the function is called, in words.
    pub fn form(&self) -> String {
        if let [response, truth] = &self.roles[..] {
            return format!("with a response as `{response}` and an answer as `{truth}`");
        }
        match &self.truths[..] {
            [] => self.form.to_string(),
            truths => format!("{}, {}", self.form, Self::told(truths)),
        }
    }

    pub fn told(truths: &[String]) -> String {
        format!("with the ground truth as `{}` where rows have no such column", truths.join("`, `"))
    }

    pub fn is_of_trl(&self) -> bool {
        matches!(self.form, CallForm::Trl | CallForm::Mixed)
    }

    /// `False` is the number 0.
    pub fn counts_flags(&self) -> bool {
        matches!(self.form, CallForm::Trl | CallForm::Verl | CallForm::VerlBatch)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum CallForm {
    #[error("as verl calls it")]
    Verl,
    #[error("as verl's batch reward manager calls it")]
    VerlBatch,
    #[error("as TRL calls it")]
    Trl,
    #[error("with a response and an answer")]
    Plain,
    /// Functions of several forms.
    #[error("each in its own form")]
    Mixed,
    #[default]
    #[error("a command that answers lines")]
    Lines,
}

impl CallForm {
    pub fn takes_batches(self) -> bool {
        matches!(self, Self::Trl | Self::VerlBatch | Self::Mixed)
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Returned {
    Flag(bool),
    Number(f64),
    Text(String),
    Fields(BTreeMap<String, Returned>),
    /// A type or a value that is no reward.
    Other(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Ready(Ready),
    Failed(String),
    Refused(String),
    Running(()),
    /// A file that was loaded while it graded and is not among [`Ready::files`].
    Unrecorded(String),
    Length(usize),
    #[serde(untagged)]
    Value(Returned),
}

pub enum Lost {
    TimedOut(String),
    OutOfTime,
    OtherId(String),
    Ended(String),
    Broke(String),
}

/// A command's answer as the bridge would write it.
pub fn of_command(line: &[u8]) -> Result<(Option<Value>, Answer), Lost> {
    let broke = |why: String| Lost::Broke(format!("its answer {} {why}", shown(line)));
    let text = std::str::from_utf8(line).map_err(|_| broke("is no UTF-8".to_string()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut answer: Value =
        serde_json::from_str(text).map_err(|_| broke("is no line of JSON".to_string()))?;
    foreign::refuse_repeated_keys(text).map_err(|error| broke(format!("has a {error}")))?;
    let id = answer.as_object_mut().and_then(|fields| fields.remove("id"));
    let answer = match answer {
        Value::Object(fields) => match fields.get("error").filter(|error| !error.is_null()) {
            Some(error) => Answer::Failed(text_of(error)),
            None => Answer::Value(Returned::Fields(
                fields.into_iter().filter(|(name, _)| name != "error").map(field).collect(),
            )),
        },
        other => Answer::Value(returned(other)),
    };
    Ok((id.filter(|id| !id.is_null()), answer))
}

fn field((name, value): (String, Value)) -> (String, Returned) {
    let is_text = name == "pred" && !value.is_null();
    let value = if is_text { Returned::Text(text_of(&value)) } else { returned(value) };
    (name, value)
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

fn returned(value: Value) -> Returned {
    match value {
        Value::Bool(flag) => Returned::Flag(flag),
        Value::Number(number) => Returned::Number(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => Returned::Text(text),
        Value::Null | Value::Array(_) | Value::Object(_) => Returned::Other(value.to_string()),
    }
}

pub fn shown(line: &[u8]) -> String {
    format!("{:?}", visible::shortened(String::from_utf8_lossy(line).trim(), 60))
}
