//! The last chapters: what a reader needs to place and to check the run.

use crate::records::Session;
use crate::report::run::Report;
use crate::report::run::document::{Block, Section};
use crate::report::{Cell, Grid, Item};
use crate::study::paper;
use std::collections::BTreeMap;

/// Table 1, and what it can be compared with.
pub fn published(report: &Report) -> Section<'_> {
    let mut blocks = Vec::new();
    let comparable = if report.run.embedded_benchmark {
        "This run\u{2019}s accuracies are on mini-AIME, a synthetic arithmetic benchmark with a very \
         small model. They are not AIME accuracies and cannot be set against a value of this \
         table. What can be compared is direction and order: whether entropy collapses without \
         Clip-Higher, whether a technique that helps there helps here, whether Dynamic Sampling \
         needs fewer updates for the same score \u{2014} and that only between arms of this \
         harness, with several seeds each."
    } else {
        "This run used its own data and model. Its accuracies can be set against a value of this \
         table only if model, evaluation set, prompt and sampling are those of the paper; \
         direction and order of techniques can be compared between arms of this harness, with \
         several seeds each."
    };
    blocks.push(Block::Text(comparable.to_owned()));
    for table in &report.published {
        let mut above: Option<f64> = None;
        let row = |row: &paper::Row| {
            let step = row.technique.as_ref().and(above).map(|above| row.value - above);
            above = Some(row.value);
            let step = step.map(|step| format!("+{step}")).unwrap_or_default();
            vec![
                Cell::plain(&row.label),
                Cell::styled("strong", row.value.to_string()),
                Cell::plain(step),
            ]
        };
        let rows = table.rows.iter().map(row).collect();
        blocks.push(Block::Text(format!(
            "{}. {} ({}, {}, {}).",
            table.title, table.remark, table.benchmark, table.metric, table.source
        )));
        blocks.push(Block::Grid(Grid { columns: vec!["row", "percent #", "step #"], rows }));
    }
    blocks.push(Block::Text(
        "Equality with 50, or the size of any single step of Table 1, cannot be tested against \
         it: each row is one run without spread, and the authors\u{2019} own later runs differ \
         from the corresponding rows by 2 to 8 points (without Dynamic Sampling: 42 there, 50 here), \
         as large as any single step."
            .to_owned(),
    ));
    Section { id: "published", title: "The paper\u{2019}s results, for reference", blocks }
}

/// Identity, inputs, machine, digests.
pub fn environment(report: &Report) -> Section<'_> {
    let facts = |facts: &BTreeMap<String, String>, look: &'static str| -> Vec<Vec<Cell>> {
        facts
            .iter()
            .map(|(name, value)| vec![Cell::plain(name), Cell::styled(look, value)])
            .collect()
    };
    let mut identity = vec![
        vec![Cell::plain("arm"), Cell::styled("code", &report.run.arm_sha256)],
        vec![Cell::plain("run key"), Cell::styled("code", &report.run.run_key)],
    ];
    identity.extend(facts(&report.inputs, "code"));
    let mut blocks = vec![
        Block::Heading("Identity and inputs"),
        Block::Grid(Grid { columns: vec!["what", "SHA-256"], rows: identity }),
        Block::Heading("Machine"),
    ];
    blocks.push(if report.environment.is_empty() {
        Block::Text("Not recorded.".to_owned())
    } else {
        Block::Grid(Grid { columns: vec!["fact", "value"], rows: facts(&report.environment, "") })
    });
    if !report.sessions.is_empty() {
        blocks.push(Block::Text(sessions(&report.sessions)));
    }
    if !report.digests.is_empty() {
        blocks.push(Block::Text(
            "Digests of the checkpoints and of every other file that the run wrote are listed \
             under \u{201c}How to check it\u{201d}."
                .to_owned(),
        ));
    }
    Section { id: "environment", title: "Environment and digests", blocks }
}

/// What is documented well enough to repeat the run, and what is not.
pub fn checklist(report: &Report) -> Section<'_> {
    let list = &report.checklist;
    let row = |item: &Item| {
        let (look, word) = if item.met { ("good", "met") } else { ("bad", "not met") };
        let paper = match item.paper {
            Some(true) => "Yes",
            Some(false) => "No",
            None => "not known",
        };
        vec![
            Cell::plain(item.variable),
            Cell::styled(look, word),
            Cell::plain(&item.fact),
            Cell::styled("quiet", paper),
        ]
    };
    let met = list.items.iter().filter(|item| item.met).count();
    let blocks = vec![
        Block::Text(format!(
            "{met} of {} variables are met, {}. Each row rests on what the run recorded, \
             pseudocode on the program. The last column is for comparison; its source: {}.",
            list.items.len(),
            list.basis,
            list.paper_source
        )),
        Block::Grid(Grid {
            columns: vec!["variable", "this run", "recorded, or missing", "the paper"],
            rows: list.items.iter().map(row).collect(),
        }),
    ];
    Section { id: "checklist", title: "Reproducibility checklist", blocks }
}

/// How often the run was resumed, and whether that was on the machine and build that it began on.
fn sessions(sessions: &[Session]) -> String {
    let [_, resumed @ ..] = sessions else { return String::new() };
    if resumed.is_empty() {
        return "The run was made in one session.".to_owned();
    }
    let steps: Vec<String> = resumed.iter().map(|it| it.from_step.to_string()).collect();
    let mut text = format!("The run was resumed after rollout step {}", steps.join(", "));
    let changed: BTreeMap<&String, &[String; 2]> =
        resumed.iter().flat_map(|session| &session.changed).collect();
    let facts: Vec<String> = changed
        .iter()
        .map(|(name, [first, here])| format!("{name}: {first}, then {here}"))
        .collect();
    text += &match facts.is_empty() {
        true => ", each time on the machine and build that it began on.".to_owned(),
        false => format!(". What differed from the first session: {}.", facts.join("; ")),
    };
    text
}

/// What was checked, and how to check more.
pub fn checking(report: &Report) -> Section<'_> {
    let rows: Vec<Vec<Cell>> = report
        .checks
        .iter()
        .map(|check| {
            let (look, word) = if check.held { ("good", "holds") } else { ("bad", "fails") };
            vec![Cell::plain(&check.what), Cell::styled(look, word), Cell::plain(&check.detail)]
        })
        .collect();
    let mut blocks = Vec::new();
    if !rows.is_empty() {
        blocks.push(Block::Text("Checked while this report was made:".to_owned()));
        blocks.push(Block::Grid(Grid { columns: vec!["fact", "", "seen"], rows }));
    }
    blocks.push(Block::Text(
        "To check more: every number here is also in report.json; `dapo report` on this folder \
         makes the same report again; every evaluated response is in evaluations/ and every \
         training rollout that was kept in rollouts/, as parquet."
            .to_owned(),
    ));
    let repeated = match report.run.exactness.as_str() {
        "exact-here" => {
            "Train the arm again with this seed on the same kind of machine and build: \
             the files below must come out with the same digests."
        }
        "approximate" => {
            "Train the arm again with this seed: its numbers must come out about the same. The run \
             was on a graphics card, whose sums have no fixed order, so that digests of another \
             run differ; those below show whether this folder is as it was written."
        }
        _ => {
            "Train the arm again with this seed: the files below must come out with the same digests."
        }
    };
    if !report.digests.is_empty() {
        let lines: Vec<String> =
            report.digests.iter().map(|(name, digest)| format!("{digest}  {name}")).collect();
        blocks.push(Block::Text(format!(
            "{repeated} In the run folder, feed them to `sha256sum -c`:"
        )));
        blocks.push(Block::Code(lines.join("\n")));
    }
    Section { id: "check", title: "How to check it", blocks }
}
