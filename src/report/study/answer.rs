//! The first screen: the answer with its limits, declared comparisons, grid and arms asked about, causes, gaps, checks.

use crate::report::page::{
    self, Block, Curves, Figure, Look, Page, Panel, PanelSize, Section, Table, TableCell, row,
};
use crate::report::study::{comparison, context, courses, headline, scores, stability};
use crate::report::text::{self, Unit};
use crate::report::{Context, axes, claims, printed, published, words};
use crate::study::claims as paper_claims;
use crate::study::{
    Cell, Clock, FamilyResult, Judged, Metric, Remark, Series, Why, Word, analysis::SpreadDesign,
    comparisons::Comparison,
};
use std::collections::BTreeSet;

/// What is missing, and what was not evaluated alike. Limits, status and assumptions of the study are not alerts.
pub fn alerts(context: &Context) -> Vec<String> {
    use Remark::{BaseOfSeed, NoPilot, RecordsChecked, SharedBase, Unregistered};
    let is_elsewhere = |remark: &&Remark| {
        matches!(remark, SharedBase | BaseOfSeed | RecordsChecked | Unregistered | NoPilot)
    };
    let missing = context.analysis.remarks.iter().filter(|remark| !is_elsewhere(remark));
    let mut alerts: Vec<String> =
        missing.map(|remark| text::visible(&words::remark(remark))).collect();
    for alert in context.comparisons().filter_map(|it| context.evaluated_apart(it)) {
        if !alerts.contains(&alert) {
            alerts.push(alert);
        }
    }
    alerts
}

/// CSS points.
const PICTURE_WIDTH: f64 = 468.0;

/// The first chart of differences as a file; an empty picture without one.
pub fn picture(page: &Page) -> String {
    let blocks = page.sections.iter().flat_map(|section| &section.blocks);
    let panels = blocks.flat_map(|block| match block {
        Block::Figure(figure) => figure.panels.as_slice(),
        _ => &[],
    });
    let differences = panels.filter(|panel| matches!(panel, Panel::Intervals(_)));
    printed::svg(&differences.take(1).cloned().collect::<Vec<_>>(), PICTURE_WIDTH)
}

pub fn section(context: &Context) -> Section {
    let mut blocks: Vec<Block> = figure(context).map(Block::Figure).into_iter().collect();
    blocks.extend(declared(context));
    blocks.push(Block::List(lines(context)));
    let title =
        if context.study.is_declared() { "The declared comparisons" } else { "The comparisons" };
    Section::new("answer", title, blocks)
}

/// Other families take a row each.
fn declared(context: &Context) -> Vec<Block> {
    let (full, other) = families(context);
    if full.is_empty() {
        return vec![Block::text("No comparison was declared.")];
    }
    let shown = || full.iter().flat_map(|family| &family.comparisons);
    let mut before = String::new();
    let mut rows = Vec::new();
    for comparison in shown() {
        let metric = comparison.declared.metric.words();
        let named = (before != metric).then_some(metric.as_str());
        rows.push(comparison_row(context, comparison, named));
        before = metric;
    }
    let columns = format!(
        "family | comparison | difference # | {} # | above # | p (Holm) # | verdict | why",
        context.level()
    );
    let declaration = &context.analysis.declaration;
    let (of, test) = if declaration.paired {
        ("blocks", "sign-flip test over blocks")
    } else {
        ("pairs of runs", "permutation test")
    };
    let metrics = || shown().map(|comparison| &comparison.declared.metric);
    let test_of_times = if metrics().any(Metric::is_time) {
        "; of times, a permutation test of log-rank scores over runs"
    } else {
        ""
    };
    let whose_margin = if context.study.is_declared() {
        ""
    } else {
        "; the program\u{2019}s own margin, as none is declared"
    };
    let equivalent = if metrics().any(Metric::is_avg_at_k) {
        format!(
            " arms are equivalent if they differ by less than {} (shaded in the figure{whose_margin}) by two one-sided \
             tests, after Holm too, which ask for a {} interval inside that margin, not for the one here;",
            headline::points(declaration.margin),
            text::level(1.0 - 2.0 * declaration.alpha)
        )
    } else {
        String::new()
    };
    let caption = format!(
        "A difference is shown if p, after Holm in the family, is at most {} and the interval lies on one side \
         of 0;{equivalent} else the comparison is inconclusive. Above: share of the {of} in which the first arm is above. p: {test}{test_of_times}. A row without a \
         measure has that of the row above.",
        axes::tick_label(declaration.alpha)
    );
    let is_long = rows.len() > context::MOST_OPEN_ROWS;
    let summary = format!("The {} comparisons in numbers", rows.len());
    let table = Block::Table(Table::new(&caption, &columns, rows));
    let table = if is_long { Block::More(summary, vec![table]) } else { table };
    let others = (!other.is_empty()).then(|| Block::Table(others(&other)));
    [table].into_iter().chain(others).collect()
}

fn others(families: &[&FamilyResult]) -> Table {
    let rows = families.iter().map(|family| {
        let count = |counted: &[Word]| {
            let words = family.comparisons.iter().map(|comparison| comparison.word);
            text::tally(words.filter(|word| counted.contains(word)), |word| word.words())
        };
        let shown = count(&[Word::Improves, Word::Hurts, Word::Higher, Word::Lower]);
        let open = count(&[Word::Inconclusive, Word::NothingToActOn, Word::NotCompared]);
        row![
            text::visible(&family.id),
            text::visible(&family.question),
            Look::Strong.of(if shown.is_empty() { "–" } else { &shown }),
            Look::Same.of(count(&[Word::Equivalent])),
            Look::Open.of(open)
        ]
    });
    let caption = "The other families of comparisons, in full in the appendix.";
    Table::new(caption, "family | question | shown | equivalent | not shown", rows)
}

/// Shown in full (the first two families, and those of one comparison), and all others.
fn families<'a>(context: &Context<'a>) -> (Vec<&'a FamilyResult>, Vec<&'a FamilyResult>) {
    let families = &context.analysis.families;
    let (first, rest) = families.split_at(families.len().min(2));
    let (single, other): (Vec<_>, Vec<_>) =
        rest.iter().partition(|family| family.comparisons.len() == 1);
    (first.iter().chain(single).collect(), other)
}

fn comparison_row(
    context: &Context,
    comparison: &Comparison,
    metric: Option<&str>,
) -> Vec<TableCell> {
    let declared = &comparison.declared;
    let metric = metric.map_or(String::new(), |words| format!(": {}", text::visible(words)));
    let [difference, interval, above] = comparison::estimate(comparison);
    row![
        text::visible(&comparison.family),
        context.pair(&declared.arm, &declared.reference) + &metric,
        difference,
        interval,
        above,
        TableCell::shown(comparison.result.as_ref().map(|it| it.adjusted_p), text::p_value),
        context::verdict(comparison),
        Look::Quiet.of(decided_by(context, comparison))
    ]
}

/// The rules that an inconclusive comparison failed, or met for equivalence; empty for what is shown.
fn decided_by(context: &Context, comparison: &Comparison) -> String {
    let declaration = &context.analysis.declaration;
    let reason = match (&comparison.why, &comparison.result) {
        (Why::Shown { .. }, _) if !context.study.is_declared() => return String::new(),
        (Why::Shown { .. }, _) => {
            let is_as_declared = comparison.shown() == Some(comparison.declared.direction);
            let side = if is_as_declared { "in" } else { "against" };
            return format!("{side} the declared direction");
        }
        (Why::Equivalent { margin, divisor }, _) => {
            return format!("inside ±{}", headline::points(margin / *divisor as f64));
        }
        (Why::NotShown { .. }, Some(result)) if result.p <= declaration.alpha => {
            format!("p {} alone, not in the family", text::p_value(result.p))
        }
        (Why::NotShown { .. }, _) => format!("p above {}", declaration.alpha),
        (why, _) => text::visible(&words::why(why)),
    };
    let is_score = comparison.declared.metric.is_avg_at_k() && comparison.result.is_some();
    if is_score && comparison.word != Word::NothingToActOn {
        let margin = declaration.margin / comparison.contrast_divisor as f64;
        return format!("{reason}; not inside ±{}", headline::points(margin));
    }
    reason
}

/// Differences beside the learning curves of the arms asked about.
fn figure(context: &Context) -> Option<Figure> {
    let (of, differences) = differences(context)?;
    let differences = scores::differences(context, differences);
    let is_published = differences.rows.iter().any(|row| row.published.is_some());
    let mut panels = vec![Panel::Intervals(differences)];
    let mut legend = Vec::new();
    let (arms, all) = arms_asked_about(context);
    if !arms.is_empty() {
        let scores = |clock| learning(context, &arms, clock);
        let curves = match training_metric(context) {
            Some(name) => [course(context, &arms, name), scores(Clock::Updates)],
            None => [scores(Clock::Updates), scores(Clock::GeneratedTokens)],
        };
        legend = page::legend(&curves[1].lines);
        panels.extend(curves.map(Panel::Curves));
    }
    let of_curves = panels.iter().filter_map(|panel| match panel {
        Panel::Curves(curves) => Some(&curves.lines),
        _ => None,
    });
    let is_between = of_curves.flatten().any(|line| !line.interpolated_at.is_empty());
    let between =
        if is_between { "; a hollow mark is a mean between evaluations, interpolated" } else { "" };
    let hollow = if is_published && context.is_embedded() {
        ", hollow the paper\u{2019}s step (another task and model)"
    } else {
        ""
    };
    Some(Figure {
        id: "answer-figure".to_owned(),
        caption: format!(
            "Panel “{}”: {of}, each arm against its row, {} intervals over training runs{hollow}. Curves: \
             mean over the runs of an arm, and its interval{between}.{}",
            scores::DIFFERENCE,
            context.level(),
            of_all_arms(arms.len(), all)
        ),
        legend,
        panels,
        ..Figure::default()
    })
}

/// What the first figure compares, in words, and the comparisons; `None` for a study without grids.
pub fn differences<'a>(context: &Context<'a>) -> Option<(String, Vec<&'a Comparison>)> {
    let grid = context.analysis.grids.first()?;
    let (full, _) = families(context);
    let declared = full.into_iter().flat_map(|family| &family.comparisons);
    let first = context.comparisons().next().map(|it| &it.declared.metric);
    let asks_for_training = training_metric(context).is_some();
    let is_drawn = |it: &&Comparison| {
        let metric = &it.declared.metric;
        if asks_for_training {
            Some(metric) == first
        } else {
            context::unit_of(metric) == Unit::Share
        }
    };
    let declared: Vec<&Comparison> = declared.filter(is_drawn).collect();
    if declared.is_empty() || !context.study.is_declared() {
        let shown = if declared.is_empty() { grid.differences.iter().collect() } else { declared };
        return Some((format!("the grid {}", text::visible(&grid.name)), shown));
    }
    Some(("what was declared".to_owned(), declared))
}

/// What the first declared comparison asks about, where it is a metric of training and no score.
fn training_metric<'a>(context: &Context<'a>) -> Option<&'a str> {
    let first = context.analysis.families.first()?.comparisons.first()?;
    match &first.declared.metric {
        Metric::Metric { name, .. } => Some(name),
        _ => None,
    }
}

/// More curves in a panel cannot be told apart; those of shown differences come first.
const MOST_CURVES: usize = 4;

pub fn arms_asked_about<'a>(context: &Context<'a>) -> (Vec<&'a str>, usize) {
    drawn(context.analysis.families.first().map_or(&[][..], |family| &family.comparisons))
}

fn drawn(comparisons: &[Comparison]) -> (Vec<&str>, usize) {
    let mut all =
        unique(comparisons.iter().flat_map(|it| [&it.declared.arm, &it.declared.reference]));
    let count = all.len();
    if count > MOST_CURVES {
        let (shown, others): (Vec<_>, Vec<_>) =
            comparisons.iter().partition(|it| it.shown().is_some());
        let ranked = shown.into_iter().chain(others);
        let ranked = unique(ranked.flat_map(|it| [&it.declared.reference, &it.declared.arm]));
        all.retain(|id| ranked[..MOST_CURVES].contains(id));
    }
    (all, count)
}

fn unique<'a>(ids: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    ids.map(String::as_str).filter(|id| seen.insert(*id)).collect()
}

pub fn of_all_arms(drawn: usize, all: usize) -> String {
    if drawn >= all {
        return String::new();
    }
    format!(" {drawn} of {all} arms are drawn, those of shown differences first.")
}

pub fn learning(context: &Context, arms: &[&str], clock: Clock) -> Curves {
    let set = text::visible(&context.analysis.declaration.curve_set);
    let title = format!("avg@k on {set}, %, over {}", clock.words());
    let lines = courses::mean_scores(context, arms.iter().copied(), clock);
    Curves { size: PanelSize::Low, ..Curves::new(title, clock.words(), "%", lines) }
}

fn course(context: &Context, arms: &[&str], name: &str) -> Curves {
    let unit = context::unit_of_training(name);
    let series = Series::Metric { name: name.to_owned() };
    let (unit_name, clock) = (context::unit_name(name), Clock::Updates);
    let title = text::visible(&format!("{name}, {unit_name}, over updates"));
    let lines = courses::means(context, arms.iter().copied(), (&series, unit), clock);
    Curves { size: PanelSize::Low, ..Curves::new(title, clock.words(), unit_name, lines) }
}

fn lines(context: &Context) -> Vec<String> {
    let claims = Some(claims::headline(context.judged)).filter(|claims| !claims.is_empty());
    let lines = [
        Some(format!("Not shown: {}", not_shown(context))),
        claims.map(|claims| format!("{}: {claims}.", whose_claims(context.judged))),
        stability::collapsed(context).map(|collapsed| format!("Unstable: {collapsed}")),
        Some(format!("Limits: {}", limits(context))),
        Some(format!("Check it: {}", check(context))),
    ];
    lines.into_iter().flatten().collect()
}

fn whose_claims(judged: &Judged) -> &'static str {
    let shipped = paper_claims::shipped();
    let ids = shipped.claims.iter().map(|claim| &claim.id);
    if judged.claims.iter().map(|claim| &claim.id).eq(ids) {
        "The paper\u{2019}s claims, here"
    } else {
        "Claims of this study\u{2019}s claims.toml"
    }
}

fn not_shown(context: &Context) -> String {
    let open: Vec<&Comparison> =
        context.comparisons().filter(|it| it.word == Word::Inconclusive).collect();
    let of_word = |word| context.comparisons().filter(|it| it.word == word).count();
    let without_verdict = [of_word(Word::NotCompared), of_word(Word::NothingToActOn)];
    let count = counts_not_shown(context.comparisons().count(), open.len(), without_verdict);
    let smallest = open.iter().filter_map(|it| Some(it.result.as_ref()?.smallest_p));
    let few = smallest.reduce(f64::min).filter(|p| *p > context.analysis.declaration.alpha);
    // Blocks that do not differ raise it, however many there are.
    let few = few.filter(|_| open.iter().all(|it| it.ties().is_none()));
    let few = few.map_or(String::new(), |p| {
        format!("; so few runs show nothing: their smallest p is {}", text::p_value(p))
    });
    format!("{count}{}{few}.", detectable(context).unwrap_or_default())
}

fn counts_not_shown(all: usize, open: usize, [absent, idle]: [usize; 2]) -> String {
    let parts = [
        (open, if open == 1 { "is inconclusive" } else { "are inconclusive" }),
        (absent, "could not be compared"),
        (idle, "had nothing to act on"),
    ];
    let comparisons = text::counted(all, "comparison", "comparisons");
    let parts = parts.into_iter().filter(|(count, _)| *count > 0).enumerate();
    let parts = parts.map(|(place, (count, what))| match place {
        0 => format!("{count} of {comparisons} {what}"),
        _ => format!("{count} {what}"),
    });
    let parts = text::joined(parts, ", ");
    if !parts.is_empty() {
        return parts;
    }
    if all == 1 {
        return "the comparison is not inconclusive".to_owned();
    }
    format!("none of {comparisons} is inconclusive")
}

fn detectable(context: &Context) -> Option<String> {
    let spread = context.analysis.spread.as_ref()?;
    let points = |effect: f64| format!("{} points", Unit::Share.show(effect));
    let observed = points(spread.observed_effect?);
    let declared = spread.registered_effect.map(|it| format!(" (declared: {})", points(it)));
    let declared = declared.unwrap_or_default();
    let spread_of = match spread.design {
        SpreadDesign::IndependentRuns => "with the spread seen",
        SpreadDesign::Blocks => "with the spread seen within blocks",
    };
    Some(format!("; {spread_of}, one comparison detects {observed}{declared}"))
}

fn limits(context: &Context) -> String {
    let embedded = context.is_embedded().then(|| published::EMBEDDED.to_owned());
    let base = match context.base_policies() {
        0 | 1 => "all runs start from one base checkpoint".to_owned(),
        several => format!("runs start from {several} base checkpoints"),
    };
    text::joined(embedded.into_iter().chain([base]), "; ") + "."
}

fn check(context: &Context) -> String {
    let cells = context.counted_cells();
    let cell = Cell::cheapest(cells).map_or(String::new(), |cell| {
        let duration = text::duration(cell.wall_seconds);
        format!(" ({duration} for the cheapest; commands in the appendix)")
    });
    format!(
        "`dapo verify .` checks the records and this report against each other; only training a cell \
         again shows that its run took place{cell}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_shown_is_counted_once_and_all_of_nothing_is_not() {
        let counts = counts_not_shown;
        assert_eq!(counts(13, 0, [0, 12]), "12 of 13 comparisons had nothing to act on");
        let both = "1 of 9 comparisons is inconclusive, 2 could not be compared";
        assert_eq!(counts(9, 1, [2, 0]), both);
        assert_eq!(counts(2, 2, [0, 0]), "2 of 2 comparisons are inconclusive");
        assert_eq!(counts(5, 0, [0, 0]), "none of 5 comparisons is inconclusive");
        assert_eq!(counts(1, 0, [0, 0]), "the comparison is not inconclusive");
    }

    #[test]
    fn a_caption_says_how_many_arms_it_leaves_out() {
        let text = of_all_arms(4, 6);
        assert_eq!(text, " 4 of 6 arms are drawn, those of shown differences first.");
        assert_eq!(of_all_arms(4, 4), "");
    }
}
