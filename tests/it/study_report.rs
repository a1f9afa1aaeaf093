//! `dapo report STUDY`: what a reader sees, and what a study that is small, incomplete or hostile
//! leads to.

use crate::printed_checks::studies;
use crate::run_fixture::HOSTILE;
use crate::transcript::play;
use crate::{report, repository, study_fixture, verify};
use dapo::base::files;
use dapo::experiment::{Grid, RecordsSettings};
use dapo::report::page::{Block, Panel};
use dapo::report::{StudyReport, markdown, study};
use dapo::study::{Cell, claims, collection};
use dapo::verification::verify::{VerifyVerdict, study as study_verification};
use serde_json::Value;
use std::path::Path;

struct Written {
    report: StudyReport,
    /// Report and appendix.
    html: [String; 2],
    /// Both, one after the other.
    markdown: String,
    json: String,
}

fn written(grids: &[Grid], cells: &[Cell]) -> Written {
    let folder = tempfile::tempdir().unwrap();
    study_fixture::write(folder.path(), grids, cells);
    let (report, paths) = study::write(folder.path(), None, None).unwrap();
    let [html, more_html, markdown, more_markdown, json, _] =
        paths.map(|path| files::read_text(&path).unwrap());
    Written { report, html: [html, more_html], markdown: markdown + &more_markdown, json }
}

/// Three arms of the published study.
fn small(seeds: &[u64]) -> (Vec<Grid>, Vec<Cell>) {
    study_fixture::published("leave-one-out", 3, seeds)
}

/// Two seeds of them in a folder.
fn in_folder() -> tempfile::TempDir {
    let (grids, cells) = small(&[101, 102]);
    let folder = tempfile::tempdir().unwrap();
    study_fixture::write(folder.path(), &grids, &cells);
    folder
}

#[test]
fn a_small_study_reads_as_this_markdown() {
    let (grids, mut cells) = small(&[101, 102, 103]);
    // What records can say of a technique: it is off and acted, or they say nothing of it.
    study_fixture::change(&mut cells[..3], |cell| {
        let masked = cell.metrics.get_mut("effect/overlong_filtering_masked_rollouts").unwrap();
        masked.fill(Some(3.0));
        cell.metrics.retain(|name, _| !name.starts_with("effect/token_level_loss"));
    });
    // Arms have a hash of every key: a new key in base.toml must not change this file.
    insta::with_settings!({ filters => vec![
        (r"\b[0-9a-f]{64}\b", "[sha256]"),
        (r"\b[0-9a-f]{12}\b", "[digest]"),
    ]}, { insta::assert_snapshot!(written(&grids, &cells).markdown); });
}

#[test]
fn arms_whose_ratio_is_that_of_a_response_are_named_beside_the_count_of_high_ratios() {
    let (mut grids, mut cells) = small(&[101, 102]);
    let method = repository::experiment("methods/gspo.toml", "").dapo.method;
    for arm in &mut grids[0].arms {
        arm.experiment.dapo.method = method;
        arm.arm_sha256 = arm.experiment.arm_sha256();
    }
    study_fixture::change(&mut cells, |cell| cell.experiment.dapo.method = method);
    let page = written(&grids, &cells).markdown;
    let sentence =
        " Under DAPO, DAPO − Clip-Higher, DAPO − Soft Overlong Punishment it is that of a response";
    assert!(page.contains(sentence), "{page}");
}

#[test]
fn a_study_has_the_metrics_of_all_rollouts_beside_the_batchs_where_a_cell_has_them() {
    let (grids, mut cells) = small(&[101, 102]);
    let title = "Mean probability of sampled tokens";
    let before = written(&grids, &cells).markdown;
    assert!(before.contains(title) && !before.contains("all rollouts"));
    study_fixture::change(&mut cells, |cell| {
        let values = cell.metrics["policy/token_probability_mean"].clone();
        cell.metrics.insert("policy/rollout_token_probability_mean".to_owned(), values);
        cell.experiment.records = Some(RecordsSettings { format: 2 });
    });
    let after = written(&grids, &cells).markdown;
    for of in ["all rollouts", "batch"] {
        assert!(after.contains(&format!("{title}, {of}")), "{of}");
    }
    assert!(!after.contains("Entropy of the policy, "));
}

#[test]
fn forty_cells_render_in_less_than_five_megabytes() {
    let seeds: Vec<u64> = (101..=108).collect();
    let (grids, cells) = study_fixture::published("ladder", 5, &seeds);
    assert_eq!(cells.len(), 40);
    let bytes = written(&grids, &cells).html[0].len();
    assert!(bytes < 5_000_000, "{bytes} bytes");
}

#[test]
fn the_same_cells_give_the_same_bytes_and_no_time_of_day() {
    let (grids, mut cells) = small(&[101, 102]);
    let texts = |cells: &[Cell]| {
        let Written { html: [page, appendix], markdown, json, .. } = written(&grids, cells);
        [page, appendix, markdown, json]
    };
    let first = texts(&cells);
    cells.reverse();
    assert_eq!(first, texts(&cells));
    for time in ["2026-", "T00:", " UTC"] {
        assert!(!first.concat().contains(time), "{time}");
    }
}

#[test]
fn the_page_shows_every_number_of_the_markdowns_tables() {
    let (grids, cells) = small(&[101, 102, 103]);
    let written = written(&grids, &cells);
    let html = written.html.concat();
    for line in written.markdown.lines().filter(|line| line.starts_with("| **")) {
        let plain = line.replace("\\\\", "");
        let numbers = plain.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','));
        for number in numbers.map(|number| number.trim_matches([',', '.'])) {
            assert!(html.contains(number), "{number} of {line}");
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
    study_fixture::change(&mut cells, |cell| {
        for text in [&mut cell.name, &mut cell.reason, &mut cell.harness] {
            HOSTILE.clone_into(text);
        }
        cell.environment.insert(HOSTILE.to_owned(), HOSTILE.to_owned());
        // A record whose digests are anything else is refused.
        cell.inputs.insert(HOSTILE.to_owned(), "0".repeat(64));
        cell.digests.insert(format!("{HOSTILE}model.safetensors"), "0".repeat(64));
        let values = cell.metrics["policy/entropy"].clone();
        cell.metrics.insert(HOSTILE.to_owned(), values);
    });
    // A record of the first arm's last seed, which failed.
    let mut failed = cells[0].clone();
    study_fixture::change([&mut failed], |cell| {
        (cell.seed, cell.experiment.execution.seed) = (103, 103);
        study_fixture::fail(cell);
        HOSTILE.clone_into(&mut cell.reason);
    });
    cells.retain(|cell| cell.file_name() != failed.file_name());
    cells.push(failed);
    let written = written(&grids, &cells);
    let page = written.html.concat();
    report::assert_shown_and_never_obeyed(&page, &written.markdown, &written.json);
}

#[test]
fn the_page_is_well_formed_marked_up_and_loads_nothing() {
    let (grids, cells) = small(&[101, 102, 103]);
    for page in written(&grids, &cells).html {
        report::assert_well_formed(&page);
        assert!(!page.contains("src=") && !page.contains("=\"http") && !page.contains("inf\""));
        let count = |tag: &str| page.matches(tag).count();
        let scopes = count("<th scope=\"col\"") + count("<th scope=\"row\"");
        assert_eq!(count("<th "), scopes);
        let charts = count("<svg class=\"chart\"");
        assert!(charts > 5);
        assert_eq!(count("role=\"img\" aria-label=\""), charts, "every picture has a text");
    }
}

#[test]
fn what_is_missing_is_said_and_nothing_breaks() {
    let (grids, all) = small(&[101, 102, 103]);
    let none = written(&grids, &[]);
    assert!(none.markdown.contains("9 runs of the grids leave-one-out are missing"));
    let headline = &none.report.page.headline;
    assert!(headline.contains("could not be compared with DAPO"), "{headline}");
    assert!(none.html[1].contains("No run that counts recorded it."));

    let absent = &grids[0].arm("clip-higher").unwrap().arm_sha256;
    let has_arm = |cell: &&Cell| cell.arm_sha256 != *absent;
    let is_first = |cell: &&Cell| cell.seed == 101;
    let [mut failed, mut not_evaluated] = [all.clone(), all.clone()];
    study_fixture::change(&mut failed[..1], study_fixture::fail);
    study_fixture::change(&mut not_evaluated, |cell| {
        cell.evaluations.retain(|evaluation| evaluation.set != "mini-aime-plus");
        cell.problems.remove("mini-aime-plus");
        cell.inputs.remove("data/mini-aime-plus");
    });
    for (cells, words) in [
        (
            all.iter().filter(has_arm).cloned().collect(),
            ["Arms without a score:", "Not recorded: "],
        ),
        (
            all.iter().filter(is_first).cloned().collect(),
            ["none below 5 runs", "Every arm has one run: there is no band."],
        ),
        (failed, ["the process was killed", "1 failed"]),
        (not_evaluated, ["No run of leave-one-out that counts evaluated mini-aime-plus.", ""]),
    ] {
        let text = written(&grids, &cells).markdown;
        assert!(words.iter().all(|words| text.contains(words)), "{words:?}: {text}");
    }
}

#[test]
fn verify_names_what_is_altered_missing_or_not_reported() {
    play(in_folder().path(), include_str!("study_report/altered.txt"));
}

#[test]
fn a_study_is_judged_by_claims_of_its_own() {
    let folder = in_folder();
    let claims = folder.path().join("claims.toml");
    let one = "[[claims]]\nid = \"size\"\nclaim = \"A large model gains.\"\nsource = { section = \"§4.2\" }\n\
               not_testable = \"needs a large model\"\n";
    files::write_atomic(&claims, one.as_bytes()).unwrap();
    let report = study::build(folder.path(), None).unwrap();
    let page = markdown::render(&report.page);
    assert!(page.contains("claims.toml: 1 not testable") && !page.contains("The paper’s claims"));
    let judged = report.facts.claims.claims;
    assert_eq!(judged.iter().map(|claim| claim.id.as_str()).collect::<Vec<_>>(), ["size"]);
    let part = "source = { section = \"1\" }\nclaim = \"c\"\n[[claims.parts]]\nid = \"p\"\nsays = \"s\"\nfamily = \"f\"\n\
                rule = \"interval-beyond-bound\"\n[claims.parts.test]\nkind = \"level\"\narm = \"leave-one-out/dapo\"\n\
                bound = 0.5\ndirection = \"higher\"\n\
                metric = { source = \"evaluation\", set = \"mini-aime\", at = \"last\", statistic = \"avg-at-k\" }\n";
    let own = format!("[[claims]]\nid = \"mine\"\n{part}");
    files::write_atomic(&claims, own.as_bytes()).unwrap();
    study::build(folder.path(), None).unwrap();
    for name in ["leave-one-out/dapo", "mini-aime"] {
        let misspelt = own.replace(name, &format!("{name}s"));
        files::write_atomic(&claims, misspelt.as_bytes()).unwrap();
        let refused = study::build(folder.path(), None).unwrap_err().to_string();
        assert!(refused.contains(&format!("did you mean {name}?")), "{refused}");
    }
    files::write_atomic(&claims, b"[[claims]]\nid = 3\n").unwrap();
    let refused = study::build(folder.path(), None).unwrap_err().to_string();
    assert!(refused.contains("claims.toml"), "{refused}");
    let verification = study_verification::verify(folder.path(), None).unwrap();
    assert_eq!(verification.verdict, VerifyVerdict::Mismatch);
    let note = "claims.toml: the claims and their bounds are the sender's";
    assert!(verification.not_checked.contains(&note.to_string()), "{verification:#?}");
}

#[test]
fn the_command_writes_its_files_and_names_a_folder_that_is_no_study() {
    play(in_folder().path(), include_str!("study_report/elsewhere.txt"));
}

/// Words are for readers: a better one, or another version's, costs no study and no run its verdict.
#[test]
fn other_words_change_no_verdict() {
    let scratch = tempfile::tempdir().unwrap();
    let text_of = |path: &Path| files::read_text(path).unwrap();
    for study in studies() {
        let copy = scratch.path().join(&study);
        verify::copy(&repository::root().join("reports").join(&study), &copy);
        for name in ["report.md", "appendix.md", "answer.svg"] {
            let path = copy.join(name);
            files::write_atomic(&path, text_of(&path).replace("the", "a").as_bytes()).unwrap();
        }
        let verification = study_verification::verify(&copy, None).unwrap();
        assert!(verification.summary.starts_with("verified"), "{study}: {verification:#?}");
        // No fact is a sentence of this program: what has blanks was declared, or is the paper's.
        let facts: Value = serde_json::from_str(&text_of(&copy.join("report.json"))).unwrap();
        assert_eq!(sentences(&facts, ""), Vec::<String>::new(), "{study}");
    }
}

/// Names of fields whose texts a declaration, a grid or claims.toml gave.
const DECLARED: &str = "question description of label row table family claim says \
    section not_testable positive_control figures id technique";

fn sentences(value: &Value, name: &str) -> Vec<String> {
    match value {
        Value::Object(fields) => {
            fields.iter().flat_map(|(name, value)| sentences(value, name)).collect()
        }
        Value::Array(values) => values.iter().flat_map(|value| sentences(value, name)).collect(),
        Value::String(text) if text.contains(' ') && !DECLARED.split(' ').any(|it| it == name) => {
            vec![format!("{name}: {text}")]
        }
        _ => Vec::new(),
    }
}

/// What the first declared comparison asks about is drawn first: a metric of training in its unit, else accuracy.
#[test]
fn the_first_figure_shows_what_was_asked() {
    let entropy = "policy/rollout_entropy, nats, over updates";
    let tokens = "avg@k on signed-sums, %, over generated tokens";
    for (study, unit, curves) in [
        ("words", "nats", [entropy, "avg@k on dev, %, over updates"]),
        ("sums-1", "points", ["avg@k on signed-sums, %, over updates", tokens]),
    ] {
        let folder = repository::root().join("reports").join(study);
        let loaded = collection::load(&folder, None).unwrap();
        let report = study::report(&loaded, &claims::shipped());
        let mut blocks = report.page.sections.iter().flat_map(|section| &section.blocks);
        let panels = blocks.find_map(|block| match block {
            Block::Figure(figure) => Some(&figure.panels[..]),
            _ => None,
        });
        let Some([Panel::Intervals(differences), Panel::Curves(first), Panel::Curves(second)]) =
            panels
        else {
            panic!("{study}: the first figure has other panels");
        };
        assert_eq!((differences.x.as_str(), differences.rows.len()), (unit, 5), "{study}");
        assert_eq!([&first.title, &second.title], curves, "{study}");
        assert!(!first.lines.is_empty() && first.lines[0].band.iter().all(|it| it.1 < it.2));
    }
}
