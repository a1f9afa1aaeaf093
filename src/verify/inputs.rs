//! The inputs of the run that are at hand here: problems, tokenizer, base policy. Each is used
//! only when it has the digest that the manifest binds.

use crate::checkpoint;
use crate::checkpoint::weights;
use crate::config::Data;
use crate::data;
use crate::data::DataSets;
use crate::files;
use crate::prompt::Tokenizer;
use crate::run::inputs;
use crate::run_folder::RunFolder;
use crate::verify::Check;
use crate::verify::identity::Records;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;

/// What is here and is what the run used.
#[derive(Debug, Default)]
pub struct Local {
    /// All sets of problems.
    pub data: Option<DataSets>,
    /// From the base policy's folder, else from a checkpoint.
    pub tokenizer: Option<Tokenizer>,
    /// The base policy's folder.
    pub base: Option<PathBuf>,
}

/// Looks for the inputs where `experiment.json` says, or for the base policy in `base`.
pub fn find(folder: &RunFolder, records: &Records, base: Option<&Path>) -> (Check, Local) {
    let mut check = Check::new("inputs");
    let bound = |name: &str| records.manifest.inputs.contains_key(&format!("base/{name}"));
    let weights = if bound(weights::INDEX) { weights::INDEX } else { weights::SINGLE };
    for name in ["config.json", "tokenizer.json", weights] {
        if !bound(name) {
            check.mismatch(format!("manifest.json, inputs.base/{name}"), "is missing");
        }
    }
    let data = sets(&mut check, records);
    let place = base.unwrap_or(&records.experiment.inputs.model);
    let base = is_base(&mut check, records, place).then(|| place.to_path_buf());
    let tokenizer = tokenizer(&mut check, folder, records, base.as_deref());
    let here = |is: bool| if is { "here" } else { "not here" };
    let compared = format!(
        "problems {}, base policy {}, tokenizer {}",
        here(data.is_some()),
        here(base.is_some()),
        here(tokenizer.is_some())
    );
    (check.compared(compared), Local { data, tokenizer, base })
}

fn sets(check: &mut Check, records: &Records) -> Option<DataSets> {
    let source = &records.experiment.inputs.data;
    if let Data::Files { train, dev, test } = source {
        // Not a device without end, whatever the sender wrote there.
        let absent = [train, dev].into_iter().chain(test).find(|path| !path.is_file());
        if let Some(path) = absent {
            let what = format!("problems cannot be compared: {} is no file here", path.display());
            check.inconclusive("data", what);
            return None;
        }
    }
    let sets = data::load(source).map_err(|error| check.inconclusive("data", error)).ok()?;
    let mut here: BTreeMap<String, String> = BTreeMap::new();
    for (name, problems) in inputs::named_sets(&sets) {
        here.insert(format!("data/{name}"), data::digest(problems));
    }
    let written: BTreeMap<String, String> = records
        .manifest
        .inputs
        .iter()
        .filter(|(name, _)| name.starts_with("data/"))
        .map(|(name, digest)| (name.clone(), digest.clone()))
        .collect();
    if here == written {
        return Some(sets);
    }
    let names = here.keys().chain(written.keys());
    for name in names.filter(|name| here.get(*name) != written.get(*name)).collect::<BTreeSet<_>>()
    {
        let place = format!("manifest.json, inputs.{name}");
        // The embedded benchmark is a function of the version; a file here may be another one.
        match source {
            Data::MiniAime { .. } if records.manifest.harness == env!("CARGO_PKG_VERSION") => {
                check.mismatch(place, "is not the digest of the embedded benchmark's problems");
            }
            _ => check.inconclusive(place, "is not the digest of the problems that are here"),
        }
    }
    None
}

/// Whether a folder holds exactly the base policy that the manifest binds.
fn is_base(check: &mut Check, records: &Records, folder: &Path) -> bool {
    let mut all = true;
    // What the manifest binds, and what would be read in its place if it lay there too.
    let bound = records.manifest.inputs.keys().filter_map(|name| name.strip_prefix("base/"));
    let names: BTreeSet<&str> = checkpoint::COMPANIONS.into_iter().chain(bound).collect();
    for name in names.into_iter().chain([weights::SINGLE, weights::INDEX]) {
        let written = records.manifest.inputs.get(&format!("base/{name}"));
        // A name of the manifest stays in the folder; its files may be links, as in a cache.
        let path = folder.join(name);
        let is_file = !name.contains('/') && path.is_file();
        let found = if is_file { files::sha256_file(&path).ok() } else { None };
        if found.as_ref() == written {
            continue;
        }
        all = false;
        let what = match found {
            None => format!("{} is not here; --base FOLDER says where it is", path.display()),
            Some(_) => format!("{} is not the file that the run used", path.display()),
        };
        check.inconclusive(format!("manifest.json, inputs.base/{name}"), what);
    }
    all
}

/// The tokenizer of the base policy; a checkpoint carries the same files.
fn tokenizer(
    check: &mut Check,
    folder: &RunFolder,
    records: &Records,
    base: Option<&Path>,
) -> Option<Tokenizer> {
    let agrees = |folder: &Path| {
        checkpoint::COMPANIONS.iter().all(|name| {
            let path = folder.join(name);
            let found = if path.is_file() { files::sha256_file(&path).ok() } else { None };
            found.as_ref() == records.manifest.inputs.get(&format!("base/{name}"))
        })
    };
    let steps = folder.checkpoint_steps().unwrap_or_default();
    let kept = steps.into_iter().rev().map(|step| folder.checkpoint(step));
    let place = base.map(Path::to_path_buf).into_iter().chain(kept).find(|place| agrees(place));
    let Some(place) = place else {
        check.inconclusive(
            "tokenizer",
            "is neither here nor in a checkpoint: tokens cannot be decoded",
        );
        return None;
    };
    Tokenizer::load(&place).map_err(|error| check.inconclusive("tokenizer", error)).ok()
}
