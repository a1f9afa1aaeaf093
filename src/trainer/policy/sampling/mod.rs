//! Prompts → responses, batched, with a KV cache. Draws no randomness of its own: each response brings its stream.

pub mod generate;
pub mod rounded;
pub mod sampler;
pub mod lane;
pub mod blocks;
pub mod tensor_sampler;
