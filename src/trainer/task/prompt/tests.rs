//! Tests of templates and tokenizers.

use super::*;
use crate::experiment::{PromptExample, PromptTemplate};
use crate::task::data::embedded::characters::write_tokenizer;
use serde_json::json;

fn folder(generation_config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_tokenizer(folder.path(), "0123456789+*=;,?: Answer").unwrap();
    let path = folder.path().join("generation_config.json");
    files::write_atomic(&path, generation_config.as_bytes()).unwrap();
    folder
}

fn tokenizer() -> Tokenizer {
    Tokenizer::load(folder(r#"{"eos_token_id": 1}"#).path()).unwrap()
}

fn plain(template: PromptTemplate) -> PromptSettings {
    PromptSettings::of(template)
}

fn full(template: PromptTemplate) -> PromptSettings {
    let example = PromptExample { question: "1+1?".into(), response: " Answer: 2".into() };
    PromptSettings {
        system: Some("S".into()),
        examples: vec![example],
        response_prefix: Some(" So".into()),
        ..plain(template)
    }
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
    assert_eq!(tokenizer.inner.get_vocab_size(true), 26);
}

#[test]
fn special_and_unknown_ids_have_no_text() {
    assert_eq!(tokenizer().decode(&[0, 2, 1, 99, 3]), "01");
}

#[test]
fn the_longest_text_of_a_token_is_found_among_the_tokens_and_not_below_the_largest_id() {
    assert_eq!(tokenizer().most_characters(), 1);
    // Four billion ids would take hours.
    let with_answer = |json: &mut Value| json["model"]["vocab"]["Answer"] = (u32::MAX - 1).into();
    assert_eq!(changed(with_answer, &[]).unwrap().most_characters(), 6);
}

#[test]
fn stop_tokens_are_a_number_or_a_list_and_config_json_is_the_fallback() {
    let load = |text: &str| Tokenizer::load(folder(text).path());
    assert_eq!(load(r#"{"eos_token_id": 1}"#).unwrap().stop_tokens(), [1]);
    assert_eq!(load(r#"{"eos_token_id": [7, 1, 7]}"#).unwrap().stop_tokens(), [1, 7]);
    for bad in [r#"{"eos_token_id": 26}"#, r#"{"eos_token_id": []}"#, r#"{"eos_token_id": "x"}"#] {
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
    let prompt = |limit| prompt(&question, &plain(PromptTemplate::Question), &tokenizer, limit);
    assert_eq!(prompt(6).unwrap().tokens, tokenizer.encode("12+34?").unwrap());
    let error = prompt(5).unwrap_err().to_string();
    assert_eq!(error, "problem dev/0001: its prompt has 6 tokens, max_prompt_tokens is 5");
}

#[test]
fn an_empty_prompt_and_an_unknown_character_name_the_problem() {
    let tokenizer = tokenizer();
    let prompt = |text: &str| {
        prompt(&problem(text), &plain(PromptTemplate::Question), &tokenizer, 9)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(prompt(""), "problem dev/0001: its prompt is empty");
    assert!(prompt("1-2").starts_with("problem dev/0001: cannot tokenize "));
}

#[test]
fn the_dapo_template_is_the_released_text() {
    let text =
        render(&problem("What is 1+1?"), &plain(PromptTemplate::Dapo), &tokenizer()).unwrap();
    assert_eq!(
        text,
        "Solve the following math problem step by step. The last line of your response \
         should be of the form Answer: $Answer (without quotes) where $Answer is the answer \
         to the problem.\n\nWhat is 1+1?\n\nRemember to put your answer on its own line after \
         \"Answer:\"."
    );
}

#[test]
fn a_chat_template_goes_around_the_question_or_the_released_instruction() {
    let folder = folder(r#"{"eos_token_id": 1}"#);
    let tokenizer = || Tokenizer::load(folder.path()).unwrap();
    let text = |template| render(&problem("1+1?"), &plain(template), &tokenizer());
    let refusal = text(PromptTemplate::Chat).unwrap_err().to_string();
    assert!(refusal.contains("no chat template: neither chat_template.jinja nor"), "{refusal}");
    let chat = "{{ messages[0].role }}:{{ messages[0].content }}>";
    files::write_atomic(&folder.path().join("chat_template.jinja"), chat.as_bytes()).unwrap();
    assert_eq!(text(PromptTemplate::Chat).unwrap(), "user:1+1?>");
    let both = text(PromptTemplate::DapoChat).unwrap();
    assert_eq!(both, format!("user:{}>", template::wrap("1+1?")));
}

#[test]
fn system_examples_and_the_beginning_of_the_response_stand_around_a_plain_question() {
    let text = |template| render(&problem("2+2?"), &full(template), &tokenizer()).unwrap();
    assert_eq!(text(PromptTemplate::Question), "S\n\n1+1? Answer: 2\n\n2+2? So");
    let [before, asked] = ["1+1?", "2+2?"].map(template::wrap);
    assert_eq!(text(PromptTemplate::Dapo), format!("S\n\n{before} Answer: 2\n\n{asked} So"));
}

#[test]
fn variables_of_the_chat_template_are_those_of_the_settings() {
    let folder = folder(r#"{"eos_token_id": 1}"#);
    let chat = "{% for m in messages %}{{ m.content }}{% endfor %}{{ n }}";
    files::write_atomic(&folder.path().join("chat_template.jinja"), chat.as_bytes()).unwrap();
    let tokenizer = Tokenizer::load(folder.path()).unwrap();
    let mut settings = plain(PromptTemplate::Chat);
    settings.chat_template_kwargs.insert("n".into(), 7.into());
    assert_eq!(render(&problem("1?"), &settings, &tokenizer).unwrap(), "1?7");
    settings.response_prefix = Some("2".into());
    assert_eq!(render(&problem("1?"), &settings, &tokenizer).unwrap(), "1?2");
    settings.chat_template_kwargs.insert("mm".into(), 7.into());
    let refusal = render(&problem("1?"), &settings, &tokenizer).unwrap_err().to_string();
    assert!(refusal.contains("the template has no variable mm; it reads n"), "{refusal}");
}

#[test]
fn in_a_chat_they_are_messages_and_the_last_one_goes_on() {
    let folder = folder(r#"{"eos_token_id": 1}"#);
    let chat = "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}";
    files::write_atomic(&folder.path().join("chat_template.jinja"), chat.as_bytes()).unwrap();
    let tokenizer = Tokenizer::load(folder.path()).unwrap();
    let text = |template| render(&problem("2+2?"), &full(template), &tokenizer).unwrap();
    let expected = "[system|S][user|1+1?][assistant| Answer: 2][user|2+2?][assistant| So";
    assert_eq!(text(PromptTemplate::Chat), expected);
    let [before, asked] = ["1+1?", "2+2?"].map(template::wrap);
    let expected =
        format!("[system|S][user|{before}][assistant| Answer: 2][user|{asked}][assistant| So");
    assert_eq!(text(PromptTemplate::DapoChat), expected);
}

#[test]
fn a_plain_prompt_begins_and_does_not_end_as_the_post_processor_says_and_a_chat_is_as_written() {
    let token = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
    let sequence = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
    let special = |id: &str, number: u32| json!({"id": id, "ids": [number], "tokens": [id]});
    let template = json!({
        "type": "TemplateProcessing",
        "single": [token("0"), sequence("A"), token("1")],
        "pair": [sequence("A"), sequence("B")],
        "special_tokens": {"0": special("0", 2), "1": special("1", 3)},
    });
    let chain = json!({"type": "Sequence", "processors": [template]});
    for processor in [template, chain] {
        let folder = changed_folder(|json| json["post_processor"] = processor);
        let chat = folder.path().join("chat_template.jinja");
        files::write_atomic(&chat, b"{{ messages[0].content }}").unwrap();
        let tokenizer = Tokenizer::load(folder.path()).unwrap();
        let tokens = |text: &str, template| {
            prompt(&problem(text), &plain(template), &tokenizer, 9).map(|prompt| prompt.tokens)
        };
        // The text's own tokens of these kinds stay.
        let own = tokenizer.encode("011").unwrap();
        assert_eq!(tokens("011", PromptTemplate::Chat).unwrap(), own);
        let expected = [&[2][..], &own].concat();
        assert_eq!(tokens("011", PromptTemplate::Question).unwrap(), expected);
        let empty = tokens("", PromptTemplate::Question).unwrap_err().to_string();
        assert_eq!(empty, "problem dev/0001: its prompt is empty");
    }
}

#[test]
fn a_folder_without_a_tokenizer_is_named_with_what_helps() {
    for (name, words) in [
        ("vocab.json", "it has vocab.json and no tokenizer.json; AutoTokenizer.from_pretrained("),
        ("tokenizer.model", "it has tokenizer.model and no tokenizer.json"),
        ("adapter_config.json", "merge_and_unload and save_pretrained"),
        ("a.gguf", "a.gguf is a GGUF file"),
        ("README.md", "tokenizer.json: No such file"),
    ] {
        let folder = folder(r#"{"eos_token_id": 1}"#);
        files::remove_file(&folder.path().join("tokenizer.json")).unwrap();
        files::write_atomic(&folder.path().join(name), b"{}").unwrap();
        let error = Tokenizer::load(folder.path()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// The tokenizer of these characters whose `tokenizer.json` a function has changed.
fn changed_folder(change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let folder = folder(r#"{"eos_token_id": 1}"#);
    let path = folder.path().join("tokenizer.json");
    let mut json: Value = files::read_json(&path).unwrap();
    change(&mut json);
    files::write_json(&path, &json).unwrap();
    folder
}

/// Loaded, beside other files.
fn changed(
    change: impl FnOnce(&mut Value),
    others: &[(&str, Value)],
) -> Result<Tokenizer, TaskError> {
    let folder = changed_folder(change);
    for (name, value) in others {
        files::write_json(&folder.path().join(name), value).unwrap();
    }
    Tokenizer::load(folder.path())
}

#[test]
fn tokens_that_files_beside_a_tokenizer_add_must_be_in_it() {
    let config = "tokenizer_config.json";
    let decoder = json!({"added_tokens_decoder": {"26": {"content": "<think>"}}});
    for (name, value) in [
        (config, decoder),
        (config, json!({"additional_special_tokens": ["<think>"]})),
        (config, json!({"extra_special_tokens": {"think": "<think>"}})),
        (config, json!({"bos_token": "<think>"})),
        ("added_tokens.json", json!({"<think>": 26})),
        ("special_tokens_map.json", json!({"unk_token": {"content": "<think>"}})),
    ] {
        let refusal = changed(|_| (), &[(name, value.clone())]).unwrap_err().to_string();
        assert!(refusal.contains("it has no token \"<think>\", and "), "{value}: {refusal}");
        let text = value.to_string().replace("<think>", "0");
        let known = serde_json::from_str(&text).unwrap();
        assert!(changed(|_| (), &[(name, known)]).is_ok(), "{value}");
    }
}

#[test]
fn tokens_that_files_beside_a_tokenizer_name_are_special_as_in_transformers() {
    let config = "tokenizer_config.json";
    let plain = json!({"content": "=", "lstrip": false, "normalized": false, "rstrip": false,
        "single_word": false, "special": false});
    let [mut special, mut wide] = [plain.clone(), plain.clone()];
    special["special"] = json!(true);
    wide["rstrip"] = json!(true);
    let own = |json: &mut Value| {
        let mut token = plain.clone();
        token["id"] = json["model"]["vocab"]["="].clone();
        json["added_tokens"].as_array_mut().unwrap().push(token);
    };
    let unchanged = |_: &mut Value| ();
    let change: [&dyn Fn(&mut Value); 2] = [&own, &unchanged];
    for (value, text, tokens) in [
        (json!({"eos_token": "="}), "12", 4),
        (json!({"eos_token": {"content": "="}}), "12", 4),
        (json!({"additional_special_tokens": ["="]}), "12", 4),
        (json!({"extra_special_tokens": {"a": "="}}), "12", 4),
        (json!({"added_tokens_decoder": {"9": special}}), "12", 4),
        (json!({"added_tokens_decoder": {"9": wide}, "pad_token": "="}), "12", 3),
        (json!({"added_tokens_decoder": {"9": wide}}), "1=2", 3),
        (json!({"added_tokens_decoder": {"9": plain}}), "1= 2", 4),
        (json!({"eos_token": "<eos>"}), "1= 2", 4),
    ] {
        for change in change {
            let tokenizer = changed(change, &[(config, value.clone())]).unwrap();
            let ids = tokenizer.encode("1= 2").unwrap();
            let ids_without = tokenizer.encode("12").unwrap();
            let spaced = if tokens == 3 { "" } else { " " };
            let expected = text.replace("12", &format!("1{spaced}2"));
            assert_eq!((ids.len(), tokenizer.decode(&ids)), (tokens, expected), "{value}");
            assert_eq!(ids_without, changed(unchanged, &[]).unwrap().encode("12").unwrap());
        }
    }
}

#[test]
fn a_tokenizer_that_drops_merges_at_random_is_refused() {
    for (dropout, is_refused) in [(json!(0.5), true), (json!(0.0), false), (Value::Null, false)] {
        let loaded = changed(|json| json["model"]["dropout"] = dropout.clone(), &[]);
        let refusal = loaded.map_or_else(|error| error.to_string(), |_| String::new());
        assert_eq!(refusal.contains("set it to null in the file"), is_refused, "{refusal}");
    }
}

#[test]
fn a_text_is_started_once() {
    let processor = json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "7", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"7": {"id": "7", "ids": [9], "tokens": ["7"]}},
    });
    let tokenizer = changed(|json| json["post_processor"] = processor, &[]).unwrap();
    assert_eq!(tokenizer.encode("12").unwrap(), [3, 4]);
    assert_eq!(tokenizer.encode_once_started("12").unwrap(), [9, 3, 4]);
    assert_eq!(tokenizer.encode_once_started("712").unwrap(), [9, 3, 4]);
}
