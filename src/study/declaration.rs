//! `experiments/study.toml`: decisions before the first run. Everything else is exploratory.

use crate::base::{files, visible};
use crate::experiment::{Arm, Grid, diagnose};
use crate::study::cell::check::is_digest;
use crate::study::cell::numbers::ensure;
use crate::study::effect_checks::findings;
use crate::study::{Metric, StudyError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    pub question: String,
    /// Written before the first run. Otherwise every verdict is exploratory.
    pub registered: bool,
    /// Empty: the seeds of each grid. Cells of other seeds do not count.
    pub seeds: Vec<u64>,
    /// The benchmark was tuned on these seeds: their cells never count.
    pub tuning_seeds: Vec<u64>,
    pub level: f64,
    /// Error rate of each family (Holm).
    pub alpha: f64,
    /// Power of the minimum detectable effect.
    pub power: f64,
    pub primary_set: String,
    /// Evaluated during training: curves, scores at equal generated rollouts.
    pub curve_set: String,
    /// δ, a share of avg@k: two arms closer than this count as the same.
    pub margin: f64,
    /// Runs of one seed are a block: same base policy and order of problems. Comparisons use differences within blocks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paired: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Pool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pilot: Option<Pilot>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_to_level: Option<Level>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_out: Option<HeldOut>,
    /// `<grid>/<arm>` → SHA-256 of the arm, as `dapo ablate --dry-run` prints it: runs of another
    /// arm with this name do not count. Empty: only names are declared.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arms: BTreeMap<String, String>,
    /// Technique → the least share of what it could act on (tokens, groups, loss weight, rollouts) on which it must act:
    /// below it nothing follows from a comparison of arms with and without it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub least_doses: BTreeMap<String, f64>,
    #[serde(default)]
    pub families: Vec<DeclaredFamily>,
}

/// A comparison takes these arms together, as `pools/<id>`: each block's mean. For main effects of a factorial design.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    pub id: String,
    pub label: String,
    pub arms: Vec<String>,
}

const POOLS: &str = "pools";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pilot {
    /// Standard deviation of the primary score over runs, a share.
    pub sigma: f64,
    pub runs: u64,
    pub of: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    pub set: String,
    /// avg@k in [0, 1].
    pub level: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOut {
    pub grid: String,
    pub description: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeclaredFamily {
    /// `primary`, `signatures`, `ladder`, …
    pub id: String,
    pub question: String,
    /// These families must be shown entirely before a comparison of this family counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    pub comparisons: Vec<Declared>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    pub id: String,
    /// `<grid>/<arm>`.
    pub arm: String,
    /// `<grid>/<arm>`: the difference is arm − reference.
    pub reference: String,
    pub metric: Metric,
    /// Direction of the claim; every test is two-sided.
    pub direction: Direction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    Higher,
    Lower,
}

impl Direction {
    pub fn words(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }
}

/// `STUDY/declared.json`: what was so when `dapo ablate` put the declaration into the study. Studies from before there
/// was this file have none, and whoever holds the folder can change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    pub declaration_sha256: String,
    /// Records that lay in the study already: nothing shows that the declaration is the older one.
    pub records_before: u64,
    /// The commit that has the file of the declaration as it was; `None`: no commit had it.
    pub commit: Option<String>,
    /// Why a commit does not show what was run, one reason each; a registered study goes on with `--dirty`.
    pub uncommitted: Vec<String>,
}

impl Placement {
    pub const FILE: &str = "declared.json";

    pub fn read(study: &Path) -> Result<Option<Self>, StudyError> {
        let path = files::foreign::inside(study, Self::FILE)?;
        Ok(files::optional(files::read_json(&path))?)
    }

    pub fn write(&self, study: &Path) -> Result<(), StudyError> {
        Ok(files::write_json(&study.join(Self::FILE), self)?)
    }
}

pub fn load(path: &Path) -> Result<Declaration, StudyError> {
    let invalid = |reason: String| StudyError::invalid(path, reason);
    let is_json = path.extension().is_some_and(|it| it.eq_ignore_ascii_case("json"));
    let declaration: Declaration = if is_json {
        files::read_json(path)?
    } else {
        let text = files::read_text_up_to(path, 1 << 20)?;
        toml::from_str(&text).map_err(|error: toml::de::Error| {
            let reason = |table: &toml::Table| {
                let error = table.clone().try_into::<Declaration>().err()?;
                Some(error.message().to_string())
            };
            let table = text.parse::<toml::Table>().unwrap_or_default();
            if let Some(missing) = diagnose::missing(&table, reason) {
                return invalid(missing);
            }
            invalid(files::foreign::without_text(&text, error.message(), error.span()))
        })?
    };
    declaration.check().map_err(invalid)?;
    Ok(declaration)
}

impl Declaration {
    /// Without a declaration each grid is a family, and one set is used.
    pub fn undeclared(grids: &[Grid], primary_set: &str, curve_set: &str) -> Self {
        let family = |grid: &Grid| {
            let comparisons = rows(grid, primary_set);
            (!comparisons.is_empty()).then(|| DeclaredFamily {
                id: grid.name.clone(),
                question: grid.question.clone(),
                after: Vec::new(),
                comparisons,
            })
        };
        let questions: Vec<&str> = grids.iter().map(|grid| grid.question.as_str()).collect();
        Self {
            question: questions.join(" "),
            level: 0.95,
            alpha: 0.05,
            power: 0.8,
            primary_set: primary_set.to_string(),
            curve_set: curve_set.to_string(),
            margin: 0.02,
            families: grids.iter().filter_map(family).collect(),
            ..Self::default()
        }
    }

    pub fn sha256(&self) -> String {
        files::sha256(files::canonical_json_line(self).as_bytes())
    }

    pub fn refuses(&self, id: &str, arm_sha256: &str) -> Option<String> {
        let declared = self.arms.get(id).filter(|declared| *declared != arm_sha256)?;
        Some(format!("`{id}` is the arm {arm_sha256}; the declaration names {declared}"))
    }

    pub fn declared_arms(&self) -> BTreeSet<&str> {
        let compared = self.families.iter().flat_map(|family| &family.comparisons);
        let compared = compared.flat_map(|it| [&it.arm, &it.reference]);
        let pooled = self.pools.iter().flat_map(|pool| &pool.arms);
        let all = compared.chain(pooled).chain(self.arms.keys()).map(String::as_str);
        all.filter(|id| self.pool(id).is_none()).collect()
    }

    pub fn pool(&self, id: &str) -> Option<&Pool> {
        let pool = id.strip_prefix(POOLS)?.strip_prefix('/')?;
        self.pools.iter().find(|it| it.id == pool)
    }

    /// The arms of a side of a comparison: itself, or those of its pool.
    pub fn arms_of<'a>(&'a self, side: &'a str) -> Vec<&'a str> {
        match self.pool(side) {
            Some(pool) => pool.arms.iter().map(String::as_str).collect(),
            None => vec![side],
        }
    }

    pub fn repeated_arm<'a>(
        &'a self,
        declared: &'a Declared,
        arm: impl Fn(&str) -> Option<&'a Arm>,
    ) -> Option<String> {
        let mut seen = BTreeMap::new();
        let ids = [&declared.arm, &declared.reference].map(|side| self.arms_of(side));
        ids.into_iter().flatten().find_map(|id| {
            let first = seen.insert(&arm(id)?.arm_sha256, id)?;
            let text = format!(
                "it has one arm twice, as `{first}` and as `{id}`: each may stand on one side, once"
            );
            Some(visible::message(&text))
        })
    }

    /// Names of grids that arms or the held-out task belong to.
    pub fn declared_grids(&self) -> BTreeSet<&str> {
        let arms = self.declared_arms().into_iter();
        let of_arms = arms.filter_map(|id| Some(id.split_once('/')?.0));
        of_arms.chain(self.held_out.iter().map(|held_out| held_out.grid.as_str())).collect()
    }

    /// Whether cells of a seed can count.
    pub fn counts(&self, seed: u64) -> bool {
        let is_declared = self.seeds.is_empty() || self.seeds.contains(&seed);
        is_declared && !self.tuning_seeds.contains(&seed)
    }

    pub fn family(&self, id: &str) -> Option<&DeclaredFamily> {
        self.families.iter().find(|family| family.id == id)
    }

    pub fn check(&self) -> Result<(), String> {
        let share = |key: &str, value: f64| {
            let reason = format_args!("`{key}` must lie in (0, 1), got {value}");
            ensure(value > 0.0 && value < 1.0, reason)
        };
        share("level", self.level)?;
        share("alpha", self.alpha)?;
        share("power", self.power)?;
        share("margin", self.margin)?;
        let alpha = self.alpha;
        ensure(alpha < 0.5, format_args!("`alpha` must be below 0.5, got {alpha}"))?;
        if let Some(pilot) = &self.pilot {
            share("pilot.sigma", pilot.sigma)?;
        }
        if let Some(level) = &self.time_to_level {
            share("time_to_level.level", level.level)?;
        }
        for (key, seeds) in [("seeds", &self.seeds), ("tuning_seeds", &self.tuning_seeds)] {
            let unique: BTreeSet<&u64> = seeds.iter().collect();
            let reason = format_args!("`{key}` names a seed twice: {seeds:?}");
            ensure(unique.len() == seeds.len(), reason)?;
        }
        if let Some(seed) = self.seeds.iter().find(|seed| self.tuning_seeds.contains(seed)) {
            return Err(format!("seed {seed} stands in `seeds` and in `tuning_seeds`"));
        }
        let have_names = !self.primary_set.is_empty() && !self.curve_set.is_empty();
        ensure(have_names, "`primary_set` and `curve_set` must name a set")?;
        for (arm, digest) in &self.arms {
            check_arm(arm).map_err(|reason| format!("arms: {reason}"))?;
            let reason = format_args!("arms: `{arm}` has no SHA-256 in lower case: `{digest}`");
            ensure(is_digest(digest), reason)?;
        }
        for (technique, dose) in &self.least_doses {
            let known = findings::names();
            let all = known.join(", ");
            let reason = format_args!("least_doses: {technique:?} is none of: {all}");
            ensure(known.contains(&technique.as_str()), reason)?;
            share(&format!("least_doses.{technique}"), *dose)?;
        }
        self.check_pools()?;
        let mut families: BTreeSet<&String> = BTreeSet::new();
        for family in &self.families {
            if let Some(other) = family.after.iter().find(|other| !families.contains(other)) {
                let id = &family.id;
                let before: Vec<String> = families.iter().map(|id| (*id).clone()).collect();
                let hint = hint(other, "before it stand", &before);
                return Err(format!(
                    "family `{id}` is after `{other}`, which does not stand before it{hint}"
                ));
            }
            let is_new = families.insert(&family.id);
            ensure(is_new, format_args!("family `{}` is there twice", family.id))?;
            check_family(family)?;
        }
        Ok(())
    }

    fn check_pools(&self) -> Result<(), String> {
        let mut ids = BTreeSet::new();
        for pool in &self.pools {
            let at = format!("pool `{}`", pool.id);
            let is_fine = ids.insert(&pool.id) && !pool.arms.is_empty();
            ensure(is_fine, format_args!("{at} is there twice, or has no arm"))?;
            let reason = "pools are compared within blocks; state `paired = true`";
            ensure(self.paired, format_args!("{at}: {reason}"))?;
            let mut arms = BTreeSet::new();
            for arm in &pool.arms {
                check_arm(arm).map_err(|reason| format!("{at}: {reason}"))?;
                let is_fine = arms.insert(arm) && !arm.starts_with(POOLS);
                ensure(is_fine, format_args!("{at} has `{arm}` twice, or a pool in it"))?;
            }
        }
        let compared = self.families.iter().flat_map(|family| &family.comparisons);
        let mut sides = compared.flat_map(|it| [&it.arm, &it.reference]);
        let is_pool = |id: &str| id.split_once('/').is_some_and(|(grid, _)| grid == POOLS);
        let Some(id) = sides.find(|id| is_pool(id) && self.pool(id).is_none()) else {
            return Ok(());
        };
        let pools: Vec<String> =
            self.pools.iter().map(|pool| format!("{POOLS}/{}", pool.id)).collect();
        Err(format!("there is no pool for `{id}`{}", hint(id, "the pools are", &pools)))
    }
}

fn hint(wrong: &str, intro: &str, names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    format!("; {}", diagnose::known(wrong, intro, names))
}

/// Each arm against the one that its grid compares it with, by avg@k at the last evaluation.
pub fn rows(grid: &Grid, set: &str) -> Vec<Declared> {
    let row = |arm: &Arm| {
        let id = |name: &str| format!("{}/{name}", grid.name);
        Some(Declared {
            id: arm.name.clone(),
            arm: id(&arm.name),
            reference: id(arm.compared_with.as_ref()?),
            metric: Metric::last_score(set),
            direction: Direction::Higher,
        })
    };
    grid.arms.iter().filter_map(row).collect()
}

fn check_family(family: &DeclaredFamily) -> Result<(), String> {
    let reason = format_args!("family `{}` has no comparison", family.id);
    ensure(!family.comparisons.is_empty(), reason)?;
    let mut ids = BTreeSet::new();
    for declared in &family.comparisons {
        let at = format!("family `{}`, comparison `{}`", family.id, declared.id);
        ensure(ids.insert(&declared.id), format_args!("{at} is there twice"))?;
        for arm in [&declared.arm, &declared.reference] {
            check_arm(arm).map_err(|reason| format!("{at}: {reason}"))?;
        }
        let reason = format_args!("{at} compares `{}` with itself", declared.arm);
        ensure(declared.arm != declared.reference, reason)?;
        declared.metric.check().map_err(|reason| format!("{at}: {reason}"))?;
    }
    Ok(())
}

pub fn check_arm(name: &str) -> Result<(), String> {
    match name.split_once('/') {
        Some((grid, arm)) if !grid.is_empty() && !arm.is_empty() && !arm.contains('/') => Ok(()),
        _ => Err(format!("`{name}` is not `<grid>/<arm>`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn the_page_on_declarations_has_every_key_and_its_example_is_one() {
        let page = include_str!("../../docs/declarations.md");
        let example = page.split("```").nth(1).unwrap().strip_prefix("toml\n").unwrap();
        let mut declaration: Declaration = toml::from_str(example).unwrap();
        declaration.check().unwrap();
        let text = String::new;
        declaration.paired = true;
        declaration.pools = vec![Pool { id: text(), label: text(), arms: vec![text()] }];
        declaration.pilot = Some(Pilot { sigma: 0.1, runs: 2, of: text() });
        declaration.time_to_level = Some(Level { set: text(), level: 0.5 });
        declaration.held_out = Some(HeldOut { grid: text(), description: text() });
        declaration.arms = [(text(), text())].into();
        declaration.least_doses = [(text(), 0.1)].into();
        declaration.families[0].after = vec![text()];
        let Value::Object(keys) = serde_json::to_value(&declaration).unwrap() else { panic!() };
        let family = serde_json::to_value(&declaration.families[0]).unwrap();
        let comparison = family["comparisons"][0].as_object().unwrap().keys();
        for key in keys.keys().chain(family.as_object().unwrap().keys()).chain(comparison) {
            let is_there = page.contains(&format!("`{key}`")) || page.contains(&format!("[{key}]"));
            assert!(is_there || page.contains(&format!("`{key} = ")), "{key}");
        }
        for technique in findings::names() {
            assert!(page.contains(&format!("`{technique}`")), "{technique}");
        }
        let unknown = serde_json::from_value::<Metric>(serde_json::json!({"source": "?"}));
        let names = unknown.unwrap_err().to_string();
        let sources: Vec<&str> = names.split('`').skip(3).step_by(2).collect();
        assert_eq!(sources.len(), 7, "{names}");
        assert!(sources.iter().all(|source| page.contains(&format!("| `{source}` |"))));
    }
}
