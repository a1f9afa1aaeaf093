//! What was run: each technique of the paper, on or off, with its settings; every choice that the
//! paper leaves open or that the released code makes otherwise; all other settings.

use crate::algorithm::facts::Key;
use crate::algorithm::{Aggregation, DynamicSampling, Punishment};
use crate::experiment::{Experiment, compare, sources};
use crate::report::text;
use serde::Serialize;
use serde_json::Value;

/// One technique of the paper.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Technique {
    /// The paper's name.
    pub name: &'static str,
    /// Section and equation.
    pub place: &'static str,
    /// Whether this arm uses it.
    pub on: bool,
    /// Its settings, as an experiment file has them.
    pub settings: String,
}

/// A choice that the paper leaves open, or that paper and released code decide differently.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decision {
    /// What is chosen: a key, or what the code fixes.
    pub choice: String,
    /// This run's value.
    pub value: String,
    /// What the paper says.
    pub paper: String,
    /// What the released code does.
    pub released_code: String,
}

/// Keys that decide the method, and not its scale, data or machine.
const CHOICES: [&str; 8] = [
    "dapo.",
    "optimizer.",
    "prompt.",
    "reward.",
    "rollout.sampling.",
    "evaluation.sampling.",
    "training.epochs_per_step",
    "training.mini_batch_order",
];

/// Choices without a key: what is chosen, this program's value, the paper's, the released code's.
const FIXED: [[&str; 4]; 3] = [
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

/// The technique manifest, with the arm's method where it has one.
pub fn techniques(experiment: &Experiment) -> Vec<Technique> {
    let (dapo, settings) = (&experiment.dapo, settings(experiment));
    let technique = |name, place, on, keys: &[&str]| {
        let of = settings.iter().filter(|(key, _)| keys.iter().any(|start| key.starts_with(start)));
        let shown = of.map(|(key, value)| format!("{} = {value}", key.trim_start_matches("dapo.")));
        Technique { name, place, on, settings: text::joined(shown, ", ") }
    };
    let soft = matches!(dapo.overlong.punishment, Punishment::Soft { .. });
    let mut techniques = vec![
        technique("Clip-Higher", "§3.1, Eq. 10", dapo.clip.high > dapo.clip.low, &["dapo.clip."]),
        technique(
            "Dynamic Sampling",
            "§3.2, Eq. 11",
            matches!(dapo.dynamic_sampling, DynamicSampling::Resample { .. }),
            &["dapo.dynamic_sampling."],
        ),
        technique(
            "Token-level loss",
            "§3.3, Eq. 12",
            dapo.aggregation == Aggregation::TokenMean,
            &["dapo.aggregation", "dapo.token_mean_unit"],
        ),
        technique("Overlong Filtering", "§3.4", dapo.overlong.filter, &["dapo.overlong.filter"]),
        technique(
            "Soft Overlong Punishment",
            "§3.4, Eq. 13",
            soft,
            &["dapo.overlong.punishment.", "rollout.max_response_tokens"],
        ),
    ];
    if dapo.method.is_some() {
        let about = dapo.rules().about();
        let mut method = technique(about.name, about.source, true, &["dapo.method."]);
        method.settings += &format!("; {}", about.differs);
        techniques.push(method);
    }
    techniques
}

/// Every open decision and its value, those that are fixed in the code included.
pub fn decisions(experiment: &Experiment) -> Vec<Decision> {
    let differ = |key: &&Key| {
        let (paper, released) = (key.paper, key.released_code);
        (paper.value, paper.remark) != (released.value, released.remark)
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

/// Every setting of the arm and its execution as `table.key` → value, in the order of their names.
/// Inputs have their digests in the report.
pub fn settings(experiment: &Experiment) -> Vec<(String, String)> {
    let shown = |(key, value): (String, Value)| match value {
        Value::String(choice) => (text::visible(&key), text::visible(&choice)),
        other => (text::visible(&key), other.to_string()),
    };
    let is_shown = |(key, _): &(String, Value)| key != "name" && !key.starts_with("inputs.");
    compare::flat(experiment).into_iter().filter(is_shown).map(shown).collect()
}
