//! A plan as text.

use crate::commands::output::table;
use crate::records::housekeeping::readable;
use crate::report::text::{number, percent};
use crate::training::{PlanMemory, Range, RunPlan, Severity, TrialProbe};
use std::collections::BTreeMap;

/// A few lines of at most 80 columns.
pub fn brief(plan: &RunPlan) -> String {
    let (work, memory, disk) = (&plan.work, &plan.memory, &plan.disk);
    let many = |range: Range| {
        let most = range.most.map_or("no bound".to_string(), |most| format!("{most} at most"));
        match range.expected {
            Some(expected) => format!("{} expected, {most}", number(expected)),
            None => format!("from {}, {most}", range.least),
        }
    };
    let mut lines = vec![
        head(plan),
        format!("  steps    {} rollout steps, {} updates", work.rollout_steps, work.updates),
        format!("  rollouts {}", many(work.rollouts)),
    ];
    if let Some(probe) = &plan.probe {
        let [correct, truncated, useful] = shares(probe);
        lines.push(format!(
            "  probe    {correct} correct, {truncated} truncated, {useful} of groups useful"
        ));
    }
    let available = memory.available_bytes.map_or("unknown".to_string(), bytes);
    lines.push(format!("  memory   {} of {available}", bytes(memory.needed_bytes)));
    let free = disk.free_bytes.map_or("unknown".to_string(), bytes);
    let (most, one) = (bytes(disk.most_bytes), bytes(disk.checkpoint_bytes));
    lines.push(format!("  disk     {most} at most, {one} a checkpoint, {free} free"));
    lines.join("\n")
}

/// Correct, truncated and useful; unknown for cut responses.
fn shares(probe: &TrialProbe) -> [String; 3] {
    let shares = [probe.accuracy, probe.truncated_share, probe.useful_share];
    shares.map(|it| if probe.cut_at_tokens.is_some() { "?".to_string() } else { percent(it) })
}

fn head(plan: &RunPlan) -> String {
    format!("plan of {}, seed {}, {} threads", plan.name, plan.seed, plan.threads)
}

/// Counts, probe, memory and disk.
pub fn plan(plan: &RunPlan) -> String {
    let mut parts = vec![head(plan), counts(plan)];
    if let Some(probe) = &plan.probe {
        let [correct, truncated, useful] = shares(probe);
        parts.push(format!(
            "probe ({} groups of the base policy): {correct} correct, {truncated} truncated, response \
             length mean {:.0}; {useful} of the groups are useful",
            probe.groups, probe.response_tokens_mean,
        ));
    }
    parts.push(space(plan));
    parts.join("\n")
}

fn counts(plan: &RunPlan) -> String {
    let work = &plan.work;
    let exact = |value: u64| ["".into(), number(value as f64), "".into()];
    let range = |range: Range| {
        let most = range.most.map_or("no bound".into(), number);
        [number(range.least), range.expected.map_or("unknown".into(), number), most]
    };
    let rows = [
        ("training problems", exact(work.problems)),
        ("clock 1: generation rounds", range(work.generation_rounds)),
        ("clock 2: rollout steps", exact(work.rollout_steps)),
        ("clock 3: updates (the paper's x-axis)", exact(work.updates)),
        ("prompts drawn", range(work.prompts_drawn)),
        ("epochs over the data", range(work.epochs_over_data)),
        ("rollouts to generate", range(work.rollouts)),
        ("rollouts trained on", exact(work.trained_rollouts)),
        ("evaluation responses, dev", exact(work.dev_responses)),
        ("evaluation responses, test sets", exact(work.test_responses)),
        ("checkpoints written", exact(work.checkpoints)),
        ("checkpoints kept", exact(work.kept_checkpoints)),
    ];
    let rows = rows.map(|(name, counts)| [&[name.to_string()], &counts[..]].concat());
    table(["count", "least", "expected", "most"], 1..4, rows).to_string()
}

fn space(plan: &RunPlan) -> String {
    let (memory, disk) = (&plan.memory, &plan.disk);
    let known = |value: Option<f64>| value.map_or("unknown".into(), bytes);
    let errors = plan.warnings.iter().filter(|w| w.severity == Severity::Error).count();
    let verdict = if errors == 0 { String::new() } else { format!("\n{errors} errors") };
    let verdict = by_phase(memory) + &verdict;
    format!(
        "memory: peak about {}, {} available; disk: about {}, {} at most, {} a checkpoint, {} \
         free{verdict}",
        bytes(memory.needed_bytes),
        known(memory.available_bytes),
        bytes(disk.needed_bytes),
        bytes(disk.most_bytes),
        bytes(disk.checkpoint_bytes),
        known(disk.free_bytes),
    )
}

/// Includes the parts of the largest phase.
fn by_phase(memory: &PlanMemory) -> String {
    if memory.phases.is_empty() {
        return String::new();
    }
    let listed = |parts: &BTreeMap<String, f64>| {
        let mut parts: Vec<(&String, &f64)> = parts.iter().collect();
        parts.sort_by(|a, b| b.1.total_cmp(a.1));
        let parts = parts.into_iter().map(|(name, size)| format!("{name} {}", bytes(*size)));
        parts.collect::<Vec<String>>().join(", ")
    };
    format!("\n  by phase: {}\n  the largest: {}", listed(&memory.phases), listed(&memory.parts))
}

fn bytes(value: f64) -> String {
    readable(value as u64)
}
