//! Memory by phase of a policy whose weights are held as stored, counted from shapes at the phase's
//! peak. Shared parts (weights, moments) are in each phase, so that its parts add up to its peak.

use crate::algorithm::Kl;
use crate::experiment::{Device, Experiment, Place, WeightKind};
use crate::numerics::Numerics;
use crate::policy::{Config, model::native};
use crate::training::PlanPrompts;
use std::collections::BTreeMap;

/// Part → bytes.
pub type Parts = BTreeMap<String, f64>;

/// Bytes.
pub const F32: f64 = 4.0;
const F64: f64 = 8.0;

/// LibTorch and this program before the first tensor, in the processor's memory.
const PROCESS: f64 = 0.35e9;
/// CUDA context and libraries, on the card.
const CUDA_CONTEXT: f64 = 0.6e9;

/// LibTorch computes the policy: see [`crate::policy::Qwen2::is_native`].
pub fn are_stored(experiment: &Experiment, config: &Config) -> bool {
    let Place { device, weights, memory } = experiment.execution.place();
    let narrow = device != Device::Cpu || weights == WeightKind::Bf16 || memory.is_some();
    experiment.numerics == Numerics::Fast && (narrow || !native::computes(config))
}

/// Weights and two moments.
pub fn checkpoint_bytes(config: &Config) -> f64 {
    3.0 * F32 * config.parameters() as f64
}

/// Phase → its parts; `rows` are generated at the same time.
pub fn of(
    experiment: &Experiment,
    config: &Config,
    prompts: &PlanPrompts,
    rows: u64,
) -> BTreeMap<String, Parts> {
    let sizes = PlanSizes::new(experiment, config, prompts);
    let phases = [
        ("generation", sizes.generation(rows as f64)),
        ("old_log_probs", sizes.old_log_probs()),
        ("update", sizes.update()),
        ("optimizer", sizes.optimizer()),
    ];
    let named = |(phase, parts): (&str, Vec<(&str, f64)>)| {
        let parts = parts.into_iter().filter(|(_, bytes)| *bytes > 0.0);
        let all = sizes.always().into_iter().chain(parts);
        (phase.to_string(), all.map(|(part, bytes)| (part.to_string(), bytes)).collect())
    };
    phases.map(named).into()
}

pub struct PlanSizes<'a> {
    pub experiment: &'a Experiment,
    config: &'a Config,
    place: Place,
    pub parameters: f64,
    /// Bytes of a value.
    width: f64,
    pub prompts: &'a PlanPrompts,
    /// At most.
    pub response: f64,
    pub vocabulary: f64,
    pub hidden: f64,
    pub inner: f64,
    pub layers: f64,
    /// Numbers of a token's queries, and of its keys.
    pub queries: f64,
    pub keys: f64,
}

impl<'a> PlanSizes<'a> {
    pub fn new(experiment: &'a Experiment, config: &'a Config, prompts: &'a PlanPrompts) -> Self {
        let place = experiment.execution.place();
        Self {
            experiment,
            config,
            place,
            parameters: config.parameters() as f64,
            width: match place.weights {
                WeightKind::F32 => F32,
                WeightKind::Bf16 => 2.0,
            },
            prompts,
            response: experiment.rollout.max_response_tokens as f64,
            vocabulary: config.vocab_size as f64,
            hidden: config.hidden_size as f64,
            inner: config.intermediate_size as f64,
            layers: config.num_hidden_layers as f64,
            queries: (config.num_attention_heads * config.head_dim) as f64,
            keys: (config.num_key_value_heads * config.head_dim) as f64,
        }
    }

    /// Every phase holds these from the first update on.
    fn always(&self) -> Vec<(&'static str, f64)> {
        let weights = self.width * self.parameters;
        let process = match self.place.device {
            Device::Cpu => PROCESS,
            Device::Cuda(_) => CUDA_CONTEXT,
        };
        let mut parts = vec![
            ("process", process),
            ("weights", weights),
            ("moments", 2.0 * F32 * self.parameters),
        ];
        if self.place.weights == WeightKind::Bf16 {
            parts.push(("f32_weights", F32 * self.parameters));
        }
        if self.experiment.dapo.kl != (Kl::None {}) {
            parts.push(("reference", weights));
        }
        parts
    }

    fn generation(&self, rows: f64) -> Vec<(&'static str, f64)> {
        let rollout = &self.experiment.rollout;
        // Spare share above a row, and the block that a row may run beyond its end.
        let slots = (self.prompts.longest_tokens as f64 + self.response + 16.0) * 1.125;
        let cache = rows * slots * 2.0 * self.layers * self.keys * self.width;
        // Logits, distribution, exponential, and that padded to whole blocks.
        let mut draw = self.width + 3.0 * F32;
        let sets = self.experiment.set_names();
        let evaluated = sets.iter().map(|set| self.experiment.sampling_of(set).top_p);
        if evaluated.fold(1.0, f64::min) < 1.0 || rollout.sampling.top_p < 1.0 {
            // Sorted values with their ids, cumulative sums and what is before each.
            draw += 3.0 * F32 + 4.0 * F64;
        }
        vec![("kv_cache", cache), ("drawing", rows * self.vocabulary * draw)]
    }

    /// Padding included.
    fn pass_tokens(&self) -> f64 {
        let execution = &self.experiment.execution;
        let row = self.prompts.longest_tokens as f64 + self.response;
        let micro_batch = execution.micro_batch_rollouts as f64 * row;
        (execution.tokens_of_a_pass() as f64).min(micro_batch).max(row)
    }

    /// Targets with logits at the same time: at most the responses of a pass.
    fn chunk(&self) -> f64 {
        let share = self.response / (self.prompts.mean_tokens + self.response);
        let targets = (share * self.pass_tokens()).max(self.response);
        match self.place.memory.map_or(0, |memory| memory.logits_chunk_tokens) {
            0 => targets,
            tokens => (tokens as f64).min(targets),
        }
    }

    /// Bytes of a token in one layer, without a graph.
    fn working(&self) -> f64 {
        self.width * (3.0 * self.hidden + 2.0 * (self.queries + 2.0 * self.keys) + 3.0 * self.inner)
    }

    /// Bytes of a token in one layer for backward: inputs of norms (in the weights' type and f32)
    /// and of products, queries and keys before and after rotation, gates.
    fn graph(&self) -> f64 {
        let norms = 2.0 * self.hidden * (2.0 * self.width + 2.0 * F32);
        let attention = self.width * (5.0 * (self.queries + self.keys) + 2.0 * self.keys);
        norms + attention + self.width * (2.0 * self.hidden + 4.0 * self.inner)
    }

    fn old_log_probs(&self) -> Vec<(&'static str, f64)> {
        let tokens = self.pass_tokens();
        // Logits, their distribution, its exponential, and the product of both.
        let logits = self.chunk() * self.vocabulary * (self.width + 3.0 * F32);
        vec![("activations", tokens * self.working()), ("logits", logits)]
    }

    fn update(&self) -> Vec<(&'static str, f64)> {
        let tokens = self.pass_tokens();
        let recomputes = self.place.memory.is_some_and(|memory| memory.recompute_layers);
        let layer = (self.parameters - self.outside_layers()) / self.layers;
        // Logits and their distribution, and the derivatives of both.
        let logits = self.chunk() * self.vocabulary * (2.0 * self.width + 2.0 * F32);
        let (activations, of_a_pass, logits) = if recomputes {
            // A layer's graph with its gradients, beside what went into every layer.
            let residuals = tokens * self.layers * self.hidden * self.width;
            let graph = tokens * (self.graph() + self.working());
            let most = self.width * layer.max(self.table()) + self.widened();
            (residuals + graph, most, logits)
        } else {
            // The graph shrinks as gradients grow: one end of the backward pass holds most.
            let graph = tokens * (self.layers * self.graph() + self.working());
            let table = self.width * self.table();
            let all = self.width * self.parameters + self.widened();
            if graph + logits + table > all { (graph, table, logits) } else { (0.0, all, 0.0) }
        };
        vec![
            ("gradients", F32 * self.parameters),
            ("activations", activations),
            ("gradients_of_a_pass", of_a_pass),
            ("logits", logits),
        ]
    }

    fn optimizer(&self) -> Vec<(&'static str, f64)> {
        // Of one part of a tensor: its scaled gradient, a square, a root, a quotient, its product.
        let part = 5.0 * F32 * self.table().min((1u64 << 24) as f64);
        // The ledger reads one tensor at a time in the processor's memory.
        let digest = match self.place.device {
            Device::Cpu => F32 * self.table(),
            Device::Cuda(_) => 0.0,
        };
        vec![("gradients", F32 * self.parameters), ("updates", part.max(digest))]
    }

    /// The largest gradient in f32: the processor copies it to add two types.
    fn widened(&self) -> f64 {
        match (self.place.device, self.place.weights) {
            (Device::Cpu, WeightKind::Bf16) => F32 * self.table(),
            _ => 0.0,
        }
    }

    /// The embedding's table is the largest tensor.
    fn table(&self) -> f64 {
        self.vocabulary * self.hidden
    }

    fn outside_layers(&self) -> f64 {
        let tables = if self.config.tie_word_embeddings { 1.0 } else { 2.0 };
        tables * self.table() + self.hidden
    }
}
