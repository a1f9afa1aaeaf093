//! Inline SVG of a study's figures. Colours come from the style sheet by class, so that light
//! and dark are one picture; every line also has dashes and a marker of its own, so that none
//! is told by colour alone. Labels stand above their rows: the pictures stay readable on a phone.

use crate::report::run::plots::{self, escape, tick_label};
use crate::report::study::row_charts;
use crate::report::{CurveLine, Curves, Panel, text};
use std::fmt::Write;

/// Width of every picture, in its own units.
pub const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 270.0;
/// Room for the labels of y.
pub const LEFT: f64 = 58.0;
/// Room at the right edge.
pub const RIGHT: f64 = 14.0;
const TOP: f64 = 24.0;
/// Room for the labels of x.
pub const BOTTOM: f64 = 38.0;
/// Markers along a line.
const MARKERS: usize = 6;
/// Colours, dashes and markers of the style sheet; 9, 5 and 7 have no common factor, so lines
/// that share a colour never share the rest.
const COLOURS: usize = 9;
const DASHES: usize = 5;
const SHAPES: usize = 7;

/// A panel as SVG, with a description for readers who cannot see it.
pub fn panel(panel: &Panel, description: &str) -> String {
    match panel {
        Panel::Curves(curves) => self::curves(curves, description),
        Panel::Intervals(intervals) => row_charts::intervals(intervals, description),
        Panel::Heat(heat) => row_charts::heat(heat, description),
        Panel::Changes(changes) => row_charts::changes(changes, description),
    }
}

/// The beginning of a picture.
pub fn open(height: f64, description: &str) -> String {
    let description = escape(description);
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{description}\">"
    )
}

/// Classes of a style.
pub fn classes(style: usize) -> String {
    format!("c{} d{}", style % COLOURS, style % DASHES)
}

/// A sample of a style, for the legend.
pub fn key(style: usize) -> String {
    let mut svg = format!(
        "<svg class=\"key\" viewBox=\"0 0 40 12\" aria-hidden=\"true\"><path class=\"line {}\" d=\"M1 6H39\"/>",
        classes(style)
    );
    marker(&mut svg, style, 20.0, 6.0);
    svg.push_str("</svg>");
    svg
}

/// A marker with the style's shape and colour.
pub fn marker(svg: &mut String, style: usize, x: f64, y: f64) {
    let path = match style % SHAPES {
        0 => format!("M{:.1} {y:.1}a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0z", x - 3.2),
        1 => format!("M{:.1} {:.1}h5.8v5.8h-5.8z", x - 2.9, y - 2.9),
        2 => format!("M{x:.1} {:.1}l3.8 6.6h-7.6z", y - 4.2),
        3 => format!("M{x:.1} {:.1}l4.2 4.2l-4.2 4.2l-4.2 -4.2z", y - 4.2),
        4 => format!("M{x:.1} {:.1}l-3.8 -6.6h7.6z", y + 4.2),
        5 => format!(
            "M{:.1} {:.1}h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4v-2.4h2.4z",
            x - 1.2,
            y - 3.6
        ),
        _ => format!("M{x:.1} {:.1}l4 2.9l-1.5 4.7h-5l-1.5 -4.7z", y - 4.2),
    };
    let _ = write!(svg, "<path class=\"mark c{}\" d=\"{path}\"/>", style % COLOURS);
}

fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (index, (x, y)) in points.enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
    }
    path
}

/// The data's place on the canvas.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
    y_ticks: Vec<f64>,
}

impl Frame {
    /// Around everything that is finite; `None` where there is nothing.
    fn around(curves: &Curves) -> Option<Self> {
        let points = || {
            curves.lines.iter().flat_map(|line| {
                let band = line.band.iter().flat_map(|(x, low, high)| [(*x, *low), (*x, *high)]);
                let runs = line.runs.iter().flat_map(|run| run.points.iter().copied());
                line.centre.iter().copied().chain(band).chain(runs)
            })
        };
        let (low, high) = text::range(points().map(|point| point.1));
        let (first, last) = text::range(points().map(|point| point.0));
        let numbers = [low, high, first, last];
        if !numbers.iter().all(|number| number.is_finite()) {
            return None;
        }
        let (mut low, mut high) = (low, high);
        if low >= 0.0 && low < 0.4 * high {
            low = 0.0;
        }
        if high - low <= 1e-12 * high.abs().max(1e-300) {
            let room = if high == 0.0 { 1.0 } else { high.abs() * 0.5 };
            (low, high) = (if high > 0.0 { 0.0 } else { low - room }, high + room);
        }
        let y_ticks = plots::ticks(low, high, 4);
        let y = (y_ticks.first()?.min(low), y_ticks.last()?.max(high));
        let start = if first < 0.3 * last { first.min(0.0) } else { first };
        let end = if last > start { last } else { start + 1.0 };
        Some(Self { x: (start, end), y, y_ticks })
    }

    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let part = (x - self.x.0) / (self.x.1 - self.x.0);
        let height = (y - self.y.0) / (self.y.1 - self.y.0);
        (
            LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - height.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM),
        )
    }

    fn axes(&self, svg: &mut String, curves: &Curves) {
        for tick in &self.y_ticks {
            let (_, y) = self.at((self.x.0, *tick));
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"y\" x=\"{}\" y=\"{:.1}\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                tick_label(*tick)
            );
        }
        let floor = HEIGHT - BOTTOM;
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{floor}\" y2=\"{floor}\"/>",
            WIDTH - RIGHT
        );
        let inside = |tick: &f64| *tick >= self.x.0 - 1e-9 && *tick <= self.x.1 * (1.0 + 1e-9);
        for tick in plots::ticks(self.x.0, self.x.1, 4).into_iter().filter(inside) {
            let (x, _) = self.at((tick, self.y.0));
            // A label at the very end would be cut.
            let anchor = if x > WIDTH - RIGHT - 14.0 { "end" } else { "x" };
            let at = if anchor == "end" { WIDTH - 2.0 } else { x };
            let _ = write!(
                svg,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{floor}\" y2=\"{}\"/>\
                 <text class=\"{anchor}\" x=\"{at:.1}\" y=\"{}\">{}</text>",
                floor + 4.0,
                floor + 17.0,
                tick_label(tick)
            );
        }
        let _ = write!(
            svg,
            "<text class=\"unit\" x=\"4\" y=\"13\">{}</text>\
             <text class=\"end unit\" x=\"{}\" y=\"{}\">{}</text>",
            escape(&curves.unit),
            WIDTH - 2.0,
            HEIGHT - 4.0,
            escape(&curves.x)
        );
    }

    fn line(&self, svg: &mut String, line: &CurveLine) {
        let classes = classes(line.style);
        if line.band.len() > 1 {
            let upper = line.band.iter().map(|(x, _, high)| self.at((*x, *high)));
            let lower = line.band.iter().rev().map(|(x, low, _)| self.at((*x, *low)));
            let _ =
                write!(svg, "<path class=\"band {classes}\" d=\"{}z\"/>", path(upper.chain(lower)));
        }
        // A single run is its own centre.
        if line.runs.len() > 1 {
            for run in &line.runs {
                let points = path(run.points.iter().map(|point| self.at(*point)));
                let _ = write!(svg, "<path class=\"run {classes}\" d=\"{points}\"/>");
            }
        }
    }

    fn centre(&self, svg: &mut String, line: &CurveLine, published: bool) {
        let points: Vec<(f64, f64)> = line.centre.iter().map(|point| self.at(*point)).collect();
        let classes = classes(line.style);
        let _ = write!(
            svg,
            "<path class=\"line {}{classes}\" d=\"{}\"/>",
            if published { "published " } else { "" },
            path(points.iter().copied())
        );
        let count = points.len();
        // Lines of several arms carry their markers at different places.
        for index in 0..MARKERS.min(count) {
            let place = (index + 1) as f64 / MARKERS.min(count) as f64;
            let shifted = place
                - 0.02
                    * (line.style % SHAPES) as f64
                    * f64::from(index as u32 + 1 < MARKERS as u32);
            let at = (shifted.clamp(0.0, 1.0) * (count - 1) as f64).round() as usize;
            marker(svg, line.style, points[at].0, points[at].1);
        }
    }
}

fn curves(curves: &Curves, description: &str) -> String {
    let mut svg = open(HEIGHT, description);
    let Some(frame) = Frame::around(curves) else {
        return nothing(svg, HEIGHT, "not recorded");
    };
    frame.axes(&mut svg, curves);
    for line in curves.lines.iter().rev() {
        frame.line(&mut svg, line);
    }
    for line in curves.lines.iter().rev() {
        frame.centre(&mut svg, line, curves.published);
    }
    svg.push_str("</svg>");
    svg
}

/// An empty frame with a word of explanation.
pub fn nothing(mut svg: String, height: f64, word: &str) -> String {
    let _ = write!(
        svg,
        "<rect class=\"empty\" x=\"1\" y=\"1\" width=\"{}\" height=\"{}\"/>\
         <text class=\"nothing\" x=\"{}\" y=\"{}\">{}</text></svg>",
        WIDTH - 2.0,
        height - 2.0,
        WIDTH / 2.0,
        height / 2.0 + 4.0,
        escape(word)
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> CurveLine {
        CurveLine {
            label: "a".into(),
            style: 0,
            centre: points.to_vec(),
            band: Vec::new(),
            runs: Vec::new(),
        }
    }

    fn curves_of(lines: Vec<CurveLine>) -> Curves {
        let (title, x, unit) = ("t".into(), "updates".into(), "nats".into());
        Curves { title, x, unit, published: false, lines }
    }

    #[test]
    fn a_description_is_escaped_and_nothing_to_draw_says_so() {
        let svg = panel(&Panel::Curves(curves_of(Vec::new())), "<a \"b\">");
        assert!(svg.contains("not recorded"));
        assert!(svg.contains("aria-label=\"&lt;a &quot;b&quot;&gt;\""));
    }

    #[test]
    fn values_that_are_not_finite_never_reach_a_picture() {
        for points in [
            vec![(0.0, 1.0)],
            vec![(0.0, 0.0), (1.0, 0.0)],
            vec![(0.0, f64::NAN)],
            vec![(0.0, 1e300), (1.0, -1e300)],
            vec![(5.0, -3.0), (5.0, -3.0)],
        ] {
            let svg = panel(&Panel::Curves(curves_of(vec![line(&points)])), "d");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{points:?}: {svg}");
        }
    }

    #[test]
    fn two_arms_of_a_grid_never_look_the_same() {
        let mut seen = std::collections::BTreeSet::new();
        for style in 0..COLOURS * DASHES * SHAPES {
            assert!(seen.insert((style % COLOURS, style % DASHES, style % SHAPES)), "{style}");
        }
    }
}
