//! What a file of problems holds, as lines.

use crate::report::text;
use crate::task::audit::{Answers, AuditContent, AuditPrompts, Copies, Indices, Lengths};
use crate::task::data::source::Format;
use crate::task::{Audit, FindingKind};
use std::collections::BTreeMap;

/// Names and values, then findings. Foreign text is not yet visible.
pub fn text(audit: &Audit) -> String {
    let format = match audit.format {
        Format::Parquet => "parquet",
        Format::JsonLines => "JSON lines",
        Format::Json => "a JSON list",
        Format::Csv => "CSV",
    };
    let mut lines = vec![format!("{}: {format}, {} bytes", audit.file, audit.bytes)];
    lines.extend(audit.known_as.as_ref().map(|name| format!("This is {name}.")));
    lines.push(String::new());
    let row = |(name, value): (&str, String)| format!("  {name:<18} {value}");
    lines.extend(rows(audit).into_iter().map(row));
    lines.push(String::new());
    if audit.findings.is_empty() {
        lines.push("Nothing to note.".to_string());
    }
    for finding in &audit.findings {
        let kind = if finding.kind == FindingKind::Note { "note" } else { "warning" };
        lines.push(format!("{kind}: {}", finding.text));
    }
    for conflict in &audit.conflicts.listed {
        let answer = |(answer, rows): &(String, u64)| format!("`{answer}` in {rows} rows");
        let answers = text::joined(conflict.answers.iter().map(answer), " and ");
        lines.push(format!("  {:?} has {answers}", conflict.question));
    }
    lines.join("\n")
}

fn rows(audit: &Audit) -> Vec<(&'static str, String)> {
    let Copies { fewest, most, mean } = audit.copies;
    let copies = if fewest == most {
        format!("{most} of each")
    } else {
        format!("{fewest} to {most}, {mean:.1} on average")
    };
    let Answers { distinct, integers, negative, above_999, padded, other, blank, .. } =
        audit.answers;
    let verifier = match audit.answers.unverifiable {
        _ if audit.for_program => "a program".to_string(),
        0 if audit.readings.is_empty() => {
            "accepts every answer when a response states it".to_string()
        }
        0 => "accepts every answer as it is read; not all stand so in the file".to_string(),
        count => format!("rejects {count} answers even when a response states them"),
    };
    let AuditPrompts { released_template, other_template, not_one_user_message, .. } =
        audit.prompts;
    let Lengths { shortest, longest, median, percentile_95, ref unit, .. } = audit.prompts.lengths;
    let Indices { integers: numbers, texts, missing, distinct: indices, .. } = audit.indices;
    let AuditContent { rows_sha256, problems_sha256 } = &audit.content;
    vec![
        ("rows", audit.rows.to_string()),
        ("problems", audit.problems.to_string()),
        ("copies", copies),
        ("conflicting", format!("{} questions with several answers", audit.conflicts.problems)),
        (
            "answers",
            format!(
                "{distinct} different; {integers} integers ({negative} negative, {above_999} above \
                 999, {padded} padded), {other} others, {blank} empty"
            ),
        ),
        ("keys", counts(&audit.keys)),
        ("shared answers", shared(&audit.answers)),
        ("verifier", verifier),
        (
            "prompts",
            format!(
                "{released_template} in the released template, {other_template} in another, \
                 {not_one_user_message} not one user message"
            ),
        ),
        (
            "prompt length",
            format!(
                "{shortest} to {longest}, median {median}, 95 % up to {percentile_95} ({unit})"
            ),
        ),
        (
            "index",
            format!("{numbers} integers, {texts} texts, {missing} missing; {indices} different"),
        ),
        ("data_source", counts(&audit.data_sources)),
        ("style", counts(&audit.styles)),
        ("sha256 of file", audit.file_sha256.clone()),
        ("… of rows", format!("{rows_sha256}, in any order")),
        ("… of problems", format!("{problems_sha256}, in any order and number")),
    ]
}

fn shared(answers: &Answers) -> String {
    let one = |(answer, problems): &(String, u64)| format!("{answer} ({problems} problems)");
    let listed = text::joined(answers.shared_listed.iter().take(3).map(one), ", ");
    match answers.shared {
        0 => "none".to_string(),
        1..=3 => listed,
        count => format!("{count}: {listed}, …"),
    }
}

fn counts(names: &BTreeMap<String, u64>) -> String {
    let one = |(name, rows): (&String, &u64)| match name.as_str() {
        "" => format!("none {rows}"),
        name => format!("{name} {rows}"),
    };
    text::joined(names.iter().map(one), ", ")
}
