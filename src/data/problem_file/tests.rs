//! Tests of reading problems from files.

use super::*;
use crate::tables::problems::NamedProblem;
use crate::tables::problems::write_problems;
use std::path::PathBuf;

/// A JSON-lines file `set.jsonl` in a folder of its own.
fn jsonl(lines: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("set.jsonl");
    files::write_atomic(&path, lines.as_bytes()).unwrap();
    (folder, path)
}

/// The error's text without the folder.
fn refusal(lines: &str) -> String {
    let (folder, path) = jsonl(lines);
    let error = match read(&path) {
        Err(error) => error,
        Ok(file) => file.consistent(&path).unwrap_err(),
    };
    error.to_string().replace(&format!("{}/", folder.path().display()), "")
}

fn parquet(rows: &[NamedProblem]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("set.parquet");
    write_problems(&path, rows).unwrap();
    (folder, path)
}

fn row<'a>(id: &'a str, prompt: &'a str, ground_truth: &'a str) -> NamedProblem<'a> {
    NamedProblem { id, prompt, ground_truth, raw_problem: prompt }
}

fn ids(problems: &[Problem]) -> Vec<&str> {
    problems.iter().map(|problem| problem.id.as_str()).collect()
}

#[test]
fn json_lines_take_integers_and_number_the_problems_without_id() {
    let (_folder, path) = jsonl(concat!(
        "{\"question\": \"1+1?\", \"answer\": 2}\n\n",
        "{\"id\": 7, \"question\": \"1+2?\", \"answer\": \"3\"}\n",
        "{\"question\": \"1+1?\", \"answer\": \"2\"}\n",
        "{\"question\": \"0-1?\", \"answer\": -1}\n",
    ));
    let file = read(&path).unwrap();
    assert_eq!(file.records, 4);
    assert_eq!(ids(&file.problems), ["set/00000", "7", "set/00002"]);
    assert_eq!(file.problems[2].answer, "-1");
}

#[test]
fn bad_json_lines_are_refused_with_the_reason() {
    let table = [
        ("", "set.jsonl: no problems in it"),
        ("{\"question\": \"q\"}", "set.jsonl:1: missing field `answer`"),
        (
            "\n{\"question\": \"q\", \"answer\": 2.5}",
            "set.jsonl:2: answer: expected text or an integer, got 2.5",
        ),
        ("{\"question\": \" \", \"answer\": 1}", "record 0 (from 0): the question is empty"),
        ("{\"question\": \"q\", \"answer\": \"\"}", "record 0 (from 0): the answer is empty"),
        ("{\"question\": \"q\", \"answer\": 1, \"x\": 1}", "unknown field `x`"),
        (
            "{\"id\": 1, \"question\": \"p\", \"answer\": 1}\n{\"id\": \"1\", \"question\": \"q\", \"answer\": 1}",
            "set.jsonl: two problems have the id `1`: \"p\" and \"q\"",
        ),
        (
            "{\"question\": \"p\", \"answer\": 1}\n{\"question\": \"p\", \"answer\": 2}",
            "set.jsonl: 1 prompts have conflicting answers: \"p\" has `1` (record 0) and `2` (record 1)",
        ),
    ];
    for (lines, expected) in table {
        let refusal = refusal(lines);
        assert!(refusal.contains(expected), "{refusal}");
    }
}

#[test]
fn a_file_of_another_kind_is_refused_by_its_name() {
    let error = read(Path::new("data/problems.csv")).unwrap_err().to_string();
    assert_eq!(error, "data/problems.csv: expected a file named *.parquet or *.jsonl");
}

#[test]
fn repeated_rows_are_one_problem_and_keep_the_first_index() {
    let rows = [row("a", "p", "1"), row("b", "q", "1"), row("c", "p", "1")];
    let (_folder, path) = parquet(&rows);
    let file = read(&path).unwrap();
    assert_eq!(file.records, 3);
    assert_eq!(ids(&file.problems), ["a", "b"]);
}

#[test]
fn shared_indices_give_way_to_positions() {
    let (_folder, path) = parquet(&[row("a", "p", "1"), row("a", "q", "1")]);
    assert_eq!(ids(&read(&path).unwrap().problems), ["set/00000", "set/00001"]);
}

#[test]
fn conflicting_answers_are_kept_apart_from_the_problems() {
    let rows = [row("a", "p", "1"), row("b", "q", "5"), row("c", "p", "2"), row("d", "p", "1")];
    let (_folder, path) = parquet(&rows);
    let file = read(&path).unwrap();
    assert_eq!(ids(&file.problems), ["b"]);
    let answers = vec![("1".to_string(), 0), ("2".to_string(), 2)];
    assert_eq!(file.conflicts, [Conflict { prompt: "p".into(), answers }]);
}

#[test]
fn a_row_without_raw_problem_has_its_template_removed_where_it_matches_exactly() {
    let row = |prompt: String| ProblemRow {
        prompt,
        ground_truth: "1".into(),
        index: Some(Index::Number(3)),
        raw_problem: None,
    };
    let exact = from_row(row(template::wrap("What is 1?")), "aime");
    assert_eq!((exact.question.as_str(), exact.id.as_deref()), ("What is 1?", Some("aime/3")));
    let other = template::wrap("What is 1?") + " ";
    assert_eq!(from_row(row(other.clone()), "aime").question, other);
}

#[test]
fn aime_2024_is_thirty_problems_in_960_rows() {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/aime-2024.parquet");
    let path = std::env::var_os("DAPO_TEST_AIME").map_or(default, PathBuf::from);
    if !path.exists() {
        eprintln!("skipped: no AIME 2024 file at {} (set DAPO_TEST_AIME)", path.display());
        return;
    }
    let file = read(&path).unwrap();
    assert_eq!((file.records, file.problems.len()), (960, 30));
    assert!(file.conflicts.is_empty());
    // The ground truth of the released file, by index.
    let truths = [
        45, 116, 540, 468, 385, 23, 371, 33, 104, 809, 73, 601, 80, 315, 721, 127, 197, 294, 902,
        211, 110, 113, 55, 104, 25, 204, 236, 480, 321, 699,
    ];
    for problem in &file.problems {
        let index = problem.id.strip_prefix("aime-2024/").expect("the id has the file's name");
        let index: usize = index.parse().expect("the index is a number");
        assert_eq!(problem.answer, truths[index].to_string());
        assert!(!problem.question.contains("Remember to put your answer"));
    }
    // The released template around the raw problem is the released prompt, byte for byte.
    let rows = read_problems(&path).unwrap();
    for row in &rows {
        let raw = row.raw_problem.as_deref().expect("AIME 2024 has the raw problem");
        assert_eq!(template::unwrap(&row.prompt), Some(raw));
    }
}
