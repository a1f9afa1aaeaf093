//! What a report says, as sections of text, tables and figures. HTML, Markdown and a study's JSON are
//! renderings of this one structure: every number in it is rounded once, where the structure is
//! built, and stands beside the value that it was rounded from.

use crate::report::text;
use serde::Serialize;

/// A whole report, ready to be rendered.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Page {
    /// `run` or `study`.
    #[serde(skip)]
    pub kind: &'static str,
    /// Of a study its question.
    pub title: String,
    /// Identity in one line.
    pub subtitle: String,
    /// `finished`, `saturated`, `diverged`, `unfinished`; `registered`, `exploratory`.
    pub state: &'static str,
    /// The result in a sentence or two, with its interval.
    pub headline: String,
    /// How a run ended; empty for a study.
    #[serde(skip)]
    pub status: String,
    /// What a reader must know before anything else: missing runs, failed checks, warnings.
    pub alerts: Vec<String>,
    /// The few numbers that a reader looks for first.
    pub tiles: Vec<Tile>,
    /// In the order that a reviewer reads.
    pub sections: Vec<Section>,
    /// Whether more is to come: a browser reads the page again every half minute.
    #[serde(skip)]
    pub unfinished: bool,
    /// Another file of the report, and what it holds.
    #[serde(skip)]
    pub beside: Option<(&'static str, &'static str)>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tile {
    pub label: String,
    pub value: String,
    /// Its interval or size.
    pub note: String,
}

impl Tile {
    pub fn new(
        label: impl Into<String>,
        value: impl Into<String>,
        note: impl Into<String>,
    ) -> Self {
        Self { label: label.into(), value: value.into(), note: note.into() }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Section {
    /// Anchor.
    pub id: String,
    pub title: String,
    /// Its name in the list of chapters.
    #[serde(skip)]
    pub name: String,
    pub blocks: Vec<Block>,
}

impl Section {
    pub fn new(id: &str, title: &str, blocks: Vec<Block>) -> Self {
        Self { id: id.to_owned(), title: title.to_owned(), name: title.to_owned(), blocks }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Block {
    Heading(String),
    Text(String),
    /// Sentences, one a line.
    List(Vec<String>),
    Table(Table),
    /// A table that opens on demand, under its caption.
    Folded(Table),
    Figure(Figure),
    /// Lines to copy, or foreign text as it was.
    Code(String),
    /// Blocks that open on demand, under a summary.
    More(String, Vec<Block>),
}

impl Block {
    pub fn heading(text: impl Into<String>) -> Self {
        Self::Heading(text.into())
    }

    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// What it shows, in a sentence.
    pub caption: String,
    pub columns: Vec<Column>,
    /// Rows of as many cells; the first cell names the row.
    pub rows: Vec<Vec<TableCell>>,
}

impl Table {
    /// Columns are named in one line, as in Markdown: `arm | runs #`, where `#` sets numbers to the
    /// right.
    pub fn new(
        caption: impl Into<String>,
        columns: &str,
        rows: impl IntoIterator<Item = Vec<TableCell>>,
    ) -> Self {
        let column = |name: &str| {
            let name = name.trim();
            let (numeric, name) = (name.ends_with('#'), name.trim_end_matches('#').trim_end());
            Column { name: name.to_owned(), numeric }
        };
        let columns = columns.split('|').map(column).collect();
        Self { caption: caption.into(), columns, rows: rows.into_iter().collect() }
    }
}

/// A column's header, with the unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    pub name: String,
    pub numeric: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct TableCell {
    /// What it says, with foreign text made visible.
    pub text: String,
    /// The values that the text was rounded from, in their own unit; shares in [0, 1].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<f64>,
    #[serde(skip_serializing_if = "Look::is_plain")]
    pub look: Look,
    /// A curve in place of the text, where pictures can be shown.
    #[serde(skip)]
    pub spark: Vec<(f64, f64)>,
}

impl TableCell {
    /// A rounded number with the values that it came from.
    pub fn value(text: impl Into<String>, values: impl Into<Vec<f64>>) -> Self {
        Self { text: text.into(), values: values.into(), ..Self::default() }
    }

    pub fn count(count: usize) -> Self {
        Self::value(text::grouped(count as u64), [count as f64])
    }

    /// A value as `show` writes it; a dash where there is none.
    pub fn shown(value: Option<f64>, show: impl Fn(f64) -> String) -> Self {
        value.map_or_else(|| Self::missing("–"), |value| Self::value(show(value), [value]))
    }

    /// What stands where there is nothing, and why.
    pub fn missing(why: impl Into<String>) -> Self {
        Self::from(why).looking(Look::Quiet)
    }

    /// `yes` or `no` of what speaks for or against.
    pub fn verdict(holds: bool, [yes, no]: [&str; 2]) -> Self {
        let (word, look) = if holds { (yes, Look::Good) } else { (no, Look::Bad) };
        Self::from(word).looking(look)
    }

    #[must_use]
    pub fn looking(self, look: Look) -> Self {
        Self { look, ..self }
    }
}

impl<T: Into<String>> From<T> for TableCell {
    fn from(text: T) -> Self {
        Self::value(text, [])
    }
}

/// Cells of one row: each a text or a cell.
macro_rules! row {
    ($($cell:expr),+ $(,)?) => { vec![$($crate::report::page::TableCell::from($cell)),+] };
}
pub(crate) use row;

/// How a cell looks. Nothing is said by the look alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Look {
    #[default]
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
    pub fn is_plain(&self) -> bool {
        *self == Self::Plain
    }

    pub fn of(self, text: impl Into<String>) -> TableCell {
        TableCell::from(text).looking(self)
    }

    /// Its class in the style sheet.
    pub fn class(self) -> String {
        if self.is_plain() { String::new() } else { format!("{self:?}").to_lowercase() }
    }
}

/// A figure: panels with one legend, and the numbers that it shows as a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Anchor, unique on the page.
    pub id: String,
    pub title: String,
    /// What to see, computed from the values.
    pub caption: String,
    /// Names of the lines, in the order of their styles; empty where panels name their own lines.
    pub legend: Vec<LegendEntry>,
    /// Side by side.
    pub panels: Vec<Panel>,
    /// The same numbers to read; Markdown shows this in place of the panels.
    pub numbers: Table,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LegendEntry {
    /// Which of the styles (colour, dashes and marker together).
    pub style: usize,
    pub label: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Panel {
    Curves(Curves),
    Intervals(Intervals),
    Heat(Heat),
    Changes(Changes),
    Outcomes(PageOutcomes),
}

impl Panel {
    /// Above the panel.
    pub fn title(&self) -> &str {
        match self {
            Self::Curves(curves) => &curves.title,
            Self::Changes(changes) => &changes.title,
            Self::Intervals(intervals) => &intervals.title,
            Self::Heat(_) | Self::Outcomes(_) => "",
        }
    }
}

/// Curves over a clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Curves {
    pub title: String,
    /// Name of x.
    pub x: String,
    /// Unit of y.
    pub unit: String,
    /// Whether this is the paper's own curve.
    pub published: bool,
    /// x doubles from tick to tick.
    #[serde(skip)]
    pub doubling: bool,
    #[serde(skip)]
    pub size: PanelSize,
    /// In the order of the legend.
    pub lines: Vec<CurveLine>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PanelSize {
    #[default]
    Whole,
    /// Half as high.
    Low,
    /// One of many beside each other.
    Small,
}

/// One arm's, or one published, curve.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct CurveLine {
    pub label: String,
    pub style: usize,
    /// The mean over the runs, or the published line: (x, y).
    pub centre: Vec<(f64, f64)>,
    /// (x, low, high) around the centre; empty where there is none.
    pub band: Vec<(f64, f64, f64)>,
    /// Every run: seed and its points. The cells hold them.
    #[serde(skip)]
    pub runs: Vec<RunLine>,
    /// For orientation alone: grey and thin.
    #[serde(skip)]
    pub ghost: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunLine {
    pub seed: u64,
    /// (x, y).
    pub points: Vec<(f64, f64)>,
}

/// Rows with a value, its interval and the single runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Intervals {
    pub title: String,
    /// Name of x with its unit.
    pub x: String,
    /// Whether 0 is drawn as the line of no difference.
    pub around_zero: bool,
    /// From top to bottom.
    pub rows: Vec<IntervalRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IntervalRow {
    pub label: String,
    /// What it is compared with, of a difference.
    pub against: Option<String>,
    pub style: usize,
    /// The mean; `None` where there is no run.
    pub centre: Option<f64>,
    pub interval: Option<(f64, f64)>,
    /// The paper's value in its place.
    pub published: Option<f64>,
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

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeatRow {
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

/// Every sample of every problem, the policies side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PageOutcomes {
    pub policies: Vec<&'static str>,
    /// A problem, and one text of marks a policy: `C` correct, `W` wrong, `T` truncated, `N` no answer.
    pub rows: Vec<(String, Vec<String>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_in_one_line_and_filled_with_texts_and_values() {
        let rows = [row![
            "a",
            TableCell::shown(Some(0.5), text::points),
            TableCell::shown(None, text::points)
        ]];
        let table = Table::new("c", "arm | score, % # | p #", rows);
        let columns = table.columns.iter().map(|column| (column.name.as_str(), column.numeric));
        assert!(columns.eq([("arm", false), ("score, %", true), ("p", true)]));
        let cells = table.rows[0]
            .iter()
            .map(|cell| (cell.text.as_str(), cell.values.len(), cell.look.class()));
        let expected = [("a", 0, ""), ("50.0", 1, ""), ("–", 0, "quiet")];
        assert!(cells.eq(expected.map(|(text, values, look)| (text, values, look.to_owned()))));
    }
}
