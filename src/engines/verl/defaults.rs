//! Keys that a composed file sets: those at other values than Hydra composes without overrides.

use crate::engines::configuration::{interpolation, yaml};
use crate::engines::verl::compose::{self, Composed};
use crate::experiment::compare;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

static OWN: LazyLock<[Kept; 2]> = LazyLock::new(|| {
    let texts = [
        include_str!("../../../golden/engines/verl/samples/0.7.1.json"),
        include_str!("../../../golden/engines/verl/samples/0.9.1.json"),
    ];
    texts.map(|text| serde_json::from_str(text).expect("configurations of verl"))
});

#[derive(Deserialize)]
struct Kept {
    version: String,
    bases: BTreeMap<String, String>,
}

fn own(composed: &Composed) -> &'static Kept {
    &OWN[usize::from(composed.since_0_9())]
}

/// The version of verl whose own values [`changed`] knows.
pub fn version(composed: &Composed) -> &'static str {
    &own(composed).version
}

/// `None` where the file lacks keys of that version, so that it is of another one.
pub fn changed(composed: &Composed) -> Option<Vec<String>> {
    let bases = own(composed).bases.iter().filter(|(name, _)| name.starts_with("verl/"));
    let mut found = bases.filter_map(|(_, text)| {
        let own = compose::migrated(yaml::parsed(text).expect("a configuration of verl"));
        let mut differing = Differing { root: &composed.effective, names: Vec::new() };
        differing.tables(&composed.effective, &own, &mut Vec::new())?;
        Some(differing.names)
    });
    found.next()
}

struct Differing<'a> {
    root: &'a Value,
    names: Vec<String>,
}

impl Differing<'_> {
    fn tables(&mut self, stated: &Value, own: &Value, path: &mut Vec<String>) -> Option<()> {
        match (stated, self.filled(own, path)) {
            (Value::Object(stated), Value::Object(own)) => {
                let names: BTreeSet<&String> = stated.keys().chain(own.keys()).collect();
                for name in names {
                    path.push(name.clone());
                    match own.get(name) {
                        Some(own) => self.tables(stated.get(name)?, own, path)?,
                        None => self.leaves(&stated[name], path),
                    }
                    path.pop();
                }
            }
            (Value::Object(all), _) if !all.is_empty() => self.leaves(stated, path),
            (stated, own) if !compare::same(stated, &own) => self.names.push(path.join(".")),
            _ => {}
        }
        Some(())
    }

    fn filled(&self, own: &Value, path: &[String]) -> Value {
        let text = own.as_str().filter(|text| text.contains("${"));
        let filled = text.and_then(|text| interpolation::filled(self.root, text, path));
        filled.unwrap_or_else(|| own.clone())
    }

    fn leaves(&mut self, value: &Value, path: &mut Vec<String>) {
        match value {
            Value::Object(all) if !all.is_empty() => {
                for (name, value) in all {
                    path.push(name.clone());
                    self.leaves(value, path);
                    path.pop();
                }
            }
            _ => self.names.push(path.join(".")),
        }
    }
}

#[cfg(test)]
pub fn with(version: &str, values: &Value) -> Value {
    let kept = OWN.iter().find(|kept| kept.version == version).expect("a version that is kept");
    let mut all = yaml::parsed(&kept.bases["verl/ppo_trainer"]).expect("a configuration of verl");
    put(&mut all, values);
    interpolation::resolved(&all).expect("a configuration of verl")
}

#[cfg(test)]
fn put(all: &mut Value, values: &Value) {
    match values {
        Value::Object(values) => values.iter().for_each(|(name, value)| put(&mut all[name], value)),
        value => *all = value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn changed_in(effective: Value) -> Option<Vec<String>> {
        changed(&Composed { effective, ..Composed::default() })
    }

    #[test]
    fn keys_at_other_values_than_verls_own_are_changed() {
        for version in ["0.7.1", "0.9.1"] {
            let own = compose::migrated(with(version, &json!({})));
            assert_eq!(changed_in(own.clone()), Some(Vec::new()), "{version}");
            for (values, expected) in [
                (json!({"data": {"max_prompt_length": 99}}), vec!["data.max_prompt_length"]),
                (
                    json!({"actor_rollout_ref": {"rollout": {"prompt_length": 99}}}),
                    vec!["actor_rollout_ref.rollout.prompt_length"],
                ),
                (json!({"algorithm": {"gamma": 1}}), vec![]),
                (
                    json!({"trainer": {"mine": {"a": 1, "b": {}}}}),
                    vec!["trainer.mine.a", "trainer.mine.b"],
                ),
                (json!({"data": {"sampler": null}}), vec!["data.sampler"]),
            ] {
                let found = changed_in(compose::migrated(with(version, &values)));
                assert_eq!(found.unwrap(), expected, "{version}: {values}");
            }
            let mut part = own;
            part["trainer"].as_object_mut().unwrap().remove("critic_warmup");
            assert_eq!(changed_in(part), None);
        }
    }
}
