//! Short fuzzing of everything that reads a file: random bytes, and valid files with flipped
//! bits, cut ends, spliced pieces and absurd numbers. The property: `Ok` or `Err`, never a
//! panic, never an allocation that the file's size does not justify.
//!
//! The seeds are fixed. `DAPO_FUZZ_SECONDS=600 cargo nextest run fuzz` goes on with further
//! seeds for so long in each test; a failure prints the number of its case.

#![expect(
    clippy::disallowed_methods,
    reason = "thousands of small files are written without waiting for the disk"
)]

use crate::golden_data;
use crate::run_fixture;
use dapo::checkpoint;
use dapo::config::extends;
use dapo::data::problem_file;
use dapo::files;
use dapo::model::config::Config;
use dapo::model::qwen2::Qwen2;
use dapo::prompt::Tokenizer;
use dapo::report;
use dapo::rng::Id;
use dapo::rng::Purpose;
use dapo::rng::Stream;
use dapo::rng::stream;
use dapo::tables;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

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

/// Pieces that formats trip over.
const PIECES: [&[u8]; 24] = [
    b"99999999999999999999",
    b"-1",
    b"0",
    b"1e400",
    b"nan",
    b"null",
    b"{}",
    b"[]",
    b"\"\"",
    b"[[[[[[[[",
    b"{\"a\":",
    b"\xff\xfe",
    b"\x00",
    b"\x1b[2J",
    b"\xe2\x80\xae",
    b"9223372036854775807",
    b"18446744073709551615",
    b"\"kind\"",
    b"= \n",
    b"true",
    b"4294967296",
    b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x10",
    b"\\u0000",
];

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
                let piece = PIECES[draws.below(PIECES.len())];
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

/// Says which case panicked.
struct Noted<'a>(&'a str, u64);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("fuzz case {} of {}", self.1, self.0);
        }
    }
}

/// Runs `read` on spoilt copies of `valid`: `cases` of them, or for `DAPO_FUZZ_SECONDS`.
fn fuzz(name: &str, cases: u64, valid: &[Vec<u8>], mut read: impl FnMut(&[u8])) {
    let seconds = std::env::var("DAPO_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let started = Instant::now();
    let mut case = 0;
    while match seconds {
        Some(seconds) => started.elapsed() < Duration::from_secs(seconds),
        None => case < cases,
    } {
        let _noted = Noted(name, case);
        let mut draws = Draws(stream(1, Purpose::Generate, &[Id::from(name), Id::from(case)]));
        let chosen = draws.below(valid.len());
        let bytes = mutated(&mut draws, &valid[chosen]);
        let before = Instant::now();
        read(&bytes);
        let taken = before.elapsed();
        assert!(taken < Duration::from_secs(30), "{} bytes took {taken:?}", bytes.len());
        case += 1;
    }
}

fn file(folder: &Path, name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn fuzz_experiment_files_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let base = files::read(&shipped.join("base.toml")).unwrap();
    let dapo = files::read(&shipped.join("dapo.toml")).unwrap();
    std::fs::write(folder.path().join("base.toml"), &base).unwrap();
    fuzz("experiment", 400, &[base, dapo], |bytes| {
        let result = extends::load(&file(folder.path(), "arm.toml", bytes));
        if let Err(error) = result {
            assert!(!error.to_string().is_empty());
        }
    });
}

#[test]
fn fuzz_json_lines_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let lines = b"{\"id\": 7, \"question\": \"1+2?\", \"answer\": \"3\"}\n\n{\"question\": \"0-1?\", \"answer\": -1}\n";
    fuzz("lines", 3000, &[lines.to_vec()], |bytes| {
        let path = file(folder.path(), "set.jsonl", bytes);
        if let Ok(file) = problem_file::read(&path) {
            let _ = file.consistent(&path);
        }
    });
}

fn tiny() -> Config {
    Config {
        vocab_size: 11,
        hidden_size: 8,
        intermediate_size: 12,
        num_hidden_layers: 1,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 4,
        max_position_embeddings: 16,
        rope_theta: 10000.0,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: true,
    }
}

#[test]
fn fuzz_checkpoints_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let weights = folder.path().join("model.safetensors");
    let tensors = checkpoint::values(&Qwen2::initialise(tiny(), 3));
    checkpoint::write_tensors(&weights, &tensors).unwrap();
    let config = files::canonical_json(&tiny().to_json(1, 0)).into_bytes();
    let valid = files::read(&weights).unwrap();
    std::fs::write(folder.path().join("config.json"), &config).unwrap();
    // Most of a file is weights, of which any bits are valid: spoil the header more often.
    let header = valid[..8 + u64::from_le_bytes(valid[..8].try_into().unwrap()) as usize].to_vec();
    fuzz("weights", 1500, &[valid.clone(), header.clone(), header], |bytes| {
        file(folder.path(), "model.safetensors", bytes);
        let _ = checkpoint::load_model(folder.path());
    });
    std::fs::write(&weights, &valid).unwrap();
    fuzz("config.json", 1000, &[config], |bytes| {
        file(folder.path(), "config.json", bytes);
        let _ = checkpoint::load_model(folder.path());
    });
}

#[test]
fn fuzz_tokenizers_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let base = golden_data::folder("mini-aime/base");
    let valid = [
        files::read(&base.join("tokenizer.json")).unwrap(),
        files::read(&golden_data::folder("tokenizers/byte-level.json")).unwrap(),
    ];
    std::fs::write(folder.path().join("config.json"), b"{\"eos_token_id\": 1}").unwrap();
    fuzz("tokenizer", 600, &valid, |bytes| {
        file(folder.path(), "tokenizer.json", bytes);
        if let Ok(tokenizer) = Tokenizer::load(folder.path()) {
            let _ = tokenizer.encode("12+34? \u{e9}\u{1b}[2J");
            let _ = tokenizer.decode(&(0..40).collect::<Vec<u32>>());
            let _ = tokenizer.fits(folder.path(), 11);
        }
    });
}

/// The fixed cases pass. `DAPO_FUZZ_SECONDS=15` finds files over which polars aborts: see
/// `src/contained.rs` for what is known about it.
#[test]
fn fuzz_parquet_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(&folder.path().join("run"));
    run_fixture::evaluate(&run, "dev", 0, 4, 2);
    let problems = folder.path().join("problems.parquet");
    let dev = dapo::data::mini_aime::generate().dev;
    dapo::data::write(&problems, &dev[..8], true).unwrap();
    let outcomes = files::read(&run.outcomes("dev", 0)).unwrap();
    let valid = [files::read(&problems).unwrap(), outcomes];
    fuzz("parquet", 600, &valid, |bytes| {
        let path = file(folder.path(), "set.parquet", bytes);
        let _ = problem_file::read(&path);
        let _ = tables::read_outcomes(&path);
        let _ = tables::read_rollouts(&path);
    });
}

#[test]
fn fuzz_run_folders_never_panic() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(folder.path());
    run_fixture::evaluate(&run, "dev", 0, 4, 2);
    (1..=2).for_each(|step| run_fixture::record_step(&run, step));
    let names = [
        "experiment.json",
        "manifest.json",
        "environment.json",
        "metrics.jsonl",
        "timings.jsonl",
        "evaluations.jsonl",
    ];
    for name in names {
        let valid = files::read(&run.path(name)).unwrap();
        fuzz(name, 60, std::slice::from_ref(&valid), |bytes| {
            file(folder.path(), name, bytes);
            if report::build(&run).is_ok() {
                let _ = report::write(&run);
            }
        });
        std::fs::write(run.path(name), &valid).unwrap();
    }
}
