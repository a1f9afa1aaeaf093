use crate::algorithm::{Problem, Prompt};
use crate::base::{contained, files, files::foreign};
use crate::experiment::PromptSettings;
use crate::records::{Message, model_folder};
use crate::task::{ChatTemplate, TaskError, chat_template, data::template};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A Hugging Face tokenizer with the tokens that stop a response.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    stop_tokens: Vec<u32>,
    special_tokens: BTreeMap<u32, String>,
    sha256: String,
    folder: PathBuf,
    /// Read when a prompt first needs it.
    chat_template: OnceLock<Option<ChatTemplate>>,
}

impl Tokenizer {
    /// Loads `tokenizer.json`. Stop tokens are `eos_token_id` of `generation_config.json`, else of `config.json`.
    pub fn load(folder: &Path) -> Result<Self, TaskError> {
        let path = folder.join("tokenizer.json");
        let bytes = foreign::read_up_to(&path, foreign::MOST_TOKENIZER_BYTES)
            .map_err(|error| unread(folder, error))?;
        foreign::refuse_packed(&path, &bytes)?;
        let read = || tokenizers::Tokenizer::from_bytes(&bytes).map_err(|error| error.to_string());
        // serde_json names the place where the text is no JSON; the library may panic there.
        let inner = match serde_json::from_slice::<Value>(&bytes) {
            Ok(json) => growth_is_bounded(&json)
                .and_then(|()| gives_the_same_tokens_each_time(&json))
                .and_then(|()| contained::contained(read).flatten()),
            Err(error) => Err(error.to_string()),
        };
        let mut inner =
            inner.map_err(|reason| TaskError::Tokenizer { path: path.clone(), reason })?;
        // A file may ask for a length: a prompt is never cut or padded to it.
        inner.with_padding(None);
        inner.with_truncation(None).expect("no truncation is always possible");
        let tokens = inner.get_vocab(true).into_iter().map(|(token, id)| (id, token));
        let mut tokens = Vec::from_iter(tokens);
        tokens.sort_unstable();
        if let Some([(id, first), (_, second)]) =
            tokens.array_windows().find(|[first, second]| first.0 == second.0)
        {
            let reason = format!(
                "the tokens {first:?} and {second:?} have the same id {id}; give each an id of its own"
            );
            return Err(TaskError::Tokenizer { path, reason });
        }
        let largest = tokens.last().map_or(0, |(id, _)| *id);
        let own = inner.get_added_tokens_decoder().into_values();
        let own = own.map(|token| (token.content.clone(), token)).collect();
        let declared = chat_template::declared_tokens(folder, &own)?;
        let lacks = declared.iter().find(|(token, _)| inner.token_to_id(&token.content).is_none());
        if let Some((token, file)) = lacks {
            return Err(TaskError::LacksToken { path, token: token.content.clone(), file });
        }
        if !declared.is_empty() {
            let declared = declared.into_iter().map(|(token, _)| token);
            let add = || inner.add_special_tokens(declared).map_err(|error| error.to_string());
            let added = contained::contained(add).flatten();
            added.map_err(|reason| TaskError::Tokenizer { path, reason })?;
        }
        let stop_tokens = stop_tokens(folder, largest)?;
        let sha256 = files::sha256(&bytes);
        let added = inner.get_added_tokens_decoder().into_iter();
        let special = added.filter(|(_, token)| token.special);
        let special_tokens = special.map(|(id, token)| (id, token.content)).collect();
        let (folder, chat_template) = (folder.to_path_buf(), OnceLock::new());
        Ok(Self { inner, stop_tokens, special_tokens, sha256, folder, chat_template })
    }

    pub fn chat_template(&self) -> Result<Option<&ChatTemplate>, TaskError> {
        if let Some(template) = self.chat_template.get() {
            return Ok(template.as_ref());
        }
        let template = ChatTemplate::load(&self.folder)?;
        Ok(self.chat_template.get_or_init(|| template).as_ref())
    }

    /// Whether every token of the tokenizer in `folder` has a row of the model's embedding.
    pub fn fits(&self, folder: &Path, vocabulary: i64) -> Result<(), TaskError> {
        match self.inner.get_vocab(true).into_iter().max_by_key(|(_, id)| *id) {
            Some((token, id)) if i64::from(id) >= vocabulary => {
                let path = folder.join("tokenizer.json");
                Err(TaskError::Vocabulary { path, token, id, vocabulary })
            }
            _ => Ok(()),
        }
    }

    /// Token ids of a text alone; special tokens that are spelled out in the text become their ids.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TaskError> {
        self.ids(text, false).map_err(|reason| self.encode_error(text, reason))
    }

    /// As [`Self::encode`], behind the tokens that the post-processor of `tokenizer.json` puts before a text (Llama's
    /// `<|begin_of_text|>`), as in transformers, whatever `add_bos_token` of `tokenizer_config.json` says.
    /// Deviation: what it puts behind a text is left out, because the response follows there.
    pub fn encode_start(&self, text: &str) -> Result<Vec<u32>, TaskError> {
        self.ids(text, true).map_err(|reason| self.encode_error(text, reason))
    }

    /// As [`Self::encode_start`], of a text that may begin with those tokens, as a rendered chat does.
    pub fn encode_once_started(&self, text: &str) -> Result<Vec<u32>, TaskError> {
        let (alone, started) = (self.encode(text)?, self.encode_start(text)?);
        let put = &started[..started.len().saturating_sub(alone.len())];
        Ok(if alone.starts_with(put) { alone } else { started })
    }

    /// The library may panic when the parts of a tokenizer do not fit together.
    fn ids(&self, text: &str, with_special_tokens: bool) -> Result<Vec<u32>, String> {
        if text.len() > MOST_TEXT_BYTES {
            return Err(format!("it has {} bytes, the most is {MOST_TEXT_BYTES}", text.len()));
        }
        let encode = || {
            let encoding = self.inner.encode_fast(text, with_special_tokens);
            let encoding = encoding.map_err(|error| error.to_string())?;
            Ok((encoding.get_ids().to_vec(), encoding.get_sequence_ids()))
        };
        let (mut ids, sequences) = contained::contained(encode).flatten()?;
        if with_special_tokens {
            // Of an empty text nothing is left.
            ids.truncate(sequences.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
        }
        Ok(ids)
    }

    fn encode_error(&self, text: &str, reason: String) -> TaskError {
        let tried = if text.len() > MOST_TEXT_BYTES { 0 } else { MOST_CHARACTERS_TRIED };
        let mut tried = text.chars().take(tried);
        let unknown = tried.find(|character| self.ids(&character.to_string(), false).is_err());
        let told = |character| format!("{character:?} is not in the vocabulary");
        TaskError::Encode {
            text: text.chars().take(40).collect(),
            reason: unknown.map_or(reason, told),
        }
    }

    /// The text of ids. Special tokens and unknown ids (padding rows) have none; bytes that are not UTF-8 are U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let decode = || self.inner.decode(tokens, true).map_err(|error| error.to_string());
        // When the decoder fails, the tokens have no text, as an unknown id has none.
        contained::contained(decode).flatten().unwrap_or_default()
    }

    /// Most characters by which one token makes a text longer; special tokens have none.
    pub fn most_characters(&self) -> usize {
        let length = |tokens: &[u32]| self.decode(tokens).chars().count();
        // What a decoder puts between tokens counts too. The ids of a file may be few and large.
        let ids = self.inner.get_vocab(true).into_values();
        let most = |id| length(&[id]).max(length(&[id, id]).saturating_sub(length(&[id])));
        ids.map(most).max().unwrap_or(0)
    }

    /// Every character of the texts of tokens, and what the decoder puts between two.
    pub fn alphabet(&self) -> BTreeSet<char> {
        let ids = self.inner.get_vocab(true).into_values();
        ids.flat_map(|id| self.decode(&[id, id]).chars().collect::<Vec<char>>()).collect()
    }

    pub fn stop_tokens(&self) -> &[u32] {
        &self.stop_tokens
    }

    /// Tokens without text, by id, with how they are written.
    pub fn special_tokens(&self) -> &BTreeMap<u32, String> {
        &self.special_tokens
    }

    /// The token, as `token (id)`, that ends an assistant's turn in the chat template, if it does not stop a response:
    /// Qwen2.5's base models stop at `<|endoftext|>`, their template ends a turn with `<|im_end|>`.
    pub fn unstopped_end_of_turn(&self) -> Result<Option<String>, TaskError> {
        let Some(template) = self.chat_template()? else { return Ok(None) };
        let end = self.encode(&template.end_of_turn()).unwrap_or_default();
        let first = end.first().filter(|token| !self.stop_tokens.contains(token));
        let name = |id: &u32| self.inner.id_to_token(*id).unwrap_or_default();
        Ok(first.map(|id| format!("{} ({id})", name(id))))
    }

    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

/// What [`Tokenizer::unstopped_end_of_turn`] means.
pub fn unstopped(token: &str) -> String {
    format!(
        "the chat template ends a turn with {token}, which stops no response: a policy that ends its \
         answers so goes on to the limit; eos_token_id of generation_config.json may be a list of both"
    )
}

/// Of one encoded text: twice what prompts of a context of a million tokens have. The library holds 200 times as much.
const MOST_TEXT_BYTES: usize = 2 << 20;

/// Beside the vocabulary. Models have a thousand; two hundred thousand take ten seconds.
const MOST_ADDED_TOKENS: usize = 1 << 16;

/// Characters that are tried one by one to find the one without a token.
const MOST_CHARACTERS_TRIED: usize = 10_000;

const MOST_GROWTH: f64 = 4096.0;

/// Bounds the product of the rules' largest factors: thirty rules that double a text make gigabytes of one character.
fn growth_is_bounded(json: &Value) -> Result<(), String> {
    let added = json.get("added_tokens").and_then(Value::as_array).map_or(0, Vec::len);
    if added > MOST_ADDED_TOKENS {
        return Err(format!("it adds {added} tokens, at most {MOST_ADDED_TOKENS} are allowed"));
    }
    for part in ["normalizer", "pre_tokenizer", "decoder"] {
        let growth = json.get(part).map_or(1.0, growth);
        if growth > MOST_GROWTH {
            let most = format!("at most {MOST_GROWTH} is allowed");
            return Err(format!("its {part} can make a text {growth:e} times longer, {most}"));
        }
    }
    Ok(())
}

/// Dropout of merges is for the training of models.
fn gives_the_same_tokens_each_time(json: &Value) -> Result<(), String> {
    match json.pointer("/model/dropout").filter(|it| !it.is_null() && it.as_f64() != Some(0.0)) {
        Some(dropout) => Err(format!(
            "model.dropout is {dropout}, which gives a text other tokens each time; set it to null in the file"
        )),
        None => Ok(()),
    }
}

/// How many times longer a rule, and those inside it, can make a text.
fn growth(rule: &Value) -> f64 {
    let own = rule.as_object().map_or(1.0, |fields| {
        // `Replace` puts its content in place of a match, even an empty one; `Prepend`, `Fuse` and the like add once.
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map_or(0, str::len);
        let kind = fields.get("type").and_then(Value::as_str);
        match kind {
            Some("Replace") => 1.0 + text("content") as f64,
            Some("Prepend") => 1.0 + text("prepend") as f64,
            Some("Metaspace") => 1.0 + text("replacement").max(text("str_rep")) as f64,
            // A byte becomes a character of up to two bytes, a composed one several.
            Some("ByteLevel") => 2.0,
            Some("NFD" | "NFKD" | "NFKC" | "Nmt" | "Lowercase" | "BertNormalizer") => 2.0,
            _ => 1.0,
        }
    });
    let inside: f64 = match rule {
        Value::Array(rules) => rules.iter().map(growth).product(),
        Value::Object(fields) => {
            fields.values().filter(|value| value.is_array()).map(growth).product()
        }
        _ => 1.0,
    };
    own * inside
}

fn unread(folder: &Path, error: files::FileError) -> TaskError {
    let is_missing = error.is_missing() || !folder.is_dir();
    match is_missing.then(|| model_folder::without_tokenizer(folder)).flatten() {
        Some(what) => TaskError::OtherFolder { folder: folder.to_path_buf(), what },
        None => error.into(),
    }
}

fn stop_tokens(folder: &Path, largest: u32) -> Result<Vec<u32>, TaskError> {
    for name in ["generation_config.json", "config.json"] {
        let path = folder.join(name);
        let config: Option<Value> = files::optional(files::read_json(&path))?;
        let Some(config) = config else { continue };
        let stated = config.get("eos_token_id").filter(|value| !value.is_null());
        let Some(value) = stated else { continue };
        let id = |value: &Value| u32::try_from(value.as_u64()?).ok().filter(|id| *id <= largest);
        let ids: Option<BTreeSet<u32>> = match value {
            Value::Array(values) if !values.is_empty() => values.iter().map(id).collect(),
            single => id(single).map(|id| [id].into()),
        };
        let Some(ids) = ids else {
            let vocabulary_size = largest as usize + 1;
            return Err(TaskError::StopToken { path, vocabulary_size, value: value.to_string() });
        };
        return Ok(ids.into_iter().collect());
    }
    Err(TaskError::NoStopToken { folder: folder.to_path_buf() })
}

pub fn render(
    problem: &Problem,
    settings: &PromptSettings,
    tokenizer: &Tokenizer,
) -> Result<String, TaskError> {
    if !settings.template.is_chat() {
        return Ok(plain(&problem.question, settings));
    }
    let Some(template) = tokenizer.chat_template()? else {
        return Err(TaskError::NoChatTemplate { folder: tokenizer.folder.clone() });
    };
    let messages = messages(&problem.question, settings);
    let kwargs = &settings.chat_template_kwargs;
    match &settings.response_prefix {
        Some(prefix) => template.render_continued(messages, prefix, kwargs),
        None => template.render_with(&messages, true, kwargs),
    }
}

/// The prompt where the template is no chat.
pub fn plain(question: &str, settings: &PromptSettings) -> String {
    let PromptSettings { system, examples, response_prefix, .. } = settings;
    let asked = |question: &str| template::asked(question, settings.template.instructs());
    let turns = examples.iter().map(|it| asked(&it.question) + &it.response);
    let before = system.iter().cloned().chain(turns);
    let text: String = before.map(|part| part + "\n\n").collect();
    text + &asked(question) + response_prefix.as_deref().unwrap_or_default()
}

/// The messages of a chat, without the beginning of the response.
pub fn messages(question: &str, settings: &PromptSettings) -> Vec<Message> {
    let asked = |question: &str| template::asked(question, settings.template.instructs());
    let system = settings.system.iter().map(|text| Message::new("system", text));
    let turns = settings.examples.iter().flat_map(|example| {
        let question = Message::new("user", asked(&example.question));
        [question, Message::new("assistant", &example.response)]
    });
    let question = Message::new("user", asked(question));
    system.chain(turns).chain([question]).collect()
}

/// No token of a text stands for more: Qwen's longest are runs of 128 spaces.
const MOST_BYTES_OF_A_TOKEN: u64 = 1024;

/// Renders and tokenizes a problem. Errors: when the prompt is empty, has more than `max_prompt_tokens` tokens (it is
/// never cut), or cannot be tokenized; the message names the problem.
pub fn prompt(
    problem: &Problem,
    settings: &PromptSettings,
    tokenizer: &Tokenizer,
    max_prompt_tokens: u64,
) -> Result<Prompt, TaskError> {
    let id = problem.id.clone();
    let in_problem = |error| TaskError::Problem { id: id.clone(), source: Box::new(error) };
    let text = render(problem, settings, tokenizer).map_err(in_problem)?;
    if text.len() as u64 / MOST_BYTES_OF_A_TOKEN > max_prompt_tokens {
        return Err(TaskError::TooLongText { id, bytes: text.len(), limit: max_prompt_tokens });
    }
    let is_chat = settings.template.is_chat();
    let tokens = if is_chat { tokenizer.encode(&text) } else { tokenizer.encode_start(&text) };
    let tokens = tokens.map_err(in_problem)?;
    if tokens.is_empty() {
        return Err(TaskError::EmptyPrompt { id });
    }
    if tokens.len() as u64 > max_prompt_tokens {
        return Err(TaskError::TooLong { id, tokens: tokens.len(), limit: max_prompt_tokens });
    }
    Ok(Prompt { problem: problem.clone(), tokens })
}

#[cfg(test)]
mod tests;
