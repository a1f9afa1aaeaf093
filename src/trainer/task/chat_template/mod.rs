//! The chat template of a model folder, a Jinja program, rendered as `apply_chat_template` of transformers does.
//! Deviation: a template is not told the time, because a prompt must not depend on the day. Where it asks for
//! today's date (`strftime_now` of transformers), the date has to be stated as a variable.

mod python;
mod python_json;

use crate::base::{apart, contained, files, files::foreign};
use crate::experiment::validate::RESERVED_VARIABLES;
use crate::records::Message;
use crate::task::TaskError;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Error as JinjaError, Value};
use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tokenizers::AddedToken;

const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const ADDED_TOKENS: &str = "added_tokens.json";

/// Template files have up to 20 kB.
const MOST_TEMPLATE_BYTES: u64 = 1 << 20;

/// Instructions of one rendering. The longest published template takes a few thousand for a message.
const FUEL: u64 = 2_000_000;

/// A template is a program, which may double a text without end: it runs in the second process.
const LIMITS: apart::ApartLimits =
    apart::ApartLimits { memory_bytes: 256 << 20, processor_seconds: 10, answer_bytes: 16 << 20 };

/// The function of transformers that formats the present time.
pub const DATE_FUNCTION: &str = "strftime_now";

/// The date of a text that is no prompt of a run: the one that Llama 3.2's template has for programs without a clock.
pub const FIXED_DATE: &str = "26 Jul 2024";

/// Names of the special tokens that a template may use.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatTemplate {
    #[serde(skip)]
    path: PathBuf,
    source: String,
    tokens: BTreeMap<String, String>,
}

thread_local! {
    static COMPILED: RefCell<Option<(String, Environment<'static>)>> = const { RefCell::new(None) };
}

#[derive(Default, Deserialize)]
struct TokenizerConfig {
    chat_template: Option<serde_json::Value>,
    added_tokens_decoder: Option<serde_json::Value>,
    #[serde(flatten)]
    others: JsonObject,
}

type JsonObject = BTreeMap<String, serde_json::Value>;

#[derive(Serialize, Deserialize)]
struct Conversation {
    messages: Vec<Message>,
    add_generation_prompt: bool,
    kwargs: JsonObject,
}

impl TokenizerConfig {
    /// Special tokens in a file of their own go, as in transformers 5.23, tokenization_utils_base.py, before
    /// those of `tokenizer_config.json` where that file has no `added_tokens_decoder`.
    fn read(folder: &Path) -> Result<Self, files::FileError> {
        let config = files::read_json::<Self>(&folder.join(TOKENIZER_CONFIG));
        let mut config = files::optional(config)?.unwrap_or_default();
        if config.added_tokens_decoder.is_none() {
            let map = files::read_json::<JsonObject>(&folder.join("special_tokens_map.json"));
            config.others.extend(files::optional(map)?.unwrap_or_default());
        }
        Ok(config)
    }

    fn token(&self, name: &str) -> Option<&str> {
        content(self.others.get(name)?)
    }
}

/// Tokens that transformers 5.23 (`_from_pretrained`, `_post_init`) adds to `own` ones or replaces, with their file.
pub fn declared_tokens(
    folder: &Path,
    own: &BTreeMap<String, AddedToken>,
) -> Result<Vec<(AddedToken, &'static str)>, TaskError> {
    const LISTS: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];
    let config = TokenizerConfig::read(folder)?;
    let named = SPECIAL_TOKENS.iter().filter_map(|name| config.others.get(*name));
    let named: BTreeMap<&str, _> =
        named.filter_map(|token| Some((content(token)?, token))).collect();
    let mut declared = BTreeMap::new();
    let mut add = |token: AddedToken, file| declared.insert(token.content.clone(), (token, file));
    if let Some(decoder) = &config.added_tokens_decoder {
        for value in members(decoder) {
            let Some(text) = content(value) else { continue };
            let is_special = named.contains_key(text) || own.get(text).is_some_and(|it| it.special);
            add(declared_token(value, text, is_special), TOKENIZER_CONFIG);
        }
    } else {
        let added = files::read_json::<JsonObject>(&folder.join(ADDED_TOKENS));
        for text in files::optional(added)?.unwrap_or_default().into_keys() {
            let is_special = named.contains_key(&text[..]);
            add(AddedToken::from(text, is_special), ADDED_TOKENS);
        }
        own.values().for_each(|token| drop(add(token.clone(), ADDED_TOKENS)));
    }
    for (text, value) in named {
        let known = declared.get(text).map(|(token, _)| token.clone().special(true));
        let token = known.unwrap_or_else(|| declared_token(value, text, true));
        declared.insert(text.to_string(), (token, TOKENIZER_CONFIG));
    }
    let lists = LISTS.iter().filter_map(|name| config.others.get(*name));
    for value in lists.flat_map(members) {
        let Some(text) = content(value) else { continue };
        declared.insert(text.to_string(), (declared_token(value, text, true), TOKENIZER_CONFIG));
    }
    declared.retain(|text, (token, _)| own.get(text) != Some(token));
    Ok(declared.into_values().collect())
}

fn members(list: &serde_json::Value) -> Vec<&serde_json::Value> {
    match list {
        serde_json::Value::Array(values) => values.iter().collect(),
        serde_json::Value::Object(values) => values.values().collect(),
        _ => Vec::new(),
    }
}

fn declared_token(value: &serde_json::Value, text: &str, is_special: bool) -> AddedToken {
    let flag = |name: &str| value.get(name).and_then(serde_json::Value::as_bool);
    let token = AddedToken::from(text, is_special || flag("special").unwrap_or(false));
    AddedToken {
        single_word: flag("single_word").unwrap_or(token.single_word),
        lstrip: flag("lstrip").unwrap_or(token.lstrip),
        rstrip: flag("rstrip").unwrap_or(token.rstrip),
        normalized: flag("normalized").unwrap_or(token.normalized),
        ..token
    }
}

/// A token is a text, or an object with its content and how it is stripped.
fn content(token: &serde_json::Value) -> Option<&str> {
    token.get("content").unwrap_or(token).as_str()
}

impl ChatTemplate {
    /// `chat_template.jinja` (transformers since 4.51), else `chat_template` of `tokenizer_config.json`, else `None`.
    pub fn load(folder: &Path) -> Result<Option<Self>, TaskError> {
        let config_path = folder.join(TOKENIZER_CONFIG);
        let config = TokenizerConfig::read(folder)?;
        let file = folder.join("chat_template.jinja");
        let stated = files::optional(foreign::read_up_to(&file, MOST_TEMPLATE_BYTES))?;
        let (path, source) = match (stated, &config.chat_template) {
            (Some(bytes), _) => {
                let source = String::from_utf8(bytes);
                let source = source.map_err(|error| refuse(&file, error.to_string()))?;
                (file, source)
            }
            (None, None | Some(serde_json::Value::Null)) => return Ok(None),
            (None, Some(value)) => match default_template(value) {
                Some(source) => (config_path, source),
                None => return Err(TaskError::Form { path: config_path }),
            },
        };
        let token = |name: &str| Some((name.to_string(), config.token(name)?.to_string()));
        let tokens = SPECIAL_TOKENS.into_iter().filter_map(token).collect();
        let template = Self { path, source, tokens };
        template.render(&[Message::new("user", "1+1?")], true)?;
        Ok(Some(template))
    }

    /// The text of a conversation that is no prompt of a run: a template that asks for today's date gets
    /// [`FIXED_DATE`]. `add_generation_prompt` ends it with the beginning of an assistant's turn.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, TaskError> {
        let kwargs = [(DATE_FUNCTION.to_string(), FIXED_DATE.into())].into();
        self.text(&Conversation { messages: messages.to_vec(), add_generation_prompt, kwargs })
    }

    /// As [`Self::render`], with `kwargs` as variables, as `apply_chat_template(…, **kwargs)` of transformers has them.
    /// `strftime_now` is the date that the function of this name returns, whatever format it is asked for. Errors: a
    /// variable that the template does not read; today's date, where none is stated.
    pub fn render_with(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        kwargs: &JsonObject,
    ) -> Result<String, TaskError> {
        if let Some(name) = kwargs.keys().find(|name| !self.names(name)) {
            let reads = match &Vec::from_iter(self.variables())[..] {
                [] => "it has none that can be stated".to_string(),
                variables => format!("it reads {}", variables.join(", ")),
            };
            let reason = format!("the template has no variable {name}; {reads}");
            return Err(refuse(&self.path, reason));
        }
        let (messages, kwargs) = (messages.to_vec(), kwargs.clone());
        self.text(&Conversation { messages, add_generation_prompt, kwargs })
    }

    /// Whether a question cannot be rendered before a date is stated.
    pub fn asks_for_date(&self) -> bool {
        self.render_with(&[Message::new("user", "1+1?")], true, &JsonObject::new()).is_err()
    }

    /// Whether the word is in one of the template's tags; whether it is read there is not decided.
    fn names(&self, word: &str) -> bool {
        let is_word = Regex::new(&format!(r"\b{}\b", regex::escape(word))).expect("a name");
        TAG.find_iter(&self.source).any(|tag| is_word.is_match(tag.as_str()))
    }

    /// What the template reads and nothing in it sets, without functions and a conversation's own names.
    fn variables(&self) -> BTreeSet<String> {
        let mut variables = BTreeSet::new();
        if let Ok((_, environment)) = compiled_from(&self.source)
            && let Ok(template) = environment.get_template(COMPILED_NAME)
        {
            variables.extend(template.undeclared_variables(false));
            let own = environment.globals().map(|(name, _)| name).chain(RESERVED_VARIABLES);
            own.for_each(|name| {
                variables.remove(name);
            });
        }
        variables
    }

    fn text(&self, conversation: &Conversation) -> Result<String, TaskError> {
        let refused = |reason| refuse(&self.path, reason);
        if !apart::is_available() {
            return self.contained(conversation).map_err(refused);
        }
        let request = serde_json::to_vec(&(self, conversation)).expect("texts");
        let rendered = apart::ask(&[REQUEST.as_bytes(), &request].concat(), LIMITS);
        let text = rendered.map_err(|error| error.of(&self.path, refused))?;
        String::from_utf8(text).map_err(|error| refused(error.to_string()))
    }

    fn contained(&self, conversation: &Conversation) -> Result<String, String> {
        contained::contained(|| self.rendered(conversation))
            .and_then(|rendered| rendered.map_err(|error| told(&error)))
    }

    /// The text of a conversation whose last turn the assistant has begun: with transformers 5.23's
    /// `continue_final_message`, utils/chat_template_utils.py, which marks where the turn goes on.
    pub fn render_continued(
        &self,
        mut messages: Vec<Message>,
        beginning: &str,
        kwargs: &JsonObject,
    ) -> Result<String, TaskError> {
        const TAG: &str = "CONTINUE_FINAL_MESSAGE_TAG ";
        messages.push(Message::new("assistant", [beginning, TAG].concat()));
        let rendered = self.render_with(&messages, false, kwargs)?;
        let parts = rendered.rsplit_once(TAG.trim_end());
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

    /// What the template puts behind an assistant's answer; empty when it takes no answer.
    pub fn end_of_turn(&self) -> String {
        const ANSWER: &str = "a7f3c1";
        let turns = [Message::new("user", "?"), Message::new("assistant", ANSWER)];
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

    fn rendered(&self, conversation: &Conversation) -> Result<String, JinjaError> {
        let Conversation { messages, add_generation_prompt, kwargs } = conversation;
        let compiled = COMPILED.take().filter(|(source, _)| *source == self.source);
        let compiled = compiled.map_or_else(|| compiled_from(&self.source), Ok)?;
        let (source, mut environment) = compiled;
        let date = kwargs.get(DATE_FUNCTION).map(|date| Value::from(Serde(date)));
        let stated = move |format: String| date.clone().ok_or_else(|| undated(&format));
        environment.add_function(DATE_FUNCTION, stated);
        let mut context: BTreeMap<&str, Value> = BTreeMap::new();
        context.insert("messages", Value::from(Serde(messages)));
        context.insert("add_generation_prompt", Value::from(*add_generation_prompt));
        // transformers passes them always.
        context.insert("tools", Value::from(()));
        context.insert("documents", Value::from(()));
        let tokens = self.tokens.iter().map(|(name, text)| (name.as_str(), Value::from(&text[..])));
        context.extend(tokens);
        let kwargs = kwargs.iter().filter(|(name, _)| *name != DATE_FUNCTION);
        context.extend(kwargs.map(|(name, value)| (name.as_str(), Value::from(Serde(value)))));
        let rendered = environment.get_template(COMPILED_NAME)?.render(context);
        COMPILED.set(Some((source, environment)));
        rendered
    }
}

const COMPILED_NAME: &str = "<string>";

static TAG: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?s)\{%.*?%\}|\{\{.*?\}\}").expect("a pattern"));

/// transformers' tags of what an assistant generates; `with` trims white space in the same way.
static GENERATION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}$").expect("a pattern")
});

fn compiled_from(source: &str) -> Result<(String, Environment<'static>), JinjaError> {
    let mut environment = environment()?;
    let lines = source.replace("\r\n", "\n").replace('\r', "\n");
    for tag in TAG.find_iter(&lines) {
        python::check(tag.as_str())?;
    }
    let replaced = TAG.replace_all(&lines, |tag: &Captures| {
        // Python leaves out a line break behind a backslash.
        let tag = tag[0].replace("\\\n", "");
        GENERATION.replace(&tag, "{%$1 ${2}with $3%}").into_owned()
    });
    environment.add_template_owned(COMPILED_NAME, replaced.into_owned())?;
    python::check_names(&environment, COMPILED_NAME)?;
    Ok((source.to_string(), environment))
}

fn environment() -> Result<Environment<'static>, JinjaError> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    let mut environment = Environment::new();
    environment.set_syntax(syntax);
    environment.set_fuel(Some(FUEL));
    python::set_up(&mut environment);
    let raise = |message: String| -> Result<Value, JinjaError> { Err(python::refusal(message)) };
    environment.add_function("raise_exception", raise);
    environment.add_filter("tojson", python_json::filter);
    Ok(environment)
}

fn undated(format: &str) -> JinjaError {
    python::refusal(format!(
        "it asks for today's date by {DATE_FUNCTION}({format:?}), and a prompt must not depend on the day; state a \
         date: prompt.chat_template_kwargs.{DATE_FUNCTION} = {FIXED_DATE:?} (without an experiment: \
         --chat-template-kwargs)"
    ))
}

const REQUEST: &str = "chat template\n";

/// The answer of the second process, when the request is one to render.
pub fn answer(request: &[u8]) -> Option<Result<Vec<u8>, String>> {
    let request = request.strip_prefix(REQUEST.as_bytes())?;
    let read = serde_json::from_slice::<(ChatTemplate, Conversation)>(request);
    let rendered = |(template, conversation): (ChatTemplate, Conversation)| {
        template.contained(&conversation).map(String::into_bytes)
    };
    Some(read.map_err(|error| error.to_string()).and_then(rendered))
}

fn refuse(path: &Path, reason: String) -> TaskError {
    TaskError::Template { path: path.to_path_buf(), reason }
}

fn default_template(value: &serde_json::Value) -> Option<String> {
    let of_name =
        |entry: &&serde_json::Value| entry["name"] == "default" && entry["template"].is_string();
    let template = match value.as_array() {
        Some(named) => &named.iter().find(of_name)?["template"],
        None => value,
    };
    template.as_str().map(str::to_string)
}

fn told(error: &JinjaError) -> String {
    let place = error.line().map_or_else(String::new, |line| format!(" (line {line})"));
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_string);
    detail + &place
}

#[cfg(test)]
mod tests;
