//! Files that cost more than they are: holes, links, pipes, devices and what a kernel makes up. Every
//! verb that takes a path refuses them by name, at once, in little memory and without their text.

use crate::{study_example, study_fixture};
use assert_cmd::Command;
use dapo::base::files;
use dapo::report::study;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MOST_KIB: u64 = 1 << 20;
/// Ten seconds are promised; a busy machine is given more.
const MOST_TIME: Duration = Duration::from_secs(60);

/// Runs a verb, and returns its exit code and all that it printed.
fn run(arguments: &[&str]) -> (i32, String) {
    run_in(Path::new(env!("CARGO_MANIFEST_DIR")), arguments)
}

fn run_in(folder: &Path, arguments: &[&str]) -> (i32, String) {
    // The shell's children have one peak, which GNU time would print; bash has none, so the limit
    // stands on data (`ulimit -d`), which a mapped library does not count for.
    let script = format!("ulimit -d {MOST_KIB}; exec \"$0\" \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_dapo")]).args(arguments);
    command.env("OMP_NUM_THREADS", "1").current_dir(folder);
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
    let verbs = [
        ("jsonl", "eval --model BASE --data FILE"),
        ("parquet", "eval --model BASE --data FILE"),
        ("jsonl", "model generate --model BASE --prompts FILE"),
        ("jsonl", "model generate --model BASE --problems FILE"),
        ("toml", "model pretrain FILE --out /nonexistent/base"),
        ("toml", "model tune BASE --recipe FILE --out /nonexistent/base"),
        ("jsonl", "model tune BASE --recipe RECIPE --solutions FILE --out /nonexistent"),
        ("jsonl", "data prepare FILE --out /nonexistent/data"),
        ("toml", "ablate FILE --dry-run"),
        ("toml", "bench FILE"),
        ("json", "train FILE --no-plan --out /nonexistent/run"),
        ("yaml", "engine check trl FILE"),
        ("toml", "config show FILE"),
        ("toml", "train --no-plan --out /nonexistent/run FILE"),
        ("toml", "plan FILE"),
        ("toml", "report reports/study-2 --out /nonexistent --declaration FILE"),
        ("jsonl", "grade FILE"),
        ("jsonl", "data audit FILE"),
        ("csv", "compare --a FILE --b FILE"),
        ("parquet", "compare --a FILE --b FILE"),
    ];
    for (number, (extension, verb)) in verbs.iter().enumerate() {
        for path in hostile(&folder.path().join(number.to_string()), extension) {
            let path = path.to_str().unwrap();
            let word = |word| match word {
                "FILE" => path,
                "BASE" => "golden/mini-aime/base",
                "RECIPE" => "experiments/smollm2/recipe.toml",
                word => word,
            };
            let arguments: Vec<&str> = verb.split(' ').map(word).collect();
            let (code, text) = run(&arguments);
            assert_eq!(code, 3, "{arguments:?}: {text}");
            assert!(text.contains(path), "{arguments:?}: {text}");
        }
    }
}

#[test]
fn a_link_in_a_study_is_not_followed_and_nothing_of_its_target_is_shown() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/study-2");
    for name in ["claims.toml", "study.json", "grids", "cells", "report.json"] {
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
            // Without its grids it is no study.
            let is_named = text.contains(name) || name == "grids";
            assert!(is_named && !text.contains("root:"), "{name}: {text}");
        }
    }
}

type Make = fn(&Path);

/// What a hostile file is, and how it is made.
const KINDS: [(&str, Make); 6] = [
    ("holes", |path| {
        #[expect(clippy::disallowed_types, reason = "no function of ours makes holes")]
        let file = std::fs::File::create(path).unwrap();
        file.set_len(3_900_000_000).unwrap();
    }),
    ("a link to a device", |path| symlink("/dev/zero", path).unwrap()),
    ("a link to a secret", |path| symlink("/etc/passwd", path).unwrap()),
    ("a pipe", |path| {
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::RUSR, 0).unwrap();
    }),
    ("nesting", |path| files::write_atomic(path, "[".repeat(1 << 20).as_bytes()).unwrap()),
    ("one endless line", |path| files::write_atomic(path, &vec![b'1'; 20 << 20]).unwrap()),
];

#[test]
fn files_of_a_received_study_cost_nothing_and_lead_nowhere() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("study");
    let mut grids = study_fixture::grids(&[1, 2]);
    grids.retain(|grid| grid.name == "leave-one-out");
    grids[0].arms.truncate(2);
    let cells = study_example::cells(&grids, &[1, 2]);
    study_fixture::write(&root, &grids, &cells);
    study::write(&root, None, None).unwrap();
    let cell = format!("cells/{}", cells[0].file_name());
    for name in ["claims.toml", "study.json", "report.json", "grids/leave-one-out.json", &cell] {
        let path = root.join(name);
        let honest = files::read(&path).ok();
        for (kind, make) in KINDS {
            files::remove_file(&path).unwrap();
            make(&path);
            let mut verbs: Vec<&[&str]> = vec![&["verify", "study"]];
            if !name.starts_with("report") && (kind == "holes" || kind.starts_with("a link")) {
                verbs.push(&["report", "study", "--out", "again"]);
                verbs.push(&["compare", "study", "--arm", "dapo", "--against", "clip-higher"]);
            }
            for arguments in verbs {
                let (code, text) = run_in(scratch.path(), arguments);
                let place = format!("{kind} as {name}, {arguments:?}: {code:?}\n{text}");
                assert!(!text.contains("root:"), "{place}");
                assert!(!text.contains("panicked"), "{place}");
                if arguments[0] == "verify" {
                    assert_eq!(code, 4, "{place}");
                    assert!(text.contains(name.rsplit('/').next().unwrap()), "{place}");
                }
            }
        }
        files::remove_file(&path).unwrap();
        if let Some(bytes) = honest {
            files::write_atomic(&path, &bytes).unwrap();
        }
    }
    assert_eq!(run_in(scratch.path(), &["verify", "study"]).0, 0);
}

#[test]
fn a_text_of_megabytes_and_a_table_of_millions_of_rows_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/mini-aime/base");
    let base = base.to_str().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let text = format!("{{\"question\": \"{}\", \"answer\": \"1\"}}\n", "1".repeat(15_000_000));
    files::write_atomic(&at("problems.jsonl"), text.as_bytes()).unwrap();
    let prompt = text.replace("question", "prompt").replace(", \"answer\": \"1\"", "");
    files::write_atomic(&at("prompts.jsonl"), prompt.as_bytes()).unwrap();
    let rows = "p,1,1\n".repeat(5_000_000);
    let table = format!("problem,sample,correct\n{rows}");
    files::write_atomic(&at("table.csv"), table.as_bytes()).unwrap();
    let generate = ["model", "generate", "--model", base];
    for (arguments, says) in [
        ([&generate[..], &["--problems", "problems.jsonl"]].concat(), "it has 15000000 bytes"),
        ([&generate[..], &["--prompts", "prompts.jsonl"]].concat(), "it has 15000000 bytes"),
        (vec!["compare", "--a", "table.csv", "--b", "table.csv"], "more than 4194304 rows"),
    ] {
        let (code, text) = run_in(scratch.path(), &arguments);
        assert_eq!(code, 3, "{arguments:?}: {text}");
        assert!(text.contains(says), "{arguments:?}: {text}");
    }
}
