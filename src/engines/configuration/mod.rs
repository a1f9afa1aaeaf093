//! A user's configuration of another trainer: `--cfg job`, `.hydra/`, W&B's `config.yaml`, JSON, or a dictionary that
//! it printed, alone or in a log. The content decides the format. Nothing of a file is run, and no shell is read.

use crate::base::files::foreign;
use crate::engines::EngineError;
use crate::engines::configuration::refused::Refused;
use regex::Regex;
use serde_json::Value;
use std::path::Path;
use std::sync::LazyLock;

pub mod refused;
pub mod yaml;
pub mod python;
pub mod interpolation;

/// A log of days of training has its configuration at the beginning.
const MOST_BYTES: u64 = 32 << 20;
const MOST_LINES: usize = 1 << 20;
const MOST_CONFIGURATION_BYTES: usize = 4 << 20;
/// Equal configurations in one log.
const MOST_FOUND: usize = 16;
/// Key of a recorded composition.
pub const RECORDED: &str = "effective";
const MOST_OVERRIDES: usize = 2_000;

#[derive(Debug, Clone, PartialEq)]
pub enum Configured {
    /// Composed, as tables, with interpolations filled in.
    Values(Value),
    /// Arguments of a Hydra application.
    Overrides(Vec<String>),
    /// YAML that must be composed with others.
    Defaults(String),
    /// A file of `torch.save`.
    Pickled,
}

/// `tables`: top-level names that mark a configuration in a log. Errors: anything else; `instead` says what to do.
pub fn read(path: &Path, tables: &[&str], instead: &str) -> Result<Configured, EngineError> {
    let bytes = foreign::read_up_to(path, MOST_BYTES)?;
    if bytes.starts_with(b"PK\x03\x04") {
        return Ok(Configured::Pickled);
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => text,
        _ => return Err(refusal("it is no text", instead).of(path)),
    };
    let found = of_text(&text, tables, instead).map_err(|error| {
        let is_other = error.what.starts_with(OTHER);
        malformed(path, &text).filter(|_| is_other).unwrap_or(error).of(path)
    })?;
    let value = match found {
        Configured::Values(value) => unwrapped(value),
        other => return Ok(other),
    };
    let is_flat =
        |key: &&String| key.split_once('.').is_some_and(|(table, _)| tables.contains(&table));
    if let Some(key) = value.as_object().and_then(|all| all.keys().find(is_flat)) {
        let what = format!("its tables are flattened ({key}), and nested ones are read");
        return Err(refusal(&what, instead).of(path));
    }
    if !tables.iter().chain(&[RECORDED]).any(|table| value.get(table).is_some()) {
        let what = format!("it states none of {}", tables.join(", "));
        return Err(refusal(&what, instead).of(path));
    }
    interpolation::resolved(&value).map(Configured::Values).map_err(|error| error.of(path))
}

fn malformed(path: &Path, text: &str) -> Option<Refused> {
    match path.extension()?.to_ascii_lowercase().to_str()? {
        "json" => {
            let error = serde_json::from_str::<serde::de::IgnoredAny>(text).err()?;
            Some(Refused { line: None, what: format!("it is no JSON: {error}") })
        }
        "yaml" | "yml" => yaml::parsed(text).err(),
        _ => None,
    }
}

const OTHER: &str = "it is no configuration that is read (YAML, JSON, W&B's config.yaml, a log of verl), and a shell \
                     script is not read";

fn refusal(what: &str, instead: &str) -> Refused {
    Refused { line: None, what: format!("{what}; {instead}") }
}

/// Returns the line without colours, and its Ray process.
fn plain_line(line: &str) -> (String, String) {
    static COLOUR: LazyLock<Regex> = LazyLock::new(|| yaml::regex(r"\x1b\[[0-9;]*[A-Za-z]"));
    static RAY: LazyLock<Regex> = LazyLock::new(|| yaml::regex(r"^(\([^()]*pid=\d+[^()]*\)) ?"));
    let line = COLOUR.replace_all(line.trim_end_matches('\r'), "").into_owned();
    match RAY.captures(&line) {
        Some(process) => (line[process[0].len()..].to_string(), process[1].to_string()),
        None => (line, String::new()),
    }
}

fn of_text(text: &str, tables: &[&str], instead: &str) -> Result<Configured, Refused> {
    if text.trim().is_empty() {
        return Err(refusal("it is empty", instead));
    }
    let bounded = |text: &str| text.len() <= MOST_CONFIGURATION_BYTES;
    if text.lines().count() > MOST_LINES {
        return Err(refusal(&format!("it has more than {MOST_LINES} lines"), instead));
    }
    let is_json = text.trim_start().starts_with('{') && bounded(text);
    if let Some(value) = is_json.then(|| serde_json::from_str(text).ok()).flatten() {
        return Ok(Configured::Values(value));
    }
    if let Some(value) = whole(text, tables) {
        return Ok(if value.get("defaults").is_some_and(Value::is_array) {
            Configured::Defaults(text.to_string())
        } else {
            Configured::Values(value)
        });
    }
    let lines: Vec<(String, String)> = text.lines().map(plain_line).collect();
    let mut found: Vec<(usize, Value)> = Vec::new();
    let mut free = 0;
    for (at, (line, process)) in lines.iter().enumerate() {
        let is_yaml = tables.iter().chain(&["defaults"]).any(|table| {
            let named = line.strip_prefix(table).and_then(|rest| rest.strip_prefix(':'));
            named.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        });
        let printed = line.strip_prefix("{'").and_then(|rest| rest.split('\'').next());
        if at < free || !(is_yaml || printed.is_some_and(|key| tables.contains(&key))) {
            continue;
        }
        if found.len() == MOST_FOUND {
            return Err(Refused::at(at + 1, "one more configuration begins; keep one of them"));
        }
        // YAML may begin above the first known table. Lines of other processes may be in between.
        let begin = if is_yaml { start_of_yaml(&lines[free..=at]) + free } else { at };
        let mine = lines.iter().enumerate().skip(begin).filter(|(_, (_, of))| of == process);
        let mine: Vec<(usize, &str)> = mine
            .map(|(at, (line, _))| (at, line.as_str()))
            .take_while(|(_, line)| !is_yaml || is_of_yaml(line))
            .take(yaml::MOST_NODES * 2)
            .collect();
        let text: String = mine.iter().map(|(_, line)| format!("{line}\n")).collect();
        if !bounded(&text) || (is_yaml && mine.len() == yaml::MOST_NODES * 2) {
            return Err(Refused::at(begin + 1, "it is larger than a configuration is"));
        }
        let placed = |mut error: Refused| {
            error.line =
                error.line.map(|line| mine.get(line - 1).map_or(lines.len(), |(at, _)| at + 1));
            error
        };
        let (value, taken) = if is_yaml {
            let value = match yaml::parsed(&text) {
                // Log lines such as `note: a: b` may follow.
                Err(Refused { line: Some(bad), what }) => match cut(&text, bad, tables) {
                    Some(above) => yaml::parsed(above),
                    None => Err(Refused { line: Some(bad), what }),
                },
                other => other,
            };
            (value.map_err(placed)?, mine.len())
        } else {
            python::literal(&text).map_err(placed)?
        };
        if value.get("defaults").is_some_and(Value::is_array) {
            return Ok(Configured::Defaults(text));
        }
        free = mine.get(taken - 1).map_or(at, |(last, _)| *last) + 1;
        found.push((begin + 1, value));
    }
    let Some(((line, first), others)) = found.split_first() else {
        return overrides(text, &lines, instead);
    };
    let Some((other, _)) = others.iter().find(|(_, it)| it != first) else {
        return Ok(Configured::Values(first.clone()));
    };
    let what = format!("it has two configurations, at the lines {line} and {other}; keep one");
    Err(Refused { line: None, what })
}

/// A file that is YAML from its first line to its last, whatever its keys are, and no log; a dictionary that Python printed
/// would be other YAML.
fn whole(text: &str, tables: &[&str]) -> Option<Value> {
    let is_bounded = text.len() <= MOST_CONFIGURATION_BYTES;
    let is_bounded = is_bounded && text.lines().count() <= yaml::MOST_NODES * 2;
    if !is_bounded || text.trim_start().starts_with('{') {
        return None;
    }
    let value = yaml::parsed(text).ok()?;
    let mut known = tables.iter().chain(&["defaults"]);
    known.any(|table| value.get(table).is_some()).then_some(value)
}

fn start_of_yaml(lines: &[(String, String)]) -> usize {
    let last = lines.last().map(|(_, process)| process);
    let is_in = |(line, process): &(String, String)| {
        Some(process) == last && is_of_yaml(line) && !line.is_empty()
    };
    lines.iter().rposition(|line| !is_in(line)).map_or(0, |at| at + 1)
}

/// A key of small letters, or a line below one.
fn is_of_yaml(line: &str) -> bool {
    let name = |mark: char| mark.is_ascii_lowercase() || mark.is_ascii_digit() || mark == '_';
    let key = line.split_once(':').filter(|(key, _)| !key.is_empty() && key.chars().all(name));
    let below = line.is_empty() || line.starts_with([' ', '#']) || line.starts_with("- ");
    below || key.is_some_and(|(_, rest)| rest.is_empty() || rest.starts_with(' '))
}

/// `None` unless the bad line and those below are of a log: at the margin, without a table.
fn cut<'a>(text: &'a str, bad: usize, tables: &[&str]) -> Option<&'a str> {
    let begin: usize = text.split_inclusive('\n').take(bad.checked_sub(1)?).map(str::len).sum();
    let opens = |line: &str| tables.iter().any(|table| line.split(':').next() == Some(*table));
    let is_log = |line: &str| !line.starts_with([' ', '-']) && !line.ends_with(':') && !opens(line);
    (begin > 0 && text[begin..].lines().all(is_log)).then_some(&text[..begin])
}

/// YAML, as `.hydra/overrides.yaml`, or one a line.
fn overrides(text: &str, lines: &[(String, String)], instead: &str) -> Result<Configured, Refused> {
    let not = || refusal(OTHER, instead);
    let stated = lines.iter().map(|(line, _)| line.trim());
    let stated: Vec<&str> =
        stated.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let is_list = stated.iter().all(|line| line.starts_with("- "));
    let all: Vec<String> = if is_list && text.len() <= MOST_CONFIGURATION_BYTES {
        let Value::Array(items) = yaml::parsed(text)? else { return Err(not()) };
        items.iter().filter_map(|item| item.as_str().map(str::to_string)).collect()
    } else {
        stated.iter().map(|line| (*line).to_string()).collect()
    };
    static OVERRIDE: LazyLock<Regex> = LazyLock::new(|| {
        yaml::regex(r"^(\+{0,2}[A-Za-z_][\w./@-]*=.*|~[A-Za-z_][\w./@-]*(=.*)?)$")
    });
    static SHELL: LazyLock<Regex> = LazyLock::new(|| yaml::regex(r"\$[A-Za-z_(@*0-9]|\\$|`"));
    let dotted = |text: &String| text.split('=').next().is_some_and(|key| key.contains('.'));
    let whole = all.iter().all(|text| OVERRIDE.is_match(text) && !SHELL.is_match(text));
    if !whole || all.is_empty() || all.len() != stated.len() || !all.iter().any(dotted) {
        return Err(not());
    }
    if all.len() > MOST_OVERRIDES {
        return Err(refusal(&format!("more than {MOST_OVERRIDES} overrides"), instead));
    }
    Ok(Configured::Overrides(all))
}

/// Removes W&B's wrappers and Hydra's own tables.
fn unwrapped(value: Value) -> Value {
    let Value::Object(mut all) = value else { return value };
    let is_wrapped = |value: &Value| value.as_object().is_some_and(|it| it.contains_key("value"));
    let by_wandb = all.contains_key("_wandb") || all.contains_key("wandb_version");
    for name in ["_wandb", "wandb_version", "hydra"] {
        all.remove(name);
    }
    if by_wandb || (!all.is_empty() && all.values().all(is_wrapped)) {
        for value in all.values_mut() {
            if let Some(inner) = value.as_object_mut().and_then(|it| it.remove("value")) {
                *value = inner;
            }
        }
    }
    Value::Object(all)
}
