//! Batched generation with a KV cache. Each row's draws come from its own stream, so the batch decides nothing.

use crate::base::workers;
use crate::numerics::{fast, halving};
use crate::policy::sampling::blocks::{BLOCK, Blocks};
use crate::policy::sampling::lane::Lane;
use crate::policy::{Limits, PolicyError, Qwen2, Request, Response};

/// A thread gets at least so many requests: fewer are not worth its start.
const REQUESTS_PER_THREAD: usize = 16;
/// Most rows of a native engine's thread: a step reads keys and values of all of them, and caches hold those of few.
const ROWS: usize = 48;
/// The same where threads share each operation: weights are read once for all of them.
const MANY_ROWS: usize = 256;
/// Samples one response for each request, in order. `progress` is called often, with the number of responses finished
/// so far. In the native engine each thread takes one part of the requests, or of a large policy a part of each
/// operation, and nothing depends on that. On LibTorch's tensors all requests are generated together (see [`Blocks`]),
/// and again with half as many rows at a time when memory does not hold them; products round by the number of rows.
pub fn generate(
    model: &Qwen2,
    requests: &[Request],
    limits: &Limits,
    mut progress: impl FnMut(usize),
) -> Result<Vec<Response>, PolicyError> {
    check(model, requests, limits)?;
    if limits.max_response_tokens == 0 {
        return Ok(vec![Response::empty(); requests.len()]);
    }
    let Some(native) = model.native() else {
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
            let slots = limits.max_response_tokens + BLOCK;
            fast::without_graph(|| {
                let longest = requests.iter().map(|request| request.prompt.len()).max();
                let drawing = Blocks::new(model, batch_rows, longest.unwrap_or(0), slots);
                Lane::new(drawing, 0, requests, &limits).run(&mut tell)
            })
        };
        let rows = limits.batch_rows.min(requests.len());
        return workers::together(|| halving::fewer(rows, work));
    };
    let threads = if native.is_large() {
        1
    } else {
        workers::count().min(requests.len().div_ceil(REQUESTS_PER_THREAD)).max(1)
    };
    let size = requests.len().div_ceil(threads).max(1);
    let most = if native.is_large() { MANY_ROWS } else { ROWS };
    let batch_rows = limits.batch_rows.div_ceil(threads).clamp(1, most);
    let limits = Limits { batch_rows, ..limits.clone() };
    let lane =
        |(part, requests)| Lane::new(native.clone().generation(), part * size, requests, &limits);
    let lanes = requests.chunks(size).enumerate().map(lane).collect();
    let mut done = 0;
    let responses = workers::each(lanes, Lane::run, |finished| {
        done += finished;
        progress(done);
    });
    let responses: Result<Vec<Vec<Response>>, PolicyError> = responses.into_iter().collect();
    Ok(responses?.concat())
}

fn check(model: &Qwen2, requests: &[Request], limits: &Limits) -> Result<(), PolicyError> {
    let positions = model.config().max_position_embeddings as usize;
    let vocabulary = model.config().vocab_size as usize;
    for (index, request) in requests.iter().enumerate() {
        let prompt_tokens = request.prompt.len();
        if prompt_tokens == 0 {
            return Err(PolicyError::EmptyPrompt { index });
        }
        let response_tokens = limits.max_response_tokens;
        if prompt_tokens + response_tokens > positions {
            return Err(PolicyError::TooLong { index, prompt_tokens, response_tokens, positions });
        }
        if let Some(&token) = request.prompt.iter().find(|&&id| id as usize >= vocabulary) {
            return Err(PolicyError::Vocabulary { index, token, vocabulary });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
