//! `dapo compare`: two sides from outcomes alone.

use crate::commands::{exit, output};
use crate::records::ColumnNames;
use crate::study::ComparisonStyle;
use crate::study::comparison::{self, load, text};
use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compare two methods or checkpoints on the same problems, from tables of (problem, sample,
/// correct).
///
/// A side is a parquet or CSV table with a row for each sampled response, a run folder, or a cell
/// record; a folder of these, or several files, is several training runs of one method. With one
/// run a side the comparison is about these checkpoints; with several the unit is the training
/// run. Every number comes with the question that it answers.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo compare grpo.csv dapo.csv
  dapo compare aime-base.parquet aime-tuned.parquet --problem-column question_id --markdown
  dapo compare --a grpo-1.csv grpo-2.csv grpo-3.csv --b dapo-1.csv dapo-2.csv dapo-3.csv
  dapo compare runs/a runs/b --set mini-aime --json

Columns that are recognised without a flag:
  problem  problem, problem_id, question_id, task_id, doc_id, id
  sample   sample, sample_id, sample_index, repeat, attempt
  correct  is_correct, correct, score, acc (true, false, 0 or 1)

Exit codes:
  0  compared, whatever the result
  3  a table cannot be read or used; the message names the file, and the line or row and column")]
pub struct CompareArgs {
    /// The side to compare with, and the side that is compared.
    #[arg(num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["a", "b"], required_unless_present = "a")]
    sides: Vec<PathBuf>,
    /// Training runs of A.
    #[arg(long, num_args = 1.., value_name = "FILE", requires = "b")]
    a: Vec<PathBuf>,
    /// Training runs of B.
    #[arg(long, num_args = 1.., value_name = "FILE", requires = "a")]
    b: Vec<PathBuf>,
    /// Column of the problem's id.
    #[arg(long, value_name = "NAME")]
    problem_column: Option<String>,
    /// Column of the sample's number.
    #[arg(long, value_name = "NAME")]
    sample_column: Option<String>,
    /// There is no sample column: the rows of a problem are its samples.
    #[arg(long, conflicts_with = "sample_column")]
    no_sample_column: bool,
    /// Column of correctness.
    #[arg(long, value_name = "NAME")]
    correct_column: Option<String>,
    /// Evaluation set of run folders and cell records.
    #[arg(long, value_name = "NAME")]
    set: Option<String>,
    /// Compare the problems that all files have, instead of refusing others.
    #[arg(long)]
    common_problems: bool,
    /// Allow problems with different numbers of samples.
    #[arg(long)]
    unequal_samples: bool,
    /// Confidence level of the intervals.
    #[arg(long, default_value_t = 0.95)]
    level: f64,
    /// One JSON document instead of text.
    #[arg(long)]
    json: bool,
    /// Markdown instead of text.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// Runs the verb.
///
/// # Errors
/// Tables that cannot be read or compared.
pub fn run(args: &CompareArgs) -> Result<ExitCode> {
    if !(args.level > 0.5 && args.level < 1.0) {
        return Err(exit::Usage(format!("--level {} is not between 0.5 and 1", args.level)).into());
    }
    let options = load::ComparisonOptions {
        columns: ColumnNames {
            problem: args.problem_column.clone(),
            sample: args.sample_column.clone(),
            correct: args.correct_column.clone(),
            no_sample: args.no_sample_column,
        },
        set: args.set.clone(),
        unequal_samples: args.unequal_samples,
    };
    let (a, b) = match args.sides.as_slice() {
        [a, b] => (load::side(&[a], &options)?, load::side(&[b], &options)?),
        _ => (load::side(&args.a, &options)?, load::side(&args.b, &options)?),
    };
    let comparison = comparison::compare(&a, &b, args.level, args.common_problems)?;
    let style = if args.markdown { ComparisonStyle::Markdown } else { ComparisonStyle::Plain };
    output::document(args.json, &comparison, || text::page(&comparison, style));
    Ok(ExitCode::SUCCESS)
}
