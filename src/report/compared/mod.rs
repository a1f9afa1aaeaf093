//! A comparison of two sides as sections.

pub mod tracked;
pub mod picture;

use crate::base::visible;
use crate::report::page::{Block, Section, Table, TableCell, row};
use crate::report::text::{self, Unit};
use crate::report::words;
use crate::statistics::{PermutationTest, Question, Uncertainty, Verdict, between};
use crate::study::comparison::{BetweenRuns, Change, ComparedRuns, RunComparison};
use crate::study::comparisons::Comparison;
use crate::study::gate::ArmsCompared;
use crate::study::{Declared, Why};

const SHOWN_CHANGES: usize = 10;

const BESIDE: &str = "beside-";

const SHOWN_FILES: usize = 12;

const SAME_VALUES: &str = "both sides have the same values";

/// Of a comparison that no declaration belongs to.
const ALPHA: f64 = 0.05;

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

/// Two arms of a study, one section a measure.
pub fn arms(compared: &ArmsCompared) -> Vec<Section> {
    let Declared { arm, reference, metric, .. } = &compared.comparison.declared;
    let origin = |it: &Comparison| {
        if it.registered {
            format!("declared in the family {}", it.family)
        } else if compared.families.contains(&it.family) {
            format!("declared in the family {}; not registered", it.family)
        } else {
            "exploratory, not declared".to_owned() + &rows_beside(it)
        }
    };
    let section = |name: &str, title: &str, it: &Comparison, origin: String| {
        let apart = words::evaluated_apart(it).unwrap_or_default();
        let word = it.word.words().to_owned();
        let is_own = matches!(it.why, Why::Equivalent { .. }) && compared.families.is_empty();
        let own = if is_own { "the margin is the program's own: none is declared" } else { "" };
        let why = words::why_of_comparison(it);
        let lines = [word, words::comparison(it), why, own.to_owned(), apart, origin];
        let lines = lines.iter().filter(|line| !line.is_empty());
        let blocks = lines.map(|line| Block::text(text::visible(line))).collect();
        Section::new(name, &text::visible(title), blocks)
    };
    let title = format!("{arm} against {reference}, {}", metric.words());
    let first = section("arms", &title, &compared.comparison, origin(&compared.comparison));
    let beside = compared.beside.iter().enumerate().map(|(place, it)| {
        let title = format!("{}: {}", origin(it), it.declared.metric.words());
        section(&format!("{BESIDE}{place}"), &title, it, String::new())
    });
    [first].into_iter().chain(beside).collect()
}

fn rows_beside(comparison: &Comparison) -> String {
    let grid = comparison.declared.arm.split('/').next().unwrap_or_default();
    let size = comparison.family_size;
    if comparison.is_of_no_family || size < 2 {
        return String::new();
    }
    format!("; one of {size} undeclared rows of the grid {grid}, adjusted together")
}

fn each(comparison: &RunComparison) -> [(&'static str, &ComparedRuns); 2] {
    [("A", &comparison.a), ("B", &comparison.b)]
}

fn sides(comparison: &RunComparison) -> Section {
    let files = each(comparison).map(|(name, side)| files(name, side));
    let remarks = comparison.remarks.iter().map(|remark| text::visible(remark));
    let lines = files.into_iter().chain(remarks).collect();
    Section::new("sides", "Sides", vec![Block::List(lines)])
}

fn files(name: &str, side: &ComparedRuns) -> String {
    let accuracy = &side.accuracy;
    let files: Vec<String> = side.files.iter().map(|file| text::visible(file)).collect();
    let (samples, most) = (accuracy.samples, side.most_samples);
    let (samples, weights) = if samples < most {
        (format!("{samples} to {most}"), "; each problem has the same weight")
    } else {
        (samples.to_string(), "")
    };
    format!(
        "{name}: {} (n = {} problems × k = {samples} samples × S = {}{weights})",
        visible::first_of(&files, SHOWN_FILES, ", "),
        accuracy.problems,
        text::counted(accuracy.runs as usize, "run", "runs"),
    )
}

fn accuracies(comparison: &RunComparison) -> Section {
    let (a, b) = (&comparison.a.accuracy, &comparison.b.accuracy);
    let level = level(comparison);
    let columns = format!("question | A # | SE # | {level} # | B # | SE # | {level} #");
    let sides = [&comparison.a, &comparison.b];
    let rows = a.uncertainties.iter().zip(&b.uncertainties).map(|(one, other)| {
        let of_sides = sides.into_iter().zip([one, other]).flat_map(|(side, of)| {
            let error = standard_error(of, side.most_samples);
            row![text::points(side.accuracy.avg_at_k), error, interval(of)]
        });
        row![one.question.text()].into_iter().chain(of_sides).collect::<Vec<TableCell>>()
    });
    let withheld = [withheld("A, ", &a.uncertainties), withheld("B, ", &b.uncertainties)].concat();
    let mut blocks = vec![Block::Table(Table::new("", &columns, rows))];
    blocks.extend((!withheld.is_empty()).then_some(Block::List(withheld)));
    Section::new("accuracy", "avg@k, percent", blocks)
}

fn level(comparison: &RunComparison) -> String {
    let all = comparison.a.accuracy.uncertainties.iter().chain(&comparison.paired.uncertainties);
    let level = all.filter_map(|answer| answer.interval).map(|interval| interval.level).next();
    format!("{} interval", text::level(level.unwrap_or(0.95)))
}

/// Of one response to each problem the statistic is only a bound.
fn standard_error(of: &Uncertainty, most_samples: u64) -> String {
    let is_bound = most_samples == 1 && of.question == Question::TheseCheckpointsOnTheseProblems;
    let error = of.standard_error.filter(|_| !is_bound);
    error.map_or("–".to_owned(), text::standard_error)
}

fn interval(of: &Uncertainty) -> String {
    of.interval.as_ref().map_or("–".to_owned(), |interval| Unit::Share.interval(interval))
}

/// Why intervals are withheld; `of` is `A, ` or nothing.
fn withheld(of: &str, all: &[Uncertainty]) -> Vec<String> {
    let line = |answer: &Uncertainty| {
        let reason = answer.withheld.as_ref()?;
        Some(format!("{of}{}: no interval: {reason}", answer.question.text()))
    };
    all.iter().filter_map(line).collect()
}

fn pass_at_k(comparison: &RunComparison) -> Section {
    let (a, b) = (&comparison.a.pass_at_k, &comparison.b.pass_at_k);
    let ks: Vec<u64> = a.keys().filter(|k| b.contains_key(k)).copied().collect();
    let columns = format!("k | {}", text::joined(ks.iter().map(|k| format!("{k} #")), " | "));
    let rows = each(comparison).map(|(name, side)| {
        let passes = ks.iter().map(|k| TableCell::from(text::points(side.pass_at_k[k])));
        row![name].into_iter().chain(passes).collect()
    });
    let table = Block::Table(Table::new("", &columns, rows));
    Section::new("pass-at-k", "pass@k, percent", vec![table])
}

fn difference(comparison: &RunComparison) -> Section {
    let paired = &comparison.paired;
    let columns = format!("question | B − A # | SE # | {} #", level(comparison));
    let most_samples = comparison.a.most_samples.max(comparison.b.most_samples);
    let rows = paired.uncertainties.iter().map(|answer| {
        let difference = text::signed_points(paired.difference);
        let error = standard_error(answer, most_samples);
        row![answer.question.text(), difference, error, interval(answer)]
    });
    let mut lines = withheld("", &paired.uncertainties);
    lines.push(format!(
        "Are these checkpoints equal on another draw of problems? Sign-flip test: {}.",
        test(&paired.sign_flip, "sign flips")
    ));
    lines.extend(paired.correlation.map(|correlation| {
        format!("Correlation of the two sides over problems: {correlation:.2}.")
    }));
    let blocks = vec![Block::Table(Table::new("", &columns, rows)), Block::List(lines)];
    Section::new("difference", "B − A on the same problems, percent points", blocks)
}

/// `p 0.0079 (all splits: 252; the smallest possible p is 0.0079)`.
fn test(test: &PermutationTest, of: &str) -> String {
    let kind = if test.exact { "all" } else { "random" };
    format!(
        "p {} ({kind} {of}: {}; the smallest possible p is {})",
        text::p_value(test.p),
        text::grouped(test.splits),
        text::p_value(test.smallest_p)
    )
}

fn another_run(comparison: &RunComparison) -> Section {
    let section = |blocks| Section::new("runs", "Another training run", blocks);
    let Some(BetweenRuns { welch, permutation, verdict, is_same, .. }) = &comparison.between_runs
    else {
        return section(vec![Block::text(
            "With one run on a side nothing can be said about another training run of the method.",
        )]);
    };
    let scores = each(comparison).map(|(name, side)| {
        let scores = side.by_run.iter().map(|score| text::points(*score));
        format!("{name}, each run: {}", text::joined(scores, ", "))
    });
    let interval = match &welch.interval {
        Some(it) => {
            format!("Welch {} interval {}", text::level(it.level), Unit::Share.interval(it))
        }
        None => format!("no interval below {} runs a side", between::FEWEST_RUNS),
    };
    let lines = [
        format!(
            "B − A over runs: {} (SE {}); {interval}",
            text::signed_points(welch.difference),
            text::standard_error(welch.standard_error)
        ),
        format!("Do the methods differ? Permutation test: {}.", test(permutation, "splits")),
        format!(
            "Verdict, if this is the only comparison: {}.",
            in_words(verdict, permutation.smallest_p, Unit::Share, is_same.then_some(SAME_VALUES))
        ),
    ];
    section(vec![Block::List(scores.into_iter().chain(lines).collect())])
}

fn in_words(verdict: &Verdict, smallest_p: f64, unit: Unit, same: Option<&str>) -> String {
    match verdict {
        Verdict::Improves => "B is better than A".into(),
        Verdict::Hurts => "B is worse than A".into(),
        Verdict::Equivalent { within } => format!("equivalent within {}", unit.sized(*within)),
        Verdict::Inconclusive { could_have_detected: Some(effect) } => format!(
            "inconclusive: no effect is shown; one of {} would be found in 80 % of cases",
            unit.sized(*effect)
        ),
        Verdict::Inconclusive { could_have_detected: None } => {
            let few = "too few runs, or too few that differ, to show any effect";
            let open = if smallest_p > ALPHA { few } else { "no effect is shown" };
            format!("inconclusive: {}", same.unwrap_or(open))
        }
    }
}

fn detectable(comparison: &RunComparison) -> Section {
    let rows = comparison.detectable.iter().map(|detectable| {
        let repeated = match detectable.question {
            Question::TheseCheckpointsOnTheseProblems => "sampling from these checkpoints",
            other => other.text(),
        };
        row![repeated, detectable.difference.map_or("–".to_owned(), text::points)]
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
    let rows = changed.map(|change| {
        let name: String = change.problem.chars().take(60).collect();
        row![
            text::visible(&name),
            text::points(change.a),
            text::points(change.b),
            text::signed_points(change.difference)
        ]
    });
    let table = Table::new("", "problem | A # | B # | B − A #", rows);
    blocks.extend(table.filled().map(Block::Table));
    Section::new("changes", "Problems that changed most, percent correct", blocks)
}

#[cfg(test)]
mod tests;
