use super::*;
use crate::base::files;
use crate::records::tracked::{SECONDS, TIMES};
use crate::statistics::between;
use crate::study::gate::{Gate, GateVerdict, Undecided};
use crate::study::tracked::sides::{arm, side};

fn options() -> TrackedOptions {
    TrackedOptions { at: "steps".to_string(), ..TrackedOptions::default() }
}

fn judged<const N: usize>(
    values: [(f64, f64); N],
    unpaired: bool,
    limits: (f64, Option<f64>),
) -> TrackedComparison {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let rows = values.iter().enumerate();
    let rows = rows.map(|(seed, (a, b))| format!("a,{seed},{a}\nb,{seed},{b}\n"));
    let text = format!("arm,seed,value\n{}", rows.collect::<String>());
    files::write_atomic(&path, text.as_bytes()).unwrap();
    let [a, b] = ["a", "b"].map(|name| arm(&path.to_string_lossy(), name).unwrap().0);
    compare(&a, &b, &TrackedOptions { unpaired, ..options() }, limits).unwrap()
}

/// Differences of mean 0 whose standard deviation is √(8/7).
fn alternating() -> [(f64, f64); 8] {
    std::array::from_fn(|place| (0.0, if place.is_multiple_of(2) { 1.0 } else { -1.0 }))
}

#[test]
fn values_that_rounding_alone_tells_apart_are_equal() {
    for unpaired in [false, true] {
        let compared = judged([(0.52, 0.5200000000000001); 6], unpaired, (0.95, None));
        let estimate = compared.estimate.as_ref().unwrap();
        assert_eq!((estimate.difference, estimate.p), (0.0, 1.0));
        let gate = Gate { either_way: true, margin: None };
        assert_eq!(gate.of_tracked(&compared), GateVerdict::Passed);
    }
}

#[test]
fn what_could_have_been_found_is_known_of_blocks_too_and_takes_the_interval() {
    let found = |unpaired, level| {
        let verdict = judged(alternating(), unpaired, (level, None)).verdict.unwrap();
        let Verdict::Inconclusive { could_have_detected } = verdict else { panic!("{verdict:?}") };
        could_have_detected.unwrap()
    };
    let expected = between::minimum_detectable_effect_of_blocks(1.0, 8, 0.05, 0.8);
    assert!((found(false, 0.95) / (8.0f64 / 7.0).sqrt() - expected).abs() < 1e-9);
    assert!([false, true].iter().all(|unpaired| found(*unpaired, 0.99) > found(*unpaired, 0.95)));
}

#[test]
fn blocks_that_are_needed_are_more_than_those_that_did_not_suffice() {
    let needed = |b: [f64; 6]| judged(b.map(|b| (0.0, b)), false, (0.95, None)).needed.unwrap();
    // A tie has no sign: five signs show nothing.
    let tied = needed([0.0, 0.11, 0.1, 0.12, 0.13, 0.1]);
    assert_eq!(tied, Needed::AboutForSeen { count: 8, blocks: true, power: POWER });
    // The t test would need six; the flips of these six do not show it.
    let one_other = needed([1.0, 1.0, 1.0, 1.0, 1.0, -0.1]);
    assert_eq!(one_other, Needed::MoreThanForSeen { count: 6, blocks: true });
}

#[test]
fn a_gate_passes_what_is_shown_to_be_equivalent_within_its_margin() {
    // Half widths: 0.72 of the interval of 90 %, 0.89 of that of 95 %.
    for (either_way, unpaired) in [(false, false), (true, false), (false, true), (true, true)] {
        let gated = |margin| {
            let compared = judged(alternating(), unpaired, (0.95, Some(margin)));
            let gate = Gate { either_way, margin: Some(margin) };
            (compared.verdict.unwrap(), gate.of_tracked(&compared))
        };
        assert!(matches!(gated(0.7).1, GateVerdict::Undecided(Undecided::Wide { .. })));
        assert_eq!(gated(0.8), (Verdict::Equivalent { within: 0.8 }, GateVerdict::Equivalent));
        assert_eq!(gated(0.9), (Verdict::Equivalent { within: 0.9 }, GateVerdict::Passed));
    }
}

fn of_text(name: &str, text: &str, options: &TrackedOptions) -> TrackedComparison {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    files::write_atomic(&path, text.as_bytes()).unwrap();
    let (runs, ..) = side(&[path.to_string_lossy().into_owned()], options).unwrap();
    compare(&runs, &runs, options, (0.95, None)).unwrap()
}

#[test]
fn seconds_since_the_start_stay_and_times_of_day_count_from_the_first() {
    let on = |text: &str, at: &str| {
        let options = TrackedOptions { at: at.to_string(), ..options() };
        let compared = of_text("c.csv", text, &options);
        let run = compared.runs[0].clone();
        (run.points, run.notes.has_times)
    };
    for clock in ["_runtime", "Relative Time (Process)", "Relative Time (Wall)", "seconds"] {
        let text = format!("step,{clock},acc\n10,100,0.1\n20,160,0.2\n");
        let expected = (vec![(100.0, 0.1), (160.0, 0.2)], false);
        assert_eq!((on(&text, SECONDS), on(&text, clock)), (expected.clone(), expected));
    }
    for clock in TIMES {
        let text = format!("step,{clock},loss,acc\n5,1700000000,3,\n10,1700000040,2,0.1\n");
        let expected = (vec![(40.0, 0.1)], true);
        let on = |at: &str| {
            let metric = Some("acc".to_string());
            let options = TrackedOptions { at: at.to_string(), metric, ..options() };
            let run = of_text("c.csv", &text, &options).runs[0].clone();
            (run.points, run.notes.has_times)
        };
        assert_eq!((on(SECONDS), on(clock)), (expected.clone(), expected));
    }
    let both = "step,Wall time,_runtime,acc\n10,1700000000,100,0.1\n";
    assert_eq!(on(both, SECONDS), (vec![(100.0, 0.1)], false));
}

#[test]
fn points_before_a_clocks_first_reading_are_at_0_of_a_sum_and_counted_of_a_total() {
    let on_tokens = |column: &str| {
        let line = |step: u64, rest: &str| format!("{{\"step\": {step}, {rest}}}\n");
        let logged = format!("\"{column}\": 100, \"acc\": 0.2");
        let text = [line(0, "\"acc\": 0.1"), line(1, &logged), line(2, &logged)].concat();
        let (at, metric) = ("tokens".to_string(), Some("acc".to_string()));
        let run = of_text("c.jsonl", &text, &TrackedOptions { at, metric, ..options() });
        let run = run.runs[0].clone();
        (run.points, run.notes.before_clock)
    };
    let summed = vec![(0.0, 0.1), (100.0, 0.2), (200.0, 0.2)];
    assert_eq!(on_tokens("perf/total_num_tokens"), (summed, 0));
    assert_eq!(on_tokens("num_tokens"), (vec![(100.0, 0.2), (100.0, 0.2)], 1));
}

#[test]
fn what_is_not_finite_reaches_no_level_and_is_counted() {
    let to_level = TrackedOptions { to_level: Some(0.5), ..options() };
    let text = "step,acc\n1,inf\n2,NaN\n3,0.6\n";
    let run = of_text("c.csv", text, &to_level).runs[0].clone();
    assert_eq!((run.value, run.reached, run.not_finite), (3.0, Some(true), 2));
}

#[test]
fn identical_runs_need_no_more_of_them() {
    for unpaired in [false, true] {
        let compared = judged([(0.5, 0.5); 6], unpaired, (0.95, None));
        assert!(compared.is_same && compared.needed.is_none(), "{compared:?}");
    }
    let alternating = judged(alternating(), false, (0.95, None));
    assert!(!alternating.is_same && alternating.needed.is_some());
}

#[test]
fn a_line_is_read_alike_wherever_it_has_its_points() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str, places: &[u64]| {
        let runs = (1..=6).map(|seed| {
            let path = folder.path().join(format!("{name}-s{seed}.csv"));
            let rows = places.iter().map(|at| format!("{at},{}\n", (at + seed) as f64 / 100.0));
            let text = format!("step,acc\n{}", rows.collect::<String>());
            files::write_atomic(&path, text.as_bytes()).unwrap();
            path.to_string_lossy().into_owned()
        });
        side(&runs.collect::<Vec<String>>(), &options()).unwrap().0
    };
    for b in [&[0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100][..], &[25, 60, 93, 120]] {
        let (a, b) = (read("a", &[0, 45, 95]), read("b", b));
        for (window, to_level) in [(0.2, None), (0.9, None), (1.0, None), (1.0, Some(0.92))] {
            let window = Some(window).filter(|_| to_level.is_none());
            let options = TrackedOptions { window, to_level, ..options() };
            let compared = compare(&a, &b, &options, (0.95, None)).unwrap();
            assert!(!compared.same_places);
            let [a, b] = [0, 6].map(|first| &compared.runs[first..first + 6]);
            for (a, b) in a.iter().zip(b) {
                assert!((a.value - b.value).abs() < 1e-9, "{options:?}: {a:?} {b:?}");
                assert_eq!(a.reached, b.reached);
            }
            let gate = Gate { either_way: true, margin: None };
            assert_eq!(gate.of_tracked(&compared), GateVerdict::Passed);
        }
    }
}

#[test]
fn a_window_and_a_level_end_at_their_edge() {
    let rows: String = (1..=10).map(|step| format!("{step},{step}.00000000000001\n")).collect();
    let text = format!("step,acc\n{rows}");
    let value = |options| of_text("c.csv", &text, &options).runs[0].value;
    // 3 to 10, and not 2.
    assert!((value(TrackedOptions { window: Some(0.8), ..options() }) - 6.5).abs() < 1e-9);
    let to_level = Some(1.0);
    let lower = TrackedOptions { to_level, lower_is_better: true, ..options() };
    assert_eq!(value(lower), 1.0);
}

#[test]
fn tokens_of_a_step_are_summed_of_a_whole_log_alone() {
    let read = |steps: &[u64], at: &str| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.jsonl");
        let line = |step: &u64| {
            format!("{{\"step\": {step}, \"perf/total_num_tokens\": 10, \"acc\": 0.{step}}}\n")
        };
        let text: String = steps.iter().map(line).collect();
        files::write_atomic(&path, text.as_bytes()).unwrap();
        let options = TrackedOptions { at: at.to_string(), ..options() };
        let run = side(&[path.to_string_lossy().into_owned()], &options).unwrap().0.remove(0);
        let read = reading::on_clock(&run, "acc", at);
        read.map(|read| read.points.last().unwrap().0).map_err(|error| error.to_string())
    };
    for at in ["tokens", "perf/total_num_tokens"] {
        assert_eq!(read(&[1, 2, 3], at), Ok(30.0));
        assert_eq!(read(&[0, 1, 2, 1, 2, 3], at), Ok(40.0));
        for (steps, missing) in [(&[51, 52][..], 1), (&[1, 2, 4], 3), (&[0, 2], 1)] {
            let refusal = read(steps, at).unwrap_err();
            assert!(refusal.contains(&format!("step {missing} is missing")), "{refusal}");
        }
    }
    assert_eq!(read(&[51, 60], "steps"), Ok(60.0));
}

#[test]
fn shares_beside_percents_are_other_units_wherever_they_stand() {
    for (values, expected) in [
        ([(0.51, 0.2), (50.0, 0.21), (0.52, 0.22)], true),
        ([(0.9, 0.011), (1.4, 0.018), (2.2, 0.02)], true),
        ([(5.1, 0.91), (5.2, 0.92), (5.3, 0.93)], true),
        ([(0.95, 1.05), (1.1, 0.9), (1.0, 1.2)], false),
        ([(-1.0, 50.0), (0.5, 51.0), (0.4, 52.0)], false),
        ([(0.0, 50.0), (0.0, 51.0), (0.0, 52.0)], false),
        ([(0.1, 0.001), (0.2, 0.002), (0.3, 0.9)], false),
    ] {
        for unpaired in [false, true] {
            let compared = judged(values, unpaired, (0.95, None));
            assert_eq!(compared.other_units, expected, "{values:?}");
        }
    }
}
