//! ScaleRL's curve of a score over what training has spent.

use crate::statistics::{StatisticsError, aggregates, error, estimators};

/// R(C) = R₀ + (A − R₀) / (1 + (C_mid / C)^B), R₀ the score before training: arXiv 2510.13786, Eq. 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScalingCurve {
    /// A: the score that the curve tends to, in [0, 1].
    pub asymptote: f64,
    /// C_mid: where half of the gain is made, in the unit of C.
    pub midpoint: f64,
    /// B: larger is steeper.
    pub exponent: f64,
    /// Root mean square of score − R(C).
    pub deviation: f64,
    /// Of A, C_mid and B: the end of what is searched at which they are. There they do not move as the data do.
    pub ends: [Option<SearchEnd>; 3],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchEnd {
    Lowest,
    Highest,
}

impl ScalingCurve {
    pub fn is_inside(&self) -> bool {
        self.ends == [None; 3]
    }

    /// R(C) after a score of `start` before training.
    pub fn at(&self, start: f64, spent: f64) -> f64 {
        let gain = self.asymptote - start;
        start + gain / (1.0 + libm::pow(self.midpoint / spent, self.exponent))
    }
}

/// Fewest points for three parameters.
pub const FEWEST_POINTS: usize = 5;

const EXPONENTS: (f64, f64) = (0.2, 20.0);
/// Each looks at half the range of the one before, around the best so far.
const ZOOMS: usize = 24;
/// Grid lines on each side of the best.
const LINES: i32 = 10;

/// The curve of least squares through scores in [0, 1] over C > 0. C_mid (from a third of the smallest C to three times
/// the largest) and B (0.2 to 20) are searched for on grids that narrow down; A (0 to 1) follows from them. Refuses
/// fewer than [`FEWEST_POINTS`] points, and a value that is not finite.
pub fn fit(start: f64, points: &[(f64, f64)]) -> Result<ScalingCurve, StatisticsError> {
    let logs: Vec<f64> = points.iter().map(|(spent, _)| libm::log(*spent)).collect();
    let gains: Vec<f64> = points.iter().map(|(_, score)| score - start).collect();
    error::check("a scaling curve", &gains, FEWEST_POINTS)?;
    error::check("a scaling curve", &logs, FEWEST_POINTS)?;
    let (smallest, largest) = aggregates::range(logs.iter().copied());
    let ranges = [
        (smallest - libm::log(3.0), largest + libm::log(3.0)),
        (libm::log(EXPONENTS.0), libm::log(EXPONENTS.1)),
    ];
    let end = |value: f64, (low, high): (f64, f64), near: f64| {
        let ends = [(value - low, SearchEnd::Lowest), (high - value, SearchEnd::Highest)];
        ends.into_iter().find(|(away, _)| *away <= near).map(|(_, end)| end)
    };
    let curve = |[log_midpoint, log_exponent]: [f64; 2]| {
        let exponent = libm::exp(log_exponent);
        let share = |log: &f64| 1.0 / (1.0 + libm::exp(exponent * (log_midpoint - log)));
        let shares: Vec<f64> = logs.iter().map(share).collect();
        let product = |of: &[f64]| shares.iter().zip(of).map(|(s, it)| s * it).sum::<f64>();
        let free = product(&gains) / product(&shares);
        let gain = free.clamp(-start, 1.0 - start);
        let ends = [
            end(free, (-start, 1.0 - start), 1e-9),
            end(log_midpoint, ranges[0], 1e-3),
            end(log_exponent, ranges[1], 1e-3),
        ];
        let squares = shares.iter().zip(&gains).map(|(s, it)| (it - gain * s) * (it - gain * s));
        ScalingCurve {
            asymptote: start + gain,
            midpoint: libm::exp(log_midpoint),
            exponent,
            deviation: (squares.sum::<f64>() / gains.len() as f64).sqrt(),
            ends,
        }
    };
    let mut at = ranges.map(|(low, high)| (low + high) / 2.0);
    let mut best = curve(at);
    for zoom in 0..ZOOMS {
        let middle = at;
        let line = |axis: usize, step: i32| {
            let (low, high) = ranges[axis];
            let half = (high - low) / 2.0 / (1u64 << zoom) as f64;
            (middle[axis] + half * f64::from(step) / f64::from(LINES)).clamp(low, high)
        };
        for step in (-LINES..=LINES).flat_map(|x| (-LINES..=LINES).map(move |y| [x, y])) {
            let place = [line(0, step[0]), line(1, step[1])];
            let candidate = curve(place);
            if candidate.deviation < best.deviation {
                (best, at) = (candidate, place);
            }
        }
    }
    Ok(best)
}

/// Mean of score − R(C) over the points beyond half of the largest C, R fitted to the points up to it: how far the
/// curve's forecast was off. Refuses what [`fit`] refuses, of the points up to half.
pub fn forecast_error(start: f64, points: &[(f64, f64)]) -> Result<f64, StatisticsError> {
    let largest = points.iter().map(|(spent, _)| *spent).fold(0.0, f64::max);
    let (seen, later): (Vec<_>, Vec<_>) =
        points.iter().copied().partition(|(spent, _)| *spent <= largest / 2.0);
    let curve = fit(start, &seen)?;
    let errors: Vec<f64> =
        later.iter().map(|(spent, score)| score - curve.at(start, *spent)).collect();
    error::check("a forecast", &errors, 1)?;
    Ok(estimators::mean(&errors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_that_goes_on_is_forecast_and_one_that_stops_is_not() {
        let mut points = drawn(0.9, 4e4, 2.0);
        assert!(forecast_error(0.2, &points).unwrap().abs() < 1e-4);
        points[6..].iter_mut().for_each(|(_, score)| *score -= 0.07);
        assert!((forecast_error(0.2, &points).unwrap() + 0.07).abs() < 1e-4);
        assert!(forecast_error(0.2, &points[..6]).is_err());
    }

    fn drawn(asymptote: f64, midpoint: f64, exponent: f64) -> Vec<(f64, f64)> {
        let score =
            |spent: f64| 0.2 + (asymptote - 0.2) / (1.0 + libm::pow(midpoint / spent, exponent));
        (1..=12).map(|step| f64::from(step) * 1e4).map(|spent| (spent, score(spent))).collect()
    }

    #[test]
    fn the_parameters_of_a_drawn_curve_are_found() {
        for (asymptote, midpoint, exponent) in [(0.9, 4e4, 2.0), (0.61, 2e4, 1.2), (0.1, 5e4, 6.0)]
        {
            let curve = fit(0.2, &drawn(asymptote, midpoint, exponent)).unwrap();
            assert!((curve.asymptote - asymptote).abs() < 1e-5, "{curve:?}");
            assert!((curve.midpoint / midpoint - 1.0).abs() < 1e-5, "{curve:?}");
            assert!((curve.exponent / exponent - 1.0).abs() < 1e-4, "{curve:?}");
            assert!(curve.deviation < 1e-6 && curve.is_inside(), "{curve:?}");
        }
    }

    /// `scipy.optimize.curve_fit` 1.17 of the same points, with A, C_mid and B bounded as here.
    #[test]
    fn a_noisy_curve_agrees_with_scipy() {
        let noise = [0.01, -0.02, 0.015, 0.0, -0.01, 0.02, -0.015, 0.01, 0.0, -0.02, 0.01, 0.005];
        let points: Vec<(f64, f64)> =
            drawn(0.85, 3e4, 1.7).into_iter().zip(noise).map(|((c, r), e)| (c, r + e)).collect();
        let curve = fit(0.2, &points).unwrap();
        for (value, expected) in [
            (curve.asymptote, 0.849609232),
            (curve.midpoint / 1e4, 2.99938616),
            (curve.exponent, 1.70916402),
            (curve.deviation, 0.013142003724675),
        ] {
            assert!((value - expected).abs() < 1e-5, "{value} {expected}");
        }
    }

    #[test]
    fn a_step_has_no_exponent() {
        let step = |(spent, _): (f64, f64)| (spent, if spent < 4.5e4 { 0.2 } else { 0.7 });
        let points: Vec<(f64, f64)> = drawn(0.7, 4e4, 2.0).into_iter().map(step).collect();
        let curve = fit(0.2, &points).unwrap();
        assert_eq!(curve.ends, [None, None, Some(SearchEnd::Highest)], "{curve:?}");
    }

    #[test]
    fn a_curve_beyond_what_is_searched_ends_at_its_bound() {
        use SearchEnd::{Highest, Lowest};
        for ((asymptote, midpoint, exponent), ends) in [
            ((-0.2, 4e4, 2.0), [Some(Lowest), None, None]),
            ((1.3, 4e4, 2.0), [Some(Highest), None, None]),
            ((0.6, 1e3, 1.0), [None, Some(Lowest), None]),
            ((0.9, 1e6, 1.0), [None, Some(Highest), None]),
            ((0.7, 4e4, 0.1), [None, Some(Lowest), Some(Lowest)]),
            ((0.7, 4e4, 30.0), [None, None, Some(Highest)]),
        ] {
            let curve = fit(0.2, &drawn(asymptote, midpoint, exponent)).unwrap();
            assert_eq!((curve.ends, curve.is_inside()), (ends, false), "{curve:?}");
        }
    }

    #[test]
    fn too_little_to_fit_is_refused() {
        assert!(fit(0.2, &drawn(0.9, 4e4, 2.0)[..4]).is_err());
        assert!(fit(0.2, &[(0.0, 0.3); 6]).is_err());
        assert!(fit(f64::NAN, &drawn(0.9, 4e4, 2.0)).is_err());
    }
}
