//! `dapo model score`: log-probs of given responses under the training forward.

use crate::algorithm::Row;
use crate::base::{files, workers};
use crate::commands::exit::{bail_invalid, bail_usage};
use crate::commands::{PolicyArgs, bounds, exit, output};
use crate::policy::{Qwen2, batch::Pass};
use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::json;
use std::io::Read;
use std::path::Path;
use tch::Kind;

/// Score responses from standard input with the training forward.
///
/// Each input line is `{"prompt_ids": [IDS], "response_ids": [IDS]}`; each output line has
/// log_probs and entropy, one value for each response token, in nats.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/score.txt"))]
pub struct ScoreArgs {
    #[command(flatten)]
    policy: PolicyArgs,
    /// Divides the logits; greater than 0.
    #[arg(long, default_value_t = 1.0)]
    temperature: f64,
    /// Threads. Each takes whole lines, so that their number changes only the time.
    #[arg(long, default_value_t = 1, value_parser = bounds::threads())]
    threads: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScoreLine {
    prompt_ids: Vec<u32>,
    response_ids: Vec<u32>,
}

/// Errors: a model that cannot be loaded, or lines that it cannot score, by number.
pub fn run(args: &ScoreArgs) -> Result<u8> {
    if !(args.temperature > 0.0 && args.temperature.is_finite()) {
        bail_usage!("--temperature must be greater than 0, got {}", args.temperature);
    }
    workers::set_count(args.threads);
    let model = args.policy.load()?;
    let mut input = Vec::new();
    std::io::stdin().lock().read_to_end(&mut input).context("cannot read standard input")?;
    let lines: Vec<ScoreLine> = files::parse_lines(Path::new("standard input"), &input)?;
    for (index, line) in lines.iter().enumerate() {
        check(&model, line).with_context(|| format!("standard input, record {}", index + 1))?;
    }
    let score = |model: &Qwen2, line: &ScoreLine| score(model, line, args.temperature);
    let scores = if model.is_native() {
        workers::map(&lines, || model.share(), score)
    } else {
        workers::together(|| lines.iter().map(|line| score(&model, line)).collect())
    };
    for (log_probs, entropy) in scores {
        output::json_line(&json!({"log_probs": log_probs, "entropy": entropy}));
    }
    Ok(exit::SUCCESS)
}

fn check(model: &Qwen2, line: &ScoreLine) -> Result<()> {
    let config = model.config();
    if line.prompt_ids.is_empty() {
        bail_invalid!("prompt_ids is empty: the first response token follows nothing");
    }
    let length = (line.prompt_ids.len() + line.response_ids.len()) as i64;
    let positions = config.max_position_embeddings;
    if length > positions {
        bail_invalid!("{length} tokens exceed the model's {positions} positions");
    }
    let ids = line.prompt_ids.iter().chain(&line.response_ids);
    if let Some(id) = ids.into_iter().find(|&&id| i64::from(id) >= config.vocab_size) {
        bail_invalid!("token {id} is not in the vocabulary of {}", config.vocab_size);
    }
    Ok(())
}

/// One sequence at a time: numbers do not depend on neighbours.
fn score(model: &Qwen2, line: &ScoreLine, temperature: f64) -> (Vec<f32>, Vec<f32>) {
    if line.response_ids.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let row = Row {
        group: 0,
        tokens: [&line.prompt_ids[..], &line.response_ids[..]].concat(),
        prompt_tokens: line.prompt_ids.len(),
        advantage: 0.0,
        in_loss: true,
    };
    let pass = Pass::new(&[row], &[0], false);
    let [log_probs, entropy] = model.statistics(&pass.sequences, temperature).map(|tensor| {
        Vec::try_from(tensor.to_kind(Kind::Float).flatten(0, -1)).expect("a dense f32 tensor")
    });
    (log_probs, entropy)
}
