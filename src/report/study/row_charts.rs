//! The pictures of a study that are made of rows: intervals, heat maps and paired changes.

use crate::report::run::plots::{self, escape, tick_label};
use crate::report::study::charts::{BOTTOM, LEFT, RIGHT, WIDTH, classes, marker, nothing, open};
use crate::report::{Changes, Heat, IntervalRow, Intervals, text};
use std::fmt::Write;

/// Shades of a heat map.
const SHADES: usize = 8;
const ROW: f64 = 36.0;

/// A value with its interval and its runs in each row.
pub fn intervals(intervals: &Intervals, description: &str) -> String {
    let height = 8.0 + ROW * intervals.rows.len() as f64 + BOTTOM;
    let mut svg = open(height, description);
    let zero = intervals.around_zero.then_some(0.0);
    let numbers = intervals.rows.iter().flat_map(|row| {
        let ends = row.interval.iter().flat_map(|(low, high)| [*low, *high]);
        row.runs.iter().copied().chain(row.centre).chain(ends)
    });
    let (low, high) = text::range(numbers.chain(zero).filter(|number| number.is_finite()));
    if !(low.is_finite() && high.is_finite()) {
        return nothing(svg, height, "no run to show");
    }
    let room = if high > low { 0.04 * (high - low) } else { high.abs().max(1.0) * 0.1 };
    let (low, high) = (low - room, high + room);
    let (left, right) = (8.0, WIDTH - 8.0);
    let at = |value: f64| left + (value - low) / (high - low) * (right - left);
    let floor = height - BOTTOM;
    let inside = |tick: &f64| *tick >= low && *tick <= high;
    for tick in plots::ticks(low, high, 5).into_iter().filter(inside) {
        let x = at(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"4\" y2=\"{floor}\"/>\
             <text class=\"x\" x=\"{:.1}\" y=\"{}\">{}</text>",
            x.clamp(left + 10.0, right - 10.0),
            floor + 16.0,
            tick_label(tick)
        );
    }
    if intervals.around_zero {
        let x = at(0.0);
        let _ = write!(
            svg,
            "<line class=\"zero\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"4\" y2=\"{floor}\"/>"
        );
    }
    for (index, row) in intervals.rows.iter().enumerate() {
        interval_row(&mut svg, row, 8.0 + ROW * index as f64, &at);
    }
    let _ = write!(
        svg,
        "<text class=\"end unit\" x=\"{right}\" y=\"{}\">{}</text></svg>",
        height - 4.0,
        escape(&intervals.x)
    );
    svg
}

fn interval_row(svg: &mut String, row: &IntervalRow, top: f64, at: &dyn Fn(f64) -> f64) {
    let y = top + 24.0;
    let classes = classes(row.style);
    // What fits beside the note.
    let label = shortened(&row.label, 40);
    let room = 45usize.saturating_sub(label.chars().count() + row.note.chars().count());
    let against = row
        .against
        .as_ref()
        .map_or(String::new(), |against| format!(" − {}", shortened(against, room.max(8))));
    let _ = write!(
        svg,
        "<text class=\"halo\" x=\"8\" y=\"{:.1}\"><tspan class=\"name\">{}</tspan>{}</text>\
         <text class=\"end halo\" x=\"{}\" y=\"{:.1}\">{}</text>",
        top + 11.0,
        escape(&label),
        escape(&against),
        WIDTH - 8.0,
        top + 11.0,
        escape(&row.note)
    );
    if let Some((low, high)) = row.interval {
        let (from, to) = (at(low), at(high));
        let _ = write!(
            svg,
            "<path class=\"whisker {classes}\" d=\"M{from:.1} {y}H{to:.1}M{from:.1} {}v8M{to:.1} {}v8\"/>",
            y - 4.0,
            y - 4.0
        );
    }
    for run in &row.runs {
        let _ = write!(
            svg,
            "<circle class=\"seed {classes}\" cx=\"{:.1}\" cy=\"{y}\" r=\"3\"/>",
            at(*run)
        );
    }
    if let Some(centre) = row.centre {
        marker(svg, row.style, at(centre), y);
    }
}

/// At most so many characters: rows have one line.
fn shortened(label: &str, most: usize) -> String {
    if label.chars().count() <= most {
        return label.to_owned();
    }
    label.chars().take(most - 1).chain(['…']).collect()
}

/// The shade of a share: 0 is nothing, the last is everything; only exact ends have the ends'
/// shades.
fn shade(share: f64) -> usize {
    match share {
        share if share <= 0.0 => 0,
        share if share >= 1.0 => SHADES - 1,
        share => 1 + ((share * (SHADES - 2) as f64) as usize).min(SHADES - 3),
    }
}

/// A row of shades for each arm.
pub fn heat(heat: &Heat, description: &str) -> String {
    let height = 8.0 + ROW * heat.rows.len() as f64 + 22.0;
    let mut svg = open(height, description);
    if heat.rows.is_empty() || heat.order.is_empty() {
        return nothing(svg, height.max(60.0), "not evaluated");
    }
    let (left, width) = (8.0, WIDTH - 16.0);
    let pitch = width / heat.order.len() as f64;
    for (index, row) in heat.rows.iter().enumerate() {
        let top = 8.0 + ROW * index as f64;
        let _ = write!(
            svg,
            "<text class=\"name\" x=\"{left}\" y=\"{:.1}\">{}</text>",
            top + 11.0,
            escape(&shortened(&row.label, 60))
        );
        // One path a shade: a thousand problems stay a small file.
        let mut paths = vec![String::new(); SHADES + 1];
        for (column, share) in row.shares.iter().enumerate() {
            let shade = share.map_or(SHADES, shade);
            let _ = write!(
                paths[shade],
                "M{:.2} {:.1}h{pitch:.2}v15h-{pitch:.2}z",
                left + pitch * column as f64,
                top + 16.0
            );
        }
        for (shade, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            let _ = write!(svg, "<path class=\"h{shade}\" d=\"{path}\"/>");
        }
        let _ = write!(
            svg,
            "<rect class=\"frame\" x=\"{left}\" y=\"{:.1}\" width=\"{width}\" height=\"15\"/>",
            top + 16.0
        );
    }
    let _ = write!(
        svg,
        "<text class=\"unit\" x=\"{left}\" y=\"{0}\">hardest</text>\
         <text class=\"end unit\" x=\"{1}\" y=\"{0}\">easiest</text>\
         <text class=\"x unit\" x=\"{2}\" y=\"{0}\">{3}</text></svg>",
        height - 6.0,
        WIDTH - 8.0,
        WIDTH / 2.0,
        escape(&heat.columns)
    );
    svg
}

/// The shades from nothing to everything, for the legend.
pub fn shades() -> String {
    let mut svg =
        format!("<svg class=\"shades\" viewBox=\"0 0 {} 12\" aria-hidden=\"true\">", 16 * SHADES);
    for shade in 0..SHADES {
        let _ = write!(
            svg,
            "<rect class=\"h{shade}\" x=\"{}\" y=\"0\" width=\"16\" height=\"12\"/>",
            16 * shade
        );
    }
    svg.push_str("</svg>");
    svg
}

/// Bars from zero.
pub fn changes(changes: &Changes, description: &str) -> String {
    const TALL: f64 = 150.0;
    let mut svg = open(TALL, description);
    if changes.differences.is_empty() {
        return nothing(svg, TALL, "not on the same problems");
    }
    let (top, floor) = (10.0, TALL - 12.0);
    let (_, largest) = text::range(changes.differences.iter().map(|change| change.abs()));
    let scale = if largest > 0.0 { largest } else { 1.0 };
    let y = |change: f64| top + (scale - change) / (2.0 * scale) * (floor - top);
    let width = WIDTH - LEFT - RIGHT;
    let pitch = width / changes.differences.len() as f64;
    for tick in [-scale, 0.0, scale] {
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{1:.1}\" y2=\"{1:.1}\"/>\
             <text class=\"y\" x=\"{2}\" y=\"{3:.1}\">{4}</text>",
            WIDTH - RIGHT,
            y(tick),
            LEFT - 6.0,
            y(tick) + 4.0,
            text::signed_points(tick)
        );
    }
    for (class, sign) in [("gain", 1.0), ("loss", -1.0)] {
        let mut path = String::new();
        for (index, change) in changes.differences.iter().enumerate() {
            if change * sign > 0.0 {
                let (from, to) = (y(0.0), y(*change));
                let x = LEFT + pitch * index as f64;
                let _ = write!(path, "M{x:.2} {from:.1}h{pitch:.2}V{to:.1}h-{pitch:.2}z");
            }
        }
        if !path.is_empty() {
            let _ = write!(svg, "<path class=\"{class}\" d=\"{path}\"/>");
        }
    }
    let _ = write!(
        svg,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{1:.1}\" y2=\"{1:.1}\"/></svg>",
        WIDTH - RIGHT,
        y(0.0)
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_never_and_always_have_the_ends_of_the_scale() {
        let shades = [0.0, 0.01, 0.5, 0.99, 1.0].map(shade);
        assert_eq!(shades, [0, 1, 4, 6, 7]);
    }
}
