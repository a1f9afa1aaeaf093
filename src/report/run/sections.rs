//! The chapters of the report, in reviewer order.

use crate::report::run::Report;
use crate::report::run::document::{Block, Section};
use crate::report::{Cell, Estimate, Evaluation, Grid, MetricRow, SetResult, Technique, text};
use crate::study::effect_checks::{Finding, Verdict};
use crate::study::{NamedWarning, paper};

/// What the run shows of each technique, whatever its switch says.
pub fn effects(report: &Report) -> Section<'_> {
    let effects = &report.effects;
    let row = |finding: &Finding| {
        let state = if finding.enabled { "on" } else { "off" };
        let look = match finding.verdict {
            Verdict::Acted => "good",
            Verdict::EnabledButDidNothing | Verdict::DisabledButActed => "bad",
            Verdict::Explained | Verdict::Off | Verdict::NotRecorded => "quiet",
        };
        vec![
            Cell::styled("strong", finding.technique),
            Cell::styled(state, state),
            Cell::styled(look, finding.verdict.words()),
            Cell::plain(&finding.evidence),
        ]
    };
    let mut blocks = vec![
        Block::Text(
            "What the records show of each technique, read from the rollouts, the batches, the \
             loss and its weights, and not from the switch. A technique that is on and did nothing, \
             or is off and acted, is a warning at the top of this report. Counts are sums over the \
             recorded rollout steps."
                .to_owned(),
        ),
        Block::Grid(Grid {
            columns: vec!["technique", "", "in this run", "seen"],
            rows: effects.findings.iter().map(row).collect(),
        }),
    ];
    if !effects.named_warnings.is_empty() {
        let row = |warning: &NamedWarning| {
            vec![Cell::styled("bad", warning.name), Cell::plain(&warning.sentence)]
        };
        let rows = effects.named_warnings.iter().map(row).collect();
        blocks.push(Block::Text("Settings whose effect is easily overlooked:".to_owned()));
        blocks.push(Block::Grid(Grid { columns: vec!["warning", "in this run"], rows }));
    }
    if !report.effect_figures.is_empty() {
        blocks.push(Block::Charts(&report.effect_figures));
    }
    Section { id: "effects", title: "Is each technique doing something?", blocks }
}

/// The technique manifest, the open decisions, the other settings.
pub fn what_was_run(report: &Report) -> Section<'_> {
    let decisions: Vec<Vec<Cell>> = report
        .decisions
        .iter()
        .map(|decision| {
            vec![
                Cell::plain(decision.choice),
                Cell::styled("strong", &decision.value),
                Cell::styled("quiet", decision.paper),
                Cell::styled("quiet", decision.released_code),
            ]
        })
        .collect();
    let settings = report
        .settings
        .iter()
        .map(|(name, value)| vec![Cell::styled("code", name), Cell::plain(value)])
        .collect();
    let on: Vec<&str> =
        report.techniques.iter().filter(|technique| technique.on).map(|t| t.name).collect();
    let summary = match on.as_slice() {
        [] => "No technique of the paper is on: this is naive GRPO.".to_owned(),
        on => format!("On: {}.", on.join(", ")),
    };
    Section {
        id: "run",
        title: "What was run",
        blocks: vec![
            Block::Text(summary),
            Block::Grid(Grid {
                columns: vec!["technique", "paper", "", "settings"],
                rows: report.techniques.iter().map(technique_row).collect(),
            }),
            Block::Folded(
                format!(
                    "{} decisions that the paper leaves open, or that it and the released code make differently",
                    decisions.len()
                ),
                Grid {
                    columns: vec!["choice", "this run", "paper", "released code"],
                    rows: decisions,
                },
            ),
            Block::Folded(
                "All other settings".to_owned(),
                Grid { columns: vec!["setting", "value"], rows: settings },
            ),
        ],
    }
}

fn technique_row(technique: &Technique) -> Vec<Cell> {
    let state = if technique.on { "on" } else { "off" };
    vec![
        Cell::styled("strong", technique.name),
        Cell::styled("quiet", technique.place),
        Cell::styled(state, state),
        Cell::plain(&technique.settings),
    ]
}

/// The table of sets with both intervals, and every sample of the headline set.
pub fn evaluation(report: &Report) -> Section<'_> {
    let mut blocks = Vec::new();
    if report.evaluations.is_empty() {
        blocks.push(Block::Text("No evaluation is recorded in this run folder.".to_owned()));
        return Section { id: "evaluation", title: "Evaluation", blocks };
    }
    blocks.push(Block::Text(
        "Two intervals answer two questions. \u{201c}These problems\u{201d}: how far off is the \
         number for this checkpoint on exactly these problems, with decoding noise alone \
         (±1.96 standard errors). \u{201c}Other problems\u{201d}: how far off is it for another \
         draw of problems of this kind (clustered by problem, t with n − 1 degrees of freedom). \
         Neither covers another training run: this report has one. Intervals are 95 %, in \
         percentage points, cut at the ends of the scale; a standard error of 0 means that all \
         samples agreed, not that the number is certain. Changes are paired by problem."
            .to_owned(),
    ));
    blocks.push(Block::Grid(Grid {
        columns: vec![
            "set",
            "n × k × runs #",
            "policy",
            "avg@k %#",
            "SE #",
            "95 %, these problems #",
            "SE #",
            "95 %, other problems #",
            "pass@k %#",
            "cons@k %#",
            "truncated %#",
            "mean tokens #",
        ],
        rows: report.evaluations.iter().flat_map(set_rows).collect(),
    }));
    if !report.pass_at_k.is_empty() {
        blocks.push(Block::Charts(&report.pass_at_k));
    }
    if let Some(strip) = &report.strip {
        blocks.push(Block::Heading("Every sample"));
        blocks.push(Block::Text(format!(
            "{}: one row a problem, one cell a sample, in order of the sample number. Problems \
             are sorted by how often the final policy solves them.",
            strip.set
        )));
        blocks.push(Block::Strip(strip));
    }
    Section { id: "evaluation", title: "Evaluation", blocks }
}

fn set_rows(result: &SetResult) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    let start = |policy: String| {
        vec![
            Cell::styled("name", &result.set),
            Cell::plain(format!("{} × {} × 1", result.problems, result.samples)),
            Cell::styled("policy", policy),
        ]
    };
    if let Some(base) = &result.base {
        rows.push([start("base".to_owned()), evaluation_cells(base)]);
    }
    if let Some(last) = &result.last {
        let policy = format!("{} updates", text::grouped(last.counters.updates));
        rows.push([start(policy), evaluation_cells(last)]);
    }
    if let Some(difference) = &result.difference {
        let mut cells = estimate_cells(difference, text::signed_points(difference.value));
        cells.extend((0..4).map(|_| Cell::plain("")));
        rows.push([start("change".to_owned()), cells]);
    }
    rows.into_iter().map(|parts| parts.into_iter().flatten().collect()).collect()
}

fn evaluation_cells(evaluation: &Evaluation) -> Vec<Cell> {
    let avg = &evaluation.avg_at_k;
    let pass = evaluation.pass_at_k.last_key_value();
    let mut cells = estimate_cells(avg, text::points(avg.value));
    cells.extend([
        Cell::plain(pass.map(|(_, pass)| text::points(*pass)).unwrap_or_default()),
        Cell::plain(text::points(evaluation.cons_at_k)),
        Cell::plain(text::points(evaluation.truncated_share)),
        Cell::plain(format!("{:.1}", evaluation.response_tokens_mean)),
    ]);
    cells
}

fn estimate_cells(estimate: &Estimate, value: String) -> Vec<Cell> {
    let (fixed, new) = (&estimate.fixed_problems, &estimate.new_problems);
    vec![
        Cell::styled("strong", value),
        Cell::plain(text::standard_error(fixed.standard_error)),
        Cell::plain(text::interval(fixed.low, fixed.high)),
        Cell::plain(text::standard_error(new.standard_error)),
        Cell::plain(text::interval(new.low, new.high)),
    ]
}

/// Our curves beside the paper's.
pub fn curves(report: &Report) -> Section<'_> {
    let source = paper::curves_source();
    Section {
        id: "curves",
        title: "Training curves beside the paper\u{2019}s",
        blocks: vec![
            Block::Text(format!(
                "Left: this run. Right: the paper\u{2019}s own curve, for its shape alone, in its \
                 own panel with its own axes. Model, data and length limit differ, so no height \
                 on the left can be read against a height on the right. x counts updates \
                 (optimiser steps) on both sides. Paper: {source}; x is exact to one update, in \
                 Figs 1 and 7 to 80."
            )),
            Block::Beside(&report.figures),
        ],
    }
}

/// Curves without a counterpart in the paper, and each metric's course.
pub fn dynamics(report: &Report) -> Section<'_> {
    let row = |metric: &MetricRow| {
        let mut row = vec![Cell::styled("code", &metric.name)];
        row.extend(metric.meaning.map(|meaning| Cell::styled("quiet", meaning)));
        row.extend([
            Cell {
                text: text::sparkline(&metric.points, 16),
                look: "",
                spark: Some(metric.points.clone()),
            },
            Cell::plain(text::number(metric.first.1)),
            Cell::styled("strong", text::number(metric.last.1)),
            Cell::plain(text::number(metric.low)),
            Cell::plain(text::number(metric.high)),
        ]);
        row
    };
    let grid = |main: bool| {
        let mut columns =
            vec!["metric", "meaning", "course", "first #", "last #", "lowest #", "highest #"];
        columns.retain(|name| main || *name != "meaning");
        let shown = report.metrics.iter().filter(|metric| metric.meaning.is_some() == main);
        Grid { columns, rows: shown.map(row).collect() }
    };
    let mut blocks = Vec::new();
    if report.metrics.is_empty() {
        blocks.push(Block::Text("No rollout step is recorded yet.".to_owned()));
    } else {
        blocks.push(Block::Charts(&report.own_figures));
        blocks.push(Block::Text(
            "First and last are the first and last rollout step that recorded the metric."
                .to_owned(),
        ));
        blocks.push(Block::Grid(grid(true)));
        if report.metrics.iter().any(|metric| metric.meaning.is_none()) {
            blocks.push(Block::Folded("The other metrics".to_owned(), grid(false)));
        }
    }
    Section { id: "dynamics", title: "Dynamics", blocks }
}

/// Counters and wall-clock time by phase.
pub fn cost(report: &Report) -> Section<'_> {
    let counts = &report.counts;
    let count = |name: &str, value: Option<f64>| {
        let shown = value.map_or("not recorded".to_owned(), |value| text::grouped(value as u64));
        vec![Cell::plain(name), Cell::plain(shown)]
    };
    let clock = |name: &str, value: u64| vec![Cell::plain(name), Cell::plain(text::grouped(value))];
    let mut blocks = vec![Block::Grid(Grid {
        columns: vec!["counter", "count #"],
        rows: vec![
            clock("generation rounds", counts.counters.generation_rounds),
            clock("rollout steps", counts.counters.rollout_steps),
            clock("updates", counts.counters.updates),
            count("rollouts generated", counts.generated_rollouts),
            count("rollouts trained on", counts.trained_rollouts),
            count("response tokens generated", counts.generated_tokens),
        ],
    })];
    if let Some(total) = counts.seconds {
        let row = |(phase, seconds): &(String, f64)| {
            vec![
                Cell::plain(phase),
                Cell::plain(text::duration(*seconds)),
                Cell::plain(text::percent(if total > 0.0 { seconds / total } else { 0.0 })),
            ]
        };
        let mut rows: Vec<Vec<Cell>> = counts.seconds_by_phase.iter().map(row).collect();
        let named: f64 = counts.seconds_by_phase.iter().map(|(_, seconds)| seconds).sum();
        if total - named > 0.05 {
            rows.push(row(&("everything else".to_owned(), total - named)));
        }
        rows.push(vec![
            Cell::styled("strong", "total"),
            Cell::styled("strong", text::duration(total)),
            Cell::plain(""),
        ]);
        blocks.push(Block::Grid(Grid { columns: vec!["phase", "wall clock #", "share #"], rows }));
    }
    Section { id: "cost", title: "What it took", blocks }
}

/// Rollouts to read.
pub fn samples(report: &Report) -> Section<'_> {
    let blocks = if report.samples.is_empty() {
        vec![Block::Text("No rollout is recorded yet.".to_owned())]
    } else {
        vec![
            Block::Text(
                "The first correct, wrong and truncated rollouts of the first and the last \
                 rollout step, in the order in which they were sampled; nobody picked them. \
                 Characters that do not print are shown as escapes, line ends as ⏎, and long \
                 texts lose their middle."
                    .to_owned(),
            ),
            Block::Samples(&report.samples),
        ]
    };
    Section { id: "samples", title: "Sample rollouts", blocks }
}
