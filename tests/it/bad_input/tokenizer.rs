//! tokenizer.json and the stop tokens.

use crate::bad_input::Case;
use crate::bad_input::scratch::{Scratch, garbage, half};

fn case(name: &'static str, make: fn(&Scratch), says: &'static [&'static str]) -> Case {
    Case { name, make, command: "train arm.toml --out run", code: 3, says }
}

const FILE: &str = "tokenizer.json";

fn change(bytes: Vec<u8>, change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let mut json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    change(&mut json);
    serde_json::to_vec(&json).unwrap()
}

pub fn cases() -> Vec<Case> {
    vec![
        case(
            "tokenizer missing",
            |s| {
                s.model();
                dapo::base::files::remove_file(&s.at("model/tokenizer.json")).unwrap()
            },
            &["cannot read model/tokenizer.json: No such file"],
        ),
        case(
            "tokenizer truncated",
            |s| s.model_with(FILE, half),
            &["model/tokenizer.json: not a tokenizer: "],
        ),
        case(
            "tokenizer is not JSON",
            |s| s.model_with(FILE, garbage),
            &["model/tokenizer.json: not a tokenizer: "],
        ),
        case(
            "tokenizer is another JSON",
            |s| s.model_with(FILE, |_| b"{\"model\": 3}".to_vec()),
            &["model/tokenizer.json: not a tokenizer: "],
        ),
        case(
            "tokenizer with a token beyond the vocabulary",
            |s| {
                s.model_with(FILE, |bytes| {
                    change(bytes, |json| json["model"]["vocab"]["~"] = 4000.into())
                })
            },
            &[
                "model/tokenizer.json: token \"~\" has id 4000, the model's vocabulary has only 26 rows",
            ],
        ),
        case(
            "tokenizer with fewer characters than the problems",
            |s| {
                s.model_with(FILE, |bytes| {
                    change(bytes, |json| {
                        json["model"]["vocab"].as_object_mut().unwrap().remove("+");
                    })
                })
            },
            &["cannot tokenize", "'+' is not in the vocabulary"],
        ),
        Case {
            name: "generate with a token beyond the vocabulary",
            make: |s| {
                s.model_with(FILE, |bytes| {
                    change(bytes, |json| json["model"]["vocab"]["~"] = 4000.into())
                });
                s.write("p.jsonl", "{\"prompt\": \"~\"}");
            },
            command: "model generate --model model --prompts p.jsonl",
            code: 3,
            says: &["token \"~\" has id 4000"],
        },
        case(
            "no stop token",
            |s| {
                s.model_with("generation_config.json", |_| b"{}".to_vec());
                s.write(
                    "model/config.json",
                    change(dapo::base::files::read(&s.at("model/config.json")).unwrap(), |json| {
                        json.as_object_mut().unwrap().remove("eos_token_id");
                    }),
                );
            },
            &["model: no eos_token_id in generation_config.json or config.json"],
        ),
        case(
            "stop token that is no token",
            |s| s.model_with("generation_config.json", |_| b"{\"eos_token_id\": 4000}".to_vec()),
            &[
                "model/generation_config.json: eos_token_id must be a token id below 26 or a list of them, got 4000",
            ],
        ),
        case(
            "generation_config.json truncated",
            |s| s.model_with("generation_config.json", half),
            &["model/generation_config.json: EOF while parsing"],
        ),
    ]
}
