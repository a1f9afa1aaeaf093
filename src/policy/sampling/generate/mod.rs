//! Batched generation with a KV cache. Finished rows leave the batch and waiting requests take
//! their places; each row's draws come from its own stream, so the batch decides nothing.

use crate::algorithm::Finish;
use crate::base::rng::Stream;
use crate::base::workers;
use crate::experiment::Sampling;
use crate::numerics::{fast, halving};
use crate::policy::model::cache;
use crate::policy::sampling::{blocks, sampler};
use crate::policy::{Generation, Qwen2};

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
    pub sampling: Sampling,
    /// L_max.
    pub max_response_tokens: usize,
    /// Whether responses say the entropy of what they were drawn from.
    pub entropy: bool,
    /// Any of these ends the response and is part of it.
    pub stop_tokens: &'a [u32],
    pub batch_rows: usize,
}

/// One sampled response.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// Token ids, the stop token included.
    pub tokens: Vec<u32>,
    /// Log-prob of each token (see [`sampler::Draw`]).
    pub log_probs: Vec<f64>,
    /// Σ over its tokens, in order, of the entropy of the distribution that each was drawn from:
    /// softmax(logits / temperature) over the whole vocabulary, in nats. `None` unless
    /// [`Limits::entropy`] asks for it.
    pub entropy: Option<f64>,
    pub finish: Finish,
}

impl Response {
    /// One that has not begun.
    pub(super) fn empty(limits: &Limits) -> Self {
        let (tokens, log_probs) = (Vec::new(), Vec::new());
        Self { tokens, log_probs, entropy: limits.entropy.then_some(0.0), finish: Finish::Length }
    }

    /// Appends a token.
    pub(super) fn push(&mut self, token: u32, log_prob: f64, entropy: Option<f64>) {
        self.tokens.push(token);
        self.log_probs.push(log_prob);
        self.entropy = self.entropy.zip(entropy).map(|(sum, entropy)| sum + entropy);
    }
}

/// A policy that cannot serve a request.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    #[error("prompt {index} has no tokens")]
    EmptyPrompt { index: usize },
    #[error(
        "prompt {index} has {prompt_tokens} tokens; with {response_tokens} response tokens that exceeds the model's {positions} positions"
    )]
    TooLong { index: usize, prompt_tokens: usize, response_tokens: usize, positions: usize },
    #[error("prompt {index} holds token {token}, the vocabulary has {vocabulary}")]
    Vocabulary { index: usize, token: u32, vocabulary: usize },
    #[error("memory does not hold a generation of one row: {0}")]
    OutOfMemory(String),
    #[error("prompt {index}: the logits of response token {token} are not finite")]
    NotFinite { index: usize, token: usize },
}

impl From<halving::Error<Error>> for Error {
    fn from(error: halving::Error<Error>) -> Self {
        match error {
            halving::Error::OutOfMemory(text) => Self::OutOfMemory(text),
            halving::Error::Work(error) => error,
        }
    }
}

/// A thread gets at least so many requests: fewer are not worth its start.
const REQUESTS_PER_THREAD: usize = 16;
/// Waiting requests join when this share of the rows is free, so that their prompts are read
/// together.
pub(super) const JOIN_SHARE: usize = 8;

/// Samples one response for each request, in order. `progress` is called often, with the number
/// of responses finished so far.
///
/// Each thread takes one part of the requests. Under exact arithmetic nothing depends on that.
/// Under fast arithmetic the matrix products round by the number of rows that are generated
/// together, and so by the number of threads; of an f32 policy on the CPU nothing else does
/// (see [`crate::numerics::slices`]). A policy whose weights lie as they are stored generates all
/// requests together (see [`blocks`]), and again with half as many rows at a time when memory does
/// not hold them.
pub fn generate(
    model: &Qwen2,
    requests: &[Request],
    limits: &Limits,
    mut progress: impl FnMut(usize),
) -> Result<Vec<Response>, Error> {
    check(model, requests, limits)?;
    if limits.max_response_tokens == 0 {
        return Ok(vec![Response::empty(limits); requests.len()]);
    }
    if model.is_large() {
        let mut told = 0;
        let work = |batch_rows| {
            let mut done = 0;
            // What is generated again is not told again.
            let mut tell = |finished| {
                done += finished;
                told = told.max(done);
                progress(told);
            };
            let limits = Limits { batch_rows, ..limits.clone() };
            fast::without_graph(|| blocks::generate(model, requests, &limits, &mut tell))
        };
        let rows = limits.batch_rows.min(requests.len());
        return Ok(workers::together(|| halving::fewer(rows, work))?);
    }
    let threads = workers::count().min(requests.len().div_ceil(REQUESTS_PER_THREAD)).max(1);
    let size = requests.len().div_ceil(threads).max(1);
    let limits =
        Limits { batch_rows: limits.batch_rows.div_ceil(threads).max(1), ..limits.clone() };
    let parts = requests.chunks(size).enumerate();
    let lanes = parts.map(|(part, requests)| (model.share(), part * size, requests)).collect();
    let work = |(model, first, requests): (Qwen2, usize, &[Request]),
                tell: &mut dyn FnMut(usize)| {
        fast::without_graph(|| Lane::new(&model, first, requests, &limits).run(tell))
    };
    let mut done = 0;
    let responses = workers::each(lanes, work, |finished| {
        done += finished;
        progress(done);
    });
    let responses: Result<Vec<Vec<Response>>, Error> = responses.into_iter().collect();
    Ok(responses?.concat())
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

/// A row that is being generated.
struct Row {
    request: usize,
    /// Position of the token that is fed next.
    position: usize,
    token: u32,
    stream: Stream,
}

/// What one thread generates.
struct Lane<'a> {
    generation: Generation<'a>,
    /// Position of the lane's first request among all, for messages.
    first: usize,
    requests: &'a [Request<'a>],
    limits: &'a Limits<'a>,
    responses: Vec<Response>,
    /// Requests that have not begun: those from here on.
    waiting: usize,
    rows: Vec<Row>,
}

impl<'a> Lane<'a> {
    fn new(
        model: &'a Qwen2,
        first: usize,
        requests: &'a [Request<'a>],
        limits: &'a Limits<'a>,
    ) -> Self {
        let rows = limits.batch_rows.min(requests.len());
        let longest = requests.iter().map(|request| request.prompt.len()).max().unwrap_or(0);
        Self {
            generation: Generation::new(model, rows, longest),
            first,
            requests,
            limits,
            responses: requests.iter().map(|_| Response::empty(limits)).collect(),
            waiting: 0,
            rows: Vec::with_capacity(rows),
        }
    }

    /// All responses. `tell` gets the number of those finished since it was last called.
    fn run(mut self, tell: &mut dyn FnMut(usize)) -> Result<Vec<Response>, Error> {
        let capacity = self.limits.batch_rows.min(self.requests.len());
        loop {
            let free = capacity - self.rows.len();
            let mut finished = 0;
            if self.waiting < self.requests.len()
                && (self.rows.is_empty() || free * JOIN_SHARE >= capacity)
            {
                finished += self.join(free)?;
            } else if self.rows.is_empty() {
                return Ok(self.responses);
            } else {
                let logits = self.feed();
                finished += self.draw(&logits, 0)?;
            }
            tell(finished);
        }
    }

    /// Begins the next `count` requests: reads their prompts, equal neighbours once, and draws
    /// their first tokens. Returns how many responses that finished.
    fn join(&mut self, count: usize) -> Result<usize, Error> {
        let end = (self.waiting + count).min(self.requests.len());
        let mut prompts: Vec<&[u32]> = Vec::new();
        let mut prompt_of_row = Vec::with_capacity(count);
        let old_rows = self.rows.len();
        for request in self.waiting..end {
            let Request { prompt, stream } = &self.requests[request];
            if prompts.last() != Some(prompt) {
                prompts.push(prompt);
            }
            prompt_of_row.push(prompts.len() - 1);
            let (position, stream) = (prompt.len(), stream.clone());
            self.rows.push(Row { request, position, token: 0, stream });
        }
        self.waiting = end;
        let logits = self.generation.join(&prompts, &prompt_of_row);
        self.draw(&logits, old_rows)
    }

    /// Feeds each row's newest token: the logits that follow, `[rows, vocab]`.
    fn feed(&mut self) -> Vec<f64> {
        let tokens: Vec<u32> = self.rows.iter().map(|row| row.token).collect();
        let positions: Vec<usize> = self.rows.iter().map(|row| row.position).collect();
        self.rows.iter_mut().for_each(|row| row.position += 1);
        self.generation.feed(&tokens, &positions)
    }

    /// Draws the next token of the rows from `from` on, whose logits these are. Rows that finish
    /// leave. Returns how many did.
    fn draw(&mut self, logits: &[f64], from: usize) -> Result<usize, Error> {
        let vocabulary = (logits.len() / (self.rows.len() - from)).max(1);
        let mut leaves = vec![false; self.rows.len()];
        for (at, logits) in logits.chunks(vocabulary).enumerate() {
            let row = &mut self.rows[from + at];
            let response = &mut self.responses[row.request];
            let Limits { sampling, entropy, .. } = self.limits;
            let drawn = sampler::sample(logits, sampling, *entropy, row.stream.uniform());
            let Some(drawn) = drawn else {
                let (index, token) = (self.first + row.request, response.tokens.len());
                return Err(Error::NotFinite { index, token });
            };
            response.push(drawn.token, drawn.log_prob, drawn.entropy);
            row.token = drawn.token;
            if self.limits.stop_tokens.contains(&drawn.token) {
                response.finish = Finish::Stop;
                leaves[from + at] = true;
            } else {
                leaves[from + at] = response.tokens.len() == self.limits.max_response_tokens;
            }
        }
        let finished = leaves.iter().filter(|leaves| **leaves).count();
        if finished > 0 {
            self.generation.leave(&leaves);
            for (from, to) in cache::fill_holes(&leaves) {
                self.rows.swap(from, to);
            }
            self.rows.truncate(self.rows.len() - finished);
        }
        Ok(finished)
    }
}

#[cfg(test)]
mod tests;
