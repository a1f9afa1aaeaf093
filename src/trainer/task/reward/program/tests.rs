use super::*;
use crate::base::files;
use crate::experiment::ProgramKind;
use serde_json::json;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Graders of a file with this text, with little time.
fn graders(folder: &Path, text: &str) -> Result<Graders, TaskError> {
    let file = folder.join("reward.py");
    files::write_atomic(&file, text.as_bytes()).unwrap();
    let limits = RewardProgram::of_python(file, None);
    Graders::start(RewardProgram { seconds: 2.0, memory_gib: 1, ..limits })
}

fn asked(responses: &[&str]) -> Vec<Asked> {
    let asked = |response: &&str| Asked {
        response: response.to_string(),
        ground_truth: "7".into(),
        prompt: Value::from("3 + 4?"),
        ..Asked::default()
    };
    responses.iter().map(asked).collect()
}

fn of_row(response: &str, row: &Value) -> Asked {
    Asked::new("q".into(), response.into(), "7".into(), row.as_object().unwrap().clone())
}

/// `{file}` in the command is its path.
fn of_command(file: PathBuf, seconds: f64, command: &[&str]) -> RewardProgram {
    RewardProgram {
        kind: ProgramKind::Command,
        seconds,
        command: command.iter().map(ToString::to_string).collect(),
        ..RewardProgram::of_python(file, None)
    }
}

/// A Python that finds the packages of a folder.
fn python_with(folder: &Path, packages: &Path) -> Option<String> {
    let text = format!("#!/bin/sh\nPYTHONPATH={} exec python3 \"$@\"\n", packages.display());
    let python = folder.join("python");
    files::write_program(&python, &text).unwrap();
    Some(python.display().to_string())
}

/// What a file says of the responses: rewards, or why there is none.
fn grades(text: &str, responses: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let graders = graders(folder.path(), text).unwrap();
    shown(graders.grade(&asked(responses)))
}

pub fn shown(graded: Vec<Graded>) -> Vec<String> {
    let shown = |graded: Graded| match graded {
        Ok(grade) => format!("{} {}", grade.reward, grade.is_correct),
        Err(error) => error.to_string(),
    };
    graded.into_iter().map(shown).collect()
}

#[test]
fn functions_are_called_as_verl_trl_and_anybody_would() {
    for (text, expected) in [
        (
            "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n return 1.0 if solution_str == ground_truth else 0.0",
            ["1 true", "0 false"],
        ),
        (
            "def compute_score(solution_str, ground_truth, **kwargs):\n right = solution_str == ground_truth\n return {'score': 1 if right else -1, 'acc': right, 'pred': solution_str, 'length': len(solution_str)}",
            ["1 true", "-1 false"],
        ),
        (
            "def reward(completions, answer, **kwargs):\n return [float(c == a) for c, a in zip(completions, answer)]",
            ["1 true", "0 false"],
        ),
        (
            "def length(prompts, completions):\n return [-len(c) for c in completions]",
            ["-1 false", "-2 false"],
        ),
        ("def grade(response, answer):\n return response == answer", ["1 true", "-1 false"]),
        // As both trainers, a truth value of theirs is the number 1 or 0.
        (
            "def compute_score(solution_str, ground_truth):\n return solution_str == ground_truth",
            ["1 true", "0 false"],
        ),
        (
            "def right(completions, answer):\n return [c == a for c, a in zip(completions, answer)]",
            ["1 true", "0 false"],
        ),
        (
            "def compute_score(**kwargs):\n return float(kwargs['solution_str'] == kwargs['ground_truth'])",
            ["1 true", "0 false"],
        ),
        (
            "def reward(**kwargs):\n return [float(c == '7') for c in kwargs['completions']]",
            ["1 true", "0 false"],
        ),
        (
            "async def compute_score(solution_str, ground_truth):\n return float(solution_str == ground_truth)",
            ["1 true", "0 false"],
        ),
        (
            "async def reward(completions, **kwargs):\n return [float(c == '7') for c in completions]",
            ["1 true", "0 false"],
        ),
        (
            "def compute_score(solution_str, ground_truth, extra_info):\n assert extra_info == {'num_turns': 2, 'rollout_reward_scores': {}}\n return float(solution_str == ground_truth)",
            ["1 true", "0 false"],
        ),
        // As verl's batch reward manager.
        (
            "def compute_score(data_sources, solution_strs, ground_truths, extra_infos):\n assert extra_infos[0] == {'rollout_reward_scores': {}}\n return [float(s == t) for s, t in zip(solution_strs, ground_truths)]",
            ["1 true", "0 false"],
        ),
        (
            "def compute_score(solution_strs, ground_truths, **kwargs):\n return [{'score': 2.0, 'acc': s == t} for s, t in zip(solution_strs, ground_truths)]",
            ["2 true", "2 false"],
        ),
        (
            "def reward(completions, log_extra, log_metric):\n log_metric('n', 2.0)\n return [float(c == '7') for c in completions]",
            ["1 true", "0 false"],
        ),
        (
            "class Scorer:\n def __call__(self, solution_str, ground_truth): return float(solution_str == ground_truth)\ncompute_score = Scorer()",
            ["1 true", "0 false"],
        ),
        (
            "def grade(ground_truth, response):\n return response.endswith(ground_truth) and ground_truth == '7'",
            ["1 true", "-1 false"],
        ),
        ("import helper\ndef helped(a, b): return helper.right(a, b)\n", ["1 true", "-1 false"]),
        (
            "import functools\n@functools.lru_cache\ndef reward(response, answer): return response == answer",
            ["1 true", "-1 false"],
        ),
        (
            "class Scorer:\n def score(self, response, answer): return response == answer\nreward = Scorer().score",
            ["1 true", "-1 false"],
        ),
        // What waits at a semaphore belongs to an event loop.
        (
            "import asyncio\ngate = asyncio.Semaphore(1)\nasync def one():\n async with gate: await asyncio.sleep(0)\nasync def compute_score(solution_str, ground_truth):\n await asyncio.gather(one(), one())\n return float(solution_str == ground_truth)",
            ["1 true", "0 false"],
        ),
        (
            "import numpy_like\ndef grade(a, b): return numpy_like.Scalar(0.75)\n",
            ["0.75 true", "0.75 true"],
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let helper = |name: &str, text: &str| {
            files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
        };
        helper("helper.py", "def right(a, b): return a == b\n");
        helper(
            "numpy_like.py",
            "class Scalar:\n def __init__(self, x): self.x = x\n def item(self): return self.x\n",
        );
        let graders = graders(folder.path(), text).unwrap();
        assert_eq!(shown(graders.grade_twice(&asked(&["7", "12"]))), expected, "{text}");
        let imports: &[&str] = match text.split_whitespace().nth(1) {
            Some("helper") => &["helper.py", "reward.py"],
            Some("numpy_like") => &["numpy_like.py", "reward.py"],
            _ => &["reward.py"],
        };
        assert_eq!(graders.ready().files, imports);
    }
}

#[test]
fn what_a_function_does_wrong_is_told_of_the_response_and_loses_no_other() {
    let wrong = |what: &str| {
        format!(
            "import os, signal, sys, time\ndef grade(response, answer):\n if response == 'bad':\n  {what}\n return 1.0\n"
        )
    };
    for (what, expected) in [
        ("time.sleep(60)", "took longer than 2 s for a response and was stopped"),
        ("os._exit(3)", "ended its process: exit status 3"),
        (
            "sys.stderr.write('out of luck\\n'); os.kill(os.getpid(), signal.SIGSEGV)",
            "signal 11, after \"out of luck\"",
        ),
        ("sys.exit(4)", "exit status 4"),
        ("raise ValueError('no such number')", "raised ValueError: no such number (line 4)"),
        ("return float('nan')", "returned nan, expected a finite number"),
        ("return 10 ** 400", "returned int that no float can hold, expected a finite number"),
        ("import decimal; return decimal.Decimal('sNaN')", "returned Decimal that no float"),
        ("return None", "returned None, expected"),
        ("return 'seven'", "returned str, expected"),
        ("return {'reward': 1}", "returned a dictionary without `score`"),
        ("return {'score': float('inf')}", "returned inf, expected"),
        ("return [1.0]", "returned list, expected"),
        ("bytearray(4 << 30)", "raised MemoryError"),
        ("os.closerange(3, 99); time.sleep(60)", "failed: it closed its standard output"),
        ("print('stuck at 3'); time.sleep(60)", "was stopped, after \"stuck at 3\""),
    ] {
        let graded = grades(&wrong(what), &["good", "bad", "good", "good"]);
        let [first, bad, rest @ ..] = &graded[..] else { panic!("{graded:?}") };
        assert!(bad.contains(expected), "{what}: {bad}");
        assert!(first == "1 true" && rest.iter().all(|it| it == "1 true"), "{what}: {graded:?}");
    }
    for harmless in
        ["print('hello')", "os.write(1, b'hello')", "sys.stdin.read()", "os.fork() or None"]
    {
        let graded = grades(&wrong(harmless), &["bad", "bad", "good"]);
        assert_eq!(graded, ["1 true"; 3], "{harmless}");
    }
}

#[test]
fn a_function_of_a_batch_returns_one_reward_for_each_response() {
    for form in ["reward(completions, **kwargs)", "compute_score(solution_strs, ground_truths)"] {
        let short = format!("def {form}:\n return [1.0]");
        assert_eq!(
            grades(&short, &["a", "b"]),
            ["the program returned 1 rewards for 2 responses"; 2]
        );
    }
    let state = "def reward(completions, **kwargs):\n return [kwargs['trainer_state'].global_step]";
    assert!(grades(state, &["a"])[0].contains("failed: it reads trainer_state"));
    let tokens = "def reward(completions, completion_ids): return [1.0] * len(completions)";
    assert!(grades(tokens, &["a"])[0].contains("failed: it reads completion_ids, and the tokens"));
    let may_lack = tokens.replace("completion_ids)", "completion_ids=None)");
    assert_eq!(grades(&may_lack, &["a"]), ["1 true"]);
    let raises = "def reward(completions, **kwargs):\n raise KeyError('x')";
    assert!(grades(raises, &["a", "b"])[1].contains("raised KeyError"));
    for value in ["1.0", "{'score': [1]}", "'11'", "None"] {
        let one = grades(&format!("def reward(completions):\n return {value}"), &["a", "b"]);
        assert!(one[1].contains("the program failed: it returned"), "{one:?}");
        assert!(one[1].contains("expected a list, one number for each response"), "{one:?}");
    }
}

#[test]
fn a_batch_that_hangs_is_asked_once_and_lost_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let asked_of = folder.path().join("asked");
    let text = format!(
        "import time\ndef reward(completions):\n open({asked_of:?}, 'a').write('x')\n time.sleep(60)"
    );
    let graders = graders(folder.path(), &text).unwrap();
    let graded = graders.grade(&asked(&["a", "b"]));
    let late = Ungraded::TookTooLong { seconds: 4.0, responses: 2, seen: String::new() };
    assert_eq!(graded, vec![Err(late); 2]);
    let errors: Vec<&Ungraded> = graded.iter().filter_map(|it| it.as_ref().err()).collect();
    assert!(are_lost_together(&errors, 2) && !are_lost_together(&errors, 3));
    assert_eq!(files::read_text(&asked_of).unwrap(), "x");
}

#[test]
fn a_metric_is_of_one_further_number_and_none_of_the_harness() {
    for (numbers, words) in [
        (
            "'disagreeing_share': 1",
            "reward/disagreeing_share, which is that of `allow_nondeterministic`",
        ),
        ("'a b': 1, 'a/b': 2", "`a/b` would be the metric reward/a_b, which is that of `a b`"),
        ("('a b' if response == '7' else 'a_b'): 1", "which is that of"),
    ] {
        let text = format!("def grade(response, answer): return {{'score': 1.0, {numbers}}}");
        let errors = grades(&text, &["7", "8"]).join("\n");
        assert!(errors.contains(words), "{errors}");
    }
}

#[test]
fn extra_info_has_no_ground_truth_that_a_file_does_not_have() {
    let columns = json!({"nums": [4], "ground_truth": {"nums": [4]}});
    let asked =
        Asked::new("q".into(), "r".into(), String::new(), columns.as_object().unwrap().clone());
    assert_eq!(
        (json!(asked.extra), asked.ground_truth),
        (json!({"nums": [4]}), json!({"nums": [4]}))
    );
}

#[test]
fn texts_that_are_taken_for_messages_and_messages_for_texts_are_told() {
    let by_message = "def reward(completions): return [c[0]['content'] for c in completions]";
    let [of_texts, _] = &grades(by_message, &["a", "b"])[..] else { panic!() };
    assert!(of_texts.contains("where a line's `prompt` is a list of messages"), "{of_texts}");
    for body in ["c.strip()", "re.search('a', c)"] {
        let text =
            format!("import re\ndef reward(completions): return [{body} for c in completions]");
        let folder = tempfile::tempdir().unwrap();
        let mut asked = asked(&["a"]);
        asked[0].prompt = json!([{"role": "user", "content": "q"}]);
        let told = shown(graders(folder.path(), &text).unwrap().grade(&asked)).remove(0);
        assert!(told.contains("as the prompts are (completion[0][\"content\"])"), "{told}");
    }
}

#[test]
fn a_file_is_a_module_of_its_name_unless_a_package_has_it() {
    let spawns = "import multiprocessing\ndef right(both): return both[0] == both[1]\ndef grade(response, answer):\n with multiprocessing.get_context('spawn').Pool(1) as pool: return pool.map(right, [(response, answer)])[0]";
    let folder = tempfile::tempdir().unwrap();
    let graders_of = |name: &str, text: &str, python: Option<String>| {
        let file = folder.path().join(name);
        files::write_atomic(&file, text.as_bytes()).unwrap();
        let program = RewardProgram::of_python(file, None);
        Graders::start(RewardProgram { seconds: 30.0, python, ..program }).unwrap()
    };
    let graders = graders_of("spawns.py", spawns, None);
    assert_eq!(shown(graders.grade(&asked(&["7", "8"]))), ["1 true", "-1 false"]);
    // As verl's math_verify.py, beside a module of the user's.
    let at = |name: &str| folder.path().join(name);
    files::write_atomic(&at("packages/judge/__init__.py"), b"worth = 3").unwrap();
    files::write_atomic(&at("packages/helper.py"), b"one = 5").unwrap();
    files::write_atomic(&at("helper.py"), b"one = 1").unwrap();
    let python = python_with(folder.path(), &at("packages"));
    let text =
        "import judge, helper\ndef grade(response, answer): return float(judge.worth + helper.one)";
    let graders = graders_of("judge.py", text, python);
    assert_eq!(shown(graders.grade(&asked(&["7"]))), ["4 true"]);
}

#[test]
fn an_answer_to_messages_is_a_message() {
    let text = "def reward(prompts, completions):\n return [float(c[0]['content'] == '7' and p[0]['role'] == 'user') for p, c in zip(prompts, completions)]";
    let folder = tempfile::tempdir().unwrap();
    let mut asked = asked(&["7", "8"]);
    for asked in &mut asked {
        asked.prompt = json!([{"role": "user", "content": "3 + 4?"}]);
    }
    let graded = graders(folder.path(), text).unwrap().grade(&asked);
    let rewards: Vec<f64> = graded.into_iter().map(|graded| graded.unwrap().reward).collect();
    assert_eq!(rewards, [1.0, 0.0]);
}

#[test]
fn a_function_of_trl_gets_every_column_of_the_row_beside_extra_info() {
    let folder = tempfile::tempdir().unwrap();
    let text = "def reward(completions, extra_info, data_source, reward_model, difficulty, index, **kwargs):\n assert (extra_info, data_source, reward_model, index) == ([{'index': 4}], ['gsm'], [{'style': 'rule'}], [4])\n return difficulty";
    let row = json!({"extra_info": {"index": 4}, "data_source": "gsm", "reward_model": {"style": "rule"}, "difficulty": 3});
    let asked = [of_row("a", &row)];
    let graders = graders(folder.path(), text).unwrap();
    assert_eq!(shown(graders.grade(&asked)), ["3 true"]);
    let text = "def reward(completions, solution): return [float(s is not None) for s in solution]";
    let rows = [json!({"extra_info": {}, "solution": "S"}), json!({})].map(|row| of_row("a", &row));
    let mixed = shown(self::graders(folder.path(), text).unwrap().grade(&rows)).remove(0);
    assert!(mixed.contains("it takes solution, which 1 of these 2 responses have"), "{mixed}");
    // As a run writes it for `data grade`.
    let line = serde_json::to_string(&asked[0]).unwrap();
    let line: crate::task::responses::ResponseLine = serde_json::from_str(&line).unwrap();
    assert_eq!(line.asked(), asked[0]);
    // A ground truth that is a number in one row is not missing in another.
    let text = "def right(completions, ground_truth, **columns):\n return [float(c == str(t)) for c, t in zip(completions, ground_truth)]";
    let graders = self::graders(folder.path(), text).unwrap();
    let rows = [json!({"ground_truth": 7}), json!({})].map(|row| of_row("7", &row));
    assert_eq!(shown(graders.grade(&rows)), ["1 true"; 2]);
    assert_eq!(graders.ready().truths, ["ground_truth"]);
    let told =
        "as TRL calls it, with the ground truth as `ground_truth` where rows have no such column";
    assert_eq!(graders.ready().form(), told);
}

#[test]
fn extra_info_is_read_in_every_form_that_files_have() {
    for (row, extra) in [
        (json!({"extra_info": {"unit": "kg"}}), json!({"unit": "kg"})),
        (json!({"extra_info": "{\"unit\": \"kg\"}", "data_source": null}), json!({"unit": "kg"})),
        (json!({"extra_info": [4], "level": 2}), json!({"extra_info": [4], "level": 2})),
        (json!({"extra_info": null, "level": 2}), json!({"level": 2})),
    ] {
        let asked = of_row("a", &row);
        assert_eq!((Value::Object(asked.extra), asked.data_source.as_str()), (extra, ""), "{row}");
    }
}

#[test]
fn a_function_that_disagrees_with_itself_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        "import itertools\ncount = itertools.count()\ndef grade(a, b): return float(next(count))";
    let graded = graders(folder.path(), text).unwrap().grade_twice(&asked(&["a"]));
    let [first, second] = ["0", "1"].map(str::to_string);
    assert_eq!(graded, [Err(Ungraded::Disagrees { field: "score", first, second })]);
    assert!(shown(graded)[0].contains("another score, 0 and then 1"));
}

#[test]
fn a_further_number_that_differs_or_is_not_finite_is_told_and_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let text = "import itertools\ncount = itertools.count()\ndef grade(a, b): return {'score': 1.0, 'n': next(count), 'm': float('nan'), 'k': 2}";
    let graders = graders(folder.path(), text).unwrap();
    assert_eq!(shown(graders.grade_twice(&asked(&["a"]))), ["1 true"]);
    let told = graders.odd_numbers();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].ends_with("reward.py: the further number `m` is not finite for some responses, which its metric leaves out"), "{told:?}");
    assert!(told[1].contains("`n` differs where a response is graded twice"), "{told:?}");
}

#[test]
fn fields_of_a_dictionary_are_not_dropped_silently() {
    let of = |fields: &str| {
        let folder = tempfile::tempdir().unwrap();
        let text = format!("def grade(a, b): return {{'score': 1.0, {fields}}}");
        graders(folder.path(), &text).unwrap().grade(&asked(&["a"])).swap_remove(0)
    };
    let error = of("'acc': 'false'").unwrap_err().to_string();
    assert!(error.contains("returned the text \"false\" as `acc`"), "{error}");
    assert!(of("'acc': None").unwrap_err().to_string().contains("None as `acc`"));
    for (pred, expected) in [
        ("12", Some("12")),
        ("[1, 2]", Some("[1, 2]")),
        ("None", None),
        ("'x'", Some("x")),
        ("'\\ud83d'", Some("?")),
    ] {
        let grade = of(&format!("'pred': {pred}")).unwrap();
        assert_eq!(grade.prediction.as_deref(), expected, "{pred}");
    }
}

#[test]
fn what_is_imported_while_grading_is_among_the_recorded_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
    };
    write("own/__init__.py", "");
    write("own/rules.py", "from . import deep\ndef ok(a, b): return deep.equal(a, b)\n");
    write("own/deep.py", "def equal(a, b): return a == b\n");
    write("own/unused.py", "");
    write("named.py", "");
    let lazy =
        "def grade(response, answer):\n from own.rules import ok\n return ok(response, answer)\n";
    let recorded = graders(folder.path(), lazy).unwrap();
    let files = ["own/__init__.py", "own/deep.py", "own/rules.py", "reward.py"];
    assert_eq!(recorded.ready().files, files);
    assert_eq!(shown(recorded.grade(&asked(&["7", "8"]))), ["1 true", "-1 false"]);
    // A name that nobody can read in the file.
    let computed = "import importlib\ndef grade(response, answer):\n importlib.import_module('na' + 'med')\n return True\n";
    let graders = graders(folder.path(), computed).unwrap();
    assert_eq!(graders.ready().files, ["reward.py"]);
    for error in shown(graders.grade(&asked(&["7", "8"]))) {
        assert!(error.contains("the program loaded named.py while it graded"), "{error}");
    }
    // A branch that was not taken at the start is none of the run's.
    let taken = "try:\n import json\nexcept ImportError:\n import named\ndef grade(response, answer): return True\n";
    assert_eq!(self::graders(folder.path(), taken).unwrap().ready().files, ["reward.py"]);
}

#[test]
fn every_source_that_is_executed_is_recorded_wherever_it_lies_and_however_it_was_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("rewards");
    let write = |name: &str, text: &str| {
        files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
    };
    write("utils/parent.py", "import beside\nvalue = 1\n");
    write("utils/beside.py", "");
    write("utils/late.py", "");
    write("rewards/by_path.py", "value = 1\n");
    write("rewards/read.py", "three = 1\n");
    write("rewards/weight.json", "1");
    let text = "import importlib.util, os, sys
here = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(here, '..', 'utils'))
import parent
def load(path):
 specification = importlib.util.spec_from_file_location('other', path)
 module = importlib.util.module_from_spec(specification)
 specification.loader.exec_module(module)
 return module.value
two = load(os.path.join(here, 'by_path.py'))
exec(open(os.path.join(here, 'read.py')).read())
weight = float(open(os.path.join(here, 'weight.json')).read())
def grade(response, answer):
 if response == 'load': exec(open(os.path.join(here, '../utils/late.py')).read())
 return parent.value * two * three * weight
";
    let recorded = [
        "above-1/utils/beside.py",
        "above-1/utils/parent.py",
        "by_path.py",
        "read.py",
        "reward.py",
    ];
    for _is_cached in [false, true] {
        let graders = graders(&own, text).unwrap();
        assert_eq!(graders.ready().files, recorded);
        assert_eq!(graders.ready().data, ["weight.json"]);
        for name in &graders.ready().files {
            assert!(placed(&own, name).is_file(), "{name}");
        }
        assert_eq!(shown(graders.grade(&asked(&["7"]))), ["1 true"]);
        let late = shown(graders.grade(&asked(&["load"]))).remove(0);
        assert!(
            late.contains("the program loaded above-1/utils/late.py while it graded"),
            "{late}"
        );
        assert!(late.contains("or list it in `files` where it lies in that folder"), "{late}");
    }
    // What is listed is known; what the program writes itself, as code of a response, is no part of it.
    let text = "import importlib, os, runpy, tempfile\ndef grade(response, answer):\n importlib.import_module('by' + '_path')\n with tempfile.TemporaryDirectory() as folder:\n  path = os.path.join(folder, 'solution.py')\n  open(path, 'w').write('x = 1')\n  return runpy.run_path(path)['x']\n";
    let file = own.join("listed.py");
    files::write_atomic(&file, text.as_bytes()).unwrap();
    let listed = vec!["by_path.py".to_string(), "weight.json".to_string()];
    let program = RewardProgram { files: listed, ..RewardProgram::of_python(file, None) };
    let graders = Graders::start(program).unwrap();
    assert_eq!(shown(graders.grade(&asked(&["7", "8"]))), ["1 true"; 2]);
    assert_eq!(graders.ready().files, ["listed.py", "by_path.py", "weight.json"]);
}

#[test]
fn a_function_whose_parameters_are_given_by_name_alone_is_called_so() {
    for text in [
        "def grade(*, response, answer): return response == answer",
        "def grade(*, answer, response, strict=True): return response == answer",
        "def grade(response, *, answer): return response == answer",
        "def grade(response, answer, *, strict=True): return response == answer",
    ] {
        assert_eq!(grades(text, &["7", "8"]), ["1 true", "-1 false"], "{text}");
    }
    let folder = tempfile::tempdir().unwrap();
    for (parameters, expected) in [
        ("a, b", "expected one called response and one called answer"),
        ("predictions, references", "which are names of lists"),
    ] {
        let text = format!("def grade(*, {parameters}): pass");
        let error = graders(folder.path(), &text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_command_answers_a_line_of_json_for_each_response() {
    let folder = tempfile::tempdir().unwrap();
    let script = "#!/usr/bin/env python3\nimport json, sys, time\nfor line in sys.stdin:\n r = json.loads(line)['response']\n if r == 'sleep': time.sleep(60)\n if r == 'end': sys.exit(3)\n if r == 'long': r = '1' * (1 << 21)\n if r == 'half': print(0.5, end='', flush=True); time.sleep(60)\n if r == 'two': print(0, flush=True); r = '1'\n print(r, flush=True)\n";
    let file = folder.path().join("grade");
    files::write_atomic(&file, script.as_bytes()).unwrap();
    let graders = Graders::start(of_command(file.clone(), 2.0, &["python3", "{file}"])).unwrap();
    for (response, expected) in [
        ("true", "1 true"),
        ("0.75", "0.75 true"),
        ("\u{feff}0.75", "0.75 true"),
        ("{\"score\": -2, \"acc\": true, \"steps\": 4}", "-2 true"),
        ("{\"error\": \"no unit\"}", "raised no unit"),
        ("{\"error\": \"no unit\", \"score\": 1}", "raised no unit"),
        ("{\"error\": null, \"score\": 1}", "1 true"),
        ("{\"score\": {\"score\": 1}}", "returned {\"score\":1}, expected"),
        ("{\"score\": null}", "returned null, expected"),
        ("{\"score\": 1, \"score\": 0}", "has a duplicate field `score`"),
        ("long", "its answer is longer than 1048576 bytes"),
        ("half", "was stopped; it wrote \"0.5\", an answer without a line end"),
        ("[1]", "returned [1], expected"),
        ("1e999", "its answer \"1e999\" is no line of JSON"),
        ("well done", "its answer \"well done\" is no line of JSON"),
        ("end", "exit status 3"),
        ("sleep", "took longer than 2 s for a response and was stopped"),
    ] {
        let graded = shown(graders.grade(&asked(&["1", response, "1"])));
        assert!(graded[1].contains(expected), "{response}: {graded:?}");
        assert_eq!([&graded[0], &graded[2]], ["1 true"; 2], "{response}");
    }
    let of_fields = "{\"score\": 1, \"pred\": [1, 2], \"n\": null}";
    let grade = graders.grade(&asked(&[of_fields])).remove(0).unwrap();
    assert_eq!(grade.prediction.as_deref(), Some("[1,2]"));
    assert!(graders.odd_numbers()[0].contains("`n` is not finite"));
    let graded = shown(graders.grade(&asked(&[&["two"][..], &["0"; 40]].concat())));
    let is_refused = |it: &&String| it.contains("more than one line for a response");
    let refused = graded.iter().take_while(is_refused).count();
    assert!(refused > 4 && graded[refused..].iter().all(|it| it == "0 false"), "{graded:?}");
    assert_eq!(shown(graders.grade(&asked(&["0.75"]))), ["0.75 true"]);
    // A compiled one is no text.
    let compiled = folder.path().join("compiled");
    files::write_atomic(&compiled, b"\x7fELF\xff").unwrap();
    assert!(Graders::start(of_command(compiled, 2.0, &["cat"])).is_ok());
    let program = of_command(file.clone(), -59.0, &["sh", "-c", "while read -r _; do :; done"]);
    let silent = shown(Graders::start(program).unwrap().grade(&asked(&["1"]))).remove(0);
    assert!(silent.contains("which it must flush (flush=True in Python,"), "{silent}");
    // Not executable, and no command.
    let error = Graders::start(of_command(file, 2.0, &[])).unwrap_err().to_string();
    assert!(error.contains("cannot start") && error.contains("(chmod +x)"), "{error}");
}

#[test]
fn a_late_line_of_a_command_and_another_id_are_errors() {
    let of = |body: &str| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grade");
        let text = format!("import json, sys, threading, time\n{body}\n");
        files::write_atomic(&file, text.as_bytes()).unwrap();
        let graders = Graders::start(of_command(file, 5.0, &["python3", "{file}"])).unwrap();
        let graded = shown(graders.grade(&asked(&["7"])));
        (graded.concat(), graders.close())
    };
    let surplus = Err(Ungraded::Surplus("\"0\"".to_string()));
    let each = "for line in sys.stdin:";
    for (body, graded, closed) in [
        (format!("{each} print(1, flush=True)"), "1 true", Ok(())),
        (format!("{each} print(1, flush=True)\nprint('1 graded')"), "1 true", Ok(())),
        (format!("{each} print(1, flush=True)\nprint(0)"), "1 true", surplus.clone()),
        (format!("{each} print(1, flush=True)\nprint(0, end='')"), "1 true", surplus),
        (
            format!(
                "{each}\n time.sleep(0.5)\n print(1, flush=True)\n threading.Timer(0.2, lambda: print(0, flush=True)).start()"
            ),
            "more than one line for a response, \"0\" at last",
            Ok(()),
        ),
        (
            format!(
                "{each} print(json.dumps({{'score': 1, 'id': json.loads(line)['id']}}), flush=True)"
            ),
            "1 true",
            Ok(()),
        ),
        (
            format!(
                "{each} print(json.dumps({{'score': 1, 'id': json.loads(line)['id'] + 6}}), flush=True)"
            ),
            "the request with the id 1 with the id 7",
            Ok(()),
        ),
    ] {
        let (answer, end) = of(&body);
        assert!(answer.contains(graded), "{body}: {answer}");
        assert_eq!(end, closed, "{body}");
    }
}

#[test]
fn a_further_file_that_cannot_be_recorded_is_named_with_its_folder_and_the_rule() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let graders = graders(folder.path(), "def grade(a, b): return 1.0").unwrap();
    files::create_folder(&at("rules")).unwrap();
    std::os::unix::fs::symlink(at("reward.py"), at("link.py")).unwrap();
    assert_eq!(graders.stated(folder.path(), "reward.py").unwrap(), at("reward.py"));
    for (name, why) in [
        ("gone.json", "it is not there"),
        ("rules", "it is a folder"),
        ("link.py", "link.py is a link"),
        ("rules//a.json", "it is not a plain relative path"),
    ] {
        let error = graders.stated(folder.path(), name).unwrap_err().to_string();
        let folder = folder.path().display().to_string();
        for part in ["its key `files`", name, &folder, why, "list its target"] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn a_command_has_time_to_start_and_to_end_and_does_not_outlive_its_caller() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let script = "import sys, time\ntime.sleep(2)\nfor line in sys.stdin: print(1, flush=True)\nopen(sys.argv[1], 'w').write('ended')\n";
    files::write_atomic(&at("grade"), script.as_bytes()).unwrap();
    let words = ["python3", "{file}", &at("end").display().to_string()];
    let files = vec!["rules/a.js".to_string()];
    let program = RewardProgram { files, ..of_command(at("grade"), 1.0, &words) };
    let graders = Graders::start(program).unwrap();
    assert_eq!(graders.ready().files, ["grade", "rules/a.js"]);
    assert_eq!(shown(graders.grade(&asked(&["7"]))), ["1 true"]);
    drop(graders);
    assert_eq!(files::read_text(&at("end")).unwrap(), "ended");
    let mut command = Command::new("sleep");
    let mut child = command.arg("60").process_group(0).spawn().unwrap();
    let mut watch = descendants::watch(&child, "none").unwrap();
    drop(watch.stdin.take());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    watch.wait().unwrap();
}

#[test]
fn asynchronous_functions_wait_side_by_side_and_what_they_print_is_kept() {
    let text = "import asyncio\nrunning = most = 0\nasync def compute_score(solution_str, ground_truth):\n global running, most\n if solution_str == 'bad': raise ValueError('bad')\n running, most = running + 1, max(most, running + 1)\n print('asked')\n await asyncio.sleep(0.05)\n running -= 1\n return most";
    let folder = tempfile::tempdir().unwrap();
    let graders = graders(folder.path(), text).unwrap();
    let graded = graders.grade(&asked(&[&["a"; 63][..], &["bad"]].concat()));
    assert!(graded[..63].iter().all(|it| it.as_ref().unwrap().reward > 1.0), "{graded:?}");
    assert!(shown(graded)[63].contains("raised ValueError: bad"));
    let has_said = |_: &u64| {
        std::thread::sleep(Duration::from_millis(10));
        graders.stderr().iter().any(|text| text.ends_with("asked"))
    };
    assert!((0..500).any(|it| has_said(&it)));
}

#[test]
fn of_asynchronous_responses_the_one_that_ends_or_stops_the_process_is_named() {
    let of = |what: &str, responses: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "import asyncio, os, time\nasync def compute_score(solution_str, ground_truth):\n if solution_str == 'bad':\n  {what}\n return 1.0"
        );
        let graders = graders(folder.path(), &text).unwrap();
        shown(graders.part(&asked(responses), CHUNK))
    };
    let mut responses = ["good"; 12];
    responses[7] = "bad";
    for (what, expected) in [
        ("os._exit(3)", "ended its process: exit status 3"),
        ("raise SystemExit(4)", "ended its process: exit status"),
        ("time.sleep(60)", "took longer than 2 s for a response"),
        ("await asyncio.sleep(60)", "took longer than 2 s for a response"),
    ] {
        let mut graded = of(what, &responses);
        assert!(graded.remove(7).contains(expected), "{what}");
        assert_eq!(graded, ["1 true"; 11], "{what}");
    }
    for what in ["time.sleep(0.9)", "await asyncio.sleep(0); time.sleep(0.9)"] {
        assert_eq!(of(what, &["bad"; 3]), ["1 true"; 3], "{what}");
    }
}

/// A package of that name in place of the real one, and the interpreter that finds it.
const STUB: &str = "ExprExtractionConfig = LatexExtractionConfig = object
def parse(text, _config, parsing_timeout): return [text.removeprefix('\\\\boxed{').removesuffix('}')]
def verify(truth, answer, timeout_seconds):
    if answer == ['tower']: pow(7, 10**9)
    return truth == answer or undefined
";

#[test]
fn a_response_without_a_verdict_of_math_verify_is_wrong_and_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    files::write_atomic(&folder.path().join("math_verify.py"), STUB.as_bytes()).unwrap();
    let python = python_with(folder.path(), folder.path());
    let program = RewardProgram { python, packages: Vec::new(), ..RewardProgram::math_verify() };
    let graders = Graders::start(program).unwrap();
    let graded = graders.grade(&asked(&["7", "8", "tower", "7"]));
    let shown = |grade: &Graded| {
        let grade = grade.as_ref().unwrap();
        (grade.reward, grade.is_correct, grade.extra["without_verdict"])
    };
    let shown: Vec<(f64, bool, f64)> = graded.iter().map(shown).collect();
    let [right, none] = [(1.0, true, 0.0), (-1.0, false, 1.0)];
    assert_eq!(shown, [right, none, none, right]);
}

#[test]
fn a_function_gets_objects_in_the_order_of_their_keys() {
    let folder = tempfile::tempdir().unwrap();
    let text = "def compute_score(solution_str, ground_truth, extra_info): return {'score': 1, 'pred': f'{ground_truth} {extra_info}'}";
    let columns = r#"{"ground_truth": {"zeta": 1, "alpha": [3]}, "extra_info": {"z": 1, "a": {"q": 1, "b": 2}}}"#;
    let columns = serde_json::from_str(columns).unwrap();
    let asked = [Asked::new("".into(), "x".into(), String::new(), columns)];
    let graded = graders(folder.path(), text).unwrap().grade(&asked).remove(0).unwrap();
    let expected = "{'zeta': 1, 'alpha': [3]} {'z': 1, 'a': {'q': 1, 'b': 2}, 'num_turns': 2, 'rollout_reward_scores': {}}";
    assert_eq!(graded.prediction.as_deref(), Some(expected));
}

#[test]
fn a_function_that_always_ends_its_process_is_given_up() {
    let text = "import os\ndef grade(a, b): os._exit(1)";
    let graded = grades(text, &["a"; 40]);
    assert!(graded[39].contains("was not called again"), "{graded:?}");
}

#[test]
fn a_file_that_cannot_be_used_says_why() {
    for (text, expected) in [
        ("def grade(:\n", "SyntaxError"),
        (
            "import no_such_package\n",
            "ModuleNotFoundError: No module named 'no_such_package' (line 1); install it into /",
        ),
        (
            "from .rules import ok\n",
            "a file beside the package that has `from PACKAGE.MODULE import",
        ),
        (
            "def compute_score(solution_str, tokenizer): pass\n",
            "compute_score needs tokenizer, which no call has; a call has data_source,",
        ),
        ("x = 1\n", "(FILE.py:NAME): it has none"),
        ("def grade(answer, b): pass\n", "it is not clear which one is the response"),
        (
            "def a(x, y): pass\ndef b(x, y): pass\n",
            "name one of its functions (FILE.py:NAME): a, b",
        ),
        ("def grade(x): pass\n", "expected solution_str and ground_truth (verl)"),
        ("import os; os._exit(9)\n", "exit status 9"),
        ("raise SystemExit(2)\n", "SystemExit: 2"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let error = graders(folder.path(), text).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("reward.py: ") && error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_file_of_imports_alone_has_its_only_function() {
    let folder = tempfile::tempdir().unwrap();
    let rules = "def ends(response, answer): return response.endswith(answer)\ndef other(): pass\n";
    files::write_atomic(&folder.path().join("rules.py"), rules.as_bytes()).unwrap();
    let graders = graders(folder.path(), "from rules import ends\n").unwrap();
    assert_eq!(graders.ready().function, "ends");
    let folder = folder.path();
    let error = self::graders(folder, "from rules import ends, other\n").map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("name one of its functions (FILE.py:NAME): ends, other"));
}

#[test]
fn many_long_responses_take_little_more_than_their_transport() {
    let folder = tempfile::tempdir().unwrap();
    let text = "def grade(response, answer):\n return response.endswith(answer)";
    let graders = graders(folder.path(), text).unwrap();
    let long = "word ".repeat(1600) + "7";
    let responses = vec![long.as_str(); 8192];
    let graded = graders.grade(&asked(&responses));
    assert!(
        graded.len() == 8192 && graded.iter().all(|it| it.as_ref().is_ok_and(|it| it.is_correct))
    );
}
