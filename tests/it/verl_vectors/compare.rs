//! Comparing what an adapter computed with what verl returned.

use crate::verl_vectors::case::FLOAT32;
use crate::verl_vectors::values::{Got, Outputs, special};
use serde_json::{Map, Value};

/// Every output that differs, as `name[index]: got …, want …`. Numbers are compared within the
/// tolerance (NaN equals NaN, an infinity equals itself), all else exactly. An output that the
/// adapter does not compute differs.
pub fn differences(got: &Outputs, want: &Map<String, Value>, tolerance: f64) -> Vec<String> {
    let mut differ = Vec::new();
    for (field, want) in want {
        match got.get(field) {
            Some(got) => compare(field, got, want, tolerance, &mut differ),
            // Functions that may raise record `error: null` when they did not.
            None if field == "error" && want.is_null() => {}
            None => differ.push(format!("{field}: an output that the adapter does not know")),
        }
    }
    if let Some(error @ Got::Raised(..)) = got.get("error")
        && !want.contains_key("error")
    {
        differ.push(format!("error: got {error:?}, want none"));
    }
    differ
}

fn compare(field: &str, got: &Got, want: &Value, tolerance: f64, differ: &mut Vec<String>) {
    match (got, want) {
        (Got::Float32(got), want) => compare(field, got, want, FLOAT32, differ),
        (Got::List(got), Value::Array(want)) if got.len() == want.len() => {
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                compare(&format!("{field}[{i}]"), got, want, tolerance, differ);
            }
        }
        (Got::Map(got), Value::Object(want)) => {
            let inner = differences(got, want, tolerance);
            differ.extend(inner.into_iter().map(|line| format!("{field}.{line}")));
        }
        (Got::Number(got), want)
            if special(want).is_some_and(|it| is_near(*got, it, tolerance)) => {}
        (Got::Integer(got), want) if special(want) == Some(*got as f64) => {}
        (Got::Null, Value::Null) => {}
        (Got::Flag(got), want) if special(want) == Some(f64::from(*got)) => {}
        (Got::Text(got), Value::String(want)) if got == want => {}
        // A recorded error is its message, its class, or `class: message`.
        (Got::Raised(class, message), Value::String(want))
            if want == class || *want == format!("{class}: {message}") => {}
        (Got::Raised(_, message), Value::String(want)) if want == message && !want.is_empty() => {}
        (Got::Number(got), want) => differ.push(format!("{field}: got {got}, want {want}")),
        (got, want) => differ.push(format!("{field}: got {got:?}, want {want}")),
    }
}

fn is_near(got: f64, want: f64, tolerance: f64) -> bool {
    let error = (got - want).abs();
    let is_equal = got == want || (got.is_nan() && want.is_nan());
    is_equal || (error.is_finite() && error <= tolerance * want.abs().max(1.0))
}

#[test]
fn numbers_are_compared_within_the_tolerance_and_nan_equals_nan() {
    let near = |got, want| is_near(got, want, 1e-9);
    assert!(near(1.0 + 5e-10, 1.0) && near(1e6 + 1e-4, 1e6) && near(f64::NAN, f64::NAN));
    assert!(near(f64::INFINITY, f64::INFINITY));
    assert!(!near(2.0, 2.1) && !near(f64::NAN, 1.0) && !near(1.0, f64::NAN));
    assert!(!near(f64::INFINITY, f64::NEG_INFINITY));
}
