//! Runs grids: every arm with every seed as a process of its own, each leaving a cell's record.
//!
//! ```text
//! STUDY/grids/<grid>.json          resolved grids
//! STUDY/cells/<id>.json            records: what reports, resume and statistics read
//! STUDY/runs/<name>-seed<n>-<key>/ run folders
//! STUDY/experiments/<run>.json     what the processes are given
//! STUDY/ablate.lock                held while cells are run
//! ```
//!
//! A record or a run folder that cannot be used is renamed to `….set-aside-<n>`, never deleted.

pub mod jobs;
pub mod process;
pub mod schedule;
pub mod summary;

use crate::base::{Lock, files};
use crate::experiment::{Grid, grid};
use crate::study::cell;
use crate::training::run;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// A study that cannot be worked on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system refused.
    #[error(transparent)]
    File(#[from] files::Error),
    /// A grid.
    #[error(transparent)]
    Grid(#[from] grid::Error),
    /// A record that cannot be written.
    #[error(transparent)]
    Cell(#[from] cell::Error),
    /// An arm that cannot run here.
    #[error("arm {arm}: {source}")]
    Arm {
        /// `<grid>/<arm>`.
        arm: String,
        /// Why.
        source: Box<run::Error>,
    },
    /// Two grids of one name.
    #[error("two grids are named {name}; their results would be one")]
    SameName {
        /// The name.
        name: String,
    },
    /// Two grids that would share a cell although they read other files.
    #[error(
        "{first} and {second} are the same arm on other inputs; their grids cannot share a study"
    )]
    SharedArm {
        /// `<grid>/<arm>`.
        first: String,
        /// `<grid>/<arm>`.
        second: String,
    },
    /// A record of the same arm and seed that was made from other data or another base policy.
    #[error(
        "{}: this cell was made from other inputs ({what}); use another --out, or bring back the inputs", path.display()
    )]
    OtherInputs {
        /// The record.
        path: PathBuf,
        /// Which inputs.
        what: String,
    },
    /// Another process runs cells of this study.
    #[error("{} is in use by another `dapo ablate`", study.display())]
    InUse {
        /// The study.
        study: PathBuf,
    },
    /// No process can be started.
    #[error("cannot start {}: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}

/// A folder of cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Study {
    root: PathBuf,
}

impl Study {
    /// A study at `root`, which need not exist yet.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Records.
    pub fn cells(&self) -> PathBuf {
        self.root.join("cells")
    }

    /// Run folders.
    pub fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// What a run's process is given.
    pub fn experiment(&self, run: &str) -> PathBuf {
        self.root.join("experiments").join(format!("{run}.json"))
    }

    /// Takes hold of the study.
    ///
    /// # Errors
    /// When another process has it, or the folder cannot be made.
    pub fn lock(&self) -> Result<Lock, Error> {
        files::create_folder(&self.root)?;
        let lock = files::lock(&self.root.join("ablate.lock"))?;
        lock.ok_or_else(|| Error::InUse { study: self.root.clone() })
    }

    /// Writes a grid into the study. Seeds that an earlier call ran with the same arms stay.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn keep(&self, grid: &Grid) -> Result<(), Error> {
        let identity = |grid: &Grid| -> Vec<(String, String)> {
            grid.arms.iter().map(|arm| (arm.name.clone(), arm.arm_sha256.clone())).collect()
        };
        let mut grid = grid.clone();
        // One that cannot be read, or is of other arms, is replaced.
        if let Ok(known) = Grid::read(&Grid::path(&self.root, &grid.name))
            && identity(&known) == identity(&grid)
        {
            let seeds: BTreeSet<u64> = known.seeds.into_iter().chain(grid.seeds).collect();
            grid.seeds = seeds.into_iter().collect();
        }
        grid.write(&self.root)?;
        Ok(())
    }
}
