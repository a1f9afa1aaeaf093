//! Published numbers with provenance: the paper's tables and curves, later numbers of its authors,
//! and measurements of others. `golden/paper/README.md` describes the files.

use serde::Deserialize;
use std::sync::LazyLock;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedTable {
    pub id: String,
    pub title: String,
    pub source: String,
    pub benchmark: String,
    /// The statistic, such as `avg@32`.
    pub metric: String,
    pub unit: String,
    pub x_unit: Option<String>,
    pub uncertainty: String,
    pub remark: String,
    pub rows: Vec<PublishedRow>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedRow {
    pub label: String,
    pub value: f64,
    /// The technique that this row adds to the one above.
    pub technique: Option<String>,
    /// What the source prints after ±, in the table's unit.
    pub uncertainty: Option<f64>,
    pub x: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedCurve {
    pub figure: String,
    pub label: String,
    pub page: u64,
    /// Always `updates`: optimiser steps.
    pub x_unit: String,
    pub y_label: String,
    /// `percent`, `share`, `nats`, `tokens`, `reward` or `probability`.
    pub y_unit: String,
    pub uncertainty: String,
    pub remark: String,
    /// (x, y), x rising; straight lines in between.
    pub points: Vec<(f64, f64)>,
}

impl PublishedCurve {
    /// Points with shares in percent.
    pub fn in_print(&self) -> Vec<(f64, f64)> {
        let scale = if self.y_unit == "share" { 100.0 } else { 1.0 };
        self.points.iter().map(|(x, y)| (*x, scale * y)).collect()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables {
    tables: Vec<PublishedTable>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedCurves {
    source: String,
    extraction_sha256: String,
    curves: Vec<PublishedCurve>,
}

// Tests parse both files, so these never panic.
static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../golden/paper/tables.json"))
        .expect("golden/paper/tables.json holds the published tables")
});
static CURVES: LazyLock<PublishedCurves> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../golden/paper/curves.json"))
        .expect("golden/paper/curves.json holds the published curves")
});

/// Table 1 of the paper: from naive GRPO to DAPO.
pub fn table_1() -> &'static PublishedTable {
    table("table-1")
}

pub fn table(id: &str) -> &'static PublishedTable {
    let table = tables().iter().find(|table| table.id == id);
    table.unwrap_or_else(|| panic!("golden/paper/tables.json has no table `{id}`"))
}

pub fn tables() -> &'static [PublishedTable] {
    &TABLES.tables
}

pub fn figure(name: &str) -> Vec<&'static PublishedCurve> {
    CURVES.curves.iter().filter(|curve| curve.figure == name).collect()
}

pub fn curves_source() -> &'static str {
    &CURVES.source
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
        let techniques: Vec<&str> =
            table_1().rows.iter().filter_map(|row| row.technique.as_deref()).collect();
        let expected = "overlong-filtering clip-higher soft-overlong-punishment token-level-loss \
                        dynamic-sampling";
        assert_eq!(techniques.join(" "), expected);
    }

    #[test]
    fn the_authors_reruns_contradict_table_1_on_dynamic_sampling() {
        let values: Vec<f64> = table("authors-reruns").rows.iter().map(|row| row.value).collect();
        assert_eq!(values, [52.0, 50.0, 44.0]);
    }

    #[test]
    fn every_published_number_has_its_source_unit_and_uncertainty() {
        let value = |id: &str, label: &str| {
            let row = table(id).rows.iter().find(|row| row.label == label).unwrap();
            (row.value, row.uncertainty)
        };
        assert_eq!(value("readme", "DAPO"), (50.0, None));
        let early = "early version, without Token-level Loss and Dynamic Sampling";
        assert_eq!(value("readme", early), (44.0, None));
        assert_eq!(value("table-1", "DeepSeek-R1-Zero-Qwen-32B"), (47.0, None));
        assert_eq!(value("independent-evaluation", "AIME 2024"), (43.0, Some(4.0)));
        let marker = &table("figure-1-marker").rows[0];
        assert_eq!((marker.value, marker.x), (47.0, Some(10_000.0)));
        assert!((table("figure-6-line").rows[0].value - 42.9).abs() < 1e-12);
        for table in tables() {
            for text in [&table.source, &table.unit, &table.uncertainty, &table.remark] {
                assert!(!text.is_empty(), "{}", table.id);
            }
            assert_eq!(table.x_unit.is_some(), table.rows.iter().any(|row| row.x.is_some()));
        }
    }

    #[test]
    fn plotted_aime_averages_lie_on_a_grid_of_one_480th() {
        let mut points = 0;
        let figures = [("1", "avg@32", 100.0), ("2a", "", 1.0), ("5a", "", 1.0), ("6", "", 1.0)];
        for (name, label, scale) in figures {
            for curve in figure(name).iter().filter(|it| label.is_empty() || it.label == label) {
                assert!(curve.remark.contains("1/480"), "{name}");
                for (_, y) in &curve.points {
                    let steps = y / scale * 480.0;
                    assert!((steps - steps.round()).abs() < 0.02, "{name}: {y}");
                    points += 1;
                }
            }
        }
        assert_eq!(points, 393);
    }

    #[test]
    fn every_plotted_curve_of_the_paper_is_there() {
        let points = |of: &[PublishedCurve]| of.iter().map(|curve| curve.points.len()).collect();
        let figures = CURVES.curves.chunk_by(|one, next| one.figure == next.figure);
        let figures: Vec<(&str, Vec<usize>)> =
            figures.map(|of| (of[0].figure.as_str(), points(of))).collect();
        let expected = [
            ("1", vec![66, 67, 61]),
            ("2a", vec![37, 29]),
            ("2b", vec![182, 104]),
            ("3a", vec![185]),
            ("3b", vec![550]),
            ("4a", vec![531, 318]),
            ("4b", vec![539, 316]),
            ("5a", vec![66, 54]),
            ("5b", vec![230, 105]),
            ("6", vec![35, 106]),
            ("7a", vec![67]),
            ("7b", vec![67]),
            ("7c", vec![67]),
            ("7d", vec![67]),
        ];
        assert_eq!(figures, expected);
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
        assert_eq!(CURVES.extraction_sha256.len(), 64);
    }
}
