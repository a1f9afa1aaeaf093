//! The report of a study: one data structure, [`StudyReport`], built from a study's grids, cells
//! and declaration alone, and rendered as HTML, Markdown and JSON. It computes no statistics:
//! `study` does. It holds no time of day: the same records give the same bytes.

mod checking;
mod claims;
mod comparison;
pub mod context;
mod courses;
mod effects;
mod omitted;
mod overview;
mod picture;
mod power;
mod problem_map;
mod scores;
mod surroundings;

use crate::base::{files, visible};
use crate::report::{Context, ReportError, html, markdown, page::Page, text};
use crate::study::collection::{self, Study};
use crate::study::{Analysis, Judged, analysis, claims as paper_claims, claims::evidence};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Version of the structure.
const SCHEMA: &str = "dapo-study-report/1";

/// Everything that a study's report shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StudyReport {
    /// Version of this structure.
    pub schema: &'static str,
    /// What a reader sees, in order; foreign text is made visible, every number stands beside
    /// its unrounded value.
    pub page: Page,
    /// What it was taken from, as `study` computed it; shares in [0, 1].
    pub analysis: Analysis,
    /// The paper's claims, judged by it.
    pub claims: Judged,
}

/// Builds the report from a study folder without writing anything.
///
/// # Errors
/// A folder that is no study, or a grid or declaration that cannot be used.
pub fn build(folder: &Path, declared: Option<&Path>) -> Result<StudyReport, ReportError> {
    Ok(report(&collection::load(folder, declared)?))
}

/// The report of a study that was read.
pub fn report(study: &Study) -> StudyReport {
    let analysis = analysis::analyse(study);
    let judged = evidence::judge(study, &analysis, &paper_claims::shipped_for(study));
    let page = page_of(&Context::new(study, &analysis, &judged));
    StudyReport { schema: SCHEMA, page, analysis, claims: judged }
}

/// Builds the report and writes `report.html`, `report.md`, `report.json` and `scores.svg` (the
/// first grid's runs as a picture of its own), each atomically, into `out`, or into the study's
/// folder.
///
/// # Errors
/// As [`build`], and when a file cannot be written.
pub fn write(
    folder: &Path,
    declared: Option<&Path>,
    out: Option<&Path>,
) -> Result<(StudyReport, [PathBuf; 4]), ReportError> {
    let report = build(folder, declared)?;
    if let Some(out) = out {
        files::create_folder(out)?;
    }
    let out = out.unwrap_or(folder);
    let names = ["report.html", "report.md", "report.json", "scores.svg"];
    let paths = names.map(|name| out.join(name));
    let texts = [
        html::render(&report.page),
        markdown::render(&report.page),
        json(&report),
        picture::scores(&report.page),
    ];
    for (path, text) in paths.iter().zip(&texts) {
        files::write_atomic(path, text.as_bytes())?;
    }
    Ok((report, paths))
}

/// The report as one line of canonical JSON, in which nothing moves a terminal.
pub fn json(report: &StudyReport) -> String {
    visible::json(&files::canonical_json_line(report)) + "\n"
}

/// The page in the order that a reviewer reads.
fn page_of(context: &Context) -> Page {
    let declaration = &context.analysis.declaration;
    let names = context.analysis.grids.iter().map(|grid| text::visible(&grid.name));
    Page {
        kind: "study",
        title: format!("Ablation study: {}", text::joined(names, ", ")),
        subtitle: format!(
            "declaration {} · {}",
            text::short_digest(&context.analysis.declaration_sha256),
            text::counted(context.counted_cells().len(), "training run", "training runs")
        ),
        state: if declaration.registered { "registered" } else { "exploratory" },
        question: text::visible(&declaration.question),
        headline: overview::headline(context),
        alerts: overview::alerts(context),
        tiles: overview::tiles(context),
        sections: vec![
            overview::section(context),
            comparison::section(context),
            courses::section(context),
            problem_map::section(context),
            claims::section(context),
            comparison::fidelity(context),
            power::section(context),
            checking::section(context),
            effects::section(context),
            surroundings::section(context),
            omitted::section(context),
        ],
        ..Page::default()
    }
}
