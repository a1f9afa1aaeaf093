//! Template and tokenizer: `Problem` → `Prompt`.

use crate::config::PromptTemplate;
use crate::contained;
use crate::data::template;
use crate::files;
use crate::files::foreign;
use crate::records::Problem;
use crate::records::Prompt;
use serde_json::Value;
use std::path::Path;
use std::path::PathBuf;

/// A tokenizer or a prompt that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is missing or is not JSON.
    #[error(transparent)]
    File(#[from] files::Error),
    /// `tokenizer.json` that the tokenizers library refuses.
    #[error("{}: not a tokenizer: {reason}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// The library's reason.
        reason: String,
    },
    /// Neither generation config nor model config names a stop token.
    #[error("{}: no eos_token_id in generation_config.json or config.json", folder.display())]
    NoStopToken {
        /// The model's folder.
        folder: PathBuf,
    },
    /// `eos_token_id` is neither a token id nor a list of token ids.
    #[error("{}: eos_token_id must be a token id below {vocabulary_size} or a list of them, got {value}", path.display())]
    StopToken {
        /// The file.
        path: PathBuf,
        /// Number of tokens.
        vocabulary_size: usize,
        /// What stands there.
        value: String,
    },
    /// Tokenizer and model do not belong together.
    #[error("{}: token {token:?} has id {id}, the model's vocabulary has only {vocabulary} rows", path.display())]
    Vocabulary {
        /// The tokenizer.
        path: PathBuf,
        /// The token with the largest id.
        token: String,
        /// Its id.
        id: u32,
        /// Rows of the model's embedding.
        vocabulary: i64,
    },
    /// Text that the vocabulary cannot express.
    #[error("cannot tokenize {text:?}: {reason}")]
    Encode {
        /// The start of the text.
        text: String,
        /// The character, or the library's reason.
        reason: String,
    },
    /// A prompt that cannot be tokenized.
    #[error("problem {id}: {source}")]
    Problem {
        /// The problem's id.
        id: String,
        /// What is wrong with its text.
        source: Box<Error>,
    },
    /// A prompt longer than the limit.
    #[error("problem {id}: its prompt has {tokens} tokens, max_prompt_tokens is {limit}")]
    TooLong {
        /// The problem's id.
        id: String,
        /// Length of the rendered prompt.
        tokens: usize,
        /// The limit.
        limit: u64,
    },
    /// A text so long that tokenizing it would take minutes to say the same.
    #[error("problem {id}: its prompt has {bytes} bytes, max_prompt_tokens is {limit}")]
    TooLongText {
        /// The problem's id.
        id: String,
        /// Size of the rendered prompt.
        bytes: usize,
        /// The limit in tokens.
        limit: u64,
    },
    /// A prompt without a single token.
    #[error("problem {id}: its prompt is empty")]
    Empty {
        /// The problem's id.
        id: String,
    },
}

/// A Hugging Face tokenizer with the tokens that stop a response.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    stop_tokens: Vec<u32>,
    sha256: String,
}

impl Tokenizer {
    /// Loads `tokenizer.json` of a model folder. Stop tokens are the `eos_token_id` (a number
    /// or a list) of `generation_config.json`, else of `config.json`.
    ///
    /// # Errors
    /// When a file is missing or malformed, or no stop token is named.
    pub fn load(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("tokenizer.json");
        let bytes = foreign::read_up_to(&path, foreign::MOST_TOKENIZER_BYTES)?;
        let read = || tokenizers::Tokenizer::from_bytes(&bytes).map_err(|error| error.to_string());
        // What is no JSON at all is told with its place; the library may panic over it.
        let inner = match serde_json::from_slice::<Value>(&bytes) {
            Ok(json) => growth_is_bounded(&json)
                .and_then(|()| contained::contained(read).and_then(|result| result)),
            Err(error) => Err(error.to_string()),
        };
        let mut inner = inner.map_err(|reason| Error::Tokenizer { path, reason })?;
        // A prompt is never cut, and nothing is added to it: to no length that a file asks for.
        inner.with_padding(None);
        inner.with_truncation(None).expect("no truncation is always possible");
        let stop_tokens = stop_tokens(folder, largest_id(&inner))?;
        Ok(Self { inner, stop_tokens, sha256: files::sha256(&bytes) })
    }

    /// Whether every token of the tokenizer in `folder` has a row of the model's embedding.
    ///
    /// # Errors
    /// [`Error::Vocabulary`], with the largest id.
    pub fn fits(&self, folder: &Path, vocabulary: i64) -> Result<(), Error> {
        let largest = self.inner.get_vocab(true).into_iter().max_by_key(|(_, id)| *id);
        match largest {
            Some((token, id)) if i64::from(id) >= vocabulary => {
                let path = folder.join("tokenizer.json");
                Err(Error::Vocabulary { path, token, id, vocabulary })
            }
            _ => Ok(()),
        }
    }

    /// Token ids of a text. No token is added at either end; special tokens that are spelled
    /// out in the text become their ids.
    ///
    /// # Errors
    /// When the vocabulary has no token for a character.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        match self.ids(text) {
            Ok(ids) => Ok(ids),
            Err(reason) => Err(self.encode_error(text, reason)),
        }
    }

    /// The library trusts its tokenizer's parts to fit together; those of a file need not.
    fn ids(&self, text: &str) -> Result<Vec<u32>, String> {
        let encode = || self.inner.encode(text, false).map_err(|error| error.to_string());
        let encoding = contained::contained(encode).and_then(|result| result)?;
        Ok(encoding.get_ids().to_vec())
    }

    fn encode_error(&self, text: &str, reason: String) -> Error {
        let unknown = text
            .chars()
            .take(MOST_CHARACTERS_TRIED)
            .find(|character| self.ids(&character.to_string()).is_err());
        Error::Encode {
            text: text.chars().take(40).collect(),
            reason: match unknown {
                Some(character) => format!("{character:?} is not in the vocabulary"),
                None => reason,
            },
        }
    }

    /// The text of token ids, without special tokens. Ids that the tokenizer does not know
    /// (a model's padding rows) have no text, and bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let decode = || self.inner.decode(tokens, true).map_err(|error| error.to_string());
        // A decoder that cannot say what a token is gives it no text, as an unknown id has none.
        contained::contained(decode).and_then(|result| result).unwrap_or_default()
    }

    /// Number of tokens, special and added ones included. A model's vocabulary may be padded
    /// beyond it.
    pub fn vocabulary_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// Ids that end a response: sorted, at least one.
    pub fn stop_tokens(&self) -> &[u32] {
        &self.stop_tokens
    }

    /// SHA-256 of `tokenizer.json`.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

/// Characters that are tried one by one to find the one without a token.
const MOST_CHARACTERS_TRIED: usize = 10_000;

/// How many times longer the rules of a `tokenizer.json` may make a text.
const MOST_GROWTH: f64 = 4096.0;

/// Rules are applied one after another, and each may make a text longer: thirty that double it
/// make gigabytes of one character. The product of what each can do at most is bounded.
fn growth_is_bounded(json: &Value) -> Result<(), String> {
    for part in ["normalizer", "pre_tokenizer", "decoder"] {
        let growth = json.get(part).map_or(1.0, growth);
        if growth > MOST_GROWTH {
            return Err(format!(
                "its {part} can make a text {growth:e} times longer, at most {MOST_GROWTH} is allowed"
            ));
        }
    }
    Ok(())
}

/// How many times longer a rule, and those inside it, can make a text.
fn growth(rule: &Value) -> f64 {
    let own = rule.as_object().map_or(1.0, |fields| {
        // `Replace` puts its content in place of a match, of nothing even, and `Prepend`, `Fuse`
        // and the like add theirs once.
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

fn largest_id(tokenizer: &tokenizers::Tokenizer) -> u32 {
    tokenizer.get_vocab(true).into_values().max().unwrap_or(0)
}

fn stop_tokens(folder: &Path, largest: u32) -> Result<Vec<u32>, Error> {
    for name in ["generation_config.json", "config.json"] {
        let path = folder.join(name);
        let config: Value = match files::read_json(&path) {
            Ok(config) => config,
            Err(files::Error::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let value = match config.get("eos_token_id") {
            None | Some(Value::Null) => continue,
            Some(value) => value,
        };
        let id = |value: &Value| value.as_u64().filter(|id| *id <= u64::from(largest));
        let ids: Option<Vec<u64>> = match value {
            Value::Array(values) if !values.is_empty() => values.iter().map(id).collect(),
            single => id(single).map(|id| vec![id]),
        };
        let Some(ids) = ids else {
            let vocabulary_size = largest as usize + 1;
            return Err(Error::StopToken { path, vocabulary_size, value: value.to_string() });
        };
        let mut ids: Vec<u32> = ids.into_iter().map(|id| id as u32).collect();
        ids.sort_unstable();
        ids.dedup();
        return Ok(ids);
    }
    Err(Error::NoStopToken { folder: folder.to_path_buf() })
}

/// The text that the policy continues.
pub fn render(problem: &Problem, template: PromptTemplate) -> String {
    match template {
        PromptTemplate::Question => problem.question.clone(),
        PromptTemplate::Dapo => template::wrap(&problem.question),
    }
}

/// No token of a text stands for more: Qwen's longest are runs of 128 spaces.
const MOST_BYTES_OF_A_TOKEN: u64 = 1024;

/// Renders and tokenizes a problem.
///
/// # Errors
/// When the prompt is empty, has more than `max_prompt_tokens` tokens (it is never cut), or
/// cannot be tokenized; the message names the problem.
pub fn prompt(
    problem: &Problem,
    template: PromptTemplate,
    tokenizer: &Tokenizer,
    max_prompt_tokens: u64,
) -> Result<Prompt, Error> {
    let id = problem.id.clone();
    let text = render(problem, template);
    if text.len() as u64 / MOST_BYTES_OF_A_TOKEN > max_prompt_tokens {
        return Err(Error::TooLongText { id, bytes: text.len(), limit: max_prompt_tokens });
    }
    let tokens = match tokenizer.encode(&text) {
        Ok(tokens) => tokens,
        Err(error) => return Err(Error::Problem { id, source: Box::new(error) }),
    };
    if tokens.is_empty() {
        return Err(Error::Empty { id });
    }
    if tokens.len() as u64 > max_prompt_tokens {
        return Err(Error::TooLong { id, tokens: tokens.len(), limit: max_prompt_tokens });
    }
    Ok(Prompt { problem: problem.clone(), tokens })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::mini_aime::tokenizer::write_tokenizer;

    fn folder(generation_config: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        write_tokenizer(folder.path()).unwrap();
        let path = folder.path().join("generation_config.json");
        files::write_atomic(&path, generation_config.as_bytes()).unwrap();
        folder
    }

    fn tokenizer() -> Tokenizer {
        Tokenizer::load(folder(r#"{"eos_token_id": 1}"#).path()).unwrap()
    }

    fn problem(question: &str) -> Problem {
        Problem { id: "dev/0001".into(), question: question.into(), answer: "1".into() }
    }

    #[test]
    fn mini_aime_texts_survive_encoding_and_decoding() {
        let tokenizer = tokenizer();
        for text in ["347+562*3+128?", "347+562=909;7+2=09,Answer: 855", "  ", ""] {
            let tokens = tokenizer.encode(text).unwrap();
            assert_eq!(tokens.len(), text.len());
            assert_eq!(tokenizer.decode(&tokens), text);
        }
        assert_eq!(
            tokenizer.encode("0a").unwrap_err().to_string(),
            r#"cannot tokenize "0a": 'a' is not in the vocabulary"#
        );
        assert_eq!(tokenizer.encode("09").unwrap(), [2, 11]);
        assert_eq!(tokenizer.vocabulary_size(), 26);
    }

    #[test]
    fn special_and_unknown_ids_have_no_text() {
        assert_eq!(tokenizer().decode(&[0, 2, 1, 99, 3]), "01");
    }

    #[test]
    fn stop_tokens_are_a_number_or_a_list_and_config_json_is_the_fallback() {
        let load = |text: &str| Tokenizer::load(folder(text).path());
        assert_eq!(load(r#"{"eos_token_id": 1}"#).unwrap().stop_tokens(), [1]);
        assert_eq!(load(r#"{"eos_token_id": [7, 1, 7]}"#).unwrap().stop_tokens(), [1, 7]);
        for bad in
            [r#"{"eos_token_id": 26}"#, r#"{"eos_token_id": []}"#, r#"{"eos_token_id": "x"}"#]
        {
            let error = load(bad).unwrap_err().to_string();
            assert!(error.contains("generation_config.json: eos_token_id must be"), "{error}");
        }
        let folder = folder("{}");
        let error = Tokenizer::load(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("no eos_token_id in generation_config.json or config.json"));
        let path = folder.path().join("config.json");
        files::write_atomic(&path, br#"{"eos_token_id": 3}"#).unwrap();
        assert_eq!(Tokenizer::load(folder.path()).unwrap().stop_tokens(), [3]);
    }

    #[test]
    fn a_prompt_longer_than_the_limit_is_an_error_that_names_the_problem() {
        let tokenizer = tokenizer();
        let question = problem("12+34?");
        let prompt = |limit| prompt(&question, PromptTemplate::Question, &tokenizer, limit);
        assert_eq!(prompt(6).unwrap().tokens, tokenizer.encode("12+34?").unwrap());
        let error = prompt(5).unwrap_err().to_string();
        assert_eq!(error, "problem dev/0001: its prompt has 6 tokens, max_prompt_tokens is 5");
    }

    #[test]
    fn an_empty_prompt_and_an_unknown_character_name_the_problem() {
        let tokenizer = tokenizer();
        let prompt = |text: &str| {
            prompt(&problem(text), PromptTemplate::Question, &tokenizer, 9).unwrap_err().to_string()
        };
        assert_eq!(prompt(""), "problem dev/0001: its prompt is empty");
        assert!(prompt("1-2").starts_with("problem dev/0001: cannot tokenize "));
    }

    #[test]
    fn the_dapo_template_is_the_released_text() {
        let text = render(&problem("What is 1+1?"), PromptTemplate::Dapo);
        assert_eq!(
            text,
            "Solve the following math problem step by step. The last line of your response \
             should be of the form Answer: $Answer (without quotes) where $Answer is the answer \
             to the problem.\n\nWhat is 1+1?\n\nRemember to put your answer on its own line after \
             \"Answer:\"."
        );
    }
}
