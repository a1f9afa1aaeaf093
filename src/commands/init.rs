//! `dapo init`: the folder of a study of one's own.

use crate::algorithm::Problem;
use crate::base::files;
use crate::commands::flags::seeds::{Seeds, seeds};
use crate::commands::{bounds, exit, output, tune};
use crate::experiment::{Data, PromptTemplate, Starter, StarterFiles, grid::file, sets, starter};
use crate::policy::checkpoint;
use crate::report::cells;
use crate::task::data::problem_file::{self, Readings};
use crate::task::data::source;
use crate::task::{RowKeys, TaskError, Tokenizer, data, prompt, reward};
use crate::training::TrainingError;
use crate::training::plan::phases;
use crate::training::run::inputs;
use anyhow::{Result, bail};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use toml::{Table, Value};

/// Write the folder of a study: base experiment, arms, grid and a README.
///
/// With a model and files of problems the study is about these: lengths, template and arithmetic
/// are chosen from them, and what cannot work is refused before anything is written. Without them it
/// is about the embedded benchmark, whose base policy is written into the folder. Every choice
/// stands in base.toml with a comment. `dapo ablate FOLDER` runs the study.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo init my-study
  dapo init my-study --arms grpo,dapo,dr-grpo --seeds 1..8
  dapo init my-study --model MODEL --train train.jsonl --dev dev.jsonl --test test.jsonl

Exit codes:
  0  the folder is there
  3  an arm, the model or a file of problems cannot be used, or the folder holds something")]
pub struct InitArgs {
    /// The folder, which must not exist or be empty.
    folder: PathBuf,
    /// Folder of the base policy, in the Hugging Face layout.
    #[arg(long, value_name = "FOLDER", requires_all = ["train", "dev", "test"])]
    model: Option<PathBuf>,
    /// Training problems (.jsonl or .parquet).
    #[arg(long, value_name = "FILE", requires = "model")]
    train: Option<PathBuf>,
    /// Problems that are evaluated during training.
    #[arg(long, value_name = "FILE", requires = "model")]
    dev: Option<PathBuf>,
    /// Problems that are evaluated at the end; the first file is what arms are compared on.
    #[arg(long, value_name = "FILE", requires = "model")]
    test: Vec<PathBuf>,
    /// Arms; the others are compared with the first. Known: grpo, dapo, each technique of the paper,
    /// and each method.
    #[arg(long, value_delimiter = ',', default_value = "grpo,dapo")]
    arms: Vec<String>,
    /// A list, with ranges that include their end.
    #[arg(long, value_parser = seeds, default_value = "1..5")]
    seeds: Seeds,
    /// What the study asks; the title of its report.
    #[arg(long, value_name = "TEXT")]
    question: Option<String>,
    /// Where a response is cut. Default: 140 on the embedded benchmark, else 1024 or what the model's
    /// positions leave.
    #[arg(long, value_name = "TOKENS", value_parser = bounds::count(), requires = "model")]
    max_response_tokens: Option<u64>,
}

/// # Errors
/// A folder that holds something, an unknown arm, a model or problems that cannot be used.
pub fn run(args: &InitArgs) -> Result<ExitCode> {
    let folder = std::path::absolute(&args.folder)?;
    if files::kind(&folder)?.is_some() && !files::list(&folder)?.is_empty() {
        bail!(exit::Invalid(format!("{}: the folder is not empty", args.folder.display())));
    }
    let name: String = folder.file_name().unwrap_or_default().to_string_lossy().into();
    let name = name.replace(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c), "-");
    let name = name.trim_start_matches('.').to_string();
    let (first, others) = args.arms.split_first().expect("clap gives at least one arm");
    let question = args.question.clone().unwrap_or_else(|| match others {
        [] => format!("What does {first} reach?"),
        _ => format!("Does {} beat {first}?", others.join(" or ")),
    });
    let own = args.model.as_ref().map(|model| own_files(args, model, &folder)).transpose()?;
    let starter = Starter {
        name,
        question,
        arms: args.arms.clone(),
        seeds: args.seeds.0.clone(),
        model: args.model.as_ref().map_or("model".into(), |model| relative(&folder, model)),
        files: own,
    };
    let parent = folder.parent().unwrap_or(Path::new("/"));
    files::create_folder(parent)?;
    // Beside the folder, so that relative paths in its files are already right.
    let scratch = files::scratch_folder(parent)?;
    let mut starter = starter;
    let prepare = |starter: &Starter| -> Result<()> {
        write(starter, scratch.path())?;
        let source = file::load(&scratch.path().join("grid.toml"))?;
        Ok(inputs::prepare_without_weights(source.base).map(drop)?)
    };
    if let Err(error) = prepare(&starter) {
        let (Some(TrainingError::Numerics(reason)), Some(files)) =
            (error.downcast_ref(), &mut starter.files)
        else {
            return Err(error);
        };
        let note = format!(
            "`numerics` is \"fast\", because exact arithmetic refuses this model: {reason}"
        );
        println!("{note}");
        files.settings.push(("", "numerics", Value::from("fast")));
        files.notes.push(note);
        prepare(&starter)?;
    }
    write(&starter, &folder)?;
    for name in ["base.toml", "grid.toml", "README.md"] {
        output::path(&args.folder.join(name));
    }
    println!("\n{}", cells::evidence(args.seeds.0.len()));
    let shown = args.folder.display();
    println!("\nnext: dapo ablate {shown} --dry-run, then dapo ablate {shown}");
    Ok(ExitCode::SUCCESS)
}

fn write(starter: &Starter, folder: &Path) -> Result<()> {
    for (name, text) in starter.texts()? {
        files::write_atomic(&folder.join(name), text.as_bytes())?;
    }
    if starter.files.is_none() {
        for (name, bytes) in starter::MODEL {
            files::write_atomic(&folder.join("model").join(name), bytes)?;
        }
    }
    Ok(())
}

/// Settings from model and problems, with remarks.
fn own_files(args: &InitArgs, model: &Path, folder: &Path) -> Result<StarterFiles> {
    let (Some(train), Some(dev)) = (&args.train, &args.dev) else {
        bail!(exit::Usage("--model needs --train, --dev and --test".to_string()));
    };
    let test = args.test.clone();
    let problems = Data::Files { train: train.clone(), dev: dev.clone(), test: test.clone() };
    let names = problems.set_names();
    let mut notes = Vec::new();
    for path in [train, dev].into_iter().chain(&test) {
        notes.extend(earnable(path)?);
    }
    let problems = data::load(&problems)?;
    let tokenizer = Tokenizer::load(model)?;
    let (config, _weights) = checkpoint::open_model(model)?;
    let template = match tune::template_of(model)? {
        Some(template) => {
            notes.push("the template is the one that the policy was tuned with (tune.json)".into());
            template
        }
        None => template(&tokenizer, &problems.train[0])?,
    };
    let all = inputs::named_sets(&problems).into_iter().flat_map(|(_, problems)| problems);
    let length = |problem: &Problem| {
        let prompt = prompt::prompt(problem, template, &tokenizer, u64::MAX)?;
        Ok::<u64, TaskError>(prompt.tokens.len() as u64)
    };
    let lengths = all.map(length).collect::<Result<Vec<u64>, _>>()?;
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let positions = config.max_position_embeddings as u64;
    let left = positions.saturating_sub(longest);
    let response = args.max_response_tokens.unwrap_or_else(|| left.clamp(1, 1024));
    if response > left {
        let fits = |length: &&u64| *length + response <= positions;
        bail!(exit::Invalid(format!(
            "{}: {} of {} problems fit into its {positions} positions with {response} for a response; the \
             longest prompt has {longest} tokens",
            model.display(),
            lengths.iter().filter(fits).count(),
            lengths.len()
        )));
    }
    // Exact sums of a larger vocabulary do not fit.
    let is_small = config.vocab_size <= 4096 && config.hidden_size <= 256;
    let parameters = phases::parameters(&config);
    println!(
        "{} training problems, {} to evaluate; all prompts fit: the longest has {longest} tokens, a \
         response at most {response}",
        problems.train.len(),
        problems.evaluated().map(|(_, set)| set.len()).sum::<usize>()
    );
    let samples = names.iter().map(|name| {
        let k = if name == sets::DEV { 4 } else { 8 };
        (name.clone(), Value::from(k))
    });
    let text = |template: PromptTemplate| Value::try_from(template);
    if !is_small {
        notes.push(
            "`numerics` is \"fast\": exact arithmetic is for models of a benchmark's size"
                .to_string(),
        );
    }
    let mut settings = vec![
        ("", "numerics", Value::from(if is_small { "exact" } else { "fast" })),
        ("prompt", "template", text(template)?),
        ("rollout", "max_prompt_tokens", Value::from(longest as i64)),
        ("rollout", "max_response_tokens", Value::from(response as i64)),
        ("evaluation", "samples", Value::Table(samples.collect::<Table>())),
        ("evaluation", "during_training", Value::from(vec![sets::DEV])),
    ];
    // 135 million parameters learned with 2e-5; the paper has 1e-6 for 32 billion.
    if parameters >= 5e7 {
        let rate = if parameters < 3e8 { 1e-5 } else { 1e-6 };
        settings.push(("optimizer", "learning_rate", Value::from(rate)));
    }
    let (train, dev) = (relative(folder, train), relative(folder, dev));
    let test = test.iter().map(|path| relative(folder, path)).collect();
    Ok(StarterFiles { train, dev, test, settings, notes })
}

/// A response must be able to be graded right. Returns what is read differently from the file.
fn earnable(path: &Path) -> Result<Vec<String>> {
    let mut readings = Readings::new();
    source::each_row(path, &RowKeys::default(), &mut |row| {
        problem_file::count_readings(&mut readings, &row);
        let (truth, place) = (&row.row.ground_truth, &row.place);
        if truth.trim().is_empty() || reward::is_earned(truth, reward::FORMS[0]) {
            Ok(())
        } else {
            Err(TaskError::Unearned {
                path: path.to_path_buf(),
                place: place.clone(),
                value: truth.chars().take(60).collect(),
            })
        }
    })?;
    let told = problem_file::told(&readings);
    let told: Vec<String> = told.iter().map(|told| format!("{}: {told}", path.display())).collect();
    told.iter().for_each(output::tell);
    Ok(told)
}

/// The released instruction, in a chat template if there is one; the question alone where the
/// tokenizer cannot write the instruction.
fn template(tokenizer: &Tokenizer, problem: &Problem) -> Result<PromptTemplate> {
    if tokenizer.chat_template()?.is_some() {
        return Ok(PromptTemplate::DapoChat);
    }
    let dapo = prompt::prompt(problem, PromptTemplate::Dapo, tokenizer, u64::MAX);
    Ok(if dapo.is_ok() { PromptTemplate::Dapo } else { PromptTemplate::Question })
}

/// `path` relative to `folder`.
fn relative(folder: &Path, path: &Path) -> PathBuf {
    let Ok(path) = std::path::absolute(path) else { return path.to_path_buf() };
    let common = folder.components().zip(path.components()).take_while(|(a, b)| a == b).count();
    let up = folder.components().skip(common).map(|_| Component::ParentDir);
    up.chain(path.components().skip(common)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_named_from_the_folder() {
        let from = |path: &str| relative(Path::new("/a/b/study"), Path::new(path));
        assert_eq!(from("/a/b/data/x.jsonl"), Path::new("../data/x.jsonl"));
        assert_eq!(from("/a/b/study/model"), Path::new("model"));
        assert_eq!(from("/c/model"), Path::new("../../../c/model"));
    }
}
