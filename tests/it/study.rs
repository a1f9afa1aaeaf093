//! Studies of made-up cells: what comparisons and curves say of known truths.

use crate::engines::rows;
use crate::repository;
use crate::study_fixture::{self, BLOCKS, PRIMARY, Shape, analysed, compared, declared, two_arms};
use dapo::base::files;
use dapo::experiment::{Experiment, Grading, Grid, Verifier};
use dapo::report::page::Panel;
use dapo::report::study::figure;
use dapo::report::words;
use dapo::statistics::Mean;
use dapo::study::collection::{self, Study};
use dapo::study::comparisons::Comparison;
use dapo::study::curves::{self, Curve};
use dapo::study::gate::{self, FewRuns, Gate, GateVerdict, Undecided};
use dapo::study::sensitivity::{Change, SensitivityRow};
use dapo::study::{
    Absence, At, Cell, Clock, Metric, NoValue, Remark, Series, Statistic, Ties, Why, Word,
    analysis, declaration, problems,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::Path;

/// [`PRIMARY`] with the mean of two sets in place of one.
pub fn mean_of_sets() -> String {
    let mean = r#""mean-of-sets", sets = ["mini-aime", "mini-aime-plus"]"#;
    PRIMARY.replace(r#""evaluation", set = "mini-aime-plus""#, mean)
}

#[test]
fn a_known_gain_improves_and_a_known_loss_hurts() {
    for (grpo, dapo, word) in [(0.4, 0.6, Word::Improves), (0.6, 0.4, Word::Hurts)] {
        let comparison = compared(two_arms(grpo, dapo, 0.01), PRIMARY, "dapo-grpo");
        let result = comparison.result.unwrap();
        assert!((result.difference - (dapo - grpo)).abs() < 1e-3, "{result:?}");
        // C(10, 5) splits, two of them as extreme, times three comparisons.
        assert!((result.p - 2.0 / 252.0).abs() < 1e-12);
        assert!(result.adjusted_p <= 3.0 * result.p + 1e-12);
        assert!(result.minimum_detectable_effect.unwrap() > 0.03);
        assert_eq!(comparison.word, word);
    }
}

#[test]
fn no_effect_shown_and_equivalent_are_different_words() {
    let comparison = |width| compared(two_arms(0.5, 0.501, width), PRIMARY, "dapo-grpo");
    assert_eq!(comparison(0.002).word, Word::Equivalent);
    let wide = comparison(0.05);
    assert_eq!(wide.word, Word::Inconclusive);
    assert!(words::why(&wide.why).contains("no effect shown"), "{:?}", wide.why);
}

/// The means of DAPO and GRPO are these, to a hundredth.
#[track_caller]
fn assert_means(comparison: &Comparison, dapo: f64, grpo: f64) {
    let (arm, reference) = comparison.means();
    let distances = [arm.unwrap() - dapo, reference.unwrap() - grpo];
    assert!(distances.iter().all(|distance| distance.abs() < 0.01), "{arm:?} {reference:?}");
}

#[test]
fn at_equal_generated_rollouts_the_expensive_arm_is_read_earlier() {
    let analysis = analysed(two_arms(0.5, 0.6, 0.01), PRIMARY);
    let comparison = analysis.comparison("primary", "dapo-grpo-rollouts").unwrap();
    // 40 steps of 256 rollouts; the other arm generates twice as many a step: halfway from 0.2 to 0.6.
    assert_eq!((comparison.budget, comparison.word), (Some(10_240), Word::Hurts));
    assert_means(comparison, 0.4, 0.5);
    let equal = analysis.grids[0].arms[5].at_equal_rollouts.as_ref().unwrap();
    assert_eq!((equal.budget, equal.set.as_str()), (10_240, "mini-aime-plus"));
}

#[test]
fn at_equal_generated_tokens_the_arm_with_long_responses_is_read_earlier() {
    let family = PRIMARY.replace("equal-rollouts", "equal-tokens");
    let compared = |grpo: &[Option<f64>], dapo: &[Option<f64>]| {
        let (grids, mut cells) = two_arms(0.5, 0.6, 0.01);
        for (index, cell) in cells.iter_mut().enumerate() {
            let tokens = if index < 5 { grpo } else { dapo }.to_vec();
            if !tokens.is_empty() {
                cell.metrics.insert("rollout/generated_tokens".to_owned(), tokens);
            }
        }
        compared((grids, cells), &family, "dapo-grpo-rollouts")
    };
    let (few, many) = ([Some(2000.0); 40], [Some(8000.0); 40]);
    let comparison = compared(&few, &many);
    assert_eq!(comparison.budget, Some(80_000));
    // A quarter of the way from 0.2 to 0.6.
    assert_means(&comparison, 0.3, 0.5);
    assert!(comparison.declared.metric.words().ends_with("at equal generated tokens"));
    // Tokens that one arm did not record, in one step or at all, do not read as none.
    let mut gap = many;
    gap[3] = None;
    let unrecorded = "does not say the generated tokens";
    for (grpo, dapo, words) in [
        (&few[..], &gap[..], unrecorded),
        (&few, &[], unrecorded),
        (&[], &[], "have no common number of generated tokens"),
    ] {
        let comparison = compared(grpo, dapo);
        assert_eq!(comparison.word, Word::NotCompared, "{comparison:?}");
        let why = words::why(&comparison.why);
        assert!(why.contains(words), "{why}");
    }
}

#[test]
fn a_mean_of_sets_weighs_each_set_alike_and_is_a_measure_of_its_own() {
    let study = two_arms(0.4, 0.6, 0.01);
    let comparison = compared(study.clone(), &mean_of_sets(), "dapo-grpo");
    assert_eq!(comparison.word, Word::Improves);
    let score = |cell: &Cell, set: &str| cell.last_evaluation(set).unwrap().avg_at_k();
    for (run, cell) in comparison.reference.iter().zip(&study.1) {
        assert_eq!(run.value, (score(cell, "mini-aime") + score(cell, "mini-aime-plus")) / 2.0);
    }
    let words = "avg@k, mean of the sets mini-aime, mini-aime-plus, last evaluation";
    assert_eq!(comparison.declared.metric.words(), words);
    for sets in [&[][..], &["dev"], &["dev", "dev"], &["dev", ""]] {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        let metric = Metric::MeanOfSets { sets, at: At::Last, statistic: Statistic::AvgAtK };
        let problem = metric.check().unwrap_err();
        assert!(problem.starts_with("`sets` must name two or more sets, each once"), "{problem}");
    }
}

#[test]
fn runs_that_never_reach_the_level_are_censored_and_not_dropped() {
    let study = study_fixture::study(two_arms(0.3, 0.8, 0.01), PRIMARY);
    let analysis = analysis::analyse(&study);
    let comparison = analysis.comparison("primary", "time").unwrap();
    assert!(comparison.reference.iter().all(|run| run.censored && run.value == 160.0));
    assert!(comparison.arm.iter().all(|run| !run.censored && run.value < 100.0));
    assert_eq!(comparison.word, Word::Improves, "{comparison:?}");
    assert_eq!(comparison.shown().unwrap().words(), "lower");
    let times = &analysis.grids[0].times;
    assert_eq!((times[0].updates.median, times[5].updates.reached), (None, 5));
    // Times are read as medians and arrivals.
    let pages = study_fixture::markdown(&study);
    assert!(pages.contains("and never; reached by 5 of 5 and 0 of 5 runs"), "{pages}");
}

#[test]
fn a_folder_says_the_same_as_the_values_and_names_what_it_cannot_read() {
    let (grids, cells) = two_arms(0.4, 0.6, 0.01);
    let folder = tempfile::tempdir().unwrap();
    study_fixture::write(folder.path(), &grids, &cells);
    let declaration = declared(PRIMARY);
    files::write_json(&folder.path().join("study.json"), &declaration).unwrap();
    let read = || collection::load(folder.path(), None).unwrap();
    assert_eq!(read().declaration, declaration);
    let study = Study::new(grids, cells.into_iter().rev().collect(), Some(declaration));
    assert_eq!(analysis::analyse(&read()), analysis::analyse(&study));

    let name = study.cells[0].file_name();
    let path = folder.path().join("cells").join(&name);
    repository::replace(&path, "\"seed\":1", "\"seed\":2");
    let excluded = read().excluded;
    let reason = &excluded.iter().find(|cell| cell.cell == "unreadable").unwrap().reason;
    assert!(reason.contains(&name) && reason.contains("edited or damaged"), "{reason}");

    let empty = tempfile::tempdir().unwrap();
    let error = collection::load(empty.path(), None).unwrap_err().to_string();
    assert!(error.ends_with("is not a study: it has no folder `grids`"), "{error}");
}

#[test]
fn an_undeclared_study_is_analysed_row_by_row_and_says_so() {
    let (grids, cells) = two_arms(0.4, 0.6, 0.01);
    let analysis = analysis::analyse(&Study::new(grids, cells, None));
    assert!(analysis.remarks.contains(&Remark::Unregistered));
    let ladder = &analysis.grids[0];
    assert_eq!(ladder.name, "ladder");
    let is_open = |row: &Comparison| !row.registered && row.word == Word::NotCompared;
    assert!(ladder.differences.iter().all(is_open), "{:?}", ladder.differences);
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

/// avg@k on dev over updates.
fn curve(study: &Study, id: &str) -> Curve {
    let series = Series::Evaluation { set: "dev".to_owned() };
    curves::curve(study, id, &series, Clock::Updates)
}

#[test]
fn curves_have_every_seed_and_a_band_on_both_clocks() {
    let study = study_fixture::study(two_arms(0.4, 0.6, 0.01), PRIMARY);
    let updates = curve(&study, "ladder/dynamic-sampling");
    assert_eq!((updates.seeds.len(), updates.band.len()), (5, 9));
    let last = updates.band.last().unwrap();
    assert_eq!((last.x, last.runs), (160.0, 5));
    assert!((last.mean - 0.6).abs() < 0.01 && last.lowest < last.mean && last.mean < last.highest);
    let metric = Series::Metric { name: "policy/entropy".to_owned() };
    let rollouts = curves::curve(&study, "ladder/grpo", &metric, Clock::GeneratedRollouts);
    let (first, last) = (rollouts.band.first().unwrap(), rollouts.band.last().unwrap());
    assert_eq!((first.x, last.x), (256.0, 10_240.0));
    assert!((last.mean - 0.1).abs() < 1e-9);
    let points = [(0.0, 0.0), (2.0, 4.0)];
    assert_eq!([1.0, 2.1].map(|x| curves::interpolated(&points, x)), [Some(2.0), None]);
}

#[test]
fn the_interval_of_a_pools_curve_is_over_blocks() {
    let score =
        |id: &str, seed| 0.3 + 0.05 * seed as f64 + 0.1 * f64::from(id.starts_with("add-one"));
    let study = study_fixture::study(study_fixture::blocks(score), BLOCKS);
    let curves = ["pools/with", "ladder/dynamic-sampling"].map(|id| curve(&study, id));
    assert!(curves.iter().all(|curve| curve.seeds.len() == 8));
    let [pooled, single] = curves.map(|curve| *curve.band.last().unwrap());
    assert_eq!((pooled.runs, single.runs), (8, 8));
    assert!((pooled.mean - single.mean - 0.05).abs() < 5e-3, "{pooled:?} {single:?}");
    // Blocks spread as the arm does: averaging two arms of a block makes it no narrower.
    let [wide, narrow] = [pooled, single].map(|point| point.interval.unwrap());
    assert!((wide.high - wide.low) / (narrow.high - narrow.low) > 0.95, "{wide:?} {narrow:?}");
}

/// Dynamic Sampling made fewer updates in the runs that learned fastest: a mean over the runs that reach 1,920 updates
/// would be of those that learned late.
#[test]
fn a_curve_is_over_all_runs_where_their_updates_differ() {
    let study = collection::load(&repository::root().join("reports/useful"), None).unwrap();
    let dynamic = curve(&study, "useful/dynamic");
    assert!(dynamic.band.iter().all(|point| point.runs == 8));
    let last = dynamic.band.last().unwrap();
    assert!(last.x < 1_920.0 && (last.mean - 0.909).abs() < 0.001, "{last:?}");
    let grpo = curve(&study, "useful/grpo");
    assert_eq!((grpo.band.len(), grpo.band.last().unwrap().x), (13, 1_920.0));
}

/// A study whose records all have seconds is compared at equal seconds, too; no declaration can ask for it.
#[test]
fn seconds_are_a_clock_of_what_is_looked_at_afterwards() {
    let (grids, mut cells) = two_arms(0.4, 0.6, 0.01);
    let row = |cells: &[Cell]| {
        let rows = analysed((grids.clone(), cells.to_vec()), PRIMARY).sensitivity.into_iter();
        let change = Change::Clock { clock: Clock::Seconds };
        rows.flat_map(|comparison| comparison.rows).find(|row| row.change == change)
    };
    assert_eq!(row(&cells), None);
    study_fixture::change(&mut cells, |cell| cell.step_seconds = vec![1.5; cell.counters.len()]);
    let row = row(&cells).unwrap();
    assert!(row.runs == 5 && row.difference.unwrap() > 0.0, "{row:?}");
    let (set, statistic, clock) = ("dev".to_owned(), Statistic::AvgAtK, Clock::Seconds);
    for metric in [
        Metric::EvaluationMean { set: set.clone(), statistic, clock, from_share: 0.5 },
        Metric::TimeToLevel { set, level: 0.5, clock },
    ] {
        assert!(metric.check().unwrap_err().contains("nobody can check"));
    }
}

/// The row of the first comparison, made on this set.
fn sensitivity_row(study: (Vec<Grid>, Vec<Cell>), set: &str, change: &Change) -> SensitivityRow {
    let families = PRIMARY.replace("mini-aime-plus", set);
    let first = analysed(study, &families).sensitivity.into_iter().next().unwrap();
    first.rows.into_iter().find(|row| row.change == *change).unwrap()
}

#[test]
fn a_set_that_was_evaluated_at_both_ends_has_no_row_at_an_equal_clock() {
    let row =
        |clock| sensitivity_row(two_arms(0.4, 0.6, 0.01), "mini-aime", &Change::Clock { clock });
    // The run that generates twice as many rollouts is evaluated beyond what the other one has.
    let rollouts = row(Clock::GeneratedRollouts);
    assert_eq!((rollouts.difference, rollouts.p, rollouts.runs), (None, None, 5));
    let why = rollouts.without_value;
    assert!(matches!(why, Some(NoValue::OnlyBaseEvaluatedWithin { .. })), "{why:?}");
    assert!(row(Clock::Updates).difference.is_some());
}

#[test]
fn where_all_work_trees_have_changes_no_record_is_left() {
    let (grids, mut cells) = two_arms(0.4, 0.6, 0.01);
    study_fixture::change(&mut cells, |cell| {
        cell.environment.insert("git_dirty".to_owned(), "true".to_owned());
    });
    let change = Change::CleanBuilds { left_out: 10 };
    let row = sensitivity_row((grids, cells), "mini-aime-plus", &change);
    assert_eq!((row.difference, row.runs, row.fewest), (None, 0, 0));
}

#[test]
fn a_window_without_an_evaluation_is_no_lack_of_runs() {
    let shorter = Shape { steps: 30, ..Shape::ending_at(0.6) };
    let (grids, mut cells) = study_fixture::ladder_ends(&Shape::ending_at(0.4), &shorter, 0.01);
    study_fixture::change(&mut cells[..5], |cell| {
        cell.evaluations.retain(|it| [0, 5, 40].contains(&it.counters.rollout_steps));
    });
    let change = Change::From { share: 0.5, clock: Clock::Updates };
    let row = sensitivity_row((grids, cells), "dev", &change);
    assert_eq!((row.difference, row.runs), (None, 5));
    let why = row.without_value;
    assert!(matches!(why, Some(NoValue::NotEvaluatedBetween { .. })), "{why:?}");
}

#[test]
fn problems_that_changed_are_counted() {
    let study = study_fixture::study(two_arms(0.4, 0.6, 0.0), PRIMARY);
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

/// A published study that declares these least doses.
fn with_least_doses(study: &str, doses: Value) -> Result<analysis::Analysis, String> {
    let root = repository::root().join("reports").join(study);
    let mut declared: Value = files::read_json(&root.join("study.json")).unwrap();
    declared["least_doses"] = doses;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study.json");
    files::write_json(&path, &declared).unwrap();
    let study = collection::load(&root, Some(&path)).map_err(|error| error.to_string())?;
    Ok(analysis::analyse(&study))
}

#[test]
fn an_interaction_with_a_technique_below_its_dose_has_nothing_to_act_on() {
    let analysis = with_least_doses("study-2", json!({ "Clip-Higher": 0.99 })).unwrap();
    for family in ["interactions-of-two", "interactions-of-more"] {
        let family = analysis.families.iter().find(|other| other.id == family).unwrap();
        for Comparison { declared, word, .. } in &family.comparisons {
            let is_of_clip = declared.id.contains("clip");
            assert_eq!(*word == Word::NothingToActOn, is_of_clip, "{}", declared.id);
        }
    }
}

#[test]
fn below_a_declared_dose_a_technique_had_nothing_to_act_on() {
    // Clip-Higher lets 0.008 % of DAPO's tokens through there, Dynamic Sampling drops 5 % of its groups.
    let doses = json!({ "Clip-Higher": 0.001, "Dynamic Sampling": 0.01 });
    let analysis = with_least_doses("sums-1", doses).unwrap();
    let clip = analysis.comparison("leave-one-out", "clip").unwrap();
    assert_eq!(clip.word, Word::NothingToActOn);
    let why = words::why(&clip.why);
    assert!(why.starts_with("Clip-Higher acted on 0.00"), "{why}");
    assert!(why.contains("%, below the declared 0.10 %"), "{why}");
    let dynamic = analysis.comparison("leave-one-out", "dynamic").unwrap();
    assert_eq!(dynamic.word, Word::Inconclusive);
    // DAPO and GRPO differ in more than one technique, and two of them have no least dose.
    assert_ne!(analysis.families[0].comparisons[0].word, Word::NothingToActOn);
    let all = json!({
        "Clip-Higher": 0.99,
        "Dynamic Sampling": 0.99,
        "Token-level loss": 0.99,
        "Soft Overlong Punishment": 0.99,
    });
    let analysis = with_least_doses("sums-1", all).unwrap();
    let dapo = &analysis.families[0].comparisons[0];
    assert_eq!(dapo.word, Word::NothingToActOn, "{:?}", dapo.why);
    let why = words::why(&dapo.why);
    assert_eq!(why.matches("below the declared 99 %").count(), 4, "{why}");
    let refused = with_least_doses("sums-1", json!({ "clip": 0.001 })).unwrap_err();
    assert!(refused.contains("least_doses: \"clip\" is none of: Clip-Higher, "), "{refused}");
}

/// [`BLOCKS`] with one family of so many comparisons of the same arms.
fn one_family(size: usize) -> String {
    let (first, _) = BLOCKS.split_once("[[families]]\nid = \"main-effects\"").unwrap();
    let (_, comparison) = first.split_once("[[families.comparisons]]").unwrap();
    let others = (1..size).map(|at| {
        let id = comparison.replace("dapo-grpo", &format!("dapo-grpo-{at}"));
        let other = id.replace("from_share = 0.5", &format!("from_share = 0.0{at}"));
        format!("[[families.comparisons]]{other}")
    });
    first.to_owned() + &others.collect::<String>()
}

/// What a gate and the page say of DAPO, whose score is lower in the blocks after the first `tied`.
fn gated(tied: u64, size: usize) -> (GateVerdict, String) {
    let loss = |id: &str, seed| {
        let is_worse = id == "ladder/dynamic-sampling" && seed > tied;
        if is_worse { 0.1 + 0.01 * seed as f64 } else { 0.0 }
    };
    let study = study_fixture::blocks(|id, seed| 0.5 + 0.01 * seed as f64 - loss(id, seed));
    let study = study_fixture::study(study, &one_family(size));
    let arms = ["ladder/dynamic-sampling", "ladder/grpo"];
    let comparison = gate::arms(&study, Path::new("study"), arms).unwrap().comparison;
    let verdict = Gate { either_way: false, margin: None }.of_arms(&study, &comparison);
    (verdict, words::why(&comparison.why))
}

/// Eight signs reach 2/256, seven times which is above 0.05.
#[test]
fn a_gate_counts_the_family_and_few_blocks_are_told_from_equal_ones() {
    assert!(matches!(gated(0, 6).0, GateVerdict::Refused(_)));
    let few = |smallest_p, family_size, ties| {
        GateVerdict::Undecided(Undecided::FewRuns(FewRuns { smallest_p, family_size, ties }))
    };
    let (verdict, why) = gated(0, 7);
    assert_eq!(verdict, few(7.0 * 2.0 / 256.0, 7, None));
    assert!(
        why.ends_with("(in a family of 7 comparisons so few runs cannot get below 0.0547)"),
        "{why}"
    );
    let (verdict, why) = gated(4, 1);
    assert_eq!(verdict, few(0.125, 1, Some(Ties { tied: 4, blocks: 8 })));
    assert_eq!(why, "4 of 8 blocks do not differ at all: the smallest p is 0.125, above 0.05");
}

#[test]
fn an_arm_is_not_compared_with_itself_and_four_runs_a_side_have_no_interval() {
    let (grids, mut cells) = two_arms(0.4, 0.6, 0.01);
    cells.retain(|cell| cell.seed < 5);
    let study = study_fixture::study((grids, cells), PRIMARY);
    let arms = |names| gate::arms(&study, Path::new("study"), names);
    let refused = arms(["ladder/grpo", "ladder/grpo"]).err().unwrap().to_string();
    assert!(refused.contains("ladder/grpo and ladder/grpo are the same runs"), "{refused}");
    let comparison = arms(["ladder/dynamic-sampling", "ladder/grpo"]).unwrap().comparison;
    let gate = Gate { either_way: false, margin: Some(0.01) };
    let verdict = gate.of_arms(&study, &comparison);
    let without_pairs = Undecided::NoIntervalOfRuns { pairs: None, others: false };
    assert_eq!(verdict, GateVerdict::Undecided(without_pairs));
    let why = words::why(&Why::NoInterval { adjusted_p: 0.0159 });
    assert_eq!(why, "adjusted p 0.0159, but with fewer than 5 runs a side there is no interval");
}

/// DAPO against GRPO in families of such measures on dev.
fn measures(families: &[&[&str]]) -> Study {
    let comparison = |(at, metric): (usize, &&str)| {
        format!(
            "[[families.comparisons]]\nid = \"c{at}\"\narm = \"ladder/dynamic-sampling\"\nreference = \"ladder/grpo\"\n\
             metric = {{ set = \"dev\", {metric} }}\ndirection = \"higher\"\n"
        )
    };
    let family = |(at, metrics): (usize, &&[&str])| {
        let comparisons: String = metrics.iter().enumerate().map(comparison).collect();
        format!("[[families]]\nid = \"f{at}\"\nquestion = \"?\"\n{comparisons}")
    };
    let families: String = families.iter().enumerate().map(family).collect();
    study_fixture::study(two_arms(0.4, 0.6, 0.01), &families)
}

#[test]
fn another_statistic_is_no_other_clock_and_is_named_where_measures_differ() {
    let (rollouts, solved, updates) = (
        r#"source = "evaluation", at = "equal-rollouts", statistic = "avg-at-k""#,
        r#"source = "evaluation-mean", clock = "updates", statistic = "pass-at-k", from_share = 0.125"#,
        r#"source = "evaluation-mean", clock = "updates", statistic = "avg-at-k", from_share = 0.125"#,
    );
    let answer = |study: &Study| {
        let pages = study_fixture::markdown(study);
        pages.split("\n\n\n").next().unwrap().to_owned()
    };
    for other in [solved, updates] {
        let answer = answer(&measures(&[&[rollouts], &[other]]));
        assert!(!answer.contains("; at equal updates"), "{answer}");
    }
    let rollouts_mean = updates.replace("\"updates\"", "\"generated-rollouts\"");
    let clocks = answer(&measures(&[&[updates], &[&rollouts_mean]]));
    assert!(clocks.contains("; at equal generated rollouts "), "{clocks}");

    let study = measures(&[&[updates, solved]]);
    let answer = answer(&study);
    let named = "pass@k on dev, mean of the evaluations from 12.5 % of the equal updates on";
    assert!(answer.contains(&format!(", {named})")), "{answer}");
    let folder = tempfile::tempdir().unwrap();
    study_fixture::write(folder.path(), &study.grids, &study.cells);
    files::write_json(&folder.path().join("study.json"), &study.declaration).unwrap();
    let study = collection::load(folder.path(), None).unwrap();
    let panels = figure::panels(&study, folder.path(), figure::Kind::Forest, &[]).unwrap();
    let [Panel::Intervals(forest)] = &panels[..] else { panic!("{panels:?}") };
    let rows: Vec<&String> = forest.rows.iter().filter_map(|row| row.against.as_ref()).collect();
    assert!(rows[0] != rows[1] && rows[1].ends_with(named), "{rows:?}");
}

/// DAPO evaluated otherwise than GRPO: the keys by which it was.
fn evaluated_otherwise(change: fn(&mut Experiment)) -> (Vec<String>, Option<String>) {
    let (mut grids, mut cells) = two_arms(0.4, 0.6, 0.01);
    for arm in grids.iter_mut().flat_map(|grid| &mut grid.arms) {
        if arm.arm_sha256 == cells[5].arm_sha256 {
            change(&mut arm.experiment);
            arm.arm_sha256 = arm.experiment.arm_sha256();
        }
    }
    study_fixture::change(&mut cells[5..], |cell| change(&mut cell.experiment));
    let comparison = compared((grids, cells), PRIMARY, "dapo-grpo");
    assert_eq!(comparison.word, Word::Improves);
    let note = words::evaluated_apart(&comparison);
    (comparison.evaluated_apart.into_iter().collect(), note)
}

#[test]
fn arms_that_were_evaluated_otherwise_are_compared_with_a_word_on_it() {
    let (keys, note) = evaluated_otherwise(|it| it.evaluation.sampling.temperature = 0.5);
    assert_eq!(keys, ["evaluation.sampling"]);
    assert!(note.unwrap().starts_with("not evaluated alike (evaluation.sampling): "));
    let by_last_number =
        |it: &mut Experiment| it.reward.verifier = Grading::Rule(Verifier::LastNumber);
    assert_eq!(evaluated_otherwise(by_last_number).0, ["reward.verifier"]);
    // Another key of training is what is compared.
    let (keys, note) = evaluated_otherwise(|it| it.optimizer.learning_rate *= 2.0);
    assert_eq!((keys.len(), note), (0, None));
}
