//! Scaled rotary embedding: the frequencies and the factor of attention that transformers 5 computes
//! (modeling_rope_utils.py) for Llama 3.1 and later, and for YaRN.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::f64::consts::TAU;

/// `rope_parameters`, or `rope_scaling` of older files, where it scales.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "lowercase", deny_unknown_fields)]
pub enum RopeScaling {
    /// Long waves are stretched by the factor, short ones stay, those between are mixed.
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original_max_position_embeddings: f64,
    },
    /// The same by the number of turns within the original positions, and larger scores.
    Yarn {
        factor: f64,
        original_max_position_embeddings: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        attention_factor: Option<f64>,
        beta_fast: f64,
        beta_slow: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        mscale: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        mscale_all_dim: Option<f64>,
        truncate: bool,
    },
}

impl RopeScaling {
    /// Reads the object without `rope_theta`; `None` where it says that nothing is scaled.
    /// Errors: an unknown type or key, a missing one, and a number that is not positive.
    pub fn from_json(rope: &Map<String, Value>, positions: i64) -> Result<Option<Self>, String> {
        let mut rope = rope.clone();
        rope.retain(|_, value| !value.is_null());
        rope.remove("rope_theta");
        if rope.remove("partial_rotary_factor").is_some_and(|factor| factor.as_f64() != Some(1.0)) {
            return Err("only rotary embedding of whole heads is".to_string());
        }
        match (rope.remove("type"), rope.get("rope_type")) {
            (Some(old), Some(new)) if old != *new => {
                return Err("`type` and `rope_type` differ".to_string());
            }
            (Some(old), None) => drop(rope.insert("rope_type".to_string(), old)),
            _ => {}
        }
        let kind = rope.get("rope_type").and_then(Value::as_str).unwrap_or("default");
        if kind == "default" {
            let unknown = rope.keys().find(|key| *key != "rope_type");
            return unknown.map_or(Ok(None), |key| Err(format!("unknown key `{key}`")));
        }
        if !["llama3", "yarn"].contains(&kind) {
            return Err(format!("rope_type {kind:?}: only default, llama3 and yarn are"));
        }
        let is_yarn = kind == "yarn";
        let numbers = rope.iter().filter(|(key, _)| !["rope_type", "truncate"].contains(&&***key));
        for (key, value) in numbers {
            if !value.as_f64().is_some_and(|number| number > 0.0 && number.is_finite()) {
                return Err(format!("{key} must be a positive number, got {value}"));
            }
        }
        rope.entry("original_max_position_embeddings").or_insert(Value::from(positions));
        if is_yarn {
            let defaults = json!({"beta_fast": 32.0, "beta_slow": 1.0, "truncate": true});
            for (key, value) in defaults.as_object().into_iter().flatten() {
                rope.entry(key).or_insert(value.clone());
            }
        }
        let scaling: Self =
            serde_json::from_value(Value::Object(rope)).map_err(|error| error.to_string())?;
        match &scaling {
            Self::Llama3 { low_freq_factor: low, high_freq_factor: high, .. } if low >= high => {
                Err("high_freq_factor must be larger than low_freq_factor".to_string())
            }
            _ => Ok(Some(scaling)),
        }
    }

    /// Turns a position, in radians, of each pair of a head: from those without scaling.
    pub fn frequencies(&self, plain: &[f64], theta: f64) -> Vec<f64> {
        match *self {
            Self::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original_max_position_embeddings: original,
            } => {
                let scaled = |&frequency: &f64| {
                    let turns = original * frequency / TAU;
                    let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    (1.0 - kept) * frequency / factor + kept * frequency
                };
                plain.iter().map(scaled).collect()
            }
            Self::Yarn {
                factor,
                original_max_position_embeddings: original,
                beta_fast,
                beta_slow,
                truncate,
                ..
            } => {
                let width = 2.0 * plain.len() as f64;
                // The pair that turns so often within the original positions.
                let pair = |turns: f64| {
                    width * libm::log(original / (turns * TAU)) / (2.0 * libm::log(theta))
                };
                let (mut low, mut high) = (pair(beta_fast), pair(beta_slow));
                if truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(width - 1.0));
                if low == high {
                    high += 0.001;
                }
                let scaled = |(index, frequency): (usize, &f64)| {
                    let stretched = ((index as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    stretched * frequency / factor + (1.0 - stretched) * frequency
                };
                plain.iter().enumerate().map(scaled).collect()
            }
        }
    }

    /// What cosines and sines are multiplied with.
    pub fn attention_factor(&self) -> f64 {
        let Self::Yarn { factor, attention_factor, mscale, mscale_all_dim, .. } = *self else {
            return 1.0;
        };
        let of =
            |scale: f64| if factor > 1.0 { 0.1 * scale * libm::log(factor) + 1.0 } else { 1.0 };
        attention_factor.unwrap_or_else(|| match (mscale, mscale_all_dim) {
            (Some(scale), Some(all)) => of(scale) / of(all),
            _ => of(1.0),
        })
    }
}
