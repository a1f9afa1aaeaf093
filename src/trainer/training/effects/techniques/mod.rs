//! Effects of techniques in a rollout step, from rollouts, batch and advantages, not from switches.

use crate::algorithm::methods::{ADVANTAGE_DISTANCE, Grpo};
use crate::algorithm::step::rewarded;
use crate::algorithm::{Group, Punishment, Rewarded, Row, Rules, ScoredRollout, Selected};
use crate::experiment::Experiment;
use crate::training::{Metrics, effects::named};

/// Larger than the rounding of a group's mean.
const ROUNDING: f64 = 1e-9;

/// `effect/technique_what` → value, for techniques that act before the loss.
pub fn metrics(step: &Selected, experiment: &Experiment) -> Metrics {
    let mut metrics = soft_punishment(step, experiment);
    metrics.extend(dynamic_sampling(step, experiment));
    metrics.extend(overlong_filtering(step));
    metrics.extend(named("", method(step, experiment)));
    metrics
}

/// Mean distance of a method's advantages from GRPO's.
fn method(step: &Selected, experiment: &Experiment) -> Option<(&'static str, f64)> {
    let dapo = &experiment.dapo;
    dapo.method?;
    let rewarded = |group: &&Group<ScoredRollout>| rewarded(group, dapo, ScoredRollout::reward);
    let rewarded: Vec<Vec<Rewarded>> = step.trained().iter().map(rewarded).collect();
    let plain = Grpo.advantages(&rewarded, dapo).concat();
    let distances = step.advantages.concat();
    let distances = distances.iter().zip(&plain).map(|(ours, plain)| (ours - plain).abs());
    Some((ADVANTAGE_DISTANCE, distances.sum::<f64>() / plain.len().max(1) as f64))
}

/// Eq. 13: punished responses, and trained advantages that differ from those of correctness alone.
fn soft_punishment(step: &Selected, experiment: &Experiment) -> Metrics {
    let generated: Vec<&ScoredRollout> =
        step.generated().iter().flat_map(|group| &group.rollouts).collect();
    let punished: Vec<&&ScoredRollout> =
        generated.iter().filter(|rollout| rollout.overlong_penalty < 0.0).collect();
    let count = punished.len() as f64;
    // `sum` of nothing is −0.
    let sum = punished.iter().fold(0.0, |sum, rollout| sum + rollout.overlong_penalty);
    let limit = experiment.rollout.max_response_tokens;
    let tokens = |rollout: &ScoredRollout| rollout.rollout.tokens.len() as u64;
    let mut due = Vec::new();
    if let Punishment::Soft { cache_tokens, .. } = experiment.dapo.overlong.punishment {
        // Eq. 13 punishes responses longer than this.
        let begin = limit.saturating_sub(cache_tokens);
        due.push(("due_rollouts", counted(&generated, |rollout| tokens(rollout) > begin)));
        let inside: u64 = punished.iter().map(|r| tokens(r).saturating_sub(begin)).sum();
        due.push(("cache_tokens_mean", inside as f64 / count));
    }
    let (mut moved, mut distance, mut trained) = (0.0, 0.0, 0.0);
    let dapo = &experiment.dapo;
    let correctness =
        |group: &&Group<ScoredRollout>| rewarded(group, dapo, |rollout| rollout.correctness_reward);
    let correctness: Vec<Vec<Rewarded>> = step.trained().iter().map(correctness).collect();
    let unshaped = dapo.rules().advantages(&correctness, dapo);
    for (advantages, unshaped) in step.advantages.iter().zip(unshaped) {
        for (shaped, unshaped) in advantages.iter().zip(unshaped) {
            moved += f64::from((shaped - unshaped).abs() > ROUNDING);
            distance += (shaped - unshaped).abs();
            trained += 1.0;
        }
    }
    let values = [
        ("punished_rollouts", count),
        ("penalty_sum", sum),
        ("punished_share", count / generated.len() as f64),
        ("penalty_mean", sum / count),
        ("beyond_limit_rollouts", counted(&generated, |rollout| tokens(rollout) > limit)),
        ("moved_advantages", moved),
        ("moved_advantage_mean", distance / trained),
    ];
    named("effect/soft_punishment_", values.into_iter().chain(due))
}

/// Eq. 11: generated groups that neither train nor wait, and how the batch was filled.
fn dynamic_sampling(step: &Selected, experiment: &Experiment) -> Metrics {
    let size = |group: &Group<ScoredRollout>| group.rollouts.len();
    let useful =
        |group: &Group<ScoredRollout>| experiment.dapo.rules().is_useful(group, &experiment.dapo);
    let left_out: Vec<&Group<ScoredRollout>> = (step.carried..step.groups.len())
        .filter(|index| !step.batch.contains(index) && !step.surplus.contains(index))
        .map(|index| &step.groups[index])
        .collect();
    let all_correct = counted(&left_out, |group| !useful(group) && group.correct() == size(group));
    let useless = counted(&left_out, |group| !useful(group));
    let batch = step.trained();
    let target = experiment.training.prompts_per_step as f64;
    let values = [
        ("dropped_all_correct_groups", all_correct),
        ("dropped_all_wrong_groups", useless - all_correct),
        ("dropped_share", useless / step.generated().len() as f64),
        ("refill_rounds", step.rounds.saturating_sub(1) as f64),
        ("discarded_surplus_groups", left_out.len() as f64 - useless),
        ("carried_surplus_groups", step.surplus.len() as f64),
        ("trained_useless_groups", counted(&batch, |group| !useful(group))),
        ("batch_filled_share", batch.len() as f64 / target),
    ];
    named("effect/dynamic_sampling_", values)
}

/// Rollouts of the batch that are not in the loss, and truncated ones.
fn overlong_filtering(step: &Selected) -> Metrics {
    let rollouts = step.trained().into_iter().flat_map(|group| &group.rollouts);
    let truncated = rollouts.filter(|rollout| rollout.rollout.truncated()).count() as f64;
    let masked: Vec<&Row> =
        step.rows.iter().filter(|row| row.loss_tokens() < row.response_tokens() as u64).collect();
    let tokens: u64 = masked.iter().map(|row| row.response_tokens() as u64).sum();
    let values = [
        ("truncated_rollouts", truncated),
        ("masked_rollouts", masked.len() as f64),
        ("masked_tokens", tokens as f64),
    ];
    named("effect/overlong_filtering_", values)
}

fn counted<T>(of: &[&T], is: impl Fn(&T) -> bool) -> f64 {
    of.iter().filter(|one| is(one)).count() as f64
}

#[cfg(test)]
mod tests;
