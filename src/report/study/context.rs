//! What all chapters need: study, analysis, names, and a style for each arm that all figures share.

use crate::records::metrics;
use crate::report::page::{Look, TableCell};
use crate::report::text::{self, Unit};
use crate::report::words;
use crate::statistics::Interval;
use crate::study::comparisons::Comparison;
use crate::study::{
    Analysis, ArmSummary, Cell, Declared, GridSummary, Judged, Metric, Statistic, Word,
    collection::Study,
};
use std::collections::{BTreeMap, BTreeSet};

/// A longer table is folded: a figure has the same rows.
pub const MOST_OPEN_ROWS: usize = 12;

pub struct Context<'a> {
    pub study: &'a Study,
    pub analysis: &'a Analysis,
    pub judged: &'a Judged,
    /// `<grid>/<arm>` → style.
    styles: BTreeMap<String, usize>,
}

impl<'a> Context<'a> {
    pub fn new(study: &'a Study, analysis: &'a Analysis, judged: &'a Judged) -> Self {
        Self { study, analysis, judged, styles: styles(analysis) }
    }

    pub fn arms(&self) -> impl Iterator<Item = &'a ArmSummary> + use<'a> {
        self.analysis.grids.iter().flat_map(|grid| &grid.arms)
    }

    pub fn comparisons(&self) -> impl Iterator<Item = &'a Comparison> + use<'a> {
        self.analysis.families.iter().flat_map(|family| &family.comparisons)
    }

    pub fn arm(&self, id: &str) -> Option<&'a ArmSummary> {
        self.arms().find(|arm| arm.id == id)
    }

    pub fn pair(&self, arm: &str, reference: &str) -> String {
        format!("{} against {}", self.label(arm), self.label(reference))
    }

    /// `None` where the runs were evaluated alike.
    pub fn evaluated_apart(&self, comparison: &Comparison) -> Option<String> {
        let Declared { arm, reference, .. } = &comparison.declared;
        let apart = text::visible(&words::evaluated_apart(comparison)?);
        Some(format!("{}: {apart}", self.pair(arm, reference)))
    }

    /// Foreign text is made visible; the arm's name if the study has no such arm.
    pub fn label(&self, id: &str) -> String {
        let pool = self.analysis.declaration.pool(id).map(|pool| &pool.label);
        text::visible(self.arm(id).map(|arm| &arm.label).or(pool).map_or(id, String::as_str))
    }

    /// The label, with the name of the grid where an arm of another grid has the same one.
    pub fn label_in_study(&self, id: &str) -> String {
        self.label(id) + &self.in_grid(id)
    }

    /// `, no-warm-up` of an arm whose label an arm of another grid has too; else empty.
    pub fn in_grid(&self, id: &str) -> String {
        let Some((grid, _)) = id.split_once('/') else { return String::new() };
        let is_same =
            |arm: &&ArmSummary| arm.id != id && text::visible(&arm.label) == self.label(id);
        let is_shared = self.arms().any(|arm| is_same(&arm));
        if is_shared { format!(", {}", text::visible(grid)) } else { String::new() }
    }

    pub fn style(&self, id: &str) -> usize {
        self.styles.get(id).copied().unwrap_or_default()
    }

    /// `95 %`.
    pub fn level(&self) -> String {
        text::level(self.analysis.declaration.level)
    }

    /// Every arm trains on a task of small policies.
    pub fn is_embedded(&self) -> bool {
        self.study.arms().all(|(_, arm)| arm.experiment.inputs.data.is_miniature())
    }

    /// `avg@8 on mini-aime-plus`; with k where all runs agree.
    pub fn score_name(&self) -> String {
        let set = text::visible(&self.analysis.declaration.primary_set);
        let mut samples = self.arms().flat_map(|arm| &arm.seeds).map(|seed| seed.samples);
        let k = samples.next().filter(|first| samples.all(|other| other == *first));
        format!("avg@{} on {set}", k.map_or("k".to_owned(), |k| k.to_string()))
    }

    /// Number of different ones.
    pub fn base_policies(&self) -> usize {
        let cells = self.counted_cells();
        let digest = |cell: &&Cell| cell.inputs.get("base/model.safetensors").cloned();
        cells.iter().filter_map(digest).collect::<BTreeSet<_>>().len()
    }

    /// Once, though several grids may share it.
    pub fn counted_cells(&self) -> Vec<&'a Cell> {
        let mut cells = BTreeMap::new();
        for cell in self.arms().flat_map(|arm| self.study.cells_of(&arm.id)) {
            cells.insert(cell.file_name(), cell);
        }
        cells.into_values().collect()
    }
}

/// Arms of several grids (the baseline, DAPO) have the first styles; the rest follow in each grid's
/// order, and pools after all arms, in the order in which they are compared.
fn styles(analysis: &Analysis) -> BTreeMap<String, usize> {
    let grids_of = |hash: &str| {
        let has = |grid: &&GridSummary| grid.arms.iter().any(|arm| arm.arm_sha256 == hash);
        analysis.grids.iter().filter(has).count()
    };
    let hashes = analysis.grids.iter().flat_map(|grid| &grid.arms).map(|arm| &arm.arm_sha256);
    let mut seen = BTreeSet::new();
    let shared = hashes.filter(|hash| grids_of(hash) > 1 && seen.insert(*hash));
    // With more than these two a grid would run out of colours.
    let shared: Vec<&String> = shared.take(2).collect();
    let mut styles = BTreeMap::new();
    for grid in &analysis.grids {
        let mut next = shared.len();
        for arm in &grid.arms {
            let place = shared.iter().position(|hash| **hash == arm.arm_sha256);
            let style = place.unwrap_or(next);
            next += usize::from(place.is_none());
            styles.insert(arm.id.clone(), style);
        }
    }
    let mut next = styles.values().max().map_or(0, |last| last + 1);
    for pool in compared_pools(analysis) {
        if !styles.contains_key(pool) {
            styles.insert(pool.to_owned(), next);
            next += 1;
        }
    }
    styles
}

fn compared_pools(analysis: &Analysis) -> impl Iterator<Item = &str> {
    let compared = analysis.families.iter().flat_map(|family| &family.comparisons);
    let sides = compared.flat_map(|it| [it.declared.arm.as_str(), &it.declared.reference]);
    sides.filter(|id| analysis.declaration.pool(id).is_some())
}

pub fn unit_of(metric: &Metric) -> Unit {
    match metric {
        Metric::Metric { name, .. } | Metric::Contrast { name, .. } => unit_of_training(name),
        _ if metric.statistic().is_some_and(Statistic::is_share) => Unit::Share,
        _ => Unit::Plain,
    }
}

pub fn unit_of_training(name: &str) -> Unit {
    if metrics::unit(name) == Some("%") { Unit::Share } else { Unit::Plain }
}

/// `%`, `nats`; of a pure number its own scale.
pub fn unit_name(metric: &str) -> &'static str {
    metrics::unit(metric).unwrap_or("its own scale")
}

pub fn interval_cell(unit: Unit, interval: Option<&Interval>, why_not: &str) -> TableCell {
    TableCell::or(interval.map(|interval| unit.interval(interval)), why_not)
}

pub fn verdict(comparison: &Comparison) -> TableCell {
    let word = word(comparison);
    if comparison.evaluated_apart.is_empty() || comparison.result.is_none() {
        return word;
    }
    word.look.of(format!("{}, not evaluated alike", word.text))
}

pub fn word(comparison: &Comparison) -> TableCell {
    let look = match comparison.word {
        Word::Improves | Word::Higher => Look::Good,
        Word::Hurts | Word::Lower => Look::Bad,
        Word::Equivalent => Look::Same,
        Word::Inconclusive => Look::Open,
        Word::NothingToActOn | Word::NotCompared => Look::Quiet,
    };
    look.of(comparison.word.words())
}
