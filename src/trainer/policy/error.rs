use crate::base::files;
use crate::experiment::place;
use crate::numerics::NumericsError;
use crate::records::{model_folder, tables};
use std::path::PathBuf;

/// A policy that cannot be read, placed or asked.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error(transparent)]
    File(#[from] files::FileError),
    #[error(transparent)]
    Table(#[from] tables::TableError),
    #[error(transparent)]
    Numerics(#[from] NumericsError),
    #[error("{}: {source}", path.display())]
    In { path: PathBuf, source: Box<PolicyError> },
    #[error("{}: {reason}", path.display())]
    Invalid { path: PathBuf, reason: String },
    #[error("{}: not a valid safetensors file: {reason}", path.display())]
    Safetensors { path: PathBuf, reason: String },
    #[error("{}: a pickle is a program and is not read; convert it to safetensors", path.display())]
    Pickled { path: PathBuf },
    #[error("{}: {what}", folder.display())]
    OtherFolder { folder: PathBuf, what: model_folder::OtherFolder },
    #[error(
        "{}: lm_head.weight is not the embedding (they differ at element {element}), and tie_word_embeddings of \
         config.json says that it is; state false there to use this head, or leave the tensor out",
        path.display()
    )]
    OtherHead { path: PathBuf, element: usize },
    #[error("{}: tensor {name} has type {dtype}, expected F32, BF16 or F16; from_pretrained(FOLDER, dtype=\"float32\") and save_pretrained of transformers convert it", path.display())]
    Dtype { path: PathBuf, name: String, dtype: String },
    /// A weight or a moment that is NaN or infinite, or a mean of squares below 0.
    #[error("{}: tensor {name} holds {value} at element {element}", path.display())]
    NotFinite { path: PathBuf, name: String, element: usize, value: f32 },
    #[error("{}: tensor {name} has shape {shape:?}, which no tensor of a policy has", path.display())]
    Size { path: PathBuf, name: String, shape: Vec<usize> },
    #[error("{}: {key} = {count}, which no run counts to", path.display())]
    Count { path: PathBuf, key: &'static str, count: u64 },
    #[error("{}: damaged: its SHA-256 is {found}, trainer.json says {written}", path.display())]
    Damaged { path: PathBuf, found: String, written: String },
    #[error("tensor {0} is missing")]
    Missing(String),
    #[error(
        "tensor {name} is missing, and {found} is there; give the tensors the names that save_pretrained of \
         AutoModelForCausalLM writes"
    )]
    OtherName { name: String, found: String },
    #[error("tensor {0} is not part of this architecture")]
    Unknown(String),
    #[error("tensor {name} has shape {got:?}, expected {want:?}")]
    Shape { name: String, got: Vec<i64>, want: Vec<i64> },
    /// A key of `config.json`.
    #[error("{key} must be {expected}, got {got}")]
    Key { key: String, expected: &'static str, got: String },
    #[error("{key} = {got} is not supported: {reason}")]
    Unsupported { key: String, got: String, reason: String },
    #[error(
        "{device} was asked for, and the LibTorch in {} was built without CUDA. Set LD_LIBRARY_PATH \
         to the lib folder of LibTorch 2.11 for CUDA; torch/lib of the Python package torch 2.11 is \
         one",
        folder.display()
    )]
    NoCuda { device: place::Device, folder: PathBuf },
    #[error(
        "{device} was asked for, and LibTorch finds {cards} CUDA devices, numbered from 0; \
         `nvidia-smi` says which ones the driver sees"
    )]
    NoCard { device: place::Device, cards: i64 },
    #[error("prompt {index} has no tokens")]
    EmptyPrompt { index: usize },
    #[error(
        "prompt {index} has {prompt_tokens} tokens; with {response_tokens} response tokens that exceeds the model's {positions} positions"
    )]
    TooLong { index: usize, prompt_tokens: usize, response_tokens: usize, positions: usize },
    #[error("prompt {index} holds token {token}, the vocabulary has {vocabulary}")]
    Vocabulary { index: usize, token: u32, vocabulary: usize },
    #[error("prompt {index}: the logits of response token {token} are not finite")]
    Logits { index: usize, token: usize },
}

impl PolicyError {
    /// The error, with the file that holds what is wrong.
    pub fn within(self, path: PathBuf) -> Self {
        Self::In { path, source: Box::new(self) }
    }
}

/// An update that was not made, because of its numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptimizerError {
    #[error("the gradient of {tensor} is not finite at element {index} of {count}")]
    NotFinite { tensor: String, index: usize, count: usize },
    /// Gradients that are finite and whose squares are not, in f32.
    #[error("the gradient's norm is infinite")]
    NormOverflow,
    #[error("the update would make the {what} of {tensor} NaN or infinite")]
    Overflow { what: &'static str, tensor: String },
    /// Finite weights whose products are not, such as one with the norm before it.
    #[error("the update would make products of the weights infinite")]
    Products,
}
