//! Values: read from JSON with the key named when they are malformed, and handed back by
//! adapters.

use serde_json::Value;
use std::collections::BTreeMap;
use tch::{Kind, Tensor};

/// A key of a case that does not hold what its function needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}`: {reason}")]
pub struct Malformed {
    key: String,
    reason: String,
}

impl Malformed {
    /// Names a key and what is wrong with it.
    pub fn new(key: &str, reason: &str) -> Self {
        Self { key: key.to_owned(), reason: reason.to_owned() }
    }
}

/// A value that an adapter computed.
#[derive(Debug, Clone, PartialEq)]
pub enum Got {
    /// Python's None.
    Null,
    /// A truth value.
    Flag(bool),
    /// A number, NaN and infinities included; compared within the tolerance.
    Number(f64),
    /// A count or an index; compared exactly.
    Integer(u64),
    /// A string.
    Text(String),
    /// A list or a tensor.
    List(Vec<Got>),
    /// A dictionary.
    Map(BTreeMap<String, Got>),
    /// A value that verl computes in float32 whatever the case's dtype.
    Float32(Box<Got>),
    /// A Python exception: class and message.
    Raised(&'static str, String),
}

/// What an adapter hands back: outputs by name.
pub type Outputs = BTreeMap<String, Got>;

impl Got {
    /// The numbers of a tensor, nested as its shape.
    pub fn tensor(tensor: &Tensor) -> Self {
        let tensor = tensor.detach().to_kind(Kind::Double).contiguous();
        let values = Vec::<f64>::try_from(tensor.view(-1)).expect("a tensor of doubles");
        let shape: Vec<usize> = tensor.size().iter().map(|size| *size as usize).collect();
        nest(&values, &shape)
    }

    /// Integers.
    pub fn integers(values: impl IntoIterator<Item = usize>) -> Self {
        Self::List(values.into_iter().map(|value| Self::Integer(value as u64)).collect())
    }

    /// Numbers.
    pub fn numbers(values: impl IntoIterator<Item = f64>) -> Self {
        Self::List(values.into_iter().map(Self::Number).collect())
    }

    /// A string or None.
    pub fn optional_text(text: Option<&str>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text.to_owned()))
    }
}

/// Outputs from name and value.
pub fn outputs<const N: usize>(values: [(&str, Got); N]) -> Outputs {
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The only output of a function that raises.
pub fn raised(class: &'static str, message: &str) -> Outputs {
    outputs([("error", Got::Raised(class, message.to_owned()))])
}

/// A nested list of numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// Size of each dimension.
    pub shape: Vec<usize>,
    /// Row-major values.
    pub values: Vec<f64>,
    /// `Bool` or `Int64` when every element is one, else `Double`.
    pub kind: Kind,
}

impl Array {
    /// As a tensor of this kind; a mask keeps its own kind with `None`.
    pub fn tensor(&self, kind: Option<Kind>) -> Tensor {
        let shape: Vec<i64> = self.shape.iter().map(|size| *size as i64).collect();
        Tensor::from_slice(&self.values).reshape(shape).to_kind(kind.unwrap_or(self.kind))
    }

    /// The rows of a matrix.
    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        let (rows, columns) = (self.shape[0], self.shape[1]);
        (0..rows).map(move |row| &self.values[row * columns..(row + 1) * columns])
    }
}

/// A mask holds nothing but 0 and 1.
pub fn check_mask(key: &str, mask: &Array) -> Result<(), Malformed> {
    match mask.values.iter().find(|value| **value != 0.0 && **value != 1.0) {
        Some(value) => {
            Err(Malformed::new(key, &format!("a mask of 0 and 1 is expected, got {value}")))
        }
        None => Ok(()),
    }
}

/// A number, also as a string such as `"NaN"` or `"-Infinity"`.
pub fn number(key: &str, value: &Value) -> Result<f64, Malformed> {
    special(value).ok_or_else(|| Malformed::new(key, &format!("a number is expected, got {value}")))
}

/// The number that a JSON value stands for; `None` when it stands for none.
pub fn special(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Bool(flag) => Some(f64::from(*flag)),
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "nan" => Some(f64::NAN),
            "inf" | "infinity" | "+inf" | "+infinity" => Some(f64::INFINITY),
            "-inf" | "-infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// A number that counts something.
pub fn count(key: &str, value: &Value) -> Result<u64, Malformed> {
    let number = number(key, value)?;
    if number >= 0.0 && number.fract() == 0.0 && number < 9e15 {
        Ok(number as u64)
    } else {
        Err(Malformed::new(key, &format!("a count is expected, got {value}")))
    }
}

/// A nested list of numbers with this many dimensions; an empty list stands for any shape
/// with a 0 in it.
pub fn array(key: &str, value: &Value, dimensions: usize) -> Result<Array, Malformed> {
    let mut shape = Vec::new();
    let mut inner = value;
    while let Value::Array(items) = inner {
        shape.push(items.len());
        let Some(first) = items.first() else { break };
        inner = first;
    }
    if shape.last() == Some(&0) {
        shape.resize(dimensions, 0);
    }
    if shape.len() != dimensions {
        let reason = format!("{dimensions} nested lists are expected, got {}", shape.len());
        return Err(Malformed::new(key, &reason));
    }
    let mut array = Array { shape: shape.clone(), values: Vec::new(), kind: Kind::Double };
    let mut kinds = [true, true];
    flatten(key, value, &shape, &mut array.values, &mut kinds)?;
    if !array.values.is_empty() {
        array.kind = match kinds {
            [true, _] => Kind::Bool,
            [_, true] => Kind::Int64,
            _ => Kind::Double,
        };
    }
    Ok(array)
}

fn flatten(
    key: &str,
    value: &Value,
    shape: &[usize],
    values: &mut Vec<f64>,
    kinds: &mut [bool; 2],
) -> Result<(), Malformed> {
    let Some((size, rest)) = shape.split_first() else {
        kinds[0] &= value.is_boolean();
        kinds[1] &= value.is_i64() || value.is_u64();
        values.push(number(key, value)?);
        return Ok(());
    };
    let items = value.as_array().filter(|items| items.len() == *size).ok_or_else(|| {
        Malformed::new(key, &format!("lists of equal length are expected ({size} here)"))
    })?;
    for (i, item) in items.iter().enumerate() {
        flatten(&format!("{key}[{i}]"), item, rest, values, kinds)?;
    }
    Ok(())
}

fn nest(values: &[f64], shape: &[usize]) -> Got {
    let Some((size, rest)) = shape.split_first() else { return Got::Number(values[0]) };
    let stride: usize = rest.iter().product();
    Got::List((0..*size).map(|i| nest(&values[i * stride..(i + 1) * stride], rest)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arrays_keep_their_shape_and_kind() {
        let read = |value: Value| array("x", &value, 2);
        let floats = read(json!([[1, 2.5], ["NaN", "-inf"]])).unwrap();
        assert_eq!((floats.shape.as_slice(), floats.kind), ([2, 2].as_slice(), Kind::Double));
        assert!(floats.values[2].is_nan() && floats.values[3] == f64::NEG_INFINITY);
        assert_eq!(read(json!([[1, 0]])).unwrap().kind, Kind::Int64);
        assert_eq!(read(json!([[true, false]])).unwrap().kind, Kind::Bool);
        assert_eq!(read(json!([])).unwrap().shape, [0, 0]);
        assert_eq!(read(json!([[], []])).unwrap().shape, [2, 0]);
    }

    #[test]
    fn what_is_malformed_is_named() {
        for (value, expected) in [
            (json!([[1.0], [2.0, 3.0]]), "`x[1]`: lists of equal length are expected (1 here)"),
            (json!([[1.0, "one"]]), "`x[0][1]`: a number is expected, got \"one\""),
            (json!([1.0]), "`x`: 2 nested lists are expected, got 1"),
            (json!(1.0), "`x`: 2 nested lists are expected, got 0"),
        ] {
            assert_eq!(array("x", &value, 2).unwrap_err().to_string(), expected);
        }
        assert!(count("n", &json!(1.5)).is_err() && count("n", &json!(-1)).is_err());
        assert_eq!(count("n", &json!(16.0)), Ok(16));
    }

    #[test]
    fn tensors_nest_as_their_shape() {
        let tensor = Tensor::from_slice(&[1.0, 2.0, 3.0, 4.0]).reshape([2, 2]);
        let expected = Got::List(vec![Got::numbers([1.0, 2.0]), Got::numbers([3.0, 4.0])]);
        assert_eq!(Got::tensor(&tensor), expected);
        assert_eq!(Got::tensor(&tensor.sum(Kind::Double)), Got::Number(10.0));
        assert_eq!(
            Got::tensor(&Tensor::from_slice::<f64>(&[]).reshape([2, 0])),
            Got::List(vec![Got::List(vec![]), Got::List(vec![])])
        );
    }
}
