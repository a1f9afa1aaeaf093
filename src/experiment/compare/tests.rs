use super::*;
use crate::algorithm::methods;
use crate::experiment::{extends, validate};
use serde_json::json;
use std::path::Path;

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
    value["optimizer"]["non_finite"] = json!("skip");
    value["engine"] = json!("trl");
    value["dapo"]["dual_clip"] = json!({ "kind": "constant", "c": 10.0 });
    value["dapo"]["log_ratio_clamp"] = json!({ "kind": "symmetric", "bound": 20.0 });
    value["dapo"]["kl"] = json!({ "kind": "penalty", "estimator": "k3", "coefficient": 0.04 });
    serde_json::from_value(value).unwrap()
}

#[test]
fn the_table_has_every_key_of_an_experiment_and_no_other() {
    let mut paths: BTreeSet<String> = BTreeSet::new();
    let arms = methods::FILES.iter().map(|file| file.replace('_', "-"));
    let arms = arms.map(|kind| load(&format!("methods/{kind}.toml")));
    for experiment in
        [load("base.toml"), load("dapo.toml"), everything_on()].into_iter().chain(arms)
    {
        for path in flat(&experiment).into_keys() {
            let key = sources::of(&path);
            assert!(key.is_some(), "{path} has no entry in src/experiment/keys.toml");
            paths.extend(key.map(|key| key.path.to_string()));
        }
    }
    let table: Vec<&str> = sources::all().map(|key| key.path.as_str()).collect();
    for path in &table {
        assert!(paths.contains(*path), "{path} is in the table and in no experiment");
    }
    assert_eq!(paths.len(), table.len(), "a key stands twice in the table");
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
    let found = differences(&ComparedSide::experiment(&base), &ComparedSide::experiment(&dapo));
    let inside: Vec<&str> = found.iter().filter(|d| d.in_arm).map(|d| d.key.as_str()).collect();
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
    let rounds = found.iter().find(|d| d.key.ends_with("max_rounds")).unwrap();
    assert_eq!((rounds.a.clone(), rounds.b.clone()), (None, Some(json!(4))));
    let name = found.iter().find(|d| d.key == "name").unwrap();
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
    let found = differences(
        &ComparedSide::experiment(&dapo),
        &ComparedSide::publication(Publication::Paper),
    );
    let keys: Vec<&str> = found.iter().map(|d| d.key.as_str()).collect();
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
    let found = differences(&ComparedSide::experiment(&dapo), &code);
    let of = |key: &str| found.iter().find(|d| d.key == key).map(|d| (d.a.clone(), d.b.clone()));
    assert_eq!(of("dapo.dual_clip.kind"), Some((Some(json!("none")), Some(json!("constant")))));
    assert_eq!(of("dapo.dual_clip.c"), Some((None, Some(json!(10.0)))));
    assert_eq!(of("dapo.clip.high"), None);
}

#[test]
fn whole_numbers_and_floats_of_one_value_are_equal() {
    assert!(same(&json!(1), &json!(1.0)) && !same(&json!(1), &json!(1.5)));
    assert!(same(&json!("a"), &json!("a")) && !same(&json!("1"), &json!(1)));
}
