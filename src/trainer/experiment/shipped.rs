//! Experiments, grids and base policy in the program: a name is the same anywhere. A file of the same path wins.

use crate::algorithm::methods;
use crate::base::files::{self, FileError, FileKind};
use std::path::{Path, PathBuf};

pub const GRIDS: &str = "experiments/grids";

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

pub fn methods() -> impl Iterator<Item = (String, &'static str)> {
    let path = |kind: &&str| format!("experiments/methods/{kind}.toml");
    methods::KINDS.iter().map(path).zip(methods::ARMS.iter().copied())
}

/// Paths and texts of all experiments and grids; the paths start from the root of the repository.
pub fn all() -> impl Iterator<Item = (String, &'static str)> {
    let own = ARMS.iter().chain(&OTHERS).map(|(path, text)| (path.to_string(), *text));
    own.chain(methods())
}

pub fn text(path: &Path) -> Option<&'static str> {
    all().find(|(own, _)| path == Path::new(own)).map(|(_, text)| text)
}

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

/// `model`; the embedded benchmark's, if it is not here or is a temporary one, is [`write_model`]'s.
pub fn model_folder(model: &Path) -> Result<PathBuf, FileError> {
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    let is_temporary = name.starts_with(TEMPORARY) && name.ends_with(&digest());
    if is_temporary || (model == Path::new(MODEL_FOLDER) && !model.exists()) {
        return write_model();
    }
    Ok(model.to_path_buf())
}

const TEMPORARY: &str = "dapo-base-";

fn digest() -> String {
    let digests = MODEL.map(|(_, bytes)| files::sha256(bytes)).concat();
    files::sha256(digests.as_bytes())[..12].to_string()
}

/// Writes it to a temporary folder of this user, where it is not there already. Errors: a folder that cannot be used.
pub fn write_model() -> Result<PathBuf, FileError> {
    write_model_in(&std::env::temp_dir())
}

fn write_model_in(temporary: &Path) -> Result<PathBuf, FileError> {
    let user = rustix::process::geteuid().as_raw();
    let folder = temporary.join(format!("{TEMPORARY}{user}-{}", digest()));
    files::private_folder(&folder)?;
    for (name, bytes) in MODEL {
        let path = folder.join(name);
        let is_there = files::kind(&path)? == Some(FileKind::File)
            && files::sha256_file(&path)? == files::sha256(bytes);
        if !is_there {
            files::write_atomic(&path, bytes)?;
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{extends, grid::file};
    use std::os::unix::fs::symlink;

    #[test]
    fn the_temporary_model_is_private_and_made_again_where_it_is_another() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = write_model_in(temporary.path()).unwrap();
        let file = folder.join("config.json");
        let state = files::state(&file).unwrap();
        write_model_in(temporary.path()).unwrap();
        assert_eq!(files::state(&file).unwrap(), state);
        files::write_atomic(&file, b"{}").unwrap();
        write_model_in(temporary.path()).unwrap();
        assert_eq!(files::read(&file).unwrap(), MODEL[0].1);
        assert_eq!(model_folder(Path::new("a/model")).unwrap(), Path::new("a/model"));
        let gone = format!("nowhere/{TEMPORARY}7-{}", digest());
        assert!(model_folder(Path::new(&gone)).unwrap().is_dir());

        let other = tempfile::tempdir().unwrap();
        symlink(&folder, other.path().join(folder.file_name().unwrap())).unwrap();
        let error = write_model_in(other.path()).unwrap_err().to_string();
        assert!(error.contains("not a folder of yours"), "{error}");
        for refused in ["nowhere", "/proc"] {
            let error = write_model_in(Path::new(refused)).unwrap_err().to_string();
            assert!(error.contains("TMPDIR"), "{error}");
        }
    }

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
        for (path, _) in all() {
            let path = Path::new(&path);
            if path.starts_with(GRIDS) {
                file::load(path).unwrap();
            } else {
                extends::load(path).unwrap();
            }
        }
    }
}
