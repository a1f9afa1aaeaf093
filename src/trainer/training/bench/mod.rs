//! Times a rollout step by phase, beside its floating-point operations at this machine's rate of matrix products.

pub mod throughput;

use crate::algorithm::Kl;
use crate::base::{files, workers};
use crate::experiment::{Experiment, MiniAimeVariant};
use crate::numerics::native::product;
use crate::numerics::{Arithmetic, Left, Numerics, Panels, Windows};
use crate::policy::{Config, Family, Qwen2, checkpoint};
use crate::records::environment;
use crate::task::Solutions;
use crate::task::data::embedded::{characters, mini_aime::MiniAime};
use crate::training::run::{self, inputs, inputs::Inputs};
use crate::training::{StepOutcome, TrainingError, machine, step::Step};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use tch::{Kind, Tensor};

#[derive(Debug, Clone, Serialize)]
pub struct BenchRecord {
    /// See [`environment::describe`].
    pub environment: BTreeMap<String, String>,
    pub workload: BenchWorkload,
    /// Rate of matrix products in the policy's arithmetic (exact: f64, else f32) on 1, 2, …
    /// threads; the faster of LibTorch and the native engine, best of five. Of all threads it is
    /// measured beside each repetition; the median.
    pub gemm_gflops: Vec<f64>,
    pub phases: Vec<BenchPhase>,
    pub peak_memory_bytes: u64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct BenchWorkload {
    pub experiment: String,
    pub parameters: u64,
    pub threads: u64,
    pub repetitions: u64,
    pub rollouts: u64,
    pub prompt_tokens: u64,
    pub response_tokens: u64,
    pub longest_response_tokens: u64,
    pub updates: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct BenchPhase {
    pub name: String,
    /// Wall clock; for an even number the median is the higher middle value.
    pub seconds: BenchSpread,
    /// Share of the median of `rollout_step`.
    pub share: f64,
    /// Produced or read.
    pub tokens: Option<u64>,
    /// Counts matrix products.
    pub flops: Option<f64>,
    /// `flops` at the machine's rate: a lower bound.
    pub limit_seconds: Option<f64>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct BenchSpread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

/// The head's weight for the stop token's constant direction. By trial: 50 tokens a response on average, cut at 160.
const STOP_WEIGHT: f32 = -0.12;

/// A policy of 0.79 M parameters with random weights and the embedded benchmark's tokenizer: hidden 128, 4 layers, 4
/// query and 2 key-value heads, feed-forward 384. Fresh weights would stop with probability 1/26. The first column of
/// the embedding is therefore a constant from which the head takes an offset for the stop token's logit, so that a
/// response ends at each token with a nearly constant probability.
pub fn write_random_policy(folder: &Path, seed: u64) -> Result<(), TrainingError> {
    let alphabet = MiniAime(MiniAimeVariant::Standard).characters();
    let vocabulary = characters::vocabulary_size(&alphabet);
    let config = Config {
        family: Family::Qwen2,
        vocab_size: vocabulary as i64,
        hidden_size: 128,
        intermediate_size: 384,
        num_hidden_layers: 4,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 32,
        max_position_embeddings: 256,
        rope_theta: 10000.0,
        rope_scaling: None,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: false,
    };
    let (eos, pad) = (characters::EOS_TOKEN_ID, characters::PAD_TOKEN_ID);
    characters::write_tokenizer(folder, &alphabet)?;
    files::write_json(&folder.join("config.json"), &config.to_json(eos, pad))?;
    files::write_json(&folder.join("generation_config.json"), &json!({"eos_token_id": eos}))?;
    let width = config.hidden_size as usize;
    let mut values = checkpoint::values(&Qwen2::initialise(config, seed));
    let (_, embedding) = values.get_mut("model.embed_tokens.weight").expect("an embedding");
    embedding.chunks_mut(width).for_each(|row| row[0] = 1.0);
    let (_, head) = values.get_mut("lm_head.weight").expect("an untied head");
    head.chunks_mut(width).for_each(|row| row[0] = 0.0);
    head[eos as usize * width] = STOP_WEIGHT;
    checkpoint::write_tensors(&folder.join("model.safetensors"), &values)?;
    Ok(())
}

/// The first rollout step, `repetitions` times from the same weights, after an untimed repetition.
pub fn measure(
    experiment: Experiment,
    repetitions: u64,
    watch: &mut dyn FnMut(u64),
) -> Result<BenchRecord, TrainingError> {
    let threads = experiment.execution.threads;
    let numerics = experiment.numerics;
    let gflops = |threads| match numerics {
        Numerics::Exact => gemm_gflops::<f64>(threads, Kind::Double),
        Numerics::Fast => gemm_gflops::<f32>(threads, Kind::Float),
    };
    let mut rates: Vec<f64> = (1..threads).map(gflops).collect();
    let mut of_all = vec![gflops(threads)];
    let inputs = inputs::prepare(experiment)?;
    let mut seconds: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    let mut work = None;
    for repetition in 0..=repetitions {
        let (taken, done) = repeat(&inputs)?;
        // Beside each repetition, since the machine's rate changes with what else runs on it.
        of_all.push(gflops(threads));
        if repetition > 0 {
            for (phase, value) in taken {
                seconds.entry(phase).or_default().push(value);
            }
        }
        work = Some(done);
        watch(repetition);
    }
    let (mut workload, flops) = work.expect("at least the warm-up was run");
    workload.repetitions = repetitions;
    let rate = spread(&of_all).median;
    rates.push(rate);
    let phases = phases(&seconds, &workload, &flops, rate * 1e9);
    Ok(BenchRecord {
        environment: environment::describe(threads).facts,
        workload,
        gemm_gflops: rates,
        phases,
        peak_memory_bytes: machine::process_bytes("VmHWM").unwrap_or(0),
    })
}

/// In the order of the table.
pub const PHASES: [(&str, &str); 6] = [
    ("generation", "sampling of all responses, prefill included"),
    ("grading", "verifier, overlong shaping"),
    ("old_log_probs", "the training forward over all responses"),
    ("update", "forward, loss, backward, clipping, AdamW"),
    ("other", "rows, advantages, metrics, decoding of tokens"),
    ("rollout_step", "the five above"),
];

fn phases(
    seconds: &BTreeMap<&'static str, Vec<f64>>,
    workload: &BenchWorkload,
    flops: &BTreeMap<&'static str, f64>,
    rate: f64,
) -> Vec<BenchPhase> {
    let total = spread(&seconds["rollout_step"]).median;
    let has_tokens = |name: &str| !["grading", "other"].contains(&name);
    let phase = |name: &str| {
        let flops = flops.get(name).copied();
        let seconds = spread(&seconds[name]);
        BenchPhase {
            name: name.to_string(),
            seconds,
            share: seconds.median / total,
            tokens: has_tokens(name).then_some(workload.response_tokens),
            flops,
            limit_seconds: flops.map(|flops| flops / rate),
        }
    };
    PHASES.iter().map(|(name, _)| phase(name)).collect()
}

fn spread(values: &[f64]) -> BenchSpread {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    BenchSpread { median: sorted[sorted.len() / 2], least: sorted[0], most: sorted[last] }
}

type BenchDone = (BenchWorkload, BTreeMap<&'static str, f64>);
type Seconds = Vec<(&'static str, f64)>;

fn repeat(inputs: &Inputs) -> Result<(Seconds, BenchDone), TrainingError> {
    let experiment = &inputs.experiment;
    let mut trainer = run::trainer(inputs, None)?;
    let model = trainer.policy().model();
    let (config, is_native) = (model.config().clone(), model.is_native());
    let penalised = experiment.dapo.kl != Kl::None {};
    let fed = Fed {
        reads: f64::from(!trainer.samples_as_trained()) + f64::from(penalised),
        looks: f64::from(experiment.dapo.rules().looks_ahead()),
        epochs: experiment.training.epochs_per_step as f64,
        penalised,
        shares_prompts: is_native && experiment.numerics == Numerics::Fast,
    };
    let started = Instant::now();
    let outcome = trainer.step(&mut |_| ())?;
    let rollout_step = started.elapsed().as_secs_f64();
    let StepOutcome::Trained(step) = outcome else { return Err(TrainingError::Saturated) };

    let named = ["generation", "grading", "old_log_probs", "update"];
    let mut seconds =
        named.map(|name| (name, step.seconds.get(name).copied().unwrap_or(0.0))).to_vec();
    let counted: f64 = seconds.iter().map(|(_, value)| value).sum();
    seconds.extend([("other", rollout_step - counted), ("rollout_step", rollout_step)]);

    let lengths = sequence_lengths(&step);
    let responses = || lengths.iter().flat_map(|group| &group.responses);
    let workload = BenchWorkload {
        experiment: experiment.name.clone(),
        parameters: config.parameters(),
        threads: experiment.execution.threads,
        repetitions: 0,
        rollouts: responses().count() as u64,
        prompt_tokens: lengths.iter().map(|group| group.prompt).sum(),
        response_tokens: responses().sum(),
        longest_response_tokens: responses().copied().max().unwrap_or(0),
        updates: trainer.counters().updates,
    };
    Ok((seconds, (workload, step_flops(&config, &lengths, fed))))
}

struct BenchGroup {
    prompt: u64,
    responses: Vec<u64>,
    /// A response of a trained group has an advantage.
    learns: Option<bool>,
}

fn sequence_lengths(step: &Step) -> Vec<BenchGroup> {
    let length = |tokens: &Vec<u32>| tokens.len() as u64;
    let groups = step.groups.iter().enumerate().map(|(at, group)| {
        let responses = group.rollouts.iter().map(|scored| length(&scored.rollout.tokens));
        let learns = step.trained.get(&at).map(|advantages| advantages.iter().any(|it| *it != 0.0));
        BenchGroup { prompt: length(&group.prompt.tokens), responses: responses.collect(), learns }
    });
    groups.collect()
}

#[derive(Clone, Copy)]
struct Fed {
    /// Passes before the updates, of π_old and π_ref.
    reads: f64,
    /// Passes of each epoch that choose tokens.
    looks: f64,
    epochs: f64,
    penalised: bool,
    /// An update has a group's prompt once, and passes without advantage or penalty only go forward.
    shares_prompts: bool,
}

/// Of matrix products; a multiply-add is two, backward twice forward. Generation has a group's prompt once, no padding.
fn step_flops(config: &Config, lengths: &[BenchGroup], fed: Fed) -> BTreeMap<&'static str, f64> {
    let (mut generation, mut old, mut update) = (0.0, 0.0, 0.0);
    for BenchGroup { prompt, responses, learns } in lengths {
        let mut shared = sequence_flops(config, 0, *prompt, 1);
        let mut forward = 0.0;
        for response in responses {
            // The last token is not fed.
            shared += sequence_flops(config, *prompt, prompt + response - 1, response - 1);
            forward += sequence_flops(config, 0, prompt + response - 1, *response);
        }
        generation += shared;
        if let Some(learns) = learns {
            old += fed.reads * forward;
            let trained = if fed.shares_prompts {
                shared * if *learns || fed.penalised { 3.0 } else { 1.0 }
            } else {
                3.0 * forward
            };
            update += fed.epochs * (fed.looks * forward + trained);
        }
    }
    let training = [("old_log_probs", old), ("update", update)];
    let all = generation + old + update;
    [("generation", generation), ("rollout_step", all)].into_iter().chain(training).collect()
}

/// Of positions `from..to` with logits for `predicted` of them. A position attends to itself and all before it.
fn sequence_flops(config: &Config, from: u64, to: u64, predicted: u64) -> f64 {
    let (hidden, heads) = (config.hidden_size, config.num_attention_heads);
    let queries = heads * config.head_dim;
    let keys = config.num_key_value_heads * config.head_dim;
    let weights =
        hidden * (queries + 2 * keys) + queries * hidden + 3 * hidden * config.intermediate_size;
    let (from, to) = (from as f64, to as f64);
    let attended = (to * (to + 1.0) - from * (from + 1.0)) / 2.0;
    let layer = 2.0 * weights as f64 * (to - from) + 4.0 * queries as f64 * attended;
    let head = 2.0 * (config.vocab_size * hidden) as f64 * predicted as f64;
    config.num_hidden_layers as f64 * layer + head
}

fn gemm_gflops<A: Arithmetic>(threads: u64, kind: Kind) -> f64 {
    const SIZE: usize = 1024;
    tch::set_num_threads(threads as i32);
    let matrix = Tensor::ones([SIZE as i64; 2], (kind, tch::Device::Cpu));
    let libtorch = best_rate(SIZE, || drop(matrix.matmul(&matrix)));
    workers::set_count(threads);
    let (values, any) = (vec![1.0; SIZE * SIZE], Windows::UNUSED.normed);
    let right = Panels::<A>::of_rows(&values, SIZE, any);
    let parts: Vec<&[f32]> = values.chunks(SIZE * SIZE.div_ceil(threads as usize)).collect();
    let part = |_: &(), part: &&[f32]| {
        drop(product::multiply_rounded(Left::Rows(part, any), &right));
    };
    libtorch.max(best_rate(SIZE, || drop(workers::map(&parts, || (), part))))
}

/// Product of square matrices, best of five.
fn best_rate(size: usize, product: impl Fn()) -> f64 {
    2.0 * (size as f64).powi(3) / throughput::fastest(5, product) / 1e9
}

#[cfg(test)]
mod tests;
