//! What the verdicts rest on: what was declared, which tests, what they assume, and what so few
//! runs could have found.

use crate::report::run::plots;
use crate::report::study::context::{self, Unit};
use crate::report::study::page::{Block, Column, Section, Table};
use crate::report::study::{comparison, published};
use crate::report::{Context, TableCell, text};
use crate::statistics::equivalence;
use crate::study::FamilyResult;
use crate::study::comparisons::Comparison;

/// The chapter.
pub fn section(context: &Context) -> Section {
    let declaration = &context.analysis.declaration;
    let registered = match declaration.registered {
        true => "It says that it was written down before the first run.",
        false => "Nothing was registered before the first run: every verdict is exploratory.",
    };
    let mut blocks = vec![
        Block::Text(format!(
            "The analysis follows a declaration with SHA-256 {}. {registered}",
            context.analysis.declaration_sha256
        )),
        Block::Table(declared(context)),
        Block::Text(spread(context)),
        Block::Heading("Assumptions".into()),
        Block::List(assumptions(context)),
    ];
    for family in &context.analysis.families {
        blocks.push(Block::Table(comparison::comparisons(
            context,
            format!(
                "Family {}: {} Holm at {} over {}.",
                text::visible(&family.id),
                published::sentence(&text::visible(&family.question)),
                plots::tick_label(declaration.alpha),
                context::counted(family.comparisons.len(), "comparison", "comparisons")
            ),
            &family.comparisons,
        )));
    }
    if context.analysis.families.is_empty() {
        blocks.push(Block::Text("No family of comparisons was declared.".into()));
    }
    if let Some(table) = equivalence(context) {
        blocks.push(Block::Folded(table));
    }
    blocks.extend(times(context));
    Section { id: "power".into(), title: "Assumptions, tests and power".into(), blocks }
}

fn declared(context: &Context) -> Table {
    let declaration = &context.analysis.declaration;
    let seeds = |seeds: &[u64]| {
        let words: Vec<String> = seeds.iter().map(u64::to_string).collect();
        if words.is_empty() { "not declared".to_owned() } else { words.join(", ") }
    };
    let pilot = declaration.pilot.as_ref().map_or("not declared".to_owned(), |pilot| {
        format!(
            "{} points over {}: {}",
            text::standard_error(pilot.sigma),
            context::counted(pilot.runs as usize, "run of each arm", "runs of each arm"),
            text::visible(&pilot.of)
        )
    });
    let level = declaration.time_to_level.as_ref().map_or("not declared".to_owned(), |level| {
        format!("avg@k of {} on {}", text::percent(level.level), text::visible(&level.set))
    });
    let held_out = declaration.held_out.as_ref().map_or("not declared".to_owned(), |held_out| {
        format!("grid {}: {}", text::visible(&held_out.grid), text::visible(&held_out.description))
    });
    let rows = [
        ("primary set", text::visible(&declaration.primary_set)),
        ("set of the curves", text::visible(&declaration.curve_set)),
        ("seeds", seeds(&declaration.seeds)),
        ("seeds that tuning used, which never count", seeds(&declaration.tuning_seeds)),
        ("confidence of intervals", context.level()),
        ("error rate of a family (Holm)", text::percent(declaration.alpha)),
        ("power of the detectable effects", text::percent(declaration.power)),
        (
            "δ: closer arms count as the same",
            format!("{} points", text::points(declaration.margin)),
        ),
        ("σ between training runs, from a pilot", pilot),
        ("level whose reaching is timed", level),
        ("held-out task variant", held_out),
    ];
    Table {
        caption: "What was declared.".into(),
        columns: vec![Column::text("what"), Column::text("declared")],
        rows: rows
            .into_iter()
            .map(|(what, value)| vec![TableCell::plain(what), TableCell::plain(value)])
            .collect(),
    }
}

/// σ as it was registered and as it was seen, and what either could have found.
fn spread(context: &Context) -> String {
    let Some(spread) = &context.analysis.spread else {
        return "No arm has two scored runs: nothing is known of the spread between training runs."
            .to_owned();
    };
    let deviation = text::standard_error;
    let with_effect = |sigma: f64, effect: Option<f64>| {
        let effect = effect.map_or("nothing".to_owned(), |effect| {
            format!("a difference of {} points", Unit::Share.show(effect))
        });
        format!("{} points, with which {effect} could have been found", deviation(sigma))
    };
    let registered = spread.registered.map_or("none was registered".to_owned(), |sigma| {
        format!("the registered one is {}", with_effect(sigma, spread.registered_effect))
    });
    format!(
        "σ between training runs: {registered}; the observed one, pooled over {}, is {}. By arm it \
         goes from {} ({}) to {} points ({}). What could have been found is a true difference \
         between two arms of {} by one comparison at the declared α and power.",
        context::counted(spread.arms as usize, "arm", "arms"),
        with_effect(spread.observed, spread.observed_effect),
        deviation(spread.smallest.1),
        context.label(&spread.smallest.0),
        deviation(spread.largest.1),
        context.label(&spread.largest.0),
        context::counted(spread.runs as usize, "run", "runs"),
    )
}

fn assumptions(context: &Context) -> Vec<String> {
    let mut lines: Vec<String> =
        context.analysis.remarks.iter().map(|remark| capital(&text::visible(remark))).collect();
    lines.extend(
        [
            "The unit of every comparison between methods is the training run: problems and samples \
             within a run are never counted as independent evidence for a method.",
            "The permutation test assumes that, were the methods the same, runs could be exchanged \
             between them. It is exact: no normality, no minimum number of runs, but few runs have a \
             smallest p, which is printed.",
            "Welch\u{2019}s and the t intervals assume scores that are roughly normal over training \
             runs; with few runs this cannot be checked, which is why every run is drawn.",
            "A run that saturated or diverged counts with its last evaluation; a failed run does not \
             count and is listed.",
            "\u{201c}Could have found\u{201d} is the true difference that so many runs find with the \
             declared power: from the pilot\u{2019}s σ, which was registered, and from the σ that the \
             two arms showed. It is there to read an inconclusive verdict, and decides nothing.",
        ]
        .map(str::to_owned),
    );
    lines
}

/// A sentence of a fragment.
pub fn capital(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).chain(['.']).collect(),
        None => String::new(),
    }
}

/// Two one-sided tests of every comparison that has them.
fn equivalence(context: &Context) -> Option<Table> {
    let declaration = &context.analysis.declaration;
    let all =
        context.analysis.families.iter().flat_map(|family: &FamilyResult| &family.comparisons);
    let row = |comparison: &Comparison| {
        let tests = comparison.result.as_ref()?.equivalence?;
        let (n_a, n_b) = (comparison.reference.len(), comparison.arm.len());
        let power = declaration.pilot.as_ref().map(|pilot| {
            equivalence::attainable_power(pilot.sigma, n_a, n_b, declaration.alpha, tests.margin)
        });
        let within = match tests.verdict {
            equivalence::Verdict::Reproduced => "yes",
            _ => "not shown",
        };
        Some(vec![
            TableCell::plain(format!(
                "{} against {}",
                context.label(&comparison.declared.arm),
                context.label(&comparison.declared.reference)
            )),
            TableCell::value(Unit::Share.signed(tests.difference), [tests.difference]),
            TableCell::value(text::standard_error(tests.half_width), [tests.half_width]),
            TableCell::value(text::points(tests.margin), [tests.margin]),
            TableCell::plain(within),
            power.map_or(TableCell::missing("no pilot σ"), |power| {
                TableCell::value(text::percent(power), [power])
            }),
        ])
    };
    let rows: Vec<Vec<TableCell>> = all.filter_map(row).collect();
    (!rows.is_empty()).then(|| Table {
        caption:
            "Equivalence within δ (two one-sided tests), in points. The attainable power is the \
                  chance to show it if the two were truly the same."
                .into(),
        columns: vec![
            Column::text("comparison"),
            Column::number("difference"),
            Column::number("half width at 1 − 2α"),
            Column::number("δ"),
            Column::text("within δ"),
            Column::number("attainable power"),
        ],
        rows,
    })
}

/// When each arm's runs reached the declared level.
fn times(context: &Context) -> Vec<Block> {
    let Some(level) = &context.analysis.declaration.time_to_level else { return Vec::new() };
    let mut blocks = Vec::new();
    for grid in context.analysis.grids.iter().filter(|grid| !grid.times.is_empty()) {
        let rows = grid.times.iter().map(|arm| {
            let median = |time: Option<f64>| match time {
                Some(time) => TableCell::value(text::number(time), [time]),
                None => TableCell::missing("more than half never reached it"),
            };
            let total = arm.updates.seeds.len();
            vec![
                TableCell::plain(context.label(&arm.arm)),
                TableCell::value(
                    format!("{} of {total}", arm.updates.reached),
                    [arm.updates.reached as f64, total as f64],
                ),
                median(arm.updates.median),
                median(arm.generated_rollouts.median),
            ]
        });
        blocks.push(Block::Folded(Table {
            rows: rows.collect(),
            caption: format!(
                "{}: runs that reached avg@k of {} on {}, and the median time (Kaplan\u{2013}Meier; runs \
                 that never did are censored at their last evaluation).",
                text::visible(&grid.name),
                text::percent(level.level),
                text::visible(&level.set)
            ),
            columns: vec![
                Column::text("arm"),
                Column::number("reached"),
                Column::number("median, updates"),
                Column::number("median, generated rollouts"),
            ],
        }));
    }
    blocks
}
