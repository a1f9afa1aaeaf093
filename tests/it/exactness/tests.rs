//! Cells of the smallest size, with every test run; the whole matrices, where they are asked for.

use crate::exactness::cell::Digests;
use crate::exactness::matrix::{COLUMNS, Matrix, Outcome, Row};
use crate::exactness::process::{self, Common, EXPERIMENT};
use crate::exactness::{Setting, Size};
use assert_cmd::Command;
use comfy_table::Table;
use dapo::base::{files, visible};
use dapo::experiment::extends;
use dapo::numerics::Numerics;
use dapo::numerics::vectorised::VARIABLE;
use dapo::records::environment;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What a cell of the smallest size computed.
fn cell(setting: &Setting) -> Digests {
    let folder = tempfile::tempdir().unwrap();
    let common = Common { numerics: Numerics::Exact, size: Size::Tiny };
    match process::run(common, setting, &folder.path().join("run")).unwrap() {
        (Outcome::Computed(digests), _) => digests,
        (other, _) => panic!("{}: {other:?}", setting.name),
    }
}

#[test]
fn a_short_run_has_the_same_bits_with_every_sum_reordered_and_under_other_settings() {
    let mut baseline = cell(&Setting::baseline());
    assert_eq!(baseline.sums_compared, 0);
    let mut others = cell(&Setting::orders());
    assert!(others.sums_compared > 1_000_000);
    others.sums_compared = 0;
    assert_eq!(others, baseline);
    let others = cell(&Setting {
        threads: 2,
        micro_batch_rollouts: 1,
        generation_batch_rollouts: 3,
        ..Setting::baseline()
    });
    assert_eq!(others, baseline);
    let mut found = vec!["scalar"];
    #[cfg(target_arch = "x86_64")]
    found.extend(std::arch::is_x86_feature_detected!("avx2").then_some("avx2"));
    #[cfg(target_arch = "x86_64")]
    found.extend(std::arch::is_x86_feature_detected!("avx512f").then_some("avx512"));
    for instructions in found {
        let environment = vec![(VARIABLE, instructions)];
        let others = cell(&Setting { environment, ..Setting::baseline() });
        assert_eq!(others.instructions, instructions);
        baseline.instructions = others.instructions.clone();
        assert_eq!(others, baseline);
    }
}

#[test]
fn an_instruction_set_that_does_not_exist_or_is_not_there_is_refused_before_any_work() {
    let run = |value: &str| {
        let mut command = Command::cargo_bin("dapo").unwrap();
        command.args(["runs", "."]).env(VARIABLE, value).assert()
    };
    let output = run("AVX2").code(3);
    let words = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(words.contains("DAPO_INSTRUCTIONS is \"AVX2\"; it can be scalar, avx2 or avx512"));
    run("scalar").success();
    #[cfg(target_arch = "x86_64")]
    if !std::arch::is_x86_feature_detected!("avx512f") {
        let output = run("avx512").code(6);
        let words = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
        assert!(words.contains("avx512, which this machine does not have"), "{words}");
    }
}

/// What DAPO_EXACTNESS_JSON gets.
#[derive(Debug, Serialize)]
struct Record {
    environment: BTreeMap<String, String>,
    experiment: String,
    matrices: Vec<Matrix>,
}

/// The matrices of `reports/exactness`. DAPO_EXACTNESS_JSON names a file for them;
/// DAPO_EXACTNESS_EMULATE, comma-separated models of `qemu-x86_64 -cpu help` (Debian: qemu-user) on
/// which a tiny cell is computed too.
#[test]
#[ignore = "takes minutes: just exactness"]
fn all_exact_cells_of_the_matrices_agree() {
    let wanted = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let emulated = wanted("DAPO_EXACTNESS_EMULATE").unwrap_or_default();
    let emulated: Vec<String> =
        emulated.split(',').filter(|model| !model.is_empty()).map(str::to_string).collect();
    let experiment = extends::load(Path::new(EXPERIMENT)).unwrap();
    let exact = [Setting::all(), vec![Setting::orders()]].concat();
    let matrices = vec![
        matrix("exact", Common { numerics: Numerics::Exact, size: Size::Full }, &exact),
        matrix("fast", Common { numerics: Numerics::Fast, size: Size::Full }, &Setting::all()),
        matrix(
            "exact, tiny",
            Common { numerics: Numerics::Exact, size: Size::Tiny },
            &Setting::slow(&emulated),
        ),
    ];
    let environment = environment::describe(experiment.execution.threads).facts;
    let record = Record { environment, experiment: experiment.name, matrices };
    if let Some(path) = wanted("DAPO_EXACTNESS_JSON") {
        files::write_json(Path::new(&path), &record).unwrap();
    }
    print(&record);
    assert!(record.matrices[0].agrees());
    // What an emulated processor cannot run is told; what runs must agree.
    let (computed, differing) = record.matrices[2].counts();
    assert!(computed > 1 && differing == 0);
}

fn matrix(name: &str, common: Common, settings: &[Setting]) -> Matrix {
    let mut matrix = Matrix::new(name);
    for setting in settings {
        eprintln!("{name}: {}", setting.name);
        let folder = tempfile::tempdir().unwrap();
        let (outcome, seconds) = process::run(common, setting, &folder.path().join("run")).unwrap();
        matrix.push(setting.name.clone(), outcome, seconds);
    }
    matrix
}

fn print(record: &Record) {
    let fact = |name: &str| record.environment.get(name).map_or("unknown", String::as_str);
    println!(
        "{}, {} cores, {}, LibTorch {}, commit {}{}",
        fact("cpu"),
        fact("cores"),
        fact("cpu_capability"),
        fact("libtorch"),
        fact("git_commit"),
        if fact("git_dirty") == "true" { " with changes" } else { "" }
    );
    for matrix in &record.matrices {
        let (computed, differing) = matrix.counts();
        let seconds: f64 = matrix.rows.iter().map(|row| row.seconds).sum();
        println!(
            "\n{}: {computed} of {} cells computed, {differing} differ from the baseline, {seconds:.0} s\n",
            matrix.name,
            matrix.rows.len()
        );
        println!("{}", table(matrix));
    }
}

fn table(matrix: &Matrix) -> Table {
    // The head of a fast run binds its execution: it says nothing here.
    let shown = if matrix.name == "fast" { COLUMNS.len() - 1 } else { COLUMNS.len() };
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    let header = ["setting"].into_iter().chain(COLUMNS[..shown].iter().copied());
    table.set_header(header.chain(["seconds", "note"]));
    for (index, row) in matrix.rows.iter().enumerate() {
        let cells = matrix.cells(index).into_iter().take(shown);
        let line = [row.setting.clone()].into_iter().chain(cells);
        table.add_row(line.chain([format!("{:.1}", row.seconds), note(index, row)]));
    }
    table
}

fn note(index: usize, row: &Row) -> String {
    match (&row.outcome, &row.first_difference) {
        (Outcome::Computed(_), Some(difference)) => format!("first: {difference}"),
        (Outcome::Computed(digests), None) => {
            let mut notes = Vec::new();
            if index == 0 {
                let (steps, rounds) = (digests.rollout_steps.len(), digests.generation_rounds);
                notes.push(format!("{steps} steps, {rounds} generation rounds"));
            }
            if digests.sums_compared > 0 {
                notes.push(format!("{} sums compared", digests.sums_compared));
            }
            if let Some(step) = digests.resumed_after {
                notes.push(format!("resumed after step {step}"));
            }
            if index == 0 || row.setting.starts_with("emulated") {
                notes.push(format!("{} loops", digests.instructions));
            }
            notes.join("; ")
        }
        (Outcome::Unsupported(why), _) => format!("not here: {}", visible::message(why)),
        (Outcome::Failed(how), _) => format!("failed: {}", visible::message(how)),
    }
}
