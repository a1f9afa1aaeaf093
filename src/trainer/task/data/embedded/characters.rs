//! A tokenizer with one token a character, digits too. Any other character is an error in every reader, since the
//! unknown token that the Hugging Face format asks for is not in the vocabulary.

use crate::base::files;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Padding; never part of a prompt or response.
pub const PAD_TOKEN: &str = "<pad>";
pub const PAD_TOKEN_ID: u32 = 0;
pub const EOS_TOKEN: &str = "<eos>";
pub const EOS_TOKEN_ID: u32 = 1;

pub fn vocabulary_size(alphabet: &str) -> usize {
    2 + characters(alphabet).len()
}

/// Writes the tokenizer's files, the same bytes on every machine. `alphabet` has the ids from 2 on.
pub fn write_tokenizer(folder: &Path, alphabet: &str) -> Result<(), files::FileError> {
    files::write_json(&folder.join("tokenizer.json"), &tokenizer(alphabet))?;
    files::write_json(&folder.join("tokenizer_config.json"), &tokenizer_config())
}

fn characters(alphabet: &str) -> Vec<char> {
    let mut seen = BTreeSet::new();
    alphabet.chars().filter(|character| seen.insert(*character)).collect()
}

fn tokenizer(alphabet: &str) -> Value {
    let special = |id: u32, content: &str| {
        json!({
            "id": id, "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true,
        })
    };
    let mut vocabulary = serde_json::Map::new();
    vocabulary.insert(PAD_TOKEN.into(), PAD_TOKEN_ID.into());
    vocabulary.insert(EOS_TOKEN.into(), EOS_TOKEN_ID.into());
    for (index, character) in characters(alphabet).into_iter().enumerate() {
        vocabulary.insert(character.to_string(), (index + 2).into());
    }
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [special(PAD_TOKEN_ID, PAD_TOKEN), special(EOS_TOKEN_ID, EOS_TOKEN)],
        "normalizer": null,
        // Any character, newline too, in Rust's regex engine and Oniguruma (Python's wheel): their "dot all" differ.
        "pre_tokenizer": {
            "type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated",
            "invert": false,
        },
        "post_processor": null,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    })
}

fn tokenizer_config() -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": EOS_TOKEN,
        "pad_token": PAD_TOKEN,
        // Without one, transformers 5 adds a token of its own beyond the vocabulary.
        "unk_token": PAD_TOKEN,
        "clean_up_tokenization_spaces": false,
        "model_max_length": 512,
        "model_input_names": ["input_ids", "attention_mask"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINI_AIME: &str = "0123456789+*=;,?: Answer";

    #[test]
    fn the_vocabulary_has_digits_at_2_to_11_and_every_id_once() {
        let tokenizer = tokenizer(MINI_AIME);
        let vocabulary = tokenizer["model"]["vocab"].as_object().unwrap();
        for digit in 0..10 {
            assert_eq!(vocabulary[&digit.to_string()], digit + 2);
        }
        let mut ids: Vec<_> = vocabulary.values().map(|id| id.as_u64().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..26).collect::<Vec<_>>());
        assert_eq!(vocabulary_size(MINI_AIME), 26);
    }

    #[test]
    fn the_files_are_the_same_bytes_each_time() {
        let write = || {
            let folder = tempfile::tempdir().unwrap();
            write_tokenizer(folder.path(), MINI_AIME).unwrap();
            ["tokenizer.json", "tokenizer_config.json"]
                .map(|name| files::sha256_file(&folder.path().join(name)).unwrap())
        };
        assert_eq!(write(), write());
    }
}
