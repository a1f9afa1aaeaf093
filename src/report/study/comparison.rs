//! The comparison tables: each arm's score with its three intervals and every seed, its
//! difference to the row that it is compared with, and what the paper has in its place.

use crate::experiment::Data;
use crate::report::study::context::{self, Unit};
use crate::report::study::page::{Block, Column, Section, Table};
use crate::report::study::{published, scores};
use crate::report::{Context, Look, TableCell, text};
use crate::statistics::estimators;
use crate::study::comparisons::Comparison;
use crate::study::{ArmSummary, GridSummary, TestResult, Word};

/// The grid with a chapter of its own.
pub const FIDELITY: &str = "fidelity";

/// All grids but [`FIDELITY`].
pub fn section(context: &Context) -> Section {
    let mut blocks = vec![
        Block::Text(published::comparability(embedded(context)).to_owned()),
        Block::Text(format!(
            "Three intervals answer three questions. \u{201c}Other training runs\u{201d}: where the mean lies \
             over all runs that one could train from this base (t, {} level, needs two runs). \
             \u{201c}These problems\u{201d}: how far decoding alone moves the score of one checkpoint on these \
             problems. \u{201c}Other problems\u{201d}: how far another draw of problems moves the score of one \
             checkpoint. The last two are of a typical single run (mean standard error of the runs) \
             around the mean of the runs. Scores and differences are in percentage points.",
            context.level()
        )),
    ];
    for grid in context.analysis.grids.iter().filter(|grid| grid.name != FIDELITY) {
        blocks.extend(grid_blocks(context, grid));
    }
    if blocks.len() == 2 {
        blocks.push(Block::Text("The study has no grid to compare arms in.".to_owned()));
    }
    Section { id: "comparison".into(), title: "Comparison of the arms".into(), blocks }
}

/// The grid of decisions that the paper leaves open.
pub fn fidelity(context: &Context) -> Section {
    let grid = context.analysis.grids.iter().find(|grid| grid.name == FIDELITY);
    let blocks = match grid {
        Some(grid) => {
            let mut blocks = vec![Block::Text(
                "The paper leaves decisions open, and implementations disagree on them. Each arm \
                 here is DAPO with one of them taken otherwise. \u{201c}Inconclusive\u{201d} does not mean that a \
                 decision does not matter; \u{201c}equivalent\u{201d} would."
                    .to_owned(),
            )];
            blocks.extend(grid_blocks(context, grid));
            blocks
        }
        None => vec![Block::Text(
            "The grid `fidelity` is not in this study: nothing is known here of the decisions that \
             the paper leaves open."
                .to_owned(),
        )],
    };
    Section { id: "fidelity".into(), title: "Decisions that the paper leaves open".into(), blocks }
}

/// Whether every arm trains on the embedded benchmark.
pub fn embedded(context: &Context) -> bool {
    let mut arms = context.study.grids.iter().flat_map(|grid| &grid.arms);
    arms.all(|arm| matches!(arm.experiment.inputs.data, Data::MiniAime { .. }))
}

fn grid_blocks(context: &Context, grid: &GridSummary) -> Vec<Block> {
    let name = text::visible(&grid.name);
    let mut blocks = vec![
        Block::Heading(format!("{name}: {}", text::visible(&grid.question))),
        Block::Table(table(context, grid)),
        Block::Figure(scores::scores(context, grid)),
    ];
    match grid.differences.is_empty() {
        true => blocks.push(Block::Text(format!("No arm of {name} is compared with another."))),
        false => {
            blocks.push(Block::Folded(comparisons(
                context,
                format!("{name}: each row against the row that it is compared with, in full"),
                &grid.differences,
            )));
        }
    }
    blocks.push(Block::Folded(scores::details(context, grid)));
    blocks
}

/// The difference of an arm to the row that it is compared with.
fn difference_of<'a>(grid: &'a GridSummary, arm: &ArmSummary) -> Option<&'a Comparison> {
    grid.differences.iter().find(|comparison| {
        comparison.declared.arm == arm.id
            && Some(&comparison.declared.reference) == arm.compared_with.as_ref()
    })
}

/// How many runs an arm has, with what is missing of them and where they show no difference to the
/// row that the arm is compared with.
fn runs(arm: &ArmSummary, comparison: Option<&Comparison>) -> String {
    let mut words = arm.seeds.len().to_string();
    for (count, word) in
        [(arm.saturated, "saturated"), (arm.diverged, "diverged"), (arm.failed, "failed")]
    {
        if count > 0 {
            words += &format!(", {count} {word}");
        }
    }
    if !arm.missing_seeds.is_empty() {
        words += &format!(", {} missing", arm.missing_seeds.len());
    }
    if let Some(same) = comparison.and_then(same_outcomes) {
        words += &format!("; {same}");
    }
    words
}

fn table(context: &Context, grid: &GridSummary) -> Table {
    let level = context.level();
    let shows_paper = grid.arms.iter().any(|arm| arm.paper.is_some());
    let mut columns = vec![
        Column::text("arm"),
        Column::text("runs"),
        Column::number("mean, %"),
        Column::number(format!("{level}, other runs")),
        Column::number(format!("{level}, these problems")),
        Column::number(format!("{level}, other problems")),
        Column::number("difference"),
        Column::number(format!("{level} of it")),
        Column::text("verdict"),
    ];
    if shows_paper {
        columns.push(Column::number("paper"));
        columns.push(Column::number("step"));
        columns.push(Column::number("re-run"));
    }
    let rows = grid.arms.iter().map(|arm| {
        let mut row = arm_row(context, grid, arm);
        if shows_paper {
            row.extend(paper_cells(arm));
        }
        row
    });
    let mut caption = format!(
        "{}: {}. Differences are to the row named by the arm\u{2019}s label or, in a ladder, to the row above.",
        text::visible(&grid.name),
        context.score_name()
    );
    if shows_paper {
        caption += " Paper and step: Table 1 (AIME 2024, 32 B), re-run: the authors\u{2019} own; another task and \
                    model, so compare signs, not sizes.";
    }
    let compared = || grid.differences.iter().filter(|it| it.word != Word::NotCompared);
    if compared().count() > 0 && compared().all(|comparison| !comparison.registered) {
        caption += " Every verdict in it is exploratory.";
    }
    Table { caption, columns, rows: rows.collect() }
}

fn arm_row(context: &Context, grid: &GridSummary, arm: &ArmSummary) -> Vec<TableCell> {
    let label = TableCell::plain(text::visible(&arm.label));
    let Some(score) = &arm.score else {
        let why = match arm.failed {
            0 => "no run",
            _ => "every run failed",
        };
        let mut row = vec![label, TableCell::plain(runs(arm, None)), TableCell::missing(why)];
        row.extend((0..6).map(|_| TableCell::missing("–")));
        return row;
    };
    let around = |half_width: Option<f64>| match half_width {
        Some(half) => {
            let (low, high) = ((score.mean - half).max(0.0), (score.mean + half).min(1.0));
            TableCell::value(text::interval(low, high), [low, high])
        }
        None => TableCell::missing("–"),
    };
    let problems = problems(context, arm);
    let mut row = vec![
        label,
        TableCell::plain(runs(arm, difference_of(grid, arm))),
        TableCell::value(text::points(score.mean), [score.mean]).looking(Look::Strong),
        context::interval_cell(Unit::Share, score.interval.as_ref(), "none below 5 runs"),
        around(arm.decoding_standard_error.map(estimators::half_width_fixed_problems)),
        around(
            arm.problems_standard_error
                .zip(problems)
                .map(|(error, problems)| estimators::half_width_new_problems(error, problems)),
        ),
    ];
    match difference_of(grid, arm) {
        Some(comparison) => row.extend(difference_cells(comparison)),
        None => row.extend([
            TableCell::missing("–"),
            TableCell::missing("–"),
            TableCell::missing("not compared with a row"),
        ]),
    }
    row
}

/// Problems of the primary set in an arm's runs.
fn problems(context: &Context, arm: &ArmSummary) -> Option<u64> {
    let set = &context.analysis.declaration.primary_set;
    let cells = context.study.cells_of(&arm.id);
    cells.iter().find_map(|cell| cell.problems.get(set)).map(|ids| ids.count)
}

fn difference_cells(comparison: &Comparison) -> [TableCell; 3] {
    let unit = context::unit_of(&comparison.declared.metric);
    match &comparison.result {
        Some(result) => [
            TableCell::value(unit.signed(result.difference), [result.difference])
                .looking(Look::Strong),
            context::interval_cell(unit, result.interval.as_ref(), "–"),
            word(comparison),
        ],
        None => {
            let (arm, reference) = comparison.means();
            let difference = arm.zip(reference).map(|(arm, reference)| arm - reference);
            let shown = difference.map_or(TableCell::missing("–"), |difference| {
                TableCell::value(unit.signed(difference), [difference])
            });
            [shown, TableCell::missing("–"), word(comparison)]
        }
    }
}

/// Seeds in which two arms have the same outcomes, in words; `None` without any.
fn same_outcomes(comparison: &Comparison) -> Option<String> {
    let Comparison { identical_seeds, common_seeds, .. } = comparison;
    let same = identical_seeds.len();
    (same > 0).then(|| {
        format!("every outcome of the two arms is the same in {same} of {common_seeds} seeds")
    })
}

/// The true differences that so many runs could have found: from the registered σ and from the
/// observed one.
fn detectable(context: &Context, result: &TestResult) -> TableCell {
    let pilot = context.analysis.declaration.pilot.as_ref().map(|pilot| pilot.sigma);
    let pairs = [
        (result.minimum_detectable_effect, pilot),
        (result.observed_detectable_effect, result.observed_sigma),
    ];
    if pairs.iter().all(|(effect, _)| effect.is_none()) {
        return TableCell::missing("–");
    }
    let shown = pairs.map(|(effect, sigma)| match (effect, sigma) {
        (Some(effect), Some(sigma)) => {
            format!("{} (σ {})", Unit::Share.show(effect), text::standard_error(sigma))
        }
        _ => "–".to_owned(),
    });
    let values = pairs.iter().flat_map(|(effect, sigma)| effect.iter().chain(sigma));
    TableCell::value(shown.join("; "), values.copied().collect::<Vec<f64>>())
}

/// The verdict's word.
pub fn word(comparison: &Comparison) -> TableCell {
    let look = match comparison.word {
        Word::Improves | Word::Higher => Look::Good,
        Word::Hurts | Word::Lower => Look::Bad,
        Word::Inconclusive | Word::Equivalent => Look::Open,
        Word::NotCompared => Look::Quiet,
    };
    TableCell::plain(comparison.word.words()).looking(look)
}

fn paper_cells(arm: &ArmSummary) -> [TableCell; 3] {
    let published = arm.paper.as_ref().and_then(published::beside);
    let Some(published) = published else {
        return ["–", "–", "–"].map(TableCell::missing);
    };
    let cell = |value: Option<f64>, sign: &str| match value {
        Some(value) => TableCell::value(format!("{sign}{}", text::number(value)), [value]),
        None => TableCell::missing("–"),
    };
    [cell(Some(published.value), ""), cell(published.step, "+"), cell(published.rerun, "")]
}

/// Comparisons with everything that decided them.
pub fn comparisons(context: &Context, caption: String, list: &[Comparison]) -> Table {
    let columns = vec![
        Column::text("comparison"),
        Column::text("metric"),
        Column::number("runs"),
        Column::number("means"),
        Column::number("difference"),
        Column::number(context.level()),
        Column::number("share of pairs of runs with the arm above"),
        Column::number("p; after Holm; smallest"),
        Column::number("could have found, with the registered σ; with the observed σ"),
        Column::text("verdict"),
        Column::text("why"),
    ];
    let rows = list.iter().map(|comparison| comparison_row(context, comparison)).collect();
    Table { caption, columns, rows }
}

fn comparison_row(context: &Context, comparison: &Comparison) -> Vec<TableCell> {
    let declared = &comparison.declared;
    let unit = context::unit_of(&declared.metric);
    let missing = || TableCell::missing("–");
    let (arm, reference) = comparison.means();
    let mean = |value: Option<f64>| value.map_or("–".to_owned(), |value| unit.show(value));
    let means: Vec<f64> = [arm, reference].into_iter().flatten().collect();
    let mut why = text::visible(&comparison.reason);
    if !comparison.without_value.is_empty() {
        let without: Vec<String> =
            comparison.without_value.iter().map(|reason| text::visible(reason)).collect();
        why += &format!("; without a value: {}", without.join("; "));
    }
    if let Some(same) = same_outcomes(comparison) {
        why += &format!("; {same}");
    }
    if let Some(medians) = comparison.result.as_ref().and_then(|result| result.medians) {
        let median = |time: Option<f64>| time.map_or("not reached".to_owned(), text::number);
        why += &format!("; medians {} and {}", median(medians.0), median(medians.1));
    }
    let mut verdict = word(comparison);
    if !comparison.registered && comparison.word != Word::NotCompared {
        verdict.text += " (exploratory)";
    }
    let result = comparison.result.as_ref();
    let number = |value: Option<f64>, show: &dyn Fn(f64) -> String| match value {
        Some(value) => TableCell::value(show(value), [value]),
        None => missing(),
    };
    vec![
        TableCell::plain(format!(
            "{} against {}",
            context.label(&declared.arm),
            context.label(&declared.reference)
        )),
        TableCell::plain(text::visible(&comparison.metric_words)),
        TableCell::plain(format!("{} and {}", comparison.arm.len(), comparison.reference.len())),
        TableCell::value(format!("{} and {}", mean(arm), mean(reference)), means),
        number(result.map(|result| result.difference), &|value| unit.signed(value)),
        context::interval_cell(unit, result.and_then(|result| result.interval.as_ref()), "–"),
        number(result.and_then(|result| result.probability_higher), &text::percent),
        result.map_or_else(missing, |result| {
            let p = [result.p, result.adjusted_p, result.smallest_p];
            TableCell::value(p.map(context::p_value).join("; "), p)
        }),
        result.map_or_else(missing, |result| detectable(context, result)),
        verdict,
        TableCell::plain(why),
    ]
}
