use super::*;
use crate::algorithm::{DynamicSampling, Punishment};
use crate::experiment::Data;

const BASE: &str = include_str!("../../experiments/base.toml");

/// A folder with `base.toml` and an `arm.toml`.
fn folder(arm: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("base.toml", BASE), ("arm.toml", arm)] {
        files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
    }
    folder
}

fn arm(text: &str) -> Result<Experiment, String> {
    let folder = folder(&format!("extends = \"base.toml\"\n{text}"));
    load(&folder.path().join("arm.toml"))
        .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

#[test]
fn an_arm_states_only_what_differs() {
    let base = arm("").unwrap();
    let arm = arm("name = \"arm\"\n[dapo]\nclip = { high = 0.3 }\n[training]\nrollout_steps = 7")
        .unwrap();
    assert_eq!((arm.name.as_str(), arm.dapo.clip.high, arm.dapo.clip.low), ("arm", 0.3, 0.2));
    assert_eq!(arm.training.rollout_steps, 7);
    assert_eq!(arm.optimizer, base.optimizer);
    assert_ne!(arm.arm_sha256(), base.arm_sha256());
}

#[test]
fn name_seed_paths_and_execution_are_no_part_of_the_identity() {
    let base = arm("").unwrap();
    let other = "name = \"x\"\n[inputs]\nmodel = \"m\"\n[execution]\nseed = 9\nthreads = 1";
    assert_eq!(arm(other).unwrap().arm_sha256(), base.arm_sha256());
}

#[test]
fn switching_a_variant_replaces_its_whole_table() {
    let soft = "[dapo.overlong.punishment]\nkind = \"soft\"\ncache_tokens = 32\nfactor = 1.0\n\
                beyond = \"clamped\"";
    let folder = folder(&format!("extends = \"base.toml\"\n{soft}"));
    let path = folder.path().join("off.toml");
    let off = "extends = \"arm.toml\"\n[dapo.overlong.punishment]\nkind = \"none\"";
    files::write_atomic(&path, off.as_bytes()).unwrap();
    assert!(matches!(
        load(&folder.path().join("arm.toml")).unwrap().dapo.overlong.punishment,
        Punishment::Soft { cache_tokens: 32, .. }
    ));
    assert_eq!(load(&path).unwrap().dapo.overlong.punishment, Punishment::None {});
}

#[test]
fn a_part_of_a_table_with_a_kind_is_not_merged_into_it() {
    let soft = "extends = \"base.toml\"\n[dapo.dynamic_sampling]\nkind = \"resample\"\n\
                max_rounds = 3\nat_cap = \"train\"\nsurplus = \"carry\"";
    let folder = folder(soft);
    let arm = load(&folder.path().join("arm.toml")).unwrap();
    assert!(matches!(arm.dapo.dynamic_sampling, DynamicSampling::Resample { max_rounds: 3, .. }));
    let path = folder.path().join("part.toml");
    let part = "extends = \"arm.toml\"\n[dapo.dynamic_sampling]\nmax_rounds = 5";
    files::write_atomic(&path, part.as_bytes()).unwrap();
    let error = load(&path).unwrap_err().to_string();
    let expected = "part.toml: dapo.dynamic_sampling: missing field `kind`, one of";
    assert!(error.contains(expected) && error.ends_with("only max_rounds"), "{error}");
}

#[test]
fn paths_are_relative_to_the_file_that_states_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    files::write_atomic(&path("base.toml"), BASE.as_bytes()).unwrap();
    let arm = "extends = \"../base.toml\"\n[inputs.data]\nkind = \"files\"\n\
               train = \"../data/train.parquet\"\ndev = \"/data/dev.parquet\"\ntest = [\"a.jsonl\"]";
    files::write_atomic(&path("arms/arm.toml"), arm.as_bytes()).unwrap();
    let inputs = load(&path("arms/arm.toml")).unwrap().inputs;
    assert_eq!(inputs.model, normal(&path("../golden/mini-aime/base")));
    assert_eq!(
        inputs.data,
        Data::Files {
            train: path("data/train.parquet"),
            dev: "/data/dev.parquet".into(),
            test: vec![path("arms/a.jsonl")],
        }
    );
}

#[test]
fn a_circle_is_refused_with_its_files() {
    let folder = folder("extends = \"./other.toml\"");
    let path = |name: &str| folder.path().join(name);
    files::write_atomic(&path("other.toml"), b"extends = \"arm.toml\"").unwrap();
    let error = load(&path("arm.toml")).unwrap_err().to_string();
    let error = error.replace(&format!("{}/", folder.path().display()), "");
    assert_eq!(error, "extends goes in a circle: arm.toml -> other.toml -> arm.toml");
}

#[test]
fn a_ninth_file_is_too_deep() {
    let folder = tempfile::tempdir().unwrap();
    let path = |index: usize| folder.path().join(format!("{index}.toml"));
    files::write_atomic(&path(0), BASE.as_bytes()).unwrap();
    for index in 1..9 {
        let text = format!("extends = \"{}.toml\"", index - 1);
        files::write_atomic(&path(index), text.as_bytes()).unwrap();
    }
    assert!(load(&path(7)).is_ok());
    let error = load(&path(8)).unwrap_err().to_string();
    assert!(error.starts_with("extends is more than 8 files deep: "), "{error}");
    assert!(error.ends_with("0.toml"), "{error}");
}

#[test]
fn bad_keys_are_refused_with_file_key_and_nearest_name() {
    let table = [
        (
            "[dapo]\nclipp = { low = 0.1 }",
            "arm.toml: dapo.clipp: unknown field `clipp`",
            "did you mean `clip`?",
        ),
        (
            "[dapo]\nclip = { hihg = 0.3 }",
            "arm.toml: dapo.clip.hihg: unknown field `hihg`",
            "did you mean `high`?",
        ),
        (
            "[rolout]\ngroup_size = 4",
            "arm.toml: rolout: unknown field `rolout`",
            "did you mean `rollout`?",
        ),
        (
            "[dapo]\naggregation = \"token-means\"",
            "arm.toml: dapo.aggregation: unknown variant `token-means`",
            "did you mean `token-mean`?",
        ),
        (
            "[dapo.overlong.punishment]\nkind = \"none\"\ncache_tokens = 32",
            "arm.toml: dapo.overlong.punishment.cache_tokens: unknown field `cache_tokens` with",
            "it is a key of kind = \"soft\"",
        ),
        (
            "[dapo.dual_clip]\nkind = \"constant\"",
            "arm.toml: dapo.dual_clip: missing field `c`, which kind = \"constant\" needs;",
            "; `dapo config explain dapo.dual_clip` lists the keys",
        ),
        (
            "[rollout]\ngroup_size = \"8\"",
            "arm.toml: rollout.group_size: must be a whole number, got \"8\"",
            "",
        ),
        ("[execution]\nseed = -1", "arm.toml: execution.seed: must be at least 0, got -1", ""),
        (
            "training.rollout_steps = 1e3",
            "arm.toml: training.rollout_steps: must be a whole number, got 1000.0",
            "",
        ),
        ("learning_rate = 1", "arm.toml: learning_rate:", "mean `optimizer.learning_rate`?"),
        ("rollout_step = 1", "arm.toml: rollout_step:", "steps` or `training.rollout_steps`?"),
        ("clip.high = 0.3", "arm.toml: clip:", "`dapo.clip.high` or `dapo.method.clip.high`?"),
        (
            "dapo.method.kind = \"cispo\"",
            "arm.toml: dapo.method: missing field `weight`, which kind = \"cispo\" needs;",
            "`dapo config explain dapo.method` lists the keys, and the arm cispo states them",
        ),
        (
            "dapo.method.kind = \"grpo\"",
            "arm.toml: dapo.method.kind: unknown variant `grpo`",
            "; GRPO and DAPO are experiments without [dapo.method]",
        ),
        (
            "[rollout.sampling]\ntop_k = -1",
            "arm.toml: rollout.sampling.top_k: must be at least 0, got -1",
            "0 keeps all tokens (vLLM's and verl's -1)",
        ),
        ("[zzz]\n", "arm.toml: zzz: unknown field `zzz`", "`records`"),
    ];
    for (text, start, end) in table {
        let error = arm(text).unwrap_err();
        assert!(error.starts_with(start) && error.ends_with(end), "{error}");
    }
}

#[test]
fn a_key_that_a_parent_misspells_is_reported_in_the_parent() {
    let folder = folder("extends = \"middle.toml\"\n[dapo]\naggregation = \"token-mean\"");
    let middle = "extends = \"base.toml\"\n[dapo]\nagregation = \"token-mean\"";
    files::write_atomic(&folder.path().join("middle.toml"), middle.as_bytes()).unwrap();
    let error = load(&folder.path().join("arm.toml")).unwrap_err().to_string();
    assert!(error.contains("middle.toml: dapo.agregation: unknown field"), "{error}");
}

#[test]
fn text_that_is_not_toml_is_refused_with_its_line() {
    let error = arm("[dapo]\nclip = {").unwrap_err();
    assert!(error.starts_with("arm.toml: TOML parse error at line 3, column "), "{error}");
    let folder = folder("extends = [\"base.toml\"]");
    let error = load(&folder.path().join("arm.toml")).unwrap_err().to_string();
    assert!(error.contains("arm.toml: extends: expected the name of one file"), "{error}");
    let error = load(&folder.path().join("none.toml")).unwrap_err().to_string();
    assert!(error.starts_with("cannot read ") && error.contains("none.toml"), "{error}");
}

#[test]
fn values_out_of_range_are_refused() {
    let table = [
        ("name = \"a/b\"", "name must be letters, digits and any of -_+. (not first), got \"a/b\""),
        (
            "[optimizer]\nlearning_rate = nan",
            "optimizer.learning_rate must be a finite number above 0, got nan",
        ),
        (
            "[optimizer]\nweight_decay = inf",
            "optimizer.weight_decay must be a finite number at least 0, got inf",
        ),
        ("[optimizer]\nbeta2 = 1.0", "optimizer.beta2 must be in [0, 1), got 1.0"),
        ("[optimizer]\nepsilon = 0.0", "optimizer.epsilon must be above 0, got 0.0"),
        ("[dapo]\nclip = { low = 1.2 }", "dapo.clip.low must be in (0, 1), got 1.2"),
        ("[dapo]\nclip = { high = 0.0 }", "dapo.clip.high must be above 0, got 0.0"),
        (
            "[dapo]\nadvantage = { epsilon = -1.0 }",
            "dapo.advantage.epsilon must be at least 0, got -1.0",
        ),
        (
            "[dapo.dual_clip]\nkind = \"constant\"\nc = 1.0",
            "dapo.dual_clip.c must be above 1, got 1.0",
        ),
        (
            "[dapo.log_ratio_clamp]\nkind = \"symmetric\"\nbound = 0.0",
            "dapo.log_ratio_clamp.bound must be above 0, got 0.0",
        ),
        (
            "[dapo.kl]\nkind = \"penalty\"\nestimator = \"k3\"\ncoefficient = -0.1",
            "dapo.kl.coefficient must be at least 0, got -0.1",
        ),
        (
            "[rollout]\nsampling = { temperature = 0.0 }",
            "rollout.sampling.temperature must be above 0, got 0.0",
        ),
        (
            "[evaluation]\nsampling = { top_p = 0.0 }",
            "evaluation.sampling.top_p must be in (0, 1], got 0.0",
        ),
        (
            "[evaluation.samples]\ndev = 0",
            "evaluation.samples.dev must be from 1 to 16777216, got 0",
        ),
        ("[execution]\nthreads = 0", "execution.threads must be from 1 to 1024, got 0"),
        (
            "[dapo.overlong.punishment]\nkind = \"soft\"\ncache_tokens = 160\nfactor = 1.0\nbeyond = \"clamped\"",
            "dapo.overlong.punishment.cache_tokens must be below rollout.max_response_tokens (140), got 160",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(arm(text).unwrap_err(), format!("arm.toml: {expected}"));
    }
    arm("[evaluation]\nsampling = { temperature = 0 }").expect("greedy evaluation is allowed");
}

#[test]
fn fields_that_disagree_are_refused() {
    let resample = "[dapo.dynamic_sampling]\nkind = \"resample\"\nmax_rounds = 3\n\
                    at_cap = \"stop\"\nsurplus = \"discard\"\n[rollout]\nprompts_per_round = 10";
    let table = [
        (
            "[training]\nmini_batch_rollouts = 512",
            "must be at most prompts_per_step × group_size (256), got 512",
        ),
        (
            "[training]\nmini_batch_rollouts = 48",
            "must divide prompts_per_step × group_size (256), got 48",
        ),
        (
            "[rollout]\ngroup_size = 3",
            "arm.toml: training.mini_batch_rollouts must be a multiple of rollout.group_size (3)",
        ),
        ("[rollout]\ngroup_size = 3", " (training.mini_batch_rollouts is that of base.toml)"),
        ("[training]\nmini_batch_rollouts = 4", "must be a multiple of rollout.group_size (8)"),
        (
            "[optimizer.warm_up]\nrollout_steps = 41",
            "must be at most training.rollout_steps (40), got 41",
        ),
        (
            "[rollout]\nprompts_per_round = 64",
            "must equal training.prompts_per_step (32) without dynamic sampling",
        ),
        (
            "[rollout]\ngroup_size = 1",
            "rollout.group_size must be at least 2: under GRPO the baseline of a reward is its group's",
        ),
        (
            "[rollout]\ngroup_size = 1\n[dapo.method]\nkind = \"rloo\"",
            "rollout.group_size must be at least 2: under RLOO the baseline of a reward is its group's",
        ),
        (resample, "must reach training.prompts_per_step (32) with at_cap = \"stop\", got 30"),
        (
            "[dapo]\naggregation = \"token-mean\"\ntoken_mean_unit = \"group\"\n[training]\nmini_batch_order = \"length-bands\"",
            "dapo.token_mean_unit must not be \"group\"",
        ),
    ];
    for (text, expected) in table {
        let error = arm(text).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let bands = "[training]\nmini_batch_order = \"length-bands\"\nmini_batch_rollouts = 4";
    arm(bands).expect("length bands need no whole groups");
}

#[test]
fn all_problems_are_reported_at_once_each_with_its_file() {
    let folder = folder("extends = \"middle.toml\"\n[dapo]\nclip = { low = nan }");
    let middle =
        "extends = \"base.toml\"\n[training]\nepochs_per_step = 0\n[execution]\nthreads = 0";
    files::write_atomic(&folder.path().join("middle.toml"), middle.as_bytes()).unwrap();
    let error = load(&folder.path().join("arm.toml")).unwrap_err().to_string();
    let error = error.replace(&format!("{}/", folder.path().display()), "");
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(
        lines,
        [
            "middle.toml: execution.threads must be from 1 to 1024, got 0",
            "middle.toml: training.epochs_per_step must be from 1 to 16777216, got 0",
            "arm.toml: dapo.clip.low must be a finite number in (0, 1), got nan",
        ]
    );
}

#[test]
fn the_resolved_experiment_survives_json() {
    let experiment = arm("[inputs]\nmodel = \"m\"").unwrap();
    let json = files::canonical_json(&experiment);
    assert_eq!(serde_json::from_str::<Experiment>(&json).unwrap(), experiment);
}

#[test]
fn every_key_of_every_table_is_suggested_for_its_misspelling() {
    // The base with every technique's variant on: a table that has all keys.
    let on = "[dapo]\ndual_clip = { kind = \"constant\", c = 10.0 }\n\
              log_ratio_clamp = { kind = \"symmetric\", bound = 20.0 }\n\
              kl = { kind = \"penalty\", estimator = \"k3\", coefficient = 0.04 }\n\
              dynamic_sampling = { kind = \"resample\", max_rounds = 4, at_cap = \"train\", surplus = \"carry\" }\n\
              overlong.punishment = { kind = \"soft\", cache_tokens = 32, factor = 1.0, beyond = \"clamped\" }\n\
              [inputs]\ndata = { kind = \"files\", train = \"a\", dev = \"b\", test = [\"c\"] }";
    let experiment = arm(on).unwrap();
    let Value::Table(whole) = Value::try_from(&experiment).unwrap() else { panic!("a table") };
    let mut seen = 0;
    for key in keys(&whole, "") {
        // Names of sets are the user's own.
        if key.starts_with("evaluation.samples.") || key.ends_with(".kind") {
            continue;
        }
        let (folder, name) = key.rsplit_once('.').unwrap_or(("", &key));
        let wrong = format!("{name}x");
        let misspelt = renamed(&whole, &key, &wrong);
        let failure = diagnose::parse(&misspelt).unwrap_err();
        let failure = diagnose::explained(&misspelt, failure);
        assert!(
            failure.reason.ends_with(&format!("did you mean `{name}`?")),
            "{key}: {}",
            failure.reason
        );
        let expected = if folder.is_empty() { wrong } else { format!("{folder}.{wrong}") };
        assert_eq!(failure.key, expected);
        seen += 1;
    }
    assert!(seen > 55, "only {seen} keys");
}

fn keys(table: &Table, prefix: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        if let Value::Table(inner) = value {
            paths.extend(keys(inner, &key));
        }
        paths.push(key);
    }
    paths
}

fn renamed(whole: &Table, key: &str, wrong: &str) -> Table {
    let mut copy = whole.clone();
    let parts: Vec<&str> = key.split('.').collect();
    let (name, folders) = parts.split_last().unwrap();
    let mut table = &mut copy;
    for part in folders {
        table = table.get_mut(*part).unwrap().as_table_mut().unwrap();
    }
    let value = table.remove(*name).unwrap();
    table.insert(wrong.to_string(), value);
    copy
}

#[test]
fn every_value_of_every_enum_is_suggested_for_its_misspelling() {
    let Value::Table(whole) = Value::try_from(arm("").unwrap()).unwrap() else { panic!("a table") };
    for (key, value) in [
        ("prompt.template", "dapo"),
        ("reward.verifier", "strict-box"),
        ("training.mini_batch_order", "length-bands"),
        ("optimizer.warm_up.start", "first-step"),
        ("dapo.aggregation", "response-sum"),
        ("dapo.token_mean_unit", "micro-batch"),
        ("dapo.advantage.std", "population"),
        ("dapo.dual_clip.kind", "constant"),
        ("dapo.dynamic_sampling.kind", "resample"),
        ("dapo.kl.kind", "penalty"),
        ("inputs.data.kind", "files"),
    ] {
        let wrong = Value::String(format!("{value}x"));
        let misspelt = diagnose::with(&whole, key, wrong).unwrap();
        let failure = diagnose::parse(&misspelt).unwrap_err();
        let failure = diagnose::explained(&misspelt, failure);
        assert_eq!(failure.key, key);
        assert!(
            failure.reason.ends_with(&format!("did you mean `{value}`?")),
            "{key}: {}",
            failure.reason
        );
    }
}

#[test]
fn what_cannot_stand_around_a_question_or_end_a_response_is_refused_all_at_once() {
    let many: Vec<String> = (0..17).map(|number| format!("stop {number}")).collect();
    let long = "x".repeat(257);
    for (text, expected) in [
        ("rollout.stop = []", "rollout.stop must be absent where nothing but a stop token ends"),
        ("rollout.stop = [\"\"]", "rollout.stop must have no empty text"),
        ("rollout.stop = [\"a\", \"b\", \"a\"]", "rollout.stop names \"a\" twice"),
        (&format!("rollout.stop = {many:?}"), "rollout.stop must be at most 16 texts, got 17"),
        (&format!("evaluation.stop = [\"{long}\"]"), "at most 256 bytes, got one of 257"),
        ("evaluation.stop = [\"a\\uFFFD\"]", "evaluation.stop must have no U+FFFD"),
        ("evaluation.stop = [1]", "evaluation.stop"),
        ("rollout.stop = \"a\"", "rollout.stop"),
        ("prompt.system = \"\"", "prompt.system must not be empty"),
        ("prompt.response_prefix = \"\"", "prompt.response_prefix must not be empty"),
        (
            "prompt.examples = [{ question = \"\", response = \"2\" }]",
            "prompt.examples[0].question must not be empty",
        ),
        ("prompt.examples = [{ question = \"1\" }]", "missing field `response`"),
        ("prompt.examples = [{ problem = \"1\", response = \"2\" }]", "unknown field `problem`"),
        ("prompt.prefix = \"So\"", "prompt.prefix"),
        ("prompt.chat_template_kwargs = { a = 1 }", "it needs prompt.template = \"chat\""),
        (
            "prompt.chat_template_kwargs = { messages = \"x\" }",
            "prompt.chat_template_kwargs.messages must be absent",
        ),
        (
            "prompt.chat_template_kwargs = { a = [1] }",
            "must be a text, true, false or a finite number",
        ),
        (
            "prompt.chat_template_kwargs = { a = nan }",
            "must be a text, true, false or a finite number, got NaN or infinity",
        ),
        ("prompt.chat_template_kwargs = { \"a.b\" = 1 }", "is named by letters, digits and _"),
    ] {
        let refused = arm(text).unwrap_err();
        assert!(refused.contains(expected), "{text}: {refused}");
    }
    let both = arm("rollout.stop = [\"\"]\nevaluation.stop = [\"a\", \"a\"]").unwrap_err();
    assert!(both.contains("rollout.stop must") && both.contains("evaluation.stop names"), "{both}");
}

#[test]
fn an_evaluation_stops_where_rollouts_do_unless_it_says_otherwise() {
    let stop = |text: &str| arm(text).unwrap().evaluation_stop().to_vec();
    assert_eq!(stop(""), [""; 0]);
    assert_eq!(stop("rollout.stop = [\"a\"]"), ["a"]);
    assert_eq!(stop("rollout.stop = [\"a\"]\nevaluation.stop = []"), [""; 0]);
    assert_eq!(stop("evaluation.stop = [\"b\"]"), ["b"]);
}
