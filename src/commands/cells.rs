//! `dapo runs cells`: the records of a study, and whether a run is the one of a record.

use crate::base::visible;
use crate::commands::flags::wide::WideArg;
use crate::commands::{exit, exit::bail_invalid, output};
use crate::records::{RunFolder, run_folder::is_portable};
use crate::report::{cells as tables, export::study::keys};
use crate::study::cell::grading::{self, RegradedResponses};
use crate::study::cell::{self, build};
use crate::study::{Cell, ablate::AblateStudy, collection, membership};
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// List the cells of a study, or compare a run of your own with a cell's record.
///
/// To check a cell of somebody's study: run it again with `dapo train CELL.json --out RUN`, then
/// compare with `dapo runs cells CELL.json --run RUN`. Under exact arithmetic everything but times,
/// machine facts and names must be equal, bit for bit. The run's stored responses are graded again:
/// every outcome and prediction must be what the arm's verifier says.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/cells.txt"))]
pub struct CellsArgs {
    /// Folder of a study; with --run, a cell's record.
    study: PathBuf,
    /// Run folder to compare with the record.
    #[arg(long)]
    run: Option<PathBuf>,
    /// Print one JSON value.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wide: WideArg,
}

/// Errors: a study, record or run folder that cannot be used.
pub fn run(args: &CellsArgs) -> Result<u8> {
    args.wide.apply();
    match &args.run {
        Some(run) => compare(args, &RunFolder::at(run)),
        None => list(args),
    }
}

fn list(args: &CellsArgs) -> Result<u8> {
    collection::has_begun(&args.study)?;
    let study = AblateStudy::at(&args.study);
    let (cells, refused) = cell::read_folder(study.root())?;
    refused.iter().for_each(output::tell);
    let names = if args.json { BTreeMap::new() } else { names(&study)? };
    let table = || tables::listed(&cells, &keys(&cells, &names));
    output::document(args.json, &cells, || output::page_table(&table()));
    Ok(exit::agreed(refused.is_empty()))
}

/// Arm hash → every `<grid>/<arm>`. Errors: a grid that cannot be read.
pub fn names(study: &AblateStudy) -> Result<BTreeMap<String, Vec<String>>> {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for grid in collection::grids(study.root())? {
        for (id, arm) in membership::arms_of(&grid) {
            names.entry(arm.arm_sha256.clone()).or_default().push(id);
        }
    }
    Ok(names)
}

fn compare(args: &CellsArgs, folder: &RunFolder) -> Result<u8> {
    if args.study.is_dir() {
        let shown = args.study.display();
        bail_invalid!(
            "{shown} is a folder; --run compares with one record, such as {shown}/cells/CELL.json"
        );
    }
    let (record, own) = (Cell::read(&args.study)?, build::build(folder)?);
    let mut differences = cell::compare::differences(&record, &own);
    let graded = grading::again(folder, &own)?;
    let mut grades = "a program graded the responses, and is not started here".to_string();
    if let Some(RegradedResponses { responses, evaluations, differences: regraded }) = graded {
        let result = match regraded.len() {
            0 => "every outcome and prediction is the stored one".to_string(),
            mistaken => format!("{mistaken} differ from what is stored"),
        };
        grades = format!(
            "{responses} stored responses of {evaluations} evaluations were graded again: {result}"
        );
        differences.extend(regraded);
    }
    output::document(args.json, &differences, || {
        differences.iter().map(|difference| visible::message(difference) + "\n").collect()
    });
    output::tell(grades);
    let head = record.ledger_head.as_deref().unwrap_or("none");
    if differences.is_empty() {
        output::tell(format!("the run equals the record; ledger head {head}"));
    } else if !is_portable(&record.exactness) {
        output::tell("where LibTorch computes, another machine or build may give other bits");
    }
    Ok(exit::agreed(differences.is_empty()))
}
