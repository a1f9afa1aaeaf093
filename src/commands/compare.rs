//! `dapo compare`: two sides from outcomes alone.

use crate::base::visible;
use crate::commands::{exit, output};
use crate::records::ColumnNames;
use crate::study::comparison::{self, load, text};
use crate::study::{
    At, ComparisonStyle, Declared, DeclaredFamily, Direction, Metric, Statistic, Word, analysis,
    claims::words, collection, comparisons, comparisons::Comparison,
};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare two methods or checkpoints on the same problems, from tables of (problem, sample,
/// correct).
///
/// A side is a parquet or CSV table or JSON lines with a row for each sampled response (verl's dumps and
/// the samples that lm-eval logs among them), a run folder, or a cell record; a folder of these, or several files, is several training runs of one method. With one
/// run a side the comparison is about these checkpoints; with several the unit is the training
/// run. Every number comes with the question that it answers.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo compare grpo.csv dapo.csv
  dapo compare my-study --arm dapo --against grpo --fail-if worse
  dapo compare aime-base.parquet aime-tuned.parquet --problem-column question_id --markdown
  dapo compare --a grpo-1.csv grpo-2.csv grpo-3.csv --b dapo-1.csv dapo-2.csv dapo-3.csv
  dapo compare runs/a runs/b --evaluation-set mini-aime --json

Columns that are recognised without a flag:
  problem  problem, problem_id, question_id, task_id, doc_id, id
  sample   sample, sample_id, sample_index, repeat, attempt
  correct  is_correct, correct, score, acc (true, false, 0 or 1)
A dump of verl: the prompt and `gts` are the problem, `acc` or `score` is correctness. Samples of lm-eval:
`doc_id` is the problem; of several metrics or filters, --correct-column exact_match,strict-match says which.

Exit codes:
  0  compared, whatever the result, or not as --fail-if says
  3  a table cannot be read or used; the message names the file, and the line or row and column
  4  as --fail-if says
  6  with --fail-if: the arms cannot be compared")]
pub struct CompareArgs {
    /// The side to compare with, and the side that is compared.
    #[arg(num_args = 1..=2, value_names = ["A", "B"], conflicts_with_all = ["a", "b"], required_unless_present = "a")]
    sides: Vec<PathBuf>,
    /// An arm of a study, whose folder stands in the place of A; the unit is the training run.
    #[arg(long, value_name = "NAME", requires = "against", conflicts_with_all = ["a", "b"])]
    arm: Option<String>,
    /// The arm that it is compared with.
    #[arg(long, value_name = "NAME", requires = "arm")]
    against: Option<String>,
    /// Exit with 4 when the arm is shown to be worse, or to differ.
    #[arg(long, value_enum, requires = "arm")]
    fail_if: Option<FailIf>,
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
    evaluation_set: Option<String>,
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

/// What a gate refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FailIf {
    Worse,
    Different,
}

/// Runs the verb.
///
/// # Errors
/// Tables that cannot be read or compared.
pub fn run(args: &CompareArgs) -> Result<ExitCode> {
    if let (Some(arm), Some(against)) = (&args.arm, &args.against) {
        return match args.sides.as_slice() {
            [study] => arms(args, study, [arm, against]),
            _ => Err(exit::Usage("--arm needs one folder, of a study".to_string()).into()),
        };
    }
    if args.sides.len() == 1 {
        let message = "one side is not enough: name two, or the --arm and --against of a study";
        return Err(exit::Usage(message.to_string()).into());
    }
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
        set: args.evaluation_set.clone(),
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

/// Two arms of a study on its primary set, where the runs ended.
fn arms(args: &CompareArgs, folder: &Path, names: [&String; 2]) -> Result<ExitCode> {
    let study = collection::load(folder, None)?;
    let all = study.grids.iter().flat_map(|grid| {
        grid.arms.iter().map(move |arm| (format!("{}/{}", grid.name, arm.name), &arm.name))
    });
    let all: Vec<(String, &String)> = all.collect();
    let id = |name: &String| -> Result<String> {
        let found = all.iter().find(|(id, own)| id == name || *own == name);
        let known = || all.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>().join(", ");
        let refused = || exit::Invalid(format!("there is no arm {name:?}; there are {}", known()));
        Ok(found.ok_or_else(refused)?.0.clone())
    };
    let declared = Declared {
        id: "compare".to_string(),
        arm: id(names[0])?,
        reference: id(names[1])?,
        metric: Metric::Evaluation {
            set: study.declaration.primary_set.clone(),
            at: At::Last,
            statistic: Statistic::AvgAtK,
        },
        direction: Direction::Higher,
    };
    let families = comparisons::families(&study);
    let registered = analysis::find(&families, &declared).cloned();
    let family = DeclaredFamily {
        id: "compare".to_string(),
        question: study.declaration.question.clone(),
        after: Vec::new(),
        comparisons: vec![declared],
    };
    let comparison = registered
        .unwrap_or_else(|| comparisons::family(&study, &family, false).comparisons.remove(0));
    output::document(args.json, &comparison, || {
        let Comparison { declared, metric_words, word, reason, .. } = &comparison;
        let text = format!(
            "{} against {}, {metric_words}: {}\n  {}\n  {reason}",
            declared.arm,
            declared.reference,
            word.words(),
            words::comparison(&comparison)
        );
        visible::message(&text) + "\n"
    });
    let shown = [Word::Improves, Word::Hurts].contains(&comparison.word);
    Ok(ExitCode::from(match args.fail_if {
        Some(_) if comparison.word == Word::NotCompared => exit::INCONCLUSIVE,
        Some(FailIf::Worse) if comparison.word == Word::Hurts => exit::MISMATCH,
        Some(FailIf::Different) if shown => exit::MISMATCH,
        _ => exit::SUCCESS,
    }))
}
