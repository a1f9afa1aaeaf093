//! Checks claims against the paper's own numbers. Each curve and row is of one run, so a result
//! says what the figure shows, not how certain it is.

use crate::study::paper::{self, PublishedCurve, PublishedRow};
use crate::study::{Direction, MetricWindow, Reduce, curves, window};
use serde::{Deserialize, Serialize};

/// Windows are shares of the x-axis that all curves of the check have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum PaperCheck {
    Difference {
        figure: String,
        arm: String,
        reference: String,
        window: MetricWindow,
        reduce: Reduce,
        direction: Direction,
    },
    Contrast {
        figure: String,
        label: String,
        early: MetricWindow,
        late: MetricWindow,
        direction: Direction,
    },
    Level {
        figure: String,
        label: String,
        window: MetricWindow,
        reduce: Reduce,
        /// In the curve's unit.
        bound: f64,
        direction: Direction,
    },
    /// The first vertex of two curves at or above a published level.
    FirstReaches { figure: String, arm: String, reference: String, table: String, row: String },
    Rows {
        table: String,
        arm: String,
        reference: String,
        direction: Direction,
        /// A repetition by others; it decides nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        again: Option<Again>,
    },
    Correlation {
        x_figure: String,
        x_label: String,
        y_figure: String,
        y_label: String,
        window: MetricWindow,
        /// The claim: r is below this (`lower`) or above it (`higher`); without a direction |r| is below.
        bound: f64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        direction: Option<Direction>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Again {
    pub table: String,
    pub arm: String,
    pub reference: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PaperEvidence {
    #[serde(skip)]
    pub words: String,
    /// The number that decides, in `unit`.
    pub value: f64,
    pub unit: String,
    pub agrees: bool,
    /// One run, its grid, its definition.
    #[serde(skip)]
    pub remark: String,
}

impl PaperCheck {
    /// Checks that the curves and rows exist and the windows are not empty.
    pub fn check(&self) -> Result<(), String> {
        self.evidence().map(|_| ())
    }

    pub fn evidence(&self) -> Result<PaperEvidence, String> {
        match self {
            Self::Difference { figure, arm, reference, window, reduce, direction } => {
                let curves = [curve(figure, arm)?, curve(figure, reference)?];
                difference(curves, *window, *reduce, *direction)
            }
            Self::Contrast { figure, label, early, late, direction } => {
                contrast(curve(figure, label)?, *early, *late, *direction)
            }
            Self::Level { figure, label, window, reduce, bound, direction } => {
                level(curve(figure, label)?, (*window, *reduce), *bound, *direction)
            }
            Self::FirstReaches { figure, arm, reference, table, row } => {
                first_reaches(figure, arm, reference, published(table, row)?)
            }
            Self::Rows { table, arm, reference, direction, again } => {
                let (mut words, value) = rows(table, arm, reference)?;
                if let Some(Again { table, arm, reference }) = again {
                    words += &format!("; run again: {}", rows(table, arm, reference)?.0);
                }
                let table = paper::find_table(table).ok_or("no such table")?;
                let agrees = direction.sign() * value > 0.0;
                Ok(decided(words, value, &table.unit, agrees, &table.remark))
            }
            Self::Correlation {
                x_figure,
                x_label,
                y_figure,
                y_label,
                window,
                bound,
                direction,
            } => {
                let (x, y) = (curve(x_figure, x_label)?, curve(y_figure, y_label)?);
                correlation(x, y, *window, *bound, *direction)
            }
        }
    }
}

fn decided(words: String, value: f64, unit: &str, agrees: bool, remark: &str) -> PaperEvidence {
    let remark = format!("one run; {remark}");
    PaperEvidence { words, value, unit: unit.to_string(), agrees, remark }
}

fn curve(figure: &str, label: &str) -> Result<&'static PublishedCurve, String> {
    paper::curve(figure, label)
        .ok_or_else(|| format!("figure `{figure}` has no published curve `{label}`"))
}

fn published(table: &str, row: &str) -> Result<&'static PublishedRow, String> {
    let found = paper::find_table(table).and_then(|table| table.row(row));
    found.ok_or_else(|| format!("table `{table}` has no published row `{row}`"))
}

fn common_range(curves: &[&PublishedCurve], window: MetricWindow) -> Result<(f64, f64), String> {
    if let Some(reason) = window.problem() {
        return Err(reason);
    }
    let ends = |curve: &&PublishedCurve| Some((curve.points.first()?.0, curve.points.last()?.0));
    let ranges: Vec<(f64, f64)> = curves.iter().filter_map(ends).collect();
    let low = ranges.iter().map(|range| range.0).fold(f64::NEG_INFINITY, f64::max);
    let high = ranges.iter().map(|range| range.1).fold(f64::INFINITY, f64::min);
    if ranges.len() < curves.len() || !(low.is_finite() && high > low) {
        return Err("the curves have no common range".to_string());
    }
    let at = |share: f64| low + (high - low) * share;
    Ok((at(window.from_share), at(window.to_share)))
}

/// On the straight lines between vertices. The mean is the area under them, because vertices on a
/// straight line were dropped from the file.
fn reduced(curve: &PublishedCurve, (from, to): (f64, f64), reduce: Reduce) -> Result<f64, String> {
    let inner = curve.points.iter().copied().filter(|(x, _)| *x > from && *x < to);
    let end = |x: f64| {
        // A computed end may be outside by a rounding error.
        let inside = x.clamp(curve.points[0].0, curve.points[curve.points.len() - 1].0);
        curves::interpolated(&curve.points, inside).map(|y| (x, y))
    };
    let (Some(first), Some(last)) = (end(from), end(to)) else {
        return Err(format!("figure `{}` has no values there", curve.figure));
    };
    let points: Vec<(f64, f64)> = [first].into_iter().chain(inner).chain([last]).collect();
    let ys = points.iter().map(|(_, y)| *y);
    match reduce {
        Reduce::Mean => {
            let area: f64 = points
                .windows(2)
                .map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0)
                .sum();
            Ok(area / (to - from))
        }
        Reduce::Minimum => Ok(ys.fold(f64::INFINITY, f64::min)),
        Reduce::Maximum => Ok(ys.fold(f64::NEG_INFINITY, f64::max)),
        Reduce::Sum | Reduce::Slope => {
            Err("a published curve has no sum or slope here".to_string())
        }
    }
}

fn difference(
    [one, other]: [&PublishedCurve; 2],
    window: MetricWindow,
    reduce: Reduce,
    direction: Direction,
) -> Result<PaperEvidence, String> {
    let (figure, arm, reference) = (&one.figure, &one.label, &other.label);
    let range = common_range(&[one, other], window)?;
    let (a, b) = (reduced(one, range, reduce)?, reduced(other, range, reduce)?);
    let (reduce, unit) = (reduce_words(reduce), &one.y_unit);
    let words = format!(
        "Fig. {figure}, {reduce} over updates {:.0} to {:.0}: {} with “{arm}”, {} with “{reference}”",
        range.0,
        range.1,
        number(a),
        number(b)
    );
    Ok(decided(words, a - b, unit, direction.sign() * (a - b) > 0.0, &one.remark))
}

fn contrast(
    curve: &PublishedCurve,
    early: MetricWindow,
    late: MetricWindow,
    direction: Direction,
) -> Result<PaperEvidence, String> {
    let figure = &curve.figure;
    let mean = |window: MetricWindow| reduced(curve, common_range(&[curve], window)?, Reduce::Mean);
    let (before, after) = (mean(early)?, mean(late)?);
    let words = format!(
        "Fig. {figure}: {} {}, {} {}",
        number(before),
        window_words(early),
        number(after),
        window_words(late)
    );
    let value = after - before;
    let agrees = direction.sign() * value > 0.0;
    Ok(decided(words, value, &curve.y_unit, agrees, &curve.remark))
}

fn level(
    curve: &PublishedCurve,
    (window, reduce): (MetricWindow, Reduce),
    bound: f64,
    direction: Direction,
) -> Result<PaperEvidence, String> {
    let figure = &curve.figure;
    let range = common_range(&[curve], window)?;
    let value = reduced(curve, range, reduce)?;
    let words = format!(
        "Fig. {figure}, {} over updates {:.0} to {:.0}: {}, against {bound}",
        reduce_words(reduce),
        range.0,
        range.1,
        number(value)
    );
    let agrees = direction.sign() * (value - bound) > 0.0;
    Ok(decided(words, value, &curve.y_unit, agrees, &curve.remark))
}

fn rows(table: &str, arm: &str, reference: &str) -> Result<(String, f64), String> {
    let (one, other) = (published(table, arm)?, published(table, reference)?);
    let (title, value) =
        (paper::find_table(table).ok_or("no such table")?, one.value - other.value);
    let words = format!(
        "{:.0} for “{arm}”, {:.0} for “{reference}” ({})",
        one.value, other.value, title.source
    );
    Ok((words, value))
}

fn first_reaches(
    figure: &str,
    arm: &str,
    reference: &str,
    row: &PublishedRow,
) -> Result<PaperEvidence, String> {
    let (one, other) = (curve(figure, arm)?, curve(figure, reference)?);
    let level = match one.y_unit.as_str() {
        "percent" => row.value,
        _ => row.share(),
    };
    let first =
        |curve: &PublishedCurve| curve.points.iter().find(|(_, y)| *y >= level).map(|(x, _)| *x);
    let end = |curve: &PublishedCurve| curve.points.last().map_or(0.0, |(x, _)| *x);
    let said = |curve: &PublishedCurve| match first(curve) {
        Some(x) => format!("first at {x:.0} updates with “{}”", curve.label),
        None => format!("never in {:.0} updates with “{}”", end(curve), curve.label),
    };
    let words = format!("Fig. {figure}, level {}: {}, {}", number(level), said(one), said(other));
    // The last update bounds the ratio from below if the other curve never arrives.
    let (arm_x, reference_x) = (first(one), first(other).unwrap_or_else(|| end(other)));
    let value = arm_x.map_or(f64::INFINITY, |x| x - reference_x);
    if !value.is_finite() {
        return Err(format!("figure `{figure}`: `{arm}` never reaches {level}"));
    }
    Ok(decided(words, value, "updates", value < 0.0, &one.remark))
}

fn correlation(
    x: &PublishedCurve,
    y: &PublishedCurve,
    window: MetricWindow,
    bound: f64,
    direction: Option<Direction>,
) -> Result<PaperEvidence, String> {
    let (from, to) = common_range(&[x, y], window)?;
    let inside = x.points.iter().filter(|(at, _)| *at >= from && *at <= to);
    let pairs: Vec<(f64, f64)> = inside
        .filter_map(|(at, value)| Some((*value, curves::interpolated(&y.points, *at)?)))
        .collect();
    let value = window::correlation(&pairs).ok_or("too few common points for a correlation")?;
    let agrees = match direction {
        Some(direction) => direction.sign() * (value - bound) > 0.0,
        None => value.abs() < bound,
    };
    let words = format!(
        "Figs {} and {}, updates {from:.0} to {to:.0}: correlation {value:.2} over {} points of one run",
        x.figure,
        y.figure,
        pairs.len()
    );
    Ok(decided(words, value, "correlation", agrees, &x.remark))
}

fn reduce_words(reduce: Reduce) -> &'static str {
    match reduce {
        Reduce::Minimum => "minimum",
        Reduce::Maximum => "maximum",
        _ => "mean",
    }
}

fn window_words(window: MetricWindow) -> String {
    let words =
        window.words().replace("the steps", "the updates").replace("rollout steps", "updates");
    if words.starts_with(|first: char| first.is_ascii_digit()) {
        format!("at {words}")
    } else {
        format!("in the {words}")
    }
}

pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}
