//! The responses that another trainer dumped: verl's `rollout_data_dir`, TRL's completions.

use crate::base::{files, visible};
use crate::engines::EngineError;
use crate::engines::audited::stated::{StatedKey, StatedSettings};
use crate::experiment::Engine;
use crate::records::tables::problem_rows::{self, WantedKeys};
use crate::records::tracked::json;
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
    /// verl's name of the group and the sample, where it has one.
    pub session: Option<String>,
    pub source: Option<String>,
    pub length: usize,
    /// `None` where it is not known which columns are rewards.
    pub reward: Option<f64>,
    pub penalty: Option<f64>,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthPenalties {
    Present,
    Added,
    Unknown,
}

/// Columns of TRL that are no reward.
const TRL: [&str; 4] = ["step", "prompt", "completion", "advantage"];

pub struct FileRow {
    pub path: PathBuf,
    pub number: usize,
    pub row: Row,
    pub candidates: Arc<[String]>,
}

pub fn rows(engine: Engine, folder: &Path) -> Result<(Vec<FileRow>, Vec<String>), EngineError> {
    let (mut rows, mut notes) = (Vec::<FileRow>::new(), Vec::new());
    let (mut unread, mut repeated, mut before) = (Vec::new(), Vec::new(), 0..0);
    for name in files::list(folder)? {
        let path = files::foreign::inside(folder, &name)?;
        let first = rows.len();
        let file_row =
            |number, row| FileRow { path: path.clone(), number, row, candidates: Arc::default() };
        if engine == Engine::Verl && name.ends_with(".jsonl") {
            let (lines, cut) = lines(&path)?;
            notes.extend(cut);
            rows.extend((1..).zip(lines).map(|(number, row)| file_row(number, row)));
        } else if engine == Engine::Trl && name.ends_with(".parquet") {
            let others = problem_rows::column_names(&path).map_err(TaskError::from)?;
            let [question, answer] = [1, 2].map(|place: usize| vec![TRL[place].to_string()]);
            let wanted = WantedKeys { question, answer, others: others.clone(), all: false };
            problem_rows::each_problem_row(&path, &wanted, &mut |_, row| {
                rows.push(file_row(rows.len() - first + 1, row));
                Ok::<(), TaskError>(())
            })?;
            // TRL writes rewards as floats; functions log texts and other numbers beside them.
            let own: &mut [FileRow] = &mut rows[first..];
            let is_float = |value: &Value| value.is_f64() || value.is_null();
            let is_candidate = |name: &&String| {
                let is_known = TRL.contains(&name.as_str());
                !is_known && own.iter().all(|it| it.row.get(*name).is_none_or(is_float))
            };
            let candidates: Arc<[String]> = others.iter().filter(is_candidate).cloned().collect();
            own.iter_mut().for_each(|row| row.candidates = candidates.clone());
            if is_repeated(&rows[before.clone()], &rows[first..]) {
                rows.truncate(first);
                repeated.push(name);
                continue;
            }
            before = first..rows.len();
        } else {
            unread.push(name);
            continue;
        }
        if rows.len() == first {
            notes.push(format!("{name} has no rows"));
        }
        let stem = name.split('.').next().and_then(|it| it.rsplit('_').next());
        let named = stem.and_then(|it| it.parse::<u64>().ok());
        let step = |it: &FileRow| it.row.get("step").and_then(Value::as_u64);
        let other =
            rows[first..].iter().filter_map(step).find(|step| named.is_some_and(|it| it != *step));
        notes.extend(other.map(|step| format!("{name} has rows of step {step}")));
    }
    if rows.is_empty() {
        let files = match engine {
            Engine::Verl => "verl's N.jsonl (rollout_data_dir)",
            _ => "TRL's completions_N.parquet (log_completions)",
        };
        let reason = format!("it has no rows of {files}");
        return Err(EngineError::Output { path: folder.to_path_buf(), reason });
    }
    let repeats = "have the responses of the file before (steps_per_generation), which count once";
    for (names, what) in [(repeated, repeats), (unread, "are not read")] {
        notes.extend(
            (!names.is_empty()).then(|| format!("{} {what}", visible::first_of(&names, 3, ", "))),
        );
    }
    notes.iter_mut().for_each(|note| *note = visible::visible(note));
    Ok((rows, notes))
}

fn is_repeated(before: &[FileRow], rows: &[FileRow]) -> bool {
    let other = |one: &Row, two: &Row| one.iter().filter(|it| two.get(it.0) != Some(it.1)).count();
    let is_same = |(one, two): (&FileRow, &FileRow)| {
        let (one, two) = (&one.row, &two.row);
        one.get("step") != two.get("step") && other(one, two) == 1 && other(two, one) == 1
    };
    !rows.is_empty() && before.len() == rows.len() && before.iter().zip(rows).all(is_same)
}

pub fn lines(path: &Path) -> Result<(Vec<Row>, Option<String>), EngineError> {
    let refused = match files::read_data_lines(path) {
        Ok(rows) => return Ok((rows, None)),
        Err(refused) => refused,
    };
    let mut bytes = files::foreign::read_up_to(path, files::foreign::HELD_DATA.bytes)?;
    let ends = std::str::from_utf8(&bytes).err().filter(|it| it.error_len().is_none());
    bytes.truncate(ends.map_or(bytes.len(), |it| it.valid_up_to()));
    let Ok(text) = String::from_utf8(bytes) else { return Err(refused.into()) };
    let (rows, is_cut) = json::whole_lines(path, &json::quoted_not_finite(&text))?;
    Ok((rows, is_cut.then(|| cut_off(path))))
}

pub fn cut_off(path: &Path) -> String {
    visible::visible(&format!("{}: its last line is cut off, and was left out", path.display()))
}

/// verl's trainer of before 0.9 (0.9's `use_v1=false`), which writes no `uid` of its own, puts what a reward function returned over
/// the reward (verl/trainer/ppo/ray_trainer.py, `_dump_generations`): the `score` of a dictionary lacks the length
/// penalty, which is added here. A function that returns a number leaves the reward, and its number in `acc`.
pub fn add_length_penalties(rows: &mut [FileRow], stated: &StatedSettings) -> LengthPenalties {
    const PENALTY: &str = "overlong_reward";
    let is = |key: &StatedKey, wanted: &str| key.as_ref().is_none_or(|(_, value)| value == wanted);
    // Of verl's managers this one punishes.
    if !is(&stated.reward_manager, "dapo") {
        return LengthPenalties::Present;
    }
    let is_punished = stated.length_penalty.as_ref().is_some_and(|(_, value)| *value == true);
    let rows = rows.iter_mut().map(|it| &mut it.row);
    let rows: Vec<&mut Row> = rows.filter(|row| session(row).is_none()).collect();
    let is_unknown = |row: &&mut Row| {
        number(row, PENALTY).is_none() && (is_punished || row.contains_key(PENALTY))
    };
    if rows.iter().any(is_unknown) {
        return LengthPenalties::Unknown;
    }
    let is_reward = |row: &&mut Row| {
        let [score, acc, penalty] = ["score", "acc", PENALTY].map(|name| number(row, name));
        let sum = acc.zip(penalty).map(|(acc, penalty)| acc + penalty);
        sum.zip(score).is_some_and(|(sum, score)| (sum - score).abs() < 1e-5)
    };
    if rows.iter().all(is_reward) || has_penalty(&rows, PENALTY) {
        return LengthPenalties::Present;
    }
    let mut is_added = false;
    for row in rows {
        let parts = number(row, "score").zip(number(row, PENALTY));
        is_added |= parts.is_some_and(|(_, penalty)| penalty != 0.0);
        let reward = parts.map(|(score, penalty)| Value::from(score + penalty));
        // A score that is not finite stays.
        row.extend(reward.filter(Value::is_number).map(|reward| ("score".to_string(), reward)));
    }
    if is_added { LengthPenalties::Added } else { LengthPenalties::Present }
}

/// Without its penalty the score is one for each correctness, and with it it is not.
fn has_penalty(rows: &[&mut Row], name: &str) -> bool {
    let mut levels = BTreeMap::<String, [Vec<f64>; 2]>::new();
    for row in rows {
        let Some((score, penalty)) = number(row, "score").zip(number(row, name)) else { continue };
        let acc = row.get("acc").map(Value::to_string).unwrap_or_default();
        let [scores, plain] = levels.entry(acc).or_default();
        scores.push(score);
        plain.push(score - penalty);
    }
    let is_one = |values: &[f64]| values.iter().all(|value| (value - values[0]).abs() < 1e-5);
    levels.values().all(|[_, plain]| is_one(plain)) && !levels.values().all(|[all, _]| is_one(all))
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
    Ok(Some(candidates.iter().map(String::as_str).zip(weights.iter().copied()).collect()))
}

pub fn uid(row: &Row) -> Option<String> {
    row.get("uid").and_then(text)
}

fn session(row: &Row) -> Option<(String, String)> {
    let uid = uid(row)?;
    let (session, turn) = uid.rsplit_once('_')?;
    let (group, sample) = session.rsplit_once('_')?;
    let is_number = |it: &str| it.parse::<u64>().is_ok();
    (is_number(turn) && is_number(sample)).then(|| (group.to_string(), session.to_string()))
}

pub fn has_uids_of_groups(rows: &[FileRow]) -> bool {
    let mut outputs = BTreeMap::new();
    rows.iter().map(|it| &it.row).filter(|row| session(row).is_none()).any(|row| {
        let (step, output) = (row.get("step").and_then(Value::as_u64), row.get("output"));
        uid(row).is_some_and(|uid| *outputs.entry((step, uid)).or_insert(output) != output)
    })
}

/// `functions` as [`weighted`]; none of verl's. Errors: what the row lacks.
pub fn response(
    row: &Row,
    functions: Option<&[(&str, f64)]>,
) -> Result<DumpedResponse, &'static str> {
    let prompt = of(row, ["input", "prompt"]).ok_or("a text in `input` or `prompt`")?;
    let response = of(row, ["output", "completion"]).ok_or("a text in `output` or `completion`")?;
    let step = row.get("step").and_then(Value::as_u64).ok_or("a whole number in `step`")?;
    let advantage = row.get("advantage").and_then(Value::as_f64);
    let score = row.get("score").filter(|_| advantage.is_none()).map(json::number);
    let reward = functions.and_then(|functions| score.unwrap_or_else(|| summed(row, functions)));
    if reward.is_none() && functions.is_some_and(<[_]>::is_empty) {
        return Err("a number in `score` or in the column of a reward function");
    }
    let acc = row.get("acc");
    let (group, session) = session(row).unzip();
    Ok(DumpedResponse {
        step,
        session,
        source: None,
        group: group
            .unwrap_or_else(|| format!("{prompt}\n{}", row.get("gts").unwrap_or(&Value::Null))),
        prompt,
        length: response.len(),
        reward,
        penalty: number(row, "overlong_reward"),
        advantage,
        ours: None,
        theirs: acc.and_then(|acc| match acc.as_f64() {
            Some(acc) => (acc <= 0.0 || acc == 1.0).then_some(acc == 1.0),
            None => acc.as_bool(),
        }),
    })
}

/// A function that does not apply to a response gives none.
fn summed(row: &Row, functions: &[(&str, f64)]) -> Option<f64> {
    let weigh = |(name, weight): &(&str, f64)| Some(weight * number(row, name)?);
    let rewards: Vec<f64> = functions.iter().filter_map(weigh).collect();
    (!rewards.is_empty()).then(|| rewards.iter().sum())
}

fn number(row: &Row, name: &str) -> Option<f64> {
    row.get(name).and_then(json::number)
}

pub fn text(value: &Value) -> Option<String> {
    match value {
        Value::Array(messages) => messages.iter().map(text_of_message).collect(),
        value => value.as_str().map(str::to_string),
    }
}

fn text_of_message(message: &Value) -> Option<String> {
    let fields = ["content", "text"].map(|name| message.get(name));
    if let Some(field) = fields.into_iter().flatten().find(|field| !field.is_null()) {
        return text(field);
    }
    let is_known = |name: &str| message.get(name).is_some();
    ["content", "text", "type", "tool_calls"].into_iter().any(is_known).then(String::new)
}

fn of(row: &Row, names: [&str; 2]) -> Option<String> {
    names.iter().find_map(|name| row.get(*name)).and_then(text)
}

pub fn answers(path: &Path, lines: Vec<Row>) -> Result<BTreeMap<String, Row>, EngineError> {
    let mut answers = BTreeMap::<String, Row>::new();
    for (number, mut row) in (1..).zip(lines) {
        let refuse = |what: &str| {
            let reason = format!("line {number} {what}; a line has \"prompt\" and \"answer\"");
            Err(EngineError::Output { path: path.to_path_buf(), reason })
        };
        let Some(prompt) = row.remove("prompt").as_ref().and_then(text) else {
            return refuse("lacks a text in `prompt`");
        };
        let Some(answer) = row.get("answer") else { return refuse("lacks `answer`") };
        if answers.get(&prompt).is_some_and(|it| it.get("answer") != Some(answer)) {
            return refuse("has another answer to the prompt of an earlier line");
        }
        answers.insert(prompt, row);
    }
    Ok(answers)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(value: Value) -> Row {
        value.as_object().unwrap().clone()
    }

    fn file_row(value: Value) -> FileRow {
        FileRow { path: PathBuf::new(), number: 1, row: row(value), candidates: Arc::default() }
    }

    #[test]
    fn a_reward_of_verl_has_its_length_penalty() {
        // (score, acc, penalty) of a dictionary, of a number, and of the trainer that writes `uid`.
        let rewards = |rows: &[Value], is_punished: bool| {
            let mut rows: Vec<FileRow> = rows.iter().cloned().map(file_row).collect();
            let length_penalty = Some(("enable", is_punished.into()));
            let stated = StatedSettings { length_penalty, ..StatedSettings::default() };
            let penalties = add_length_penalties(&mut rows, &stated);
            let is_known = penalties != LengthPenalties::Unknown;
            is_known.then(|| rows.iter().map(|it| it.row["score"].clone()).collect::<Vec<_>>())
        };
        let dumped = |score: f64, acc: Value, penalty: f64| json!({"score": score, "acc": acc, "overlong_reward": penalty});
        let of_dictionary = [dumped(1.0, json!(true), -0.75), dumped(-1.0, json!(false), 0.0)];
        assert_eq!(rewards(&of_dictionary, true), Some(vec![json!(0.25), json!(-1.0)]));
        // Where a wrong response has acc 0 and score -1.
        let of_numbers = [dumped(1.0, json!(1.0), -0.5), dumped(-1.0, json!(0.0), -1.0)];
        assert_eq!(rewards(&of_numbers, true), Some(vec![json!(0.5), json!(-2.0)]));
        let of_number = [dumped(0.25, json!(1.0), -0.75), dumped(0.0, json!(0.0), 0.0)];
        assert_eq!(rewards(&of_number, true), Some(vec![json!(0.25), json!(0.0)]));
        let of_own = [
            dumped(1.0, json!(true), 0.0),
            dumped(0.25, json!(true), -0.75),
            dumped(-1.5, json!(false), -0.5),
        ];
        assert_eq!(rewards(&of_own, true), Some(vec![json!(1.0), json!(0.25), json!(-1.5)]));
        for (manager, expected) in
            [("naive", LengthPenalties::Present), ("dapo", LengthPenalties::Added)]
        {
            let reward_manager = Some(("name", manager.into()));
            let stated = StatedSettings { reward_manager, ..StatedSettings::default() };
            let mut rows: Vec<FileRow> = of_dictionary.iter().cloned().map(file_row).collect();
            assert_eq!(add_length_penalties(&mut rows, &stated), expected);
        }
        for (uid, expected) in [("q_0_0", 1.0), ("q", 0.25)] {
            let mut of_trainer = of_dictionary[0].clone();
            of_trainer["uid"] = json!(uid);
            assert_eq!(rewards(&[of_trainer], true), Some(vec![json!(expected)]));
        }
        let unlogged = [json!({"score": 1.0, "acc": true})];
        assert_eq!(rewards(&unlogged, true), None);
        assert_eq!(rewards(&unlogged, false), Some(vec![json!(1.0)]));
        let of_text = [json!({"score": 1.0, "acc": true, "overlong_reward": "tensor(-0.75)"})];
        assert_eq!(rewards(&of_text, false), None);
        let not_finite = [json!({"score": "NaN", "acc": true, "overlong_reward": -0.5})];
        assert_eq!(rewards(&not_finite, true), Some(vec![json!("NaN")]));
    }

    #[test]
    fn a_uid_without_a_sample_is_of_a_group_where_it_has_two_outputs() {
        for (rows, expected) in [
            ([("u", "a"), ("u", "b")], true),
            ([("u", "a"), ("u", "a")], false),
            ([("u", "a"), ("v", "b")], false),
            ([("u_0_0", "a"), ("u_0_0", "b")], false),
            ([("math_dapo_3", "a"), ("math_dapo_3", "b")], true),
        ] {
            let of = |(uid, output)| file_row(json!({"step": 1, "uid": uid, "output": output}));
            assert_eq!(has_uids_of_groups(&rows.map(of)), expected, "{rows:?}");
        }
    }

    #[test]
    fn messages_have_texts_parts_or_calls_of_tools() {
        let parts = json!([{"type": "image", "text": null}, {"type": "text", "text": "q0"}]);
        for (value, expected) in [
            (json!("q"), Some("q")),
            (
                json!([{"role": "system", "content": "s"}, {"role": "user", "content": parts}]),
                Some("sq0"),
            ),
            (
                json!([{"content": null, "tool_calls": "[]"}, {"tool_calls": "[]"}, {"content": "7"}]),
                Some("7"),
            ),
            (json!([{"content": [{"type": "image"}]}]), Some("")),
            (json!([{"from": "human", "value": "q"}]), None),
            (Value::Null, None),
        ] {
            assert_eq!(text(&value).as_deref(), expected, "{value}");
        }
        let lacks = |value: Value| response(&row(value), Some(&[])).err();
        let without_text = json!({"input": "q", "output": 1});
        assert_eq!(lacks(without_text), Some("a text in `output` or `completion`"));
        let with_text = json!({"input": "q", "output": "a", "step": "1"});
        assert_eq!(lacks(with_text), Some("a whole number in `step`"));
    }

    #[test]
    fn answers_have_a_prompt_and_agree() {
        let answers = |lines: &[Value]| {
            let lines = lines.iter().cloned().map(row).collect();
            answers(Path::new("a"), lines).map(|it| it.len()).map_err(|error| error.to_string())
        };
        let line = json!({"prompt": "q", "answer": "1"});
        assert_eq!(answers(&[line.clone(), line.clone()]), Ok(1));
        for (other, expected) in [
            (json!({"prompt": "q", "answer": "2"}), "line 2 has another answer"),
            (json!({"question": "q", "answer": "1"}), "line 2 lacks a text in `prompt`"),
            (json!({"prompt": "p"}), "line 2 lacks `answer`"),
        ] {
            let refusal = answers(&[line.clone(), other]).unwrap_err();
            assert!(refusal.contains(expected), "{refusal}");
        }
    }

    #[test]
    fn problems_of_one_prompt_are_groups_and_a_row_may_lack_a_reward() {
        let of = |value: Value, functions: &[(&str, f64)]| response(&row(value), Some(functions));
        let dumped = |gts: &str, acc: Value| {
            let value =
                json!({"input": "q", "output": "a", "step": 1, "score": 1, "gts": gts, "acc": acc});
            of(value, &[]).unwrap()
        };
        assert_ne!(dumped("1", Value::Null).group, dumped("2", Value::Null).group);
        for (acc, expected) in
            [(json!(0.3), None), (json!(1.0), Some(true)), (json!(-1), Some(false))]
        {
            assert_eq!(dumped("1", acc).theirs, expected);
        }
        let without = json!({"prompt": "q", "completion": "a", "step": 1, "f": null});
        assert_eq!(of(without.clone(), &[("f", 1.0)]).unwrap().reward, None);
        assert!(of(without, &[]).is_err());
    }

    #[test]
    fn rows_of_the_file_before_under_another_step_are_repeated() {
        let rows = |step: u64, text: &str| [file_row(json!({"step": step, "completion": text}))];
        assert!(is_repeated(&rows(1, "a"), &rows(2, "a")));
        assert!(!is_repeated(&rows(1, "a"), &rows(1, "a")));
        assert!(!is_repeated(&rows(1, "a"), &rows(2, "b")));
    }

    #[test]
    fn what_a_folder_has_and_is_not_read_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
        };
        put("1.jsonl.gz", "");
        put("7.jsonl", "{\"step\": 3}\n");
        let (_, notes) = rows(Engine::Verl, folder.path()).unwrap();
        assert_eq!(notes, ["7.jsonl has rows of step 3", "1.jsonl.gz are not read"]);
    }
}
