//! Run folders of which a file is missing, cut off or something else: a report refuses by name,
//! or says what is missing.

use crate::bad_input::Case;
use crate::bad_input::scratch::{Scratch, garbage, half};
use crate::run_fixture;

const REPORT: &str = "report run";

fn refused(name: &'static str, make: fn(&Scratch), says: &'static [&'static str]) -> Case {
    Case { name, make, command: REPORT, code: 3, says }
}

fn described(name: &'static str, make: fn(&Scratch), says: &'static [&'static str]) -> Case {
    Case { name, make, command: REPORT, code: 0, says }
}

pub fn cases() -> Vec<Case> {
    let mut cases = missing();
    cases.extend(cut());
    cases.extend(other());
    cases.extend(hostile());
    cases
}

fn missing() -> Vec<Case> {
    vec![
        refused(
            "experiment.json missing",
            |s| s.run_without("experiment.json"),
            &["run is not a run folder: cannot read run/experiment.json"],
        ),
        refused(
            "manifest.json missing",
            |s| s.run_without("manifest.json"),
            &["cannot read run/manifest.json: No such file"],
        ),
        described(
            "environment.json missing",
            |s| s.run_without("environment.json"),
            &["Finished: "],
        ),
        described(
            "metrics.jsonl missing",
            |s| s.run_without("metrics.jsonl"),
            &["not so: ", "metrics.jsonl is missing"],
        ),
        described("timings.jsonl missing", |s| s.run_without("timings.jsonl"), &["Finished: "]),
        described(
            "evaluations.jsonl missing",
            |s| s.run_without("evaluations.jsonl"),
            &["No evaluation is recorded yet", "evaluations.jsonl is missing"],
        ),
        described(
            "outcome.json missing",
            |s| s.run_without("outcome.json"),
            &["This run is unfinished: 40 of 40 rollout steps"],
        ),
        described(
            "table of an evaluation missing",
            |s| s.run_without("evaluations/dev-step-000040.parquet"),
            &["evaluations/dev-step-000040.parquet is missing", "dev at step 40: no table"],
        ),
        described(
            "table of rollouts missing",
            |s| s.run_without("rollouts/step-000040.parquet"),
            &["rollouts/step-000040.parquet is missing"],
        ),
        described(
            "checkpoint missing",
            |s| s.run_without("checkpoints/step-000040/model.safetensors"),
            &["checkpoints/step-000040/model.safetensors is missing"],
        ),
        described(
            "nothing but the identity",
            |s| {
                run_fixture::started(&s.at("run"));
            },
            &["This run is unfinished: 0 of 40", "No evaluation is recorded yet"],
        ),
    ]
}

fn cut() -> Vec<Case> {
    vec![
        refused(
            "experiment.json cut off",
            |s| s.run_with("experiment.json", half),
            &["run/experiment.json: ", "EOF while parsing"],
        ),
        refused(
            "manifest.json cut off",
            |s| s.run_with("manifest.json", half),
            &["run/manifest.json: ", "EOF while parsing"],
        ),
        refused(
            "environment.json cut off",
            |s| s.run_with("environment.json", half),
            &["run/environment.json: "],
        ),
        refused(
            "metrics.jsonl cut off",
            |s| {
                s.run_with("metrics.jsonl", |mut bytes| {
                    bytes.truncate(bytes.len() - 20);
                    bytes
                })
            },
            &["run/metrics.jsonl:40: "],
        ),
        refused(
            "timings.jsonl cut off",
            |s| {
                s.run_with("timings.jsonl", |mut bytes| {
                    bytes.truncate(bytes.len() - 20);
                    bytes
                })
            },
            &["run/timings.jsonl:40: "],
        ),
        refused(
            "evaluations.jsonl cut off",
            |s| {
                s.run_with("evaluations.jsonl", |mut bytes| {
                    bytes.truncate(bytes.len() - 20);
                    bytes
                })
            },
            &["run/evaluations.jsonl:9: "],
        ),
        refused(
            "outcome.json cut off",
            |s| s.run_with("outcome.json", half),
            &["run/outcome.json: "],
        ),
        refused(
            "table of an evaluation cut off",
            |s| s.run_with("evaluations/dev-step-000040.parquet", half),
            &["run/evaluations/dev-step-000040.parquet: not a readable parquet file"],
        ),
        refused(
            "table of rollouts cut off",
            |s| s.run_with("rollouts/step-000040.parquet", half),
            &["run/rollouts/step-000040.parquet: not a readable parquet file"],
        ),
        described(
            "checkpoint cut off",
            |s| s.run_with("checkpoints/step-000040/model.safetensors", half),
            &["checkpoints/step-000040/model.safetensors differs"],
        ),
    ]
}

fn other() -> Vec<Case> {
    vec![
        refused(
            "experiment.json is something else",
            |s| s.run_with("experiment.json", garbage),
            &["run/experiment.json"],
        ),
        refused(
            "manifest.json is something else",
            |s| s.run_with("manifest.json", garbage),
            &["run/manifest.json"],
        ),
        refused(
            "environment.json is something else",
            |s| s.run_with("environment.json", garbage),
            &["run/environment.json"],
        ),
        refused(
            "metrics.jsonl is something else",
            |s| s.run_with("metrics.jsonl", garbage),
            &["run/metrics.jsonl:1: not UTF-8"],
        ),
        refused(
            "timings.jsonl is something else",
            |s| s.run_with("timings.jsonl", garbage),
            &["run/timings.jsonl:1: not UTF-8"],
        ),
        refused(
            "evaluations.jsonl is something else",
            |s| s.run_with("evaluations.jsonl", garbage),
            &["run/evaluations.jsonl:1: not UTF-8"],
        ),
        refused(
            "outcome.json is something else",
            |s| s.run_with("outcome.json", garbage),
            &["run/outcome.json"],
        ),
        refused(
            "table of an evaluation is something else",
            |s| s.run_with("evaluations/dev-step-000040.parquet", garbage),
            &["dev-step-000040.parquet: not a readable parquet file"],
        ),
        refused(
            "table of rollouts is something else",
            |s| s.run_with("rollouts/step-000001.parquet", garbage),
            &["step-000001.parquet: not a readable parquet file"],
        ),
        refused(
            "table of rollouts in place of an evaluation's",
            |s| {
                let run = s.run();
                let bytes = dapo::base::files::read(&run.rollouts(40)).unwrap();
                dapo::base::files::write_atomic(&run.outcomes("dev", 40), &bytes).unwrap()
            },
            &["dev-step-000040.parquet: column `group` does not belong in this table"],
        ),
        refused(
            "metrics.jsonl with an unknown key",
            |s| {
                s.run_with("metrics.jsonl", |bytes| {
                    [b"{\"step\": 1, \"stepp\": 2}\n".to_vec(), bytes].concat()
                })
            },
            &["run/metrics.jsonl:1: ", "unknown field `stepp`"],
        ),
        Case {
            name: "runs: a damaged run is listed as such",
            make: |s| s.run_with("outcome.json", half),
            command: "runs .",
            code: 0,
            says: &["| damaged", "./run: ./run/outcome.json: "],
        },
        Case {
            name: "runs: a run cut off while it wrote is unfinished",
            make: |s| {
                s.run_with("metrics.jsonl", half);
                dapo::base::files::remove_file(&s.at("run/outcome.json")).unwrap()
            },
            command: "runs .",
            code: 0,
            says: &["| unfinished", "metrics.jsonl:"],
        },
    ]
}

fn hostile() -> Vec<Case> {
    vec![
        described(
            "hostile text in a name and a reason",
            |s| {
                s.run_with("manifest.json", |bytes| {
                    String::from_utf8(bytes)
                        .unwrap()
                        .replace(
                            "\"name\": \"dapo\"",
                            "\"name\": \"\\u001b]52;c;aGk=\\u0007\\u202e\"",
                        )
                        .into_bytes()
                });
            },
            &["\\u{1b}]52;c;aGk=\\u{7}\\u{202e}: "],
        ),
        Case {
            name: "report --json of hostile text",
            make: |s| {
                s.run();
            },
            command: "report run --json",
            code: 0,
            says: &["\\\\u{1b}[2J"],
        },
        Case {
            name: "runs: hostile text in a name",
            make: |s| {
                s.run_with("manifest.json", |bytes| {
                    String::from_utf8(bytes)
                        .unwrap()
                        .replace("\"name\": \"dapo\"", "\"name\": \"\\u001b[2J\\r\"")
                        .into_bytes()
                });
            },
            command: "runs .",
            code: 0,
            says: &["\\u{1b}[2J\\r"],
        },
        Case {
            name: "runs --json: hostile text in a name",
            make: |s| {
                s.run_with("manifest.json", |bytes| {
                    String::from_utf8(bytes)
                        .unwrap()
                        .replace("\"name\": \"dapo\"", "\"name\": \"\\u001b[2J\\u009b\"")
                        .into_bytes()
                });
            },
            command: "runs . --json",
            code: 0,
            says: &["\\u001b[2J\\u009b"],
        },
    ]
}
