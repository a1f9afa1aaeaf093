//! Everything that a study says, in one value: reports and `dapo report --claims` only print it.

use crate::experiment::Grid;
use crate::statistics::{Measured, between};
use crate::study::comparisons::{self, Comparison};
use crate::study::levels::ReferencePoint;
use crate::study::sensitivity::{self, Sensitivity};
use crate::study::stability::{self, ArmStability};
use crate::study::{
    ArmSummary, ArmTimes, Declaration, Declared, Excluded, FamilyResult, Remark, Word, arms,
    collection::Study, declaration, levels,
};
use serde::Serialize;
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Analysis {
    pub declaration: Declaration,
    pub declaration_sha256: String,
    pub grids: Vec<GridSummary>,
    pub families: Vec<FamilyResult>,
    pub excluded: Vec<Excluded>,
    pub spread: Option<Spread>,
    pub stability: Vec<ArmStability>,
    /// Of the first family's comparisons of scores.
    pub sensitivity: Vec<Sensitivity>,
    pub remarks: Vec<Remark>,
}

/// σ between training runs of the primary score, registered and observed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// The pilot's σ.
    pub registered: Option<f64>,
    /// Pooled over the arms.
    pub observed: f64,
    pub smallest: (String, f64),
    pub largest: (String, f64),
    pub arms: u64,
    pub runs: u64,
    /// Of the differences within blocks, pooled over the first family's comparisons of scores that had something to act on
    /// and whose differences are not all the same; of paired designs.
    pub within_blocks: Option<f64>,
    /// Which formula has the two effects below.
    pub design: SpreadDesign,
    /// The true difference that a single comparison finds with the declared power at α, from the registered σ: one
    /// between runs says nothing of the differences within blocks.
    pub registered_effect: Option<f64>,
    /// The same from the observed σ, or from that within blocks; `None` where that σ is 0.
    pub observed_effect: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpreadDesign {
    IndependentRuns,
    Blocks,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GridSummary {
    pub name: String,
    pub question: String,
    pub arms: Vec<ArmSummary>,
    /// At the end, on the primary set, in the grid's order. Undeclared ones: exploratory, adjusted among themselves.
    pub differences: Vec<Comparison>,
    /// Empty without a declared level.
    pub times: Vec<ArmTimes>,
    pub reference_points: Vec<ReferencePoint>,
}

pub fn analyse(study: &Study) -> Analysis {
    let declaration = &study.declaration;
    let families = comparisons::families(study);
    let level = declaration.time_to_level.as_ref();
    let summary = |grid: &Grid| GridSummary {
        name: grid.name.clone(),
        question: grid.question.clone(),
        arms: arms::summaries(study, grid),
        differences: differences(study, grid, &families),
        reference_points: levels::reference_points(study, grid),
        times: level.map_or_else(Vec::new, |level| levels::times(study, grid, level)),
    };
    let grids: Vec<GridSummary> = study.grids.iter().map(summary).collect();
    Analysis {
        spread: spread(study, &grids, &families),
        stability: stability::of(study),
        sensitivity: sensitivity::of(study, &families),
        declaration: declaration.clone(),
        declaration_sha256: declaration.sha256(),
        grids,
        families,
        excluded: study.excluded.clone(),
        remarks: remarks(study),
    }
}

impl Analysis {
    pub fn comparison(&self, family: &str, id: &str) -> Option<&Comparison> {
        let family = self.families.iter().find(|it| it.id == family)?;
        family.comparisons.iter().find(|it| it.declared.id == id)
    }
}

fn spread(study: &Study, grids: &[GridSummary], families: &[FamilyResult]) -> Option<Spread> {
    let declaration = &study.declaration;
    let mut seen = BTreeSet::new();
    let all = grids.iter().flat_map(|grid| &grid.arms);
    let mut arms: Vec<(&ArmSummary, f64, u64)> = all
        .filter_map(|arm| {
            let score = arm.score.as_ref()?;
            Some((arm, score.standard_deviation?, score.runs))
        })
        .collect();
    arms.retain(|(arm, _, _)| seen.insert(&arm.arm_sha256));
    let freedom: u64 = arms.iter().map(|(_, _, runs)| runs - 1).sum();
    let squares: f64 = arms.iter().map(|(_, s, runs)| s * s * (runs - 1) as f64).sum();
    let least = arms.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = arms.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let observed = (squares / freedom as f64).sqrt();
    let runs = arms.iter().map(|(_, _, runs)| *runs).min()?;
    let registered = declaration.pilot.as_ref().map(|pilot| pilot.sigma);
    let Declaration { alpha, level, power, paired, .. } = *declaration;
    let alpha = alpha.min(1.0 - level);
    let n = runs as usize;
    let effect = |sigma| between::minimum_detectable_effect(sigma, n, n, alpha, power);
    let blocks = families.first().and_then(|family| within_blocks(study, family));
    let (design, registered_effect, observed_effect) = if paired {
        let of_blocks = |(sigma, blocks)| {
            between::minimum_detectable_effect_of_blocks(sigma, blocks, alpha, power)
        };
        (SpreadDesign::Blocks, None, blocks.map(of_blocks))
    } else {
        let observed_effect = Some(observed).filter(|sigma| *sigma > 0.0).map(effect);
        (SpreadDesign::IndependentRuns, registered.map(effect), observed_effect)
    };
    let finite = |effect: Option<f64>| effect.filter(|effect| effect.is_finite());
    Some(Spread {
        registered,
        observed,
        smallest: (least.0.id.clone(), least.1),
        largest: (most.0.id.clone(), most.1),
        arms: arms.len() as u64,
        runs,
        within_blocks: blocks.map(|(sigma, _)| sigma),
        design,
        registered_effect: finite(registered_effect),
        observed_effect: finite(observed_effect),
    })
}

/// Standard deviation, pooled over the comparisons of scores, and the fewest blocks of one; `None` unless paired. Identical
/// runs, and arms that had nothing to act on, say nothing of the spread that hides an effect.
fn within_blocks(study: &Study, family: &FamilyResult) -> Option<(f64, usize)> {
    let spreads = family.comparisons.iter().filter_map(|comparison| {
        if !comparison.declared.metric.is_avg_at_k() || comparison.word == Word::NothingToActOn {
            return None;
        }
        let Measured::Blocks(differences) = comparisons::measured(study, comparison) else {
            return None;
        };
        let sigma = comparison.result.as_ref()?.observed_sigma.filter(|sigma| *sigma > 0.0)?;
        Some((sigma, differences.len()))
    });
    let spreads: Vec<(f64, usize)> = spreads.collect();
    let freedom: usize = spreads.iter().map(|(_, blocks)| blocks - 1).sum();
    let squares: f64 = spreads.iter().map(|(s, blocks)| s * s * (blocks - 1) as f64).sum();
    let fewest = spreads.iter().map(|(_, blocks)| *blocks).min()?;
    Some(((squares / freedom as f64).sqrt(), fewest))
}

pub fn differences(study: &Study, grid: &Grid, families: &[FamilyResult]) -> Vec<Comparison> {
    let rows = declaration::rows(grid, &study.declaration.primary_set);
    let open = rows.iter().filter(|row| find(families, row).is_none()).cloned();
    let id = format!("{} (rows)", grid.name);
    let exploratory = comparisons::exploratory(study, &id, open.collect());
    let known = |row: &Declared| {
        find(families, row).or_else(|| exploratory.iter().find(|it| it.is_of(row)))
    };
    rows.iter().filter_map(|row| known(row).cloned()).collect()
}

/// A declared comparison of the same arms and metric, whatever its family and name.
pub fn find<'a>(
    families: impl IntoIterator<Item = &'a FamilyResult>,
    row: &Declared,
) -> Option<&'a Comparison> {
    families.into_iter().flat_map(|family| &family.comparisons).find(|it| it.is_of(row))
}

fn remarks(study: &Study) -> Vec<Remark> {
    let declaration = &study.declaration;
    let failed = study.excluded.iter().filter(|it| it.failed).count();
    let others = study.excluded.len() - failed;
    let held_out = declaration.held_out.as_ref();
    let absent = held_out.filter(|it| study.grids.iter().all(|grid| grid.name != it.grid));
    let remarks = [
        Some(study.bases()),
        Some(Remark::RecordsChecked),
        (!study.is_registered()).then_some(Remark::Unregistered),
        declaration.pilot.is_none().then_some(Remark::NoPilot),
        (failed > 0).then_some(Remark::FailedRuns { count: failed }),
        (others > 0).then_some(Remark::OtherRecords { count: others }),
        absent.map(|held_out| Remark::HeldOutAbsent { grid: held_out.grid.clone() }),
        missing_runs(study),
    ];
    remarks.into_iter().flatten().collect()
}

pub fn missing_runs(study: &Study) -> Option<Remark> {
    let count: usize = study.arms().map(|(id, _)| study.missing_seeds(&id).len()).sum();
    let grids = study.grids.iter().map(|grid| grid.name.clone()).collect();
    (count > 0).then_some(Remark::MissingRuns { count, grids })
}
