//! What grades: a rule, or a function in a Python file.

use crate::base::files;
use crate::commands::{exit, exit::bail_usage};
use crate::experiment::{Grading, ProgramKind, RewardProgram, Verifier, named};
use anyhow::Result;
use serde_json::Value;
use std::path::Path;

#[derive(Debug, clap::Args)]
pub struct GradingArgs {
    /// Rule: answer-line, strict-box or last-number; or math-verify (the Python package), FILE.py,
    /// FILE.py:FUNCTION, or an experiment (file, arm or run folder), whose verifier is taken. [default: answer-line]
    #[arg(long, value_name = "RULE|FILE", value_parser = grading)]
    verifier: Option<Grading>,
    #[command(flatten)]
    function: FunctionArgs,
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

pub fn grading(text: &str) -> Result<Grading, String> {
    let (path, name) = match text.rsplit_once(".py:") {
        Some((path, name)) => (format!("{path}.py"), Some(name.to_string())),
        None => (text.to_string(), None),
    };
    if path.ends_with(".py") {
        return Ok(Grading::Program(Box::new(RewardProgram::of_python(path.into(), name))));
    }
    if let Ok(grading) = serde_json::from_value(Value::from(text)) {
        return Ok(grading);
    }
    let file = named::find(Path::new(text)).map_err(|_| EXPECTED.to_string())?;
    if named::is_run(&file) {
        return recorded_grading(&file.join("experiment.json"));
    }
    let extension = file.extension().and_then(|extension| extension.to_str());
    match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("toml") => match named::load(&file, &[]) {
            Ok(experiment) => Ok(experiment.reward.verifier),
            Err(error) => Err(error.to_string()),
        },
        Some("json") => recorded_grading(&file),
        _ => Err(EXPECTED.to_string()),
    }
}

const EXPECTED: &str = "expected answer-line, strict-box, last-number, math-verify, a file that ends with .py, or an experiment: \
                        a file, the name of an arm or a run folder";

/// Of a run's `experiment.json`, or of the `verifier.json` that `engine render` writes.
fn recorded_grading(file: &Path) -> Result<Grading, String> {
    let all: Value = files::read_json(file).map_err(|error| error.to_string())?;
    let own = all.pointer("/reward/verifier").unwrap_or(&all).clone();
    serde_json::from_value(own).map_err(|error| format!("it states no verifier: {error}"))
}

impl GradingArgs {
    pub fn flags(&self) -> [(&'static str, bool); 5] {
        let FunctionArgs { python, threshold, seconds, memory } = &self.function;
        [
            ("--verifier", self.verifier.is_some()),
            ("--python", python.is_some()),
            ("--threshold", threshold.is_some()),
            ("--seconds", seconds.is_some()),
            ("--memory", memory.is_some()),
        ]
    }

    pub fn is_chosen(&self) -> bool {
        self.verifier.is_some()
    }

    /// Errors: a flag of a function where a rule grades.
    pub fn grading(&self) -> Result<Grading> {
        let chosen = self.verifier.clone().unwrap_or(Grading::Rule(Verifier::AnswerLine));
        let Grading::Program(mut program) = chosen else {
            let why = "needs a Python function (--verifier FILE.py)";
            exit::refuse_flags(&self.flags()[1..], why)?;
            return Ok(chosen);
        };
        let FunctionArgs { python, threshold, seconds, memory } = &self.function;
        if python.is_some() && program.kind == ProgramKind::Command {
            bail_usage!(
                "--python is for a Python function; {} is started by its `command`",
                program.name()
            );
        }
        program.python = python.clone().or(program.python);
        program.threshold = threshold.unwrap_or(program.threshold);
        program.seconds = seconds.map_or(program.seconds, f64::from);
        program.memory_gib = memory.map_or(program.memory_gib, u64::from);
        Ok(Grading::Program(program))
    }
}
