//! What the study does not reproduce: its scale, rows and runs that are missing, and what no
//! study of this kind could show.

use crate::report::study::page::{Block, Section};
use crate::report::study::{comparison, context, published};
use crate::report::{Context, text};
use crate::study::{Word, paper};

/// Grids that a whole study of this project has.
const GRIDS: [&str; 6] =
    ["ladder", "add-one", "leave-one-out", comparison::FIDELITY, "held-out", "learning-rate"];

/// The chapter.
pub fn section(context: &Context) -> Section {
    let mut lines = Vec::new();
    if comparison::embedded(context) {
        lines.push(
            "No score of the paper: model, task and length of training are several orders of magnitude \
             smaller. Nothing here says whether a technique gains points on AIME with a model of 32 \
             billion parameters."
                .to_owned(),
        );
    }
    lines.push(
        "No variation between base models: all runs start from one base checkpoint.".to_owned(),
    );
    let present = |name: &&&str| context.analysis.grids.iter().all(|grid| grid.name != **name);
    let absent: Vec<String> = GRIDS.iter().filter(present).map(|name| (*name).to_owned()).collect();
    if !absent.is_empty() && comparison::embedded(context) {
        lines.push(format!("Grids that are not in this study: {}.", context::listed(&absent)));
    }
    lines.extend(rows_without_runs(context));
    lines.extend(missing_runs(context));
    lines.extend(open_comparisons(context));
    lines.extend(absent_rows_of_the_paper(context));
    let mut blocks = vec![
        Block::List(lines),
        Block::Text(
            "The size of a step of the paper\u{2019}s Table 1 cannot be tested against it: each row is one \
             run without spread, and the authors\u{2019} own later runs differ from it by as much as a step."
                .to_owned(),
        ),
    ];
    blocks.extend(published::tables());
    Section { id: "omitted".into(), title: "What was not reproduced".into(), blocks }
}

fn rows_without_runs(context: &Context) -> Option<String> {
    let arms = context.analysis.grids.iter().flat_map(|grid| &grid.arms);
    let empty: Vec<String> = arms
        .filter(|arm| arm.seeds.is_empty())
        .map(|arm| format!("{} ({})", text::visible(&arm.label), text::visible(&arm.id)))
        .collect();
    (!empty.is_empty()).then(|| format!("Arms without a score: {}.", context::listed(&empty)))
}

fn missing_runs(context: &Context) -> Option<String> {
    let arms = context.analysis.grids.iter().flat_map(|grid| &grid.arms);
    let missing: Vec<String> = arms
        .filter(|arm| !arm.missing_seeds.is_empty())
        .map(|arm| {
            let seeds: Vec<String> = arm.missing_seeds.iter().map(u64::to_string).collect();
            format!("{} seeds {}", text::visible(&arm.id), seeds.join(", "))
        })
        .collect();
    (!missing.is_empty()).then(|| format!("Runs that are missing: {}.", missing.join("; ")))
}

fn open_comparisons(context: &Context) -> Vec<String> {
    let all = || context.analysis.families.iter().flat_map(|family| &family.comparisons);
    let total = all().count();
    let of = |word: Word| all().filter(|comparison| comparison.word == word).count();
    let (open, untested) = (of(Word::Inconclusive), of(Word::NotCompared));
    let mut lines = Vec::new();
    if open > 0 {
        lines.push(format!("{open} of {total} declared comparisons are inconclusive."));
    }
    if untested > 0 {
        lines.push(format!("{untested} of {total} declared comparisons could not be tested."));
    }
    lines
}

/// Rows of Table 1 beside which no arm stands.
fn absent_rows_of_the_paper(context: &Context) -> Option<String> {
    let arms = || context.analysis.grids.iter().flat_map(|grid| &grid.arms);
    let has =
        |label: &str| arms().any(|arm| arm.paper.as_ref().is_some_and(|row| row.row == label));
    let rows = &paper::table_1().rows;
    let absent: Vec<String> =
        rows.iter().filter(|row| !has(&row.label)).map(|row| row.label.clone()).collect();
    (!absent.is_empty())
        .then(|| format!("Rows of Table 1 without an arm here: {}.", context::listed(&absent)))
}
