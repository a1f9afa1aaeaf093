//! Numbers of one run, defined once for comparisons, claims and tables.

use crate::records::metrics;
use crate::statistics::{TimeToEvent, correlation, estimators};
use crate::study::cell::numbers::ensure;
use crate::study::{Cell, CellEvaluation, Clock, MetricWindow, NoValue, Reduce, window};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Windows are shares of the rollout steps that the run did, so that a short run has them too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Metric {
    Evaluation { set: String, at: At, statistic: Statistic },
    // The plain mean over sets, whatever their sizes, of the statistic of each (lm-eval's group mean without
    // weights). A run that has no value on one of them has none.
    MeanOfSets { sets: Vec<String>, at: At, statistic: Statistic },
    // Mean over evaluations of trained policies up to the common reading of the clock, and above this share of it, in
    // [0, 1).
    EvaluationMean { set: String, statistic: Statistic, clock: Clock, from_share: f64 },
    // The name is such as `policy/entropy`.
    Metric { name: String, window: MetricWindow, reduce: Reduce },
    Contrast { name: String, early: MetricWindow, late: MetricWindow },
    Correlation { x: String, y: String, window: MetricWindow },
    // Time of the first evaluation with avg@k ≥ `level`, in [0, 1]; else censored at the last evaluation.
    TimeToLevel { set: String, level: f64, clock: Clock },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum At {
    Last,
    /// The last evaluation within the smallest total of generated rollouts of a complete run. Nothing is interpolated.
    EqualRollouts,
    /// The same, counted in generated response tokens.
    EqualTokens,
}

impl At {
    /// The resource that compared runs spend equally; `None` where each run's end counts.
    pub fn clock(self) -> Option<Clock> {
        match self {
            Self::Last => None,
            Self::EqualRollouts => Some(Clock::GeneratedRollouts),
            Self::EqualTokens => Some(Clock::GeneratedTokens),
        }
    }

    fn words(self) -> String {
        match self.clock() {
            None => "last evaluation".to_string(),
            Some(clock) => format!("at equal {}", clock.words()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    AvgAtK,
    /// Share of problems whose most frequent answer, of several the first given, is correct.
    ConsAtK,
    /// Share of problems with at least one correct sample.
    PassAtK,
    TruncatedShare,
    ResponseTokensMean,
    RewardMean,
}

impl Statistic {
    pub fn of(self, cell: &Cell, evaluation: &CellEvaluation) -> Result<f64, NoValue> {
        Ok(match self {
            Self::AvgAtK => evaluation.avg_at_k(),
            Self::ConsAtK => cell.cons_at_k(evaluation).ok_or(NoValue::NoAnswers)?,
            Self::PassAtK => {
                let solved = evaluation.correct().iter().filter(|c| **c > 0).count() as f64;
                solved / evaluation.correct().len().max(1) as f64
            }
            Self::TruncatedShare => evaluation.truncated_share,
            Self::ResponseTokensMean => evaluation.response_tokens_mean,
            Self::RewardMean => evaluation.reward_mean.ok_or(NoValue::NoRewards)?,
        })
    }

    pub fn is_share(self) -> bool {
        !matches!(self, Self::ResponseTokensMean | Self::RewardMean)
    }

    pub fn words(self) -> &'static str {
        match self {
            Self::AvgAtK => "avg@k",
            Self::ConsAtK => "cons@k",
            Self::PassAtK => "pass@k",
            Self::TruncatedShare => "truncated share",
            Self::ResponseTokensMean => "mean response tokens",
            Self::RewardMean => "mean reward",
        }
    }
}

impl Metric {
    pub fn last_score(set: &str) -> Self {
        let (set, at, statistic) = (set.to_string(), At::Last, Statistic::AvgAtK);
        Self::Evaluation { set, at, statistic }
    }

    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Evaluation { set, .. } => ensure(!set.is_empty(), "`set` is empty"),
            Self::MeanOfSets { sets, .. } => {
                let distinct: BTreeSet<&String> =
                    sets.iter().filter(|set| !set.is_empty()).collect();
                let are_several = distinct.len() == sets.len() && sets.len() > 1;
                let reason =
                    format_args!("`sets` must name two or more sets, each once, got {sets:?}");
                ensure(are_several, reason)
            }
            Self::EvaluationMean { clock: Clock::Seconds, .. }
            | Self::TimeToLevel { clock: Clock::Seconds, .. } => {
                Err("`clock` cannot be seconds, which nobody can check".to_string())
            }
            Self::EvaluationMean { from_share, .. } => {
                let reason = format_args!("from_share {from_share} must lie in [0, 1)");
                ensure((0.0..1.0).contains(from_share), reason)
            }
            Self::Metric { window, .. } | Self::Correlation { window, .. } => window.check(),
            Self::Contrast { early, late, .. } => early.check().and_then(|()| late.check()),
            Self::TimeToLevel { level, .. } => {
                let reason = format_args!("level {level} must lie in (0, 1]");
                ensure(*level > 0.0 && *level <= 1.0, reason)
            }
        }
    }

    pub fn ill_defined(&self) -> Option<String> {
        match self {
            Self::Contrast { early, late, .. } if early.to_share > late.from_share => {
                Some(format!(
                    "its early window ({}) does not end before its late one ({}) begins",
                    early.words(),
                    late.words()
                ))
            }
            Self::Correlation { x, y, .. } if x == y => {
                Some(format!("it correlates {x} with itself"))
            }
            _ => None,
        }
    }

    /// Whether a larger value means a better policy.
    pub fn is_score(&self) -> bool {
        self.is_share_right() || self.statistic() == Some(Statistic::RewardMean)
    }

    pub fn is_share_right(&self) -> bool {
        use Statistic::{AvgAtK, ConsAtK, PassAtK};
        matches!(self.statistic(), Some(AvgAtK | ConsAtK | PassAtK))
    }

    pub fn is_avg_at_k(&self) -> bool {
        self.statistic() == Some(Statistic::AvgAtK)
    }

    pub fn statistic(&self) -> Option<Statistic> {
        match self {
            Self::Evaluation { statistic, .. }
            | Self::MeanOfSets { statistic, .. }
            | Self::EvaluationMean { statistic, .. } => Some(*statistic),
            _ => None,
        }
    }

    pub fn is_time(&self) -> bool {
        matches!(self, Self::TimeToLevel { .. })
    }

    /// The sets that it is about.
    pub fn sets(&self) -> &[String] {
        match self {
            Self::Evaluation { set, .. }
            | Self::EvaluationMean { set, .. }
            | Self::TimeToLevel { set, .. } => std::slice::from_ref(set),
            Self::MeanOfSets { sets, .. } => sets,
            Self::Metric { .. } | Self::Contrast { .. } | Self::Correlation { .. } => &[],
        }
    }

    pub fn words(&self) -> String {
        match self {
            Self::Evaluation { set, at, statistic } => {
                format!("{} on {set}, {}", statistic.words(), at.words())
            }
            Self::MeanOfSets { sets, at, statistic } => {
                let sets = sets.join(", ");
                format!("{}, mean of the sets {sets}, {}", statistic.words(), at.words())
            }
            Self::EvaluationMean { set, statistic, clock, from_share } => format!(
                "{} on {set}, mean of the evaluations from {} % of the equal {} on",
                statistic.words(),
                window::percent(*from_share),
                clock.words()
            ),
            Self::Metric { name, window, reduce } => {
                format!("{} of {}, {}", reduce.words(), with_meaning(name), window.words())
            }
            Self::Contrast { name, early, late } => {
                format!("{}, {} minus {}", with_meaning(name), late.words(), early.words())
            }
            Self::Correlation { x, y, window } => {
                format!("correlation of {x} and {y}, {}", window.words())
            }
            Self::TimeToLevel { set, level, clock } => {
                format!("{} until {} % avg@k on {set}", clock.words(), window::percent(*level))
            }
        }
    }

    /// The clock on which compared runs are read at an equal value.
    pub fn equal_clock(&self) -> Option<Clock> {
        match self {
            Self::Evaluation { at, .. } | Self::MeanOfSets { at, .. } => at.clock(),
            Self::EvaluationMean { clock, .. } => Some(*clock),
            _ => None,
        }
    }

    /// Whether nothing but the [`Self::equal_clock`] tells them apart.
    pub fn is_same_but_for_the_clock(&self, other: &Self) -> bool {
        self.at_the_end() == other.at_the_end()
    }

    fn at_the_end(&self) -> Self {
        let mut metric = self.clone();
        match &mut metric {
            Self::Evaluation { at, .. } | Self::MeanOfSets { at, .. } => *at = At::Last,
            Self::EvaluationMean { clock, .. } => *clock = Clock::Updates,
            _ => {}
        }
        metric
    }

    /// With an [`Self::equal_clock`] it needs `budget`, the common reading. Times may be censored: [`time_to_level`].
    pub fn value(&self, cell: &Cell, budget: Option<u64>) -> Result<f64, NoValue> {
        let value = match self {
            Self::Evaluation { set, at, statistic } => {
                let evaluation = match at.clock() {
                    None => last_evaluation(cell, set)?,
                    Some(clock) => {
                        let budget = budget.ok_or(NoValue::NoCommonReading { clock })?;
                        evaluation_within(cell, set, (clock, budget))?
                    }
                };
                statistic.of(cell, evaluation)?
            }
            Self::MeanOfSets { sets, at, statistic } => {
                let of_set = |set: &String| {
                    let (set, at, statistic) = (set.clone(), *at, *statistic);
                    Self::Evaluation { set, at, statistic }.value(cell, budget)
                };
                estimators::mean(&sets.iter().map(of_set).collect::<Result<Vec<_>, _>>()?)
            }
            Self::EvaluationMean { set, statistic, clock, from_share } => {
                let budget = budget.ok_or(NoValue::NoCommonReading { clock: *clock })?;
                let last = evaluation_within(cell, set, (*clock, budget))?;
                let after = from_share * budget as f64;
                let counted = cell.evaluations_of(set).filter(|evaluation| {
                    let at = clock.at(cell, evaluation);
                    let is_above = window::is_above(at, *from_share, budget as f64);
                    is_above && at <= clock.at(cell, last)
                });
                let values =
                    counted.map(|it| statistic.of(cell, it)).collect::<Result<Vec<f64>, _>>()?;
                if values.is_empty() {
                    let (set, clock) = (set.clone(), *clock);
                    return Err(NoValue::NotEvaluatedBetween { set, from: after, clock, budget });
                }
                estimators::mean(&values)
            }
            Self::Metric { name, window, reduce } => reduced(cell, name, *window, *reduce)?,
            Self::Contrast { name, early, late } => {
                let mean = |window: &MetricWindow| reduced(cell, name, *window, Reduce::Mean);
                estimators::difference(mean(early)?, mean(late)?)
            }
            Self::Correlation { x, y, window } => {
                let (left, right) = (series(cell, x)?, series(cell, y)?);
                let both: Vec<Option<f64>> =
                    left.iter().zip(right).map(|(x, y)| x.and(*y)).collect();
                let ys = window.values(&both).into_iter();
                let pairs = ys.filter_map(|(index, y)| Some((left[index as usize]?, y)));
                correlation::pearson(&pairs.collect::<Vec<_>>())
                    .ok_or_else(|| NoValue::NoCorrelation { x: x.clone(), y: y.clone() })?
            }
            Self::TimeToLevel { set, level, clock } => {
                time_to_level(cell, set, *level, *clock)?.time
            }
        };
        if value.is_finite() { Ok(value) } else { Err(NoValue::NotFinite) }
    }

    /// A window's mean that weighs tokens, not rollout steps, equally; `None` without token counts.
    pub fn token_weighted(&self, cell: &Cell) -> Option<f64> {
        let Self::Metric { name, window, reduce: Reduce::Mean } = self else { return None };
        let (_, count) = TOKENS.iter().find(|(mean, _)| mean == name)?;
        let counts = cell.metric(count)?;
        let (mut sum, mut tokens) = (0.0, 0.0);
        for (index, mean) in window.values(cell.metric(name)?) {
            let weight = (*counts.get(index as usize)?)?;
            sum += weight * mean;
            tokens += weight;
        }
        (tokens > 0.0).then(|| sum / tokens)
    }
}

/// Mean over tokens of a rollout step → count of those tokens.
const TOKENS: [(&str, &str); 1] =
    [("loss/up_clipped_probability_mean", "effect/clip_higher_clipped_above_tokens")];

/// `policy/entropy (nats a token, batch)`.
fn with_meaning(name: &str) -> String {
    metrics::of(name).map_or(name.to_owned(), |metric| format!("{name} ({})", metric.meaning))
}

fn series<'a>(cell: &'a Cell, name: &str) -> Result<&'a [Option<f64>], NoValue> {
    cell.metric(name).ok_or_else(|| NoValue::MetricNotRecorded { name: name.to_string() })
}

fn reduced(cell: &Cell, name: &str, window: MetricWindow, reduce: Reduce) -> Result<f64, NoValue> {
    let values = window.values(series(cell, name)?);
    reduce.of(&values).ok_or_else(|| NoValue::EmptyWindow { name: name.to_string(), window })
}

fn last_evaluation<'a>(cell: &'a Cell, set: &str) -> Result<&'a CellEvaluation, NoValue> {
    let set_name = || set.to_string();
    cell.last_evaluation(set).ok_or_else(|| match cell.evaluations_of(set).next() {
        Some(_) => NoValue::DivergedBeforeEvaluation { set: set_name() },
        None => NoValue::NeverEvaluated { set: set_name() },
    })
}

/// The base policy's evaluation never replaces a trained one's: a set evaluated only at both ends has no value between.
pub fn evaluation_within<'a>(
    cell: &'a Cell,
    set: &str,
    (clock, budget): (Clock, u64),
) -> Result<&'a CellEvaluation, NoValue> {
    // A missing number would count as nothing spent.
    total(cell, clock).ok_or(NoValue::ClockNotRecorded { clock })?;
    let is_within = |it: &&CellEvaluation| it.set == set && clock.at(cell, it) <= budget as f64;
    let set = set.to_string();
    let Some(last) = cell.evaluations.iter().rfind(is_within) else {
        return Err(NoValue::NeverEvaluatedWithin { set, clock, budget });
    };
    if last.counters.updates == 0 && cell.counters.last().is_some_and(|end| end.updates > 0) {
        return Err(NoValue::OnlyBaseEvaluatedWithin { set, clock, budget });
    }
    Ok(last)
}

pub fn generated_rollouts(cell: &Cell) -> u64 {
    let evaluated = cell.evaluations.iter().map(|evaluation| evaluation.generated_rollouts).max();
    evaluated.unwrap_or(0).max(summed(cell, "rollout/generated_rollouts").unwrap_or(0))
}

pub fn generated_tokens(cell: &Cell) -> Option<u64> {
    const NAME: &str = "rollout/generated_tokens";
    let is_whole = cell.metric(NAME)?.iter().all(Option::is_some);
    summed(cell, NAME).filter(|_| is_whole)
}

pub fn total(cell: &Cell, clock: Clock) -> Option<u64> {
    match clock {
        Clock::Updates => cell.counters.last().map(|counters| counters.updates),
        Clock::GeneratedRollouts => Some(generated_rollouts(cell)),
        Clock::GeneratedTokens => generated_tokens(cell),
        Clock::Flops | Clock::Seconds => {
            let added: Option<Vec<f64>> = clock.by_step(cell).into_iter().collect();
            // Rounded up: rounded down, a run's own last evaluation would lie beyond its total.
            added.map(|added| added.iter().sum::<f64>().ceil().clamp(0.0, 9e15) as u64)
        }
    }
}

fn summed(cell: &Cell, name: &str) -> Option<u64> {
    let sum: f64 = cell.metric(name)?.iter().flatten().filter(|value| value.is_finite()).sum();
    Some(sum.clamp(0.0, 9e15) as u64)
}

pub fn time_to_level(
    cell: &Cell,
    set: &str,
    level: f64,
    clock: Clock,
) -> Result<TimeToEvent, NoValue> {
    let last = last_evaluation(cell, set)?;
    let is_there = |it: &&CellEvaluation| estimators::reaches(it.avg_at_k(), level);
    let first = cell.evaluations_of(set).find(is_there);
    Ok(TimeToEvent { time: clock.at(cell, first.unwrap_or(last)), reached: first.is_some() })
}
