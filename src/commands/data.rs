//! `dapo data`: problems as files.

use crate::algorithm::Problem;
use crate::base::files;
use crate::commands::{audit, audit::AuditArgs, exit, output};
use crate::experiment::sets;
use crate::task::data::{self, embedded, leaks, problem_file};
use crate::task::{DataSets, RowKeys, TaskError};
use anyhow::Context;
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Look at files of problems, and prepare them: deduplicated, with digests
#[derive(Debug, Args)]
pub struct DataArgs {
    #[command(subcommand)]
    verb: DataVerb,
}

#[derive(Debug, Subcommand)]
enum DataVerb {
    Audit(AuditArgs),
    /// Write problems as canonical parquet, with digests
    ///
    /// Rows with the same question, however it is spaced, and the same answer become one problem,
    /// every problem gets an id, and the content's SHA-256 goes into DIR/digests.json. A question
    /// that stands in the file with several answers is left out with all its rows: nothing in
    /// the file says which answer is right. What was left out, and why, is listed in
    /// DIR/NAME.left-out.jsonl. The files are in the schema of the released data, and an
    /// experiment reads them with `inputs.data.kind = "files"`.
    #[command(after_long_help = "\
Examples:
  dapo data prepare mini-aime --out data/mini-aime
      train, dev, mini-aime and mini-aime-plus of the embedded benchmark
  dapo data prepare checked-chains --variant hard --out data/chains
      the generated problems of another task, with their tags
  dapo data prepare aime-2024.parquet --out data
      data/aime-2024.parquet: 30 problems of 960 rows
  dapo data prepare dapo-math-17k.parquet --out data --refuse-conflicting
      stop where a question has several answers, instead of leaving it out
  dapo data prepare train.jsonl --without aime-2024.parquet --out data
      without the problems of an evaluation set
  dapo data prepare problems.jsonl --question-key task --answer-key result.value --out data
      keys of another name
  dapo data prepare dapo-math-17k.parquet --without aime-2024.parquet --hold-out 64 --out data
      data/dapo-math-17k.parquet and 64 of its problems in data/dapo-math-17k-dev.parquet

Exit codes: 0 done, 1 cannot write, 2 usage, 3 data that cannot be used")]
    Prepare(PrepareArgs),
}

#[derive(Debug, Args)]
struct PrepareArgs {
    /// `mini-aime`, `checked-chains`, `signed-sums`, `word-problems`, or a file: parquet or JSON lines, in the
    /// released schema or with {"id"?, "question", "answer", "tags"?} and the like
    source: PathBuf,
    #[command(flatten)]
    keys: RowKeys,
    /// Folder to write to; files of the same name are replaced
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Which problems of a generated task, as in `inputs.data.variant`
    #[arg(long)]
    variant: Option<String>,
    /// Refuse a file in which a question has several answers, instead of leaving the question out
    #[arg(long)]
    refuse_conflicting: bool,
    /// Leave out the problems whose question stands in this file too, in any case, spacing and punctuation:
    /// what is evaluated must not be trained on. Those that look alike are kept and listed in
    /// DIR/NAME.alike.jsonl. May be repeated.
    #[arg(long, value_name = "FILE")]
    without: Vec<PathBuf>,
    /// Leave out those that look alike too: half of the shorter question's sequences of eight words stand
    /// in the other one.
    #[arg(long, requires = "without")]
    without_alike: bool,
    /// Put so many problems into a set of their own, NAME-dev, instead: those whose question has the
    /// smallest digest, so that neither order nor number of the rows decides.
    #[arg(long, value_name = "COUNT")]
    hold_out: Option<usize>,
    /// Print one JSON object instead of lines: the content of digests.json.
    #[arg(long)]
    json: bool,
}

const LISTED: usize = 10;

/// One set of `digests.json`.
#[derive(Debug, Serialize)]
struct SetDigest {
    problems: usize,
    /// SHA-256 of the problems' canonical JSON lines.
    sha256: String,
    file_sha256: String,
    /// Only files have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<DataSource>,
}

#[derive(Debug, Clone, Serialize)]
struct DataSource {
    file_sha256: String,
    rows: usize,
    /// Questions with several answers.
    conflicting: usize,
    /// Problems of an evaluation set.
    evaluated: usize,
    /// Kept or left out.
    alike: usize,
}

/// A line of `NAME.left-out.jsonl`.
#[derive(Debug, Serialize)]
struct LeftOut {
    reason: String,
    question: String,
    answers: Vec<String>,
}

/// A line of `NAME.alike.jsonl`.
#[derive(Debug, Serialize)]
struct AlikeListed {
    question: String,
    other: String,
    file: PathBuf,
    /// Share of the shorter question's sequences of words.
    share: f64,
}

/// # Errors
/// When something cannot be written. Data that cannot be used is reported here and is exit
/// code 3.
pub fn run(args: &DataArgs) -> anyhow::Result<ExitCode> {
    match &args.verb {
        DataVerb::Audit(args) => audit::run(args),
        DataVerb::Prepare(args) => prepare(args),
    }
}

fn prepare(args: &PrepareArgs) -> anyhow::Result<ExitCode> {
    let target = args.out.join(format!("{}.parquet", sets::set_name(&args.source)));
    if let (Ok(source), Ok(target)) = (args.source.canonicalize(), target.canonicalize())
        && source == target
    {
        eprintln!("error: --out {} would replace {}", args.out.display(), args.source.display());
        return Ok(ExitCode::from(exit::USAGE));
    }
    let generated = generated(args)?;
    // Generated tasks have the question alone; files keep the released form.
    let templated = generated.is_none();
    let prepared = match generated {
        Some(sets) => all_sets(sets),
        None => file_set(args)?,
    };
    prepared.notes.iter().for_each(output::tell);
    // Sets of earlier preparations keep their entries.
    let digests_file = args.out.join("digests.json");
    let mut digests: BTreeMap<String, Value> =
        if digests_file.exists() { files::read_json(&digests_file)? } else { BTreeMap::new() };
    for (name, problems) in &prepared.sets {
        let path = args.out.join(format!("{name}.parquet"));
        data::write_tagged(&path, problems, &prepared.tags, templated)
            .with_context(|| format!("cannot write the set `{name}`"))?;
        let sha256 = data::digest(problems);
        if !args.json {
            println!("{name}: {} problems, sha256 {sha256}, {}", problems.len(), path.display());
        }
        let file_sha256 = files::sha256_file(&path)?;
        let source = prepared.source.clone();
        let entry = SetDigest { problems: problems.len(), sha256, file_sha256, source };
        digests.insert(name.clone(), json!(entry));
        // An earlier preparation's list would be wrong for this one.
        let is_source = *name == sets::set_name(&args.source);
        let left_out = if is_source { &prepared.left_out[..] } else { &[] };
        let alike = if is_source { &prepared.alike[..] } else { &[] };
        write_list(&args.out.join(format!("{name}.left-out.jsonl")), left_out)?;
        write_list(&args.out.join(format!("{name}.alike.jsonl")), alike)?;
    }
    files::write_json(&digests_file, &digests)?;
    if args.json {
        output::json_line(&digests);
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes the file if there are no lines.
fn write_list<T: Serialize>(path: &Path, lines: &[T]) -> Result<(), files::FileError> {
    if lines.is_empty() { files::remove_file(path) } else { files::write_lines(path, lines) }
}

#[derive(Default)]
struct DataPrepared {
    sets: Vec<(String, Vec<Problem>)>,
    notes: Vec<String>,
    left_out: Vec<LeftOut>,
    alike: Vec<AlikeListed>,
    source: Option<DataSource>,
    /// By a problem's id.
    tags: BTreeMap<String, Vec<String>>,
}

/// `None` for a file.
fn generated(args: &PrepareArgs) -> anyhow::Result<Option<DataSets>> {
    let named = embedded::KINDS.iter().find(|(kind, _)| args.source == Path::new(kind));
    let Some((kind, usual)) = named else { return Ok(None) };
    let data = match &args.variant {
        Some(variant) => serde_json::from_value(json!({"kind": kind, "variant": variant}))
            .map_err(|error| exit::Invalid(format!("--variant {variant}: {error}")))?,
        None => usual.clone(),
    };
    Ok(Some(data::load(&data)?))
}

fn all_sets(sets: DataSets) -> DataPrepared {
    let trained = [(sets::TRAIN.to_string(), sets.train), (sets::DEV.to_string(), sets.dev)];
    let tags = sets.tags.into_values().flatten().collect();
    let sets = trained.into_iter().chain(sets.tests).collect();
    DataPrepared { sets, tags, ..DataPrepared::default() }
}

fn file_set(args: &PrepareArgs) -> anyhow::Result<DataPrepared> {
    let path = &args.source;
    let mut file = problem_file::read_with(path, &args.keys)?;
    let tags = std::mem::take(&mut file.tags);
    let (rows, conflicting) = (file.records, file.conflicts.len());
    let mut left_out: Vec<LeftOut> = Vec::new();
    let problems = file.problems.len();
    let mut notes = vec![format!("{}: {rows} rows, {problems} problems", path.display())];
    notes.extend(problem_file::told(&file.readings));
    if conflicting > 0 && !args.refuse_conflicting {
        notes.push(format!("left out: {conflicting} questions with several answers"));
        let told = file.conflicts.iter().take(LISTED);
        notes.extend(told.map(|conflict| format!("  {}", conflict.told())));
        left_out.extend(file.conflicts.iter().map(|conflict| LeftOut {
            reason: "several answers".to_string(),
            question: conflict.question.clone(),
            answers: conflict.answers.iter().map(|(answer, _)| answer.clone()).collect(),
        }));
    }
    let mut problems =
        if args.refuse_conflicting { file.consistent(path)?.problems } else { file.problems };
    let mut evaluated = 0;
    let mut alike: Vec<AlikeListed> = Vec::new();
    for other in &args.without {
        let known = problem_file::read(other)?.problems;
        let identities: BTreeSet<[u8; 32]> =
            known.iter().map(|problem| leaks::identity(&problem.question)).collect();
        let is_evaluated =
            |problem: &Problem| identities.contains(&leaks::identity(&problem.question));
        let (shared, kept): (Vec<Problem>, Vec<Problem>) =
            problems.into_iter().partition(is_evaluated);
        problems = kept;
        evaluated += shared.len();
        notes.push(format!("left out: {} problems of {}", shared.len(), other.display()));
        let leave = |problem: Problem, what: &str| LeftOut {
            reason: format!("{what} {}", other.display()),
            question: problem.question,
            answers: vec![problem.answer],
        };
        left_out.extend(shared.into_iter().map(|problem| leave(problem, "stands in")));
        let questions = |problems: &[Problem]| -> Vec<String> {
            problems.iter().map(|problem| problem.question.clone()).collect()
        };
        let (own, others) = (questions(&problems), questions(&known));
        let found = leaks::alike(&own, &others);
        if found.is_empty() {
            continue;
        }
        let what = if args.without_alike {
            "left out"
        } else {
            "kept, look at them (--without-alike leaves them out)"
        };
        let (count, path) = (found.len(), other.display());
        notes.push(format!("{count} problems look like one of {path}: {what}"));
        notes.extend(found.iter().take(LISTED).map(|pair| {
            let [own, other] = [&own[pair.question], &others[pair.other]]
                .map(|text| text.chars().take(60).collect::<String>());
            format!("  {own:?} and {other:?}: {:.0} %", 100.0 * pair.share)
        }));
        alike.extend(found.iter().map(|pair| AlikeListed {
            question: own[pair.question].clone(),
            other: others[pair.other].clone(),
            file: other.clone(),
            share: pair.share,
        }));
        if args.without_alike {
            let found: BTreeSet<&String> = found.iter().map(|pair| &own[pair.question]).collect();
            let (shared, kept): (Vec<Problem>, Vec<Problem>) =
                problems.into_iter().partition(|problem| found.contains(&problem.question));
            problems = kept;
            left_out.extend(shared.into_iter().map(|problem| leave(problem, "looks like one of")));
        }
    }
    let held_out = hold_out(&mut problems, args.hold_out.unwrap_or(0));
    if problems.is_empty() {
        return Err(TaskError::Empty { path: path.clone() }.into());
    }
    let file_sha256 = files::sha256_file(path)?;
    let source = Some(DataSource { file_sha256, rows, conflicting, evaluated, alike: alike.len() });
    let name = sets::set_name(path);
    let mut sets = vec![(name.clone(), problems)];
    if !held_out.is_empty() {
        sets.push((format!("{name}-dev"), held_out));
    }
    Ok(DataPrepared { sets, notes, left_out, alike, source, tags })
}

/// The problems with the smallest digests. Both parts keep their order.
fn hold_out(problems: &mut Vec<Problem>, count: usize) -> Vec<Problem> {
    let mut order: Vec<[u8; 32]> =
        problems.iter().map(|problem| data::identity(&problem.question)).collect();
    order.sort_unstable();
    let taken: BTreeSet<[u8; 32]> = order.into_iter().take(count).collect();
    let is_taken = |problem: &Problem| taken.contains(&data::identity(&problem.question));
    let (held_out, kept) = std::mem::take(problems).into_iter().partition(is_taken);
    *problems = kept;
    held_out
}
