//! `dapo eval --data`: a checkpoint on files of problems.

use crate::binary::{failed, line_in, succeeded};
use crate::golden_data;
use crate::transcript::play;
use dapo::algorithm::Problem;
use dapo::base::files;
use dapo::experiment::{
    Grading, MiniAimeVariant, PromptSettings, PromptTemplate, Sampling, Verifier,
};
use dapo::policy::{Qwen2, checkpoint};
use dapo::task::{Grader, Tokenizer, data, data::embedded::mini_aime};
use dapo::training::{Protocol, evaluation, evaluation::Set, evaluation::resumable};
use serde_json::Value;
use std::cell::Cell;

fn problems() -> Vec<Problem> {
    mini_aime::generate(MiniAimeVariant::Standard).dev[..6].to_vec()
}

const RULE: Grader = Grader::Rule(Verifier::AnswerLine);

fn protocol() -> Protocol {
    Protocol {
        prompt: PromptSettings::of(PromptTemplate::Question),
        stop: Vec::new(),
        max_prompt_tokens: 24,
        max_response_tokens: 60,
        sampling: Sampling { temperature: 1.0, top_p: 0.7, top_k: 0, log_probs: None },
        verifier: Grading::Rule(Verifier::AnswerLine),
        seed: 1,
        batch_rows: 2,
        keeps_rewards: true,
    }
}

fn base() -> (Qwen2, Tokenizer) {
    let folder = golden_data::folder("mini-aime/base");
    (checkpoint::load_model(&folder).unwrap(), Tokenizer::load(&folder).unwrap())
}

#[test]
fn an_interrupted_evaluation_goes_on_to_the_same_outcomes() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("set.partial.jsonl");
    let ((model, tokenizer), problems) = (base(), problems());
    let set = Set { name: "set", problems: &problems, samples: 4 };
    let session = |key: &str, parts: usize| {
        let (asked, begun) = (Cell::new(0), Cell::new(None));
        let stop = || asked.replace(asked.get() + 1) == parts;
        let progress = |done: usize, _: usize| begun.set(begun.get().or(Some(done)));
        let (protocol, kept) = ((&protocol(), &RULE), (kept.as_path(), key));
        let outcomes =
            resumable::outcomes(&model, &tokenizer, protocol, set, kept, &stop, progress);
        (outcomes.unwrap(), begun.get().unwrap())
    };
    // A part of four batches of two rows holds two problems.
    assert_eq!(session("a", 1), (None, 0));
    // Two sessions at once left a part twice; a killed one leaves half of one.
    let text = files::read_text(&kept).unwrap();
    let (_, part) = text.split_once('\n').unwrap();
    files::write_atomic(&kept, format!("{text}{part}{part:.400}").as_bytes()).unwrap();
    let (outcomes, begun) = session("a", usize::MAX);
    assert_eq!(begun, 8);
    let whole =
        evaluation::outcomes(&model, &tokenizer, (&protocol(), &RULE), set, |_, _| ()).unwrap();
    assert_eq!(outcomes.unwrap(), whole);
    let (protocol, other) = ((&protocol(), &RULE), (kept.as_path(), "b"));
    let refused =
        resumable::outcomes(&model, &tokenizer, protocol, set, other, &|| true, |_, _| ());
    let refusal = refused.unwrap_err().to_string();
    assert!(refusal.contains("an interrupted evaluation of another policy"), "{refusal}");
}

#[test]
fn a_file_is_evaluated_by_the_protocol_of_the_flags_and_each_problem_once() {
    let folder = tempfile::tempdir().unwrap();
    let twice = [problems(), problems()].concat().into_iter().enumerate();
    let twice = twice.map(|(at, problem)| Problem { id: format!("row/{at}"), ..problem });
    let rows: Vec<Problem> = twice.collect();
    data::write(&folder.path().join("set.parquet"), &rows, false).unwrap();
    let base = golden_data::folder("mini-aime/base").display().to_string();
    let line = format!(
        "eval --model {base} --data set.parquet --out out --template question --samples 4 \
         --max-prompt-tokens 24 --max-response-tokens 60"
    );
    let (table, _) = succeeded(line_in(folder.path(), &line));
    assert!(table.contains("6 × 4"), "{table}");
    assert!(table.contains("  these checkpoints, these problems: "), "{table}");
    assert!(table.contains("  another training run: none ("), "{table}");
    assert_eq!(files::list(&folder.path().join("out")).unwrap(), ["set.json", "set.parquet"]);
    let mut record: Value = files::read_json(&folder.path().join("out/set.json")).unwrap();
    assert_eq!((&record["problems"], &record["samples"]), (&Value::from(6), &Value::from(4)));
    let key = record.as_object_mut().unwrap().remove("key").unwrap();
    assert_eq!(key["protocol"]["sampling"]["top_p"], 0.7);
    assert_eq!(key["weights"].as_str().unwrap().len(), 64);
    // The same again computes nothing, and another evaluation or a file of the user's is not replaced.
    let (again, talk) = succeeded(line_in(folder.path(), &format!("{line} --json")));
    assert!(talk.contains("out/set.json: there already, nothing is computed"), "{talk}");
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap(), record);
    for (out, words) in [
        ("--out out --temperature 0.5", "holds an evaluation that differs in sampling, which"),
        ("--out .", "set.parquet holds something else than an evaluation"),
    ] {
        failed(line_in(folder.path(), &line.replace("--out out", out)), 3, words);
    }
}

#[test]
fn an_evaluation_states_its_checkpoints_step_and_replaces_no_other() {
    play(tempfile::tempdir().unwrap().path(), include_str!("eval_files/checkpoints.txt"));
}
