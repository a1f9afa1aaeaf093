//! A made-up run folder with the shape of a real one: 40 rollout steps in which a policy moves
//! from guessing to careful solutions. Everything is a function of its arguments.

use dapo::base::rng::{Id, Stream, stream};
use dapo::base::{Purpose, files};
use dapo::experiment::Experiment;
use dapo::records::Outcome;
use dapo::records::{
    Counters, Ending, Environment, EvaluationRecord, Manifest, RolloutRow, RunFolder, Session,
    StepMetrics, StepTimings, tables,
};
use dapo::statistics::{Sample, estimators};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// Text that must never reach a page, a terminal or a table unescaped.
pub const HOSTILE: &str = "<script>alert(1)</script>\u{1b}[2J\u{202e}|`` ` **b** [x](http://evil.example)\n\
                           ![i](https://evil.example/p.png) </pre><img src=x onerror=y>";

pub const STEPS: u64 = 40;

/// A finished run in `root`.
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
    let mut digests = BTreeMap::new();
    let weights = "checkpoints/step-000040/model.safetensors";
    files::write_atomic(&run.path(weights), b"weights").unwrap();
    for name in ["metrics.jsonl", "evaluations.jsonl", weights] {
        digests.insert(name.to_owned(), files::sha256_file(&run.path(name)).unwrap());
    }
    for folder in ["evaluations", "rollouts"] {
        for name in files::list(&run.path(folder)).unwrap() {
            let name = format!("{folder}/{name}");
            let digest = files::sha256_file(&run.path(&name)).unwrap();
            digests.insert(name, digest);
        }
    }
    let outcome = Outcome {
        ending: Ending::Finished,
        not_finite: None,
        reason: "all rollout steps were done".to_owned(),
        counters: counters(STEPS),
        digests,
    };
    files::write_json(&run.path("outcome.json"), &outcome).unwrap();
    let session = Session {
        from_step: 0,
        changed: BTreeMap::new(),
        started_ms: Some(ended_ms(0)),
        ended_ms: Some(ended_ms(STEPS + 1)),
    };
    files::write_lines(&run.path("sessions.jsonl"), &[session]).unwrap();
    run
}

/// A run that has written its identity and nothing else.
pub fn started(root: &Path) -> RunFolder {
    let run = RunFolder::at(root);
    files::write_json(&run.path("experiment.json"), &experiment()).unwrap();
    let manifest = Manifest {
        harness: "0.1.0".to_owned(),
        name: "dapo".to_owned(),
        arm_sha256: files::sha256(files::canonical_json_line(&experiment().arm()).as_bytes()),
        seed: 1,
        run_key: files::sha256(b"run"),
        exactness: "exact-here".to_owned(),
        inputs: ["base/model.safetensors", "data/mini-aime", "data/train", "tokenizer"]
            .into_iter()
            .map(|name| (name.to_owned(), files::sha256(name.as_bytes())))
            .collect(),
    };
    files::write_json(&run.path("manifest.json"), &manifest).unwrap();
    let facts =
        [("cpu", "an example CPU"), ("libtorch", "2.11.0"), ("threads", "2"), ("hostile", HOSTILE)];
    let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned()));
    files::write_json(&run.path("environment.json"), &Environment { facts: facts.into() }).unwrap();
    run
}

pub fn experiment() -> Experiment {
    let value = json!({
        "name": "dapo",
        "numerics": "fast",
        "inputs": { "model": "golden/mini-aime/base", "data": { "kind": "mini-aime", "variant": "standard" } },
        "execution": { "seed": 1, "threads": 2, "micro_batch_rollouts": 64, "generation_batch_rollouts": 256 },
        "prompt": { "template": "question" },
        "rollout": {
            "prompts_per_round": 32, "group_size": 8, "max_prompt_tokens": 24, "max_response_tokens": 160,
            "sampling": { "temperature": 1.0, "top_p": 1.0, "top_k": 0 }
        },
        "reward": { "verifier": "answer-line" },
        "dapo": {
            "clip": { "low": 0.2, "high": 0.28 },
            "aggregation": "token-mean",
            "token_mean_unit": "mini-batch",
            "advantage": { "std": "sample", "epsilon": 1e-6 },
            "dynamic_sampling": { "kind": "resample", "max_rounds": 4, "at_cap": "train", "surplus": "discard" },
            "overlong": {
                "filter": false,
                "punishment": { "kind": "soft", "cache_tokens": 32, "factor": 1.0, "beyond": "clamped" }
            },
            "dual_clip": { "kind": "none" },
            "log_ratio_clamp": { "kind": "none" },
            "kl": { "kind": "none" }
        },
        "training": {
            "rollout_steps": STEPS, "prompts_per_step": 32, "mini_batch_rollouts": 64, "epochs_per_step": 1,
            "mini_batch_order": "shuffled-groups"
        },
        "checkpoints": { "every_steps": 5, "keep_last": 2, "keep_every": 20 },
        "optimizer": {
            "learning_rate": 2e-4, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.1,
            "max_gradient_norm": 1.0, "warm_up": { "rollout_steps": 5, "start": "first-step" }
        },
        "evaluation": {
            "sampling": { "temperature": 1.0, "top_p": 0.7, "top_k": 0 },
            "every_steps": 10, "during_training": ["dev"], "samples": { "dev": 4, "mini-aime": 32 }
        }
    });
    serde_json::from_value(value).unwrap()
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
    let mut draw = draws("metrics", &[step]);
    let mut noise = |size: f64| size * (draw.uniform() - 0.5);
    let (skill, late) = (skill(step), step as f64 / STEPS as f64);
    let accuracy = (skill + noise(0.05)).clamp(0.0, 1.0);
    let solved = (skill * skill * 0.7 + noise(0.06)).clamp(0.0, 1.0);
    let unsolved = ((1.0 - skill).powi(3) * 0.5 + noise(0.04)).clamp(0.0, 1.0);
    let length = 22.0 + 60.0 * skill + noise(4.0);
    let style = [
        ("guess", 0.45 * (1.0 - skill)),
        ("careful", 0.9 * skill * late),
        ("ramble", 0.1 * (1.0 - late)),
    ];
    let mut metrics: BTreeMap<String, f64> = [
        ("rollout/reward_mean", 2.0 * accuracy - 1.04),
        ("rollout/accuracy", accuracy),
        ("rollout/response_tokens_mean", length),
        ("rollout/response_tokens_max", 160.0),
        ("rollout/truncated_share", (0.1 * (1.0 - late) + noise(0.01)).max(0.0)),
        ("rollout/groups_all_correct_share", solved),
        ("rollout/groups_all_wrong_share", unsolved),
        ("rollout/groups_useful_share", (1.0 - solved - unsolved).max(0.0)),
        ("rollout/rounds", 1.0 + (3.0 * solved).floor()),
        ("rollout/generated_rollouts", 256.0 * (1.0 + (3.0 * solved).floor())),
        ("rollout/generated_tokens", (256.0 * length).round()),
        ("rollout/punished_share", 0.04 * (1.0 - late)),
        ("train/reward_mean", 1.1 * accuracy - 0.52),
        ("train/accuracy", 0.25 + 0.5 * accuracy),
        ("train/response_tokens_mean", length * 1.08),
        ("train/response_tokens_max", 160.0),
        ("train/truncated_share", 0.12 * (1.0 - late)),
        ("train/rollouts", 256.0),
        ("train/masked_rollouts", 0.0),
        ("policy/entropy", 0.30 - 0.17 * late + 0.08 * late * late + noise(0.02)),
        ("policy/token_probability_mean", 0.84 + 0.07 * late + noise(0.008)),
        ("policy/mismatch_mean", 2e-7 + noise(1e-8)),
        ("policy/mismatch_max", 4e-6 + noise(1e-6)),
        ("loss/value", noise(0.05)),
        ("loss/clip_fraction_low", 0.0013 + noise(0.001)),
        ("loss/clip_fraction_high", 0.0021 + noise(0.001)),
        ("loss/approx_kl", 0.0007 + noise(0.0004)),
        ("optimizer/gradient_norm_mean", 0.5 - 0.2 * late + noise(0.2)),
        ("optimizer/gradient_norm_max", 0.8 - 0.2 * late + noise(0.3)),
        ("optimizer/learning_rate", 2e-4 * (step as f64 / 5.0).min(1.0)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    // The mean of nothing does not exist: steps without an up-clipped token leave it out.
    if step > 3 {
        metrics.insert("loss/up_clipped_probability_mean".to_owned(), 0.15 + noise(0.1));
    }
    metrics.extend(effects(accuracy, solved, unsolved, late));
    for (name, share) in style {
        metrics.insert(format!("rollout/style_{name}_share"), share);
    }
    let used: f64 = style.iter().map(|(_, share)| share).sum();
    metrics.insert("rollout/style_steps_share".to_owned(), 1.0 - used);
    let record = StepMetrics { step, counters: counters(step), metrics };
    files::append_line(&run.path("metrics.jsonl"), &record).unwrap();
    record_timings(run, step);
}

/// What each technique did in a step of full DAPO.
fn effects(accuracy: f64, solved: f64, unsolved: f64, late: f64) -> BTreeMap<String, f64> {
    let rounds = 1.0 + (3.0 * solved).floor();
    let punished = (256.0 * rounds * 0.04 * (1.0 - late)).round();
    let longest = 1.9 - 0.4 * accuracy;
    [
        ("rollout/groups", 32.0 * rounds),
        ("effect/loss_tokens", 15_000.0),
        ("effect/clip_higher_let_through_tokens", (22.0 * (1.0 - 0.5 * late)).round()),
        ("effect/clip_higher_let_through_share", (22.0 * (1.0 - 0.5 * late)).round() / 15_000.0),
        ("effect/clip_higher_clipped_above_tokens", 31.0),
        ("effect/dynamic_sampling_dropped_all_correct_groups", (32.0 * rounds * solved).round()),
        ("effect/dynamic_sampling_dropped_all_wrong_groups", (32.0 * rounds * unsolved).round()),
        ("effect/dynamic_sampling_dropped_share", solved + unsolved),
        ("effect/dynamic_sampling_refill_rounds", rounds - 1.0),
        ("effect/dynamic_sampling_discarded_surplus_groups", 3.0),
        ("effect/dynamic_sampling_carried_surplus_groups", 0.0),
        ("effect/dynamic_sampling_trained_useless_groups", 0.0),
        ("effect/dynamic_sampling_batch_filled_share", 1.0),
        ("effect/overlong_filtering_truncated_rollouts", (30.0 * (1.0 - late)).round()),
        ("effect/overlong_filtering_masked_rollouts", 0.0),
        ("effect/overlong_filtering_masked_tokens", 0.0),
        ("effect/soft_punishment_punished_rollouts", punished),
        ("effect/soft_punishment_punished_share", punished / (256.0 * rounds)),
        ("effect/soft_punishment_penalty_sum", -0.75 * punished),
        ("effect/soft_punishment_due_rollouts", punished),
        ("effect/soft_punishment_moved_advantages", 3.0 * punished),
        ("effect/token_level_loss_moved_share_mean", 0.18 - 0.05 * late),
        ("effect/token_level_loss_moved_share_max", 0.22),
        ("effect/token_level_loss_longest_quarter_weight", longest),
        ("effect/token_level_loss_shortest_quarter_weight", 0.4 + 0.1 * late),
        ("loss/ratio_max", 1.9),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// The end of a rollout step on the made-up clock: 12 seconds a step from 20 November 2026 on.
fn ended_ms(step: u64) -> u64 {
    1_795_161_600_000 + 12_000 * step
}

fn record_timings(run: &RunFolder, step: u64) {
    let phases = [
        ("generation", 5.2),
        ("grading", 0.02),
        ("old_log_probs", 0.8),
        ("update", 3.1),
        ("total", 9.4),
    ];
    let seconds = phases
        .map(|(phase, seconds)| (phase.to_owned(), seconds * (1.0 + step as f64 / STEPS as f64)));
    let timings = StepTimings { step, seconds: seconds.into(), ended_ms: Some(ended_ms(step)) };
    files::append_line(&run.path("timings.jsonl"), &timings).unwrap();
}

/// Writes the outcomes of a set and appends its record.
pub fn evaluate(run: &RunFolder, set: &str, step: u64, problems: u64, samples: u32) {
    let mut rows = Vec::new();
    for problem in 0..problems {
        let hardness = draws(set, &[problem]).uniform();
        let mut draw = draws(set, &[problem, step]);
        for sample in 0..samples {
            let chance = (skill(step) * 1.05 + 0.33 - hardness).clamp(0.0, 0.98);
            let (is_correct, fate) = (draw.uniform() < chance, draw.uniform());
            let truncated = !is_correct && fate < 0.12 * (1.0 - step as f64 / 60.0);
            let answer = (137 * problem + 11) % 1000;
            let wrong = 100 + (fate * 7.0) as u64;
            let prediction = match (is_correct, truncated) {
                (true, _) => Some(answer.to_string()),
                (false, true) => None,
                (false, false) => (fate < 0.93).then(|| wrong.to_string()),
            };
            rows.push(tables::OutcomeRecord {
                problem: format!("{set}/{problem:03}"),
                sample,
                is_correct,
                response_tokens: if truncated { 160 } else { 20 + (fate * 90.0) as u32 },
                truncated,
                prediction,
                answer: answer.to_string(),
                response: "…".to_owned(),
            });
        }
    }
    let path = run.outcomes(set, step);
    tables::write_outcomes(&path, &rows).unwrap();
    let sample = |row: &tables::OutcomeRecord| Sample {
        is_correct: row.is_correct,
        prediction: row.prediction.clone(),
    };
    let grouped: Vec<Vec<Sample>> =
        rows.chunks(samples as usize).map(|rows| rows.iter().map(sample).collect()).collect();
    let summary = estimators::summary(&grouped).unwrap();
    let mean = |value: &dyn Fn(&tables::OutcomeRecord) -> f64| {
        rows.iter().map(value).sum::<f64>() / rows.len() as f64
    };
    let record = EvaluationRecord {
        counters: counters(step),
        set: set.to_owned(),
        problems: summary.problems,
        samples: summary.samples,
        avg_at_k: summary.avg_at_k,
        standard_error_fixed_problems: summary.standard_error_fixed_problems,
        standard_error_new_problems: summary.standard_error_new_problems,
        pass_at_k: summary.pass_at_k,
        cons_at_k: summary.cons_at_k,
        truncated_share: mean(&|row| f64::from(row.truncated)),
        response_tokens_mean: mean(&|row| f64::from(row.response_tokens)),
        outcomes_sha256: files::sha256_file(&path).unwrap(),
    };
    files::append_line(&run.path("evaluations.jsonl"), &record).unwrap();
}

/// Six groups of four: correct, wrong and truncated responses, one of them hostile.
pub fn rollouts(step: u64) -> Vec<RolloutRow> {
    let mut rows = Vec::new();
    for group in 0..6u32 {
        for sample in 0..4u32 {
            let (is_correct, truncated) = (sample == group % 4, sample == 3 && group >= 3);
            let response = match (is_correct, truncated) {
                (_, true) => "18+31=49;49+86=135;".repeat(60),
                (true, _) => "418+231=649;649*3=1947;1947 mod 1000=947;Answer: 947".to_owned(),
                _ if group == 2 => format!("Answer: {HOSTILE}"),
                _ => "Answer: 20".to_owned(),
            };
            let correctness_reward = if is_correct { 1.0 } else { -1.0 };
            let overlong_penalty = if truncated { -1.0 } else { 0.0 };
            let count = response.chars().count().min(160) as u32;
            rows.push(RolloutRow {
                group,
                problem: format!("train/{:05}", 97 * group + step as u32),
                question: "418+231*3?".to_owned(),
                answer: "947".to_owned(),
                attempt: 0,
                sample,
                trained: group != 5,
                is_correct,
                prediction: (!truncated)
                    .then(|| if is_correct { "947".into() } else { "20".into() }),
                reward: correctness_reward + overlong_penalty,
                correctness_reward,
                overlong_penalty,
                advantage: if is_correct { 1.5 } else { -0.5 },
                truncated,
                tokens: (0..count).collect(),
                rollout_log_probs: vec![-0.25; count as usize],
                response,
            });
        }
    }
    rows
}
