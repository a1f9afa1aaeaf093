//! `dapo data`: problems as files.

use crate::commands::exit;
use crate::config::MiniAimeVariant;
use crate::data;
use crate::data::mini_aime;
use crate::data::problem_file;
use crate::files;
use crate::records::Problem;
use crate::visible;
use anyhow::Context;
use clap::Args;
use clap::Subcommand;
use serde::Serialize;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

/// Prepare problems as files: deduplicated, with digests
#[derive(Debug, Args)]
pub struct DataArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Write problems as canonical parquet, with digests
    ///
    /// Repeated rows become one problem, every problem gets an id, and the content's SHA-256
    /// goes into DIR/digests.json. The files are in the schema of the released data, and an
    /// experiment reads them with `inputs.data.kind = "files"`.
    #[command(after_long_help = "\
Examples:
  dapo data prepare mini-aime --out data/mini-aime
      train, dev, mini-aime and mini-aime-plus of the embedded benchmark
  dapo data prepare aime-2024.parquet --out data
      data/aime-2024.parquet: 30 problems of 960 rows
  dapo data prepare dapo-math-17k.parquet --out data --drop-conflicting
      without the prompts that stand in the file with several answers
  dapo data prepare train.jsonl --without aime-2024.parquet --out data
      without the problems of an evaluation set

Exit codes: 0 done, 1 cannot write, 2 usage, 3 data that cannot be used")]
    Prepare(PrepareArgs),
}

#[derive(Debug, Args)]
struct PrepareArgs {
    /// `mini-aime`, or a file: parquet in the released schema, or JSON lines with
    /// {"id"?, "question", "answer"}
    source: PathBuf,
    /// Folder to write to; files of the same name are replaced
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Which problems of `mini-aime`
    #[arg(long, value_enum, default_value = "standard")]
    variant: MiniAimeVariant,
    /// Leave out prompts that have several answers, instead of refusing the file
    #[arg(long)]
    drop_conflicting: bool,
    /// Leave out the problems whose question stands in this file too: what is evaluated must
    /// not be trained on. May be repeated.
    #[arg(long, value_name = "FILE")]
    without: Vec<PathBuf>,
    /// Print one JSON object instead of lines: the content of digests.json.
    #[arg(long)]
    json: bool,
}

/// One set of `digests.json`.
#[derive(Debug, Serialize)]
struct SetDigest {
    problems: usize,
    /// SHA-256 of the problems' canonical JSON lines.
    sha256: String,
    /// SHA-256 of the parquet file.
    file_sha256: String,
}

/// Runs the verb.
///
/// # Errors
/// When something cannot be written. Data that cannot be used is reported here and is exit
/// code 3.
pub fn run(args: &DataArgs) -> anyhow::Result<ExitCode> {
    let Verb::Prepare(args) = &args.verb;
    let target = args.out.join(format!("{}.parquet", data::set_name(&args.source)));
    if let (Ok(source), Ok(target)) = (args.source.canonicalize(), target.canonicalize())
        && source == target
    {
        eprintln!("error: --out {} would replace {}", args.out.display(), args.source.display());
        return Ok(ExitCode::from(exit::USAGE));
    }
    let prepared = match args.source == Path::new(mini_aime::MINI_AIME) {
        true => Ok(Prepared { sets: mini_aime_sets(args.variant), notes: Vec::new() }),
        false => file_set(args),
    };
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            eprintln!("error: {}", visible::message(&error.to_string()));
            return Ok(ExitCode::from(exit::INVALID));
        }
    };
    for note in &prepared.notes {
        eprintln!("{}", visible::message(note));
    }
    let mut digests = BTreeMap::new();
    // The embedded benchmark's prompt is the question alone; files keep the released form.
    let templated = args.source != Path::new(mini_aime::MINI_AIME);
    for (name, problems) in &prepared.sets {
        let path = args.out.join(format!("{name}.parquet"));
        data::write(&path, problems, templated)
            .with_context(|| format!("cannot write the set `{name}`"))?;
        let sha256 = data::digest(problems);
        if !args.json {
            println!("{name}: {} problems, sha256 {sha256}, {}", problems.len(), path.display());
        }
        let file_sha256 = files::sha256_file(&path)?;
        digests.insert(name, SetDigest { problems: problems.len(), sha256, file_sha256 });
    }
    files::write_json(&args.out.join("digests.json"), &digests)?;
    if args.json {
        println!("{}", visible::json(&files::canonical_json_line(&digests)));
    }
    Ok(ExitCode::SUCCESS)
}

/// What is to be written, and what to say about it.
struct Prepared {
    sets: Vec<(String, Vec<Problem>)>,
    notes: Vec<String>,
}

fn mini_aime_sets(variant: MiniAimeVariant) -> Vec<(String, Vec<Problem>)> {
    let data::DataSets { train, dev, tests } = mini_aime::generate(variant);
    let trained = [(mini_aime::TRAIN.to_string(), train), (mini_aime::DEV.to_string(), dev)];
    trained.into_iter().chain(tests).collect()
}

fn file_set(args: &PrepareArgs) -> Result<Prepared, data::Error> {
    let path = &args.source;
    let file = problem_file::read(path)?;
    let (records, conflicting) = (file.records, file.conflicts.len());
    let mut problems = if args.drop_conflicting { file.problems } else { file.consistent(path)? };
    let mut notes =
        vec![format!("{}: {records} records, {} problems", path.display(), problems.len())];
    if conflicting > 0 {
        notes.push(format!("left out: {conflicting} prompts with conflicting answers"));
    }
    for other in &args.without {
        let known = problem_file::read(other)?;
        let known: BTreeSet<String> =
            known.problems.iter().map(|problem| data::words(&problem.question)).collect();
        let before = problems.len();
        problems.retain(|problem| !known.contains(&data::words(&problem.question)));
        notes.push(format!(
            "left out: {} problems of {}",
            before - problems.len(),
            other.display()
        ));
    }
    if problems.is_empty() {
        return Err(data::Error::Empty { path: path.clone() });
    }
    Ok(Prepared { sets: vec![(data::set_name(path), problems)], notes })
}
