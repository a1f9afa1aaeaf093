//! Reading golden data.

use dapo::experiment::{Optimizer, WarmUp, WarmUpStart};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

/// The cases in a golden folder: its subfolders, sorted; at least one.
pub fn cases(name: &str) -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = dapo::base::files::list(&folder(name))
        .unwrap()
        .into_iter()
        .map(|case| folder(name).join(case))
        .filter(|path| path.is_dir())
        .collect();
    cases.sort();
    assert!(!cases.is_empty(), "golden/{name} holds no cases");
    cases
}

pub fn read<T: DeserializeOwned>(path: &Path) -> T {
    dapo::base::files::read_json(path).unwrap()
}

/// AdamW's settings as the generators write them; none of them warms up.
#[derive(Deserialize)]
pub struct AdamWSettings {
    pub learning_rate: f64,
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    weight_decay: f64,
    max_gradient_norm: f64,
}

impl AdamWSettings {
    pub fn optimizer(&self) -> Optimizer {
        Optimizer {
            learning_rate: self.learning_rate,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            weight_decay: self.weight_decay,
            max_gradient_norm: self.max_gradient_norm,
            non_finite: None,
            warm_up: WarmUp { rollout_steps: 0, start: WarmUpStart::FirstStep },
        }
    }
}
