//! A user's configuration of another trainer: `--cfg job`, `.hydra/`, W&B's `config.yaml`, JSON, or a dictionary that
//! it printed, alone or in a log. The content decides the format. Nothing of a file is run, and no shell is read.

use crate::base::files::foreign;
use crate::engines::EngineError;
use crate::engines::configuration::refused::Refused;
use crate::records::tracked::json;
use regex::Regex;
use serde_json::Value;
use std::ops::Range;
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
const LEVELS: [&str; 7] = ["DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"];

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

/// Also returns the numbers of a log's lines that touch the configuration, look like keys, and were not read. `tables`:
/// top-level names that mark a configuration in a log. Errors: anything else; `instead` says what to do.
pub fn read(
    path: &Path,
    tables: &[&str],
    instead: &str,
) -> Result<(Configured, Vec<usize>), EngineError> {
    let bytes = foreign::read_up_to(path, MOST_BYTES)?;
    if bytes.starts_with(b"PK\x03\x04") {
        return Ok((Configured::Pickled, Vec::new()));
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => text,
        _ => return Err(refusal("it is no text", instead).of(path)),
    };
    let is_named_yaml = matches!(extension(path).as_deref(), Some("yaml" | "yml"));
    let mut left_out = Vec::new();
    let found = of_text(&text, is_named_yaml, tables, instead, &mut left_out).map_err(|error| {
        let is_other = error.what.starts_with(OTHER);
        malformed(path, &text).filter(|_| is_other).unwrap_or(error).of(path)
    })?;
    let value = match found {
        Configured::Values(value) => unwrapped(value),
        configured => return Ok((configured, left_out)),
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
    let value = interpolation::resolved(&value).map_err(|error| error.of(path))?;
    Ok((Configured::Values(value), left_out))
}

fn extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_ascii_lowercase().to_str()?.to_string())
}

fn malformed(path: &Path, text: &str) -> Option<Refused> {
    match extension(path)?.as_str() {
        "json" => {
            let quoted = json::quoted_not_finite(text);
            let error = serde_json::from_str::<serde::de::IgnoredAny>(&quoted).err()?;
            Some(Refused { line: None, what: format!("it is no JSON: {error}") })
        }
        "yaml" | "yml" => yaml::parsed(text).err(),
        _ => None,
    }
}

const OTHER: &str = "it is no configuration that is read (YAML, JSON, W&B's config.yaml, a log of verl), and a shell \
                     script is not read";

pub fn refusal(what: &str, instead: &str) -> Refused {
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

fn of_text(
    text: &str,
    is_named_yaml: bool,
    tables: &[&str],
    instead: &str,
    left_out: &mut Vec<usize>,
) -> Result<Configured, Refused> {
    if text.trim().is_empty() {
        return Err(refusal("it is empty", instead));
    }
    let bounded = |text: &str| text.len() <= MOST_CONFIGURATION_BYTES;
    if text.lines().count() > MOST_LINES {
        return Err(refusal(&format!("it has more than {MOST_LINES} lines"), instead));
    }
    let is_json = text.trim_start().starts_with('{') && bounded(text);
    let json = || serde_json::from_str(&json::quoted_not_finite(text)).ok();
    if let Some(value) = is_json.then(json).flatten() {
        return Ok(Configured::Values(value));
    }
    if let Some(value) = whole(text, is_named_yaml, tables)? {
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
            let above = match yaml::parsed(&text) {
                // Log lines such as `note: a: b` may follow.
                Err(Refused { line: Some(bad), .. }) => cut(&text, bad, tables),
                _ => None,
            };
            let kept = above.unwrap_or(&text);
            let last = mine.get(kept.lines().count().max(1) - 1).map_or(at, |(last, _)| *last);
            let is_ended = above.is_none() && kept.ends_with("\n\n");
            let end = if is_ended { lines.len() } else { last + 1 };
            left_out.extend(keys_beside(&lines, process, begin..end));
            (yaml::parsed(kept).map_err(placed)?, mine.len())
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

/// A file that is YAML from its first line to its last, whatever its keys are; `None` for a log, and for a dictionary that
/// Python printed, which would be other YAML. Errors: a file of YAML that is not read.
fn whole(text: &str, is_named_yaml: bool, tables: &[&str]) -> Result<Option<Value>, Refused> {
    let is_bounded = text.len() <= MOST_CONFIGURATION_BYTES;
    let is_bounded = is_bounded && text.lines().count() <= yaml::MOST_NODES * 2;
    if !is_bounded || text.trim_start().starts_with('{') {
        return Ok(None);
    }
    let value = match yaml::parsed(text) {
        Err(error) if is_no_log(text, is_named_yaml) => return Err(error),
        Err(_) => return Ok(None),
        Ok(value) => value,
    };
    let mut known = tables.iter().chain(&["defaults"]);
    Ok(known.any(|table| value.get(table).is_some()).then_some(value))
}

fn is_no_log(text: &str, is_named_yaml: bool) -> bool {
    let opens = |line: &str| {
        is_key(line) || line.starts_with("- ") || ["---", "..."].contains(&line.trim_end())
    };
    let is_below = |line: &str| line.starts_with([' ', '\t', '}', ']', '%']);
    let mut lines = text.trim_start_matches('\u{feff}').lines();
    let is_first = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let begins = lines.by_ref().find(is_first).is_some_and(opens);
    begins && (is_named_yaml || lines.all(|line| !is_first(&line) || is_below(line) || opens(line)))
}

fn is_key(line: &str) -> bool {
    static KEY: LazyLock<Regex> =
        LazyLock::new(|| yaml::regex(r#"^("[^"]*"|'[^']*'|<<|[A-Za-z_][\w./-]*)\s*:(\s|$)"#));
    KEY.captures(line).is_some_and(|key| !LEVELS.contains(&&key[1]))
}

fn keys_beside(
    lines: &[(String, String)],
    process: &str,
    configuration: Range<usize>,
) -> Vec<usize> {
    let of_process = |(_, (_, of)): &(usize, &(String, String))| of == process;
    let is_near = |(_, (line, _)): &(usize, &(String, String))| is_key(line);
    let has_value = |(_, (line, _)): &(usize, &(String, String))| !line.trim_end().ends_with(':');
    let before = lines.iter().enumerate().take(configuration.start).rev();
    let before = before.filter(of_process).take_while(is_near).filter(has_value);
    let after = lines.iter().enumerate().skip(configuration.end);
    let after = after.filter(of_process).take_while(is_near);
    before.chain(after).map(|(at, _)| at + 1).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::files;
    use serde_json::json;

    const TRL: &str = "loss_type: grpo\nnum_generations: 8\n";
    const VERL: &str = "algorithm: {adv_estimator: grpo}\ndata: {shuffle: true}\n";

    fn of_file(name: &str, text: &str) -> Result<(Configured, Vec<usize>), String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        files::write_atomic(&path, text.as_bytes()).unwrap();
        let tables = ["loss_type", "num_generations", "algorithm", "data"];
        read(&path, &tables, "").map_err(|error| error.to_string())
    }

    #[test]
    fn yaml_that_is_not_read_is_refused_with_its_line_and_not_cut() {
        for (tail, what) in [
            ("seed_a: 1\nseed_a: 2\nb: 3\n", "line 4: seed_a occurs twice"),
            ("RUN: 1\nRUN: 2\nnum_iterations: 3\n", "line 4: RUN occurs twice"),
            ("a: !!python/int 5\nb: 3\n", "line 3: the tag"),
            ("a: !mine {b: 1}\n", "line 3: it has a tag"),
            ("---\nloss_type: grpo\ndata: {}\n", "line 3: a second document"),
            ("a: Answer: think\nb: 3\n", "needs quotes"),
            ("my-key: [1, 2\nb: 3\n", "line "),
            ("a: 1\n<<: 2\n", "line 4: `<<`"),
        ] {
            for (name, log) in [("a.yaml", ""), ("A.YML", "2026-08-22 step 1\n"), ("job", "")] {
                for own in [TRL, VERL] {
                    let error = of_file(name, &format!("{own}{tail}{log}")).unwrap_err();
                    assert!(error.contains(what), "{name}: {own}{tail}: {error}");
                }
            }
        }
    }

    #[test]
    fn merge_keys_and_numbers_that_are_not_finite_are_read() {
        for own in [TRL, VERL] {
            let text = format!("c: &c {{b: 1}}\n<<: *c\n{own}n:\n  <<: *c\n  d: 2\n");
            let Configured::Values(value) = of_file("a.yaml", &text).unwrap().0 else {
                panic!("{own}");
            };
            assert_eq!((&value["b"], &value["n"]), (&json!(1), &json!({"b": 1, "d": 2})));
        }
        let text = r#"{"loss_type": "a NaN", "max_grad_norm": Infinity, "x": [NaN, -Infinity]}"#;
        let read =
            json!({"loss_type": "a NaN", "max_grad_norm": "Infinity", "x": ["NaN", "-Infinity"]});
        assert_eq!(of_file("a.json", text).unwrap().0, Configured::Values(read));
    }

    #[test]
    fn lines_of_a_log_that_look_like_keys_and_touch_a_configuration_are_told() {
        for (above, below, left_out) in [
            ("INFO a: b\n", "", vec![]),
            ("Config:\n", "\nINFO: x\n", vec![]),
            ("Run: x\n", "", vec![2]),
            ("", "Run: x\n", vec![4]),
            ("", "\nRun: x\n", vec![]),
            ("", "\nnote: a: b\nnote: x\n", vec![5, 6]),
            ("(A pid=1) Run: x\n", "(A pid=1) Run: x\n", vec![]),
        ] {
            for own in [TRL, VERL] {
                let text = format!("2026-08-22 12:00:00 begun\n{above}{own}{below}");
                let found = of_file("log", &text).unwrap().1;
                assert_eq!(found, left_out, "{text}");
            }
        }
    }
}
