//! The policy: decoder, sampling, the training forward, optimizer, checkpoint. In: a checkpoint and tokens. Out:
//! responses, log-probs, gradients, weights. Never: a reward, an advantage, a rule of the paper.

pub mod error;
pub mod model;
pub mod digests;
pub mod optimizer;
pub mod batch;
pub mod checkpoint;
pub mod sampling;
pub mod frozen;
pub mod trainable;

pub use crate::policy::checkpoint::weights::Weights;
pub use crate::policy::checkpoint::{CheckpointProgress, CheckpointValues, Loaded};
pub use crate::policy::error::{OptimizerError, PolicyError};
pub use crate::policy::model::cache::KvCache;
pub use crate::policy::model::config::{Config, Family};
pub use crate::policy::model::decoder::{Decoder, Layer};
pub use crate::policy::model::gradients::Gradients;
pub use crate::policy::model::native::{
    NativeEngine, NativeGeneration, NativePolicy, Token, UpdateScale,
};
pub use crate::policy::model::prepared::{Joined, Prepared};
pub use crate::policy::model::qwen2::{KeysAndValues, Qwen2};
pub use crate::policy::model::rope::RopeScaling;
pub use crate::policy::model::sequences::Sequences;
pub use crate::policy::model::tensors::{Linear, Weight};
pub use crate::policy::optimizer::on_device::{DeviceAdamW, OnDevice};
pub use crate::policy::optimizer::{AdamW, Element, Moments, Stepped, Update};
pub use crate::policy::sampling::lane::{Limits, Request, Response};
pub use crate::policy::trainable::Policy;
