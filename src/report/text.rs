//! Numbers and foreign text for readers. Shares are rounded to 0.1 percentage points, but never to none or all where they
//! are neither, and standard errors to two digits. Text of a model, data set or machine must pass through [`visible()`].

use crate::base::visible;
use crate::statistics::{Interval, Uncertainty, aggregates};
use serde_json::Value;
use std::collections::BTreeMap;

/// Foreign text on one line; see [`visible::visible`].
pub fn visible(text: &str) -> String {
    visible::visible(text)
}

/// Line ends become `⏎`; keeps about `limit` characters of the beginning, and the end, where answers are.
pub fn excerpt(text: &str, limit: usize) -> String {
    let total = text.chars().count();
    let shown = |part: &str| joined(part.split('\n').map(visible), "⏎\n");
    if total <= limit {
        return shown(text);
    }
    let head = limit * 3 / 5;
    let tail = limit - head;
    let start = shown(&text.chars().take(head).collect::<String>());
    let end = shown(&text.chars().skip(total - tail).collect::<String>());
    format!("{start}\n[… {} characters …]\n{end}", grouped((total - limit) as u64))
}

/// `71.2 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", points(share))
}

/// `95 %`, `97.5 %`, of a confidence level.
pub fn level(level: f64) -> String {
    let percent = format!("{:.4}", 100.0 * level);
    format!("{} %", percent.trim_end_matches('0').trim_end_matches('.'))
}

/// `71.2`: percentage points without a unit; `0.03` and `99.97` where one digit would say 0 or 100.
pub fn points(share: f64) -> String {
    let value = share * 100.0;
    if value.abs() < ROUNDING {
        return "0.0".to_owned();
    }
    let rest = value.abs().min((value.abs() - 100.0).abs());
    let is_hidden = rest > ROUNDING && rest < 0.05;
    let decimals = if is_hidden { (-rest.log10()).ceil() as usize } else { 1 };
    format!("{value:.decimals$}")
}

const ROUNDING: f64 = 1e-10;

/// `+58.9`, in percentage points.
pub fn signed_points(share: f64) -> String {
    let text = points(share);
    if share * 100.0 >= ROUNDING { format!("+{text}") } else { text.replace('-', "−") }
}

/// In percentage points, two digits: `1.3`, `0.84`, `12`.
pub fn standard_error(share: f64) -> String {
    let value = share * 100.0;
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { "unknown".to_owned() };
    }
    let decimals = (1 - value.log10().floor() as i32).clamp(0, 6);
    format!("{value:.*}", decimals as usize)
}

/// As [`uncertainty()`], without the reason.
pub fn interval_or_none(of: &Uncertainty) -> String {
    of.interval.map_or("none".to_owned(), |interval| Unit::Share.interval(&interval))
}

/// An interval in percentage points, or why there is none.
pub fn uncertainty(of: &Uncertainty) -> String {
    match (&of.interval, &of.withheld) {
        (None, Some(reason)) => format!("none ({reason})"),
        _ => interval_or_none(of),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Printed in percentage points.
    Share,
    Plain,
}

impl Unit {
    /// `62.1` of a share 0.621; else about four digits.
    pub fn show(self, value: f64) -> String {
        match (value.is_finite(), self) {
            (false, _) => "not finite".to_owned(),
            (true, Self::Share) => points(value).replace('-', "−"),
            (true, Self::Plain) => number(value),
        }
    }

    /// `2.0 points` of a share 0.02.
    pub fn sized(self, size: f64) -> String {
        self.show(size) + if self == Self::Share { " points" } else { "" }
    }

    pub fn signed(self, value: f64) -> String {
        match self {
            Self::Share if value.is_finite() => signed_points(value),
            Self::Plain if value > 0.0 && value.is_finite() => format!("+{}", number(value)),
            _ => self.show(value),
        }
    }

    /// `[60.1, 64.2]`.
    pub fn interval(self, interval: &Interval) -> String {
        format!("[{}, {}]", self.show(interval.low), self.show(interval.high))
    }

    /// Factor of print: 100 for shares.
    pub fn scale(self) -> f64 {
        match self {
            Self::Share => 100.0,
            Self::Plain => 1.0,
        }
    }
}

/// `0.008`, `< 0.0001`; `0.05004` where fewer digits would say that it is at most 0.05.
pub fn p_value(p: f64) -> String {
    let decimals = if p < 0.1 { 4 } else { 3 };
    match p {
        p if !p.is_finite() => "none".to_owned(),
        p if p < 0.0001 => "< 0.0001".to_owned(),
        p => {
            let is_honest = |text: &String| !LEVELS.iter().any(|level| hides(text, p, *level));
            let mut texts = (decimals..12).map(|decimals| format!("{p:.decimals$}"));
            texts.find(is_honest).unwrap_or_else(|| format!("{p:.decimals$}"))
        }
    }
}

const LEVELS: [f64; 3] = [0.01, 0.05, 0.1];

/// Whether the text says that p is at most the level, and p is above it by more than its own rounding.
fn hides(text: &str, p: f64, level: f64) -> bool {
    p > level * (1.0 + 1e-12) && text.parse().is_ok_and(|shown: f64| shown <= level)
}

/// About four digits: `0.01250`, `12.50`, `4,700`.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let text = if value == 0.0 {
        "0".to_owned()
    } else if !(1e-4..1e9).contains(&size) {
        format!("{value:.2e}")
    } else if value.fract() == 0.0 || size >= 1000.0 {
        let sign = if value < 0.0 { "-" } else { "" };
        format!("{sign}{}", grouped(size.round() as u64))
    } else {
        let decimals = (3 - size.log10().floor() as i32).clamp(1, 6);
        format!("{value:.*}", decimals as usize)
    };
    text.replace('-', "−")
}

/// `+1.50`, `−0.5`.
pub fn signed(value: f64, decimals: usize) -> String {
    format!("{value:+.decimals$}").replace('-', "−")
}

/// `12,345`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut groups: Vec<_> = digits.as_bytes().rchunks(3).map(String::from_utf8_lossy).collect();
    groups.reverse();
    groups.join(",")
}

/// `3 runs`, `1 run`.
pub fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count as u64), if count == 1 { one } else { many })
}

pub fn updates(count: u64) -> String {
    counted(count as usize, "update", "updates")
}

/// `a, b and c`.
pub fn listed<T: ToString>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    match names.as_slice() {
        [] => "none".to_owned(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

/// How often each is there.
pub fn counts<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    items.into_iter().fold(BTreeMap::new(), |mut counts, item| {
        *counts.entry(item).or_default() += 1;
        counts
    })
}

pub fn tally<T: Ord>(items: impl IntoIterator<Item = T>, words: impl Fn(&T) -> &str) -> String {
    joined(counts(items).iter().map(|(item, count)| format!("{count} {}", words(item))), ", ")
}

pub fn joined<T: ToString>(items: impl IntoIterator<Item = T>, between: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(between)
}

pub fn sentence(text: &str) -> String {
    if text.ends_with(['.', '?', '!']) { text.to_owned() } else { format!("{text}.") }
}

/// A symbol such as ε stays as it is.
pub fn capital(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters).collect()
}

/// `8.2 s`, `4 min 05 s`, `2 h 07 min`.
pub fn duration(seconds: f64) -> String {
    if seconds < 59.95 {
        return format!("{:.1} s", seconds + 0.0);
    }
    let whole = seconds.round() as u64;
    match whole {
        0..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// As in an experiment file, or `absent`.
pub fn literal(value: Option<&Value>) -> String {
    value.map_or("absent".to_owned(), |value| visible(&value.to_string()))
}

pub fn short_digest(digest: &str) -> String {
    visible(&digest.chars().take(12).collect::<String>())
}

/// Block characters at `width` evenly spaced x; empty without points.
pub fn sparkline(points: &[(f64, f64)], width: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return String::new();
    };
    let (low, high) = aggregates::range(points.iter().map(|point| point.1));
    let columns = width.min(points.len());
    let block = |column: usize| {
        let part = column as f64 / (columns - 1).max(1) as f64;
        let x = first.0 + part * (last.0 - first.0);
        let at = points[1..].iter().take_while(|point| point.0 <= x).count();
        if points[at].1.is_nan() {
            return ' ';
        }
        let level = if high > low { (points[at].1 - low) / (high - low) * 7.0 } else { 0.0 };
        BLOCKS[(level.round() as usize).min(7)]
    };
    (0..columns).map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_keeps_both_ends_and_counts_what_it_left_out() {
        let text = format!("{}middle{}", "a".repeat(1000), "z".repeat(1000));
        let shown = excerpt(&text, 600);
        assert!(shown.starts_with("aaaa") && shown.ends_with("zzzz"));
        assert!(shown.contains("[… 1,406 characters …]"), "{shown}");
        assert_eq!(excerpt("a\nb⏎", 600), "a⏎\nb\\u{23ce}");
    }

    #[test]
    fn numbers_follow_the_rounding_rule() {
        assert_eq!(percent(0.71249), "71.2 %");
        let shares = [0.0, -1e-16, -0.0001, 1.0 / 3000.0, 0.5, 2999.0 / 3000.0, 1.0 - 1e-16, 1.0];
        let shown = ["0.0", "0.0", "-0.01", "0.03", "50.0", "99.97", "100.0", "100.0"];
        assert_eq!(shares.map(points), shown);
        assert_eq!(
            (signed_points(0.0002), signed_points(-0.0002), signed_points(1e-16)),
            ("+0.02".into(), "−0.02".into(), "0.0".into())
        );
        let ps =
            [0.050039, 0.05, 0.05 + 1e-17, 0.04996, 0.10004, 0.1, 0.0079, 0.00001].map(p_value);
        let shown =
            ["0.05004", "0.0500", "0.0500", "0.0500", "0.10004", "0.100", "0.0079", "< 0.0001"];
        assert_eq!(ps, shown);
        assert_eq!((signed_points(0.589), signed_points(-0.02)), ("+58.9".into(), "−2.0".into()));
        let errors = [0.0132, 0.0084, 0.123, 0.0, 0.00051].map(standard_error);
        assert_eq!(errors, ["1.3", "0.84", "12", "0", "0.051"]);
        let interval = Interval { low: -0.013, high: 0.5, level: 0.95 };
        assert_eq!(Unit::Share.interval(&interval), "[−1.3, 50.0]");
        let numbers = [0.0125, 12.5, 4700.4, 0.00001, -3.0, 0.0, 123456.0].map(number);
        assert_eq!(numbers, ["0.01250", "12.50", "4,700", "1.00e−5", "−3", "0", "123,456"]);
        let durations = [59.94, 59.96, 245.0, 3599.6, 7620.0].map(duration);
        let shown = ["59.9 s", "1 min 00 s", "4 min 05 s", "1 h 00 min", "2 h 07 min"];
        assert_eq!(durations, shown);
    }

    #[test]
    fn a_sparkline_spans_the_range_of_its_curve() {
        let rising: Vec<(f64, f64)> = (0..8).map(|i| (f64::from(i), f64::from(i))).collect();
        assert_eq!(sparkline(&rising, 8), "▁▂▃▄▅▆▇█");
        assert_eq!(sparkline(&[(0.0, 3.0)], 8), "▁");
        assert_eq!(sparkline(&[], 8), "");
    }
}
