//! Work of fixed size for each pure function on the way of a rollout. `.ci/count-instructions`
//! runs this under callgrind, which counts the instructions inside `measured::*`: a figure that
//! is the same run after run, on a loaded machine too.

use dapo_core::numerics::Numerics;

mod measured {
    use crate::native;
    use dapo_core::algorithm::{
        Advantage, Aggregation, Beyond, Buffer, Punishment, Std, StepTotals, Surplus,
        TokenMeanUnit, advantage, aggregation, dynamic_sampling, length_bands, overlong,
    };
    use dapo_core::base::Purpose;
    use dapo_core::base::rng::{self, Id};
    use dapo_core::statistics::{Sample, estimators};
    use dapo_trainer::experiment::{Sampling, Verifier};
    use dapo_trainer::policy::{Qwen2, sampling::sampler};
    use dapo_trainer::task::reward;
    use std::hint::black_box;

    /// Numbers without a pattern: 0 to 999.
    fn numbers(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).map(|n| n % 1000)
    }

    #[inline(never)]
    pub fn grading() {
        for number in numbers(500) {
            let response = format!("347+562=909;909*3=2727;{number}+1=7,Answer: {number}");
            black_box(reward::grade(black_box(&response), "727", Verifier::AnswerLine));
        }
    }

    #[inline(never)]
    pub fn overlong_punishment() {
        let punishment =
            Punishment::Soft { cache_tokens: 32, factor: 1.0, beyond: Beyond::Clamped };
        for tokens in numbers(20_000) {
            black_box(overlong::soft_punishment(black_box(tokens / 5), 160, &punishment));
        }
    }

    #[inline(never)]
    pub fn advantages() {
        let config = Advantage { std: Std::Sample, epsilon: 1e-6 };
        let rewards: Vec<f64> = numbers(8000).map(|number| number as f64 / 500.0 - 1.0).collect();
        for group in rewards.chunks(16) {
            black_box(advantage::advantages(black_box(group), &config));
        }
    }

    #[inline(never)]
    pub fn dynamic_sampling() {
        let correct: Vec<u64> = numbers(20_000).map(|number| number % 17).collect();
        for groups in correct.chunks(512) {
            let mut buffer = Buffer::new(Vec::new());
            for round in groups.chunks(64) {
                let useful = |&count: &u64| dynamic_sampling::is_useful(count as usize, 16);
                buffer.add_round(round.to_vec(), useful);
            }
            black_box(buffer.take(256, Surplus::Discard));
        }
    }

    #[inline(never)]
    pub fn aggregation_weights() {
        let row = |(index, tokens): (usize, u64)| aggregation::ResponseRow {
            tokens,
            group: index / 16,
            micro_batch: index / 64,
        };
        let rows: Vec<aggregation::ResponseRow> = numbers(4096).enumerate().map(row).collect();
        let step = StepTotals { tokens: 2_000_000, mini_batches: 16, max_response_tokens: 20_480 };
        for unit in [TokenMeanUnit::MiniBatch, TokenMeanUnit::Group, TokenMeanUnit::MicroBatch] {
            black_box(aggregation::row_weights(&rows, Aggregation::TokenMean, unit, step));
        }
        let unit = TokenMeanUnit::MiniBatch;
        black_box(aggregation::row_weights(&rows, Aggregation::ResponseMean, unit, step));
    }

    #[inline(never)]
    pub fn length_bands() {
        let lengths: Vec<u64> = numbers(512).collect();
        black_box(length_bands::length_bands(black_box(&lengths)));
    }

    #[inline(never)]
    pub fn sampling() {
        let logits: Vec<f64> = numbers(26_000).map(|number| number as f64 / 200.0).collect();
        for (index, logits) in logits.chunks(26).enumerate() {
            let top_p = if index % 2 == 0 { 1.0 } else { 0.7 };
            let sampling = Sampling { temperature: 1.0, top_p, top_k: 0, log_probs: None };
            black_box(sampler::sample(black_box(logits), &sampling, false, index as f64 / 1000.0));
        }
    }

    #[inline(never)]
    pub fn random_streams() {
        for sample in 0..500u64 {
            let ids = [Id::from(7), Id::from("train/00017"), Id::from(0), Id::from(sample)];
            let mut stream = rng::stream(1, Purpose::Rollout, &ids);
            for _ in 0..50 {
                black_box(stream.uniform());
            }
        }
    }

    #[inline(never)]
    pub fn statistics() {
        let sample = |number: u64| Sample {
            is_correct: number < 400,
            prediction: Some((number % 10).to_string()),
        };
        let samples: Vec<Sample> = numbers(30 * 32).map(sample).collect();
        let problems: Vec<Vec<Sample>> = samples.chunks(32).map(<[Sample]>::to_vec).collect();
        black_box(estimators::summary(black_box(&problems)).expect("problems with samples"));
    }

    #[inline(never)]
    pub fn exact_gradients(policy: &Qwen2) {
        native::gradients(black_box("exact"), policy);
    }

    #[inline(never)]
    pub fn fast_gradients(policy: &Qwen2) {
        native::gradients(black_box("fast"), policy);
    }

    #[inline(never)]
    pub fn exact_generation(policy: &Qwen2) {
        native::generation(black_box("exact"), policy);
    }

    #[inline(never)]
    pub fn fast_generation(policy: &Qwen2) {
        native::generation(black_box("fast"), policy);
    }
}

/// Work of the native engine. The counted functions stand in `measured` alone.
mod native {
    use dapo_core::base::Purpose;
    use dapo_core::base::rng::{self, Id};
    use dapo_core::numerics::Numerics;
    use dapo_trainer::experiment::Sampling;
    use dapo_trainer::policy::sampling::generate;
    use dapo_trainer::policy::{
        Config, Family, Gradients, Limits, Qwen2, Request, Sequences, UpdateScale,
    };
    use std::hint::black_box;
    use tch::Tensor;

    /// A small policy in the native engine.
    pub fn policy(numerics: Numerics) -> Qwen2 {
        let config = Config {
            family: Family::Qwen2,
            vocab_size: 26,
            hidden_size: 96,
            intermediate_size: 256,
            num_hidden_layers: 2,
            num_attention_heads: 3,
            num_key_value_heads: 1,
            head_dim: 32,
            max_position_embeddings: 128,
            rope_theta: 10000.0,
            rope_scaling: None,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: true,
        };
        Qwen2::initialise(config, 1).with_numerics(numerics).expect("sums that fit")
    }

    /// The name keeps two functions from becoming one.
    pub fn gradients(_arithmetic: &str, policy: &Qwen2) {
        let mut sequences = Sequences::default();
        let tokens: Vec<u32> = (0..400).map(|at: u32| at * at % 23 + 3).collect();
        for tokens in tokens.chunks(50) {
            sequences.push(&tokens[..49], 9, &tokens[10..]);
        }
        let scale = UpdateScale { largest_weight: 1.0, tokens: 400 };
        let mut sums = Gradients::default();
        let loss = |log_probs: &Tensor| (log_probs.sum(log_probs.kind()), ());
        policy.add_gradients(&mut sums, &sequences, 1.0, scale, loss).expect("few tokens");
        black_box(sums.values(policy, &policy.plain_parameters()));
    }

    pub fn generation(_arithmetic: &str, policy: &Qwen2) {
        let request = |sample: u64| Request {
            prompt: &[3, 5, 7, 11, 13],
            stream: rng::stream(1, Purpose::Rollout, &[Id::from(sample)]),
        };
        let requests: Vec<Request> = (0..64).map(request).collect();
        let limits = Limits {
            sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, log_probs: None },
            max_response_tokens: 40,
            entropy: true,
            stop_tokens: &[],
            text: None,
            batch_rows: 64,
        };
        black_box(generate::generate(policy, &requests, &limits, |_| ()).expect("responses"));
    }
}

fn main() {
    measured::grading();
    measured::overlong_punishment();
    measured::advantages();
    measured::dynamic_sampling();
    measured::aggregation_weights();
    measured::length_bands();
    measured::sampling();
    measured::random_streams();
    measured::statistics();
    let (exact, fast) = (native::policy(Numerics::Exact), native::policy(Numerics::Fast));
    measured::exact_gradients(&exact);
    measured::fast_gradients(&fast);
    measured::exact_generation(&exact);
    measured::fast_generation(&fast);
}
