//! Claims judged on made-up studies whose truth is known, and `dapo report --claims` itself.

use crate::binary::{self, line_in, succeeded};
use crate::repository;
use crate::study_fixture::{self, Shape};
use crate::transcript::play;
use dapo::base::files;
use dapo::experiment::Grid;
use dapo::report::{claims as text, words};
use dapo::study::ClaimVerdict;
use dapo::study::claims::{self, Test, evidence};
use dapo::study::collection::Study;
use dapo::study::{
    Cell, ClaimResult, Declaration, Judged, Needed, PartResult, Remark, analysis, declaration,
};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

const SEEDS: [u64; 6] = [1, 2, 3, 4, 5, 6];

/// The shipped declaration with these seeds. With a family of five, five runs a side cannot show
/// anything (5 × 0.008 = 0.04 can, but barely).
fn declared(seeds: &[u64]) -> Declaration {
    let file = repository::root().join("experiments/study.toml");
    let shipped = declaration::load(&file).unwrap();
    Declaration { seeds: seeds.to_vec(), registered: true, ..shipped }
}

/// What a table of `claims/shapes.toml` says of an arm, under its id, its name or `other`.
#[derive(Deserialize)]
struct Course {
    score: f64,
    rollouts_per_step: Option<u64>,
    #[serde(default)]
    metrics: BTreeMap<String, (f64, f64)>,
}

fn shapes(table: &str) -> impl Fn(&str) -> Shape {
    let mut tables: BTreeMap<String, BTreeMap<String, Course>> =
        toml::from_str(include_str!("claims/shapes.toml")).unwrap();
    let courses = tables.remove(table).unwrap();
    move |id| {
        let (_, name) = id.split_once('/').unwrap();
        let course = [id, name, "other"].iter().find_map(|key| courses.get(*key)).unwrap();
        let mut shape = Shape::ending_at(course.score);
        shape.rollouts_per_step = course.rollouts_per_step.unwrap_or(shape.rollouts_per_step);
        shape.metrics.extend(course.metrics.clone());
        shape
    }
}

/// Cells of every arm of the ladder, of add-one and of DAPO without Dynamic Sampling.
fn study(shape: impl Fn(&str) -> Shape, seeds: &[u64], width: f64) -> (Vec<Grid>, Vec<Cell>) {
    let grids = study_fixture::grids(seeds);
    let mut seen = BTreeSet::new();
    let mut cells = Vec::new();
    for (grid, arm) in grids.iter().flat_map(|grid| grid.arms.iter().map(move |arm| (grid, arm))) {
        let id = format!("{}/{}", grid.name, arm.name);
        let wanted = ["ladder", "add-one"].contains(&grid.name.as_str())
            || id == "leave-one-out/dynamic-sampling";
        if wanted && seen.insert(&arm.arm_sha256) {
            cells.extend(seeds.iter().enumerate().map(|(index, seed)| {
                let shape = varied(shape(&id), index, seeds.len(), width);
                bent(study_fixture::cell(arm, *seed, &shape))
            }));
        }
    }
    (grids, cells)
}

/// Seeds differ in their scores and a little in every metric.
fn varied(mut shape: Shape, index: usize, runs: usize, width: f64) -> Shape {
    shape.score.1 += study_fixture::spread(index, runs, width);
    for (first, last) in shape.metrics.values_mut() {
        let factor = 1.0 + study_fixture::spread(index, runs, 0.01);
        (*first, *last) = (*first * factor, *last * factor);
    }
    shape
}

/// Where entropy is declared as level, it dips in the middle and its mirror image rises.
fn bent(mut cell: Cell) -> Cell {
    let steps = cell.counters.len();
    let rounded = |value: f64| (value * 1e6).round() / 1e6;
    let entropy = cell.metrics.get_mut("policy/entropy").unwrap();
    if steps > 1 && entropy[0] == entropy[steps - 1] {
        for (index, value) in entropy.iter_mut().enumerate() {
            let along = index as f64 / (steps - 1) as f64;
            let dip = 0.1 * (std::f64::consts::PI * along).sin();
            *value = value.map(|value| rounded(value - dip + 0.02 * along));
        }
    }
    let mirror = entropy.iter().map(|value| value.map(|value| rounded(1.0 - 0.5 * value)));
    let mirror = mirror.collect();
    cell.metrics.insert("policy/token_probability_mean".to_owned(), mirror);
    cell.sealed()
}

/// The claims of a study of [`study`].
fn judged(shape: impl Fn(&str) -> Shape, seeds: &[u64], width: f64) -> Judged {
    judged_on(study(shape, seeds, width), seeds)
}

fn judged_on((grids, cells): (Vec<Grid>, Vec<Cell>), seeds: &[u64]) -> Judged {
    let study = Study::new(grids, cells, Some(declared(seeds)));
    evidence::judge(&study, &analysis::analyse(&study), &claims::shipped())
}

fn claim<'a>(judged: &'a Judged, id: &str) -> &'a ClaimResult {
    judged.claims.iter().find(|claim| claim.id == id).unwrap_or_else(|| panic!("{id}"))
}

fn part<'a>(claim: &'a ClaimResult, id: &str) -> &'a PartResult {
    claim.parts.iter().find(|part| part.id == id).unwrap_or_else(|| panic!("{id}"))
}

/// The verdicts are those of a table of `claims/verdicts.toml`.
#[track_caller]
fn assert_verdicts(judged: &Judged, table: &str) {
    let tables: BTreeMap<String, BTreeMap<String, ClaimVerdict>> =
        toml::from_str(include_str!("claims/verdicts.toml")).unwrap();
    for (id, expected) in &tables[table] {
        let claim = claim(judged, id);
        assert_eq!(claim.verdict, *expected, "{id}: {claim:#?}");
    }
}

#[test]
fn a_study_that_is_as_the_paper_says_supports_its_claims() {
    let judged = judged(shapes("as_the_paper_says"), &SEEDS, 0.002);
    assert_verdicts(&judged, "as_the_paper_says");
    // 600 instead of 256 rollouts a step: the level comes after more of them.
    let cost = claim(&judged, "dynamic-sampling-is-worth-its-rollouts");
    assert!([ClaimVerdict::Contradicted, ClaimVerdict::Inconclusive].contains(&cost.verdict));
    assert!(judged.remarks.contains(&Remark::SharedBase));
}

#[test]
fn a_declared_comparison_is_the_one_that_decides_and_the_headline_counts_what_the_table_says() {
    let (grids, cells) = study(shapes("as_the_paper_says"), &SEEDS, 0.002);
    let study = Study::new(grids, cells, Some(declared(&SEEDS)));
    let analysis = analysis::analyse(&study);
    let judged = evidence::judge(&study, &analysis, &claims::shipped());
    for part in &claim(&judged, "each-row-improves").parts {
        assert!(part.registered);
        let declared = analysis.comparison("ladder", &part.id).unwrap();
        assert_eq!(part.comparison.as_ref(), Some(declared));
    }
    let open = &claim(&judged, "sample-level-loss-is-unhealthy").parts[1];
    assert!(!open.registered, "the family `length` is not in the declaration");
    assert_eq!(open.comparison.as_ref().unwrap().family, "length (claims)");
    let sum: usize = text::by_verdict(&judged).values().map(|claims| claims.len()).sum();
    assert_eq!(sum, judged.claims.len());
    assert!(text::headline(&judged).contains("3 not testable at this scale"));
}

#[test]
fn a_shown_direction_with_less_than_the_claimed_size_is_smaller_than_claimed() {
    let paper = shapes("as_the_paper_says");
    let barely = |id: &str| match id {
        // 2 points above the row before, of which 8 are claimed, and 22 above GRPO, of which 20 are.
        "ladder/dynamic-sampling" => Shape::ending_at(0.52),
        _ => paper(id),
    };
    let judged = judged(barely, &SEEDS, 0.002);
    let rows = claim(&judged, "each-row-improves");
    assert_eq!(rows.verdict, ClaimVerdict::SmallerThanClaimed, "{rows:#?}");
    let why = words::claim_why(rows);
    assert_eq!(why, "shown, and smaller than claimed: dynamic-sampling");
    let why = words::part_why(part(rows, "dynamic-sampling"));
    assert!(why.contains("points by its interval, and 8.0 points are claimed"), "{why}");
    assert_eq!(claim(&judged, "dapo-improves-on-grpo").verdict, ClaimVerdict::PositiveControl);
}

#[test]
fn a_study_that_is_the_other_way_round_contradicts_them() {
    let judged = judged(shapes("the_other_way_round"), &SEEDS, 0.002);
    assert_verdicts(&judged, "the_other_way_round");
    let why = words::claim_why(claim(&judged, "dapo-improves-on-grpo"));
    assert!(why.contains("was made to show this and does not"), "{why}");
}

#[test]
fn noise_leaves_claims_open_and_says_how_many_runs_would_be_needed() {
    let judged = judged(shapes("as_the_paper_says"), &SEEDS, 0.08);
    let rows = claim(&judged, "each-row-improves");
    assert_eq!(rows.verdict, ClaimVerdict::Inconclusive, "{rows:#?}");
    let row = part(rows, "token-level-loss");
    assert_eq!(row.verdict, ClaimVerdict::Inconclusive);
    let Some(Needed::AboutForSeen { count, blocks: false, .. }) = row.needed else {
        panic!("{:?}", row.needed);
    };
    assert!(count > SEEDS.len(), "{count}");
    // The same number of arms apart by nothing but noise is no support for "little" either way.
    let little = claim(&judged, "training-reward-says-little");
    assert_eq!(little.verdict, ClaimVerdict::Contradicted, "seeds order reward and score alike");
}

#[test]
fn three_seeds_cannot_show_a_difference_however_large() {
    let three = judged(shapes("as_the_paper_says"), &[1, 2, 3], 0.002);
    let dapo = claim(&three, "dapo-improves-on-grpo");
    assert_eq!(dapo.verdict, ClaimVerdict::Inconclusive);
    let why = words::part_why(&dapo.parts[0]);
    assert!(why.contains("their smallest p is 0.100, above 0.05"), "{why}");
    let needed = words::needed(dapo.parts[0].needed.as_ref().unwrap());
    assert!(needed.contains("5 runs of each arm"), "{needed}");
    // One seed has nothing between training runs at all.
    let one = judged(shapes("as_the_paper_says"), &[1], 0.0);
    let mut testable = one.claims;
    testable.retain(|claim| claim.verdict != ClaimVerdict::NotTestable);
    assert!(testable.iter().all(|claim| claim.verdict == ClaimVerdict::Inconclusive));
    assert!(testable.iter().flat_map(|claim| &claim.parts).all(|part| part.needed.is_some()));
}

#[test]
fn a_missing_arm_and_failed_runs_leave_a_claim_open_by_name() {
    let (grids, mut cells) = study(shapes("as_the_paper_says"), &SEEDS, 0.002);
    let hash = |id| study_fixture::arm(&grids, id).arm_sha256.clone();
    let (absent, failing) = (hash("add-one/soft-overlong-punishment"), hash("ladder/clip-higher"));
    cells.retain(|cell| cell.arm_sha256 != absent);
    let failing = cells.iter_mut().filter(|cell| cell.arm_sha256 == failing);
    study_fixture::change(failing, study_fixture::fail);
    let judged = judged_on((grids, cells), &SEEDS);
    let missing = claim(&judged, "soft-punishment-shortens-the-overlong");
    assert_eq!(missing.verdict, ClaimVerdict::Inconclusive);
    let why = words::part_why(&missing.parts[0]);
    assert_eq!(why, "`add-one/soft-overlong-punishment` has no run that counts");
    assert!(words::needed(missing.parts[0].needed.as_ref().unwrap()).contains("at least 5 runs"));
    let ladder = claim(&judged, "each-row-improves");
    assert_eq!(ladder.verdict, ClaimVerdict::Inconclusive);
    let why = words::claim_why(ladder);
    assert!(why.contains("clip-higher, soft-overlong-punishment"), "{why}");
    assert!(judged.remarks.contains(&Remark::FailedRuns { count: 6 }));
    // The other rows are still adjusted for all five.
    let row = part(ladder, "dynamic-sampling");
    assert_eq!(row.verdict, ClaimVerdict::Supported);
    let result = row.comparison.as_ref().unwrap().result.as_ref().unwrap();
    assert!((result.adjusted_p - 5.0 * result.p).abs() < 1e-12, "{result:?}");
}

#[test]
fn runs_of_an_arm_that_two_grids_name_count_once() {
    let (grids, cells) = study(shapes("as_the_paper_says"), &SEEDS, 0.08);
    let study = Study::new(grids, cells, Some(declared(&SEEDS)));
    let mut claims = claims::shipped();
    claims.claims.retain(|claim| claim.id == "training-reward-says-little");
    let Test::AcrossRuns { arms, .. } = &mut claims.claims[0].parts[0].test else { panic!() };
    *arms =
        ["ladder/dynamic-sampling", "leave-one-out/dapo", "ladder/grpo"].map(str::to_owned).into();
    let judged = evidence::judge(&study, &analysis::analyse(&study), &claims);
    let result = judged.claims[0].parts[0].across_runs.as_ref().unwrap();
    assert_eq!(result.runs.len(), 2 * SEEDS.len());
}

#[test]
fn every_shipped_claim_names_arms_that_the_shipped_grids_have() {
    let grids = study_fixture::grids(&[1]);
    let claims = claims::shipped().claims;
    assert!(claims.len() >= 15);
    for id in claims.iter().flat_map(|claim| &claim.parts).flat_map(|part| part.test.arms()) {
        study_fixture::arm(&grids, id);
    }
    // The held-out variant's grid names inputs of its own.
    let declaration = declared(&SEEDS);
    let held_out = format!("{}/", declaration.held_out.as_ref().unwrap().grid);
    let declared = declaration.families.iter().flat_map(|family| &family.comparisons);
    let ids = declared.flat_map(|declared| [&declared.arm, &declared.reference]);
    for id in ids.filter(|id| !id.starts_with(&held_out)) {
        study_fixture::arm(&grids, id);
    }
}

#[test]
fn a_claim_of_a_declared_family_stands_in_the_declaration_word_for_word() {
    let declaration = declared(&SEEDS);
    let mut count = 0;
    for claim in claims::shipped().claims {
        for part in claim.parts {
            let Test::Difference { arm, reference, metric, direction } = &part.test else {
                continue;
            };
            let Some(family) = declaration.family(&part.family) else { continue };
            let same = family.comparisons.iter().any(|other| {
                (&other.arm, &other.reference, &other.metric, &other.direction)
                    == (arm, reference, metric, direction)
            });
            assert!(same, "{}/{}: not in the family {}", claim.id, part.id, part.family);
            count += 1;
        }
    }
    assert!(count >= 12, "only {count}");
}

#[test]
fn the_papers_own_curves_say_what_its_text_says_but_for_training_reward() {
    let judged = judged_on(study(shapes("as_the_paper_says"), &[1, 2], 0.002), &SEEDS);
    let mut disagreeing = Vec::new();
    for claim in &judged.claims {
        for part in &claim.parts {
            let Some(paper) = &part.paper else { continue };
            assert!(paper.value.is_finite() && paper.remark.starts_with("one run; "));
            if !paper.agrees {
                disagreeing.push(format!("{}/{}: {}", claim.id, part.id, paper.words));
            }
        }
    }
    // Within the one published run the two curves rise together.
    assert_eq!(disagreeing.len(), 1, "{disagreeing:#?}");
    assert!(disagreeing[0].starts_with("training-reward-says-little/across-runs"));
    let entropy = claim(&judged, "clip-higher-keeps-entropy").parts[0].paper.clone().unwrap();
    assert!(entropy.value > 0.3 && entropy.unit == "nats", "{entropy:?}");
}

#[test]
fn claims_are_judged_and_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (grids, mut cells) = study(shapes("as_the_paper_says"), &SEEDS, 0.002);
    study_fixture::change(&mut cells[..1], |cell| cell.harness = "<b>0.0.9\u{1b}[2J|".to_owned());
    study_fixture::write(folder.path(), &grids, &cells);
    files::write_json(&folder.path().join("mine.json"), &declared(&SEEDS)).unwrap();
    let declared = |flags: &str| {
        let line = format!("report --claims . --declaration mine.json {flags}");
        line_in(folder.path(), &line)
    };

    let (out, err) = succeeded(declared(""));
    assert!(out.contains("POSITIVE CONTROL: reflection-appears"), "{out}");
    assert!(out.contains("paper's own numbers (agrees; one run; "));
    assert!(err.contains("its `harness` is <b>0.0.9\\u{1b}"), "{err}");
    assert!(!out.contains('\u{1b}') && !err.contains('\u{1b}'));

    let count = claims::shipped().claims.len();
    let all = binary::json(declared("--json"))["judged"]["claims"].clone();
    assert_eq!(all.as_array().unwrap().len(), count);
    let (markdown, _) = succeeded(declared("--markdown"));
    let titles = markdown.lines().filter(|line| line.starts_with("## "));
    assert_eq!(titles.count(), count + 2, "{markdown}");

    play(folder.path(), include_str!("claims/refused.txt"));
}
