//! `dapo model score`: log-probs of given responses under the training forward.

use crate::algorithm::Row;
use crate::base::{files, workers};
use crate::commands::exit::{Diverged, Invalid, bail_invalid, bail_usage};
use crate::commands::generate::OtherKeys;
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
/// Each input line is `{"prompt_ids": [IDS], "response_ids": [IDS]}` (other keys, as `model generate` writes them, are
/// ignored); each output line has log_probs and entropy, one value for each response token, in nats.
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
struct ScoreLine {
    prompt_ids: Option<Vec<u32>>,
    response_ids: Option<Vec<u32>>,
    #[serde(flatten)]
    others: OtherKeys,
}

struct Sequence {
    prompt_ids: Vec<u32>,
    response_ids: Vec<u32>,
}

/// Errors: a model that cannot be loaded, or lines that it cannot score, by number.
pub fn run(args: &ScoreArgs) -> Result<u8> {
    let temperature = args.temperature;
    if !(temperature > 0.0 && temperature.is_finite()) {
        bail_usage!("--temperature must be greater than 0, got {temperature}");
    }
    bounds::divides(temperature)?;
    workers::set_count(args.threads);
    let model = args.policy.load()?;
    let mut input = Vec::new();
    std::io::stdin().lock().read_to_end(&mut input).context("cannot read standard input")?;
    let lines: Vec<ScoreLine> = files::parse_lines(Path::new("standard input"), &input)?;
    let place = |record: usize| format!("standard input, record {record}");
    let checked = |(line, record): (ScoreLine, usize)| {
        let sequence = line.sequence().with_context(|| place(record))?;
        check(&model, &sequence).with_context(|| place(record))?;
        Ok(sequence)
    };
    let lines = lines.into_iter().zip(1..).map(checked).collect::<Result<Vec<Sequence>>>()?;
    let score = |model: &Qwen2, line: &Sequence| score(model, line, temperature);
    let scores: Vec<(Vec<f32>, Vec<f32>)> = if model.is_native() {
        workers::map(&lines, || model.share(), score)
    } else {
        workers::together(|| lines.iter().map(|line| score(&model, line)).collect())
    };
    for ((log_probs, entropy), record) in scores.iter().zip(1..) {
        let mut sums = log_probs.iter().zip(entropy).map(|(log_prob, entropy)| log_prob + entropy);
        if let Some(token) = sums.position(|sum| !sum.is_finite()) {
            let what = if log_probs[token].is_finite() { "entropy" } else { "log-prob" };
            return Err(Diverged(format!(
                "{}: the {what} of response token {token} (from 0) is not finite at temperature {temperature:?}; the \
                 logits are too large for f32",
                place(record)
            ))
            .into());
        }
    }
    for (log_probs, entropy) in scores {
        output::json_line(&json!({"log_probs": log_probs, "entropy": entropy}));
    }
    Ok(exit::SUCCESS)
}

impl ScoreLine {
    fn sequence(self) -> Result<Sequence> {
        let missing = |key| {
            let near = self.others.near(&[key]);
            Invalid(format!("needs \"{key}\", which is missing or null{near}"))
        };
        let prompt_ids = self.prompt_ids.ok_or_else(|| missing("prompt_ids"))?;
        let response_ids = self.response_ids.ok_or_else(|| missing("response_ids"))?;
        Ok(Sequence { prompt_ids, response_ids })
    }
}

fn check(model: &Qwen2, line: &Sequence) -> Result<()> {
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
fn score(model: &Qwen2, line: &Sequence, temperature: f64) -> (Vec<f32>, Vec<f32>) {
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
