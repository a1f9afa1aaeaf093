//! `dapo grade`: the verifier on a file of responses.

use crate::commands::exit;
use crate::config::Verifier;
use crate::files;
use crate::reward;
use crate::reward::Explanation;
use crate::visible;
use serde::Deserialize;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Grade responses by the released verifier's rules (Eq. 7).
///
/// Each line of FILE is {"response", "ground_truth", "strict_box_verify"?}; other keys are
/// ignored. Each line of the output is {"score": ±1.0, "acc": bool, "pred": string or null},
/// in the same order.
///
/// Exit codes: 0 all lines graded (right or wrong), 2 usage, 3 a file or line that cannot be
/// read; then nothing is printed but the error, which names the line.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo grade responses.jsonl
  dapo grade responses.jsonl --explain | grep '\"acc\":false'
  echo '{\"response\": \"Answer: 540.\", \"ground_truth\": \"540\"}' | dapo grade /dev/stdin --explain")]
pub struct Args {
    /// JSON lines to grade.
    pub file: PathBuf,
    /// Add the matched text, both normalised sides, and why.
    #[arg(long)]
    pub explain: bool,
}

#[derive(Debug, Deserialize)]
struct Line {
    response: String,
    ground_truth: String,
    strict_box_verify: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Graded<'a> {
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

/// Runs `dapo grade`.
///
/// # Errors
/// When standard output cannot be written to.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let lines: Vec<Line> = match files::read_data_lines(&args.file) {
        Ok(lines) => lines,
        Err(error) => {
            eprintln!("error: {}", visible::message(&error.to_string()));
            return Ok(ExitCode::from(exit::INVALID));
        }
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in &lines {
        let verifier = match line.strict_box_verify {
            Some(true) => Verifier::StrictBox,
            _ => Verifier::AnswerLine,
        };
        let explanation = reward::explain(&line.response, &line.ground_truth, verifier);
        writeln!(out, "{}", visible::json(&graded(&explanation, verifier, args.explain)?))?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn graded(
    explanation: &Explanation,
    verifier: Verifier,
    explain: bool,
) -> Result<String, serde_json::Error> {
    let grade = &explanation.grade;
    let explained = explain.then(|| Explained {
        matched: explanation.matched.as_deref(),
        normalised_prediction: grade.prediction.as_deref(),
        normalised_ground_truth: &explanation.compared_ground_truth,
        reason: explanation.reason.to_string(),
    });
    serde_json::to_string(&Graded {
        score: grade.score(),
        acc: grade.is_correct,
        pred: grade.released_prediction(verifier),
        explained,
    })
}
