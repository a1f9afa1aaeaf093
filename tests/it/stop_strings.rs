//! Runs whose responses begin in the prompt and end at stop strings.

use crate::binary::{dapo, says, succeeded};
use crate::transcript::play;
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
    play(tempfile::tempdir().unwrap().path(), include_str!("stop_strings/generate.txt"));
}
