use super::*;
use crate::base::files;
use crate::records::{ColumnNames, tables, tables::OutcomeRecord};
use crate::statistics::Counts;
use crate::study::comparison::load::ComparisonOptions;
use std::path::Path;
use std::slice::from_ref;

fn made_up(name: &str, problems: u64) -> EvaluatedRun {
    let outcome = |index| (format!("aime/{index:02}"), Counts { correct: index % 5, samples: 16 });
    EvaluatedRun {
        path: PathBuf::from(name),
        problems: (0..problems).map(outcome).collect(),
        remarks: Vec::new(),
        set: None,
    }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        files::create_folder(path.parent().unwrap()).unwrap();
        files::write_atomic(&path, text.as_bytes()).unwrap();
        path
    }

    fn refused(&self, name: &str, text: &str) -> String {
        let path = self.write(name, text);
        let error = load::side(&[path], &ComparisonOptions::default()).unwrap_err().to_string();
        error.replace(&format!("{}/", self.0.path().display()), "")
    }
}

#[test]
fn tables_that_contradict_themselves_are_refused_with_the_problem() {
    let folder = Folder::new();
    assert_eq!(
        folder.refused("t.csv", "id,sample,acc\n1,0,1\n1,0,0\n"),
        "t.csv: problem \"1\" has sample \"0\" twice; several training runs belong into several files"
    );
    assert_eq!(
        folder.refused("t.csv", "id,sample,acc\n1,0,1\n1,1,0\n2,0,1\n"),
        "t.csv: problem \"1\" has 2 samples and problem \"2\" has 1; \
         --unequal-samples gives every problem the same weight"
    );
    assert_eq!(folder.refused("t.csv", "id,sample,acc\n"), "t.csv: the table has no rows");
    assert!(folder.refused("t.json", "{").starts_with("t.json: "));
    let unequal = ComparisonOptions { unequal_samples: true, ..ComparisonOptions::default() };
    let path = folder.write("t.csv", "id,sample,acc\n1,0,1\n1,1,0\n2,0,1\n");
    let run = &load::side(&[path], &unequal).unwrap()[0];
    assert_eq!(run.problems["1"], Counts { correct: 1, samples: 2 });
    assert!(load::side(&[folder.0.path().join("nowhere.csv")], &unequal).is_err());
}

#[test]
fn problems_of_one_side_only_are_refused_or_left_out_on_demand() {
    let (a, b) = (made_up("a.csv", 12), made_up("b.csv", 14));
    let error = compare(from_ref(&a), from_ref(&b), 0.95, false).unwrap_err().to_string();
    assert_eq!(
        error,
        "b.csv and a.csv are not about the same problems: 2 problems, such as \"aime/12\", only \
         in the first of them; --common-problems compares those that are in all"
    );
    let common = compare(from_ref(&a), &[b], 0.95, true).unwrap();
    assert_eq!(common.a.accuracy.problems, 12);
    assert_eq!(common.remarks.len(), 1);
    let other = EvaluatedRun {
        problems: [("x".into(), Counts { correct: 0, samples: 1 })].into(),
        ..a.clone()
    };
    assert!(compare(&[a], &[other], 0.95, true).unwrap_err().to_string().contains("no problem"));
}

fn outcome(problem: u32, sample: u32, is_correct: bool) -> OutcomeRecord {
    OutcomeRecord {
        problem: format!("dev/{problem}"),
        sample,
        is_correct,
        response_tokens: 1,
        truncated: false,
        prediction: None,
        answer: "1".into(),
        response: "x".into(),
        reward: None,
    }
}

#[test]
fn csv_parquet_and_a_folder_of_runs_give_the_same_counts() {
    let folder = Folder::new();
    let outcomes: Vec<OutcomeRecord> =
        (0..8).map(|index| outcome(index / 4, index % 4, index % 3 == 0)).collect();
    let parquet = folder.0.path().join("one.parquet");
    tables::write_outcomes(&parquet, &outcomes).unwrap();
    let rows =
        outcomes.iter().map(|it| format!("{},{},{}\n", it.sample, it.is_correct, it.problem));
    let csv = format!("try,ok,problem\n{}", rows.collect::<String>());
    let csv = folder.write("runs/two.csv", &csv);
    let columns = ColumnNames {
        sample: Some("try".into()),
        correct: Some("ok".into()),
        ..ColumnNames::default()
    };
    let options = ComparisonOptions { columns, ..ComparisonOptions::default() };
    let from_csv = load::side(&[&csv], &options).unwrap();
    let from_parquet = load::side(&[&parquet], &ComparisonOptions::default()).unwrap();
    assert_eq!(from_csv[0].problems, from_parquet[0].problems);
    // What this program left beside the runs is no run; a page of somebody else is named.
    folder.write("runs/index.html", "<!DOCTYPE html>\n<body class=\"index\">");
    folder.write("runs/two.csv.set-aside-1", "damaged");
    let from_folder = load::side(&[csv.parent().unwrap()], &options).unwrap();
    assert_eq!(from_folder, from_csv);
    folder.write("runs/index.html", "<!DOCTYPE html>\n<body>");
    assert!(load::side(&[csv.parent().unwrap()], &options).is_err());
    let empty = folder.0.path().join("empty");
    files::create_folder(&empty).unwrap();
    assert!(load::side(&[Path::new(&empty)], &options).is_err());
}

/// The record of a run that stalled in its first rollout step: one evaluation of 4 problems × 2
/// samples.
fn cell(folder: &Path, seed: u64, bits: [bool; 8], ids: &str) -> PathBuf {
    use crate::experiment::extends;
    use crate::records::Counters;
    use crate::study::cell::build::tests::{bare, digests};
    use crate::study::{Cell, CellEnding, CellEvaluation, ProblemIds};
    let mut experiment =
        extends::load(Path::new("experiments/arms/dynamic-sampling.toml")).unwrap();
    experiment.execution.seed = seed;
    experiment.evaluation.samples.insert("dev".into(), 2);
    let evaluation = CellEvaluation {
        set: "dev".into(),
        counters: Counters::default(),
        generated_rollouts: 0,
        samples: 2,
        outcomes: bits.into_iter().collect(),
        cons_at_k: 0.5,
        truncated_share: 0.0,
        response_tokens_mean: 1.0,
        reward_mean: None,
        outcomes_sha256: files::sha256(b"table"),
    };
    let ids = ProblemIds { count: 4, sha256: files::sha256(ids.as_bytes()), ..Default::default() };
    let records = ["metrics.jsonl", "evaluations.jsonl", "ledger.jsonl", "model.safetensors"];
    let cell = Cell {
        ending: CellEnding::Stalled,
        problems: [("dev".to_string(), ids)].into(),
        evaluations: vec![evaluation],
        ledger_head: Some(files::sha256(b"head")),
        digests: digests(records),
        ..bare(&experiment)
    };
    cell.sealed().write(folder).unwrap()
}

#[test]
fn a_run_counts_with_an_evaluation_of_its_trained_policy_and_says_which() {
    use crate::records::{Counters, Ending, EvaluationRecord, Outcome, RunFolder, StepMetrics};
    let root = tempfile::tempdir().unwrap();
    let counters =
        |step| Counters { rollout_steps: step, updates: 2 * step, ..Counters::default() };
    let write = |name: &str, evaluated: &[u64], steps: u64, ending: Option<Ending>| {
        let run = RunFolder::at(root.path().join(name));
        let record = |step: &u64| EvaluationRecord {
            counters: counters(*step),
            set: "dev".to_owned(),
            problems: 1,
            samples: 1,
            avg_at_k: 1.0,
            standard_error_fixed_problems: 0.0,
            standard_error_new_problems: 0.0,
            pass_at_k: BTreeMap::new(),
            cons_at_k: 1.0,
            truncated_share: 0.0,
            response_tokens_mean: 1.0,
            reward_mean: None,
            outcomes_sha256: String::new(),
        };
        let records: Vec<EvaluationRecord> = evaluated.iter().map(record).collect();
        files::write_lines(&run.path("evaluations.jsonl"), &records).unwrap();
        let line = |step| StepMetrics { step, counters: counters(step), metrics: BTreeMap::new() };
        let lines: Vec<StepMetrics> = (1..=steps).map(line).collect();
        files::write_lines(&run.path("metrics.jsonl"), &lines).unwrap();
        for step in evaluated {
            let table = run.recorded_outcomes("dev", *step).unwrap();
            tables::write_outcomes(&table, &[outcome(0, 0, true)]).unwrap();
        }
        if let Some(ending) = ending {
            let outcome = Outcome::new(4, ending, None, counters(steps));
            files::write_json(&run.path("outcome.json"), &outcome).unwrap();
        }
        load::side(&[run.root()], &ComparisonOptions::default())
    };
    let finished = write("finished", &[0, 4], 4, Some(Ending::Finished)).unwrap();
    let stopped = write("stopped", &[0, 2], 3, None).unwrap();
    let late = write("late", &[0, 2], 3, Some(Ending::Diverged)).unwrap();
    assert!(write("begun", &[0], 0, None).is_ok());
    let refused = |name, ending| write(name, &[0], 3, ending).unwrap_err().to_string();
    assert!(refused("early", Some(Ending::Diverged)).contains("(diverged, updates: 6)"));
    assert!(refused("under-way", None).contains("(unfinished, updates: 6)"));
    assert!(write("at-once", &[0], 0, Some(Ending::Diverged)).is_err());
    let remarks = |b: &[EvaluatedRun]| compare(&finished, b, 0.95, false).unwrap().remarks;
    let told = |state| {
        let b = "B: set `dev`, last evaluation; updates: 4";
        let a = "A: set `dev`, last evaluation; updates: 8".to_owned();
        [a, format!("{b}; the run is {state}: evaluated at rollout step 2 of 3 recorded")]
    };
    assert_eq!(remarks(&stopped), told("unfinished"));
    assert_eq!(remarks(&late), told("diverged"));
}

#[test]
fn cells_are_compared_when_they_are_about_the_same_problems() {
    let folder = tempfile::tempdir().unwrap();
    let (t, f) = (true, false);
    let one = cell(folder.path(), 1, [t, f, t, t, f, f, f, f], "ids");
    let two = cell(folder.path(), 2, [t, t, t, t, f, f, f, t], "ids");
    let other = cell(folder.path(), 3, [t, t, t, t, f, f, f, t], "other ids");
    let side = |path: &Path| load::side(&[path], &ComparisonOptions::default()).unwrap();
    let got = compare(&side(&one), &side(&two), 0.95, false).unwrap();
    assert_eq!(got.paired.by_problem, [0.5, 0.0, 0.0, 0.5]);
    assert!(compare(&side(&one), &side(&other), 0.95, false).is_err());
    let text = files::read_text(&two).unwrap();
    let mut diverged: crate::study::Cell = serde_json::from_str(&text).unwrap();
    diverged.ending = crate::study::CellEnding::Diverged;
    let diverged = diverged.sealed().write(&folder.path().join("diverged")).unwrap();
    let error = load::side(&[diverged], &ComparisonOptions::default()).unwrap_err().to_string();
    assert!(error.contains("only the base policy was evaluated on set `dev`"), "{error}");
    for (set, near) in [("plus", ""), ("Dev", "; did you mean dev?")] {
        let missing = ComparisonOptions { set: Some(set.into()), ..ComparisonOptions::default() };
        let error = load::side(&[&one], &missing).unwrap_err().to_string();
        let told = format!("no evaluation of set `{set}`, only of dev{near}");
        assert!(error.ends_with(&told), "{error}");
    }
}
