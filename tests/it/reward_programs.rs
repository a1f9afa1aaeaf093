//! Training, evaluation and verification where a user's program grades.

use crate::binary::{Output, dapo, says, succeeded};
use crate::repository;
use dapo::base::files;
use dapo::records::{RunFolder, StepMetrics};
use dapo::study::cell::{CellEvaluation, compare};
use dapo::study::metric::{At, Metric, Statistic};
use dapo::study::{Cell, why::NoValue};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// As verl calls it, with a number more.
const VERL: &str = "import helper\ndef compute_score(data_source, solution_str, ground_truth, extra_info=None):\n right = helper.last(solution_str) == ground_truth\n return {'score': 1.0 if right else -1.0, 'acc': right, 'pred': helper.last(solution_str), 'word length': len(solution_str)}\n";
const HELPER: &str = "def last(text): return text.split('Answer: ')[-1].strip()\n";

struct Programs {
    folder: tempfile::TempDir,
}

impl Programs {
    fn new() -> Self {
        let programs = Self { folder: tempfile::tempdir().unwrap() };
        programs.write("helper.py", HELPER);
        programs
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        files::write_atomic(&self.path(name), text.as_bytes()).unwrap();
        self.path(name)
    }

    /// `dapo train` of the smoke experiment with these keys of the verifier.
    fn train(&self, keys: &str, out: &str, more: &[&str]) -> Output {
        let verifier = format!("reward.verifier={{{keys}}}");
        let experiment = repository::root().join("experiments/smoke.toml");
        let out = self.path(out);
        let arguments = [
            "train",
            experiment.to_str().unwrap(),
            "--set",
            &verifier,
            "--out",
            out.to_str().unwrap(),
        ];
        let short = ["--set", "rollout.max_response_tokens=64"];
        dapo(&[&arguments[..], &short, more].concat())
    }

    fn python(&self, name: &str, text: &str, out: &str, more: &[&str]) -> Output {
        let file = self.write(name, text);
        self.train(&format!("kind=\"python\",file={file:?}"), out, more)
    }
}

fn metrics(run: &Path) -> Vec<StepMetrics> {
    RunFolder::at(run).metrics().unwrap()
}

fn verify(run: &Path, more: &[&str]) -> Value {
    let found = dapo(&[&["verify", run.to_str().unwrap(), "--json"], more].concat());
    serde_json::from_str(&found.1).unwrap()
}

#[test]
fn a_function_of_verl_grades_a_run_and_is_part_of_its_identity() {
    let programs = Programs::new();
    succeeded(programs.python("reward.py", VERL, "run", &[]));
    let run = programs.path("run");
    let manifest = RunFolder::at(&run).manifest().unwrap();
    let digest = |name: &str| files::sha256_file(&programs.path(name)).unwrap();
    for name in ["reward.py", "helper.py"] {
        assert_eq!(manifest.inputs[&format!("reward/{name}")], digest(name));
    }
    assert!(manifest.inputs["package/python"].starts_with("3."), "{:?}", manifest.inputs);
    for step in metrics(&run) {
        assert!(step.metrics["reward/word_length"] > 1.0);
        assert!(!step.metrics.contains_key("reward/disagreeing_share"));
    }
    // The rule gives the same run, but for the further number.
    let rule = programs.path("rule");
    let experiment = repository::root().join("experiments/smoke.toml");
    let arguments = ["train", experiment.to_str().unwrap(), "--out", rule.to_str().unwrap()];
    succeeded(dapo(&[&arguments[..], &["--set", "rollout.max_response_tokens=64"]].concat()));
    for (mut own, by_rule) in metrics(&run).into_iter().zip(metrics(&rule)) {
        own.metrics.retain(|name, _| !name.starts_with("reward/"));
        assert_eq!(own, by_rule);
    }
    // No program is started unless it is asked for, and then only this one.
    let recorded = verify(&run, &[]);
    assert_eq!(recorded["verdict"], "verified", "{recorded:#}");
    assert!(recorded["summary"].as_str().unwrap().contains("rewards as recorded"), "{recorded:#}");
    assert!(recorded["not_checked"].to_string().contains("--run-rewards FILE"));
    assert!(!recorded.to_string().contains("graded again"), "{recorded:#}");
    let reward = programs.path("reward.py");
    let graded = verify(
        &run,
        &["--run-rewards", reward.to_str().unwrap(), "--replay", "1", "--challenge", "7"],
    );
    assert_eq!(graded["verdict"], "verified", "{graded:#}");
    assert!(!graded["summary"].as_str().unwrap().contains("as recorded"));
    let replay = verify(&run, &["--replay", "1", "--challenge", "7"]);
    assert!(replay.to_string().contains("a program graded the responses"), "{replay:#}");
    programs.write("reward.py", &VERL.replace("1.0 if", "2.0 if"));
    let other = verify(&run, &["--run-rewards", reward.to_str().unwrap()]);
    assert!(other.to_string().contains("is not the file that graded the run"), "{other:#}");
    says(
        programs.train(&format!("kind=\"python\",file={reward:?}"), "run", &["--resume"]),
        3,
        &["the content of reward/reward.py"],
    );
}

/// A problem whose responses are all right has no most frequent answer where the program names none.
#[test]
fn a_study_is_recorded_where_a_program_names_no_answer() {
    let programs = Programs::new();
    let reward = "def reward(response, answer):\n right = len(response) % 7 != 0\n return {'score': 1.0 if right else -1.0, 'acc': right}\n";
    programs.write("reward.py", reward);
    let smoke = repository::root().join("experiments/smoke.toml");
    let keys =
        "reward.verifier = { kind = \"python\", file = \"reward.py\", function = \"reward\" }";
    let arm = format!(
        "name = \"any-length\"\nextends = {smoke:?}\n{keys}\nrollout.max_response_tokens = 64\n"
    );
    programs.write("arm.toml", &arm);
    let grid = "name = \"lengths\"\nquestion = \"?\"\nbase = \"arm.toml\"\nseeds = [1]\nprimary_set = \"mini-aime\"\n[[arms]]\nname = \"own\"\n";
    let (grid, study) = (programs.write("grid.toml", grid), programs.path("study"));
    succeeded(dapo(&["ablate", grid.to_str().unwrap(), "--out", study.to_str().unwrap()]));
    let cells = study.join("cells");
    let [name] = files::list(&cells).unwrap().try_into().unwrap();
    let cell = Cell::read(&cells.join(&name)).unwrap();
    let all_right = |it: &CellEvaluation| it.correct().contains(&it.samples);
    assert!(cell.evaluations.iter().any(|it| it.cons_at_k == 0.0 && all_right(it)));
    let report: Value = files::read_json(&study.join("report.json")).unwrap();
    assert!(report.to_string().contains("\"cons_at_k\":null"));
    succeeded(dapo(&["export", study.to_str().unwrap(), "--csv", "--parquet"]));
    let table = files::read_text(&study.join("export/evaluations.csv")).unwrap();
    let mut lines = table.lines();
    let column = lines.next().unwrap().split(',').position(|it| it == "cons_at_k").unwrap();
    assert!(lines.all(|line| line.split(',').nth(column) == Some("")), "{table}");
    let (set, at, statistic) = ("mini-aime".to_string(), At::Last, Statistic::ConsAtK);
    let consensus = Metric::Evaluation { set, at, statistic };
    assert_eq!(consensus.value(&cell, None), Err(NoValue::NoAnswers));
    let text = files::read_text(&cells.join(name)).unwrap();
    let moved = text.replace("reward.py\",\"function", "elsewhere/reward.py\",\"function");
    let elsewhere: Cell = serde_json::from_str(&moved).unwrap();
    assert_ne!(elsewhere.experiment, cell.experiment);
    assert_eq!(compare::differences(&cell, &elsewhere), Vec::<String>::new());
}

#[test]
fn a_response_that_is_not_graded_keeps_its_batch_and_the_run_can_be_resumed() {
    let programs = Programs::new();
    let (broken, metrics) = (programs.write("broken", ""), programs.path("run/metrics.jsonl"));
    // In the second step, so that the first one can be lost.
    let raise = format!(
        " import os\n if os.path.exists({broken:?}) and os.path.exists({metrics:?}) and os.path.getsize({metrics:?}) and '7' in solution_str: raise ValueError('seven')\n right ="
    );
    let text = VERL.replace(" right =", &raise);
    let stopped = programs.python("reward.py", &text, "run", &[]);
    says(
        stopped,
        3,
        &["the first is response", "raised ValueError: seven (line 4)", "run/ungraded.jsonl keeps"],
    );
    let kept = programs.path("run/ungraded.jsonl");
    let reward = format!("{}:compute_score", programs.path("reward.py").display());
    let grade = || dapo(&["grade", kept.to_str().unwrap(), "--verifier", &reward]);
    says(grade(), 3, &["the program raised ValueError: seven"]);
    files::remove_file(&broken).unwrap();
    succeeded(grade());
    succeeded(programs.python("reward.py", &text, "run", &["--resume"]));
    assert!(!kept.exists());
    assert_eq!(verify(&programs.path("run"), &[])["verdict"], "verified");
}

#[test]
fn a_program_that_disagrees_with_itself_ends_the_run_unless_that_is_allowed() {
    let programs = Programs::new();
    let text = "import random\ndef grade(response, answer): return random.random()\n";
    says(programs.python("reward.py", text, "run", &[]), 3, &["it is not deterministic"]);
    let file = programs.path("reward.py");
    let keys = format!("kind=\"python\",file={file:?},allow_nondeterministic=true");
    succeeded(programs.train(&keys, "allowed", &[]));
    let share = metrics(&programs.path("allowed"))[0].metrics["reward/disagreeing_share"];
    assert!(share > 0.99, "{share}");
}

#[test]
fn a_command_and_a_function_of_trl_grade_a_run() {
    let programs = Programs::new();
    let trl = "def close(prompts, completions, ground_truth, **columns):\n return [float(len(c) % 5) - 2.0 for c in completions]\n";
    succeeded(programs.python("trl.py", trl, "trl", &[]));
    let command = "import json, sys\nfor line in sys.stdin:\n asked = json.loads(line)\n print(json.dumps(asked['response'].endswith(asked['ground_truth'])), flush=True)\n";
    let file = programs.write("grade.py", command);
    let keys = format!("kind=\"command\",file={file:?},command=[\"python3\",\"{{file}}\"]");
    succeeded(programs.train(&keys, "command", &[]));
    let manifest = RunFolder::at(programs.path("command")).manifest().unwrap();
    assert_eq!(manifest.inputs["reward/grade.py"], files::sha256_file(&file).unwrap());
    // Of the recorded command the interpreter's name is taken.
    let run = programs.path("command");
    let graded = verify(&run, &["--run-rewards", file.to_str().unwrap()]);
    assert_eq!(graded["verdict"], "verified", "{graded:#}");
    assert!(graded.to_string().contains("the reward program started as `python3 /"), "{graded:#}");
    // Nothing else of it is.
    let keys = format!("kind=\"command\",file={file:?},command=[\"python3\",\"-u\",\"{{file}}\"]");
    succeeded(programs.train(&keys, "options", &[]));
    let graded =
        verify(&programs.path("options"), &["--run-rewards", file.to_str().unwrap()]).to_string();
    assert!(
        graded.contains("the recorded command `python3 -u {file}` is not executed"),
        "{graded}"
    );
    assert!(graded.contains("rewards as recorded") && !graded.contains("graded again"), "{graded}");
}

#[test]
fn several_functions_and_their_arguments_are_part_of_the_identity_of_a_run() {
    let programs = Programs::new();
    let text = "def ends(completions, answer, **kwargs):\n return [float(c.endswith(a)) for c, a in zip(completions, answer)]\ndef length(solution_strs, ground_truths, unit):\n return [len(s) / unit for s in solution_strs]\n";
    let file = programs.write("reward.py", text);
    let keys = |unit: u64| {
        format!(
            "kind=\"python\",file={file:?},functions=[\"ends\",\"length\"],weights=[1.0,-0.5],kwargs={{unit={unit}}}"
        )
    };
    succeeded(programs.train(&keys(64), "run", &[]));
    let run = programs.path("run");
    for step in metrics(&run) {
        let of = |name: &str| step.metrics[name];
        let sum = of("reward/ends") - 0.5 * of("reward/length");
        assert!(of("reward/length") > 0.0 && sum.is_finite(), "{sum}");
    }
    let experiment: Value = files::read_json(&run.join("experiment.json")).unwrap();
    assert_eq!(experiment["reward"]["verifier"]["kwargs"], json!({"unit": 64}));
    let graded = verify(&run, &["--run-rewards", file.to_str().unwrap()]);
    assert_eq!(graded["verdict"], "verified", "{graded:#}");
    says(programs.train(&keys(32), "run", &["--resume"]), 3, &["reward.verifier.kwargs.unit"]);
}

#[test]
fn a_file_that_is_imported_while_grading_is_part_of_the_identity() {
    let programs = Programs::new();
    programs.write("own/rules.py", "def right(a, b): return a.endswith(b)\n");
    let lazy = "def grade(response, answer):\n from own.rules import right\n return right(response, answer)\n";
    succeeded(programs.python("reward.py", lazy, "run", &[]));
    let manifest = RunFolder::at(programs.path("run")).manifest().unwrap();
    let digest = files::sha256_file(&programs.path("own/rules.py")).unwrap();
    assert_eq!(manifest.inputs["reward/own/rules.py"], digest);
    programs.write("own/rules.py", "def right(a, b): return True\n");
    says(
        programs.python("reward.py", lazy, "run", &["--resume"]),
        3,
        &["the content of reward/own/rules.py"],
    );
}

#[test]
fn mistakes_in_the_table_are_named() {
    let programs = Programs::new();
    let file = programs.write("reward.py", VERL);
    for (keys, expected) in [
        ("kind=\"python\"".to_string(), "reward.verifier.file is missing"),
        (format!("kind=\"rust\",file={file:?}"), "unknown variant `rust`"),
        (
            format!("kind=\"python\",file={file:?},seconds=0"),
            "reward.verifier.seconds must be in (0, 3600]",
        ),
        (
            format!("kind=\"command\",file={file:?},function=\"f\""),
            "needs reward.verifier.kind = \"python\"",
        ),
        (format!("kind=\"python\",file={file:?},function=\"f\""), "it has no function `f`"),
        (
            format!("kind=\"python\",file={file:?},packages=[\"no-such-package\"]"),
            "no-such-package is among its packages",
        ),
        (
            format!("kind=\"python\",file={file:?},python=\"no-such-python\""),
            "cannot start no-such-python",
        ),
        (format!("kind=\"python\",file={:?}", programs.path("none.py")), "none.py"),
        (format!("kind=\"python\",file={file:?},tresholds=1"), "tresholds"),
        (
            format!("kind=\"command\",file={file:?},packages=[\"trl\"]"),
            "packages must be absent with kind = \"command\"",
        ),
        (
            format!("kind=\"command\",file={file:?},kwargs={{scale=1}}"),
            "reward.verifier.kwargs.scale = 1 needs reward.verifier.kind = \"python\"",
        ),
        (
            format!("kind=\"python\",file={file:?},kwargs={{scale=nan}}"),
            "reward.verifier.kwargs.scale must be finite, got NaN",
        ),
        (
            format!("kind=\"python\",file={file:?},kwargs={{scales=[1,nan]}}"),
            "reward.verifier.kwargs.scales must be a text",
        ),
        (
            format!("kind=\"python\",file={file:?},kwargs={{scale=1}}"),
            "kwargs states scale, which is no parameter of compute_score(data_source",
        ),
        (
            format!("kind=\"command\",file={file:?},functions=[\"f\"]"),
            "needs reward.verifier.kind = \"python\"",
        ),
        (
            format!("kind=\"python\",file={file:?},function=\"f\",functions=[\"f\"]"),
            "reward.verifier.function must be absent beside reward.verifier.functions",
        ),
        (
            format!("kind=\"python\",file={file:?},functions=[\"f\",\"f\"]"),
            "reward.verifier.functions has f twice",
        ),
        (
            format!("kind=\"python\",file={file:?},functions=[\"acc\"]"),
            "reward.verifier.functions must not have acc",
        ),
        (
            format!("kind=\"python\",file={file:?},weights=[1.0]"),
            "one number for each of reward.verifier.functions (0), got 1",
        ),
        (
            format!("kind=\"python\",file={file:?},functions=[\"f\"],weights=[inf]"),
            "reward.verifier.weights must be finite, got [inf]",
        ),
    ] {
        let refused = programs.train(&keys, "run", &[]);
        assert!(refused.2.contains(expected), "{keys}: {}", refused.2);
        assert!(!programs.path("run").exists(), "{keys}");
    }
    let keys = format!("kind=\"python\",file={file:?}");
    let method = ["--set", "dapo.method={kind=\"max-rl\"}"];
    says(programs.train(&keys, "run", &method), 3, &["reads rewards as 1 or -1"]);
}

/// What `reasoning_gym` has of the real package (0.1.25): two datasets, one of which repeats itself.
const GYM: &str = r#"
class Dataset:
    def __init__(self, name, size, terms=2):
        self.name, self.size, self.terms = name, size, terms
    def __getitem__(self, index):
        number = index // 2 if self.name == "twice" else index
        question = "+".join([str(number)] * self.terms) + "?"
        return {"question": self.name + question, "answer": str(number * self.terms), "metadata": {"number": (number,)}}
    def score_answer(self, answer, entry):
        return 1.0 if answer == entry["answer"] else 0.25 if answer else 0.0
def create_dataset(name, seed, size, **settings):
    if name not in ("once", "twice"):
        raise ValueError(f"Dataset '{name}' not registered")
    return Dataset(name, size, **settings)
def get_score_answer_fn(name):
    return Dataset(name, 0).score_answer
"#;

#[test]
fn problems_of_reasoning_gym_are_written_with_the_program_that_grades_them() {
    let programs = Programs::new();
    programs.write("gym/reasoning_gym.py", GYM);
    let metadata = "Metadata-Version: 2.1\nName: reasoning-gym\nVersion: 0.1.25\n";
    programs.write("gym/reasoning_gym-0.1.25.dist-info/METADATA", metadata);
    let script = format!("#!/bin/sh\nPYTHONPATH={:?} exec python3 \"$@\"\n", programs.path("gym"));
    let python = programs.write("python", &script);
    std::process::Command::new("chmod").arg("+x").arg(&python).status().unwrap();
    let out = programs.path("task");
    let write = |more: &[&str]| {
        let usual = ["data", "reasoning-gym", "--out", out.to_str().unwrap()];
        let python = ["--python", python.to_str().unwrap()];
        dapo(&[&usual[..], &python, &["--sizes", "6,2,3"], more].concat())
    };
    for (more, words) in [
        (&["none"][..], "Dataset 'none' not registered"),
        (&["once", "--with", "other.terms=3"], "the setting other.terms is of no dataset"),
        (&["once", "--with", "depth=3"], "unexpected keyword argument 'depth'"),
    ] {
        says(write(more), 3, &[words]);
        assert!(!out.exists(), "{more:?}");
    }
    says(write(&["once", "--with", "terms"]), 2, &["--with takes KEY=VALUE"]);
    let (told, talk) = succeeded(write(&["once,twice", "--with", "once.terms=3"]));
    assert!(told.contains("train.jsonl: 12 problems"), "{told}");
    assert!(talk.contains("reasoning-gym 0.1.25: 10 repeated questions"), "{talk}");
    let read = |name: &str| files::read_text(&out.join(name)).unwrap();
    assert_eq!((read("once.jsonl").lines().count(), read("dev.jsonl").lines().count()), (3, 4));
    // A part of the score is a reward, and not correct.
    let line = |response: &str| {
        let mut problem: Value =
            serde_json::from_str(read("once.jsonl").lines().last().unwrap()).unwrap();
        problem["response"] = response.into();
        problem["ground_truth"] = problem["answer"].clone();
        format!("{problem}\n")
    };
    let lines = [line("so\nAnswer: 6"), line("<answer>6</answer>"), line("9"), line("\n")].concat();
    let responses = programs.write("responses.jsonl", &lines);
    let reward = out.join("reward.py");
    let graded = dapo(&[
        "grade",
        responses.to_str().unwrap(),
        "--verifier",
        reward.to_str().unwrap(),
        "--python",
        python.to_str().unwrap(),
    ]);
    let scores: Vec<Value> =
        succeeded(graded).0.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let scores: Vec<_> =
        scores.iter().map(|it| (it["score"].as_f64().unwrap(), it["acc"] == true)).collect();
    assert_eq!(scores, [(1.0, true), (1.0, true), (0.25, false), (0.0, false)]);
}

/// As the published Countdown data of verl have them: the ground truth is an object.
fn countdown(first: u64, count: u64) -> String {
    let row = |index: u64| {
        let numbers = [100 + index, 200 + 3 * index, 300 + 7 * index];
        let question = numbers.map(|number| number.to_string()).join("+") + "?";
        let row = json!({
            "data_source": "countdown", "prompt": [{"role": "user", "content": question}], "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": {"target": numbers.iter().sum::<u64>(), "numbers": numbers}},
            "extra_info": {"split": "train", "index": index}
        });
        format!("{row}\n")
    };
    (first..first + count).map(row).collect()
}

#[test]
fn a_ground_truth_that_is_an_object_reaches_a_function_as_it_is() {
    let programs = Programs::new();
    for (name, first, count) in [("train", 1, 16), ("dev", 31, 4), ("test", 41, 4)] {
        programs.write(&format!("{name}.jsonl"), &countdown(first, count));
    }
    let path = |name: &str| programs.path(&format!("{name}.jsonl"));
    let data = format!(
        "inputs.data={{kind=\"files\",train={:?},dev={:?},test=[{:?}]}}",
        path("train"),
        path("dev"),
        path("test")
    );
    let own = ["--set", &data, "--set", "evaluation.samples={dev=1,test=1}"];
    let function = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n target, numbers = ground_truth['target'], ground_truth['numbers']\n assert data_source == 'countdown' and sum(numbers) == target\n return 1.0 if str(target) in solution_str else 0.0\n";
    succeeded(programs.python("reward.py", function, "run", &own));
    let run = programs.path("run");
    assert!(metrics(&run).iter().all(|step| step.metrics["rollout/reward_mean"] >= 0.0));
    let reward = programs.path("reward.py");
    let data = programs.folder.path();
    let again = ["--data", data.to_str().unwrap(), "--run-rewards", reward.to_str().unwrap()];
    let verified = verify(&run, &again);
    assert_eq!(verified["verdict"], "verified", "{verified:#}");
    // A rule has no use for it, and says so.
    let experiment = repository::root().join("experiments/smoke.toml");
    let out = programs.path("rule");
    let rule = ["train", experiment.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let refused = dapo(&[&rule[..], &own].concat());
    says(refused, 3, &["jsonl:1", "an object with numbers, target"]);
    // A dump of verl, and a line of one's own.
    let lines = [
        json!({"input": "q", "output": "it is 98", "gts": {"target": 98, "numbers": [98]}, "data_source": "countdown"}),
        json!({"response": "it is 5", "ground_truth": {"target": 98, "numbers": [98]}, "data_source": "countdown"}),
    ];
    let file = programs.write("lines.jsonl", &lines.map(|line| format!("{line}\n")).concat());
    let (out, _) = succeeded(dapo(&[
        "data",
        "grade",
        file.to_str().unwrap(),
        "--verifier",
        reward.to_str().unwrap(),
    ]));
    let scores: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["score"].clone())
        .collect();
    assert_eq!(scores, [json!(1.0), json!(0.0)]);
}

/// Other trainers ask `dapo data grade` with what their scripts find beside them.
#[test]
fn a_program_grades_for_other_trainers_with_the_columns_that_it_has_here() {
    let programs = Programs::new();
    for (name, first, count) in [("train", 1, 16), ("dev", 31, 4), ("test", 41, 4)] {
        programs.write(&format!("{name}.jsonl"), &countdown(first, count));
    }
    let function = "def grade(completions, ground_truth, split, data_source=None, **columns):\n assert split == ['train'] * len(completions) and set(data_source) == {'countdown'}\n return [float(str(each['target']) in text) for text, each in zip(completions, ground_truth)]\n";
    let reward = programs.write("reward.py", function);
    let path = |name: &str| programs.path(&format!("{name}.jsonl"));
    let (train, dev, test) = (path("train"), path("dev"), path("test"));
    let arm = |engine: &str, more: &str| {
        let base = repository::root().join(format!("experiments/engines/{engine}.toml"));
        let text = format!(
            "extends = {base:?}\nname = \"own\"\n[inputs.data]\nkind = \"files\"\ntrain = {train:?}\ndev = {dev:?}\ntest = [{test:?}]\n\
             [evaluation]\nduring_training = []\nsamples = {{ dev = 1, test = 1 }}\n[reward]\nverifier = {{ kind = \"python\", file = \"reward.py\"{more} }}\n"
        );
        programs.write(&format!("{engine}.toml"), &text)
    };
    for (trainer, engine) in [("verl", "verl-grpo"), ("trl", "grpo")] {
        let (file, out) = (arm(engine, ", threshold = 0.75"), programs.path(trainer));
        let render = |file: &Path| {
            let place = [file.to_str().unwrap(), "--out", out.to_str().unwrap()];
            dapo(&[&["engine", "render", trainer], &place[..]].concat())
        };
        succeeded(render(&file));
        let asked = files::read_text(&out.join("asked.jsonl")).unwrap();
        let first: Value = serde_json::from_str(asked.lines().next().unwrap()).unwrap();
        assert!(first["ground_truth"]["target"].is_number(), "{first}");
        // The verifier of an experiment, of a rendered folder, and line by line.
        let target = first["ground_truth"]["target"].clone();
        let line = |response: String| {
            let mut line = first.clone();
            line["response"] = response.into();
            format!("{line}\n")
        };
        let lines = [line(format!("it is {target}")), line("no".to_owned())].concat();
        let lines = programs.write("lines.jsonl", &lines);
        for verifier in [&file, &out.join("verifier.json")] {
            for more in [&[][..], &["--follow"]] {
                let graded =
                    ["grade", lines.to_str().unwrap(), "--verifier", verifier.to_str().unwrap()];
                let (graded, _) = succeeded(dapo(&[&graded[..], more].concat()));
                let scores: Vec<Value> =
                    graded.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
                let score = |score: f64| json!({"score": score, "acc": score > 0.5, "pred": null});
                assert_eq!(scores, [score(1.0), score(0.0)]);
            }
        }
        let random = arm(engine, ", allow_nondeterministic = true");
        says(render(&random), 3, &["must get the same grade"]);
    }
    // verl's function of the rendered folder, as verl calls it.
    let asked = files::read_text(&programs.path("verl/asked.jsonl")).unwrap();
    let asked: Value = serde_json::from_str(asked.lines().next().unwrap()).unwrap();
    let script = format!(
        "import sys; sys.path.insert(0, '.'); import reward\ncall = lambda text: reward.compute_score('train', text, '', {{'index': {:?}}}, program={:?}, verifier='verifier.json')\n\
         print(call('it is {}'), call('no'))\n",
        asked["problem"].as_str().unwrap(),
        env!("CARGO_BIN_EXE_dapo"),
        asked["ground_truth"]["target"],
    );
    let mut python = std::process::Command::new("python3");
    let python = python.args(["-c", &script]).current_dir(programs.path("verl"));
    let (out, _) = succeeded(crate::binary::ended(python));
    assert_eq!(out, "{'score': 1.0, 'acc': True} {'score': 0.0, 'acc': False}\n");
    files::remove_file(&reward).unwrap();
    let python = python.env("PYTHONDONTWRITEBYTECODE", "1");
    let (code, _, talk) = crate::binary::ended(python);
    assert!(code != 0 && talk.contains("reward.py"), "{talk}");
    says(dapo(&["grade", "lines.jsonl", "--verifier", "rewards.js"]), 2, &["an experiment file"]);
}

#[test]
fn the_words_of_the_control_are_what_their_program_writes_and_grades() {
    let programs = Programs::new();
    let folder = repository::root().join("experiments/controls/words");
    let mut python = std::process::Command::new("python3");
    let out = programs.folder.path();
    python.arg("-B").arg(folder.join("words.py")).arg(out).args(["--solutions", "200"]);
    succeeded(crate::binary::ended(&mut python));
    for name in ["train.jsonl", "dev.jsonl", "test.jsonl"] {
        let [written, committed] =
            [out, &folder].map(|folder| files::read_text(&folder.join(name)).unwrap());
        assert_eq!(written, committed, "{name}");
    }
    let words = ["abcabcabcaba", "abcabcabcabc", "aabcabcabcba", "gbcabcabcabg", "abcabcabcab", ""];
    let line = |word| json!({"response": word, "ground_truth": "abcdef="}).to_string() + "\n";
    let file = programs.write("words.jsonl", &words.map(line).concat());
    let graded = |function: &str| {
        let verifier = format!("{}:{function}", folder.join("reward.py").display());
        let (graded, _) =
            succeeded(dapo(&["grade", file.to_str().unwrap(), "--verifier", &verifier]));
        let lines = graded.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<Value>>()
    };
    let rules = graded("rules");
    let kept = rules.iter().map(|it| it["extra"]["rules_kept"].as_f64().unwrap());
    assert_eq!(kept.collect::<Vec<_>>(), [3.0, 2.0, 2.0, 2.0, 0.0, 0.0]);
    let right = |it: &Value| it["acc"] == true && it["score"] == 1.0;
    assert_eq!(rules.iter().map(right).collect::<Vec<_>>(), words.map(|it| it == words[0]));
    assert_eq!(graded("coin"), graded("coin"));
    // A planted solution is right in 18 of 100.
    let solutions = files::read_text(&out.join("solutions.jsonl")).unwrap();
    let lines = solutions.lines().map(|line| {
        let solution: Value = serde_json::from_str(line).unwrap();
        json!({"response": solution["solution"], "ground_truth": solution["question"]}).to_string()
            + "\n"
    });
    files::write_atomic(&file, lines.collect::<String>().as_bytes()).unwrap();
    let right = graded("rules").iter().filter(|it| right(it)).count();
    assert!((20..=52).contains(&right), "{right} of 200");
}
