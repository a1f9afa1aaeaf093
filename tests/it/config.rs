//! `dapo config`: differing keys with their sources, for files, arms, runs and publications.

use crate::binary::{Output, dapo, failed, says, succeeded};
use dapo::base::files;
use dapo::experiment::{extends, sources};
use serde_json::Value;
use std::path::Path;

fn config(arguments: &[&str]) -> Output {
    dapo(&[&["config"], arguments].concat())
}

#[test]
fn every_differing_key_is_named_with_both_values_and_both_sources() {
    let (text, _) = succeeded(config(&["diff", "grpo", "clip-higher"]));
    insta::with_settings!({ filters => vec![(r"\b[0-9a-f]{12}\b", "[digest]")] }, {
        insta::assert_snapshot!(text);
    });
    let (_, text, _) = config(&["diff", "experiments/base.toml", "dapo", "--json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    let differences = json["differences"].as_array().unwrap();
    let inside = differences.iter().filter(|difference| difference["in_arm"] == true);
    assert_eq!(inside.count(), 10);
    for difference in differences {
        assert!(difference["paper"].is_string() && difference["released_code"].is_string());
    }
    assert_eq!(json["same_arm"], false);
}

#[test]
fn an_arm_is_compared_with_the_paper_and_the_released_code() {
    let (text, _) = succeeded(config(&["diff", "dapo", "paper"]));
    insta::with_settings!({ filters => vec![(r"\b[0-9a-f]{12}\b", "[digest]")] }, {
        insta::assert_snapshot!(text);
    });
    // The known differences between the paper and the code that was released with it.
    let (_, text, _) = config(&["diff", "paper", "released-code", "--json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    let differences = json["differences"].as_array().unwrap().iter();
    let keys: Vec<&str> = differences.map(|it| it["key"].as_str().unwrap()).collect();
    let known = "dapo.advantage.epsilon dapo.dual_clip.kind dapo.log_ratio_clamp.kind \
                 dapo.overlong.punishment.beyond dapo.token_mean_unit \
                 optimizer.warm_up.rollout_steps";
    assert_eq!(keys.join(" "), known);
}

#[test]
fn another_seed_or_name_is_the_same_arm() {
    let folder = tempfile::tempdir().unwrap();
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/dapo.toml");
    let file = folder.path().join("again.toml");
    let text =
        format!("name = \"again\"\nextends = \"{}\"\n[execution]\nseed = 7\n", base.display());
    files::write_atomic(&file, text.as_bytes()).unwrap();
    let name = file.display().to_string();
    let same = ["same arm: no key of its identity differs", "  execution.seed: 1 → 7\n"];
    says(config(&["diff", "dapo", &name, "--exit-code"]), 0, &same);

    // A run folder stands for the experiment that it recorded.
    let run = folder.path().join("run");
    files::create_folder(&run).unwrap();
    files::write_json(&run.join("experiment.json"), &extends::load(&file).unwrap()).unwrap();
    let run = run.display().to_string();
    let (code, text, _) = config(&["diff", &run, &name, "--json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &json["same_arm"]), (0, &Value::Bool(true)));
    assert_eq!(json["differences"], Value::Array(vec![]));

    assert_eq!(config(&["diff", "dapo", "grpo", "--exit-code"]).0, 4);
    assert_eq!(config(&["diff", "dapo", "grpo"]).0, 0);
}

#[test]
fn what_is_shown_loads_again_as_the_same_arm() {
    let (text, _) = succeeded(config(&["show", "dapo"]));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shown.toml");
    files::write_atomic(&file, text.as_bytes()).unwrap();
    let shown = extends::load(&file).unwrap().arm_sha256();
    assert!(text.contains(&format!("# arm {shown}\n")), "{text}");
    let (_, text, _) = config(&["show", "dapo", "--json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["arm_sha256"], shown.as_str());
    assert_eq!(json["experiment"]["dapo"]["clip"]["high"], 0.28);
}

#[test]
fn keys_are_explained_one_by_one_by_table_and_all() {
    let (text, _) = succeeded(config(&["explain", "optimizer.warm_up.rollout_steps"]));
    insta::assert_snapshot!(text);
    let (_, text, _) = config(&["explain", "dapo.clip", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap().as_array().unwrap().len(), 2);
    let (_, text, _) = config(&["explain", "evaluation.samples.dev", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()[0]["key"], "evaluation.samples.*");
    let (_, text, _) = config(&["explain", "--json"]);
    let all = serde_json::from_str::<Value>(&text).unwrap().as_array().unwrap().len();
    assert_eq!(all, sources::all().count());
    failed(config(&["explain", "dapo.clip.hihg"]), 2, "there is no key dapo.clip.hihg");
}
