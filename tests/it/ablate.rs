//! Grids run, stop, go on, and notice what was tampered with. Every run is two tiny rollout steps
//! on the problems of `experiments/own-task`.

use crate::binary::{Output, dapo_in, ended, failed, says, succeeded};
use assert_cmd::cargo::CommandCargoExt;
use dapo::base::files;
use dapo::experiment::Grid;
use dapo::report::{cells, cells::PlannedTest};
use dapo::study::declaration::{self, Placement};
use dapo::study::{Cell, CellEnding};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const GRID: &str = include_str!("ablate/grid.toml");

/// A folder with a base experiment and a grid.
pub struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    pub fn new(grid: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/own-task/own-task.toml");
        let base = include_str!("ablate/base.toml").replace("OWN", &own.display().to_string());
        for (name, text) in [("base.toml", base.as_str()), ("grid.toml", grid)] {
            files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
        }
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        files::write_atomic(&self.path(name), text.as_bytes()).unwrap();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::cargo_bin("dapo").unwrap();
        command.args(arguments).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn dapo(&self, arguments: &[&str]) -> Output {
        dapo_in(self.folder.path(), arguments)
    }

    fn ablate(&self, rest: &[&str]) -> Output {
        let fixed = ["ablate", "grid.toml", "--out", "study", "--jobs", "2"];
        self.dapo(&[&fixed, rest].concat())
    }

    /// Names of records, and of what else lies beside them.
    pub fn records(&self) -> (Vec<String>, Vec<String>) {
        let names = files::list(&self.path("study/cells")).unwrap_or_default();
        names.into_iter().partition(|name| name.ends_with(".json"))
    }

    pub fn record(&self, name: &str) -> PathBuf {
        self.path("study/cells").join(name)
    }

    pub fn cell(&self, name: &str) -> Cell {
        Cell::read(&self.record(name)).unwrap()
    }

    /// Begins the grid and waits until a run folder has recorded a rollout step.
    fn until_a_step(&self) -> Child {
        let child = self
            .command(&["ablate", "grid.toml", "--out", "study", "--jobs", "2"])
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let runs = self.path("study/runs");
        let trained = || {
            let runs_there = files::list(&runs).unwrap_or_default();
            runs_there.iter().any(|run| {
                let path = runs.join(run).join("metrics.jsonl");
                files::size_bytes(&path).is_ok_and(|bytes| bytes > 0)
            })
        };
        while !trained() {
            assert!(begun.elapsed() < Duration::from_secs(120), "no step was trained");
            std::thread::sleep(Duration::from_millis(20));
        }
        child
    }
}

/// What two records of one run have in common: everything but times and the machine.
pub fn same_run(a: &Cell, b: &Cell) {
    let differences = dapo::study::cell::compare::differences(a, b);
    assert!(differences.is_empty(), "{differences:?}");
}

#[test]
fn a_grid_is_run_once_survives_kills_and_runs_again_what_was_edited() {
    let scene = Scene::new(GRID);
    let (plan, _) = succeeded(scene.ablate(&["--dry-run"]));
    // The hashes are the benchmark's, which may be tuned.
    insta::with_settings!({ filters => vec![(r"  [0-9a-f]{12}  ", "  [hash]  ")] }, {
        insta::assert_snapshot!("dry_run", plan);
    });
    assert!(!scene.path("study").exists(), "a dry run writes nothing");

    // Killed without warning; then stopped as asked; then to the end.
    let mut child = scene.until_a_step();
    child.kill().unwrap();
    child.wait().unwrap();
    let mut child =
        scene.command(&["ablate", "grid.toml", "--out", "study", "--jobs", "2"]).spawn().unwrap();
    let mut talk = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(talk.by_ref().map_while(Result::ok).any(|line| line.starts_with("begins: ")));
    let asked = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(asked.success());
    let talk: Vec<String> = talk.map_while(Result::ok).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{talk:?}");
    assert!(talk.contains(&"stopped; the same command continues".to_string()), "{talk:?}");
    let (table, _) = succeeded(scene.ablate(&[]));
    assert!(table.contains("2 finished"), "{table}");
    let (names, others) = scene.records();
    assert_eq!((names.len(), others.len()), (4, 0));

    // Recorded is recorded.
    let records = || names.iter().map(|name| files::read(&scene.record(name)).unwrap());
    let before: Vec<Vec<u8>> = records().collect();
    let (_, talk) = succeeded(scene.ablate(&[]));
    assert!(!talk.contains("begins: "), "{talk}");
    assert!(records().eq(before));

    records_hold_what_the_runs_did(&scene, &names);
    edited_records_are_set_aside(&scene, &names);
    a_study_without_run_folders_is_whole(&scene, &names);
}

fn records_hold_what_the_runs_did(scene: &Scene, names: &[String]) {
    let grid = Grid::read(&scene.path("study/grids/tiny.json")).unwrap();
    for name in names {
        let cell = scene.cell(name);
        assert!(grid.arms.iter().any(|arm| arm.arm_sha256 == cell.arm_sha256));
        assert!(files::size_bytes(&scene.record(name)).unwrap() < dapo::study::cell::MAX_BYTES);
        assert_eq!((cell.counters.len(), cell.ending), (2, CellEnding::Finished));
        let sets: Vec<(&str, u64)> = cell
            .evaluations
            .iter()
            .map(|it| (it.set.as_str(), it.counters.rollout_steps))
            .collect();
        assert_eq!(sets, [("dev", 0), ("test", 0), ("dev", 1), ("dev", 2), ("test", 2)]);
        let generated = cell.metric("rollout/generated_rollouts").unwrap();
        let sum: f64 = generated.iter().flatten().sum();
        let last = cell.last_evaluation("test").unwrap();
        assert_eq!((last.generated_rollouts as f64, last.outcomes.len()), (sum, 16));
        assert_eq!(cell.evaluations[0].generated_rollouts, 0);
        assert!(cell.wall_seconds > 0.0 && cell.ledger_head.is_some());
        assert!(cell.digests.contains_key("model.safetensors"), "{:?}", cell.digests);
    }
    // A reviewer runs one cell again from its record and compares.
    let record = format!("study/cells/{}", names[0]);
    succeeded(scene.dapo(&["train", &record, "--no-plan", "--out", "mine"]));
    let compared = |record: &str| scene.dapo(&["runs", "cells", record, "--run", "mine"]);
    let (differences, talk) = succeeded(compared(&record));
    assert_eq!(differences, "");
    assert!(talk.contains("graded again: every outcome and prediction is the stored one"));
    says(compared(&format!("study/cells/{}", names[1])), 4, &["ledger_head: "]);
}

fn edited_records_are_set_aside(scene: &Scene, names: &[String]) {
    let [first, second] = [scene.cell(&names[0]), scene.cell(&names[1])];
    // One record is edited; of another cell the run folder is.
    let edited = files::read_text(&scene.record(&names[0])).unwrap();
    let edited = edited.replacen("\"cons_at_k\":", "\"cons_at_k\":1", 1);
    files::write_atomic(&scene.record(&names[0]), edited.as_bytes()).unwrap();
    let end = format!("-seed{}-{}", second.seed, &second.run_key[..8]);
    let runs = files::list(&scene.path("study/runs")).unwrap();
    let run = runs.iter().find(|run| run.ends_with(&end)).unwrap();
    let metrics = scene.path("study/runs").join(run).join("metrics.jsonl");
    let text = files::read_text(&metrics).unwrap().replacen(
        "\"policy/entropy\":",
        "\"policy/entropy\":1",
        1,
    );
    files::write_atomic(&metrics, text.as_bytes()).unwrap();

    let (_, talk) = succeeded(scene.ablate(&[]));
    assert!(talk.contains(&format!("{}: its digest does not fit its content", names[0])), "{talk}");
    let misfit = format!("{}: metrics.jsonl of its run folder is another one", names[1]);
    assert!(talk.contains(&misfit), "{talk}");
    assert_eq!(talk.matches("begins: ").count(), 2, "{talk}");
    assert_eq!(talk.matches("set aside: ").count(), 4, "{talk}");
    let (again, aside) = scene.records();
    assert_eq!(again, names);
    assert_eq!(aside.len(), 2, "{aside:?}");
    same_run(&scene.cell(&names[0]), &first);
    same_run(&scene.cell(&names[1]), &second);
}

fn a_study_without_run_folders_is_whole(scene: &Scene, names: &[String]) {
    files::remove_folder(&scene.path("study/runs")).unwrap();
    let (_, talk) = succeeded(scene.ablate(&[]));
    assert!(!talk.contains("begins: "), "{talk}");
    let (listed, _) = succeeded(scene.dapo(&["runs", "cells", "study"]));
    assert!(names.iter().all(|name| listed.contains(name.trim_end_matches(".json"))), "{listed}");
    assert!(listed.contains("tiny/symmetric"), "{listed}");
    exports_hold_every_value(scene, names);
    // More seeds join those that are there; the grid's file has them all.
    let plan = ["4 cells, 2 to run", "from the cells on record"];
    says(scene.ablate(&["--dry-run", "--seeds", "2..3"]), 0, &plan);
    // Other data are other cells, whatever the arm.
    let own = files::read_text(&scene.path("base.toml")).unwrap();
    let dev = "\n[inputs.data]\nkind = \"files\"\ntrain = \"TRAIN\"\ndev = \"dev.jsonl\"\ntest = [\"TEST\"]\n";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/own-task");
    let at = |name: &str| folder.join(name).display().to_string();
    let dev = dev.replace("TRAIN", &at("train.jsonl")).replace("TEST", &at("test.jsonl"));
    files::write_atomic(&scene.path("base.toml"), (own + &dev).as_bytes()).unwrap();
    let other = "{\"question\": \"1+2?\", \"answer\": 3}\n";
    scene.write("dev.jsonl", other);
    failed(scene.ablate(&[]), 3, "this cell was made from other inputs (data/dev)");
}

fn exports_hold_every_value(scene: &Scene, names: &[String]) {
    let formats = ["--csv", "--parquet", "--tensorboard"];
    succeeded(scene.dapo(&[&["export", "study", "--out", "tables"], &formats[..]].concat()));
    let cells: Vec<Cell> = names.iter().map(|name| scene.cell(name)).collect();
    let lines = |name: &str| {
        let text = files::read_text(&scene.path("tables").join(name)).unwrap();
        text.lines().skip(1).map(str::to_string).collect::<Vec<_>>()
    };
    let values = |cell: &Cell| cell.metrics.values().flatten().flatten().count();
    assert_eq!(lines("metrics.csv").len(), cells.iter().map(values).sum::<usize>());
    let outcomes = |cell: &Cell| cell.evaluations.iter().map(|it| it.outcomes.len()).sum::<usize>();
    assert_eq!(lines("outcomes.csv").len(), cells.iter().map(outcomes).sum::<usize>());
    assert_eq!(lines("evaluations.csv").len(), 4 * 5);
    // `problem`, `sample` and the outcome are columns that other tools read as they are.
    let correct = lines("outcomes.csv").iter().filter(|line| line.ends_with(",1")).count();
    let of = |cell: &Cell| {
        let correct = |it: &dapo::study::cell::CellEvaluation| it.correct().iter().sum::<u64>();
        cell.evaluations.iter().map(correct).sum::<u64>()
    };
    assert_eq!(correct as u64, cells.iter().map(of).sum::<u64>());
    for name in ["metrics", "evaluations", "outcomes"] {
        assert!(scene.path(&format!("tables/{name}.parquet")).exists());
    }
    for arm in ["tiny.all", "tiny.symmetric"] {
        let seeds = files::list(&scene.path("tables/tensorboard").join(arm)).unwrap();
        assert_eq!(seeds, ["seed-1", "seed-2"]);
    }
    assert_eq!(scene.dapo(&["export", "study"]).0, 2);
}

#[test]
fn what_was_declared_stays_with_the_study_and_gives_its_seeds() {
    let short = GRID.split("\n[[arms]]\nname = \"symmetric\"").next().unwrap();
    let scene = Scene::new(short);
    let own = include_str!("ablate/declaration.toml");
    let declare = |text: &str| {
        scene.write("declared.toml", text);
        scene.ablate(&["--declaration", "declared.toml"])
    };
    failed(declare("question = 1"), 3, "declared.toml: ");
    assert!(!scene.path("study").exists());

    // A dry run prints what binds the arms; another arm under the same name is refused.
    scene.write("declared.toml", own);
    let (out, _) = succeeded(scene.ablate(&["--declaration", "declared.toml", "--dry-run"]));
    let arms = &out[out.find("[arms]\n").unwrap()..];
    let arms = &arms[..arms.find("\n\n").unwrap()];
    assert!(arms.starts_with("[arms]\n\"tiny/all\" = \""), "{arms}");
    let digest = arms.rsplit('"').nth(1).unwrap();
    let other = arms.replace(digest, &digest.replace(&digest[..8], "00000000"));
    failed(declare(&format!("{own}\n{other}\n")), 3, "; the declaration names 00000000");
    assert!(!scene.path("study").exists());
    let own = format!("{own}\n{arms}\n");
    only_what_a_commit_has_is_registered(&scene, &own);
    succeeded(declare(&own));
    let (names, _) = scene.records();
    assert_eq!(names.iter().map(|name| scene.cell(name).seed).collect::<Vec<_>>(), [5]);
    let kept = declaration::load(&scene.path("study/study.json")).unwrap();
    assert_eq!(kept, declaration::load(&scene.path("declared.toml")).unwrap());
    let placement = || Placement::read(&scene.path("study"), &kept).unwrap().unwrap();
    let first = placement();
    assert_eq!((first.records_before, first.uncommitted.len()), (0, 0), "{first:?}");
    assert_eq!(first.commit.unwrap().len(), 40);

    let otherwise = declare(&own.replace("margin = 0.04", "margin = 0.05"));
    failed(otherwise, 3, "the study has another declaration");
    files::remove_file(&scene.path("study/study.json")).unwrap();
    says(declare(&own), 0, &["put beside 1 cell on record"]);
    assert_eq!(placement().records_before, 1);
}

/// What is refused leaves no declaration behind that a corrected one would be held against.
fn only_what_a_commit_has_is_registered(scene: &Scene, own: &str) {
    let git = |line: &str| {
        let mut git = Command::new("git");
        succeeded(ended(git.args(line.split(' ')).current_dir(scene.path(""))));
    };
    let refused = |reason: &str| {
        scene.write("declared.toml", own);
        let words = [reason, "or run with --dirty"];
        says(scene.ablate(&["--declaration", "declared.toml"]), 3, &words);
        assert!(!scene.path("study/study.json").exists());
        assert!(!scene.path("study/declared.json").exists());
    };
    refused("declared.toml lies in no git repository");
    scene.write("tracked", "");
    git("init -q");
    git("add tracked");
    git("-c user.name=a -c user.email=a@b commit -q -m a");
    refused("grid.toml is in no commit");
    git("add grid.toml declared.toml");
    git("-c user.name=a -c user.email=a@b commit -q -m b");
    refused("base.toml is in no commit");
    git("add base.toml");
    git("-c user.name=a -c user.email=a@b commit -q -m c");
    scene.write("tracked", "changed");
    refused("differ from its commit");
    scene.write("tracked", "");
}

#[test]
fn a_declaration_that_fits_no_grid_is_refused_with_every_problem_and_the_nearest_names() {
    let scene = Scene::new(GRID);
    let dry = |text: &str| {
        scene.write("declared.toml", text);
        scene.ablate(&["--declaration", "declared.toml", "--dry-run"])
    };
    let misfit = include_str!("ablate/misfit.toml");
    let words = [
        "declared.toml: `tiny/symetric`: the grid tiny has no arm \"symetric\"; did you mean symmetric?",
        "held_out.grid: there is no grid \"tinny\"",
        "did you mean tiny?",
        "seeds of the grid tiny: 2 stand in `tuning_seeds`",
        "primary_set: no arm of the grids evaluates a set \"tets\"; did you mean test?",
        "comparison `set`: `tiny/symmetric` evaluates no set \"tst\"; did you mean test?",
        "there is no metric \"policy/entrpy\"; did you mean policy/entropy?",
        "the window (40 to 45 % of the steps) has 0 of the 2 rollout steps",
    ];
    says(dry(misfit), 3, &words);
    says(scene.ablate(&["--declaration", "declared.toml"]), 3, &words);
    assert!(!scene.path("study").exists());

    let own = include_str!("ablate/declaration.toml");
    let dose = format!("{own}least_doses = {{ \"Dynamic Sampling\" = 0.1 }}\n");
    failed(dry(&dose), 3, "no compared arm switches \"Dynamic Sampling\" on");
    let seeds = scene.ablate(&["--declaration", "declared.toml", "--dry-run", "--seeds", "7"]);
    failed(seeds, 3, "7 do not stand in `seeds`");
    let shipped = include_str!("../../experiments/study.toml");
    failed(dry(shipped), 3, "it is not about the grids of this command (tiny)");
}

/// Five sign flips reach 2/2⁵ at best, however large the difference.
#[test]
fn a_plan_of_paired_runs_is_that_of_sign_flips_and_of_the_largest_family() {
    let paired = PlannedTest { is_paired: true, ..PlannedTest::UNDECLARED };
    let five = cells::evidence(5, paired);
    assert!(five.starts_with("with 5 seeds, paired, the smallest possible p of a comparison is 0.0625: these are too few"), "{five}");
    assert!(five.ends_with("; 6 seeds are enough"), "{five}");
    assert!(cells::evidence(6, paired).contains(" is found in 80 % of cases "));
    let two = cells::evidence(6, PlannedTest { comparisons: 2, ..paired });
    assert!(two.contains("over the 2 comparisons of the largest family"), "{two}");
    assert!(two.ends_with("; 7 seeds are enough"), "{two}");
    let alone = cells::evidence(5, PlannedTest::UNDECLARED);
    assert!(alone.contains("is 0.0079; a difference of "), "{alone}");
    assert!(alone.ends_with("(with p at most 0.05, if it is the only comparison)"), "{alone}");
}

#[test]
fn failed_and_diverged_arms_stay_on_record_while_the_others_go_on() {
    let short = GRID.split("\n[[arms]]\nname = \"symmetric\"").next().unwrap();
    let scene = Scene::new(
        &(short.replace("seeds = [1, 2]", "seeds = [1]") + include_str!("ablate/unfinished.toml")),
    );
    let base = files::read_text(&scene.path("base.toml")).unwrap();
    let fast = base.replacen("name = \"tiny\"", "name = \"tiny\"\nnumerics = \"fast\"", 1);
    scene.write("base.toml", &fast);

    // A study in use is left alone.
    let held = files::create_folder(&scene.path("study"))
        .and_then(|()| files::lock(&scene.path("study/ablate.lock")))
        .unwrap();
    failed(scene.ablate(&[]), 3, "study is in use by another `dapo ablate`");
    drop(held);

    let expected = [
        "1 finished",
        "1 diverged",
        "1 failed",
        "tiny/stops seed 1 failed: error: rollout step 1: dynamic sampling reached its cap",
        "tiny/explodes seed 1 diverged: rollout step 1",
    ];
    says(scene.ablate(&["--last-checkpoint-only"]), 6, &expected);
    let (names, _) = scene.records();
    let cells: Vec<Cell> = names.iter().map(|name| scene.cell(name)).collect();
    let of = |ending| cells.iter().find(|cell| cell.ending == ending).unwrap();
    let failed = of(CellEnding::Failed);
    assert_eq!((&failed.ledger_head, failed.counters.len()), (&None, 0));
    assert_eq!(failed.evaluations.len(), 2, "dev and test, the base policy before it failed");
    let diverged = of(CellEnding::Diverged);
    assert!(diverged.reason.starts_with("rollout step 1, update "), "{}", diverged.reason);
    assert!(diverged.ledger_head.is_some());

    // Of the finished cell the last checkpoint is left, and what is left verifies.
    let runs = files::list(&scene.path("study/runs")).unwrap();
    let run = runs.iter().find(|run| run.starts_with("tiny.all-seed1-")).unwrap();
    let run = format!("study/runs/{run}");
    assert_eq!(files::list(&scene.path(&run).join("checkpoints")).unwrap(), ["step-000002"]);
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/mini-aime/base");
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/own-task");
    succeeded(scene.dapo(&["verify", &run, "--base", base, "--data", data]));

    let (code, _, talk) = scene.ablate(&[]);
    assert!(code == 6 && !talk.contains("begins: "), "{talk}");
    let (code, _, talk) = scene.ablate(&["--retry-failed"]);
    assert!(code == 6 && talk.matches("begins: tiny/stops").count() == 1, "{talk}");
}

#[test]
fn a_grid_that_cannot_be_used_ends_with_code_3_before_anything_is_written() {
    let restated = GRID.replace("high = 0.2", "high = 0.28");
    let (_, talk) = succeeded(Scene::new(&restated).ablate(&["--dry-run"]));
    assert!(talk.contains("note: ") && talk.contains("dapo.clip.high: changes nothing"), "{talk}");
    let nothing = restated.replace("overlong = { punishment = { kind = \"none\" } }\n", "");
    let scene = Scene::new(&nothing);
    failed(scene.ablate(&[]), 3, "grid.toml, arm \"symmetric\": dapo.clip.high: changes nothing");
    failed(scene.dapo(&["ablate", "nowhere"]), 3, "nowhere is no file, no folder with a grid.toml");
    assert_eq!(scene.ablate(&["--seeds", "3..1"]).0, 2);
    assert!(!scene.path("study").exists());
}
