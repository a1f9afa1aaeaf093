//! Generation for policies whose weights lie as they are stored, on any device: rows draw a block of
//! tokens before anybody looks whether one has ended, so that the device never waits for a decision
//! that the processor makes. What a row draws beyond its end is dropped.

use crate::algorithm::Finish;
use crate::base::rng::Stream;
use crate::policy::model::cache;
use crate::policy::sampling::generate::{Error, JOIN_SHARE, Request};
use crate::policy::sampling::tensor_sampler;
use crate::policy::{Blocks, Limits, Qwen2, Response, Token};

/// Tokens between two looks. A row computes half as many in vain on average.
const BLOCK: usize = 16;

/// A row that is being generated.
struct Row {
    request: usize,
    stream: Stream,
}

/// All requests of a generation.
struct Lane<'a> {
    blocks: Blocks<'a>,
    requests: &'a [Request<'a>],
    limits: &'a Limits<'a>,
    responses: Vec<Response>,
    /// Requests that have not begun: those from here on.
    waiting: usize,
    rows: Vec<Row>,
}

/// One response for each request, in order. `tell` gets the number of those finished since it was
/// last called.
pub fn generate(
    model: &Qwen2,
    requests: &[Request],
    limits: &Limits,
    tell: &mut dyn FnMut(usize),
) -> Result<Vec<Response>, Error> {
    let rows = limits.batch_rows.min(requests.len());
    let longest = requests.iter().map(|request| request.prompt.len()).max().unwrap_or(0);
    let slots = limits.max_response_tokens + BLOCK;
    let lane = Lane {
        blocks: Blocks::new(model, rows, longest, slots),
        requests,
        limits,
        responses: requests.iter().map(|_| Response::empty(limits)).collect(),
        waiting: 0,
        rows: Vec::with_capacity(rows),
    };
    lane.run(rows, tell)
}

impl Lane<'_> {
    fn run(mut self, capacity: usize, tell: &mut dyn FnMut(usize)) -> Result<Vec<Response>, Error> {
        loop {
            let free = capacity - self.rows.len();
            let waits = self.waiting < self.requests.len();
            let finished = if waits && (self.rows.is_empty() || free * JOIN_SHARE >= capacity) {
                self.join(free)?
            } else if self.rows.is_empty() {
                return Ok(self.responses);
            } else {
                self.block()?
            };
            tell(finished);
        }
    }

    /// Begins up to `count` requests, as many as are read at once: reads their prompts, equal
    /// neighbours once, and draws their first tokens. Returns how many responses that finished.
    fn join(&mut self, count: usize) -> Result<usize, Error> {
        /// Prompt tokens, padding included, that are read in one pass.
        const MOST_TOKENS: usize = 1 << 15;
        let end = (self.waiting + count).min(self.requests.len());
        let (mut prompts, mut prompt_of_row) = (Vec::<&[u32]>::new(), Vec::new());
        let mut longest = 0;
        let old_rows = self.rows.len();
        let mut uniforms = Vec::new();
        for request in self.waiting..end {
            let Request { prompt, stream } = &self.requests[request];
            if prompts.last() != Some(prompt) {
                longest = longest.max(prompt.len());
                if !prompts.is_empty() && (prompts.len() + 1) * longest > MOST_TOKENS {
                    break;
                }
                prompts.push(prompt);
            }
            prompt_of_row.push(prompts.len() - 1);
            let mut row = Row { request, stream: stream.clone() };
            uniforms.push(row.stream.uniform());
            self.rows.push(row);
        }
        self.waiting += prompt_of_row.len();
        let Limits { sampling, entropy, .. } = self.limits;
        let draw =
            |logits: &_, uniforms: &_| tensor_sampler::sample(logits, sampling, *entropy, uniforms);
        let drawn = self.blocks.join(&prompts, &prompt_of_row, &uniforms, &draw);
        self.take(old_rows, &drawn)
    }

    /// Up to [`BLOCK`] tokens of every row. Returns how many responses that finished.
    fn block(&mut self) -> Result<usize, Error> {
        let written = |row: &Row| self.responses[row.request].tokens.len();
        let shortest = self.rows.iter().map(written).min().unwrap_or(0);
        let count = BLOCK.min(self.limits.max_response_tokens - shortest);
        let mut tokens = Vec::with_capacity(self.rows.len());
        let mut positions = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let response = &self.responses[row.request].tokens;
            tokens.push(*response.last().expect("a row begins with a token"));
            positions.push(self.requests[row.request].prompt.len() + response.len() - 1);
        }
        let mut uniforms = vec![0.0; count * self.rows.len()];
        let rows = self.rows.len();
        for (at, row) in self.rows.iter_mut().enumerate() {
            uniforms.iter_mut().skip(at).step_by(rows).for_each(|u| *u = row.stream.uniform());
        }
        let Limits { sampling, entropy, .. } = self.limits;
        let draw =
            |logits: &_, uniforms: &_| tensor_sampler::sample(logits, sampling, *entropy, uniforms);
        let drawn = self.blocks.run(&tokens, &positions, &uniforms, &draw);
        self.take(0, &drawn)
    }

    /// Appends what the rows from `from` on have drawn, token by token: `drawn` holds all rows'
    /// first tokens, then all rows' second ones. Rows that have ended leave. Returns how many.
    fn take(&mut self, from: usize, drawn: &[Token]) -> Result<usize, Error> {
        let mut leaves = vec![false; self.rows.len()];
        for drawn in drawn.chunks(self.rows.len() - from) {
            for (at, &Token { id, log_prob, entropy }) in drawn.iter().enumerate() {
                if leaves[from + at] {
                    continue;
                }
                let index = self.rows[from + at].request;
                let response = &mut self.responses[index];
                if !log_prob.is_finite() {
                    return Err(Error::NotFinite { index, token: response.tokens.len() });
                }
                response.push(id, log_prob, entropy);
                let stops = self.limits.stop_tokens.contains(&id);
                if stops {
                    response.finish = Finish::Stop;
                }
                leaves[from + at] =
                    stops || response.tokens.len() == self.limits.max_response_tokens;
            }
        }
        let finished = leaves.iter().filter(|leaves| **leaves).count();
        if finished > 0 {
            self.blocks.leave(&leaves);
            for (from, to) in cache::fill_holes(&leaves) {
                self.rows.swap(from, to);
            }
            self.rows.truncate(self.rows.len() - finished);
        }
        Ok(finished)
    }
}
