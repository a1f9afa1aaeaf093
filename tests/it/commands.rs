//! The verbs that outsiders feed: generate, score, eval; and the base policy's provenance.

use crate::binary::{dapo, dapo_given, succeeded};
use crate::{golden_data, repository};
use clap::CommandFactory;
use dapo::base::files;
use dapo::commands::Cli;
use serde_json::{Value, json};

fn run(arguments: &[&str], input: &str) -> (i32, Vec<Value>, String) {
    let (code, text, talk) = dapo_given(&repository::root(), arguments, input.as_bytes());
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    (code, lines, talk)
}

fn base() -> String {
    golden_data::folder("mini-aime/base").display().to_string()
}

fn prompts(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prompts.jsonl");
    files::write_atomic(&path, text.as_bytes()).unwrap();
    (folder, path.display().to_string())
}

const QUESTIONS: &str = "{\"prompt\": \"347+562*3?\"}\n{\"prompt\": \"100+100+100?\"}\n{\"prompt_ids\": [4, 5, 6, 12, 7]}\n";

#[test]
fn a_draw_depends_on_seed_prompt_and_sample_and_not_on_the_batch() {
    let (_folder, path) = prompts(QUESTIONS);
    let base = base();
    let generate = |batch: &str, seed: &str| {
        let line = format!(
            "model generate --model {base} --prompts {path} -n 6 --seed {seed} --batch {batch} --top-p 0.9"
        );
        let (code, lines, talk) = run(&line.split(' ').collect::<Vec<_>>(), "");
        assert_eq!((code, lines.len()), (0, 18), "{talk}");
        lines.iter().map(|line| line["response_ids"].clone()).collect::<Vec<_>>()
    };
    let alone = generate("1", "1");
    assert_eq!(alone, generate("5", "1"));
    assert_eq!(alone, generate("256", "1"));
    assert_ne!(alone, generate("256", "2"));
}

#[test]
fn scoring_a_generated_response_gives_back_its_log_probs() {
    let (_folder, path) = prompts(QUESTIONS);
    let base = base();
    for temperature in ["1.0", "0.7"] {
        let line = format!(
            "model generate --model {base} --prompts {path} -n 2 --temperature {temperature}"
        );
        let (_, generated, _) = run(&line.split(' ').collect::<Vec<_>>(), "");
        let response = |line: &Value| {
            let (prompt, response) = (&line["prompt_ids"], &line["response_ids"]);
            format!("{}\n", json!({"prompt_ids": prompt, "response_ids": response}))
        };
        let input: String = generated.iter().map(response).collect();
        let arguments = ["model", "score", "--model", &base, "--temperature", temperature];
        let (code, scored, talk) = run(&arguments, &input);
        assert_eq!((code, scored.len()), (0, generated.len()), "{talk}");
        for (generated, scored) in generated.iter().zip(&scored) {
            let numbers = |value: &Value| -> Vec<f64> {
                value.as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect()
            };
            let (sampler, trainer) =
                (numbers(&generated["log_probs"]), numbers(&scored["log_probs"]));
            assert_eq!(sampler.len(), trainer.len());
            for (a, b) in sampler.iter().zip(&trainer) {
                assert!((a - b).abs() < 1e-4, "{a} {b}");
            }
            // Entropy of 26 tokens, in nats.
            let entropy = numbers(&scored["entropy"]);
            assert!(entropy.iter().all(|h| (-1e-6..=26f64.ln()).contains(h)), "{entropy:?}");
        }
    }
}

#[test]
fn the_committed_base_policy_is_the_one_that_its_digest_names() {
    let folder = golden_data::folder("mini-aime");
    let noted = files::read_text(&folder.join("SHA256SUMS")).unwrap();
    let mut checked = 0;
    for line in noted.lines() {
        let (digest, name) = line.split_once("  ").unwrap();
        assert_eq!(files::sha256_file(&folder.join(name)).unwrap(), digest, "{name}");
        checked += 1;
    }
    assert!(checked >= 5 && noted.contains("base/model.safetensors"));
}

#[test]
fn evaluation_records_are_printed_as_json_and_reproducible() {
    let base_file = format!("{}/experiments/smoke.toml", env!("CARGO_MANIFEST_DIR"));
    let arguments = ["eval", &base_file, "--evaluation-set", "dev", "--samples", "2", "--json"];
    let (code, first, talk) = run(&arguments, "");
    assert_eq!((code, first.len()), (0, 1), "{talk}");
    assert_eq!(first, run(&arguments, "").1);
    assert_eq!(first[0]["problems"], 64);
    assert_eq!(first[0]["samples"], 2);
    let (code, _, talk) = run(&["eval", &base_file, "--evaluation-set", "aime"], "");
    assert!(code == 2 && talk.contains("there are dev, mini-aime"), "{talk}");
}

#[test]
fn throughput_measures_batches_and_an_update_of_any_checkpoint() {
    let base = base();
    let measure = |more: &[&str]| -> Value {
        let lengths = ["--prompt-tokens", "8", "--new-tokens", "100", "--repetitions", "3"];
        let bench = ["bench", "throughput", "--model", &base, "--batch", "1,3", "--json"];
        let (out, _) = succeeded(dapo(&[&bench[..], &lengths, more].concat()));
        serde_json::from_str(&out).unwrap()
    };
    let positive = |value: &Value| assert!(value.as_f64().unwrap() > 0.0, "{value}");
    for weights in ["f32", "bf16"] {
        let found = measure(&["--weights", weights, "--train-rows", "3", "--pass-tokens", "32"]);
        assert_eq!((&found["weights"], &found["device"]), (&json!(weights), &json!("cpu")));
        let batches = found["generation"].as_array().unwrap();
        assert_eq!(batches.iter().map(|one| &one["batch"]).collect::<Vec<_>>(), [1, 3]);
        for one in batches {
            positive(&one["tokens_per_second"]);
            positive(&one["bandwidth_limit"]);
        }
        assert_eq!(found["training"]["tokens"], 3 * 108);
        positive(&found["training"]["tokens_per_second"]);
        positive(&found["bandwidth"]);
    }
    assert_eq!(measure(&[])["training"], Value::Null);
}

#[test]
fn few_verbs_are_listed() {
    let listed = Cli::command().get_subcommands().filter(|verb| !verb.is_hide_set()).count();
    assert!(listed <= 20, "{listed} verbs");
}
