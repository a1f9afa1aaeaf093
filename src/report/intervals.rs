//! Values with their intervals in rows. A name stands above its row, in as many lines as it needs.

use crate::report::axes::{
    self, BOLD_CHARACTER, CHARACTER, LINE, PlotPoint, Svg, classes, nothing, tick_label,
    ticks_inside,
};
use crate::report::page::{IntervalRow, Intervals};
use crate::statistics::aggregates;
use std::fmt::Write;

/// Of a row whose name has one line.
const ROW: f64 = 36.0;
const BOTTOM: f64 = 38.0;
const MOST_TICKS: usize = 5;
/// The least between two ticks.
const TICK: f64 = 35.0;
const PHONE_TEXT_TO_TEXT: f64 = 14.0 / 12.0;

pub fn draw(intervals: &Intervals, width: f64, description: &str) -> Svg {
    let room = (width - 16.0) / PHONE_TEXT_TO_TEXT;
    let names = intervals.rows.iter().map(|row| name_lines(row, room));
    let names: Vec<Vec<(String, String)>> = names.collect();
    let mut tops = vec![8.0];
    for lines in &names {
        tops.push(tops[tops.len() - 1] + ROW + LINE * (lines.len() - 1) as f64);
    }
    let floor = tops[names.len()];
    let unit = axes::lines(&intervals.x, room, CHARACTER);
    let height = floor + BOTTOM + LINE * (unit.len() - 1) as f64;
    let zero = intervals.around_zero.then_some(0.0);
    let numbers = intervals.rows.iter().flat_map(|row| {
        let ends = row.interval.iter().flat_map(|(low, high)| [*low, *high]);
        let margin = row.margin.iter().flat_map(|margin| [-margin, *margin]);
        let runs = row.runs.iter().map(|run| run.1);
        runs.chain(row.centre).chain(row.published).chain(ends).chain(margin)
    });
    let (low, high) = aggregates::range(numbers.chain(zero).filter(|number| number.is_finite()));
    if !(low.is_finite() && high.is_finite()) {
        return nothing((width, height), description, "no run to show");
    }
    let mut svg = Svg::new("chart", (width, height), description);
    let room = if high > low { 0.04 * (high - low) } else { high.abs().max(1.0) * 0.1 };
    let (low, high) = (low - room, high + room);
    let notes = intervals.rows.iter().map(|row| row.note.text.chars().count()).max().unwrap_or(0);
    let right = width - 12.0 - CHARACTER * notes as f64;
    let count = (((right - 8.0) / TICK) as usize).clamp(1, MOST_TICKS);
    let places = ticks_inside(low, high, count);
    let widest = places.iter().map(|place| tick_label(*place).chars().count()).max().unwrap_or(0);
    let half = CHARACTER / 2.0 * widest as f64;
    let (left, right) = (half.max(8.0), right.min(width - half));
    let at = |value: f64| left + (value - low) / (high - low) * (right - left);
    for (row, top) in intervals.rows.iter().zip(tops.windows(2)) {
        let Some(margin) = row.margin else { continue };
        let extent = (at(margin) - at(-margin), top[1] - top[0]);
        svg.rect("margin", (at(-margin), top[0] - 4.0), extent);
    }
    let beside_names = |x: f64| {
        let mut path = format!("M{x:.1} {:.1}", tops[0]);
        for (lines, top) in names.iter().zip(&tops) {
            for (_, index) in lines.iter().zip(0..).filter(|(line, _)| x < 12.0 + extent(line)) {
                let y = top + LINE * f64::from(index);
                let _ = write!(path, "V{y:.1}M{x:.1} {:.1}", y + LINE);
            }
        }
        path + &format!("V{floor:.1}")
    };
    for place in places {
        svg.path("grid", &beside_names(at(place)));
        svg.text("x", (at(place), floor + 16.0), tick_label(place));
    }
    if let Some(zero) = zero {
        svg.path("zero", &beside_names(at(zero)));
    }
    for ((row, name), top) in intervals.rows.iter().zip(&names).zip(&tops) {
        interval_row(&mut svg, (row, name), (width, *top), &at);
    }
    let longest = unit.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let end = right.max(8.0 + CHARACTER * longest as f64);
    for (index, line) in unit.iter().enumerate() {
        svg.text("end unit", (end, floor + BOTTOM - 4.0 + LINE * index as f64), line);
    }
    svg
}

/// The name, and what it is compared with, of each line.
fn name_lines(row: &IntervalRow, width: f64) -> Vec<(String, String)> {
    let mut names = axes::lines(&row.label, width, BOLD_CHARACTER);
    let Some(against) = row.against.as_ref().map(|against| format!("− {against}")) else {
        return names.into_iter().map(|name| (name, String::new())).collect();
    };
    let last = (names.pop().unwrap_or_default(), format!(" {against}"));
    let mut lines: Vec<_> = names.into_iter().map(|name| (name, String::new())).collect();
    if extent(&last) <= width {
        lines.push(last);
    } else {
        lines.push((last.0, String::new()));
        let rest = axes::lines(&against, width, CHARACTER).into_iter();
        lines.extend(rest.map(|line| (String::new(), line)));
    }
    lines
}

fn extent((name, rest): &(String, String)) -> f64 {
    BOLD_CHARACTER * name.chars().count() as f64 + CHARACTER * rest.chars().count() as f64
}

fn interval_row(
    svg: &mut Svg,
    (row, name): (&IntervalRow, &[(String, String)]),
    (width, top): PlotPoint,
    at: &dyn Fn(f64) -> f64,
) {
    let y = top + 24.0 + LINE * (name.len() - 1) as f64;
    let classes = classes(row.style);
    for (index, (name, rest)) in name.iter().enumerate() {
        svg.named("halo", (8.0, top + 11.0 + LINE * index as f64), name, rest);
    }
    svg.text(&format!("end {}", row.note.look.class()), (width - 8.0, y + 4.0), &row.note.text);
    if let Some((low, high)) = row.interval {
        let (from, to, above) = (at(low), at(high), y - 4.0);
        let whisker = format!("M{from:.1} {y}H{to:.1}M{from:.1} {above}v8M{to:.1} {above}v8");
        svg.path(&format!("whisker {classes}"), &whisker);
    }
    row.published.iter().for_each(|value| svg.circle("hollow", (at(*value), y)));
    row.runs.iter().for_each(|run| svg.circle(&format!("seed {classes}"), (at(run.1), y)));
    if let Some(centre) = row.centre {
        svg.marker("mark", row.style, (at(centre), y));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_has_several_lines_and_is_never_cut() {
        let row = IntervalRow {
            label: "Clip-Higher and Token-level loss".to_owned(),
            against: Some("GRPO without either of them".to_owned()),
            centre: Some(1.0),
            ..IntervalRow::default()
        };
        let lines = |width: f64| -> Vec<String> {
            let lines = name_lines(&row, width);
            lines.into_iter().map(|(name, rest)| name + &rest).collect()
        };
        let whole = "Clip-Higher and Token-level loss − GRPO without either of them";
        assert_eq!(lines(600.0), [whole]);
        let narrow = ["Clip-Higher and Token-", "level loss", "− GRPO without either of", "them"];
        assert_eq!(lines(180.0), narrow);
        let x = "difference in avg@k on checked-chains, last evaluation, points".to_owned();
        let rows = vec![row];
        let drawn = Intervals::new("", &x, true, rows);
        let [narrow, wide] = [216.0, 1000.0].map(|width| draw(&drawn, width, "").extent.1);
        assert_eq!(narrow, wide + 5.0 * LINE);
        let all = draw(&drawn, 460.0, "").content;
        let of_name = all.split("name\">").skip(1).map(|it| it.split("</text>").next().unwrap());
        let longest = of_name.map(|it| it.replace("</tspan>", "").chars().count()).max().unwrap();
        assert!(8.0 + 14.0 / 12.0 * BOLD_CHARACTER * longest as f64 <= 460.0, "{all}");
    }

    #[test]
    fn lines_end_at_names_and_every_number_is_below_its_line() {
        let row = |label: &str| IntervalRow {
            label: label.to_owned(),
            interval: Some((-0.2, 31.0)),
            ..IntervalRow::default()
        };
        let rows = vec![row("a"), row(&"long ".repeat(20))];
        let svg = draw(&Intervals::new("", "points", true, rows), 400.0, "").content;
        let paths: Vec<&str> = svg.split("\"grid\" d=\"M").skip(1).collect();
        let numbers: Vec<&str> = svg.split("<text class=\"x\" x=\"").skip(1).collect();
        let x = |text: &&str| text.split([' ', '"']).next().unwrap().to_owned();
        let places = |texts: &[&str]| texts.iter().map(x).collect::<Vec<String>>();
        assert_eq!(places(&paths), places(&numbers));
        let zero = svg.split("\"zero\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(zero.matches('M').count(), 4, "{zero}");
    }
}
