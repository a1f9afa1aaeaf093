//! Ed25519 keys as OpenSSL writes them: the private key as PKCS#8, the public key as
//! SubjectPublicKeyInfo, both in PEM (RFC 8410).

use crate::base::files;
use crate::report::attest::Error;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{
    DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey, KeypairBytes,
};
use ed25519_dalek::{SigningKey, VerifyingKey};
use std::path::{Path, PathBuf};

/// A key file has about 120 bytes; nothing larger is read.
const LIMIT_BYTES: u64 = 1 << 16;

/// A private key as `openssl genpkey -algorithm ed25519` writes it.
///
/// # Errors
/// A file that cannot be read, or that holds anything else: an encrypted key, a public key,
/// a key of another algorithm.
pub fn read_private(path: &Path) -> Result<SigningKey, Error> {
    let text = files::read_text_up_to(path, LIMIT_BYTES)?;
    SigningKey::from_pkcs8_pem(text.trim()).map_err(|error| Error::Key {
        path: path.to_path_buf(),
        expected: "an unencrypted ed25519 private key in PKCS#8 PEM",
        reason: error.to_string(),
    })
}

/// A public key as `openssl pkey -pubout` writes it.
///
/// # Errors
/// A file that cannot be read, or that holds anything else.
pub fn read_public(path: &Path) -> Result<VerifyingKey, Error> {
    let text = files::read_text_up_to(path, LIMIT_BYTES)?;
    VerifyingKey::from_public_key_pem(text.trim()).map_err(|error| Error::Key {
        path: path.to_path_buf(),
        expected: "an ed25519 public key in PEM",
        reason: error.to_string(),
    })
}

/// Makes a key pair from the system's random bytes: the private key at `path`, readable by its
/// owner alone, and the public key beside it with `.pub` after its name, which is returned.
///
/// # Errors
/// When one of the files is there already or cannot be written.
pub fn create(path: &Path) -> Result<PathBuf, Error> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| Error::Random(error.to_string()))?;
    let key = SigningKey::from_bytes(&secret);
    let refuse = |reason: String| Error::Random(reason);
    // Without the public key in it: OpenSSL's own form, which its older versions read too.
    let private = KeypairBytes { secret_key: secret, public_key: None }
        .to_pkcs8_pem(LineEnding::LF)
        .map_err(|error| refuse(error.to_string()))?;
    let public = key
        .verifying_key()
        .to_public_key_pem(LineEnding::LF)
        .map_err(|error| refuse(error.to_string()))?;
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".pub");
    let beside = path.with_file_name(name);
    files::write_new(&beside, public.as_bytes(), 0o644)?;
    if let Err(error) = files::write_new(path, private.as_bytes(), 0o600) {
        files::remove_file(&beside)?;
        return Err(error.into());
    }
    Ok(beside)
}

/// A name for a key: SHA-256 of its SubjectPublicKeyInfo in DER. A hint for people and tools;
/// nothing is trusted because of it.
pub fn id(key: &VerifyingKey) -> String {
    // RFC 8410 §4: SEQUENCE { SEQUENCE { OID 1.3.101.112 }, BIT STRING of 32 bytes }.
    const HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
    files::sha256(&[&HEAD[..], key.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_the_digest_of_the_key_as_openssl_writes_it_in_der() {
        let key = SigningKey::from_bytes(&[7; 32]).verifying_key();
        let der = key.to_public_key_der().unwrap();
        assert_eq!(id(&key), files::sha256(der.as_bytes()));
    }

    #[test]
    fn a_new_key_pair_fits_together_is_private_and_overwrites_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        let public = create(&path).unwrap();
        assert_eq!(public, folder.path().join("key.pem.pub"));
        let key = read_private(&path).unwrap();
        assert_eq!(key.verifying_key(), read_public(&public).unwrap());
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let before = [files::read(&path).unwrap(), files::read(&public).unwrap()];
        create(&path).unwrap_err();
        files::remove_file(&public).unwrap();
        create(&path).unwrap_err();
        assert!(!public.exists(), "no public key without its private one");
        assert_eq!(files::read(&path).unwrap(), before[0]);
        let other = folder.path().join("other.pem");
        create(&other).unwrap();
        assert_ne!(files::read(&other).unwrap(), before[0]);
    }

    #[test]
    fn anything_but_an_ed25519_key_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        let public = create(&path).unwrap();
        let refused = read_private(&public).unwrap_err().to_string();
        assert!(refused.contains("key.pem.pub: not an unencrypted ed25519 private"), "{refused}");
        let refused = read_public(&path).unwrap_err().to_string();
        assert!(refused.contains("key.pem: not an ed25519 public key"), "{refused}");
        let text = folder.path().join("text");
        files::write_atomic(&text, b"-----BEGIN PRIVATE KEY-----\nAAAA\n").unwrap();
        read_private(&text).unwrap_err();
        read_private(&folder.path().join("nowhere")).unwrap_err();
    }
}
