use super::*;
use crate::policy::optimizer::tests::{config, gradients, start, tensors as pair};
use crate::policy::{AdamW, optimizer::OptimizerTensors};

#[test]
fn updates_of_tensors_are_those_of_plain_values_to_the_rounding_of_f32() {
    let mut parameters = start();
    let mut plain = AdamW::new(&config());
    let weights = start().into_iter().map(|(name, values)| (name, Tensor::from_slice(&values)));
    let mut tensors = DeviceAdamW::new(&config(), weights.collect(), &OptimizerState::default());
    for gradient in gradients() {
        let norm = plain.step(&mut parameters, &gradient, 2e-3).unwrap().norm;
        let gradient: Vec<Tensor> =
            gradient.values().map(|values| Tensor::from_slice(values)).collect();
        let ours = tensors.step(&gradient, 2e-3).unwrap();
        assert!((ours - norm).abs() < 1e-6 * norm);
        for (name, values) in &parameters {
            let ours: Vec<f32> = Vec::try_from(&tensors.weights()[name]).unwrap();
            for (ours, plain) in ours.iter().zip(values) {
                assert!((ours - plain).abs() <= 4.0 * f32::EPSILON * plain.abs(), "{ours} {plain}");
            }
        }
    }
    assert_eq!((tensors.updates(), plain.state().updates), (3, 3));
    let [first, second] = tensors.of("a");
    for (ours, plain) in first.iter().zip(&plain.state().first_moments["a"]) {
        assert!((ours - plain).abs() < 1e-7);
    }
    for (ours, plain) in second.iter().zip(&plain.state().second_moments["a"]) {
        assert!((ours - plain).abs() < 1e-7);
    }
    // A gradient that is not finite is named and changes nothing.
    let before = tensors.digests();
    let bad = [Tensor::from_slice(&[0.1f32, f32::NAN, 0.0]), Tensor::from_slice(&[1f32])];
    let error = tensors.step(&bad, 2e-3).unwrap_err();
    assert_eq!(error, OptimizerError::NotFinite { tensor: "a".into(), index: 1, count: 3 });
    assert_eq!(tensors.digests(), before);
}

#[test]
fn an_update_after_which_a_number_would_not_be_finite_changes_no_tensor() {
    let unclipped = Optimizer { max_gradient_norm: 1e38, ..config() };
    for (config, rate, weights, gradient, what, tensor) in [
        (config(), 1e39, start(), pair(&[0.1; 3], &[1.0]), "weight", "a"),
        (unclipped, 100.0, pair(&[1.0], &[3e38]), pair(&[0.1], &[1.0]), "weight", "b"),
    ] {
        let tensors = |values: &OptimizerTensors| -> Vec<Tensor> {
            values.values().map(|values| Tensor::from_slice(values)).collect()
        };
        let weights =
            weights.iter().map(|(name, values)| (name.clone(), Tensor::from_slice(values)));
        let mut adamw = DeviceAdamW::new(&config, weights.collect(), &OptimizerState::default());
        let small: Vec<Tensor> =
            tensors(&gradient).iter().map(|tensor| tensor.ones_like() * 1e-3).collect();
        adamw.step(&small, 0.0).unwrap();
        let before = adamw.digests();
        let error = adamw.step(&tensors(&gradient), rate).unwrap_err();
        assert_eq!(error, OptimizerError::Overflow { what, tensor: tensor.into() });
        assert_eq!((adamw.digests(), adamw.updates()), (before, 1));
        // Near f32's largest number an update that stays finite is made.
        adamw.step(&small, 1e-3).unwrap();
        assert_eq!(adamw.updates(), 2);
    }
}

#[test]
fn sizes_leave_no_doubt_about_an_update_of_usual_size() {
    let update = Update::new(&config(), 1e-3, 1);
    let usual = Element { parameter: 4.0, first_moment: 0.1, second_moment: 0.01 };
    assert!(update.stays_finite(usual, 1.0));
    for doubtful in [
        Element { parameter: 3e38, ..usual },
        Element { first_moment: f64::NAN, ..usual },
        Element { second_moment: f64::INFINITY, ..usual },
    ] {
        assert!(!update.stays_finite(doubtful, 1.0), "{doubtful:?}");
    }
    assert!(!update.stays_finite(usual, 1e31), "{:?}", update);
}
