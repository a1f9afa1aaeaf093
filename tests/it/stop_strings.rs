//! Runs whose responses begin in the prompt and end at stop strings.

use crate::binary::{dapo, failed, says, succeeded};
use dapo::base::files;
use dapo::records::tables;
use serde_json::Value;

const SETTINGS: [&str; 6] = [
    "--set",
    "rollout.stop=[\"9,\"]",
    "--set",
    "evaluation.stop=[\"9;\", \"8,\"]",
    "--set",
    "prompt.response_prefix=\" \"",
];

#[test]
fn a_run_with_stop_strings_is_made_and_verified_with_the_text_before_them() {
    let scratch = tempfile::tempdir().unwrap();
    let run = scratch.path().join("run");
    let out = run.to_str().unwrap();
    let train = ["train", "experiments/smoke.toml", "--no-plan", "--out", out];
    succeeded(dapo(&[&train[..], &SETTINGS].concat()));
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
    let path = scratch.path().join("problems.jsonl");
    files::write_atomic(&path, "{\"question\": \"347+562?\", \"answer\": \"909\"}\n".as_bytes())
        .unwrap();
    let path = path.to_str().unwrap();
    let model = ["--model", "golden/mini-aime/base"];
    let generate = [&["model", "generate"][..], &model, &["--problems", path]].concat();
    let begun = [&generate[..], &["--response-prefix", "347+5", "--stop", "="]].concat();
    let (out, _) = succeeded(dapo(&begun));
    let line: Value = serde_json::from_str(&out).unwrap();
    let text = line["text"].as_str().unwrap();
    assert!(text.starts_with("347+5") && !text.contains('='), "{out}");
    assert_eq!(line["finish"], "stop-string");
    assert_eq!(line["response_ids"].as_array().unwrap().len(), text.len() - 5 + 1);
    assert_eq!(line["prompt_ids"].as_array().unwrap().len(), "347+562?347+5".len());
    for (flags, words) in [
        (&["--stop", ""][..], "--stop must have no empty text"),
        (&["--stop", "=", "--stop", "="], "--stop names \"=\" twice"),
        (&["--system", ""], "system must not be empty"),
        (
            &["--chat-template-kwargs", "{\"a\": 1}"],
            "chat_template_kwargs.a is for a chat template",
        ),
        (&["--chat-template-kwargs", "[1]"], "--chat-template-kwargs"),
    ] {
        failed(dapo(&[&generate[..], flags].concat()), 2, words);
    }
    let stop = [&generate[..], &["--stop", "<eos>"]].concat();
    failed(dapo(&stop), 3, "has the special token \"<eos>\"");
    let stop = [&generate[..], &["--stop", "\u{e9}"]].concat();
    failed(dapo(&stop), 3, "'é' is not in the vocabulary");
    let experiment = ["eval", "experiments/smoke.toml", "--stop", "="];
    failed(dapo(&experiment), 2, "--set evaluation.stop=");
    let (first, second) = (scratch.path().join("a.jsonl"), scratch.path().join("b.jsonl"));
    for (path, answer) in [(&first, 909), (&second, 1)] {
        let line = format!("{{\"question\": \"347+562?\", \"answer\": {answer}}}\n");
        files::write_atomic(path, line.as_bytes()).unwrap();
    }
    let data = ["--data", first.to_str().unwrap(), "--data", second.to_str().unwrap()];
    let limits =
        ["--template", "question", "--max-prompt-tokens", "20", "--max-response-tokens", "90"];
    let sampled = ["--samples", "2", "--stop", ";"];
    let eval = [&["eval"][..], &model, &data, &limits, &sampled].concat();
    says(dapo(&eval), 0, &["mean of the 2 sets, whatever their sizes: avg@k"]);
}
