//! The shipped experiment files: each loads, and each differs from its parent in exactly the
//! keys that it is there for.

use dapo::config::Experiment;
use dapo::config::extends;
use dapo::files;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments")
}

fn load(name: &str) -> Experiment {
    extends::load(&folder().join(name)).unwrap_or_else(|error| panic!("{error}"))
}

/// Key path → value; a table with a `kind` key is one value, as in `extends`.
fn flat(experiment: &Experiment) -> BTreeMap<String, Value> {
    fn walk(key: String, value: Value, flat: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(table) if !table.contains_key("kind") => {
                for (name, value) in table {
                    let key = if key.is_empty() { name } else { format!("{key}.{name}") };
                    walk(key, value, flat);
                }
            }
            value => {
                flat.insert(key, value);
            }
        }
    }
    let mut values = BTreeMap::new();
    let json = serde_json::to_value(experiment).expect("an experiment is representable in JSON");
    walk(String::new(), json, &mut values);
    values
}

/// Keys whose values differ, the name aside.
fn differences(one: &Experiment, two: &Experiment) -> Vec<String> {
    let (one, two) = (flat(one), flat(two));
    assert!(one.keys().eq(two.keys()), "every experiment has the same keys");
    one.into_iter()
        .filter(|(key, value)| key != "name" && two[key] != *value)
        .map(|(key, _)| key)
        .collect()
}

/// What else is TOML here: the paper's claims, the study's declaration, grids of arms.
const NO_EXPERIMENTS: [&str; 3] = ["claims.toml", "study.toml", "grids"];

/// All experiment files below a folder.
fn experiment_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in files::list(folder).expect("the folder is there") {
        if NO_EXPERIMENTS.contains(&name.as_str()) {
            continue;
        }
        let path = folder.join(&name);
        if path.is_dir() {
            found.extend(experiment_files(&path));
        } else if name.ends_with(".toml") {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_experiment_loads_and_no_two_share_a_name() {
    let paths = experiment_files(&folder());
    assert!(paths.len() >= 7, "{paths:?}");
    let mut names = BTreeMap::new();
    for path in paths {
        let experiment = extends::load(&path).unwrap_or_else(|error| panic!("{error}"));
        if let Some(other) = names.insert(experiment.name.clone(), path.clone()) {
            panic!("{} and {} are both named {}", other.display(), path.display(), experiment.name);
        }
    }
}

#[test]
fn dapo_is_grpo_with_the_four_techniques_switched_on() {
    assert_eq!(
        differences(&load("base.toml"), &load("dapo.toml")),
        ["dapo.aggregation", "dapo.clip.high", "dapo.dynamic_sampling", "dapo.overlong.punishment"]
    );
}

#[test]
fn each_add_one_arm_switches_one_technique_as_dapo_does() {
    let base = load("base.toml");
    let dapo = flat(&load("dapo.toml"));
    for (name, key) in [
        ("clip-higher", "dapo.clip.high"),
        ("dynamic-sampling", "dapo.dynamic_sampling"),
        ("token-level-loss", "dapo.aggregation"),
        ("soft-overlong-punishment", "dapo.overlong.punishment"),
    ] {
        let arm = load(&format!("arms/{name}.toml"));
        assert_eq!(arm.name, name);
        assert_eq!(differences(&base, &arm), [key]);
        assert_eq!(flat(&arm)[key], dapo[key], "{name}");
    }
    // DAPO has the soft punishment in the filter's place.
    let filtering = load("arms/overlong-filtering.toml");
    assert_eq!(differences(&base, &filtering), ["dapo.overlong.filter"]);
    assert_eq!(dapo["dapo.overlong.filter"], Value::Bool(false));
}

#[test]
fn every_arm_has_an_identity_of_its_own() {
    let arms: Vec<Experiment> =
        experiment_files(&folder()).iter().map(|path| extends::load(path).unwrap()).collect();
    for (index, one) in arms.iter().enumerate() {
        for two in &arms[index + 1..] {
            let same = one.arm_sha256() == two.arm_sha256();
            assert!(!same, "{} and {} compute the same", one.name, two.name);
        }
    }
}
