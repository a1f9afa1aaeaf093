//! Reading vector files: the shapes that they come in, the tolerance of a case, and typed
//! access to its inputs.

use crate::verl_vectors::Error;
use crate::verl_vectors::values::{Array, Malformed, array, check_mask, count, number};
use dapo::base::files;
use regex::Regex;
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::LazyLock;
use tch::Kind;

/// One call of a verl function.
#[derive(Debug, Clone)]
pub struct Case {
    /// Its name, or its position when it has none.
    pub name: String,
    /// What was passed.
    pub inputs: Map<String, Value>,
    /// What came back.
    pub outputs: Map<String, Value>,
    note: String,
    explicit: [Option<Value>; 3],
}

/// How far a number may be off: `|got − want| ≤ max(absolute, relative · |want|)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// In the number's own unit.
    pub absolute: f64,
    /// As a share of the expected number.
    pub relative: f64,
}

impl Tolerance {
    /// For a function that computed in float64.
    pub const FLOAT64: Self = Self::both(1e-9);
    /// For a function that computed in float32.
    pub const FLOAT32: Self = Self::both(1e-5);

    /// The same number as absolute and as relative tolerance.
    pub const fn both(tolerance: f64) -> Self {
        Self { absolute: tolerance, relative: tolerance }
    }
}

/// Keys beside the inputs of a flat case.
const ABOUT: [&str; 9] =
    ["name", "note", "notes", "tolerance", "atol", "rtol", "outputs", "expected", "output"];

/// The cases of a file, in file order.
///
/// # Errors
/// When the file cannot be read, is not JSON, or is not a list of cases with outputs.
pub fn cases(path: &Path) -> Result<Vec<Case>, Error> {
    let text = quote_bare_numbers(&files::read_text(path)?);
    let format = |problem: Malformed| Error::Format { path: path.to_path_buf(), problem };
    let lines = path.extension().is_some_and(|extension| extension == "jsonl");
    let (meta, values) = if lines {
        (Map::new(), files::parse_lines::<Value>(path, text.as_bytes())?)
    } else {
        let value: Value = serde_json::from_str(&text).map_err(|error| files::FileError::Json {
            path: path.to_path_buf(),
            reason: error.to_string(),
        })?;
        match value {
            Value::Array(values) => (Map::new(), values),
            Value::Object(mut file) => {
                let Some(Value::Array(values)) = file.remove("cases") else {
                    return Err(format(Malformed::new("cases", "a list is expected")));
                };
                let meta = file.remove("meta").and_then(|meta| meta.as_object().cloned());
                (meta.unwrap_or_default(), values)
            }
            _ => return Err(format(Malformed::new("cases", "an object or a list is expected"))),
        }
    };
    let is_case = |value: &Value| !value.as_object().is_some_and(|case| case.keys().eq(["meta"]));
    let values = values.into_iter().filter(is_case).enumerate();
    values.map(|(i, value)| Case::new(i, value, &meta).map_err(format)).collect()
}

impl Case {
    fn new(index: usize, value: Value, meta: &Map<String, Value>) -> Result<Self, Malformed> {
        let place = format!("cases[{index}]");
        let Value::Object(mut case) = value else {
            return Err(Malformed::new(&place, "an object is expected"));
        };
        let text = |key: &str| case.get(key).and_then(Value::as_str).map(str::to_owned);
        let name = text("name").unwrap_or_else(|| format!("#{index}"));
        let note = text("note").or_else(|| text("notes")).unwrap_or_default();
        let number = |key: &str| case.get(key).or_else(|| meta.get(key)).cloned();
        let explicit = ["tolerance", "atol", "rtol"].map(number);
        let outputs = ["outputs", "expected", "output"].iter().find_map(|key| case.remove(*key));
        let outputs = match outputs {
            Some(Value::Object(outputs)) => outputs,
            Some(value) => Map::from_iter([("output".to_owned(), value)]),
            None => return Err(Malformed::new(&place, "it has no `outputs` or `expected`")),
        };
        let inputs = match case.remove("inputs") {
            Some(Value::Object(inputs)) => inputs,
            Some(_) => return Err(Malformed::new(&place, "`inputs` must be an object")),
            None => {
                case.retain(|key, _| !ABOUT.contains(&key.as_str()));
                case
            }
        };
        Ok(Self { name, inputs, outputs, note, explicit })
    }

    /// The kind that verl computed in: the case's `dtype`, float64 when it says nothing.
    ///
    /// # Errors
    /// When `dtype` is neither float32 nor float64.
    pub fn kind(&self) -> Result<Kind, Malformed> {
        let dtype = self.inputs.get("dtype").filter(|dtype| !dtype.is_null());
        match dtype.map(|dtype| dtype.as_str().unwrap_or_default().trim_start_matches("torch.")) {
            None | Some("float64" | "double") => Ok(Kind::Double),
            Some("float32" | "float") => Ok(Kind::Float),
            Some(other) => {
                let reason = format!("float32 or float64 is expected, got `{other}`");
                Err(Malformed::new("dtype", &reason))
            }
        }
    }

    /// The case's own tolerance (`tolerance`, `atol`, `rtol`, or such a word with a number in
    /// its note), else the file's, else the one of its kind.
    ///
    /// # Errors
    /// When a tolerance is not a number, or the kind is unknown.
    pub fn tolerance(&self) -> Result<Tolerance, Malformed> {
        let mut tolerance = match self.kind()? {
            Kind::Float => Tolerance::FLOAT32,
            _ => Tolerance::FLOAT64,
        };
        static WORD: LazyLock<Regex> = LazyLock::new(|| {
            let number = r"([0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)";
            let pattern = format!(
                r"(?i)\b(atol|rtol|tol|tolerance|within|abs/rel)\b[^0-9\n]{{0,24}}?{number}"
            );
            Regex::new(&pattern).expect("a valid pattern")
        });
        for found in WORD.captures_iter(&self.note) {
            let (word, number) = (found[1].to_lowercase(), found[2].parse::<f64>());
            // "within 2 tokens" is no tolerance.
            match number {
                Ok(number) if number < 1.0 => tolerance.set(&word, number),
                _ => {}
            }
        }
        for (word, value) in ["tolerance", "atol", "rtol"].iter().zip(&self.explicit) {
            match value {
                None | Some(Value::Null) => {}
                Some(value) => match value.as_f64() {
                    Some(number) if number >= 0.0 => tolerance.set(word, number),
                    _ => {
                        return Err(Malformed::new(
                            word,
                            &format!("a number is expected, got {value}"),
                        ));
                    }
                },
            }
        }
        Ok(tolerance)
    }
}

impl Case {
    /// A key that may be missing or null.
    pub fn optional(&self, key: &str) -> Option<&Value> {
        self.inputs.get(key).filter(|value| !value.is_null())
    }

    /// A key that must be there.
    pub fn required(&self, key: &str) -> Result<&Value, Malformed> {
        self.optional(key).ok_or_else(|| Malformed::new(key, "it is missing"))
    }

    /// A number.
    pub fn number(&self, key: &str) -> Result<f64, Malformed> {
        number(key, self.required(key)?)
    }

    /// A number that may be missing or null.
    pub fn optional_number(&self, key: &str) -> Result<Option<f64>, Malformed> {
        self.optional(key).map(|value| number(key, value)).transpose()
    }

    /// A count.
    pub fn count(&self, key: &str) -> Result<u64, Malformed> {
        count(key, self.required(key)?)
    }

    /// A string.
    pub fn text(&self, key: &str) -> Result<&str, Malformed> {
        let value = self.required(key)?;
        value
            .as_str()
            .ok_or_else(|| Malformed::new(key, &format!("a string is expected, got {value}")))
    }

    /// A string that may be missing or null.
    pub fn text_or<'a>(&'a self, key: &str, default: &'a str) -> Result<&'a str, Malformed> {
        if self.optional(key).is_none() { Ok(default) } else { self.text(key) }
    }

    /// A truth value that may be missing or null; 0 and 1 count.
    pub fn flag_or(&self, key: &str, default: bool) -> Result<bool, Malformed> {
        match self.optional(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) if value.as_f64() == Some(0.0) => Ok(false),
            Some(value) if value.as_f64() == Some(1.0) => Ok(true),
            Some(value) => {
                Err(Malformed::new(key, &format!("true or false is expected, got {value}")))
            }
        }
    }

    /// A nested list of numbers with this many dimensions.
    pub fn array(&self, key: &str, dimensions: usize) -> Result<Array, Malformed> {
        array(key, self.required(key)?, dimensions)
    }

    /// As [`Case::array`], with as many dimensions as the lists are nested.
    pub fn nested_array(&self, key: &str) -> Result<Array, Malformed> {
        let value = self.required(key)?;
        let mut depth = 0;
        let mut inner = Some(value);
        while let Some(Value::Array(items)) = inner {
            depth += 1;
            inner = items.first();
        }
        array(key, value, depth)
    }

    /// As [`Case::array`], with the shape of another one.
    pub fn array_like(&self, key: &str, other: &Array) -> Result<Array, Malformed> {
        let array = self.array(key, other.shape.len())?;
        if array.shape != other.shape {
            let reason = format!("shape {:?} is expected, got {:?}", other.shape, array.shape);
            return Err(Malformed::new(key, &reason));
        }
        Ok(array)
    }

    /// A mask of 0 and 1 (or false and true) with the shape of another array.
    pub fn mask_like(&self, key: &str, other: &Array) -> Result<Array, Malformed> {
        let mask = self.array_like(key, other)?;
        check_mask(key, &mask)?;
        Ok(mask)
    }
}

impl Tolerance {
    fn set(&mut self, word: &str, number: f64) {
        match word {
            "atol" => self.absolute = number,
            "rtol" => self.relative = number,
            _ => *self = Self::both(number),
        }
    }
}

/// Python writes NaN and infinities without quotes, which is not JSON: quotes them.
fn quote_bare_numbers(text: &str) -> String {
    static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#""(?:[^"\\]|\\.)*"|-?\bInfinity\b|\bNaN\b"#).expect("a valid pattern")
    });
    let quote = |found: &regex::Captures| match &found[0] {
        string if string.starts_with('"') => string.to_owned(),
        number => format!("\"{number}\""),
    };
    TOKEN.replace_all(text, quote).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(text: &str) -> Case {
        Case::new(3, serde_json::from_str(text).unwrap(), &Map::new()).unwrap()
    }

    fn tolerance(text: &str) -> Tolerance {
        case(text).tolerance().unwrap()
    }

    #[test]
    fn a_case_may_be_nested_or_flat() {
        let nested = case(r#"{"name": "n", "inputs": {"x": 1}, "outputs": {"y": 2}}"#);
        let flat = case(r#"{"x": 1, "note": "", "expected": {"y": 2}}"#);
        assert_eq!((nested.name.as_str(), flat.name.as_str()), ("n", "#3"));
        assert_eq!((&nested.inputs, &nested.outputs), (&flat.inputs, &flat.outputs));
        let scalar = case(r#"{"input": "a", "output": "b"}"#);
        assert_eq!(scalar.inputs["input"], "a");
        assert_eq!(scalar.outputs["output"], "b");
        assert!(Case::new(0, serde_json::json!({"inputs": {}}), &Map::new()).is_err());
    }

    #[test]
    fn the_tolerance_comes_from_the_case_then_the_note_then_the_kind() {
        let with = |extra: &str, dtype: &str| {
            tolerance(&format!(r#"{{"inputs": {{"dtype": {dtype}}}, "outputs": {{}}{extra}}}"#))
        };
        assert_eq!(with("", "null"), Tolerance::FLOAT64);
        assert_eq!(with("", "\"float32\""), Tolerance::FLOAT32);
        assert_eq!(with(", \"tolerance\": 1e-3", "null"), Tolerance::both(1e-3));
        assert_eq!(
            with(", \"note\": \"compare with tolerance of 1e-6.\"", "null"),
            Tolerance::both(1e-6)
        );
        assert_eq!(with(", \"note\": \"tol=2e-4\"", "null"), Tolerance::both(2e-4));
        assert_eq!(with(", \"note\": \"divided by std + 1e-6\"", "null"), Tolerance::FLOAT64);
        assert_eq!(with(", \"note\": \"within 2 tokens\"", "null"), Tolerance::FLOAT64);
        let both = with(", \"note\": \"atol 1e-4, rtol 1e-3\"", "null");
        assert_eq!(both, Tolerance { absolute: 1e-4, relative: 1e-3 });
        assert_eq!(with(", \"note\": \"tol 1e-2\", \"atol\": 0", "null").absolute, 0.0);
        assert!(case(r#"{"inputs": {"dtype": "bfloat16"}, "outputs": {}}"#).tolerance().is_err());
    }

    #[test]
    fn bare_nan_and_infinity_are_understood_outside_strings() {
        let text = r#"{"a": [NaN, -Infinity, Infinity], "b": "is NaN \" Infinity"}"#;
        let value: Value = serde_json::from_str(&quote_bare_numbers(text)).unwrap();
        assert_eq!(value["a"], serde_json::json!(["NaN", "-Infinity", "Infinity"]));
        assert_eq!(value["b"], "is NaN \" Infinity");
    }
}
