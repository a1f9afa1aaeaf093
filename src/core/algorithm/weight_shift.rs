//! How far an aggregation moves loss weight between responses, against GRPO's response mean: what §3.3 does.

/// Weight that moved in one mini-batch. A response's weight is w_i · |o_i|, its share that over
/// the sum of all; under the response mean every response has the same share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightShift {
    /// Total-variation distance, in [0, 1), between the weight of each token and its weight under the response
    /// mean, both scaled to sum 1: the share of the loss that lies on other tokens than it would.
    pub moved_share: f64,
    /// Mean share of the longest quarter of the responses (at least one) over their share
    /// under the response mean: above 1 where long responses gained.
    pub longest_quarter: f64,
    pub shortest_quarter: f64,
}

/// The shift of a mini-batch's rows, each as (tokens in the loss, weight of
/// [`row_weights`](crate::algorithm::aggregation::row_weights)). `None` when no row has weight. Within a response all
/// tokens have one weight under every aggregation, so the distance over tokens is the distance over responses.
pub fn weight_shift(rows: &[(u64, f64)]) -> Option<WeightShift> {
    let mut masses: Vec<(u64, f64)> = rows
        .iter()
        .filter(|(tokens, _)| *tokens > 0)
        .map(|&(tokens, weight)| (tokens, weight * tokens as f64))
        .collect();
    let total: f64 = masses.iter().map(|(_, mass)| mass).sum();
    if total <= 0.0 {
        return None;
    }
    masses.sort_by_key(|(tokens, _)| *tokens);
    let equal = 1.0 / masses.len() as f64;
    let moved: f64 = masses.iter().map(|(_, mass)| (mass / total - equal).abs()).sum();
    let quarter = masses.len().div_ceil(4);
    let gain = |part: &[(u64, f64)]| {
        let mass: f64 = part.iter().map(|(_, mass)| mass).sum();
        mass / total / (part.len() as f64 * equal)
    };
    Some(WeightShift {
        moved_share: moved / 2.0,
        longest_quarter: gain(&masses[masses.len() - quarter..]),
        shortest_quarter: gain(&masses[..quarter]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::aggregation::{ResponseRow, row_weights};
    use crate::algorithm::{Aggregation, StepTotals, TokenMeanUnit};
    use proptest::prelude::prop_assert;
    use proptest::proptest;

    /// The shift of responses of these lengths, `rows` of them in a micro-batch.
    fn shift(
        tokens: &[u64],
        aggregation: Aggregation,
        unit: TokenMeanUnit,
        rows: usize,
    ) -> WeightShift {
        let described: Vec<ResponseRow> = tokens
            .iter()
            .enumerate()
            .map(|(i, &tokens)| ResponseRow { tokens, group: 0, micro_batch: i / rows })
            .collect();
        let totals =
            StepTotals { tokens: tokens.iter().sum(), mini_batches: 1, max_response_tokens: 0 };
        let weights = row_weights(&described, aggregation, unit, totals);
        let rows: Vec<(u64, f64)> = tokens.iter().copied().zip(weights).collect();
        weight_shift(&rows).expect("some row has tokens")
    }

    #[test]
    fn the_token_mean_gives_long_responses_the_weight_of_their_tokens() {
        // Shares 10/100, 10/100, 20/100, 60/100 against four quarters.
        let tokens = [10, 60, 20, 10];
        let moved = shift(&tokens, Aggregation::TokenMean, TokenMeanUnit::MiniBatch, 4);
        assert!((moved.moved_share - 0.35).abs() < 1e-12, "{moved:?}");
        assert!((moved.longest_quarter - 2.4).abs() < 1e-12);
        assert!((moved.shortest_quarter - 0.4).abs() < 1e-12);
        let still = shift(&tokens, Aggregation::ResponseMean, TokenMeanUnit::MiniBatch, 4);
        assert!(still.moved_share < 1e-12, "{still:?}");
    }

    #[test]
    fn one_response_a_micro_batch_turns_the_micro_batch_token_mean_into_the_response_mean() {
        let tokens = [10, 60, 20, 10];
        let alone = shift(&tokens, Aggregation::TokenMean, TokenMeanUnit::MicroBatch, 1);
        assert!(alone.moved_share < 1e-12, "{alone:?}");
        let paired = shift(&tokens, Aggregation::TokenMean, TokenMeanUnit::MicroBatch, 2);
        assert!(paired.moved_share > 0.1, "{paired:?}");
    }

    #[test]
    fn rows_outside_the_loss_have_no_share_and_nothing_has_no_shift() {
        assert_eq!(weight_shift(&[]), None);
        assert_eq!(weight_shift(&[(0, 0.5), (7, 0.0)]), None);
        let alone = weight_shift(&[(0, 0.5), (7, 0.5)]).unwrap();
        assert_eq!((alone.moved_share, alone.longest_quarter), (0.0, 1.0));
    }

    proptest! {
        #[test]
        fn only_lengths_that_differ_move_weight(
            tokens in proptest::collection::vec(1u64..200, 1..20),
            length in 1u64..200,
        ) {
            let token_mean = |tokens: &[u64]| {
                shift(tokens, Aggregation::TokenMean, TokenMeanUnit::MiniBatch, 4)
            };
            let equal = vec![length; tokens.len()];
            prop_assert!(token_mean(&equal).moved_share < 1e-12);
            let moved = token_mean(&tokens);
            let differ = tokens.iter().any(|&other| other != tokens[0]);
            prop_assert!((moved.moved_share > 1e-9) == differ, "{moved:?}");
            prop_assert!((0.0..1.0).contains(&moved.moved_share));
            prop_assert!(moved.longest_quarter >= 1.0 - 1e-12);
            prop_assert!(moved.shortest_quarter <= 1.0 + 1e-12);
            let unit = TokenMeanUnit::MiniBatch;
            prop_assert!(shift(&tokens, Aggregation::ResponseMean, unit, 4).moved_share < 1e-12);
        }
    }
}
