//! One word for a comparison of two methods. "Inconclusive" says that the runs cannot tell; "equivalent within
//! δ" says that they can, and that the difference is smaller than a margin declared beforehand.

use crate::statistics::{Equivalence, Interval, equivalence};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    /// p of the declared test, adjusted by Holm over the declared family.
    pub adjusted_p: f64,
    /// α of the family, such as 0.05.
    pub alpha: f64,
    pub interval: Interval,
    /// True for accuracy, false for time to a level.
    pub larger_is_better: bool,
    /// In the unit of the difference; infinite where no difference could have reached α.
    pub minimum_detectable_effect: f64,
    /// Two one-sided tests against a margin, where one was declared beforehand.
    pub equivalence: Option<Equivalence>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// b is better: the adjusted p is at most α, and the interval lies on the better side of 0.
    Improves,
    /// b is worse, by the same two conditions.
    Hurts,
    /// No effect is shown, and none is excluded.
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

/// "Improves" and "hurts" need both the test and the interval. A difference that is shown and also smaller than
/// the margin is called by its direction. A p or an interval that is NaN shows nothing.
pub fn verdict(evidence: &Evidence) -> Verdict {
    let Evidence { adjusted_p, alpha, interval, .. } = *evidence;
    let above = interval.low > 0.0 && interval.high > 0.0;
    let below = interval.high < 0.0 && interval.low < 0.0;
    if adjusted_p <= alpha && (above || below) {
        return if above == evidence.larger_is_better { Verdict::Improves } else { Verdict::Hurts };
    }
    if let Some(tests) = evidence.equivalence
        && tests.verdict == equivalence::EquivalenceVerdict::Reproduced
    {
        return Verdict::Equivalent { within: tests.margin };
    }
    let detectable = evidence.minimum_detectable_effect;
    Verdict::Inconclusive { could_have_detected: detectable.is_finite().then_some(detectable) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(adjusted_p: f64, low: f64, high: f64) -> Evidence {
        Evidence {
            adjusted_p,
            alpha: 0.05,
            interval: Interval { low, high, level: 0.95 },
            larger_is_better: true,
            minimum_detectable_effect: 0.04,
            equivalence: None,
        }
    }

    #[test]
    fn improves_and_hurts_need_the_test_and_the_interval() {
        assert_eq!(verdict(&evidence(0.05, 0.01, 0.2)), Verdict::Improves);
        assert_eq!(verdict(&evidence(0.05, -0.2, -0.01)), Verdict::Hurts);
        let open = Verdict::Inconclusive { could_have_detected: Some(0.04) };
        for (p, low, high) in [(0.051, 0.01, 0.2), (0.01, 0.0, 0.2), (0.01, -0.1, 0.2)] {
            assert_eq!(verdict(&evidence(p, low, high)), open, "{p} {low} {high}");
        }
        assert_eq!(verdict(&evidence(f64::NAN, 0.01, 0.2)), open);
        assert_eq!(verdict(&evidence(0.01, f64::NAN, 0.2)), open);
    }

    #[test]
    fn a_longer_time_hurts() {
        let time = Evidence { larger_is_better: false, ..evidence(0.01, 3.0, 9.0) };
        assert_eq!(verdict(&time), Verdict::Hurts);
        let time = Evidence { larger_is_better: false, ..evidence(0.01, -9.0, -3.0) };
        assert_eq!(verdict(&time), Verdict::Improves);
    }

    #[test]
    fn equivalence_needs_a_margin_and_is_not_the_same_as_no_effect_shown() {
        let (a, b) = ([0.50, 0.51, 0.49, 0.50], [0.50, 0.49, 0.51, 0.51]);
        let tests = |margin| equivalence::equivalence(&a, &b, 0.05, margin).ok();
        let close = Evidence { equivalence: tests(0.05), ..evidence(0.8, -0.01, 0.02) };
        assert_eq!(verdict(&close), Verdict::Equivalent { within: 0.05 });
        let narrow = Evidence { equivalence: tests(0.005), ..close };
        assert_eq!(verdict(&narrow), Verdict::Inconclusive { could_have_detected: Some(0.04) });
        // A difference that is shown is called by its direction.
        let shown = Evidence {
            adjusted_p: 0.01,
            interval: Interval { low: 0.001, ..close.interval },
            ..close
        };
        assert_eq!(verdict(&shown), Verdict::Improves);
    }

    #[test]
    fn what_could_not_have_been_found_is_said() {
        let none =
            Evidence { minimum_detectable_effect: f64::INFINITY, ..evidence(0.1, -1.0, 1.0) };
        assert_eq!(verdict(&none), Verdict::Inconclusive { could_have_detected: None });
        assert_eq!(
            serde_json::to_string(&verdict(&none)).unwrap(),
            r#"{"inconclusive":{"could_have_detected":null}}"#
        );
        assert_eq!(serde_json::to_string(&Verdict::Improves).unwrap(), r#""improves""#);
    }
}
