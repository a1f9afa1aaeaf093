//! Which runs of a study count, how those count that ended early, and how blocks and pools of them
//! are compared.

use crate::study::mean_of_sets;
use crate::study_fixture::{
    self, BLOCKS, PRIMARY, Shape, analysed, arm, blocks, change, compared, study, two_arms,
};
use dapo::base::files;
use dapo::experiment::Grid;
use dapo::report::words;
use dapo::study::comparisons::{self, Comparison, RunValue};
use dapo::study::{Cell, CellEnding, Remark, Word, analysis};
use std::ops::Range;
use std::path::PathBuf;

#[test]
fn paired_comparisons_are_of_differences_within_blocks_and_pools_of_their_arms_means() {
    let eight = |dapo: f64| {
        blocks(|id, seed| {
            let sign = if seed.is_multiple_of(2) { 1.0 } else { -1.0 };
            let of_arm = match id {
                "ladder/grpo" => 0.3,
                "ladder/token-level-loss" => 0.34,
                _ => 0.3 + dapo + 0.02 * sign,
            };
            of_arm + 0.05 * seed as f64
        })
    };
    let improving = study(eight(0.1), BLOCKS);
    let analysis = analysis::analyse(&improving);
    let primary = analysis.comparison("primary", "dapo-grpo").unwrap();
    assert_eq!(primary.word, Word::Improves, "{primary:?}");
    let result = primary.result.as_ref().unwrap();
    // All eight differences are positive: 2 of 2⁸ flips are as extreme.
    assert_eq!((result.p, result.splits, result.exact), (2.0 / 256.0, 256, true));
    // Scores rise on a line from 0.2: the mean of the evaluations after half of the updates.
    let expected = 0.1 * (0.625 + 0.75 + 0.875 + 1.0) / 4.0;
    assert!((result.difference - expected).abs() < 5e-3, "{} {expected}", result.difference);
    let main = analysis.comparison("main-effects", "dynamic-sampling").unwrap();
    assert_eq!((main.word, main.arm.len(), main.reference.len()), (Word::Improves, 16, 16));
    assert!((main.result.as_ref().unwrap().difference - 0.08).abs() < 5e-3, "{main:?}");
    // The report says what the unit is, and names the pools.
    let pages = study_fixture::markdown(&improving);
    let pools = "with Dynamic Sampling against without";
    for text in ["sign-flip test over blocks", "is the block of runs", pools] {
        assert!(pages.contains(text), "{text}: {pages}");
    }
    // What the first family does not show closes the second.
    let analysis = analysed(eight(0.0), BLOCKS);
    assert_eq!(analysis.comparison("primary", "dapo-grpo").unwrap().word, Word::Equivalent);
    let closed = analysis.comparison("main-effects", "dynamic-sampling").unwrap();
    assert!(words::why(&closed.why).starts_with("it counts only after"), "{:?}", closed.why);
    // Without blocks the same difference drowns in the spread between them.
    let alone = format!("[[families]]{}", BLOCKS.split("[[families]]").nth(1).unwrap());
    assert_eq!(compared(eight(0.1), &alone, "dapo-grpo").word, Word::Inconclusive);
}

#[test]
fn nothing_detectable_is_estimated_from_identical_runs() {
    let analysis = analysed(blocks(|_, seed| 0.3 + 0.05 * seed as f64), BLOCKS);
    let primary = analysis.comparison("primary", "dapo-grpo").unwrap().result.as_ref().unwrap();
    assert_eq!((primary.observed_sigma, primary.observed_detectable_effect), (Some(0.0), None));
    let spread = analysis.spread.as_ref().unwrap();
    assert!(spread.observed > 0.0);
    assert_eq!((spread.within_blocks, spread.observed_effect), (None, None));
}

#[test]
fn a_block_counts_when_each_arm_of_a_pool_has_a_run() {
    let runs = |values: &[(u64, f64)]| -> Vec<RunValue> {
        values
            .iter()
            .map(|(seed, value)| RunValue { seed: *seed, value: *value, censored: false })
            .collect()
    };
    // Of a pool of two, block 1 has one arm alone; block 2 lacks a reference.
    let pooled = Comparison {
        arm: runs(&[(1, 9.0), (2, 1.0), (2, 3.0), (3, 4.0), (3, 6.0)]),
        reference: runs(&[(1, 0.0), (3, 2.0)]),
        arms_of_sides: [2, 1],
        paired: true,
        ..compared(two_arms(0.4, 0.6, 0.01), PRIMARY, "dapo-grpo")
    };
    assert_eq!(comparisons::block_differences(&pooled), [(3, 3.0)]);
    assert_eq!(pooled.means(), (Some(5.0), Some(2.0)));
}

#[test]
fn a_comparison_that_a_run_has_no_value_for_is_not_made_and_names_what_is_missing() {
    let rollouts = PRIMARY.replace(r#""dev", at"#, r#""mini-aime", at"#);
    let dapo = "ladder/dynamic-sampling seed 1:";
    type Case<'a> = (&'a str, &'a str, Range<usize>, fn(&mut Cell), String, &'a [u64]);
    // Families, comparison, the cells that are changed, how, the reason, and DAPO's seeds without a score.
    let cases: [Case; 4] = [
        (
            PRIMARY,
            "dapo-grpo",
            5..10,
            |cell| {
                // The base policy's score is none of theirs.
                cell.ending = CellEnding::Diverged;
                cell.evaluations.retain(|evaluation| evaluation.counters.updates == 0);
            },
            format!("{dapo} it diverged before `mini-aime-plus` was evaluated"),
            &[1, 2, 3, 4, 5],
        ),
        (
            PRIMARY,
            "dapo-grpo",
            5..6,
            |cell| {
                cell.ending = CellEnding::Diverged;
                cell.evaluations.retain(|evaluation| evaluation.set == "dev");
            },
            format!("{dapo} `mini-aime-plus` was never"),
            &[1],
        ),
        (
            &mean_of_sets(),
            "dapo-grpo",
            0..1,
            |cell| cell.evaluations.retain(|evaluation| evaluation.set != "mini-aime"),
            "ladder/grpo seed 1: `mini-aime` was never".to_owned(),
            &[],
        ),
        (
            &rollouts,
            "dapo-grpo-rollouts",
            0..0,
            |_| (),
            format!("{dapo} `mini-aime` was not evaluated between"),
            &[],
        ),
    ];
    for (families, id, range, edit, reason, without_score) in cases {
        let (grids, mut cells) = two_arms(0.4, 0.6, 0.01);
        change(&mut cells[range], edit);
        let analysis = analysed((grids, cells), families);
        let comparison = analysis.comparison("primary", id).unwrap();
        assert_eq!(comparison.word, Word::NotCompared, "{comparison:?}");
        let why = words::why(&comparison.why);
        assert!(why.starts_with(&reason), "{why}, not {reason}");
        let summary = &analysis.grids[0].arms[5];
        assert_eq!(summary.without_score, without_score);
        assert_eq!(summary.seeds.len(), 5 - without_score.len());
    }
}

#[test]
fn failed_cells_are_listed_by_name_and_diverged_ones_count_with_their_last_evaluation() {
    let (grids, mut cells) = two_arms(0.4, 0.6, 0.01);
    for (cell, ending) in cells.iter_mut().zip([CellEnding::Failed, CellEnding::Diverged]) {
        let early = Shape { steps: 12, ending, ..Shape::ending_at(0.4) };
        *cell = study_fixture::cell(arm(&grids, "ladder/grpo"), cell.seed, &early);
    }
    let study = study((grids, cells), PRIMARY);
    let summary = &analysis::analyse(&study).grids[0].arms[0];
    assert_eq!((summary.failed, summary.diverged, summary.seeds.len()), (1, 1, 4));
    assert_eq!(summary.missing_seeds, [1]);
    assert!((summary.seeds[0].avg_at_k - 0.25).abs() < 1e-2, "10 of 40 steps from 0.2 to 0.4");
    let failed: Vec<_> = study.excluded.iter().filter(|cell| cell.failed).collect();
    // The same cell stands in the ladder and in add-one.
    let arms: Vec<_> = failed.iter().map(|cell| cell.arm.as_deref().unwrap()).collect();
    assert_eq!(arms, ["add-one/grpo", "ladder/grpo"]);
    assert!(failed[0].reason.starts_with("the run failed"), "{failed:?}");
}

#[test]
fn cells_that_do_not_belong_are_named_and_never_mixed_in() {
    let (grids, mut cells) = two_arms(0.4, 0.6, 0.01);
    change(&mut cells[..1], |cell| cell.harness = "0.0.9".to_owned());
    change(&mut cells[1..2], |cell| {
        cell.inputs.insert("base/tokenizer.json".to_owned(), "another".to_owned());
    });
    change(&mut cells[2..3], |cell| {
        cell.problems.get_mut("dev").unwrap().sha256 = "other problems".to_owned();
    });
    let of_seed = |seed| study_fixture::cell(arm(&grids, "ladder/grpo"), seed, &Shape::default());
    cells.extend([101, 7, 3].map(of_seed));
    change(cells.last_mut(), |stranger| stranger.experiment.optimizer.learning_rate *= 3.0);
    let study = study((grids, cells), PRIMARY);
    let seeds: Vec<u64> = study.cells_of("ladder/grpo").iter().map(|cell| cell.seed).collect();
    assert_eq!(seeds, [4, 5]);
    let of_ladder = study.excluded.iter().filter(|it| it.arm.as_deref() != Some("add-one/grpo"));
    let reasons: Vec<&str> = of_ladder.map(|cell| cell.reason.as_str()).collect();
    for expected in [
        "its `harness` is 0.0.9, that of most cells of the grid 0.1.0",
        "its `base/tokenizer.json` is another",
        "its `problems of dev` is other proble",
        "seed 101 is a tuning seed",
        "seed 7 is not one of the study's: [1, 2, 3, 4, 5]",
        "its arm `grpo` is in no grid of the study",
    ] {
        let is_there = reasons.iter().any(|reason| reason.starts_with(expected));
        assert!(is_there, "{expected}: {reasons:#?}");
    }
}

#[test]
fn seeds_may_have_a_base_policy_each_where_the_experiment_says_so() {
    let (mut grids, mut cells) = two_arms(0.5, 0.6, 0.01);
    change(&mut cells, |cell| {
        let own = files::sha256(format!("base of seed {}", cell.seed).as_bytes());
        cell.inputs.insert("base/model.safetensors".to_string(), own);
    });
    let counted = |grids: &[Grid]| {
        let study = study((grids.to_vec(), cells.clone()), PRIMARY);
        (study.cells_of("ladder/grpo").len(), study.bases())
    };
    assert_eq!(counted(&grids), (1, Remark::SharedBase));
    for arm in grids.iter_mut().flat_map(|grid| &mut grid.arms) {
        arm.experiment.inputs.model = "bases/base-{seed}".into();
    }
    assert_eq!(counted(&grids), (5, Remark::BaseOfSeed));
    let mut experiment = arm(&grids, "ladder/grpo").experiment.clone();
    experiment.execution.seed = 7;
    let of_seed = experiment.clone().of_its_seed();
    assert_eq!(of_seed.inputs.model, PathBuf::from("bases/base-7"));
    assert_eq!(of_seed.arm_sha256(), experiment.arm_sha256());
    // A name for the kind of base policy is another arm.
    experiment.inputs.base = Some("large".to_string());
    assert_ne!(of_seed.arm_sha256(), experiment.arm_sha256());
}
