//! Formats of a run's records: which metrics a step has, what binds the format, and that runs of
//! the first one stay as they are.

use crate::diff::tiny;
use crate::repository::{experiment, root};
use crate::verify::{made, session, verified};
use dapo::base::files;
use dapo::experiment::{Experiment, Grid, RecordsSettings, extends, grid};
use dapo::numerics::Numerics;
use dapo::records::{RunFolder, StepMetrics, ledger};
use dapo::study::ablate::AblateStudy;
use dapo::study::ablate::jobs::{self, JobState};
use dapo::study::{Cell, cell};
use dapo::training::effects::{ROLLOUT_ENTROPY, ROLLOUT_PROBABILITY};
use dapo::training::run::{self, inputs};
use dapo::training::{Metrics, StepOutcome, Unfinished};
use dapo::verification::Golden;
use dapo::verification::verify::replay::ReplayRequest;
use dapo::verification::verify::{self, Options, VerifyVerdict};
use std::collections::BTreeMap;
use std::path::PathBuf;

const SECOND: Option<RecordsSettings> = Some(RecordsSettings { format: 2 });
const THIRD: Option<RecordsSettings> = Some(RecordsSettings { format: 3 });

/// What an experiment resolves to that extends the base and states some more.
fn stated(text: &str) -> Result<Experiment, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stated.toml");
    let base = root().join("experiments/base.toml");
    files::write_atomic(&path, format!("extends = {base:?}\n{text}\n").as_bytes()).unwrap();
    extends::load(&path).map_err(|error| error.to_string())
}

#[test]
fn the_first_format_is_the_same_stated_or_absent_and_unknown_ones_are_refused_with_file_and_key() {
    assert_eq!(stated("").unwrap().record_format(), 2);
    let first = stated("records = { format = 1 }").unwrap();
    assert_eq!((first.records, first.record_format()), (None, 1));
    for (records, words) in [
        ("format = 0", "stated.toml: records.format"),
        ("format = -1", "stated.toml: records.format"),
        ("format = \"2\"", "stated.toml: records.format"),
        ("format = 5", "stated.toml: records.format must be from 1 to 4, got 5"),
        ("format = 2, fromat = 1", "did you mean `format`"),
    ] {
        let refused = stated(&format!("records = {{ {records} }}")).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn the_golden_run_is_of_the_first_format_and_another_has_another_key_and_one_component_more() {
    let golden = Golden::at(root().join("golden/runs")).exact();
    let mut experiment = experiment("regress.toml", "");
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
    let (cells, refused) = cell::read_folder(&root().join("reports/study-1")).unwrap();
    // Each has the key of its run, or it were refused.
    assert!(refused.is_empty(), "{refused:?}");
    assert!(cells.len() == 216 && cells.iter().all(|cell| cell.experiment.record_format() == 1));
    let is_named =
        |cell: &&Cell| cell.name == "ladder.grpo" && cell.experiment.numerics == Numerics::Exact;
    let cell = cells.iter().find(is_named).expect("a cell of GRPO");
    let mut experiment = cell.experiment.clone();
    experiment.inputs.model = root().join(&experiment.inputs.model);
    let metrics = first_step(experiment);
    let recorded: BTreeMap<&String, f64> =
        cell.metrics.iter().filter_map(|(name, values)| Some((name, values[0]?))).collect();
    assert!(metrics.keys().eq(recorded.keys().copied()), "{metrics:?}\n{recorded:?}");
    for (name, recorded) in recorded {
        let ours = metrics[name];
        assert!((ours - recorded).abs() <= 1e-8 * recorded.abs(), "{name}: {ours}, {recorded}");
    }
}

/// A small step of GRPO or of DAPO, in exact arithmetic.
fn small(name: &str, batch_rows: u64) -> Metrics {
    let set = format!(
        "rollout.max_response_tokens=64 rollout.group_size=4 rollout.prompts_per_round=8
         training.prompts_per_step=8 training.mini_batch_rollouts=16
         execution.generation_batch_rollouts={batch_rows} execution.micro_batch_rollouts={batch_rows}"
    );
    first_step(experiment(name, &set))
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
    let experiment = tiny(|experiment| {
        experiment.records = records;
        // The sets of the task; the base's own are not among them.
        experiment.evaluation.during_training = vec!["dev".to_string()];
    });
    let folder = RunFolder::at(path);
    made(experiment, &folder);
    folder
}

/// Findings about the metrics of all rollouts where one of the second step's has this value, or is absent.
fn findings(folder: &RunFolder, name: &str, value: Option<f64>) -> Vec<String> {
    let path = folder.path("metrics.jsonl");
    let before = files::read(&path).unwrap();
    let mut lines: Vec<StepMetrics> = folder.metrics().unwrap();
    lines[1].metrics.remove(name);
    lines[1].metrics.extend(value.map(|value| (name.into(), value)));
    files::write_lines(&path, &lines).unwrap();
    let verification = verified(folder);
    files::write_atomic(&path, &before).unwrap();
    assert_eq!(verification.verdict, VerifyVerdict::Mismatch);
    let mut findings = crate::verify::findings(&verification, VerifyVerdict::Mismatch);
    findings.retain(|finding| finding.contains("policy/rollout_"));
    findings
}

#[test]
fn verify_holds_each_format_to_its_own_metrics() {
    let scratch = tempfile::tempdir().unwrap();
    let replay = Some(ReplayRequest { steps: 1, problems: 2, challenge: 3 });
    let options = Options { replay, ..Options::default() };
    let runs = [("first", None), ("second", SECOND), ("third", THIRD)].map(|(name, records)| {
        let folder = finished(scratch.path().join(name), records);
        let verification = verify::verify(&folder, &options, &mut |_| ()).unwrap();
        assert_ne!(verification.verdict, VerifyVerdict::Mismatch, "{verification:#?}");
        folder
    });
    let [old, mut new, mut newest] =
        [0, 1, 2].map(|run| runs[run].metrics().unwrap().remove(1).metrics);
    newest.retain(|name, _| !new.contains_key(name));
    let length = |name: &str| newest[&format!("rollout/response_tokens_{name}")];
    assert!(length("p10") <= length("p50") && length("p50") <= length("p90"), "{newest:?}");
    assert!(length("correct_mean") > 0.0 && length("wrong_mean") > 0.0, "{newest:?}");
    let shares = newest.extract_if(.., |name, _| name.starts_with("loss/clip_fraction_"));
    assert!(shares.count() >= 2);
    assert!(newest.keys().all(|name| name.starts_with("rollout/re")), "{newest:?}");
    let [entropy, probability] =
        [ROLLOUT_ENTROPY, ROLLOUT_PROBABILITY].map(|name| new.remove(name).unwrap());
    assert_eq!(old, new);

    let moved = f64::from_bits(probability.to_bits() + 1);
    let [first, second, _] = &runs;
    for (run, name, value, what) in [
        (first, ROLLOUT_ENTROPY, Some(entropy), "does not exist in this step".to_owned()),
        (first, ROLLOUT_PROBABILITY, Some(entropy), "does not exist in this step".to_owned()),
        (second, ROLLOUT_ENTROPY, None, "is missing".to_owned()),
        (second, ROLLOUT_PROBABILITY, None, format!("is missing, should be {probability}")),
        (second, ROLLOUT_PROBABILITY, Some(moved), format!("is {moved}, should be {probability}")),
    ] {
        let expected = format!("metrics.jsonl, step 2, {name}: {what}");
        assert_eq!(findings(run, name, value), [expected]);
    }
}

#[test]
fn an_unfinished_run_of_the_first_format_is_not_gone_on_with_in_the_second() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = RunFolder::at(scratch.path().join("run"));
    let begin = |records, unfinished| {
        let inputs = inputs::prepare(tiny(|experiment| experiment.records = records)).unwrap();
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
