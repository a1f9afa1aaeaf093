//! Comparing what an adapter computed with what verl returned.

use crate::verl_vectors::case::FLOAT32;
use crate::verl_vectors::values::special;
use serde_json::{Map, Value};

/// Every output that differs, as `name[index]: got …, want …`. Fractions are compared within the
/// tolerance, all else exactly. An output that the adapter does not compute differs.
pub fn differences(got: &Value, want: &Map<String, Value>, tolerance: f64) -> Vec<String> {
    let mut differ = Vec::new();
    for (field, want) in want {
        // verl computes these in float32 whatever the case's dtype.
        let tolerance = if field.contains("_f32_") { FLOAT32 } else { tolerance };
        match got.get(field) {
            Some(got) => compare(field, got, want, tolerance, &mut differ),
            // Functions that may raise record `error: null` when they did not.
            None if field == "error" && want.is_null() => {}
            None => differ.push(format!("{field}: an output that the adapter does not know")),
        }
    }
    if got["error"].is_string() && !want.contains_key("error") {
        differ.push(format!("error: got {}, want none", got["error"]));
    }
    differ
}

fn compare(field: &str, got: &Value, want: &Value, tolerance: f64, differ: &mut Vec<String>) {
    match (got, want) {
        (Value::Array(got), Value::Array(want)) if got.len() == want.len() => {
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                compare(&format!("{field}[{i}]"), got, want, tolerance, differ);
            }
        }
        (Value::Object(_), Value::Object(want)) => {
            let inner = differences(got, want, tolerance);
            differ.extend(inner.into_iter().map(|line| format!("{field}.{line}")));
        }
        _ if is_equal(got, want, tolerance) || field == "error" && is_error(got, want) => {}
        _ => differ.push(format!("{field}: got {got}, want {want}")),
    }
}

fn is_equal(got: &Value, want: &Value, tolerance: f64) -> bool {
    match got {
        Value::Number(got) if got.is_f64() => special(want).is_some_and(|want| {
            let error = (got.as_f64().unwrap() - want).abs();
            error.is_finite() && error <= tolerance * want.abs().max(1.0)
        }),
        Value::Number(_) | Value::Bool(_) => special(got) == special(want),
        _ => got == want,
    }
}

/// A recorded error is its message, its class, or `class: message`.
fn is_error(got: &Value, want: &Value) -> bool {
    let (got, want) = (got.as_str().unwrap_or_default(), want.as_str().unwrap_or_default());
    let (class, message) = got.split_once(": ").unwrap_or_default();
    !want.is_empty() && [class, message].contains(&want)
}

#[test]
fn numbers_are_compared_within_the_tolerance_and_nan_equals_nan() {
    use crate::verl_vectors::values::number as json;
    let near = |got, want| is_equal(&json(got), &json(want), 1e-9);
    assert!(near(1.0 + 5e-10, 1.0) && near(1e6 + 1e-4, 1e6) && near(f64::NAN, f64::NAN));
    assert!(near(f64::INFINITY, f64::INFINITY));
    assert!(!near(2.0, 2.1) && !near(f64::NAN, 1.0) && !near(1.0, f64::NAN));
    assert!(!near(f64::INFINITY, f64::NEG_INFINITY));
}
