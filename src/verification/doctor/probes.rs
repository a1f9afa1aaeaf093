//! The numeric fingerprint: SHA-256 of the results of LibTorch operations on operands from fixed
//! streams, on one thread. Changing a name or an operand makes older fingerprints incomparable for
//! it.

use crate::base::{Purpose, files, rng::Id, rng::stream};
use crate::numerics::fast;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tch::{Kind, Tensor};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// Over all operations.
    pub digest: String,
    /// Operation → SHA-256 of its results: kind, shape and little-endian values.
    pub operations: BTreeMap<String, String>,
}

type DoctorProbe = (&'static str, fn(&Operands) -> Vec<Tensor>);

/// Kernels depend on the number of rows: one row is a matrix-vector product, and libraries treat
/// few rows separately.
const PRODUCTS: [DoctorProbe; 12] = [
    ("linear-1-row", |x| vec![linear(x, 1, Kind::Float)]),
    ("linear-2-rows", |x| vec![linear(x, 2, Kind::Float)]),
    ("linear-3-rows", |x| vec![linear(x, 3, Kind::Float)]),
    ("linear-4-rows", |x| vec![linear(x, 4, Kind::Float)]),
    ("linear-64-rows", |x| vec![linear(x, 64, Kind::Float)]),
    ("linear-64-rows-f64", |x| vec![linear(x, 64, Kind::Double)]),
    ("linear-1-row-bf16", |x| vec![linear(x, 1, Kind::BFloat16)]),
    ("linear-64-rows-bf16", |x| vec![linear(x, 64, Kind::BFloat16)]),
    ("linear-backward", linear_backward),
    ("batched-product", |x| vec![x.uniform("a", &[8, 48, 32]).bmm(&x.uniform("b", &[8, 32, 48]))]),
    ("dot", |x| vec![x.uniform("a", &[100_000]).dot(&x.uniform("b", &[100_000]))]),
    // Sums of products of bf16 values of similar size are exact in f64: equal on any machine.
    ("linear-64-rows-f64-of-bf16", |x| {
        let bf16 = |x: Tensor| {
            (x.to_kind(Kind::BFloat16).to_kind(Kind::Double) + 1.5)
                .to_kind(Kind::BFloat16)
                .to_kind(Kind::Double)
        };
        let (a, b) = (bf16(x.uniform("a", &[64, 256])), bf16(x.uniform("b", &[384, 256])));
        vec![a.linear::<Tensor>(&b, None)]
    }),
];

const ELEMENTWISE: [DoctorProbe; 15] = [
    ("exp", |x| vec![x.wide().exp()]),
    ("exp-f64", |x| vec![x.wide().to_kind(Kind::Double).exp()]),
    ("log", |x| vec![x.positive().log()]),
    ("tanh", |x| vec![x.wide().tanh()]),
    ("erf", |x| vec![x.wide().erf()]),
    ("sin", |x| vec![x.wide().sin()]),
    ("sqrt", |x| vec![x.positive().sqrt()]),
    ("sqrt-f64", |x| vec![x.positive().to_kind(Kind::Double).sqrt()]),
    ("rsqrt", |x| vec![x.positive().rsqrt()]),
    ("pow", |x| vec![x.positive().pow_tensor_scalar(1.7)]),
    ("sigmoid", |x| vec![x.wide().sigmoid()]),
    ("silu", |x| vec![x.wide().silu()]),
    ("gelu", |x| vec![x.wide().gelu("none")]),
    ("divide", |x| vec![x.wide() / x.positive()]),
    ("cast", |x| [Kind::BFloat16, Kind::Half].map(|kind| x.wide().to_kind(kind)).into()),
];

const REDUCTIONS: [DoctorProbe; 18] = [
    ("softmax", |x| vec![x.logits().softmax(-1, Kind::Float)]),
    ("softmax-f64", |x| vec![x.logits().softmax(-1, Kind::Double)]),
    ("log-softmax", |x| vec![x.logits().log_softmax(-1, Kind::Float)]),
    ("logsumexp", |x| vec![x.logits().logsumexp([-1i64], false)]),
    ("rms-norm", |x| vec![fast::rms_norm(&x.logits(), &x.uniform("weight", &[259]), 1e-6)]),
    ("layer-norm", |x| vec![x.logits().layer_norm::<Tensor>([259i64], None, None, 1e-5, false)]),
    ("sum", |x| vec![x.uniform("long", &[300_000]).sum(Kind::Float)]),
    ("sum-f64", |x| vec![x.uniform("long", &[300_000]).to_kind(Kind::Double).sum(Kind::Double)]),
    ("sum-of-rows", |x| vec![x.logits().sum_dim_intlist([-1i64].as_slice(), false, Kind::Float)]),
    ("sum-of-columns", |x| vec![x.logits().sum_dim_intlist([0i64].as_slice(), false, Kind::Float)]),
    ("mean", |x| vec![x.uniform("long", &[300_000]).mean(Kind::Float)]),
    ("variance", |x| vec![x.logits().var(true)]),
    ("norm", |x| vec![x.uniform("long", &[300_000]).norm()]),
    ("cumulative-sum", |x| vec![x.logits().cumsum(-1, Kind::Float)]),
    ("index-add", |x| {
        let places = x.places(512, 32);
        vec![Tensor::zeros([32, 64], (Kind::Float, tch::Device::Cpu)).index_add(
            0,
            &places,
            &x.uniform("rows", &[512, 64]),
        )]
    }),
    ("embedding-backward", embedding_backward),
    ("attention-whole-sequence", |x| vec![attention(x, 48, true)]),
    ("attention-one-query", |x| vec![attention(x, 1, false)]),
];

/// Runs every probe on one thread, as in a run.
pub fn fingerprint() -> Fingerprint {
    tch::set_num_threads(1);
    let probes = PRODUCTS.iter().chain(&ELEMENTWISE).chain(&REDUCTIONS);
    let operations: BTreeMap<String, String> = probes
        .map(|(name, probe)| {
            let bytes: Vec<u8> = probe(&Operands { probe: name }).iter().flat_map(bytes).collect();
            (name.to_string(), files::sha256(&bytes))
        })
        .collect();
    let digest = files::sha256(files::canonical_json_line(&operations).as_bytes());
    Fingerprint { digest, operations }
}

/// Kind, shape and values, which f64 holds exactly.
fn bytes(tensor: &Tensor) -> Vec<u8> {
    let mut bytes = format!("{:?} {:?} ", tensor.kind(), tensor.size()).into_bytes();
    let flat = tensor.to_kind(Kind::Double).contiguous().view([-1]);
    let values = Vec::<f64>::try_from(&flat).expect("a flat f64 tensor on the CPU is a list");
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

/// Operands of one probe, from a stream keyed by its name.
struct Operands {
    probe: &'static str,
}

impl Operands {
    /// Uniform in [−1, 1).
    fn uniform(&self, operand: &str, shape: &[i64]) -> Tensor {
        let mut draws = stream(0, Purpose::Fingerprint, &[Id::from(self.probe), Id::from(operand)]);
        let count = shape.iter().product::<i64>();
        let values: Vec<f32> = (0..count).map(|_| (2.0 * draws.uniform() - 1.0) as f32).collect();
        Tensor::from_slice(&values).view(shape)
    }

    /// In [−12, 12).
    fn wide(&self) -> Tensor {
        self.uniform("wide", &[4099]) * 12.0
    }

    /// In (0, 9].
    fn positive(&self) -> Tensor {
        (self.uniform("positive", &[4099]) - 1.0) * -4.5
    }

    /// `[64, 259]`: a row length that fills no vector register.
    fn logits(&self) -> Tensor {
        self.uniform("logits", &[64, 259]) * 8.0
    }

    /// `count` numbers below `bound`, with repetitions.
    fn places(&self, count: i64, bound: u64) -> Tensor {
        let mut draws =
            stream(0, Purpose::Fingerprint, &[Id::from(self.probe), Id::from("places")]);
        let places: Vec<i64> = (0..count).map(|_| draws.below(bound) as i64).collect();
        Tensor::from_slice(&places)
    }
}

fn linear(x: &Operands, rows: i64, kind: Kind) -> Tensor {
    let rows = x.uniform("x", &[rows, 256]).to_kind(kind);
    let weight = x.uniform("weight", &[384, 256]).to_kind(kind);
    fast::linear(&rows, &weight, None)
}

fn linear_backward(x: &Operands) -> Vec<Tensor> {
    let rows = x.uniform("x", &[64, 256]).set_requires_grad(true);
    let weight = x.uniform("weight", &[384, 256]).set_requires_grad(true);
    let loss = fast::linear(&rows, &weight, None) * x.uniform("gradient", &[64, 384]);
    loss.sum(Kind::Float).backward();
    vec![rows.grad(), weight.grad()]
}

fn embedding_backward(x: &Operands) -> Vec<Tensor> {
    let table = x.uniform("table", &[32, 64]).set_requires_grad(true);
    let rows = fast::embedding(&table, &x.places(512, 32));
    (rows * x.uniform("gradient", &[512, 64])).sum(Kind::Float).backward();
    vec![table.grad()]
}

fn attention(x: &Operands, queries: i64, is_causal: bool) -> Tensor {
    let of = |name: &str, length: i64| x.uniform(name, &[2, 4, length, 32]);
    Tensor::scaled_dot_product_attention::<Tensor>(
        &of("queries", queries),
        &of("keys", 48),
        &of("values", 48),
        None,
        0.0,
        is_causal,
        None,
        false,
    )
}
