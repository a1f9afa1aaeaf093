//! The responses that another trainer dumped: verl's `rollout_data_dir`, TRL's completions.

use crate::base::{files, visible};
use crate::engines::EngineError;
use crate::experiment::Engine;
use crate::records::tables::problem_rows::{self, WantedKeys};
use crate::records::{tables, tracked};
use crate::task::TaskError;
use crate::task::reward::program::Asked;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub type Row = Map<String, Value>;

pub struct DumpedResponse {
    pub step: u64,
    pub prompt: String,
    /// The trainer's name of the group; else its place, or the prompt.
    pub group: String,
    /// Bytes of its text.
    pub length: usize,
    /// `None` where it is not known which columns are rewards.
    pub reward: Option<f64>,
    pub advantage: Option<f64>,
    /// Graded again, and by the trainer's `acc`.
    pub ours: Option<bool>,
    pub theirs: Option<bool>,
}

impl DumpedResponse {
    pub fn is_correct(&self) -> Option<bool> {
        self.ours.or(self.theirs)
    }
}

/// Columns of TRL that are no reward.
const TRL: [&str; 4] = ["step", "prompt", "completion", "advantage"];

/// File, row, and in their order TRL's columns that may be rewards.
pub type FileRow = (PathBuf, Row, Arc<[String]>);

/// With what was left out.
pub fn rows(engine: Engine, folder: &Path) -> Result<(Vec<FileRow>, Vec<String>), EngineError> {
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    for name in files::list(folder)? {
        let path = files::foreign::inside(folder, &name)?;
        if engine == Engine::Verl && name.ends_with(".jsonl") {
            let (lines, cut) = dumped_lines(&path)?;
            notes.extend(cut);
            rows.extend(lines.into_iter().map(|row| (path.clone(), row, Arc::default())));
        } else if engine == Engine::Trl && name.ends_with(".parquet") {
            let others = tables::column_names(&path).map_err(TaskError::from)?;
            let first = rows.len();
            let [question, answer] = [1, 2].map(|place: usize| vec![TRL[place].to_string()]);
            let wanted = WantedKeys { question, answer, others: others.clone(), all: false };
            problem_rows::each_problem_row(&path, &wanted, &mut |_, row| {
                rows.push((path.clone(), row, Arc::default()));
                Ok::<(), TaskError>(())
            })?;
            // TRL writes rewards as floats; functions log texts and other numbers beside them.
            let own: &mut [FileRow] = &mut rows[first..];
            let is_float = |value: &Value| value.is_f64() || value.is_null();
            let is_candidate = |name: &&String| {
                let is_known = TRL.contains(&name.as_str());
                !is_known && own.iter().all(|(_, row, _)| row.get(*name).is_none_or(is_float))
            };
            let candidates: Arc<[String]> = others.iter().filter(is_candidate).cloned().collect();
            own.iter_mut().for_each(|row| row.2 = candidates.clone());
        }
    }
    if rows.is_empty() {
        let reason = "it has neither verl's N.jsonl (rollout_data_dir) nor TRL's completions_N.parquet (log_completions)";
        return Err(EngineError::Output { path: folder.to_path_buf(), reason: reason.to_string() });
    }
    Ok((rows, notes))
}

/// The file of a trainer that was killed while it wrote ends in the middle of a line, which is left out and told.
fn dumped_lines(path: &Path) -> Result<(Vec<Row>, Option<String>), EngineError> {
    let refused = match files::read_data_lines(path) {
        Ok(rows) => return Ok((rows, None)),
        Err(refused) => refused,
    };
    let bytes = files::foreign::read_up_to(path, files::foreign::HELD_DATA.bytes)?;
    let Ok(text) = String::from_utf8(bytes) else { return Err(refused.into()) };
    let text = tracked::quoted_not_finite(&text);
    let (whole, last) = text.rsplit_once('\n').unwrap_or(("", &text));
    let is_cut = !last.is_empty() && serde_json::from_str::<Row>(last).is_err();
    let kept = if is_cut { whole } else { &text };
    let told = format!("{}: its last line is cut off, and was left out", path.display());
    Ok((files::parse_lines(path, kept.as_bytes())?, is_cut.then(|| visible::visible(&told))))
}

/// TRL's reward functions by their columns, each with its weight: TRL 1.16.0 writes them before what functions log
/// (trl/trainer/grpo_trainer.py, `log`). `None` where several columns may be rewards and no weight is stated. Errors:
/// more weights than such columns.
pub fn weighted<'a>(
    candidates: &'a [String],
    weights: &[f64],
) -> Result<Option<Vec<(&'a str, f64)>>, String> {
    if weights.len() > candidates.len() {
        return Err(format!(
            "the configuration states {} reward_weights, and {} columns can be rewards ({})",
            weights.len(),
            candidates.len(),
            candidates.join(", ")
        ));
    }
    if weights.is_empty() && candidates.len() > 1 {
        return Ok(None);
    }
    let weights: &[f64] = if weights.is_empty() { &[1.0] } else { weights };
    let names = candidates.iter().map(String::as_str);
    Ok(Some(names.zip(weights.iter().copied()).collect()))
}

/// `functions` as [`weighted`]; none of verl's.
pub fn response(row: &Row, functions: Option<&[(&str, f64)]>) -> Option<DumpedResponse> {
    let prompt = of(row, ["input", "prompt"])?;
    let length = of(row, ["output", "completion"])?.len();
    let advantage = row.get("advantage").and_then(Value::as_f64);
    let score = row.get("score").filter(|_| advantage.is_none()).map(tracked::number);
    let reward = match functions {
        Some(functions) => Some(score.unwrap_or_else(|| summed(row, functions))?),
        None => None,
    };
    let acc = row.get("acc");
    let uid = row.get("uid").and_then(text);
    let group = uid.and_then(|uid| Some(uid.rsplitn(3, '_').nth(2)?.to_string()));
    Some(DumpedResponse {
        step: row.get("step")?.as_u64()?,
        group: group.unwrap_or_else(|| prompt.clone()),
        prompt,
        length,
        reward,
        advantage,
        ours: None,
        theirs: acc.and_then(|acc| acc.as_bool().or(acc.as_f64().map(|acc| acc > 0.0))),
    })
}

/// A function that does not apply to a response gives none.
fn summed(row: &Row, functions: &[(&str, f64)]) -> Option<f64> {
    let weigh = |(name, weight): &(&str, f64)| Some(weight * tracked::number(row.get(*name)?)?);
    let rewards: Vec<f64> = functions.iter().filter_map(weigh).collect();
    (!rewards.is_empty()).then(|| rewards.iter().sum())
}

/// A text, or the contents of messages.
pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::Array(messages) => messages.iter().map(|it| text(it.get("content")?)).collect(),
        value => value.as_str().map(str::to_string),
    }
}

fn of(row: &Row, names: [&str; 2]) -> Option<String> {
    names.iter().find_map(|name| row.get(*name)).and_then(text)
}

/// With the columns that the answers or, without them, verl's dump has of the problem; `None` without a ground truth.
pub fn question(mut row: Row, prompt: &str, answers: &BTreeMap<String, Row>) -> Option<Asked> {
    const OWN: [&str; 5] = ["input", "step", "score", "acc", "uid"];
    let response = of(&row, ["output", "completion"])?;
    let (ground_truth, columns) = match answers.get(prompt).cloned() {
        Some(mut columns) => (columns.remove("answer")?, columns),
        None => {
            // verl writes null where there is none.
            let ground_truth = row.remove("gts").filter(|truth| !truth.is_null())?;
            row.retain(|name, _| !OWN.contains(&name.as_str()) && name != "output");
            (ground_truth, row)
        }
    };
    let asked = Asked::new(Value::from(prompt), response, String::new(), columns);
    Some(Asked { ground_truth, ..asked })
}
