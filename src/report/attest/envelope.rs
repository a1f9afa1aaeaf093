//! DSSE, the Dead Simple Signing Envelope (version 1.0.2): a payload with signatures over its
//! bytes and its type.

use crate::report::attest::{Error, key};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use ed25519_dalek::{Signature as Bytes, Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};

/// The type of an in-toto statement.
pub const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";

/// A payload and who signed it. Unknown fields are ignored, as DSSE demands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// The payload's bytes in base64.
    pub payload: String,
    /// Its media type.
    pub payload_type: String,
    /// One for each key; none in an envelope that nobody signed.
    pub signatures: Vec<Signature>,
}

/// One signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// A hint which key made it.
    #[serde(default)]
    pub keyid: String,
    /// 64 bytes in base64.
    pub sig: String,
}

/// The bytes that are signed: DSSE's pre-authentication encoding,
/// `DSSEv1 <length of type> <type> <length of payload> <payload>`.
pub fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

/// Puts a payload into an envelope, signed when a key is given.
pub fn seal(payload: &[u8], key: Option<&SigningKey>) -> Envelope {
    let sign = |key: &SigningKey| Signature {
        keyid: key::id(&key.verifying_key()),
        sig: STANDARD.encode(key.sign(&pae(PAYLOAD_TYPE, payload)).to_bytes()),
    };
    Envelope {
        payload: STANDARD.encode(payload),
        payload_type: PAYLOAD_TYPE.to_string(),
        signatures: key.map(sign).into_iter().collect(),
    }
}

impl Envelope {
    /// The payload's bytes; with a key, only when that key signed them.
    ///
    /// # Errors
    /// Another payload type; text that is not base64; with a key, an envelope without a
    /// signature of that key over these bytes.
    pub fn open(&self, public: Option<&VerifyingKey>) -> Result<Vec<u8>, Error> {
        if self.payload_type != PAYLOAD_TYPE {
            return Err(Error::PayloadType(self.payload_type.clone()));
        }
        let payload = decode("payload", &self.payload)?;
        if let Some(public) = public {
            self.verify(public, &pae(&self.payload_type, &payload))?;
        }
        Ok(payload)
    }

    /// Tries every signature: a key id is a hint and decides nothing.
    fn verify(&self, public: &VerifyingKey, message: &[u8]) -> Result<(), Error> {
        if self.signatures.is_empty() {
            return Err(Error::Unsigned);
        }
        for signature in &self.signatures {
            let bytes = decode("sig", &signature.sig)?;
            // Strict: neither keys of small order nor signatures with another encoding.
            let valid = |bytes: &Bytes| public.verify_strict(message, bytes).is_ok();
            if Bytes::from_slice(&bytes).is_ok_and(|bytes| valid(&bytes)) {
                return Ok(());
            }
        }
        let (signatures, keyid) = (self.signatures.len(), key::id(public));
        Err(Error::WrongSignature { signatures, keyid })
    }
}

/// DSSE allows both alphabets.
fn decode(field: &'static str, text: &str) -> Result<Vec<u8>, Error> {
    STANDARD
        .decode(text)
        .or_else(|error| URL_SAFE.decode(text).map_err(|_| error))
        .map_err(|error| Error::Base64 { field, reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> SigningKey {
        SigningKey::from_bytes(&[byte; 32])
    }

    #[test]
    fn the_signed_bytes_are_those_of_the_specification() {
        // The example of DSSE's protocol.md.
        let bytes = pae("http://example.com/HelloWorld", b"hello world");
        assert_eq!(bytes, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
    }

    #[test]
    fn an_envelope_opens_with_the_key_that_sealed_it_whatever_the_key_id_says() {
        let mut sealed = seal(b"{}", Some(&key(1)));
        assert_eq!(sealed.open(Some(&key(1).verifying_key())).unwrap(), b"{}");
        assert_eq!(sealed.open(None).unwrap(), b"{}");
        sealed.signatures[0].keyid = "somebody else".to_string();
        sealed.open(Some(&key(1).verifying_key())).unwrap();
        sealed.signatures.insert(0, seal(b"{}", Some(&key(2))).signatures.remove(0));
        sealed.open(Some(&key(1).verifying_key())).unwrap();
    }

    #[test]
    fn another_key_payload_type_or_no_signature_is_refused() {
        let sealed = seal(b"{\"a\":1}", Some(&key(1)));
        let wrong = sealed.open(Some(&key(2).verifying_key())).unwrap_err();
        assert!(matches!(wrong, Error::WrongSignature { signatures: 1, .. }));
        let changed = Envelope { payload: STANDARD.encode(b"{\"a\":2}"), ..sealed.clone() };
        let wrong = changed.open(Some(&key(1).verifying_key())).unwrap_err();
        assert!(matches!(wrong, Error::WrongSignature { .. }));
        assert_eq!(changed.open(None).unwrap(), b"{\"a\":2}", "without a key nobody vouches");
        let other = Envelope { payload_type: "text/plain".to_string(), ..sealed.clone() };
        assert!(
            matches!(other.open(None).unwrap_err(), Error::PayloadType(found) if found == "text/plain")
        );
        let unsigned = seal(b"{}", None);
        let refused = unsigned.open(Some(&key(1).verifying_key())).unwrap_err();
        assert!(matches!(refused, Error::Unsigned));
        let torn = Envelope { payload: "e30".to_string() + "!", ..sealed };
        assert!(matches!(torn.open(None).unwrap_err(), Error::Base64 { field: "payload", .. }));
    }

    #[test]
    fn every_flipped_bit_of_a_signature_is_noticed() {
        let sealed = seal(b"{}", Some(&key(1)));
        let bytes = STANDARD.decode(&sealed.signatures[0].sig).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let mut changed = sealed.clone();
            changed.signatures[0].sig = STANDARD.encode(flipped);
            changed.open(Some(&key(1).verifying_key())).unwrap_err();
        }
    }

    #[test]
    fn both_alphabets_of_base64_are_read() {
        let mut sealed = seal(&[0xfb, 0xff, 0xfe], Some(&key(1)));
        sealed.payload = URL_SAFE.encode([0xfb, 0xff, 0xfe]);
        assert!(sealed.payload.contains('_'));
        assert_eq!(sealed.open(Some(&key(1).verifying_key())).unwrap(), [0xfb, 0xff, 0xfe]);
    }
}
