//! Every key of an experiment: its meaning, its unit, and where the paper and the released code
//! state its value. `dapo config diff`, `explain` and the comparison of an arm with the paper read
//! it. The facts are in `keys.toml` and in the methods' files.

use crate::algorithm::methods;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    let tables = [include_str!("keys.toml")].into_iter().chain(methods::KEYS.iter().copied());
    tables.flat_map(keys).collect()
});

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

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// `*` stands for any one name.
    pub path: String,
    pub meaning: String,
    /// Empty for names and pure numbers.
    #[serde(default)]
    pub unit: String,
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

/// What one source says about a key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stated {
    /// A JSON literal in this harness's terms; `None` where the source states no value, or none
    /// that this key could take.
    pub value: Option<String>,
    /// What the source says beyond the value; may be empty.
    pub remark: String,
    /// Section, equation, or file with line.
    pub place: String,
}

impl Stated {
    /// In one line: value, remark and place, or `absent`.
    pub fn sentence(&self) -> String {
        let said = self.value.iter().chain([&self.remark]).filter(|part| !part.is_empty());
        let said: Vec<&str> = said.map(String::as_str).collect();
        match (said.is_empty(), self.place.as_str()) {
            (true, _) => "absent".to_string(),
            (false, "") => said.join("; "),
            (false, place) => format!("{} ({place})", said.join("; ")),
        }
    }
}
