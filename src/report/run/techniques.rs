//! What was run, and what each technique did.

use crate::report::page::{Block, Look, Section, Table, TableCell, row};
use crate::report::run::{Report, courses};
use crate::report::text;
use crate::study::effect_checks::{EffectFinding, EffectVerdict};

pub fn what_was_run(report: &Report) -> Section {
    let on = report.techniques.iter().filter(|technique| technique.on);
    let on = text::joined(on.map(|technique| technique.name), ", ");
    let summary = if on.is_empty() {
        "No technique of the paper is on: this is naive GRPO.".to_owned()
    } else {
        format!("On: {on}.")
    };
    let techniques = report.techniques.iter().map(|technique| {
        let place = Look::Quiet.of(technique.place);
        row![technique.name, place, switch(technique.on), &technique.settings]
    });
    let settings = report.settings.iter().map(|(key, value)| row![Look::Code.of(key), value]);
    let blocks = vec![
        Block::Table(Table::new(summary, "technique | paper | | settings", techniques)),
        Block::Folded(Table::new("All settings", "setting | value", settings)),
    ];
    Section::new("run", "What was run", blocks)
}

fn switch(on: bool) -> TableCell {
    if on { Look::Good.of("on") } else { Look::Quiet.of("off") }
}

pub fn effects(report: &Report) -> Section {
    let caption = "What the records show of each technique, read from the rollouts, the batches, the \
                   loss and its weights, and not from the switch. A technique that is on and did nothing, \
                   or is off and acted, is a warning at the top of this report. Counts are sums over the \
                   recorded rollout steps.";
    let findings = report.effects.findings.iter().map(finding);
    let mut blocks =
        vec![Block::Table(Table::new(caption, "technique | | in this run | seen", findings))];
    let warnings = report.effects.named_warnings.iter();
    let warnings = warnings.map(|it| row![Look::Bad.of(it.name), &it.sentence]);
    let caption = "Settings whose effect is easily overlooked.";
    let warnings = Table::new(caption, "warning | in this run", warnings).filled();
    blocks.extend(warnings.map(Block::Table));
    let curves = &report.effect_curves;
    let curves = courses::together("effects-curves", "What each technique did", curves);
    let summary = "What each technique did, over updates".to_owned();
    blocks.extend(curves.map(|curves| Block::More(summary, vec![curves])));
    Section::new("acting", "Is each technique doing something?", blocks)
}

fn finding(finding: &EffectFinding) -> Vec<TableCell> {
    let look = match finding.verdict {
        EffectVerdict::Acted => Look::Good,
        EffectVerdict::EnabledButDidNothing | EffectVerdict::DisabledButActed => Look::Bad,
        EffectVerdict::Explained | EffectVerdict::Off | EffectVerdict::NotRecorded => Look::Quiet,
    };
    let verdict = look.of(finding.verdict.words());
    row![finding.technique, switch(finding.enabled), verdict, &finding.evidence]
}
