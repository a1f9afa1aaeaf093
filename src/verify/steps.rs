//! The records of each rollout step, computed again from its stored responses: rewards, which
//! groups trained, advantages, metrics, and the ledger's components.

use crate::batch;
use crate::config::Data;
use crate::config::dapo::AtCap;
use crate::config::dapo::DynamicSampling;
use crate::config::dapo::Surplus;
use crate::dapo::advantage;
use crate::dapo::dynamic_sampling;
use crate::dapo::dynamic_sampling::Buffer;
use crate::dapo::dynamic_sampling::Next;
use crate::effects;
use crate::effects::Metrics;
use crate::effects::techniques;
use crate::ledger;
use crate::optimizer;
use crate::records::Group;
use crate::records::Problem;
use crate::records::Prompt;
use crate::records::ScoredRollout;
use crate::run::rows;
use crate::run_folder::Counters;
use crate::run_folder::RunFolder;
use crate::run_folder::StepMetrics;
use crate::tables;
use crate::tables::RolloutRow;
use crate::verify::Check;
use crate::verify::identity::Records;
use crate::verify::inputs::Local;
use crate::verify::responses::decoded;
use crate::verify::responses::graded;
use crate::verify::responses::well_formed;
use crate::verify::walk::Found;
use std::collections::BTreeMap;

/// Groups that wait for the step after, by step.
pub type Waiting = BTreeMap<u64, Vec<Group<ScoredRollout>>>;

/// Metrics that are functions of the rollouts, by how their names begin.
const OF_ROLLOUTS: [&str; 5] = [
    "rollout/",
    "train/",
    "effect/soft_punishment_",
    "effect/dynamic_sampling_",
    "effect/overlong_filtering_",
];

/// What was computed again of one step.
struct Made {
    rounds: u64,
    batch: Vec<usize>,
    surplus: Vec<usize>,
}

/// Checks every step's table against its inputs and against metrics and ledger.
pub fn check(
    folder: &RunFolder,
    records: &Records,
    local: &Local,
    found: &Found,
) -> (Check, Waiting) {
    let mut check = Check::new("rollout steps");
    let mut waiting = Waiting::new();
    let (mut clocks, mut rollouts) = (Counters::default(), 0);
    for line in &records.metrics {
        let name = format!("rollouts/step-{:06}.parquet", line.step);
        let rows = match tables::read_rollouts(&folder.rollouts(line.step)) {
            Ok(rows) => rows,
            Err(error) => {
                check.mismatch(&name, error);
                continue;
            }
        };
        rollouts += rows.len();
        components(&mut check, records, line.step, &rows);
        if !well_formed(&mut check, &name, &rows, &records.experiment) {
            continue;
        }
        for (number, row) in rows.iter().enumerate() {
            let place = format!("{name}, row {number}");
            graded(&mut check, &place, row, &records.experiment);
            decoded(&mut check, &place, row, records, local);
        }
        let groups = groups(&rows);
        drawn(&mut check, &name, &groups, local);
        let before = waiting.get(&(line.step - 1));
        let carried = carried(&mut check, &name, &groups, before, line.step);
        let Some(made) = filtered(&mut check, &name, &rows, &groups, carried, records) else {
            continue;
        };
        let advantages = advantages(&mut check, &name, &rows, &groups, &made, records);
        metrics(&mut check, line, &groups, carried, &made, &advantages, records);
        clocks = counted(&mut check, line, clocks, &made, &groups, records);
        let kept = made.surplus.iter().map(|&index| groups[index].clone()).collect();
        waiting.insert(line.step, kept);
    }
    for step in found.steps("rollouts/step-", ".parquet") {
        if step == 0 || step > records.steps() {
            check.mismatch(format!("rollouts/step-{step:06}.parquet"), "is of no recorded step");
        }
    }
    let compared = format!(
        "{rollouts} rollouts of {} steps: text, reward, filter, advantage, metrics and ledger components computed again",
        records.steps()
    );
    (check.compared(compared), waiting)
}

/// The ledger's components that the table shows.
fn components(check: &mut Check, records: &Records, step: u64, rows: &[RolloutRow]) {
    for (name, digest) in ledger::rollouts(rows) {
        if records.component(step, &name) != Some(&digest) {
            check.mismatch(
                format!("step {step}, component {name}"),
                "the table of rollouts is not the one in the ledger",
            );
        }
    }
}

/// The groups of a well-formed table, without the tokens of their prompts.
pub fn groups(rows: &[RolloutRow]) -> Vec<Group<ScoredRollout>> {
    let group = |members: &[RolloutRow]| {
        let first = &members[0];
        let problem = Problem {
            id: first.problem.clone(),
            question: first.question.clone(),
            answer: first.answer.clone(),
        };
        let prompt = Prompt { problem, tokens: Vec::new() };
        let rollouts = members.iter().map(rows::scored).collect();
        Group { prompt, attempt: first.attempt, rollouts }
    };
    rows.chunk_by(|a, b| a.group == b.group).map(group).collect()
}

/// Every problem is one of the training problems, with its question and answer.
fn drawn(check: &mut Check, name: &str, groups: &[Group<ScoredRollout>], local: &Local) {
    let Some(data) = &local.data else { return };
    let known: BTreeMap<&str, &Problem> =
        data.train.iter().map(|problem| (problem.id.as_str(), problem)).collect();
    for (number, group) in groups.iter().enumerate() {
        let problem = &group.prompt.problem;
        if known.get(problem.id.as_str()) != Some(&problem) {
            let what =
                format!("{} is no training problem with this question and answer", problem.id);
            check.mismatch(format!("{name}, group {number}"), what);
        }
    }
}

/// How many groups were carried over from the step before; they are those that waited there.
fn carried(
    check: &mut Check,
    name: &str,
    groups: &[Group<ScoredRollout>],
    before: Option<&Vec<Group<ScoredRollout>>>,
    step: u64,
) -> usize {
    let Some(before) = before else {
        if step > 1 {
            check
                .inconclusive(name, "what was carried over is unknown: the step before is damaged");
        }
        return 0;
    };
    if groups.get(..before.len()) != Some(before) {
        let what = format!("does not begin with the {} groups that waited", before.len());
        check.mismatch(name, what);
    }
    before.len()
}

/// Dynamic Sampling by Eq. 11, done again: rounds, batch and surplus.
fn filtered(
    check: &mut Check,
    name: &str,
    rows: &[RolloutRow],
    groups: &[Group<ScoredRollout>],
    carried: usize,
    records: &Records,
) -> Option<Made> {
    let target = records.experiment.training.prompts_per_step as usize;
    let (per_round, rule, surplus) = match records.experiment.dapo.dynamic_sampling {
        DynamicSampling::None {} => (target, None, Surplus::Discard),
        DynamicSampling::Resample { max_rounds, at_cap, surplus } => {
            let per_round = records.experiment.rollout.prompts_per_round as usize;
            (per_round, Some((max_rounds, at_cap)), surplus)
        }
    };
    let new: Vec<usize> = (carried..groups.len()).collect();
    if new.is_empty() || !new.len().is_multiple_of(per_round) {
        check
            .mismatch(name, format!("{} new groups are no whole rounds of {per_round}", new.len()));
        return None;
    }
    let useful = |&index: &usize| {
        let group = &groups[index];
        rule.is_none() || dynamic_sampling::is_useful(group.correct(), group.rollouts.len())
    };
    let mut buffer = Buffer::new((0..carried).collect());
    let rounds = new.len() / per_round;
    for (round, sampled) in new.chunks(per_round).enumerate() {
        buffer.add_round(sampled.to_vec(), useful);
        let more = match rule {
            None => false,
            Some((max_rounds, at_cap)) => match buffer.next(target, max_rounds) {
                Next::Train => false,
                Next::SampleMore => true,
                Next::CapReached if at_cap == AtCap::Train => false,
                Next::CapReached => {
                    check.mismatch(
                        name,
                        "the cap of rounds was reached, at which the run should stop",
                    );
                    return None;
                }
            },
        };
        if more != (round + 1 < rounds) {
            let what = format!(
                "has {rounds} rounds; sampling should not have ended so after round {}",
                round + 1
            );
            check.mismatch(name, what);
            return None;
        }
    }
    let (batch, surplus) = buffer.take(target, surplus);
    for members in rows.chunk_by(|a, b| a.group == b.group) {
        let (group, trained) = (members[0].group, members[0].trained);
        let should = batch.contains(&(group as usize));
        check.equal(format!("{name}, group {group}, trained"), trained, should);
    }
    Some(Made { rounds: rounds as u64, batch, surplus })
}

/// Eq. 9 for the groups of the batch; 0 elsewhere.
fn advantages(
    check: &mut Check,
    name: &str,
    rows: &[RolloutRow],
    groups: &[Group<ScoredRollout>],
    made: &Made,
    records: &Records,
) -> Vec<Vec<f64>> {
    let of = |&index: &usize| {
        let rewards: Vec<f64> = groups[index].rollouts.iter().map(ScoredRollout::reward).collect();
        advantage::advantages(&rewards, &records.experiment.dapo.advantage)
    };
    let advantages: Vec<Vec<f64>> = made.batch.iter().map(of).collect();
    let by_group: BTreeMap<usize, &Vec<f64>> =
        made.batch.iter().copied().zip(&advantages).collect();
    for (number, row) in rows.iter().enumerate() {
        let group = by_group.get(&(row.group as usize));
        let expected = group.map_or(0.0, |values| values[row.sample as usize]);
        check.equal(format!("{name}, row {number}, advantage"), row.advantage, expected);
    }
    advantages
}

/// Every metric that is a function of the rollouts, and the learning rate.
fn metrics(
    check: &mut Check,
    line: &StepMetrics,
    groups: &[Group<ScoredRollout>],
    carried: usize,
    made: &Made,
    advantages: &[Vec<f64>],
    records: &Records,
) {
    let experiment = &records.experiment;
    let chosen: Vec<&Group<ScoredRollout>> =
        made.batch.iter().map(|&index| &groups[index]).collect();
    let owned: Vec<Group<ScoredRollout>> = chosen.iter().map(|group| (*group).clone()).collect();
    let rows = batch::rows(&owned, advantages, experiment.dapo.overlong.filter);
    let new: Vec<&Group<ScoredRollout>> = groups[carried.min(groups.len())..].iter().collect();
    let styles = matches!(experiment.inputs.data, Data::MiniAime { .. });
    let mut again = effects::generated(&new, made.rounds, styles);
    let (batch, surplus) = (&made.batch, &made.surplus);
    let step = techniques::Step {
        groups,
        carried,
        rounds: made.rounds,
        batch,
        surplus,
        advantages,
        rows: &rows,
    };
    again.extend(techniques::metrics(&step, experiment));
    let masked = rows.iter().filter(|row| !row.in_loss).count() as u64;
    again.extend(effects::trained(&chosen, masked));
    let rate = optimizer::learning_rate(&experiment.optimizer, line.step - 1);
    again.insert("optimizer/learning_rate".to_string(), rate);
    compare(check, line, &again);
}

fn compare(check: &mut Check, line: &StepMetrics, again: &Metrics) {
    let place = |name: &str| format!("metrics.jsonl, step {}, {name}", line.step);
    for (name, value) in again {
        match line.metrics.get(name) {
            Some(found) if found.to_bits() == value.to_bits() => {}
            Some(found) => check.mismatch(place(name), format!("is {found}, should be {value}")),
            None => check.mismatch(place(name), format!("is missing, should be {value}")),
        }
    }
    let of_rollouts = |name: &&String| OF_ROLLOUTS.iter().any(|start| name.starts_with(start));
    for name in line.metrics.keys().filter(of_rollouts).filter(|name| !again.contains_key(*name)) {
        check.mismatch(place(name), "does not exist in this step");
    }
}

/// The clocks after the step.
fn counted(
    check: &mut Check,
    line: &StepMetrics,
    before: Counters,
    made: &Made,
    groups: &[Group<ScoredRollout>],
    records: &Records,
) -> Counters {
    let training = &records.experiment.training;
    let rollouts: usize = made.batch.iter().map(|&index| groups[index].rollouts.len()).sum();
    let mini_batches = (rollouts as u64).div_ceil(training.mini_batch_rollouts);
    let after = Counters {
        generation_rounds: before.generation_rounds + made.rounds,
        rollout_steps: line.step,
        updates: before.updates + mini_batches * training.epochs_per_step,
    };
    if line.counters != after {
        let place = format!("metrics.jsonl, step {}, counters", line.step);
        check.mismatch(place, format!("are {:?}, should be {after:?}", line.counters));
    }
    after
}
