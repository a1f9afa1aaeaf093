//! How to check the study: digests, ledger heads, and commands that train a cell again and compare it bit for bit.

use crate::experiment::bases;
use crate::records::run_folder::{EXACT_F32, is_portable};
use crate::report::page::{Block, Look, Section, Table, TableCell, row};
use crate::report::{Context, text};
use crate::study::Cell;
use std::collections::{BTreeMap, BTreeSet};

pub fn section(context: &Context) -> Section {
    let cells = context.counted_cells();
    let mut blocks = vec![Block::Text(exactness(&cells))];
    match Cell::cheapest(cells.iter().copied()) {
        Some(cell) => blocks.extend([
            Block::Heading("Check one cell yourself".to_owned()),
            Block::Text(format!(
                "The cell that took least time: {}, seed {}, {}. {}",
                text::visible(&cell.name),
                cell.seed,
                text::duration(cell.wall_seconds),
                way(cell)
            )),
            Block::Code(commands(cell)),
            Block::Text(format!(
                "{} Somebody who forges a record can write any head into it: what the two commands find is the check.",
                head(cell)
            )),
        ]),
        None => blocks.push(Block::text(
            "No run that counts has a ledger head: there is nothing that could be trained again \
             and compared.",
        )),
    }
    blocks.push(Block::Folded(records(context, &cells)));
    blocks.push(Block::Table(inputs(&cells)));
    Section::new("checking", "Exactness and how to check it", blocks)
}

fn head(cell: &Cell) -> String {
    let head = cell.ledger_head.as_deref().map_or("none".to_owned(), text::visible);
    if is_portable(&cell.exactness) {
        return format!("The ledger\u{2019}s last head must be {head}.");
    }
    let level = text::visible(&cell.exactness);
    format!(
        "The ledger\u{2019}s last head was {head}. The record is {level}: another machine or build may end with another \
         head, and a difference then proves nothing."
    )
}

fn exactness(cells: &[&Cell]) -> String {
    let levels = text::counts(cells.iter().map(|cell| text::visible(&cell.exactness)));
    if levels.is_empty() {
        return "No run counts.".to_owned();
    }
    let words = levels
        .iter()
        .map(|(level, count)| format!("{} {level}", text::counted(*count, "run is", "runs are")));
    let meaning = if levels.len() == 1 && levels.contains_key("exact") {
        "a repetition has the same bits with any number of threads, on any machine with \
         IEEE 754 arithmetic"
    } else if levels.keys().all(|level| is_portable(level)) {
        "a repetition has the same bits with any number of threads, on any machine with \
         IEEE 754 arithmetic; in f32 with the same cut of mini-batches into passes"
    } else if levels.contains_key(EXACT_F32) {
        "a run that is neither exact nor exact-f32 has the same bits only on the same kind of \
         machine and build"
    } else {
        "a run that is not exact has the same bits only on the same kind of machine and build"
    };
    format!("{}: {meaning}.", text::listed(words))
}

fn has_made_base(cell: &Cell) -> bool {
    bases::of_seed(&cell.experiment.inputs.model, cell.seed).is_some()
}

fn way(cell: &Cell) -> &'static str {
    if has_made_base(cell) {
        return "Its base policy is in no repository and has to be made first, which takes minutes. In the \
                study\u{2019}s folder the command checks the records and this report, and prints the lines that make \
                the base policy, train the cell again and compare it.";
    }
    "Run the lines in the study\u{2019}s folder, which has the records. The first command checks the records and this \
     report, the second trains the cell again from its own record, the third compares every metric, outcome and digest \
     and lists what differs. Base policy and problems are looked for around the study; where they are elsewhere, \
     --inputs FOLDER names the folder that their paths start from."
}

/// Paths are relative to the study's folder.
fn commands(cell: &Cell) -> String {
    if has_made_base(cell) {
        return "dapo verify .".to_owned();
    }
    let name = text::visible(&cell.file_name());
    format!(
        "dapo verify .\ndapo train cells/{name} --out check\ndapo runs cells cells/{name} --run check"
    )
}

fn records(context: &Context, cells: &[&Cell]) -> Table {
    let mut arms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for arm in context.arms() {
        for cell in context.study.cells_of(&arm.id) {
            arms.entry(cell.file_name()).or_default().insert(text::visible(&arm.id));
        }
    }
    let rows = cells.iter().map(|cell| {
        let file = cell.file_name();
        let weights = cell.digests.iter().find(|(name, _)| name.ends_with("model.safetensors"));
        let digest = |digest: Option<&str>| {
            digest.map_or(Look::Quiet.of("none"), |it| Look::Code.of(text::visible(it)))
        };
        row![
            Look::Code.of(text::visible(&file)),
            text::joined(arms.get(&file).into_iter().flatten(), ", "),
            cell.seed.to_string(),
            cell.ending.name(),
            digest(cell.ledger_head.as_deref()),
            digest(Some(&cell.record_sha256)),
            digest(weights.map(|(_, digest)| digest.as_str()))
        ]
    });
    let caption = format!(
        "Digests of the {} that count (SHA-256). The ledger head covers inputs, every rollout \
         step and the ending.",
        text::counted(cells.len(), "record", "records")
    );
    let columns = "record | arms | seed # | ended | ledger head | record | last weights";
    Table::new(caption, columns, rows)
}

fn inputs(cells: &[&Cell]) -> Table {
    let inputs = cells.iter().flat_map(|cell| &cell.inputs);
    let inputs = inputs.map(|(name, digest)| (text::visible(name), text::visible(digest)));
    let rows = text::counts(inputs)
        .into_iter()
        .map(|((name, digest), count)| row![name, Look::Code.of(digest), TableCell::count(count)]);
    let caption = "What went into the runs. An input that occurs twice was not the same for all.";
    Table::new(caption, "input | SHA-256 | runs #", rows)
}
