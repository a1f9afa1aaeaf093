//! Loads and checks everything that a run reads, and computes its identity.

use crate::algorithm::Problem;
use crate::base::files;
use crate::experiment::bases::{self, BaseRecipe};
use crate::experiment::{Data, Device, Experiment, Grading, Place, WeightKind, sets, shipped};
use crate::numerics::Numerics;
use crate::policy::{Config, Qwen2, checkpoint, model::native};
use crate::records::{Manifest, run_folder};
use crate::task::{DataSets, Grader, TaskError, Tokenizer, data, prompt, response_text};
use crate::training::long_prompts::LongPrompts;
use crate::training::{TrainingError, machine, tuning};
use serde_json::json;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

#[derive(Debug)]
pub struct Inputs {
    pub experiment: Experiment,
    pub tokenizer: Tokenizer,
    pub data: DataSets,
    pub manifest: Manifest,
    pub config: Config,
    /// Memory of the process before the base policy was loaded; `None` where unknown.
    pub process_bytes: Option<u64>,
    /// Loaded for the check; its first user takes it.
    base: RefCell<Option<Qwen2>>,
    pub grader: Grader,
    graders_of_sets: BTreeMap<String, Grader>,
}

pub fn prepare(experiment: Experiment) -> Result<Inputs, TrainingError> {
    assemble(experiment, |folder| {
        let model = checkpoint::load_model(folder)?;
        Ok((model.config().clone(), Some(model)))
    })
}

/// Reads only the headers of the base policy's weights.
pub fn prepare_without_weights(experiment: Experiment) -> Result<Inputs, TrainingError> {
    assemble(experiment, |folder| Ok((checkpoint::open_model(folder)?.0, None)))
}

/// The run's identity, without checks that it can be trained.
pub fn identified(experiment: &Experiment) -> Result<Manifest, TrainingError> {
    let mut experiment = experiment.clone().of_its_seed();
    experiment.inputs.model = shipped::model_folder(&experiment.inputs.model)?;
    // Other engines may have policies that are not read here.
    let config = checkpoint::open_model(&experiment.inputs.model).ok().map(|(config, _)| config);
    let data = data::load_for(&experiment)?;
    manifest(&experiment, config.as_ref(), &data, &graders(&experiment, &data)?)
}

fn assemble(
    experiment: Experiment,
    model: impl FnOnce(&Path) -> Result<(Config, Option<Qwen2>), TrainingError>,
) -> Result<Inputs, TrainingError> {
    let place = experiment.execution.place();
    if experiment.numerics == Numerics::Exact && place != Place::default() {
        return Err(TrainingError::ExactElsewhere { device: place.device, weights: place.weights });
    }
    let mut experiment = experiment.of_its_seed();
    experiment.inputs.model = shipped::model_folder(&experiment.inputs.model)?;
    let data = data::load_for(&experiment)?;
    let folder = &experiment.inputs.model;
    if !folder.exists() {
        let (path, seed) = (folder.clone(), experiment.execution.seed);
        let unknown = || BaseRecipe { recipe: "RECIPE".to_string(), ..Default::default() };
        let base = bases::of_seed(folder, seed);
        if let Some(base) = base.or(experiment.inputs.base.as_ref().map(|_| unknown())) {
            let command = base.commands("", folder, seed).join(" && ");
            return Err(TrainingError::NoBase { path, command });
        }
        return Err(TrainingError::Missing { key: "inputs.model".to_string(), path });
    }
    for (set, grading) in experiment.gradings() {
        let Some(path) = grading.program().map(|program| &program.file) else { continue };
        if !path.as_os_str().is_empty() && !path.exists() {
            let table = set.map_or("reward".to_string(), |set| format!("evaluation.sets.{set}"));
            let key = format!("{table}.verifier.file");
            return Err(TrainingError::Missing { key, path: path.clone() });
        }
    }
    let tokenizer = Tokenizer::load(folder)?;
    let process_bytes = machine::process_bytes("VmRSS");
    let (config, model) = model(folder)?;
    tokenizer.fits(folder, config.vocab_size)?;
    let graders = graders(&experiment, &data)?;
    let manifest = manifest(&experiment, Some(&config), &data, &graders)?;
    let (grader, graders_of_sets) = graders;
    let inputs = Inputs {
        experiment,
        tokenizer,
        data,
        manifest,
        config,
        process_bytes,
        base: RefCell::new(model),
        grader,
        graders_of_sets,
    };
    for (name, _) in inputs.data.evaluated() {
        inputs.samples(name)?;
    }
    let check = |key, stop| response_text::check_stop(key, &inputs.tokenizer, stop);
    check("rollout.stop", inputs.experiment.rollout_stop())?;
    check("evaluation.stop", inputs.experiment.evaluation_stop())?;
    check_prompts(&inputs, inputs.config.max_position_embeddings)?;
    check_exactness(&inputs.experiment, &inputs.config)?;
    Ok(inputs)
}

pub fn grades_by_program(experiment: &Experiment) -> bool {
    experiment.gradings().any(|(_, grading)| grading.program().is_some())
}

type AllGraders = (Grader, BTreeMap<String, Grader>);

fn graders(experiment: &Experiment, data: &DataSets) -> Result<AllGraders, TaskError> {
    let start = |grading: &_| Grader::start(grading, &experiment.prompt, data.columns.clone());
    let of_sets = experiment.gradings().filter_map(|(set, grading)| Some((set?, grading)));
    let of_sets = of_sets.map(|(set, grading)| Ok((set.to_string(), start(grading)?)));
    Ok((start(&experiment.reward.verifier)?, of_sets.collect::<Result<_, TaskError>>()?))
}

/// Sizes alone decide whether every sum is exact under exact arithmetic.
fn check_exactness(experiment: &Experiment, config: &Config) -> Result<(), TrainingError> {
    if experiment.numerics == Numerics::Fast {
        return Ok(());
    }
    let longest = experiment.rollout.max_prompt_tokens + experiment.rollout.max_response_tokens;
    let tokens = experiment.training.mini_batch_rollouts.saturating_mul(longest);
    native::windows(config)?.gradient(native::shape(config), tokens as usize)?;
    Ok(())
}

/// Every problem can be tokenized and answered. A process asks once: the cells of a study differ in other things.
fn check_prompts(inputs: &Inputs, positions: i64) -> Result<(), TrainingError> {
    static ANSWERABLE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Experiment { prompt: settings, rollout, .. } = &inputs.experiment;
    let mut read = inputs.manifest.inputs.clone();
    read.retain(|name, _| match name.split_once('/') {
        Some(("base", file)) => checkpoint::COMPANIONS.contains(&file),
        other => other.is_some_and(|(kind, _)| kind == "data"),
    });
    let lengths = (rollout.max_prompt_tokens, rollout.max_response_tokens, positions);
    let asked = files::canonical_json_line(&(read, settings, lengths));
    let answerable = || ANSWERABLE.lock().unwrap_or_else(PoisonError::into_inner);
    if answerable().contains(&asked) {
        return Ok(());
    }
    let limit = rollout.max_prompt_tokens;
    for (set, problems) in named_sets(&inputs.data) {
        let at = |source| in_file(&inputs.experiment.inputs.data, set, source);
        let mut long = LongPrompts::default();
        for problem in problems {
            let prompt = prompt::prompt(problem, settings, &inputs.tokenizer, limit);
            let Some(prompt) = long.counted(prompt).map_err(at)? else { continue };
            let (tokens, response) = (prompt.tokens.len(), rollout.max_response_tokens);
            if tokens as u64 + response > positions as u64 {
                let problem = problem.id.clone();
                return Err(TrainingError::Positions { problem, tokens, response, positions });
            }
        }
        long.refuse(problems.len(), limit, "--set rollout.max_prompt_tokens=N").map_err(at)?;
    }
    answerable().insert(asked);
    Ok(())
}

fn in_file(data: &Data, set: &str, source: TaskError) -> TrainingError {
    let Data::Files { train, dev, test } = data else { return source.into() };
    let path = match set {
        sets::TRAIN => Some(train),
        sets::DEV => Some(dev),
        _ => test.iter().find(|path| sets::set_name(path) == set),
    };
    match path {
        Some(path) => TrainingError::Problem { path: path.clone(), source },
        None => source.into(),
    }
}

impl Inputs {
    /// Under the experiment's arithmetic.
    pub fn base_policy(&self) -> Result<Qwen2, TrainingError> {
        let load = || checkpoint::load_model(&self.experiment.inputs.model);
        self.executed(self.base.take().map_or_else(load, Ok)?)
    }

    pub fn forget_base_policy(&self) {
        self.base.take();
    }

    /// Applies the experiment's device and arithmetic.
    pub fn executed(&self, model: Qwen2) -> Result<Qwen2, TrainingError> {
        let model = model.placed(self.experiment.execution.place())?;
        Ok(model.with_numerics(self.experiment.numerics)?)
    }

    pub fn grader_of(&self, set: &str) -> &Grader {
        self.graders_of_sets.get(set).unwrap_or(&self.grader)
    }

    pub fn graders(&self) -> impl Iterator<Item = &Grader> {
        std::iter::once(&self.grader).chain(self.graders_of_sets.values())
    }

    pub fn samples(&self, set: &str) -> Result<u64, TrainingError> {
        let samples = &self.experiment.evaluation.samples;
        samples
            .get(set)
            .copied()
            .ok_or_else(|| TrainingError::Samples { set: set.to_string(), known: samples.clone() })
    }
}

fn manifest(
    experiment: &Experiment,
    config: Option<&Config>,
    sets: &DataSets,
    (grader, of_sets): &AllGraders,
) -> Result<Manifest, TrainingError> {
    let mut inputs = set_digests(sets);
    inputs.extend(grader.inputs()?);
    for (set, grader) in of_sets {
        let of_set = grader.inputs()?.into_iter();
        inputs.extend(of_set.map(|(name, value)| (run_folder::input_of_set(set, &name), value)));
    }
    inputs.extend(tuning::base_digests(&experiment.inputs.model)?);
    Ok(Manifest {
        harness: env!("CARGO_PKG_VERSION").to_string(),
        name: experiment.name.clone(),
        arm_sha256: experiment.arm_sha256(),
        seed: experiment.execution.seed,
        run_key: run_key(experiment, &inputs),
        exactness: exactness(experiment, config).to_string(),
        inputs,
    })
}

/// The first input that no run has, or whose digest is no SHA-256 (of a package: its version).
pub fn impossible<'a>(
    inputs: &'a BTreeMap<String, String>,
    experiment: &Experiment,
) -> Option<&'a str> {
    let sets = experiment.set_names();
    let plain = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
    let is_plain = |text: &str| !text.is_empty() && text.len() <= 128 && text.chars().all(plain);
    let is_of_program = |name: &str, grading: &Grading| match name.split_once('/') {
        _ if grading.program().is_none() => false,
        Some(("reward", file)) => file.split('/').all(is_plain),
        Some(("package", package)) => is_plain(package),
        _ => false,
    };
    let is_possible = |name: &str| match name.split_once('/') {
        Some(("data", set)) => set == sets::TRAIN || sets.iter().any(|known| known == set),
        Some(("base", file)) => is_plain(file),
        _ => experiment.gradings().any(|(set, grading)| {
            let own =
                set.map_or(Some(name), |set| name.strip_prefix(&run_folder::input_of_set(set, "")));
            own.is_some_and(|name| is_of_program(name, grading))
        }),
    };
    let is_version = |text: &str| text.chars().all(|it| plain(it) || "+!".contains(it));
    let wrong = |(name, value): &(&String, &String)| {
        let is_value =
            if name.contains("package/") { is_version(value) } else { files::is_sha256(value) };
        !is_possible(name) || !is_value
    };
    inputs.iter().find(wrong).map(|(name, _)| name.as_str())
}

/// The policy's shape decides between two possible levels.
pub fn levels(experiment: &Experiment) -> &'static [&'static str] {
    if !experiment.engine.is_native() {
        return &["imported"];
    }
    let Place { device, weights, memory } = experiment.execution.place();
    match (experiment.numerics, device) {
        (Numerics::Exact, _) => &["exact"],
        (Numerics::Fast, Device::Cpu) if weights == WeightKind::F32 && memory.is_none() => {
            &[run_folder::EXACT_F32, "exact-here"]
        }
        (Numerics::Fast, Device::Cpu) => &["exact-here"],
        // Backward passes of attention have no fixed order of sums.
        (Numerics::Fast, Device::Cuda(_)) => &["approximate"],
    }
}

fn exactness(experiment: &Experiment, config: Option<&Config>) -> &'static str {
    match levels(experiment) {
        [native_engine, _] if config.is_some_and(native::computes) => native_engine,
        [_, libtorch] => libtorch,
        all => all[0],
    }
}

/// SHA-256 over arm, execution, digests of inputs, and the format of records if it is not 1.
pub fn run_key(experiment: &Experiment, inputs: &BTreeMap<String, String>) -> String {
    let mut key = json!({
        "arm_sha256": experiment.arm_sha256(),
        "execution": experiment.bound_execution(),
        "inputs": inputs,
    });
    if experiment.record_format() > 1 {
        key["format"] = json!(experiment.record_format());
    }
    files::sha256(files::canonical_json_line(&key).as_bytes())
}

/// `data/SET` → SHA-256.
pub fn set_digests(sets: &DataSets) -> BTreeMap<String, String> {
    let named = named_sets(sets).into_iter();
    let digest = |problems| data::digest_with(problems, &sets.columns);
    named.map(|(name, problems)| (format!("data/{name}"), digest(problems))).collect()
}

/// Training set, development set, then test sets.
pub fn named_sets(sets: &DataSets) -> Vec<(&str, &[Problem])> {
    std::iter::once((sets::TRAIN, &sets.train[..])).chain(sets.evaluated()).collect()
}
