//! An evaluation that takes hours, a part of its problems at a time. Each part's outcomes are
//! kept as JSON lines, so that an interrupted evaluation goes on: draws are keyed by problem and
//! sample, and do not depend on what was generated beside them.

use crate::base::files::{self, foreign};
use crate::policy::Qwen2;
use crate::records::tables::Outcome;
use crate::task::Tokenizer;
use crate::training::Protocol;
use crate::training::evaluation::{self, Error, Set};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// A part keeps the sampler busy for so many of its batches: its last responses, which leave
/// most rows empty, are a small share.
const BATCHES_OF_A_PART: u64 = 4;

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// What is evaluated, how and with what: SHA-256. The first line.
    Key(String),
    /// One response.
    Outcome(Outcome),
    /// All outcomes of a part stand before this line.
    PartEnds {},
}

/// As [`evaluation::outcomes`], with the outcomes of each part appended to `kept`. Those that are there
/// already under the same `key` are taken from it; a file with another key is begun again.
/// `is_stopped` is asked before each part; `None` when it says so.
///
/// # Errors
/// A problem that cannot be rendered or served, or a file that cannot be read or written.
pub fn outcomes(
    model: &Qwen2,
    tokenizer: &Tokenizer,
    protocol: &Protocol,
    set: Set,
    (kept, key): (&Path, &str),
    is_stopped: &dyn Fn() -> bool,
    mut progress: impl FnMut(usize, usize),
) -> Result<Option<Vec<Outcome>>, Error> {
    let mut outcomes = begun(kept, key)?;
    // Whatever stands behind the last whole part goes.
    let first = std::iter::once(Line::Key(key.to_string()));
    files::write_lines(kept, &first.chain(part_of(&outcomes)).collect::<Vec<_>>())?;
    let total = set.problems.len() * set.samples as usize;
    let part = (BATCHES_OF_A_PART * protocol.batch_rows).div_ceil(set.samples.max(1)) as usize;
    let done = outcomes.len() / set.samples.max(1) as usize;
    progress(outcomes.len(), total);
    for problems in set.problems[done.min(set.problems.len())..].chunks(part.max(1)) {
        if is_stopped() {
            return Ok(None);
        }
        let before = outcomes.len();
        let part = Set { problems, ..set };
        let made = evaluation::outcomes(model, tokenizer, protocol, part, |done, _| {
            progress(before + done, total);
        })?;
        files::append_lines(kept, &part_of(&made))?;
        outcomes.extend(made);
    }
    Ok(Some(outcomes))
}

fn part_of(outcomes: &[Outcome]) -> Vec<Line> {
    let lines = outcomes.iter().cloned().map(Line::Outcome);
    lines.chain([Line::PartEnds {}]).collect()
}

/// The outcomes of the parts that were ended under this key. A session that was killed may have
/// left a part of a line.
fn begun(kept: &Path, key: &str) -> Result<Vec<Outcome>, files::Error> {
    if !kept.exists() {
        return Ok(Vec::new());
    }
    let (file, _size) = foreign::open_regular(kept)?;
    let (mut outcomes, mut part, mut is_same) = (Vec::new(), Vec::new(), false);
    let mut take = |line: Line| match line {
        Line::Key(of) => is_same = of == key,
        Line::Outcome(outcome) => part.push(outcome),
        Line::PartEnds {} if is_same => outcomes.append(&mut part),
        Line::PartEnds {} => part.clear(),
    };
    let mut is_whole = true;
    foreign::each_line(kept, io::BufReader::new(file), foreign::DATA, |number, line| {
        match files::parse_line(kept, number, line) {
            Ok(Some(line)) if is_whole => take(line),
            _ => is_whole = false,
        }
        Ok::<(), files::Error>(())
    })?;
    Ok(outcomes)
}
