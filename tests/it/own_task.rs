//! The walkthrough of `experiments/own-task/README.md`: its commands, on its files.

use crate::binary::{line_in, succeeded};
use crate::repository;
use crate::transcript::play;
use dapo::base::files;
use dapo::records::{EvaluationRecord, RunFolder, tables};

#[test]
fn a_task_of_ones_own_trains_evaluates_and_reports() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("run");
    let folder = repository::root().join("experiments/own-task");
    let line = format!("train own-task.toml --threads 1 --out {}", out.display());
    succeeded(line_in(&folder, &line));
    let run = RunFolder::at(&out);
    let evaluations = run.evaluations().unwrap();
    for (set, step, problems, samples) in
        [("dev", 0, 8, 2), ("dev", 2, 8, 2), ("test", 0, 8, 4), ("test", 2, 8, 4)]
    {
        let is_meant =
            |record: &&EvaluationRecord| record.set == set && record.counters.rollout_steps == step;
        let record = evaluations.iter().find(is_meant);
        let counts = record.map(|record| (record.problems, record.samples));
        assert_eq!(counts, Some((problems, samples)), "{set} at step {step}");
    }
    let rows = tables::read_rollouts(&run.rollouts(1)).unwrap();
    assert!(rows.iter().all(|row| row.problem.starts_with("train/")));
    let page = files::read_text(&run.path("report.md")).unwrap();
    assert!(page.contains("test by the tags of its problems."), "{page}");
    // The base policy can do some of it: otherwise there would be nothing to train on.
    assert!(rows.iter().any(|row| row.is_correct) && rows.iter().any(|row| !row.is_correct));
}

#[test]
fn a_base_policy_is_made_of_written_solutions() {
    play(tempfile::tempdir().unwrap().path(), include_str!("own_task/base.txt"));
}

#[test]
fn preparing_leaves_out_what_is_evaluated() {
    play(tempfile::tempdir().unwrap().path(), include_str!("own_task/prepared.txt"));
}
