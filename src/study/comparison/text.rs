//! A comparison as text and as Markdown.

use crate::base::visible::visible;
use crate::statistics::{Question, Uncertainty, between, verdict::Verdict};
use crate::study::comparison::{ComparedRuns, RunComparison};
use std::fmt::Write;

const SHOWN_CHANGES: usize = 10;

/// Files that are named on a side.
const SHOWN_FILES: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComparisonStyle {
    Plain,
    Markdown,
}

/// The page of a comparison. Names of files and problems are foreign text: only printable
/// characters are shown.
pub fn page(comparison: &RunComparison, style: ComparisonStyle) -> String {
    let mut page = ComparisonPage { text: String::new(), style };
    page.heading("Sides");
    for (name, side) in [("A", &comparison.a), ("B", &comparison.b)] {
        page.line(&files(name, side));
    }
    for remark in &comparison.remarks {
        page.line(&visible(remark));
    }
    accuracies(&mut page, comparison);
    difference(&mut page, comparison);
    runs(&mut page, comparison);
    detectable(&mut page, comparison);
    changes(&mut page, comparison);
    page.text
}

struct ComparisonPage {
    text: String,
    style: ComparisonStyle,
}

impl ComparisonPage {
    fn heading(&mut self, text: &str) {
        let gap = if self.text.is_empty() || self.text.ends_with("\n\n") { "" } else { "\n" };
        let mark = if self.style == ComparisonStyle::Markdown { "## " } else { "" };
        let end = if self.style == ComparisonStyle::Markdown { "\n" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{gap}{mark}{text}{end}");
    }

    fn line(&mut self, text: &str) {
        match self.style {
            ComparisonStyle::Markdown => {
                let _ = writeln!(self.text, "- {}", text.replace('|', "\\|").replace('<', "&lt;"));
            }
            ComparisonStyle::Plain => {
                let _ = writeln!(self.text, "  {text}");
            }
        }
    }

    /// The first column is text, the others are numbers.
    fn table(&mut self, rows: &[Vec<String>]) {
        if self.style == ComparisonStyle::Markdown {
            // Markdown needs an empty line between a list and a table.
            if !self.text.ends_with("\n\n") {
                self.text.push('\n');
            }
            for (index, row) in rows.iter().enumerate() {
                let cells: Vec<String> =
                    row.iter().map(|cell| cell.replace('|', "\\|").replace('<', "&lt;")).collect();
                let _ = writeln!(self.text, "| {} |", cells.join(" | "));
                if index == 0 {
                    let _ = writeln!(self.text, "|{}", "---|".repeat(row.len()));
                }
            }
            self.text.push('\n');
            return;
        }
        let width =
            |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        for row in rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(width(column) - cell.chars().count());
                match column {
                    0 => line += &format!("  {cell}{pad}"),
                    _ => line += &format!("  {pad}{cell}"),
                }
            }
            let _ = writeln!(self.text, "{}", line.trim_end());
        }
    }
}

fn files(name: &str, side: &ComparedRuns) -> String {
    let accuracy = &side.accuracy;
    let shown: Vec<String> =
        side.files.iter().take(SHOWN_FILES).map(|file| visible(file)).collect();
    let more = match side.files.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "{name}: {}{more} (n = {} problems × k = {} samples × S = {} {})",
        shown.join(", "),
        accuracy.problems,
        accuracy.samples,
        accuracy.runs,
        if accuracy.runs == 1 { "run" } else { "runs" },
    )
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

fn points(share: f64) -> String {
    format!("{:+.1}", 100.0 * share)
}

fn error(answer: &Uncertainty) -> String {
    answer.standard_error.map_or("–".into(), |error| format!("{:.2}", 100.0 * error))
}

fn interval(answer: &Uncertainty, show: fn(f64) -> String) -> String {
    match &answer.interval {
        Some(interval) => format!("{} to {}", show(interval.low), show(interval.high)),
        None => "–".into(),
    }
}

fn accuracies(page: &mut ComparisonPage, comparison: &RunComparison) {
    page.heading("avg@k, percent");
    let level = level(comparison);
    let header = ["", "A", "SE", &level, "B", "SE", &level];
    let mut rows = vec![header.iter().map(ToString::to_string).collect::<Vec<_>>()];
    let (a, b) = (&comparison.a.accuracy, &comparison.b.accuracy);
    for (one, other) in a.uncertainties.iter().zip(&b.uncertainties) {
        rows.push(vec![
            one.question.text().into(),
            percent(a.avg_at_k),
            error(one),
            interval(one, percent),
            percent(b.avg_at_k),
            error(other),
            interval(other, percent),
        ]);
    }
    page.table(&rows);
    for (name, accuracy) in [("A", a), ("B", b)] {
        for answer in &accuracy.uncertainties {
            if let Some(reason) = &answer.withheld {
                page.line(&format!("{name}, {}: no interval: {reason}", answer.question.text()));
            }
        }
    }
    page.heading("pass@k, percent");
    let ks: Vec<u64> = comparison.a.pass_at_k.keys().copied().collect();
    let ks: Vec<u64> = ks.into_iter().filter(|k| comparison.b.pass_at_k.contains_key(k)).collect();
    let row = |name: &str, side: &ComparedRuns| {
        let cells = ks.iter().map(|k| percent(side.pass_at_k[k]));
        std::iter::once(name.to_string()).chain(cells).collect::<Vec<_>>()
    };
    let header = std::iter::once("k".to_string()).chain(ks.iter().map(ToString::to_string));
    page.table(&[header.collect(), row("A", &comparison.a), row("B", &comparison.b)]);
}

fn level(comparison: &RunComparison) -> String {
    let answers = comparison.a.accuracy.uncertainties.iter();
    let intervals = answers.chain(&comparison.paired.uncertainties).filter_map(|it| it.interval);
    let level = intervals.map(|interval| interval.level).next().unwrap_or(0.95);
    format!("{:.0} % interval", 100.0 * level)
}

fn difference(page: &mut ComparisonPage, comparison: &RunComparison) {
    let paired = &comparison.paired;
    page.heading("B − A on the same problems, percent points");
    let level = level(comparison);
    let mut rows = vec![vec![String::new(), "B − A".into(), "SE".into(), level]];
    for answer in &paired.uncertainties {
        rows.push(vec![
            answer.question.text().into(),
            points(paired.difference),
            error(answer),
            interval(answer, points),
        ]);
    }
    page.table(&rows);
    for answer in &paired.uncertainties {
        if let Some(reason) = &answer.withheld {
            page.line(&format!("{}: no interval: {reason}", answer.question.text()));
        }
    }
    let test = &paired.sign_flip;
    let kind = if test.exact { "all" } else { "random" };
    page.line(&format!(
        "are these checkpoints equal on another draw of problems? sign-flip p = {} ({kind} sign flips: {})",
        p_value(test.p),
        test.splits
    ));
    if let Some(correlation) = paired.correlation {
        page.line(&format!("correlation of the two sides over problems: {correlation:.2}"));
    }
}

/// Three digits, and never 0.
fn p_value(p: f64) -> String {
    if p < 0.0005 { format!("{p:.1e}") } else { format!("{p:.3}") }
}

fn runs(page: &mut ComparisonPage, comparison: &RunComparison) {
    page.heading("Another training run");
    let Some(runs) = &comparison.between_runs else {
        page.line("one run on a side says nothing about another training run of the method");
        return;
    };
    for (name, side) in [("A", &comparison.a), ("B", &comparison.b)] {
        let scores: Vec<String> = side.by_run.iter().map(|score| percent(*score)).collect();
        page.line(&format!("{name}, each run: {}", scores.join(", ")));
    }
    let welch = &runs.welch;
    let interval = match &welch.interval {
        Some(it) => format!(
            "Welch {:.0} % interval {} to {}",
            100.0 * it.level,
            points(it.low),
            points(it.high)
        ),
        None => format!("no interval below {} runs a side", between::FEWEST_RUNS),
    };
    page.line(&format!(
        "B − A over runs: {} (SE {:.2}); {interval}",
        points(welch.difference),
        100.0 * welch.standard_error
    ));
    let test = &runs.permutation;
    let kind = if test.exact { "all" } else { "random" };
    page.line(&format!(
        "do the methods differ? permutation p = {} ({kind} splits: {}; the smallest possible p is {})",
        p_value(test.p),
        test.splits,
        p_value(test.smallest_p)
    ));
    page.line(&format!("verdict, if this is the only comparison: {}", word(&runs.verdict)));
}

fn word(verdict: &Verdict) -> String {
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

fn detectable(page: &mut ComparisonPage, comparison: &RunComparison) {
    page.heading("Smallest difference found in 80 % of cases, percent points");
    let mut rows = vec![vec!["what repeats".to_string(), "B − A".to_string()]];
    for item in &comparison.detectable {
        let text = match item.question {
            Question::TheseCheckpointsOnTheseProblems => "sampling from these checkpoints",
            other => other.text(),
        };
        rows.push(vec![text.into(), item.difference.map_or("–".into(), percent)]);
    }
    page.table(&rows);
}

fn changes(page: &mut ComparisonPage, comparison: &RunComparison) {
    let all = &comparison.changes;
    let count = |test: fn(f64) -> bool| all.iter().filter(|it| test(it.difference)).count();
    page.heading("Problems that changed most, percent correct");
    page.line(&format!(
        "{} up, {} down, {} equal",
        count(|it| it > 0.0),
        count(|it| it < 0.0),
        count(|it| it == 0.0)
    ));
    let header = ["problem", "A", "B", "B − A"].map(String::from).to_vec();
    let changed = all.iter().filter(|it| it.difference != 0.0).take(SHOWN_CHANGES);
    let rows = changed.map(|it| {
        let name: String = it.problem.chars().take(60).collect();
        vec![visible(&name), percent(it.a), percent(it.b), points(it.difference)]
    });
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows).collect();
    if rows.len() > 1 {
        page.table(&rows);
    }
}
