//! The distance of two floating-point numbers in units in the last place.

use serde::{Serialize, Serializer};
use serde_json::json;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    F64(f64),
    F32(f32),
    Text(String),
    Absent,
}

impl Value {
    /// Shortest decimal that reads as the same float; for NaN also the bits.
    pub fn text(&self) -> String {
        match self {
            Self::F64(value) if value.is_nan() => format!("NaN ({:#018x})", value.to_bits()),
            Self::F32(value) if value.is_nan() => format!("NaN ({:#010x})", value.to_bits()),
            Self::F64(value) => format!("{value:?}"),
            Self::F32(value) => format!("{value:?}"),
            Self::Text(text) => text.clone(),
            Self::Absent => "absent".to_string(),
        }
    }

    /// Compares bits or text: -0.0 is not 0.0, and a NaN equals itself.
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::F64(a), Self::F64(b)) => a.to_bits() == b.to_bits(),
            (Self::F32(a), Self::F32(b)) => a.to_bits() == b.to_bits(),
            _ => self == other,
        }
    }

    /// `None` unless both are floats of one type.
    pub fn ulps(&self, other: &Self) -> Option<u64> {
        match (self, other) {
            (Self::F64(a), Self::F64(b)) => f64_distance(*a, *b),
            (Self::F32(a), Self::F32(b)) => f32_distance(*a, *b),
            _ => None,
        }
    }

    /// |a − b| in f64: infinite for a NaN or one infinity; `None` if they are not both floats.
    pub fn gap(&self, other: &Self) -> Option<f64> {
        let (a, b) = match (self, other) {
            (Self::F64(a), Self::F64(b)) => (*a, *b),
            (Self::F32(a), Self::F32(b)) => (f64::from(*a), f64::from(*b)),
            _ => return None,
        };
        if a == b {
            return Some(0.0);
        }
        let gap = (a - b).abs();
        Some(if gap.is_nan() { f64::INFINITY } else { gap })
    }
}

/// A float is `{"value", "bits"}` (`value` null where JSON has no such number), an absent value null.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value = match self {
            Self::F64(value) => {
                json!({ "value": value, "bits": format!("{:#018x}", value.to_bits()) })
            }
            Self::F32(value) => {
                json!({ "value": f64::from(*value), "bits": format!("{:#010x}", value.to_bits()) })
            }
            Self::Text(text) => json!(text),
            Self::Absent => json!(null),
        };
        value.serialize(serializer)
    }
}

/// Steps along all f64 in order of size, −0 = +0, infinity after the largest finite number. `None` for a NaN.
pub fn f64_distance(a: f64, b: f64) -> Option<u64> {
    (!a.is_nan() && !b.is_nan()).then(|| distance([a, b].map(f64::to_bits), 1 << 63))
}

/// Among all f32.
pub fn f32_distance(a: f32, b: f32) -> Option<u64> {
    let is_number = !a.is_nan() && !b.is_nan();
    is_number.then(|| distance([a, b].map(|value| u64::from(value.to_bits())), 1 << 31))
}

/// Bits of positive floats are in order of size; negative ones count down from 0.
fn distance(bits: [u64; 2], sign: u64) -> u64 {
    let [a, b] = bits.map(|bits| {
        let size = i128::from(bits & (sign - 1));
        if bits & sign == 0 { size } else { -size }
    });
    (a - b).unsigned_abs() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_are_one_apart_across_zero_binades_and_infinity() {
        assert_eq!(f64_distance(1.0, 1.0f64.next_up()), Some(1));
        assert_eq!(f64_distance(1.0, 1.0f64.next_down()), Some(1));
        assert_eq!(f64_distance(0.0, -0.0), Some(0));
        assert_eq!(f64_distance(0.0f64.next_up(), 0.0f64.next_down()), Some(2));
        assert_eq!(f64_distance(f64::MAX, f64::INFINITY), Some(1));
        assert_eq!(f64_distance(f64::NEG_INFINITY, f64::INFINITY), Some(2 * 0x7ff0_0000_0000_0000));
        assert_eq!(f64_distance(1.0, 2.0), Some(1 << 52));
        assert_eq!(f32_distance(1.0, 2.0), Some(1 << 23));
        assert_eq!(f32_distance(-1.0, 1.0), Some(2 * 0x3f80_0000));
        assert_eq!(f32_distance(f32::MAX, f32::INFINITY), Some(1));
    }

    #[test]
    fn not_a_number_is_no_distance_away_and_infinitely_far() {
        assert_eq!(f64_distance(f64::NAN, f64::NAN), None);
        assert_eq!(f32_distance(1.0, f32::NAN), None);
        assert_eq!(Value::F64(f64::NAN).gap(&Value::F64(1.0)), Some(f64::INFINITY));
        assert_eq!(Value::F64(f64::INFINITY).gap(&Value::F64(f64::INFINITY)), Some(0.0));
        assert!(Value::F64(f64::NAN).same(&Value::F64(f64::NAN)));
        assert!(!Value::F64(0.0).same(&Value::F64(-0.0)));
        assert_eq!(Value::F64(1.0).ulps(&Value::F32(1.0)), None);
        assert_eq!(Value::F64(f64::NAN).text(), "NaN (0x7ff8000000000000)");
        let json = serde_json::to_string(&Value::F64(f64::INFINITY)).unwrap();
        assert_eq!(json, r#"{"value":null,"bits":"0x7ff0000000000000"}"#);
    }

    proptest! {
        #[test]
        fn the_distance_is_symmetric_and_counts_steps(bits in any::<u64>(), steps in 0u64..50) {
            let from = f64::from_bits(bits);
            prop_assume!(!from.is_nan());
            let mut to = from;
            let mut taken = 0;
            for _ in 0..steps {
                if to < f64::INFINITY {
                    taken += 1;
                    to = to.next_up();
                }
            }
            prop_assert_eq!(f64_distance(from, to), Some(taken));
            prop_assert_eq!(f64_distance(to, from), Some(taken));
        }
    }
}
