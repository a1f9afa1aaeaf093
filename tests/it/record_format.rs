//! Formats of a run's records: which metrics a step has, what binds the format, and that runs of
//! the first one stay as they are.

use crate::repository::root;
use crate::verify::{made, session};
use dapo::base::files;
use dapo::experiment::{Experiment, Grid, RecordsSettings, extends, grid};
use dapo::numerics::Numerics;
use dapo::records::{RunFolder, StepMetrics, ledger};
use dapo::study::Cell;
use dapo::study::ablate::AblateStudy;
use dapo::study::ablate::jobs::{self, JobState};
use dapo::training::effects::{ROLLOUT_ENTROPY, ROLLOUT_PROBABILITY};
use dapo::training::run::{self, inputs};
use dapo::training::{Metrics, StepOutcome, Unfinished};
use dapo::verification::verify::replay::ReplayRequest;
use dapo::verification::verify::{self, Options, VerifyVerdict};
use dapo::verification::{Challenge, Golden};
use std::collections::BTreeMap;
use std::path::PathBuf;

const SECOND: Option<RecordsSettings> = Some(RecordsSettings { format: 2 });
const THIRD: Option<RecordsSettings> = Some(RecordsSettings { format: 3 });

fn load(name: &str) -> Experiment {
    extends::load(&root().join("experiments").join(name)).unwrap()
}

/// What an experiment resolves to that extends the base and states some more.
fn stated(text: &str) -> Result<Experiment, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stated.toml");
    let base = root().join("experiments/base.toml");
    let text = format!("extends = {:?}\n{text}\n", base.display().to_string());
    files::write_atomic(&path, text.as_bytes()).unwrap();
    extends::load(&path).map_err(|error| error.to_string())
}

/// The records of the first study.
fn cells() -> Vec<Cell> {
    let (cells, refused) =
        dapo::study::cell::read_folder(&root().join("reports/study-1/cells")).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    cells
}

#[test]
fn the_first_format_is_the_same_stated_or_absent_and_unknown_ones_are_refused_with_file_and_key() {
    assert_eq!(stated("").unwrap().record_format(), 2);
    let first = stated("records = { format = 1 }").unwrap();
    assert_eq!((first.records, first.record_format()), (None, 1));
    for format in ["0", "5", "-1", "\"2\""] {
        let refused = stated(&format!("records = {{ format = {format} }}")).unwrap_err();
        assert!(refused.contains("stated.toml: records.format"), "{refused}");
    }
    let refused = stated("records = { format = 5 }").unwrap_err();
    assert!(refused.ends_with("records.format must be from 1 to 4, got 5"), "{refused}");
    let refused = stated("records = { format = 2, fromat = 1 }").unwrap_err();
    assert!(refused.contains("did you mean `format`"), "{refused}");
}

#[test]
fn the_golden_run_is_of_the_first_format_and_another_has_another_key_and_one_component_more() {
    let golden = Golden::at(root().join("golden/runs")).exact();
    let mut experiment = load("regress.toml");
    assert_eq!(experiment.records, None);
    // The golden experiment was made in the repository's own folder.
    let recorded = golden.experiment().unwrap();
    assert_eq!(Experiment { inputs: recorded.inputs.clone(), ..experiment.clone() }, recorded);
    let inputs = inputs::prepare(experiment.clone()).unwrap();
    let first = ledger::genesis(&inputs.manifest, &experiment);
    assert_eq!(inputs.manifest.run_key, golden.manifest().unwrap().run_key);
    assert_eq!(first, golden.ledger().unwrap()[0]);
    experiment.records = SECOND;
    let key = inputs::run_key(&experiment, &inputs.manifest.inputs);
    assert_ne!(key, inputs.manifest.run_key);
    let mut second = ledger::genesis(&inputs.manifest, &experiment);
    assert_ne!(second.head, first.head);
    // SHA-256 of the number, as eight bytes.
    let format = second.components.remove("format").unwrap();
    assert_eq!(format, files::sha256(&2u64.to_le_bytes()));
    assert_eq!(second.components, first.components);
    assert_eq!(experiment.arm_sha256(), inputs.manifest.arm_sha256);
}

/// The metrics of an experiment's first rollout step.
fn first_step(experiment: Experiment) -> Metrics {
    let inputs = inputs::prepare(experiment).unwrap();
    let mut trainer = run::trainer(&inputs, None).unwrap();
    match trainer.step(&mut |_| ()).unwrap() {
        StepOutcome::Trained(step) => step.metrics,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_from_a_record_of_the_first_study_has_its_metrics_to_the_digit_and_no_other() {
    let named =
        |cell: &Cell| cell.name == "ladder.grpo" && cell.experiment.numerics == Numerics::Exact;
    // Each has the key of its run, or it were refused.
    let cells = cells();
    assert!(cells.len() == 216 && cells.iter().all(|it| it.experiment.record_format() == 1));
    let cell = cells.into_iter().find(named).expect("a cell of GRPO");
    let mut experiment = cell.experiment.clone();
    experiment.inputs.model = root().join(&experiment.inputs.model);
    let metrics = first_step(experiment);
    let recorded: BTreeMap<&String, f64> =
        cell.metrics.iter().filter_map(|(name, values)| Some((name, values[0]?))).collect();
    assert!(metrics.keys().eq(recorded.keys().copied()), "{metrics:?}\n{recorded:?}");
    for (name, recorded) in recorded {
        let found = metrics[name];
        assert!((found - recorded).abs() <= 1e-8 * recorded.abs(), "{name}: {found}, {recorded}");
    }
}

/// A small step of GRPO or of DAPO, in exact arithmetic.
fn small(name: &str, batch_rows: u64) -> Metrics {
    let mut experiment = load(name);
    experiment.rollout.max_response_tokens = 64;
    experiment.rollout.group_size = 4;
    experiment.rollout.prompts_per_round = 8;
    experiment.training.prompts_per_step = 8;
    experiment.training.mini_batch_rollouts = 16;
    experiment.execution.generation_batch_rollouts = batch_rows;
    experiment.execution.micro_batch_rollouts = batch_rows;
    first_step(experiment)
}

#[test]
fn without_dynamic_sampling_the_batch_is_all_rollouts_and_with_it_the_two_differ() {
    let pairs = [
        (ROLLOUT_ENTROPY, "policy/entropy"),
        (ROLLOUT_PROBABILITY, "policy/token_probability_mean"),
    ];
    let metrics = small("base.toml", 256);
    for (all, batch) in pairs {
        // Sums in another order.
        assert!((metrics[all] - metrics[batch]).abs() < 1e-12, "{all}: {metrics:?}");
    }
    let metrics = small("dapo.toml", 256);
    assert!(metrics["rollout/groups_useful_share"] < 1.0, "{metrics:?}");
    for (all, batch) in pairs {
        assert!((metrics[all] - metrics[batch]).abs() > 1e-4, "{all}: {metrics:?}");
    }
    // The base policy's, whatever the arm filters.
    let entropy = metrics[ROLLOUT_ENTROPY];
    assert!((0.05..0.5).contains(&entropy), "{entropy}");
    // Under exact arithmetic nothing depends on how many rows are generated together.
    let bits = |metrics: &Metrics| -> BTreeMap<String, u64> {
        metrics.iter().map(|(name, value)| (name.clone(), value.to_bits())).collect()
    };
    assert_eq!(bits(&metrics), bits(&small("dapo.toml", 5)));
}

/// A finished run of two short steps.
fn finished(path: PathBuf, records: Option<RecordsSettings>) -> RunFolder {
    let experiment = crate::diff::tiny(|experiment| {
        experiment.records = records;
        // The sets of the task; the base's own are not among them.
        experiment.evaluation.during_training = vec!["dev".to_string()];
    });
    let folder = RunFolder::at(path);
    made(experiment, &folder);
    folder
}

/// Findings about the metrics of all rollouts after a change of the second step's.
fn found(folder: &RunFolder, change: impl FnOnce(&mut Metrics)) -> Vec<String> {
    let path = folder.path("metrics.jsonl");
    let before = files::read(&path).unwrap();
    let mut lines: Vec<StepMetrics> = folder.metrics().unwrap();
    change(&mut lines[1].metrics);
    files::write_lines(&path, &lines).unwrap();
    let verification = verify::verify(folder, &Options::default(), &mut |_| ()).unwrap();
    files::write_atomic(&path, &before).unwrap();
    assert_eq!(verification.verdict, VerifyVerdict::Mismatch);
    let all = verification.checks.iter().flat_map(|check| &check.findings);
    let found = all.filter(|finding| finding.place.contains("policy/rollout_"));
    found.map(|finding| format!("{}: {}", finding.place, finding.what)).collect()
}

#[test]
fn verify_holds_each_format_to_its_own_metrics() {
    let scratch = tempfile::tempdir().unwrap();
    let replay = Some(ReplayRequest { steps: 1, problems: 2, challenge: Challenge::Seed(3) });
    for (name, records) in [("first", None), ("second", SECOND), ("third", THIRD)] {
        let folder = finished(scratch.path().join(name), records);
        let options = Options { replay, ..Options::default() };
        let verification = verify::verify(&folder, &options, &mut |_| ()).unwrap();
        let mismatches =
            verification.checks.iter().filter(|it| it.verdict == VerifyVerdict::Mismatch);
        assert_eq!(mismatches.count(), 0, "{verification:#?}");
    }
    let [first, second, third] =
        ["first", "second", "third"].map(|name| RunFolder::at(scratch.path().join(name)));
    let metrics = |folder: &RunFolder| folder.metrics().unwrap().remove(1).metrics;
    let (old, mut new) = (metrics(&first), metrics(&second));
    let mut newest = metrics(&third);
    newest.retain(|name, _| !new.contains_key(name));
    let length = |name: &str| newest[&format!("rollout/response_tokens_{name}")];
    assert!(length("p10") <= length("p50") && length("p50") <= length("p90"), "{newest:?}");
    assert!(length("correct_mean") > 0.0 && length("wrong_mean") > 0.0, "{newest:?}");
    let shares = newest.extract_if(.., |name, _| name.starts_with("loss/clip_fraction_"));
    assert!(shares.count() >= 2);
    assert!(newest.keys().all(|name| name.starts_with("rollout/re")), "{newest:?}");
    let added = [ROLLOUT_ENTROPY, ROLLOUT_PROBABILITY].map(|name| new.remove(name).unwrap());
    assert_eq!(old, new);

    let place = |name: &str| format!("metrics.jsonl, step 2, {name}: ");
    let [entropy, probability] = [ROLLOUT_ENTROPY, ROLLOUT_PROBABILITY].map(place);
    let put = |name: &'static str| {
        move |it: &mut Metrics| {
            it.insert(name.into(), added[0]);
        }
    };
    let unknown = "does not exist in this step";
    assert_eq!(found(&first, put(ROLLOUT_ENTROPY)), [format!("{entropy}{unknown}")]);
    assert_eq!(found(&first, put(ROLLOUT_PROBABILITY)), [format!("{probability}{unknown}")]);
    let take = |name: &'static str| {
        move |it: &mut Metrics| {
            it.remove(name);
        }
    };
    assert_eq!(found(&second, take(ROLLOUT_ENTROPY)), [format!("{entropy}is missing")]);
    let should = format!("should be {}", added[1]);
    let missing = found(&second, take(ROLLOUT_PROBABILITY));
    assert_eq!(missing, [format!("{probability}is missing, {should}")]);
    let moved = f64::from_bits(added[1].to_bits() + 1);
    let edited = found(&second, |it| *it.get_mut(ROLLOUT_PROBABILITY).unwrap() = moved);
    assert_eq!(edited, [format!("{probability}is {moved}, {should}")]);
}

#[test]
fn an_unfinished_run_of_the_first_format_is_not_gone_on_with_in_the_second() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = RunFolder::at(scratch.path().join("run"));
    let begin = |records, unfinished| {
        let experiment = crate::diff::tiny(|experiment| experiment.records = records);
        let inputs = inputs::prepare(experiment).unwrap();
        session(&inputs, &folder, unfinished, 1)
    };
    begin(None, Unfinished::Refuse).unwrap();
    let refused = begin(SECOND, Unfinished::Resume).unwrap_err().to_string();
    assert!(refused.contains("holds another run"), "{refused}");
    begin(None, Unfinished::Resume).unwrap();
}

#[test]
fn a_grid_of_the_newest_format_counts_the_cells_of_the_first_study() {
    let grid = grid::file::load(&root().join("experiments/grids/ladder.toml")).unwrap().grid;
    assert!(grid.arms.iter().all(|arm| arm.experiment.record_format() == 2));
    let study = AblateStudy::at(root().join("reports/study-1"));
    let grid = Grid { seeds: vec![101, 999], ..grid };
    for job in jobs::jobs(&study, std::slice::from_ref(&grid)).unwrap() {
        let recorded = matches!(job.state, JobState::Recorded(_));
        assert_eq!(recorded, job.manifest.seed == 101, "{}: {:?}", job.title(), job.state);
        let format = if recorded { 1 } else { 2 };
        assert_eq!(job.experiment.record_format(), format);
    }
}
