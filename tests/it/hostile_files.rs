//! Files that cost more than they are: holes, links, pipes, devices and what a kernel makes up. Every
//! verb that takes a path refuses them by name, at once, in little memory and without their text.

use assert_cmd::Command;
use dapo::base::files;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MOST_KIB: u64 = 1 << 20;
const MOST_TIME: Duration = Duration::from_secs(10);

/// Runs a verb, and returns its exit code and all that it printed.
fn run(arguments: &[&str]) -> (i32, String) {
    // The shell's children have one peak, which GNU time would print; bash has none, so the limit
    // stands on data (`ulimit -d`), which a mapped library does not count for.
    let script = format!("ulimit -d {MOST_KIB}; exec \"$0\" \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_dapo")]).args(arguments);
    command.env("OMP_NUM_THREADS", "1").current_dir(env!("CARGO_MANIFEST_DIR"));
    let start = Instant::now();
    let output = command.timeout(MOST_TIME).output().unwrap();
    assert!(start.elapsed() < MOST_TIME, "{arguments:?} took {:?}", start.elapsed());
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

/// A file of 3.9 GB that has no data, a pipe, and paths that are neither.
fn hostile(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let at = |name: &str| folder.join(format!("{name}.{extension}"));
    files::write_atomic(&at("holes"), b"").unwrap();
    let (holes, _) = files::log_writers(&at("holes")).unwrap();
    holes.set_len(3_900_000_000).unwrap();
    symlink("/dev/zero", at("zero")).unwrap();
    symlink("/proc/self/maps", at("maps")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success());
    let mut paths = vec![at("holes"), at("zero"), at("maps"), at("pipe")];
    paths.push(PathBuf::from("/dev/zero"));
    paths
}

#[test]
fn every_verb_refuses_a_file_without_end_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let verbs: [(&str, &[&str]); 8] = [
        ("toml", &["config", "show", "FILE"]),
        ("toml", &["train", "--no-plan", "--out", "/nonexistent/run", "FILE"]),
        ("toml", &["plan", "FILE"]),
        ("toml", &["report", "reports/study-2", "--out", "/nonexistent", "--declaration", "FILE"]),
        ("jsonl", &["grade", "FILE"]),
        ("jsonl", &["data", "audit", "FILE"]),
        ("csv", &["compare", "--a", "FILE", "--b", "FILE"]),
        ("parquet", &["compare", "--a", "FILE", "--b", "FILE"]),
    ];
    for (number, (extension, verb)) in verbs.iter().enumerate() {
        for path in hostile(&folder.path().join(number.to_string()), extension) {
            let path = path.to_str().unwrap();
            let arguments: Vec<&str> =
                verb.iter().map(|word| if *word == "FILE" { path } else { word }).collect();
            let (code, text) = run(&arguments);
            assert_eq!(code, 3, "{arguments:?}: {text}");
            assert!(text.contains(path), "{arguments:?}: {text}");
        }
    }
}

#[test]
fn a_link_in_a_study_is_not_followed_and_nothing_of_its_target_is_shown() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/study-2");
    for name in ["claims.toml", "study.json", "grids", "cells", "report.md", "report.json"] {
        for target in ["/etc/passwd", "/dev/zero"] {
            let folder = tempfile::tempdir().unwrap();
            let study = folder.path();
            for entry in ["study.json", "grids"] {
                let copied = std::process::Command::new("cp")
                    .arg("-r")
                    .args([source.join(entry), study.join(entry)])
                    .status();
                assert!(copied.unwrap().success());
            }
            files::remove_folder(&study.join(name))
                .or_else(|_| files::remove_file(&study.join(name)))
                .unwrap();
            symlink(target, study.join(name)).unwrap();
            let (code, text) = run(&["verify", study.to_str().unwrap()]);
            assert!([3, 4].contains(&code), "{name}: {code} {text}");
            assert!(text.contains(name) && !text.contains("root:"), "{name}: {text}");
        }
    }
}
