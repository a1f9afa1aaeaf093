//! Inline SVG. Colours come from the page's style sheet by class, so that light and dark are
//! one picture; nothing refers to anything outside the file.

use crate::report::run::figures::Line;
use crate::report::{Strip, text};
use std::fmt::Write;

/// (width, height) of a panel that shares the page's width with one other.
pub const WIDE: (f64, f64) = (460.0, 214.0);
/// (width, height) of a panel that shares the page's width with two others.
pub const SMALL: (f64, f64) = (330.0, 186.0);
const LEFT: f64 = 54.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 34.0;
/// Above this many points a line is drawn without markers.
const MARKED_POINTS: usize = 24;

/// How a chart is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Style<'a> {
    /// For readers who cannot see it.
    pub description: &'a str,
    /// Unit of y, written above the axis.
    pub unit: &'a str,
    /// Colour class of the first line: `ours` or `paper`.
    pub family: &'a str,
    /// x counts samples and doubles from tick to tick.
    pub doubling: bool,
    /// [`WIDE`] or [`SMALL`]: text has the same size on the page in both.
    pub size: (f64, f64),
}

/// Lines over updates. Empty lines give an empty frame with a word of explanation.
pub fn chart(lines: &[Line], style: &Style) -> String {
    let (width, height) = style.size;
    let mut svg = format!(
        "<svg class=\"chart\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
        escape(style.description)
    );
    if lines.iter().all(|line| line.points.is_empty()) {
        let _ = write!(
            svg,
            "<rect class=\"empty\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\"/>\
             <text class=\"nothing\" x=\"{}\" y=\"{}\">not recorded in this run</text></svg>",
            width - LEFT - RIGHT,
            height - TOP - BOTTOM,
            (LEFT + width - RIGHT) / 2.0,
            (TOP + height - BOTTOM) / 2.0 + 4.0
        );
        return svg;
    }
    let frame = Frame::around(lines, style);
    frame.axes(&mut svg, style);
    for (index, line) in lines.iter().enumerate().rev() {
        frame.line(&mut svg, line, &format!("{}{index}", style.family));
    }
    svg.push_str("</svg>");
    svg
}

/// The data's place on the canvas.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
    x_ticks: Vec<f64>,
    y_ticks: Vec<f64>,
    doubling: bool,
    size: (f64, f64),
}

impl Frame {
    fn around(lines: &[Line], style: &Style) -> Self {
        let points = || lines.iter().flat_map(|line| line.points.iter());
        let margin =
            |line: &Line, index: usize| line.half_widths.get(index).copied().unwrap_or(0.0);
        let ends = lines.iter().flat_map(|line| {
            line.points
                .iter()
                .enumerate()
                .flat_map(move |(index, (_, y))| [y - margin(line, index), y + margin(line, index)])
        });
        let (mut low, mut high) = text::range(ends);
        // A share's interval ends where shares end.
        if style.unit == "percent" {
            (low, high) = (low.max(0.0), high.min(100.0));
        }
        if low >= 0.0 && low < 0.4 * high {
            low = 0.0;
        }
        if high - low <= 1e-12 * high.abs().max(1e-300) {
            let room = if high == 0.0 { 1.0 } else { high.abs() * 0.5 };
            (low, high) = (if high > 0.0 { 0.0 } else { low - room }, high + room);
        }
        let y_ticks = ticks(low, high, 4);
        let y = (y_ticks[0].min(low), y_ticks[y_ticks.len() - 1].max(high));
        let (first, last) = text::range(points().map(|point| point.0));
        let (x, x_ticks) = if style.doubling {
            let doubles: Vec<f64> = std::iter::successors(Some(first.max(1.0)), |x| Some(x * 2.0))
                .take_while(|x| *x <= last)
                .collect();
            ((first.max(1.0), last.max(first * 2.0)), doubles)
        } else {
            let start = if first < 0.3 * last { first.min(0.0) } else { first };
            let end = if last > start { last } else { start + 1.0 };
            let inside = |tick: &f64| *tick >= start - 1e-9 && *tick <= end + 1e-9;
            ((start, end), ticks(start, end, 5).into_iter().filter(inside).collect())
        };
        Self { x, y, x_ticks, y_ticks, doubling: style.doubling, size: style.size }
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let scale = |value: f64| if self.doubling { value.log2() } else { value };
        let part = (scale(x) - scale(self.x.0)) / (scale(self.x.1) - scale(self.x.0));
        let height = (y - self.y.0) / (self.y.1 - self.y.0);
        (
            LEFT + part * (self.size.0 - LEFT - RIGHT),
            self.size.1 - BOTTOM - height.clamp(0.0, 1.0) * (self.size.1 - TOP - BOTTOM),
        )
    }

    fn axes(&self, svg: &mut String, style: &Style) {
        for tick in &self.y_ticks {
            let (_, y) = self.at(self.x.0, *tick);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick y\" x=\"{}\" y=\"{:.1}\">{}</text>",
                self.size.0 - RIGHT,
                LEFT - 7.0,
                y + 3.8,
                tick_label(*tick)
            );
        }
        let floor = self.size.1 - BOTTOM;
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{floor}\" y2=\"{floor}\"/>",
            self.size.0 - RIGHT
        );
        for tick in &self.x_ticks {
            let (x, _) = self.at(*tick, self.y.0);
            let _ = write!(
                svg,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{floor}\" y2=\"{}\"/>\
                 <text class=\"tick x\" x=\"{x:.1}\" y=\"{}\">{}</text>",
                floor + 4.0,
                floor + 16.0,
                tick_label(*tick)
            );
        }
        let _ = write!(
            svg,
            "<text class=\"label\" x=\"{}\" y=\"12\">{}</text>\
             <text class=\"label end\" x=\"{}\" y=\"{}\">{}</text>",
            LEFT - 46.0,
            escape(style.unit),
            self.size.0 - RIGHT,
            self.size.1 - 4.0,
            if self.doubling { "k" } else { "updates" }
        );
    }

    fn line(&self, svg: &mut String, line: &Line, class: &str) {
        for ((x, y), half) in line.points.iter().zip(&line.half_widths) {
            let (px, top) = self.at(*x, y + half);
            let (_, bottom) = self.at(*x, y - half);
            let _ = write!(
                svg,
                "<line class=\"interval {class}\" x1=\"{px:.1}\" x2=\"{px:.1}\" y1=\"{top:.1}\" y2=\"{bottom:.1}\"/>"
            );
        }
        let mut path = String::new();
        for (index, (x, y)) in line.points.iter().enumerate() {
            let (px, py) = self.at(*x, *y);
            let _ = write!(path, "{}{px:.1} {py:.1}", if index == 0 { 'M' } else { 'L' });
        }
        let _ = write!(svg, "<path class=\"line {class}\" d=\"{path}\"/>");
        let marked = if line.points.len() <= MARKED_POINTS { 0 } else { line.points.len() - 1 };
        for (x, y) in &line.points[marked..] {
            let (px, py) = self.at(*x, *y);
            let _ = write!(
                svg,
                "<circle class=\"dot {class}\" cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"2.4\"/>"
            );
        }
    }
}

/// Round numbers that cover `low` to `high` in about `count` steps of 1, 2, 2.5 or 5 times a
/// power of ten.
pub fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let rough = (high - low) / count as f64;
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

/// A tick's value: enough digits for a step of 0.0025, without trailing zeros.
pub fn tick_label(value: f64) -> String {
    let size = value.abs();
    let text = match size {
        0.0 => "0".to_owned(),
        _ if size >= 1000.0 => text::grouped(size.round() as u64),
        _ if size < 1e-3 => format!("{size:.1e}"),
        // Enough digits for a step of 0.0025, without trailing zeros.
        _ => format!("{size:.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    };
    if value < 0.0 { format!("−{text}") } else { text }
}

/// A curve the height of a line of text.
pub fn sparkline(points: &[(f64, f64)]) -> String {
    let (x_low, x_high) = text::range(points.iter().map(|point| point.0));
    let (y_low, y_high) = text::range(points.iter().map(|point| point.1));
    let part = |value: f64, low: f64, high: f64| {
        if high > low { (value - low) / (high - low) } else { 0.5 }
    };
    let mut path = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let px = 2.0 + 92.0 * part(*x, x_low, x_high);
        let py = 18.0 - 16.0 * part(*y, y_low, y_high);
        let _ = write!(path, "{}{px:.1} {py:.1}", if index == 0 { 'M' } else { 'L' });
    }
    format!(
        "<svg class=\"spark\" viewBox=\"0 0 96 20\" aria-hidden=\"true\"><path class=\"line ours0\" d=\"{path}\"/></svg>"
    )
}

const MARKS: [(char, &str); 4] =
    [('C', "correct"), ('W', "wrong"), ('T', "truncated"), ('N', "no-answer")];
const STRIP_WIDTH: f64 = 960.0;
const NAME_WIDTH: f64 = 132.0;
const SHARE_WIDTH: f64 = 46.0;
const ROW_HEIGHT: f64 = 13.0;

/// One cell a sample, one row a problem, the base policy left of the final one.
pub fn strip(strip: &Strip) -> String {
    let has_base = strip.rows.iter().any(|row| row.base.is_some());
    let has_last = strip.rows.iter().any(|row| row.last.is_some());
    let panels = f64::from(u8::from(has_base) + u8::from(has_last)).max(1.0);
    let panel = (STRIP_WIDTH - NAME_WIDTH) / panels - SHARE_WIDTH - 16.0;
    let height = 26.0 + ROW_HEIGHT * strip.rows.len() as f64;
    let mut svg = format!(
        "<svg class=\"strip\" viewBox=\"0 0 {STRIP_WIDTH} {height}\" role=\"img\" \
         aria-label=\"outcome of every sample of {}\">",
        escape(&strip.set)
    );
    for (index, row) in strip.rows.iter().enumerate() {
        let name: String = row.problem.chars().take(22).collect();
        let _ = write!(
            svg,
            "<text class=\"tick y\" x=\"{}\" y=\"{:.1}\">{}</text>",
            NAME_WIDTH - 10.0,
            26.0 + ROW_HEIGHT * index as f64 + 9.6,
            escape(&name)
        );
    }
    let mut left = NAME_WIDTH;
    let base: Vec<&Option<String>> = strip.rows.iter().map(|row| &row.base).collect();
    let last: Vec<&Option<String>> = strip.rows.iter().map(|row| &row.last).collect();
    for (title, rows, shown) in [("base policy", base, has_base), ("final policy", last, has_last)]
    {
        if shown {
            strip_panel(&mut svg, title, &rows, left, panel);
            left += panel + SHARE_WIDTH + 16.0;
        }
    }
    svg.push_str("</svg>");
    svg
}

fn strip_panel(svg: &mut String, title: &str, rows: &[&Option<String>], left: f64, width: f64) {
    let columns = rows.iter().filter_map(|row| row.as_ref()).map(String::len).max().unwrap_or(1);
    // At least a hair between cells; cells stay cells with few samples.
    let pitch = (width / columns as f64).min(24.0);
    let _ = write!(svg, "<text class=\"panel\" x=\"{left:.1}\" y=\"14\">{title}</text>");
    for (mark, class) in MARKS {
        let mut path = String::new();
        for (index, row) in rows.iter().enumerate() {
            let y = 26.0 + ROW_HEIGHT * index as f64;
            for (column, _) in
                row.iter().flat_map(|row| row.char_indices()).filter(|(_, m)| *m == mark)
            {
                let _ = write!(
                    path,
                    "M{:.1} {y:.1}h{:.1}v{:.1}h-{:.1}z",
                    left + pitch * column as f64,
                    pitch - 1.2,
                    ROW_HEIGHT - 1.6,
                    pitch - 1.2
                );
            }
        }
        if !path.is_empty() {
            let _ = write!(svg, "<path class=\"cell {class}\" d=\"{path}\"/>");
        }
    }
    for (index, row) in rows.iter().enumerate() {
        let Some(row) = row else { continue };
        let correct = row.matches('C').count();
        let _ = write!(
            svg,
            "<text class=\"tick share\" x=\"{:.1}\" y=\"{:.1}\">{correct}/{}</text>",
            left + pitch * columns as f64 + 5.0,
            26.0 + ROW_HEIGHT * index as f64 + 9.6,
            row.len()
        );
    }
}

/// Text inside SVG, which the template does not escape.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(points: &[(f64, f64)]) -> Line {
        Line { label: "a".into(), points: points.to_vec(), half_widths: Vec::new() }
    }

    fn style(unit: &str) -> Style<'_> {
        Style { description: "<a \"b\">", unit, family: "ours", doubling: false, size: WIDE }
    }

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
    fn an_empty_chart_says_so_and_a_description_is_escaped() {
        let svg = chart(&[], &style("nats"));
        assert!(svg.contains("not recorded in this run"));
        assert!(svg.contains("aria-label=\"&lt;a &quot;b&quot;&gt;\""));
    }

    #[test]
    fn an_interval_of_a_share_is_cut_at_100_percent() {
        let mut high = line(&[(0.0, 97.0), (8.0, 99.0)]);
        high.half_widths = vec![5.0, 5.0];
        let frame = Frame::around(&[high], &style("percent"));
        assert_eq!(frame.y.1, 100.0);
    }

    proptest! {
        #[test]
        fn every_point_stays_on_the_canvas(
            points in proptest::collection::vec((0.0f64..1e5, -1e6f64..1e6), 1..40),
            doubling in any::<bool>(),
        ) {
            let lines = [line(&points)];
            let frame = Frame::around(&lines, &Style { doubling, ..style("reward") });
            for (x, y) in points {
                let (px, py) = frame.at(if doubling { x.max(1.0) } else { x }, y);
                prop_assert!((LEFT - 0.01..=WIDE.0 - RIGHT + 0.01).contains(&px), "x {px}");
                prop_assert!((TOP - 0.01..=WIDE.1 - BOTTOM + 0.01).contains(&py), "y {py}");
            }
        }

        #[test]
        fn a_chart_never_prints_a_number_that_is_not_finite(
            points in proptest::collection::vec((0.0f64..10.0, -1.0f64..1.0), 1..4),
        ) {
            let svg = chart(&[line(&points)], &style("reward"));
            prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
