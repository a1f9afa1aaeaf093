use super::*;
use crate::algorithm::aggregation::{ResponseRow, row_weights};
use crate::algorithm::methods::{Method, mis::Mis, tis::Tis, tis::WeightLevel};
use crate::algorithm::{
    Advantage, Aggregation, Clip, DualClip, DynamicSampling, KlEstimator, LogRatioClamp, Overlong,
    Punishment, Std, StepTotals, TokenMeanUnit, clip,
};
use crate::numerics::Numerics;
use proptest::{prelude::Strategy, prelude::prop_assert, proptest};

fn dapo() -> Dapo {
    Dapo {
        clip: Clip { low: 0.2, high: 0.28 },
        aggregation: Aggregation::TokenMean,
        token_mean_unit: TokenMeanUnit::MiniBatch,
        advantage: Advantage { std: Std::Sample, epsilon: 1e-6 },
        dynamic_sampling: DynamicSampling::None {},
        overlong: Overlong { filter: false, punishment: Punishment::None {} },
        dual_clip: DualClip::None {},
        log_ratio_clamp: LogRatioClamp::None {},
        kl: Kl::None {},
        method: None,
    }
}

/// A mini-batch in plain numbers: for each row (tokens, advantage), and per token
/// (log π_θ, log π_old, log π_ref, which is the sampler's too).
#[derive(Debug, Clone)]
struct MiniBatch {
    rows: Vec<(usize, f64)>,
    log_probs: Vec<Vec<[f64; 3]>>,
}

const LENGTH: usize = 5;

fn mini_batches() -> impl Strategy<Value = MiniBatch> {
    let token = (-3.0..-0.01f64, -0.6..0.6f64, -0.6..0.6f64)
        .prop_map(|(log_prob, old, reference)| [log_prob, log_prob + old, log_prob + reference]);
    let row = ((0..=LENGTH, -2.0..2.0f64), proptest::collection::vec(token, LENGTH));
    proptest::collection::vec(row, 1..7).prop_map(|rows| {
        let (rows, log_probs) = rows.into_iter().unzip();
        MiniBatch { rows, log_probs }
    })
}

struct Outcome {
    loss: f64,
    gradient: Vec<f64>,
    sums: Sums,
}

/// Loss and gradient of the mini-batch, cut into micro-batches of `micro` rows, each row
/// padded with NaN to `width`.
fn run(batch: &MiniBatch, config: &Dapo, micro: usize, width: usize) -> Outcome {
    let row = |(i, (tokens, _)): (usize, &(usize, f64))| ResponseRow {
        tokens: *tokens as u64,
        group: i / 2,
        micro_batch: i / micro,
    };
    let rows: Vec<ResponseRow> = batch.rows.iter().enumerate().map(row).collect();
    let total = rows.iter().map(|row| row.tokens).sum();
    let step = StepTotals { tokens: total, mini_batches: 1, ..StepTotals::default() };
    let weights = row_weights(&rows, config.aggregation, config.token_mean_unit, step);
    let mut outcome = Outcome { loss: 0.0, gradient: vec![], sums: Sums::default() };
    for start in (0..rows.len()).step_by(micro) {
        let end = rows.len().min(start + micro);
        let tensor = |which: usize| {
            let mut values = vec![f64::NAN; (end - start) * width];
            for i in start..end {
                for t in 0..batch.rows[i].0 {
                    values[(i - start) * width + t] = batch.log_probs[i][t][which];
                }
            }
            Tensor::from_slice(&values).reshape([(end - start) as i64, width as i64])
        };
        let mask: Vec<bool> = (start..end)
            .flat_map(|i| (0..width).map(move |t| (i, t)))
            .map(|(i, t)| t < batch.rows[i].0)
            .collect();
        let mask = Tensor::from_slice(&mask).reshape([(end - start) as i64, width as i64]);
        let advantages: Vec<f64> = batch.rows[start..end].iter().map(|row| row.1).collect();
        let log_probs = tensor(0).set_requires_grad(true);
        let result = objective(
            &Tokens {
                log_probs: &log_probs,
                old_log_probs: &tensor(1),
                ref_log_probs: Some(&tensor(2)),
                sampler_log_probs: Some(&tensor(2)),
                marks: None,
                advantages: &Tensor::from_slice(&advantages).unsqueeze(-1),
                response_mask: &mask,
                row_weights: &Tensor::from_slice(&weights[start..end]),
                response_lengths: &vec![width; end - start],
                numerics: Numerics::Fast,
            },
            config,
        );
        outcome.loss += result.loss.double_value(&[]);
        outcome.sums.add(&result.sums);
        let gradient = Tensor::run_backward(&[&result.loss], &[&log_probs], false, false);
        let unpadded = gradient[0].narrow(1, 0, width.min(LENGTH) as i64).contiguous();
        outcome.gradient.extend(Vec::<f64>::try_from(unpadded.view(-1)).unwrap());
    }
    outcome
}

/// π_old / π_sampler is e of each token, above the cap; the clamp makes e^0.5 of it, below.
#[test]
fn tis_and_mis_measure_the_clamped_weights_of_their_loss() {
    let token = [-1.0, -1.0, -2.0];
    let log_probs = vec![vec![token; 2], vec![token]];
    let batch = MiniBatch { rows: vec![(2, 1.0), (1, -1.0)], log_probs };
    let (level, at_least, at_most) = (WeightLevel::Token, 0.5, 2.0);
    for (method, [distance, outside]) in [
        (Method::Tis(Tis { level, cap: at_most }), ["tis_weight_distance", "tis_capped_share"]),
        (Method::Mis(Mis { level, at_least, at_most }), ["mis_weight_distance", "mis_left_share"]),
    ] {
        let log_ratio_clamp = LogRatioClamp::Symmetric { bound: 0.5 };
        let config = Dapo { method: Some(method), log_ratio_clamp, ..dapo() };
        let measures = run(&batch, &config, 8, LENGTH).sums.measures;
        assert!((measures[distance] / 3.0 - 0.648_721_270_700_128).abs() < 1e-12, "{measures:?}");
        assert_eq!(measures[outside], 0.0, "{measures:?}");
    }
}

fn same(left: &Outcome, right: &Outcome) -> bool {
    let close = |l: f64, r: f64| (l - r).abs() <= 1e-13 + 1e-12 * r.abs();
    close(left.loss, right.loss)
        && left.gradient.len() == right.gradient.len()
        && left.gradient.iter().zip(&right.gradient).all(|(l, r)| close(*l, *r))
}

/// Two rows of which each switch changes something: an up-clipped rare token in a short
/// response, a down-clipped one and an exploding one in a long response.
fn sample() -> MiniBatch {
    let token = |old: f64, ratio: f64| [old + ratio.ln(), old, old - 0.3];
    MiniBatch {
        rows: vec![(2, 1.0), (5, -0.5)],
        log_probs: vec![
            vec![token(-3.0, 1.5), token(-0.5, 1.0), [0.0; 3], [0.0; 3], [0.0; 3]],
            vec![
                token(-1.0, 0.5),
                token(-1.0, 1.1),
                token(-2.0, 20.0),
                token(-0.1, 1.0),
                token(-0.2, 0.9),
            ],
        ],
    }
}

#[test]
fn the_loss_of_a_small_batch_equals_the_formula_by_hand() {
    let outcome = run(&sample(), &dapo(), 2, LENGTH);
    let by_hand = -(1.28 + 1.0) + 0.5 * (0.8 + 1.1 + 20.0 + 1.0 + 0.9);
    assert!((outcome.loss - by_hand / 7.0).abs() < 1e-10, "{}", outcome.loss);
    let sums = outcome.sums;
    assert_eq!((sums.tokens, sums.clipped_low, sums.clipped_high, sums.dual_clipped), (7, 1, 1, 0));
    let means = BTreeMap::from_iter(sums.means());
    assert_eq!(means["clip_fraction_high"], 1.0 / 7.0);
    assert!((means["up_clipped_probability_mean"] - (-3.0f64).exp()).abs() < 2e-11);
    assert!((means["ratio_max"] - 20.0).abs() < 1e-12);
    let logs: f64 = [1.5f64, 0.5, 1.1, 20.0, 0.9].iter().map(|r| r.ln()).sum();
    let linear: f64 = [1.5f64, 0.5, 1.1, 20.0, 0.9].iter().map(|r| r - 1.0).sum();
    assert!((means["approx_kl"] - (linear - logs) / 7.0).abs() < 2e-11);
    assert_eq!(means["kl_penalty"], 0.0);
}

#[test]
fn clip_higher_lets_tokens_between_the_two_upper_bounds_through_and_a_symmetric_clip_none() {
    let mut batch = sample();
    // Row 0 has Â > 0: below, between and above the bounds 1.2 and 1.28. Row 1 has Â < 0.
    batch.rows = vec![(3, 1.0), (2, -0.5)];
    for (token, ratio) in batch.log_probs[0].iter_mut().zip([1.19, 1.25, 1.3]) {
        *token = [-1.0 + f64::ln(ratio), -1.0, -1.0];
    }
    for (token, ratio) in batch.log_probs[1].iter_mut().zip([1.25, 1.3]) {
        *token = [-1.0 + f64::ln(ratio), -1.0, -1.0];
    }
    let mut config = dapo();
    let on = run(&batch, &config, 2, LENGTH).sums;
    assert_eq!((on.let_through, on.clipped_high), (1, 1));
    config.clip.high = 0.2;
    let off = run(&batch, &config, 2, LENGTH).sums;
    assert_eq!((off.let_through, off.clipped_high), (0, 2));
}

#[test]
fn every_switch_of_the_objective_changes_the_loss() {
    let base = run(&sample(), &dapo(), 2, LENGTH).loss;
    let switches: [fn(&mut Dapo); 8] = [
        |dapo| dapo.clip.high = 0.2,
        |dapo| dapo.clip.low = 0.3,
        |dapo| dapo.aggregation = Aggregation::ResponseMean,
        |dapo| dapo.aggregation = Aggregation::ResponseSum,
        |dapo| dapo.token_mean_unit = TokenMeanUnit::MicroBatch,
        |dapo| dapo.dual_clip = DualClip::Constant { c: 10.0 },
        |dapo| dapo.log_ratio_clamp = LogRatioClamp::Symmetric { bound: 2.0 },
        |dapo| dapo.kl = Kl::Penalty { estimator: KlEstimator::K3, coefficient: 0.04 },
    ];
    for (i, switch) in switches.iter().enumerate() {
        let mut config = dapo();
        switch(&mut config);
        let micro = if config.token_mean_unit == TokenMeanUnit::MicroBatch { 1 } else { 2 };
        let loss = run(&sample(), &config, micro, LENGTH).loss;
        assert!((loss - base).abs() > 1e-3, "switch {i}: {loss} {base}");
    }
}

#[test]
fn the_kl_term_is_added_with_its_coefficient() {
    for (estimator, each) in [
        (KlEstimator::K1, 0.3),
        (KlEstimator::K2, 0.045),
        (KlEstimator::K3, (-0.3f64).exp() + 0.3 - 1.0),
    ] {
        let mut batch = sample();
        for token in batch.log_probs.iter_mut().flatten() {
            *token = [-1.0, -1.0, -1.3];
        }
        let mut config = dapo();
        let without = run(&batch, &config, 2, LENGTH).loss;
        config.kl = Kl::Penalty { estimator, coefficient: 0.5 };
        let with = run(&batch, &config, 2, LENGTH);
        assert!((with.loss - without - 0.5 * each).abs() < 4e-11, "{estimator:?}");
        assert!((BTreeMap::from_iter(with.sums.means())["kl_penalty"] - each).abs() < 2e-11);
    }
}

#[test]
fn a_micro_batch_without_tokens_adds_nothing() {
    let mut batch = sample();
    batch.rows[0].0 = 0;
    batch.rows[1].0 = 0;
    let outcome = run(&batch, &dapo(), 1, LENGTH);
    assert_eq!(outcome.loss, 0.0);
    assert!(outcome.gradient.iter().all(|g| *g == 0.0));
    assert_eq!(outcome.sums, Sums::default());
    assert!(outcome.sums.means().is_empty());
    assert_eq!(run(&batch, &dapo(), 2, 0).loss, 0.0);
}

#[test]
fn a_ratio_that_is_not_a_number_is_seen_in_the_maximum() {
    let mut sums = Sums { ratio_max: 2.0, ..Sums::default() };
    sums.add(&Sums { ratio_max: f64::NAN, ..Sums::default() });
    sums.add(&Sums { ratio_max: 3.0, ..Sums::default() });
    assert!(sums.ratio_max.is_nan());
}

proptest! {
    #[test]
    fn any_micro_batch_split_gives_the_same_gradient(batch in mini_batches(), micro in 1usize..7) {
        for aggregation in [Aggregation::TokenMean, Aggregation::ResponseMean, Aggregation::ResponseSum] {
            for unit in [TokenMeanUnit::MiniBatch, TokenMeanUnit::Group, TokenMeanUnit::RolloutStep] {
                let mut config = dapo();
                config.aggregation = aggregation;
                config.token_mean_unit = unit;
                config.kl = Kl::Penalty { estimator: KlEstimator::K3, coefficient: 0.1 };
                let whole = run(&batch, &config, batch.rows.len(), LENGTH);
                prop_assert!(same(&run(&batch, &config, micro, LENGTH), &whole));
            }
        }
    }

    #[test]
    fn what_clip_higher_lets_through_is_what_the_symmetric_clip_stopped(batch in mini_batches()) {
        let mut config = dapo();
        let higher = run(&batch, &config, 3, LENGTH).sums;
        config.clip.high = config.clip.low;
        let symmetric = run(&batch, &config, 3, LENGTH).sums;
        prop_assert!(symmetric.let_through == 0);
        prop_assert!(higher.let_through + higher.clipped_high == symmetric.clipped_high);
    }

    #[test]
    fn a_ratio_at_the_very_bound_is_never_let_through_by_a_symmetric_clip(
        ulps in -3i32..4, advantage in 1e-3f32..4.0, old in -3.0f32..-0.5,
    ) {
        // In f32 the product with the advantage may round a ratio above the bound onto it.
        let bound = 1.2f32.ln().to_bits().checked_add_signed(ulps).map(f32::from_bits);
        let log_probs = Tensor::from_slice(&[old + bound.unwrap()]).view([1, 1]);
        let old = Tensor::from_slice(&[old]).view([1, 1]);
        let config = Clip { low: 0.2, high: 0.2 };
        let advantages = Tensor::from_slice(&[advantage]).view([1, 1]);
        let mask = Tensor::from_slice(&[true]).view([1, 1]);
        let (dual, clamp) = (DualClip::None {}, LogRatioClamp::None {});
        let tokens = Tokens {
            log_probs: &log_probs,
            old_log_probs: &old,
            ref_log_probs: None,
            sampler_log_probs: None,
            marks: None,
            advantages: &advantages,
            response_mask: &mask,
            row_weights: &advantages,
            response_lengths: &[1],
            numerics: Numerics::Fast,
        };
        let surrogate = clip::surrogate(&clip::log_ratio(&tokens, &clamp), &tokens, &config, &dual);
        prop_assert!(count(&let_through(&surrogate, &advantages, config.low)) == 0);
    }

    #[test]
    fn padding_changes_nothing(batch in mini_batches(), padding in 0usize..9) {
        let mut config = dapo();
        config.kl = Kl::Penalty { estimator: KlEstimator::K1, coefficient: 0.1 };
        let narrow = run(&batch, &config, 2, LENGTH);
        let wide = run(&batch, &config, 2, LENGTH + padding);
        prop_assert!(same(&wide, &narrow));
        prop_assert!(wide.sums.clipped_high == narrow.sums.clipped_high);
    }

    #[test]
    fn at_equal_lengths_the_token_level_loss_equals_the_response_mean(batch in mini_batches()) {
        let mut batch = batch;
        for row in &mut batch.rows {
            row.0 = LENGTH;
        }
        let mut config = dapo();
        let token_mean = run(&batch, &config, 2, LENGTH);
        config.aggregation = Aggregation::ResponseMean;
        prop_assert!(same(&run(&batch, &config, 2, LENGTH), &token_mean));
    }

    #[test]
    fn on_policy_the_gradient_is_the_weighted_advantage(batch in mini_batches()) {
        let mut batch = batch;
        for token in batch.log_probs.iter_mut().flatten() {
            token[1] = token[0];
        }
        let outcome = run(&batch, &dapo(), 3, LENGTH);
        let total: usize = batch.rows.iter().map(|row| row.0).sum();
        for (i, (tokens, advantage)) in batch.rows.iter().enumerate() {
            for t in 0..LENGTH {
                let expected = if t < *tokens { -advantage / total as f64 } else { 0.0 };
                prop_assert!((outcome.gradient[i * LENGTH + t] - expected).abs() < 1e-14);
            }
        }
        prop_assert!(outcome.sums.clipped_low + outcome.sums.clipped_high == 0);
    }
}
