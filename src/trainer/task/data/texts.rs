//! Written solutions from a file, for a base policy of a task of one's own.

use crate::algorithm::Problem;
use crate::base::files;
use crate::base::rng::Stream;
use crate::experiment::Verifier;
use crate::task::data::leaks;
use crate::task::{Shares, Solutions, TaskError, Written, reward};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenText {
    question: String,
    solution: String,
}

/// Solutions of a file, each as likely as another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts {
    path: PathBuf,
    texts: Vec<WrittenText>,
}

impl Texts {
    /// # Errors
    /// [`TaskError`] for a file that cannot be read, has no line, or has an empty text.
    pub fn read(path: &Path) -> Result<Self, TaskError> {
        let texts: Vec<WrittenText> = files::read_data_lines(path)?;
        let path = path.to_path_buf();
        if texts.is_empty() {
            return Err(TaskError::Empty { path });
        }
        for (record, text) in texts.iter().enumerate() {
            for (field, value) in [("question", &text.question), ("solution", &text.solution)] {
                if value.is_empty() {
                    return Err(TaskError::Blank { path, record, field });
                }
            }
        }
        Ok(Self { path, texts })
    }

    /// Question and solution of each record, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|text| (&text.question[..], &text.solution[..]))
    }

    /// Takes the last `count` questions out, with every solution of them, and returns them as problems whose
    /// answer is what the verifier reads in the solution. Questions are compared without regard to case,
    /// spaces and punctuation.
    ///
    /// # Errors
    /// A solution, of any record, that states no answer or another than an earlier solution of its question;
    /// and too few questions.
    pub fn hold_out(
        &mut self,
        count: usize,
        verifier: Verifier,
    ) -> Result<Vec<Problem>, TaskError> {
        let path = self.path.clone();
        let (mut problems, mut places) = (Vec::new(), Vec::new());
        let mut known = BTreeMap::new();
        for (record, text) in self.texts.iter().enumerate() {
            let stated = reward::grade(&text.solution, "", verifier).prediction;
            let Some(answer) = stated.filter(|answer| !answer.is_empty()) else {
                return Err(TaskError::Unstated { path, record });
            };
            let place = *known.entry(leaks::identity(&text.question)).or_insert(problems.len());
            places.push(place);
            if place == problems.len() {
                let (id, question) = (format!("record-{record}"), text.question.clone());
                problems.push(Problem { id, question, answer });
            } else if problems[place].answer != answer {
                let earlier = problems[place].answer.clone();
                return Err(TaskError::OtherAnswer { path, record, answer, earlier });
            }
        }
        if problems.len() <= count {
            return Err(TaskError::TooFewQuestions { path, questions: problems.len(), count });
        }
        let kept = problems.len() - count;
        let mut places = places.into_iter();
        self.texts.retain(|_| places.next().is_some_and(|place| place < kept));
        Ok(problems.split_off(kept))
    }
}

impl Solutions for Texts {
    fn characters(&self) -> String {
        let of = |(question, solution): (&str, &str)| {
            (question.to_string() + solution).chars().collect::<Vec<_>>()
        };
        self.iter().flat_map(of).collect::<BTreeSet<char>>().into_iter().collect()
    }

    fn shares(&self) -> &'static [&'static str] {
        &[]
    }

    /// A solution that is longer is cut and has no end.
    fn write(&self, _shares: &Shares, max_characters: usize, draws: &mut Stream) -> Written {
        let place = draws.below(self.texts.len() as u64) as usize;
        let WrittenText { question, solution } = &self.texts[place];
        Written::cut(question.clone(), solution, max_characters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Result<Texts, TaskError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("solutions.jsonl");
        files::write_atomic(&path, lines.as_bytes()).unwrap();
        Texts::read(&path)
    }

    fn line(question: &str, solution: &str) -> String {
        format!("{{\"question\": {question:?}, \"solution\": {solution:?}}}\n")
    }

    #[test]
    fn the_last_questions_are_held_out_with_all_their_solutions() {
        let lines = [
            line("1+1?", "Answer: 2"),
            line("2+2?", "2+2=4. Answer: 4"),
            line("1 + 1", "So: Answer: 2"),
            line("3+3?", "Answer: 6"),
            line("2+2", "Answer: 4"),
        ];
        let mut texts = read(&lines.concat()).unwrap();
        let held: Vec<_> = texts.hold_out(2, Verifier::AnswerLine).unwrap();
        let held: Vec<_> =
            held.iter().map(|problem| (&problem.question[..], &problem.answer[..])).collect();
        assert_eq!(held, [("2+2?", "4"), ("3+3?", "6")]);
        let left: Vec<_> = texts.iter().map(|(question, _)| question).collect();
        assert_eq!(left, ["1+1?", "1 + 1"]);
    }

    #[test]
    fn solutions_without_an_answer_with_two_and_too_few_questions_are_refused() {
        let refused = |lines: &[String], count| {
            let mut texts = read(&lines.concat()).unwrap();
            texts.hold_out(count, Verifier::AnswerLine).unwrap_err().to_string()
        };
        let two = [line("1+1?", "Answer: 2"), line("2+2?", "It is 4.")];
        assert!(refused(&two, 0).ends_with(
            "solutions.jsonl: record 1 (from 0): its solution states no answer that the verifier reads"
        ));
        let two = [line("1+1?", "Answer: 2"), line("1+1", "Answer: 3")];
        assert!(refused(&two, 0).contains("record 1 (from 0): its solution answers \"3\", an earlier one of the same question \"2\""));
        let one = [line("1+1?", "Answer: 2")];
        assert!(refused(&one, 1).contains("1 questions, and 1 are to be held out"));
    }
}
