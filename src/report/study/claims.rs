//! Verdicts of the paper's claims, and the evidence of every part.

use crate::report::page::{Block, Look, Section, Table, TableCell, row};
use crate::report::{Context, claims as claim_text, text, words};
use crate::study::{ClaimResult, ClaimVerdict, PartResult, Remark};

fn verdicts(context: &Context) -> Table {
    let counts = claim_text::counts(context.judged);
    let rows = counts.into_iter().filter(|(_, count)| *count > 0).map(|(word, count)| {
        let of = context.judged.claims.iter().filter(|claim| claim.verdict == word);
        let names = of.map(|claim| {
            let source = text::visible(&claim_text::source(&claim.source));
            format!("{} ({source})", text::visible(&claim.id).replace('-', " "))
        });
        row![verdict(word), TableCell::count(count), text::joined(names, "; ")]
    });
    Table::new(
        "Verdicts on the paper\u{2019}s claims, on this benchmark.",
        "verdict | claims # | which",
        rows,
    )
}

pub fn section(context: &Context) -> Section {
    let judged = context.judged;
    let blocks = if judged.claims.is_empty() {
        vec![Block::Text(text::sentence(&words::remark(&Remark::ClaimsElsewhere)))]
    } else {
        let intro = Block::text(
            "A claim is supported when each of its parts is shown, and contradicted when the opposite of \
                 one is. A positive control is a claim that the benchmark was made or tuned to show: that it \
                 holds here is no news. The last column asks the paper\u{2019}s own numbers the same question: one \
                 run each, so they tell what a figure shows and not how sure one may be.",
        );
        let remarks = judged.remarks.iter().map(|it| text::visible(&words::remark(it))).collect();
        let tables = judged.claims.iter().map(evidence);
        [intro, Block::Table(verdicts(context)), Block::List(remarks)]
            .into_iter()
            .chain(tables)
            .collect()
    };
    Section::new("claims", "Claims and their evidence", blocks)
}

fn verdict(verdict: ClaimVerdict) -> TableCell {
    let look = match verdict {
        ClaimVerdict::Supported => Look::Good,
        ClaimVerdict::Contradicted => Look::Bad,
        ClaimVerdict::PositiveControl | ClaimVerdict::Inconclusive => Look::Open,
        ClaimVerdict::NotTestable => Look::Quiet,
    };
    look.of(verdict.words())
}

fn evidence(claim: &ClaimResult) -> Block {
    let mut caption = format!(
        "{} ({}) {}: {}",
        text::visible(&claim.claim),
        text::visible(&claim_text::source(&claim.source)),
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
    let paper = part.paper.as_ref().map(|paper| {
        let word = if paper.agrees { "agrees" } else { "does not agree" };
        let shown =
            format!("{word}: {}. {}", text::visible(&paper.words), text::visible(&paper.remark));
        TableCell::value(shown.trim(), [paper.value])
    });
    row![
        text::visible(&part.says),
        TableCell::value(text::visible(&words::evidence(part)), values),
        verdict(part.verdict),
        why,
        paper.unwrap_or_else(|| TableCell::missing("–"))
    ]
}
