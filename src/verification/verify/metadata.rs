//! Makes `ro-crate-metadata.json` again from the folder and compares it.

use crate::base::files;
use crate::records::RunFolder;
use crate::report::export::ro_crate;
use crate::verification::verify::{Check, scores, walk::FolderFound};
use serde_json::{Map, Value};

/// Ignores checkpoint files that are gone; other checks decide whether they may be.
pub fn check(folder: &RunFolder, found: &FolderFound) -> Option<Check> {
    if !found.files.contains(ro_crate::NAME) {
        return None;
    }
    let mut check = Check::new("RO-Crate");
    let written: Result<Value, files::FileError> = files::read_json(&folder.path(ro_crate::NAME));
    match (written, ro_crate::metadata(folder)) {
        (Ok(mut written), Ok(mut again)) => {
            let in_place = |name: &str| !is_gone(name, found);
            keep(&mut written, &in_place);
            [&mut written, &mut again].into_iter().for_each(name_entities);
            scores::different(&mut check, ro_crate::NAME, &written, &again);
        }
        (Err(error), _) | (_, Err(error)) => check.mismatch(ro_crate::NAME, error),
    }
    Some(check.compared("ro-crate-metadata.json made again from the folder"))
}

fn is_gone(name: &str, found: &FolderFound) -> bool {
    name.starts_with("checkpoints/") && !found.files.contains(name)
}

/// Keys the entities of the graph by their `@id`, so that a difference names it. A graph without
/// unique ids stays as it is.
fn name_entities(metadata: &mut Value) {
    let Some(graph) = metadata.get_mut("@graph") else { return };
    let Some(entities) = graph.as_array() else { return };
    let named = entities.iter().map(|entity| {
        let id = entity.get("@id").and_then(Value::as_str)?;
        Some((id.to_string(), entity.clone()))
    });
    if let Some(named) = named.collect::<Option<Map<String, Value>>>()
        && named.len() == entities.len()
    {
        *graph = Value::Object(named);
    }
}

/// Drops the entities whose `@id` is not in place, and references to them.
fn keep(value: &mut Value, in_place: &dyn Fn(&str) -> bool) {
    match value {
        Value::Array(values) => {
            values.retain(|value| value.get("@id").and_then(Value::as_str).is_none_or(in_place));
            values.iter_mut().for_each(|value| keep(value, in_place));
        }
        Value::Object(fields) => fields.values_mut().for_each(|value| keep(value, in_place)),
        _ => {}
    }
}
