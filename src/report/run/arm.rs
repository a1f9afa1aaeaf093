//! The paper's techniques; choices that it leaves open or that the released code makes otherwise; all other settings.

use crate::base::visible;
use crate::experiment::{Experiment, compare, sources, sources::Key};
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

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decision {
    /// A key, or what the code fixes.
    pub choice: String,
    pub value: String,
    pub paper: String,
    pub released_code: String,
}

/// They decide the method, not scale, data or machine.
const CHOICES: [&str; 9] = [
    "dapo.",
    "optimizer.",
    "prompt.",
    "reward.",
    "rollout.sampling.",
    "evaluation.sampling.",
    "evaluation.sets.",
    "training.epochs_per_step",
    "training.mini_batch_order",
];

/// Question, this program's value, the paper's, the released code's.
const FIXED: [[&str; 4]; 5] = [
    ["reward of the advantage", "shaped", "shaped", "shaped"],
    [
        "what Dynamic Sampling filters on",
        "correctness only",
        "correctness (Eq. 11)",
        "configurable; `acc` in the scripts",
    ],
    [
        "group statistics",
        "f64; a constant group has advantage exactly 0",
        "absent",
        "f32; rounding can leave a constant group a non-zero advantage",
    ],
    [
        "π_old",
        "recomputed by the training forward",
        "policy before the update",
        "recomputed by the training forward",
    ],
    [
        "end of sequence",
        "a response token inside the mask",
        "absent",
        "a response token inside the mask",
    ],
];

/// Name, place in the paper, keys.
const TECHNIQUES: [(&str, &str, &[&str]); 5] = [
    ("Clip-Higher", "§3.1, Eq. 10", &["dapo.clip."]),
    ("Dynamic Sampling", "§3.2, Eq. 11", &["dapo.dynamic_sampling."]),
    ("Token-level loss", "§3.3, Eq. 12", &["dapo.aggregation", "dapo.token_mean_unit"]),
    ("Overlong Filtering", "§3.4", &["dapo.overlong.filter"]),
    ("Soft Overlong Punishment", "§3.4, Eq. 13", &["dapo.overlong.punishment.", L_MAX]),
];
const L_MAX: &str = "rollout.max_response_tokens";

/// Of a setting, as it is shown.
const MOST_CHARACTERS: usize = 400;

pub fn techniques(experiment: &Experiment, effects: &Effects) -> Vec<Technique> {
    let settings = settings(experiment);
    let technique = |&(name, place, keys): &(&'static str, &'static str, &[&str])| {
        let of = settings.iter().filter(|(key, _)| keys.iter().any(|start| key.starts_with(start)));
        let shown = of.map(|(key, value)| format!("{} = {value}", key.trim_start_matches("dapo.")));
        let settings = text::joined(shown, ", ");
        let on = effects.findings.iter().any(|it| it.technique == name && it.enabled);
        Technique { name, place, on, settings }
    };
    let mut techniques: Vec<Technique> = TECHNIQUES.iter().map(technique).collect();
    if experiment.dapo.method.is_some() {
        let about = experiment.dapo.rules().about();
        let mut method = technique(&(about.name, about.source, &["dapo.method."]));
        method.settings += &format!("; {}", about.differs);
        techniques.push(method);
    }
    techniques
}

pub fn decisions(experiment: &Experiment) -> Vec<Decision> {
    let differ = |key: &&Key| {
        let (paper, released) = (&key.paper, &key.released_code);
        (&paper.value, &paper.remark) != (&released.value, &released.remark)
    };
    let is_choice = |path: &str| CHOICES.iter().any(|start| path.starts_with(start));
    let of_keys = settings(experiment).into_iter().filter(|(path, _)| is_choice(path));
    let of_keys = of_keys.filter_map(|(choice, value)| {
        let key = sources::of(&choice).filter(differ)?;
        let (paper, released_code) = (key.paper.sentence(), key.released_code.sentence());
        Some(Decision { choice, value, paper, released_code })
    });
    let fixed = FIXED.map(|fields| {
        let [choice, value, paper, released_code] = fields.map(str::to_owned);
        Decision { choice, value, paper, released_code }
    });
    of_keys.chain(fixed).collect()
}

/// `table.key` → value, by name; a long text is cut. Inputs have their digests in the report.
pub fn settings(experiment: &Experiment) -> Vec<(String, String)> {
    let shown = |(key, value): (String, Value)| match value {
        Value::String(choice) => {
            (text::visible(&key), visible::shortened(&text::visible(&choice), MOST_CHARACTERS))
        }
        other => (text::visible(&key), visible::shortened(&other.to_string(), MOST_CHARACTERS)),
    };
    let is_shown = |(key, _): &(String, Value)| key != "name" && !key.starts_with("inputs.");
    compare::flat(experiment).into_iter().filter(is_shown).map(shown).collect()
}
