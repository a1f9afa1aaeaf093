//! `dapo compare --curves` and `--runs`: files that the trackers themselves wrote (`golden/curves`), and verdicts on
//! simulated runs whose truth is known.

use crate::binary::{Output, dapo_in, failed, succeeded};
use dapo::base::{Purpose, files, rng, rng::Id};
use dapo::records::{TrackedNotes, TrackedRun, tracked};
use dapo::statistics::Verdict;
use dapo::study::{TrackedComparison, TrackedOptions, tracked as study};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

fn golden() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/curves")
}

fn compare(arguments: &str) -> Output {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    dapo_in(&golden(), &[&["compare"], &arguments[..]].concat())
}

/// What `generate.py` logs.
fn value(seed: u64, step: u64) -> f64 {
    let jitter = ((step * 7 + seed * 3) % 11) as f64;
    0.2 + 0.01 * seed as f64 + 0.003 * step as f64 + 0.001 * jitter
}

#[test]
fn every_tracker_gives_the_values_that_were_logged() {
    for (file, format, metric, every, tolerance) in [
        ("tensorboard-simple/seed_1", "TensorBoard", "val/acc", 10, 1e-7),
        ("tensorboard-tensor/seed_1", "TensorBoard", "val/acc", 10, 1e-7),
        ("wandb-history-seed1.csv", "history of W&B's API", "val/acc", 20, 0.0),
        ("wandb-export.csv", "W&B's export", "val/acc", 10, 0.0),
        ("trackio-metric.json", "trackio", "val/acc", 10, 0.0),
        (
            "verl-seed1.jsonl",
            "JSON lines, as verl's file log",
            "val-core/aime/acc/mean@32",
            20,
            0.0,
        ),
    ] {
        let runs = tracked::read(&golden().join(file), "").unwrap();
        let run = runs.iter().find(|run| run.name.contains("grpo-seed1")).unwrap_or(&runs[0]);
        assert_eq!((run.notes.format, run.seed), (format, Some(1)), "{file}");
        let steps = (0..=80).step_by(every).map(|step| (step as f64, value(1, step)));
        let curve = &run.curves[metric];
        assert_eq!(curve.len(), 80 / every + 1, "{file}");
        for ((at, found), (step, expected)) in curve.iter().zip(steps) {
            assert_eq!(*at, step, "{file}");
            assert!((found - expected).abs() <= tolerance + 1e-15, "{file}: {found} {expected}");
        }
    }
    // Of W&B's page all runs come from one file, the last without its last step.
    let runs = tracked::read(&golden().join("wandb-export.csv"), "").unwrap();
    let ends: Vec<f64> = runs.iter().map(|run| run.curves["val/acc"].last().unwrap().0).collect();
    assert_eq!(ends, [80.0, 70.0, 80.0, 80.0]);
    let verl = &tracked::read(&golden().join("verl-seed1.jsonl"), "").unwrap()[0];
    assert!(verl.curves["actor/grad_norm"][3].1.is_nan(), "NaN is a value, not a missing one");
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
    let (code, _, talk) = compare(&format!("{sides} --fail-if worse"));
    assert_eq!((code, talk.contains("too few runs")), (6, true), "{talk}");
}

#[test]
fn tokens_are_running_totals_or_are_summed_and_differ_by_no_format() {
    let json = |file: &str, metric: &str| -> Value {
        let line = format!("--curves {file} --against {file} --metric {metric} --at tokens --json");
        serde_json::from_str(&succeeded(compare(&line)).0).unwrap()
    };
    let [trl, verl] = [
        json("tensorboard-simple/seed_1", "val/acc"),
        json("verl-seed1.jsonl", "val-core/aime/acc/mean@32"),
    ];
    assert_eq!(trl["budget"][0], 80.0 * 4096.0);
    assert_eq!(verl["budget"][0], 8.0 * 40960.0);
    assert_eq!(verl["estimate"], Value::Null);
}

#[test]
fn a_table_of_runs_is_judged_and_gated() {
    let folder = tempfile::tempdir().unwrap();
    let row = |arm: &str, seed: u64, value: f64| format!("{arm},{seed},{value}\n");
    let values = |arm: &str, shift: f64| -> String {
        (0..8).map(|seed| row(arm, seed, 0.3 + shift + 0.01 * (seed % 3) as f64)).collect()
    };
    let text = format!("arm,seed,value\n{}{}", values("grpo", 0.0), values("dapo", 0.1));
    files::write_atomic(&folder.path().join("t.csv"), text.as_bytes()).unwrap();
    let gate = |line: &str| {
        let line: Vec<&str> = line.split(' ').collect();
        dapo_in(
            folder.path(),
            &[&["compare", "--runs", "t.csv", "--fail-if", "worse"], &line[..]].concat(),
        )
    };
    let (text, _) = succeeded(gate("--arm dapo --against grpo"));
    insta::assert_snapshot!(text);
    assert_eq!(gate("--arm grpo --against dapo").0, 4);
    assert_eq!(gate("--arm dapo --against grpo --lower-is-better").0, 4);
    assert_eq!(gate("--arm dapo --against grpo --unpaired").0, 0);
    assert_eq!(gate("--arm grpo --against dapo --margin 0.2").0, 0);
    failed(
        gate("--arm grpo --against ppo"),
        3,
        "no run is called \"ppo\"; there are `dapo`, `grpo`",
    );
}

#[test]
fn a_level_is_a_time_and_a_run_that_never_reaches_it_is_censored() {
    let sides = "--curves wandb-export.csv:dapo --against wandb-export.csv:grpo --to-level 0.44";
    let json: Value =
        serde_json::from_str(&succeeded(compare(&format!("{sides} --json"))).0).unwrap();
    let runs: Vec<(f64, bool)> = json["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| (run["value"].as_f64().unwrap(), run["reached"].as_bool().unwrap()))
        .collect();
    assert_eq!(runs, [(70.0, false), (70.0, false), (70.0, true), (70.0, true)]);
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
    let said = r#"{"step": 1, "acc":NaN, "note": "he said \"loss: NaN\", -Infinity"}"#;
    let quoted = tracked::quoted_not_finite(said);
    let line: Value = serde_json::from_str(&quoted).unwrap();
    assert_eq!(
        (line["acc"].as_str(), tracked::number(&line["acc"]).unwrap().is_nan()),
        (Some("NaN"), true)
    );
    assert_eq!(line["note"], "he said \"loss: NaN\", -Infinity");
    let compare = |line: &str| {
        let line: Vec<&str> = line.split(' ').collect();
        dapo_in(folder.path(), &[&["compare", "--curves"], &line[..]].concat())
    };
    let (text, _) = succeeded(compare(
        "texts-s1.csv copy-s2.csv nulls-s3.jsonl --against down-s1.csv short-s2.csv",
    ));
    insta::assert_snapshot!(text);
    // A column of texts alone is no metric.
    write("percent.csv", "step,acc\n1,45 %\n2,50 %\n3,\n");
    write("other.csv", "step,acc,loss\n1,45 %,2\n2,50 %,1\n");
    let line = "other.csv --against other.csv --metric acc";
    failed(compare(line), 3, "--metric acc: its values are text, such as `45 %`, or null");
    failed(compare("percent.csv --against down-s1.csv"), 3, "percent.csv: it has no value of any");
    // Names of arms may have colons.
    let table = "arm,value\nclip:high,0.5\nclip:high,0.6\ngrpo,0.3\ngrpo,0.4\n";
    write("t.csv", table);
    let (text, _) = succeeded(dapo_in(
        folder.path(),
        &["compare", "--runs", "t.csv", "--arm", "clip:high", "--against", "grpo"],
    ));
    assert!(text.contains("clip:high"), "{text}");
}

#[test]
fn clocks_of_charts_are_seconds() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("board.csv", "Wall time,Step,Value\n1700000000.5,1,0.1\n1700000060.5,2,0.2\n"),
        ("chart.csv", "Relative Time (Process),dapo - acc\n0,0.1\n60,0.2\n"),
    ] {
        files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
        let line = ["compare", "--curves", name, "--against", name, "--at", "seconds", "--json"];
        let json: Value =
            serde_json::from_str(&succeeded(dapo_in(folder.path(), &line)).0).unwrap();
        assert_eq!(
            json["runs"][0]["points"],
            serde_json::json!([[0.0, 0.1], [60.0, 0.2]]),
            "{name}"
        );
    }
}

/// Curves of a walk that runs of one seed share in part, and noise of each run.
fn simulated(pair: u64, side: u64, runs: u64, shift: f64) -> Vec<TrackedRun> {
    (0..runs)
        .map(|seed| {
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
            let curve = (1..=20).map(&mut point).collect();
            TrackedRun {
                unread: BTreeMap::new(),
                name: format!("run s{seed}"),
                path: "simulated".into(),
                seed: Some(seed),
                curves: BTreeMap::from([("acc".to_string(), curve)]),
                notes: TrackedNotes::default(),
            }
        })
        .collect()
}

fn judged(
    pair: u64,
    runs: u64,
    shift: f64,
    change: &dyn Fn(&mut TrackedOptions),
) -> TrackedComparison {
    let mut options = TrackedOptions {
        metric: None,
        at: "steps".to_string(),
        window: Some(0.25),
        to_level: None,
        lower_is_better: false,
        unpaired: true,
    };
    change(&mut options);
    let (a, b) = (simulated(pair, 0, runs, 0.0), simulated(pair, 1, runs, shift));
    study::compare(&a, &b, &options, (0.95, None)).unwrap()
}

#[test]
fn equal_runs_are_called_different_in_at_most_five_of_a_hundred_pairs() {
    const PAIRS: u64 = 1000;
    type Change = fn(&mut TrackedOptions);
    let cases: [(u64, &str, Change); 5] = [
        (5, "unpaired", |_| ()),
        (5, "paired", |options| options.unpaired = false),
        (8, "paired", |options| options.unpaired = false),
        (5, "last value", |options| options.window = None),
        (5, "time", |options| (options.window, options.to_level) = (None, Some(2.0))),
    ];
    for (runs, name, change) in cases {
        let is_shown = |pair: &u64| {
            let verdict = judged(*pair, runs, 0.0, &change).verdict.unwrap();
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
    for (shift, lower, expected) in [
        (60.0, false, Verdict::Improves),
        (-60.0, false, Verdict::Hurts),
        (60.0, true, Verdict::Hurts),
        (-60.0, true, Verdict::Improves),
    ] {
        for (runs, unpaired) in [(5, true), (6, false)] {
            let set = |options: &mut TrackedOptions| {
                (options.lower_is_better, options.unpaired) = (lower, unpaired);
            };
            let result = judged(1, runs, shift, &set);
            assert_eq!((result.verdict, result.paired), (Some(expected), !unpaired));
        }
    }
    let earlier =
        judged(1, 5, 60.0, &|options| (options.window, options.to_level) = (None, Some(30.0)));
    assert_eq!(earlier.verdict, Some(Verdict::Improves));
}
