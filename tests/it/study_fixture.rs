//! Made-up studies whose truth is known: the shipped grids, and cells whose scores and metrics
//! are exactly what a test asks for. Nothing is drawn at random.

use crate::repository;
use dapo::algorithm::Problem;
use dapo::base::rng::{Id, stream};
use dapo::base::{Bits, Purpose, files};
use dapo::experiment::grid::file;
use dapo::experiment::{Arm, Data, Experiment, Grid, MiniAimeVariant};
use dapo::records::Counters;
use dapo::report;
use dapo::study::analysis::{self, Analysis};
use dapo::study::collection::Study;
use dapo::study::comparisons::Comparison;
use dapo::study::{Cell, CellEnding, CellEvaluation, Declaration, ProblemIds, cell, declaration};
use dapo::task::data;
use dapo::training::run::inputs;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

pub const STEPS: u64 = 40;

pub const ROUND: u64 = 256;

/// (set, problems, samples).
const SETS: [(&str, u64, u64); 3] =
    [("dev", 64, 4), ("mini-aime", 30, 32), ("mini-aime-plus", 256, 8)];

/// A family of comparisons of the ladder's ends.
pub const PRIMARY: &str = include_str!("study/primary.toml");

/// Blocks whose scores differ by up to half, and two families: the second counts after the first.
pub const BLOCKS: &str = include_str!("study/blocks.toml");

/// What a run looks like. Metrics move on a straight line from the first to the last step, each
/// step's value plus or minus `wobble` in turn.
#[derive(Debug, Clone, Deserialize)]
pub struct Shape {
    /// avg@k before training and at the end, on every set.
    pub score: (f64, f64),
    /// Rollout steps that were done, at most [`STEPS`].
    pub steps: u64,
    /// Rollouts that each step generates, in rounds of 256.
    pub rollouts_per_step: u64,
    pub ending: CellEnding,
    /// `stage/name` → first and last value.
    pub metrics: BTreeMap<String, (f64, f64)>,
    pub wobble: f64,
}

impl Default for Shape {
    fn default() -> Self {
        toml::from_str(include_str!("study/shape.toml")).unwrap()
    }
}

impl Shape {
    pub fn ending_at(score: f64) -> Self {
        Self { score: (0.2, score), ..Self::default() }
    }

    pub fn with(mut self, name: &str, first: f64, last: f64) -> Self {
        self.metrics.insert(name.to_owned(), (first, last));
        self
    }
}

/// The shipped grids, resolved, with their seeds replaced.
pub fn grids(seeds: &[u64]) -> Vec<Grid> {
    let folder = repository::root().join("experiments/grids");
    ["ladder", "add-one", "leave-one-out", "fidelity", "held-out", "learning-rate"]
        .map(|name| {
            let grid = file::load(&folder.join(format!("{name}.toml"))).unwrap().grid;
            Grid { seeds: seeds.to_vec(), ..grid }
        })
        .into()
}

/// An arm by `<grid>/<arm>`.
pub fn arm<'a>(grids: &'a [Grid], id: &str) -> &'a Arm {
    let (name, arm) = id.split_once('/').unwrap();
    grids.iter().find(|grid| grid.name == name).unwrap().arm(arm).unwrap()
}

pub fn cell(arm: &Arm, seed: u64, shape: &Shape) -> Cell {
    let mut experiment = arm.experiment.clone();
    experiment.execution.seed = seed;
    let counters = |step| counters(step, shape.rollouts_per_step / ROUND);
    let mut evaluations = Vec::new();
    for step in 0..=shape.steps {
        let along = step as f64 / STEPS as f64;
        let score = shape.score.0 + (shape.score.1 - shape.score.0) * along;
        let is_last = step == shape.steps && shape.ending != CellEnding::Diverged;
        let every = |set: &str| if set == "mini-aime" { u64::MAX } else { 5 };
        let due = SETS.into_iter().filter(|(set, ..)| is_last || step % every(set) == 0);
        evaluations.extend(due.map(|set| evaluation(set, score, counters(step), seed)));
    }
    let metrics = shape.metrics.iter();
    let mut metrics: BTreeMap<String, Vec<Option<f64>>> = metrics
        .map(|(name, ends)| (name.clone(), line(*ends, shape.steps, shape.wobble)))
        .collect();
    let generated = vec![Some(shape.rollouts_per_step as f64); shape.steps as usize];
    metrics.insert("rollout/generated_rollouts".to_owned(), generated);
    let digest = |text: &str| files::sha256(text.as_bytes());
    let (problems, data) = generated_sets(&experiment);
    let base = ["base/config.json", "base/tokenizer.json", "base/model.safetensors"];
    let mut inputs = data.clone();
    inputs.extend(base.map(|name| (name.to_owned(), digest(name))));
    let own = |name: &str| digest(&format!("{name} {} {seed}", arm.arm_sha256));
    let written = ["metrics.jsonl", "evaluations.jsonl", "ledger.jsonl", "model.safetensors"];
    Cell {
        format: cell::FORMAT,
        name: arm.name.clone(),
        arm_sha256: arm.arm_sha256.clone(),
        seed,
        run_key: inputs::run_key(&experiment, &inputs),
        exactness: "exact".to_owned(),
        harness: "0.1.0".to_owned(),
        ending: shape.ending,
        not_finite: None,
        reason: "as the test asked".to_owned(),
        experiment,
        inputs,
        counters: (1..=shape.steps).map(counters).collect(),
        metrics,
        problems: problems.clone(),
        evaluations,
        ledger_head: (shape.ending != CellEnding::Failed).then(|| own("ledger")),
        digests: written.map(|name| (name.to_owned(), own(name))).into(),
        environment: BTreeMap::new(),
        wall_seconds: 60.0,
        step_seconds: Vec::new(),
        record_sha256: String::new(),
    }
    .sealed()
}

/// Ids of each evaluated set, and the digest of each set.
type GeneratedSets = (BTreeMap<String, ProblemIds>, BTreeMap<String, String>);

/// The sets of an experiment's generated problems; each is generated once.
fn generated_sets(experiment: &Experiment) -> &'static GeneratedSets {
    static VARIANTS: [OnceLock<GeneratedSets>; 2] = [OnceLock::new(), OnceLock::new()];
    let Data::MiniAime { variant } = &experiment.inputs.data else { panic!("another task") };
    VARIANTS[usize::from(*variant != MiniAimeVariant::Standard)].get_or_init(|| {
        let sets = data::load(&experiment.inputs.data).unwrap();
        let ids = |(set, problems): (&str, &[Problem])| {
            let ids: Vec<&str> = problems.iter().map(|problem| problem.id.as_str()).collect();
            (set.to_owned(), ProblemIds::of(&ids, sets.tags.get(set)))
        };
        let digests = inputs::named_sets(&sets).into_iter();
        let digests = digests.map(|(set, of)| (format!("data/{set}"), data::digest(of)));
        (sets.evaluated().map(ids).collect(), digests.collect())
    })
}

/// The first arms of a published grid, and the records of their runs with these seeds.
pub fn published(grid: &str, arms: usize, seeds: &[u64]) -> (Vec<Grid>, Vec<Cell>) {
    let study = repository::root().join("reports/study-1");
    let mut grid = Grid::read(&Grid::path(&study, grid)).unwrap();
    grid.arms.truncate(arms);
    grid.seeds = seeds.to_vec();
    let runs = grid.arms.iter().flat_map(|arm| seeds.iter().map(move |seed| (arm, seed)));
    let names = runs.map(|(arm, seed)| format!("{}-seed{seed}.json", &arm.arm_sha256[..12]));
    let cells = names.map(|name| Cell::read(&study.join("cells").join(name)).unwrap()).collect();
    (vec![grid], cells)
}

/// GRPO and DAPO with five seeds that are `width` apart in score; DAPO generates twice as much.
pub fn two_arms(grpo: f64, dapo: f64, width: f64) -> (Vec<Grid>, Vec<Cell>) {
    let dapo = Shape { rollouts_per_step: 512, ..Shape::ending_at(dapo) };
    ladder_ends(&Shape::ending_at(grpo), &dapo, width)
}

/// The same of two shapes.
pub fn ladder_ends(grpo: &Shape, dapo: &Shape, width: f64) -> (Vec<Grid>, Vec<Cell>) {
    let grids = grids(&[1, 2, 3, 4, 5]);
    let mut cells = Vec::new();
    for (id, shape) in [("ladder/grpo", grpo), ("ladder/dynamic-sampling", dapo)] {
        for seed in 1..=5 {
            let mut shape = shape.clone();
            shape.score.1 += spread(seed as usize - 1, 5, width);
            cells.push(cell(arm(&grids, id), seed, &shape));
        }
    }
    (grids, cells)
}

/// Eight runs of each arm of [`BLOCKS`], with the last score that their id and seed have.
pub fn blocks(score: impl Fn(&str, u64) -> f64) -> (Vec<Grid>, Vec<Cell>) {
    let grids = grids(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let mut cells = Vec::new();
    for id in declared(BLOCKS).pools.iter().flat_map(|pool| &pool.arms) {
        let shape = |seed| Shape::ending_at(score(id, seed));
        cells.extend((1..=8).map(|seed| cell(arm(&grids, id), seed, &shape(seed))));
    }
    (grids, cells)
}

/// The declaration of the made-up studies with these families.
pub fn declared(families: &str) -> Declaration {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study.toml");
    let text = format!("{}{families}", include_str!("study/declaration.toml"));
    files::write_atomic(&path, text.as_bytes()).unwrap();
    declaration::load(&path).unwrap()
}

/// A study that declares these families.
pub fn study((grids, cells): (Vec<Grid>, Vec<Cell>), families: &str) -> Study {
    let declaration = Declaration { seeds: grids[0].seeds.clone(), ..declared(families) };
    Study::new(grids, cells, Some(declaration))
}

pub fn analysed(study: (Vec<Grid>, Vec<Cell>), families: &str) -> Analysis {
    analysis::analyse(&self::study(study, families))
}

/// A comparison of the family `primary`.
pub fn compared(study: (Vec<Grid>, Vec<Cell>), families: &str, id: &str) -> Comparison {
    analysed(study, families).comparison("primary", id).unwrap().clone()
}

/// Both pages of a study's report as Markdown.
pub fn markdown(study: &Study) -> String {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &study.grids, &study.cells);
    files::write_json(&folder.path().join("study.json"), &study.declaration).unwrap();
    let (_, pages) = report::study::write(folder.path(), None, None).unwrap();
    files::read_text(&pages[2]).unwrap() + &files::read_text(&pages[3]).unwrap()
}

/// Records changed, and whatever can be computed again from the rest of them.
pub fn change<'a>(cells: impl IntoIterator<Item = &'a mut Cell>, change: impl Fn(&mut Cell)) {
    for cell in cells {
        change(cell);
        cell.arm_sha256 = cell.experiment.arm_sha256();
        cell.run_key = inputs::run_key(&cell.experiment, &cell.inputs);
        *cell = cell.clone().sealed();
    }
}

/// A run that failed has no ledger.
pub fn fail(cell: &mut Cell) {
    cell.ending = CellEnding::Failed;
    cell.reason = "the process was killed".to_owned();
    cell.ledger_head = None;
}

pub fn write(folder: &Path, grids: &[Grid], cells: &[Cell]) {
    for grid in grids {
        files::create_folder(&folder.join("grids")).unwrap();
        grid.write(folder).unwrap();
    }
    for cell in cells {
        cell.write(&folder.join("cells")).unwrap();
    }
}

/// Deviations of seeds from their arm's score: symmetric, different for every seed.
pub fn spread(index: usize, runs: usize, width: f64) -> f64 {
    width * (index as f64 - (runs as f64 - 1.0) / 2.0)
}

fn counters(step: u64, rounds: u64) -> Counters {
    Counters { generation_rounds: rounds * step, rollout_steps: step, updates: 4 * step }
}

fn line((first, last): (f64, f64), steps: u64, wobble: f64) -> Vec<Option<f64>> {
    let value = |step: u64| {
        let along = if steps > 1 { step as f64 / (steps - 1) as f64 } else { 1.0 };
        let sign = if step.is_multiple_of(2) { 1.0 } else { -1.0 };
        let exact = first + (last - first) * along + sign * wobble;
        Some((exact * 1e6).round() / 1e6)
    };
    (0..steps).map(value).collect()
}

/// Outcomes with exactly the share `score` correct, to the nearest sample, in an order of the seed
/// and the set.
fn evaluation(
    (set, problems, samples): (&str, u64, u64),
    score: f64,
    counters: Counters,
    seed: u64,
) -> CellEvaluation {
    let all = problems * samples;
    let correct = (score.clamp(0.0, 1.0) * all as f64).round() as u64;
    let mut outcomes: Vec<bool> = (0..all).map(|index| index < correct).collect();
    stream(seed, Purpose::Evaluation, &[Id::from(set)]).shuffle(&mut outcomes);
    CellEvaluation {
        set: set.to_owned(),
        counters,
        generated_rollouts: counters.generation_rounds * ROUND,
        samples,
        outcomes: outcomes.into_iter().collect::<Bits>(),
        cons_at_k: (correct as f64 / samples as f64).round() / problems as f64,
        truncated_share: 0.0,
        response_tokens_mean: 50.0,
        reward_mean: None,
        outcomes_sha256: files::sha256(set.as_bytes()),
    }
}
