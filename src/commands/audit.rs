//! `dapo data audit`: what a file of problems holds.

use crate::base::visible;
use crate::commands::{Progress, output};
use crate::task::audit::{
    self, Answers, AuditContent, AuditFinding, AuditOptions, AuditPrompts, Copies, Indices, Lengths,
};
use crate::task::data::source::Format;
use crate::task::{Audit, FindingKind, RowKeys, SourceRow, TaskError, TokenCount, Tokenizer};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Say what a file of problems holds before it is trained on or evaluated with
///
/// Counts rows and problems (the same question, however it is spaced), copies, contradictions,
/// answers by kind, prompts by template, indices; grades each ground truth as its own answer, in
/// each form that a template asks for; and gives digests that do not depend on the order of rows.
/// Rows are read one at a time.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  dapo data audit aime-2024.parquet
  dapo data audit dapo-math-17k.parquet --tokenizer models/Qwen2.5-0.5B
      prompt lengths in tokens
  dapo data audit train.jsonl --json | jq .answers

Exit codes: 0 the whole file was read, whatever was found; 2 usage; 3 a file that cannot be read")]
pub struct AuditArgs {
    /// Parquet or JSON lines: the released schema, or question and answer under their usual names
    file: PathBuf,
    #[command(flatten)]
    keys: RowKeys,
    /// Folder with a tokenizer.json, and a chat template if prompts go into one: prompt lengths in
    /// tokens instead of characters
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
    /// Longest prompt that is no finding, in tokens
    #[arg(long, value_name = "TOKENS", default_value_t = 2048)]
    max_prompt_tokens: u64,
    /// Prompts of a rollout step, for the length of an epoch
    #[arg(long, value_name = "PROMPTS", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..))]
    prompts_per_step: u64,
    /// Print one JSON object with every count
    #[arg(long)]
    json: bool,
}

/// # Errors
/// When the file or the tokenizer cannot be used.
pub fn run(args: &AuditArgs) -> anyhow::Result<ExitCode> {
    let tokenizer = args.tokenizer.as_deref().map(Tokenizer::load).transpose()?;
    let count = |row: &SourceRow| -> Result<u64, String> {
        let tokenizer = tokenizer.as_ref().expect("called with a tokenizer only");
        prompt_tokens(tokenizer, row).map_err(|error| error.to_string())
    };
    let tokens = match (&args.tokenizer, &tokenizer) {
        (Some(folder), Some(tokenizer)) => {
            let chat = tokenizer.chat_template()?.map_or("without a", |_template| "in its");
            let described = format!("tokens of {}, {chat} chat template", folder.display());
            Some(TokenCount { described, count: &count })
        }
        _ => None,
    };
    let options = AuditOptions {
        keys: args.keys.clone(),
        tokens,
        max_prompt_tokens: args.max_prompt_tokens,
        prompts_per_step: args.prompts_per_step,
    };
    let mut bar: Option<Progress> = None;
    let audited = audit::audit(&args.file, &options, &mut |done, total| {
        let bar = bar.get_or_insert_with(|| Progress::new("audit", total));
        bar.set(done, "");
    });
    if let Some(bar) = bar {
        bar.clear();
    }
    let mut audit = audited?;
    if let Some((id, token)) =
        tokenizer.as_ref().map_or(Ok(None), Tokenizer::unstopped_end_of_turn)?
    {
        let text = format!(
            "The chat template ends a turn with {token} ({id}), which stops no response: a policy \
             that ends its answers so goes on to the limit. eos_token_id of generation_config.json \
             may be a list of both."
        );
        audit.findings.push(AuditFinding { kind: FindingKind::Warning, text });
    }
    if args.json {
        output::json_line(&audit)
    } else {
        println!("{}", visible::message(&text(&audit)))
    }
    Ok(ExitCode::SUCCESS)
}

/// Counts the messages, in the chat template if there is one.
fn prompt_tokens(tokenizer: &Tokenizer, row: &SourceRow) -> Result<u64, TaskError> {
    let text = match tokenizer.chat_template()? {
        Some(template) => template.render(&row.row.prompt, true)?,
        None => row.row.prompt.iter().map(|message| message.content.as_str()).collect(),
    };
    Ok(tokenizer.encode(&text)?.len() as u64)
}

/// Names and values, then findings.
fn text(audit: &Audit) -> String {
    let format = match audit.format {
        Format::Parquet => "parquet",
        Format::JsonLines => "JSON lines",
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
        let kind = match finding.kind {
            FindingKind::Note => "note",
            FindingKind::Warning => "warning",
        };
        lines.push(format!("{kind}: {}", finding.text));
    }
    for conflict in &audit.conflicts.listed {
        let answer = |(answer, rows): &(String, u64)| format!("`{answer}` in {rows} rows");
        let answers: Vec<String> = conflict.answers.iter().map(answer).collect();
        lines.push(format!("  {:?} has {}", conflict.question, answers.join(" and ")));
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
    let read_otherwise = !audit.readings.is_empty();
    let verifier = match audit.answers.unverifiable {
        0 if read_otherwise => {
            "accepts every answer as it is read; not all stand so in the file".to_string()
        }
        0 => "accepts every answer when a response states it".to_string(),
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
    let listed: Vec<String> = answers.shared_listed.iter().take(3).map(one).collect();
    match (answers.shared, listed.join(", ")) {
        (0, _) => "none".to_string(),
        (1..=3, listed) => listed,
        (count, listed) => format!("{count}: {listed}, …"),
    }
}

fn counts(names: &BTreeMap<String, u64>) -> String {
    let one = |(name, rows): (&String, &u64)| match name.as_str() {
        "" => format!("none {rows}"),
        name => format!("{name} {rows}"),
    };
    names.iter().map(one).collect::<Vec<_>>().join(", ")
}
