//! The statement: which files, made from what, by which settings. in-toto Statement v1
//! (<https://in-toto.io/Statement/v1>) and SLSA provenance v1
//! (<https://slsa.dev/provenance/v1>). Unknown fields are ignored, as both demand.

use crate::base::files;
use crate::records::{Environment, RunFolder, environment};
use crate::report::attest::Error;
use crate::report::export::inventory;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// `_type` of a statement.
pub const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// `predicateType` of the provenance.
pub const PREDICATE_TYPE: &str = "https://slsa.dev/provenance/v1";
/// What kind of parameters these are: `externalParameters` holds the run's identity and its
/// whole experiment, `internalParameters` how it was executed.
pub const BUILD_TYPE: &str = "urn:dapo:run:v1";
/// The builder of a run that nobody else vouches for.
pub const SELF_ATTESTED: &str = "urn:dapo:self-attested";

/// How much such a statement is worth, in the statement itself.
const LEVEL: &str = "at most SLSA Build L1: made and signed, if at all, by whoever made the run";

/// Facts about the machine and the session, which a repetition does not share.
const BYPRODUCTS: [&str; 4] = ["environment.json", "plan.json", "sessions.jsonl", "timings.jsonl"];

/// A statement about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    /// [`STATEMENT_TYPE`].
    #[serde(rename = "_type")]
    pub kind: String,
    /// The files that it is about.
    pub subject: Vec<Resource>,
    /// [`PREDICATE_TYPE`].
    #[serde(rename = "predicateType")]
    pub predicate_type: String,
    /// How they came to be.
    pub predicate: Provenance,
}

/// A file or another thing with a digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Path under the run folder, or a name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Algorithm → lower-case hexadecimal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub digest: BTreeMap<String, String>,
    /// What else is known of it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub annotations: Map<String, Value>,
}

impl Resource {
    fn sha256(name: impl Into<String>, digest: impl Into<String>) -> Self {
        let digest = BTreeMap::from([("sha256".to_string(), digest.into())]);
        Self { name: name.into(), digest, annotations: Map::new() }
    }
}

/// SLSA provenance v1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provenance {
    /// What was run, and from what.
    pub build_definition: BuildDefinition,
    /// Who ran it, when, and what else it left.
    pub run_details: RunDetails,
}

/// The inputs of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildDefinition {
    /// [`BUILD_TYPE`].
    pub build_type: String,
    /// Everything that the user chose.
    pub external_parameters: Map<String, Value>,
    /// How it was executed.
    #[serde(default)]
    pub internal_parameters: Map<String, Value>,
    /// Code, library, data, tokenizer, base model.
    #[serde(default)]
    pub resolved_dependencies: Vec<Resource>,
}

/// The execution of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunDetails {
    /// Who ran it.
    pub builder: Builder,
    /// Which invocation, and when.
    #[serde(default)]
    pub metadata: Metadata,
    /// Facts about machine and sessions.
    #[serde(default)]
    pub byproducts: Vec<Resource>,
}

/// Who vouches for the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Builder {
    /// A URI.
    pub id: String,
    /// Component → version.
    #[serde(default)]
    pub version: BTreeMap<String, String>,
}

/// Which invocation, and when; times are those that the sessions recorded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// The run.
    #[serde(default)]
    pub invocation_id: String,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_on: Option<String>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_on: Option<String>,
}

/// The statement about a run that has ended, from what its folder records.
///
/// # Errors
/// A run that has not ended, a file that `outcome.json` knows otherwise, something in the
/// folder that is no file, a record that is malformed, or a builder without a name.
pub fn statement(run: &RunFolder, builder_id: &str) -> Result<Statement, Error> {
    let is_uri = builder_id.split_once(':').is_some_and(|(scheme, rest)| {
        !scheme.is_empty() && !rest.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    if !is_uri || builder_id.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(Error::BuilderId(builder_id.to_string()));
    }
    if !run.path("outcome.json").exists() {
        return Err(Error::Unfinished { folder: run.root().to_path_buf() });
    }
    let files = files_of(run)?;
    let (byproducts, subject) =
        files.into_iter().partition(|file| BYPRODUCTS.contains(&file.name.as_str()));
    let environment = match run.path("environment.json").exists() {
        true => run.environment()?,
        false => Environment { facts: BTreeMap::new() },
    };
    let manifest = run.manifest()?;
    let times = inventory::times(run)?;
    Ok(Statement {
        kind: STATEMENT_TYPE.to_string(),
        subject,
        predicate_type: PREDICATE_TYPE.to_string(),
        predicate: Provenance {
            build_definition: BuildDefinition {
                build_type: BUILD_TYPE.to_string(),
                external_parameters: external_parameters(run)?,
                internal_parameters: internal_parameters(run, &environment)?,
                resolved_dependencies: dependencies(&manifest.inputs, &environment),
            },
            run_details: RunDetails {
                builder: Builder {
                    id: builder_id.to_string(),
                    version: [("dapo".to_string(), manifest.harness)].into(),
                },
                metadata: Metadata {
                    invocation_id: format!("urn:dapo:run:{}", manifest.run_key),
                    started_on: times.started_ms.and_then(environment::rfc3339),
                    finished_on: times.ended_ms.and_then(environment::rfc3339),
                },
                byproducts,
            },
        },
    })
}

/// Every file with its digest. What `outcome.json` lists has to be as it says.
fn files_of(run: &RunFolder) -> Result<Vec<Resource>, Error> {
    let altered = |reason: String| Error::Altered { folder: run.root().to_path_buf(), reason };
    let (names, strange) = inventory::names(run)?;
    if let Some(name) = strange.first() {
        return Err(altered(format!("{name} is neither a file nor a folder")));
    }
    let recorded = run.outcome()?.digests;
    if let Some(name) = recorded.keys().find(|name| !names.contains(name)) {
        return Err(altered(format!("{name} is missing")));
    }
    let mut files = Vec::new();
    for name in names {
        let found = files::sha256_file(&run.path(&name))?;
        if recorded.get(&name).is_some_and(|recorded| *recorded != found) {
            return Err(altered(format!("{name} is not the file of outcome.json")));
        }
        files.push(Resource::sha256(name, found));
    }
    Ok(files)
}

/// The run's identity as it follows from its folder, and its whole experiment.
///
/// # Errors
/// When a record is missing or malformed.
pub fn external_parameters(run: &RunFolder) -> Result<Map<String, Value>, Error> {
    let (manifest, experiment) = (run.manifest()?, run.experiment()?);
    let mut parameters = object(json!({
        "arm": manifest.name,
        "seed": manifest.seed,
        "arm_sha256": manifest.arm_sha256,
        "run_key": manifest.run_key,
        "exactness": manifest.exactness,
        "experiment": experiment,
        "ledger_head": ledger_head(run)?,
    }));
    parameters.retain(|_, value| !value.is_null());
    Ok(parameters)
}

/// The last head of the run's hash chain; `None` for a run without a ledger.
fn ledger_head(run: &RunFolder) -> Result<Option<String>, Error> {
    /// All that is needed here of a ledger's entry.
    #[derive(Deserialize)]
    struct Head {
        head: String,
    }
    let path = run.path("ledger.jsonl");
    if !path.exists() {
        return Ok(None);
    }
    let heads: Vec<Head> = files::read_lines(&path)?;
    Ok(heads.into_iter().next_back().map(|entry| entry.head))
}

/// Where and how the run was executed, and what a statement about itself is worth.
fn internal_parameters(
    run: &RunFolder,
    environment: &Environment,
) -> Result<Map<String, Value>, Error> {
    let fact =
        |name: &&str| Some((name.to_string(), Value::from(environment.facts.get(*name)?.as_str())));
    let pins: Map<String, Value> = environment::PINS.iter().filter_map(fact).collect();
    let machine = ["cpu", "cpu_capability", "cores", "memory", "kernel", "target"];
    let machine: Map<String, Value> = machine.iter().filter_map(fact).collect();
    let execution = run.experiment()?.execution;
    Ok(object(json!({
        "threads": execution.threads,
        "micro_batch_rollouts": execution.micro_batch_rollouts,
        "generation_batch_rollouts": execution.generation_batch_rollouts,
        "env": pins,
        "machine": machine,
        "level": LEVEL,
    })))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// What the run was made from, as far as it was recorded.
fn dependencies(inputs: &BTreeMap<String, String>, environment: &Environment) -> Vec<Resource> {
    let fact = |name: &str| environment.facts.get(name).cloned();
    let with = |mut resource: Resource, name: &str, value: Option<String>| {
        resource.annotations.extend(value.map(|value| (name.to_string(), value.into())));
        resource
    };
    let mut found = Vec::new();
    if let Some(commit) = fact("git_commit") {
        let digest = [("gitCommit".to_string(), commit)].into();
        let name = "git repository of the working folder".to_string();
        let code = Resource { name, digest, annotations: Map::new() };
        found.push(with(code, "uncommitted_changes", fact("git_dirty")));
    }
    if let Some(digest) = fact("cargo_lock_sha256") {
        let lock = Resource::sha256("Cargo.lock", digest);
        let meaning = "the lock file that the running binary was compiled with".to_string();
        found.push(with(lock, "meaning", Some(meaning)));
    }
    if let Some(digest) = fact("libtorch_cpu_sha256") {
        let library = Resource::sha256("libtorch_cpu.so", digest);
        found.push(with(library, "version", fact("libtorch")));
    }
    // Data sets by the digest of their problems, tokenizer and base model by that of their files.
    found.extend(inputs.iter().map(|(name, digest)| Resource::sha256(name, digest)));
    found
}
