//! Declarations, tests, their assumptions, and the differences that so few runs could find.

use crate::report::page::{Block, Section, Table, TableCell, row};
use crate::report::text::{self, Unit};
use crate::report::{Context, axes, study::comparison, words};
use crate::statistics::Mean;
use crate::study::{
    ArmTimes, FamilyResult, GridSummary, analysis::SpreadDesign, comparisons::Comparison,
};
use std::collections::BTreeMap;
use std::sync::LazyLock;

pub fn section(context: &Context) -> Section {
    let registered = if context.study.is_registered() {
        "It says that it was written before the first run. Nothing here proves that: compare it \
             with a copy from a registry, a commit or a mail (dapo verify STUDY --declaration FILE)."
    } else {
        "Nothing was registered before the first run: every verdict is exploratory."
    };
    let mut blocks = vec![
        Block::Text(format!(
            "The analysis follows a declaration with SHA-256 {}. {registered}",
            context.analysis.declaration_sha256
        )),
        Block::Table(declared(context)),
        Block::Text(spread(context)),
        Block::Heading("Assumptions".to_owned()),
        Block::List(assumptions(context)),
    ];
    blocks.extend(context.analysis.families.iter().map(|family| family_table(context, family)));
    if context.analysis.families.is_empty() {
        blocks.push(Block::text("No family of comparisons was declared."));
    }
    blocks.extend(equivalence(context).map(Block::Folded));
    blocks.extend(times(context));
    blocks.extend(context.analysis.grids.iter().filter_map(|grid| reference_points(context, grid)));
    Section::new("power", "Assumptions, tests and power", blocks)
}

fn family_table(context: &Context, family: &FamilyResult) -> Block {
    let caption = format!(
        "Family {}: {} Holm at {} over {}.",
        text::visible(&family.id),
        text::sentence(&text::visible(&family.question)),
        axes::tick_label(context.analysis.declaration.alpha),
        text::counted(family.comparisons.len(), "comparison", "comparisons")
    );
    Block::Table(comparison::comparisons(context, caption, &family.comparisons))
}

fn declared(context: &Context) -> Table {
    let declaration = &context.analysis.declaration;
    let pilot = declaration.pilot.as_ref().map(|pilot| {
        format!(
            "{} points over {}: {}",
            text::standard_error(pilot.sigma),
            text::counted(pilot.runs as usize, "run of each arm", "runs of each arm"),
            text::visible(&pilot.of)
        )
    });
    let level = declaration.time_to_level.as_ref().map(|level| {
        format!("avg@k of {} on {}", text::percent(level.level), text::visible(&level.set))
    });
    let held_out = declaration.held_out.as_ref().map(|held_out| {
        format!("grid {}: {}", text::visible(&held_out.grid), text::visible(&held_out.description))
    });
    let margin = format!("{} points", text::points(declaration.margin));
    let doses = declaration.least_doses.iter();
    let doses = doses.map(|(technique, dose)| format!("{} {}", technique, text::percent(*dose)));
    let pools = declaration.pools.iter();
    let pools = pools.map(|pool| format!("{}: {} arms", text::visible(&pool.id), pool.arms.len()));
    let unit = if declaration.paired { "blocks: runs of one seed are paired" } else { "runs" };
    let rows = [
        ("primary set", text::visible(&declaration.primary_set)),
        ("set of the curves", text::visible(&declaration.curve_set)),
        ("seeds", text::joined(&declaration.seeds, ", ")),
        (
            "seeds that tuning used, which never count",
            text::joined(&declaration.tuning_seeds, ", "),
        ),
        ("confidence of intervals", context.level()),
        ("error rate of a family (Holm)", text::percent(declaration.alpha)),
        ("power of the detectable effects", text::percent(declaration.power)),
        ("δ: closer arms count as the same", margin),
        ("σ between training runs, from a pilot", pilot.unwrap_or_default()),
        ("level whose reaching is timed", level.unwrap_or_default()),
        ("held-out task variant", held_out.unwrap_or_default()),
        ("unit of tests and intervals", unit.to_owned()),
        ("least dose of a technique", text::joined(doses, ", ")),
        ("pools of arms", text::joined(pools, "; ")),
    ];
    let rows = rows.map(|(what, value)| {
        row![what, if value.is_empty() { "not declared".to_owned() } else { value }]
    });
    let caption = if context.study.is_declared() {
        "What was declared."
    } else {
        "Nothing was declared: the program\u{2019}s own settings."
    };
    Table::new(caption, "what | value", rows)
}

/// Registered and observed, and what either could have found.
fn spread(context: &Context) -> String {
    let Some(spread) = &context.analysis.spread else {
        return "No arm has two scored runs: nothing is known of the spread between training runs."
            .to_owned();
    };
    let of_runs = |sigma, effect| match spread.design {
        SpreadDesign::IndependentRuns => with_effect(sigma, effect),
        SpreadDesign::Blocks => format!("{} points", text::standard_error(sigma)),
    };
    let registered = spread.registered.map_or("none was registered".to_owned(), |sigma| {
        format!("the registered one is {}", of_runs(sigma, spread.registered_effect))
    });
    let observed = of_runs(spread.observed, spread.observed_effect);
    let blocks = spread.within_blocks.map_or(comparison::without_spread(context), |sigma| {
        let sigma = with_effect(sigma, spread.observed_effect);
        format!(
            " Arms share blocks here: the differences within blocks of the first family spread by {sigma}. \
             What differs between blocks hides nothing in them."
        )
    });
    format!(
        "σ between training runs: {registered}; the observed one, pooled over {}, is {observed}. By arm it \
         goes from {} ({}) to {} points ({}).{blocks} What could have been found is a true difference \
         between two arms of {} by one comparison at the declared α, confidence and power.",
        text::counted(spread.arms as usize, "arm", "arms"),
        text::standard_error(spread.smallest.1),
        context.label_in_study(&spread.smallest.0),
        text::standard_error(spread.largest.1),
        context.label_in_study(&spread.largest.0),
        text::counted(spread.runs as usize, "run", "runs"),
    )
}

fn with_effect(sigma: f64, effect: Option<f64>) -> String {
    if sigma == 0.0 {
        return "0.0 points, from which no detectable difference can be estimated".to_owned();
    }
    let effect = effect.map_or("nothing".to_owned(), |effect| {
        format!("a difference of {} points", Unit::Share.show(effect))
    });
    let sigma = text::standard_error(sigma);
    format!("{sigma} points, with which {effect} could have been found")
}

/// `runs` and `blocks`, of a study's unit, and `both`.
static ASSUMPTIONS: LazyLock<BTreeMap<String, Vec<String>>> =
    LazyLock::new(|| toml::from_str(include_str!("assumptions.toml")).expect("lists of sentences"));

fn assumptions(context: &Context) -> Vec<String> {
    let remarks = context.analysis.remarks.iter().map(|it| text::visible(&words::remark(it)));
    let remarks = remarks.map(|remark| text::sentence(&text::capital(&remark)));
    let unit = if context.analysis.declaration.paired { "blocks" } else { "runs" };
    remarks.chain([unit, "both"].iter().flat_map(|of| ASSUMPTIONS[*of].clone())).collect()
}

fn equivalence(context: &Context) -> Option<Table> {
    let rows = context.comparisons().filter_map(|it| equivalence_row(context, it));
    let caption = "Equivalence within δ (two one-sided tests), in points. The p of a family\u{2019}s tests are \
                   corrected together (Holm). An interaction of k techniques is compared as the difference of differences \
                   divided by 2^(k−1), and δ is divided alike. The attainable power is the chance to show equivalence \
                   at Holm\u{2019}s first step, α divided by the size of the family, if the two were truly the same.";
    let columns = "comparison | difference # | half width at 1 − 2α # | δ # | p # | p (Holm) # | within δ | attainable power #";
    Table::new(caption, columns, rows).filled()
}

fn equivalence_row(context: &Context, comparison: &Comparison) -> Option<Vec<TableCell>> {
    let result = comparison.result.as_ref()?;
    let tests = result.equivalence?;
    let adjusted = result.adjusted_equivalence_p;
    let is_within = adjusted.is_some_and(|p| p <= context.analysis.declaration.alpha);
    let power = result.attainable_power.map(text::percent);
    Some(row![
        context.pair(&comparison.declared.arm, &comparison.declared.reference),
        Unit::Share.signed(tests.difference),
        text::standard_error(tests.half_width),
        text::standard_error(tests.margin),
        text::p_value(tests.p()),
        TableCell::shown(adjusted, text::p_value),
        if is_within { "yes" } else { "not shown" },
        TableCell::or(power, "no pilot σ")
    ])
}

/// In thousands of tokens.
fn reference_points(context: &Context, grid: &GridSummary) -> Option<Block> {
    let rows = grid.reference_points.iter().map(|point| {
        let spread = |mean: &Option<Mean>, unit: f64| {
            let shown = mean.as_ref().map(|Mean { mean, standard_deviation, .. }| {
                let spread = standard_deviation.map(|spread| text::number(spread / unit));
                let spread = spread.map_or(String::new(), |spread| format!(" ± {spread}"));
                text::number(mean / unit) + &spread
            });
            TableCell::or(shown, "not all runs")
        };
        row![
            context.label_in_study(&point.arm),
            text::percent(point.level),
            format!("{} of {}", point.reached, point.runs),
            spread(&point.updates, 1.0),
            spread(&point.generated_tokens, 1000.0)
        ]
    });
    let caption = format!(
        "{}: reference points. What the runs took to reach an accuracy on {} for the first time, mean ± standard \
         deviation over all runs of an arm; none where a run never reached it. Levels that no run reached are left out.",
        text::visible(&grid.name),
        text::visible(&context.analysis.declaration.curve_set)
    );
    let columns = "arm | level # | reached # | updates # | thousand generated tokens #";
    Table::new(caption, columns, rows).filled().map(Block::Folded)
}

fn times(context: &Context) -> Vec<Block> {
    let Some(level) = &context.analysis.declaration.time_to_level else { return Vec::new() };
    let timed = context.analysis.grids.iter().filter(|grid| !grid.times.is_empty());
    let block = |grid: &GridSummary| {
        let caption = format!(
            "{}: runs that reached avg@k of {} on {}, and the median time (Kaplan\u{2013}Meier; runs \
             that never did are censored at their last evaluation).",
            text::visible(&grid.name),
            text::percent(level.level),
            text::visible(&level.set)
        );
        let columns = "arm | reached # | median, updates # | median, generated rollouts #";
        let rows = grid.times.iter().map(|arm| times_row(context, arm));
        Block::Folded(Table::new(caption, columns, rows))
    };
    timed.map(block).collect()
}

fn times_row(context: &Context, arm: &ArmTimes) -> Vec<TableCell> {
    let medians = [arm.updates.median, arm.generated_rollouts.median]
        .map(|time| TableCell::or(time.map(text::number), "more than half never reached it"));
    let reached = format!("{} of {}", arm.updates.reached, arm.updates.seeds.len());
    row![context.label_in_study(&arm.arm), reached].into_iter().chain(medians).collect()
}
