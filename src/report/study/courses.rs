//! Curves of every arm: each seed, mean and band; the paper's curve has axes of its own.

use crate::base::workers;
use crate::records::metrics::{self, Quantity};
use crate::report::page::{
    self, Block, CurveLine, Curves, Figure, Panel, Section, Table, TableCell, row,
};
use crate::report::text::{self, Unit};
use crate::report::{Context, published, study::scores};
use crate::statistics::{between, estimators, scaling, scaling::ScalingCurve, scaling::SearchEnd};
use crate::study::curves::{self, BandPoint, Curve, SeedCurve};
use crate::study::{ArmSummary, Clock, GridSummary, Series, paper};

const SPARKLINE_COLUMNS: usize = 24;

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

struct CurvePlan {
    id: String,
    title: String,
    /// ` on <set>` of scores.
    of_set: String,
    series: Series,
    clock: Clock,
    unit: Unit,
    unit_name: &'static str,
    paper: Vec<&'static str>,
    /// A reader needs it before comparing.
    remark: &'static str,
}

/// Scores over two clocks, and the registry's metrics for studies: of all rollouts and of the batch, if both are
/// recorded.
fn plans(context: &Context, grid: &GridSummary) -> Vec<CurvePlan> {
    let set = text::visible(&context.analysis.declaration.curve_set);
    let scores = |id: &str, title: &str, clock, paper: &[&'static str], remark| CurvePlan {
        id: id.to_owned(),
        title: title.to_owned(),
        of_set: format!(" on {set}"),
        series: scores_of_curve_set(context),
        clock,
        unit: Unit::Share,
        unit_name: "%",
        paper: paper.to_vec(),
        remark,
    };
    let mut plans = vec![
        scores("accuracy", "Accuracy by updates", Clock::Updates, &["1", "2a", "5a"], ""),
        scores(
            "accuracy-rollouts",
            "Accuracy by generated rollouts",
            Clock::GeneratedRollouts,
            &["6"],
            "Dynamic Sampling generates more rollouts for each update; on this axis it pays for \
             them. The paper draws the comparison over updates only.",
        ),
    ];
    let cells = || grid.arms.iter().flat_map(|arm| context.study.cells_of(&arm.id));
    let is_recorded = |name: &&str| cells().any(|cell| cell.metric(name).is_some());
    for quantity in metrics::quantities().iter().filter(|quantity| quantity.in_studies) {
        let (all, batch) = quantity.scopes();
        match all.filter(is_recorded) {
            Some(all) => plans.extend([
                of_quantity(quantity, ("-all-rollouts", ", all rollouts"), all, true),
                of_quantity(quantity, ("", ", batch"), batch, false),
            ]),
            None if is_recorded(&batch) => {
                plans.push(of_quantity(quantity, ("", ""), batch, true));
            }
            None => {}
        }
    }
    let anchor = scores::anchor(&grid.name);
    plans.iter_mut().for_each(|plan| plan.id += &format!("-{anchor}"));
    plans
}

fn of_quantity(
    quantity: &'static Quantity,
    (id, title): (&str, &str),
    metric: &str,
    is_the_papers: bool,
) -> CurvePlan {
    let paper = quantity.paper.iter().filter(|_| is_the_papers);
    CurvePlan {
        id: format!("{}{id}", quantity.id),
        title: format!("{}{title}", quantity.title),
        of_set: String::new(),
        series: Series::Metric { name: metric.to_owned() },
        clock: Clock::Updates,
        unit: if quantity.unit == "%" { Unit::Share } else { Unit::Plain },
        unit_name: &quantity.unit,
        paper: paper.map(String::as_str).collect(),
        remark: if is_the_papers { &quantity.remark } else { "" },
    }
}

fn scores_of_curve_set(context: &Context) -> Series {
    let set = context.analysis.declaration.curve_set.clone();
    Series::Evaluation { set }
}

fn figure(context: &Context, grid: &GridSummary, plan: &CurvePlan, with_paper: bool) -> Figure {
    let (mut lines, mut absent) = (Vec::new(), Vec::new());
    for arm in &grid.arms {
        let curve = curves::curve(context.study, &arm.id, &plan.series, plan.clock);
        let label = text::visible(&arm.label);
        if curve.seeds.is_empty() {
            absent.push(label);
        } else {
            lines.push(line(&curve, label, context.style(&arm.id), plan.unit.scale()));
        }
    }
    let names = plan.paper.iter().filter(|_| with_paper);
    let published: Vec<Curves> = names.filter_map(|name| published::curves(name)).collect();
    let remark = if with_paper { plan.remark } else { "" };
    let own = Curves::new("this study", plan.clock.words(), plan.unit_name, lines);
    Figure {
        id: plan.id.clone(),
        title: format!("{}{}", plan.title, plan.of_set),
        caption: caption(&own.lines, plan.unit, &absent, remark) + &counted(context, grid, plan),
        legend: page::legend(&own.lines),
        numbers: numbers(&own.lines, plan, &published),
        panels: [own].into_iter().chain(published).map(Panel::Curves).collect(),
    }
}

fn counted(context: &Context, grid: &GridSummary, plan: &CurvePlan) -> String {
    let Series::Metric { name } = &plan.series else { return String::new() };
    let of_arm = |arm: &ArmSummary| {
        let cell = context.study.cells_of(&arm.id).into_iter().next()?;
        let tokens = cell.experiment.dapo.counted(name)?;
        Some(format!(" {} counts tokens of {tokens}.", text::visible(&arm.label)))
    };
    grid.arms.iter().filter_map(of_arm).collect()
}

/// ScaleRL's curve through all evaluations of an arm; `None` where none can be fitted.
fn fitted(context: &Context, grid: &GridSummary) -> Option<Table> {
    let rows = grid.arms.iter().filter_map(|arm| fitted_row(context, arm));
    let caption = format!(
        "avg@k on {} over generated tokens C: R(C) = R₀ + (A − R₀) / (1 + (C_mid / C)^B), ScaleRL\u{2019}s curve \
         (arXiv 2510.13786, Eq. 1), by least squares through the evaluations of all runs. A beyond what the runs \
         reached is an extrapolation. A is searched from 0 to 100 %, C_mid from a third of the smallest C to three times \
         the largest, and B from 0.2 to 20: the runs do not determine a fit that is at an end of these, which the last \
         column names. The {:.0} % interval of A is the jackknife\u{2019}s over runs, cut to 100 %; there is none where a \
         fit, or one without some run, is at an end, and with fewer than five runs. \
         Forecast: the mean of score − R(C) beyond half of the largest C, R fitted up to it. The spread around the \
         curve is between runs and around their courses.",
        text::visible(&context.analysis.declaration.curve_set),
        100.0 * context.analysis.declaration.level
    );
    let columns = "arm | R₀ # | A # | interval of A # | C_mid, tokens # | B # | \
                   forecast off by, points # | spread around the curve, points # | at an end of the search";
    Table::new(caption, columns, rows).filled()
}

fn fitted_row(context: &Context, arm: &ArmSummary) -> Option<Vec<TableCell>> {
    let series = scores_of_curve_set(context);
    let curve = curves::curve(context.study, &arm.id, &series, Clock::GeneratedTokens);
    let (start, after) = start_and_course(curve.seeds.iter());
    let fit = scaling::fit(start, &after).ok()?;
    let inside = |fit: ScalingCurve| fit.is_inside().then_some(fit.asymptote);
    let without: Vec<Option<f64>> = workers::on_all_cores(&curve.seeds, |left_out| {
        let others = curve.seeds.iter().filter(|seed| seed.seed != left_out.seed);
        let (start, after) = start_and_course(others);
        scaling::fit(start, &after).ok().and_then(inside)
    });
    let without: Option<Vec<f64>> = without.into_iter().collect();
    let level = context.analysis.declaration.level;
    let interval = inside(fit)
        .zip(without)
        .and_then(|(all, without)| between::jackknife_interval(all, &without, level).ok())
        .map(|it| [it.low, it.high].map(|share| text::percent(share.clamp(0.0, 1.0))).join(" to "));
    let forecast = scaling::forecast_error(start, &after).ok();
    let ends = ["A", "C_mid", "B"].into_iter().zip(fit.ends).filter_map(|(name, end)| {
        let end = if end? == SearchEnd::Lowest { "lowest" } else { "highest" };
        Some(format!("{end} {name}"))
    });
    let ends = Some(text::joined(ends, ", ")).filter(|ends| !ends.is_empty());
    Some(row![
        text::visible(&arm.label),
        text::percent(start),
        text::percent(fit.asymptote),
        TableCell::or(interval, "–"),
        text::number(fit.midpoint),
        text::number(fit.exponent),
        TableCell::shown(forecast, text::signed_points),
        text::points(fit.deviation),
        TableCell::or(ends, "–")
    ])
}

/// The mean score before training, NaN where no run has it, and all evaluations after.
fn start_and_course<'a>(seeds: impl Iterator<Item = &'a SeedCurve>) -> (f64, Vec<(f64, f64)>) {
    let all = seeds.flat_map(|seed| seed.points.iter().copied());
    let (before, after): (Vec<_>, Vec<_>) = all.partition(|(spent, _)| *spent == 0.0);
    let before: Vec<f64> = before.into_iter().map(|(_, score)| score).collect();
    let start = if before.is_empty() { f64::NAN } else { estimators::mean(&before) };
    (start, after)
}

/// Mean and interval of the curve set's score in percent, for arms with an evaluation.
pub fn mean_scores<'a>(
    context: &Context,
    arms: impl IntoIterator<Item = &'a str>,
    clock: Clock,
) -> Vec<CurveLine> {
    means(context, arms, (&scores_of_curve_set(context), Unit::Share), clock)
}

/// Mean and interval of a series, in the unit of print, for arms that have it.
pub fn means<'a>(
    context: &Context,
    arms: impl IntoIterator<Item = &'a str>,
    (series, unit): (&Series, Unit),
    clock: Clock,
) -> Vec<CurveLine> {
    let interval = |point: &BandPoint| match unit {
        Unit::Share => interval_of_share(point),
        Unit::Plain => point.interval.map(|it| (point.x, it.low, it.high)),
    };
    let lines = arms.into_iter().map(|id| {
        let curve = curves::curve(context.study, id, series, clock);
        CurveLine {
            band: curve.band.iter().filter_map(interval).collect(),
            runs: Vec::new(),
            ..line(&curve, context.label(id), context.style(id), unit.scale())
        }
    });
    lines.filter(|line| !line.centre.is_empty()).collect()
}

/// Cut to [0, 1], because it is a mean of shares; in percent.
fn interval_of_share(point: &BandPoint) -> Option<(f64, f64, f64)> {
    let interval = point.interval?;
    Some((point.x, 100.0 * interval.low.max(0.0), 100.0 * interval.high.min(1.0)))
}

fn line(curve: &Curve, label: String, style: usize, scale: f64) -> CurveLine {
    let scaled = |seed: &SeedCurve| seed.points.iter().map(|(x, y)| (*x, scale * y)).collect();
    let runs: Vec<Vec<(f64, f64)>> = curve.seeds.iter().map(scaled).collect();
    let centre = if curve.band.is_empty() {
        runs.first().cloned().unwrap_or_default()
    } else {
        curve.band.iter().map(|point| (point.x, scale * point.mean)).collect()
    };
    let between = curve.band.iter().filter(|point| point.interpolated);
    let interpolated_at = between.map(|point| point.x).collect();
    let band = curve.band.iter();
    let band = band.map(|point| (point.x, scale * point.lowest, scale * point.highest)).collect();
    CurveLine { label, style, centre, band, runs, interpolated_at, ghost: false }
}

fn ends(line: &CurveLine) -> Option<(f64, f64)> {
    Some((line.centre.first()?.1, line.centre.last()?.1))
}

fn caption(lines: &[CurveLine], unit: Unit, absent: &[String], remark: &str) -> String {
    let shown = |value: f64| in_print(unit, value);
    let with_ends = || lines.iter().filter_map(|line| Some((ends(line)?, line)));
    let highest = with_ends().reduce(|a, b| if b.0.1 > a.0.1 { b } else { a });
    let lowest = with_ends().reduce(|a, b| if b.0.1 < a.0.1 { b } else { a });
    let mut caption = match (highest, lowest) {
        (Some((high, _)), Some((low, _))) if lines.len() > 1 => {
            let rising = with_ends().filter(|((first, last), _)| last > first).count();
            let [high, low] = [high.1, low.1].map(shown);
            let at = |value: &String| {
                let there = with_ends().filter(|(ends, _)| shown(ends.1) == *value);
                let labels: Vec<&String> = there.map(|(_, line)| &line.label).collect();
                match labels.len() {
                    1 => (text::listed(&labels), "is"),
                    2 | 3 => (text::listed(&labels), "are"),
                    many => (format!("{many} arms"), "are"),
                }
            };
            let end = if high == low {
                format!("every arm is at {high}")
            } else {
                let ((highest, is), (lowest, _)) = (at(&high), at(&low));
                format!("{highest} {is} highest ({high}), {lowest} lowest ({low})")
            };
            format!(
                "At the end {end}. From the first to the last point the mean rises in {rising} of {} arms.",
                lines.len()
            )
        }
        (Some(((first, last), line)), _) => {
            format!("{} goes from {} to {}.", line.label, shown(first), shown(last))
        }
        _ => "No run that counts recorded it.".to_owned(),
    };
    let single = lines.iter().filter(|line| line.runs.len() == 1).map(|line| &line.label);
    match single.clone().count() {
        0 => {}
        count if count == lines.len() => caption += " Every arm has one run: there is no band.",
        _ => caption += &format!(" One run, no band: {}.", text::listed(single)),
    }
    if !absent.is_empty() && !lines.is_empty() {
        caption += &format!(" Not recorded: {}.", text::listed(absent));
    }
    if !remark.is_empty() {
        caption += &format!(" {remark}");
    }
    caption
}

/// Shares are percent already.
fn in_print(unit: Unit, value: f64) -> String {
    match unit {
        // Clipping of 0.1 % of all tokens is a lot.
        Unit::Share if value != 0.0 && value.abs() < 1.0 => format!("{} %", text::number(value)),
        Unit::Share => format!("{value:.1} %").replace('-', "−"),
        Unit::Plain => text::number(value),
    }
}

fn numbers(lines: &[CurveLine], plan: &CurvePlan, published: &[Curves]) -> Table {
    let own = lines.iter().map(|line| {
        let runs = text::counted(line.runs.len(), "run", "runs");
        course(line, runs, |value| in_print(plan.unit, value))
    });
    let of_paper = published.iter().flat_map(|curves| {
        let show = |value: f64| {
            if curves.unit == "%" { format!("{value:.1} %") } else { text::number(value) }
        };
        curves.lines.iter().map(move |line| course(line, curves.title.clone(), show))
    });
    let caption = format!("{} over {}: means over runs.", plan.title, plan.clock.words());
    let columns =
        "line | of | first # | course | last # | runs at the last point # | lowest # | highest #";
    Table::new(caption, columns, own.chain(of_paper))
}

fn course(line: &CurveLine, of: String, show: impl Fn(f64) -> String) -> Vec<TableCell> {
    let [first, drawn, last, low, high] = page::course(&line.centre, SPARKLINE_COLUMNS, &show);
    let band = line.band.last().map(|(_, low, high)| format!("{} to {}", show(*low), show(*high)));
    row![&line.label, of, first, drawn, last, TableCell::or(band, "–"), low, high]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_that_tie_in_print_are_named_together() {
        let line = |(label, last): (&str, f64)| CurveLine {
            label: label.to_owned(),
            centre: vec![(0.0, 0.0), (1.0, last)],
            ..CurveLine::default()
        };
        let start = |ends: &[(&str, f64)]| {
            let lines: Vec<CurveLine> = ends.iter().copied().map(line).collect();
            caption(&lines, Unit::Share, &[], "").split(". ").next().unwrap().to_owned()
        };
        let tied = start(&[("a", 10.01), ("b", 10.04)]);
        assert_eq!(tied, "At the end every arm is at 10.0 %");
        let two = start(&[("a", 20.0), ("b", 20.0), ("c", 10.0)]);
        assert_eq!(two, "At the end a and b are highest (20.0 %), c lowest (10.0 %)");
    }
}
