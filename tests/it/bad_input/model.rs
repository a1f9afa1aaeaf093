//! Checkpoints: config.json and safetensors.

use crate::bad_input::Case;
use crate::bad_input::scratch::{Scratch, garbage, half};

fn case(name: &'static str, make: fn(&Scratch), says: &'static [&'static str]) -> Case {
    Case { name, make, command: "train arm.toml --out run", code: 3, says }
}

const WEIGHTS: &str = "model.safetensors";
const NORM: &str = "model.norm.weight";

pub fn cases() -> Vec<Case> {
    let mut cases = weights();
    cases.extend(sizes());
    cases
}

/// A safetensors file with this header and no data.
fn header(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

fn weights() -> Vec<Case> {
    vec![
        case(
            "model folder missing",
            |s| s.arm("[inputs]\nmodel = \"nowhere\""),
            &["nowhere/tokenizer.json: No such file"],
        ),
        case(
            "weights missing",
            |s| {
                s.model();
                dapo::base::files::remove_file(&s.at("model/model.safetensors")).unwrap()
            },
            &["cannot read model/model.safetensors: No such file"],
        ),
        case(
            "weights as a pickle",
            |s| {
                s.model();
                dapo::base::files::remove_file(&s.at("model/model.safetensors")).unwrap();
                s.write("model/pytorch_model.bin", "x")
            },
            &[
                "model/pytorch_model.bin: a pickle is a program and is not read; convert it to safetensors",
            ],
        ),
        case(
            "one of several weight files missing",
            |s| {
                s.model();
                let folder = crate::golden_data::folder("qwen2/sharded-bf16");
                for name in ["model.safetensors.index.json", "config.json"] {
                    let text = dapo::base::files::read(&folder.join(name)).unwrap();
                    s.write(&format!("model/{name}"), text);
                }
                dapo::base::files::remove_file(&s.at("model/model.safetensors")).unwrap()
            },
            &["cannot read model/model-00001-of-00004.safetensors: No such file"],
        ),
        case(
            "an index that is no index",
            |s| {
                s.model();
                dapo::base::files::remove_file(&s.at("model/model.safetensors")).unwrap();
                s.write("model/model.safetensors.index.json", "{\"weight_map\": [1]}")
            },
            &[
                "model/model.safetensors.index.json: weight_map: invalid type: sequence, expected a map",
            ],
        ),
        case(
            "weights empty",
            |s| s.model_with(WEIGHTS, |_| Vec::new()),
            &["model/model.safetensors: not a valid safetensors file"],
        ),
        case(
            "weights truncated",
            |s| s.model_with(WEIGHTS, half),
            &["model/model.safetensors: not a valid safetensors file"],
        ),
        case(
            "weights are another format",
            |s| s.model_with(WEIGHTS, garbage),
            &["model/model.safetensors: not a valid safetensors file"],
        ),
        case(
            "weights whose header claims 2^60 bytes",
            |s| {
                s.model_with(WEIGHTS, |bytes| {
                    [&(1u64 << 60).to_le_bytes()[..], &bytes[8..]].concat()
                })
            },
            &["model/model.safetensors: not a valid safetensors file"],
        ),
        case(
            "weights whose shape overflows",
            |s| {
                s.model_with(WEIGHTS, |_| header("{\"x\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4611686018427387904],\"data_offsets\":[0,0]}}"))
            },
            &["model/model.safetensors: not a valid safetensors file"],
        ),
        case(
            "weights with an empty side and an absurd one",
            |s| {
                s.model_with(WEIGHTS, |_| header("{\"x\":{\"dtype\":\"F32\",\"shape\":[0,9223372036854775807],\"data_offsets\":[0,0]}}"))
            },
            &["model/model.safetensors: tensor x has shape [0, 9223372036854775807]"],
        ),
        case(
            "weights of integers",
            |s| {
                s.model_with(WEIGHTS, |_| {
                    [
                        header("{\"x\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}"),
                        vec![0; 8],
                    ]
                    .concat()
                })
            },
            &["tensor x has type I64, expected F32, BF16 or F16"],
        ),
        case(
            "a tensor missing",
            |s| {
                s.model_with_tensors(|t| {
                    t.remove(NORM);
                })
            },
            &["model/model.safetensors: tensor model.norm.weight is missing"],
        ),
        case(
            "a tensor too many",
            |s| {
                s.model_with_tensors(|t| {
                    t.insert("surprise".into(), (vec![1], vec![0.0]));
                })
            },
            &["model/model.safetensors: tensor surprise is not part"],
        ),
        case(
            "a tensor of another shape",
            |s| {
                s.model_with_tensors(|t| {
                    t.insert(NORM.into(), (vec![4], vec![1.0; 4]));
                })
            },
            &["tensor model.norm.weight has shape [4], expected [96]"],
        ),
        case(
            "a weight that is NaN",
            |s| s.model_with_tensors(|t| t.get_mut(NORM).unwrap().1[3] = f32::NAN),
            &["model/model.safetensors: tensor model.norm.weight holds NaN at element 3"],
        ),
        case(
            "a weight that is infinite",
            |s| s.model_with_tensors(|t| t.get_mut(NORM).unwrap().1[0] = f32::NEG_INFINITY),
            &["tensor model.norm.weight holds -inf at element 0"],
        ),
        Case {
            name: "generate from NaN weights",
            make: |s| {
                s.model_with_tensors(|t| t.get_mut(NORM).unwrap().1[3] = f32::NAN);
                s.write("p.jsonl", "{\"prompt\": \"1+1?\"}")
            },
            command: "model generate --model model --prompts p.jsonl",
            code: 3,
            says: &["holds NaN at element 3"],
        },
        Case {
            name: "score with truncated weights",
            make: |s| s.model_with(WEIGHTS, half),
            command: "model score --model model",
            code: 3,
            says: &["model/model.safetensors: not a valid safetensors file"],
        },
        Case {
            name: "evaluate a missing checkpoint",
            make: |s| s.arm(""),
            command: "eval arm.toml --model step-000040",
            code: 3,
            says: &["cannot read step-000040/tokenizer.json"],
        },
    ]
}

fn sizes() -> Vec<Case> {
    vec![
        case(
            "config.json missing",
            |s| {
                s.model();
                dapo::base::files::remove_file(&s.at("model/config.json")).unwrap()
            },
            &["cannot read model/config.json: No such file"],
        ),
        case(
            "config.json truncated",
            |s| s.model_with("config.json", half),
            &["model/config.json: EOF while parsing"],
        ),
        case(
            "config.json is a list",
            |s| s.model_with("config.json", |_| b"[]".to_vec()),
            &["model/config.json: model_type must be a string, got nothing"],
        ),
        case(
            "another architecture",
            |s| s.model_with_text("config.json", "\"qwen2\"", "\"mistral\""),
            &[
                "model/config.json: model_type = \"mistral\" is not supported: only dense qwen2, qwen3 and llama are",
            ],
        ),
        case(
            "no heads",
            |s| {
                s.model_with_text(
                    "config.json",
                    "\"num_attention_heads\": 3",
                    "\"num_attention_heads\": 0",
                )
            },
            &["model/config.json: num_attention_heads must be a positive integer, got 0"],
        ),
        case(
            "heads that do not divide the width",
            |s| {
                s.model_with("config.json", |bytes| {
                    let mut json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                    json.as_object_mut().unwrap().remove("head_dim");
                    json["num_attention_heads"] = 5.into();
                    json["num_key_value_heads"] = 5.into();
                    serde_json::to_vec(&json).unwrap()
                })
            },
            &[
                "model/config.json: num_attention_heads = 5 is not supported: it must divide hidden_size",
            ],
        ),
        case(
            "width of 2^40",
            |s| {
                s.model_with_text(
                    "config.json",
                    "\"hidden_size\": 96",
                    "\"hidden_size\": 1099511627776",
                )
            },
            &[
                "model/config.json: hidden_size = 1099511627776 is not supported: it is larger than that of any Qwen2 model",
            ],
        ),
        case(
            "two billion layers",
            |s| {
                s.model_with_text(
                    "config.json",
                    "\"num_hidden_layers\": 3",
                    "\"num_hidden_layers\": 2147483647",
                )
            },
            &["num_hidden_layers = 2147483647 is not supported"],
        ),
        case(
            "two billion positions",
            |s| {
                s.model_with_text(
                    "config.json",
                    "\"max_position_embeddings\": 256",
                    "\"max_position_embeddings\": 2147483647",
                )
            },
            &["max_position_embeddings = 2147483647 is not supported"],
        ),
        case(
            "size beyond 64 bits",
            |s| {
                s.model_with_text(
                    "config.json",
                    "\"hidden_size\": 96",
                    "\"hidden_size\": 99999999999999999999",
                )
            },
            &["model/config.json: hidden_size must be a positive integer, got 1e+20"],
        ),
        case(
            "size that is text",
            |s| s.model_with_text("config.json", "\"hidden_size\": 96", "\"hidden_size\": \"96\""),
            &["hidden_size must be a positive integer, got \"96\""],
        ),
        case(
            "config.json of a larger model",
            |s| {
                s.model_with_text(
                    "config.json",
                    "\"num_hidden_layers\": 3",
                    "\"num_hidden_layers\": 4",
                )
            },
            &["tensor model.layers.3.input_layernorm.weight is missing"],
        ),
        case(
            "JSON nested 100,000 deep",
            |s| s.model_with("config.json", |_| "[".repeat(100_000).into_bytes()),
            &["model/config.json: ", "recursion limit exceeded"],
        ),
    ]
}
