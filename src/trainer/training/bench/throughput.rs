//! Speed of a checkpoint's policy in generation and training, of any size and on any device, beside memory bandwidth.

use crate::algorithm::{Kl, Row, StepTotals};
use crate::base::{Purpose, rng::Id, rng::stream, workers};
use crate::experiment::{Experiment, Sampling};
use crate::policy::sampling::generate;
use crate::policy::{Config, Limits, Policy, Qwen2, Request, batch::Cut, frozen};
use crate::training::{TrainingError, UpdateError, machine, update};
use clap::builder::RangedU64ValueParser;
use serde::Serialize;
use std::time::Instant;
use tch::{Device, Kind, Tensor};

const MOST_ROWS: u64 = 1 << 16;

#[derive(Debug, Clone, clap::Args)]
pub struct ThroughputWorkload {
    /// Rows that generate at the same time, one measurement each.
    #[arg(long = "batch", value_delimiter = ',', default_value = "1,8,32", value_parser = within(1, MOST_ROWS))]
    pub batches: Vec<usize>,
    /// Tokens of every prompt.
    #[arg(long, default_value_t = 64, value_parser = within(1, 1_000_000))]
    pub prompt_tokens: usize,
    /// Tokens of every response.
    #[arg(long, default_value_t = 64, value_parser = within(2, 1_000_000))]
    pub new_tokens: usize,
    /// Repetitions. The fastest counts.
    #[arg(long, default_value_t = 3, value_parser = within(1, 1000))]
    pub repetitions: usize,
    /// Rows of an update; 0 measures no update.
    #[arg(long, default_value_t = 0, value_parser = within(0, MOST_ROWS))]
    pub train_rows: usize,
    /// Tokens of one forward and backward pass.
    #[arg(long, default_value_t = 16384, requires = "train_rows", value_parser = within(1, 1 << 24))]
    pub pass_tokens: usize,
}

fn within(least: u64, most: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least..=most)
}

#[derive(Debug, Clone, Serialize)]
pub struct Throughput {
    /// `cpu` or `cuda:0`.
    pub device: String,
    /// `f32` or `bf16`.
    pub weights: String,
    pub parameters: u64,
    /// Bytes a second of a matrix-vector product.
    pub bandwidth: f64,
    pub generation: Vec<ThroughputGeneration>,
    pub training: Option<ThroughputTraining>,
    /// Resident memory of the process, not of a card.
    pub peak_memory_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct ThroughputGeneration {
    pub batch: usize,
    pub first_token_seconds: f64,
    /// All rows together, after the first token; `None` if it took no measurable time.
    pub tokens_per_second: Option<f64>,
    /// Tokens a second if a step only read weights, keys and values once.
    pub bandwidth_limit: f64,
}

/// Forward and backward pass, gradient norm, AdamW.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ThroughputTraining {
    pub rows: usize,
    /// Prompts included.
    pub tokens: usize,
    pub tokens_per_second: f64,
    /// A second: six for each parameter and token, eight where the method chooses tokens first, and attention's.
    pub flops: f64,
    /// As for π_old.
    pub forward_tokens_per_second: f64,
}

/// With an experiment an update is measured too, with its objective and optimiser.
pub fn measure(
    model: Qwen2,
    workload: &ThroughputWorkload,
    experiment: Option<&Experiment>,
    progress: &mut dyn FnMut(&str),
) -> Result<Throughput, TrainingError> {
    let (parameters, place) = (model.config().parameters(), model.device());
    let mut generation = Vec::new();
    for &batch in &workload.batches {
        progress(&format!("generating {batch} rows"));
        generation.push(generate(&model, workload, batch)?);
    }
    let device = match place {
        Device::Cuda(card) => format!("cuda:{card}"),
        device => format!("{device:?}").to_lowercase(),
    };
    let weights = if model.kind() == Kind::BFloat16 { "bf16" } else { "f32" }.to_string();
    let mut training = None;
    if let Some(experiment) = experiment {
        progress(&format!("an update of {} rows", workload.train_rows));
        training = Some(update(model, workload, experiment)?);
    }
    let peak_memory_bytes = machine::process_bytes("VmHWM");
    // Behind the peak, which its matrix would be.
    let bandwidth = workers::together(|| bandwidth(place));
    let with_limit = |(timed, step_bytes): (ThroughputGeneration, f64)| ThroughputGeneration {
        bandwidth_limit: timed.batch as f64 * bandwidth / step_bytes,
        ..timed
    };
    let generation = generation.into_iter().map(with_limit).collect();
    Ok(Throughput {
        device,
        weights,
        parameters,
        bandwidth,
        generation,
        training,
        peak_memory_bytes,
    })
}

/// Bytes a second of a product of 1 GiB with a vector, which reads like a decode step; a sum reads more slowly.
fn bandwidth(device: Device) -> f64 {
    const WIDTH: i64 = 1 << 14;
    let vector = Tensor::ones([WIDTH], (Kind::Float, device));
    let matrix = Tensor::ones([WIDTH, WIDTH], (Kind::Float, device));
    // Reading a number waits for the device.
    let pass = || _ = matrix.mv(&vector).double_value(&[0]);
    4.0 * (WIDTH * WIDTH) as f64 / fastest(9, pass)
}

/// Seconds of the fastest of so many calls, after one that is not timed.
pub fn fastest(times: usize, work: impl Fn()) -> f64 {
    work();
    let timed = |_| {
        let started = Instant::now();
        work();
        started.elapsed().as_secs_f64()
    };
    (0..times).map(timed).fold(f64::INFINITY, f64::min)
}

fn prompts(config: &Config, rows: usize, tokens: usize) -> Vec<Vec<u32>> {
    let row = |row: usize| {
        let mut draws = stream(1, Purpose::Generate, &[Id::from(row as u64)]);
        let token = |_| (draws.uniform() * config.vocab_size as f64) as u32;
        (0..tokens).map(token).collect()
    };
    (0..rows).map(row).collect()
}

fn generate(
    model: &Qwen2,
    workload: &ThroughputWorkload,
    batch: usize,
) -> Result<(ThroughputGeneration, f64), TrainingError> {
    let prompts = prompts(model.config(), batch, workload.prompt_tokens);
    let request =
        |(prompt, row)| Request { prompt, stream: stream(2, Purpose::Generate, &[Id::from(row)]) };
    let requests: Vec<Request> =
        prompts.iter().map(Vec::as_slice).zip(0u64..).map(request).collect();
    let timed = |tokens: usize| -> Result<f64, TrainingError> {
        let limits = Limits {
            sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, log_probs: None },
            max_response_tokens: tokens,
            entropy: false,
            // Without a stop token every row generates as many tokens as allowed.
            stop_tokens: &[],
            text: None,
            batch_rows: batch,
        };
        let started = Instant::now();
        generate::generate(model, &requests, &limits, |_| ())?;
        Ok(started.elapsed().as_secs_f64())
    };
    // The first call allocates buffers and threads.
    timed(1)?;
    let (mut first, mut all) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..workload.repetitions.max(1) {
        first = first.min(timed(1)?);
        all = all.min(timed(workload.new_tokens)?);
    }
    let steps = (workload.new_tokens - 1) as f64;
    let config = model.config();
    let width = model.kind().elt_size_in_bytes() as f64;
    let weights = config.parameters() as f64 * width;
    let token =
        (2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim) as f64;
    let held = workload.prompt_tokens as f64 + 0.5 * workload.new_tokens as f64;
    let step_bytes = weights + batch as f64 * held * token * width;
    let timed = ThroughputGeneration {
        batch,
        first_token_seconds: first,
        tokens_per_second: (all > first).then(|| batch as f64 * steps / (all - first)),
        bandwidth_limit: f64::INFINITY,
    };
    Ok((timed, step_bytes))
}

fn update(
    model: Qwen2,
    workload: &ThroughputWorkload,
    experiment: &Experiment,
) -> Result<ThroughputTraining, TrainingError> {
    let length = workload.prompt_tokens + workload.new_tokens;
    let config = model.config().clone();
    let rows: Vec<Row> = prompts(&config, workload.train_rows, length)
        .into_iter()
        .enumerate()
        .map(|(index, tokens)| Row {
            group: index,
            tokens,
            prompt_tokens: workload.prompt_tokens,
            advantage: if index % 2 == 0 { 1.0 } else { -1.0 },
            in_loss: true,
        })
        .collect();
    let cut = Cut { micro_batch_rollouts: rows.len(), pass_tokens: workload.pass_tokens };
    let settings = update::Settings { dapo: &experiment.dapo, temperature: 1.0, cut };
    let parameters = config.parameters() as f64;
    let mut policy = Policy::new(model, &experiment.optimizer);
    let tokens = rows.len() * length;
    let (mut forward, mut whole) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..workload.repetitions.max(1) {
        let [frozen, updated] = time(&mut policy, &rows, &settings, workload.new_tokens as u64)?;
        forward = forward.min(frozen);
        whole = whole.min(updated);
    }
    let each = if experiment.dapo.rules().looks_ahead() { 8.0 } else { 6.0 };
    let attention = each
        * (config.num_hidden_layers * config.num_attention_heads * config.head_dim) as f64
        * length as f64;
    Ok(ThroughputTraining {
        rows: rows.len(),
        tokens,
        tokens_per_second: tokens as f64 / whole,
        flops: (each * parameters + attention) * tokens as f64 / whole,
        forward_tokens_per_second: tokens as f64 / forward,
    })
}

/// Seconds of the pass for π_old, and of an update with learning rate 0, which costs the same and keeps the weights.
fn time(
    policy: &mut Policy,
    rows: &[Row],
    settings: &update::Settings,
    max_response_tokens: u64,
) -> Result<[f64; 2], UpdateError> {
    let started = Instant::now();
    let old = frozen::read(policy.model(), rows, settings.temperature, settings.cut)?;
    let frozen_seconds = started.elapsed().as_secs_f64();
    let members: Vec<usize> = (0..rows.len()).collect();
    let tokens = rows.iter().map(Row::loss_tokens).sum();
    let penalised = settings.dapo.kl != Kl::None {};
    let batch = update::MiniBatch {
        rows,
        members: &members,
        old_log_probs: &old.log_probs,
        ref_log_probs: penalised.then_some(&old.log_probs[..]),
        sampler_log_probs: Some(&old.log_probs),
        choice: &stream(0, Purpose::Plan, &[]),
        totals: StepTotals { tokens, mini_batches: 1, max_response_tokens },
    };
    let started = Instant::now();
    update::update(policy, &batch, settings, 0.0)?;
    Ok([frozen_seconds, started.elapsed().as_secs_f64()])
}
