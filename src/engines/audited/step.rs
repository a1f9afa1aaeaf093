//! What a step of another trainer did to its responses, and what of it the configuration does not explain.

use crate::engines::Trap;
use crate::engines::audited::dumps::DumpedResponse;
use crate::engines::audited::stated::{StatedKey, StatedSettings};
use crate::records::TrackedRun;
use crate::statistics::estimators;
use serde_json::Value;
use std::collections::BTreeMap;

/// Groups of a step that are named for each contradiction.
const TOLD: usize = 3;

/// The rewards of a step, each beside those of the same correctness.
struct StepRewards<'a> {
    responses: &'a [DumpedResponse],
    is_graded: bool,
    /// The largest reward of wrong and of right responses.
    most: [f64; 2],
    floor: f64,
}

impl<'a> StepRewards<'a> {
    fn of(responses: &'a [DumpedResponse]) -> Self {
        // A length penalty of less than 2 leaves correct responses of ±1 above −1.
        let floor = if responses.iter().any(|it| it.reward < 0.0) { -1.0 } else { 0.0 };
        let is_graded = responses.iter().all(|it| it.is_correct().is_some());
        let mut rewards = Self { responses, is_graded, most: [f64::NEG_INFINITY; 2], floor };
        for response in responses {
            let is_right = usize::from(rewards.is_right(response));
            rewards.most[is_right] = rewards.most[is_right].max(response.reward);
        }
        rewards
    }

    /// By the trainer's `acc`, else by the reward.
    fn is_right(&self, response: &DumpedResponse) -> bool {
        response.theirs.unwrap_or(response.reward > self.floor)
    }

    fn is_lowered(&self, response: &DumpedResponse) -> bool {
        response.reward < self.most[usize::from(self.is_right(response))] - 1e-6
    }

    fn count(&self, holds: impl Fn(&DumpedResponse) -> bool) -> usize {
        self.responses.iter().filter(|it| holds(it)).count()
    }

    /// Right responses whose reward is lowered, if all of them are longer than the others' mean; partial credit
    /// tells right responses apart whatever their length.
    fn punished_for_length(&self) -> usize {
        let right = || self.responses.iter().filter(|it| self.is_right(it));
        let (lowered, whole): (Vec<_>, Vec<_>) = right().partition(|it| self.is_lowered(it));
        let lengths: Vec<f64> = whole.iter().map(|it| it.length as f64).collect();
        let usual = if lengths.is_empty() { 0.0 } else { estimators::mean(&lengths) };
        let is_longer = |it: &&DumpedResponse| it.length as f64 > usual;
        if lowered.iter().all(is_longer) { lowered.len() } else { 0 }
    }
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
    let mut found = of_rewards(&rewards, stated, truncated, longest);
    let shared = shared_start(responses);
    for group in groups.values() {
        let prompt: String = group[0].prompt[shared..].chars().take(60).collect();
        let of_group = of_group(group, stated, rewards.is_graded).into_iter();
        found.extend(
            of_group.map(|it| Contradiction { what: format!("{prompt:?} {}", it.what), ..it }),
        );
    }
    let lowered = rewards.count(|it| rewards.is_lowered(it));
    let graded = |count: usize| rewards.is_graded.then_some(count as f64);
    let numbers = [
        ("responses", Some(responses.len() as f64)),
        ("groups", Some(groups.len() as f64)),
        ("no gradient", Some(groups.values().filter(|group| is_flat(group)).count() as f64)),
        ("correct", graded(rewards.count(|it| it.is_correct() == Some(true)))),
        ("lowered", graded(lowered)),
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
    stated: &'a StatedSettings,
    truncated: Option<f64>,
    longest: Option<f64>,
) -> Vec<Contradiction<'a>> {
    let number = |stated: &StatedKey| stated.as_ref()?.1.as_f64();
    let limits = number(&stated.longest_response).zip(number(&stated.penalty_zone));
    let is_due = longest.zip(limits).is_some_and(|(longest, (most, zone))| longest > most - zone);
    let lowered = rewards.count(|it| rewards.is_lowered(it));
    let unlowered = rewards.is_graded && lowered == 0 && (is_due || truncated > Some(0.0));
    let punished = if rewards.is_graded { rewards.punished_for_length() } else { 0 };
    let not_finite = rewards.count(|it| !it.reward.is_finite());
    let otherwise = rewards.count(|it| it.ours.is_some_and(|ours| ours != rewards.is_right(it)));
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
    let is_whole = wanted.is_none_or(|wanted| (group.len() as u64).is_multiple_of(wanted));
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
    add(is_unfiltered && flat, "no-filter", filter, "trained, all correct or all wrong");
    let by_rewards = "trained, all correct or all wrong, by rewards that differ";
    add(is_unfiltered && !flat, "filter-metric", filter_metric, by_rewards);
    found
}

/// Without a gradient.
fn is_flat(group: &[&DumpedResponse]) -> bool {
    group.iter().all(|it| (it.reward - group[0].reward).abs() < 1e-6)
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
    use crate::engines::audited::dumps::DumpedResponse;
    use crate::engines::audited::step::shared_start;

    fn shared(prompts: &[&str]) -> usize {
        let response = |prompt: &&str| DumpedResponse {
            step: 1,
            group: String::new(),
            prompt: prompt.to_string(),
            length: 0,
            reward: 0.0,
            advantage: None,
            ours: None,
            theirs: None,
        };
        shared_start(&prompts.iter().map(response).collect::<Vec<_>>())
    }

    #[test]
    fn what_all_prompts_begin_with_is_no_longer_than_the_shortest() {
        assert_eq!(shared(&["solve: é1", "solve: é2", "solve: é1"]), "solve: é".len());
        assert_eq!(shared(&["abcdef", "ab", "abcdex"]), 2);
        assert_eq!(shared(&["ab", "abc"]), 2);
        assert_eq!([shared(&["same", "same"]), shared(&[])], [0, 0]);
    }
}
