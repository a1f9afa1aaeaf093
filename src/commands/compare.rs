//! `dapo compare`: two sides from outcomes alone.

use crate::base::visible;
use crate::commands::{exit, output};
use crate::records::ColumnNames;
use crate::report::{compared, markdown, terminal, words};
use crate::statistics::{Interval, accuracy::FEWEST_PROBLEMS};
use crate::study::comparison::{self, load};
use crate::study::{
    At, Declared, DeclaredFamily, Direction, Metric, Statistic, Word, analysis, collection,
    comparisons, comparisons::Comparison,
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
  6  with --fail-if: nothing could be shown, or the sides cannot be compared")]
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
    /// Exit with 4 when the arm, or B, is shown to be worse, or to differ; with 6 when so few runs,
    /// samples or problems could not have shown it.
    #[arg(long, value_enum)]
    fail_if: Option<FailIf>,
    /// With --fail-if: percent points that count as no difference. Exit with 0 only when a larger one
    /// is excluded by the interval, with 4 when it is shown, else with 6.
    #[arg(long, value_name = "POINTS", requires = "fail_if")]
    margin: Option<f64>,
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

/// Gates on tables use it, because tables declare none.
const ALPHA: f64 = 0.05;

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
        return Err(exit::Usage("--margin is not between 0 and 100 points".to_string()).into());
    }
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
    output::document(args.json, &comparison, || {
        let sections = compared::sections(&comparison);
        if args.markdown { markdown::sections(&sections) } else { terminal::render(&sections) }
    });
    // Several runs: the run is the unit. One run: problems are another draw.
    let shown = match &comparison.between_runs {
        Some(runs) => {
            let test = &runs.permutation;
            ShownDifference::of_runs(runs.welch.interval, test.p, test.smallest_p, ALPHA)
        }
        None => {
            let (paired, few) = (&comparison.paired, FEWEST_PROBLEMS);
            let problems = comparison.changes.len();
            let powerless = (problems < few)
                .then(|| format!("{problems} problems show nothing of others; it takes {few}"));
            let interval = paired.uncertainties[1].interval;
            ShownDifference { interval, p: paired.sign_flip.p, alpha: ALPHA, powerless }
        }
    };
    Ok(gate(args, &shown))
}

/// B − A, or arm − reference, as a share.
struct ShownDifference {
    interval: Option<Interval>,
    p: f64,
    alpha: f64,
    /// Why no difference could have been shown.
    powerless: Option<String>,
}

impl ShownDifference {
    /// Over training runs.
    fn of_runs(interval: Option<Interval>, p: f64, smallest_p: f64, alpha: f64) -> Self {
        let powerless = (interval.is_none() || smallest_p > alpha).then(|| {
            format!(
                "so few runs (the smallest possible p is {smallest_p:.4}) can show no difference"
            )
        });
        Self { interval, p, alpha, powerless }
    }
}

/// Applies `--fail-if` and `--margin`; prints a sentence where nothing could be shown.
fn gate(args: &CompareArgs, shown: &ShownDifference) -> ExitCode {
    let Some(fail_if) = args.fail_if else { return ExitCode::SUCCESS };
    let open = |reason: &str| {
        output::tell(format!("--fail-if: nothing can be decided: {reason}"));
        ExitCode::from(exit::INCONCLUSIVE)
    };
    if let Some(reason) = &shown.powerless {
        return open(reason);
    }
    let Some(Interval { low, high, .. }) = shown.interval else {
        return match args.margin {
            Some(_) => open("too little changed for an interval"),
            None => ExitCode::SUCCESS,
        };
    };
    let (either, margin) = (fail_if == FailIf::Different, args.margin.unwrap_or(0.0) / 100.0);
    let beyond = high < -margin || either && low > margin;
    let within = low > -margin && (!either || high < margin);
    match args.margin {
        _ if beyond && shown.p <= shown.alpha => ExitCode::from(exit::MISMATCH),
        Some(points) if !within => open(&format!(
            "the interval {:+.1} to {:+.1} points neither excludes {points} points nor lies beyond",
            100.0 * low,
            100.0 * high
        )),
        _ => ExitCode::SUCCESS,
    }
}

/// Uses the declared metric, else the primary set where the runs ended.
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
    let (arm, reference) = (id(names[0])?, id(names[1])?);
    let last = Metric::Evaluation {
        set: study.declaration.primary_set.clone(),
        at: At::Last,
        statistic: Statistic::AvgAtK,
    };
    let families = comparisons::families(&study);
    let all = || families.iter().flat_map(|family| &family.comparisons).map(|it| &it.declared);
    let own = all().find(|it| it.metric.is_score() && it.arm == arm && it.reference == reference);
    let endpoint =
        own.or_else(|| all().find(|it| it.metric.is_score())).map(|it| it.metric.clone());
    let metric = endpoint.filter(|_| study.declaration.registered).unwrap_or_else(|| last.clone());
    let beside = (metric != last).then(|| last.clone());
    let direction = Direction::Higher;
    let declared = Declared { id: "compare".to_string(), arm, reference, metric, direction };
    let registered = analysis::find(&families, &declared).cloned();
    let family = DeclaredFamily {
        id: "compare".to_string(),
        question: study.declaration.question.clone(),
        after: Vec::new(),
        comparisons: vec![declared],
    };
    let of =
        |family: &DeclaredFamily| comparisons::family(&study, family, false).comparisons.remove(0);
    let comparison = registered.unwrap_or_else(|| of(&family));
    let beside = beside.map(|metric| {
        let mut family = family.clone();
        family.comparisons[0].metric = metric;
        of(&family)
    });
    output::document(args.json, &comparison, || {
        let Comparison { declared, word, why, .. } = &comparison;
        let text = format!(
            "{} against {}, {}: {}\n  {}\n  {}",
            declared.arm,
            declared.reference,
            declared.metric.words(),
            word.words(),
            words::comparison(&comparison),
            words::why(why)
        );
        let beside = beside.as_ref().map_or(String::new(), |it| {
            let metric = it.declared.metric.words();
            format!("\nnot the declared endpoint: {metric}\n  {}", words::comparison(it))
        });
        visible::message(&(text + &beside)) + "\n"
    });
    if args.fail_if.is_none() {
        return Ok(ExitCode::SUCCESS);
    }
    match &comparison.result {
        Some(result) if comparison.word != Word::NotCompared && !comparison.is_closed => Ok(gate(
            args,
            &ShownDifference::of_runs(
                result.interval,
                result.adjusted_p,
                result.smallest_p,
                study.declaration.alpha,
            ),
        )),
        _ => {
            output::tell(format!(
                "--fail-if: nothing can be decided: {}",
                words::why(&comparison.why)
            ));
            Ok(ExitCode::from(exit::INCONCLUSIVE))
        }
    }
}
