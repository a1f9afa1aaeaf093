//! `fast` arithmetic: LibTorch's own f32 kernels, with their derivatives.

use tch::{Device, Kind, Tensor};

/// Runs `work` without a graph. Unlike `tch::no_grad`, it turns graphs on again after a panic that `halving` catches.
pub fn without_graph<T>(work: impl FnOnce() -> T) -> T {
    let _guard = tch::no_grad_guard();
    work()
}

/// `x · weightᵀ + bias`: x `[..., in]`, weight `[out, in]`, bias `[out]` → `[..., out]`. With 5 to 48 rows on the
/// processor, the product with the matrix first takes 0.8 to 0.95 of the time, in f32 and bf16; else longer.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let few = x.dim() == 2 && (5..=48).contains(&x.size()[0]) && x.device() == Device::Cpu;
    if !few {
        return x.linear(weight, bias);
    }
    let product = match bias {
        None => weight.mm(&x.tr()),
        Some(bias) => bias.unsqueeze(-1).addmm(weight, &x.tr()),
    };
    product.tr().contiguous()
}

/// A tensor's numbers in f32, in the order of memory.
pub fn values(tensor: &Tensor) -> Vec<f32> {
    let flat = tensor.detach().to_kind(Kind::Float).to_device(Device::Cpu).contiguous();
    Vec::try_from(flat.flatten(0, -1)).expect("a dense f32 tensor")
}

/// Rows of a table: weight `[vocab, hidden]`, ids `[...]` → `[..., hidden]`.
pub fn embedding(weight: &Tensor, ids: &Tensor) -> Tensor {
    Tensor::embedding(weight, ids, -1, false, false)
}

/// RMS normalisation over the last dimension times `weight`, in one operation in f32 or wider, rounded once.
pub fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Tensor {
    x.rms_norm(weight.size(), Some(weight), epsilon)
}

/// SwiGLU: `silu(gate) · up`, element by element.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Tensor {
    gate.silu() * up
}

/// Rotary position embedding in the layout of checkpoints, where a number and its partner lie half a head
/// apart: x `[tokens, heads, head_dim]`, turns `[tokens, 1, head_dim / 2, 2]` (cosine, sine) → as x.
pub fn rotary_halves(x: &Tensor, turns: &Tensor) -> Tensor {
    let (cos, sin) = (turns.select(-1, 0), turns.select(-1, 1));
    let halves = x.chunk(2, -1);
    let (a, b) = (&halves[0], &halves[1]);
    Tensor::cat(&[a * &cos - b * &sin, b * &cos + a * &sin], -1)
}

/// Causal attention of whole sequences with themselves: queries `[batch · length, heads, head_dim]`, keys and
/// values `[batch · length, kv_heads, head_dim]` → `[batch · length, heads · head_dim]`.
pub fn causal_attention(queries: &Tensor, keys: &Tensor, values: &Tensor, length: i64) -> Tensor {
    let (tokens, heads, head_dim) = queries.size3().expect("queries have three dimensions");
    let split =
        |x: &Tensor| x.reshape([tokens / length, length, x.size()[1], head_dim]).transpose(1, 2);
    let grouped = heads != keys.size()[1];
    Tensor::scaled_dot_product_attention::<Tensor>(
        &split(queries),
        &split(keys),
        &split(values),
        None,
        0.0,
        true,
        None,
        grouped,
    )
    .transpose(1, 2)
    .reshape([tokens, heads * head_dim])
}

/// Attention of one new query for each row over that row's slots: queries `[rows, heads, head_dim]`, keys and values
/// `[rows, slots, kv_heads, head_dim]`, `mask` `[rows, 1, 1, slots]` 0 where a row has a key and −∞ elsewhere →
/// `[rows, heads · head_dim]`.
pub fn cached_attention(queries: &Tensor, keys: &Tensor, values: &Tensor, mask: &Tensor) -> Tensor {
    let (rows, heads, head_dim) = queries.size3().expect("queries have three dimensions");
    let kv_heads = keys.size()[2];
    // The heads of a group are as many queries of one head.
    let grouped = queries.view([rows, kv_heads, heads / kv_heads, head_dim]);
    Tensor::scaled_dot_product_attention(
        &grouped,
        &keys.transpose(1, 2),
        &values.transpose(1, 2),
        Some(mask),
        0.0,
        false,
        None,
        false,
    )
    .reshape([rows, heads * head_dim])
}

/// Log-probability of each token: logits `[..., vocab]`, tokens `[...]` → `[...]`, in nats, of the
/// distribution softmax(logits / temperature). Computed in f32 or wider.
pub fn log_probs(logits: &Tensor, tokens: &Tensor, temperature: f64) -> Tensor {
    let all = log_distribution(logits, temperature);
    all.gather(-1, &tokens.unsqueeze(-1), false).squeeze_dim(-1)
}

/// [`log_probs`], and the entropy of each distribution in nats, with one softmax for both.
pub fn log_probs_and_entropy(
    logits: &Tensor,
    tokens: &Tensor,
    temperature: f64,
) -> (Tensor, Tensor) {
    let all = log_distribution(logits, temperature);
    let entropy = expected_surprise(&all.exp(), &all);
    (all.gather(-1, &tokens.unsqueeze(-1), false).squeeze_dim(-1), entropy)
}

/// Entropy of a distribution: −Σ p · log p over the last dimension.
pub fn expected_surprise(probabilities: &Tensor, log_distribution: &Tensor) -> Tensor {
    let kind = log_distribution.kind();
    -(probabilities * log_distribution).sum_dim_intlist([-1i64].as_slice(), false, kind)
}

/// The log of each row's sum: `[rows, width]` → `[rows]` in the kind of the weights.
pub fn log_mass(weights: &Tensor) -> Tensor {
    let mass = weights.sum_dim_intlist([-1i64].as_slice(), false, Kind::Double);
    mass.log().to_kind(weights.kind())
}

/// log softmax(logits / temperature): logits `[..., vocab]`, in f32 or wider.
pub fn log_distribution(logits: &Tensor, temperature: f64) -> Tensor {
    let kind = if logits.kind() == Kind::Double { Kind::Double } else { Kind::Float };
    let scaled = if temperature == 1.0 { logits.shallow_clone() } else { logits / temperature };
    scaled.log_softmax(-1, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_are_made_again_after_a_panic_without_one() {
        let panics = || without_graph(|| -> () { panic!("no memory") });
        assert!(crate::base::contained::caught(panics).is_err());
        let leaf = Tensor::zeros([1], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        assert!((leaf + 1.0).requires_grad());
    }

    #[test]
    fn a_norm_of_zeros_is_zero_with_a_finite_gradient() {
        let x = Tensor::zeros([2, 3], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let y = rms_norm(&x, &Tensor::ones([3], (Kind::Float, Device::Cpu)), 1e-6);
        let gradient = Tensor::run_backward(&[y.sum(Kind::Float)], &[&x], false, false);
        assert_eq!(y.abs().max().double_value(&[]), 0.0);
        assert!(gradient[0].isfinite().all().int64_value(&[]) == 1);
    }
}
