//! The paper's techniques, and all settings.

use crate::base::visible;
use crate::experiment::{Experiment, compare};
use crate::report::text;
use crate::study::Effects;
use serde::Serialize;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Technique {
    pub name: &'static str,
    pub place: &'static str,
    pub on: bool,
    pub settings: String,
}

/// The paper's, where it has them, and what the keys of their settings begin with.
const TECHNIQUES: [(&str, &str, &[&str]); 5] = [
    ("Clip-Higher", "§3.1, Eq. 10", &["dapo.clip."]),
    ("Dynamic Sampling", "§3.2, Eq. 11", &["dapo.dynamic_sampling."]),
    ("Token-level loss", "§3.3, Eq. 12", &["dapo.aggregation", "dapo.token_mean_unit"]),
    ("Overlong Filtering", "§3.4", &["dapo.overlong.filter"]),
    (
        "Soft Overlong Punishment",
        "§3.4, Eq. 13",
        &["dapo.overlong.punishment.", "rollout.max_response_tokens"],
    ),
];

/// Of a setting, as it is shown.
const MOST_CHARACTERS: usize = 400;

pub fn techniques(experiment: &Experiment, effects: &Effects) -> Vec<Technique> {
    let settings = settings(experiment);
    let technique = |name: &'static str, place, keys: &[&str]| {
        let is_of = |key: &str| keys.iter().any(|start| key.starts_with(start));
        let of = settings.iter().filter(|(key, _)| is_of(key));
        let shown = of.map(|(key, value)| format!("{} = {value}", key.trim_start_matches("dapo.")));
        let settings = text::joined(shown, ", ");
        let on = effects.findings.iter().any(|it| it.technique == name && it.enabled);
        Technique { name, place, on, settings }
    };
    let mut techniques =
        TECHNIQUES.map(|(name, place, keys)| technique(name, place, keys)).to_vec();
    if experiment.dapo.method.is_some() {
        let about = experiment.dapo.rules().about();
        let name = experiment.dapo.method_name();
        let mut method = technique(name, about.source, &["dapo.method."]);
        method.settings += &format!("; {}", about.differs);
        techniques.push(method);
    }
    techniques
}

/// `table.key` → value, by name; a long text is cut. Inputs have their digests in the report.
pub fn settings(experiment: &Experiment) -> Vec<(String, String)> {
    let shown = |(key, value): (String, Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), text::visible);
        (text::visible(&key), visible::shortened(&value, MOST_CHARACTERS))
    };
    let is_shown = |(key, _): &(String, Value)| key != "name" && !key.starts_with("inputs.");
    compare::flat(experiment).into_iter().filter(is_shown).map(shown).collect()
}
