//! What a run will do and how much it needs: counts ([`work`]), the base policy's responses ([`probe`]), memory and
//! disk ([`space`]). Nothing here reaches a number of the run.

pub mod work;
pub mod phases;
pub mod probe;
pub mod space;
pub mod warnings;

use crate::experiment::Experiment;
use crate::task::prompt;
use crate::training::plan::work::PlanWork;
use crate::training::run::inputs::Inputs;
use crate::training::{Disk, PlanMemory, Range, Severity, TrainingError, TrialProbe, Warning};
use serde::{Deserialize, Serialize};
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunPlan {
    pub name: String,
    pub run_key: String,
    pub seed: u64,
    pub threads: u64,
    pub prompts: PlanPrompts,
    pub work: PlanWork,
    pub probe: Option<TrialProbe>,
    pub memory: PlanMemory,
    pub disk: Disk,
    pub warnings: Vec<Warning>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanPrompts {
    pub mean_tokens: f64,
    pub longest_tokens: u64,
    /// Ends a turn in the chat template but stops no response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unstopped_end_of_turn: Option<String>,
}

impl RunPlan {
    pub fn can_start(&self) -> bool {
        self.warnings.iter().all(|warning| warning.severity == Severity::Warning)
    }
}

/// `folder` need not exist. `sample` is told the progress of the probe, which needs it and is left out when the counts
/// already forbid the run. Errors would also stop the run: a prompt that cannot be tokenized, the model.
pub fn make(
    inputs: &Inputs,
    folder: &Path,
    sample: Option<&mut dyn FnMut(&str)>,
) -> Result<RunPlan, TrainingError> {
    let prompts = prompts(inputs)?;
    let assembled = |probe: Option<TrialProbe>| assemble(inputs, &prompts, probe, folder);
    let counted = assembled(None);
    match sample.filter(|_| counted.can_start()) {
        Some(watch) => {
            let mut plan = assembled(Some(probe::measure(inputs, watch)?));
            plan.warnings.extend(warnings::unearned(&plan, inputs));
            Ok(plan)
        }
        None => Ok(counted),
    }
}

fn prompts(inputs: &Inputs) -> Result<PlanPrompts, TrainingError> {
    /// Limit of problems that are tokenized before a run.
    const MOST: usize = 200_000;
    let settings = &inputs.experiment.prompt;
    let (mut sum, mut longest) = (0u64, 0);
    let checked = inputs.data.train.len().min(MOST);
    for problem in &inputs.data.train[..checked] {
        let prompt = prompt::prompt(problem, settings, &inputs.tokenizer, u64::MAX)?;
        let tokens = prompt.tokens.len() as u64;
        sum += tokens;
        longest = longest.max(tokens);
    }
    let mean_tokens = sum as f64 / checked.max(1) as f64;
    let unstopped_end_of_turn =
        if settings.template.is_chat() { inputs.tokenizer.unstopped_end_of_turn()? } else { None };
    Ok(PlanPrompts { mean_tokens, longest_tokens: longest, unstopped_end_of_turn })
}

fn assemble(
    inputs: &Inputs,
    prompts: &PlanPrompts,
    probe: Option<TrialProbe>,
    folder: &Path,
) -> RunPlan {
    let (experiment, config) = (&inputs.experiment, &inputs.config);
    let rows = work::generated_rows(experiment, &inputs.data);
    let process_bytes = inputs.process_bytes.unwrap_or(0);
    let work = PlanWork::new(experiment, &inputs.data, rounds_per_step(experiment, probe.as_ref()));
    let mut plan = RunPlan {
        name: experiment.name.clone(),
        run_key: inputs.manifest.run_key.clone(),
        seed: experiment.execution.seed,
        threads: experiment.execution.threads,
        prompts: prompts.clone(),
        memory: space::memory(experiment, config, prompts, process_bytes, rows),
        disk: space::disk(experiment, config, &work, probe.as_ref(), folder),
        work,
        probe,
        warnings: Vec::new(),
    };
    plan.warnings = warnings::of(&plan, experiment);
    plan.warnings.extend(warnings::of_inputs(inputs));
    plan
}

/// Dynamic Sampling multiplies rounds by the probe's groups per useful group; unknown where its responses were cut or no
/// group was useful.
fn rounds_per_step(experiment: &Experiment, probe: Option<&TrialProbe>) -> Range {
    let bounds = work::rounds_without_probe(experiment);
    let tells = |probe: &&TrialProbe| probe.cut_at_tokens.is_none() && probe.useful_share > 0.0;
    let (Some(probe), None) = (probe.filter(tells), bounds.expected) else { return bounds };
    let needed = bounds.least / probe.useful_share;
    Range { expected: Some(bounds.most.map_or(needed, |most| needed.min(most))), ..bounds }
}

#[cfg(test)]
mod tests;
