//! `dapo data audit`: what a file of problems holds.

use crate::commands::{Progress, exit, output};
use crate::report::audit as report;
use crate::task::audit::{self, AuditFinding, AuditOptions};
use crate::task::prompt;
use crate::task::{FindingKind, RowKeys, SourceRow, TaskError, TokenCount, Tokenizer};
use std::path::PathBuf;

/// Describe a file of problems before you train on it or evaluate with it
///
/// Counts rows and problems (the same question, however it is spaced), copies, contradictions,
/// answers by kind, prompts by template, indices; grades each ground truth as its own answer, in
/// each form that a template asks for; and gives digests that do not depend on the order of rows.
/// Rows are read one at a time.
#[derive(Debug, clap::Args)]
#[command(after_long_help = include_str!("help/audit.txt"))]
pub struct AuditArgs {
    /// Parquet, JSON lines, a JSON list or CSV: the released schema, or question and answer under their usual names
    file: PathBuf,
    #[command(flatten)]
    keys: RowKeys,
    /// A program grades: ground truths may be objects, or stand in other columns, and no rule is asked about them
    #[arg(long)]
    for_program: bool,
    /// Folder with a tokenizer.json, and a chat template if prompts go into one: prompt lengths in
    /// tokens instead of characters
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
    /// Report prompts that are longer than this many tokens
    #[arg(long, value_name = "TOKENS", default_value_t = 2048, requires = "tokenizer")]
    max_prompt_tokens: u64,
    /// Prompts of a rollout step, from which the length of an epoch follows
    #[arg(long, value_name = "PROMPTS", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..))]
    prompts_per_step: u64,
    /// Print one JSON document with every count instead of text
    #[arg(long)]
    json: bool,
}

/// Errors: a file or a tokenizer that cannot be used.
pub fn run(args: &AuditArgs) -> anyhow::Result<u8> {
    let tokenizer = args.tokenizer.as_deref().map(Tokenizer::load).transpose()?;
    let count = |row: &SourceRow| -> Result<u64, String> {
        let tokenizer = tokenizer.as_ref().expect("called with a tokenizer only");
        prompt_tokens(tokenizer, row).map_err(|error| error.to_string())
    };
    let mut tokens = None;
    if let (Some(folder), Some(tokenizer)) = (&args.tokenizer, &tokenizer) {
        let chat = tokenizer.chat_template()?.map_or("without a", |_template| "in its");
        let described = format!("tokens of {}, {chat} chat template", folder.display());
        tokens = Some(TokenCount { described, count: &count });
    }
    let options = AuditOptions {
        keys: RowKeys { columns: args.for_program, ..args.keys.clone() },
        tokens,
        max_prompt_tokens: args.max_prompt_tokens,
        prompts_per_step: args.prompts_per_step,
    };
    let mut bar: Option<Progress> = None;
    let audited = audit::audit(&args.file, &options, &mut |done, total| {
        bar.get_or_insert_with(|| Progress::new("audit", total)).set(done, "");
    });
    bar.into_iter().for_each(Progress::clear);
    let mut audit = audited?;
    if let Some(token) = tokenizer.as_ref().map_or(Ok(None), Tokenizer::unstopped_end_of_turn)? {
        let text = prompt::unstopped(&token);
        audit.findings.push(AuditFinding { kind: FindingKind::Warning, text });
    }
    if args.json {
        output::json_line(&audit)
    } else {
        output::say(report::text(&audit))
    }
    Ok(exit::SUCCESS)
}

/// Counts the messages, in the chat template if there is one.
fn prompt_tokens(tokenizer: &Tokenizer, row: &SourceRow) -> Result<u64, TaskError> {
    let text = match tokenizer.chat_template()? {
        Some(template) => template.render(&row.trained(), true)?,
        None => row.trained().into_iter().map(|message| message.content).collect(),
    };
    Ok(tokenizer.encode(&text)?.len() as u64)
}
