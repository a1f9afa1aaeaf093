//! Training, evaluation and verification where a user's program grades.

use crate::binary::{Output, ended, json_lines, line_in, says, succeeded};
use crate::repository::{self, FEW_PROBLEMS, few_problems};
use crate::transcript::play;
use dapo::base::files;
use dapo::records::{Manifest, RunFolder, StepMetrics, tables};
use dapo::study::cell::{CellEvaluation, compare};
use dapo::study::metric::{At, Metric, Statistic};
use dapo::study::{Cell, why::NoValue};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// As verl calls it, with a number more.
const VERL: &str = "import helper\ndef compute_score(data_source, solution_str, ground_truth, extra_info=None):\n right = helper.last(solution_str) == ground_truth\n return {'score': 1.0 if right else -1.0, 'acc': right, 'pred': helper.last(solution_str), 'word length': len(solution_str)}\n";
const HELPER: &str = "def last(text): return text.split('Answer: ')[-1].strip()\n";

/// Sets of problems whose names, first numbers and counts these are.
const COUNTDOWN: [(&str, u64, u64); 3] = [("train", 1, 16), ("dev", 31, 4), ("test", 41, 4)];

struct Programs {
    folder: tempfile::TempDir,
}

impl Programs {
    fn new() -> Self {
        let programs = Self { folder: tempfile::tempdir().unwrap() };
        programs.write("helper.py", HELPER);
        programs
    }

    fn with_countdown() -> Self {
        Self::with_rows(countdown)
    }

    /// With sets of a row for each index.
    fn with_rows(row: impl Fn(u64) -> Value) -> Self {
        let programs = Self::new();
        for (name, first, count) in COUNTDOWN {
            let rows = (first..first + count).map(|index| format!("{}\n", row(index)));
            programs.write(&format!("{name}.jsonl"), &rows.collect::<String>());
        }
        programs
    }

    /// Flags that train and evaluate on these sets.
    fn own_sets(&self) -> String {
        let [train, dev, test] = COUNTDOWN.map(|(name, ..)| self.path(&format!("{name}.jsonl")));
        format!(
            "--set inputs.data={{kind=\"files\",train={train:?},dev={dev:?},test=[{test:?}]}} \
             --set evaluation.samples={{dev=1,test=1}}"
        )
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        files::write_atomic(&self.path(name), text.as_bytes()).unwrap();
        self.path(name)
    }

    fn read(&self, name: &str) -> String {
        files::read_text(&self.path(name)).unwrap()
    }

    fn dapo(&self, line: &str) -> Output {
        line_in(self.folder.path(), line)
    }

    /// `dapo train` of the smoke experiment.
    fn train(&self, rest: &str) -> Output {
        let smoke = repository::root().join("experiments/smoke.toml");
        let few = (!rest.contains("inputs.data")).then(|| format!("--set {}", few_problems()));
        let short = format!("--set rollout.max_response_tokens=64 {}", few.unwrap_or_default());
        self.dapo(&format!("train {} {short} {rest}", smoke.display()))
    }

    /// The same with a file that grades, and further keys of its table.
    fn keys(&self, kind: &str, file: &Path, keys: &str, rest: &str) -> Output {
        let table = format!("{{kind=\"{kind}\",file={file:?}{keys}}}");
        self.train(&format!("--set reward.verifier={table} --out {rest}"))
    }

    fn python(&self, text: &str, rest: &str) -> Output {
        self.keys("python", &self.write("reward.py", text), "", rest)
    }

    fn manifest(&self, run: &str) -> Manifest {
        RunFolder::at(self.path(run)).manifest().unwrap()
    }

    fn metrics(&self, run: &str) -> Vec<StepMetrics> {
        RunFolder::at(self.path(run)).metrics().unwrap()
    }

    fn verify(&self, run: &str, flags: &str) -> Value {
        let few = (!flags.contains("--data")).then(|| format!("--data {FEW_PROBLEMS}"));
        let data = few.unwrap_or_default();
        serde_json::from_str(&self.dapo(&format!("verify {run} --json {data} {flags}")).1).unwrap()
    }

    fn is_verified(&self, run: &str, flags: &str) -> Value {
        let report = self.verify(run, flags);
        assert_eq!(report["verdict"], "verified", "{report:#}");
        report
    }

    /// What `dapo data grade` prints.
    fn graded(&self, arguments: &str) -> Vec<Value> {
        json_lines(&succeeded(self.dapo(&format!("data grade {arguments}"))).0)
    }
}

#[test]
fn a_function_of_verl_grades_a_run_and_is_part_of_its_identity() {
    let programs = Programs::new();
    succeeded(programs.python(VERL, "run"));
    let inputs = programs.manifest("run").inputs;
    for name in ["reward.py", "helper.py"] {
        let digest = files::sha256_file(&programs.path(name)).unwrap();
        assert_eq!(inputs[&format!("reward/{name}")], digest);
    }
    assert!(inputs["package/python"].starts_with("3."), "{inputs:?}");
    for step in programs.metrics("run") {
        assert!(step.metrics["reward/word_length"] > 1.0);
        assert!(!step.metrics.contains_key("reward/disagreeing_share"));
    }
    // The rule gives the same run, but for the further number.
    succeeded(programs.train("--out rule"));
    for (mut own, by_rule) in programs.metrics("run").into_iter().zip(programs.metrics("rule")) {
        own.metrics.retain(|name, _| !name.starts_with("reward/"));
        assert_eq!(own, by_rule);
    }
    // No program is started unless it is asked for, and then only this one.
    let recorded = programs.is_verified("run", "");
    assert!(recorded["summary"].as_str().unwrap().contains("rewards as recorded"), "{recorded:#}");
    assert!(recorded["not_checked"].to_string().contains("--run-rewards FILE"));
    assert!(!recorded.to_string().contains("graded again"), "{recorded:#}");
    let replay = "--replay 1 --challenge 7";
    let reward = programs.path("reward.py");
    let run_rewards = format!("--run-rewards {}", reward.display());
    let graded = programs.is_verified("run", &format!("{run_rewards} {replay}"));
    assert!(!graded["summary"].as_str().unwrap().contains("as recorded"));
    let replayed = programs.verify("run", replay);
    assert!(replayed.to_string().contains("a program graded the responses"), "{replayed:#}");
    programs.write("reward.py", &VERL.replace("1.0 if", "2.0 if"));
    let other = programs.verify("run", &run_rewards);
    assert!(other.to_string().contains("is not the file that graded the run"), "{other:#}");
    let resumed = programs.keys("python", &reward, "", "run --resume");
    says(resumed, 3, &["the content of reward/reward.py"]);
}

#[test]
fn a_set_may_have_a_program_of_its_own() {
    let programs = Programs::new();
    let own = "def grade(response, answer):\n return len(response) % 2 == 0\n";
    let file = programs.write("own.py", own);
    let table = format!("{{kind=\"python\",file={file:?}}}");
    let flags = format!("--set evaluation.sets.mini-aime.verifier={table}");
    succeeded(programs.train(&format!("--out run {flags} --set records.format=4")));
    succeeded(programs.train(&format!("--out earlier {flags}")));
    succeeded(programs.train("--out rule"));
    let inputs = programs.manifest("run").inputs;
    assert_eq!(inputs["evaluation/mini-aime/reward/own.py"], files::sha256_file(&file).unwrap());
    assert!(inputs["evaluation/mini-aime/package/python"].starts_with("3."), "{inputs:?}");
    let outcomes = |run: &str, set: &str| {
        let path = RunFolder::at(programs.path(run)).outcomes(set, 0);
        tables::read_outcomes(&path).unwrap()
    };
    assert_eq!(outcomes("run", "dev"), outcomes("rule", "dev"));
    for row in outcomes("run", "mini-aime") {
        assert_eq!(row.is_correct, row.response.chars().count() % 2 == 0);
        assert_eq!(row.reward, Some(if row.is_correct { 1.0 } else { -1.0 }));
    }
    assert!(outcomes("earlier", "mini-aime").iter().all(|row| row.reward.is_none()));
    let recorded = programs.is_verified("run", "--replay 1 --challenge 7").to_string();
    for words in [
        "graded again but for mini-aime",
        "the evaluations of mini-aime: a program",
        "correctness on mini-aime as recorded",
    ] {
        assert!(recorded.contains(words), "{recorded}");
    }
    let flags = format!("--run-rewards {} --replay 2 --challenge 7", file.display());
    let graded = programs.is_verified("run", &flags).to_string();
    assert!(!graded.contains("as recorded") && !graded.contains("but for"), "{graded}");
    let flags = format!("--run-rewards {} --run-rewards helper.py", file.display());
    let other = programs.verify("run", &flags).to_string();
    assert!(other.contains("helper.py is not the file that graded the run"), "{other}");
    let wrong = "--set evaluation.sets.dev.verifier={kind=\"command\",file=\"a\",function=\"f\"}";
    let words = ["evaluation.sets.dev.verifier.function", "needs evaluation.sets.*.verifier.kind"];
    says(programs.train(&format!("--out wrong {wrong}")), 3, &words);
}

/// A problem whose responses are all right has no most frequent answer where the program names none.
#[test]
fn a_study_is_recorded_where_a_program_names_no_answer() {
    let programs = Programs::new();
    let reward = "def reward(response, answer):\n right = len(response) % 7 != 0\n return {'score': 1.0 if right else -1.0, 'acc': right}\n";
    programs.write("reward.py", reward);
    let smoke = repository::root().join("experiments/smoke.toml");
    let arm = format!(
        "name = \"any-length\"\nextends = {smoke:?}\nrollout.max_response_tokens = 64\n\
         reward.verifier = {{ kind = \"python\", file = \"reward.py\", function = \"reward\" }}\n"
    );
    programs.write("arm.toml", &arm);
    let grid = "name = \"lengths\"\nquestion = \"?\"\nbase = \"arm.toml\"\nseeds = [1]\nprimary_set = \"mini-aime\"\n[[arms]]\nname = \"own\"\n";
    programs.write("grid.toml", grid);
    succeeded(programs.dapo("ablate grid.toml --out study"));
    let cells = programs.path("study/cells");
    let [name] = files::list(&cells).unwrap().try_into().unwrap();
    let cell = Cell::read(&cells.join(&name)).unwrap();
    let all_right = |it: &CellEvaluation| it.correct().contains(&it.samples);
    assert!(cell.evaluations.iter().any(|it| it.cons_at_k == 0.0 && all_right(it)));
    assert!(programs.read("study/report.json").contains("\"cons_at_k\":null"));
    succeeded(programs.dapo("export study --csv --parquet"));
    let table = programs.read("study/export/evaluations.csv");
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
    let raised = "raised ValueError: seven (line 4)";
    let words = ["the first is response", raised, "run/ungraded.jsonl keeps"];
    says(programs.python(&text, "run"), 3, &words);
    let grade = "data grade run/ungraded.jsonl --verifier reward.py:compute_score";
    says(programs.dapo(grade), 3, &["the program raised ValueError: seven"]);
    files::remove_file(&broken).unwrap();
    succeeded(programs.dapo(grade));
    succeeded(programs.python(&text, "run --resume"));
    assert!(!programs.path("run/ungraded.jsonl").exists());
    programs.is_verified("run", "");
}

#[test]
fn a_program_that_disagrees_with_itself_ends_the_run_unless_that_is_allowed() {
    let programs = Programs::new();
    let text = "import random\ndef grade(response, answer): return random.random()\n";
    says(programs.python(text, "run"), 3, &["it is not deterministic"]);
    let file = programs.path("reward.py");
    succeeded(programs.keys("python", &file, ",allow_nondeterministic=true", "allowed"));
    let share = programs.metrics("allowed")[0].metrics["reward/disagreeing_share"];
    assert!(share > 0.99, "{share}");
}

#[test]
fn a_command_and_a_function_of_trl_grade_a_run() {
    let programs = Programs::new();
    let trl = "def close(prompts, completions, ground_truth, **columns):\n return [float(len(c) % 5) - 2.0 for c in completions]\n";
    succeeded(programs.python(trl, "trl"));
    let command = "import json, sys\nfor line in sys.stdin:\n asked = json.loads(line)\n print(json.dumps(asked['response'].endswith(asked['ground_truth'])), flush=True)\n";
    let file = programs.write("grade.py", command);
    let train = |words: &str, out: &str| {
        succeeded(programs.keys("command", &file, &format!(",command=[{words}]"), out))
    };
    train("\"python3\",\"{file}\"", "command");
    let digest = files::sha256_file(&file).unwrap();
    assert_eq!(programs.manifest("command").inputs["reward/grade.py"], digest);
    // Of the recorded command the interpreter's name is taken.
    let run_rewards = format!("--run-rewards {}", file.display());
    let graded = programs.is_verified("command", &run_rewards);
    assert!(graded.to_string().contains("the reward program started as `python3 /"), "{graded:#}");
    // Nothing else of it is.
    train("\"python3\",\"-u\",\"{file}\"", "options");
    let graded = programs.verify("options", &run_rewards).to_string();
    let refusal = "the recorded command `python3 -u {file}` is not executed";
    assert!(graded.contains(refusal), "{graded}");
    assert!(graded.contains("rewards as recorded") && !graded.contains("graded again"), "{graded}");
}

#[test]
fn several_functions_and_their_arguments_are_part_of_the_identity_of_a_run() {
    let programs = Programs::new();
    let text = "def ends(completions, answer, **kwargs):\n return [float(c.endswith(a)) for c, a in zip(completions, answer)]\ndef length(solution_strs, ground_truths, unit):\n return [len(s) / unit for s in solution_strs]\n";
    let file = programs.write("reward.py", text);
    let train = |unit: u64, rest: &str| {
        let keys = ",functions=[\"ends\",\"length\"],weights=[1.0,-0.5]";
        programs.keys("python", &file, &format!("{keys},kwargs={{unit={unit}}}"), rest)
    };
    succeeded(train(64, "run"));
    for step in programs.metrics("run") {
        let [ends, length] = ["reward/ends", "reward/length"].map(|name| step.metrics[name]);
        assert!(length > 0.0 && (ends - 0.5 * length).is_finite(), "{ends} {length}");
    }
    let experiment: Value = files::read_json(&programs.path("run/experiment.json")).unwrap();
    assert_eq!(experiment["reward"]["verifier"]["kwargs"], json!({"unit": 64}));
    programs.is_verified("run", &format!("--run-rewards {}", file.display()));
    says(train(32, "run --resume"), 3, &["reward.verifier.kwargs.unit"]);
}

#[test]
fn a_file_that_is_imported_while_grading_is_part_of_the_identity() {
    let programs = Programs::new();
    let rules = programs.write("own/rules.py", "def right(a, b): return a.endswith(b)\n");
    let lazy = "def grade(response, answer):\n from own.rules import right\n return right(response, answer)\n";
    succeeded(programs.python(lazy, "run"));
    let digest = files::sha256_file(&rules).unwrap();
    assert_eq!(programs.manifest("run").inputs["reward/own/rules.py"], digest);
    programs.write("own/rules.py", "def right(a, b): return True\n");
    let resumed = programs.python(lazy, "run --resume");
    says(resumed, 3, &["the content of reward/own/rules.py"]);
}

#[test]
fn problems_of_reasoning_gym_are_written_with_the_program_that_grades_them() {
    play(tempfile::tempdir().unwrap().path(), include_str!("reward_programs/reasoning_gym.txt"));
}

fn numbers_of(index: u64) -> [u64; 3] {
    [100 + index, 200 + 3 * index, 300 + 7 * index]
}

fn question(index: u64) -> String {
    numbers_of(index).map(|number| number.to_string()).join("+") + "?"
}

/// As the published Countdown data of verl have them: the ground truth is an object.
fn countdown(index: u64) -> Value {
    let numbers = numbers_of(index);
    json!({
        "data_source": "countdown", "prompt": [{"role": "user", "content": question(index)}], "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": {"target": numbers.iter().sum::<u64>(), "numbers": numbers}},
        "extra_info": {"split": "train", "index": index}
    })
}

#[test]
fn rows_without_a_ground_truth_train_where_a_program_grades() {
    let in_columns = |index| {
        let numbers = numbers_of(index);
        json!({"prompt": question(index), "nums": numbers, "target": numbers.iter().sum::<u64>()})
    };
    let reads_columns = "def reward(completions, nums, target, **columns):\n assert all(sum(n) == t for n, t in zip(nums, target))\n return [float(str(t) in c) for t, c in zip(target, completions)]\n";
    let reads_nothing = "def brief(completions, **columns):\n assert columns['answer'] == [{}] * len(completions)\n return [1.0 / (1 + len(c)) for c in completions]\n";
    for (programs, function) in [
        (Programs::with_rows(in_columns), reads_columns),
        (Programs::with_rows(|index| json!({"prompt": question(index)})), reads_nothing),
    ] {
        let own = programs.own_sets();
        succeeded(programs.python(function, &format!("run {own}")));
        let metrics = programs.metrics("run");
        assert!(metrics.iter().all(|step| step.metrics["rollout/reward_mean"] >= 0.0));
        let (data, reward) = (programs.folder.path().display(), programs.path("reward.py"));
        programs.is_verified("run", &format!("--data {data} --run-rewards {}", reward.display()));
        says(programs.train(&format!("--out rule {own}")), 3, &["jsonl:1"]);
    }
}

#[test]
fn a_ground_truth_that_is_an_object_reaches_a_function_as_it_is() {
    let programs = Programs::with_countdown();
    let own = programs.own_sets();
    let function = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n target, numbers = ground_truth['target'], ground_truth['numbers']\n assert data_source == 'countdown' and sum(numbers) == target\n return 1.0 if str(target) in solution_str else 0.0\n";
    succeeded(programs.python(function, &format!("run {own}")));
    let metrics = programs.metrics("run");
    assert!(metrics.iter().all(|step| step.metrics["rollout/reward_mean"] >= 0.0));
    let (data, reward) = (programs.folder.path().display(), programs.path("reward.py"));
    programs.is_verified("run", &format!("--data {data} --run-rewards {}", reward.display()));
    // A rule has no use for it, and says so.
    let by_rule = programs.train(&format!("--out rule {own}"));
    says(by_rule, 3, &["jsonl:1", "an object with target, numbers"]);
    // A dump of verl, and a line of one's own.
    let lines = [
        json!({"input": "q", "output": "it is 98", "gts": {"target": 98, "numbers": [98]}, "data_source": "countdown"}),
        json!({"response": "it is 5", "ground_truth": {"target": 98, "numbers": [98]}, "data_source": "countdown"}),
    ];
    programs.write("lines.jsonl", &lines.map(|line| format!("{line}\n")).concat());
    let scores = programs.graded("lines.jsonl --verifier reward.py");
    assert!(scores.iter().map(|line| &line["score"]).eq([1.0, 0.0]), "{scores:?}");
}

/// Other trainers ask `dapo data grade` with what their scripts find beside them.
#[test]
fn a_program_grades_for_other_trainers_with_the_columns_that_it_has_here() {
    let programs = Programs::with_countdown();
    let function = "def grade(completions, ground_truth, split, data_source=None, **columns):\n assert split == ['train'] * len(completions) and set(data_source) == {'countdown'}\n return [float(str(each['target']) in text) for text, each in zip(completions, ground_truth)]\n";
    let reward = programs.write("reward.py", function);
    let asked =
        |trainer: &str| json_lines(&programs.read(&format!("{trainer}/asked.jsonl")))[0].clone();
    for (trainer, engine) in [("verl", "verl-grpo"), ("trl", "grpo")] {
        let render = |key: &str| {
            let base = repository::root().join(format!("experiments/engines/{engine}.toml"));
            let arm = format!(
                "extends = {base:?}\nname = \"own\"\n\
                 inputs.data = {{ kind = \"files\", train = \"train.jsonl\", dev = \"dev.jsonl\", test = [\"test.jsonl\"] }}\n\
                 evaluation = {{ during_training = [], samples = {{ dev = 1, test = 1 }} }}\n\
                 reward.verifier = {{ kind = \"python\", file = \"reward.py\", {key} }}\n"
            );
            programs.write("arm.toml", &arm);
            programs.dapo(&format!("engine render {trainer} arm.toml --out {trainer}"))
        };
        succeeded(render("threshold = 0.75"));
        let target = asked(trainer)["ground_truth"]["target"].clone();
        assert!(target.is_number(), "{target}");
        let lines = [format!("it is {target}"), "no".to_owned()].map(|response| {
            let mut line = asked(trainer);
            line["response"] = response.into();
            format!("{line}\n")
        });
        programs.write("lines.jsonl", &lines.concat());
        // The verifier of an experiment, of a rendered folder, and line by line.
        for verifier in ["arm.toml", &format!("{trainer}/verifier.json")] {
            for follow in ["", "--follow"] {
                let scores =
                    programs.graded(&format!("lines.jsonl --verifier {verifier} {follow}"));
                let score = |score: f64| json!({"score": score, "acc": score > 0.5, "pred": null});
                assert_eq!(scores, [score(1.0), score(0.0)]);
            }
        }
        says(render("allow_nondeterministic = true"), 3, &["must get the same grade"]);
    }
    // verl's function of the rendered folder, as verl calls it.
    let asked = asked("verl");
    let script = format!(
        "import sys; sys.path.insert(0, '.'); import reward\ncall = lambda text: reward.compute_score('train', text, '', {{'index': {}}}, program={:?}, verifier='verifier.json')\n\
         print(call('it is {}'), call('no'))\n",
        asked["problem"],
        env!("CARGO_BIN_EXE_dapo"),
        asked["ground_truth"]["target"],
    );
    let mut python = Command::new("python3");
    let python = python.args(["-c", &script]).current_dir(programs.path("verl"));
    let (out, _) = succeeded(ended(python));
    assert_eq!(out, "{'score': 1.0, 'acc': True} {'score': 0.0, 'acc': False}\n");
    files::remove_file(&reward).unwrap();
    let (code, _, talk) = ended(python.env("PYTHONDONTWRITEBYTECODE", "1"));
    assert!(code != 0 && talk.contains("reward.py"), "{talk}");
    let grade = programs.dapo("data grade lines.jsonl --verifier rewards.js");
    says(grade, 2, &["or an experiment: a file"]);
}

#[test]
fn what_programs_wrote_and_graded_they_write_and_grade_again() {
    play(tempfile::tempdir().unwrap().path(), include_str!("reward_programs/words.txt"));
    play(tempfile::tempdir().unwrap().path(), include_str!("reward_programs/digests.txt"));
}
