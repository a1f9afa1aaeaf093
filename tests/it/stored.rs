//! Policies whose weights lie as a checkpoint stores them: in bf16, with passes that hold less, or
//! too large for copies. They say what the others say, and train and resume as they do.

use crate::qwen2::{Expected, generated, greedy};
use crate::verify::session;
use crate::{golden_data, train};
use dapo::algorithm::{Kl, KlEstimator};
use dapo::base::files;
use dapo::experiment::{Experiment, Memory, NonFinite, Place, Sampling, WeightKind};
use dapo::numerics::{Numerics, fast};
use dapo::policy::{Limits, Loaded, Policy, Qwen2, Response, checkpoint};
use dapo::records::{Ending, RunFolder};
use dapo::training::run::{self, RunEvent, inputs::Inputs};
use dapo::training::{RunEnded, Unfinished};
use std::path::Path;
use tch::{Kind, Tensor};

/// Passes that hold less: the reason for which a small policy in f32 is stored.
const MEMORY: Memory = Memory { recompute_layers: true, logits_chunk_tokens: 16 };

fn base() -> Qwen2 {
    checkpoint::load_model(&golden_data::folder("mini-aime/base")).unwrap()
}

fn stored(model: Qwen2) -> Qwen2 {
    let model = model.placed(Place { memory: Some(MEMORY), ..Place::default() }).unwrap();
    assert!(!model.is_native());
    model
}

fn bf16(model: Qwen2) -> Qwen2 {
    model.placed(Place { weights: WeightKind::Bf16, ..Place::default() }).unwrap()
}

/// Largest distance of the logits from transformers', of all golden cases, and the largest logit.
fn distance(place: impl Fn(Qwen2) -> Qwen2) -> (f64, f64) {
    let (mut distance, mut size) = (0f64, 0f64);
    for case in golden_data::cases("qwen2") {
        let model = place(checkpoint::load_model(&case).unwrap());
        for expected in golden_data::read::<Expected>(&case.join("expected.json")).logits {
            let tokens = Tensor::from_slice(&expected.input_ids).unsqueeze(0);
            let logits = fast::without_graph(|| model.logits(&model.forward(&tokens)));
            let ours = Vec::<f64>::try_from(logits.to_kind(Kind::Double).flatten(0, -1)).unwrap();
            for (ours, theirs) in ours.iter().zip(expected.logits.concat()) {
                distance = distance.max((ours - theirs).abs());
                size = size.max(theirs.abs());
            }
        }
    }
    (distance, size)
}

#[test]
fn logits_agree_with_transformers_in_f32_and_to_the_rounding_of_bf16() {
    let (in_f32, size) = distance(stored);
    assert!(in_f32 <= 1e-5, "{in_f32}");
    let (in_bf16, _) = distance(bf16);
    // Eight bits of a number, and a few roundings in a row.
    assert!(in_bf16 > in_f32 && in_bf16 < size * 0.05, "{in_bf16} of {size}");
}

fn prompts() -> Vec<Vec<u32>> {
    (0..30u32).map(|row| (0..1 + row % 7).map(|at| 3 + (row * 5 + at * 3) % 20).collect()).collect()
}

fn responses(model: &Qwen2, sampling: Sampling, batch_rows: usize) -> Vec<Response> {
    let limits = Limits { sampling, entropy: true, ..greedy(45, &[1, 2, 9], batch_rows) };
    generated(model, prompts().iter().map(Vec::as_slice), &limits)
}

#[test]
fn blocks_of_tokens_are_what_token_by_token_is_whoever_joins_when() {
    for (temperature, top_p) in [(1.0, 1.0), (1.0, 0.7), (0.0, 1.0)] {
        let sampling = Sampling { temperature, top_p, top_k: 0, log_probs: None };
        let token_by_token = responses(&base(), sampling, 30);
        let lengths = token_by_token.iter().map(|response| response.tokens.len());
        assert!(lengths.clone().min() < lengths.max(), "rows leave at different times");
        let model = stored(base());
        for batch_rows in [1, 4, 9, 30] {
            let blocks = responses(&model, sampling, batch_rows);
            for (ours, theirs) in blocks.iter().zip(&token_by_token) {
                assert_eq!((&ours.tokens, ours.finish), (&theirs.tokens, theirs.finish));
                for (ours, theirs) in ours.log_probs.iter().zip(&theirs.log_probs) {
                    assert!((ours - theirs).abs() < 1e-4, "{ours} {theirs}");
                }
            }
        }
    }
}

#[test]
fn weights_in_bf16_are_trained_in_f32() {
    let policy = Policy::new(bf16(base()), &smoke(|_| ()).experiment.optimizer);
    for (name, weight) in policy.weights() {
        assert_eq!(weight.kind(), Kind::Float, "{name}");
        assert_eq!(policy.model().parameters()[name].kind(), Kind::BFloat16, "{name}");
    }
}

/// The smoke experiment under fast arithmetic, changed.
fn smoke(change: impl FnOnce(&mut Experiment)) -> Inputs {
    train::smoke(|experiment| {
        experiment.numerics = Numerics::Fast;
        change(experiment);
    })
}

/// Trains in `folder`, stopping once after `stop_after` rollout steps, and goes on.
fn train(inputs: &Inputs, folder: &Path, stop_after: Option<u64>) -> RunFolder {
    let folder = RunFolder::at(folder);
    if let Some(steps) = stop_after {
        let ended = session(inputs, &folder, Unfinished::Refuse, steps).unwrap();
        assert_eq!(ended, RunEnded::Stopped(steps));
    }
    let ended = session(inputs, &folder, Unfinished::Resume, u64::MAX).unwrap();
    assert_ended(ended, Ending::Finished);
    folder
}

fn assert_ended(ended: RunEnded, ending: Ending) {
    let RunEnded::Finished(outcome) = ended else { panic!("it was not asked to stop") };
    assert_eq!(outcome.ending, ending, "{}", outcome.reason);
}

#[test]
fn a_run_in_bf16_resumes_to_the_same_ledger_and_its_checkpoint_is_f32() {
    let inputs = smoke(|experiment| {
        experiment.execution.weights = Some(WeightKind::Bf16);
        experiment.execution.memory = Some(MEMORY);
        experiment.execution.pass_tokens = Some(400);
    });
    let scratch = tempfile::tempdir().unwrap();
    let whole = train(&inputs, &scratch.path().join("whole"), None);
    let resumed = train(&inputs, &scratch.path().join("resumed"), Some(1));
    let head = |folder: &RunFolder| folder.ledger().unwrap().pop().unwrap().head;
    assert_eq!(head(&whole), head(&resumed));
    let Loaded { model, optimizer, .. } = checkpoint::load(&whole.checkpoint(2)).unwrap();
    assert_eq!((model.kind(), optimizer.updates), (Kind::Float, 4));
    // Updates are far smaller than the distance of two neighbours in bf16: kept in it, most of
    // them would be lost.
    let narrow = |tensor: &Tensor| tensor.to_kind(Kind::BFloat16).to_kind(Kind::Float);
    let rounded = |tensor: &&Tensor| !tensor.equal(&narrow(tensor));
    assert!(model.parameters().values().filter(rounded).count() > model.parameters().len() / 2);
    let mismatch = whole.metrics().unwrap()[0].metrics["policy/mismatch_mean"];
    assert!(mismatch < 0.05, "sampler and trainer differ by {mismatch}");
}

#[test]
fn a_run_that_goes_on_elsewhere_warns_where_its_bits_may_change() {
    let scratch = tempfile::tempdir().unwrap();
    for (name, memory, warnings) in [("exact-f32", None, 0), ("exact-here", Some(MEMORY), 1)] {
        let inputs = smoke(|experiment| experiment.execution.memory = memory);
        assert_eq!(inputs.manifest.exactness, name);
        let folder = RunFolder::at(scratch.path().join(name));
        session(&inputs, &folder, Unfinished::Refuse, 1).unwrap();
        let mut first = folder.environment().unwrap();
        first.facts.insert("cpu".to_string(), "another".to_string());
        files::write_json(&folder.path("environment.json"), &first).unwrap();
        let mut heard = Vec::new();
        let watch = &mut |event: RunEvent| {
            if let RunEvent::Warning(text) = event {
                heard.push(text.to_string());
            }
        };
        run::run(&inputs, &folder, Unfinished::Resume, &|| false, watch).unwrap();
        assert_eq!(heard.len(), warnings, "{heard:?}");
        assert!(heard.iter().all(|text| text.contains("cpu was another")), "{heard:?}");
    }
}

#[test]
fn passes_that_hold_less_make_the_updates_of_the_plain_ones() {
    let scratch = tempfile::tempdir().unwrap();
    let [plain, stored] = [("plain", None), ("stored", Some(MEMORY))].map(|(name, memory)| {
        let inputs = smoke(|experiment| experiment.execution.memory = memory);
        let folder = train(&inputs, &scratch.path().join(name), None);
        folder.metrics().unwrap()[0].metrics["optimizer/gradient_norm_mean"]
    });
    assert!((plain - stored).abs() < 1e-3 * plain, "{plain} {stored}");
}

#[test]
fn updates_that_are_not_finite_are_left_out_and_counted_where_the_experiment_says_so() {
    let exploding = |non_finite| {
        smoke(|experiment| {
            // Infinite in LibTorch's f32: its product with a divergence of 0 is no number.
            experiment.execution.memory = Some(MEMORY);
            let coefficient = 1e308;
            experiment.dapo.kl = Kl::Penalty { estimator: KlEstimator::K3, coefficient };
            experiment.optimizer.non_finite = non_finite;
        })
    };
    let scratch = tempfile::tempdir().unwrap();
    let folder = train(&exploding(Some(NonFinite::Skip)), &scratch.path().join("skip"), None);
    for line in folder.metrics().unwrap() {
        assert_eq!(line.metrics["optimizer/skipped_updates"], 2.0);
    }
    let loaded = checkpoint::load(&folder.checkpoint(2)).unwrap();
    assert_eq!((loaded.optimizer.updates, loaded.progress.counters.updates), (0, 4));
    assert_eq!(checkpoint::values(&loaded.model), checkpoint::values(&base()));
    for (name, non_finite) in [("absent", None), ("stop", Some(NonFinite::Stop))] {
        let folder = RunFolder::at(scratch.path().join(name));
        let refuse = Unfinished::Refuse;
        let ended = session(&exploding(non_finite), &folder, refuse, u64::MAX).unwrap();
        assert_ended(ended, Ending::Diverged);
        assert!(folder.path("diverged/rollouts.parquet").exists());
    }
}

#[test]
fn a_card_that_is_not_there_is_refused_with_what_to_do() {
    if tch::Cuda::is_available() {
        eprintln!("skipped: this machine has a CUDA device");
        return;
    }
    let device = "cuda:1".parse().unwrap();
    let error = base().placed(Place { device, ..Place::default() }).unwrap_err().to_string();
    let help = if tch::utils::has_cudart() { "nvidia-smi" } else { "LD_LIBRARY_PATH" };
    assert!(error.contains("cuda:1") && error.contains(help), "{error}");
}
