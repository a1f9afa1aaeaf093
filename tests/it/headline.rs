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

fn family<'a>(report: &'a Value, id: &str) -> &'a Value {
    list(&report["analysis"]["families"]).iter().find(|family| family["id"] == id).unwrap()
}

fn grid<'a>(report: &'a Value, name: &str) -> &'a Value {
    list(&report["analysis"]["grids"]).iter().find(|grid| grid["name"] == name).unwrap()
}

/// A declared comparison.
fn declared<'a>(report: &'a Value, family: &str, id: &str) -> &'a Value {
    let all = list(&self::family(report, family)["comparisons"]);
    all.iter().find(|it| it["declared"]["id"] == id).unwrap()
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
    assert!(checked >= 140, "only {checked} sentences: the table is read wrongly");
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
        let largest = arms.map(|arm| number(&arm["ratio"]["value"])).fold(0.0, f64::max);
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
    if let Some((grid, arm)) = place.split_once(':') {
        let (arms, id) = (list(&self::grid(source, grid)["arms"]), format!("{grid}/{arm}"));
        let arm = arms.iter().find(|arm| arm["id"] == id).unwrap();
        let score = if form == "base" { &arm["base_score"] } else { &arm["score"]["mean"] };
        return format!("{:.1}", 100.0 * number(score));
    }
    let (family, id) = place.split_once('/').unwrap_or_else(|| panic!("{place:?}"));
    let comparison = declared(source, family, id);
    let result = &comparison["result"];
    let points = of_result(comparison);
    let (mean, range) = points.split_once(' ').unwrap();
    let word = comparison["word"].as_str().unwrap().replace('-', " ");
    let of_arm = |side: &str| {
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
        "arm" | "reference" => format!("{:.2}", of_arm(form)),
        "reference%" => format!("{:.1}", 100.0 * of_arm("reference")),
        _ => panic!("{form:?} is no form of a comparison"),
    }
}

/// Grids of one study have arms of the same names.
#[test]
fn pages_of_studies_with_several_grids_name_the_grid() {
    let headline = |study: &str| {
        let written = page(&format!("reports/{study}/report.md"));
        written.lines().nth(4).unwrap().to_string()
    };
    for family in list(&report("repairs-chains")["analysis"]["families"]) {
        let question = family["question"].as_str().unwrap();
        assert!(headline("repairs-chains").contains(&format!("{question}: ")), "{question}");
    }
    let picture = page("reports/repairs-chains/answer.svg");
    assert!(picture.contains("GRPO, no-warm-up at equal updates"), "the figure names no grid");
    // One block of eight has no difference.
    let sums = headline("repairs-sums");
    assert!(sums.contains("at equal generated tokens, in 7 of 8 blocks"), "{sums}");
}

/// Looked at afterwards: `.ci/recompute` prints it again.
#[test]
fn what_the_repairs_changed_is_what_the_script_printed() {
    let printed = page("reports/repairs-chains/against_study_2.txt");
    let at_equal_tokens = printed.split("\n\n").next().unwrap();
    let own = flat(&page("reports/repairs-chains/README.md"));
    for grid in ["safeguards", "no-warm-up", "long"] {
        let line = at_equal_tokens.lines().find(|line| line.starts_with(grid)).unwrap();
        let (_, change) = line.trim_end().rsplit_once("  ").unwrap();
        let change = change.trim().replace('-', "−");
        let (mean, interval) = change.split_once(' ').unwrap();
        let risen = format!("{} points higher {interval}", &mean[1..]);
        assert!(own.contains(&change) || own.contains(&risen), "no page says {change:?}");
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
        let section = results.split("\n## ").find(|it| it.starts_with(title)).unwrap();
        let mut found = 0;
        for (at, _) in section.match_indices('[') {
            let Some((inside, _)) = section[at + 1..].split_once(']') else { continue };
            let Some((low, high)) = inside.split_once(", ") else { continue };
            let (Some(low), Some(high)) = (printed(low), printed(high)) else { continue };
            let mean = section[..at].split_whitespace().rev().take(2).find_map(printed).unwrap();
            assert!(known.contains(&[mean, low, high]), "no comparison has {mean} [{inside}]");
            found += 1;
        }
        assert!(found >= at_least, "{title}: only {found} intervals were found");
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

/// What limits the benchmark: the spread within arms and the share of it that one skill explains.
#[test]
fn the_spread_in_words_is_the_recomputed_one() {
    let recomputed = page("reports/study-2/recomputed.txt");
    let grids = recomputed.split("\n\n");
    let factorial = grids.into_iter().find(|it| it.starts_with("primary endpoint of factorial"));
    let after = |begin: &str| {
        let line = factorial.unwrap().lines().find_map(|line| line.trim().strip_prefix(begin));
        line.unwrap_or_else(|| panic!("no {begin:?}")).trim_start_matches(": ")
    };
    let (within, _) = after("within arms, between blocks, residual").split_once(',').unwrap();
    let (without, _) = after("without 104").split_once(',').unwrap();
    let skill = "explains of the spread within arms, rollout/style_checked_wrong_share";
    let share = 100.0 * printed(after(skill)).unwrap();
    let text = results().split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        format!("In the study it is {within} points at equal updates"),
        format!("({without} without seed 104;"),
        format!("the share of wrong results that are checked explains {share:.0} % of it"),
    ] {
        assert!(text.contains(&words), "docs/results.md does not say {words:?}");
    }
}

#[test]
fn the_ladder_is_the_reports() {
    let (report, results) = (report("study-1"), results());
    let ladder = grid(&report, "ladder");
    let arms = list(&ladder["arms"]);
    let differences = list(&ladder["differences"]);
    assert_eq!((arms.len(), differences.len()), (6, 5));
    for arm in arms {
        let score = with_interval(&arm["score"]["mean"], &arm["score"]["interval"], false);
        let difference = differences.iter().find(|it| it["declared"]["arm"] == arm["id"]);
        let (change, word) = match difference {
            None => (String::new(), ""),
            Some(it) => (of_result(it), it["word"].as_str().unwrap()),
        };
        let label = arm["label"].as_str().unwrap();
        let row = format!("| {label} | {score} | {change} | {word} | ").replace("|  |", "| |");
        let row = row.replace("|  |", "| |");
        assert!(results.contains(&row), "docs/results.md has no row {row:?}");
    }
}

#[test]
fn the_tables_of_methods_are_the_reports() {
    let report = report("methods-1");
    let page = page("reports/methods-1/README.md");
    for (name, arms) in [("methods", 21), ("mismatch", 5)] {
        let grid = grid(&report, name);
        let of_grid = list(&grid["arms"]);
        assert_eq!(of_grid.len(), arms);
        for arm in of_grid {
            let seeds = list(&arm["seeds"]);
            let all = |key: &str| seeds.iter().map(|seed| number(&seed[key])).collect::<Vec<f64>>();
            let percent: Vec<String> =
                all("avg_at_k").iter().map(|share| format!("{:.1}", 100.0 * share)).collect();
            let mean = 100.0 * number(&arm["score"]["mean"]);
            let tokens = all("generated_tokens").iter().sum::<f64>() / 3000.0;
            let tokens = text::grouped(tokens.round() as u64);
            let mut seconds = all("wall_seconds");
            seconds.sort_by(f64::total_cmp);
            let label = arm["label"].as_str().unwrap();
            // The table of the mismatch has names of its own and scores alone.
            let is_method = name == "methods" && !label.contains("int8");
            let mut row = format!("| {} | {mean:.1} |", percent.join(", "));
            if is_method {
                row += &format!(" {tokens} | {:.0} |", seconds[1]);
            }
            let begin = if is_method { format!("| {label} |") } else { "|".to_string() };
            let found = page.lines().any(|it| it.starts_with(&begin) && it.ends_with(&row));
            assert!(found, "README.md has no {label} {row:?}");
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

/// What was looked at afterwards on the two controls, by what the committed scripts printed (`.ci/recompute` runs them
/// again).
#[test]
fn what_the_pages_of_the_controls_say_is_computed() {
    let [words, useful] =
        ["words", "useful"].map(|it| flat(&page(&format!("reports/{it}/README.md"))));
    let results = flat(&results());
    let says = |page: &str, sentence: String| {
        assert!(page.contains(&sentence), "no page says {sentence:?}");
    };
    let printed = page("reports/words/at_equal_accuracy.txt");
    let kept = |arm: &str, level: &str| -> f64 {
        let mut lines = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|line| line[0] == arm && line[1] == level).unwrap();
        line[5].parse().unwrap()
    };
    let [low, high] = ["high-0.4", "high-0.8"].map(|arm| kept(arm, "0.70"));
    says(&words, format!("0.4 and 0.8 have {low:.2} and {high:.2} nats more than GRPO"));
    for arm in ["high-0.4", "high-0.8"] {
        let more = kept(arm, "0.75");
        says(&words, format!("at 75 % they have {more:.2} more"));
        says(&results, format!("{more:.2} nats more than GRPO"));
    }
    let report = report("words");
    assert_eq!(list(&declared(&report, "null", "one-update-0.8")["identical_seeds"]).len(), 8);
    let printed = page("reports/useful/by_block.txt");
    let means = printed.lines().find(|line| line.starts_with(" mean")).unwrap();
    let means: Vec<&str> = means.split_whitespace().filter(|word| *word != "%").collect();
    let [_, groups, dropped, late, prompts, rollouts, ..] = means[..] else { panic!("{means:?}") };
    let prompts: f64 = prompts.parse().unwrap();
    let (_, fresh) = printed.split_once("second half of equal tokens: ").unwrap();
    let fresh = fresh.lines().next().unwrap();
    for sentence in [
        format!("GRPO has {groups} % useful groups in its last ten steps"),
        format!(
            "drops {dropped} % of its groups in the mean over all steps, and {late} % in the last ten"
        ),
        format!("samples {rollouts} responses a step"),
        format!("has {prompts:.0} groups in the mean instead of 64"),
        format!("by more than Dynamic Sampling is: {fresh}"),
    ] {
        says(&useful, sentence);
    }
}

#[test]
fn the_table_of_engines_is_the_reports() {
    let report = report("engines-1");
    let page = page("reports/engines-1/README.md");
    let arms = list(&report["analysis"]["grids"][0]["arms"]);
    let score = |label: &str| {
        let arm = arms.iter().find(|arm| arm["label"] == label).unwrap();
        100.0 * number(&arm["score"]["mean"])
    };
    let comparisons = list(&family(&report, "same-arm")["comparisons"]);
    assert_eq!((arms.len(), comparisons.len()), (10, 5));
    let is_here = |arm: &&Value| !arm["label"].as_str().unwrap().ends_with(", TRL");
    for (arm, comparison) in arms.iter().filter(is_here).zip(comparisons) {
        let label = arm["label"].as_str().unwrap();
        let scores = [score(label), score(&format!("{label}, TRL"))];
        let difference = of_result(comparison);
        let row = format!("| {label} | {:.1} | {:.1} | {difference} |", scores[0], scores[1]);
        assert!(page.contains(&row), "README.md has no {row:?}");
    }
}

#[test]
fn the_tables_of_three_trainers_are_the_reports() {
    let report = report("engines-2");
    let (own, agreement) =
        (page("reports/engines-2/README.md"), page("reports/engines-2/agreement.md"));
    let own = own.replace("**", "");
    let arms = list(&report["analysis"]["grids"][0]["arms"]);
    let score = |label: &str| {
        let arm = arms.iter().find(|arm| arm["label"] == label)?;
        Some(format!("{:.1}", 100.0 * number(&arm["score"]["mean"])))
    };
    let same = |trainer: &str, id: &str| {
        let all = list(&family(&report, &format!("same-arm-{trainer}"))["comparisons"]);
        all.iter().find(|it| it["declared"]["id"] == id).map(of_result)
    };
    let (in_verl, in_trl) = agreement.split_once("| in TRL |").unwrap();
    // Its numbers, as the page has them: `-2.8 | +3.5 | -6.4 to +13.4`.
    let effect = |table: &str, id: &str| {
        let line = table
            .lines()
            .find(|line| line.starts_with(&format!("| {id} | ")) && line.contains(" to "))?;
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (low, high) = cells[5]
            .replace(['+'], "")
            .split_once(" to ")
            .map(|(a, b)| (a.to_owned(), b.to_owned()))?;
        let shown =
            [cells[2].to_owned(), cells[3].to_owned(), format!("{} [{low}, {high}]", cells[4])];
        assert_eq!(cells[6], "open");
        Some(shown.map(|it| it.replace('-', "−")))
    };
    let none = || "–".to_owned();
    for (id, label) in [
        ("grpo", "GRPO"),
        ("clip-higher", "Clip-Higher"),
        ("token-level", "Token-level loss"),
        ("soft-punishment", "Soft punishment"),
        ("dynamic-sampling", "Dynamic Sampling"),
        ("dapo", "DAPO"),
    ] {
        let there = |trainer| score(&format!("{label}, {trainer}")).unwrap_or_else(none);
        let row = format!(
            "| {label} | {} | {} | {} | {} | {} |",
            score(label).unwrap(),
            there("verl"),
            same("verl", id).unwrap_or_else(none),
            there("TRL"),
            same("trl", id).unwrap_or_else(none)
        );
        assert!(own.contains(&row), "README.md has no {row:?}");
        let Some([here, verl, difference]) = effect(in_verl, id) else { continue };
        let [_, trl, other] = effect(in_trl, id).unwrap_or_else(|| [none(), none(), none()]);
        let row = format!("| {label} | {here} | {verl} | {difference} | {trl} | {other} |");
        assert!(own.contains(&row), "README.md has no {row:?}");
    }
    for name in ["README.md", "docs/results.md", "docs/engines.md"] {
        assert!(page(name).contains("19.4") && page(name).contains("18.9"), "{name}");
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
