//! An in-toto Statement v1 (<https://in-toto.io/Statement/v1>) about a run that has ended: the SHA-256
//! of every file, and which run it is. It bears no signature; a program that signs files can add one.

use crate::base::files;
use crate::records::RunFolder;
use crate::report::{ReportError, export::inventory};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Its name in the run folder.
pub const NAME: &str = "statement.json";
/// `_type` of a statement.
pub const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
/// `predicateType`: the predicate is the run's identity.
pub const PREDICATE_TYPE: &str = "urn:dapo:run:v1";

/// Longest statement that is read: it has about 150 bytes for each file.
const LIMIT_BYTES: u64 = 64 << 20;

/// A statement about a run. Unknown fields are ignored, as in-toto demands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    #[serde(rename = "_type")]
    pub kind: String,
    /// Every file of the folder.
    pub subject: Vec<StatementSubject>,
    #[serde(rename = "predicateType")]
    pub predicate_type: String,
    /// Arm, seed, digests of the arm and of the run, head of the ledger.
    pub predicate: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatementSubject {
    pub name: String,
    /// Algorithm → lower-case hexadecimal.
    pub digest: BTreeMap<String, String>,
}

/// One way in which a folder is not what a statement says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatementProblem {
    /// A stated file has other bytes.
    #[error("{name} differs: stated {stated}, found {found}")]
    Differs { name: String, stated: String, found: String },
    /// A stated file is not there, or what is there is no regular file inside the folder.
    #[error("{name} is stated and is not a file of the folder")]
    Missing { name: String },
    /// A file of the folder is not stated.
    #[error("{name} is in the folder and not in the statement")]
    Unlisted { name: String },
    /// The statement names another run or ledger than the folder holds.
    #[error("{key} of the statement is not that of the folder")]
    OtherRun { key: String },
}

/// Writes the statement about a run into its folder, in place of one that is there.
///
/// # Errors
/// A run that has not ended, a file that `outcome.json` knows otherwise, something in the folder that
/// is no file, or a record that is malformed.
pub fn write(run: &RunFolder) -> Result<Statement, ReportError> {
    let statement = Statement {
        kind: STATEMENT_TYPE.to_string(),
        subject: subjects(run)?,
        predicate_type: PREDICATE_TYPE.to_string(),
        predicate: predicate(run)?,
    };
    files::write_json(&run.path(NAME), &statement)?;
    Ok(statement)
}

/// Every file with its digest. What `outcome.json` lists has to be as it says.
fn subjects(run: &RunFolder) -> Result<Vec<StatementSubject>, ReportError> {
    if !run.path("outcome.json").exists() {
        return Err(ReportError::Unfinished { folder: run.root().to_path_buf() });
    }
    let altered =
        |reason: String| ReportError::Altered { folder: run.root().to_path_buf(), reason };
    let (names, strange) = inventory::names(run)?;
    if let Some(name) = strange.first() {
        return Err(altered(format!("{name} is neither a file nor a folder")));
    }
    let recorded = run.outcome()?.digests;
    if let Some(name) = recorded.keys().find(|name| !names.contains(name)) {
        return Err(altered(format!("{name} is missing")));
    }
    let mut subjects = Vec::new();
    for name in names {
        let found = files::sha256_file(&run.path(&name))?;
        if recorded.get(&name).is_some_and(|recorded| *recorded != found) {
            return Err(altered(format!("{name} is not the file of outcome.json")));
        }
        subjects.push(StatementSubject { name, digest: [("sha256".to_string(), found)].into() });
    }
    Ok(subjects)
}

/// The run's identity as it follows from its folder.
fn predicate(run: &RunFolder) -> Result<Map<String, Value>, ReportError> {
    /// All that is needed here of a ledger's entry.
    #[derive(Deserialize)]
    struct Entry {
        head: String,
    }
    let ledger = run.inside("ledger.jsonl")?;
    let entries: Vec<Entry> = match ledger.exists() {
        true => files::read_lines(&ledger)?,
        false => Vec::new(),
    };
    let manifest = run.manifest()?;
    let identity = json!({
        "arm": manifest.name,
        "seed": manifest.seed,
        "arm_sha256": manifest.arm_sha256,
        "run_key": manifest.run_key,
        "ledger_head": entries.last().map(|entry| &entry.head),
    });
    let identity = identity.as_object().cloned().unwrap_or_default();
    Ok(identity.into_iter().filter(|(_, value)| !value.is_null()).collect())
}

/// Compares the statement in a run folder with the folder: the digest of every file that it names,
/// that every file is named, and that it speaks of this run. Nothing outside the folder is read,
/// whatever the statement names. Returns how many files were hashed, and what does not hold.
///
/// # Errors
/// A file that is no statement about a run; a folder that cannot be read.
pub fn check(run: &RunFolder) -> Result<(usize, Vec<StatementProblem>), ReportError> {
    let statement = read(run)?;
    let (mut named, mut problems, mut hashed) = (BTreeSet::new(), Vec::new(), 0);
    for StatementSubject { name, digest } in &statement.subject {
        named.insert(name.clone());
        let missing = || ReportError::Malformed(format!("`{name}` has no SHA-256"));
        let stated = digest.get("sha256").ok_or_else(missing)?;
        if digest.len() > 1 {
            let text = format!("`{name}` has digests beside its SHA-256, which nothing holds");
            return Err(ReportError::Malformed(text));
        }
        if !inventory::is_inside(run, name)? {
            problems.push(StatementProblem::Missing { name: name.clone() });
            continue;
        }
        hashed += 1;
        let found = files::sha256_file(&run.path(name))?;
        if found != *stated {
            let (name, stated) = (name.clone(), stated.clone());
            problems.push(StatementProblem::Differs { name, stated, found });
        }
    }
    let (names, strange) = inventory::names(run)?;
    let unlisted = names.into_iter().chain(strange).filter(|name| !named.contains(name));
    problems.extend(unlisted.map(|name| StatementProblem::Unlisted { name }));
    let here = predicate(run)?;
    let keys: BTreeSet<&String> = statement.predicate.keys().chain(here.keys()).collect();
    let other = keys.into_iter().filter(|key| statement.predicate.get(*key) != here.get(*key));
    problems.extend(other.map(|key| StatementProblem::OtherRun { key: key.clone() }));
    Ok((hashed, problems))
}

fn read(run: &RunFolder) -> Result<Statement, ReportError> {
    let text = files::read_text_up_to(&run.inside(NAME)?, LIMIT_BYTES)?;
    let statement: Statement =
        serde_json::from_str(&text).map_err(|error| ReportError::Malformed(error.to_string()))?;
    for (name, found, expected) in [
        ("_type", &statement.kind, STATEMENT_TYPE),
        ("predicateType", &statement.predicate_type, PREDICATE_TYPE),
    ] {
        if found != expected {
            return Err(ReportError::Malformed(format!(
                "{name} is `{found}`, expected `{expected}`"
            )));
        }
    }
    if statement.subject.is_empty() {
        return Err(ReportError::Malformed("it names no subject".to_string()));
    }
    Ok(statement)
}
