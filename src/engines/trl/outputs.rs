//! Outputs of the rendered script: `rollouts/`, `log.jsonl`, `policies/`.

use crate::algorithm::{Finish, Group, ScoredRollout};
use crate::base::files;
use crate::engines::dump::{self, DumpedResponse};
use crate::engines::following::Following;
use crate::engines::imported::{Outputs, ReadStep};
use crate::engines::rendered::{self, RenderedPrompt};
use crate::engines::trl::settings;
use crate::engines::{EngineError, process::Running};
use crate::experiment::Engine;
use crate::policy::optimizer;
use crate::training::{Metrics, run::inputs::Inputs};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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
        rendered::updates_of_step(&self.inputs.experiment)
    }

    fn rollouts(&self, step: u64) -> Vec<PathBuf> {
        (0..self.processes).map(|rank| self.rollouts_of(step, rank)).collect()
    }

    fn rollouts_of(&self, step: u64, rank: u64) -> PathBuf {
        self.folder.join(format!("rollouts/step-{step:06}-rank-{rank}.jsonl"))
    }

    fn updates(&self, step: u64) -> Result<Vec<TrlUpdate>, EngineError> {
        let count = self.updates_per_step();
        let path = self.folder.join("log.jsonl");
        let lines: Vec<TrlUpdate> = files::complete_lines(&path)?;
        let mut own = BTreeMap::new();
        for (at, line) in (1..).zip(lines) {
            let update = line.update;
            let what = match update.checked_sub(1) {
                None => "there is no update 0, they count from 1".to_string(),
                Some(before) if before / count + 1 != step => continue,
                Some(_) => match own.insert(update, (at, line)) {
                    None => continue,
                    Some((first, _)) => format!(
                        "update {update} has line {first}, too: the log was appended twice, or is of two runs; keep \
                         the lines of the run that made the rollouts"
                    ),
                },
            };
            return Err(EngineError::Output { path, reason: format!("line {at}: {what}") });
        }
        Ok(own.into_values().map(|(_, line)| line).collect())
    }

    fn complete(&self, step: u64) -> Result<Result<Vec<TrlUpdate>, String>, EngineError> {
        for path in self.rollouts(step) {
            if !path.is_file() {
                return Ok(Err(path.display().to_string()));
            }
            if let Some(cut) = dump::cut_line(&path)? {
                return Ok(Err(cut));
            }
        }
        let log = self.updates(step)?;
        let (count, updates) = (log.len() as u64, self.updates_per_step());
        if count != updates {
            let path = self.folder.join("log.jsonl");
            let cut = if path.is_file() { dump::cut_line(&path)? } else { None };
            let missing =
                format!("updates in log.jsonl, which has {count} of this step's {updates}");
            return Ok(Err(cut.unwrap_or(missing)));
        }
        let own = &self.inputs.experiment;
        let every = own.checkpoints.every_steps;
        let saves = step == own.training.rollout_steps || step.is_multiple_of(every);
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
            let reason = format!("--processes is {}, and more processes ran", self.processes);
            return Err(EngineError::Output { path, reason });
        }
        let drawn = self.inputs.experiment.training.prompts_per_step;
        let own = (step - 1) * drawn..step * drawn;
        for (path, batch) in self.rollouts(step).into_iter().zip(0..) {
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
                responses.push(DumpedResponse { group: prompt, batch, problem, tokens, score });
            }
        }
        Ok(responses)
    }
}

impl Outputs for TrlOutputs<'_> {
    fn step(&mut self, step: u64) -> Result<ReadStep, EngineError> {
        let log = self.following.until(step, || self.complete(step))?;
        let path = self.rollouts(step).swap_remove(0);
        let groups = dump::groups(self.inputs, self.responses(step)?, &path)?;
        let in_log = |reason| EngineError::Output { path: self.folder.join("log.jsonl"), reason };
        let before = (step > 1).then(|| self.updates(step - 1)).transpose()?;
        same_responses(&log, before.as_deref(), &groups).map_err(in_log)?;
        let experiment = &self.inputs.experiment;
        if step == experiment.training.rollout_steps {
            let own = (1..=step).flat_map(|step| self.rollouts(step)).collect();
            let others = dump::others(&self.folder.join("rollouts"), &own)?;
            others.iter().for_each(|what| tracing::warn!("{what}"));
        }
        let metrics = metrics(&log).map_err(in_log)?;
        let rate = optimizer::learning_rate(&experiment.optimizer, step - 1);
        same_rate(&log, rate).map_err(in_log)?;
        let time = |line: &TrlUpdate| line.values.get("step_time").copied().flatten();
        Ok(ReadStep { groups, metrics, engine_seconds: log.iter().filter_map(time).sum() })
    }

    fn begins(&self) -> Result<(), EngineError> {
        self.following.until(1, || self.complete(1)).map(drop)
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

/// TRL 1.16.0 logs these of a step once, over all processes, in f32; `num_tokens` is a running total that a checkpoint
/// keeps. It takes a last pad token for an end, and the outputs do not say which token that is.
fn same_responses(
    log: &[TrlUpdate],
    before: Option<&[TrlUpdate]>,
    groups: &[Group<ScoredRollout>],
) -> Result<(), String> {
    let logged = |log: &[TrlUpdate], name: &str| {
        log.iter().find_map(|it| it.values.get(name).copied().flatten())
    };
    let responses: Vec<&ScoredRollout> = groups.iter().flat_map(|it| &it.rollouts).collect();
    let of = |value: &dyn Fn(&ScoredRollout) -> f64| {
        let values: Vec<f64> = responses.iter().map(|it| value(it)).collect();
        let [mean, most, least] = dump::spread(&values);
        (mean, most, least, most.abs().max(least.abs()).max(1.0) * dump::SCORES_DIFFER)
    };
    let mut ends = BTreeMap::<Option<&u32>, f64>::new();
    for it in responses.iter().filter(|it| it.rollout.finish == Finish::Length) {
        *ends.entry(it.rollout.tokens.last()).or_default() += 1.0 / responses.len() as f64;
    }
    let padded = ends.values().fold(dump::SCORES_DIFFER, |most, share| most.max(*share));
    let (reward, _, _, rewards_differ) = of(&ScoredRollout::reward);
    let (score, _, _, scores_differ) = of(&|it| it.correctness_reward);
    let (mean, longest, shortest, lengths_differ) = of(&|it| it.rollout.tokens.len() as f64);
    let prompts = groups.iter().map(|it| it.prompt.tokens.len() * it.rollouts.len()).sum::<usize>();
    let tokens = prompts as f64 + mean * responses.len() as f64;
    let total = before.map_or(Some(0.0), |before| logged(before, "num_tokens"));
    let tokens = total.map(|total| ("num_tokens", total + tokens, 0.5));
    let numbers = [
        ("reward", reward, rewards_differ),
        ("rewards/correctness/mean", score, scores_differ),
        ("completions/mean_length", mean, lengths_differ),
        ("completions/max_length", longest, lengths_differ),
        ("completions/min_length", shortest, lengths_differ),
        ("completions/clipped_ratio", ends.values().sum(), padded),
    ];
    let numbers: Vec<_> = numbers.into_iter().chain(tokens).collect();
    let differing = dump::differing(responses.len(), &numbers, |name| logged(log, name));
    differing.map_or(Ok(()), |what| Err(format!("update {}: {what}", log[0].update)))
}

fn same_rate(log: &[TrlUpdate], rate: f64) -> Result<(), String> {
    let other = |line: &&TrlUpdate| {
        let found = line.values.get("learning_rate").copied().flatten();
        found.is_none_or(|found| (found - rate).abs() > 1e-9 * rate)
    };
    let Some(TrlUpdate { update, values }) = log.iter().find(other) else { return Ok(()) };
    let found = values.get("learning_rate");
    Err(format!("update {update}: its learning rate is {found:?}, the arm's is {rate}"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Problem, Prompt, Rollout};

    #[test]
    fn tokens_are_a_running_total_and_a_last_pad_token_counts_as_an_end() {
        let response = |tokens: &[u32], finish| {
            let rollout = Rollout::new(tokens.to_vec(), Vec::new(), finish, String::new());
            ScoredRollout { overlong_penalty: -0.5, ..ScoredRollout::new(rollout, false, -1.0) }
        };
        let rollouts = vec![
            response(&[5, 1], Finish::Stop),
            response(&[5, 5, 0], Finish::Length),
            response(&[5, 5, 5], Finish::Length),
            response(&[5, 5, 6], Finish::Length),
        ];
        let problem = Problem { id: String::new(), question: String::new(), answer: String::new() };
        let prompt = Prompt { problem, tokens: vec![7; 4] };
        let groups = [Group { prompt, attempt: 0, rollouts }];
        let line = |update: u64, values: &[(&str, f64)]| TrlUpdate {
            update,
            values: values.iter().map(|(name, value)| (name.to_string(), Some(*value))).collect(),
        };
        let before = [line(1, &[("num_tokens", 100.0)]), line(2, &[])];
        for (values, before, expected) in [
            (&[("num_tokens", 27.0), ("reward", -1.5)][..], None, None),
            (&[("num_tokens", 127.0), ("rewards/correctness/mean", -1.0)], Some(&before[..]), None),
            (&[("num_tokens", 27.0)], Some(&before[..]), Some("num_tokens 127, and")),
            (&[("num_tokens", 9.0)], Some(&before[1..]), None),
            (&[("completions/clipped_ratio", 0.5)], None, None),
            (&[("completions/clipped_ratio", 0.25)], None, Some("completions/clipped_ratio 0.75")),
            (&[("reward", -1.0)], None, Some("update 3: its 4 responses give reward -1.5, and")),
        ] {
            let found = same_responses(&[line(3, values), line(4, &[])], before, &groups).err();
            let is_expected = match (&found, expected) {
                (Some(found), Some(expected)) => found.contains(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{values:?}: {found:?}");
        }
    }
}
