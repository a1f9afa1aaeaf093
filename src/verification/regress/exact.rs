use crate::base::{files, workers};
use crate::records::ledger::{self, Kind, LedgerEntry};
use crate::records::{RunFolder, RunRecords};
use crate::training::run::inputs;
use crate::verification::regress::{self, Blessed, rule::Exact};
use crate::verification::{Golden, RunDiff, VerificationError, diff};
use serde::Serialize;

/// Large files and times are left out.
const RECORDS: [&str; 7] = [
    "experiment.json",
    "manifest.json",
    "environment.json",
    ledger::FILE,
    "metrics.jsonl",
    "evaluations.jsonl",
    "outcome.json",
];

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    pub golden: String,
    pub head: String,
    /// `None` if the ledgers are equal.
    pub diff: Option<RunDiff>,
}

/// Trains the run to its end, into an empty folder.
pub fn run(
    golden: &Golden,
    rule: &Exact,
    folder: &RunFolder,
    watch: &mut dyn FnMut(u64),
) -> Result<(), VerificationError> {
    let experiment = golden.experiment(&rule.experiment)?;
    workers::set_count(experiment.execution.threads);
    watch(experiment.training.rollout_steps);
    regress::complete(&inputs::prepare(experiment)?, folder)?;
    Ok(())
}

pub fn load(golden: &Golden) -> Result<Vec<LedgerEntry>, VerificationError> {
    let folder = golden.exact();
    let path = folder.path(ledger::FILE);
    let Some(old) = files::optional(folder.ledger())? else {
        return Err(VerificationError::NotBlessed { path });
    };
    let reason = match ledger::check_chain(&old) {
        Err(broken) => broken.to_string(),
        Ok(_) if old.last().is_none_or(|last| last.kind != Kind::End) => {
            "it has no last line of a finished run".to_string()
        }
        Ok(_) => {
            let records = RunRecords::read(&folder).map_err(|unreadable| unreadable.source)?;
            match records.contradictions().first() {
                None => return Ok(old),
                Some(found) => format!("{}: {found}", found.place()),
            }
        }
    };
    let path = path.display();
    Err(VerificationError::Refused(format!(
        "{path}: the golden ledger is damaged, and nothing was compared: {reason}; restore its folder from the repository"
    )))
}

pub fn compare(golden: &Golden, run: &RunFolder) -> Result<Compared, VerificationError> {
    let (folder, old) = (golden.exact(), load(golden)?);
    let new = run.ledger()?;
    let diff = (old != new).then(|| diff::compare(&folder, run)).transpose()?;
    Ok(Compared { golden: head(&old), head: head(&new), diff })
}

/// `none` for an empty ledger.
pub fn head(entries: &[LedgerEntry]) -> String {
    entries.last().map_or("none".to_string(), |entry| entry.head.clone())
}

pub fn bless(golden: &Golden, run: &RunFolder) -> Result<Blessed, VerificationError> {
    let folder = golden.exact();
    let before = files::optional(folder.ledger())?.map(|ledger| head(&ledger));
    let record = |name: &str| Ok((folder.path(name), files::read(&run.path(name))?));
    let files = RECORDS.into_iter().map(record).collect::<Result<_, VerificationError>>()?;
    Ok(Blessed { part: "exact", before, now: head(&run.ledger()?), files })
}
