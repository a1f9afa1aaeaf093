//! The calibration as a file and as a page.

use crate::statistics::calibration_tests::{Measure, Promise, Row, Tally};
use serde::{Deserialize, Serialize};

pub const FORMAT: u64 = 1;

const COMMAND: &str = "cargo test --workspace the_table_is_made_anew -- --ignored";

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
        let mut promises: Vec<&Promise> = Vec::new();
        for row in &self.rows {
            if !promises.iter().any(|promise| promise.method == row.promise.method) {
                promises.push(&row.promise);
            }
        }
        for Promise { method, question, measure, least, most } in promises {
            let (least, most) = (100.0 * least, 100.0 * most);
            let within = format!("{least:.0} to {most:.0} %");
            let (counted, range) = match measure {
                Measure::Coverage => ("coverage of nominal 95 % intervals", within),
                Measure::FalseRejections => {
                    ("false rejections at 5 %", format!("at most {most:.0} %"))
                }
                Measure::Power => ("power", within),
            };
            page += &format!(
                "\n## {method}\n\n{question}; {counted}, allowed {range}.\n\n\
                 | Scenario | Data | Offered % | Where offered % | Were it always offered % | |\n\
                 |---|---|---|---|---|---|\n"
            );
            let rows = self.rows.iter().filter(|row| row.promise.method == *method);
            page.extend(rows.map(line));
        }
        page
    }
}

fn line(row: &Row) -> String {
    let Tally { replicates, offered, hits, hits_if_always_offered, .. } = row.tally;
    let percent = |hits: u64, of: u64| format!("{:.2}", 100.0 * hits as f64 / of as f64);
    let word = match (offered, row.is_kept(), row.outside_question) {
        (0, ..) => "withheld",
        (_, true, _) => "kept",
        (_, false, true) => "limit",
        (_, false, false) => "**broken**",
    };
    let share = if offered == 0 { "–".into() } else { percent(hits, offered) };
    format!(
        "| {} | {} | {} | {share} | {} | {word} |\n",
        row.scenario,
        row.size,
        percent(offered, replicates),
        percent(hits_if_always_offered, replicates),
    )
}
