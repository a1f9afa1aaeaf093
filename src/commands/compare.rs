//! `dapo compare`: two sides from outcomes alone.

use crate::commands::exit::bail_usage;
use crate::commands::{exit, output};
use crate::report::{compared, words};
use crate::statistics::accuracy::FEWEST_PROBLEMS;
use crate::study::collection;
use crate::study::comparison::{self, load, load::ComparisonOptions};
use crate::study::gate::{self, Gate, GateVerdict, Undecided};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare two methods or checkpoints on the same problems, from tables of (problem, sample,
/// correct).
///
/// A side is a parquet or CSV table or JSON lines with a row for each sampled response (verl's dumps and
/// the samples that lm-eval logs among them), a run folder, or a cell record. A folder of these, or
/// several files, is several training runs of one method. With one run a side the comparison is about
/// these checkpoints; with several the unit is the training run. Every number comes with the question
/// that it answers.
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
  0  the sides were compared, and --fail-if, if given, did not fail
  3  a table cannot be read or used; the message names the file, and the line or row and column
  4  --fail-if failed: the arm, or B, is worse or differs
  6  with --fail-if: nothing could be shown, or the sides cannot be compared")]
pub struct CompareArgs {
    /// The side to compare with, then the side to compare.
    #[arg(num_args = 1..=2, value_names = ["A", "B"], conflicts_with_all = ["a", "b"], required_unless_present = "a")]
    sides: Vec<PathBuf>,
    /// Compare this arm of a study; name the study's folder as A. The unit is the training run.
    #[arg(long, value_name = "NAME", requires = "against", conflicts_with_all = ["a", "b"])]
    arm: Option<String>,
    /// The arm to compare it with.
    #[arg(long, value_name = "NAME", requires = "arm")]
    against: Option<String>,
    /// Exit with 4 when the arm, or B, is shown to be worse, or to differ; exit with 6 when there are too
    /// few runs, samples or problems to show it.
    #[arg(long, value_enum)]
    fail_if: Option<FailIf>,
    /// With --fail-if: a difference of at most so many percent points does not count. Exit with 0 when the
    /// interval excludes a larger one, with 4 when a larger one is shown, else with 6.
    #[arg(long, value_name = "POINTS", requires = "fail_if")]
    margin: Option<f64>,
    /// Training runs of A.
    #[arg(long, num_args = 1.., value_name = "FILE", requires = "b")]
    a: Vec<PathBuf>,
    /// Training runs of B.
    #[arg(long, num_args = 1.., value_name = "FILE", requires = "a")]
    b: Vec<PathBuf>,
    #[command(flatten)]
    options: ComparisonOptions,
    /// Compare only the problems that all files have. Without this, other problems are an error.
    #[arg(long)]
    common_problems: bool,
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

/// # Errors
/// Tables that cannot be read or compared.
pub fn run(args: &CompareArgs) -> Result<ExitCode> {
    if args.margin.is_some_and(|points| !(points > 0.0 && points < 100.0)) {
        bail_usage!("--margin must be between 0 and 100 points");
    }
    if let (Some(arm), Some(against)) = (&args.arm, &args.against) {
        let [study] = &args.sides[..] else { bail_usage!("--arm needs one folder, of a study") };
        return arms(args, study, [arm, against]);
    }
    if args.sides.len() == 1 {
        bail_usage!("one side is not enough: name two, or the --arm and --against of a study");
    }
    if !(args.level > 0.5 && args.level < 1.0) {
        bail_usage!("--level must be between 0.5 and 1, got {}", args.level);
    }
    let (a, b) = match args.sides.as_slice() {
        [a, b] => (load::side(&[a], &args.options)?, load::side(&[b], &args.options)?),
        _ => (load::side(&args.a, &args.options)?, load::side(&args.b, &args.options)?),
    };
    let comparison = comparison::compare(&a, &b, args.level, args.common_problems)?;
    let format = (args.json, args.markdown);
    output::sections(format, &comparison, || compared::sections(&comparison));
    Ok(exit_code(args, |gate| gate.of_sides(&comparison)))
}

fn arms(args: &CompareArgs, folder: &Path, [arm, against]: [&str; 2]) -> Result<ExitCode> {
    let study = collection::load(folder, None)?;
    let compared = gate::arms(&study, folder, [arm, against])?;
    let comparison = &compared.comparison;
    output::sections((args.json, args.markdown), comparison, || compared::arms(&compared));
    Ok(exit_code(args, |gate| gate.of_arms(&study, comparison)))
}

/// Applies `--fail-if` and `--margin`; prints a sentence where nothing could be shown.
fn exit_code(args: &CompareArgs, verdict: impl FnOnce(Gate) -> GateVerdict) -> ExitCode {
    let Some(fail_if) = args.fail_if else { return ExitCode::SUCCESS };
    let margin = args.margin.map(|points| points / 100.0);
    match verdict(Gate { either_way: fail_if == FailIf::Different, margin }) {
        GateVerdict::Passed => ExitCode::SUCCESS,
        GateVerdict::Refused => ExitCode::from(exit::MISMATCH),
        GateVerdict::Undecided(why) => {
            let reason = reason(&why, args.margin.unwrap_or(0.0));
            output::tell(format!("--fail-if: nothing can be decided: {reason}"));
            ExitCode::from(exit::INCONCLUSIVE)
        }
    }
}

fn reason(undecided: &Undecided, margin: f64) -> String {
    match undecided {
        Undecided::FewProblems { problems } => format!(
            "{problems} problems are too few to say something of others; at least {FEWEST_PROBLEMS} are needed"
        ),
        Undecided::FewRuns { smallest_p } => format!(
            "there are too few runs to show a difference (the smallest possible p is {smallest_p:.4})"
        ),
        Undecided::NoInterval => "too few problems changed for an interval".to_string(),
        Undecided::Wide { low, high } => format!(
            "the interval {:+.1} to {:+.1} points neither excludes {margin} points nor lies beyond",
            100.0 * low,
            100.0 * high
        ),
        Undecided::NotCompared(why) => words::why(why),
    }
}
