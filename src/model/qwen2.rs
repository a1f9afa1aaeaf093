//! The Qwen2 decoder: RMSNorm, rotary embedding, grouped-query attention with QKV bias,
//! SwiGLU, tied or untied head.

use crate::model::cache::KvCache;
use crate::model::config::Config;
use crate::numerics;
use crate::rng::Id;
use crate::rng::Purpose;
use crate::rng::stream;
use std::collections::BTreeMap;
use tch::Device;
use tch::Tensor;

mod decode;

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
    /// e^{iφ} of each position: `[max_position_embeddings, 1, head_dim / 2]`.
    rotation: Tensor,
}

/// Weights in the form in which the forward pass uses them, with their graph to the parameters:
/// products that read the same input are one matrix, and each norm's weight is inside the
/// matrix that follows it.
#[derive(Debug)]
pub struct Prepared {
    layers: Vec<PreparedLayer>,
    /// Of each layer, gate and up as one matrix `[2 · intermediate, hidden]`: for sampling only,
    /// otherwise empty.
    gates_and_ups: Vec<Tensor>,
}

/// Keys and values of one layer: both `[tokens, kv_heads, head_dim]`.
pub type KeysAndValues = (Tensor, Tensor);

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
        let rotation = rotation_table(&config, get("model.norm.weight").device());
        let (embed_tokens, norm, lm_head) =
            (get("model.embed_tokens.weight"), get("model.norm.weight"), get(head));
        Ok(Self { embed_tokens, layers, norm, lm_head, rotation, config, parameters })
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

    /// The same policy for another thread: every tensor is shared, none is copied.
    pub fn share(&self) -> Self {
        let parameters =
            self.parameters.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone()));
        Self::new(self.config.clone(), parameters.collect()).expect("the tensors of a policy")
    }

    /// The weights as the forward pass uses them: once for a forward and its backward pass, or
    /// once for all tokens of a generation.
    pub fn prepare(&self) -> Prepared {
        let layers = self.layers.iter().map(|layer| layer.prepare(&self.config));
        Prepared { layers: layers.collect(), gates_and_ups: Vec::new() }
    }

    /// As [`Qwen2::prepare`], without a graph and laid out for the products of few rows: the same
    /// matrices, stored by column.
    pub fn prepare_for_sampling(&self) -> Prepared {
        let by_column = |weight: Tensor| weight.tr().contiguous().tr();
        let (mut layers, mut gates_and_ups) = (Vec::new(), Vec::new());
        let _no_graph = tch::no_grad_guard();
        for layer in &self.layers {
            let PreparedLayer { qkv, qkv_bias, o, gate, up, down } = layer.prepare(&self.config);
            let gate_and_up = Tensor::cat(&[gate, up], 0);
            let [qkv, o, gate_and_up, down] = [qkv, o, gate_and_up, down].map(by_column);
            // Both are views: the prompts' pass and the steps share one copy.
            let halves = gate_and_up.chunk(2, 0);
            let (gate, up) = (halves[0].shallow_clone(), halves[1].shallow_clone());
            gates_and_ups.push(gate_and_up);
            layers.push(PreparedLayer { qkv, qkv_bias, o, gate, up, down });
        }
        Prepared { layers, gates_and_ups }
    }

    /// Hidden states of whole sequences from position 0, after the final norm:
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
        let rotation = self.rotation.narrow(0, 0, length).repeat([batch, 1, 1]);
        let hidden =
            self.run(prepared, &tokens.view([-1]), &rotation, |_, queries, keys, values| {
                let mixed = numerics::causal_attention(&queries, &keys, &values, length);
                keep((keys, values));
                mixed
            });
        hidden.view([batch, length, self.config.hidden_size])
    }

    /// One more token for each row of the cache: tokens `[rows]`, position of that token in
    /// each row `[rows]` → final hidden states `[rows, hidden]`. The cache must hold every
    /// earlier position of each row, and `prepared` be [`Qwen2::prepare_for_sampling`]'s.
    pub fn decode(
        &self,
        prepared: &Prepared,
        tokens: &Tensor,
        positions: &Tensor,
        cache: &mut KvCache,
    ) -> Tensor {
        let cache = match cache {
            KvCache::Rows(cache) => {
                return self.decode_on_slices(prepared, tokens, positions, cache);
            }
            KvCache::Shared(cache) => cache,
        };
        let rotation = self.rotation.index_select(0, positions);
        let mask = cache.begin();
        let hidden = self.run(prepared, tokens, &rotation, |layer, queries, keys, values| {
            let (keys, values) = cache.append(layer, &keys, &values);
            numerics::cached_attention(&queries, &keys, &values, &mask)
        });
        cache.end();
        hidden
    }

    /// tokens `[tokens]`, rotation of each token's position → `[tokens, hidden]`. `attend` gets
    /// the layer, queries `[tokens, heads, head_dim]`, and keys and values
    /// `[tokens, kv_heads, head_dim]`; it returns `[tokens, heads · head_dim]`.
    fn run(
        &self,
        prepared: &Prepared,
        tokens: &Tensor,
        rotation: &Tensor,
        mut attend: impl FnMut(usize, Tensor, Tensor, Tensor) -> Tensor,
    ) -> Tensor {
        let mut hidden = numerics::embedding(&self.embed_tokens, tokens); // [tokens, hidden]
        for (index, layer) in prepared.layers.iter().enumerate() {
            hidden = layer.forward(&self.config, &hidden, rotation, |queries, keys, values| {
                attend(index, queries, keys, values)
            });
        }
        numerics::rms_norm(&hidden, self.config.rms_norm_eps) * &self.norm
    }

    /// Next-token logits: final hidden states `[..., hidden]` → `[..., vocab]`.
    pub fn logits(&self, hidden: &Tensor) -> Tensor {
        numerics::linear(hidden, &self.lm_head, None)
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

    fn prepare(&self, config: &Config) -> PreparedLayer {
        let half = config.head_dim / 2;
        // A dimension and its partner half a head away become neighbours, which
        // `numerics::rotary` turns together. Queries and keys alike: no score changes.
        let interleave = |tensor: &Tensor, heads: i64| {
            let halves = tensor.view([heads, 2, half, -1]);
            halves.transpose(1, 2).reshape(tensor.size().as_slice())
        };
        let (queries, keys) = (config.num_attention_heads, config.num_key_value_heads);
        let joined = |query: &Tensor, key: &Tensor, value: &Tensor| {
            let parts = [interleave(query, queries), interleave(key, keys), value.shallow_clone()];
            Tensor::cat(&parts, 0)
        };
        let (q, k, v) = (&self.q_proj, &self.k_proj, &self.v_proj);
        PreparedLayer {
            qkv: joined(&q.0, &k.0, &v.0) * &self.input_layernorm,
            qkv_bias: joined(&q.1, &k.1, &v.1),
            o: self.o_proj.shallow_clone(),
            gate: &self.gate_proj * &self.post_attention_layernorm,
            up: &self.up_proj * &self.post_attention_layernorm,
            down: self.down_proj.shallow_clone(),
        }
    }
}

#[derive(Debug)]
struct PreparedLayer {
    /// `[(heads + 2 · kv_heads) · head_dim, hidden]`: queries, keys, values.
    qkv: Tensor,
    qkv_bias: Tensor,
    o: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
}

impl PreparedLayer {
    /// hidden `[tokens, hidden]` → the same; rotation `[tokens, 1, head_dim / 2]`.
    fn forward(
        &self,
        config: &Config,
        hidden: &Tensor,
        rotation: &Tensor,
        attend: impl FnOnce(Tensor, Tensor, Tensor) -> Tensor,
    ) -> Tensor {
        let (heads, kv_heads) = (config.num_attention_heads, config.num_key_value_heads);
        let tokens = hidden.size()[0];
        let normed = numerics::rms_norm(hidden, config.rms_norm_eps);
        let joined = numerics::linear(&normed, &self.qkv, Some(&self.qkv_bias));
        let joined = joined.view([tokens, heads + 2 * kv_heads, config.head_dim]);
        let parts = joined.split_with_sizes([heads + kv_heads, kv_heads], 1);
        let turned = numerics::rotary(&parts[0], rotation);
        let turned = turned.split_with_sizes([heads, kv_heads], 1);
        let mixed =
            attend(turned[0].shallow_clone(), turned[1].shallow_clone(), parts[1].shallow_clone());
        let hidden = hidden + numerics::linear(&mixed, &self.o, None);
        let normed = numerics::rms_norm(&hidden, config.rms_norm_eps);
        let gate = numerics::linear(&normed, &self.gate, None);
        let inner = numerics::swiglu(&gate, &numerics::linear(&normed, &self.up, None));
        hidden + numerics::linear(&inner, &self.down, None)
    }
}

/// e^{iφ} of the rotary embedding, `[max_position_embeddings, 1, head_dim / 2]`, in f32.
///
/// The frequencies and the angles are rounded to f32 as in transformers, whatever the
/// model's dtype: in bf16 not even the positions could be represented.
fn rotation_table(config: &Config, device: Device) -> Tensor {
    let half = config.head_dim / 2;
    let frequency = |index: i64| {
        libm::pow(config.rope_theta, -(2.0 * index as f64) / config.head_dim as f64) as f32
    };
    let frequencies: Vec<f32> = (0..half).map(frequency).collect();
    let table = |function: fn(f64) -> f64| {
        let positions = 0..config.max_position_embeddings;
        let values: Vec<f32> = positions
            .flat_map(|position| frequencies.iter().map(move |f| position as f32 * f))
            .map(|angle| function(f64::from(angle)) as f32)
            .collect();
        Tensor::from_slice(&values)
            .view([config.max_position_embeddings, 1, half])
            .to_device(device)
    };
    Tensor::complex(&table(libm::cos), &table(libm::sin))
}
