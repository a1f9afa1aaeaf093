//! Problems: generated or read from files.

pub mod embedded;
pub mod problem_file;
pub mod source;
pub mod schema;
pub mod leaks;
pub mod texts;
pub mod template;
pub mod prepared;
pub mod reasoning_gym;

use crate::algorithm::Problem;
use crate::base::files;
use crate::experiment::{Data, Experiment, Grading, ProgramKind, PromptExample, sets};
use crate::records::tables::problems::write_problems;
use crate::records::{NamedProblem, Tags, tables};
use crate::task::data::problem_file::{ProblemFile, Told};
use crate::task::{RowKeys, TaskError};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a problem file has beside question and ground truth, by the problem's id; a program that grades may read it.
pub type Columns = BTreeMap<String, Map<String, Value>>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataSets {
    pub train: Vec<Problem>,
    pub dev: Vec<Problem>,
    /// What a run is judged by: set name and problems.
    pub tests: Vec<(String, Vec<Problem>)>,
    /// Of evaluated sets, where their files have any.
    pub tags: Tags,
    pub columns: Columns,
    pub told: Told,
    /// System messages of the prompts of files.
    pub systems: BTreeMap<PathBuf, String>,
}

impl DataSets {
    /// Every set that is evaluated, by its name: the development set first.
    pub fn evaluated(&self) -> impl Iterator<Item = (&str, &[Problem])> {
        let tests = self.tests.iter().map(|(name, problems)| (name.as_str(), &problems[..]));
        std::iter::once((sets::DEV, &self.dev[..])).chain(tests)
    }
}

/// Loads or generates the problems of an experiment. A test set is named after its file. Errors: among others
/// [`TaskError::Overlap`], when a problem of an evaluation set is trained on: accuracy on it would say nothing.
pub fn load(data: &Data) -> Result<DataSets, TaskError> {
    load_with(data, false)
}

/// The problems with the sets that evaluate another set's once more; all columns where a program grades.
pub fn load_for(experiment: &Experiment) -> Result<DataSets, TaskError> {
    of_experiment(experiment, &experiment.inputs.data)
}

/// As [`load_for`], from data that lie elsewhere.
pub fn of_experiment(experiment: &Experiment, data: &Data) -> Result<DataSets, TaskError> {
    let mut sets = load_with(data, experiment.reward.verifier.rule().is_none())?;
    for (name, of) in experiment.evaluation.copies() {
        let problems = sets.evaluated().find(|(known, _)| known == of).map(|(_, all)| all.to_vec());
        sets.tests.push((name.clone(), problems.unwrap_or_default()));
        if let Some(tags) = sets.tags.get(of).cloned() {
            sets.tags.insert(name.clone(), tags);
        }
    }
    refuse_blank(sets::TRAIN, &sets.train, &experiment.reward.verifier)?;
    for (set, problems) in sets.evaluated() {
        refuse_blank(set, problems, experiment.grading_of(set))?;
    }
    refuse_shown(&experiment.prompt.examples, &sets)?;
    for (path, system) in &sets.systems {
        let told = problem_file::other_system(path, Some(system), &experiment.prompt)?;
        sets.told.systems.extend(told);
    }
    Ok(sets)
}

pub fn refuse_blank(set: &str, problems: &[Problem], grading: &Grading) -> Result<(), TaskError> {
    if grading.program().is_some_and(|program| program.kind != ProgramKind::MathVerify) {
        return Ok(());
    }
    let blank = problems.iter().find(|problem| problem.answer.trim().is_empty());
    blank.map_or(Ok(()), |problem| {
        let (path, place) = (PathBuf::from(set), format!(": problem {}", problem.id));
        Err(TaskError::Blank { path, place, field: "answer" })
    })
}

/// A problem whose answer stands in every prompt says nothing.
fn refuse_shown(examples: &[PromptExample], sets: &DataSets) -> Result<(), TaskError> {
    let shown: BTreeSet<[u8; 32]> =
        examples.iter().map(|example| leaks::identity(&example.question)).collect();
    if shown.is_empty() {
        return Ok(());
    }
    for (set, problems) in sets.evaluated() {
        let is_shown = |problem: &&Problem| shown.contains(&leaks::identity(&problem.question));
        if let Some(problem) = problems.iter().find(is_shown) {
            let start = problem.question.chars().take(60).collect();
            return Err(TaskError::ShownExample { set: set.into(), start, id: problem.id.clone() });
        }
    }
    Ok(())
}

/// As [`load`], with all columns where `columns` asks for them; then an id names one problem of all files.
pub fn load_with(data: &Data, columns: bool) -> Result<DataSets, TaskError> {
    let Data::Files { train, dev, test } = data else {
        return Ok(embedded::of(data).map(|task| task.sets()).unwrap_or_default());
    };
    let keys = RowKeys { columns, ..RowKeys::default() };
    let (mut all_columns, mut told) = (Columns::new(), Told::default());
    let mut systems = BTreeMap::new();
    let mut consistent = |path: &Path| -> Result<ProblemFile, TaskError> {
        let mut file = problem_file::read_with(path, &keys)?.consistent(path)?;
        told.add(path, &file.told);
        systems.extend(file.system.take().map(|system| (path.to_path_buf(), system)));
        for (id, of_row) in std::mem::take(&mut file.columns) {
            if all_columns.insert(id.clone(), of_row).is_some() {
                return Err(TaskError::IdOfTwoSets { path: path.to_path_buf(), id });
            }
        }
        Ok(file)
    };
    // The records of metrics and outcomes call the development set `dev`.
    let mut names = BTreeSet::from([sets::DEV.to_string()]);
    let (mut tests, mut tags) = (Vec::new(), Tags::new());
    for path in test {
        let name = sets::set_name(path);
        if !names.insert(name.clone()) {
            return Err(TaskError::DuplicateSet { path: path.clone(), name });
        }
        let file = consistent(path)?;
        tags.insert(name.clone(), file.tags);
        tests.push((name, file.problems));
    }
    let dev_file = consistent(dev)?;
    tags.insert(sets::DEV.to_string(), dev_file.tags);
    tags.retain(|_, of_set| !of_set.is_empty());
    let (train_set, dev_set) = (consistent(train)?.problems, dev_file.problems);
    let columns = all_columns;
    let sets = DataSets { train: train_set, dev: dev_set, tests, tags, columns, told, systems };
    let evaluated = sets.tests.iter().map(|(_, problems)| problems);
    for (path, problems) in test.iter().zip(evaluated).chain([(dev, &sets.dev)]) {
        refuse_overlap((train, &sets.train), (path, problems))?;
    }
    Ok(sets)
}

/// What makes two questions the same problem: SHA-256 of their words, however they are spaced.
pub fn identity(question: &str) -> [u8; 32] {
    Sha256::digest(words(question)).into()
}

/// A text with one space between its words and none around them.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn refuse_overlap(
    (train, trained): (&Path, &[Problem]),
    (path, evaluated): (&Path, &[Problem]),
) -> Result<(), TaskError> {
    let identity = |problem: &Problem| leaks::identity(&problem.question);
    let known: BTreeSet<[u8; 32]> = trained.iter().map(identity).collect();
    let is_shared = |problem: &&Problem| known.contains(&identity(problem));
    let shared: Vec<&Problem> = evaluated.iter().filter(is_shared).collect();
    if shared.is_empty() {
        return Ok(());
    }
    let evaluated_too: BTreeSet<[u8; 32]> = evaluated.iter().map(identity).collect();
    if known.is_subset(&evaluated_too) {
        let (train, evaluated) = (train.to_path_buf(), path.to_path_buf());
        return Err(TaskError::AllEvaluated { train, evaluated });
    }
    let start = |problem: &&Problem| {
        let start: String = problem.question.chars().take(60).collect();
        format!("{start:?} ({})", problem.id)
    };
    let listed: Vec<String> = shared.iter().take(3).map(start).collect();
    let (train, evaluated, listed) = (train.to_path_buf(), path.to_path_buf(), listed.join(", "));
    Err(TaskError::Overlap { train, evaluated, count: shared.len(), listed })
}

/// SHA-256 over the problems' canonical JSON lines, in order: the content of a set, whatever file it came from.
pub fn digest(problems: &[Problem]) -> String {
    digest_with(problems, &Columns::new())
}

/// As [`digest`], with what a program reads of them, where there is anything.
pub fn digest_with(problems: &[Problem], columns: &Columns) -> String {
    let line = |problem: &Problem| {
        let line = if columns.is_empty() {
            files::canonical_json_line(problem)
        } else {
            files::canonical_json_line(&(problem, columns.get(&problem.id)))
        };
        line + "\n"
    };
    files::sha256(problems.iter().map(line).collect::<String>().as_bytes())
}

/// Writes parquet in the released schema; reading gives the same problems and ids. `templated` puts the released
/// instruction around each question in the `prompt` column, for readers that take prompts from there.
pub fn write(path: &Path, problems: &[Problem], templated: bool) -> Result<(), tables::TableError> {
    write_kept(path, problems, (&BTreeMap::new(), None), templated)
}

/// As [`write()`], with the tags of each problem by its id, and of a file's no other `data_source` and `extra_info` than
/// those among its columns.
pub fn write_kept(
    path: &Path,
    problems: &[Problem],
    (tags, columns): (&BTreeMap<String, Vec<String>>, Option<&Columns>),
    templated: bool,
) -> Result<(), tables::TableError> {
    let prompt = |problem: &Problem| template::asked(&problem.question, templated);
    let prompts: Vec<String> = problems.iter().map(prompt).collect();
    let pairs = problems.iter().zip(&prompts).map(|(problem, prompt)| (problem, prompt.as_str()));
    let none = Map::new();
    let tags = |problem: &Problem| tags.get(&problem.id).map_or(&[][..], Vec::as_slice);
    let row = |(problem, prompt)| {
        let row = NamedProblem::new(problem, prompt, tags(problem));
        let Some(columns) = columns else { return row };
        let columns = columns.get(&problem.id);
        let data_source = columns.and_then(|columns| columns.get("data_source")?.as_str());
        let extra = columns.and_then(|columns| columns.get("extra_info")?.as_object());
        NamedProblem { data_source, extra: extra.or(Some(&none)), ..row }
    };
    let rows: Vec<NamedProblem> = pairs.map(row).collect();
    write_problems(path, &rows)
}

/// As [`write()`], with `data_source` and prompt of each problem; a problem may stand in several rows.
pub fn write_sourced(
    path: &Path,
    problems: &[(&str, &Problem)],
    prompts: &[String],
) -> Result<(), tables::TableError> {
    let rows: Vec<NamedProblem> = problems
        .iter()
        .zip(prompts)
        .map(|(&(data_source, problem), prompt)| NamedProblem {
            data_source: Some(data_source),
            ..NamedProblem::new(problem, prompt, &[])
        })
        .collect();
    write_problems(path, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::MiniAimeVariant;
    use crate::task::data::embedded::mini_aime;

    #[test]
    fn mini_aime_survives_being_written_as_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(format!("{name}.parquet"));
        let mut sets = mini_aime::generate(MiniAimeVariant::Standard);
        sets.train.truncate(500);
        write(&path("train"), &sets.train, false).unwrap();
        write(&path("dev"), &sets.dev, true).unwrap();
        for (name, problems) in &sets.tests {
            write(&path(name), problems, false).unwrap();
        }
        let test = vec![path("mini-aime"), path("mini-aime-plus")];
        let data = Data::Files { train: path("train"), dev: path("dev"), test };
        assert_eq!(load(&data).unwrap(), sets);
        let names: Vec<&str> = sets.evaluated().map(|(name, _)| name).collect();
        assert_eq!(data.set_names(), names);
        assert_eq!(Data::MiniAime { variant: MiniAimeVariant::Standard }.set_names(), names);
    }

    #[test]
    fn two_test_files_with_one_name_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a.jsonl", "b/a.jsonl"] {
            let line = br#"{"question": "1+1?", "answer": "2"}"#;
            files::write_atomic(&path(name), line).unwrap();
        }
        let test = vec![path("a.jsonl"), path("b/a.jsonl")];
        let data = Data::Files { train: path("a.jsonl"), dev: path("a.jsonl"), test };
        let error = load(&data).unwrap_err().to_string();
        assert!(error.contains("b/a.jsonl: another evaluation set is also named `a`"), "{error}");
    }

    #[test]
    fn a_program_alone_has_problems_with_an_empty_answer() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a.jsonl", "b.jsonl"] {
            let lines = [r#""""#, r#"" ""#, r#"[""]"#, "3"].into_iter().enumerate();
            let lines = lines.map(|(row, answer)| {
                format!("{{\"question\": \"{name} {row}?\", \"answer\": {answer}}}\n")
            });
            files::write_atomic(&path(name), lines.collect::<String>().as_bytes()).unwrap();
        }
        let data = Data::Files { train: path("a.jsonl"), dev: path("b.jsonl"), test: Vec::new() };
        let refusal = load(&data).unwrap_err().to_string();
        assert!(refusal.contains("b.jsonl:1: the answer is empty"), "{refusal}");
        let sets = load_with(&data, true).unwrap();
        let answers: Vec<&str> = sets.train.iter().map(|problem| &*problem.answer).collect();
        assert_eq!(answers, ["", "", "", "3"]);
        let given = |row: usize| sets.columns[&sets.train[row].id].get("ground_truth");
        let stated = [serde_json::json!(" "), serde_json::json!([""])];
        assert_eq!([given(0), given(1), given(2)], [None, Some(&stated[0]), Some(&stated[1])]);
        let of = |grading: &str| serde_json::from_str::<Grading>(grading).unwrap();
        let python = r#"{"kind": "python", "file": "f.py", "seconds": 5.0, "memory_gib": 1}"#;
        assert!(refuse_blank("a", &sets.train, &of(python)).is_ok());
        for grading in [r#""answer-line""#, r#""math-verify""#] {
            let refusal = refuse_blank("a", &sets.train, &of(grading)).unwrap_err().to_string();
            assert_eq!(refusal, "a: problem a/00000: the answer is empty; leave the row out");
            assert!(refuse_blank("a", &sets.train[3..], &of(grading)).is_ok());
        }
    }

    #[test]
    fn a_problem_that_is_trained_on_and_evaluated_is_refused_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, questions: &[&str]| {
            let path = folder.path().join(name);
            let line = |question: &&str| format!("{{\"question\": {question:?}, \"answer\": 2}}\n");
            let lines: String = questions.iter().map(line).collect();
            files::write_atomic(&path, lines.as_bytes()).unwrap();
            path
        };
        let train = write("train.jsonl", &["1+1?", "2+0?", "0+2?"]);
        let clean = write("clean.jsonl", &["3-1?"]);
        let dirty = write("dirty.jsonl", &["4-2?", " 2 + 0 "]);
        let load = |dev: &std::path::PathBuf, test: &std::path::PathBuf| {
            let (dev, test) = (dev.clone(), vec![test.clone()]);
            load(&Data::Files { train: train.clone(), dev, test })
        };
        let other = write("other.jsonl", &["5-3?"]);
        assert!(load(&clean, &other).is_ok());
        for (dev, test) in [(&dirty, &other), (&clean, &dirty)] {
            let error = load(dev, test).unwrap_err().to_string();
            let error = error.replace(&format!("{}/", folder.path().display()), "");
            assert!(error.starts_with("1 problems of dirty.jsonl also stand in the training file train.jsonl: \" 2 + 0 \" (dirty/00001)"), "{error}");
        }
    }

    #[test]
    fn a_digest_follows_content_and_order_and_is_pinned_for_the_benchmark() {
        let sets = mini_aime::generate(MiniAimeVariant::Standard);
        let mut swapped = sets.dev.clone();
        swapped.swap(0, 1);
        assert_ne!(digest(&sets.dev), digest(&swapped));
        let mut digests = vec![("train", digest(&sets.train)), ("dev", digest(&sets.dev))];
        digests.extend(sets.tests.iter().map(|(name, rows)| (name.as_str(), digest(rows))));
        insta::assert_debug_snapshot!(digests);
    }
}
