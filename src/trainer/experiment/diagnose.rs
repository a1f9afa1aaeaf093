//! The exact key that is wrong, the nearest valid name, and the variant that a stray key belongs to. Names come from
//! serde's own messages, so that there is no second list: a table is deserialised again with one thing changed.

use crate::experiment::sources::{self, Key, is_within};
use crate::experiment::{Experiment, shipped};
use std::collections::BTreeSet;
use toml::{Table, Value};

const NOBODY: &str = "\u{1}";

pub struct Failure {
    /// The key's path; for what is inside a table with a `kind`, the table's path.
    pub key: String,
    pub reason: String,
}

pub fn parse(merged: &Table) -> Result<Experiment, Failure> {
    serde_path_to_error::deserialize(Value::Table(merged.clone())).map_err(|error| {
        let key = error.path().to_string();
        Failure { key, reason: error.into_inner().message().to_string() }
    })
}

/// The failure with its exact key and with what would be valid in its place.
pub fn explained(merged: &Table, failure: Failure) -> Failure {
    let Failure { key, reason } = placed(merged, failure);
    let plain = plain_type(&reason, get(merged, &key));
    let reason = plain.unwrap_or(reason);
    let advice = needed_by_kind(merged, &key).filter(|_| reason.starts_with("missing field"));
    Failure { reason: reason + &advice.unwrap_or_default(), key }
}

fn placed(merged: &Table, failure: Failure) -> Failure {
    let value = get(merged, &failure.key).and_then(Value::as_integer);
    if let Some(value) = value.filter(|value| *value < 0)
        && failure.key.ends_with(".top_k")
    {
        return Failure { reason: negative_top_k(value), ..failure };
    }
    let inside = get(merged, &failure.key).and_then(Value::as_table);
    match inside {
        Some(table) if failure.reason.starts_with("unknown variant") => {
            unknown_variant(merged, table, failure)
        }
        Some(table) if failure.reason.starts_with("unknown field") => {
            unknown_in_variant(merged, table, failure)
        }
        Some(table) if failure.reason.starts_with("invalid ") => {
            wrong_in_variant(merged, table, failure)
        }
        Some(table) if failure.reason.starts_with("missing field `kind`") => {
            let kinds = kinds(merged, &failure.key);
            let stated: Vec<&str> = table.keys().map(String::as_str).collect();
            let reason = format!(
                "missing field `kind`, one of {}; a table with a kind is replaced whole, and this one states only {}",
                quoted(&kinds),
                if stated.is_empty() { "nothing".to_string() } else { stated.join(", ") }
            );
            Failure { key: failure.key, reason }
        }
        Some(table) if failure.reason.starts_with("missing field `") => {
            let reason =
                |table: &Table| reason_with(merged, &failure.key, Value::Table(table.clone()));
            let inside = table.iter().find_map(|(name, value)| {
                let reason = |inner: &Table| {
                    let mut table = table.clone();
                    table.insert(name.clone(), Value::Table(inner.clone()));
                    reason(&table)
                };
                let reason = missing(value.as_table()?, reason)?;
                Some(Failure { key: format!("{}.{name}", failure.key), reason })
            });
            match (missing(table, reason), inside) {
                (Some(reason), _) => Failure { key: failure.key, reason },
                (None, Some(inside)) => inside,
                (None, None) => failure,
            }
        }
        _ => {
            let reason = with_key(merged, &failure.key, &with_variants(merged, &failure));
            Failure { reason, ..failure }
        }
    }
}

fn needed_by_kind(merged: &Table, key: &str) -> Option<String> {
    let ends = key.match_indices('.').map(|(end, _)| end).chain([key.len()]);
    let kind = |end: usize| Some((&key[..end], get(merged, &key[..end])?.get("kind")?.as_str()?));
    let (table, kind) = ends.rev().find_map(kind)?;
    let path = &sources::of(&format!("{table}.kind"))?.path;
    let is_method = |arm: &str| table == "dapo.method" && arm == kind;
    let has_arm = shipped::methods().any(|(path, _)| is_method(&shipped::name(&path)));
    let arm = if has_arm { format!(", and the arm {kind} states them") } else { String::new() };
    let listed = path.trim_end_matches(".kind");
    Some(format!(
        ", which kind = \"{kind}\" needs; `dapo config explain {listed}` lists the keys{arm}"
    ))
}

pub fn missing(table: &Table, reason: impl Fn(&Table) -> Option<String>) -> Option<String> {
    let field = |reason: String| {
        reason.strip_prefix("missing field `")?.split('`').next().map(str::to_string)
    };
    let (mut table, mut names) = (table.clone(), Vec::new());
    while let Some(name) = reason(&table).and_then(field) {
        let with = |value: Value| {
            let mut filled = table.clone();
            filled.insert(name.clone(), value);
            filled
        };
        let variants = variants(reason(&with(Value::String(NOBODY.into()))));
        let plain = [1.into(), true.into(), "".into(), Value::Array(Vec::new())];
        let fits = |filled: &Table| match reason(filled) {
            None => true,
            Some(reason) => field(reason).is_some_and(|other| other != name),
        };
        let mut filled = variants.into_iter().map(Value::String).chain(plain).map(with);
        let Some(filled) = filled.find(fits) else { break };
        table = filled;
        names.push(name);
    }
    let s = if names.len() == 1 { "" } else { "s" };
    (!names.is_empty()).then(|| format!("missing field{s} `{}`", names.join("`, `")))
}

/// Other programs have a negative number for a sampler that keeps all tokens.
pub fn negative_top_k(value: i64) -> String {
    format!("must be at least 0, got {value}; 0 keeps all tokens (vLLM's and verl's -1)")
}

fn unknown_variant(merged: &Table, table: &Table, failure: Failure) -> Failure {
    let kind = table.get("kind").map(Value::as_str);
    let key = format!("{}.kind", failure.key);
    if kind == Some(failure.reason.split('`').nth(1)) {
        return Failure { reason: with_variant(&key, &failure.reason), key };
    }
    if kind.is_none() {
        return Failure { key, ..failure };
    }
    let Failure { key, reason } = wrong_in_variant(merged, table, failure);
    Failure { key, reason: with_suggestion(&reason) }
}

/// An unknown key of a table with a `kind`: serde names the table; the key may belong to another kind.
fn unknown_in_variant(merged: &Table, table: &Table, failure: Failure) -> Failure {
    let Some(stray) = failure.reason.split('`').nth(1).map(str::to_string) else { return failure };
    if last_name(&failure.key) == stray {
        let reason = with_key(merged, &failure.key, &failure.reason);
        return Failure { reason, ..failure };
    }
    let inside = table.iter().find(|(_, value)| value.get(&stray).is_some());
    if (stray == "kind" || !table.contains_key(&stray))
        && let Some((name, _)) = inside
    {
        let key = format!("{}.{name}.{stray}", failure.key);
        let reason = with_key(merged, &key, &failure.reason);
        return Failure { key, reason };
    }
    let Some(kind) = table.get("kind").and_then(Value::as_str) else {
        return Failure { reason: with_suggestion(&failure.reason), ..failure };
    };
    let belongs = |other: &String| {
        let mut probe = Table::new();
        probe.insert("kind".into(), Value::String(other.clone()));
        probe.insert(stray.clone(), table.get(&stray).cloned().unwrap_or(Value::Boolean(true)));
        let unknown = format!("unknown field `{stray}`");
        reason_with(merged, &failure.key, Value::Table(probe))
            .is_none_or(|reason| !reason.starts_with(&unknown))
    };
    let owners: Vec<String> = kinds(merged, &failure.key).into_iter().filter(belongs).collect();
    let key = format!("{}.{stray}", failure.key);
    let reason = if owners.is_empty() {
        with_key(merged, &key, &failure.reason)
    } else {
        format!(
            "unknown field `{stray}` with kind = \"{kind}\"; it is a key of kind = {}",
            quoted(&owners)
        )
    };
    Failure { key, reason }
}

fn wrong_in_variant(merged: &Table, table: &Table, failure: Failure) -> Failure {
    let guilty = table.keys().filter(|name| *name != "kind").find(|name| {
        let mut without = table.clone();
        without.remove(name.as_str());
        reason_with(merged, &failure.key, Value::Table(without)).as_ref() != Some(&failure.reason)
    });
    match guilty {
        Some(name) => Failure { key: format!("{}.{name}", failure.key), reason: failure.reason },
        None => failure,
    }
}

/// Where serde wants a variant, or a table with a kind, and got another type: the names.
fn with_variants(merged: &Table, failure: &Failure) -> String {
    if !failure.reason.starts_with("invalid type") {
        return failure.reason.clone();
    }
    let got = get(merged, &failure.key).map(Value::to_string).unwrap_or_default();
    let names = variants(reason_with(merged, &failure.key, Value::String(NOBODY.into())));
    if !names.is_empty() {
        return format!("expected {}, got {got}", quoted(&names));
    }
    let kinds = kinds(merged, &failure.key);
    if !kinds.is_empty() {
        return format!("expected a table with kind = {}, got {got}", quoted(&kinds));
    }
    match failure.reason.split_once("expected struct ") {
        Some((start, _name)) => format!("{start}expected a table"),
        None => failure.reason.clone(),
    }
}

fn plain_type(reason: &str, value: Option<&Value>) -> Option<String> {
    let (got, expected) = reason.strip_prefix("invalid ")?.rsplit_once(", expected ")?;
    let wanted = match expected {
        "u64" | "u32" | "usize" if got.starts_with("value: integer `-") => "at least 0",
        "u64" | "u32" | "usize" if got.starts_with("type: ") => "a whole number",
        "f64" if got.starts_with("type: ") => "a number",
        _ => return None,
    };
    Some(format!("must be {wanted}, got {}", value?))
}

fn kinds(merged: &Table, key: &str) -> Vec<String> {
    let mut probe = Table::new();
    probe.insert("kind".into(), Value::String(NOBODY.into()));
    variants(reason_with(merged, key, Value::Table(probe)))
}

fn variants(reason: Option<String>) -> Vec<String> {
    let reason = reason.filter(|reason| reason.starts_with("unknown variant"));
    reason.map(|reason| valid_names(&reason)).unwrap_or_default()
}

/// serde's message at `key` (or inside it) when another value stands there; none when the failure is elsewhere.
fn reason_with(merged: &Table, key: &str, value: Value) -> Option<String> {
    let failure = parse(&with(merged, key, value)?).err()?;
    is_within(&failure.key, key).then_some(failure.reason)
}

/// The names that a key takes, or the type of its value; `None` where the table cannot have it.
pub fn allowed(merged: &Table, key: &str) -> Option<String> {
    if let Some(table) = key.strip_suffix(".kind") {
        return Some(kinds(merged, table))
            .filter(|kinds| !kinds.is_empty())
            .map(|kinds| quoted(&kinds));
    }
    let reason = parse(&with(merged, key, Value::String(NOBODY.into()))?).err()?.reason;
    // The table is of a kind that has no such key.
    if reason.starts_with("unknown field") {
        return None;
    }
    if reason.starts_with("unknown variant") {
        return Some(quoted(&valid_names(&reason)));
    }
    Some(reason.split_once("expected ")?.1.to_string())
}

pub fn with(merged: &Table, key: &str, value: Value) -> Option<Table> {
    let mut probe = merged.clone();
    let (folders, name) = match key.rsplit_once('.') {
        Some((folders, name)) => (folders.split('.').collect(), name),
        None => (Vec::new(), key),
    };
    let mut table = &mut probe;
    for part in folders {
        table = table.get_mut(part)?.as_table_mut()?;
    }
    table.insert(name.to_string(), value);
    Some(probe)
}

fn get<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let mut parts = key.split('.');
    let first = table.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(" or ")
}

fn valid_names(reason: &str) -> Vec<String> {
    reason.split('`').skip(1).step_by(2).skip(1).map(str::to_string).collect()
}

pub fn with_suggestion(reason: &str) -> String {
    let unknown = reason.starts_with("unknown field") || reason.starts_with("unknown variant");
    let wrong = reason.split('`').nth(1).filter(|_| unknown);
    match wrong.and_then(|wrong| nearest(wrong, &valid_names(reason))) {
        Some(name) => format!("{reason}; did you mean `{name}`?"),
        None => reason.to_string(),
    }
}

fn with_key(merged: &Table, key: &str, reason: &str) -> String {
    if !reason.starts_with("unknown field") {
        return with_variant(key, reason);
    }
    let name = last_name(key);
    let mut below = (name.to_string(), get(merged, key).and_then(Value::as_table));
    while let Some((inner, value)) = below.1.filter(|table| table.len() == 1).and_then(first) {
        below = (format!("{}.{inner}", below.0), value.as_table());
    }
    let called = [below.0.as_str(), name].map(keys_called).into_iter();
    let called = called.map(|keys| Vec::from_iter(keys.into_iter().filter(|own| own != key)));
    let away = |other: &str| strsim::osa_distance(&plain(name), &plain(other));
    let own = nearest(name, &valid_names(reason)).map(|own| away(&own));
    let is_nearer =
        |other: &String| !key.contains('.') && own.is_none_or(|own| away(last_name(other)) < own);
    let near = keys_near(name).into_iter().filter(is_nearer).collect();
    match called.chain([near]).find(|keys| !keys.is_empty()) {
        Some(keys) => format!("{reason}; did you mean `{}`?", keys.join("` or `")),
        None => with_suggestion(reason),
    }
}

fn with_variant(key: &str, reason: &str) -> String {
    let variant = reason.split('`').nth(1).map(plain).unwrap_or_default();
    if key == "dapo.method.kind" && ["grpo", "dapo"].contains(&&*variant) {
        return format!("{reason}; GRPO and DAPO are experiments without [dapo.method]");
    }
    with_suggestion(reason)
}

fn first(table: &Table) -> Option<(&String, &Value)> {
    table.iter().next()
}

pub fn meant(asked: &str) -> Vec<String> {
    let called = [asked, last_name(asked)].map(keys_called).into_iter();
    called.chain([keys_near(asked)]).find(|keys| !keys.is_empty()).unwrap_or_default()
}

/// Whose paths end with a name, or whose last name has it as its initials (`lr`).
fn keys_called(name: &str) -> Vec<String> {
    let ending = format!(".{name}");
    let initials = |path: &str| -> String {
        last_name(path).split('_').filter_map(|word| word.chars().next()).collect()
    };
    let has_name = |path: &str| path == name || path.ends_with(&ending);
    let has_initials = |path: &str| name.len() > 1 && initials(path) == name;
    let rules: [&dyn Fn(&str) -> bool; 2] = [&has_name, &has_initials];
    let of_rules = rules.map(|is_called| Vec::from_iter(paths().filter(|path| is_called(path))));
    of_rules.into_iter().find(|keys| !keys.is_empty()).unwrap_or_default()
}

fn keys_near(asked: &str) -> Vec<String> {
    let name = plain(last_name(asked));
    let away = |path: &String| strsim::osa_distance(&name, &plain(last_name(path)));
    let is_near = |path: &String| 3 * away(path) <= name.len().max(last_name(path).len());
    let near: Vec<String> = paths().filter(is_near).collect();
    let is_path = asked.contains('.');
    let whole = |path: &String| if is_path { strsim::osa_distance(asked, path) } else { 0 };
    let least = near.iter().map(|path| (away(path), whole(path))).min();
    near.into_iter().filter(|path| Some((away(path), whole(path))) == least).collect()
}

fn paths() -> impl Iterator<Item = String> {
    let with_tables = |key: &'static Key| {
        let ends = key.path.match_indices('.').map(|(end, _)| end).chain([key.path.len()]);
        ends.map(|end| key.path[..end].to_string())
    };
    sources::all().flat_map(with_tables).collect::<BTreeSet<String>>().into_iter()
}

fn last_name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or_default()
}

/// `did you mean dapo?`, or all names after `intro`.
pub fn known(wrong: &str, intro: &str, names: &[String]) -> String {
    match nearest(wrong, names) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("{intro} {}", names.join(", ")),
    }
}

/// One or two slips away from the name, and too long to be another one by chance.
pub fn is_misspelt(wrong: &str, name: &str) -> bool {
    wrong.len() >= 8 && strsim::osa_distance(wrong, name) <= 2
}

pub fn nearest(wrong: &str, names: &[String]) -> Option<String> {
    let wrong = plain(wrong);
    let near = names.iter().map(|name| (strsim::osa_distance(&wrong, &plain(name)), name)).min();
    near.filter(|(distance, name)| 2 * distance <= wrong.len().max(name.len()))
        .map(|(_, name)| name.clone())
}

fn plain(name: &str) -> String {
    name.to_lowercase().replace(['_', '.', ' '], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_last_name_its_initials_or_a_slip_of_it() {
        for (asked, keys) in [
            ("clip.high", "dapo.clip.high dapo.method.clip.high"),
            ("optimizer.lr", "optimizer.learning_rate"),
            ("lr", "optimizer.learning_rate"),
            ("rollout_step", "optimizer.warm_up.rollout_steps training.rollout_steps"),
            ("trainer.rollout_step", "training.rollout_steps"),
            ("Learning-Rate", "optimizer.learning_rate"),
            ("beta", "optimizer.beta1 optimizer.beta2"),
            ("batch_size", ""),
        ] {
            assert_eq!(meant(asked).join(" "), keys, "{asked}");
        }
    }

    #[test]
    fn capitals_and_what_stands_between_words_are_no_slips() {
        let names = ["mini-aime", "dr-grpo", "top_p"].map(str::to_string);
        for (wrong, name) in [
            ("MINI_AIME", "mini-aime"),
            ("Dr.GRPO", "dr-grpo"),
            ("Dr GPRO", "dr-grpo"),
            ("TOP-P", "top_p"),
        ] {
            assert_eq!(nearest(wrong, &names).as_deref(), Some(name));
        }
        assert_eq!(nearest("ppo", &names), None);
    }
}
