//! Files that cost more than they are: holes, links, pipes, devices and what a kernel makes up. Every
//! verb that takes a path refuses them by name, at once, in little memory and without their text.

use crate::bad_input::input::remove;
use crate::{repository, study_fixture};
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
        let hostile = KINDS[..4].iter().enumerate().map(|(kind, (_, make))| {
            let path = folder.path().join(format!("{number}-{kind}.{extension}"));
            make(&path);
            path
        });
        for path in hostile.chain([PathBuf::from("/dev/zero")]) {
            let path = path.to_str().unwrap();
            let word = |word| match word {
                "FILE" => path,
                "BASE" => "golden/mini-aime/base",
                "RECIPE" => "experiments/smollm2/recipe.toml",
                word => word,
            };
            let arguments: Vec<&str> = verb.split(' ').map(word).collect();
            let (code, text) = run_in(&repository::root(), &arguments);
            assert_eq!(code, 3, "{arguments:?}: {text}");
            assert!(text.contains(path), "{arguments:?}: {text}");
        }
    }
}

type Make = fn(&Path);

/// What a hostile file is, and how it is made.
const KINDS: [(&str, Make); 7] = [
    ("holes", |path| {
        #[expect(clippy::disallowed_types, reason = "no function of ours makes holes")]
        let file = std::fs::File::create(path).unwrap();
        file.set_len(3_900_000_000).unwrap();
    }),
    ("a link to a device", |path| symlink("/dev/zero", path).unwrap()),
    ("a link to what a kernel makes up", |path| symlink("/proc/self/maps", path).unwrap()),
    ("a pipe", |path| {
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::RUSR, 0).unwrap();
    }),
    ("a link to a secret", |path| symlink("/etc/passwd", path).unwrap()),
    ("nesting", |path| files::write_atomic(path, "[".repeat(1 << 20).as_bytes()).unwrap()),
    ("one endless line", |path| files::write_atomic(path, &vec![b'1'; 20 << 20]).unwrap()),
];

#[test]
fn files_of_a_received_study_cost_nothing_and_lead_nowhere() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("study");
    let (grids, cells) = study_fixture::published("leave-one-out", 2, &[101, 102]);
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
    for name in ["cells", "grids"] {
        for target in ["/etc", "/etc/passwd", "/dev/zero"] {
            remove(&root.join(name));
            symlink(target, root.join(name)).unwrap();
            let (code, text) = run_in(scratch.path(), &["verify", "study"]);
            // Without its grids it is no study.
            assert_eq!(code, if name == "grids" { 3 } else { 4 }, "{name}, {target}: {text}");
            let is_named = text.contains(name) || name == "grids";
            assert!(is_named && !text.contains("root:"), "{name}, {target}: {text}");
        }
    }
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
