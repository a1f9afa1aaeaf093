//! The shipped experiment files: each loads, and each differs from its parent in exactly the
//! keys that it is there for.

use crate::repository;
use dapo::base::files;
use dapo::experiment::{Experiment, Grid, Publication, compare, extends, grid};
use dapo::policy::Config;
use dapo::task::DataSets;
use dapo::training::{PlanPrompts, plan::phases, plan::work};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    repository::root().join("experiments")
}

fn load(name: &str) -> Experiment {
    extends::load(&folder().join(name)).unwrap_or_else(|error| panic!("{error}"))
}

/// Keys whose values differ, the name aside; a table with a `kind` key is one value, as in `extends`.
fn differences(one: &Experiment, two: &Experiment) -> BTreeSet<String> {
    let (one, two) = (compare::flat(one), compare::flat(two));
    let keys = one.keys().chain(two.keys()).filter(|key| one.get(*key) != two.get(*key));
    let whole = |key: &String| match key.rsplit_once('.') {
        Some((table, _)) if one.contains_key(&format!("{table}.kind")) => table.to_string(),
        _ => key.clone(),
    };
    keys.filter(|key| *key != "name").map(whole).collect()
}

/// The value of a key.
fn value(experiment: &Experiment, key: &str) -> Value {
    let json = serde_json::to_value(experiment).unwrap();
    json.pointer(&format!("/{}", key.replace('.', "/"))).unwrap().clone()
}

/// What else is TOML here: the paper's claims, the study's declaration, recipes of base policies, grids of arms.
const NO_EXPERIMENTS: [&str; 6] =
    ["bases.toml", "claims.toml", "study.toml", "recipe.toml", "recipes", "grids"];

/// All experiment files below a folder.
fn experiment_files(folder: &Path) -> Vec<PathBuf> {
    let names = files::list(folder).expect("the folder is there").into_iter();
    let names = names.filter(|name| !NO_EXPERIMENTS.contains(&name.as_str()));
    let inside = names
        .map(|name| folder.join(name))
        .flat_map(|path| if path.is_dir() { experiment_files(&path) } else { vec![path] });
    inside.filter(|path| path.extension().is_some_and(|end| end == "toml")).collect()
}

#[test]
fn every_experiment_loads_and_no_two_share_a_name_or_compute_the_same() {
    let paths = experiment_files(&folder());
    assert!(paths.len() >= 7, "{paths:?}");
    let mut seen = BTreeMap::new();
    for path in paths {
        let arm = extends::load(&path).unwrap_or_else(|error| panic!("{error}"));
        for identity in [arm.arm_sha256(), arm.name] {
            if let Some(other) = seen.insert(identity.clone(), path.clone()) {
                panic!("{} and {} are both {identity}", other.display(), path.display());
            }
        }
    }
}

#[test]
fn dapo_is_grpo_with_the_four_techniques_switched_on() {
    let techniques =
        "dapo.aggregation dapo.clip.high dapo.dynamic_sampling dapo.overlong.punishment";
    let different = differences(&load("base.toml"), &load("dapo.toml"));
    assert_eq!(Vec::from_iter(different).join(" "), techniques);
}

#[test]
fn each_add_one_arm_switches_one_technique_as_dapo_does() {
    let (base, dapo) = (load("base.toml"), load("dapo.toml"));
    for (name, key, is_of_dapo) in [
        ("clip-higher", "dapo.clip.high", true),
        ("dynamic-sampling", "dapo.dynamic_sampling", true),
        ("token-level-loss", "dapo.aggregation", true),
        ("soft-overlong-punishment", "dapo.overlong.punishment", true),
        // DAPO has the soft punishment in the filter's place.
        ("overlong-filtering", "dapo.overlong.filter", false),
    ] {
        let arm = load(&format!("arms/{name}.toml"));
        assert_eq!(arm.name, name);
        assert_eq!(differences(&base, &arm), [key.to_string()].into());
        assert_eq!(value(&arm, key) == value(&dapo, key), is_of_dapo, "{name}");
    }
}

#[test]
fn the_ladders_of_real_models_climb_from_their_grpo_to_their_dapo() {
    let names = |grid: &Grid| grid.arms.iter().map(|arm| arm.name.clone()).collect::<Vec<_>>();
    let shipped = grid::file::load(&folder().join("grids/ladder.toml")).unwrap().grid;
    let ladder = ["grids/ladder", "grpo", "dapo"];
    let qwen =
        ["0.5b", "1.5b", "7b"].map(|size| ladder.map(|name| format!("qwen2.5/{name}-{size}.toml")));
    let small = ladder.map(|name| format!("smollm2/{name}.toml"));
    for [ladder, grpo, dapo] in qwen.into_iter().chain([small]) {
        let path = folder().join(ladder);
        let grid = grid::file::load(&path).unwrap_or_else(|error| panic!("{error}")).grid;
        assert_eq!(names(&grid), names(&shipped));
        let ends = [grid.arms.first(), grid.arms.last()].map(|arm| &arm.unwrap().experiment);
        for (arm, name) in ends.into_iter().zip([grpo, dapo]) {
            assert_eq!(arm.arm_sha256(), load(&name).arm_sha256(), "{name}");
        }
    }
}

#[test]
fn the_papers_experiment_has_every_value_that_the_paper_states() {
    let ours = compare::flat(&load("qwen2.5/paper-32b.toml"));
    let paper = Publication::Paper.values();
    assert!(paper.len() >= 10, "{paper:?}");
    for (key, value) in paper {
        let same = ours[&key] == value || ours[&key].as_f64() == value.as_f64();
        assert!(same, "{key}: the paper says {value}, the file {}", ours[&key]);
    }
}

/// The shape of a Qwen2.5 model.
fn shape(size: &str) -> Config {
    let shapes: Value = serde_json::from_str(include_str!("experiments/qwen2.5.json")).unwrap();
    Config::from_json(&shapes[size]).unwrap()
}

#[test]
fn real_models_fit_the_card_that_their_experiment_names_and_the_papers_fits_none() {
    let needed = |file: &str, size: &str| {
        let experiment = load(&format!("qwen2.5/{file}.toml"));
        let longest = experiment.rollout.max_prompt_tokens;
        // Most targets, and so most logits, are those of short prompts.
        let prompts =
            PlanPrompts { mean_tokens: 0.0, longest_tokens: longest, unstopped_end_of_turn: None };
        let rows = work::generated_rows(&experiment, &DataSets::default());
        let phases = phases::of(&experiment, &shape(size), &prompts, rows);
        phases.values().map(|parts| parts.values().sum::<f64>()).fold(0.0, f64::max)
    };
    const GIB: f64 = (1u64 << 30) as f64;
    for (size, card) in [("0.5b", 80e9), ("1.5b", 80e9), ("7b", 139.0 * GIB)] {
        for arm in ["grpo", "dapo"] {
            let bytes = needed(&format!("{arm}-{size}"), size);
            assert!(bytes < card && bytes > 0.4 * card, "{arm}-{size}: {:.1} GB", bytes / 1e9);
        }
    }
    assert!(needed("paper-32b", "32b") > 2.0 * 139.0 * GIB);
}

/// Files called `study.toml` in a folder and below it.
fn declarations(folder: &Path) -> Vec<PathBuf> {
    let inside = files::list(folder).unwrap().into_iter().map(|name| folder.join(name));
    let below =
        inside.flat_map(|path| if path.is_dir() { declarations(&path) } else { vec![path] });
    below.filter(|path| path.ends_with("study.toml")).collect()
}

#[test]
fn the_arms_that_a_declaration_binds_are_those_of_its_grids() {
    let mut bound = 0;
    for path in declarations(&folder()) {
        let text: toml::Table = toml::from_str(&files::read_text(&path).unwrap()).unwrap();
        let Some(arms) = text.get("arms").and_then(|arms| arms.as_table()) else { continue };
        // Its grids lie beside it, or are the shipped ones.
        let beside = path.parent().unwrap().join("grids");
        let mut known = BTreeMap::new();
        for folder in [folder().join("grids"), beside].iter().filter(|folder| folder.exists()) {
            for path in experiment_files(folder) {
                let grid = grid::file::load(&path).unwrap().grid;
                let id = |arm: &str| format!("{}/{arm}", grid.name);
                known.extend(grid.arms.iter().map(|arm| (id(&arm.name), arm.arm_sha256.clone())));
            }
        }
        for (id, digest) in arms {
            let own =
                known.get(id).unwrap_or_else(|| panic!("{}: no grid has {id}", path.display()));
            assert_eq!(Some(own.as_str()), digest.as_str(), "{}: {id}", path.display());
            bound += 1;
        }
    }
    assert!(bound >= 46, "{bound}");
}
