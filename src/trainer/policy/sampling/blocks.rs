//! Drawing for policies whose weights lie as they are stored, on any device. Rows draw a block of tokens before anybody
//! looks whether one has ended, so that the device never waits; what a row draws beyond its end is dropped.

use crate::policy::sampling::generate::{BLOCK, Drawing, GenerateRow, Newest};
use crate::policy::{Blocks, Drawn, Limits, Token, sampling::tensor_sampler};
use tch::Tensor;

fn draw(limits: &Limits) -> impl Fn(&Tensor, &Tensor) -> Drawn {
    |logits, uniforms| tensor_sampler::sample(logits, &limits.sampling, limits.entropy, uniforms)
}

impl Drawing for Blocks<'_> {
    const MOST_PROMPT_TOKENS: usize = 1 << 15;

    fn begin(
        &mut self,
        prompts: &[&[u32]],
        rows: &mut [GenerateRow],
        limits: &Limits,
    ) -> Vec<Token> {
        let prompt_of_row: Vec<usize> = rows.iter().map(|row| row.prompt).collect();
        let uniforms: Vec<f64> = rows.iter_mut().map(|row| row.stream.uniform()).collect();
        self.join(prompts, &prompt_of_row, &uniforms, &draw(limits))
    }

    fn go_on(&mut self, newest: Newest, rows: &mut [GenerateRow], limits: &Limits) -> Vec<Token> {
        let mut uniforms = vec![0.0; BLOCK.min(newest.most) * rows.len()];
        let count = rows.len();
        for (at, row) in rows.iter_mut().enumerate() {
            uniforms.iter_mut().skip(at).step_by(count).for_each(|u| *u = row.stream.uniform());
        }
        self.run(&newest.tokens, &newest.positions, &uniforms, &draw(limits))
    }

    fn remove(&mut self, leaves: &[bool]) {
        self.leave(leaves);
    }
}
