//! `dapo model generate`: sample responses from a checkpoint.

use crate::base::{Purpose, files, rng::Id, rng::stream, visible, workers};
use crate::commands::exit::{bail_invalid, bail_usage};
use crate::commands::{PolicyArgs, Progress, PromptArgs, bounds, exit, output};
use crate::experiment::{PromptSettings, PromptTemplate, diagnose};
use crate::policy::sampling::generate;
use crate::policy::{Limits, Request};
use crate::task::{ResponseText, RowKeys, Tokenizer, data::problem_file, prompt, response_text};
use anyhow::Result;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Sample responses for prompts, with per-token log-probs.
///
/// Each line of the prompts file is `{"prompt": TEXT}` or `{"prompt_ids": [IDS]}` (other keys are ignored); with --problems the
/// prompts are the questions of a file. Each line of the output has prompt (line index), sample, prompt_ids, response_ids, text, finish
/// ("stop", "stop-string" or "length") and log_probs (nats, at the sampling temperature, before top-p).
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/generate.txt"))]
pub struct GenerateArgs {
    #[command(flatten)]
    policy: PolicyArgs,
    /// Prompts, one JSON object a line.
    #[arg(long, required_unless_present = "problems")]
    prompts: Option<PathBuf>,
    /// Problems (.jsonl or .parquet) instead of prompts, each in --template.
    #[arg(long, conflicts_with = "prompts")]
    problems: Option<PathBuf>,
    #[command(flatten)]
    keys: RowKeys,
    /// Text around the question of a problem.
    #[arg(long, value_enum, conflicts_with = "prompts", default_value_t = PromptTemplate::Question)]
    template: PromptTemplate,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Responses for each prompt.
    #[arg(short = 'n', long = "samples", default_value_t = 1, value_parser = bounds::count())]
    samples: u64,
    /// Divides the logits; 0 is greedy.
    #[arg(long, default_value_t = 1.0)]
    temperature: f64,
    /// Keeps the most probable tokens of this mass.
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// Keeps this many most probable tokens; 0 keeps all.
    #[arg(long, default_value_t = 0)]
    top_k: i64,
    /// Longest response in tokens.
    #[arg(long, default_value_t = 160)]
    max_tokens: u32,
    /// The same seed gives the same responses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Responses generated at the same time.
    #[arg(long, default_value_t = 256, value_parser = bounds::count())]
    batch: u64,
    /// Threads, each with a part of the responses. Any number gives the same bits, except where LibTorch
    /// computes.
    #[arg(long, default_value_t = 1, value_parser = bounds::threads())]
    threads: u64,
}

#[derive(Debug, Deserialize)]
struct GenerateLine {
    prompt: Option<String>,
    prompt_ids: Option<Vec<u32>>,
    #[serde(flatten)]
    others: OtherKeys,
}

#[derive(Debug, Deserialize)]
pub struct OtherKeys(BTreeMap<String, IgnoredAny>);

impl OtherKeys {
    pub fn near(&self, keys: &[&str]) -> String {
        let others: Vec<String> = self.0.keys().cloned().collect();
        let near = keys.iter().find_map(|key| Some((key, diagnose::nearest(key, &others)?)));
        near.map_or_else(String::new, |(key, other)| {
            format!("; it has \"{other}\": did you mean \"{key}\"?")
        })
    }
}

/// Errors: a model or prompts that cannot be used, or sampling settings out of range.
pub fn run(args: &GenerateArgs) -> Result<u8> {
    if let (Some(flag), None) = (args.keys.given(), &args.problems) {
        bail_usage!("{flag} names a key of problems: it needs --problems");
    }
    let sampling = bounds::sampling(args.temperature, args.top_p, args.top_k)?;
    workers::set_count(args.threads);
    let (model, tokenizer) = args.policy.load_both()?;
    if args.prompt.is_around() && args.problems.is_none() {
        bail_usage!(
            "--system, --example, --response-prefix and --chat-template-kwargs stand around a question: they need \
             --problems"
        );
    }
    let settings = args.prompt.settings(args.template)?;
    response_text::check_stop("--stop", &tokenizer, &args.prompt.stop)?;
    let prompts = prompts(args, &settings, &tokenizer)?;
    // The model's positions limit longer responses below.
    let longest = u64::from(args.max_tokens).min(model.config().max_position_embeddings as u64);
    bounds::held("-n", args.samples, prompts.len() as u64, longest)?;
    let samples = |prompt| (0..args.samples).map(move |sample| (prompt, sample));
    let keys: Vec<(u64, u64)> = (0..prompts.len() as u64).flat_map(samples).collect();
    let request = |&(prompt, sample): &(u64, u64)| Request {
        prompt: &prompts[prompt as usize],
        stream: stream(args.seed, Purpose::Generate, &[Id::from(prompt), Id::from(sample)]),
    };
    let requests: Vec<Request> = keys.iter().map(request).collect();
    let text =
        ResponseText::new(&tokenizer, settings.response_prefix.as_deref(), &args.prompt.stop);
    let limits = Limits {
        sampling,
        max_response_tokens: args.max_tokens as usize,
        entropy: false,
        stop_tokens: tokenizer.stop_tokens(),
        text: text.stopping(),
        batch_rows: args.batch as usize,
    };
    let mut bar = Progress::new("generate", requests.len() as u64);
    let responses =
        generate::generate(&model, &requests, &limits, |done| bar.set(done as u64, "responses"))?;
    bar.finish();
    for ((&(prompt, sample), request), response) in keys.iter().zip(&requests).zip(&responses) {
        let output = json!({
            "prompt": prompt,
            "sample": sample,
            "prompt_ids": request.prompt,
            "response_ids": response.tokens,
            "text": text.of(&response.tokens),
            "finish": response.finish,
            "log_probs": response.log_probs,
        });
        println!("{}", visible::json(&output.to_string()));
    }
    Ok(exit::SUCCESS)
}

/// The model's positions refuse longer prompts.
const MOST_PROMPT_TOKENS: u64 = 1 << 20;

type Prompts = Vec<Vec<u32>>;

fn prompts(
    args: &GenerateArgs,
    settings: &PromptSettings,
    tokenizer: &Tokenizer,
) -> Result<Prompts> {
    if let Some(path) = &args.problems {
        let file = problem_file::read_with(path, &args.keys)?.consistent(path)?;
        let other = problem_file::other_system(path, file.system.as_deref(), settings)?;
        other.iter().for_each(output::tell);
        let prompt = |problem| prompt::prompt(problem, settings, tokenizer, MOST_PROMPT_TOKENS);
        return file.problems.iter().map(|problem| Ok(prompt(problem)?.tokens)).collect();
    }
    let path = args.prompts.as_deref().expect("clap requires prompts without problems");
    let lines: Vec<GenerateLine> = files::read_data_lines(path)?;
    if lines.is_empty() {
        bail_invalid!("{} holds no prompts", path.display());
    }
    let path = path.display();
    let ids = |(line, number): (GenerateLine, u64)| match (line.prompt, line.prompt_ids) {
        (Some(text), None) => Ok(tokenizer.encode_once_started(&text)?),
        (None, Some(ids)) => Ok(ids),
        (Some(_), Some(_)) => {
            bail_invalid!(
                "{path}: record {number} needs either \"prompt\" or \"prompt_ids\", not both"
            )
        }
        (None, None) => {
            let near = line.others.near(&["prompt", "prompt_ids"]);
            bail_invalid!("{path}: record {number} needs either \"prompt\" or \"prompt_ids\"{near}")
        }
    };
    lines.into_iter().zip(1..).map(ids).collect()
}
