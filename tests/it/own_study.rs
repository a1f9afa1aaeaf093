//! A study of one's own data: `experiments/own-task/grids/own-task.toml` from its grid to a report
//! that is about its test set, whose commands are pasted into a copy of the study.

use crate::binary::{failed, line_in};
use crate::repository;
use crate::transcript::play;
use dapo::base::files;
use dapo::experiment::Grid;
use dapo::experiment::grid::file;
use dapo::records::RunFolder;
use dapo::records::event_file;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A folder with `checkout`, in which the names of a checkout are: `experiments`, a copy, and `golden`.
fn checkout() -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    play(
        scratch.path(),
        "mkdir checkout && cp -r $ROOT/experiments checkout && ln -s $ROOT/golden checkout",
    );
    let checkout = scratch.path().join("checkout");
    (scratch, checkout)
}

#[test]
fn a_study_over_files_is_judged_on_its_test_set_and_checked_from_a_copy() {
    let (_scratch, root) = checkout();
    play(&root, include_str!("own_study/judged.txt"));
    let study = root.join("runs/own");
    let report: Value = files::read_json(&study.join("report.json")).unwrap();
    let analysis = &report["analysis"];
    assert_eq!(analysis["declaration"]["primary_set"], "test");
    assert_eq!(analysis["declaration"]["curve_set"], "dev");
    let comparison = &analysis["families"][0]["comparisons"][0];
    assert_eq!(comparison["declared"]["metric"]["set"], "test", "{comparison}");
    assert!(comparison["result"]["p"].is_number(), "{comparison}");
    let arms = analysis["grids"][0]["arms"].as_array().unwrap();
    let scored = |arm: &&Value| arm["score"]["runs"] == 2;
    assert_eq!((arms.len(), arms.iter().filter(scored).count()), (2, 2), "{arms:?}");
    assert_eq!(report["claims"]["claims"], Value::Array(Vec::new()));
    play(&root, include_str!("own_study/copied.txt"));
    a_run_exports_its_curves(&study);
}

fn a_run_exports_its_curves(study: &Path) {
    let run = RunFolder::at(study.join("check"));
    play(study, include_str!("own_study/exported.txt"));
    let name = "export/tensorboard/check/events.out.tfevents.0.dapo";
    let bytes = files::read(&study.join(name)).unwrap();
    for line in run.metrics().unwrap() {
        for (tag, value) in &line.metrics {
            // An event's tag and value, as they stand beside each other in the file.
            let (tag, step) = (tag.clone(), line.counters.updates);
            let whole = event_file::events(&[event_file::Scalar { tag, step, value: *value }]);
            let record = &whole[event_file::events(&[]).len()..];
            assert!(bytes.windows(record.len()).any(|part| part == record), "{line:?}");
        }
    }
}

#[test]
fn a_grid_names_sets_of_its_data_and_a_study_has_one_pair_of_them() {
    let (_scratch, root) = checkout();
    // `bad_input/grids.toml` has what `ablate` refuses. The only test set need not be named.
    play(&root, include_str!("own_study/grids.txt"));
    let [grid, unnamed, second] = ["own-task", "unnamed", "second"].map(|name| {
        let path = format!("experiments/own-task/grids/{name}.toml");
        file::load(&root.join(path)).unwrap().grid
    });
    assert_eq!((unnamed.sets().primary(), unnamed.sets().curve()), ("test", "dev"));
    for grid in [grid, second] {
        grid.write(&root.join("study")).unwrap();
    }
    let other_sets = "its grids name other sets: `own-task` has primary_set \"test\" and curve_set \"dev\", `second` has primary_set \"dev\"";
    failed(line_in(&root, "report study"), 3, other_sets);

    // A resolved grid from before there were the keys means what it meant; a wrong name is refused.
    let path = root.join("study/grids/own-task.json");
    let mut old: serde_json::Map<String, Value> = files::read_json(&path).unwrap();
    repository::replace(&path, "\"primary_set\": \"test\"", "\"primary_set\": \"aime\"");
    let error = Grid::read(&path).unwrap_err().to_string();
    assert!(error.contains("primary_set: there is no set \"aime\""), "{error}");
    old.retain(|key, _| !key.ends_with("_set"));
    files::write_json(&path, &old).unwrap();
    let old = Grid::read(&path).unwrap().sets();
    assert_eq!((old.primary(), old.curve()), ("mini-aime-plus", "dev"));
    let committed = repository::root().join("reports/study-1/grids/ladder.json");
    assert_eq!(Grid::read(&committed).unwrap().sets(), dapo::experiment::sets::Sets::default());
}
