//! `dapo grade`: the verifier on a file of responses.

use crate::base::files::{self, foreign};
use crate::base::visible;
use crate::commands::exit::bail_usage;
use crate::commands::output;
use crate::experiment::Verifier;
use crate::report::text::percent;
use crate::task::responses::{self, ResponseLine};
use crate::task::reward::python_text::last_code_points;
use crate::task::{Explanation, Reason};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Grade responses by the released verifier's rules (Eq. 7).
///
/// A file has JSON lines of {"response", "ground_truth", "strict_box_verify"?} (other keys are ignored),
/// verl's dumps of rollouts ({"output", "gts"}), samples that lm-eval logs ({"target", "resps"}; of a
/// worked solution the target is what follows `####` or is in the last box), or a table of rollouts or
/// evaluation outcomes of a run folder (*.parquet). Each line of the output is
/// {"score": ±1.0, "acc": bool, "pred": string or null}, in the same order. With --summary one table says
/// how many responses were rejected for which reason.
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
    /// Answer each line as soon as it arrives, for a program that asks one at a time. FILE is /dev/stdin.
    #[arg(long, conflicts_with_all = ["summary", "explain"])]
    pub follow: bool,
    /// Rules for lines that do not state them.
    #[arg(long, value_enum, default_value = "answer-line")]
    pub verifier: Verifier,
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
    let mut lines: Vec<ResponseLine> = Vec::new();
    for file in &args.files {
        let responses = responses::read(file)?;
        if responses.left_out > 0 {
            output::tell(format!(
                "{}: {} lines of other filters have the same responses and are left out",
                file.display(),
                responses.left_out
            ));
        }
        lines.extend(responses.lines);
    }
    if lines.is_empty() {
        output::tell("warning: there is no response to grade");
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut summary = GradeSummary::default();
    for line in &lines {
        let (verifier, explanation) = line.graded(args.verifier);
        if args.summary {
            summary.add(line, &explanation)
        } else {
            writeln!(out, "{}", answer(&explanation, verifier, args.explain)?)?;
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
    let [file] = &args.files[..] else { bail_usage!("--follow reads one FILE") };
    let reader = std::io::BufReader::new(foreign::open(file)?);
    foreign::each_line(file, reader, foreign::DATA, |number, line| -> anyhow::Result<()> {
        if let Some(line) = files::parse_line::<ResponseLine>(file, number, line)? {
            let (verifier, explanation) = line.graded(args.verifier);
            println!("{}", answer(&explanation, verifier, false)?);
            std::io::stdout().flush()?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A line of JSON, with keys in the order that the released verifier has.
fn answer(explanation: &Explanation, verifier: Verifier, explain: bool) -> anyhow::Result<String> {
    let answer = GradeAnswer::of(explanation, verifier, explain);
    Ok(visible::json(&serde_json::to_string(&answer)?))
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
    fn add(&mut self, line: &ResponseLine, explanation: &Explanation) {
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
