//! The settings of a study on a policy and problems of one's own, chosen from these; refused where no run could work.

use crate::algorithm::Problem;
use crate::experiment::{
    Data, Grading, ProgramKind, PromptSettings, PromptTemplate, StarterFiles, Verifier, sets,
};
use crate::policy::checkpoint;
use crate::task::data::reasoning_gym as gym;
use crate::task::data::{problem_file, source};
use crate::task::{
    ChatTemplate, DataSets, EarnedTruths, Grader, Reading, RowKeys, TaskError, Tokenizer,
    chat_template, data, prompt, reward,
};
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
    grading: Option<&Grading>,
) -> Result<(StarterFiles, String), TrainingError> {
    let tuned = tuned::form_of(model)?;
    let usual = tuned.as_ref().map_or(Verifier::AnswerLine, |(_, verifier)| *verifier);
    let usual = Grading::Rule(usual);
    let grading = grading.unwrap_or(&usual);
    let ProblemPaths { train, dev, test } = paths;
    let all: Vec<&Path> =
        [train, dev].into_iter().chain(test.iter().map(PathBuf::as_path)).collect();
    let data =
        Data::Files { train: train.to_path_buf(), dev: dev.to_path_buf(), test: test.to_vec() };
    let mut are_wrapped = false;
    for path in &all {
        are_wrapped |= earnable(path, grading.rule())?;
    }
    let problems = data::load_with(&data, grading.rule().is_none())?;
    for (set, of_set) in inputs::named_sets(&problems) {
        data::refuse_blank(set, of_set, grading)?;
    }
    let mut notes: Vec<String> = problems.told.all().cloned().collect();
    let tokenizer = Tokenizer::load(model)?;
    let (config, _weights) = checkpoint::open_model(model)?;
    let (trial, packages) = if grading.rule().is_none() {
        let asking = PromptSettings::of(template(&tokenizer, &problems.train[0], true)?);
        let prompt = tuned.as_ref().map_or(&asking, |(prompt, _)| prompt);
        let grader = Grader::start(grading, prompt, problems.columns.clone())?;
        let all = inputs::named_sets(&problems).into_iter().flat_map(|(_, set)| set);
        (EarnedTruths::of(&grader, &tokenizer, all)?, grader.unstated_packages().to_vec())
    } else {
        (None, Vec::new())
    };
    let mut settings = match tuned {
        Some((settings, verifier)) => {
            let tuned = verifier.name();
            notes.push(match grading {
                Grading::Rule(rule) if *rule == verifier => format!(
                    "template and verifier ({tuned}) are those that the policy was tuned with (tune.json)"
                ),
                _ => format!(
                    "the template is the one that the policy was tuned with (tune.json), for answers that {tuned} reads; \
                     {} grades them here: dapo plan tells whether it reads them",
                    grading.name()
                ),
            });
            settings
        }
        None => {
            let asks = match grading {
                Grading::Rule(rule) => matches!(rule, Verifier::AnswerLine | Verifier::LastNumber),
                Grading::Program(program) => {
                    are_wrapped
                        || gym::is_program(&program.file)
                        || trial.as_ref().is_some_and(EarnedTruths::is_of_answer_line)
                }
            };
            of_template(&tokenizer, &problems.train[0], grading, asks, &mut notes)?
        }
    };
    take_system(&mut settings, &problems, &all, &mut notes)?;
    if grading.rule().is_none() {
        let untried = "the program was not tried: no response states a ground truth that is a list or an object; \
                       `dapo data grade` tries it on responses";
        notes.push(trial.map_or(untried.to_string(), |trial| trial.to_string()));
    }
    let of_prompts = prompt_lengths(&problems, &settings, &tokenizer)?;
    let positions = config.max_position_embeddings as u64;
    let lengths = StartingLengths::of(&of_prompts, positions, max_response_tokens)
        .map_err(|reason| TrainingError::Folder { folder: model.to_path_buf(), reason })?;
    notes.push(lengths.note(max_response_tokens));
    let fit = format!(
        "{} training problems, {} to evaluate; all prompts fit: the longest has {} tokens, a response at most {}",
        problems.train.len(),
        problems.evaluated().map(|(_, set)| set.len()).sum::<usize>(),
        lengths.prompt,
        lengths.response
    );
    // Exact sums of a larger vocabulary do not fit.
    let is_small = config.vocab_size <= 4096 && config.hidden_size <= 256;
    if !is_small {
        let note = "`numerics` is \"fast\": exact arithmetic is for models of a benchmark's size";
        notes.push(note.to_string());
    }
    let samples = data.set_names().into_iter().map(|name| {
        let k = if name == sets::DEV { 4 } else { 8 };
        (name, Value::from(k))
    });
    let mut stated = vec![
        ("", "numerics", Value::from(if is_small { "exact" } else { "fast" })),
        ("rollout", "max_prompt_tokens", Value::from(lengths.prompt as i64)),
        ("rollout", "max_response_tokens", Value::from(lengths.response as i64)),
        ("evaluation", "samples", Value::Table(samples.collect::<Table>())),
        ("evaluation", "during_training", Value::from(vec![sets::DEV])),
    ];
    stated.extend(of_grading(folder, grading.clone(), packages));
    let mut of_prompt = Table::try_from(&settings).expect("texts and a name");
    for key in ["template", "system", "examples", "response_prefix", "chat_template_kwargs"] {
        stated.extend(of_prompt.remove(key).map(|value| ("prompt", key, value)));
    }
    // 135 million parameters learned with 2e-5; the paper has 1e-6 for 32 billion.
    let parameters = config.parameters() as f64;
    if parameters >= 5e7 {
        let rate = if parameters < 3e8 { 1e-5 } else { 1e-6 };
        notes.push(format!(
            "`learning_rate` is {rate:e}, for a policy of {:.0} million parameters; the paper has 1e-6",
            parameters / 1e6
        ));
        stated.push(("optimizer", "learning_rate", Value::from(rate)));
    }
    let (train, dev) = (relative(folder, train), relative(folder, dev));
    let test = test.iter().map(|path| relative(folder, path)).collect();
    Ok((StarterFiles { train, dev, test, settings: stated, notes }, fit))
}

fn of_template(
    tokenizer: &Tokenizer,
    first: &Problem,
    grading: &Grading,
    asks: bool,
    notes: &mut Vec<String>,
) -> Result<PromptSettings, TaskError> {
    if !asks {
        let reason = match grading {
            Grading::Rule(_) => ", because the verifier reads no line `Answer: …`",
            Grading::Program(_) => "",
        };
        notes.push(format!(
            "the template is the question alone{reason}; what an answer must look like is for `system` of [prompt]"
        ));
    }
    let template = template(tokenizer, first, asks)?;
    if template.instructs() {
        let graded = match grading.rule() {
            Some(Verifier::LastNumber) => "the last number is graded, there or elsewhere",
            Some(_) => "which is what is graded",
            None => "the program decides what of it is graded",
        };
        notes.push(format!("`template` asks for the line `Answer: …`, {graded}"));
    }
    if !template.is_chat() {
        let note = "the policy's folder has no chat template: prompts are plain text, without the marks of a chat";
        notes.push(note.to_string());
    }
    let mut settings = PromptSettings::of(template);
    if tokenizer.chat_template()?.is_some_and(ChatTemplate::asks_for_date) {
        let (name, date) = (chat_template::DATE_FUNCTION, chat_template::FIXED_DATE);
        settings.chat_template_kwargs.insert(name.into(), date.into());
        notes.push(format!(
            "the chat template asks for today's date, and a prompt must not depend on the day: \
             prompt.chat_template_kwargs.{name} states {date}"
        ));
    }
    Ok(settings)
}

/// Takes the system message that the first of the files states, if the settings have none.
fn take_system(
    settings: &mut PromptSettings,
    problems: &DataSets,
    paths: &[&Path],
    notes: &mut Vec<String>,
) -> Result<(), TaskError> {
    let is_chat = settings.template.is_chat();
    let stated = paths.iter().filter_map(|path| Some((path, problems.systems.get(*path)?)));
    let mut stated = stated.filter(|(_, system)| is_chat || !system.is_empty());
    if let Some((path, system)) = stated.next().filter(|_| settings.system.is_none()) {
        notes.push(format!("`system` is the system message of {}", path.display()));
        settings.system = Some(system.clone());
        let without = paths.iter().filter(|path| !problems.systems.contains_key(**path));
        notes.extend(without.map(|path| {
            format!("{}: its prompts have no system message, and get `system`", path.display())
        }));
    }
    for path in paths {
        let own = problems.systems.get(*path).map(String::as_str);
        notes.extend(problem_file::other_system(path, own, settings)?);
    }
    Ok(())
}

struct StartingLengths {
    /// Tokens of the longest prompt, and of a response at most.
    prompt: u64,
    response: u64,
    positions: u64,
}

impl StartingLengths {
    fn of(
        prompts: &[u64],
        positions: u64,
        max_response_tokens: Option<u64>,
    ) -> Result<Self, String> {
        let prompt = prompts.iter().copied().max().unwrap_or(0);
        let left = positions.saturating_sub(prompt);
        let response = max_response_tokens.unwrap_or_else(|| left.clamp(1, USUAL_RESPONSE_TOKENS));
        if response <= left {
            return Ok(Self { prompt, response, positions });
        }
        let fitting = prompts.iter().filter(|length| **length + response <= positions).count();
        Err(format!(
            "has {positions} positions: with {response} tokens for a response, {fitting} of {} problems fit; the longest \
             prompt has {prompt} tokens",
            prompts.len()
        ))
    }

    fn note(&self, max_response_tokens: Option<u64>) -> String {
        let positions = self.positions;
        let left = positions.saturating_sub(self.prompt);
        let chosen = match max_response_tokens {
            Some(_) => "--max-response-tokens",
            None if self.response == left => "what the positions leave",
            None => "less than the positions leave",
        };
        format!(
            "`max_prompt_tokens` is the longest prompt's, `max_response_tokens` is {chosen}: the model has {positions} \
             positions, {left} beside that prompt; batch sizes and steps are the embedded benchmark's"
        )
    }
}

fn prompt_lengths(
    problems: &DataSets,
    settings: &PromptSettings,
    tokenizer: &Tokenizer,
) -> Result<Vec<u64>, TaskError> {
    let all = inputs::named_sets(problems).into_iter().flat_map(|(_, problems)| problems);
    let length = |problem: &Problem| {
        Ok(prompt::prompt(problem, settings, tokenizer, u64::MAX)?.tokens.len() as u64)
    };
    all.map(length).collect()
}

/// What differs from grading by the line `Answer: …`.
fn of_grading(
    folder: &Path,
    mut grading: Grading,
    packages: Vec<String>,
) -> Vec<(&'static str, &'static str, Value)> {
    let is_program = grading.rule().is_none();
    if let Grading::Program(program) = &mut grading
        && program.kind != ProgramKind::MathVerify
    {
        program.packages.extend(packages);
        program.file = relative(folder, &program.file);
    }
    let mut stated = Vec::new();
    if grading != Grading::Rule(Verifier::AnswerLine) {
        let value = Value::try_from(grading).expect("a verifier is representable in TOML");
        stated.push(("reward", "verifier", value));
    }
    if is_program {
        stated.push(("records", "format", Value::from(4)));
    }
    stated
}

/// A response must be able to be graded right. Returns whether prompts have the released instruction.
fn earnable(path: &Path, rule: Option<Verifier>) -> Result<bool, TaskError> {
    let form = reward::FORMS.into_iter().find(|(_, _, verifier)| Some(*verifier) == rule);
    let mut is_wrapped = false;
    let keys = RowKeys { columns: rule.is_none(), ..RowKeys::default() };
    source::each_row(path, &keys, &mut |row| {
        let prompt = row.read.prompt.last();
        is_wrapped |= prompt.is_some_and(|it| data::template::unwrap(&it.content).is_some());
        let truth = &row.read.ground_truth;
        let is_left_out = row.read.truth.readings.contains(&Reading::Unmarked);
        if is_left_out
            || truth.trim().is_empty()
            || form.is_none_or(|form| reward::is_earned(truth, form))
        {
            return Ok(());
        }
        let (path, value) = (path.to_path_buf(), truth.chars().take(60).collect());
        Err(TaskError::Unearned { path, place: row.place, value })
    })?;
    Ok(is_wrapped)
}

/// In the chat template if there is one. `asks` adds the released instruction, unless the prompt is plain and the
/// tokenizer cannot write it.
fn template(
    tokenizer: &Tokenizer,
    problem: &Problem,
    asks: bool,
) -> Result<PromptTemplate, TaskError> {
    if tokenizer.chat_template()?.is_some() {
        return Ok(if asks { PromptTemplate::DapoChat } else { PromptTemplate::Chat });
    }
    let settings = PromptSettings::of(PromptTemplate::Dapo);
    let is_plain = asks && prompt::prompt(problem, &settings, tokenizer, u64::MAX).is_ok();
    Ok(if is_plain { PromptTemplate::Dapo } else { PromptTemplate::Question })
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
    use crate::base::files;
    use crate::experiment::RewardProgram;
    use serde_json::json;

    #[test]
    fn a_path_is_named_from_the_folder() {
        let from = |path: &str| relative(Path::new("/a/b/study"), Path::new(path));
        assert_eq!(from("/a/b/data/x.jsonl"), Path::new("../data/x.jsonl"));
        assert_eq!(from("/a/b/study/model"), Path::new("model"));
        assert_eq!(from("/c/model"), Path::new("../../../c/model"));
    }

    /// One token a byte, so that it can write the released instruction.
    fn policy(folder: &Path) {
        let golden = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden"));
        for (from, to) in [
            ("mini-aime/base/model.safetensors", "model.safetensors"),
            ("mini-aime/base/generation_config.json", "generation_config.json"),
            ("tokenizers/byte-level.json", "tokenizer.json"),
        ] {
            let bytes = files::read(&golden.join(from)).unwrap();
            files::write_atomic(&folder.join(to), &bytes).unwrap();
        }
        let config = files::read_text(&golden.join("mini-aime/base/config.json")).unwrap();
        let config = config.replace("embeddings\": 256", "embeddings\": 1024");
        files::write_atomic(&folder.join("config.json"), config.as_bytes()).unwrap();
    }

    #[test]
    fn the_instruction_stays_where_rows_have_it_or_the_program_reads_an_answer_line() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        policy(folder);
        let [train, dev, test] =
            ["train", "dev", "test"].map(|set| folder.join(set).with_extension("jsonl"));
        let program = folder.join("reward.py");
        for (grades, is_wrapped, expected) in [
            ("response == 'Answer: ' + answer", false, "dapo"),
            ("response == '<answer>' + answer + '</answer>'", false, "question"),
            ("response == '<answer>' + answer + '</answer>'", true, "dapo"),
        ] {
            for path in [&train, &dev, &test] {
                let question = format!("{}: 1 + 1?", sets::set_name(path));
                let prompt = if is_wrapped { data::template::wrap(&question) } else { question };
                let row = json!({"prompt": prompt, "answer": "2"}).to_string();
                files::write_atomic(path, row.as_bytes()).unwrap();
            }
            let text = format!("def grade(response, answer):\n return {grades}\n");
            files::write_atomic(&program, text.as_bytes()).unwrap();
            let grading =
                Grading::Program(Box::new(RewardProgram::of_python(program.clone(), None)));
            let paths =
                ProblemPaths { train: &train, dev: &dev, test: std::slice::from_ref(&test) };
            let (started, _) = files(folder, folder, paths, None, Some(&grading)).unwrap();
            let template = started.settings.iter().find(|(_, key, _)| *key == "template").unwrap();
            assert_eq!(template.2.as_str(), Some(expected), "{grades}");
            let notes = started.notes.join("\n");
            assert!(!notes.contains("reads no line"), "{notes}");
            assert!(notes.contains("grades 3 of 3 ground truths"), "{notes}");
        }
    }

    #[test]
    fn the_system_message_is_the_training_file_s_and_every_other_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path();
        policy(folder);
        let [train, dev, test] =
            ["z", "dev", "a"].map(|set| folder.join(set).with_extension("jsonl"));
        let grading = Grading::Rule(Verifier::StrictBox);
        for (template, systems, expected, told) in [
            (
                Some("{{ messages[0].content }}"),
                [Some("T"), Some("D"), None],
                Some("T"),
                vec![
                    "system message of z.jsonl",
                    "a.jsonl: its prompts have no system message, and get `system`",
                    "dev.jsonl: its prompts have the system message \"D\", and `prompt.system` has \"T\"",
                ],
            ),
            (
                Some(""),
                [None, Some(""), None],
                Some(""),
                vec!["message of dev.jsonl", "z.jsonl: its"],
            ),
            (None, [Some(""), None, Some("A")], Some("A"), vec!["message of a.jsonl", "has \"A\""]),
            (None, [Some(""), None, None], None, vec![]),
        ] {
            for (path, system) in [&train, &dev, &test].into_iter().zip(systems) {
                let question = format!("{}: 1 + 1?", sets::set_name(path));
                let system = system.map(|text| json!({"role": "system", "content": text}));
                let user = json!({"role": "user", "content": question});
                let prompt = Vec::from_iter(system.into_iter().chain([user]));
                let row = json!({"prompt": prompt, "answer": "2"}).to_string();
                files::write_atomic(path, row.as_bytes()).unwrap();
            }
            let text =
                template.map_or(json!(null), |text| json!(format!("{text}{{{{ messages }}}}")));
            let config = folder.join("tokenizer_config.json");
            files::write_json(&config, &json!({"chat_template": text})).unwrap();
            let paths =
                ProblemPaths { train: &train, dev: &dev, test: std::slice::from_ref(&test) };
            let (started, _) = files(folder, folder, paths, None, Some(&grading)).unwrap();
            let system = started.settings.iter().find(|(_, key, _)| *key == "system");
            assert_eq!(system.and_then(|it| it.2.as_str()), expected, "{systems:?}");
            let notes = started.notes.join("\n").replace(&format!("{}/", folder.display()), "");
            assert!(told.iter().all(|told| notes.contains(told)), "{notes}");
            assert_eq!(notes.contains("system message"), !told.is_empty(), "{notes}");
        }
    }
}
