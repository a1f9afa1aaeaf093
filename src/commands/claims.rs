//! `dapo claims`: the paper's empirical claims, and what a study says of each.

use crate::base::{files, visible};
use crate::commands::exit;
use crate::study::claims::{self, evidence, text};
use crate::study::{Claims, analysis, collection};
use anyhow::Result;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// List the paper's claims, or judge them by a study.
///
/// A claim is supported, contradicted, inconclusive (with what would be needed), not testable at
/// this scale (with the reason), or a positive control: shown, but the benchmark was made to show
/// it. Evidence is computed from the study's grids and cell records alone, over training runs;
/// the paper's own curves and tables stand beside it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo claims
  dapo claims runs/ablate
  dapo claims reports/study-1 --declaration experiments/study.toml --markdown > claims.md
  dapo claims runs/ablate --only each-row-improves --json")]
pub struct Args {
    /// Study folder, with grids/ and cells/; without it the claims are listed.
    study: Option<PathBuf>,
    /// What was declared before the study; otherwise the study's own study.json, or nothing.
    #[arg(long, value_name = "FILE", requires = "study")]
    declaration: Option<PathBuf>,
    /// Claims, instead of the shipped ones.
    #[arg(long, value_name = "FILE")]
    claims: Option<PathBuf>,
    /// Only this claim; may be given several times. All are computed, so that what is adjusted
    /// together stays together.
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// One JSON document instead of text.
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// A Markdown table instead of text.
    #[arg(long, requires = "study")]
    markdown: bool,
}

/// Runs the verb.
///
/// # Errors
/// Claims, a declaration or a study that cannot be used.
pub fn run(args: &Args) -> Result<ExitCode> {
    let given = args.claims.as_deref().map(claims::load).transpose()?;
    let all = given.clone().unwrap_or_else(claims::shipped);
    if let Some(id) = args.only.iter().find(|id| all.claims.iter().all(|it| it.id != **id)) {
        return Err(exit::Usage(format!("--only {id}: there is no such claim")).into());
    }
    let wanted = |id: &String| args.only.is_empty() || args.only.contains(id);
    let Some(folder) = &args.study else {
        let claims =
            Claims { claims: all.claims.into_iter().filter(|it| wanted(&it.id)).collect() };
        match args.json {
            true => print!("{}", visible::json(&files::canonical_json(&claims))),
            false => print!("{}", shown(&text::listed(&claims))),
        }
        return Ok(ExitCode::SUCCESS);
    };
    let study = collection::load(folder, args.declaration.as_deref())?;
    let analysis = analysis::analyse(&study);
    let tested = given.unwrap_or_else(|| claims::shipped_for(&study));
    let mut judged = evidence::judge(&study, &analysis, &tested);
    judged.claims.retain(|claim| wanted(&claim.id));
    if args.json {
        let document = json!({ "schema": "dapo-claims/1", "judged": judged });
        print!("{}", visible::json(&files::canonical_json(&document)));
    } else if args.markdown {
        print!("{}", shown(&text::markdown(&judged)));
    } else {
        print!("{}", shown(&text::plain(&judged)));
    }
    for excluded in &study.excluded {
        let arm = excluded.arm.as_deref().unwrap_or("no arm");
        let line = format!("{} does not count for {arm}: {}", excluded.cell, excluded.reason);
        eprintln!("{}", visible::visible(&line));
    }
    Ok(ExitCode::SUCCESS)
}

/// Foreign text line by line.
fn shown(text: &str) -> String {
    text.lines().map(|line| visible::visible(line) + "\n").collect()
}
