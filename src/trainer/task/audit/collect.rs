use crate::base::{files, visible};
use crate::records::Index;
use crate::task::audit::{AuditOptions, LISTED, MOST_NAMES, findings};
use crate::task::data::{self, problem_file, source::Format, template};
use crate::task::{
    Answers, Audit, AuditContent, AuditPrompts, ConflictListed, Conflicts, Copies, Indices,
    Lengths, SourceRow, TaskError, reward,
};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const LISTED_CHARACTERS: usize = 60;

struct KnownQuestions {
    start: String,
    exact: u64,
    spaced_differently: bool,
    length: u64,
    answers: Vec<(String, u64)>,
}

#[derive(Default)]
pub struct Collected {
    row_digests: Vec<[u8; 32]>,
    problems: BTreeMap<[u8; 32], KnownQuestions>,
    /// Problem and whether another had the same index, by the index's digest.
    indices: BTreeMap<u64, (u64, bool)>,
    systems: BTreeSet<u64>,
    audit: Audit,
}

impl Collected {
    pub fn rows(&self) -> u64 {
        self.row_digests.len() as u64
    }

    /// Takes a row. Tokens are counted once a problem.
    pub fn take(
        &mut self,
        path: &Path,
        row: &SourceRow,
        options: &AuditOptions,
    ) -> Result<(), TaskError> {
        self.row_digests.push(row_digest(row));
        let audit = &mut self.audit;
        count(&mut audit.data_sources, row.read.data_source.as_deref());
        count(&mut audit.styles, row.read.style.as_deref());
        count(&mut audit.keys, Some(&row.read.keys.join(", ")));
        problem_file::count_readings(&mut audit.readings, row);
        problem_file::count_unseen(&mut audit.unseen, row);
        self.take_prompt(row);
        let asked = asked(row);
        let identity = data::identity(&asked);
        self.take_index(row, first_bytes(&identity));
        let exact = first_bytes(&Sha256::digest(asked.as_bytes()).into());
        let answer = &row.read.ground_truth;
        if let Some(known) = self.problems.get_mut(&identity) {
            known.spaced_differently |= known.exact != exact;
            match known.answers.iter_mut().find(|(other, _)| other == answer) {
                Some((_, rows)) => *rows += 1,
                None => known.answers.push((answer.clone(), 1)),
            }
            return Ok(());
        }
        let (path, record) = (path.to_path_buf(), row.number);
        let refuse = |reason| TaskError::Tokens { path, record, reason };
        let length = match &options.tokens {
            Some(tokens) => (tokens.count)(row).map_err(refuse)?,
            None => row.trained().iter().map(|m| m.content.chars().count() as u64).sum(),
        };
        let start = start(row.question());
        let answers = vec![(answer.clone(), 1)];
        let known = KnownQuestions { start, exact, spaced_differently: false, length, answers };
        self.problems.insert(identity, known);
        Ok(())
    }

    fn take_prompt(&mut self, row: &SourceRow) {
        let counted = &mut self.audit.prompts;
        counted.blank += u64::from(row.question().trim().is_empty());
        for (text, rows) in [
            (row.question(), &mut counted.blank_rows),
            (&row.read.ground_truth, &mut counted.blank_answers),
        ] {
            if text.trim().is_empty() && rows.len() < LISTED {
                rows.push(row.number);
            }
        }
        let (system, last) = match (row.system(), row.read.prompt.last()) {
            (Ok(system), Some(last)) => (system, last),
            (system, _) => {
                counted.not_one_user_message += 1;
                let roles = system.err().unwrap_or_default();
                let first = || format!("record {}: {roles}", row.number);
                counted.first_refused.get_or_insert_with(first);
                return;
            }
        };
        if let Some(system) = system {
            counted.with_system += 1;
            self.systems.insert(first_bytes(&Sha256::digest(system).into()));
        }
        match template::unwrap(&last.content) {
            Some(inside) => {
                counted.released_template += 1;
                let raw = row.read.raw_problem.as_deref().unwrap_or(inside);
                counted.raw_problem_differs += u64::from(raw != inside);
            }
            None => counted.other_template += 1,
        }
    }

    fn take_index(&mut self, row: &SourceRow, problem: u64) {
        let counted = &mut self.audit.indices;
        let (Some(name), Some(index)) = (index_text(row), &row.read.index) else {
            counted.missing += 1;
            return;
        };
        let (count, shown) = match index {
            Index::Number(number) => (&mut counted.integers, number.to_string()),
            Index::Name(name) => (&mut counted.texts, start(name)),
        };
        *count += 1;
        let name = first_bytes(&Sha256::digest(name).into());
        let (first, is_shared) = self.indices.entry(name).or_insert((problem, false));
        if *first == problem || std::mem::replace(is_shared, true) {
            return;
        }
        counted.of_several_problems += 1;
        counted.doubled_ids += u64::from(row.read.is_named);
        if counted.several_listed.len() < LISTED {
            counted.several_listed.push(shown);
        }
    }

    pub fn finish(
        mut self,
        path: &Path,
        format: Format,
        options: &AuditOptions,
    ) -> Result<Audit, TaskError> {
        self.row_digests.sort_unstable();
        let mut rows = Sha256::new();
        self.row_digests.iter().for_each(|digest| rows.update(digest));
        let counts = || self.problems.values().map(KnownQuestions::rows);
        let (row_count, problems) = (self.rows(), self.problems.len() as u64);
        let copies = Copies {
            fewest: counts().min().unwrap_or(0),
            most: counts().max().unwrap_or(0),
            mean: row_count as f64 / problems.max(1) as f64,
        };
        let content = AuditContent {
            rows_sha256: files::hexadecimal(&rows.finalize()),
            problems_sha256: problems_digest(&self.problems),
        };
        let respaced = self.problems.values().filter(|known| known.spaced_differently);
        let file_sha256 = files::sha256_file(path)?;
        Ok(Audit {
            file: path.display().to_string(),
            format,
            bytes: files::file_bytes(path)?,
            known_as: findings::known_as(&file_sha256),
            for_program: options.keys.columns,
            file_sha256,
            rows: row_count,
            problems,
            content,
            copies,
            prompts: AuditPrompts {
                spaced_differently: respaced.count() as u64,
                lengths: lengths(&self.problems, options),
                systems: self.systems.len() as u64,
                ..self.audit.prompts
            },
            answers: answers(&self.problems),
            conflicts: conflicts(&self.problems),
            indices: Indices { distinct: self.indices.len() as u64, ..self.audit.indices },
            ..self.audit
        })
    }
}

impl KnownQuestions {
    fn rows(&self) -> u64 {
        self.answers.iter().map(|(_, rows)| rows).sum()
    }
}

fn asked(row: &SourceRow) -> Cow<'_, str> {
    if row.read.raw_problem.is_some() || row.system().is_ok() {
        return row.question().into();
    }
    let messages: Vec<&str> = row.read.prompt.iter().map(|it| &it.content[..]).collect();
    messages.join("\n").into()
}

fn index_text(row: &SourceRow) -> Option<String> {
    row.read.index.as_ref().map(|index| match index {
        Index::Number(number) => format!("number {number}"),
        Index::Name(name) => format!("name {name}"),
    })
}

/// Each field with its length before it, so that no two rows have the same bytes.
fn row_digest(row: &SourceRow) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut field = |text: Option<&str>| {
        let length = text.map_or(u64::MAX, |text| text.len() as u64);
        hash.update(length.to_le_bytes());
        hash.update(text.unwrap_or_default());
    };
    let index = index_text(row);
    let row = &row.read;
    field(row.data_source.as_deref());
    field(Some(&row.prompt.len().to_string()));
    for message in &row.prompt {
        field(Some(&message.role));
        field(Some(&message.content));
    }
    field(Some(&row.ground_truth));
    field(row.style.as_deref());
    field(index.as_deref());
    field(row.raw_problem.as_deref());
    hash.finalize().into()
}

fn problems_digest(problems: &BTreeMap<[u8; 32], KnownQuestions>) -> String {
    let mut hash = Sha256::new();
    for (identity, known) in problems {
        let mut answers: Vec<&str> = known.answers.iter().map(|(answer, _)| &answer[..]).collect();
        answers.sort_unstable();
        for answer in answers {
            hash.update(identity);
            hash.update(Sha256::digest(answer));
        }
    }
    files::hexadecimal(&hash.finalize())
}

fn lengths(problems: &BTreeMap<[u8; 32], KnownQuestions>, options: &AuditOptions) -> Lengths {
    let mut lengths: Vec<u64> = problems.values().map(|known| known.length).collect();
    lengths.sort_unstable();
    // The smallest length that so large a share of the problems does not exceed.
    let quantile = |share: f64| {
        let rank = (share * lengths.len() as f64).ceil() as usize;
        lengths.get(rank.max(1) - 1).copied().unwrap_or(0)
    };
    let limit = options.max_prompt_tokens;
    let over = || lengths.iter().filter(|length| **length > limit).count() as u64;
    Lengths {
        unit: match &options.tokens {
            Some(tokens) => tokens.described.clone(),
            None => "characters".to_string(),
        },
        shortest: quantile(0.0),
        median: quantile(0.5),
        percentile_95: quantile(0.95),
        longest: quantile(1.0),
        over_limit: options.tokens.as_ref().map(|_| over()),
        limit_tokens: limit,
    }
}

fn answers(problems: &BTreeMap<[u8; 32], KnownQuestions>) -> Answers {
    let mut owners: BTreeMap<&str, u64> = BTreeMap::new();
    let pairs = problems.values().flat_map(|known| &known.answers);
    pairs.for_each(|(answer, _)| *owners.entry(answer).or_default() += 1);
    let mut counted = Answers {
        distinct: owners.len() as u64,
        shared: owners.values().filter(|problems| **problems > 1).count() as u64,
        ..Answers::default()
    };
    for (answer, problems) in &owners {
        counted.count(answer, *problems);
    }
    let mut shared: Vec<(&str, u64)> = owners.into_iter().filter(|(_, n)| *n > 1).collect();
    shared.sort_by_key(|(answer, problems)| (Reverse(*problems), *answer));
    shared.truncate(LISTED);
    counted.shared_listed = shared.into_iter().map(|(a, n)| (start(a), n)).collect();
    counted
}

impl Answers {
    fn count(&mut self, answer: &str, problems: u64) {
        let digits = answer.strip_prefix(['-', '+']).unwrap_or(answer);
        if answer.trim().is_empty() {
            self.blank += problems;
        } else if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let significant = digits.trim_start_matches('0');
            let is_negative = answer.starts_with('-') && !significant.is_empty();
            let is_padded =
                answer.starts_with('+') || (digits.len() > 1 && digits.starts_with('0'));
            self.integers += problems;
            self.negative += problems * u64::from(is_negative);
            self.above_999 += problems * u64::from(!is_negative && significant.len() > 3);
            self.padded += problems * u64::from(is_padded);
        } else {
            self.other += problems;
            if self.other_listed.len() < LISTED {
                self.other_listed.push(start(answer));
            }
        }
        let [as_asked, others @ ..] = reward::FORMS;
        if !reward::is_earned(answer, as_asked) {
            self.unverifiable += problems;
            if self.unverifiable_listed.len() < LISTED {
                self.unverifiable_listed.push(start(answer));
            }
        }
        for form in others.into_iter().filter(|form| !reward::is_earned(answer, *form)) {
            let name = format!("{}…{}", form.0, form.1);
            let first = || (0, start(answer));
            self.unverifiable_otherwise.entry(name).or_insert_with(first).0 += problems;
        }
    }
}

fn conflicts(problems: &BTreeMap<[u8; 32], KnownQuestions>) -> Conflicts {
    let conflicting = || problems.values().filter(|known| known.answers.len() > 1);
    let listed = |known: &KnownQuestions| ConflictListed {
        question: known.start.clone(),
        answers: known.answers.iter().take(LISTED).map(|(a, rows)| (start(a), *rows)).collect(),
    };
    Conflicts {
        problems: conflicting().count() as u64,
        rows: conflicting().map(KnownQuestions::rows).sum(),
        listed: conflicting().take(LISTED).map(listed).collect(),
    }
}

fn count(names: &mut BTreeMap<String, u64>, name: Option<&str>) {
    let mut name = start(name.unwrap_or_default());
    if names.len() >= MOST_NAMES && !names.contains_key(&name) {
        name = "(others)".to_string();
    }
    *names.entry(name).or_default() += 1;
}

fn start(text: &str) -> String {
    visible::start(text, LISTED_CHARACTERS)
}

fn first_bytes(digest: &[u8; 32]) -> u64 {
    u64::from_le_bytes(digest[..8].try_into().expect("eight of 32 bytes"))
}
