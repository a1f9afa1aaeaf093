//! `dapo exactness`: cells of the smallest size as processes of their own.

use assert_cmd::Command;
use dapo::numerics::vectorised::VARIABLE;
use serde_json::Value;

/// The digests that a cell prints last.
fn cell(options: &[&str]) -> Value {
    cell_under("", options)
}

/// Likewise, with the loops of an instruction set.
fn cell_under(instructions: &str, options: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::cargo_bin("dapo").unwrap();
    match instructions {
        "" => command.env_remove(VARIABLE),
        instructions => command.env(VARIABLE, instructions),
    };
    let output = command
        .args(["exactness-cell", "experiments/exactness.toml"])
        .args(["--recipe", "golden/mini-aime/recipe.toml", "--size", "tiny"])
        .args(["--numerics", "exact", "--out"])
        .arg(folder.path().join("run"))
        .args(options)
        .assert()
        .success();
    let text = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    last["done"].clone()
}

#[test]
fn a_short_run_has_the_same_bits_with_every_sum_reordered_and_under_other_settings() {
    let mut baseline = cell(&[]);
    assert_eq!(baseline["sums_compared"], 0);
    let mut others = cell(&["--check-orders"]);
    assert!(others["sums_compared"].as_u64().unwrap() > 1_000_000);
    others["sums_compared"] = 0.into();
    assert_eq!(others, baseline);
    let others = cell(&["--threads", "2", "--micro-batch", "1", "--generation-batch", "3"]);
    assert_eq!(others, baseline);
    let mut found = vec!["scalar"];
    #[cfg(target_arch = "x86_64")]
    found.extend(std::arch::is_x86_feature_detected!("avx2").then_some("avx2"));
    #[cfg(target_arch = "x86_64")]
    found.extend(std::arch::is_x86_feature_detected!("avx512f").then_some("avx512"));
    for instructions in found {
        let others = cell_under(instructions, &[]);
        assert_eq!(others["instructions"], instructions);
        baseline["instructions"] = others["instructions"].clone();
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
