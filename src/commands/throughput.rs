//! `dapo bench throughput`: how fast a checkpoint's policy generates and trains.

use crate::base::workers;
use crate::commands::exit::bail_usage;
use crate::commands::flags::wide::WideArg;
use crate::commands::{OverrideArgs, PlaceArgs, Progress, bounds, exit, output};
use crate::numerics::Numerics;
use crate::records::housekeeping::readable;
use crate::report::text::percent;
use crate::training::{Throughput, ThroughputWorkload, bench::throughput};
use anyhow::Result;
use std::path::PathBuf;

/// Measure how fast a checkpoint's policy generates and trains, on any device.
///
/// Generation is timed for each batch, with responses of one length and without the reading of prompts.
/// An update has its forward and backward passes, its gradient norm and AdamW. The limit of a batch is the
/// rate that the memory's bandwidth allows if every step reads the weights and the keys and values once
/// and does nothing else.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/throughput.txt"))]
pub struct ThroughputArgs {
    /// Checkpoint folder in the Hugging Face layout.
    #[arg(long)]
    model: PathBuf,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    workload: ThroughputWorkload,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = bounds::threads())]
    threads: u64,
    /// Experiment that has the objective and the optimiser of the update.
    #[arg(long, default_value = "experiments/dapo.toml", requires = "train_rows")]
    experiment: PathBuf,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wide: WideArg,
}

/// Errors: a model or a device that cannot be used, or a batch that the policy cannot serve.
pub fn run(args: &ThroughputArgs) -> Result<u8> {
    args.wide.apply();
    let workload = &args.workload;
    if workload.train_rows == 0 && !args.overrides.is_empty() {
        bail_usage!("--set is for the experiment of an update; give --train-rows, too");
    }
    let experiment = (workload.train_rows > 0).then(|| args.overrides.load(&args.experiment));
    let experiment = experiment.transpose()?;
    workers::set_count(args.threads);
    let model = args.place.load(&args.model, Numerics::Fast)?;
    let positions = model.config().max_position_embeddings;
    let longest = workload.prompt_tokens + workload.new_tokens;
    if longest > positions as usize {
        bail_usage!(
            "--prompt-tokens and --new-tokens are {longest} together; the model has {positions} positions"
        );
    }
    let measurements = workload.batches.len() as u64 + u64::from(experiment.is_some());
    let mut bar = Progress::new("throughput", measurements);
    let mut done = 0;
    let measured = throughput::measure(model, workload, experiment.as_ref(), &mut |what| {
        bar.set(done, what);
        done += 1;
    })?;
    bar.finish();
    output::lines(args.json, &measured, || text(&measured));
    Ok(exit::SUCCESS)
}

fn text(measured: &Throughput) -> String {
    let Throughput { weights, device, parameters, bandwidth, .. } = measured;
    let (millions, rate) = (*parameters as f64 / 1e6, bandwidth / 1e9);
    let mut text = format!(
        "{millions:.1} million parameters in {weights} on {device}; memory is read at {rate:.1} GB/s\n"
    );
    let rows = measured.generation.iter().map(|row| {
        let limit = row.bandwidth_limit;
        let [rate, share] = match row.tokens_per_second {
            None => ["too few tokens to tell".to_string(), String::new()],
            Some(rate) => [format!("{rate:.1}"), percent(rate / limit)],
        };
        let first = format!("{:.3}", row.first_token_seconds);
        [row.batch.to_string(), first, rate, format!("{limit:.1}"), share]
    });
    let columns = "rows # | first token s # | tokens/s # | limit of bandwidth #? | of limit #";
    text += &output::table(columns, rows);
    if measured.generation.iter().any(|row| row.tokens_per_second > Some(row.bandwidth_limit)) {
        text +=
            "above 100 %: the weights fit in the processor's cache, so memory's rate is no limit\n";
    }
    if let Some(row) = measured.training {
        text += &format!(
            "an update of {} rows: {:.0} tokens/s, {:.2} TFLOP/s; forward alone {:.0} tokens/s\n",
            row.rows,
            row.tokens_per_second,
            row.flops / 1e12,
            row.forward_tokens_per_second
        );
    }
    if let Some(peak) = measured.peak_memory_bytes {
        text += &format!("peak memory of the process: {}\n", readable(peak));
    }
    text
}
