//! Values: read from JSON, and handed back by adapters.

use serde_json::Value;
use std::collections::BTreeMap;
use tch::{Kind, Tensor};

#[derive(Debug, Clone, PartialEq)]
pub enum Got {
    /// Python's None.
    Null,
    Flag(bool),
    /// A number, NaN and infinities included; compared within the tolerance.
    Number(f64),
    /// A count or an index; compared exactly.
    Integer(u64),
    Text(String),
    List(Vec<Got>),
    Map(BTreeMap<String, Got>),
    /// A value that verl computes in float32 whatever the case's dtype.
    Float32(Box<Got>),
    /// A Python exception: class and message.
    Raised(&'static str, String),
}

pub type Outputs = BTreeMap<String, Got>;

impl Got {
    /// The numbers of a tensor, nested as its shape.
    pub fn tensor(tensor: &Tensor) -> Self {
        let tensor = tensor.detach().to_kind(Kind::Double).contiguous();
        let values = Vec::<f64>::try_from(tensor.view(-1)).expect("a tensor of doubles");
        let shape: Vec<usize> = tensor.size().iter().map(|size| *size as usize).collect();
        nest(&values, &shape)
    }

    pub fn integers(values: impl IntoIterator<Item = usize>) -> Self {
        Self::List(values.into_iter().map(|value| Self::Integer(value as u64)).collect())
    }

    pub fn numbers(values: impl IntoIterator<Item = f64>) -> Self {
        Self::List(values.into_iter().map(Self::Number).collect())
    }

    pub fn optional_text(text: Option<&str>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text.to_owned()))
    }
}

pub fn outputs<const N: usize>(values: [(&str, Got); N]) -> Outputs {
    values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The only output of a function that raises.
pub fn raised(class: &'static str, message: &str) -> Outputs {
    outputs([("error", Got::Raised(class, message.to_owned()))])
}

#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    pub shape: Vec<usize>,
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

    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        let (rows, columns) = (self.shape[0], self.shape[1]);
        (0..rows).map(move |row| &self.values[row * columns..(row + 1) * columns])
    }

    pub fn mask(self) -> Self {
        assert!(self.values.iter().all(|value| [0.0, 1.0].contains(value)), "{self:?}");
        self
    }
}

/// A number, also as a string such as `"NaN"` or `"-Infinity"`.
pub fn number(value: &Value) -> f64 {
    special(value).unwrap_or_else(|| panic!("a number is expected, got {value}"))
}

/// The number that a JSON value stands for; `None` when it stands for none.
pub fn special(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Bool(flag) => Some(f64::from(*flag)),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

pub fn count(value: &Value) -> u64 {
    let number = number(value);
    assert!(number >= 0.0 && number.fract() == 0.0, "a count is expected, got {value}");
    number as u64
}

/// A nested list of numbers; an empty list stands for any shape with a 0 in it.
pub fn array(value: &Value, dimensions: usize) -> Array {
    let mut shape = Vec::new();
    let mut inner = value;
    while let Value::Array(items) = inner {
        shape.push(items.len());
        let Some(first) = items.first() else { break };
        inner = first;
    }
    if shape.last() == Some(&0) {
        shape.resize(dimensions.max(shape.len()), 0);
    }
    let mut leaves = Vec::new();
    flatten(value, &shape, &mut leaves);
    let kind = match leaves.as_slice() {
        [] => Kind::Double,
        all if all.iter().all(|leaf| leaf.is_boolean()) => Kind::Bool,
        all if all.iter().all(|leaf| leaf.is_i64()) => Kind::Int64,
        _ => Kind::Double,
    };
    Array { shape, values: leaves.into_iter().map(number).collect(), kind }
}

fn flatten<'a>(value: &'a Value, shape: &[usize], leaves: &mut Vec<&'a Value>) {
    let Some((size, rest)) = shape.split_first() else { return leaves.push(value) };
    let items = value.as_array().unwrap_or_else(|| panic!("a list is expected, got {value}"));
    assert_eq!(items.len(), *size, "lists of equal length are expected");
    items.iter().for_each(|item| flatten(item, rest, leaves));
}

fn nest(values: &[f64], shape: &[usize]) -> Got {
    let Some((size, rest)) = shape.split_first() else { return Got::Number(values[0]) };
    let stride: usize = rest.iter().product();
    Got::List((0..*size).map(|i| nest(&values[i * stride..(i + 1) * stride], rest)).collect())
}
