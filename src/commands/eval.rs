//! `dapo eval`: evaluate a checkpoint.

use crate::commands::exit::Invalid;
use crate::commands::exit::Usage;
use crate::commands::progress::Progress;
use crate::config::extends;
use crate::eval::Set;
use crate::files;
use crate::records::Problem;
use crate::run::Event;
use crate::run::evaluations;
use crate::run::inputs;
use crate::run::inputs::Inputs;
use crate::run_folder::Counters;
use crate::run_folder::EvaluationRecord;
use crate::run_folder::RunFolder;
use crate::visible;
use crate::workers;
use anyhow::Result;
use anyhow::bail;
use comfy_table::Table;
use std::path::PathBuf;
use std::process::ExitCode;

/// Evaluate a checkpoint: avg@k, pass@k, cons@k, every outcome kept as parquet.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dapo eval experiments/dapo.toml\n  dapo eval experiments/dapo.toml --model runs/reproduce/checkpoints/step-000040 --set mini-aime --samples 64"
)]
pub struct Args {
    /// Experiment file: data, template, sampling, limits, verifier.
    experiment: PathBuf,
    /// Checkpoint folder. Default: the experiment's base model.
    #[arg(long)]
    model: Option<PathBuf>,
    /// Sets to evaluate (dev, or a test set). Default: all test sets.
    #[arg(long = "set", value_name = "NAME")]
    sets: Vec<String>,
    /// k, instead of the experiment's.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    samples: Option<u64>,
    /// Run seed, instead of the file's.
    #[arg(long)]
    seed: Option<u64>,
    /// Folder for the outcomes. Default: none are kept.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print one JSON record a line instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
///
/// # Errors
/// An experiment, model, data set or set name that cannot be used.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut experiment = extends::load(&args.experiment)?;
    experiment.execution.seed = args.seed.unwrap_or(experiment.execution.seed);
    if let Some(model) = &args.model {
        experiment.inputs.model = model.clone();
    }
    workers::set_count(experiment.execution.threads);
    if let Some(out) = &args.out
        && out.join("manifest.json").exists()
    {
        let out = out.display();
        bail!(Invalid(format!(
            "{out} holds a run, whose evaluations these would replace; choose another --out"
        )));
    }
    let inputs = inputs::prepare(experiment)?;
    let model = inputs.base_policy()?;
    let kept = args.out.clone().map(RunFolder::at);
    let scratch = tempfile::tempdir()?;
    let folder = kept.unwrap_or_else(|| RunFolder::at(scratch.path()));
    files::create_folder(folder.root())?;
    let mut records = Vec::new();
    for set in chosen(args, &inputs)? {
        let total = set.problems.len() as u64 * set.samples;
        let mut bar = Progress::new(set.name, total);
        let when = (0, Counters::default());
        let record =
            evaluations::evaluate_into(&inputs, &folder, &model, set, when, &mut |event| {
                if let Event::Evaluating(_, done, _) = event {
                    bar.set(done as u64, "responses");
                }
            })?;
        bar.finish();
        records.push(record);
    }
    print(&records, args.json);
    Ok(ExitCode::SUCCESS)
}

fn chosen<'a>(args: &'a Args, inputs: &'a Inputs) -> Result<Vec<Set<'a>>> {
    let known: Vec<(&str, &[Problem])> = inputs.data.evaluated().collect();
    let wanted: Vec<&str> = match args.sets.is_empty() {
        true => known[1..].iter().map(|(name, _)| *name).collect(),
        false => args.sets.iter().map(String::as_str).collect(),
    };
    let mut sets = Vec::new();
    for name in wanted {
        let Some((name, problems)) = known.iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            bail!(Usage(format!("no evaluation set {name:?}; there are {}", names.join(", "))));
        };
        let samples = match args.samples {
            Some(samples) => samples,
            None => inputs.samples(name)?,
        };
        sets.push(Set { name, problems, samples });
    }
    Ok(sets)
}

fn print(records: &[EvaluationRecord], json: bool) {
    if json {
        for record in records {
            println!("{}", visible::json(&files::canonical_json_line(record)));
        }
        return;
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header([
        "set",
        "n × k",
        "avg@k %",
        "± these problems",
        "± new problems (SE)",
        "pass@k %",
        "cons@k %",
        "truncated %",
        "tokens",
    ]);
    for record in records {
        let percent = |value: f64| format!("{:.1}", 100.0 * value);
        let pass = record.pass_at_k.get(&record.samples).copied().unwrap_or(f64::NAN);
        table.add_row([
            visible::visible(&record.set),
            format!("{} × {}", record.problems, record.samples),
            percent(record.avg_at_k),
            percent(1.96 * record.standard_error_fixed_problems),
            percent(record.standard_error_new_problems),
            percent(pass),
            percent(record.cons_at_k),
            percent(record.truncated_share),
            format!("{:.0}", record.response_tokens_mean),
        ]);
    }
    println!("{table}");
}
