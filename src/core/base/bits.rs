//! Bits, and their text: eight to a byte, the first in the highest bit, in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Serialised as `<length>:<base64>`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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

    fn text(&self) -> String {
        let byte = |chunk: &[bool]| {
            chunk.iter().enumerate().fold(0u8, |byte, (i, bit)| byte | (u8::from(*bit) << (7 - i)))
        };
        let bytes: Vec<u8> = self.0.chunks(8).map(byte).collect();
        format!("{}:{}", self.0.len(), STANDARD.encode(bytes))
    }

    fn parse(text: &str) -> Result<Self, String> {
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

impl Serialize for Bits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for Bits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_survive_the_way_through_text() {
        for length in 0..40usize {
            let bits: Bits = (0..length).map(|i| i % 3 == 0 || i % 7 == 2).collect();
            assert_eq!(Bits::parse(&bits.text()), Ok(bits));
        }
        assert_eq!([true, false, true].into_iter().collect::<Bits>().text(), "3:oA==");
    }

    #[test]
    fn text_that_is_not_a_list_of_outcomes_is_refused() {
        for text in ["", "3", "3:", "x:oA==", "9:oA==", "3:sA==", "3:o", "99999999999999999999:"] {
            assert!(Bits::parse(text).is_err(), "{text}");
        }
    }
}
