//! `dapo config`: differing keys with their sources, for files, arms, runs and publications.

use crate::binary::{Output, failed, json, line_in, succeeded};
use crate::repository;
use crate::transcript::play;
use dapo::experiment::sources;
use serde_json::Value;

fn config(line: &str) -> Output {
    line_in(&repository::root(), &format!("config {line}"))
}

#[test]
fn every_differing_key_is_named_with_both_values_and_both_sources() {
    let (text, _) = succeeded(config("diff grpo clip-higher"));
    insta::with_settings!({ filters => vec![(r"\b[0-9a-f]{12}\b", "[digest]")] }, {
        insta::assert_snapshot!(text);
    });
    let json = json(config("diff experiments/base.toml dapo --json"));
    let differences = json["differences"].as_array().unwrap();
    assert_eq!(differences.iter().filter(|key| key["in_arm"] == true).count(), 10);
    let has_sources = |key: &Value| key["paper"].is_string() && key["released_code"].is_string();
    assert!(differences.iter().all(has_sources), "{json}");
    assert_eq!(json["same_arm"], false);
}

#[test]
fn an_arm_is_compared_with_the_paper_and_the_released_code() {
    let (text, _) = succeeded(config("diff dapo paper"));
    insta::with_settings!({ filters => vec![(r"\b[0-9a-f]{12}\b", "[digest]")] }, {
        insta::assert_snapshot!(text);
    });
    // The known differences between the paper and the code that was released with it.
    let json = json(config("diff paper released-code --json"));
    let differences = json["differences"].as_array().unwrap().iter();
    let keys: Vec<&str> = differences.map(|key| key["key"].as_str().unwrap()).collect();
    let known = "dapo.advantage.epsilon dapo.dual_clip.kind dapo.log_ratio_clamp.kind \
                 dapo.overlong.punishment.beyond dapo.token_mean_unit \
                 optimizer.warm_up.rollout_steps";
    assert_eq!(keys.join(" "), known);
}

#[test]
fn another_seed_or_name_or_what_is_shown_is_the_same_arm() {
    play(tempfile::tempdir().unwrap().path(), include_str!("config/same_arm.txt"));
}

#[test]
fn keys_are_explained_one_by_one_by_table_and_all() {
    let (text, _) = succeeded(config("explain optimizer.warm_up.rollout_steps"));
    insta::assert_snapshot!(text);
    let count = |line: &str| json(config(line)).as_array().unwrap().len();
    assert_eq!(count("explain dapo.clip --json"), 2);
    assert_eq!(count("explain --json"), sources::all().count());
    let of_a_set = json(config("explain evaluation.samples.dev --json"));
    assert_eq!(of_a_set[0]["key"], "evaluation.samples.*");
    failed(config("explain dapo.clip.hihg"), 2, "there is no key dapo.clip.hihg");
}
