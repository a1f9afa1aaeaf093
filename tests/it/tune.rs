//! `dapo model tune` on a small policy: what it writes, what it learns, what it refuses.

use crate::binary::{line_in, succeeded};
use crate::repository;
use crate::transcript::play;
use dapo::base::{Purpose, files, rng};
use dapo::experiment::extends;
use dapo::policy::checkpoint;
use dapo::task::data::embedded::word_problems::WordProblems;
use dapo::task::{Embedded, Solutions, Tokenizer, prompt};
use dapo::training::{TuneRecipe, tuning};
use serde_json::Value;

pub const RECIPE: &str = include_str!("tune/recipe.toml");

/// A folder with a recipe and solutions in a form that the base policy does not know.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("recipe.toml", RECIPE), ("solutions.jsonl", &solutions())] {
        files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
    }
    folder
}

/// `=;=;Answer: 114` to `107+7?`, which the base policy never writes.
pub fn solutions() -> String {
    let line = |number: u64| {
        let question = format!("{}+{}?", 100 + number, 7 * number % 90);
        let answer = (100 + number + 7 * number % 90) % 1000;
        format!("{{\"question\": \"{question}\", \"solution\": \"=;=;Answer: {answer}\"}}\n")
    };
    (0..60).map(line).collect()
}

#[test]
fn a_tuned_policy_is_a_whole_folder_with_the_same_bits_each_time() {
    let folder = folder();
    let base = repository::root().join("golden/mini-aime/base").display().to_string();
    let line = format!("model tune {base} --recipe recipe.toml --out b");
    let (out, _) = succeeded(line_in(folder.path(), &line));
    insta::assert_snapshot!("tune", out);
    play(folder.path(), include_str!("tune/same_bits.txt"));
    checkpoint::load_model(&folder.path().join("a")).unwrap();
    let record: Value = files::read_json(&folder.path().join("a/tune.json")).unwrap();
    let updates = record["updates"].as_array().unwrap();
    let loss = |number: usize| updates[number]["loss"].as_f64().unwrap();
    assert!(updates.len() == 6 && loss(5) < 0.7 * loss(0), "{updates:?}");
    let digest = files::sha256_file(&folder.path().join("a/model.safetensors")).unwrap();
    assert_eq!(record["sha256"]["model.safetensors"], digest);
    assert_eq!(record["key"]["recipe"]["solutions"], "solutions.jsonl");
    assert_eq!(record["after"]["problems"], 8);
}

#[test]
fn a_result_that_is_there_is_not_computed_again_and_another_folder_is_kept() {
    play(folder().path(), include_str!("tune/there_already.txt"));
}

#[test]
fn a_chat_template_of_the_recipe_becomes_the_tuned_policys() {
    let folder = folder();
    let template = "{% for message in messages %}{{ message['content'] }}{% if message['role'] == \
                    'assistant' %};{% endif %}{% endfor %}";
    files::write_atomic(&folder.path().join("chat.jinja"), template.as_bytes()).unwrap();
    play(folder.path(), include_str!("tune/chat_template.txt"));
}

#[test]
fn word_problems_in_the_chat_of_smollm2_fit_into_40_tokens_and_solutions_into_48() {
    let root = repository::root();
    let base = root.join("models/SmolLM2-135M-Instruct");
    if !base.exists() {
        eprintln!("skipped: no {} (./justw smollm2 makes it)", base.display());
        return;
    }
    let folder = root.join("experiments/smollm2");
    let text = files::read_text(&folder.join("recipe.toml")).unwrap();
    let mut recipe: TuneRecipe = toml::from_str(&text).unwrap();
    recipe.start_from(&folder);
    let experiment = extends::load(&folder.join("dapo.toml")).unwrap();
    assert_eq!(recipe.template, experiment.prompt.template);
    let scratch = tempfile::tempdir().unwrap();
    tuning::write_companions(&recipe, &base, scratch.path()).unwrap();
    let tokenizer = Tokenizer::load(scratch.path()).unwrap();
    let stop = tuning::stop_token(&tokenizer, recipe.template, scratch.path()).unwrap();
    assert_eq!((stop, tokenizer.stop_tokens()), (2, &[2][..]));
    let sets = WordProblems.sets();
    let evaluated = sets.evaluated().flat_map(|(_, problems)| problems);
    let limit = experiment.rollout.max_prompt_tokens;
    let length = |problem| {
        prompt::prompt(problem, &recipe.prompt(), &tokenizer, limit).unwrap().tokens.len()
    };
    let lengths: Vec<usize> = sets.train.iter().chain(evaluated).map(length).collect();
    assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&25), Some(&37)));
    let first = prompt::render(&sets.train[0], &recipe.prompt(), &tokenizer).unwrap();
    let question = &sets.train[0].question;
    assert_eq!(first, format!("<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"));
    for index in 0..500u64 {
        let mut draws = rng::stream(1, Purpose::Pretraining, &[index.into()]);
        let written = WordProblems.write(&recipe.stages[0].shares, 48, &mut draws);
        let tokens = tokenizer.encode(&written.solution).unwrap().len() + 1;
        assert!(tokens as u64 <= experiment.rollout.max_response_tokens, "{written:?}");
    }
}
