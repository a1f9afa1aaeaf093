//! `experiments/study.toml`: decisions before the first run. Everything else is exploratory.

use crate::base::{files, visible};
use crate::experiment::{Arm, ExperimentError, Grid, diagnose};
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
    let at = |reason| format!("{}: {reason}", path.display());
    let mut problems = declaration.problems();
    if problems.is_empty() {
        return Ok(declaration);
    }
    problems.extend(declaration.unusable());
    Err(ExperimentError::Invalid { problems: problems.into_iter().map(at).collect() }.into())
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

    pub fn pool_ids(&self) -> Vec<String> {
        self.pools.iter().map(|pool| format!("{POOLS}/{}", pool.id)).collect()
    }

    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.no_shares();
        for (key, seeds) in [("seeds", &self.seeds), ("tuning_seeds", &self.tuning_seeds)] {
            let unique: BTreeSet<&u64> = seeds.iter().collect();
            let reason = format_args!("`{key}` names a seed twice: {seeds:?}");
            problems.extend(ensure(unique.len() == seeds.len(), reason).err());
        }
        let twice = self.seeds.iter().find(|seed| self.tuning_seeds.contains(seed));
        problems
            .extend(twice.map(|it| format!("seed {it} stands in `seeds` and in `tuning_seeds`")));
        let have_names = !self.primary_set.is_empty() && !self.curve_set.is_empty();
        problems.extend(ensure(have_names, "`primary_set` and `curve_set` must name a set").err());
        for (arm, digest) in &self.arms {
            let reason = format_args!("`{arm}` has no SHA-256 in lower case: `{digest}`");
            let fault =
                check_arm(arm).and_then(|()| ensure(files::is_sha256(digest), reason)).err();
            problems.extend(fault.map(|reason| format!("arms: {reason}")));
        }
        let known = findings::names();
        for technique in self.least_doses.keys() {
            let all = known.join(", ");
            let reason = format_args!("least_doses: {technique:?} is none of: {all}");
            problems.extend(ensure(known.contains(&technique.as_str()), reason).err());
        }
        problems.extend(self.of_pools());
        let mut families: BTreeSet<&String> = BTreeSet::new();
        for family in &self.families {
            let id = &family.id;
            for other in family.after.iter().filter(|other| !families.contains(other)) {
                let before: Vec<String> = families.iter().map(|id| (*id).clone()).collect();
                let hint = hint(other, "before it stand", &before);
                problems.push(format!(
                    "family `{id}` is after `{other}`, which does not stand before it{hint}"
                ));
            }
            let is_new = families.insert(id);
            problems.extend(ensure(is_new, format_args!("family `{id}` is there twice")).err());
            problems.extend(of_family(family));
        }
        problems
    }

    /// What no new declaration may say; a kept one may be older than these rules.
    pub fn unusable(&self) -> Vec<String> {
        let Self { question, registered, seeds, level, power, pilot, .. } = self;
        let mut problems = Vec::new();
        if question.trim().is_empty() {
            problems.push("question: it is empty; state what the study asks".to_string());
        }
        if *registered && seeds.is_empty() {
            problems.push("seeds: a registered study states which seeds count".to_string());
        }
        let low = [("level", *level), ("power", *power)];
        let low = low.into_iter().filter(|(_, value)| *value > 0.0 && *value <= 0.5);
        problems.extend(low.map(|(key, value)| {
            format!("{key}: {value} is too low; state one above 0.5, such as 0.8")
        }));
        let is_unusable = |it: &&Pilot| it.runs < 2 || (it.sigma > 0.5 && it.sigma < 1.0);
        if let Some(pilot) = pilot.as_ref().filter(is_unusable) {
            problems.push(format!(
                "pilot: no score of {} runs has a standard deviation of {}: it takes two runs, and that of a share is at \
                 most 0.5",
                pilot.runs, pilot.sigma
            ));
        }
        let families = self.families.iter();
        for (family, it) in families.flat_map(|it| it.comparisons.iter().map(move |d| (it, d))) {
            let at = format!("family `{}`, comparison `{}`", family.id, it.id);
            problems.extend(it.metric.ill_defined().map(|reason| format!("{at}: {reason}")));
        }
        problems
    }

    fn no_shares(&self) -> Vec<String> {
        let own = [
            ("level", self.level, 1.0, "(0.5, 1)"),
            ("alpha", self.alpha, 0.5, "(0, 0.5)"),
            ("power", self.power, 1.0, "(0.5, 1)"),
            ("margin", self.margin, 1.0, "(0, 1)"),
        ];
        let own = own.map(|(key, value, end, range)| (key.to_string(), value, end, range));
        let sigma = self.pilot.as_ref().map(|it| ("pilot.sigma".into(), it.sigma, 1.0, "(0, 0.5]"));
        let level = self.time_to_level.as_ref();
        let level = level.map(|it| ("time_to_level.level".into(), it.level, 1.0, "(0, 1)"));
        let doses = self.least_doses.iter();
        let doses = doses.map(|(it, dose)| (format!("least_doses.{it}"), *dose, 1.0, "(0, 1)"));
        let all = own.into_iter().chain(sigma).chain(level).chain(doses);
        all.filter(|(_, value, end, _)| !(*value > 0.0 && value < end))
            .map(|(key, value, _, range)| {
                format!(
                    "`{key}` must lie in {range}, got {value}; it is a share: 2 points are 0.02"
                )
            })
            .collect()
    }

    fn of_pools(&self) -> Vec<String> {
        let (mut problems, mut ids) = (Vec::new(), BTreeSet::new());
        for pool in &self.pools {
            let at = format!("pool `{}`", pool.id);
            let is_fine = ids.insert(&pool.id) && !pool.arms.is_empty();
            let reason = format_args!("{at} is there twice, or has no arm");
            problems.extend(ensure(is_fine, reason).err());
            let reason = "pools are compared within blocks; state `paired = true`";
            problems.extend(ensure(self.paired, format_args!("{at}: {reason}")).err());
            let mut arms = BTreeSet::new();
            for arm in &pool.arms {
                let fault = check_arm(arm).err().map(|reason| format!("{at}: {reason}"));
                let is_fine = arms.insert(arm) && !arm.starts_with(POOLS);
                let reason = format_args!("{at} has `{arm}` twice, or a pool in it");
                problems.extend(fault.or_else(|| ensure(is_fine, reason).err()));
            }
        }
        let compared = self.families.iter().flat_map(|family| &family.comparisons);
        let sides = compared.flat_map(|it| [&it.arm, &it.reference]);
        let unknown: BTreeSet<&String> =
            sides.filter(|id| names_pool(id) && self.pool(id).is_none()).collect();
        let pools = self.pool_ids();
        let no_pool = |id: &String| {
            format!("there is no pool for `{id}`{}", hint(id, "the pools are", &pools))
        };
        problems.extend(unknown.into_iter().map(no_pool));
        problems
    }
}

pub fn names_pool(id: &str) -> bool {
    id.trim().split_once('/').is_some_and(|(grid, _)| grid == POOLS)
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

fn of_family(family: &DeclaredFamily) -> Vec<String> {
    let reason = format_args!("family `{}` has no comparison", family.id);
    let mut problems = Vec::from_iter(ensure(!family.comparisons.is_empty(), reason).err());
    let mut ids = BTreeSet::new();
    for declared in &family.comparisons {
        let at = format!("family `{}`, comparison `{}`", family.id, declared.id);
        let is_new = ids.insert(&declared.id);
        problems.extend(ensure(is_new, format_args!("{at} is there twice")).err());
        let Declared { arm, reference, metric, .. } = declared;
        let itself = ensure(arm != reference, format_args!("it compares `{arm}` with itself"));
        let own = [check_arm(arm), check_arm(reference), itself, metric.check()];
        let own = own.into_iter().filter_map(Result::err);
        problems.extend(own.map(|reason| format!("{at}: {reason}")));
    }
    problems
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
    fn all_faults_of_a_file_are_told_at_once() {
        let wrong = Declaration {
            level: 95.0,
            alpha: 0.7,
            power: 80.0,
            margin: 3.0,
            seeds: vec![1, 1],
            pilot: Some(Pilot { sigma: 5.7, runs: 1, of: String::new() }),
            ..Declaration::undeclared(&[], "test", "dev")
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("study.json");
        files::write_json(&path, &wrong).unwrap();
        let Err(StudyError::Experiment(ExperimentError::Invalid { problems })) = load(&path) else {
            panic!("it was taken")
        };
        let begins = [
            "`level` must lie in (0.5, 1), got 95; it is a share",
            "`alpha` must lie in (0, 0.5), got 0.7",
            "`power` must lie in (0.5, 1), got 80",
            "`margin` must lie in (0, 1), got 3",
            "`pilot.sigma` must lie in (0, 0.5], got 5.7",
            "`seeds` names a seed twice",
            "question: it is empty",
            "pilot: no score of 1 runs",
        ];
        assert_eq!(problems.len(), begins.len(), "{problems:?}");
        for (problem, begin) in problems.iter().zip(begins) {
            let problem = problem.strip_prefix(&format!("{}: ", path.display())).unwrap();
            assert!(problem.starts_with(begin), "{problem}");
        }
    }

    #[test]
    fn the_page_on_declarations_has_every_key_and_its_example_is_one() {
        let page = include_str!("../../docs/declarations.md");
        let example = page.split("```").nth(1).unwrap().strip_prefix("toml\n").unwrap();
        let mut declaration: Declaration = toml::from_str(example).unwrap();
        assert_eq!(declaration.problems(), Vec::<String>::new());
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
