//! Comparing what an adapter computed with what verl returned.

use crate::verl_vectors::case::Tolerance;
use crate::verl_vectors::values::{Got, Outputs, special};
use serde_json::{Map, Value};

/// One output that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The output, with its indices.
    pub field: String,
    /// What the project computed.
    pub got: String,
    /// What verl returned.
    pub want: String,
}

/// The outcome of one case.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Comparison {
    /// Every leaf that differs.
    pub mismatches: Vec<Mismatch>,
    /// Largest `|got − want| / max(1, |want|)` over finite numbers.
    pub largest_error: f64,
}

/// Compares every expected output, key by key and element by element. Numbers are compared
/// within the tolerance (NaN equals NaN, an infinity equals itself), all else exactly. An
/// output that the adapter does not compute is a mismatch.
pub fn compare(got: &Outputs, want: &Map<String, Value>, tolerance: Tolerance) -> Comparison {
    let mut comparison = Comparison::default();
    for (field, want) in want {
        match got.get(field) {
            Some(got) => comparison.value(field, got, want, tolerance),
            // Functions that may raise record `error: null` when they did not.
            None if field == "error" && want.is_null() => {}
            None => comparison.missing(field, got, want),
        }
    }
    if let Some(Got::Raised(class, message)) = got.get("error")
        && !want.contains_key("error")
    {
        comparison.mismatch("error", format!("{class}: {message}"), "no error".to_owned());
    }
    comparison
}

impl Comparison {
    fn value(&mut self, field: &str, got: &Got, want: &Value, tolerance: Tolerance) {
        match (got, want) {
            (Got::Float32(got), want) => self.value(field, got, want, Tolerance::FLOAT32),
            (Got::List(got), Value::Array(want)) if got.len() == want.len() => {
                for (i, (got, want)) in got.iter().zip(want).enumerate() {
                    self.value(&format!("{field}[{i}]"), got, want, tolerance);
                }
            }
            (Got::Map(got), Value::Object(want)) => {
                for (key, want) in want {
                    let field = format!("{field}.{key}");
                    match got.get(key) {
                        Some(got) => self.value(&field, got, want, tolerance),
                        None => self.missing(&field, got, want),
                    }
                }
            }
            (Got::Number(got), want) => match special(want) {
                Some(number) => self.number(field, *got, number, tolerance),
                None => self.mismatch(field, got.to_string(), short(&want.to_string())),
            },
            (Got::Integer(got), want) if special(want) == Some(*got as f64) => {}
            (Got::Null, Value::Null) => {}
            (Got::Flag(got), want) if special(want) == Some(f64::from(*got)) => {}
            (Got::Text(got), Value::String(want)) if got == want => {}
            (Got::Raised(class, message), Value::String(want))
                if is_same_error(class, message, want) => {}
            (got, want) => self.mismatch(field, short(&show(got)), short(&want.to_string())),
        }
    }

    fn number(&mut self, field: &str, got: f64, want: f64, tolerance: Tolerance) {
        if got == want || (got.is_nan() && want.is_nan()) {
            return;
        }
        let error = (got - want).abs();
        if error.is_finite() {
            self.largest_error = self.largest_error.max(error / want.abs().max(1.0));
        }
        let within = error <= tolerance.absolute || error <= tolerance.relative * want.abs();
        if !within || !error.is_finite() {
            self.mismatch(field, got.to_string(), want.to_string());
        }
    }

    fn missing(
        &mut self,
        field: &str,
        got: &std::collections::BTreeMap<String, Got>,
        want: &Value,
    ) {
        let got = match got.get("error") {
            Some(error @ Got::Raised(..)) => show(error),
            _ => "an output that the adapter does not know".to_owned(),
        };
        self.mismatch(field, got, short(&want.to_string()));
    }

    fn mismatch(&mut self, field: &str, got: String, want: String) {
        self.mismatches.push(Mismatch { field: field.to_owned(), got, want });
    }
}

/// A recorded error is its message, its class, or both as `class: message` or
/// `class('message')`. An adapter without a message vouches for the class alone.
fn is_same_error(class: &str, message: &str, want: &str) -> bool {
    let want = want.trim();
    if want == class || (!message.is_empty() && want == message) {
        return true;
    }
    let rest = want.strip_prefix(class);
    let recorded = rest.and_then(|rest| {
        let quoted = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        let quoted = quoted.map(|text| text.trim_matches(['\'', '"']));
        quoted.or_else(|| rest.strip_prefix(':').map(str::trim))
    });
    recorded.is_some_and(|recorded| message.is_empty() || recorded == message)
}

fn show(got: &Got) -> String {
    match got {
        Got::Null => "null".to_owned(),
        Got::Flag(flag) => flag.to_string(),
        Got::Number(number) => number.to_string(),
        Got::Integer(integer) => integer.to_string(),
        Got::Text(text) => format!("{text:?}"),
        Got::List(items) => format!("a list of {}", items.len()),
        Got::Map(map) => {
            format!("an object with {}", map.keys().cloned().collect::<Vec<_>>().join(", "))
        }
        Got::Float32(got) => show(got),
        Got::Raised(class, message) if message.is_empty() => (*class).to_owned(),
        Got::Raised(class, message) => format!("{class}: {message}"),
    }
}

fn short(text: &str) -> String {
    const LONGEST: usize = 160;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verl_vectors::values::{outputs, raised};
    use serde_json::json;

    fn check(got: &Outputs, want: Value) -> Comparison {
        compare(got, want.as_object().unwrap(), Tolerance::FLOAT64)
    }

    fn fields(got: Got, want: Value) -> Vec<String> {
        let comparison = check(&outputs([("x", got)]), json!({ "x": want }));
        comparison.mismatches.into_iter().map(|mismatch| mismatch.field).collect()
    }

    #[test]
    fn numbers_are_compared_within_the_tolerance_and_nan_equals_nan() {
        assert!(fields(Got::numbers([1.0 + 5e-10, f64::NAN]), json!([1.0, "NaN"])).is_empty());
        assert!(fields(Got::Number(f64::INFINITY), json!("Infinity")).is_empty());
        assert_eq!(fields(Got::numbers([1.0, 2.0]), json!([1.0, 2.1])), ["x[1]"]);
        assert_eq!(fields(Got::Number(f64::NAN), json!(1.0)), ["x"]);
        assert_eq!(fields(Got::Number(1.0), json!("NaN")), ["x"]);
        assert_eq!(fields(Got::Number(f64::INFINITY), json!("-inf")), ["x"]);
        let large = check(&outputs([("x", Got::Number(1e6 + 1e-4))]), json!({"x": 1e6}));
        assert!(large.mismatches.is_empty() && (large.largest_error - 1e-10).abs() < 1e-12);
        assert!(fields(Got::Float32(Box::new(Got::Number(1.000_001))), json!(1.0)).is_empty());
    }

    #[test]
    fn shapes_kinds_and_unknown_outputs_are_mismatches() {
        assert_eq!(fields(Got::numbers([1.0]), json!([1.0, 2.0])), ["x"]);
        assert_eq!(fields(Got::Text("a".into()), json!("b")), ["x"]);
        assert_eq!(fields(Got::Integer(12_026_880), json!(12_026_880.001)), ["x"]);
        assert!(fields(Got::Integer(3), json!(3.0)).is_empty());
        assert_eq!(fields(Got::Null, json!(0.0)), ["x"]);
        assert_eq!(fields(Got::Number(0.0), json!(null)), ["x"]);
        assert!(fields(Got::Flag(true), json!(true)).is_empty());
        assert_eq!(fields(Got::Flag(true), json!(false)), ["x"]);
        let unknown = check(&outputs([("x", Got::Null)]), json!({"x": null, "y": 1.0}));
        assert_eq!(unknown.mismatches[0].field, "y");
        let inner = Got::Map(outputs([("a", Got::Null)]));
        assert_eq!(fields(inner, json!({"a": null, "b": 2})), ["x.b"]);
    }

    #[test]
    fn errors_are_compared_by_class_or_message() {
        let error = raised("ValueError", "too many");
        for want in ["ValueError", "too many", "ValueError: too many", "ValueError('too many')"] {
            assert!(check(&error, json!({ "error": want })).mismatches.is_empty(), "{want}");
        }
        for want in ["KeyError", "ValueError: other", "ValueErrors", "many", ""] {
            assert_eq!(check(&error, json!({ "error": want })).mismatches.len(), 1, "{want}");
        }
        assert_eq!(check(&error, json!({"loss": 1.0})).mismatches.len(), 2);
        let fine = outputs([("x", Got::Null)]);
        assert!(check(&fine, json!({"x": null, "error": null})).mismatches.is_empty());
        assert_eq!(check(&fine, json!({"x": null, "error": "ValueError"})).mismatches.len(), 1);
    }
}
