//! What the study does not reproduce: scale, missing rows and runs, limits of such studies.

use crate::report::{Context, page::Block, page::Section, published, text};
use crate::study::{ArmSummary, paper};

pub fn section(context: &Context) -> Section {
    let mut lines = Vec::new();
    if context.is_embedded() {
        lines.push(
            "No score of the paper: model, task and length of training are several orders of magnitude \
             smaller. Nothing here says whether a technique gains points on AIME with a model of 32 \
             billion parameters."
                .to_owned(),
        );
    }
    if context.base_policies() < 2 {
        let one = "No variation between base models: all runs start from one base checkpoint.";
        lines.push(one.to_owned());
    }
    lines.extend(rows_without_runs(context));
    lines.extend(absent_rows_of_the_paper(context));
    let mut blocks = vec![Block::List(lines), Block::text(published::NO_SPREAD)];
    blocks.extend(paper::tables().iter().map(|it| Block::Folded(published::table(it))));
    Section::new("omitted", "What was not reproduced", blocks)
}

fn rows_without_runs(context: &Context) -> Option<String> {
    let empty = context.arms().filter(|arm| arm.seeds.is_empty());
    let named =
        |arm: &ArmSummary| format!("{} ({})", text::visible(&arm.label), text::visible(&arm.id));
    let empty: Vec<String> = empty.map(named).collect();
    (!empty.is_empty()).then(|| format!("Arms without a score: {}.", text::listed(&empty)))
}

fn absent_rows_of_the_paper(context: &Context) -> Option<String> {
    let of = |arm: &ArmSummary, label: &str| arm.paper.as_ref().is_some_and(|it| it.row == label);
    let has = |label: &str| context.arms().any(|arm| of(arm, label));
    let rows = &paper::table_1().rows;
    let absent: Vec<String> =
        rows.iter().filter(|row| !has(&row.label)).map(|row| row.label.clone()).collect();
    (!absent.is_empty())
        .then(|| format!("Rows of Table 1 without an arm here: {}.", text::listed(&absent)))
}
