use super::*;

fn read_value(row: &Value, keys: &RowKeys) -> Result<ReadRow, String> {
    read(row.as_object().unwrap(), keys).map_err(|error| format!("{}: {}", error.key, error.reason))
}

fn truth(answer: &Value) -> (String, Vec<Reading>) {
    let row = json!({"question": "q", "answer": answer});
    let read = read_value(&row, &RowKeys::default()).unwrap();
    (read.ground_truth, read.truth.readings)
}

fn refusal(row: &Value) -> String {
    read_value(row, &RowKeys::default()).unwrap_err()
}

#[test]
fn ground_truths_are_read_in_every_form_and_the_form_is_told() {
    use Reading::{Boxed, Hashes, JsonInText, ListOfOne, LostComma, Prose, Spaced, WholeFloat};
    let (numbers, formula) = (["12"; 40].join(" "), "\\pi".repeat(40));
    let table: [(Value, &str, &[Reading]); 55] = [
        (json!(4), "4", &[]),
        (json!(4.0), "4", &[WholeFloat]),
        (json!(-3.0), "-3", &[WholeFloat]),
        (json!("4.0"), "4", &[WholeFloat]),
        (json!(2.5), "2.5", &[]),
        (json!("-5.0000000000"), "-5", &[WholeFloat]),
        (json!("5.50"), "5.50", &[]),
        (json!("500."), "500.", &[]),
        (json!(["4"]), "4", &[ListOfOne]),
        (json!([4.0]), "4", &[ListOfOne, WholeFloat]),
        (json!("[\"4\"]"), "4", &[JsonInText, ListOfOne]),
        (json!("[4]"), "4", &[JsonInText, ListOfOne]),
        (json!("\"4\""), "4", &[JsonInText]),
        (json!("[2, 5]"), "[2, 5]", &[]),
        (json!("[2,5)"), "[2,5)", &[]),
        (json!("{1,2}"), "{1,2}", &[]),
        (json!("so it is\n#### 1,234"), "1234", &[Hashes]),
        (json!("so\n#### 1,234\nThe answer is: 1234"), "1234", &[Hashes]),
        (json!("so. The answer is: x+1."), "x+1", &[Hashes]),
        (json!("#### Step\nso \\boxed{5} it is"), "5", &[Boxed]),
        (json!([["x"]]), "x", &[ListOfOne]),
        (json!("[[\"[4]\"]]"), "4", &[JsonInText, ListOfOne]),
        (json!("3,14"), "3,14", &[LostComma]),
        (json!("x = 1, 234"), "x = 1, 234", &[LostComma]),
        (json!("$1,234{,}567$"), "$1,234{,}567$", &[]),
        (json!("12,\\!000 dollars"), "12,\\!000 dollars", &[]),
        (json!("(1,2)"), "(1,2)", &[]),
        (json!("#### Step\nso it is"), "#### Step\nso it is", &[Reading::Unmarked]),
        (json!("thus \\boxed{\\frac{1}{2}}."), "\\frac{1}{2}", &[Boxed]),
        (json!("\\boxed{1} then \\boxed{2}"), "2", &[Boxed]),
        (json!("so $\\boxed 9$ it is"), "9", &[Boxed]),
        (json!("so \\boxed \\frac12. Done"), "\\frac12", &[Boxed]),
        (json!("so \\boxed {3}"), "3", &[Boxed]),
        (json!("thus \\fbox{4}."), "4", &[Boxed]),
        (json!("\\boxed{1} or \\fbox{4}"), "1", &[Boxed]),
        (json!(" 7 "), "7", &[Spaced]),
        (json!("\\boxed{ 7 }"), "7", &[Boxed]),
        (json!("5 + 6 = 11. The answer is 11."), "11", &[Hashes]),
        (json!("So the answer is 11"), "11", &[Hashes]),
        (json!("Thus the final answer is $x + 1$."), "$x + 1$", &[Hashes]),
        (json!("5 + 6.\nThe answer is **11**."), "11", &[Hashes]),
        (json!("**The answer is 1,100.**"), "1,100", &[Hashes]),
        (json!("**The final answer is:** 11"), "11", &[Hashes]),
        (json!("So. The answer is: **11**."), "11", &[Hashes]),
        (json!("The answer is 3.0."), "3", &[Hashes, WholeFloat]),
        (json!("The answer is $8."), "$8", &[Hashes]),
        (json!("So the answer is (a)."), "(a)", &[Hashes]),
        (json!("The answer is 11 or 12"), "The answer is 11 or 12", &[]),
        (json!("The answer is 5. But not 6"), "The answer is 5. But not 6", &[]),
        (json!("print('the answer is x')"), "print('the answer is x')", &[]),
        (json!("By 5 + 6. Es sind 11 in allem."), "By 5 + 6. Es sind 11 in allem.", &[]),
        (json!("Mit 5 + 6 = 11. Es sind also 11."), "Mit 5 + 6 = 11. Es sind also 11.", &[Prose]),
        (json!("Dr. Martin Luther King"), "Dr. Martin Luther King", &[]),
        (json!(numbers), &numbers, &[Prose]),
        (json!(formula), &formula, &[]),
    ];
    for (answer, text, readings) in table {
        assert_eq!(truth(&answer), (text.to_string(), readings.to_vec()), "{answer}");
    }
}

#[test]
fn parts_of_a_message_that_are_texts_are_one_text() {
    let parts = json!([{"type": "text", "text": "1 + "}, {"type": "text", "text": "1?"}]);
    let row = json!({"prompt": [{"role": "user", "content": parts}], "answer": 2});
    let read = read_value(&row, &RowKeys::default()).unwrap();
    assert_eq!(read.prompt, [crate::records::Message::new("user", "1 + 1?")]);
}

#[test]
fn what_is_no_one_answer_is_refused_with_its_key() {
    for (row, words) in [
        (json!({"question": "q", "answer": ["1", "2"]}), "answer: a list of 2 answers"),
        (json!({"question": "q", "answer": "[\"1\", \"2\"]"}), "answer: a list of 2 answers"),
        (json!({"question": "q", "answer": []}), "answer: a list of 0 answers"),
        (
            json!({"question": "q", "solution": ["S", "T"], "final_answer": ["3"]}),
            "the row has one in `final_answer`: --answer-key final_answer",
        ),
        (json!({"question": "q", "answer": {"value": 1}}), "--answer-key KEY.INSIDE"),
        (json!({"question": "q", "answer": null}), "answer: it is null"),
        (json!({"question": "q", "answer": 1e300}), "answer: 1e+300 is a float"),
        (json!({"question": null, "answer": 1}), "question: it is null"),
        (
            json!({"question": "q", "result": 1}),
            "the row has question, result; name it with --answer-key",
        ),
        (json!({"task": "q", "answer": 1}), "name it with --question-key"),
        (
            json!({"question": "q", "answer": 1, "ground_truth": "so \\boxed{2}"}),
            "ground_truth: it says `2`, `answer` says `1`",
        ),
        (
            json!({"question": "q", "answer": 1, "solution": 2}),
            "solution: it says `2`, `answer` says `1`",
        ),
        (
            json!({"question": "q", "Answer": "1", "answer": "2"}),
            "answer: it says `2`, `Answer` says `1`; --answer-key says which one is meant",
        ),
        (
            json!({"question": "q", "reward_model": {"ground_truth": 1, "Ground_Truth": 2}}),
            "--answer-key says which one is meant",
        ),
        (
            json!({"QUESTION": "q", "Question": "p", "answer": 1}),
            "--question-key says which one is meant",
        ),
        (
            json!({"question": "q", "problem": "p", "answer": 1}),
            "problem: it differs from `question`",
        ),
        (
            json!({"problem": "p", "prompt": [{"role": "user", "content": "q"}], "answer": 1}),
            "prompt: it does not hold `problem`",
        ),
        (
            json!({"question": 5, "answer": 1}),
            "question: expected text or a list of messages, got 5",
        ),
        (
            json!({"prompt": [{"role": "user", "content": [{"type": "image", "url": "u"}]}], "answer": 1}),
            "has the part {\"type\":\"image\",\"url\":\"u\"}, and a policy reads text alone",
        ),
        (json!({"question": "q", "answer": 1, "id": [1]}), "id: expected text or an integer"),
        (json!({"question": "q", "answer": 1, "tags": 4}), "tags: expected a list of texts"),
    ] {
        let refusal = refusal(&row);
        assert!(refusal.contains(words), "{row}: {refusal}");
    }
}

#[test]
fn an_option_names_the_key_and_settles_what_contradicts_itself() {
    let row = json!({"question": "q", "task": "t", "answer": 1, "solution": "so \\boxed{2}",
        "meta": "{\"gold\": [\"3\"]}", "extra": {"value": 4.0}});
    let keys = |question: &str, answer: &str| RowKeys {
        question: Some(question.to_string()),
        answer: Some(answer.to_string()),
        ..RowKeys::default()
    };
    for (question, answer, expected) in [
        ("task", "solution", "2"),
        ("question", "answer", "1"),
        ("task", "meta.gold", "3"),
        ("task", "extra.value", "4"),
    ] {
        let read = read_value(&row, &keys(question, answer)).unwrap();
        let asked = row[question].as_str();
        assert_eq!((read.raw_problem.as_deref(), &*read.ground_truth), (asked, expected));
        assert_eq!(read.keys, [question, answer]);
    }
    let absent = read_value(&row, &keys("task", "nothing")).unwrap_err();
    assert!(absent.contains("no key `nothing`"), "{absent}");
}

#[test]
fn keys_that_say_the_same_agree_whatever_their_notation() {
    let row = json!({"problem": "q", "answer": "\\frac12", "solution": "It is $\\boxed{\\dfrac{1}{2}}$."});
    let read = read_value(&row, &RowKeys::default()).unwrap();
    assert_eq!((&*read.ground_truth, &*read.keys[1]), ("\\frac12", "answer"));
    let messages = json!("[{\"role\": \"user\", \"content\": \"q\"}]");
    let row = json!({"prompt": messages, "answer": "1"});
    assert_eq!(read_value(&row, &RowKeys::default()).unwrap().prompt[0].content, "q");
}

/// A program compares with what the file has, as verl and TRL hand it over.
#[test]
fn a_program_gets_the_value_as_it_stands_but_for_a_worked_solution() {
    let keys = RowKeys { columns: true, ..RowKeys::default() };
    for (key, value, text, given) in [
        ("answer", json!(["743"]), "743", Some(json!(["743"]))),
        ("answer", json!(611.0), "611", Some(json!(611.0))),
        ("answer", json!(["762", "0762"]), "[\"762\",\"0762\"]", Some(json!(["762", "0762"]))),
        ("answer", json!(762), "762", Some(json!(762))),
        ("answer", json!(true), "true", Some(json!(true))),
        ("answer", json!("3.0"), "3", Some(json!("3.0"))),
        ("answer", json!("7 "), "7", Some(json!("7 "))),
        ("answer", json!("[\"4\"]"), "4", Some(json!("[\"4\"]"))),
        ("answer", json!("so it is\n#### 1,234"), "1234", None),
        ("solution", json!("thus \\boxed{5}."), "5", None),
        ("solution", json!("def f():\n #### 1\n return 1"), "def f():\n #### 1\n return 1", None),
        ("answer", json!("#### First\nso\n#### Second\n\\boxed{5}"), "5", None),
        ("solution", json!("sorted by hand"), "sorted by hand", None),
        ("answer", json!("5 + 6. The answer is 11."), "11", None),
        ("solution", json!("print('The answer is:', x)"), "print('The answer is:', x)", None),
        ("ground_truth", json!("thus \\boxed{5}."), "5", Some(json!("thus \\boxed{5}."))),
        ("answer", json!(""), "", None),
        ("ground_truth", json!(""), "", Some(json!(""))),
        ("answer", json!(" "), "", Some(json!(" "))),
        ("answer", json!([""]), "", Some(json!([""]))),
        ("answer", json!("as above ####"), "", Some(json!("as above ####"))),
    ] {
        let read = read_value(&json!({"question": "q", key: value}), &keys).unwrap();
        assert_eq!(read.ground_truth, text, "{value}");
        assert_eq!(read.columns.get("ground_truth"), given.as_ref(), "{value}");
    }
    // Rows of code or of Countdown state no answer; one of prompts alone has nothing to say.
    let tests = json!({"tests": ["assert f(1) == 1"]});
    for (row, truth) in [
        (json!({"prompt": "Write f", "tests": ["assert f(1) == 1"], "id": 3}), tests),
        (json!({"question": "Make 9", "nums": [4, 5]}), json!({"nums": [4, 5]})),
        (json!({"prompt": "Write a poem"}), json!({})),
        // A table of several tasks has the columns of each.
        (
            json!({"question": "q", "answer": null, "solution": null, "nums": [4]}),
            json!({"answer": null, "solution": null, "nums": [4]}),
        ),
    ] {
        let read = read_value(&row, &keys).unwrap();
        assert_eq!(read.columns["ground_truth"], truth, "{row}");
        assert_eq!(read.ground_truth, files::canonical_json_line(&truth), "{row}");
        assert!(read_value(&row, &RowKeys::default()).is_err(), "{row}");
    }
    assert!(read_value(&json!({"question": "q", "answer": null}), &keys).is_err());
    // A solution in words says no answer where another key does; an object in a text is an object.
    let row = json!({"problem": "q", "answer": "2", "solution": "Because 1 + 1 = 2.", "extra_info": "{\"a\": 1}"});
    let read = read_value(&row, &keys).unwrap();
    assert_eq!((read.ground_truth.as_str(), &read.columns["extra_info"]), ("2", &json!({"a": 1})));
    // Another column of the name is not the one that was chosen.
    let chosen = RowKeys { answer: Some("target".into()), ..keys };
    let row = json!({"question": "q", "target": "7", "ground_truth": {"a": 1}});
    assert_eq!(read_value(&row, &chosen).unwrap().columns["ground_truth"], "7");
}

#[test]
fn for_a_program_the_ground_truth_of_verl_counts_and_named_keys_are_written_as_the_usual_ones() {
    let keys = RowKeys { columns: true, ..RowKeys::default() };
    let truth = json!({"names": ["Ann"]});
    let row = json!({"question": "q", "solution": [true, false], "Answer": "a", "answer": "b",
        "reward_model": {"ground_truth": truth}});
    let read = read_value(&row, &keys).unwrap();
    assert_eq!(read.columns["ground_truth"], truth);
    assert!(read.truth.readings.contains(&Reading::Outranks));
    assert!(read.truth.solved.unwrap().contains("answer: "));
    assert!(read_value(&row, &RowKeys::default()).is_err());
    let row = json!({"id": 1, "question": "p", "task": "t", "gold": truth, "answer": "b",
        "prompt": [{"role": "user", "content": "Think. t"}], "reward_model": {"style": "rule"}});
    for (question, asked) in [("task", "t"), ("prompt", "Think. t"), ("question", "p")] {
        let (question, answer) = (Some(question.to_string()), Some("gold".to_string()));
        let named = RowKeys { question, answer, rows: true, ..keys.clone() };
        let written = Value::Object(read_value(&row, &named).unwrap().columns);
        let read = read_value(&written, &keys).unwrap();
        assert_eq!((read.raw_problem.as_deref(), read.is_named), (Some(asked), false));
        assert_eq!((&read.columns["ground_truth"], read.unseen), (&truth, vec![]));
        assert_eq!(written["reward_model"]["style"], "rule");
    }
    let named = RowKeys { answer: Some("gold".to_string()), rows: true, ..keys.clone() };
    let row = |answer: Value| json!({"question": "p", "gold": "", "answer": answer});
    let written = Value::Object(read_value(&row(Value::Null), &named).unwrap().columns);
    let read = read_value(&written, &keys).unwrap();
    assert_eq!((&*read.keys[1], &*read.ground_truth), ("reward_model.ground_truth", ""));
    let refusal = read_value(&row(json!("b")), &named).unwrap_err();
    assert!(
        refusal.contains("gold: it is empty, and in the written file another key"),
        "{refusal}"
    );
    let row = json!({"question": "q", "reward_model": {"ground_truth": ""}, "answer": "b"});
    let read = read_value(&row, &keys).unwrap();
    assert_eq!((&*read.ground_truth, read.truth.readings), ("b", vec![Reading::BesideEmpty]));
}

#[test]
fn what_belongs_to_the_question_and_no_prompt_shows_is_named() {
    for (row, unseen) in [
        (
            json!({"question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answer": 1}),
            vec!["choices"],
        ),
        (
            json!({"Body": "Ann has 8.", "Question": "How many?", "Answer": 6, "Type": "Sum"}),
            vec!["Body"],
        ),
        (
            json!({"question": "q: a\nor b", "options": ["a", "b"], "input": " ", "context": null, "answer": 1}),
            vec![],
        ),
        (
            json!({"question": "q", "A": 3, "source": "x", "level": "5", "split": "train", "answer": "C"}),
            vec!["A"],
        ),
        (
            json!({"question": "q", "b": true, "d": "2020", "images": [{"bytes": "x"}], "Video": null, "answer": 1}),
            vec!["images"],
        ),
        (
            json!({"question": "q", "prompt": [{"role": "user", "content": "Think. q"}], "answer": 1}),
            vec!["prompt"],
        ),
        (
            json!({"question": "q r", "prompt": [{"role": "user", "content": " q  r\n"}], "answer": 1}),
            vec![],
        ),
    ] {
        assert_eq!(read_value(&row, &RowKeys::default()).unwrap().unseen, unseen, "{row}");
    }
    let row = json!({"input": "not True is", "target": "False"});
    let keys = RowKeys {
        question: Some("input".into()),
        answer: Some("target".into()),
        ..RowKeys::default()
    };
    assert!(read_value(&row, &keys).unwrap().unseen.is_empty());
}

#[test]
fn keys_are_found_whatever_their_case_and_further_columns_are_taken_as_they_are_written() {
    let row = json!({"ID": "2024-I-1", "Problem": "q", "Answer": 204, "tags": "algebra"});
    let read = read_value(&row, &RowKeys::default()).unwrap();
    assert_eq!((read.ground_truth.as_str(), &read.tags[..]), ("204", &["algebra".to_string()][..]));
    assert_eq!(read.index, Some(Index::Name("2024-I-1".to_string())));
    for (row, index) in [
        (json!({"question": "q", "answer": 1, "unique_id": 5}), Index::Name("5".to_string())),
        (json!({"question": "q", "answer": 1, "id": 1.5}), Index::Name("1.5".to_string())),
        (json!({"question": "q", "answer": 1, "extra_info": {"index": 3.0}}), Index::Number(3)),
    ] {
        assert_eq!(read_value(&row, &RowKeys::default()).unwrap().index, Some(index), "{row}");
    }
}

#[test]
fn a_worked_solution_contradicts_no_stated_answer_and_a_proof_states_none() {
    let read = |row: Value| read_value(&row, &RowKeys::default()).unwrap();
    let other =
        read(json!({"question": "q", "answer": "\\frac{1}{2}", "solution": "so \\boxed{0.5}"}));
    assert_eq!(other.ground_truth, "\\frac{1}{2}");
    let Truth { readings, solved, .. } = other.truth;
    assert_eq!((readings, solved.as_deref()), (vec![Reading::SolvedOtherwise], Some("0.5")));
    for row in [
        json!({"question": "q", "solution": "by\nmagic"}),
        json!({"question": "q", "answer": "", "solution": "by\nmagic"}),
    ] {
        let truth = read(row).truth;
        assert_eq!(
            (truth.readings, truth.stated.as_deref()),
            (vec![Reading::Unmarked], Some("by\\nmagic"))
        );
    }
}

#[test]
fn keys_that_differ_in_their_case_alone_may_say_the_same_or_nothing() {
    for (row, answer) in [
        (json!({"question": "q", "Answer": 1, "answer": " 1"}), "1"),
        (json!({"question": "q", "Answer": "1", "answer": null}), "1"),
        (json!({"question": "q", "ANSWER": 3, "Answer": "3"}), "3"),
        (json!({"question": "q", "ANSWER": "", "Answer": "3"}), "3"),
        (json!({"question": "q", "Answer": ""}), ""),
    ] {
        assert_eq!(read_value(&row, &RowKeys::default()).unwrap().ground_truth, answer, "{row}");
    }
    let row = json!({"question": "q", "Answer": "1", "answer": "2"});
    for (key, answer) in [("answer", "2"), ("Answer", "1")] {
        let keys = RowKeys { answer: Some(key.into()), ..RowKeys::default() };
        assert_eq!(read_value(&row, &keys).unwrap().ground_truth, answer);
    }
}
