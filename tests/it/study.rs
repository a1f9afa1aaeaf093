//! Studies of made-up cells: which cells count, and what the comparisons say of known truths.

use crate::engines::rows;
use crate::study_fixture::{self, Shape};
use dapo::base::files;
use dapo::experiment::Grid;
use dapo::report;
use dapo::report::words;
use dapo::statistics::Mean;
use dapo::study::collection::{self, Study};
use dapo::study::comparisons::{self, Comparison, RunValue};
use dapo::study::sensitivity::{Change, SensitivityRow};
use dapo::study::{
    Absence, At, Cell, CellEnding, Clock, Declaration, Metric, NoValue, Remark, Series, Statistic,
    Why, Word, analysis, curves, declaration, problems,
};
use dapo::training::run::inputs;
use serde::Deserialize;
use std::path::PathBuf;

const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// A declaration with one family on the ladder's ends.
fn declared(text: &str) -> Declaration {
    let whole = format!("{}{text}", include_str!("study/declaration.toml"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study.toml");
    files::write_atomic(&path, whole.as_bytes()).unwrap();
    declaration::load(&path).unwrap()
}

const PRIMARY: &str = include_str!("study/primary.toml");

/// Cells of an arm with the given shape, the seeds `width` apart in score.
fn cells(grids: &[Grid], arm: &str, shape: &Shape, width: f64) -> Vec<Cell> {
    let arm = study_fixture::arm(grids, arm);
    let each = |(index, seed): (usize, &u64)| {
        let mut shape = shape.clone();
        shape.score.1 += study_fixture::spread(index, SEEDS.len(), width);
        study_fixture::cell(arm, *seed, &shape)
    };
    SEEDS.iter().enumerate().map(each).collect()
}

fn two_arms(grpo: f64, dapo: f64, width: f64) -> (Vec<Grid>, Vec<Cell>) {
    let grids = study_fixture::grids(&SEEDS);
    let mut all = cells(&grids, "ladder/grpo", &Shape::ending_at(grpo), width);
    let rich = Shape { rollouts_per_step: 512, ..Shape::ending_at(dapo) };
    all.extend(cells(&grids, "ladder/dynamic-sampling", &rich, width));
    (grids, all)
}

/// Made-up grids and cells as a study whose declaration has the primary family.
fn declared_study((grids, cells): (Vec<Grid>, Vec<Cell>)) -> Study {
    Study::new(grids, cells, Some(declared(PRIMARY)))
}

fn analysed((grids, cells): (Vec<Grid>, Vec<Cell>), families: &str) -> analysis::Analysis {
    analysis::analyse(&Study::new(grids, cells, Some(declared(families))))
}

fn compared(study: (Vec<Grid>, Vec<Cell>), families: &str, id: &str) -> Comparison {
    analysed(study, families).comparison("primary", id).unwrap().clone()
}

#[test]
fn a_known_gain_improves_and_a_known_loss_hurts() {
    let word = |grpo, dapo| {
        let comparison = compared(two_arms(grpo, dapo, 0.01), PRIMARY, "dapo-grpo");
        let result = comparison.result.clone().unwrap();
        assert!((result.difference - (dapo - grpo)).abs() < 1e-3, "{result:?}");
        // C(10, 5) splits, two of them as extreme, times three comparisons.
        assert!((result.p - 2.0 / 252.0).abs() < 1e-12);
        assert!(result.adjusted_p <= 3.0 * result.p + 1e-12);
        assert!(result.minimum_detectable_effect.unwrap() > 0.03);
        comparison.word
    };
    assert_eq!(word(0.4, 0.6), Word::Improves);
    assert_eq!(word(0.6, 0.4), Word::Hurts);
}

#[test]
fn no_effect_shown_and_equivalent_are_different_words() {
    let comparison = |width| compared(two_arms(0.5, 0.501, width), PRIMARY, "dapo-grpo");
    assert_eq!(comparison(0.002).word, Word::Equivalent);
    let wide = comparison(0.05);
    assert_eq!(wide.word, Word::Inconclusive);
    assert!(words::why(&wide.why).contains("no effect shown"), "{:?}", wide.why);
}

#[test]
fn at_equal_generated_rollouts_the_expensive_arm_is_read_earlier() {
    let analysis = analysed(two_arms(0.5, 0.6, 0.01), PRIMARY);
    let comparison = analysis.comparison("primary", "dapo-grpo-rollouts").unwrap();
    // 40 steps of 256 rollouts; the other arm generates twice as many a step.
    assert_eq!(comparison.budget, Some(10_240));
    let (dapo, grpo) = comparison.means();
    assert!((dapo.unwrap() - 0.4).abs() < 0.01, "halfway from 0.2 to 0.6: {dapo:?}");
    assert!((grpo.unwrap() - 0.5).abs() < 0.01, "{grpo:?}");
    assert_eq!(comparison.word, Word::Hurts);
    let summary = &analysis.grids[0].arms[5];
    let equal = summary.at_equal_rollouts.as_ref().unwrap();
    assert_eq!((equal.budget, equal.set.as_str()), (10_240, "mini-aime-plus"));
}

#[test]
fn at_equal_generated_tokens_the_arm_with_long_responses_is_read_earlier() {
    let (grids, mut cells) = two_arms(0.5, 0.6, 0.01);
    let family = PRIMARY.replace("equal-rollouts", "equal-tokens");
    let dapo_arm = study_fixture::arm(&grids, "ladder/dynamic-sampling").arm_sha256.clone();
    let compared =
        |cells: Vec<Cell>| self::compared((grids.clone(), cells), &family, "dapo-grpo-rollouts");
    let unknown = compared(cells.clone());
    assert_eq!(unknown.word, Word::NotCompared, "{unknown:?}");
    for cell in &mut cells {
        let tokens = if cell.arm_sha256 == dapo_arm { 8000.0 } else { 2000.0 };
        let each = vec![Some(tokens); cell.counters.len()];
        cell.metrics.insert("rollout/generated_tokens".to_string(), each);
    }
    let comparison = compared(cells.clone());
    assert_eq!(comparison.budget, Some(80_000));
    let (dapo, grpo) = comparison.means();
    assert!((dapo.unwrap() - 0.3).abs() < 0.01, "a quarter of the way from 0.2 to 0.6: {dapo:?}");
    assert!((grpo.unwrap() - 0.5).abs() < 0.01, "{grpo:?}");
    assert!(comparison.declared.metric.words().ends_with("at equal generated tokens"));
    // Tokens that one arm did not record, in one step or at all, do not read as none.
    let dapo = cells.iter_mut().filter(|cell| cell.arm_sha256 == dapo_arm);
    for cell in dapo {
        cell.metrics.get_mut("rollout/generated_tokens").unwrap()[3] = None;
    }
    let gap = compared(cells.clone());
    assert_eq!(gap.word, Word::NotCompared, "{gap:?}");
    assert!(words::why(&gap.why).contains("does not say the generated tokens"), "{:?}", gap.why);
    for cell in cells.iter_mut().filter(|cell| cell.arm_sha256 == dapo_arm) {
        cell.metrics.remove("rollout/generated_tokens");
    }
    assert_eq!(compared(cells).word, Word::NotCompared);
}

/// Eight blocks whose scores differ by up to half, and two families: the second counts after the first.
const BLOCKS: &str = include_str!("study/blocks.toml");

#[test]
fn paired_comparisons_are_of_differences_within_blocks_and_pools_of_their_arms_means() {
    const EIGHT: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
    let grids = study_fixture::grids(&EIGHT);
    let score = |id: &str, seed: u64, dapo: f64| match id {
        "ladder/grpo" => 0.3 + 0.05 * seed as f64,
        "ladder/token-level-loss" => 0.34 + 0.05 * seed as f64,
        _ => 0.3 + dapo + 0.05 * seed as f64 + if seed.is_multiple_of(2) { 0.02 } else { -0.02 },
    };
    let arms = [
        "ladder/grpo",
        "ladder/token-level-loss",
        "ladder/dynamic-sampling",
        "add-one/dynamic-sampling",
    ];
    let cells = |dapo: f64| -> Vec<Cell> {
        let runs = arms.iter().flat_map(|id| EIGHT.map(|seed| (*id, seed)));
        let cell = |(id, seed)| {
            let shape = Shape::ending_at(score(id, seed, dapo));
            study_fixture::cell(study_fixture::arm(&grids, id), seed, &shape)
        };
        runs.map(cell).collect()
    };
    let paired = declared(&format!("paired = true\n{BLOCKS}"));
    let paired = Declaration { seeds: EIGHT.to_vec(), ..paired };
    let analysed = |declaration: &Declaration, dapo| {
        analysis::analyse(&Study::new(grids.clone(), cells(dapo), Some(declaration.clone())))
    };
    let found = analysed(&paired, 0.1);
    let primary = found.comparison("primary", "dapo-grpo").unwrap();
    assert_eq!(primary.word, Word::Improves, "{primary:?}");
    let result = primary.result.as_ref().unwrap();
    // All eight differences are positive: 2 of 2⁸ flips are as extreme.
    assert_eq!((result.p, result.splits, result.exact), (2.0 / 256.0, 256, true));
    // Scores rise on a line from 0.2: the mean of the evaluations after half of the updates.
    let later = [0.625, 0.75, 0.875, 1.0];
    let expected = 0.1 * later.iter().sum::<f64>() / 4.0;
    assert!((result.difference - expected).abs() < 5e-3, "{} {expected}", result.difference);
    let main = found.comparison("main-effects", "dynamic-sampling").unwrap();
    assert_eq!((main.word, main.arm.len(), main.reference.len()), (Word::Improves, 16, 16));
    assert!((main.result.as_ref().unwrap().difference - 0.08).abs() < 5e-3, "{main:?}");
    // The report says what the unit is, and names the pools.
    let folder = tempfile::tempdir().unwrap();
    study_fixture::write(folder.path(), &grids, &cells(0.1));
    files::write_json(&folder.path().join("study.json"), &paired).unwrap();
    let (_, pages) = report::study::write(folder.path(), None, None).unwrap();
    let page = files::read_text(&pages[2]).unwrap() + &files::read_text(&pages[3]).unwrap();
    let unit = ["sign-flip test over blocks", "is the block of runs"];
    for text in [&unit[..], &["with Dynamic Sampling against without"]].concat() {
        assert!(page.contains(text), "{text}: {page}");
    }
    // What the first family does not show closes the second.
    let found = analysed(&paired, 0.0);
    assert_eq!(found.comparison("primary", "dapo-grpo").unwrap().word, Word::Equivalent);
    let closed = found.comparison("main-effects", "dynamic-sampling").unwrap();
    assert!(words::why(&closed.why).starts_with("it counts only after"), "{:?}", closed.why);
    // Without blocks the same difference drowns in the spread between them.
    let alone = format!("[[families]]{}", BLOCKS.split("[[families]]").nth(1).unwrap());
    let unpaired = Declaration { seeds: EIGHT.to_vec(), ..declared(&alone) };
    let found = analysed(&unpaired, 0.1);
    assert_eq!(found.comparison("primary", "dapo-grpo").unwrap().word, Word::Inconclusive);
}

#[test]
fn a_set_that_was_not_evaluated_on_the_way_has_no_score_at_equal_rollouts() {
    let equal = |set: &str| format!("set = {set:?}, at = \"equal-rollouts\"");
    let family = PRIMARY.replace(&equal("dev"), &equal("mini-aime"));
    let comparison = compared(two_arms(0.5, 0.6, 0.01), &family, "dapo-grpo-rollouts");
    assert_eq!(comparison.word, Word::NotCompared);
    let why = words::why(&comparison.why);
    assert!(why.contains("was not evaluated between"), "{why}");
}

#[test]
fn a_mean_of_sets_weighs_each_set_alike_and_is_a_measure_of_its_own() {
    let one = "source = \"evaluation\", set = \"mini-aime-plus\"";
    let mean =
        |sets: &str| PRIMARY.replace(one, &format!("source = \"mean-of-sets\", sets = {sets}"));
    let (grids, mut cells) = two_arms(0.4, 0.6, 0.01);
    let comparison = compared(
        (grids.clone(), cells.clone()),
        &mean("[\"mini-aime\", \"mini-aime-plus\"]"),
        "dapo-grpo",
    );
    assert_eq!(comparison.word, Word::Improves);
    let score = |cell: &Cell, set: &str| cell.last_evaluation(set).unwrap().avg_at_k();
    for (run, cell) in comparison.reference.iter().zip(&cells) {
        let sets = ["mini-aime", "mini-aime-plus"].map(|set| score(cell, set));
        assert_eq!(run.value, (sets[0] + sets[1]) / 2.0);
    }
    assert_eq!(
        comparison.declared.metric.words(),
        "avg@k, mean of the sets mini-aime, mini-aime-plus, last evaluation"
    );
    // A run without one of the sets has no value, and does not leave the arm in silence.
    cells[0].evaluations.retain(|evaluation| evaluation.set != "mini-aime");
    cells[0] = cells[0].clone().sealed();
    let comparison =
        compared((grids, cells), &mean("[\"mini-aime\", \"mini-aime-plus\"]"), "dapo-grpo");
    assert_eq!(comparison.word, Word::NotCompared);
    let why = words::why(&comparison.why);
    assert!(why.contains("mini-aime"), "{why}");
    for sets in [&[][..], &["dev"], &["dev", "dev"], &["dev", ""]] {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        let metric = Metric::MeanOfSets { sets, at: At::Last, statistic: Statistic::AvgAtK };
        assert!(
            metric.problem().unwrap().starts_with("`sets` must name two or more sets, each once")
        );
    }
}

#[test]
fn runs_that_never_reach_the_level_are_censored_and_not_dropped() {
    let analysis = analysed(two_arms(0.3, 0.8, 0.01), PRIMARY);
    let comparison = analysis.comparison("primary", "time").unwrap();
    assert!(comparison.reference.iter().all(|run| run.censored && run.value == 160.0));
    assert!(comparison.arm.iter().all(|run| !run.censored && run.value < 100.0));
    assert_eq!(comparison.word, Word::Improves, "{comparison:?}");
    assert_eq!(comparison.shown().unwrap().words(), "lower");
    let times = &analysis.grids[0].times;
    assert_eq!(times[0].updates.median, None);
    assert_eq!(times[5].updates.reached, 5);
}

#[test]
fn failed_cells_are_listed_by_name_and_diverged_ones_count_with_their_last_evaluation() {
    let (grids, mut cells) = two_arms(0.4, 0.6, 0.01);
    let arm = study_fixture::arm(&grids, "ladder/grpo");
    let early = |ending| Shape { steps: 12, ending, ..Shape::ending_at(0.4) };
    cells[0] = study_fixture::cell(arm, 1, &early(CellEnding::Failed));
    cells[1] = study_fixture::cell(arm, 2, &early(CellEnding::Diverged));
    let study = declared_study((grids, cells));
    let analysis = analysis::analyse(&study);
    let summary = &analysis.grids[0].arms[0];
    assert_eq!((summary.failed, summary.diverged, summary.seeds.len()), (1, 1, 4));
    assert_eq!(summary.missing_seeds, [1]);
    assert!((summary.seeds[0].avg_at_k - 0.25).abs() < 1e-2, "10 of 40 steps from 0.2 to 0.4");
    let failed: Vec<_> = study.excluded.iter().filter(|it| it.failed).collect();
    // The same cell stands in the ladder and in add-one.
    let arms: Vec<_> = failed.iter().map(|it| it.arm.as_deref().unwrap()).collect();
    assert_eq!(arms, ["add-one/grpo", "ladder/grpo"]);
    assert!(failed[0].reason.starts_with("the run failed"), "{failed:?}");
}

#[test]
fn the_base_policys_score_is_none_of_a_run_that_diverged_at_once() {
    let (grids, mut cells) = two_arms(0.4, 0.6, 0.01);
    for cell in &mut cells[5..] {
        cell.ending = CellEnding::Diverged;
        cell.evaluations.retain(|evaluation| evaluation.counters.updates == 0);
    }
    let cells: Vec<Cell> = cells.into_iter().map(Cell::sealed).collect();
    let analysis = analysed((grids, cells), PRIMARY);
    let comparison = analysis.comparison("primary", "dapo-grpo").unwrap();
    assert_eq!(comparison.word, Word::NotCompared, "{comparison:?}");
    let why = words::why(&comparison.why);
    assert!(why.contains("it diverged before `mini-aime-plus` was evaluated"), "{why}");
    assert_eq!(analysis.grids[0].arms[5].without_score.len(), 5);
}

#[test]
fn a_block_counts_when_each_arm_of_a_pool_has_a_run() {
    let comparison = |arm: &[(u64, f64)], reference: &[(u64, f64)], arms_of_sides| {
        let runs = |values: &[(u64, f64)]| -> Vec<RunValue> {
            let run = |(seed, value): &(u64, f64)| RunValue {
                seed: *seed,
                value: *value,
                censored: false,
            };
            values.iter().map(run).collect()
        };
        let any = compared(two_arms(0.4, 0.6, 0.01), PRIMARY, "dapo-grpo");
        let (arm, reference) = (runs(arm), runs(reference));
        Comparison { arm, reference, arms_of_sides, paired: true, ..any }
    };
    // Of a pool of two, block 1 has one arm alone; block 2 lacks a reference.
    let pooled = comparison(
        &[(1, 9.0), (2, 1.0), (2, 3.0), (3, 4.0), (3, 6.0)],
        &[(1, 0.0), (3, 2.0)],
        [2, 1],
    );
    assert_eq!(comparisons::block_differences(&pooled), [(3, 3.0)]);
    assert_eq!(pooled.means(), (Some(5.0), Some(2.0)));
}

#[test]
fn a_run_that_counts_and_has_no_score_is_never_left_out_in_silence() {
    let (grids, mut cells) = two_arms(0.4, 0.6, 0.01);
    cells[5].ending = CellEnding::Diverged;
    cells[5].evaluations.retain(|evaluation| evaluation.set == "dev");
    cells[5] = cells[5].clone().sealed();
    let analysis = analysed((grids, cells), PRIMARY);
    let comparison = analysis.comparison("primary", "dapo-grpo").unwrap();
    assert_eq!(comparison.word, Word::NotCompared);
    let why = words::why(&comparison.why);
    let never = "ladder/dynamic-sampling seed 1: `mini-aime-plus` was never";
    assert!(why.starts_with(never), "{why}");
    let summary = &analysis.grids[0].arms[5];
    assert_eq!((summary.without_score.as_slice(), summary.seeds.len()), (&[1][..], 4));
}

#[test]
fn cells_that_do_not_belong_are_named_and_never_mixed_in() {
    let (grids, mut cells) = two_arms(0.4, 0.6, 0.01);
    let change = |cell: &mut Cell, change: fn(&mut Cell)| {
        change(cell);
        *cell = cell.clone().sealed();
    };
    change(&mut cells[0], |it| it.harness = "0.0.9".to_owned());
    change(&mut cells[1], |it| {
        it.inputs.insert("base/tokenizer.json".to_owned(), "another".to_owned());
    });
    change(&mut cells[2], |it| {
        it.problems.get_mut("dev").unwrap().sha256 = "other problems".to_owned();
    });
    let arm = study_fixture::arm(&grids, "ladder/grpo");
    cells.push(study_fixture::cell(arm, 101, &Shape::default()));
    cells.push(study_fixture::cell(arm, 7, &Shape::default()));
    let mut stranger = study_fixture::cell(arm, 3, &Shape::default());
    stranger.experiment.optimizer.learning_rate *= 3.0;
    stranger.arm_sha256 = stranger.experiment.arm_sha256();
    cells.push(stranger.sealed());
    let study = declared_study((grids, cells));
    let seeds: Vec<u64> = study.cells_of("ladder/grpo").iter().map(|cell| cell.seed).collect();
    assert_eq!(seeds, [4, 5]);
    let reasons: Vec<&str> = study
        .excluded
        .iter()
        .filter(|it| it.arm.as_deref() != Some("add-one/grpo"))
        .map(|it| it.reason.as_str())
        .collect();
    for expected in [
        "its `harness` is 0.0.9, that of most cells of the grid 0.1.0",
        "its `base/tokenizer.json` is another",
        "its `problems of dev` is other proble",
        "seed 101 is a tuning seed",
        "seed 7 is not one of the study's: [1, 2, 3, 4, 5]",
        "its arm `grpo` is in no grid of the study",
    ] {
        assert!(reasons.iter().any(|it| it.starts_with(expected)), "{expected}: {reasons:#?}");
    }
}

#[test]
fn seeds_may_have_a_base_policy_each_where_the_experiment_says_so() {
    let (mut grids, cells) = two_arms(0.5, 0.6, 0.01);
    let cells: Vec<Cell> = cells
        .into_iter()
        .map(|mut cell| {
            let own = files::sha256(format!("base of seed {}", cell.seed).as_bytes());
            cell.inputs.insert("base/model.safetensors".to_string(), own);
            cell.run_key = inputs::run_key(&cell.experiment, &cell.inputs);
            cell.sealed()
        })
        .collect();
    let counted = |grids: &[Grid]| {
        let study = declared_study((grids.to_vec(), cells.clone()));
        (study.cells_of("ladder/grpo").len(), study.bases())
    };
    assert_eq!(counted(&grids), (1, Remark::SharedBase));
    for arm in grids.iter_mut().flat_map(|grid| &mut grid.arms) {
        arm.experiment.inputs.model = "bases/base-{seed}".into();
    }
    assert_eq!(counted(&grids), (5, Remark::BaseOfSeed));
    let mut experiment = study_fixture::arm(&grids, "ladder/grpo").experiment.clone();
    experiment.execution.seed = 7;
    let of_seed = experiment.clone().of_its_seed();
    assert_eq!(of_seed.inputs.model, PathBuf::from("bases/base-7"));
    assert_eq!(of_seed.arm_sha256(), experiment.arm_sha256());
    // A name for the kind of base policy is another arm.
    experiment.inputs.base = Some("large".to_string());
    assert_ne!(of_seed.arm_sha256(), experiment.arm_sha256());
}

#[test]
fn a_folder_says_the_same_as_the_values_and_names_what_it_cannot_read() {
    let (grids, cells) = two_arms(0.4, 0.6, 0.01);
    let folder = tempfile::tempdir().unwrap();
    study_fixture::write(folder.path(), &grids, &cells);
    let declaration = declared(PRIMARY);
    files::write_json(&folder.path().join("study.json"), &declaration).unwrap();
    let read = collection::load(folder.path(), None).unwrap();
    assert_eq!(read.declaration, declaration);
    let made = Study::new(grids, cells.into_iter().rev().collect(), Some(declaration));
    assert_eq!(analysis::analyse(&read), analysis::analyse(&made));

    let name = made.cells[0].file_name();
    let path = folder.path().join("cells").join(&name);
    let text = files::read_text(&path).unwrap().replace("\"seed\":1", "\"seed\":2");
    files::write_atomic(&path, text.as_bytes()).unwrap();
    let read = collection::load(folder.path(), None).unwrap();
    let reason = &read.excluded.iter().find(|it| it.cell == "unreadable").unwrap().reason;
    assert!(reason.contains(&name) && reason.contains("edited or damaged"), "{reason}");

    let empty = tempfile::tempdir().unwrap();
    let error = collection::load(empty.path(), None).unwrap_err().to_string();
    assert!(error.ends_with("is no study: it has no folder `grids`"), "{error}");
}

#[test]
fn an_undeclared_study_is_analysed_row_by_row_and_says_so() {
    let (grids, cells) = two_arms(0.4, 0.6, 0.01);
    let study = Study::new(grids, cells, None);
    let analysis = analysis::analyse(&study);
    assert!(analysis.remarks.contains(&Remark::Unregistered));
    let ladder = &analysis.grids[0];
    assert_eq!(ladder.name, "ladder");
    assert!(ladder.differences.iter().all(|it| !it.registered));
    assert!(ladder.differences.iter().all(|it| it.word == Word::NotCompared));
    let why = &ladder.differences[0].why;
    assert!(matches!(why, Why::Absent { absence: Absence::NoRunThatCounts { .. } }), "{why:?}");
}

#[test]
fn one_run_has_a_mean_and_no_interval() {
    let mean = Mean::of(&[0.5], 0.95).unwrap();
    assert_eq!((mean.mean, mean.interval, mean.standard_deviation), (0.5, None, None));
    assert_eq!(Mean::of(&[], 0.95), None);
    let five = Mean::of(&[0.4, 0.4, 0.5, 0.6, 0.6], 0.95).unwrap();
    // t(0.975, 4) = 2.776445, s = 0.1.
    let interval = five.interval.unwrap();
    assert!((interval.high - 0.5 - 2.776_445 * 0.1 / 5f64.sqrt()).abs() < 1e-6);
    // Fewer than five runs have no interval that covers what it says (golden/stats).
    assert_eq!(Mean::of(&[0.4, 0.5, 0.6], 0.95).unwrap().interval, None);
}

#[test]
fn curves_have_every_seed_and_a_band_on_both_clocks() {
    let study = declared_study(two_arms(0.4, 0.6, 0.01));
    let series = Series::Evaluation { set: "dev".to_owned(), statistic: Statistic::AvgAtK };
    let updates = curves::curve(&study, "ladder/dynamic-sampling", &series, Clock::Updates);
    assert_eq!((updates.seeds.len(), updates.band.len()), (5, 9));
    let last = updates.band.last().unwrap();
    assert_eq!((last.x, last.runs), (160.0, 5));
    assert!((last.mean - 0.6).abs() < 0.01 && last.lowest < last.mean && last.mean < last.highest);
    let metric = Series::Metric { name: "policy/entropy".to_owned() };
    let rollouts = curves::curve(&study, "ladder/grpo", &metric, Clock::GeneratedRollouts);
    let (first, last) = (rollouts.band.first().unwrap(), rollouts.band.last().unwrap());
    assert_eq!((first.x, last.x), (256.0, 10_240.0));
    assert!((last.mean - 0.1).abs() < 1e-9);
    assert_eq!(curves::interpolated(&[(0.0, 0.0), (2.0, 4.0)], 1.0), Some(2.0));
    assert_eq!(curves::interpolated(&[(0.0, 0.0), (2.0, 4.0)], 2.1), None);
}

/// A study whose records all have seconds is compared at equal seconds, too; no declaration can ask for it.
#[test]
fn seconds_are_a_clock_of_what_is_looked_at_afterwards() {
    let (grids, cells) = two_arms(0.4, 0.6, 0.01);
    let rows = |cells: Vec<Cell>| {
        let study = declared_study((grids.clone(), cells));
        analysis::analyse(&study).sensitivity.into_iter().flat_map(|it| it.rows)
    };
    let is_of_seconds =
        |row: &SensitivityRow| row.change == Change::Clock { clock: Clock::Seconds };
    assert!(!rows(cells.clone()).any(|row| is_of_seconds(&row)));
    let timed = cells.into_iter().map(|cell| {
        let step_seconds = vec![1.5; cell.counters.len()];
        Cell { step_seconds, ..cell }.sealed()
    });
    let row = rows(timed.collect()).find(is_of_seconds).unwrap();
    assert!(row.runs == 5 && row.difference.unwrap() > 0.0, "{row:?}");
    let (set, clock) = ("dev".to_owned(), Clock::Seconds);
    let statistic = Statistic::AvgAtK;
    for metric in [
        Metric::EvaluationMean { set: set.clone(), statistic, clock, from_share: 0.5 },
        Metric::TimeToLevel { set, level: 0.5, clock },
    ] {
        assert!(metric.problem().unwrap().contains("nobody can check"));
    }
}

fn sensitivity_row(study: (Vec<Grid>, Vec<Cell>), families: &str, of: &Change) -> SensitivityRow {
    let first = analysed(study, families).sensitivity.into_iter().next().unwrap();
    first.rows.into_iter().find(|row| row.change == *of).unwrap()
}

#[test]
fn a_set_that_was_evaluated_at_both_ends_has_no_row_at_an_equal_clock() {
    let last = |set: &str| format!("set = {set:?}, at = \"last\"");
    let family = PRIMARY.replace(&last("mini-aime-plus"), &last("mini-aime"));
    let row = |clock| sensitivity_row(two_arms(0.4, 0.6, 0.01), &family, &Change::Clock { clock });
    // The run that generates twice as many rollouts is evaluated beyond what the other one has.
    let rollouts = row(Clock::GeneratedRollouts);
    assert_eq!((rollouts.difference, rollouts.p, rollouts.runs), (None, None, 5));
    let why = rollouts.without_value;
    assert!(matches!(why, Some(NoValue::OnlyBaseEvaluatedWithin { .. })), "{why:?}");
    assert!(row(Clock::Updates).difference.is_some());
}

#[test]
fn a_window_without_an_evaluation_is_no_lack_of_runs() {
    let last = |set: &str| format!("set = {set:?}, at = \"last\"");
    let family = PRIMARY.replace(&last("mini-aime-plus"), &last("dev"));
    let grids = study_fixture::grids(&SEEDS);
    let mut all = cells(&grids, "ladder/grpo", &Shape::ending_at(0.4), 0.01);
    for cell in &mut all {
        cell.evaluations.retain(|it| [0, 5, 40].contains(&it.counters.rollout_steps));
    }
    let shorter = Shape { steps: 30, ..Shape::ending_at(0.6) };
    all.extend(cells(&grids, "ladder/dynamic-sampling", &shorter, 0.01));
    let all: Vec<Cell> = all.into_iter().map(Cell::sealed).collect();
    let change = Change::From { share: 0.5, clock: Clock::Updates };
    let row = sensitivity_row((grids, all), &family, &change);
    assert_eq!((row.difference, row.runs), (None, 5));
    let why = row.without_value;
    assert!(matches!(why, Some(NoValue::NotEvaluatedBetween { .. })), "{why:?}");
}

#[test]
fn times_to_a_level_are_read_as_medians_and_arrivals() {
    let (grids, cells) = two_arms(0.35, 0.6, 0.01);
    let folder = tempfile::tempdir().unwrap();
    study_fixture::write(folder.path(), &grids, &cells);
    files::write_json(&folder.path().join("study.json"), &declared(PRIMARY)).unwrap();
    let (_, pages) = report::study::write(folder.path(), None, None).unwrap();
    let page = files::read_text(&pages[2]).unwrap() + &files::read_text(&pages[3]).unwrap();
    let row = "and never; reached by 5 of 5 and 0 of 5 runs";
    assert!(page.contains(row), "{page}");
}

/// Runs of eight blocks, with the declaration that compares them and pools their arms.
fn paired_study(score: &dyn Fn(&str, u64) -> f64) -> Study {
    const EIGHT: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
    const ARMS: [&str; 4] = [
        "ladder/grpo",
        "ladder/token-level-loss",
        "ladder/dynamic-sampling",
        "add-one/dynamic-sampling",
    ];
    let grids = study_fixture::grids(&EIGHT);
    let runs = ARMS.iter().flat_map(|id| EIGHT.map(|seed| (*id, seed)));
    let cell = |(id, seed)| {
        let shape = Shape::ending_at(score(id, seed));
        study_fixture::cell(study_fixture::arm(&grids, id), seed, &shape)
    };
    let cells = runs.map(cell).collect();
    let paired = declared(&format!("paired = true\n{BLOCKS}"));
    let paired = Declaration { seeds: EIGHT.to_vec(), ..paired };
    Study::new(grids, cells, Some(paired))
}

#[test]
fn the_interval_of_a_pools_curve_is_over_blocks() {
    let study = paired_study(&|id, seed| {
        0.3 + 0.05 * seed as f64 + if id.starts_with("add-one") { 0.1 } else { 0.0 }
    });
    let series = Series::Evaluation { set: "dev".to_owned(), statistic: Statistic::AvgAtK };
    let curve = |id| curves::curve(&study, id, &series, Clock::Updates);
    let (pool, arm) = (curve("pools/with"), curve("ladder/dynamic-sampling"));
    assert_eq!((pool.seeds.len(), arm.seeds.len()), (8, 8));
    let [pooled, single] = [&pool, &arm].map(|curve| *curve.band.last().unwrap());
    assert_eq!((pooled.runs, single.runs), (8, 8));
    assert!((pooled.mean - single.mean - 0.05).abs() < 5e-3, "{pooled:?} {single:?}");
    // Blocks spread as the arm does: averaging two arms of a block makes it no narrower.
    let [wide, narrow] = [pooled, single].map(|point| point.interval.unwrap());
    assert!((wide.high - wide.low) / (narrow.high - narrow.low) > 0.95, "{wide:?} {narrow:?}");
}

#[test]
fn nothing_detectable_is_estimated_from_identical_runs() {
    let study = paired_study(&|_, seed| 0.3 + 0.05 * seed as f64);
    let analysis = analysis::analyse(&study);
    let primary = analysis.comparison("primary", "dapo-grpo").unwrap().result.as_ref().unwrap();
    assert_eq!((primary.observed_sigma, primary.observed_detectable_effect), (Some(0.0), None));
    let spread = analysis.spread.as_ref().unwrap();
    assert!(spread.observed > 0.0);
    assert_eq!((spread.within_blocks, spread.observed_effect), (None, None));
}

/// Dynamic Sampling made fewer updates in the runs that learned fastest: a mean over the runs that reach 1,920 updates
/// would be of those that learned late.
#[test]
fn a_curve_is_over_all_runs_where_their_updates_differ() {
    let reports = crate::repository::root().join("reports/useful");
    let study = collection::load(&reports, None).unwrap();
    let series = Series::Evaluation { set: "dev".to_owned(), statistic: Statistic::AvgAtK };
    let curve = curves::curve(&study, "useful/dynamic", &series, Clock::Updates);
    assert!(curve.band.iter().all(|point| point.runs == 8));
    let last = curve.band.last().unwrap();
    assert!(last.x < 1_920.0 && (last.mean - 0.909).abs() < 0.001, "{last:?}");
    let same = curves::curve(&study, "useful/grpo", &series, Clock::Updates);
    assert_eq!((same.band.len(), same.band.last().unwrap().x), (13, 1_920.0));
}

#[test]
fn problems_that_changed_are_counted() {
    let study = declared_study(two_arms(0.4, 0.6, 0.0));
    let arms = ["ladder/grpo", "ladder/dynamic-sampling"];
    let matrix = problems::matrix(&study, &arms, "mini-aime-plus").unwrap();
    assert_eq!((matrix.arms.len(), matrix.arms[0].runs), (2, 5));
    assert_eq!(matrix.hardest_first.len(), 256);
    let change = problems::paired_change(&study, arms[1], arms[0], "mini-aime-plus").unwrap();
    assert!((change.mean - 0.2).abs() < 1e-3, "{}", change.mean);
    assert_eq!(change.better + change.worse + change.same, 256);
    assert!(change.better > change.worse);
    assert_eq!(problems::matrix(&study, &["ladder/clip-higher"], "dev"), None);
}

#[derive(Deserialize)]
struct Contradiction {
    from: String,
    to: String,
    says: String,
}

#[test]
fn declarations_that_contradict_themselves_are_refused_with_key_and_value() {
    let good = files::canonical_json(&declared(PRIMARY));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study.json");
    let rows = rows::<Contradiction>(include_str!("study/contradictions.toml"), "declarations");
    for Contradiction { from, to, says } in rows {
        assert!(good.contains(&from), "{from}: {good}");
        files::write_atomic(&path, good.replace(&from, &to).as_bytes()).unwrap();
        let error = declaration::load(&path).unwrap_err().to_string();
        assert!(error.contains(&says) && error.contains("study.json"), "{to}: {error}");
    }
}

#[test]
fn an_interaction_with_a_technique_below_its_dose_has_nothing_to_act_on() {
    let root = crate::repository::root().join("reports/study-2");
    let mut declared: serde_json::Value = files::read_json(&root.join("study.json")).unwrap();
    declared["least_doses"] = serde_json::json!({ "Clip-Higher": 0.99 });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study.json");
    files::write_atomic(&path, declared.to_string().as_bytes()).unwrap();
    let analysis = analysis::analyse(&collection::load(&root, Some(&path)).unwrap());
    for family in ["interactions-of-two", "interactions-of-more"] {
        let family = analysis.families.iter().find(|it| it.id == family).unwrap();
        for comparison in &family.comparisons {
            let is_of_clip = comparison.declared.id.contains("clip");
            let has_nothing = comparison.word == Word::NothingToActOn;
            assert_eq!(has_nothing, is_of_clip, "{}", comparison.declared.id);
        }
    }
}

#[test]
fn below_a_declared_dose_a_technique_had_nothing_to_act_on() {
    let root = crate::repository::root().join("reports/sums-1");
    let mut declared: serde_json::Value = files::read_json(&root.join("study.json")).unwrap();
    let load = |declared: &serde_json::Value| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("study.json");
        files::write_atomic(&path, declared.to_string().as_bytes()).unwrap();
        collection::load(&root, Some(&path))
    };
    // Clip-Higher lets 0.008 % of DAPO's tokens through there, Dynamic Sampling drops 5 % of its groups.
    declared["least_doses"] = serde_json::json!({ "Clip-Higher": 0.001, "Dynamic Sampling": 0.01 });
    let analysis = analysis::analyse(&load(&declared).unwrap());
    let clip = analysis.comparison("leave-one-out", "clip").unwrap();
    assert_eq!(clip.word, Word::NothingToActOn);
    let said = words::why(&clip.why);
    assert!(said.starts_with("Clip-Higher acted on 0.00"), "{said}");
    assert!(said.contains("%, below the declared 0.10 %"), "{said}");
    let dynamic = analysis.comparison("leave-one-out", "dynamic").unwrap();
    assert_eq!(dynamic.word, Word::Inconclusive);
    // DAPO and GRPO differ in more than one technique, and two of them have no least dose.
    assert_ne!(analysis.families[0].comparisons[0].word, Word::NothingToActOn);
    declared["least_doses"] = serde_json::json!({
        "Clip-Higher": 0.99,
        "Dynamic Sampling": 0.99,
        "Token-level loss": 0.99,
        "Soft Overlong Punishment": 0.99,
    });
    let analysis = analysis::analyse(&load(&declared).unwrap());
    let dapo = &analysis.families[0].comparisons[0];
    assert_eq!(dapo.word, Word::NothingToActOn, "{:?}", dapo.why);
    let said = words::why(&dapo.why);
    assert_eq!(said.matches("below the declared 99 %").count(), 4, "{said}");
    declared["least_doses"] = serde_json::json!({ "clip": 0.001 });
    let refused = load(&declared).unwrap_err().to_string();
    assert!(refused.contains("least_doses: \"clip\" is none of: Clip-Higher, "), "{refused}");
}
