//! Machines, versions, records that do not count, and the reproducibility checklist of a study.

use crate::report::page::{Block, Look, Section, Table, TableCell, row};
use crate::report::{Context, study::checking, text};
use crate::study::Cell;
use std::collections::BTreeSet;

/// The chapter.
pub fn section(context: &Context) -> Section {
    let cells = context.counted_cells();
    let seconds: f64 = cells.iter().map(|cell| cell.wall_seconds).filter(|it| it.is_finite()).sum();
    let intro = format!(
        "{} that count took {} of wall clock in all. Facts about machines and times stand outside \
         every comparison.",
        text::counted(cells.len(), "run", "runs"),
        text::duration(seconds)
    );
    let tables = [facts(&cells), excluded(context), checklist(context, &cells)].map(Block::Table);
    let blocks = [Block::Text(intro)].into_iter().chain(tables).collect();
    Section::new("environment", "Environment and checklist", blocks)
}

fn facts(cells: &[&Cell]) -> Table {
    let facts = cells.iter().flat_map(|cell| {
        let recorded = cell.environment.iter().map(|(name, value)| (name.as_str(), value));
        let all = recorded.chain([("harness version", &cell.harness)]);
        all.map(|(name, value)| (text::visible(name), text::visible(value)))
    });
    let rows = checking::counts(facts).into_iter().map(|((name, value), count)| {
        let shown: String = match value.chars().count() {
            0..=200 => value,
            _ => value.chars().take(200).chain(['…']).collect(),
        };
        row![name, shown, TableCell::count(count)]
    });
    let caption = "Recorded facts. A fact that stands twice was not the same for all runs.";
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

/// A fact that meets an item, or what is missing.
type SurroundingsFinding = Result<String, String>;

fn checklist(context: &Context, cells: &[&Cell]) -> Table {
    let inputs = |cell: &Cell| text::joined(cell.inputs.iter().flat_map(<[&String; 2]>::from), " ");
    let problems = |cell: &Cell| {
        text::joined(cell.problems.iter().flat_map(|(set, ids)| [set, &ids.sha256]), " ")
    };
    let found: [(&str, SurroundingsFinding); 9] = [
        ("question and analysis written down before the runs", registered(context)),
        ("several training runs of each arm, and every one shown", seeds(context)),
        ("intervals and tests name what varies", tests(context)),
        ("no run left out without a word", accounted(context)),
        ("one set of inputs", same(cells, "the inputs' digests", inputs)),
        ("one set of evaluation problems", same(cells, "the problems' digests", problems)),
        ("hardware and software recorded", recorded(cells)),
        ("every run has a ledger that a repetition must meet", ledgers(cells)),
        ("a repetition has the same bits on another machine", exact(cells)),
    ];
    let met = found.iter().filter(|(_, finding)| finding.is_ok()).count();
    let caption =
        format!("Checklist: {met} of {} items are met, by the records alone.", found.len());
    let rows = found.into_iter().map(|(item, finding)| {
        let word = TableCell::verdict(finding.is_ok(), ["met", "not met"]);
        row![item, word, finding.unwrap_or_else(|missing| missing)]
    });
    Table::new(caption, "item | met | fact", rows)
}

fn registered(context: &Context) -> SurroundingsFinding {
    match context.analysis.declaration.registered {
        true => Ok(format!("declaration {}", context.analysis.declaration_sha256)),
        false => Err("the declaration does not say that it was registered".into()),
    }
}

fn seeds(context: &Context) -> SurroundingsFinding {
    let least = context.arms().map(|arm| arm.seeds.len()).min().unwrap_or(0);
    let few = context.arms().filter(|arm| arm.seeds.len() < 3);
    let few: BTreeSet<String> = few.map(|arm| text::visible(&arm.id)).collect();
    match few.is_empty() && least > 0 {
        true => Ok(format!("at least {least} of each arm; each is drawn and listed")),
        false => Err(format!("fewer than 3 runs: {}", text::joined(few, ", "))),
    }
}

fn tests(context: &Context) -> SurroundingsFinding {
    let all = context.comparisons().count();
    match context.comparisons().filter(|it| it.result.is_some()).count() {
        0 => Err("no declared comparison could be tested".into()),
        tested => Ok(format!("{tested} of {all} declared comparisons tested over training runs")),
    }
}

fn accounted(context: &Context) -> SurroundingsFinding {
    match context.arms().map(|arm| arm.missing_seeds.len()).sum() {
        0 => Ok(format!(
            "no run is missing; {} do not count and are listed with their reasons",
            text::counted(context.analysis.excluded.len(), "record", "records")
        )),
        missing => {
            Err(format!("{} of the grids are missing", text::counted(missing, "run", "runs")))
        }
    }
}

fn same(cells: &[&Cell], what: &str, of: impl Fn(&Cell) -> String) -> SurroundingsFinding {
    let distinct: BTreeSet<String> = cells.iter().map(|cell| of(cell)).collect();
    match distinct.len() {
        0 => Err("no run counts".into()),
        1 => Ok(format!("{what} are those of all {}", text::counted(cells.len(), "run", "runs"))),
        count => Err(format!("{what} differ: {count} kinds")),
    }
}

fn recorded(cells: &[&Cell]) -> SurroundingsFinding {
    let without = cells.iter().filter(|cell| cell.environment.is_empty()).count();
    match (cells.len(), without) {
        (0, _) => Err("no run counts".into()),
        (all, 0) => Ok(format!("by each of {}", text::counted(all, "run", "runs"))),
        (all, without) => Err(format!("{without} of {all} runs have no record of it")),
    }
}

fn ledgers(cells: &[&Cell]) -> SurroundingsFinding {
    let without = cells.iter().filter(|cell| cell.ledger_head.is_none());
    let named =
        |cell: &&Cell| format!("{} ({})", text::visible(&cell.file_name()), cell.ending.name());
    let without = text::joined(without.map(named), ", ");
    match (cells.len(), without.is_empty()) {
        (0, _) => Err("no run counts".into()),
        (all, true) => Ok(format!("{} ledger heads", text::grouped(all as u64))),
        (_, false) => Err(format!("without one: {without}")),
    }
}

fn exact(cells: &[&Cell]) -> SurroundingsFinding {
    let fast = cells.iter().filter(|cell| cell.exactness != "exact").count();
    match (cells.len(), fast) {
        (0, _) => Err("no run counts".into()),
        (all, 0) => Ok(format!("all {} are exact", text::counted(all, "run", "runs"))),
        (all, fast) => Err(format!("{fast} of {all} runs are not exact")),
    }
}
