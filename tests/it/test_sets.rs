//! Test sets that are evaluated otherwise than the others: their own rule, their own sampling.

use crate::bad_input::input::Step;
use crate::binary::{self, line_in, says, succeeded};
use dapo::base::files;
use dapo::records::{EvaluationRecord, tables};
use serde_json::{Value, json};

/// An arm of the smoke experiment with two more sets, in a folder of its own.
fn arm() -> tempfile::TempDir {
    let scratch = tempfile::tempdir().unwrap();
    let arm = include_str!("test_sets/arm.toml").to_owned();
    Step::Arm { arm }.take(scratch.path());
    scratch
}

#[test]
fn a_set_has_a_rule_and_a_sampling_of_its_own_in_training_verification_and_eval() {
    let scratch = arm();
    let folder = scratch.path();
    succeeded(line_in(folder, "train arm.toml --no-plan --out run"));
    let run = folder.join("run");
    let rows = |set: &str, step: u64| {
        let path = run.join(format!("evaluations/{set}-step-{step:06}.parquet"));
        tables::read_outcomes(&path).unwrap()
    };
    let [usual, greedy, boxed] = ["mini-aime", "greedy", "boxed"].map(|set| rows(set, 0));
    assert_eq!([usual.len(), greedy.len(), boxed.len()], [60, 30, 60]);
    let [mut problems, once] = [&usual, &greedy]
        .map(|rows| rows.iter().map(|row| row.problem.as_str()).collect::<Vec<_>>());
    problems.dedup();
    assert_eq!(problems, once);
    assert!(usual.iter().any(|row| row.is_correct));
    // The policy writes no box.
    assert!(boxed.iter().all(|row| row.prediction.is_none() && !row.is_correct));
    let checks = ["verified (records)", "10 evaluations: graded again"];
    says(line_in(folder, "verify run --replay 1 --challenge 4"), 0, &checks);
    let report = files::read_text(&run.join("report.md")).unwrap();
    assert!(report.contains("over the test sets mini-aime and mini-aime-plus:"), "{report}");
    let [one, two] = ["", "--seed 2"].map(|seed| -> EvaluationRecord {
        let line = format!("eval arm.toml --evaluation-set greedy --json {seed}");
        serde_json::from_value(binary::json(line_in(folder, &line))).unwrap()
    });
    // Greedy responses depend on no draw.
    assert_eq!((one.samples, one.outcomes_sha256), (1, two.outcomes_sha256));
}

#[test]
fn a_study_shows_greedy_accuracy_beside_the_score_and_counts_no_problem_twice() {
    let scratch = arm();
    let folder = scratch.path();
    let grid = include_bytes!("test_sets/grid.toml");
    files::write_atomic(&folder.join("grid.toml"), grid).unwrap();
    succeeded(line_in(folder, "ablate grid.toml --out study"));
    let report: Value = files::read_json(&folder.join("study/report.json")).unwrap();
    let arm = &report["analysis"]["grids"][0]["arms"][0];
    assert_eq!(arm["greedy"]["set"], "greedy", "{report}");
    assert_eq!(arm["over_sets"]["sets"], json!(["mini-aime", "mini-aime-plus"]));
    let [report, appendix] = ["report.md", "appendix.md"]
        .map(|name| files::read_text(&folder.join("study").join(name)).unwrap());
    let text = report + &appendix;
    assert!(text.contains("| greedy, % |"), "{text}");
    succeeded(line_in(folder, "verify study"));
}
