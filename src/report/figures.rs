//! The pictures of a page. No line is told by colour alone: each has its own dashes and marker.
//! Labels stand above their rows, so that pictures stay readable on a phone.

use crate::report::axes::{
    self, CHARACTER, LINE, PlotPoint, Svg, classes, nothing, path, tick_label, ticks,
};
use crate::report::page::{Changes, CurveLine, Curves, Heat, Panel, PanelSize};
use crate::report::{intervals, text};
use crate::statistics::aggregates;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Every picture has it, in its own units.
pub const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 38.0;
/// A low or small panel's title names unit and clock.
const LOW_BOTTOM: f64 = 20.0;
const LOW_LEFT: f64 = 34.0;

/// Left, top, right, bottom.
type Area = [f64; 4];

fn extent(size: PanelSize, width: f64) -> (PlotPoint, Area) {
    let (wide, tall) = match size {
        PanelSize::Whole => {
            return ((width, HEIGHT), [LEFT, TOP, width - RIGHT, HEIGHT - BOTTOM]);
        }
        PanelSize::Low => (width, 118.0),
        PanelSize::Small => (250.0, 96.0),
    };
    ((wide, tall), [LOW_LEFT, 8.0, wide - 8.0, tall - LOW_BOTTOM])
}

const MARKERS: usize = 6;
const SHADES: usize = 8;
const ROW: f64 = 36.0;

pub fn panel(panel: &Panel, description: &str) -> String {
    panel_of_width(panel, WIDTH, description).end()
}

/// Curves and intervals fill the width; text keeps its size.
pub fn panel_of_width(panel: &Panel, width: f64, description: &str) -> Svg {
    match panel {
        Panel::Curves(curves) => self::curves(curves, width, description),
        Panel::Intervals(rows) => intervals::draw(rows, width, description),
        Panel::Heat(heat) => self::heat(heat, description),
        Panel::Changes(changes) => self::changes(changes, description),
    }
}

pub fn key(style: &usize) -> String {
    let mut svg = Svg::hidden("key", (40.0, 12.0));
    svg.key(*style, (0.0, 0.0));
    svg.end()
}

/// The data's place on the canvas.
struct Frame<'a> {
    curves: &'a Curves,
    x: (f64, f64),
    y: (f64, f64),
    x_ticks: Vec<f64>,
    y_ticks: Vec<f64>,
    extent: PlotPoint,
    area: Area,
}

impl<'a> Frame<'a> {
    /// `None` without finite values.
    fn around(curves: &'a Curves, width: f64) -> Option<Self> {
        let points = || {
            curves.lines.iter().flat_map(|line| {
                let band = line.band.iter().flat_map(|(x, low, high)| [(*x, *low), (*x, *high)]);
                let runs = line.runs.iter().flatten().copied();
                line.centre.iter().copied().chain(band).chain(runs)
            })
        };
        let (low, high) = aggregates::range(points().map(|point| point.1));
        let (first, last) = aggregates::range(points().map(|point| point.0));
        if ![low, high, first, last].iter().all(|number| number.is_finite()) {
            return None;
        }
        let (low, high) = axes::span(low, high);
        let (mut extent, mut area) = extent(curves.size, width);
        if curves.size == PanelSize::Whole {
            let more = LINE * (unit_lines(curves, extent.0).len() - 1) as f64;
            extent.1 += more;
            area[1] += more;
            area[3] += more;
        }
        let count = if curves.size == PanelSize::Whole { 4 } else { 3 };
        let y_ticks = ticks(low, high, count);
        let y = (y_ticks.first()?.min(low), y_ticks.last()?.max(high));
        let (x, mut x_ticks) =
            if curves.doubling { doubles(first, last) } else { evenly(first, last, count) };
        let counts = points().all(|(x, _)| x.fract() == 0.0);
        x_ticks.retain(|tick| !counts || (tick - tick.round()).abs() < 1e-9);
        Some(Self { curves, x, y, x_ticks, y_ticks, extent, area })
    }

    fn at(&self, (x, y): PlotPoint) -> PlotPoint {
        let scale = |x: f64| if self.curves.doubling { x.max(1.0).log2() } else { x };
        let part = (scale(x) - scale(self.x.0)) / (scale(self.x.1) - scale(self.x.0));
        let height = (y - self.y.0) / (self.y.1 - self.y.0);
        let [left, top, right, bottom] = self.area;
        (
            left + part.clamp(0.0, 1.0) * (right - left),
            bottom - height.clamp(0.0, 1.0) * (bottom - top),
        )
    }

    fn axes(&self, svg: &mut Svg) {
        let [left, _, right, floor] = self.area;
        for tick in &self.y_ticks {
            let (_, y) = self.at((self.x.0, *tick));
            svg.line("grid", (left, y), (right, y));
            svg.text("y", (left - 6.0, y + 4.0), tick_label(*tick));
        }
        svg.line("axis", (left, floor), (right, floor));
        for tick in &self.x_ticks {
            let (x, _) = self.at((*tick, self.y.0));
            svg.line("axis", (x, floor), (x, floor + 4.0));
            // A label at the very end would be cut.
            let label = tick_label(*tick);
            let half = CHARACTER / 2.0 * label.chars().count() as f64;
            svg.text("x", (x.min(self.extent.0 - 2.0 - half), floor + 17.0), label);
        }
        if self.curves.size == PanelSize::Whole {
            for (index, line) in unit_lines(self.curves, self.extent.0).iter().enumerate() {
                svg.text("unit", (4.0, 13.0 + LINE * index as f64), line);
            }
            svg.text("end unit", (self.extent.0 - 2.0, self.extent.1 - 4.0), &self.curves.x);
        }
    }

    fn around_line(&self, svg: &mut Svg, line: &CurveLine) {
        let classes = classes(line.style);
        if line.band.len() > 1 && !line.ghost {
            let upper = line.band.iter().map(|(x, _, high)| self.at((*x, *high)));
            let lower = line.band.iter().rev().map(|(x, low, _)| self.at((*x, *low)));
            svg.path(&format!("band {classes}"), &(path(upper.chain(lower)) + "z"));
        }
        // One run is its own centre.
        for run in line.runs.iter().filter(|_| line.runs.len() > 1) {
            let points = run.iter().map(|point| self.at(*point));
            svg.path(&format!("run {classes}"), &path(points));
        }
    }

    fn centre(&self, svg: &mut Svg, line: &CurveLine) {
        let points: Vec<PlotPoint> = line.centre.iter().map(|point| self.at(*point)).collect();
        if line.ghost {
            return svg.path("ghost", &path(points));
        }
        let class = if self.curves.published { "line published" } else { "line" };
        let class = format!("{class} {}", classes(line.style));
        svg.path(&class, &path(points.iter().copied()));
        let count = MARKERS.min(points.len());
        // Arms have their markers at different places.
        for index in 0..count {
            let shift =
                if index + 1 < MARKERS { 0.02 * (line.style % axes::SHAPES) as f64 } else { 0.0 };
            let place = ((index + 1) as f64 / count as f64 - shift).clamp(0.0, 1.0);
            let index = (place * (points.len() - 1) as f64).round() as usize;
            let is_measured = !line.interpolated_at.contains(&line.centre[index].0);
            let class = if is_measured { "mark" } else { "seed" };
            svg.marker(class, line.style, points[index]);
        }
    }
}

type AxisX = ((f64, f64), Vec<f64>);

fn doubles(first: f64, last: f64) -> AxisX {
    let first = first.max(1.0);
    let doubles = std::iter::successors(Some(first), |x| Some(x * 2.0));
    ((first, last.max(first * 2.0)), doubles.take_while(|x| *x <= last).collect())
}

fn evenly(first: f64, last: f64, count: usize) -> AxisX {
    let start = if first < 0.3 * last { first.min(0.0) } else { first };
    let end = if last > start { last } else { start + 1.0 };
    ((start, end), axes::ticks_inside(start, end, count))
}

fn unit_lines(curves: &Curves, width: f64) -> Vec<String> {
    axes::lines(&curves.unit, width - 8.0, CHARACTER)
}

fn curves(curves: &Curves, width: f64, description: &str) -> Svg {
    let Some(frame) = Frame::around(curves, width) else {
        return nothing((width, HEIGHT), description, "not recorded");
    };
    let mut svg = Svg::new("chart", frame.extent, description);
    frame.axes(&mut svg);
    curves.lines.iter().rev().for_each(|line| frame.around_line(&mut svg, line));
    curves.lines.iter().rev().for_each(|line| frame.centre(&mut svg, line));
    svg
}

fn shortened(label: &str, most: usize) -> String {
    if label.chars().count() <= most {
        return label.to_owned();
    }
    label.chars().take(most - 1).chain(['…']).collect()
}

/// Only exact 0 and 1 have the shades of the ends.
fn shade(share: f64) -> usize {
    match share {
        share if share <= 0.0 => 0,
        share if share >= 1.0 => SHADES - 1,
        share => 1 + ((share * (SHADES - 2) as f64) as usize).min(SHADES - 3),
    }
}

fn heat(heat: &Heat, description: &str) -> Svg {
    let height = 8.0 + ROW * heat.rows.len() as f64 + 22.0;
    let Some(problems) = heat.rows.first().map(|(_, shares)| shares.len()).filter(|it| *it > 0)
    else {
        return nothing((WIDTH, height.max(60.0)), description, "not evaluated");
    };
    let mut svg = Svg::new("chart", (WIDTH, height), description);
    let (left, width) = (8.0, WIDTH - 16.0);
    let pitch = width / problems as f64;
    for (index, (label, shares)) in heat.rows.iter().enumerate() {
        let top = 8.0 + ROW * index as f64;
        svg.text("name", (left, top + 11.0), shortened(label, 60));
        let at = |column: usize| (left + pitch * column as f64, top + 16.0);
        let shares = shares.iter().enumerate();
        let shades = shares.map(|(column, share)| (format!("h{}", shade(*share)), at(column)));
        cells(&mut svg, shades, (pitch, 15.0));
        svg.rect("frame", (left, top + 16.0), (width, 15.0));
    }
    svg.text("unit", (left, height - 6.0), "hardest");
    svg.text("end unit", (WIDTH - 8.0, height - 6.0), "easiest");
    svg.text("x unit", (WIDTH / 2.0, height - 6.0), &heat.columns);
    svg
}

/// One path a class, so that a thousand problems stay a small file.
fn cells(svg: &mut Svg, cells: impl Iterator<Item = (String, PlotPoint)>, (wide, tall): PlotPoint) {
    let mut paths: BTreeMap<String, String> = BTreeMap::new();
    for (class, (x, y)) in cells {
        let path = paths.entry(class).or_default();
        let _ = write!(path, "M{x:.2} {y:.1}h{wide:.2}v{tall:.1}h-{wide:.2}z");
    }
    paths.iter().for_each(|(class, path)| svg.path(class, path));
}

pub fn shades() -> String {
    let mut svg = Svg::hidden("shades", (16.0 * SHADES as f64, 12.0));
    for shade in 0..SHADES {
        svg.rect(&format!("h{shade}"), (16.0 * shade as f64, 0.0), (16.0, 12.0));
    }
    svg.end()
}

fn changes(changes: &Changes, description: &str) -> Svg {
    const TALL: f64 = 150.0;
    if changes.differences.is_empty() {
        return nothing((WIDTH, TALL), description, "not on the same problems");
    }
    let mut svg = Svg::new("chart", (WIDTH, TALL), description);
    let (top, floor) = (10.0, TALL - 12.0);
    let (_, largest) = aggregates::range(changes.differences.iter().map(|change| change.abs()));
    let scale = if largest > 0.0 { largest } else { 1.0 };
    let y = |change: f64| top + (scale - change) / (2.0 * scale) * (floor - top);
    let pitch = (WIDTH - LEFT - RIGHT) / changes.differences.len() as f64;
    for tick in [-scale, 0.0, scale] {
        svg.line("grid", (LEFT, y(tick)), (WIDTH - RIGHT, y(tick)));
        svg.text("y", (LEFT - 6.0, y(tick) + 4.0), text::signed_points(tick));
    }
    for (class, sign) in [("gain", 1.0), ("loss", -1.0)] {
        let mut path = String::new();
        for (index, change) in changes.differences.iter().enumerate() {
            if change * sign > 0.0 {
                let (x, from, to) = (LEFT + pitch * index as f64, y(0.0), y(*change));
                let _ = write!(path, "M{x:.2} {from:.1}h{pitch:.2}V{to:.1}h-{pitch:.2}z");
            }
        }
        svg.path(class, &path);
    }
    svg.line("axis", (LEFT, y(0.0)), (WIDTH - RIGHT, y(0.0)));
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn curves_of(points: &[PlotPoint], doubling: bool) -> Curves {
        let line = CurveLine { centre: points.to_vec(), ..CurveLine::default() };
        Curves { doubling, lines: vec![line], ..Curves::default() }
    }

    #[test]
    fn a_description_is_escaped_and_nothing_to_draw_says_so() {
        let svg = panel(&Panel::Curves(Curves::default()), "<a \"b\">");
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
            let svg = panel(&Panel::Curves(curves_of(&points, false)), "d");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{points:?}: {svg}");
        }
    }

    #[test]
    fn an_axis_of_counts_has_whole_numbers() {
        let ticks = |points: &[PlotPoint]| {
            let curves = curves_of(points, false);
            let frame = Frame::around(&curves, WIDTH).unwrap();
            frame.x_ticks.into_iter().map(tick_label).collect::<Vec<_>>()
        };
        assert_eq!(ticks(&[(0.0, 1.0)]), ["0", "1"]);
        assert_eq!(ticks(&[(0.0, 1.0), (10.0, 2.0)]), ["0", "5", "10"]);
        assert_eq!(ticks(&[(0.0, 1.0), (0.5, 2.0)])[1], "0.2");
    }

    #[test]
    fn the_last_number_of_an_axis_stands_below_its_tick() {
        let curves = curves_of(&[(0.0, 0.0), (40.0, 1.0)], false);
        let svg = panel(&Panel::Curves(curves), "d");
        let tick = WIDTH - RIGHT;
        assert!(svg.contains(&format!("<text class=\"x\" x=\"{tick:.1}\"")), "{svg}");
        let long = curves_of(&[(0.0, 0.0), (4e6, 1.0)], false);
        let svg = panel(&Panel::Curves(long), "d");
        assert!(svg.contains("<text class=\"x\" x=\"428.3\""), "{svg}");
        assert!(svg.contains(">4,000,000<"), "{svg}");
    }

    #[test]
    fn only_never_and_always_have_the_ends_of_the_scale() {
        let shades = [0.0, 0.01, 0.5, 0.99, 1.0].map(shade);
        assert_eq!(shades, [0, 1, 4, 6, 7]);
    }

    proptest! {
        #[test]
        fn every_point_stays_on_the_canvas(
            points in proptest::collection::vec((0.0f64..1e5, -1e6f64..1e6), 1..40),
            doubling in any::<bool>(),
        ) {
            let curves = curves_of(&points, doubling);
            let frame = Frame::around(&curves, WIDTH).unwrap();
            for point in points {
                let (x, y) = frame.at(point);
                prop_assert!((LEFT - 0.01..=WIDTH - RIGHT + 0.01).contains(&x), "x {x}");
                prop_assert!((TOP - 0.01..=HEIGHT - BOTTOM + 0.01).contains(&y), "y {y}");
            }
        }
    }
}
