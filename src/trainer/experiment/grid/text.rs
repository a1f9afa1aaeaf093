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
    let distinct: BTreeSet<&u64> = seeds.iter().collect();
    let twice = distinct.iter().find(|seed| seeds.iter().filter(|it| *it == **seed).count() > 1);
    match seeds.len() {
        0 => Some("there must be at least one".to_string()),
        count if count > MOST_SEEDS => Some(format!("must be at most {MOST_SEEDS}, got {count}")),
        _ => twice.map(|seed| format!("{seed} is listed twice")),
    }
}

#[derive(Debug)]
pub struct Keys<'a> {
    /// Where the table stands, such as `grid.toml, arm 2`.
    pub place: String,
    table: Table,
    known: Vec<&'static str>,
    problems: &'a mut Vec<String>,
}

impl<'a> Keys<'a> {
    pub fn of(place: String, table: Table, problems: &'a mut Vec<String>) -> Self {
        Self { place, table, known: Vec::new(), problems }
    }

    pub fn add(&mut self, problems: Vec<String>) {
        self.problems.extend(problems);
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

    pub fn needed_text(&mut self, key: &'static str) -> Option<String> {
        if !self.table.contains_key(key) {
            self.problem(key, "is missing");
        }
        self.text(key)
    }

    pub fn name(&mut self, key: &'static str) -> Option<String> {
        let name = self.text(key)?;
        match plain(&name) {
            None => Some(name),
            Some(problem) => {
                self.problem(key, &problem);
                None
            }
        }
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
