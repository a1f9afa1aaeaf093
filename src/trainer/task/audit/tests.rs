use super::*;
use crate::base::files;
use crate::task::data::problem_file::tests::aime_2024;
use crate::task::data::template;
use serde_json::{Value, json};
use std::path::PathBuf;

fn lines(lines: &[Value]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("set.jsonl");
    files::write_lines(&path, lines).unwrap();
    (folder, path)
}

fn options() -> AuditOptions<'static> {
    AuditOptions {
        keys: RowKeys::default(),
        tokens: None,
        max_prompt_tokens: 2048,
        prompts_per_step: 2,
    }
}

fn audited(rows: &[Value]) -> Audit {
    let (_folder, path) = lines(rows);
    audit(&path, &options(), &mut |_done, _total| {}).unwrap()
}

fn row(question: &str, answer: &str, index: Value) -> Value {
    json!({
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": template::wrap(question)}],
        "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": index},
    })
}

fn kinds(audit: &Audit, part: &str) -> Vec<FindingKind> {
    let about = audit.findings.iter().filter(|finding| finding.text.contains(part));
    about.map(|finding| finding.kind).collect()
}

#[test]
fn copies_contradictions_and_kinds_of_answers_are_counted() {
    let audit = audited(&[
        row("a?", "3", json!("u1")),
        row("a? ", "3", json!("u2")),
        row("b?", "-4", json!("u3")),
        row("b?", "5", json!("u3")),
        row("c?", "3", json!("u4")),
        row("d?", "007", json!("u4")),
        row("e?", "1/2", json!(5)),
        row("f?", "40320", Value::Null),
    ]);
    assert_eq!((audit.rows, audit.problems), (8, 6));
    assert_eq!((audit.copies.fewest, audit.copies.most), (1, 2));
    assert_eq!((audit.conflicts.problems, audit.conflicts.rows), (1, 2));
    let answers: Vec<(String, u64)> = vec![("-4".into(), 1), ("5".into(), 1)];
    assert_eq!(audit.conflicts.listed, [ConflictListed { question: "b?".into(), answers }]);
    let Answers { distinct, integers, negative, above_999, padded, other, .. } = audit.answers;
    assert_eq!((distinct, integers, negative, above_999, padded, other), (6, 6, 1, 1, 1, 1));
    assert_eq!(audit.answers.other_listed, ["1/2"]);
    assert_eq!(audit.answers.shared_listed, [("3".to_string(), 2)]);
    let Indices { integers, texts, missing, distinct, of_several_problems, .. } = audit.indices;
    assert_eq!((integers, texts, missing, distinct, of_several_problems), (1, 6, 1, 5, 1));
    assert_eq!(audit.prompts.spaced_differently, 1);
    assert_eq!(kinds(&audit, "several answers"), [FindingKind::Warning]);
    assert_eq!(kinds(&audit, "such as 3 (2 problems)"), [FindingKind::Note]);
    assert_eq!(kinds(&audit, "8 rows are 6 problems"), [FindingKind::Warning]);
    assert_eq!(kinds(&audit, "no integers (1/2)"), [FindingKind::Warning]);
    assert_eq!(kinds(&audit, "leading zero"), [FindingKind::Note]);
    let told = "1 values of `extra_info.index` stand beside several problems (first u4)";
    assert_eq!(kinds(&audit, told), [FindingKind::Warning]);
}

#[test]
fn doubled_ids_are_named() {
    let row = |id: &str, question| json!({"id": id, "question": question, "answer": "3"});
    let rows = ["a", "b", "a", "b", "c", "a"].into_iter().zip(["a?", "b?", "c?", "d?", "e?", "f?"]);
    let rows: Vec<Value> = rows.map(|(id, question)| row(id, question)).collect();
    let audit = audited(&rows);
    let told = "2 ids stand beside several problems (first a, b). Training refuses";
    assert_eq!(kinds(&audit, told), [FindingKind::Warning]);
    assert_eq!((audit.indices.of_several_problems, audit.indices.doubled_ids), (2, 2));
    assert_eq!(kinds(&audit, "extra_info.index"), []);
    assert_eq!(audited(&[rows[0].clone(), rows[0].clone()]).indices.doubled_ids, 0);
}

#[test]
fn a_clean_file_has_no_findings() {
    let audit = audited(&[row("a?", "3", json!(0)), row("b?", "4", json!(1))]);
    assert_eq!(audit.findings, []);
    assert_eq!(audit.prompts.released_template, 2);
    assert_eq!(audit.data_sources, BTreeMap::from([("math_dapo".to_string(), 2)]));
}

#[test]
fn even_copies_are_samples_of_an_evaluation_file() {
    let twice = |question: &str, answer: &str| vec![row(question, answer, json!(0)); 2];
    let audit = audited(&[twice("a?", "3"), twice("b?", "4")].concat());
    assert_eq!(kinds(&audit, "4 rows are 2 problems × 2 copies"), [FindingKind::Note]);
    assert_eq!(kinds(&audit, "prompts has 2 steps over the rows and 1 over the pr").len(), 1);
}

#[test]
fn digests_depend_neither_on_order_nor_the_second_on_copies_or_templates() {
    let rows = [row("a?", "3", json!(0)), row("b?", "4", json!(1))];
    let forward = audited(&rows).content;
    let backward = audited(&[rows[1].clone(), rows[0].clone()]).content;
    assert_eq!(forward, backward);
    let twice = audited(&[rows[0].clone(), rows[1].clone(), rows[0].clone()]).content;
    assert_ne!(twice.rows_sha256, forward.rows_sha256);
    assert_eq!(twice.problems_sha256, forward.problems_sha256);
    let own = [json!({"question": "b?", "answer": 4}), json!({"question": " a?", "answer": 3})];
    assert_eq!(audited(&own).content.problems_sha256, forward.problems_sha256);
    let other = [rows[0].clone(), row("b?", "5", json!(1))];
    assert_ne!(audited(&other).content.problems_sha256, forward.problems_sha256);
}

#[test]
fn replies_are_no_questions() {
    let replied = |question: &str, answer: &str| {
        let mut row = row(question, answer, json!(0));
        let reply = json!({"role": "assistant", "content": "Sure"});
        row["prompt"].as_array_mut().unwrap().push(reply);
        row
    };
    let audit = audited(&[replied("a?", "3"), replied("b?", "4")]);
    assert_eq!((audit.problems, audit.conflicts.problems, audit.copies.most), (2, 0, 1));
    assert_eq!(audit.prompts.not_one_user_message, 2);
    assert_eq!(kinds(&audit, "several answers"), []);
}

#[test]
fn prompts_that_training_refuses_or_verl_reads_otherwise_are_warned_of() {
    let mut turns = row("a?", "3", json!(0));
    turns["prompt"] =
        json!([{"role": "assistant", "content": "s"}, {"role": "user", "content": "a?"}]);
    let mut bare = row("b?", "4", json!(1));
    bare["prompt"][0]["content"] = json!("b?");
    bare["data_source"] = json!("gsm8k");
    let mut differs = row("c?", "4", json!(2));
    differs["extra_info"]["raw_problem"] = json!("c? (shortened)");
    let audit = audited(&[turns, bare, differs, row(" ", "", json!(3))]);
    assert_eq!(audit.prompts.not_one_user_message, 1);
    assert_eq!(audit.prompts.other_template, 1);
    assert_eq!(audit.prompts.raw_problem_differs, 1);
    assert_eq!((audit.prompts.blank, audit.answers.blank), (1, 1));
    assert_eq!(kinds(&audit, "Training refuses the file"), [FindingKind::Warning; 3]);
    assert_eq!(kinds(&audit, "is `gsm8k`"), [FindingKind::Note]);
}

#[test]
fn an_answer_that_the_verifier_never_accepts_is_found() {
    // The rules take what follows the last `=` of a line, on both sides, and cut at a line end.
    let audit = audited(&[row("a?", "1\n2", json!(0)), row("b?", "x=3", json!(1))]);
    assert_eq!(audit.answers.unverifiable_listed, ["1\n2"]);
    assert_eq!(kinds(&audit, "graded wrong even when"), [FindingKind::Warning]);
}

#[test]
fn a_ground_truth_in_a_list_is_read_and_the_file_is_not_called_clean() {
    let audit = audited(&[row("a?", "[\"4\"]", json!(0)), row("b?", "[2, 5]", json!(1))]);
    assert_eq!(audit.answers.unverifiable, 0);
    assert_eq!(kinds(&audit, "`[\"4\"]` is read as `4`"), [FindingKind::Warning; 2]);
    assert_eq!(kinds(&audit, "may not match it").len(), 2);
}

#[test]
fn a_text_that_no_response_repeats_is_warned_of_where_a_rule_grades() {
    let solved = "Schritt für Schritt: 5 + 6 = 11. Die Antwort ist 11.";
    let audit = audited(&[row("a?", solved, json!(0)), row("b?", "4", json!(1))]);
    let told = "1 rows are texts of several sentences, or of more than 100 characters, such as";
    assert_eq!(kinds(&audit, told), [FindingKind::Warning]);
    assert_eq!(kinds(&audit, "may not match it"), []);
}

#[test]
fn a_column_that_may_belong_to_the_question_and_is_in_no_prompt_is_warned_of() {
    let row = |question: &str| json!({"question": question, "choices": ["Oslo", "Rome"], "answer": 1, "source": "x"});
    let audit = audited(&[row("Where?"), row("Rome or\nOslo?")]);
    assert_eq!(audit.unseen, [("choices".to_string(), 1)].into());
    assert_eq!(kinds(&audit, "1 rows have a column `choices`"), [FindingKind::Warning]);
}

#[test]
fn what_is_trained_on_is_measured_and_a_program_is_told_of_no_template() {
    let prompt = json!([{"role": "user", "content": "Think well. Why?"}]);
    let (_folder, path) =
        lines(&[json!({"question": "Why?", "prompt": prompt, "ground_truth": {"a": 1}})]);
    let keys = RowKeys { columns: true, ..RowKeys::default() };
    let options = AuditOptions { keys, ..options() };
    let audit = audit(&path, &options, &mut |_done, _total| {}).unwrap();
    assert_eq!(audit.prompts.lengths.longest, 4);
    assert_eq!(kinds(&audit, "1 rows have a `prompt` with more"), [FindingKind::Warning]);
    assert_eq!(kinds(&audit, "released template").len() + kinds(&audit, "is read as").len(), 0);
}

#[test]
fn every_form_of_an_answer_is_graded_and_saying_nothing_earns_nothing() {
    let audit = audited(&[
        row("a?", "$5", json!(0)),
        row("b?", "}{", json!(1)),
        row("c?", "[INVALID]", json!(2)),
        row("d?", "units", json!(3)),
    ]);
    assert_eq!(audit.answers.unverifiable_listed, ["[INVALID]", "units"]);
    let forms = &audit.answers.unverifiable_otherwise;
    assert_eq!(forms["Answer: $…$"].0, 3);
    assert_eq!(forms["\\boxed{…}"], (1, "}{".to_string()));
}

#[test]
fn tokens_are_counted_once_a_problem_and_long_prompts_are_warned_of() {
    let calls = std::cell::Cell::new(0);
    let count = |row: &SourceRow| {
        calls.set(calls.get() + 1);
        Ok(row.question().len() as u64)
    };
    let (_folder, path) =
        lines(&[row("a?", "3", json!(0)), row("a?", "3", json!(0)), row("long?", "4", json!(1))]);
    let tokens = Some(TokenCount { described: "tokens".into(), count: &count });
    let options = AuditOptions { tokens, max_prompt_tokens: 2, ..options() };
    let audit = audit(&path, &options, &mut |_done, _total| {}).unwrap();
    let Lengths { shortest, median, longest, over_limit, .. } = audit.prompts.lengths;
    assert_eq!((calls.get(), shortest, median, longest, over_limit), (2, 2, 2, 5, Some(1)));
    assert_eq!(kinds(&audit, "more than 2 tokens"), [FindingKind::Warning]);
}

#[test]
fn the_released_aime_file_is_known_and_its_facts_hold() {
    let Some(path) = aime_2024() else { return };
    let audit = audit(&path, &options(), &mut |_done, _total| {}).unwrap();
    assert!(audit.known_as.as_deref().unwrap().starts_with("AIME 2024"));
    assert_eq!((audit.rows, audit.problems), (960, 30));
    assert_eq!((audit.copies.fewest, audit.copies.most), (32, 32));
    assert_eq!(audit.answers.shared_listed, [("104".to_string(), 2)]);
    assert_eq!((audit.answers.integers, audit.answers.distinct), (30, 29));
    assert_eq!(audit.prompts.released_template, 960);
    assert_eq!((audit.indices.integers, audit.indices.of_several_problems), (960, 0));
}
