//! What the values of an experiment must satisfy: the range of each key and what it needs (`keys.toml`), and
//! the conditions between keys. All problems are reported at once.

use crate::algorithm::{Aggregation, AtCap, DynamicSampling, Punishment, Std, TokenMeanUnit};
use crate::experiment::sources::{self, Needs, Range};
use crate::experiment::{Experiment, MiniBatchOrder};
use serde_json::Value;

/// Bound on rollouts of a step or a round, as `keys.toml` has it for each factor: the product of two
/// such counts does not overflow. The paper's largest is 8192.
const MOST: u64 = 1 << 24;

/// The upper end of the range of `execution.threads`.
pub const MOST_THREADS: u64 = 1024;

/// Everything that is wrong with an experiment, one sentence each, starting with the key's path.
pub fn problems(experiment: &Experiment) -> Vec<String> {
    let mut problems = ranges(experiment);
    let experiment_json = json(experiment);
    for key in sources::all() {
        let Some(needs) = &key.needs else { continue };
        for (path, value) in stated(&experiment_json, &key.path) {
            problems.extend(unmet(&experiment_json, &path, value, needs));
        }
    }
    problems.extend(sampling(experiment));
    problems.extend(evaluation(experiment));
    problems.extend(batches(experiment));
    problems.extend(groups(experiment));
    problems.extend(method(experiment));
    problems
}

/// Problems of single values, whatever the other keys are.
pub fn ranges(experiment: &Experiment) -> Vec<String> {
    let experiment_json = json(experiment);
    let mut problems: Vec<String> = name(&experiment.name).into_iter().collect();
    for key in sources::all() {
        let Some(range) = &key.range else { continue };
        for (path, value) in stated(&experiment_json, &key.path) {
            problems.extend(outside(&path, value, range));
        }
    }
    problems
}

fn json(experiment: &Experiment) -> Value {
    serde_json::to_value(experiment).expect("an experiment is representable in JSON")
}

/// The values at a path of the table of keys, with their own paths; none where the experiment does
/// not state the key. Names that `*` stands for may have dots.
fn stated<'a>(value: &'a Value, path: &str) -> Vec<(String, &'a Value)> {
    let mut values = vec![(String::new(), value)];
    for part in path.split('.') {
        let tables = values.iter().filter_map(|(prefix, value)| Some((prefix, value.as_object()?)));
        let entries = tables.flat_map(|(prefix, table)| {
            let chosen = table.iter().filter(|(name, _)| part == "*" || *name == part);
            chosen.map(|(name, value)| match prefix.as_str() {
                "" => (name.clone(), value),
                prefix => (format!("{prefix}.{name}"), value),
            })
        });
        values = entries.collect();
    }
    values
}

/// JSON has null for NaN and infinities.
fn outside(path: &str, value: &Value, range: &Range) -> Option<String> {
    match value.as_f64() {
        Some(number) if range.contains(number) => None,
        Some(_) => Some(format!("{path} must be {range}, got {value}")),
        None => Some(format!("{path} must be {range}, got NaN or an infinity")),
    }
}

fn unmet(experiment: &Value, path: &str, value: &Value, needs: &Needs) -> Option<String> {
    let Needs { key, value: needed, except, because } = needs;
    let is_met = stated(experiment, key).iter().any(|(_, value)| *value == needed);
    let is_excepted = except.as_ref().is_some_and(|except| value == except);
    if is_met || is_excepted {
        return None;
    }
    Some(format!("{path} = {value} needs {key} = \"{needed}\": {because}"))
}

/// A run's folder is named after the experiment.
fn name(name: &str) -> Option<String> {
    (!is_plain_name(name))
        .then(|| format!("name must be letters, digits and any of -_+. (not first), got {name:?}"))
}

/// Whether files and folders can have the name on every system.
pub fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain)
}

pub fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_+.".contains(character)
}

fn sampling(experiment: &Experiment) -> Vec<String> {
    let mut problems = Vec::new();
    let training = &experiment.rollout.sampling;
    if training.log_probs.is_some() && !training.keeps_a_part() {
        problems.push(
            "rollout.sampling.log_probs must be absent where top_p is 1 and top_k is 0: every token is kept"
                .to_string(),
        );
    }
    if experiment.evaluation.sampling.log_probs.is_some() {
        problems.push(
            "evaluation.sampling.log_probs must be absent: nothing trains on evaluations"
                .to_string(),
        );
    }
    problems
}

fn evaluation(experiment: &Experiment) -> Vec<String> {
    let mut problems = Vec::new();
    let sets = &experiment.evaluation.during_training;
    for (index, set) in sets.iter().enumerate() {
        if !experiment.evaluation.samples.contains_key(set) {
            problems.push(format!(
                "evaluation.during_training names {set:?}, which evaluation.samples has no k for"
            ));
        }
        if sets[..index].contains(set) {
            problems.push(format!("evaluation.during_training names {set:?} twice"));
        }
    }
    problems
}

fn batches(experiment: &Experiment) -> Vec<String> {
    let Experiment { rollout, training, optimizer, dapo, .. } = experiment;
    let mut problems = Vec::new();
    let step_rollouts = training.prompts_per_step.saturating_mul(rollout.group_size);
    if step_rollouts > MOST {
        problems.push(format!(
            "training.prompts_per_step × rollout.group_size must be at most {MOST}, got {step_rollouts}"
        ));
    }
    let round_rollouts = rollout.prompts_per_round.saturating_mul(rollout.group_size);
    if round_rollouts > MOST {
        problems.push(format!(
            "rollout.prompts_per_round × rollout.group_size must be at most {MOST}, got {round_rollouts}"
        ));
    }
    let mini_batch = training.mini_batch_rollouts;
    if mini_batch > step_rollouts {
        problems.push(format!(
            "training.mini_batch_rollouts must be at most prompts_per_step × group_size \
             ({step_rollouts}), got {mini_batch}"
        ));
    } else if mini_batch > 0 && !step_rollouts.is_multiple_of(mini_batch) {
        problems.push(format!(
            "training.mini_batch_rollouts must divide prompts_per_step × group_size \
             ({step_rollouts}), got {mini_batch}"
        ));
    }
    if training.mini_batch_order == MiniBatchOrder::ShuffledGroups {
        if !mini_batch.is_multiple_of(rollout.group_size) {
            problems.push(format!(
                "training.mini_batch_rollouts must be a multiple of rollout.group_size ({}) with \
                 mini_batch_order = \"shuffled-groups\", which keeps groups whole, got {mini_batch}",
                rollout.group_size
            ));
        }
    } else if dapo.aggregation == Aggregation::TokenMean
        && dapo.token_mean_unit == TokenMeanUnit::Group
    {
        problems.push(
            "dapo.token_mean_unit must not be \"group\" unless training.mini_batch_order is \
             \"shuffled-groups\": the other orders tear groups apart"
                .to_string(),
        );
    }
    let (warm_up, steps) = (optimizer.warm_up.rollout_steps, training.rollout_steps);
    if warm_up > steps {
        problems.push(format!(
            "optimizer.warm_up.rollout_steps must be at most training.rollout_steps ({steps}), got {warm_up}"
        ));
    }
    problems
}

fn groups(experiment: &Experiment) -> Vec<String> {
    let Experiment { rollout, training, dapo, .. } = experiment;
    let mut problems = Vec::new();
    if rollout.group_size == 1 && dapo.advantage.std == Std::Sample {
        problems.push(
            "rollout.group_size must be at least 2 with dapo.advantage.std = \"sample\", got 1"
                .to_string(),
        );
    }
    let limit = rollout.max_response_tokens;
    if let Punishment::Soft { cache_tokens, .. } = dapo.overlong.punishment
        && cache_tokens >= limit
    {
        problems.push(format!(
            "dapo.overlong.punishment.cache_tokens must be below rollout.max_response_tokens \
             ({limit}), got {cache_tokens}"
        ));
    }
    let (round, step) = (rollout.prompts_per_round, training.prompts_per_step);
    match dapo.dynamic_sampling {
        DynamicSampling::None {} if round != step => problems.push(format!(
            "rollout.prompts_per_round must equal training.prompts_per_step ({step}) without \
             dynamic sampling, since every group trains, got {round}"
        )),
        DynamicSampling::None {} => {}
        DynamicSampling::Resample { max_rounds, at_cap, surplus: _ } => {
            if rollout.group_size == 1 {
                problems.push(
                    "rollout.group_size must be at least 2 with dynamic sampling, which drops \
                     every group of one, got 1"
                        .to_string(),
                );
            }
            let most = round.saturating_mul(u64::from(max_rounds));
            if max_rounds > 0 && at_cap != AtCap::Train && most < step {
                problems.push(format!(
                    "dapo.dynamic_sampling.max_rounds × rollout.prompts_per_round must reach \
                     training.prompts_per_step ({step}) with at_cap = \"stop\", got {most}"
                ));
            }
        }
    }
    problems
}

fn method(experiment: &Experiment) -> Vec<String> {
    let rules = experiment.dapo.rules();
    let mut problems: Vec<String> = rules.problem().into_iter().collect();
    if let Some(needed) = rules.needed_aggregation()
        && needed != experiment.dapo.aggregation
    {
        problems.push(format!(
            "dapo.aggregation must be {} with the method {}",
            serde_json::json!(needed),
            rules.about().name
        ));
    }
    problems
}
