//! Runs whose responses begin in the prompt and end at stop strings.

use crate::bad_input::input::Step;
use crate::binary::{dapo, json, line_in, says, succeeded};
use dapo::base::files;
use dapo::records::tables;

#[test]
fn a_run_with_stop_strings_is_made_and_verified_with_the_text_before_them() {
    let scratch = tempfile::tempdir().unwrap();
    let run = scratch.path().join("run");
    let out = run.to_str().unwrap();
    let prefix = ["--set", "prompt.response_prefix=\" \""];
    let stop = ["--set", "rollout.stop=[\"9,\"]", "--set", "evaluation.stop=[\"9;\", \"8,\"]"];
    let train = ["train", "experiments/smoke.toml", "--no-plan", "--out", out];
    succeeded(dapo(&[&train[..], &prefix, &stop].concat()));
    let rows = tables::read_rollouts(&run.join("rollouts/step-000001.parquet")).unwrap();
    let eos = |tokens: &[u32]| tokens.last() == Some(&1);
    let stopped: Vec<_> = rows.iter().filter(|row| !row.truncated && !eos(&row.tokens)).collect();
    assert!(!stopped.is_empty() && rows.iter().any(|row| eos(&row.tokens)));
    for row in &rows {
        assert!(row.response.starts_with(' ') && !row.response.contains("9,"), "{row:?}");
    }
    for row in stopped {
        // The two tokens of the stop string are the response's, the beginning is the prompt's.
        assert_eq!(row.tokens.len(), row.response.chars().count() - 1 + 2);
    }
    let verified = dapo(&["verify", out, "--replay", "1", "--challenge", "3"]);
    says(verified, 0, &["training replayed 1 of 1", "evaluations replayed 1 of 6"]);
    let report = files::read_text(&run.join("report.md")).unwrap();
    assert!(report.contains("rollout.stop") && report.contains("prompt.response_prefix"));
}

#[test]
fn generate_and_eval_take_stop_strings_and_what_stands_around_a_question() {
    let scratch = tempfile::tempdir().unwrap();
    Step::Given("base".to_owned()).take(scratch.path());
    for (name, answer) in [("a.jsonl", 909), ("b.jsonl", 1)] {
        let line = format!("{{\"question\": \"347+562?\", \"answer\": {answer}}}\n");
        files::write_atomic(&scratch.path().join(name), line.as_bytes()).unwrap();
    }
    let generate =
        "model generate --model base --problems a.jsonl --response-prefix 347+5 --stop =";
    let line = json(line_in(scratch.path(), generate));
    let text = line["text"].as_str().unwrap();
    assert!(text.starts_with("347+5") && !text.contains('='), "{line}");
    assert_eq!(line["finish"], "stop-string");
    let ids = |key: &str| line[key].as_array().unwrap().len();
    assert_eq!(ids("response_ids"), text.len() - 5 + 1);
    assert_eq!(ids("prompt_ids"), "347+562?347+5".len());
    let eval = "eval --model base --data a.jsonl --data b.jsonl --template question --samples 2 \
                --max-prompt-tokens 20 --max-response-tokens 90 --stop ;";
    let words = "mean of the 2 sets, whatever their sizes: avg@k";
    says(line_in(scratch.path(), eval), 0, &[words]);
}
