//! Every key: meaning, unit, range, and where paper and released code state its value. Validation, `dapo config diff`,
//! `explain` and the comparison with the paper read it. The facts are in `keys.toml` and the methods' files.

use crate::algorithm::methods;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::sync::LazyLock;

static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let tables = [include_str!("keys.toml")].into_iter().chain(methods::KEYS.iter().copied());
    let mut all: Vec<Key> = tables.flat_map(keys).collect();
    let of_sets: Vec<Key> = all.iter().filter_map(of_a_set).collect();
    all.extend(of_sets);
    all
});

/// A key of the program that grades, as that of a set with a program of its own.
fn of_a_set(key: &Key) -> Option<Key> {
    let moved = |path: &str| path.replace("reward.verifier", "evaluation.sets.*.verifier");
    key.path.starts_with("reward.verifier.").then(|| Key {
        path: moved(&key.path),
        needs: key.needs.clone().map(|needs| Needs { key: moved(&needs.key), ..needs }),
        ..key.clone()
    })
}

fn keys(table: &str) -> Vec<Key> {
    let mut tables: BTreeMap<String, Vec<Key>> = toml::from_str(table).expect("a table of keys");
    tables.remove("key").unwrap_or_default()
}

pub fn all() -> impl Iterator<Item = &'static Key> {
    KEYS.iter()
}

pub fn of(path: &str) -> Option<&'static Key> {
    all().find(|key| key.matches(path))
}

pub fn is_within(key: &str, table: &str) -> bool {
    key.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// `*` stands for any one name.
    pub path: String,
    pub meaning: String,
    /// Empty for names and pure numbers.
    #[serde(default)]
    pub unit: String,
    /// `None` where every value of the key's type is allowed.
    pub range: Option<KeyRange>,
    pub needs: Option<Needs>,
    #[serde(default)]
    pub paper: Stated,
    #[serde(default)]
    pub released_code: Stated,
}

impl Key {
    /// Whether this is the key of a path such as `evaluation.samples.dev`.
    pub fn matches(&self, path: &str) -> bool {
        let (own, other) = (self.path.split('.'), path.split('.'));
        own.clone().count() == other.clone().count()
            && own.zip(other).all(|(own, other)| own == "*" || own == other)
    }
}

/// Finite numbers between a lower and an upper bound; at most one of each is stated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyRange {
    pub at_least: Option<f64>,
    pub above: Option<f64>,
    pub at_most: Option<f64>,
    pub below: Option<f64>,
}

impl KeyRange {
    pub fn contains(&self, value: f64) -> bool {
        value.is_finite()
            && self.at_least.is_none_or(|bound| value >= bound)
            && self.above.is_none_or(|bound| value > bound)
            && self.at_most.is_none_or(|bound| value <= bound)
            && self.below.is_none_or(|bound| value < bound)
    }
}

/// As it stands after "must be".
impl Display for KeyRange {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match (self.at_least, self.above, self.at_most, self.below) {
            (Some(low), _, Some(high), _) => write!(f, "from {low} to {high}"),
            (Some(low), _, _, Some(high)) => write!(f, "in [{low}, {high})"),
            (_, Some(low), Some(high), _) => write!(f, "in ({low}, {high}]"),
            (_, Some(low), _, Some(high)) => write!(f, "in ({low}, {high})"),
            (Some(low), ..) => write!(f, "at least {low}"),
            (_, Some(low), ..) => write!(f, "above {low}"),
            (_, _, Some(high), _) => write!(f, "at most {high}"),
            (_, _, _, Some(high)) => write!(f, "below {high}"),
            (None, None, None, None) => f.write_str("finite"),
        }
    }
}

/// The value of another key without which a key may not be stated.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Needs {
    pub key: String,
    pub value: String,
    /// A value of the key that may always be stated.
    pub except: Option<String>,
    /// Why, as a sentence without a full stop.
    pub because: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stated {
    /// A JSON literal in this harness's terms; `None` where the source states no value that this key could take.
    pub value: Option<String>,
    /// What the source says beyond the value; may be empty.
    pub remark: String,
    /// Section, equation, or file with line.
    pub place: String,
}

impl Stated {
    /// In one line: value, remark and place, or `absent`.
    pub fn sentence(&self) -> String {
        let parts = self.value.iter().chain([&self.remark]).filter(|part| !part.is_empty());
        let parts: Vec<&str> = parts.map(String::as_str).collect();
        if parts.is_empty() {
            "absent".to_string()
        } else if self.place.is_empty() {
            parts.join("; ")
        } else {
            format!("{} ({})", parts.join("; "), self.place)
        }
    }
}
