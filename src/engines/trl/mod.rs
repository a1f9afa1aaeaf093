//! TRL's `GRPOTrainer`: runs on a processor, and through accelerate on cards.

pub mod settings;
pub mod render;
pub mod check;
pub mod written;
pub mod outputs;

/// TRL first.
pub const PACKAGES: [&str; 6] =
    ["trl", "transformers", "torch", "datasets", "accelerate", "pyyaml"];
