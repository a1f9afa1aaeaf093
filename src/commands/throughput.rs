//! `dapo bench throughput`: how fast a checkpoint's policy generates and trains.

use crate::base::workers;
use crate::commands::exit::bail_usage;
use crate::commands::{OverrideArgs, PlaceArgs, Progress, bounds, output};
use crate::numerics::Numerics;
use crate::records::housekeeping::readable;
use crate::report::text::percent;
use crate::training::{Throughput, ThroughputUpdate, ThroughputWorkload, bench::throughput};
use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure how fast a checkpoint's policy generates and trains, on any device.
///
/// Generation is timed for each batch, with responses of one length and without the reading of prompts.
/// An update has its forward and backward passes, its gradient norm and AdamW. The limit of a batch is the
/// rate that the memory's bandwidth allows if every step reads the weights and the keys and values once
/// and does nothing else.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dapo bench throughput --model models/Qwen2.5-0.5B --batch 1,8,32 --threads 2\n  dapo bench throughput --model models/Qwen2.5-0.5B --device cuda --weights bf16 --batch 256,1024"
)]
pub struct ThroughputArgs {
    /// Checkpoint folder in the Hugging Face layout.
    #[arg(long)]
    model: PathBuf,
    #[command(flatten)]
    place: PlaceArgs,
    /// Rows that generate at the same time.
    #[arg(long, value_delimiter = ',', default_value = "1,8,32",
        value_parser = clap::value_parser!(u64).range(1..=65536))]
    batch: Vec<u64>,
    /// Tokens of every prompt.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    prompt_tokens: u64,
    /// Tokens of every response.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    new_tokens: u64,
    /// Rows of an update; 0 measures no update.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=65536))]
    train_rows: u64,
    /// Tokens of one forward and backward pass.
    #[arg(long, default_value_t = 16384, value_parser = bounds::count())]
    pass_tokens: u64,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = bounds::threads())]
    threads: u64,
    /// Repetitions. The fastest counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    repetitions: u64,
    /// Experiment that has the objective and the optimiser of the update.
    #[arg(long, default_value = "experiments/dapo.toml")]
    experiment: PathBuf,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
}

/// # Errors
/// A model or a device that cannot be used, or a batch that the policy cannot serve.
pub fn run(args: &ThroughputArgs) -> Result<ExitCode> {
    if args.train_rows == 0 && !args.overrides.is_empty() {
        bail_usage!("--set is for the experiment of an update; give --train-rows, too");
    }
    let experiment =
        (args.train_rows > 0).then(|| args.overrides.load(&args.experiment, &[])).transpose()?;
    workers::set_count(args.threads);
    let model = args.place.load(&args.model, Numerics::Fast)?;
    let (positions, longest) =
        (model.config().max_position_embeddings, args.prompt_tokens + args.new_tokens);
    if longest > positions as u64 {
        bail_usage!(
            "--prompt-tokens and --new-tokens are {longest} together; the model has {positions} positions"
        );
    }
    let workload = ThroughputWorkload {
        batches: args.batch.iter().map(|&batch| batch as usize).collect(),
        prompt_tokens: args.prompt_tokens as usize,
        new_tokens: args.new_tokens as usize,
        repetitions: args.repetitions as usize,
    };
    let measurements = workload.batches.len() as u64 + u64::from(experiment.is_some());
    let mut bar = Progress::new("throughput", measurements);
    let mut done = 0;
    let train = experiment.as_ref().map(|experiment| ThroughputUpdate {
        rows: args.train_rows as usize,
        pass_tokens: args.pass_tokens as usize,
        dapo: &experiment.dapo,
        optimizer: &experiment.optimizer,
    });
    let tell = &mut |what: &str| {
        bar.set(done, what);
        done += 1;
    };
    let found = throughput::measure(model, &workload, train.as_ref(), tell)?;
    bar.finish();
    output::document(args.json, &found, || text(&found));
    Ok(ExitCode::SUCCESS)
}

fn text(found: &Throughput) -> String {
    let mut text = format!(
        "{:.1} million parameters in {} on {}; memory is read at {:.1} GB/s\n",
        found.parameters as f64 / 1e6,
        found.weights,
        found.device,
        found.bandwidth / 1e9
    );
    let rows = found.generation.iter().map(|one| {
        let limit = one.bandwidth_limit;
        let [rate, share] = match one.tokens_per_second {
            None => ["too few tokens to tell".to_string(), String::new()],
            Some(rate) => [format!("{rate:.1}"), percent(rate / limit)],
        };
        let first = format!("{:.3}", one.first_token_seconds);
        [one.batch.to_string(), first, rate, format!("{limit:.1}"), share]
    });
    let columns = "rows # | first token s # | tokens/s # | limit of bandwidth # | of limit #";
    text += &output::table(columns, rows);
    if let Some(one) = found.training {
        text += &format!(
            "an update of {} rows: {:.0} tokens/s, {:.2} TFLOP/s; forward alone {:.0} tokens/s\n",
            one.rows,
            one.tokens_per_second,
            one.flops / 1e12,
            one.forward_tokens_per_second
        );
    }
    if let Some(peak) = found.peak_memory_bytes {
        text += &format!("peak memory of the process: {}\n", readable(peak));
    }
    text
}
