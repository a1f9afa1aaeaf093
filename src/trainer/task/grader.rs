//! What grades the responses of an experiment: a rule, or the user's program.

use crate::algorithm::{Group, Problem, Rollout, ScoredRollout};
use crate::base::files;
use crate::experiment::{Grading, ProgramKind, PromptSettings, RewardProgram, Verifier};
use crate::task::TaskError;
use crate::task::data::{Columns, schema};
use crate::task::prompt;
use crate::task::reward::program::answer::Ready;
use crate::task::reward::program::worker::MATH_VERIFY;
use crate::task::reward::program::{
    Asked, DISAGREEING, Graded, Graders, Ungraded, metric, not_graded, placed,
};
use crate::task::reward::{self, Grade};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub enum Grader {
    Rule(Verifier),
    Program { graders: Box<Graders>, prompt: PromptSettings, columns: Columns },
}

/// A response to a problem, as text and, where they are known, as tokens.
pub type Answered<'a> = (&'a Problem, &'a str, Option<&'a [u32]>);

/// Which responses a program grades twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twice {
    All,
    /// One in a hundred of a call, one at least; of a function that takes batches one call in twenty. Its number says which.
    Few(u64),
    Never,
}

impl Twice {
    fn of(self, responses: usize, in_batches: bool) -> Vec<usize> {
        match self {
            Self::Never => Vec::new(),
            Self::Few(call) if in_batches && !call.is_multiple_of(20) => Vec::new(),
            Self::Few(call) if !in_batches => {
                let first = call.wrapping_mul(37) % responses.clamp(1, 100) as u64;
                (first as usize..responses).step_by(100).collect()
            }
            Self::All | Self::Few(_) => (0..responses).collect(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    extra: BTreeMap<String, (f64, u64)>,
    twice: u64,
    disagreeing: u64,
}

impl Tally {
    pub fn add(&mut self, other: Self) {
        for (name, (sum, count)) in other.extra {
            let own = self.extra.entry(name).or_default();
            *own = (own.0 + sum, own.1 + count);
        }
        self.twice += other.twice;
        self.disagreeing += other.disagreeing;
    }

    /// `reward/NAME`: means over the responses that have it, and the share of those graded twice with another grade.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let mean =
            |(name, (sum, count)): (&String, &(f64, u64))| (metric(name), sum / *count as f64);
        let mut metrics: BTreeMap<String, f64> = self.extra.iter().map(mean).collect();
        if self.twice > 0 {
            let share = self.disagreeing as f64 / self.twice as f64;
            metrics.insert(DISAGREEING.to_string(), share);
        }
        metrics
    }
}

/// Responses without a grade, with the whole batch in the form that `dapo data grade` reads.
#[derive(Debug, thiserror::Error)]
#[error("{program}: {failed}: {error}")]
pub struct UngradedBatch {
    program: String,
    failed: String,
    error: Ungraded,
    pub batch: Vec<UngradedResponse>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UngradedResponse {
    problem: String,
    #[serde(flatten)]
    asked: Asked,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Grader {
    /// Starts the program. Errors: a program that does not start, or has nothing that can be called.
    pub fn start(
        grading: &Grading,
        prompt: &PromptSettings,
        columns: Columns,
    ) -> Result<Self, TaskError> {
        Ok(match grading {
            Grading::Rule(rule) => Self::Rule(*rule),
            Grading::Program(program) => {
                let graders = Box::new(Graders::start((**program).clone())?);
                Self::Program { graders, prompt: prompt.clone(), columns }
            }
        })
    }

    pub fn rule(&self) -> Option<Verifier> {
        if let Self::Rule(rule) = self { Some(*rule) } else { None }
    }

    pub fn program(&self) -> Option<&RewardProgram> {
        if let Self::Program { graders, .. } = self { Some(graders.program()) } else { None }
    }

    pub fn takes_batches(&self) -> bool {
        matches!(self, Self::Program { graders, .. } if graders.ready().form.takes_batches())
    }

    /// What the program is, as inputs of a run: digests of its files, versions of Python and packages.
    pub fn inputs(&self) -> Result<BTreeMap<String, String>, TaskError> {
        let Self::Program { graders, .. } = self else { return Ok(BTreeMap::new()) };
        let (ready, mut inputs) = (graders.ready(), BTreeMap::new());
        let folder = graders.program().file.parent().map(PathBuf::from).unwrap_or_default();
        for name in &ready.files {
            let stated = graders.program().files.contains(name);
            let path = if stated { graders.stated(&folder, name)? } else { placed(&folder, name) };
            inputs.insert(format!("reward/{name}"), files::sha256_file(&path)?);
        }
        if graders.program().kind == ProgramKind::MathVerify {
            inputs.insert("reward/math-verify".to_string(), files::sha256(MATH_VERIFY.as_bytes()));
        }
        for (name, version) in &ready.packages {
            inputs.insert(format!("package/{name}"), version.clone());
        }
        Ok(inputs)
    }

    /// Sentences on further numbers of the program's that are not recorded as they are.
    pub fn odd_numbers(&self) -> Vec<String> {
        if let Self::Program { graders, .. } = self { graders.odd_numbers() } else { Vec::new() }
    }

    pub fn unstated_packages(&self) -> &[String] {
        let Self::Program { graders, .. } = self else { return &[] };
        &graders.ready().unstated_packages
    }

    pub fn unlisted_files(&self) -> Option<String> {
        let Self::Program { graders, .. } = self else { return None };
        let program = graders.program();
        if let Some(first) = graders.ready().data.first() {
            let (name, count) = (program.name(), graders.ready().data.len());
            let copied =
                if first.starts_with("above-") { "copy it into that folder and " } else { "" };
            let listed = first.rsplit('/').next().filter(|_| !copied.is_empty()).unwrap_or(first);
            return Some(format!(
                "{name}: it reads {first} as it is loaded, which is not in the run's key ({count} in all): {copied}list it \
                 in the table of the verifier (files = [{listed:?}])"
            ));
        }
        if program.kind != ProgramKind::Command || !program.files.is_empty() {
            return None;
        }
        let own = program.file.file_name()?.to_str()?;
        let folder = program.file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut others = files::list(folder.unwrap_or(Path::new("."))).ok()?;
        let is_program = |name: &str| {
            let kind = name.rsplit_once('.').map_or("", |(_, kind)| kind);
            PROGRAM_KINDS.contains(&kind)
        };
        others.retain(|name| name != own && is_program(name));
        let (first, count) = (others.first()?, others.len());
        Some(format!(
            "{}: files of its folder that may be parts of it are not in the run's key ({first}; {count} in all): list \
             those that it reads in the table of the verifier (files = [{first:?}])",
            program.name()
        ))
    }

    /// Sentences on what the program gets otherwise than verl and TRL would give it. `stops`: strings end responses.
    pub fn odd_arguments(&self, stops: bool) -> Vec<String> {
        let Self::Program { graders, columns, .. } = self else { return Vec::new() };
        let lacks =
            |name: &str| columns.is_empty() || columns.values().any(|row| !row.contains_key(name));
        let is_solution = |name: &&String| *name == "solution" && lacks(name);
        let truths: Vec<String> =
            graders.ready().truths.iter().filter(is_solution).cloned().collect();
        let of_truths = (!truths.is_empty()).then(|| {
            let told = Ready::told(&truths);
            format!("{told}: the bare answer, not a worked solution or a \\boxed{{…}}")
        });
        let is_own = graders.program().kind == ProgramKind::MathVerify;
        let of_stops = (stops && !is_own).then(|| {
            "with the text before its stop string, which verl and TRL would leave in it".to_string()
        });
        let name = graders.program().name();
        let told = |what: String| format!("{name} gets a response {what}");
        of_truths.into_iter().chain(of_stops).map(told).collect()
    }

    pub fn truth_is_text(&self, problem: &Problem) -> bool {
        let Self::Program { columns, .. } = self else { return true };
        let truth = columns.get(&problem.id).and_then(|row| row.get("ground_truth"));
        !truth.is_some_and(|truth| truth.is_object() || truth.is_array())
    }

    /// What the program is told of a response; `None` of a rule.
    pub fn asked(&self, (problem, text, tokens): Answered) -> Option<Asked> {
        let Self::Program { graders, prompt: settings, columns } = self else { return None };
        let of_problem = columns.get(&problem.id).cloned().unwrap_or_default();
        let prompt = if settings.template.is_chat() {
            json!(prompt::messages(&problem.question, settings))
        } else {
            json!(prompt::plain(&problem.question, settings))
        };
        let asked = Asked::new(prompt, text.to_string(), problem.answer.clone(), of_problem);
        let completion_ids = tokens.map(<[u32]>::to_vec);
        Some(for_program(Asked { completion_ids, ..asked }, graders.program()))
    }

    /// The grades, in order. Errors: responses that the program did not grade; a rule grades all.
    pub fn grade(
        &self,
        responses: &[Answered],
        twice: Twice,
    ) -> Result<(Vec<Grade>, Tally), Box<UngradedBatch>> {
        let graders = match self {
            Self::Rule(rule) => {
                let grade =
                    |(problem, text, _): &Answered| reward::grade(text, &problem.answer, *rule);
                return Ok((responses.iter().map(grade).collect(), Tally::default()));
            }
            Self::Program { graders, .. } => graders,
        };
        let asked: Vec<Asked> = responses.iter().filter_map(|it| self.asked(*it)).collect();
        let mut results = graders.grade(&asked);
        let mut tally = Tally::default();
        let again = twice.of(asked.len(), graders.ready().form.takes_batches());
        if results.iter().all(Result::is_ok) {
            if graders.program().allow_nondeterministic {
                tally.twice = again.len() as u64;
            }
            tally.disagreeing = graders.grade_again(&asked, &again, &mut results);
        }
        let place = |first: usize| format!("problem {}", responses[first].0.id);
        if let Some((failed, error)) = not_graded(&results, place) {
            let kept = |((asked, result), (problem, ..)): ((Asked, &Graded), &Answered)| {
                let error = result.as_ref().err().map(ToString::to_string);
                UngradedResponse { problem: problem.id.clone(), asked, error }
            };
            return Err(Box::new(UngradedBatch {
                program: graders.program().name(),
                failed,
                error: error.clone(),
                batch: asked.into_iter().zip(&results).zip(responses).map(kept).collect(),
            }));
        }
        let grades: Vec<Grade> = results.into_iter().flatten().collect();
        for (name, number) in grades.iter().flat_map(|grade| &grade.extra) {
            let own = tally.extra.entry(name.clone()).or_default();
            *own = (own.0 + number, own.1 + 1);
        }
        Ok((grades, tally))
    }

    pub fn close(&self, after: &str) -> Result<(), Box<UngradedBatch>> {
        let Self::Program { graders, .. } = self else { return Ok(()) };
        graders.close().map_err(|error| {
            let (program, failed) = (graders.program().name(), format!("after {after}"));
            Box::new(UngradedBatch { program, failed, error, batch: Vec::new() })
        })
    }

    /// Every rollout with its reward. Errors: as of [`Grader::grade`].
    pub fn grade_groups(
        &self,
        groups: Vec<Group<Rollout>>,
        twice: Twice,
    ) -> Result<(Vec<Group<ScoredRollout>>, Tally), Box<UngradedBatch>> {
        let mut responses: Vec<Answered> = Vec::new();
        for group in &groups {
            let problem = &group.prompt.problem;
            for rollout in &group.rollouts {
                responses.push((problem, &rollout.text, Some(&rollout.tokens)));
            }
        }
        let (grades, tally) = self.grade(&responses, twice)?;
        let mut grades = grades.into_iter();
        let scored = groups.into_iter().map(|Group { prompt, attempt, rollouts }| Group {
            prompt,
            attempt,
            rollouts: rollouts.into_iter().zip(grades.by_ref()).map(scored).collect(),
        });
        Ok((scored.collect(), tally))
    }
}

const PROGRAM_KINDS: [&str; 18] = [
    "awk", "cjs", "jar", "jl", "jq", "js", "lua", "mjs", "php", "pl", "pm", "py", "r", "rb", "sh",
    "so", "ts", "wasm",
];

/// Math-Verify compares formulas, and reads a ground truth as the built-in rules do.
pub fn for_program(asked: Asked, program: &RewardProgram) -> Asked {
    match schema::truth::answer(&asked.ground_truth) {
        Ok(formula) if program.kind == ProgramKind::MathVerify => {
            Asked { ground_truth: formula.into(), ..asked }
        }
        _ => asked,
    }
}

fn scored((rollout, grade): (Rollout, Grade)) -> ScoredRollout {
    ScoredRollout {
        rollout,
        is_correct: grade.is_correct,
        correctness_reward: grade.reward,
        prediction: grade.prediction,
        overlong_penalty: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::PromptTemplate;

    #[test]
    fn the_share_that_disagrees_is_of_every_call_that_grades_twice_where_that_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reward.py");
        files::write_atomic(&file, b"def grade(response, answer): return True\n").unwrap();
        let problem = Problem { id: "a".into(), question: "q".into(), answer: "7".into() };
        for (allow_nondeterministic, twice, expected) in
            [(true, Twice::All, Some(0.0)), (true, Twice::Never, None), (false, Twice::All, None)]
        {
            let program = RewardProgram::of_python(file.clone(), None);
            let program = RewardProgram { allow_nondeterministic, ..program };
            let grading = Grading::Program(Box::new(program));
            let settings = PromptSettings::of(PromptTemplate::Question);
            let grader = Grader::start(&grading, &settings, Columns::new()).unwrap();
            let (_, tally) = grader.grade(&[(&problem, "7", None)], twice).unwrap();
            assert_eq!(tally.metrics().get(DISAGREEING).copied(), expected);
        }
    }

    #[test]
    fn one_response_in_a_hundred_and_one_batch_in_twenty_is_graded_twice() {
        for responses in [1, 32, 100, 250] {
            let mut chosen: Vec<usize> = Vec::new();
            for call in 0..100 {
                let again = Twice::Few(call).of(responses, false);
                assert!(again.len() >= (responses / 100).max(1));
                chosen.extend(again);
            }
            chosen.sort_unstable();
            chosen.dedup();
            assert_eq!(chosen.len(), responses, "each position has its turn");
        }
        let batches = (1..=100).map(|call| Twice::Few(call).of(7, true).len());
        assert_eq!(batches.sum::<usize>(), 5 * 7);
        assert_eq!(Twice::Never.of(7, true).len() + Twice::Few(1).of(0, false).len(), 0);
    }
}
