//! `dapo engine audit`: runs of verl and TRL that this program did not start, and faults that are planted in them.

use crate::binary::{Output, failed, line_in, succeeded};
use crate::golden_data;
use dapo::base::files;
use dapo::engines::{RunAudit, RunAuditOptions, audited};
use dapo::experiment::{Engine, Grading, Verifier};
use polars::prelude::{
    Column, DataFrame, IdxCa, IdxSize, NewChunkedArray, ParquetReader, ParquetWriter, SerReader,
};
use serde_json::{Value, json};
use std::io::Cursor;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    golden_data::folder("engines").join(name)
}

/// The responses of verl's dump, each with its grade where it has a label.
fn verl_lines() -> Vec<Value> {
    files::read_data_lines(&golden("verl/dapo/rollouts/1.jsonl")).unwrap()
}

fn group_of(line: &Value) -> String {
    line["uid"].as_str().unwrap().rsplitn(3, '_').last().unwrap().to_string()
}

fn file(folder: &Path, name: &str, text: &str) {
    files::write_atomic(&folder.join(name), text.as_bytes()).unwrap();
}

fn text_of<'a>(lines: impl IntoIterator<Item = &'a Value>) -> String {
    lines.into_iter().map(|line| format!("{line}\n")).collect()
}

/// A run of verl with these responses.
fn run_with(lines: &[Value]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "rollouts/1.jsonl", &text_of(lines));
    let log = json!({"step": 1, "data": {"response_length/clip_ratio": 0.25, "response_length/max": 60.0, "response_length/mean": 30.0}});
    file(folder.path(), "log.jsonl", &text_of([&log]));
    let config = json!({
        "actor_rollout_ref": {"rollout": {"n": 8}},
        "algorithm": {"filter_groups": {"enable": true, "metric": "acc"}},
        "reward": {"reward_manager": {"name": "dapo"}, "reward_kwargs": {"overlong_buffer_cfg": {"enable": true, "len": 16}}},
        "data": {"train_batch_size": 8, "max_response_length": 64},
        "trainer": {"total_epochs": 1},
    });
    files::write_json(&folder.path().join("job.json"), &config).unwrap();
    folder
}

fn audit_by(verifier: &str, folder: &Path) -> Output {
    let line = "engine audit verl rollouts --config job.json --log log.jsonl --verifier";
    line_in(folder, &format!("{line} {verifier}"))
}

fn audit(folder: &Path) -> Output {
    audit_by("answer-line", folder)
}

#[test]
fn a_run_of_verl_that_does_what_it_says_is_described() {
    let folder = run_with(&verl_lines());
    let (text, talk) = succeeded(audit(folder.path()));
    insta::assert_snapshot!(format!("{text}{talk}"));
    let (_, talk) = succeeded(line_in(folder.path(), "engine audit verl rollouts"));
    assert_eq!(talk.matches("not looked at:").count(), 3, "{talk}");
}

/// What is wrong with the responses, and what the audit says.
type Fault = (fn(&mut Vec<Value>), &'static str);

const FAULTS: [Fault; 6] = [
    // The penalty is configured and never acts.
    (
        |lines| {
            for line in lines {
                let is_right = line["score"].as_f64().unwrap() > -1.0;
                line["score"] = json!(if is_right { 1.0 } else { -1.0 });
            }
        },
        "no-length-penalty: ",
    ),
    // A solved group with one long response, which a filter on the reward keeps.
    (
        |lines| {
            let first = group_of(&lines[0]);
            let solved = lines.iter_mut().filter(|line| group_of(line) == first);
            for (place, line) in solved.enumerate() {
                line["output"] = json!(format!("Answer: {}", line["gts"].as_str().unwrap()));
                line["score"] = json!(if place == 0 { 0.5 } else { 1.0 });
            }
        },
        "filter-metric: ",
    ),
    // Two responses under each other's group.
    (
        |lines| {
            let first = group_of(&lines[0]);
            let at = lines.iter().position(|line| group_of(line) != first).unwrap();
            let (one, other) = (lines[0]["uid"].clone(), lines[at]["uid"].clone());
            (lines[0]["uid"], lines[at]["uid"]) = (other, one);
        },
        "mixed-group: ",
    ),
    (|lines| drop(lines.remove(0)), "group-size: "),
    (
        |lines| lines.push(lines[0].clone()),
        "response-twice: reward = \"as dumped\": step 1: 1 responses",
    ),
    // A wrong response is rewarded.
    (
        |lines| {
            let wrong = lines.iter_mut().find(|line| line["score"] == json!(-1.0));
            wrong.unwrap()["score"] = json!(1.0);
        },
        "graded-otherwise: reward = \"as dumped\": step 1: 1 responses",
    ),
];

#[test]
fn faults_planted_in_a_run_of_verl_are_found() {
    for (plant, words) in FAULTS {
        let mut lines = verl_lines();
        plant(&mut lines);
        let (code, text, talk) = audit(run_with(&lines).path());
        assert!(code == 4 && text.contains(words), "{words}: {code} {text}{talk}");
    }
}

/// No configuration, log or answers.
fn alone() -> RunAuditOptions {
    RunAuditOptions { config: None, log: None, answers: None, python: "python3".to_string() }
}

#[test]
fn completions_of_trl_are_grouped_by_place_and_graded_by_given_answers() {
    let folder = golden("trl/completions");
    let options = |answers: Option<&str>| RunAuditOptions {
        log: Some(folder.join("trainer_state.json")),
        answers: answers.map(|name| folder.join(name)),
        ..alone()
    };
    let rule = Some(&Grading::Rule(Verifier::AnswerLine));
    let whole = audited::run(Engine::Trl, &folder, &options(Some("answers.jsonl")), rule).unwrap();
    let step = &whole.steps[&1];
    assert_eq!((step["responses"], step["truncated"]), (16.0, 0.5));
    // TRL's own rule was another one: a lone number is no answer line.
    assert!(whole.contradictions.iter().any(|trap| trap.name == "graded-otherwise"));
    let without = audited::run(Engine::Trl, &folder, &options(None), rule).unwrap();
    assert!(without.contradictions.is_empty() && !without.steps[&1].contains_key("correct"));
}

/// A function grades as in training: with the ground truth and, with --answers, the columns of the user's data.
#[test]
fn a_run_is_graded_again_by_the_users_own_function() {
    let folder = run_with(&verl_lines());
    let file = |name: &str, text: &str| file(folder.path(), name, text);
    let same = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    \
                assert data_source == DATA, data_source\n    \
                last = solution_str.rsplit('Answer:', 1)\n    \
                return float(len(last) == 2 and last[1].strip() == ground_truth)\n";
    file("same.py", &same.replace("DATA", "''"));
    file("math.py", &same.replace("DATA", "'math'"));
    file("other.py", "def grade(response, answer): return len(response) % 2 == 0\n");
    file("random.py", "import random\ndef grade(response, answer): return random.random() < 0.5\n");
    file("broken.py", "def grade(response, answer): return 1 / 0\n");
    let answers = verl_lines()
        .into_iter()
        .map(|line| json!({"prompt": line["input"], "answer": line["gts"], "data_source": "math"}));
    file("answers.jsonl", &text_of(&answers.collect::<Vec<_>>()));
    let audit = |verifier: &str| audit_by(verifier, folder.path());
    let (by_rule, _) = succeeded(audit("answer-line"));
    assert_eq!(succeeded(audit("same.py")).0, by_rule);
    assert_eq!(succeeded(audit("math.py --answers answers.jsonl")).0, by_rule);
    let (code, text, talk) = audit("other.py");
    assert!(code == 4 && text.contains("graded-otherwise"), "{code} {text}{talk}");
    failed(audit("broken.py"), 3, "did not grade");
    failed(audit("random.py"), 3, "did not grade");
}

fn completions() -> DataFrame {
    let bytes = files::read(&golden("trl/completions/completions_00001.parquet")).unwrap();
    ParquetReader::new(Cursor::new(bytes)).finish().unwrap()
}

/// The audit of these completions alone, with a configuration or without.
fn audit_of(mut frame: DataFrame, config: Option<&Value>) -> Result<RunAudit, String> {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = Vec::new();
    ParquetWriter::new(&mut bytes).finish(&mut frame).unwrap();
    let completions = folder.path().join("completions");
    files::write_atomic(&completions.join("completions_00001.parquet"), &bytes).unwrap();
    let path = folder.path().join("config.json");
    if let Some(config) = config {
        files::write_json(&path, config).unwrap();
    }
    let options = RunAuditOptions { config: config.map(|_| path), ..alone() };
    audited::run(Engine::Trl, &completions, &options, None).map_err(|error| error.to_string())
}

fn trl_config() -> Value {
    files::read_json(&golden("trl/completions/config.json")).unwrap()
}

#[test]
fn responses_under_another_prompt_are_found_in_completions_of_trl() {
    let audit = |rows: &[IdxSize]| {
        let planted = completions().take(&IdxCa::from_slice("rows".into(), rows)).unwrap();
        let audit = audit_of(planted, Some(&trl_config())).unwrap();
        audit.contradictions.iter().map(|trap| trap.name).collect::<Vec<_>>()
    };
    let mut rows: Vec<IdxSize> = (0..16).collect();
    assert_eq!(audit(&rows), [""; 0]);
    // A correct response to q1 and one to q2, which is wrong, change places.
    rows.swap(0, 4);
    assert_eq!(audit(&rows), ["mixed-group", "advantage", "mixed-group", "advantage"]);
    assert!(audit(&rows[..15]).contains(&"group-size"));
}

#[test]
fn rewards_of_several_functions_are_weighed_as_the_configuration_says() {
    let mut frame = completions();
    // A second function whose values differ where the first one's are equal.
    let values: Vec<f64> = (0..frame.height()).map(|row| row as f64).collect();
    frame.with_column(Column::new("length_reward".into(), values)).unwrap();
    let audit = |weights: Value, aggregation: &str| {
        let mut config = trl_config();
        config["reward_weights"] = weights;
        config["multi_objective_aggregation"] = json!(aggregation);
        audit_of(frame.clone(), Some(&config))
    };
    // The first columns are rewards; what functions log follows.
    let [first, off, on] = [json!([1.0]), json!([1.0, 0.0]), json!([1.0, 1.0])].map(|weights| {
        let audit = audit(weights, "sum_then_normalize").unwrap();
        assert!(audit.notes.is_empty());
        audit.steps[&1]["no gradient"]
    });
    assert!(first == off && off > on, "{first} {off} {on}");
    let refusal = audit(json!([1.0, 1.0, 1.0]), "sum_then_normalize").unwrap_err();
    let are_named = ["2 columns can be", "3 reward_weights"].map(|what| refusal.contains(what));
    assert_eq!(are_named, [true; 2], "{refusal}");
    let refusal = audit(Value::Null, "normalize_then_sum").unwrap_err();
    assert!(refusal.contains("multi_objective_aggregation"), "{refusal}");
}

#[test]
fn a_number_that_a_function_of_trl_logs_is_no_reward() {
    let audit = |column: Column| {
        let mut frame = completions();
        frame.with_column(column).unwrap();
        audit_of(frame, Some(&trl_config())).unwrap()
    };
    let plain = audit_of(completions(), Some(&trl_config())).unwrap();
    let tokens = audit(Column::new("tokens".into(), (0..16).collect::<Vec<i64>>()));
    assert_eq!((&tokens.steps, &tokens.notes), (&plain.steps, &plain.notes));
    let share = audit(Column::new("share".into(), (0..16).map(f64::from).collect::<Vec<_>>()));
    assert!(share.notes[0].starts_with("rewards are not judged: "), "{:?}", share.notes);
    assert!(share.notes[0].contains("share may each be a reward"), "{:?}", share.notes);
    assert!(!share.steps[&1].contains_key("no gradient") && share.contradictions.is_empty());
}

#[test]
fn a_ground_truth_is_read_as_that_of_a_problem_file() {
    let audit_with = |ground_truth: fn(&str) -> Value| {
        let mut lines = verl_lines();
        for line in &mut lines {
            line["gts"] = ground_truth(line["gts"].as_str().unwrap());
        }
        let folder = run_with(&lines);
        succeeded(audit(folder.path()))
    };
    let plain = audit_with(|answer| json!(answer));
    assert_eq!(audit_with(|answer| json!([answer])), plain);
    assert_eq!(audit_with(|answer| json!(format!("[\"{answer}\"]"))), plain);
    let (text, talk) = audit_with(|answer| json!([answer, answer]));
    assert!(talk.contains("64 responses are not graded, the first of step 1"), "{talk}");
    assert!(talk.contains("a list of 2 answers") && !text.contains("correct"), "{text}{talk}");
}

#[test]
fn what_a_folder_of_dumps_lacks_or_has_twice_is_told() {
    let folder = run_with(&verl_lines());
    let text = |step: u64| {
        let mut lines = verl_lines();
        lines.iter_mut().for_each(|line| line["step"] = json!(step));
        text_of(&lines)
    };
    let put = |name: &str, text: &str| file(folder.path(), &format!("rollouts/{name}"), text);
    put("2.jsonl", &text(2));
    let cut = text(5);
    put("5.jsonl", &cut[..cut.len() - 40]);
    put("6.jsonl", "");
    let (code, out, talk) = audit(folder.path());
    assert!(talk.contains("6.jsonl has no rows"), "{talk}");
    assert!(talk.contains("5.jsonl: its last line is cut off, and was left out"), "{talk}");
    assert!(talk.contains("steps are missing between 2 and 5"), "{talk}");
    assert!(code == 4 && out.contains("group-size: "), "{out}");
    put("5.jsonl", &cut.replacen("\"score\":-1.0", "\"score\": NaN", 1));
    put("2 (1).jsonl", &text(2));
    let (code, out, _) = audit(folder.path());
    assert!(code == 4 && out.contains("step 5: 1 rewards are not finite"), "{out}");
    assert!(out.contains("step 2 is in 2 (1).jsonl, 2.jsonl: a copy, or two runs"), "{out}");
}

#[test]
fn partial_credit_is_not_called_a_length_penalty() {
    let told = |score: fn(f64, usize) -> f64| {
        let mut lines = verl_lines();
        for line in &mut lines {
            let length = line["output"].as_str().unwrap().len();
            line["score"] = json!(score(line["score"].as_f64().unwrap(), length));
        }
        let folder = run_with(&lines);
        let path = folder.path().join("job.json");
        let mut config: Value = files::read_json(&path).unwrap();
        config["reward"]["reward_kwargs"]["overlong_buffer_cfg"]["enable"] = json!(false);
        files::write_json(&path, &config).unwrap();
        audit(folder.path()).1.contains("length-penalty: ")
    };
    // Some wrong responses get a little.
    let partial = told(|score, length| match length {
        _ if score > 0.0 => 1.0,
        _ if length.is_multiple_of(2) => 0.1,
        _ => 0.0,
    });
    assert!(!partial);
    let punished =
        told(|score, length| if score > 0.0 { 1.0 - length as f64 / 1000.0 } else { -1.0 });
    assert!(punished);
}
