//! A study against the claims: the evidence for each part, and the verdict that follows.

use crate::statistics::Interval;
use crate::study::claims::{Part, Source, Test, intervals, needed, words};
use crate::study::collection::Study;
use crate::study::comparisons::{self, Comparison};
use crate::study::{
    Analysis, Claim, Claims, Declared, Direction, Family, Mean, PaperEvidence, Rule, RunValue,
    Word, analysis,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a study says of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every part was shown.
    Supported,
    /// Every part was shown, of a claim that the benchmark was made to show.
    PositiveControl,
    /// The opposite of a part was shown.
    Contradicted,
    /// Neither.
    Inconclusive,
    /// Nothing at this scale can tell.
    NotTestable,
}

impl Verdict {
    /// As tables write it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Supported => "supported",
            Self::PositiveControl => "positive control",
            Self::Contradicted => "contradicted",
            Self::Inconclusive => "inconclusive",
            Self::NotTestable => "not testable at this scale",
        }
    }
}

/// All claims judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// In the order of the claims.
    pub claims: Vec<ClaimResult>,
    /// What holds for every verdict.
    pub remarks: Vec<String>,
    /// SHA-256 of the declaration that the study was analysed by.
    pub declaration_sha256: String,
    /// Whether that declaration was registered before the first run.
    pub registered: bool,
}

/// A claim with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClaimResult {
    /// As in the claims.
    pub id: String,
    /// As in the claims.
    pub claim: String,
    /// As in the claims.
    pub source: Source,
    /// The verdict.
    pub verdict: Verdict,
    /// Why: what decided, what is missing, or why it cannot be tested.
    pub reason: String,
    /// As in the claims: what the benchmark was made to show.
    pub positive_control: Option<String>,
    /// In the claim's order.
    pub parts: Vec<PartResult>,
}

/// A part with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartResult {
    /// As in the claims.
    pub id: String,
    /// As in the claims.
    pub says: String,
    /// As in the claims.
    pub family: String,
    /// As in the claims.
    pub rule: Rule,
    /// Whether a registered declaration holds this very comparison.
    pub registered: bool,
    /// Supported, contradicted or inconclusive.
    pub verdict: Verdict,
    /// The numbers in one phrase.
    pub evidence: String,
    /// Why the verdict is what it is.
    pub reason: String,
    /// What an inconclusive part would need.
    pub needed: Option<String>,
    /// For a difference.
    pub comparison: Option<Comparison>,
    /// For a level.
    pub level: Option<LevelResult>,
    /// For a correlation over runs.
    pub across_runs: Option<AcrossRunsResult>,
    /// What the paper's own numbers say.
    pub paper: Option<PaperEvidence>,
}

/// An arm against a fixed value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelResult {
    /// `<grid>/<arm>`.
    pub arm: String,
    /// The metric in words.
    pub metric_words: String,
    /// By seed.
    pub runs: Vec<RunValue>,
    /// Runs that count and have no value, in words.
    pub without_value: Vec<String>,
    /// Of the runs.
    pub mean: f64,
    /// At 1 − α divided by the family's size; `None` for fewer than 2 runs.
    pub interval: Option<Interval>,
    /// The fixed value.
    pub bound: f64,
    /// Of a mean over tokens, whose registered value weighs rollout steps equally: the mean over
    /// the runs of the mean over tokens, with its interval. It decides nothing.
    pub token_weighted: Option<Mean>,
}

/// A correlation over runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AcrossRunsResult {
    /// The numbers in words.
    pub x_words: String,
    /// Likewise.
    pub y_words: String,
    /// Arm, seed, x, y.
    pub runs: Vec<(String, u64, f64, f64)>,
    /// Of the deviations from each arm's mean; `None` without spread.
    pub correlation: Option<f64>,
    /// Fisher's z at 1 − α divided by the family's size.
    pub interval: Option<Interval>,
    /// |r| below this counts as little.
    pub bound: f64,
}

/// Judges claims by a study and its analysis.
pub fn judge(study: &Study, analysis: &Analysis, claims: &Claims) -> Judged {
    let context = Context::new(study, analysis, claims);
    Judged {
        claims: claims.claims.iter().map(|claim| context.claim(claim)).collect(),
        remarks: analysis.remarks.clone(),
        declaration_sha256: analysis.declaration_sha256.clone(),
        registered: analysis.declaration.registered,
    }
}

/// What the parts share.
struct Context<'a> {
    study: &'a Study,
    /// (claim, part) → its comparison.
    comparisons: BTreeMap<(String, String), Comparison>,
    /// Family → parts of it that are decided by an interval.
    interval_parts: BTreeMap<String, usize>,
}

impl<'a> Context<'a> {
    fn new(study: &'a Study, analysis: &Analysis, claims: &Claims) -> Self {
        let mut comparisons = BTreeMap::new();
        let mut open: BTreeMap<&str, Vec<(&Claim, &Part, Declared)>> = BTreeMap::new();
        let mut interval_parts: BTreeMap<String, usize> = BTreeMap::new();
        let all = claims.claims.iter().flat_map(|it| it.parts.iter().map(move |part| (it, part)));
        for (claim, part) in all {
            let Some(declared) = declared(claim, part) else {
                *interval_parts.entry(part.family.clone()).or_default() += 1;
                continue;
            };
            let family: Vec<_> =
                analysis.families.iter().filter(|it| it.id == part.family).cloned().collect();
            match analysis::find(&family, &declared) {
                Some(found) => {
                    comparisons.insert((claim.id.clone(), part.id.clone()), found.clone());
                }
                None => open.entry(&part.family).or_default().push((claim, part, declared)),
            }
        }
        for (family, parts) in open {
            let declared = parts.iter().map(|(_, _, declared)| declared.clone()).collect();
            let family = Family {
                id: format!("{family} (claims)"),
                question: "claims that were not declared with the study".to_string(),
                comparisons: declared,
            };
            let results = comparisons::family(study, &family, false).comparisons;
            for ((claim, part, _), result) in parts.into_iter().zip(results) {
                comparisons.insert((claim.id.clone(), part.id.clone()), result);
            }
        }
        Self { study, comparisons, interval_parts }
    }

    fn claim(&self, claim: &Claim) -> ClaimResult {
        let parts: Vec<PartResult> =
            claim.parts.iter().map(|part| self.part(claim, part)).collect();
        let (verdict, reason) = whole(claim, &parts);
        ClaimResult {
            id: claim.id.clone(),
            claim: claim.claim.clone(),
            source: claim.source.clone(),
            verdict,
            reason,
            positive_control: claim.positive_control.clone(),
            parts,
        }
    }

    fn part(&self, claim: &Claim, part: &Part) -> PartResult {
        let mut result = PartResult {
            id: part.id.clone(),
            says: part.says.clone(),
            family: part.family.clone(),
            rule: part.rule,
            registered: false,
            verdict: Verdict::Inconclusive,
            evidence: String::new(),
            reason: String::new(),
            needed: None,
            comparison: None,
            level: None,
            across_runs: None,
            // `claims::load` has refused what cannot be computed.
            paper: part.paper.as_ref().and_then(|check| check.evidence().ok()),
        };
        let size = self.interval_parts.get(&part.family).copied().unwrap_or(1).max(1);
        let alpha = self.study.declaration.alpha / size as f64;
        match &part.test {
            Test::Difference { direction, .. } => {
                let key = (claim.id.clone(), part.id.clone());
                if let Some(comparison) = self.comparisons.get(&key) {
                    self.difference(&mut result, comparison, *direction);
                }
            }
            Test::Level { arm, metric, bound, direction } => {
                intervals::level(
                    self.study,
                    &mut result,
                    (arm, metric),
                    (*bound, *direction),
                    alpha,
                );
            }
            Test::AcrossRuns { arms, x, y, bound } => {
                intervals::across_runs(self.study, &mut result, arms, (x, y), *bound, alpha);
            }
        }
        result
    }

    fn difference(&self, part: &mut PartResult, comparison: &Comparison, claimed: Direction) {
        part.registered = comparison.registered;
        part.reason = comparison.reason.clone();
        part.verdict = match comparison.word {
            Word::Equivalent => Verdict::Contradicted,
            _ => match comparison.shown() {
                Some(shown) if shown == claimed => Verdict::Supported,
                Some(_) => Verdict::Contradicted,
                None => Verdict::Inconclusive,
            },
        };
        part.evidence = words::comparison(comparison);
        if part.verdict == Verdict::Inconclusive {
            part.needed = Some(needed::for_difference(self.study, comparison));
        }
        part.comparison = Some(comparison.clone());
    }
}

/// The comparison that a part asks for, if it asks for one.
fn declared(claim: &Claim, part: &Part) -> Option<Declared> {
    let Test::Difference { arm, reference, metric, direction } = &part.test else { return None };
    Some(Declared {
        id: format!("{}/{}", claim.id, part.id),
        arm: arm.clone(),
        reference: reference.clone(),
        metric: metric.clone(),
        direction: *direction,
    })
}

/// A claim's verdict from its parts': all must hold, and one that is contradicted is enough.
fn whole(claim: &Claim, parts: &[PartResult]) -> (Verdict, String) {
    if let Some(reason) = &claim.not_testable {
        return (Verdict::NotTestable, reason.clone());
    }
    let named = |verdict: Verdict| -> Vec<&str> {
        parts.iter().filter(|it| it.verdict == verdict).map(|it| it.id.as_str()).collect()
    };
    let contradicted = named(Verdict::Contradicted);
    let open = named(Verdict::Inconclusive);
    let control = |text: String, said: &str| match &claim.positive_control {
        Some(tuned) => format!("{text}; the benchmark was made to show this and {said}: {tuned}"),
        None => text,
    };
    let alone = |text: String| match parts {
        [part] => part.reason.clone(),
        _ => text,
    };
    let shown = parts.len() - contradicted.len() - open.len();
    if !contradicted.is_empty() {
        let text = alone(format!("the opposite was shown for {}", contradicted.join(", ")));
        return (Verdict::Contradicted, control(text, "does not"));
    }
    if !open.is_empty() {
        let text = format!("{shown} of {} parts shown; open: {}", parts.len(), open.join(", "));
        return (Verdict::Inconclusive, control(alone(text), "this study does not tell"));
    }
    match &claim.positive_control {
        Some(tuned) => (Verdict::PositiveControl, format!("shown, as it must be: {tuned}")),
        None if parts.len() == 1 => (Verdict::Supported, parts[0].reason.clone()),
        None => (Verdict::Supported, format!("all {} parts were shown", parts.len())),
    }
}
