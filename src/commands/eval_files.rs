//! `dapo eval --data`: a checkpoint on files of problems, by the paper's protocol.

use crate::algorithm::Problem;
use crate::base::{files, visible, workers};
use crate::commands::exit::{Invalid, Usage};
use crate::commands::interrupt::Interrupt;
use crate::commands::place::PlaceArgs;
use crate::commands::progress::Progress;
use crate::commands::{bounds, output};
use crate::experiment::{PromptTemplate, Verifier, sets};
use crate::numerics::Numerics;
use crate::policy::Qwen2;
use crate::policy::checkpoint::weights;
use crate::records::tables::{self, OutcomeRecord};
use crate::records::{Counters, EvaluationRecord};
use crate::report::text::{percent, points};
use crate::statistics::{Accuracy, Counts, Interval, accuracy};
use crate::task::Tokenizer;
use crate::task::data::{self, problem_file};
use crate::training::Protocol;
use crate::training::evaluation::{self, Set, resumable};
use anyhow::{Result, bail};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Confidence of the intervals.
const LEVEL: f64 = 0.95;

/// The protocol; each default is the paper's (§4.1) or the released evaluation's.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Protocol with --data")]
pub struct ProtocolArgs {
    /// Text around a question
    #[arg(long, value_enum, default_value = "dapo-chat", requires = "data")]
    template: PromptTemplate,
    /// Longest prompt in tokens; a longer one is an error
    #[arg(long, value_name = "TOKENS", default_value_t = 2048, requires = "data",
        value_parser = bounds::count())]
    max_prompt_tokens: u64,
    /// Longest response in tokens
    #[arg(long, value_name = "TOKENS", default_value_t = 20_480, requires = "data",
        value_parser = bounds::count())]
    max_response_tokens: u64,
    /// Divides the logits; 0 is greedy
    #[arg(long, default_value_t = 1.0, requires = "data")]
    temperature: f64,
    /// Keeps the most probable tokens of this mass
    #[arg(long, default_value_t = 0.7, requires = "data")]
    top_p: f64,
    /// Rules of correctness
    #[arg(long, value_enum, default_value = "answer-line", requires = "data")]
    verifier: Verifier,
    /// How numbers are computed
    #[arg(long, value_enum, default_value = "fast", requires = "data")]
    numerics: Numerics,
    /// Where the policy is held; also when an experiment is evaluated.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Threads, each with a part of the responses
    #[arg(long, default_value_t = 1, requires = "data", value_parser = bounds::threads())]
    threads: u64,
    /// Responses generated at the same time
    #[arg(long, value_name = "RESPONSES", default_value_t = 256, requires = "data",
        value_parser = bounds::count())]
    batch: u64,
}

/// What is evaluated.
pub struct EvalFilesSettings<'a> {
    /// Checkpoint folder.
    pub model: &'a Path,
    /// Files of problems.
    pub data: &'a [PathBuf],
    /// k, instead of 32.
    pub samples: Option<u64>,
    /// Instead of 1.
    pub seed: Option<u64>,
    /// JSON lines instead of a table.
    pub json: bool,
}

/// Evaluates each file; `out` keeps outcomes and goes on with those that are there.
///
/// # Errors
/// A model, a file or a setting that cannot be used, or a folder that cannot be written.
pub fn run(
    settings: &EvalFilesSettings,
    out: Option<&Path>,
    args: &ProtocolArgs,
) -> Result<ExitCode> {
    let protocol = protocol(args, settings.seed.unwrap_or(1))?;
    let samples = settings.samples.unwrap_or(32);
    workers::set_count(args.threads);
    let mut sets: Vec<(String, Vec<Problem>)> = Vec::new();
    for path in settings.data {
        let name = sets::set_name(path);
        if sets.iter().any(|(known, _)| *known == name) {
            bail!(Usage(format!("two files of --data are named {name:?}")));
        }
        sets.push((name, problem_file::read(path)?.consistent(path)?));
    }
    let tokenizer = Tokenizer::load(settings.model)?;
    let model = args.place.load(settings.model, args.numerics)?;
    tokenizer.fits(settings.model, model.config().vocab_size)?;
    fits(&model, &protocol)?;
    for (_, problems) in &sets {
        let problems = problems.len() as u64;
        bounds::held("--samples", samples, problems, protocol.max_response_tokens)?;
    }
    if let Some((id, token)) = tokenizer.unstopped_end_of_turn()? {
        let warning = format!(
            "warning: the chat template ends a turn with {token} ({id}), which stops no response; \
             eos_token_id of generation_config.json may be a list of both"
        );
        output::tell(warning);
    }
    let scratch = tempfile::tempdir()?;
    let folder = out.unwrap_or(scratch.path());
    files::create_folder(folder)?;
    let weights = weights_sha256(settings.model)?;
    let interrupt = Interrupt::listen()?;
    let mut records = Vec::new();
    for (name, problems) in &sets {
        let set = Set { name, problems, samples };
        let key = json!({
            "protocol": protocol,
            "numerics": args.numerics,
            "place": args.place.told(),
            "weights": weights,
            "tokenizer": tokenizer.sha256(),
            "problems": data::digest(problems),
            "samples": samples,
        });
        let key = files::sha256(files::canonical_json_line(&key).as_bytes());
        let kept = folder.join(format!("{name}.partial.jsonl"));
        let mut bar = Progress::new(name, problems.len() as u64 * samples);
        let stop = || interrupt.asked();
        let progress = |done: usize, _total: usize| bar.set(done as u64, "responses");
        let outcomes = resumable::outcomes(
            &model,
            &tokenizer,
            &protocol,
            set,
            (&kept, &key),
            &stop,
            progress,
        )?;
        bar.finish();
        let Some(outcomes) = outcomes else {
            let next = match out {
                Some(_) => "the same command goes on",
                None => "nothing was kept (no --out)",
            };
            eprintln!("stopped; {next}");
            return Ok(interrupt.exit_code());
        };
        let path = folder.join(format!("{name}.parquet"));
        tables::write_outcomes(&path, &outcomes)?;
        let sha256 = files::sha256_file(&path)?;
        let record = evaluation::record(set, Counters::default(), &outcomes, sha256)?;
        files::write_json(&folder.join(format!("{name}.json")), &record)?;
        files::remove_file(&kept)?;
        records.push((record, accuracy(&outcomes)?));
    }
    let (records, accuracies): (Vec<_>, Vec<_>) = records.into_iter().unzip();
    print(&records, settings.json);
    if !settings.json {
        for (record, accuracy) in records.iter().zip(&accuracies) {
            println!("{}", visible::message(&intervals(&record.set, accuracy)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn protocol(args: &ProtocolArgs, seed: u64) -> Result<Protocol> {
    Ok(Protocol {
        template: args.template,
        max_prompt_tokens: args.max_prompt_tokens,
        max_response_tokens: args.max_response_tokens,
        sampling: bounds::sampling(args.temperature, args.top_p, 0)?,
        verifier: args.verifier,
        seed,
        batch_rows: args.batch,
    })
}

/// The longest sequence has a position in the model.
fn fits(model: &Qwen2, protocol: &Protocol) -> Result<()> {
    let Protocol { max_prompt_tokens, max_response_tokens, .. } = *protocol;
    let positions = model.config().max_position_embeddings;
    if max_prompt_tokens + max_response_tokens > positions as u64 {
        bail!(Invalid(format!(
            "{max_prompt_tokens} prompt tokens and {max_response_tokens} response tokens are more \
             than the model's {positions} positions; --max-response-tokens shortens responses"
        )));
    }
    Ok(())
}

/// SHA-256 over the digests of the weight files, in order.
fn weights_sha256(folder: &Path) -> Result<String> {
    let mut digests = String::new();
    for name in weights::names(folder)? {
        digests += &files::sha256_file(&folder.join(name))?;
    }
    Ok(files::sha256(digests.as_bytes()))
}

fn accuracy(outcomes: &[OutcomeRecord]) -> Result<Accuracy> {
    let counts = outcomes.chunk_by(|a, b| a.problem == b.problem).map(|rows| Counts {
        correct: rows.iter().filter(|row| row.is_correct).count() as u64,
        samples: rows.len() as u64,
    });
    Ok(accuracy::accuracy(&[counts.collect()], LEVEL)?)
}

/// What would have to be repeated for the number to change, and by how much it would.
fn intervals(set: &str, accuracy: &Accuracy) -> String {
    let mut lines = vec![format!("{set}: avg@{} {}", accuracy.samples, percent(accuracy.avg_at_k))];
    for uncertainty in &accuracy.uncertainties {
        let range = match (&uncertainty.interval, &uncertainty.withheld) {
            (Some(Interval { low, high, level, .. }), _) => {
                format!("{} to {} ({:.0} %)", points(*low), percent(*high), 100.0 * level)
            }
            (None, Some(reason)) => format!("no interval: {reason}"),
            (None, None) => "no interval".to_string(),
        };
        lines.push(format!("  {}: {range}", uncertainty.question.text()));
    }
    lines.join("\n")
}

/// A table, or JSON lines.
pub fn print(records: &[EvaluationRecord], json: bool) {
    if json {
        for record in records {
            output::json_line(record);
        }
        return;
    }
    let header = [
        "set",
        "n × k",
        "avg@k %",
        "± these problems",
        "± new problems (SE)",
        "pass@k %",
        "cons@k %",
        "truncated %",
        "tokens",
    ];
    let rows = records.iter().map(|record| {
        let pass = record.pass_at_k.get(&record.samples).copied().unwrap_or(f64::NAN);
        [
            record.set.clone(),
            format!("{} × {}", record.problems, record.samples),
            points(record.avg_at_k),
            points(1.96 * record.standard_error_fixed_problems),
            points(record.standard_error_new_problems),
            points(pass),
            points(record.cons_at_k),
            points(record.truncated_share),
            format!("{:.0}", record.response_tokens_mean),
        ]
    });
    println!("{}", output::table(header, 2..9, rows));
}
