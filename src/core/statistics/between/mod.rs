//! Comparisons of training methods. The unit is the training run, and a run is one number (for example its avg@k).

use crate::base::{Purpose, rng, rng::Id};
use crate::statistics::distributions::{self, t_quantile};
use crate::statistics::{
    StatisticsError, equivalence, error::check, error::check_level, estimators,
};
use serde::{Deserialize, Serialize};

/// Up to this number of splits, all are enumerated.
pub const MOST_SPLITS: u64 = 200_000;

/// With more splits than [`MOST_SPLITS`], this many random ones are drawn beside the observed one.
const RANDOM_SPLITS: u64 = MOST_SPLITS - 1;

/// A t interval needs at least this many runs of a method. With three runs that end in one of two modes a
/// nominal 95 % interval covers 74 % (`golden/stats/`), and three runs cannot show the modes.
pub const FEWEST_RUNS: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// In the unit of the values.
    pub low: f64,
    pub high: f64,
    /// Nominal coverage, such as 0.95.
    pub level: f64,
}

impl Interval {
    pub fn around(centre: f64, half_width: f64, level: f64) -> Self {
        Self { low: centre - half_width, high: centre + half_width, level }
    }

    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Interval of the mean over all possible training runs: ȳ ± t · s/√S with S − 1 degrees of freedom.
pub fn t_interval(values: &[f64], level: f64) -> Result<Interval, StatisticsError> {
    check("a t interval over runs", values, FEWEST_RUNS)?;
    any_t_interval(values, level)
}

/// [`t_interval`] from two runs on; calibration measures it below the limit too.
pub fn any_t_interval(values: &[f64], level: f64) -> Result<Interval, StatisticsError> {
    let t = t_for(level, (values.len() - 1) as f64)?;
    let half_width = t * estimators::standard_error_of_mean(values);
    Ok(Interval::around(estimators::mean(values), half_width, level))
}

/// Around an estimate from S runs whose error has no formula: ± t · √((S − 1)/S · Σ (θ₋ᵢ − θ̄₋)²) with S − 1 degrees of
/// freedom, θ₋ᵢ the estimate without run i. Of a mean it is [`t_interval`]. Efron and Tibshirani, An Introduction to the
/// Bootstrap (1993), Eq. 11.5, with t for z.
pub fn jackknife_interval(
    estimate: f64,
    without_each: &[f64],
    level: f64,
) -> Result<Interval, StatisticsError> {
    check("a jackknife interval over runs", without_each, FEWEST_RUNS)?;
    check("a jackknife interval over runs", &[estimate], 1)?;
    let runs = without_each.len() as f64;
    let squares = estimators::squares_around(without_each, estimators::mean(without_each));
    let error = ((runs - 1.0) / runs * squares).sqrt();
    Ok(Interval::around(estimate, t_for(level, runs - 1.0)? * error, level))
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mean {
    pub mean: f64,
    /// `None` of one run.
    pub standard_deviation: Option<f64>,
    /// [`t_interval`]; `None` for fewer than [`FEWEST_RUNS`].
    pub interval: Option<Interval>,
    pub runs: u64,
}

impl Mean {
    /// `None` without a run.
    pub fn of(values: &[f64], level: f64) -> Option<Self> {
        let runs = values.len() as u64;
        let mean = (runs > 0).then(|| estimators::mean(values))?;
        let squares = estimators::squares_around(values, mean);
        let standard_deviation = (runs > 1).then(|| (squares / (runs - 1) as f64).sqrt());
        Some(Self { mean, standard_deviation, interval: t_interval(values, level).ok(), runs })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WelchDifference {
    pub difference: f64,
    /// √(s_a²/n_a + s_b²/n_b).
    pub standard_error: f64,
    /// ν of Welch and Satterthwaite; 0 where neither side has any spread.
    pub degrees_of_freedom: f64,
    /// Difference ± t_ν · standard error, of width 0 without spread; `None` where a side has under [`FEWEST_RUNS`].
    pub interval: Option<Interval>,
}

pub fn welch(a: &[f64], b: &[f64], level: f64) -> Result<WelchDifference, StatisticsError> {
    const METHOD: &str = "a Welch interval";
    check(METHOD, a, 2)?;
    check(METHOD, b, 2)?;
    let (standard_error, degrees_of_freedom) = equivalence::welch_error(a, b);
    let interval = any_welch_interval(a, b, level)?;
    let enough = a.len().min(b.len()) >= FEWEST_RUNS;
    Ok(WelchDifference {
        difference: estimators::difference_of_means(a, b),
        standard_error,
        degrees_of_freedom,
        interval: enough.then_some(interval),
    })
}

/// [`welch`]'s interval from two runs a side on; calibration measures it below the limit too.
pub fn any_welch_interval(a: &[f64], b: &[f64], level: f64) -> Result<Interval, StatisticsError> {
    let (standard_error, degrees_of_freedom) = equivalence::welch_error(a, b);
    let half_width = if degrees_of_freedom > 0.0 {
        t_for(level, degrees_of_freedom)? * standard_error
    } else {
        t_for(level, 1.0)? * 0.0
    };
    Ok(Interval::around(estimators::difference_of_means(a, b), half_width, level))
}

/// Square root of the mean variance of two sides, each weighed by its degrees of freedom.
pub fn pooled_deviation(a: &[f64], b: &[f64]) -> Option<f64> {
    let squares = |values: &[f64]| {
        estimators::squares_around(values, values.iter().sum::<f64>() / values.len() as f64)
    };
    let freedom = (a.len() + b.len()).checked_sub(2).filter(|freedom| *freedom > 0)?;
    Some(((squares(a) + squares(b)) / freedom as f64).sqrt())
}

fn t_for(level: f64, df: f64) -> Result<f64, StatisticsError> {
    check_level(level)?;
    Ok(t_quantile(0.5 + level / 2.0, df))
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermutationTest {
    /// Two-sided p: the share of relabellings, the observed one among them, whose statistic is at least as large in
    /// size.
    pub p: f64,
    pub splits: u64,
    /// True if all splits were enumerated, false if random ones were drawn.
    pub exact: bool,
    pub smallest_p: f64,
}

/// Unpaired permutation test on the difference of means. It is exact over all C(n_a + n_b, n_a) splits if they are at
/// most [`MOST_SPLITS`]; otherwise it draws 199,999 random ones beside the observed one, from a stream fixed by the
/// numbers of runs: a call repeats bit for bit. With 5 against 5 runs the smallest p is 2/252 = 0.008, with 3 against 3
/// it is 0.1.
pub fn permutation_test(a: &[f64], b: &[f64]) -> Result<PermutationTest, StatisticsError> {
    const METHOD: &str = "a permutation test";
    check(METHOD, a, 1)?;
    check(METHOD, b, 1)?;
    let values: Vec<f64> = a.iter().chain(b).copied().collect();
    // Sums of the same set in another order differ by the rounding of the values, however close these are.
    let scale: f64 = values.iter().map(|value| value.abs()).sum();
    let centre = estimators::mean(&values);
    let values: Vec<f64> = values.iter().map(|value| value - centre).collect();
    let observed = values[a.len()..].iter().sum::<f64>();
    let threshold = observed.abs() - 1e-12 * scale;
    check(METHOD, &[threshold], 1)?;
    let smallest = smallest_p(a.len(), b.len());
    let all = splits(a.len(), b.len());
    let (extreme, looked_at, exact) = if all <= MOST_SPLITS {
        (count_splits(&values, b.len(), threshold), all, true)
    } else {
        (1 + count_random_splits(&values, b.len(), threshold), MOST_SPLITS, false)
    };
    let p = extreme as f64 / looked_at as f64;
    Ok(PermutationTest { p, splits: looked_at, exact, smallest_p: smallest })
}

/// C(a + b, a), or `u64::MAX` where it is larger.
fn splits(a: usize, b: usize) -> u64 {
    let (few, all) = (a.min(b) as u128, (a + b) as u128);
    let mut count: u128 = 1;
    for chosen in 0..few {
        count = count * (all - chosen) / (chosen + 1);
        if count > u128::from(u64::MAX) {
            return u64::MAX;
        }
    }
    count as u64
}

/// The smallest p of [`permutation_test`], two-sided: with equal numbers of runs every split has a mirror image.
pub fn smallest_p(a: usize, b: usize) -> f64 {
    let mirrored = if a == b { 2.0 } else { 1.0 };
    match splits(a, b) {
        all if all <= MOST_SPLITS => mirrored / all as f64,
        _ => 1.0 / MOST_SPLITS as f64,
    }
}

/// Sets of `size` values whose sum is at least `threshold` in size.
fn count_splits(values: &[f64], size: usize, threshold: f64) -> u64 {
    fn walk(values: &[f64], left: usize, sum: f64, threshold: f64) -> u64 {
        if left == 0 {
            return u64::from(sum.abs() >= threshold);
        }
        if left == 1 {
            return values.iter().filter(|v| (sum + *v).abs() >= threshold).count() as u64;
        }
        (0..=values.len() - left)
            .map(|first| walk(&values[first + 1..], left - 1, sum + values[first], threshold))
            .sum()
    }
    // The sums of a set and of its complement differ in sign alone: take the smaller.
    walk(values, size.min(values.len() - size), 0.0, threshold)
}

fn count_random_splits(values: &[f64], size: usize, threshold: f64) -> u64 {
    let size = size.min(values.len() - size);
    let ids = [Id::from("permutation"), Id::from(values.len() as u64), Id::from(size as u64)];
    let mut draw = rng::stream(0, Purpose::Resampling, &ids);
    let mut values = values.to_vec();
    let mut count = 0;
    for _ in 0..RANDOM_SPLITS {
        // The first `size` steps of Fisher–Yates make a uniform set.
        for place in 0..size {
            let other = place + draw.below((values.len() - place) as u64) as usize;
            values.swap(place, other);
        }
        count += u64::from(values[..size].iter().sum::<f64>().abs() >= threshold);
    }
    count
}

/// Sign-flip permutation test on the sum of paired differences. The pair is the unit: of problems, the question
/// is about another draw of problems, never about another training run. It is exact over all 2ⁿ flips if there
/// are at most `most`; otherwise it draws `most` − 1 random flips beside the observed one, from a fixed stream.
pub(crate) fn sign_flips_up_to(
    differences: &[f64],
    most: u64,
) -> Result<PermutationTest, StatisticsError> {
    check("a sign-flip test", differences, 1)?;
    let sum: f64 = differences.iter().sum();
    let scale: f64 = differences.iter().map(|value| value.abs()).sum();
    let threshold = sum.abs() - 1e-12 * scale;
    check("a sign-flip test", &[threshold], 1)?;
    // A difference of 0 has no sign to flip.
    let values: Vec<f64> = differences.iter().copied().filter(|value| *value != 0.0).collect();
    let flips = if values.len() < 63 { 1u64 << values.len() } else { u64::MAX };
    if flips <= most {
        let extreme = (0..flips).filter(|signs| flipped(&values, *signs).abs() >= threshold);
        let p = extreme.count() as f64 / flips as f64;
        let smallest_p = if flips == 1 { 1.0 } else { 2.0 / flips as f64 };
        return Ok(PermutationTest { p, splits: flips, exact: true, smallest_p });
    }
    let ids = [Id::from("sign-flip"), Id::from(values.len() as u64)];
    let mut draw = rng::stream(0, Purpose::Resampling, &ids);
    let mut extreme = 1;
    for _ in 1..most {
        // 32 signs from each draw.
        let chunks = values.chunks(32);
        let total: f64 = chunks.map(|chunk| flipped(chunk, draw.below(1 << 32))).sum();
        extreme += u64::from(total.abs() >= threshold);
    }
    let p = extreme as f64 / most as f64;
    Ok(PermutationTest { p, splits: most, exact: false, smallest_p: 1.0 / most as f64 })
}

/// Σ ±vᵢ with the sign of bit i.
fn flipped(values: &[f64], signs: u64) -> f64 {
    let terms = values.iter().enumerate();
    terms.map(|(index, value)| if signs >> index & 1 == 1 { *value } else { -value }).sum()
}

/// Holm's adjusted p-values of one declared family, in the given order: the largest of
/// (m − j + 1) · p₍ⱼ₎ up to a p's place in the sorted list, at most 1. A NaN counts as 1.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let value = |index: usize| if p[index].is_nan() { 1.0 } else { p[index] };
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| value(*a).total_cmp(&value(*b)));
    let mut adjusted = vec![1.0; p.len()];
    let mut largest: f64 = 0.0;
    for (place, index) in order.into_iter().enumerate() {
        largest = largest.max(value(index) * (p.len() - place) as f64).min(1.0);
        adjusted[index] = largest;
    }
    adjusted
}

/// The true difference that a comparison of `n_a` with `n_b` runs finds with probability `power` at a two-sided
/// level `alpha` (for a family of m, α/m is the cautious choice), when runs are normal with standard deviation
/// `sigma`. The result is in sigma's unit. It is the power of the t test (noncentral t, n_a + n_b − 2 degrees
/// of freedom) at the largest level ≤ α that the permutation test can have with so many runs; infinite where
/// there is no such level, or where a side has no run. For reading, never a decision rule.
pub fn minimum_detectable_effect(
    sigma: f64,
    n_a: usize,
    n_b: usize,
    alpha: f64,
    power: f64,
) -> f64 {
    if n_a == 0 || n_b == 0 || n_a + n_b < 3 {
        return f64::INFINITY;
    }
    let spread = (1.0 / n_a as f64 + 1.0 / n_b as f64).sqrt();
    detectable(sigma, spread, (n_a + n_b - 2) as f64, smallest_p(n_a, n_b), (alpha, power))
}

/// [`minimum_detectable_effect`] of the mean of `n` differences, one a block, whose standard deviation is `sigma`:
/// the power of the paired t test at the largest level ≤ α that the flips of n signs can have.
pub fn minimum_detectable_effect_of_blocks(sigma: f64, n: usize, alpha: f64, power: f64) -> f64 {
    if n < 2 {
        return f64::INFINITY;
    }
    let smallest_p = 2.0 / (1u64 << n.min(62)) as f64;
    detectable(sigma, (1.0 / n as f64).sqrt(), (n - 1) as f64, smallest_p, (alpha, power))
}

/// [`minimum_detectable_effect`] of a t test at the level `alpha` itself.
pub fn minimum_detectable_effect_of_t(standard_error: f64, df: f64, alpha: f64, power: f64) -> f64 {
    detectable(standard_error, 1.0, df, alpha, (alpha, power))
}

fn detectable(
    sigma: f64,
    spread: f64,
    df: f64,
    smallest_p: f64,
    (alpha, power): (f64, f64),
) -> f64 {
    let level = attainable_level(smallest_p, alpha);
    let fits = sigma.is_finite() && sigma >= 0.0 && power > 0.0 && power < 1.0;
    if level <= 0.0 || !fits {
        return f64::INFINITY;
    }
    let critical = t_quantile(1.0 - level / 2.0, df);
    let (mut low, mut high) = (0.0, 1.0);
    while t_test_power(high / spread, critical, df) < power {
        (low, high) = (high, high * 2.0);
    }
    // Relative to sigma, to 1e-10.
    while high - low > 1e-10 * high {
        let middle = 0.5 * (low + high);
        if t_test_power(middle / spread, critical, df) < power {
            low = middle
        } else {
            high = middle
        }
    }
    sigma * 0.5 * (low + high)
}

/// The largest multiple of the smallest p that is at most `alpha`.
fn attainable_level(smallest_p: f64, alpha: f64) -> f64 {
    if !(alpha > 0.0 && alpha < 1.0) {
        return 0.0;
    }
    // 0.05 / (2/40) is 1 but for rounding.
    (alpha / smallest_p * (1.0 + 1e-12)).floor() * smallest_p
}

/// P(|T| > `critical`) for a noncentral t with `df` degrees of freedom and noncentrality `shift`.
fn t_test_power(shift: f64, critical: f64, df: f64) -> f64 {
    distributions::over_estimated_deviation(df, |s| {
        distributions::normal_below(shift - critical * s)
            + distributions::normal_below(-shift - critical * s)
    })
}

#[cfg(test)]
mod tests;
