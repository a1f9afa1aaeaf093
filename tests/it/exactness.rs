//! The same short training under many settings, and whether it gives the same bits: `just exactness`.
//! A cell is processes of its own, because LibTorch, MKL and oneDNN read their environment when they
//! are loaded.

use crate::binary::{self, PROGRAM, failed, succeeded};
use crate::interruption::kill;
use crate::{engines, repository};
use dapo::algorithm::Problem;
use dapo::base::{files, workers};
use dapo::commands::{output, pretrain};
use dapo::experiment::extends;
use dapo::numerics::{Instructions, native::orders, vectorised};
use dapo::policy::checkpoint;
use dapo::records::{RunFolder, environment, ledger::LedgerEntry, ledger::STEP_COMPONENTS};
use dapo::task::data;
use dapo::training::{Unfinished, pretraining, run, run::inputs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The run of a cell, and the recipe that its updates of pretraining follow.
const EXPERIMENT: &str = "experiments/exactness.toml";
const RECIPE: &str = "golden/mini-aime/recipe.toml";

/// Variables that change how the loops, LibTorch, MKL and oneDNN compute. A cell has only its own.
const VARIABLES: &str = "DAPO_INSTRUCTIONS ATEN_CPU_CAPABILITY ONEDNN_MAX_CPU_ISA DNNL_MAX_CPU_ISA MKL_CBWR \
                         MKL_ENABLE_INSTRUCTIONS MKL_NUM_THREADS OMP_NUM_THREADS OMP_DYNAMIC";

#[test]
fn a_short_run_has_the_same_bits_with_every_sum_reordered_and_under_other_settings() {
    let work = Work::new("exact", Size::Tiny);
    let baseline = work.run(&Setting::default()).unwrap();
    let (reordered, sums) = work.with_sums_reordered();
    assert!(sums > 1_000_000, "{sums}");
    assert_eq!(reordered, baseline);
    let other = Setting { threads: 2, micro_batch: 1, generation_batch: 3, ..Setting::default() };
    assert_eq!(work.run(&other).unwrap(), baseline);
    let mut here = vec![Instructions::Scalar];
    #[cfg(target_arch = "x86_64")]
    here.extend(std::arch::is_x86_feature_detected!("avx2").then_some(Instructions::Avx2));
    #[cfg(target_arch = "x86_64")]
    here.extend(std::arch::is_x86_feature_detected!("avx512f").then_some(Instructions::Avx512));
    for instructions in here {
        assert_eq!(work.run(&Setting::loops(instructions)).unwrap(), baseline, "{instructions:?}");
    }
}

#[test]
fn a_digest_that_differs_is_named_in_the_order_in_which_things_come_about() {
    let work = Work::new("fast", Size::Tiny);
    let one = work.run(&Setting::default()).unwrap();
    assert_eq!(one.first_difference(&one), None);
    let mut other = one.clone();
    for name in ["moments", "gradients"] {
        other.ledger[1].components.insert(name.to_string(), "other".to_string());
    }
    assert_eq!(other.first_difference(&one).as_deref(), Some("step 1: gradients"));
    other.pretrained = "other".to_string();
    assert_eq!(other.first_difference(&one).as_deref(), Some("pretraining"));
}

#[test]
fn an_instruction_set_that_does_not_exist_or_is_not_there_is_refused_before_any_work() {
    let run = |value: &str| {
        binary::ended(Command::new(PROGRAM).args(["runs", "."]).env(vectorised::VARIABLE, value))
    };
    failed(run("AVX2"), 3, "DAPO_INSTRUCTIONS is \"AVX2\"; it can be scalar, avx2 or avx512");
    succeeded(run("scalar"));
    #[cfg(target_arch = "x86_64")]
    if !std::arch::is_x86_feature_detected!("avx512f") {
        failed(run("avx512"), 6, "avx512, which this machine does not have");
    }
}

/// The matrices of `reports/exactness`. DAPO_EXACTNESS_JSON names a file for them;
/// DAPO_EXACTNESS_EMULATE, comma-separated models of `qemu-x86_64 -cpu help` (Debian: qemu-user) on
/// which a tiny cell is computed too.
#[test]
#[ignore = "takes minutes: just exactness"]
fn all_exact_cells_of_the_matrices_agree() {
    let wanted = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let emulated = wanted("DAPO_EXACTNESS_EMULATE").unwrap_or_default();
    let emulated = emulated.split(',').filter(|name| !name.is_empty()).map(|processor| {
        let name = format!("emulated {processor}");
        Setting { name, processor: Some(processor.to_string()), ..Setting::default() }
    });
    let slow = Instructions::ALL.map(Setting::loops).into_iter().chain(emulated);
    let slow: Vec<Setting> = [Setting::default()].into_iter().chain(slow).collect();
    let name = "every sum also reversed and shuffled".to_string();
    let reordered = Setting { name, reordered: true, ..Setting::default() };
    let exact = [Setting::all(), vec![reordered]].concat();
    let matrices = [
        Matrix::of("exact", Work::new("exact", Size::Full), &exact),
        Matrix::of("fast", Work::new("fast", Size::Full), &Setting::all()),
        Matrix::of("exact, tiny", Work::new("exact", Size::Tiny), &slow),
    ];
    let facts = environment::describe(1).facts;
    if let Some(path) = wanted("DAPO_EXACTNESS_JSON") {
        let record = serde_json::json!({ "environment": facts, "matrices": matrices });
        files::write_json(Path::new(&path), &record).unwrap();
    }
    println!("{facts:#?}");
    matrices.iter().for_each(Matrix::print);
    // What this machine cannot run is told; what runs must agree.
    let is_other = |row: &&Row| !row.note.is_empty() && !row.note.starts_with("not here");
    let differing = |matrix: &Matrix| matrix.rows.iter().filter(is_other).count();
    assert_eq!([differing(&matrices[0]), differing(&matrices[2])], [0, 0]);
    assert!(matrices.iter().all(|matrix| matrix.rows[0].digests.is_some()));
}

/// What differs from the baseline; `exactness/settings.toml` has a row for each cell.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Setting {
    name: String,
    threads: u64,
    /// Rollouts of one forward and backward pass.
    micro_batch: u64,
    /// Responses generated at the same time.
    generation_batch: u64,
    environment: BTreeMap<String, String>,
    /// The first process, with so many threads, is killed after its first checkpoint.
    killed: Option<u64>,
    /// Model of an emulated processor.
    processor: Option<String>,
    /// In this process, with every sum also reversed and shuffled.
    reordered: bool,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            name: "baseline: 1 thread, micro-batch 16, generation batch 64".to_string(),
            threads: 1,
            micro_batch: 16,
            generation_batch: 64,
            environment: BTreeMap::new(),
            killed: None,
            processor: None,
            reordered: false,
        }
    }
}

impl Setting {
    fn loops(instructions: Instructions) -> Self {
        let name = instructions.name();
        let environment = [(vectorised::VARIABLE.to_string(), name.to_string())].into();
        Self { name: format!("run-time loops: {name}"), environment, ..Self::default() }
    }

    /// The baseline and every cell that is compared with it.
    fn all() -> Vec<Self> {
        let rows = engines::rows(include_str!("exactness/settings.toml"), "settings");
        [vec![Self::default()], rows].concat()
    }
}

/// How much a cell computes: 5 updates of each stage of the recipe and the experiment as it stands, or
/// one update and one rollout step of a handful of rollouts, for emulated processors.
#[derive(Clone, Copy, PartialEq)]
enum Size {
    Full,
    Tiny,
}

const TINY: &str = include_str!("exactness/tiny.toml");

/// A folder with a recipe and an experiment.
struct Work {
    folder: tempfile::TempDir,
    numerics: &'static str,
}

impl Work {
    fn new(numerics: &'static str, size: Size) -> Self {
        let work = Self { folder: tempfile::tempdir().unwrap(), numerics };
        let mut recipe: toml::Table =
            toml::from_str(&files::read_text(Path::new(RECIPE)).unwrap()).unwrap();
        recipe["numerics"] = numerics.into();
        let stages = recipe["stages"].as_array_mut().unwrap();
        let tiny = size == Size::Tiny;
        stages.truncate(if tiny { 1 } else { 2 });
        for stage in stages {
            stage["updates"] = if tiny { 1 } else { 5 }.into();
            stage["sequences_per_update"] = if tiny { 2 } else { 16 }.into();
            stage["warm_up_updates"] = stage["warm_up_updates"].as_integer().unwrap().min(1).into();
        }
        let text = toml::to_string(&recipe).unwrap();
        files::write_atomic(&work.at("recipe.toml"), text.as_bytes()).unwrap();
        let mut arm = format!(
            "extends = {:?}\nnumerics = {numerics:?}\n",
            repository::root().join(EXPERIMENT)
        );
        arm += if tiny { TINY } else { "" };
        files::write_atomic(&work.at("arm.toml"), arm.as_bytes()).unwrap();
        // The tiny size has a few problems of each set.
        let sets = data::load(&extends::load(Path::new(EXPERIMENT)).unwrap().inputs.data).unwrap();
        let write = |name: &str, problems: &[Problem]| {
            data::write(&work.at(&format!("{name}.parquet")), problems, false).unwrap();
        };
        write("train", &sets.train[..64]);
        sets.evaluated().for_each(|(name, problems)| write(name, &problems[..2]));
        work
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A process of the binary, in the environment of the setting.
    fn command(&self, setting: &Setting, line: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        if let Some(processor) = &setting.processor {
            command = Command::new("qemu-x86_64");
            command.args(["-cpu", processor, PROGRAM]);
        }
        for name in VARIABLES.split_whitespace() {
            command.env_remove(name);
        }
        command.envs(&setting.environment).current_dir(self.folder.path());
        command.args(line.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn clear(&self) {
        ["run", "base"].iter().for_each(|name| files::remove_folder(&self.at(name)).unwrap());
    }

    /// What a cell computed, or why it did not.
    fn run(&self, setting: &Setting) -> Result<Digests, String> {
        if setting.reordered {
            return Ok(self.with_sums_reordered().0);
        }
        self.clear();
        let train = |threads: u64| {
            let (micro, batch) = (setting.micro_batch, setting.generation_batch);
            let line = format!(
                "train arm.toml --no-plan --resume --out run --threads {threads} \
                 --set execution.micro_batch_rollouts={micro} \
                 --set execution.generation_batch_rollouts={batch}"
            );
            self.command(setting, &line)
        };
        if let Some(threads) = setting.killed {
            let mut child = train(threads).spawn().unwrap();
            // It must be in the middle of its work, or nothing is shown.
            while !self.at("run/checkpoints/step-000001/trainer.json").exists() {
                if child.try_wait().unwrap().is_some() {
                    return Err("failed: it ended before it could be killed".to_string());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            kill(&mut child);
        }
        let talk = ended(&mut train(setting.threads))?;
        if setting.killed.is_some() && !talk.contains("resuming") {
            return Err("failed: it began again".to_string());
        }
        let pretrain =
            format!("model pretrain recipe.toml --out base --threads {}", setting.threads);
        ended(&mut self.command(setting, &pretrain))?;
        Ok(self.digests())
    }

    /// The same in this process, with every sum also reversed and shuffled, and how many were compared.
    fn with_sums_reordered(&self) -> (Digests, u64) {
        self.clear();
        workers::set_count(1);
        let inputs = inputs::prepare(extends::load(&self.at("arm.toml")).unwrap()).unwrap();
        let before = orders::check(true);
        let run = RunFolder::at(self.at("run"));
        run::run(&inputs, &run, Unfinished::Refuse, &|| false, &mut |_| ()).unwrap();
        let (recipe, solutions) = pretrain::recipe(&self.at("recipe.toml")).unwrap();
        let tokenizer = &inputs.tokenizer;
        let model = pretraining::pretrain(&recipe, &*solutions, tokenizer, |_| false).unwrap();
        let path = self.at("base/model.safetensors");
        checkpoint::write_tensors(&path, &checkpoint::values(&model)).unwrap();
        (self.digests(), orders::check(false) - before)
    }

    fn digests(&self) -> Digests {
        let pretrained = files::sha256_file(&self.at("base/model.safetensors")).unwrap();
        Digests { pretrained, ledger: RunFolder::at(self.at("run")).ledger().unwrap() }
    }
}

/// What a process said, or how it ended.
fn ended(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("not here: {error}"))?;
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = talk.lines().last().unwrap_or_default();
    match output.status.code() {
        Some(0) => Ok(talk),
        Some(6) => Err(format!("not here: {last}")),
        _ => Err(format!("failed: {}, {last}", output.status)),
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Digests {
    /// SHA-256 of the weights after the updates of pretraining.
    pretrained: String,
    ledger: Vec<LedgerEntry>,
}

impl Digests {
    /// The first thing that differs from another's, in the order in which things come about. The first
    /// entry of a ledger and the heads bind the execution under `fast` arithmetic.
    fn first_difference(&self, other: &Self) -> Option<String> {
        if self.pretrained != other.pretrained {
            return Some("pretraining".to_string());
        }
        for (one, another) in self.ledger.iter().zip(&other.ledger).skip(1) {
            let (a, b) = (&one.components, &another.components);
            let mut all = STEP_COMPONENTS.into_iter().chain(a.keys().map(String::as_str));
            if let Some(name) = all.find(|name| a.get(*name) != b.get(*name)) {
                return Some(format!("step {}: {name}", one.step));
            }
        }
        (self.ledger.len() != other.ledger.len()).then(|| "the number of steps".to_string())
    }
}

/// Cells of one arithmetic. The first is the baseline.
#[derive(Serialize)]
struct Matrix {
    name: String,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    setting: String,
    digests: Option<Digests>,
    /// What differs from the baseline first, or why nothing was computed.
    note: String,
    seconds: f64,
}

impl Matrix {
    fn of(name: &str, work: Work, settings: &[Setting]) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        for setting in settings {
            eprintln!("{name}: {}", setting.name);
            let started = Instant::now();
            let computed = work.run(setting);
            let seconds = started.elapsed().as_secs_f64();
            let baseline = rows.first().and_then(|row| row.digests.as_ref());
            let note = match (&computed, baseline) {
                (Err(reason), _) => reason.clone(),
                (Ok(own), Some(baseline)) => match own.first_difference(baseline) {
                    Some(difference) => format!("first: {difference}"),
                    None if work.numerics == "exact" && own != baseline => "the heads".to_string(),
                    None => String::new(),
                },
                (Ok(_), None) => String::new(),
            };
            rows.push(Row { setting: setting.name.clone(), digests: computed.ok(), note, seconds });
        }
        Self { name: name.to_string(), rows }
    }

    fn print(&self) {
        let rows = self.rows.iter().map(|row| {
            let short = |digest: &str| digest[..12].to_string();
            let digests = row.digests.as_ref();
            let pretrained = digests.map(|own| short(&own.pretrained)).unwrap_or_default();
            let head = digests.map(|own| short(&own.ledger.last().unwrap().head));
            let seconds = format!("{:.1}", row.seconds);
            [row.setting.clone(), pretrained, head.unwrap_or_default(), seconds, row.note.clone()]
        });
        let table = output::table("setting | pretraining | ledger | seconds # | note", rows);
        println!("\n{}\n\n{table}", self.name);
    }
}
