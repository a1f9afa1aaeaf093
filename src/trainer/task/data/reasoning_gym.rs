//! Problems of the Python package reasoning-gym as files, and the program that grades by its datasets' scorers.

use crate::base::{files, python};
use crate::task::TaskError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const SCRIPT: &str = include_str!("reasoning_gym.py");
const REWARD: &str = include_str!("reasoning_gym_reward.py");

/// Name of the program among the files.
pub const PROGRAM: &str = "reward.py";

/// What is asked of the package.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GymRequest {
    pub datasets: Vec<String>,
    /// Of each dataset: for training, to evaluate during training, and at the end.
    pub sizes: [u64; 3],
    pub seed: u64,
    /// Of the datasets' configurations.
    pub settings: Map<String, Value>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct GymFiles {
    pub version: String,
    /// Problems that came twice, and those whose own answer does not get a full score: left out.
    pub repeated: u64,
    pub unscored: u64,
    /// File and number of problems: train.jsonl, dev.jsonl, and DATASET.jsonl of each dataset to test on.
    pub sets: BTreeMap<PathBuf, usize>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Printed {
    Problem { set: String, dataset: String, problem: Value },
    Version { version: String },
    LeftOut { repeated: u64, unscored: u64 },
}

pub fn is_program(file: &Path) -> bool {
    files::read_text_up_to(file, 1 << 20)
        .is_ok_and(|text| text.lines().next() == REWARD.lines().next())
}

/// Writes problems and program. Errors: no package, an unknown dataset or setting, too few different problems.
pub fn write(request: &GymRequest, python: &str, out: &Path) -> Result<GymFiles, TaskError> {
    let failed = |reason: String| TaskError::Program { path: python.into(), reason };
    let input = serde_json::to_vec(request).expect("a request is representable in JSON");
    let printed = python::output_of(python, SCRIPT, &input).map_err(failed)?;
    let mut written = GymFiles::default();
    let mut sets: BTreeMap<PathBuf, Vec<Value>> = BTreeMap::new();
    for line in printed.lines() {
        match serde_json::from_str(line).map_err(|error| failed(format!("{error}: {line}")))? {
            Printed::Version { version } => written.version = version,
            Printed::LeftOut { repeated, unscored } => {
                (written.repeated, written.unscored) = (repeated, unscored);
            }
            Printed::Problem { set, dataset, problem } => {
                let name = if set == "test" { dataset } else { set };
                sets.entry(out.join(format!("{name}.jsonl"))).or_default().push(problem);
            }
        }
    }
    for (path, problems) in sets {
        files::write_lines(&path, &problems)?;
        written.sets.insert(path, problems.len());
    }
    files::write_atomic(&out.join(PROGRAM), REWARD.as_bytes())?;
    Ok(written)
}
