use super::*;
use crate::base::files;
use std::path::Path;

/// One token a byte: id 2 + b.
fn tokenizer() -> Tokenizer {
    tokenizer_with(br#"{"eos_token_id": 1}"#)
}

fn tokenizer_with(config: &[u8]) -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    let golden =
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/tokenizers/byte-level.json"));
    let write =
        |name: &str, bytes: &[u8]| files::write_atomic(&folder.path().join(name), bytes).unwrap();
    write("tokenizer.json", &files::read(golden).unwrap());
    write("config.json", config);
    Tokenizer::load(folder.path()).unwrap()
}

fn bytes(bytes: &[u8]) -> Vec<u32> {
    bytes.iter().map(|byte| u32::from(*byte) + 2).collect()
}

/// Tokens up to the one that ends the response, and its text.
fn ended(tokens: &[u32], stop: &[&str]) -> (Option<usize>, String) {
    let tokenizer = tokenizer();
    let stop: Vec<String> = stop.iter().map(ToString::to_string).collect();
    let text = ResponseText::new(&tokenizer, Some("So "), &stop);
    let end = (1..=tokens.len()).find(|&count| text.is_complete(&tokens[..count]));
    (end, text.of(&tokens[..end.unwrap_or(tokens.len())]))
}

#[test]
fn a_response_ends_at_the_token_that_completes_the_first_stop_string() {
    for (response, stop, end, text) in [
        (&b"2+2=4</answer> and"[..], &["</answer>"][..], Some(14), "So 2+2=4"),
        (b"a\n\nQuestion: b", &["\n\nQuestion:", "b"], Some(12), "So a"),
        (b"ab", &["ab"], Some(2), "So "),
        (b"</answe", &["</answer>"], None, "So </answe"),
        // The one that stands first in the text, whatever the order of the list.
        (b"xyz", &["z", "yz"], Some(3), "So x"),
        ("caf\u{e9}\u{1f600}!".as_bytes(), &["\u{e9}\u{1f600}"], Some(9), "So caf"),
        // The beginning that the prompt has does not end it.
        (b"a So", &["So "], None, "So a So"),
        (b"anything", &[], None, "So anything"),
    ] {
        assert_eq!(ended(&bytes(response), stop), (end, text.to_string()), "{response:?}");
    }
}

#[test]
fn bytes_that_are_no_text_and_special_tokens_hide_no_stop_string() {
    let odd = [&bytes(&[0xff, 0xc3, b'S'])[..], &[0; 40], &bytes(b"TOP")].concat();
    assert_eq!(ended(&odd, &["STOP"]), (Some(46), "So \u{fffd}\u{fffd}".to_string()));
    let long = "-".repeat(255) + "|";
    let tokens = [bytes(&[b'x'; 3000]), bytes(long.as_bytes())].concat();
    assert_eq!(ended(&tokens, &[&long]).0, Some(3256));
}

#[test]
fn a_stop_token_is_not_in_the_text_though_it_is_not_special() {
    let tokenizer = tokenizer_with(br#"{"eos_token_id": 12}"#);
    let text = ResponseText::new(&tokenizer, None, &[]);
    assert_eq!(text.of(&bytes(b"Answer: 5\n")), "Answer: 5");
    assert_eq!(text.of(&bytes(b"Answer: 5")), "Answer: 5");
    assert_eq!(text.of(&[]), "");
}

#[test]
fn a_stop_string_that_no_response_can_have_is_refused() {
    let tokenizer = tokenizer();
    assert!(check_stop("--stop", &tokenizer, &["</answer>".to_string()]).is_ok());
    let refused = check_stop("rollout.stop", &tokenizer, &["a<eos>".to_string()]);
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused
            .contains("rollout.stop: the stop string \"a<eos>\" has the special token \"<eos>\""),
        "{refused}"
    );
}
