use crate::base::files;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OtherFolder {
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
    #[error("it is no folder; name the folder of a model")]
    NoFolder,
    #[error("it is a run; name its last checkpoint, {0} of it")]
    Run(String),
    #[error("it is a run without a checkpoint; name the folder of a model")]
    RunWithout,
    #[error(
        "there is no such folder; models are not fetched: `hf download NAME --local-dir FOLDER` does"
    )]
    Absent,
    #[error("the model lies in {0} of it: name that folder")]
    Above(String),
    #[error("{count} folders of it have a model each: name one of them, {newest} for example")]
    AboveSeveral { newest: String, count: usize },
    #[error(
        "verl's parts of its model lie in {0}; python3 -m verl.model_merger makes a folder of Hugging Face of them"
    )]
    VerlShards(String),
    #[error(
        "it has {0} and no model.safetensors.index.json, which says what lies in which file; fetch that file, too"
    )]
    NoIndex(String),
    #[error(
        "it has {0} and no model.safetensors; rename the file where its tensors have the names of transformers \
         (model.embed_tokens.weight), else let save_pretrained of transformers write the folder"
    )]
    OtherWeights(String),
}

pub fn adapter(folder: &Path) -> Option<OtherFolder> {
    folder.join("adapter_config.json").exists().then_some(OtherFolder::Adapter)
}

/// A folder without `config.json` or without weights.
pub fn without_model(folder: &Path) -> Option<OtherFolder> {
    let own_name = folder.file_name().unwrap_or_default().to_string_lossy();
    let names = files::list(folder).unwrap_or_default();
    let named = |is: &dyn Fn(&str) -> bool| names.iter().rfind(|name| is(name)).cloned();
    let is_gguf = |name: &str| name.ends_with(".gguf");
    if folder.is_file() {
        let is_gguf = is_gguf(&own_name);
        return Some(if is_gguf { OtherFolder::Gguf(own_name.into()) } else { OtherFolder::File });
    }
    if !folder.exists() {
        return Some(OtherFolder::Absent);
    }
    if !folder.is_dir() {
        return Some(OtherFolder::NoFolder);
    }
    adapter(folder)
        .or_else(|| named(&is_gguf).map(OtherFolder::Gguf))
        .or_else(|| verl_shards(folder).map(OtherFolder::VerlShards))
        .or_else(|| run(folder))
        .or_else(|| below(folder, &names))
        .or_else(|| weights_of_other_names(folder, &names))
}

/// verl's FSDP checkpoints are `global_step_N/actor`, with `huggingface` for the configuration and the tokenizer.
fn verl_shards(folder: &Path) -> Option<String> {
    ["", "actor", ".."].into_iter().find_map(|place| {
        let names = files::list(&folder.join(place)).unwrap_or_default();
        let shard = names.into_iter().rfind(|name| name.starts_with("model_world_size_"))?;
        Some(Path::new(place).join(shard).display().to_string())
    })
}

fn run(folder: &Path) -> Option<OtherFolder> {
    let is_run = ["experiment.json", "manifest.json"].map(|name| folder.join(name).exists());
    let checkpoints = files::list(&folder.join("checkpoints")).unwrap_or_default();
    let steps = checkpoints.into_iter().filter(|name| name.starts_with("step-"));
    let last = steps.max_by_key(|name| trailing_number(name));
    let last = last.map(|name| OtherFolder::Run(format!("checkpoints/{name}")));
    is_run.contains(&true).then(|| last.unwrap_or(OtherFolder::RunWithout))
}

fn below(folder: &Path, names: &[String]) -> Option<OtherFolder> {
    let snapshots = files::list(&folder.join("snapshots")).unwrap_or_default();
    let snapshots = snapshots.into_iter().map(|name| format!("snapshots/{name}"));
    let is_model = |folder: &Path| folder.join("config.json").exists() && has_weights(folder);
    let is_below = |name: &String| is_model(&folder.join(name)) && !is_model(folder);
    let models = names.iter().cloned().chain(snapshots).filter(is_below);
    let mut models = Vec::from_iter(models.map(|name| (trailing_number(&name), name)));
    models.sort_unstable();
    let count = models.len();
    let (_, newest) = models.pop()?;
    Some(if count == 1 {
        OtherFolder::Above(newest)
    } else {
        OtherFolder::AboveSeveral { newest, count }
    })
}

fn trailing_number(name: &str) -> Option<u64> {
    name[name.trim_end_matches(|digit: char| digit.is_ascii_digit()).len()..].parse().ok()
}

pub fn has_weights(folder: &Path) -> bool {
    ["model.safetensors", "model.safetensors.index.json"]
        .iter()
        .any(|name| folder.join(name).exists())
}

fn weights_of_other_names(folder: &Path, names: &[String]) -> Option<OtherFolder> {
    let mut files = names.iter().filter(|name| name.ends_with(".safetensors")).cloned();
    let file = files.next().filter(|_| !has_weights(folder))?;
    let is_part = file.starts_with("model-") && file.contains("-of-");
    Some(if is_part { OtherFolder::NoIndex(file) } else { OtherFolder::OtherWeights(file) })
}

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
        let model = |folder: &str| format!("{folder}/config.json {folder}/model.safetensors");
        let several = format!("{} {}", model("a/checkpoint-50"), model("a/checkpoint-100"));
        for (made, named, words) in [
            ("a/model.safetensors", "a/model.safetensors", "it is a file; name the folder"),
            ("a/w.gguf", "a/w.gguf", "w.gguf is a GGUF file"),
            ("a/b", "Qwen/Qwen2.5-0.5B", "models are not fetched: `hf download "),
            ("a/model_world_size_1_rank_0.pt", "a", "parts of its model lie in model_world_size_1"),
            ("a/actor/model_world_size_1_rank_0.pt", "a", "lie in actor/model_world_size_1"),
            (
                "a/model_world_size_1_rank_0.pt a/huggingface/config.json",
                "a/huggingface",
                "lie in ../model_world_size_1",
            ),
            ("a/w.gguf", "a", "w.gguf is a GGUF file"),
            ("a/adapter_config.json", "a", "it is an adapter and no whole model"),
            ("a/config.json a/model-00001-of-00002.safetensors", "a", "and no model.safetensors.i"),
            ("a/config.json a/consolidated.safetensors", "a", "it has consolidated.safetensors an"),
            ("a/config.json a/model.fp16.safetensors", "a", "it has model.fp16.safetensors and no"),
            (&model("a/snapshots/abc"), "a", "the model lies in snapshots/abc of it"),
            (&model("a/checkpoint-9"), "a", "the model lies in checkpoint-9 of it: name that fold"),
            (
                "a/manifest.json a/checkpoints/step-000009/x a/checkpoints/step-000010/x",
                "a",
                "it is a run; name its last checkpoint, checkpoints/step-000010 of it",
            ),
            ("a/experiment.json", "a", "it is a run without a checkpoint"),
            (&several, "a", "2 folders of it have a model each: name one of them, checkpoint-100 "),
        ] {
            let folder = tempfile::tempdir().unwrap();
            for made in made.split(' ') {
                files::write_atomic(&folder.path().join(made), b"").unwrap();
            }
            let told = without_model(&folder.path().join(named)).unwrap().to_string();
            assert!(told.contains(words), "{named}: {told}");
        }
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(without_model(folder.path()), None);
        assert_eq!(without_model(Path::new("/dev/null")), Some(OtherFolder::NoFolder));
    }
}
