//! `dapo figure`: what goes into a paper, and that its numbers are the report's.

use crate::binary::{failed, line_in, succeeded};
use crate::repository;
use crate::run_fixture;
use dapo::base::files;
use serde_json::Value;
use std::path::Path;

fn study(name: &str) -> String {
    repository::root().join("reports").join(name).display().to_string()
}

/// Rows without the header.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let mut table = csv::Reader::from_path(path).unwrap();
    table.records().map(|row| row.unwrap().iter().map(str::to_owned).collect()).collect()
}

fn number(text: &str) -> f64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

#[test]
fn a_forest_has_the_differences_of_report_json() {
    let folder = tempfile::tempdir().unwrap();
    succeeded(line_in(folder.path(), &format!("figure {} --forest --out f.svg", study("sums-1"))));
    let report = repository::root().join("reports/sums-1/report.json");
    let report: Value = files::read_json(&report).unwrap();
    let families = report["analysis"]["families"].as_array().unwrap();
    let declared: Vec<&Value> =
        families[..2].iter().flat_map(|family| family["comparisons"].as_array().unwrap()).collect();
    let rows = rows(&folder.path().join("f.csv"));
    assert_eq!(rows.len(), declared.len());
    for (row, comparison) in rows.iter().zip(declared) {
        let result = &comparison["result"];
        let interval = &result["interval"];
        let numbers = [&result["difference"], &interval["low"], &interval["high"]];
        let expected = numbers.map(|number| 100.0 * number.as_f64().unwrap());
        assert_eq!([number(&row[3]), number(&row[4]), number(&row[5])], expected, "{row:?}");
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
    let points: Vec<[f64; 2]> =
        serde_json::from_value(report["figures"][0]["ours"][0]["points"].clone()).unwrap();
    let rows = rows(&folder.path().join("c.csv"));
    let drawn: Vec<[f64; 2]> = rows.iter().map(|row| [number(&row[1]), number(&row[2])]).collect();
    assert_eq!(drawn, points);
}

#[test]
fn a_picture_has_its_width_its_font_and_no_style_from_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let draw = |options: &str| {
        let line = format!("figure {} --curves {options}", study("sums-1"));
        succeeded(line_in(folder.path(), &line));
    };
    draw("--x tokens --arms dapo,grpo --out c.svg");
    let svg = files::read_text(&folder.path().join("c.svg")).unwrap();
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{svg}");
    assert!(svg.contains("width=\"234pt\"") && svg.contains("font-family=\"Ubuntu, "), "{svg}");
    assert!(!svg.contains("var(") && !svg.contains("NaN"), "{svg}");
    assert!(svg.contains(">generated tokens<") && svg.contains(">avg@k on signed-sums, %<"));
    // Colour, dashes and marker: lines differ in each.
    assert!(svg.contains("class=\"line c0 d0\"") && svg.contains("class=\"line c1 d1\""), "{svg}");
    draw("--width 85mm --out c.pdf");
    let pdf = files::read(&folder.path().join("c.pdf")).unwrap();
    let text = String::from_utf8_lossy(&pdf);
    assert!(text.starts_with("%PDF-") && text.contains("/FontFile2") && text.contains("Ubuntu"));
    assert!(text.contains("/MediaBox [0 0 240.9"), "85 mm are 240.94 points");
    draw("--width 2in --out c.png");
    let png = files::read(&folder.path().join("c.png")).unwrap();
    let width = u32::from_be_bytes(png[16..20].try_into().unwrap());
    assert_eq!((&png[1..4], width), (b"PNG".as_slice(), 600));
}

#[test]
fn a_figure_names_its_measure_and_draws_an_arm_as_the_page_does() {
    let folder = tempfile::tempdir().unwrap();
    let sums = study("sums-1");
    let read = |name: &str| files::read_text(&folder.path().join(name)).unwrap();
    succeeded(line_in(folder.path(), &format!("report {sums} --out report")));
    succeeded(line_in(
        folder.path(),
        &format!("figure {sums} --curves --arms dapo,grpo --out c.svg"),
    ));
    let style = |text: &str, label: &str| -> String {
        let (before, _) = text.split_once(label).unwrap_or_else(|| panic!("no {label}: {text}"));
        let (_, line) = before.rsplit_once("class=\"line ").unwrap();
        line.split('"').next().unwrap().to_owned()
    };
    for arm in ["DAPO", "GRPO"] {
        let on_page = style(&read("report/report.html"), &format!("</svg>{arm}<"));
        assert_eq!(style(&read("c.svg"), &format!(">{arm}<")), on_page, "{arm}");
    }
    succeeded(line_in(folder.path(), &format!("figure {sums} --forest --width 2in --out f.svg")));
    let svg = read("f.svg");
    let measure = "difference in avg@k on signed-sums, mean of the evaluations from 50 % of the equal \
                   generated tokens on";
    assert!(svg.contains(&format!("<title>{measure}</title>")), "{svg}");
    assert!(!svg.contains('…'), "no name is cut: {svg}");
    assert_eq!(rows(&folder.path().join("f.csv"))[0][0], measure);
}

#[test]
fn what_cannot_be_drawn_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    run_fixture::finished(&root.join("run"));
    files::create_folder(&root.join("empty")).unwrap();
    files::write_atomic(&root.join("mine.csv"), b"step,loss\n1,2\n").unwrap();
    let sums = study("sums-1");
    for (line, code, reason) in [
        (format!("{sums} --curves --arms dapo,gprpo --out x.pdf"), 3, "did you mean grpo?"),
        (format!("{sums} --forest --arms grpo --out x.pdf"), 3, "is declared"),
        (format!("{sums} --ladder --out x.pdf"), 3, "Table 1"),
        (format!("{sums} --forest --out x.jpeg"), 2, ".pdf, .svg or .png"),
        (format!("{sums} --forest --x tokens --out x.pdf"), 2, "--x is for --curves"),
        (format!("{sums} --ladder --arms dapo --out x.pdf"), 2, "--arms is for"),
        (format!("{sums} --forest --curves --out x.pdf"), 2, "cannot be used with"),
        (format!("{sums} --out x.pdf"), 2, "--curves"),
        (format!("{sums} --forest --out mine.pdf"), 3, "mine.csv is there"),
        ("run --forest --out x.pdf".to_owned(), 2, "a run has --curves alone"),
        ("run --curves --arms dapo --out x.pdf".to_owned(), 2, "a run has --curves alone"),
        ("empty --curves --out x.pdf".to_owned(), 3, "neither a study"),
        ("nowhere --curves --out x.pdf".to_owned(), 3, "neither a study"),
    ] {
        failed(line_in(root, &format!("figure {line}")), code, reason);
    }
    for width in ["0in", "NaNin", "infin", "1e9in", "-3in", "3", "wide"] {
        let line = format!("figure {sums} --forest --width={width} --out x.pdf");
        failed(line_in(root, &line), 2, "--width");
    }
    assert!(!root.join("x.pdf").exists() && !root.join("mine.pdf").exists());
}
