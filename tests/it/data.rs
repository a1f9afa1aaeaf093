//! `dapo data`, driven through its library function: what it writes and how it refuses.

use clap::Parser;
use dapo::commands::data::DataArgs;
use dapo::commands::data::run;
use dapo::config::Data;
use dapo::config::MiniAimeVariant;
use dapo::data;
use dapo::files;
use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    data: DataArgs,
}

fn prepare(source: &Path, out: &Path, flags: &[&str]) -> ExitCode {
    let fixed = ["dapo", "prepare", source.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let cli = Cli::try_parse_from(fixed.iter().chain(flags)).unwrap();
    run(&cli.data).unwrap()
}

#[test]
fn prepared_mini_aime_is_the_embedded_benchmark() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(prepare(Path::new("mini-aime"), folder.path(), &[]), ExitCode::SUCCESS);
    let path = |name: &str| folder.path().join(format!("{name}.parquet"));
    let test = vec![path("mini-aime"), path("mini-aime-plus")];
    let prepared = Data::Files { train: path("train"), dev: path("dev"), test };
    let (prepared, embedded) = (
        data::load(&prepared).unwrap(),
        data::load(&Data::MiniAime { variant: MiniAimeVariant::Standard }).unwrap(),
    );
    assert!(prepared == embedded);
    let digests: Value = files::read_json(&folder.path().join("digests.json")).unwrap();
    assert_eq!(digests["train"]["sha256"], data::digest(&embedded.train));
    assert_eq!(digests["train"]["problems"], 17_000);
    let file = files::sha256_file(&path("dev")).unwrap();
    assert_eq!(digests["dev"]["file_sha256"], file);
}

#[test]
fn conflicting_answers_are_exit_code_3_unless_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("set.jsonl");
    let lines = "{\"question\": \"p\", \"answer\": 1}\n{\"question\": \"p\", \"answer\": 2}\n\
                 {\"id\": \"x\", \"question\": \"q\", \"answer\": 3}\n";
    files::write_atomic(&source, lines.as_bytes()).unwrap();
    let out = folder.path().join("out");
    assert_eq!(prepare(&source, &out, &[]), ExitCode::from(3));
    assert!(!out.exists());
    assert_eq!(prepare(&source, &out, &["--drop-conflicting"]), ExitCode::SUCCESS);
    let kept = data::problem_file::read(&out.join("set.parquet")).unwrap().problems;
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].id.as_str(), kept[0].answer.as_str()), ("x", "3"));
}

#[test]
fn a_missing_file_is_exit_code_3() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("none.parquet");
    assert_eq!(prepare(&source, folder.path(), &[]), ExitCode::from(3));
}

#[test]
fn the_source_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("dev.parquet");
    let problems = data::load(&Data::MiniAime { variant: MiniAimeVariant::Standard }).unwrap().dev;
    data::write(&source, &problems, false).unwrap();
    let before = files::sha256_file(&source).unwrap();
    assert_eq!(prepare(&source, folder.path(), &[]), ExitCode::from(2));
    assert_eq!(files::sha256_file(&source).unwrap(), before);
    assert_eq!(files::list(folder.path()).unwrap(), ["dev.parquet"]);
}
