//! Claims and a study's verdicts on them, as sections.

use crate::report::page::{Block, Section, Table, TableCell};
use crate::report::{text, words};
use crate::study::claims::{ClaimSource, Test};
use crate::study::{Claim, ClaimResult, ClaimVerdict, Claims, Judged, PartResult};

/// `§3.1, Fig. 2b`.
pub fn source(source: &ClaimSource) -> String {
    let mut parts = vec![source.section.clone()];
    match source.figures.as_slice() {
        [] => {}
        [one] => parts.push(format!("Fig. {one}")),
        many => parts.push(format!("Figs {}", many.join(", "))),
    }
    parts.extend(source.table.clone());
    parts.join(", ")
}

/// In the order of [`ClaimVerdict`].
pub fn counts(judged: &Judged) -> Vec<(ClaimVerdict, usize)> {
    use ClaimVerdict::{Contradicted, Inconclusive, NotTestable, PositiveControl, Supported};
    let count = |verdict| judged.claims.iter().filter(|it| it.verdict == verdict).count();
    [Supported, PositiveControl, Contradicted, Inconclusive, NotTestable]
        .map(|verdict| (verdict, count(verdict)))
        .into()
}

pub fn headline(judged: &Judged) -> String {
    let occurring = counts(judged).into_iter().filter(|(_, count)| *count > 0);
    text::joined(occurring.map(|(verdict, count)| format!("{count} {}", verdict.words())), ", ")
}

pub fn listed(claims: &Claims) -> Vec<Section> {
    claims.claims.iter().map(asked).collect()
}

fn asked(claim: &Claim) -> Section {
    let mut blocks = vec![Block::text(text::visible(&claim.claim))];
    let control = claim.positive_control.iter().map(|why| format!("positive control: {why}"));
    let untestable =
        claim.not_testable.iter().map(|why| format!("not testable at this scale: {why}"));
    let notes = control.chain(untestable).map(|note| Block::Text(text::visible(&note)));
    blocks.extend(notes);
    let parts = claim.parts.iter().map(|part| {
        let (test, rule) = (question(&part.test), part.rule.words());
        let line = format!(
            "{}: {}. {test}; family {}; supported by: {rule}",
            part.id, part.says, part.family
        );
        text::visible(&line)
    });
    blocks.push(Block::List(parts.collect()));
    Section::new(&claim.id, &titled(&claim.id, &claim.source), blocks)
}

fn titled(id: &str, of: &ClaimSource) -> String {
    text::visible(&format!("{id} ({})", source(of)))
}

fn question(test: &Test) -> String {
    match test {
        Test::Difference { arm, reference, metric, direction } => {
            format!("{arm} against {reference}: {}, {}", metric.words(), direction.words())
        }
        Test::Level { arm, metric, bound, direction } => {
            format!("{arm}: {}, {} than {bound}", metric.words(), direction.words())
        }
        Test::AcrossRuns { arms, x, y, bound } => format!(
            "runs of {}: {} and {}, correlation within ±{bound}",
            arms.join(", "),
            x.words(),
            y.words()
        ),
    }
}

pub fn table(judged: &Judged) -> Vec<Section> {
    let cell = |claim: &ClaimResult, part: &PartResult| {
        let evidence = words::evidence(part);
        let shown = if evidence.is_empty() { words::part_why(part) } else { evidence };
        let shown = match claim.parts.len() {
            1 => shown,
            _ => format!("{}: {} ({shown})", part.id, part.verdict.words()),
        };
        let needed = part.needed.as_ref().map(|it| format!("; needed: {}", words::needed(it)));
        shown + &needed.unwrap_or_default()
    };
    let rows = judged.claims.iter().map(|claim| {
        let here = text::joined(claim.parts.iter().map(|part| cell(claim, part)), "; ");
        let here = if here.is_empty() { words::claim_why(claim) } else { here };
        let paper = claim.parts.iter().filter_map(|part| part.paper.as_ref()).map(|paper| {
            let agrees = if paper.agrees { "agrees" } else { "does not agree" };
            format!("{agrees}: {}", paper.words)
        });
        let cells = [
            claim.claim.clone(),
            source(&claim.source),
            claim.verdict.words().to_owned(),
            here,
            text::joined(paper, "; "),
        ];
        cells.map(|cell| TableCell::from(text::visible(&cell))).into()
    });
    let columns =
        "claim of the paper | source | verdict | evidence here | the paper\u{2019}s own numbers";
    let mut blocks = Vec::new();
    if !judged.claims.is_empty() {
        blocks.push(Block::Table(Table::new("", columns, rows)));
    }
    blocks.push(notes(judged));
    let title = titled_count(judged);
    vec![Section::new("claims", title.trim_end_matches(": "), blocks)]
}

fn titled_count(judged: &Judged) -> String {
    let count = text::counted(judged.claims.len(), "claim", "claims");
    format!("{count}: {}", headline(judged))
}

fn notes(judged: &Judged) -> Block {
    Block::List(judged.remarks.iter().map(|it| text::visible(&words::remark(it))).collect())
}

pub fn judged(judged: &Judged) -> Vec<Section> {
    let mut sections = Vec::new();
    if !judged.claims.is_empty() {
        let title = titled_count(judged);
        sections.push(Section::new("claims", &title, Vec::new()));
    }
    sections.extend(judged.claims.iter().map(verdict));
    sections.push(Section::new("notes", "Notes", vec![notes(judged)]));
    sections
}

fn verdict(claim: &ClaimResult) -> Section {
    let word = claim.verdict.words().to_uppercase();
    let title = format!("{word}: {}", titled(&claim.id, &claim.source));
    let mut blocks = vec![
        Block::Text(text::visible(&claim.claim)),
        Block::Text(text::visible(&words::claim_why(claim))),
    ];
    for part in &claim.parts {
        let heading = format!("{}: {}", part.verdict.words(), part.says);
        let lines = part_lines(claim, part);
        blocks.push(Block::Heading(text::visible(&heading)));
        blocks.push(Block::List(lines.iter().map(|line| text::visible(line)).collect()));
    }
    Section::new(&claim.id, &title, blocks)
}

fn part_lines(claim: &ClaimResult, part: &PartResult) -> Vec<String> {
    let mut lines = Vec::new();
    let evidence = words::evidence(part);
    if !evidence.is_empty() {
        lines.push(format!("here: {evidence}"));
    }
    // The claim's reason already is its only part's reason.
    let why = words::part_why(part);
    if claim.parts.len() > 1 || words::claim_why(claim) != why {
        lines.push(format!("why: {why}"));
    }
    lines.extend(part.needed.as_ref().map(|it| format!("needed: {}", words::needed(it))));
    lines.extend(part.paper.as_ref().map(|paper| {
        let agrees = if paper.agrees { "agrees" } else { "does not agree" };
        format!("paper's own numbers ({agrees}; {}): {}", paper.remark, paper.words)
    }));
    let status = if part.registered { "registered" } else { "exploratory" };
    lines.push(format!("family {}, {status}", part.family));
    lines
}
