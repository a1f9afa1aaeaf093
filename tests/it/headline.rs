//! The results that the documentation prints are those of the study's report, digit for digit.

use crate::repository;
use dapo::base::files;
use dapo::report::text;
use dapo::study::{Clock, collection, metric};
use serde_json::Value;

fn report(study: &str) -> Value {
    serde_json::from_str(&page(&format!("reports/{study}/report.json"))).unwrap()
}

fn page(name: &str) -> String {
    files::read_text(&repository::root().join(name)).unwrap()
}

fn results() -> String {
    page("docs/results.md")
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// `57.7 [44.0, 71.4]`, in percent; of differences with a sign before the first number.
fn with_interval(mean: &Value, interval: &Value, signed: bool) -> String {
    let mean = 100.0 * number(mean);
    let [low, high] = ["low", "high"].map(|end| 100.0 * number(&interval[end]));
    let first = if signed { format!("{mean:+.1}") } else { format!("{mean:.1}") };
    format!("{first} [{low:.1}, {high:.1}]").replace('-', "−")
}

fn of_result(comparison: &Value) -> String {
    let result = &comparison["result"];
    with_interval(&result["difference"], &result["interval"], true)
}

/// A declared comparison.
fn declared<'a>(report: &'a Value, family: &str, id: &str) -> &'a Value {
    let mut families = list(&report["analysis"]["families"]).iter();
    let all = list(&families.find(|other| other["id"] == family).unwrap()["comparisons"]);
    all.iter().find(|comparison| comparison["declared"]["id"] == id).unwrap()
}

#[test]
fn the_sentences_of_pages_are_those_of_reports_and_scripts() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for block in include_str!("headline/sentences.txt").split("\n\n").skip(1) {
        let (head, sentences) = block.split_once('\n').unwrap();
        let (source, pages) = head.split_once(" -> ").unwrap_or_else(|| panic!("{head:?}"));
        let source = match source {
            "-" => Value::Null,
            "post-hoc" => serde_json::from_str(&page("reports/post-hoc/post_hoc.json")).unwrap(),
            study => report(study),
        };
        for name in pages.split(", ") {
            let page = flat(&page(name));
            for sentence in sentences.lines().map(|line| filled(line, &source)) {
                checked += 1;
                if !page.contains(&sentence) {
                    wrong.push(format!("{name} does not say {sentence:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked >= 210, "only {checked} sentences: the table is read wrongly");
}

fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A line of the table with numbers in place of its braces.
fn filled(line: &str, source: &Value) -> String {
    let mut parts = line.split('{');
    let mut text = parts.next().unwrap().to_string();
    for part in parts {
        let (place, rest) = part.split_once('}').unwrap_or_else(|| panic!("{line:?}"));
        text += &shown(place, source);
        text += rest;
    }
    text
}

/// What the head of the table says of `PLACE FORM`.
fn shown(place: &str, source: &Value) -> String {
    let (place, form) = place.split_once(' ').unwrap_or((place, ""));
    if place == "ratio" {
        let arms = list(&source["analysis"]["stability"]).iter();
        // An arm without runs has none.
        let largest = arms.filter_map(|arm| arm["ratio"]["value"].as_f64()).fold(0.0, f64::max);
        return text::grouped(largest as u64);
    }
    if place.starts_with('/') {
        let value = source.pointer(place).unwrap_or_else(|| panic!("no {place}"));
        return match form {
            "interval" => with_interval(&value["difference"], &value["interval"], true),
            "points" => format!("{:+.1}", 100.0 * number(&value["difference"])).replace('-', "−"),
            "percent1" => format!("{:.1}", 100.0 * number(value)),
            "percent" => format!("{:.0}", 100.0 * number(value)),
            "count" => format!("{:.0}", number(value)),
            _ => panic!("{form:?} is no form of a number"),
        };
    }
    if let Some((name, arm)) = place.split_once(':') {
        let grids = list(&source["analysis"]["grids"]);
        let grid = grids.iter().find(|grid| grid["name"] == name).unwrap();
        let id = format!("{name}/{arm}");
        return of_arm(list(&grid["arms"]).iter().find(|arm| arm["id"] == id).unwrap(), form);
    }
    let (family, id) = place.split_once('/').unwrap_or_else(|| panic!("{place:?}"));
    let comparison = declared(source, family, id);
    let result = &comparison["result"];
    let points = of_result(comparison);
    let (mean, range) = points.split_once(' ').unwrap();
    let word = comparison["word"].as_str().unwrap().replace('-', " ");
    let mean_of = |side: &str| {
        let values = list(&comparison[side]).iter().map(|run| number(&run["value"]));
        values.clone().sum::<f64>() / values.count() as f64
    };
    match form {
        "" => points,
        "mean" => mean.to_string(),
        "range" => range.to_string(),
        "bold" if ["improves", "hurts"].contains(&&*word) => format!("**{mean}** {range}"),
        "bold" => points,
        "word" => word,
        "judged" => format!("{points}, {word}"),
        "p" => format!("{:.4}", number(&result["adjusted_p"])),
        "p4" => format!("{:.4}", number(&result["p"])),
        "p2" => format!("{:.2}", number(&result["p"])),
        "nats" => {
            let [low, high] = ["low", "high"].map(|end| number(&result["interval"][end]));
            let mean = number(&result["difference"]);
            format!("{mean:+.2} [{low:.2}, {high:.2}]").replace('-', "−")
        }
        "arm" | "reference" => format!("{:.2}", mean_of(form)),
        "reference%" => format!("{:.1}", 100.0 * mean_of("reference")),
        _ => panic!("{form:?} is no form of a comparison"),
    }
}

/// What the head of the table says of `GRID:ARM FORM`.
fn of_arm(arm: &Value, form: &str) -> String {
    let percent = |share: f64| format!("{:.1}", 100.0 * share);
    let score = &arm["score"];
    let seeds = list(&arm["seeds"]);
    let of_seeds = |key: &str| seeds.iter().map(|seed| number(&seed[key])).collect::<Vec<f64>>();
    match form {
        "" => percent(number(&score["mean"])),
        "base" => percent(number(&arm["base_score"])),
        "interval" => with_interval(&score["mean"], &score["interval"], false),
        "seeds" => of_seeds("avg_at_k").into_iter().map(percent).collect::<Vec<_>>().join(", "),
        "tokens" => {
            let thousands = of_seeds("generated_tokens").iter().sum::<f64>() / 1000.0;
            text::grouped((thousands / seeds.len() as f64).round() as u64)
        }
        "seconds" => {
            let mut seconds = of_seeds("wall_seconds");
            seconds.sort_by(f64::total_cmp);
            format!("{:.0}", seconds[seeds.len() / 2])
        }
        _ => panic!("{form:?} is no form of an arm"),
    }
}

/// `12.5` of `+12.5` and of `−12.5` with its sign; `None` of what is no number.
fn printed(text: &str) -> Option<f64> {
    text.trim_start_matches('(').replace('−', "-").parse().ok()
}

/// Difference and interval of every declared comparison of a study as points with one digit, each also the other way round
/// ("falls by").
fn known(study: &str) -> Vec<[f64; 3]> {
    let mut known = Vec::new();
    for family in report(study)["analysis"]["families"].as_array().unwrap() {
        for comparison in list(&family["comparisons"]) {
            let result = &comparison["result"];
            if result["interval"].is_null() {
                continue;
            }
            let ends =
                [&result["difference"], &result["interval"]["low"], &result["interval"]["high"]];
            let [mean, low, high] =
                ends.map(|it| printed(&format!("{:.1}", 100.0 * number(it))).unwrap());
            known.extend([[mean, low, high], [-mean, -high, -low]]);
        }
    }
    known
}

/// Every `x points [low, high]` of the sections about a study is a declared comparison's.
#[test]
fn every_interval_in_the_words_is_a_declared_comparisons() {
    for (title, study, at_least) in [
        ("What each technique changes", "study-2", 20),
        ("On a task that nothing was tuned on", "sums-1", 7),
    ] {
        let (known, results) = (known(study), results());
        let section = results.split("\n## ").find(|section| section.starts_with(title)).unwrap();
        let mut checked = 0;
        for (at, _) in section.match_indices('[') {
            let Some((inside, _)) = section[at + 1..].split_once(']') else { continue };
            let Some((low, high)) = inside.split_once(", ") else { continue };
            let (Some(low), Some(high)) = (printed(low), printed(high)) else { continue };
            let mean = section[..at].split_whitespace().rev().take(2).find_map(printed).unwrap();
            assert!(known.contains(&[mean, low, high]), "no comparison has {mean} [{inside}]");
            checked += 1;
        }
        assert!(checked >= at_least, "{title}: only {checked} intervals");
    }
}

/// `recomputed.txt` is what `golden/stats/recompute.py` printed of the records that the report is made of.
#[test]
fn the_recomputed_numbers_are_the_reports() {
    for study in [
        "study-2",
        "sums-1",
        "words",
        "useful",
        "loops",
        "overlong",
        "repairs-chains",
        "repairs-sums",
        "collapse",
    ] {
        let recomputed = page(&format!("reports/{study}/recomputed.txt"));
        let report = report(study);
        for family in list(&report["analysis"]["families"]) {
            for comparison in list(&family["comparisons"]) {
                let (id, result) = (&comparison["declared"]["id"], &comparison["result"]);
                let name = format!("{}/{} ", family["id"], id).replace('"', "");
                let line = recomputed.lines().find(|line| line.starts_with(&name));
                if result.is_null() {
                    assert_eq!(line, None, "{study}: {name}");
                    continue;
                }
                let line = line.unwrap_or_else(|| panic!("{study}: no {name}"));
                let theirs: Vec<f64> =
                    line[name.len()..].split_whitespace().filter_map(printed).collect();
                let of_result = ["difference", "p", "adjusted_p"].map(|key| &result[key]);
                let interval = ["low", "high"].map(|end| &result["interval"][end]);
                let ours = of_result.into_iter().chain(interval).map(number);
                assert_eq!(theirs.len(), 5, "{line}");
                for (ours, theirs) in ours.zip(theirs) {
                    assert!((ours - theirs).abs() < 1e-9, "{study}: {line}, and here {ours}");
                }
            }
        }
    }
}

/// A run is within its own total on every clock, also where what a step adds is no whole number.
#[test]
fn a_runs_last_evaluation_lies_within_its_total() {
    let study = collection::load(&repository::root().join("reports/useful"), None).unwrap();
    for cell in &study.cells {
        let last = cell.last_evaluation("dev").unwrap();
        for clock in [Clock::Updates, Clock::GeneratedTokens, Clock::Flops] {
            let total = metric::total(cell, clock).unwrap();
            assert!(clock.at(cell, last) <= total as f64, "{}: {clock:?}", cell.name);
        }
    }
}

#[test]
fn flops_and_changed_checkouts_are_counted_as_the_committed_script_does() {
    let computed: Value = serde_json::from_str(&page("reports/post-hoc/post_hoc.json")).unwrap();
    let study = collection::load(&repository::root().join("reports/study-2"), None).unwrap();
    let budget = ["factorial/dapo", "factorial/grpo"].map(|arm| study.cells_of(arm)).concat();
    let budget = budget.into_iter().filter_map(|cell| metric::total(cell, Clock::Flops)).min();
    assert_eq!(budget, Some(number(&computed["clocks"]["dapo"]["flops"]["budget"]).ceil() as u64));
    let dirty: u64 = ["study-2", "sums-1"]
        .map(|study| computed["records"][study]["git_dirty"].as_u64().unwrap())
        .iter()
        .sum();
    assert!(results().contains(&dirty.to_string()), "docs/results.md does not say {dirty}");
}

#[test]
fn interactions_are_told_by_the_arms_of_their_pools() {
    let report = report("study-2");
    let mut equivalent = 0;
    for family in list(&report["analysis"]["families"]) {
        let is_interaction = family["id"].as_str().unwrap().starts_with("interactions-of");
        for comparison in list(&family["comparisons"]) {
            let techniques = comparison["declared"]["id"].as_str().unwrap().matches('+').count();
            let divisor = if is_interaction { Some(1 << techniques) } else { None };
            assert_eq!(
                comparison["contrast_divisor"].as_u64(),
                divisor,
                "{}",
                comparison["declared"]
            );
            equivalent += u64::from(comparison["word"] == "equivalent");
        }
    }
    let computed: Value = serde_json::from_str(&page("reports/post-hoc/post_hoc.json")).unwrap();
    assert_eq!(computed["equivalence"]["study-2"]["equivalent_in_report"], equivalent);
}
