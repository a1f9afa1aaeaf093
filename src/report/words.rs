//! Facts of a study as sentences. Nothing else makes them, and nothing reads them.

use crate::report::text::{self, Unit};
use crate::statistics::{Interval, between::FEWEST_RUNS};
use crate::study::collection::Study;
use crate::study::{
    Absence, AcrossRunsResult, ClaimResult, ClaimVerdict, DosesBelow, LevelResult, Needed, NoValue,
    NotShown, PartResult, PartWhy, Remark, RunsCannotShow, Ties, Why, WithoutValue, analysis, cell,
    comparisons::Comparison,
};
use std::collections::BTreeSet;

pub fn remark(remark: &Remark) -> String {
    match remark {
        Remark::SharedBase => {
            "all runs start from one base checkpoint: intervals and tests are about other \
             training runs from this base, not about other bases"
                .to_string()
        }
        Remark::BaseOfSeed => {
            "the runs of a seed start from a base checkpoint of that seed: intervals and tests are \
             about other training runs from other bases of the same recipe"
                .to_string()
        }
        Remark::RecordsChecked => format!(
            "the fields of every record were checked against each other, and the records against each other; {}",
            cell::ONLY_TRAINING
        ),
        Remark::Unregistered => {
            "nothing was registered beforehand: every verdict is exploratory".to_string()
        }
        Remark::NoPilot => {
            "no pilot σ was declared: no minimum detectable effect is given".to_string()
        }
        Remark::FailedRuns { count: 1 } => {
            "1 run failed and does not count; it is listed with its reason".to_string()
        }
        Remark::FailedRuns { count } => {
            format!("{count} runs failed and do not count; they are listed with their reasons")
        }
        Remark::OtherRecords { count: 1 } => {
            "1 record does not belong to the study; it is listed with its reason".to_string()
        }
        Remark::OtherRecords { count } => {
            format!(
                "{count} records do not belong to the study; they are listed with their reasons"
            )
        }
        Remark::HeldOutAbsent { grid } => {
            format!("the held-out variant `{grid}` was declared and is not in this study")
        }
        Remark::MissingRuns { count: 1, grids } => format!(
            "1 run of the grids {} is missing: the study is incomplete until it is run",
            grids.join(", ")
        ),
        Remark::MissingRuns { count, grids } => format!(
            "{count} runs of the grids {} are missing: the study is incomplete until they are run",
            grids.join(", ")
        ),
        Remark::ClaimsElsewhere => {
            "the paper\u{2019}s claims are not tested on these data: they are judged on the \
             embedded benchmark alone"
                .to_string()
        }
    }
}

/// Of records that do not count, with their reasons, and of runs without a record: a line each.
pub fn absent_runs(study: &Study) -> Vec<String> {
    const MOST: usize = 8;
    let lines = study.excluded.iter().take(MOST).map(|it| match (&it.arm, it.seed) {
        (Some(arm), _) => format!("{} does not count for {arm}: {}", it.cell, it.reason),
        (None, Some(_)) => format!("{} counts for no arm: {}", it.cell, it.reason),
        (None, None) => format!("a record does not count: {}", it.reason),
    });
    let more = study.excluded.len().saturating_sub(MOST);
    let more = (more > 0)
        .then(|| text::counted(more, "more record does not count", "more records do not count"));
    lines.chain(more).chain(analysis::missing_runs(study).as_ref().map(remark)).collect()
}

pub fn no_value(why: &NoValue) -> String {
    match why {
        NoValue::MetricNotRecorded { name } => format!("the record has no metric `{name}`"),
        NoValue::EmptyWindow { name, window } => {
            format!("`{name}` has no value in the {}", window.words())
        }
        NoValue::NeverEvaluated { set } => format!("`{set}` was never evaluated"),
        NoValue::DivergedBeforeEvaluation { set } => {
            format!("it diverged before `{set}` was evaluated after an update")
        }
        NoValue::NeverEvaluatedWithin { set, clock, budget } => {
            format!("`{set}` was never evaluated within {budget} {}", clock.words())
        }
        NoValue::OnlyBaseEvaluatedWithin { set, clock, budget } => format!(
            "`{set}` was not evaluated between the base policy and {budget} {}",
            clock.words()
        ),
        NoValue::NotEvaluatedBetween { set, from, clock, budget } => {
            format!("`{set}` was not evaluated between {from:.0} and {budget} {}", clock.words())
        }
        NoValue::NoCommonReading { clock } => {
            format!("the compared runs have no common number of {}", clock.words())
        }
        NoValue::ClockNotRecorded { clock } => {
            format!("the record does not say the {} of each step", clock.words())
        }
        NoValue::NoCorrelation { x, y } => {
            format!("`{x}` and `{y}` have too few values or no spread: no correlation")
        }
        NoValue::NoAnswers => {
            "the program that graded the run names no answers: cons@k needs them".to_string()
        }
        NoValue::NoRewards => {
            "no program graded the set, or its record keeps no rewards: state records.format = 4 and run these cells \
             again, or compare avg-at-k"
                .to_string()
        }
        NoValue::NotFinite => "the value is NaN or infinite".to_string(),
    }
}

pub fn without_value(run: &WithoutValue) -> String {
    format!("{} seed {}: {}", run.arm, run.seed, no_value(&run.why))
}

fn absence(absence: &Absence) -> String {
    match absence {
        Absence::NoArm { arm } => format!("the study has no arm `{arm}`"),
        Absence::NoRunThatCounts { arm } => format!("`{arm}` has no run that counts"),
    }
}

pub fn why(reason: &Why) -> String {
    why_of(reason, "adjusted p")
}

fn why_of(reason: &Why, p_name: &str) -> String {
    match reason {
        Why::Absent { absence: missing } => absence(missing),
        Why::MixedHarnesses { first, other } => {
            format!("runs of harness {first} are not compared with runs of harness {other}")
        }
        Why::OtherProblems { set } => {
            format!("the runs were not all evaluated on the same problems of `{set}`")
        }
        Why::RunWithoutScore { run } => {
            let favours = match run.why {
                NoValue::NoRewards
                | NoValue::NoAnswers
                | NoValue::MetricNotRecorded { .. }
                | NoValue::ClockNotRecorded { .. } => "",
                _ => "; without this run its arm would look better than it is",
            };
            without_value(run) + favours
        }
        Why::TooFewRuns { arm, reference, without_value: first } => {
            let first =
                first.as_ref().map_or(String::new(), |run| format!(" ({})", without_value(run)));
            format!("needs at least 2 runs on each side, has {arm} and {reference}{first}")
        }
        Why::CannotBeTested(untestable) => untestable.message.clone(),
        Why::Equivalent { margin, divisor: 1 } => {
            format!("the difference is smaller than δ = {margin}")
        }
        Why::Equivalent { margin, divisor } => format!(
            "the difference of differences, {divisor} times this contrast, is smaller than δ = {margin}"
        ),
        Why::Shown { adjusted_p, alpha, by_interval } => {
            let interval =
                if *by_interval { " and the interval lies on one side of 0" } else { "" };
            format!("{p_name} {} is at most {alpha}{interval}", text::p_value(*adjusted_p))
        }
        Why::RunsCannotShow(RunsCannotShow { smallest_p, alpha, ties }) => {
            let p = text::p_value(*smallest_p);
            match ties {
                None => format!(
                    "so few runs cannot show anything: their smallest p is {p}, above {alpha}"
                ),
                Some(Ties { tied, blocks }) => format!(
                    "{tied} of {blocks} blocks do not differ at all: the smallest p is {p}, above {alpha}"
                ),
            }
        }
        Why::IntervalIncludesZero { adjusted_p } => {
            format!("{p_name} {}, but the interval includes 0", text::p_value(*adjusted_p))
        }
        Why::NoInterval { adjusted_p } => format!(
            "{p_name} {}, but with fewer than {FEWEST_RUNS} runs a side there is no interval",
            text::p_value(*adjusted_p)
        ),
        Why::NotShown(NotShown { adjusted_p, least, ties }) => {
            let least = least.map_or(String::new(), |(size, p)| {
                let runs = match ties {
                    None => "so few runs".to_owned(),
                    Some(Ties { tied, blocks }) => {
                        format!("runs that do not differ at all in {tied} of {blocks} blocks")
                    }
                };
                format!(
                    " (in a family of {size} comparisons {runs} cannot get below {})",
                    text::p_value(p)
                )
            });
            format!("no effect shown: {p_name} {}{least}", text::p_value(*adjusted_p))
        }
        Why::DoseBelow(DosesBelow { below, others, otherwise }) => {
            let each = [below].into_iter().chain(others).map(|it| {
                let [dose, least] = [it.dose, it.least].map(text::standard_error);
                format!("{} acted on {dose} %, below the declared {least} %", it.technique)
            });
            let otherwise = why_of(otherwise, p_name);
            format!("{}; apart from that: {otherwise}", text::joined(each, "; "))
        }
        Why::Closed { after, otherwise } => format!(
            "it counts only after all comparisons of the family `{after}` are shown, and not all are ({})",
            why_of(otherwise, p_name)
        ),
    }
}

pub fn why_of_comparison(comparison: &Comparison) -> String {
    let p_name = if comparison.is_of_no_family { "p" } else { "adjusted p" };
    why_of(&comparison.why, p_name)
}

/// `None` where the runs of a comparison were evaluated alike.
pub fn evaluated_apart(comparison: &Comparison) -> Option<String> {
    let keys = &comparison.evaluated_apart;
    (!keys.is_empty()).then(|| {
        format!(
            "not evaluated alike ({}): a difference may be that of the evaluation, not of training",
            text::joined(keys, ", ")
        )
    })
}

pub fn evidence(part: &PartResult) -> String {
    let of_comparison = part.comparison.as_ref().map(comparison);
    let of_level = part.level.as_ref().map(level);
    let of_runs = part.across_runs.as_ref().map(across_runs);
    of_comparison.or(of_level).or(of_runs).unwrap_or_default()
}

pub fn part_why(part: &PartResult) -> String {
    let of_comparison = || part.comparison.as_ref().map(|it| why(&it.why)).unwrap_or_default();
    let bound = part.level.as_ref().map(|it| it.bound);
    let bound = bound.or(part.across_runs.as_ref().map(|it| it.bound)).unwrap_or_default();
    match &part.why {
        PartWhy::Comparison => of_comparison(),
        PartWhy::EquivalentIsNoSize => {
            of_comparison() + "; what is claimed is a direction, or a size below that"
        }
        PartWhy::SmallerThanClaimed { claimed, most } => {
            let unit = part.comparison.as_ref().map_or(Unit::Plain, unit_of);
            format!(
                "the direction is shown; the difference is at most {} by its interval, and {} are claimed",
                unit.sized(*most),
                unit.sized(*claimed)
            )
        }
        PartWhy::Absent { absence: missing } => absence(missing),
        PartWhy::NoRunHasTheValue { without_value: runs } => {
            let runs = text::joined(runs.iter().map(without_value), "; ");
            format!("no run has the value ({runs})")
        }
        PartWhy::TooFewRuns { runs, least } => {
            format!("an interval over training runs takes {least} of them, and there are {runs}")
        }
        PartWhy::BeyondBound { claimed } => {
            let direction = part.level.as_ref().map_or("", |it| it.direction.words());
            let is = if *claimed { "is" } else { "is not" };
            let whose = if bound == 0.0 { "" } else { ", the threshold of these claims" };
            format!("the whole interval {is} {direction} than {bound}{whose}")
        }
        PartWhy::WithinBound => format!("the whole interval lies within ±{bound}"),
        PartWhy::OutsideBound => format!("the whole interval lies outside ±{bound}"),
        PartWhy::IncludesBound if part.across_runs.is_some() => {
            format!("the interval includes {bound} or −{bound}")
        }
        PartWhy::IncludesBound => format!("the interval includes {bound}"),
        PartWhy::NoCorrelation => {
            "too few runs, or runs without spread, for a correlation".to_string()
        }
    }
}

pub fn claim_why(claim: &ClaimResult) -> String {
    if let Some(reason) = &claim.not_testable {
        return reason.clone();
    }
    let parts = &claim.parts;
    let named = |verdict: ClaimVerdict| -> Vec<&str> {
        parts.iter().filter(|part| part.verdict == verdict).map(|part| part.id.as_str()).collect()
    };
    use ClaimVerdict::{Contradicted, Inconclusive, SmallerThanClaimed};
    let [contradicted, open, smaller] = [Contradicted, Inconclusive, SmallerThanClaimed].map(named);
    let (of_several, but) = if !contradicted.is_empty() {
        (format!("the opposite was shown for {}", contradicted.join(", ")), "does not")
    } else if !open.is_empty() {
        let (shown, all) = (parts.len() - open.len(), parts.len());
        let text = format!("{shown} of {all} parts shown; open: {}", open.join(", "));
        (text, "this study does not tell")
    } else if !smaller.is_empty() {
        let text = format!("shown, and smaller than claimed: {}", smaller.join(", "));
        (text, "shows less of it")
    } else if let Some(reason) = &claim.positive_control {
        return format!("shown, as expected: {reason}");
    } else {
        (format!("all {} parts were shown", parts.len()), "")
    };
    let why = match &parts[..] {
        [part] => part_why(part),
        _ => of_several,
    };
    match &claim.positive_control {
        Some(reason) => format!("{why}; the benchmark was made to show this and {but}: {reason}"),
        None => why,
    }
}

pub fn needed(needed: &Needed) -> String {
    let if_as_seen = "if the true difference is as large as the one seen";
    let if_it_stays = "if mean and spread stay as they are";
    let unit = |blocks: bool| if blocks { "blocks" } else { "runs of each arm" };
    match needed {
        Needed::AtLeast { count, of, .. } if !of.is_empty() => {
            let value = if of.len() > 1 { " that have this value" } else { "" };
            let of = text::joined(of.iter().map(|arm| format!("of `{arm}`")), " and ");
            format!("at least {count} runs {of}{value}")
        }
        Needed::AtLeast { count, blocks, .. } => format!("at least {count} {}", unit(*blocks)),
        Needed::MoreThan { count, blocks } => {
            format!("more than the {count} {} that there are", unit(*blocks))
        }
        Needed::MoreThanForSeen { count, blocks } => {
            format!("more than {count} {}, {if_as_seen}", unit(*blocks))
        }
        Needed::AboutForSeen { count, blocks, power } => {
            format!("about {count} {}, {if_as_seen} (power {:.0} %)", unit(*blocks), 100.0 * power)
        }
        Needed::RunsThatRecordTheMetric => "runs that record this metric".to_string(),
        Needed::AboutForSeenSpread { count } => {
            format!("about {count} runs, {if_it_stays}")
        }
        Needed::MoreThanForSeenSpread { count } => {
            format!("more than {count} runs, {if_it_stays}")
        }
        Needed::MoreRunsOf { arms } => format!("more runs of {}", arms.join(", ")),
        Needed::AtLeastInAll { count } => {
            format!("at least {count} runs in all, if the true correlation is 0")
        }
    }
}

pub fn comparison(comparison: &Comparison) -> String {
    let (arm, reference) = comparison.means();
    let (Some(arm), Some(reference), Some(result)) = (arm, reference, &comparison.result) else {
        return String::new();
    };
    let runs = format!("{} and {} runs", comparison.arm.len(), comparison.reference.len());
    let [p, adjusted] = [result.p, result.adjusted_p].map(text::p_value);
    let adjusted = if comparison.is_of_no_family {
        "adjusted for nothing else".to_owned()
    } else {
        format!("adjusted {adjusted}")
    };
    let p = format!("p {p}, {adjusted}");
    if let Some((median, other)) = result.medians {
        return format!("{} against {}; {p}; {runs}", median_time(median), median_time(other));
    }
    let unit = unit_of(comparison);
    let (percent, points) = if unit == Unit::Share { (" %", " points") } else { ("", "") };
    let (arm, reference) = (unit.show(arm), unit.show(reference));
    let difference = unit.signed(result.difference);
    let interval = in_brackets(result.interval, |end| unit.signed(end));
    format!(
        "{arm}{percent} against {reference}{percent}: {difference}{points}{interval}; {p}; {runs}"
    )
}

pub fn unit_of(comparison: &Comparison) -> Unit {
    if comparison.declared.metric.is_share_right() { Unit::Share } else { Unit::Plain }
}

fn median_time(time: Option<f64>) -> String {
    time.map_or("never (median)".to_string(), |time| format!("{} (median)", text::number(time)))
}

/// ` (95 % interval 0.1 to 0.2)`.
fn in_brackets(interval: Option<Interval>, show: impl Fn(f64) -> String) -> String {
    interval.map_or(String::new(), |Interval { low, high, level }| {
        format!(" ({} interval {} to {})", text::level(level), show(low), show(high))
    })
}

pub fn level(level: &LevelResult) -> String {
    let mean = mean(level.mean, level.interval);
    let weighted = level.token_weighted.as_ref().map_or(String::new(), |weighted| {
        let mean = self::mean(weighted.mean, weighted.interval);
        format!("; this mean weighs rollout steps equally, by tokens it is {mean}")
    });
    format!("{mean} against {}; {} runs{weighted}", level.bound, level.runs.len())
}

fn mean(mean: f64, interval: Option<Interval>) -> String {
    text::number(mean) + &in_brackets(interval, text::number)
}

pub fn across_runs(result: &AcrossRunsResult) -> String {
    let arms = result.runs.iter().map(|run| &run.0).collect::<BTreeSet<_>>().len();
    let Some(r) = result.correlation else { return String::new() };
    let interval = in_brackets(result.interval, |end| format!("{end:.2}"));
    format!("r = {r:.2}{interval}; {} runs of {arms} arms, within arms", result.runs.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_or_record_is_told_in_the_singular() {
        let grids = vec!["a".to_string()];
        let remarks = [
            Remark::FailedRuns { count: 1 },
            Remark::OtherRecords { count: 1 },
            Remark::MissingRuns { count: 1, grids },
        ];
        for told in remarks.iter().map(remark) {
            assert!(told.starts_with("1 r") && !told.contains(" are "), "{told}");
        }
    }

    #[test]
    fn a_value_that_no_record_has_favours_no_arm() {
        let of = |reason| {
            let run = WithoutValue { arm: "a".to_string(), seed: 1, why: reason };
            why(&Why::RunWithoutScore { run })
        };
        assert!(of(NoValue::NoRewards).ends_with("run these cells again, or compare avg-at-k"));
        assert!(!of(NoValue::NoAnswers).contains("look better"));
        let diverged = NoValue::DivergedBeforeEvaluation { set: "dev".to_string() };
        assert!(of(diverged).ends_with("without this run its arm would look better than it is"));
    }
}
