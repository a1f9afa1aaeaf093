//! `dapo grade`: the verifier on a file of responses.

use crate::base::files::{self, foreign};
use crate::base::{python, visible};
use crate::commands::exit::{Invalid, bail_usage};
use crate::commands::output;
use crate::experiment::Verifier;
use crate::report::text::percent;
use crate::task::responses::{self, ResponseLine};
use crate::task::reward::program::{Asked, Graders, ProgramGrade, RewardProgram};
use crate::task::reward::python_text::last_code_points;
use crate::task::{Explanation, Reason};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Grade responses by a rule (Eq. 7), or by a Python function.
///
/// A file has JSON lines of {"response", "ground_truth", "strict_box_verify"?} (other keys are ignored),
/// verl's dumps of rollouts ({"output", "gts"}), samples that lm-eval logs ({"target", "resps"}; of a
/// worked solution the target is what follows `####` or is in the last box), or a table of rollouts or
/// evaluation outcomes of a run folder (*.parquet). Each line of the output is
/// {"score": ±1.0, "acc": bool, "pred": string or null}, in the same order. With --summary one table says
/// how many responses were rejected for which reason.
///
/// --verifier FILE.py (or FILE.py:FUNCTION) calls a function as it is: verl's compute_score(data_source, solution_str,
/// ground_truth, extra_info), a reward function of TRL (completions and columns, a list of rewards; messages
/// where a line's `prompt` is a list of messages), or
/// any function of a response and an answer. It returns a number, a truth value, or a dictionary with
/// `score` (and `acc`, `pred`, further numbers). Each response is graded twice: a function that says two
/// things is not deterministic. A response that cannot be graded has an `error` in its line.
///
/// Exit codes: 0 all lines graded (right or wrong), 2 usage, 3 a file or line that cannot be read (then
/// only the error is printed, which names the line), or responses that the function did not grade.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo grade responses.jsonl
  dapo grade responses.jsonl --explain | grep '\"acc\":false'
  dapo grade responses.jsonl --verifier last-number
  dapo grade responses.jsonl --verifier reward.py:compute_score
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
    /// Rule for lines that do not state one: answer-line, strict-box or last-number; or FILE.py, or FILE.py:FUNCTION.
    #[arg(long, value_name = "RULE|FILE.py", default_value = "answer-line", value_parser = graded_by)]
    verifier: GradedBy,
    #[command(flatten)]
    function: FunctionArgs,
}

#[derive(Debug, Clone)]
enum GradedBy {
    Rule(Verifier),
    Function { file: PathBuf, name: Option<String> },
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "For a Python function")]
struct FunctionArgs {
    /// Python that has what the file imports. Default: DAPO_PYTHON, else python3.
    #[arg(long, value_name = "PROGRAM")]
    python: Option<String>,
    /// A number alone is correct above it [default: 0.5].
    #[arg(long)]
    threshold: Option<f64>,
    /// Seconds that a response may take [default: 10].
    #[arg(long)]
    seconds: Option<u32>,
    /// Memory of a process, in GiB [default: 4].
    #[arg(long)]
    memory: Option<u32>,
}

fn graded_by(text: &str) -> Result<GradedBy, String> {
    let (path, name) = match text.rsplit_once(".py:") {
        Some((path, name)) => (format!("{path}.py"), Some(name.to_string())),
        None => (text.to_string(), None),
    };
    if path.ends_with(".py") {
        return Ok(GradedBy::Function { file: path.into(), name });
    }
    Verifier::from_str(text, false).map(GradedBy::Rule).map_err(|_| {
        "expected answer-line, strict-box, last-number, or a file that ends with .py".to_string()
    })
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
    let FunctionArgs { python, threshold, seconds, memory } = &args.function;
    let of_function = [
        ("--python", python.is_some()),
        ("--threshold", threshold.is_some()),
        ("--seconds", seconds.is_some()),
        ("--memory", memory.is_some()),
    ];
    let of_rule =
        [("--explain", args.explain), ("--summary", args.summary), ("--follow", args.follow)];
    let (needed, idle) = match &args.verifier {
        GradedBy::Rule(_) => ("a Python function (--verifier FILE.py)", &of_function[..]),
        GradedBy::Function { .. } => {
            ("a rule (--verifier last-number, for instance)", &of_rule[..])
        }
    };
    if let Some((flag, _)) = idle.iter().find(|(_, is_given)| *is_given) {
        bail_usage!("{flag} needs {needed}");
    }
    if let (true, GradedBy::Rule(usual)) = (args.follow, &args.verifier) {
        return follow(&args.files, *usual);
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
    let usual = match &args.verifier {
        GradedBy::Rule(verifier) => *verifier,
        GradedBy::Function { file, name } => return by_function(args, file, name, &lines),
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut summary = GradeSummary::default();
    for line in &lines {
        let (verifier, explanation) = line.graded(usual);
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

/// With the other numbers of the function's dictionary.
#[derive(Debug, Serialize)]
struct Extended<'a> {
    #[serde(flatten)]
    answer: GradeAnswer<'a>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, f64>,
}

fn by_function(
    args: &GradeArgs,
    file: &Path,
    name: &Option<String>,
    lines: &[ResponseLine],
) -> anyhow::Result<ExitCode> {
    let given = &args.function;
    let graders = Graders::start(RewardProgram {
        file: file.to_path_buf(),
        function: name.clone(),
        python: given.python.clone().unwrap_or_else(python::of_environment),
        threshold: given.threshold.unwrap_or(0.5),
        seconds: f64::from(given.seconds.unwrap_or(10)),
        memory_bytes: u64::from(given.memory.unwrap_or(4)) << 30,
    })?;
    let ready = graders.ready();
    output::tell(format!(
        "{}: {} {}, Python {}, reads {}; each response is graded twice",
        file.display(),
        ready.function,
        ready.form(),
        ready.python,
        ready.files.join(", ")
    ));
    let asked: Vec<Asked> = lines.iter().map(ResponseLine::asked).collect();
    let graded = graders.grade_twice(&asked);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for graded in &graded {
        let line = match graded {
            Ok(ProgramGrade { is_correct, reward, prediction, extra }) => {
                let pred = prediction.as_deref();
                let answer =
                    GradeAnswer { score: *reward, acc: *is_correct, pred, explained: None };
                serde_json::to_string(&Extended { answer, extra })?
            }
            Err(error) => json!({"error": error.to_string()}).to_string(),
        };
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    let failed = graded.iter().filter(|graded| graded.is_err()).count();
    let first =
        graded.iter().zip(1..).find_map(|(graded, line)| Some((line, graded.as_ref().err()?)));
    match first {
        None => Ok(ExitCode::SUCCESS),
        Some((line, error)) => Err(Invalid(format!(
            "{}: {failed} of {} responses were not graded; the first is response {line}: {error}",
            file.display(),
            graded.len()
        ))
        .into()),
    }
}

/// Line and answer in turn.
fn follow(files: &[PathBuf], usual: Verifier) -> anyhow::Result<ExitCode> {
    let [file] = files else { bail_usage!("--follow reads one FILE") };
    let reader = std::io::BufReader::new(foreign::open(file)?);
    foreign::each_line(file, reader, foreign::DATA, |number, line| -> anyhow::Result<()> {
        if let Some(line) = files::parse_line::<ResponseLine>(file, number, line)? {
            let (verifier, explanation) = line.graded(usual);
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
