//! Bits, and their text: eight to a byte, the first in the highest bit, in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// Serialised as `<length>:<base64>`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Bits(Vec<bool>);

impl Bits {
    pub fn values(&self) -> &[bool] {
        &self.0
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of ones in each `size` bits.
    pub fn counts(&self, size: usize) -> Vec<u64> {
        let ones = |part: &[bool]| part.iter().map(|bit| u64::from(*bit)).sum();
        self.0.chunks(size.max(1)).map(ones).collect()
    }
}

impl From<Bits> for String {
    fn from(Bits(bits): Bits) -> Self {
        let byte = |chunk: &[bool]| {
            chunk.iter().enumerate().fold(0u8, |byte, (i, bit)| byte | (u8::from(*bit) << (7 - i)))
        };
        let bytes: Vec<u8> = bits.chunks(8).map(byte).collect();
        format!("{}:{}", bits.len(), STANDARD.encode(bytes))
    }
}

impl TryFrom<String> for Bits {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (length, encoded) = text.split_once(':').ok_or("outcomes need `<length>:<base64>`")?;
        let length: usize = length.parse().map_err(|_| format!("no length: `{length}`"))?;
        let bytes = STANDARD.decode(encoded).map_err(|error| error.to_string())?;
        if bytes.len() != length.div_ceil(8) {
            return Err(format!("{} bytes cannot hold {length} outcomes", bytes.len()));
        }
        let mut bits: Vec<bool> =
            bytes.iter().flat_map(|byte| (0..8).map(move |i| byte >> (7 - i) & 1 == 1)).collect();
        if bits[length..].contains(&true) {
            return Err("the unused bits of the last byte are not 0".to_string());
        }
        bits.truncate(length);
        Ok(Self(bits))
    }
}

impl FromIterator<bool> for Bits {
    fn from_iter<I: IntoIterator<Item = bool>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_survive_the_way_through_text() {
        for length in 0..40usize {
            let bits: Bits = (0..length).map(|i| i % 3 == 0 || i % 7 == 2).collect();
            assert_eq!(Bits::try_from(String::from(bits.clone())), Ok(bits));
        }
        assert_eq!(String::from(Bits::from_iter([true, false, true])), "3:oA==");
    }

    #[test]
    fn text_that_is_not_a_list_of_outcomes_is_refused() {
        for text in ["", "3", "3:", "x:oA==", "9:oA==", "3:sA==", "3:o", "99999999999999999999:"] {
            assert!(Bits::try_from(text.to_string()).is_err(), "{text}");
        }
    }
}
