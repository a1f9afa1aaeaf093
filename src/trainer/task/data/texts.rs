use crate::algorithm::Problem;
use crate::base::files::{self, FileError, foreign};
use crate::base::rng::Stream;
use crate::base::visible;
use crate::experiment::Verifier;
use crate::task::data::leaks;
use crate::task::{Shares, Solutions, TaskError, Written, reward};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
struct WrittenText {
    line: usize,
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
    /// Errors: [`TaskError`] for a file that cannot be read, has no line, or has an empty text.
    pub fn read(path: &Path) -> Result<Self, TaskError> {
        let (mut texts, reader) = (Vec::new(), io::BufReader::new(foreign::open(path)?));
        foreign::each_line(path, reader, foreign::HELD_DATA, |line, bytes| {
            texts.extend(written(path, line, bytes)?);
            Ok::<(), FileError>(())
        })?;
        let path = path.to_path_buf();
        if texts.is_empty() {
            return Err(TaskError::Empty { path });
        }
        Ok(Self { path, texts })
    }

    /// Line, question and solution of each record, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &str, &str)> {
        self.texts.iter().map(|text| (text.line, &text.question[..], &text.solution[..]))
    }

    /// Takes the last `count` questions out, with all their solutions, and returns them with their lines as problems
    /// whose answer is what the verifier reads. Questions are compared without case, spaces and punctuation. Errors: a
    /// solution without an answer or with another than an earlier one of its question; too few questions.
    pub fn hold_out(
        &mut self,
        count: usize,
        verifier: Verifier,
    ) -> Result<Vec<(usize, Problem)>, TaskError> {
        let path = self.path.clone();
        let (mut problems, mut places) = (Vec::<(usize, Problem)>::new(), Vec::new());
        let mut known = BTreeMap::new();
        for (record, text) in self.texts.iter().enumerate() {
            let line = text.line;
            let stated = reward::grade(&text.solution, "", verifier).prediction;
            let Some(answer) = stated.filter(|answer| !answer.is_empty()) else {
                return Err(TaskError::Unstated { path, line });
            };
            let place = *known.entry(leaks::identity(&text.question)).or_insert(problems.len());
            places.push(place);
            if place == problems.len() {
                let (id, question) = (format!("record-{record}"), text.question.clone());
                problems.push((line, Problem { id, question, answer }));
            } else if problems[place].1.answer != answer {
                let earlier = problems[place].1.answer.clone();
                return Err(TaskError::OtherAnswer { path, line, answer, earlier });
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

/// `None` for a blank line.
fn written(path: &Path, line: usize, bytes: &[u8]) -> Result<Option<WrittenText>, FileError> {
    let refused = |reason: String| FileError::Line { path: path.to_path_buf(), line, reason };
    let start = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes).trim_ascii_start();
    if start.starts_with(b"[") {
        let reason = "JSON lines are expected, one {\"question\", \"solution\"} a line, and this is a JSON list";
        return Err(refused(reason.to_string()));
    }
    let row: Option<Map<String, Value>> = files::parse_line(path, line, bytes)?;
    let Some(row) = row else { return Ok(None) };
    let [question, solution] = ["question", "solution"].map(|key| text(&row, key));
    let (question, solution) = (question.map_err(refused)?, solution.map_err(refused)?);
    Ok(Some(WrittenText { line, question, solution }))
}

fn text(row: &Map<String, Value>, key: &str) -> Result<String, String> {
    match row.get(key) {
        Some(Value::String(text)) if text.trim().is_empty() => Err(format!("the {key} is empty")),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => {
            let other = visible::start(&other.to_string(), 60);
            Err(format!("{key}: expected text, got {other}"))
        }
        None => {
            let present: Vec<String> =
                row.keys().take(16).map(|key| visible::start(key, 60)).collect();
            let present = present.join(", ");
            Err(format!(
                "no key `{key}`, the line has {present}; rename the key of the {key} to it"
            ))
        }
    }
}

impl Solutions for Texts {
    fn characters(&self) -> String {
        let of = |(_, question, solution): (usize, &str, &str)| {
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
        let text = &self.texts[place];
        Written::cut(text.question.clone(), &text.solution, max_characters)
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
            held.iter().map(|(line, it)| (*line, &it.question[..], &it.answer[..])).collect();
        assert_eq!(held, [(2, "2+2?", "4"), (4, "3+3?", "6")]);
        let left: Vec<_> = texts.iter().map(|(line, question, _)| (line, question)).collect();
        assert_eq!(left, [(1, "1+1?"), (3, "1 + 1")]);
    }

    #[test]
    fn solutions_without_an_answer_with_two_and_too_few_questions_are_refused() {
        let refused = |lines: &[String], count| {
            let mut texts = read(&lines.concat()).unwrap();
            texts.hold_out(count, Verifier::AnswerLine).unwrap_err().to_string()
        };
        let two = [line("1+1?", "Answer: 2"), line("2+2?", "It is 4.")];
        assert!(
            refused(&two, 0).ends_with(
                "solutions.jsonl:2: its solution states no answer that the verifier reads"
            )
        );
        let two = [line("1+1?", "Answer: 2"), line("1+1", "Answer: 3")];
        assert!(refused(&two, 0).contains("solutions.jsonl:2: its solution answers \"3\", an earlier one of the same question \"2\""));
        let list = ["[\n".to_string(), line("1+1?", "Answer: 2"), "]".to_string()];
        assert!(read(&list.concat()).unwrap_err().to_string().ends_with(
            "solutions.jsonl:1: JSON lines are expected, one {\"question\", \"solution\"} a line, and this is a JSON list"
        ));
        for (line, reason) in [
            (line("", "Answer: 2"), "the question is empty"),
            (line(" ", "Answer: 2"), "the question is empty"),
            (
                "{\"answer\": \"so #### 2\", \"id\": 1, \"question\": \"1+1?\"}".to_string(),
                "no key `solution`, the line has answer, id, question; rename the key of the solution to it",
            ),
            (
                "{\"question\": 2, \"solution\": \"x\"}".to_string(),
                "question: expected text, got 2",
            ),
        ] {
            let refusal = read(&format!("\n{line}")).unwrap_err().to_string();
            assert!(refusal.ends_with(&format!("solutions.jsonl:2: {reason}")), "{refusal}");
        }
        let more =
            "{\"id\": 1, \"question\": \"1+1?\", \"solution\": \"Answer: 2\", \"level\": null}";
        assert_eq!(read(more).unwrap().iter().collect::<Vec<_>>(), [(1, "1+1?", "Answer: 2")]);
        let one = [line("1+1?", "Answer: 2")];
        assert!(refused(&one, 1).contains("1 questions, and 1 are to be held out"));
    }
}
