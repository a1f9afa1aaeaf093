//! Lines, paths, texts, markers and axes as inline SVG. Colours come from the style sheet by class,
//! so that light and dark are one picture; nothing refers to anything outside the file.

use crate::report::text;
use std::borrow::Cow;
use std::fmt::{Display, Write};

/// 9, 5 and 7 have no common factor, so lines that share a colour differ in dashes and marker.
const COLOURS: usize = 9;
const DASHES: usize = 5;
pub const SHAPES: usize = 7;

/// Of a character of text, on average.
pub const CHARACTER: f64 = 6.6;
/// Of one of a name, which is bold.
pub const BOLD_CHARACTER: f64 = 7.6;
/// From a line of text to the next one.
pub const LINE: f64 = 14.0;

pub type PlotPoint = (f64, f64);

pub struct Svg {
    head: String,
    pub extent: PlotPoint,
    pub content: String,
}

impl Svg {
    /// The description is for readers who cannot see the picture.
    pub fn new(class: &str, extent: PlotPoint, description: &str) -> Self {
        let description = escape(description);
        Self::open(class, extent, &format!("role=\"img\" aria-label=\"{description}\""))
    }

    /// Hidden from screen readers: the sentence around it says the same.
    pub fn hidden(class: &str, extent: PlotPoint) -> Self {
        Self::open(class, extent, "aria-hidden=\"true\"")
    }

    fn open(class: &str, extent: PlotPoint, attributes: &str) -> Self {
        let (width, height) = extent;
        let head = format!("<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" {attributes}>");
        Self { head, extent, content: String::new() }
    }

    pub fn line(&mut self, class: &str, (x1, y1): PlotPoint, (x2, y2): PlotPoint) {
        self.path(class, &format!("M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}"));
    }

    pub fn path(&mut self, class: &str, path: &str) {
        if !path.is_empty() {
            let _ = write!(self.content, "<path class=\"{class}\" d=\"{path}\"/>");
        }
    }

    pub fn circle(&mut self, class: &str, (x, y): PlotPoint) {
        let _ =
            write!(self.content, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
    }

    pub fn rect(&mut self, class: &str, (x, y): PlotPoint, (width, height): PlotPoint) {
        let _ = write!(
            self.content,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        );
    }

    pub fn text(&mut self, class: &str, (x, y): PlotPoint, text: impl Display) {
        let text = escape(&text.to_string());
        let _ =
            write!(self.content, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
    }

    pub fn named(&mut self, class: &str, (x, y): PlotPoint, name: &str, rest: &str) {
        let (name, rest) = (escape(name), escape(rest));
        let _ = write!(
            self.content,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\"><tspan class=\"name\">{name}</tspan>{rest}</text>"
        );
    }

    /// `mark` is filled, `seed` hollow.
    pub fn marker(&mut self, class: &str, style: usize, (x, y): PlotPoint) {
        let shape = match style % SHAPES {
            0 => "m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0z",
            1 => "m-2.9 -2.9h5.8v5.8h-5.8z",
            2 => "m0 -4.2l3.8 6.6h-7.6z",
            3 => "m0 -4.2l4.2 4.2l-4.2 4.2l-4.2 -4.2z",
            4 => "m0 4.2l-3.8 -6.6h7.6z",
            5 => "m-1.2 -3.6h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4v-2.4h2.4z",
            _ => "m0 -4.2l4 2.9l-1.5 4.7h-5l-1.5 -4.7z",
        };
        self.path(&format!("{class} c{}", style % COLOURS), &format!("M{x:.1} {y:.1}{shape}"));
    }

    /// What another picture has inside, moved.
    pub fn group(&mut self, (x, y): PlotPoint, inside: &str) {
        let _ = write!(self.content, "<g transform=\"translate({x:.1} {y:.1})\">{inside}</g>");
    }

    /// A line of the style, 38 wide, with its marker.
    pub fn key(&mut self, style: usize, (x, y): PlotPoint) {
        self.line(&format!("line {}", classes(style)), (x + 1.0, y + 6.0), (x + 39.0, y + 6.0));
        self.marker("mark", style, (x + 20.0, y + 6.0));
    }

    pub fn end(self) -> String {
        self.head + &self.content + "</svg>"
    }
}

/// An empty frame with a word of explanation.
pub fn nothing((width, height): PlotPoint, description: &str, word: &str) -> Svg {
    let mut svg = Svg::new("chart", (width, height), description);
    svg.rect("empty", (1.0, 1.0), (width - 2.0, height - 2.0));
    svg.text("nothing", (width / 2.0, height / 2.0 + 4.0), word);
    svg
}

/// Lines of text that fit into the width, at least one; a longer word is broken.
pub fn lines(text: &str, width: f64, character: f64) -> Vec<String> {
    let most = (width / character).max(1.0) as usize;
    textwrap::wrap(text, most).into_iter().map(Cow::into_owned).collect()
}

pub fn classes(style: usize) -> String {
    format!("c{} d{}", style % COLOURS, style % DASHES)
}

pub fn path(points: impl IntoIterator<Item = PlotPoint>) -> String {
    let mut path = String::new();
    for (index, (x, y)) in points.into_iter().enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
    }
    path
}

/// Round numbers over `low` to `high`: about `count` steps of 1, 2, 2.5 or 5 times a power of ten.
pub fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let rough = (high - low) / count as f64;
    if !rough.is_normal() {
        return vec![low, high];
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * power);
    let first = (low / step + 1e-9).floor() as i64;
    let last = (high / step - 1e-9).ceil() as i64;
    (first..=last).map(|index| index as f64 * step).collect()
}

pub fn ticks_inside(low: f64, high: f64, count: usize) -> Vec<f64> {
    let margin = 1e-9 * (high - low);
    let inside = |count| {
        let all = ticks(low, high, count).into_iter();
        all.filter(|tick| (low - margin..=high + margin).contains(tick)).collect::<Vec<_>>()
    };
    (count..count + 8).map(inside).find(|it| it.len() > 1).unwrap_or_else(|| inside(count))
}

/// Enough digits for a step of 0.0025, without trailing zeros.
pub fn tick_label(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        0.0 => "0".to_owned(),
        _ if size >= 1000.0 => text::grouped(size.round() as u64),
        _ if size < 1e-3 => format!("{size:.1e}"),
        _ => format!("{size:.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    };
    if value < 0.0 { format!("−{text}") } else { text }
}

/// Ends of a curve's y axis: at 0 where that is near, and never both at one number.
pub fn span(low: f64, high: f64) -> (f64, f64) {
    let low = if low >= 0.0 && low < 0.2 * high { 0.0 } else { low };
    if high - low > 1e-12 * high.abs().max(1e-300) {
        return (low, high);
    }
    let room = if high == 0.0 { 1.0 } else { high.abs() * 0.5 };
    (if high > 0.0 { 0.0 } else { low - room }, high + room)
}

pub fn escape(text: &str) -> String {
    let escapes = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&quot;"), ("'", "&#39;")];
    escapes.into_iter().fold(text.to_owned(), |text, (mark, shown)| text.replace(mark, shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        assert_eq!(ticks(0.0, 100.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        let fine: Vec<String> = ticks(0.31, 0.79, 5).into_iter().map(tick_label).collect();
        assert_eq!(fine, ["0.3", "0.4", "0.5", "0.6", "0.7", "0.8"]);
        let labels: Vec<String> =
            [0.0, -0.6000000000000001, 4000.0, 0.0025, 2e-6].map(tick_label).into();
        assert_eq!(labels, ["0", "−0.6", "4,000", "0.0025", "2.0e-6"]);
    }

    #[test]
    fn an_axis_may_be_as_short_as_a_number_can_be() {
        assert_eq!(ticks(0.0, 5e-324, 4), [0.0, 5e-324]);
    }

    #[test]
    fn an_axis_has_two_ticks_inside_however_few_are_asked_for() {
        assert_eq!(ticks_inside(-48.0, 95.0, 1), [0.0, 50.0]);
        for (low, high) in (1..2000).map(|at| (-1.7 * f64::from(at), 3.1 + f64::from(at % 97))) {
            for count in 1..6 {
                let places = ticks_inside(low, high, count);
                assert!(places.len() > 1, "{low} to {high}: {places:?}");
                assert!(places.iter().all(|place| (low..=high).contains(place)), "{places:?}");
            }
        }
    }

    #[test]
    fn text_fills_the_lines_and_no_character_of_it_is_lost() {
        let shown = lines("checked-chains, of the equal generated tokens", 80.0, CHARACTER);
        assert!(shown.iter().all(|line| line.chars().count() <= 12), "{shown:?}");
        assert_eq!(shown.concat().replace(' ', ""), "checked-chains,oftheequalgeneratedtokens");
        assert_eq!(lines("", 80.0, CHARACTER), [""]);
        assert_eq!(lines("ab", 0.0, CHARACTER), ["a", "b"]);
    }

    #[test]
    fn two_arms_of_a_grid_never_look_the_same() {
        let mut seen = BTreeSet::new();
        for style in 0..COLOURS * DASHES * SHAPES {
            assert!(seen.insert((style % COLOURS, style % DASHES, style % SHAPES)), "{style}");
        }
    }

    #[test]
    fn marks_of_markup_are_escaped_once() {
        assert_eq!(escape("<a \"b\"> & 'c'"), "&lt;a &quot;b&quot;&gt; &amp; &#39;c&#39;");
    }
}
