//! `dapo grade`: the verifier on a file of responses.

use crate::base::files::{self, FileError, foreign};
use crate::base::visible;
use crate::commands::exit::Usage;
use crate::commands::output;
use crate::experiment::Verifier;
use crate::records::StoredResponse;
use crate::records::tables::{self, format};
use crate::report::text::percent;
use crate::task::data::schema;
use crate::task::reward::python_text::last_code_points;
use crate::task::{Explanation, Reason, reward};
use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Grade responses by the released verifier's rules (Eq. 7).
///
/// A file is JSON lines of {"response", "ground_truth", "strict_box_verify"?}, other keys
/// ignored; verl's dumps of rollouts ({"output", "gts"}); samples that lm-eval logs ({"target", "resps"},
/// the target read after `####` or in the last box where it is a worked solution); or a table of rollouts or of evaluation outcomes from a run folder (*.parquet). Each
/// line of the output is {"score": ±1.0, "acc": bool, "pred": string or null}, in the same order.
/// With --summary it is one table: how many responses were rejected for which reason.
///
/// Exit codes: 0 all lines graded (right or wrong), 2 usage, 3 a file or line that cannot be
/// read; then nothing is printed but the error, which names the line.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo grade responses.jsonl
  dapo grade responses.jsonl --explain | grep '\"acc\":false'
  dapo grade runs/reproduce/rollouts/*.parquet --summary
  echo '{\"response\": \"Answer: 540.\", \"ground_truth\": \"540\"}' | dapo grade /dev/stdin --explain")]
pub struct GradeArgs {
    /// JSON lines or tables to grade.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Add the matched text, both normalised sides, and why.
    #[arg(long)]
    pub explain: bool,
    /// Print one table of reasons, with their shares and an example each, instead of the lines.
    #[arg(long, conflicts_with = "explain")]
    pub summary: bool,
    /// Answer each line as soon as it is there, for a program that asks one at a time; FILE is /dev/stdin then.
    #[arg(long, conflicts_with_all = ["summary", "explain"])]
    pub follow: bool,
    /// Which rules, where a line does not say it.
    #[arg(long, value_enum, default_value = "answer-line")]
    pub verifier: Verifier,
}

#[derive(Debug, Deserialize)]
struct GradeLine {
    response: String,
    ground_truth: String,
    strict_box_verify: Option<bool>,
    #[serde(skip)]
    truncated: bool,
}

impl GradeLine {
    fn new(response: String, ground_truth: String) -> Self {
        Self { response, ground_truth, strict_box_verify: None, truncated: false }
    }
}

impl From<StoredResponse> for GradeLine {
    fn from(row: StoredResponse) -> Self {
        let StoredResponse { response, answer, truncated } = row;
        Self { response, ground_truth: answer, strict_box_verify: None, truncated }
    }
}

/// Keys by which writers differ.
#[derive(Deserialize)]
struct GradeForm {
    // True for null, too.
    #[serde(default, deserialize_with = "present")]
    gts: bool,
    #[serde(default, deserialize_with = "present")]
    resps: bool,
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(from).map(|_| true)
}

/// verl writes these.
#[derive(Deserialize)]
struct VerlDump {
    output: String,
    #[serde(deserialize_with = "text_of")]
    gts: String,
}

/// lm-eval writes these: responses to a document, once for each filter.
#[derive(Deserialize)]
struct LmEvalSample {
    target: Value,
    resps: Value,
    filter: Option<String>,
}

fn text_of<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    schema::answer(&Value::deserialize(from)?).map_err(D::Error::custom)
}

/// Flattens lists of lists.
fn texts(value: Value, texts: &mut Vec<String>) -> Result<(), String> {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(inside) => {
            inside.into_iter().try_for_each(|value| self::texts(value, texts))?
        }
        other => {
            let other = visible::shortened(&other.to_string(), 40);
            return Err(format!(
                "resps has {other}, which is no text: likelihoods of choices cannot be graded"
            ));
        }
    }
    Ok(())
}

fn read_lines(path: &Path, lines: &mut Vec<GradeLine>) -> Result<(), FileError> {
    let file = std::io::BufReader::new(foreign::open(path)?);
    let mut first_filter: Option<Option<String>> = None;
    let mut left_out = 0;
    foreign::each_line(path, file, foreign::DATA, |number, bytes| -> Result<(), FileError> {
        let at = |reason| FileError::Line { path: path.to_path_buf(), line: number, reason };
        match files::parse_line(path, number, bytes)? {
            Some(GradeForm { gts: true, .. }) => {
                let dump: Option<VerlDump> = files::parse_line(path, number, bytes)?;
                lines.extend(dump.map(|dump| GradeLine::new(dump.output, dump.gts)));
            }
            Some(GradeForm { resps: true, .. }) => {
                let Some(sample) = files::parse_line::<LmEvalSample>(path, number, bytes)? else {
                    return Ok(());
                };
                if *first_filter.get_or_insert_with(|| sample.filter.clone()) != sample.filter {
                    left_out += 1;
                    return Ok(());
                }
                let truth = schema::answer(&sample.target)
                    .map_err(|reason| at(format!("target: {reason}")))?;
                let mut responses = Vec::new();
                texts(sample.resps, &mut responses).map_err(at)?;
                lines.extend(
                    responses.into_iter().map(|response| GradeLine::new(response, truth.clone())),
                );
            }
            Some(_) => lines.extend(files::parse_line::<GradeLine>(path, number, bytes)?),
            None => {}
        }
        Ok(())
    })?;
    if left_out > 0 {
        let path = path.display();
        output::tell(format!(
            "{path}: {left_out} lines of other filters have the same responses and are left out"
        ));
    }
    Ok(())
}

impl GradeLine {
    fn verifier(&self, args: &GradeArgs) -> Verifier {
        match self.strict_box_verify {
            Some(true) => Verifier::StrictBox,
            Some(false) => Verifier::AnswerLine,
            None => args.verifier,
        }
    }
}

#[derive(Debug, Serialize)]
struct GradeAnswer<'a> {
    score: f64,
    acc: bool,
    pred: Option<&'a str>,
    #[serde(flatten)]
    explained: Option<Explained<'a>>,
}

#[derive(Debug, Serialize)]
struct Explained<'a> {
    matched: Option<&'a str>,
    normalised_prediction: Option<&'a str>,
    normalised_ground_truth: &'a str,
    reason: String,
}

impl<'a> GradeAnswer<'a> {
    fn of(explanation: &'a Explanation, verifier: Verifier, explain: bool) -> Self {
        let grade = &explanation.grade;
        let explained = explain.then(|| Explained {
            matched: explanation.matched.as_deref(),
            normalised_prediction: grade.prediction.as_deref(),
            normalised_ground_truth: &explanation.compared_ground_truth,
            reason: explanation.reason.to_string(),
        });
        let pred = grade.released_prediction(verifier);
        Self { score: grade.score(), acc: grade.is_correct, pred, explained }
    }
}

/// # Errors
/// When a file cannot be read or standard output cannot be written to.
pub fn run(args: &GradeArgs) -> anyhow::Result<ExitCode> {
    if args.follow {
        return follow(args);
    }
    let mut lines: Vec<GradeLine> = Vec::new();
    for file in &args.files {
        format::check(file, "parquet or JSON lines", true)?;
        if file.extension().is_some_and(|extension| extension == "parquet") {
            lines.extend(tables::read_responses(file)?.into_iter().map(GradeLine::from))
        } else {
            read_lines(file, &mut lines)?
        }
    }
    if lines.is_empty() {
        output::tell("warning: there is no response to grade");
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut summary = GradeSummary::default();
    for line in &lines {
        let verifier = line.verifier(args);
        let explanation = reward::explain(&line.response, &line.ground_truth, verifier);
        if args.summary {
            summary.add(line, &explanation)
        } else {
            let line = GradeAnswer::of(&explanation, verifier, args.explain);
            writeln!(out, "{}", visible::json(&serde_json::to_string(&line)?))?;
        }
    }
    if args.summary {
        write!(out, "{}", summary.table())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Line and answer in turn.
fn follow(args: &GradeArgs) -> anyhow::Result<ExitCode> {
    let [file] = &args.files[..] else {
        anyhow::bail!(Usage("--follow is for one FILE".to_string()));
    };
    let reader = std::io::BufReader::new(foreign::open(file)?);
    foreign::each_line(file, reader, foreign::DATA, |number, line| -> anyhow::Result<()> {
        if let Some(line) = files::parse_line::<GradeLine>(file, number, line)? {
            let verifier = line.verifier(args);
            let explanation = reward::explain(&line.response, &line.ground_truth, verifier);
            let answer = GradeAnswer::of(&explanation, verifier, false);
            println!("{}", visible::json(&serde_json::to_string(&answer)?));
            std::io::stdout().flush()?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Default)]
struct GradeSummary {
    responses: u64,
    reasons: BTreeMap<Reason, Counted>,
}

struct Counted {
    responses: u64,
    /// Counts responses at the limit, if the table records them.
    truncated: u64,
    example: String,
}

/// Limit of each side.
const EXAMPLE_CHARACTERS: usize = 24;

impl GradeSummary {
    fn add(&mut self, line: &GradeLine, explanation: &Explanation) {
        self.responses += 1;
        let counted = self.reasons.entry(explanation.reason).or_insert_with(|| {
            let (cut, shown) = match &explanation.matched {
                Some(matched) => ("", matched.as_str()),
                None => ("… ", last_code_points(&line.response, EXAMPLE_CHARACTERS)),
            };
            let [shown, truth] = [shown, &explanation.compared_ground_truth]
                .map(|text| visible::shortened(text, EXAMPLE_CHARACTERS));
            let example = format!("{cut}`{shown}` for `{truth}`");
            Counted { responses: 0, truncated: 0, example }
        });
        counted.responses += 1;
        counted.truncated += u64::from(line.truncated);
    }

    /// Most frequent first.
    fn table(&self) -> String {
        let mut reasons: Vec<(&Reason, &Counted)> = self.reasons.iter().collect();
        reasons.sort_by_key(|(reason, counted)| (Reverse(counted.responses), **reason));
        let rows = reasons.into_iter().map(|(reason, counted)| {
            let verdict = if *reason == Reason::Equal { "accepted" } else { "rejected" };
            [
                verdict.to_string(),
                reason.to_string(),
                counted.responses.to_string(),
                percent(counted.responses as f64 / self.responses as f64),
                counted.truncated.to_string(),
                counted.example.clone(),
            ]
        });
        output::table("verdict | why | responses # | share # | truncated # | first example", rows)
    }
}
