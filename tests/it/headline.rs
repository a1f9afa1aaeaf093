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
fn what_each_technique_changes_is_the_reports() {
    let (report, results) = (report("study-2"), results());
    let readme = page("README.md");
    let rows = [
        ("DAPO − GRPO", ("primary", "equal-tokens"), ("other-clocks", "equal-updates")),
        ("Clip-Higher", ("main-effects", "clip"), ("main-effects-by-update", "clip")),
        ("Token-level loss", ("main-effects", "token"), ("main-effects-by-update", "token")),
        ("Soft punishment", ("main-effects", "soft"), ("main-effects-by-update", "soft")),
        ("Dynamic Sampling", ("main-effects", "dynamic"), ("main-effects-by-update", "dynamic")),
    ];
    for (name, tokens, updates) in rows {
        let found = [tokens, updates].map(|(family, id)| declared(&report, family, id));
        let [tokens, updates] = found.map(of_result);
        let words = found.map(|it| it["word"].as_str().unwrap());
        let row = format!("| {name} | {tokens} | {} | {updates} | {} |", words[0], words[1]);
        assert!(results.contains(&row), "docs/results.md has no row {row:?}");
        let [tokens, updates] = found.map(in_bold_if_shown);
        let row = format!("| {name} | {tokens} | {updates} |");
        assert!(readme.contains(&row), "README.md has no row {row:?}");
    }
    let equal = declared(&report, "other-clocks", "equal-rollouts");
    let text = results.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&format!("the difference is {}", of_result(equal))), "{text}");
}

/// `**−7.6** [−14.0, −1.2]`; without stars where nothing is shown.
fn in_bold_if_shown(comparison: &Value) -> String {
    let text = of_result(comparison);
    let is_shown = ["improves", "hurts"].contains(&comparison["word"].as_str().unwrap());
    let (mean, interval) = text.split_once(' ').unwrap();
    if is_shown { format!("**{mean}** {interval}") } else { text }
}

/// DAPO − GRPO with one setting of study 2 repaired: on three clocks, in three pages.
#[test]
fn the_comparisons_of_the_repairs_on_sums_are_the_reports() {
    let report = report("repairs-sums");
    for (grid, name) in [
        ("safeguards", "released bounds on the ratio"),
        ("rate-3e-5", "a rate of 3e-5"),
        ("rate-5e-5", "a rate of 5e-5"),
    ] {
        let shown = ["equal-tokens", "equal-flops", "equal-updates"].map(|clock| {
            let comparison = declared(&report, grid, clock);
            format!("{}, {}", of_result(comparison), comparison["word"].as_str().unwrap())
        });
        let row = format!("| {name} | {} |", shown.join(" | "));
        for name in ["docs/results.md", "reports/repairs-sums/README.md"] {
            assert!(page(name).contains(&row), "{name} has no {row:?}");
        }
    }
    let at_3e_5 = of_result(declared(&report, "rate-3e-5", "equal-tokens"));
    assert!(page("README.md").contains(&at_3e_5));
    // One block of eight has no difference.
    let written = page("reports/repairs-sums/report.md");
    let headline = written.lines().nth(4).unwrap();
    assert!(headline.contains("at equal generated tokens, in 7 of 8 blocks"), "{headline}");
    for (printed, says) in [
        ("rate-3e-5.dapo                  99.8   99.7   97.8", "97.8 % under DAPO"),
        ("rate-3e-5.grpo                  99.8   99.7   99.6", "99.6 % under GRPO"),
        ("safeguards-sums.dapo            99.8   91.3   64.8", "64.8 % of DAPO's attempts"),
    ] {
        assert!(page("reports/repairs-sums/attempts.txt").contains(printed), "{printed}");
        assert!(page("reports/repairs-sums/README.md").contains(says), "{says}");
    }
    let printed = page("reports/repairs-sums/against_sums_1.txt");
    assert!(printed.contains("-16.4 [-27.8, -4.9]   -7.7 [-14.5, -0.9]"), "{printed}");
}

#[test]
fn the_comparisons_of_the_repairs_are_the_reports() {
    let report = report("repairs-chains");
    for (grid, in_readme, in_pages) in [
        ("safeguards", "with bounds on the ratio", "released bounds on the ratio"),
        ("no-warm-up", "without warm-up", "no warm-up"),
        ("long", "60 steps, mini-batches of four groups", "60 steps, mini-batches of four groups"),
    ] {
        let of = |id: &str| declared(&report, grid, id);
        let [tokens, flops, updates] = ["equal-tokens", "equal-flops", "equal-updates"].map(of);
        let shown = [tokens, updates, flops].map(in_bold_if_shown).join(" | ");
        let row = format!("| {in_readme} | {shown} |");
        assert!(page("README.md").contains(&row), "README.md has no row {row:?}");
        let with_word = |comparison: &Value| {
            format!("{}, {}", of_result(comparison), comparison["word"].as_str().unwrap())
        };
        let row =
            format!("| {in_pages} | {} |", [tokens, flops, updates].map(with_word).join(" | "));
        for name in ["docs/results.md", "reports/repairs-chains/README.md"] {
            assert!(page(name).contains(&row), "{name} has no {row:?}");
        }
    }
    for (grid, clock) in [("no-warm-up", "equal tokens"), ("long", "equal FLOPs")] {
        let enlarged = of_result(declared(&report, grid, "enlarged"));
        let sentence = format!("({enlarged} at {clock})");
        for name in ["docs/results.md", "reports/repairs-chains/README.md"] {
            let text = page(name).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(&sentence), "{name} does not say {sentence:?}");
        }
    }
    // Grids have arms of the same names: the headline answers each question, and the figure names the grid.
    let written = page("reports/repairs-chains/report.md");
    for family in list(&report["analysis"]["families"]) {
        let question = family["question"].as_str().unwrap();
        assert!(written.lines().nth(4).unwrap().contains(&format!("{question}: ")), "{question}");
    }
    let picture = page("reports/repairs-chains/answer.svg");
    assert!(picture.contains("GRPO, no-warm-up at equal updates"), "the figure names no grid");
    // Looked at afterwards: `.ci/recompute` prints it again.
    let printed = page("reports/repairs-chains/against_study_2.txt");
    let at_equal_tokens = printed.split("\n\n").next().unwrap();
    for grid in ["safeguards", "no-warm-up", "long"] {
        let line = at_equal_tokens.lines().find(|line| line.starts_with(grid)).unwrap();
        let (_, change) = line.trim_end().rsplit_once("  ").unwrap();
        let (mean, interval) = change.trim().split_once(' ').unwrap();
        let (page, mean) = (page("reports/repairs-chains/README.md"), mean.replace('-', "−"));
        let text = page.split_whitespace().collect::<Vec<_>>().join(" ");
        let interval = interval.replace('-', "−");
        let said =
            [format!("{mean} {interval}"), format!("{} points higher {interval}", &mean[1..])];
        assert!(said.iter().any(|said| text.contains(said)), "no page says {said:?}");
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
fn the_differences_in_words_are_the_reports() {
    let (report, results) = (report("study-1"), results());
    let primary = declared(&report, "primary", "equal-updates");
    let p = number(&primary["result"]["p"]);
    let (value, interval) =
        of_result(primary).split_once(' ').map(|(a, b)| (a.to_string(), b.to_string())).unwrap();
    let words = format!("DAPO − GRPO: {value} points {interval}, permutation p = {p:.4}");
    assert!(results.contains(&words), "docs/results.md does not say {words:?}");
    let equal = declared(&report, "equal-rollouts", "dapo");
    let p = number(&equal["result"]["p"]);
    assert!(results.contains(&format!("no difference is shown: {}, p = {p:.2}", of_result(equal))));
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

/// Entropy in nats, accuracy in points.
#[test]
fn the_doses_of_clip_higher_are_the_reports() {
    let report = report("words");
    let signed = |value: &Value| format!("{:+.2}", number(value)).replace('-', "−");
    let unsigned = |value: &Value| format!("{:.2}", number(value)).replace('-', "−");
    for dose in ["0.28", "0.4", "0.8"] {
        let [entropy, right] = ["entropy", "accuracy"]
            .map(|family| declared(&report, family, &format!("high-{dose}")));
        let [entropy_p, right_p] =
            [entropy, right].map(|it| format!("{:.4}", number(&it["result"]["adjusted_p"])));
        let [entropy_word, right_word] = [entropy, right].map(|it| it["word"].as_str().unwrap());
        let (nats, interval) = (&entropy["result"]["difference"], &entropy["result"]["interval"]);
        let nats = format!(
            "{} [{}, {}]",
            signed(nats),
            unsigned(&interval["low"]),
            unsigned(&interval["high"])
        );
        let points = of_result(right);
        let row = format!(
            "| {dose} | {nats} | {entropy_p} | {entropy_word} | {points} | {right_p} | {right_word} |"
        );
        for name in ["docs/results.md", "reports/words/README.md"] {
            assert!(page(name).contains(&row), "{name} has no {row:?}");
        }
    }
    let grpo = &list(&grid(&report, "words-clip-higher")["arms"])[0];
    let [last, base] = [&grpo["score"]["mean"], &grpo["base_score"]].map(|it| 100.0 * number(it));
    assert!(results().contains(&format!("and {last:.1} % of the responses are right at the end")));
    assert!(page("reports/words/README.md").contains(&format!("has {base:.1} % right")));
    let same = list(&declared(&report, "null", "one-update-0.8")["identical_seeds"]).len();
    assert_eq!(same, 8);
}

/// Accuracy in points.
#[test]
fn the_comparisons_of_dynamic_sampling_are_the_reports() {
    let report = report("useful");
    let rows = [
        ("GRPO", "second half of equal updates (primary)", ("updates", "dynamic")),
        ("GRPO", "second half of equal tokens", ("price", "tokens")),
        ("GRPO", "second half of equal FLOPs", ("price", "flops")),
        ("GRPO, 136 prompts", "second half of equal tokens", ("as-many-rollouts", "tokens")),
        ("GRPO, 136 prompts", "second half of equal FLOPs", ("as-many-rollouts", "flops")),
        ("GRPO", "after the last step", ("end", "grpo")),
        ("GRPO, 136 prompts", "after the last step", ("end", "more")),
    ];
    for (against, measure, (family, id)) in rows {
        let comparison = declared(&report, family, id);
        let (points, word) = (of_result(comparison), comparison["word"].as_str().unwrap());
        let p = number(&comparison["result"]["adjusted_p"]);
        let row = format!("| {against} | {measure} | {points} | {p:.4} | {word} |");
        for name in ["docs/results.md", "reports/useful/README.md"] {
            assert!(page(name).contains(&row), "{name} has no {row:?}");
        }
    }
    let primary = of_result(declared(&report, "updates", "dynamic"));
    assert!(page("README.md").contains(&format!("{primary} at equal updates")));
}

/// Shares and accuracy in points.
#[test]
fn the_comparisons_of_the_token_level_loss_are_the_reports() {
    let report = report("loops");
    const CUT: &str = "responses cut, last quarter of the steps";
    let cut_first = format!("{CUT} (primary)");
    let right = "right after the last step";
    let rows = [
        (&*cut_first, 96, ("endless", "token")),
        (CUT, 48, ("endless", "token-48")),
        (CUT, 16, ("null", "token-16")),
        (right, 96, ("accuracy", "token")),
        (right, 48, ("accuracy", "token-48")),
        (right, 16, ("accuracy", "token-16")),
        ("right, second half of equal updates", 96, ("price", "updates")),
    ];
    for (measure, limit, (family, id)) in rows {
        let comparison = declared(&report, family, id);
        let (points, word) = (of_result(comparison), comparison["word"].as_str().unwrap());
        let p = number(&comparison["result"]["adjusted_p"]);
        let row =
            format!("| {measure} | {limit} | {points} | {p:.4} | {} |", word.replace('-', " "));
        for name in ["docs/results.md", "reports/loops/README.md"] {
            assert!(page(name).contains(&row), "{name} has no {row:?}");
        }
    }
    let [cut, right] = [("endless", "token"), ("accuracy", "token")]
        .map(|(family, id)| of_result(declared(&report, family, id)));
    for (name, sentence) in [("README.md", cut), ("README.md", right)] {
        assert!(page(name).contains(&sentence), "{name} has no {sentence:?}");
    }
    // What was looked at afterwards, by what the committed script printed.
    let printed = page("reports/loops/by_block.txt");
    for (line, sentence) in [
        ("grpo       44.8 %", "44.8 % are right under GRPO"),
        ("token      31.7 %", "31.7 % under a mean of tokens"),
        ("right among those that end: -13.1 [-23.9, -2.3]", "13.1 points less [2.3, 23.9]"),
        ("points, up in 5 of 8 blocks", "in five of eight blocks"),
    ] {
        assert!(printed.contains(line) && page("reports/loops/README.md").contains(sentence));
    }
}

#[test]
fn the_comparisons_of_overlong_reward_shaping_are_the_reports() {
    let report = report("overlong");
    let half = "right, second half of equal updates (primary)";
    let (last, cut) = ("right after the last step", "responses cut, last quarter of the steps");
    let rows = [
        (half, 40, "accuracy", ""),
        (half, 28, "accuracy", "-28"),
        (last, 40, "end", ""),
        (cut, 40, "cut", ""),
        (cut, 28, "cut", "-28"),
    ];
    for (measure, limit, family, suffix) in rows {
        for (name, arm) in [("Overlong Filtering", "filter"), ("soft punishment", "soft")] {
            let comparison = declared(&report, family, &format!("{arm}{suffix}"));
            let (points, word) = (of_result(comparison), comparison["word"].as_str().unwrap());
            let p = number(&comparison["result"]["adjusted_p"]);
            let row = format!("| {name} | {measure} | {limit} | {points} | {p:.4} | {word} |");
            assert!(page("reports/overlong/README.md").contains(&row), "no {row:?}");
            assert!(limit == 28 || results().contains(&row), "no {row:?}");
        }
    }
    let primary = of_result(declared(&report, "accuracy", "soft"));
    assert!(page("README.md").contains(&primary));
    // What was looked at afterwards, by what the committed script printed.
    let printed = page("reports/overlong/by_block.txt");
    for line in [
        "grpo                                           21.3   20.7   10.3    4.9    4.2    0.8    0.6",
        "filter          -4.4 [-6.6, -2.1]",
        "no response was cut in blocks [102, 106]; the filter's last weights are GRPO's in blocks [102, 106]",
    ] {
        assert!(printed.contains(line), "{line}");
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

/// What the pages of the two controls say besides their declared comparisons: means of arms and the largest ratio by the
/// report, and what was looked at afterwards by what the committed scripts printed (`.ci/recompute` runs them again).
#[test]
fn what_the_pages_of_the_controls_say_is_computed() {
    let reports = ["words", "useful"].map(report);
    let mean = |comparison: &Value, side: &str| {
        let values = list(&comparison[side]).iter().map(|run| number(&run["value"]));
        values.clone().sum::<f64>() / values.count() as f64
    };
    let high = declared(&reports[0], "entropy", "high-0.28");
    let clipped = declared(&reports[0], "clipped", "high-0.28");
    let [entropy, coin, above] = [
        mean(high, "reference"),
        mean(declared(&reports[0], "coin", "coin"), "arm"),
        100.0 * mean(clipped, "reference"),
    ];
    let [words, useful] = ["words", "useful"].map(|it| page(&format!("reports/{it}/README.md")));
    let results = results();
    let says = |page: &str, sentence: String| {
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat(page).contains(&flat(&sentence)), "no page says {sentence:?}");
    };
    says(&results, format!("entropy falls from 1.74 to {entropy:.2} nats"));
    says(&results, format!("{above:.1} % of the tokens are clipped above"));
    for page in [&results, &words] {
        says(page, format!("to {coin:.2} nats"));
    }
    for (page, report) in [&words, &useful].into_iter().zip(&reports) {
        let ratios = list(&report["analysis"]["stability"]).iter();
        let largest = ratios.map(|arm| number(&arm["ratio"]["value"])).fold(0.0, f64::max);
        says(page, format!("importance ratios up to {}", text::grouped(largest as u64)));
    }
    let printed = page("reports/words/at_equal_accuracy.txt");
    let kept = |arm: &str, level: &str| -> f64 {
        let mut lines = printed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|it| it[0] == arm && it[1] == level).unwrap();
        line[5].parse().unwrap()
    };
    let [low, high] = ["high-0.4", "high-0.8"].map(|arm| kept(arm, "0.70"));
    says(&words, format!("0.4 and 0.8 have {low:.2} and {high:.2} nats more than GRPO"));
    for arm in ["high-0.4", "high-0.8"] {
        let more = kept(arm, "0.75");
        says(&words, format!("at 75 % they have {more:.2} more"));
        says(&results, format!("{more:.2} nats more than GRPO"));
    }
    let printed = page("reports/useful/by_block.txt");
    let means = printed.lines().find(|line| line.starts_with(" mean")).unwrap();
    let means: Vec<&str> = means.split_whitespace().filter(|word| *word != "%").collect();
    let [_, groups, dropped, late, prompts, rollouts, ..] = means[..] else { panic!("{means:?}") };
    says(&useful, format!("GRPO has {groups} % useful groups in its last ten steps"));
    says(
        &useful,
        format!(
            "drops {dropped} % of its groups in the mean over all steps, and {late} % in the last ten"
        ),
    );
    says(&useful, format!("samples {rollouts} responses a step"));
    let prompts: f64 = prompts.parse().unwrap();
    says(&useful, format!("has {prompts:.0} groups in the mean instead of 64"));
    let (_, fresh) = printed.split_once("second half of equal tokens: ").unwrap();
    let fresh = fresh.lines().next().unwrap();
    says(&useful, format!("by more than Dynamic Sampling is: {fresh}"));
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

/// What a page says of `reports/post-hoc/post_hoc.json`: page, sentence in which `{}` stands for the numbers, and their
/// places. A place ends with how its number is printed: `interval`, `points`, `plain`, `percent`, `count`.
const POST_HOC: [(&str, &str, &[&str]); 28] = [
    (
        "README.md",
        "| DAPO − GRPO | **−7.6** [−14.0, −1.2] | +1.4 [−2.8, 5.6] | {} |",
        &["clocks/dapo/flops interval"],
    ),
    ("README.md", "| −0.1 [−1.1, 0.9] | {} |", &["clocks/clip/flops interval"]),
    ("README.md", "| −1.4 [−2.5, −0.2] | {} |", &["clocks/token/flops interval"]),
    ("README.md", "| −2.5 [−6.4, 1.4] | {} |", &["clocks/soft/flops interval"]),
    ("README.md", "| +5.3 [1.5, 9.2] | {} |", &["clocks/dynamic/flops interval"]),
    ("README.md", "{}", &["clocks/enlarged/generated_tokens interval"]),
    ("README.md", "{}", &["fair_control/equal_tokens interval"]),
    (
        "README.md",
        "{} of GRPO's {}",
        &[
            "updates_without_gradient/grpo/without_gradient count",
            "updates_without_gradient/grpo/updates count",
        ],
    ),
    ("README.md", "{} %", &["warm_up/dapo_share_of_tokens percent"]),
    ("README.md", "{} %", &["warm_up/grpo_share_of_tokens percent"]),
    (
        "README.md",
        "above 10 in {} of {} and {} of {} runs",
        &[
            "instability/study-2/ratio_above_10 count",
            "instability/study-2/runs count",
            "instability/sums-1/ratio_above_10 count",
            "instability/sums-1/runs count",
        ],
    ),
    (
        "docs/results.md",
        "| generated tokens | {} | {} | {} |",
        &[
            "clocks/dapo/generated_tokens interval",
            "clocks/enlarged/generated_tokens interval",
            "clocks/dynamic/generated_tokens interval",
        ],
    ),
    (
        "docs/results.md",
        "| FLOPs | {} | {} | {} |",
        &[
            "clocks/dapo/flops interval",
            "clocks/enlarged/flops interval",
            "clocks/dynamic/flops interval",
        ],
    ),
    (
        "docs/results.md",
        "| updates | {} | {} | {} |",
        &[
            "clocks/dapo/updates interval",
            "clocks/enlarged/updates interval",
            "clocks/dynamic/updates interval",
        ],
    ),
    (
        "docs/results.md",
        "| updates with a gradient | {} | {} | {} |",
        &[
            "clocks/dapo/updates_with_gradient interval",
            "clocks/enlarged/updates_with_gradient interval",
            "clocks/dynamic/updates_with_gradient interval",
        ],
    ),
    ("docs/results.md", "equal FLOPs it is {}.", &["clocks/size/flops points"]),
    ("docs/results.md", "it is {}.", &["clocks/sums/flops points"]),
    ("docs/results.md", "{}", &["fair_control/equal_rollouts interval"]),
    ("docs/results.md", "{}", &["without_collapsed/size_token/with interval"]),
    ("docs/results.md", "{}", &["without_collapsed/size_token/without interval"]),
    ("docs/results.md", "{}", &["without_collapsed/sums_primary/with interval"]),
    ("docs/results.md", "{}", &["without_collapsed/sums_primary/without interval"]),
    (
        "docs/results.md",
        "from {} to {} %",
        &["instability/study-2/falls/0/before plain", "instability/study-2/falls/0/after plain"],
    ),
    (
        "docs/results.md",
        "from {} to {} %",
        &["instability/sums-1/falls/0/before plain", "instability/sums-1/falls/0/after plain"],
    ),
    ("docs/results.md", "{}", &["detectable/paired plain"]),
    ("docs/results.md", "{}", &["detectable/unpaired plain"]),
    ("reports/sums-1/README.md", "{}", &["without_collapsed/sums_without_token/without interval"]),
    ("reports/study-2/README.md", "{}", &["fair_control/equal_tokens interval"]),
];

#[test]
fn what_is_said_afterwards_is_what_the_committed_script_computed() {
    let computed: Value = serde_json::from_str(&page("reports/post-hoc/post_hoc.json")).unwrap();
    for (name, sentence, places) in POST_HOC {
        let text = page(name).split_whitespace().collect::<Vec<_>>().join(" ");
        let mut words = sentence.to_string();
        for place in places {
            let (keys, form) = place.split_once(' ').unwrap();
            let value =
                computed.pointer(&format!("/{keys}")).unwrap_or_else(|| panic!("no {keys}"));
            let points = |value: &Value, signed: bool| {
                let value = 100.0 * number(value);
                let text = if signed { format!("{value:+.1}") } else { format!("{value:.1}") };
                text.replace('-', "−")
            };
            let printed = match form {
                "interval" => with_interval(&value["difference"], &value["interval"], true),
                "points" => points(&value["difference"], true),
                "plain" => points(value, false),
                "percent" => format!("{:.0}", 100.0 * number(value)),
                "count" => format!("{:.0}", number(value)),
                other => panic!("{other} is no way to print a number"),
            };
            words = words.replacen("{}", &printed, 1);
        }
        assert!(text.contains(&words), "{name} does not say {words:?}");
    }
    // The harness's own count of FLOPs is numpy's.
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
