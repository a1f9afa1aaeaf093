//! The decoder, once for every arithmetic: RMSNorm, rotary embedding, grouped-query attention, SwiGLU. Qwen2
//! has biases of queries, keys and values, Qwen3 norms of queries and keys, Llama neither.

use crate::numerics::{Folded, Operations, folded::FoldedPart};
use crate::policy::Config;

/// What a decoder is made of: W is a matrix of weights, or how it is made of parameters.
#[derive(Debug, Clone)]
pub struct Decoder<W> {
    /// The table of the embedding, `[vocab, hidden]`.
    pub embed_tokens: W,
    pub layers: Vec<Layer<W>>,
    /// Weight of the final norm, `[hidden]`.
    pub norm: W,
    /// `[vocab, hidden]`: the embedding's table where the configuration ties them.
    pub lm_head: W,
}

#[derive(Debug, Clone)]
pub struct Layer<W> {
    /// Queries, keys, values: `[(heads + 2 · kv_heads) · head_dim, hidden]`.
    pub qkv: W,
    /// Norms of queries and keys, where the architecture has them.
    pub head_norms: Option<[W; 2]>,
    /// `[hidden, heads · head_dim]`.
    pub o: W,
    /// `[intermediate, hidden]`.
    pub gate: W,
    /// `[intermediate, hidden]`.
    pub up: W,
    /// `[hidden, intermediate]`.
    pub down: W,
}

impl Decoder<Folded> {
    /// How a policy's matrices are made of its checkpoint's tensors.
    pub fn of(config: &Config) -> Self {
        let hidden = config.hidden_size as usize;
        let embed_tokens = Folded::of("model.embed_tokens.weight", hidden);
        let lm_head = Folded::of(config.head_name(), hidden);
        let layers = (0..config.num_hidden_layers).map(|index| Layer::of(config, index)).collect();
        let norm = Folded::of("model.norm.weight", hidden);
        Self { embed_tokens, layers, norm, lm_head }
    }
}

impl Layer<Folded> {
    fn of(config: &Config, index: i64) -> Self {
        let hidden = config.hidden_size as usize;
        let mixed = (config.num_attention_heads * config.head_dim) as usize;
        let weight = |name: &str| format!("model.layers.{index}.{name}.weight");
        let part = |name: &str, heads: Option<i64>| FoldedPart {
            weight: weight(name),
            bias: config.family.has_biases().then(|| format!("model.layers.{index}.{name}.bias")),
            interleaved_heads: heads.map(|heads| heads as usize),
        };
        let normed = |name: &str, norm: &str| Folded {
            norm: Some(weight(norm)),
            ..Folded::of(&weight(name), hidden)
        };
        Self {
            qkv: Folded {
                parts: vec![
                    part("self_attn.q_proj", Some(config.num_attention_heads)),
                    part("self_attn.k_proj", Some(config.num_key_value_heads)),
                    part("self_attn.v_proj", None),
                ],
                norm: Some(weight("input_layernorm")),
                inputs: hidden,
            },
            head_norms: config.family.has_head_norms().then(|| {
                ["self_attn.q_norm", "self_attn.k_norm"].map(|name| {
                    // Its numbers lie as those of a head do.
                    let mut norm = Folded::of(&weight(name), 1);
                    norm.parts[0].interleaved_heads = Some(1);
                    norm
                })
            }),
            o: Folded::of(&weight("self_attn.o_proj"), mixed),
            gate: normed("mlp.gate_proj", "post_attention_layernorm"),
            up: normed("mlp.up_proj", "post_attention_layernorm"),
            down: Folded::of(&weight("mlp.down_proj"), config.intermediate_size as usize),
        }
    }
}

impl<W> Layer<W> {
    /// The same layer of other matrices, each made from the old one, always in this order.
    pub fn map<'a, V>(&'a self, mut change: impl FnMut(&'a W) -> V) -> Layer<V> {
        Layer {
            qkv: change(&self.qkv),
            head_norms: self.head_norms.as_ref().map(|norms| norms.each_ref().map(&mut change)),
            o: change(&self.o),
            gate: change(&self.gate),
            up: change(&self.up),
            down: change(&self.down),
        }
    }

    /// The residual stream after this layer, `[tokens, hidden]`. `index` counts layers.
    pub fn run<O: Operations<Weight = W>>(
        &self,
        operations: &mut O,
        index: usize,
        hidden: O::Rows,
    ) -> O::Rows {
        let normed = operations.rms_norm(&hidden);
        let mixed = operations.attention(index, normed, &self.qkv, self.head_norms.as_ref());
        let mixed = operations.attention_output(mixed, &self.o);
        let hidden = operations.add(hidden, mixed);
        let normed = operations.rms_norm(&hidden);
        let inner = operations.swiglu(normed, &self.gate, &self.up);
        let inner = operations.swiglu_output(inner, &self.down);
        operations.add(hidden, inner)
    }
}

impl<W> Decoder<W> {
    /// The same decoder of other matrices, each made from the old one. The order is always the same.
    pub fn map<'a, V>(&'a self, mut change: impl FnMut(&'a W) -> V) -> Decoder<V> {
        let embed_tokens = change(&self.embed_tokens);
        let layers = self.layers.iter().map(|layer| layer.map(&mut change)).collect();
        Decoder { embed_tokens, layers, norm: change(&self.norm), lm_head: change(&self.lm_head) }
    }

    /// Tokens → hidden states after the final norm, `[tokens, hidden]`.
    pub fn run<O: Operations<Weight = W>>(
        &self,
        operations: &mut O,
        tokens: &O::Tokens,
    ) -> O::Rows {
        let mut hidden = operations.embedding(&self.embed_tokens, tokens);
        for (index, layer) in self.layers.iter().enumerate() {
            hidden = layer.run(operations, index, hidden);
        }
        let normed = operations.rms_norm(&hidden);
        operations.scale(normed, &self.norm)
    }
}
