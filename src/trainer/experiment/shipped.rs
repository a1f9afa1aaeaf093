//! Experiments, grids and base policy in the program: a name is the same anywhere. A file of the same path wins.

use crate::algorithm::methods;
use crate::base::files::{self, FileError};
use std::path::{Path, PathBuf};

type Shipped = (&'static str, &'static str);

macro_rules! shipped {
    ($($path:literal)*) => {
        [$((concat!("experiments/", $path), include_str!(concat!("../experiments/", $path)))),*]
    };
}

pub const BASE: Shipped = shipped!["base.toml"][0];

/// Arms that are no method with a file of its own.
pub const ARMS: [Shipped; 8] = shipped![
    "dapo.toml" "arms/clip-higher.toml" "arms/dynamic-sampling.toml" "arms/token-level-loss.toml"
    "arms/overlong-filtering.toml" "arms/soft-overlong-punishment.toml" "methods/2-grpo.toml" "methods/luspo.toml"
];

/// Grids, the experiments that they alone begin with, and that of `dapo bench`.
const OTHERS: [Shipped; 15] = shipped![
    "grids/add-one.toml" "grids/engines.toml" "grids/engines-2.toml" "grids/fidelity.toml" "grids/held-out.toml"
    "grids/ladder.toml" "grids/learning-rate.toml" "grids/leave-one-out.toml" "grids/methods.toml"
    "grids/mismatch.toml" "engines/grpo.toml" "engines/verl-grpo.toml" "more-products.toml" "bench.toml" "base.toml"
];

/// Paths and texts of arms that stand in their method's file.
pub fn methods() -> impl Iterator<Item = (String, &'static str)> {
    let path = |file: &&str| format!("experiments/methods/{}.toml", file.replace('_', "-"));
    methods::FILES.iter().map(path).zip(methods::ARMS.iter().copied())
}

pub fn paths() -> Vec<String> {
    let own = ARMS.iter().chain(&OTHERS).map(|(path, _)| (*path).to_string());
    own.chain(methods().map(|(path, _)| path)).collect()
}

/// The text of an experiment or a grid, by its path from the root of the repository.
pub fn text(path: &Path) -> Option<&'static str> {
    let own = ARMS.iter().chain(&OTHERS).find(|(own, _)| path == Path::new(own));
    let of_method = || methods().find(|(own, _)| path == Path::new(own)).map(|(_, text)| text);
    own.map(|(_, text)| *text).or_else(of_method)
}

/// The file's name without its ending.
pub fn name(path: &str) -> String {
    Path::new(path).file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The folder of the embedded benchmark's base policy, from the root of the repository.
const MODEL_FOLDER: &str = "golden/mini-aime/base";

/// The embedded benchmark's base policy: file name → content.
pub const MODEL: [(&str, &[u8]); 5] = [
    ("config.json", include_bytes!("../golden/mini-aime/base/config.json")),
    ("generation_config.json", include_bytes!("../golden/mini-aime/base/generation_config.json")),
    ("model.safetensors", include_bytes!("../golden/mini-aime/base/model.safetensors")),
    ("tokenizer.json", include_bytes!("../golden/mini-aime/base/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../golden/mini-aime/base/tokenizer_config.json")),
];

/// `model`; the embedded benchmark's, if it is not here, is written to a temporary folder. Errors: a failed write.
pub fn model_folder(model: &Path) -> Result<PathBuf, FileError> {
    if model == Path::new(MODEL_FOLDER) && !model.exists() {
        return write_model();
    }
    Ok(model.to_path_buf())
}

/// Errors: a folder that cannot be written.
pub fn write_model() -> Result<PathBuf, FileError> {
    let digests = MODEL.map(|(_, bytes)| files::sha256(bytes)).concat();
    let digest = files::sha256(digests.as_bytes());
    let folder = std::env::temp_dir().join(format!("dapo-base-{}", &digest[..12]));
    for (name, bytes) in MODEL {
        files::write_atomic(&folder.join(name), bytes)?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{extends, grid::file};

    #[test]
    fn the_program_has_every_arm_and_grid_that_a_name_finds_in_the_repository() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        for folder in ["experiments/arms", "experiments/methods", "experiments/grids"] {
            let names = files::list(&root.join(folder)).unwrap();
            for name in names.iter().filter(|name| name.ends_with(".toml")) {
                let path = Path::new(folder).join(name);
                let stored = files::read_text(&root.join(&path)).unwrap();
                assert_eq!(text(&path), Some(stored.as_str()), "{}", path.display());
            }
        }
        for path in paths() {
            let path = Path::new(&path);
            if path.starts_with(file::SHIPPED) {
                file::load(path).unwrap();
            } else {
                extends::load(path).unwrap();
            }
        }
    }
}
