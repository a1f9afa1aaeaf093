//! `dapo engine audit`: runs of verl and TRL that this program did not start, and faults that are planted in them.

use crate::binary::{Output, dapo_in, failed, succeeded};
use dapo::base::files;
use dapo::engines::{RunAudit, RunAuditOptions, audited};
use dapo::experiment::{Engine, Grading, Verifier};
use polars::prelude::{
    Column, IdxCa, IdxSize, NewChunkedArray, ParquetReader, ParquetWriter, SerReader,
};
use serde_json::{Value, json};
use std::io::Cursor;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/engines").join(name)
}

/// The responses of verl's dump, each with its grade where it has a label.
fn verl_lines() -> Vec<Value> {
    files::read_data_lines(&golden("verl/dapo/rollouts/1.jsonl")).unwrap()
}

fn group_of(line: &Value) -> String {
    line["uid"].as_str().unwrap().rsplitn(3, '_').last().unwrap().to_string()
}

fn write(folder: &Path, lines: &[Value]) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    files::write_atomic(&folder.join("rollouts/1.jsonl"), text.as_bytes()).unwrap();
    let log = json!({"step": 1, "data": {"response_length/clip_ratio": 0.25, "response_length/max": 60.0, "response_length/mean": 30.0}});
    files::write_atomic(&folder.join("log.jsonl"), format!("{log}\n").as_bytes()).unwrap();
    let config = json!({
        "actor_rollout_ref": {"rollout": {"n": 8}},
        "algorithm": {"filter_groups": {"enable": true, "metric": "acc"}},
        "reward": {"reward_manager": {"name": "dapo"}, "reward_kwargs": {"overlong_buffer_cfg": {"enable": true, "len": 16}}},
        "data": {"train_batch_size": 8, "max_response_length": 64},
        "trainer": {"total_epochs": 1},
    });
    files::write_json(&folder.join("job.json"), &config).unwrap();
}

fn audit(folder: &Path, rest: &str) -> Output {
    let line = format!(
        "engine audit verl rollouts --config job.json --log log.jsonl --verifier answer-line{rest}"
    );
    dapo_in(folder, &line.split(' ').collect::<Vec<_>>())
}

#[test]
fn a_run_of_verl_that_does_what_it_says_is_described() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &verl_lines());
    let (text, talk) = succeeded(audit(folder.path(), ""));
    insta::assert_snapshot!(format!("{text}{talk}"));
    let alone = dapo_in(folder.path(), &["engine", "audit", "verl", "rollouts"]);
    let (_, talk) = succeeded(alone);
    assert_eq!(talk.matches("not looked at:").count(), 3, "{talk}");
}

#[test]
fn faults_planted_in_a_run_of_verl_are_found() {
    type Plant = fn(&mut Vec<Value>);
    let plants: [(Plant, &str); 5] = [
        // The penalty is configured and never acts.
        (
            |lines| {
                for line in lines {
                    let score = line["score"].as_f64().unwrap();
                    line["score"] = json!(if score > -1.0 { 1.0 } else { -1.0 });
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
        // A response is missing.
        (|lines| drop(lines.remove(0)), "group-size: "),
        // A wrong response is rewarded.
        (
            |lines| {
                let wrong = lines.iter_mut().find(|line| line["score"] == json!(-1.0));
                wrong.unwrap()["score"] = json!(1.0);
            },
            "graded-otherwise: reward = \"as dumped\": step 1: 1 responses",
        ),
    ];
    for (plant, says) in plants {
        let folder = tempfile::tempdir().unwrap();
        let mut lines = verl_lines();
        plant(&mut lines);
        write(folder.path(), &lines);
        let (code, text, talk) = audit(folder.path(), "");
        assert!(code == 4 && text.contains(says), "{says}: {code} {text}{talk}");
    }
}

#[test]
fn completions_of_trl_are_grouped_by_place_and_graded_by_given_answers() {
    let folder = golden("trl/completions");
    let options = |answers: Option<&str>| RunAuditOptions {
        config: None,
        log: Some(folder.join("trainer_state.json")),
        answers: answers.map(|name| folder.join(name)),
        python: "python3".to_string(),
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
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &verl_lines());
    let file = |name: &str, text: &str| {
        files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
    };
    let same = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    \
                assert data_source == DATA, data_source\n    \
                last = solution_str.rsplit('Answer:', 1)\n    \
                return float(len(last) == 2 and last[1].strip() == ground_truth)\n";
    file("same.py", &same.replace("DATA", "''"));
    file("math.py", &same.replace("DATA", "'math'"));
    file("other.py", "def grade(response, answer):\n    return len(response) % 2 == 0\n");
    file(
        "random.py",
        "import random\ndef grade(response, answer):\n    return random.random() < 0.5\n",
    );
    file("broken.py", "def grade(response, answer):\n    return 1 / 0\n");
    let answer = |line: Value| {
        let line = json!({"prompt": line["input"], "answer": line["gts"], "data_source": "math"});
        format!("{line}\n")
    };
    file("answers.jsonl", &verl_lines().into_iter().map(answer).collect::<String>());
    let line = "engine audit verl rollouts --config job.json --log log.jsonl";
    let audit = |verifier: &str| {
        let line = format!("{line} --verifier {verifier}");
        dapo_in(folder.path(), &line.split(' ').collect::<Vec<_>>())
    };
    let (by_rule, _) = succeeded(audit("answer-line"));
    assert_eq!(succeeded(audit("same.py")).0, by_rule);
    assert_eq!(succeeded(audit("math.py --answers answers.jsonl")).0, by_rule);
    let (code, text, talk) = audit("other.py");
    assert!(code == 4 && text.contains("graded-otherwise"), "{code} {text}{talk}");
    failed(audit("broken.py"), 3, "did not grade");
    failed(audit("random.py"), 3, "did not grade");
}

#[test]
fn responses_under_another_prompt_are_found_in_completions_of_trl() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (golden("trl/completions"), folder.path().join("completions"));
    let bytes = files::read(&from.join("completions_00001.parquet")).unwrap();
    let frame = ParquetReader::new(Cursor::new(bytes)).finish().unwrap();
    let audit = |rows: &[IdxSize]| {
        let mut planted = frame.take(&IdxCa::from_slice("rows".into(), rows)).unwrap();
        let mut bytes = Vec::new();
        ParquetWriter::new(&mut bytes).finish(&mut planted).unwrap();
        files::write_atomic(&to.join("completions_00001.parquet"), &bytes).unwrap();
        let options = RunAuditOptions {
            config: Some(from.join("config.json")),
            log: None,
            answers: None,
            python: "python3".to_string(),
        };
        let audit = audited::run(Engine::Trl, &to, &options, None).unwrap();
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
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (golden("trl/completions"), folder.path().join("completions"));
    let bytes = files::read(&from.join("completions_00001.parquet")).unwrap();
    let mut frame = ParquetReader::new(Cursor::new(bytes)).finish().unwrap();
    // A second function whose values differ where the first one's are equal.
    let values: Vec<f64> = (0..frame.height()).map(|row| row as f64).collect();
    frame.with_column(Column::new("length_reward".into(), values)).unwrap();
    let mut bytes = Vec::new();
    ParquetWriter::new(&mut bytes).finish(&mut frame).unwrap();
    files::write_atomic(&to.join("completions_00001.parquet"), &bytes).unwrap();
    let audit = |weights: Option<Value>, aggregation: &str| {
        let config = weights.map(|weights| {
            let mut config: Value = files::read_json(&from.join("config.json")).unwrap();
            config["reward_weights"] = weights;
            config["multi_objective_aggregation"] = json!(aggregation);
            let path = folder.path().join("config.json");
            files::write_json(&path, &config).unwrap();
            path
        });
        let (log, answers) = (None, None);
        let options = RunAuditOptions { config, log, answers, python: "python3".to_string() };
        audited::run(Engine::Trl, &to, &options, None).map_err(|error| error.to_string())
    };
    let flat = |audit: &RunAudit| audit.steps[&1]["no gradient"];
    let assumed = audit(None, "").unwrap();
    assert!(assumed.notes[0].contains("length_reward are summed with the weight 1 each"));
    let off = audit(Some(json!([1.0, 0.0])), "sum_then_normalize").unwrap();
    let on = audit(Some(Value::Null), "sum_then_normalize").unwrap();
    assert!(on.notes.is_empty() && off.notes.is_empty());
    assert!(flat(&off) > flat(&on), "{} {}", flat(&off), flat(&on));
    let refusal = audit(Some(json!([1.0])), "sum_then_normalize").unwrap_err();
    assert!(
        refusal.contains("2 reward functions") && refusal.contains("1 reward_weights"),
        "{refusal}"
    );
    let refusal = audit(Some(Value::Null), "normalize_then_sum").unwrap_err();
    assert!(refusal.contains("multi_objective_aggregation"), "{refusal}");
}

#[test]
fn what_a_folder_of_dumps_lacks_or_has_twice_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let lines = verl_lines();
    write(folder.path(), &lines);
    let text = |step: u64, lines: &[Value]| -> String {
        let line = |line: &Value| {
            let mut line = line.clone();
            line["step"] = json!(step);
            format!("{line}\n")
        };
        lines.iter().map(line).collect()
    };
    let put = |name: &str, text: &str| {
        let path = folder.path().join("rollouts").join(name);
        files::write_atomic(&path, text.as_bytes()).unwrap();
    };
    put("2.jsonl", &text(2, &lines));
    let cut = text(5, &lines);
    put("5.jsonl", &cut[..cut.len() - 40]);
    let (code, text, talk) = audit(folder.path(), "");
    assert!(talk.contains("5.jsonl: its last line is cut off, and was left out"), "{talk}");
    assert!(talk.contains("steps are missing between 2 and 5"), "{talk}");
    assert!(code == 4 && text.contains("group-size: "), "{text}");
    put("5.jsonl", &cut.replacen("\"score\":-1.0", "\"score\": NaN", 1));
    put("2 (1).jsonl", &files::read_text(&folder.path().join("rollouts/2.jsonl")).unwrap());
    let (code, text, _) = audit(folder.path(), "");
    assert!(code == 4 && text.contains("step 5: 1 rewards are not finite"), "{text}");
    assert!(text.contains("step 2 is in 2 (1).jsonl, 2.jsonl: a copy, or two runs"), "{text}");
}

#[test]
fn partial_credit_is_not_called_a_length_penalty() {
    let folder = tempfile::tempdir().unwrap();
    let asked = |plant: fn(&mut Value)| {
        let mut lines = verl_lines();
        lines.iter_mut().for_each(plant);
        write(folder.path(), &lines);
        let path = folder.path().join("job.json");
        let mut config: Value = files::read_json(&path).unwrap();
        config["reward"]["reward_kwargs"]["overlong_buffer_cfg"]["enable"] = json!(false);
        files::write_json(&path, &config).unwrap();
        let (_, text, talk) = audit(folder.path(), "");
        (text.contains("length-penalty: "), talk.contains("partial credit, or a penalty"))
    };
    // Wrong responses with a number get a little.
    let partial = |line: &mut Value| {
        let is_right = line["score"].as_f64().unwrap() > 0.0;
        let some = line["output"].as_str().unwrap().len().is_multiple_of(2);
        line["score"] = json!(if is_right {
            1.0
        } else if some {
            0.1
        } else {
            0.0
        });
    };
    assert_eq!(asked(partial), (false, true));
    let punished = |line: &mut Value| {
        let is_right = line["score"].as_f64().unwrap() > 0.0;
        let long = line["output"].as_str().unwrap().len() as f64 / 1000.0;
        line["score"] = json!(if is_right { 1.0 - long } else { -1.0 });
    };
    assert_eq!(asked(punished), (true, false));
}

#[test]
fn a_folder_of_something_else_is_refused_with_what_is_read() {
    let folder = tempfile::tempdir().unwrap();
    files::write_atomic(&folder.path().join("x/1.jsonl"), b"{\"step\": 1, \"input\": \"q\"}\n")
        .unwrap();
    let run = |engine: &str, name: &str| dapo_in(folder.path(), &["engine", "audit", engine, name]);
    failed(run("verl", "nowhere"), 3, "nowhere");
    failed(run("trl", "x"), 3, "it has neither verl's N.jsonl (rollout_data_dir) nor TRL's");
    failed(run("verl", "x"), 3, "x/1.jsonl: a row lacks step, prompt, response or reward");
    failed(run("native", "x"), 2, "`dapo verify` checks a run of this harness");
}
