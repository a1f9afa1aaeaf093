//! One finding for each technique: records decide it, the switch only says what was intended.

use crate::algorithm::{Aggregation, DynamicSampling, FilterMetric, Kl, Punishment, TokenMeanUnit};
use crate::experiment::Experiment;
use crate::study::effect_checks::{EffectFinding, EffectVerdict, Recorded};

/// Rounding of f64 sums is much smaller.
const ROUNDING: f64 = 1e-9;

type Seen = (bool, String);

/// Name, switch, and what the records show with the dose: of what it could act on, the share that it acted on. `None` if
/// no recorded rollout step says.
type Technique = (&'static str, fn(&Experiment) -> bool, fn(&Recorded) -> Option<(Seen, f64)>);

const TECHNIQUES: [Technique; 5] = [
    ("Clip-Higher", |it| it.dapo.clip.high > it.dapo.clip.low, clip_higher),
    ("Dynamic Sampling", resamples, dynamic_sampling),
    (TOKEN_LEVEL_LOSS, |it| it.dapo.aggregation == Aggregation::TokenMean, token_level_loss),
    ("Overlong Filtering", |it| it.dapo.overlong.filter, overlong_filtering),
    ("Soft Overlong Punishment", is_soft, soft_punishment),
];

pub fn names() -> [&'static str; 5] {
    TECHNIQUES.map(|(technique, ..)| technique)
}

/// The paper's techniques, in its order, and whether an experiment switches each on.
pub fn switches(experiment: &Experiment) -> [(&'static str, bool); 5] {
    TECHNIQUES.map(|(technique, is_enabled, ..)| (technique, is_enabled(experiment)))
}

/// Metric: groups that wait after a step, those of earlier steps included.
pub(in crate::study::effect_checks) const CARRIED: &str =
    "effect/dynamic_sampling_carried_surplus_groups";

const TOKEN_LEVEL_LOSS: &str = "Token-level loss";

pub(in crate::study::effect_checks) fn all(recorded: &Recorded) -> Vec<EffectFinding> {
    let findings = TECHNIQUES.into_iter().map(|(technique, is_enabled, seen)| {
        let (seen, dose) = seen(recorded).unzip();
        let dose = dose.filter(|dose| dose.is_finite());
        let finding = finding(technique, is_enabled(recorded.experiment), seen, dose);
        explained(recorded.experiment, finding)
    });
    findings.chain(method(recorded)).collect()
}

/// A technique that is off may have acted by another setting.
fn explained(experiment: &Experiment, finding: EffectFinding) -> EffectFinding {
    let dapo = &experiment.dapo;
    let about = dapo.rules().about();
    let why = if finding.verdict != EffectVerdict::DisabledButActed {
        return finding;
    } else if finding.technique == TOKEN_LEVEL_LOSS && dapo.aggregation == Aggregation::ResponseSum
    {
        "aggregation = \"response-sum\" weighs all tokens alike too".to_string()
    } else if dapo.rules().does_itself().contains(&finding.technique) {
        format!("{}: {}", about.name, about.differs)
    } else {
        return finding;
    };
    let evidence = format!("{}; {why}", finding.evidence);
    EffectFinding { verdict: EffectVerdict::Explained, evidence, ..finding }
}

pub fn resamples(experiment: &Experiment) -> bool {
    matches!(experiment.dapo.dynamic_sampling, DynamicSampling::Resample { .. })
}

fn finding(
    technique: &'static str,
    enabled: bool,
    seen: Option<Seen>,
    dose: Option<f64>,
) -> EffectFinding {
    let (acted, evidence) = seen.unzip();
    let verdict = match (enabled, acted) {
        (_, None) => EffectVerdict::NotRecorded,
        (true, Some(true)) => EffectVerdict::Acted,
        (true, Some(false)) => EffectVerdict::EnabledButDidNothing,
        (false, Some(true)) => EffectVerdict::DisabledButActed,
        (false, Some(false)) => EffectVerdict::Off,
    };
    let evidence = evidence.unwrap_or_else(|| "no recorded rollout step says".to_string());
    EffectFinding { technique, enabled, verdict, evidence: grouped(&evidence), dose }
}

fn grouped(sentence: &str) -> String {
    let mut shown = String::with_capacity(sentence.len());
    let mut rest = sentence;
    while let Some(start) = rest.find(|character: char| character.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|character: char| !character.is_ascii_digit()).unwrap_or(from.len());
        let (digits, after) = from.split_at(end);
        let is_short = digits.len() < 4 || before.ends_with('.');
        shown += before;
        for (index, digit) in digits.chars().enumerate() {
            let begins_a_group = index > 0 && (digits.len() - index).is_multiple_of(3);
            shown.extend((begins_a_group && !is_short).then_some(','));
            shown.push(digit);
        }
        rest = after;
    }
    shown + rest
}

/// The arm's method never reads the clip range: what lies above it says nothing of Clip-Higher.
pub fn reads_no_clip(experiment: &Experiment) -> bool {
    experiment.dapo.unread().contains(&"dapo.clip")
}

/// Tokens between the two upper bounds. Above both the gradient is 0 with and without the technique.
fn clip_higher(recorded: &Recorded) -> Option<(Seen, f64)> {
    let experiment = recorded.experiment;
    let dapo = &experiment.dapo;
    let clip = dapo.clip;
    let (lower, upper) = (1.0 + clip.low, 1.0 + clip.high);
    let through = recorded.sum("effect/clip_higher_let_through_tokens")?;
    let tokens = recorded.sum("effect/loss_tokens")?;
    if reads_no_clip(experiment) {
        return Some(((false, format!("{} does not read dapo.clip", dapo.method_name())), 0.0));
    }
    let above = recorded.sum("effect/clip_higher_clipped_above_tokens")?;
    let share = percent(through, tokens);
    let mut evidence = if clip.high > clip.low {
        format!(
            "{through} of {tokens} loss tokens ({share}) lay between the upper bounds \
             {lower} and {upper} with a positive advantage and were let through; {above} more \
             were clipped above {upper}"
        )
    } else {
        format!(
            "{through} of {tokens} loss tokens above {lower} with a positive advantage were \
             let through; {above} were clipped"
        )
    };
    let training = &experiment.training;
    let rollouts = training.prompts_per_step * experiment.rollout.group_size;
    let one_update = rollouts <= training.mini_batch_rollouts && training.epochs_per_step == 1;
    if through == 0.0 && one_update {
        evidence += "; a rollout step makes one update, whose ratio is 1 everywhere, so no \
                     clip can act";
    } else if let (0.0, Some(largest)) = (through, recorded.highest("loss/ratio_max")) {
        evidence += &format!("; the largest ratio was {largest:.3}");
    }
    Some(((through > 0.0, evidence), through / tokens))
}

fn dynamic_sampling(recorded: &Recorded) -> Option<(Seen, f64)> {
    let experiment = recorded.experiment;
    let correct = recorded.sum("effect/dynamic_sampling_dropped_all_correct_groups")?;
    let wrong = recorded.sum("effect/dynamic_sampling_dropped_all_wrong_groups")?;
    let groups = recorded.sum("rollout/groups")?;
    let refills = recorded.sum("effect/dynamic_sampling_refill_rounds")?;
    let useless = recorded.sum("effect/dynamic_sampling_trained_useless_groups")?;
    let dropped = correct + wrong;
    let mut evidence = format!(
        "{dropped} of {groups} sampled groups ({}) were dropped, {}; {}",
        percent(dropped, groups),
        match experiment.dapo.dynamic_sampling {
            DynamicSampling::Resample { metric: FilterMetric::Reward, .. } =>
                "each of equal rewards".to_string(),
            _ => format!("{correct} all correct and {wrong} all wrong"),
        },
        counted(refills, "refill round", "refill rounds")
    );
    let discarded = recorded.sum("effect/dynamic_sampling_discarded_surplus_groups");
    if let Some(count) = discarded.filter(|count| *count > 0.0) {
        let groups = counted(count, "useful group", "useful groups");
        evidence += &format!("; {groups} beyond the batch discarded");
    }
    let carried = recorded.last(CARRIED);
    if let Some(count) = carried.filter(|count| *count > 0.0) {
        let wait = if count == 1.0 { "waits" } else { "wait" };
        let groups = counted(count, "useful group", "useful groups");
        evidence += &format!("; {groups} beyond the batch still {wait}");
    }
    let filled: Vec<f64> = recorded.values("effect/dynamic_sampling_batch_filled_share").collect();
    let short = filled.iter().filter(|share| **share < 1.0).count();
    if short > 0 {
        let least = filled.iter().copied().fold(1.0, f64::min);
        evidence += &format!(
            "; at the cap {short} of {} steps trained on a batch that was not full (least {})",
            filled.len(),
            percent(least, 1.0)
        );
    }
    if !resamples(experiment) && useless > 0.0 {
        evidence += &format!("; {useless} groups of equal correctness were trained on");
        let dapo = &experiment.dapo;
        // Else rewards may differ where correctness does not, or equal rewards train.
        if experiment.reward.verifier.rule().is_some()
            && matches!((dapo.overlong.punishment, dapo.kl), (Punishment::None {}, Kl::None {}))
            && !dapo.rules().equal_rewards_train()
        {
            evidence += " and had no gradient";
        }
    }
    Some(((dropped > 0.0, evidence), dropped / groups))
}

fn counted(count: f64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1.0 { one } else { many })
}

fn token_level_loss(recorded: &Recorded) -> Option<(Seen, f64)> {
    let dapo = &recorded.experiment.dapo;
    let largest = recorded.highest("effect/token_level_loss_moved_share_max")?;
    let mean = recorded.mean("effect/token_level_loss_moved_share_mean")?;
    let longest = recorded.mean("effect/token_level_loss_longest_quarter_weight")?;
    let shortest = recorded.mean("effect/token_level_loss_shortest_quarter_weight")?;
    let acted = largest > ROUNDING;
    let mut evidence = if acted {
        format!(
            "{} of the loss weight (mean over steps) lies on other tokens than under the \
             response mean: the longest quarter of the responses weighs {longest:.2} times, the \
             shortest {shortest:.2} times as much",
            percent(mean, 1.0)
        )
    } else {
        "every response had the weight that the response mean gives it".to_string()
    };
    match (dapo.aggregation, dapo.token_mean_unit) {
        (Aggregation::TokenMean, TokenMeanUnit::MicroBatch) if !acted => {
            evidence += "; dapo.token_mean_unit = \"micro-batch\" with one response, or equal \
                         lengths, in each micro-batch is the response mean";
        }
        (Aggregation::TokenMean, _) if !acted => {
            evidence += "; the responses of each normalisation unit were equally long";
        }
        _ => {}
    }
    Some(((acted, evidence), mean))
}

fn overlong_filtering(recorded: &Recorded) -> Option<(Seen, f64)> {
    let masked = recorded.sum("effect/overlong_filtering_masked_rollouts")?;
    let tokens = recorded.sum("effect/overlong_filtering_masked_tokens")?;
    let truncated = recorded.sum("effect/overlong_filtering_truncated_rollouts")?;
    let trained = recorded.sum("train/rollouts")?;
    let evidence = format!(
        "{masked} of {trained} rollouts in the batches ({tokens} tokens) were masked; \
         {truncated} were truncated"
    );
    Some(((masked > 0.0, evidence), masked / trained))
}

fn is_soft(experiment: &Experiment) -> bool {
    matches!(experiment.dapo.overlong.punishment, Punishment::Soft { .. })
}

/// A penalty that reaches no advantage (the group was dropped, or its responses have the same penalty) trains nothing.
fn soft_punishment(recorded: &Recorded) -> Option<(Seen, f64)> {
    let experiment = recorded.experiment;
    let punishment = experiment.dapo.overlong.punishment;
    let punished = recorded.sum("effect/soft_punishment_punished_rollouts")?;
    let penalty = recorded.sum("effect/soft_punishment_penalty_sum")?;
    let moved = recorded.sum("effect/soft_punishment_moved_advantages")?;
    let generated = recorded.sum("rollout/generated_rollouts")?;
    let trained = recorded.sum("train/rollouts")?;
    let mut evidence = format!(
        "{punished} of {generated} responses ({}) were punished",
        percent(punished, generated)
    );
    if punished > 0.0 {
        evidence += &format!(", by {:.3} on average", -penalty / punished);
    }
    if let Punishment::Soft { cache_tokens, .. } = punishment {
        let begin = experiment.rollout.max_response_tokens.saturating_sub(cache_tokens);
        let due = recorded.sum("effect/soft_punishment_due_rollouts")?;
        evidence += &format!("; {due} were longer than L_max − L_cache = {begin} tokens");
        if let Some(longest) = recorded.highest("rollout/response_tokens_max") {
            evidence += &format!(", the longest {longest}");
        }
    }
    evidence += &format!("; {moved} of {trained} trained advantages moved");
    // Off: any penalty counts. On: the penalty must reach the training.
    let acted =
        if is_soft(experiment) { punished > 0.0 && moved > 0.0 } else { punished + moved > 0.0 };
    Some(((acted, evidence), punished / generated))
}

fn method(recorded: &Recorded) -> Option<EffectFinding> {
    let dapo = &recorded.experiment.dapo;
    dapo.method?;
    let seen = dapo.rules().effect(&|metric| recorded.mean(metric));
    Some(finding(dapo.method_name(), true, seen, None))
}

/// A rare effect must not print as 0.00 %.
fn percent(part: f64, of: f64) -> String {
    let share = if of == 0.0 { 0.0 } else { 100.0 * part / of };
    if share == 0.0 || share >= 0.01 {
        format!("{share:.2} %")
    } else {
        let decimals = (1.0 - share.log10().floor()) as usize;
        format!("{share:.decimals$} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_and_decimals_are_not() {
        let sentence = "127 of 711117 tokens (0.017859 %), 1705 groups; 12345678";
        let shown = "127 of 711,117 tokens (0.017859 %), 1,705 groups; 12,345,678";
        assert_eq!(grouped(sentence), shown);
        assert_eq!(grouped("0 of 3069, 999, 1.2843"), "0 of 3,069, 999, 1.2843");
        assert_eq!(grouped("none"), "none");
    }
}
