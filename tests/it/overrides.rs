//! `--set KEY=VALUE`, and long options with one meaning.

use crate::binary::{json, line_in};
use crate::repository;
use crate::transcript::play;
use clap::{Arg, CommandFactory};
use dapo::commands::Cli;
use std::collections::BTreeMap;

/// Every verb with its path, and its options.
fn verbs() -> Vec<(String, Vec<Arg>)> {
    let mut commands = vec![("dapo".to_string(), Cli::command())];
    let mut next = 0;
    while let Some((path, command)) = commands.get(next).cloned() {
        let verbs = command.get_subcommands();
        commands.extend(verbs.map(|verb| (format!("{path} {}", verb.get_name()), verb.clone())));
        next += 1;
    }
    let options = |command: clap::Command| command.get_arguments().cloned().collect();
    commands.into_iter().map(|(path, command)| (path, options(command))).collect()
}

#[test]
fn every_long_option_of_a_verb_is_there_once() {
    for (verb, options) in verbs() {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for option in &options {
            let aliases = option.get_all_aliases().unwrap_or_default();
            for long in option.get_long().into_iter().chain(aliases) {
                *seen.entry(long.to_string()).or_default() += 1;
            }
            *seen.entry(format!("(id) {}", option.get_id())).or_default() += 1;
        }
        seen.retain(|_, count| *count > 1);
        assert!(seen.is_empty(), "{verb} has {seen:?}");
    }
}

#[test]
fn set_json_and_python_mean_one_thing_in_every_verb() {
    for (name, value) in [("set", Some("KEY=VALUE")), ("json", None), ("python", Some("PROGRAM"))] {
        for (verb, options) in verbs() {
            let option = options.iter().find(|option| option.get_long() == Some(name));
            let Some(option) = option else { continue };
            let takes = option.get_action().takes_values();
            assert_eq!(takes, value.is_some(), "{verb} --{name}");
            let names = option.get_value_names().unwrap_or_default();
            let own = names.first().map(|name| name.as_str()).filter(|_| takes);
            assert_eq!(own, value, "{verb} --{name}");
        }
    }
}

#[test]
fn an_override_is_what_the_experiment_says() {
    let arm =
        |set: &str| json(line_in(&repository::root(), &format!("config show dapo --json {set}")));
    let (plain, set) = (arm(""), arm("--set training.rollout_steps=8"));
    assert_eq!(set["experiment"]["training"]["rollout_steps"], 8);
    assert_ne!(plain["arm_sha256"], set["arm_sha256"]);
    // A key inside a table with a kind keeps the others.
    let clip = arm("--set dapo.clip.high=0.3");
    assert_eq!(clip["experiment"]["dapo"]["clip"]["high"], 0.3);
    let low = "/experiment/dapo/clip/low";
    assert_eq!(clip.pointer(low).unwrap(), plain.pointer(low).unwrap());
    // A key that nothing reads is told, as `plan` and `train` tell it.
    assert_eq!(plain["unread"], serde_json::json!([]));
    let unread = arm("--set dapo.aggregation=response-mean --set dapo.token_mean_unit=group");
    let sentence = unread["unread"][0].as_str().unwrap();
    assert!(sentence.contains("does not read dapo.token_mean_unit"), "{sentence}");
    // A text needs no quotes; several verbs read it alike.
    let fast = arm("--set numerics=fast --set execution.seed=7");
    assert_eq!(fast["experiment"]["numerics"], "fast");
    assert_eq!(fast["experiment"]["execution"]["seed"], 7);
    let plan = |set: &str| {
        json(line_in(&repository::root(), &format!("plan dapo --no-probe --json {set}")))
    };
    assert_ne!(plan(""), plan("--set training.rollout_steps=8"));
}

#[test]
fn studies_are_compared_planned_and_checked_by_what_they_declare() {
    play(tempfile::tempdir().unwrap().path(), include_str!("overrides/studies.txt"));
}
