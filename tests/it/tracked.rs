//! `dapo compare --curves` and `--runs`: files that the trackers themselves wrote (`golden/curves`), and verdicts on
//! simulated runs whose truth is known.

use crate::binary::{Output, failed, json, line_in, succeeded};
use crate::repository;
use crate::transcript::play;
use dapo::base::{Purpose, files, rng, rng::Id};
use dapo::records::event_file::{self, Scalar};
use dapo::records::{TrackedNotes, TrackedRun, tracked};
use dapo::statistics::Verdict;
use dapo::study::{TrackedComparison, TrackedOptions, tracked as study};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn golden() -> PathBuf {
    repository::root().join("golden/curves")
}

fn compare(line: &str) -> Output {
    line_in(&golden(), &format!("compare {line}"))
}

const VERL: &str = "val-core/aime/acc/mean@32";

/// What `generate.py` logs.
fn value(seed: u64, step: u64) -> f64 {
    let jitter = ((step * 7 + seed * 3) % 11) as f64;
    0.2 + 0.01 * seed as f64 + 0.003 * step as f64 + 0.001 * jitter
}

#[test]
fn every_tracker_gives_the_values_that_were_logged() {
    let read = |file: &str| tracked::read(&golden().join(file), "", None).unwrap();
    for (file, format, metric, every, tolerance) in [
        ("tensorboard-simple/seed_1", "TensorBoard", "val/acc", 10, 1e-7),
        ("tensorboard-tensor/seed_1", "TensorBoard", "val/acc", 10, 1e-7),
        ("wandb-history-seed1.csv", "history of W&B's API", "val/acc", 20, 0.0),
        ("wandb-export.csv", "W&B's export", "val/acc", 10, 0.0),
        ("trackio-metric.json", "trackio", "val/acc", 10, 0.0),
        ("verl-seed1.jsonl", "JSON lines, as verl's file log", VERL, 20, 0.0),
    ] {
        let runs = read(file);
        let run = runs.iter().find(|run| run.name.contains("grpo-seed1")).unwrap_or(&runs[0]);
        assert_eq!((run.notes.format, run.seed), (format, Some(1)), "{file}");
        let curve = &run.curves[metric];
        let (steps, values): (Vec<f64>, Vec<f64>) = curve.iter().copied().unzip();
        let expected = (0..=80).step_by(every);
        assert!(steps.into_iter().eq(expected.clone().map(|step| step as f64)), "{file}");
        for (logged, expected) in values.iter().zip(expected.map(|step| value(1, step))) {
            assert!((logged - expected).abs() <= tolerance + 1e-15, "{file}: {logged} {expected}");
        }
    }
    // Of W&B's page all runs come from one file, the last without its last step.
    let runs = read("wandb-export.csv").into_iter();
    let ends: Vec<f64> = runs.map(|run| run.curves["val/acc"].last().unwrap().0).collect();
    assert_eq!(ends, [80.0, 70.0, 80.0, 80.0]);
    let norms = &read("verl-seed1.jsonl")[0].curves["actor/grad_norm"];
    assert!(norms[3].1.is_nan(), "NaN is a value, not a missing one");
}

#[test]
fn runs_of_one_file_are_two_sides_at_the_budget_of_the_shortest() {
    let (text, _) =
        succeeded(compare("--curves wandb-export.csv:dapo --against wandb-export.csv:grpo"));
    insta::assert_snapshot!(text);
}

#[test]
fn one_run_a_side_has_no_verdict_and_says_what_a_difference_needs() {
    let sides = "--curves wandb-history-seed1.csv --against trackio-metric.json --metric val/acc";
    let (text, _) = succeeded(compare(&format!("{sides} --at seconds --window 0.5")));
    insta::assert_snapshot!(text);
    failed(compare(&format!("{sides} --fail-if worse")), 6, "too few runs");
}

#[test]
fn tokens_are_running_totals_or_are_summed_and_differ_by_no_format() {
    let sides = "--curves wandb-history-seed1.csv --against tensorboard-simple/seed_1";
    let trl = json(compare(&format!("{sides} --metric val/acc --at tokens --json")));
    assert_eq!(trl["budget"][0], 80.0 * 4096.0);
    assert_eq!(trl["estimate"], Value::Null);
    let verl = "--curves verl-seed1.jsonl --against verl-seed1.jsonl --at tokens";
    let verl = compare(&format!("{verl} --metric {VERL}"));
    failed(verl, 3, "of every step, and step 1 is missing");
}

#[test]
fn a_metric_that_goes_back_in_its_steps_leaves_the_clock_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let scalar = |tag: &str, step, value| Scalar { tag: tag.to_string(), step, value };
    let course = (0..=3).map(|at| scalar("val/acc", 10 * at, 0.1 * at as f64));
    let scalars: Vec<Scalar> = course.chain([scalar("test/final", 0, 0.4)]).collect();
    let events = event_file::events(&scalars);
    let write = |name: &str| files::write_atomic(&folder.path().join(name), &events).unwrap();
    ["a", "b"].into_iter().for_each(write);
    let line = "compare --curves a --against b --metric val/acc --at seconds --json";
    let compared = json(line_in(folder.path(), line));
    assert_eq!(
        (&compared["budget"][0], compared["runs"][0]["points"].as_array().unwrap().len()),
        (&json!(30.0), 4)
    );
}

#[test]
fn sides_that_are_evaluated_at_other_steps_are_read_at_the_same_ones() {
    play(tempfile::tempdir().unwrap().path(), include_str!("tracked/places.txt"));
}

#[test]
fn a_table_of_runs_is_judged_and_gated() {
    let folder = tempfile::tempdir().unwrap();
    let values = |arm: &str, shift: f64| -> String {
        let value = |seed| 0.3 + shift + 0.01 * (seed % 3) as f64;
        (0..8).map(|seed| format!("{arm},{seed},{}\n", value(seed))).collect()
    };
    let text = format!("arm,seed,value\n{}{}", values("grpo", 0.0), values("dapo", 0.1));
    files::write_atomic(&folder.path().join("t.csv"), text.as_bytes()).unwrap();
    let gate = "compare --runs t.csv --fail-if worse --arm dapo --against grpo";
    let (text, _) = succeeded(line_in(folder.path(), gate));
    insta::assert_snapshot!(text);
    play(folder.path(), include_str!("tracked/gates.txt"));
}

#[test]
fn a_level_is_a_time_and_a_run_that_never_reaches_it_is_censored() {
    let sides = "--curves wandb-export.csv:dapo --against wandb-export.csv:grpo";
    let json = json(compare(&format!("{sides} --to-level 0.44 --json")));
    let runs = json["runs"].as_array().unwrap().iter();
    let runs: Vec<Value> = runs.map(|run| json!([run["value"], run["reached"]])).collect();
    assert_eq!(json!(runs), json!([[70.0, false], [70.0, false], [70.0, true], [70.0, true]]));
}

#[test]
fn what_was_done_to_the_rows_of_a_file_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
    };
    let rows = |from: u64, to: u64, shift: f64| -> Vec<String> {
        (from..=to).map(|step| format!("{step},{}", 0.01 * step as f64 + shift)).collect()
    };
    let csv = |rows: &[String]| format!("step,acc\n{}\n", rows.join("\n"));
    let down: Vec<String> = rows(1, 40, 0.0).into_iter().rev().collect();
    write("down-s1.csv", &csv(&down));
    write("short-s2.csv", &csv(&rows(1, 20, 0.01)));
    let mut texts = rows(1, 40, 0.2);
    texts[4] = "5,n/a".to_string();
    write("texts-s1.csv", &csv(&texts));
    write("copy-s2.csv", &csv(&texts));
    let line = |step: u64| match step % 2 {
        0 => format!("{{\"step\": {step}, \"acc\": 0.3}}\n"),
        _ => format!("{{\"step\": {step}, \"acc\": null}}\n"),
    };
    write("nulls-s3.jsonl", &(1..=40).map(line).collect::<String>());
    // What looks like a number in a text is none of JSON.
    let line = r#"{"step": 1, "acc":NaN, "note": "he said \"loss: NaN\", -Infinity"}"#;
    let quoted: Value = serde_json::from_str(&tracked::json::quoted_not_finite(line)).unwrap();
    assert_eq!(quoted["acc"], "NaN");
    assert!(tracked::json::number(&quoted["acc"]).unwrap().is_nan());
    assert_eq!(quoted["note"], "he said \"loss: NaN\", -Infinity");
    let sides = "texts-s1.csv copy-s2.csv nulls-s3.jsonl --against down-s1.csv short-s2.csv";
    let (text, _) =
        succeeded(line_in(folder.path(), &format!("compare --unpaired --curves {sides}")));
    insta::assert_snapshot!(text);
}

/// Curves of a walk that runs of one seed share in part, and noise of each run.
fn simulated(pair: u64, side: u64, runs: u64, shift: f64) -> Vec<TrackedRun> {
    let run = |seed| {
        let stream = |of: u64| {
            let ids = [Id::from("curves"), Id::from(pair), Id::from(seed), Id::from(of)];
            rng::stream(0, Purpose::Simulation, &ids)
        };
        let (mut shared, mut own) = (stream(2), stream(side));
        let mut level = 0.0;
        let mut point = |step: u64| {
            level += shared.normals().0 + own.normals().0;
            (step as f64, 0.1 * step as f64 + level + own.normals().0 + shift)
        };
        TrackedRun {
            unread: BTreeMap::new(),
            replaced: BTreeMap::new(),
            name: format!("run s{seed}"),
            path: "simulated".into(),
            seed: Some(seed),
            curves: BTreeMap::from([("acc".to_string(), (1..=20).map(&mut point).collect())]),
            seconds: BTreeMap::new(),
            notes: TrackedNotes::default(),
        }
    };
    (0..runs).map(run).collect()
}

/// The unpaired comparison of the last quarters.
fn options() -> TrackedOptions {
    let at = "steps".to_string();
    TrackedOptions { at, window: Some(0.25), unpaired: true, ..TrackedOptions::default() }
}

fn judged(pair: u64, runs: u64, shift: f64, options: &TrackedOptions) -> TrackedComparison {
    let (a, b) = (simulated(pair, 0, runs, 0.0), simulated(pair, 1, runs, shift));
    study::compare(&a, &b, options, (0.95, None)).unwrap()
}

/// The same of the times to a level.
fn to_level(level: f64) -> TrackedOptions {
    TrackedOptions { window: None, to_level: Some(level), ..options() }
}

#[test]
fn equal_runs_are_called_different_in_at_most_five_of_a_hundred_pairs() {
    const PAIRS: u64 = 1000;
    for (runs, name, options) in [
        (5, "unpaired", options()),
        (5, "paired", TrackedOptions { unpaired: false, ..options() }),
        (8, "paired", TrackedOptions { unpaired: false, ..options() }),
        (5, "last value", TrackedOptions { window: None, ..options() }),
        (5, "time", to_level(2.0)),
    ] {
        let is_shown = |pair: &u64| {
            let verdict = judged(*pair, runs, 0.0, &options).verdict.unwrap();
            matches!(verdict, Verdict::Improves | Verdict::Hurts)
        };
        let wrong = (0..PAIRS).filter(is_shown).count() as u64;
        assert!(20 * wrong <= PAIRS, "{name} of {runs}: {wrong} of {PAIRS}");
        // Five pairs have 32 signs: their smallest p is 0.0625.
        assert_eq!(wrong == 0, (runs, name) == (5, "paired"), "{name}: {wrong}");
    }
}

#[test]
fn a_large_difference_is_found_in_its_direction() {
    for (shift, lower_is_better, expected) in [
        (60.0, false, Verdict::Improves),
        (-60.0, false, Verdict::Hurts),
        (60.0, true, Verdict::Hurts),
        (-60.0, true, Verdict::Improves),
    ] {
        for (runs, unpaired) in [(5, true), (6, false)] {
            let options = TrackedOptions { lower_is_better, unpaired, ..options() };
            let result = judged(1, runs, shift, &options);
            assert_eq!((result.verdict, result.paired), (Some(expected), !unpaired));
        }
    }
    assert_eq!(judged(1, 5, 60.0, &to_level(30.0)).verdict, Some(Verdict::Improves));
}
