//! Who says that a run is what it is: an in-toto Statement v1 with a SLSA provenance v1
//! predicate in a DSSE envelope, signed with ed25519 or not, and its check.
//!
//! A run that its maker signs with a key of their own is SLSA Build L1 at most: the statement
//! exists and says how the run was made, but nothing that the maker cannot change vouches for
//! it. A signature shows who made the statement, never that the run took place; that takes
//! replaying steps of it.

pub mod check;
pub mod envelope;
pub mod key;
pub mod statement;

use crate::base::files;
use crate::records::RunFolder;
use crate::report::Envelope;
use ed25519_dalek::SigningKey;
use std::path::PathBuf;

/// The envelope's name in the run folder.
pub const NAME: &str = "attestation.json";

/// Longest envelope that is read: a statement has about 150 bytes for each file.
pub const LIMIT_BYTES: u64 = 64 << 20;

/// An attestation that cannot be made, read or believed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file.
    #[error(transparent)]
    File(#[from] files::Error),
    /// The run has not ended.
    #[error("{} has not ended: there is no outcome.json to attest", folder.display())]
    Unfinished {
        /// The run folder.
        folder: PathBuf,
    },
    /// The files are not those that the run wrote.
    #[error("{}: {reason}; what does not hold is not attested", folder.display())]
    Altered {
        /// The run folder.
        folder: PathBuf,
        /// Which file, and what is wrong with it.
        reason: String,
    },
    /// A key that is not an ed25519 key in the expected form.
    #[error("{}: not {expected}: {reason}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// The decoder's reason.
        reason: String,
    },
    /// The system gave no random bytes.
    #[error("no random bytes for a key: {0}")]
    Random(String),
    /// A builder without a name.
    #[error("`{0}` is no builder id: a URI such as https://example.org/lab or urn:example:lab")]
    BuilderId(String),
    /// The envelope holds another kind of payload.
    #[error("payloadType is `{0}`, expected `application/vnd.in-toto+json`")]
    PayloadType(String),
    /// Not base64.
    #[error("{field} is not base64: {reason}")]
    Base64 {
        /// `payload` or `sig`.
        field: &'static str,
        /// The decoder's reason.
        reason: String,
    },
    /// A signature was asked for and there is none.
    #[error("the envelope is not signed")]
    Unsigned,
    /// No signature in the envelope was made by this key over this payload.
    #[error(
        "none of {signatures} signatures is valid under the key {keyid}: another key, or an altered payload"
    )]
    WrongSignature {
        /// Signatures in the envelope.
        signatures: usize,
        /// The key that was given.
        keyid: String,
    },
    /// The payload is no statement about a run.
    #[error("the payload is no statement about a run: {0}")]
    Statement(String),
}

/// Writes a run's attestation into its folder, in place of one that is there.
///
/// # Errors
/// See [`statement::statement`]; a folder that cannot be written.
pub fn write(
    run: &RunFolder,
    builder_id: &str,
    key: Option<&SigningKey>,
) -> Result<Envelope, Error> {
    let statement = statement::statement(run, builder_id)?;
    let envelope = envelope::seal(files::canonical_json_line(&statement).as_bytes(), key);
    files::write_json(&run.path(NAME), &envelope)?;
    Ok(envelope)
}
