//! The comparison tables: each arm's score with its three intervals and every seed, its
//! difference to the row that it is compared with, and what the paper has in its place.

use crate::experiment::Data;
use crate::report::page::{Block, Look, Section, Table, TableCell, row};
use crate::report::study::context::{self, Unit};
use crate::report::{Context, published, study::scores, text};
use crate::statistics::estimators;
use crate::study::{ArmSummary, GridSummary, TestResult, Word, comparisons::Comparison};

/// The grid with a chapter of its own.
pub const FIDELITY: &str = "fidelity";

/// All grids but [`FIDELITY`].
pub fn section(context: &Context) -> Section {
    let mut blocks = vec![
        Block::text(published::comparability(embedded(context))),
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
        blocks.push(Block::text("The study has no grid to compare arms in."));
    }
    Section::new("comparison", "Comparison of the arms", blocks)
}

/// The grid of decisions that the paper leaves open.
pub fn fidelity(context: &Context) -> Section {
    let grid = context.analysis.grids.iter().find(|grid| grid.name == FIDELITY);
    let mut blocks = vec![Block::text(match grid {
        Some(_) => {
            "The paper leaves decisions open, and implementations disagree on them. Each arm \
             here is DAPO with one of them taken otherwise. \u{201c}Inconclusive\u{201d} does not mean that a \
             decision does not matter; \u{201c}equivalent\u{201d} would."
        }
        None => {
            "The grid `fidelity` is not in this study: nothing is known here of the decisions that \
             the paper leaves open."
        }
    })];
    blocks.extend(grid.into_iter().flat_map(|grid| grid_blocks(context, grid)));
    Section::new("fidelity", "Decisions that the paper leaves open", blocks)
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
    let mut columns = format!(
        "arm | runs | mean, % # | {level}, other runs # | {level}, these problems # | \
         {level}, other problems # | difference # | {level} of it # | verdict"
    );
    let mut caption = format!(
        "{}: {}. Differences are to the row named by the arm\u{2019}s label or, in a ladder, to the row above.",
        text::visible(&grid.name),
        context.score_name()
    );
    if shows_paper {
        columns += "| paper # | step # | re-run #";
        caption += " Paper and step: Table 1 (AIME 2024, 32 B), re-run: the authors\u{2019} own; another task and \
                    model, so compare signs, not sizes.";
    }
    let mut compared = grid.differences.iter().filter(|it| it.word != Word::NotCompared).peekable();
    if compared.peek().is_some() && compared.all(|comparison| !comparison.registered) {
        caption += " Every verdict in it is exploratory.";
    }
    let rows = grid.arms.iter().map(|arm| {
        let paper = shows_paper.then(|| paper_cells(arm));
        arm_row(context, grid, arm).into_iter().chain(paper.into_iter().flatten()).collect()
    });
    Table::new(caption, &columns, rows)
}

fn arm_row(context: &Context, grid: &GridSummary, arm: &ArmSummary) -> Vec<TableCell> {
    let label = text::visible(&arm.label);
    let Some(score) = &arm.score else {
        let why = if arm.failed == 0 { "no run" } else { "every run failed" };
        let mut row = row![label, runs(arm, None), TableCell::missing(why)];
        row.resize(9, TableCell::missing("–"));
        return row;
    };
    let around = |half_width: Option<f64>| {
        let ends = |half: f64| ((score.mean - half).max(0.0), (score.mean + half).min(1.0));
        half_width.map(ends).map_or(TableCell::missing("–"), |(low, high)| {
            TableCell::value(text::interval(low, high), [low, high])
        })
    };
    let of_problems = arm.problems_standard_error.zip(problems(context, arm));
    let difference = difference_of(grid, arm);
    let mut row = row![
        label,
        runs(arm, difference),
        TableCell::shown(Some(score.mean), text::points).looking(Look::Strong),
        context::interval_cell(Unit::Share, score.interval.as_ref(), "none below 5 runs"),
        around(arm.decoding_standard_error.map(estimators::half_width_fixed_problems)),
        around(of_problems.map(|(error, count)| estimators::half_width_new_problems(error, count)))
    ];
    row.extend(difference.map_or_else(
        || ["–", "–", "not compared with a row"].map(TableCell::missing),
        difference_cells,
    ));
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
    let signed = |difference: Option<f64>| TableCell::shown(difference, |it| unit.signed(it));
    match &comparison.result {
        Some(result) => [
            signed(Some(result.difference)).looking(Look::Strong),
            context::interval_cell(unit, result.interval.as_ref(), "–"),
            word(comparison),
        ],
        None => {
            let (arm, reference) = comparison.means();
            let difference = arm.zip(reference).map(|(arm, reference)| arm - reference);
            [signed(difference), TableCell::missing("–"), word(comparison)]
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
    look.of(comparison.word.words())
}

fn paper_cells(arm: &ArmSummary) -> [TableCell; 3] {
    let published = arm.paper.as_ref().and_then(published::beside);
    let (value, step, rerun) =
        published.map_or((None, None, None), |it| (Some(it.value), it.step, it.rerun));
    [
        TableCell::shown(value, text::number),
        TableCell::shown(step, |step| format!("+{}", text::number(step))),
        TableCell::shown(rerun, text::number),
    ]
}

/// Comparisons with everything that decided them.
pub fn comparisons(context: &Context, caption: String, list: &[Comparison]) -> Table {
    let columns = format!(
        "comparison | metric | runs # | means # | difference # | {} # | \
         share of pairs of runs with the arm above # | p; after Holm; smallest # | \
         could have found, with the registered σ; with the observed σ # | verdict | why",
        context.level()
    );
    Table::new(caption, &columns, list.iter().map(|comparison| comparison_row(context, comparison)))
}

fn comparison_row(context: &Context, comparison: &Comparison) -> Vec<TableCell> {
    let declared = &comparison.declared;
    let unit = context::unit_of(&declared.metric);
    let (arm, reference) = comparison.means();
    let mean = |value: Option<f64>| value.map_or("–".to_owned(), |value| unit.show(value));
    let means: Vec<f64> = [arm, reference].into_iter().flatten().collect();
    let mut why = text::visible(&comparison.reason);
    if !comparison.without_value.is_empty() {
        let without = comparison.without_value.iter().map(|reason| text::visible(reason));
        why += &format!("; without a value: {}", text::joined(without, "; "));
    }
    if let Some(same) = same_outcomes(comparison) {
        why += &format!("; {same}");
    }
    let result = comparison.result.as_ref();
    if let Some(medians) = result.and_then(|result| result.medians) {
        let median = |time: Option<f64>| time.map_or("not reached".to_owned(), text::number);
        why += &format!("; medians {} and {}", median(medians.0), median(medians.1));
    }
    let mut verdict = word(comparison);
    if !comparison.registered && comparison.word != Word::NotCompared {
        verdict.text += " (exploratory)";
    }
    let missing = || TableCell::missing("–");
    row![
        context.pair(&declared.arm, &declared.reference),
        text::visible(&comparison.metric_words),
        format!("{} and {}", comparison.arm.len(), comparison.reference.len()),
        TableCell::value(format!("{} and {}", mean(arm), mean(reference)), means),
        TableCell::shown(result.map(|it| it.difference), |difference| unit.signed(difference)),
        context::interval_cell(unit, result.and_then(|it| it.interval.as_ref()), "–"),
        TableCell::shown(result.and_then(|it| it.probability_higher), text::percent),
        result.map_or_else(missing, |result| {
            let p = [result.p, result.adjusted_p, result.smallest_p];
            TableCell::value(p.map(context::p_value).join("; "), p)
        }),
        result.map_or_else(missing, |result| detectable(context, result)),
        verdict,
        why
    ]
}
