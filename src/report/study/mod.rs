//! A study's report as HTML and Markdown: no statistics and no time of day, so that equal records give equal bytes.

mod answer;
mod checking;
mod comparison;
pub mod context;
mod courses;
mod effects;
pub mod figure;
mod grids;
mod headline;
mod omitted;
mod over_sets;
mod power;
mod problem_map;
mod scores;
mod sensitivity;
mod stability;
pub mod surroundings;

use crate::base::{files, visible};
use crate::report::{
    Context, ReportError, claims, html, markdown, page::Page, page::Section, text,
};
use crate::study::claims as paper_claims;
use crate::study::collection::{self, Study};
use crate::study::{Claims, StudyFacts, facts};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq)]
pub struct StudyReport {
    /// Foreign text is made visible.
    pub page: Page,
    pub appendix: Page,
    pub facts: StudyFacts,
}

/// Errors: a folder that is no study, or a grid or declaration that cannot be used.
pub fn build(folder: &Path, declared: Option<&Path>) -> Result<StudyReport, ReportError> {
    let study = collection::load(folder, declared)?;
    let mut report = report(&study, &paper_claims::of(folder, &study)?);
    report.page.alerts.extend(placement(&study));
    Ok(report)
}

/// What `dapo ablate` noted when the declaration came into the study.
fn placement(study: &Study) -> Vec<String> {
    let counted = |records| text::counted(records, "record", "records");
    let late = study.records_before.filter(|_| study.declaration.registered);
    let Some(placement) = &study.placement else {
        let alert = |records| {
            format!(
                "This declaration was not put into the study before its {}: no comparison counts as registered.",
                counted(records)
            )
        };
        return late.map(alert).into_iter().collect();
    };
    let mut alerts = Vec::new();
    if study.is_declared_otherwise() {
        let [here, placed] = [&study.declaration.sha256(), &placement.declaration_sha256]
            .map(|digest| text::short_digest(digest));
        let what = if study.is_declared() {
            format!(
                "This is not the declaration that was put into the study: its SHA-256 begins with {here}, and \
                 declared.json names {placed}."
            )
        } else {
            format!("study.json is gone; declared.json names the declaration {placed}….")
        };
        alerts.push(format!(
            "{what} No comparison counts as registered. Put the first study.json back, or name a copy of it with \
             --declaration."
        ));
    }
    if placement.records_before > 0 {
        let late = late.map_or("", |_| " No comparison counts as registered.");
        alerts.push(format!(
            "The study had {} when the declaration came into it: nothing here shows that the declaration is \
             older.{late}",
            counted(placement.records_before as usize)
        ));
    }
    if study.declaration.registered && !placement.uncommitted.is_empty() {
        let why = text::joined(placement.uncommitted.iter().map(|why| text::visible(why)), "; ");
        alerts.push(format!("No commit shows what was run: {why}."));
    }
    alerts
}

pub fn report(study: &Study, claims: &Claims) -> StudyReport {
    let facts = facts::of(study, claims);
    let context = Context::new(study, &facts.analysis, &facts.claims);
    let (brief, effects) = effects::sections(&context);
    let (stable, stability) = stability::sections(&context);
    let [sensitive, sensitivity] = sensitivity::sections(&context);
    let after = sensitive.into_iter().chain([stable, brief]);
    let page = page_of(&context, after.collect());
    let others = sensitivity.into_iter().chain([stability]).chain(effects);
    let appendix = appendix_of(&context, others.collect());
    StudyReport { page, appendix, facts }
}

/// Writes report and appendix as HTML and Markdown, `report.json` and `answer.svg`, each atomically, into `out` or the
/// study's folder. Errors: as [`build`], and when a file cannot be written.
pub fn write(
    folder: &Path,
    declared: Option<&Path>,
    out: Option<&Path>,
) -> Result<(StudyReport, [PathBuf; 6]), ReportError> {
    let report = build(folder, declared)?;
    if let Some(out) = out {
        files::create_folder(out)?;
    }
    let out = out.unwrap_or(folder);
    let texts = texts(&report);
    for (name, text) in &texts {
        files::renew(&out.join(name), text)?;
    }
    Ok((report, texts.map(|(name, _)| out.join(name))))
}

pub const FILES: [&str; 6] =
    ["report.html", "appendix.html", "report.md", "appendix.md", facts::FILE, "answer.svg"];

pub fn texts(report: &StudyReport) -> [(&'static str, String); 6] {
    let texts = [
        html::render(&report.page),
        html::render(&report.appendix),
        markdown::render(&report.page),
        markdown::render(&report.appendix),
        json(&report.facts),
        answer::picture(&report.page),
    ];
    let mut names = FILES.into_iter();
    texts.map(|text| (names.next().expect("a name for each text"), text))
}

/// One line of canonical JSON without terminal control characters.
pub fn json(facts: &StudyFacts) -> String {
    visible::json(&files::canonical_json_line(facts)) + "\n"
}

/// The answer, a section a grid, and what was looked at besides: choices, stability, whether the techniques acted.
fn page_of(context: &Context, others: Vec<Section>) -> Page {
    let sections = [answer::section(context)].into_iter().chain(grids::sections(context));
    Page {
        headline: headline::headline(context),
        alerts: answer::alerts(context),
        sections: sections.chain(others).collect(),
        beside: Some(("appendix.html", "Appendix")),
        ..frame(context)
    }
}

fn appendix_of(context: &Context, others: Vec<Section>) -> Page {
    let mut sections = vec![
        comparison::section(context),
        courses::section(context),
        over_sets::section(context),
        problem_map::section(context),
        claims::section(context.judged),
        power::section(context),
        checking::section(context),
        surroundings::section(context),
        omitted::section(context),
    ];
    sections.extend(others);
    sections.retain(|section| !section.blocks.is_empty());
    Page {
        headline: "Appendix: every run, every curve, every comparison, digests and environment."
            .to_owned(),
        sections,
        beside: Some(("report.html", "Report")),
        ..frame(context)
    }
}

fn frame(context: &Context) -> Page {
    let declaration = &context.analysis.declaration;
    let names = context.analysis.grids.iter().map(|grid| text::visible(&grid.name));
    Page {
        kind: "study",
        title: text::visible(&declaration.question),
        subtitle: format!(
            "{} · {} · {}",
            text::joined(names, ", "),
            text::counted(context.counted_cells().len(), "training run", "training runs"),
            if context.study.is_declared() {
                format!("declaration {}", text::short_digest(&context.analysis.declaration_sha256))
            } else {
                "no declaration".to_owned()
            }
        ),
        state: if context.study.is_registered() { "registered" } else { "exploratory" },
        unfinished: context.arms().any(|arm| !arm.missing_seeds.is_empty()),
        ..Page::default()
    }
}
