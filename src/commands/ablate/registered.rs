//! What shows later which grids and which declaration a registered study began with: the commit that has them.

use crate::base::files;
use crate::experiment::{extends, shipped};
use crate::records::environment::{self, FileInGit};
use crate::study::Declaration;
use crate::study::declaration::Placement;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files that a study is made from. Shipped grids have none: they are part of the program.
#[derive(Debug)]
pub struct StudyFiles {
    pub grids: Vec<PathBuf>,
    pub declaration: Option<PathBuf>,
}

impl StudyFiles {
    /// Why no commit shows what is run, a line each.
    pub fn uncommitted(&self) -> Vec<String> {
        let named: Vec<&PathBuf> = self.grids.iter().chain(&self.declaration).collect();
        let mut problems: Vec<String> = named.iter().filter_map(|path| uncommitted(path)).collect();
        let folders = named.iter().map(|path| folder(path));
        let repositories: BTreeSet<PathBuf> = folders.filter_map(environment::repository).collect();
        // Files of other repositories are bound by their digests alone.
        let is_here = |path: &PathBuf| {
            let root = environment::repository(folder(path));
            root.is_some_and(|root| repositories.contains(&root))
        };
        let bases: BTreeSet<PathBuf> = self.grids.iter().flat_map(|grid| bases(grid)).collect();
        problems.extend(bases.iter().filter(|path| is_here(path)).filter_map(|it| uncommitted(it)));
        let has_changes = |root: &&PathBuf| environment::has_changes_in(root) == Some(true);
        let changed = repositories.iter().filter(has_changes).map(|root| root.display());
        problems
            .extend(changed.map(|root| format!("tracked files of {root} differ from its commit")));
        problems
    }

    /// What is so when the declaration is put beside `records_before` records.
    pub fn placement(&self, declaration: &Declaration, records_before: u64) -> Placement {
        let state = self.declaration.as_ref().map(|path| environment::file_in_git(path));
        let commit = match state {
            Some(FileInGit::Committed { commit }) => Some(commit),
            _ => None,
        };
        let (declaration_sha256, uncommitted) = (declaration.sha256(), self.uncommitted());
        Placement { declaration_sha256, records_before, commit, uncommitted }
    }
}

fn folder(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

fn uncommitted(path: &Path) -> Option<String> {
    let state = match environment::file_in_git(path) {
        FileInGit::Committed { .. } => return None,
        FileInGit::Changed => "differs from the commit",
        FileInGit::NotCommitted => "is in no commit (untracked, ignored or only added)",
        // A copy of the program's own file: the program names its commit.
        FileInGit::NoRepository if is_shipped(path) => return None,
        FileInGit::NoRepository => "lies in no git repository",
    };
    Some(format!("{} {state}", path.display()))
}

fn is_shipped(path: &Path) -> bool {
    shipped::text(path).is_some_and(|own| files::read_text(path).is_ok_and(|text| text == own))
}

/// The experiment that a grid begins with, and what it extends.
fn bases(grid: &Path) -> Vec<PathBuf> {
    let table = extends::read_table(grid).unwrap_or_default();
    let Some(base) = table.get("base").and_then(toml::Value::as_str) else { return Vec::new() };
    let chain = extends::chain(&extends::normal(&folder(grid).join(base))).unwrap_or_default();
    chain.into_iter().map(|(path, _)| path).filter(|path| path.exists()).collect()
}
