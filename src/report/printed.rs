//! Figures for papers: a picture of a given width as SVG, PDF or PNG, with the font inside, and its numbers as CSV.

use crate::report::axes::{self, BOLD_CHARACTER, CHARACTER, Svg};
use crate::report::export::study::quoted;
use crate::report::figures;
use crate::report::page::{Curves, IntervalRow, Intervals, Panel};
use crate::report::text;
use resvg::{tiny_skia, usvg};
use std::fmt::Write;
use std::sync::Arc;

/// Text of 12 units is then 8 points high.
const UNITS_A_POINT: f64 = 1.5;
const PIXELS_AN_INCH: f64 = 300.0;
/// CSS pixels, in which `usvg` counts.
const CSS_PIXELS_AN_INCH: f64 = 96.0;

const RULES: &str = include_str!("templates/print.css");
/// Between panels, and around a legend's entry.
const GAP: f64 = 16.0;
const LINE: f64 = 17.0;

/// Panels side by side under one legend; no colour of a style sheet elsewhere, no font of the machine.
pub fn svg(panels: &[Panel], width_points: f64) -> String {
    let width = UNITS_A_POINT * width_points;
    let (mut all, top) = legend(panels, width);
    let count = panels.len().max(1) as f64;
    let each = (width - GAP * (count - 1.0)) / count;
    let titles = panels.iter().filter(|_| panels.len() > 1);
    let titles = titles.map(|panel| axes::lines(panel.title(), each - 8.0, BOLD_CHARACTER));
    let titles: Vec<Vec<String>> = titles.collect();
    let title = LINE * titles.iter().map(Vec::len).max().unwrap_or(0) as f64;
    let mut height = top;
    for (index, panel) in panels.iter().enumerate() {
        let left = (each + GAP) * index as f64;
        for (line, words) in titles.get(index).into_iter().flatten().enumerate() {
            all.text("name", (left + 8.0, top + 12.0 + LINE * line as f64), words);
        }
        let picture = figures::panel_of_width(panel, each, "");
        all.group((left, top + title), &picture.content);
        height = height.max(top + title + picture.extent.1);
    }
    let title = axes::escape(panels.first().map_or("nothing is compared", Panel::title));
    let (content, tall) = (all.content, height / UNITS_A_POINT);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{width_points}pt\" height=\"{tall:.2}pt\" \
         viewBox=\"0 0 {width} {height:.1}\" font-family=\"Ubuntu, Helvetica, Arial, sans-serif\">\
         <title>{title}</title><style>{RULES}</style>\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>{content}</svg>\n"
    )
}

/// Lines that have no name beside them, and what the shade means; with the height.
fn legend(panels: &[Panel], width: f64) -> (Svg, f64) {
    let mut svg = Svg::new("", (width, 0.0), "");
    let (mut x, mut y) = (8.0, 4.0);
    for (key, label) in panels.iter().flat_map(entries) {
        let lines = axes::lines(&label, width - 52.0, CHARACTER);
        let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        let wide = 44.0 + CHARACTER * longest as f64;
        if x > 8.0 && x + wide > width {
            (x, y) = (8.0, y + LINE);
        }
        let middle = (x + 20.0, y + 6.0);
        match key {
            Key::Line(style) => svg.key(style, (x, y)),
            Key::Margin => svg.rect("margin", (x, y), (38.0, 12.0)),
            Key::Run => svg.circle("seed c0", middle),
            Key::Paper => svg.circle("hollow", middle),
            Key::Bar => {
                svg.path("whisker c0", &format!("M{x:.1} {:.1}v8m0 -4h38m0 -4v8", y + 2.0));
                svg.marker("mark", 0, middle);
            }
        }
        for (line, words) in lines.iter().enumerate() {
            svg.text("", (x + 44.0, y + 10.0 + LINE * line as f64), words);
        }
        y += LINE * (lines.len() - 1) as f64;
        x += wide + GAP;
    }
    (svg, if x > 8.0 { y + LINE + 3.0 } else { 0.0 })
}

enum Key {
    Line(usize),
    Margin,
    Run,
    Paper,
    Bar,
}

const A_RUN: &str = "a run";
const THE_PAPERS: &str = "the paper\u{2019}s step";

fn entries(panel: &Panel) -> Vec<(Key, String)> {
    match panel {
        Panel::Curves(curves) => {
            curves.lines.iter().map(|line| (Key::Line(line.style), line.label.clone())).collect()
        }
        Panel::Intervals(intervals) => {
            let margin = intervals.rows.iter().filter_map(|row| row.margin).reduce(f64::max);
            let margin = margin.map(|it| format!("within ±{}", axes::tick_label(it)));
            let is_explained = !intervals.bars.is_empty();
            let with = |has: fn(&IntervalRow) -> bool, words: &str| {
                let is_drawn = is_explained && intervals.rows.iter().any(has);
                is_drawn.then(|| words.to_owned())
            };
            let keys = [
                (Key::Margin, margin),
                (Key::Run, with(|row| !row.runs.is_empty(), A_RUN)),
                (Key::Bar, with(|row| row.interval.is_some(), &intervals.bars)),
                (Key::Paper, with(|row| row.published.is_some(), THE_PAPERS)),
            ];
            keys.into_iter().filter_map(|(key, words)| Some((key, words?))).collect()
        }
        _ => Vec::new(),
    }
}

/// The plotted numbers, in the units of the picture; a number that does not exist is empty.
pub fn csv(panels: &[Panel]) -> String {
    let mut csv = String::new();
    for panel in panels {
        match panel {
            Panel::Curves(curves) => csv += &of_curves(curves),
            Panel::Intervals(intervals) => csv += &of_intervals(intervals, csv.is_empty()),
            _ => {}
        }
    }
    csv
}

/// Whether a text has a head that [`csv`] writes.
pub fn is_csv(text: &str) -> bool {
    text.lines().next().is_some_and(|head| head.contains(NUMBERS))
}

const NUMBERS: &str = ",value,low,high";

fn of_curves(curves: &Curves) -> String {
    let mut csv = format!("line,{}{NUMBERS},interpolated\n", curves.x.replace(' ', "_"));
    for line in &curves.lines {
        for (x, y) in &line.centre {
            let band = line.band.iter().find(|(at, ..)| at == x);
            let ends = band.map_or(String::from(","), |(_, low, high)| format!("{low},{high}"));
            let between = if line.interpolated_at.contains(x) { "yes" } else { "no" };
            let _ = writeln!(csv, "{},{x},{y},{ends},{between}", quoted(&line.label));
        }
    }
    csv
}

fn of_intervals(intervals: &Intervals, is_first: bool) -> String {
    let header = format!("panel,arm,against{NUMBERS},note,seed,measure\n");
    let mut csv = if is_first { header } else { String::new() };
    for row in &intervals.rows {
        let number = |value: Option<f64>| value.map_or(String::new(), |it| it.to_string());
        let interval = row.interval.unzip();
        let words = [&intervals.title, &row.label, row.against.as_ref().unwrap_or(&String::new())]
            .map(|word| quoted(word));
        let mut point = |(value, low, high), note: &str, seed: Option<u64>| {
            let numbers = [value, low, high].map(number).into_iter();
            let seed = seed.map_or(String::new(), |seed| seed.to_string());
            let rest = [quoted(note), seed, quoted(&row.measure)];
            let fields = words.iter().cloned().chain(numbers).chain(rest);
            csv += &(text::joined(fields, ",") + "\n");
        };
        point((row.centre, interval.0, interval.1), &row.note.text, None);
        row.runs.iter().for_each(|(seed, run)| point((Some(*run), None, None), A_RUN, *seed));
        row.published.iter().for_each(|step| point((Some(*step), None, None), THE_PAPERS, None));
    }
    csv
}

/// Errors: a sentence, when the picture cannot be drawn.
pub fn pdf(svg: &str) -> Result<Vec<u8>, String> {
    let page = svg2pdf::PageOptions { dpi: CSS_PIXELS_AN_INCH as f32 };
    svg2pdf::to_pdf(&tree(svg)?, svg2pdf::ConversionOptions::default(), page)
        .map_err(|error| error.to_string())
}

/// Errors: a sentence, when the picture cannot be drawn.
pub fn png(svg: &str) -> Result<Vec<u8>, String> {
    let tree = tree(svg)?;
    let scale = (PIXELS_AN_INCH / CSS_PIXELS_AN_INCH) as f32;
    let [wide, tall] =
        [tree.size().width(), tree.size().height()].map(|pixels| (scale * pixels).round() as u32);
    let mut pixels = tiny_skia::Pixmap::new(wide, tall).ok_or("the picture has no pixels")?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(scale, scale), &mut pixels.as_mut());
    let png = pixels.encode_png().map_err(|error| error.to_string())?;
    Ok(with_resolution(png))
}

/// Programs that place a picture take its size from this chunk, which stands behind the header.
fn with_resolution(mut png: Vec<u8>) -> Vec<u8> {
    const HEADER_BYTES: usize = 33;
    let pixels_a_metre = ((PIXELS_AN_INCH / 0.0254).round() as u32).to_be_bytes();
    let chunk = [&b"pHYs"[..], &pixels_a_metre, &pixels_a_metre, &[1]].concat();
    let length = (chunk.len() as u32 - 4).to_be_bytes();
    let crc = crc32fast::hash(&chunk).to_be_bytes();
    png.splice(HEADER_BYTES..HEADER_BYTES, [&length[..], &chunk, &crc].concat());
    png
}

fn tree(svg: &str) -> Result<usvg::Tree, String> {
    let mut options = usvg::Options::default();
    let fonts = Arc::make_mut(&mut options.fontdb);
    fonts.load_font_data(epaint_default_fonts::UBUNTU_LIGHT.to_vec());
    usvg::Tree::from_str(svg, &options).map_err(|error| error.to_string())
}

/// A width with its unit, such as `3.25in`, in points.
/// Errors: a sentence, when it is no width or a picture cannot have it.
pub fn points(width: &str) -> Result<f64, String> {
    let units = [("in", 72.0), ("cm", 72.0 / 2.54), ("mm", 72.0 / 25.4), ("pt", 1.0)];
    let parsed = units.iter().find_map(|(unit, points)| {
        let number: f64 = width.strip_suffix(unit)?.trim().parse().ok()?;
        Some(points * number)
    });
    let points = parsed.ok_or("give a number with its unit: in, cm, mm or pt, such as 3.25in")?;
    if (144.0..=1440.0).contains(&points) {
        return Ok(points);
    }
    Err("a figure is 2in (144pt) to 20in (1440pt) wide".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::CurveLine;

    #[test]
    fn what_is_drawn_is_in_the_key_and_in_the_table() {
        let row = IntervalRow {
            label: "+ Clip-Higher".to_owned(),
            centre: Some(2.0),
            interval: Some((1.0, 3.0)),
            published: Some(2.5),
            measure: "avg@k".to_owned(),
            runs: vec![(Some(7), 1.5), (Some(8), 2.5)],
            ..IntervalRow::default()
        };
        let page = Intervals::new("score", "%", false, vec![row]);
        let bars = "95 % interval".to_owned();
        let panels = [Panel::Intervals(Intervals { bars, ..page.clone() })];
        let head = "panel,arm,against,value,low,high,note,seed,measure\n";
        let rows = ["2,1,3,,", "1.5,,,a run,7", "2.5,,,a run,8", "2.5,,,the paper’s step,"];
        let rows = rows.map(|row| format!("score,'+ Clip-Higher,,{row},avg@k\n"));
        assert_eq!(csv(&panels), format!("{head}{}", rows.concat()));
        let drawn = svg(&panels, 234.0);
        let words = [">a run<", ">95 % interval<", ">the paper’s step<"];
        assert!(words.iter().all(|words| drawn.contains(words)), "{drawn}");
        assert!(!svg(&[Panel::Intervals(page)], 234.0).contains(words[0]), "a page has captions");
    }

    #[test]
    fn a_png_is_as_wide_as_asked_where_it_is_placed() {
        let line = CurveLine { centre: vec![(0.0, 1.0), (2.5, 2.0)], ..CurveLine::default() };
        let curves = Panel::Curves(Curves::new("", "generated tokens", "%", vec![line]));
        let png = png(&svg(&[curves], points("3in").unwrap())).unwrap();
        let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
        let [wide, a_metre, crc] = [16, 41, 50].map(number);
        assert_eq!((&png[37..41], png[49], crc), (&b"pHYs"[..], 1, 0x78a5_3f76));
        assert!((f64::from(wide) / (f64::from(a_metre) * 0.0254) - 3.0).abs() < 0.001);
        assert_eq!(tiny_skia::Pixmap::decode_png(&png).unwrap().width(), wide);
    }

    #[test]
    fn a_table_says_which_points_no_run_evaluated() {
        let centre = vec![(0.0, 1.0), (2.5, 2.0)];
        let line = CurveLine { centre, interpolated_at: vec![2.5], ..CurveLine::default() };
        let curves = Panel::Curves(Curves::new("", "generated tokens", "%", vec![line]));
        let head = "line,generated_tokens,value,low,high,interpolated\n";
        assert_eq!(csv(&[curves]), format!("{head},0,1,,,no\n,2.5,2,,,yes\n"));
    }
}
