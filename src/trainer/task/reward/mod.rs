//! The rule-based reward of Eq. 7: the released verifier's rules, exactly (verl/utils/reward_score/math_dapo.py), and
//! lm-eval's last number. The rules work on code points and Python's idea of text ([`python_text`]).

pub mod python_text;
pub mod answer;
pub mod strict_box;
pub mod last_number;
pub mod program;

use crate::experiment::Verifier;
use crate::task::reward::python_text::last_code_points;
use std::collections::BTreeMap;

/// Only so many code points at the end of a response are read (math_dapo.py:260).
pub const WINDOW: usize = 300;

/// What the released verifier prints as prediction when there is no answer line.
pub const INVALID: &str = "[INVALID]";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Grade {
    /// `is_equivalent(ŷ, y)` of Eq. 7. Dynamic Sampling looks at this.
    pub is_correct: bool,
    /// Eq. 7: +1 when correct, −1 otherwise; of a program what it returned. The advantage is of this.
    pub reward: f64,
    /// What was compared, if anything: normalised for an answer line, raw for a box.
    pub prediction: Option<String>,
    pub extra: BTreeMap<String, f64>,
}

impl Grade {
    /// Eq. 7.
    pub fn of_rule(is_correct: bool, prediction: Option<String>) -> Self {
        let reward = if is_correct { 1.0 } else { -1.0 };
        Self { is_correct, reward, prediction, ..Self::default() }
    }

    /// As the released verifier returns it: `[INVALID]` without an answer line, nothing without a box.
    pub fn released_prediction(&self, verifier: Verifier) -> Option<&str> {
        match verifier {
            Verifier::AnswerLine => Some(self.prediction.as_deref().unwrap_or(INVALID)),
            Verifier::StrictBox | Verifier::LastNumber => self.prediction.as_deref(),
        }
    }
}

/// Grades as math_dapo.py:220-272 does: [`Verifier::AnswerLine`] and [`Verifier::LastNumber`] normalise both sides,
/// [`Verifier::StrictBox`] compares strings. Deviation: none, odd cases included: `1,2` equals `12`, `540.0` not `540`,
/// and a response without answer line is "correct" when the ground truth is `[INVALID]`.
pub fn grade(response: &str, ground_truth: &str, verifier: Verifier) -> Grade {
    let prediction = matched(response, verifier).map(|text| normalised(text, verifier));
    let compared = prediction.clone().or_else(|| match verifier {
        Verifier::AnswerLine => Some(answer::normalise(INVALID)),
        Verifier::StrictBox => None,
        Verifier::LastNumber => Some(last_number::INVALID.to_owned()),
    });
    Grade::of_rule(compared == Some(normalised(ground_truth, verifier)), prediction)
}

/// The text that is read as the answer.
fn matched(response: &str, verifier: Verifier) -> Option<&str> {
    let window = last_code_points(response, WINDOW);
    match verifier {
        Verifier::AnswerLine => answer::last_answer_line(window),
        Verifier::StrictBox => strict_box::last_box(window),
        Verifier::LastNumber => last_number::last_number(response),
    }
}

/// An answer or a ground truth as it is compared.
fn normalised(text: &str, verifier: Verifier) -> String {
    match verifier {
        Verifier::AnswerLine => answer::normalise(text),
        Verifier::StrictBox => text.to_owned(),
        Verifier::LastNumber => last_number::normalise(text),
    }
}

/// How a template asks for an answer: what stands before it and behind it, and who reads it.
pub const FORMS: [(&str, &str, Verifier); 4] = [
    ("Answer: ", "", Verifier::AnswerLine),
    ("Answer: $", "$", Verifier::AnswerLine),
    ("\\boxed{", "}", Verifier::StrictBox),
    ("The answer is ", ".", Verifier::LastNumber),
];

/// Whether a response that states the ground truth in this form is graded right, and not for saying nothing.
pub fn is_earned(ground_truth: &str, (before, after, verifier): (&str, &str, Verifier)) -> bool {
    let stated = format!("{before}{ground_truth}{after}");
    !normalised(ground_truth, verifier).is_empty()
        && grade(&stated, ground_truth, verifier).is_correct
        && !grade("", ground_truth, verifier).is_correct
}

#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    pub grade: Grade,
    /// The text that was read as the answer, before any normalisation.
    pub matched: Option<String>,
    pub compared_ground_truth: String,
    pub reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Reason {
    #[error("both sides are equal")]
    Equal,
    #[error("there is no `Answer:` followed by text")]
    NoAnswerLine,
    /// There is an answer line, but not near enough to the end.
    #[error("`Answer:` stands before the last 300 characters, which alone are read")]
    AnswerLineBeforeWindow,
    /// A box alone is not read in this mode.
    #[error("there is a `\\boxed{{…}}` but no `Answer:` followed by text")]
    BoxWithoutAnswerLine,
    #[error("there is no `\\boxed{{…}}`")]
    NoBox,
    /// A box, but not near enough to the end.
    #[error("`\\boxed{{` stands before the last 100 characters, which alone are read")]
    BoxBeforeWindow,
    #[error("the last `\\boxed{{` has no matching brace")]
    UnclosedBox,
    #[error("there is no number")]
    NoNumber,
    /// The strings differ in notation only.
    #[error(
        "the same but for stars, a final full stop, a minus sign or the form of a number; strings are compared"
    )]
    DifferentNotation,
    #[error("the two sides differ")]
    Different,
}

/// Of `none` responses of `all` without an answer that the verifier reads: a sentence, where they are half or more.
pub fn unanswered(none: usize, all: usize, verifier: Verifier) -> Option<String> {
    let what = match verifier {
        Verifier::AnswerLine => "no answer line (`Answer: …`)",
        Verifier::StrictBox => "no answer in a box (`\\boxed{…}`)",
        Verifier::LastNumber => "no number",
    };
    (none > 0 && none >= all - none).then(|| {
        format!(
            "{none} of {all} responses state {what}, so they count as wrong whatever they found; see \
             prompt.template and reward.verifier"
        )
    })
}

/// As [`grade`], with the matched text, both sides and the reason.
pub fn explain(response: &str, ground_truth: &str, verifier: Verifier) -> Explanation {
    let grade = grade(response, ground_truth, verifier);
    let window = last_code_points(response, WINDOW);
    let compared_ground_truth = normalised(ground_truth, verifier);
    let reason = match (&grade.prediction, verifier) {
        _ if grade.is_correct => Reason::Equal,
        (Some(prediction), _) if plain(prediction) == plain(&compared_ground_truth) => {
            Reason::DifferentNotation
        }
        (Some(_), _) => Reason::Different,
        (None, Verifier::AnswerLine) if answer::last_answer_line(response).is_some() => {
            Reason::AnswerLineBeforeWindow
        }
        (None, Verifier::AnswerLine) if strict_box::last_box(window).is_some() => {
            Reason::BoxWithoutAnswerLine
        }
        (None, Verifier::AnswerLine) => Reason::NoAnswerLine,
        (None, Verifier::StrictBox) if strict_box::is_unclosed(window) => Reason::UnclosedBox,
        (None, Verifier::StrictBox) if response.contains(strict_box::OPENING) => {
            Reason::BoxBeforeWindow
        }
        (None, Verifier::StrictBox) => Reason::NoBox,
        (None, Verifier::LastNumber) => Reason::NoNumber,
    };
    let matched = matched(response, verifier).map(str::to_owned);
    Explanation { matched, compared_ground_truth, reason, grade }
}

fn plain(text: &str) -> String {
    let text = text.replace(['*', ' ', ',', '$'], "").replace('\u{2212}', "-");
    let text = text.trim_end_matches('.');
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => number.to_string(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::files;
    use serde_json::Value;
    use std::path::Path;

    fn reason(response: &str, ground_truth: &str, verifier: Verifier) -> Reason {
        explain(response, ground_truth, verifier).reason
    }

    #[test]
    fn half_of_the_responses_without_an_answer_are_told_by_what_the_verifier_reads() {
        let sentence = unanswered(28, 30, Verifier::AnswerLine).unwrap();
        assert!(sentence.starts_with("28 of 30 responses state no answer line"), "{sentence}");
        assert!(unanswered(1, 2, Verifier::StrictBox).unwrap().contains("\\boxed"));
        for (none, all) in [(0, 0), (0, 30), (14, 30)] {
            assert_eq!(unanswered(none, all, Verifier::AnswerLine), None);
        }
    }

    #[test]
    fn a_correct_answer_line_scores_one_and_a_wrong_one_minus_one() {
        let right = grade("Let us see.\nAnswer: $540$", "540", Verifier::AnswerLine);
        assert_eq!((right.reward, right.prediction.as_deref()), (1.0, Some("540")));
        let wrong = grade("Answer: 541", "540", Verifier::AnswerLine);
        assert_eq!((wrong.reward, wrong.prediction.as_deref()), (-1.0, Some("541")));
    }

    #[test]
    fn without_an_answer_the_prediction_is_none_and_the_released_form_is_kept() {
        let none = grade("540", "540", Verifier::AnswerLine);
        assert_eq!(none, Grade::of_rule(false, None));
        assert_eq!(none.released_prediction(Verifier::AnswerLine), Some("[INVALID]"));
        let none = grade("Answer: 540", "540", Verifier::StrictBox);
        assert_eq!(none.released_prediction(Verifier::StrictBox), None);
        assert!(grade("540", "[INVALID]", Verifier::AnswerLine).is_correct);
    }

    #[test]
    fn windows_count_code_points_not_bytes() {
        let far = |pad: usize| format!("Answer: 540\n{}", "é".repeat(pad));
        assert!(grade(&far(288), "540", Verifier::AnswerLine).is_correct);
        assert!(!grade(&far(289), "540", Verifier::AnswerLine).is_correct);
        let boxed = |pad: usize| format!("\\boxed{{540}}{}", "😀".repeat(pad));
        assert!(grade(&boxed(89), "540", Verifier::StrictBox).is_correct);
        assert!(!grade(&boxed(90), "540", Verifier::StrictBox).is_correct);
    }

    #[test]
    fn every_rejection_has_its_reason() {
        use Verifier::{AnswerLine, LastNumber, StrictBox};
        let far = format!("Answer: 7\n{}", "x".repeat(400));
        let far_box = format!("\\boxed{{7}}{}", "x".repeat(400));
        for (response, verifier, expected) in [
            ("Answer: 7", AnswerLine, Reason::Equal),
            ("The answer is: 7", AnswerLine, Reason::NoAnswerLine),
            (far.as_str(), AnswerLine, Reason::AnswerLineBeforeWindow),
            ("so \\boxed{7}", AnswerLine, Reason::BoxWithoutAnswerLine),
            ("Answer: **7**", AnswerLine, Reason::DifferentNotation),
            ("Answer: 7.", AnswerLine, Reason::DifferentNotation),
            ("Answer: 007", AnswerLine, Reason::DifferentNotation),
            ("Answer: 8", AnswerLine, Reason::Different),
            ("\\boxed{7}", StrictBox, Reason::Equal),
            ("Answer: 7", StrictBox, Reason::NoBox),
            (far_box.as_str(), StrictBox, Reason::BoxBeforeWindow),
            ("\\boxed{7", StrictBox, Reason::UnclosedBox),
            ("\\boxed{7.0}", StrictBox, Reason::DifferentNotation),
            ("It is $7.", LastNumber, Reason::Equal),
            ("seven", LastNumber, Reason::NoNumber),
            ("7.0", LastNumber, Reason::DifferentNotation),
            ("7 or 8", LastNumber, Reason::Different),
        ] {
            assert_eq!(reason(response, "7", verifier), expected, "{response}");
        }
        let explanation = explain("Answer: x = 1,024 units", "1 024", AnswerLine);
        assert_eq!(explanation.matched.as_deref(), Some("x = 1,024 units"));
        assert_eq!(explanation.grade.prediction.as_deref(), Some("1024"));
        assert_eq!(explanation.compared_ground_truth, "1024");
    }

    #[test]
    fn the_last_number_is_that_of_lm_eval() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/last_number/cases.jsonl");
        let text = files::read_text(Path::new(path)).unwrap();
        for line in text.lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| case[name].as_str().unwrap();
            let explained = explain(text("response"), text("ground_truth"), Verifier::LastNumber);
            assert_eq!(explained.grade.is_correct, case["expected"]["acc"], "{line}");
            let extracted = explained.matched.as_deref().unwrap_or(last_number::INVALID);
            assert_eq!(extracted, case["expected"]["extracted"], "{line}");
        }
        assert_eq!(text.lines().count(), 300);
    }
}
