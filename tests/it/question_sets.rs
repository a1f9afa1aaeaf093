//! Question sets as they are published, on golden/data/schemas (see generate.py there).

use crate::golden_data;
use crate::transcript::play;
use dapo::task::data::problem_file;
use std::collections::BTreeMap;

#[test]
fn published_schemas_are_read_as_lines_and_as_tables() {
    let folder = golden_data::folder("data/schemas");
    let expected: BTreeMap<String, Vec<(String, String)>> =
        golden_data::read(&folder.join("expected.json"));
    assert_eq!(expected.len(), 8);
    for (name, rows) in expected {
        for kind in ["jsonl", "parquet"] {
            let path = folder.join(format!("{name}.{kind}"));
            let file = problem_file::read(&path).and_then(|file| file.consistent(&path));
            let problems = file.unwrap_or_else(|error| panic!("{error}")).problems;
            let read: Vec<(String, String)> =
                problems.into_iter().map(|problem| (problem.question, problem.answer)).collect();
            assert_eq!(read, rows, "{name}.{kind}");
        }
    }
}

#[test]
fn a_key_of_another_name_is_asked_for_and_taken_by_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    play(folder.path(), include_str!("question_sets/keys.txt"));
    let prepared = problem_file::read(&folder.path().join("out/set.parquet")).unwrap().problems;
    assert_eq!((&*prepared[1].question, &*prepared[1].answer), ("1+2?", "3"));
}
