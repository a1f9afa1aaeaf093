//! Rewards beside correctness: which are lowered, and which contradict a grade.

use crate::engines::audited::dumps::DumpedResponse;
use crate::statistics::estimators;
use std::collections::BTreeMap;

pub const ROUNDING: f64 = 1e-6;

pub type Rewarded<'a> = (&'a DumpedResponse, f64);

/// The finite rewards of a step's data source, each beside those of the same correctness.
pub struct StepRewards<'a> {
    pub source: Option<&'a str>,
    pub responses: Vec<Rewarded<'a>>,
    /// The largest reward of wrong and of right responses.
    most: [f64; 2],
    /// Where all wrong, or right, responses with the least penalty have one reward: both.
    whole: [Option<(f64, f64)>; 2],
    levels: Option<([f64; 2], usize)>,
    right: Option<(f64, usize)>,
    is_sum: bool,
}

impl<'a> StepRewards<'a> {
    pub fn of(responses: &'a [DumpedResponse], source: Option<&'a str>, is_sum: bool) -> Self {
        let finite = |it: &'a DumpedResponse| Some((it, it.reward.filter(|it| it.is_finite())?));
        let own = responses.iter().filter(|it| it.source.as_deref() == source);
        let responses: Vec<Rewarded> = own.filter_map(finite).collect();
        let right = || responses.iter().filter(|it| trained_as(it) == Some(true));
        let shortest = right().map(|it| it.0.length).min();
        let right = shortest.map(|it| (right().map(unpunished).fold(f64::MIN, f64::max), it));
        let levels = levels(&responses);
        let most = [f64::NEG_INFINITY; 2];
        let whole = [None; 2];
        let mut rewards = Self { source, responses, most, whole, levels, right, is_sum };
        rewards.whole = [false, true].map(|is_right| rewards.whole(is_right));
        rewards.most = [false, true].map(|is_right| {
            let mut groups = BTreeMap::<&str, Vec<Rewarded>>::new();
            for it in rewards.responses.iter().filter(|it| rewards.is_right(it) == Some(is_right)) {
                groups.entry(&it.0.group).or_default().push(*it);
            }
            let differs = |of: fn(&Rewarded) -> f64| {
                let differs = |it: &Vec<Rewarded>| it.iter().any(|one| of(one) != of(&it[0]));
                groups.values().any(differs)
            };
            // Of problems with other scales, texts of any length have one reward in each group.
            let is_of_groups = levels.is_none() && differs(|it| it.0.length as f64);
            let is_compared = !is_of_groups || differs(|it| (it.1 / ROUNDING).round());
            let own = groups.values().flatten().filter(|_| is_compared);
            own.map(|it| it.1).fold(f64::NEG_INFINITY, f64::max)
        });
        rewards
    }

    /// By the trainer's `acc`, else by our grade, and what the reward says against it.
    fn is_right(&self, rewarded: &Rewarded) -> Option<bool> {
        Some(trained_as(rewarded)? != self.is_contradicted(rewarded))
    }

    fn whole(&self, is_right: bool) -> Option<(f64, f64)> {
        let own = self.responses.iter().filter(|it| self.is_right(it) == Some(is_right));
        let own: Vec<(f64, f64)> = own.map(|it| (penalty(it), it.1)).collect();
        let least = own.iter().map(|it| it.0).reduce(f64::max)?;
        let mut rewards = own.iter().filter(|it| it.0 > least - ROUNDING).map(|it| it.1);
        let first = rewards.next()?;
        rewards.all(|reward| (reward - first).abs() < ROUNDING).then_some((least, first))
    }

    fn keeps_all(&self, rewarded: &Rewarded) -> bool {
        let whole = self.is_right(rewarded).and_then(|is_right| self.whole[usize::from(is_right)]);
        whole.is_some_and(|(least, reward)| {
            penalty(rewarded) < least - ROUNDING && (rewarded.1 - reward).abs() < ROUNDING
        })
    }

    fn is_lowered(&self, rewarded: &Rewarded) -> bool {
        let most = self.is_right(rewarded).map(|is_right| self.most[usize::from(is_right)]);
        most.is_some_and(|most| rewarded.1 < most - ROUNDING)
            || penalty(rewarded) < -ROUNDING && !self.keeps_all(rewarded)
    }

    pub fn is_otherwise(&self, rewarded: &Rewarded) -> bool {
        let DumpedResponse { ours, theirs, .. } = rewarded.0;
        let differs = ours.zip(*theirs).is_some_and(|(ours, theirs)| ours != theirs);
        differs || theirs.is_none() && self.is_contradicted(rewarded)
    }

    /// Right with the wrong ones' reward at a usual length, or wrong with the right ones' or, without `acc`, no less.
    pub fn is_contradicted(&self, rewarded: &Rewarded) -> bool {
        let (DumpedResponse { theirs, length, .. }, reward) = (rewarded.0, unpunished(rewarded));
        match trained_as(rewarded).filter(|_| !self.is_sum) {
            None => false,
            Some(true) => self
                .levels
                .is_some_and(|([low, _], whole)| reward < low + ROUNDING && *length <= whole),
            Some(false) => {
                let right = self.right.filter(|_| theirs.is_none());
                self.levels.is_some_and(|([_, high], _)| reward > high - ROUNDING)
                    || right.is_some_and(|(most, shortest)| {
                        let is_one = self.levels.is_some_and(|([_, high], _)| high.is_infinite());
                        !is_one && reward > most - ROUNDING && *length >= shortest
                    })
            }
        }
    }

    pub fn count(&self, holds: impl Fn(&Rewarded) -> bool) -> usize {
        self.responses.iter().filter(|it| holds(it)).count()
    }

    pub fn unapplied(&self) -> usize {
        self.count(|it| self.keeps_all(it))
    }

    pub fn lowered(&self) -> usize {
        self.count(|it| self.is_lowered(it))
    }

    /// Right responses whose reward is lowered, if all of them are longer than the others' mean; partial credit
    /// tells right responses apart whatever their length.
    pub fn punished_for_length(&self) -> usize {
        let right = || self.responses.iter().filter(|it| self.is_right(it) == Some(true));
        let (lowered, whole): (Vec<_>, Vec<_>) = right().partition(|it| self.is_lowered(it));
        let lengths: Vec<f64> = whole.iter().map(|(it, _)| it.length as f64).collect();
        let usual = if lengths.is_empty() { 0.0 } else { estimators::mean(&lengths) };
        if lowered.iter().all(|(it, _)| it.length as f64 > usual) { lowered.len() } else { 0 }
    }

    pub fn shows_penalties(&self, characters: f64) -> bool {
        let is_long = |it: &Rewarded| it.0.length as f64 > characters;
        let is_compared = |is_right: bool| {
            let own = || self.responses.iter().filter(|it| self.is_right(it) == Some(is_right));
            own().any(is_long) && !own().all(is_long)
        };
        let (count, punished) = (self.responses.len(), self.count(|it| it.0.penalty.is_some()));
        count > 0 && punished == count || is_compared(true) || is_compared(false)
    }
}

fn trained_as((response, _): &Rewarded) -> Option<bool> {
    response.theirs.or(response.ours)
}

fn penalty((response, _): &Rewarded) -> f64 {
    response.penalty.unwrap_or(0.0)
}

fn unpunished(rewarded: &Rewarded) -> f64 {
    rewarded.1 - penalty(rewarded)
}

/// Of rewards that have two levels, or one of 0 or less, up to a penalty of the longest texts.
fn levels(responses: &[Rewarded]) -> Option<([f64; 2], usize)> {
    let mut by_length: Vec<&Rewarded> = responses.iter().collect();
    by_length.sort_by_key(|it| it.0.length);
    let has = |it: &Rewarded, level: f64| (unpunished(it) - level).abs() < ROUNDING;
    let mut values: Vec<f64> = Vec::new();
    let is_punished = |it: &&Rewarded| {
        let is_known = values.iter().any(|level| has(it, *level));
        let is_new = !is_known && values.len() < 2;
        values.extend(is_new.then(|| unpunished(it)));
        !is_known && !is_new
    };
    let count = by_length.iter().position(is_punished).unwrap_or(by_length.len());
    values.sort_by(f64::total_cmp);
    let [low, high] = match values[..] {
        [low, high] => [low, high],
        [only] if only <= 0.0 => [only, f64::INFINITY],
        _ => return None,
    };
    let is_of_right = |it: &Rewarded| trained_as(it) == Some(true) && has(it, high);
    let is_high = high >= 1.0 || responses.iter().any(is_of_right);
    if !is_high || by_length[count..].iter().any(|it| unpunished(it) > high - ROUNDING) {
        return None;
    }
    let is_whole = |it: &&Rewarded| has(it, high) || trained_as(it) == Some(false) && has(it, low);
    let whole = responses.iter().filter(is_whole).map(|it| it.0.length).max();
    Some(([low, high], whole.unwrap_or(0)))
}
