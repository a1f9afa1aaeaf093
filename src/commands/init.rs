//! `dapo init`: the folder of a study of one's own.

use crate::base::{files, program};
use crate::commands::exit::{Invalid, bail_invalid, bail_usage};
use crate::commands::flags::grading::GradingArgs;
use crate::commands::flags::seeds::{Seeds, seeds};
use crate::commands::{bounds, exit, output};
use crate::experiment::{Starter, StarterFiles, grid::file, shipped};
use crate::report::cells;
use crate::study::Declaration;
use crate::training::TrainingError;
use crate::training::run::inputs;
use crate::training::starting::{self, ProblemPaths};
use anyhow::Result;
use std::path::{Path, PathBuf};
use toml::Value;

/// Write the folder of a study: base experiment, arms, grid and a README.
///
/// With a model and files of problems the study is about these: lengths, template and arithmetic are
/// chosen from them, and nothing is written if no run could work. Without them the study is about the
/// embedded benchmark, whose base policy is written into the folder. base.toml has every choice with a
/// comment. `dapo ablate FOLDER` runs the study.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/init.txt"))]
pub struct InitArgs {
    /// The folder. It must be new or empty.
    folder: PathBuf,
    /// Folder of the base policy, in the Hugging Face layout.
    #[arg(long, value_name = "FOLDER", requires_all = ["train", "dev", "test"])]
    model: Option<PathBuf>,
    /// Training problems: parquet, JSON lines, a JSON list or CSV.
    #[arg(long, value_name = "FILE", requires = "model")]
    train: Option<PathBuf>,
    /// Problems to evaluate during training.
    #[arg(long, value_name = "FILE", requires = "model")]
    dev: Option<PathBuf>,
    /// Problems to evaluate at the end. The arms are compared on the first file.
    #[arg(long, value_name = "FILE", requires = "model")]
    test: Vec<PathBuf>,
    /// Arms: grpo, dapo, techniques of the paper, and methods. The others are compared with the first, and grpo can
    /// only be the first.
    #[arg(long, value_delimiter = ',', default_value = "grpo,dapo")]
    arms: Vec<String>,
    /// Seeds, such as 1,2,5 or 1..5 (5 included).
    #[arg(long, value_parser = seeds, default_value = "1..5")]
    seeds: Seeds,
    /// The question of the study, which is the title of its report.
    #[arg(long, value_name = "TEXT")]
    question: Option<String>,
    /// Longest response. Default: 1024, or what the model's positions leave; 140 on the embedded benchmark.
    #[arg(long, value_name = "TOKENS", value_parser = bounds::count(), requires = "model")]
    max_response_tokens: Option<u64>,
    #[command(flatten)]
    grading: GradingArgs,
}

/// Errors: a folder that holds something, an unknown arm, a model or problems that cannot be used.
pub fn run(args: &InitArgs) -> Result<u8> {
    let folder = std::path::absolute(&args.folder)?;
    let is_there = files::kind(&folder)?.is_some();
    refuse_full(&folder, &args.folder)?;
    if args.question.as_ref().is_some_and(|text| text.trim().is_empty()) {
        bail_usage!("--question is empty; state the question, or leave it out");
    }
    let name: String = folder.file_name().unwrap_or_default().to_string_lossy().into();
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c), "-");
    let name = name.trim_start_matches('.').to_string();
    let arms: Vec<String> = args.arms.iter().map(|arm| arm.trim().to_string()).collect();
    let (first, others) = arms.split_first().expect("clap gives at least one arm");
    let question = args.question.clone().unwrap_or_else(|| match others {
        [] => format!("What does {first} reach?"),
        _ => format!("Does {} beat {first}?", others.join(" or ")),
    });
    let model = args.model.as_ref().map(|model| starting::relative(&folder, model));
    let mut starter = Starter {
        name,
        question,
        arms,
        seeds: args.seeds.0.clone(),
        model: model.unwrap_or("model".into()),
        files: own_files(args, &folder)?,
    };
    let parent = folder.parent().unwrap_or(Path::new("/"));
    files::create_folder(parent)?;
    // Beside the folder, so that relative paths in its files are already right.
    let scratch = files::leftovers::scratch_folder(Some(parent))?;
    let prepare = |starter: &Starter| -> Result<()> {
        write(starter, scratch.path())?;
        let source = file::load(&scratch.path().join("grid.toml"))?;
        Ok(inputs::prepare_without_weights(source.base).map(drop)?)
    };
    if let Err(error) = prepare(&starter) {
        let (Some(TrainingError::Numerics(reason)), Some(files)) =
            (error.downcast_ref(), &mut starter.files)
        else {
            refuse_short(args.max_response_tokens, &error)?;
            return Err(in_folder(error, scratch.path(), &args.folder));
        };
        let note = format!(
            "`numerics` is \"fast\", because exact arithmetic refuses this model: {reason}"
        );
        output::say(&note);
        files.settings.push(("", "numerics", Value::from("fast")));
        files.notes.push(note);
        prepare(&starter).map_err(|error| in_folder(error, scratch.path(), &args.folder))?;
    }
    let inside = is_there.then(|| files::leftovers::scratch_folder(Some(&folder))).transpose()?;
    let made = inside.as_ref().unwrap_or(&scratch).path();
    if inside.is_some() {
        write(&starter, made)?;
    }
    refuse_full(&folder, &args.folder)?;
    if let Err(error) = files::move_folder(made, &folder) {
        refuse_full(&folder, &args.folder)?;
        return Err(error.into());
    }
    for name in ["base.toml", "grid.toml", "README.md"] {
        output::path(&args.folder.join(name));
    }
    if args.arms.len() > 1 {
        let undeclared = Declaration::undeclared(&[], "", "");
        output::say(format!("\n{}", cells::evidence(args.seeds.0.len(), &undeclared)));
    }
    let shown = program::path_word(&args.folder);
    println!("\nnext: dapo ablate {shown} --dry-run, then dapo ablate {shown}");
    Ok(exit::SUCCESS)
}

fn refuse_full(folder: &Path, shown: &Path) -> Result<()> {
    let names = if files::kind(folder)?.is_some() { files::list(folder)? } else { Vec::new() };
    if names.iter().any(|name| !files::leftovers::is_leftover(name)) {
        bail_invalid!("{}: the folder is not empty; name a new one", shown.display());
    }
    Ok(())
}

fn refuse_short(max_response_tokens: Option<u64>, error: &anyhow::Error) -> Result<()> {
    const LEAST: u64 = 5;
    let is_short = max_response_tokens.is_some_and(|tokens| tokens < LEAST);
    if is_short && exit::message(error).contains("overlong.punishment.cache_tokens") {
        bail_usage!(
            "--max-response-tokens must be at least {LEAST} with an arm that punishes overlong responses: it does so over \
             their last fifth"
        );
    }
    Ok(())
}

/// What is wrong with the files that would be written, in the folder that was named: the scratch folder is gone.
fn in_folder(error: anyhow::Error, scratch: &Path, folder: &Path) -> anyhow::Error {
    if exit::code(&error) != exit::INVALID {
        return error;
    }
    let [scratch, folder] = [scratch, folder].map(|path| path.display().to_string());
    Invalid(exit::message(&error).replace(&scratch, &folder)).into()
}

/// `None` for the embedded benchmark.
fn own_files(args: &InitArgs, folder: &Path) -> Result<Option<StarterFiles>> {
    let (Some(model), Some(train), Some(dev)) = (&args.model, &args.train, &args.dev) else {
        exit::refuse_flags(&args.grading.flags(), "needs --model and files of problems")?;
        return Ok(None);
    };
    let problems = ProblemPaths { train, dev, test: &args.test };
    let (longest, grading) = (args.max_response_tokens, args.grading.grading()?);
    let grading = args.grading.is_chosen().then_some(&grading);
    let (files, fit) = starting::files(folder, model, problems, longest, grading)?;
    files.notes.iter().for_each(output::tell);
    output::say(&fit);
    Ok(Some(files))
}

fn write(starter: &Starter, folder: &Path) -> Result<()> {
    for (name, text) in starter.texts()? {
        files::write_atomic(&folder.join(name), text.as_bytes())?;
    }
    if starter.files.is_none() {
        for (name, bytes) in shipped::MODEL {
            files::write_atomic(&folder.join("model").join(name), bytes)?;
        }
    }
    Ok(())
}
