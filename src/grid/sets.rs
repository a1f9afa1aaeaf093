//! Which evaluation sets a grid is read by: the keys `primary_set` (scores and comparisons) and
//! `curve_set` (what is drawn over training).

use crate::config::Data;
use crate::data;
use crate::data::mini_aime;

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
        let known = data::set_names(data);
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
        self.primary.as_deref().unwrap_or(mini_aime::MINI_AIME_PLUS)
    }

    /// Curves, and scores at equal generated rollouts.
    pub fn curve(&self) -> &str {
        self.curve.as_deref().unwrap_or(mini_aime::DEV)
    }
}

/// What is wrong with a name of a set.
pub fn unknown(name: &str, known: &[String]) -> Option<String> {
    let missing = known.iter().all(|set| set != name);
    missing.then(|| format!("there is no set {name:?}; there are {}", known.join(", ")))
}
