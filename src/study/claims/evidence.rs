//! Judges a study against claims: evidence for each part, and the verdict.

use crate::study::claims::{ClaimPart, Test, intervals};
use crate::study::{
    Analysis, Claim, ClaimResult, ClaimVerdict, Claims, Declared, Direction, Judged, PartResult,
    PartWhy, Remark, Why, Word, analysis, collection::Study, comparisons, comparisons::Comparison,
    needed,
};
use std::collections::BTreeMap;

pub fn judge(study: &Study, analysis: &Analysis, claims: &Claims) -> Judged {
    let context = EvidenceContext::new(study, analysis, claims);
    let elsewhere = claims.claims.is_empty().then_some(Remark::ClaimsElsewhere);
    Judged {
        claims: claims.claims.iter().map(|claim| context.claim(claim)).collect(),
        remarks: analysis.remarks.iter().cloned().chain(elsewhere).collect(),
        declaration_sha256: analysis.declaration_sha256.clone(),
        registered: study.is_registered(),
    }
}

/// Claim and part.
type PartKey<'a> = (&'a str, &'a str);

struct EvidenceContext<'a> {
    study: &'a Study,
    comparisons: BTreeMap<PartKey<'a>, Comparison>,
    /// Family → number of its parts that an interval decides.
    interval_parts: BTreeMap<&'a str, usize>,
}

impl<'a> EvidenceContext<'a> {
    fn new(study: &'a Study, analysis: &Analysis, claims: &'a Claims) -> Self {
        let mut context =
            Self { study, comparisons: BTreeMap::new(), interval_parts: BTreeMap::new() };
        let mut undeclared: BTreeMap<&str, Vec<(PartKey, Declared)>> = BTreeMap::new();
        let all = claims.claims.iter().flat_map(|it| it.parts.iter().map(move |part| (it, part)));
        for (claim, part) in all {
            let key = (claim.id.as_str(), part.id.as_str());
            let Some(declared) = declared(claim, part) else {
                *context.interval_parts.entry(&part.family).or_default() += 1;
                continue;
            };
            let family = analysis.families.iter().find(|it| it.id == part.family);
            match analysis::find(family, &declared) {
                Some(known) => {
                    context.comparisons.insert(key, known.clone());
                }
                None => undeclared.entry(&part.family).or_default().push((key, declared)),
            }
        }
        for (family, parts) in undeclared {
            let (keys, comparisons): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
            let id = format!("{family} (claims)");
            let results = comparisons::exploratory(study, &id, comparisons);
            context.comparisons.extend(keys.into_iter().zip(results));
        }
        context
    }

    fn claim(&self, claim: &Claim) -> ClaimResult {
        let parts: Vec<PartResult> =
            claim.parts.iter().map(|part| self.part(claim, part)).collect();
        ClaimResult {
            id: claim.id.clone(),
            claim: claim.claim.clone(),
            source: claim.source.clone(),
            verdict: verdict(claim, &parts),
            positive_control: claim.positive_control.clone(),
            not_testable: claim.not_testable.clone(),
            parts,
        }
    }

    fn part(&self, claim: &Claim, part: &ClaimPart) -> PartResult {
        let mut result = PartResult {
            id: part.id.clone(),
            says: part.says.clone(),
            family: part.family.clone(),
            rule: part.rule,
            registered: false,
            verdict: ClaimVerdict::Inconclusive,
            why: PartWhy::Comparison,
            needed: None,
            comparison: None,
            level: None,
            across_runs: None,
            // `claims::load` refuses checks without evidence.
            paper: part.paper.as_ref().and_then(|check| check.evidence().cloned()),
        };
        let size = self.interval_parts.get(part.family.as_str()).copied().unwrap_or(1);
        let alpha = self.study.declaration.alpha / size as f64;
        match &part.test {
            Test::Difference { direction, .. } => {
                let comparison = &self.comparisons[&(claim.id.as_str(), part.id.as_str())];
                let claimed = (*direction, part.claimed_size);
                self.difference(&mut result, comparison, claimed);
            }
            Test::Level { arm, metric, bound, direction } => {
                let (what, claimed) = ((arm.as_str(), metric), (*bound, *direction));
                intervals::level(self.study, &mut result, what, claimed, alpha);
            }
            Test::AcrossRuns { arms, x, y, bound } => {
                intervals::across_runs(self.study, &mut result, arms, (x, y), *bound, alpha);
            }
        }
        result
    }

    /// A claim is a comparison with an expected sign. A difference below δ may have that sign: equivalence contradicts
    /// a claimed size from δ on, never a direction alone. A size is excluded where the whole interval is below it.
    fn difference(
        &self,
        part: &mut PartResult,
        comparison: &Comparison,
        (claimed, size): (Direction, Option<f64>),
    ) {
        part.registered = comparison.registered;
        let excludes = match comparison.why {
            Why::Equivalent { margin, .. } => size.is_some_and(|size| size >= margin),
            _ => false,
        };
        part.verdict = match comparison.shown() {
            Some(shown) if shown == claimed => match size_beyond(comparison, claimed, size) {
                Some((claimed, most)) => {
                    part.why = PartWhy::SmallerThanClaimed { claimed, most };
                    ClaimVerdict::SmallerThanClaimed
                }
                None => ClaimVerdict::Supported,
            },
            Some(_) => ClaimVerdict::Contradicted,
            None if excludes => ClaimVerdict::Contradicted,
            None if comparison.word == Word::Equivalent => {
                part.why = PartWhy::EquivalentIsNoSize;
                ClaimVerdict::Inconclusive
            }
            None => ClaimVerdict::Inconclusive,
        };
        if part.verdict == ClaimVerdict::Inconclusive && part.why == PartWhy::Comparison {
            part.needed = needed::for_difference(self.study, comparison);
        }
        part.comparison = Some(comparison.clone());
    }
}

/// The claimed size and the end of the interval on the claimed side, where that end is below the size.
fn size_beyond(
    comparison: &Comparison,
    claimed: Direction,
    size: Option<f64>,
) -> Option<(f64, f64)> {
    let interval = comparison.result.as_ref()?.interval.as_ref()?;
    let most = match claimed {
        Direction::Higher => interval.high,
        Direction::Lower => -interval.low,
    };
    size.filter(|size| most < *size).map(|size| (size, most))
}

fn declared(claim: &Claim, part: &ClaimPart) -> Option<Declared> {
    let Test::Difference { arm, reference, metric, direction } = &part.test else { return None };
    Some(Declared {
        id: format!("{}/{}", claim.id, part.id),
        arm: arm.clone(),
        reference: reference.clone(),
        metric: metric.clone(),
        direction: *direction,
    })
}

fn verdict(claim: &Claim, parts: &[PartResult]) -> ClaimVerdict {
    use ClaimVerdict::{Contradicted, Inconclusive, SmallerThanClaimed};
    let is_of_a_part = |verdict: &ClaimVerdict| parts.iter().any(|it| it.verdict == *verdict);
    let decisive = [Contradicted, Inconclusive, SmallerThanClaimed].into_iter().find(is_of_a_part);
    match (&claim.not_testable, decisive, &claim.positive_control) {
        (Some(_), _, _) => ClaimVerdict::NotTestable,
        (None, Some(verdict), _) => verdict,
        (None, None, Some(_)) => ClaimVerdict::PositiveControl,
        (None, None, None) => ClaimVerdict::Supported,
    }
}
