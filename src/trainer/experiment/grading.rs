//! `[reward]`: what grades responses, a rule or a program of the user's.

use clap::ValueEnum;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// What grades responses: a rule by its name, or a table that names a program.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Grading {
    Rule(Verifier),
    Program(Box<RewardProgram>),
}

impl<'de> Deserialize<'de> for Grading {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NameOrTable)
    }
}

/// The name of [`RewardProgram::math_verify`].
pub const MATH_VERIFY: &str = "math-verify";

/// With `untagged` a mistake in the table would be told without its key.
struct NameOrTable;

impl<'de> Visitor<'de> for NameOrTable {
    type Value = Grading;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a rule's name, or a table with `kind` and `file`")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Grading, E> {
        if name == MATH_VERIFY {
            return Ok(Grading::Program(Box::new(RewardProgram::math_verify())));
        }
        let rule: Result<Verifier, E> = Verifier::deserialize(name.into_deserializer());
        let names = &["answer-line", "strict-box", "last-number", MATH_VERIFY];
        rule.map(Grading::Rule).map_err(|_| E::unknown_variant(name, names))
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Grading, A::Error> {
        let program = RewardProgram::deserialize(MapAccessDeserializer::new(table))?;
        Ok(Grading::Program(Box::new(program)))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewardProgram {
    pub kind: ProgramKind,
    /// What the program is: its digest, not its path, is in a run's key. Only the harness's own has none.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub file: PathBuf,
    /// Of a Python file. Absent: `compute_score`, `grade`, or the file's only function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Several functions of the file in place of one: the reward is the weighted sum of what they return (TRL).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<String>,
    /// One for each of the functions; absent: 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<f64>,
    /// Keyword arguments of every call (verl's `reward_kwargs`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kwargs: BTreeMap<String, Value>,
    /// Of a command: what is started, with `{file}` for the file's path; absent: the file itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Further files that the program reads, relative to the folder of its file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Python packages whose versions are part of the run's identity, beside Python's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// The Python that has what the file imports; absent: `DAPO_PYTHON`, else `python3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// A number alone is correct above it.
    #[serde(default = "usual_threshold")]
    pub threshold: f64,
    /// For each response.
    #[serde(default = "usual_seconds")]
    pub seconds: f64,
    /// Address space of a process.
    #[serde(default = "usual_memory")]
    pub memory_gib: u64,
    /// Responses that get two grades are counted; otherwise the run stops.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_nondeterministic: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramKind {
    /// A function in a Python file.
    Python,
    /// A process that answers lines of JSON.
    Command,
    /// The Python package Math-Verify, called by the harness's own function.
    MathVerify,
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

fn usual_threshold() -> f64 {
    0.5
}

fn usual_seconds() -> f64 {
    10.0
}

fn usual_memory() -> u64 {
    4
}

impl RewardProgram {
    /// With what is usual where nothing is stated.
    pub fn of_python(file: PathBuf, function: Option<String>) -> Self {
        let usual = serde_json::from_value(json!({"kind": "python"}));
        let usual: Self = usual.expect("a kind is all that must be stated");
        Self { file, function, ..usual }
    }

    pub fn math_verify() -> Self {
        let packages = ["math-verify", "latex2sympy2-extended", "sympy"].map(str::to_string);
        Self {
            kind: ProgramKind::MathVerify,
            packages: packages.into(),
            ..Self::of_python(PathBuf::new(), None)
        }
    }

    pub fn name(&self) -> String {
        if self.kind == ProgramKind::MathVerify {
            MATH_VERIFY.to_string()
        } else {
            self.file.display().to_string()
        }
    }
}

impl Grading {
    pub fn name(&self) -> String {
        match self {
            Self::Rule(rule) => rule.name(),
            Self::Program(program) => program.name(),
        }
    }

    pub fn rule(&self) -> Option<Verifier> {
        if let Self::Rule(rule) = self { Some(*rule) } else { None }
    }

    pub fn program(&self) -> Option<&RewardProgram> {
        if let Self::Program(program) = self { Some(program) } else { None }
    }

    /// Without what differs between machines, and without limits, which a resumed run may have wider.
    pub fn of_arm(&self) -> Self {
        match self {
            Self::Rule(rule) => Self::Rule(*rule),
            Self::Program(program) => Self::Program(Box::new(RewardProgram {
                file: program.file.file_name().map(PathBuf::from).unwrap_or_default(),
                python: None,
                seconds: usual_seconds(),
                memory_gib: usual_memory(),
                ..*program.clone()
            })),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Verifier {
    /// The last `Answer: …`, normalised.
    AnswerLine,
    /// The last `\boxed{…}`, compared raw.
    StrictBox,
    /// The last number, as lm-eval's `flexible-extract`.
    LastNumber,
}

impl Verifier {
    pub fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
    }
}
