//! `dapo data`: what it writes and how it refuses.

use crate::binary::{Output, dapo, failed, line_in, succeeded};
use crate::golden_data;
use dapo::base::files;
use dapo::experiment::{Data, MiniAimeVariant};
use dapo::task::data;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn prepare(source: &Path, out: &Path, flags: &[&str]) -> Output {
    let fixed = ["data", "prepare", source.to_str().unwrap(), "--out", out.to_str().unwrap()];
    dapo(&[&fixed, flags].concat())
}

#[test]
fn prepared_mini_aime_is_the_embedded_benchmark() {
    let folder = tempfile::tempdir().unwrap();
    succeeded(prepare(Path::new("mini-aime"), folder.path(), &[]));
    let path = |name: &str| folder.path().join(format!("{name}.parquet"));
    let test = vec![path("mini-aime"), path("mini-aime-plus")];
    let prepared = Data::Files { train: path("train"), dev: path("dev"), test };
    let embedded = Data::MiniAime { variant: MiniAimeVariant::Standard };
    let [prepared, embedded] = [prepared, embedded].map(|sets| data::load(&sets).unwrap());
    assert!(prepared == embedded);
    let digests: Value = files::read_json(&folder.path().join("digests.json")).unwrap();
    assert_eq!(digests["train"]["sha256"], data::digest(&embedded.train));
    assert_eq!(digests["train"]["problems"], 17_000);
    let file = files::sha256_file(&path("dev")).unwrap();
    assert_eq!(digests["dev"]["file_sha256"], file);
}

#[test]
fn questions_with_several_answers_are_left_out_and_listed_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("set.jsonl");
    let lines = "{\"question\": \"p\", \"answer\": 1}\n{\"question\": \" p\", \"answer\": 2}\n\
                 {\"id\": \"x\", \"question\": \"q\", \"answer\": 3}\n";
    files::write_atomic(&source, lines.as_bytes()).unwrap();
    let out = folder.path().join("out");
    let refused = prepare(&source, &out, &["--refuse-conflicting"]);
    failed(refused, 3, "1 questions have conflicting answers");
    assert!(!out.exists());
    succeeded(prepare(&source, &out, &[]));
    let kept = data::problem_file::read(&out.join("set.parquet")).unwrap().problems;
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].id.as_str(), kept[0].answer.as_str()), ("x", "3"));
    let left_out: Vec<Value> = files::read_lines(&out.join("set.left-out.jsonl")).unwrap();
    let expected = serde_json::json!(
        [{"reason": "several answers", "question": "p", "answers": ["1", "2"]}]
    );
    assert_eq!(Value::Array(left_out), expected);
    let digests: Value = files::read_json(&out.join("digests.json")).unwrap();
    let told = &digests["set"]["source"];
    assert_eq!((&told["rows"], &told["conflicting"]), (&Value::from(3), &Value::from(1)));
    // A later preparation without contradictions leaves no list of an earlier one.
    files::write_atomic(&source, b"{\"question\": \"q\", \"answer\": 3}\n").unwrap();
    succeeded(prepare(&source, &out, &[]));
    assert!(!out.join("set.left-out.jsonl").exists());
}

#[test]
fn held_out_problems_are_a_set_of_their_own_whatever_the_order_of_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    let line = |n: u32| format!("{{\"question\": \"{n} + {n}?\", \"answer\": {}}}\n", 2 * n);
    let write = |name: &str, numbers: &mut dyn Iterator<Item = u32>| {
        let path = folder.path().join(name).join("set.jsonl");
        files::write_atomic(&path, numbers.map(line).collect::<String>().as_bytes()).unwrap();
        path
    };
    let mut questions = Vec::new();
    for (name, source) in
        [("up", write("up", &mut (1..=40))), ("down", write("down", &mut (1..=40).rev()))]
    {
        let out = folder.path().join(name).join("out");
        succeeded(prepare(&source, &out, &["--hold-out", "7"]));
        let read = |set: &str| {
            let path = out.join(format!("{set}.parquet"));
            let problems = data::problem_file::read(&path).unwrap().problems;
            problems.into_iter().map(|problem| problem.question).collect::<BTreeSet<String>>()
        };
        let (train, dev) = (read("set"), read("set-dev"));
        assert_eq!((train.len(), dev.len(), train.intersection(&dev).count()), (33, 7, 0));
        questions.push(dev);
    }
    assert_eq!(questions[0], questions[1]);
    // Another file goes beside it, and what is known of the first stays.
    let (out, other) = (folder.path().join("up/out"), folder.path().join("other.jsonl"));
    files::write_atomic(&other, line(50).as_bytes()).unwrap();
    succeeded(prepare(&other, &out, &[]));
    let digests: BTreeMap<String, Value> = files::read_json(&out.join("digests.json")).unwrap();
    assert_eq!(digests.keys().collect::<Vec<_>>(), ["other", "set", "set-dev"]);
    // Nothing may be left to train on.
    failed(
        prepare(&other, &folder.path().join("none"), &["--hold-out", "1"]),
        3,
        "no problems in it",
    );
}

#[test]
fn an_audit_counts_tokens_in_the_chat_template_and_names_an_end_of_turn_that_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let bytes = files::read(&golden_data::folder("tokenizers/byte-level.json")).unwrap();
    files::write_atomic(&at("tokenizer.json"), &bytes).unwrap();
    files::write_atomic(&at("generation_config.json"), b"{\"eos_token_id\": 1}").unwrap();
    files::write_atomic(&at("set.jsonl"), b"{\"question\": \"1+1?\", \"answer\": 2}").unwrap();
    let audit = || -> Value {
        let (_, out, _) = line_in(folder.path(), "data audit set.jsonl --tokenizer . --json");
        serde_json::from_str(&out).unwrap()
    };
    let plain = audit();
    assert_eq!(plain["prompts"]["lengths"]["longest"], 4);
    let chat = "{% for m in messages %}[{{ m.content }}|{% endfor %}";
    files::write_atomic(&at("chat_template.jinja"), chat.as_bytes()).unwrap();
    let in_chat = audit();
    assert_eq!(in_chat["prompts"]["lengths"]["longest"], 6);
    let warned = |audit: &Value| audit["findings"].to_string().contains("ends a turn with | (");
    assert_eq!((warned(&plain), warned(&in_chat)), (false, true));
}

#[test]
fn a_leak_is_found_however_it_is_written_and_what_looks_alike_is_left_to_a_person() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, questions: &[&str]| {
        let path = folder.path().join(name);
        let line = |question: &&str| {
            format!("{}\n", serde_json::json!({"question": question, "answer": 7}))
        };
        let lines: String = questions.iter().map(line).collect();
        files::write_atomic(&path, lines.as_bytes()).unwrap();
        path
    };
    let known =
        "Ann has three red pens and buys four blue ones at the shop; how many pens has she now?";
    let train = write(
        "train.jsonl",
        &[
            &format!("  {}  ", known.replace(' ', "  ")),
            &known.to_uppercase(),
            &known.replace([';', '?'], "."),
            "Ann has three red pens and buys four blue ones at the shop",
            "Find the number of primes below twenty.",
        ],
    );
    let test = write("test.jsonl", &[known, "How many days has a week?"]);
    let (out, without) = (folder.path().join("out"), ["--without", test.to_str().unwrap()]);
    let read = || data::problem_file::read(&out.join("train.parquet")).unwrap().problems.len();
    succeeded(prepare(&train, &out, &without));
    assert_eq!(read(), 2);
    let alike: Vec<Value> = files::read_lines(&out.join("train.alike.jsonl")).unwrap();
    assert_eq!(alike.len(), 1);
    assert!(alike[0]["other"] == known && alike[0]["share"] == 1.0, "{alike:?}");
    let digests: Value = files::read_json(&out.join("digests.json")).unwrap();
    let source = &digests["train"]["source"];
    assert_eq!((&source["evaluated"], &source["alike"]), (&Value::from(3), &Value::from(1)));
    let without = [without[0], without[1], "--without-alike"];
    succeeded(prepare(&train, &out, &without));
    assert_eq!(read(), 1);
    let left_out: Vec<Value> = files::read_lines(&out.join("train.left-out.jsonl")).unwrap();
    assert_eq!(left_out.len(), 4);
}
