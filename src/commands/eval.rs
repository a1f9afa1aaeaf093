//! `dapo eval`: evaluate a checkpoint on the sets of an experiment, or on files of problems.

use crate::algorithm::Problem;
use crate::base::files;
use crate::commands::eval_files::{self, EvalFilesSettings, ProtocolArgs};
use crate::commands::exit::{Invalid, Usage};
use crate::commands::progress::Progress;
use crate::commands::{bounds, place};
use crate::experiment::extends;
use crate::records::{Counters, RunFolder};
use crate::training::evaluation::Set;
use crate::training::run::inputs::{self, Inputs};
use crate::training::run::{RunEvent, evaluations};
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;

/// Evaluate a checkpoint: avg@k, pass@k, cons@k, every outcome kept as parquet.
///
/// Either on the evaluation sets of an experiment, by its settings, or with --data on files of
/// problems by the paper's protocol: 32 samples of each problem at temperature 1 and top-p 0.7,
/// at most 20,480 tokens, the released instruction in the model's chat template. Repeated rows of
/// a file are one problem. With --out an interrupted evaluation of files goes on where it was.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo eval experiments/dapo.toml
  dapo eval experiments/dapo.toml --model runs/reproduce/checkpoints/step-000040 --set mini-aime
  dapo eval --model models/Qwen2.5-7B --data aime-2024.parquet --out evals/qwen2.5-7b")]
pub struct EvalArgs {
    /// Experiment file: data, template, sampling, limits, verifier.
    #[arg(conflicts_with = "data")]
    experiment: Option<PathBuf>,
    /// Checkpoint folder. Default: the experiment's base model.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Files of problems instead of an experiment's sets: parquet in the released schema, or JSON
    /// lines.
    #[arg(long, value_name = "FILE", requires = "model")]
    data: Vec<PathBuf>,
    /// Sets to evaluate (dev, or a test set). Default: all test sets.
    #[arg(long = "set", value_name = "NAME", conflicts_with = "data")]
    sets: Vec<String>,
    /// k, instead of the experiment's or the paper's 32.
    #[arg(long, value_parser = bounds::count())]
    samples: Option<u64>,
    /// Run seed, instead of the file's or 1.
    #[arg(long)]
    seed: Option<u64>,
    /// Folder for the outcomes. Default: none are kept.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON record a line instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    protocol: ProtocolArgs,
}

/// Runs the verb.
///
/// # Errors
/// An experiment, model, data set or set name that cannot be used.
pub fn run(args: &EvalArgs) -> Result<ExitCode> {
    if let Some(model) = args.model.as_deref().filter(|_| !args.data.is_empty()) {
        let EvalArgs { data, samples, seed, out, json, protocol, .. } = args;
        let settings =
            EvalFilesSettings { model, data, samples: *samples, seed: *seed, json: *json };
        return eval_files::run(&settings, out.as_deref(), protocol);
    }
    let Some(experiment) = &args.experiment else {
        bail!(Usage("an experiment file is needed, or --model and --data".to_string()));
    };
    let mut experiment = extends::load(experiment)?;
    if let Some(model) = &args.model {
        experiment.inputs.model = model.clone();
    }
    args.protocol.place.overrule(&mut experiment.execution);
    place::overrule(&mut experiment, args.seed, None, None);
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
            evaluations::evaluate_into(&inputs, || Ok(&folder), &model, set, when, &mut |event| {
                if let RunEvent::Evaluating(_, done, _) = event {
                    bar.set(done as u64, "responses");
                }
            })?;
        bar.finish();
        records.push(record);
    }
    eval_files::print(&records, args.json);
    Ok(ExitCode::SUCCESS)
}

fn chosen<'a>(args: &'a EvalArgs, inputs: &'a Inputs) -> Result<Vec<Set<'a>>> {
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
        let longest = inputs.experiment.rollout.max_response_tokens;
        bounds::held("--samples", samples, problems.len() as u64, longest)?;
        sets.push(Set { name, problems, samples });
    }
    Ok(sets)
}
