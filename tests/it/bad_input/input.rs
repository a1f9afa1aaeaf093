//! The steps that make the input of a case, as the tables write them.

use crate::{repository, run_fixture, tune, verify};
use dapo::algorithm::Problem;
use dapo::base::files;
use dapo::policy::checkpoint;
use dapo::records::{RunFolder, tables};
use dapo::task::data;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// One step; names of files are relative to the case's folder.
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Step {
    /// What is ready: see [`given`].
    Given(String),
    /// A line for the shell.
    Shell { sh: String },
    /// `arm.toml`, an arm of the smoke experiment with this text.
    Arm { arm: String },
    /// A file of this text.
    Write { write: String, text: String },
    /// A text after what is there, so many times.
    Append { append: String, text: String, times: Option<usize> },
    /// A file whose bytes are the characters' numbers.
    Bytes { write: String, latin1: String },
    /// The first place of a text replaced.
    Replace { edit: String, from: String, to: String },
    /// Values of a JSON file, or of every line of a `.jsonl` file, by their path (`a > b`), as JSON.
    /// With a number, of that line alone.
    Set { edit: String, set: BTreeMap<String, String>, line: Option<usize> },
    /// The first half of what is there.
    Half { half: String },
    /// Nothing of what was there.
    Garbage { garbage: String },
    /// `model/model.safetensors`: a header and so many zeros.
    Safetensors { safetensors: String, zeros: usize },
    /// A tensor of `model/`: of another shape and all ones, with one other element, or removed.
    Tensor { tensor: String, shape: Option<Vec<i64>>, element: Option<usize>, value: Option<f32> },
    /// What is done to the run: see [`verify::tamper`].
    Tamper { tamper: String },
    /// `set.parquet` in the released schema: these questions.
    Problems { problems: Vec<String> },
}

impl Step {
    pub fn take(&self, folder: &Path) {
        let write = |name: &str, content: &[u8]| {
            files::write_atomic(&folder.join(name), content).unwrap();
        };
        let edit = |name: &str, change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
            write(name, &change(files::read(&folder.join(name)).unwrap()));
        };
        match self {
            Self::Given(name) => given(folder, name),
            Self::Shell { sh } => shell(folder, sh),
            Self::Arm { arm } => write("arm.toml", smoke_arm(arm).as_bytes()),
            Self::Write { write: name, text } => write(name, text.as_bytes()),
            Self::Append { append, text, times } => edit(append, &|bytes| {
                [bytes, text.repeat(times.unwrap_or(1)).into_bytes()].concat()
            }),
            Self::Bytes { write: name, latin1 } => {
                write(name, &latin1.chars().map(|c| c as u8).collect::<Vec<u8>>());
            }
            Self::Replace { edit: name, from, to } => edit(name, &|bytes| {
                let text = String::from_utf8(bytes).unwrap();
                assert!(text.contains(from), "{name} has no {from}");
                text.replacen(from, to, 1).into_bytes()
            }),
            Self::Set { edit: name, set, line } => edit(name, &|bytes| {
                change_json(name, bytes, *line, &|json| {
                    for (path, value) in set {
                        *at(json, path) = serde_json::from_str(value).unwrap();
                    }
                })
            }),
            Self::Tamper { tamper } => verify::tamper(&RunFolder::at(folder.join("run")), tamper),
            Self::Half { half } => edit(half, &|bytes| bytes[..bytes.len() / 2].to_vec()),
            Self::Garbage { garbage } => {
                write(garbage, b"\x00\x1b]52;c;aGk=\x07 not what it should be \xff\xfe");
            }
            Self::Safetensors { safetensors, zeros } => {
                let length = (safetensors.len() as u64).to_le_bytes();
                let content = [&length[..], safetensors.as_bytes(), &vec![0; *zeros]].concat();
                write("model/model.safetensors", &content);
            }
            Self::Tensor { tensor, shape, element, value } => {
                let model = checkpoint::load_model(&folder.join("model")).unwrap();
                let mut tensors = checkpoint::values(&model);
                if let Some(shape) = shape {
                    let values = vec![1.0; shape.iter().product::<i64>() as usize];
                    tensors.insert(tensor.clone(), (shape.clone(), values));
                } else if let (Some(element), Some(value)) = (element, value) {
                    tensors.get_mut(tensor).unwrap().1[*element] = *value;
                } else {
                    tensors.remove(tensor).unwrap();
                }
                checkpoint::write_tensors(&folder.join("model/model.safetensors"), &tensors)
                    .unwrap();
            }
            Self::Problems { problems } => {
                let problem = |question: &String| Problem {
                    id: format!("x/{question}"),
                    question: question.clone(),
                    answer: "200".into(),
                };
                let problems: Vec<Problem> = problems.iter().map(problem).collect();
                data::write(&folder.join("set.parquet"), &problems, true).unwrap();
            }
        }
    }
}

/// What a step names alone.
fn given(folder: &Path, name: &str) {
    let write = |name: &str, content: &str| {
        files::write_atomic(&folder.join(name), content.as_bytes()).unwrap();
    };
    let run = RunFolder::at(folder.join("run"));
    match name {
        // A copy of the base policy, and an arm that starts from it.
        "model" => {
            shell(folder, "mkdir model && cp $ROOT/golden/mini-aime/base/* model");
            write("arm.toml", &smoke_arm("[inputs]\nmodel = \"model\""));
        }
        "experiments" => shell(folder, "ln -s $ROOT/experiments ."),
        // A link to the base policy.
        "base" => shell(folder, "ln -s $ROOT/golden/mini-aime/base ."),
        "policy, prompts and problems" => {
            given(folder, "base");
            write("p.jsonl", "{\"prompt\": \"1+1?\"}");
            write("problems.jsonl", "{\"question\": \"100+100?\", \"answer\": 200}\n");
        }
        "reward.py" => {
            let head =
                "def compute_score(data_source, solution_str, ground_truth, extra_info=None)";
            write(name, &format!("{head}: return float(solution_str == ground_truth)\n"));
        }
        // An arm on files: `train.jsonl`, `dev.jsonl` and `test.jsonl`, one problem each.
        "data" => {
            for (name, question) in
                [("train", "100+100?"), ("dev", "200+200?"), ("test", "300+300?")]
            {
                let line = format!("{{\"question\": \"{question}\", \"answer\": 200}}\n");
                write(&format!("{name}.jsonl"), &line);
            }
            let arm = "[evaluation]\nsamples = { dev = 1, test = 1 }\n[inputs.data]\nkind = \"files\"\n\
                       train = \"train.jsonl\"\ndev = \"dev.jsonl\"\ntest = [\"test.jsonl\"]";
            write("arm.toml", &smoke_arm(arm));
        }
        // The walkthrough's problems and a model.
        "own problems" => {
            given(folder, "model");
            shell(
                folder,
                "for set in train dev test; do cp $ROOT/experiments/own-task/$set.jsonl .; done",
            );
        }
        "tuning" => {
            write("recipe.toml", tune::RECIPE);
            write("solutions.jsonl", &tune::solutions());
        }
        // A run that was trained, with its report.
        "trained run" => verify::copy(verify::finished_once(), run.root()),
        "forged" => verify::forge(&run),
        // A made-up finished run.
        "run" => drop(run_fixture::finished(run.root())),
        "run that has started" => drop(run_fixture::started(run.root())),
        "a gigabyte of tokens" => {
            let mut rows = run_fixture::rollouts(40);
            rows.truncate(4);
            for row in &mut rows {
                row.tokens = vec![7; 9_000_000];
                row.rollout_log_probs = Vec::new();
            }
            tables::write_rollouts(&run.rollouts(40), &rows).unwrap();
        }
        "outcomes.parquet" => tables::write_outcomes(&folder.join("set.parquet"), &[]).unwrap(),
        "thirty rules" => {
            let rule =
                json!({"type": "Replace", "pattern": {"String": "1"}, "content": "1111111111"});
            let rules = json!({"type": "Sequence", "normalizers": vec![rule; 30]});
            let set = [("normalizer".to_string(), rules.to_string())].into();
            Step::Set { edit: "model/tokenizer.json".into(), set, line: None }.take(folder);
        }
        "listed cell" => {
            let cell = json!({
                "index": 0, "title": "g/a seed 1", "run": "a", "run_key": "k",
                "experiment": "experiments/a.json", "folder": "runs/a", "record": "cells/a.json",
            });
            write("study/cells.jsonl", &format!("{cell}\n"));
        }
        "recipe" => shell(folder, "cp $ROOT/golden/mini-aime/recipe.toml ."),
        "grid" => {
            write("arm.toml", &smoke_arm("name = \"arm\""));
            let grid = "name = \"g\"\nquestion = \"?\"\nbase = \"arm.toml\"\nseeds = [1]\n\
                        primary_set = \"mini-aime\"\n[[arms]]\nname = \"a\"\nlabel = \"a\"\n";
            write("grid.toml", grid);
        }
        _ => panic!("{name:?} is no step"),
    }
}

/// An arm of the smoke experiment.
fn smoke_arm(text: &str) -> String {
    let smoke = repository::root().join("experiments/smoke.toml");
    format!("extends = {:?}\n{text}", smoke.display())
}

/// A JSON file changed; of a `.jsonl` file every line, or one.
fn change_json(
    name: &str,
    bytes: Vec<u8>,
    line: Option<usize>,
    change: &dyn Fn(&mut Value),
) -> Vec<u8> {
    let changed = |text: &str| {
        let mut json: Value = serde_json::from_str(text).unwrap();
        change(&mut json);
        format!("{json}\n")
    };
    let text = String::from_utf8(bytes).unwrap();
    if !name.ends_with(".jsonl") {
        return changed(&text).into_bytes();
    }
    let is_meant = |index: usize| line.is_none_or(|line| line == index);
    let lines = text.lines().enumerate();
    let lines = lines
        .map(|(index, text)| if is_meant(index) { changed(text) } else { format!("{text}\n") });
    lines.collect::<String>().into_bytes()
}

/// The value at a path such as `a > 0 > b`; the whole for an empty one.
pub fn at<'a>(json: &'a mut Value, path: &str) -> &'a mut Value {
    path.split(" > ").filter(|key| !key.is_empty()).fold(json, |json, key| match json {
        Value::Array(items) => &mut items[key.parse::<usize>().unwrap()],
        object => &mut object[key],
    })
}

/// Runs a line in a folder; `ROOT` is the repository.
pub fn shell(folder: &Path, line: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-ec", line]).current_dir(folder).env("ROOT", repository::root());
    assert!(shell.status().unwrap().success(), "{line}");
}
