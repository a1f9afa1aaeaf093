//! Keyword arguments of the user's, and several functions with weights.

use super::*;
use crate::base::files;
use serde_json::json;

/// What the keys of a verifier with a file of this text say of the responses `7` and `12`, of which the first is right.
fn graded(text: &str, keys: Value) -> Result<Vec<Graded>, TaskError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("reward.py");
    files::write_atomic(&file, text.as_bytes()).unwrap();
    let mut verifier = json!({ "kind": "python", "file": file, "seconds": 5.0, "memory_gib": 1 });
    verifier.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    let columns = || Map::from_iter([("index".to_string(), Value::from(4))]);
    let asked =
        |response: &str| Asked::new("3 + 4?".into(), response.into(), "7".into(), columns());
    let asked = ["7", "12"].map(asked);
    let graders = Graders::start(serde_json::from_value(verifier).unwrap())?;
    Ok(graders.grade_twice(&asked))
}

fn shown(text: &str, keys: Value) -> [String; 2] {
    tests::shown(graded(text, keys).unwrap()).try_into().unwrap()
}

#[test]
fn keyword_arguments_reach_a_function_of_every_form() {
    for text in [
        "def compute_score(solution_str, ground_truth, scale): return scale * (solution_str == ground_truth)",
        "def compute_score(solution_str, ground_truth, **kwargs): return kwargs['scale'] * (solution_str == ground_truth)",
        "async def compute_score(solution_str, ground_truth, scale=1): return scale * (solution_str == ground_truth)",
        "def compute_score(solution_strs, ground_truths, scale): return [scale * (s == t) for s, t in zip(solution_strs, ground_truths)]",
        "def reward(completions, answer, scale, **kwargs): return [scale * (c == a) for c, a in zip(completions, answer)]",
        "def reward(**kwargs): return [kwargs['scale'] * (c == '7') for c in kwargs['completions']]",
        "def grade(response, answer, scale): return scale * (response == answer)",
        "def grade(scale, response, answer): return scale * (response == answer)",
        "def grade(answer, response, scale=1): return scale * response.startswith(answer)",
    ] {
        let keys = json!({ "kwargs": { "scale": 3.0 } });
        assert_eq!(shown(text, keys), ["3 true", "0 false"], "{text}");
    }
    let nested = "def compute_score(solution_str, rules): return rules['weights'][1]";
    let keys = json!({ "kwargs": { "rules": { "weights": [1, 2] } } });
    assert_eq!(shown(nested, keys), ["2 true"; 2]);
}

#[test]
fn which_parameter_is_the_response_is_clear_by_its_name_or_refused() {
    let of = |first: &str, second: &str| {
        let text = format!("def reward({first}, {second}): return float({first})");
        graded(&text, json!({})).map(|graded| graded[1].as_ref().unwrap().reward)
    };
    for (response, truth) in [
        ("pred", "gold"),
        ("y_pred", "y_true"),
        ("completion_text", "correct_answer"),
        ("prediction", "references"),
        ("modelAnswer", "golden_answer"),
        ("output", "expected_output"),
    ] {
        assert_eq!(of(response, truth).unwrap(), 12.0, "{response}, {truth}");
        assert_eq!(of(truth, response).unwrap(), 7.0, "{truth}, {response}");
    }
    for [first, second] in [
        ["answer", "gt"],
        ["solution", "b"],
        ["student_answer", "answer"],
        ["a", "b"],
        ["r", "gt"],
        ["resp", "ans"],
        ["generated_text", "doc"],
        ["xs", "y"],
        ["text", "answer"],
        ["input", "target"],
    ] {
        assert_eq!(of(first, second).unwrap(), 12.0, "{first}, {second}");
    }
    for (first, second) in
        "gt answer, truth text, question response, answer b, question answer, prompt solution, user_query gt, task b, \
         input answer, entry solution, solution problem, text input, args sample, doc results, student teacher, s text, \
         student_answer teacher_answer"
            .split(", ")
            .map(|names| names.split_once(' ').unwrap())
    {
        let error = of(first, second).unwrap_err().to_string();
        assert!(
            error.contains("not clear which one is the response"),
            "{first}, {second}: {error}"
        );
    }
    for (first, second) in [
        ("predictions", "references"),
        ("responses", "answers"),
        ("golds", "preds"),
        ("outputs", "targets"),
        ("hypotheses", "refs"),
        ("questions", "gold_answers"),
    ] {
        let error = of(first, second).unwrap_err().to_string();
        assert!(error.contains("which are names of lists"), "{first}, {second}: {error}");
    }
}

#[test]
fn a_keyword_argument_that_no_call_can_have_is_refused_at_the_start() {
    for (text, name, expected) in [
        (
            "def compute_score(solution_str, scale=1): pass",
            "sacle",
            "kwargs states sacle, which is no parameter of compute_score(solution_str, scale)",
        ),
        (
            "def compute_score(solution_str, ground_truth): pass",
            "ground_truth",
            "kwargs states ground_truth, which each call of compute_score gets of the problem",
        ),
        (
            "def compute_score(solution_strs, **kwargs): pass",
            "extra_infos",
            "kwargs states extra_infos, which each call of compute_score gets",
        ),
        (
            "def reward(completions, **kwargs): pass",
            "answer",
            "kwargs states answer, which each call of reward gets",
        ),
        ("def grade(response, answer): pass", "answer", "(response, answer), kwargs states answer"),
        ("def grade(response, answer, strict=1, /): pass", "strict", "which is no parameter of"),
    ] {
        let error = graded(text, json!({ "kwargs": { (name): 1 } })).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    // Columns are known once there is a response.
    let text = "def reward(completions, **kwargs): return [1.0] * len(completions)";
    let [error, _] = shown(text, json!({ "kwargs": { "index": 1 } }));
    assert!(error.contains("kwargs states index, which each call gets of the problem"), "{error}");
}

/// As TRL has them, with a bonus of its own form.
const SEVERAL: &str = "def accuracy(completions, answer, **kwargs): return [float(c == a) for c, a in zip(completions, answer)]\ndef length(completions, **kwargs): return [0.25 * len(c) for c in completions]\ndef rare(completions, **kwargs): return [None if c == '7' else 1 for c in completions]\ndef bonus(solution_str, extra): return {'score': extra, 'acc': True, 'steps': 3}\ndef strict(response, answer): return response == answer\n";

#[test]
fn the_reward_of_several_functions_is_their_weighted_sum() {
    for (keys, expected) in [
        (json!({ "functions": ["accuracy", "length"] }), ["1.25 true", "0.5 false"]),
        (
            json!({ "functions": ["accuracy", "length"], "weights": [2.0, -1.0] }),
            ["1.75 true", "-0.5 false"],
        ),
        (
            json!({ "functions": ["length", "accuracy"], "threshold": 0.3 }),
            ["1.25 false", "0.5 true"],
        ),
        // What is None is left out, and wrong where the first function returns it.
        (json!({ "functions": ["accuracy", "rare"] }), ["1 true", "1 false"]),
        (json!({ "functions": ["rare", "accuracy"] }), ["1 false", "1 true"]),
        // Of several forms; a keyword argument is for those that take it.
        (
            json!({ "functions": ["strict", "bonus", "length"], "kwargs": { "extra": 2 } }),
            ["3.25 true", "1.5 false"],
        ),
        (json!({ "functions": ["accuracy"], "weights": [4] }), ["4 true", "0 false"]),
    ] {
        assert_eq!(shown(SEVERAL, keys.clone()), expected, "{keys}");
    }
    let keys = json!({ "functions": ["rare", "bonus"], "kwargs": { "extra": 2 } });
    let graded = graded(SEVERAL, keys).unwrap();
    let extra =
        |index: usize| serde_json::to_value(&graded[index].as_ref().unwrap().extra).unwrap();
    let bonus = json!({ "bonus": 2.0, "bonus.acc": 1.0, "bonus.steps": 3.0 });
    assert_eq!(extra(0), bonus);
    assert_eq!(extra(1)["rare"], 1.0);
}

#[test]
fn what_one_of_several_functions_does_wrong_is_told_with_its_name() {
    for (body, expected) in [
        ("[1.0]", "failed: second: returned 1 rewards for 2 responses"),
        ("1 / 0", "raised second: ZeroDivisionError: division by zero (line 2)"),
        ("[float('nan'), 1]", "returned nan from second, expected"),
        ("['a', 1]", "returned str from second, expected"),
        ("[{'n': 1}, 1]", "returned a dictionary without `score` from second, expected"),
        ("[1e308, 1]", "returned inf, expected"),
    ] {
        let text = format!(
            "def first(completions): return [1.0] * len(completions)\ndef second(completions): return {body}\n"
        );
        let keys = json!({ "functions": ["first", "second"], "weights": [1.0, 2.0] });
        let [error, _] = shown(&text, keys);
        assert!(error.contains(expected), "{body}: {error}");
    }
    let none = "def a(completions): return [None] * 2\ndef b(solution_str): return None\n";
    let [error, _] = shown(none, json!({ "functions": ["a", "b"] }));
    assert!(error.contains("returned None from every function, and TRL leaves such"), "{error}");
    for (function, says) in [
        ("a", "returned None, and TRL leaves such a response out of the mean: drop the problem"),
        ("b", "returned None, expected a finite number"),
    ] {
        let [error, _] = shown(none, json!({ "function": function }));
        assert!(error.contains(says), "{function}: {error}");
    }
    let error = graded(none, json!({ "functions": ["a", "c"] })).unwrap_err().to_string();
    assert!(error.contains("it has no function `c`; its functions: a, b"), "{error}");
}
