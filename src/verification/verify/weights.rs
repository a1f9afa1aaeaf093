//! Whether AdamW can have made a checkpoint's weights from earlier ones, without execution: an
//! update moves each weight by a few learning rates at most, and moves some at all.

use crate::policy::{Qwen2, checkpoint, optimizer};
use crate::records::{RunRecords, StepMetrics};
use crate::verification::verify::{Check, inputs::Local};

/// Step 0 has the base policy's.
#[derive(Debug)]
pub struct EarlierWeights {
    step: u64,
    updates: u64,
    values: checkpoint::CheckpointValues,
}

impl EarlierWeights {
    pub fn base(check: &mut Check, local: &Local) -> Option<Self> {
        let model = check.read("base policy", checkpoint::load_model(local.base.as_ref()?))?;
        Some(Self { step: 0, updates: 0, values: checkpoint::values(&model) })
    }

    pub fn after(step: u64, updates: u64, model: &Qwen2) -> Self {
        Self { step, updates, values: checkpoint::values(model) }
    }

    fn name(&self) -> String {
        match self.step {
            0 => "the base policy".to_string(),
            step => format!("step {step}"),
        }
    }

    /// Bounds are known only for this harness's f32 arithmetic.
    pub fn reach(&self, check: &mut Check, later: &Self, place: &str, records: &RunRecords) {
        let experiment = &records.experiment;
        let between: Vec<&StepMetrics> = records
            .metrics
            .iter()
            .filter(|line| self.step < line.step && line.step <= later.step)
            .collect();
        for (name, (_, values)) in &later.values {
            let Some((_, before)) = self.values.get(name).filter(|it| it.1.len() == values.len())
            else {
                check.mismatch(place, format!("{name} has not the shape of {}", self.name()));
                return;
            };
            if values.iter().all(|it| *it == 0.0) && before.iter().any(|it| *it != 0.0) {
                check.mismatch(place, format!("{name} is zero everywhere"));
                return;
            }
        }
        if !experiment.engine.is_native() || experiment.execution.weights.is_some() {
            return;
        }
        let rate =
            |line: &StepMetrics| optimizer::learning_rate(&experiment.optimizer, line.step - 1);
        let mut updates_before = self.updates;
        let mut rates = Vec::new();
        for line in &between {
            let made = line.counters.updates.saturating_sub(updates_before) as usize;
            // Other checks find an impossible count.
            rates.extend(std::iter::repeat_n(rate(line), made.min(MOST_UPDATES - rates.len())));
            updates_before = line.counters.updates;
        }
        // A step that was not finite has updates, but no line.
        let more = later.updates.saturating_sub(updates_before) as usize;
        let next = optimizer::learning_rate(&experiment.optimizer, later.step);
        rates.extend(std::iter::repeat_n(next, more.min(MOST_UPDATES - rates.len())));
        let reach = optimizer::UpdateReach::of(&experiment.optimizer, self.updates, &rates);
        let moved = self.values.iter().flat_map(|(name, (_, before))| {
            let after = &later.values[name].1;
            before.iter().zip(after).map(move |(before, after)| (name, *before, *after))
        });
        let mut is_same = true;
        for (name, before, after) in moved {
            is_same &= before.to_bits() == after.to_bits();
            let most = reach.from(f64::from(before));
            if (f64::from(after) - f64::from(before)).abs() > most {
                let what = format!(
                    "a weight of {name} is {after}, at {} it was {before}: {} updates of AdamW \
                     move it by {most:.2e} at most",
                    self.name(),
                    rates.len()
                );
                check.mismatch(place, what);
                return;
            }
        }
        let norm = |line: &&StepMetrics| line.metrics.get("optimizer/gradient_norm_mean").copied();
        let has_gradient = between.iter().any(|line| {
            rate(line) >= LEAST_RATE && norm(line).is_some_and(|norm| norm >= LEAST_NORM)
        });
        if is_same && has_gradient {
            let what = format!(
                "its weights are those of {}, though updates with gradients lie between",
                self.name()
            );
            check.mismatch(place, what);
        }
    }
}

/// Limit between two checkpoints.
const MOST_UPDATES: usize = 10_000_000;

/// Rounding could hide smaller updates.
const LEAST_RATE: f64 = 1e-7;
const LEAST_NORM: f64 = 1e-3;
