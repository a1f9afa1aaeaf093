//! A file of problems without its repetitions: AIME 2024 is 30 problems × 32 copies, DAPO-Math-17k 17,400 × 103. Rows
//! with the same question, however it is spaced, and the same answer are one problem.

use crate::algorithm::Problem;
use crate::base::visible;
use crate::experiment::{PromptSettings, sets};
use crate::records::Index;
use crate::records::tables::problems::PREPARED_ID;
use crate::task::data::schema::beside;
use crate::task::data::{self, Columns, schema, source};
use crate::task::reward::{answer, program};
use crate::task::{Reading, RowKeys, SourceRow, TaskError, Truth};
use serde_json::{Map, Value, json};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const LISTED_CONFLICTS: usize = 10;

/// Bytes of distinct questions and answers that are held at most.
const MOST_BYTES: usize = 1 << 30;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemFile {
    pub records: usize,
    /// The system message of every prompt.
    pub system: Option<String>,
    /// Problems in the order of their first record, without those of `conflicts`.
    pub problems: Vec<Problem>,
    pub conflicts: Vec<Conflict>,
    /// Id of a problem → its tags; only of problems that have any.
    pub tags: BTreeMap<String, Vec<String>>,
    pub repeats: Vec<Repeat>,
    /// Questions of rows that [`Reading::Unmarked`] says, with the start of what they state.
    pub unmarked: Vec<(String, String)>,
    pub told: Told,
    /// Id of a problem → the other keys of its first row, where they were asked for.
    pub columns: Columns,
}

/// A problem whose further rows have other columns than its first, which counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeat {
    pub question: String,
    pub answer: String,
    pub columns: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    pub readings: Vec<String>,
    /// Rows that count for nothing, and ground truths that the row contradicts.
    pub rows: Vec<String>,
    pub unseen: Vec<String>,
    pub systems: Vec<String>,
}

impl Told {
    fn new(readings: &Readings, repeats: &[Repeat], unseen: &Unseen) -> Self {
        let (of_rows, readings): (Vec<_>, Vec<_>) =
            told(readings).into_iter().partition(|(reading, _)| reading.is_of_row());
        let [readings, mut rows] = [readings, of_rows]
            .map(|told| told.into_iter().map(|(_, sentence)| sentence).collect::<Vec<String>>());
        let mut columns: BTreeMap<&String, u64> = BTreeMap::new();
        for (column, count) in repeats.iter().flat_map(|repeat| &repeat.columns) {
            *columns.entry(column).or_default() += count;
        }
        rows.extend(columns.into_iter().map(|(column, count)| {
            let column = visible::start(column, 60);
            format!("{count} rows repeat a question with another `{column}`; the first row counts")
        }));
        Self { readings, rows, unseen: told_unseen(unseen), systems: Vec::new() }
    }

    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.readings.iter().chain(&self.rows).chain(&self.unseen).chain(&self.systems)
    }

    pub fn add(&mut self, path: &Path, told: &Self) {
        let Self { readings, rows, unseen, systems } = told;
        let own = [&mut self.readings, &mut self.rows, &mut self.unseen, &mut self.systems];
        for (own, told) in own.into_iter().zip([readings, rows, unseen, systems]) {
            own.extend(told.iter().map(|sentence| format!("{}: {sentence}", path.display())));
        }
    }
}

/// How often ground truths were read as something else than what the file states, and each kind's first: stated, read.
pub type Readings = BTreeMap<Reading, (u64, String, String)>;

pub fn count_readings(readings: &mut Readings, row: &SourceRow) {
    for reading in &row.read.truth.readings {
        let first = || {
            let shown = |text: &str| {
                let text: String = text.chars().take(60).collect();
                text.replace('\r', "\\r").replace('\n', "\\n")
            };
            let read = shown(&row.read.ground_truth);
            let Truth { stated, solved, .. } = &row.read.truth;
            let stated = match reading {
                Reading::BesideEmpty => Some(row.number.to_string()),
                Reading::LostComma | Reading::Prose => Some(read.clone()),
                Reading::SolvedOtherwise | Reading::Outranks => solved.clone(),
                _ => stated.clone(),
            };
            let read = match reading {
                Reading::LostComma => shown(&answer::normalise(&row.read.ground_truth)),
                _ => read,
            };
            (0, stated.unwrap_or_default(), read)
        };
        readings.entry(*reading).or_insert_with(first).0 += 1;
    }
}

pub type Unseen = BTreeMap<String, u64>;

pub fn count_unseen(unseen: &mut Unseen, row: &SourceRow) {
    for column in &row.read.unseen {
        *unseen.entry(column.clone()).or_default() += 1;
    }
}

pub fn told_unseen(unseen: &Unseen) -> Vec<String> {
    let told = |(column, rows): (&String, &u64)| {
        let column: String = column.chars().take(60).collect();
        if column == "prompt" {
            return format!(
                "{rows} rows have a `prompt` with more than the question, and the question alone is trained on: \
                 --question-key prompt takes the whole (`dapo data prepare`), and `[prompt]` states an instruction"
            );
        }
        if beside::MEDIA.iter().any(|known| known.eq_ignore_ascii_case(&column)) {
            return format!(
                "{rows} rows have a column `{column}`, which no prompt shows: a policy reads text alone"
            );
        }
        format!(
            "{rows} rows have a column `{column}`, which no prompt shows: where it belongs to the question, write its \
             text into the question"
        )
    };
    unseen.iter().map(told).collect()
}

pub fn told(readings: &Readings) -> Vec<(Reading, String)> {
    let sentence = |reading: &Reading, rows: u64, stated: &str, read: &str| match reading {
        Reading::SolvedOtherwise => format!(
            "{rows} rows state {reading}, such as `{read}` where the solution says `{stated}`: what they state counts"
        ),
        Reading::Unmarked => format!(
            "{rows} rows have no ground truth and are left out: {reading}, such as `{stated}`; --answer-key reads one of up \
             to eight words as it stands"
        ),
        Reading::Outranks => format!(
            "{rows} rows state {reading}, such as `{stated}` where it says `{read}`: it counts for a program"
        ),
        Reading::BesideEmpty => {
            format!("{rows} rows state {reading}, such as `{read}` (record {stated}): it counts")
        }
        Reading::LostComma => format!(
            "the ground truths of {rows} rows are {reading}: `{stated}` is compared as `{read}`"
        ),
        Reading::Prose => format!(
            "the ground truths of {rows} rows are {reading}, such as `{read}`, and a rule compares the whole: name the key of \
             the answer alone (--answer-key of `dapo data prepare`), or grade by a program"
        ),
        Reading::OtherColumns | Reading::Structured => {
            format!("the ground truths of {rows} rows are {reading}, such as `{read}`")
        }
        _ => format!(
            "the ground truths of {rows} rows are {reading}: `{stated}` is read as `{read}`"
        ),
    };
    let told = |(reading, (rows, stated, read)): (&Reading, &(u64, String, String))| {
        (*reading, sentence(reading, *rows, stated, read))
    };
    readings.iter().map(told).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub question: String,
    /// Each answer with its first record (from 0).
    pub answers: Vec<(String, usize)>,
}

/// Whether `[prompt]` states the system message of a file's prompts; a sentence where it states another, which counts.
/// Errors: it states none.
pub fn other_system(
    path: &Path,
    system: Option<&str>,
    prompt: &PromptSettings,
) -> Result<Option<String>, TaskError> {
    match (system, &prompt.system) {
        (Some(own), None) if !own.is_empty() || prompt.template.is_chat() => {
            let (path, start) = (path.to_path_buf(), own.chars().take(60).collect());
            Err(TaskError::SystemUnstated { path, start })
        }
        (Some(own), Some(stated)) if own != stated => Ok(Some(format!(
            "{}: its prompts have the system message {:?}, and `prompt.system` has {:?}, which counts",
            path.display(),
            visible::start(own, 60),
            visible::start(stated, 60)
        ))),
        _ => Ok(None),
    }
}

impl ProblemFile {
    /// The file, when no question has conflicting answers. `path` is for the message.
    pub fn consistent(self, path: &Path) -> Result<Self, TaskError> {
        if self.conflicts.is_empty() {
            return Ok(self);
        }
        let count = self.conflicts.len();
        let mut listed: Vec<String> =
            self.conflicts.iter().take(LISTED_CONFLICTS).map(Conflict::told).collect();
        if count > LISTED_CONFLICTS {
            listed.push(format!("{} more", count - LISTED_CONFLICTS));
        }
        let listed = listed.join("; ");
        Err(TaskError::Conflicts { path: path.to_path_buf(), count, listed })
    }
}

impl Conflict {
    /// The start of the question and its answers, for a message.
    pub fn told(&self) -> String {
        let told = |(answer, record): &(String, usize)| format!("`{answer}` (record {record})");
        let answers: Vec<String> = self.answers.iter().map(told).collect();
        let start: String = self.question.chars().take(60).collect();
        format!("{start:?} has {}", answers.join(" and "))
    }
}

struct FirstSeen {
    stated: Conflict,
    id: Option<String>,
    /// No other problem of the file may have this id.
    is_named: bool,
    tags: Vec<String>,
    columns: Map<String, Value>,
    repeats: BTreeMap<String, u64>,
}

/// Reads any format of [`source`]. The id is `extra_info.index` when it is text, `<file stem>/<index>`
/// when it is a number. When one has none or two share one (an index need not be unique), every problem is
/// `<file stem>/<position>`. In JSON lines of our own form an `id` is a promise; without it the position counts.
/// Errors: no problems, an empty question or answer, a prompt that is not one message of the user behind one system
/// message of all rows or none, an id that two JSON lines share. Conflicting answers are returned.
pub fn read(path: &Path) -> Result<ProblemFile, TaskError> {
    read_with(path, &RowKeys::default())
}

/// As [`read`], with the keys that the caller names.
pub fn read_with(path: &Path, keys: &RowKeys) -> Result<ProblemFile, TaskError> {
    let (mut readings, mut unseen) = (Readings::new(), Unseen::new());
    let stem = sets::set_name(path);
    let has_columns = keys.columns || keys.origins;
    let mut records = 0;
    let mut bytes = 0;
    let mut firsts: Vec<FirstSeen> = Vec::new();
    let mut unmarked = Vec::new();
    let mut system: Option<Option<String>> = None;
    let mut known: BTreeMap<[u8; 32], usize> = BTreeMap::new();
    source::each_row(path, keys, &mut |mut row| {
        let of_row = usable(path, &row, keys.columns)?;
        if system.get_or_insert_with(|| of_row.map(str::to_string)).as_deref() != of_row {
            return Err(TaskError::OtherSystem { path: path.to_path_buf(), place: row.place });
        }
        records += 1;
        count_readings(&mut readings, &row);
        count_unseen(&mut unseen, &row);
        if row.read.truth.readings.contains(&Reading::Unmarked) {
            bytes += row.question().len();
            unmarked.push((row.question().to_string(), row.read.truth.stated.unwrap_or_default()));
            return within(path, bytes);
        }
        let answer = &row.read.ground_truth;
        match known.entry(data::identity(row.question())) {
            Entry::Vacant(free) => {
                bytes += row.question().len() + answer.len();
                if has_columns {
                    bytes += json!(row.read.columns).to_string().len();
                }
                free.insert(firsts.len());
                let question = row.question().to_string();
                firsts.push(FirstSeen {
                    stated: Conflict { question, answers: vec![(answer.clone(), row.number)] },
                    id: id(&row, &stem),
                    is_named: row.read.is_named,
                    tags: row.read.tags.clone(),
                    columns: std::mem::take(&mut row.read.columns),
                    repeats: BTreeMap::new(),
                });
            }
            Entry::Occupied(present) => {
                let first = &mut firsts[*present.get()];
                if !first.stated.answers.iter().any(|(other, _)| other == answer) {
                    bytes += answer.len();
                    first.stated.answers.push((answer.clone(), row.number));
                }
                for column in other_columns(&row, &first.columns) {
                    *first.repeats.entry(column).or_default() += 1;
                }
            }
        }
        within(path, bytes)
    })?;
    if records == 0 {
        return Err(TaskError::Empty { path: path.to_path_buf() });
    }
    if firsts.is_empty() {
        return Err(TaskError::Unmarked { path: path.to_path_buf(), rows: records });
    }
    let (kept, conflicting): (Vec<FirstSeen>, Vec<FirstSeen>) =
        firsts.into_iter().partition(|first| first.stated.answers.len() == 1);
    let conflicts = conflicting.into_iter().map(|first| first.stated).collect();
    let (mut problems, mut repeats) = (Vec::new(), Vec::new());
    let (mut tags, mut columns) = (BTreeMap::new(), Columns::new());
    for (id, first) in ids(&kept, path, &stem)?.into_iter().zip(kept) {
        let Conflict { question, answers } = first.stated;
        let answer = answers.into_iter().next().map_or_else(String::new, |(answer, _)| answer);
        if !first.tags.is_empty() {
            tags.insert(id.clone(), first.tags);
        }
        if has_columns {
            columns.insert(id.clone(), first.columns);
        }
        if !first.repeats.is_empty() {
            let (question, answer) = (question.clone(), answer.clone());
            repeats.push(Repeat { question, answer, columns: first.repeats });
        }
        problems.push(Problem { id, question, answer });
    }
    let told = Told::new(&readings, &repeats, &unseen);
    let system = system.flatten();
    Ok(ProblemFile { records, system, problems, conflicts, tags, repeats, unmarked, told, columns })
}

fn within(path: &Path, bytes: usize) -> Result<(), TaskError> {
    if bytes > MOST_BYTES {
        return Err(TaskError::TooMuch { path: path.to_path_buf(), most: MOST_BYTES });
    }
    Ok(())
}

/// Names of columns that differ from the first row's; a copy has an id of its own, and may have other spaces.
fn other_columns(row: &SourceRow, first: &Map<String, Value>) -> BTreeSet<String> {
    let is_own = |name: &str| {
        let own = schema::QUESTIONS.iter().chain(&["id", "unique_id", PREPARED_ID]);
        own.copied().chain([&row.read.keys[0][..]]).any(|own| own.eq_ignore_ascii_case(name))
    };
    let value = |columns: &Map<String, Value>, name: &str| -> Value {
        let value = columns.get(name).cloned().unwrap_or_default();
        if name != "extra_info" {
            return value;
        }
        let mut extra = program::extra_info(value);
        if let Value::Object(fields) = &mut extra {
            fields.retain(|field, _| !["index", "raw_problem"].contains(&field.as_str()));
        }
        extra
    };
    let names = row.read.columns.keys().chain(first.keys()).filter(|name| !is_own(name));
    names.filter(|name| value(&row.read.columns, name) != value(first, name)).cloned().collect()
}

/// The row's system message.
fn usable<'a>(
    path: &Path,
    row: &'a SourceRow,
    for_program: bool,
) -> Result<Option<&'a str>, TaskError> {
    let place = row.place.clone();
    let system = match row.system() {
        Ok(system) => system,
        Err(roles) => return Err(TaskError::Messages { path: path.to_path_buf(), place, roles }),
    };
    for (field, text) in [("question", row.question()), ("answer", &row.read.ground_truth)] {
        if text.trim().is_empty() && !(for_program && field == "answer") {
            return Err(TaskError::Blank { path: path.to_path_buf(), place, field });
        }
    }
    Ok(system)
}

fn id(row: &SourceRow, stem: &str) -> Option<String> {
    row.read.index.as_ref().map(|index| match index {
        Index::Number(number) => format!("{stem}/{number}"),
        Index::Name(name) => name.clone(),
    })
}

/// A named problem keeps its name; the others keep their index where every one has an index of its own.
fn ids(kept: &[FirstSeen], path: &Path, stem: &str) -> Result<Vec<String>, TaskError> {
    let indices = || kept.iter().filter(|first| !first.is_named);
    let distinct: BTreeSet<&String> = indices().filter_map(|first| first.id.as_ref()).collect();
    let usable = distinct.len() == indices().count();
    let mut questions: BTreeMap<String, &String> = BTreeMap::new();
    let mut ids = Vec::new();
    for (position, first) in kept.iter().enumerate() {
        let id = first.id.clone().filter(|_| first.is_named || usable);
        let id = id.unwrap_or_else(|| format!("{stem}/{position:05}"));
        let question = &first.stated.question;
        if let Some(first) = questions.insert(id.clone(), question) {
            let (path, first, second) = (path.to_path_buf(), first.clone(), question.clone());
            return Err(TaskError::DuplicateId { path, id, first, second });
        }
        ids.push(id);
    }
    Ok(ids)
}

#[cfg(test)]
pub mod tests;
