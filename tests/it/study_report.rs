//! `dapo report STUDY`: what a reader sees, and what a study that is small, incomplete or hostile
//! leads to.

use crate::binary::{failed, line_in, succeeded};
use crate::run_fixture::HOSTILE;
use crate::{repository, study_fixture};
use dapo::base::files;
use dapo::experiment::{Grid, RecordsSettings};
use dapo::report::page::{Block, Panel};
use dapo::report::{StudyReport, study};
use dapo::study::{Cell, CellEnding, claims, collection};
use dapo::training::run::inputs;
use dapo::verification::verify::{VerifyVerdict, study as study_verification};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

struct Written {
    report: StudyReport,
    /// Report and appendix.
    html: [String; 2],
    /// Both, one after the other.
    markdown: String,
    json: String,
}

fn written(folder: &Path, grids: &[Grid], cells: &[Cell]) -> Written {
    study_fixture::write(folder, grids, cells);
    let (report, paths) = study::write(folder, None, None).unwrap();
    let [html, more_html, markdown, more_markdown, json, _] =
        paths.map(|path| files::read_text(&path).unwrap());
    Written { report, html: [html, more_html], markdown: markdown + &more_markdown, json }
}

/// Three arms of the published study.
fn small(seeds: &[u64]) -> (Vec<Grid>, Vec<Cell>) {
    study_fixture::published("leave-one-out", 3, seeds)
}

#[test]
fn a_small_study_reads_as_this_markdown() {
    let folder = tempfile::tempdir().unwrap();
    let (grids, mut cells) = small(&[101, 102, 103]);
    // What records can say of a technique: it is off and acted, or they say nothing of it.
    for cell in &mut cells[..3] {
        let masked = cell.metrics.get_mut("effect/overlong_filtering_masked_rollouts").unwrap();
        masked.fill(Some(3.0));
        cell.metrics.retain(|name, _| !name.starts_with("effect/token_level_loss"));
        *cell = cell.clone().sealed();
    }
    let written = written(folder.path(), &grids, &cells);
    // Arms have a hash of every key: a new key in base.toml must not change this file.
    insta::with_settings!({ filters => vec![
        (r"\b[0-9a-f]{64}\b", "[sha256]"),
        (r"\b[0-9a-f]{12}\b", "[digest]"),
    ]}, { insta::assert_snapshot!(written.markdown); });
}

#[test]
fn a_study_has_the_metrics_of_all_rollouts_beside_the_batchs_where_a_cell_has_them() {
    let (grids, mut cells) = small(&[101, 102]);
    let folder = tempfile::tempdir().unwrap();
    let title = "Mean probability of sampled tokens";
    let before = written(&folder.path().join("a"), &grids, &cells).markdown;
    assert!(before.contains(title) && !before.contains("all rollouts"));
    for cell in &mut cells {
        let values = cell.metrics["policy/token_probability_mean"].clone();
        cell.metrics.insert("policy/rollout_token_probability_mean".to_owned(), values);
        cell.experiment.records = Some(RecordsSettings { format: 2 });
        cell.run_key = inputs::run_key(&cell.experiment, &cell.inputs);
    }
    let cells: Vec<Cell> = cells.into_iter().map(Cell::sealed).collect();
    let after = written(&folder.path().join("b"), &grids, &cells).markdown;
    let both = [format!("{title}, all rollouts"), format!("{title}, batch")];
    assert!(both.iter().all(|title| after.contains(title)));
    assert!(!after.contains("Entropy of the policy, "));
}

#[test]
fn forty_cells_render_in_less_than_five_megabytes() {
    let folder = tempfile::tempdir().unwrap();
    let seeds: Vec<u64> = (101..=108).collect();
    let (grids, cells) = study_fixture::published("ladder", 5, &seeds);
    assert_eq!(cells.len(), 40);
    study_fixture::write(folder.path(), &grids, &cells);
    let (_, paths) = study::write(folder.path(), None, None).unwrap();
    let bytes = files::size_bytes(&paths[0]).unwrap();
    assert!(bytes < 5_000_000, "{bytes} bytes");
}

#[test]
fn the_same_cells_give_the_same_bytes_and_no_time_of_day() {
    let (grids, cells) = small(&[101, 102]);
    let folder = tempfile::tempdir().unwrap();
    let first = written(&folder.path().join("a"), &grids, &cells);
    let reversed: Vec<Cell> = cells.into_iter().rev().collect();
    let second = written(&folder.path().join("b"), &grids, &reversed);
    assert_eq!(first.html, second.html);
    assert_eq!(first.markdown, second.markdown);
    assert_eq!(first.json, second.json);
    let year =
        |text: &str| text.contains("2026-") || text.contains("T00:") || text.contains(" UTC");
    let texts = first.html.iter().chain([&first.markdown, &first.json]);
    texts.for_each(|text| assert!(!year(text)));
}

#[test]
fn the_page_shows_every_number_of_the_markdowns_tables() {
    let (grids, cells) = small(&[101, 102, 103]);
    let folder = tempfile::tempdir().unwrap();
    let written = written(folder.path(), &grids, &cells);
    let numbers = |text: &str| -> BTreeSet<String> {
        let plain = text.replace("\\\\", "");
        let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
        let words = plain.split(|c: char| !is_part(c));
        let found = words.map(|word| word.trim_matches([',', '.']).to_owned());
        found.filter(|word| word.chars().any(|c| c.is_ascii_digit())).collect()
    };
    let cells = written.markdown.lines().filter(|line| line.starts_with("| **"));
    for line in cells {
        for number in numbers(line) {
            assert!(written.html.concat().contains(&number), "{number} of {line}");
        }
    }
}

#[test]
fn hostile_text_in_cells_is_shown_and_never_obeyed() {
    let (mut grids, mut cells) = small(&[101, 102, 103]);
    grids[0].question = HOSTILE.to_owned();
    for arm in &mut grids[0].arms {
        arm.label = format!("{} {HOSTILE}", arm.name);
    }
    for cell in &mut cells {
        HOSTILE.clone_into(&mut cell.name);
        HOSTILE.clone_into(&mut cell.reason);
        HOSTILE.clone_into(&mut cell.harness);
        cell.environment.insert(HOSTILE.to_owned(), HOSTILE.to_owned());
        // A record whose digests are anything else is refused.
        cell.inputs.insert(HOSTILE.to_owned(), "0".repeat(64));
        cell.run_key = inputs::run_key(&cell.experiment, &cell.inputs);
        cell.digests.insert(format!("{HOSTILE}model.safetensors"), "0".repeat(64));
        let values = cell.metrics["policy/entropy"].clone();
        cell.metrics.insert(HOSTILE.to_owned(), values);
    }
    let mut failed = cells[0].clone();
    failed.seed = 103;
    failed.experiment.execution.seed = 103;
    failed.run_key = inputs::run_key(&failed.experiment, &failed.inputs);
    failed.ending = CellEnding::Failed;
    failed.ledger_head = None;
    cells.retain(|cell| cell.file_name() != failed.file_name());
    cells.push(failed);
    let cells: Vec<Cell> = cells.into_iter().map(Cell::sealed).collect();
    let folder = tempfile::tempdir().unwrap();
    let written = written(folder.path(), &grids, &cells);
    for (name, text) in
        [("html", &written.html.concat()), ("md", &written.markdown), ("json", &written.json)]
    {
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{name}");
        assert!(!text.contains('\u{202e}'), "{name}");
        assert!(text.contains("u{1b}[2J") || text.contains("u001b[2J"), "{name} shows it");
    }
    let page = &written.html.concat();
    assert!(page.contains("&#60;script&#62;alert(1)") || page.contains("&lt;script&gt;alert(1)"));
    for acting in ["<script", "<img", "</pre><", "href=\"http", "onerror=y>"] {
        assert!(!page.contains(acting), "{acting}");
    }
    let outside: String = written.markdown.split("\n```").step_by(2).collect();
    let outside = outside.replace("\\]", "");
    assert!(!outside.contains("<script") && !outside.contains("](http"));
    assert!(!outside.contains("http://"));
}

#[test]
fn the_page_is_well_formed_marked_up_and_loads_nothing() {
    let (grids, cells) = small(&[101, 102, 103]);
    let folder = tempfile::tempdir().unwrap();
    let pages = written(folder.path(), &grids, &cells).html;
    pages.iter().for_each(|page| is_well_formed(page));
}

fn is_well_formed(page: &str) {
    crate::report::assert_well_formed(page);
    assert!(!page.contains("src=") && !page.contains("=\"http") && !page.contains("inf\""));
    let count = |tag: &str| page.matches(tag).count();
    let headers = count("<th ");
    assert_eq!(headers, count("<th scope=\"col\"") + count("<th scope=\"row\""));
    let charts = count("<svg class=\"chart\"");
    assert!(charts > 5);
    let described = "role=\"img\" aria-label=\"";
    assert_eq!(count(described), charts, "every picture has a text");
}

#[test]
fn what_is_missing_is_said_and_nothing_breaks() {
    let (grids, all) = small(&[101, 102, 103]);
    let of = |name: &str| -> String { grids[0].arm(name).unwrap().arm_sha256.clone() };
    let folder = tempfile::tempdir().unwrap();
    let case = |name: &str, cells: &[Cell]| written(&folder.path().join(name), &grids, cells);

    let none = case("none", &[]);
    assert!(none.markdown.contains("9 runs of the grids leave-one-out are missing"));
    let headline = &none.report.page.headline;
    assert!(headline.contains("could not be compared with DAPO"), "{headline}");
    assert!(none.html[1].contains("No run that counts recorded it."));

    let without: Vec<Cell> =
        all.iter().filter(|cell| cell.arm_sha256 != of("clip-higher")).cloned().collect();
    let text = case("without-arm", &without).markdown;
    assert!(text.contains("Arms without a score:"), "{text}");
    assert!(text.contains("Not recorded: "));

    let one: Vec<Cell> = all.iter().filter(|cell| cell.seed == 101).cloned().collect();
    let text = case("one-seed", &one).markdown;
    assert!(text.contains("none below 5 runs"), "an arm with one run has no interval");
    assert!(text.contains("Every arm has one run: there is no band."));

    let mut failed = all.clone();
    let cell = &mut failed[0];
    cell.ending = CellEnding::Failed;
    cell.reason = "the process was killed".to_owned();
    cell.ledger_head = None;
    *cell = cell.clone().sealed();
    let text = case("failed", &failed).markdown;
    assert!(text.contains("the process was killed") && text.contains("1 failed"), "{text}");

    let mut unseen = all.clone();
    for cell in &mut unseen {
        cell.evaluations.retain(|evaluation| evaluation.set != "mini-aime-plus");
        cell.problems.remove("mini-aime-plus");
        cell.inputs.remove("data/mini-aime-plus");
        cell.run_key = inputs::run_key(&cell.experiment, &cell.inputs);
        *cell = cell.clone().sealed();
    }
    let text = case("not-evaluated", &unseen).markdown;
    assert!(text.contains("No run of leave-one-out that counts evaluated mini-aime-plus."));
}

#[test]
fn verify_names_what_is_altered_missing_or_not_reported() {
    let (grids, cells) = small(&[101, 102]);
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    study_fixture::write(root, &grids, &cells);
    let verified = || study_verification::verify(root, None).unwrap();
    let findings = || {
        let found = verified();
        let all = found.checks.iter().flat_map(|check| &check.findings);
        let all: Vec<String> = all.map(|it| format!("{}: {}", it.place, it.what)).collect();
        (found.verdict, all.join("\n"))
    };
    let (verdict, found) = findings();
    assert!(verdict == VerifyVerdict::Inconclusive && found.contains("report.json: is missing"));
    study::write(root, None, None).unwrap();
    let whole = verified();
    assert_eq!(whole.verdict, VerifyVerdict::Verified, "{whole:?}");
    assert!(whole.summary.contains("training replayed 0 of 6 runs"), "{}", whole.summary);
    assert!(whole.not_checked.iter().any(|line| line.starts_with("dapo train cells/")));

    let path = root.join("report.json");
    let text = files::read_text(&path).unwrap();
    let facts = text.replacen("\"word\":\"inconclusive\"", "\"word\":\"improves\"", 1);
    files::write_atomic(&path, facts.as_bytes()).unwrap();
    let (verdict, found) = findings();
    let place = "report.json, analysis, families";
    assert!(verdict == VerifyVerdict::Mismatch && found.contains(place), "{found}");
    study::write(root, None, None).unwrap();

    let cell = root.join("cells").join(cells[0].file_name());
    let text = files::read_text(&cell).unwrap();
    files::write_atomic(&cell, text.replacen("\"finished\"", "\"saturated\"", 1).as_bytes())
        .unwrap();
    let (verdict, found) = findings();
    assert!(verdict == VerifyVerdict::Mismatch && found.contains("not built again"), "{found}");
    files::remove_file(&cell).unwrap();
    study::write(root, None, None).unwrap();
    let (verdict, found) = findings();
    assert!(verdict == VerifyVerdict::Inconclusive && found.contains("no record of the seeds"));

    let code = |line: &str| line_in(root, line).0;
    assert_eq!((code("verify . --json"), code("verify . --replay 1 --challenge 7")), (6, 2));
}

#[test]
fn a_study_is_judged_by_claims_of_its_own() {
    let (grids, cells) = small(&[101, 102]);
    let folder = tempfile::tempdir().unwrap();
    study_fixture::write(folder.path(), &grids, &cells);
    let claims = folder.path().join("claims.toml");
    let one = "[[claims]]\nid = \"size\"\nclaim = \"A large model gains.\"\nsource = { section = \"§4.2\" }\n\
               not_testable = \"needs a large model\"\n";
    files::write_atomic(&claims, one.as_bytes()).unwrap();
    let judged = study::build(folder.path(), None).unwrap().facts.claims.claims;
    assert_eq!(judged.iter().map(|claim| claim.id.as_str()).collect::<Vec<_>>(), ["size"]);
    files::write_atomic(&claims, b"[[claims]]\nid = 3\n").unwrap();
    let refused = study::build(folder.path(), None).unwrap_err().to_string();
    assert!(refused.contains("claims.toml"), "{refused}");
    let found = study_verification::verify(folder.path(), None).unwrap();
    assert_eq!(found.verdict, VerifyVerdict::Mismatch);
}

#[test]
fn the_command_writes_its_files_and_names_a_folder_that_is_no_study() {
    let (grids, cells) = small(&[101, 102]);
    let folder = tempfile::tempdir().unwrap();
    study_fixture::write(folder.path(), &grids, &cells);
    let out = folder.path().join("elsewhere");
    succeeded(line_in(folder.path(), "report . --out elsewhere"));
    for name in
        ["report.html", "appendix.html", "report.md", "appendix.md", "report.json", "answer.svg"]
    {
        assert!(out.join(name).is_file(), "{name}");
        assert!(!folder.path().join(name).exists(), "{name} stands in the study");
    }
    let picture = files::read_text(&out.join("answer.svg")).unwrap();
    assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"), "{picture}");
    assert!(!picture.contains("var(") && picture.contains("class=\"zero"));
    files::remove_folder(&folder.path().join("grids")).unwrap();
    failed(line_in(folder.path(), "report ."), 3, "grids");
}

/// Words are for readers: a better one, or another version's, costs no study and no run its verdict.
#[test]
fn other_words_change_no_verdict() {
    let scratch = tempfile::tempdir().unwrap();
    let text_of = |path: &Path| files::read_text(path).unwrap();
    for study in [
        "engines-1",
        "engines-2",
        "loops",
        "methods-1",
        "overlong",
        "repairs-chains",
        "repairs-sums",
        "study-1",
        "study-2",
        "sums-1",
        "useful",
        "words",
    ] {
        let (committed, copy) =
            (repository::root().join("reports").join(study), scratch.path().join(study));
        crate::verify::copy(&committed, &copy);
        for name in ["report.md", "appendix.md", "answer.svg"] {
            let path = copy.join(name);
            files::write_atomic(&path, text_of(&path).replace("the", "a").as_bytes()).unwrap();
        }
        let found = study_verification::verify(&copy, None).unwrap();
        assert!(found.summary.starts_with("verified"), "{study}: {found:#?}");
        // No fact is a sentence of this program: what has blanks was declared, or is the paper's.
        let facts: Value = serde_json::from_str(&text_of(&copy.join("report.json"))).unwrap();
        let mut sentences = Vec::new();
        sentences_in(&facts, "", &mut sentences);
        assert_eq!(sentences, Vec::<String>::new(), "{study}");
    }
}

/// Names of fields whose texts a declaration, a grid or claims.toml gave.
const DECLARED: &str = "question description of label row table family claim says \
    section not_testable positive_control figures id technique";

fn sentences_in(value: &Value, name: &str, sentences: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| sentences_in(value, name, sentences));
        }
        Value::Array(values) => {
            values.iter().for_each(|value| sentences_in(value, name, sentences));
        }
        Value::String(text) if text.contains(' ') && !DECLARED.split(' ').any(|it| it == name) => {
            sentences.push(format!("{name}: {text}"));
        }
        _ => {}
    }
}

/// What the first declared comparison asks about is drawn first: a metric of training in its unit, else accuracy.
#[test]
fn the_first_figure_shows_what_was_asked() {
    for (study, unit, rows, curves) in [
        (
            "words",
            "nats",
            5,
            ["policy/rollout_entropy, nats, over updates", "avg@k on dev, %, over updates"],
        ),
        (
            "sums-1",
            "points",
            5,
            [
                "avg@k on signed-sums, %, over updates",
                "avg@k on signed-sums, %, over generated tokens",
            ],
        ),
    ] {
        let folder = repository::root().join("reports").join(study);
        let loaded = collection::load(&folder, None).unwrap();
        let report = study::report(&loaded, &claims::shipped());
        let blocks = report.page.sections.iter().flat_map(|section| &section.blocks);
        let mut panels = blocks.filter_map(|block| match block {
            Block::Figure(figure) => Some(&figure.panels),
            _ => None,
        });
        let Some([Panel::Intervals(differences), Panel::Curves(first), Panel::Curves(second)]) =
            panels.next().map(Vec::as_slice)
        else {
            panic!("{study}: the first figure has other panels");
        };
        assert_eq!((differences.x.as_str(), differences.rows.len()), (unit, rows), "{study}");
        assert_eq!([first, second].map(|it| it.title.as_str()), curves, "{study}");
        assert!(!first.lines.is_empty() && first.lines[0].band.iter().all(|it| it.1 < it.2));
    }
}
