//! Compares the tensors, and the other files, of one checkpoint in both runs.

use crate::base::files;
use crate::policy::{CheckpointValues, checkpoint};
use crate::records::{RunFolder, tables};
use crate::verification::diff::{finding::DiffFinding, side, ulps::Value};
use crate::verification::{DiffPlace, DiffTally, VerificationError};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const FILES: [(&str, &str); 2] =
    [("weights", "model.safetensors"), ("moments", "optimizer.safetensors")];

/// Of a policy's folder. Compares elements in the order of tensor names. Files with equal digests are not read.
pub fn findings(
    runs: [&RunFolder; 2],
    folder: &str,
) -> Result<Vec<DiffFinding>, VerificationError> {
    let mut findings = Vec::new();
    for (component, name) in FILES {
        let file = format!("{folder}/{name}");
        let paths = runs.map(|run| run.path(&file));
        if !paths.iter().all(|path| path.exists()) {
            continue;
        }
        if let Some([one, other]) = side::if_differing(&paths, checkpoint::read_values)? {
            findings.extend(tensors(DiffTally::new(component, &file, "elements"), [&one, &other]));
        }
    }
    Ok(findings)
}

fn tensors(mut tally: DiffTally, [one, other]: [&CheckpointValues; 2]) -> Option<DiffFinding> {
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    for name in names {
        let at = |what, place: String| DiffPlace(vec![("tensor", name.clone()), (what, place)]);
        let sides = (one.get(name), other.get(name));
        let (Some((shape_a, a)), Some((shape_b, b))) = sides else {
            let side = |is: bool| if is { Value::Text("present".into()) } else { Value::Absent };
            let (a, b) = (side(sides.0.is_some()), side(sides.1.is_some()));
            tally.compare(a, b, || at("field", "name".to_string()));
            continue;
        };
        if shape_a != shape_b {
            let shape = |shape: &[i64]| Value::Text(format!("{shape:?}"));
            tally.compare(shape(shape_a), shape(shape_b), || at("field", "shape".to_string()));
            continue;
        }
        for (element, (a, b)) in a.iter().zip(b).enumerate() {
            tally.compare(Value::F32(*a), Value::F32(*b), || at("element", element.to_string()));
        }
    }
    tally.finish()
}

/// Of a file without tensors: clocks by key, groups by row, others by digest.
pub fn companion(
    name: &str,
    file: &str,
    paths: &[PathBuf; 2],
) -> Result<Option<DiffFinding>, VerificationError> {
    let digests = [files::sha256_file(&paths[0])?, files::sha256_file(&paths[1])?];
    if digests[0] == digests[1] || checkpoint::TENSORS.contains(&name) {
        return Ok(None);
    }
    let mut tally = DiffTally::new("checkpoint", file, "values");
    match name {
        "trainer.json" => {
            let [a, b] = [clocks(&paths[0])?, clocks(&paths[1])?];
            for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let side = |clocks: &BTreeMap<String, Json>| {
                    clocks.get(key).map_or(Value::Absent, |it| Value::Text(it.to_string()))
                };
                let at = || DiffPlace(vec![("key", key.clone())]);
                tally.compare(side(&a), side(&b), at);
            }
            return Ok(tally.finish());
        }
        "carried.parquet" if is_same_table(paths)? => return Ok(None),
        checkpoint::CONFIG if is_restated(paths, &digests)? => return Ok(None),
        _ => {}
    }
    let [a, b] = digests.map(Value::Text);
    tally.compare(a, b, || DiffPlace(vec![("field", "SHA-256".to_string())]));
    Ok(tally.finish())
}

/// Without the digests of files that are compared themselves.
fn clocks(path: &Path) -> Result<BTreeMap<String, Json>, VerificationError> {
    let mut clocks: BTreeMap<String, Json> = files::read_json(path)?;
    clocks.remove("sha256");
    Ok(clocks)
}

fn is_same_table([a, b]: &[PathBuf; 2]) -> Result<bool, VerificationError> {
    Ok(tables::read_rollouts(a)? == tables::read_rollouts(b)?)
}

/// Earlier programs kept the base policy's type of weights.
fn is_restated(paths: &[PathBuf; 2], digests: &[String; 2]) -> Result<bool, VerificationError> {
    let [a, b] = [files::read_text(&paths[0])?, files::read_text(&paths[1])?];
    Ok(checkpoint::is_restated(&a, &digests[1]) || checkpoint::is_restated(&b, &digests[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_only_an_earlier_program_kept_is_no_difference() {
        let folder = tempfile::tempdir().unwrap();
        let differs = |a: &str, b: &str| {
            let paths = [("a", a), ("b", b)].map(|(name, text)| {
                let path = folder.path().join(name);
                files::write_atomic(&path, text.as_bytes()).unwrap();
                path
            });
            companion("config.json", "config.json", &paths).unwrap().is_some()
        };
        let [kept, restated] = ["bfloat16", "float32"].map(|it| format!("{{\"dtype\": \"{it}\"}}"));
        assert!(!differs(&kept, &restated) && !differs(&restated, &kept));
        assert!(differs(&kept, "{}") && differs(&restated, "{}"));
    }
}
