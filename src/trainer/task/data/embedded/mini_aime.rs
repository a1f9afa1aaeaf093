//! mini-AIME, the embedded benchmark: chains such as `347+562*3+128?`, strictly left to right, every result modulo
//! 10^digits. Problems come from counter-based streams: a problem depends on its set and index alone.

use crate::algorithm::Problem;
use crate::base::rng::Stream;
use crate::experiment::MiniAimeVariant;
use crate::experiment::sets::{DEV, MINI_AIME, MINI_AIME_PLUS, TRAIN};
use crate::task::DataSets;
use crate::task::data::embedded::{
    DrawnProblem, Embedded, SetShape, Shares, Solutions, Written, between, check_relative,
    draw_outside, draw_set, drawn_by_share, evaluated, shares_of,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Seed of training and development problems. Another value of this or the next two is another benchmark.
pub const GENERATOR_SEED: u64 = 20_240_214;

/// Seed of the evaluation sets, fixed before any policy was evaluated (`experiments/PREREGISTRATION.md`): the first
/// from 20,261,124 on whose sets hold no question that pretraining drew, so the base policy could stay.
pub const EVALUATION_SEED: u64 = 20_261_124;

/// Seed of the evaluation sets that were looked at while the benchmark's settings were chosen.
const EARLIER_EVALUATION_SEED: u64 = 20_261_122;

/// Seed of every set of [`MiniAimeVariant::MoreProducts`].
pub const MORE_PRODUCTS_SEED: u64 = 20_261_123;

/// In the order in which the sets take their questions: a question that an earlier set has is drawn again.
const SETS: [SetShape; 4] = [
    SetShape { name: MINI_AIME, problems: 30, digits: 4 },
    SetShape { name: MINI_AIME_PLUS, problems: 256, digits: 4 },
    SetShape { name: DEV, problems: 64, digits: 4 },
    SetShape { name: TRAIN, problems: 17_000, digits: 5 },
];

/// Those that runs are judged by, so that no choice may be made by them.
const EVALUATED: [&str; 2] = [MINI_AIME, MINI_AIME_PLUS];

const OPERATIONS: (u64, u64) = (2, 4);
/// First operands and addends, below 10^[`DIGITS`].
const OPERANDS: (u64, u64) = (100, 999);
const FACTORS: (u64, u64) = (2, 9);
/// Results keep this many last digits.
const DIGITS: u32 = 3;

fn seed(variant: MiniAimeVariant, set: &str) -> u64 {
    match variant {
        MiniAimeVariant::Standard if EVALUATED.contains(&set) => EVALUATION_SEED,
        MiniAimeVariant::Standard => GENERATOR_SEED,
        MiniAimeVariant::MoreProducts => MORE_PRODUCTS_SEED,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Add(u64),
    Multiply(u64),
}

impl Operation {
    /// `+562` or `*3`.
    pub fn text(self) -> String {
        match self {
            Self::Add(operand) => format!("+{operand}"),
            Self::Multiply(factor) => format!("*{factor}"),
        }
    }

    fn apply(self, value: u64) -> u64 {
        match self {
            Self::Add(operand) => value + operand,
            Self::Multiply(factor) => value * factor,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    pub first: u64,
    /// Applied left to right; at least one.
    pub operations: Vec<Operation>,
}

impl Expression {
    /// Draws a chain: first operand, number of operations, then each operation.
    pub fn draw(variant: MiniAimeVariant, stream: &mut Stream) -> Self {
        let multiply_share = match variant {
            MiniAimeVariant::Standard => 0.3,
            MiniAimeVariant::MoreProducts => 0.6,
        };
        let first = between(stream, OPERANDS.0, OPERANDS.1);
        let count = between(stream, OPERATIONS.0, OPERATIONS.1);
        let operation = |_| {
            if stream.uniform() < multiply_share {
                Operation::Multiply(between(stream, FACTORS.0, FACTORS.1))
            } else {
                Operation::Add(between(stream, OPERANDS.0, OPERANDS.1))
            }
        };
        Self { first, operations: (0..count).map(operation).collect() }
    }

    /// The text of the problem: `347+562*3+128?`.
    pub fn question(&self) -> String {
        let chain: String = self.operations.iter().map(|operation| operation.text()).collect();
        format!("{}{chain}?", self.first)
    }

    /// Each operation with the value before and after it.
    pub fn steps(&self) -> Vec<(u64, Operation, u64)> {
        let modulus = 10u64.pow(DIGITS);
        let mut value = self.first;
        let step = |operation: &Operation| {
            let before = value;
            value = operation.apply(before) % modulus;
            (before, *operation, value)
        };
        self.operations.iter().map(step).collect()
    }

    pub fn answer(&self) -> u64 {
        self.steps().last().map_or(self.first, |step| step.2)
    }
}

/// The benchmark's sets, disjoint by question. The same on every machine.
pub fn generate(variant: MiniAimeVariant) -> DataSets {
    let mut taken = BTreeSet::new();
    let [mini_aime, plus, dev, train] =
        SETS.map(|set| draw(set, variant, seed(variant, set.name), &mut taken));
    let tests = vec![(MINI_AIME.to_string(), mini_aime), (MINI_AIME_PLUS.to_string(), plus)];
    DataSets { train, dev, tests, ..DataSets::default() }
}

#[derive(Debug)]
pub struct MiniAime(pub MiniAimeVariant);

static HELD_OUT: LazyLock<BTreeSet<String>> = LazyLock::new(evaluated_questions);

impl Solutions for MiniAime {
    fn characters(&self) -> String {
        "0123456789+*=;,?: Answer".to_string()
    }

    fn shares(&self) -> &'static [&'static str] {
        &STYLES
    }

    fn check(&self, shares: &Shares) -> Result<(), String> {
        check_relative(&shares_of(shares, STYLES))
    }

    fn write(&self, shares: &Shares, max_characters: usize, draws: &mut Stream) -> Written {
        let style = Style::ALL[drawn_by_share(&shares_of(shares, STYLES), draws.uniform())];
        let standard = || Expression::draw(MiniAimeVariant::Standard, draws);
        let (expression, question) = draw_outside(&HELD_OUT, standard, Expression::question);
        let solution = solution(&expression, style, max_characters);
        Written { question, solution, ends: style != Style::Ramble }
    }
}

impl Embedded for MiniAime {
    fn sets(&self) -> DataSets {
        generate(self.0)
    }

    fn measures(&self, responses: &[(&str, &str)]) -> BTreeMap<String, f64> {
        let named = |name: &str| format!("style_{name}_share");
        let mut shares: BTreeMap<String, f64> =
            STYLES.iter().chain(&["other"]).map(|name| (named(name), 0.0)).collect();
        for (_, response) in responses {
            let name = style_of(response).map_or("other", |style| STYLES[style as usize]);
            *shares.entry(named(name)).or_default() += 1.0 / responses.len() as f64;
        }
        shares
    }
}

/// Questions that pretraining never sees: the evaluated ones of every variant, and those of earlier evaluation sets.
pub fn evaluated_questions() -> BTreeSet<String> {
    let mut questions = BTreeSet::new();
    for set in SETS.into_iter().filter(|set| EVALUATED.contains(&set.name)) {
        draw(set, MiniAimeVariant::Standard, EARLIER_EVALUATION_SEED, &mut questions);
    }
    for variant in [MiniAimeVariant::Standard, MiniAimeVariant::MoreProducts] {
        questions.extend(evaluated(&generate(variant)));
    }
    questions
}

fn draw(
    set: SetShape,
    variant: MiniAimeVariant,
    seed: u64,
    taken: &mut BTreeSet<String>,
) -> Vec<Problem> {
    let (problems, _) = draw_set(set, seed, taken, |stream| {
        let expression = Expression::draw(variant, stream);
        let (question, answer) = (expression.question(), expression.answer().to_string());
        DrawnProblem { question, answer, tags: Vec::new() }
    });
    problems
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// `Answer: 855` at once. The text is true; a small model cannot compute it in one go and is mostly wrong.
    Guess,
    /// Each operation at once: `347+562=909;909*3=727;727+128=855;Answer: 855`.
    Steps,
    /// Each operation digit by digit, least significant first.
    ///
    /// ```text
    /// operation := column "," column "," column "," result ";"
    /// column    := digit ("+" | "*") digit ["+" carry] "=" total
    /// total     := two digits: the carry to the next column, then the result's digit
    /// ```
    ///
    /// `+` takes the operand's digit of the same column, `*` the factor. A carry of 0 is not written, the last one is
    /// dropped (modulo 10^digits); missing digits count as leading zeros, which results do not have.
    Careful,
    /// The operations of [`Style::Steps`] over and over, without an answer: the response runs into the length limit.
    Ramble,
}

const STYLES: [&str; 4] = ["guess", "steps", "careful", "ramble"];

impl Style {
    const ALL: [Self; 4] = [Self::Guess, Self::Steps, Self::Careful, Self::Ramble];
}

/// The solution without a stop token. `max_characters` is the length of [`Style::Ramble`], which has no end and never
/// gets a stop token; the others are complete whatever it is: below 150 characters on the shipped task.
fn solution(expression: &Expression, style: Style, max_characters: usize) -> String {
    let answer = format!("Answer: {}", expression.answer());
    match style {
        Style::Guess => answer,
        Style::Steps => expression.steps().iter().map(one_shot).collect::<String>() + &answer,
        Style::Careful => expression.steps().iter().map(columns).collect::<String>() + &answer,
        Style::Ramble => {
            let cycle: String = expression.steps().iter().map(one_shot).collect();
            cycle.chars().cycle().take(max_characters).collect()
        }
    }
}

/// The style of a response, right or wrong, or `None`. Only the digit columns of [`Style::Careful`] have commas.
fn style_of(response: &str) -> Option<Style> {
    match (response.contains("Answer:"), response.contains(','), response.contains(';')) {
        (true, false, false) if response.starts_with("Answer:") => Some(Style::Guess),
        (_, true, true) => Some(Style::Careful),
        (true, false, true) => Some(Style::Steps),
        (false, false, true) => Some(Style::Ramble),
        _ => None,
    }
}

/// `347+562=909;`
fn one_shot((before, operation, after): &(u64, Operation, u64)) -> String {
    format!("{before}{}={after};", operation.text())
}

/// `7+2=09,4+6=10,3+5+1=09,909;`
fn columns((before, operation, after): &(u64, Operation, u64)) -> String {
    let mut text = String::new();
    let mut carry = 0;
    for column in 0..DIGITS {
        let digit = |value: u64| value / 10u64.pow(column) % 10;
        let left = digit(*before);
        let (sign, right, total) = match operation {
            Operation::Add(operand) => ('+', digit(*operand), left + digit(*operand)),
            Operation::Multiply(factor) => ('*', *factor, left * factor),
        };
        text += &format!("{left}{sign}{right}");
        if carry > 0 {
            text += &format!("+{carry}");
        }
        let total = total + carry;
        text += &format!("={total:02},");
        carry = total / 10;
    }
    text + &format!("{after};")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Purpose, rng};

    fn all(sets: &DataSets) -> Vec<&Problem> {
        sets.evaluated().flat_map(|(_, problems)| problems).chain(&sets.train).collect()
    }

    /// Left to right, from the text alone, without the generator's own arithmetic.
    fn evaluate(question: &str) -> u64 {
        let chain = question.strip_suffix('?').expect("a question ends in ?");
        let mut value = 0;
        let mut operator = '+';
        let mut number = 0;
        for character in chain.chars().chain(['+']) {
            if let Some(digit) = character.to_digit(10) {
                number = number * 10 + u64::from(digit);
                continue;
            }
            value = if operator == '+' { value + number } else { value * number };
            value %= 1000;
            (operator, number) = (character, 0);
        }
        value
    }

    #[test]
    fn the_sets_are_disjoint_by_question_and_have_their_sizes() {
        let sets = generate(MiniAimeVariant::Standard);
        assert_eq!(sets.train.len(), 17_000);
        assert_eq!(sets.dev.len(), 64);
        let tests: Vec<_> =
            sets.tests.iter().map(|(set, rows)| (set.as_str(), rows.len())).collect();
        assert_eq!(tests, [("mini-aime", 30), ("mini-aime-plus", 256)]);
        let questions: BTreeSet<_> = all(&sets).iter().map(|problem| &problem.question).collect();
        let ids: BTreeSet<_> = all(&sets).iter().map(|problem| &problem.id).collect();
        assert_eq!(questions.len(), 17_350);
        assert_eq!(ids.len(), 17_350);
        assert_eq!(sets.tests[0].1[3].id, "mini-aime/0003");
        assert_eq!(sets.train[1234].id, "train/01234");
    }

    #[test]
    fn a_duplicate_question_is_drawn_again() {
        let mut taken = BTreeSet::new();
        let set = SetShape { name: TRAIN, problems: 3, digits: 5 };
        let first = draw(set, MiniAimeVariant::Standard, 1, &mut taken);
        assert_eq!(draw(set, MiniAimeVariant::Standard, 1, &mut BTreeSet::new()), first);
        let other = draw(set, MiniAimeVariant::Standard, 1, &mut taken);
        assert!(first.iter().all(|problem| !other.iter().any(|o| o.question == problem.question)));
        assert_eq!(first[2].id, other[2].id);
    }

    #[test]
    fn answers_agree_with_an_evaluation_of_the_text() {
        for problem in all(&generate(MiniAimeVariant::Standard)) {
            assert_eq!(problem.answer, evaluate(&problem.question).to_string(), "{problem:?}");
        }
    }

    #[test]
    fn the_first_problems_are_pinned() {
        // A change here is another benchmark: every result on it moves.
        let sets = generate(MiniAimeVariant::Standard);
        let rows: Vec<_> = [&sets.tests[0].1, &sets.tests[1].1, &sets.dev, &sets.train]
            .iter()
            .flat_map(|problems| &problems[..2])
            .map(|problem| format!("{} {} {}", problem.id, problem.question, problem.answer))
            .collect();
        insta::assert_debug_snapshot!(rows);
    }

    #[test]
    fn the_variant_has_its_own_problems_with_twice_the_products() {
        let [standard, variant] =
            [MiniAimeVariant::Standard, MiniAimeVariant::MoreProducts].map(generate);
        let share = |problems: &[Problem]| {
            let count = |signs: &[char]| -> usize {
                problems.iter().map(|problem| problem.question.matches(signs).count()).sum()
            };
            count(&['*']) as f64 / count(&['*', '+']) as f64
        };
        // Six standard errors of a share of 51,000.
        assert!((share(&standard.train) - 0.3).abs() < 0.0125);
        assert!((share(&variant.train) - 0.6).abs() < 0.0135);
        assert!(evaluated(&standard).intersection(&evaluated(&variant)).count() < 20);
    }

    #[test]
    fn chains_have_the_stated_shape() {
        let sets = generate(MiniAimeVariant::Standard);
        let mut counts = [0usize; 5];
        let mut multiplications = 0;
        for problem in &sets.train {
            let operations = problem.question.matches(['+', '*']).count();
            multiplications += problem.question.matches('*').count();
            counts[operations] += 1;
            assert!(problem.question.len() <= 20, "{}", problem.question);
        }
        assert_eq!(counts[..2], [0, 0]);
        // Six standard errors around a third of 17,000 and around 0.3 of 51,000.
        assert!(counts[2..].iter().all(|count| count.abs_diff(5667) < 369), "{counts:?}");
        assert!(usize::abs_diff(multiplications, 15_300) < 700, "{multiplications}");
    }

    fn example() -> Expression {
        let operations = vec![Operation::Add(562), Operation::Multiply(3), Operation::Add(128)];
        Expression { first: 347, operations }
    }

    fn random(count: u64) -> impl Iterator<Item = Expression> {
        (0..count).map(|index| {
            let mut draws = rng::stream(1, Purpose::Pretraining, &[index.into()]);
            Expression::draw(MiniAimeVariant::Standard, &mut draws)
        })
    }

    #[test]
    fn the_styles_of_one_problem_read_as_documented() {
        let text = |style| solution(&example(), style, 40);
        assert_eq!(text(Style::Guess), "Answer: 855");
        assert_eq!(text(Style::Steps), "347+562=909;909*3=727;727+128=855;Answer: 855");
        assert_eq!(
            text(Style::Careful),
            "7+2=09,4+6=10,3+5+1=09,909;9*3=27,0*3+2=02,9*3=27,727;7+8=15,2+2+1=05,7+1=08,855;\
             Answer: 855"
        );
        assert_eq!(text(Style::Ramble), "347+562=909;909*3=727;727+128=855;347+56");
    }

    #[test]
    fn short_values_have_leading_zeros_in_the_columns_but_not_in_results() {
        let operations = vec![Operation::Add(105), Operation::Multiply(9)];
        let expression = Expression { first: 900, operations };
        let text = solution(&expression, Style::Careful, 0);
        assert_eq!(text, "0+5=05,0+0=00,9+1=10,5;5*9=45,0*9+4=04,0*9=00,45;Answer: 45");
    }

    #[test]
    fn the_last_answer_of_every_style_but_ramble_is_the_true_one() {
        for expression in random(2_000) {
            for style in [Style::Guess, Style::Steps, Style::Careful] {
                let text = solution(&expression, style, 160);
                let last = text.rsplit("Answer: ").next().expect("a split has a last part");
                assert_eq!(last, expression.answer().to_string(), "{text}");
                assert!(text.len() < 150, "{text}");
            }
            let ramble = solution(&expression, Style::Ramble, 160);
            assert_eq!(ramble.len(), 160);
            assert!(!ramble.contains("Answer"));
        }
    }

    #[test]
    fn a_written_solution_is_recognised_by_its_style() {
        for expression in random(500) {
            for style in Style::ALL {
                assert_eq!(style_of(&solution(&expression, style, 160)), Some(style));
            }
        }
        for other in ["", "12", "7+2=09", "so Answer: 12"] {
            assert_eq!(style_of(other), None, "{other}");
        }
    }

    #[test]
    fn the_columns_of_the_careful_style_spell_its_results() {
        for expression in random(2_000) {
            let text = solution(&expression, Style::Careful, 0);
            let (work, _) = text.rsplit_once(';').expect("careful has operations");
            for operation in work.split(';') {
                assert!(operation.len() < 30, "{operation}");
                let (work, result) = operation.rsplit_once(',').expect("a result follows");
                let spelled: String = work
                    .split(',')
                    .rev()
                    .map(|column| column.chars().last().expect("a total has two digits"))
                    .collect();
                assert_eq!(spelled, format!("{result:0>3}"), "{operation}");
            }
        }
    }

    #[test]
    fn careful_is_about_twice_as_long_as_steps() {
        let length = |style| -> usize {
            random(500).map(|expression| solution(&expression, style, 0).len()).sum()
        };
        assert!(length(Style::Careful) > length(Style::Steps) * 9 / 5);
    }
}
