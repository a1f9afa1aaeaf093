//! What a step of another trainer did to its responses, and what of it the configuration does not explain.

use crate::algorithm::advantage;
use crate::base::visible;
use crate::engines::Trap;
use crate::engines::audited::dumps::DumpedResponse;
use crate::engines::audited::rewards::{ROUNDING, StepRewards};
use crate::engines::audited::stated::{StatedKey, StatedSettings};
use crate::engines::{dump, verl};
use crate::records::TrackedRun;
use crate::statistics::estimators;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const TOLD: usize = 3;

const MEAN_LENGTH: &str = "response_length/mean";
const MEAN_LENGTH_TRL: &str = "completions/mean_length";
const TRUNCATED: &str = "completions/clipped_ratio";
const LONGEST: &str = "response_length/max";

pub const LOGGED: [&str; 5] =
    [MEAN_LENGTH, MEAN_LENGTH_TRL, TRUNCATED, LONGEST, "critic/score/mean"];

/// Contradictions, numbers by name, and what cannot be told; a number that the files do not show is absent.
pub fn audited(
    step: u64,
    responses: &[DumpedResponse],
    stated: &StatedSettings,
    log: Option<&TrackedRun>,
) -> (Vec<Trap>, BTreeMap<&'static str, f64>, Option<String>) {
    let sources: BTreeSet<_> = responses.iter().map(|it| it.source.as_deref()).collect();
    let of_source = |source| StepRewards::of(responses, source, stated.is_sum());
    let rewards: Vec<StepRewards> = sources.into_iter().map(of_source).collect();
    let mut groups: BTreeMap<&str, Vec<&DumpedResponse>> = BTreeMap::new();
    for response in responses {
        groups.entry(&response.group).or_default().push(response);
    }
    let logged = |names: &[&str]| {
        let curve = names.iter().find_map(|name| log?.curves.get(*name))?;
        curve.iter().find(|(at, _)| *at == step as f64).map(|(_, value)| *value)
    };
    // verl's response_length/clip_ratio counts what is as long as the longest response of the batch.
    let truncated = logged(&[TRUNCATED]);
    let longest = logged(&[LONGEST]);
    let is_graded = responses.iter().all(|it| it.is_correct().is_some());
    let mut found = of_rewards(&rewards, is_graded, stated, longest);
    let not_finite = responses.iter().filter_map(|it| it.reward.filter(|it| !it.is_finite()));
    let not_finite: Vec<String> = not_finite.map(|it| it.to_string()).collect();
    if !not_finite.is_empty() {
        let kinds: BTreeSet<&str> = not_finite.iter().map(String::as_str).collect();
        let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
        let what = format!("{} rewards are not finite ({kinds})", not_finite.len());
        found.push(Contradiction { name: "not-finite", stated: &None, what });
    }
    let drawn = |group: &Vec<&DumpedResponse>| times_drawn(group, stated);
    let count = groups.values().map(drawn).sum::<usize>() as f64;
    let readings = readings(responses, &groups, stated);
    let counted = readings.first();
    let flat = |group: &Vec<&DumpedResponse>, counted: Option<&CountedRewards>| {
        Some(if is_flat(group, stated, counted)? { drawn(group) } else { 0 })
    };
    let is_held = log.is_some_and(|log| !log.notes.is_averaged && stated.is_held(log, step));
    let of_trl = |counted: &CountedRewards| {
        let (_, mean, rounding) = verl::outputs::of_scores(&counted.of_step)[0];
        let is_batch = stated.scale_rewards.as_ref().is_none_or(|(_, kind)| *kind == "batch");
        let is_exact = !is_batch && counted.of_step.iter().all(|it| it.fract() == 0.0);
        let has_std = |group: &&Vec<&DumpedResponse>| counted.of(*group).len() > 1;
        let all = groups.values().filter(has_std).map(|group| flat(group, Some(counted)));
        let share = all.sum::<Option<usize>>().filter(|_| is_exact).map(|flat| flat as f64 / count);
        let share = share.map(|share| ("frac_reward_zero_std", share, dump::SCORES_DIFFER));
        [("reward", mean, rounding)].into_iter().chain(share).collect::<Vec<_>>()
    };
    let flat: Option<usize> = groups.values().map(|group| flat(group, counted)).sum();
    let scores: Option<Vec<f64>> = responses.iter().map(|it| it.reward).collect();
    let is_of_all = log.is_some_and(|it| !it.notes.is_averaged)
        && logged(&["response/aborted_ratio"]).is_none_or(|share| share == 0.0);
    let of_verl = scores.filter(|_| is_of_all).map(|it| verl::outputs::of_scores(&it).to_vec());
    let differing = readings.iter().map(|counted| {
        let of_trl = is_held.then(|| of_trl(counted));
        let numbers: Vec<_> = of_verl.iter().cloned().chain(of_trl).flatten().collect();
        dump::differing(responses.len(), &numbers, |name| logged(&[name]))
    });
    let differing = differing.collect::<Option<Vec<String>>>().unwrap_or_default();
    found.extend(differing.into_iter().next().map(|what| Contradiction {
        name: "log-differs",
        stated: &None,
        what,
    }));
    let failed = logged(&["training/rollout_failure/evicted_samples"]).unwrap_or(0.0);
    let batch_size = stated.batch_size.as_ref().and_then(|(_, value)| value.as_f64());
    let is_fixed = is(&stated.filter, false) && stated.group_size.is_some();
    if batch_size.is_some_and(|size| is_fixed && size != count + failed) {
        let what = format!("has {count} groups");
        found.push(Contradiction { name: "batch-size", stated: &stated.batch_size, what });
    }
    let shared = shared_start(responses);
    for group in groups.values() {
        let prompt: String = group[0].prompt[shared..].chars().take(60).collect();
        let of_group = of_group(group, stated, is_graded, counted).into_iter();
        found.extend(
            of_group.map(|it| Contradiction { what: format!("{prompt:?} {}", it.what), ..it }),
        );
    }
    let correct = responses.iter().filter(|it| it.is_correct() == Some(true)).count();
    let is_rewarded = rewards.iter().any(|it| !it.responses.is_empty());
    let lowered = is_rewarded.then(|| rewards.iter().map(StepRewards::lowered).sum());
    let merged = groups.values().find(|group| drawn(group) > 1).map(|group| {
        let (prompt, count) = (visible::shortened(&group[0].prompt[shared..], 60), group.len());
        format!(
            "step {step}: groups of one prompt cannot be told apart without `uid`: {prompt:?} has {count} responses"
        )
    });
    let graded = |count: usize| is_graded.then_some(count as f64);
    let numbers = [
        ("responses", Some(responses.len() as f64)),
        ("groups", Some(count)),
        ("no gradient", flat.map(|count| count as f64)),
        ("correct", graded(correct)),
        ("lowered", lowered.and_then(graded)),
        ("truncated", truncated),
        ("tokens", logged(&[MEAN_LENGTH, MEAN_LENGTH_TRL])),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    (traps(step, found), numbers, merged)
}

struct Contradiction<'a> {
    name: &'static str,
    stated: &'a StatedKey,
    what: String,
}

fn of_rewards<'a>(
    rewards: &[StepRewards],
    is_graded: bool,
    stated: &'a StatedSettings,
    longest: Option<f64>,
) -> Vec<Contradiction<'a>> {
    let number = |stated: &StatedKey| stated.as_ref()?.1.as_f64();
    let limits = number(&stated.longest_response).zip(number(&stated.penalty_zone));
    let texts = rewards.iter().flat_map(|it| &it.responses);
    let texts = texts.map(|it| it.0.length).max().unwrap_or(0) as f64;
    let is_shown = longest.zip(limits).is_some_and(|(longest, (most, zone))| {
        let characters = texts * (most - zone) / longest;
        longest > most - zone && rewards.iter().any(|it| it.shows_penalties(characters))
    });
    let unlowered = is_graded && is_shown && rewards.iter().all(|it| it.lowered() == 0);
    let unapplied: usize = rewards.iter().map(StepRewards::unapplied).sum();
    let kept = format!(
        "{unapplied} responses have an `overlong_reward` below 0, and the reward of those without it"
    );
    let punished = rewards.iter().map(StepRewards::punished_for_length);
    let punished: usize = punished.filter(|_| is_graded).sum();
    let penalty = &stated.length_penalty;
    let long = "a response is longer than max_response_length without the buffer, and no reward is lowered";
    let lowered = format!(
        "{punished} rewards of correct responses are lowered, all of longer texts than the others' mean"
    );
    let mut found = Vec::new();
    let mut add = |holds: bool, name, stated, what: &str| {
        found.extend(holds.then(|| Contradiction { name, stated, what: what.to_string() }));
    };
    let missing = if unapplied > 0 { &kept } else { long };
    let is_missing = unlowered || unapplied > 0;
    add(is(penalty, true) && is_missing, "no-length-penalty", penalty, missing);
    add(is(penalty, false) && punished > 0, "length-penalty", penalty, &lowered);
    for it in rewards {
        let of = it.source.map(|source| format!(" of {source:?}")).unwrap_or_default();
        let otherwise = it.count(|one| it.is_otherwise(one));
        let against = it.count(|one| one.0.theirs.is_some() && it.is_contradicted(one));
        let graded = format!("{otherwise} responses{of} are graded otherwise");
        let rewarded =
            format!("{against} responses{of} have a reward that contradicts their `acc`");
        add(otherwise > 0, "graded-otherwise", &None, &graded);
        add(against > 0, "rewarded-otherwise", &None, &rewarded);
    }
    found
}

fn of_group<'a>(
    group: &[&DumpedResponse],
    stated: &'a StatedSettings,
    is_graded: bool,
    counted: Option<&CountedRewards>,
) -> Vec<Contradiction<'a>> {
    let StatedSettings { group_size, filter, filter_metric, scale_rewards, .. } = stated;
    let is_mixed = group.iter().any(|it| it.prompt != group[0].prompt);
    let wanted = group_size.as_ref().and_then(|(_, value)| value.as_u64());
    let sessions: BTreeSet<&String> = group.iter().filter_map(|it| it.session.as_ref()).collect();
    let is_whole = wanted.is_none_or(|wanted| match sessions.len() as u64 {
        0 => (group.len() as u64).is_multiple_of(wanted),
        count => count == wanted,
    });
    let advantages = || group.iter().filter_map(|it| it.advantage);
    let rounding = 1e-3 * advantages().map(f64::abs).sum::<f64>() + 1e-6;
    let is_centred = advantages().sum::<f64>().abs() <= rounding;
    let is_even = is_graded && group.iter().all(|it| it.is_correct() == group[0].is_correct());
    let flat = is_flat(group, stated, counted).filter(|_| is(filter, true) && is_even);
    let mut found = Vec::new();
    let mut add = |holds: bool, name, stated, what: &str| {
        found.extend(holds.then(|| Contradiction { name, stated, what: what.to_string() }));
    };
    add(is_mixed, "mixed-group", group_size, "has responses to another prompt in its group");
    add(!is_whole, "group-size", group_size, &format!("has {} responses", group.len()));
    add(!is_centred, "advantage", group_size, "has advantages that do not sum to 0");
    let is_other =
        counted.and_then(|counted| are_of_rewards(group, stated, counted)) == Some(false);
    let others = "has advantages that are not those of its rewards";
    add(is_centred && is_other, "advantage", scale_rewards, others);
    add(flat == Some(true), "no-filter", filter, "trained, all correct or all wrong");
    let by_rewards = "trained, all correct or all wrong, by rewards that differ";
    add(flat == Some(false), "filter-metric", filter_metric, by_rewards);
    found
}

fn times_drawn(group: &[&DumpedResponse], stated: &StatedSettings) -> usize {
    let size = stated.group_size.as_ref().and_then(|(_, value)| value.as_u64());
    let size = size.filter(|_| group.iter().all(|it| it.session.is_none())).map(|it| it as usize);
    size.filter(|size| group.len().is_multiple_of(*size)).map_or(1, |size| group.len() / size)
}

/// TRL 1.16.0 leaves out a response that no function rewards (`None`), versions before it may count it as 0.
struct CountedRewards {
    unrewarded: Option<f64>,
    of_step: Vec<f64>,
}

impl CountedRewards {
    fn of<'a>(&self, responses: impl IntoIterator<Item = &'a &'a DumpedResponse>) -> Vec<f64> {
        responses.into_iter().filter_map(|it| it.reward.or(self.unrewarded)).collect()
    }
}

fn readings(
    responses: &[DumpedResponse],
    groups: &BTreeMap<&str, Vec<&DumpedResponse>>,
    stated: &StatedSettings,
) -> Vec<CountedRewards> {
    let is_known = responses.iter().any(|it| it.reward.is_some());
    let reading = |unrewarded: Option<f64>| {
        let of_step = responses.iter().filter_map(|it| it.reward.or(unrewarded)).collect();
        let counted = CountedRewards { unrewarded, of_step };
        let is_other = |group: &&Vec<_>| are_of_rewards(group, stated, &counted) == Some(false);
        (groups.values().filter(is_other).count(), counted)
    };
    let readings = [None, Some(0.0)].into_iter().filter(|_| is_known).map(reading);
    let readings: Vec<(usize, CountedRewards)> = readings.collect();
    let fewest = readings.iter().map(|it| it.0).min();
    readings.into_iter().filter(|it| Some(it.0) == fewest).map(|it| it.1).collect()
}

/// As TRL 1.16.0 makes advantages (trl/trainer/grpo_trainer.py), up to the rounding of f32; where the scale is not
/// stated, in proportion.
fn are_of_rewards(
    group: &[&DumpedResponse],
    stated: &StatedSettings,
    counted: &CountedRewards,
) -> Option<bool> {
    const EPSILON: f64 = 1e-4;
    let size = stated.group_size.as_ref()?.1.as_u64()?;
    let advantages: Vec<f64> = group.iter().map(|it| it.advantage).collect::<Option<_>>()?;
    let rewards = counted.of(group);
    let is_finite = counted.of_step.iter().all(|it| it.is_finite());
    if size < 2 || size != group.len() as u64 || !is_finite {
        return None;
    }
    let mut centred = advantage::centred(&rewards).into_iter();
    let expected = |it: &&DumpedResponse| {
        it.reward.or(counted.unrewarded).and_then(|_| centred.next()).unwrap_or(0.0)
    };
    let centred: Vec<f64> = group.iter().map(expected).collect();
    let product = |other: &[f64]| centred.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
    let deviation = |values: &[f64]| {
        let count = values.len() as f64;
        if count < 2.0 { 0.0 } else { estimators::standard_error_of_mean(values) * count.sqrt() }
    };
    let slope = match stated.scale_rewards.as_ref().and_then(|it| it.1.as_str()) {
        Some("group") => 1.0 / (deviation(&rewards) + EPSILON),
        Some("batch") => 1.0 / (deviation(&counted.of_step) + EPSILON),
        Some("none") => 1.0,
        _ if product(&centred) == 0.0 => 1.0 / EPSILON,
        _ => product(&advantages) / product(&centred),
    };
    let most = rewards.iter().fold(0.0, |most: f64, it| most.max(it.abs()));
    let mut pairs = centred.iter().zip(&advantages);
    let is_own = |(centred, own): (&f64, &f64)| {
        (own - slope * centred).abs() <= 1e-3 * (1.0 + own.abs()) + 1e-6 * most * slope
    };
    Some(slope > 0.0 && pairs.all(is_own))
}

/// Without a gradient; `None` where that is not known.
fn is_flat(
    group: &[&DumpedResponse],
    stated: &StatedSettings,
    counted: Option<&CountedRewards>,
) -> Option<bool> {
    let rewards = counted?.of(group);
    let is_flat = rewards.iter().all(|reward| (reward - rewards[0]).abs() < ROUNDING);
    (is_flat || times_drawn(group, stated) == 1).then_some(is_flat)
}

fn is(stated: &StatedKey, wanted: bool) -> bool {
    stated.as_ref().is_some_and(|(_, value)| *value == wanted)
}

fn traps(step: u64, found: Vec<Contradiction>) -> Vec<Trap> {
    let mut counts = BTreeMap::<&str, usize>::new();
    let mut traps = Vec::new();
    for Contradiction { name, stated, what } in found {
        let count = counts.entry(name).or_default();
        *count += 1;
        if *count <= TOLD {
            let (key, value) = stated.clone().unwrap_or(("reward", Value::from("as dumped")));
            let what = format!("step {step}: {what}");
            traps.push(Trap { name, key: key.to_string(), value, what });
        }
    }
    for trap in traps.iter_mut().rev() {
        let more = counts.remove(trap.name).map_or(0, |count| count.saturating_sub(TOLD));
        if more > 0 {
            trap.what += &format!(" (and {more} more of step {step})");
        }
    }
    traps
}

/// Bytes with which every prompt begins, such as a template: what tells them apart comes after.
fn shared_start(responses: &[DumpedResponse]) -> usize {
    let Some((first, rest)) = responses.split_first() else { return 0 };
    let differs = |prompt: &str| {
        let mut pairs = first.prompt.char_indices().zip(prompt.chars());
        let other = pairs.find(|((_, own), other)| own != other).map(|((at, _), _)| at);
        // One prompt may be the beginning of another.
        other.or((*prompt != *first.prompt).then(|| prompt.len().min(first.prompt.len())))
    };
    rest.iter().filter_map(|it| differs(&it.prompt)).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(prompt: &str, session: Option<String>) -> DumpedResponse {
        DumpedResponse {
            step: 1,
            group: String::new(),
            session,
            source: None,
            prompt: prompt.to_string(),
            length: 0,
            reward: None,
            penalty: None,
            advantage: None,
            ours: None,
            theirs: None,
        }
    }

    fn of_groups(size: u64) -> StatedSettings {
        let group_size = Some(("actor_rollout_ref.rollout.n", size.into()));
        StatedSettings { group_size, ..StatedSettings::default() }
    }

    fn key(value: impl Into<Value>) -> StatedKey {
        Some(("key", value.into()))
    }

    fn shared(prompts: &[&str]) -> usize {
        shared_start(&prompts.iter().map(|prompt| response(prompt, None)).collect::<Vec<_>>())
    }

    #[test]
    fn no_reward_shows_no_penalty() {
        let (reward, penalty) = (Some(-0.5), Some(-0.5));
        let punished = [DumpedResponse { reward, penalty, ..response("q", None) }];
        assert!(StepRewards::of(&punished, None, false).shows_penalties(0.0));
        assert!(!StepRewards::of(&[], None, false).shows_penalties(0.0));
    }

    #[test]
    fn a_group_with_uids_has_each_sample_once() {
        let stated = of_groups(2);
        for (sessions, is_found) in [
            ([None; 4], false),
            ([Some(0), Some(1), Some(2), Some(3)], true),
            ([Some(0), Some(0), Some(1), Some(1)], false),
        ] {
            let of = |session: Option<u64>| response("q", session.map(|it| format!("u_{it}")));
            let (traps, ..) = audited(1, &sessions.map(of), &stated, None);
            assert_eq!(traps.iter().any(|it| it.name == "group-size"), is_found, "{sessions:?}");
        }
    }

    #[test]
    fn what_all_prompts_begin_with_is_no_longer_than_the_shortest() {
        assert_eq!(shared(&["solve: é1", "solve: é2", "solve: é1"]), "solve: é".len());
        assert_eq!(shared(&["abcdef", "ab", "abcdex"]), 2);
        assert_eq!(shared(&["ab", "abc"]), 2);
        assert_eq!([shared(&["same", "same"]), shared(&[])], [0, 0]);
    }

    fn log(values: &[(&str, f64)]) -> TrackedRun {
        let curves = values.iter().map(|(name, value)| (name.to_string(), vec![(1.0, *value)]));
        TrackedRun {
            name: String::new(),
            path: "log".into(),
            seed: None,
            curves: curves.collect(),
            seconds: BTreeMap::new(),
            unread: BTreeMap::new(),
            replaced: BTreeMap::new(),
            notes: Default::default(),
        }
    }

    #[test]
    fn half_of_a_step_and_the_log_of_another_are_found() {
        let stated = |is_filtered: bool| StatedSettings {
            batch_size: key(2),
            filter: key(is_filtered),
            ..of_groups(2)
        };
        let rewarded = |prompt: &str, reward: f64| DumpedResponse {
            group: prompt.to_string(),
            reward: Some(reward),
            ..response(prompt, None)
        };
        let all = [rewarded("p", 1.0), rewarded("p", 0.0), rewarded("q", 1.0), rewarded("q", 1.0)];
        let mean = |value: f64| ("critic/score/mean", value);
        for (count, is_filtered, values, expected) in [
            (4, false, vec![mean(0.75), ("critic/score/min", 0.0)], vec![]),
            (2, false, vec![mean(0.75)], vec!["log-differs", "batch-size"]),
            (2, true, vec![mean(0.5)], vec![]),
            (2, false, vec![("training/rollout_failure/evicted_samples", 1.0)], vec![]),
            (4, false, vec![mean(0.75), ("critic/score/max", 0.5)], vec!["log-differs"]),
            (4, false, vec![mean(0.5), ("response/aborted_ratio", 0.25)], vec![]),
        ] {
            let (traps, ..) = audited(1, &all[..count], &stated(is_filtered), Some(&log(&values)));
            assert_eq!(traps.iter().map(|it| it.name).collect::<Vec<_>>(), expected, "{values:?}");
        }
    }

    fn of(rows: &[(usize, bool, f64, Option<f64>)], stated: &StatedSettings) -> (f64, Vec<String>) {
        let rows = rows.iter().map(|(length, ours, reward, penalty)| DumpedResponse {
            length: *length,
            ours: Some(*ours),
            reward: Some(*reward),
            penalty: *penalty,
            ..response("q", None)
        });
        let log = log(&[(LONGEST, 100.0)]);
        let (traps, numbers, _) = audited(1, &rows.collect::<Vec<_>>(), stated, Some(&log));
        let told = traps.into_iter().map(|it| format!("{}: {}", it.name, it.what));
        (numbers["lowered"], told.collect())
    }

    #[test]
    fn rewards_are_grades_only_where_they_have_two_levels() {
        let stated = StatedSettings::default();
        let otherwise = |rows: &[(usize, bool, f64)]| {
            let rows: Vec<_> = rows.iter().map(|it| (it.0, it.1, it.2, None)).collect();
            of(&rows, &stated)
        };
        let none: Vec<String> = Vec::new();
        let one = vec!["graded-otherwise: step 1: 1 responses are graded otherwise".to_string()];
        for (rows, lowered, told) in [
            (&[(9, false, -1.0), (9, false, 0.0), (9, true, 1.0)][..], 1.0, &none),
            (&[(9, false, -1.0), (9, false, 0.0)], 1.0, &none),
            (&[(9, false, 0.1), (9, true, 1.1), (9, true, 1.0)], 1.0, &none),
            (&[(9, false, 0.0), (9, true, 1.0), (90, true, 0.0)], 1.0, &none),
            (&[(9, false, 0.0), (9, true, 1.0), (9, true, 0.0)], 0.0, &one),
            (&[(9, false, -1.0), (9, false, 1.0), (9, true, 1.0)], 0.0, &one),
        ] {
            assert_eq!(otherwise(rows), (lowered, told.clone()), "{rows:?}");
        }
        let half_right = [(9, false, -1.0), (9, false, 0.0), (9, false, 1.0), (9, true, 1.0)];
        assert_eq!(otherwise(&half_right).1, one);
        assert_eq!(otherwise(&[(9, false, -1.0), (9, true, -1.0)]).1, one);
        let stated = StatedSettings { reward_weights: vec![1.0, 1.0], ..StatedSettings::default() };
        assert_eq!(of(&[(9, true, 1.0, None), (9, false, 1.0, None)], &stated).1, none);
    }

    fn of_source(
        source: &str,
        group: &str,
        length: usize,
        right: bool,
        reward: f64,
    ) -> DumpedResponse {
        DumpedResponse {
            source: (!source.is_empty()).then(|| source.to_string()),
            group: group.to_string(),
            length,
            ours: Some(right),
            reward: Some(reward),
            ..response("q", None)
        }
    }

    #[test]
    fn rewards_of_another_scale_are_not_lowered() {
        let stated = StatedSettings { length_penalty: key(false), ..StatedSettings::default() };
        for (sources, high, low) in [(["a", "b"], 5.0, 0.0), (["", ""], 1.0, 0.0)] {
            let rows = |group: &str, source: &str, length: usize, high, low| {
                [(length, true, high), (length + 9, true, high), (length, false, low)]
                    .map(|(length, right, reward)| of_source(source, group, length, right, reward))
                    .into_iter()
                    .chain([of_source(source, group, length + 5, false, low)])
                    .collect::<Vec<_>>()
            };
            let first = rows("g", sources[0], 90, 1.0, -1.0);
            let second = rows("h", sources[1], 10, high, low);
            let all: Vec<_> = first.into_iter().chain(second).collect();
            let (traps, numbers, _) = audited(1, &all, &stated, None);
            assert_eq!((numbers["lowered"], traps.len()), (0.0, 0), "{sources:?}: {traps:?}");
        }
    }

    #[test]
    fn a_reward_that_contradicts_acc_is_found_whatever_our_grade() {
        let row = |length, theirs, reward| DumpedResponse {
            theirs: Some(theirs),
            ..of_source("", "g", length, theirs, reward)
        };
        for (length, right, reward, expected) in [
            (9, true, -1.0, vec!["rewarded-otherwise"]),
            (9, false, 1.0, vec!["rewarded-otherwise"]),
            (99, true, -1.0, vec![]),
            (9, true, 1.0, vec![]),
        ] {
            for is_graded in [true, false] {
                let mut rows =
                    [row(20, true, 1.0), row(30, false, -1.0), row(length, right, reward)];
                rows.iter_mut().for_each(|it| it.ours = it.ours.filter(|_| is_graded));
                let (traps, ..) = audited(1, &rows, &StatedSettings::default(), None);
                assert_eq!(traps.iter().map(|it| it.name).collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn advantages_are_those_of_the_rewards() {
        for (scale, advantages, expected) in [
            ("group", [1.5, -0.5, -0.5, -0.5].map(|it: f64| it / 2.0), false),
            ("group", [1.5 / 1.0001, -0.5 / 1.0001, -0.5 / 1.0001, -0.5 / 1.0001], true),
            ("group", [-1.5 / 1.0001, 0.5 / 1.0001, 0.5 / 1.0001, 0.5 / 1.0001], false),
            ("none", [1.5, -0.5, -0.5, -0.5], true),
            ("none", [0.75, -0.25, -0.25, -0.25], false),
            ("", [0.75, -0.25, -0.25, -0.25], true),
            ("", [-0.75, 0.25, 0.25, 0.25], false),
            ("", [0.0; 4], false),
        ] {
            let stated = StatedSettings { scale_rewards: key(scale), ..of_groups(4) };
            let row = |(advantage, reward): (f64, f64)| DumpedResponse {
                advantage: Some(advantage),
                reward: Some(reward),
                ..response("q", None)
            };
            let pairs = advantages.into_iter().zip([1.0, -1.0, -1.0, -1.0]);
            let rows: Vec<DumpedResponse> = pairs.map(row).collect();
            let (traps, ..) = audited(1, &rows, &stated, None);
            assert_eq!(traps.is_empty(), expected, "{scale} {advantages:?}: {traps:?}");
        }
        let stated = StatedSettings { scale_rewards: key("batch"), ..of_groups(2) };
        let rows = |sign: f64| {
            [("g", 1.0, 0.5), ("g", 0.0, -0.5), ("h", 0.0, 0.0), ("h", 0.0, 0.0)].map(
                |(group, reward, centred): (&str, f64, f64)| DumpedResponse {
                    advantage: Some(sign * centred / (0.5 + 1e-4)),
                    ..of_source("", group, 1, reward > 0.5, reward)
                },
            )
        };
        for (sign, count) in [(1.0, 0), (-1.0, 1)] {
            assert_eq!(audited(1, &rows(sign), &stated, None).0.len(), count);
        }
    }

    #[test]
    fn a_response_that_no_function_rewards_is_left_out_or_counts_as_0() {
        const GROUPS: [[Option<f64>; 4]; 3] = [
            [Some(1.0), Some(0.0), Some(1.0), None],
            [Some(1.0), None, Some(1.0), Some(1.0)],
            [None; 4],
        ];
        let rows = |advantages: [[f64; 4]; 3]| {
            let rows = GROUPS.iter().flatten().zip(advantages.into_iter().flatten()).enumerate();
            let row = |(place, (reward, advantage)): (usize, (&Option<f64>, f64))| DumpedResponse {
                group: (place / 4).to_string(),
                reward: *reward,
                advantage: Some(advantage),
                ..response("q", None)
            };
            rows.map(row).collect::<Vec<DumpedResponse>>()
        };
        let [third, half] = [1.0 / 3.0, 0.5];
        let left_out = [[third, -2.0 * third, third, 0.0], [0.0; 4], [0.0; 4]];
        let as_0 = [[half, -half, half, -half], [0.25, -0.75, 0.25, 0.25], [0.0; 4]];
        let neither = [[half, -half, half, -half], [0.0; 4], [0.0; 4]];
        let [deviation_of_group, deviation_of_step] =
            [third, 1.0 / 6.0].map(|it: f64| it.sqrt() + 1e-4);
        let scaled = |by: f64| left_out.map(|group| group.map(|it| it / by));
        for (scale, advantages, expected, flat) in [
            ("none", left_out, 0, 2.0),
            ("none", as_0, 0, 1.0),
            ("none", neither, 1, 2.0),
            ("", left_out, 0, 2.0),
            ("group", scaled(deviation_of_group), 0, 2.0),
            ("batch", scaled(deviation_of_step), 0, 2.0),
            ("batch", scaled(deviation_of_group), 1, 2.0),
        ] {
            let is_one_generation = true;
            let scale_rewards = key(scale);
            let stated = StatedSettings { scale_rewards, is_one_generation, ..of_groups(4) };
            let of_log = |reward, share| {
                let log = log(&[("reward", reward), ("frac_reward_zero_std", share)]);
                audited(1, &rows(advantages), &stated, Some(&log))
            };
            let is_as_0 = advantages == as_0;
            let own = if is_as_0 { (5.0 / 12.0, third) } else { (5.0 / 6.0, third) };
            let (traps, numbers, _) = of_log(own.0, own.1);
            assert_eq!(traps.len(), expected, "{scale} {advantages:?}: {traps:?}");
            assert_eq!(numbers["no gradient"], flat, "{scale} {advantages:?}");
            assert_eq!(of_log(own.0 - 0.01, own.1).0.len(), expected + 1);
        }
    }

    #[test]
    fn the_log_of_trl_is_held_against_completions_of_one_generation() {
        let rows = [("g", 1.0), ("g", 0.0), ("h", 1.0), ("h", 1.0)]
            .map(|(group, reward)| of_source("", group, 1, reward > 0.5, reward));
        for (is_one_generation, scale, reward, share, expected) in [
            (true, "group", 0.75, 0.5, 0),
            (true, "group", 0.5, 0.5, 1),
            (true, "group", 0.75, 0.25, 1),
            (true, "batch", 0.75, 0.0, 0),
            (false, "group", 0.5, 0.25, 0),
        ] {
            let scale_rewards = key(scale);
            let stated = StatedSettings { scale_rewards, is_one_generation, ..of_groups(2) };
            let log = log(&[("reward", reward), ("frac_reward_zero_std", share)]);
            let count = audited(1, &rows, &stated, Some(&log)).0.len();
            assert_eq!(count, expected, "{reward} {share}");
            assert_eq!(stated.is_held(&log, 1), is_one_generation);
            assert!(!stated.is_held(&log, 2));
        }
    }

    #[test]
    fn a_length_penalty_is_missed_only_where_it_would_show() {
        let stated = StatedSettings {
            length_penalty: key(true),
            longest_response: key(100),
            penalty_zone: key(20),
            ..StatedSettings::default()
        };
        let is_missed = |rows: &[(usize, bool, f64, Option<f64>)]| {
            of(rows, &stated).1.iter().any(|it| it.starts_with("no-length-penalty"))
        };
        let right = (9, true, 1.0, None);
        assert!(!is_missed(&[right, (100, false, -2.0, None)]));
        assert!(is_missed(&[right, (9, false, -1.0, None), (100, false, -1.0, None)]));
        assert!(is_missed(&[(9, true, 1.0, Some(0.0)), (100, false, -1.0, Some(0.0))]));
        let wrong = (100, false, -1.5, Some(-0.5));
        let (short, long) = ((9, true, 1.0, Some(0.0)), (100, true, 1.0, Some(-0.5)));
        for (rows, lowered, missed) in [
            (vec![short, (9, false, -1.0, Some(0.0)), long], 0.0, true),
            (vec![short, long, (9, false, -1.0, Some(0.0)), wrong], 1.0, true),
            (vec![short, (100, true, 0.5, Some(-0.5)), wrong], 2.0, false),
            (
                vec![
                    (9, true, 0.6, Some(0.0)),
                    (9, true, 0.5, Some(0.0)),
                    (100, true, 0.5, Some(-0.5)),
                ],
                2.0,
                false,
            ),
            (vec![short, wrong, wrong], 2.0, false),
        ] {
            assert_eq!((of(&rows, &stated).0, is_missed(&rows)), (lowered, missed), "{rows:?}");
        }
        assert!(!is_missed(&[(9, true, 1.0, Some(0.0)), (100, false, -2.0, Some(-1.0))]));
    }

    #[test]
    fn rewards_that_are_not_finite_are_named_and_are_no_level() {
        let row = |reward: f64| (9, true, reward, None);
        let rows = [row(1.0), row(f64::INFINITY), row(f64::NAN), (9, false, 0.0, None)];
        let expected = "not-finite: step 1: 2 rewards are not finite (NaN, inf)";
        assert_eq!(of(&rows, &StatedSettings::default()), (0.0, vec![expected.to_string()]));
    }

    #[test]
    fn a_prompt_that_is_drawn_twice_counts_as_two_groups_whose_gradient_may_be_unknown() {
        let stated = of_groups(2);
        for (rewards, flat) in [([1.0; 4], Some(2.0)), ([1.0, 1.0, 0.0, 0.0], None)] {
            let rewarded = |it| DumpedResponse { reward: Some(it), ..response("q", None) };
            let (traps, numbers, told) = audited(1, &rewards.map(rewarded), &stated, None);
            assert!(traps.is_empty() && told.is_some_and(|it| it.contains("has 4 responses")));
            assert_eq!((numbers["groups"], numbers.get("no gradient").copied()), (2.0, flat));
        }
    }
}
