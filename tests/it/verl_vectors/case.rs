//! Reading vector files, and typed access to the inputs of a case: what does not fit panics with
//! the case and the key.

use crate::verl_vectors::values::{Array, array, count, float};
use dapo::base::files;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use tch::Kind;

pub struct Case {
    /// Its name, or its position when it has none.
    pub name: String,
    inputs: Value,
    /// Keys that an adapter has looked at.
    read: RefCell<BTreeSet<String>>,
    pub outputs: Map<String, Value>,
    note: String,
}

/// The cases of a file, in file order: `{cases}`, a bare list, or JSON lines.
pub fn cases(path: &Path) -> Vec<Case> {
    let text = files::read_text(path).unwrap();
    let values: Vec<Value> = if path.extension().is_some_and(|extension| extension == "jsonl") {
        files::parse_lines(path, text.as_bytes()).unwrap()
    } else {
        match serde_json::from_str(&text).unwrap() {
            Value::Array(values) => values,
            mut file => file["cases"].as_array_mut().map(std::mem::take).unwrap(),
        }
    };
    values.into_iter().enumerate().map(|(index, case)| Case::new(index, case)).collect()
}

pub const FLOAT32: f64 = 1e-5;

impl Case {
    fn new(index: usize, mut case: Value) -> Self {
        let case = case.as_object_mut().expect("a case is an object");
        let mut text = |key: &str| case.remove(key).map(|text| text.as_str().unwrap().to_owned());
        let name = text("name").unwrap_or_else(|| format!("#{index}"));
        let note = text("note").unwrap_or_default();
        let outputs = ["outputs", "expected", "output"].iter().find_map(|key| case.remove(*key));
        let outputs = match outputs.unwrap_or_else(|| panic!("{name}: no outputs")) {
            Value::Object(outputs) => outputs,
            value => Map::from_iter([("output".to_owned(), value)]),
        };
        let inputs = case.remove("inputs").unwrap_or_else(|| json!(case));
        assert!(inputs.is_object(), "{name}: inputs");
        Self { name, inputs, read: RefCell::default(), outputs, note }
    }

    /// Inputs that no adapter has looked at; `kind` decides the tolerance.
    pub fn unread(&self) -> impl Iterator<Item = &String> {
        let inputs = self.inputs.as_object().into_iter().flatten();
        let there = inputs.filter(|(key, value)| *key != "dtype" && !value.is_null());
        there.map(|(key, _)| key).filter(|key| !self.read.borrow().contains(*key))
    }

    /// The kind that verl computed in: the case's `dtype`, float64 when it says nothing.
    pub fn kind(&self) -> Kind {
        match self.text_or("dtype", "float64") {
            "float64" => Kind::Double,
            "float32" => Kind::Float,
            other => panic!("{}: dtype {other}", self.name),
        }
    }

    /// How far a number may be off, absolutely and as a share of the expected one: what the note
    /// says (`tolerance 1e-3: why`), or what the kind allows.
    pub fn tolerance(&self) -> f64 {
        match self.note.strip_prefix("tolerance ") {
            Some(note) => note.split(':').next().unwrap().parse().unwrap(),
            None if self.kind() == Kind::Float => FLOAT32,
            None => 1e-9,
        }
    }

    pub fn optional(&self, key: &str) -> Option<&Value> {
        self.read.borrow_mut().insert(key.to_owned());
        self.inputs.get(key).filter(|value| !value.is_null())
    }

    pub fn required(&self, key: &str) -> &Value {
        self.optional(key).unwrap_or_else(|| panic!("{}: `{key}` is missing", self.name))
    }

    pub fn number(&self, key: &str) -> f64 {
        float(self.required(key))
    }

    pub fn number_or(&self, key: &str, default: f64) -> f64 {
        self.optional(key).map_or(default, float)
    }

    pub fn count(&self, key: &str) -> u64 {
        count(self.required(key))
    }

    pub fn text(&self, key: &str) -> &str {
        self.required(key).as_str().unwrap_or_else(|| panic!("{}: `{key}` is no text", self.name))
    }

    pub fn text_or<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        if self.optional(key).is_none() { default } else { self.text(key) }
    }

    /// A truth value that may be missing or null; 0 and 1 count.
    pub fn flag_or(&self, key: &str, default: bool) -> bool {
        self.number_or(key, f64::from(default)) != 0.0
    }

    pub fn list(&self, key: &str) -> &Vec<Value> {
        self.required(key).as_array().unwrap_or_else(|| panic!("{}: `{key}` is no list", self.name))
    }

    /// A nested list of numbers with this many dimensions.
    pub fn array(&self, key: &str, dimensions: usize) -> Array {
        let array = array(self.required(key), dimensions);
        assert_eq!(array.shape.len(), dimensions, "{}: {key}", self.name);
        array
    }

    pub fn nested_array(&self, key: &str) -> Array {
        array(self.required(key), 0)
    }

    pub fn array_of_shape(&self, key: &str, shape: &[usize]) -> Array {
        let array = self.array(key, shape.len());
        assert_eq!(array.shape, shape, "{}: {key}", self.name);
        array
    }

    /// A mask of 0 and 1 (or false and true).
    pub fn mask(&self, key: &str, shape: &[usize]) -> Array {
        self.array_of_shape(key, shape).mask()
    }
}
