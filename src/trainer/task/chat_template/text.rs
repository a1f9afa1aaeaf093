use minijinja::value::{StringInput, Tuple, from_args};
use minijinja::{Error as JinjaError, ErrorKind, State, Value};
use minijinja_contrib::pycompat;
use std::borrow::Cow;

/// As Python's `repr` has it.
pub fn float(number: f64) -> String {
    let text = format!("{number:?}");
    let Some((digits, exponent)) = text.split_once('e') else { return text.to_lowercase() };
    match exponent.strip_prefix('-') {
        Some(exponent) => format!("{digits}e-{exponent:0>2}"),
        None => format!("{digits}e+{exponent:0>2}"),
    }
}

pub fn of_float(value: &Value) -> Option<String> {
    let number = f64::try_from(value.clone()).ok().filter(|_| value.is_number())?;
    (!value.is_integer()).then(|| float(number))
}

fn is_space(it: char) -> bool {
    it.is_whitespace() || ('\x1c'..='\x1f').contains(&it)
}

pub fn strip_end<'a>(text: &'a str, characters: Option<&str>) -> &'a str {
    text.trim_end_matches(|it| characters.map_or_else(|| is_space(it), |them| them.contains(it)))
}

fn strip_start<'a>(text: &'a str, characters: Option<&str>) -> &'a str {
    text.trim_start_matches(|it| characters.map_or_else(|| is_space(it), |them| them.contains(it)))
}

pub fn strip<'a>(text: &'a str, characters: Option<&str>) -> &'a str {
    strip_start(strip_end(text, characters), characters)
}

pub fn trim(text: StringInput<'_>, characters: Option<Cow<'_, str>>) -> String {
    strip(text.as_str(), characters.as_deref()).to_string()
}

pub fn method(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, JinjaError> {
    let Some(text) = value.as_str() else {
        return pycompat::unknown_method_callback(state, value, method, arguments);
    };
    match method {
        "removeprefix" | "removesuffix" => {
            let (affix,): (&str,) = from_args(arguments)?;
            let is_prefix = method == "removeprefix";
            let rest = if is_prefix { text.strip_prefix(affix) } else { text.strip_suffix(affix) };
            Ok(rest.unwrap_or(text).into())
        }
        "strip" | "lstrip" | "rstrip" => {
            let (characters,): (Option<&str>,) = from_args(arguments)?;
            Ok(match method {
                "strip" => strip(text, characters),
                "lstrip" => strip_start(text, characters),
                _ => strip_end(text, characters),
            }
            .into())
        }
        "isspace" if arguments.is_empty() => {
            Ok((!text.is_empty() && text.chars().all(is_space)).into())
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(arguments)?;
            refuse_empty(separator)?;
            let parts = match method {
                "partition" => text.split_once(separator),
                _ => text.rsplit_once(separator),
            };
            let parts = match parts {
                Some((before, after)) => [before, separator, after],
                None if method == "partition" => [text, "", ""],
                None => ["", "", text],
            };
            Ok(Value::from(Tuple::from(parts.map(Value::from))))
        }
        "split" | "rsplit" => {
            let (separator, most): (Option<&str>, Option<i64>) = from_args(arguments)?;
            let most = usize::try_from(most.unwrap_or(-1)).unwrap_or(usize::MAX);
            let is_left = method == "split";
            let mut parts: Vec<&str> = match separator {
                Some(separator) => {
                    refuse_empty(separator)?;
                    let most = most.saturating_add(1);
                    if is_left {
                        text.splitn(most, separator).collect()
                    } else {
                        text.rsplitn(most, separator).collect()
                    }
                }
                None => words(text, most, is_left),
            };
            if !is_left {
                parts.reverse();
            }
            Ok(parts.into_iter().map(Value::from).collect())
        }
        _ => pycompat::unknown_method_callback(state, value, method, arguments),
    }
}

fn words(text: &str, most: usize, is_left: bool) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), text);
    loop {
        rest = if is_left { strip_start(rest, None) } else { strip_end(rest, None) };
        if rest.is_empty() {
            return parts;
        }
        let split = if is_left {
            rest.split_once(is_space)
        } else {
            rest.rsplit_once(is_space).map(|(before, after)| (after, before))
        };
        let (part, others) = split.filter(|_| parts.len() < most).unwrap_or((rest, ""));
        parts.push(part);
        rest = others;
    }
}

fn refuse_empty(separator: &str) -> Result<(), JinjaError> {
    if separator.is_empty() {
        return Err(JinjaError::new(ErrorKind::InvalidOperation, "empty separator"));
    }
    Ok(())
}
