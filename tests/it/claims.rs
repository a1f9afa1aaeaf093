//! Claims judged on made-up studies whose truth is known, and `dapo report --claims` itself.

use crate::binary::{dapo, failed, says, succeeded};
use crate::repository;
use crate::study_fixture::{self, Shape};
use dapo::base::files;
use dapo::experiment::Grid;
use dapo::report::{claims as text, words};
use dapo::study::ClaimVerdict;
use dapo::study::claims::evidence;
use dapo::study::claims::{self, Test};
use dapo::study::collection::Study;
use dapo::study::{
    Cell, CellEnding, ClaimResult, Declaration, Judged, Needed, Remark, analysis, declaration,
};
use serde_json::Value;
use std::collections::BTreeSet;

const SEEDS: [u64; 6] = [1, 2, 3, 4, 5, 6];

/// The shipped declaration with six seeds: with a family of five, five runs a side cannot show
/// anything (5 × 0.008 = 0.04 can, but barely).
fn declared() -> Declaration {
    let mut declaration =
        declaration::load(&repository::root().join("experiments/study.toml")).unwrap();
    declaration.seeds = SEEDS.to_vec();
    declaration.registered = true;
    declaration
}

/// What the paper says, arm by arm.
fn as_the_paper_says(arm: &str) -> Shape {
    let accuracy = |shape: Shape, last| shape.with("rollout/accuracy", 0.1, last);
    let grpo = |score| {
        let shape = Shape::ending_at(score).with("policy/entropy", 0.20, 0.01);
        accuracy(shape.with("rollout/truncated_share", 0.2, 0.2), 0.3)
    };
    match arm.split_once('/').unwrap().1 {
        "grpo" => grpo(0.30),
        "overlong-filtering" => grpo(0.36),
        "clip-higher" => grpo(0.40).with("policy/entropy", 0.20, 0.15),
        "soft-overlong-punishment" => grpo(0.45)
            .with("rollout/truncated_share", 0.2, 0.02)
            .with("policy/entropy", 0.2, 0.4)
            .with("rollout/response_tokens_mean", 30.0, 136.0),
        "token-level-loss" => accuracy(Shape::ending_at(0.50), 0.4),
        "dynamic-sampling" if arm.starts_with("add-one") => accuracy(grpo(0.4), 0.7),
        "dynamic-sampling" | "dapo" => {
            let shape = Shape { rollouts_per_step: 512, ..Shape::ending_at(0.9) };
            let careful = shape.with("rollout/style_careful_share", 0.01, 0.9);
            // A straight line cannot dip; the course is bent in `study`.
            accuracy(careful.with("policy/entropy", 0.20, 0.20), 0.8)
        }
        _ => Shape::ending_at(0.5),
    }
}

/// Cells of every arm of the ladder, of add-one and of DAPO without Dynamic Sampling.
fn study(shape: impl Fn(&str) -> Shape, seeds: &[u64], width: f64) -> (Vec<Grid>, Vec<Cell>) {
    let grids = study_fixture::grids(seeds);
    let mut seen = BTreeSet::new();
    let mut cells = Vec::new();
    for grid in &grids {
        for arm in &grid.arms {
            let id = format!("{}/{}", grid.name, arm.name);
            let wanted = ["ladder", "add-one"].contains(&grid.name.as_str())
                || id == "leave-one-out/dynamic-sampling";
            if !wanted || !seen.insert(arm.arm_sha256.clone()) {
                continue;
            }
            for (index, seed) in seeds.iter().enumerate() {
                let shape = varied(shape(&id), index, seeds.len(), width);
                cells.push(bent(study_fixture::cell(arm, *seed, &shape)));
            }
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
    let entropy = cell.metrics.get_mut("policy/entropy").unwrap();
    let level = steps > 1 && entropy[0] == entropy[steps - 1];
    if level {
        for (index, value) in entropy.iter_mut().enumerate() {
            let along = index as f64 / (steps - 1) as f64;
            let dip = 0.1 * (std::f64::consts::PI * along).sin();
            *value = value.map(|value| ((value - dip + 0.02 * along) * 1e6).round() / 1e6);
        }
    }
    let mirror: Vec<Option<f64>> = entropy
        .iter()
        .map(|value| value.map(|value| ((1.0 - 0.5 * value) * 1e6).round() / 1e6))
        .collect();
    cell.metrics.insert("policy/token_probability_mean".to_owned(), mirror);
    cell.sealed()
}

fn judged(grids: Vec<Grid>, cells: Vec<Cell>, declaration: Declaration) -> Judged {
    let study = Study::new(grids, cells, Some(declaration));
    let analysis = analysis::analyse(&study);
    evidence::judge(&study, &analysis, &claims::shipped())
}

fn claim<'a>(judged: &'a Judged, id: &str) -> &'a ClaimResult {
    judged.claims.iter().find(|claim| claim.id == id).unwrap_or_else(|| panic!("{id}"))
}

#[test]
fn a_study_that_is_as_the_paper_says_supports_its_claims() {
    let (grids, cells) = study(as_the_paper_says, &SEEDS, 0.002);
    let judged = judged(grids, cells, declared());
    for (id, expected) in [
        ("grpo-entropy-collapses", ClaimVerdict::PositiveControl),
        ("clip-higher-keeps-entropy", ClaimVerdict::Supported),
        ("clip-higher-raises-accuracy", ClaimVerdict::Supported),
        ("up-clipped-tokens-are-improbable", ClaimVerdict::Supported),
        ("all-correct-groups-grow", ClaimVerdict::Supported),
        ("dynamic-sampling-needs-fewer-updates", ClaimVerdict::Supported),
        ("sample-level-loss-is-unhealthy", ClaimVerdict::Supported),
        ("soft-punishment-shortens-the-overlong", ClaimVerdict::Supported),
        ("dapo-improves-on-grpo", ClaimVerdict::PositiveControl),
        ("each-row-improves", ClaimVerdict::Supported),
        ("length-and-reward-grow", ClaimVerdict::Supported),
        ("entropy-dips-then-rises", ClaimVerdict::Supported),
        ("probability-mirrors-entropy", ClaimVerdict::Supported),
        ("reflection-appears", ClaimVerdict::PositiveControl),
        ("50-points-on-aime", ClaimVerdict::NotTestable),
    ] {
        let found = claim(&judged, id);
        assert_eq!(found.verdict, expected, "{id}: {found:#?}");
    }
    // 600 instead of 256 rollouts a step: the level comes after more of them.
    let cost = claim(&judged, "dynamic-sampling-is-worth-its-rollouts");
    assert!([ClaimVerdict::Contradicted, ClaimVerdict::Inconclusive].contains(&cost.verdict));
    assert!(judged.remarks.contains(&Remark::SharedBase));
}

#[test]
fn a_declared_comparison_is_the_one_that_decides_and_the_headline_counts_what_the_table_says() {
    let (grids, cells) = study(as_the_paper_says, &SEEDS, 0.002);
    let study = Study::new(grids, cells, Some(declared()));
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
    let sum: usize = text::by_verdict(&judged).iter().map(|(_, claims)| claims.len()).sum();
    assert_eq!(sum, judged.claims.len());
    assert!(text::headline(&judged).contains("3 not testable at this scale"));
}

#[test]
fn a_shown_direction_with_less_than_the_claimed_size_is_smaller_than_claimed() {
    let barely = |arm: &str| match arm {
        // 2 points above the row before, of which 8 are claimed, and 22 above GRPO, of which 20 are.
        "ladder/dynamic-sampling" => Shape::ending_at(0.52),
        _ => as_the_paper_says(arm),
    };
    let (grids, cells) = study(barely, &SEEDS, 0.002);
    let judged = judged(grids, cells, declared());
    let rows = claim(&judged, "each-row-improves");
    assert_eq!(rows.verdict, ClaimVerdict::SmallerThanClaimed, "{rows:#?}");
    let why = words::claim_why(rows);
    assert_eq!(why, "shown, and smaller than claimed: dynamic-sampling");
    let row = rows.parts.iter().find(|part| part.id == "dynamic-sampling").unwrap();
    let why = words::part_why(row);
    assert!(why.contains("points by its interval, and 8.0 points are claimed"), "{why}");
    assert_eq!(claim(&judged, "dapo-improves-on-grpo").verdict, ClaimVerdict::PositiveControl);
}

#[test]
fn a_study_that_is_the_other_way_round_contradicts_them() {
    let reversed = |arm: &str| match arm.split_once('/').unwrap().1 {
        "grpo" => as_the_paper_says("ladder/dynamic-sampling"),
        "dynamic-sampling" if arm.starts_with("ladder") => Shape::ending_at(0.25)
            .with("rollout/response_tokens_mean", 60.0, 30.0)
            .with("policy/entropy", 0.1, 0.3)
            .with("loss/up_clipped_probability_mean", 0.6, 0.6),
        "clip-higher" => Shape::ending_at(0.3).with("policy/entropy", 0.1, 0.001),
        _ => Shape::ending_at(0.5).with("rollout/groups_all_correct_share", 0.5, 0.1),
    };
    let (grids, cells) = study(reversed, &SEEDS, 0.002);
    let judged = judged(grids, cells, declared());
    for id in [
        "clip-higher-keeps-entropy",
        "clip-higher-raises-accuracy",
        "all-correct-groups-grow",
        "length-and-reward-grow",
        "entropy-dips-then-rises",
        "each-row-improves",
    ] {
        let found = claim(&judged, id);
        assert_eq!(found.verdict, ClaimVerdict::Contradicted, "{id}: {found:#?}");
    }
    // A positive control that fails is loud, never a positive control.
    let control = claim(&judged, "dapo-improves-on-grpo");
    assert_eq!(control.verdict, ClaimVerdict::Contradicted);
    let why = words::claim_why(control);
    assert!(why.contains("was made to show this and does not"), "{why}");
}

#[test]
fn noise_leaves_claims_open_and_says_how_many_runs_would_be_needed() {
    let (grids, cells) = study(as_the_paper_says, &SEEDS, 0.08);
    let judged = judged(grids, cells, declared());
    let found = claim(&judged, "each-row-improves");
    assert_eq!(found.verdict, ClaimVerdict::Inconclusive, "{found:#?}");
    let row = found.parts.iter().find(|part| part.id == "token-level-loss").unwrap();
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
    let three = [1, 2, 3];
    let (grids, cells) = study(as_the_paper_says, &three, 0.002);
    let mut declaration = declared();
    declaration.seeds = three.to_vec();
    let judged = judged(grids, cells, declaration);
    let found = claim(&judged, "dapo-improves-on-grpo");
    assert_eq!(found.verdict, ClaimVerdict::Inconclusive);
    let part = &found.parts[0];
    let why = words::part_why(part);
    assert!(why.contains("their smallest p is 0.100, above 0.05"), "{why}");
    let needed = words::needed(part.needed.as_ref().unwrap());
    assert!(needed.contains("5 runs of each arm"), "{needed}");
    // One seed has nothing between training runs at all.
    let (grids, cells) = study(as_the_paper_says, &[1], 0.0);
    let mut declaration = declared();
    declaration.seeds = vec![1];
    let alone = self::judged(grids, cells, declaration);
    let testable = alone.claims.iter().filter(|it| it.verdict != ClaimVerdict::NotTestable);
    assert!(testable.clone().all(|it| it.verdict == ClaimVerdict::Inconclusive));
    assert!(testable.flat_map(|it| &it.parts).all(|part| part.needed.is_some()));
}

#[test]
fn a_missing_arm_and_failed_runs_leave_a_claim_open_by_name() {
    let (grids, mut cells) = study(as_the_paper_says, &SEEDS, 0.002);
    let hash = |id| study_fixture::arm(&grids, id).arm_sha256.clone();
    let (absent, failing) = (hash("add-one/soft-overlong-punishment"), hash("ladder/clip-higher"));
    cells.retain(|cell| cell.arm_sha256 != absent);
    for cell in cells.iter_mut().filter(|cell| cell.arm_sha256 == failing) {
        cell.ending = CellEnding::Failed;
        cell.reason = "the process was killed".to_owned();
        *cell = cell.clone().sealed();
    }
    let judged = judged(grids, cells, declared());
    let missing = claim(&judged, "soft-punishment-shortens-the-overlong");
    assert_eq!(missing.verdict, ClaimVerdict::Inconclusive);
    let part = &missing.parts[0];
    let why = words::part_why(part);
    assert_eq!(why, "`add-one/soft-overlong-punishment` has no run that counts");
    assert!(words::needed(part.needed.as_ref().unwrap()).contains("at least 5 runs"));
    let ladder = claim(&judged, "each-row-improves");
    assert_eq!(ladder.verdict, ClaimVerdict::Inconclusive);
    let why = words::claim_why(ladder);
    assert!(why.contains("clip-higher, soft-overlong-punishment"), "{why}");
    assert!(judged.remarks.contains(&Remark::FailedRuns { count: 6 }));
    // The other rows are still adjusted for all five.
    let row = ladder.parts.iter().find(|part| part.id == "dynamic-sampling").unwrap();
    assert_eq!(row.verdict, ClaimVerdict::Supported);
    let result = row.comparison.as_ref().unwrap().result.as_ref().unwrap();
    assert!((result.adjusted_p - 5.0 * result.p).abs() < 1e-12, "{result:?}");
}

#[test]
fn every_shipped_claim_names_arms_that_the_shipped_grids_have() {
    let grids = study_fixture::grids(&[1]);
    let claims = claims::shipped();
    assert!(claims.claims.len() >= 15);
    for part in claims.claims.iter().flat_map(|claim| &claim.parts) {
        for id in part.test.arms() {
            study_fixture::arm(&grids, id);
        }
    }
    // The held-out variant's grid names inputs of its own.
    let declaration = declared();
    let held_out = format!("{}/", declaration.held_out.as_ref().unwrap().grid);
    for declared in declaration.families.iter().flat_map(|family| &family.comparisons) {
        for id in [&declared.arm, &declared.reference] {
            if !id.starts_with(&held_out) {
                study_fixture::arm(&grids, id);
            }
        }
    }
}

#[test]
fn a_claim_of_a_declared_family_stands_in_the_declaration_word_for_word() {
    let declaration = declared();
    let mut found = 0;
    for claim in claims::shipped().claims {
        for part in claim.parts {
            let Test::Difference { arm, reference, metric, direction } = &part.test else {
                continue;
            };
            let Some(family) = declaration.family(&part.family) else { continue };
            let same = family.comparisons.iter().any(|it| {
                (&it.arm, &it.reference, &it.metric, &it.direction)
                    == (arm, reference, metric, direction)
            });
            assert!(same, "{}/{}: not in the family {}", claim.id, part.id, part.family);
            found += 1;
        }
    }
    assert!(found >= 12, "only {found}");
}

#[test]
fn the_papers_own_curves_say_what_its_text_says_but_for_training_reward() {
    let (grids, cells) = study(as_the_paper_says, &[1, 2], 0.002);
    let judged = judged(grids, cells, declared());
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
fn claims_are_listed_judged_and_refused() {
    let claims = |arguments: &[&str]| dapo(&[&["report", "--claims"], arguments].concat());
    let untestable = "not testable at this scale: needs the 32 B model";
    says(claims(&[]), 0, &["each-row-improves (§4.2, Table 1)", untestable]);

    let folder = tempfile::tempdir().unwrap();
    let (grids, mut cells) = study(as_the_paper_says, &SEEDS, 0.002);
    cells[0].harness = "<b>0.0.9\u{1b}[2J|".to_owned();
    cells[0] = cells[0].clone().sealed();
    study_fixture::write(folder.path(), &grids, &cells);

    let path = folder.path().to_str().unwrap();
    let declaration = folder.path().join("declared.json");
    files::write_json(&declaration, &declared()).unwrap();
    let declaration = declaration.to_str().unwrap();
    let with = ["--declaration", declaration];

    let (out, err) = succeeded(claims(&[&[path], &with[..]].concat()));
    assert!(out.contains("POSITIVE CONTROL: reflection-appears"), "{out}");
    assert!(out.contains("paper's own numbers (agrees; one run; "));
    assert!(err.contains("its `harness` is <b>0.0.9\\u{1b}"), "{err}");
    assert!(!out.contains('\u{1b}') && !err.contains('\u{1b}'));

    let (_, json, _) = claims(&[&[path, "--json"], &with[..]].concat());
    let json: Value = serde_json::from_str(&json).unwrap();
    let all = json["judged"]["claims"].as_array().unwrap();
    assert_eq!(all.len(), claims::shipped().claims.len());
    let (_, markdown, _) = claims(&[&[path, "--markdown"], &with[..]].concat());
    let rows = markdown.lines().filter(|line| line.starts_with('|')).count();
    assert_eq!(rows, 2 + all.len());
    let columns = |line: &str| line.matches('|').count();
    assert!(markdown.lines().filter(|it| it.starts_with('|')).all(|it| columns(it) == 6));
    let only = [path, "--only", "each-row-improves", "--json"];
    let (_, one, _) = claims(&[&only[..], &with[..]].concat());
    let one: Value = serde_json::from_str(&one).unwrap();
    assert_eq!(one["judged"]["claims"].as_array().unwrap().len(), 1);
    let whole = all.iter().find(|claim| claim["id"] == "each-row-improves").unwrap();
    assert_eq!(&one["judged"]["claims"][0], whole);

    // Without a declaration everything is exploratory.
    says(claims(&[path]), 0, &["nothing was registered beforehand"]);
    failed(claims(&["--only", "nothing"]), 2, "--only nothing: there is no such claim");
    failed(claims(&["nowhere"]), 3, "is no study: it has no folder `grids`");
    failed(dapo(&["report", "--claims=Cargo.toml"]), 3, "unknown field");
}
