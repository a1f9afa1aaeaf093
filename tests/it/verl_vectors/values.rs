//! Values of JSON: numbers and tensors that are read, and those that adapters hand back. What is
//! not finite is a text such as `"NaN"` or `"-Infinity"`.

use serde_json::{Value, json};
use tch::{Kind, Tensor};

/// As JSON has a number.
pub fn number(number: f64) -> Value {
    match number {
        _ if number.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        _ => json!(number),
    }
}

pub fn numbers(values: impl IntoIterator<Item = f64>) -> Value {
    values.into_iter().map(number).collect()
}

/// The numbers of a tensor, nested as its shape.
pub fn nested(tensor: &Tensor) -> Value {
    let tensor = tensor.detach().to_kind(Kind::Double).contiguous();
    let values = doubles(&tensor.view(-1));
    let shape: Vec<usize> = tensor.size().iter().map(|size| *size as usize).collect();
    nest(&values, &shape)
}

fn nest(values: &[f64], shape: &[usize]) -> Value {
    let Some((size, rest)) = shape.split_first() else { return number(values[0]) };
    let stride: usize = rest.iter().product();
    (0..*size).map(|i| nest(&values[i * stride..(i + 1) * stride], rest)).collect()
}

pub fn doubles(tensor: &Tensor) -> Vec<f64> {
    Vec::<f64>::try_from(tensor.to_kind(Kind::Double)).expect("a tensor of one dimension")
}

/// The gradient of the sum of some values.
pub fn gradient(values: &Tensor, leaf: &Tensor) -> Value {
    nested(&Tensor::run_backward(&[values.sum(None)], &[leaf], true, false)[0])
}

/// The only output of a function that raises.
pub fn raised(class: &str, message: &str) -> Value {
    json!({"error": format!("{class}: {message}")})
}

#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
    /// `Bool` or `Int64` when every element is one, else `Double`.
    pub kind: Kind,
}

impl Array {
    pub fn tensor(&self, kind: Kind) -> Tensor {
        let shape: Vec<i64> = self.shape.iter().map(|size| *size as i64).collect();
        Tensor::from_slice(&self.values).reshape(shape).to_kind(kind)
    }

    pub fn leaf(&self, kind: Kind) -> Tensor {
        self.tensor(kind).set_requires_grad(true)
    }

    /// A mask keeps its own kind.
    pub fn own(&self) -> Tensor {
        self.tensor(self.kind)
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

pub fn float(value: &Value) -> f64 {
    special(value).unwrap_or_else(|| panic!("a number is expected, got {value}"))
}

pub fn count(value: &Value) -> u64 {
    let number = float(value);
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
    Array { shape, values: leaves.into_iter().map(float).collect(), kind }
}

fn flatten<'a>(value: &'a Value, shape: &[usize], leaves: &mut Vec<&'a Value>) {
    let Some((size, rest)) = shape.split_first() else { return leaves.push(value) };
    let items = value.as_array().unwrap_or_else(|| panic!("a list is expected, got {value}"));
    assert_eq!(items.len(), *size, "lists of equal length are expected");
    items.iter().for_each(|item| flatten(item, rest, leaves));
}
