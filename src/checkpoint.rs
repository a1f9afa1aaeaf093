//! A checkpoint is a folder in the Hugging Face layout (`config.json`, `model.safetensors`,
//! tokenizer, generation config), plus `optimizer.safetensors` and `trainer.json` for a run
//! that is to go on. No RNG state: every draw is a function of counters.

use crate::files;
use crate::model::config;
use crate::model::config::Config;
use crate::model::qwen2;
use crate::model::qwen2::Qwen2;
use crate::run_folder::Counters;
use safetensors::Dtype;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde::Deserialize;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use tch::Kind;
use tch::Tensor;

/// A checkpoint that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is missing, unreadable, or not JSON.
    #[error(transparent)]
    File(#[from] files::Error),
    /// `config.json` describes another architecture.
    #[error("{}: {source}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: config::Error,
    },
    /// The weights are not a safetensors file.
    #[error("{}: not a valid safetensors file: {reason}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A tensor of a type that is not read.
    #[error("{}: tensor {name} has type {dtype}, expected F32, BF16 or F16", path.display())]
    Dtype {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its type.
        dtype: String,
    },
    /// The tensors are not those of the configuration.
    #[error("{}: {source}", path.display())]
    Tensors {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: qwen2::Error,
    },
}

/// Files of a base folder that a checkpoint carries along unchanged.
pub const COMPANIONS: [&str; 4] =
    ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"];

/// Where a run stands, beside weights and moments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerState {
    /// The three clocks.
    pub counters: Counters,
    /// Prompts drawn so far: position in the endless sequence of shuffled epochs.
    pub prompts_drawn: u64,
    /// Optimiser steps that AdamW's bias correction counts.
    pub optimizer_steps: u64,
}

/// Loads a Qwen2 policy from a Hugging Face folder, in f32.
///
/// # Errors
/// Missing or malformed files; another architecture; missing, unknown or wrongly shaped
/// tensors, by name.
pub fn load_model(folder: &Path) -> Result<Qwen2, Error> {
    let path = folder.join("config.json");
    let json: serde_json::Value = files::read_json(&path)?;
    let config = Config::from_json(&json).map_err(|source| Error::Config { path, source })?;
    let path = folder.join("model.safetensors");
    let tensors = read_tensors(&path)?;
    Qwen2::new(config, tensors).map_err(|source| Error::Tensors { path, source })
}

/// Writes the policy's weights, and copies what else the base folder holds.
pub fn save_model(folder: &Path, model: &Qwen2, base: &Path) -> Result<(), Error> {
    files::create_folder(folder)?;
    for name in COMPANIONS {
        let from = base.join(name);
        if from.exists() {
            files::write_atomic(&folder.join(name), &files::read(&from)?)?;
        }
    }
    write_tensors(&folder.join("model.safetensors"), &values(model))
}

/// Writes a whole checkpoint in one step: either all of it is there or none.
pub fn save(
    folder: &Path,
    model: &Qwen2,
    base: &Path,
    moments: &BTreeMap<String, (Vec<i64>, Vec<f32>)>,
    state: &TrainerState,
) -> Result<(), Error> {
    let mut name = folder.file_name().unwrap_or_default().to_os_string();
    name.push(".partial");
    let partial = folder.with_file_name(name);
    files::remove_folder(&partial)?;
    save_model(&partial, model, base)?;
    write_tensors(&partial.join("optimizer.safetensors"), moments)?;
    files::write_json(&partial.join("trainer.json"), state)?;
    Ok(files::replace_folder(&partial, folder)?)
}

/// The policy's weights as plain values: name → (shape, values).
pub fn values(model: &Qwen2) -> BTreeMap<String, (Vec<i64>, Vec<f32>)> {
    let plain = |tensor: &Tensor| {
        let flat = tensor.detach().to_kind(Kind::Float).contiguous().flatten(0, -1);
        (tensor.size(), Vec::try_from(flat).expect("a dense f32 tensor"))
    };
    model.parameters().iter().map(|(name, tensor)| (name.clone(), plain(tensor))).collect()
}

/// Every tensor of a safetensors file, as f32.
pub fn read_tensors(path: &Path) -> Result<BTreeMap<String, Tensor>, Error> {
    let bytes = files::read(path)?;
    let invalid = |reason: String| Error::Safetensors { path: path.to_path_buf(), reason };
    let file = SafeTensors::deserialize(&bytes).map_err(|error| invalid(error.to_string()))?;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.iter() {
        let kind = match view.dtype() {
            Dtype::F32 => Kind::Float,
            Dtype::BF16 => Kind::BFloat16,
            Dtype::F16 => Kind::Half,
            other => {
                let (path, dtype) = (path.to_path_buf(), format!("{other:?}"));
                return Err(Error::Dtype { path, name: name.to_string(), dtype });
            }
        };
        let shape: Vec<i64> = view.shape().iter().map(|&size| size as i64).collect();
        let tensor = Tensor::from_data_size(view.data(), &shape, kind).to_kind(Kind::Float);
        tensors.insert(name.to_string(), tensor);
    }
    Ok(tensors)
}

/// Writes tensors as f32, in name order and without metadata but the format mark that
/// transformers looks for: the same values give the same bytes.
pub fn write_tensors(
    path: &Path,
    tensors: &BTreeMap<String, (Vec<i64>, Vec<f32>)>,
) -> Result<(), Error> {
    let bytes: BTreeMap<&String, Vec<u8>> = tensors
        .iter()
        .map(|(name, (_, values))| (name, values.iter().flat_map(|v| v.to_le_bytes()).collect()))
        .collect();
    let mut views = Vec::with_capacity(tensors.len());
    for (name, (shape, _)) in tensors {
        let shape = shape.iter().map(|&size| size as usize).collect();
        let view = TensorView::new(Dtype::F32, shape, &bytes[name]).map_err(|error| {
            Error::Safetensors { path: path.to_path_buf(), reason: error.to_string() }
        })?;
        views.push((name.as_str(), view));
    }
    #[expect(clippy::disallowed_types, reason = "the crate asks for this map; it has one key")]
    let metadata = std::collections::HashMap::from([("format".to_string(), "pt".to_string())]);
    let file = safetensors::serialize(views, Some(metadata)).map_err(|error| {
        Error::Safetensors { path: path.to_path_buf(), reason: error.to_string() }
    })?;
    Ok(files::write_atomic(path, &file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> Config {
        Config {
            vocab_size: 11,
            hidden_size: 8,
            intermediate_size: 12,
            num_hidden_layers: 1,
            num_attention_heads: 2,
            num_key_value_heads: 1,
            head_dim: 4,
            max_position_embeddings: 16,
            rope_theta: 10000.0,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: false,
        }
    }

    fn folder_with(config: &Config) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        files::write_json(&folder.path().join("config.json"), &config.to_json(1, 0)).unwrap();
        let model = Qwen2::initialise(config.clone(), 3);
        write_tensors(&folder.path().join("model.safetensors"), &values(&model)).unwrap();
        folder
    }

    #[test]
    fn a_saved_policy_loads_with_the_same_bits_and_saves_to_the_same_bytes() {
        let base = folder_with(&tiny());
        let model = load_model(base.path()).unwrap();
        assert_eq!(values(&model), values(&Qwen2::initialise(tiny(), 3)));
        let copy = tempfile::tempdir().unwrap();
        save_model(copy.path(), &model, base.path()).unwrap();
        for name in ["config.json", "model.safetensors"] {
            let read = |folder: &tempfile::TempDir| files::read(&folder.path().join(name)).unwrap();
            assert_eq!(read(&base), read(&copy), "{name}");
        }
    }

    #[test]
    fn missing_unknown_and_misshapen_tensors_are_refused_by_name() {
        let base = folder_with(&tiny());
        let path = base.path().join("model.safetensors");
        let good = values(&Qwen2::initialise(tiny(), 3));
        let mut missing = good.clone();
        missing.remove("lm_head.weight");
        let mut unknown = good.clone();
        unknown.insert("model.layers.9.surprise".into(), (vec![1], vec![0.0]));
        let mut misshapen = good.clone();
        misshapen.insert("model.norm.weight".into(), (vec![4], vec![1.0; 4]));
        for (tensors, name) in [
            (missing, "lm_head.weight is missing"),
            (unknown, "model.layers.9.surprise is not part"),
            (misshapen, "model.norm.weight has shape [4], expected [8]"),
        ] {
            write_tensors(&path, &tensors).unwrap();
            let error = load_model(base.path()).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("model.safetensors"), "{error}");
        }
    }

    #[test]
    fn truncated_and_hostile_weights_are_errors_not_crashes() {
        let base = folder_with(&tiny());
        let path = base.path().join("model.safetensors");
        let good = files::read(&path).unwrap();
        for bad in [&good[..good.len() / 2], &good[..4], &[0xff; 64][..], &[][..]] {
            files::write_atomic(&path, bad).unwrap();
            let error = load_model(base.path()).unwrap_err();
            assert!(matches!(error, Error::Safetensors { .. }), "{error}");
        }
    }
}
