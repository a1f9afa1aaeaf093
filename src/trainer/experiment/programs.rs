//! What a table that names a program as the verifier must satisfy beside the ranges of its keys.

use crate::algorithm::Method;
use crate::experiment::{Experiment, ProgramKind, RewardProgram};
use serde_json::Value;

/// One sentence each, starting with the key's path.
pub fn problems(experiment: &Experiment) -> Vec<String> {
    let Some(program) = experiment.reward.verifier.program() else { return Vec::new() };
    let has_file = !program.file.as_os_str().is_empty();
    let is_own = program.kind == ProgramKind::MathVerify;
    let has_python = program.python.is_some() || !program.packages.is_empty();
    let is_command = program.kind == ProgramKind::Command;
    let reads_units = matches!(experiment.dapo.method, Some(Method::MaxRl(_)));
    let no_file = "reward.verifier.file is missing: the program's file";
    let own_file = "reward.verifier.file must be absent with kind = \"math-verify\"";
    let no_python = "reward.verifier.python and packages must be absent with kind = \"command\": no Python is started for it";
    let other_rewards =
        "dapo.method.kind = \"max-rl\" reads rewards as 1 or -1, which a program need not return";
    let mut problems = refused([
        (!is_own && !has_file, no_file.into()),
        (is_own && has_file, own_file.into()),
        (is_command && has_python, no_python.into()),
        (!is_own && reads_units, other_rewards.into()),
    ]);
    problems.extend(functions(program));
    for (name, value) in &program.kwargs {
        // A null on its own is refused with the ranges.
        if !value.is_null() && is_no_json(value) {
            problems.push(format!(
                "reward.verifier.kwargs.{name} must be a text, a truth value, a finite number, or a list or table of them"
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

fn functions(program: &RewardProgram) -> Vec<String> {
    let RewardProgram { function, functions, weights, .. } = program;
    let mut problems = Vec::new();
    if function.is_some() && !functions.is_empty() {
        let sentence = "reward.verifier.function must be absent beside reward.verifier.functions";
        problems.push(sentence.to_string());
    }
    for (index, name) in functions.iter().enumerate() {
        if functions[..index].contains(name) {
            problems.push(format!("reward.verifier.functions has {name} twice"));
        }
        if ["score", "acc", "pred"].contains(&name.as_str()) {
            problems.push(format!(
                "reward.verifier.functions must not have {name}: each function's value is recorded under its name, \
                 and this name has another meaning there; give the function another one"
            ));
        }
    }
    if !weights.is_empty() && weights.len() != functions.len() {
        problems.push(format!(
            "reward.verifier.weights must have one number for each of reward.verifier.functions ({}), got {}",
            functions.len(),
            weights.len()
        ));
    }
    if weights.iter().any(|weight| !weight.is_finite()) {
        problems.push(format!("reward.verifier.weights must be finite, got {weights:?}"));
    }
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
