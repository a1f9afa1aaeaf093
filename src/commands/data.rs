//! `dapo data`: problems as files.

use crate::base::{files, program, python};
use crate::commands::exit::{bail_invalid, bail_usage};
use crate::commands::{audit, audit::AuditArgs, exit, grade, output};
use crate::experiment::Data;
use crate::task::data::embedded;
use crate::task::data::prepared::{self, Preparation};
use crate::task::data::reasoning_gym::{self as gym, GymRequest};
use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Describe files of problems, prepare them without repeated problems and with digests, or grade responses
#[derive(Debug, Subcommand)]
pub enum DataVerb {
    Audit(AuditArgs),
    /// Write problems as canonical parquet, with digests
    ///
    /// Rows with the same question, however it is spaced, and the same answer become one problem,
    /// every problem gets an id, and the content's SHA-256 goes into DIR/digests.json. A question
    /// with several answers is left out with all its rows, because nothing in the file says which
    /// answer is right. What was left out, and why, is listed in
    /// DIR/NAME.left-out.jsonl: also worked solutions without an answer, and rows that repeat a question with
    /// other columns, of which the first counts. The files are in the schema of the released data, and an
    /// experiment reads them with `inputs.data.kind = "files"`.
    #[command(after_long_help = include_str!("help/data-prepare.txt"))]
    Prepare(PrepareArgs),
    /// Write problems of the Python package reasoning-gym, with the program that grades them
    ///
    /// DIR gets train.jsonl, dev.jsonl, a file to test on for each dataset, and reward.py, which grades an answer
    /// by its dataset's own scorer. A question comes once. `pip install reasoning-gym` installs the package.
    #[command(after_long_help = include_str!("help/data-reasoning-gym.txt"))]
    ReasoningGym(GymArgs),
    Grade(Box<grade::GradeArgs>),
}

#[derive(Debug, Args)]
pub struct GymArgs {
    /// Names of datasets, as reasoning_gym.create_dataset takes them
    #[arg(value_delimiter = ',', required = true, value_name = "DATASET")]
    datasets: Vec<String>,
    /// Folder to write to; files of the same name are replaced
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Problems of each dataset: for training, to evaluate during training, and at the end
    #[arg(long, value_delimiter = ',', num_args = 1, default_values_t = [2000, 64, 200], value_name = "N,N,N")]
    sizes: Vec<u64>,
    /// Seed of the datasets
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A setting of the datasets' configuration, or DATASET.KEY=VALUE of one dataset's; may be repeated
    #[arg(long = "with", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Python that has the package. Default: DAPO_PYTHON, else python3
    #[arg(long, value_name = "PROGRAM")]
    python: Option<String>,
}

#[derive(Debug, Args)]
pub struct PrepareArgs {
    /// `mini-aime`, `checked-chains`, `signed-sums`, `word-problems`, or a file: parquet, JSON lines, a JSON list or CSV, in the
    /// released schema or with {"id"?, "question", "answer", "tags"?} and the like
    source: PathBuf,
    /// Folder to write to; files of the same name are replaced
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Which problems of a generated task, as in `inputs.data.variant`
    #[arg(long)]
    variant: Option<String>,
    #[command(flatten)]
    preparation: Preparation,
    /// Print one JSON document instead of text: the content of digests.json.
    #[arg(long)]
    json: bool,
}

/// Errors: data that cannot be used, and a file that cannot be written.
pub fn run(verb: &DataVerb) -> Result<u8> {
    match verb {
        DataVerb::Audit(args) => audit::run(args),
        DataVerb::Prepare(args) => prepare(args),
        DataVerb::ReasoningGym(args) => reasoning_gym(args),
        DataVerb::Grade(args) => grade::run(args),
    }
}

fn reasoning_gym(args: &GymArgs) -> Result<u8> {
    let Ok(sizes) = <[u64; 3]>::try_from(args.sizes.clone()) else {
        bail_usage!("--sizes takes three numbers: training, during training, at the end");
    };
    if sizes == [0; 3] {
        bail_usage!("--sizes asks for no problem");
    }
    let mut settings = Map::new();
    for text in &args.settings {
        let Some((key, value)) = text.split_once('=') else {
            bail_usage!("--with takes KEY=VALUE, got {text:?}");
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        settings.insert(key.to_string(), value);
    }
    let request = GymRequest { datasets: args.datasets.clone(), sizes, seed: args.seed, settings };
    let python = args.python.clone().unwrap_or_else(python::of_environment);
    let files = gym::write(&request, &python, &args.out)?;
    output::tell(format!(
        "reasoning-gym {}: {} repeated questions and {} problems whose own answer gets no full score are left out",
        files.version, files.repeated, files.unscored
    ));
    for (path, problems) in &files.sets {
        output::say(format!("{}: {problems} problems", path.display()));
    }
    let [train, dev, reward] =
        ["train.jsonl", "dev.jsonl", gym::PROGRAM].map(|name| args.out.join(name));
    let tests = files.sets.keys().filter(|path| **path != train && **path != dev);
    let tests: String = tests.map(|path| format!(" --test {}", program::path_word(path))).collect();
    let [train, dev, reward] = [&train, &dev, &reward].map(|path| program::path_word(path));
    if sizes.iter().all(|size| *size > 0) {
        output::say(format!(
            "next: dapo init STUDY --model MODEL --train {train} --dev {dev}{tests} --verifier {reward}"
        ));
    }
    Ok(exit::SUCCESS)
}

fn prepare(args: &PrepareArgs) -> Result<u8> {
    let prepared = match generated(args)? {
        Some(task) => prepared::of_task(&task)?,
        None => {
            if let Some(read) = args.preparation.replaced(&args.source, &args.out) {
                bail_usage!("--out {} would replace {}", args.out.display(), read.display());
            }
            prepared::of_file(&args.source, &args.preparation)?
        }
    };
    prepared.notes.iter().for_each(output::tell);
    let (digests, stale) = prepared.write(&args.out, output::tell)?;
    if let Some(stale) = stale {
        output::tell(format!(
            "{}: removed, because its problems, held out before, are trained on now",
            stale.display()
        ));
    }
    if args.json {
        output::json_line(&digests);
        return Ok(exit::SUCCESS);
    }
    for (name, problems) in &prepared.sets {
        let (count, path) = (problems.len(), prepared.path(&args.out, name));
        let sha256 = digests[name]["sha256"].as_str().unwrap_or_default();
        output::say(format!("{name}: {count} problems, sha256 {sha256}, {}", path.display()));
    }
    Ok(exit::SUCCESS)
}

fn generated(args: &PrepareArgs) -> Result<Option<Data>> {
    let task = embedded::KINDS.iter().find(|(kind, _)| args.source == Path::new(kind));
    let Some((kind, usual)) = task else {
        let (source, shown) = (&args.source, args.source.display());
        if source.extension().is_none() && files::kind(source)?.is_none() {
            let known = embedded::known(&source.to_string_lossy());
            bail_invalid!(
                "{shown}: there is no such file, and no generated task of this name; {known}"
            );
        }
        if args.variant.is_some() {
            bail_usage!("--variant is for a generated task, and {shown} is none");
        }
        return Ok(None);
    };
    if let Some(flag) = args.preparation.given() {
        bail_usage!("{flag} is for a file of problems, and {kind} is a generated task");
    }
    let Some(variant) = &args.variant else { return Ok(Some(usual.clone())) };
    let data = serde_json::from_value(json!({"kind": kind, "variant": variant}));
    Ok(Some(data.map_err(|error| exit::Invalid(format!("--variant {variant}: {error}")))?))
}
