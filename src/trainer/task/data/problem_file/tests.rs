use super::*;
use crate::base::files;
use crate::experiment::PromptTemplate;
use crate::records::NamedProblem;
use crate::records::tables::problems::{write_one_row, write_problems};
use crate::task::data::template;
use std::path::PathBuf;

/// A JSON-lines file `set.jsonl` in a folder of its own.
fn jsonl(lines: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("set.jsonl");
    files::write_atomic(&path, lines.as_bytes()).unwrap();
    (folder, path)
}

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
    let data_source = Some("math_dapo");
    NamedProblem {
        data_source,
        id,
        prompt,
        ground_truth,
        raw_problem: prompt,
        tags: &[],
        extra: None,
    }
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
fn a_row_without_a_ground_truth_is_for_a_program_alone_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let cells = [("question", "Make 9"), ("nums", "4 5")];
    let object = "{\"question\": \"Make 9\", \"nums\": \"4 5\"}";
    for (name, content) in [
        ("set.parquet", None),
        ("set.JSONL", Some(object.to_string())),
        ("set.json", Some(format!("[{object}]"))),
        ("set.Csv", Some("question,nums\nMake 9,4 5\n".to_string())),
    ] {
        let path = folder.path().join(name);
        match content {
            None => write_one_row(&path, &cells, &[]).unwrap(),
            Some(content) => files::write_atomic(&path, content.as_bytes()).unwrap(),
        }
        let keys = RowKeys { columns: true, ..RowKeys::default() };
        let file = read_with(&path, &keys).unwrap();
        let [problem] = &file.problems[..] else { panic!("{name}") };
        assert_eq!(problem.answer, "{\"nums\":\"4 5\"}", "{name}");
        assert_eq!(file.columns[&problem.id]["ground_truth"], json!({"nums": "4 5"}), "{name}");
        let refusal = read(&path).unwrap_err().to_string();
        assert!(refusal.contains("--answer-key KEY"), "{name}: {refusal}");
    }
}

#[test]
fn a_column_of_bytes_is_told_and_is_read_for_a_program_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("set.parquet");
    let bytes: [(&str, &[u8]); 2] = [("images", b"abc"), ("scan", b"abc")];
    write_one_row(&path, &[("question", "q"), ("answer", "1")], &bytes).unwrap();
    let keys = RowKeys { columns: true, ..RowKeys::default() };
    for keys in [RowKeys::default(), keys] {
        let file = read_with(&path, &keys).unwrap();
        let told = file.told.unseen.join("\n");
        assert!(told.contains("`images`, which no prompt shows: a policy reads text"), "{told}");
        assert!(told.contains("1 rows have a column `scan`"), "{told}");
        assert_eq!(file.told.unseen.len(), 2, "{told}");
        let scans: Vec<&Value> = file.columns.values().map(|row| &row["scan"]).collect();
        assert_eq!(scans, vec![&json!("YWJj"); scans.len()]);
    }
}

#[test]
fn bad_json_lines_are_refused_with_the_reason() {
    let table = [
        ("", "set.jsonl: no problems in it"),
        (
            "{\"question\": \"q\"}",
            "set.jsonl:1: answer: missing: no key `reward_model.ground_truth`, `answer`",
        ),
        (
            "\n{\"question\": \"q\", \"answer\": null}",
            "set.jsonl:2: answer: it is null, or NaN in a table; leave the row out",
        ),
        ("{\"question\": \"q\", \"answer\": true}", "answer: expected text or a number, got true"),
        ("{\"question\": \" \", \"answer\": 1}", "set.jsonl:1: the question is empty"),
        ("{\"question\": \"q\", \"answer\": \"\"}", "set.jsonl:1: the answer is empty"),
        (
            "{\"id\": 1, \"question\": \"p\", \"answer\": 1}\n{\"id\": \"1\", \"question\": \"q\", \"answer\": 1}",
            "set.jsonl: two problems have the id `1`: \"p\" and \"q\"",
        ),
        (
            "{\"question\": \"p\", \"answer\": 1}\n{\"question\": \"p\", \"answer\": 2}",
            "set.jsonl: 1 questions have conflicting answers: \"p\" has `1` (record 0) and `2` (record 1)",
        ),
    ];
    for (lines, expected) in table {
        let refusal = refusal(lines);
        assert!(refusal.contains(expected), "{refusal}");
    }
}

#[test]
fn a_file_of_another_kind_is_refused_by_its_name() {
    let error = read(Path::new("data/problems.txt")).unwrap_err().to_string();
    let expected =
        "data/problems.txt: expected one file named *.parquet, *.jsonl, *.json, *.csv or *.tsv;";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn a_json_list_and_csv_give_the_problems_of_json_lines() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [("What is 1 + 1?", "2", "easy"), ("Name \"it\", or\nnot", "-3", "hard")];
    let object = |(question, answer, tags): &(&str, &str, &str)| {
        serde_json::json!({"question": question, "answer": answer, "tags": tags}).to_string()
    };
    let objects: Vec<String> = rows.iter().map(object).collect();
    let cell = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let csv: String =
        rows.iter().map(|(q, a, tags)| format!("{},{a},{tags}\r\n", cell(q))).collect();
    let read_as = |name: &str, text: String| {
        let path = folder.path().join(name);
        files::write_atomic(&path, text.as_bytes()).unwrap();
        read(&path).map(|file| file.problems).map_err(|error| error.to_string())
    };
    let expected = read_as("a.jsonl", objects.join("\n")).unwrap();
    let questions: Vec<&str> = expected.iter().map(|problem| &*problem.question).collect();
    assert_eq!(questions, [rows[0].0, rows[1].0]);
    for (name, text) in [
        ("a.json", format!("[{}]", objects.join(", "))),
        ("lines/a.json", objects.join("\n")),
        ("a.csv", format!("\u{feff}Question,answer,tags\n{csv}")),
        (
            "a.tsv",
            format!(
                "question\tanswer\ttags\n{}\n",
                "What is 1 + 1?\t2\teasy\n\"Name \"\"it\"\", or\nnot\"\t-3\thard"
            ),
        ),
    ] {
        assert_eq!(read_as(name, text).as_ref(), Ok(&expected), "{name}");
    }
    for (name, text, says) in [
        ("b.json", "{\"data\": []}", "b.json: it is no list of objects"),
        ("c.json", "[{\"question\": \"q\"}]", "c.json: row 0 (from 0): "),
        ("c.json", "[{\"question\": \"\\udc00\"}]", " stands without its pair at line 1"),
        (
            "h.json",
            "[{\"question\": \"NaN\", \"answer\": NaN}]",
            "h.json: NaN is no JSON: write null",
        ),
        (
            "h.jsonl",
            "{\"question\": \"q\", \"score\": -Infinity}",
            "h.jsonl:1: Infinity is no JSON",
        ),
        ("i.jsonl", "[\n{\"question\": \"q\"}]", "i.jsonl:1: it is a JSON list"),
        ("d.csv", "question,answer\nq,\n", "d.csv:2: the answer is empty"),
        ("f.csv", "question,answer\n,1\n", "f.csv:2: the question is empty"),
        (
            "g.csv",
            "question,Answer,answer\nq,1,2\n",
            "g.csv:2: answer: it says `2`, `Answer` says `1`",
        ),
        ("e.csv", "question,answer\nq\n", "e.csv:2: "),
    ] {
        let error = read_as(name, text.to_string()).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
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
    assert_eq!(file.conflicts, [Conflict { question: "p".into(), answers }]);
}

#[test]
fn the_same_question_with_other_spaces_is_the_same_problem() {
    let rows = [row("a", "p  q", "1"), row("b", "p q ", "1"), row("c", "r\ns", "1")];
    let (_folder, path) = parquet(&[&rows[..], &[row("d", "r s", "2")]].concat());
    let file = read(&path).unwrap();
    assert_eq!(ids(&file.problems), ["a"]);
    assert_eq!(file.problems[0].question, "p  q");
    assert_eq!(file.conflicts[0].question, "r\ns");
}

#[test]
fn a_row_without_raw_problem_has_its_template_removed_where_it_matches_exactly() {
    let line = |prompt: &str| {
        let messages = serde_json::json!([{"role": "user", "content": prompt}]);
        let line = serde_json::json!({
            "data_source": "math_dapo", "prompt": messages, "ability": "MATH",
            "reward_model": {"ground_truth": "1", "style": "rule"}, "extra_info": {"index": 3},
        });
        let (_folder, path) = jsonl(&line.to_string());
        read(&path).unwrap().problems.remove(0)
    };
    let exact = line(&template::wrap("What is 1?"));
    assert_eq!((exact.question.as_str(), exact.id.as_str()), ("What is 1?", "set/3"));
    let other = template::wrap("What is 1?") + " ";
    assert_eq!(line(&other).question, other);
}

#[test]
fn lines_in_the_released_schema_and_the_table_are_the_same_problems() {
    let (_folder, path) = parquet(&[row("a", "p", "1"), row("b", "q", "-2")]);
    let table = read(&path).unwrap();
    let line = |row: &NamedProblem| {
        serde_json::json!({
            "prompt": [{"content": row.prompt, "role": "user"}],
            "reward_model": {"ground_truth": row.ground_truth},
            "extra_info": {"index": row.id, "raw_problem": row.raw_problem},
        })
        .to_string()
    };
    let lines = [row("a", "p", "1"), row("b", "q", "-2")].map(|row| line(&row)).join("\n");
    let (_other, path) = jsonl(&lines);
    assert_eq!(read(&path).unwrap(), table);
}

#[test]
fn a_prompt_with_other_messages_than_one_of_the_user_is_refused() {
    let line = r#"{"prompt": [{"role": "user", "content": "s"}, {"role": "assistant", "content": "t"}, {"role": "user", "content": "q"}], "reward_model": {"ground_truth": 1}}"#;
    assert_eq!(
        refusal(line),
        "set.jsonl:1: expected one message of a `user`, behind one of `system` or none, its prompt has `user, assistant, \
         user`: state turns that all rows begin with as `[[prompt.examples]]` of the experiment file, and write those of \
         the row's own into its question"
    );
    for (roles, told) in [
        ("system system user", "`system, system, user`: join the instructions into one"),
        ("developer user", "`developer, user`: call the role `developer` `system`"),
        (
            "user system",
            "`user, system`: join the instructions into one `system` message at the beginning; end with",
        ),
        (
            "user assistant",
            "`user, assistant`: end with the question of the `user`, without a response; state",
        ),
        ("tool user", "`tool, user`: leave out messages of other roles"),
        ("", "``: end with the question"),
        (
            "system user assistant user assistant user assistant user assistant user",
            "assistant, user` and 2 more: state",
        ),
    ] {
        let messages = roles.split_whitespace().map(|role| json!({"role": role, "content": "c"}));
        let messages: Vec<Value> = messages.collect();
        let refusal = refusal(&json!({"prompt": messages, "answer": 1}).to_string());
        assert!(refusal.contains(told), "{refusal}");
    }
    for (line, expected) in [
        (
            r#"{"prompt": 7, "reward_model": {"ground_truth": 1}}"#,
            "prompt: expected text or a list",
        ),
        (r#"{"prompt": [{"role": "user"}], "answer": 1}"#, "prompt: expected a list of messages"),
        (r#"{"prompt": []}"#, "answer: missing: no key `reward_model.ground_truth`"),
        (
            r#"{"prompt": [], "reward_model": {"ground_truth": 1}, "extra_info": {"index": 0.5}}"#,
            "extra_info.index: expected text or an integer, got 0.5",
        ),
    ] {
        let refusal = refusal(line);
        assert!(refusal.contains(expected), "{refusal}");
    }
}

#[test]
fn one_system_message_of_all_rows_is_for_the_prompt_settings() {
    let line = |system: &str, question: &str| {
        let system = serde_json::json!({"role": "system", "content": system});
        let user = serde_json::json!({"role": "user", "content": question});
        let messages: Vec<_> =
            [system, user].into_iter().filter(|it| it["content"] != "").collect();
        serde_json::json!({"prompt": messages, "reward_model": {"ground_truth": 1}}).to_string()
    };
    let (_folder, path) = jsonl(&format!("{}\n{}", line("Be brief.", "a"), line("Be brief.", "b")));
    let file = read(&path).unwrap();
    assert_eq!((file.system.as_deref(), file.problems.len()), (Some("Be brief."), 2));
    for second in [line("Be long.", "b"), line("", "b")] {
        let refusal = refusal(&format!("{}\n{second}", line("Be brief.", "a")));
        assert!(
            refusal.starts_with("set.jsonl:2: its prompt has another system message"),
            "{refusal}"
        );
    }
    let mut prompt = PromptSettings::of(PromptTemplate::Chat);
    let other = |prompt: &PromptSettings| other_system(&path, file.system.as_deref(), prompt);
    assert!(other(&prompt).unwrap_err().to_string().contains("(\"Be brief.\" …), and none is"));
    prompt.system = Some("Be long.".into());
    let told =
        "the system message \"Be brief.\", and `prompt.system` has \"Be long.\", which counts";
    assert!(other(&prompt).unwrap().unwrap().ends_with(told));
    prompt.system = Some("Be brief.".into());
    assert_eq!(other(&prompt).unwrap(), None);
    for (template, is_refused) in [(PromptTemplate::Chat, true), (PromptTemplate::Dapo, false)] {
        let empty = other_system(&path, Some(""), &PromptSettings::of(template));
        assert_eq!(empty.is_err(), is_refused, "{template:?}");
    }
}

/// The released file, where the machine has it.
pub fn aime_2024() -> Option<PathBuf> {
    let default = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .join("../shared/data/aime-2024.parquet");
    let path = std::env::var_os("DAPO_TEST_AIME").map_or(default, PathBuf::from);
    if !path.exists() {
        eprintln!("skipped: no AIME 2024 file at {} (set DAPO_TEST_AIME)", path.display());
        return None;
    }
    Some(path)
}

#[test]
fn aime_2024_is_thirty_problems_in_960_rows() {
    let Some(path) = aime_2024() else { return };
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
    source::each_row(&path, &RowKeys::default(), &mut |row| {
        let raw = row.read.raw_problem.as_deref().expect("AIME 2024 has the raw problem");
        assert_eq!(template::unwrap(&row.read.prompt[0].content), Some(raw));
        Ok(())
    })
    .unwrap();
}
