//! `experiments/study.toml`: what was decided before the first run of a study. Code computes
//! exactly what stands there, and says so of whatever does not.

use crate::base::files;
use crate::experiment::Grid;
use crate::study::error::Error;
use crate::study::{At, Metric, Statistic};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// A pre-registration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// The question of the study, in a sentence.
    pub question: String,
    /// True when it was written down before the first run. False for an analysis that nobody
    /// declared: every verdict of it is exploratory.
    pub registered: bool,
    /// Run seeds of the study; empty: those of each grid. No other cell counts.
    pub seeds: Vec<u64>,
    /// Seeds that the benchmark was tuned on: their cells never count.
    pub tuning_seeds: Vec<u64>,
    /// Confidence of every interval, such as 0.95.
    pub level: f64,
    /// Error rate of each family (Holm), such as 0.05.
    pub alpha: f64,
    /// Power that the minimum detectable effect is given for, such as 0.8.
    pub power: f64,
    /// The set of the headline score.
    pub primary_set: String,
    /// The set that is evaluated on the way: curves, scores at equal generated rollouts.
    pub curve_set: String,
    /// δ: two arms closer than this count as the same, as a share of avg@k.
    pub margin: f64,
    /// Where σ came from; `None`: no minimum detectable effect is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pilot: Option<Pilot>,
    /// The level whose reaching is timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_to_level: Option<Level>,
    /// The task variant that tuning never saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<HeldOut>,
    /// Families of comparisons; Holm acts within each.
    #[serde(default)]
    pub families: Vec<Family>,
}

/// The runs that gave σ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pilot {
    /// Standard deviation over training runs of the primary score, as a share.
    pub sigma: f64,
    /// Runs of each arm.
    pub runs: u64,
    /// Arms and set, in words.
    pub of: String,
}

/// A level of avg@k.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// The evaluated set.
    pub set: String,
    /// avg@k in [0, 1].
    pub level: f64,
}

/// The variant that was written down before tuning and is run once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOut {
    /// The grid that runs it.
    pub grid: String,
    /// What is different about it.
    pub description: String,
}

/// Comparisons whose errors are counted together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// `primary`, `signatures`, `ladder`, …
    pub id: String,
    /// What it asks.
    pub question: String,
    /// In the order of the report.
    pub comparisons: Vec<Declared>,
}

/// One comparison, as declared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    /// Unique in its family.
    pub id: String,
    /// `<grid>/<arm>`.
    pub arm: String,
    /// `<grid>/<arm>`: the difference is arm − reference.
    pub reference: String,
    /// What of each run.
    pub metric: Metric,
    /// Which way the claim goes; every test is two-sided.
    pub direction: Direction,
}

/// Which way a difference is expected to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// arm > reference.
    Higher,
    /// arm < reference.
    Lower,
}

impl Direction {
    /// +1 or −1.
    pub fn sign(self) -> f64 {
        match self {
            Self::Higher => 1.0,
            Self::Lower => -1.0,
        }
    }

    /// `higher` or `lower`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }
}

/// Reads a declaration: TOML, or the JSON copy in a study folder.
///
/// # Errors
/// A file that cannot be read, is no declaration, or contradicts itself.
pub fn load(path: &Path) -> Result<Declaration, Error> {
    let invalid = |reason: String| Error::Invalid { path: path.to_path_buf(), reason };
    let text = files::read_text_up_to(path, 1 << 20)?;
    let declaration: Declaration = match path.extension().is_some_and(|it| it == "json") {
        true => serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?,
        false => toml::from_str(&text).map_err(|error| invalid(error.to_string()))?,
    };
    declaration.check().map_err(invalid)?;
    Ok(declaration)
}

impl Declaration {
    /// What is analysed where nothing was declared: each arm against the one that its grid
    /// compares it with, on one set, a family for each grid.
    pub fn undeclared(grids: &[Grid], primary_set: &str, curve_set: &str) -> Self {
        let metric = Metric::Evaluation {
            set: primary_set.to_string(),
            at: At::Last,
            statistic: Statistic::AvgAtK,
        };
        let family = |grid: &Grid| {
            let comparisons = grid.arms.iter().filter_map(|arm| {
                let reference = arm.compared_with.as_ref()?;
                Some(Declared {
                    id: arm.name.clone(),
                    arm: format!("{}/{}", grid.name, arm.name),
                    reference: format!("{}/{reference}", grid.name),
                    metric: metric.clone(),
                    direction: Direction::Higher,
                })
            });
            let comparisons: Vec<Declared> = comparisons.collect();
            let question = grid.question.clone();
            (!comparisons.is_empty()).then(|| Family {
                id: grid.name.clone(),
                question,
                comparisons,
            })
        };
        Self {
            question: "no declaration was given: every verdict is exploratory".to_string(),
            registered: false,
            seeds: Vec::new(),
            tuning_seeds: Vec::new(),
            level: 0.95,
            alpha: 0.05,
            power: 0.8,
            primary_set: primary_set.to_string(),
            curve_set: curve_set.to_string(),
            margin: 0.02,
            pilot: None,
            time_to_level: None,
            held_out: None,
            families: grids.iter().filter_map(family).collect(),
        }
    }

    /// SHA-256 of its canonical JSON: what a report says it was computed by.
    pub fn sha256(&self) -> String {
        files::sha256(files::canonical_json_line(self).as_bytes())
    }

    /// A family.
    pub fn family(&self, id: &str) -> Option<&Family> {
        self.families.iter().find(|family| family.id == id)
    }

    /// Whether the declaration agrees with itself.
    ///
    /// # Errors
    /// In words, with the key and the value.
    pub fn check(&self) -> Result<(), String> {
        let share = |key: &str, value: f64| match value > 0.0 && value < 1.0 {
            true => Ok(()),
            false => Err(format!("`{key}` must lie in (0, 1), got {value}")),
        };
        share("level", self.level)?;
        share("alpha", self.alpha)?;
        share("power", self.power)?;
        share("margin", self.margin)?;
        if self.alpha >= 0.5 {
            return Err(format!("`alpha` must be below 0.5, got {}", self.alpha));
        }
        if let Some(pilot) = &self.pilot {
            share("pilot.sigma", pilot.sigma)?;
        }
        if let Some(level) = &self.time_to_level {
            share("time_to_level.level", level.level)?;
        }
        for (key, seeds) in [("seeds", &self.seeds), ("tuning_seeds", &self.tuning_seeds)] {
            let unique: BTreeSet<&u64> = seeds.iter().collect();
            if unique.len() < seeds.len() {
                return Err(format!("`{key}` names a seed twice: {seeds:?}"));
            }
        }
        if let Some(seed) = self.seeds.iter().find(|seed| self.tuning_seeds.contains(seed)) {
            return Err(format!("seed {seed} stands in `seeds` and in `tuning_seeds`"));
        }
        if self.primary_set.is_empty() || self.curve_set.is_empty() {
            return Err("`primary_set` and `curve_set` must name a set".to_string());
        }
        let mut families = BTreeSet::new();
        for family in &self.families {
            if !families.insert(&family.id) {
                return Err(format!("family `{}` is there twice", family.id));
            }
            check_family(family)?;
        }
        Ok(())
    }
}

fn check_family(family: &Family) -> Result<(), String> {
    if family.comparisons.is_empty() {
        return Err(format!("family `{}` has no comparison", family.id));
    }
    let mut ids = BTreeSet::new();
    for declared in &family.comparisons {
        let at = format!("family `{}`, comparison `{}`", family.id, declared.id);
        if !ids.insert(&declared.id) {
            return Err(format!("{at} is there twice"));
        }
        for arm in [&declared.arm, &declared.reference] {
            check_arm(arm).map_err(|reason| format!("{at}: {reason}"))?;
        }
        if declared.arm == declared.reference {
            return Err(format!("{at} compares `{}` with itself", declared.arm));
        }
        if let Some(reason) = declared.metric.problem() {
            return Err(format!("{at}: {reason}"));
        }
    }
    Ok(())
}

/// Whether a name is `<grid>/<arm>`.
///
/// # Errors
/// In words, with the name.
pub fn check_arm(name: &str) -> Result<(), String> {
    match name.split_once('/') {
        Some((grid, arm)) if !grid.is_empty() && !arm.is_empty() && !arm.contains('/') => Ok(()),
        _ => Err(format!("`{name}` is not `<grid>/<arm>`")),
    }
}
