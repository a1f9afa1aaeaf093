//! Every method of the list: its arm, its golden vectors, its bits, its records. A new method needs no
//! change here.

use crate::golden_data;
use crate::repository::{self, few_problems, root};
use crate::verify::{expect, replayed, trained};
use dapo::algorithm::methods::{KINDS, MEASURES, Method, kl_cov::KlCov};
use dapo::algorithm::objective::objective;
use dapo::algorithm::{Dapo, Rewarded, SeenResponse, StepTotals, Tokens, aggregation};
use dapo::base::files;
use dapo::experiment::{Experiment, Grid, compare, grid, sources, validate};
use dapo::numerics::Numerics;
use dapo::records::RunFolder;
use dapo::study::effect_checks::{self, EffectVerdict as Effect};
use dapo::verification::verify::VerifyVerdict;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use tch::{Kind, Tensor};

/// Names of the files of a folder with this ending, without it.
fn stems(folder: &str, ending: &str) -> BTreeSet<String> {
    let names = files::list(&root().join(folder)).unwrap();
    names.iter().filter_map(|name| name.strip_suffix(ending)).map(str::to_string).collect()
}

/// Arms of methods; several may be of one kind, and one that is configuration alone is of none.
fn arms() -> BTreeSet<String> {
    stems("experiments/methods", ".toml")
}

fn arm(name: &str) -> Experiment {
    repository::experiment(&format!("methods/{name}.toml"), "")
}

fn arms_of_a_kind() -> Vec<String> {
    arms().into_iter().filter(|name| arm(name).dapo.method.is_some()).collect()
}

#[derive(Deserialize)]
struct Golden {
    /// `[group][i]` of one step.
    advantages: Vec<AdvantageCase>,
    losses: Vec<LossCase>,
}

#[derive(Deserialize)]
struct AdvantageCase {
    rewards: Vec<Vec<f64>>,
    /// What differs from the arm's `[dapo]`.
    #[serde(default)]
    dapo: Map<String, Value>,
    /// Tokens of each response; 1 where the method does not look.
    #[serde(default)]
    lengths: Vec<Vec<u64>>,
    /// Where the reference gives a group of one its own reward, which is 0 here.
    group_of_one: Option<String>,
    tolerance: Option<f64>,
    expected: Vec<Vec<f64>>,
}

impl AdvantageCase {
    fn rewarded(&self) -> Vec<Vec<Rewarded>> {
        let outcomes = |(group, rewards): (usize, &Vec<f64>)| {
            let tokens = |i| self.lengths.get(group).map_or(1, |lengths| lengths[i]);
            let outcome = |(i, &reward)| Rewarded { reward, tokens: tokens(i), in_loss: true };
            rewards.iter().enumerate().map(outcome).collect()
        };
        self.rewards.iter().enumerate().map(outcomes).collect()
    }
}

#[derive(Deserialize)]
struct LossCase {
    name: String,
    dtype: String,
    /// What differs from `[dapo]` of base.toml.
    dapo: Map<String, Value>,
    max_response_tokens: u64,
    /// Added to the denominator of a mean over a response's tokens by the reference.
    #[serde(default)]
    token_mean_epsilon: f64,
    /// Where the reference rounds otherwise by more than the precision of f64.
    tolerance: Option<f64>,
    log_probs: Vec<Vec<f64>>,
    old_log_probs: Vec<Vec<f64>>,
    sampler_log_probs: Option<Vec<Vec<f64>>>,
    entropies: Option<Vec<Vec<f64>>>,
    advantages: Vec<f64>,
    mask: Vec<Vec<i64>>,
    loss: f64,
    gradient: Vec<Vec<f64>>,
}

fn golden(kind: &str) -> Golden {
    golden_data::read(&golden_data::folder("methods").join(format!("{kind}.json")))
}

/// `[dapo]` of base.toml with some keys replaced.
fn settings(patch: &Map<String, Value>) -> Dapo {
    patched(repository::experiment("base.toml", "").dapo, patch)
}

fn patched(dapo: Dapo, patch: &Map<String, Value>) -> Dapo {
    let mut value = serde_json::to_value(dapo).unwrap();
    for (key, patched) in patch {
        value[key] = patched.clone();
    }
    serde_json::from_value(value).unwrap()
}

fn computed(case: &LossCase, dapo: &Dapo) -> (f64, Vec<f64>) {
    drawn(case, dapo, None)
}

/// With this number as each draw; without one the case must not depend on a draw.
fn drawn(case: &LossCase, dapo: &Dapo, uniform: Option<f64>) -> (f64, Vec<f64>) {
    let kind = if case.dtype == "float32" { Kind::Float } else { Kind::Double };
    let shape = [case.log_probs.len() as i64, case.log_probs[0].len() as i64];
    let tensor =
        |rows: &[Vec<f64>]| Tensor::from_slice(&rows.concat()).reshape(shape).to_kind(kind);
    let row = |(group, mask): (usize, &Vec<i64>)| {
        let tokens = mask.iter().sum::<i64>() as u64;
        aggregation::ResponseRow { tokens, group, micro_batch: 0 }
    };
    let rows: Vec<aggregation::ResponseRow> = case.mask.iter().enumerate().map(row).collect();
    let step = StepTotals {
        tokens: rows.iter().map(|row| row.tokens).sum(),
        mini_batches: 1,
        max_response_tokens: case.max_response_tokens,
    };
    let mut weights = dapo.rules().row_weights(&rows, dapo, step);
    for (weight, row) in weights.iter_mut().zip(&rows) {
        let tokens = row.tokens as f64;
        *weight *= if tokens > 0.0 { tokens / (tokens + case.token_mean_epsilon) } else { 1.0 };
    }
    let marks = dapo.rules().looks_ahead().then(|| tensor(&marks(case, dapo, uniform)));
    let sampler = case.sampler_log_probs.as_deref().map(tensor);
    let log_probs = tensor(&case.log_probs).set_requires_grad(true);
    let tokens = Tokens {
        log_probs: &log_probs,
        old_log_probs: &tensor(&case.old_log_probs),
        ref_log_probs: None,
        sampler_log_probs: sampler.as_ref(),
        marks: marks.as_ref(),
        advantages: &Tensor::from_slice(&case.advantages).unsqueeze(-1).to_kind(kind),
        response_mask: &Tensor::from_slice(&case.mask.concat()).reshape(shape),
        row_weights: &Tensor::from_slice(&weights),
        response_lengths: &vec![shape[1] as usize; shape[0] as usize],
        numerics: Numerics::Fast,
    };
    let loss = objective(&tokens, dapo).loss;
    let gradient = Tensor::run_backward(&[&loss], &[&log_probs], false, false);
    let gradient = gradient[0].to_kind(Kind::Double).contiguous().view(-1);
    (loss.double_value(&[]), Vec::try_from(gradient).unwrap())
}

/// What the method says of each token when the case is a mini-batch.
fn marks(case: &LossCase, dapo: &Dapo, uniform: Option<f64>) -> Vec<Vec<f64>> {
    let length = |row: usize| case.mask[row].iter().sum::<i64>() as usize;
    let cut = |values: &[Vec<f64>]| -> Vec<Vec<f64>> {
        values.iter().enumerate().map(|(row, values)| values[..length(row)].to_vec()).collect()
    };
    let (log_probs, old) = (cut(&case.log_probs), cut(&case.old_log_probs));
    let entropies = case.entropies.as_deref().map_or_else(|| log_probs.clone(), cut);
    let seen = |row: usize| SeenResponse {
        log_probs: &log_probs[row],
        old_log_probs: &old[row],
        entropy: &entropies[row],
        advantage: case.advantages[row],
        in_loss: true,
    };
    let seen: Vec<SeenResponse> = (0..case.mask.len()).map(seen).collect();
    let mut draw = || uniform.unwrap_or_else(|| panic!("{} depends on a draw", case.name));
    let mut marks = dapo.rules().marks(&seen, dapo, &mut draw);
    marks.iter_mut().for_each(|row| row.resize(case.log_probs[0].len(), 0.0));
    marks
}

fn close(ours: f64, theirs: f64, tolerance: f64) -> bool {
    (ours - theirs).abs() <= tolerance * theirs.abs().max(1.0)
}

#[test]
fn every_method_has_the_losses_and_gradients_of_its_released_code() {
    for name in stems("golden/methods", ".json") {
        for case in golden(&name).losses {
            let exact = case.tolerance.unwrap_or(1e-12);
            let tolerance = if case.dtype == "float32" { 1e-6 } else { exact };
            let (loss, gradient) = computed(&case, &settings(&case.dapo));
            let name = format!("{name}, {}, {}", case.name, case.dtype);
            assert!(close(loss, case.loss, tolerance), "{name}: {loss} is not {}", case.loss);
            for (ours, theirs) in gradient.iter().zip(case.gradient.concat()) {
                assert!(close(*ours, theirs, tolerance), "{name}: {ours} is not {theirs}");
            }
        }
    }
}

#[test]
fn every_method_has_the_advantages_of_its_released_code() {
    for name in stems("golden/methods", ".json") {
        for case in golden(&name).advantages.iter().filter(|case| case.group_of_one.is_none()) {
            let dapo = patched(arm(&name).dapo, &case.dapo);
            let rewarded = case.rewarded().concat();
            let ours = dapo.rules().advantages(&case.rewarded(), &dapo).concat();
            let expected = case.expected.concat();
            let tolerance = case.tolerance.unwrap_or(1e-12);
            for ((ours, theirs), outcome) in ours.iter().zip(expected).zip(rewarded) {
                // Nothing reads the advantage of a response without tokens.
                let same = outcome.tokens == 0 || close(*ours, theirs, tolerance);
                assert!(same, "{name}, {:?}: {ours} is not {theirs}", case.rewards);
            }
        }
    }
}

/// Without the method the same arm gives other numbers on its own vectors.
#[test]
fn a_method_that_is_switched_off_misses_its_golden_vectors() {
    let names = stems("golden/methods", ".json");
    assert_eq!(arms_of_a_kind(), Vec::from_iter(names.clone()));
    for name in names {
        let golden = golden(&name);
        let off = |patch: &Map<String, Value>| Dapo { method: None, ..settings(patch) };
        let loss = |case: &LossCase| !close(computed(case, &off(&case.dapo)).0, case.loss, 1e-3);
        let advantages = |case: &AdvantageCase| {
            let dapo = off(&case.dapo);
            let ours = dapo.rules().advantages(&case.rewarded(), &dapo).concat();
            ours.iter().zip(case.expected.concat()).any(|(ours, it)| !close(*ours, it, 1e-3))
        };
        let differs = golden.losses.iter().any(loss) || golden.advantages.iter().any(advantages);
        assert!(differs, "{name}");
    }
}

/// A method without losses of its own is asked with GSPO's vectors.
#[test]
fn a_method_reads_a_key_unless_it_says_that_it_does_not() {
    let of = |reward| Rewarded { reward, tokens: 3, in_loss: true };
    let groups = [[1.0, -1.0, -1.0, 0.5], [1.0, 1.0, 1.0, -1.0]].map(|it| it.map(of).to_vec());
    for name in arms_of_a_kind() {
        let arm = arm(&name).dapo;
        let own = golden(&name).losses;
        let cases = if own.is_empty() { golden("gspo").losses } else { own };
        for (key, table, value) in [
            ("dapo.clip", "clip", json!({ "low": 0.01, "high": 0.02 })),
            ("dapo.dual_clip", "dual_clip", json!({ "kind": "constant", "c": 0.5 })),
            (
                "dapo.log_ratio_clamp",
                "log_ratio_clamp",
                json!({ "kind": "symmetric", "bound": 1e-5 }),
            ),
            ("dapo.token_mean_unit", "token_mean_unit", json!("group")),
            (
                "dapo.advantage.std",
                "advantage",
                json!({ "std": "population", "epsilon": arm.advantage.epsilon }),
            ),
            ("dapo.advantage.epsilon", "advantage", json!({ "std": "sample", "epsilon": 0.5 })),
        ] {
            let patch = Map::from_iter([(table.to_string(), value)]);
            let advantages = |dapo: &Dapo| dapo.rules().advantages(&groups, dapo);
            let is_read = advantages(&arm) != advantages(&patched(arm.clone(), &patch))
                || cases.iter().any(|case| {
                    let (method, aggregation) = (arm.method, arm.aggregation);
                    let dapo = Dapo { method, aggregation, ..settings(&case.dapo) };
                    drawn(case, &dapo, Some(0.5))
                        != drawn(case, &patched(dapo.clone(), &patch), Some(0.5))
                });
            let is_unread = arm.unread().iter().any(|unread| key.starts_with(unread));
            assert_eq!(is_read, !is_unread, "{name}, {key}");
        }
    }
}

#[test]
fn every_method_has_an_arm_that_can_run_and_facts_about_its_keys() {
    let documented = files::read_text(&root().join("docs/methods.md")).unwrap();
    let (mut stated, mut kinds_of_arms) = (BTreeSet::new(), BTreeSet::new());
    for name in arms() {
        let experiment = arm(&name);
        assert_eq!(validate::problems(&experiment), Vec::<String>::new(), "{name}");
        assert_eq!(experiment.name, name);
        let flat = compare::flat(&experiment);
        kinds_of_arms
            .extend(flat.get("dapo.method.kind").and_then(Value::as_str).map(str::to_string));
        for path in flat.keys().filter(|path| path.starts_with("dapo.method.")) {
            assert!(sources::of(path).is_some(), "{path} has no facts");
            stated.insert(path.clone());
        }
        let about = experiment.dapo.rules().about();
        assert!(documented.contains(&format!("| {} |", about.name)), "{name} is not in the table");
        let published = about.source.starts_with("arXiv") || about.source.starts_with("https://");
        assert!(!about.name.is_empty() && published, "{about:?}");
    }
    let kinds: BTreeSet<String> = KINDS.iter().map(ToString::to_string).collect();
    assert!(kinds.len() >= 2 && kinds == kinds_of_arms, "{kinds_of_arms:?}");
    for key in sources::all().filter(|key| key.path.starts_with("dapo.method.")) {
        let is_stated = key.path.ends_with("kind") || stated.contains(&key.path);
        assert!(is_stated, "{} is a key of no method's arm", key.path);
    }
    let names: Vec<&&str> = MEASURES.iter().copied().flatten().collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
}

#[test]
fn the_grids_have_every_method_as_its_arm_states_it() {
    let grid = |name: &str| {
        grid::file::load(&root().join(format!("experiments/grids/{name}.toml"))).unwrap().grid
    };
    let (methods, mismatch) = (grid("methods"), grid("mismatch"));
    for name in arms() {
        let stated = methods.arm(&name).unwrap_or_else(|| panic!("{name} is in no grid"));
        let (own, arm) = (&stated.experiment, arm(&name));
        let parts = (&own.dapo, &own.rollout, &own.training);
        assert_eq!(parts, (&arm.dapo, &arm.rollout, &arm.training), "{name}");
    }
    for shared in ["grpo", "tis", "mis"] {
        let identity = |grid: &Grid| grid.arm(shared).unwrap().arm_sha256.clone();
        assert_eq!(identity(&methods), identity(&mismatch), "{shared}");
    }
}

/// The method's arm in a few short steps.
fn short(name: &str, micro_batch_rollouts: u64) -> Experiment {
    let mut experiment = repository::experiment(
        "smoke.toml",
        &(few_problems()
            + "rollout.max_response_tokens=64 rollout.prompts_per_round=4 training.rollout_steps=2 \
               training.prompts_per_step=4 training.mini_batch_rollouts=8 checkpoints.keep_last=2 \
               evaluation.samples.mini-aime=1"),
    );
    let arm = arm(name);
    experiment.dapo = arm.dapo;
    experiment.rollout.sampler_weights = arm.rollout.sampler_weights;
    experiment.execution.micro_batch_rollouts = micro_batch_rollouts;
    experiment
}

/// From the second update on the penalty outweighs every advantage; exact arithmetic makes room for it.
#[test]
fn a_large_penalty_of_kl_cov_trains_alike_in_both_arithmetics() {
    for coefficient in [10.0, 100.0] {
        let [exact, fast] = [Numerics::Exact, Numerics::Fast].map(|numerics| {
            let method = Method::KlCov(KlCov { penalised_share: 0.1, coefficient });
            let mut experiment = Experiment { numerics, ..short("kl-cov", 16) };
            experiment.dapo.method = Some(method);
            experiment.training.rollout_steps = 1;
            let (_scratch, run) = trained(experiment);
            run.metrics().unwrap()[0].metrics["optimizer/gradient_norm_max"]
        });
        assert!((exact / fast - 1.0).abs() < 0.1, "{coefficient}: {exact} is not {fast}");
    }
}

#[test]
fn every_method_is_exact_whatever_the_cut_and_is_verified_by_replay() {
    for name in arms_of_a_kind() {
        let (_whole, whole) = trained(short(&name, 16));
        let (_cut, cut) = trained(short(&name, 3));
        let head = |folder: &RunFolder| folder.ledger().unwrap().pop().unwrap().head;
        assert_eq!(head(&whole), head(&cut), "{name}");

        let replayed = expect(replayed(&whole, 2, 7), VerifyVerdict::Verified);
        assert_eq!(replayed.replay.unwrap().covered, [1, 2], "{name}");

        let metrics = whole.metrics().unwrap();
        let effects = effect_checks::check(&whole.experiment().unwrap(), &metrics);
        let finding = effects.findings.last().unwrap();
        assert_eq!(finding.verdict, Effect::Acted, "{name}: {finding:?}");
        assert_eq!(effects.warnings(), Vec::<String>::new(), "{name}");
    }
}
