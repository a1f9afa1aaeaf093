//! `dapo figure`: what goes into a paper, and that its numbers are the report's.

use crate::binary::{line_in, succeeded};
use crate::repository;
use crate::run_fixture;
use dapo::base::files;
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Draws a figure of `sums`, a link to the study sums-1, in a folder of its own.
fn drawn(line: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    symlink(repository::root().join("reports/sums-1"), folder.path().join("sums")).unwrap();
    succeeded(line_in(folder.path(), &format!("figure sums {line}")));
    folder
}

/// Rows without the header.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let mut table = csv::Reader::from_path(path).unwrap();
    table.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect()
}

fn numbers(texts: &[String]) -> Vec<f64> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn a_forest_has_the_differences_of_report_json() {
    let folder = drawn("--forest --out f.svg");
    let report: Value = files::read_json(&folder.path().join("sums/report.json")).unwrap();
    let families = report["analysis"]["families"].as_array().unwrap();
    let declared: Vec<&Value> =
        families[..2].iter().flat_map(|family| family["comparisons"].as_array().unwrap()).collect();
    let rows = rows(&folder.path().join("f.csv"));
    assert_eq!(rows.len(), declared.len());
    for (row, comparison) in rows.iter().zip(declared) {
        let result = &comparison["result"];
        let interval = &result["interval"];
        let expected = [&result["difference"], &interval["low"], &interval["high"]];
        let expected = expected.map(|number| 100.0 * number.as_f64().unwrap());
        assert_eq!(numbers(&row[3..6]), expected, "{row:?}");
        assert_eq!(row[6], comparison["word"].as_str().unwrap());
    }
}

#[test]
fn curves_of_a_run_are_those_of_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::finished(&folder.path().join("run"));
    dapo::report::run::write(&run).unwrap();
    succeeded(line_in(folder.path(), "figure run --curves --out c.svg"));
    let report: Value = files::read_json(&run.path("report.json")).unwrap();
    let rows = rows(&folder.path().join("c.csv"));
    let drawn: Vec<Vec<f64>> = rows.iter().map(|row| numbers(&row[1..3])).collect();
    let is_dev = |result: &&Value| result["set"] == "dev";
    let dev = report["evaluations"].as_array().unwrap().iter().find(is_dev).unwrap();
    let point = |at: &Value| vec![at[0].as_f64().unwrap(), 100.0 * at[1].as_f64().unwrap()];
    let history: Vec<_> = dev["history"].as_array().unwrap().iter().map(point).collect();
    assert_eq!(drawn, history);
}

#[test]
fn a_picture_has_its_width_its_font_and_no_style_from_elsewhere() {
    let draw = |options: &str, name: &str| {
        let folder = drawn(&format!("--curves {options} --out {name}"));
        files::read(&folder.path().join(name)).unwrap()
    };
    let svg = String::from_utf8(draw("--x tokens --arms dapo,grpo", "c.svg")).unwrap();
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{svg}");
    assert!(svg.contains("width=\"234pt\"") && svg.contains("font-family=\"Ubuntu, "), "{svg}");
    assert!(!svg.contains("var(") && !svg.contains("NaN"), "{svg}");
    assert!(svg.contains(">generated tokens<") && svg.contains(">avg@k on signed-sums, %<"));
    // Colour, dashes and marker: lines differ in each.
    assert!(svg.contains("class=\"line c0 d0\"") && svg.contains("class=\"line c1 d1\""), "{svg}");
    let pdf = draw("--width 85mm", "c.PDF");
    let text = String::from_utf8_lossy(&pdf);
    assert!(text.starts_with("%PDF-") && text.contains("/FontFile2") && text.contains("Ubuntu"));
    assert!(text.contains("/MediaBox [0 0 240.9"), "85 mm are 240.94 points");
    let png = draw("--width 2in", "c.png");
    let width = u32::from_be_bytes(png[16..20].try_into().unwrap());
    assert_eq!((&png[1..4], width), (b"PNG".as_slice(), 600));
}

#[test]
fn a_figure_names_its_measure() {
    let folder = drawn("--forest --width 2in --out f.svg");
    let read = |name: &str| files::read_text(&folder.path().join(name)).unwrap();
    let svg = read("f.svg");
    let measure = "difference in avg@k on signed-sums, mean of the evaluations from 50 % of the equal \
                   generated tokens on";
    assert!(svg.contains(&format!("<title>{measure}</title>")), "{svg}");
    assert!(!svg.contains('…'), "no name is cut: {svg}");
    assert!(!svg.contains("paint-order"), "other programs draw a white edge over the text");
    let row = rows(&folder.path().join("f.csv")).remove(0);
    assert_eq!((row[0].as_str(), format!("difference in {}", row[8]).as_str()), (measure, measure));
    symlink(repository::root().join("reports/study-1"), folder.path().join("two")).unwrap();
    succeeded(line_in(folder.path(), "figure two --forest --out two.svg"));
    let rows = rows(&folder.path().join("two.csv"));
    assert!(rows.iter().all(|row| row[0] == "difference" && row[2].ends_with(&row[8])), "{rows:?}");
}

#[test]
fn each_named_arm_is_drawn_although_its_runs_are_anothers_and_a_link_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    symlink(repository::root().join("reports/study-1"), at("study")).unwrap();
    symlink("kept.svg", at("c.svg")).unwrap();
    let arms = "ladder/dynamic-sampling,leave-one-out/dapo";
    let line = format!("figure study --curves --arms {arms} --out c.svg");
    succeeded(line_in(folder.path(), &line));
    let rows = rows(&at("c.csv"));
    let drawn: BTreeSet<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    // A sign before text is no formula in a table.
    assert_eq!(Vec::from_iter(drawn), ["'+ Dynamic Sampling (DAPO)", "DAPO"]);
    assert!(
        at("c.svg").is_symlink() && files::read_text(&at("kept.svg")).unwrap().starts_with("<svg")
    );
}
