//! The filter `tojson` as transformers has it: Python's `json.dumps` without the escapes of HTML.

use crate::task::chat_template::text;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error as JinjaError, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use std::fmt::Display;
use std::io::{Result as IoResult, Write};

/// `{{ value | tojson(ensure_ascii, indent, separators, sort_keys) }}`, by place or by name.
pub fn filter(value: &Value, placed: &[Value], named: Kwargs) -> Result<Value, JinjaError> {
    const NAMES: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];
    if placed.len() > NAMES.len() {
        return Err(JinjaError::from(ErrorKind::TooManyArguments));
    }
    let mut given = NAMES.map(|_| Value::from(()));
    for (index, name) in NAMES.into_iter().enumerate() {
        let by_name = named.get::<Option<Value>>(name)?;
        given[index] = placed.get(index).cloned().or(by_name).unwrap_or_default();
    }
    named.assert_all_used()?;
    let [ensure_ascii, indent, separators, sort_keys] = given;
    let format = PythonFormat::of(ensure_ascii.is_true(), &indent, &separators)?;
    if sort_keys.is_true() {
        let mut value = serde_json::to_value(value).map_err(failed)?;
        value.sort_all_objects();
        written(&value, format)
    } else {
        written(value, format)
    }
}

fn written(value: &impl Serialize, format: PythonFormat) -> Result<Value, JinjaError> {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, format);
    value.serialize(&mut serializer).map_err(failed)?;
    String::from_utf8(bytes).map(Value::from_safe_string).map_err(failed)
}

fn failed(error: impl Display) -> JinjaError {
    JinjaError::new(ErrorKind::BadSerialization, error.to_string())
}

struct PythonFormat {
    ensure_ascii: bool,
    /// Each element is on a line of its own, with so much of this before it as it is deep.
    indent: Option<String>,
    between_elements: String,
    behind_key: String,
    depth: usize,
    is_empty: bool,
}

const MOST_SPACES: i64 = 64;

impl PythonFormat {
    fn of(ensure_ascii: bool, indent: &Value, separators: &Value) -> Result<Self, JinjaError> {
        let indent = indentation(indent)?;
        let between = if indent.is_some() { "," } else { ", " };
        let (between_elements, behind_key) = if separators.is_undefined() || separators.is_none() {
            (between.to_string(), ": ".to_string())
        } else {
            pair(separators)?
        };
        Ok(Self { ensure_ascii, indent, between_elements, behind_key, depth: 0, is_empty: true })
    }

    fn begin<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> IoResult<()> {
        self.depth += 1;
        self.is_empty = true;
        writer.write_all(bracket)
    }

    fn end<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> IoResult<()> {
        self.depth -= 1;
        if !self.is_empty {
            self.new_line(writer)?;
        }
        self.is_empty = false;
        writer.write_all(bracket)
    }

    fn element<W: ?Sized + Write>(&mut self, writer: &mut W, is_first: bool) -> IoResult<()> {
        self.is_empty = false;
        if !is_first {
            writer.write_all(self.between_elements.as_bytes())?;
        }
        self.new_line(writer)
    }

    fn new_line<W: ?Sized + Write>(&self, writer: &mut W) -> IoResult<()> {
        let Some(indent) = &self.indent else { return Ok(()) };
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(indent.as_bytes()))
    }
}

/// A number of spaces, or a text; of a negative number only line breaks are left.
fn indentation(indent: &Value) -> Result<Option<String>, JinjaError> {
    if indent.is_undefined() || indent.is_none() {
        return Ok(None);
    }
    if let Some(text) = indent.as_str() {
        return Ok(Some(text.to_string()));
    }
    let spaces = match indent.kind() {
        ValueKind::Bool => Some(i64::from(indent.is_true())),
        _ => indent.as_i64(),
    };
    match spaces.filter(|spaces| *spaces <= MOST_SPACES) {
        Some(spaces) => Ok(Some(" ".repeat(spaces.max(0) as usize))),
        None => Err(refused(format!(
            "indent of tojson must be a text or a number up to {MOST_SPACES}, got {indent}"
        ))),
    }
}

fn pair(separators: &Value) -> Result<(String, String), JinjaError> {
    let texts = separators.try_iter()?.map(|text| text.as_str().map(str::to_string));
    match &texts.collect::<Option<Vec<String>>>().unwrap_or_default()[..] {
        [between, behind_key] => Ok((between.clone(), behind_key.clone())),
        _ => Err(refused(format!("separators of tojson must be two texts, got {separators}"))),
    }
}

fn refused(reason: String) -> JinjaError {
    JinjaError::new(ErrorKind::InvalidOperation, reason)
}

impl Formatter for PythonFormat {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> IoResult<()> {
        self.begin(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> IoResult<()> {
        self.end(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> IoResult<()> {
        self.element(writer, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> IoResult<()> {
        self.begin(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> IoResult<()> {
        self.end(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> IoResult<()> {
        self.element(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> IoResult<()> {
        writer.write_all(self.behind_key.as_bytes())
    }

    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, number: f64) -> IoResult<()> {
        writer.write_all(text::float(number).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> IoResult<()> {
        if !self.ensure_ascii {
            return writer.write_all(fragment.as_bytes());
        }
        fragment.chars().try_for_each(|character| match character {
            ' '..='~' => writer.write_all(&[character as u8]),
            _ => {
                let mut units = [0; 2];
                let mut units = character.encode_utf16(&mut units).iter();
                units.try_for_each(|unit| write!(writer, "\\u{unit:04x}"))
            }
        })
    }
}
