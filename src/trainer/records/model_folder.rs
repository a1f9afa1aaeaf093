use crate::base::files::{self, FileKind};
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
    #[error("it is a file; name the folder that it lies in")]
    File,
    #[error(
        "there is no such folder; models are not fetched: `hf download NAME --local-dir FOLDER` does"
    )]
    Absent,
    #[error("it has no config.json, but {0} in it has one: name that folder")]
    Above(String),
    #[error(
        "it has verl's parts of a model ({0}); python3 -m verl.model_merger makes a folder of Hugging Face of them"
    )]
    VerlShards(String),
}

/// A folder without `config.json` or without weights.
pub fn without_model(folder: &Path) -> Option<OtherFolder> {
    if folder.join("adapter_config.json").exists() {
        return Some(OtherFolder::Adapter);
    }
    match files::kind(folder) {
        Ok(None) => return Some(OtherFolder::Absent),
        Ok(Some(FileKind::File)) => return Some(OtherFolder::File),
        _ => {}
    }
    let names = files::list(folder).unwrap_or_default();
    let named = |is: &dyn Fn(&str) -> bool| names.iter().rfind(|name| is(name)).cloned();
    let has_model = |name: &str| {
        let within = |file| folder.join(name).join(file).exists();
        within("config.json")
            && (within("model.safetensors") || within("model.safetensors.index.json"))
    };
    named(&|name| name.ends_with(".gguf"))
        .map(OtherFolder::Gguf)
        .or_else(|| {
            named(&|name| name.starts_with("model_world_size_")).map(OtherFolder::VerlShards)
        })
        .or_else(|| named(&has_model).map(OtherFolder::Above))
}

/// A folder without `tokenizer.json`.
pub fn without_tokenizer(folder: &Path) -> Option<OtherFolder> {
    const VOCABULARIES: [&str; 3] = ["vocab.json", "tokenizer.model", "spiece.model"];
    let vocabulary = VOCABULARIES.into_iter().find(|name| folder.join(name).exists());
    without_model(folder).or_else(|| vocabulary.map(OtherFolder::SlowTokenizer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_name_in_place_of_a_models_folder_is_told() {
        for (made, named, words) in [
            ("a/model.safetensors", "a/model.safetensors", "it is a file; name the folder"),
            ("a/b", "Qwen/Qwen2.5-0.5B", "models are not fetched: `hf download "),
            ("a/model_world_size_1_rank_0.pt", "a", "verl's parts of a model"),
            ("a/w.gguf", "a", "w.gguf is a GGUF file"),
            ("a/adapter_config.json", "a", "it is an adapter and no whole model"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            files::write_atomic(&folder.path().join(made), b"").unwrap();
            let told = without_model(&folder.path().join(named)).unwrap().to_string();
            assert!(told.contains(words), "{named}: {told}");
        }
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(without_model(folder.path()), None);
        for name in ["config.json", "model.safetensors"] {
            files::write_atomic(&folder.path().join("checkpoint-9").join(name), b"").unwrap();
        }
        assert_eq!(without_model(folder.path()), Some(OtherFolder::Above("checkpoint-9".into())));
    }
}
