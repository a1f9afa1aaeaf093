//! The run's report as a page, in reviewer order.

use crate::records::Session;
use crate::report::page::{Block, Look, Page, Section, Table, TableCell, Tile, row};
use crate::report::run::{Report, UNFINISHED, courses, samples, techniques};
use crate::report::{SetResult, SetsTogether, ShownEstimate, ShownEvaluation, text};
use crate::statistics::Uncertainty;
use std::collections::BTreeMap;

pub fn page(report: &Report) -> Page {
    let run = &report.run;
    Page {
        kind: "run",
        title: format!("{}, seed {}", run.name, run.seed),
        subtitle: format!(
            "arm {} · run {} · harness {} · exactness: {}",
            text::short_digest(&run.arm_sha256),
            text::short_digest(&run.run_key),
            run.harness,
            run.exactness
        ),
        state: report.status.state,
        status: report.status.sentence.clone(),
        headline: report.headline.clone(),
        alerts: report.alerts(),
        tiles: tiles(report),
        sections: vec![
            courses::learning(report),
            evaluation(report),
            techniques::what_was_run(report),
            techniques::effects(report),
            folded(courses::beside_the_paper(report), "Each curve beside the paper\u{2019}s"),
            folded(courses::dynamics(report), "Metrics from step to step"),
            cost(report),
            folded(samples::section(&report.samples), "Questions and responses"),
            folded(environment(report), "Digests, and the machine"),
            checking(report),
        ],
        unfinished: report.status.state == UNFINISHED,
        ..Page::default()
    }
}

/// A reader who wants it opens it: the first screens have the result.
fn folded(section: Section, summary: &str) -> Section {
    Section { blocks: vec![Block::More(summary.to_owned(), section.blocks)], ..section }
}

fn tiles(report: &Report) -> Vec<Tile> {
    let mut tiles = Vec::new();
    if let Some(result) = report.evaluations.first() {
        if let Some(evaluation) = result.last.as_ref().or(result.base.as_ref()) {
            let policy = if result.last.is_some() { "final" } else { "base" };
            let around = &evaluation.avg_at_k.fixed_problems;
            tiles.push(Tile::new(
                format!("avg@{} on {}, {policy}", result.samples, result.set),
                text::percent(evaluation.avg_at_k.value),
                format!("95 %, these problems: {}", text::uncertainty(around)),
            ));
        }
        if let Some(difference) = &result.difference {
            let around = &difference.new_problems;
            tiles.push(Tile::new(
                "change from the base policy",
                format!("{} points", text::signed_points(difference.value)),
                format!("95 %, other problems: {}", text::uncertainty(around)),
            ));
        }
    }
    let counts = &report.counts;
    let clocks = counts.counters;
    let steps = text::counted(clocks.rollout_steps as usize, "rollout step", "rollout steps");
    let rounds = clocks.generation_rounds as usize;
    let made =
        format!("{steps}, {}", text::counted(rounds, "generation round", "generation rounds"));
    tiles.push(Tile::new("updates", text::grouped(clocks.updates), made));
    if let Some(seconds) = counts.seconds {
        let tokens = counts.generated_tokens.map(|tokens| text::grouped(tokens as u64));
        let tokens = tokens.map(|tokens| format!("{tokens} tokens generated")).unwrap_or_default();
        tiles.push(Tile::new("wall clock", text::duration(seconds), tokens));
    }
    tiles
}

fn evaluation(report: &Report) -> Section {
    if report.evaluations.is_empty() {
        let none = Block::text("No evaluation is recorded in this run folder.");
        return Section::new("evaluation", "Evaluation", vec![none]);
    }
    let caption = "Two intervals answer two questions. \u{201c}These problems\u{201d}: how far off is the \
                   number for this checkpoint on exactly these problems, with decoding noise alone \
                   (±1.96 standard errors). \u{201c}Other problems\u{201d}: how far off is it for another \
                   draw of problems of this kind (clustered by problem, t with n − 1 degrees of freedom). \
                   Neither covers another training run: this report has one. Intervals are 95 %, in \
                   percentage points, cut at the ends of the scale. Changes are paired by problem.";
    let caption = [vec![caption.to_owned()], withheld(report)].concat().join(" ");
    let columns = "set | n × k × runs # | policy | avg@k %# | SE # | 95 %, these problems # | SE # | \
                   95 %, other problems # | pass@k %# | cons@k %# | truncated %# | mean tokens #";
    let mut blocks = vec![Block::Table(Table::new(caption, columns, evaluation_rows(report)))];
    blocks.extend(mean_rewards(&report.evaluations));
    blocks.extend(report.sets_together.as_ref().and_then(sets_together).map(Block::Text));
    let by_tag = report.by_tag.iter().map(|it| {
        let share = |share: Option<f64>| TableCell::shown(share, text::points);
        row![&it.tag, TableCell::count(it.problems), share(it.base), share(it.last)]
    });
    let caption = format!("{} by the tags of its problems.", report.evaluations[0].set);
    let columns = "tag | problems # | base, % # | final, % #";
    blocks.extend(Table::new(caption, columns, by_tag).filled().map(Block::Table));
    let passes = courses::together("pass-at-k", "Unbiased pass@k over k", &report.pass_at_k);
    blocks.extend(passes.map(|passes| Block::More("pass@k".to_owned(), vec![passes])));
    Section::new("evaluation", "Evaluation", blocks)
}

fn mean_rewards(sets: &[SetResult]) -> Option<Block> {
    let of_set = |it: &SetResult| {
        let means = [&it.base, &it.last].into_iter().flatten().filter_map(|at| at.reward_mean);
        let means = text::joined(means.map(text::number), " → ");
        (!means.is_empty()).then(|| format!("{} {means}", it.set))
    };
    let sets = text::joined(sets.iter().filter_map(of_set), ", ");
    (!sets.is_empty()).then(|| Block::text(format!("Mean reward of the program: {sets}.")))
}

fn sets_together(together: &SetsTogether) -> Option<String> {
    let means = [(together.base, "before training"), (together.last, "at the end")];
    let shown = |(share, at): (Option<f64>, &str)| Some(format!("{} {at}", text::percent(share?)));
    let (means, sets) =
        (text::joined(means.into_iter().filter_map(shown), ", "), text::listed(&together.sets));
    (!means.is_empty()).then(|| format!("Mean of avg@k over the test sets {sets}: {means}."))
}

/// A sentence for each reason of a withheld interval.
pub fn withheld(report: &Report) -> Vec<String> {
    let mut reasons: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for result in &report.evaluations {
        let scores = [&result.base, &result.last].into_iter().flatten().map(|it| &it.avg_at_k);
        for estimate in scores.chain(&result.difference) {
            for error in [&estimate.fixed_problems, &estimate.new_problems] {
                let Some(reason) = &error.withheld else { continue };
                let sets = reasons.entry((error.question.text(), reason)).or_default();
                if !sets.contains(&result.set.as_str()) {
                    sets.push(&result.set);
                }
            }
        }
    }
    let sentence = |((question, reason), sets): (&(&str, &str), &Vec<&str>)| {
        format!("No interval for {question} ({}): {reason}.", sets.join(", "))
    };
    reasons.iter().map(sentence).collect()
}

pub fn evaluation_rows(report: &Report) -> Vec<Vec<TableCell>> {
    report.evaluations.iter().flat_map(set_rows).collect()
}

fn set_rows(result: &SetResult) -> Vec<Vec<TableCell>> {
    let base = result.base.iter().map(|base| ("base".to_owned(), evaluation_cells(base)));
    let last = result.last.iter();
    let last = last.map(|last| (text::updates(last.counters.updates), evaluation_cells(last)));
    let change = result.difference.iter().map(|difference| {
        let mut cells = estimate_cells(difference, text::signed_points);
        cells.resize(9, TableCell::default());
        ("change".to_owned(), cells)
    });
    let row = |(policy, cells)| {
        let size = format!("{} × {} × 1", result.problems, result.samples);
        [row![&result.set, size, policy], cells].concat()
    };
    base.chain(last).chain(change).map(row).collect()
}

fn evaluation_cells(evaluation: &ShownEvaluation) -> Vec<TableCell> {
    let pass = evaluation.pass_at_k.last_key_value().map(|(_, pass)| *pass);
    let mut cells = estimate_cells(&evaluation.avg_at_k, text::points);
    cells.extend(row![
        pass.map(text::points).unwrap_or_default(),
        TableCell::shown(evaluation.cons_at_k, text::points),
        text::points(evaluation.truncated_share),
        format!("{:.1}", evaluation.response_tokens_mean)
    ]);
    cells
}

fn estimate_cells(estimate: &ShownEstimate, show: fn(f64) -> String) -> Vec<TableCell> {
    let (fixed, new) = (&estimate.fixed_problems, &estimate.new_problems);
    let error = |of: &Uncertainty| {
        let error = of.standard_error.filter(|_| of.interval.is_some());
        error.map_or("–".to_owned(), text::standard_error)
    };
    row![
        Look::Strong.of(show(estimate.value)),
        error(fixed),
        text::interval_or_none(fixed),
        error(new),
        text::interval_or_none(new)
    ]
}

fn cost(report: &Report) -> Section {
    let counts = &report.counts;
    let clocks = &counts.counters;
    let rows = [
        ("generation rounds", Some(clocks.generation_rounds)),
        ("rollout steps", Some(clocks.rollout_steps)),
        ("updates", Some(clocks.updates)),
        ("rollouts generated", counts.generated_rollouts.map(|count| count as u64)),
        ("rollouts trained on", counts.trained_rollouts.map(|count| count as u64)),
        ("response tokens generated", counts.generated_tokens.map(|count| count as u64)),
    ];
    let rows = rows
        .map(|(name, count)| row![name, count.map_or("not recorded".to_owned(), text::grouped)]);
    let caption = match report.status.state {
        "stalled" | "saturated" => "What was counted, without the rollout step that ended the run.",
        _ => "What was counted.",
    };
    let mut blocks = vec![Block::Table(Table::new(caption, "counter | count #", rows))];
    if let Some(total) = counts.seconds {
        let named: f64 = counts.seconds_by_phase.iter().map(|(_, seconds)| seconds).sum();
        let rest = (total - named > 0.05).then(|| ("everything else".to_owned(), total - named));
        let phases = counts.seconds_by_phase.iter().cloned().chain(rest);
        let rows = phases.chain([("total".to_owned(), total)]).map(|(phase, seconds)| {
            let share = if total > 0.0 { seconds / total } else { 0.0 };
            row![phase, text::duration(seconds), text::percent(share)]
        });
        let table = Table::new("Where the time went.", "phase | wall clock # | share #", rows);
        blocks.push(Block::Table(table));
    }
    Section::new("cost", "What it took", blocks)
}

fn environment(report: &Report) -> Section {
    let own = [("arm", &report.run.arm_sha256), ("run key", &report.run.run_key)];
    let inputs = report.inputs.iter().map(|(name, digest)| (name.as_str(), digest));
    let digests = own.into_iter().chain(inputs).map(|(name, it)| row![name, Look::Code.of(it)]);
    let facts = report.environment.iter().map(|(name, value)| row![name, value]);
    let machine =
        if report.environment.is_empty() { "The machine is not recorded." } else { "The machine." };
    let mut blocks = vec![
        Block::Table(Table::new("Identity and inputs.", "what | SHA-256, or version", digests)),
        Block::Table(Table::new(machine, "fact | value", facts)),
    ];
    blocks.extend(sessions(&report.sessions).map(Block::Text));
    Section::new("environment", "Environment and digests", blocks)
}

/// Resumptions, and whether machine and build stayed the same.
fn sessions(sessions: &[Session]) -> Option<String> {
    let [_, resumed @ ..] = sessions else { return None };
    if resumed.is_empty() {
        return Some("The run was made in one session.".to_owned());
    }
    let steps = text::joined(resumed.iter().map(|it| it.from_step), ", ");
    let changed: BTreeMap<&String, &[String; 2]> =
        resumed.iter().flat_map(|session| &session.changed).collect();
    let facts = changed.iter().map(|(name, [first, here])| format!("{name}: {first}, then {here}"));
    let facts = text::joined(facts, "; ");
    let differed = if facts.is_empty() {
        ", each time on the machine and build that it began on.".to_owned()
    } else {
        format!(". What differed from the first session: {facts}.")
    };
    Some(format!("The run was resumed after rollout step {steps}{differed}"))
}

fn checking(report: &Report) -> Section {
    let mut blocks = vec![Block::text(
        "`dapo verify` computes scores and report again from this folder. Every number of the run here is also \
         in report.json; `dapo report` on this folder makes the same report again; every evaluated \
         response is in evaluations/ and every training rollout that was kept in rollouts/, as parquet.",
    )];
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
        let lines = report.digests.iter().map(|(name, digest)| format!("{digest}  {name}"));
        let feed = "In the run folder, feed them to `sha256sum -c`:";
        blocks.extend([
            Block::Text(format!("{repeated} {feed}")),
            Block::Code(text::joined(lines, "\n")),
        ]);
    }
    Section::new("check", "How to check it", blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{Interval, Question};

    #[test]
    fn a_standard_error_stands_beside_an_interval_alone() {
        let question = Question::TheseCheckpointsOnTheseProblems;
        let of = |interval| {
            let (standard_error, withheld) = (Some(0.03), None);
            Uncertainty { question, standard_error, interval, withheld }
        };
        let interval = Interval { low: 0.44, high: 0.56, level: 0.95 };
        let (fixed_problems, new_problems) = (of(None), of(Some(interval)));
        let estimate = ShownEstimate { value: 0.5, fixed_problems, new_problems };
        let cells = estimate_cells(&estimate, text::points);
        assert_eq!(cells[1..], row!["–", "none", "3.0", "[44.0, 56.0]"]);
    }

    #[test]
    fn a_mean_over_sets_that_does_not_exist_is_not_said() {
        let said = |base, last| {
            let sets = ["a", "b"].map(str::to_owned).to_vec();
            sets_together(&SetsTogether { sets, base, last })
        };
        let head = "Mean of avg@k over the test sets a and b: 25.0 % before training";
        assert_eq!(said(Some(0.25), None), Some(format!("{head}.")));
        assert_eq!(said(Some(0.25), Some(0.5)), Some(format!("{head}, 50.0 % at the end.")));
        assert_eq!(said(None, None), None);
    }
}
