//! `ro-crate-metadata.json`: a run folder as a Process Run Crate 0.5 on RO-Crate 1.1
//! (<https://w3id.org/ro/wfrun/process/0.5>). The run is a `CreateAction` of this program; its
//! objects are the experiment and the digests of what it read, its results the other files.

use crate::base::{files, visible::visible};
use crate::experiment::Data;
use crate::records::{Ending, Environment, Manifest, Outcome, RunFolder, environment};
use crate::report::{endings, export::inventory};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The name that RO-Crate demands.
pub const NAME: &str = "ro-crate-metadata.json";

const PROFILE: &str = "https://w3id.org/ro/wfrun/process/0.5";
const BASE_CRATE: &str = "https://w3id.org/ro/crate/1.1";
const LIBTORCH: &str = "https://pytorch.org/";
const TERMS: &str = "https://w3id.org/ro/terms/workflow-run/context";

/// Writes the crate of a run that has ended; false, and nothing is written, for another.
///
/// # Errors
/// When a record is malformed, a file cannot be read, or the crate cannot be written.
pub fn write(run: &RunFolder) -> Result<bool, files::FileError> {
    if !run.path("outcome.json").exists() {
        return Ok(false);
    }
    files::write_json(&run.path(NAME), &metadata(run)?)?;
    Ok(true)
}

/// The crate of a run that has ended. Times are left out where none were recorded.
///
/// # Errors
/// When a record is missing or malformed, or a file cannot be read.
pub fn metadata(run: &RunFolder) -> Result<Value, files::FileError> {
    let (experiment, manifest, outcome) = (run.experiment()?, run.manifest()?, run.outcome()?);
    let environment = match run.path("environment.json").exists() {
        true => run.environment()?,
        false => Environment { facts: BTreeMap::new() },
    };
    let (mut names, _links) = inventory::names(run)?;
    names.retain(|name| name != NAME);
    let mut graph = vec![json!({
        "@id": NAME,
        "@type": "CreativeWork",
        "about": { "@id": "./" },
        "conformsTo": { "@id": BASE_CRATE },
    })];
    let licence = licence(&experiment.inputs.data);
    graph.push(root(run, &manifest, &outcome, &names, &licence)?);
    graph.push(licence);
    graph.push(json!({
        "@id": PROFILE,
        "@type": "CreativeWork",
        "name": "Process Run Crate",
        "version": "0.5",
    }));
    graph.extend(software(&manifest, &environment));
    graph.extend(action(run, &manifest, &outcome, &environment, &names)?);
    for name in &names {
        graph.push(file(run, name)?);
    }
    Ok(json!({ "@context": [format!("{BASE_CRATE}/context"), TERMS], "@graph": graph }))
}

/// Whatever is generated from this repository alone has its licence; what was made from files
/// of somebody else has one that nobody recorded.
fn licence(data: &Data) -> Value {
    match data {
        data if data.is_miniature() => json!({
            "@id": "https://spdx.org/licenses/Apache-2.0",
            "@type": "CreativeWork",
            "name": "Apache License 2.0",
            "description": "Licence of the program, its embedded benchmark and its base model.",
        }),
        _ => json!({
            "@id": "#licence-not-recorded",
            "@type": "CreativeWork",
            "name": "No licence recorded",
            "description": "The run used data and a model from files whose licences it does not know.",
        }),
    }
}

fn title(manifest: &Manifest) -> String {
    format!("DAPO run: arm {}, seed {}", visible(&manifest.name), manifest.seed)
}

fn root(
    run: &RunFolder,
    manifest: &Manifest,
    outcome: &Outcome,
    names: &[String],
    licence: &Value,
) -> Result<Value, files::FileError> {
    let times = inventory::times(run)?;
    let mut root = json!({
        "@id": "./",
        "@type": "Dataset",
        "name": title(manifest),
        "description": format!(
            "Training run of an arm of DAPO (arXiv 2503.14476): configuration, metrics, rollouts, \
             evaluations, checkpoints and report. Arm {}, run {}. {}.",
            visible(&manifest.arm_sha256),
            visible(&manifest.run_key),
            endings::sentence(outcome),
        ),
        "license": { "@id": licence["@id"] },
        "conformsTo": { "@id": PROFILE },
        "hasPart": references(names.iter()),
        "mentions": { "@id": "#run" },
    });
    put_time(&mut root, "datePublished", times.ended_ms);
    Ok(root)
}

fn put_time(entity: &mut Value, key: &str, milliseconds: Option<u64>) {
    if let Some(time) = milliseconds.and_then(environment::rfc3339) {
        // The public validator's pattern for ISO 8601 knows offsets and no `Z`.
        entity[key] = time.replace('Z', "+00:00").into();
    }
}

/// This program and the library that computed for it.
fn software(manifest: &Manifest, environment: &Environment) -> Vec<Value> {
    let fact = |name: &str| environment.facts.get(name).map(|value| visible(value));
    let or_unknown = |name: &str| fact(name).unwrap_or_else(|| "not recorded".to_string());
    let commit = or_unknown("git_commit");
    vec![
        json!({
            "@id": "#dapo",
            "@type": "SoftwareApplication",
            "name": "dapo",
            "description": format!(
                "Reference harness for DAPO; commit of the working folder's repository: {commit}, \
                 uncommitted changes: {}; SHA-256 of Cargo.lock: {}.",
                or_unknown("git_dirty"),
                or_unknown("cargo_lock_sha256"),
            ),
            "softwareVersion": visible(&manifest.harness),
            "softwareRequirements": { "@id": LIBTORCH },
        }),
        json!({
            "@id": LIBTORCH,
            "@type": "SoftwareApplication",
            "name": "LibTorch",
            "description": format!(
                "SHA-256 of libtorch_cpu.so: {}.", or_unknown("libtorch_cpu_sha256")
            ),
            "softwareVersion": or_unknown("libtorch"),
            "url": LIBTORCH,
        }),
    ]
}

/// The run itself, with what it read and the settings of its machine.
fn action(
    run: &RunFolder,
    manifest: &Manifest,
    outcome: &Outcome,
    environment: &Environment,
    names: &[String],
) -> Result<Vec<Value>, files::FileError> {
    let property = |id: String, name: &str, value: &str| json!({ "@id": id, "@type": "PropertyValue", "name": visible(name), "value": visible(value) });
    let inputs: Vec<Value> = manifest
        .inputs
        .iter()
        .map(|(name, digest)| {
            let mut input = property(format!("#input/{}", encoded(name)), name, digest);

            input["description"] = "SHA-256 of an input".into();
            input
        })
        .collect();
    let pins = environment::PINS.iter().chain(&["threads", "cpu", "cpu_capability"]);
    let settings: Vec<Value> = pins
        .filter_map(|name| {
            Some(property(format!("#env/{name}"), name, environment.facts.get(*name)?))
        })
        .collect();
    let ids = |entities: &[Value]| -> Vec<Value> {
        entities.iter().map(|entity| json!({ "@id": entity["@id"] })).collect()
    };
    let (objects, results): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| *name == "experiment.json");
    let mut objects = references(objects.into_iter());
    objects.extend(ids(&inputs));
    let failed = outcome.ending == Ending::Diverged;
    let status = if failed { "FailedActionStatus" } else { "CompletedActionStatus" };
    let mut action = json!({
        "@id": "#run",
        "@type": "CreateAction",
        "name": title(manifest),
        "description": format!("{:?}: {}.", outcome.ending, endings::sentence(outcome)),
        "instrument": { "@id": "#dapo" },
        "actionStatus": format!("http://schema.org/{status}"),
        "object": objects,
        "result": references(results.into_iter()),
        "environment": ids(&settings),
    });
    if failed {
        action["error"] = endings::sentence(outcome).into();
    }
    let times = inventory::times(run)?;
    put_time(&mut action, "startTime", times.started_ms);
    put_time(&mut action, "endTime", times.ended_ms);
    Ok([vec![action], inputs, settings].concat())
}

fn file(run: &RunFolder, name: &str) -> Result<Value, files::FileError> {
    let path = run.path(name);
    Ok(json!({
        "@id": encoded(name),
        "@type": "File",
        "name": visible(name),
        "contentSize": files::size_bytes(&path)?.to_string(),
        "encodingFormat": inventory::media_type(name),
        "sha256": files::sha256_file(&path)?,
    }))
}

fn references<'a>(names: impl Iterator<Item = &'a String>) -> Vec<Value> {
    names.map(|name| json!({ "@id": encoded(name) })).collect()
}

/// A relative path as a URI reference (RFC 3986): every byte that is not unreserved is `%XX`.
fn encoded(name: &str) -> String {
    let byte = |byte: u8| match byte {
        b'/' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_uri_references() {
        assert_eq!(encoded("checkpoints/step-000040/a_b.json"), "checkpoints/step-000040/a_b.json");
        assert_eq!(encoded("a b#?%\"ü"), "a%20b%23%3F%25%22%C3%BC");
    }
}
