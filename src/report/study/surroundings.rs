//! Machines, versions, records that do not count, and the reproducibility checklist of a study.

use crate::report::study::page::{Block, Column, Section, Table};
use crate::report::study::{checking, context};
use crate::report::{Context, Look, TableCell, text};
use crate::study::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// The chapter.
pub fn section(context: &Context) -> Section {
    let cells = context.counted_cells();
    let seconds: f64 = cells.iter().map(|cell| cell.wall_seconds).filter(|it| it.is_finite()).sum();
    let blocks = vec![
        Block::Text(format!(
            "{} that count took {} of wall clock in all. Facts about machines and times stand outside \
             every comparison.",
            context::counted(cells.len(), "run", "runs"),
            text::duration(seconds)
        )),
        Block::Table(facts(&cells)),
        Block::Table(excluded(context)),
        Block::Table(checklist(context, &cells)),
    ];
    Section { id: "environment".into(), title: "Environment and checklist".into(), blocks }
}

fn facts(cells: &[&Cell]) -> Table {
    let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
    for cell in cells {
        let harness = ("harness version".to_owned(), cell.harness.clone());
        let recorded = cell.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
        for (name, value) in recorded.chain([harness]) {
            *found.entry((text::visible(&name), text::visible(&value))).or_default() += 1;
        }
    }
    let rows = found.into_iter().map(|((name, value), count)| {
        let shown: String = match value.chars().count() {
            0..=200 => value,
            _ => value.chars().take(200).chain(['…']).collect(),
        };
        vec![
            TableCell::plain(name),
            TableCell::plain(shown),
            TableCell::value(count.to_string(), [count as f64]),
        ]
    });
    Table {
        rows: rows.collect(),
        caption: "Recorded facts. A fact that stands twice was not the same for all runs.".into(),
        columns: vec![Column::text("fact"), Column::text("value"), Column::number("runs")],
    }
}

fn excluded(context: &Context) -> Table {
    let rows = context.analysis.excluded.iter().map(|it| {
        vec![
            TableCell::plain(text::visible(&it.cell)).looking(Look::Code),
            TableCell::plain(it.arm.as_deref().map_or("none".to_owned(), |id| context.label(id))),
            TableCell::plain(it.seed.map_or(String::new(), |seed| seed.to_string())),
            TableCell::plain(if it.failed { "the run failed" } else { "does not belong" }),
            TableCell::plain(text::visible(&it.reason)),
        ]
    });
    let rows: Vec<Vec<TableCell>> = rows.collect();
    let caption = match rows.len() {
        0 => "Records that do not count: none.".to_owned(),
        count => format!("{count} records that do not count, each with its reason."),
    };
    Table {
        caption,
        rows,
        columns: vec![
            Column::text("record"),
            Column::text("arm"),
            Column::number("seed"),
            Column::text("kind"),
            Column::text("reason"),
        ],
    }
}

/// A fact that meets an item, or what is missing.
type Finding = Result<String, String>;

fn checklist(context: &Context, cells: &[&Cell]) -> Table {
    let found: [(&str, Finding); 9] = [
        ("question and analysis written down before the runs", registered(context)),
        ("several training runs of each arm, and every one shown", seeds(context)),
        ("intervals and tests name what varies", tests(context)),
        ("no run left out without a word", accounted(context)),
        (
            "one set of inputs",
            same(cells, "the inputs' digests", |cell| {
                cell.inputs.iter().map(|(name, digest)| format!("{name} {digest}")).collect()
            }),
        ),
        (
            "one set of evaluation problems",
            same(cells, "the problems' digests", |cell| {
                cell.problems.iter().map(|(set, ids)| format!("{set} {}", ids.sha256)).collect()
            }),
        ),
        ("hardware and software recorded", recorded(cells)),
        ("every run has a ledger that a repetition must meet", ledgers(cells)),
        ("a repetition has the same bits on another machine", exact(cells)),
    ];
    let met = found.iter().filter(|(_, finding)| finding.is_ok()).count();
    let rows = found.iter().map(|(item, finding)| {
        let (word, look, fact) = match finding {
            Ok(fact) => ("met", Look::Good, fact),
            Err(missing) => ("not met", Look::Bad, missing),
        };
        vec![
            TableCell::plain(*item),
            TableCell::plain(word).looking(look),
            TableCell::plain(fact.clone()),
        ]
    });
    Table {
        rows: rows.collect(),
        caption: format!(
            "Checklist: {met} of {} items are met, by the records alone.",
            found.len()
        ),
        columns: vec![Column::text("item"), Column::text("met"), Column::text("fact")],
    }
}

fn registered(context: &Context) -> Finding {
    match context.analysis.declaration.registered {
        true => Ok(format!("declaration {}", context.analysis.declaration_sha256)),
        false => Err("the declaration does not say that it was registered".into()),
    }
}

fn seeds(context: &Context) -> Finding {
    let arms = || context.analysis.grids.iter().flat_map(|grid| &grid.arms);
    let least = arms().map(|arm| arm.seeds.len()).min().unwrap_or(0);
    let few: BTreeSet<String> =
        arms().filter(|arm| arm.seeds.len() < 3).map(|arm| text::visible(&arm.id)).collect();
    match few.is_empty() && least > 0 {
        true => Ok(format!("at least {least} of each arm; each is drawn and listed")),
        false => {
            Err(format!("fewer than 3 runs: {}", few.into_iter().collect::<Vec<_>>().join(", ")))
        }
    }
}

fn tests(context: &Context) -> Finding {
    let families = &context.analysis.families;
    let tested: usize = families
        .iter()
        .map(|family| family.comparisons.iter().filter(|it| it.result.is_some()).count())
        .sum();
    let all: usize = families.iter().map(|family| family.comparisons.len()).sum();
    match tested {
        0 => Err("no declared comparison could be tested".into()),
        _ => Ok(format!("{tested} of {all} declared comparisons tested over training runs")),
    }
}

fn accounted(context: &Context) -> Finding {
    let arms = || context.analysis.grids.iter().flat_map(|grid| &grid.arms);
    let missing: usize = arms().map(|arm| arm.missing_seeds.len()).sum();
    let excluded = context.analysis.excluded.len();
    match missing {
        0 => Ok(format!(
            "no run is missing; {} do not count and are listed with their reasons",
            context::counted(excluded, "record", "records")
        )),
        _ => Err(format!("{} of the grids are missing", context::counted(missing, "run", "runs"))),
    }
}

fn same(cells: &[&Cell], what: &str, of: fn(&Cell) -> Vec<String>) -> Finding {
    let distinct: BTreeSet<Vec<String>> = cells.iter().map(|cell| of(cell)).collect();
    match distinct.len() {
        0 => Err("no run counts".into()),
        1 => {
            Ok(format!("{what} are those of all {}", context::counted(cells.len(), "run", "runs")))
        }
        count => Err(format!("{what} differ: {count} kinds")),
    }
}

fn recorded(cells: &[&Cell]) -> Finding {
    let without = cells.iter().filter(|cell| cell.environment.is_empty()).count();
    match (cells.len(), without) {
        (0, _) => Err("no run counts".into()),
        (all, 0) => Ok(format!("by each of {}", context::counted(all, "run", "runs"))),
        (all, without) => Err(format!("{without} of {all} runs have no record of it")),
    }
}

fn ledgers(cells: &[&Cell]) -> Finding {
    let without: Vec<String> = cells
        .iter()
        .filter(|cell| cell.ledger_head.is_none())
        .map(|cell| {
            format!("{} ({})", text::visible(&cell.file_name()), checking::ending(cell.ending))
        })
        .collect();
    match (cells.len(), without.is_empty()) {
        (0, _) => Err("no run counts".into()),
        (all, true) => Ok(format!("{} ledger heads", text::grouped(all as u64))),
        (_, false) => Err(format!("without one: {}", without.join(", "))),
    }
}

fn exact(cells: &[&Cell]) -> Finding {
    let fast = cells.iter().filter(|cell| cell.exactness != "exact").count();
    match (cells.len(), fast) {
        (0, _) => Err("no run counts".into()),
        (all, 0) => Ok(format!("all {} are exact", context::counted(all, "run", "runs"))),
        (all, fast) => Err(format!("{fast} of {all} runs are not exact")),
    }
}
