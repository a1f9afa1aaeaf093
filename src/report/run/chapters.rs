//! The run's report as a page, in reviewer order.

use crate::records::Session;
use crate::report::page::{
    Block, CurveLine, Curves, Figure, Look, Page, PageOutcomes, Panel, Section, Table, TableCell,
    Tile, row,
};
use crate::report::run::evaluations::StripRow;
use crate::report::run::{Report, figures, figures::FigureLine, samples};
use crate::report::{
    SampleRollout, SetResult, ShownEstimate, ShownEvaluation, ShownMetric, Strip, published, text,
};
use crate::study::{effect_checks::EffectFinding, effect_checks::EffectVerdict, paper};
use std::collections::BTreeMap;

const SPARKLINE_COLUMNS: usize = 32;

pub fn page(report: &Report) -> Page {
    let run = &report.run;
    let failed = report.checks.iter().filter(|check| !check.held);
    let failed = failed.map(|check| format!("not so: {} ({})", check.what, check.detail));
    let warnings = report.effects.warnings().into_iter().map(|text| format!("warning: {text}"));
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
        alerts: failed.chain(warnings).collect(),
        tiles: tiles(report),
        sections: vec![
            what_was_run(report),
            effects(report),
            evaluation(report),
            curves(report),
            dynamics(report),
            cost(report),
            sample_rollouts(report),
            environment(report),
            checking(report),
        ],
        unfinished: report.status.state == "unfinished",
        ..Page::default()
    }
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
    let [steps, rounds] =
        [counts.counters.rollout_steps, counts.counters.generation_rounds].map(text::grouped);
    let made = format!("{steps} rollout steps, {rounds} generation rounds");
    tiles.push(Tile::new("updates", text::grouped(counts.counters.updates), made));
    if let Some(seconds) = counts.seconds {
        let tokens = counts.generated_tokens.map(|tokens| text::grouped(tokens as u64));
        let tokens = tokens.map(|tokens| format!("{tokens} tokens generated")).unwrap_or_default();
        tiles.push(Tile::new("wall clock", text::duration(seconds), tokens));
    }
    tiles
}

fn switch(on: bool) -> TableCell {
    if on { Look::Good.of("on") } else { Look::Quiet.of("off") }
}

fn what_was_run(report: &Report) -> Section {
    let on = report.techniques.iter().filter(|technique| technique.on);
    let on = text::joined(on.map(|technique| technique.name), ", ");
    let summary = if on.is_empty() {
        "No technique of the paper is on: this is naive GRPO.".to_owned()
    } else {
        format!("On: {on}.")
    };
    let techniques = report.techniques.iter().map(|technique| {
        let place = Look::Quiet.of(technique.place);
        row![technique.name, place, switch(technique.on), &technique.settings]
    });
    let decisions = report.decisions.iter().map(|decision| {
        let said = [&decision.paper, &decision.released_code].map(|said| Look::Quiet.of(said));
        let own = row![&decision.choice, Look::Strong.of(&decision.value)];
        own.into_iter().chain(said).collect()
    });
    let settings = report.settings.iter().map(|(key, value)| row![Look::Code.of(key), value]);
    let open = format!(
        "{} decisions that the paper leaves open, or that it and the released code make differently",
        report.decisions.len()
    );
    let blocks = vec![
        Block::Table(Table::new(summary, "technique | paper | | settings", techniques)),
        Block::Folded(Table::new(open, "choice | this run | paper | released code", decisions)),
        Block::Folded(Table::new("All settings", "setting | value", settings)),
    ];
    Section::new("run", "What was run", blocks)
}

fn effects(report: &Report) -> Section {
    let row = |finding: &EffectFinding| {
        let look = match finding.verdict {
            EffectVerdict::Acted => Look::Good,
            EffectVerdict::EnabledButDidNothing | EffectVerdict::DisabledButActed => Look::Bad,
            EffectVerdict::Explained | EffectVerdict::Off | EffectVerdict::NotRecorded => {
                Look::Quiet
            }
        };
        let verdict = look.of(finding.verdict.words());
        row![finding.technique, switch(finding.enabled), verdict, &finding.evidence]
    };
    let caption = "What the records show of each technique, read from the rollouts, the batches, the \
                   loss and its weights, and not from the switch. A technique that is on and did nothing, \
                   or is off and acted, is a warning at the top of this report. Counts are sums over the \
                   recorded rollout steps.";
    let findings = report.effects.findings.iter().map(row);
    let mut blocks =
        vec![Block::Table(Table::new(caption, "technique | | in this run | seen", findings))];
    let named = &report.effects.named_warnings;
    if !named.is_empty() {
        let rows = named.iter().map(|it| row![Look::Bad.of(it.name), &it.sentence]);
        let caption = "Settings whose effect is easily overlooked.";
        blocks.push(Block::Table(Table::new(caption, "warning | in this run", rows)));
    }
    blocks.extend(together("effects-curves", "What each technique did", &report.effect_figures));
    Section::new("acting", "Is each technique doing something?", blocks)
}

fn evaluation(report: &Report) -> Section {
    let mut blocks = Vec::new();
    if report.evaluations.is_empty() {
        blocks.push(Block::text("No evaluation is recorded in this run folder."));
        return Section::new("evaluation", "Evaluation", blocks);
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
    blocks.push(Block::Table(Table::new(caption, columns, evaluation_rows(report))));
    if !report.by_tag.is_empty() {
        let rows = report.by_tag.iter().map(|it| {
            let share = |share: Option<f64>| TableCell::shown(share, text::points);
            row![&it.tag, TableCell::count(it.problems), share(it.base), share(it.last)]
        });
        let caption = format!("{} by the tags of its problems.", report.evaluations[0].set);
        let columns = "tag | problems # | base, % # | final, % #";
        blocks.push(Block::Table(Table::new(caption, columns, rows)));
    }
    blocks.extend(together("pass-at-k", "Unbiased pass@k over k", &report.pass_at_k));
    blocks.extend(report.strip.as_ref().map(|strip| Block::Figure(every_sample(strip))));
    Section::new("evaluation", "Evaluation", blocks)
}

/// A sentence for each reason of a withheld interval.
pub fn withheld(report: &Report) -> Vec<String> {
    let mut reasons: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for result in &report.evaluations {
        let last = result.last.as_ref().map(|it| &it.avg_at_k);
        let base = result.base.as_ref().map(|it| &it.avg_at_k);
        for estimate in [base, last, result.difference.as_ref()].into_iter().flatten() {
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
        format!("No interval for {question}, {}: {reason}.", sets.join(", "))
    };
    reasons.iter().map(sentence).collect()
}

pub fn evaluation_rows(report: &Report) -> Vec<Vec<TableCell>> {
    report.evaluations.iter().flat_map(set_rows).collect()
}

fn set_rows(result: &SetResult) -> Vec<Vec<TableCell>> {
    let start = |policy: String| {
        row![&result.set, format!("{} × {} × 1", result.problems, result.samples), policy]
    };
    let rows = [
        result.base.as_ref().map(|base| [start("base".to_owned()), evaluation_cells(base)]),
        result.last.as_ref().map(|last| {
            let policy = format!("{} updates", text::grouped(last.counters.updates));
            [start(policy), evaluation_cells(last)]
        }),
        result.difference.as_ref().map(|difference| {
            let mut cells = estimate_cells(difference, text::signed_points);
            cells.resize(9, TableCell::default());
            [start("change".to_owned()), cells]
        }),
    ];
    rows.into_iter().flatten().map(|parts| parts.concat()).collect()
}

fn evaluation_cells(evaluation: &ShownEvaluation) -> Vec<TableCell> {
    let pass = evaluation.pass_at_k.last_key_value().map(|(_, pass)| *pass);
    let mut cells = estimate_cells(&evaluation.avg_at_k, text::points);
    cells.extend(row![
        pass.map(text::points).unwrap_or_default(),
        text::points(evaluation.cons_at_k),
        text::points(evaluation.truncated_share),
        format!("{:.1}", evaluation.response_tokens_mean)
    ]);
    cells
}

fn estimate_cells(estimate: &ShownEstimate, show: fn(f64) -> String) -> Vec<TableCell> {
    let (fixed, new) = (&estimate.fixed_problems, &estimate.new_problems);
    row![
        Look::Strong.of(show(estimate.value)),
        fixed.standard_error.map(text::standard_error).unwrap_or_default(),
        text::interval_or_none(fixed),
        new.standard_error.map(text::standard_error).unwrap_or_default(),
        text::interval_or_none(new)
    ]
}

fn every_sample(strip: &Strip) -> Figure {
    let marks = |marks: &Option<String>| marks.clone().unwrap_or_default();
    let shown = |marks: &Option<String>| {
        let drawn = |mark| match mark {
            'C' => '█',
            'W' => '·',
            'N' => '?',
            other => other,
        };
        Look::Code.of(marks.iter().flat_map(|marks| marks.chars()).map(drawn).collect::<String>())
    };
    let rows = strip.rows.iter();
    let of = |row: &StripRow| (row.problem.clone(), vec![marks(&row.base), marks(&row.last)]);
    let numbers = rows.clone().map(|row| row![&row.problem, shown(&row.base), shown(&row.last)]);
    Figure {
        id: "every-sample".to_owned(),
        title: format!("Every sample of {}", strip.set),
        caption:
            "One row a problem, one cell a sample, in order of the sample number. Problems are \
                  sorted by how often the final policy solves them."
                .to_owned(),
        legend: Vec::new(),
        panels: vec![Panel::Outcomes(PageOutcomes {
            policies: vec!["base policy", "final policy"],
            rows: rows.map(of).collect(),
        })],
        numbers: Table::new(
            "█ correct, · wrong, T truncated, ? no answer found.",
            "problem | base policy | final policy",
            numbers,
        ),
    }
}

fn curves(report: &Report) -> Section {
    let intro = format!(
        "Left: this run. Right: the paper\u{2019}s own curve, for its shape alone, in its \
         own panel with its own axes. Model, data and length limit differ, so no height \
         on the left can be read against a height on the right. x counts updates \
         (optimiser steps) on both sides. Paper: {}; x is exact to one update, in \
         Figs 1 and 7 to 80.",
        paper::curves_source()
    );
    let beside = report.figures.iter().map(|figure| {
        let name = figure.paper_figure.unwrap_or_default();
        let published = published::curves(name);
        let of_paper =
            figure.paper.iter().map(|it| (format!("the paper\u{2019}s Fig. {name}"), it));
        let lines = figure.ours.iter().map(|it| ("this run".to_owned(), it)).chain(of_paper);
        Block::Figure(Figure {
            id: format!("curves-{name}"),
            title: figure.title.clone(),
            caption: figure.remark.clone(),
            legend: Vec::new(),
            panels: [our_panel(figure, "this run")].into_iter().chain(published).collect(),
            numbers: courses(figure.unit, "run", lines),
        })
    });
    let blocks = [Block::Text(intro)].into_iter().chain(beside).collect();
    Section::new("curves", "Training curves beside the paper\u{2019}s", blocks)
}

fn our_panel(figure: &figures::RunFigure, title: &str) -> Panel {
    let percent = figure.unit == "%";
    let cut = |value: f64| if percent { value.clamp(0.0, 100.0) } else { value };
    let line = |(style, line): (usize, &FigureLine)| CurveLine {
        label: line.label.clone(),
        // Blue first; black is an arm that studies share.
        style: style + 10,
        centre: line.points.clone(),
        band: line
            .points
            .iter()
            .zip(&line.half_widths)
            .map(|((x, y), half)| (*x, cut(y - half), cut(y + half)))
            .collect(),
        ..CurveLine::default()
    };
    Panel::Curves(Curves {
        title: title.to_owned(),
        x: figure.x.to_owned(),
        unit: figure.unit.to_owned(),
        doubling: figure.x == "k",
        lines: figure.ours.iter().enumerate().map(line).collect(),
        ..Curves::default()
    })
}

/// One panel for each quantity.
fn together(id: &str, title: &str, figures: &[figures::RunFigure]) -> Option<Block> {
    let lines = figures.iter().flat_map(|figure| {
        figure.ours.iter().map(|line| (format!("{}, {}", figure.title, figure.unit), line))
    });
    (!figures.is_empty()).then(|| {
        Block::Figure(Figure {
            id: id.to_owned(),
            title: title.to_owned(),
            caption: String::new(),
            legend: Vec::new(),
            panels: figures.iter().map(|figure| our_panel(figure, &figure.title)).collect(),
            numbers: courses("the unit of each quantity", "quantity", lines),
        })
    })
}

fn courses<'a>(
    unit: &str,
    of: &str,
    lines: impl Iterator<Item = (String, &'a FigureLine)>,
) -> Table {
    let row = |(of, line): (String, &FigureLine)| {
        let mut row = row![&line.label, of];
        row.extend(course(&line.points));
        row
    };
    let columns = format!("line | {of} | first # | course | last # | lowest # | highest #");
    Table::new(format!("First to last point, in {unit}."), &columns, lines.map(row))
}

/// First, sparkline, last, lowest and highest value.
fn course(points: &[(f64, f64)]) -> [TableCell; 5] {
    let (low, high) = text::range(points.iter().map(|point| point.1));
    let value = |value: Option<f64>| {
        TableCell::shown(value.filter(|value| value.is_finite()), text::number)
    };
    let drawn = TableCell::from(text::sparkline(points, SPARKLINE_COLUMNS));
    [
        value(points.first().map(|point| point.1)),
        TableCell { spark: points.to_vec(), ..drawn },
        value(points.last().map(|point| point.1)).looking(Look::Strong),
        value(Some(low)),
        value(Some(high)),
    ]
}

fn dynamics(report: &Report) -> Section {
    let row = |metric: &&ShownMetric| {
        let mut row = row![Look::Code.of(&metric.name)];
        row.extend(metric.meaning.map(|meaning| Look::Quiet.of(meaning)));
        row.extend(course(&metric.points));
        row
    };
    let (main, other): (Vec<&ShownMetric>, Vec<&ShownMetric>) =
        report.metrics.iter().partition(|metric| metric.is_main);
    let mut blocks = Vec::new();
    if report.metrics.is_empty() {
        blocks.push(Block::text("No rollout step is recorded yet."));
    } else {
        blocks.extend(together(
            "dynamics-curves",
            "What the paper does not plot",
            &report.own_figures,
        ));
        let courses = "course | last # | lowest # | highest #";
        let columns = format!("metric | meaning | first # | {courses}");
        let caption = "Metrics, from the first to the last rollout step that recorded them.";
        blocks.push(Block::Table(Table::new(caption, &columns, main.iter().map(row))));
        let columns = format!("metric | first # | {courses}");
        blocks.push(Block::Folded(Table::new(
            "The other metrics",
            &columns,
            other.iter().map(row),
        )));
    }
    Section::new("dynamics", "Dynamics", blocks)
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
    let mut blocks = vec![Block::Table(Table::new("What was counted.", "counter | count #", rows))];
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

fn sample_rollouts(report: &Report) -> Section {
    let intro = if report.samples.is_empty() {
        "No rollout is recorded yet."
    } else {
        "The first correct, wrong and truncated rollouts of the first and the last \
             rollout step, in the order in which they were sampled; nobody picked them. \
             Characters that do not print are shown as escapes, line ends as ⏎, and long \
             texts lose their middle."
    };
    let blocks = [Block::text(intro)].into_iter().chain(report.samples.iter().flat_map(sample));
    Section::new("samples", "Sample rollouts", blocks.collect())
}

fn sample(sample: &SampleRollout) -> [Block; 3] {
    let SampleRollout { step, problem, attempt, sample: number, .. } = sample;
    let kind = match sample.kind {
        samples::SampleKind::Correct => "correct",
        samples::SampleKind::Wrong => "wrong",
        samples::SampleKind::Truncated => "truncated",
    };
    let mean =
        sample.mean_log_prob.map(|mean| format!(", mean log-prob {}", text::signed(mean, 3)));
    [
        Block::Heading(format!(
            "Step {step}, {kind}: {problem}, attempt {attempt}, sample {number}"
        )),
        Block::Code(format!("{}\n\n{}", sample.question, sample.response)),
        Block::Text(format!(
            "Answer {}, read {}; {} tokens{}, reward {}, penalty {}, advantage {}, {}.",
            sample.answer,
            sample.prediction.as_deref().unwrap_or("nothing"),
            text::grouped(sample.response_tokens as u64),
            mean.unwrap_or_default(),
            text::signed(sample.correctness_reward, 0),
            text::number(sample.overlong_penalty),
            text::signed(sample.advantage, 2),
            if sample.trained { "trained on" } else { "not trained on" }
        )),
    ]
}

fn environment(report: &Report) -> Section {
    let own = [("arm", &report.run.arm_sha256), ("run key", &report.run.run_key)];
    let inputs = report.inputs.iter().map(|(name, digest)| (name.as_str(), digest));
    let digests = own.into_iter().chain(inputs).map(|(name, it)| row![name, Look::Code.of(it)]);
    let facts = report.environment.iter().map(|(name, value)| row![name, value]);
    let machine =
        if report.environment.is_empty() { "The machine is not recorded." } else { "The machine." };
    let mut blocks = vec![
        Block::Table(Table::new("Identity and inputs.", "what | SHA-256", digests)),
        Block::Table(Table::new(machine, "fact | value", facts)),
    ];
    if !report.sessions.is_empty() {
        blocks.push(Block::Text(sessions(&report.sessions)));
    }
    Section::new("environment", "Environment and digests", blocks)
}

/// Resumptions, and whether machine and build stayed the same.
fn sessions(sessions: &[Session]) -> String {
    let [_, resumed @ ..] = sessions else { return String::new() };
    if resumed.is_empty() {
        return "The run was made in one session.".to_owned();
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
    format!("The run was resumed after rollout step {steps}{differed}")
}

fn checking(report: &Report) -> Section {
    let mut blocks = Vec::new();
    if !report.checks.is_empty() {
        let rows = report.checks.iter().map(|check| {
            row![&check.what, TableCell::verdict(check.held, ["holds", "fails"]), &check.detail]
        });
        let caption = "Checked while this report was made.";
        blocks.push(Block::Table(Table::new(caption, "fact | | seen", rows)));
    }
    blocks.push(Block::text(
        "To check more: every number here is also in report.json; `dapo report` on this folder \
         makes the same report again; every evaluated response is in evaluations/ and every \
         training rollout that was kept in rollouts/, as parquet.",
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
        let lines = report.digests.iter().map(|(name, digest)| format!("{digest}  {name}"));
        let feed = "In the run folder, feed them to `sha256sum -c`:";
        blocks.extend([
            Block::Text(format!("{repeated} {feed}")),
            Block::Code(text::joined(lines, "\n")),
        ]);
    }
    Section::new("check", "How to check it", blocks)
}
