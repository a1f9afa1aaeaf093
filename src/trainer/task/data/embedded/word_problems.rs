//! Word problems for a model that reads English, of one or two steps with numbers below 50: `Ben has 8 boxes with 7
//! pens in each and gives away 39. How many pens are left?` is answered by `8 * 7 = 56. 56 - 39 = 17. Answer: 17`.

use crate::base::rng::Stream;
use crate::experiment::sets::WORD_PROBLEMS;
use crate::task::DataSets;
use crate::task::data::embedded::{
    DrawnProblem, Embedded, Shares, Solutions, Written, between, check_relative, draw_outside,
    drawn_by_share, evaluated, shares_of, usual_sets,
};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Another value is another benchmark.
const SEED: u64 = 20_261_203;

const LARGEST: u64 = 49;
const LARGEST_FACTOR: u64 = 9;

#[derive(Debug, Deserialize)]
struct WordKind {
    name: String,
    signs: String,
    wordings: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Words {
    names: Vec<String>,
    things: Vec<String>,
    kinds: Vec<WordKind>,
}

static WORDS: LazyLock<Words> =
    LazyLock::new(|| toml::from_str(include_str!("word_problems.toml")).expect("a table of words"));

#[derive(Debug)]
pub struct WordProblems;

static HELD_OUT: LazyLock<BTreeSet<String>> = LazyLock::new(|| evaluated(&WordProblems.sets()));

/// One step: the value before it, its sign, the other number, and the value after it.
type WordStep = (u64, char, u64, u64);

#[derive(Debug, Clone)]
struct WordProblem {
    kind: &'static WordKind,
    question: String,
    steps: Vec<WordStep>,
}

/// `None` where the result is no integer from 0 on.
fn result(value: u64, sign: char, number: u64) -> Option<u64> {
    match sign {
        '+' => value.checked_add(number),
        '-' => value.checked_sub(number),
        '*' => value.checked_mul(number),
        _ => value.is_multiple_of(number).then(|| value / number),
    }
}

fn chosen<'a, T>(all: &'a [T], draws: &mut Stream) -> &'a T {
    &all[draws.below(all.len() as u64) as usize]
}

impl WordProblem {
    fn draw(draws: &mut Stream) -> Self {
        let kind = chosen(&WORDS.kinds, draws);
        let (first, steps) = loop {
            let largest = |sign| if "*/".contains(sign) { LARGEST_FACTOR } else { LARGEST };
            let most = if kind.signs.starts_with('*') { LARGEST_FACTOR } else { LARGEST };
            let first = between(draws, 2, most);
            let operands: Vec<(char, u64)> =
                kind.signs.chars().map(|sign| (sign, between(draws, 2, largest(sign)))).collect();
            let steps = operands.into_iter().scan(Some(first), |value, (sign, number)| {
                let before = (*value)?;
                *value = result(before, sign, number);
                Some(value.map(|after| (before, sign, number, after)))
            });
            if let Some(steps) = steps.collect::<Option<Vec<WordStep>>>() {
                break (first, steps);
            }
        };
        let mut question = chosen(&kind.wordings, draws)
            .replace("{n}", chosen::<String>(&WORDS.names, draws))
            .replace("{t}", chosen::<String>(&WORDS.things, draws));
        let numbers = std::iter::once(first).chain(steps.iter().map(|step| step.2));
        for (place, number) in ["{a}", "{b}", "{c}"].into_iter().zip(numbers) {
            question = question.replace(place, &number.to_string());
        }
        Self { kind, question, steps }
    }

    fn answer(&self) -> String {
        self.steps.last().map_or_else(String::new, |step| step.3.to_string())
    }

    fn tags(&self) -> Vec<String> {
        let steps = if self.steps.len() == 1 { "one step" } else { "two steps" };
        vec![self.kind.name.clone(), steps.to_string()]
    }

    fn solution(&self, form: SolutionForm) -> String {
        let answer = format!("Answer: {}", self.answer());
        let step = |&(before, sign, number, after): &WordStep| match form {
            SolutionForm::Direct => String::new(),
            SolutionForm::Equations => format!("{before} {sign} {number} = {after}. "),
            SolutionForm::Lines => format!("{before} {sign} {number} = {after}\n"),
            SolutionForm::Words => format!("{before} {} {number} is {after}. ", word(sign)),
        };
        self.steps.iter().map(step).collect::<String>() + &answer
    }
}

fn word(sign: char) -> &'static str {
    match sign {
        '+' => "plus",
        '-' => "minus",
        '*' => "times",
        _ => "divided by",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SolutionForm {
    /// `Answer: 17` at once.
    Direct,
    /// `8 * 7 = 56. 56 - 39 = 17. Answer: 17`
    Equations,
    /// The same, one equation a line.
    Lines,
    /// `8 times 7 is 56. 56 minus 39 is 17. Answer: 17`
    Words,
}

const FORMS: [&str; 4] = ["direct", "equations", "lines", "words"];

impl SolutionForm {
    const ALL: [Self; 4] = [Self::Direct, Self::Equations, Self::Lines, Self::Words];

    fn of(response: &str) -> Option<Self> {
        let (work, _) = response.split_once("Answer:")?;
        let in_words = [" plus ", " minus ", " times ", " divided by "];
        match (work.trim().is_empty(), work.contains('='), work.contains('\n')) {
            (true, ..) => Some(Self::Direct),
            (_, true, true) => Some(Self::Lines),
            (_, true, false) => Some(Self::Equations),
            _ => in_words.iter().any(|operator| work.contains(operator)).then_some(Self::Words),
        }
    }
}

impl Solutions for WordProblems {
    fn characters(&self) -> String {
        let solutions = ["0123456789+-*/=.,:? \n", "Answer plus minus times divided by is"];
        let Words { names, things, kinds } = &*WORDS;
        let wordings = kinds.iter().flat_map(|kind| &kind.wordings);
        let words = names.iter().chain(things).chain(wordings).map(String::as_str);
        let characters = solutions.into_iter().chain(words).flat_map(str::chars);
        characters.filter(|character| !"{}".contains(*character)).collect()
    }

    fn shares(&self) -> &'static [&'static str] {
        &FORMS
    }

    fn check(&self, shares: &Shares) -> Result<(), String> {
        check_relative(&shares_of(shares, FORMS))
    }

    /// Every solution ends, whatever `max_characters` is; the longest has 50.
    fn write(&self, shares: &Shares, _max_characters: usize, draws: &mut Stream) -> Written {
        let form = SolutionForm::ALL[drawn_by_share(&shares_of(shares, FORMS), draws.uniform())];
        let asked = |problem: &WordProblem| problem.question.clone();
        let (problem, question) = draw_outside(&HELD_OUT, || WordProblem::draw(draws), asked);
        Written { question, solution: problem.solution(form), ends: true }
    }
}

impl Embedded for WordProblems {
    fn sets(&self) -> DataSets {
        usual_sets(WORD_PROBLEMS, [400, 200, 5000], SEED, |_, draws| {
            let problem = WordProblem::draw(draws);
            let (answer, tags) = (problem.answer(), problem.tags());
            DrawnProblem { question: problem.question, answer, tags }
        })
    }

    /// `style_NAME_share` of each form, and of responses in none of them: `other`.
    fn measures(&self, responses: &[(&str, &str)]) -> BTreeMap<String, f64> {
        let mut counts: BTreeMap<&str, f64> =
            FORMS.iter().chain(&["other"]).map(|name| (*name, 0.0)).collect();
        for (_, response) in responses {
            let form = SolutionForm::of(response);
            *counts.entry(form.map_or("other", |form| FORMS[form as usize])).or_default() += 1.0;
        }
        let share = |(name, count)| (format!("style_{name}_share"), count / responses.len() as f64);
        counts.into_iter().map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Problem;
    use crate::base::{Purpose, rng};
    use crate::experiment::Verifier;
    use crate::task::{data, reward};

    fn drawn(count: u64) -> impl Iterator<Item = WordProblem> {
        (0..count).map(|index| {
            WordProblem::draw(&mut rng::stream(1, Purpose::Pretraining, &[index.into()]))
        })
    }

    fn numbers(text: &str) -> Vec<u64> {
        let parts = text.split(|it: char| !it.is_ascii_digit());
        parts.filter_map(|part| part.parse().ok()).collect()
    }

    #[test]
    fn the_forms_of_one_solution_read_as_documented_and_are_recognised() {
        let problem = WordProblem {
            kind: &WORDS.kinds[8],
            question: String::new(),
            steps: vec![(8, '*', 7, 56), (56, '-', 39, 17)],
        };
        let texts = SolutionForm::ALL.map(|form| problem.solution(form));
        assert_eq!(
            texts,
            [
                "Answer: 17",
                "8 * 7 = 56. 56 - 39 = 17. Answer: 17",
                "8 * 7 = 56\n56 - 39 = 17\nAnswer: 17",
                "8 times 7 is 56. 56 minus 39 is 17. Answer: 17",
            ]
        );
        for problem in drawn(500) {
            for form in SolutionForm::ALL {
                assert_eq!(SolutionForm::of(&problem.solution(form)), Some(form), "{problem:?}");
            }
        }
        for other in ["", "8 * 7 = 56", "There are 17. Answer: 17"] {
            assert_eq!(SolutionForm::of(other), None, "{other}");
        }
    }

    #[test]
    fn every_written_solution_is_graded_right_and_no_question_is_an_evaluated_one() {
        let shares: Shares = FORMS.map(|name| (name.to_string(), 1.0)).into();
        let (alphabet, mut forms) = (WordProblems.characters(), BTreeSet::new());
        for index in 0..4000u64 {
            let mut draws = rng::stream(1, Purpose::Pretraining, &[index.into()]);
            let Written { question, solution, ends } = WordProblems.write(&shares, 48, &mut draws);
            // The result of the last step, from the text alone.
            let answer = numbers(&solution).pop().unwrap().to_string();
            let grade = reward::grade(&solution, &answer, Verifier::AnswerLine);
            assert!(ends && grade.is_correct && solution.len() <= 50, "{solution}");
            assert!(!HELD_OUT.contains(&question), "{question}");
            assert!(
                (question.clone() + &solution)
                    .chars()
                    .all(|character| alphabet.contains(character))
            );
            forms.insert(SolutionForm::of(&solution).map(|form| form as usize));
        }
        assert_eq!(forms.len(), 4);
    }

    #[test]
    fn each_kind_has_its_steps_and_its_numbers_in_the_order_of_the_question() {
        let mut kinds: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for problem in drawn(4000) {
            let stated = numbers(&problem.question);
            assert!(stated.iter().all(|number| (2..50).contains(number)), "{problem:?}");
            let mut value = stated[0];
            for ((sign, number), step) in
                problem.kind.signs.chars().zip(&stated[1..]).zip(&problem.steps)
            {
                let after = match sign {
                    '+' => value + number,
                    '-' => value - number,
                    '*' => value * number,
                    _ => value / number,
                };
                assert_eq!(*step, (value, sign, *number, after), "{problem:?}");
                value = after;
            }
            assert_eq!(problem.answer(), value.to_string());
            assert!(!problem.question.contains(['{', '}']), "{problem:?}");
            let steps = problem.steps.len();
            assert_eq!(problem.tags()[1] == "two steps", steps == 2, "{problem:?}");
            kinds.entry(&problem.kind.name).or_default().insert(problem.tags()[1].clone());
        }
        assert_eq!(kinds.len(), WORDS.kinds.len());
        assert!(kinds.values().all(|steps| steps.len() == 1), "{kinds:?}");
    }

    #[test]
    fn measures_are_shares_of_the_forms() {
        let response = |text| ("", text);
        let responses =
            ["Answer: 2", "1 + 1 = 2. Answer: 2", "1 + 1 = 3. Answer: 3", "I think"].map(response);
        let measured: Vec<f64> = WordProblems.measures(&responses).into_values().collect();
        // direct, equations, lines, other, words
        assert_eq!(measured, [0.25, 0.5, 0.0, 0.25, 0.0]);
    }

    /// A change here is another benchmark.
    #[test]
    fn the_problems_are_pinned_disjoint_and_tagged() {
        let sets = WordProblems.sets();
        let parts = [&sets.train, &sets.dev, &sets.tests[0].1];
        assert_eq!(parts.map(Vec::len), [5000, 200, 400]);
        let all = parts.into_iter().flatten();
        let questions: BTreeSet<&String> = all.map(|problem| &problem.question).collect();
        assert_eq!(questions.len(), 5600);
        for (name, problems) in sets.evaluated() {
            assert!(problems.iter().all(|problem| sets.tags[name][&problem.id].len() == 2));
        }
        let shown =
            |problem: &Problem| format!("{} {} {}", problem.id, problem.question, problem.answer);
        let first = parts.map(|problems| problems[..4].iter().map(shown).collect::<Vec<_>>());
        insta::assert_debug_snapshot!((first, parts.map(|problems| data::digest(problems))));
    }
}
