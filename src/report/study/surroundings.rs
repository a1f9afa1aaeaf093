//! Machines, versions, and records that do not count.

use crate::base::visible;
use crate::report::page::{Block, Look, Section, Table, TableCell, row};
use crate::report::{Context, text};
use crate::study::Cell;

pub fn section(context: &Context) -> Section {
    let cells = context.counted_cells();
    let seconds: f64 = cells.iter().map(|cell| cell.wall_seconds).filter(|it| it.is_finite()).sum();
    let intro = format!(
        "{} that count took {} of wall clock in all. Facts about machines and times stand outside \
         every comparison.",
        text::counted(cells.len(), "run", "runs"),
        text::duration(seconds)
    );
    let tables = [facts(&cells), excluded(context)].map(Block::Table);
    let blocks = [Block::Text(intro)].into_iter().chain(tables).collect();
    Section::new("environment", "Environment", blocks)
}

fn facts(cells: &[&Cell]) -> Table {
    let facts = cells.iter().flat_map(|cell| {
        let recorded = cell.environment.iter().map(|(name, value)| (name.as_str(), value));
        let all = recorded.chain([("harness version", &cell.harness)]);
        all.map(|(name, value)| (text::visible(name), text::visible(value)))
    });
    let rows = text::counts(facts).into_iter().map(|((name, value), count)| {
        row![name, visible::start(&value, 200), TableCell::count(count)]
    });
    let caption = "Recorded facts. A fact that occurs twice was not the same for all runs.";
    Table::new(caption, "fact | value | runs #", rows)
}

fn excluded(context: &Context) -> Table {
    let excluded = &context.analysis.excluded;
    let rows = excluded.iter().map(|it| {
        row![
            Look::Code.of(text::visible(&it.cell)),
            it.arm.as_deref().map_or("none".to_owned(), |id| context.label(id)),
            it.seed.map_or(String::new(), |seed| seed.to_string()),
            if it.failed { "the run failed" } else { "does not belong" },
            text::visible(&it.reason)
        ]
    });
    let caption = match excluded.len() {
        0 => "Records that do not count: none.".to_owned(),
        count => format!("{count} records that do not count, each with its reason."),
    };
    Table::new(caption, "record | arm | seed # | kind | reason", rows)
}
