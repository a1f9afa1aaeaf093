use super::*;
use crate::base::{Purpose, rng, rng::Id};
use crate::report::{markdown, terminal};
use crate::statistics::Counts;
use crate::study::comparison::{EvaluatedRun, compare};
use std::path::PathBuf;

/// A run on made-up problems, each `shift` of the way from its chance to 1.
fn made_up(name: &str, problems: usize, shift: f64) -> EvaluatedRun {
    let stream =
        |name: &str| rng::stream(0, Purpose::Simulation, &[Id::from(name), Id::from(0u64)]);
    let (mut problem, mut draw) = (stream("problems of a comparison"), stream(name));
    let outcome = |index: usize| {
        // Beta(0.5, 0.5), by the arcsine law.
        let p = libm::sin(0.5 * std::f64::consts::PI * problem.uniform()).powi(2);
        let p = p + shift * (1.0 - p);
        let correct = (0..16).filter(|_| draw.uniform() < p).count() as u64;
        (format!("aime/{index:02}"), Counts { correct, samples: 16 })
    };
    evaluated(name, (0..problems).map(outcome))
}

fn evaluated(path: &str, problems: impl IntoIterator<Item = (String, Counts)>) -> EvaluatedRun {
    let problems = problems.into_iter().collect();
    EvaluatedRun { path: PathBuf::from(path), problems, remarks: Vec::new(), set: None }
}

fn page(a: &[EvaluatedRun], b: &[EvaluatedRun], render: fn(&[Section]) -> String) -> String {
    render(&sections(&compare(a, b, 0.95, false).unwrap()))
}

#[test]
fn one_run_a_side_speaks_of_checkpoints_only() {
    let (a, b) = (made_up("base.csv", 30, 0.0), made_up("tuned.csv", 30, 0.3));
    insta::assert_snapshot!(page(&[a], &[b], |it| terminal::render(it, None)));
}

#[test]
fn several_runs_a_side_make_the_run_the_unit() {
    let runs = |name: &str, count: u32, shift: f64| -> Vec<EvaluatedRun> {
        let run = |seed| made_up(&format!("{name}-{seed}.csv"), 30, shift + 0.01 * f64::from(seed));
        (0..count).map(run).collect()
    };
    let (a, b) = (runs("grpo", 5, 0.0), runs("dapo", 5, 0.4));
    insta::assert_snapshot!(page(&a, &b, markdown::sections));
    let few = compare(&a[..3], &b[..3], 0.95, false).unwrap().between_runs.unwrap();
    assert_eq!(few.verdict, Verdict::Inconclusive { could_have_detected: None });
    assert_eq!((few.welch.interval, few.permutation.smallest_p), (None, 0.1));
    let all = compare(&a, &b, 0.95, false).unwrap().between_runs.unwrap();
    assert_eq!(all.verdict, Verdict::Improves);
}

#[test]
fn what_no_interval_is_offered_for_says_why() {
    let solved = |name: &str, correct| {
        evaluated(name, (0..12).map(|i| (i.to_string(), Counts { correct, samples: 4 })))
    };
    insta::assert_snapshot!(page(&[solved("a", 4)], &[solved("b", 4)], |it| terminal::render(
        it, None
    )));
}

#[test]
fn the_json_document_has_the_numbers_of_the_text() {
    let (a, b) = (made_up("base.csv", 12, 0.0), made_up("tuned.csv", 12, 0.3));
    let comparison = compare(&[a], &[b], 0.95, false).unwrap();
    let json = serde_json::to_value(&comparison).unwrap();
    assert_eq!(json["paired"]["difference"], comparison.paired.difference);
    assert_eq!(json["a"]["accuracy"]["problems"], 12);
    assert_eq!(json["between_runs"], serde_json::Value::Null);
    assert_eq!(json["changes"].as_array().unwrap().len(), 12);
}

#[test]
fn names_of_files_and_problems_reach_a_terminal_as_printable_text() {
    let hostile = "\u{1b}[31m|<script>";
    let run = |path: &str, correct| {
        evaluated(path, [(hostile.to_string(), Counts { correct, samples: 4 })])
    };
    let of = |render| page(&[run(hostile, 1)], &[run("b", 3)], render);
    let (plain, markdown) = (of(|it| terminal::render(it, None)), of(markdown::sections));
    assert!(!plain.contains('\u{1b}') && !markdown.contains('\u{1b}'), "{plain}{markdown}");
    assert!(!markdown.contains("<script>"), "{markdown}");
}

#[test]
fn problems_with_other_numbers_of_samples_are_told_and_weigh_the_same() {
    let run = |samples: [u64; 2]| {
        evaluated("t.csv", samples.map(|k| (k.to_string(), Counts { correct: 1, samples: k })))
    };
    let text = page(&[run([2, 32])], &[run([2, 32])], markdown::sections);
    let size = "k = 2 to 32 samples × S = 1 run; each problem has the same weight)";
    assert!(text.contains(size), "{text}");
}

#[test]
fn problems_whose_runs_come_in_another_order_are_equal() {
    let runs = |correct: [u64; 3]| -> Vec<EvaluatedRun> {
        let counts = |correct| Counts { correct, samples: 10 };
        let problems = |correct| (0..12).map(move |i| (i.to_string(), counts(correct)));
        correct.map(|correct| evaluated("t", problems(correct))).into()
    };
    let text = page(&runs([1, 2, 3]), &runs([3, 2, 1]), markdown::sections);
    assert!(text.contains("0 up, 0 down, 12 equal"), "{text}");
    assert!(text.contains("B − A over runs: 0.0 "), "{text}");
    assert!(text.contains("comparison: inconclusive: both sides have the same values."), "{text}");
}

#[test]
fn what_nothing_is_shown_of_is_not_said_to_be_unexcluded() {
    let open = Verdict::Inconclusive { could_have_detected: None };
    let words = |smallest_p, same| in_words(&open, smallest_p, Unit::Plain, same);
    assert_eq!(words(0.01, None), "inconclusive: no effect is shown");
    assert_eq!(words(1.0, Some(SAME_VALUES)), "inconclusive: both sides have the same values");
}
