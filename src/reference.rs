//! Published numbers, as data with provenance: tables and figure curves of the paper, and the
//! authors' own re-runs. The files and their origin are described in `golden/paper/README.md`.

use serde::Deserialize;
use serde::Serialize;
use std::sync::LazyLock;

/// A published table of results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// `table-1`, `authors-reruns`.
    pub id: String,
    /// The source's own caption.
    pub title: String,
    /// Document, page or commit.
    pub source: String,
    /// What was evaluated on.
    pub benchmark: String,
    /// The statistic, such as `avg@32`.
    pub metric: String,
    /// Unit of every value.
    pub unit: String,
    /// What a reader must know before comparing.
    pub remark: String,
    /// In the source's order.
    pub rows: Vec<Row>,
}

/// One published result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// The source's own label.
    pub label: String,
    /// In the table's unit.
    pub value: f64,
    /// The technique that this row adds to the one above, if it adds one.
    pub technique: Option<String>,
}

/// One curve of a figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// `1`, `2a`, … `7d`.
    pub figure: String,
    /// The legend's text.
    pub label: String,
    /// Page of the paper.
    pub page: u64,
    /// Always `updates`: optimiser steps.
    pub x_unit: String,
    /// The axis' text.
    pub y_label: String,
    /// `percent`, `share`, `nats`, `tokens`, `reward` or `probability`.
    pub y_unit: String,
    /// How exactly a vertex could be read.
    pub uncertainty: String,
    /// What a reader must know before comparing.
    pub remark: String,
    /// (x, y), x rising; straight lines in between.
    pub points: Vec<(f64, f64)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    tables: Vec<Table>,
}

/// Every curve with where it came from.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Curves {
    source: String,
    extraction_sha256: String,
    curves: Vec<Curve>,
}

// Both files are part of the binary and read by the tests: a mistake in them cannot ship.
static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../golden/paper/tables.json"))
        .expect("golden/paper/tables.json holds the published tables")
});
static CURVES: LazyLock<Curves> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../golden/paper/curves.json"))
        .expect("golden/paper/curves.json holds the published curves")
});

/// Table 1 of the paper: the cumulative ladder from naive GRPO to DAPO.
pub fn table_1() -> &'static Table {
    table("table-1")
}

/// What the authors got from the released code later.
pub fn authors_reruns() -> &'static Table {
    table("authors-reruns")
}

fn table(id: &str) -> &'static Table {
    let found = TABLES.tables.iter().find(|table| table.id == id);
    found.unwrap_or_else(|| panic!("golden/paper/tables.json has no table `{id}`"))
}

/// All curves of a figure such as `3b`, in the legend's order; empty for an unknown figure.
pub fn figure(name: &str) -> Vec<&'static Curve> {
    CURVES.curves.iter().filter(|curve| curve.figure == name).collect()
}

/// The document that the curves were taken from.
pub fn curves_source() -> &'static str {
    &CURVES.source
}

/// SHA-256 of the extraction that the curves were converted from.
pub fn curves_extraction_sha256() -> &'static str {
    &CURVES.extraction_sha256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_1_has_the_papers_rows_in_order() {
        let values: Vec<f64> = table_1().rows.iter().map(|row| row.value).collect();
        assert_eq!(values, [47.0, 30.0, 36.0, 38.0, 41.0, 42.0, 50.0]);
        let increments: Vec<f64> = values[1..].windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(increments, [6.0, 2.0, 3.0, 1.0, 8.0]);
        let techniques: Vec<_> =
            table_1().rows.iter().filter_map(|row| row.technique.as_deref()).collect();
        assert_eq!(
            techniques,
            [
                "overlong-filtering",
                "clip-higher",
                "soft-overlong-punishment",
                "token-level-loss",
                "dynamic-sampling"
            ]
        );
    }

    #[test]
    fn the_authors_reruns_contradict_table_1_on_dynamic_sampling() {
        let values: Vec<f64> = authors_reruns().rows.iter().map(|row| row.value).collect();
        assert_eq!(values, [52.0, 50.0, 44.0]);
    }

    #[test]
    fn every_plotted_curve_of_the_paper_is_there() {
        let found: Vec<(&str, usize)> =
            CURVES.curves.iter().map(|curve| (curve.figure.as_str(), curve.points.len())).collect();
        let expected = [
            ("1", 66),
            ("1", 67),
            ("1", 61),
            ("2a", 37),
            ("2a", 29),
            ("2b", 182),
            ("2b", 104),
            ("3a", 185),
            ("3b", 550),
            ("4a", 531),
            ("4a", 318),
            ("4b", 539),
            ("4b", 316),
            ("5a", 66),
            ("5a", 54),
            ("5b", 230),
            ("5b", 105),
            ("6", 35),
            ("6", 106),
            ("7a", 67),
            ("7b", 67),
            ("7c", 67),
            ("7d", 67),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn x_rises_along_every_curve_and_every_value_is_finite() {
        for curve in &CURVES.curves {
            let at = (&curve.figure, &curve.label);
            assert!(curve.points.windows(2).all(|pair| pair[0].0 < pair[1].0), "{at:?}");
            assert!(curve.points.iter().all(|(x, y)| x.is_finite() && y.is_finite()), "{at:?}");
            assert_eq!(curve.x_unit, "updates", "{at:?}");
        }
    }

    #[test]
    fn shares_and_probabilities_lie_in_the_unit_interval() {
        for curve in &CURVES.curves {
            let top = match curve.y_unit.as_str() {
                "share" | "probability" => 1.0,
                "percent" => 100.0,
                "nats" | "tokens" | "reward" => continue,
                unit => panic!("unknown unit {unit}"),
            };
            assert!(curve.points.iter().all(|(_, y)| (0.0..=top).contains(y)), "{}", curve.figure);
        }
    }

    #[test]
    fn known_landmarks_are_where_the_paper_shows_them() {
        let last = |name: &str| figure(name)[0].points.last().copied().unwrap();
        assert_eq!(last("1"), (5280.0, 49.58559));
        let entropy = &figure("2b")[1].points;
        assert!(entropy.last().unwrap().1 < 0.01, "collapse without Clip-Higher");
        assert_eq!(figure("7a")[0].points[0].1.round(), 743.0);
        assert!(figure("9z").is_empty());
        assert!(curves_source().contains("2503.14476"));
        assert_eq!(curves_extraction_sha256().len(), 64);
    }
}
