//! The filter `tojson` as transformers has it: Python's `json.dumps(value, ensure_ascii=False, indent=…)`.

use minijinja::value::Kwargs;
use minijinja::{Error as JinjaError, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::fmt::Display;
use std::io::{Result as IoResult, Write};

const MOST_SPACES: usize = 64;

/// Errors: an argument other than `indent`, a number of spaces.
pub fn filter(value: &Value, named: Kwargs) -> Result<Value, JinjaError> {
    let indent = named.get::<Option<usize>>("indent")?;
    named.assert_all_used()?;
    match indent {
        None => written(value, OneLine),
        Some(spaces @ 1..=MOST_SPACES) => {
            written(value, PrettyFormatter::with_indent(" ".repeat(spaces).as_bytes()))
        }
        Some(spaces) => {
            Err(failed(format!("indent of tojson is 1 to {MOST_SPACES}, got {spaces}")))
        }
    }
}

fn written(value: &Value, format: impl Formatter) -> Result<Value, JinjaError> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, format)).map_err(failed)?;
    String::from_utf8(bytes).map(Value::from).map_err(failed)
}

fn failed(error: impl Display) -> JinjaError {
    JinjaError::new(ErrorKind::BadSerialization, error.to_string())
}

/// A blank behind each comma and colon.
struct OneLine;

impl OneLine {
    fn between<W: ?Sized + Write>(writer: &mut W, first: bool) -> IoResult<()> {
        writer.write_all(if first { b"" } else { b", " })
    }
}

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> IoResult<()> {
        Self::between(writer, first)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> IoResult<()> {
        Self::between(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> IoResult<()> {
        writer.write_all(b": ")
    }
}
