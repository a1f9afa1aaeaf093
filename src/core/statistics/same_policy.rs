//! Tests whether an evaluation can be of the same policy as others on the same problems, when every
//! sample is an independent draw.

/// Chances below this are left out.
const NEGLIGIBLE: f64 = 1e-30;

/// Two-sided exact p of one evaluation's total of correct samples, given each problem's total over
/// all evaluations.
///
/// `one` and every member of `others` hold c_i, the correct ones of `samples` samples, in the same
/// order of problems. If all are of one policy, each c_i of `one` is hypergeometric: `samples`
/// draws out of a problem's pooled samples. The distribution of the sum over problems is then
/// known, whatever the problems' accuracies are, and p < α has a probability of at most α. Problems
/// that all evaluations solved in every sample, or in none, carry no information.
///
/// # Panics
/// When the lists differ in length.
pub fn two_sided_p(one: &[u64], others: &[&[u64]], samples: u64) -> f64 {
    let population = samples * (others.len() as u64 + 1);
    let logs = log_factorials(population);
    let mut sums = SamePolicyCounts { first: 0, chances: vec![1.0] };
    for (problem, own) in one.iter().enumerate() {
        let total = own + others.iter().map(|other| other[problem]).sum::<u64>();
        let (low, high) = ((total + samples).saturating_sub(population), total.min(samples));
        let chance = |c| chance(c, total, population, samples, &logs);
        sums = sums.plus(
            &SamePolicyCounts { first: low, chances: (low..=high).map(chance).collect() }.cut(),
        );
    }
    let sum: u64 = one.iter().sum();
    let share = |side: &dyn Fn(u64) -> bool| -> f64 {
        let counts = (sums.first..).zip(&sums.chances);
        counts.filter(|(count, _)| side(*count)).map(|(_, chance)| chance).sum()
    };
    (2.0 * share(&|count| count <= sum).min(share(&|count| count >= sum))).min(1.0)
}

/// C(total, c) · C(population − total, samples − c) / C(population, samples).
fn chance(c: u64, total: u64, population: u64, samples: u64, logs: &[f64]) -> f64 {
    let choose = |n: u64, k: u64| logs[n as usize] - logs[k as usize] - logs[(n - k) as usize];
    let ways = choose(total, c) + choose(population - total, samples - c);
    libm::exp(ways - choose(population, samples))
}

/// ln n! for n = 0…`last`.
fn log_factorials(last: u64) -> Vec<f64> {
    let mut logs = vec![0.0];
    for n in 1..=last {
        logs.push(logs[n as usize - 1] + libm::log(n as f64));
    }
    logs
}

struct SamePolicyCounts {
    first: u64,
    chances: Vec<f64>,
}

impl SamePolicyCounts {
    /// Drops the negligible ends, which would make large sets slow.
    fn cut(mut self) -> Self {
        let matters = |chance: &f64| *chance > NEGLIGIBLE;
        let first = self.chances.iter().position(matters).unwrap_or(0);
        let last = self.chances.iter().rposition(matters).unwrap_or(0);
        self.chances.truncate(last + 1);
        self.chances.drain(..first);
        Self { first: self.first + first as u64, chances: self.chances }
    }

    fn plus(&self, other: &Self) -> Self {
        let mut chances = vec![0.0; self.chances.len() + other.chances.len() - 1];
        for (i, left) in self.chances.iter().enumerate() {
            for (j, right) in other.chances.iter().enumerate() {
                chances[i + j] += left * right;
            }
        }
        Self { first: self.first + other.first, chances }.cut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Purpose;
    use crate::base::rng::{Id, stream};

    #[test]
    fn one_problem_is_fishers_exact_test() {
        // 3 of 4 against 1 of 4: P(c ≥ 3) = (16 + 1) / 70, as in Fisher's tea tasting.
        assert!((two_sided_p(&[3], &[&[1]], 4) - 2.0 * 17.0 / 70.0).abs() < 1e-12);
        assert!((two_sided_p(&[4], &[&[0]], 4) - 2.0 / 70.0).abs() < 1e-12);
    }

    #[test]
    fn problems_that_are_always_or_never_solved_say_nothing() {
        assert_eq!(two_sided_p(&[4, 0], &[&[4, 0], &[4, 0]], 4), 1.0);
        let with = two_sided_p(&[3, 4, 0], &[&[1, 4, 0]], 4);
        assert!((with - two_sided_p(&[3], &[&[1]], 4)).abs() < 1e-12);
    }

    #[test]
    fn p_is_below_alpha_at_most_as_often_as_alpha_says() {
        let accuracy = |problem: u64| problem as f64 / 20.0;
        let draw = |run: u64| -> Vec<u64> {
            let mut draws = stream(run, Purpose::Generate, &[Id::Number(5)]);
            let count = |p: f64, draws: &mut crate::base::rng::Stream| {
                (0..4).filter(|_| draws.uniform() < p).count() as u64
            };
            (0..20).map(|problem| count(accuracy(problem), &mut draws)).collect()
        };
        let p = |run: u64| {
            let all: Vec<Vec<u64>> = (0..4).map(|set| draw(4 * run + set)).collect();
            let others: Vec<&[u64]> = all[1..].iter().map(Vec::as_slice).collect();
            two_sided_p(&all[0], &others, 4)
        };
        let small = (0..2000).filter(|run| p(*run) < 0.05).count();
        // 0.05 · 2000 = 100, with a standard deviation below 10.
        assert!((40..=130).contains(&small), "{small}");
    }
}
