//! What the report of a study says, as sections of text, tables and figures. HTML, Markdown and
//! JSON are three renderings of this one structure: every number in it is rounded once, where
//! the structure is built, and stands beside the value that it was rounded from.

use serde::Serialize;

/// A chapter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Section {
    /// Anchor.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Its content.
    pub blocks: Vec<Block>,
}

/// A piece of a chapter.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Block {
    /// A smaller heading.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// Sentences, one a line.
    List(Vec<String>),
    /// A table.
    Table(Table),
    /// A table that opens on demand, under its caption.
    Folded(Table),
    /// A figure.
    Figure(Figure),
    /// Lines to copy.
    Code(String),
    /// Blocks that open on demand, under a summary.
    More(String, Vec<Block>),
}

/// A table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// What it shows, in a sentence.
    pub caption: String,
    /// Header.
    pub columns: Vec<Column>,
    /// Rows of as many cells; the first cell names the row.
    pub rows: Vec<Vec<TableCell>>,
}

/// A column's header.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    /// What it holds, with the unit.
    pub name: String,
    /// Set to the right.
    pub numeric: bool,
}

impl Column {
    /// A column of text.
    pub fn text(name: impl Into<String>) -> Self {
        Self { name: name.into(), numeric: false }
    }

    /// A column of numbers.
    pub fn number(name: impl Into<String>) -> Self {
        Self { name: name.into(), numeric: true }
    }
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TableCell {
    /// What it says, with foreign text made visible.
    pub text: String,
    /// The values that the text was rounded from, in their own unit; shares in [0, 1].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<f64>,
    /// How it looks.
    #[serde(skip_serializing_if = "Look::is_plain")]
    pub look: Look,
}

/// How a cell looks. Nothing is said by the look alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Look {
    /// As it is.
    Plain,
    /// What a reader looks for.
    Strong,
    /// Less important.
    Quiet,
    /// Digests, keys, files.
    Code,
    /// A word that speaks for the claim.
    Good,
    /// A word that speaks against it.
    Bad,
    /// A word that leaves it open.
    Open,
}

impl Look {
    /// Whether it is [`Look::Plain`].
    pub fn is_plain(&self) -> bool {
        *self == Self::Plain
    }

    /// Its class in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "strong",
            Self::Quiet => "quiet",
            Self::Code => "code",
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Open => "open",
        }
    }
}

impl TableCell {
    /// Text as it is.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), values: Vec::new(), look: Look::Plain }
    }

    /// A rounded number with the values that it came from.
    pub fn value(text: impl Into<String>, values: impl Into<Vec<f64>>) -> Self {
        Self { text: text.into(), values: values.into(), look: Look::Plain }
    }

    /// What stands where there is nothing, and why.
    pub fn missing(why: impl Into<String>) -> Self {
        Self::plain(why).looking(Look::Quiet)
    }

    /// With a look.
    #[must_use]
    pub fn looking(self, look: Look) -> Self {
        Self { look, ..self }
    }
}

/// A figure: panels with one legend, and the numbers that it shows as a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Anchor, unique on the page.
    pub id: String,
    /// What is shown.
    pub title: String,
    /// What to see, computed from the values.
    pub caption: String,
    /// Names of the lines, in the order of their styles; empty where panels name their own rows.
    pub legend: Vec<LegendEntry>,
    /// Side by side.
    pub panels: Vec<Panel>,
    /// The same numbers to read; Markdown shows this in place of the panels.
    pub numbers: Table,
}

/// A line's name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LegendEntry {
    /// Which of the styles (colour, dashes and marker together).
    pub style: usize,
    /// Its name.
    pub label: String,
}

/// A picture.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Panel {
    /// Curves.
    Curves(Curves),
    /// A value with an interval in each row.
    Intervals(Intervals),
    /// Shares as shades, a row for each arm.
    Heat(Heat),
    /// Differences as bars from zero, sorted.
    Changes(Changes),
}

/// Curves over a clock.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curves {
    /// Above the panel.
    pub title: String,
    /// Name of x.
    pub x: String,
    /// Unit of y.
    pub unit: String,
    /// Whether this is the paper's own curve.
    pub published: bool,
    /// In the order of the legend.
    pub lines: Vec<CurveLine>,
}

/// One arm's, or one published, curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CurveLine {
    /// Its name.
    pub label: String,
    /// Style of the legend.
    pub style: usize,
    /// The mean over the runs, or the published line: (x, y).
    pub centre: Vec<(f64, f64)>,
    /// (x, low, high) around the centre; empty where there is none.
    pub band: Vec<(f64, f64, f64)>,
    /// Every run: seed and its points.
    pub runs: Vec<RunLine>,
}

/// One run's curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunLine {
    /// The run seed.
    pub seed: u64,
    /// (x, y).
    pub points: Vec<(f64, f64)>,
}

/// Rows with a value, its interval and the single runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Intervals {
    /// Above the panel.
    pub title: String,
    /// Name of x with its unit.
    pub x: String,
    /// Whether 0 is drawn as the line of no difference.
    pub around_zero: bool,
    /// From top to bottom.
    pub rows: Vec<IntervalRow>,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IntervalRow {
    /// Its name.
    pub label: String,
    /// What it is compared with, of a difference.
    pub against: Option<String>,
    /// Style of its marks.
    pub style: usize,
    /// The mean; `None` where there is no run.
    pub centre: Option<f64>,
    /// (low, high).
    pub interval: Option<(f64, f64)>,
    /// Every run.
    pub runs: Vec<f64>,
    /// At the row's end.
    pub note: String,
}

/// Shares of correct answers: a row for each arm, a column for each problem.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Heat {
    /// Name of the columns.
    pub columns: String,
    /// Problems' places in the evaluated set, in the order of the columns.
    pub order: Vec<usize>,
    /// From top to bottom.
    pub rows: Vec<HeatRow>,
}

/// One arm's problems.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeatRow {
    /// Its name.
    pub label: String,
    /// Share in [0, 1] for each column; `None` where nothing was evaluated.
    pub shares: Vec<Option<f64>>,
}

/// Paired differences by problem, from the largest gain to the largest loss.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Changes {
    /// Which arm against which.
    pub title: String,
    /// Differences of shares, falling.
    pub differences: Vec<f64>,
}

/// A whole report, ready to be rendered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Page {
    /// The study's name.
    pub title: String,
    /// Identity in one line.
    pub subtitle: String,
    /// `registered` or `exploratory`.
    pub state: &'static str,
    /// What the study asks.
    pub question: String,
    /// The answer in a sentence or two, with its interval.
    pub headline: String,
    /// What a reader must know before anything else: missing runs, warnings.
    pub alerts: Vec<String>,
    /// The few numbers that a reader looks for first.
    pub tiles: Vec<Tile>,
    /// In the order that a reviewer reads.
    pub sections: Vec<Section>,
}

/// One number with its meaning.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tile {
    /// What it is.
    pub label: String,
    /// The number.
    pub value: String,
    /// Its interval or size.
    pub note: String,
}
