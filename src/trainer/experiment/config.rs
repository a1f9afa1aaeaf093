//! An experiment file: what is computed (`Arm`, hashed), what is read and where it executes. No default that can move a
//! number lives in code: `experiments/base.toml` states every key.

use crate::algorithm::{Aggregation, Dapo, DynamicSampling, TokenMeanUnit};
use crate::base::files;
use crate::experiment::{Device, Grading, Memory, Place, WeightKind};
use crate::numerics::Numerics;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The arm's name in reports. Not part of its identity.
    pub name: String,
    pub numerics: Numerics,
    /// Files enter a run's key by digest, not path; a variant of the embedded benchmark is part of the arm's identity.
    pub inputs: InputPaths,
    /// Where and how it executes. Not part of the arm's identity.
    pub execution: Execution,
    pub prompt: PromptSettings,
    pub rollout: RolloutSettings,
    pub reward: Reward,
    pub dapo: Dapo,
    pub training: Training,
    pub optimizer: Optimizer,
    pub evaluation: Evaluation,
    /// What a run keeps. Not part of the arm's identity.
    pub checkpoints: Checkpoints,
    /// Which trainer runs it. It is part of the arm's identity where it is not this one.
    #[serde(default, skip_serializing_if = "Engine::is_native")]
    pub engine: Engine,
    /// What a run records; absent: format 1. Not part of the arm's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<RecordsSettings>,
}

/// Keys of an experiment that are no part of its arm's identity, but for what [`Experiment::arm`] has of `inputs`.
pub const OUTSIDE_OF_ARM: [&str; 5] = ["name", "inputs", "execution", "checkpoints", "records"];

/// In the path of a base policy, the run seed: each seed then starts from a base policy of its own.
pub const SEED_IN_PATH: &str = "{seed}";

impl Experiment {
    pub fn of_its_seed(mut self) -> Self {
        if let Some(path) = self.inputs.model.to_str() {
            self.inputs.model = path.replace(SEED_IN_PATH, &self.execution.seed.to_string()).into();
        }
        self
    }

    /// Makes relative paths start from `folder`.
    pub fn start_from(&mut self, folder: &Path) {
        for path in self.inputs.paths() {
            *path = folder.join(&path);
        }
        let of_sets = self.evaluation.sets.values_mut().filter_map(|set| set.verifier.as_mut());
        for grading in std::iter::once(&mut self.reward.verifier).chain(of_sets) {
            if let Grading::Program(program) = grading
                && !program.file.as_os_str().is_empty()
            {
                program.file = folder.join(&program.file);
            }
        }
    }

    pub fn has_base_of_seed(&self) -> bool {
        self.inputs.model.to_string_lossy().contains(SEED_IN_PATH)
    }

    /// What may move a number on an ideal machine. The SHA-256 of its canonical JSON is the arm's identity. Of the inputs
    /// it has the parameters, not files: they are told apart by their digests, in a run's key.
    pub fn arm(&self) -> Value {
        let mut inputs = Map::new();
        inputs.extend(self.inputs.base.iter().map(|base| ("base".to_string(), json!(base))));
        let data = match &self.inputs.data {
            // As the first version wrote it.
            Data::MiniAime { variant } => Some(json!({"variant": variant})),
            Data::Files { .. } => None,
            other => Some(json!(other)),
        };
        inputs.extend(data.map(|data| ("data".to_string(), data)));
        let mut arm = json!(self);
        if let Value::Object(keys) = &mut arm {
            keys.retain(|key, _| !OUTSIDE_OF_ARM.contains(&key.as_str()));
        }
        if !inputs.is_empty() {
            arm["inputs"] = Value::Object(inputs);
        }
        for (set, grading) in self.gradings() {
            let owner = match set {
                None => &mut arm["reward"],
                Some(set) => &mut arm["evaluation"]["sets"][set],
            };
            owner["verifier"] = json!(grading.of_arm());
        }
        arm
    }

    /// Whether the groups that a step generated are all in its records: verl does not write those that it filters out.
    pub fn records_every_group(&self) -> bool {
        self.engine != Engine::Verl || self.dapo.dynamic_sampling == (DynamicSampling::None {})
    }

    /// Every evaluated set, the development set first. No file is read.
    pub fn set_names(&self) -> Vec<String> {
        let copies = self.evaluation.copies().map(|(name, _)| name.clone());
        self.inputs.data.set_names().into_iter().chain(copies).collect()
    }

    /// What grades a set's responses.
    pub fn grading_of(&self, set: &str) -> &Grading {
        let own = self.evaluation.sets.get(set).and_then(|set| set.verifier.as_ref());
        own.unwrap_or(&self.reward.verifier)
    }

    /// Everything that grades, with the set of which it alone is; `None`: of rollouts and all other sets.
    pub fn gradings(&self) -> impl Iterator<Item = (Option<&str>, &Grading)> {
        let sets = self.evaluation.sets.iter();
        let of_sets =
            sets.filter_map(|(name, set)| Some((Some(&name[..]), set.verifier.as_ref()?)));
        std::iter::once((None, &self.reward.verifier)).chain(of_sets)
    }

    pub fn sampling_of(&self, set: &str) -> Sampling {
        let own = self.evaluation.sets.get(set).and_then(|set| set.sampling);
        own.unwrap_or(self.evaluation.sampling)
    }

    pub fn rollout_stop(&self) -> &[String] {
        self.rollout.stop.as_deref().unwrap_or_default()
    }

    pub fn evaluation_stop(&self) -> &[String] {
        self.evaluation.stop.as_deref().unwrap_or(self.rollout_stop())
    }

    pub fn record_format(&self) -> u64 {
        self.records.map_or(1, |records| records.format)
    }

    /// The part of `[execution]` that can change a bit of the run. Under `fast` arithmetic all of
    /// it can; under `exact` only the seed, and the micro-batch where the objective names it.
    pub fn bound_execution(&self) -> Value {
        let Execution { seed, micro_batch_rollouts, .. } = self.execution;
        let by_micro_batch = self.dapo.aggregation == Aggregation::TokenMean
            && self.dapo.token_mean_unit == TokenMeanUnit::MicroBatch;
        match self.numerics {
            Numerics::Fast => json!(self.execution),
            Numerics::Exact if by_micro_batch => {
                json!({"seed": seed, "micro_batch_rollouts": micro_batch_rollouts})
            }
            Numerics::Exact => json!({"seed": seed}),
        }
    }

    pub fn arm_sha256(&self) -> String {
        files::sha256(files::canonical_json_line(&self.arm()).as_bytes())
    }
}

#[derive(Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Engine {
    /// This harness.
    #[default]
    Native,
    /// TRL's `GRPOTrainer`.
    Trl,
    /// verl's `main_ppo` over Ray.
    Verl,
}

impl Engine {
    pub fn is_native(&self) -> bool {
        *self == Self::Native
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Trl => "trl",
            Self::Verl => "verl",
        }
    }
}

/// In a chat template these are messages, the last one an assistant's turn that goes on. Without one they are text: the
/// system's text and an empty line; of each example its question in the template, its response directly behind it, and
/// an empty line; the question in the template; the beginning of the response.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptSettings {
    pub template: PromptTemplate,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<PromptExample>,
    /// Begins every response: its tokens are the prompt's and are not trained, the text is recorded and graded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_prefix: Option<String>,
    /// Variables of the chat template by name, as `apply_chat_template(…, **kwargs)` of transformers takes them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub chat_template_kwargs: BTreeMap<String, Value>,
}

impl PromptSettings {
    pub fn of(template: PromptTemplate) -> Self {
        Self { template, ..Self::default() }
    }

    /// Whether a prompt is the question in its template and nothing else.
    pub fn is_template_alone(&self) -> bool {
        *self == Self::of(self.template)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptExample {
    pub question: String,
    pub response: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum PromptTemplate {
    /// The question alone (mini-AIME).
    #[default]
    Question,
    /// The released data's instruction around the question, without a chat template.
    Dapo,
    /// The question as the user's message in the model's chat template.
    Chat,
    /// The released data's instruction around the question, as the user's message in the model's
    /// chat template: what the released code trains on.
    DapoChat,
}

impl PromptTemplate {
    pub fn is_chat(self) -> bool {
        matches!(self, Self::Chat | Self::DapoChat)
    }

    /// Whether the released instruction stands around the question.
    pub fn instructs(self) -> bool {
        matches!(self, Self::Dapo | Self::DapoChat)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutSettings {
    pub prompts_per_round: u64,
    /// G: responses for each prompt.
    pub group_size: u64,
    /// Longest prompt; a longer one is an error.
    pub max_prompt_tokens: u64,
    /// L_max: a response without a stop token by then is truncated.
    pub max_response_tokens: u64,
    pub sampling: Sampling,
    /// A declared mismatch between sampler and trainer. Absent: they have the same weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler_weights: Option<SamplerWeights>,
    /// Texts that end a response where it first contains one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Vec<String>>,
}

impl RolloutSettings {
    /// Whether the sampler's log-probs are the training forward's: the same weights, over the whole vocabulary.
    pub fn says_as_trained(&self) -> bool {
        self.sampler_weights.is_none() && self.sampling.log_probs.is_none()
    }
}

/// How the sampler's copy of the weights is rounded before each rollout step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SamplerWeights {
    /// To bfloat16: 8 bits of precision.
    Bf16,
    /// To 255 steps between ± the largest weight of each row of a matrix.
    Int8,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// Divides the logits; 0 is greedy.
    pub temperature: f64,
    /// Keeps the smallest set of most probable tokens with at least this mass; 1 keeps all.
    pub top_p: f64,
    /// Keeps this many most probable tokens; 0 keeps all.
    pub top_k: u64,
    /// Absent: the log-prob of a token is that of the whole vocabulary, which the ratio of Eq. 9 is taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_probs: Option<LogProbsOver>,
}

impl Sampling {
    pub fn keeps_a_part(&self) -> bool {
        self.top_p < 1.0 || self.top_k > 0
    }
}

/// What the sampler's log-probs are normalised over, where it is not the vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogProbsOver {
    /// The tokens that top-p and top-k keep: what the token was drawn with.
    KeptTokens,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reward {
    pub verifier: Grading,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// M: rollout steps of the run.
    pub rollout_steps: u64,
    /// N: prompts (groups) that one rollout step trains on.
    pub prompts_per_step: u64,
    pub mini_batch_rollouts: u64,
    /// μ: passes over a rollout step's batch.
    pub epochs_per_step: u64,
    pub mini_batch_order: MiniBatchOrder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MiniBatchOrder {
    /// Whole groups, shuffled by the run's stream.
    ShuffledGroups,
    /// Single rollouts, shuffled by the run's stream (TRL).
    ShuffledRollouts,
    /// Sorted into length bands by the released code's `balance_batch` with one rank.
    LengthBands,
}

/// AdamW with decoupled weight decay and a constant rate after warm-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Optimizer {
    pub learning_rate: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub epsilon: f64,
    pub weight_decay: f64,
    /// Gradients are scaled down to this global L2 norm.
    pub max_gradient_norm: f64,
    /// Absent: the run stops. It is part of the arm's identity where it is stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub non_finite: Option<NonFinite>,
    pub warm_up: WarmUp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NonFinite {
    /// The run ends, and the step's data are kept.
    Stop,
    /// The update is left out and counted, as the released code does.
    Skip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmUp {
    /// Length of the ramp; 0 is no warm-up.
    pub rollout_steps: u64,
    pub start: WarmUpStart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarmUpStart {
    /// Step s (from 0) runs at (s + 1) / length: the first update already moves.
    FirstStep,
    /// Step s runs at s / length: the first step trains nothing (released code).
    Zero,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evaluation {
    /// How evaluation responses are drawn; their limit is the training's L_max.
    pub sampling: Sampling,
    /// Rollout steps between evaluations of `during_training`; 0: as the other sets, before training and at the end.
    pub every_steps: u64,
    pub during_training: Vec<String>,
    /// k for each set, by name: `dev`, and every test set.
    pub samples: BTreeMap<String, u64>,
    /// As [`RolloutSettings::stop`], which it is where it is absent; an empty list: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Vec<String>>,
    /// What single sets have otherwise, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sets: BTreeMap<String, SetSettings>,
}

/// How one set is evaluated where that is not how all are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetSettings {
    /// A set of the data whose problems these are: one more set. Absent: those of the data's set of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problems: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verifier: Option<Grading>,
    /// Absent: [`Evaluation::sampling`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
}

impl Evaluation {
    /// Sets with the problems of another set: their names, and that set's.
    pub fn copies(&self) -> impl Iterator<Item = (&String, &String)> {
        self.sets.iter().filter_map(|(name, set)| Some((name, set.problems.as_ref()?)))
    }

    /// Whether a set is evaluated after so many rollout steps; 0 is the base policy.
    pub fn is_due(&self, set: &str, step: u64, is_end: bool) -> bool {
        let is_on_the_way = step.is_multiple_of(self.every_steps)
            && self.during_training.iter().any(|name| name == set);
        step == 0 || is_end || is_on_the_way
    }
}

/// Which checkpoints are written and kept. They change no number, so they are part of neither the arm's identity nor
/// the run's key: a run may be resumed with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoints {
    /// One is written every so many rollout steps, and at the end; 0: only at the end.
    pub every_steps: u64,
    /// The newest so many are kept; two leave one before a damaged one.
    pub keep_last: u64,
    /// So are those of every so many rollout steps; 0: none but the newest.
    pub keep_every: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordsSettings {
    /// Of metrics and ledger. 1: entropy and token probability over the batch. 2: also over all rollouts of a step.
    /// 3: also spread of rewards and lengths, length by outcome, clipped tokens by quarter of a step's updates. 4: the
    /// ledger binds the ending as data, not as a sentence.
    pub format: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputPaths {
    pub model: PathBuf,
    /// The base policy's kind, by a name; absent: not told. Stated, it is part of the arm's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    pub data: Data,
}

impl InputPaths {
    pub fn paths(&mut self) -> Vec<&mut PathBuf> {
        let mut paths = vec![&mut self.model];
        if let Data::Files { train, dev, test } = &mut self.data {
            paths.extend([train, dev]);
            paths.extend(test);
        }
        paths
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum MiniAimeVariant {
    Standard,
    /// Six operations of ten multiply.
    MoreProducts,
}

/// Which problems of checked chains are trained on; what is evaluated is always mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChainsVariant {
    Mixed,
    /// The longest chains only.
    Hard,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Data {
    /// Generated in memory, as the next three.
    MiniAime {
        variant: MiniAimeVariant,
    },
    CheckedChains {
        variant: ChainsVariant,
    },
    SignedSums {},
    /// For a checkpoint that reads English.
    WordProblems {},
    /// Files in the released data's schema (parquet) or JSONL.
    Files {
        train: PathBuf,
        dev: PathBuf,
        test: Vec<PathBuf>,
    },
}

/// Where and how a run executes: no part of the arm's identity. [`Experiment::bound_execution`] is in the run's key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Execution {
    pub seed: u64,
    pub threads: u64,
    pub micro_batch_rollouts: u64,
    pub generation_batch_rollouts: u64,
    /// Absent: a pass keeps all activations and logits. Fast arithmetic only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// What computes; absent: the processor. Fast arithmetic only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// The form of the weights; absent: f32. Fast arithmetic only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<WeightKind>,
    /// Most tokens of a pass, padding included; absent: 1024, what a core's caches hold. Fast arithmetic only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass_tokens: Option<u64>,
}

impl Execution {
    pub fn tokens_of_a_pass(&self) -> usize {
        /// What the caches of a core hold of a small policy's activations.
        const CACHED: u64 = 1024;
        self.pass_tokens.unwrap_or(CACHED) as usize
    }

    /// The processor and f32 where nothing is stated.
    pub fn place(&self) -> Place {
        Place {
            device: self.device.unwrap_or_default(),
            weights: self.weights.unwrap_or_default(),
            memory: self.memory,
        }
    }
}
