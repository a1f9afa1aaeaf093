//! The settings of a study on a policy and problems of one's own, chosen from these; refused where no run could work.

use crate::algorithm::Problem;
use crate::experiment::{
    Data, Grading, ProgramKind, PromptSettings, PromptTemplate, StarterFiles, Verifier, sets,
};
use crate::policy::checkpoint;
use crate::task::data::problem_file::{self, Readings};
use crate::task::data::reasoning_gym as gym;
use crate::task::data::source;
use crate::task::{
    ChatTemplate, DataSets, Grader, RowKeys, TaskError, Tokenizer, Twice, chat_template, data,
    prompt, reward,
};
use crate::training::plan::phases;
use crate::training::run::inputs;
use crate::training::{TrainingError, tuned};
use std::path::{Component, Path, PathBuf};
use toml::{Table, Value};

/// Files of problems.
#[derive(Debug, Clone, Copy)]
pub struct ProblemPaths<'a> {
    pub train: &'a Path,
    pub dev: &'a Path,
    pub test: &'a [PathBuf],
}

/// Responses are cut here where the positions leave more.
const USUAL_RESPONSE_TOKENS: u64 = 1024;

/// The settings, with paths as the study's `folder` names them, and a sentence of what fits.
/// Errors: a policy or problems that cannot be used, and prompts and responses that the positions do not hold.
pub fn files(
    folder: &Path,
    model: &Path,
    paths: ProblemPaths,
    max_response_tokens: Option<u64>,
    grading: &Grading,
) -> Result<(StarterFiles, String), TrainingError> {
    let ProblemPaths { train, dev, test } = paths;
    let problems =
        Data::Files { train: train.to_path_buf(), dev: dev.to_path_buf(), test: test.to_vec() };
    let names = problems.set_names();
    let mut notes = Vec::new();
    for path in [train, dev].into_iter().chain(test.iter().map(PathBuf::as_path)) {
        notes.extend(earnable(path, grading.rule())?);
    }
    let problems = data::load_with(&problems, grading.rule().is_none())?;
    let tokenizer = Tokenizer::load(model)?;
    let (config, _weights) = checkpoint::open_model(model)?;
    let settings = match tuned::prompt_of(model)? {
        Some(settings) => {
            notes.push("the template is the one that the policy was tuned with (tune.json)".into());
            settings
        }
        None => {
            let asks = asks_for_answer_line(grading);
            if !asks {
                notes.push(
                    "the template is the question alone, because the verifier reads no line `Answer: …`; what an \
                     answer must look like is for `system` of [prompt]"
                        .into(),
                );
            }
            let mut settings = PromptSettings::of(template(&tokenizer, &problems.train[0], asks)?);
            if tokenizer.chat_template()?.is_some_and(ChatTemplate::asks_for_date) {
                let (name, date) = (chat_template::DATE_FUNCTION, chat_template::FIXED_DATE);
                settings.chat_template_kwargs.insert(name.into(), date.into());
                notes.push(format!(
                    "the chat template asks for today's date, and a prompt must not depend on the day: \
                     prompt.chat_template_kwargs.{name} states {date}"
                ));
            }
            settings
        }
    };
    if grading.rule().is_none() {
        notes.push(earned_of_program(grading, &settings, &problems)?);
    }
    let all = inputs::named_sets(&problems).into_iter().flat_map(|(_, problems)| problems);
    let length = |problem: &Problem| {
        let prompt = prompt::prompt(problem, &settings, &tokenizer, u64::MAX)?;
        Ok::<u64, TaskError>(prompt.tokens.len() as u64)
    };
    let lengths = all.map(length).collect::<Result<Vec<u64>, _>>()?;
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let positions = config.max_position_embeddings as u64;
    let left = positions.saturating_sub(longest);
    let response = max_response_tokens.unwrap_or_else(|| left.clamp(1, USUAL_RESPONSE_TOKENS));
    if response > left {
        let (all, fits) = (lengths.len(), |length: &&u64| **length + response <= positions);
        let fitting = lengths.iter().filter(fits).count();
        let reason = format!(
            "has {positions} positions: with {response} tokens for a response, {fitting} of {all} problems fit; the \
             longest prompt has {longest} tokens"
        );
        return Err(TrainingError::Folder { folder: model.to_path_buf(), reason });
    }
    // Exact sums of a larger vocabulary do not fit.
    let is_small = config.vocab_size <= 4096 && config.hidden_size <= 256;
    let parameters = phases::parameters(&config);
    let fit = format!(
        "{} training problems, {} to evaluate; all prompts fit: the longest has {longest} tokens, a \
         response at most {response}",
        problems.train.len(),
        problems.evaluated().map(|(_, set)| set.len()).sum::<usize>()
    );
    let samples = names.iter().map(|name| {
        let k = if name == sets::DEV { 4 } else { 8 };
        (name.clone(), Value::from(k))
    });
    let mut of_prompt = Table::try_from(&settings).expect("texts and a name");
    if !is_small {
        notes.push(
            "`numerics` is \"fast\": exact arithmetic is for models of a benchmark's size"
                .to_string(),
        );
    }
    let mut settings = vec![
        ("", "numerics", Value::from(if is_small { "exact" } else { "fast" })),
        ("rollout", "max_prompt_tokens", Value::from(longest as i64)),
        ("rollout", "max_response_tokens", Value::from(response as i64)),
        ("evaluation", "samples", Value::Table(samples.collect::<Table>())),
        ("evaluation", "during_training", Value::from(vec![sets::DEV])),
    ];
    let mut grading = grading.clone();
    if let Grading::Program(program) = &mut grading
        && program.kind != ProgramKind::MathVerify
    {
        if gym::is_program(&program.file) && program.packages.is_empty() {
            program.packages.push(gym::PACKAGE.to_string());
        }
        program.file = relative(folder, &program.file);
    }
    if grading != Grading::Rule(Verifier::AnswerLine) {
        let value = Value::try_from(grading).expect("a verifier is representable in TOML");
        settings.push(("reward", "verifier", value));
    }
    for key in ["template", "system", "examples", "response_prefix", "chat_template_kwargs"] {
        settings.extend(of_prompt.remove(key).map(|value| ("prompt", key, value)));
    }
    // 135 million parameters learned with 2e-5; the paper has 1e-6 for 32 billion.
    if parameters >= 5e7 {
        let rate = if parameters < 3e8 { 1e-5 } else { 1e-6 };
        settings.push(("optimizer", "learning_rate", Value::from(rate)));
    }
    let (train, dev) = (relative(folder, train), relative(folder, dev));
    let test = test.iter().map(|path| relative(folder, path)).collect();
    Ok((StarterFiles { train, dev, test, settings, notes }, fit))
}

/// Each ground truth as the answer to its own problem, in the form in which the program takes most of them.
fn earned_of_program(
    grading: &Grading,
    prompt: &PromptSettings,
    problems: &DataSets,
) -> Result<String, TrainingError> {
    let grader = Grader::start(grading, prompt, problems.columns.clone())?;
    let is_text = |problem: &&Problem| {
        let truth = problems.columns.get(&problem.id).and_then(|row| row.get("ground_truth"));
        !truth.is_some_and(|truth| truth.is_object() || truth.is_array())
    };
    let sets = inputs::named_sets(problems).into_iter().flat_map(|(_, set)| set);
    let all: Vec<&Problem> = sets.filter(is_text).collect();
    if all.is_empty() {
        return Ok("the program was not tried: no response states a ground truth that is a list or an object; \
                   `dapo data grade` tries it on responses"
            .to_string());
    }
    let forms = reward::FORMS.map(|(before, after, _)| [before, after]);
    let forms = forms.into_iter().chain([["", ""], ["#### ", ""], ["<answer>", "</answer>"]]);
    let mut best: Option<(usize, String, Option<String>)> = None;
    for [before, after] in forms {
        let stated = |it: &&Problem| format!("{before}{}{after}", it.answer);
        let texts: Vec<String> = all.iter().map(stated).collect();
        let responses =
            all.iter().zip(&texts).map(|(problem, text)| (*problem, text.as_str(), None));
        let (grades, _) = grader.grade(&responses.collect::<Vec<_>>(), Twice::Hundredth(1))?;
        let earned = grades.iter().filter(|grade| grade.is_correct).count();
        if best.as_ref().is_none_or(|(most, ..)| earned > *most) {
            let first = grades.iter().position(|grade| !grade.is_correct);
            let first = first.map(|index| all[index].id.clone());
            best = Some((earned, format!("{before}…{after}"), first));
        }
    }
    let (earned, form, first) = best.unwrap_or_default();
    let missed = first.map_or(String::new(), |id| format!("; the first that is not is {id}"));
    Ok(format!(
        "the program grades {earned} of {} ground truths, each as the answer to its own problem, as \
         correct (as `{form}`){missed}",
        all.len()
    ))
}

/// A response must be able to be graded right. Returns what is read differently from the file.
fn earnable(path: &Path, rule: Option<Verifier>) -> Result<Vec<String>, TaskError> {
    let form = reward::FORMS.into_iter().find(|(_, _, verifier)| Some(*verifier) == rule);
    let mut readings = Readings::new();
    let keys = RowKeys { columns: rule.is_none(), ..RowKeys::default() };
    source::each_row(path, &keys, &mut |row| {
        problem_file::count_readings(&mut readings, &row);
        let truth = &row.row.ground_truth;
        if truth.trim().is_empty() || form.is_none_or(|form| reward::is_earned(truth, form)) {
            return Ok(());
        }
        let (path, value) = (path.to_path_buf(), truth.chars().take(60).collect());
        Err(TaskError::Unearned { path, place: row.place, value })
    })?;
    let sentences = problem_file::told(&readings).into_iter();
    Ok(sentences.map(|sentence| format!("{}: {sentence}", path.display())).collect())
}

/// Whether the released instruction, which asks for a line `Answer: …`, asks for what the verifier reads.
fn asks_for_answer_line(grading: &Grading) -> bool {
    match grading {
        Grading::Rule(rule) => matches!(rule, Verifier::AnswerLine | Verifier::LastNumber),
        Grading::Program(program) => gym::is_program(&program.file),
    }
}

/// In the chat template if there is one. `asks` adds the released instruction, unless the prompt is plain and the
/// tokenizer cannot write it.
fn template(
    tokenizer: &Tokenizer,
    problem: &Problem,
    asks: bool,
) -> Result<PromptTemplate, TaskError> {
    let is_chat = tokenizer.chat_template()?.is_some();
    match (is_chat, asks) {
        (true, true) => return Ok(PromptTemplate::DapoChat),
        (true, false) => return Ok(PromptTemplate::Chat),
        (false, false) => return Ok(PromptTemplate::Question),
        (false, true) => {}
    }
    let settings = PromptSettings::of(PromptTemplate::Dapo);
    let dapo = prompt::prompt(problem, &settings, tokenizer, u64::MAX);
    Ok(if dapo.is_ok() { PromptTemplate::Dapo } else { PromptTemplate::Question })
}

/// `path` relative to `folder`.
pub fn relative(folder: &Path, path: &Path) -> PathBuf {
    let Ok(path) = std::path::absolute(path) else { return path.to_path_buf() };
    let common = folder.components().zip(path.components()).take_while(|(a, b)| a == b).count();
    let up = folder.components().skip(common).map(|_| Component::ParentDir);
    up.chain(path.components().skip(common)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_named_from_the_folder() {
        let from = |path: &str| relative(Path::new("/a/b/study"), Path::new(path));
        assert_eq!(from("/a/b/data/x.jsonl"), Path::new("../data/x.jsonl"));
        assert_eq!(from("/a/b/study/model"), Path::new("model"));
        assert_eq!(from("/c/model"), Path::new("../../../c/model"));
    }
}
