//! Typed values out of a TOML table, with every problem collected.

use crate::experiment::{diagnose, grid::MOST_SEEDS, validate};
use std::collections::BTreeSet;
use toml::{Table, Value};

const MOST_CHARACTERS: usize = 500;

/// The problem with a name of a grid or an arm, which names files and folders.
pub fn plain(name: &str) -> Option<String> {
    let is_usable = name.len() <= 64 && validate::is_plain_name(name);
    (!is_usable).then(|| {
        format!("must be 1 to 64 letters, digits and any of -_+. (not first), got {name:?}")
    })
}

pub fn seeds(seeds: &[u64]) -> Option<String> {
    match seeds.len() {
        0 => Some("there must be at least one".to_string()),
        count if count > MOST_SEEDS => Some(format!("must be at most {MOST_SEEDS}, got {count}")),
        _ => {
            let mut sorted = seeds.to_vec();
            sorted.sort_unstable();
            let twice = sorted.array_windows().find(|[one, next]| one == next);
            twice.map(|[seed, _]| format!("{seed} is listed twice"))
        }
    }
}

/// A problem for each of the arms that an arm states and that are not among those before it.
pub fn unknown_arms(
    names: &BTreeSet<String>,
    after: &Option<String>,
    compared_with: &Option<String>,
) -> Vec<String> {
    let stated = [("after", after), ("compared_with", compared_with)];
    let unknown = |(key, arm): (&str, &Option<String>)| {
        let arm = arm.as_ref().filter(|arm| !names.contains(*arm))?;
        Some(format!("{key}: no arm before it is named {arm:?}"))
    };
    stated.into_iter().filter_map(unknown).collect()
}

#[derive(Debug)]
pub struct Keys<'a> {
    /// Where the table stands, such as `grid.toml, arm 2`.
    place: String,
    table: Table,
    known: Vec<&'static str>,
    problems: &'a mut Vec<String>,
}

impl<'a> Keys<'a> {
    pub fn of(place: String, table: Table, problems: &'a mut Vec<String>) -> Self {
        Self { place, table, known: Vec::new(), problems }
    }

    pub fn problem(&mut self, key: &str, what: &str) {
        self.problems.push(format!("{}: {key}: {what}", self.place));
    }

    pub fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.table.remove(key)
    }

    pub fn text(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) if text.chars().count() > MOST_CHARACTERS => {
                self.problem(key, &format!("must be at most {MOST_CHARACTERS} characters"));
                None
            }
            Value::String(text) => Some(text),
            other => {
                self.problem(key, &format!("expected a text, got {other}"));
                None
            }
        }
    }

    pub fn name(&mut self) -> Option<String> {
        let name = self.needed_text("name")?;
        if let Some(problem) = plain(&name) {
            self.problem("name", &problem);
        }
        Some(name)
    }

    pub fn needed_text(&mut self, key: &'static str) -> Option<String> {
        if !self.table.contains_key(key) {
            self.problem(key, "is missing");
        }
        self.text(key)
    }

    pub fn inside(&mut self, key: &'static str) -> Option<Keys<'_>> {
        let table = self.table(key)?;
        Some(Keys::of(format!("{}: {key}", self.place), table, self.problems))
    }

    pub fn table(&mut self, key: &'static str) -> Option<Table> {
        match self.take(key)? {
            Value::Table(table) => Some(table),
            other => {
                self.problem(key, &format!("expected a table, got {other}"));
                None
            }
        }
    }

    /// Tables, written `[[key]]`; none when the key is absent.
    pub fn tables(&mut self, key: &'static str) -> Vec<Table> {
        let Some(value) = self.take(key) else { return Vec::new() };
        let Value::Array(values) = value else {
            self.problem(key, &format!("expected tables, written [[{key}]]"));
            return Vec::new();
        };
        let mut tables = Vec::new();
        for value in values {
            match value {
                Value::Table(table) => tables.push(table),
                other => self.problem(key, &format!("expected tables [[{key}]], got {other}")),
            }
        }
        tables
    }

    pub fn finish(self) {
        for key in self.table.keys() {
            let valid: Vec<String> = self.known.iter().map(|name| format!("`{name}`")).collect();
            let reason = format!("unknown field `{key}`, expected one of {}", valid.join(", "));
            let reason = diagnose::with_suggestion(&reason);
            self.problems.push(format!("{}: {reason}", self.place));
        }
    }
}
