//! Parity with transformers on a real model, SmolLM2-135M-Instruct (golden/smollm2, see generate.py
//! there). `./justw smollm2` makes its folder; without it the tests say so and pass.

use crate::binary::{PROGRAM, ended, succeeded};
use crate::interruption::{kill, wait_until};
use crate::qwen2::{generated, greedy, native_logits};
use crate::transcript::play;
use crate::{golden_data, repository};
use dapo::algorithm::{Finish, Problem};
use dapo::base::files;
use dapo::experiment::{PromptExample, PromptSettings, PromptTemplate};
use dapo::numerics::{Instructions, fast, vectorised};
use dapo::policy::checkpoint;
use dapo::records::{Components, Message, RunFolder};
use dapo::task::{Tokenizer, prompt};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tch::{Kind, Tensor};

#[derive(Deserialize)]
struct Expected {
    new_tokens: usize,
    prompts: Vec<Prompt>,
    chats: Vec<Chat>,
    encodings: Vec<Encoding>,
}

#[derive(Deserialize)]
struct Prompt {
    text: String,
    ids: Vec<u32>,
    positions: Vec<Position>,
    greedy: Vec<u32>,
}

#[derive(Deserialize)]
struct Position {
    position: usize,
    log_sum_exp: f64,
    best_ids: Vec<usize>,
    best: Vec<f64>,
    every_96th: Vec<f64>,
}

#[derive(Deserialize)]
struct Chat {
    messages: Vec<Message>,
    add_generation_prompt: bool,
    text: String,
}

#[derive(Deserialize)]
struct Encoding {
    text: String,
    ids: Vec<u32>,
    decoded: String,
}

/// The model's folder and what transformers made of it; `None`, and a line that says so, without the folder.
fn model() -> Option<(PathBuf, Expected)> {
    let folder = repository::root().join("models/SmolLM2-135M-Instruct");
    if !folder.exists() {
        eprintln!("skipped: no {} (./justw smollm2 makes it)", folder.display());
        return None;
    }
    Some((folder, golden_data::read(&golden_data::folder("smollm2").join("expected.json"))))
}

#[test]
fn smollm2_has_the_pinned_files() {
    let Some((folder, _)) = model() else { return };
    play(&folder, "grep '  model.safetensors$' $ROOT/.ci/smollm2.sha256");
    play(&folder, "sha256sum --quiet -c $ROOT/.ci/smollm2.sha256");
}

#[test]
fn smollm2_logits_agree_with_transformers() {
    let Some((folder, expected)) = model() else { return };
    let model = checkpoint::load_model(&folder).unwrap();
    let (mut compared, mut most) = (0, BTreeMap::new());
    for Prompt { ids, positions, .. } in &expected.prompts {
        let tokens: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
        let logits = fast::without_graph(|| {
            model.logits(&model.forward(&Tensor::from_slice(&tokens).unsqueeze(0)))
        });
        let native = native_logits(&model, positions.iter().map(|p| &ids[..=p.position]));
        for (row, theirs) in positions.iter().enumerate() {
            let at = logits.get(0).get(theirs.position as i64).to_kind(Kind::Double);
            let mut engines = vec![("LibTorch", Vec::<f64>::try_from(at).unwrap())];
            if let Some(native) = &native {
                let wide = native.len() / positions.len();
                engines.push(("native", native[row * wide..][..wide].to_vec()));
            }
            for (engine, ours) in engines {
                let best = theirs.best_ids.iter().map(|&id| ours[id]).zip(&theirs.best);
                let spread = ours.iter().copied().step_by(96);
                assert_eq!(spread.len(), theirs.every_96th.len());
                let sum: f64 = ours.iter().map(|logit| logit.exp()).sum();
                let sum = [(sum.ln(), &theirs.log_sum_exp)];
                let pairs = best.chain(spread.zip(&theirs.every_96th)).chain(sum);
                for (ours, theirs) in pairs {
                    let most = most.entry(engine).or_insert(0.0_f64);
                    *most = most.max((ours - theirs).abs());
                    compared += 1;
                }
            }
        }
    }
    println!("{compared} values, most apart by engine: {most:?}");
    assert!(compared >= 20_000, "{compared} values");
    // Logits of up to 30.
    assert!(most.values().all(|most| *most <= 1e-4), "{most:?}");
}

#[test]
fn smollm2_answers_greedily_token_for_token_alone_and_in_a_batch() {
    let Some((folder, expected)) = model() else { return };
    let model = checkpoint::load_model(&folder).unwrap();
    let tokenizer = Tokenizer::load(&folder).unwrap();
    assert_eq!(tokenizer.stop_tokens(), [2]);
    let prompts = expected.prompts.iter().map(|prompt| prompt.ids.as_slice());
    for batch_rows in [1, 16] {
        let limits = greedy(expected.new_tokens, tokenizer.stop_tokens(), batch_rows);
        let responses = generated(&model, prompts.clone(), &limits);
        assert!(responses.iter().any(|response| response.finish == Finish::Stop));
        for (prompt, response) in expected.prompts.iter().zip(responses) {
            assert_eq!(response.tokens, prompt.greedy, "{:?}", prompt.text);
        }
    }
}

#[test]
fn smollm2_chats_are_rendered_and_texts_have_the_tokens_as_in_transformers() {
    let Some((folder, expected)) = model() else { return };
    let tokenizer = Tokenizer::load(&folder).unwrap();
    let template = tokenizer.chat_template().unwrap().unwrap();
    assert!(expected.chats.len() >= 16);
    for chat in &expected.chats {
        let text = template.render(&chat.messages, chat.add_generation_prompt).unwrap();
        assert_eq!(text, chat.text);
    }
    assert_eq!(expected.encodings.len(), 200);
    for Encoding { text, ids, decoded } in &expected.encodings {
        assert_eq!(&tokenizer.decode(ids), decoded, "{text:?}");
    }
    let encodings = expected.encodings.iter().map(|row| (&row.text, &row.ids));
    for (text, ids) in encodings.chain(expected.prompts.iter().map(|row| (&row.text, &row.ids))) {
        assert_eq!(&tokenizer.encode(text).unwrap(), ids, "{text:?}");
    }
}

#[derive(Deserialize)]
struct Continued {
    question: String,
    cases: Vec<ContinuedCase>,
}

#[derive(Deserialize)]
struct ContinuedCase {
    system: Option<String>,
    examples: Vec<PromptExample>,
    response_prefix: String,
    smollm2_ids: Vec<u32>,
}

#[test]
fn smollm2_prompts_with_a_begun_response_have_the_tokens_of_transformers() {
    let Some((folder, _)) = model() else { return };
    let tokenizer = Tokenizer::load(&folder).unwrap();
    let path = golden_data::folder("chat-template").join("continued.json");
    let Continued { question, cases } = golden_data::read(&path);
    assert_eq!(cases.len(), 8);
    for ContinuedCase { system, examples, response_prefix, smollm2_ids } in cases {
        let response_prefix = Some(response_prefix);
        let chat = PromptSettings::of(PromptTemplate::Chat);
        let settings = PromptSettings { system, examples, response_prefix, ..chat };
        let problem = Problem { id: "p".into(), question: question.clone(), answer: "7".into() };
        let prompt = prompt::prompt(&problem, &settings, &tokenizer, u64::MAX).unwrap();
        assert_eq!(prompt.tokens, smollm2_ids, "{settings:?}");
    }
}

/// Two steps of four groups. Nothing that a stranger's machine may have otherwise changes a bit: its
/// instruction set, the number of threads, how many rows are generated at once, a kill and a resume.
#[test]
fn two_steps_on_smollm2_have_the_same_bits_on_any_processor() {
    let tuned = repository::root().join("models/SmolLM2-135M-word-problems");
    if !tuned.exists() {
        eprintln!("skipped: no {} (./justw smollm2 makes it)", tuned.display());
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let parent = repository::root().join("experiments/smollm2/dapo.toml").display().to_string();
    for (name, text) in [
        ("train.jsonl", include_str!("smollm2/train.jsonl")),
        ("dev.jsonl", include_str!("smollm2/dev.jsonl")),
        ("two.toml", &include_str!("smollm2/two.toml").replace("PARENT", &parent)),
    ] {
        files::write_atomic(&scratch.path().join(name), text.as_bytes()).unwrap();
    }
    let train = |out: &str, flags: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["train", "two.toml", "--no-plan", "--out", out]);
        command.args(flags.split_whitespace()).current_dir(scratch.path());
        command
    };
    // What each step computed, of a run whose folder is needed no more: a checkpoint has 1.6 GB. The first
    // line of a ledger binds the settings themselves.
    let computed = |out: &str| -> Vec<Components> {
        let ledger = RunFolder::at(scratch.path().join(out)).ledger().unwrap();
        files::remove_folder(&scratch.path().join(out)).unwrap();
        ledger.into_iter().skip(1).map(|entry| entry.components).collect()
    };
    succeeded(ended(&mut train("plain", "--set checkpoints.every_steps=2")));
    let plain = computed("plain");
    let gradients: Vec<&String> = plain.iter().filter_map(|step| step.get("gradients")).collect();
    assert!(gradients.len() == 2 && gradients[0] != gradients[1], "both steps learned something");

    let flags =
        "--set checkpoints.every_steps=2 --set execution.generation_batch_rollouts=1 --threads 1";
    let mut other = train("other", flags);
    // Scalar loops take half an hour; `just isa` has them for small policies and the unit tests for products.
    if Instructions::Avx2 < vectorised::chosen() {
        other.env(vectorised::VARIABLE, Instructions::Avx2.name());
    }
    succeeded(ended(&mut other));
    assert_eq!(computed("other"), plain);

    let three_rows = "--set execution.generation_batch_rollouts=3";
    let mut killed = train("killed", three_rows).stderr(Stdio::null()).spawn().unwrap();
    let checkpoints = scratch.path().join("killed/checkpoints");
    // A folder with another name is still being written.
    wait_until(&mut killed, || checkpoints.join("step-000001").exists());
    kill(&mut killed);
    let (_, talk) = succeeded(ended(&mut train("killed", &format!("{three_rows} --resume"))));
    assert!(talk.contains("resuming"), "{talk}");
    assert_eq!(computed("killed"), plain);
}
