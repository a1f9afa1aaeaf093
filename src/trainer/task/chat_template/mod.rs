//! The chat template of a model folder: a Jinja program that makes one text of a conversation,
//! rendered as transformers renders it (`apply_chat_template`).
//!
//! Deviation: a template is not told the time, because a prompt must not depend on the day. A
//! template that asks for today's date (`strftime_now` of transformers) takes the date that it has
//! for programs without a clock.

use crate::base::{apart, contained, files, files::foreign};
use crate::records::Message;
use crate::task::TaskError;
use minijinja::{Environment, Error as JinjaError, ErrorKind, Value, syntax::SyntaxConfig};
use minijinja_contrib::pycompat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::ErrorKind as IoErrorKind;
use std::path::{Path, PathBuf};

/// Template files have up to 20 kB.
const MOST_TEMPLATE_BYTES: u64 = 1 << 20;

/// Instructions of one rendering. The longest published template takes a few thousand for a message.
const FUEL: u64 = 2_000_000;

/// What a rendering may use when it is tried for the first time.
const LIMITS: apart::ApartLimits =
    apart::ApartLimits { memory_bytes: 256 << 20, processor_seconds: 10, answer_bytes: 16 << 20 };

/// Names of the special tokens that a template may use.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatTemplate {
    path: PathBuf,
    source: String,
    tokens: BTreeMap<String, String>,
}

/// The part of `tokenizer_config.json` that is read.
#[derive(Default, Deserialize)]
struct TokenizerConfig {
    chat_template: Option<serde_json::Value>,
    #[serde(flatten)]
    others: BTreeMap<String, serde_json::Value>,
}

impl ChatTemplate {
    /// The template of a model folder: `chat_template.jinja` (as transformers has written it
    /// since 4.51), else `chat_template` of `tokenizer_config.json`. `None` when there is none.
    pub fn load(folder: &Path) -> Result<Option<Self>, TaskError> {
        let config_path = folder.join("tokenizer_config.json");
        let config = match files::read_json::<TokenizerConfig>(&config_path) {
            Ok(config) => config,
            Err(error) if is_absent(&error) => TokenizerConfig::default(),
            Err(error) => return Err(error.into()),
        };
        let file = folder.join("chat_template.jinja");
        let (path, source) = match foreign::read_up_to(&file, MOST_TEMPLATE_BYTES) {
            Ok(bytes) => {
                let source = String::from_utf8(bytes);
                let source = source.map_err(|error| refuse(&file, error.to_string()))?;
                (file, source)
            }
            Err(error) if is_absent(&error) => match config.chat_template {
                None | Some(serde_json::Value::Null) => return Ok(None),
                Some(value) => match default_template(value) {
                    Some(source) => (config_path, source),
                    None => return Err(TaskError::Form { path: config_path }),
                },
            },
            Err(error) => return Err(error.into()),
        };
        let text = |value: &serde_json::Value| {
            // A token is a text, or an object with its content and how it is stripped.
            let content = value.get("content").unwrap_or(value);
            content.as_str().map(str::to_string)
        };
        let token = |name: &str| Some((name.to_string(), text(config.others.get(name)?)?));
        let tokens = SPECIAL_TOKENS.into_iter().filter_map(token).collect();
        let template = Self { path, source, tokens };
        template.try_apart()?;
        Ok(Some(template))
    }

    /// The text of a conversation. `add_generation_prompt` ends it with the beginning of an assistant's turn.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, TaskError> {
        let rendered = contained::contained(|| self.rendered(messages, add_generation_prompt));
        let reason = match rendered {
            Ok(Ok(text)) => return Ok(text),
            // The template's own words are the detail.
            Ok(Err(error)) => {
                let place = error.line().map_or_else(String::new, |line| format!(" (line {line})"));
                let detail = error.detail().map(str::to_string);
                format!("{}{place}", detail.unwrap_or_else(|| error.kind().to_string()))
            }
            Err(reason) => reason,
        };
        Err(refuse(&self.path, reason))
    }

    /// The text of a conversation whose last turn the assistant has begun: with transformers 5.23's
    /// `continue_final_message`, utils/chat_template_utils.py, which marks where the turn goes on.
    pub fn render_continued(
        &self,
        mut messages: Vec<Message>,
        beginning: &str,
    ) -> Result<String, TaskError> {
        const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
        let content = [beginning, TAG].concat();
        messages.push(Message { role: "assistant".to_string(), content });
        let text = self.render(&messages, false)?;
        let parts = text.rsplit_once(TAG.trim_end());
        match parts.filter(|(before, _)| before.contains(beginning.trim())) {
            Some((before, after)) if after.starts_with(' ') => Ok(before.to_string()),
            // The template trims a message.
            Some((before, _)) => Ok(before.trim_end().to_string()),
            None => Err(refuse(
                &self.path,
                format!("it has no place for a response that begins with {beginning:?}"),
            )),
        }
    }

    /// What the template puts behind an assistant's answer: the end of its turn. Empty when it
    /// puts nothing there or does not take an answer.
    pub fn end_of_turn(&self) -> String {
        const ANSWER: &str = "a7f3c1";
        let message = |role: &str, content: &str| Message {
            role: role.to_string(),
            content: content.to_string(),
        };
        let turns = [message("user", "?"), message("assistant", ANSWER)];
        let text = self.render(&turns, false).unwrap_or_default();
        text.rsplit_once(ANSWER).map_or_else(String::new, |(_, end)| end.to_string())
    }

    /// SHA-256 of the template and of the special tokens that it may use.
    pub fn sha256(&self) -> String {
        files::sha256(files::canonical_json(&(&self.source, &self.tokens)).as_bytes())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn rendered(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, JinjaError> {
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
        let mut environment = Environment::new();
        environment.set_syntax(syntax);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(pycompat::unknown_method_callback);
        environment.add_function("raise_exception", raise_exception);
        environment.add_filter("tojson", python_json);
        let template = environment.template_from_str(&self.source)?;
        let mut context: BTreeMap<&str, Value> = BTreeMap::new();
        context.insert("messages", messages.iter().map(value).collect::<Vec<_>>().into());
        context.insert("add_generation_prompt", Value::from(add_generation_prompt));
        // transformers passes them always.
        context.insert("tools", Value::from(()));
        context.insert("documents", Value::from(()));
        let tokens = self.tokens.iter().map(|(name, text)| (name.as_str(), Value::from(&text[..])));
        context.extend(tokens);
        template.render(context)
    }

    /// Renders one message in the second process first: a template is a program, and one that
    /// doubles a text again and again would end the process that renders it.
    fn try_apart(&self) -> Result<(), TaskError> {
        if !apart::is_available() {
            return self.first_rendering().map(|_text| ());
        }
        let request = [REQUEST.as_bytes(), &serde_json::to_vec(self).expect("texts")].concat();
        apart::ask(&request, LIMITS).map(drop).map_err(|reason| refuse(&self.path, reason))
    }

    fn first_rendering(&self) -> Result<String, TaskError> {
        let message = Message { role: "user".to_string(), content: "1+1?".to_string() };
        self.render(&[message], true)
    }
}

const REQUEST: &str = "chat template\n";

/// The answer of the second process, when the request is one to render.
pub fn answer(request: &[u8]) -> Option<Result<Vec<u8>, String>> {
    let template = request.strip_prefix(REQUEST.as_bytes())?;
    let template: ChatTemplate = match serde_json::from_slice(template) {
        Ok(template) => template,
        Err(error) => return Some(Err(error.to_string())),
    };
    Some(match template.first_rendering() {
        Ok(text) => Ok(text.into_bytes()),
        Err(TaskError::Template { reason, .. }) => Err(reason),
        Err(error) => Err(error.to_string()),
    })
}

fn value(message: &Message) -> Value {
    Value::from_pairs([("role", &message.role[..]), ("content", &message.content[..])])
}

fn refuse(path: &Path, reason: String) -> TaskError {
    TaskError::Template { path: path.to_path_buf(), reason }
}

pub fn is_absent(error: &files::FileError) -> bool {
    matches!(error, files::FileError::Io { source, .. } if source.kind() == IoErrorKind::NotFound)
}

/// The text, or the one that is named `default` of several.
fn default_template(value: serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text),
        serde_json::Value::Array(named) => named.into_iter().find_map(|entry| {
            let name = entry.get("name")?.as_str()?;
            let template = entry.get("template")?.as_str()?;
            (name == "default").then(|| template.to_string())
        }),
        _ => None,
    }
}

/// The function by which templates refuse a conversation.
fn raise_exception(message: String) -> Result<Value, JinjaError> {
    Err(JinjaError::new(ErrorKind::InvalidOperation, message))
}

/// JSON as Python's `json.dumps` writes it, which transformers uses in place of Jinja's filter.
fn python_json(value: &Value) -> Result<Value, JinjaError> {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, PythonSpaces);
    let failed = |error: &dyn std::fmt::Display| {
        JinjaError::new(ErrorKind::BadSerialization, error.to_string())
    };
    value.serialize(&mut serializer).map_err(|error| failed(&error))?;
    String::from_utf8(bytes).map(Value::from_safe_string).map_err(|error| failed(&error))
}

/// A space behind each comma and colon.
struct PythonSpaces;

impl serde_json::ser::Formatter for PythonSpaces {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests;
