//! Honest runs that look odd: `verify` accuses none of them.

use crate::verify::{copy, experiment, trained};
use dapo::base::files;
use dapo::experiment::{LogProbsOver, Sampling};
use dapo::verification::verify::replay::ReplayRequest;
use dapo::verification::verify::{self, Options, VerifyVerdict};
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn a_stop_token_may_be_ordinary_a_text_unreadable_and_one_token_alone_kept() {
    let embedded = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/mini-aime/base");
    type Change = fn(&mut Value);
    let changes: [(&str, &str, Change); 4] = [
        // Its texts cannot be tokenized again: that is no sign of anything.
        ("a decoder that puts blanks between tokens", "tokenizer.json", |it| {
            it["decoder"] = Value::Null;
            let vocabulary = it["model"]["vocab"].as_object_mut().unwrap();
            let blank = vocabulary.remove(" ").unwrap();
            vocabulary.insert("_".to_string(), blank);
        }),
        ("an added token that is not special", "tokenizer.json", |it| {
            it["added_tokens"][1]["special"] = json!(false);
        }),
        ("a character", "generation_config.json", |it| it["eos_token_id"] = json!(18)),
        ("a special one and a character", "generation_config.json", |it| {
            it["eos_token_id"] = json!([1, 15]);
        }),
    ];
    let kept = [(0.9, 0), (1.0, 3), (0.9, 3), (0.99, 0)];
    for ((name, file, change), (top_p, top_k)) in changes.into_iter().zip(kept) {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().join("base");
        copy(&embedded, &base);
        let mut value: Value = files::read_json(&base.join(file)).unwrap();
        change(&mut value);
        files::write_json(&base.join(file), &value).unwrap();
        let mut experiment = experiment();
        (experiment.inputs.model, experiment.training.rollout_steps) = (base.clone(), 1);
        let log_probs = Some(LogProbsOver::KeptTokens);
        experiment.rollout.sampling = Sampling { temperature: 1.0, top_p, top_k, log_probs };
        let (_run, folder) = trained(experiment);
        let replay = Some(ReplayRequest { steps: 1, problems: 4, challenge: 7 });
        let options = Options { base: Some(base.clone()), replay, ..Options::default() };
        let found = verify::verify(&folder, &options, &mut |_| ()).unwrap();
        if name.starts_with("a decoder") {
            assert_eq!(found.verdict, VerifyVerdict::Inconclusive, "{:#?}", found.checks);
        } else {
            assert_eq!(found.verdict, VerifyVerdict::Verified, "{name}: {:#?}", found.checks);
            assert!(found.summary.ends_with(", not the embedded benchmark's"), "{}", found.summary);
        }
    }
}
