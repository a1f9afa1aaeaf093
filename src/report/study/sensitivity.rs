//! The primary comparisons on other clocks and windows, and without parts of the runs.

use crate::report::page::{Block, Look, Section, Table, TableCell, row};
use crate::report::study::context;
use crate::report::text::{self, Unit};
use crate::report::{Context, axes};
use crate::study::sensitivity::{Change, Sensitivity, SensitivityRow};
use crate::study::{Clock, NoValue};

/// More comparisons are in the appendix.
const MOST_IN_REPORT: usize = 1;

/// For the report, and for the appendix.
pub fn sections(context: &Context) -> [Option<Section>; 2] {
    let all = &context.analysis.sensitivity;
    let [brief, full] = [true, false].map(|is_brief| {
        let tables = all.iter().map(move |it| Block::Table(table(context, it, is_brief)));
        let blocks = [intro(all)].into_iter().chain(tables).collect();
        let section = Section::new("sensitivity", "What does the answer depend on?", blocks);
        (!all.is_empty()).then_some(Section { name: "sensitivity".to_owned(), ..section })
    });
    [brief.filter(|_| all.len() <= MOST_IN_REPORT), full]
}

fn intro(all: &[Sensitivity]) -> Block {
    let is_of_seconds =
        |row: &SensitivityRow| row.change == Change::Clock { clock: Clock::Seconds };
    let seconds = if all.iter().flat_map(|it| &it.rows).any(is_of_seconds) {
        "Seconds are those of rollout steps on the machine that ran them, without evaluations: nobody can check them."
    } else {
        "Records have no seconds of a step."
    };
    Block::text(format!(
        "Looked at afterwards: the first row is the comparison above, and no p here is corrected. A clock\u{2019}s row is the \
         mean from half of the smallest total on, with accuracy drawn as a line between evaluations; windows and the \
         declared endpoint take the plain mean of evaluations, or the last one. Rows that leave runs out keep the budget of all runs. \
         {seconds}"
    ))
}

fn table(context: &Context, of: &Sensitivity, is_brief: bool) -> Table {
    let comparison = context.analysis.comparison(&of.family, &of.id);
    let declared = comparison.map(|it| &it.declared);
    let pair = declared.map_or(String::new(), |it| context.pair(&it.arm, &it.reference));
    let is_detail = |row: &SensitivityRow| {
        use Change::{From, LastEvaluation, WithoutSeed};
        matches!(row.change, From { .. } | LastEvaluation | WithoutSeed { .. })
    };
    let columns = format!(
        "what | difference # | {} # | p, uncorrected # | runs of the arm #",
        context.level()
    );
    let rows = of.rows.iter().filter(|row| !is_brief || !is_detail(row));
    let more = if is_brief { " Windows, and without each seed: in the appendix." } else { "" };
    Table::new(format!("{pair}, in points.{more}"), &columns, rows.map(sensitivity_row))
}

fn sensitivity_row(row: &SensitivityRow) -> Vec<TableCell> {
    let what = words(&row.change);
    let is_declared = row.change == Change::None;
    row![
        if is_declared { Look::Strong.of(what) } else { what.into() },
        TableCell::or(row.difference.map(|it| Unit::Share.signed(it)), why_not(row)),
        context::interval_cell(Unit::Share, row.interval.as_ref(), "–"),
        TableCell::shown(row.p, text::p_value),
        TableCell::count(row.runs as usize)
    ]
}

fn why_not(row: &SensitivityRow) -> &'static str {
    match row.without_value {
        Some(NoValue::OnlyBaseEvaluatedWithin { .. } | NoValue::NeverEvaluatedWithin { .. }) => {
            "not evaluated in between"
        }
        Some(NoValue::NotEvaluatedBetween { .. }) => "no evaluation in the window",
        Some(NoValue::ClockNotRecorded { .. } | NoValue::NoCommonReading { .. }) => "not recorded",
        Some(_) => "a run has no value",
        None if row.fewest == 0 => match row.change {
            Change::CleanBuilds { .. } => {
                "no record is left of a side: all have changed work trees"
            }
            _ => "no run is left of a side",
        },
        None if row.fewest < 2 => "too few runs",
        None => "not computed",
    }
}

fn words(change: &Change) -> String {
    match change {
        Change::None => "as above".to_owned(),
        Change::Clock { clock } => format!("equal {}", clock.words()),
        Change::From { share, clock } => format!(
            "evaluations from {} % of the equal {} on",
            axes::tick_label(100.0 * share),
            clock.words()
        ),
        Change::LastEvaluation => "last evaluation of each run".to_owned(),
        Change::WithoutSeed { seed } => format!("without seed {seed}"),
        Change::CleanBuilds { left_out } => {
            let records = text::counted(*left_out as usize, "record", "records");
            format!("without {records} of work trees with changes")
        }
        Change::WithoutCollapsed { seeds } => {
            format!("without the seeds of collapsed runs ({})", text::joined(seeds, ", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_without_a_record_on_a_side_says_so() {
        let why = |change, fewest| {
            let (difference, interval, p, runs, without_value) = (None, None, None, 4, None);
            let row =
                SensitivityRow { change, difference, interval, p, runs, fewest, without_value };
            why_not(&row)
        };
        let clean = || Change::CleanBuilds { left_out: 16 };
        assert!(why(clean(), 0).ends_with("all have changed work trees"));
        assert_eq!(why(Change::WithoutSeed { seed: 1 }, 0), "no run is left of a side");
        assert_eq!(why(clean(), 1), "too few runs");
    }
}
