//! The small set of tensor operations that the model and the losses are written in.
//!
//! `fast` arithmetic: LibTorch's own f32 kernels. Their bits depend on threads, instruction
//! set and batch shape, so results are `exact-here` at best. The model and the losses call
//! nothing else for arithmetic, so that another arithmetic has one place to go.

use tch::Kind;
use tch::Tensor;

/// `x · weightᵀ + bias`: x `[..., in]`, weight `[out, in]`, bias `[out]` → `[..., out]`.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    x.linear(weight, bias)
}

/// Rows of a table: weight `[vocab, hidden]`, ids `[...]` → `[..., hidden]`.
pub fn embedding(weight: &Tensor, ids: &Tensor) -> Tensor {
    Tensor::embedding(weight, ids, -1, false, false)
}

/// Root-mean-square normalisation over the last dimension:
/// `weight · x / √(mean(x²) + epsilon)`, statistics in f32 or wider.
pub fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Tensor {
    let mean_square = (x * x).mean_dim(-1, true, x.kind());
    x * (mean_square + epsilon).rsqrt() * weight
}

/// SwiGLU: `silu(gate) · up`, element by element.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Tensor {
    gate.silu() * up
}

/// Rotary position embedding in the half-split layout of Qwen2:
/// `x · cos + rotate_half(x) · sin`; x `[..., length, head_dim]`, cos and sin broadcast.
pub fn rotary(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    let halves = x.chunk(2, -1);
    let rotated = Tensor::cat(&[halves[1].neg(), halves[0].shallow_clone()], -1);
    x * cos + rotated * sin
}

/// Causal attention of a whole sequence with itself.
///
/// queries `[batch, heads, length, head_dim]`, keys and values
/// `[batch, kv_heads, length, head_dim]` → `[batch, heads, length, head_dim]`.
pub fn causal_attention(queries: &Tensor, keys: &Tensor, values: &Tensor) -> Tensor {
    let grouped = queries.size()[1] != keys.size()[1];
    Tensor::scaled_dot_product_attention::<Tensor>(
        queries, keys, values, None, 0.0, true, None, grouped,
    )
}

/// Attention of one new query for each row over that row's first keys.
///
/// queries `[batch, heads, 1, head_dim]`, keys and values `[batch, kv_heads, slots, head_dim]`,
/// `hidden_slots` `[batch, 1, 1, slots]` true where a row has no key → `[batch, heads, 1, head_dim]`.
pub fn cached_attention(
    queries: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    hidden_slots: &Tensor,
) -> Tensor {
    let (batch, heads, _, head_dim) = queries.size4().expect("queries have four dimensions");
    let kv_heads = keys.size()[1];
    let grouped = queries.view([batch, kv_heads, heads / kv_heads, head_dim]);
    let scores = grouped.matmul(&keys.transpose(-2, -1)) / (head_dim as f64).sqrt();
    let scores = scores.masked_fill(hidden_slots, f64::NEG_INFINITY); // [batch, kv_heads, group, slots]
    let weights = scores.softmax(-1, scores.kind());
    weights.matmul(values).view([batch, heads, 1, head_dim])
}

/// Log-probability of each token: logits `[..., vocab]`, tokens `[...]` → `[...]`, in nats, of the
/// distribution softmax(logits / temperature). Computed in f32 or wider.
pub fn log_probs(logits: &Tensor, tokens: &Tensor, temperature: f64) -> Tensor {
    let all = log_distribution(logits, temperature);
    all.gather(-1, &tokens.unsqueeze(-1), false).squeeze_dim(-1)
}

/// Entropy of softmax(logits / temperature): logits `[..., vocab]` → `[...]`, in nats.
pub fn entropy(logits: &Tensor, temperature: f64) -> Tensor {
    let all = log_distribution(logits, temperature);
    let kind = all.kind();
    -(all.exp() * &all).sum_dim_intlist([-1i64].as_slice(), false, kind)
}

fn log_distribution(logits: &Tensor, temperature: f64) -> Tensor {
    let kind = if logits.kind() == Kind::Double { Kind::Double } else { Kind::Float };
    let scaled = if temperature == 1.0 { logits.shallow_clone() } else { logits / temperature };
    scaled.log_softmax(-1, kind)
}
