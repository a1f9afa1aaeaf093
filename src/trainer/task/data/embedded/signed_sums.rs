//! Signed sums: `7,3,12,5=11?` asks for the signs that make the first number and the signed others the
//! target; exactly one pattern does. A response tries patterns until one reaches the target, which stands
//! beside each result, or gives up: `7-3=4+12=16+5=21:11;7-3=4+12=16-5=11:11.Answer: -+-`.

use crate::base::rng::Stream;
use crate::experiment::sets::SIGNED_SUMS;
use crate::task::DataSets;
use crate::task::data::embedded::{
    DrawnProblem, Embedded, Shares, Solutions, Written, between, draw_outside, evaluated, measured,
    share, shares_of, usual_sets,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Another value is another benchmark.
const SEED: u64 = 20_261_202;

const NUMBERS: (u64, u64) = (3, 5);
const LARGEST: u64 = 9;

#[derive(Debug)]
pub struct SignedSums;

static HELD_OUT: LazyLock<BTreeSet<String>> = LazyLock::new(|| evaluated(&SignedSums.sets()));

#[derive(Debug, Clone, PartialEq, Eq)]
struct SumProblem {
    numbers: Vec<i64>,
    /// The pattern that reaches the target: bit `i` is set where number `i + 1` is subtracted.
    solution: u32,
}

impl SumProblem {
    fn draw(draws: &mut Stream) -> Self {
        loop {
            let count = between(draws, NUMBERS.0, NUMBERS.1);
            let numbers: Vec<i64> = (0..count).map(|_| between(draws, 1, LARGEST) as i64).collect();
            let patterns = 1u32 << (count - 1);
            let solution = draws.below(patterns.into()) as u32;
            let drawn = Self { numbers, solution };
            let target = drawn.total(solution);
            let reaching = (0..patterns).filter(|pattern| drawn.total(*pattern) == target);
            if reaching.count() == 1 {
                return drawn;
            }
        }
    }

    fn total(&self, pattern: u32) -> i64 {
        self.running(pattern).last().map_or(self.numbers[0], |(_, _, total)| total)
    }

    /// Each further number with its sign and the sum up to it.
    fn running(&self, pattern: u32) -> impl Iterator<Item = (char, i64, i64)> {
        let further = self.numbers[1..].iter().enumerate();
        further.scan(self.numbers[0], move |total, (index, &number)| {
            let minus = pattern >> index & 1 == 1;
            *total += if minus { -number } else { number };
            Some((if minus { '-' } else { '+' }, number, *total))
        })
    }

    fn question(&self) -> String {
        let numbers: Vec<String> = self.numbers.iter().map(i64::to_string).collect();
        format!("{}={}?", numbers.join(","), self.total(self.solution))
    }

    fn signs(&self, pattern: u32) -> String {
        self.running(pattern).map(|(sign, ..)| sign).collect()
    }

    /// `7-3=4+12=16-5=11:11.`
    fn attempt(&self, pattern: u32) -> String {
        let step = |(sign, number, total)| format!("{sign}{number}={total}");
        let sums: String = self.running(pattern).map(step).collect();
        let end = if pattern == self.solution { '.' } else { ';' };
        format!("{}{sums}:{}{end}", self.numbers[0], self.total(self.solution))
    }
}

const SHARES: [&str; 1] = ["give_up"];

impl Solutions for SignedSums {
    fn characters(&self) -> String {
        "0123456789+-=;?,:. Answer".to_string()
    }

    /// `give_up`: that the signs of a failed attempt are answered.
    fn shares(&self) -> &'static [&'static str] {
        &SHARES
    }

    fn write(&self, shares: &Shares, max_characters: usize, draws: &mut Stream) -> Written {
        let [give_up] = shares_of(shares, SHARES);
        let (problem, question) =
            draw_outside(&HELD_OUT, || SumProblem::draw(draws), SumProblem::question);
        let mut text = String::new();
        let pattern = loop {
            let pattern = draws.below(1 << (problem.numbers.len() - 1)) as u32;
            text += &problem.attempt(pattern);
            let ends = pattern == problem.solution || text.len() > max_characters;
            if ends || draws.uniform() < give_up {
                break pattern;
            }
        };
        text += &format!("Answer: {}", problem.signs(pattern));
        Written::cut(question, &text, max_characters)
    }
}

impl Embedded for SignedSums {
    fn sets(&self) -> DataSets {
        usual_sets(SIGNED_SUMS, [256, 64, 8192], SEED, |_, draws| {
            let problem = SumProblem::draw(draws);
            let (question, answer) = (problem.question(), problem.signs(problem.solution));
            let tags = vec![format!("{} numbers", problem.numbers.len())];
            DrawnProblem { question, answer, tags }
        })
    }

    /// `style_stopped_share`: of attempts whose written sum is the target, those that say so and are the last;
    /// `style_gave_up_share`: of the others, those that an answer follows; `decisions_mean`: attempts of a response.
    fn measures(&self, responses: &[(&str, &str)]) -> BTreeMap<String, f64> {
        let (mut stopped, mut gave_up, mut attempts) = (Vec::new(), Vec::new(), 0);
        for (question, response) in responses {
            let target = question.trim_end_matches('?').rsplit('=').next().unwrap_or_default();
            let (work, answered) = match response.split_once("Answer") {
                Some((work, _)) => (work, true),
                None => (*response, false),
            };
            // What follows the last mark was cut.
            let written: Vec<&str> = work.split_inclusive(['.', ';']).collect();
            for (index, attempt) in written.iter().enumerate() {
                let Some(sum) = attempt.strip_suffix(['.', ';']) else { continue };
                attempts += 1;
                let sum = sum.split(':').next().and_then(|sums| sums.rsplit('=').next());
                let last = answered && index + 1 == written.len();
                if sum == Some(target) {
                    stopped.push(last && attempt.ends_with('.'))
                } else {
                    gave_up.push(last)
                }
            }
        }
        measured([
            ("style_stopped_share", share(stopped.into_iter())),
            ("style_gave_up_share", share(gave_up.into_iter())),
            ("decisions_mean", Some(f64::from(attempts) / responses.len() as f64)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Purpose, rng};
    use crate::task::data;

    #[test]
    fn an_attempt_reads_as_documented() {
        let problem = SumProblem { numbers: vec![7, 3, 12, 5], solution: 0b101 };
        assert_eq!(problem.question(), "7,3,12,5=11?");
        assert_eq!(problem.signs(problem.solution), "-+-");
        assert_eq!(problem.attempt(0b001), "7-3=4+12=16+5=21:11;");
        assert_eq!(problem.attempt(0b101), "7-3=4+12=16-5=11:11.");
    }

    #[test]
    fn a_solution_stops_at_success_and_gives_up_as_often_as_it_says() {
        let (mut failed, mut solved) = (0, 0);
        for index in 0..2000u64 {
            let mut draws = rng::stream(1, Purpose::Pretraining, &[index.into()]);
            let shares = Shares::from([("give_up".to_string(), 0.12)]);
            let Written { question, solution, ends } = SignedSums.write(&shares, 5000, &mut draws);
            assert!(ends, "{question} {solution}");
            solved += usize::from(solution.contains('.'));
            failed += solution.matches(';').count();
            let measured = SignedSums.measures(&[(&question, &solution)]);
            assert_ne!(measured.get("style_stopped_share"), Some(&0.0), "{question} {solution}");
        }
        let given_up = 2000 - solved;
        assert!((given_up as f64 / failed as f64 - 0.12).abs() < 0.02, "{given_up} of {failed}");
    }

    #[test]
    fn measures_count_what_follows_success_and_failure() {
        let question = "7,3,12,5=11?";
        let responses = [
            (question, "7-3=4+12=16+5=21:11;7-3=4+12=16-5=11:11.Answer: -+-"),
            (question, "7+3=10+12=22-5=17:11;Answer: ++-"),
            // The target is reached and not seen, and the response is cut.
            (question, "7-3=4+12=16-5=11:11;7-3=4+12"),
        ];
        let measured = SignedSums.measures(&responses);
        let expected = [
            ("decisions_mean", 4.0 / 3.0),
            ("style_gave_up_share", 0.5),
            ("style_stopped_share", 0.5),
        ];
        let expected = expected.map(|(name, value)| (name.to_string(), value));
        assert_eq!(measured.into_iter().collect::<Vec<_>>(), expected);
    }

    /// A change here is another benchmark.
    #[test]
    fn the_problems_are_pinned_and_have_one_solution() {
        let sets = SignedSums.sets();
        let reached = |question: &str| {
            let (numbers, target) = question.trim_end_matches('?').split_once('=').unwrap();
            let mut sums: Vec<i64> = vec![0];
            for (index, number) in numbers.split(',').enumerate() {
                let number: i64 = number.parse().unwrap();
                let signs: &[i64] = if index == 0 { &[1] } else { &[1, -1] };
                sums = sums
                    .iter()
                    .flat_map(|sum| signs.iter().map(move |sign| sum + sign * number))
                    .collect();
            }
            let target: i64 = target.parse().unwrap();
            sums.iter().filter(|sum| **sum == target).count()
        };
        for problem in sets.train.iter().chain(&sets.dev).chain(&sets.tests[0].1) {
            assert_eq!(reached(&problem.question), 1, "{problem:?}");
        }
        let parts = [&sets.train, &sets.dev, &sets.tests[0].1];
        insta::assert_debug_snapshot!(parts.map(|problems| data::digest(problems)));
    }
}
