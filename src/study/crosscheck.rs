//! Checks records against each other: a consistent record may still be a copy, or have scores that the common base
//! policy does not have. Such records do not count; the reason names the broken rule.
//! - No two runs have the same ledger head: all records that share one are excluded.
//! - No two runs of different seeds have the same outcomes in all evaluations of trained policies: all such records are
//!   excluded, because a copy cannot be told from its original. Problems solved in all samples or in none carry no
//!   information; the coincidence of the others must be less probable than e^−[`INFORMATION`], with each problem's own
//!   accuracy as its chance.
//! - No two runs of different seeds share most of their gradient norms.
//! - Evaluations at rollout step 0 are equal bit for bit in cells of one seed, base policy and set (under fast
//!   arithmetic: also of one machine and build), because their draws have the same keys. Those that differ from a
//!   majority are excluded; without a majority all are.

use crate::base::files;
use crate::numerics::Numerics;
use crate::records::environment::CHANGES_NO_BIT;
use crate::records::{run_folder, run_folder::is_portable};
use crate::study::{Cell, CellEvaluation, CellOutcomes};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// In nats; equal outcomes of different seeds are an accident with probability 10⁻¹³ at most.
pub const INFORMATION: f64 = 30.0;

const GRADIENT_NORM: &str = "optimizer/gradient_norm_mean";

/// Fewer equal norms may be an accident of rounding in records.
const LEAST_NORMS: usize = 5;

/// Index of a cell → why it cannot count. `candidates` are the cells that would count otherwise.
pub fn suspects(cells: &[Cell], candidates: &BTreeSet<usize>) -> BTreeMap<usize, String> {
    let mut suspects = Suspects { cells, reasons: BTreeMap::new() };
    let all: Vec<usize> = candidates.iter().copied().collect();
    suspects.shared_heads(&all);
    suspects.copied_outcomes(&all);
    suspects.copied_gradients(&all);
    for bases in suspects.base_evaluations(&all).into_values() {
        suspects.unequal(&bases);
    }
    suspects.reasons
}

type Bases<'a> = Vec<(usize, &'a CellEvaluation)>;

struct Suspects<'a> {
    cells: &'a [Cell],
    reasons: BTreeMap<usize, String>,
}

impl<'a> Suspects<'a> {
    fn exclude(&mut self, index: usize, reason: String) {
        self.reasons.entry(index).or_insert(reason);
    }

    fn seed(&self, index: usize) -> u64 {
        self.cells[index].seed
    }

    fn exclude_all(&mut self, group: &[usize], reason: &dyn Fn(&str) -> String) {
        for index in group {
            let others = group.iter().filter(|other| *other != index);
            let names: Vec<String> = others.map(|it| self.cells[*it].file_name()).collect();
            self.exclude(*index, reason(&shortened(&names)));
        }
    }

    fn shared_heads(&mut self, all: &[usize]) {
        let mut heads: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for index in all {
            if let Some(head) = self.cells[*index].ledger_head.as_deref() {
                heads.entry(head).or_default().push(*index);
            }
        }
        for group in heads.into_values().filter(|group| group.len() > 1) {
            self.exclude_all(&group, &|others| {
                format!("its ledger head is also that of {others}: no two runs have the same")
            });
        }
    }

    fn copied_outcomes(&mut self, all: &[usize]) {
        let mut groups: BTreeMap<CellOutcomes, Vec<usize>> = BTreeMap::new();
        for index in all {
            let cell = &self.cells[*index];
            let surprise: f64 =
                cell.evaluations.iter().filter(|it| is_trained(it)).map(surprise).sum();
            if surprise >= INFORMATION {
                groups.entry(cell.outcomes(is_trained)).or_default().push(*index);
            }
        }
        for group in groups.into_values() {
            let seeds: BTreeSet<u64> = group.iter().map(|index| self.seed(*index)).collect();
            if seeds.len() > 1 {
                self.exclude_all(&group, &|others| {
                    format!(
                        "every outcome of its trained policies is also that of {others}, of other \
                         seeds: copies, of which none can be told from the original"
                    )
                });
            }
        }
    }

    fn copied_gradients(&mut self, all: &[usize]) {
        let norms = |index: usize| {
            let values = self.cells[index].metric(GRADIENT_NORM).unwrap_or_default();
            let steps = values.iter().enumerate();
            steps.filter_map(|(step, value)| Some((step, value.filter(|it| *it > 0.0)?.to_bits())))
        };
        let mut holders: BTreeMap<(usize, u64), Vec<usize>> = BTreeMap::new();
        for index in self.left(all) {
            norms(index).for_each(|norm| holders.entry(norm).or_default().push(index));
        }
        let mut shared: BTreeMap<(usize, usize), usize> = BTreeMap::new();
        for group in holders.values() {
            for (place, one) in group.iter().enumerate() {
                for other in group[..place].iter().filter(|it| self.seed(**it) != self.seed(*one)) {
                    *shared.entry((*other, *one)).or_default() += 1;
                }
            }
        }
        let copies = shared.into_iter().filter(|((one, other), count)| {
            *count >= LEAST_NORMS && 2 * count > norms(*one).count().min(norms(*other).count())
        });
        let copies: Vec<_> = copies.map(|(pair, _)| pair).collect();
        for (index, of) in copies.into_iter().flat_map(|(one, other)| [(one, other), (other, one)])
        {
            let name = self.cells[of].file_name();
            let reason = format!(
                "most of its gradient norms are also those of {name}, of another seed: copies, of which none can be \
                 told from the original"
            );
            self.exclude(index, reason);
        }
    }

    fn left(&self, all: &[usize]) -> Vec<usize> {
        all.iter().copied().filter(|index| !self.reasons.contains_key(index)).collect()
    }

    fn base_evaluations(&self, all: &[usize]) -> BTreeMap<String, Bases<'a>> {
        let mut groups: BTreeMap<String, Bases> = BTreeMap::new();
        for index in self.left(all) {
            let cell = &self.cells[index];
            for evaluation in cell.evaluations.iter().filter(|it| it.counters.rollout_steps == 0) {
                groups.entry(origin(cell, evaluation)).or_default().push((index, evaluation));
            }
        }
        groups
    }

    fn unequal(&mut self, bases: &Bases<'a>) {
        let mut seeds: BTreeMap<(u64, String), BTreeMap<String, Vec<usize>>> = BTreeMap::new();
        for (index, evaluation) in bases {
            let Some(machine) = machine(&self.cells[*index]) else { continue };
            // Different programs write the same table with different digests.
            let bare = CellEvaluation { outcomes_sha256: String::new(), ..(*evaluation).clone() };
            let of_seed = seeds.entry((self.seed(*index), machine)).or_default();
            of_seed.entry(files::canonical_json_line(&bare)).or_default().push(*index);
        }
        let Some(set) = bases.first().map(|(_, evaluation)| &evaluation.set) else { return };
        for groups in seeds.into_values().filter(|groups| groups.len() > 1) {
            let all: usize = groups.values().map(Vec::len).sum();
            for group in groups.into_values() {
                let others = all - group.len();
                if 2 * group.len() > all {
                    continue;
                }
                let what = if 2 * others > all {
                    "that of the others"
                } else {
                    "that of the others, and no majority says which is right"
                };
                for index in group {
                    let reason = format!(
                        "its evaluation of `{set}` at rollout step 0 is not {what}: {all} cells have \
                         its base policy, seed and set, and {others} of them another result"
                    );
                    self.exclude(index, reason);
                }
            }
        }
    }
}

fn machine(cell: &Cell) -> Option<String> {
    match cell.exactness.as_str() {
        level if is_portable(level) => Some(String::new()),
        "exact-here" => {
            let mut facts = cell.environment.clone();
            facts.retain(|name, _| !CHANGES_NO_BIT.contains(&name.as_str()));
            Some(files::canonical_json_line(&facts))
        }
        _ => None,
    }
}

fn is_trained(evaluation: &CellEvaluation) -> bool {
    evaluation.counters.updates > 0
}

/// −log probability, in nats, that independent samples repeat these outcomes.
fn surprise(evaluation: &CellEvaluation) -> f64 {
    let samples = evaluation.samples as f64;
    let of = |count: f64| if count > 0.0 { -count * libm::log(count / samples) } else { 0.0 };
    let correct = evaluation.correct().into_iter().map(|correct| correct as f64);
    correct.map(|correct| of(correct) + of(samples - correct)).sum()
}

/// Everything but the seed that a base policy's outcomes on a set depend on.
fn origin(cell: &Cell, evaluation: &CellEvaluation) -> String {
    let experiment = &cell.experiment;
    let inputs = |folders: &[&str]| -> BTreeMap<&String, &String> {
        let is_in = |name: &str| folders.iter().any(|folder| name.starts_with(folder));
        cell.inputs.iter().filter(|(name, _)| is_in(name)).collect()
    };
    let mut execution = json!(experiment.execution);
    if let Some(fields) = execution.as_object_mut() {
        fields.remove("seed");
    }
    let own = run_folder::input_of_set(&evaluation.set, "");
    let key = json!({
        "base": inputs(&["base/"]),
        "set": evaluation.set,
        "data": cell.inputs.get(&format!("data/{}", evaluation.set)),
        "problems": cell.problems.get(&evaluation.set),
        "samples": evaluation.samples,
        "sampling": experiment.sampling_of(&evaluation.set),
        "max_response_tokens": experiment.rollout.max_response_tokens,
        "prompt": experiment.prompt,
        "stop": experiment.evaluation_stop(),
        "verifier": experiment.grading_of(&evaluation.set).of_arm(),
        "numerics": experiment.numerics,
        "execution": (experiment.numerics == Numerics::Fast).then_some(execution),
        "harness": cell.harness,
        "program": inputs(&["reward/", "package/", &own]),
    });
    files::canonical_json_line(&key)
}

fn shortened(names: &[String]) -> String {
    match names {
        [one] => one.clone(),
        [one, rest @ ..] => format!("{one} and {} more", rest.len()),
        [] => "no other".to_string(),
    }
}
