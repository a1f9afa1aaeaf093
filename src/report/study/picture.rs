//! The scores of a study's first grid as a picture of its own, for a README or a slide: the chart
//! of the page with the page's colours inside, light and dark.

use crate::report::plots::escape;
use crate::report::study::charts;
use crate::report::study::html;
use crate::report::study::page::Block;
use crate::report::study::page::Figure;
use crate::report::study::page::Page;
use crate::report::study::page::Panel;

/// Width on a page, in CSS pixels.
const WIDTH: u32 = 720;
const FONT: &str = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif";

/// The first figure whose rows are arms, as a whole SVG file; an empty picture when no grid has one.
pub fn scores(page: &Page) -> String {
    let blocks = page.sections.iter().flat_map(|section| &section.blocks);
    let figures = blocks.filter_map(|block| match block {
        Block::Figure(figure) => Some(figure),
        _ => None,
    });
    let rows = |figure: &Figure| figure.panels.first().cloned();
    let found = figures
        .filter_map(|figure| Some((figure, rows(figure)?)))
        .find(|(_, panel)| matches!(panel, Panel::Intervals(_)));
    match found {
        Some((figure, panel)) => alone(&charts::panel(&panel, &figure.caption), &figure.title),
        None => alone(&(charts::open(1.0, "no runs") + "</svg>"), "no runs"),
    }
}

/// An inline picture as a file: with its namespace, a size, a title, the style and a ground.
fn alone(inline: &str, title: &str) -> String {
    let style: String = html::STYLES.concat();
    let (head, rest) = inline.split_once('>').unwrap_or((inline, ""));
    let attributes = head.trim_start_matches("<svg");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" font-family=\"{FONT}\"{attributes}>\
         <title>{}</title><style><![CDATA[{style}]]></style>\
         <rect width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>{rest}\n",
        escape(title)
    )
}
