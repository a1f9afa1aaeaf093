//! A report as sections of text, tables and figures; HTML, Markdown and text for terminals are made from it.

use crate::report::text;
use crate::statistics::{Interval, aggregates};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// `run`, `study`, `comparison` or `index`.
    pub kind: &'static str,
    pub title: String,
    pub subtitle: String,
    /// `finished`, `saturated`, `diverged`, `unfinished`; `registered`, `exploratory`; empty for a comparison.
    pub state: &'static str,
    /// The result in a sentence or two, with its interval.
    pub headline: String,
    /// How a run ended; empty for a study.
    pub status: String,
    /// A reader needs these first: missing runs, failed checks, warnings.
    pub alerts: Vec<String>,
    pub tiles: Vec<Tile>,
    pub sections: Vec<Section>,
    /// A browser then loads the page again every half minute.
    pub unfinished: bool,
    pub beside: Option<(&'static str, &'static str)>,
    /// For comfort alone: the page says everything without it. Empty for reports.
    pub script: &'static str,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Tile {
    pub label: String,
    pub value: String,
    pub note: String,
}

impl Tile {
    pub fn new(label: impl Into<String>, value: String, note: String) -> Self {
        Self { label: label.into(), value, note }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    pub id: String,
    pub title: String,
    pub name: String,
    pub blocks: Vec<Block>,
}

impl Section {
    pub fn new(id: &str, title: &str, blocks: Vec<Block>) -> Self {
        Self { id: id.to_owned(), title: title.to_owned(), name: title.to_owned(), blocks }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    Heading(String),
    Text(String),
    List(Vec<String>),
    Table(Table),
    /// Opens on demand, under its caption.
    Folded(Table),
    Figure(Figure),
    /// Lines to copy, or foreign text.
    Code(String),
    More(String, Vec<Block>),
}

impl Block {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    pub caption: String,
    pub columns: Vec<Column>,
    /// The first cell of a row names it.
    pub rows: Vec<Vec<TableCell>>,
}

impl Table {
    /// Columns in a line, as in Markdown: `arm | runs #`. `#` marks numbers, `?` what a narrow terminal may leave out.
    pub fn new(
        caption: impl Into<String>,
        columns: &str,
        rows: impl IntoIterator<Item = Vec<TableCell>>,
    ) -> Self {
        let columns = columns.split('|').map(Column::new).collect();
        Self { caption: caption.into(), columns, rows: rows.into_iter().collect() }
    }

    /// More columns, each marked as in [`Self::new`]; a name may have its separator.
    #[must_use]
    pub fn with(mut self, columns: impl IntoIterator<Item = String>) -> Self {
        self.columns.extend(columns.into_iter().map(|name| Column::new(&name)));
        self
    }

    /// `None` without rows.
    pub fn filled(self) -> Option<Self> {
        (!self.rows.is_empty()).then_some(self)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    pub name: String,
    pub numeric: bool,
    pub optional: bool,
}

impl Column {
    /// `#` and `?` at the end mark it, as in [`Table::new`].
    pub fn new(marked: &str) -> Self {
        let name = marked.trim_end_matches(['#', '?', ' ']);
        let marks = &marked[name.len()..];
        let (numeric, optional) = (marks.contains('#'), marks.contains('?'));
        Self { name: name.trim().to_owned(), numeric, optional }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TableCell {
    pub text: String,
    pub look: Look,
    /// An address that the first cell of a row leads to; may be empty.
    pub link: String,
}

impl TableCell {
    pub fn count(count: usize) -> Self {
        Self::from(text::grouped(count as u64))
    }

    /// A dash for `None`.
    pub fn shown(value: Option<f64>, show: impl Fn(f64) -> String) -> Self {
        Self::or(value.map(show), "–")
    }

    /// What is shown, or why there is no value.
    pub fn or<T: Into<String>>(shown: Option<T>, why_not: &str) -> Self {
        shown.map_or_else(|| Look::Quiet.of(why_not), Self::from)
    }

    #[must_use]
    pub fn looking(self, look: Look) -> Self {
        Self { look, ..self }
    }
}

impl<T: Into<String>> From<T> for TableCell {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// First value, course as block characters, last, lowest and highest value.
pub fn course(
    points: &[(f64, f64)],
    columns: usize,
    show: impl Fn(f64) -> String,
) -> [TableCell; 5] {
    let (low, high) = aggregates::range(points.iter().map(|point| point.1));
    let cell = |value: Option<f64>| TableCell::shown(value.filter(|it| it.is_finite()), &show);
    [
        cell(points.first().map(|point| point.1)),
        TableCell::from(text::sparkline(points, columns)),
        cell(points.last().map(|point| point.1)),
        cell(Some(low)),
        cell(Some(high)),
    ]
}

/// Cells of one row: each a text or a cell.
macro_rules! row {
    ($($cell:expr),+ $(,)?) => { vec![$($crate::report::page::TableCell::from($cell)),+] };
}
pub(crate) use row;

/// Text must say everything that a style says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Look {
    #[default]
    Plain,
    Strong,
    Quiet,
    Code,
    Good,
    Bad,
    /// Shown to be about the same: the opposite of [`Self::Open`].
    Same,
    Open,
}

impl Look {
    pub fn of(self, text: impl Into<String>) -> TableCell {
        TableCell::from(text).looking(self)
    }

    /// Its class in the style sheet.
    pub fn class(self) -> String {
        if self == Self::Plain { String::new() } else { format!("{self:?}").to_lowercase() }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figure {
    /// Anchor, unique on the page.
    pub id: String,
    pub title: String,
    /// What to see, computed from the values.
    pub caption: String,
    /// Styles (colour, dashes and marker together) in their order, and what has them; empty where panels name their own lines.
    pub legend: Vec<(usize, String)>,
    pub panels: Vec<Panel>,
    /// Markdown shows this in place of the panels.
    pub numbers: Table,
}

pub fn legend(lines: &[CurveLine]) -> Vec<(usize, String)> {
    lines.iter().map(|line| (line.style, line.label.clone())).collect()
}

#[derive(Debug, Clone, PartialEq)]
pub enum Panel {
    Curves(Curves),
    Intervals(Intervals),
    Heat(Heat),
    Changes(Changes),
}

impl Panel {
    pub fn title(&self) -> &str {
        match self {
            Self::Curves(curves) => &curves.title,
            Self::Changes(changes) => &changes.title,
            Self::Intervals(intervals) => &intervals.title,
            Self::Heat(_) => "",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curves {
    pub title: String,
    pub x: String,
    pub unit: String,
    pub published: bool,
    /// x doubles from tick to tick.
    pub doubling: bool,
    pub size: PanelSize,
    pub lines: Vec<CurveLine>,
    pub left_out: Vec<String>,
}

impl Curves {
    pub fn new(title: impl Into<String>, x: &str, unit: &str, lines: Vec<CurveLine>) -> Self {
        let (title, x, unit) = (title.into(), x.to_owned(), unit.to_owned());
        Self { title, x, unit, lines, ..Self::default() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PanelSize {
    #[default]
    Whole,
    Low,
    Small,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CurveLine {
    pub label: String,
    pub style: usize,
    /// Mean over the runs, or the published line: (x, y).
    pub centre: Vec<(f64, f64)>,
    /// (x, low, high) around the centre; empty where there is none.
    pub band: Vec<(f64, f64, f64)>,
    pub runs: Vec<Vec<(f64, f64)>>,
    pub interpolated_at: Vec<f64>,
    pub ghost: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Intervals {
    pub title: String,
    pub x: String,
    /// 0 is the line of no difference.
    pub around_zero: bool,
    /// What its bars are, for a figure without a caption.
    pub bars: String,
    pub rows: Vec<IntervalRow>,
}

impl Intervals {
    pub fn new(title: &str, x: &str, around_zero: bool, rows: Vec<IntervalRow>) -> Self {
        let (title, x, bars) = (title.to_owned(), x.to_owned(), String::new());
        Self { title, x, around_zero, bars, rows }
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct IntervalRow {
    pub label: String,
    pub against: Option<String>,
    pub measure: String,
    pub style: usize,
    pub centre: Option<f64>,
    pub interval: Option<(f64, f64)>,
    /// Half width of the range in which differences count as none.
    pub margin: Option<f64>,
    pub published: Option<f64>,
    pub runs: Vec<(Option<u64>, f64)>,
    pub note: TableCell,
}

impl IntervalRow {
    /// A value with its interval, in the unit of print: `scale` is its factor.
    pub fn of(
        label: impl Into<String>,
        style: usize,
        (centre, interval): (Option<f64>, Option<Interval>),
        scale: f64,
    ) -> Self {
        Self {
            label: label.into(),
            style,
            centre: centre.map(|value| scale * value),
            interval: interval.map(|it| (scale * it.low, scale * it.high)),
            ..Self::default()
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Heat {
    pub columns: String,
    /// Labels and shares.
    pub rows: Vec<(String, Vec<f64>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    pub title: String,
    pub differences: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_in_one_line_and_filled_with_texts() {
        let rows = [row![
            "a",
            TableCell::shown(Some(0.5), text::points),
            TableCell::shown(None, text::points)
        ]];
        let table = Table::new("c", "arm | score, % # | p #", rows);
        let columns = table.columns.iter().map(|column| (column.name.as_str(), column.numeric));
        assert!(columns.eq([("arm", false), ("score, %", true), ("p", true)]));
        let cells = table.rows[0].iter().map(|cell| (cell.text.as_str(), cell.look.class()));
        let expected = [("a", ""), ("50.0", ""), ("–", "quiet")];
        assert!(cells.eq(expected.map(|(text, look)| (text, look.to_owned()))));
    }
}
