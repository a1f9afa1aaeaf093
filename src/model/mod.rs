//! Qwen2: configuration, forward pass, KV cache. Names equal the checkpoint's keys. The cache
//! is an argument, so training and sampling share no hidden state.

pub mod config;
pub mod cache;
pub mod qwen2;
