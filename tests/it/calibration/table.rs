//! The calibration as a file and as a page.

use crate::calibration::{Measure, Row};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

pub const FORMAT: u64 = 1;

const COMMAND: &str = "cargo test --test it the_table_is_made_anew -- --ignored";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub format: u64,
    pub command: String,
    pub replicates: u64,
    pub rows: Vec<Row>,
}

impl Table {
    pub fn new(replicates: u64, rows: Vec<Row>) -> Self {
        let command = COMMAND.to_string();
        Self { format: FORMAT, command, replicates, rows }
    }

    /// Rows whose method is promised to hold and does not.
    pub fn broken(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.outside_question && !row.is_kept())
    }

    /// The page: every row, methods in order, with what was counted.
    pub fn markdown(&self) -> String {
        let mut page = format!("# Calibration\n\nMade by `{}`.\n", self.command);
        let mut methods: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !methods.contains(&row.method.as_str()) {
                methods.push(&row.method);
            }
        }
        for method in methods {
            let rows = || self.rows.iter().filter(|row| row.method == method);
            let Some(first) = rows().next() else { continue };
            let counted = match first.measure {
                Measure::Coverage => "coverage of nominal 95 % intervals",
                Measure::FalseRejections => "false rejections at 5 %",
                Measure::Power => "power",
            };
            let (least, most) = (100.0 * first.least, 100.0 * first.most);
            let range = match first.measure {
                Measure::FalseRejections => format!("at most {most:.0} %"),
                _ => format!("{least:.0} to {most:.0} %"),
            };
            // Writing to a string cannot fail.
            let _ = write!(
                page,
                "\n## {method}\n\n{}; {counted}, allowed {range}.\n\n\
                 | Scenario | Data | Offered % | Where offered % | Were it always offered % | |\n\
                 |---|---|---|---|---|---|\n",
                first.question
            );
            for row in rows() {
                page.push_str(&line(row));
            }
        }
        page
    }
}

fn line(row: &Row) -> String {
    let percent = |hits: u64, of: u64| format!("{:.2}", 100.0 * hits as f64 / of as f64);
    let word = match (row.offered, row.is_kept(), row.outside_question) {
        (0, ..) => "withheld",
        (_, true, _) => "kept",
        (_, false, true) => "limit",
        (_, false, false) => "**broken**",
    };
    let share = if row.offered == 0 { "–".into() } else { percent(row.hits, row.offered) };
    format!(
        "| {} | {} | {} | {share} | {} | {word} |\n",
        row.scenario,
        row.size,
        percent(row.offered, row.replicates),
        percent(row.hits_if_always_offered, row.replicates),
    )
}
