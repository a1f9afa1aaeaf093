//! What a policy with a byte-level vocabulary can emit, and where it is shown.

use crate::bad_input::{acts, input::shell};
use crate::binary::{json_lines, line_in, succeeded};
use crate::fuzz;
use crate::transcript::play;
use dapo::base::files;
use dapo::policy::{Qwen2, checkpoint};
use dapo::task::Tokenizer;

/// A folder with the byte-level tokenizer, and a random policy over its 258 tokens.
fn byte_level() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    shell(folder.path(), "cp $ROOT/golden/tokenizers/byte-level.json tokenizer.json");
    let config = fuzz::tiny(258, 256);
    files::write_json(&folder.path().join("config.json"), &config.to_json(1, 0)).unwrap();
    let values = checkpoint::values(&Qwen2::initialise(config, 3));
    checkpoint::write_tensors(&folder.path().join("model.safetensors"), &values).unwrap();
    folder
}

#[test]
fn every_byte_has_a_token_and_half_a_character_decodes_to_a_replacement() {
    let folder = byte_level();
    let tokenizer = Tokenizer::load(folder.path()).unwrap();
    let text = "a\u{e9}\u{20ac}\u{1f600}\n\u{1b}[2J";
    let tokens = tokenizer.encode(text).unwrap();
    let bytes: Vec<u32> = text.bytes().map(|byte| u32::from(byte) + 2).collect();
    assert_eq!(tokens, bytes);
    assert_eq!(tokenizer.decode(&tokens), text);
    // The first two of the four bytes of U+1F600.
    let half = &tokenizer.encode("\u{1f600}").unwrap()[..2];
    assert_eq!(tokenizer.decode(half), "\u{fffd}");
    assert_eq!(tokenizer.decode(&[0xff + 2, 0x80 + 2, 1]), "\u{fffd}\u{fffd}");
    assert_eq!(tokenizer.decode(&[2]), "\0");
}

#[test]
fn whatever_a_policy_emits_its_line_of_json_prints_and_keeps_its_value() {
    let folder = byte_level();
    let prompts = folder.path().join("prompts.jsonl");
    files::write_atomic(&prompts, b"{\"prompt\": \"\\u001b]52;c;aGk=\\u0007\"}\n").unwrap();
    let generate = "model generate -n 64 --max-tokens 120 --prompts prompts.jsonl --model .";
    let (stdout, _) = succeeded(line_in(folder.path(), generate));
    assert_eq!(stdout.lines().count(), 64);
    assert_eq!(stdout.chars().find(acts), None);
    let tokenizer = Tokenizer::load(folder.path()).unwrap();
    let mut emitted = String::new();
    for line in json_lines(&stdout) {
        let ids: Vec<u32> = serde_json::from_value(line["response_ids"].clone()).unwrap();
        assert_eq!(line["text"], tokenizer.decode(&ids));
        emitted += line["text"].as_str().unwrap();
    }
    // Otherwise the test would pass on harmless text.
    assert!(emitted.contains('\u{fffd}') && emitted.contains('\u{1b}'), "{emitted:?}");
}

#[test]
fn a_session_begins_in_no_folder_that_has_a_link() {
    play(tempfile::tempdir().unwrap().path(), include_str!("hostile/link.txt"));
}
