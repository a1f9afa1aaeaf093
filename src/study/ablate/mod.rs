//! Runs grids: each arm with each seed is a process of its own and leaves a cell's record.
//! ```text
//! STUDY/grids/<grid>.json          resolved grids
//! STUDY/cells/<id>.json            records: what reports, resume and statistics read
//! STUDY/runs/<name>-seed<n>-<key>/ run folders
//! STUDY/experiments/<run>.json     the processes' experiment files
//! STUDY/cells.jsonl                cells by number, for `dapo cell run`
//! STUDY/declared.json              what was so when the declaration was put here
//! STUDY/ablate.lock                held while cells are run or handed on
//! ```
//! A record or a run folder that cannot be used is renamed to `….set-aside-<n>`, never deleted.

pub mod jobs;
pub mod listing;
pub mod process;
pub mod recording;
pub mod schedule;

use crate::base::{Lock, files};
use crate::experiment::Grid;
use crate::study::StudyError;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AblateStudy {
    root: PathBuf,
}

impl AblateStudy {
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn cells(&self) -> PathBuf {
        self.root.join("cells")
    }

    pub fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    pub fn experiment(&self, run: &str) -> PathBuf {
        self.root.join("experiments").join(format!("{run}.json"))
    }

    pub fn lock(&self) -> Result<Lock, StudyError> {
        files::create_folder(&self.root)?;
        let lock = files::locks::lock(&self.root.join("ablate.lock"))?;
        lock.ok_or_else(|| StudyError::InUse { study: self.root.clone() })
    }

    /// Seeds that an earlier call ran with the same arms stay in the grid.
    pub fn keep(&self, grid: &Grid) -> Result<(), StudyError> {
        self.with_kept_seeds(grid)?.write(&self.root)?;
        Ok(())
    }

    pub fn with_kept_seeds(&self, grid: &Grid) -> Result<Grid, StudyError> {
        let identity = |grid: &Grid| -> Vec<(String, String)> {
            grid.arms.iter().map(|arm| (arm.name.clone(), arm.arm_sha256.clone())).collect()
        };
        let mut grid = grid.clone();
        // A grid that cannot be read, or has other arms, is replaced.
        match Grid::read(&Grid::path(&self.root, &grid.name)) {
            Err(error) if files::is_unread(&error) => return Err(error.into()),
            Ok(known) if identity(&known) == identity(&grid) => {
                let seeds: BTreeSet<u64> = known.seeds.into_iter().chain(grid.seeds).collect();
                grid.seeds = seeds.into_iter().collect();
            }
            _ => {}
        }
        Ok(grid)
    }
}
