//! Claims and verdicts as plain text and as Markdown.

use crate::study::ClaimVerdict;
use crate::study::{Claim, ClaimResult, Claims, Judged, PartResult, claims::Test};

/// `§3.1, Fig. 2b`.
pub fn source(source: &crate::study::claims::ClaimSource) -> String {
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
    let all = [
        ClaimVerdict::Supported,
        ClaimVerdict::PositiveControl,
        ClaimVerdict::Contradicted,
        ClaimVerdict::Inconclusive,
        ClaimVerdict::NotTestable,
    ];
    let count = |verdict| judged.claims.iter().filter(|it| it.verdict == verdict).count();
    all.map(|verdict| (verdict, count(verdict))).into()
}

pub fn listed(claims: &Claims) -> String {
    let mut text = String::new();
    for claim in &claims.claims {
        text += &format!("{} ({})\n  {}\n", claim.id, source(&claim.source), claim.claim);
        text += &notes(claim);
        for part in &claim.parts {
            text += &format!("  - {}: {}\n", part.id, part.says);
            text += &format!("    {}\n", asked(&part.test));
            text += &format!("    family {}; supported by: {}\n", part.family, part.rule.words());
        }
        text.push('\n');
    }
    text
}

fn notes(claim: &Claim) -> String {
    let mut text = String::new();
    if let Some(reason) = &claim.positive_control {
        text += &format!("  positive control: {reason}\n");
    }
    if let Some(reason) = &claim.not_testable {
        text += &format!("  not testable at this scale: {reason}\n");
    }
    text
}

fn asked(test: &Test) -> String {
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

/// `3 supported, 1 contradicted, …`: the verdicts that occur.
pub fn headline(judged: &Judged) -> String {
    let occurring = counts(judged).into_iter().filter(|(_, count)| *count > 0);
    let words: Vec<String> =
        occurring.map(|(verdict, count)| format!("{count} {}", verdict.words())).collect();
    words.join(", ")
}

pub fn plain(judged: &Judged) -> String {
    let mut text = match judged.claims.is_empty() {
        true => String::new(),
        false => format!("{} claims: {}\n\n", judged.claims.len(), headline(judged)),
    };
    for claim in &judged.claims {
        text += &format!("{}: {}\n", claim.verdict.words().to_uppercase(), claim.id);
        text += &format!("  {} ({})\n  {}\n", claim.claim, source(&claim.source), claim.reason);
        for part in &claim.parts {
            text += &format!("  - {}: {}\n", part.verdict.words(), part.says);
            for line in part_lines(claim, part) {
                text += &format!("    {line}\n");
            }
        }
        text.push('\n');
    }
    for remark in &judged.remarks {
        text += &format!("Note: {remark}.\n");
    }
    text
}

fn part_lines(claim: &ClaimResult, part: &PartResult) -> Vec<String> {
    let mut lines = Vec::new();
    if !part.evidence.is_empty() {
        lines.push(format!("here: {}", part.evidence));
    }
    // The claim's reason already is its only part's reason.
    if claim.parts.len() > 1 || claim.reason != part.reason {
        lines.push(format!("why: {}", part.reason));
    }
    lines.extend(part.needed.as_ref().map(|needed| format!("needed: {needed}")));
    lines.extend(part.paper.as_ref().map(|paper| {
        let agrees = if paper.agrees { "agrees" } else { "does not agree" };
        format!("paper's own numbers ({agrees}; {}): {}", paper.remark, paper.words)
    }));
    let standing = if part.registered { "registered" } else { "exploratory" };
    lines.push(format!("family {}, {standing}", part.family));
    lines
}

pub fn markdown(judged: &Judged) -> String {
    let mut text = String::new();
    if !judged.claims.is_empty() {
        text += &format!("{} claims: {}.\n\n", judged.claims.len(), headline(judged));
        text +=
            "| Claim of the paper | Source | Verdict | Evidence here | The paper's own numbers |\n";
        text += "|---|---|---|---|---|\n";
    }
    for claim in &judged.claims {
        let evidence = |part: &PartResult| {
            let said = if part.evidence.is_empty() { &part.reason } else { &part.evidence };
            let mut words = match claim.parts.len() {
                1 => said.clone(),
                _ => format!("{}: {} ({said})", part.id, part.verdict.words()),
            };
            if let Some(needed) = &part.needed {
                words += &format!("; needed: {needed}");
            }
            words
        };
        let paper = |part: &PartResult| {
            part.paper.as_ref().map(|paper| {
                let agrees = if paper.agrees { "agrees" } else { "does not agree" };
                format!("{agrees}: {}", paper.words)
            })
        };
        let here: Vec<String> = claim.parts.iter().map(evidence).collect();
        let there: Vec<String> = claim.parts.iter().filter_map(paper).collect();
        let here = if here.is_empty() { claim.reason.clone() } else { here.join("<br>") };
        let cells = [
            claim.claim.clone(),
            source(&claim.source),
            format!("**{}**", claim.verdict.words()),
            here,
            there.join("<br>"),
        ];
        let cells = cells.map(|cell| cell.replace('|', "&#124;").replace('\n', " "));
        text += &format!("| {} |\n", cells.join(" | "));
    }
    text.push('\n');
    for remark in &judged.remarks {
        text += &format!("- {remark}.\n");
    }
    text
}
