//! A study: `grids/GRID.json` (resolved), `cells/ID.json` (records of runs; or all in `records.jsonl.xz`), and
//! optionally its declaration `study.json`. A cell belongs to every arm (`<grid>/<arm>`) that has its hash. The order
//! of files has no effect.

use crate::base::{files, visible};
use crate::experiment::{Arm, Data, Grid, diagnose, grid::file};
use crate::records::environment::SOURCES;
use crate::study::{
    Absence, Cell, Declaration, Excluded, Remark, StudyError, cell, declaration,
    declaration::Placement, membership,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// In the order of reports; other grids follow by name.
const ORDER: [&str; 6] =
    ["ladder", "add-one", "leave-one-out", "fidelity", "held-out", "learning-rate"];

#[derive(Debug, Clone)]
pub struct Study {
    pub declaration: Declaration,
    pub grids: Vec<Grid>,
    pub cells: Vec<Cell>,
    /// `<grid>/<arm>` → cells that count, as indices of `cells`, by seed.
    members: BTreeMap<String, Vec<usize>>,
    pub excluded: Vec<Excluded>,
    pub placement: Option<Placement>,
    /// All records, where the declaration came after the last of them.
    pub records_before: Option<usize>,
}

pub fn is_study(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_dir();
    (has("grids") || has("cells")) && !folder.join("manifest.json").exists()
}

/// Reads a study folder. The declaration is `declared`, else the folder's `study.json`, else none.
pub fn load(folder: &Path, declared: Option<&Path>) -> Result<Study, StudyError> {
    let invalid = |reason: &str| StudyError::invalid(folder, reason);
    if !folder.join("grids").is_dir() {
        has_begun(folder)?;
        return Err(invalid("is not a study: it has no folder `grids`"));
    }
    let grids = grids(folder)?;
    if grids.is_empty() {
        return Err(invalid("is not a study: its folder `grids` has no grid"));
    }
    let copy = files::foreign::inside(folder, "study.json")?;
    let declaration = match declared {
        Some(path) => Some(declaration::load(path)?),
        None if copy.exists() => Some(declaration::load(&copy)?),
        None => {
            one_pair_of_sets(&grids).map_err(|reason| invalid(&reason))?;
            None
        }
    };
    let (cells, refused) = if cell::has_records(&folder.join("cells"))? {
        cell::read_folder(folder)?
    } else {
        (Vec::new(), Vec::new())
    };
    let mut study = Study::new(grids, cells, declaration);
    study.excluded.extend(refused.iter().map(Excluded::unreadable));
    study.excluded.sort();
    study.placement = Placement::read(folder)?;
    let records = study.cells.len() + refused.len();
    let is_late = match &study.placement {
        Some(placed) => placed.records_before >= records as u64,
        None => declared.is_some() && !copy.exists(),
    };
    study.records_before = (is_late && records > 0).then_some(records);
    Ok(study)
}

/// Errors: a study that was written and of which no cell was run.
pub fn has_begun(folder: &Path) -> Result<(), StudyError> {
    let is_study = file::in_folder(folder).is_some() || has_grids(folder);
    if is_study
        && !folder.join("manifest.json").exists()
        && !cell::has_records(&folder.join("cells"))?
    {
        return Err(StudyError::NotBegun { study: folder.to_path_buf() });
    }
    Ok(())
}

/// Errors: a folder that is neither a study nor a run.
pub fn is_of_a_kind(folder: &Path) -> Result<(), StudyError> {
    let is_run = files::kind(&folder.join("manifest.json"))?.is_some();
    if is_run || is_study(folder) || cell::has_records(&folder.join("cells"))? {
        return Ok(());
    }
    let reason = "neither a study (a folder with `grids`) nor a run (with `manifest.json`)";
    Err(StudyError::invalid(folder, reason))
}

pub fn has_grids(folder: &Path) -> bool {
    let names = files::list(&folder.join("grids")).unwrap_or_default();
    names.iter().any(|name| name.ends_with(".json"))
}

/// By file name; none without a folder `grids`.
pub fn grids(folder: &Path) -> Result<Vec<Grid>, StudyError> {
    let folder = files::foreign::inside(folder, "grids")?;
    let mut grids = Vec::new();
    let names = files::optional(files::list(&folder))?.unwrap_or_default();
    for name in names.into_iter().filter(|name| name.ends_with(".json")) {
        let path = files::foreign::inside(&folder, &name)?;
        let grid = Grid::read(&path)?;
        if format!("{}.json", grid.name) != name {
            let reason = format!("the grid's own name is `{}`", grid.name);
            return Err(StudyError::invalid(path, reason));
        }
        grids.push(grid);
    }
    Ok(grids)
}

/// Grids of an undeclared study must name the same sets: a score table has one set.
pub fn one_pair_of_sets(grids: &[Grid]) -> Result<(), String> {
    let of = |grid: &Grid| (grid.sets().primary().to_string(), grid.sets().curve().to_string());
    let Some(first) = grids.first() else { return Ok(()) };
    let Some(other) = grids.iter().find(|grid| of(grid) != of(first)) else { return Ok(()) };
    let words = |grid: &Grid| {
        let (primary, curve) = of(grid);
        format!("`{}` has primary_set {primary:?} and curve_set {curve:?}", grid.name)
    };
    Err(format!(
        "its grids name other sets: {}, {}; run them as studies of their own, or declare the sets \
         with --declaration",
        words(first),
        words(other)
    ))
}

impl Study {
    /// Without a declaration the sets are those of the first grid; [`load`] refuses other sets.
    pub fn new(
        mut grids: Vec<Grid>,
        mut cells: Vec<Cell>,
        declaration: Option<Declaration>,
    ) -> Self {
        // The grid that the study asks about comes first.
        let asked = declaration.iter().flat_map(|it| &it.families).flat_map(|it| &it.comparisons);
        let asked = asked.take(1).find_map(|it| Some(it.arm.split_once('/')?.0.to_owned()));
        let place = |grid: &Grid| ORDER.iter().position(|name| *name == grid.name);
        grids.sort_by_key(|grid| {
            let is_other = asked.as_ref() != Some(&grid.name);
            (is_other, place(grid).unwrap_or(ORDER.len()), grid.name.clone())
        });
        cells.sort_by_key(Cell::file_name);
        let declaration = declaration.unwrap_or_else(|| {
            let sets = grids.first().map(Grid::sets).unwrap_or_default();
            Declaration::undeclared(&grids, sets.primary(), sets.curve())
        });
        let (members, excluded) = membership::sort(&declaration, &grids, &cells);
        let (placement, records_before) = (None, None);
        Self { declaration, grids, cells, members, excluded, placement, records_before }
    }

    /// `declared.json` says that another declaration was put into the study.
    pub fn is_declared_otherwise(&self) -> bool {
        let placed = self.placement.as_ref();
        placed.is_some_and(|it| it.declaration_sha256 != self.declaration.sha256())
    }

    pub fn is_declared(&self) -> bool {
        let Declaration { primary_set, curve_set, .. } = &self.declaration;
        self.declaration != Declaration::undeclared(&self.grids, primary_set, curve_set)
    }

    pub fn is_registered(&self) -> bool {
        let is_first = self.records_before.is_none() && !self.is_declared_otherwise();
        self.declaration.registered && is_first
    }

    pub fn bases(&self) -> Remark {
        let own = self.arms().all(|(_, arm)| arm.experiment.has_base_of_seed());
        if own { Remark::BaseOfSeed } else { Remark::SharedBase }
    }

    pub fn is_of_mini_aime(&self) -> bool {
        self.arms().any(|(_, arm)| matches!(arm.experiment.inputs.data, Data::MiniAime { .. }))
    }

    pub fn arms(&self) -> impl Iterator<Item = (String, &Arm)> {
        self.grids.iter().flat_map(membership::arms_of)
    }

    pub fn arm(&self, id: &str) -> Option<&Arm> {
        let (grid, arm) = id.split_once('/')?;
        self.grids.iter().find(|it| it.name == grid)?.arm(arm)
    }

    /// The ids that each name means. Errors: names of none of `known`, or of arms that differ; the arms are listed once.
    pub fn ids_of_names<'a>(
        &self,
        known: &[&'a str],
        names: &[&str],
    ) -> Result<Vec<Vec<&'a str>>, String> {
        let (mut named, mut problems, mut is_far) = (Vec::new(), Vec::new(), false);
        for name in names {
            let ids = self.ids_of_name(known, name);
            let shown = visible::visible(name);
            let identity = |id: &&str| self.arm(id).map(|arm| &arm.arm_sha256);
            if ids.is_empty() {
                let near = self.nearest_id(known, name);
                is_far |= near.is_none();
                let hint = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
                problems.push(format!("there is no arm {shown}{hint}"));
            } else if ids.iter().map(identity).collect::<BTreeSet<_>>().len() > 1 {
                let ids = ids.join(", ");
                problems.push(format!("several arms are named {shown}; name one of {ids}"));
            }
            named.push(ids);
        }
        if is_far {
            problems.push(format!("its arms are {}", known.join(", ")));
        }
        if problems.is_empty() { Ok(named) } else { Err(problems.join("; ")) }
    }

    /// The id, else those of the arms of this name, else of this label as pages and tables show it, in any case.
    pub fn ids_of_name<'a>(&self, known: &[&'a str], name: &str) -> Vec<&'a str> {
        let shown = visible::visible(name.trim().trim_start_matches('\''));
        let lower = shown.to_lowercase();
        let is_label = |id: &str, is_same: &dyn Fn(&str) -> bool| {
            let grid = id.split('/').next().unwrap_or_default();
            let label = self.label(id);
            label.is_some_and(|it| is_same(&it) || is_same(&format!("{it}, {grid}")))
        };
        let rules: [&dyn Fn(&str) -> bool; 4] = [
            &|id| id == name.trim(),
            &|id| short(id) == name.trim(),
            &|id| is_label(id, &|label| label == shown),
            &|id| is_label(id, &|label| label.to_lowercase() == lower),
        ];
        let mut of_rules = rules
            .iter()
            .map(|is_named| known.iter().copied().filter(|id| is_named(id)).collect::<Vec<_>>());
        of_rules.find(|ids| !ids.is_empty()).unwrap_or_default()
    }

    fn label(&self, id: &str) -> Option<String> {
        let of_pool = || self.declaration.pool(id).map(|pool| &pool.label);
        let label = self.arm(id).map(|arm| &arm.label).or_else(of_pool)?;
        Some(visible::visible(label))
    }

    fn nearest_id(&self, known: &[&str], name: &str) -> Option<String> {
        let names = known.iter().map(|id| (short(id).to_lowercase(), short(id)));
        let ids = known.iter().map(|id| (id.to_lowercase(), *id));
        let labels = known.iter().filter_map(|id| Some((self.label(id)?.to_lowercase(), *id)));
        let all: Vec<(String, &str)> = names.chain(ids).chain(labels).collect();
        let texts: Vec<String> = all.iter().map(|(text, _)| text.clone()).collect();
        let nearest = diagnose::nearest(&name.to_lowercase(), &texts)?;
        all.into_iter().find(|(text, _)| *text == nearest).map(|(_, id)| id.to_owned())
    }

    pub fn cells_of(&self, id: &str) -> Vec<&Cell> {
        let arms = self.declaration.arms_of(id).into_iter();
        let indices = arms.filter_map(|arm| self.members.get(arm)).flatten();
        indices.map(|index| &self.cells[*index]).collect()
    }

    /// Digests of programs' sources, empty where none is stated → arms whose runs are of just these programs.
    pub fn arms_by_sources(&self) -> BTreeMap<BTreeSet<&str>, Vec<String>> {
        let mut by_sources: BTreeMap<BTreeSet<&str>, Vec<String>> = BTreeMap::new();
        for (id, _) in self.arms() {
            let sources = self.cells_of(&id).into_iter();
            let sources = sources.map(|it| it.environment.get(SOURCES).map_or("", String::as_str));
            let sources: BTreeSet<&str> = sources.collect();
            if !sources.is_empty() {
                by_sources.entry(sources).or_default().push(id);
            }
        }
        by_sources
    }

    pub fn missing_seeds(&self, id: &str) -> Vec<u64> {
        let Some((grid, _)) = id.split_once('/') else { return Vec::new() };
        let Some(grid) = self.grids.iter().find(|it| it.name == grid) else { return Vec::new() };
        let seeds: Vec<u64> = self.cells_of(id).iter().map(|cell| cell.seed).collect();
        let expected = membership::expected_seeds(&self.declaration, grid);
        expected.iter().copied().filter(|seed| !seeds.contains(seed)).collect()
    }

    pub fn absence(&self, id: &str) -> Option<Absence> {
        self.declaration.arms_of(id).into_iter().find_map(|id| {
            let arm = id.to_string();
            match self.arm(id) {
                None => Some(Absence::NoArm { arm }),
                Some(_) if self.cells_of(id).is_empty() => Some(Absence::NoRunThatCounts { arm }),
                Some(_) => None,
            }
        })
    }
}

fn short(id: &str) -> &str {
    id.split('/').next_back().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_study_is_registered_by_the_declaration_that_was_put_into_it_alone() {
        let declaration = Declaration { registered: true, ..Declaration::default() };
        let placement = |declaration: &Declaration| Placement {
            declaration_sha256: declaration.sha256(),
            records_before: 0,
            commit: None,
            uncommitted: Vec::new(),
        };
        let other = placement(&Declaration { alpha: 0.2, ..declaration.clone() });
        let own = placement(&declaration);
        let mut study = Study::new(Vec::new(), Vec::new(), Some(declaration));
        for (placement, registered) in [(None, true), (Some(own), true), (Some(other), false)] {
            study.placement = placement;
            assert_eq!(study.is_registered(), registered, "{:?}", study.placement);
            assert_eq!(study.is_declared_otherwise(), !registered);
        }
        (study.placement, study.records_before) = (None, Some(3));
        assert!(!study.is_registered());
    }
}
