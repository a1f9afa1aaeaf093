use super::*;
use crate::numerics::Numerics;
use proptest::{prelude::prop_assert, proptest};

const DAPO: Clip = Clip { low: 0.2, high: 0.28 };
const GRPO: Clip = Clip { low: 0.2, high: 0.2 };
const RELEASED: (DualClip, LogRatioClamp) =
    (DualClip::Constant { c: 10.0 }, LogRatioClamp::Symmetric { bound: 20.0 });
const PAPER: (DualClip, LogRatioClamp) = (DualClip::None {}, LogRatioClamp::None {});

struct Token {
    loss: f64,
    gradient: f64,
    low: bool,
    high: bool,
    dual: bool,
}

/// The surrogate of log-probs, old log-probs, advantages and mask.
fn of(
    [log_probs, old_log_probs, advantages, response_mask]: [&Tensor; 4],
    clip: &Clip,
    (dual, clamp): (DualClip, LogRatioClamp),
) -> Surrogate {
    let tokens = Tokens {
        log_probs,
        old_log_probs,
        ref_log_probs: None,
        sampler_log_probs: None,
        marks: None,
        advantages,
        response_mask,
        row_weights: advantages,
        response_lengths: &[],
        numerics: Numerics::Fast,
    };
    surrogate(&log_ratio(&tokens, &clamp), &tokens, clip, &dual)
}

/// One token with log π_old = 0, so that `log_ratio` is log π_θ.
fn token(log_ratio: f64, advantage: f64, clip: &Clip, off: (DualClip, LogRatioClamp)) -> Token {
    token_of(Kind::Double, log_ratio, advantage, clip, off)
}

fn token_of(
    kind: Kind,
    log_ratio: f64,
    advantage: f64,
    clip: &Clip,
    (dual, clamp): (DualClip, LogRatioClamp),
) -> Token {
    let one = |x: f64| Tensor::from_slice(&[x]).reshape([1, 1]).to_kind(kind);
    let log_probs = one(log_ratio).set_requires_grad(true);
    let result = of([&log_probs, &one(0.0), &one(advantage), &one(1.0)], clip, (dual, clamp));
    let gradient = Tensor::run_backward(&[result.losses.sum(kind)], &[&log_probs], false, false);
    let flag = |t: &Tensor| t.int64_value(&[0, 0]) == 1;
    Token {
        loss: result.losses.double_value(&[0, 0]),
        gradient: gradient[0].double_value(&[0, 0]),
        low: flag(&result.clipped_low),
        high: flag(&result.clipped_high),
        dual: flag(&result.dual_clipped),
    }
}

fn close(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-12
}

#[test]
fn a_rising_token_is_cut_off_above_the_range_only_when_it_should_rise() {
    for (ratio, advantage, gradient, low, high) in [
        (1.25f64, 1.0, -1.25, false, false),
        (1.29, 1.0, 0.0, false, true),
        (0.5, 1.0, -0.5, false, false),
        (0.85, -1.0, 0.85, false, false),
        (0.79, -1.0, 0.0, true, false),
        (1.5, -1.0, 1.5, false, false),
    ] {
        let token = token(ratio.ln(), advantage, &DAPO, PAPER);
        assert!(close(token.gradient, gradient), "r {ratio}, A {advantage}: {}", token.gradient);
        assert_eq!((token.low, token.high), (low, high), "r {ratio}, A {advantage}");
    }
}

#[test]
fn switching_clip_higher_off_changes_the_loss() {
    let higher = token(1.25f64.ln(), 1.0, &DAPO, PAPER);
    let symmetric = token(1.25f64.ln(), 1.0, &GRPO, PAPER);
    assert!(close(higher.loss, -1.25) && close(symmetric.loss, -1.2));
    assert!(!higher.high && symmetric.high);
    assert_eq!(symmetric.gradient, 0.0);
}

#[test]
fn the_dual_clip_bounds_negative_advantages_alone() {
    let bounded = token(20f64.ln(), -1.0, &DAPO, RELEASED);
    assert!(bounded.dual && bounded.gradient == 0.0 && close(bounded.loss, 10.0));
    let free = token(20f64.ln(), -1.0, &DAPO, PAPER);
    assert!(!free.dual && close(free.loss, 20.0) && close(free.gradient, 20.0));
    assert!(!token(20f64.ln(), 1.0, &DAPO, RELEASED).dual);
}

#[test]
fn on_the_bound_of_the_dual_clip_half_the_gradient_remains() {
    // In f32 exp(log 10) is 10 exactly.
    let tie = token_of(Kind::Float, 10f64.ln(), -1.0, &DAPO, RELEASED);
    assert_eq!((tie.loss, tie.gradient, tie.dual), (10.0, 5.0, false));
}

#[test]
fn an_overflowing_ratio_gives_no_gradient_where_the_clipped_branch_is_taken() {
    for kind in [Kind::Float, Kind::Double] {
        let up = token_of(kind, 2000.0, 1.0, &DAPO, PAPER);
        assert!((up.loss + 1.28).abs() < 1e-6 && up.gradient == 0.0 && up.high);
        let idle = token_of(kind, 2000.0, 0.0, &DAPO, PAPER);
        assert_eq!((idle.loss, idle.gradient), (0.0, 0.0));
        let down = token_of(kind, 2000.0, -1.0, &DAPO, RELEASED);
        assert_eq!((down.loss, down.gradient, down.dual), (10.0, 0.0, true));
        // Eq. 8 has no bound here: the loss is infinite, and says so.
        assert_eq!(token_of(kind, 2000.0, -1.0, &DAPO, PAPER).loss, f64::INFINITY);
        let vanishing = token_of(kind, -2000.0, -1.0, &DAPO, PAPER);
        assert!(vanishing.low && vanishing.gradient == 0.0 && (vanishing.loss - 0.8).abs() < 1e-6);
    }
}

#[test]
fn the_log_ratio_clamp_stops_the_gradient_outside() {
    let off = (DualClip::None {}, LogRatioClamp::Symmetric { bound: 1.0 });
    let outside = token(2.0, -1.0, &DAPO, off);
    assert!(close(outside.loss, 1f64.exp()) && outside.gradient == 0.0);
    assert!(close(token(2.0, -1.0, &DAPO, PAPER).loss, 2f64.exp()));
}

#[test]
fn a_value_that_is_not_a_number_inside_the_mask_is_not_hidden() {
    assert!(token(f64::NAN, 1.0, &DAPO, PAPER).loss.is_nan());
    assert!(token(f64::NAN, 0.0, &DAPO, PAPER).loss.is_nan());
    assert!(token(0.1, f64::NAN, &DAPO, PAPER).loss.is_nan());
}

#[test]
fn nothing_under_the_mask_reaches_a_loss_or_a_gradient() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for place in 0..3 {
            let mut rows = [[-1.0, -2.0, -1.5], [-1.1, -2.2, -1.4], [1.0, 1.0, 1.0]];
            rows[place][2] = bad;
            let row = |i: usize| Tensor::from_slice(&rows[i]).reshape([1, 3]);
            let log_probs = row(0).set_requires_grad(true);
            let mask = Tensor::from_slice(&[true, true, false]).reshape([1, 3]);
            let result = of([&log_probs, &row(1), &row(2), &mask], &DAPO, PAPER);
            let loss = result.losses.sum(Kind::Double);
            let gradient = Tensor::run_backward(&[&loss], &[&log_probs], false, false);
            let gradient = Vec::<f64>::try_from(gradient[0].view(-1)).unwrap();
            assert!(loss.double_value(&[]).is_finite());
            assert!(gradient[0] != 0.0 && gradient.iter().all(|g| g.is_finite()));
            assert_eq!(gradient[2], 0.0);
            assert_eq!(result.losses.double_value(&[0, 2]), 0.0);
        }
    }
}

#[test]
fn one_advantage_for_a_row_equals_the_same_advantage_for_each_token() {
    let log_probs = Tensor::from_slice(&[-0.1, -0.4, -2.0, -1.0]).reshape([2, 2]);
    let old = Tensor::from_slice(&[-0.5, -0.4, -1.0, -1.1]).reshape([2, 2]);
    let mask = Tensor::from_slice(&[1i64, 1, 1, 0]).reshape([2, 2]);
    let losses = |advantages: &Tensor| {
        let result = of([&log_probs, &old, advantages, &mask], &DAPO, PAPER);
        Vec::<f64>::try_from(result.losses.view(-1)).unwrap()
    };
    let row = Tensor::from_slice(&[1.5, -0.5]).reshape([2, 1]);
    assert_eq!(losses(&row), losses(&row.repeat([1, 2])));
}

proptest! {
    #[test]
    fn the_loss_is_the_pessimistic_branch(log_ratio in -3.0..3.0f64, advantage in -3.0..3.0f64) {
        let token = token(log_ratio, advantage, &DAPO, PAPER);
        let ratio = log_ratio.exp();
        let expected = -(ratio * advantage).min(ratio.clamp(0.8, 1.28) * advantage);
        prop_assert!(close(token.loss, expected), "{} {expected}", token.loss);
        let free = -advantage * ratio;
        let expected = if token.low || token.high { 0.0 } else { free };
        prop_assert!(close(token.gradient, expected));
        prop_assert!(token.high == (advantage > 0.0 && ratio > 1.28));
        prop_assert!(token.low == (advantage < 0.0 && ratio < 0.8));
    }
}
