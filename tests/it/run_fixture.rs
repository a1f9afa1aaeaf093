//! A made-up run folder with the shape of a real one: 40 rollout steps in which a policy moves
//! from guessing to careful solutions. Everything is a function of its arguments; the experiment, the
//! metrics and the timings stand in `run_fixture/`.

use dapo::base::{Purpose, files, rng::Id, rng::Stream, rng::stream};
use dapo::experiment::Experiment;
use dapo::records::{
    Counters, Ending, Environment, Manifest, Outcome, RolloutRow, RunFolder, StepMetrics,
    StepTimings, tables,
};
use dapo::training::evaluation;
use std::path::Path;

/// Text that must never reach a page, a terminal or a table unescaped.
pub const HOSTILE: &str = "<script>alert(1)</script>\u{1b}[2J\u{202e}|`` ` **b** [x](http://evil.example)\n\
                           ![i](https://evil.example/p.png) </pre><img src=x onerror=y>";

pub const STEPS: u64 = 40;

/// A finished run in a folder of its own.
pub fn temporary() -> (tempfile::TempDir, RunFolder) {
    let folder = tempfile::tempdir().unwrap();
    let run = finished(folder.path());
    (folder, run)
}

pub fn finished(root: &Path) -> RunFolder {
    let run = started(root);
    for step in 1..=STEPS {
        record_step(&run, step);
    }
    for step in [0, 10, 20, 30, 40] {
        evaluate(&run, "dev", step, 64, 4);
    }
    for step in [0, 40] {
        evaluate(&run, "mini-aime", step, 30, 32);
        evaluate(&run, "mini-aime-plus", step, 256, 8);
    }
    for step in [1, 20, 40] {
        tables::write_rollouts(&run.rollouts(step), &rollouts(step)).unwrap();
    }
    let weights = "checkpoints/step-000040/model.safetensors";
    files::write_atomic(&run.path(weights), b"weights").unwrap();
    end(&run, STEPS);
    let sessions = include_str!("run_fixture/sessions.jsonl");
    files::write_atomic(&run.path("sessions.jsonl"), sessions.as_bytes()).unwrap();
    run
}

/// Writes that a run has ended after a rollout step.
pub fn end(run: &RunFolder, step: u64) {
    let outcome = Outcome {
        ending: Ending::Finished,
        not_finite: None,
        reason: "all rollout steps were done".to_owned(),
        counters: counters(step),
        digests: run.digests().unwrap(),
    };
    files::write_json(&run.path("outcome.json"), &outcome).unwrap();
}

/// A run that has written its identity and nothing else.
pub fn started(root: &Path) -> RunFolder {
    let run = RunFolder::at(root);
    files::write_json(&run.path("experiment.json"), &experiment()).unwrap();
    let inputs = ["base/model.safetensors", "data/mini-aime", "data/train", "tokenizer"];
    let manifest = Manifest {
        harness: "0.1.0".to_owned(),
        name: "dapo".to_owned(),
        arm_sha256: files::sha256(files::canonical_json_line(&experiment().arm()).as_bytes()),
        seed: 1,
        run_key: files::sha256(b"run"),
        exactness: "exact-here".to_owned(),
        inputs: inputs.map(|name| (name.to_owned(), files::sha256(name.as_bytes()))).into(),
    };
    files::write_json(&run.path("manifest.json"), &manifest).unwrap();
    let facts =
        [("cpu", "an example CPU"), ("libtorch", "2.11.0"), ("threads", "2"), ("hostile", HOSTILE)];
    let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned()));
    files::write_json(&run.path("environment.json"), &Environment { facts: facts.into() }).unwrap();
    run
}

pub fn experiment() -> Experiment {
    serde_json::from_str(include_str!("run_fixture/experiment.json")).unwrap()
}

fn counters(step: u64) -> Counters {
    Counters { generation_rounds: step * 3 / 2, rollout_steps: step, updates: step * 4 }
}

fn draws(name: &str, ids: &[u64]) -> Stream {
    let mut key = vec![Id::from(name)];
    key.extend(ids.iter().map(|id| Id::from(*id)));
    stream(7, Purpose::Generate, &key)
}

/// Skill of the made-up policy after a step, in [0, 1].
fn skill(step: u64) -> f64 {
    0.12 + 0.74 / (1.0 + (-(step as f64 - 14.0) / 5.0).exp()) - 0.04
}

/// Appends one rollout step to the metrics and the timings.
pub fn record_step(run: &RunFolder, step: u64) {
    let line = |text: &'static str| text.lines().nth(step as usize - 1).unwrap();
    let metrics: StepMetrics =
        serde_json::from_str(line(include_str!("run_fixture/metrics.jsonl"))).unwrap();
    files::append_line(&run.path("metrics.jsonl"), &metrics).unwrap();
    let timings: StepTimings =
        serde_json::from_str(line(include_str!("run_fixture/timings.jsonl"))).unwrap();
    files::append_line(&run.path("timings.jsonl"), &timings).unwrap();
}

/// Writes the outcomes of a set and appends its record.
pub fn evaluate(run: &RunFolder, set: &str, step: u64, problems: u64, samples: u32) {
    let mut rows = Vec::new();
    for problem in 0..problems {
        let hardness = draws(set, &[problem]).uniform();
        let mut draw = draws(set, &[problem, step]);
        let answer = ((137 * problem + 11) % 1000).to_string();
        for sample in 0..samples {
            let chance = (skill(step) * 1.05 + 0.33 - hardness).clamp(0.0, 0.98);
            let (is_correct, fate) = (draw.uniform() < chance, draw.uniform());
            let truncated = !is_correct && fate < 0.12 * (1.0 - step as f64 / 60.0);
            let wrong =
                (!truncated && fate < 0.93).then(|| (100 + (fate * 7.0) as u64).to_string());
            rows.push(tables::OutcomeRecord {
                problem: format!("{set}/{problem:03}"),
                sample,
                is_correct,
                response_tokens: if truncated { 160 } else { 20 + (fate * 90.0) as u32 },
                truncated,
                prediction: if is_correct { Some(answer.clone()) } else { wrong },
                answer: answer.clone(),
                response: "…".to_owned(),
                reward: None,
            });
        }
    }
    let path = run.outcomes(set, step);
    tables::write_outcomes(&path, &rows).unwrap();
    let digest = files::sha256_file(&path).unwrap();
    let record = evaluation::record(set, counters(step), &rows, digest).unwrap();
    files::append_line(&run.path("evaluations.jsonl"), &record).unwrap();
}

/// Six groups of four: correct, wrong and truncated responses, one of them hostile.
pub fn rollouts(step: u64) -> Vec<RolloutRow> {
    let row = |at: u32| {
        let (group, sample) = (at / 4, at % 4);
        let (is_correct, truncated) = (sample == group % 4, sample == 3 && group >= 3);
        let response = match (is_correct, truncated) {
            (_, true) => "18+31=49;49+86=135;".repeat(60),
            (true, _) => "418+231=649;649*3=1947;1947 mod 1000=947;Answer: 947".to_owned(),
            _ if group == 2 => format!("Answer: {HOSTILE}"),
            _ => "Answer: 20".to_owned(),
        };
        let prediction = if is_correct { "947" } else { "20" };
        let correctness_reward = if is_correct { 1.0 } else { -1.0 };
        let overlong_penalty = if truncated { -1.0 } else { 0.0 };
        let count = response.chars().count().min(160) as u32;
        RolloutRow {
            group,
            problem: format!("train/{:05}", 97 * group + step as u32),
            question: "418+231*3?".to_owned(),
            answer: "947".to_owned(),
            attempt: 0,
            sample,
            trained: group != 5,
            is_correct,
            prediction: (!truncated).then(|| prediction.to_owned()),
            reward: correctness_reward + overlong_penalty,
            correctness_reward,
            overlong_penalty,
            advantage: if is_correct { 1.5 } else { -0.5 },
            truncated,
            tokens: (0..count).collect(),
            rollout_log_probs: vec![-0.25; count as usize],
            response,
        }
    };
    (0..24).map(row).collect()
}
