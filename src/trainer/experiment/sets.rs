//! Names of evaluation sets, and a grid's keys `primary_set` (scores, comparisons) and `curve_set` (curves).

use crate::experiment::{Data, Experiment, diagnose};
use std::path::Path;

/// The paper's AIME: 30 problems, evaluated with 32 samples each.
pub const MINI_AIME: &str = "mini-aime";

/// More problems of the same kind, for statistical power.
pub const MINI_AIME_PLUS: &str = "mini-aime-plus";

pub const CHECKED_CHAINS: &str = "checked-chains";
pub const SIGNED_SUMS: &str = "signed-sums";
pub const WORD_PROBLEMS: &str = "word-problems";

pub const DEV: &str = "dev";

/// What is trained on; never evaluated.
pub const TRAIN: &str = "train";

impl Data {
    /// The problems are a function of the version, not of files.
    pub fn is_generated(&self) -> bool {
        !matches!(self, Data::Files { .. })
    }

    /// Generated problems for policies of one token a character, whose scores say nothing of real models.
    pub fn is_miniature(&self) -> bool {
        self.is_generated() && !matches!(self, Data::WordProblems {})
    }

    /// The development set comes first. No file is read.
    pub fn set_names(&self) -> Vec<String> {
        let tests: Vec<String> = match self {
            Data::MiniAime { .. } => [MINI_AIME, MINI_AIME_PLUS].map(str::to_string).into(),
            Data::CheckedChains { .. } => vec![CHECKED_CHAINS.to_string()],
            Data::SignedSums {} => vec![SIGNED_SUMS.to_string()],
            Data::WordProblems {} => vec![WORD_PROBLEMS.to_string()],
            Data::Files { test, .. } => test.iter().map(|path| set_name(path)).collect(),
        };
        std::iter::once(DEV.to_string()).chain(tests).collect()
    }
}

pub fn set_name(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The sets of a grid; `None` stands for the embedded benchmark's `mini-aime-plus` and `dev`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sets {
    pub primary: Option<String>,
    /// Curves, and scores at equal generated rollouts.
    pub curve: Option<String>,
}

impl Sets {
    /// On files an unstated primary set is the only test set, or `dev` where there is none.
    pub fn resolved(self, experiment: &Experiment) -> Result<Self, (&'static str, String)> {
        let (data, known) = (&experiment.inputs.data, experiment.set_names());
        if let Some(problem) = self.unknown(&known).next() {
            return Err(problem);
        }
        let primary = match (self.primary, data, known.as_slice()) {
            (Some(name), ..) => Some(name),
            (None, Data::MiniAime { .. }, _) => None,
            (None, _, [only] | [_, only]) => Some(only.clone()),
            (None, _, several) => {
                let sets = several.join(", ");
                let problem =
                    format!("must say which set scores and comparisons are about: {sets}");
                return Err(("primary_set", problem));
            }
        };
        Ok(Self { primary, curve: self.curve })
    }

    /// Keys that name another set than these, with what is wrong.
    pub fn unknown(&self, known: &[String]) -> impl Iterator<Item = (&'static str, String)> {
        let keys = [("primary_set", &self.primary), ("curve_set", &self.curve)];
        keys.into_iter().filter_map(|(key, name)| {
            let name = name.as_ref().filter(|name| !known.contains(name))?;
            let reason = diagnose::known(name, "there are", known);
            Some((key, format!("there is no set {name:?}; {reason}")))
        })
    }

    pub fn primary(&self) -> &str {
        self.primary.as_deref().unwrap_or(MINI_AIME_PLUS)
    }

    pub fn curve(&self) -> &str {
        self.curve.as_deref().unwrap_or(DEV)
    }
}
