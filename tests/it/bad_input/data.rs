//! Problems for training, prompts for `generate`, sequences for `score`, responses for `grade`.

use crate::bad_input::Case;
use crate::bad_input::scratch::{Scratch, half};
use dapo::algorithm::Problem;
use dapo::base::files;
use dapo::records::tables;
use dapo::task::data;

fn case(name: &'static str, make: fn(&Scratch), says: &'static [&'static str]) -> Case {
    Case { name, make, command: "train arm.toml --out run", code: 3, says }
}

fn verb(
    name: &'static str,
    make: fn(&Scratch),
    command: &'static str,
    says: &'static [&'static str],
) -> Case {
    Case { name, make, command, code: 3, says }
}

const GOOD: &str = "{\"question\": \"100+100?\", \"answer\": 200}\n";

/// A flag out of its range, with a policy, prompts and problems that are good.
fn flag(name: &'static str, command: &'static str, says: &'static [&'static str]) -> Case {
    let make = |s: &Scratch| {
        prompts(s, "{\"prompt\": \"1+1?\"}");
        s.write("problems.jsonl", "{\"question\": \"100+100?\", \"answer\": 200}\n");
    };
    Case { name, make, command, code: 2, says }
}

pub fn cases() -> Vec<Case> {
    let mut cases = lines();
    cases.extend(sets());
    cases.extend(parquet());
    cases.extend(verbs());
    cases
}

fn lines() -> Vec<Case> {
    vec![
        case(
            "training file missing",
            |s| {
                s.data();
                files::remove_file(&s.at("train.jsonl")).unwrap()
            },
            &["cannot read train.jsonl: No such file"],
        ),
        case(
            "training file of an unknown kind",
            |s| {
                s.data();
                s.arm("[inputs.data]\nkind = \"files\"\ntrain = \"train.csv\"\ndev = \"dev.jsonl\"\ntest = []")
            },
            &["train.csv: expected a file named *.parquet or *.jsonl"],
        ),
        case(
            "line that is not JSON",
            |s| s.data_with(format!("{GOOD}\n{{\"question\": }}\n")),
            &["train.jsonl:3: question: expected value at column 14"],
        ),
        case(
            "line with text after the JSON",
            |s| s.data_with(format!("{} x", GOOD.trim_end())),
            &["train.jsonl:1: trailing characters"],
        ),
        case(
            "line with a missing field",
            |s| s.data_with("{\"question\": \"1+1?\"}"),
            &["train.jsonl:1: answer: missing: no key ", "the row has question"],
        ),
        case(
            "line with a misspelt field",
            |s| s.data_with("{\"question\": \"1+1?\", \"asnwer\": 3}"),
            &["train.jsonl:1: answer: missing: ", "the row has asnwer, question"],
        ),
        case(
            "line with a field of the wrong type",
            |s| s.data_with("{\"question\": 3, \"answer\": 2}"),
            &["train.jsonl:1: question: expected text or a list of messages, got 3"],
        ),
        case(
            "answer that is several",
            |s| s.data_with("{\"question\": \"1+1?\", \"answer\": [2, 3]}"),
            &["train.jsonl:1: answer: a list of 2 answers, expected one"],
        ),
        case(
            "answer of 1e999",
            |s| s.data_with("{\"question\": \"1+1?\", \"answer\": 1e999}"),
            &["train.jsonl:1: ", "number out of range"],
        ),
        case(
            "line that is not UTF-8",
            |s| s.data_with([GOOD.as_bytes(), b"{\"question\": \"\xff\xfe\"}"].concat()),
            &["train.jsonl:2: not UTF-8 at byte 14"],
        ),
        case(
            "line nested 100,000 deep",
            |s| s.data_with("[".repeat(100_000)),
            &["train.jsonl:1: "],
        ),
        case(
            "line of 100 MB that is not JSON",
            |s| s.data_with("x".repeat(100_000_000)),
            &["train.jsonl:1: a line of more than 16777216 bytes"],
        ),
        case(
            "line of 14 MB that is a question",
            |s| {
                s.data_with(format!(
                    "{{\"question\": \"{}\", \"answer\": 1}}",
                    "1+".repeat(7_000_000)
                ))
            },
            &["problem train/00000: its prompt has 14000000 bytes, max_prompt_tokens is 24"],
        ),
        case(
            "hostile text in a line",
            |s| s.data_with("{\"question\": \"1+1?\", \"\\u001b]52;c;aGk=\\u0007\\u202e\": 3}"),
            &["train.jsonl:1: ", "\\u{1b}]52;c;aGk=\\u{7}\\u{202e}"],
        ),
        case(
            "empty question",
            |s| s.data_with("{\"question\": \" \", \"answer\": 2}"),
            &["train.jsonl: record 0 (from 0): the question is empty"],
        ),
        case(
            "question outside the vocabulary",
            |s| s.data_with("{\"question\": \"What is 1+1?\", \"answer\": 2}"),
            &[
                "problem train/00000",
                "cannot tokenize \"What is 1+1?\": 'W' is not in the vocabulary",
            ],
        ),
        case(
            "question longer than max_prompt_tokens",
            |s| s.data_with("{\"question\": \"100+100+100+100+100+100+100?\", \"answer\": 700}"),
            &["problem train/00000: its prompt has 28 tokens, max_prompt_tokens is 24"],
        ),
    ]
}

fn sets() -> Vec<Case> {
    vec![
        case("no problems", |s| s.data_with("\n\n"), &["train.jsonl: no problems in it"]),
        case(
            "contradictory answers",
            |s| s.data_with(format!("{GOOD}{}", GOOD.replace(": 200}", ": 201}"))),
            &[
                "train.jsonl: 1 questions have conflicting answers: \"100+100?\" has `200` (record 0) and `201` (record 1)",
            ],
        ),
        case(
            "two problems with one id",
            |s| {
                s.data_with("{\"id\": 1, \"question\": \"1+1?\", \"answer\": 2}\n{\"id\": 1, \"question\": \"1+2?\", \"answer\": 3}")
            },
            &["train.jsonl: two problems have the id `1`: \"1+1?\" and \"1+2?\""],
        ),
        case(
            "a development problem that is trained on",
            |s| s.data_with(format!("{GOOD}{{\"question\": \" 200+200?\", \"answer\": 400}}")),
            &[
                "1 problems of dev.jsonl also stand in the training file train.jsonl: \"200+200?\" (dev/00000)",
                "--without dev.jsonl",
            ],
        ),
        case(
            "a test problem that is trained on",
            |s| s.data_with("{\"question\": \"300+300?\", \"answer\": 600}"),
            &["1 problems of test.jsonl also stand in the training file train.jsonl"],
        ),
        case(
            "two test sets of one name",
            |s| {
                s.data();
                s.write("x/test.jsonl", GOOD);
                s.arm("[inputs.data]\nkind = \"files\"\ntrain = \"train.jsonl\"\ndev = \"dev.jsonl\"\ntest = [\"test.jsonl\", \"x/test.jsonl\"]")
            },
            &["x/test.jsonl: another evaluation set is also named `test`"],
        ),
        case(
            "a set without its k",
            |s| {
                s.data();
                let text = files::read_text(&s.at("arm.toml")).unwrap();
                s.write(
                    "arm.toml",
                    text.replace("{ dev = 1, test = 1 }", "{ dev = 1 }")
                        .replace("[\"test.jsonl\"]", "[\"other.jsonl\"]"),
                );
                s.write("other.jsonl", GOOD.replace("100", "150"))
            },
            &["evaluation.samples has no entry for the set other"],
        ),
        Case {
            name: "every problem ten times (one problem is kept)",
            make: |s| s.write("many.jsonl", GOOD.repeat(10)),
            command: "data prepare many.jsonl --out out",
            code: 0,
            says: &["many.jsonl: 10 rows, 1 problems"],
        },
        verb(
            "nothing left without an evaluation set",
            |s| {
                s.write("a.jsonl", GOOD);
                s.write("b.jsonl", GOOD)
            },
            "data prepare a.jsonl --without b.jsonl --out out",
            &["a.jsonl: no problems in it"],
        ),
    ]
}

/// A parquet file in the released schema.
fn released(s: &Scratch, name: &str, questions: &[&str]) {
    let problem = |question: &&str| Problem {
        id: format!("x/{question}"),
        question: question.to_string(),
        answer: "200".into(),
    };
    let problems: Vec<Problem> = questions.iter().map(problem).collect();
    data::write(&s.at(name), &problems, true).unwrap();
}

const PREPARE: &str = "data prepare set.parquet --out out";

fn parquet() -> Vec<Case> {
    vec![
        verb(
            "parquet of another schema",
            |s| tables::write_outcomes(&s.at("set.parquet"), &[]).unwrap(),
            PREPARE,
            &["set.parquet: no problems in it"],
        ),
        verb(
            "parquet without rows",
            |s| released(s, "set.parquet", &[]),
            PREPARE,
            &["set.parquet: no problems in it"],
        ),
        verb(
            "parquet cut in half",
            |s| {
                released(s, "whole.parquet", &["100+100?"]);
                s.write("set.parquet", half(files::read(&s.at("whole.parquet")).unwrap()))
            },
            PREPARE,
            &["set.parquet: not a readable parquet file: it does not begin and end with PAR1"],
        ),
        verb(
            "parquet with its middle gone",
            |s| {
                released(s, "whole.parquet", &["100+100?"]);
                let mut bytes = files::read(&s.at("whole.parquet")).unwrap();
                let middle = bytes.len() / 2;
                bytes.drain(middle - 100..middle + 100);
                s.write("set.parquet", bytes)
            },
            PREPARE,
            &["set.parquet: not a readable parquet file: "],
        ),
        verb(
            "parquet whose footer claims 4 GB",
            |s| {
                released(s, "whole.parquet", &["100+100?"]);
                let mut bytes = files::read(&s.at("whole.parquet")).unwrap();
                let end = bytes.len();
                bytes[end - 8..end - 4].copy_from_slice(&[0xff; 4]);
                s.write("set.parquet", bytes)
            },
            PREPARE,
            &["set.parquet: not a readable parquet file: "],
        ),
        verb(
            "text named .parquet",
            |s| s.write("set.parquet", GOOD),
            PREPARE,
            &["set.parquet: not a readable parquet file: it does not begin and end with PAR1"],
        ),
        verb(
            "empty file named .parquet",
            |s| s.write("set.parquet", ""),
            PREPARE,
            &["set.parquet: not a readable parquet file"],
        ),
        verb(
            "audit: a page that claims 2^61 values",
            |s| {
                released(s, "whole.parquet", &["100+100?", "100+101?"]);
                let mut bytes = files::read(&s.at("whole.parquet")).unwrap();
                // Behind the magic stands the header of the first page: its sizes are claims.
                bytes[5..12].copy_from_slice(&[0xff; 7]);
                s.write("set.parquet", bytes)
            },
            "data audit set.parquet",
            &["set.parquet: not a readable parquet file: "],
        ),
        verb(
            "audit: a line of 20 MB",
            |s| s.write("a.jsonl", format!("{{\"question\": \"{}\"", "x".repeat(20_000_000))),
            "data audit a.jsonl",
            &["a.jsonl:1: a line of more than 16777216 bytes"],
        ),
        verb(
            "audit: a folder for a tokenizer that has none",
            |s| s.write("a.jsonl", GOOD),
            "data audit a.jsonl --tokenizer .",
            &["tokenizer.json: No such file"],
        ),
        verb(
            "audit: a question that the tokenizer cannot express",
            |s| {
                with_base(s);
                s.write("a.jsonl", "{\"question\": \"Q\", \"answer\": 1}")
            },
            "data audit a.jsonl --tokenizer base",
            &["a.jsonl: record 0 (from 0): cannot tokenize \"Q\": 'Q' is not in the vocabulary"],
        ),
    ]
}

fn base() -> String {
    crate::golden_data::folder("mini-aime/base").display().to_string()
}

/// `base`, a link to the base policy.
fn with_base(s: &Scratch) {
    std::os::unix::fs::symlink(base(), s.at("base")).unwrap();
}

fn prompts(s: &Scratch, text: &str) {
    with_base(s);
    s.write("p.jsonl", text);
}

fn scores(s: &Scratch, text: &str) {
    with_base(s);
    s.write("stdin", text);
}

const GENERATE: &str = "model generate --model base --prompts p.jsonl";
const SCORE: &str = "model score --model base";
const GRADE: &str = "grade r.jsonl --explain";

fn verbs() -> Vec<Case> {
    vec![
        verb("prompts: none", |s| prompts(s, ""), GENERATE, &["p.jsonl holds no prompts"]),
        verb(
            "prompts: not JSON",
            |s| prompts(s, "{\"prompt\": \"1+1?\"}\n{"),
            GENERATE,
            &["p.jsonl:2: EOF while parsing"],
        ),
        verb(
            "prompts: neither text nor ids",
            |s| prompts(s, "{}"),
            GENERATE,
            &["p.jsonl: record 1 needs either \"prompt\" or \"prompt_ids\""],
        ),
        verb(
            "prompts: a token beyond the vocabulary",
            |s| prompts(s, "{\"prompt_ids\": [4000]}"),
            GENERATE,
            &["prompt 0 holds token 4000, the vocabulary has 26"],
        ),
        verb(
            "prompts: longer than the positions",
            |s| prompts(s, "{\"prompt\": \"1+1?\"}"),
            "model generate --model base --prompts p.jsonl --max-tokens 4294967295",
            &["exceeds the model's 256 positions"],
        ),
        verb(
            "prompts: a character outside the vocabulary",
            |s| prompts(s, "{\"prompt\": \"\\u001b[2J\"}"),
            GENERATE,
            &["cannot tokenize \"\\u{1b}[2J\""],
        ),
        verb(
            "sequences: not JSON",
            |s| scores(s, "{\"prompt_ids\": [1], \"response_ids\": [1]}\nnonsense"),
            SCORE,
            &["standard input:2: expected"],
        ),
        verb(
            "sequences: a token beyond the vocabulary",
            |s| scores(s, "{\"prompt_ids\": [1], \"response_ids\": [99]}"),
            SCORE,
            &["standard input, record 1: token 99 is not in the vocabulary of 26"],
        ),
        verb(
            "sequences: a negative token",
            |s| scores(s, "{\"prompt_ids\": [-1], \"response_ids\": [1]}"),
            SCORE,
            &["standard input:1: prompt_ids[0]: invalid value: integer `-1`"],
        ),
        verb(
            "sequences: no prompt",
            |s| scores(s, "{\"prompt_ids\": [], \"response_ids\": [1]}"),
            SCORE,
            &["prompt_ids is empty"],
        ),
        verb(
            "responses: not JSON",
            |s| s.write("r.jsonl", "{\"response\": \"1\", \"ground_truth\": \"1\"}\n\u{1b}"),
            GRADE,
            &["r.jsonl:2: expected value"],
        ),
        verb(
            "responses: a field missing",
            |s| s.write("r.jsonl", "{\"response\": \"1\"}"),
            GRADE,
            &["r.jsonl:1: missing field `ground_truth`"],
        ),
        Case {
            name: "responses: 1 MB without a line end (graded)",
            make: |s| {
                s.write(
                    "r.jsonl",
                    format!(
                        "{{\"response\": \"{}Answer: 7\", \"ground_truth\": \"7\"}}",
                        "x ".repeat(500_000)
                    ),
                )
            },
            command: GRADE,
            code: 0,
            says: &["\"acc\":true"],
        },
        Case {
            name: "responses: hostile text (graded, printed as escapes)",
            make: |s| {
                s.write("r.jsonl", "{\"response\": \"Answer: \\u001b[2J\\u009b31m\\u202e\\u007f\", \"ground_truth\": \"7\"}")
            },
            command: GRADE,
            code: 0,
            says: &["\\u001b[2J\\u009b31m\\u202e\\u007f"],
        },
        flag(
            "generate: no samples",
            "model generate --model base --prompts p.jsonl -n 0",
            &["'--samples <SAMPLES>': 0 is not in 1..=16777216"],
        ),
        flag(
            "generate: more samples than any count",
            "model generate --model base --prompts p.jsonl -n 4294967295",
            &["'--samples <SAMPLES>': 4294967295 is not in 1..=16777216"],
        ),
        flag(
            "generate: more responses than can be held",
            "model generate --model base --prompts p.jsonl -n 16777216",
            &["-n 16777216 asks for 16777216 responses", "at most 16 GiB are held, which is -n "],
        ),
        flag(
            "generate: no rows at a time",
            "model generate --model base --prompts p.jsonl --batch 0",
            &["'--batch <BATCH>': 0 is not in 1..=16777216"],
        ),
        flag(
            "generate: no threads",
            "model generate --model base --prompts p.jsonl --threads 0",
            &["'--threads <THREADS>': 0 is not in 1..=1024"],
        ),
        flag(
            "generate: more threads than any machine",
            "model generate --model base --prompts p.jsonl --threads 100000",
            &["'--threads <THREADS>': 100000 is not in 1..=1024"],
        ),
        flag(
            "score: no threads",
            "model score --model base --threads 0",
            &["'--threads <THREADS>': 0 is not in 1..=1024"],
        ),
        flag(
            "score: more threads than any machine",
            "model score --model base --threads 100000",
            &["'--threads <THREADS>': 100000 is not in 1..=1024"],
        ),
        flag(
            "eval: more threads than any machine",
            "eval --model base --data p.jsonl --threads 100000",
            &["'--threads <THREADS>': 100000 is not in 1..=1024"],
        ),
        flag(
            "eval: more responses than can be held",
            "eval --model base --data problems.jsonl --template question --max-prompt-tokens 24 \
             --max-response-tokens 160 --samples 16777216",
            &["--samples 16777216 asks for 16777216 responses", "at most 16 GiB are held"],
        ),
        flag(
            "throughput: no threads",
            "bench throughput --model base --threads 0",
            &["'--threads <THREADS>': 0 is not in 1..=1024"],
        ),
        flag(
            "train: more threads than a flag may ask for",
            "train arm.toml --threads 100000",
            &["'--threads <THREADS>': 100000 is not in 1..=1024"],
        ),
    ]
}
