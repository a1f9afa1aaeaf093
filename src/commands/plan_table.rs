//! A plan, and a plan beside what came true, as text.

use crate::training::plan::PlanRecord;
use crate::training::{CostEstimate, Estimates, PlanMemory, Range, RunPlan, Severity};
use comfy_table::Table;
use std::collections::BTreeMap;

/// The plan: counts, the probe, estimates.
pub fn plan(plan: &RunPlan) -> String {
    let mut parts = vec![
        format!("plan of {}, seed {}, {} threads", plan.name, plan.seed, plan.threads),
        counts(plan),
    ];
    if let Some(probe) = &plan.probe {
        parts.push(format!(
            "probe ({:.1} s, {} groups of the base policy): {:.1} % correct, {:.1} % truncated, response length mean {:.0}, {:.0} tokens/s; {:.0} % of the groups are useful",
            probe.seconds,
            probe.groups,
            100.0 * probe.accuracy,
            100.0 * probe.truncated_share,
            probe.response_tokens_mean,
            1.0 / probe.rates.generation_token_seconds,
            100.0 * probe.useful_share,
        ));
    }
    parts.extend(plan.estimates.as_ref().map(estimates));
    parts.push(space(plan));
    parts.join("\n")
}

fn counts(plan: &RunPlan) -> String {
    let work = &plan.work;
    let mut table = table(&["count", "least", "expected", "most"]);
    let exact = |value: u64| ["".into(), number(value as f64), "".into()];
    let range = |range: Range| {
        let most = range.most.map_or("no bound".into(), number);
        [number(range.least), range.expected.map_or("unknown".into(), number), most]
    };
    for (name, [least, expected, most]) in [
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
    ] {
        table.add_row([name.to_string(), least, expected, most]);
    }
    table.to_string()
}

fn estimates(estimates: &Estimates) -> String {
    let mut table = table(&["estimate", "base policy's lengths", "bound (L_max, all rounds)"]);
    let columns = [&estimates.expected, &estimates.bound];
    let mut row = |name: &str, of: &dyn Fn(&CostEstimate) -> String| {
        table.add_row(std::iter::once(name.to_string()).chain(columns.map(of)));
    };
    row("mean response length, tokens", &|one| format!("{:.0}", one.response_tokens_mean));
    row("response tokens, with evaluation", &|one| number(one.response_tokens));
    row("disk", &|one| bytes(one.disk_bytes));
    for phase in estimates.expected.seconds.keys() {
        row(&format!("time, {phase}"), &|one| seconds(one.seconds[phase]));
    }
    format!(
        "{table}\nTraining changes the length of responses and the share of useful groups; by how much no probe can know."
    )
}

fn space(plan: &RunPlan) -> String {
    let (memory, disk) = (&plan.memory, &plan.disk);
    let basis = if memory.measured { "measured with the run's batches" } else { "from shapes" };
    let known = |value: Option<f64>| value.map_or("unknown".into(), bytes);
    let errors = plan.warnings.iter().filter(|w| w.severity == Severity::Error).count();
    let verdict = if errors == 0 { String::new() } else { format!("\n{errors} errors") };
    let verdict = by_phase(memory) + &verdict;
    format!(
        "memory: peak about {} ({basis}), {} available; disk: {} a checkpoint, {} free{verdict}",
        bytes(memory.needed_bytes),
        known(memory.available_bytes),
        bytes(disk.checkpoint_bytes),
        known(disk.free_bytes),
    )
}

/// Each phase, and the parts of the one that needs most.
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

/// Planned against actual, with ratios.
pub fn comparison(record: &PlanRecord) -> String {
    let PlanRecord { plan, actual: Some(actual) } = record else {
        return "planned against actual: the run has not ended".into();
    };
    let estimate = |of: &dyn Fn(&CostEstimate) -> f64| {
        let both = plan.estimates.as_ref().map(|both| [of(&both.expected), of(&both.bound)]);
        both.map_or([None; 2], |values| values.map(Some))
    };
    let mut table =
        table(&["planned against actual", "base lengths", "bound", "actual", "actual / planned"]);
    let mut row = |name: &str, planned: [Option<f64>; 2], actual: f64, text: fn(f64) -> String| {
        let shown = planned.map(|value| value.map_or("".into(), text));
        let ratio = planned[0].map_or("".into(), |expected| format!("{:.2}", actual / expected));
        table.add_row(std::iter::once(name.to_string()).chain(shown).chain([text(actual), ratio]));
    };
    let (rounds, counters) = (plan.work.generation_rounds, actual.counters);
    row("updates", [Some(plan.work.updates as f64); 2], counters.updates as f64, number);
    let planned = [rounds.expected, rounds.most];
    row("generation rounds", planned, counters.generation_rounds as f64, number);
    row("disk", estimate(&|one| one.disk_bytes), actual.disk_bytes, bytes);
    if let Some(peak) = actual.peak_memory_bytes {
        row("peak memory", [Some(plan.memory.needed_bytes); 2], peak as f64, bytes);
    }
    row("time", estimate(&|one| one.seconds["total"]), actual.seconds, seconds);
    table.to_string()
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(header.to_vec());
    table
}

/// A count with at most two decimals, thousands set apart; in powers of ten when it is huge.
fn number(value: f64) -> String {
    if value.abs() >= 1e12 {
        return format!("{value:.3e}");
    }
    let text = if value.fract() == 0.0 || value >= 1000.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    };
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let digits: Vec<char> = whole.chars().collect();
    let mut grouped = String::new();
    for (index, digit) in digits.iter().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(*digit);
    }
    if rest.is_empty() { grouped } else { format!("{grouped}.{rest}") }
}

fn bytes(value: f64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, power)| value >= (1u64 << power) as f64);
    match unit {
        Some((name, power)) => format!("{:.2} {name}", value / (1u64 << power) as f64),
        None => format!("{value:.0} B"),
    }
}

fn seconds(value: f64) -> String {
    match value {
        value if value >= 172_800.0 => format!("{:.1} days", value / 86_400.0),
        value if value >= 7_200.0 => format!("{:.1} h", value / 3_600.0),
        value if value >= 120.0 => format!("{:.1} min", value / 60.0),
        value if value >= 1.0 => format!("{value:.1} s"),
        value => format!("{:.0} ms", 1000.0 * value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_bytes_and_seconds_are_readable_at_every_size() {
        assert_eq!(number(1_234_567.0), "1,234,567");
        assert_eq!(number(1.5), "1.50");
        assert_eq!(number(40.0), "40");
        assert_eq!(number(3.4e38), "3.400e38");
        assert_eq!(bytes(1536.0), "1.50 KiB");
        assert_eq!(bytes(3.0 * 1024.0 * 1024.0 * 1024.0), "3.00 GiB");
        let texts = [0.0021, 59.0, 150.0, 10_000.0, 864_000.0].map(seconds);
        assert_eq!(texts, ["2 ms", "59.0 s", "2.5 min", "2.8 h", "10.0 days"]);
    }
}
