//! Batched generation with a KV cache. Finished rows leave the batch; each row's draws come
//! from its own stream, so the batch decides nothing.

use crate::config::Sampling;
use crate::model::qwen2::KvCache;
use crate::model::qwen2::Qwen2;
use crate::records::Finish;
use crate::rng::Stream;
use crate::rollout::sampler;
use tch::Tensor;

/// One response to sample.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Prompt token ids, at least one.
    pub prompt: &'a [u32],
    /// Uniform `t` of this stream draws response token `t`.
    pub stream: Stream,
}

/// How responses are drawn and when they end.
#[derive(Debug, Clone)]
pub struct Limits<'a> {
    /// Temperature, top-p, top-k.
    pub sampling: Sampling,
    /// L_max.
    pub max_response_tokens: usize,
    /// Any of these ends the response and is part of it.
    pub stop_tokens: &'a [u32],
    /// Rows that are generated at the same time.
    pub batch_rows: usize,
}

/// One sampled response.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// Token ids, the stop token included.
    pub tokens: Vec<u32>,
    /// Log-prob of each token (see [`sampler::Draw`]).
    pub log_probs: Vec<f64>,
    /// Why it ended.
    pub finish: Finish,
}

/// A policy that cannot serve a request.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A prompt without tokens has no next-token distribution.
    #[error("prompt {index} has no tokens")]
    EmptyPrompt {
        /// Position of the request.
        index: usize,
    },
    /// Prompt and response do not fit the positions that the model knows.
    #[error(
        "prompt {index} has {prompt_tokens} tokens; with {response_tokens} response tokens that exceeds the model's {positions} positions"
    )]
    TooLong {
        /// Position of the request.
        index: usize,
        /// Its length.
        prompt_tokens: usize,
        /// L_max.
        response_tokens: usize,
        /// `max_position_embeddings`.
        positions: usize,
    },
    /// A token id that the embedding does not have.
    #[error("prompt {index} holds token {token}, the vocabulary has {vocabulary}")]
    Vocabulary {
        /// Position of the request.
        index: usize,
        /// The id.
        token: u32,
        /// Rows of the embedding.
        vocabulary: usize,
    },
}

/// Samples one response for each request, in order. `progress` is called with the number of
/// responses finished so far.
///
/// # Errors
/// A request that the model cannot serve, by its position.
pub fn generate(
    model: &Qwen2,
    requests: &[Request],
    limits: &Limits,
    mut progress: impl FnMut(usize),
) -> Result<Vec<Response>, Error> {
    check(model, requests, limits)?;
    let mut responses = Vec::with_capacity(requests.len());
    for batch in requests.chunks(limits.batch_rows.max(1)) {
        let done = responses.len();
        let mut batch_done = |count| progress(done + count);
        responses.extend(tch::no_grad(|| generate_batch(model, batch, limits, &mut batch_done)));
    }
    Ok(responses)
}

fn check(model: &Qwen2, requests: &[Request], limits: &Limits) -> Result<(), Error> {
    let positions = model.config().max_position_embeddings as usize;
    let vocabulary = model.config().vocab_size as usize;
    for (index, request) in requests.iter().enumerate() {
        let prompt_tokens = request.prompt.len();
        if prompt_tokens == 0 {
            return Err(Error::EmptyPrompt { index });
        }
        let response_tokens = limits.max_response_tokens;
        if prompt_tokens + response_tokens > positions {
            return Err(Error::TooLong { index, prompt_tokens, response_tokens, positions });
        }
        if let Some(&token) = request.prompt.iter().find(|&&id| id as usize >= vocabulary) {
            return Err(Error::Vocabulary { index, token, vocabulary });
        }
    }
    Ok(())
}

/// A row that is still being generated.
struct Row {
    index: usize,
    position: usize,
    stream: Stream,
    finished: bool,
}

fn generate_batch(
    model: &Qwen2,
    requests: &[Request],
    limits: &Limits,
    progress: &mut impl FnMut(usize),
) -> Vec<Response> {
    let empty = || Response { tokens: vec![], log_probs: vec![], finish: Finish::Length };
    let mut responses: Vec<Response> = requests.iter().map(|_| empty()).collect();
    if limits.max_response_tokens == 0 {
        return responses;
    }
    let (mut hidden, mut cache, longest) = prefill(model, requests);
    let mut capacity = longest;
    let mut rows: Vec<Row> = requests
        .iter()
        .enumerate()
        .map(|(index, request)| Row {
            index,
            position: request.prompt.len(),
            stream: request.stream.clone(),
            finished: false,
        })
        .collect();
    loop {
        let next = draw(model, &hidden, limits, &mut rows, &mut responses);
        let kept: Vec<usize> = (0..rows.len()).filter(|&row| !rows[row].finished).collect();
        progress(responses.len() - kept.len());
        if kept.is_empty() {
            return responses;
        }
        let filled = rows.iter().map(|row| row.position).max().unwrap_or(0);
        // Leaving rows are dropped when they are a quarter of the batch, or when the cache
        // must grow anyway: each drop copies the cache.
        if kept.len() * 4 <= rows.len() * 3 || filled >= capacity {
            capacity = (filled + 32).min(longest + limits.max_response_tokens);
            let chosen: Vec<i64> = kept.iter().map(|&row| row as i64).collect();
            cache = cache.select(&Tensor::from_slice(&chosen), filled as i64, capacity as i64);
            rows = keep(rows, &kept);
            hidden = step(model, &mut rows, &pick(&next, &kept), &mut cache);
        } else {
            hidden = step(model, &mut rows, &next, &mut cache);
        }
    }
}

fn keep(rows: Vec<Row>, kept: &[usize]) -> Vec<Row> {
    let mut rows: Vec<Option<Row>> = rows.into_iter().map(Some).collect();
    kept.iter().filter_map(|&row| rows[row].take()).collect()
}

fn pick(tokens: &[u32], kept: &[usize]) -> Vec<u32> {
    kept.iter().map(|&row| tokens[row]).collect()
}

/// Final hidden state of each request's last prompt token, the filled cache with one row for
/// each request, and the longest prompt. Equal neighbouring prompts are computed once.
fn prefill(model: &Qwen2, requests: &[Request]) -> (Tensor, KvCache, usize) {
    let mut prompts: Vec<&[u32]> = Vec::new();
    let mut prompt_of_row = Vec::with_capacity(requests.len());
    for request in requests {
        if prompts.last() != Some(&request.prompt) {
            prompts.push(request.prompt);
        }
        prompt_of_row.push(prompts.len() as i64 - 1);
    }
    let longest = prompts.iter().map(|prompt| prompt.len()).max().unwrap_or(0);
    let mut tokens = vec![0i64; prompts.len() * longest];
    for (row, prompt) in prompts.iter().enumerate() {
        for (at, &token) in prompt.iter().enumerate() {
            tokens[row * longest + at] = i64::from(token);
        }
    }
    let batch = prompts.len() as i64;
    let tokens = Tensor::from_slice(&tokens).view([batch, longest as i64]);
    let mut cache = KvCache::new(model, batch, longest as i64);
    let hidden = model.prefill(&tokens, &mut cache); // [prompts, longest, hidden]
    let width = hidden.size()[2];
    let last: Vec<i64> = prompts.iter().map(|prompt| prompt.len() as i64 - 1).collect();
    let last = Tensor::from_slice(&last).view([batch, 1, 1]).expand([batch, 1, width], true);
    let hidden = hidden.gather(1, &last, false).squeeze_dim(1); // [prompts, hidden]
    let rows = Tensor::from_slice(&prompt_of_row);
    let cache = cache.select(&rows, longest as i64, longest as i64);
    (hidden.index_select(0, &rows), cache, longest)
}

/// Draws the next token of every unfinished row and records it. Returns a token for each
/// row; that of a finished row is padding which nothing reads.
fn draw(
    model: &Qwen2,
    hidden: &Tensor,
    limits: &Limits,
    rows: &mut [Row],
    responses: &mut [Response],
) -> Vec<u32> {
    let logits = model.logits(hidden); // [rows, vocab]
    let vocabulary = logits.size()[1] as usize;
    let values: Vec<f32> = Vec::try_from(logits.to_kind(tch::Kind::Float).flatten(0, -1))
        .expect("logits are a dense f32 tensor");
    let mut next = vec![0; rows.len()];
    for (at, row) in rows.iter_mut().enumerate() {
        if row.finished {
            continue;
        }
        let logits = &values[at * vocabulary..(at + 1) * vocabulary];
        let drawn = sampler::sample(logits, &limits.sampling, row.stream.uniform());
        let response = &mut responses[row.index];
        response.tokens.push(drawn.token);
        response.log_probs.push(drawn.log_prob);
        if limits.stop_tokens.contains(&drawn.token) {
            response.finish = Finish::Stop;
            row.finished = true;
        } else if response.tokens.len() == limits.max_response_tokens {
            row.finished = true;
        }
        next[at] = drawn.token;
    }
    next
}

/// Feeds the drawn tokens: hidden states of each row's newest token.
fn step(model: &Qwen2, rows: &mut [Row], tokens: &[u32], cache: &mut KvCache) -> Tensor {
    let ids: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
    let positions: Vec<i64> = rows.iter().map(|row| row.position as i64).collect();
    for row in rows.iter_mut().filter(|row| !row.finished) {
        row.position += 1;
    }
    model.decode(&Tensor::from_slice(&ids), &Tensor::from_slice(&positions), cache)
}
