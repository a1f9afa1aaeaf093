//! What Jinja2, markupsafe and texts of Python do otherwise than minijinja: done as there, or refused.

use minijinja::value::{StringInput, ValueKind, from_args};
use minijinja::{AutoEscape, Environment, Error as JinjaError, ErrorKind, State, Value};
use minijinja_contrib::pycompat;
use regex::{Captures, Regex};
use std::sync::LazyLock;

static REFUSED: LazyLock<[(Regex, &str); 3]> = LazyLock::new(|| {
    [
        (
            r"(?:^|[^\\])(?:\\\\)*\\N\{",
            "a character by its name, \\N{…}: write the character, or its number as in \\u2022",
        ),
        (
            r"\[[^\[\]:]*:\s*[^\[\]:\s][^\[\]:]*:\s*-",
            "a slice with an end and a negative step: take the slice first, then [::-1]",
        ),
        (
            r"(?x)\b(?:if|elif|and|or|not)\s+[\w.\[\]'\x22]+\s*
                (?:\|\s*\w+\s*(?:\([^()]*\)\s*)?)*
                \|\s*(?:map|select|reject|selectattr|rejectattr)\b\s*(?:\([^()]*\)\s*)?
                (?:[-+]?%\}|(?:and|or|else)\b)",
            "a condition that is a generator, which Jinja2 takes for true even where it is empty: put \
             `| list` behind it",
        ),
    ]
    .map(|(pattern, reason)| (Regex::new(pattern).expect("a pattern"), reason))
});

static ESCAPE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?s)\\(U[0-9A-Fa-f]{8}|.)").expect("a pattern"));

static LETTERS: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^\p{L}+$").expect("a pattern"));

static LETTERS_OR_NUMBERS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^[\p{L}\p{N}]+$").expect("a pattern"));

pub fn check(tag: &str) -> Result<(), JinjaError> {
    let refused = REFUSED.iter().find(|(pattern, _)| pattern.is_match(tag));
    refused.map_or(Ok(()), |(_, reason)| Err(unsupported(format!("{tag} has {reason}"))))
}

pub fn with_escapes(tag: &str) -> String {
    let escape = |found: &Captures| match &found[1] {
        "\n" => String::new(),
        "a" => r"\x07".to_string(),
        "v" => r"\x0b".to_string(),
        "/" => r"\\/".to_string(),
        code => match code.strip_prefix('U').and_then(|hex| u32::from_str_radix(hex, 16).ok()) {
            Some(ascii @ 0..0x80) => format!("\\x{ascii:02x}"),
            Some(code) => char::from_u32(code).map_or(found[0].to_string(), String::from),
            None => found[0].to_string(),
        },
    };
    ESCAPE.replace_all(tag, escape).into_owned()
}

pub fn check_names(environment: &Environment, template: &str) -> Result<(), JinjaError> {
    let template = environment.get_template(template)?;
    let reads = template.undeclared_variables(false);
    let has_macro = template.source().contains("macro");
    let in_macros = ["varargs", "kwargs"].into_iter().filter(|_| has_macro);
    let missing = ["cycler", "joiner", "lipsum"].into_iter().chain(in_macros);
    missing.into_iter().find(|name| reads.contains(*name)).map_or(Ok(()), |name| {
        Err(unsupported(format!("the template reads `{name}` of Jinja2, which dapo does not have")))
    })
}

pub fn set_up(environment: &mut Environment<'static>) {
    for own in ["bool", "lines", "split", "zip", "chain", "pprint"] {
        environment.remove_filter(own);
    }
    environment.remove_test("startingwith");
    environment.remove_test("endingwith");
    environment.remove_global("debug");
    environment.set_unknown_method_callback(method);
    environment.add_filter("e", escape);
    environment.add_filter("escape", escape);
    environment.add_filter("string", string);
    environment.add_filter("title", title);
    environment.add_filter("capitalize", |text: StringInput| {
        text.preserve_safety(capitalized(text.as_str()))
    });
    environment.add_filter("trim", trim);
    environment.add_filter("attr", attr);
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_test("sequence", |value: &Value| {
        let is_sized = matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String);
        value.is_undefined() || is_sized
    });
    environment.set_formatter(|out, state, value| {
        let is_plain = matches!(state.auto_escape(), AutoEscape::None);
        let text = if is_plain { printed(value) } else { escape(value).to_string() };
        out.write_str(&text).map_err(JinjaError::from)
    });
}

fn escape(value: &Value) -> Value {
    if value.is_safe() {
        return value.clone();
    }
    let text = printed(value).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    Value::from_safe_string(text.replace('"', "&#34;").replace('\'', "&#39;"))
}

fn string(value: &Value) -> Value {
    if value.as_str().is_some() { value.clone() } else { printed(value).into() }
}

fn printed(value: &Value) -> String {
    let is_float = value.is_number() && !value.is_integer();
    let number = f64::try_from(value.clone()).ok().filter(|_| is_float);
    number.map_or_else(|| value.to_string(), float)
}

pub fn float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let parts = scientific.split_once('e');
    match parts.and_then(|(digits, power)| Some((digits, power.parse::<i32>().ok()?))) {
        None => scientific.to_lowercase(),
        Some((_, -4..16)) => format!("{number:?}"),
        Some((digits, power)) => format!("{digits}e{power:+03}"),
    }
}

fn title(text: StringInput) -> Value {
    let words = text.as_str().split_inclusive(|it| is_space(it) || "-({[<".contains(it));
    let titled = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        first.collect::<String>() + &letters.as_str().to_lowercase()
    };
    text.preserve_safety(words.map(titled).collect())
}

fn trim(text: StringInput, letters: Option<&str>) -> Value {
    let trimmed = match letters {
        Some(letters) => text.as_str().trim_matches(|it| letters.contains(it)),
        None => text.as_str().trim_matches(is_space),
    };
    text.preserve_safety(trimmed.to_string())
}

fn attr(value: &Value, name: &Value) -> Result<Value, JinjaError> {
    if value.kind() == ValueKind::Map {
        return Err(unsupported(format!(
            "the filter `attr` finds no key of a dict in Jinja2: write [\"{name}\"]"
        )));
    }
    value.get_item(name)
}

fn method(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, JinjaError> {
    let Some(text) = value.as_str() else {
        return pycompat::unknown_method_callback(state, value, method, arguments);
    };
    let is_bare = arguments.iter().all(Value::is_none);
    match method {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(arguments)?;
            Ok(text.strip_prefix(prefix).unwrap_or(text).into())
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(arguments)?;
            Ok(text.strip_suffix(suffix).unwrap_or(text).into())
        }
        "strip" if is_bare => Ok(text.trim_matches(is_space).into()),
        "lstrip" if is_bare => Ok(text.trim_start_matches(is_space).into()),
        "rstrip" if is_bare => Ok(text.trim_end_matches(is_space).into()),
        "isspace" if is_bare => Ok((!text.is_empty() && text.chars().all(is_space)).into()),
        "split" if is_bare => Ok(words(text)),
        "splitlines" if is_bare => Ok(lines(text)),
        "title" if is_bare => Ok(titled(text).into()),
        "capitalize" if is_bare => Ok(capitalized(text).into()),
        "isalpha" if is_bare => Ok(LETTERS.is_match(text).into()),
        "isalnum" if is_bare => Ok(LETTERS_OR_NUMBERS.is_match(text).into()),
        "isdigit" | "isnumeric" if !text.is_ascii() => {
            Err(unsupported(format!("{method} of a text that is not ASCII")))
        }
        _ => pycompat::unknown_method_callback(state, value, method, arguments),
    }
}

fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\x1c'..='\x1f').contains(&letter)
}

fn words(text: &str) -> Value {
    text.split(is_space).filter(|word| !word.is_empty()).map(Value::from).collect()
}

fn lines(text: &str) -> Value {
    let is_break =
        |it| matches!(it, '\n'..='\r' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}');
    text.replace("\r\n", "\n").split_terminator(is_break).map(Value::from).collect()
}

fn titled(text: &str) -> String {
    let is_cased = |it: char| it.is_lowercase() || it.is_uppercase() || !it.to_lowercase().eq([it]);
    let (mut titled, mut rest) = (String::new(), text);
    while let Some(start) = rest.find(is_cased) {
        let word = &rest[start..];
        let end = word.find(|it| !is_cased(it)).unwrap_or(word.len());
        titled = titled + &rest[..start] + &capitalized(&word[..end]);
        rest = &word[end..];
    }
    titled + rest
}

fn capitalized(text: &str) -> String {
    let Some(first) = text.chars().next() else { return String::new() };
    let lower = text.to_lowercase();
    let skipped: usize = first.to_lowercase().map(char::len_utf8).sum();
    title_case(first) + &lower[skipped..]
}

fn title_case(letter: char) -> String {
    let mut upper = letter.to_uppercase();
    let first = upper.next().into_iter();
    first.chain(upper.flat_map(char::to_lowercase)).collect()
}

fn unsupported(reason: String) -> JinjaError {
    JinjaError::new(ErrorKind::InvalidOperation, reason)
}
