//! Another trainer's responses as groups, graded by this harness.

use crate::algorithm::{Finish, Group, Problem, Rollout, ScoredRollout};
use crate::base::files;
use crate::engines::EngineError;
use crate::task::{Grader, ResponseText, Twice, prompt};
use crate::training::{TrainingError, run::inputs::Inputs, trainer};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub const SCORES_DIFFER: f64 = 1e-5;

#[derive(Debug, Clone, PartialEq)]
pub struct DumpedResponse {
    /// Equal within a group; decides the order of groups.
    pub group: u64,
    pub batch: u64,
    /// Index into the training problems.
    pub problem: usize,
    /// With the stop token, if there was one.
    pub tokens: Vec<u32>,
    /// The other trainer's score for correctness alone.
    pub score: f64,
}

/// Grades a step's responses again, a trainer's batch at once, and shapes the groups. Errors: groups not whole.
pub fn groups(
    inputs: &Inputs,
    responses: Vec<DumpedResponse>,
    path: &Path,
) -> Result<Vec<Group<ScoredRollout>>, EngineError> {
    let experiment = &inputs.experiment;
    let refused = |reason: String| EngineError::Output { path: path.to_path_buf(), reason };
    let (size, wanted) = (experiment.rollout.group_size, experiment.training.prompts_per_step);
    let mut members: BTreeMap<u64, Vec<DumpedResponse>> = BTreeMap::new();
    for response in responses {
        members.entry(response.group).or_default().push(response);
    }
    let count = members.len();
    if count as u64 != wanted {
        let reason = format!("there are {count} groups, and training.prompts_per_step is {wanted}");
        return Err(refused(reason));
    }
    let mut attempts: BTreeMap<usize, u32> = BTreeMap::new();
    let mut groups = Vec::with_capacity(members.len());
    let mut batches: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
    for (group, members) in members {
        let count = members.len();
        if count as u64 != size {
            let reason =
                format!("group {group} has {count} responses, and rollout.group_size is {size}");
            return Err(refused(reason));
        }
        let problem = &inputs.data.train[members[0].problem];
        if members.iter().any(|it| it.problem != members[0].problem) {
            return Err(refused(format!(
                "the responses of group {group} are to different problems"
            )));
        }
        let attempt = attempts.entry(members[0].problem).or_default();
        for (place, member) in members.iter().enumerate() {
            let batch = if inputs.grader.takes_batches() { member.batch } else { group };
            batches.entry(batch).or_default().push((groups.len(), place));
        }
        groups.push(sampled(inputs, problem, *attempt, members, &refused)?);
        *attempt += 1;
    }
    for places in batches.values() {
        graded(&inputs.grader, &mut groups, places, &refused)?;
    }
    trainer::shape(&mut groups, experiment);
    Ok(groups)
}

/// Errors: a response that has another score than the grader gives it in this batch of (group, sample).
fn graded(
    grader: &Grader,
    groups: &mut [Group<ScoredRollout>],
    places: &[(usize, usize)],
    refused: &dyn Fn(String) -> EngineError,
) -> Result<(), EngineError> {
    let asked = places.iter().map(|&(group, place)| {
        let Rollout { text, tokens, .. } = &groups[group].rollouts[place].rollout;
        (&groups[group].prompt.problem, &text[..], Some(&tokens[..]))
    });
    let graded = grader.grade(&asked.collect::<Vec<_>>(), Twice::Never);
    let (grades, _) = graded.map_err(TrainingError::from)?;
    for (&(group, place), grade) in places.iter().zip(grades) {
        let Group { prompt, rollouts, .. } = &mut groups[group];
        let (scored, ours) = (&mut rollouts[place], grade.reward);
        if scored.correctness_reward != ours {
            let (problem, theirs) = (&prompt.problem.id, scored.correctness_reward);
            let verifier = match grader {
                Grader::Rule(rule) => format!("{rule:?}"),
                Grader::Program { graders, .. } => graders.program().name(),
            };
            return Err(refused(format!(
                "a response to problem {problem} has the score {theirs}; `{verifier}` gives it {ours}"
            )));
        }
        (scored.is_correct, scored.prediction) = (grade.is_correct, grade.prediction);
    }
    Ok(())
}

fn sampled(
    inputs: &Inputs,
    problem: &Problem,
    attempt: u32,
    members: Vec<DumpedResponse>,
    refused: &dyn Fn(String) -> EngineError,
) -> Result<Group<ScoredRollout>, EngineError> {
    let (experiment, tokenizer) = (&inputs.experiment, &inputs.tokenizer);
    let limit = experiment.rollout.max_response_tokens;
    let problem_id = &problem.id;
    let mut rollouts = Vec::with_capacity(members.len());
    for DumpedResponse { tokens, score, .. } in members {
        let count = tokens.len();
        if count == 0 || count as u64 > limit {
            return Err(refused(format!(
                "a response to problem {problem_id} has {count} tokens; it must have 1 to {limit}"
            )));
        }
        let vocabulary = inputs.config.vocab_size;
        if let Some(token) = tokens.iter().find(|token| i64::from(**token) >= vocabulary) {
            return Err(refused(format!(
                "a response to problem {problem_id} has the token {token}, which the tokenizer lacks"
            )));
        }
        let stopped = tokens.last().is_some_and(|last| tokenizer.stop_tokens().contains(last));
        let finish = if stopped { Finish::Stop } else { Finish::Length };
        let text = ResponseText::of_rollouts(experiment, tokenizer).of(&tokens);
        let rollout = Rollout::new(tokens, Vec::new(), finish, text);
        rollouts.push(ScoredRollout::new(rollout, false, score));
    }
    let (settings, longest) = (&experiment.prompt, experiment.rollout.max_prompt_tokens);
    let prompt =
        prompt::prompt(problem, settings, tokenizer, longest).map_err(TrainingError::from)?;
    Ok(Group { prompt, attempt, rollouts })
}

pub fn spread(values: &[f64]) -> [f64; 3] {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let of = |start, better: fn(f64, f64) -> f64| values.iter().copied().fold(start, better);
    [mean, of(f64::NEG_INFINITY, f64::max), of(f64::INFINITY, f64::min)]
}

/// The first number of a log that these responses do not have: (name, ours, largest difference).
pub fn differing(
    count: usize,
    numbers: &[(&'static str, f64, f64)],
    logged: impl Fn(&str) -> Option<f64>,
) -> Option<String> {
    numbers.iter().find_map(|(name, ours, allowed)| {
        let theirs = logged(name).filter(|theirs| (theirs - ours).abs() > *allowed)?;
        Some(format!(
            "its {count} responses give {name} {ours}, and in the log it is {theirs}: dump and log are not of the \
             same responses"
        ))
    })
}

pub fn cut_line(path: &Path) -> Result<Option<String>, EngineError> {
    let bytes = files::read(path)?;
    let is_cut = !bytes.is_empty() && !bytes.ends_with(b"\n");
    Ok(is_cut.then(|| {
        let (line, path) = (bytes.iter().filter(|it| **it == b'\n').count() + 1, path.display());
        format!("the end of line {line} in {path}, which is cut off: copy the file again")
    }))
}

pub fn others(folder: &Path, own: &BTreeSet<PathBuf>) -> Result<Option<String>, EngineError> {
    let is_other = |name: &String| !name.starts_with('.') && !own.contains(&folder.join(name));
    let others: Vec<String> = files::list(folder)?.into_iter().filter(is_other).collect();
    let Some(first) = others.first().map(|name| folder.join(name)) else { return Ok(None) };
    let more = match others.len() - 1 {
        0 => "is not read: no rollout step of the experiment has it".to_string(),
        more => format!("and {more} more are not read: no rollout step of the experiment has them"),
    };
    Ok(Some(format!("{} {more}", first.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Prompt;
    use crate::experiment::{Grading, PromptSettings, RewardProgram};
    use crate::task::data::Columns;

    #[test]
    fn files_that_no_step_has_and_a_line_that_is_cut_off_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let own = BTreeSet::from([path("1.jsonl")]);
        let told = || others(folder.path(), &own).unwrap().unwrap_or_default();
        for (name, text, words) in [
            ("1.jsonl", "{}\n", ""),
            (".2.jsonl.partial", "{}\n", ""),
            ("2.jsonl", "{}\n{", "2.jsonl is not read: "),
            ("3.jsonl", "", "2.jsonl and 1 more are not read: "),
        ] {
            files::write_atomic(&path(name), text.as_bytes()).unwrap();
            assert!(told().contains(words) && told().is_empty() == words.is_empty(), "{}", told());
        }
        let cut = cut_line(&path("2.jsonl")).unwrap().unwrap();
        assert!(cut.starts_with("the end of line 2 in ") && cut.ends_with(": copy the file again"));
        for whole in ["1.jsonl", "3.jsonl"] {
            assert_eq!(cut_line(&path(whole)).unwrap(), None);
        }
    }

    #[test]
    fn a_function_of_batches_gets_those_of_the_trainer() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("longest.py");
        let text = "def f(completions, **_):\n return [float(c == max(completions, key=len)) for c in completions]\n";
        files::write_atomic(&file, text.as_bytes()).unwrap();
        let program = Grading::Program(Box::new(RewardProgram::of_python(file, None)));
        let grader = Grader::start(&program, &PromptSettings::default(), Columns::new()).unwrap();
        assert!(grader.takes_batches());
        let scored = |(text, score): (&str, f64)| {
            let rollout = Rollout::new(vec![1], Vec::new(), Finish::Stop, text.to_string());
            ScoredRollout::new(rollout, false, score)
        };
        let group = |texts: [(&str, f64); 2]| {
            let problem = Problem { id: "a".into(), question: "1+1?".into(), answer: "2".into() };
            let rollouts = texts.map(scored).to_vec();
            Group { prompt: Prompt { problem, tokens: Vec::new() }, attempt: 0, rollouts }
        };
        let mut groups = [group([("bb", 0.0), ("a", 1.0)]), group([("cccc", 1.0), ("", 0.0)])];
        let refused = |reason: String| EngineError::Output { path: "dump".into(), reason };
        for of_process in [[(0, 0), (1, 0)], [(0, 1), (1, 1)]] {
            graded(&grader, &mut groups, &of_process, &refused).unwrap();
        }
        let correct = groups.iter().flat_map(|group| &group.rollouts).map(|it| it.is_correct);
        assert!(correct.eq([false, true, true, false]));
        let error = graded(&grader, &mut groups, &[(0, 0)], &refused).unwrap_err().to_string();
        assert!(error.contains("has the score 0; `") && error.contains("gives it 1"), "{error}");
    }
}
