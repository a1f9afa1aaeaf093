//! Reading golden data.

use serde::de::DeserializeOwned;
use std::path::Path;
use std::path::PathBuf;

/// The repository's golden folder.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

/// The cases in a golden folder: its subfolders, sorted; at least one.
pub fn cases(name: &str) -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = dapo::files::list(&folder(name))
        .unwrap()
        .into_iter()
        .map(|case| folder(name).join(case))
        .filter(|path| path.is_dir())
        .collect();
    cases.sort();
    assert!(!cases.is_empty(), "golden/{name} holds no cases");
    cases
}

/// A JSON file of a golden folder.
pub fn read<T: DeserializeOwned>(path: &Path) -> T {
    dapo::files::read_json(path).unwrap()
}
