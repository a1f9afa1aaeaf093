//! The report as sections of text, grids and figures: what HTML and Markdown both show, with
//! every number already rounded, so that the two cannot differ.

use crate::report::run::figures::Figure;
use crate::report::run::{Report, appendix, sections};
use crate::report::{SampleRollout, Strip, text};

/// A whole report, ready to be rendered.
pub struct Document<'a> {
    /// Arm and seed.
    pub title: String,
    /// Identity in one line.
    pub subtitle: String,
    /// `finished`, `saturated`, `diverged` or `unfinished`.
    pub state: &'static str,
    /// How the run ended.
    pub status: &'a str,
    /// The result in one sentence.
    pub headline: &'a str,
    /// Checks that failed, and techniques that are on and did nothing or off and acted.
    pub alerts: Vec<String>,
    /// The few numbers that a reader looks for first.
    pub tiles: Vec<Tile>,
    /// In reviewer order.
    pub sections: Vec<Section<'a>>,
}

/// One number with its meaning.
pub struct Tile {
    /// What it is.
    pub label: String,
    /// The number.
    pub value: String,
    /// Its interval or size.
    pub note: String,
}

/// A chapter.
pub struct Section<'a> {
    /// Anchor.
    pub id: &'static str,
    /// Heading.
    pub title: &'static str,
    /// Its content.
    pub blocks: Vec<Block<'a>>,
}

/// A piece of a chapter.
pub enum Block<'a> {
    /// A smaller heading.
    Heading(&'static str),
    /// A paragraph.
    Text(String),
    /// A table.
    Grid(Grid),
    /// A table that opens on demand.
    Folded(String, Grid),
    /// Our panel beside the paper's.
    Beside(&'a [Figure]),
    /// Small panels of ours alone.
    Charts(&'a [Figure]),
    /// Outcomes of one set.
    Strip(&'a Strip),
    /// Rollouts to read.
    Samples(&'a [SampleRollout]),
    /// Lines to copy.
    Code(String),
}

/// A table.
pub struct Grid {
    /// Header; a name that ends in `#` heads a column of numbers.
    pub columns: Vec<&'static str>,
    /// Rows of as many cells.
    pub rows: Vec<Vec<Cell>>,
}

/// One cell.
pub struct Cell {
    /// What it says.
    pub text: String,
    /// How it looks: empty, `strong`, `name`, `policy`, `on`, `off`, `good`, `bad`, `code`, `quiet`.
    pub look: &'static str,
    /// A curve in place of the text, where pictures can be shown.
    pub spark: Option<Vec<(f64, f64)>>,
}

impl Cell {
    /// Text as it is.
    pub fn plain(text: impl Into<String>) -> Self {
        Self::styled("", text)
    }

    /// Text with a look.
    pub fn styled(look: &'static str, text: impl Into<String>) -> Self {
        Self { text: text.into(), look, spark: None }
    }
}

/// Arranges a report in reviewer order.
pub fn document(report: &Report) -> Document<'_> {
    let run = &report.run;
    let failed = report.checks.iter().filter(|check| !check.held);
    let failed = failed.map(|check| format!("not so: {} ({})", check.what, check.detail));
    let warnings = report.effects.warnings().into_iter().map(|text| format!("warning: {text}"));
    Document {
        title: format!("{}, seed {}", run.name, run.seed),
        subtitle: format!(
            "arm {} · run {} · harness {} · exactness: {}",
            text::short_digest(&run.arm_sha256),
            text::short_digest(&run.run_key),
            run.harness,
            run.exactness
        ),
        state: report.status.state,
        status: &report.status.sentence,
        headline: &report.headline,
        alerts: failed.chain(warnings).collect(),
        tiles: tiles(report),
        sections: vec![
            sections::what_was_run(report),
            sections::effects(report),
            sections::evaluation(report),
            sections::curves(report),
            sections::dynamics(report),
            sections::cost(report),
            sections::samples(report),
            appendix::environment(report),
            appendix::checklist(report),
            appendix::published(report),
            appendix::checking(report),
        ],
    }
}

fn tiles(report: &Report) -> Vec<Tile> {
    let mut tiles = Vec::new();
    if let Some(result) = report.evaluations.first() {
        if let Some(evaluation) = result.last.as_ref().or(result.base.as_ref()) {
            let policy = if result.last.is_some() { "final" } else { "base" };
            let around = &evaluation.avg_at_k.fixed_problems;
            tiles.push(Tile {
                label: format!("avg@{} on {}, {policy}", result.samples, result.set),
                value: text::percent(evaluation.avg_at_k.value),
                note: format!("95 %, these problems: {}", text::interval(around.low, around.high)),
            });
        }
        if let Some(difference) = &result.difference {
            let around = &difference.new_problems;
            tiles.push(Tile {
                label: "change from the base policy".to_owned(),
                value: format!("{} points", text::signed_points(difference.value)),
                note: format!("95 %, other problems: {}", text::interval(around.low, around.high)),
            });
        }
    }
    let counts = &report.counts;
    tiles.push(Tile {
        label: "updates".to_owned(),
        value: text::grouped(counts.counters.updates),
        note: format!(
            "{} rollout steps, {} generation rounds",
            text::grouped(counts.counters.rollout_steps),
            text::grouped(counts.counters.generation_rounds)
        ),
    });
    if let Some(seconds) = counts.seconds {
        let tokens = counts.generated_tokens.map(|tokens| text::grouped(tokens as u64));
        tiles.push(Tile {
            label: "wall clock".to_owned(),
            value: text::duration(seconds),
            note: tokens.map(|tokens| format!("{tokens} tokens generated")).unwrap_or_default(),
        });
    }
    tiles
}
