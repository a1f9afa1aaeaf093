//! Checks of each technique, over all runs of an arm.

use crate::base::workers;
use crate::report::page::{Block, Look, Section, Table, TableCell, row};
use crate::report::{Context, study::context, text};
use crate::statistics::estimators;
use crate::study::Effects;
use crate::study::effect_checks::{self, EffectFinding, EffectVerdict};
use std::collections::BTreeSet;

/// For the report, and in full for the appendix where that is more.
pub fn sections(context: &Context) -> (Section, Option<Section>) {
    let full = section(context);
    let [Block::Table(table), warnings] = full.blocks.as_slice() else { return (full, None) };
    if table.rows.len() <= context::MOST_OPEN_ROWS {
        return (full, None);
    }
    let place =
        format!("What each of {} arms switched on and did: in the appendix.", table.rows.len());
    let blocks = vec![Block::Text(place), warnings.clone()];
    (Section { blocks, ..full.clone() }, Some(full))
}

fn section(context: &Context) -> Section {
    // An arm may be in several grids.
    let mut seen = BTreeSet::new();
    let arms = context.arms().filter(|arm| seen.insert(&arm.arm_sha256));
    let arms = arms.map(|arm| {
        let cells = context.study.cells_of(&arm.id);
        (arm.id.as_str(), workers::on_all_cores(&cells, |cell| effect_checks::of_cell(cell)))
    });
    let checked: Vec<(&str, Vec<Effects>)> = arms.collect();
    let warnings: BTreeSet<String> =
        checked.iter().flat_map(|(id, effects)| arm_warnings(context, id, effects)).collect();
    let warnings = if warnings.is_empty() {
        Block::text("No run has a warning.")
    } else {
        Block::List(warnings.into_iter().collect())
    };
    let blocks = vec![Block::Table(table(context, &checked)), warnings];
    let section = Section::new("effects", "Is each technique doing something?", blocks);
    Section { name: "effects".to_owned(), ..section }
}

/// Each warning has the number of its runs.
fn arm_warnings(context: &Context, id: &str, effects: &[Effects]) -> Vec<String> {
    let warnings = effects.iter().flat_map(|effects| {
        let named = effects.named_warnings.iter().map(|named| named.name.to_owned());
        effects.findings.iter().filter_map(EffectFinding::fault).chain(named)
    });
    let (label, total) = (context.label_in_study(id), effects.len());
    let line = |(what, count): (String, usize)| {
        format!("{label}: {} in {count} of {total} runs", text::visible(&what))
    };
    text::counts(warnings).into_iter().map(line).collect()
}

fn table(context: &Context, checked: &[(&str, Vec<Effects>)]) -> Table {
    let mut with_runs = checked.iter().map(|(_, effects)| techniques(effects));
    let mut common = with_runs.find(|techniques| !techniques.is_empty()).unwrap_or_default();
    for others in with_runs.filter(|others| !others.is_empty()) {
        common.retain(|technique| others.contains(technique));
    }
    // Checks that only some arms have are of methods; an arm has one method.
    let method =
        |effects: &[Effects]| techniques(effects).into_iter().find(|it| !common.contains(it));
    let has_methods = checked.iter().any(|(_, effects)| method(effects).is_some());
    let rows = checked.iter().map(|(id, effects)| {
        let of_paper = common.iter().map(|technique| summary(effects, technique));
        let of_method = method(effects).map(|method| summary(effects, method));
        let of_method = has_methods.then(|| of_method.unwrap_or(Look::Quiet.of("none")));
        row![context.label_in_study(id)].into_iter().chain(of_paper).chain(of_method).collect()
    });
    let own = has_methods.then_some(&"its method");
    let columns = text::joined(["arm"].iter().chain(&common).chain(own), " | ");
    let caption = "The switch of each technique, and the runs in which the records show that it acted, \
                   whatever the switch says. In brackets the mean dose: the share of tokens that Clip-Higher let \
                   through, of groups dropped, of loss weight moved, of rollouts masked, of responses punished.";
    Table::new(caption, &columns, rows)
}

fn techniques(effects: &[Effects]) -> Vec<&'static str> {
    let findings = effects.first().map_or(&[][..], |effects| &effects.findings);
    findings.iter().map(|finding| finding.technique).collect()
}

fn summary(effects: &[Effects], technique: &str) -> TableCell {
    let findings = effects.iter().flat_map(|effects| &effects.findings);
    let findings: Vec<&EffectFinding> = findings.filter(|it| it.technique == technique).collect();
    // Other arms do not have a method's own check.
    let none = if effects.is_empty() { "no run" } else { "off" };
    let Some(first) = findings.first() else { return Look::Quiet.of(none) };
    let count = |verdict: EffectVerdict| findings.iter().filter(|it| it.verdict == verdict).count();
    let total = findings.len();
    let unknown = count(EffectVerdict::NotRecorded);
    let switch = if first.enabled { "on" } else { "off" };
    if unknown == total {
        return Look::Quiet.of(format!("{switch}, not recorded"));
    }
    let acted = count(EffectVerdict::Acted) + count(EffectVerdict::DisabledButActed);
    let wrong = findings.iter().filter(|finding| finding.fault().is_some()).count();
    let cell = match (first.enabled, acted) {
        (false, 0) => Look::Quiet.of("off"),
        _ => TableCell::from(format!("{switch} {acted}/{total}{}", dose(&findings))),
    };
    match (wrong > 0, first.enabled) {
        (true, _) => cell.looking(Look::Bad),
        (false, true) => cell.looking(Look::Good),
        (false, false) => cell,
    }
}

/// ` (0.051 %)`; empty where it is not recorded.
fn dose(findings: &[&EffectFinding]) -> String {
    let doses: Option<Vec<f64>> = findings.iter().map(|finding| finding.dose).collect();
    let mean = doses.map(|doses| estimators::mean(&doses));
    mean.map_or(String::new(), |mean| format!(" ({} %)", text::standard_error(mean)))
}
