//! The panels of a figure for a paper, with the numbers of the report.

use crate::experiment::diagnose;
use crate::report::page::{IntervalRow, Intervals, Panel, PanelSize, TableCell};
use crate::report::study::{answer, scores};
use crate::report::text::{self, Unit};
use crate::report::{Context, ReportError, published, study::context};
use crate::study::claims as paper_claims;
use crate::study::{Clock, GridSummary, collection, comparisons::Comparison, facts, paper};
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Curves(Clock),
    Forest,
    Ladder,
}

/// `arms` are ids, `GRID/ARM`, or names of arms; empty for those that the report shows.
///
/// # Errors
/// A folder that is no study, arms that it does not have, and a figure for which it has nothing.
pub fn panels(folder: &Path, kind: Kind, arms: &[String]) -> Result<Vec<Panel>, ReportError> {
    let study = collection::load(folder, None)?;
    let facts = facts::of(&study, &paper_claims::of(folder, &study)?);
    let context = Context::new(&study, &facts.analysis, &facts.claims);
    let refused = |reason: String| ReportError::NoFigure { folder: folder.to_owned(), reason };
    let arms = named(&context, arms).map_err(refused)?;
    let panels = match kind {
        Kind::Curves(clock) => curves(&context, &arms, clock),
        Kind::Forest => forest(&context, &arms),
        Kind::Ladder => ladder(&context),
    };
    panels.map_err(refused)
}

/// The ids of arms; one name may stand for arms of several grids.
fn named<'a>(context: &Context<'a>, names: &[String]) -> Result<Vec<&'a str>, String> {
    let pools = context.analysis.declaration.pools.iter().map(|pool| pool.id.as_str());
    let known: Vec<&str> = context.arms().map(|arm| arm.id.as_str()).chain(pools).collect();
    let (mut ids, mut problems) = (Vec::new(), Vec::new());
    for name in names {
        let is_named = |id: &&&str| **id == name || id.split('/').next_back() == Some(name);
        let matching: Vec<&str> = known.iter().filter(is_named).copied().collect();
        if matching.is_empty() {
            let own: Vec<String> = known.iter().map(|id| (*id).to_owned()).collect();
            let short = own.iter().filter_map(|id| Some(id.split_once('/')?.1.to_owned()));
            let nearest = diagnose::nearest(name, &short.chain(own.clone()).collect::<Vec<_>>());
            let hint = nearest.map_or_else(
                || format!("its arms are {}", known.join(", ")),
                |nearest| format!("did you mean {nearest}?"),
            );
            problems.push(format!("there is no arm {}; {hint}", text::visible(name)));
        }
        ids.extend(matching);
    }
    if problems.is_empty() { Ok(ids) } else { Err(problems.join("; ")) }
}

fn curves(context: &Context, arms: &[&str], clock: Clock) -> Result<Vec<Panel>, String> {
    let asked = if arms.is_empty() { answer::arms_asked_about(context) } else { arms.to_vec() };
    let mut curves = answer::learning(context, &asked, clock);
    let set = text::visible(&context.analysis.declaration.curve_set);
    let shown = |id: &&&str| curves.lines.iter().any(|line| line.label == context.label(id));
    if let Some(id) = arms.iter().find(|id| !shown(id)) {
        return Err(format!(
            "{} has no evaluation on {set} over {}",
            context.label(id),
            clock.words()
        ));
    }
    if curves.lines.is_empty() {
        return Err(format!(
            "no arm has an evaluation on {set}: there are no curves; --arms names others"
        ));
    }
    curves.size = PanelSize::Whole;
    // Neighbours then differ in dashes too.
    curves.lines.iter_mut().enumerate().for_each(|(style, line)| line.style = style);
    curves.unit = format!("avg@k on {set}, %");
    Ok(vec![Panel::Curves(curves)])
}

fn forest(context: &Context, arms: &[&str]) -> Result<Vec<Panel>, String> {
    let grids = context.analysis.grids.iter().flat_map(|grid| &grid.differences);
    let mut shown: Vec<&Comparison> = if arms.is_empty() {
        answer::differences(context).map_or(Vec::new(), |(_, shown)| shown)
    } else {
        let all = context.comparisons().chain(grids);
        let is_asked = |it: &&Comparison| {
            context::unit_of(&it.declared.metric) == Unit::Share
                && arms.contains(&it.declared.arm.as_str())
        };
        all.filter(is_asked).collect()
    };
    shown.retain(|it| it.result.is_some());
    let metric = shown.first().map(|first| first.declared.metric.clone());
    // One axis has one measure: the first that is declared for these arms.
    shown.retain(|it| Some(&it.declared.metric) == metric.as_ref());
    let mut seen = Vec::new();
    shown.retain(|it| {
        let pair = (&it.declared.arm, &it.declared.reference);
        let is_new = !seen.contains(&pair);
        seen.push(pair);
        is_new
    });
    let Some(metric) = metric else {
        return Err("no difference of these arms was tested: there is nothing to draw".to_owned());
    };
    let (title, x) = (text::visible(&metric.words()), "difference, points".to_owned());
    Ok(vec![Panel::Intervals(Intervals { title, x, ..scores::differences(context, shown) })])
}

fn ladder(context: &Context) -> Result<Vec<Panel>, String> {
    let has_rows = |grid: &&GridSummary| grid.arms.iter().any(|arm| arm.paper.is_some());
    let Some(grid) = context.analysis.grids.iter().find(has_rows) else {
        return Err("no arm of the study stands for a row of the paper\u{2019}s Table 1; `dapo ablate ladder` \
                    makes a study with such arms"
            .to_owned());
    };
    let arms = || grid.arms.iter().filter(|arm| arm.paper.is_some());
    let published = arms().filter_map(|arm| {
        let row = arm.paper.as_ref()?;
        Some(IntervalRow {
            label: row.row.clone(),
            style: context.style(&arm.id),
            centre: Some(published::beside(row)?.value),
            note: TableCell::from(text::number(published::beside(row)?.value)),
            ..IntervalRow::default()
        })
    });
    let table = paper::table_1();
    let panel = |title: String, rows| {
        Panel::Intervals(Intervals { title, x: "%".to_owned(), around_zero: false, rows })
    };
    Ok(vec![
        panel(context.score_name(), arms().map(|arm| scores::score_row(context, arm)).collect()),
        panel(format!("the paper, {}", table.benchmark), published.collect()),
    ])
}
