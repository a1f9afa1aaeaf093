use super::*;
use crate::numerics::{Numerics, NumericsError, fast, native::orders};
use crate::policy::{Family, Qwen2, model::config::tests::tiny};
use crate::records::ledger;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tch::{Kind, Tensor};

fn config() -> Config {
    Config { vocab_size: 11, hidden_size: 24, intermediate_size: 40, head_dim: 12, ..tiny() }
}

/// Weights ten times as large as fresh ones: the context then decides about the next token.
fn policy(kind: Kind, numerics: Numerics) -> Qwen2 {
    of_family(Family::Qwen2, kind, numerics)
}

fn of_family(family: Family, kind: Kind, numerics: Numerics) -> Qwen2 {
    with_parameters(Config { family, ..config() }, kind, numerics, |_| ())
}

fn with_parameters(
    config: Config,
    kind: Kind,
    numerics: Numerics,
    spoil: impl FnOnce(&mut BTreeMap<String, Tensor>),
) -> Qwen2 {
    let fresh = Qwen2::initialise(config.clone(), 1);
    let change = |(name, tensor): (&String, &Tensor)| {
        let tensor = match (name.ends_with("norm.weight"), name.ends_with("bias")) {
            // Each number of a head has another weight.
            (true, _) if name.contains("self_attn") => tensor.cumsum(0, Kind::Float) * 0.15,
            (true, _) => tensor * 1.25,
            (_, true) => tensor + 0.125,
            _ => tensor * 10.0,
        };
        (name.clone(), tensor.to_kind(kind).set_requires_grad(true))
    };
    let mut parameters: BTreeMap<String, Tensor> = fresh.parameters().iter().map(change).collect();
    spoil(&mut parameters);
    Qwen2::new(config, parameters).unwrap().with_numerics(numerics).unwrap()
}

/// The same policy in f64, computed by LibTorch.
fn policy_of_doubles(model: &Qwen2) -> Qwen2 {
    let wide = |(name, tensor): (&String, &Tensor)| {
        (name.clone(), tensor.detach().to_kind(Kind::Double).set_requires_grad(true))
    };
    Qwen2::new(model.config().clone(), model.parameters().iter().map(wide).collect()).unwrap()
}

/// Sequences of different lengths; every token but the first two of each is a target.
fn sequences(lengths: &[usize]) -> Sequences {
    let mut sequences = Sequences::default();
    for (row, &length) in lengths.iter().enumerate() {
        let tokens: Vec<u32> =
            (0..=length).map(|at| ((row * 5 + at * at + 3) % 11) as u32).collect();
        sequences.push(&tokens[..length], 1, &tokens[2..]);
    }
    sequences
}

fn values(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.to_kind(Kind::Double).flatten(0, -1)).unwrap()
}

/// A loss with a different weight for each token, none larger than 1.
fn gradients(model: &Qwen2, sequences: &Sequences) -> BTreeMap<String, Vec<f32>> {
    let scale = UpdateScale { largest_weight: 1.0, tokens: 64 };
    let weights: Vec<f64> = sequences.targets.iter().map(|&id| 1.0 - f64::from(id) / 6.0).collect();
    let loss = |log_probs: &Tensor| {
        let weights = Tensor::from_slice(&weights).to_kind(log_probs.kind());
        ((log_probs * weights).sum(log_probs.kind()), ())
    };
    let mut sums = crate::policy::model::gradients::Gradients::default();
    model.add_gradients(&mut sums, sequences, 0.9, scale, loss).unwrap();
    if model.is_native() {
        return sums.values(model, &model.plain_parameters());
    }
    let names = model.parameters().keys().cloned();
    names.zip(sums.into_tensors().iter().map(fast::values)).collect()
}

/// The logits that a generation gives to draw from, `[rows, vocab]`, instead of tokens.
fn logits_of(work: impl FnOnce(DrawToken) -> Vec<Token>) -> Vec<f64> {
    let logits = Mutex::new(BTreeMap::new());
    work(&|row, of_row| {
        logits.lock().unwrap_or_else(PoisonError::into_inner).insert(row, of_row.to_vec());
        Token { id: 0, log_prob: 0.0, entropy: None }
    });
    let logits = logits.into_inner().unwrap_or_else(PoisonError::into_inner);
    logits.into_values().flatten().collect()
}

/// A generation whose logits are looked at, `[rows, vocab]`.
struct Looked(Box<dyn NativeGeneration>);

impl Looked {
    fn join(&mut self, prompts: &[&[u32]], prompt_of_row: &[usize]) -> Vec<f64> {
        logits_of(|draw| self.0.join(prompts, prompt_of_row, draw))
    }

    fn feed(&mut self, tokens: &[u32], positions: &[usize]) -> Vec<f64> {
        logits_of(|draw| self.0.feed(tokens, positions, draw))
    }
}

fn generation(model: &Qwen2) -> Looked {
    Looked(model.native().unwrap().generation())
}

/// How far each arithmetic lies from LibTorch's in f64: the windows' spacing or the rounding of f32,
/// carried through two layers of weights up to 0.6.
const DISTANCES: [(Family, Numerics, f64); 3] = [
    (Family::Qwen2, Numerics::Exact, 2e-3),
    (Family::Qwen2, Numerics::Fast, 2e-5),
    (Family::Qwen3, Numerics::Fast, 2e-5),
];

#[test]
fn log_probs_and_entropy_are_those_of_doubles() {
    let sequences = sequences(&[9, 3, 30]);
    for (family, numerics, distance) in DISTANCES {
        let wide = of_family(family, Kind::Double, Numerics::Fast);
        let expected = wide.statistics(&sequences, 0.9);
        let got = of_family(family, Kind::Float, numerics).statistics(&sequences, 0.9);
        for (expected, got) in expected.iter().zip(got) {
            for (expected, got) in values(expected).into_iter().zip(values(&got)) {
                assert!((expected - got).abs() < distance, "{expected} {got}");
            }
        }
    }
}

#[test]
fn gradients_are_those_of_doubles() {
    let sequences = sequences(&[9, 3, 30]);
    for (family, numerics, distance) in DISTANCES {
        let expected = gradients(&of_family(family, Kind::Double, Numerics::Fast), &sequences);
        let got = gradients(&of_family(family, Kind::Float, numerics), &sequences);
        for (name, expected) in &expected {
            let size = expected.iter().fold(0f32, |most, x| most.max(x.abs()));
            for (expected, got) in expected.iter().zip(&got[name]) {
                let allowed = distance as f32 * size + 1e-5;
                assert!((expected - got).abs() < allowed, "{name}: {expected} {got} of {size}");
            }
        }
    }
}

#[test]
fn responses_that_share_a_prompt_are_as_behind_copies_of_it() {
    let prompt = [3, 5, 7, 1];
    let responses: [&[u32]; 4] = [&[2], &[4, 6], &[8, 9, 10, 1, 2], &[5, 5, 0, 1, 9, 3, 3]];
    let (mut shared, mut copied) = (Sequences::default(), Sequences::default());
    shared.push(&prompt, 0, &[]);
    for response in responses {
        let fed = &response[..response.len() - 1];
        shared.push_after(fed, response);
        copied.push(&[&prompt, fed].concat(), prompt.len() - 1, response);
    }
    assert!(shared.tokens.len() < copied.tokens.len());
    for (family, numerics, distance) in DISTANCES {
        let model = of_family(family, Kind::Float, numerics);
        let statistics = [&shared, &copied].map(|sequences| model.statistics(sequences, 0.9));
        let bits = |tensor: &Tensor| values(tensor).iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(statistics[0].each_ref().map(bits), statistics[1].each_ref().map(bits));
        let by_weights = [&shared, &copied].map(|sequences| gradients(&model, sequences));
        for (name, copied) in &by_weights[1] {
            let size = copied.iter().fold(0f32, |most, x| most.max(x.abs()));
            for (shared, copied) in by_weights[0][name].iter().zip(copied) {
                assert!((shared - copied).abs() <= distance as f32 * size, "{name}");
            }
        }
    }
}

#[test]
fn sums_have_the_same_bits_in_every_order() {
    let before = orders::check(true);
    let model = policy(Kind::Float, Numerics::Exact);
    gradients(&model, &sequences(&[9, 3, 30]));
    let mut generation = generation(&model);
    generation.join(&[&[1, 2, 3], &[4]], &[0, 1]);
    generation.feed(&[5, 6], &[3, 1]);
    assert!(orders::check(false) - before > 10_000, "sums were compared");
}

#[test]
fn a_row_has_the_same_bits_alone_in_company_and_step_by_step() {
    for (family, numerics, _) in DISTANCES {
        same_bits(&of_family(family, Kind::Float, numerics));
    }
}

fn same_bits(model: &Qwen2) {
    let lengths = [9, 3, 30];
    let together = values(&model.statistics(&sequences(&lengths), 1.0)[0]);
    let all = sequences(&lengths);
    let mut alone = Vec::new();
    let mut stepped = Vec::new();
    let mut start = 0;
    for (row, &length) in lengths.iter().enumerate() {
        let mut one = Sequences::default();
        let tokens = &all.tokens[start..start + length];
        let first = (0..row).map(|row| lengths[row] - 1).sum::<usize>();
        let targets = &all.targets[first..first + length - 1];
        one.push(tokens, 1, targets);
        alone.extend(values(&model.statistics(&one, 1.0)[0]));
        // The same tokens through the cache, beside another row.
        let mut generation = generation(model);
        let mut logits = generation.join(&[&tokens[..2], &[7]], &[0, 1]);
        for (at, &target) in targets.iter().enumerate() {
            let row = &logits[..logits.len() / 2];
            stepped.push(Distribution::new(row, 1.0).unwrap().log_prob(row[target as usize]));
            logits = generation.feed(&[target, 3], &[at + 2, at + 1]);
        }
        start += length;
    }
    let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&together), bits(&alone));
    assert_eq!(bits(&together), bits(&stepped));
}

/// A policy that is large enough for threads to share each operation, with more logits than are held at
/// once. The digests are those of every machine and instruction set.
#[test]
fn a_large_policy_has_the_same_bits_with_any_number_of_threads_on_any_machine() {
    let config = Config { vocab_size: 350_000, ..config() };
    let model = with_parameters(config, Kind::Float, Numerics::Fast, |_| ());
    assert!(model.is_large());
    let sequences = sequences(&[12, 5]);
    let all = |threads| {
        workers::set_count(threads);
        let [log_probs, entropy] = model.statistics(&sequences, 0.9);
        let mut generation = generation(&model);
        let first = generation.join(&[&[1, 2, 3], &[4]], &[0, 1, 1]);
        let next = generation.feed(&[5, 6, 7], &[3, 1, 1]);
        let outputs = [values(&log_probs), values(&entropy), first, next];
        (ledger::log_probs(&outputs), gradients(&model, &sequences))
    };
    let (outputs, by_weights) = all(1);
    for threads in [2, 5] {
        assert_eq!(all(threads), (outputs.clone(), by_weights.clone()));
    }
    let digests = [outputs, ledger::tensors(&by_weights)];
    assert_eq!(
        digests.map(|digest| digest[..16].to_string()),
        ["aaa8a27cebe1b6a8", "8d8a0a577bb32ea2"]
    );
    let expected = gradients(&policy_of_doubles(&model), &sequences);
    for (name, expected) in expected {
        let size = expected.iter().fold(0f32, |most, x| most.max(x.abs()));
        for (expected, got) in expected.iter().zip(&by_weights[&name]) {
            // f32 sums over 350,000 tokens, one after another.
            assert!((expected - got).abs() < 5e-4 * size, "{name}: {expected} {got} of {size}");
        }
    }
}

#[test]
fn gradients_have_the_same_bits_however_their_tokens_are_cut() {
    let model = policy(Kind::Float, Numerics::Exact);
    let whole = gradients(&model, &sequences(&[9, 3, 30]));
    let scale = UpdateScale { largest_weight: 1.0, tokens: 64 };
    let all = sequences(&[9, 3, 30]);
    let weight = |id: u32| 1.0 - f64::from(id) / 6.0;
    let mut sum = crate::policy::model::gradients::Gradients::default();
    let (mut start, mut first) = (0, 0);
    for length in [9, 3, 30] {
        let mut one = Sequences::default();
        let targets = &all.targets[first..first + length - 1];
        one.push(&all.tokens[start..start + length], 1, targets);
        let weights: Vec<f64> = targets.iter().map(|&id| weight(id)).collect();
        let loss =
            |log_probs: &Tensor| ((log_probs * Tensor::from_slice(&weights)).sum(Kind::Double), ());
        model.add_gradients(&mut sum, &one, 0.9, scale, loss).unwrap();
        (start, first) = (start + length, first + length - 1);
    }
    assert_eq!(sum.values(&model, &model.plain_parameters()), whole);
}

/// Of a pass whose tokens have no share of the loss, which is not gone through backwards.
#[test]
fn a_pass_without_a_share_of_the_loss_leaves_gradients_their_bits() {
    let scale = UpdateScale { largest_weight: 1.0, tokens: 64 };
    for (family, numerics, _) in DISTANCES {
        let model = of_family(family, Kind::Float, numerics);
        let without_gradient = Cell::new(false);
        let of = |passes: &[(&[usize], &[f64])]| {
            let mut sums = crate::policy::model::gradients::Gradients::default();
            for (lengths, weights) in passes {
                let each = lengths.iter().zip(*weights);
                let weights: Vec<f64> =
                    each.flat_map(|(length, weight)| vec![*weight; length - 1]).collect();
                let loss = |log_probs: &Tensor| {
                    ((log_probs * Tensor::from_slice(&weights)).sum(Kind::Double), ())
                };
                let mut sequences = sequences(lengths);
                sequences.without_gradient = without_gradient.get();
                model.add_gradients(&mut sums, &sequences, 0.9, scale, loss).unwrap();
            }
            sums.values(&model, &model.plain_parameters())
        };
        let together = of(&[(&[9, 3, 30], &[0.5, -1.0, 0.0])]);
        assert_eq!(of(&[(&[9, 3], &[0.5, -1.0]), (&[30], &[0.0])]), together);
        assert_eq!(of(&[(&[30], &[0.0]), (&[9, 3], &[0.5, -1.0])]), together);
        assert_ne!(of(&[(&[9, 3], &[0.5, -1.0]), (&[30], &[1e-3])]), together);
        let none = of(&[(&[30], &[0.0])]);
        assert!(none.values().flatten().all(|x| *x == 0.0) && none.len() == together.len());
        without_gradient.set(true);
        assert_eq!(
            of(&[(&[30], &[0.0]), (&[9, 3], &[0.5, -1.0])]),
            together,
            "a wrong expectation"
        );
    }
}

/// Whatever a policy says of tokens is NaN: log-probs, entropies, and the logits that follow a prompt
/// and a token.
fn says_nothing(model: &Qwen2) -> bool {
    let [log_probs, entropy] = model.statistics(&sequences(&[9, 3]), 0.9);
    let mut generation = generation(model);
    let first = generation.join(&[&[1, 2, 3], &[4]], &[0, 1]);
    let next = generation.feed(&[5, 6], &[3, 1]);
    let all = [values(&log_probs), values(&entropy), first, next].concat();
    assert!(all.iter().all(|x| x.is_nan()) || all.iter().all(|x| x.is_finite()));
    all[0].is_nan()
}

#[test]
fn no_number_that_is_not_finite_passes_a_window_unnoticed() {
    let spoilt = |names: &[&str], value: f32| {
        with_parameters(config(), Kind::Float, Numerics::Exact, |parameters| {
            for name in names {
                let tensor = parameters[*name].detach().copy();
                // One number, the last: of the embedding that of a token that no sequence has.
                let flat = tensor.flatten(0, -1);
                let _ = flat.narrow(0, flat.numel() as i64 - 1, 1).fill_(f64::from(value));
                parameters.insert(name.to_string(), tensor);
            }
        })
    };
    assert!(!says_nothing(&policy(Kind::Float, Numerics::Exact)));
    for (name, _) in config().tensor_shapes() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(says_nothing(&spoilt(&[&name], value)), "{value} in {name}");
        }
        // What is larger than its window and finite is made as large as the window.
        assert!(!says_nothing(&spoilt(&[&name], 1e30)), "{name}");
    }
    // Two finite weights whose product is infinite.
    let norm = "model.layers.1.post_attention_layernorm.weight";
    assert!(says_nothing(&spoilt(&[norm, "model.layers.1.mlp.up_proj.weight"], 1e30)));
    // An activation alone: the factor of a row of zeros is infinite.
    let config = Config { rms_norm_eps: 1e-300, ..config() };
    let zeros = with_parameters(config, Kind::Float, Numerics::Exact, |parameters| {
        let table = parameters["model.embed_tokens.weight"].zeros_like();
        parameters.insert("model.embed_tokens.weight".to_string(), table);
    });
    assert!(says_nothing(&zeros));
}

#[test]
fn a_derivative_that_is_not_finite_is_noticed_on_its_way_back() {
    let model = policy(Kind::Float, Numerics::Exact);
    let sequences = sequences(&[9, 3]);
    let scale = UpdateScale { largest_weight: 1.0, tokens: 64 };
    for (weight, noticed) in [(1.0, false), (f64::INFINITY, true), (f64::NAN, true), (1e300, true)]
    {
        // The first token's log-prob alone, whose derivative is the weight.
        let mut sums = crate::policy::model::gradients::Gradients::default();
        let loss = |log_probs: &Tensor| (log_probs.get(0) * weight, ());
        model.add_gradients(&mut sums, &sequences, 0.9, scale, loss).unwrap();
        let [forward, backward] = sums.tallies().unwrap();
        assert_eq!((forward.not_finite, backward.not_finite), (false, noticed), "{weight}");
    }
}

#[test]
fn exact_arithmetic_refuses_a_policy_with_norms_of_heads() {
    let config = Config { family: Family::Qwen3, ..config() };
    let refused = Qwen2::initialise(config, 1).with_numerics(Numerics::Exact).unwrap_err();
    assert_eq!(refused, NumericsError::HeadNorms);
}
