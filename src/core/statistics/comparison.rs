//! Two methods compared: the difference of what was measured of them, its interval and test, and one word for it.
//! "Inconclusive" says that the runs cannot tell; "equivalent within δ" says that they can, and that the
//! difference is smaller than a margin declared beforehand.

use crate::statistics::equivalence::{self, EquivalenceVerdict};
use crate::statistics::{
    Equivalence, Interval, PermutationTest, StatisticsError, TimeToEvent, aggregates, between,
    error, estimators, time_to_level,
};
use serde::{Deserialize, Serialize};

/// What is compared; differences are b − a.
#[derive(Debug, Clone, PartialEq)]
pub enum Measured {
    /// A number of each run of a, and of b.
    Runs(Vec<f64>, Vec<f64>),
    /// b − a of each block: runs of a block share what differs between blocks, such as the base policy and the run
    /// seed. The question is about another block.
    Blocks(Vec<f64>),
    /// The time to a level of each run of a, and of b.
    Times(Vec<TimeToEvent>, Vec<TimeToEvent>),
}

impl Measured {
    /// No block has a difference; without blocks, both sides have the same values, in any order.
    pub fn is_same(&self) -> bool {
        let are_equal = |a: &f64, b: &f64| estimators::difference(*a, *b) == 0.0;
        let have_same = |[mut a, mut b]: [Vec<f64>; 2]| {
            a.sort_by(f64::total_cmp);
            b.sort_by(f64::total_cmp);
            let is_one =
                a.iter().chain(&b).all(|value| are_equal(a.first().unwrap_or(value), value));
            is_one || a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| are_equal(a, b))
        };
        // Below 0 is a time at which the level was not reached.
        let place = |it: &TimeToEvent| if it.reached { it.time } else { -1.0 - it.time };
        match self {
            Self::Blocks(differences) => differences.iter().all(|difference| *difference == 0.0),
            Self::Runs(a, b) => have_same([a.clone(), b.clone()]),
            Self::Times(a, b) => have_same([a, b].map(|side| side.iter().map(place).collect())),
        }
    }
}

/// What was decided before anything was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Design {
    pub level: f64,
    /// Error rate of the family.
    pub alpha: f64,
    pub family_size: usize,
    /// Of detectable effects, as σ over runs.
    pub power: f64,
    pub sigma: Option<f64>,
    /// δ: closer methods count as the same.
    pub margin: Option<f64>,
}

impl Design {
    fn first_alpha(&self) -> f64 {
        self.alpha / self.family_size.max(1) as f64
    }

    /// A difference is shown by a p of at most α and by an interval beside 0.
    fn alpha_of_both(&self) -> f64 {
        self.first_alpha().min(1.0 - self.level)
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Estimate {
    /// Of means, or the mean over blocks; for times observed minus expected arrivals of b (positive if it is earlier).
    pub difference: f64,
    /// Welch's, or t over blocks; `None` below [`between::FEWEST_RUNS`], and for times, which may be censored.
    pub interval: Option<Interval>,
    /// Two-sided, of a permutation of runs, of the blocks' signs, or of log-rank scores.
    pub p: f64,
    /// Share of pairs of runs, or of blocks, in which b is higher; ties count ½. It decides nothing.
    pub probability_higher: Option<f64>,
    /// By Holm within the family; p until that was done.
    pub adjusted_p: f64,
    pub smallest_p: f64,
    pub splits: u64,
    pub exact: bool,
    /// The true difference that the power finds with σ, at α / (family size) and by the interval. It decides nothing.
    pub minimum_detectable_effect: Option<f64>,
    /// Pooled over both sides, or of the blocks' differences; with a margin only.
    pub observed_sigma: Option<f64>,
    /// `None` where that σ is 0, as of identical runs: it would be 0 too.
    pub observed_detectable_effect: Option<f64>,
    /// Two one-sided tests against δ.
    pub equivalence: Option<Equivalence>,
    /// Their p, by Holm within the family; uncorrected until that was done.
    pub adjusted_equivalence_p: Option<f64>,
    /// The chance that these succeed at α / (family size), were the methods the same.
    #[serde(skip)]
    pub attainable_power: Option<f64>,
    /// Kaplan–Meier, of b and a; inner `None` where more than half never reached the level.
    pub medians: Option<(Option<f64>, Option<f64>)>,
}

pub fn estimate(measured: &Measured, design: &Design) -> Result<Estimate, StatisticsError> {
    match measured {
        Measured::Runs(a, b) => of_runs(a, b, design),
        Measured::Blocks(differences) => of_blocks(differences, design),
        Measured::Times(a, b) => of_times(a, b),
    }
}

fn of_runs(a: &[f64], b: &[f64], design: &Design) -> Result<Estimate, StatisticsError> {
    let Design { level, alpha, power, sigma, margin, .. } = *design;
    let welch = between::welch(a, b, level)?;
    let detectable = |sigma: f64| {
        let alpha = design.alpha_of_both();
        let effect = between::minimum_detectable_effect(sigma, a.len(), b.len(), alpha, power);
        Some(effect).filter(|effect| effect.is_finite() && sigma > 0.0)
    };
    let observed_sigma = margin.and(between::pooled_deviation(a, b));
    let attainable = |(sigma, margin): (f64, f64)| {
        equivalence::attainable_power(sigma, a.len(), b.len(), design.first_alpha(), margin)
    };
    Ok(Estimate {
        interval: welch.interval,
        probability_higher: aggregates::probability_of_improvement(a, b).ok(),
        minimum_detectable_effect: sigma.and_then(detectable),
        observed_sigma,
        observed_detectable_effect: observed_sigma.and_then(detectable),
        attainable_power: sigma.zip(margin).map(attainable),
        ..Estimate::new(welch.difference, &between::permutation_test(a, b)?)
    }
    .with_equivalence(margin.and_then(|margin| equivalence::equivalence(a, b, alpha, margin).ok())))
}

/// The smallest p of 8 blocks is 2/256. The σ of runs is not that of blocks' differences.
fn of_blocks(differences: &[f64], design: &Design) -> Result<Estimate, StatisticsError> {
    error::check("a test over blocks", differences, 2)?;
    let Design { alpha, margin, .. } = *design;
    let test = between::sign_flips_up_to(differences, between::MOST_SPLITS)?;
    Ok(Estimate {
        interval: between::t_interval(differences, design.level).ok(),
        probability_higher: aggregates::probability_of_improvement(&[0.0], differences).ok(),
        observed_sigma: margin.and(Some(deviation(differences))),
        observed_detectable_effect: margin.and(detectable_of_blocks(differences, design)),
        ..Estimate::new(estimators::mean(differences), &test)
    }
    .with_equivalence(
        margin.and_then(|margin| equivalence::of_blocks(differences, alpha, margin).ok()),
    ))
}

/// By the spread of two or more differences that was seen; `None` where there is none, or so few signs show nothing.
pub fn detectable_of_blocks(differences: &[f64], design: &Design) -> Option<f64> {
    let (sigma, count) = (deviation(differences), differences.len());
    let (alpha, power) = (design.alpha_of_both(), design.power);
    let effect = between::minimum_detectable_effect_of_blocks(sigma, count, alpha, power);
    Some(effect).filter(|effect| effect.is_finite() && sigma > 0.0)
}

fn deviation(values: &[f64]) -> f64 {
    estimators::standard_error_of_mean(values) * (values.len() as f64).sqrt()
}

fn of_times(a: &[TimeToEvent], b: &[TimeToEvent]) -> Result<Estimate, StatisticsError> {
    let test = time_to_level::log_rank(a, b)?;
    let medians = (time_to_level::median_time(b)?, time_to_level::median_time(a)?);
    Ok(Estimate {
        medians: Some(medians),
        ..Estimate::new(test.observed_minus_expected, &test.permutation)
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// b is higher, or earlier.
    Improves,
    Hurts,
    Inconclusive {
        /// `None` where so few runs could not have shown any difference.
        could_have_detected: Option<f64>,
    },
    /// The difference is smaller than the margin (two one-sided tests), and no effect is shown.
    Equivalent {
        /// δ.
        within: f64,
    },
}

impl Estimate {
    fn new(difference: f64, test: &PermutationTest) -> Self {
        let PermutationTest { p, splits, exact, smallest_p } = *test;
        Self { difference, p, adjusted_p: p, smallest_p, splits, exact, ..Self::default() }
    }

    fn with_equivalence(self, equivalence: Option<Equivalence>) -> Self {
        let adjusted_equivalence_p = equivalence.map(|tests| tests.p());
        Self { equivalence, adjusted_equivalence_p, ..self }
    }

    /// "Improves" and "hurts" need the test and, but for times, an interval beside 0. A difference that is shown and
    /// also smaller than the margin is called by its direction. NaN shows nothing.
    pub fn verdict(&self, alpha: f64) -> Verdict {
        let is_beside_0 = match &self.interval {
            Some(interval) => lies_in(interval, Region::Above(0.0)).is_some(),
            None => self.medians.is_some() && self.difference != 0.0,
        };
        if self.adjusted_p <= alpha && is_beside_0 {
            return if self.difference > 0.0 { Verdict::Improves } else { Verdict::Hurts };
        }
        match self.equivalent_within(alpha) {
            Some(within) => Verdict::Equivalent { within },
            None => Verdict::Inconclusive { could_have_detected: self.minimum_detectable_effect },
        }
    }

    /// δ, where the two one-sided tests show that the difference is smaller, whatever its direction.
    pub fn equivalent_within(&self, alpha: f64) -> Option<f64> {
        let tests = self.equivalence.filter(|_| self.interval.is_some())?;
        let is_shown = tests.verdict == EquivalenceVerdict::Reproduced
            && self.adjusted_equivalence_p.is_none_or(|p| p <= alpha);
        is_shown.then_some(tests.margin)
    }
}

/// Where a claim says that a value lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Region {
    Above(f64),
    Below(f64),
    /// Between minus and plus the bound.
    Within(f64),
}

/// Whether all of an interval lies in the region; `None` where only a part of it does.
pub fn lies_in(interval: &Interval, region: Region) -> Option<bool> {
    let Interval { low, high, .. } = *interval;
    let (inside, outside) = match region {
        Region::Above(bound) => (low > bound && high > bound, low < bound && high < bound),
        Region::Below(bound) => (low < bound && high < bound, low > bound && high > bound),
        Region::Within(bound) => (low > -bound && high < bound, low >= bound || high <= -bound),
    };
    (inside || outside).then_some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESIGN: Design =
        Design { level: 0.95, alpha: 0.05, family_size: 1, power: 0.8, sigma: None, margin: None };

    fn shown(adjusted_p: f64, low: f64, high: f64) -> Estimate {
        let test = PermutationTest { p: adjusted_p, splits: 252, exact: true, smallest_p: 0.01 };
        Estimate {
            interval: Some(Interval { low, high, level: 0.95 }),
            minimum_detectable_effect: Some(0.04),
            ..Estimate::new(0.5 * (low + high), &test)
        }
    }

    const OPEN: Verdict = Verdict::Inconclusive { could_have_detected: Some(0.04) };

    #[test]
    fn improves_and_hurts_need_the_test_and_the_interval() {
        assert_eq!(shown(0.05, 0.01, 0.2).verdict(0.05), Verdict::Improves);
        assert_eq!(shown(0.05, -0.2, -0.01).verdict(0.05), Verdict::Hurts);
        for (p, low, high) in [
            (0.051, 0.01, 0.2),
            (0.01, 0.0, 0.2),
            (0.01, -0.1, 0.2),
            (f64::NAN, 0.01, 0.2),
            (0.01, f64::NAN, 0.2),
        ] {
            assert_eq!(shown(p, low, high).verdict(0.05), OPEN, "{p} {low} {high}");
        }
        let few = Estimate { interval: None, ..shown(0.01, 0.01, 0.2) };
        assert_eq!(few.verdict(0.05), OPEN);
    }

    #[test]
    fn times_have_no_interval_and_are_decided_by_their_test() {
        let times =
            |times: [f64; 5]| times.map(|time| TimeToEvent { time, reached: true }).to_vec();
        let (early, late) = (times([1.0, 2.0, 3.0, 4.0, 5.0]), times([6.0, 7.0, 8.0, 9.0, 10.0]));
        let compared = |a: &Vec<TimeToEvent>, b: &Vec<TimeToEvent>| {
            estimate(&Measured::Times(a.clone(), b.clone()), &DESIGN).unwrap()
        };
        let earlier = compared(&late, &early);
        assert_eq!((earlier.medians, earlier.interval), (Some((Some(3.0), Some(8.0))), None));
        assert_eq!(earlier.verdict(0.05), Verdict::Improves);
        assert_eq!(compared(&early, &late).verdict(0.05), Verdict::Hurts);
        let same = compared(&early, &early).verdict(0.05);
        assert_eq!(same, Verdict::Inconclusive { could_have_detected: None });
    }

    #[test]
    fn equivalence_needs_a_margin_and_is_not_the_same_as_no_effect_shown() {
        let (a, b) = ([0.50, 0.51, 0.49, 0.50], [0.50, 0.49, 0.51, 0.51]);
        let tests = |margin| equivalence::equivalence(&a, &b, 0.05, margin).ok();
        let close = Estimate { equivalence: tests(0.05), ..shown(0.8, -0.01, 0.02) };
        assert_eq!(close.verdict(0.05), Verdict::Equivalent { within: 0.05 });
        let of_a_family = Estimate { adjusted_equivalence_p: Some(0.051), ..close.clone() };
        assert_eq!(of_a_family.verdict(0.05), OPEN);
        let narrow = Estimate { equivalence: tests(0.005), ..close.clone() };
        assert_eq!(narrow.verdict(0.05), OPEN);
        // A difference that is shown is called by its direction.
        let improves = Estimate { equivalence: tests(0.05), ..shown(0.01, 0.001, 0.02) };
        assert_eq!(improves.verdict(0.05), Verdict::Improves);
    }

    #[test]
    fn verdicts_are_words_or_have_their_number() {
        let none = Estimate { minimum_detectable_effect: None, ..shown(0.1, -1.0, 1.0) };
        assert_eq!(
            serde_json::to_string(&none.verdict(0.05)).unwrap(),
            r#"{"inconclusive":{"could_have_detected":null}}"#
        );
        assert_eq!(serde_json::to_string(&Verdict::Improves).unwrap(), r#""improves""#);
    }

    #[test]
    fn differences_of_blocks_agree_with_scipy() {
        // scipy 1.17.1: ttest_1samp(d, 0).confidence_interval(0.95), permutation_test(samples), t.ppf(0.95, 7).
        let differences = [0.031, -0.012, 0.052, 0.044, 0.018, 0.027, -0.003, 0.061];
        let of = |differences: &[f64]| {
            let design = Design { margin: Some(0.05), ..DESIGN };
            estimate(&Measured::Blocks(differences.to_vec()), &design)
        };
        let effect = of(&differences).unwrap();
        let close = |got: f64, expected: f64| assert!((got - expected).abs() < 1e-12, "{got}");
        close(effect.difference, 0.02725);
        close(effect.observed_sigma.unwrap(), 0.025599944196367748);
        let interval = effect.interval.unwrap();
        close(interval.low, 0.005847911059283461);
        close(interval.high, 0.04865208894071654);
        assert_eq!((effect.p, effect.splits), (8.0 / 256.0, 256));
        assert_eq!(effect.probability_higher, Some(0.75));
        let tests = effect.equivalence.unwrap();
        close(tests.half_width, 0.01714773067391251);
        assert_eq!(tests.verdict, EquivalenceVerdict::Reproduced);
        assert!(of(&differences[..4]).unwrap().interval.is_none());
        assert!(of(&differences[..1]).is_err());
    }

    #[test]
    fn what_identical_runs_could_have_found_is_unknown() {
        let design = Design { margin: Some(0.05), ..DESIGN };
        for measured in [Measured::Blocks(vec![0.0; 8]), Measured::Runs(vec![0.5; 5], vec![0.5; 5])]
        {
            let estimate = estimate(&measured, &design).unwrap();
            assert_eq!(estimate.observed_sigma, Some(0.0));
            assert_eq!(estimate.observed_detectable_effect, None);
        }
    }

    #[test]
    fn what_could_be_found_takes_the_interval_and_the_family_into_account() {
        let (a, b) = ([0.1, 0.4, 0.2, 0.3, 0.5, 0.2, 0.6, 0.1], [0.2; 8]);
        let of = |level, family_size| {
            let (sigma, margin) = (Some(0.1), Some(0.15));
            let design = Design { level, family_size, sigma, margin, ..DESIGN };
            let estimate = estimate(&Measured::Runs(a.to_vec(), b.to_vec()), &design).unwrap();
            (estimate.minimum_detectable_effect.unwrap(), estimate.attainable_power.unwrap())
        };
        let effect = |alpha| between::minimum_detectable_effect(0.1, 8, 8, alpha, 0.8);
        let power = |alpha| equivalence::attainable_power(0.1, 8, 8, alpha, 0.15);
        assert_eq!(of(0.95, 1), (effect(0.05), power(0.05)));
        assert_eq!(of(0.99, 1), (effect(0.01), power(0.05)));
        assert_eq!(of(0.99, 10), (effect(0.005), power(0.005)));
        assert!(effect(0.05) < effect(0.01) && power(0.005) < power(0.05));
    }

    #[test]
    fn sides_are_the_same_where_no_block_differs_or_they_have_the_same_values() {
        let time = |time, reached| TimeToEvent { time, reached };
        let runs = |a: &[f64], b: &[f64]| Measured::Runs(a.to_vec(), b.to_vec()).is_same();
        let times = |a: TimeToEvent, b: TimeToEvent| Measured::Times(vec![a; 5], vec![b; 6]);
        assert!(
            Measured::Blocks(vec![0.0; 6]).is_same()
                && !Measured::Blocks(vec![0.1, -0.1]).is_same()
        );
        assert!(runs(&[0.1, 0.3], &[0.30000000000000004, 0.1]) && runs(&[0.5; 5], &[0.5; 6]));
        assert!(!runs(&[0.1, 0.3], &[0.2, 0.2]) && !runs(&[0.1, 0.3], &[0.1, 0.3, 0.3]));
        assert!(times(time(9.0, false), time(9.0, false)).is_same());
        assert!(!times(time(9.0, true), time(9.0, false)).is_same());
    }

    #[test]
    fn runs_that_differ_by_rounding_alone_are_equal() {
        // Means of 0.1, 0.2 and 0.3 in one order and another.
        let (a, b) = ([0.19999999999999998; 5], [0.20000000000000004; 5]);
        let mixed = [a[0], b[0], b[0], a[0], b[0]];
        let design = Design { margin: Some(0.05), ..DESIGN };
        for (a, b) in [(a, b), (mixed, b), (a, mixed)] {
            let estimate = estimate(&Measured::Runs(a.to_vec(), b.to_vec()), &design).unwrap();
            assert_eq!((estimate.difference, estimate.p), (0.0, 1.0));
            assert_eq!(estimate.interval, Some(Interval { low: 0.0, high: 0.0, level: 0.95 }));
            assert_eq!(estimate.probability_higher, Some(0.5));
            assert_eq!(
                (estimate.observed_sigma, estimate.observed_detectable_effect),
                (Some(0.0), None)
            );
            assert_eq!(estimate.verdict(0.05), Verdict::Equivalent { within: 0.05 });
        }
    }

    #[test]
    fn an_interval_that_includes_the_bound_lies_in_no_region() {
        let lies = |low, high, region| lies_in(&Interval { low, high, level: 0.95 }, region);
        for (low, high, above) in
            [(0.1, 0.2, Some(true)), (-0.2, -0.1, Some(false)), (0.0, 1.0, None)]
        {
            assert_eq!(lies(low, high, Region::Above(0.0)), above);
            assert_eq!(lies(low, high, Region::Below(0.0)), above.map(|above| !above));
        }
        assert_eq!(lies(-0.2, 0.1, Region::Within(0.3)), Some(true));
        assert_eq!(lies(-0.4, 0.1, Region::Within(0.3)), None);
        assert_eq!(lies(0.3, 0.5, Region::Within(0.3)), Some(false));
    }
}
