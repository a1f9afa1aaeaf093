//! A checkpoint is a folder in the Hugging Face layout (`config.json`, `model.safetensors`, tokenizer, generation
//! config), plus what a run needs to go on: `optimizer.safetensors`, `trainer.json` with clocks and all digests,
//! `carried.parquet` where groups were carried over. No RNG state: every draw is a function of counters.

pub mod moments;
pub mod weights;

use crate::base::files::{self, foreign};
use crate::numerics::fast;
use crate::policy::digests;
use crate::policy::optimizer;
use crate::policy::{Config, Moments, PolicyError, Qwen2, Weights, model::qwen2};
use crate::records::{
    Counters, RolloutRow, TensorDigest, ledger, model_folder, run_folder, tables,
};
use regex::{Captures, Regex};
use safetensors::{Dtype, tensor::Metadata, tensor::TensorInfo};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::LazyLock;
use tch::{Kind, Tensor};

/// Files of a base folder that a checkpoint carries along unchanged.
pub const COMPANIONS: [&str; 9] = run_folder::COMPANIONS;

pub const CONFIG: &str = "config.json";
const WEIGHTS: &str = weights::SINGLE;
const MOMENTS: &str = "optimizer.safetensors";
pub const TENSORS: [&str; 2] = [WEIGHTS, MOMENTS];
const CARRIED: &str = "carried.parquet";
const TRAINER: &str = "trainer.json";

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CheckpointProgress {
    pub counters: Counters,
    /// Prompts drawn so far: position in the endless sequence of shuffled epochs.
    pub prompts_drawn: u64,
    /// Rollouts of the groups that Dynamic Sampling carried over to the next step.
    pub carried: Vec<RolloutRow>,
}

#[derive(Debug)]
pub struct Loaded {
    /// The policy, in f32 and on the processor.
    pub model: Qwen2,
    pub optimizer: optimizer::OptimizerState,
    pub progress: CheckpointProgress,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrainerRecord {
    counters: Counters,
    prompts_drawn: u64,
    optimizer_updates: u64,
    /// Every other file of the checkpoint → SHA-256.
    sha256: BTreeMap<String, String>,
}

/// A count that no run reaches, and from which counting on overflows nothing.
const MOST_COUNTED: u64 = 1 << 48;

impl TrainerRecord {
    /// No digest covers this file, and the trainer counts on from its numbers.
    fn counts_are_possible(&self, path: &Path) -> Result<(), PolicyError> {
        let Self { counters, prompts_drawn, optimizer_updates, .. } = self;
        let counts = [
            ("counters.generation_rounds", counters.generation_rounds),
            ("counters.rollout_steps", counters.rollout_steps),
            ("counters.updates", counters.updates),
            ("prompts_drawn", *prompts_drawn),
            ("optimizer_updates", *optimizer_updates),
        ];
        match counts.into_iter().find(|(_, count)| *count > MOST_COUNTED) {
            Some((key, count)) => Err(PolicyError::Count { path: path.to_path_buf(), key, count }),
            None => Ok(()),
        }
    }
}

/// Loads a policy from a Hugging Face folder, in f32.
pub fn load_model(folder: &Path) -> Result<Qwen2, PolicyError> {
    let (config, weights) = open_model(folder)?;
    let mut tensors = weights.read()?;
    if config.tie_word_embeddings {
        same_head(&weights, &mut tensors)?;
    }
    for (name, tensor) in &tensors {
        all_finite(weights.path_of(name), name, tensor)?;
    }
    let path = folder.join(WEIGHTS);
    Qwen2::new(config, tensors).map_err(|error| error.within(path))
}

/// What transformers applies of `config.json` in training alone, and nothing here does: a sentence or none.
pub fn dropout(folder: &Path) -> Option<String> {
    let path = folder.join(CONFIG);
    let json: serde_json::Value = files::read_json(&path).ok()?;
    let stated = json.get("attention_dropout").filter(|it| !it.is_null() && **it != 0.0)?;
    Some(format!(
        "{}: attention_dropout = {stated} is not applied, and transformers applies it in training: state 0.0 where other \
         trainers shall compute the same",
        path.display()
    ))
}

/// The shape of a policy and its weights. No byte of a tensor is read and no memory for one is asked for.
pub fn open_model(folder: &Path) -> Result<(Config, Weights), PolicyError> {
    let path = folder.join(CONFIG);
    if let Some(what) = model_folder::adapter(folder) {
        return Err(PolicyError::OtherFolder { folder: folder.to_path_buf(), what });
    }
    let json: serde_json::Value = match files::read_json(&path) {
        Err(error) if error.is_missing() || !folder.is_dir() => {
            return Err(without_model(folder, error));
        }
        read => read?,
    };
    let config = Config::from_json(&json)
        .and_then(|config| rotations_fit(&config).map(|()| config))
        .map_err(|error| error.within(path))?;
    let mut weights = match weights::open_folder(folder) {
        Err(PolicyError::File(error))
            if error.is_missing() && !model_folder::has_weights(folder) =>
        {
            return Err(without_model(folder, error));
        }
        opened => opened?,
    };
    // Old Llama checkpoints have the frequencies, which follow from the configuration.
    weights.entries.retain(|name, _| !name.ends_with("rotary_emb.inv_freq"));
    // Sizes that a configuration claims are believed when the file has them.
    let shapes = weights.entries.iter().map(|(name, entry)| (name, entry.shape.clone()));
    let mut shapes: BTreeMap<&String, Vec<i64>> = shapes.collect();
    if config.tie_word_embeddings && weights.shape(HEAD) == weights.shape(EMBEDDING) {
        // `load_model` compares the two.
        shapes.retain(|name, _| *name != HEAD);
    }
    qwen2::check_shapes(config.tensor_shapes(), shapes).map_err(|error| {
        let path = match &error {
            PolicyError::Unknown(name) | PolicyError::Shape { name, .. } => {
                weights.path_of(name).to_path_buf()
            }
            _ => folder.join(if folder.join(WEIGHTS).exists() { WEIGHTS } else { weights::INDEX }),
        };
        error.within(path)
    })?;
    Ok((config, weights))
}

fn without_model(folder: &Path, error: files::FileError) -> PolicyError {
    match model_folder::without_model(folder) {
        Some(what) => PolicyError::OtherFolder { folder: folder.to_path_buf(), what },
        None => error.into(),
    }
}

const HEAD: &str = "lm_head.weight";
const EMBEDDING: &str = "model.embed_tokens.weight";

/// Some programs write the head of a tied model, too. It is left out where it has the embedding's bits.
fn same_head(weights: &Weights, tensors: &mut BTreeMap<String, Tensor>) -> Result<(), PolicyError> {
    let Some(head) = tensors.remove(HEAD) else { return Ok(()) };
    let bits = |tensor: &Tensor| tensor.view_dtype(Kind::Int).flatten(0, -1);
    let (head, embedding) = (bits(&head), bits(&tensors[EMBEDDING]));
    if head.equal(&embedding) {
        return Ok(());
    }
    let element = head.ne_tensor(&embedding).to_kind(Kind::Int8).argmax(0, false);
    let element = usize::try_from(element.int64_value(&[])).expect("a place in the tensor");
    Err(PolicyError::OtherHead { path: weights.path_of(HEAD).to_path_buf(), element })
}

/// Positions times the width of a head, at most: a table of so many numbers is made before any
/// tensor is used. The longest Qwen2 has 1,010,000 positions and heads of 128.
const MOST_ROTATIONS: i64 = 1 << 28;

fn rotations_fit(config: &Config) -> Result<(), PolicyError> {
    match config.max_position_embeddings.checked_mul(config.head_dim) {
        Some(rotations) if rotations <= MOST_ROTATIONS => Ok(()),
        _ => Err(PolicyError::Unsupported {
            key: "max_position_embeddings".to_string(),
            got: config.max_position_embeddings.to_string(),
            reason: "times head_dim it is larger than that of any Qwen2 model".to_string(),
        }),
    }
}

pub fn save_model(
    folder: &Path,
    parameters: &BTreeMap<String, Tensor>,
    base: &Path,
) -> Result<(), PolicyError> {
    files::create_folder(folder)?;
    for name in COMPANIONS {
        let from = base.join(name);
        if from.exists() {
            let bytes = if name == CONFIG {
                stating_float32(&files::read_text(&from)?).into_bytes()
            } else {
                files::read(&from)?
            };
            files::write_atomic(&folder.join(name), &bytes)?;
        }
    }
    let shapes = parameters.iter().map(|(name, tensor)| (name.clone(), tensor.size()));
    write_each(&folder.join(WEIGHTS), shapes.collect(), &|name| plain(&parameters[name]).1)
}

/// `config.json` says what the written tensors are, under the names of transformers 4 and 5. No other byte changes.
fn stating_float32(config: &str) -> String {
    let stated = |found: &Captures| {
        let dtype = if OTHER_DTYPES.contains(&&found[2]) { FLOAT32 } else { &found[2] };
        format!("{}{dtype}\"", &found[1])
    };
    DTYPE.replace_all(config, stated).into_owned()
}

/// Whether [`save`] writes this `config.json` from a base policy's of that digest.
pub fn is_restated(config: &str, sha256: &str) -> bool {
    let dtypes = || OTHER_DTYPES.into_iter().chain([FLOAT32]);
    let original = |first, second| {
        let mut dtypes = [first, second].into_iter();
        let stated = |found: &Captures| {
            let before = (&found[2] == FLOAT32).then(|| dtypes.next()).flatten();
            format!("{}{}\"", &found[1], before.unwrap_or(&found[2]))
        };
        DTYPE.replace_all(config, stated).into_owned()
    };
    let is_of = |first, second| files::sha256(original(first, second).as_bytes()) == sha256;
    let is_any = |first| dtypes().any(|second| is_of(first, second));
    stating_float32(config) == config && dtypes().any(is_any)
}

const FLOAT32: &str = "float32";

const OTHER_DTYPES: [&str; 5] = ["bfloat16", "float16", "half", "float64", "double"];

static DTYPE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"("(?:torch_)?dtype"\s*:\s*")([a-z0-9]+)""#).expect("a pattern"));

/// Writes a whole checkpoint in one step: either all of it is there or none. Another trainer's moments are not in it.
pub fn save(
    folder: &Path,
    parameters: &BTreeMap<String, Tensor>,
    moments: Option<&dyn Moments>,
    base: &Path,
    progress: &CheckpointProgress,
) -> Result<(), PolicyError> {
    let partial = files::leftovers::partial_folder(folder);
    files::remove_folder(&partial)?;
    save_model(&partial, parameters, base)?;
    if let Some(moments) = moments {
        moments::write(&partial.join(MOMENTS), parameters, moments)?;
    }
    if !progress.carried.is_empty() {
        tables::write_rollouts(&partial.join(CARRIED), &progress.carried)?;
    }
    let mut sha256 = BTreeMap::new();
    for name in files::list(&partial)? {
        let digest = files::sha256_file(&partial.join(&name))?;
        sha256.insert(name, digest);
    }
    let record = TrainerRecord {
        counters: progress.counters,
        prompts_drawn: progress.prompts_drawn,
        optimizer_updates: moments.map_or(0, Moments::updates),
        sha256,
    };
    files::write_json(&partial.join(TRAINER), &record)?;
    Ok(files::replace_folder(&partial, folder)?)
}

/// Loads a checkpoint that [`save`] wrote, every byte compared with its digest.
pub fn load(folder: &Path) -> Result<Loaded, PolicyError> {
    let path = foreign::inside(folder, TRAINER)?;
    let record: TrainerRecord = files::read_json(&path)?;
    record.counts_are_possible(&path)?;
    for (name, written) in &record.sha256 {
        let path = foreign::inside(folder, name)?;
        let (found, written) = (files::sha256_file(&path)?, written.clone());
        if found != written {
            return Err(PolicyError::Damaged { path, found, written });
        }
    }
    let model = load_model(folder)?;
    let has_moments = record.optimizer_updates > 0 || record.sha256.contains_key(MOMENTS);
    let optimizer = if has_moments {
        moments::read(&folder.join(MOMENTS), &model, record.optimizer_updates)?
    } else {
        optimizer::OptimizerState::default()
    };
    let carried = if record.sha256.contains_key(CARRIED) {
        tables::read_rollouts(&folder.join(CARRIED))?
    } else {
        Vec::new()
    };
    let TrainerRecord { counters, prompts_drawn, .. } = record;
    let progress = CheckpointProgress { counters, prompts_drawn, carried };
    Ok(Loaded { model, optimizer, progress })
}

/// The ledger's component `weights` of a policy.
pub fn weights_digest(model: &Qwen2, how: TensorDigest) -> String {
    digests::tensors(digests::shared(model.parameters()), how)
}

/// The ledger's component `moments` of a checkpoint.
pub fn moments_digest(state: &optimizer::OptimizerState, how: TensorDigest) -> String {
    let both = [&state.first_moments, &state.second_moments];
    match how {
        TensorDigest::Bytes => ledger::moments(state.updates, both),
        TensorDigest::OnACard => {
            let tensors = both.map(|moments| {
                moments.iter().map(|(name, values)| (name, Tensor::from_slice(values)))
            });
            digests::moments(state.updates, tensors, how)
        }
    }
}

/// The policy's weights as plain values: name → (shape, values).
pub fn values(model: &Qwen2) -> CheckpointValues {
    model.parameters().iter().map(|(name, tensor)| (name.clone(), plain(tensor))).collect()
}

fn plain(tensor: &Tensor) -> (Vec<i64>, Vec<f32>) {
    (tensor.size(), fast::values(tensor))
}

/// Refuses NaN and infinity: they would spread to every number of a run. So would the root of a second moment below 0.
fn all_finite(path: &Path, name: &str, tensor: &Tensor) -> Result<(), PolicyError> {
    let least = if name.starts_with(moments::SECOND) { 0.0 } else { f32::MIN };
    let fits = tensor.ge(f64::from(least)).logical_and(&tensor.isfinite()).all();
    if bool::try_from(fits).expect("one truth value") {
        return Ok(());
    }
    let values: Vec<f32> = Vec::try_from(tensor.flatten(0, -1)).expect("a dense f32 tensor");
    let fits = |value: &f32| value.is_finite() && *value >= least;
    let element = values.iter().position(|value| !fits(value)).expect("one does not fit");
    let (path, name, value) = (path.to_path_buf(), name.to_string(), values[element]);
    Err(PolicyError::NotFinite { path, name, element, value })
}

/// Every tensor of a safetensors file, as f32.
pub fn read_tensors(path: &Path) -> Result<BTreeMap<String, Tensor>, PolicyError> {
    weights::open(path)?.read()
}

/// Tensors as plain values: name → (shape, values).
pub type CheckpointValues = BTreeMap<String, (Vec<i64>, Vec<f32>)>;

pub fn read_values(path: &Path) -> Result<CheckpointValues, PolicyError> {
    let tensors = read_tensors(path)?;
    Ok(tensors.into_iter().map(|(name, tensor)| (name, plain(&tensor))).collect())
}

/// Writes tensors as f32, in name order and without metadata but the format mark that transformers looks for:
/// the same values give the same bytes. One tensor's bytes are made at a time.
pub fn write_tensors(path: &Path, tensors: &CheckpointValues) -> Result<(), PolicyError> {
    let values = |name: &String| tensors[name].1.clone();
    let shapes = tensors.iter().map(|(name, (shape, _))| (name.clone(), shape.clone()));
    write_each(path, shapes.collect(), &values)
}

fn write_each(
    path: &Path,
    shapes: BTreeMap<String, Vec<i64>>,
    values: &dyn Fn(&String) -> Vec<f32>,
) -> Result<(), PolicyError> {
    let header = header(path, &shapes)?;
    let write = |file: &mut dyn Write| -> io::Result<()> {
        let mut file = io::BufWriter::with_capacity(1 << 20, file);
        file.write_all(&header)?;
        for name in shapes.keys() {
            for value in values(name) {
                file.write_all(&value.to_le_bytes())?;
            }
        }
        file.flush()
    };
    Ok(files::write_atomic_with(path, |file| write(file))?)
}

/// Whether a file begins as [`write_tensors`] begins one of its tensors: a header has room for anybody's words.
pub fn has_written_header(path: &Path) -> Result<bool, PolicyError> {
    let entries = weights::open(path)?.entries.into_iter();
    let expected = header(path, &entries.map(|(name, entry)| (name, entry.shape)).collect())?;
    let (file, _) = foreign::open_regular(path)?;
    let mut found = Vec::new();
    file.take(expected.len() as u64).read_to_end(&mut found).map_err(|source| {
        let path = path.to_path_buf();
        PolicyError::File(files::FileError::Io { action: "read", path, source })
    })?;
    Ok(found == expected)
}

fn header(path: &Path, shapes: &BTreeMap<String, Vec<i64>>) -> Result<Vec<u8>, PolicyError> {
    let mut end = 0;
    let info = |shape: &[i64]| {
        let shape: Vec<usize> = shape.iter().map(|&side| side as usize).collect();
        let start = end;
        end += shape.iter().product::<usize>() * size_of::<f32>();
        TensorInfo { dtype: Dtype::F32, shape, data_offsets: (start, end) }
    };
    let infos: Vec<TensorInfo> = shapes.values().map(|shape| &shape[..]).map(info).collect();
    let named = shapes.keys().cloned().zip(infos).collect();
    #[expect(clippy::disallowed_types, reason = "the crate asks for this map; it has one key")]
    let format = std::collections::HashMap::from([("format".to_string(), "pt".to_string())]);
    let header = Metadata::new(Some(format), named).map_err(|error| PolicyError::Safetensors {
        path: path.to_path_buf(),
        reason: error.to_string(),
    })?;
    let mut header = serde_json::to_vec(&header).expect("names and numbers");
    // The tensors begin at a multiple of eight bytes, as the crate's own writer has it.
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok([&(header.len() as u64).to_le_bytes()[..], &header].concat())
}

#[cfg(test)]
mod tests;
