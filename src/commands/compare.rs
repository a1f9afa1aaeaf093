//! `dapo compare`: two sides from outcomes alone.

use crate::base::{files, program};
use crate::commands::exit::{bail_invalid, bail_usage};
use crate::commands::flags::wide::WideArg;
use crate::commands::terminal::gate_file::{GateCheck, GateFile, GateOutcome};
use crate::commands::{exit, output};
use crate::report::compared::{self, picture, picture::Pictures};
use crate::report::page::Section;
use crate::report::text::{self, Unit};
use crate::report::{html, terminal, words};
use crate::statistics::{Interval, accuracy::FEWEST_PROBLEMS, between::FEWEST_RUNS};
use crate::study::collection;
use crate::study::comparison::{self, load, load::ComparisonOptions};
use crate::study::gate::{self, FewRuns, Gate, GateVerdict, Undecided};
use crate::study::tracked::{self, sides};
use crate::study::{Ties, TrackedOptions};
use anyhow::Result;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Compare two methods or checkpoints on the same problems, from tables of (problem, sample,
/// correct).
///
/// A side is a parquet or CSV table or JSON lines with a row for each sampled response (verl's dumps and
/// the samples that lm-eval logs among them), a run folder, or a cell record. A folder of these, or
/// several files, is several training runs of one method. With one run a side the comparison is about
/// these checkpoints; with several the unit is the training run. Every number comes with the question
/// that it answers.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/compare.txt"))]
pub struct CompareArgs {
    /// The side to compare with, then the side to compare.
    #[arg(num_args = 1..=2, value_names = ["A", "B"], conflicts_with_all = ["a", "b"],
        required_unless_present_any = ["a", "curves", "runs"])]
    sides: Vec<PathBuf>,
    /// Compare this arm of a study; name the study's folder as A. The unit is the training run.
    #[arg(long, value_name = "NAME", requires = "against", conflicts_with_all = ["a", "b"])]
    arm: Option<String>,
    /// The arm to compare it with; of --curves, the files to compare them with.
    #[arg(long, num_args = 1.., value_name = "NAME")]
    against: Vec<String>,
    /// Compare runs by their curves: files of other trackers, with --against and --metric.
    #[arg(long, num_args = 1.., value_name = "FILE", requires = "against", conflicts_with_all = ["sides", "a", "arm", "runs"])]
    curves: Vec<String>,
    /// Compare --arm with --against by a table with a row a run: CSV with the columns arm, value and, where runs
    /// have one, seed.
    #[arg(long, value_name = "TABLE", requires = "arm", conflicts_with_all = ["sides", "a"])]
    runs: Option<String>,
    #[command(flatten)]
    tracked: TrackedOptions,
    /// Exit with 4 when the arm, or B, is shown to be worse, or to differ; exit with 6 when there are too
    /// few runs, samples or problems to show it.
    #[arg(long, value_enum)]
    fail_if: Option<FailIf>,
    /// With --fail-if: a difference of at most this size does not count: in percent points, but of --curves and --runs in
    /// the unit of the metric (2 points of a share are 0.02). Exit with 0 when the
    /// interval, or two one-sided tests of --curves, --runs or arms, exclude a larger one, with 4 when a larger one is shown, else with 6.
    #[arg(long, value_name = "POINTS|UNITS", requires = "fail_if")]
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
    /// Confidence level of the intervals. Default: 0.95, or what a study declares.
    #[arg(long, value_parser = tracked::share)]
    level: Option<f64>,
    #[command(flatten)]
    gate: GateFile,
    /// One JSON document instead of text.
    #[arg(long)]
    json: bool,
    /// Markdown instead of text.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    #[command(flatten)]
    wide: WideArg,
    /// Also write a page with pictures to this file: the difference with its intervals and, of --curves, the curves.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const LEVEL: f64 = 0.95;

/// What a gate refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FailIf {
    Worse,
    Different,
}

/// Errors: tables that cannot be read or compared.
pub fn run(args: &CompareArgs) -> Result<u8> {
    args.wide.apply();
    args.gate.begin()?;
    let level = args.level.unwrap_or(LEVEL);
    if !(level > 0.5 && level < 1.0) {
        bail_usage!("--level must be between 0.5 and 1, got {level}");
    }
    if args.gate.is_given() && args.fail_if.is_none() {
        bail_usage!(
            "--junit writes what --fail-if decides; add --fail-if worse or --fail-if different"
        );
    }
    if let Some(page) = &args.html {
        if args.gate.is_given_as(page) {
            bail_usage!("--junit and --html name one file, {}: name two", page.display());
        }
        files::may_write(page, "<!DOCTYPE html>")?;
    }
    let is_tracked = !args.curves.is_empty() || args.runs.is_some();
    if !args.margin.is_none_or(|points| points > 0.0 && (is_tracked || points < 100.0)) {
        bail_usage!(
            "--margin must be between 0 and 100 points, or positive with --curves or --runs"
        );
    }
    if args.curves.is_empty() {
        refuse(&of_curves(&args.tracked), "without --curves")?;
    }
    if is_tracked {
        refuse(&of_outcomes(args), "for --curves and --runs, which have no outcomes of problems")?;
        return tracked_runs(args, level);
    }
    let TrackedOptions { lower_is_better, unpaired, same_unit, .. } = args.tracked;
    if lower_is_better || unpaired || same_unit {
        bail_usage!("--lower-is-better, --unpaired and --same-unit are for --curves and --runs");
    }
    if args.arm.is_some() || !args.against.is_empty() {
        let ([study], Some(arm), [against]) = (&args.sides[..], &args.arm, &args.against[..])
        else {
            bail_usage!("--arm and --against take a name each, after one folder, of a study");
        };
        let flags = [&of_outcomes(args)[..], &[("--level", args.level.is_some())]].concat();
        refuse(
            &flags,
            "for arms of a study, which are compared as it declares, else at the last evaluation; name records of \
             STUDY/cells, which `dapo runs cells STUDY` lists, with --a and --b instead",
        )?;
        return arms(args, study, [arm, against]);
    }
    if args.sides.len() == 1 {
        bail_usage!("one side is not enough: name two, or the --arm and --against of a study");
    }
    let [a, b] = match args.sides.as_slice() {
        [a, b] => [std::slice::from_ref(a), std::slice::from_ref(b)],
        _ => [&args.a[..], &args.b[..]],
    };
    a.iter().chain(b).try_for_each(|side| refuse_study(side))?;
    let (a, b) = (load::side(a, &args.options)?, load::side(b, &args.options)?);
    load::check_differ(&a, &b)?;
    if args.options.set.is_some() && a.iter().chain(&b).all(|run| run.set.is_none()) {
        bail_usage!(
            "--evaluation-set is for run folders and records of cells; these are tables, without sets"
        );
    }
    let comparison = comparison::compare(&a, &b, level, args.common_problems)?;
    let sections = compared::sections(&comparison);
    show(args, &comparison, "B against A", &sections, || {
        picture::of_sides(&comparison, args.margin)
    })?;
    exit_code(args, Unit::Share, &sections, |gate| gate.of_sides(&comparison))
}

fn refuse_study(side: &Path) -> Result<()> {
    collection::has_begun(side)?;
    if collection::is_study(side) {
        let (shown, word) = (side.display(), program::path_word(side));
        bail_invalid!(
            "{shown} is a study: compare two of its arms with `dapo compare {word} --arm NAME --against NAME`, or name \
             its records, which `dapo runs cells {word}` lists"
        );
    }
    Ok(())
}

fn of_outcomes(args: &CompareArgs) -> [(&'static str, bool); 7] {
    let ComparisonOptions { columns, set, unequal_samples } = &args.options;
    [
        ("--evaluation-set", set.is_some()),
        ("--common-problems", args.common_problems),
        ("--unequal-samples", *unequal_samples),
        ("--problem-column", columns.problem.is_some()),
        ("--sample-column", columns.sample.is_some()),
        ("--no-sample-column", columns.no_sample),
        ("--correct-column", columns.correct.is_some()),
    ]
}

/// clap's `requires` passes over a flag that conflicts with one that is given.
fn of_curves(options: &TrackedOptions) -> [(&'static str, bool); 4] {
    [
        ("--metric", options.metric.is_some()),
        ("--at", options.at != "steps"),
        ("--window", options.window.is_some()),
        ("--to-level", options.to_level.is_some()),
    ]
}

fn refuse(flags: &[(&str, bool)], of_what: &str) -> Result<()> {
    let given = flags.iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| *flag);
    let given: Vec<&str> = given.collect();
    if !given.is_empty() {
        bail_usage!("{} cannot be used {of_what}", given.join(", "));
    }
    Ok(())
}

fn tracked_runs(args: &CompareArgs, level: f64) -> Result<u8> {
    let options = &args.tracked;
    if let Some(window) = options.window.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
        bail_usage!("--window must be a share of the budget, above 0 and at most 1, got {window}");
    }
    if let Some(level) = options.to_level.filter(|level| !level.is_finite()) {
        bail_usage!("--to-level must be a finite number, got {level}");
    }
    let ((a, of_a, names_a), (b, of_b, names_b)) = match (&args.runs, &args.arm, &args.against[..])
    {
        (Some(table), Some(arm), [against]) => {
            (sides::arm(table, against)?, sides::arm(table, arm)?)
        }
        (Some(_), ..) => bail_usage!("--against takes one arm of the table"),
        _ => (sides::side(&args.against, options)?, sides::side(&args.curves, options)?),
    };
    let comparison = tracked::compare(&a, &b, options, (level, args.margin))?.beside([of_a, of_b]);
    let comparison = comparison.of_names([names_a, names_b]);
    sides::check_differ(&a, &b)?;
    let sections = compared::tracked::sections(&comparison);
    let title = format!("B against A: {}", comparison.metric);
    show(args, &comparison, &title, &sections, || picture::of_tracked(&comparison))?;
    exit_code(args, Unit::Plain, &sections, |gate| gate.of_tracked(&comparison))
}

fn arms(args: &CompareArgs, folder: &Path, [arm, against]: [&str; 2]) -> Result<u8> {
    let study = collection::load(folder, None)?;
    words::absent_runs(&study).into_iter().for_each(output::tell);
    let compared = gate::arms(&study, folder, [arm, against])?;
    let comparison = &compared.comparison;
    let sections = compared::arms(&compared);
    let title = format!("{arm} (B) against {against} (A)");
    let declared = study.is_declared().then_some(study.declaration.margin);
    let pictures = || picture::of_arms(&compared, args.margin, declared);
    show(args, &compared, &title, &sections, pictures)?;
    if let Some(decides) = compared.decides().filter(|_| args.fail_if.is_some()) {
        output::tell(decides);
    }
    let gate = |gate: Gate| gate.of_arms(&study, comparison);
    exit_code(args, words::unit_of(comparison), &sections, gate)
}

fn show(
    args: &CompareArgs,
    comparison: &impl Serialize,
    title: &str,
    sections: &[Section],
    pictures: impl FnOnce() -> Pictures,
) -> Result<()> {
    output::sections((args.json, args.markdown), comparison, sections);
    let Some(path) = &args.html else { return Ok(()) };
    let page = picture::page(title, sections.to_vec(), pictures());
    files::write_output(path, html::render(&page).as_bytes())?;
    Ok(())
}

fn exit_code(
    args: &CompareArgs,
    unit: Unit,
    sections: &[Section],
    verdict: impl FnOnce(Gate) -> GateVerdict,
) -> Result<u8> {
    let Some(fail_if) = args.fail_if else { return Ok(exit::SUCCESS) };
    let scale = if unit == Unit::Share { 0.01 } else { 1.0 };
    let margin = args.margin.map(|margin| scale * margin);
    let verdict = verdict(Gate { either_way: fail_if == FailIf::Different, margin });
    let (name, what) = match fail_if {
        FailIf::Worse => ("B is not worse than A", "worse"),
        FailIf::Different => ("B is neither worse nor better than A", "worse or better"),
    };
    let (outcome, code, line) = match &verdict {
        GateVerdict::Passed => {
            let beyond = margin.map(|margin| format!(" by {} or more", unit.sized(margin)));
            let beyond = beyond.unwrap_or_default();
            let line = format!("passed: it is not shown that B is {what} than A{beyond}");
            (GateOutcome::Passed, exit::SUCCESS, line)
        }
        GateVerdict::Equivalent => {
            let margin = unit.sized(margin.unwrap_or(0.0));
            let line =
                format!("passed: B − A lies within a margin of {margin} (two one-sided tests)");
            (GateOutcome::Passed, exit::SUCCESS, line)
        }
        GateVerdict::Refused(Interval { low, high, .. }) => {
            let word = if *high < 0.0 { "worse" } else { "better" };
            let (least, most) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
            let (least, most) = (unit.show(least), unit.sized(most));
            let line = format!("failed: B is {word} than A, by {least} to {most}");
            (GateOutcome::Failed, exit::MISMATCH, line)
        }
        GateVerdict::RefusedTimes { is_worse, medians_b_a: (b, a), p } => {
            let word = if *is_worse { "worse" } else { "better" };
            let [a, b] = [a, b].map(|it| it.map_or("never".to_string(), text::number));
            let p = text::p_value(*p);
            let line = format!(
                "failed: B is {word} than A: median time to the level {b}, of A {a}; p {p}"
            );
            (GateOutcome::Failed, exit::MISMATCH, line)
        }
        GateVerdict::Undecided(why) => {
            let reason = reason(why, unit, margin.unwrap_or(0.0));
            let line = format!("nothing can be decided: {reason}");
            (GateOutcome::Undecided, exit::INCONCLUSIVE, line)
        }
    };
    let names = match (&args.arm, &args.against[..]) {
        (Some(arm), [against]) => format!(" (A: {against}, B: {arm})"),
        _ => String::new(),
    };
    let line = format!("--fail-if: {line}{names}");
    output::tell(&line);
    let text = format!("{line}\n{}", terminal::render(sections, None));
    args.gate
        .publish("dapo compare", &[GateCheck { name: format!("{name}{names}"), outcome, text }])?;
    Ok(code)
}

fn reason(undecided: &Undecided, unit: Unit, margin: f64) -> String {
    match undecided {
        Undecided::FewProblems { problems } => format!(
            "{problems} problems are too few to say something of others; at least {FEWEST_PROBLEMS} are needed"
        ),
        Undecided::FewRuns(FewRuns { smallest_p, family_size, ties }) => {
            let runs = match ties {
                None => "runs".to_string(),
                Some(Ties { tied, blocks }) => {
                    format!("blocks that differ at all ({} of {blocks})", blocks - tied)
                }
            };
            let family = if *family_size > 1 {
                format!(" in a family of {family_size} comparisons")
            } else {
                String::new()
            };
            format!(
                "there are too few {runs} to show a difference (the smallest possible p is {smallest_p:.4}{family})"
            )
        }
        Undecided::NoIntervalOfRuns { pairs: Some(pairs), others } => {
            let other = if *others { "; --unpaired compares all runs" } else { "" };
            format!("with {} there is no interval{other}", text::counted(*pairs, "pair", "pairs"))
        }
        Undecided::NoIntervalOfRuns { pairs: None, .. } => {
            format!("with fewer than {FEWEST_RUNS} runs a side there is no interval")
        }
        Undecided::NoInterval => "too few problems changed for an interval".to_string(),
        Undecided::EqualProblems => {
            "all problems changed by the same amount, which shows no spread".to_string()
        }
        Undecided::EqualRuns => "all runs have the same value, which shows no spread".to_string(),
        Undecided::Wide { low, high } => {
            let place = if *high < -margin || *low > margin {
                "is beyond the margin of {}, and the test shows nothing"
            } else {
                "has differences on both sides of the margin of {}"
            };
            let place = place.replace("{}", &unit.sized(margin));
            format!("the interval {} to {} {place}", unit.signed(*low), unit.signed(*high))
        }
        Undecided::NotCompared(why) => words::why(why),
        Undecided::OtherUnits => compared::tracked::OTHER_UNITS.to_string(),
        Undecided::LevelMissed => "no run reaches the level of --to-level".to_string(),
        Undecided::NotFinite => {
            "the difference or its interval is not finite: give the values in a smaller unit"
                .to_string()
        }
    }
}
