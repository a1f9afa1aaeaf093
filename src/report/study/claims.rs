//! The paper's claims: a verdict for each on the first screen, and the evidence of every part.

use crate::report::study::page::{Block, Column, Section, Table};
use crate::report::study::published;
use crate::report::{Context, Look, TableCell, text};
use crate::study::claims::evidence::Verdict;
use crate::study::claims::text as claim_text;
use crate::study::{ClaimResult, PartResult, collection};

/// Which claims have which verdict.
pub fn verdicts(context: &Context) -> Table {
    let rows = claim_text::counts(context.judged).into_iter().filter(|(_, count)| *count > 0).map(
        |(word, count)| {
            let of = context.judged.claims.iter().filter(|claim| claim.verdict == word);
            let names: Vec<String> = of
                .map(|claim| {
                    let source = text::visible(&claim_text::source(&claim.source));
                    format!("{} ({source})", text::visible(&claim.id).replace('-', " "))
                })
                .collect();
            vec![
                verdict(word),
                TableCell::value(count.to_string(), [count as f64]),
                TableCell::plain(names.join("; ")),
            ]
        },
    );
    Table {
        rows: rows.collect(),
        caption: "Verdicts on the paper\u{2019}s claims, on this benchmark; their words and evidence are \
                  under \u{201c}Claims and their evidence\u{201d}."
            .to_owned(),
        columns: vec![Column::text("verdict"), Column::number("claims"), Column::text("which")],
    }
}

/// The evidence, claim by claim.
pub fn section(context: &Context) -> Section {
    let judged = context.judged;
    if judged.claims.is_empty() {
        let blocks = vec![Block::Text(published::sentence(collection::CLAIMS_ELSEWHERE))];
        return Section { id: "claims".into(), title: "Claims and their evidence".into(), blocks };
    }
    let mut blocks = vec![Block::Text(
        "A claim is supported when each of its parts is shown, and contradicted when the opposite of \
         one is. A positive control is a claim that the benchmark was made or tuned to show: that it \
         holds here is no news. The last column asks the paper\u{2019}s own numbers the same question: one \
         run each, so they tell what a figure shows and not how sure one may be."
            .to_owned(),
    )];
    blocks.push(Block::List(judged.remarks.iter().map(|remark| text::visible(remark)).collect()));
    blocks.extend(judged.claims.iter().map(|claim| Block::Table(evidence(claim))));
    Section { id: "claims".into(), title: "Claims and their evidence".into(), blocks }
}

fn verdict(verdict: Verdict) -> TableCell {
    let look = match verdict {
        Verdict::Supported => Look::Good,
        Verdict::Contradicted => Look::Bad,
        Verdict::PositiveControl | Verdict::Inconclusive => Look::Open,
        Verdict::NotTestable => Look::Quiet,
    };
    TableCell::plain(verdict.words()).looking(look)
}

fn evidence(claim: &ClaimResult) -> Table {
    let mut caption = format!(
        "{} ({}) {}: {}",
        text::visible(&claim.claim),
        text::visible(&claim_text::source(&claim.source)),
        claim.verdict.words(),
        text::visible(&claim.reason)
    );
    if let Some(control) = &claim.positive_control {
        caption += &format!("; positive control: {}", text::visible(control));
    }
    let rows = claim.parts.iter().map(part_row);
    Table {
        caption: caption.trim_end_matches('.').to_owned() + ".",
        rows: rows.collect(),
        columns: vec![
            Column::text("part"),
            Column::text("evidence"),
            Column::text("verdict"),
            Column::text("why"),
            Column::text("the paper\u{2019}s own numbers"),
        ],
    }
}

fn part_row(part: &PartResult) -> Vec<TableCell> {
    let mut why = text::visible(&part.reason);
    if let Some(needed) = &part.needed {
        why += &format!("; needed: {}", text::visible(needed));
    }
    if !part.registered {
        why += " (exploratory)";
    }
    let mut values = Vec::new();
    if let Some(result) = part.comparison.as_ref().and_then(|it| it.result.as_ref()) {
        values.extend([result.difference, result.adjusted_p]);
        values.extend(result.interval.iter().flat_map(|interval| [interval.low, interval.high]));
    }
    if let Some(level) = &part.level {
        values.push(level.mean);
        values.extend(level.interval.iter().flat_map(|interval| [interval.low, interval.high]));
    }
    if let Some(across) = &part.across_runs {
        values.extend(across.correlation);
        values.extend(across.interval.iter().flat_map(|interval| [interval.low, interval.high]));
    }
    vec![
        TableCell::plain(text::visible(&part.says)),
        TableCell::value(text::visible(&part.evidence), values),
        verdict(part.verdict),
        TableCell::plain(why),
        part.paper.as_ref().map_or(TableCell::missing("–"), |paper| {
            let word = if paper.agrees { "agrees" } else { "does not agree" };
            let shown = format!(
                "{word}: {}. {}",
                text::visible(&paper.words),
                text::visible(&paper.remark)
            );
            TableCell::value(shown.trim().to_owned(), [paper.value])
        }),
    ]
}
