//! A Qwen2 policy: its shape, its parameters, and what they say about tokens.

use crate::base::{Purpose, rng::Id, rng::stream};
use crate::experiment::{Memory, Place, WeightKind};
use crate::numerics::{Folded, Numerics, NumericsError, Parameters, Tally, exact::weights, fast};
use crate::policy::model::tensors::TensorOperations;
use crate::policy::model::{devices, recompute::RecomputePass, step::DecodeStep, step::copy_into};
use crate::policy::{
    Config, Decoder, ExactPolicy, Gradients, Joined, KvCache, Layer, Layout, PolicyError, Prepared,
    Sequences, UpdateScale,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

/// A Qwen2 policy: configuration and weights.
#[derive(Debug)]
pub struct Qwen2 {
    config: Config,
    parameters: BTreeMap<String, Tensor>,
    layout: Layout,
    /// Under [`Layout::Stored`], for each layer.
    joined: Vec<Joined>,
    /// Cosine and sine of each position's angles, in the form of [`TensorOperations::rotation`]:
    /// `[max_position_embeddings, ...]`.
    rotation: Tensor,
    numerics: Numerics,
    /// How a training pass saves memory.
    memory: Option<Memory>,
    /// The weights as exact arithmetic reads them; made when they are first asked for.
    exact: RefCell<Option<Arc<ExactPolicy>>>,
}

/// Keys and values of one layer: both `[tokens, kv_heads, head_dim]`.
pub type KeysAndValues = (Tensor, Tensor);

impl Qwen2 {
    /// A policy from the tensors of a checkpoint, exactly those that its shape needs, under fast
    /// arithmetic.
    pub fn new(config: Config, parameters: BTreeMap<String, Tensor>) -> Result<Self, PolicyError> {
        let found = parameters.iter().map(|(name, tensor)| (name, tensor.size()));
        check_shapes(config.tensor_shapes(), found.collect())?;
        let layout = Layout::of(&parameters);
        Ok(Self::laid_out(config, parameters, layout, None))
    }

    /// A policy of the right tensors, under fast arithmetic.
    fn laid_out(
        config: Config,
        mut parameters: BTreeMap<String, Tensor>,
        layout: Layout,
        memory: Option<Memory>,
    ) -> Self {
        let turns = rotation_table(&config);
        let (rotation, joined) = match layout {
            Layout::Folded => (turns.view_as_complex(), Vec::new()),
            Layout::Stored => {
                let weight = &parameters["model.norm.weight"];
                let turns = turns.to_device(weight.device()).to_kind(weight.kind());
                let layers = Decoder::of(&config).layers;
                let join = |layer: &Layer<Folded>| Joined::new(layer, &mut parameters);
                (turns, layers.iter().map(join).collect())
            }
        };
        let (numerics, exact) = (Numerics::Fast, RefCell::new(None));
        Self { config, parameters, layout, joined, rotation, numerics, memory, exact }
    }

    /// The same policy elsewhere or in another form, under fast arithmetic.
    pub fn placed(self, place: Place) -> Result<Self, PolicyError> {
        let device = devices::device(place.device)?;
        let kind = match (place.weights, self.kind()) {
            (WeightKind::Bf16, _) => Kind::BFloat16,
            (WeightKind::F32, Kind::Double) => Kind::Double,
            (WeightKind::F32, _) => Kind::Float,
        };
        if (device, kind, place.memory) == (self.device(), self.kind(), self.memory) {
            return Ok(self);
        }
        let Self { config, parameters, joined, .. } = self;
        drop(joined);
        // One after another: the old tensor is dropped before the next new one is made.
        let moved = parameters
            .into_iter()
            .map(|(name, tensor)| (name, tensor.detach().to_device(device).to_kind(kind)));
        let parameters: BTreeMap<String, Tensor> = moved.collect();
        let layout = match place.memory {
            Some(_) => Layout::Stored,
            None => Layout::of(&parameters),
        };
        Ok(Self::laid_out(config, parameters, layout, place.memory))
    }

    /// A fresh policy: weights N(0, 0.02²) from the seed's streams, norms 1, biases 0, as
    /// transformers initialises Qwen2.
    pub fn initialise(config: Config, seed: u64) -> Self {
        const INITIALIZER_RANGE: f64 = 0.02;
        let mut parameters = BTreeMap::new();
        for (name, shape) in config.tensor_shapes() {
            let count = shape.iter().product::<i64>() as usize;
            let values: Vec<f32> = if name.ends_with("norm.weight") {
                vec![1.0; count]
            } else if name.ends_with("bias") {
                vec![0.0; count]
            } else {
                let mut draws = stream(seed, Purpose::Initialisation, &[Id::from(name.as_str())]);
                let pairs = std::iter::repeat_with(|| draws.normals());
                pairs
                    .flat_map(|(a, b)| [a, b])
                    .map(|z| (z * INITIALIZER_RANGE) as f32)
                    .take(count)
                    .collect()
            };
            parameters.insert(name, Tensor::from_slice(&values).view(shape.as_slice()));
        }
        Self::new(config, parameters).expect("the tensors are made to the configuration's shapes")
    }

    /// The same policy with each parameter changed by `change`, which keeps its shape.
    pub fn changed(&self, change: impl Fn(&Tensor) -> Tensor) -> Self {
        let changed = |(name, tensor): (&String, &Tensor)| (name.clone(), change(&tensor.detach()));
        let parameters = self.parameters.iter().map(changed).collect();
        let made = Self::laid_out(self.config.clone(), parameters, self.layout, self.memory);
        made.with_numerics(self.numerics).expect("a shape that was accepted before")
    }

    /// The same policy under an arithmetic.
    pub fn with_numerics(mut self, numerics: Numerics) -> Result<Self, NumericsError> {
        self.numerics = numerics;
        if numerics == Numerics::Exact {
            let made = self.make_exact()?;
            self.exact = RefCell::new(Some(Arc::new(made)));
        }
        Ok(self)
    }

    /// The policy's shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What computes.
    pub fn device(&self) -> Device {
        self.parameters["model.norm.weight"].device()
    }

    /// The form of its weights.
    pub fn kind(&self) -> Kind {
        self.parameters["model.norm.weight"].kind()
    }

    /// How its weights lie in memory.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Whether its operations are large enough to be cut among threads, or run on a device. Then one
    /// pass is made at a time, and memory may not suffice for it.
    pub fn is_large(&self) -> bool {
        self.numerics == Numerics::Fast && self.layout == Layout::Stored
    }

    /// Its arithmetic.
    pub fn numerics(&self) -> Numerics {
        self.numerics
    }

    /// Tensor name → tensor, sharing the model's storage.
    pub fn parameters(&self) -> &BTreeMap<String, Tensor> {
        &self.parameters
    }

    /// Must be called after the parameters' numbers have changed.
    pub fn parameters_changed(&self) {
        self.exact.replace(None);
    }

    /// The same policy for another thread: every tensor is shared, none is copied.
    pub fn share(&self) -> Self {
        let parameters =
            self.parameters.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone()));
        Self {
            config: self.config.clone(),
            parameters: parameters.collect(),
            layout: self.layout,
            joined: self.joined.iter().map(Joined::share).collect(),
            rotation: self.rotation.shallow_clone(),
            numerics: self.numerics,
            memory: self.memory,
            exact: RefCell::new(self.exact()),
        }
    }

    /// The weights as exact arithmetic reads them; `None` under fast arithmetic.
    pub fn exact(&self) -> Option<Arc<ExactPolicy>> {
        if self.numerics == Numerics::Fast {
            return None;
        }
        let mut exact = self.exact.borrow_mut();
        let made = exact.get_or_insert_with(|| {
            Arc::new(self.make_exact().expect("a shape that was accepted before"))
        });
        Some(made.clone())
    }

    fn make_exact(&self) -> Result<ExactPolicy, NumericsError> {
        let rotation = rotation_table(&self.config).flatten(0, -1);
        let rotation = Vec::try_from(rotation).expect("a dense f32 tensor");
        ExactPolicy::new(&self.config, &self.plain_parameters(), Arc::new(rotation))
    }

    /// The parameters as plain values.
    fn plain_parameters(&self) -> Parameters {
        let plain = |tensor: &Tensor| {
            let flat = tensor.detach().to_kind(Kind::Float).contiguous().flatten(0, -1);
            Vec::try_from(flat).expect("a dense f32 tensor")
        };
        self.parameters.iter().map(|(name, tensor)| (name.clone(), plain(tensor))).collect()
    }

    /// Exact sums over tokens as gradients of the parameters.
    pub(super) fn exact_gradients(&self, sums: &weights::ExactGradients) -> Parameters {
        let exact = self.exact().expect("gradients of an exact policy");
        exact.of_parameters(sums, &self.plain_parameters())
    }

    /// How much rounding into their window changed the weights; `None` under fast arithmetic.
    pub fn weight_tally(&self) -> Option<Tally> {
        self.exact().map(|exact| exact.tally)
    }

    /// The weights as the forward pass uses them: once for a forward and its backward pass, or
    /// once for all tokens of a generation.
    pub fn prepare(&self) -> Prepared {
        Prepared::new(&self.config, &self.parameters, self.layout)
    }

    /// As [`Qwen2::prepare`], without a graph and laid out for the products of few rows: folded,
    /// the same matrices stored by column; stored, without a copy.
    pub fn prepare_for_sampling(&self) -> Prepared {
        fast::without_graph(|| self.prepare().for_sampling(&self.joined))
    }

    /// Log-prob and entropy of each target, without a graph and on the processor: both `[targets]`
    /// in nats, f32 under fast arithmetic and f64 under exact.
    pub fn statistics(&self, sequences: &Sequences, temperature: f64) -> (Tensor, Tensor) {
        if let Some(exact) = self.exact() {
            let found = exact.statistics(sequences, temperature);
            return (Tensor::from_slice(&found.log_probs), Tensor::from_slice(&found.entropy));
        }
        if let Some(memory) = self.memory {
            return RecomputePass::new(self, memory, sequences, temperature).statistics();
        }
        fast::without_graph(|| {
            let (logits, targets) = self.target_logits(sequences);
            let (log_probs, entropy) = fast::log_probs_and_entropy(&logits, &targets, temperature);
            (log_probs.to_device(Device::Cpu), entropy.to_device(Device::Cpu))
        })
    }

    /// Adds the gradients of a loss to `sums`: `loss` gets the log-prob of each target, `[targets]`
    /// in nats with its graph and on the processor, and returns the loss and whatever else it
    /// found. All passes of an update share one set of sums: a set is as large as the weights in
    /// f32.
    ///
    /// # Errors
    /// Under exact arithmetic, an update of too many tokens; nothing is added then.
    ///
    /// # Panics
    /// When the sums are of another arithmetic. When LibTorch does, for want of memory: a part of
    /// the gradients may be in the sums then.
    pub fn add_gradients<R>(
        &self,
        sums: &mut Gradients,
        sequences: &Sequences,
        temperature: f64,
        scale: UpdateScale,
        loss: impl FnOnce(&Tensor) -> (Tensor, R),
    ) -> Result<R, NumericsError> {
        let Some(exact) = self.exact() else {
            if let Some(memory) = self.memory {
                let pass = RecomputePass::new(self, memory, sequences, temperature);
                return Ok(pass.add_gradients(sums, loss));
            }
            let (logits, targets) = self.target_logits(sequences);
            let log_probs = fast::log_probs(&logits, &targets, temperature);
            let (loss, found) = loss(&log_probs.to_device(Device::Cpu));
            sums.add_of(&loss, self);
            return Ok(found);
        };
        let by_log_probs = |log_probs: &[f64]| {
            let leaf = Tensor::from_slice(log_probs).set_requires_grad(true);
            let (loss, found) = loss(&leaf);
            let derivative = Tensor::run_backward(&[loss], &[&leaf], false, false);
            let derivative = derivative[0].to_kind(Kind::Double).contiguous();
            (Vec::try_from(derivative).expect("a dense f64 tensor"), found)
        };
        let (gradients, found) = exact.gradients(sequences, temperature, scale, by_log_probs)?;
        sums.add(Gradients::Exact(gradients));
        Ok(found)
    }

    /// Logits that predict each target, `[targets, vocab]`, and the targets.
    fn target_logits(&self, sequences: &Sequences) -> (Tensor, Tensor) {
        let device = self.device();
        let (tokens, states) = sequences.padded();
        let hidden = self.forward(&tokens.to_device(device)); // [batch, length, hidden]
        let states = states.to_device(device);
        let logits = self.logits(&hidden.flatten(0, 1).index_select(0, &states));
        (logits, sequences.target_tensor().to_device(device))
    }

    /// Hidden states of whole sequences from position 0 by fast arithmetic, after the final norm:
    /// tokens `[batch, length]` → `[batch, length, hidden]`. Right padding changes nothing to
    /// its left.
    pub fn forward(&self, tokens: &Tensor) -> Tensor {
        self.whole(&self.prepare(), tokens, |_| ())
    }

    /// As [`Qwen2::forward`], with the keys and values of each layer, `batch · length` tokens.
    pub fn prefill(&self, prepared: &Prepared, tokens: &Tensor) -> (Tensor, Vec<KeysAndValues>) {
        let mut kept = Vec::new();
        let hidden = self.whole(prepared, tokens, |keys_and_values| kept.push(keys_and_values));
        (hidden, kept)
    }

    fn whole(
        &self,
        prepared: &Prepared,
        tokens: &Tensor,
        mut keep: impl FnMut(KeysAndValues),
    ) -> Tensor {
        let (batch, length) = tokens.size2().expect("tokens have two dimensions");
        let rotation = self.rotation_of(batch, length);
        let mut attend = |_, queries: Tensor, keys: Tensor, values: Tensor| {
            let mixed = fast::causal_attention(&queries, &keys, &values, length);
            keep((keys, values));
            mixed
        };
        let hidden = self.run(prepared, &tokens.view([-1]), rotation, &mut attend);
        hidden.view([batch, length, self.config.hidden_size])
    }

    /// [`TensorOperations::rotation`] of each token of whole sequences, `[batch · length, ...]`.
    pub(super) fn rotation_of(&self, batch: i64, length: i64) -> Tensor {
        let turns = self.rotation.narrow(0, 0, length);
        match self.layout {
            Layout::Folded => turns.repeat([batch, 1, 1]),
            Layout::Stored => turns.repeat([batch, 1, 1, 1]),
        }
    }

    fn run(
        &self,
        prepared: &Prepared,
        tokens: &Tensor,
        rotation: Tensor,
        attend: &mut dyn FnMut(usize, Tensor, Tensor, Tensor) -> Tensor,
    ) -> Tensor {
        let (config, layout) = (&self.config, self.layout);
        let mut operations = TensorOperations { config, layout, rotation, attend };
        prepared.decoder.run(&mut operations, tokens, self.config.hidden_size as usize)
    }

    /// One more token for each row of the cache by fast arithmetic: tokens `[rows]`, position of
    /// that token in each row `[rows]` → final hidden states `[rows, hidden]`. The cache must hold
    /// every earlier position of each row, and `prepared` be [`Qwen2::prepare_for_sampling`]'s.
    pub fn decode(
        &self,
        prepared: &Prepared,
        tokens: &Tensor,
        positions: &Tensor,
        cache: &mut KvCache,
    ) -> Tensor {
        let rotation = self.rotation.index_select(0, positions);
        match cache {
            KvCache::Rows(cache) => {
                let width = self.config.hidden_size;
                let mut turns = Vec::new(); // [rows, head_dim / 2, 2]
                copy_into(&mut turns, &rotation.view_as_real());
                let mut step = DecodeStep {
                    epsilon: self.config.rms_norm_eps,
                    inner_width: self.config.intermediate_size as usize,
                    rotation: turns,
                    gates_and_ups: &prepared.gates_and_ups,
                    cache,
                    spare: Vec::new(),
                };
                let hidden = prepared.decoder.run(&mut step, tokens, width as usize);
                Tensor::from_slice(&hidden).view([-1, width])
            }
            KvCache::Shared(cache) => {
                let mask = cache.begin();
                let mut attend = |layer, queries: Tensor, keys: Tensor, values: Tensor| {
                    let (keys, values) = cache.append(layer, &keys, &values);
                    fast::cached_attention(&queries, &keys, &values, &mask)
                };
                let hidden = self.run(prepared, tokens, rotation, &mut attend);
                cache.end();
                hidden
            }
        }
    }

    /// Next-token logits by fast arithmetic: final hidden states `[..., hidden]` → `[..., vocab]`.
    pub fn logits(&self, hidden: &Tensor) -> Tensor {
        self.layout.linear(hidden, &self.parameters[self.head_name()], None)
    }

    /// The parameter that makes logits of hidden states.
    pub(super) fn head_name(&self) -> &'static str {
        match self.config.tie_word_embeddings {
            true => "model.embed_tokens.weight",
            false => "lm_head.weight",
        }
    }
}

/// Whether the tensors that were found are exactly those that are wanted.
pub fn check_shapes(
    want: Vec<(String, Vec<i64>)>,
    mut found: BTreeMap<&String, Vec<i64>>,
) -> Result<(), PolicyError> {
    for (name, want) in want {
        match found.remove(&name) {
            None => return Err(PolicyError::Missing(name)),
            Some(got) if got != want => return Err(PolicyError::Shape { name, got, want }),
            Some(_) => {}
        }
    }
    match found.into_keys().next() {
        Some(name) => Err(PolicyError::Unknown(name.clone())),
        None => Ok(()),
    }
}

/// Cosine and sine of the rotary embedding's angles, `[max_position_embeddings, 1, head_dim / 2,
/// 2]`, in f32 and on the processor.
///
/// The frequencies and the angles are rounded to f32 as in transformers, whatever the
/// model's dtype: bf16 could not even represent the positions.
fn rotation_table(config: &Config) -> Tensor {
    let half = config.head_dim / 2;
    let frequency = |index: i64| {
        libm::pow(config.rope_theta, -(2.0 * index as f64) / config.head_dim as f64) as f32
    };
    let frequencies: Vec<f32> = (0..half).map(frequency).collect();
    let values: Vec<f32> = (0..config.max_position_embeddings)
        .flat_map(|position| frequencies.iter().map(move |f| position as f32 * f))
        .flat_map(|angle| {
            let angle = f64::from(angle);
            [libm::cos(angle) as f32, libm::sin(angle) as f32]
        })
        .collect();
    Tensor::from_slice(&values).view([config.max_position_embeddings, 1, half, 2])
}
