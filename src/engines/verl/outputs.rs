//! verl's outputs in the rendered folder: `rollouts/`, `logs/`, `checkpoints/`. Source: verl 0.9.1,
//! verl/trainer/ppo/v1/trainer_base.py (`_log_rollout_data`) and verl/utils/tracking.py.
//!
//! A dump has texts of trained groups without special tokens: the arm's tokenizer gives the tokens, and a
//! text shorter than L_max is taken to have ended with a stop token. verl's token count checks this.

use crate::algorithm::{DynamicSampling, Punishment};
use crate::base::files;
use crate::engines::dump::{self, DumpedResponse};
use crate::engines::following::Following;
use crate::engines::imported::{Outputs, ReadStep};
use crate::engines::rendered::{self, RenderedPrompt};
use crate::engines::{EngineError, process::Running, verl::settings};
use crate::experiment::{Engine, Experiment};
use crate::policy::optimizer;
use crate::training::{Metrics, run::inputs::Inputs};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Largest differences of a step's tokens, ours and verl's, and of one response as a share of L_max: sampled tokens are
/// not always those that the tokenizer gives.
const TOKENS_DIFFER: f64 = 0.02;
const EXTREMES_DIFFER: f64 = 0.1;

/// A line of `rollouts/N.jsonl`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VerlResponse {
    input: String,
    output: String,
    gts: String,
    /// Includes the length penalty.
    score: f64,
    step: u64,
    /// `GROUP_SAMPLE_TURN`.
    uid: String,
}

/// A line of `logs/K.jsonl`; null is not finite, validation has texts.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct VerlMetrics {
    step: u64,
    data: BTreeMap<String, Value>,
}

pub struct VerlOutputs<'a> {
    inputs: &'a Inputs,
    folder: PathBuf,
    /// (text, answer) → training problem.
    problems: BTreeMap<(String, String), usize>,
    following: Following,
}

impl<'a> VerlOutputs<'a> {
    /// A folder of [`super::render`]. With a process the outputs may grow.
    pub fn open(
        inputs: &'a Inputs,
        folder: &Path,
        running: Option<Running>,
    ) -> Result<Self, EngineError> {
        let (rendered, places) = RenderedPrompt::read(inputs, folder)?;
        // verl decodes prompts without special tokens.
        let text = |prompt: &RenderedPrompt| inputs.tokenizer.decode(&prompt.tokens);
        let key = |prompt: &RenderedPrompt| (text(prompt), prompt.answer.clone());
        let problems = rendered.iter().map(key).zip(places).collect();
        let following = Following::new(Engine::Verl, running, folder, "logs");
        Ok(Self { inputs, folder: folder.to_path_buf(), problems, following })
    }

    fn responses(&self, step: u64) -> Result<(Vec<DumpedResponse>, Vec<f64>), EngineError> {
        let path = dump_of(&self.folder, step);
        let lines: Vec<VerlResponse> = files::read_data_lines(&path)?;
        let refused = |line: usize, what: String| {
            let reason = format!("line {}: {what}", line + 1);
            EngineError::Output { path: path.clone(), reason }
        };
        let mut groups: BTreeMap<String, u64> = BTreeMap::new();
        let mut draws = self.draws(step);
        let (mut responses, mut scores) = (Vec::with_capacity(lines.len()), Vec::new());
        let mut uids = BTreeSet::new();
        for (line, response) in lines.into_iter().enumerate() {
            let VerlResponse { input, output, gts, score, step: of, uid } = response;
            if of != step {
                return Err(refused(line, format!("its step is {of}")));
            }
            let mut parts = uid.rsplitn(3, '_');
            let (turn, _sample, group) = (parts.next(), parts.next(), parts.next());
            let Some(group) = group.filter(|_| turn == Some("0")) else {
                return Err(refused(line, format!("uid {uid}: expected GROUP_SAMPLE_0")));
            };
            if !uids.insert(uid.clone()) {
                let what = format!("uid {uid} is in an earlier line, too; a response counts once");
                return Err(refused(line, what));
            }
            let Some(&problem) = self.problems.get(&(input.clone(), gts.clone())) else {
                let what = format!("no rendered prompt is {input:?} with the answer {gts:?}");
                return Err(refused(line, what));
            };
            let next = groups.len();
            let group = match groups.get(group) {
                Some(number) => *number,
                None => {
                    let id = &self.inputs.data.train[problem].id;
                    let number = place(&mut draws, problem, next)
                        .ok_or_else(|| refused(line, format!("this step does not draw {id}")))?;
                    groups.insert(group.to_string(), number);
                    number
                }
            };
            let tokens = tokens(self.inputs, &output)?;
            scores.push(score);
            let score = correctness(score, &self.inputs.experiment);
            let batch = responses.len() as u64;
            responses.push(DumpedResponse { group, batch, problem, tokens, score });
        }
        Ok((responses, scores))
    }

    /// In the order of training; `None` where Dynamic Sampling chooses draws.
    fn draws(&self, step: u64) -> Option<Vec<Option<usize>>> {
        let experiment = &self.inputs.experiment;
        let prompts = experiment.training.prompts_per_step;
        let all = || rendered::drawn(self.inputs, step * prompts).into_iter().map(Some);
        let of_step = || all().skip(((step - 1) * prompts) as usize).collect();
        experiment.records_every_group().then(of_step)
    }

    fn same_tokens(
        &self,
        step: u64,
        responses: &[DumpedResponse],
        log: &VerlMetrics,
    ) -> Result<f64, EngineError> {
        let path = dump_of(&self.folder, step);
        let Some(mean) = log.data.get("response_length/mean").and_then(Value::as_f64) else {
            let reason = format!("logs: step {step} has no response_length/mean");
            return Err(EngineError::Output { path, reason });
        };
        let theirs = mean * responses.len() as f64;
        let ours: f64 = responses.iter().map(|it| it.tokens.len() as f64).sum();
        let difference = (ours - theirs) / theirs;
        if difference.abs() > TOKENS_DIFFER {
            let reason = format!(
                "its texts have {ours} tokens under the arm's tokenizer, stop tokens included; verl \
                 counted {theirs}: is it another tokenizer?"
            );
            return Err(EngineError::Output { path, reason });
        }
        Ok(difference)
    }

    fn same_extremes(
        &self,
        step: u64,
        (scores, lengths): (&[f64], &[f64]),
        log: &VerlMetrics,
    ) -> Result<(), EngineError> {
        let allowed = EXTREMES_DIFFER * self.inputs.experiment.rollout.max_response_tokens as f64;
        let [_, most, least] = dump::spread(lengths);
        let lengths =
            [("response_length/max", most, allowed), ("response_length/min", least, allowed)];
        let numbers = [&of_scores(scores)[..], &lengths].concat();
        let logged = |name: &str| log.data.get(name).and_then(Value::as_f64);
        let path = dump_of(&self.folder, step);
        let refused = |reason| Err(EngineError::Output { path, reason });
        dump::differing(scores.len(), &numbers, logged).map_or(Ok(()), refused)
    }
}

pub fn of_scores(scores: &[f64]) -> [(&'static str, f64, f64); 3] {
    let [mean, most, least] = dump::spread(scores);
    let size = most.abs().max(least.abs()).max(1.0) * dump::SCORES_DIFFER;
    [
        ("critic/score/mean", mean, size),
        ("critic/score/max", most, size),
        ("critic/score/min", least, size),
    ]
}

/// That of its problem among the draws, or the next.
fn place(draws: &mut Option<Vec<Option<usize>>>, problem: usize, next: usize) -> Option<u64> {
    let Some(draws) = draws else { return Some(next as u64) };
    let at = draws.iter().position(|drawn| *drawn == Some(problem))?;
    draws[at] = None;
    Some(at as u64)
}

fn dump_of(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("rollouts/{step}.jsonl"))
}

/// Cut at L_max; with a stop token where there is room.
fn tokens(inputs: &Inputs, text: &str) -> Result<Vec<u32>, EngineError> {
    let limit = inputs.experiment.rollout.max_response_tokens as usize;
    let mut tokens = inputs.tokenizer.encode(text)?;
    tokens.truncate(limit);
    if tokens.len() < limit {
        tokens.push(inputs.tokenizer.stop_tokens()[0]);
    }
    Ok(tokens)
}

/// ±1; the length penalty is less than 2.
fn correctness(score: f64, experiment: &Experiment) -> f64 {
    match experiment.dapo.overlong.punishment {
        Punishment::None {} => score,
        Punishment::Soft { .. } if score > -1.0 => 1.0,
        Punishment::Soft { .. } => -1.0,
    }
}

/// The inner error is what is missing. A later process's log counts.
fn complete(
    folder: &Path,
    experiment: &Experiment,
    step: u64,
) -> Result<Result<VerlMetrics, String>, EngineError> {
    let rows = experiment.training.prompts_per_step * experiment.rollout.group_size;
    let path = dump_of(folder, step);
    if !path.is_file() {
        return Ok(Err(path.display().to_string()));
    }
    let every = settings::save_every(experiment);
    let saves = step == experiment.training.rollout_steps || step.is_multiple_of(every);
    if saves && policy(folder, step).is_none() {
        return Ok(Err(format!(
            "weights of Hugging Face's layout in checkpoints/global_step_{step}, complete by \
             checkpoints/latest_checkpointed_iteration.txt"
        )));
    }
    if let Some(cut) = dump::cut_line(&path)? {
        return Ok(Err(cut));
    }
    let lines = files::read_text(&path)?.lines().count() as u64;
    if lines < rows {
        return Ok(Err(format!("lines in {}, which has {lines} of {rows}", path.display())));
    }
    let mut found = None;
    let mut names = files::list(&folder.join("logs"))?;
    names.sort_by_key(|name| (name.len(), name.clone()));
    let mut missing = format!("a line of step {step} in a file of logs");
    for name in names.iter().filter(|name| name.ends_with(".jsonl")) {
        let path = folder.join("logs").join(name);
        let lines: Vec<VerlMetrics> = files::complete_lines(&path)?;
        // Validation has own lines: of step 0 and of the resumed step.
        let trained = |line: &VerlMetrics| {
            line.data.keys().any(|key| !key.starts_with("val") && key != "timing_s/testing")
        };
        found = lines.into_iter().rfind(|line| line.step == step && trained(line)).or(found);
        missing = dump::cut_line(&path)?.unwrap_or(missing);
    }
    Ok(found.ok_or(missing))
}

impl Outputs for VerlOutputs<'_> {
    fn step(&mut self, step: u64) -> Result<ReadStep, EngineError> {
        let experiment = &self.inputs.experiment;
        let log = self.following.until(step, || complete(&self.folder, experiment, step))?;
        if step == experiment.training.rollout_steps {
            let own = (1..=step).map(|step| dump_of(&self.folder, step)).collect();
            let others = dump::others(&self.folder.join("rollouts"), &own)?;
            others.iter().for_each(|what| tracing::warn!("{what}"));
        }
        let (responses, scores) = self.responses(step)?;
        let difference = self.same_tokens(step, &responses, &log)?;
        let lengths: Vec<f64> = responses.iter().map(|it| it.tokens.len() as f64).collect();
        let path = dump_of(&self.folder, step);
        let refused = |reason: String| EngineError::Output { path: path.clone(), reason };
        let groups = dump::groups(self.inputs, responses, &path)?;
        self.same_extremes(step, (&scores, &lengths), &log)?;
        let filters = experiment.dapo.dynamic_sampling != (DynamicSampling::None {});
        let dapo = &experiment.dapo;
        let useless = groups.iter().find(|group| !dapo.rules().is_useful(group, dapo));
        if let Some(group) = useless.filter(|_| filters) {
            let (correct, problem) = (group.correct(), &group.prompt.problem.id);
            let all = group.rollouts.len();
            return Err(refused(format!(
                "a group of problem {problem} trained with {correct} of {all} responses correct, and \
                 Dynamic Sampling is asked for"
            )));
        }
        let next = optimizer::learning_rate(&experiment.optimizer, step);
        let mut metrics = metrics(&log, next).map_err(refused)?;
        metrics.insert("engine/retokenised_difference".to_string(), difference);
        let engine_seconds = log.data.get("timing_s/step").and_then(Value::as_f64);
        let engine_seconds = engine_seconds.unwrap_or_default();
        Ok(ReadStep { groups, metrics, engine_seconds })
    }

    fn begins(&self) -> Result<(), EngineError> {
        self.following.until(1, || complete(&self.folder, &self.inputs.experiment, 1)).map(drop)
    }

    fn policy(&self, step: u64) -> Option<PathBuf> {
        policy(&self.folder, step)
    }

    fn resumes_at(&self, step: u64) -> bool {
        self.folder.join(format!("checkpoints/global_step_{step}/data.pt")).is_file()
    }
}

/// Hugging Face layout: from verl, or from its `model_merger`.
fn policy(folder: &Path, step: u64) -> Option<PathBuf> {
    let checkpoint = folder.join(format!("checkpoints/global_step_{step}"));
    // verl writes this number after the whole checkpoint.
    let newest = folder.join("checkpoints/latest_checkpointed_iteration.txt");
    let newest: u64 = files::read_text(&newest).ok()?.trim().parse().ok()?;
    let places = [checkpoint.join("actor/huggingface"), checkpoint.join("merged")];
    let has_weights = |place: &PathBuf| {
        files::list(place).is_ok_and(|all| all.iter().any(|name| name.ends_with(".safetensors")))
    };
    places.into_iter().find(has_weights).filter(|_| newest >= step)
}

/// `next`: rate of the next step, which verl logs with this one.
fn metrics(log: &VerlMetrics, next: f64) -> Result<Metrics, String> {
    let step = log.step;
    let value = |name: &str| {
        let number = |value: &Value| {
            value.as_f64().ok_or_else(|| format!("logs: step {step}: {name} is {value}"))
        };
        log.data.get(name).map(number).transpose()
    };
    let rate = value("actor/lr")?;
    if !rate.is_some_and(|rate| (rate - next).abs() <= 1e-6 * next) {
        return Err(format!("logs: step {step}: actor/lr is {rate:?}, the arm's next is {next}"));
    }
    let mut metrics = Metrics::new();
    for (theirs, ours) in &settings::KEYS.metrics {
        if log.data.get(theirs).is_some_and(Value::is_null) {
            tracing::warn!("logs: step {step}: {theirs} is not finite; the step has no {ours}");
            continue;
        }
        metrics.extend(value(theirs)?.map(|value| (ours.clone(), value)));
    }
    Ok(metrics)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_number_that_is_not_finite_is_absent_and_a_text_is_refused() {
        let log = |norm: Value| VerlMetrics {
            step: 1,
            data: [
                ("actor/lr".to_string(), json!(0.5)),
                ("actor/grad_norm".to_string(), norm),
                ("actor/pg_loss".to_string(), json!(0.25)),
            ]
            .into(),
        };
        let read = metrics(&log(Value::Null), 0.5).unwrap();
        assert_eq!(read, Metrics::from([("engine/loss".to_string(), 0.25)]));
        assert_eq!(metrics(&log(json!(2.0)), 0.5).unwrap().len(), 2);
        assert!(metrics(&log(json!("x")), 0.5).unwrap_err().contains("actor/grad_norm"));
    }
}
