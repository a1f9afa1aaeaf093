//! The verbs that outsiders feed: generate, score, eval; and the base policy's provenance.

use crate::binary::{dapo_given, json, json_lines, line_in, succeeded};
use crate::transcript::play;
use crate::{golden_data, repository};
use dapo::base::files;
use serde_json::{Value, json};

/// The lines of JSON of a call that succeeds with this on standard input.
fn run(line: &str, input: &str) -> Vec<Value> {
    let words: Vec<&str> = line.split(' ').collect();
    json_lines(&succeeded(dapo_given(&repository::root(), &words, input.as_bytes())).0)
}

/// `dapo model generate` from three prompts.
fn generate(flags: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prompts.jsonl");
    let prompts = "{\"prompt\": \"347+562*3?\"}\n{\"prompt\": \"100+100+100?\"}\n\
                   {\"prompt_ids\": [4, 5, 6, 12, 7]}\n";
    files::write_atomic(&path, prompts.as_bytes()).unwrap();
    let path = path.display();
    run(&format!("model generate --model golden/mini-aime/base --prompts {path} {flags}"), "")
}

#[test]
fn a_draw_depends_on_seed_prompt_and_sample_and_not_on_the_batch() {
    let ids = |batch: u64, seed: u64| {
        let lines = generate(&format!("-n 6 --seed {seed} --batch {batch} --top-p 0.9"));
        assert_eq!(lines.len(), 18);
        lines.iter().map(|line| line["response_ids"].clone()).collect::<Vec<_>>()
    };
    let alone = ids(1, 1);
    assert_eq!(alone, ids(5, 1));
    assert_eq!(alone, ids(256, 1));
    assert_ne!(alone, ids(256, 2));
}

#[test]
fn scoring_a_generated_response_gives_back_its_log_probs() {
    for temperature in ["1.0", "0.7"] {
        let generated = generate(&format!("-n 2 --temperature {temperature}"));
        let input: String = generated.iter().map(|line| format!("{line}\n")).collect();
        let score = "model score --model golden/mini-aime/base --temperature";
        let scored = run(&format!("{score} {temperature}"), &input);
        assert_eq!(scored.len(), generated.len());
        for (generated, scored) in generated.iter().zip(&scored) {
            let numbers = |value: &Value| -> Vec<f64> {
                value.as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect()
            };
            let [sampler, trainer] = [generated, scored].map(|line| numbers(&line["log_probs"]));
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
    play(
        &folder,
        "sha256sum --quiet -c SHA256SUMS\n\ntest $(grep -c base/ SHA256SUMS) -ge 5 && cat SHA256SUMS\nbase/model.safetensors",
    );
}

#[test]
fn evaluation_records_are_printed_as_json_and_reproducible() {
    let line = "eval experiments/smoke.toml --evaluation-set dev --samples 2 --json";
    let records = run(line, "");
    assert_eq!(records, run(line, ""));
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!((&record["problems"], &record["samples"]), (&json!(64), &json!(2)));
}

#[test]
fn throughput_measures_batches_and_an_update_of_any_checkpoint() {
    let measure = |flags: &str| {
        let bench = "bench throughput --model golden/mini-aime/base --batch 1,3 --json \
                     --prompt-tokens 8 --new-tokens 100 --repetitions 3";
        json(line_in(&repository::root(), &format!("{bench} {flags}")))
    };
    let positive = |value: &Value| assert!(value.as_f64().unwrap() > 0.0, "{value}");
    for weights in ["f32", "bf16"] {
        let measured = measure(&format!("--weights {weights} --train-rows 3 --pass-tokens 32"));
        assert_eq!((&measured["weights"], &measured["device"]), (&json!(weights), &json!("cpu")));
        let batches = measured["generation"].as_array().unwrap();
        assert!(batches.iter().map(|one| &one["batch"]).eq([1, 3]), "{measured}");
        for one in batches {
            positive(&one["tokens_per_second"]);
            positive(&one["bandwidth_limit"]);
        }
        assert_eq!(measured["training"]["tokens"], 3 * 108);
        positive(&measured["training"]["tokens_per_second"]);
        positive(&measured["bandwidth"]);
        // The matrix that measures the bandwidth has 1 GiB.
        assert!(measured["peak_memory_bytes"].as_u64().unwrap() < 1 << 30, "{measured}");
    }
    assert_eq!(measure("")["training"], Value::Null);
}
