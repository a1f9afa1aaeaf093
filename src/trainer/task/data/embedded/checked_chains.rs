//! Checked chains: `37a+85b+12?`, left to right, every sum modulo 100; letters number the operations. A response
//! writes each sum directly, where it forgets its carry, and may correct it by a check of its digits:
//! `a+85=12?12,12:22;b+12=34;Answer: 34`. Checking all is right and long: under a limit of length a policy has to
//! learn which results need it.

use crate::base::rng::Stream;
use crate::experiment::ChainsVariant;
use crate::experiment::sets::{CHECKED_CHAINS, TRAIN};
use crate::task::DataSets;
use crate::task::data::embedded::{
    DrawnProblem, Embedded, Shares, Solutions, Written, between, draw_outside, evaluated, measured,
    share, shares_of, usual_sets,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Another value is another benchmark.
const SEED: u64 = 20_261_201;

const OPERATIONS: (u64, u64) = (2, 6);
/// Operations of the problems that [`ChainsVariant::Hard`] trains on.
const HARD_OPERATIONS: (u64, u64) = (5, 6);
/// Of the operations whose left digit allows it, those whose units carry.
const CARRY_SHARE: f64 = 0.35;

#[derive(Debug)]
pub struct CheckedChains(pub ChainsVariant);

static HELD_OUT: LazyLock<BTreeSet<String>> =
    LazyLock::new(|| evaluated(&CheckedChains(ChainsVariant::Mixed).sets()));

#[derive(Debug, Clone, PartialEq, Eq)]
struct ChainProblem {
    first: u64,
    operands: Vec<u64>,
}

impl ChainProblem {
    fn draw(operations: (u64, u64), draws: &mut Stream) -> Self {
        let first = between(draws, 10, 99);
        let count = between(draws, operations.0, operations.1);
        let mut value = first;
        let operand = |_| {
            let (tens, units) = (between(draws, 1, 9), value % 10);
            let carries = draws.uniform() < CARRY_SHARE && units > 0;
            let right =
                if carries { between(draws, 10 - units, 9) } else { between(draws, 0, 9 - units) };
            let operand = 10 * tens + right;
            value = sum(value, operand);
            operand
        };
        let operands = (0..count).map(operand).collect();
        Self { first, operands }
    }

    fn question(&self) -> String {
        let operation = |(letter, operand): (char, &u64)| format!("{letter}+{operand}");
        let chain: String = ('a'..).zip(&self.operands).map(operation).collect();
        format!("{}{chain}?", self.first)
    }

    fn answer(&self) -> String {
        format!("{:02}", self.operands.iter().fold(self.first, |value, it| sum(value, *it)))
    }
}

fn sum(value: u64, operand: u64) -> u64 {
    (value + operand) % 100
}

/// What is written without a check: the units' carry is forgotten.
fn direct(value: u64, operand: u64) -> u64 {
    (value / 10 + operand / 10) % 10 * 10 + (value % 10 + operand % 10) % 10
}

/// How a check is written, from the shortest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckForm {
    /// `?1:22`: the carry of the units, the result.
    Brief,
    /// `?12,12:22`: what the units give, what the tens give with the carry, the result.
    Columns,
    /// `?7+5=12,3+8+1=12:22`: the columns with their digits.
    Spelled,
}

fn check(value: u64, operand: u64, form: CheckForm) -> String {
    let (left_tens, left, right_tens, right) = (value / 10, value % 10, operand / 10, operand % 10);
    let units = left + right;
    let carry = units / 10;
    let tens = left_tens + right_tens + carry;
    let carried = if carry == 1 { "+1" } else { "" };
    let work = match form {
        CheckForm::Brief => carry.to_string(),
        CheckForm::Columns => format!("{units},{tens}"),
        CheckForm::Spelled => {
            format!("{left}+{right}={units},{left_tens}+{right_tens}{carried}={tens}")
        }
    };
    format!("?{work}:{:02}", sum(value, operand))
}

/// Whether an operation's direct result is right, how often it was checked, and whether the result after the last
/// check is right; all given the value before it as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WrittenOperation {
    direct_right: bool,
    checks: usize,
    right: bool,
}

/// The operations of a response up to the first that is not well formed.
fn read(question: &str, response: &str) -> Vec<WrittenOperation> {
    let start = question.find(|it: char| !it.is_ascii_digit()).unwrap_or(question.len());
    let mut written = Vec::new();
    // What follows the last `;` is the answer, or was cut.
    let (Ok(mut value), Some((work, _))) = (question[..start].parse(), response.rsplit_once(';'))
    else {
        return written;
    };
    for (letter, text) in ('a'..).zip(work.split(';')) {
        let parsed = text.strip_prefix(letter).and_then(|text| {
            let (operand, results) = text.strip_prefix('+')?.split_once('=')?;
            let mut results = results.split('?');
            let direct = two_digits(results.next()?)?;
            let checks: Vec<&str> = results.collect();
            let last = match checks.last() {
                Some(check) => two_digits(check.rsplit_once(':')?.1)?,
                None => direct,
            };
            let truth = sum(value, two_digits(operand)?);
            value = last;
            let (direct_right, right) = (direct == truth, last == truth);
            Some(WrittenOperation { direct_right, checks: checks.len(), right })
        });
        let Some(operation) = parsed else { break };
        written.push(operation);
    }
    written
}

fn two_digits(text: &str) -> Option<u64> {
    let digits = text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

const SHARES: [&str; 6] = ["again", "brief", "check_right", "check_wrong", "repeat", "spelled"];

impl Solutions for CheckedChains {
    fn characters(&self) -> String {
        "0123456789+=;?,: Answerabcdf".to_string()
    }

    /// `check_wrong`, `check_right`: that such a direct result is checked; `repeat`: that a check is written once more,
    /// `again` that it is after that; `brief`, `spelled`: that it has this form.
    fn shares(&self) -> &'static [&'static str] {
        &SHARES
    }

    fn write(&self, shares: &Shares, max_characters: usize, draws: &mut Stream) -> Written {
        let [again, brief, check_right, check_wrong, repeat, spelled] = shares_of(shares, SHARES);
        let draw = || ChainProblem::draw(OPERATIONS, draws);
        let (problem, question) = draw_outside(&HELD_OUT, draw, ChainProblem::question);
        let (mut value, mut text) = (problem.first, String::new());
        for (letter, &operand) in ('a'..).zip(&problem.operands) {
            let truth = sum(value, operand);
            let mut written = direct(value, operand);
            text += &format!("{letter}+{operand}={written:02}");
            let checked = if written == truth { check_right } else { check_wrong };
            if draws.uniform() < checked {
                let form = match draws.uniform() {
                    drawn if drawn < brief => CheckForm::Brief,
                    drawn if drawn < brief + spelled => CheckForm::Spelled,
                    _ => CheckForm::Columns,
                };
                let check = check(value, operand, form);
                text += &check;
                written = truth;
                let mut more = draws.uniform() < repeat;
                while more && text.len() < max_characters {
                    text += &check;
                    more = draws.uniform() < again;
                }
            }
            text.push(';');
            value = written;
        }
        text += &format!("Answer: {value:02}");
        Written::cut(question, &text, max_characters)
    }
}

impl Embedded for CheckedChains {
    fn sets(&self) -> DataSets {
        usual_sets(CHECKED_CHAINS, [256, 64, 8192], SEED, |set, draws| {
            let operations = match self.0 {
                ChainsVariant::Hard if set == TRAIN => HARD_OPERATIONS,
                ChainsVariant::Hard | ChainsVariant::Mixed => OPERATIONS,
            };
            let problem = ChainProblem::draw(operations, draws);
            let tags = vec![format!("{} operations", problem.operands.len())];
            DrawnProblem { question: problem.question(), answer: problem.answer(), tags }
        })
    }

    /// `style_checked_share` of all operations, `style_checked_wrong_share` and `style_checked_right_share` of those
    /// with such a direct result; of those checked `style_repeated_share`, and `style_corrected_share` that are right
    /// after it; `decisions_mean`, the operations and repetitions of a response.
    fn measures(&self, responses: &[(&str, &str)]) -> BTreeMap<String, f64> {
        let operations: Vec<WrittenOperation> =
            responses.iter().flat_map(|(question, response)| read(question, response)).collect();
        type Case = fn(&WrittenOperation) -> bool;
        let (any, checked): (Case, Case) = (|_| true, |written| written.checks > 0);
        let (right, wrong): (Case, Case) =
            (|written| written.direct_right, |written| !written.direct_right);
        let (repeated, corrected): (Case, Case) =
            (|written| written.checks > 1, |written| written.right);
        let of = |of: Case, has: Case| {
            share(operations.iter().filter(|operation| of(operation)).map(has))
        };
        let decisions: usize = operations.iter().map(|operation| operation.checks.max(1)).sum();
        measured([
            ("style_checked_share", of(any, checked)),
            ("style_checked_wrong_share", of(wrong, checked)),
            ("style_checked_right_share", of(right, checked)),
            ("style_repeated_share", of(checked, repeated)),
            ("style_corrected_share", of(checked, corrected)),
            ("decisions_mean", Some(decisions as f64 / responses.len() as f64)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Purpose, rng};
    use crate::task::data;

    fn shares(values: [f64; 6]) -> Shares {
        SHARES.iter().map(|name| name.to_string()).zip(values).collect()
    }

    fn written(values: [f64; 6], count: u64) -> Vec<Written> {
        let stream = |index: u64| rng::stream(1, Purpose::Pretraining, &[index.into()]);
        let write = |index| {
            CheckedChains(ChainsVariant::Mixed).write(&shares(values), 400, &mut stream(index))
        };
        (0..count).map(write).collect()
    }

    /// From the text alone.
    fn answer(question: &str) -> i64 {
        let chain = question.strip_suffix('?').unwrap();
        chain
            .split(|character: char| !character.is_ascii_digit())
            .filter_map(|digits| digits.parse::<i64>().ok())
            .sum::<i64>()
            % 100
    }

    #[test]
    fn a_check_reads_as_documented_and_its_columns_spell_the_result() {
        let forms = [CheckForm::Brief, CheckForm::Columns, CheckForm::Spelled];
        assert_eq!(
            forms.map(|form| check(37, 85, form)),
            ["?1:22", "?12,12:22", "?7+5=12,3+8+1=12:22"]
        );
        for (value, operand) in
            (0..100).flat_map(|value| (10..100).map(move |operand| (value, operand)))
        {
            let columns = check(value, operand, CheckForm::Columns);
            let last = |text: &str| text.chars().last().unwrap();
            let (work, result) = columns.split_once(':').unwrap();
            let (units, tens) = work.split_once(',').unwrap();
            let spelled: String = [tens, units].map(last).iter().collect();
            assert_eq!(spelled, result, "{columns}");
            assert_eq!(result, format!("{:02}", sum(value, operand)));
        }
    }

    #[test]
    fn what_is_checked_is_right_and_what_is_not_forgets_its_carries() {
        for Written { question, solution, ends } in written([0.0, 0.0, 1.0, 1.0, 0.0, 0.0], 300) {
            assert!(ends && solution.len() < 110, "{solution}");
            let last = solution.rsplit("Answer: ").next().unwrap();
            assert_eq!(last.parse(), Ok(answer(&question)), "{question} {solution}");
        }
        let unchecked = written([0.0; 6], 300);
        let right = |written: &&Written| {
            let operations = read(&written.question, &written.solution);
            assert_eq!(operations.len(), written.question.matches('+').count());
            operations.iter().all(|operation| operation.right)
        };
        let right = unchecked.iter().filter(right).count();
        assert!((40..110).contains(&right), "{right} of 300");
    }

    #[test]
    fn measures_count_checks_by_whether_they_were_needed() {
        let question = "37a+85b+12?";
        let responses = [
            // Wrong and not checked; right and checked twice.
            (question, "a+85=12;b+12=24?4,2:24?4,2:24;Answer: 24"),
            // Wrong, checked, corrected; right and not checked.
            (question, "a+85=12?12,12:22;b+12=34;Answer: 34"),
            // Cut in the second operation.
            (question, "a+85=12?12,12:12;b+1"),
        ];
        let measured = CheckedChains(ChainsVariant::Mixed).measures(&responses);
        for (name, value) in [
            ("style_checked_share", 3.0 / 5.0),
            ("style_checked_wrong_share", 2.0 / 3.0),
            ("style_checked_right_share", 1.0 / 2.0),
            ("style_repeated_share", 1.0 / 3.0),
            ("style_corrected_share", 2.0 / 3.0),
            ("decisions_mean", 2.0),
        ] {
            assert!((measured[name] - value).abs() < 1e-12, "{name}: {}", measured[name]);
        }
        let none = CheckedChains(ChainsVariant::Mixed).measures(&[(question, "b+85=1:")]);
        assert_eq!(none.into_iter().collect::<Vec<_>>(), [("decisions_mean".to_string(), 0.0)]);
    }

    /// A change here is another benchmark.
    #[test]
    fn the_problems_are_pinned_right_and_disjoint() {
        let mut digests = Vec::new();
        for variant in [ChainsVariant::Mixed, ChainsVariant::Hard] {
            let sets = CheckedChains(variant).sets();
            let mut questions = BTreeSet::new();
            for problem in sets.train.iter().chain(&sets.dev).chain(&sets.tests[0].1) {
                assert_eq!(problem.answer.parse(), Ok(answer(&problem.question)), "{problem:?}");
                assert!(questions.insert(&problem.question) && problem.question.len() < 28);
            }
            let parts = [&sets.train, &sets.dev, &sets.tests[0].1];
            digests.push(parts.map(|problems| data::digest(problems)));
            assert_eq!(sets.tags["dev"].len(), 64);
        }
        assert_eq!(digests[0][1..], digests[1][1..]);
        insta::assert_debug_snapshot!(digests);
    }
}
