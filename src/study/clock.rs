//! What runs are compared at: readings of their clocks.

use crate::algorithm::Kl;
use crate::experiment::Experiment;
use crate::study::{Cell, CellEvaluation};
use serde::{Deserialize, Serialize};

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    Updates,
    /// Rollouts generated for training, dropped ones included.
    #[value(name = "rollouts")]
    GeneratedRollouts,
    /// Their response tokens.
    #[value(name = "tokens")]
    GeneratedTokens,
    /// Floating-point operations a parameter: 2 for a generated token; for a trained one 2 for its old probability, 2 for
    /// the reference's with a KL penalty, and 6 in each epoch of a step (2 forward, 4 backward), or 8 where the method
    /// looks at a mini-batch first. A nominal count, without prompts, evaluations and attention.
    Flops,
    /// Of the machine that ran the cell: whoever ran it vouches for them, so no declaration compares at them.
    #[value(skip)]
    Seconds,
}

impl Clock {
    pub fn words(self) -> &'static str {
        match self {
            Self::Updates => "updates",
            Self::GeneratedRollouts => "generated rollouts",
            Self::GeneratedTokens => "generated tokens",
            Self::Flops => "FLOPs per parameter",
            Self::Seconds => "seconds",
        }
    }

    pub fn at(self, cell: &Cell, evaluation: &CellEvaluation) -> f64 {
        match self {
            Self::Updates => evaluation.counters.updates as f64,
            Self::GeneratedRollouts => evaluation.generated_rollouts as f64,
            Self::GeneratedTokens | Self::Flops | Self::Seconds => {
                let steps = evaluation.counters.rollout_steps as usize;
                0.0 + self.by_step(cell).into_iter().take(steps).flatten().sum::<f64>()
            }
        }
    }

    /// What each rollout step of a cell adds, as far as it is recorded.
    pub fn by_step(self, cell: &Cell) -> Vec<Option<f64>> {
        let of_step = |step| match self {
            Self::Seconds => cell.step_seconds.get(step).copied(),
            _ => self.added(&cell.experiment, |name| *cell.metric(name)?.get(step)?),
        };
        (0..cell.counters.len()).map(of_step).collect()
    }

    /// What a rollout step adds by its metrics; `None` if not recorded, for updates (counters have them) and seconds.
    pub fn added(
        self,
        experiment: &Experiment,
        metric: impl Fn(&str) -> Option<f64>,
    ) -> Option<f64> {
        match self {
            Self::Updates | Self::Seconds => None,
            Self::GeneratedRollouts => metric("rollout/generated_rollouts"),
            Self::GeneratedTokens => metric("rollout/generated_tokens"),
            Self::Flops => {
                let trained = metric("train/response_tokens_mean")? * metric("train/rollouts")?;
                let has_reference = matches!(experiment.dapo.kl, Kl::Penalty { .. });
                let frozen = if has_reference { 4.0 } else { 2.0 };
                let looks = experiment.engine.is_native() && experiment.dapo.rules().looks_ahead();
                let epoch = if looks { 8.0 } else { 6.0 };
                let each = frozen + epoch * experiment.training.epochs_per_step as f64;
                Some(2.0 * metric("rollout/generated_tokens")? + each * trained)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{KlEstimator, methods};
    use crate::experiment::{Engine, extends};
    use crate::study::collection;
    use std::path::Path;

    #[test]
    fn epochs_and_a_reference_cost_flops_and_no_tokens() {
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/base.toml");
        let one = extends::load(&base).unwrap();
        let (mut two, mut penalty) = (one.clone(), one.clone());
        two.training.epochs_per_step = 2;
        let estimator = KlEstimator::K3;
        penalty.dapo.kl = Kl::Penalty { estimator, coefficient: 0.04 };
        let metric = |name: &str| Some(if name == "train/rollouts" { 3.0 } else { 10.0 });
        let added = |clock: Clock| [&one, &two, &penalty].map(|it| clock.added(it, metric));
        assert_eq!(added(Clock::Flops), [260.0, 440.0, 320.0].map(Some));
        assert_eq!(added(Clock::GeneratedTokens), [Some(10.0); 3]);
        let mut looking = Vec::new();
        for (kind, arm) in methods::KINDS.iter().zip(methods::ARMS) {
            let mut method = one.clone();
            let stated: toml::Value = arm.parse::<toml::Table>().unwrap()["dapo"]["method"].clone();
            method.dapo.method = Some(stated.try_into().unwrap());
            let looks = method.dapo.rules().looks_ahead();
            let flops = Clock::Flops.added(&method, metric);
            assert_eq!(flops, Some(if looks { 320.0 } else { 260.0 }), "{kind}");
            looking.extend(looks.then_some(*kind));
            method.engine = Engine::Verl;
            assert_eq!(Clock::Flops.added(&method, metric), Some(260.0), "{kind}");
        }
        assert_eq!(looking, ["clip-cov", "kl-cov", "top-entropy"]);
    }

    #[test]
    fn a_clock_begins_at_zero_which_has_no_sign() {
        let useful = Path::new(env!("CARGO_MANIFEST_DIR")).join("reports/useful");
        let study = collection::load(&useful, None).unwrap();
        let cell = &study.cells[0];
        for clock in [Clock::GeneratedRollouts, Clock::GeneratedTokens, Clock::Flops] {
            let begin = clock.at(cell, &cell.evaluations[0]);
            assert!(begin == 0.0 && begin.is_sign_positive(), "{clock:?}: {begin}");
        }
    }
}
