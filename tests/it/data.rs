//! `dapo data`: what it writes and how it refuses.

use crate::binary::{json, line_in, succeeded};
use crate::golden_data;
use dapo::algorithm::Problem;
use dapo::base::files;
use dapo::experiment::{Data, MiniAimeVariant};
use dapo::task::data;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A folder in which problems are prepared.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        files::write_atomic(&self.path(name), text.as_bytes()).unwrap();
    }

    fn prepare(&self, rest: &str) {
        succeeded(line_in(self.0.path(), &format!("data prepare {rest}")));
    }

    fn problems(&self, name: &str) -> Vec<Problem> {
        data::problem_file::read(&self.path(name)).unwrap().problems
    }

    fn digests(&self, out: &str) -> Value {
        files::read_json(&self.path(out).join("digests.json")).unwrap()
    }
}

#[test]
fn prepared_mini_aime_is_the_embedded_benchmark() {
    let scratch = Scratch::new();
    scratch.prepare("mini-aime --out out");
    let path = |name: &str| scratch.path(&format!("out/{name}.parquet"));
    let test = vec![path("mini-aime"), path("mini-aime-plus")];
    let prepared = Data::Files { train: path("train"), dev: path("dev"), test };
    let embedded = Data::MiniAime { variant: MiniAimeVariant::Standard };
    let [prepared, embedded] = [prepared, embedded].map(|sets| data::load(&sets).unwrap());
    assert!(prepared == embedded);
    let digests = scratch.digests("out");
    assert_eq!(digests["train"]["sha256"], data::digest(&embedded.train));
    assert_eq!(digests["train"]["problems"], 17_000);
    assert_eq!(digests["dev"]["file_sha256"], files::sha256_file(&path("dev")).unwrap());
}

#[test]
fn questions_with_several_answers_are_left_out_and_listed() {
    let scratch = Scratch::new();
    let lines = "{\"question\": \"p\", \"answer\": 1}\n{\"question\": \" p\", \"answer\": 2}\n\
                 {\"id\": \"x\", \"question\": \"q\", \"answer\": 3}\n";
    scratch.write("set.jsonl", lines);
    scratch.prepare("set.jsonl --out out");
    let kept = Problem { id: "x".into(), question: "q".into(), answer: "3".into() };
    assert_eq!(scratch.problems("out/set.parquet"), [kept]);
    let list = scratch.path("out/set.left-out.jsonl");
    let left_out: Vec<Value> = files::read_lines(&list).unwrap();
    let expected = json!({"reason": "several answers", "question": "p", "answers": ["1", "2"]});
    assert_eq!(left_out, [expected]);
    let source = &scratch.digests("out")["set"]["source"];
    assert_eq!((&source["rows"], &source["conflicting"]), (&json!(3), &json!(1)));
    // A later preparation without contradictions leaves no list of an earlier one.
    scratch.write("set.jsonl", "{\"question\": \"q\", \"answer\": 3}\n");
    scratch.prepare("set.jsonl --out out");
    assert!(!list.exists());
}

#[test]
fn held_out_problems_are_a_set_of_their_own_whatever_the_order_of_the_rows() {
    let scratch = Scratch::new();
    let lines = |numbers: &[u32]| -> String {
        let line = |n| json!({"question": format!("{n} + {n}?"), "answer": 2 * n}).to_string();
        numbers.iter().map(|n| line(n) + "\n").collect()
    };
    let mut numbers: Vec<u32> = (1..=40).collect();
    let held_out = ["up", "down"].map(|out| {
        scratch.write("set.jsonl", &lines(&numbers));
        numbers.reverse();
        scratch.prepare(&format!("set.jsonl --hold-out 7 --out {out}"));
        let [train, dev] = ["set", "set-dev"].map(|set| {
            let problems = scratch.problems(&format!("{out}/{set}.parquet"));
            problems.into_iter().map(|problem| problem.question).collect::<BTreeSet<String>>()
        });
        assert_eq!((train.len(), dev.len(), train.intersection(&dev).count()), (33, 7, 0));
        dev
    });
    assert_eq!(held_out[0], held_out[1]);
    // Another file goes beside it, and what is known of the first stays.
    scratch.write("other.jsonl", &lines(&[50]));
    scratch.prepare("other.jsonl --out up");
    let digests = scratch.digests("up");
    let sets = digests.as_object().unwrap().keys();
    assert!(sets.eq(["other", "set", "set-dev"]), "{digests}");
}

#[test]
fn an_audit_counts_tokens_in_the_chat_template_and_names_an_end_of_turn_that_stops_nothing() {
    let scratch = Scratch::new();
    let tokenizer = files::read_text(&golden_data::folder("tokenizers/byte-level.json")).unwrap();
    scratch.write("tokenizer.json", &tokenizer);
    scratch.write("generation_config.json", "{\"eos_token_id\": 1}");
    scratch.write("set.jsonl", "{\"question\": \"1+1?\", \"answer\": 2}");
    let audit = || {
        let audit = json(line_in(scratch.0.path(), "data audit set.jsonl --tokenizer . --json"));
        let is_warned = audit["findings"].to_string().contains("ends a turn with | (");
        (audit["prompts"]["lengths"]["longest"].as_u64(), is_warned)
    };
    assert_eq!(audit(), (Some(4), false));
    scratch.write("chat_template.jinja", "{% for m in messages %}[{{ m.content }}|{% endfor %}");
    assert_eq!(audit(), (Some(6), true));
}

#[test]
fn a_leak_is_found_however_it_is_written_and_what_looks_alike_is_left_to_a_person() {
    let scratch = Scratch::new();
    let write = |name: &str, questions: &[&str]| {
        let line = |question| json!({"question": question, "answer": 7}).to_string() + "\n";
        scratch.write(name, &questions.iter().map(line).collect::<String>());
    };
    let known =
        "Ann has three red pens and buys four blue ones at the shop; how many pens has she now?";
    let questions = [
        &format!("  {}  ", known.replace(' ', "  ")),
        &known.to_uppercase(),
        &known.replace([';', '?'], "."),
        "Ann has three red pens and buys four blue ones at the shop",
        "Find the number of primes below twenty.",
    ];
    write("train.jsonl", &questions);
    write("test.jsonl", &[known, "How many days has a week?"]);
    let prepare = "train.jsonl --out out --without test.jsonl";
    scratch.prepare(prepare);
    assert_eq!(scratch.problems("out/train.parquet").len(), 2);
    let alike: Vec<Value> = files::read_lines(&scratch.path("out/train.alike.jsonl")).unwrap();
    assert_eq!(alike.len(), 1);
    assert!(alike[0]["other"] == known && alike[0]["share"] == 1.0, "{alike:?}");
    let source = &scratch.digests("out")["train"]["source"];
    assert_eq!((&source["evaluated"], &source["alike"]), (&json!(3), &json!(1)));
    scratch.prepare(&format!("{prepare} --without-alike"));
    assert_eq!(scratch.problems("out/train.parquet").len(), 1);
    let left_out: Vec<Value> =
        files::read_lines(&scratch.path("out/train.left-out.jsonl")).unwrap();
    assert_eq!(left_out.len(), 4);
}
