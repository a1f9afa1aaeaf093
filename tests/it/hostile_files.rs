//! Files that cost more than they are: holes, links, pipes, devices and what a kernel makes up. Every
//! verb that takes a path refuses them by name, at once, in little memory and without their text.

use crate::bad_input::input::shell;
use crate::{repository, study_fixture};
use assert_cmd::Command;
use dapo::base::files;
use dapo::report::study;
use std::path::Path;
use std::time::{Duration, Instant};

const MOST_KIB: u64 = 1 << 20;
/// Ten seconds are promised; a busy machine is given more.
const MOST_TIME: Duration = Duration::from_secs(60);

/// Runs a verb, and returns its exit code and all that it printed.
fn run_in(folder: &Path, line: &str) -> (i32, String) {
    // The shell's children have one peak, which GNU time would print; bash has none, so the limit
    // stands on data (`ulimit -d`), which a mapped library does not count for.
    let script = format!("ulimit -d {MOST_KIB}; exec \"$0\" \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_dapo")]).args(line.split(' '));
    command.env("OMP_NUM_THREADS", "1").current_dir(folder);
    let start = Instant::now();
    let output = command.timeout(MOST_TIME).output().unwrap();
    assert!(start.elapsed() < MOST_TIME, "{line} took {:?}", start.elapsed());
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
        let hostile = KINDS[..4].iter().enumerate().map(|(kind, (_, line))| {
            let path = folder.path().join(format!("{number}-{kind}.{extension}"));
            make(line, &path);
            path.display().to_string()
        });
        for path in hostile.chain(["/dev/zero".to_string()]) {
            let line = verb.replace("BASE", "golden/mini-aime/base");
            let line = line.replace("RECIPE", "experiments/smollm2/recipe.toml");
            let (code, text) = run_in(&repository::root(), &line.replace("FILE", &path));
            assert!(code == 3 && text.contains(&path), "{verb}: {code} {text}");
        }
    }
}

/// What a hostile file is, and how a shell makes it in place of what is there.
const KINDS: [(&str, &str); 7] = [
    ("holes", "rm -f $FILE; truncate -s 3900000000 $FILE"),
    ("a link to a device", "ln -sf /dev/zero $FILE"),
    ("a link to what a kernel makes up", "ln -sf /proc/self/maps $FILE"),
    ("a pipe", "rm -f $FILE; mkfifo $FILE"),
    ("a link to a secret", "ln -sf /etc/passwd $FILE"),
    ("nesting", "rm $FILE; head -c 1048576 /dev/zero | tr '\\0' '[' > $FILE"),
    ("one endless line", "rm $FILE; head -c 20971520 /dev/zero | tr '\\0' 1 > $FILE"),
];

fn make(line: &str, path: &Path) {
    shell(Path::new("/"), &line.replace("$FILE", path.to_str().unwrap()));
}

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
        for (kind, line) in KINDS {
            make(line, &path);
            let mut lines = vec!["verify study"];
            if !name.starts_with("report") && (kind == "holes" || kind.starts_with("a link")) {
                lines.push("report study --out again");
                lines.push("compare study --arm dapo --against clip-higher");
            }
            for line in lines {
                let (code, text) = run_in(scratch.path(), line);
                let place = format!("{kind} as {name}, {line}: {code:?}\n{text}");
                assert!(!text.contains("root:") && !text.contains("panicked"), "{place}");
                if line == "verify study" {
                    let file = name.rsplit('/').next().unwrap();
                    assert!(code == 4 && text.contains(file), "{place}");
                }
            }
        }
        files::remove_file(&path).unwrap();
        if let Some(bytes) = honest {
            files::write_atomic(&path, &bytes).unwrap();
        }
    }
    assert_eq!(run_in(scratch.path(), "verify study").0, 0);
    for name in ["cells", "grids"] {
        for target in ["/etc", "/etc/passwd", "/dev/zero"] {
            shell(&root, &format!("rm -r {name}; ln -s {target} {name}"));
            let (code, text) = run_in(scratch.path(), "verify study");
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
    for line in [
        r#"(printf '{"question": "'; head -c 15000000 /dev/zero | tr '\0' 1; echo '", "answer": "1"}') > problems.jsonl"#,
        r#"sed 's/question/prompt/; s/, "answer": "1"//' problems.jsonl > prompts.jsonl"#,
        "(echo problem,sample,correct; yes p,1,1 | head -5000000) > table.csv",
        "ln -s $ROOT/golden/mini-aime/base .",
    ] {
        shell(scratch.path(), line);
    }
    for (line, words) in [
        ("model generate --model base --problems problems.jsonl", "it has 15000000 bytes"),
        ("model generate --model base --prompts prompts.jsonl", "it has 15000000 bytes"),
        ("compare --a table.csv --b table.csv", "more than 4194304 rows"),
    ] {
        let (code, text) = run_in(scratch.path(), line);
        assert!(code == 3 && text.contains(words), "{line}: {code} {text}");
    }
}
