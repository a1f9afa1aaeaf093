//! The decoder of Qwen2 and its relatives: configuration, forward pass, KV cache. Names equal the
//! checkpoint's keys. The cache is an argument, so training and sampling share no hidden state.

pub mod rope;
pub mod config;
pub mod sequences;
pub mod decoder;
pub mod native;
pub mod tensors;
pub mod devices;
pub mod prepared;
pub mod cache;
pub mod gradients;
pub mod recompute;
pub mod qwen2;
