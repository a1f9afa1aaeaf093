//! verl's `main_ppo` over Ray: policies that do not fit one card.

pub mod settings;
pub mod overrides;
pub mod render;
pub mod compose;
pub mod defaults;
pub mod earlier;
pub mod tokenizer;
pub mod traps;
pub mod outputs;

/// verl first.
pub const PACKAGES: [&str; 6] = ["verl", "ray", "vllm", "torch", "transformers", "hydra-core"];
