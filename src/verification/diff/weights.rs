//! Compares the tensors of one checkpoint in both runs.

use crate::policy::{CheckpointValues, checkpoint};
use crate::records::RunFolder;
use crate::verification::diff::{finding::DiffFinding, side, ulps::Value};
use crate::verification::{DiffPlace, DiffTally, VerificationError};
use std::collections::BTreeSet;

const FILES: [(&str, &str); 2] =
    [("weights", "model.safetensors"), ("moments", "optimizer.safetensors")];

/// Compares elements in the order of tensor names. Files with equal digests are not read.
pub fn findings(runs: [&RunFolder; 2], step: u64) -> Result<Vec<DiffFinding>, VerificationError> {
    let mut findings = Vec::new();
    for (component, name) in FILES {
        let file = format!("checkpoints/step-{step:06}/{name}");
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
