//! A Qwen2 policy: its shape, its parameters, and what they say about tokens.

use crate::base::workers;
use crate::base::{Purpose, rng::Id, rng::stream};
use crate::experiment::{Memory, Place, WeightKind};
use crate::numerics::{Folded, Numerics, NumericsError, Parameters, Tally, fast};
use crate::policy::model::native::{self, NativeEngine};
use crate::policy::model::tensors::TensorOperations;
use crate::policy::model::{devices, prepared::for_sampling, recompute::RecomputePass};
use crate::policy::{
    Config, Decoder, Gradients, Joined, KvCache, Layer, NativePolicy, PolicyError, Prepared,
    Sequences, UpdateScale, Weight,
};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use tch::{Device, Kind, Tensor};

#[derive(Debug)]
pub struct Qwen2 {
    config: Config,
    lie: (Device, Kind),
    /// Made when they are first asked for, where an update left plain values.
    tensors: OnceCell<WeightTensors>,
    plain: Option<Arc<Parameters>>,
    /// Cosine and sine of each position's angles, as [`TensorOperations::rotation`]: `[max_position_embeddings, ...]`.
    rotation: Tensor,
    numerics: Numerics,
    memory: Option<Memory>,
    /// The weights as the native engine reads them; made when they are first asked for.
    native: RefCell<Option<Arc<dyn NativeEngine>>>,
}

#[derive(Debug)]
struct WeightTensors {
    parameters: BTreeMap<String, Tensor>,
    /// For each layer, over the storage of `parameters`.
    joined: Vec<Joined>,
}

impl WeightTensors {
    fn of(config: &Config, mut parameters: BTreeMap<String, Tensor>) -> Self {
        let layers = Decoder::of(config).layers;
        let join = |layer: &Layer<Folded>| Joined::new(layer, &mut parameters);
        let joined = layers.iter().map(join).collect();
        Self { parameters, joined }
    }

    fn share(&self) -> Self {
        let parameters =
            self.parameters.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone()));
        Self {
            parameters: parameters.collect(),
            joined: self.joined.iter().map(Joined::share).collect(),
        }
    }
}

/// Keys and values of one layer: both `[tokens, kv_heads, head_dim]`.
pub type KeysAndValues = (Tensor, Tensor);

impl Qwen2 {
    /// A policy from the tensors of a checkpoint, exactly those that its shape needs, under fast arithmetic.
    pub fn new(config: Config, parameters: BTreeMap<String, Tensor>) -> Result<Self, PolicyError> {
        let shapes = parameters.iter().map(|(name, tensor)| (name, tensor.size()));
        check_shapes(config.tensor_shapes(), shapes.collect())?;
        Ok(Self::laid_out(config, parameters, None))
    }

    /// A policy of the right tensors, under fast arithmetic.
    fn laid_out(
        config: Config,
        parameters: BTreeMap<String, Tensor>,
        memory: Option<Memory>,
    ) -> Self {
        let weight = &parameters["model.norm.weight"];
        let lie = (weight.device(), weight.kind());
        let turns = rotation_table(&config);
        let rotation = Tensor::from_slice(&turns)
            .view([config.max_position_embeddings, 1, config.head_dim / 2, 2])
            .to_device(lie.0)
            .to_kind(lie.1);
        let tensors = OnceCell::from(WeightTensors::of(&config, parameters));
        let (numerics, native, plain) = (Numerics::Fast, RefCell::new(None), None);
        Self { config, lie, tensors, plain, rotation, numerics, memory, native }
    }

    fn tensors(&self) -> &WeightTensors {
        self.tensors.get_or_init(|| {
            let plain = self.plain.as_ref().expect("weights as tensors or as plain values");
            let tensor = |(name, shape): (String, Vec<i64>)| {
                let tensor = Tensor::from_slice(&plain[&name]).view(shape.as_slice());
                (name, tensor)
            };
            let shapes = self.config.tensor_shapes().into_iter();
            WeightTensors::of(&self.config, shapes.map(tensor).collect())
        })
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
        self.tensors();
        let Self { config, tensors, .. } = self;
        let WeightTensors { parameters, joined } = tensors.into_inner().expect("made above");
        drop(joined);
        // One after another: the old tensor is dropped before the next new one is made.
        let moved = parameters
            .into_iter()
            .map(|(name, tensor)| (name, tensor.detach().to_device(device).to_kind(kind)));
        let parameters: BTreeMap<String, Tensor> = moved.collect();
        Ok(Self::laid_out(config, parameters, place.memory))
    }

    /// A fresh policy as transformers makes it: weights N(0, 0.02²) from the seed's streams, norms 1, biases 0.
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
                let values =
                    pairs.flat_map(|(a, b)| [a, b]).map(|z| (z * INITIALIZER_RANGE) as f32);
                values.take(count).collect()
            };
            parameters.insert(name, Tensor::from_slice(&values).view(shape.as_slice()));
        }
        Self::new(config, parameters).expect("the tensors are made to the configuration's shapes")
    }

    /// The same policy with each parameter changed by `change`, which keeps its shape.
    pub fn changed(&self, change: impl Fn(&Tensor) -> Tensor) -> Self {
        let changed = |(name, tensor): (&String, &Tensor)| (name.clone(), change(&tensor.detach()));
        let parameters = self.parameters().iter().map(changed).collect();
        Self::laid_out(self.config.clone(), parameters, self.memory)
            .with_numerics(self.numerics)
            .expect("a shape that was accepted before")
    }

    pub fn with_numerics(mut self, numerics: Numerics) -> Result<Self, NumericsError> {
        self.numerics = numerics;
        let native = self.is_native().then(|| self.make_native()).transpose()?;
        self.native = RefCell::new(native);
        Ok(self)
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn device(&self) -> Device {
        self.lie.0
    }

    pub fn kind(&self) -> Kind {
        self.lie.1
    }

    /// Whether the native engine computes, not LibTorch: exact arithmetic, or f32 on the processor and not huge.
    pub fn is_native(&self) -> bool {
        let is_plain =
            (self.device(), self.kind(), self.memory) == (Device::Cpu, Kind::Float, None);
        self.numerics == Numerics::Exact || (is_plain && native::computes(&self.config))
    }

    pub fn numerics(&self) -> Numerics {
        self.numerics
    }

    /// Tensor name → tensor, sharing the model's storage.
    pub fn parameters(&self) -> &BTreeMap<String, Tensor> {
        &self.tensors().parameters
    }

    /// Must be called after the parameters' numbers have changed.
    pub fn parameters_changed(&self) {
        self.native.replace(None);
    }

    /// The same policy for another thread: no weight is copied.
    pub fn share(&self) -> Self {
        let tensors = self.tensors.get().map(WeightTensors::share);
        Self {
            config: self.config.clone(),
            lie: self.lie,
            tensors: tensors.map_or_else(OnceCell::new, OnceCell::from),
            plain: self.plain.clone(),
            rotation: self.rotation.shallow_clone(),
            numerics: self.numerics,
            memory: self.memory,
            native: RefCell::new(self.native()),
        }
    }

    /// The weights as the native engine reads them; `None` where LibTorch computes.
    pub fn native(&self) -> Option<Arc<dyn NativeEngine>> {
        if !self.is_native() {
            return None;
        }
        let mut native = self.native.borrow_mut();
        let make = || self.make_native().expect("a shape that was accepted before");
        Some(native.get_or_insert_with(make).clone())
    }

    fn make_native(&self) -> Result<Arc<dyn NativeEngine>, NumericsError> {
        self.native_of(&self.plain_parameters())
    }

    fn native_of(&self, parameters: &Parameters) -> Result<Arc<dyn NativeEngine>, NumericsError> {
        let turns = rotation_table(&self.config);
        Ok(match self.numerics {
            Numerics::Exact => Arc::new(NativePolicy::<f64>::new(&self.config, parameters, turns)?),
            Numerics::Fast => Arc::new(NativePolicy::<f32>::new(&self.config, parameters, turns)?),
        })
    }

    pub fn plain_parameters(&self) -> Arc<Parameters> {
        self.plain.clone().unwrap_or_else(|| {
            let all = self.parameters().iter();
            Arc::new(all.map(|(name, tensor)| (name.clone(), fast::values(tensor))).collect())
        })
    }

    /// The same, to be changed. [`Qwen2::put`] must give it back before anything else of the policy is used.
    pub fn take_parameters(&mut self) -> Arc<Parameters> {
        let taken = self.plain_parameters();
        self.plain = None;
        self.tensors.take();
        taken
    }

    /// Gives the policy its weights, and the native engine its matrices of them.
    pub fn put(&mut self, weights: impl Into<Arc<Parameters>>) {
        // The old matrices go before the new ones come.
        self.parameters_changed();
        self.tensors.take();
        let weights = self.plain.insert(weights.into()).clone();
        let native = self.is_native().then(|| self.native_of(&weights));
        self.native.replace(native.map(|native| native.expect("a shape that was accepted before")));
    }

    /// Whether all threads share each operation of the native engine: passes then come one after another.
    pub fn is_large(&self) -> bool {
        self.native().is_some_and(|native| native.is_large())
    }

    /// Passes that are made at the same time: a large policy's threads share each.
    pub fn side_by_side(&self) -> usize {
        if self.is_large() { 1 } else { 2 }
    }

    /// Work on as many numbers as the policy has, shared by all threads where each of its operations is.
    pub fn shared<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        if self.is_large() { workers::in_pool(work) } else { work() }
    }

    /// One result for each item, in order: side by side, or of a large policy one after another.
    pub fn map<T: Sync, R: Send>(
        &self,
        items: &[T],
        work: impl Fn(&Self, &T) -> R + Sync,
    ) -> Vec<R> {
        if self.is_large() {
            return items.iter().map(|item| work(self, item)).collect();
        }
        workers::map(items, || self.share(), work)
    }

    /// How much rounding into their window changed the weights; `None` under fast arithmetic.
    pub fn weight_tally(&self) -> Option<Tally> {
        let exact = self.native().filter(|_| self.numerics == Numerics::Exact);
        exact.map(|exact| exact.tally())
    }

    /// The weights as the forward pass uses them: made once for a forward and backward pass, or for a whole generation.
    pub fn prepare(&self) -> Prepared {
        Decoder::of(&self.config).map(|folded| Weight::new(folded, self.parameters()))
    }

    /// As [`Qwen2::prepare`], without a graph and for the products of few rows.
    pub fn prepare_for_sampling(&self) -> Prepared {
        fast::without_graph(|| for_sampling(self.prepare(), &self.tensors().joined))
    }

    /// Each target's log-prob and entropy `[targets]` in nats, without a graph, on the processor; f64 if native.
    pub fn statistics(&self, sequences: &Sequences, temperature: f64) -> [Tensor; 2] {
        if let Some(native) = self.native() {
            let both = native.statistics(sequences, temperature);
            return both.map(|values| Tensor::from_slice(&values));
        }
        if let Some(memory) = self.memory {
            return RecomputePass::new(self, memory, sequences, temperature).statistics();
        }
        fast::without_graph(|| {
            let (logits, targets) = self.target_logits(sequences);
            let (log_probs, entropy) = fast::log_probs_and_entropy(&logits, &targets, temperature);
            [log_probs, entropy].map(|values| values.to_device(Device::Cpu))
        })
    }

    /// Adds the gradients of a loss to `sums`: `loss` gets the log-prob of each target, `[targets]` in nats with its
    /// graph and on the processor, and returns the loss and whatever else it found. All passes of an update share one
    /// set of sums: a set is as large as the weights in f32.
    /// Errors: under exact arithmetic, an update of too many tokens; the sums are empty then. Panics when the sums are
    /// of another arithmetic, and when LibTorch does for want of memory, with a part of the gradients in the sums.
    pub fn add_gradients<R>(
        &self,
        sums: &mut Gradients,
        sequences: &Sequences,
        temperature: f64,
        scale: UpdateScale,
        loss: impl FnOnce(&Tensor) -> (Tensor, R),
    ) -> Result<R, NumericsError> {
        let Some(native) = self.native() else {
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
        let (mut loss, mut found) = (Some(loss), None);
        let mut by_log_probs = |log_probs: &[f64]| {
            let leaf = Tensor::from_slice(log_probs).set_requires_grad(true);
            let (loss, made) = loss.take().expect("one loss a pass")(&leaf);
            found = Some(made);
            let derivative = Tensor::run_backward(&[loss], &[&leaf], false, false);
            let derivative = derivative[0].to_kind(Kind::Double).contiguous();
            Vec::try_from(derivative).expect("a dense f64 tensor")
        };
        let so_far = match std::mem::take(sums) {
            Gradients::Native(so_far) => Some(so_far),
            Gradients::None => None,
            Gradients::Fast(_) => panic!("gradients of two arithmetics"),
        };
        let added = native.gradients(so_far, sequences, temperature, scale, &mut by_log_probs)?;
        *sums = Gradients::Native(added);
        Ok(found.expect("the loss was asked for"))
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

    /// Hidden states of whole sequences from position 0 by fast arithmetic, after the final norm: tokens
    /// `[batch, length]` → `[batch, length, hidden]`. Right padding changes nothing to its left.
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
        let config = &self.config;
        let mut operations = TensorOperations { config, rotation, attend: &mut attend };
        let hidden = prepared.run(&mut operations, &tokens.view([-1]));
        hidden.view([batch, length, config.hidden_size])
    }

    /// [`TensorOperations::rotation`] of each token of whole sequences, `[batch · length, ...]`.
    pub(super) fn rotation_of(&self, batch: i64, length: i64) -> Tensor {
        self.rotation.narrow(0, 0, length).repeat([batch, 1, 1, 1])
    }

    /// One more token for each row of the cache by fast arithmetic: tokens `[rows]` and their positions `[rows]` →
    /// final hidden states `[rows, hidden]`. The cache must hold every earlier position of each row, and `prepared` be
    /// [`Qwen2::prepare_for_sampling`]'s.
    pub fn decode(
        &self,
        prepared: &Prepared,
        tokens: &Tensor,
        positions: &Tensor,
        cache: &mut KvCache,
    ) -> Tensor {
        let rotation = self.rotation.index_select(0, positions);
        let mask = cache.begin();
        let mut attend = |layer, queries: Tensor, keys: Tensor, values: Tensor| {
            let (keys, values) = cache.append(layer, &keys, &values);
            fast::cached_attention(&queries, &keys, &values, &mask)
        };
        let config = &self.config;
        let mut operations = TensorOperations { config, rotation, attend: &mut attend };
        let hidden = prepared.run(&mut operations, tokens);
        cache.end();
        hidden
    }

    /// Next-token logits by fast arithmetic: final hidden states `[..., hidden]` → `[..., vocab]`.
    pub fn logits(&self, hidden: &Tensor) -> Tensor {
        fast::linear(hidden, &self.parameters()[self.config.head_name()], None)
    }
}

/// Whether the tensors that were found are exactly those that are wanted.
pub fn check_shapes(
    want: Vec<(String, Vec<i64>)>,
    mut found: BTreeMap<&String, Vec<i64>>,
) -> Result<(), PolicyError> {
    for (name, want) in want {
        match found.remove(&name) {
            None => return Err(missing(name, found.into_keys())),
            Some(got) if got != want => return Err(PolicyError::Shape { name, got, want }),
            Some(_) => {}
        }
    }
    match found.into_keys().next() {
        Some(name) => Err(PolicyError::Unknown(name.clone())),
        None => Ok(()),
    }
}

fn missing<'a>(name: String, mut others: impl Iterator<Item = &'a String>) -> PolicyError {
    let is_end =
        |whole: &str, end: &str| whole.strip_suffix(end).is_some_and(|it| it.ends_with('.'));
    match others.find(|other| is_end(other, &name) || is_end(&name, other)).cloned() {
        Some(found) => PolicyError::OtherName { name, found },
        None => PolicyError::Missing(name),
    }
}

/// Cosines and sines of the rotary embedding, `[max_position_embeddings, 1, head_dim / 2, 2]`. Frequencies and angles
/// are f32 as in transformers, whatever the model's dtype: bf16 could not even represent the positions.
fn rotation_table(config: &Config) -> Vec<f32> {
    let half = config.head_dim / 2;
    let frequency =
        |index: i64| libm::pow(config.rope_theta, -(2.0 * index as f64) / config.head_dim as f64);
    let mut frequencies: Vec<f64> = (0..half).map(frequency).collect();
    let mut factor = 1.0;
    if let Some(scaling) = &config.rope_scaling {
        frequencies = scaling.frequencies(&frequencies, config.rope_theta);
        factor = scaling.attention_factor() as f32;
    }
    let frequencies: Vec<f32> = frequencies.into_iter().map(|frequency| frequency as f32).collect();
    (0..config.max_position_embeddings)
        .flat_map(|position| frequencies.iter().map(move |f| position as f32 * f))
        .flat_map(|angle| {
            let angle = f64::from(angle);
            [libm::cos(angle) as f32 * factor, libm::sin(angle) as f32 * factor]
        })
        .collect()
}
