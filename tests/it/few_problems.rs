//! The first problems of every set of mini-AIME: evaluations are most of the time of a run of a few short steps.

use dapo::base::files;
use dapo::experiment::{Data, MiniAimeVariant};
use dapo::task::data::load;
use serde_json::json;
use std::path::Path;

/// Writes a file for each set, named after it.
pub fn files(folder: &Path) -> Data {
    let sets = load(&Data::MiniAime { variant: MiniAimeVariant::Standard }).unwrap();
    let write = |name: &str, problems: &[dapo::algorithm::Problem]| {
        let lines = problems.iter().map(|problem| {
            format!(
                "{}\n",
                json!({ "id": problem.id, "question": problem.question, "answer": problem.answer })
            )
        });
        let path = folder.join(name).with_extension("jsonl");
        files::write_atomic(&path, lines.collect::<String>().as_bytes()).unwrap();
        path
    };
    Data::Files {
        train: write("train", &sets.train[..256]),
        dev: write("dev", &sets.dev[..12]),
        test: sets.tests.iter().map(|(name, problems)| write(name, &problems[..12])).collect(),
    }
}
