//! Missing files of every verb, and places that cannot be written. Permissions do not bind
//! root, under which continuous integration may run: a path below a file and `/proc` do.

use crate::bad_input::Case;
use crate::bad_input::scratch::Scratch;

fn case(
    name: &'static str,
    make: fn(&Scratch),
    command: &'static str,
    says: &'static [&'static str],
) -> Case {
    Case { name, make, command, code: 3, says }
}

pub fn cases() -> Vec<Case> {
    let mut cases = missing();
    cases.extend(unwritable());
    cases
}

fn missing() -> Vec<Case> {
    let nothing: fn(&Scratch) = |_| ();
    vec![
        case(
            "train: no experiment",
            nothing,
            "train gone.toml",
            &["cannot read gone.toml: No such file"],
        ),
        case(
            "train: a base policy of the seed that was not made",
            |s| s.arm("[inputs]\nmodel = \"bases/{seed}\"\nbase = \"mine\"\n"),
            "train arm.toml --seed 7",
            &["there is no bases/7; `dapo model pretrain RECIPE --seed 7 --out bases/7` makes it"],
        ),
        case(
            "eval: no experiment",
            nothing,
            "eval gone.toml",
            &["cannot read gone.toml: No such file"],
        ),
        Case {
            name: "eval: no such set",
            make: |s| s.arm(""),
            command: "eval arm.toml --evaluation-set aime",
            code: 2,
            says: &["no evaluation set \"aime\"; there are dev, mini-aime, mini-aime-plus"],
        },
        case(
            "report: no folder",
            nothing,
            "report gone",
            &["gone is not a run folder: cannot read gone/experiment.json: No such file"],
        ),
        case(
            "report: an empty folder",
            |s| s.write("empty/.keep", ""),
            "report empty",
            &["empty is not a run folder"],
        ),
        case(
            "report: a file",
            |s| s.write("file", "x"),
            "report file",
            &["file/experiment.json: Not a directory"],
        ),
        case(
            "data: no file",
            nothing,
            "data prepare gone.parquet --out out",
            &["cannot read gone.parquet: No such file"],
        ),
        case(
            "data: no file to leave out",
            |s| s.write("a.jsonl", "{\"question\": \"1\", \"answer\": 1}"),
            "data prepare a.jsonl --without gone.jsonl --out out",
            &["cannot read gone.jsonl: No such file"],
        ),
        case(
            "grade: no file",
            nothing,
            "grade gone.jsonl",
            &["cannot read gone.jsonl: No such file"],
        ),
        case(
            "generate: no model",
            |s| s.write("p.jsonl", "{\"prompt\": \"1\"}"),
            "model generate --model gone --prompts p.jsonl",
            &["cannot read gone/config.json: No such file"],
        ),
        case(
            "generate: no prompts",
            |s| s.model(),
            "model generate --model model --prompts gone.jsonl",
            &["cannot read gone.jsonl: No such file"],
        ),
        case(
            "score: no model",
            nothing,
            "model score --model gone",
            &["cannot read gone/config.json: No such file"],
        ),
        case(
            "pretrain: no recipe",
            nothing,
            "model pretrain gone.toml --out base",
            &["cannot read gone.toml: No such file"],
        ),
        case("runs: no folder", nothing, "runs gone", &["cannot list gone: No such file"]),
        case("gc: no folder", nothing, "runs gc gone", &["cannot list gone: No such file"]),
        Case {
            name: "completions: no such shell",
            make: nothing,
            command: "completions tcsh",
            code: 2,
            says: &["invalid value 'tcsh'", "bash"],
        },
    ]
}

fn recipe(s: &Scratch) {
    let recipe = crate::golden_data::folder("mini-aime/recipe.toml");
    s.write("recipe.toml", dapo::base::files::read(&recipe).unwrap());
}

fn unwritable() -> Vec<Case> {
    vec![
        case(
            "train: --out is a file",
            |s| {
                s.arm("");
                s.write("out", "mine")
            },
            "train arm.toml --out out",
            &["out: "],
        ),
        case(
            "train: --out below a file",
            |s| {
                s.arm("");
                s.write("out", "mine")
            },
            "train arm.toml --out out/run",
            &["out/run: Not a directory"],
        ),
        case(
            "train: --out where nobody may write",
            |s| s.arm(""),
            "train arm.toml --no-plan --out /proc/run",
            &["/proc/run: "],
        ),
        case(
            "train: --out holds something else",
            |s| {
                s.arm("");
                s.write("out/checkpoints/mine.bin", "mine")
            },
            "train arm.toml --out out",
            &["out is not empty and holds no run (checkpoints is in it)"],
        ),
        case(
            "train: --out holds another run",
            |s| {
                s.arm("");
                s.run();
            },
            "train arm.toml --out run",
            &["run holds another run"],
        ),
        case(
            "train: --out holds a damaged manifest",
            |s| {
                s.arm("");
                s.write("out/manifest.json", "{")
            },
            "train arm.toml --out out",
            &["out/manifest.json: EOF while parsing"],
        ),
        case(
            "eval: --out holds a run",
            |s| {
                s.arm("");
                s.run();
            },
            "eval arm.toml --evaluation-set dev --out run",
            &["run holds a run, whose evaluations these would replace"],
        ),
        case(
            "eval: --out is a file",
            |s| {
                s.arm("");
                s.write("out", "mine")
            },
            "eval arm.toml --evaluation-set dev --out out",
            &["out: "],
        ),
        case(
            "data: --out is a file",
            |s| {
                s.write("a.jsonl", "{\"question\": \"1\", \"answer\": 1}");
                s.write("out", "mine")
            },
            "data prepare a.jsonl --out out",
            &["out: "],
        ),
        Case {
            name: "data: --out would replace the source",
            make: |s| {
                dapo::task::data::write(
                    &s.at("a.parquet"),
                    &[dapo::algorithm::rollout::Problem {
                        id: "a".into(),
                        question: "1".into(),
                        answer: "1".into(),
                    }],
                    true,
                )
                .unwrap()
            },
            command: "data prepare a.parquet --out .",
            code: 2,
            says: &["--out . would replace a.parquet"],
        },
        case(
            "pretrain: --out holds something else",
            |s| {
                recipe(s);
                s.write("out/model.safetensors", "mine")
            },
            "model pretrain recipe.toml --out out",
            &["out is not empty and holds no pretrain.jsonl"],
        ),
        case(
            "pretrain: --out is a file",
            |s| {
                recipe(s);
                s.write("out", "mine")
            },
            "model pretrain recipe.toml --out out",
            &["out: "],
        ),
    ]
}
