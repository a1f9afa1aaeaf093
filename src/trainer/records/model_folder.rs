use crate::base::files;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OtherFolder {
    /// Of PEFT: LoRA and the like.
    #[error(
        "its adapter_config.json says that it is an adapter and no whole model; merge the adapter into its base model \
         with PEFT's merge_and_unload and save_pretrained"
    )]
    Adapter,
    #[error(
        "{0} is a GGUF file, which is not read; convert it to safetensors: from_pretrained(FOLDER, gguf_file={0:?}) of \
         transformers, then save_pretrained, for the model and for the tokenizer"
    )]
    Gguf(String),
    #[error(
        "it has {0} and no tokenizer.json; AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) of \
         transformers writes tokenizer.json"
    )]
    SlowTokenizer(&'static str),
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
