//! The answer's chart of differences as a file, for a README or a slide, with the page's colours
//! inside, light and dark.

use crate::report::page::{Block, Page, Panel};
use crate::report::{axes, axes::escape, figures, html};

/// CSS pixels.
const WIDTH: u32 = 720;
const FONT: &str = "-apple-system, 'Segoe UI', 'DejaVu Sans', Verdana, sans-serif";
/// In the chart's units.
const HEADING: f64 = 28.0;

/// An empty picture when the report has no such chart.
pub fn answer(page: &Page) -> String {
    let blocks = page.sections.iter().flat_map(|section| &section.blocks);
    let mut panels = blocks.flat_map(|block| match block {
        Block::Figure(figure) => figure.panels.as_slice(),
        _ => &[],
    });
    match panels.find(|panel| matches!(panel, Panel::Intervals(_))) {
        Some(panel) => alone(&figures::panel(panel, ""), (panel.title(), &page.headline)),
        None => alone(&figures::nothing(60.0, "", "no difference"), ("no difference", "")),
    }
}

/// Adds namespace, size, heading, description, style and background.
fn alone(inline: &str, (heading, description): (&str, &str)) -> String {
    let style = html::STYLE;
    let (_, height, inside) = axes::parts(inline);
    let height = height + HEADING;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"{WIDTH}\" \
         viewBox=\"0 0 {} {height}\" style=\"font-family: {FONT}\" role=\"img\">\
         <title>{}</title><desc>{}</desc><style><![CDATA[{style}]]></style>\
         <rect width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>\
         <text class=\"name\" x=\"8\" y=\"18\">{}</text>\
         <g transform=\"translate(0 {HEADING})\">{inside}</g></svg>\n",
        figures::WIDTH,
        escape(heading),
        escape(description),
        escape(heading)
    )
}
