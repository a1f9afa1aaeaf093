//! Grids run, stop, go on, and notice what was tampered with. Every run is two tiny rollout steps
//! on the problems of `experiments/own-task`.

use crate::binary::{Output, PROGRAM, dapo_in, line_in, succeeded};
use crate::interruption::{kill, send, wait_until};
use crate::repository::{self, replace};
use crate::transcript::play;
use dapo::base::files;
use dapo::experiment::Grid;
use dapo::report::cells;
use dapo::study::declaration::{self, Placement};
use dapo::study::{Cell, CellEnding, Declaration, Declared, DeclaredFamily, Direction, Metric};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

pub const GRID: &str = include_str!("ablate/grid.toml");

const ABLATE: [&str; 6] = ["ablate", "grid.toml", "--out", "study", "--jobs", "2"];

fn one_arm() -> &'static str {
    GRID.split("\n[[arms]]\nname = \"symmetric\"").next().unwrap()
}

/// A folder with a base experiment and a grid.
pub struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    pub fn new(grid: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let own = repository::root().join("experiments/own-task/own-task.toml");
        let base = include_str!("ablate/base.toml").replace("OWN", &own.display().to_string());
        for (name, text) in [("base.toml", base.as_str()), ("grid.toml", grid)] {
            files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
        }
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal", PROGRAM]).args(arguments).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn dapo(&self, arguments: &[&str]) -> Output {
        dapo_in(self.folder.path(), arguments)
    }

    fn ablate(&self, rest: &[&str]) -> Output {
        self.dapo(&[&ABLATE, rest].concat())
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
        let mut child = self.command(&ABLATE).stderr(Stdio::null()).spawn().unwrap();
        let runs = self.path("study/runs");
        let has_trained = |run: &String| {
            let metrics = runs.join(run).join("metrics.jsonl");
            files::size_bytes(&metrics).is_ok_and(|bytes| bytes > 0)
        };
        wait_until(&mut child, || files::list(&runs).unwrap_or_default().iter().any(has_trained));
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
    kill(&mut scene.until_a_step());
    let mut child = scene.command(&ABLATE).spawn().unwrap();
    let mut talk = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(talk.by_ref().map_while(Result::ok).any(|line| line.starts_with("begins: ")));
    send(&child, "INT");
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
    // Without run folders a study is whole.
    files::remove_folder(&scene.path("study/runs")).unwrap();
    exports_hold_every_value(&scene, &names);
    play(&scene.path(""), include_str!("ablate/without_runs.txt"));
}

fn records_hold_what_the_runs_did(scene: &Scene, names: &[String]) {
    let grid = Grid::read(&scene.path("study/grids/tiny.json")).unwrap();
    for name in names {
        let cell = scene.cell(name);
        assert!(grid.arms.iter().any(|arm| arm.arm_sha256 == cell.arm_sha256));
        assert!(files::size_bytes(&scene.record(name)).unwrap() < dapo::study::cell::MAX_BYTES);
        assert_eq!((cell.counters.len(), cell.ending), (2, CellEnding::Finished));
        let evaluations = cell.evaluations.iter();
        let sets = evaluations.map(|row| (row.set.as_str(), row.counters.rollout_steps));
        let sets: Vec<(&str, u64)> = sets.collect();
        assert_eq!(sets, [("dev", 0), ("test", 0), ("dev", 1), ("dev", 2), ("test", 2)]);
        let generated = cell.metric("rollout/generated_rollouts").unwrap();
        let sum: f64 = generated.iter().flatten().sum();
        let last = cell.last_evaluation("test").unwrap();
        assert_eq!((last.generated_rollouts as f64, last.outcomes.len()), (sum, 16));
        assert_eq!(cell.evaluations[0].generated_rollouts, 0);
        assert!(cell.wall_seconds > 0.0 && cell.ledger_head.is_some());
        assert!(cell.digests.contains_key("model.safetensors"), "{:?}", cell.digests);
    }
    play(&scene.path(""), include_str!("ablate/reviewed.txt"));
}

fn edited_records_are_set_aside(scene: &Scene, names: &[String]) {
    let [first, second] = [scene.cell(&names[0]), scene.cell(&names[1])];
    play(&scene.path(""), include_str!("ablate/edited.txt"));
    let (again, aside) = scene.records();
    assert_eq!(again, names);
    assert_eq!(aside.len(), 2, "{aside:?}");
    same_run(&scene.cell(&names[0]), &first);
    same_run(&scene.cell(&names[1]), &second);
}

fn exports_hold_every_value(scene: &Scene, names: &[String]) {
    let export = "export study --out tables --csv --parquet --tensorboard";
    succeeded(line_in(&scene.path(""), export));
    let cells: Vec<Cell> = names.iter().map(|name| scene.cell(name)).collect();
    let lines = |name: &str| {
        let text = files::read_text(&scene.path("tables").join(name)).unwrap();
        text.lines().skip(1).map(str::to_string).collect::<Vec<_>>()
    };
    let values = cells.iter().flat_map(|cell| cell.metrics.values().flatten().flatten());
    assert_eq!(lines("metrics.csv").len(), values.count());
    let evaluations = || cells.iter().flat_map(|cell| &cell.evaluations);
    let outcomes: usize = evaluations().map(|evaluation| evaluation.outcomes.len()).sum();
    assert_eq!(lines("outcomes.csv").len(), outcomes);
    assert_eq!(lines("evaluations.csv").len(), 4 * 5);
    // `problem`, `sample` and the outcome are columns that other tools read as they are.
    let correct = lines("outcomes.csv").iter().filter(|line| line.ends_with(",1")).count();
    let expected: u64 = evaluations().flat_map(|evaluation| evaluation.correct()).sum();
    assert_eq!(correct as u64, expected);
    for name in ["metrics", "evaluations", "outcomes"] {
        assert!(scene.path(&format!("tables/{name}.parquet")).exists());
    }
    for arm in ["tiny.all", "tiny.symmetric"] {
        let seeds = files::list(&scene.path("tables/tensorboard").join(arm)).unwrap();
        assert_eq!(seeds, ["seed-1", "seed-2"]);
    }
}

#[test]
fn what_was_declared_stays_with_the_study_and_gives_its_seeds() {
    let scene = Scene::new(one_arm());
    play(&scene.path(""), include_str!("ablate/declared.txt"));
    let (names, _) = scene.records();
    assert_eq!(names.iter().map(|name| scene.cell(name).seed).collect::<Vec<_>>(), [5]);
    let kept = declaration::load(&scene.path("study/study.json")).unwrap();
    assert_eq!(kept, declaration::load(&scene.path("declared.toml")).unwrap());
    let placement = || Placement::read(&scene.path("study")).unwrap().unwrap();
    let first = placement();
    assert_eq!((first.records_before, first.uncommitted.len()), (0, 0), "{first:?}");
    assert_eq!(first.commit.unwrap().len(), 40);
    play(&scene.path(""), include_str!("ablate/declared_otherwise.txt"));
    assert_eq!(placement().records_before, 1);
}

#[test]
fn a_declaration_that_fits_no_grid_is_refused_with_every_problem_and_the_nearest_names() {
    play(&Scene::new(GRID).path(""), include_str!("ablate/misfit.txt"));
}

/// Five sign flips reach 2/2⁵ at best, however large the difference.
#[test]
fn a_plan_of_paired_runs_is_that_of_sign_flips_and_of_the_largest_family() {
    let own = Declaration::undeclared(&[], "", "");
    let paired = Declaration { paired: true, ..own.clone() };
    let five = cells::evidence(5, &paired);
    assert!(five.starts_with("with 5 seeds, paired, the smallest possible p of a comparison is 0.0625: these are too few"), "{five}");
    assert!(five.ends_with("; 6 seeds are enough"), "{five}");
    assert!(cells::evidence(6, &paired).contains(" is found in 80 % of cases "));
    let [id, question, arm, reference] = ["c", "q", "g/a", "g/b"].map(str::to_owned);
    let (metric, direction) = (Metric::last_score("dev"), Direction::Higher);
    let declared = Declared { id: id.clone(), arm, reference, metric, direction };
    let comparisons = vec![declared.clone(), declared];
    let families = vec![DeclaredFamily { id, question, after: Vec::new(), comparisons }];
    let two = cells::evidence(6, &Declaration { families, ..paired });
    assert!(two.contains("over the 2 comparisons of the largest family"), "{two}");
    assert!(two.ends_with("; 7 seeds are enough"), "{two}");
    let alone = cells::evidence(5, &own);
    assert!(alone.contains("is 0.0079; a difference of "), "{alone}");
    assert!(alone.ends_with("(with p at most 0.05, if it is the only comparison)"), "{alone}");
}

#[test]
fn failed_and_diverged_arms_stay_on_record_while_the_others_go_on() {
    let grid = one_arm().replace("seeds = [1, 2]", "seeds = [1]");
    let scene = Scene::new(&(grid + include_str!("ablate/unfinished.toml")));
    replace(&scene.path("base.toml"), "name = \"tiny\"", "name = \"tiny\"\nnumerics = \"fast\"");
    play(&scene.path(""), include_str!("ablate/unfinished.txt"));
    let (names, _) = scene.records();
    let cells: Vec<Cell> = names.iter().map(|name| scene.cell(name)).collect();
    let of = |ending| cells.iter().find(|cell| cell.ending == ending).unwrap();
    let failed = of(CellEnding::Failed);
    assert_eq!((&failed.ledger_head, failed.counters.len()), (&None, 0));
    assert_eq!(failed.evaluations.len(), 2, "dev and test, the base policy before it failed");
    let diverged = of(CellEnding::Diverged);
    assert!(diverged.reason.starts_with("rollout step 1, update "), "{}", diverged.reason);
    assert!(diverged.ledger_head.is_some());
}

#[test]
fn a_grid_that_cannot_be_used_ends_with_code_3_before_anything_is_written() {
    play(&Scene::new(GRID).path(""), include_str!("ablate/unusable.txt"));
}
