//! What a step of another trainer did to its responses, and what of it the configuration does not explain.

use crate::engines::Trap;
use crate::engines::audited::dumps::DumpedResponse;
use crate::engines::audited::stated::{StatedKey, StatedSettings};
use crate::records::TrackedRun;
use crate::statistics::estimators;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Groups of a step that are named for each contradiction.
const TOLD: usize = 3;

type Rewarded<'a> = (&'a DumpedResponse, f64);

/// The rewards of a step, each beside those of the same correctness.
struct StepRewards<'a> {
    responses: Vec<Rewarded<'a>>,
    /// The largest reward of wrong and of right responses.
    most: [f64; 2],
    floor: f64,
}

impl<'a> StepRewards<'a> {
    /// `None` where a reward is not known.
    fn of(responses: &'a [DumpedResponse]) -> Option<Self> {
        let rewarded = responses.iter().map(|it| Some((it, it.reward?)));
        let responses: Vec<Rewarded> = rewarded.collect::<Option<_>>()?;
        // A length penalty of less than 2 leaves correct responses of ±1 above −1.
        let floor = if responses.iter().any(|it| it.1 < 0.0) { -1.0 } else { 0.0 };
        let mut rewards = Self { responses, most: [f64::NEG_INFINITY; 2], floor };
        for it in &rewards.responses {
            let most = &mut rewards.most[usize::from(is_right(it, floor))];
            *most = most.max(it.1);
        }
        Some(rewards)
    }

    fn is_right(&self, rewarded: &Rewarded) -> bool {
        is_right(rewarded, self.floor)
    }

    fn is_lowered(&self, rewarded: &Rewarded) -> bool {
        rewarded.1 < self.most[usize::from(self.is_right(rewarded))] - 1e-6
    }

    fn count(&self, holds: impl Fn(&Rewarded) -> bool) -> usize {
        self.responses.iter().filter(|it| holds(it)).count()
    }

    /// Right responses whose reward is lowered, if all of them are longer than the others' mean; partial credit
    /// tells right responses apart whatever their length.
    fn punished_for_length(&self) -> usize {
        let right = || self.responses.iter().filter(|it| self.is_right(it));
        let (lowered, whole): (Vec<_>, Vec<_>) = right().partition(|it| self.is_lowered(it));
        let lengths: Vec<f64> = whole.iter().map(|(it, _)| it.length as f64).collect();
        let usual = if lengths.is_empty() { 0.0 } else { estimators::mean(&lengths) };
        let is_of_length = lowered.iter().all(|(it, _)| it.length as f64 > usual);
        if is_of_length { lowered.len() } else { 0 }
    }
}

/// By the trainer's `acc`, else by the reward.
fn is_right((response, reward): &Rewarded, floor: f64) -> bool {
    response.theirs.unwrap_or(*reward > floor)
}

/// Contradictions, and numbers by name; a number that the files do not show is absent.
pub fn audited(
    step: u64,
    responses: &[DumpedResponse],
    stated: &StatedSettings,
    log: Option<&TrackedRun>,
) -> (Vec<Trap>, BTreeMap<&'static str, f64>) {
    let rewards = StepRewards::of(responses);
    let mut groups: BTreeMap<&str, Vec<&DumpedResponse>> = BTreeMap::new();
    for response in responses {
        groups.entry(&response.group).or_default().push(response);
    }
    let logged = |names: &[&str]| {
        let curve = names.iter().find_map(|name| log?.curves.get(*name))?;
        curve.iter().find(|(at, _)| *at == step as f64).map(|(_, value)| *value)
    };
    // verl's response_length/clip_ratio counts what is as long as the longest response of the batch.
    let truncated = logged(&["completions/clipped_ratio"]);
    let longest = logged(&["response_length/max"]);
    let is_graded = responses.iter().all(|it| it.is_correct().is_some());
    let mut found = match &rewards {
        Some(rewards) => of_rewards(rewards, is_graded, stated, truncated, longest),
        None => Vec::new(),
    };
    let shared = shared_start(responses);
    for group in groups.values() {
        let prompt: String = group[0].prompt[shared..].chars().take(60).collect();
        let of_group = of_group(group, stated, is_graded).into_iter();
        found.extend(
            of_group.map(|it| Contradiction { what: format!("{prompt:?} {}", it.what), ..it }),
        );
    }
    let correct = responses.iter().filter(|it| it.is_correct() == Some(true)).count();
    let lowered = rewards.map(|rewards| rewards.count(|it| rewards.is_lowered(it)));
    let flat: Option<Vec<bool>> = groups.values().map(|group| is_flat(group)).collect();
    let flat = flat.map(|flat| flat.into_iter().filter(|is_flat| *is_flat).count() as f64);
    let graded = |count: usize| is_graded.then_some(count as f64);
    let numbers = [
        ("responses", Some(responses.len() as f64)),
        ("groups", Some(groups.len() as f64)),
        ("no gradient", flat),
        ("correct", graded(correct)),
        ("lowered", lowered.and_then(graded)),
        ("truncated", truncated),
        ("tokens", logged(&["response_length/mean", "completions/mean_length"])),
    ];
    let numbers = numbers.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    (traps(step, found), numbers)
}

struct Contradiction<'a> {
    name: &'static str,
    stated: &'a StatedKey,
    what: String,
}

fn of_rewards<'a>(
    rewards: &StepRewards,
    is_graded: bool,
    stated: &'a StatedSettings,
    truncated: Option<f64>,
    longest: Option<f64>,
) -> Vec<Contradiction<'a>> {
    let number = |stated: &StatedKey| stated.as_ref()?.1.as_f64();
    let limits = number(&stated.longest_response).zip(number(&stated.penalty_zone));
    let is_due = longest.zip(limits).is_some_and(|(longest, (most, zone))| longest > most - zone);
    let lowered = rewards.count(|it| rewards.is_lowered(it));
    let unlowered = is_graded && lowered == 0 && (is_due || truncated > Some(0.0));
    let punished = if is_graded { rewards.punished_for_length() } else { 0 };
    let not_finite = rewards.count(|it| !it.1.is_finite());
    let otherwise = rewards.count(|it| it.0.ours.is_some_and(|ours| ours != rewards.is_right(it)));
    let penalty = &stated.length_penalty;
    let mut found = Vec::new();
    let mut add = |holds: bool, name, stated, what: String| {
        found.extend(holds.then_some(Contradiction { name, stated, what }));
    };
    add(
        is(penalty, true) && unlowered,
        "no-length-penalty",
        penalty,
        "a response is longer than max_response_length without the buffer, and no reward is lowered".to_string(),
    );
    add(
        is(penalty, false) && punished > 0,
        "length-penalty",
        penalty,
        format!(
            "{punished} rewards of correct responses are lowered, all of longer texts than the others' mean"
        ),
    );
    add(not_finite > 0, "not-finite", &None, format!("{not_finite} rewards are not finite"));
    add(
        otherwise > 0,
        "graded-otherwise",
        &None,
        format!("{otherwise} responses are graded otherwise"),
    );
    found
}

/// Contradictions of a group; what is said follows its prompt.
fn of_group<'a>(
    group: &[&DumpedResponse],
    stated: &'a StatedSettings,
    is_graded: bool,
) -> Vec<Contradiction<'a>> {
    let StatedSettings { group_size, filter, filter_metric, .. } = stated;
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
    let is_unfiltered = is(filter, true) && is_even;
    let mut found = Vec::new();
    let mut add = |holds: bool, name, stated, what: &str| {
        found.extend(holds.then(|| Contradiction { name, stated, what: what.to_string() }));
    };
    add(is_mixed, "mixed-group", group_size, "has responses to another prompt in its group");
    add(!is_whole, "group-size", group_size, &format!("has {} responses", group.len()));
    add(!is_centred, "advantage", group_size, "has advantages that do not sum to 0");
    let flat = is_flat(group);
    add(
        is_unfiltered && flat == Some(true),
        "no-filter",
        filter,
        "trained, all correct or all wrong",
    );
    let by_rewards = "trained, all correct or all wrong, by rewards that differ";
    add(is_unfiltered && flat == Some(false), "filter-metric", filter_metric, by_rewards);
    found
}

/// Without a gradient; `None` where a reward is not known.
fn is_flat(group: &[&DumpedResponse]) -> Option<bool> {
    let rewards: Vec<f64> = group.iter().map(|it| it.reward).collect::<Option<_>>()?;
    Some(rewards.iter().all(|reward| (reward - rewards[0]).abs() < 1e-6))
}

fn is(stated: &StatedKey, wanted: bool) -> bool {
    stated.as_ref().is_some_and(|(_, value)| *value == wanted)
}

/// The first [`TOLD`] of each name, and how many more there are.
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
            prompt: prompt.to_string(),
            length: 0,
            reward: None,
            advantage: None,
            ours: None,
            theirs: None,
        }
    }

    fn shared(prompts: &[&str]) -> usize {
        shared_start(&prompts.iter().map(|prompt| response(prompt, None)).collect::<Vec<_>>())
    }

    #[test]
    fn a_group_with_uids_has_each_sample_once() {
        let stated = StatedSettings {
            group_size: Some(("actor_rollout_ref.rollout.n", 2.into())),
            ..StatedSettings::default()
        };
        for (sessions, is_found) in [
            ([None; 4], false),
            ([Some(0), Some(1), Some(2), Some(3)], true),
            ([Some(0), Some(0), Some(1), Some(1)], false),
        ] {
            let of = |session: Option<u64>| response("q", session.map(|it| format!("u_{it}")));
            let (traps, _) = audited(1, &sessions.map(of), &stated, None);
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
}
