//! The rows of a batch: finished ones leave it, and waiting requests take their places.

use crate::algorithm::Finish;
use crate::base::rng::Stream;
use crate::experiment::Sampling;
use crate::policy::{NativeGeneration, PolicyError, Token, model::cache, sampling::sampler};
use crate::task::ResponseText;

#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Prompt token ids, at least one.
    pub prompt: &'a [u32],
    /// Uniform `t` of this stream draws response token `t`.
    pub stream: Stream,
}

#[derive(Debug, Clone)]
pub struct Limits<'a> {
    pub sampling: Sampling,
    pub max_response_tokens: usize,
    /// Whether responses say the entropy of what their tokens were drawn from.
    pub entropy: bool,
    /// Any of these ends the response and is part of it.
    pub stop_tokens: &'a [u32],
    /// `None` where no stop string ends a response.
    pub text: Option<ResponseText<'a>>,
    pub batch_rows: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// Token ids, the stop token or the tokens of the stop string included.
    pub tokens: Vec<u32>,
    /// Log-prob of each token (see [`sampler::sample`]).
    pub log_probs: Vec<f64>,
    /// Entropy of the distribution that each token was drawn from: softmax(logits / temperature) over
    /// the whole vocabulary, in nats. Empty unless [`Limits::entropy`] asks for it.
    pub entropy: Vec<f64>,
    pub finish: Finish,
}

impl Response {
    pub fn empty() -> Self {
        let (tokens, log_probs, entropy) = (Vec::new(), Vec::new(), Vec::new());
        Self { tokens, log_probs, entropy, finish: Finish::Length }
    }
}

/// Waiting requests join when this share of the rows is free, so that their prompts are read together.
const JOIN_SHARE: usize = 8;

pub(in crate::policy::sampling) struct LaneRow {
    request: usize,
    /// Its prompt among those that were read with it.
    pub prompt: usize,
    pub stream: Stream,
}

/// What the rows go on from.
#[derive(Default)]
pub(in crate::policy::sampling) struct Newest {
    pub tokens: Vec<u32>,
    /// The position of that token in its row.
    pub positions: Vec<usize>,
    /// Tokens that the shortest response can still take.
    pub most: usize,
}

/// What draws the tokens of a lane's rows. A token that could not be drawn has a log-prob that is not finite.
pub(in crate::policy::sampling) trait Drawing {
    /// Prompt tokens, padding included, that are read in one pass at most.
    const MOST_PROMPT_TOKENS: usize;

    /// Reads prompts, adds `rows` and draws each one's first token.
    fn begin(&mut self, prompts: &[&[u32]], rows: &mut [LaneRow], limits: &Limits) -> Vec<Token>;

    /// One to [`Newest::most`] tokens of every row: all rows' first tokens, then all rows' second ones.
    fn go_on(&mut self, newest: Newest, rows: &mut [LaneRow], limits: &Limits) -> Vec<Token>;

    /// As [`NativeGeneration::leave`].
    fn remove(&mut self, leaves: &[bool]);
}

impl Drawing for Box<dyn NativeGeneration> {
    const MOST_PROMPT_TOKENS: usize = usize::MAX;

    fn begin(&mut self, prompts: &[&[u32]], rows: &mut [LaneRow], limits: &Limits) -> Vec<Token> {
        let prompt_of_row: Vec<usize> = rows.iter().map(|row| row.prompt).collect();
        self.join(prompts, &prompt_of_row, &draw(rows, limits))
    }

    fn go_on(&mut self, newest: Newest, rows: &mut [LaneRow], limits: &Limits) -> Vec<Token> {
        self.feed(&newest.tokens, &newest.positions, &draw(rows, limits))
    }

    fn remove(&mut self, leaves: &[bool]) {
        self.leave(leaves);
    }
}

fn draw(rows: &mut [LaneRow], limits: &Limits) -> impl Fn(usize, &[f64]) -> Token + Sync {
    let uniforms: Vec<f64> = rows.iter_mut().map(|row| row.stream.uniform()).collect();
    let (sampling, entropy) = (limits.sampling, limits.entropy);
    let none = Token { id: 0, log_prob: f64::NAN, entropy: None };
    move |row, logits| sampler::sample(logits, &sampling, entropy, uniforms[row]).unwrap_or(none)
}

pub(in crate::policy::sampling) struct Lane<'a, D> {
    drawing: D,
    /// Position of the lane's first request among all, for messages.
    first: usize,
    requests: &'a [Request<'a>],
    limits: &'a Limits<'a>,
    responses: Vec<Response>,
    /// Requests that have not begun: those from here on.
    waiting: usize,
    /// In the order of `drawing`.
    rows: Vec<LaneRow>,
}

impl<'a, D: Drawing> Lane<'a, D> {
    pub fn new(
        drawing: D,
        first: usize,
        requests: &'a [Request<'a>],
        limits: &'a Limits<'a>,
    ) -> Self {
        let responses = requests.iter().map(|_| Response::empty()).collect();
        Self { drawing, first, requests, limits, responses, waiting: 0, rows: Vec::new() }
    }

    /// All responses. `tell` gets the number of those finished since it was last called.
    pub fn run(mut self, tell: &mut dyn FnMut(usize)) -> Result<Vec<Response>, PolicyError> {
        let capacity = self.limits.batch_rows.min(self.requests.len());
        loop {
            let free = capacity - self.rows.len();
            let waits = self.waiting < self.requests.len();
            let finished = if waits && (self.rows.is_empty() || free * JOIN_SHARE >= capacity) {
                self.join(free)?
            } else if self.rows.is_empty() {
                return Ok(self.responses);
            } else {
                self.feed()?
            };
            tell(finished);
        }
    }

    /// Begins up to `count` requests, as many as are read at once: reads their prompts, equal
    /// neighbours once, and draws their first tokens. Returns how many responses that finished.
    fn join(&mut self, count: usize) -> Result<usize, PolicyError> {
        let end = (self.waiting + count).min(self.requests.len());
        let (mut prompts, mut longest) = (Vec::<&[u32]>::new(), 0);
        let old_rows = self.rows.len();
        for request in self.waiting..end {
            let Request { prompt, stream } = &self.requests[request];
            if prompts.last() != Some(prompt) {
                longest = longest.max(prompt.len());
                if !prompts.is_empty() && (prompts.len() + 1) * longest > D::MOST_PROMPT_TOKENS {
                    break;
                }
                prompts.push(prompt);
            }
            self.rows.push(LaneRow { request, prompt: prompts.len() - 1, stream: stream.clone() });
        }
        let rows = &mut self.rows[old_rows..];
        self.waiting += rows.len();
        let drawn = self.drawing.begin(&prompts, rows, self.limits);
        self.take(old_rows, &drawn)
    }

    /// Feeds each row's newest token and draws what follows. Returns how many responses that finished.
    fn feed(&mut self) -> Result<usize, PolicyError> {
        let mut newest = Newest::default();
        for row in &self.rows {
            let response = &self.responses[row.request].tokens;
            newest.tokens.push(*response.last().expect("a row begins with a token"));
            newest.positions.push(self.requests[row.request].prompt.len() + response.len() - 1);
            newest.most = newest.most.max(self.limits.max_response_tokens - response.len());
        }
        let drawn = self.drawing.go_on(newest, &mut self.rows, self.limits);
        self.take(0, &drawn)
    }

    /// Appends what the rows from `from` on have drawn. Rows that have ended leave. Returns how many.
    fn take(&mut self, from: usize, drawn: &[Token]) -> Result<usize, PolicyError> {
        let mut leaves = vec![false; self.rows.len()];
        let text = self.limits.text.as_ref();
        for drawn in drawn.chunks(self.rows.len() - from) {
            for (at, &Token { id, log_prob, entropy }) in drawn.iter().enumerate() {
                if leaves[from + at] {
                    continue;
                }
                let request = self.rows[from + at].request;
                let response = &mut self.responses[request];
                if !log_prob.is_finite() {
                    let (index, token) = (self.first + request, response.tokens.len());
                    return Err(PolicyError::Logits { index, token });
                }
                response.tokens.push(id);
                response.log_probs.push(log_prob);
                response.entropy.extend(entropy);
                if self.limits.stop_tokens.contains(&id) {
                    response.finish = Finish::Stop;
                } else if text.is_some_and(|text| text.is_complete(&response.tokens)) {
                    response.finish = Finish::StopString;
                }
                leaves[from + at] = response.finish != Finish::Length
                    || response.tokens.len() == self.limits.max_response_tokens;
            }
        }
        let finished = leaves.iter().filter(|leaves| **leaves).count();
        if finished > 0 {
            self.drawing.remove(&leaves);
            cache::remove_rows(&mut self.rows, &leaves);
        }
        Ok(finished)
    }
}
