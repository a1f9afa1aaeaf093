//! Made-up studies whose truth is known: the shipped grids, and cells whose scores and metrics
//! are exactly what a test asks for. Nothing is drawn at random.

use crate::repository;
use dapo::algorithm::Problem;
use dapo::base::rng::{Id, stream};
use dapo::base::{Bits, Purpose, files};
use dapo::experiment::grid::file;
use dapo::experiment::{Arm, Data, Experiment, Grid, MiniAimeVariant};
use dapo::records::Counters;
use dapo::study::{Cell, CellEnding, CellEvaluation, ProblemIds, cell};
use dapo::task::data;
use dapo::training::run::inputs;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

pub const STEPS: u64 = 40;

pub const ROUND: u64 = 256;

/// (set, problems, samples).
const SETS: [(&str, u64, u64); 3] =
    [("dev", 64, 4), ("mini-aime", 30, 32), ("mini-aime-plus", 256, 8)];

/// What a run looks like. Metrics move on a straight line from the first to the last step, each
/// step's value plus or minus `wobble` in turn.
#[derive(Debug, Clone)]
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
        let metrics = [
            ("policy/entropy", (0.2, 0.1)),
            ("policy/token_probability_mean", (0.90, 0.95)),
            ("rollout/response_tokens_mean", (30.0, 60.0)),
            ("rollout/reward_mean", (-0.7, 0.4)),
            ("rollout/groups_all_correct_share", (0.0, 0.1)),
            ("rollout/groups_useful_share", (0.75, 0.85)),
            ("rollout/truncated_share", (0.06, 0.01)),
            ("rollout/style_careful_share", (0.01, 0.3)),
            ("train/reward_mean", (-0.7, 0.4)),
            ("loss/clip_fraction_high", (0.001, 0.001)),
            ("loss/clip_fraction_low", (0.001, 0.001)),
            ("loss/up_clipped_probability_mean", (0.1, 0.12)),
        ];
        Self {
            score: (0.2, 0.5),
            steps: STEPS,
            rollouts_per_step: 256,
            ending: CellEnding::Finished,
            metrics: metrics.map(|(name, ends)| (name.to_owned(), ends)).into(),
            wobble: 0.0,
        }
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("experiments/grids");
    ["ladder", "add-one", "leave-one-out", "fidelity", "held-out", "learning-rate"]
        .map(|name| {
            let mut grid = file::load(&folder.join(format!("{name}.toml"))).unwrap().grid;
            grid.seeds = seeds.to_vec();
            grid
        })
        .into()
}

/// An arm by `<grid>/<arm>`.
pub fn arm<'a>(grids: &'a [Grid], id: &str) -> &'a Arm {
    let (grid, arm) = id.split_once('/').unwrap();
    grids.iter().find(|it| it.name == grid).unwrap().arm(arm).unwrap()
}

pub fn cell(arm: &Arm, seed: u64, shape: &Shape) -> Cell {
    let mut experiment = arm.experiment.clone();
    experiment.execution.seed = seed;
    let rounds = shape.rollouts_per_step / ROUND;
    let counters: Vec<Counters> =
        (1..=shape.steps).map(|step| self::counters(step, rounds)).collect();
    let evaluated = |step: u64, (set, problems, samples): (&str, u64, u64)| {
        let along = step as f64 / STEPS as f64;
        let score = shape.score.0 + (shape.score.1 - shape.score.0) * along;
        evaluation((set, problems, samples), score, self::counters(step, rounds), seed)
    };
    let complete = shape.ending != CellEnding::Diverged;
    let evaluations: Vec<CellEvaluation> = (0..=shape.steps)
        .filter(|step| step % 5 == 0 || (*step == shape.steps && complete))
        .flat_map(|step| {
            let is_end = step == 0 || (step == shape.steps && complete);
            let due = move |set: &(&str, u64, u64)| set.0 != "mini-aime" || is_end;
            SETS.into_iter().filter(due).map(move |set| (step, set))
        })
        .map(|(step, set)| evaluated(step, set))
        .collect();
    let mut metrics: BTreeMap<String, Vec<Option<f64>>> = shape
        .metrics
        .iter()
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
        counters,
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
    static MADE: [OnceLock<GeneratedSets>; 2] = [OnceLock::new(), OnceLock::new()];
    let Data::MiniAime { variant } = &experiment.inputs.data else { panic!("another task") };
    MADE[usize::from(*variant != MiniAimeVariant::Standard)].get_or_init(|| {
        let sets = data::load(&experiment.inputs.data).unwrap();
        let ids = |(set, problems): (&str, &[Problem])| {
            let ids: Vec<&str> = problems.iter().map(|it| it.id.as_str()).collect();
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
        outcomes_sha256: files::sha256(set.as_bytes()),
    }
}
