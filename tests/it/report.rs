//! `dapo report`: what a reader sees, and what a folder that is incomplete, tampered with or
//! hostile leads to.

use crate::binary::{dapo, line_in, says, succeeded};
use crate::repository;
use crate::run_fixture::{self, HOSTILE};
use crate::transcript::play;
use dapo::base::files;
use dapo::records::{Ending, Outcome, RunFolder, Session, ending, tables};
use dapo::report::{run, text};
use dapo::statistics::Uncertainty;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// HTML, Markdown and JSON.
fn written(run: &RunFolder) -> [String; 3] {
    run::write(run).unwrap();
    ["report.html", "report.md", "report.json"]
        .map(|name| files::read_text(&run.path(name)).unwrap())
}

#[test]
fn a_finished_run_reads_as_this_markdown() {
    let (_scratch, run) = run_fixture::temporary();
    // Digests depend on the version of the parquet writer.
    insta::with_settings!({ filters => vec![
        (r"\b[0-9a-f]{64}\b", "[sha256]"),
        (r"\b(arm|run) [0-9a-f]{12}\b", "$1 [digest]"),
    ]}, { insta::assert_snapshot!(written(&run)[1]); });
}

#[test]
fn the_page_is_well_formed_and_loads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for run in [
        run_fixture::finished(&folder.path().join("finished")),
        run_fixture::started(&folder.path().join("started")),
    ] {
        let [page, ..] = written(&run);
        assert_well_formed(&page);
        assert!(page.contains("default-src 'none'"));
    }
}

/// A page that loads nothing, whose tables have captions, and whose anchors are unique.
pub fn assert_well_formed(page: &str) {
    assert_balanced(page);
    for loading in ["src=", "href=\"http"] {
        assert!(!tags(page).any(|tag| tag.contains(loading)), "{loading}");
    }
    for loading in ["<script", "<link", "<iframe", "<img", "@import", "url("] {
        assert!(!page.contains(loading), "{loading}");
    }
    assert_eq!(page.matches("<table>").count(), page.matches("<caption>").count());
    let ids = page.split(" id=\"").skip(1).map(|rest| rest.split('"').next());
    assert_eq!(ids.clone().collect::<BTreeSet<_>>().len(), ids.count(), "anchors are unique");
    assert!(!page.contains("NaN"), "a number that does not exist is not drawn");
}

/// Every tag of a page, without the angle brackets.
fn tags(page: &str) -> impl Iterator<Item = &str> {
    page.split('<').skip(1).map(|rest| rest.split('>').next().unwrap())
}

fn assert_balanced(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in tags(page) {
        let name = tag.split([' ', '\n', '/']).find(|part| !part.is_empty()).unwrap();
        let is_void = ["!DOCTYPE", "meta", "br", "hr"].contains(&name);
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "closed out of order in <{tag}>");
        } else if !is_void && !tag.ends_with('/') {
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "not a tag: <{tag}>");
            open.push(name);
        }
    }
    assert_eq!(open, Vec::<&str>::new(), "left open");
}

#[test]
fn hostile_text_is_shown_and_never_obeyed() {
    let (_scratch, run) = run_fixture::temporary();
    // The fixture is hostile where the assertions look.
    let report = run::build(&run).unwrap();
    assert_eq!(report.environment["hostile"], text::visible(HOSTILE));
    assert!(report.samples.iter().any(|sample| sample.response.contains("<script>alert(1)")));
    let [page, document, json] = written(&run);
    assert!(json.contains("\\u{1b}[2J"));
    assert_shown_and_never_obeyed(&page, &document, &json);
}

/// Texts that have [`HOSTILE`] show it, and nothing of it acts in them.
pub fn assert_shown_and_never_obeyed(page: &str, document: &str, json: &str) {
    for (name, text) in [("html", page), ("md", document), ("json", json)] {
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{name}");
        assert!(!text.contains('\u{202e}'), "{name}");
        let is_shown = text.contains("\\u{1b}[2J") || name == "json" && text.contains("\\u001b[2J");
        assert!(is_shown, "{name} shows it");
    }
    assert!(page.contains("&#60;script&#62;alert(1)") || page.contains("&lt;script&gt;alert(1)"));
    for acting in ["<script", "<img", "</pre><", "href=\"http", "onerror=y>"] {
        assert!(!page.contains(acting), "{acting}");
    }
    // Inside a fence Markdown is inert; outside of one, every mark is escaped.
    let outside: String = document.split("\n```").step_by(2).collect();
    let outside = outside.replace("\\]", "");
    for acting in ["<script", "](http", "http://"] {
        assert!(!outside.contains(acting), "{acting}");
    }
    assert!(outside.contains("&lt;script&gt;"));
}

#[test]
fn json_and_both_pages_show_the_same_numbers() {
    let (_scratch, run) = run_fixture::temporary();
    let [page, document, json] = written(&run);
    let json: Value = serde_json::from_str(&json).unwrap();
    let report = run::build(&run).unwrap();
    assert_eq!(json, serde_json::to_value(&report).unwrap());
    for result in json["evaluations"].as_array().unwrap() {
        for policy in ["base", "last"] {
            let avg = &result[policy]["avg_at_k"];
            let new: Uncertainty = serde_json::from_value(avg["new_problems"].clone()).unwrap();
            let interval = text::uncertainty(&new);
            let value = text::points(avg["value"].as_f64().unwrap());
            assert!(page.contains(&format!("<span>{value}</span>")), "{value}");
            assert!(page.contains(&interval) && document.contains(&interval), "{interval}");
            assert!(document.contains(&format!("**{value}**")), "{value}");
        }
    }
    assert_eq!(json["counts"]["counters"]["updates"], 160);
    assert!(document.contains("| **updates** | 160 |"));
    assert!(document.contains(report.headline.as_str().split('[').next().unwrap()));
    assert_eq!(written(&run), written(&run), "the same folder gives the same report");
}

#[test]
fn an_unfinished_run_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(folder.path());
    let report = run::build(&run).unwrap();
    assert_eq!(report.status.state, "unfinished");
    assert_eq!(report.headline, "No evaluation is recorded yet: this run has no result.");
    let [page, ..] = written(&run);
    assert!(page.contains("class=\"nothing\"") && page.contains(">not recorded<"));

    run_fixture::evaluate(&run, "dev", 0, 8, 4);
    (1..=3).for_each(|step| run_fixture::record_step(&run, step));
    let report = run::build(&run).unwrap();
    assert!(report.status.sentence.contains("3 of 40 rollout steps (12 updates)"));
    assert!(report.headline.contains("for the base policy"), "{}", report.headline);
    assert!(written(&run)[1].contains("a snapshot, not a result"));
}

#[test]
fn a_resumed_run_says_after_which_steps_and_what_differed() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(folder.path());
    let differed = [("cpu".to_owned(), ["A".to_owned(), "B".to_owned()])];
    for (from_step, changed, words) in [
        (0, BTreeMap::new(), ["made in one session", ""]),
        (5, BTreeMap::new(), ["resumed after rollout step 5, each time on the machine", ""]),
        (10, differed.into(), ["rollout step 5, 10. What differed", "cpu: A, then B"]),
    ] {
        let session = Session { from_step, changed, started_ms: None, ended_ms: None };
        files::append_line(&run.path("sessions.jsonl"), &session).unwrap();
        let [_, text, _] = written(&run);
        assert!(words.iter().all(|words| text.contains(words)), "{words:?}: {text}");
    }
}

#[test]
fn a_run_that_ended_early_says_how() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(folder.path());
    run_fixture::record_step(&run, 1);
    let counters = run::build(&run).unwrap().counts.counters;
    let saturated = "no group of rollout step 2 had a useful gradient".to_owned();
    for (ending, reason, state, headline, words) in [
        (
            Ending::Saturated,
            saturated,
            "saturated",
            "",
            "Saturated: no group of rollout step 2 had both right and wrong",
        ),
        (
            Ending::Stalled,
            ending::sentence(Ending::Stalled, 2, None),
            "stalled",
            "The run stalled in rollout step 2.",
            "Stalled: every response of rollout step 2 was wrong",
        ),
    ] {
        let digests = BTreeMap::new();
        let outcome = Outcome { ending, not_finite: None, reason, counters, digests };
        files::write_json(&run.path("outcome.json"), &outcome).unwrap();
        let report = run::build(&run).unwrap();
        assert_eq!(report.status.state, state);
        assert!(report.headline.starts_with(headline), "{}", report.headline);
        assert!(written(&run)[1].contains(words), "{words}");
    }
}

#[test]
fn naive_grpo_is_named_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(folder.path());
    let mut experiment = serde_json::to_value(run_fixture::experiment()).unwrap();
    experiment["dapo"]["clip"]["high"] = json!(0.2);
    experiment["dapo"]["aggregation"] = json!("response-mean");
    experiment["dapo"]["dynamic_sampling"] = json!({ "kind": "none" });
    experiment["dapo"]["overlong"]["punishment"] = json!({ "kind": "none" });
    files::write_json(&run.path("experiment.json"), &experiment).unwrap();
    assert!(run::build(&run).unwrap().techniques.iter().all(|technique| !technique.on));
    assert!(written(&run)[1].contains("this is naive GRPO"));
}

#[test]
fn a_changed_outcome_or_digest_is_reported_and_not_hidden() {
    let (_scratch, run) = run_fixture::temporary();
    assert!(run::build(&run).unwrap().damage.is_empty());

    let path = run.outcomes("mini-aime", 40);
    let mut rows = tables::read_outcomes(&path).unwrap();
    rows.iter_mut().find(|row| !row.is_correct).unwrap().is_correct = true;
    tables::write_outcomes(&path, &rows).unwrap();
    let damage = run::build(&run).unwrap().damage;
    let [changed] = &damage[..] else { panic!("{damage:?}") };
    assert!(changed.starts_with("evaluations/mini-aime-step-000040.parquet: its SHA-256 is "));
    assert_eq!(written(&run)[0].matches("<p class=\"alert\">").count(), 1);
    let words = format!("changed since the run ended: {changed}");
    says(line_in(run.root(), "report ."), 0, &[&words]);
}

#[test]
fn the_command_prints_a_summary_and_where_the_files_are() {
    let (folder, run) = run_fixture::temporary();
    let root = folder.path().display().to_string();
    let (stdout, _) = succeeded(dapo(&["report", &root]));
    assert!(!stdout.chars().any(|c| c.is_control() && c != '\n'), "no colour, no escapes");
    insta::assert_snapshot!(stdout.replace(&root, "[run]"));
    for name in ["report.html", "report.md", "report.json"] {
        assert!(run.path(name).exists());
    }
}

/// Relative luminance of `#rrggbb` (WCAG 2.2).
fn luminance(colour: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
}

fn contrast(one: &str, other: &str) -> f64 {
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// The colours of a style sheet: the first rule of each kind that states them.
fn colours(css: &str) -> BTreeMap<&str, &str> {
    let declared = css.split(['{', '}', ';']).filter_map(|rule| rule.split_once(':'));
    let named = declared
        .filter_map(|(name, colour)| Some((name.trim().strip_prefix("--")?, colour.trim())));
    let is_colour = |colour: &str| colour.len() == 7 && colour.starts_with('#');
    // Of two with one name the last stays.
    named.filter(|(_, colour)| is_colour(colour)).collect::<Vec<_>>().into_iter().rev().collect()
}

#[test]
fn text_has_the_contrast_of_wcag_aa_and_lines_that_of_graphics() {
    let sheet = repository::root().join("src/report/templates/page.css");
    let sheet = files::read_text(&sheet).unwrap();
    // Print is black on white.
    let screen = sheet.split("@media print").next().unwrap();
    let (light, dark) = screen.split_once("prefers-color-scheme: dark").unwrap();
    let [light, dark] = [light, dark].map(colours);
    let mut shown_dark = light.clone();
    shown_dark.extend(dark);
    for colours in [light, shown_dark] {
        let has = |name: &str, least: f64| {
            let grounds = ["paper", "wash"];
            let contrasts = grounds.map(|ground| contrast(colours[name], colours[ground]));
            assert!(contrasts.iter().all(|contrast| *contrast >= least), "{name}: {contrasts:?}");
        };
        for name in ["ink", "soft", "faint", "good", "bad", "warn"] {
            has(name, 4.5);
        }
        let lines = colours.keys().filter(|name| name.starts_with('c') && name.len() == 2);
        assert_eq!(lines.clone().count(), 9);
        lines.for_each(|name| has(name, 3.0));
    }
}

#[test]
fn a_folder_of_runs_and_studies_is_one_page_with_links() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    run::write(&run_fixture::finished(&root.join("a #1"))).unwrap();
    run_fixture::started(&root.join("b"));
    let broken = run_fixture::finished(&root.join("c"));
    files::write_atomic(&broken.path("metrics.jsonl"), b"{\n").unwrap();
    files::create_folder(&root.join("study/grids")).unwrap();
    play(root, include_str!("report/folder.txt"));
}

#[test]
fn updates_that_were_left_out_stand_before_the_result() {
    for (skipped, words) in [
        (0.0, "On dev, avg@4"),
        (1.0, "2 of 8 updates were left out because their loss or gradient was not finite. On dev"),
        (
            4.0,
            "8 of 8 updates were left out because their loss or gradient was not finite; nothing was \
             learned. On",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let run = run_fixture::started(folder.path());
        (1..=2).for_each(|step| run_fixture::record_step(&run, step));
        let mut metrics = run.metrics().unwrap();
        for step in &mut metrics {
            step.metrics.insert("optimizer/skipped_updates".to_owned(), skipped);
        }
        files::write_lines(&run.path("metrics.jsonl"), &metrics).unwrap();
        for step in [0, 2] {
            run_fixture::evaluate(&run, "dev", step, 64, 4);
        }
        let headline = run::build(&run).unwrap().headline;
        assert!(headline.starts_with(words), "{headline}");
    }
}

#[test]
fn a_difference_without_an_interval_has_no_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(folder.path());
    for step in [0, 40] {
        run_fixture::evaluate(&run, "dev", step, 30, 1);
    }
    let headline = run::build(&run).unwrap().headline;
    assert!(headline.starts_with("On dev, avg@1 went from "), "{headline}");
    assert!(headline.contains("no interval for these 30 problems (one response"), "{headline}");
}
