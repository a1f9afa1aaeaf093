//! Does an attestation hold for a folder? Signature first, then every file.

use crate::base::files;
use crate::records::RunFolder;
use crate::report::attest::statement::{self, PREDICATE_TYPE, STATEMENT_TYPE};
use crate::report::attest::{Error, LIMIT_BYTES, NAME, key};
use crate::report::export::inventory;
use crate::report::{Envelope, Resource, Statement};
use ed25519_dalek::VerifyingKey;
use serde::Serialize;
use std::collections::BTreeSet;

/// Who vouches for a statement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Trust {
    /// There is no signature: anybody could have written it.
    Unsigned {},
    /// There are signatures, and no key was given to verify them with.
    NotVerified {
        /// How many.
        signatures: usize,
    },
    /// The given key signed exactly these bytes.
    Verified {
        /// SHA-256 of the key, see [`key::id`].
        keyid: String,
    },
}

/// One way in which a folder is not what a statement says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Problem {
    /// An attested file has other bytes.
    #[error("{name} differs: attested {attested}, found {found}")]
    Differs {
        /// Path under the run folder.
        name: String,
        /// SHA-256 in the statement.
        attested: String,
        /// SHA-256 of the file.
        found: String,
    },
    /// An attested file is not there, or what is there is no regular file inside the folder.
    #[error("{name} is attested and is not a file of the folder")]
    Missing {
        /// Path under the run folder.
        name: String,
    },
    /// A file of the folder is not attested.
    #[error("{name} is in the folder and not attested")]
    Unlisted {
        /// Path under the run folder.
        name: String,
    },
    /// The statement names another run, configuration or ledger than the folder holds.
    #[error("{parameter} of the statement is not that of the folder")]
    OtherParameter {
        /// Key of `externalParameters`.
        parameter: String,
    },
}

/// What came out of a check.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Checked {
    /// Who vouches.
    pub trust: Trust,
    /// Who says that they made the run.
    pub builder_id: String,
    /// Files that were hashed.
    pub files: usize,
    /// What does not hold; empty when the folder is what the statement says.
    pub problems: Vec<Problem>,
}

/// Reads the envelope of a run folder.
///
/// # Errors
/// When it is missing, too large, or not an envelope.
pub fn read(run: &RunFolder) -> Result<Envelope, Error> {
    let path = run.path(NAME);
    let text = files::read_text_up_to(&path, LIMIT_BYTES)?;
    serde_json::from_str(&text)
        .map_err(|error| files::Error::Json { path, reason: error.to_string() }.into())
}

/// Checks an envelope against a run folder: its signature when a key is given, the digest of
/// every file that it names, that every file is named, and that it speaks of this run. Nothing
/// outside the folder is read, whatever the statement names.
///
/// # Errors
/// An envelope that is not one, that the key did not sign, or that holds no statement about
/// a run; a folder that cannot be read. What a folder fails to match is a [`Problem`].
pub fn check(
    envelope: &Envelope,
    public: Option<&VerifyingKey>,
    run: &RunFolder,
) -> Result<Checked, Error> {
    let statement = parse(&envelope.open(public)?)?;
    let trust = match (public, envelope.signatures.len()) {
        (Some(public), _) => Trust::Verified { keyid: key::id(public) },
        (None, 0) => Trust::Unsigned {},
        (None, signatures) => Trust::NotVerified { signatures },
    };
    let mut problems = Vec::new();
    let details = &statement.predicate.run_details;
    let mut named = BTreeSet::new();
    let mut hashed = 0;
    for file in statement.subject.iter().chain(&details.byproducts) {
        named.insert(file.name.clone());
        let attested = digest(file)?;
        if !inventory::is_inside(run, &file.name)? {
            problems.push(Problem::Missing { name: file.name.clone() });
            continue;
        }
        hashed += 1;
        let found = files::sha256_file(&run.path(&file.name))?;
        if found != attested {
            let (name, attested) = (file.name.clone(), attested.to_string());
            problems.push(Problem::Differs { name, attested, found });
        }
    }
    let (names, strange) = inventory::names(run)?;
    let unlisted = names.into_iter().chain(strange).filter(|name| !named.contains(name));
    problems.extend(unlisted.map(|name| Problem::Unlisted { name }));
    problems.extend(other_parameters(run, &statement)?);
    let builder_id = details.builder.id.clone();
    Ok(Checked { trust, builder_id, files: hashed, problems })
}

fn parse(payload: &[u8]) -> Result<Statement, Error> {
    let statement: Statement =
        serde_json::from_slice(payload).map_err(|error| Error::Statement(error.to_string()))?;
    for (name, found, expected) in [
        ("_type", &statement.kind, STATEMENT_TYPE),
        ("predicateType", &statement.predicate_type, PREDICATE_TYPE),
        ("buildType", &statement.predicate.build_definition.build_type, statement::BUILD_TYPE),
    ] {
        if found != expected {
            let reason = format!("{name} is `{found}`, expected `{expected}`");
            return Err(Error::Statement(reason));
        }
    }
    if statement.subject.is_empty() {
        return Err(Error::Statement("it names no subject".to_string()));
    }
    Ok(statement)
}

fn digest(file: &Resource) -> Result<&str, Error> {
    let missing = || Error::Statement(format!("`{}` has no SHA-256", file.name));
    file.digest.get("sha256").map(String::as_str).ok_or_else(missing)
}

/// The parameters in which statement and folder differ, in either direction.
fn other_parameters(run: &RunFolder, statement: &Statement) -> Result<Vec<Problem>, Error> {
    let stated = &statement.predicate.build_definition.external_parameters;
    let here = statement::external_parameters(run)?;
    let names: BTreeSet<&String> = stated.keys().chain(here.keys()).collect();
    let differs = names.into_iter().filter(|name| stated.get(*name) != here.get(*name));
    Ok(differs.map(|name| Problem::OtherParameter { parameter: name.clone() }).collect())
}
