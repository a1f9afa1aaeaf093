//! The page of a folder of runs and studies: a row each, with a link to its report.

use crate::base::files;
use crate::records::{RunFolder, RunSummary, environment, housekeeping};
use crate::report::page::{Block, Look, Page, Section, Table, TableCell, row};
use crate::report::{ReportError, html, text};
use crate::study::collection;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// `None` without runs and studies; runs of a study stand in its report. Errors: a folder that cannot be listed.
pub fn page(root: &Path) -> Result<Option<Page>, ReportError> {
    let mut studies = files::list(root)?;
    studies.retain(|name| collection::is_study(&root.join(name)));
    let (mut runs, mut study_rows, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for run in housekeeping::runs(root)? {
        let of_study = |study: &String| run.root().starts_with(root.join(study));
        if studies.iter().any(of_study) {
            continue;
        }
        let summary = housekeeping::summary(&run)?;
        match &summary.damage {
            Some(damage) => unreadable.push(unread(root, run.root(), damage)),
            None => runs.push((run, summary)),
        }
    }
    for name in &studies {
        match study_row(root, name) {
            Ok(row) => study_rows.push(row),
            Err(error) => unreadable.push(unread(root, &root.join(name), &error.to_string())),
        }
    }
    let counts = [
        text::counted(runs.len(), "run", "runs"),
        text::counted(study_rows.len(), "study", "studies"),
        format!("{} that cannot be read", unreadable.len()),
    ];
    let tables = [
        run_table(root, &runs),
        Table::new("Studies.", "study | question | arms # | records # | status", study_rows),
        Table::new("What cannot be read.", "folder | reason", unreadable),
    ];
    let tables = tables.into_iter().filter_map(Table::filled);
    let blocks: Vec<Block> = tables.map(Block::Table).collect();
    if blocks.is_empty() {
        return Ok(None);
    }
    Ok(Some(Page {
        kind: "index",
        title: text::visible(&root.display().to_string()),
        subtitle: "runs and studies of a folder".to_owned(),
        state: "index",
        headline: format!("{}.", counts.join(", ")),
        sections: vec![Section::new("all", "Runs and studies", blocks)],
        script: include_str!("templates/sort.js"),
        ..Page::default()
    }))
}

/// Errors: as [`page`], when `index.html` is another's, and when it cannot be written.
pub fn write(root: &Path, page: &Page) -> Result<PathBuf, ReportError> {
    let path = root.join("index.html");
    let is_ours = |text: String| text.contains("<body class=\"index\">");
    if files::kind(&path)?.is_some() && !is_ours(files::read_text(&path)?) {
        let reason = "is no list of runs of `dapo report`: move it away first".to_owned();
        return Err(ReportError::Refused { folder: path, reason });
    }
    files::renew(&path, &html::render(page))?;
    Ok(path)
}

fn run_table(root: &Path, runs: &[(RunFolder, RunSummary)]) -> Table {
    let sets: BTreeSet<&String> = runs.iter().flat_map(|(_, it)| it.accuracy.keys()).collect();
    let rows = runs.iter().map(|(run, summary)| {
        let steps = summary.steps_planned.map_or("?".to_owned(), |steps| steps.to_string());
        let scores = sets
            .iter()
            .map(|set| (summary.accuracy.get(*set).copied(), summary.place(set)))
            .map(|(score, place)| TableCell::shown(score, |it| text::points(it) + &place));
        row![
            linked(root, &summary.folder),
            text::visible(summary.name.as_deref().unwrap_or("?")),
            summary.seed.map_or("?".to_owned(), |seed| seed.to_string()),
            Look::Strong.of(summary.state.name()),
            format!("{}/{steps}", summary.steps_done),
            began(run)
        ]
        .into_iter()
        .chain(scores)
        .collect()
    });
    let caption = "Runs; scores are avg@k of the last evaluation, %. Click the head of a column to sort by it.";
    let columns = "run | arm | seed # | state | steps # | began (UTC)";
    let scores = sets.iter().map(|set| format!("{} #", text::visible(set)));
    Table::new(caption, columns, rows).with(scores)
}

fn began(run: &RunFolder) -> TableCell {
    let sessions = run.sessions().ok();
    let time = sessions.and_then(|all| environment::rfc3339(all.first()?.started_ms?));
    TableCell::or(time.map(|time| time[..16].replace('T', " ")), "–")
}

fn study_row(root: &Path, name: &str) -> Result<Vec<TableCell>, ReportError> {
    let study = collection::load(&root.join(name), None)?;
    let arms = study.grids.iter().map(|grid| grid.arms.len()).sum();
    Ok(row![
        linked(root, &root.join(name)),
        text::visible(&study.declaration.question),
        TableCell::count(arms),
        TableCell::count(study.cells.len()),
        if study.is_registered() { "registered" } else { "exploratory" }
    ])
}

fn unread(root: &Path, folder: &Path, reason: &str) -> Vec<TableCell> {
    row![text::visible(&name(root, folder)), text::visible(reason)]
}

fn name(root: &Path, folder: &Path) -> String {
    folder.strip_prefix(root).unwrap_or(folder).display().to_string()
}

fn linked(root: &Path, folder: &Path) -> TableCell {
    let name = name(root, folder);
    if !folder.join("report.html").is_file() {
        return TableCell::from(format!("{} (no report)", text::visible(&name)));
    }
    let link = format!("./{}/report.html", encoded(&name));
    TableCell { link, ..TableCell::from(text::visible(&name)) }
}

/// A name in an address: what could end it or mean something else there is percent-encoded.
fn encoded(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./~".contains(&byte);
    let shown =
        |byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(shown).collect()
}
