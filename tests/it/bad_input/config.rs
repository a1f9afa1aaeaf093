//! Experiment files and recipes.

use crate::bad_input::Case;

pub fn cases() -> Vec<Case> {
    let mut cases = text();
    cases.extend(keys());
    cases.extend(values());
    cases.extend(chains());
    cases
}

const TRAIN: &str = "train arm.toml --out run";

fn case(
    name: &'static str,
    make: fn(&crate::bad_input::scratch::Scratch),
    says: &'static [&'static str],
) -> Case {
    Case { name, make, command: TRAIN, code: 3, says }
}

fn text() -> Vec<Case> {
    vec![
        case("experiment file missing", |_| (), &["cannot read arm.toml: No such file"]),
        case(
            "experiment file is a folder",
            |s| s.write("arm.toml/x", ""),
            &["cannot read arm.toml: Is a directory"],
        ),
        case(
            "experiment file empty",
            |s| s.write("arm.toml", ""),
            &["arm.toml: missing field `name`"],
        ),
        case("not TOML", |s| s.arm("[dapo]\nclip = {"), &["arm.toml: TOML parse error at line 3"]),
        case(
            "not UTF-8",
            |s| s.write("arm.toml", b"name = \"\xff\""),
            &["arm.toml: not UTF-8 at byte 8"],
        ),
        case(
            "duplicate key",
            |s| s.arm("[dapo]\nclip.low = 0.1\nclip.low = 0.2"),
            &["arm.toml: TOML parse error at line 4", "duplicate key"],
        ),
        case(
            "duplicate table",
            |s| s.arm("[dapo]\n[dapo]"),
            &["arm.toml: TOML parse error at line 3", "duplicate key"],
        ),
        case(
            "terminal escapes in the file",
            |s| s.arm("\u{1b}]52;c;aGk=\u{7}"),
            &["arm.toml: TOML parse error at line 2", "\\u{1b}]52"],
        ),
        case(
            "a key of 100,000 parts",
            |s| s.arm(&format!("{}b = 1", "a.".repeat(100_000))),
            &["arm.toml: not TOML: recursion limit"],
        ),
        case(
            "100,000 brackets",
            |s| s.arm(&format!("a = {}", "[".repeat(100_000))),
            &["arm.toml: TOML parse error at line 2", "recursion"],
        ),
        case(
            "more than a megabyte",
            |s| s.arm(&"#".repeat(2 << 20)),
            &["arm.toml: larger than 1048576 bytes"],
        ),
        Case {
            name: "a device without end",
            make: |_| (),
            command: "train /dev/zero --out run",
            code: 3,
            says: &["cannot read /dev/zero: it is no regular file"],
        },
    ]
}

fn keys() -> Vec<Case> {
    vec![
        case(
            "misspelt table",
            |s| s.arm("[rolout]\ngroup_size = 4"),
            &["arm.toml: rolout: unknown field `rolout`", "did you mean `rollout`?"],
        ),
        case(
            "misspelt key",
            |s| s.arm("[dapo]\nclip = { hihg = 0.3 }"),
            &["arm.toml: dapo.clip.hihg: unknown field `hihg`", "did you mean `high`?"],
        ),
        case(
            "misspelt value of an enum",
            |s| s.arm("[dapo]\naggregation = \"token-means\""),
            &[
                "arm.toml: dapo.aggregation: unknown variant `token-means`",
                "did you mean `token-mean`?",
            ],
        ),
        case(
            "misspelt kind",
            |s| s.arm("[dapo]\nkl = { kind = \"penlty\" }"),
            &["arm.toml: dapo.kl.kind: unknown variant `penlty`", "did you mean `penalty`?"],
        ),
        case(
            "misspelt key of a kind",
            |s| {
                s.arm("[dapo.dynamic_sampling]\nkind = \"resample\"\nmax_round = 3\nat_cap = \"train\"\nsurplus = \"discard\"")
            },
            &[
                "arm.toml: dapo.dynamic_sampling.max_round: unknown field `max_round`",
                "did you mean `max_rounds`?",
            ],
        ),
        case(
            "stray key under an unused kind",
            |s| s.arm("[dapo.overlong.punishment]\nkind = \"none\"\ncache_tokens = 32"),
            &[
                "arm.toml: dapo.overlong.punishment.cache_tokens: unknown field `cache_tokens` with kind = \"none\"; it is a key of kind = \"soft\"",
            ],
        ),
        case(
            "part of a table with a kind",
            |s| s.arm("[dapo.dynamic_sampling]\nmax_rounds = 5"),
            &[
                "arm.toml: dapo.dynamic_sampling: missing field `kind`, one of \"none\" or \"resample\"",
                "states only max_rounds",
            ],
        ),
        case(
            "missing key of a kind",
            |s| s.arm("[dapo]\ndual_clip = { kind = \"constant\" }"),
            &["arm.toml: dapo.dual_clip: missing field `c`"],
        ),
        case(
            "several wrong keys at once",
            |s| {
                s.arm("[dapo]\nclipp = 1\n[rolout]\n[rollout]\ngroup_size = \"8\"\n[execution]\nthreads = 0")
            },
            &[
                "arm.toml: dapo.clipp: unknown field",
                "arm.toml: rolout: unknown field",
                "arm.toml: rollout.group_size: invalid type",
                "arm.toml: execution.threads must be from 1 to 1024, got 0",
            ],
        ),
        case(
            "wrong key of a parent",
            |s| {
                s.arm("[dapo]\nagregation = \"token-mean\"");
                s.write("child.toml", "extends = \"arm.toml\"");
            },
            &["arm.toml: dapo.agregation: unknown field `agregation`"],
        )
        .running("train child.toml --out run"),
        case(
            "retired key from a parent",
            |s| s.arm("[training]\nsteps = 3"),
            &["arm.toml: training.steps: unknown field `steps`"],
        ),
        case(
            "name that is a path",
            |s| s.arm("name = \"../x\""),
            &["arm.toml: name must be letters, digits", "got \"../x\""],
        ),
        Case {
            name: "recipe with a misspelt key",
            make: |s| s.write("recipe.toml", recipe().replace("beta1", "beta3")),
            command: "model pretrain recipe.toml --out base",
            code: 3,
            says: &["recipe.toml: line ", "unknown field `beta3`", "did you mean `beta1`?"],
        },
        Case {
            name: "recipe without a task",
            make: |s| s.write("recipe.toml", recipe().replace("task =", "#")),
            command: "model pretrain recipe.toml --out base",
            code: 3,
            says: &["recipe.toml: a recipe must state either a task or a file of solutions"],
        },
        Case {
            name: "recipe of a task that there is not",
            make: |s| s.write("recipe.toml", recipe().replace("\"mini-aime\"", "\"mini\"")),
            command: "model pretrain recipe.toml --out base",
            code: 3,
            says: &["recipe.toml: there is no task \"mini\"; there are mini-aime, checked-chains"],
        },
        Case {
            name: "recipe with the shares of another task",
            make: |s| s.write("recipe.toml", recipe().replace("guess =", "guesses =")),
            command: "model pretrain recipe.toml --out base",
            code: 3,
            says: &[
                "recipe.toml: stages[0].shares must state guess, steps, careful, ramble",
                "got careful, guesses, ramble, steps",
            ],
        },
        Case {
            name: "recipe of texts that are not there",
            make: |s| {
                s.write(
                    "recipe.toml",
                    recipe().replace("task = \"mini-aime\"", "texts = \"gone.jsonl\""),
                )
            },
            command: "model pretrain recipe.toml --out base",
            code: 3,
            says: &["recipe.toml: cannot read gone.jsonl"],
        },
        Case {
            name: "recipe of a text without a solution",
            make: |s| {
                s.write(
                    "recipe.toml",
                    recipe().replace("task = \"mini-aime\"", "texts = \"t.jsonl\""),
                );
                s.write("t.jsonl", "{\"question\": \"1\", \"solution\": \"1\"}\n{\"question\": \"1\", \"solution\": \"\"}\n");
            },
            command: "model pretrain recipe.toml --out base",
            code: 3,
            says: &["t.jsonl: record 1 (from 0): the solution is empty"],
        },
        Case {
            name: "recipe with values out of range",
            make: |s| {
                s.write(
                    "recipe.toml",
                    recipe()
                        .replace("hidden_size = 96", "hidden_size = 97")
                        .replace("beta1 = 0.9", "beta1 = nan")
                        .replace("updates = 300", "updates = 0"),
                )
            },
            command: "model pretrain recipe.toml --out base",
            code: 3,
            says: &[
                "recipe.toml: optimizer.beta1 must be in [0, 1), got NaN",
                "recipe.toml: stages[1].updates must be from 1",
                "recipe.toml: model.hidden_size must be a multiple of model.num_attention_heads, got 97",
            ],
        },
    ]
}

fn recipe() -> String {
    dapo::base::files::read_text(&crate::golden_data::folder("mini-aime/recipe.toml")).unwrap()
}

impl Case {
    fn running(self, command: &'static str) -> Self {
        Self { command, ..self }
    }
}

fn values() -> Vec<Case> {
    vec![
        case(
            "a device that is none",
            |s| s.arm("[execution]\ndevice = \"gpu\""),
            &["arm.toml: execution.device: \"gpu\" is no device", "cuda:N"],
        ),
        case(
            "exact arithmetic on a card and in 16 bits",
            |s| s.arm("numerics = \"exact\"\n[execution]\ndevice = \"cuda\"\nweights = \"bf16\""),
            &[
                "arm.toml: execution.device = \"cuda:0\" needs numerics = \"fast\"",
                "arm.toml: execution.weights = \"bf16\" needs numerics = \"fast\"",
            ],
        ),
        case(
            "passes of no token",
            |s| s.arm("numerics = \"fast\"\n[execution]\npass_tokens = 0"),
            &["arm.toml: execution.pass_tokens must be from 1 to 16777216, got 0"],
        ),
        case(
            "what to do with updates that are not finite, misspelt",
            |s| s.arm("[optimizer]\nnon_finite = \"skp\""),
            &["arm.toml: optimizer.non_finite", "stop", "skip"],
        ),
        case(
            "text where a number belongs",
            |s| s.arm("[rollout]\ngroup_size = \"8\""),
            &["arm.toml: rollout.group_size: invalid type: string \"8\", expected u64"],
        ),
        case(
            "number where a name belongs",
            |s| s.arm("[dapo]\naggregation = 3"),
            &["arm.toml: dapo.aggregation: expected \"response-mean\" or \"token-mean\"", "got 3"],
        ),
        case(
            "number where a table with a kind belongs",
            |s| s.arm("[dapo]\nkl = 0.1"),
            &["arm.toml: dapo.kl: expected a table with kind = \"none\" or \"penalty\", got 0.1"],
        ),
        case(
            "text where a table belongs",
            |s| s.arm("rollout = \"x\""),
            &["arm.toml: rollout: invalid type: string \"x\", expected a table"],
        ),
        case(
            "text where a number of a kind belongs",
            |s| {
                s.arm(
                    "[dapo]\nkl = { kind = \"penalty\", estimator = \"k3\", coefficient = \"x\" }",
                )
            },
            &["arm.toml: dapo.kl.coefficient: invalid type: string \"x\", expected f64"],
        ),
        case(
            "fraction where a count belongs",
            |s| s.arm("[training]\nprompts_per_step = 2.5"),
            &[
                "arm.toml: training.prompts_per_step: invalid type: floating point `2.5`, expected u64",
            ],
        ),
        case(
            "negative count",
            |s| s.arm("[execution]\nseed = -1"),
            &["arm.toml: execution.seed: invalid value: integer `-1`"],
        ),
        case(
            "integer beyond 64 bits",
            |s| s.arm("[execution]\nseed = 99999999999999999999"),
            &["arm.toml: TOML parse error at line 3", "99999999999999999999"],
        ),
        case(
            "1e400",
            |s| s.arm("[optimizer]\nlearning_rate = 1e400"),
            &["arm.toml: TOML parse error at line 3", "overflow"],
        ),
        case(
            "NaN",
            |s| s.arm("[optimizer]\nlearning_rate = nan"),
            &["arm.toml: optimizer.learning_rate must be above 0, got NaN or an infinity"],
        ),
        case(
            "infinity",
            |s| s.arm("[optimizer]\nweight_decay = inf"),
            &["arm.toml: optimizer.weight_decay must be at least 0, got NaN or an infinity"],
        ),
        case(
            "negative where positive",
            |s| s.arm("[dapo]\nclip = { low = -0.2 }"),
            &["arm.toml: dapo.clip.low must be in (0, 1), got -0.2"],
        ),
        case(
            "probability mass above 1",
            |s| s.arm("[evaluation]\nsampling = { top_p = 1.5 }"),
            &["arm.toml: evaluation.sampling.top_p must be in (0, 1], got 1.5"],
        ),
        case(
            "count that no machine has",
            |s| s.arm("[rollout]\nprompts_per_round = 9223372036854775807"),
            &[
                "arm.toml: rollout.prompts_per_round must be from 1 to 16777216, got 9223372036854775807",
            ],
        ),
        case(
            "more threads than any machine",
            |s| s.arm("[execution]\nthreads = 5000000000"),
            &["arm.toml: execution.threads must be from 1 to 1024, got 5000000000"],
        ),
        case(
            "group of one under dynamic sampling",
            |s| s.arm("[rollout]\ngroup_size = 1"),
            &["rollout.group_size must be at least 2"],
        ),
        case(
            "mini-batch larger than the batch",
            |s| s.arm("[training]\nmini_batch_rollouts = 512"),
            &[
                "training.mini_batch_rollouts must be at most prompts_per_step × group_size (32), got 512",
            ],
        ),
        case(
            "response longer than the model's positions",
            |s| s.arm("[rollout]\nmax_response_tokens = 100000"),
            &["positions"],
        ),
        Case {
            name: "flag out of range",
            make: |s| s.arm(""),
            command: "train arm.toml --threads 0 --out run",
            code: 2,
            says: &["--threads"],
        },
        Case {
            name: "unknown verb",
            make: |_| (),
            command: "trian",
            code: 2,
            says: &["unrecognized subcommand 'trian'", "train"],
        },
        Case {
            name: "unknown flag",
            make: |s| s.arm(""),
            command: "train arm.toml --sed 1",
            code: 2,
            says: &["--sed", "--seed"],
        },
    ]
}

fn chains() -> Vec<Case> {
    vec![
        case(
            "extends itself",
            |s| s.write("arm.toml", "extends = \"arm.toml\""),
            &["extends goes in a circle: arm.toml -> arm.toml"],
        ),
        case(
            "extends in a circle",
            |s| {
                s.write("arm.toml", "extends = \"x/../other.toml\"");
                s.write("other.toml", "extends = \"./arm.toml\"");
            },
            &["extends goes in a circle: arm.toml -> other.toml -> arm.toml"],
        ),
        case(
            "extends a missing file",
            |s| s.write("arm.toml", "extends = \"gone.toml\""),
            &["cannot read gone.toml: No such file"],
        ),
        case(
            "extends two files",
            |s| s.write("arm.toml", "extends = [\"a\", \"b\"]"),
            &["arm.toml: extends: expected the name of one file"],
        ),
        case(
            "extends nine files deep",
            |s| {
                for index in 0..9 {
                    s.write(&format!("{index}.toml"), format!("extends = \"{}.toml\"", index + 1));
                }
                s.write("arm.toml", "extends = \"0.toml\"");
            },
            &["extends is more than 8 files deep: arm.toml -> 0.toml"],
        ),
    ]
}
