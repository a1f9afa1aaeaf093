//! Curves of every arm: each seed, mean and band; the paper's curve has axes of its own.

use crate::records::metrics;
use crate::report::page::{
    Block, CurveLine, Curves, Figure, LegendEntry, Panel, RunLine, Section, Table, TableCell, row,
};
use crate::report::{Context, published, study::context::Unit, study::scores, text};
use crate::statistics::scaling;
use crate::study::curves::{self, BandPoint, Curve};
use crate::study::{ArmSummary, Clock, GridSummary, Series, Statistic, paper};

const SPARKLINE_COLUMNS: usize = 24;

struct CurvePlan {
    id: String,
    title: String,
    /// `None`: avg@k of the curve set.
    metric: Option<&'static str>,
    clock: Clock,
    unit: Unit,
    unit_name: &'static str,
    paper: Vec<&'static str>,
    /// A reader needs it before comparing.
    remark: &'static str,
}

/// Both of all rollouts and of the batch, where recorded.
fn plans(context: &Context, grid: &GridSummary) -> Vec<CurvePlan> {
    let anchor = scores::anchor(&grid.name);
    let accuracy = |id: &str, title: &str, clock, paper: &[&'static str], remark| CurvePlan {
        id: format!("{id}-{anchor}"),
        title: title.to_owned(),
        metric: None,
        clock,
        unit: Unit::Share,
        unit_name: "%",
        paper: paper.to_vec(),
        remark,
    };
    let mut plans = vec![
        accuracy("accuracy", "Accuracy by updates", Clock::Updates, &["1", "2a", "5a"], ""),
        accuracy(
            "accuracy-rollouts",
            "Accuracy by generated rollouts",
            Clock::GeneratedRollouts,
            &["6"],
            "Dynamic Sampling generates more rollouts for each update; on this axis it pays for \
             them. The paper draws the comparison over updates only.",
        ),
    ];
    let cells = || grid.arms.iter().flat_map(|arm| context.study.cells_of(&arm.id));
    for quantity in metrics::quantities().iter().filter(|quantity| quantity.in_studies) {
        let plan = |scope: &str, title: String, metric, paper, remark| CurvePlan {
            id: format!("{}{scope}-{anchor}", quantity.id),
            title,
            metric: Some(metric),
            clock: Clock::Updates,
            unit: if quantity.unit == "%" { Unit::Share } else { Unit::Plain },
            unit_name: &quantity.unit,
            paper,
            remark,
        };
        let paper = quantity.paper.iter().map(String::as_str).collect();
        let (title, remark) = (&quantity.title, quantity.remark.as_str());
        let (all, batch) = quantity.scopes();
        let recorded = |name: &&str| cells().any(|cell| cell.metric(name).is_some());
        match all.filter(recorded) {
            None if recorded(&batch) => {
                plans.push(plan("", title.to_owned(), batch, paper, remark))
            }
            None => {}
            Some(all) => plans.extend([
                plan("-all-rollouts", format!("{title}, all rollouts"), all, paper, remark),
                plan("", format!("{title}, batch"), batch, Vec::new(), ""),
            ]),
        }
    }
    plans
}

/// The first grid openly, others on demand.
pub fn section(context: &Context) -> Section {
    let intro = Block::Text(format!(
        "Thick lines are means over the training runs of an arm, thin lines the runs, bands the range \
         from the lowest to the highest run. x counts updates (optimiser steps), as in the paper, or \
         rollouts generated for training, dropped ones included. The paper\u{2019}s curves stand beside ours \
         for their shape, on axes of their own: {}.",
        paper::curves_source()
    ));
    let grids = context.analysis.grids.iter().enumerate().map(|(index, grid)| {
        let plans = plans(context, grid).into_iter();
        let figures = plans.map(|plan| Block::Figure(figure(context, grid, &plan, index == 0)));
        let fitted = fitted(context, grid).map(Block::Folded);
        let blocks = figures.chain(fitted).collect();
        Block::More(format!("Curves of {}", text::visible(&grid.name)), blocks)
    });
    let blocks = [intro].into_iter().chain(grids).collect();
    Section::new("curves", "Curves beside the paper\u{2019}s", blocks)
}

fn figure(context: &Context, grid: &GridSummary, plan: &CurvePlan, with_paper: bool) -> Figure {
    let series = match plan.metric {
        Some(name) => Series::Metric { name: name.to_owned() },
        None => Series::Evaluation {
            set: context.analysis.declaration.curve_set.clone(),
            statistic: Statistic::AvgAtK,
        },
    };
    let drawn: Vec<(CurveLine, bool)> = grid
        .arms
        .iter()
        .map(|arm| {
            let curve = curves::curve(context.study, &arm.id, &series, plan.clock);
            let label = text::visible(&arm.label);
            let line = line(&curve, label, context.style(&arm.id), plan.unit.scale());
            (line, !curve.seeds.is_empty())
        })
        .collect();
    let absent: Vec<String> =
        drawn.iter().filter(|(_, there)| !there).map(|(line, _)| line.label.clone()).collect();
    let lines: Vec<CurveLine> =
        drawn.into_iter().filter(|(_, there)| *there).map(|(line, _)| line).collect();
    let mut panels = vec![Panel::Curves(Curves {
        title: "this study".to_owned(),
        x: plan.clock.words().to_owned(),
        unit: plan.unit_name.to_owned(),
        lines: lines.clone(),
        ..Curves::default()
    })];
    let mut remark = String::new();
    if with_paper {
        panels.extend(plan.paper.iter().filter_map(|name| published::curves(name)));
        remark = plan.remark.to_owned();
    }
    let set = match plan.metric {
        Some(_) => String::new(),
        None => format!(" on {}", text::visible(&context.analysis.declaration.curve_set)),
    };
    Figure {
        id: plan.id.clone(),
        title: format!("{}{set}", plan.title),
        caption: caption(&lines, plan, &absent, &remark),
        legend: legend(&lines),
        numbers: numbers(&lines, plan, &panels[1..]),
        panels,
    }
}

/// ScaleRL's curve through all evaluations of an arm; `None` where none can be fitted.
fn fitted(context: &Context, grid: &GridSummary) -> Option<Table> {
    let set = &context.analysis.declaration.curve_set;
    let series = Series::Evaluation { set: set.clone(), statistic: Statistic::AvgAtK };
    let row = |arm: &ArmSummary| {
        let curve = curves::curve(context.study, &arm.id, &series, Clock::GeneratedTokens);
        let all = curve.seeds.iter().flat_map(|seed| seed.points.iter().copied());
        let (before, after): (Vec<_>, Vec<_>) = all.partition(|(spent, _)| *spent == 0.0);
        let start = before.iter().map(|point| point.1).sum::<f64>() / before.len() as f64;
        let fit = scaling::fit(start, &after).ok()?;
        Some(row![
            text::visible(&arm.label),
            TableCell::shown(Some(start), text::percent),
            TableCell::shown(Some(fit.asymptote), text::percent),
            TableCell::shown(Some(fit.midpoint), text::number),
            TableCell::shown(Some(fit.exponent), text::number),
            TableCell::shown(Some(fit.deviation), text::points)
        ])
    };
    let rows: Vec<_> = grid.arms.iter().filter_map(row).collect();
    let caption = format!(
        "avg@k on {} over generated tokens C: R(C) = R₀ + (A − R₀) / (1 + (C_mid / C)^B), ScaleRL\u{2019}s curve \
         (arXiv 2510.13786, Eq. 1), by least squares through the evaluations of all runs. A beyond what the runs \
         reached is an extrapolation, and A of 100 % or B of 0.2 or 20 are ends of the search: such runs do not \
         determine them. The spread around the curve is between runs and around their courses.",
        text::visible(set)
    );
    let columns = "arm | R₀ # | A # | C_mid, tokens # | B # | spread around the curve, points #";
    (!rows.is_empty()).then(|| Table::new(caption, columns, rows))
}

pub fn legend(lines: &[CurveLine]) -> Vec<LegendEntry> {
    lines.iter().map(|line| LegendEntry { style: line.style, label: line.label.clone() }).collect()
}

/// Cut to [0, 1], because it is a mean of shares.
pub fn interval_band(curve: &Curve, scale: f64) -> Vec<(f64, f64, f64)> {
    let of = |point: &BandPoint| {
        point.interval.map(|it| (point.x, scale * it.low.max(0.0), scale * it.high.min(1.0)))
    };
    curve.band.iter().filter_map(of).collect()
}

/// In the unit of print.
pub fn line(curve: &Curve, label: String, style: usize, scale: f64) -> CurveLine {
    let scaled = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
        points.iter().map(|(x, y)| (*x, scale * y)).collect()
    };
    let runs: Vec<RunLine> = curve
        .seeds
        .iter()
        .map(|seed| RunLine { seed: seed.seed, points: scaled(&seed.points) })
        .collect();
    // One run is its own centre.
    let centre = if curve.band.is_empty() {
        runs.first().map(|run| run.points.clone()).unwrap_or_default()
    } else {
        curve.band.iter().map(|point| (point.x, scale * point.mean)).collect()
    };
    let band = curve
        .band
        .iter()
        .map(|point| (point.x, scale * point.lowest, scale * point.highest))
        .collect();
    CurveLine { label, style, centre, band, runs, ghost: false }
}

fn ends(line: &CurveLine) -> Option<(f64, f64)> {
    Some((line.centre.first()?.1, line.centre.last()?.1))
}

/// In the unit of print: shares are percent already.
fn shown(plan: &CurvePlan, value: f64) -> String {
    match plan.unit {
        // Clipping of 0.1 % of all tokens is a lot.
        Unit::Share if value != 0.0 && value.abs() < 1.0 => format!("{} %", text::number(value)),
        Unit::Share => format!("{value:.1} %").replace('-', "−"),
        Unit::Plain => text::number(value),
    }
}

fn caption(lines: &[CurveLine], plan: &CurvePlan, absent: &[String], remark: &str) -> String {
    let with_ends = || lines.iter().filter_map(|line| Some((ends(line)?, line)));
    let highest = with_ends().reduce(|a, b| if b.0.1 > a.0.1 { b } else { a });
    let lowest = with_ends().reduce(|a, b| if b.0.1 < a.0.1 { b } else { a });
    let mut caption = match (highest, lowest) {
        (Some((high, highest)), Some((low, lowest))) if lines.len() > 1 => {
            let rising = with_ends().filter(|((first, last), _)| last > first).count();
            format!(
                "At the end {} is highest ({}), {} lowest ({}). From the first to the last point the \
                 mean rises in {rising} of {} arms.",
                highest.label,
                shown(plan, high.1),
                lowest.label,
                shown(plan, low.1),
                lines.len()
            )
        }
        (Some(((first, last), line)), _) => {
            format!("{} goes from {} to {}.", line.label, shown(plan, first), shown(plan, last))
        }
        _ => "No run that counts recorded it.".to_owned(),
    };
    let single: Vec<String> =
        lines.iter().filter(|line| line.runs.len() == 1).map(|line| line.label.clone()).collect();
    if !single.is_empty() && single.len() == lines.len() {
        caption += " Every arm has one run: there is no band.";
    } else if !single.is_empty() {
        caption += &format!(" One run, no band: {}.", text::listed(&single));
    }
    if !absent.is_empty() && !lines.is_empty() {
        caption += &format!(" Not recorded: {}.", text::listed(absent));
    }
    if !remark.is_empty() {
        caption += &format!(" {remark}");
    }
    caption
}

fn numbers(lines: &[CurveLine], plan: &CurvePlan, paper: &[Panel]) -> Table {
    // Values as in data: shares, not percent.
    let row = |line: &CurveLine, of: String, scale: f64, show: &dyn Fn(f64) -> String| {
        let (low, high) = text::range(line.centre.iter().map(|point| point.1));
        let cell = |value: Option<f64>| {
            let value = value.filter(|value| value.is_finite());
            TableCell::shown(value.map(|value| value / scale), |_| {
                value.map(show).unwrap_or_default()
            })
        };
        let ends = ends(line);
        row![
            &line.label,
            of,
            cell(ends.map(|ends| ends.0)),
            text::sparkline(&line.centre, SPARKLINE_COLUMNS),
            cell(ends.map(|ends| ends.1)),
            line.band.last().map_or(TableCell::missing("–"), |(_, low, high)| {
                let text = format!("{} to {}", show(*low), show(*high));
                TableCell::value(text, [low / scale, high / scale])
            }),
            cell(Some(low)),
            cell(Some(high))
        ]
    };
    let own = lines.iter().map(|line| {
        let runs = text::counted(line.runs.len(), "run", "runs");
        row(line, runs, plan.unit.scale(), &|value| shown(plan, value))
    });
    let mut rows: Vec<Vec<TableCell>> = own.collect();
    for panel in paper {
        let Panel::Curves(curves) = panel else { continue };
        let percent = |value: f64| format!("{value:.1} %");
        let (scale, show): (f64, &dyn Fn(f64) -> String) =
            if curves.unit == "%" { (100.0, &percent) } else { (1.0, &text::number) };
        rows.extend(curves.lines.iter().map(|line| row(line, curves.title.clone(), scale, show)));
    }
    let caption = format!("{} over {}: means over runs.", plan.title, plan.clock.words());
    let columns =
        "line | of | first # | course | last # | runs at the last point # | lowest # | highest #";
    Table::new(caption, columns, rows)
}
