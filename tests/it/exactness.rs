//! `dapo exactness`: cells of the smallest size as processes of their own.

use assert_cmd::Command;
use serde_json::Value;

/// The digests that a cell prints last.
fn cell(options: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::cargo_bin("dapo")
        .unwrap()
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
    let mut others = cell(&["--threads", "2", "--micro-batch", "1", "--generation-batch", "3"]);
    assert_eq!(others, baseline);
    // A machine without them says so with exit code 6; the others are always there.
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        others = cell(&["--instructions", "avx2"]);
        assert_eq!(others["instructions"], "avx2");
        baseline["instructions"] = others["instructions"].clone();
        assert_eq!(others, baseline);
    }
}
