//! The ground truth of a row, and how it was taken out of what stands in the file.

use crate::task::data::schema::{
    ANSWERS, RowError, absent, as_text, at_or_empty, one_spelling, refuse, shown_text,
};
use crate::task::reward::answer::{self, normalise};
use crate::task::reward::{python_text::is_digits, strict_box};
use regex::Regex;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// How a ground truth was taken out of what stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    #[error("floats that are integers")]
    WholeFloat,
    #[error("decimals with zeros at their end")]
    ShortDecimal,
    #[error("lists of one")]
    ListOfOne,
    #[error("JSON in a text")]
    JsonInText,
    #[error("worked solutions, read behind `####` or `The answer is`")]
    Hashes,
    #[error("texts with a \\boxed{{…}}, of which the last one is read")]
    Boxed,
    #[error("texts with white space around them")]
    Spaced,
    #[error("objects and lists, which a program gets as they are")]
    Structured,
    #[error("worked solutions with neither a line behind `####` nor \\boxed")]
    Unmarked,
    #[error("another answer than their worked solutions state")]
    SolvedOtherwise,
    #[error("another `reward_model.ground_truth` than other columns")]
    Outranks,
    #[error("not stated: a program gets the other columns")]
    OtherColumns,
    #[error("a ground truth beside an empty one")]
    BesideEmpty,
    #[error("with a comma that groups no thousands, which the rule of `Answer: …` drops")]
    LostComma,
    #[error("texts of several sentences, or of more than 100 characters")]
    Prose,
}

impl Reading {
    pub fn is_of_row(self) -> bool {
        matches!(self, Self::Unmarked | Self::SolvedOtherwise | Self::Outranks | Self::BesideEmpty)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Truth {
    pub readings: Vec<Reading>,
    /// As it stands in the file, where it was read as something else.
    pub stated: Option<String>,
    /// What the worked solution says, where it is something else.
    pub solved: Option<String>,
}

#[derive(Default)]
pub struct TruthRead {
    pub key: String,
    /// As a rule compares it.
    pub ground_truth: String,
    pub truth: Truth,
    /// As a program gets it, where one grades.
    pub for_program: Option<Value>,
}

/// With `whole`, for a program, too.
pub fn ground_truth(
    row: &Map<String, Value>,
    chosen: Option<&str>,
    whole: bool,
) -> Result<TruthRead, RowError> {
    let keys = chosen.map_or(ANSWERS.to_vec(), |key| vec![key]);
    let mut first: Option<TruthRead> = None;
    let (mut prose, mut is_blank) = (None, None);
    for &key in &keys {
        let outranked = first.as_ref().is_some_and(|known| whole && known.key == ANSWERS[0]);
        if chosen.is_none() && !outranked {
            one_spelling(row, key, "answer")?;
        }
        let Some(value) = at_or_empty(row, key) else { continue };
        let mut readings = Vec::new();
        let (ground_truth, for_program) = match taken(&value, &mut readings) {
            taken if whole => {
                let stated = for_a_program(key, &value, &mut readings);
                (taken.unwrap_or_else(|_several| as_text(&stated)), Some(stated))
            }
            taken => {
                let advice = || another_key(row, &keys, key);
                (taken.or_else(|reason| refuse(key, format!("{reason}{}", advice())))?, None)
            }
        };
        if ground_truth.trim().is_empty() {
            is_blank = is_blank.or(Some((key, whole.then(|| value.into_owned()))));
            continue;
        }
        // A worked solution says its answer behind a mark, or not at all.
        let is_marked =
            [Reading::Hashes, Reading::Boxed].iter().any(|mark| readings.contains(mark));
        if key == "solution"
            && chosen.is_none()
            && !is_marked
            && !(whole && first.is_none())
            && ground_truth.contains(char::is_whitespace)
        {
            prose = Some(ground_truth);
            continue;
        }
        if !whole {
            if !is_marked && is_worked_solution(key, &ground_truth) {
                note(&mut readings, Reading::Unmarked);
            }
            if loses_a_comma(&ground_truth) {
                readings.push(Reading::LostComma);
            }
            if readings.is_empty() && is_prose(&ground_truth) {
                readings.push(Reading::Prose);
            }
        }
        match &mut first {
            Some(known) if loose(&known.ground_truth) != loose(&ground_truth) => {
                if outranked {
                    if known.truth.solved.is_none() {
                        known.truth.readings.push(Reading::Outranks);
                        let told = format!("{key}: {}", shown_text(&as_text(&value)));
                        known.truth.solved = Some(told);
                    }
                    continue;
                }
                if key == "solution" && is_marked {
                    known.truth.readings.push(Reading::SolvedOtherwise);
                    known.truth.solved = Some(shown_text(&ground_truth));
                    continue;
                }
                let [known_text, text] =
                    [&known.ground_truth, &ground_truth].map(|text| shown_text(text));
                let reason = format!(
                    "it says `{text}`, `{}` says `{known_text}`; --answer-key says which one is meant (`dapo data prepare`)",
                    known.key
                );
                return refuse(key, reason);
            }
            Some(_) => {}
            None => {
                let stated = (!readings.is_empty()).then(|| shown_text(&as_text(&value)));
                let (key, truth) = (key.to_string(), Truth { readings, stated, solved: None });
                first = Some(TruthRead { key, ground_truth, truth, for_program });
            }
        }
    }
    match (first, is_blank, prose) {
        (Some(mut first), is_blank, _) => {
            if is_blank.is_some_and(|(key, _)| key != "solution") {
                first.truth.readings.push(Reading::BesideEmpty);
            }
            Ok(first)
        }
        (None, _, Some(prose)) => Ok(TruthRead {
            key: "solution".to_string(),
            truth: Truth {
                readings: vec![Reading::Unmarked],
                stated: Some(shown_text(&prose)),
                solved: None,
            },
            ground_truth: prose,
            for_program: None,
        }),
        (None, Some((key, for_program)), None) => {
            Ok(TruthRead { key: key.to_string(), for_program, ..TruthRead::default() })
        }
        (None, None, None) => absent(row, "answer", &keys),
    }
}

fn another_key(row: &Map<String, Value>, keys: &[&str], refused: &str) -> String {
    let is_one = |key: &&&str| {
        let value = at_or_empty(row, key).filter(|_| **key != refused);
        value.is_some_and(|value| answer(&value).is_ok_and(|text| !text.trim().is_empty()))
    };
    keys.iter().find(is_one).map_or_else(String::new, |key| {
        format!("; the row has one in `{key}`: --answer-key {key} (`dapo data prepare`)")
    })
}

/// No answer has so many words.
fn is_worked_solution(key: &str, text: &str) -> bool {
    key.to_ascii_lowercase().ends_with("solution") && text.split_whitespace().count() > 8
}

fn is_prose(text: &str) -> bool {
    static SENTENCES: LazyLock<Regex> =
        LazyLock::new(|| answer::pattern(r"[.!?]\s+\p{L}|[。！？].|[.!?]\s*\n"));
    let characters = text.chars().count();
    (characters > 30 && SENTENCES.is_match(text)) || (characters > 100 && !text.contains('\\'))
}

/// The value as it stands; only a worked solution that is not stated as the ground truth is read, as scripts for verl
/// and TRL do.
fn for_a_program(key: &str, value: &Value, readings: &mut Vec<Reading>) -> Value {
    let Value::String(stated) = value else {
        let is_structured = value.is_object() || value.is_array();
        *readings = if is_structured { vec![Reading::Structured] } else { Vec::new() };
        return value.clone();
    };
    let is_truth = key.ends_with("ground_truth");
    let is_solution = |reading: &Reading| [Reading::Hashes, Reading::Boxed].contains(reading);
    match &readings[..] {
        [first, ..] if is_solution(first) && !is_truth => {
            taken_from_text(stated, &mut Vec::new()).unwrap_or_else(|_no_answer| stated.clone())
        }
        _ => {
            readings.clear();
            stated.clone()
        }
    }
    .into()
}

/// The answer in a value: itself, or what a worked solution says behind its mark. Errors: why it is no one answer.
pub fn answer(value: &Value) -> Result<String, String> {
    taken(value, &mut Vec::new())
}

/// The answer in a value. What was done to it goes into `readings`.
pub fn taken(value: &Value, readings: &mut Vec<Reading>) -> Result<String, String> {
    match value {
        Value::String(text) => taken_from_text(text, readings),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            None => Ok(number.to_string()),
            Some(float) if float.fract() != 0.0 => Ok(number.to_string()),
            // Beyond, neighbouring integers are one float.
            Some(float) if float.abs() < 9e15 => {
                note(readings, Reading::WholeFloat);
                Ok((float as i64).to_string())
            }
            Some(_) => Err(format!(
                "{number} is a float that holds no exact integer; write it as an integer or as text"
            )),
        },
        Value::Array(values) => match &values[..] {
            [value] => {
                note(readings, Reading::ListOfOne);
                taken(value, readings)
            }
            several => Err(format!(
                "a list of {} answers, expected one (in a file of problems: leave the row out, or --for-program of `data audit` and `data prepare` where a program grades)",
                several.len()
            )),
        },
        Value::Object(inner) => {
            let keys: Vec<String> = inner.keys().take(8).map(|key| shown_text(key)).collect();
            let keys = keys.join(", ");
            Err(format!(
                "an object with {keys}, and a rule compares one text (in a file of problems: --answer-key KEY.INSIDE, or --for-program of `data audit` and `data prepare` where a program grades)"
            ))
        }
        Value::Bool(truth) => Err(format!(
            "expected text or a number, got {truth} (in a file of problems: write it as text, or --for-program of `data audit` and `data prepare` where a program grades)"
        )),
        Value::Null => Err("expected text or a number, got null".to_string()),
    }
}

fn taken_from_text(text: &str, readings: &mut Vec<Reading>) -> Result<String, String> {
    let trimmed = text.trim();
    let json = || serde_json::from_str::<Value>(trimmed).ok();
    let inside = trimmed.starts_with(['[', '{', '"']).then(json).flatten().filter(|value| {
        // `[2, 5]` is an interval.
        let is_interval =
            |values: &Vec<Value>| values.len() > 1 && values.iter().all(Value::is_number);
        !value.as_array().is_some_and(is_interval)
            && value.as_object().is_none_or(|object| !object.is_empty())
    });
    if let Some(inside) = inside {
        note(readings, Reading::JsonInText);
        return taken(&inside, readings);
    }
    let said = trimmed.rsplit_once("The answer is:").map(|(_, answer)| answer);
    let behind = trimmed.rsplit_once("####").map(|(_, behind)| behind.trim());
    let line =
        behind.map(|text| text.split_once("\nThe answer is:").map_or(text, |it| it.0).trim());
    if let Some(answer) = line.filter(|answer| !answer.contains('\n')) {
        note(readings, Reading::Hashes);
        let digits = answer.replace(',', "");
        let is_number = digits.parse::<f64>().is_ok();
        return taken_from_text(if is_number { &digits } else { answer }, readings);
    }
    if let Some(answer) = last_box(trimmed) {
        note(readings, Reading::Boxed);
        return taken_from_text(answer, readings);
    }
    let said = said.filter(|answer| !answer.contains(['\n', '"', '\'']));
    if let Some(answer) = said.or_else(|| concluded(trimmed)) {
        note(readings, Reading::Hashes);
        return taken_from_text(without_marks(answer), readings);
    }
    if behind.is_some() {
        note(readings, Reading::Unmarked);
        return Ok(trimmed.to_string());
    }
    match trimmed.trim_end_matches('0').strip_suffix('.') {
        Some(digits) if trimmed.ends_with('0') && digits.parse::<i64>().is_ok() => {
            note(readings, Reading::WholeFloat);
            Ok(digits.to_string())
        }
        _ => {
            if trimmed != text && readings.is_empty() {
                readings.push(Reading::Spaced);
            }
            Ok(trimmed.to_string())
        }
    }
}

fn concluded(text: &str) -> Option<&str> {
    static ONE_WORD_OR_MARKED: LazyLock<Regex> = LazyLock::new(|| {
        answer::pattern(
            r#"(?i)\bthe (?:final |correct )?answer is(?: ?:(?:\*\*)? *([^\n"']+)|(?:\*\*)? +(\$[^$\n"']+\$\.?|\*\*[^*\n"']+\*\*\.?|[^\s"'$]+|\$[^\s"'$]+))$"#,
        )
    });
    let found = ONE_WORD_OR_MARKED.captures(text)?;
    found.get(1).or(found.get(2)).map(|answer| answer.as_str())
}

fn without_marks(answer: &str) -> &str {
    let answer = answer.trim().trim_end_matches('.').trim_end_matches("**");
    answer.trim_end_matches('.').trim_start_matches("**").trim()
}

/// Once: lists and texts may lie in each other, and readings are counted in rows.
fn note(readings: &mut Vec<Reading>, reading: Reading) {
    if !readings.contains(&reading) {
        readings.push(reading);
    }
}

fn loses_a_comma(text: &str) -> bool {
    static GROUPED: LazyLock<Regex> = LazyLock::new(|| {
        answer::pattern(r"^[^0-9,]*[0-9]{1,3}((\{,\}|,(\\!)?)[0-9]{3})+[^0-9,]*$")
    });
    let compared = text.rsplit('=').next().unwrap_or_default();
    compared.contains(',') && is_digits(&normalise(compared)) && !GROUPED.is_match(compared)
}

/// The last `\boxed{…}`, also without braces up to white space or `$`, else the last `\fbox{…}` (MATH's
/// `last_boxed_only_string`, math_equivalence.py).
fn last_box(text: &str) -> Option<&str> {
    let mark = ["\\boxed", "\\fbox"].into_iter().find(|mark| text.contains(mark))?;
    let (_, rest) = text.rsplit_once(mark)?;
    let inside = rest.trim_start();
    if let Some(content) = inside.strip_prefix('{') {
        return strict_box::to_own_brace(content);
    }
    let end = inside.find(|c: char| c == '$' || c.is_whitespace()).unwrap_or(inside.len());
    let answer = inside[..end].trim_end_matches(['.', ',']);
    (inside.len() < rest.len() && !answer.is_empty()).then_some(answer)
}

fn loose(answer: &str) -> String {
    let mut text = normalise(answer);
    for (written, plain) in [
        ("dfrac", "frac"),
        ("tfrac", "frac"),
        ("\\left", ""),
        ("\\right", ""),
        ("\\!", ""),
        ("\\%", ""),
        ("%", ""),
        ("^\\circ", ""),
    ] {
        text = text.replace(written, plain);
    }
    text
}
