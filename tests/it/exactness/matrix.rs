//! Cells against the baseline: what is equal and what differs first.

use crate::exactness::cell::Digests;
use dapo::base::files;
use dapo::records::ledger::STEP_COMPONENTS;
use serde::Serialize;

/// What became of a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was computed.
    Computed(Digests),
    /// The machine cannot run it: what it lacks.
    Unsupported(String),
    /// It ended otherwise: how.
    Failed(String),
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What is set other than in the baseline.
    pub setting: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Wall-clock seconds of its processes.
    pub seconds: f64,
    /// The first thing that differs from the baseline; `None` where nothing does, or where there
    /// is nothing to compare.
    pub first_difference: Option<String>,
}

/// Cells of one arithmetic. The first is the baseline.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Matrix {
    /// What it is a matrix of, such as `exact`.
    pub name: String,
    /// The baseline and the cells.
    pub rows: Vec<Row>,
}

/// What is compared, in the order of the columns. The ledger's head binds the execution under
/// `fast` arithmetic, so that it differs there whatever was computed.
pub const COLUMNS: [&str; 5] = ["pretraining", "rollout steps", "weights", "evaluation", "ledger"];

impl Digests {
    /// One digest for each of [`COLUMNS`]; empty where there is none.
    pub fn columns(&self) -> [String; 5] {
        let last = self.rollout_steps.last().and_then(|step| step.get("weights"));
        [
            self.pretrained_weights.clone().unwrap_or_default(),
            files::sha256(files::canonical_json_line(&self.rollout_steps).as_bytes()),
            last.cloned().unwrap_or_default(),
            self.end.get("evaluations").cloned().unwrap_or_default(),
            self.head.clone(),
        ]
    }

    /// The first thing that differs from another's, in the order in which things come about.
    pub fn first_difference(&self, other: &Self) -> Option<String> {
        if self.pretrained_weights != other.pretrained_weights {
            return Some("pretraining".to_string());
        }
        for (at, (one, another)) in self.rollout_steps.iter().zip(&other.rollout_steps).enumerate()
        {
            let differs = |name: &&&str| one.get(**name) != another.get(**name);
            if let Some(name) = STEP_COMPONENTS.iter().find(differs) {
                return Some(format!("step {}: {name}", at + 1));
            }
            if one != another {
                return Some(format!("step {}", at + 1));
            }
        }
        if self.rollout_steps.len() != other.rollout_steps.len() {
            return Some("the number of rollout steps".to_string());
        }
        (self.end != other.end).then(|| "the evaluations or the ending".to_string())
    }
}

impl Matrix {
    /// An empty one.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_string(), rows: Vec::new() }
    }

    /// Adds a row and compares it with the first.
    pub fn push(&mut self, setting: String, outcome: Outcome, seconds: f64) -> &Row {
        let baseline = self.rows.first().map(|row| &row.outcome);
        let first_difference = match (baseline, &outcome) {
            (Some(Outcome::Computed(baseline)), Outcome::Computed(digests)) => {
                digests.first_difference(baseline)
            }
            _ => None,
        };
        self.rows.push(Row { setting, outcome, seconds, first_difference });
        self.rows.last().expect("the row that was added")
    }

    /// The cells of a row: `=` where it equals the baseline, else the first 12 digits of its own
    /// digest.
    pub fn cells(&self, row: usize) -> [String; 5] {
        let digests = |row: usize| match &self.rows[row].outcome {
            Outcome::Computed(digests) => Some(digests.columns()),
            Outcome::Unsupported(_) | Outcome::Failed(_) => None,
        };
        let (baseline, own) = (digests(0), digests(row));
        std::array::from_fn(|column| {
            let digest = |of: &Option<[String; 5]>| of.as_ref().map(|all| all[column].clone());
            match (digest(&baseline), digest(&own)) {
                (Some(first), Some(own)) if row > 0 && first == own => "=".to_string(),
                (_, Some(own)) => own.chars().take(12).collect(),
                (_, None) => String::new(),
            }
        })
    }

    /// Cells that were computed, and of these the ones that differ from the baseline.
    pub fn counts(&self) -> (usize, usize) {
        let computed = |row: &&Row| matches!(row.outcome, Outcome::Computed(_));
        let differing = |row: &&Row| row.first_difference.is_some();
        (self.rows.iter().filter(computed).count(), self.rows.iter().filter(differing).count())
    }

    /// Whether every cell that this machine can run was computed and equals the baseline in
    /// everything, the ledger's head included.
    pub fn agrees(&self) -> bool {
        let failed = |row: &Row| matches!(row.outcome, Outcome::Failed(_));
        let all = (1..self.rows.len())
            .filter(|&row| !matches!(self.rows[row].outcome, Outcome::Unsupported(_)));
        let equal = all.into_iter().all(|row| self.cells(row).iter().all(|cell| cell == "="));
        equal && !self.rows.iter().any(failed) && self.rows.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dapo::records::Components;

    fn digests(weights: &str) -> Digests {
        let step =
            STEP_COMPONENTS.map(|name| (name.to_string(), format!("{name}-of-the-baseline")));
        let mut steps = vec![Components::from(step); 2];
        steps[1].insert("weights".into(), weights.into());
        Digests {
            pretrained_weights: Some("p".into()),
            rollout_steps: steps,
            end: [("evaluations".to_string(), "e".to_string())].into(),
            head: weights.to_string(),
            generation_rounds: 2,
            resumed_after: None,
            sums_compared: 0,
            instructions: "scalar".into(),
        }
    }

    #[test]
    fn equal_cells_agree_and_one_digest_that_differs_is_named() {
        let mut matrix = Matrix::new("exact");
        matrix.push("baseline".into(), Outcome::Computed(digests("w")), 1.0);
        assert!(!matrix.agrees(), "a baseline alone shows nothing");
        matrix.push("threads 2".into(), Outcome::Computed(digests("w")), 1.0);
        matrix.push("avx512".into(), Outcome::Unsupported("no".into()), 1.0);
        assert!(matrix.agrees());
        assert_eq!(matrix.cells(1), ["="; 5].map(String::from));
        let row = matrix.push("threads 4".into(), Outcome::Computed(digests("other")), 1.0);
        assert_eq!(row.first_difference.as_deref(), Some("step 2: weights"));
        assert!(!matrix.agrees());
        assert_eq!(matrix.cells(3)[2], "other");
        assert_eq!(matrix.counts(), (3, 1));
    }

    #[test]
    fn a_cell_that_failed_does_not_agree() {
        let mut matrix = Matrix::new("exact");
        matrix.push("baseline".into(), Outcome::Computed(digests("w")), 1.0);
        matrix.push("threads 2".into(), Outcome::Failed("signal 4".into()), 1.0);
        assert!(!matrix.agrees());
        assert_eq!(matrix.cells(1), [const { String::new() }; 5]);
    }
}
