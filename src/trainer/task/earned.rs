//! Whether a program that grades takes ground truths as answers to their own problems.

use crate::algorithm::Problem;
use crate::task::{Grader, Tokenizer, Twice, UngradedBatch, reward};

pub struct EarnedTruths {
    pub earned: usize,
    pub all: usize,
    form: [&'static str; 2],
    first_missed: Option<String>,
}

impl EarnedTruths {
    /// `None` where no ground truth is a text. Errors: responses that the program does not grade.
    pub fn of<'a>(
        grader: &Grader,
        tokenizer: &Tokenizer,
        problems: impl IntoIterator<Item = &'a Problem>,
    ) -> Result<Option<Self>, Box<UngradedBatch>> {
        let all: Vec<&Problem> =
            problems.into_iter().filter(|problem| grader.truth_is_text(problem)).collect();
        let forms = reward::FORMS.map(|(before, after, _)| [before, after]);
        let forms = forms.into_iter().chain([["", ""], ["#### ", ""], ["<answer>", "</answer>"]]);
        let mut best: Option<Self> = None;
        if all.is_empty() {
            return Ok(best);
        }
        for [before, after] in forms {
            let stated = |it: &&Problem| format!("{before}{}{after}", it.answer);
            let texts: Vec<String> = all.iter().map(stated).collect();
            let tokens: Vec<Option<Vec<u32>>> =
                texts.iter().map(|text| tokenizer.encode(text).ok()).collect();
            let responses = all.iter().zip(texts.iter().zip(&tokens));
            let responses = responses
                .map(|(problem, (text, tokens))| (*problem, text.as_str(), tokens.as_deref()));
            let (grades, _) = match grader.grade(&responses.collect::<Vec<_>>(), Twice::Never) {
                // A function of tokens, and a form that the vocabulary cannot write.
                Err(_) if tokens.iter().any(Option::is_none) => continue,
                graded => graded?,
            };
            let earned = grades.iter().filter(|grade| grade.is_correct).count();
            if best.as_ref().is_none_or(|best| earned > best.earned) {
                let first = grades.iter().position(|grade| !grade.is_correct);
                let first_missed = first.map(|index| all[index].id.clone());
                best = Some(Self { earned, all: all.len(), form: [before, after], first_missed });
            }
        }
        Ok(best)
    }

    /// Where the program takes most ground truths in the form that the released instruction asks for.
    pub fn is_of_answer_line(&self) -> bool {
        let (before, after, _) = reward::FORMS[0];
        self.earned > 0 && self.form == [before, after]
    }
}

impl std::fmt::Display for EarnedTruths {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let Self { earned, all, form: [before, after], first_missed } = self;
        write!(
            f,
            "the program grades {earned} of {all} ground truths, each as the answer to its own problem, as correct \
             (as `{before}…{after}`)"
        )?;
        first_missed.iter().try_for_each(|id| write!(f, "; the first that is not is {id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::files;
    use crate::experiment::{Grading, PromptSettings, PromptTemplate, RewardProgram};
    use crate::task::data::Columns;
    use crate::task::data::embedded::characters::write_tokenizer;

    #[test]
    fn rewards_of_tokens_get_them_in_each_form_that_the_vocabulary_can_write() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reward.py");
        write_tokenizer(folder.path(), "0123456789: Answer").unwrap();
        files::write_atomic(&folder.path().join("config.json"), br#"{"eos_token_id": 1}"#).unwrap();
        let tokenizer = Tokenizer::load(folder.path()).unwrap();
        let problem = |answer: &str| Problem {
            id: format!("dev/{answer}"),
            question: "q".into(),
            answer: answer.into(),
        };
        let problems = [problem("7"), problem("12")];
        let of_tokens = "def reward(prompts, completions, completion_ids, answer, **columns):\n";
        let of_text = "def grade(response, answer):\n";
        for (signature, grades, expected) in [
            (of_tokens, "[float(len(ids) == 9) for ids in completion_ids]", Some((1, "Answer: "))),
            (of_tokens, "[float(len(ids) < 3) for ids in completion_ids]", Some((2, ""))),
            // Of text alone, a form without tokens is tried too.
            (of_text, "response == '\\\\boxed{' + answer + '}'", Some((2, "\\boxed{"))),
            (of_tokens, "[1 / 0]", None),
        ] {
            let text = format!("{signature} return {grades}\n");
            files::write_atomic(&file, text.as_bytes()).unwrap();
            let program = Grading::Program(Box::new(RewardProgram::of_python(file.clone(), None)));
            let settings = PromptSettings::of(PromptTemplate::Question);
            let grader = Grader::start(&program, &settings, Columns::new()).unwrap();
            let earned = EarnedTruths::of(&grader, &tokenizer, &problems);
            let found = earned.ok().flatten().map(|earned| (earned.earned, earned.form[0]));
            assert_eq!(found, expected, "{text}");
        }
    }
}
