//! Where a policy is held and in which form: `execution.device` and `execution.weights`.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// What computes: `cpu`, `cuda` or `cuda:N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, thiserror::Error)]
#[serde(try_from = "String", into = "String")]
pub enum Device {
    #[default]
    #[error("cpu")]
    Cpu,
    /// The number of an Nvidia card, from 0.
    #[error("cuda:{0}")]
    Cuda(u32),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no device; it is \"cpu\", \"cuda\" or \"cuda:N\" with N from 0 to 63")]
pub struct NoDevice(String);

const MOST_CARDS: u32 = 64;

impl FromStr for Device {
    type Err = NoDevice;

    fn from_str(text: &str) -> Result<Self, NoDevice> {
        let refused = || NoDevice(text.to_string());
        match text {
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                let number = text.strip_prefix("cuda:").ok_or_else(refused)?;
                let plain = number.bytes().all(|byte| byte.is_ascii_digit());
                let card = number.parse().ok().filter(|card| plain && *card < MOST_CARDS);
                Ok(Self::Cuda(card.ok_or_else(refused)?))
            }
        }
    }
}

impl TryFrom<String> for Device {
    type Error = NoDevice;

    fn try_from(text: String) -> Result<Self, NoDevice> {
        text.parse()
    }
}

impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

/// The form in which a policy computes with its weights.
#[derive(Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, thiserror::Error)]
pub enum WeightKind {
    /// 32 bits.
    #[default]
    #[error("f32")]
    F32,
    /// 16 bits with the range of f32. A policy that is trained keeps its weights, its moments and
    /// the sums of its gradients in f32 beside them.
    #[error("bf16")]
    Bf16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Activation checkpointing: the forward pass keeps each layer's input, the backward pass computes the layer again.
    pub recompute_layers: bool,
    /// Targets whose logits are in memory at the same time; 0: all.
    pub logits_chunk_tokens: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    pub device: Device,
    pub weights: WeightKind,
    pub memory: Option<Memory>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_written_as_torch_writes_them() {
        for (text, device, written) in [
            ("cpu", Device::Cpu, "cpu"),
            ("cuda", Device::Cuda(0), "cuda:0"),
            ("cuda:3", Device::Cuda(3), "cuda:3"),
        ] {
            assert_eq!(text.parse(), Ok(device));
            assert_eq!(device.to_string(), written);
        }
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:+1", "cuda:64", "CUDA", "mps"] {
            let refused = text.parse::<Device>().unwrap_err().to_string();
            assert!(refused.contains("cuda:N"), "{refused}");
        }
    }
}
