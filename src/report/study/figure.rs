//! The panels of a figure for a paper, with the numbers of the report.

use crate::report::page::{Curves, IntervalRow, Intervals, Panel, PanelSize, TableCell};
use crate::report::study::{answer, scores};
use crate::report::text;
use crate::report::{Context, ReportError, published};
use crate::study::claims as paper_claims;
use crate::study::collection::Study;
use crate::study::comparisons::Comparison;
use crate::study::{Clock, Declared, GridSummary, Metric, facts, paper};
use std::collections::BTreeSet;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Curves(Clock),
    Forest,
    Ladder,
}

/// `arms` are ids, `GRID/ARM`, names or labels of arms, which may have been cut at commas; empty for those of the report.
/// Errors: arms that the study in `folder` does not have, and a figure for which it has nothing.
pub fn panels(
    study: &Study,
    folder: &Path,
    kind: Kind,
    arms: &[String],
) -> Result<Vec<Panel>, ReportError> {
    let facts = facts::of(study, &paper_claims::of(folder, study)?);
    let context = Context::new(study, &facts.analysis, &facts.claims);
    let refused = |reason: String| ReportError::Refused { folder: folder.to_owned(), reason };
    let compared = context.comparisons().map(|it| &it.declared);
    // Pools of arms too.
    let compared = compared.flat_map(|it| [it.arm.as_str(), &it.reference]);
    let known = context.arms().map(|arm| arm.id.as_str()).chain(compared);
    let known: Vec<&str> = known.collect::<BTreeSet<_>>().into_iter().collect();
    let names = whole_names(arms, |name| !study.ids_of_name(&known, name).is_empty());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let arms = study.ids_of_names(&known, &names).map_err(refused)?;
    let panels = match kind {
        Kind::Curves(clock) => curves(&context, &arms, clock),
        Kind::Forest => forest(&context, &arms.concat()),
        Kind::Ladder => ladder(&context),
    };
    panels.map_err(refused)
}

const MOST_PARTS_OF_A_LABEL: usize = 8;

fn whole_names(parts: &[String], is_name: impl Fn(&str) -> bool) -> Vec<String> {
    let (mut names, mut rest) = (Vec::new(), parts);
    while !rest.is_empty() {
        let mut counts = (2..=rest.len().min(MOST_PARTS_OF_A_LABEL)).rev();
        let count = counts.find(|count| is_name(&rest[..*count].join(","))).unwrap_or(1);
        names.push(rest[..count].join(","));
        rest = &rest[count..];
    }
    names
}

fn curves(context: &Context, arms: &[Vec<&str>], clock: Clock) -> Result<Vec<Panel>, String> {
    let mut asked: Vec<&str> = arms.iter().filter_map(|ids| ids.first().copied()).collect();
    let (mut seen, mut beyond) = (BTreeSet::new(), 0);
    if asked.is_empty() {
        let (drawn, all) = answer::arms_asked_about(context);
        (beyond, asked) = (all - drawn.len(), drawn);
        asked.retain(|id| seen.insert(context.arm(id).map_or(*id, |arm| &arm.arm_sha256)));
    } else {
        asked.retain(|id| seen.insert(*id));
    }
    let mut curves = answer::learning(context, &asked, clock);
    let set = text::visible(&context.analysis.declaration.curve_set);
    let has = |label: &String| curves.lines.iter().any(|line| line.label == *label);
    let labels: Vec<String> = asked.iter().map(|id| context.label(id)).collect();
    let absent: Vec<String> = labels.into_iter().filter(|label| !has(label)).collect();
    if !absent.is_empty() {
        let (clock, names) = (clock.words(), text::listed(&absent));
        let none = format!("no evaluation on {set} over {clock} is recorded: {names}");
        if curves.lines.is_empty() || !arms.is_empty() {
            return Err(none);
        }
        curves.left_out.push(format!("{none}; not drawn"));
    }
    if beyond > 0 {
        let (drawn, all) = (curves.lines.len(), asked.len() + beyond);
        curves.left_out.push(format!(
            "{drawn} of {all} arms are drawn, those of shown differences first: --arms chooses others, or all"
        ));
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
        if let Some(id) = absent(&shown, arms) {
            let rows = context.analysis.grids.iter().flat_map(|grid| &grid.differences);
            let is_between = |it: &Declared| {
                [&it.arm, &it.reference].iter().all(|id| arms.contains(&id.as_str()))
            };
            shown = rows.filter(|it| is_between(&it.declared)).collect();
            if absent(&shown, arms).is_some() {
                return Err(without_difference(context, id, measure));
            }
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

fn absent<'a>(shown: &[&Comparison], arms: &[&'a str]) -> Option<&'a str> {
    let is_side = |it: &Declared, id: &str| it.arm == id || it.reference == id;
    arms.iter().copied().find(|id| !shown.iter().any(|it| is_side(&it.declared, id)))
}

fn without_difference(context: &Context, id: &str, measure: &Metric) -> String {
    let of_measure = || context.comparisons().filter(|it| it.declared.metric == *measure);
    let is_reference = of_measure().any(|it| it.declared.reference == id);
    let reason = if is_reference {
        "is only the reference of other arms there, and none of these is named"
    } else {
        "is on neither side of a declared comparison"
    };
    let arms: BTreeSet<&str> = of_measure().map(|it| it.declared.arm.as_str()).collect();
    format!(
        "{id} has no difference of its own to draw in {}: it {reason}; name arms with one: {}",
        text::visible(&measure.words()),
        text::joined(arms, ", ")
    )
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
    fn labels_that_were_cut_at_their_commas_are_whole_again() {
        let names = |text: &str| {
            let parts: Vec<String> = text.split(',').map(str::to_owned).collect();
            whole_names(&parts, |name| ["a", "a, b", "b", "c, d, e"].contains(&name.trim()))
        };
        assert_eq!(names("a, b,b,c, d, e"), ["a, b", "b", "c, d, e"]);
        assert_eq!(names("x,a"), ["x", "a"]);
        assert!(whole_names(&[], |_| true).is_empty());
    }

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
