//! What Jinja2 and Python do otherwise than minijinja, where a prompt would show it: done as there, or refused.

use minijinja::value::{ValueKind, from_args};
use minijinja::{Environment, Error as JinjaError, ErrorKind, State, Value};
use minijinja_contrib::pycompat;
use regex::Regex;
use std::sync::LazyLock;

static TEXT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(?s)'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*""#).expect("a pattern"));

static ESCAPE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:^|[^\\])(?:\\\\)*\\(?:N\{|[avU/])").expect("a pattern"));

static REFUSED: LazyLock<[(Regex, &str); 4]> = LazyLock::new(|| {
    let generator = r"[\w.\[\]']+\s*(?:\|\s*\w+\s*(?:\([^()]*\)\s*)?)*\|\s*(?:map|select|reject|selectattr|rejectattr)\b\s*(?:\([^()]*\)\s*)?";
    let is_true = "a condition that is a generator, which Jinja2 takes for true even where it is empty: put `| list` \
                   behind it";
    let last =
        format!(r"(?s)^\{{%[-+]?\s*(?:el)?if\b(?:.*\b(?:and|or|not))?\s+{generator}[-+]?%\}}");
    let first = format!(r"\b(?:if|not)\s+{generator}(?:and|or|else)\b");
    let slice = r"\[[^\[\]:]*:\s*[^\[\]:\s][^\[\]:]*:\s*-";
    [
        (r"^\{%[-+]?\s*autoescape\b", "an automatic escape: write `| e` behind each text"),
        (slice, "a slice with an end and a negative step: take the slice first, then [::-1]"),
        (last.as_str(), is_true),
        (first.as_str(), is_true),
    ]
    .map(|(pattern, reason)| (Regex::new(pattern).expect("a pattern"), reason))
});

pub fn check(tag: &str) -> Result<(), JinjaError> {
    if ESCAPE.is_match(tag) {
        return Err(refusal(format!(
            "{tag} has an escape that is read otherwise (\\N{{…}}, \\U…, \\a, \\v, \\/): write the character, or its number \
             as in \\u2022"
        )));
    }
    let without_texts = TEXT.replace_all(tag, "''");
    let refused = REFUSED.iter().find(|(pattern, _)| pattern.is_match(&without_texts));
    refused.map_or(Ok(()), |(_, reason)| Err(refusal(format!("{tag} has {reason}"))))
}

pub fn check_names(environment: &Environment, template: &str) -> Result<(), JinjaError> {
    let template = environment.get_template(template)?;
    let reads = template.undeclared_variables(false);
    let has_macro = template.source().contains("macro");
    let in_macros = ["varargs", "kwargs"].into_iter().filter(|_| has_macro);
    let missing = ["cycler", "joiner", "lipsum"].into_iter().chain(in_macros);
    missing.into_iter().find(|name| reads.contains(*name)).map_or(Ok(()), |name| {
        Err(refusal(format!("the template reads `{name}` of Jinja2, which dapo does not have")))
    })
}

pub fn set_up(environment: &mut Environment<'static>) {
    for other in ["attr", "bool", "chain", "lines", "pprint", "split", "title", "zip"] {
        environment.remove_filter(other);
    }
    environment.remove_test("startingwith");
    environment.remove_test("endingwith");
    environment.remove_global("debug");
    environment.set_unknown_method_callback(method);
    environment.add_filter("e", escape);
    environment.add_filter("escape", escape);
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    environment.add_test("sequence", |value: &Value| {
        let is_sized = matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String);
        value.is_undefined() || is_sized
    });
}

fn escape(value: &Value) -> Value {
    if value.is_safe() {
        return value.clone();
    }
    let text = value.to_string().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    Value::from_safe_string(text.replace('"', "&#34;").replace('\'', "&#39;"))
}

fn method(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, JinjaError> {
    match (method, value.as_str()) {
        ("removeprefix", Some(text)) => {
            let (prefix,): (&str,) = from_args(arguments)?;
            Ok(text.strip_prefix(prefix).unwrap_or(text).into())
        }
        ("removesuffix", Some(text)) => {
            let (suffix,): (&str,) = from_args(arguments)?;
            Ok(text.strip_suffix(suffix).unwrap_or(text).into())
        }
        ("title", Some(_)) => Err(refusal("title() has other capitals in Python".to_string())),
        _ => pycompat::unknown_method_callback(state, value, method, arguments),
    }
}

pub fn refusal(reason: String) -> JinjaError {
    JinjaError::new(ErrorKind::InvalidOperation, reason)
}
