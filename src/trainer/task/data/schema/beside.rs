//! Columns that belong to a question and that its prompt does not have.

use crate::records::Message;
use crate::task::data::{schema::as_text, words};
use serde_json::{Map, Value};

/// Keys of what belongs to the question in known sets (MMLU, ARC, SVAMP, SQuAD, MedMCQA, COPA, GLUE): no prompt has them.
#[rustfmt::skip]
pub const BESIDE_QUESTIONS: [&str; 31] = [
    "choices", "options", "endings", "candidates", "A", "B", "C", "D", "option_a", "option_b",
    "opa", "opb", "choice1", "choice2", "body", "context", "contexts", "ctx", "passage", "passages",
    "paragraph", "article", "document", "documents", "story", "background", "premise", "hypothesis",
    "sentence1", "input", "table",
];

pub const MEDIA: [&str; 6] = ["image", "images", "video", "videos", "audio", "audios"];

pub fn unseen(row: &Map<String, Value>, read: [&str; 2], prompt: &[Message]) -> Vec<String> {
    let is_beside = |key: &str| {
        let is_read = |read: &str| read.split('.').next().unwrap_or(read).eq_ignore_ascii_case(key);
        let is_known =
            |known: &&str| *known == key || (key.len() > 1 && known.eq_ignore_ascii_case(key));
        BESIDE_QUESTIONS.iter().chain(&MEDIA).any(is_known) && !read.into_iter().any(is_read)
    };
    let mut beside = row.iter().filter(|(key, _)| is_beside(key)).peekable();
    if beside.peek().is_none() {
        return Vec::new();
    }
    let prompt: String = prompt.iter().map(|message| message.content.clone() + "\n").collect();
    let prompt = words(&prompt);
    beside.filter(|(_, value)| !is_shown(value, &prompt)).map(|(key, _)| key.clone()).collect()
}

fn is_shown(value: &Value, prompt: &str) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.iter().all(|value| is_shown(value, prompt)),
        Value::Object(inner) => inner.values().all(|value| is_shown(value, prompt)),
        plain => prompt.contains(&words(&as_text(plain))),
    }
}
