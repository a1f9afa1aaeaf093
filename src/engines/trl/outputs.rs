//! Outputs of the rendered script: `rollouts/`, `log.jsonl`, `policies/`.

use crate::base::files;
use crate::engines::dump::{self, DumpedResponse};
use crate::engines::following::Following;
use crate::engines::imported::{Outputs, ReadStep};
use crate::engines::rendered::RenderedPrompt;
use crate::engines::trl::settings;
use crate::engines::{EngineError, process::Running};
use crate::experiment::Engine;
use crate::policy::optimizer;
use crate::training::{Metrics, run::inputs::Inputs};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A line of `rollouts/step-N-rank-R.jsonl`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrlResponse {
    /// Index into `prompts.jsonl`.
    prompt: u64,
    /// transformers decoded it; this harness decodes `tokens` itself.
    #[serde(rename = "text")]
    _text: String,
    tokens: Vec<u32>,
    score: f64,
}

/// A line of `log.jsonl`; null is not finite.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrlUpdate {
    update: u64,
    values: BTreeMap<String, Option<f64>>,
}

pub struct TrlOutputs<'a> {
    inputs: &'a Inputs,
    folder: PathBuf,
    processes: u64,
    prompts: Vec<usize>,
    following: Following,
}

impl<'a> TrlOutputs<'a> {
    /// A folder of [`super::render`]. With a process the outputs may grow.
    pub fn open(
        inputs: &'a Inputs,
        folder: &Path,
        processes: u64,
        running: Option<Running>,
    ) -> Result<Self, EngineError> {
        let (_, prompts) = RenderedPrompt::read(inputs, folder)?;
        let following = Following::new(Engine::Trl, running, folder, "log.jsonl");
        Ok(Self { inputs, folder: folder.to_path_buf(), processes, prompts, following })
    }

    fn updates_per_step(&self) -> u64 {
        let training = &self.inputs.experiment.training;
        let rows = training.prompts_per_step * self.inputs.experiment.rollout.group_size;
        rows / training.mini_batch_rollouts
    }

    fn rollouts(&self, step: u64) -> Vec<PathBuf> {
        (0..self.processes).map(|rank| self.rollouts_of(step, rank)).collect()
    }

    fn rollouts_of(&self, step: u64, rank: u64) -> PathBuf {
        self.folder.join(format!("rollouts/step-{step:06}-rank-{rank}.jsonl"))
    }

    /// Fewer lines than updates while the step is made.
    fn updates(&self, step: u64) -> Result<Vec<TrlUpdate>, EngineError> {
        let count = self.updates_per_step();
        let path = self.folder.join("log.jsonl");
        let mut lines: Vec<TrlUpdate> = files::complete_lines(&path)?;
        if let Some(at) = lines.iter().position(|line| line.update == 0) {
            let reason = format!("line {}: there is no update 0, they count from 1", at + 1);
            return Err(EngineError::Output { path, reason });
        }
        lines.retain(|line| (line.update - 1) / count + 1 == step);
        Ok(lines)
    }

    fn complete(&self, step: u64) -> Result<Result<Vec<TrlUpdate>, String>, EngineError> {
        if let Some(path) = self.rollouts(step).into_iter().find(|path| !path.is_file()) {
            return Ok(Err(path.display().to_string()));
        }
        let log = self.updates(step)?;
        let (count, updates) = (log.len() as u64, self.updates_per_step());
        if count != updates {
            return Ok(Err(format!(
                "updates in log.jsonl, which has {count} of this step's {updates}"
            )));
        }
        let experiment = &self.inputs.experiment;
        let (steps, every) =
            (experiment.training.rollout_steps, experiment.checkpoints.every_steps);
        let saves = step == steps || (every > 0 && step.is_multiple_of(every));
        if saves && self.policy(step).is_none() {
            return Ok(Err(format!("policies/step-{step:06}")));
        }
        if saves && !self.resumes_at(step) {
            return Ok(Err(format!("trainer/checkpoint-{}/trainer_state.json", step * updates)));
        }
        Ok(Ok(log))
    }

    fn responses(&self, step: u64) -> Result<Vec<DumpedResponse>, EngineError> {
        let mut responses = Vec::new();
        let path = self.rollouts_of(step, self.processes);
        if path.is_file() {
            let count = self.processes;
            let reason = format!("--processes is {count}, and more processes ran");
            return Err(EngineError::Output { path, reason });
        }
        let drawn = self.inputs.experiment.training.prompts_per_step;
        let own = (step - 1) * drawn..step * drawn;
        for path in self.rollouts(step) {
            let lines: Vec<TrlResponse> = files::read_data_lines(&path)?;
            for (line, response) in lines.into_iter().enumerate() {
                let TrlResponse { prompt, tokens, score, .. } = response;
                let place = self.prompts.get(prompt as usize).filter(|_| own.contains(&prompt));
                let Some(&problem) = place else {
                    let (line, first, last) = (line + 1, own.start + 1, own.end);
                    let reason = format!(
                        "line {line}: prompt {prompt} is the line {} of prompts.jsonl, and this step has the lines \
                         {first} to {last}",
                        prompt.saturating_add(1)
                    );
                    return Err(EngineError::Output { path, reason });
                };
                responses.push(DumpedResponse { group: prompt, problem, tokens, score });
            }
        }
        Ok(responses)
    }
}

impl Outputs for TrlOutputs<'_> {
    fn step(&mut self, step: u64) -> Result<ReadStep, EngineError> {
        let started = Instant::now();
        let log = self.following.until(step, || self.complete(step))?;
        let path = self.rollouts(step).swap_remove(0);
        let groups = dump::groups(self.inputs, self.responses(step)?, &path)?;
        let in_log = |reason| EngineError::Output { path: self.folder.join("log.jsonl"), reason };
        let mut metrics = metrics(&log).map_err(in_log)?;
        let rate = optimizer::learning_rate(&self.inputs.experiment.optimizer, step - 1);
        same_rate(&log, rate).map_err(in_log)?;
        metrics.insert("optimizer/learning_rate".to_string(), rate);
        let time = |line: &TrlUpdate| line.values.get("step_time").copied().flatten();
        let seconds = [
            ("engine".to_string(), log.iter().filter_map(time).sum()),
            ("waiting".to_string(), started.elapsed().as_secs_f64()),
        ];
        Ok(ReadStep { groups, metrics, updates: log.len() as u64, seconds: seconds.into() })
    }

    fn policy(&self, step: u64) -> Option<PathBuf> {
        let folder = self.folder.join(format!("policies/step-{step:06}"));
        folder.is_dir().then_some(folder)
    }

    fn resumes_at(&self, step: u64) -> bool {
        let update = step * self.updates_per_step();
        self.folder.join(format!("trainer/checkpoint-{update}/trainer_state.json")).is_file()
    }
}

/// The rate of the arm's schedule is required.
fn same_rate(log: &[TrlUpdate], rate: f64) -> Result<(), String> {
    let other = |line: &&TrlUpdate| {
        let found = line.values.get("learning_rate").copied().flatten();
        found.is_none_or(|found| (found - rate).abs() > 1e-9 * rate)
    };
    match log.iter().find(other) {
        Some(TrlUpdate { update, values }) => {
            let found = values.get("learning_rate");
            Err(format!("update {update}: its learning rate is {found:?}, the arm's is {rate}"))
        }
        None => Ok(()),
    }
}

fn metrics(log: &[TrlUpdate]) -> Result<Metrics, String> {
    let mut metrics = Metrics::new();
    for (theirs, ours) in &settings::KEYS.metrics {
        let mut values = Vec::new();
        for TrlUpdate { update, values: said } in log {
            match said.get(theirs) {
                Some(Some(value)) => values.push(*value),
                Some(None) => return Err(format!("update {update}: {theirs} was not finite")),
                None => {}
            }
        }
        if values.is_empty() {
            continue;
        }
        let value = if ours.ends_with("_max") {
            values.iter().fold(f64::MIN, |most, value| most.max(*value))
        } else {
            values.iter().sum::<f64>() / values.len() as f64
        };
        metrics.insert(ours.clone(), value);
    }
    Ok(metrics)
}
