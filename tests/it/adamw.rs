//! AdamW and gradient clipping against torch on f32 tensors (golden/adamw, see generate.py there).

use crate::golden_data::{self, AdamWSettings};
use dapo::policy::AdamW;
use dapo::policy::optimizer::OptimizerTensors;
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    settings: AdamWSettings,
    start: OptimizerTensors,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    gradients: OptimizerTensors,
    gradient_norm: f64,
    parameters: OptimizerTensors,
    first_moments: OptimizerTensors,
    second_moments: OptimizerTensors,
}

/// Largest difference, relative to the size of the tensor's largest element.
fn distance(ours: &OptimizerTensors, theirs: &OptimizerTensors) -> f64 {
    assert!(ours.keys().eq(theirs.keys()));
    let mut worst = 0.0f64;
    for (name, theirs) in theirs {
        assert_eq!(ours[name].len(), theirs.len(), "{name}");
        let size = theirs.iter().fold(1e-30f64, |size, value| size.max(f64::from(value.abs())));
        for (a, b) in ours[name].iter().zip(theirs) {
            worst = worst.max((f64::from(*a) - f64::from(*b)).abs() / size);
        }
    }
    worst
}

#[test]
fn parameters_moments_and_norms_agree_with_torch_over_five_steps() {
    let file: File = golden_data::read(&golden_data::folder("adamw/adamw.json"));
    assert!(file.cases.len() >= 4);
    for case in file.cases {
        let learning_rate = case.settings.learning_rate;
        let mut adamw = AdamW::new(&case.settings.optimizer());
        let mut parameters = case.start;
        for (number, step) in case.steps.iter().enumerate() {
            let name = format!("{} step {}", case.name, number + 1);
            let stepped = adamw.step(&mut parameters, &step.gradients, learning_rate);
            let norm = stepped.unwrap().norm;
            assert!((norm / step.gradient_norm - 1.0).abs() < 1e-6, "{name}: norm {norm}");
            let state = adamw.state();
            for (what, ours, theirs) in [
                ("parameters", &parameters, &step.parameters),
                ("first moments", &state.first_moments, &step.first_moments),
                ("second moments", &state.second_moments, &step.second_moments),
            ] {
                let worst = distance(ours, theirs);
                assert!(worst < 1e-6, "{name}: {what} differ by {worst}");
            }
        }
    }
}
