//! Every command that README, the READMEs below it, `docs/`, a study's report and the help texts print works.
//! [`COMMANDS`] says of each whether it is run, in a small copy of a checkout, or only parsed, and
//! why. A printed command that is not listed fails, and so does a listed one that nothing prints.

use crate::{repository, study_fixture};
use clap::{CommandFactory, Parser};
use dapo::base::files;
use dapo::commands::Cli;
use dapo::report::study;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// What becomes of a printed command.
enum How {
    /// Run as it is printed.
    Run,
    /// Run with names of what is there in place of what the text leaves open, or without the probe of
    /// a plan, which takes seconds.
    As(&'static str),
    /// Parsed alone, because of this.
    Parsed(&'static str),
}

const CARD: &str = "needs a graphics card";
const MODEL: &str = "needs a model with thousands of positions and a chat template";
const MINUTES: &str = "takes minutes";
const REAL: &str = "needs the model that ./justw smollm2 fetches";
const TRAINER: &str = "starts another trainer, or reads what one wrote";
const TOOLS: &str = "runs tools that are not the binary";

/// Every printed command, in an order in which they can be run.
const COMMANDS: &[(&str, How)] = {
    use How::{As, Parsed, Run};
    &[
        // train, plan
        ("./justw reproduce", Run),
        ("dapo train experiments/dapo.toml", As("dapo train experiments/dapo.toml --no-plan")),
        (
            "dapo train experiments/dapo.toml --seed 2 --out runs/dapo-2",
            As("dapo train experiments/dapo.toml --seed 2 --out runs/dapo-2 --no-plan"),
        ),
        (
            "dapo train experiments/base.toml --seed 2 --out runs/grpo-2",
            As("dapo train experiments/base.toml --seed 2 --out runs/grpo-2 --no-plan"),
        ),
        ("dapo train experiments/base.toml --seed 2 --out runs/grpo-2 --resume", Run),
        ("./justw train experiments/arms/my-arm.toml", Run),
        (
            "target/debug/dapo train experiments/own-task/own-task.toml --out runs/own-task",
            As("dapo train experiments/own-task/own-task.toml --out runs/own-task --no-plan"),
        ),
        ("dapo train experiments/qwen2.5/dapo-0.5b.toml", Parsed(CARD)),
        ("dapo plan experiments/dapo.toml", As("dapo plan experiments/dapo.toml --no-probe")),
        (
            "dapo plan experiments/dapo.toml --threads 1",
            As("dapo plan experiments/dapo.toml --threads 1 --no-probe"),
        ),
        ("dapo plan experiments/base.toml --threads 1 --json", Run),
        ("dapo plan EXPERIMENT", As("dapo plan experiments/smoke.toml --no-probe")),
        ("dapo plan experiments/qwen2.5/dapo-0.5b.toml", Parsed(CARD)),
        // studies
        ("dapo init my-study", Run),
        ("dapo init demo && dapo ablate demo", As("dapo init demo && dapo ablate demo --dry-run")),
        (
            "dapo init my-study --arms grpo,dapo,dr-grpo --seeds 1..8",
            As("dapo init study-2 --arms grpo,dapo,dr-grpo --seeds 1..8"),
        ),
        (
            "dapo init my-study --model MODEL --train train.jsonl --dev dev.jsonl --test test.jsonl",
            Parsed(MODEL),
        ),
        (
            "dapo init my-study --model models/Qwen2.5-0.5B --train train.jsonl --dev dev.jsonl --test test.jsonl \
             --arms grpo,clip-higher,dapo,dr-grpo --seeds 1..5",
            Parsed(MODEL),
        ),
        ("dapo ablate my-study --dry-run", Run),
        ("dapo ablate my-study", Parsed(MINUTES)),
        (
            "dapo compare my-study --arm dapo --against grpo --fail-if worse",
            As("dapo compare runs/ablate --arm dynamic-sampling --against grpo"),
        ),
        (
            "dapo compare my-study --arm dr-grpo --against grpo --fail-if worse",
            As("dapo compare runs/ablate --arm token-level-loss --against grpo"),
        ),
        (
            "target/debug/dapo ablate experiments/own-task/grids/own-task.toml --out runs/own-study",
            Run,
        ),
        ("target/debug/dapo report runs/own-study", Run),
        ("dapo ablate ladder", Parsed(MINUTES)),
        ("./justw ablate", Parsed(MINUTES)),
        ("dapo ablate ladder add-one --seeds 1..5 --jobs 2", Parsed(MINUTES)),
        ("dapo ablate ladder --seeds 1..5 --jobs 2", Parsed(MINUTES)),
        ("dapo ablate ladder --out runs/seed-7 --seeds 7 --last-checkpoint-only", Parsed(MINUTES)),
        (
            "dapo ablate ladder held-out --out runs/registered --declaration experiments/study.toml",
            Parsed(MINUTES),
        ),
        ("dapo ablate add-one leave-one-out fidelity held-out learning-rate", Parsed(MINUTES)),
        (
            "dapo ablate ladder held-out add-one leave-one-out learning-rate fidelity --jobs 2 \
             --last-checkpoint-only --declaration experiments/study.toml --out reports/study-1",
            Parsed(MINUTES),
        ),
        (
            "dapo ablate methods mismatch --jobs 2 --last-checkpoint-only --out reports/methods-1",
            Parsed(MINUTES),
        ),
        (
            "dapo ablate engines --declaration experiments/engines/study.toml --jobs 2 --last-checkpoint-only \
             --out reports/engines-1",
            Parsed(TRAINER),
        ),
        (
            "dapo ablate experiments/qwen2.5/grids/ladder-0.5b.toml --jobs 1 --out runs/ladder-0.5b",
            Parsed(CARD),
        ),
        ("dapo ablate NAME", As("dapo ablate ladder --dry-run")),
        (
            "dapo ablate PATH.toml",
            As("dapo ablate experiments/own-task/grids/own-task.toml --dry-run"),
        ),
        ("dapo ablate GRID --dry-run", As("dapo ablate add-one --dry-run")),
        ("dapo ablate ladder --dry-run", Run),
        ("dapo ablate experiments/grids/ladder.toml --dry-run", Run),
        (
            "dapo ablate GRID --declaration FILE --dry-run",
            As("dapo ablate ladder --declaration experiments/study.toml --dry-run"),
        ),
        (
            "dapo ablate --declaration FILE",
            As("dapo ablate --declaration experiments/study.toml --dry-run"),
        ),
        // other trainers
        ("dapo engine check trl experiments/engines/grpo.toml", Parsed(TRAINER)),
        ("dapo engine render trl experiments/engines/grpo.toml --out runs/trl", Run),
        (
            "dapo engine launch trl experiments/engines/grpo.toml --out runs/grpo-trl",
            Parsed(TRAINER),
        ),
        (
            "dapo engine launch trl experiments/engines/grpo.toml --out runs/grpo-trl --resume",
            Parsed(TRAINER),
        ),
        (
            "dapo engine import trl experiments/engines/grpo.toml --from runs/trl --out runs/imported",
            Parsed(TRAINER),
        ),
        ("dapo engine check trl config.json", Parsed(TRAINER)),
        ("dapo engine check verl job.yaml", Parsed(TRAINER)),
        (
            "dapo engine check trl training_args.bin --against experiments/engines/grpo.toml",
            Parsed(TRAINER),
        ),
        (
            "dapo engine check verl job.yaml --against experiments/engines/dapo-verl.toml --json",
            Parsed(TRAINER),
        ),
        (
            "dapo engine check verl experiments/engines/dapo-verl.toml --python /path/to/python --nodes 16 \
             --gpus-per-node 8",
            Parsed(TRAINER),
        ),
        (
            "dapo engine render verl experiments/engines/dapo-verl.toml --out runs/verl --nodes 16 --gpus-per-node 8 \
             --engine-set actor_rollout_ref.rollout.tensor_model_parallel_size=4",
            Parsed(MODEL),
        ),
        (
            "dapo engine import verl experiments/engines/dapo-verl.toml --from runs/verl --out runs/dapo-verl",
            Parsed(TRAINER),
        ),
        ("dapo ablate ladder --launcher command", Run),
        ("dapo cell run 0 --study runs/ablate", Run),
        (
            "dapo cell run 17 --study runs/ablate --inputs ~/dapo",
            As("dapo cell run 0 --study runs/ablate --inputs ."),
        ),
        ("dapo ablate ladder --status", Run),
        ("just bench-cells", Parsed(TOOLS)),
        ("just test-engines", Parsed(TOOLS)),
        (
            "dapo ablate ladder --launcher slurm --jobs 64",
            As("dapo ablate ladder --launcher slurm --jobs 64 --dry-run"),
        ),
        ("dapo report runs/ablate", Run),
        ("dapo report STUDY", As("dapo report runs/ablate")),
        ("dapo report runs/ladder-0.5b", As("dapo report runs/ablate")),
        ("dapo report reports/study-1 --out elsewhere", Run),
        ("dapo report reports/study-1 --declaration experiments/study.toml --out again", Run),
        (
            "dapo report reports/study-2 --out elsewhere",
            As("dapo report \"$ROOT/reports/study-2\" --out third"),
        ),
        ("dapo report --claims", Run),
        ("dapo report STUDY --claims", As("dapo report reports/study-1 --claims")),
        ("dapo report runs/ablate --claims", Run),
        ("dapo report runs/ablate --claims --markdown", Run),
        ("dapo report runs/ablate --claims --only each-row-improves --json", Run),
        (
            "dapo report reports/study-1 --claims --declaration experiments/study.toml --markdown > claims.md",
            Run,
        ),
        ("dapo runs cells runs/ablate", Run),
        (
            "dapo train CELL.json --out runs/mine",
            As("dapo train CELL.json --out runs/mine --no-plan"),
        ),
        ("dapo runs cells CELL.json --run runs/mine", Run),
        (
            "dapo train reports/study-1/cells/CELL.json --out runs/check",
            As("dapo train CELL.json --out runs/mine"),
        ),
        (
            "dapo runs cells reports/study-1/cells/CELL.json --run runs/check",
            As("dapo runs cells CELL.json --run runs/mine"),
        ),
        (
            "dapo train cells/CELL.json --out check",
            As("cd received && dapo train CELL.json --out ../runs/mine"),
        ),
        (
            "dapo runs cells cells/CELL.json --run check",
            As("cd received && dapo runs cells CELL.json --run ../runs/mine"),
        ),
        (
            "dapo train received/cells/CELL.json --inputs . --out runs/mine",
            As("dapo train received/CELL.json --inputs . --out runs/mine"),
        ),
        (
            "dapo train reports/study-1/cells/CELL.json --out runs/mine",
            As("dapo train CELL.json --out runs/mine"),
        ),
        (
            "dapo runs cells reports/study-1/cells/CELL.json --run runs/mine",
            As("dapo runs cells CELL.json --run runs/mine"),
        ),
        ("dapo train reports/study-2/cells/CELL.json --inputs . --out runs/check", Parsed(MINUTES)),
        (
            "dapo runs cells reports/study-2/cells/CELL.json --run runs/check",
            As("dapo runs cells CELL.json --run runs/mine"),
        ),
        ("dapo export runs/ablate --csv", Run),
        ("dapo export runs/ablate --csv --tensorboard", Run),
        ("dapo export reports/study-1 --parquet --out tables", Run),
        (
            "dapo export runs/ablate --tensorboard && tensorboard --logdir \
             runs/ablate/export/tensorboard",
            As("dapo export runs/ablate --tensorboard && ls runs/ablate/export/tensorboard"),
        ),
        ("dapo export runs/reproduce --tensorboard", Run),
        ("dapo export runs/reproduce --to trackio --follow", Parsed(TOOLS)),
        ("dapo export runs/ablate --to wandb --tracker-python venv/bin/python", Parsed(TOOLS)),
        (
            "dapo train experiments/dapo.toml --follow tensorboard",
            As("dapo train experiments/smoke.toml --no-plan --follow tensorboard"),
        ),
        // evaluation and statistics
        ("dapo eval experiments/dapo.toml", Run),
        ("dapo eval experiments/dapo.toml --evaluation-set mini-aime", Run),
        (
            "dapo eval experiments/dapo.toml --model runs/reproduce/checkpoints/step-000040 --evaluation-set \
             mini-aime",
            As(
                "dapo eval experiments/dapo.toml --model runs/reproduce/checkpoints/step-000002 --evaluation-set \
                mini-aime",
            ),
        ),
        ("target/debug/dapo eval experiments/own-task/own-task.toml --evaluation-set dev", Run),
        ("dapo eval --model DIR --data aime-2024.parquet --out evals", Parsed(MODEL)),
        (
            "dapo eval --model models/Qwen2.5-7B --data aime-2024.parquet --out evals/qwen2.5-7b",
            Parsed(MODEL),
        ),
        (
            "dapo eval --model models/Qwen2.5-0.5B --data data/aime-2024.parquet --device cuda \
             --weights bf16 --out evals",
            Parsed(CARD),
        ),
        ("dapo compare A B", As("dapo compare runs/a runs/b --evaluation-set dev")),
        ("dapo compare grpo.csv dapo.csv", Run),
        ("dapo compare --a g1.csv g2.csv --b d1.csv d2.csv", Run),
        (
            "dapo compare --a grpo-1.csv grpo-2.csv grpo-3.csv --b dapo-1.csv dapo-2.csv dapo-3.csv",
            Run,
        ),
        (
            "dapo compare aime-base.parquet aime-tuned.parquet --problem-column question_id --markdown",
            Parsed("needs a table whose problems stand in such a column"),
        ),
        ("dapo compare runs/a runs/b --evaluation-set mini-aime --json", Run),
        // reports, checks and exports of runs
        ("dapo report runs/reproduce", Run),
        ("dapo report runs/dapo-seed1-1f2e3d4c", Run),
        (
            "dapo model generate --model golden/mini-aime/base --problems experiments/own-task/dev.jsonl",
            Run,
        ),
        ("dapo regress --golden my-golden --bless --reason \"first runs\"", Parsed(MINUTES)),
        ("dapo regress --golden my-golden", As("dapo regress --golden golden/runs --part exact")),
        ("dapo verify reports/study-1", As("dapo verify reports/study-1 || [ $? = 6 ]")),
        (
            "dapo verify reports/study-1 --declaration experiments/study.toml",
            As(
                "dapo verify \"$ROOT/reports/study-1\" --declaration \"$ROOT/experiments/study.toml\"",
            ),
        ),
        ("dapo verify reports/study-2", As("dapo verify \"$ROOT/reports/study-2\"")),
        ("dapo verify reports/sums-1", As("dapo verify \"$ROOT/reports/sums-1\"")),
        ("dapo verify reports/methods-1", As("dapo verify \"$ROOT/reports/methods-1\"")),
        ("dapo verify reports/engines-1", As("dapo verify \"$ROOT/reports/engines-1\"")),
        ("dapo verify .", As("cd reports/study-1 && { dapo verify . || [ $? = 6 ]; }")),
        ("dapo verify RUN", As("dapo verify runs/dapo-2")),
        ("dapo verify runs/dapo-seed1-1f2e3d4c", Run),
        ("dapo verify received --json", As("dapo verify runs/a --json")),
        (
            "dapo verify received --replay 4 --challenge 90210",
            As("dapo verify runs/a --replay 2 --challenge 90210"),
        ),
        (
            "dapo verify received --base models/theirs --data sets",
            As("dapo verify runs/b --base golden/mini-aime/base --data experiments"),
        ),
        ("dapo diff A B", As("dapo diff runs/a runs/b")),
        ("dapo diff runs/a runs/b", Run),
        // Exit code 4: the runs differ.
        (
            "dapo diff golden/runs/exact runs/mine",
            As("dapo diff golden/runs/exact runs/mine || test $? = 4"),
        ),
        (
            "dapo diff golden/runs/exact runs/mine --json",
            As("dapo diff golden/runs/exact runs/mine --json || test $? = 4"),
        ),
        ("dapo regress", Parsed(MINUTES)),
        ("./justw regress", Parsed(MINUTES)),
        ("dapo regress --part exact", Run),
        ("dapo regress --bless --reason \"…\"", Parsed(MINUTES)),
        ("dapo regress --bless --reason \"…\" --part exact", Parsed(MINUTES)),
        ("dapo regress --bless --reason \"exp from the libm crate\"", Parsed(MINUTES)),
        ("dapo regress --bless --reason \"what changed the numbers, in words\"", Parsed(MINUTES)),
        // settings
        ("dapo config diff A B", As("dapo config diff experiments/base.toml runs/dapo-2")),
        ("dapo config diff grpo dapo", Run),
        ("dapo config diff grpo my-arm", Run),
        ("dapo config diff dapo paper", Run),
        ("dapo config diff paper released-code", Run),
        ("dapo config diff experiments/dapo.toml runs/reproduce", Run),
        ("dapo config diff experiments/qwen2.5/dapo-0.5b.toml paper", Run),
        ("dapo config diff runs/a runs/b", Run),
        ("dapo config diff runs/a runs/b --json", Run),
        ("dapo config show clip-higher", Run),
        ("dapo config explain dapo.clip.high", Run),
        ("dapo config explain optimizer", Run),
        // data
        ("dapo data audit FILE", As("dapo data audit train.jsonl")),
        ("dapo data audit aime-2024.parquet", Run),
        ("dapo data audit dapo-math-17k.parquet --tokenizer models/Qwen2.5-0.5B", Run),
        (
            "dapo data audit train.jsonl --json | jq .answers",
            As("dapo data audit train.jsonl --json"),
        ),
        ("dapo data prepare mini-aime --out DIR", As("dapo data prepare mini-aime --out sets")),
        ("dapo data prepare mini-aime --out data/mini-aime", Run),
        ("dapo data prepare checked-chains --variant hard --out data/chains", Run),
        ("dapo data prepare aime-2024.parquet --out data", Run),
        ("dapo data prepare dapo-math-17k.parquet --out data", Run),
        ("dapo data prepare dapo-math-17k.parquet --out data --refuse-conflicting", Run),
        (
            "dapo data prepare dapo-math-17k.parquet --without aime-2024.parquet --hold-out 64 --out data",
            Run,
        ),
        ("dapo data prepare train.jsonl --without aime-2024.parquet --out data", Run),
        (
            "dapo data prepare problems.jsonl --question-key task --answer-key result.value --out data",
            As(
                "dapo data prepare train.jsonl --question-key question --answer-key answer --out keyed",
            ),
        ),
        (
            "../../target/debug/dapo data prepare train.jsonl --without dev.jsonl --without test.jsonl \
             --out data",
            As(
                "cd experiments/own-task && ../../target/debug/dapo data prepare train.jsonl --without \
                dev.jsonl --without test.jsonl --out data",
            ),
        ),
        // responses
        ("dapo model generate --model golden/mini-aime/base --prompts prompts.jsonl -n 4", Run),
        (
            "dapo model generate --model golden/mini-aime/base --prompts prompts.jsonl -n 4 --temperature 1.0 \
             --top-p 0.7 --max-tokens 160 --seed 1",
            Run,
        ),
        (
            "echo '{\"prompt_ids\": [5], \"response_ids\": [7]}' | dapo model score --model \
             golden/mini-aime/base",
            Run,
        ),
        ("dapo grade responses.jsonl", Run),
        ("dapo grade responses.jsonl --explain", Run),
        ("dapo grade responses.jsonl --explain | grep '\"acc\":false'", Run),
        ("dapo grade runs/reproduce/rollouts/*.parquet --summary", Run),
        (
            "echo '{\"response\": \"Answer: 540.\", \"ground_truth\": \"540\"}' | dapo grade /dev/stdin \
             --explain",
            Run,
        ),
        (
            "echo '{\"response\": \"Answer: 612\", \"ground_truth\": \"612\"}' | target/debug/dapo grade \
             /dev/stdin --explain",
            Run,
        ),
        // the machine
        ("dapo doctor --json > here.json", Run),
        ("dapo doctor", Run),
        ("source <(dapo completions bash)", Run),
        (
            "dapo bench throughput --model DIR",
            As("dapo bench throughput --model golden/mini-aime/base"),
        ),
        ("dapo bench throughput --model models/Qwen2.5-0.5B --batch 1,8,32 --threads 2", Run),
        (
            "dapo bench throughput --model models/Qwen2.5-0.5B --device cuda --weights bf16 --batch 256,1024",
            Parsed(CARD),
        ),
        ("dapo bench", Parsed(MINUTES)),
        ("dapo bench --out bench.json", Parsed(MINUTES)),
        ("./justw bench", Parsed(MINUTES)),
        ("dapo bench experiments/bench-exact.toml", Parsed(MINUTES)),
        ("dapo bench --threads 2 --out bench.json", Parsed(MINUTES)),
        (
            "dapo bench experiments/dapo.toml --model golden/mini-aime/base --threads 1",
            Parsed(MINUTES),
        ),
        ("just bench-cpu", Parsed(TOOLS)),
        (
            "just bench-smollm2 venv/bin/python MODEL --problems train.jsonl --out smollm2.json",
            Parsed(TOOLS),
        ),
        ("just gpu venv/bin/python --out reports/gpu/CARD.json", Parsed(TOOLS)),
        ("just gpu venv/bin/python --device cpu", Parsed(TOOLS)),
        (
            "dapo model generate --model models/SmolLM2-135M-Instruct --prompts prompts.jsonl --max-tokens 48",
            Parsed(MODEL),
        ),
        ("just exactness", Parsed(TOOLS)),
        ("./justw smollm2", Parsed(REAL)),
        ("./justw smollm2 && ./justw train experiments/smollm2/dapo.toml", Parsed(REAL)),
        (
            "dapo model tune models/SmolLM2-135M-Instruct --recipe experiments/smollm2/recipe.toml --out models/SmolLM2-135M-word-problems",
            Parsed(REAL),
        ),
        (
            "dapo model tune models/SmolLM2-135M-Instruct --recipe experiments/smollm2/recipe.toml --solutions solutions.jsonl --out models/my-base",
            Parsed(REAL),
        ),
        ("dapo model tune MODEL --recipe experiments/smollm2/recipe.toml --out DIR", Parsed(REAL)),
        (
            "dapo model tune MODEL --recipe recipe.toml --solutions solutions.jsonl --out DIR",
            Parsed(REAL),
        ),
        ("dapo plan experiments/smollm2/dapo.toml", Parsed(REAL)),
        ("dapo train experiments/smollm2/grpo.toml --out runs/smollm2-grpo", Parsed(REAL)),
        (
            "dapo ablate experiments/smollm2/grids/ladder.toml --out runs/smollm2-ladder",
            Parsed(REAL),
        ),
        ("dapo report runs/smollm2-ladder", Parsed(REAL)),
        ("dapo eval my-study/base.toml --evaluation-set dev", Parsed(REAL)),
        (
            "dapo init my-study --model models/SmolLM2-135M-Instruct --train train.jsonl --dev dev.jsonl --test test.jsonl",
            Parsed(REAL),
        ),
        ("./justw pretrain", Parsed(MINUTES)),
        ("dapo model pretrain golden/mini-aime/recipe.toml --out runs/base", Parsed(MINUTES)),
        (
            "target/debug/dapo model pretrain experiments/own-task/recipe.toml --out runs/own-base",
            Run,
        ),
        (
            "dapo model pretrain experiments/chains/recipes/mixed.toml --seed 1 --out runs/bases/checked-chains-mixed-1",
            Parsed(MINUTES),
        ),
        (
            "dapo model pretrain experiments/chains/recipes/mixed.toml --seed 101 --out runs/bases/checked-chains-mixed-101",
            Parsed(MINUTES),
        ),
        (
            "dapo model pretrain experiments/chains/recipes/brief.toml --seed 101 --out runs/bases/checked-chains-brief-101",
            Parsed(MINUTES),
        ),
        (
            "dapo model pretrain experiments/chains/recipes/spelled.toml --seed 101 --out runs/bases/checked-chains-spelled-101",
            Parsed(MINUTES),
        ),
        (
            "dapo model pretrain experiments/chains/recipes/large.toml --seed 101 --out runs/bases/checked-chains-large-101",
            Parsed(MINUTES),
        ),
        (
            "dapo model pretrain experiments/sums/recipe.toml --seed 101 --out runs/bases/signed-sums-101",
            Parsed(MINUTES),
        ),
        (
            "dapo ablate experiments/sums/grids/sums.toml --declaration experiments/sums/study.toml --jobs 2 --out runs/sums",
            Parsed(MINUTES),
        ),
        ("dapo report runs/sums", Parsed(MINUTES)),
        ("dapo train experiments/chains/base.toml --out runs/chains", Parsed(MINUTES)),
        (
            "dapo ablate experiments/chains/grids/factorial.toml --declaration experiments/chains/study.toml --jobs 2 --out runs/study-2",
            Parsed(MINUTES),
        ),
        ("dapo report runs/study-2", Parsed(MINUTES)),
        ("dapo report runs/study-2 --claims=experiments/chains/claims.toml", Parsed(MINUTES)),
        ("just setup", Parsed(TOOLS)),
        ("just wheel", Parsed(TOOLS)),
        ("just wheel-test", Parsed(TOOLS)),
        ("./justw isa", Parsed(TOOLS)),
        ("./justw test", Parsed(TOOLS)),
        ("./justw bless", Parsed(TOOLS)),
        // The last: what runs hold goes.
        ("dapo runs", Run),
        ("dapo runs runs --json", Run),
        ("dapo runs runs/study --json | grep '\"state\":\"unfinished\"'", Run),
        ("dapo runs gc", Run),
        ("dapo runs gc --keep-last 2", Run),
        ("dapo runs gc runs/study --unfinished --json", Run),
        ("dapo runs gc --keep-last 2 | cut -f1 | xargs -r -d '\\n' rm -r --", Run),
    ]
};

/// Whether a line calls the binary or a recipe.
fn is_ours(line: &str) -> bool {
    line.split(['|', '&', ';', '(']).any(|part| {
        let program = part.split_whitespace().next().unwrap_or_default();
        ["dapo", "just", "justw"].contains(&program.rsplit('/').next().unwrap_or_default())
    })
}

/// One space between words, and one name for every record.
fn normal(line: &str) -> String {
    let is_record = |word: &str| {
        let (arm, seed) = word.trim_end_matches(".json").split_once("-seed")?;
        let hex = arm.len() == 12 && arm.bytes().all(|byte| byte.is_ascii_hexdigit());
        (hex && word.ends_with(".json") && seed.parse::<u64>().is_ok()).then_some(())
    };
    let word = |word: &str| match word.rsplit_once('/') {
        Some((folder, name)) if is_record(name).is_some() => format!("{folder}/CELL.json"),
        _ => word.to_string(),
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// Commands of a Markdown text: lines of `sh` fences, and code spans. Spans that hold a program and
/// the names of verbs alone mention a verb and are left out; those verbs exist.
fn of_markdown(text: &str) -> BTreeSet<String> {
    let (mut found, mut prose) = (BTreeSet::new(), String::new());
    let (mut fence, mut begun) = (None, String::new());
    for line in text.lines() {
        match (fence, line.trim().strip_prefix("```")) {
            (None, Some(language)) => fence = Some(language),
            (Some(_), Some(_)) => fence = None,
            (Some("sh" | "text"), None) => {
                let line = line.split(" #").next().unwrap_or_default().trim();
                begun += line.trim_end_matches('\\');
                if !line.ends_with('\\') {
                    found.insert(std::mem::take(&mut begun));
                }
            }
            (Some(_), None) => {}
            (None, None) => prose += &format!("{line}\n"),
        }
    }
    for paragraph in prose.split("\n\n") {
        let spans = paragraph.split('`').skip(1).step_by(2);
        found.extend(spans.map(|span| span.replace("\\|", "|")).filter(|span| !is_mention(span)));
    }
    found.into_iter().filter(|line| is_ours(line)).map(|line| normal(&line)).collect()
}

/// A program, alone or with verbs and nothing else.
fn is_mention(span: &str) -> bool {
    let mut words = span.split_whitespace();
    let is_just = words.next().is_some_and(|program| program.contains("just"));
    let mut command = Cli::command();
    for word in words {
        match command.find_subcommand(word) {
            Some(verb) if !is_just => command = verb.clone(),
            _ => return false,
        }
    }
    true
}

/// The examples in the help of a verb and of the verbs below it, as a terminal of 100 columns shows
/// them: a line that is wrapped cannot be pasted.
fn of_help(command: &mut clap::Command, found: &mut BTreeSet<String>) {
    let text = command.render_long_help().to_string();
    let examples = text.lines().skip_while(|line| {
        !line.trim_end().ends_with("xample:") && !line.trim_end().ends_with("xamples:")
    });
    let lines = examples.skip(1).take_while(|line| !line.trim().is_empty());
    let lines = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    found.extend(lines.filter(|line| is_ours(line)).map(normal));
    for verb in command.get_subcommands_mut().filter(|verb| !verb.is_hide_set()) {
        of_help(verb, found);
    }
}

/// Every printed command, with where it stands.
fn printed() -> BTreeMap<String, BTreeSet<String>> {
    let mut places: Vec<(String, BTreeSet<String>)> = Vec::new();
    for source in repository::tracked_text() {
        let is_readme = source.path.rsplit('/').next() == Some("README.md");
        let is_page = source.path.starts_with("docs/") || source.path == "ARCHITECTURE.md";
        if is_readme || is_page {
            places.push((source.path.clone(), of_markdown(&source.text)));
        }
    }
    let mut examples = BTreeSet::new();
    let mut command = Cli::command();
    command.build();
    of_help(&mut command, &mut examples);
    places.push(("--help".to_string(), examples));
    let report = small_report();
    for page in [&report.page, &report.appendix] {
        let text = dapo::report::markdown::render(page);
        places.push(("a study's report".to_string(), of_markdown(&text)));
    }
    let mut printed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (place, commands) in places {
        for command in commands {
            printed.entry(command).or_default().insert(place.clone());
        }
    }
    assert!(printed.len() > 100, "only {} commands: a reader of texts is broken", printed.len());
    printed
}

fn small_report() -> study::StudyReport {
    let mut grids = study_fixture::grids(&[1]);
    grids.retain(|grid| grid.name == "ladder");
    let shape = study_fixture::Shape::default();
    let cells = grids[0].arms.iter().map(|arm| study_fixture::cell(arm, 1, &shape)).collect();
    let study = dapo::study::collection::Study::new(grids, cells, None);
    study::report(&study, &dapo::study::claims::shipped())
}

#[test]
fn every_printed_command_is_listed_and_every_listed_one_is_printed() {
    let printed = printed();
    let listed: BTreeSet<String> =
        COMMANDS.iter().map(|(command, _)| (*command).to_string()).collect();
    assert_eq!(listed.len(), COMMANDS.len(), "a command is listed twice");
    let unlisted: Vec<_> =
        printed.iter().filter(|(command, _)| !listed.contains(*command)).collect();
    assert!(unlisted.is_empty(), "printed and in no list: {unlisted:#?}");
    let gone: Vec<_> = listed.iter().filter(|command| !printed.contains_key(*command)).collect();
    assert!(gone.is_empty(), "listed and printed nowhere: {gone:#?}");
}

/// A line for bash: a recipe's is what the recipe does with the binary.
fn script(line: &str) -> String {
    if line.contains(" && ") {
        return line.split(" && ").map(script).collect::<Vec<_>>().join("\n");
    }
    let mut words = line.split_whitespace();
    if !words.next().is_some_and(|program| program.contains("just")) {
        return line.to_string();
    }
    let recipe = words.next().unwrap_or_default();
    let justfile = files::read_text(&repository::root().join("justfile")).unwrap();
    let is_head = |line: &&str| {
        let name: String = line.chars().take_while(|c| c.is_alphanumeric() || *c == '-').collect();
        name == recipe && line.contains(':')
    };
    let mut lines = justfile.lines().skip_while(|line| !is_head(line));
    assert!(lines.next().is_some(), "{line}: the justfile has no recipe {recipe}");
    let body = lines.take_while(|line| line.starts_with("    ")).map(str::trim);
    let body: Vec<String> = body
        .filter_map(|line| line.strip_prefix("{{ dapo }}"))
        .map(|rest| format!("dapo {rest}"))
        .collect();
    format!("set -- {}\n{}", words.collect::<Vec<_>>().join(" "), body.join("\n"))
}

/// Runs the binary.
const RUN: &str = "\"$BINARY\" \"$@\"";

/// Notes a call of the binary in a line, its arguments apart.
const NOTE: &str = "printf '%s\\037' dapo \"$@\" >> \"$HOME/calls\"; echo >> \"$HOME/calls\"";

/// Runs a line in a folder; `dapo` is what a call of the binary does.
fn bash(folder: &Path, dapo: &str, line: &str) -> Result<(), String> {
    let names = ["dapo", "target/debug/dapo", "../../target/debug/dapo"];
    let functions = names.map(|name| format!("{name}() {{ {dapo}; }}\n")).concat();
    let output = Command::new("bash")
        .args(["-c", &format!("set -eo pipefail\n{functions}{}", script(line))])
        .current_dir(folder)
        .env("BINARY", assert_cmd::cargo::cargo_bin("dapo"))
        .env("ROOT", repository::root())
        .env("HOME", folder.join("home"))
        .env("OMP_NUM_THREADS", "1")
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(()),
        false => {
            let talk = String::from_utf8_lossy(&output.stderr);
            Err(format!("{line}\n  {:?} {talk}", output.status.code()))
        }
    }
}

#[test]
fn the_arguments_of_every_listed_command_parse() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["received", "runs/ablate"] {
        files::create_folder(&folder.path().join(name)).unwrap();
    }
    let calls = folder.path().join("home/calls");
    let mut wrong = Vec::new();
    for (command, how) in COMMANDS {
        files::write_atomic(&calls, b"").unwrap();
        // A program that reads from the binary finds nothing; the calls are what counts.
        let _ = bash(folder.path(), NOTE, command);
        let text = files::read_text(&calls).unwrap();
        if text.is_empty() && !matches!(how, How::Parsed(why) if *why == TOOLS) {
            wrong.push(format!("{command}: calls nothing"));
        }
        for call in text.lines() {
            let arguments = call.trim_end_matches('\u{1f}').split('\u{1f}');
            if let Err(error) = Cli::try_parse_from(arguments) {
                wrong.push(format!("{command}: {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A small copy of a checkout: the same names, tiny settings, and what the texts take for granted.
fn checkout() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let root = repository::root();
    let base = files::read_text(&root.join("experiments/base.toml")).unwrap();
    let base = [
        ("prompts_per_round = 32", "prompts_per_round = 8"),
        ("group_size = 8", "group_size = 4"),
        ("max_response_tokens = 140", "max_response_tokens = 48"),
        ("rollout_steps = 40", "rollout_steps = 2"),
        ("prompts_per_step = 32", "prompts_per_step = 8"),
        ("mini_batch_rollouts = 64", "mini_batch_rollouts = 16"),
        (
            "dev = 4, mini-aime = 32, mini-aime-plus = 8",
            "dev = 1, mini-aime = 1, mini-aime-plus = 1",
        ),
        ("rollout_steps = 5", "rollout_steps = 1"),
    ]
    .into_iter()
    .fold(base, |text, (from, to)| {
        assert!(text.contains(from), "base.toml has no {from}");
        text.replacen(from, to, 1)
    });
    // The committed records of the ladder, three seeds of each arm.
    let ladder =
        dapo::experiment::grid::Grid::read(&root.join("reports/study-1/grids/ladder.json"))
            .unwrap();
    let records: Vec<String> = ladder
        .arms
        .iter()
        .flat_map(|arm| {
            [101, 102, 103].map(|seed| format!("{}-seed{seed}.json", &arm.arm_sha256[..12]))
        })
        .collect();
    let made = [
        "mkdir -p golden models reports/study-1/{grids,cells}",
        "ln -s \"$ROOT/golden/runs\" golden/",
        // `verify` follows no link to a base policy that nobody named.
        "cp -r \"$ROOT/golden/mini-aime\" golden/",
        "ln -s \"$ROOT/golden/mini-aime/base\" models/Qwen2.5-0.5B",
        "cp \"$ROOT/reports/study-1/study.json\" reports/study-1/",
        "cp \"$ROOT/reports/study-1/grids/ladder.json\" reports/study-1/grids/",
        &format!(
            "for name in {}; do cp \"$ROOT/reports/study-1/cells/$name\" reports/study-1/cells/; done",
            records.join(" ")
        ),
        "head -n 24 experiments/own-task/train.jsonl > train.jsonl",
        "echo '{\"prompt\": \"347+562*3?\"}' > prompts.jsonl",
        "echo '{\"response\": \"Answer: 1\", \"ground_truth\": \"2\"}' > responses.jsonl",
        "{ echo problem,sample,correct; for i in {1..6}; do echo $i,0,$((i % 2)); echo $i,1,1; done; } > grpo.csv",
        "for name in dapo g1 g2 d1 d2 {grpo,dapo}-{1,2,3}; do cp grpo.csv $name.csv; done",
        "dapo data prepare mini-aime --out data",
        "mv data/mini-aime.parquet aime-2024.parquet",
        "mv data/train.parquet dapo-math-17k.parquet",
        "dapo train experiments/dapo.toml --out runs/reproduce",
        "mkdir runs/study received",
        "for name in a b dapo-seed1-1f2e3d4c study/stopped; do cp -r runs/reproduce runs/$name; done",
        "rm runs/study/stopped/outcome.json",
        "cp -r reports/study-1 runs/ablate",
        "dapo ablate experiments/own-task/grids/own-task.toml --out runs/own-study",
        "for name in CELL.json received/CELL.json; do cp $(ls runs/own-study/cells/*.json | head -n 1) $name; done",
    ];
    bash(path, RUN, "cp -r \"$ROOT/experiments\" .").unwrap();
    files::write_atomic(&path.join("experiments/base.toml"), base.as_bytes()).unwrap();
    // README's arm.
    let arm =
        "name = \"my-arm\"\nextends = \"../base.toml\"\n[dapo]\nclip = { low = 0.2, high = 0.4 }\n";
    files::write_atomic(&path.join("experiments/arms/my-arm.toml"), arm.as_bytes()).unwrap();
    bash(path, RUN, &made.join("\n")).unwrap();
    folder
}

#[test]
fn listed_commands_run() {
    let folder = checkout();
    let run = |(command, how): &(&str, How)| {
        let line = match how {
            How::Parsed(_) => return None,
            How::Run => command,
            How::As(line) => line,
        };
        bash(folder.path(), RUN, line).err()
    };
    let failed: Vec<String> = COMMANDS.iter().filter_map(run).collect();
    assert!(failed.is_empty(), "{} commands failed:\n{}", failed.len(), failed.join("\n"));
}
