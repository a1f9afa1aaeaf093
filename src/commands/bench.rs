//! `dapo bench`: time a rollout step by phase; `dapo bench throughput`.

use crate::base::files;
use crate::commands::flags::experiment::InputsArg;
use crate::commands::flags::wide::WideArg;
use crate::commands::{OverrideArgs, Progress, bounds, exit, output, throughput};
use crate::records::housekeeping::readable;
use crate::report::text::{counted, joined, percent};
use crate::training::bench::{self, BenchRecord, BenchSpread, BenchWorkload};
use anyhow::Result;
use clap::{Args as _, FromArgMatches as _};
use std::path::PathBuf;

/// Time one rollout step by phase, and compare it with the rate of this machine's matrix products.
///
/// Without --model the policy has 0.79 M random weights, whose responses have about 50 tokens.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = include_str!("help/bench.txt")
)]
pub struct BenchArgs {
    #[command(subcommand)]
    verb: Option<BenchVerb>,
    /// Experiment file: the step's shape.
    #[arg(default_value = "experiments/bench.toml")]
    experiment: PathBuf,
    #[command(flatten)]
    inputs: InputsArg,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// Folder of a policy to use instead of the random one.
    #[arg(long)]
    model: Option<PathBuf>,
    /// Threads, instead of the file's.
    #[arg(long, value_parser = bounds::threads())]
    threads: Option<u64>,
    /// Timed repetitions; an untimed one comes first.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    repetitions: u64,
    /// Write the figures, the machine and the commit to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the record of --out instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wide: WideArg,
}

#[derive(Debug, clap::Subcommand)]
enum BenchVerb {
    Throughput(throughput::ThroughputArgs),
}

/// Errors: an experiment or model that cannot be used, or a file that cannot be written.
pub fn run(args: &BenchArgs) -> Result<u8> {
    if let Some(BenchVerb::Throughput(args)) = &args.verb {
        return throughput::run(args);
    }
    args.wide.apply();
    let flags =
        [("execution.threads", args.threads.is_some()), ("inputs.model", args.model.is_some())];
    args.overrides.check(&flags)?;
    args.out.iter().try_for_each(|path| files::may_write(path, "{\n  \"environment\": {"))?;
    let folder = files::leftovers::scratch_folder(None)?;
    let model = args.model.as_deref().unwrap_or(folder.path());
    let (mut experiment, _) =
        args.overrides.load_with_inputs(&args.experiment, &args.inputs, Some(model))?;
    experiment.execution.threads = args.threads.unwrap_or(experiment.execution.threads);
    if args.model.is_none() {
        bench::write_random_policy(folder.path(), experiment.execution.seed)?;
    }
    let mut bar = Progress::new("bench", args.repetitions + 1);
    let record = bench::measure(experiment, args.repetitions, &mut |repetition| {
        bar.set(repetition + 1, "rollout steps");
    })?;
    bar.finish();
    if let Some(path) = &args.out {
        files::write_output(path, files::canonical_json(&record).as_bytes())?;
    }
    output::lines(args.json, &record, || text(&record));
    Ok(exit::SUCCESS)
}

/// Errors: as [`run`].
pub fn run_default() -> Result<u8> {
    let command = BenchArgs::augment_args(clap::Command::new("bench").no_binary_name(true));
    run(&BenchArgs::from_arg_matches(&command.try_get_matches_from([""; 0])?)?)
}

fn text(record: &BenchRecord) -> String {
    let BenchWorkload { experiment, rollouts, response_tokens, updates, .. } = &record.workload;
    let BenchWorkload { longest_response_tokens: longest, parameters, .. } = &record.workload;
    let BenchWorkload { threads, repetitions, .. } = &record.workload;
    let fact = |name: &str| record.environment.get(name).map_or("unknown", String::as_str);
    let [cpu, cores, libtorch, commit] = ["cpu", "cores", "libtorch", "git_commit"].map(fact);
    let changes = if fact("git_dirty") == "true" { " with changes" } else { "" };
    let mut out = format!("{cpu}, {cores} cores, LibTorch {libtorch}, commit {commit}{changes}\n");
    let mean = *response_tokens as f64 / *rollouts as f64;
    out += &format!(
        "{experiment}: {rollouts} rollouts of {mean:.1} response tokens on average (longest {longest}), \
         {updates} updates, {parameters} parameters, {}, {}\n",
        counted(*threads as usize, "thread", "threads"),
        counted(*repetitions as usize, "repetition", "repetitions")
    );
    let rates = joined(record.gemm_gflops.iter().map(|rate| format!("{rate:.0}")), ", ");
    out += &format!("matrix product on 1, 2, … threads: {rates} GFLOP/s\n");
    out += &format!("peak memory: {}\n\n", readable(record.peak_memory_bytes));
    let or_blank = |value: Option<String>| value.unwrap_or_default();
    let rows = record.phases.iter().map(|phase| {
        let BenchSpread { median, least, most } = phase.seconds;
        let limit = phase.limit_seconds;
        let [least, most] = [least, most].map(|seconds| format!("{seconds:.4}"));
        [
            phase.name.clone(),
            format!("{median:.4}"),
            least,
            most,
            percent(phase.share),
            or_blank(phase.tokens.map(|tokens| format!("{:.0}", tokens as f64 / median))),
            or_blank(phase.flops.map(|flops| format!("{:.1}", flops / 1e9))),
            or_blank(limit.map(|limit| format!("{limit:.4}"))),
            or_blank(limit.map(|limit| percent(limit / median))),
        ]
    });
    let columns = "phase | median s # | least #? | most #? | share # | tokens/s # | GFLOP #? | limit s #? | of limit #";
    out += &format!("{}\n", output::table(columns, rows));
    for (name, what) in bench::PHASES {
        out += &format!("{name}: {what}\n");
    }
    out
}
