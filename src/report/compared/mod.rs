//! A comparison of two sides as sections.

use crate::report::page::{Block, Section, Table, TableCell};
use crate::report::text;
use crate::statistics::{Question, Uncertainty, Verdict, between};
use crate::study::comparison::{Change, ComparedRuns, RunComparison};

const SHOWN_CHANGES: usize = 10;

const SHOWN_FILES: usize = 12;

pub fn sections(comparison: &RunComparison) -> Vec<Section> {
    vec![
        sides(comparison),
        accuracies(comparison),
        pass_at_k(comparison),
        difference(comparison),
        another_run(comparison),
        detectable(comparison),
        changes(&comparison.changes),
    ]
}

fn each(comparison: &RunComparison) -> [(&'static str, &ComparedRuns); 2] {
    [("A", &comparison.a), ("B", &comparison.b)]
}

fn sides(comparison: &RunComparison) -> Section {
    let mut lines: Vec<String> =
        each(comparison).map(|(name, side)| files(name, side)).into_iter().collect();
    lines.extend(comparison.remarks.iter().map(|remark| text::visible(remark)));
    Section::new("sides", "Sides", vec![Block::List(lines)])
}

fn files(name: &str, side: &ComparedRuns) -> String {
    let accuracy = &side.accuracy;
    let shown = side.files.iter().take(SHOWN_FILES).map(|file| text::visible(file));
    let more = match side.files.len().saturating_sub(SHOWN_FILES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{name}: {}{more} (n = {} problems × k = {} samples × S = {})",
        text::joined(shown, ", "),
        accuracy.problems,
        accuracy.samples,
        text::counted(accuracy.runs as usize, "run", "runs"),
    )
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

fn points(share: f64) -> String {
    format!("{:+.1}", 100.0 * share)
}

fn standard_error(of: &Uncertainty) -> String {
    of.standard_error.map_or("–".into(), |error| format!("{:.2}", 100.0 * error))
}

fn interval(of: &Uncertainty, show: fn(f64) -> String) -> String {
    match &of.interval {
        Some(interval) => format!("{} to {}", show(interval.low), show(interval.high)),
        None => "–".into(),
    }
}

fn level(comparison: &RunComparison) -> String {
    let all = comparison.a.accuracy.uncertainties.iter().chain(&comparison.paired.uncertainties);
    let level = all.filter_map(|it| it.interval).map(|interval| interval.level).next();
    format!("{:.0} % interval", 100.0 * level.unwrap_or(0.95))
}

fn row(cells: impl IntoIterator<Item = String>) -> Vec<TableCell> {
    cells.into_iter().map(TableCell::from).collect()
}

/// Why intervals are withheld; `name` is a side, or empty.
fn withheld(name: &str, all: &[Uncertainty]) -> Vec<String> {
    let of = if name.is_empty() { String::new() } else { format!("{name}, ") };
    let line = |it: &Uncertainty| {
        let reason = it.withheld.as_ref()?;
        Some(format!("{of}{}: no interval: {reason}", it.question.text()))
    };
    all.iter().filter_map(line).collect()
}

fn accuracies(comparison: &RunComparison) -> Section {
    let (a, b) = (&comparison.a.accuracy, &comparison.b.accuracy);
    let level = level(comparison);
    let columns = format!("question | A # | SE # | {level} # | B # | SE # | {level} #");
    let rows = a.uncertainties.iter().zip(&b.uncertainties).map(|(one, other)| {
        row([
            one.question.text().into(),
            percent(a.avg_at_k),
            standard_error(one),
            interval(one, percent),
            percent(b.avg_at_k),
            standard_error(other),
            interval(other, percent),
        ])
    });
    let withheld = [withheld("A", &a.uncertainties), withheld("B", &b.uncertainties)].concat();
    let mut blocks = vec![Block::Table(Table::new("", &columns, rows))];
    if !withheld.is_empty() {
        blocks.push(Block::List(withheld));
    }
    Section::new("accuracy", "avg@k, percent", blocks)
}

fn pass_at_k(comparison: &RunComparison) -> Section {
    let (a, b) = (&comparison.a.pass_at_k, &comparison.b.pass_at_k);
    let ks: Vec<u64> = a.keys().filter(|k| b.contains_key(k)).copied().collect();
    let columns = format!("k | {}", text::joined(ks.iter().map(|k| format!("{k} #")), " | "));
    let rows = each(comparison).map(|(name, side)| {
        let cells = ks.iter().map(|k| percent(side.pass_at_k[k]));
        row(std::iter::once(name.to_string()).chain(cells))
    });
    let table = Block::Table(Table::new("", &columns, rows));
    Section::new("pass-at-k", "pass@k, percent", vec![table])
}

fn difference(comparison: &RunComparison) -> Section {
    let paired = &comparison.paired;
    let columns = format!("question | B − A # | SE # | {} #", level(comparison));
    let rows = paired.uncertainties.iter().map(|answer| {
        row([
            answer.question.text().into(),
            points(paired.difference),
            standard_error(answer),
            interval(answer, points),
        ])
    });
    let mut lines = withheld("", &paired.uncertainties);
    let test = &paired.sign_flip;
    lines.push(format!(
        "are these checkpoints equal on another draw of problems? sign-flip p = {} ({} sign flips: {})",
        p_value(test.p),
        if test.exact { "all" } else { "random" },
        test.splits
    ));
    lines.extend(paired.correlation.map(|correlation| {
        format!("correlation of the two sides over problems: {correlation:.2}")
    }));
    let blocks = vec![Block::Table(Table::new("", &columns, rows)), Block::List(lines)];
    Section::new("difference", "B − A on the same problems, percent points", blocks)
}

/// Three digits, and never 0.
fn p_value(p: f64) -> String {
    if p < 0.0005 { format!("{p:.1e}") } else { format!("{p:.3}") }
}

fn another_run(comparison: &RunComparison) -> Section {
    let section = |blocks| Section::new("runs", "Another training run", blocks);
    let Some(runs) = &comparison.between_runs else {
        return section(vec![Block::text(
            "one run on a side says nothing about another training run of the method",
        )]);
    };
    let mut lines: Vec<String> = each(comparison)
        .map(|(name, side)| {
            let scores = side.by_run.iter().map(|score| percent(*score));
            format!("{name}, each run: {}", text::joined(scores, ", "))
        })
        .into();
    let (welch, test) = (&runs.welch, &runs.permutation);
    let interval = match &welch.interval {
        Some(interval) => format!(
            "Welch {:.0} % interval {} to {}",
            100.0 * interval.level,
            points(interval.low),
            points(interval.high)
        ),
        None => format!("no interval below {} runs a side", between::FEWEST_RUNS),
    };
    lines.push(format!(
        "B − A over runs: {} (SE {:.2}); {interval}",
        points(welch.difference),
        100.0 * welch.standard_error
    ));
    lines.push(format!(
        "do the methods differ? permutation p = {} ({} splits: {}; the smallest possible p is {})",
        p_value(test.p),
        if test.exact { "all" } else { "random" },
        test.splits,
        p_value(test.smallest_p)
    ));
    let word = verdict(&runs.verdict);
    lines.push(format!("verdict, if this is the only comparison: {word}"));
    section(vec![Block::List(lines)])
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Improves => "B improves on A".into(),
        Verdict::Hurts => "B hurts".into(),
        Verdict::Equivalent { within } => {
            format!("equivalent within {} points", percent(*within))
        }
        Verdict::Inconclusive { could_have_detected: Some(effect) } => format!(
            "inconclusive: no effect shown; one of {} points would have been found in 80 % of cases",
            percent(*effect)
        ),
        Verdict::Inconclusive { could_have_detected: None } => {
            "inconclusive: so few runs can show no effect".into()
        }
    }
}

fn detectable(comparison: &RunComparison) -> Section {
    let rows = comparison.detectable.iter().map(|item| {
        let repeated = match item.question {
            Question::TheseCheckpointsOnTheseProblems => "sampling from these checkpoints",
            other => other.text(),
        };
        row([repeated.into(), item.difference.map_or("–".into(), percent)])
    });
    let table = Block::Table(Table::new("", "what repeats | B − A #", rows));
    let title = "Smallest difference found in 80 % of cases, percent points";
    Section::new("detectable", title, vec![table])
}

fn changes(all: &[Change]) -> Section {
    let count = |test: fn(f64) -> bool| all.iter().filter(|it| test(it.difference)).count();
    let (up, down) = (count(|it| it > 0.0), count(|it| it < 0.0));
    let equal = all.len() - up - down;
    let mut blocks = vec![Block::Text(format!("{up} up, {down} down, {equal} equal"))];
    let changed = all.iter().filter(|it| it.difference != 0.0).take(SHOWN_CHANGES);
    let rows = changed.map(|it| {
        let name: String = it.problem.chars().take(60).collect();
        row([text::visible(&name), percent(it.a), percent(it.b), points(it.difference)])
    });
    let table = Table::new("", "problem | A # | B # | B − A #", rows);
    if !table.rows.is_empty() {
        blocks.push(Block::Table(table));
    }
    Section::new("changes", "Problems that changed most, percent correct", blocks)
}

#[cfg(test)]
mod tests;
