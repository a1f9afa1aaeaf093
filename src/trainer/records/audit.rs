//! A run folder's entries, records and contradictions, read once. Nothing is judged: sessions and `verify` do that.

use crate::base::files::{self, FileError, FileKind};
use crate::base::workers;
use crate::experiment::{Experiment, compare::differing_keys};
use crate::records::ledger::{self, Kind, LedgerEntry};
use crate::records::run_folder::{CHECKPOINT, COMPANIONS, DAMAGED_CHECKPOINT, LAYOUT};
use crate::records::{
    Broken, Components, Counters, EvaluationRecord, Manifest, Outcome, RolloutRow, RunFolder,
    StepMetrics, tables,
    tables::{OutcomeRecord, TableError},
};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Limit against hostile folders.
const MOST_ENTRIES: usize = 200_000;

#[derive(Debug, Default)]
pub struct FolderEntries {
    pub files: BTreeSet<String>,
    pub folders: BTreeSet<String>,
    /// Another trainer's folder; not looked into.
    pub has_engine: bool,
    /// Damaged checkpoints; not looked into, because no result is theirs.
    pub put_aside: Vec<String>,
    /// Left half written by a killed process; the next session removes it.
    pub partial: Vec<String>,
    pub misplaced: Vec<(String, Misplaced)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misplaced {
    #[error("is a symbolic link, a device or the like")]
    Link,
    #[error("is a file, should be a folder")]
    FileForFolder,
    #[error("is a folder, should be a file")]
    FolderForFile,
    #[error("has no place in a run folder: it was added")]
    Stranger,
    #[error("has a name that is not UTF-8, or vanished")]
    Nameless,
    #[error("has content, and a lock has none")]
    FullLock,
    #[error("holds more than {MOST_ENTRIES} entries")]
    TooMany,
}

impl FolderEntries {
    /// Does not follow links.
    pub fn of(folder: &RunFolder) -> Result<Self, FileError> {
        let mut entries = Self::default();
        let mut folders = vec![String::new()];
        let mut count = 0;
        while let Some(parent) = folders.pop() {
            let names = match files::list(&folder.path(&parent)) {
                Err(error) if error.is_missing() && !parent.is_empty() => {
                    entries.folders.remove(&parent);
                    continue;
                }
                names => names?,
            };
            for name in names {
                let path = if parent.is_empty() { name } else { format!("{parent}/{name}") };
                count += 1;
                if count > MOST_ENTRIES {
                    entries.misplaced.push((".".to_string(), Misplaced::TooMany));
                    return Ok(entries);
                }
                let kind = files::kind(&folder.path(&path))?;
                if let Err(reason) = entries.add(&path, kind) {
                    entries.misplaced.push((path, reason));
                } else if entries.folders.contains(&path) {
                    folders.push(path);
                }
            }
        }
        let lock = "run.lock";
        if entries.files.contains(lock) && files::size_bytes(&folder.path(lock))? > 0 {
            entries.misplaced.push((lock.to_string(), Misplaced::FullLock));
        }
        Ok(entries)
    }

    fn add(&mut self, path: &str, kind: Option<FileKind>) -> Result<(), Misplaced> {
        let is_partial = files::leftovers::is_partial(path.rsplit('/').next().unwrap_or_default());
        match (kind.ok_or(Misplaced::Nameless)?, place(path)) {
            (FileKind::Other, _) => return Err(Misplaced::Link),
            (FileKind::File, Some(Place::File)) => drop(self.files.insert(path.to_string())),
            (FileKind::Folder, Some(Place::Folder)) => drop(self.folders.insert(path.to_string())),
            (FileKind::Folder, Some(Place::Engine)) => self.has_engine = true,
            (FileKind::Folder, Some(Place::Aside)) => self.put_aside.push(path.to_string()),
            _ if is_partial => self.partial.push(path.to_string()),
            (FileKind::File, Some(Place::Folder | Place::Engine)) => {
                return Err(Misplaced::FileForFolder);
            }
            (FileKind::Folder, Some(Place::File)) => return Err(Misplaced::FolderForFile),
            (_, None | Some(Place::Aside)) => return Err(Misplaced::Stranger),
        }
        Ok(())
    }

    pub fn has_links(&self) -> bool {
        self.misplaced.iter().any(|(_, reason)| *reason == Misplaced::Link)
    }

    /// Numbers of files `<prefix>NNNNNN<suffix>`.
    pub fn steps(&self, prefix: &str, suffix: &str) -> BTreeSet<u64> {
        let step = |name: &String| name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok();
        self.files.iter().filter_map(step).collect()
    }

    /// The same run writes them with the same bits.
    fn digested(&self) -> impl Iterator<Item = &String> {
        let folders = ["evaluations/", "rollouts/", "checkpoints/"];
        self.files.iter().filter(move |name| {
            RECORDS.contains(&name.as_str()) || folders.iter().any(|it| name.starts_with(it))
        })
    }
}

/// Records that a finished run has, and has digests of.
pub const RECORDS: [&str; 3] = ["metrics.jsonl", "evaluations.jsonl", ledger::FILE];

enum Place {
    File,
    Folder,
    Engine,
    Aside,
}

fn place(path: &str) -> Option<Place> {
    let parts: Vec<&str> = path.split('/').collect();
    let of_checkpoint = |name: &str| CHECKPOINT.contains(&name) || COMPANIONS.contains(&name);
    Some(match parts[..] {
        ["evaluations" | "rollouts" | "checkpoints" | "diverged"] => Place::Folder,
        ["engine"] => Place::Engine,
        [name] if LAYOUT.contains(&name) => Place::File,
        ["evaluations", name] if name.ends_with(".parquet") => Place::File,
        ["rollouts", name] if is_numbered(name, ".parquet") => Place::File,
        ["checkpoints", name] if name.starts_with(DAMAGED_CHECKPOINT) => Place::Aside,
        ["checkpoints", name] if is_numbered(name, "") => Place::Folder,
        ["checkpoints", step, name] if is_numbered(step, "") && of_checkpoint(name) => Place::File,
        ["diverged", "divergence.json" | "rollouts.parquet"] => Place::File,
        ["diverged", "checkpoint"] => Place::Folder,
        ["diverged", "checkpoint", name] if of_checkpoint(name) => Place::File,
        _ => return None,
    })
}

/// `step-NNNNNN<suffix>`, with one spelling of a number.
fn is_numbered(name: &str, suffix: &str) -> bool {
    let digits = name.strip_prefix("step-").and_then(|rest| rest.strip_suffix(suffix));
    let number = digits.and_then(|digits| digits.parse::<u64>().ok());
    number.is_some_and(|number| digits == Some(&format!("{number:06}")))
}

impl RunFolder {
    /// SHA-256, by path, of metrics, ledger, evaluations, rollouts and checkpoints.
    pub fn digests(&self) -> Result<BTreeMap<String, String>, FileError> {
        let entries = FolderEntries::of(self)?;
        let digest = |name: &String| Ok((name.clone(), files::sha256_file(&self.inside(name)?)?));
        entries.digested().map(digest).collect()
    }
}

/// A file that a folder with work of a run lacks (of an ended run: that it had): without it a session would delete the work and begin again.
pub fn lost(folder: &RunFolder) -> Result<Option<&'static str>, FileError> {
    let is_there = |name| files::optional(files::file_bytes(&folder.path(name)));
    let has_work = recorded_steps(folder)? > 0
        || !folder.checkpoint_steps()?.is_empty()
        || is_there("outcome.json")?.is_some();
    let outcome = match folder.outcome() {
        Err(error) if files::is_unread(&error) => return Err(error),
        outcome => outcome.ok(),
    };
    let is_needed = |name: &&str| outcome.as_ref().is_none_or(|it| it.digests.contains_key(*name));
    for name in ["manifest.json"].into_iter().chain(RECORDS.into_iter().filter(is_needed)) {
        if is_there(name)?.is_none() {
            return Ok(Some(name).filter(|_| has_work));
        }
    }
    Ok(None)
}

pub fn recorded_steps(folder: &RunFolder) -> Result<u64, FileError> {
    let metrics: Vec<StepMetrics> = files::complete_lines(&folder.path("metrics.jsonl"))?;
    let chain: Vec<LedgerEntry> = files::complete_lines(&folder.path(ledger::FILE))?;
    let chained = chain.last().map_or(0, |entry| entry.step);
    let saved = folder.checkpoint_steps()?.last().copied().unwrap_or(0);
    Ok(chained.max(saved).max(metrics.len() as u64))
}

pub fn is_evaluated(folder: &RunFolder) -> Result<bool, FileError> {
    let recorded: Vec<EvaluationRecord> = files::complete_lines(&folder.path("evaluations.jsonl"))?;
    Ok(!recorded.is_empty())
}

#[derive(Debug, thiserror::Error)]
pub enum DigestFault {
    #[error("the path leaves the run folder")]
    Outside,
    #[error("is missing")]
    Missing,
    /// Whole checkpoints may be deleted to save room; other files may not.
    #[error("is missing, and so is the whole checkpoint (dapo runs gc names those that may go)")]
    NoCheckpoint,
    #[error("its SHA-256 is {found}, outcome.json says {written}")]
    Differs { found: String, written: String },
    #[error("outcome.json has no digest of it: it was added")]
    Added,
    #[error(transparent)]
    Unreadable(FileError),
}

pub fn digest_faults(
    folder: &RunFolder,
    entries: &FolderEntries,
    outcome: &Outcome,
) -> Vec<(String, DigestFault)> {
    let mut faults = Vec::new();
    for (name, written) in &outcome.digests {
        let fault = match folder.inside(name) {
            Err(_) => DigestFault::Outside,
            Ok(_) if !entries.files.contains(name) => missing(entries, name),
            Ok(path) => match files::sha256_file(&path) {
                Ok(found) if found == *written => continue,
                Ok(found) => DigestFault::Differs { found, written: written.clone() },
                Err(error) => DigestFault::Unreadable(error),
            },
        };
        faults.push((name.clone(), fault));
    }
    let is_new = |name: &&str| !outcome.digests.contains_key(*name);
    let added = entries.digested().map(String::as_str).filter(is_new);
    faults.extend(added.map(|name| (name.to_string(), DigestFault::Added)));
    let absent = RECORDS.into_iter().filter(is_new).filter(|name| !entries.files.contains(*name));
    faults.extend(absent.map(|name| (name.to_string(), DigestFault::Missing)));
    faults
}

fn missing(entries: &FolderEntries, name: &str) -> DigestFault {
    let step = name.strip_prefix("checkpoints/").and_then(|rest| rest.split_once('/'));
    if step.is_some_and(|(step, _)| !entries.folders.contains(&format!("checkpoints/{step}"))) {
        DigestFault::NoCheckpoint
    } else {
        DigestFault::Missing
    }
}

#[derive(Debug)]
pub struct RunRecords {
    pub experiment: Experiment,
    pub manifest: Manifest,
    pub metrics: Vec<StepMetrics>,
    /// Empty for runs that are older than ledgers.
    pub ledger: Vec<LedgerEntry>,
    pub evaluations: Vec<EvaluationRecord>,
    /// `None`: the run was stopped or killed, or is still at work.
    pub outcome: Option<Outcome>,
    /// Files of an ended run that are not there; they count as empty.
    pub missing: Vec<Unreadable>,
}

#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct Unreadable {
    pub name: &'static str,
    pub source: FileError,
}

impl RunRecords {
    /// An unfinished run has the lines before the first incomplete one.
    pub fn read(folder: &RunFolder) -> Result<Self, Unreadable> {
        let of = |name: &'static str| move |source| Unreadable { name, source };
        let manifest = folder.manifest().map_err(of("manifest.json"))?;
        let experiment = folder.experiment().map_err(of("experiment.json"))?;
        let outcome = files::optional(folder.outcome()).map_err(of("outcome.json"))?;
        let (ended, mut missing) = (outcome.is_some(), Vec::new());
        Ok(Self {
            experiment,
            manifest,
            metrics: lines(folder, "metrics.jsonl", ended, &mut missing)?,
            ledger: lines(folder, ledger::FILE, ended, &mut missing)?,
            evaluations: lines(folder, "evaluations.jsonl", ended, &mut missing)?,
            outcome,
            missing,
        })
    }

    /// Keeps steps with table, metrics and ledger line: a kill leaves the last half written, a resumed session rewinds.
    pub fn keep_whole_steps(&mut self, folder: &RunFolder) {
        let chained = self.ledger.iter().filter(|entry| entry.kind == Kind::RolloutStep).count();
        let recorded = self.metrics.len().min(chained) as u64;
        let whole = (1..=recorded).take_while(|step| folder.rollouts(*step).exists()).count();
        self.metrics.truncate(whole);
        self.ledger.retain(|entry| entry.kind != Kind::End && entry.step <= whole as u64);
        self.evaluations.retain(|record| record.counters.rollout_steps <= whole as u64);
    }

    pub fn steps(&self) -> u64 {
        self.metrics.len() as u64
    }

    pub fn is_unfinished(&self) -> bool {
        self.outcome.is_none()
    }

    pub fn line(&self, step: u64) -> Option<&StepMetrics> {
        self.metrics.iter().find(|line| line.step == step)
    }

    /// All 0 for step 0; `None` if not recorded.
    pub fn counters(&self, step: u64) -> Option<Counters> {
        match step {
            0 => Some(Counters::default()),
            _ => self.line(step).map(|line| line.counters),
        }
    }

    pub fn head(&self) -> &str {
        self.ledger.last().map(|entry| entry.head.as_str()).unwrap_or_default()
    }

    pub fn entry(&self, step: u64) -> Option<&LedgerEntry> {
        self.ledger.get(step as usize).filter(|entry| entry.kind == Kind::RolloutStep)
    }

    pub fn component(&self, step: u64, name: &str) -> Option<&String> {
        self.entry(step)?.components.get(name)
    }

    pub fn contradictions(&self) -> Vec<Contradiction> {
        let mut all = Vec::new();
        match ledger::check_chain(&self.ledger) {
            Ok(chained) if chained == self.steps() => {}
            Ok(chained) => all.push(Contradiction::Steps { chained, recorded: self.steps() }),
            Err(broken) => all.push(Contradiction::Chain(broken)),
        }
        let genesis = ledger::genesis(&self.manifest, &self.experiment);
        compare(1, self.ledger.first(), &genesis.components, &mut all);
        self.unknown_components(&mut all);
        let is_bound = |line: &&StepMetrics| self.entry(line.step).is_some_and(|it| it.binds(line));
        let unbound = self.metrics.iter().filter(|line| !is_bound(line));
        all.extend(unbound.map(|line| Contradiction::Metrics { step: line.step }));
        if let Some(outcome) = &self.outcome {
            let end = self.ledger.last().filter(|entry| entry.kind == Kind::End);
            compare(self.ledger.len(), end, &ledger::end(&self.evaluations, outcome), &mut all);
        }
        all
    }

    fn unknown_components(&self, all: &mut Vec<Contradiction>) {
        // Another trainer's steps have tables and metrics, and weights where it wrote them.
        let unstated = ["old_log_probs", "gradients", "weights", "moments"];
        let may_lack = |name: &str| !self.experiment.engine.is_native() && unstated.contains(&name);
        let expected: BTreeSet<&str> = ledger::STEP_COMPONENTS.into();
        let entries = self.ledger.iter().zip(1..);
        for (entry, line) in entries.filter(|(entry, _)| entry.kind == Kind::RolloutStep) {
            let names: BTreeSet<&str> = entry.components.keys().map(String::as_str).collect();
            let odd = names.symmetric_difference(&expected).filter(|name| !may_lack(name));
            let odd = odd.map(|name| Contradiction::Unknown { line, component: name.to_string() });
            all.extend(odd);
        }
    }
}

fn lines<T: DeserializeOwned>(
    folder: &RunFolder,
    name: &'static str,
    ended: bool,
    missing: &mut Vec<Unreadable>,
) -> Result<Vec<T>, Unreadable> {
    let read = folder.inside(name).and_then(|path| {
        if ended { files::read_lines(&path) } else { files::complete_lines(&path) }
    });
    match read {
        Err(source) if source.is_missing() => {
            missing.push(Unreadable { name, source });
            Ok(Vec::new())
        }
        read => read.map_err(|source| Unreadable { name, source }),
    }
}

/// Lines count from 1.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    #[error(transparent)]
    Chain(Broken),
    #[error("is {chained}, should be {recorded}")]
    Steps { chained: u64, recorded: u64 },
    #[error("is missing")]
    NoLine { line: usize },
    #[error("is {found}, from the records follows {expected}")]
    Component { line: usize, component: String, found: String, expected: String },
    #[error("component {component} is missing or unknown")]
    Unknown { line: usize, component: String },
    #[error("the line of metrics.jsonl is not the one in the ledger")]
    Metrics { step: u64 },
}

impl Contradiction {
    pub fn place(&self) -> String {
        let file = ledger::FILE;
        match self {
            Self::Chain(_) => file.to_string(),
            Self::Steps { .. } => format!("{file}, rollout steps"),
            Self::NoLine { line } | Self::Unknown { line, .. } => format!("{file}, line {line}"),
            Self::Component { line, component, .. } => {
                format!("{file}, line {line}, component {component}")
            }
            Self::Metrics { step } => format!("step {step}, component metrics"),
        }
    }
}

fn compare(
    line: usize,
    entry: Option<&LedgerEntry>,
    expected: &Components,
    all: &mut Vec<Contradiction>,
) {
    let Some(LedgerEntry { components, .. }) = entry else {
        return all.push(Contradiction::NoLine { line });
    };
    let shown = |digest: Option<&String>| digest.map_or("missing".to_string(), String::clone);
    all.extend(differing_keys(components, expected).into_iter().map(|name| {
        Contradiction::Component {
            line,
            component: name.clone(),
            found: shown(components.get(name)),
            expected: shown(expected.get(name)),
        }
    }));
}

#[derive(Debug)]
pub struct Sound {
    /// Rollout steps whose table, metrics and text agree with a ledger that chains.
    pub steps: u64,
    pub damage: String,
}

impl Sound {
    /// Looks at rollout steps up to `last`. The ledger has a digest of the tokens, which determine the
    /// text: `is_text` tells whether they do.
    pub fn of(
        folder: &RunFolder,
        genesis: &LedgerEntry,
        last: u64,
        is_text: &(dyn Fn(&RolloutRow) -> bool + Sync),
    ) -> Result<Self, FileError> {
        let path = folder.path(ledger::FILE);
        let mut chain: Vec<LedgerEntry> = files::complete_lines(&path)?;
        chain.truncate(usize::try_from(last).unwrap_or(usize::MAX).saturating_add(1));
        let (chained, broken) = match chain.first() {
            Some(first) if first != genesis => {
                (0, Some("its first line is not that of this run".to_string()))
            }
            _ => {
                let (steps, broken) = ledger::chained(&chain);
                (steps, broken.map(|broken| broken.to_string()))
            }
        };
        let metrics: Vec<StepMetrics> = files::complete_lines(&folder.path("metrics.jsonl"))?;
        let entries = &chain[..chain.len().min(chained as usize + 1)];
        let entries: Vec<&LedgerEntry> = entries.iter().skip(1).collect();
        let look = |(): &(), entry: &&LedgerEntry| {
            damaged(folder, entry, metrics.get(entry.step as usize - 1), is_text)
        };
        let damages: Result<Vec<_>, _> = workers::map(&entries, || (), look).into_iter().collect();
        let damages = damages?.into_iter().zip(0..);
        let first = damages.filter_map(|(damage, steps)| Some((steps, damage?))).next();
        let (steps, damage) = first.unwrap_or_else(|| {
            // A ledger that ends early is not damaged; later steps count as not recorded.
            let of_ledger = match broken {
                Some(broken) => format!("{}: {broken}", path.display()),
                None => format!("{} ends too early", path.display()),
            };
            (chained, of_ledger)
        });
        Ok(Self { steps, damage })
    }
}

fn damaged(
    folder: &RunFolder,
    entry: &LedgerEntry,
    metrics: Option<&StepMetrics>,
    is_text: &(dyn Fn(&RolloutRow) -> bool + Sync),
) -> Result<Option<String>, FileError> {
    let step = entry.step;
    let differs = |path: PathBuf, component: &str| {
        let path = path.display();
        Ok(Some(format!("{path} is not what the ledger has of rollout step {step} ({component})")))
    };
    if metrics.is_none_or(|line| !entry.binds(line)) {
        return differs(folder.path("metrics.jsonl"), "metrics");
    }
    let path = folder.rollouts(step);
    let rows = match tables::read_rollouts(&path) {
        Ok(rows) => rows,
        Err(TableError::File(error)) if files::is_unread(&error) => return Err(error),
        Err(error) => return Ok(Some(format!("of rollout step {step}: {error}"))),
    };
    match entry.unlike(&rows).first() {
        Some(component) => differs(path, component),
        None if !rows.iter().all(is_text) => differs(path, "response"),
        None => Ok(None),
    }
}

/// Evaluations before the first one whose outcomes or clocks are not as recorded, or whose statistics are not `of_outcomes`.
pub fn intact_evaluations(
    folder: &RunFolder,
    of_outcomes: impl Fn(&EvaluationRecord, &[OutcomeRecord]) -> bool,
) -> Result<Vec<EvaluationRecord>, FileError> {
    let recorded: Vec<EvaluationRecord> = files::complete_lines(&folder.path("evaluations.jsonl"))?;
    let metrics: Vec<StepMetrics> = files::complete_lines(&folder.path("metrics.jsonl"))?;
    let clocks = |step: u64| match step {
        0 => Some(Counters::default()),
        _ => metrics.iter().find(|line| line.step == step).map(|line| line.counters),
    };
    let mut intact = Vec::new();
    for record in recorded {
        let step = record.counters.rollout_steps;
        let path = folder.recorded_outcomes(&record.set, step);
        let is_intact = path.and_then(|path| {
            let is_recorded = files::sha256_file(&path)? == record.outcomes_sha256
                && clocks(step).is_none_or(|clocks| clocks == record.counters);
            if !is_recorded {
                return Ok(false);
            }
            match tables::read_outcomes(&path) {
                Ok(rows) => Ok(of_outcomes(&record, &rows)),
                Err(TableError::File(error)) => Err(error),
                Err(_malformed) => Ok(false),
            }
        });
        match is_intact {
            Ok(true) => intact.push(record),
            Err(error) if files::is_unread(&error) => return Err(error),
            _ => break,
        }
    }
    Ok(intact)
}
