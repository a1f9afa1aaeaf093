//! The Qwen2 decoder: RMSNorm, rotary embedding, grouped-query attention with QKV bias,
//! SwiGLU, tied or untied head.

use crate::model::config::Config;
use crate::numerics;
use crate::rng::Id;
use crate::rng::Purpose;
use crate::rng::stream;
use std::collections::BTreeMap;
use tch::Device;
use tch::Kind;
use tch::Tensor;

/// A checkpoint whose tensors are not those of its configuration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A tensor that the architecture needs is absent.
    #[error("tensor {0} is missing")]
    Missing(String),
    /// A tensor that the architecture does not know.
    #[error("tensor {0} is not part of this architecture")]
    Unknown(String),
    /// A tensor of another shape.
    #[error("tensor {name} has shape {got:?}, expected {want:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape in the file.
        got: Vec<i64>,
        /// The shape that the configuration implies.
        want: Vec<i64>,
    },
}

/// A Qwen2 policy: configuration and weights.
#[derive(Debug)]
pub struct Qwen2 {
    config: Config,
    parameters: BTreeMap<String, Tensor>,
    embed_tokens: Tensor,
    layers: Vec<Layer>,
    norm: Tensor,
    lm_head: Tensor,
    cos: Tensor,
    sin: Tensor,
}

impl Qwen2 {
    /// A policy from the tensors of a checkpoint, exactly those that its shape needs.
    ///
    /// # Errors
    /// A missing, unknown or wrongly shaped tensor, by name.
    pub fn new(config: Config, parameters: BTreeMap<String, Tensor>) -> Result<Self, Error> {
        let shapes = config.tensor_shapes();
        for (name, want) in &shapes {
            let tensor = parameters.get(name).ok_or_else(|| Error::Missing(name.clone()))?;
            if tensor.size() != *want {
                let (name, got) = (name.clone(), tensor.size());
                return Err(Error::Shape { name, got, want: want.clone() });
            }
        }
        if let Some(name) =
            parameters.keys().find(|name| !shapes.iter().any(|(known, _)| known == *name))
        {
            return Err(Error::Unknown(name.clone()));
        }
        let get = |name: &str| parameters[name].shallow_clone();
        let layers = (0..config.num_hidden_layers).map(|index| Layer::new(index, &get)).collect();
        let head =
            if config.tie_word_embeddings { "model.embed_tokens.weight" } else { "lm_head.weight" };
        let (cos, sin) = rotary_tables(&config, get("model.norm.weight").device());
        let (embed_tokens, norm, lm_head) =
            (get("model.embed_tokens.weight"), get("model.norm.weight"), get(head));
        Ok(Self { embed_tokens, layers, norm, lm_head, cos, sin, config, parameters })
    }

    /// A fresh policy: weights N(0, 0.02²) from the seed's streams, norms 1, biases 0, as
    /// transformers initialises Qwen2.
    ///
    /// # Panics
    /// Never: the tensors are made to the configuration's shapes.
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

    /// The policy's shape.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Tensor name → tensor, sharing the model's storage.
    pub fn parameters(&self) -> &BTreeMap<String, Tensor> {
        &self.parameters
    }

    /// Hidden states of whole sequences from position 0, after the final norm:
    /// tokens `[batch, length]` → `[batch, length, hidden]`. Right padding changes nothing to
    /// its left.
    pub fn forward(&self, tokens: &Tensor) -> Tensor {
        self.run(tokens, None)
    }

    /// As [`Qwen2::forward`], writing keys and values to the first slots of an empty cache.
    pub fn prefill(&self, tokens: &Tensor, cache: &mut KvCache) -> Tensor {
        self.run(tokens, Some(cache))
    }

    fn run(&self, tokens: &Tensor, mut cache: Option<&mut KvCache>) -> Tensor {
        let (_, length) = tokens.size2().expect("tokens have two dimensions");
        let (cos, sin) = (self.cos.narrow(0, 0, length), self.sin.narrow(0, 0, length));
        let mut hidden = numerics::embedding(&self.embed_tokens, tokens); // [batch, length, hidden]
        for (index, layer) in self.layers.iter().enumerate() {
            hidden = layer.forward(&self.config, &hidden, &cos, &sin, |queries, keys, values| {
                if let Some(cache) = cache.as_deref_mut() {
                    cache.write_prefix(index, keys, values);
                }
                numerics::causal_attention(queries, keys, values)
            });
        }
        numerics::rms_norm(&hidden, &self.norm, self.config.rms_norm_eps)
    }

    /// One more token for each row: tokens `[batch]`, position of that token in each row
    /// `[batch]` → final hidden states `[batch, hidden]`. The cache must hold every earlier
    /// position of each row.
    pub fn decode(&self, tokens: &Tensor, positions: &Tensor, cache: &mut KvCache) -> Tensor {
        let at = |table: &Tensor| table.index_select(0, positions).unsqueeze(1).unsqueeze(1);
        let (cos, sin) = (at(&self.cos), at(&self.sin)); // [batch, 1, 1, head_dim]
        let slots = positions.max().int64_value(&[]) + 1;
        let hidden_slots = Tensor::arange(slots, (Kind::Int64, positions.device()))
            .unsqueeze(0)
            .gt_tensor(&positions.unsqueeze(1))
            .unsqueeze(1)
            .unsqueeze(1); // [batch, 1, 1, slots]
        let mut hidden = numerics::embedding(&self.embed_tokens, &tokens.unsqueeze(1));
        for (index, layer) in self.layers.iter().enumerate() {
            hidden = layer.forward(&self.config, &hidden, &cos, &sin, |queries, keys, values| {
                let (keys, values) = cache.append(index, positions, slots, keys, values);
                numerics::cached_attention(queries, &keys, &values, &hidden_slots)
            });
        }
        numerics::rms_norm(&hidden, &self.norm, self.config.rms_norm_eps).squeeze_dim(1)
    }

    /// Next-token logits: final hidden states `[..., hidden]` → `[..., vocab]`.
    pub fn logits(&self, hidden: &Tensor) -> Tensor {
        numerics::linear(hidden, &self.lm_head, None)
    }
}

/// Keys and values of earlier positions: position p of a row lies in slot p, for every row.
#[derive(Debug)]
pub struct KvCache {
    /// For each layer: keys and values, both `[batch, kv_heads, capacity, head_dim]`.
    layers: Vec<(Tensor, Tensor)>,
}

impl KvCache {
    /// An empty cache for `batch` rows of at most `capacity` positions.
    pub fn new(model: &Qwen2, batch: i64, capacity: i64) -> Self {
        let config = model.config();
        let shape = [batch, config.num_key_value_heads, capacity, config.head_dim];
        let options = (model.embed_tokens.kind(), model.embed_tokens.device());
        let layer = |_| (Tensor::zeros(shape, options), Tensor::zeros(shape, options));
        Self { layers: (0..config.num_hidden_layers).map(layer).collect() }
    }

    /// The cache of chosen rows, in the given order; a row may be chosen often. The capacity
    /// becomes `capacity`, of which the first `filled` slots are copied.
    pub fn select(&self, rows: &Tensor, filled: i64, capacity: i64) -> Self {
        let pick = |tensor: &Tensor| {
            let (_, kv_heads, _, head_dim) = tensor.size4().expect("a cache has four dimensions");
            let chosen = Tensor::zeros(
                [rows.size()[0], kv_heads, capacity, head_dim],
                (tensor.kind(), tensor.device()),
            );
            chosen.narrow(2, 0, filled).copy_(&tensor.narrow(2, 0, filled).index_select(0, rows));
            chosen
        };
        Self {
            layers: self.layers.iter().map(|(keys, values)| (pick(keys), pick(values))).collect(),
        }
    }

    fn write_prefix(&mut self, layer: usize, keys: &Tensor, values: &Tensor) {
        let length = keys.size()[2];
        let (all_keys, all_values) = &self.layers[layer];
        all_keys.narrow(2, 0, length).copy_(keys);
        all_values.narrow(2, 0, length).copy_(values);
    }

    /// Writes one position for each row and returns the first `slots` of all rows.
    fn append(
        &mut self,
        layer: usize,
        positions: &Tensor,
        slots: i64,
        keys: &Tensor,
        values: &Tensor,
    ) -> (Tensor, Tensor) {
        let (batch, kv_heads, _, head_dim) = keys.size4().expect("keys have four dimensions");
        let index = positions.view([batch, 1, 1, 1]).expand([batch, kv_heads, 1, head_dim], true);
        let (all_keys, all_values) = &mut self.layers[layer];
        let _ = all_keys.scatter_(2, &index, keys);
        let _ = all_values.scatter_(2, &index, values);
        (all_keys.narrow(2, 0, slots), all_values.narrow(2, 0, slots))
    }
}

#[derive(Debug)]
struct Layer {
    input_layernorm: Tensor,
    q_proj: (Tensor, Tensor),
    k_proj: (Tensor, Tensor),
    v_proj: (Tensor, Tensor),
    o_proj: Tensor,
    post_attention_layernorm: Tensor,
    gate_proj: Tensor,
    up_proj: Tensor,
    down_proj: Tensor,
}

impl Layer {
    fn new(index: i64, get: &impl Fn(&str) -> Tensor) -> Self {
        let weight = |name: &str| get(&format!("model.layers.{index}.{name}.weight"));
        let with_bias =
            |name: &str| (weight(name), get(&format!("model.layers.{index}.{name}.bias")));
        Self {
            input_layernorm: weight("input_layernorm"),
            q_proj: with_bias("self_attn.q_proj"),
            k_proj: with_bias("self_attn.k_proj"),
            v_proj: with_bias("self_attn.v_proj"),
            o_proj: weight("self_attn.o_proj"),
            post_attention_layernorm: weight("post_attention_layernorm"),
            gate_proj: weight("mlp.gate_proj"),
            up_proj: weight("mlp.up_proj"),
            down_proj: weight("mlp.down_proj"),
        }
    }

    /// hidden `[batch, length, hidden]` → the same; cos and sin broadcast to
    /// `[batch, heads, length, head_dim]`.
    fn forward(
        &self,
        config: &Config,
        hidden: &Tensor,
        cos: &Tensor,
        sin: &Tensor,
        attend: impl FnOnce(&Tensor, &Tensor, &Tensor) -> Tensor,
    ) -> Tensor {
        let (batch, length, _) = hidden.size3().expect("hidden states have three dimensions");
        let normed = numerics::rms_norm(hidden, &self.input_layernorm, config.rms_norm_eps);
        let heads = |(weight, bias): &(Tensor, Tensor), count: i64| {
            numerics::linear(&normed, weight, Some(bias))
                .view([batch, length, count, config.head_dim])
                .transpose(1, 2) // [batch, heads, length, head_dim]
        };
        let queries = numerics::rotary(&heads(&self.q_proj, config.num_attention_heads), cos, sin);
        let keys = numerics::rotary(&heads(&self.k_proj, config.num_key_value_heads), cos, sin);
        let values = heads(&self.v_proj, config.num_key_value_heads);
        let width = config.num_attention_heads * config.head_dim;
        let mixed =
            attend(&queries, &keys, &values).transpose(1, 2).reshape([batch, length, width]); // [batch, length, heads · head_dim]
        let hidden = hidden + numerics::linear(&mixed, &self.o_proj, None);
        let normed =
            numerics::rms_norm(&hidden, &self.post_attention_layernorm, config.rms_norm_eps);
        let inner = numerics::swiglu(
            &numerics::linear(&normed, &self.gate_proj, None),
            &numerics::linear(&normed, &self.up_proj, None),
        );
        hidden + numerics::linear(&inner, &self.down_proj, None)
    }
}

/// Cosines and sines of the rotary embedding: both `[max_position_embeddings, head_dim]`, f32.
///
/// The frequencies and the angles are rounded to f32 as in transformers, whatever the
/// model's dtype: in bf16 not even the positions could be represented.
fn rotary_tables(config: &Config, device: Device) -> (Tensor, Tensor) {
    let half = config.head_dim / 2;
    let frequency = |index: i64| {
        libm::pow(config.rope_theta, -(2.0 * index as f64) / config.head_dim as f64) as f32
    };
    let frequencies: Vec<f32> = (0..half).map(frequency).collect();
    let table = |function: fn(f64) -> f64| {
        let mut values =
            Vec::with_capacity((config.max_position_embeddings * config.head_dim) as usize);
        for position in 0..config.max_position_embeddings {
            for _ in 0..2 {
                values.extend(
                    frequencies.iter().map(|f| function(f64::from(position as f32 * f)) as f32),
                );
            }
        }
        Tensor::from_slice(&values)
            .view([config.max_position_embeddings, config.head_dim])
            .to_device(device)
    };
    (table(libm::cos), table(libm::sin))
}
