//! Problems made ready for training: deduplicated, without contradictions and what is evaluated, with digests.

use crate::algorithm::Problem;
use crate::base::files;
use crate::experiment::{Data, sets};
use crate::records::tables::problems::is_field;
use crate::task::data::{self, Columns, leaks, problem_file};
use crate::task::{Reading, RowKeys, TaskError};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LISTED: usize = 10;

const DIGESTS: &str = "digests.json";

const LOCK: &str = "digests.lock";

const KINDS: [&str; 2] = ["parquet", "jsonl"];

const LISTS: [&str; 2] = ["left-out.jsonl", "alike.jsonl"];

/// What a preparation of a file leaves out or puts apart.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Preparation {
    #[command(flatten)]
    pub keys: RowKeys,
    /// For problems that a program grades: write the rows as they are but for keys that are named, to DIR/NAME.jsonl
    #[arg(long)]
    pub for_program: bool,
    /// Refuse a file in which a question has several answers, instead of leaving the question out
    #[arg(long)]
    pub refuse_conflicting: bool,
    /// Leave out the problems whose question this file has too, whatever the case, spacing and
    /// punctuation: what is evaluated must not be trained on. Problems that look alike are kept and listed
    /// in DIR/NAME.alike.jsonl. May be repeated.
    #[arg(long, value_name = "FILE")]
    pub without: Vec<PathBuf>,
    /// Leave out problems that look alike, too: the other question has half of the shorter question's
    /// sequences of eight words.
    #[arg(long, requires = "without")]
    pub without_alike: bool,
    /// Put so many problems into a set of their own, NAME-dev: those whose question has the smallest
    /// digest, so that neither the order nor the number of the rows decides.
    #[arg(long, value_name = "COUNT", default_value_t = 0, hide_default_value = true)]
    pub hold_out: usize,
}

impl Preparation {
    /// The first flag that was given; a generated task takes none.
    pub fn given(&self) -> Option<&'static str> {
        let Self { keys, for_program, refuse_conflicting, without, without_alike: _, hold_out } =
            self;
        let flags = [
            ("--for-program", *for_program),
            ("--refuse-conflicting", *refuse_conflicting),
            ("--without", !without.is_empty()),
            ("--hold-out", *hold_out > 0),
        ];
        let given = flags.into_iter().find_map(|(flag, is_given)| is_given.then_some(flag));
        keys.given().or(given)
    }

    /// Which of the files that are read would be replaced.
    pub fn replaced<'a>(&'a self, path: &'a Path, out: &Path) -> Option<&'a Path> {
        let name = sets::set_name(path);
        let sets = [Some(name.clone()), (self.hold_out > 0).then(|| dev_of(&name))];
        let written = sets.into_iter().flatten().flat_map(|name| {
            let set = if self.for_program { "jsonl" } else { "parquet" };
            [set].into_iter().chain(LISTS).map(move |kind| format!("{name}.{kind}"))
        });
        let written = written.chain([DIGESTS, LOCK].map(str::to_string));
        let written: Vec<PathBuf> =
            written.filter_map(|file| out.join(file).canonicalize().ok()).collect();
        let is_written =
            |path: &&Path| path.canonicalize().is_ok_and(|path| written.contains(&path));
        std::iter::once(path).chain(self.without.iter().map(PathBuf::as_path)).find(is_written)
    }
}

#[derive(Debug, Default)]
pub struct Prepared {
    pub sets: Vec<(String, Vec<Problem>)>,
    /// Sentences.
    pub notes: Vec<String>,
    left_out: Vec<LeftOut>,
    alike: Vec<AlikeListed>,
    source: Option<DataSource>,
    tags: BTreeMap<String, Vec<String>>,
    /// `data_source` and `extra_info`, or all of a row for a program.
    columns: Columns,
    for_program: bool,
    without: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct DataSource {
    file_sha256: String,
    rows: usize,
    conflicting: usize,
    evaluated: usize,
    alike: usize,
}

/// A line of `NAME.left-out.jsonl`.
#[derive(Debug, Serialize)]
struct LeftOut {
    reason: String,
    question: String,
    answers: Vec<String>,
}

#[derive(Debug, Serialize)]
struct AlikeListed {
    question: String,
    other: String,
    file: PathBuf,
    /// Share of the shorter question's sequences of words.
    share: f64,
}

/// Every set of a generated task. Errors: as [`data::load`].
pub fn of_task(task: &Data) -> Result<Prepared, TaskError> {
    let sets = data::load(task)?;
    let tags = sets.tags.into_values().flatten().collect();
    let trained = [(sets::TRAIN.to_string(), sets.train), (sets::DEV.to_string(), sets.dev)];
    let sets = trained.into_iter().chain(sets.tests).collect();
    Ok(Prepared { sets, tags, ..Prepared::default() })
}

/// Errors: an unreadable file, questions with several answers where they are refused, nothing left.
pub fn of_file(path: &Path, preparation: &Preparation) -> Result<Prepared, TaskError> {
    let for_program = preparation.for_program;
    let keys = RowKeys {
        origins: !for_program,
        columns: for_program,
        rows: for_program,
        ..preparation.keys.clone()
    };
    let mut file = problem_file::read_with(path, &keys)?;
    let (rows, conflicting) = (file.records, file.conflicts.len());
    let tags = std::mem::take(&mut file.tags);
    let columns = std::mem::take(&mut file.columns);
    let without = preparation.without.clone();
    let mut prepared = Prepared { tags, columns, for_program, without, ..Prepared::default() };
    let (shown, problems) = (path.display(), file.problems.len());
    prepared.notes.push(format!("{shown}: {rows} rows, {problems} problems"));
    prepared.notes.extend(file.told.all().cloned());
    if file.system.is_some() && !for_program {
        let note = "its prompts have a system message, which is not kept: state it in [prompt] (system = \"…\")";
        prepared.notes.push(note.to_string());
    }
    prepared.notes.push(if for_program {
        let question = keys.question.as_ref().map(|_| "the question is `question` and no other key says one");
        let answer = keys.answer.as_ref().map(|_| "the ground truth is `reward_model.ground_truth`");
        let named: Vec<&str> = question.into_iter().chain(answer).collect();
        let chosen = if named.is_empty() { "" } else { ", but for the keys that were named: " };
        format!("kept of a row: all of it, as it is{chosen}{}", named.join(", "))
    } else {
        format!(
            "kept of a row: question, ground truth as text, tags, data_source and extra_info{}; for a reward program \
             that reads more of it, --for-program keeps the rows",
            prepared.not_kept()
        )
    });
    prepared.leave_out_rows(&file);
    let mut problems = if preparation.refuse_conflicting {
        file.consistent(path)?.problems
    } else {
        prepared.leave_out_conflicts(&file.conflicts);
        file.problems
    };
    let mut evaluated = 0;
    for other in &preparation.without {
        let keys = RowKeys { columns: for_program, ..RowKeys::default() };
        let known = problem_file::read_with(other, &keys)?.problems;
        evaluated += prepared.leave_out_evaluated(&mut problems, other, &known);
        prepared.list_alike(&mut problems, other, &known, preparation.without_alike);
    }
    let held_out = hold_out(&mut problems, preparation.hold_out);
    if problems.is_empty() {
        let path = path.to_path_buf();
        return Err(if rows == 0 {
            TaskError::Empty { path }
        } else {
            TaskError::NoneLeft { path }
        });
    }
    let (file_sha256, alike) = (files::sha256_file(path)?, prepared.alike.len());
    prepared.source = Some(DataSource { file_sha256, rows, conflicting, evaluated, alike });
    let name = sets::set_name(path);
    if !held_out.is_empty() {
        prepared.sets.push((dev_of(&name), held_out));
    }
    prepared.sets.insert(0, (name, problems));
    Ok(prepared)
}

fn dev_of(name: &str) -> String {
    format!("{name}-dev")
}

impl Prepared {
    pub fn path(&self, out: &Path, set: &str) -> PathBuf {
        out.join(format!("{set}.{}", if self.for_program { "jsonl" } else { "parquet" }))
    }

    fn leave_out_rows(&mut self, file: &problem_file::ProblemFile) {
        self.left_out.extend(file.unmarked.iter().map(|(question, stated)| LeftOut {
            reason: format!("no ground truth: {}", Reading::Unmarked),
            question: question.clone(),
            answers: vec![stated.clone()],
        }));
        self.left_out.extend(file.repeats.iter().map(|repeat| {
            let other = |(column, rows): (&String, &u64)| format!("{rows} with another {column}");
            let others: Vec<String> = repeat.columns.iter().map(other).collect();
            LeftOut {
                reason: format!("rows that repeat a question: {}", others.join(", ")),
                question: repeat.question.clone(),
                answers: vec![repeat.answer.clone()],
            }
        }));
    }

    fn not_kept(&self) -> String {
        let mut names = BTreeSet::new();
        for extra in self.columns.values().filter_map(|columns| columns.get("extra_info")) {
            match extra {
                Value::Null => {}
                Value::Object(fields) => {
                    let left_out = fields.iter().filter(|(_, value)| !is_field(value));
                    names.extend(left_out.map(|(name, _)| name.as_str()));
                }
                _ => drop(names.insert("all of it where it is no object")),
            }
        }
        let names: Vec<&str> = names.into_iter().take(LISTED).collect();
        match &names[..] {
            [] => String::new(),
            names => format!(" (without its lists and objects: {})", names.join(", ")),
        }
    }

    fn leave_out_conflicts(&mut self, conflicts: &[problem_file::Conflict]) {
        if conflicts.is_empty() {
            return;
        }
        self.notes.push(format!("left out: {} questions with several answers", conflicts.len()));
        let listed = conflicts.iter().take(LISTED);
        self.notes.extend(listed.map(|conflict| format!("  {}", conflict.told())));
        self.left_out.extend(conflicts.iter().map(|conflict| LeftOut {
            reason: "several answers".to_string(),
            question: conflict.question.clone(),
            answers: conflict.answers.iter().map(|(answer, _)| answer.clone()).collect(),
        }));
    }

    fn leave_out_evaluated(
        &mut self,
        problems: &mut Vec<Problem>,
        other: &Path,
        known: &[Problem],
    ) -> usize {
        let identity = |problem: &Problem| leaks::identity(&problem.question);
        let identities: BTreeSet<[u8; 32]> = known.iter().map(identity).collect();
        let reason = format!("stands in {}", other.display());
        let count =
            self.leave_out(problems, &reason, |problem| identities.contains(&identity(problem)));
        self.notes.push(format!("left out: {count} problems of {}", other.display()));
        count
    }

    fn list_alike(
        &mut self,
        problems: &mut Vec<Problem>,
        other: &Path,
        known: &[Problem],
        leaves_out: bool,
    ) {
        let questions = |problems: &[Problem]| -> Vec<String> {
            problems.iter().map(|problem| problem.question.clone()).collect()
        };
        let (own, others) = (questions(problems), questions(known));
        let pairs = leaks::alike(&own, &others);
        if pairs.is_empty() {
            return;
        }
        let what = if leaves_out {
            "left out"
        } else {
            "kept, look at them (--without-alike leaves them out)"
        };
        let (count, path) = (pairs.len(), other.display());
        self.notes.push(format!("{count} problems look like one of {path}: {what}"));
        self.notes.extend(pairs.iter().take(LISTED).map(|pair| {
            let [own, other] = [&own[pair.question], &others[pair.other]]
                .map(|text| text.chars().take(60).collect::<String>());
            format!("  {own:?} and {other:?}: {:.0} %", 100.0 * pair.share)
        }));
        if leaves_out {
            let alike: BTreeSet<&str> =
                pairs.iter().map(|pair| own[pair.question].as_str()).collect();
            let reason = format!("looks like one of {path}");
            self.leave_out(problems, &reason, |problem| alike.contains(problem.question.as_str()));
        }
        self.alike.extend(pairs.iter().map(|pair| AlikeListed {
            question: own[pair.question].clone(),
            other: others[pair.other].clone(),
            file: other.to_path_buf(),
            share: pair.share,
        }));
    }

    /// Returns how many.
    fn leave_out(
        &mut self,
        problems: &mut Vec<Problem>,
        reason: &str,
        is_left_out: impl Fn(&Problem) -> bool,
    ) -> usize {
        let left_out: Vec<Problem> =
            problems.extract_if(.., |problem| is_left_out(problem)).collect();
        let count = left_out.len();
        self.left_out.extend(left_out.into_iter().map(|problem| LeftOut {
            reason: reason.to_string(),
            question: problem.question,
            answers: vec![problem.answer],
        }));
        count
    }

    /// Writes all lists and adds the sets to `digests.json`, whose content it returns; earlier sets keep their entries,
    /// but for the part of this one that was held out before and is trained on now: its file is returned, too.
    pub fn write(
        &self,
        out: &Path,
        tell: impl FnOnce(String),
    ) -> Result<(BTreeMap<String, Value>, Option<PathBuf>), TaskError> {
        files::create_folder(out)?;
        let lock = out.join(LOCK);
        let mut tell = Some(tell);
        let _held = loop {
            match files::locks::lock_briefly(&lock)? {
                Some(held) => break held,
                None => {
                    if let Some(tell) = tell.take() {
                        tell(format!("waiting for another `data prepare` in {}", out.display()));
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        };
        self.write_alone(out)
    }

    fn write_alone(
        &self,
        out: &Path,
    ) -> Result<(BTreeMap<String, Value>, Option<PathBuf>), TaskError> {
        let digests_file = out.join(DIGESTS);
        let mut digests: BTreeMap<String, Value> =
            if digests_file.exists() { files::read_json(&digests_file)? } else { BTreeMap::new() };
        let stale = self.remove_stale(out, &mut digests)?;
        let is_kept = |set: &str| {
            let is_there = |kind| out.join(format!("{set}.{kind}")).exists();
            KINDS.into_iter().any(is_there) && self.sets.iter().all(|(name, _)| name != set)
        };
        digests.retain(|set, _| is_kept(set));
        if digests_file.exists() {
            files::write_json(&digests_file, &digests)?;
        }
        // Generated tasks have the question alone; files keep the released form.
        let columns = self.source.is_some().then_some(&self.columns);
        for (place, (name, problems)) in self.sets.iter().enumerate() {
            let path = self.path(out, name);
            let sha256 = if self.for_program {
                let rows = problems.iter().filter_map(|problem| self.columns.get(&problem.id));
                let lines: String =
                    rows.map(|row| Value::from(row.clone()).to_string() + "\n").collect();
                files::write_atomic(&path, lines.as_bytes())?;
                let keys = RowKeys { columns: true, ..RowKeys::default() };
                data::digest(&problem_file::read_with(&path, &keys)?.problems)
            } else {
                data::write_kept(&path, problems, (&self.tags, columns), columns.is_some())?;
                data::digest(problems)
            };
            let (count, file_sha256) = (problems.len(), files::sha256_file(&path)?);
            let mut digest =
                json!({"problems": count, "sha256": sha256, "file_sha256": file_sha256});
            if let Some(source) = &self.source {
                digest["source"] = json!(source);
            }
            digests.insert(name.clone(), digest);
            // An earlier preparation's list would be wrong for this one.
            let is_source = place == 0;
            let left_out = if is_source { &self.left_out[..] } else { &[] };
            let alike = if is_source { &self.alike[..] } else { &[] };
            let [left_out_list, alike_list] = LISTS.map(|list| out.join(format!("{name}.{list}")));
            write_list(&left_out_list, left_out)?;
            write_list(&alike_list, alike)?;
        }
        files::write_json(&digests_file, &digests)?;
        Ok((digests, stale))
    }

    fn remove_stale(
        &self,
        out: &Path,
        digests: &mut BTreeMap<String, Value>,
    ) -> Result<Option<PathBuf>, TaskError> {
        let source = self.source.as_ref();
        let Some((name, _)) = source.and(self.sets.first()) else { return Ok(None) };
        let dev = dev_of(name);
        let source = |set: &str| digests.get(set)?.get("source")?.get("file_sha256");
        if source(&dev).is_none() || source(&dev) != source(name) {
            return Ok(None);
        }
        let recorded = digests[&dev]["file_sha256"].clone();
        for other in &self.without {
            if recorded == files::sha256_file(other)? {
                return Ok(None);
            }
        }
        for kind in KINDS {
            let path = out.join(format!("{dev}.{kind}"));
            if !path.exists() || recorded != files::sha256_file(&path)? {
                continue;
            }
            files::remove_file(&path)?;
            for list in LISTS {
                files::remove_file(&out.join(format!("{dev}.{list}")))?;
            }
            digests.remove(&dev);
            return Ok((self.sets.len() == 1).then_some(path));
        }
        Ok(None)
    }
}

fn write_list<T: Serialize>(path: &Path, lines: &[T]) -> Result<(), files::FileError> {
    if lines.is_empty() { files::remove_file(path) } else { files::write_lines(path, lines) }
}

/// The problems with the smallest digests. Both parts keep their order.
fn hold_out(problems: &mut Vec<Problem>, count: usize) -> Vec<Problem> {
    let identity = |problem: &Problem| data::identity(&problem.question);
    let mut order: Vec<[u8; 32]> = problems.iter().map(identity).collect();
    order.sort_unstable();
    let taken: BTreeSet<[u8; 32]> = order.into_iter().take(count).collect();
    problems.extract_if(.., |problem| taken.contains(&identity(problem))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::data::problem_file;

    fn write(path: &Path, numbers: &[u32]) {
        let line = |n: &u32| json!({"question": format!("{n} + {n}?"), "answer": 2 * n});
        files::write_lines(path, &numbers.iter().map(line).collect::<Vec<_>>()).unwrap();
    }

    fn sets(out: &Path) -> Vec<String> {
        let digests: BTreeMap<String, Value> = files::read_json(&out.join(DIGESTS)).unwrap();
        digests.into_keys().collect()
    }

    #[test]
    fn held_out_problems_are_a_set_of_their_own_whatever_the_order_of_the_rows() {
        let folder = tempfile::tempdir().unwrap();
        let mut numbers: Vec<u32> = (1..=40).collect();
        let [set, other] =
            ["set", "other"].map(|it| folder.path().join(it).with_extension("jsonl"));
        let held_out = ["up", "down"].map(|out| {
            write(&set, &numbers);
            numbers.reverse();
            let out = folder.path().join(out);
            let seven = Preparation { hold_out: 7, ..Preparation::default() };
            of_file(&set, &seven).unwrap().write(&out, drop).unwrap();
            let [train, dev] = ["set", "set-dev"].map(|set| {
                let file = problem_file::read(&out.join(set).with_extension("parquet")).unwrap();
                file.problems.into_iter().map(|it| it.question).collect::<BTreeSet<String>>()
            });
            assert_eq!((train.len(), dev.len(), train.intersection(&dev).count()), (33, 7, 0));
            dev
        });
        assert_eq!(held_out[0], held_out[1]);
        // Another file goes beside it, and what is known of the first stays.
        write(&other, &[50]);
        let out = folder.path().join("up");
        of_file(&other, &Preparation::default()).unwrap().write(&out, drop).unwrap();
        assert_eq!(sets(&out), ["other", "set", "set-dev"]);
    }

    #[test]
    fn a_rerun_mends_what_a_failed_preparation_left() {
        let folder = tempfile::tempdir().unwrap();
        let [set, other] =
            ["set", "other"].map(|it| folder.path().join(it).with_extension("jsonl"));
        write(&set, &[1, 2, 3, 4]);
        write(&other, &[5]);
        let (out, usual) = (folder.path().join("out"), Preparation::default());
        let prepare = |path: &Path, preparation: &Preparation| {
            of_file(path, preparation).unwrap().write(&out, drop)
        };
        let two = Preparation { hold_out: 2, ..usual.clone() };
        prepare(&set, &two).unwrap();
        let in_the_way = out.join("set.left-out.jsonl");
        files::create_folder(&in_the_way).unwrap();
        prepare(&set, &Preparation { hold_out: 1, ..usual.clone() }).unwrap_err();
        assert_eq!(sets(&out), [""; 0]);
        assert!(!out.join("set-dev.parquet").exists());
        files::remove_folder(&in_the_way).unwrap();
        prepare(&set, &two).unwrap();
        assert_eq!(sets(&out), ["set", "set-dev"]);
        files::remove_file(&out.join("set-dev.parquet")).unwrap();
        prepare(&other, &usual).unwrap();
        assert_eq!(sets(&out), ["other", "set"]);
    }

    #[test]
    fn a_preparation_says_that_it_waits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.jsonl");
        write(&path, &[1]);
        let held = files::locks::lock(&folder.path().join(LOCK)).unwrap();
        let mut told = String::new();
        let prepared = of_file(&path, &Preparation::default()).unwrap();
        let tell = |text| {
            told = text;
            drop(held);
        };
        prepared.write(folder.path(), tell).unwrap();
        assert!(told.starts_with("waiting for another `data prepare` in "), "{told}");
    }

    #[test]
    fn preparations_into_one_folder_at_once_lose_no_entry() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        std::thread::scope(|scope| {
            for set in ["a", "b", "c", "d"] {
                let path = folder.path().join(set).with_extension("jsonl");
                write(&path, &[1]);
                let prepared = of_file(&path, &Preparation::default()).unwrap();
                let out = &out;
                scope.spawn(move || prepared.write(out, drop).unwrap());
            }
        });
        assert_eq!(sets(&out), ["a", "b", "c", "d"]);
    }
}
