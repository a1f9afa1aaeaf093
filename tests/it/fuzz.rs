//! Short fuzzing of everything that reads a file: random bytes, and valid files with flipped
//! bits, cut ends, spliced pieces and absurd numbers. The property: `Ok` or `Err`, never a
//! panic, never an end of the process, never memory beyond [`MEMORY_BYTES`], never a case that
//! takes half a minute.
//!
//! Each target runs in a process of its own (this test binary again, with `DAPO_FUZZ_TARGET`),
//! whose address space is limited: an abort, a stack overflow or an allocation that fails is
//! seen as the end of that process, counted, and the target goes on with the next case. Tables
//! are read as the program reads them, in a process apart.
//!
//! The cases are a function of their number. `DAPO_FUZZ_SECONDS=600 cargo nextest run fuzz` goes
//! on with further ones for so long in each target; a failure prints target and number, and
//! `DAPO_FUZZ_FIRST=<number>` begins there.
//!
//! libFuzzer is not used: `cargo-fuzz` needs a nightly compiler for its instrumentation, and this
//! repository is built with the pinned stable one.

#![expect(
    clippy::disallowed_methods,
    reason = "thousands of small files are written without waiting for the disk"
)]

use crate::{bad_input::tree, golden_data, run_fixture};
use dapo::base::rng::{Id, Stream, stream};
use dapo::base::{Purpose, apart, files};
use dapo::commands::table_reader;
use dapo::experiment::{MiniAimeVariant, extends};
use dapo::policy::optimizer::OptimizerState;
use dapo::policy::{CheckpointProgress, Config, Family, Qwen2, checkpoint};
use dapo::records::ledger::{self, Kind};
use dapo::records::{HousekeepingRules, RunFolder, housekeeping, tables};
use dapo::report::run;
use dapo::study::effect_checks;
use dapo::task::Tokenizer;
use dapo::task::data::embedded::mini_aime;
use dapo::task::data::{self, problem_file};
use rustix::process::{Resource, Rlimit};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Draws of one case.
struct Draws(Stream);

impl Draws {
    fn below(&mut self, limit: usize) -> usize {
        ((self.0.uniform() * limit as f64) as usize).min(limit.saturating_sub(1))
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let count = self.below(most + 1);
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

/// Pieces that formats trip over, apart by `|`.
const PIECES: &[u8] =
    b"99999999999999999999|-1|0|1e400|nan|null|{}|[]|\"\"|[[[[[[[[|{\"a\":|\xff\xfe|\x00\
      |\x1b[2J|\xe2\x80\xae|9223372036854775807|18446744073709551615|\"kind\"|= \n|true\
      |4294967296|\xff\xff\xff\xff\xff\xff\xff\x7f|\x80\x80\x80\x80\x10|\\u0000";

/// A spoilt copy.
fn mutated(draws: &mut Draws, valid: &[u8]) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    if draws.below(12) == 0 {
        return draws.bytes(300);
    }
    for _ in 0..1 + draws.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = draws.below(bytes.len());
        match draws.below(6) {
            0 => bytes[at] ^= 1 << draws.below(8),
            1 => bytes[at] = draws.below(256) as u8,
            2 => bytes.truncate(at),
            3 => {
                let end = (at + 1 + draws.below(40)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let pieces: Vec<&[u8]> = PIECES.split(|byte| *byte == b'|').collect();
                let piece = pieces[draws.below(pieces.len())];
                // In place of a number, where there is one: it reaches further into a reader.
                let digits = bytes[at..].iter().position(u8::is_ascii_digit).map(|more| at + more);
                let start = digits.unwrap_or(at);
                let end = start + bytes[start..].iter().take_while(|b| b.is_ascii_digit()).count();
                bytes.splice(start..end, piece.iter().copied());
            }
            _ => {
                let from = draws.below(valid.len());
                let piece = &valid[from..(from + draws.below(200)).min(valid.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
        }
    }
    bytes
}

/// Address space that a target may take beyond what it starts with. Tables have their own limit.
const MEMORY_BYTES: u64 = 3 << 30;

/// A case that takes longer counts as one without end.
const MOST_SECONDS: u64 = 30;

/// A target stops after so many ends of its process: they are one defect.
const MOST_ENDS: usize = 20;

/// Name of a file, cases of a short run, and what reads a spoilt copy.
type Target = (&'static str, u64, fn(&Path, &'static str) -> Spoil);

/// Reads one spoilt copy.
type Spoil = Box<dyn FnMut(&mut Draws)>;

const TARGETS: [Target; 21] = [
    ("arm.toml", 300, experiment_file),
    ("set.jsonl", 2000, problem_lines),
    ("model.safetensors", 1000, weights),
    ("config.json", 800, weights),
    ("model.safetensors.index.json", 300, weights),
    ("trainer.json", 150, checkpoint_file),
    ("optimizer.safetensors", 100, checkpoint_file),
    ("tokenizer.json", 400, tokenizer),
    ("problems.parquet", 150, table),
    ("outcomes.parquet", 150, table),
    ("rollouts.parquet", 150, table),
    ("experiment.json", 40, record),
    ("manifest.json", 40, record),
    ("environment.json", 30, record),
    ("metrics.jsonl", 60, record),
    ("ledger.jsonl", 60, record),
    ("timings.jsonl", 40, record),
    ("evaluations.jsonl", 60, record),
    ("tags.json", 40, record),
    ("outcome.json", 40, record),
    ("run folder", 40, whole_folder),
];

/// Where the next case begins in an earlier run's numbering, and how long to go on.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs these targets one after another, each in processes of its own.
fn fuzz(names: &[&str]) {
    let wrong: Vec<String> = names.iter().flat_map(|name| ends(name)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// What the processes of a target ended with, but for the last that did not.
fn ends(name: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut first = number("DAPO_FUZZ_FIRST").unwrap_or(0);
    let (begin, started) = (first, Instant::now());
    let mut ends = Vec::new();
    while ends.len() < MOST_ENDS {
        let seconds = number("DAPO_FUZZ_SECONDS")
            .map(|seconds| seconds.saturating_sub(started.elapsed().as_secs()));
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fuzz::one_target_of_the_fuzz_tests", "--ignored", "--nocapture"])
            .env("DAPO_FUZZ_TARGET", name)
            .env("DAPO_FUZZ_FOLDER", folder.path())
            .env("DAPO_FUZZ_FIRST", first.to_string())
            .envs(seconds.map(|seconds| ("DAPO_FUZZ_SECONDS", seconds.to_string())))
            .env("OMP_NUM_THREADS", "1")
            .output()
            .unwrap();
        // Written before each case: the number of the one that was going on.
        let case = files::read_text(&folder.path().join(".case")).unwrap_or_default();
        let case: u64 = case.trim().parse().expect("the target wrote the number of its case");
        let talk = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = talk.lines().collect();
        if output.status.success() {
            let apart = lines.iter().filter(|line| line.starts_with("ended ")).count();
            let peak = lines.iter().find(|line| line.starts_with("peak ")).unwrap_or(&"");
            let (cases, count) = (case + 1 - begin, ends.len());
            eprintln!("{name}: {cases} cases, {count} ends, {apart} in a process apart, {peak}");
            return ends;
        }
        let tail = lines[lines.len().saturating_sub(12)..].join("\n");
        ends.push(format!("{name}, case {case}: {}\n{tail}", output.status));
        first = case + 1;
    }
    ends.push(format!("{name}: {MOST_ENDS} ends, given up"));
    ends
}

#[test]
#[ignore = "a process of the tests below, which say what it shall do"]
fn one_target_of_the_fuzz_tests() {
    let name = std::env::var("DAPO_FUZZ_TARGET").expect("run by the other fuzz tests");
    let folder = PathBuf::from(std::env::var("DAPO_FUZZ_FOLDER").unwrap());
    let (target, short, make) = *TARGETS.iter().find(|(target, ..)| *target == name).unwrap();
    apart::use_program(env!("CARGO_BIN_EXE_dapo").into(), table_reader::VERB);
    let mut read = make(&folder, target);
    limit_memory();
    let first = number("DAPO_FUZZ_FIRST").unwrap_or(0);
    let seconds = number("DAPO_FUZZ_SECONDS");
    let started = Instant::now();
    let mut case = first;
    while match seconds {
        Some(seconds) => started.elapsed() < Duration::from_secs(seconds),
        None => case < short,
    } {
        std::fs::write(folder.join(".case"), case.to_string()).unwrap();
        let mut draws =
            Draws(stream(1, Purpose::Generate, &[Id::from(name.as_str()), Id::from(case)]));
        let before = Instant::now();
        read(&mut draws);
        let taken = before.elapsed();
        assert!(taken < Duration::from_secs(MOST_SECONDS), "a case took {taken:?}");
        case += 1;
    }
    // A case of the short run that is behind `first` leaves nothing to do.
    if case == first {
        std::fs::write(folder.join(".case"), case.saturating_sub(1).to_string()).unwrap();
    }
    let status = files::kernel_text(Path::new("/proc/self/status")).unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    eprintln!("peak {}", peak.trim_start_matches("VmHWM:").trim());
}

fn limit_memory() {
    let pages = files::kernel_text(Path::new("/proc/self/statm")).unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let most = pages * rustix::param::page_size() as u64 + MEMORY_BYTES;
    let limit = Rlimit { current: Some(most), maximum: None };
    rustix::process::setrlimit(Resource::As, limit).unwrap();
}

/// One of the valid contents, spoilt, is written to a file, which is read.
fn spoilt<const N: usize>(
    path: PathBuf,
    valid: [Vec<u8>; N],
    spoil: fn(&mut Draws, &[u8]) -> Vec<u8>,
    read: impl Fn(&Path) + 'static,
) -> Spoil {
    Box::new(move |draws| {
        let chosen = draws.below(N);
        std::fs::write(&path, spoil(draws, &valid[chosen])).unwrap();
        read(&path);
    })
}

fn experiment_file(folder: &Path, name: &'static str) -> Spoil {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let valid = ["base.toml", "dapo.toml"].map(|name| files::read(&shipped.join(name)).unwrap());
    std::fs::write(folder.join("base.toml"), &valid[0]).unwrap();
    spoilt(folder.join(name), valid, mutated, |path| {
        if let Err(error) = extends::load(path) {
            assert!(!error.to_string().is_empty());
        }
    })
}

fn problem_lines(folder: &Path, name: &'static str) -> Spoil {
    let valid = b"{\"id\": 7, \"question\": \"1+2?\", \"answer\": \"3\"}\n\n{\"question\": \"0-1?\", \"answer\": -1}\n";
    spoilt(folder.join(name), [valid.to_vec()], mutated, |path| {
        if let Ok(file) = problem_file::read(path) {
            let _ = file.consistent(path);
        }
    })
}

/// The shape of a policy so small that it is made at once.
pub fn tiny(vocab_size: i64, max_position_embeddings: i64) -> Config {
    Config {
        family: Family::Qwen2,
        vocab_size,
        hidden_size: 8,
        intermediate_size: 12,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 4,
        max_position_embeddings,
        rope_theta: 10000.0,
        rope_scaling: None,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: true,
    }
}

/// The header of a safetensors file: most of the rest is weights, of which any bits are valid.
fn header(bytes: &[u8]) -> Vec<u8> {
    bytes[..8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize].to_vec()
}

/// A spoilt header before the whole rest of a safetensors file, or any part of it spoilt.
fn mutated_tensors(draws: &mut Draws, valid: &[u8]) -> Vec<u8> {
    let header = header(valid);
    match draws.below(3) {
        0 => mutated(draws, valid),
        1 => mutated(draws, &header),
        _ => {
            let text = mutated(draws, &header[8..]);
            let length = (text.len() as u64).to_le_bytes();
            [&length[..], &text, &valid[header.len()..]].concat()
        }
    }
}

fn model_folder(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let tensors = checkpoint::values(&Qwen2::initialise(tiny(11, 16), 3));
    checkpoint::write_tensors(&folder.join("model.safetensors"), &tensors).unwrap();
    files::write_json(&folder.join("config.json"), &tiny(11, 16).to_json(1, 0)).unwrap();
}

fn weights(folder: &Path, name: &'static str) -> Spoil {
    if name.ends_with(".index.json") {
        crate::verify::copy(&golden_data::folder("qwen2/sharded-bf16"), folder);
    } else {
        model_folder(folder);
    }
    let spoil = if name.ends_with(".json") { mutated } else { mutated_tensors };
    let path = folder.join(name);
    spoilt(path.clone(), [files::read(&path).unwrap()], spoil, |path| {
        let _ = checkpoint::load_model(path.parent().unwrap());
    })
}

fn checkpoint_file(folder: &Path, name: &'static str) -> Spoil {
    let (base, folder) = (folder.join("base"), folder.join("step-000001"));
    model_folder(&base);
    let model = checkpoint::load_model(&base).unwrap();
    let ones = || -> BTreeMap<String, Vec<f32>> {
        let values = checkpoint::values(&model);
        values.into_iter().map(|(name, (_, values))| (name, vec![1.0; values.len()])).collect()
    };
    let optimizer = OptimizerState { updates: 4, first_moments: ones(), second_moments: ones() };
    let progress = CheckpointProgress::default();
    checkpoint::save(&folder, model.parameters(), Some(&optimizer), &base, &progress).unwrap();
    let valid = files::read(&folder.join(name)).unwrap();
    let spoil = if name.ends_with(".json") { mutated } else { mutated_tensors };
    let (record, written) = (folder.join("trainer.json"), files::sha256(&valid));
    let text = files::read_text(&record).unwrap();
    spoilt(folder.join(name), [valid], spoil, move |path| {
        // Whoever replaces a file replaces its digest: otherwise nothing but the digest is met.
        if *path != record {
            let text = text.replace(&written, &files::sha256_file(path).unwrap());
            std::fs::write(&record, text).unwrap();
        }
        let _ = checkpoint::load(&folder);
    })
}

fn tokenizer(folder: &Path, name: &'static str) -> Spoil {
    let valid = ["mini-aime/base/tokenizer.json", "tokenizers/byte-level.json"]
        .map(|name| files::read(&golden_data::folder(name)).unwrap());
    std::fs::write(folder.join("config.json"), b"{\"eos_token_id\": 1}").unwrap();
    spoilt(folder.join(name), valid, mutated, |path| {
        let folder = path.parent().unwrap();
        if let Ok(tokenizer) = Tokenizer::load(folder) {
            let _ = tokenizer.encode("12+34? \u{e9}\u{1b}[2J");
            let _ = tokenizer.decode(&(0..40).collect::<Vec<u32>>());
            let _ = tokenizer.fits(folder, 11);
        }
    })
}

fn table(folder: &Path, name: &'static str) -> Spoil {
    let run = run_fixture::started(&folder.join("run"));
    run_fixture::evaluate(&run, "dev", 0, 4, 2);
    let path = folder.join(name);
    match name {
        "problems.parquet" => {
            let sets = mini_aime::generate(MiniAimeVariant::Standard);
            data::write(&path, &sets.dev[..8], true).unwrap();
        }
        "outcomes.parquet" => std::fs::rename(run.outcomes("dev", 0), &path).unwrap(),
        _ => tables::write_rollouts(&path, &run_fixture::rollouts(1)).unwrap(),
    }
    spoilt(path.clone(), [files::read(&path).unwrap()], mutated, move |path| {
        let error = match name {
            "problems.parquet" => problem_file::read(path).err().map(|error| error.to_string()),
            "outcomes.parquet" => tables::read_outcomes(path).err().map(|error| error.to_string()),
            _ => tables::read_rollouts(path).err().map(|error| error.to_string()),
        };
        // How a reader ended that would have taken the program with it.
        let ended = ["MiB)", "its reader", " s)"];
        if let Some(error) = error.filter(|error| ended.iter().any(|end| error.contains(end))) {
            eprintln!("ended {error}");
            if let Ok(keep) = std::env::var("DAPO_FUZZ_KEEP") {
                std::fs::copy(path, Path::new(&keep).join(name)).unwrap();
            }
        }
    })
}

/// A small run folder with everything that a report reads.
fn small_run(folder: &Path) -> RunFolder {
    let run = run_fixture::started(&folder.join("run"));
    run_fixture::evaluate(&run, "dev", 0, 4, 2);
    (1..=2).for_each(|step| run_fixture::record_step(&run, step));
    for step in 1..=2 {
        tables::write_rollouts(&run.rollouts(step), &run_fixture::rollouts(step)).unwrap();
    }
    let tags = BTreeMap::from([("dev", BTreeMap::from([("dev/000", ["sums", "easy"])]))]);
    files::write_json(&run.path("tags.json"), &tags).unwrap();
    ledger::append(&run, "", (Kind::Genesis, 0), BTreeMap::new()).unwrap();
    run_fixture::end(&run, 2);
    run
}

/// Every reader of a run folder.
fn read_folder(root: &Path, run: &RunFolder) {
    if run::build(run).is_ok() {
        let _ = run::write(run);
    }
    if let Ok(entries) = run.ledger() {
        let _ = ledger::check_chain(&entries);
    }
    if let (Ok(experiment), Ok(metrics)) = (run.experiment(), run.metrics()) {
        let _ = effect_checks::check(&experiment, &metrics).warnings();
    }
    for found in housekeeping::runs(root).unwrap_or_default() {
        let _ = housekeeping::summary(&found);
    }
    let _ = housekeeping::candidates(root, HousekeepingRules { keep_last: 1, unfinished: true });
    let _ = run.digests();
    let _ = run.timings();
}

fn record(folder: &Path, name: &'static str) -> Spoil {
    let folder = folder.to_path_buf();
    let run = small_run(&folder);
    let valid = files::read(&run.path(name)).unwrap();
    spoilt(run.path(name), [valid], mutated, move |_| read_folder(&folder, &run))
}

/// Any one or two files of a run folder spoilt, replaced by a link, or swapped.
fn whole_folder(folder: &Path, _: &'static str) -> Spoil {
    let folder = folder.to_path_buf();
    let run = small_run(&folder);
    let names = tree(run.root()).into_keys().filter(|name| run.path(name).is_file());
    let names: Vec<String> = names.collect();
    let valid: Vec<Vec<u8>> =
        names.iter().map(|name| files::read(&run.path(name)).unwrap()).collect();
    let outside = folder.join("outside.json");
    std::fs::write(&outside, b"{}").unwrap();
    Box::new(move |draws| {
        for _ in 0..1 + draws.below(2) {
            let index = draws.below(names.len());
            let path = run.path(&names[index]);
            // Never through a link that an earlier draw has made.
            std::fs::remove_file(&path).unwrap();
            match draws.below(6) {
                0 => {
                    let targets = [Path::new("/dev/zero"), &outside, Path::new(".")];
                    std::os::unix::fs::symlink(targets[draws.below(3)], &path).unwrap();
                }
                1 => std::fs::write(&path, &valid[draws.below(valid.len())]).unwrap(),
                _ => std::fs::write(&path, mutated(draws, &valid[index])).unwrap(),
            }
        }
        read_folder(&folder, &run);
        assert_eq!(files::read(&outside).unwrap(), b"{}", "written outside of the folder");
        for (name, bytes) in names.iter().zip(&valid) {
            files::write_atomic(&run.path(name), bytes).unwrap();
        }
    })
}

#[test]
fn fuzz_experiments_and_problems_end_in_a_message() {
    fuzz(&["arm.toml", "set.jsonl"]);
}

#[test]
fn fuzz_checkpoints_end_in_a_message() {
    fuzz(&["model.safetensors", "config.json", "trainer.json", "optimizer.safetensors"]);
    fuzz(&["model.safetensors.index.json", "tokenizer.json"]);
}

#[test]
fn fuzz_tables_end_in_a_message() {
    fuzz(&["problems.parquet", "outcomes.parquet", "rollouts.parquet"]);
}

#[test]
fn fuzz_run_folders_end_in_a_message() {
    fuzz(&["experiment.json", "manifest.json", "environment.json", "tags.json", "outcome.json"]);
    fuzz(&["metrics.jsonl", "ledger.jsonl", "timings.jsonl", "evaluations.jsonl", "run folder"]);
}
