//! Ranges of keys, what they need (`keys.toml`), and conditions between keys. All problems are reported at once.

use crate::algorithm::{
    Aggregation, AtCap, DynamicSampling, FilterMetric, Punishment, TokenMeanUnit,
};
use crate::experiment::programs::{self, refused};
use crate::experiment::sources::{self, KeyRange, Needs};
use crate::experiment::{
    Evaluation, Experiment, MiniBatchOrder, PromptSettings, SetSettings, sets,
};
use serde_json::{Value, json};

/// Bound on rollouts of a step or round, as `keys.toml` has it: products do not overflow. The paper's largest is 8192.
const MOST: u64 = 1 << 24;

/// The upper end of the range of `execution.threads`.
pub const MOST_THREADS: u64 = 1024;

/// Everything that is wrong with an experiment, one sentence each, starting with the key's path.
pub fn problems(experiment: &Experiment) -> Vec<String> {
    let mut problems = ranges(experiment);
    let experiment_json = json!(experiment);
    for key in sources::all() {
        let Some(needs) = &key.needs else { continue };
        for (path, value) in stated(&experiment_json, &key.path) {
            problems.extend(unmet(&experiment_json, &path, value, needs));
        }
    }
    let of_prompt = |experiment: &Experiment| prompt("prompt.", &experiment.prompt);
    let rules: [fn(&Experiment) -> Vec<String>; 8] =
        [programs::problems, sampling, stop, of_prompt, evaluation, batches, groups, method];
    problems.extend(rules.iter().flat_map(|rule| rule(experiment)));
    problems
}

/// Problems of single values, whatever the other keys are.
pub fn ranges(experiment: &Experiment) -> Vec<String> {
    let experiment_json = json!(experiment);
    // A run's folder is named after the experiment.
    let name = &experiment.name;
    let plain = format!("name must be letters, digits and any of -_+. (not first), got {name:?}");
    let mut problems = refused([(!is_plain_name(name), plain)]);
    for key in sources::all() {
        for (path, value) in stated(&experiment_json, &key.path) {
            problems.extend(match &key.range {
                Some(range) => outside(experiment, &path, value, range),
                // Of a key without a range: NaN and infinities are no numbers of any.
                None if value.is_null() => outside(experiment, &path, value, &KeyRange::default()),
                None => None,
            });
        }
    }
    problems
}

/// The stated values at a path of `keys.toml`, with their own paths. Names that `*` stands for may have dots.
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

/// JSON has null for NaN and infinities, TOML what they are.
fn outside(experiment: &Experiment, path: &str, value: &Value, range: &KeyRange) -> Option<String> {
    match value.as_f64() {
        Some(number) if range.contains(number) => None,
        Some(_) => Some(format!("{path} must be {range}, got {value}")),
        None => {
            let range = format!(" {range}").replace(" finite", "");
            let stated = toml::Value::try_from(experiment).ok();
            let inside = |value| path.split('.').try_fold(value, toml::Value::get);
            let given = stated.as_ref().and_then(inside);
            let given = given.map_or(String::new(), |given| format!(", got {given}"));
            Some(format!("{path} must be a finite number{range}{given}"))
        }
    }
}

fn unmet(experiment: &Value, path: &str, value: &Value, needs: &Needs) -> Option<String> {
    let Needs { key, value: needed, except, because } = needs;
    let table = |path: &str| path.rsplit_once('.').map(|(table, _)| table.to_string());
    let is_here = |at: &str| !key.contains('*') || table(at) == table(path);
    let mut values = stated(experiment, key).into_iter();
    let is_met = values.any(|(at, value)| is_here(&at) && value == needed);
    let is_excepted = except.as_ref().is_some_and(|except| value == except);
    if is_met || is_excepted {
        return None;
    }
    Some(format!("{path} = {value} needs {key} = \"{needed}\": {because}"))
}

/// Whether files and folders can have the name on every system.
pub fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain)
}

pub fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_+.".contains(character)
}

fn sampling(experiment: &Experiment) -> Vec<String> {
    let training = &experiment.rollout.sampling;
    let keeps_all = "rollout.sampling.log_probs must be absent where top_p is 1 and top_k is 0: every token is kept";
    let evaluates = "evaluation.sampling.log_probs must be absent: nothing trains on evaluations";
    refused([
        (training.log_probs.is_some() && !training.keeps_a_part(), keeps_all.into()),
        (experiment.evaluation.sampling.log_probs.is_some(), evaluates.into()),
    ])
}

/// vLLM has no bound; each text is looked for behind every token.
const MOST_STOP_STRINGS: usize = 16;

const MOST_STOP_BYTES: usize = 256;

fn stop(experiment: &Experiment) -> Vec<String> {
    let Experiment { rollout, evaluation, .. } = experiment;
    let mut problems = stop_strings("rollout.stop", experiment.rollout_stop());
    let nothing = "rollout.stop must be absent where nothing but a stop token ends a response";
    problems.extend(refused([(rollout.stop == Some(Vec::new()), nothing.into())]));
    let of_evaluation = evaluation.stop.as_deref().unwrap_or_default();
    problems.extend(stop_strings("evaluation.stop", of_evaluation));
    problems
}

/// One sentence for each problem, starting with the key or flag.
pub fn stop_strings(key: &str, texts: &[String]) -> Vec<String> {
    let must = |holds: bool, rule: String| (holds, format!("{key} must {rule}"));
    let too_many = format!("be at most {MOST_STOP_STRINGS} texts, got {}", texts.len());
    let of_text = |(index, text): (usize, &String)| {
        let bytes = text.len();
        let too_long = format!("have texts of at most {MOST_STOP_BYTES} bytes, got one of {bytes}");
        let no_text =
            format!("have no U+FFFD, which stands for bytes that are no text, got {text:?}");
        refused([
            must(text.is_empty(), "have no empty text: every response begins with one".into()),
            must(bytes > MOST_STOP_BYTES, too_long),
            must(text.contains(char::REPLACEMENT_CHARACTER), no_text),
            (texts[..index].contains(text), format!("{key} names {text:?} twice")),
        ])
    };
    let all = refused([must(texts.len() > MOST_STOP_STRINGS, too_many)]);
    all.into_iter().chain(texts.iter().enumerate().flat_map(of_text)).collect()
}

/// One sentence for each problem, starting with the `table` and the key.
pub fn prompt(table: &str, settings: &PromptSettings) -> Vec<String> {
    let PromptSettings { template, system, examples, response_prefix, .. } = settings;
    let system = system.as_ref().filter(|_| !template.is_chat());
    let texts = [("system", system), ("response_prefix", response_prefix.as_ref())];
    let texts = texts.into_iter().filter_map(|(key, text)| Some((key.to_string(), text?)));
    let of_examples = examples.iter().enumerate().flat_map(|(index, example)| {
        let place = |field: &str| format!("examples[{index}].{field}");
        [(place("question"), &example.question), (place("response"), &example.response)]
    });
    let empty = texts.chain(of_examples).filter(|(_, text)| text.is_empty());
    let empty =
        empty.map(|(key, _)| format!("{table}{key} must not be empty; leave it out instead"));
    empty.chain(chat_template_kwargs(table, settings)).collect()
}

/// Variables of a chat template that are those of every conversation.
pub const RESERVED_VARIABLES: [&str; 6] =
    ["messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"];

fn chat_template_kwargs(table: &str, settings: &PromptSettings) -> Vec<String> {
    let is_chat = settings.template.is_chat();
    let of_variable = |(name, value): (&String, &Value)| {
        let key = format!("{table}chat_template_kwargs.{name}");
        let is_value = value.is_string() || value.is_boolean() || value.is_number();
        let no_chat = format!("it needs {table}template = \"chat\" or \"dapo-chat\"");
        let reserved = format!("must be absent: every conversation has its own {name}");
        let given = if value.is_null() { "NaN or infinity".into() } else { value.to_string() };
        let other = format!("must be a text, true, false or a finite number, got {given}");
        let is_reserved = RESERVED_VARIABLES.contains(&name.as_str());
        let is_named = name.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
        refused([
            (!is_chat, format!("{key} is for a chat template: {no_chat}")),
            (is_reserved, format!("{key} {reserved}")),
            (!is_named, format!("{key}: a variable is named by letters, digits and _")),
            (!is_value, format!("{key} {other}")),
        ])
    };
    settings.chat_template_kwargs.iter().flat_map(of_variable).collect()
}

fn evaluation(experiment: &Experiment) -> Vec<String> {
    let Evaluation { during_training: sets, samples, .. } = &experiment.evaluation;
    let of_set = |(index, set): (usize, &String)| {
        let names = format!("evaluation.during_training names {set:?}");
        let no_samples = format!("{names}, which evaluation.samples has no k for");
        refused([
            (!samples.contains_key(set), no_samples),
            (sets[..index].contains(set), format!("{names} twice")),
        ])
    };
    sets.iter().enumerate().flat_map(of_set).chain(single_sets(experiment)).collect()
}

fn single_sets(experiment: &Experiment) -> Vec<String> {
    let known = experiment.inputs.data.set_names();
    let is_known = |name: &String| known.contains(name);
    let of_set = |(name, set): (&String, &SetSettings)| {
        let (key, sets) = (format!("evaluation.sets.{name}"), known.join(", "));
        let of_data = set.problems.as_ref().unwrap_or(name);
        let (is_copy, is_taken) = (set.problems.is_some(), is_known(name) || name == sets::TRAIN);
        let has_samples = experiment.evaluation.samples.contains_key(name);
        let states_log_probs = set.sampling.is_some_and(|sampling| sampling.log_probs.is_some());
        let taken = "problems must be absent: the data have a set of that name";
        let plain = "a set is named by letters, digits and any of -_+. (not first)";
        let log_probs = "sampling.log_probs must be absent: nothing trains on evaluations";
        refused([
            (*set == SetSettings::default(), format!("{key} states nothing; leave it out instead")),
            (!is_known(of_data), format!("{key} names no set of the data, which are {sets}")),
            (is_copy && is_taken, format!("{key}.{taken}")),
            (is_copy && !is_plain_name(name), format!("{key}: {plain}")),
            (!has_samples, format!("{key}: evaluation.samples has no k for it")),
            (states_log_probs, format!("{key}.{log_probs}")),
        ])
    };
    experiment.evaluation.sets.iter().flat_map(of_set).collect()
}

fn batches(experiment: &Experiment) -> Vec<String> {
    let Experiment { rollout, training, optimizer, dapo, .. } = experiment;
    let group = rollout.group_size;
    let in_step = training.prompts_per_step.saturating_mul(group);
    let in_round = rollout.prompts_per_round.saturating_mul(group);
    let mini_batch = training.mini_batch_rollouts;
    let keeps_groups = training.mini_batch_order == MiniBatchOrder::ShuffledGroups;
    let mean_of_groups =
        dapo.aggregation == Aggregation::TokenMean && dapo.token_mean_unit == TokenMeanUnit::Group;
    let (warm_up, steps) = (optimizer.warm_up.rollout_steps, training.rollout_steps);
    let too_many = |prompts: &str, rollouts: u64| {
        let rule = format!("must be at most {MOST}, got {rollouts}");
        (rollouts > MOST, format!("{prompts} × rollout.group_size {rule}"))
    };
    let of_mini_batch =
        |rule: &str| format!("training.mini_batch_rollouts must {rule}, got {mini_batch}");
    let in_all = format!("prompts_per_step × group_size ({in_step})");
    let whole_groups = format!(
        "be a multiple of rollout.group_size ({group}) with mini_batch_order = \"shuffled-groups\", which keeps \
         groups whole"
    );
    let is_within_step = (1..=in_step).contains(&mini_batch);
    let leaves_rest = is_within_step && !in_step.is_multiple_of(mini_batch);
    let torn_groups = "dapo.token_mean_unit must not be \"group\" unless training.mini_batch_order is \
                       \"shuffled-groups\": the other orders tear groups apart";
    let long_ramp = format!(
        "optimizer.warm_up.rollout_steps must be at most training.rollout_steps ({steps}), got {warm_up}"
    );
    refused([
        too_many("training.prompts_per_step", in_step),
        too_many("rollout.prompts_per_round", in_round),
        (mini_batch > in_step, of_mini_batch(&format!("be at most {in_all}"))),
        (leaves_rest, of_mini_batch(&format!("divide {in_all}"))),
        (keeps_groups && !mini_batch.is_multiple_of(group), of_mini_batch(&whole_groups)),
        (mean_of_groups && !keeps_groups, torn_groups.into()),
        (warm_up > steps, long_ramp),
    ])
}

fn groups(experiment: &Experiment) -> Vec<String> {
    let Experiment { rollout, training, dapo, .. } = experiment;
    let alone = format!(
        "rollout.group_size must be at least 2: under {} the baseline of a reward is its group's, and a \
         response alone has the advantage 0, got 1",
        dapo.method_name()
    );
    let mut problems = refused([(rollout.group_size == 1, alone)]);
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
        DynamicSampling::Resample { max_rounds, at_cap, metric, surplus: _ } => {
            if metric == FilterMetric::Reward && experiment.reward.verifier.rule().is_some() {
                problems.push(
                    "dapo.dynamic_sampling.metric = \"reward\" needs a program in reward.verifier: the reward of a \
                     rule is its correctness"
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
        let (needed, method) = (json!(needed), experiment.dapo.method_name());
        problems.push(format!("dapo.aggregation must be {needed} with the method {method}"));
    }
    problems
}
