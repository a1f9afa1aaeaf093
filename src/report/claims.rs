//! Claims and a study's verdicts on them, as sections.

use crate::report::page::{Block, Look, Section, Table, TableCell, row};
use crate::report::{text, words};
use crate::study::claims::ClaimSource;
use crate::study::{ClaimResult, ClaimVerdict, Judged, PaperEvidence, PartResult, Remark};
use std::collections::BTreeMap;

/// `§3.1, Fig. 2b`.
fn source(source: &ClaimSource) -> String {
    let figures = match source.figures.as_slice() {
        [] => None,
        [one] => Some(format!("Fig. {one}")),
        many => Some(format!("Figs {}", many.join(", "))),
    };
    let parts = [source.section.clone()].into_iter().chain(figures).chain(source.table.clone());
    text::visible(&text::joined(parts, ", "))
}

/// Verdicts that occur, and the claims that have them.
pub fn by_verdict(judged: &Judged) -> BTreeMap<ClaimVerdict, Vec<&ClaimResult>> {
    let mut groups: BTreeMap<ClaimVerdict, Vec<&ClaimResult>> = BTreeMap::new();
    for claim in &judged.claims {
        groups.entry(claim.verdict).or_default().push(claim);
    }
    groups
}

/// `2 supported, 1 inconclusive`; empty without claims.
pub fn headline(judged: &Judged) -> String {
    text::tally(judged.claims.iter().map(|claim| claim.verdict), |verdict| verdict.words())
}

fn titled(id: &str, of: &ClaimSource) -> String {
    format!("{} ({})", text::visible(id), source(of))
}

fn agreement(paper: &PaperEvidence) -> &'static str {
    if paper.agrees { "agrees" } else { "does not agree" }
}

fn remarks(judged: &Judged) -> Block {
    let remarks = judged.remarks.iter().map(|remark| text::visible(&words::remark(remark)));
    Block::List(remarks.collect())
}

pub fn judged(judged: &Judged) -> Vec<Section> {
    let title = (!judged.claims.is_empty()).then(|| {
        let count = text::counted(judged.claims.len(), "claim", "claims");
        Section::new("claims", &format!("{count}: {}", headline(judged)), Vec::new())
    });
    let notes = Section::new("notes", "Notes", vec![remarks(judged)]);
    title.into_iter().chain(judged.claims.iter().map(verdict)).chain([notes]).collect()
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
    let why = words::part_why(part);
    if claim.parts.len() > 1 || words::claim_why(claim) != why {
        lines.push(format!("why: {why}"));
    }
    lines.extend(part.needed.as_ref().map(|needed| format!("needed: {}", words::needed(needed))));
    lines.extend(part.paper.as_ref().map(|paper| {
        format!("paper's own numbers ({}; {}): {}", agreement(paper), paper.remark, paper.words)
    }));
    let status = if part.registered { "registered" } else { "exploratory" };
    lines.push(format!("family {}, {status}", part.family));
    lines
}

/// Verdicts, and the evidence of every part, in a study's report.
pub fn section(judged: &Judged) -> Section {
    let blocks = if judged.claims.is_empty() {
        vec![Block::Text(text::sentence(&words::remark(&Remark::ClaimsElsewhere)))]
    } else {
        let intro = Block::text(
            "A claim is supported when each of its parts is shown, and contradicted when the opposite of \
                 one is. A positive control is a claim that the benchmark was made or tuned to show: that it \
                 holds here is no news. The last column asks the paper\u{2019}s own numbers the same question: one \
                 run each, so they tell what a figure shows and not how sure one may be.",
        );
        let blocks = [intro, Block::Table(verdicts(judged)), remarks(judged)].into_iter();
        blocks.chain(judged.claims.iter().map(evidence)).collect()
    };
    Section::new("claims", "Claims and their evidence", blocks)
}

fn verdicts(judged: &Judged) -> Table {
    let rows = by_verdict(judged).into_iter().map(|(verdict, claims)| {
        let names = claims.iter().map(|claim| titled(&claim.id.replace('-', " "), &claim.source));
        row![verdict_cell(verdict), TableCell::count(claims.len()), text::joined(names, "; ")]
    });
    let caption = "Verdicts on the claims, on this benchmark.";
    Table::new(caption, "verdict | claims # | which", rows)
}

fn verdict_cell(verdict: ClaimVerdict) -> TableCell {
    let look = match verdict {
        ClaimVerdict::Supported => Look::Good,
        ClaimVerdict::Contradicted => Look::Bad,
        ClaimVerdict::PositiveControl
        | ClaimVerdict::SmallerThanClaimed
        | ClaimVerdict::Inconclusive => Look::Open,
        ClaimVerdict::NotTestable => Look::Quiet,
    };
    look.of(verdict.words())
}

fn evidence(claim: &ClaimResult) -> Block {
    let mut caption = format!(
        "{} ({}) {}: {}",
        text::visible(&claim.claim),
        source(&claim.source),
        claim.verdict.words(),
        text::visible(&words::claim_why(claim))
    );
    if let Some(control) = &claim.positive_control {
        caption += &format!("; positive control: {}", text::visible(control));
    }
    let caption = caption.trim_end_matches('.').to_owned() + ".";
    if claim.parts.is_empty() {
        return Block::Text(caption);
    }
    let columns = "part | evidence | verdict | why | the paper\u{2019}s own numbers";
    Block::Table(Table::new(caption, columns, claim.parts.iter().map(part_row)))
}

fn part_row(part: &PartResult) -> Vec<TableCell> {
    let mut why = text::visible(&words::part_why(part));
    if let Some(needed) = &part.needed {
        why += &format!("; needed: {}", text::visible(&words::needed(needed)));
    }
    if !part.registered {
        why += " (exploratory)";
    }
    let paper = part.paper.as_ref().map(|paper| {
        let words = format!("{}: {}. {}", agreement(paper), paper.words, paper.remark);
        text::visible(words.trim())
    });
    row![
        text::visible(&part.says),
        text::visible(&words::evidence(part)),
        verdict_cell(part.verdict),
        why,
        TableCell::or(paper, "–")
    ]
}
