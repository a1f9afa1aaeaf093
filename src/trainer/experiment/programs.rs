//! What a table that names a program as the verifier must satisfy beside the ranges of its keys.

use crate::algorithm::Method;
use crate::experiment::{Experiment, ProgramKind, RewardProgram};
use serde_json::Value;
use std::path::{Component, Path};

/// One sentence each, starting with the key's path.
pub fn problems(experiment: &Experiment) -> Vec<String> {
    let mut problems = Vec::new();
    for (set, grading) in experiment.gradings() {
        let Some(program) = grading.program() else { continue };
        let key = match set {
            None => "reward.verifier".to_string(),
            Some(set) => format!("evaluation.sets.{set}.verifier"),
        };
        problems.extend(of_program(&key, program));
        let reads_units = matches!(experiment.dapo.method, Some(Method::MaxRl(_)));
        if set.is_none() && reads_units && program.kind != ProgramKind::MathVerify {
            let sentence = "dapo.method.kind = \"max-rl\" reads rewards as 1 or -1, which a program need not return";
            problems.push(sentence.to_string());
        }
    }
    problems
}

fn of_program(key: &str, program: &RewardProgram) -> Vec<String> {
    let has_file = !program.file.as_os_str().is_empty();
    let is_own = program.kind == ProgramKind::MathVerify;
    let has_python = program.python.is_some() || !program.packages.is_empty();
    let is_command = program.kind == ProgramKind::Command;
    let own_file = "must be absent with kind = \"math-verify\"";
    let no_python = "must be absent with kind = \"command\": no Python is started for it";
    let mut problems = refused([
        (!is_own && !has_file, format!("{key}.file is missing: the program's file")),
        (is_own && has_file, format!("{key}.file {own_file}")),
        (is_own && !program.files.is_empty(), format!("{key}.files {own_file}")),
        (is_command && has_python, format!("{key}.python and packages {no_python}")),
    ]);
    problems.extend(functions(key, program));
    for (index, name) in program.files.iter().enumerate() {
        let is_plain = Path::new(name).components().all(|it| matches!(it, Component::Normal(_)));
        let is_plain = is_plain && name.split('/').all(|part| !matches!(part, "" | "."));
        if !is_plain {
            let advice = if name.starts_with("../") {
                ": what a Python file loads at its top is recorded wherever it lies, other files belong into that folder"
            } else {
                ""
            };
            problems.push(format!(
                "{key}.files must be paths from the folder of {key}.file, without `..`, `.` and doubled `/`, got {name:?}{advice}"
            ));
        } else if program.files[..index].contains(name) || program.file.ends_with(name) {
            problems.push(format!("{key}.files has {name:?}, which is there already"));
        }
    }
    for (name, value) in &program.kwargs {
        // A null on its own is refused with the ranges.
        if !value.is_null() && is_no_json(value) {
            problems.push(format!(
                "{key}.kwargs.{name} must be a text, a truth value, a finite number, or a list or table of them"
            ));
        }
    }
    problems
}

/// The sentences whose conditions hold.
pub fn refused<const N: usize>(conditions: [(bool, String); N]) -> Vec<String> {
    let holding = conditions.into_iter().filter(|(holds, _)| *holds);
    holding.map(|(_, sentence)| sentence).collect()
}

fn functions(key: &str, program: &RewardProgram) -> Vec<String> {
    let RewardProgram { function, functions, weights, .. } = program;
    let both = format!("{key}.function must be absent beside {key}.functions");
    let mut problems = refused([(function.is_some() && !functions.is_empty(), both)]);
    for (index, name) in functions.iter().enumerate() {
        if functions[..index].contains(name) {
            problems.push(format!("{key}.functions has {name} twice"));
        }
        if ["score", "acc", "pred"].contains(&name.as_str()) {
            problems.push(format!(
                "{key}.functions must not have {name}: each function's value is recorded under its name, \
                 and this name has another meaning there; give the function another one"
            ));
        }
    }
    let (expected, got) = (functions.len(), weights.len());
    let counted = format!("have one number for each of {key}.functions ({expected}), got {got}");
    let are_finite = weights.iter().all(|weight| weight.is_finite());
    problems.extend(refused([
        (got > 0 && got != expected, format!("{key}.weights must {counted}")),
        (!are_finite, format!("{key}.weights must be finite, got {weights:?}")),
    ]));
    problems
}

/// JSON has null for NaN and infinities, and TOML hands a date over as a table.
fn is_no_json(value: &Value) -> bool {
    match value {
        Value::Array(values) => values.iter().any(is_no_json),
        Value::Object(table) => {
            table.iter().any(|(name, value)| name.starts_with("$__toml") || is_no_json(value))
        }
        other => other.is_null(),
    }
}
