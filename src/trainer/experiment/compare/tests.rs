use super::*;
use crate::algorithm::methods;
use crate::experiment::{diagnose, extends, validate};
use serde_json::json;
use std::path::Path;
use toml::Table;

fn load(name: &str) -> Experiment {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("experiments");
    extends::load(&folder.join(name)).unwrap()
}

/// DAPO with every optional variant switched on, so that every key there is appears.
fn everything_on() -> Experiment {
    let mut value = serde_json::to_value(load("dapo.toml")).unwrap();
    value["inputs"]["data"] =
        json!({ "kind": "files", "train": "a", "dev": "b", "test": ["c", "d"] });
    value["inputs"]["base"] = json!("large");
    value["numerics"] = json!("fast");
    value["execution"]["memory"] = json!({ "recompute_layers": true, "logits_chunk_tokens": 1024 });
    value["execution"]["device"] = json!("cuda:1");
    value["execution"]["weights"] = json!("bf16");
    value["execution"]["pass_tokens"] = json!(16_384);
    value["rollout"]["sampler_weights"] = json!("bf16");
    value["rollout"]["sampling"]["top_p"] = json!(0.9);
    value["rollout"]["sampling"]["log_probs"] = json!("kept-tokens");
    value["rollout"]["stop"] = json!(["##"]);
    value["evaluation"]["stop"] = json!(["##"]);
    let greedy = json!({ "temperature": 0.0, "top_p": 1.0, "top_k": 0 });
    value["evaluation"]["sets"]["dev"] = json!({ "verifier": "last-number", "sampling": greedy });
    value["evaluation"]["sets"]["again"] = json!({ "problems": "c" });
    value["evaluation"]["samples"]["again"] = json!(1);
    let examples = json!([{ "question": "1+1?", "response": "2" }]);
    value["prompt"] = json!({ "template": "chat", "system": "S", "examples": examples,
        "response_prefix": "=", "chat_template_kwargs": { "enable_thinking": false } });
    value["optimizer"]["non_finite"] = json!("skip");
    value["engine"] = json!("trl");
    value["dapo"]["dual_clip"] = json!({ "kind": "constant", "c": 10.0 });
    value["dapo"]["log_ratio_clamp"] = json!({ "kind": "symmetric", "bound": 20.0 });
    value["dapo"]["kl"] = json!({ "kind": "penalty", "estimator": "k3", "coefficient": 0.04 });
    serde_json::from_value(value).unwrap()
}

/// Experiments that between them state every key.
fn experiments() -> Vec<Experiment> {
    let arms = methods::KINDS.iter().map(|kind| load(&format!("methods/{kind}.toml")));
    let shared = [load("base.toml"), load("dapo.toml"), everything_on()];
    shared.into_iter().chain(arms).chain(programs()).collect()
}

fn programs() -> [Experiment; 3] {
    let of = |verifier: Value| {
        let mut value = serde_json::to_value(load("dapo.toml")).unwrap();
        value["dapo"]["dynamic_sampling"]["metric"] = json!("reward");
        value["evaluation"]["sets"]["dev"]["verifier"] = verifier.clone();
        value["reward"]["verifier"] = verifier;
        serde_json::from_value(value).unwrap()
    };
    let python = json!({ "kind": "python", "file": "a.py", "function": "f", "packages": ["numpy"], "files": ["b.json"],
        "python": "python3", "threshold": 0.5, "seconds": 1.0, "memory_gib": 1,
        "allow_nondeterministic": true });
    let several = json!({ "kind": "python", "file": "a.py", "functions": ["f", "g"],
        "weights": [1.0, 0.5], "kwargs": { "unit": "m" } });
    let command = json!({ "kind": "command", "file": "a.js", "command": ["node", "{file}"] });
    [of(python), of(several), of(command)]
}

#[test]
fn the_table_has_every_key_of_an_experiment_and_no_other() {
    let mut paths: BTreeSet<String> = BTreeSet::new();
    for experiment in experiments() {
        for path in flat(&experiment).into_keys() {
            let key = sources::of(&path);
            assert!(key.is_some(), "{path} has no entry in src/trainer/experiment/keys.toml");
            paths.extend(key.map(|key| key.path.to_string()));
        }
    }
    let table: Vec<&str> = sources::all().map(|key| key.path.as_str()).collect();
    for path in &table {
        assert!(paths.contains(*path), "{path} is in the table and in no experiment");
    }
    assert_eq!(paths.len(), table.len(), "a key stands twice in the table");
}

/// The nearest numbers of a key's type below and above a number.
fn neighbours(number: f64, is_count: bool) -> [f64; 2] {
    if is_count { [number - 1.0, number + 1.0] } else { [number.next_down(), number.next_up()] }
}

#[test]
fn every_range_takes_its_closed_bounds_and_refuses_its_open_ones_and_what_lies_beyond() {
    let experiments = experiments();
    for key in sources::all() {
        let Some(range) = key.range else { continue };
        let path = key.path.replace('*', "dev");
        let experiment = experiments.iter().find(|arm| flat(arm).contains_key(&path)).unwrap();
        let is_count = flat(experiment)[&path].is_u64();
        let table = Table::try_from(experiment).unwrap();
        let is_taken = |number: f64| {
            let value = if is_count { (number as i64).into() } else { number.into() };
            let changed = diagnose::with(&table, &path, value).unwrap();
            // A negative count is refused with the file.
            diagnose::parse(&changed).is_ok_and(|arm| validate::ranges(&arm).is_empty())
        };
        let below = |bound: f64| neighbours(bound, is_count)[0];
        let above = |bound: f64| neighbours(bound, is_count)[1];
        let (mut taken, mut refused) = (Vec::new(), Vec::new());
        taken.extend(range.at_least.into_iter().chain(range.at_most));
        taken.extend(range.above.map(above).into_iter().chain(range.below.map(below)));
        refused.extend(range.above.into_iter().chain(range.below));
        refused.extend(range.at_least.map(below).into_iter().chain(range.at_most.map(above)));
        assert!(!taken.is_empty(), "{path} has no bound");
        if !is_count {
            refused.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
        }
        for number in taken {
            assert!(is_taken(number), "{path} = {number} is refused");
        }
        for number in refused {
            assert!(!is_taken(number), "{path} = {number} is taken");
        }
    }
}

#[test]
fn every_number_has_a_range_but_those_of_which_all_values_are_allowed() {
    let mut unbounded = BTreeSet::new();
    for experiment in experiments() {
        for (path, value) in flat(&experiment) {
            if value.is_number() && sources::of(&path).unwrap().range.is_none() {
                unbounded.insert(path);
            }
        }
    }
    let unbounded: Vec<&str> = unbounded.iter().map(String::as_str).collect();
    assert_eq!(
        unbounded,
        [
            "checkpoints.every_steps",
            "checkpoints.keep_every",
            "dapo.dynamic_sampling.max_rounds",
            "dapo.method.above",
            "dapo.method.below",
            "evaluation.every_steps",
            "evaluation.sampling.top_k",
            "evaluation.sets.dev.sampling.top_k",
            "execution.seed",
            "optimizer.warm_up.rollout_steps",
            "rollout.sampling.top_k",
        ]
    );
}

#[test]
fn the_bounds_that_code_states_are_those_of_the_table() {
    let most = |path: &str| sources::of(path).unwrap().range.unwrap().at_most;
    assert_eq!(most("execution.threads"), Some(validate::MOST_THREADS as f64));
}

#[test]
fn every_needed_value_is_one_that_its_key_can_have() {
    let table = Table::try_from(everything_on()).unwrap();
    for needs in sources::all().filter_map(|key| key.needs.as_ref()) {
        let key = needs.key.replace("evaluation.sets.*", "reward");
        let values = diagnose::allowed(&table, &key).unwrap();
        assert!(values.contains(&format!("\"{}\"", needs.value)), "{needs:?}: {values}");
    }
}

#[test]
fn every_entry_says_what_the_key_means_and_gives_a_place_for_what_it_quotes() {
    for key in sources::all() {
        assert!(!key.meaning.is_empty() && !key.meaning.ends_with('.'), "{}", key.path);
        for stated in [&key.paper, &key.released_code] {
            let says = stated.value.is_some() || !stated.remark.is_empty();
            assert_eq!(says, !stated.place.is_empty(), "{}: {stated:?}", key.path);
        }
        let place = &key.paper.place;
        let known = ["§", "Eq. ", "Fig. ", "Algorithm ", "Table ", "arXiv "];
        assert!(place.is_empty() || known.iter().any(|name| place.starts_with(name)), "{place}");
    }
}

/// An experiment with a publication's values in the place of its own.
fn with_values(experiment: &Experiment, publication: Publication) -> Experiment {
    let mut value = serde_json::to_value(experiment).unwrap();
    for (path, stated) in publication.values() {
        let pointer = format!("/{}", path.replace('.', "/"));
        let slot = value.pointer_mut(&pointer);
        *slot.unwrap_or_else(|| panic!("{path}")) = stated;
    }
    // Both keep all tokens.
    value["rollout"]["sampling"].as_object_mut().unwrap().remove("log_probs");
    // A variant without settings keeps none of the other variant's.
    for table in ["dual_clip", "log_ratio_clamp", "kl"] {
        if value["dapo"][table]["kind"] == "none" {
            value["dapo"][table] = json!({ "kind": "none" });
        }
    }
    serde_json::from_value(value).unwrap()
}

#[test]
fn the_values_of_paper_and_released_code_make_experiments_that_can_run() {
    for publication in [Publication::Paper, Publication::ReleasedCode] {
        let experiment = with_values(&everything_on(), publication);
        assert_eq!(validate::problems(&experiment), Vec::<String>::new(), "{publication:?}");
        let left = differences(
            &ComparedSide::experiment(&experiment),
            &ComparedSide::publication(publication),
        );
        assert_eq!(left, [], "{publication:?}");
    }
}

#[test]
fn an_arm_differs_from_its_parent_in_the_settings_of_the_variant_too() {
    let (base, dapo) = (load("base.toml"), load("dapo.toml"));
    let changes = differences(&ComparedSide::experiment(&base), &ComparedSide::experiment(&dapo));
    let inside: Vec<&str> = changes.iter().filter(|d| d.in_arm).map(|d| d.key.as_str()).collect();
    assert_eq!(
        inside,
        [
            "dapo.aggregation",
            "dapo.clip.high",
            "dapo.dynamic_sampling.at_cap",
            "dapo.dynamic_sampling.kind",
            "dapo.dynamic_sampling.max_rounds",
            "dapo.dynamic_sampling.surplus",
            "dapo.overlong.punishment.beyond",
            "dapo.overlong.punishment.cache_tokens",
            "dapo.overlong.punishment.factor",
            "dapo.overlong.punishment.kind",
        ]
    );
    let rounds = changes.iter().find(|d| d.key.ends_with("max_rounds")).unwrap();
    assert_eq!((rounds.a.clone(), rounds.b.clone()), (None, Some(json!(4))));
    let name = changes.iter().find(|d| d.key == "name").unwrap();
    assert!(!name.in_arm);
}

#[test]
fn a_key_is_inside_the_arm_exactly_when_it_changes_the_arms_digest() {
    let base = load("dapo.toml");
    let arm = serde_json::to_value(base.arm()).unwrap();
    for path in flat(&base).keys() {
        let pointer = format!("/{}", path.replace('.', "/"));
        assert_eq!(in_arm(path), arm.pointer(&pointer).is_some(), "{path}");
    }
}

#[test]
fn what_a_publication_does_not_state_is_no_difference() {
    let dapo = load("dapo.toml");
    let changes = differences(
        &ComparedSide::experiment(&dapo),
        &ComparedSide::publication(Publication::Paper),
    );
    let keys: Vec<&str> = changes.iter().map(|d| d.key.as_str()).collect();
    // The embedded benchmark's scale, a ramp of 5 instead of 20, and the normaliser of Eq. 12.
    assert_eq!(
        keys,
        [
            "dapo.advantage.epsilon",
            "dapo.overlong.punishment.cache_tokens",
            "dapo.token_mean_unit",
            "optimizer.learning_rate",
            "optimizer.warm_up.rollout_steps",
            "rollout.group_size",
            "rollout.max_response_tokens",
            "training.mini_batch_rollouts",
            "training.prompts_per_step",
        ]
    );
    // The released code bounds what this arm does not.
    let code = ComparedSide::publication(Publication::ReleasedCode);
    let changes = differences(&ComparedSide::experiment(&dapo), &code);
    let of = |key: &str| changes.iter().find(|d| d.key == key).map(|d| (d.a.clone(), d.b.clone()));
    assert_eq!(of("dapo.dual_clip.kind"), Some((Some(json!("none")), Some(json!("constant")))));
    assert_eq!(of("dapo.dual_clip.c"), Some((None, Some(json!(10.0)))));
    assert_eq!(of("dapo.clip.high"), None);
}

#[test]
fn whole_numbers_and_floats_of_one_value_are_equal() {
    assert!(same(&json!(1), &json!(1.0)) && !same(&json!(1), &json!(1.5)));
    assert!(same(&json!("a"), &json!("a")) && !same(&json!("1"), &json!(1)));
}
