//! The paper's techniques, and all settings.

use crate::base::visible;
use crate::experiment::{Experiment, compare};
use crate::report::text;
use crate::study::Effects;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::LazyLock;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Technique {
    pub name: &'static str,
    pub place: &'static str,
    pub on: bool,
    pub settings: String,
}

/// `techniques.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperTechniques {
    technique: Vec<PaperTechnique>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperTechnique {
    name: String,
    place: String,
    keys: Vec<String>,
}

static TECHNIQUES: LazyLock<PaperTechniques> =
    LazyLock::new(|| toml::from_str(include_str!("techniques.toml")).expect("the techniques"));

/// Of a setting, as it is shown.
const MOST_CHARACTERS: usize = 400;

pub fn techniques(experiment: &Experiment, effects: &Effects) -> Vec<Technique> {
    let settings = settings(experiment);
    let technique = |name: &'static str, place, keys: &[String]| {
        let is_of = |key: &str| keys.iter().any(|start| key.starts_with(start));
        let of = settings.iter().filter(|(key, _)| is_of(key));
        let shown = of.map(|(key, value)| format!("{} = {value}", key.trim_start_matches("dapo.")));
        let settings = text::joined(shown, ", ");
        let on = effects.findings.iter().any(|it| it.technique == name && it.enabled);
        Technique { name, place, on, settings }
    };
    let of_paper = TECHNIQUES.technique.iter();
    let of_paper = of_paper.map(|it| technique(&it.name, it.place.as_str(), &it.keys));
    let mut techniques: Vec<Technique> = of_paper.collect();
    if experiment.dapo.method.is_some() {
        let about = experiment.dapo.rules().about();
        let name = experiment.dapo.method_name();
        let mut method = technique(name, about.source, &["dapo.method.".to_owned()]);
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
