//! Which arms solve which problems, and which problems changed between two arms.

use crate::report::page::{Block, Changes, Figure, Heat, Panel, Section, Table, TableCell, row};
use crate::report::{Context, study::scores, text};
use crate::study::{GridSummary, Matrix, PairedChange, problems};

/// The first grid openly, others on demand.
pub fn section(context: &Context) -> Section {
    let mut blocks = vec![Block::text(
        "Each column is a problem, ordered from the hardest to the easiest over the arms shown; the \
         shade is the share of correct samples at the last evaluation, averaged over the runs. Below, \
         what changed problem by problem from one arm to another. These describe the runs that were \
         made on these problems; they test nothing.",
    )];
    for (index, grid) in context.analysis.grids.iter().enumerate() {
        let figures = grid_blocks(context, grid);
        let title = format!("Problems of {}", text::visible(&grid.name));
        match index {
            0 => blocks.extend(figures),
            _ => blocks.push(Block::More(title, figures)),
        }
    }
    Section::new("problems", "Problem by problem", blocks)
}

fn grid_blocks(context: &Context, grid: &GridSummary) -> Vec<Block> {
    let set = &context.analysis.declaration.primary_set;
    let ids: Vec<&str> = grid.arms.iter().map(|arm| arm.id.as_str()).collect();
    let Some(matrix) = problems::matrix(context.study, &ids, set) else {
        let (set, name) = (text::visible(set), text::visible(&grid.name));
        return vec![Block::Text(format!("No run of {name} that counts evaluated {set}."))];
    };
    let mut blocks = vec![Block::Figure(heat(context, grid, &matrix))];
    let changes = grid.arms.iter().filter_map(|arm| {
        let reference = arm.compared_with.as_ref()?;
        problems::paired_change(context.study, &arm.id, reference, set)
    });
    blocks.extend(paired(context, grid, &changes.collect::<Vec<_>>()).map(Block::Figure));
    blocks
}

fn heat(context: &Context, grid: &GridSummary, matrix: &Matrix) -> Figure {
    let set = text::visible(&context.analysis.declaration.primary_set);
    let row = |arm: &problems::ArmProblems| {
        let shares = matrix.hardest_first.iter().map(|index| arm.accuracies[*index]).collect();
        (context.label_in_study(&arm.arm), shares)
    };
    let count = matrix.hardest_first.len();
    let always = |of: fn(f64) -> bool| {
        (0..count).filter(|index| matrix.arms.iter().all(|arm| of(arm.accuracies[*index]))).count()
    };
    let (never, solved) = (always(|share| share <= 0.0), always(|share| share >= 1.0));
    let absent = grid.arms.iter().filter(|arm| matrix.arms.iter().all(|row| row.arm != arm.id));
    let absent: Vec<String> = absent.map(|arm| text::visible(&arm.label)).collect();
    let mut caption = format!(
        "Of {} of {}, {never} are never solved by any arm and {solved} always by all; the arms differ \
         on the {} in between.",
        text::counted(count, "problem", "problems"),
        set,
        count - never - solved
    );
    if !absent.is_empty() {
        caption += &format!(
            " Not shown, because no run that counts evaluated the same problems: {}.",
            text::listed(&absent)
        );
    }
    Figure {
        id: format!("problems-{}", scores::anchor(&grid.name)),
        title: format!("{}: who solves which problem", text::visible(&grid.name)),
        caption,
        panels: vec![Panel::Heat(Heat {
            columns: text::counted(count, "problem", "problems"),
            rows: matrix.arms.iter().map(row).collect(),
        })],
        numbers: heat_numbers(context, matrix),
        ..Figure::default()
    }
}

fn heat_numbers(context: &Context, matrix: &Matrix) -> Table {
    let set = text::visible(&context.analysis.declaration.primary_set);
    let rows = matrix.arms.iter().map(|arm| {
        let count = |of: fn(f64) -> bool| {
            TableCell::count(arm.accuracies.iter().filter(|share| of(**share)).count())
        };
        row![
            context.label_in_study(&arm.arm),
            TableCell::count(arm.runs as usize),
            count(|share| share <= 0.0),
            count(|share| share > 0.0 && share < 0.5),
            count(|share| (0.5..1.0).contains(&share)),
            count(|share| share >= 1.0)
        ]
    });
    let caption = format!("Problems of {} by the share of correct samples.", set);
    let columns = "arm | runs # | never # | below half # | half or more # | always #";
    Table::new(caption, columns, rows)
}

fn paired(context: &Context, grid: &GridSummary, changes: &[PairedChange]) -> Option<Figure> {
    let against = |change: &PairedChange| context.pair(&change.arm, &change.reference);
    let panel = |change: &PairedChange| {
        let mut differences = change.differences.clone();
        differences.sort_by(|a, b| b.total_cmp(a));
        Panel::Changes(Changes { title: against(change), differences })
    };
    let most = changes.iter().max_by_key(|change| change.better + change.worse)?;
    let PairedChange { better, worse, same, .. } = most;
    let caption = format!(
        "Problems sorted from the largest gain (blue, up) to the largest loss (orange, down), in percentage points. \
         Most problems moved in {}: {better} solved more often, {worse} less often, {same} as often.",
        against(most)
    );
    let rows = changes.iter().map(|change| {
        row![
            against(change),
            TableCell::count(change.better as usize),
            TableCell::count(change.worse as usize),
            TableCell::count(change.same as usize),
            text::signed_points(change.mean)
        ]
    });
    Some(Figure {
        id: format!("changes-{}", scores::anchor(&grid.name)),
        title: format!("{}: paired changes", text::visible(&grid.name)),
        caption,
        panels: changes.iter().map(panel).collect(),
        numbers: Table::new(
            "Problems solved more, less and equally often, and the mean change in points.",
            "pair | more often # | less often # | as often # | mean change #",
            rows,
        ),
        ..Figure::default()
    })
}
