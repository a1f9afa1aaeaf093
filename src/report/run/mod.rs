//! The report of one run, as HTML, Markdown and JSON, from records and tables alone, without a model.

pub(crate) mod load;
pub(crate) mod arm;
pub(crate) mod dynamics;
pub(crate) mod evaluations;
pub(crate) mod figures;
pub(crate) mod samples;
mod courses;
mod techniques;
pub(crate) mod chapters;

use crate::base::files;
use crate::records::audit::{self, DigestFault};
use crate::records::{FolderEntries, NotFinite, Outcome, RunFolder, Session};
use crate::report::page::Curves;
use crate::report::run::figures::RunFigure;
use crate::report::{
    ReportError, RunCounts, RunReportLoaded, SampleRollout, SetResult, SetsTogether, ShownMetric,
    Technique, endings, html, markdown, text,
};
use crate::study::{Clock, Effects, effect_checks};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Foreign text is already made visible.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub schema: &'static str,
    pub run: RunFacts,
    pub status: RunStatus,
    pub headline: String,
    pub techniques: Vec<Technique>,
    pub effects: Effects,
    pub settings: Vec<(String, String)>,
    pub evaluations: Vec<SetResult>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sets_together: Option<SetsTogether>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_tag: Vec<evaluations::TagResult>,
    /// Pictures of `metrics` and `evaluations`, like those below.
    #[serde(skip)]
    pub figures: Vec<RunFigure>,
    #[serde(skip)]
    pub effect_curves: Vec<Curves>,
    /// Not in the paper.
    #[serde(skip)]
    pub own_curves: Vec<Curves>,
    #[serde(skip)]
    pub pass_at_k: Vec<Curves>,
    pub metrics: Vec<ShownMetric>,
    pub counts: RunCounts,
    pub samples: Vec<SampleRollout>,
    pub environment: BTreeMap<String, String>,
    pub sessions: Vec<Session>,
    /// Input → SHA-256.
    pub inputs: BTreeMap<String, String>,
    /// Written file → SHA-256; empty while the run is unfinished.
    pub digests: BTreeMap<String, String>,
    /// Files that are not as `outcome.json` says; none while the run is unfinished.
    pub damage: Vec<String>,
}

impl Report {
    /// What a reader needs before the result.
    pub fn alerts(&self) -> Vec<String> {
        let damage = (!self.damage.is_empty())
            .then(|| format!("changed since the run ended: {}", self.damage.join("; ")));
        let warnings = self.effects.warnings();
        let warnings = warnings.iter().map(|warning| format!("warning: {warning}"));
        damage.into_iter().chain(warnings).collect()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunFacts {
    pub name: String,
    pub seed: u64,
    pub arm_sha256: String,
    pub run_key: String,
    /// Agreement that a repetition must reach.
    pub exactness: String,
    pub harness: String,
    pub embedded_benchmark: bool,
}

pub const JSON: &str = "report.json";

pub const UNFINISHED: &str = "unfinished";

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunStatus {
    /// `finished`, `saturated`, `stalled`, `diverged` or [`UNFINISHED`].
    pub state: &'static str,
    pub rollout_steps: u64,
    pub planned_rollout_steps: u64,
    pub updates: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_finite: Option<NotFinite>,
    pub sentence: String,
}

/// Writes `report.html`, `report.md` and `report.json`, each atomically.
/// Errors: when the folder holds no run, a record or table is malformed, or a file cannot be written.
pub fn write(run: &RunFolder) -> Result<Report, ReportError> {
    write_into(run, run.root())
}

pub fn write_into(run: &RunFolder, out: &Path) -> Result<Report, ReportError> {
    let report = build(run)?;
    for (name, text) in texts(&report) {
        files::renew(&out.join(name), &text)?;
    }
    Ok(report)
}

/// `report.json` is written last: when it is of the present records, so are the others.
pub fn texts(report: &Report) -> [(&'static str, String); 3] {
    let page = chapters::page(report);
    [
        ("report.html", html::render(&page)),
        ("report.md", markdown::render(&page)),
        (JSON, files::canonical_json(report)),
    ]
}

/// Errors: when the folder holds no run, or a record or table is malformed.
pub fn build(run: &RunFolder) -> Result<Report, ReportError> {
    let loaded = load::load(run)?;
    let evaluations = evaluations::results(&loaded);
    let effects = effect_checks::check(&loaded.experiment, &loaded.metrics);
    let environment = loaded.environment.as_ref().map(|environment| visible(&environment.facts));
    Ok(Report {
        schema: "dapo-report/6",
        run: identity(&loaded),
        status: status(&loaded),
        headline: evaluations::headline(&loaded, &evaluations),
        techniques: arm::techniques(&loaded.experiment, &effects),
        effects,
        settings: arm::settings(&loaded.experiment),
        by_tag: evaluations::by_tag(&loaded),
        figures: figures::beside_the_paper(&loaded.experiment, &loaded.metrics, &evaluations),
        effect_curves: figures::effects(&loaded.experiment, &loaded.metrics),
        own_curves: figures::own(&loaded.experiment, &loaded.metrics),
        pass_at_k: figures::pass_at_k(&evaluations),
        metrics: dynamics::rows(&loaded.experiment, &loaded.metrics),
        counts: dynamics::counts(&loaded),
        samples: samples::samples(&loaded),
        environment: environment.unwrap_or_default(),
        sessions: loaded.sessions.iter().map(visible_session).collect(),
        inputs: visible(&loaded.manifest.inputs),
        digests: loaded.outcome.as_ref().map(|end| visible(&end.digests)).unwrap_or_default(),
        damage: loaded.outcome.as_ref().map_or(Ok(Vec::new()), |end| damage(run, end))?,
        sets_together: evaluations::together(&loaded, &evaluations),
        evaluations,
    })
}

fn damage(run: &RunFolder, outcome: &Outcome) -> Result<Vec<String>, ReportError> {
    let faults = audit::digest_faults(run, &FolderEntries::of(run)?, outcome);
    // Whole checkpoints may be deleted to save room.
    let counts = |(name, fault): &(String, DigestFault)| {
        outcome.digests.contains_key(name) && !matches!(fault, DigestFault::NoCheckpoint)
    };
    let faults = faults.into_iter().filter(counts);
    Ok(faults.map(|(name, fault)| text::visible(&format!("{name}: {fault}"))).collect())
}

/// The score over training, over another clock if asked for. Errors: as [`build`], and without such a curve.
pub fn curves(run: &RunFolder, clock: Clock) -> Result<Curves, ReportError> {
    let loaded = load::load(run)?;
    let refused = |reason| ReportError::Refused { folder: run.root().to_path_buf(), reason };
    let none = || refused("no evaluation is recorded: there is no curve".to_owned());
    let mut curves = figures::accuracy(&evaluations::results(&loaded)).ok_or_else(none)?.curves;
    let x = clock.words();
    for line in &mut curves.lines {
        let centre = line.centre.iter_mut().map(|(at, _)| at);
        for at in centre.chain(line.band.iter_mut().map(|(at, ..)| at)) {
            let reading = dynamics::reading(&loaded, clock, *at);
            *at = reading.ok_or_else(|| refused(format!("its records do not have {x}")))?;
        }
    }
    let unit = format!("{}, %", curves.title);
    Ok(Curves { title: String::new(), x: x.to_owned(), unit, ..curves })
}

fn identity(loaded: &RunReportLoaded) -> RunFacts {
    let manifest = &loaded.manifest;
    RunFacts {
        name: text::visible(&manifest.name),
        seed: manifest.seed,
        arm_sha256: text::visible(&manifest.arm_sha256),
        run_key: text::visible(&manifest.run_key),
        exactness: text::visible(&manifest.exactness),
        harness: text::visible(&manifest.harness),
        embedded_benchmark: loaded.experiment.inputs.data.is_miniature(),
    }
}

fn status(loaded: &RunReportLoaded) -> RunStatus {
    let planned = loaded.experiment.training.rollout_steps;
    let recorded = loaded.metrics.last().map(|step| step.counters).unwrap_or_default();
    let counters = loaded.outcome.as_ref().map_or(recorded, |outcome| outcome.counters);
    let status = RunStatus {
        state: UNFINISHED,
        rollout_steps: counters.rollout_steps,
        planned_rollout_steps: planned,
        updates: counters.updates,
        not_finite: None,
        sentence: String::new(),
    };
    let Some(outcome) = &loaded.outcome else {
        let sentence = format!(
            "This run is unfinished: {} of {planned} rollout steps ({}) are recorded, and there is no outcome.json. \
             What follows is a snapshot, not a result.",
            status.rollout_steps,
            text::updates(status.updates)
        );
        return RunStatus { sentence, ..status };
    };
    let state = outcome.ending.name();
    let sentence = format!(
        "{}: {}. {} of {planned} rollout steps, {}.",
        text::capital(state),
        endings::sentence(outcome),
        status.rollout_steps,
        text::updates(status.updates)
    );
    RunStatus { state, sentence, not_finite: outcome.not_finite.clone(), ..status }
}

fn visible(facts: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    facts.iter().map(|(name, value)| (text::visible(name), text::visible(value))).collect()
}

fn visible_session(session: &Session) -> Session {
    let shown = |[first, here]: &[String; 2]| [text::visible(first), text::visible(here)];
    let changed = session.changed.iter();
    Session {
        changed: changed.map(|(name, values)| (text::visible(name), shown(values))).collect(),
        ..session.clone()
    }
}
