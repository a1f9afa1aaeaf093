//! The names of evaluation sets, and which of them a grid is read by: the keys `primary_set`
//! (scores and comparisons) and `curve_set` (what is drawn over training).

use crate::experiment::Data;
use std::path::Path;

/// The paper's AIME: 30 problems, evaluated with 32 samples each.
pub const MINI_AIME: &str = "mini-aime";

/// More problems of the same kind, for statistical power.
pub const MINI_AIME_PLUS: &str = "mini-aime-plus";

/// What choices may be made by.
pub const DEV: &str = "dev";

impl Data {
    /// The names of the sets that are evaluated, the development set first. No file is read.
    pub fn set_names(&self) -> Vec<String> {
        let tests: Vec<String> = match self {
            Data::MiniAime { .. } => [MINI_AIME, MINI_AIME_PLUS].map(str::to_string).into(),
            Data::Files { test, .. } => test.iter().map(|path| set_name(path)).collect(),
        };
        std::iter::once(DEV.to_string()).chain(tests).collect()
    }
}

/// A set is named after its file.
pub fn set_name(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The sets of a grid; `None` is what grids had before there were the keys: the embedded
/// benchmark's `mini-aime-plus` and `dev`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sets {
    /// Scores and comparisons.
    pub primary: Option<String>,
    /// Curves, and scores at equal generated rollouts.
    pub curve: Option<String>,
}

impl Sets {
    /// What is stated, and on files for what is not: the only test set, or `dev` where there is
    /// none.
    ///
    /// # Errors
    /// The key and what is wrong with it: a name that is no set of the data, or none where there
    /// are several test sets.
    pub fn resolved(self, data: &Data) -> Result<Self, (&'static str, String)> {
        let known = data.set_names();
        for (key, name) in [("primary_set", &self.primary), ("curve_set", &self.curve)] {
            if let Some(problem) = name.as_ref().and_then(|name| unknown(name, &known)) {
                return Err((key, problem));
            }
        }
        let primary = match (self.primary, data, known.as_slice()) {
            (Some(name), ..) => Some(name),
            (None, Data::MiniAime { .. }, _) => None,
            (None, _, [only] | [_, only]) => Some(only.clone()),
            (None, _, several) => {
                let problem = format!(
                    "must say which set scores and comparisons are about: {}",
                    several.join(", ")
                );
                return Err(("primary_set", problem));
            }
        };
        Ok(Self { primary, curve: self.curve })
    }

    /// Scores and comparisons.
    pub fn primary(&self) -> &str {
        self.primary.as_deref().unwrap_or(MINI_AIME_PLUS)
    }

    /// Curves, and scores at equal generated rollouts.
    pub fn curve(&self) -> &str {
        self.curve.as_deref().unwrap_or(DEV)
    }
}

/// What is wrong with a name of a set.
pub fn unknown(name: &str, known: &[String]) -> Option<String> {
    let missing = known.iter().all(|set| set != name);
    missing.then(|| format!("there is no set {name:?}; there are {}", known.join(", ")))
}
