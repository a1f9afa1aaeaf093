//! Worked solutions of mini-AIME problems, in the styles that the base model is pretrained on. The
//! styles differ in length and in how hard each token is to predict.

use crate::task::{Expression, Operation};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// `Answer: 855` at once. The text is the true answer; a small model cannot compute it
    /// in one go and is mostly wrong.
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
    /// `+` takes the operand's digit of the same column, `*` the factor. A carry of 0 is not
    /// written, the last column's carry is dropped (modulo 10^digits), and a value with fewer
    /// digits counts as having leading zeros. Results are written without them.
    Careful,
    /// The operations of [`Style::Steps`] over and over, without an answer: the response
    /// runs into the length limit.
    Ramble,
}

impl Style {
    /// All styles, in the order of the names.
    pub const ALL: [Self; 4] = [Self::Guess, Self::Steps, Self::Careful, Self::Ramble];

    /// `guess`, `steps`, `careful` or `ramble`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guess => "guess",
            Self::Steps => "steps",
            Self::Careful => "careful",
            Self::Ramble => "ramble",
        }
    }
}

/// The solution's text, without a stop token. `max_characters` is the length of
/// [`Style::Ramble`], which has no end of its own and never gets a stop token; the other
/// styles are complete whatever it is, and shorter than 150 characters on the shipped task.
pub fn solution(expression: &Expression, style: Style, max_characters: usize) -> String {
    let answer = format!("Answer: {}", expression.answer());
    match style {
        Style::Guess => answer,
        Style::Steps => expression.steps().iter().map(one_shot).collect::<String>() + &answer,
        Style::Careful => {
            let work = expression.steps();
            let work = work.iter().map(|step| columns(step, expression.digits));
            work.collect::<String>() + &answer
        }
        Style::Ramble => {
            let cycle: String = expression.steps().iter().map(one_shot).collect();
            cycle.chars().cycle().take(max_characters).collect()
        }
    }
}

/// The style that a policy's response is written in, right or wrong; `None` when it is none
/// of them. The digit columns of [`Style::Careful`] are the only ones with commas.
pub fn style_of(response: &str) -> Option<Style> {
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
fn columns((before, operation, after): &(u64, Operation, u64), digits: u32) -> String {
    let mut text = String::new();
    let mut carry = 0;
    for column in 0..digits {
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
    use crate::task::data::mini_aime::TASK;

    fn example() -> Expression {
        let operations = vec![Operation::Add(562), Operation::Multiply(3), Operation::Add(128)];
        Expression { first: 347, operations, digits: 3 }
    }

    fn random(count: u64) -> impl Iterator<Item = Expression> {
        (0..count)
            .map(|index| TASK.draw(&mut rng::stream(1, Purpose::Pretraining, &[index.into()])))
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
        let expression = Expression { first: 900, operations, digits: 3 };
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
