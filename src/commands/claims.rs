//! `dapo report --claims`: the paper's empirical claims, and what a study says of each.

use crate::base::{files, visible};
use crate::commands::exit;
use crate::study::claims::{self, evidence, text};
use crate::study::{Claims, analysis, collection};
use anyhow::Result;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

/// What is asked of `--claims`.
#[derive(Debug)]
pub struct Asked<'a> {
    /// Study folder, with grids/ and cells/; without it the claims are listed.
    pub study: Option<&'a Path>,
    /// What was declared before the study; otherwise the study's own study.json, or nothing.
    pub declaration: Option<&'a Path>,
    /// Claims, instead of the shipped ones.
    pub claims: Option<&'a Path>,
    /// Only these; all are computed, so that what is adjusted together stays together.
    pub only: &'a [String],
    /// One JSON document instead of text.
    pub json: bool,
    /// A Markdown table instead of text.
    pub markdown: bool,
}

/// Lists the paper's claims, or judges them by a study.
///
/// # Errors
/// Claims, a declaration or a study that cannot be used.
pub fn run(args: &Asked) -> Result<ExitCode> {
    let given = args.claims.map(claims::load).transpose()?;
    let all = given.clone().unwrap_or_else(claims::shipped);
    if let Some(id) = args.only.iter().find(|id| all.claims.iter().all(|it| it.id != **id)) {
        return Err(exit::Usage(format!("--only {id}: there is no such claim")).into());
    }
    let wanted = |id: &String| args.only.is_empty() || args.only.contains(id);
    let Some(folder) = args.study else {
        let claims =
            Claims { claims: all.claims.into_iter().filter(|it| wanted(&it.id)).collect() };
        match args.json {
            true => print!("{}", visible::json(&files::canonical_json(&claims))),
            false => print!("{}", shown(&text::listed(&claims))),
        }
        return Ok(ExitCode::SUCCESS);
    };
    let study = collection::load(folder, args.declaration)?;
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
