//! The panels of a figure for a paper, with the numbers of the report.

use crate::report::page::{Curves, IntervalRow, Intervals, Panel, PanelSize, TableCell};
use crate::report::study::{answer, scores};
use crate::report::text;
use crate::report::{Context, ReportError, published};
use crate::study::claims as paper_claims;
use crate::study::comparisons::Comparison;
use crate::study::{Clock, Declared, GridSummary, collection, facts, paper};
use std::collections::BTreeSet;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Curves(Clock),
    Forest,
    Ladder,
}

/// `arms` are ids, `GRID/ARM`, or names of arms; empty for those that the report shows.
/// Errors: a folder that is no study, arms that it does not have, and a figure for which it has nothing.
pub fn panels(folder: &Path, kind: Kind, arms: &[String]) -> Result<Vec<Panel>, ReportError> {
    let study = collection::load(folder, None)?;
    let facts = facts::of(&study, &paper_claims::of(folder, &study)?);
    let context = Context::new(&study, &facts.analysis, &facts.claims);
    let refused = |reason: String| ReportError::Refused { folder: folder.to_owned(), reason };
    let compared = context.comparisons().map(|it| &it.declared);
    // Pools of arms too.
    let compared = compared.flat_map(|it| [it.arm.as_str(), &it.reference]);
    let known = context.arms().map(|arm| arm.id.as_str()).chain(compared);
    let known: Vec<&str> = known.collect::<BTreeSet<_>>().into_iter().collect();
    let named: Vec<_> = arms.iter().map(|name| study.ids_named(&known, name)).collect();
    let problems: Vec<&str> =
        named.iter().filter_map(|ids| ids.as_ref().err().map(String::as_str)).collect();
    if !problems.is_empty() {
        return Err(refused(problems.join("; ")));
    }
    let arms: Vec<Vec<&str>> = named.into_iter().flatten().collect();
    let panels = match kind {
        Kind::Curves(clock) => curves(&context, &arms, clock),
        Kind::Forest => forest(&context, &arms.concat()),
        Kind::Ladder => ladder(&context),
    };
    panels.map_err(refused)
}

fn curves(context: &Context, arms: &[Vec<&str>], clock: Clock) -> Result<Vec<Panel>, String> {
    let mut asked: Vec<&str> = arms.iter().filter_map(|ids| ids.first().copied()).collect();
    let mut seen = BTreeSet::new();
    if asked.is_empty() {
        asked = answer::arms_asked_about(context);
        asked.retain(|id| seen.insert(context.arm(id).map_or(*id, |arm| &arm.arm_sha256)));
    } else {
        asked.retain(|id| seen.insert(*id));
    }
    let mut curves = answer::learning(context, &asked, clock);
    let set = text::visible(&context.analysis.declaration.curve_set);
    let has = |label: &String| curves.lines.iter().any(|line| line.label == *label);
    let labels: Vec<String> = asked.iter().map(|id| context.label(id)).collect();
    let absent: Vec<String> = labels.into_iter().filter(|label| !has(label)).collect();
    if curves.lines.is_empty() || !absent.is_empty() {
        let (clock, absent) = (clock.words(), text::listed(&absent));
        return Err(format!("no evaluation on {set} over {clock} is recorded: {absent}"));
    }
    curves.size = PanelSize::Whole;
    own_styles(&mut curves);
    curves.unit = format!("avg@k on {set}, %");
    Ok(vec![Panel::Curves(curves)])
}

/// By place: two of the page's styles may have the same dashes.
fn own_styles(curves: &mut Curves) {
    curves.lines.iter_mut().enumerate().for_each(|(place, line)| line.style = place);
}

/// Of named arms the declared differences in the first declared measure.
fn forest(context: &Context, arms: &[&str]) -> Result<Vec<Panel>, String> {
    let (_, mut shown) = answer::differences(context).ok_or("the study has no grid")?;
    if !arms.is_empty() {
        let first = context.comparisons().next().ok_or("the study declares no comparison")?;
        let measure = &first.declared.metric;
        let is_asked = |it: &Declared| arms.contains(&it.arm.as_str()) && it.metric == *measure;
        shown = context.comparisons().filter(|it| is_asked(&it.declared)).collect();
        // Several families may have a pair.
        let mut pairs = BTreeSet::new();
        shown.retain(|it| pairs.insert((&it.declared.arm, &it.declared.reference)));
        let is_absent = |id: &&&str| {
            let mut sides = shown.iter().flat_map(|it| [&it.declared.arm, &it.declared.reference]);
            sides.all(|side| side != **id)
        };
        if let Some(id) = arms.iter().find(is_absent) {
            let measure = text::visible(&measure.words());
            return Err(format!("no difference of {id} in {measure} is declared"));
        }
    }
    if shown.is_empty() {
        return Err("it compares nothing: there is no difference to draw".to_owned());
    }
    let measures = measures(&shown);
    let mut differences = scores::differences(context, shown.iter().copied());
    let title = if let [measure] = &measures[..] {
        format!("difference in {measure}")
    } else {
        for (row, comparison) in differences.rows.iter_mut().zip(&shown) {
            let reference = context.label_in_study(&comparison.declared.reference);
            row.against = Some(format!("{reference}, {}", row.measure));
        }
        "difference".to_owned()
    };
    let (x, bars) = (axis(&title, &differences.x), format!("{} interval", context.level()));
    Ok(vec![Panel::Intervals(Intervals { title, x, bars, ..differences })])
}

fn axis(title: &str, unit: &str) -> String {
    let is_named = title.contains(&format!("({unit}"));
    if is_named { title.to_owned() } else { format!("{title}, {unit}") }
}

/// What is compared, in words; rows that differ in the resource that is equal name it.
fn measures(shown: &[&Comparison]) -> Vec<String> {
    let clock = |it: &Comparison| it.declared.metric.equal_clock();
    let is_mixed = shown.iter().any(|it| clock(it) != clock(shown[0]));
    let words = shown.iter().map(|it| {
        let words = it.declared.metric.words();
        match clock(it).filter(|_| is_mixed) {
            Some(clock) => {
                words.replace(&format!("the equal {}", clock.words()), "the equal resource")
            }
            None => words,
        }
    });
    words.map(|words| text::visible(&words)).collect::<BTreeSet<_>>().into_iter().collect()
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
        let value = published::beside(row)?.value;
        let note = TableCell::from(text::number(value));
        let style = context.style(&arm.id);
        Some(IntervalRow { note, ..IntervalRow::of(&row.row, style, (Some(value), None), 1.0) })
    });
    let table = paper::table_1();
    let bars = format!("mean of the runs, {} interval", context.level());
    let panel = |title: String, rows| {
        let intervals = Intervals::new(&title, "%", false, rows);
        Panel::Intervals(Intervals { bars: bars.clone(), ..intervals })
    };
    Ok(vec![
        panel(context.score_name(), arms().map(|arm| scores::score_row(context, arm)).collect()),
        panel(format!("the paper, {}", table.benchmark), published.collect()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::CurveLine;

    #[test]
    fn an_axis_has_its_unit_once() {
        let entropy = "mean of policy/rollout_entropy (nats a token, all rollouts)";
        assert_eq!(axis(entropy, "nats"), entropy);
        assert_eq!(axis("avg@k on a set of points", "points"), "avg@k on a set of points, points");
    }

    #[test]
    fn lines_of_a_figure_differ_although_their_dashes_are_the_same_on_the_page() {
        let lines = [5, 0, 2, 2].map(|style| CurveLine { style, ..CurveLine::default() });
        let mut curves = Curves { lines: lines.into(), ..Curves::default() };
        own_styles(&mut curves);
        let styles: Vec<usize> = curves.lines.iter().map(|line| line.style).collect();
        assert_eq!(styles, [0, 1, 2, 3]);
    }
}
