//! How a reader checks the study without trusting it: digests, ledger heads, and the commands
//! that train one cell again and compare it bit for bit.

use crate::report::study::context;
use crate::report::study::page::{Block, Column, Section, Table};
use crate::report::{Context, Look, TableCell, text};
use crate::study::{Cell, CellEnding};
use std::collections::{BTreeMap, BTreeSet};

/// The chapter.
pub fn section(context: &Context) -> Section {
    let cells = context.counted_cells();
    let mut blocks = vec![Block::Text(exactness(&cells))];
    match example(&cells) {
        Some(cell) => {
            blocks.push(Block::Heading(format!(
                "Check one cell yourself in {}",
                minutes(cell.wall_seconds)
            )));
            blocks.push(Block::Text(format!(
                "The cell that took least time: {}, seed {}. Paste the lines in the folder of this \
                 report. CHECKOUT is the folder that the study was run from: its records name the \
                 base policy and files of problems from there. Write its path where the study was \
                 copied elsewhere. The first command trains the cell again from its own record, the \
                 second compares every metric, outcome and digest and lists what differs, the third \
                 makes this report from the records again.",
                text::visible(&cell.name),
                cell.seed
            )));
            blocks.push(Block::Code(commands(cell)));
            blocks.push(Block::Text(format!(
                "The ledger\u{2019}s last head must be {}. Somebody who \
                 forges a record can write any head into it: what the two commands find is the check.",
                cell.ledger_head.as_deref().map_or("none".to_owned(), text::visible)
            )));
        }
        None => blocks.push(Block::Text(
            "No run that counts has a ledger head: there is nothing that could be trained again \
             and compared."
                .into(),
        )),
    }
    blocks.push(Block::Folded(records(context, &cells)));
    blocks.push(Block::Table(inputs(&cells)));
    Section { id: "checking".into(), title: "Exactness and how to check it".into(), blocks }
}

fn exactness(cells: &[&Cell]) -> String {
    let mut levels: BTreeMap<String, usize> = BTreeMap::new();
    for cell in cells {
        *levels.entry(text::visible(&cell.exactness)).or_default() += 1;
    }
    if levels.is_empty() {
        return "No run counts.".to_owned();
    }
    let words: Vec<String> = levels
        .iter()
        .map(|(level, count)| format!("{} {level}", context::counted(*count, "run is", "runs are")))
        .collect();
    let exact = levels.len() == 1 && levels.contains_key("exact");
    let meaning = match exact {
        true => {
            "a repetition has the same bits with any number of threads, on any machine with \
                 IEEE 754 arithmetic"
        }
        false => {
            "a run that is not exact has the same bits only on the same kind of machine and build"
        }
    };
    format!("{}: {meaning}.", context::listed(&words))
}

/// The finished cell that is cheapest to repeat; the first by name of equally cheap ones.
fn example<'a>(cells: &[&'a Cell]) -> Option<&'a Cell> {
    let whole = |cell: &&&Cell| {
        cell.ending == CellEnding::Finished
            && cell.ledger_head.is_some()
            && cell.wall_seconds.is_finite()
    };
    cells.iter().filter(whole).copied().reduce(
        |a, b| {
            if b.wall_seconds < a.wall_seconds { b } else { a }
        },
    )
}

fn minutes(seconds: f64) -> String {
    let minutes = (seconds / 60.0).ceil().clamp(1.0, 1e6) as usize;
    context::counted(minutes, "minute", "minutes")
}

/// Paths are relative to the study's folder, which lies two below the checkout unless it was copied.
/// A relative `CHECKOUT` is there for `runs/STUDY` and `reports/STUDY`.
fn commands(cell: &Cell) -> String {
    let name = text::visible(&cell.file_name());
    format!(
        "CHECKOUT=../..\n\
         dapo train cells/{name} --inputs \"$CHECKOUT\" --out check\n\
         dapo runs cells cells/{name} --run check\n\
         dapo report . --out again"
    )
}

fn records(context: &Context, cells: &[&Cell]) -> Table {
    let mut arms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for arm in context.analysis.grids.iter().flat_map(|grid| &grid.arms) {
        for cell in context.study.cells_of(&arm.id) {
            arms.entry(cell.file_name()).or_default().insert(text::visible(&arm.id));
        }
    }
    let rows = cells.iter().map(|cell| {
        let file = cell.file_name();
        let of: Vec<String> =
            arms.get(&file).map(|arms| arms.iter().cloned().collect()).unwrap_or_default();
        let weights = cell.digests.iter().find(|(name, _)| name.ends_with("model.safetensors"));
        let digest = |digest: Option<&str>| match digest {
            Some(digest) => TableCell::plain(text::visible(digest)).looking(Look::Code),
            None => TableCell::missing("none"),
        };
        vec![
            TableCell::plain(text::visible(&file)).looking(Look::Code),
            TableCell::plain(of.join(", ")),
            TableCell::value(cell.seed.to_string(), [cell.seed as f64]),
            TableCell::plain(ending(cell.ending)),
            digest(cell.ledger_head.as_deref()),
            digest(Some(&cell.record_sha256)),
            digest(weights.map(|(_, digest)| digest.as_str())),
        ]
    });
    Table {
        rows: rows.collect(),
        caption: format!(
            "Digests of the {} that count (SHA-256). The ledger head covers inputs, every rollout \
             step and the ending.",
            context::counted(cells.len(), "record", "records")
        ),
        columns: vec![
            Column::text("record"),
            Column::text("arms"),
            Column::number("seed"),
            Column::text("ended"),
            Column::text("ledger head"),
            Column::text("record"),
            Column::text("last weights"),
        ],
    }
}

/// In a word.
pub fn ending(ending: CellEnding) -> &'static str {
    match ending {
        CellEnding::Finished => "finished",
        CellEnding::Saturated => "saturated",
        CellEnding::Diverged => "diverged",
        CellEnding::Failed => "failed",
    }
}

fn inputs(cells: &[&Cell]) -> Table {
    let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
    for cell in cells {
        for (name, digest) in &cell.inputs {
            *found.entry((text::visible(name), text::visible(digest))).or_default() += 1;
        }
    }
    let rows = found.into_iter().map(|((name, digest), count)| {
        vec![
            TableCell::plain(name),
            TableCell::plain(digest).looking(Look::Code),
            TableCell::value(count.to_string(), [count as f64]),
        ]
    });
    Table {
        rows: rows.collect(),
        caption: "What went into the runs. An input that stands twice was not the same for all."
            .into(),
        columns: vec![Column::text("input"), Column::text("SHA-256"), Column::number("runs")],
    }
}
