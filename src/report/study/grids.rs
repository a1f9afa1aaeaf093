//! A section for each grid: scores, differences and learning curves of its arms.

use crate::report::page::{
    Block, CurveLine, Curves, Figure, Look, Panel, PanelSize, Section, Table, TableCell, row,
};
use crate::report::study::{comparison, context, courses, scores};
use crate::report::text::{self, Unit};
use crate::report::{Context, published};
use crate::study::comparisons::Comparison;
use crate::study::{ArmSummary, Clock, GridSummary, Metric, Word};

pub fn sections<'a>(context: &'a Context) -> impl Iterator<Item = Section> + use<'a> {
    context.analysis.grids.iter().map(|grid| {
        let anchor = scores::anchor(&grid.name);
        let blocks = vec![
            Block::Table(table(context, grid)),
            Block::Figure(multiples(context, grid, &anchor)),
        ];
        let name = text::visible(&grid.name);
        let title = format!("{name}: {}", text::visible(&grid.question));
        Section { name, ..Section::new(&format!("grid-{anchor}"), &title, blocks) }
    })
}

/// Without those of the paper.
const COLUMNS: usize = 10;

fn greedy(context: &Context, grid: &GridSummary) -> String {
    let temperature = |arm: &ArmSummary| {
        let set = &context.analysis.declaration.primary_set;
        Some(context.study.arm(&arm.id)?.experiment.sampling_of(set).temperature)
    };
    if grid.arms.iter().all(|arm| temperature(arm) == Some(0.0)) {
        return " Evaluations are greedy.".to_owned();
    }
    match grid.arms.iter().find_map(|arm| arm.greedy.as_ref()) {
        Some(greedy) => format!(
            " Greedy: one response to each problem at temperature 0 (set {}), mean over runs.",
            text::visible(&greedy.set)
        ),
        None => " Greedy accuracy is not recorded.".to_owned(),
    }
}

fn difference_of<'a>(grid: &'a GridSummary, arm: &ArmSummary) -> Option<&'a Comparison> {
    grid.differences.iter().find(|comparison| {
        comparison.declared.arm == arm.id
            && Some(&comparison.declared.reference) == arm.compared_with.as_ref()
    })
}

/// Names missing runs, and seeds where the arm did not act.
fn runs(arm: &ArmSummary, comparison: Option<&Comparison>) -> String {
    let mut words = arm.seeds.len().to_string();
    for (count, word) in [
        (arm.saturated, "saturated"),
        (arm.stalled, "stalled"),
        (arm.diverged, "diverged"),
        (arm.failed, "failed"),
        (arm.missing_seeds.len() as u64, "missing"),
    ] {
        if count > 0 {
            words += &format!(", {count} {word}");
        }
    }
    if let Some(same) = comparison.and_then(comparison::same_outcomes) {
        words += &format!("; {same}");
    }
    words
}

fn table(context: &Context, grid: &GridSummary) -> Table {
    let level = context.level();
    let shows_paper = grid.arms.iter().any(|arm| arm.paper.is_some());
    let mut columns = format!(
        "arm | runs | mean, % # | {level} # | pass@k, % # | against | difference # | {level} # | above # | verdict"
    );
    let mut caption = format!(
        "{}, last evaluation. Each difference is to the arm in the column \u{201c}against\u{201d}.",
        context.score_name()
    );
    if shows_paper {
        columns += "| paper # | step # | re-run #";
        caption += " Paper: Table 1 (AIME 2024, 32 B), the authors\u{2019} re-run.";
    }
    let mut compared = grid.differences.iter().filter(|it| it.word != Word::NotCompared).peekable();
    if compared.peek().is_some() && compared.all(|comparison| !comparison.registered) {
        caption += " Every verdict in it is exploratory.";
    }
    if context.analysis.grids.first() == Some(grid) {
        let declared = context.comparisons().next().map(|first| &first.declared.metric);
        if let Some(Metric::EvaluationMean { .. }) = declared {
            caption += " What was declared is another measure: see the first table.";
        }
        caption += &greedy(context, grid);
    }
    for apart in grid.differences.iter().filter_map(|it| context.evaluated_apart(it)) {
        caption += &format!(" {apart}.");
    }
    let shows_greedy = grid.arms.iter().any(|arm| arm.greedy.is_some());
    if shows_greedy {
        columns += "| greedy, % #";
    }
    let rows = grid.arms.iter().map(|arm| {
        let paper = shows_paper.then(|| paper_cells(arm));
        let greedy = arm.greedy.as_ref().map(|greedy| greedy.score.mean);
        let greedy = shows_greedy.then(|| TableCell::shown(greedy, text::points));
        let more = paper.into_iter().flatten().chain(greedy);
        arm_row(grid, arm).into_iter().chain(more).collect()
    });
    Table::new(caption, &columns, rows)
}

fn arm_row(grid: &GridSummary, arm: &ArmSummary) -> Vec<TableCell> {
    let label = text::visible(&arm.label);
    let Some(score) = &arm.score else {
        let why = if arm.failed == 0 { "no run" } else { "every run failed" };
        let mut row = row![label, runs(arm, None), Look::Quiet.of(why)];
        row.resize(COLUMNS, TableCell::default());
        return row;
    };
    let difference = difference_of(grid, arm);
    let mut row = row![
        label,
        runs(arm, difference),
        TableCell::shown(Some(score.mean), text::points).looking(Look::Strong),
        context::interval_cell(Unit::Share, score.interval.as_ref(), "none below 5 runs"),
        TableCell::shown(scores::mean_of(arm, &|seed| Some(seed.pass_at_k)), text::points)
    ];
    match difference {
        Some(comparison) => {
            let is_reference = |arm: &&ArmSummary| arm.id == comparison.declared.reference;
            let reference = grid.arms.iter().find(is_reference).map_or("", |arm| &arm.label);
            row.push(TableCell::from(text::visible(reference)));
            row.extend(difference_cells(comparison));
        }
        None => row.resize(COLUMNS, TableCell::default()),
    }
    row
}

fn difference_cells(comparison: &Comparison) -> [TableCell; 4] {
    let [mut difference, interval, above] = comparison::estimate(comparison);
    if let (None, (Some(arm), Some(reference))) = (&comparison.result, comparison.means()) {
        let unit = context::unit_of(&comparison.declared.metric);
        difference = TableCell::from(unit.signed(arm - reference));
    }
    [difference.looking(Look::Strong), interval, above, context::verdict(comparison)]
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

fn multiples(context: &Context, grid: &GridSummary, anchor: &str) -> Figure {
    let ids = grid.arms.iter().map(|arm| arm.id.as_str());
    let lines = courses::mean_scores(context, ids, Clock::Updates);
    let panels = (0..lines.len()).map(|own| Panel::Curves(among_the_others(&lines, own)));
    Figure {
        id: format!("arms-{anchor}"),
        caption: format!(
            "avg@k on {} over updates: mean and {} interval of each arm, the other arms grey.",
            text::visible(&context.analysis.declaration.curve_set),
            context.level()
        ),
        panels: panels.collect(),
        ..Figure::default()
    }
}

fn among_the_others(lines: &[CurveLine], own: usize) -> Curves {
    let others = lines.iter().enumerate().filter(|(index, _)| *index != own);
    // Ghosts keep their bands, so that all panels have the same axes.
    let ghosts = others.map(|(_, line)| CurveLine { ghost: true, ..line.clone() });
    let all = [lines[own].clone()].into_iter().chain(ghosts).collect();
    let (title, x) = (&lines[own].label, Clock::Updates.words());
    Curves { size: PanelSize::Small, ..Curves::new(title, x, "%", all) }
}
