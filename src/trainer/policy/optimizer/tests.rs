use super::*;
use crate::experiment::WarmUp;
use proptest::{prelude::prop_assert, proptest};

pub fn config() -> Optimizer {
    Optimizer {
        learning_rate: 2e-3,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.1,
        max_gradient_norm: 1.0,
        non_finite: None,
        warm_up: WarmUp { rollout_steps: 0, start: WarmUpStart::FirstStep },
    }
}

pub fn tensors(a: &[f32], b: &[f32]) -> OptimizerTensors {
    BTreeMap::from([("a".to_owned(), a.to_vec()), ("b".to_owned(), b.to_vec())])
}

pub fn gradients() -> [OptimizerTensors; 3] {
    [
        tensors(&[0.3, -0.1, 0.05], &[2.0]),
        tensors(&[0.01, 0.0, -0.02], &[0.005]),
        tensors(&[-0.4, 0.2, 0.1], &[-0.3]),
    ]
}

pub fn start() -> OptimizerTensors {
    tensors(&[0.5, -1.25, 2.0], &[-0.75])
}

#[test]
fn three_updates_equal_torchs_to_the_rounding_of_f32() {
    // torch 2.11.0: AdamW and clip_grad_norm_ on float32 tensors, the first update clipped.
    let expected = [
        (2.025_462_9, [0.497_9, -1.247_75, 1.997_600_1, -0.751_85]),
        (0.022_912_879, [0.496_363_07, -1.246_160_4, 1.997_096_8, -0.753_047_35]),
        (0.547_722_6, [0.497_075_5, -1.246_903_7, 1.995_455_4, -0.753_521_7f32]),
    ];
    let mut parameters = start();
    let mut adamw = AdamW::new(&config());
    for (gradient, (norm, after)) in gradients().iter().zip(expected) {
        let got = adamw.step(&mut parameters, gradient, 2e-3).unwrap().norm;
        assert!((got - norm).abs() < 1e-6, "{got}");
        let values: Vec<f32> = parameters.values().flatten().copied().collect();
        for (got, want) in values.iter().zip(after) {
            assert!((got - want).abs() <= 2.0 * f32::EPSILON * want.abs(), "{got} {want}");
        }
    }
    assert_eq!(adamw.state().updates, 3);
}

#[test]
fn a_resumed_run_is_the_same_bit_for_bit() {
    let run = |resume_after: Option<usize>| {
        let mut parameters = start();
        let mut adamw = AdamW::new(&config());
        for (i, gradient) in gradients().iter().enumerate() {
            adamw.step(&mut parameters, gradient, 1e-3).unwrap();
            if resume_after == Some(i) {
                adamw = AdamW::from_state(&config(), adamw.state().clone());
            }
        }
        (parameters, adamw.state().clone())
    };
    assert_eq!(run(None), run(Some(0)));
    assert_eq!(run(None), run(Some(1)));
}

#[test]
fn weight_decay_is_decoupled_and_acts_without_a_gradient() {
    let mut parameters = start();
    let zero = tensors(&[0.0; 3], &[0.0]);
    let norm = AdamW::new(&config()).step(&mut parameters, &zero, 0.5).unwrap().norm;
    assert_eq!(norm, 0.0);
    assert_eq!(parameters, tensors(&[0.475, -1.1875, 1.9], &[-0.7125]));
}

#[test]
fn a_rate_of_zero_moves_no_parameter_but_the_moments() {
    let mut parameters = start();
    let mut adamw = AdamW::new(&config());
    adamw.step(&mut parameters, &gradients()[0], 0.0).unwrap();
    assert_eq!(parameters, start());
    assert!(adamw.state().second_moments["b"][0] > 0.0);
}

#[test]
fn a_gradient_that_is_not_finite_is_named_and_changes_nothing() {
    for bad in [f32::NAN, f32::INFINITY] {
        let mut parameters = start();
        let mut adamw = AdamW::new(&config());
        adamw.step(&mut parameters, &gradients()[0], 1e-3).unwrap();
        let before = (parameters.clone(), adamw.state().clone());
        let error =
            adamw.step(&mut parameters, &tensors(&[0.1, bad, 0.0], &[1.0]), 1e-3).unwrap_err();
        assert_eq!(error, OptimizerError::NotFinite { tensor: "a".into(), index: 1, count: 3 });
        assert_eq!((parameters, adamw.state().clone()), before);
    }
}

#[test]
fn an_update_after_which_a_number_would_not_be_finite_is_named_and_changes_nothing() {
    let unclipped = Optimizer { max_gradient_norm: 1e38, ..config() };
    let decay = |rate: f64| (config(), rate, start());
    for ((config, rate, parameters), gradient, what, tensor) in [
        // Each weight moves by about the rate.
        (decay(1e39), tensors(&[0.1; 3], &[1.0]), "weight", "a"),
        // The decay makes one weight of the last tensor too large.
        (
            (unclipped.clone(), 100.0, tensors(&[1.0], &[3e38])),
            tensors(&[0.1], &[1.0]),
            "weight",
            "b",
        ),
        ((unclipped, 1e-3, start()), tensors(&[0.1; 3], &[1e30]), "second moment", "b"),
    ] {
        let mut adamw = AdamW::new(&config);
        let mut changed = parameters.clone();
        let small: OptimizerTensors =
            gradient.iter().map(|(name, it)| (name.clone(), vec![1e-3; it.len()])).collect();
        adamw.step(&mut changed, &small, 0.0).unwrap();
        assert_eq!(changed, parameters);
        let before = adamw.state().clone();
        let error = adamw.step(&mut changed, &gradient, rate).unwrap_err();
        assert_eq!(error, OptimizerError::Overflow { what, tensor: tensor.into() });
        assert_eq!((changed, adamw.state()), (parameters, &before));
    }
}

#[test]
fn tensors_that_do_not_match_make_no_update() {
    let [mut fewer, mut more, other] = gradients();
    fewer.remove("b");
    more.insert("c".into(), vec![]);
    for others in [fewer, more, tensors(&[0.1; 2], &[1.0])] {
        assert!(!are_alike(&start(), &others), "{others:?}");
    }
    assert!(are_alike(&start(), &other));
}

#[test]
fn the_paper_warms_up_from_the_first_step_and_the_released_code_from_zero() {
    let rates = |start, rollout_steps| {
        let warm_up = WarmUp { rollout_steps, start };
        let config = Optimizer { learning_rate: 1.0, warm_up, ..config() };
        [0, 1, 2, 3, 4, 5].map(|step| learning_rate(&config, step))
    };
    assert_eq!(rates(WarmUpStart::FirstStep, 4), [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]);
    assert_eq!(rates(WarmUpStart::Zero, 4), [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]);
    assert_eq!(rates(WarmUpStart::FirstStep, 0), [1.0; 6]);
    assert_eq!(rates(WarmUpStart::Zero, 0), [1.0; 6]);
}

#[test]
fn gradients_that_fall_geometrically_move_a_weight_as_far_as_the_bound_allows() {
    // The case of equality of the bound at its last update: g_i ∝ (β₁/β₂)^(t − i).
    let config = Optimizer { epsilon: 0.0, weight_decay: 0.0, ..config() };
    let (updates, rate) = (400, 1e-3);
    let mut element = Element { parameter: 0.0, first_moment: 0.0, second_moment: 0.0 };
    let mut last = 0.0;
    for t in 1..=updates {
        let before = element.parameter;
        let gradient = libm::pow(config.beta1 / config.beta2, (updates - t) as f64);
        element = Update::new(&config, rate, t).apply(element, gradient);
        last = (element.parameter - before).abs();
    }
    let most = UpdateReach::of(&config, updates - 1, &[rate]).moved;
    assert!((last / most - 1.0).abs() < 1e-9, "{last} of {most}");
    assert!((UpdateReach::of(&config, 0, &[rate]).moved - rate).abs() < 1e-12);
    assert!((UpdateReach::of(&config, 1 << 40, &[rate]).moved / rate - 7.27).abs() < 0.01);
}

proptest! {
    #[test]
    fn no_gradients_move_a_weight_beyond_the_bound(
        gradients in proptest::collection::vec((-3.0..3.0f64, -8..3i32), 1..60),
        weight in -2.0..2.0f64,
        size in -6..4i32,
    ) {
        let rate = libm::pow(10.0, f64::from(size));
        let config = config();
        let first = Element { parameter: weight, first_moment: 0.0, second_moment: 0.0 };
        let mut element = first;
        for (t, (size, power)) in (1..).zip(&gradients) {
            let gradient = size * libm::pow(10.0, f64::from(*power));
            element = Update::new(&config, rate, t).apply(element, gradient);
            element.parameter = f64::from(element.parameter as f32);
        }
        let most = UpdateReach::of(&config, 0, &vec![rate; gradients.len()]).from(weight);
        // An update that would not be finite ends a run.
        let is_finite = element.parameter.is_finite();
        prop_assert!(!is_finite || (element.parameter - weight).abs() <= most);
    }

    #[test]
    fn clipping_keeps_the_direction_and_bounds_the_norm(
        values in proptest::collection::vec(-100.0..100.0f64, 1..20), max in 0.1..10.0f64,
    ) {
        let norm_of = |values: Vec<f64>| values.iter().map(|it| it * it).sum::<f64>().sqrt();
        let norm = norm_of(values.clone());
        let factor = clip_coefficient(norm, max);
        prop_assert!(factor > 0.0 && factor <= 1.0);
        let clipped = norm_of(values.iter().map(|value| value * factor).collect());
        prop_assert!(clipped <= max && (norm >= max || factor == 1.0 || norm > max - 1e-5));
    }

    #[test]
    fn the_first_update_moves_each_parameter_by_the_rate(gradient in 0.01..50.0f64) {
        // m/(1 − β₁) over √v/√(1 − β₂) is the gradient's sign.
        let update = Update::new(&Optimizer { weight_decay: 0.0, ..config() }, 1e-3, 1);
        let zero = Element { parameter: 0.0, first_moment: 0.0, second_moment: 0.0 };
        prop_assert!((update.apply(zero, gradient).parameter + 1e-3).abs() < 1e-8);
        prop_assert!((update.apply(zero, -gradient).parameter - 1e-3).abs() < 1e-8);
    }
}
