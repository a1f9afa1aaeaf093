//! YAML 1.1 with OmegaConf's pattern of a float, and at most [`MOST_NODES`] nodes, each use of an alias counted.

use crate::engines::configuration::refused::Refused;
use regex::Regex;
use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// verl's own configuration has 800.
pub const MOST_NODES: usize = 20_000;
pub const MOST_DEPTH: usize = 64;
const MERGE: &str = "<<";

struct Open {
    anchor: usize,
    line: usize,
    value: Value,
    /// Key of the next value.
    key: Option<String>,
}

/// Errors: no YAML or several documents, a repeated key, a tag, too many nodes; with the line.
pub fn parsed(text: &str) -> Result<Value, Refused> {
    let (mut open, mut anchors) = (Vec::<Open>::new(), BTreeMap::<usize, (Value, usize)>::new());
    let (mut root, mut nodes) = (None, 0);
    for event in Parser::new_from_str(text) {
        let (event, Span { start, .. }) =
            event.map_err(|error| Refused::at(error.marker().line(), &advised(error.info())))?;
        let line = start.line();
        let refused = |what: &str| Err(Refused::at(line, what));
        if open.len() > MOST_DEPTH {
            return refused("it is nested deeper than a configuration is");
        }
        let (value, anchor, size) = match event {
            Event::MappingStart(_, tag) | Event::SequenceStart(_, tag)
                if tag.as_deref().is_some_and(|tag| {
                    !tag.is_yaml_core_schema() || !["map", "seq"].contains(&tag.suffix.as_str())
                }) =>
            {
                return refused("it has a tag of a program's own; write the value without it");
            }
            Event::MappingStart(anchor, _) => {
                open.push(Open { anchor, line, value: Value::Object(Map::new()), key: None });
                continue;
            }
            Event::SequenceStart(anchor, _) => {
                open.push(Open { anchor, line, value: Value::Array(Vec::new()), key: None });
                continue;
            }
            Event::MappingEnd | Event::SequenceEnd => {
                let Some(Open { anchor, value, .. }) = open.pop() else { continue };
                (merged(value), anchor, 1)
            }
            Event::Scalar(text, style, anchor, tag) => {
                (scalar(&text, style, tag, line)?, anchor, 1)
            }
            Event::Alias(id) => match anchors.get(&id) {
                Some((value, size)) if nodes + size <= MOST_NODES => (value.clone(), 0, *size),
                Some(_) => return refused("its aliases stand for more than a configuration has"),
                None => return refused("an alias stands for what is around it"),
            },
            Event::DocumentStart(_) if root.is_some() => {
                return refused("a second document begins; keep one of them");
            }
            _ => continue,
        };
        nodes += size;
        if nodes > MOST_NODES {
            return refused(&format!("more than {MOST_NODES} keys and values"));
        }
        if anchor > 0 {
            let size = count(&value);
            anchors.insert(anchor, (value.clone(), size));
            nodes += size;
        }
        let Some(Open { value: around, key, line: begun, .. }) = open.last_mut() else {
            root = Some(value);
            continue;
        };
        match (around, key.take()) {
            (Value::Array(all), _) => all.push(value),
            (Value::Object(all), Some(name)) if all.contains_key(&name) => {
                return refused(&format!(
                    "{name} occurs twice in what begins at line {begun}; keep one of them"
                ));
            }
            (Value::Object(_), Some(name)) if name == MERGE && tables(&value).is_none() => {
                return refused("`<<` takes the keys of a table or of several, and this is none");
            }
            (Value::Object(all), Some(name)) => {
                all.insert(name, value);
            }
            (_, None) => {
                *key = Some(match value {
                    Value::String(text) => text,
                    Value::Object(_) | Value::Array(_) => return refused("a key is no text"),
                    other => other.to_string(),
                });
            }
            _ => {}
        }
    }
    Ok(root.unwrap_or_default())
}

fn advised(info: &str) -> String {
    let is_of_text = info.contains("mapping values are not allowed");
    let advice =
        if is_of_text { "; a text with a colon and a blank in it needs quotes" } else { "" };
    format!("{info}{advice}")
}

/// With the keys of its merge key: its own ones win, then those of earlier tables.
fn merged(mut value: Value) -> Value {
    let Some(all) = value.as_object_mut() else { return value };
    let Some(from) = all.shift_remove(MERGE) else { return value };
    for (name, value) in tables(&from).into_iter().flatten().flatten() {
        all.entry(name).or_insert_with(|| value.clone());
    }
    value
}

fn tables(value: &Value) -> Option<Vec<&Map<String, Value>>> {
    match value {
        Value::Array(all) => all.iter().map(Value::as_object).collect(),
        one => Some(vec![one.as_object()?]),
    }
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(all) => all.iter().map(count).sum(),
        Value::Object(all) => all.values().map(count).sum(),
        _ => 0,
    }
}

fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<Cow<'_, Tag>>,
    line: usize,
) -> Result<Value, Refused> {
    match tag {
        Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => Ok(text.into()),
        Some(tag) => {
            let (handle, suffix) = (&tag.handle, &tag.suffix);
            let what = format!("the tag {handle}{suffix} is not read; write the value without it");
            Err(Refused::at(line, &what))
        }
        None if style == ScalarStyle::Plain => plain(text).map_err(|what| Refused::at(line, &what)),
        None => Ok(text.into()),
    }
}

/// Of a pattern that stands in the code.
pub fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern that a test matches")
}

/// The value of a word without quotes.
pub fn plain(text: &str) -> Result<Value, String> {
    static FLOAT: LazyLock<Regex> = LazyLock::new(|| {
        regex(
            r"^[-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+|\.[0-9_]+([eE][-+]?[0-9]+)?)$",
        )
    });
    static BASE_60: LazyLock<Regex> =
        LazyLock::new(|| regex(r"^[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$"));
    let digits = text.replace('_', "");
    let (sign, size) = match digits.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, digits.strip_prefix('+').unwrap_or(&digits)),
    };
    let starts_so = text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first));
    let whole =
        |text: &str, base| i64::from_str_radix(text, base).ok().map(|it| Value::from(sign * it));
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => true.into(),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => false.into(),
        _ if !starts_so => text.into(),
        _ if BASE_60.is_match(text) => {
            return Err(format!("{text} is a number in base 60 here; write it in decimals"));
        }
        _ if FLOAT.is_match(text) => {
            let number = digits.parse().ok().and_then(Number::from_f64);
            number.map_or_else(|| text.into(), Value::Number)
        }
        _ => match size.get(..2) {
            Some("0x") => whole(&size[2..], 16),
            Some("0b") => whole(&size[2..], 2),
            _ if size.starts_with('0') && size.len() > 1 => whole(size, 8),
            _ if size.starts_with(|first: char| first.is_ascii_digit()) => whole(size, 10),
            _ => None,
        }
        .unwrap_or_else(|| text.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_are_what_omegaconf_makes_of_them() {
        let found = parsed(
            "a: 1e-6\nb: 'off'\nc: off\nd: 1_000\ne: -1\nf: 0o7\ng: 1.\nh: [~, 0x10, v1.2, 017]\n",
        );
        let asked = json!({"a": 1e-6, "b": "off", "c": false, "d": 1000, "e": -1, "f": "0o7", "g": 1.0,
            "h": [null, 16, "v1.2", 15]});
        assert_eq!(found.unwrap(), asked);
        assert!(plain("1:30").is_err());
    }

    #[test]
    fn a_merge_key_gives_what_a_table_does_not_state_itself() {
        let text = "x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\none: {b: 9, <<: *x}\n\
                    two:\n  <<: [*x, *y]\n  d: {<<: *y}\n<<: *y\nc: 5\n";
        let asked = json!({"x": {"a": 1, "b": 2}, "y": {"b": 3, "c": 4}, "one": {"a": 1, "b": 9},
            "two": {"a": 1, "b": 2, "c": 4, "d": {"b": 3, "c": 4}}, "c": 5, "b": 3});
        assert_eq!(parsed(text).unwrap(), asked);
        for text in ["a: 1\n<<: 2\n", "x: &x {a: 1}\n<<: [*x, 1]\n", "<<: {a: 1}\n<<: {}\n"] {
            assert_eq!(parsed(text).unwrap_err().line, Some(2), "{text}");
        }
    }

    #[test]
    fn bombs_are_refused_with_their_line() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_string();
        for level in 1..9 {
            let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
            bomb += &format!("a{level}: &a{level} [{aliases}]\n");
        }
        assert_eq!(parsed(&bomb).unwrap_err().line, Some(5));
        let many: String = (0..100_000).map(|key| format!("k{key}: 1\n")).collect();
        assert!(parsed(&many).is_err());
        assert!(parsed(&"[".repeat(100_000)).is_err());
        assert!(parsed("a: 1\na: 2\n").unwrap_err().what.contains("occurs twice"));
        assert!(parsed("a: &x {b: *x}\n").is_err());
        assert!(parsed("a: !!python/object/apply:os.system [x]\n").is_err());
    }
}
