//! `dapo data`: problems as files.

use crate::commands::exit;
use crate::data;
use crate::data::mini_aime;
use crate::data::problem_file;
use crate::files;
use crate::records::Problem;
use anyhow::Context;
use clap::Args;
use clap::Subcommand;
use serde::Serialize;
use std::collections::BTreeMap;
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
    /// Leave out prompts that have several answers, instead of refusing the file
    #[arg(long)]
    drop_conflicting: bool,
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
    let sets = if args.source == Path::new(mini_aime::MINI_AIME) {
        Ok(mini_aime_sets())
    } else {
        file_set(args)
    };
    let sets = match sets {
        Ok(sets) => sets,
        Err(error) => {
            eprintln!("error: {error}");
            return Ok(ExitCode::from(exit::INVALID));
        }
    };
    let mut digests = BTreeMap::new();
    // The embedded benchmark's prompt is the question alone; files keep the released form.
    let templated = args.source != Path::new(mini_aime::MINI_AIME);
    for (name, problems) in &sets {
        let path = args.out.join(format!("{name}.parquet"));
        data::write(&path, problems, templated)
            .with_context(|| format!("cannot write the set `{name}`"))?;
        let sha256 = data::digest(problems);
        println!("{name}: {} problems, sha256 {sha256}, {}", problems.len(), path.display());
        let file_sha256 = files::sha256_file(&path)?;
        digests.insert(name, SetDigest { problems: problems.len(), sha256, file_sha256 });
    }
    files::write_json(&args.out.join("digests.json"), &digests)?;
    Ok(ExitCode::SUCCESS)
}

fn mini_aime_sets() -> Vec<(String, Vec<Problem>)> {
    let data::DataSets { train, dev, tests } = mini_aime::generate();
    let trained = [(mini_aime::TRAIN.to_string(), train), (mini_aime::DEV.to_string(), dev)];
    trained.into_iter().chain(tests).collect()
}

fn file_set(args: &PrepareArgs) -> Result<Vec<(String, Vec<Problem>)>, data::Error> {
    let path = &args.source;
    let file = problem_file::read(path)?;
    let (records, conflicting) = (file.records, file.conflicts.len());
    let problems = if args.drop_conflicting { file.problems } else { file.consistent(path)? };
    if problems.is_empty() {
        return Err(data::Error::Empty { path: path.clone() });
    }
    println!("{}: {records} records, {} problems", path.display(), problems.len());
    if conflicting > 0 {
        println!("left out: {conflicting} prompts with conflicting answers");
    }
    Ok(vec![(data::set_name(path), problems)])
}
