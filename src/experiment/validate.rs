//! Ranges, finiteness and agreement between fields. All problems of an experiment are reported at
//! once.

use crate::algorithm::{
    Aggregation, AtCap, Dapo, DualClip, DynamicSampling, Kl, LogRatioClamp, Punishment, Std,
    TokenMeanUnit,
};
use crate::experiment::{
    Device, Evaluation, Execution, Experiment, MiniBatchOrder, Optimizer, RolloutSettings,
    Sampling, Training, WeightKind, config::NEWEST_FORMAT,
};
use crate::numerics::Numerics;
use std::fmt::Display;

/// Bound on counts of prompts, rollouts, tokens and steps; the paper's largest is 20,480. The
/// product of two such counts does not overflow.
const MOST: u64 = 1 << 24;

pub const MOST_THREADS: u64 = 1024;

/// Everything that is wrong with an experiment, one sentence each, starting with the key's path.
pub fn problems(experiment: &Experiment) -> Vec<String> {
    let mut check = ValidationCheck { problems: ranges(experiment) };
    let is_exact = experiment.numerics == Numerics::Exact;
    let Execution { memory, device, weights, pass_tokens, .. } = &experiment.execution;
    check.that(!(is_exact && memory.is_some()), || {
        "execution.memory is for numerics = \"fast\"; exact arithmetic keeps its own tape".into()
    });
    for (key, stated) in [
        ("execution.device", device.is_some_and(|device| device != Device::Cpu)),
        ("execution.weights", weights.is_some_and(|weights| weights != WeightKind::F32)),
        ("execution.pass_tokens", pass_tokens.is_some()),
    ] {
        check.that(!(is_exact && stated), || {
            format!(
                "{key} is for numerics = \"fast\"; exact arithmetic is f32 on the processor, and no cut into passes changes it"
            )
        });
    }
    check_batches(&mut check, experiment);
    check_groups(&mut check, experiment);
    check.problems
}

/// Problems of single values, whatever the other keys say.
pub fn ranges(experiment: &Experiment) -> Vec<String> {
    let Experiment { name, rollout, dapo, training, optimizer, evaluation, execution, .. } =
        experiment;
    let mut check = ValidationCheck { problems: Vec::new() };
    check_name(&mut check, name);
    check_rollout(&mut check, rollout);
    check_training(&mut check, training);
    check_optimizer(&mut check, optimizer);
    check_evaluation(&mut check, evaluation);
    check_execution(&mut check, execution);
    check.at_least_one("checkpoints.keep_last", experiment.checkpoints.keep_last);
    check_dapo(&mut check, dapo);
    let format = experiment.record_format();
    check.that((1..=NEWEST_FORMAT).contains(&format), || {
        format!("records.format must be from 1 to {NEWEST_FORMAT}, got {format}")
    });
    check.problems
}

struct ValidationCheck {
    problems: Vec<String>,
}

impl ValidationCheck {
    fn that(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.problems.push(problem());
        }
    }

    /// A value in a range; `nan` and infinities are in none.
    fn number(&mut self, key: &str, value: f64, range: &str, inside: impl Fn(f64) -> bool) {
        self.that(value.is_finite() && inside(value), || {
            format!("{key} must be {range}, got {value}")
        });
    }

    fn at_least_one(&mut self, key: &str, value: u64) {
        self.that(value >= 1, || format!("{key} must be at least 1, got 0"));
        self.that(value <= MOST, || format!("{key} must be at most {MOST}, got {value}"));
    }

    fn at_most(&mut self, key: &str, value: u64, limit: u64, what: impl Display) {
        self.that(value <= limit, || {
            format!("{key} must be at most {what} ({limit}), got {value}")
        });
    }
}

/// A run's folder is named after the experiment.
fn check_name(check: &mut ValidationCheck, name: &str) {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_+.".contains(character);
    let usable = !name.is_empty() && !name.starts_with('.') && name.chars().all(plain);
    check.that(usable, || {
        format!("name must be letters, digits and any of -_+. (not first), got {name:?}")
    });
}

fn check_sampling(check: &mut ValidationCheck, table: &str, sampling: &Sampling) {
    let Sampling { temperature, top_p, top_k: _, log_probs: _ } = *sampling;
    check.number(&format!("{table}.temperature"), temperature, "at least 0", |t| t >= 0.0);
    check.number(&format!("{table}.top_p"), top_p, "in (0, 1]", |p| p > 0.0 && p <= 1.0);
}

fn check_rollout(check: &mut ValidationCheck, rollout: &RolloutSettings) {
    check.at_least_one("rollout.prompts_per_round", rollout.prompts_per_round);
    check.at_least_one("rollout.group_size", rollout.group_size);
    check.at_least_one("rollout.max_prompt_tokens", rollout.max_prompt_tokens);
    check.at_least_one("rollout.max_response_tokens", rollout.max_response_tokens);
    check_sampling(check, "rollout.sampling", &rollout.sampling);
    check.that(rollout.sampling.log_probs.is_none() || rollout.sampling.keeps_a_part(), || {
        "rollout.sampling.log_probs must be absent where top_p is 1 and top_k is 0: every token is kept"
            .into()
    });
    check.that(rollout.sampling.temperature != 0.0, || {
        "rollout.sampling.temperature must be above 0 (training divides the logits by it), got 0"
            .into()
    });
}

fn check_training(check: &mut ValidationCheck, training: &Training) {
    check.at_least_one("training.rollout_steps", training.rollout_steps);
    check.at_least_one("training.prompts_per_step", training.prompts_per_step);
    check.at_least_one("training.mini_batch_rollouts", training.mini_batch_rollouts);
    check.at_least_one("training.epochs_per_step", training.epochs_per_step);
}

fn check_optimizer(check: &mut ValidationCheck, optimizer: &Optimizer) {
    let Optimizer { learning_rate, beta1, beta2, epsilon, weight_decay, .. } = *optimizer;
    check.number("optimizer.learning_rate", learning_rate, "above 0", |rate| rate > 0.0);
    for (key, beta) in [("optimizer.beta1", beta1), ("optimizer.beta2", beta2)] {
        check.number(key, beta, "in [0, 1)", |beta| (0.0..1.0).contains(&beta));
    }
    check.number("optimizer.epsilon", epsilon, "at least 0", |epsilon| epsilon >= 0.0);
    check.number("optimizer.weight_decay", weight_decay, "at least 0", |decay| decay >= 0.0);
    let norm = optimizer.max_gradient_norm;
    check.number("optimizer.max_gradient_norm", norm, "above 0", |norm| norm > 0.0);
}

fn check_evaluation(check: &mut ValidationCheck, evaluation: &Evaluation) {
    check_sampling(check, "evaluation.sampling", &evaluation.sampling);
    check.that(evaluation.sampling.log_probs.is_none(), || {
        "evaluation.sampling.log_probs must be absent: nothing trains on evaluations".into()
    });
    for (set, &samples) in &evaluation.samples {
        check.at_least_one(&format!("evaluation.samples.{set}"), samples);
    }
    let on_the_way = &evaluation.during_training;
    for (index, set) in on_the_way.iter().enumerate() {
        check.that(evaluation.samples.contains_key(set), || {
            format!(
                "evaluation.during_training names {set:?}, which evaluation.samples has no k for"
            )
        });
        check.that(!on_the_way[..index].contains(set), || {
            format!("evaluation.during_training names {set:?} twice")
        });
    }
}

fn check_execution(check: &mut ValidationCheck, execution: &Execution) {
    check.at_least_one("execution.threads", execution.threads);
    check.that(execution.threads <= MOST_THREADS || execution.threads > MOST, || {
        format!("execution.threads must be at most {MOST_THREADS}, got {}", execution.threads)
    });
    check.at_least_one("execution.micro_batch_rollouts", execution.micro_batch_rollouts);
    check.at_least_one("execution.generation_batch_rollouts", execution.generation_batch_rollouts);
    if let Some(tokens) = execution.pass_tokens {
        check.at_least_one("execution.pass_tokens", tokens);
    }
    if let Some(memory) = execution.memory {
        let key = "execution.memory.logits_chunk_tokens";
        check.at_most(key, memory.logits_chunk_tokens, MOST, MOST);
    }
}

fn check_dapo(check: &mut ValidationCheck, dapo: &Dapo) {
    check.number("dapo.clip.low", dapo.clip.low, "in (0, 1)", |low| low > 0.0 && low < 1.0);
    check.number("dapo.clip.high", dapo.clip.high, "above 0", |high| high > 0.0);
    let epsilon = dapo.advantage.epsilon;
    check.number("dapo.advantage.epsilon", epsilon, "at least 0", |epsilon| epsilon >= 0.0);
    if let Punishment::Soft { cache_tokens, factor, beyond: _ } = dapo.overlong.punishment {
        check.at_least_one("dapo.overlong.punishment.cache_tokens", cache_tokens);
        check.number("dapo.overlong.punishment.factor", factor, "at least 0", |f| f >= 0.0);
    }
    if let DualClip::Constant { c } = dapo.dual_clip {
        check.number("dapo.dual_clip.c", c, "above 1", |c| c > 1.0);
    }
    if let LogRatioClamp::Symmetric { bound } = dapo.log_ratio_clamp {
        check.number("dapo.log_ratio_clamp.bound", bound, "above 0", |bound| bound > 0.0);
    }
    if let Kl::Penalty { coefficient, estimator: _ } = dapo.kl {
        check.number("dapo.kl.coefficient", coefficient, "at least 0", |beta| beta >= 0.0);
    }
    check.problems.extend(dapo.rules().problems(dapo));
}

fn check_batches(check: &mut ValidationCheck, experiment: &Experiment) {
    let Experiment { rollout, training, optimizer, dapo, .. } = experiment;
    let rollouts = training.prompts_per_step.saturating_mul(rollout.group_size);
    check.that(rollouts <= MOST, || {
        format!(
            "training.prompts_per_step × rollout.group_size must be at most {MOST}, got {rollouts}"
        )
    });
    let round = rollout.prompts_per_round.saturating_mul(rollout.group_size);
    check.that(round <= MOST, || {
        format!(
            "rollout.prompts_per_round × rollout.group_size must be at most {MOST}, got {round}"
        )
    });
    let mini_batch = training.mini_batch_rollouts;
    let key = "training.mini_batch_rollouts";
    check.at_most(key, mini_batch, rollouts, "prompts_per_step × group_size");
    if mini_batch >= 1 && mini_batch <= rollouts {
        check.that(rollouts.is_multiple_of(mini_batch), || {
            format!(
                "{key} must divide prompts_per_step × group_size ({rollouts}), got {mini_batch}"
            )
        });
    }
    let whole = rollout.group_size >= 1 && mini_batch.is_multiple_of(rollout.group_size);
    let shuffled = training.mini_batch_order == MiniBatchOrder::ShuffledGroups;
    check.that(whole || !shuffled, || {
        format!(
            "{key} must be a multiple of rollout.group_size ({}) with mini_batch_order = \
             \"shuffled-groups\", which keeps groups whole, got {mini_batch}",
            rollout.group_size
        )
    });
    let per_group =
        dapo.aggregation == Aggregation::TokenMean && dapo.token_mean_unit == TokenMeanUnit::Group;
    check.that(shuffled || !per_group, || {
        "dapo.token_mean_unit must not be \"group\" with training.mini_batch_order = \
         \"length-bands\", which tears groups apart"
            .into()
    });
    let (ramp, steps) = (optimizer.warm_up.rollout_steps, training.rollout_steps);
    check.at_most("optimizer.warm_up.rollout_steps", ramp, steps, "training.rollout_steps");
}

fn check_groups(check: &mut ValidationCheck, experiment: &Experiment) {
    let Experiment { rollout, training, dapo, .. } = experiment;
    let size = rollout.group_size;
    check.that(size != 1 || dapo.advantage.std != Std::Sample, || {
        "rollout.group_size must be at least 2 with dapo.advantage.std = \"sample\", got 1".into()
    });
    let limit = rollout.max_response_tokens;
    if let Punishment::Soft { cache_tokens, .. } = dapo.overlong.punishment {
        check.that(cache_tokens < limit, || {
            format!(
                "dapo.overlong.punishment.cache_tokens must be below \
                 rollout.max_response_tokens ({limit}), got {cache_tokens}"
            )
        });
    }
    let (round, step) = (rollout.prompts_per_round, training.prompts_per_step);
    match dapo.dynamic_sampling {
        DynamicSampling::None {} => check.that(round == step, || {
            format!(
                "rollout.prompts_per_round must equal training.prompts_per_step ({step}) without \
                 dynamic sampling, since every group trains, got {round}"
            )
        }),
        DynamicSampling::Resample { max_rounds, at_cap, surplus: _ } => {
            check.that(size != 1, || {
                "rollout.group_size must be at least 2 with dynamic sampling, which drops every \
                 group of one, got 1"
                    .into()
            });
            let most = round.saturating_mul(u64::from(max_rounds));
            check.that(max_rounds == 0 || at_cap == AtCap::Train || most >= step, || {
                format!(
                    "dapo.dynamic_sampling.max_rounds × rollout.prompts_per_round must reach \
                     training.prompts_per_step ({step}) with at_cap = \"stop\", got {most}"
                )
            });
        }
    }
}
