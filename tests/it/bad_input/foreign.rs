//! Run folders and checkpoints that somebody made to do harm: names that leave the folder, links
//! and pipes, files that expand, claims of terabytes.

use crate::bad_input::Case;
use crate::bad_input::scratch::Scratch;
use crate::run_fixture;
use dapo::base::files;
use dapo::records::tables;
use rustix::fs::{CWD, FileType, Mode};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;

fn case(
    name: &'static str,
    make: fn(&Scratch),
    command: &'static str,
    code: i32,
    says: &'static [&'static str],
) -> Case {
    Case { name, make, command, code, says }
}

fn refused(name: &'static str, make: fn(&Scratch), says: &'static [&'static str]) -> Case {
    case(name, make, "report run", 3, says)
}

pub fn cases() -> Vec<Case> {
    let mut cases = paths();
    cases.extend(texts());
    cases.extend(tables());
    cases.extend(weights());
    cases.extend(tokenizers());
    cases
}

/// A file of a run replaced by a link.
fn link(s: &Scratch, name: &str, to: &str) {
    let path = s.run().path(name);
    files::remove_file(&path).unwrap();
    symlink(to, path).unwrap();
}

/// Every line of a JSON-lines file of a run changed.
fn lines(s: &Scratch, name: &str, change: fn(&mut Value)) {
    s.run_with(name, |bytes| {
        let text = String::from_utf8(bytes).unwrap();
        let changed = text.lines().map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            change(&mut line);
            format!("{line}\n")
        });
        changed.collect::<String>().into_bytes()
    });
}

/// One more digest in `outcome.json`.
fn digest_of(s: &Scratch, name: &str) {
    s.run_with("outcome.json", |bytes| {
        let mut outcome: Value = serde_json::from_slice(&bytes).unwrap();
        outcome["digests"][name] = json!("0");
        outcome.to_string().into_bytes()
    });
}

fn paths() -> Vec<Case> {
    vec![
        refused(
            "an evaluation's set is a path",
            |s| {
                s.write("outside-step-000000.parquet", "mine");
                lines(s, "evaluations.jsonl", |line| line["set"] = json!("../../outside"));
            },
            &[
                "run: \"../../outside\" names nothing inside this folder",
                "not a plain relative path",
            ],
        ),
        case(
            "a digest's name is a path out of the folder",
            |s| digest_of(s, "../outside"),
            "report run",
            0,
            &["../outside names nothing inside the folder"],
        ),
        case(
            "a digest's name is a device without end",
            |s| digest_of(s, "/dev/zero"),
            "report run",
            0,
            &["/dev/zero names nothing inside the folder"],
        ),
        refused(
            "metrics.jsonl is a link to a device without end",
            |s| link(s, "metrics.jsonl", "/dev/zero"),
            &["\"metrics.jsonl\" names nothing inside this folder", "is a link"],
        ),
        refused(
            "experiment.json is a link to another file",
            |s| link(s, "experiment.json", "/etc/hostname"),
            &["\"experiment.json\" names nothing inside this folder"],
        ),
        refused(
            "evaluations is a link to another folder",
            |s| {
                let run = s.run();
                files::replace_folder(&run.path("evaluations"), &s.at("elsewhere")).unwrap();
                symlink(s.at("elsewhere"), run.path("evaluations")).unwrap();
            },
            &["names nothing inside this folder: evaluations is a link"],
        ),
        refused(
            "timings.jsonl is a pipe that nobody writes to",
            |s| {
                let path = s.run().path("timings.jsonl");
                files::remove_file(&path).unwrap();
                rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
            },
            &["\"timings.jsonl\" names nothing inside this folder"],
        ),
        case(
            "config diff: experiment.json is a link to a device without end",
            |s| link(s, "experiment.json", "/dev/zero"),
            "config diff run run",
            3,
            &["\"experiment.json\" names nothing inside this folder"],
        ),
        case(
            "runs: a lock that is a link",
            |s| {
                s.run();
                symlink("../made", s.at("run/run.lock")).unwrap();
            },
            "runs .",
            0,
            &["| damaged", "run.lock: it is no regular file"],
        ),
        case(
            "gc: a lock that is a link makes no file elsewhere",
            |s| {
                s.run();
                s.write("run/.partial-x", "left");
                symlink("../made", s.at("run/run.lock")).unwrap();
            },
            "runs gc .",
            0,
            &["nothing"],
        ),
    ]
}

fn texts() -> Vec<Case> {
    vec![
        refused(
            "metrics.jsonl with a line of 2 MB",
            |s| s.run_with("metrics.jsonl", |_| vec![b'1'; 2 << 20]),
            &["run/metrics.jsonl:1: a line of more than 1048576 bytes"],
        ),
        refused(
            "metrics.jsonl of 2 million blank lines",
            |s| s.run_with("metrics.jsonl", |_| vec![b'\n'; 2 << 20]),
            &["run/metrics.jsonl:1048577: the file has more than 1048576 lines"],
        ),
        refused(
            "timings.jsonl of 70 MB",
            |s| {
                s.run_with("timings.jsonl", |_| {
                    let line = format!("{{\"step\":1,\"seconds\":{{}}}}{}\n", " ".repeat(900_000));
                    line.repeat(78).into_bytes()
                })
            },
            &["run/timings.jsonl:75: the file has more than 67108864 bytes"],
        ),
        refused(
            "manifest.json of a terabyte of holes",
            |s| {
                let path = s.run().path("manifest.json");
                s.holes(&path, 1 << 40)
            },
            &["run/manifest.json: larger than 16777216 bytes"],
        ),
        refused(
            "outcomes of a hundred gigabytes of holes",
            |s| {
                let path = s.run().path("evaluations/dev-step-000000.parquet");
                s.holes(&path, 100 << 30)
            },
            &["dev-step-000000.parquet: of its 107374182400 bytes almost all are holes"],
        ),
        refused(
            "weights of a terabyte of holes",
            |s| {
                let path = s.run().path("checkpoints/step-000040/model.safetensors");
                s.holes(&path, 1 << 40)
            },
            &["model.safetensors: larger than 274877906944 bytes"],
        ),
        refused(
            "metrics.jsonl 100,000 deep",
            |s| s.run_with("metrics.jsonl", |_| "{\"metrics\":".repeat(90_000).into_bytes()),
            &["run/metrics.jsonl:1: "],
        ),
        refused(
            "outcome.json 100,000 deep",
            |s| s.run_with("outcome.json", |_| "[".repeat(100_000).into_bytes()),
            &["run/outcome.json: "],
        ),
        refused(
            "metrics.jsonl with a metric twice in a line",
            |s| {
                s.run_with("metrics.jsonl", |bytes| {
                    let text = String::from_utf8(bytes).unwrap();
                    let twice = "\"metrics\":{\"loss/value\":0.5,\"loss/value\":0.5,";
                    text.replacen("\"metrics\":{", twice, 1).into_bytes()
                })
            },
            &["run/metrics.jsonl:1: duplicate field `loss/value`"],
        ),
        refused(
            "manifest.json with an input twice",
            |s| {
                s.run_with("manifest.json", |bytes| {
                    let text = String::from_utf8(bytes).unwrap();
                    text.replacen("\"data/train\":", "\"tokenizer\": \"x\", \"data/train\":", 1)
                        .into_bytes()
                })
            },
            &["run/manifest.json: duplicate field `tokenizer`"],
        ),
        refused(
            "metrics.jsonl with a number beyond all numbers",
            |s| {
                s.run_with("metrics.jsonl", |bytes| {
                    let text = String::from_utf8(bytes).unwrap();
                    text.replacen("\"step\":1", "\"step\":1e999", 1).into_bytes()
                })
            },
            &["run/metrics.jsonl:1: ", "number out of range"],
        ),
        refused(
            "environment.json with a NUL byte",
            |s| s.run_with("environment.json", |_| b"{\"facts\": {\"a\0b\": \"c\"}}".to_vec()),
            &["run/environment.json: ", "control character"],
        ),
        case(
            "metrics.jsonl counts to the end of 64 bits",
            |s| {
                lines(s, "metrics.jsonl", |line| {
                    line["counters"]["updates"] = json!(u64::MAX);
                    line["counters"]["generation_rounds"] = json!(u64::MAX);
                })
            },
            "report run",
            0,
            &["not so: "],
        ),
    ]
}

fn tables() -> Vec<Case> {
    vec![
        refused(
            "table of 12 kB that expands to a gigabyte",
            |s| {
                let mut rows = run_fixture::rollouts(40);
                rows.truncate(4);
                for row in &mut rows {
                    row.tokens = vec![7; 9_000_000];
                    row.rollout_log_probs = Vec::new();
                }
                tables::write_rollouts(&s.run().rollouts(40), &rows).unwrap();
            },
            &["rollouts/step-000040.parquet: not a readable parquet file: it claims to expand to"],
        ),
        refused(
            "table with a page over which polars aborts",
            |s| {
                s.run_with("evaluations/dev-step-000040.parquet", |_| {
                    include_bytes!("abort.parquet").to_vec()
                })
            },
            &[
                "dev-step-000040.parquet: not a readable parquet file: damaged (reading it takes more",
            ],
        ),
        refused(
            "table of 5 GB of holes",
            |s| {
                let path = s.run().path("rollouts/step-000040.parquet");
                s.holes(&path, 5 << 30)
            },
            &["rollouts/step-000040.parquet: larger than 536870912 bytes"],
        ),
    ]
}

/// A safetensors file: a header and so many zeros.
fn safetensors(header: &str, zeros: usize) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], header.as_bytes(), &vec![0; zeros]].concat()
}

fn model(name: &'static str, make: fn(&Scratch), says: &'static [&'static str]) -> Case {
    case(name, make, "train arm.toml --out run", 3, says)
}

const WEIGHTS: &str = "model.safetensors";

fn weights() -> Vec<Case> {
    vec![
        model(
            "a header longer than its file",
            |s| {
                s.model_with(WEIGHTS, |mut bytes| {
                    bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
                    bytes
                })
            },
            &["its header claims 18446744073709551615 bytes"],
        ),
        model(
            "a header of 99 MB of blanks",
            |s| s.model_with(WEIGHTS, |_| safetensors(&" ".repeat(99_000_000), 0)),
            &["its header claims 99000000 bytes"],
        ),
        model(
            "a tensor named twice",
            |s| {
                s.model_with(WEIGHTS, |_| {
                    safetensors("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8)
                })
            },
            &["model.safetensors: ", "duplicate field `x`"],
        ),
        model(
            "tensors that overlap",
            |s| {
                s.model_with(WEIGHTS, |_| {
                    safetensors("{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12)
                })
            },
            &["model.safetensors: not a valid safetensors file: header: ", "ffset"],
        ),
        model(
            "a gap between tensors",
            |s| {
                s.model_with(WEIGHTS, |_| {
                    safetensors("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}", 12)
                })
            },
            &["model.safetensors: not a valid safetensors file: header: ", "ffset"],
        ),
        model(
            "a shape that its bytes do not fill",
            |s| {
                s.model_with(WEIGHTS, |_| {
                    safetensors(
                        "{\"x\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,8]}}",
                        8,
                    )
                })
            },
            &["model.safetensors: not a valid safetensors file: header: "],
        ),
        model(
            "bytes after the last tensor",
            |s| s.model_with(WEIGHTS, |bytes| [bytes, vec![0; 3]].concat()),
            &["its tensors end at byte"],
        ),
        model(
            "tensors of four terabytes in a file with holes",
            |s| {
                s.model();
                let header = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1048576,1048576],\"data_offsets\":[0,4398046511104]}}";
                s.write("model/model.safetensors", safetensors(header, 0));
                s.holes(&s.at("model/model.safetensors"), 8 + header.len() as u64 + (1 << 42));
            },
            &["its tensors need 4398046511104 bytes, this machine has"],
        ),
        model(
            "a vocabulary of 16 million tokens that the file has not",
            |s| s.model_with_text("config.json", "\"vocab_size\": 26", "\"vocab_size\": 16777216"),
            &["model.safetensors: tensor model.embed_tokens.weight has shape [26, 96]"],
        ),
        model(
            "a table of positions of four terabytes",
            |s| {
                s.model_with("config.json", |bytes| {
                    let mut json: Value = serde_json::from_slice(&bytes).unwrap();
                    json["head_dim"] = json!(1 << 20);
                    json["max_position_embeddings"] = json!(1 << 20);
                    json.to_string().into_bytes()
                })
            },
            &["config.json: max_position_embeddings = 1048576 is not supported"],
        ),
    ]
}

/// `tokenizer.json` with a part replaced.
fn part(s: &Scratch, name: &str, value: Value) {
    s.model_with("tokenizer.json", |bytes| {
        let mut json: Value = serde_json::from_slice(&bytes).unwrap();
        json[name] = value;
        json.to_string().into_bytes()
    });
}

fn tokenizers() -> Vec<Case> {
    vec![
        model(
            "tokenizer of 65 MB of holes",
            |s| {
                s.model();
                s.holes(&s.at("model/tokenizer.json"), 65 << 20)
            },
            &["model/tokenizer.json: larger than 67108864 bytes"],
        ),
        model(
            "tokenizer 100,000 deep",
            |s| s.model_with("tokenizer.json", |_| "{\"a\":".repeat(100_000).into_bytes()),
            &["model/tokenizer.json: not a tokenizer: recursion limit exceeded"],
        ),
        model(
            "thirty rules that make a text ten times longer",
            |s| {
                let rule =
                    json!({"type": "Replace", "pattern": {"String": "1"}, "content": "1111111111"});
                part(s, "normalizer", json!({"type": "Sequence", "normalizers": vec![rule; 30]}))
            },
            &["model/tokenizer.json: not a tokenizer: its normalizer can make a text"],
        ),
        model(
            "a pattern that compiles to gigabytes",
            |s| {
                let pattern = json!({"Regex": "(?:(?:(?:\\pL{1000}){1000}){1000}){1000}"});
                part(
                    s,
                    "pre_tokenizer",
                    json!({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false}),
                )
            },
            &["model/tokenizer.json: not a tokenizer: "],
        ),
        case(
            "padding to a terabyte is not asked for",
            |s| {
                let padding = json!({"strategy": {"Fixed": 1u64 << 40}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "<pad>"});
                part(s, "padding", padding);
                s.write("prompts.jsonl", "{\"prompt\": \"1+1?\"}\n");
            },
            "model generate --model model --prompts prompts.jsonl --max-tokens 2",
            0,
            &["prompt_ids"],
        ),
    ]
}
