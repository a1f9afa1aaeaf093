//! `dapo data grade`: the verifier on a file of responses.

use crate::base::files::foreign;
use crate::base::{visible, workers};
use crate::commands::exit::{Invalid, bail_invalid, bail_usage};
use crate::commands::flags::grading::{self, GradingArgs};
use crate::commands::{exit, output};
use crate::experiment::{Grading, ProgramKind, RewardProgram, Verifier};
use crate::report::text::{counted, joined, percent};
use crate::task::grader::for_program;
use crate::task::responses::{self, ResponseLine};
use crate::task::reward::Grade;
use crate::task::reward::program::{Asked, Graded, Graders, not_graded};
use crate::task::reward::python_text::last_code_points;
use crate::task::{Explanation, Reading, Reason};
use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Grade responses by a rule (Eq. 7), or by a Python function.
///
/// A file has JSON lines of {"response", "ground_truth", "strict_box_verify"?} (other keys are ignored),
/// verl's dumps of rollouts ({"output", "gts"}), samples that lm-eval logs ({"target", "resps"}; of a
/// worked solution the target is what follows `####` or is in the last box), or a table of rollouts or
/// evaluation outcomes of a run folder (*.parquet). A rule reads a ground truth as it does in a file of problems (`7.0`,
/// `["7"]`, `#### 7`; without `ground_truth` under the keys of problems). Where no --verifier is given, a line with strict_box_verify is graded as the released verifier is called. Each
/// line of the output is
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
#[command(after_help = include_str!("help/grade.txt"))]
pub struct GradeArgs {
    /// JSON lines or tables to grade.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Add the matched text, both normalised sides, why, and how the ground truth was read.
    #[arg(long)]
    pub explain: bool,
    /// Print one table of reasons, with their shares and an example each, instead of the lines.
    #[arg(long, conflicts_with = "explain")]
    pub summary: bool,
    /// With --summary or --compare: one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Answer each line as soon as it arrives, for a program that asks one at a time. FILE is /dev/stdin.
    #[arg(long, conflicts_with_all = ["summary", "explain"])]
    pub follow: bool,
    /// Grade by a second verifier, too, on every line, and print where the two disagree instead of the lines.
    #[arg(long, value_name = "RULE|FILE", value_parser = grading::grading,
        conflicts_with_all = ["explain", "summary", "follow"])]
    compare: Option<Grading>,
    /// Without it lines that state a rule (strict_box_verify) are graded by theirs.
    #[command(flatten)]
    grading: GradingArgs,
}

#[derive(Debug, Serialize)]
struct GradeAnswer<'a> {
    score: f64,
    acc: bool,
    pred: Option<&'a str>,
    #[serde(flatten)]
    explained: Option<Explained<'a>>,
    /// The other numbers of a function's dictionary.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, f64>,
}

#[derive(Debug, Serialize)]
struct Explained<'a> {
    matched: Option<&'a str>,
    normalised_prediction: Option<&'a str>,
    normalised_ground_truth: &'a str,
    reason: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ground_truth_readings: Vec<String>,
}

impl<'a> GradeAnswer<'a> {
    fn line(
        grade: &'a Grade,
        pred: Option<&'a str>,
        explained: Option<Explained<'a>>,
    ) -> Result<String> {
        let Grade { is_correct: acc, reward: score, extra, .. } = grade;
        let answer = Self { score: *score, acc: *acc, pred, explained, extra };
        Ok(visible::json(&serde_json::to_string(&answer)?) + "\n")
    }
}

/// Errors: a file that cannot be read, or responses that a program did not grade.
pub fn run(args: &GradeArgs) -> Result<u8> {
    let grading = args.grading.grading()?;
    workers::set_count(std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64));
    if grading.rule().is_none() {
        let of_rule = [("--explain", args.explain), ("--summary", args.summary)];
        exit::refuse_flags(&of_rule, "needs a rule (--verifier last-number, for instance)")?;
    }
    if args.json && !args.summary && args.compare.is_none() {
        bail_usage!(
            "--json is for --summary and --compare; without them each line is JSON already"
        );
    }
    let overruling = args.grading.is_chosen().then(|| grading.rule()).flatten();
    if args.follow {
        return follow(&args.files, &grading, overruling);
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
        if responses.lines.is_empty() {
            let file = file.display();
            output::tell(format!("warning: {file}: there is no response to grade"));
        }
        lines.extend(responses.lines);
    }
    if let Some(rule) = overruling {
        tell_overruled(disregard_rules(&mut lines), "--verifier", rule);
    }
    let reading = args.compare.iter().chain([&grading]).find_map(|grading| match grading {
        Grading::Program(program) if program.kind != ProgramKind::MathVerify => Some(program),
        _ => None,
    });
    if let Some(program) = reading
        && lines.iter().any(|line| line.is_of_a_table)
    {
        output::tell(format!(
            "warning: a table has no prompts and no further columns of the problems, and a ground truth that is an \
             object or a list as text: where {} reads them, it grades otherwise than in the run; `dapo verify RUN \
             --run-rewards` grades a run with them",
            program.name()
        ));
    }
    if let Some(second) = &args.compare {
        let a = correct(&grading, &lines)?;
        let stating = disregard_rules(&mut lines);
        if stating > 0 && grading.rule().is_some() {
            let stating = counted(stating, "line states", "lines state");
            output::tell(format!(
                "{stating} strict_box_verify; there that rule is the first of the two"
            ));
        } else if let Some(rule) = second.rule() {
            tell_overruled(stating, "--compare", rule);
        }
        let b = correct(second, &lines)?;
        let compared = Disagreements::between([&grading, second], &lines, [&a, &b]);
        output::document(args.json, &compared, || compared.text());
        return Ok(exit::SUCCESS);
    }
    match grading {
        Grading::Program(program) => {
            let graded = graded_by(&program, &lines)?;
            print!("{}", graded.iter().map(program_answer).collect::<Result<String>>()?);
            ungraded(&program, &lines, &graded)?;
        }
        Grading::Rule(usual) if args.summary => {
            let mut summary = GradeSummary::default();
            let graded = graded_by_rule(usual, &lines)?;
            lines.iter().zip(&graded).for_each(|(line, (_, it))| summary.add(line, it));
            output::document(args.json, &summary.json(), || summary.table());
        }
        Grading::Rule(usual) => {
            let graded = graded_by_rule(usual, &lines)?;
            let answers = lines.iter().zip(&graded).map(|(line, (verifier, explanation))| {
                answer(explanation, *verifier, args.explain.then(|| line.readings()))
            });
            print!("{}", answers.collect::<Result<String>>()?);
        }
    }
    Ok(exit::SUCCESS)
}

fn disregard_rules(lines: &mut [ResponseLine]) -> usize {
    lines.iter_mut().filter_map(|line| line.disregard_rule().then_some(())).count()
}

fn tell_overruled(lines: usize, flag: &str, rule: Verifier) {
    let them = if lines == 1 { "it" } else { "them" };
    if lines > 0 {
        output::tell(format!(
            "{} strict_box_verify; {flag} {} grades {them}, too",
            counted(lines, "line states", "lines state"),
            rule.name()
        ));
    }
}

fn graded_by_rule(usual: Verifier, lines: &[ResponseLine]) -> Result<Vec<(Verifier, Explanation)>> {
    let graded = lines.iter().zip(1..).map(|(line, number)| {
        let refused = |reason| Invalid(format!("response {number} ({}): {reason}", line.place()));
        Ok(line.graded(usual).map_err(refused)?)
    });
    graded.collect()
}

/// Each response by the program, graded twice, after a line of what the program is.
fn graded_by(program: &RewardProgram, lines: &[ResponseLine]) -> Result<Vec<Graded>> {
    let graders = Graders::start(program.clone())?;
    let ready = graders.ready();
    let versions = ready.packages.iter().map(|(name, version)| format!("{name} {version}"));
    let files = ready.files.join(", ");
    let reads = if files.is_empty() { files } else { format!("reads {files}") };
    let called = [&ready.function[..], &ready.form()].join(" ").trim().to_string();
    let twice = "each response is graded twice".to_string();
    let mut parts = vec![called, joined(versions, ", "), reads, twice];
    parts.retain(|part| !part.is_empty());
    output::tell(format!("{}: {}", program.name(), parts.join("; ")));
    let asked: Vec<Asked> = lines.iter().map(|line| for_program(line.asked(), program)).collect();
    let mut graded = graders.grade_twice(&asked);
    let stderr = graders.stderr();
    if let Err(surplus) = graders.close() {
        graded.fill(Err(surplus));
    }
    graders.odd_numbers().iter().for_each(|sentence| output::tell(format!("warning: {sentence}")));
    for text in stderr {
        output::tell(format!("{} wrote at last:", program.name()));
        text.lines().for_each(output::tell);
    }
    Ok(graded)
}

fn ungraded(program: &RewardProgram, lines: &[ResponseLine], graded: &[Graded]) -> Result<()> {
    match not_graded(graded, |first| lines[first].place()) {
        Some((failed, error)) => bail_invalid!("{}: {failed}: {error}", program.name()),
        None => Ok(()),
    }
}

fn correct(grading: &Grading, lines: &[ResponseLine]) -> Result<Vec<bool>> {
    let graded = match grading {
        Grading::Rule(rule) => {
            graded_by_rule(*rule, lines)?.into_iter().map(|(_, it)| Ok(it.grade)).collect()
        }
        Grading::Program(program) => {
            let graded = graded_by(program, lines)?;
            ungraded(program, lines, &graded)?;
            graded
        }
    };
    Ok(graded.into_iter().flatten().map(|grade| grade.is_correct).collect())
}

/// What two graders say of the same responses.
#[derive(Debug, Serialize)]
struct Disagreements {
    graders: [String; 2],
    responses: usize,
    counts: [AgreementCount; 4],
    differing: usize,
    listed: Vec<Disagreement>,
}

#[derive(Debug, Serialize)]
struct AgreementCount {
    correct: [bool; 2],
    responses: usize,
}

#[derive(Debug, Serialize)]
struct Disagreement {
    /// From 1.
    response: usize,
    correct: [bool; 2],
    ground_truth: String,
    end: String,
}

impl Disagreements {
    const LISTED: usize = 20;

    fn between(gradings: [&Grading; 2], lines: &[ResponseLine], [a, b]: [&[bool]; 2]) -> Self {
        let graders = gradings.map(Grading::name);
        let both = || a.iter().zip(b).map(|(a, b)| [*a, *b]);
        let counts = [[true, true], [true, false], [false, true], [false, false]].map(|correct| {
            AgreementCount { correct, responses: both().filter(|it| *it == correct).count() }
        });
        let differing = || lines.iter().zip(1..).zip(both()).filter(|(_, [a, b])| a != b);
        let shown = |text: &str| visible::shortened(text, 2 * EXAMPLE_CHARACTERS);
        let listed =
            differing().take(Self::LISTED).map(|((line, response), correct)| Disagreement {
                response,
                correct,
                ground_truth: shown(&line.ground_truth()),
                end: shown(last_code_points(&line.response, 2 * EXAMPLE_CHARACTERS)),
            });
        let (listed, differing) = (listed.collect(), differing().count());
        Self { graders, responses: lines.len(), counts, differing, listed }
    }

    /// Responses by what both say of them, then the first on which they disagree.
    fn text(&self) -> String {
        let word = |is_correct: bool| if is_correct { "correct" } else { "wrong" }.to_string();
        let rows = self.counts.iter().map(|AgreementCount { correct: [a, b], responses }| {
            let share = percent(*responses as f64 / self.responses.max(1) as f64);
            [word(*a), word(*b), responses.to_string(), share]
        });
        let [first, second] = &self.graders;
        let counts = output::table(&format!("{first} | {second} | responses # | share #"), rows);
        let (listed, count) = (self.listed.len(), self.differing);
        let first_of =
            if count > listed { format!("the first {listed} of ") } else { String::new() };
        if count == 0 {
            return counts;
        }
        let rows = self.listed.iter().map(|it| {
            let [a, b] = it.correct.map(word);
            [it.response.to_string(), a, b, it.ground_truth.clone(), it.end.clone()]
        });
        let header =
            format!("response # | {first} | {second} | ground truth | end of the response");
        let disagreements = counted(count, "disagreement", "disagreements");
        format!("{counts}\n{first_of}{disagreements}\n{}", output::table(&header, rows))
    }
}

fn program_answer(graded: &Graded) -> Result<String> {
    match graded {
        Ok(grade) => GradeAnswer::line(grade, grade.prediction.as_deref(), None),
        Err(error) => Ok(visible::json(&json!({"error": error.to_string()}).to_string()) + "\n"),
    }
}

/// Line and answer in turn; a program grades each once.
fn follow(files: &[PathBuf], grading: &Grading, overruling: Option<Verifier>) -> Result<u8> {
    let [file] = files else { bail_usage!("--follow reads one FILE") };
    match grading {
        Grading::Rule(usual) => {
            let mut overruled = 0;
            let code = answer_each(file, |mut line| {
                overruled += usize::from(overruling.is_some() && line.disregard_rule());
                let refused = |reason| Invalid(format!("{}: {reason}", file.display()));
                let (verifier, explanation) = line.graded(*usual).map_err(refused)?;
                answer(&explanation, verifier, None)
            })?;
            tell_overruled(overruled, "--verifier", *usual);
            Ok(code)
        }
        Grading::Program(program) => {
            let graders = Graders::start((**program).clone())?;
            let code = answer_each(file, |line| {
                program_answer(&graders.grade(&[for_program(line.asked(), program)]).swap_remove(0))
            })?;
            graders.close().map_err(|error| Invalid(format!("{}: {error}", program.name())))?;
            Ok(code)
        }
    }
}

fn answer_each(
    file: &Path,
    mut answered: impl FnMut(ResponseLine) -> Result<String>,
) -> Result<u8> {
    let reader = std::io::BufReader::new(foreign::open(file)?);
    foreign::each_line(file, reader, foreign::DATA, |number, line| -> Result<()> {
        if let Some(line) = responses::parse_line(file, number, line)? {
            print!("{}", answered(line)?);
        }
        Ok(())
    })?;
    Ok(exit::SUCCESS)
}

/// A line of JSON, with keys in the order that the released verifier has; explained with `readings` of the ground truth.
fn answer(
    explanation: &Explanation,
    verifier: Verifier,
    readings: Option<Vec<Reading>>,
) -> Result<String> {
    let grade = &explanation.grade;
    let explained = readings.map(|readings| Explained {
        matched: explanation.matched.as_deref(),
        normalised_prediction: grade.prediction.as_deref(),
        normalised_ground_truth: &explanation.compared_ground_truth,
        reason: explanation.reason.to_string(),
        ground_truth_readings: readings.iter().map(Reading::to_string).collect(),
    });
    GradeAnswer::line(grade, grade.released_prediction(verifier), explained)
}

#[derive(Default)]
struct GradeSummary {
    responses: u64,
    reasons: BTreeMap<Reason, Counted>,
}

#[derive(Serialize)]
struct Counted {
    responses: u64,
    /// Counts responses at the limit, if the table records them.
    truncated: u64,
    example: String,
}

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
            Counted { responses: 0, truncated: 0, example: format!("{cut}`{shown}` for `{truth}`") }
        });
        counted.responses += 1;
        counted.truncated += u64::from(line.truncated);
    }

    fn json(&self) -> serde_json::Value {
        let reasons = self.reasons.iter().map(|(reason, counted)| (reason.to_string(), counted));
        json!({"responses": self.responses, "reasons": reasons.collect::<BTreeMap<_, _>>()})
    }

    /// Most frequent first.
    fn table(&self) -> String {
        let mut reasons: Vec<(&Reason, &Counted)> = self.reasons.iter().collect();
        reasons.sort_by_key(|(reason, counted)| (Reverse(counted.responses), **reason));
        let rows =
            reasons.into_iter().map(|(reason, Counted { responses, truncated, example })| {
                let verdict = if *reason == Reason::Equal { "accepted" } else { "rejected" };
                let share = percent(*responses as f64 / self.responses as f64);
                let [responses, truncated] = [responses, truncated].map(u64::to_string);
                let (why, example) = (reason.to_string(), example.clone());
                [verdict.to_string(), why, responses, share, truncated, example]
            });
        output::table("verdict | why | responses # | share # | truncated # | first example", rows)
    }
}
