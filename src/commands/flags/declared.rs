//! A declaration against the grids that it is about. What it misspells would be found only by the report, after all
//! runs: it is refused before the first one.

use crate::base::files;
use crate::experiment::grid::file;
use crate::experiment::{Arm, Grid, diagnose, extends};
use crate::records::metrics::{self, DeterminedBy};
use crate::report::text;
use crate::study::claims::names;
use crate::study::effect_checks::findings;
use crate::study::{Declaration, Declared, Metric, MetricWindow, Reduce, Statistic, collection};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Windows of longer runs have a step.
const MOST_STEPS: u64 = 100_000;

/// Grids that are not run now, and that the declaration may name: those that the study keeps, and of the declared
/// names those that lie beside the files of the grids or are shipped.
pub fn other_grids(
    study: &Path,
    declaration: &Declaration,
    run: &[Grid],
    grid_files: &[PathBuf],
) -> Vec<Grid> {
    // `ablate` replaces a grid that cannot be read.
    let mut others = collection::grids(study).unwrap_or_default();
    others.retain(|kept| run.iter().all(|grid| grid.name != kept.name));
    for name in declaration.declared_grids() {
        if !run.iter().chain(&others).any(|grid| grid.name == name) {
            others.extend(beside(grid_files, name).or_else(|| shipped(name)));
        }
    }
    others
}

fn beside(grid_files: &[PathBuf], name: &str) -> Option<Grid> {
    let folders: BTreeSet<&Path> = grid_files.iter().filter_map(|file| file.parent()).collect();
    let is_named = |path: &PathBuf| {
        let table = extends::read_table(path).ok();
        table.is_some_and(|table| table.get("name").and_then(toml::Value::as_str) == Some(name))
    };
    let mut named = folders.into_iter().flat_map(toml_files).filter(is_named);
    named.find_map(|path| Some(file::load(&path).ok()?.grid))
}

fn toml_files(folder: &Path) -> Vec<PathBuf> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let names = files::list(folder).unwrap_or_default().into_iter();
    names.filter(|name| name.ends_with(".toml")).map(|name| folder.join(name)).collect()
}

fn shipped(name: &str) -> Option<Grid> {
    let grid = file::load(&file::find(name).ok()?).ok()?.grid;
    Some(grid).filter(|grid| grid.name == name)
}

/// What no run of these grids could answer, a line each.
#[derive(Debug)]
pub struct Problems {
    pub of_declaration: Vec<String>,
    pub of_command: Vec<String>,
    pub notes: Vec<String>,
}

pub fn problems(declaration: &Declaration, run: &[Grid], others: &[Grid]) -> Problems {
    let plan = Plan { declaration, run, others };
    let unknown = plan.unknown_arms();
    let is_resolved = unknown.is_empty();
    let mut problems = declaration.unusable();
    problems.extend(unknown);
    problems.extend(plan.held_out());
    problems.extend(plan.sets());
    let (within, notes) = plan.same_comparisons();
    problems.extend(within);
    let families = declaration.families.iter();
    for (family, declared) in families.flat_map(|it| it.comparisons.iter().map(move |d| (it, d))) {
        let at = format!("family `{}`, comparison `{}`", family.id, declared.id);
        problems.extend(plan.comparison(declared).into_iter().map(|it| format!("{at}: {it}")));
    }
    // Of arms that were not found, nothing is known.
    if is_resolved {
        problems.extend(plan.undeclared_grids());
        problems.extend(plan.doses());
    }
    Problems { of_declaration: problems, of_command: plan.seeds(), notes }
}

#[derive(Clone, Copy)]
struct Plan<'a> {
    declaration: &'a Declaration,
    run: &'a [Grid],
    others: &'a [Grid],
}

impl<'a> Plan<'a> {
    fn grids(self) -> impl Iterator<Item = &'a Grid> {
        self.run.iter().chain(self.others)
    }

    fn grid(self, name: &str) -> Option<&'a Grid> {
        self.grids().find(|grid| grid.name == name)
    }

    fn arm(self, id: &str) -> Option<&'a Arm> {
        let (grid, arm) = id.split_once('/')?;
        self.grid(grid)?.arm(arm)
    }

    /// A grid that is not there is named once.
    fn unknown_arms(self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut without_grid: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for id in self.declaration.declared_arms() {
            let Some((grid_name, arm)) = id.split_once('/') else { continue };
            let Some(grid) = self.grid(grid_name) else {
                without_grid.entry(grid_name).or_default().push(format!("`{id}`"));
                continue;
            };
            if grid.arm(arm).is_none() {
                let names: Vec<String> = grid.arms.iter().map(|arm| arm.name.clone()).collect();
                let known = diagnose::known(arm, "its arms are", &names);
                problems.push(format!("`{id}`: the grid {grid_name} has no arm {arm:?}; {known}"));
            }
        }
        problems.extend(
            without_grid
                .into_iter()
                .map(|(grid, arms)| format!("{}: {}", text::listed(arms), self.no_grid(grid))),
        );
        problems
    }

    fn no_grid(self, name: &str) -> String {
        let names: Vec<String> = self.grids().map(|grid| grid.name.clone()).collect();
        let known = diagnose::known(name, "the grids are", &names);
        format!(
            "there is no grid {name:?} (correct the name, or name the grid's file in the same command); {known}"
        )
    }

    fn held_out(self) -> Option<String> {
        let name = &self.declaration.held_out.as_ref()?.grid;
        self.grid(name).is_none().then(|| format!("held_out.grid: {}", self.no_grid(name)))
    }

    fn seeds(self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut told = BTreeSet::new();
        for grid in self.run {
            let uncounted = |seed: &&u64| !self.declaration.counts(**seed) && told.insert(**seed);
            let (tuning, undeclared): (Vec<u64>, Vec<u64>) = grid
                .seeds
                .iter()
                .filter(uncounted)
                .partition(|seed| self.declaration.tuning_seeds.contains(seed));
            let at = format!("seeds of the grid {}", grid.name);
            if !tuning.is_empty() {
                let tuning = text::joined(tuning, ", ");
                problems.push(format!(
                    "{at}: {tuning} stand in `tuning_seeds`, so that their cells never count; state `seeds`, or run \
                     other ones with --seeds"
                ));
            }
            if !undeclared.is_empty() {
                let [undeclared, declared] =
                    [&undeclared, &self.declaration.seeds].map(|seeds| text::joined(seeds, ", "));
                problems.push(format!(
                    "{at}: {undeclared} do not stand in `seeds`, so that their cells never count; run the declared \
                     ones: {declared}"
                ));
            }
        }
        problems
    }

    fn sets(self) -> Vec<String> {
        let declaration = self.declaration;
        let level = declaration.time_to_level.as_ref().map(|level| &level.set);
        let stated =
            [("primary_set", &declaration.primary_set), ("curve_set", &declaration.curve_set)];
        let stated = stated.into_iter().chain(level.map(|set| ("time_to_level.set", set)));
        let arms = self.grids().flat_map(|grid| &grid.arms);
        let sets: BTreeSet<String> = arms.flat_map(|arm| arm.experiment.set_names()).collect();
        let sets = Vec::from_iter(sets);
        let unknown = stated.filter(|(_, set)| !sets.contains(set)).map(|(key, set)| {
            let known = diagnose::known(set, "they evaluate", &sets);
            format!("{key}: no arm of the grids evaluates a set {set:?}; {known}")
        });
        unknown.collect()
    }

    fn comparison(self, declared: &Declared) -> Vec<String> {
        let sides = [&declared.arm, &declared.reference];
        let ids = sides.into_iter().flat_map(|side| self.declaration.arms_of(side));
        let arms: Vec<(&str, &Arm)> = ids.filter_map(|id| Some((id, self.arm(id)?))).collect();
        let metric = &declared.metric;
        let sets = metric.sets().iter().filter_map(|set| names::unevaluated(metric, set, &arms));
        let names = names::of_metric(metric).into_iter();
        let names = names.filter_map(|name| unrecorded(name, &arms));
        let windows = windows(metric).into_iter();
        let windows = windows.filter_map(|(window, least)| too_short(window, least, &arms));
        let repeated = self.declaration.repeated_arm(declared, |id| self.arm(id));
        let ill = repeated.into_iter().chain(unkept(metric, &arms));
        ill.chain(sets).chain(names).chain(windows).collect()
    }

    fn same_comparisons(self) -> (Vec<String>, Vec<String>) {
        let mut known: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
        for family in &self.declaration.families {
            for declared in &family.comparisons {
                let same = known.entry(self.hypothesis(declared)).or_default();
                same.push((&family.id, &declared.id));
            }
        }
        let pairs = known.values().flat_map(|all| all.iter().zip(&all[1..]));
        let within = pairs.filter(|(one, other)| one.0 == other.0);
        let within = within.map(|((family, one), (_, other))| {
            format!(
                "family `{family}`: the comparisons `{one}` and `{other}` are of the same arms and metric, and every test \
                 is two-sided; take one of them out"
            )
        });
        let several = known.values().filter(|all| all.iter().any(|it| it.0 != all[0].0));
        let across = several.map(|all| {
            let names = text::listed(all.iter().map(|(family, id)| format!("`{family}/{id}`")));
            format!("{names} are one comparison, with a p of its own in each family")
        });
        (within.collect(), across.collect())
    }

    fn hypothesis(self, declared: &Declared) -> String {
        let digest = |id| self.arm(id).map_or(id, |arm| arm.arm_sha256.as_str());
        let mut sides = [&declared.arm, &declared.reference]
            .map(|side| self.declaration.arms_of(side).into_iter().map(digest).collect::<Vec<_>>());
        sides.iter_mut().for_each(|arms| arms.sort_unstable());
        sides.sort_unstable();
        let mut metric = declared.metric.clone();
        match &mut metric {
            Metric::MeanOfSets { sets, .. } => sets.sort_unstable(),
            Metric::Correlation { x, y, .. } => {
                let mut both = [std::mem::take(x), std::mem::take(y)];
                both.sort_unstable();
                [*x, *y] = both;
            }
            _ => {}
        }
        files::canonical_json_line(&(sides, metric))
    }

    /// Another grid than the declared ones was named.
    fn undeclared_grids(self) -> Option<String> {
        let declared = self.declaration.declared_grids();
        let is_declared = |grid: &Grid| declared.contains(grid.name.as_str());
        if declared.is_empty() || self.run.iter().any(is_declared) {
            return None;
        }
        let run = text::listed(self.run.iter().map(|grid| &grid.name));
        Some(format!(
            "it is not about the grids of this command ({run}): it names arms of {}",
            text::listed(declared)
        ))
    }

    fn doses(self) -> Vec<String> {
        let compared = self.declaration.families.iter().flat_map(|family| &family.comparisons);
        let sides = compared.flat_map(|it| [&it.arm, &it.reference]);
        let arms = sides.flat_map(|side| self.declaration.arms_of(side));
        let arms: Vec<&Arm> = arms.filter_map(|id| self.arm(id)).collect();
        let switches = arms.iter().flat_map(|arm| findings::switches(&arm.experiment));
        let on: BTreeSet<&str> =
            switches.filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect();
        let techniques = self.declaration.least_doses.keys();
        let off = techniques.filter(|technique| !on.contains(technique.as_str()));
        off.map(|technique| {
            format!(
                "least_doses: no compared arm switches {technique:?} on, so that this dose is never asked for; take it \
                 out, or compare an arm that has the technique"
            )
        })
        .collect()
    }
}

fn unkept(metric: &Metric, arms: &[(&str, &Arm)]) -> Option<String> {
    let is_kept = |arm: &Arm| arm.experiment.record_format() >= 4;
    let (id, _) = arms.iter().find(|(_, arm)| !is_kept(arm))?;
    (metric.statistic() == Some(Statistic::RewardMean)).then(|| {
        format!(
            "`{id}` keeps no rewards of evaluations: state records.format = 4, or compare avg-at-k"
        )
    })
}

fn unrecorded(name: &str, arms: &[(&str, &Arm)]) -> Option<String> {
    let Some(metric) = metrics::of(name) else { return names::unknown_metric(name, arms) };
    let mut own = arms.iter().filter(|(_, arm)| arm.experiment.engine.is_native());
    own.find(|(_, arm)| {
        metric.of == DeterminedBy::Engine || !metric.is_recorded_by(&arm.experiment)
    })
    .map(|(id, _)| format!("`{id}` does not record {name}: {}", metric.meaning))
}

/// With the fewest rollout steps of which each has a value.
fn windows(metric: &Metric) -> Vec<(MetricWindow, usize)> {
    match metric {
        Metric::Metric { window, reduce: Reduce::Slope, .. } => vec![(*window, 2)],
        Metric::Metric { window, .. } => vec![(*window, 1)],
        Metric::Contrast { early, late, .. } => vec![(*early, 1), (*late, 1)],
        Metric::Correlation { window, .. } => vec![(*window, 3)],
        _ => Vec::new(),
    }
}

fn too_short(window: MetricWindow, least: usize, arms: &[(&str, &Arm)]) -> Option<String> {
    arms.iter().find_map(|(id, arm)| {
        let all = arm.experiment.training.rollout_steps;
        let steps = window.values(&vec![Some(0.0); all.min(MOST_STEPS) as usize]).len();
        (steps < least).then(|| {
            format!(
                "the window ({}) has {steps} of the {all} rollout steps of `{id}`, and this metric needs {least}; make it wider",
                window.words()
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::declaration::{self, Pilot, Pool};

    fn committed() -> (Declaration, Vec<Grid>) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/study.toml");
        let declaration = declaration::load(&file).unwrap();
        let mut run = vec![shipped("ladder").unwrap()];
        run[0].seeds = declaration.seeds.clone();
        (declaration, run)
    }

    fn checked(declaration: &Declaration, run: &[Grid]) -> Problems {
        problems(declaration, run, &other_grids(Path::new("nowhere"), declaration, run, &[]))
    }

    fn told(change: impl FnOnce(&mut Declaration)) -> String {
        let (mut declaration, run) = committed();
        change(&mut declaration);
        checked(&declaration, &run).of_declaration.join("\n")
    }

    #[test]
    fn the_committed_declaration_has_no_problem_and_names_what_several_families_ask() {
        let (declaration, mut run) = committed();
        let Problems { of_declaration, of_command, notes } = checked(&declaration, &run);
        assert_eq!((of_declaration.len(), of_command.len()), (0, 0), "{of_declaration:?}");
        let several = "`ladder/dynamic-sampling` and `leave-one-out/dynamic-sampling`";
        assert!(notes.iter().any(|it| it.starts_with(several)), "{notes:?}");
        run[0].seeds.push(7);
        let Problems { of_declaration, of_command, .. } = checked(&declaration, &run);
        assert_eq!((of_declaration.len(), of_command.len()), (0, 1), "{of_command:?}");
    }

    #[test]
    fn values_that_no_study_can_mean_are_problems_of_the_declaration() {
        let window = |from_share, to_share| MetricWindow { from_share, to_share };
        let metric = |metric: Metric| {
            move |it: &mut Declaration| it.families[0].comparisons[0].metric = metric
        };
        let name = || "policy/entropy".to_string();
        let contrast = |early, late| metric(Metric::Contrast { name: name(), early, late });
        assert!(told(|it| it.seeds.clear()).starts_with("seeds: a registered study"));
        assert!(told(|it| it.question = " ".to_string()).starts_with("question: it is empty"));
        assert!(told(|it| it.level = 0.5).starts_with("level: 0.5 is too low"));
        assert!(told(|it| it.power = 0.01).starts_with("power: 0.01 is too low"));
        let pilot = |sigma, runs| Some(Pilot { sigma, runs, of: name() });
        assert!(told(|it| it.pilot = pilot(0.04, 1)).starts_with("pilot: "));
        assert!(told(|it| it.pilot = pilot(0.9, 8)).starts_with("pilot: "));
        assert_eq!(told(|it| it.pilot = pilot(0.5, 2)), "");
        let (first, last) = (window(0.0, 0.5), window(0.5, 1.0));
        assert_eq!(told(contrast(first, last)), "");
        assert!(told(contrast(last, first)).contains("does not end before"));
        assert!(told(contrast(first, window(0.4, 1.0))).contains("does not end before"));
        let itself = Metric::Correlation { x: name(), y: name(), window: first };
        assert!(told(metric(itself)).contains("with itself"));
    }

    #[test]
    fn arms_are_told_apart_by_their_identities_and_not_by_their_names() {
        let compare = |arm: &'static str, reference: &'static str| {
            move |it: &mut Declaration| {
                let pool = |id: &str, arms: [&str; 2]| Pool {
                    id: id.to_string(),
                    label: id.to_string(),
                    arms: arms.map(str::to_string).to_vec(),
                };
                it.pools = vec![
                    pool("one", ["ladder/grpo", "ladder/clip-higher"]),
                    pool("other", ["add-one/grpo", "ladder/token-level-loss"]),
                    pool("twice", ["add-one/grpo", "ladder/grpo"]),
                ];
                let one = &mut it.families[0].comparisons[0];
                (one.arm, one.reference) = (arm.to_string(), reference.to_string());
            }
        };
        for (arm, reference) in [
            ("ladder/grpo", "add-one/grpo"),
            ("pools/one", "add-one/grpo"),
            ("pools/one", "pools/other"),
            ("ladder/clip-higher", "pools/twice"),
        ] {
            let told = told(compare(arm, reference));
            assert!(told.contains("it has one arm twice, as `"), "{arm}, {reference}: {told}");
        }
        let told = told(|it| {
            compare("ladder/clip-higher", "ladder/grpo")(it);
            let mut same = it.families[0].comparisons[0].clone();
            (same.id, same.direction) = ("again".to_string(), declaration::Direction::Lower);
            (same.arm, same.reference) = ("add-one/grpo".to_string(), same.arm);
            it.families[0].comparisons.push(same);
        });
        assert!(told.contains("` and `again` are of the same arms and metric"), "{told}");
    }
}
