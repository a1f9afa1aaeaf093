use super::*;
use proptest::{prelude::Strategy, prelude::prop_assert, proptest};

const NO_STEP: StepTotals = StepTotals { tokens: 0, mini_batches: 0, max_response_tokens: 0 };
const UNITS: [TokenMeanUnit; 4] = [
    TokenMeanUnit::MiniBatch,
    TokenMeanUnit::Group,
    TokenMeanUnit::RolloutStep,
    TokenMeanUnit::MicroBatch,
];

fn rows(tokens: &[u64]) -> Vec<ResponseRow> {
    // Two responses for each prompt, three for each micro-batch.
    let row = |(i, tokens): (usize, &u64)| ResponseRow {
        tokens: *tokens,
        group: i / 2,
        micro_batch: i / 3,
    };
    tokens.iter().enumerate().map(row).collect()
}

fn token_mean(tokens: &[u64], unit: TokenMeanUnit) -> Vec<f64> {
    let step = StepTotals { tokens: tokens.iter().sum(), mini_batches: 1, max_response_tokens: 0 };
    row_weights(&rows(tokens), Aggregation::TokenMean, unit, step)
}

fn close(left: &[f64], right: &[f64]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).all(|(l, r)| (l - r).abs() <= 1e-15 + 1e-12 * r.abs())
}

#[test]
fn every_unit_has_its_own_weights() {
    let tokens = [1, 3, 4, 2];
    let by_unit = UNITS.map(|unit| token_mean(&tokens, unit));
    assert_eq!(by_unit[0], [0.1; 4]);
    assert_eq!(by_unit[1], [0.125, 0.125, 1.0 / 12.0, 1.0 / 12.0]);
    assert_eq!(by_unit[2], [0.1; 4]);
    assert!(close(&by_unit[3], &[3.0 / 32.0, 3.0 / 32.0, 3.0 / 32.0, 1.0 / 8.0]));
    let two = StepTotals { tokens: 40, mini_batches: 2, max_response_tokens: 0 };
    let step = row_weights(&rows(&tokens), Aggregation::TokenMean, TokenMeanUnit::RolloutStep, two);
    assert_eq!(step, [0.05; 4]);
}

#[test]
fn switching_the_token_level_loss_off_changes_the_weights() {
    let tokens = rows(&[1, 3, 4, 2]);
    let weights =
        |aggregation| row_weights(&tokens, aggregation, TokenMeanUnit::MiniBatch, NO_STEP);
    assert_eq!(weights(Aggregation::TokenMean), [0.1; 4]);
    assert_eq!(weights(Aggregation::ResponseMean), [0.25, 1.0 / 12.0, 0.0625, 0.125]);
    assert_eq!(weights(Aggregation::ResponseSum), [0.25; 4]);
}

#[test]
fn a_masked_response_leaves_the_means_over_responses() {
    let tokens = rows(&[2, 0, 4]);
    let weights =
        |aggregation| row_weights(&tokens, aggregation, TokenMeanUnit::MiniBatch, NO_STEP);
    assert_eq!(weights(Aggregation::ResponseMean), [0.25, 0.0, 0.125]);
    assert_eq!(weights(Aggregation::ResponseSum), [0.5, 0.0, 0.5]);
    assert_eq!(token_mean(&[0, 0, 4], TokenMeanUnit::Group), [0.0, 0.0, 0.25]);
}

#[test]
fn a_masked_mini_batch_trains_on_nothing() {
    for unit in UNITS {
        assert_eq!(token_mean(&[0, 0], unit), [0.0, 0.0], "{unit:?}");
    }
    for aggregation in [Aggregation::ResponseMean, Aggregation::ResponseSum] {
        let weights = row_weights(&rows(&[0, 0]), aggregation, TokenMeanUnit::MiniBatch, NO_STEP);
        assert_eq!(weights, [0.0, 0.0]);
    }
    assert!(token_mean(&[], TokenMeanUnit::MicroBatch).is_empty());
}

#[test]
fn nothing_under_the_mask_reaches_the_sum() {
    for kind in [Kind::Float, Kind::Double] {
        let losses = Tensor::from_slice(&[1.0, 2.0, f64::NAN, 4.0, f64::INFINITY, f64::NAN])
            .reshape([2, 3])
            .to_kind(kind)
            .set_requires_grad(true);
        let mask = Tensor::from_slice(&[1i64, 1, 0, 1, 0, 0]).reshape([2, 3]);
        let weights = Tensor::from_slice(&[0.5, 0.25]);
        let loss = weighted_sum(&losses, &mask, &weights);
        assert_eq!(loss.double_value(&[]), 2.5);
        let gradient = Tensor::run_backward(&[&loss], &[&losses], false, false);
        let gradient = Vec::<f64>::try_from(gradient[0].to_kind(Kind::Double).view(-1)).unwrap();
        assert_eq!(gradient, [0.5, 0.5, 0.0, 0.25, 0.0, 0.0]);
    }
}

fn lengths() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(0u64..9, 1..9)
}

proptest! {
    #[test]
    fn the_weights_of_all_tokens_sum_to_one(tokens in lengths()) {
        let total: u64 = tokens.iter().sum();
        for unit in [TokenMeanUnit::MiniBatch, TokenMeanUnit::Group] {
            let weights = token_mean(&tokens, unit);
            let sum: f64 = weights.iter().zip(&tokens).map(|(w, n)| w * *n as f64).sum();
            prop_assert!((sum - f64::from(total > 0)).abs() < 1e-12);
        }
    }

    #[test]
    fn at_equal_lengths_token_mean_and_response_mean_agree(
        length in 1u64..50, count in 1usize..5,
    ) {
        // Full groups and full micro-batches: 6 rows each time.
        let tokens = vec![length; 6 * count];
        let mean = row_weights(&rows(&tokens), Aggregation::ResponseMean, TokenMeanUnit::MiniBatch, NO_STEP);
        for unit in UNITS {
            prop_assert!(close(&token_mean(&tokens, unit), &mean), "{unit:?}");
        }
    }

    #[test]
    fn weights_ignore_the_micro_batch_split_unless_it_is_the_unit(
        tokens in lengths(), split in proptest::collection::vec(0usize..4, 9),
    ) {
        let step = StepTotals { tokens: 100, mini_batches: 3, max_response_tokens: 0 };
        let mut cut = rows(&tokens);
        for (row, part) in cut.iter_mut().zip(&split) {
            row.micro_batch = *part;
        }
        for aggregation in [Aggregation::TokenMean, Aggregation::ResponseMean, Aggregation::ResponseSum] {
            for unit in [TokenMeanUnit::MiniBatch, TokenMeanUnit::Group, TokenMeanUnit::RolloutStep] {
                let before = row_weights(&rows(&tokens), aggregation, unit, step);
                prop_assert!(before == row_weights(&cut, aggregation, unit, step));
            }
        }
    }

    #[test]
    fn one_response_in_each_micro_batch_turns_the_token_mean_into_the_response_mean(
        tokens in proptest::collection::vec(1u64..9, 1..9),
    ) {
        // verl issues #1644, #5625: the released code's default path.
        let mut cut = rows(&tokens);
        for (i, row) in cut.iter_mut().enumerate() {
            row.micro_batch = i;
        }
        let unit = TokenMeanUnit::MicroBatch;
        let micro = row_weights(&cut, Aggregation::TokenMean, unit, NO_STEP);
        prop_assert!(close(&micro, &row_weights(&cut, Aggregation::ResponseMean, unit, NO_STEP)));
    }
}
