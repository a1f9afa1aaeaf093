//! A study: grids, the cells that their arms left, and what was declared beforehand. Everything
//! that reports and claims say of more than one run is computed here, from `grids/` and
//! `cells/` alone.
//!
//! ```text
//! runs/ablate/
//!   grids/<grid>.json   resolved grids
//!   cells/<id>.json     records of finished runs
//!   study.json          the declaration; optional
//! ```
//!
//! An arm is named `<grid>/<arm>`. Several grids share the cells: a cell belongs to every arm
//! that has its hash. Nothing depends on the order in which files are found.

pub mod analysis;
pub mod arms;
pub mod comparisons;
pub mod curves;
pub mod declaration;
pub mod judgement;
pub mod levels;
pub mod membership;
pub mod metric;
pub mod problems;
pub mod window;

use crate::cell;
use crate::cell::Cell;
use crate::files;
use crate::grid;
use crate::grid::Arm;
use crate::grid::Grid;
use crate::study::declaration::Declaration;
use crate::study::membership::Excluded;
use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

/// Sets that an undeclared analysis looks at.
const PRIMARY_SET: &str = "mini-aime-plus";
const CURVE_SET: &str = "dev";

/// Grids of this project in the order of reports; others follow by name.
const ORDER: [&str; 6] =
    ["ladder", "add-one", "leave-one-out", "fidelity", "held-out", "learning-rate"];

/// What every verdict has to say, because no seed of a study has a base of its own.
pub const SHARED_BASE: &str = "all runs start from one base checkpoint: intervals and tests are \
about another training run from this base, not about another base";

/// A study that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be read.
    #[error(transparent)]
    File(#[from] files::Error),
    /// A grid cannot be used.
    #[error(transparent)]
    Grid(#[from] grid::Error),
    /// A file contradicts itself.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The file or folder.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
}

/// A study, read and sorted.
#[derive(Debug, Clone)]
pub struct Study {
    /// What was declared, or what stands in its place.
    pub declaration: Declaration,
    /// In the order of reports.
    pub grids: Vec<Grid>,
    /// Every record that could be read, by file name.
    pub cells: Vec<Cell>,
    /// `<grid>/<arm>` → its cells that count, as indices of `cells`, by seed.
    members: BTreeMap<String, Vec<usize>>,
    /// What does not count, and why.
    pub excluded: Vec<Excluded>,
}

/// Reads a study folder.
///
/// The declaration is the given file, else the folder's `study.json`, else none.
///
/// # Errors
/// A folder without grids, a grid or a declaration that cannot be used. Single cells that cannot
/// be read are listed in [`Study::excluded`].
pub fn load(folder: &Path, declared: Option<&Path>) -> Result<Study, Error> {
    let invalid =
        |reason: &str| Error::Invalid { path: folder.to_path_buf(), reason: reason.to_string() };
    let grids_folder = folder.join("grids");
    if !grids_folder.is_dir() {
        return Err(invalid("is no study: it has no folder `grids`"));
    }
    let mut grids = Vec::new();
    for name in files::list(&grids_folder)?.into_iter().filter(|name| name.ends_with(".json")) {
        let path = files::foreign::inside(&grids_folder, &name)?;
        let grid = Grid::read(&path)?;
        if format!("{}.json", grid.name) != name {
            let reason = format!("the grid's own name is `{}`", grid.name);
            return Err(Error::Invalid { path, reason });
        }
        grids.push(grid);
    }
    if grids.is_empty() {
        return Err(invalid("is no study: its folder `grids` has no grid"));
    }
    let copy = folder.join("study.json");
    let declaration = match declared {
        Some(path) => Some(declaration::load(path)?),
        None if copy.is_file() => Some(declaration::load(&copy)?),
        None => None,
    };
    let cells_folder = folder.join("cells");
    let (cells, refused) = match cells_folder.is_dir() {
        true => cell::read_folder(&cells_folder)?,
        false => (Vec::new(), Vec::new()),
    };
    let mut study = Study::new(grids, cells, declaration);
    study.excluded.extend(refused.iter().map(Excluded::unreadable));
    study.excluded.sort();
    Ok(study)
}

impl Study {
    /// Sorts cells into the arms of grids.
    pub fn new(
        mut grids: Vec<Grid>,
        mut cells: Vec<Cell>,
        declaration: Option<Declaration>,
    ) -> Self {
        let place = |grid: &Grid| ORDER.iter().position(|name| *name == grid.name);
        grids.sort_by_key(|grid| (place(grid).unwrap_or(ORDER.len()), grid.name.clone()));
        cells.sort_by_key(Cell::file_name);
        let declaration =
            declaration.unwrap_or_else(|| Declaration::undeclared(&grids, PRIMARY_SET, CURVE_SET));
        let (members, excluded) = membership::sort(&declaration, &grids, &cells);
        Self { declaration, grids, cells, members, excluded }
    }

    /// An arm by `<grid>/<arm>`.
    pub fn arm(&self, id: &str) -> Option<&Arm> {
        let (grid, arm) = id.split_once('/')?;
        self.grids.iter().find(|it| it.name == grid)?.arm(arm)
    }

    /// The cells of an arm that count, by seed; empty for an unknown arm.
    pub fn cells_of(&self, id: &str) -> Vec<&Cell> {
        let indices = self.members.get(id).map_or(&[][..], Vec::as_slice);
        indices.iter().map(|index| &self.cells[*index]).collect()
    }

    /// Seeds that an arm should have and has not.
    pub fn missing_seeds(&self, id: &str) -> Vec<u64> {
        let Some((grid, _)) = id.split_once('/') else { return Vec::new() };
        let Some(grid) = self.grids.iter().find(|it| it.name == grid) else { return Vec::new() };
        let found: Vec<u64> = self.cells_of(id).iter().map(|cell| cell.seed).collect();
        let expected = membership::expected_seeds(&self.declaration, grid);
        expected.iter().copied().filter(|seed| !found.contains(seed)).collect()
    }

    /// Why an arm has no value, when it is not in the study or none of its cells counts.
    pub fn absence(&self, id: &str) -> Option<String> {
        match self.arm(id) {
            None => Some(format!("the study has no arm `{id}`")),
            Some(_) if self.cells_of(id).is_empty() => {
                Some(format!("`{id}` has no run that counts"))
            }
            Some(_) => None,
        }
    }
}
