//! Test sets that are evaluated otherwise than the others: their own rule, their own sampling.

use crate::binary::{dapo, failed, line_in, says, succeeded};
use crate::repository;
use dapo::base::files;
use dapo::records::{EvaluationRecord, tables};
use serde_json::Value;
use std::path::Path;

const ARM: &str = r#"
[evaluation]
every_steps = 0
during_training = []
samples = { dev = 1, mini-aime = 2, mini-aime-plus = 1, greedy = 1, boxed = 2 }

[evaluation.sets.greedy]
problems = "mini-aime"
sampling = { temperature = 0.0, top_p = 1.0, top_k = 0 }

[evaluation.sets.boxed]
problems = "mini-aime"
verifier = "strict-box"
"#;

/// The smoke arm with more keys, in a folder of its own.
fn arm(folder: &Path, keys: &str) {
    let smoke = repository::root().join("experiments/smoke.toml");
    let text = format!("name = \"sets\"\nextends = {smoke:?}\n{keys}");
    files::write_atomic(&folder.join("arm.toml"), text.as_bytes()).unwrap();
}

#[test]
fn a_set_has_a_rule_and_a_sampling_of_its_own_in_training_verification_and_eval() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    arm(folder, ARM);
    succeeded(line_in(folder, "train arm.toml --no-plan --out run"));
    let run = folder.join("run");
    let rows = |set: &str, step: u64| {
        let path = run.join(format!("evaluations/{set}-step-{step:06}.parquet"));
        tables::read_outcomes(&path).unwrap()
    };
    let [usual, greedy, boxed] = ["mini-aime", "greedy", "boxed"].map(|set| rows(set, 0));
    assert_eq!([usual.len(), greedy.len(), boxed.len()], [60, 30, 60]);
    let ids = |rows: &[tables::OutcomeRecord]| {
        let mut ids: Vec<String> = rows.iter().map(|row| row.problem.clone()).collect();
        ids.dedup();
        ids
    };
    assert_eq!(ids(&usual), ids(&greedy));
    assert!(usual.iter().any(|row| row.is_correct));
    // The policy writes no box.
    assert!(boxed.iter().all(|row| row.prediction.is_none() && !row.is_correct));
    says(
        dapo(&["verify", run.to_str().unwrap(), "--replay", "1", "--challenge", "4"]),
        0,
        &["verified (records)", "10 evaluations: graded again"],
    );
    let report = files::read_text(&run.join("report.md")).unwrap();
    assert!(report.contains("over the test sets mini-aime and mini-aime-plus:"), "{report}");
    let (out, _) = succeeded(line_in(folder, "eval arm.toml --evaluation-set greedy --json"));
    let again: EvaluationRecord = serde_json::from_str(out.trim()).unwrap();
    let (twice, _) =
        succeeded(line_in(folder, "eval arm.toml --evaluation-set greedy --json --seed 2"));
    let twice: EvaluationRecord = serde_json::from_str(twice.trim()).unwrap();
    // Greedy responses depend on no draw.
    assert_eq!((again.samples, again.outcomes_sha256), (1, twice.outcomes_sha256));
}

#[test]
fn a_study_shows_greedy_accuracy_beside_the_score_and_counts_no_problem_twice() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    arm(folder, ARM);
    let grid = "name = \"g\"\nquestion = \"?\"\nbase = \"arm.toml\"\nseeds = [1, 2]\nprimary_set = \"mini-aime\"\n\
                [[arms]]\nname = \"one\"\n";
    files::write_atomic(&folder.join("grid.toml"), grid.as_bytes()).unwrap();
    succeeded(line_in(folder, "ablate grid.toml --out study"));
    let report: Value = files::read_json(&folder.join("study/report.json")).unwrap();
    let arm = &report["analysis"]["grids"][0]["arms"][0];
    assert_eq!(arm["greedy"]["set"], "greedy", "{report}");
    assert_eq!(arm["over_sets"]["sets"], serde_json::json!(["mini-aime", "mini-aime-plus"]));
    let text = ["report.md", "appendix.md"]
        .map(|name| files::read_text(&folder.join("study").join(name)).unwrap());
    assert!(text.concat().contains("| greedy, % |"), "{}", text.concat());
    succeeded(line_in(folder, "verify study"));
}

#[test]
fn a_set_that_cannot_be_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    for (keys, words) in [
        ("[evaluation.sets.mini-aime]\n", "evaluation.sets.mini-aime states nothing"),
        (
            "[evaluation.sets.aime]\nverifier = \"last-number\"\n",
            "evaluation.sets.aime names no set of the data",
        ),
        (
            "[evaluation.sets.a]\nproblems = \"aime\"\n",
            "evaluation.sets.a.problems names no set of the data",
        ),
        (
            "[evaluation.sets.dev]\nproblems = \"mini-aime\"\n",
            "evaluation.sets.dev.problems must be absent",
        ),
        ("[evaluation.sets.a]\nproblems = \"dev\"\n", "evaluation.samples has no k for it"),
        ("[evaluation.sets.dev]\nverifier = \"math-verify\"\n", "unknown variant `math-verify`"),
        ("[evaluation.sets.dev]\nverfier = \"last-number\"\n", "verfier"),
        (
            "[evaluation.sets.dev]\nsampling = { temperature = -1.0, top_p = 1.0, top_k = 0 }\n",
            "evaluation.sets.dev.sampling.temperature must be at least 0",
        ),
    ] {
        arm(scratch.path(), keys);
        failed(line_in(scratch.path(), "config show arm.toml"), 3, words);
    }
    let keys =
        "[evaluation.sets.\"../x\"]\nproblems = \"dev\"\n[evaluation.samples]\n\"../x\" = 1\n";
    arm(scratch.path(), keys);
    failed(line_in(scratch.path(), "config show arm.toml"), 3, "a set is named by letters, digits");
}
