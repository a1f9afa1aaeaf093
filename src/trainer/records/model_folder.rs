use crate::base::files;
use std::fmt;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OtherFolder {
    /// Of PEFT: LoRA and the like.
    Adapter,
    /// The name of the file.
    Gguf(String),
    /// The name of the vocabulary.
    SlowTokenizer(&'static str),
}

impl fmt::Display for OtherFolder {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Adapter => formatter.write_str(
                "its adapter_config.json says that it is an adapter and no whole model; merge the adapter into \
                 its base model with PEFT's merge_and_unload and save_pretrained",
            ),
            Self::Gguf(name) => write!(
                formatter,
                "{name} is a GGUF file, which is not read; convert it to safetensors: from_pretrained(FOLDER, \
                 gguf_file={name:?}) of transformers, then save_pretrained, for the model and for the tokenizer"
            ),
            Self::SlowTokenizer(name) => write!(
                formatter,
                "it has {name} and no tokenizer.json; AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) \
                 of transformers writes tokenizer.json"
            ),
        }
    }
}

/// A folder without `config.json` or without weights.
pub fn without_model(folder: &Path) -> Option<OtherFolder> {
    if folder.join("adapter_config.json").exists() {
        return Some(OtherFolder::Adapter);
    }
    let names = files::list(folder).unwrap_or_default();
    names.into_iter().find(|name| name.ends_with(".gguf")).map(OtherFolder::Gguf)
}

/// A folder without `tokenizer.json`.
pub fn without_tokenizer(folder: &Path) -> Option<OtherFolder> {
    const VOCABULARIES: [&str; 3] = ["vocab.json", "tokenizer.model", "spiece.model"];
    let vocabulary = VOCABULARIES.into_iter().find(|name| folder.join(name).exists());
    without_model(folder).or_else(|| vocabulary.map(OtherFolder::SlowTokenizer))
}
