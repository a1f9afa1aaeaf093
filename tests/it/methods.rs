//! Every method of the list: its arm, its golden vectors, its bits, its records. A new method needs no
//! change here.

use crate::verify::{made, replayed};
use dapo::algorithm::methods::{FILES, MEASURES};
use dapo::algorithm::objective::objective;
use dapo::algorithm::{Dapo, StepTotals, Tokens, aggregation};
use dapo::base::files;
use dapo::experiment::{Experiment, compare, extends, sources, validate};
use dapo::numerics::Numerics;
use dapo::records::RunFolder;
use dapo::study::effect_checks::{self, EffectVerdict as Effect};
use dapo::verification::verify::VerifyVerdict;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tch::{Kind, Tensor};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `kind` of each method: its file's name as TOML writes it.
fn kinds() -> Vec<String> {
    assert!(FILES.len() >= 2, "{FILES:?}");
    FILES.iter().map(|file| file.replace('_', "-")).collect()
}

fn arm_file(kind: &str) -> PathBuf {
    root().join(format!("experiments/methods/{kind}.toml"))
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
    expected: Vec<Vec<f64>>,
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
    log_probs: Vec<Vec<f64>>,
    old_log_probs: Vec<Vec<f64>>,
    advantages: Vec<f64>,
    mask: Vec<Vec<i64>>,
    loss: f64,
    gradient: Vec<Vec<f64>>,
}

fn golden(kind: &str) -> Golden {
    let path = root().join(format!("golden/methods/{kind}.json"));
    serde_json::from_str(&files::read_text(&path).unwrap())
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `[dapo]` of base.toml with some keys replaced.
fn settings(patch: &Map<String, Value>) -> Dapo {
    let base = extends::load(&root().join("experiments/base.toml")).unwrap().dapo;
    let mut value = serde_json::to_value(base).unwrap();
    for (key, patched) in patch {
        value[key] = patched.clone();
    }
    serde_json::from_value(value).unwrap()
}

/// Loss and gradient of a case.
fn computed(case: &LossCase, dapo: &Dapo) -> (f64, Vec<f64>) {
    let kind = if case.dtype == "float32" { Kind::Float } else { Kind::Double };
    let shape = [case.log_probs.len() as i64, case.log_probs[0].len() as i64];
    let tensor =
        |rows: &[Vec<f64>]| Tensor::from_slice(&rows.concat()).reshape(shape).to_kind(kind);
    let tokens_of = |mask: &Vec<i64>| mask.iter().sum::<i64>() as u64;
    let row =
        |(group, mask)| aggregation::ResponseRow { tokens: tokens_of(mask), group, micro_batch: 0 };
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
    let log_probs = tensor(&case.log_probs).set_requires_grad(true);
    let tokens = Tokens {
        log_probs: &log_probs,
        old_log_probs: &tensor(&case.old_log_probs),
        ref_log_probs: None,
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

fn close(ours: f64, theirs: f64, tolerance: f64) -> bool {
    (ours - theirs).abs() <= tolerance * theirs.abs().max(1.0)
}

#[test]
fn every_method_has_the_losses_and_gradients_of_its_released_code() {
    for kind in kinds() {
        for case in golden(&kind).losses {
            let tolerance = if case.dtype == "float32" { 1e-6 } else { 1e-12 };
            let (loss, gradient) = computed(&case, &settings(&case.dapo));
            let name = format!("{kind}, {}, {}", case.name, case.dtype);
            assert!(close(loss, case.loss, tolerance), "{name}: {loss} is not {}", case.loss);
            for (ours, theirs) in gradient.iter().zip(case.gradient.concat()) {
                assert!(close(*ours, theirs, tolerance), "{name}: {ours} is not {theirs}");
            }
        }
    }
}

#[test]
fn every_method_has_the_advantages_of_its_released_code() {
    for kind in kinds() {
        let dapo = extends::load(&arm_file(&kind)).unwrap().dapo;
        for case in golden(&kind).advantages {
            let ours = dapo.rules().advantages(&case.rewards, &dapo);
            for (ours, theirs) in ours.concat().iter().zip(case.expected.concat()) {
                assert!(close(*ours, theirs, 1e-12), "{kind}: {ours} is not {theirs}");
            }
        }
    }
}

/// Without the method the same arm gives other numbers on its own vectors.
#[test]
fn a_method_that_is_switched_off_misses_its_golden_vectors() {
    for kind in kinds() {
        let golden = golden(&kind);
        let differs = golden.losses.iter().any(|case| {
            let off = Dapo { method: None, ..settings(&case.dapo) };
            !close(computed(case, &off).0, case.loss, 1e-3)
        });
        assert!(differs, "{kind}");
    }
}

#[test]
fn every_method_has_an_arm_that_can_run_and_facts_about_its_keys() {
    let mut stated = BTreeSet::new();
    for kind in kinds() {
        let experiment = extends::load(&arm_file(&kind)).unwrap();
        assert_eq!(validate::problems(&experiment), Vec::<String>::new(), "{kind}");
        let flat = compare::flat(&experiment);
        assert_eq!(flat["dapo.method.kind"], kind.as_str());
        for path in flat.keys().filter(|path| path.starts_with("dapo.method.")) {
            assert!(sources::of(path).is_some(), "{path} has no facts");
            stated.insert(path.clone());
        }
        let about = experiment.dapo.rules().about();
        assert!(!about.name.is_empty() && about.source.contains("arXiv"), "{about:?}");
    }
    for key in sources::all().filter(|key| key.path.starts_with("dapo.method.")) {
        assert!(
            key.path.ends_with("kind") || stated.contains(&key.path),
            "{} is a key of no method's arm",
            key.path
        );
    }
    let names: Vec<&&str> = MEASURES.iter().copied().flatten().collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
}

/// The method's arm in a few short steps.
fn short(kind: &str, change: impl FnOnce(&mut Experiment)) -> Experiment {
    let mut experiment = extends::load(&root().join("experiments/smoke.toml")).unwrap();
    experiment.rollout.max_response_tokens = 64;
    experiment.rollout.prompts_per_round = 4;
    experiment.training.rollout_steps = 2;
    experiment.training.prompts_per_step = 4;
    experiment.training.mini_batch_rollouts = 8;
    experiment.checkpoints.keep_last = 2;
    experiment.evaluation.samples.insert("mini-aime".to_string(), 1);
    experiment.dapo = extends::load(&arm_file(kind)).unwrap().dapo;
    change(&mut experiment);
    experiment
}

#[test]
fn every_method_is_exact_whatever_the_cut_and_is_verified_by_replay() {
    for kind in kinds() {
        let temporary = tempfile::tempdir().unwrap();
        let run = |name: &str, rollouts: u64| {
            let folder = RunFolder::at(temporary.path().join(name));
            made(short(&kind, |it| it.execution.micro_batch_rollouts = rollouts), &folder);
            folder
        };
        let (whole, cut) = (run("whole", 16), run("cut", 3));
        let head = |folder: &RunFolder| folder.ledger().unwrap().pop().unwrap().head;
        assert_eq!(head(&whole), head(&cut), "{kind}");

        let found = replayed(&whole, 2, 7);
        assert_eq!(found.verdict, VerifyVerdict::Verified, "{kind}: {found:#?}");
        assert_eq!(found.replay.unwrap().covered, [1, 2], "{kind}");

        let metrics = whole.metrics().unwrap();
        let effects = effect_checks::check(&whole.experiment().unwrap(), &metrics);
        let finding = effects.findings.last().unwrap();
        assert_eq!(finding.verdict, Effect::Acted, "{kind}: {finding:?}");
        assert_eq!(effects.warnings(), Vec::<String>::new(), "{kind}");
    }
}
