//! `dapo report`: what a reader sees, and what a folder that is incomplete, tampered with or
//! hostile leads to.

use crate::binary::{dapo, line_in, says, succeeded};
use crate::run_fixture::{self, HOSTILE};
use dapo::base::files;
use dapo::records::{Ending, Outcome, RunFolder, Session, ending};
use dapo::report::{run, text};
use dapo::statistics::Uncertainty;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn html(run: &RunFolder) -> String {
    files::read_text(&run.path("report.html")).unwrap()
}

fn markdown(run: &RunFolder) -> String {
    files::read_text(&run.path("report.md")).unwrap()
}

#[test]
fn a_finished_run_reads_as_this_markdown() {
    let (_scratch, run) = run_fixture::temporary();
    run::write(&run).unwrap();
    // Digests depend on the version of the parquet writer.
    insta::with_settings!({ filters => vec![
        (r"\b[0-9a-f]{64}\b", "[sha256]"),
        (r"\b(arm|run) [0-9a-f]{12}\b", "$1 [digest]"),
    ]}, { insta::assert_snapshot!(markdown(&run)); });
}

#[test]
fn the_page_is_well_formed_and_loads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for run in [
        run_fixture::finished(&folder.path().join("finished")),
        run_fixture::started(&folder.path().join("started")),
    ] {
        run::write(&run).unwrap();
        let page = html(&run);
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
    let ids = page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    let ids: Vec<&str> = ids.collect();
    let unique: BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len(), "anchors are unique");
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
    run::write(&run).unwrap();
    let (page, document) = (html(&run), markdown(&run));
    let json = files::read_text(&run.path("report.json")).unwrap();
    for (name, text) in [("html", &page), ("md", &document), ("json", &json)] {
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{name}");
        assert!(!text.contains('\u{202e}'), "{name}");
        assert!(text.contains("\\u{1b}[2J") || text.contains("\\\\u{1b}[2J"), "{name} shows it");
    }
    assert!(page.contains("&#60;script&#62;alert(1)") || page.contains("&lt;script&gt;alert(1)"));
    assert!(!page.contains("<script") && !page.contains("<img") && !page.contains("</pre><"));
    // Inside a fence Markdown is inert; outside of one, every mark is escaped.
    let outside: String = document.split("\n```").step_by(2).collect();
    let outside = outside.replace("\\]", "");
    assert!(!["<script", "](http", "http://"].iter().any(|it| outside.contains(it)));
    assert!(outside.contains("&lt;script&gt;"));
}

#[test]
fn json_and_both_pages_show_the_same_numbers() {
    let (_scratch, run) = run_fixture::temporary();
    let report = run::write(&run).unwrap();
    let json: serde_json::Value = files::read_json(&run.path("report.json")).unwrap();
    assert_eq!(json, serde_json::to_value(&report).unwrap());
    let (page, document) = (html(&run), markdown(&run));
    for result in json["evaluations"].as_array().unwrap() {
        for policy in ["base", "last"] {
            let avg = &result[policy]["avg_at_k"];
            let new = &avg["new_problems"];
            let new: Uncertainty = serde_json::from_value(new.clone()).unwrap();
            let interval = text::uncertainty(&new);
            let value = text::points(avg["value"].as_f64().unwrap());
            assert!(page.contains(&format!("<span>{value}</span>")), "{value}");
            assert!(page.contains(&interval) && document.contains(&interval), "{interval}");
            assert!(document.contains(&format!("**{value}**")), "{value}");
        }
    }
    let updates = json["counts"]["counters"]["updates"].as_u64().unwrap();
    assert_eq!(updates, 160);
    assert!(document.contains("| **updates** | 160 |"));
    assert!(document.contains(report.headline.as_str().split('[').next().unwrap()));
}

#[test]
fn the_same_folder_gives_the_same_report() {
    let (_scratch, run) = run_fixture::temporary();
    let written = || {
        run::write(&run).unwrap();
        ["report.html", "report.md", "report.json"]
            .map(|name| files::read(&run.path(name)).unwrap())
    };
    assert_eq!(written(), written());
}

#[test]
fn an_unfinished_run_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(folder.path());
    let report = run::write(&run).unwrap();
    assert_eq!(report.status.state, "unfinished");
    assert_eq!(report.headline, "No evaluation is recorded yet: this run has no result.");
    assert!(html(&run).contains("class=\"nothing\"") && html(&run).contains(">not recorded<"));

    run_fixture::evaluate(&run, "dev", 0, 8, 4);
    (1..=3).for_each(|step| run_fixture::record_step(&run, step));
    let report = run::write(&run).unwrap();
    assert!(report.status.sentence.contains("3 of 40 rollout steps (12 updates)"));
    assert!(report.headline.contains("for the base policy"), "{}", report.headline);
    assert!(markdown(&run).contains("a snapshot, not a result"));
}

#[test]
fn a_resumed_run_says_after_which_steps_and_what_differed() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(folder.path());
    let begin = |from_step: u64, changed: BTreeMap<String, [String; 2]>| {
        let session = Session { from_step, changed, started_ms: None, ended_ms: None };
        files::append_line(&run.path("sessions.jsonl"), &session).unwrap();
        run::write(&run).unwrap();
        markdown(&run)
    };
    assert!(begin(0, BTreeMap::new()).contains("made in one session"));
    let text = begin(5, BTreeMap::new());
    assert!(text.contains("resumed after rollout step 5, each time on the machine"), "{text}");
    let text = begin(10, [("cpu".to_string(), ["A".to_string(), "B".to_string()])].into());
    assert!(text.contains("rollout step 5, 10. What differed") && text.contains("cpu: A, then B"));
}

#[test]
fn a_run_that_ended_early_says_how() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(folder.path());
    run_fixture::record_step(&run, 1);
    let outcome = Outcome {
        ending: Ending::Saturated,
        not_finite: None,
        reason: "no group of rollout step 2 had a useful gradient".to_owned(),
        counters: run::build(&run).unwrap().counts.counters,
        digests: BTreeMap::new(),
    };
    files::write_json(&run.path("outcome.json"), &outcome).unwrap();
    let report = run::write(&run).unwrap();
    assert_eq!(report.status.state, "saturated");
    let saturated = "Saturated: no group of rollout step 2 had both right and wrong";
    assert!(markdown(&run).contains(saturated));
    let stalled = Outcome {
        ending: Ending::Stalled,
        reason: ending::sentence(Ending::Stalled, 2, None),
        ..outcome
    };
    files::write_json(&run.path("outcome.json"), &stalled).unwrap();
    let report = run::write(&run).unwrap();
    assert_eq!(report.status.state, "stalled");
    let headline = report.headline;
    assert!(headline.starts_with("Stalled: every response was wrong."), "{headline}");
    assert!(markdown(&run).contains("Stalled: every response of rollout step 2 was wrong"));
}

#[test]
fn naive_grpo_is_named_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(folder.path());
    let mut experiment = serde_json::to_value(run_fixture::experiment()).unwrap();
    experiment["dapo"]["clip"]["high"] = 0.2.into();
    experiment["dapo"]["aggregation"] = "response-mean".into();
    experiment["dapo"]["dynamic_sampling"] = serde_json::json!({ "kind": "none" });
    experiment["dapo"]["overlong"]["punishment"] = serde_json::json!({ "kind": "none" });
    files::write_json(&run.path("experiment.json"), &experiment).unwrap();
    let report = run::write(&run).unwrap();
    assert!(report.techniques.iter().all(|technique| !technique.on));
    assert!(markdown(&run).contains("this is naive GRPO"));
}

#[test]
fn a_changed_outcome_or_digest_is_reported_and_not_hidden() {
    let (_scratch, run) = run_fixture::temporary();
    assert!(run::build(&run).unwrap().checks.iter().all(|check| check.held));

    let path = run.outcomes("mini-aime", 40);
    let mut rows = dapo::records::tables::read_outcomes(&path).unwrap();
    let flipped = rows.iter_mut().find(|row| !row.is_correct).unwrap();
    flipped.is_correct = true;
    dapo::records::tables::write_outcomes(&path, &rows).unwrap();
    let report = run::write(&run).unwrap();
    let failed = report.checks.iter().filter(|check| !check.held);
    let failed: Vec<&str> = failed.map(|check| check.detail.as_str()).collect();
    assert_eq!(
        failed,
        [
            "1 of 14 files, and the checkpoints that are there: evaluations/mini-aime-step-000040.parquet differs",
            "1 of 9 tables: mini-aime at step 40 differs",
            "1 of 9 evaluations computed again: mini-aime at step 40 does not follow from its outcomes",
        ]
    );
    assert_eq!(html(&run).matches("<p class=\"alert\">").count(), 3);
    says(line_in(run.root(), "report ."), 0, &["not so: "]);
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

#[test]
fn help_shows_an_example_and_the_exit_codes() {
    says(dapo(&["report", "--help"]), 0, &["dapo report runs/", "Exit codes"]);
}

#[test]
fn the_fixture_is_hostile_where_the_tests_look() {
    // Otherwise the test above would pass on harmless text.
    let (_scratch, run) = run_fixture::temporary();
    let report = run::build(&run).unwrap();
    let shown = text::visible(HOSTILE);
    assert_eq!(report.environment["hostile"], shown);
    assert!(report.samples.iter().any(|sample| sample.response.contains("<script>alert(1)")));
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

/// The colours of a style sheet, light and dark: the first rule of each kind that states them.
fn palettes(css: &str) -> [BTreeMap<String, String>; 2] {
    let read = |css: &str| -> BTreeMap<String, String> {
        let declared = css.split(['{', '}', ';']).filter_map(|it| it.split_once(':'));
        let colours = declared.filter_map(|(name, value)| {
            let name = name.trim().strip_prefix("--")?;
            let colour = value.trim();
            (colour.len() == 7 && colour.starts_with('#'))
                .then(|| (name.to_owned(), colour.to_owned()))
        });
        let mut found = BTreeMap::new();
        colours.for_each(|(name, colour)| {
            found.entry(name).or_insert(colour);
        });
        found
    };
    // Print is black on white.
    let screen = css.split("@media print").next().unwrap();
    let (light, dark) = screen.split_once("prefers-color-scheme: dark").unwrap();
    [read(light), read(dark)]
}

#[test]
fn text_has_the_contrast_of_wcag_aa_and_lines_that_of_graphics() {
    let sheet = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/templates/page.css");
    let [light, dark] = palettes(&files::read_text(&sheet).unwrap());
    let mut shown_dark = light.clone();
    shown_dark.extend(dark);
    for colours in [light, shown_dark] {
        let against = |name: &str| {
            let colour = &colours[name];
            ["paper", "wash"].map(|ground| contrast(colour, &colours[ground]))
        };
        let is_line = |name: &&String| {
            let line = name.starts_with('c') && name.len() == 2;
            line || ["correct", "truncated", "no-answer"].contains(&name.as_str())
        };
        for name in ["ink", "soft", "faint", "good", "bad", "warn"] {
            assert!(against(name).iter().all(|it| *it >= 4.5), "{name}: {:?}", against(name));
        }
        let lines: Vec<&String> = colours.keys().filter(is_line).collect();
        assert_eq!(lines.len(), 12);
        for name in lines {
            assert!(against(name).iter().all(|it| *it >= 3.0), "{name}: {:?}", against(name));
        }
    }
}

#[test]
fn a_folder_of_runs_and_studies_is_one_page_with_links() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let run = run_fixture::finished(&root.join("a #1"));
    run::write(&run).unwrap();
    run_fixture::started(&root.join("b"));
    let broken = run_fixture::finished(&root.join("c"));
    files::write_atomic(&broken.path("metrics.jsonl"), b"{\n").unwrap();
    files::create_folder(&root.join("study/grids")).unwrap();
    says(line_in(root, "report ."), 0, &["2 runs, 0 studies, 2 that cannot be read", "index.html"]);
    let page = files::read_text(&root.join("index.html")).unwrap();
    assert!(page.contains("href=\"./a%20%231/report.html\""), "{page}");
    for text in ["b (no report)", "unfinished", "metrics.jsonl", "has no grid", "aria-sort"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(
        page.contains("script-src")
            && !files::read_text(&run.path("report.html")).unwrap().contains("script-src")
    );
    // Written again over itself, but not over another's page.
    succeeded(line_in(root, "report ."));
    files::write_atomic(&root.join("index.html"), b"<p>mine</p>").unwrap();
    says(line_in(root, "report ."), 3, &["move it away first"]);
    says(line_in(root, "report . --json"), 2, &["dapo runs FOLDER --json"]);
    let empty = root.join("empty");
    files::create_folder(&empty).unwrap();
    says(line_in(&empty, "report ."), 3, &["is not a run folder"]);
}
