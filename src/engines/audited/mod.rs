//! Another trainer's run: responses are graded again, groups rebuilt, and what was done to them is held against the
//! configuration. What a file does not have is not guessed: it is absent from the numbers.

pub mod stated;
pub mod dumps;
pub mod collected;
pub mod rewards;
pub mod step;

use crate::base::{python, visible};
use crate::engines::audited::collected::{CollectedDump, GivenAnswers};
use crate::engines::audited::dumps::LengthPenalties;
use crate::engines::audited::stated::StatedSettings;
use crate::engines::{EngineError, Trap};
use crate::experiment::{Engine, Grading};
use crate::records::{TrackedRun, tracked};
use crate::task::data::schema;
use crate::task::grader::for_program;
use crate::task::reward::program::{Asked, Graded, Graders};
use crate::task::{TaskError, reward};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const TOLD: usize = 3;

#[derive(Debug, Clone, clap::Args)]
pub struct RunAuditOptions {
    /// The run's configuration, as `dapo engine check` takes it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// verl's file log, TRL's `trainer_state.json`, or another file of curves: lengths, truncation, scores.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// JSON lines of {"prompt", "answer"}, in place of `gts` of verl's dumps. A function that grades gets the other
    /// columns of a line, such as data_source and extra_info.
    #[arg(long, value_name = "FILE")]
    pub answers: Option<PathBuf>,
    /// Python that has the trainer, which composes some configurations. Default: DAPO_PYTHON, else python3.
    #[arg(long, value_name = "PROGRAM", default_value_t = python::of_environment(), hide_default_value = true)]
    pub python: String,
}

#[derive(Debug, Default, Serialize)]
pub struct RunAudit {
    /// Step → number by name; absent if the files do not show it. Groups have no gradient where all rewards are equal;
    /// a reward is lowered where another of its data source and correctness has more, or by a dumped length penalty.
    pub steps: BTreeMap<u64, BTreeMap<&'static str, f64>>,
    /// What the configuration does not explain. The key is that of the configuration.
    pub contradictions: Vec<Trap>,
    /// What was taken for granted, one sentence each.
    pub notes: Vec<String>,
    pub not_looked_at: Vec<String>,
}

/// `folder` has verl's dumps (`rollout_data_dir`) or TRL's completions (`log_completions`), which `verifier` grades
/// again. Errors: an unreadable file, a row of another kind, a response that a program does not grade.
pub fn run(
    engine: Engine,
    folder: &Path,
    options: &RunAuditOptions,
    verifier: Option<&Grading>,
) -> Result<RunAudit, EngineError> {
    let stated = StatedSettings::of(engine, options.config.as_deref(), &options.python)?;
    let answers = options.answers.as_deref().map(GivenAnswers::read).transpose()?;
    let log = options.log.as_deref().map(log).transpose()?.flatten();
    let mut notes = Vec::from_iter(answers.as_ref().and_then(|answers| answers.cut.clone()));
    notes.extend(log.iter().flat_map(notes_of_log));
    let mut dump = CollectedDump::read(engine, folder, &stated, answers.as_ref())?;
    notes.append(&mut dump.notes);
    if let Some(verifier) = verifier {
        notes.extend(grade(&mut dump, verifier, folder)?);
    }
    let mut audit = RunAudit { notes, ..RunAudit::default() };
    for (number, responses) in &dump.steps {
        let (contradictions, numbers, merged) =
            step::audited(*number, responses, &stated, log.as_ref());
        audit.notes.extend(merged);
        audit.contradictions.extend(contradictions);
        audit.steps.insert(*number, numbers);
    }
    if dump.penalties == Some(LengthPenalties::Added) {
        for it in audit.contradictions.iter_mut().filter(|it| it.name == "log-differs") {
            it.what += "; to the dump's `score` its `overlong_reward` was added, as verl before 0.9 dumps it without";
        }
    }
    audit.contradictions.extend(of_files(&dump));
    audit.notes.extend(dump.note_of_rewards());
    audit.notes.extend(answers.and_then(|answers| answers.note(&dump)));
    if stated.is_sum() && verifier.is_some() {
        let note = "grades are not held against rewards, which are sums of several functions";
        audit.notes.push(note.to_string());
    }
    let is_logged = log.as_ref().is_some_and(|log| is_logged(log, &dump));
    for (is_missing, flag, given, what) in [
        (stated.is_empty(), "--config", &options.config, "whether a configuration explains this"),
        (!is_logged, "--log", &options.log, "lengths and truncation"),
    ] {
        audit.not_looked_at.extend(is_missing.then(|| format!("{what} ({flag})")));
        let unfit = given.as_ref().filter(|_| is_missing);
        audit.notes.extend(unfit.map(|path| {
            format!("{flag} {}: it has nothing of this run that an audit reads", path.display())
        }));
    }
    audit.not_looked_at.extend(ungraded(&dump));
    let is_held = |log| dump.steps.keys().all(|step| stated.is_held(log, *step));
    if engine == Engine::Trl && !log.as_ref().is_none_or(is_held) {
        let what = "whether log and completions are of the same responses, in steps where the log may average several \
                    generations: that takes a --config with steps_per_generation of gradient_accumulation_steps or \
                    more and no evaluation, and logging_steps = 1";
        audit.not_looked_at.push(what.to_string());
    }
    let log = log.filter(|_| is_logged);
    audit.notes.extend(missing(&dump.files.into_keys().collect::<Vec<_>>(), log.as_ref()));
    Ok(audit)
}

/// `None` of a file without a curve. Errors: an unreadable file, or one of several runs.
fn log(path: &Path) -> Result<Option<TrackedRun>, EngineError> {
    let mut runs = tracked::read(path, "", None).map_err(TaskError::from)?;
    if let [one, two, ..] = &runs[..] {
        let (count, one, two) = (runs.len(), &one.name, &two.name);
        let reason = format!("it has {count} runs ({one}, {two}, …): give the log of one");
        return Err(EngineError::Output { path: runs.swap_remove(0).path, reason });
    }
    Ok(runs.pop())
}

fn notes_of_log(log: &TrackedRun) -> impl Iterator<Item = String> {
    let cut = log.notes.is_cut.then(|| dumps::cut_off(&log.path));
    let names = step::LOGGED.iter();
    let replaced = names.map(|name| log.replaced.get(*name).map_or(0, |it| it.points)).max();
    let replaced = replaced.filter(|count| *count > 0).map(|count| {
        format!(
            "{}: {count} steps stand in it again, with other values or after a later step: the last line counts",
            log.path.display()
        )
    });
    cut.into_iter().chain(replaced)
}

fn is_logged(log: &TrackedRun, dump: &CollectedDump) -> bool {
    let curves = step::LOGGED.iter().filter_map(|name| log.curves.get(*name));
    curves.flatten().any(|(at, _)| dump.steps.keys().any(|step| *step as f64 == *at))
}

/// Grades the questions of a dump. Returns a note on responses whose ground truth no rule reads.
fn grade(
    dump: &mut CollectedDump,
    verifier: &Grading,
    folder: &Path,
) -> Result<Option<String>, EngineError> {
    let (places, asked): (Vec<_>, Vec<_>) = std::mem::take(&mut dump.questions).into_iter().unzip();
    let steps: Vec<u64> = places.iter().map(|(step, _)| *step).collect();
    let mut ungraded = Vec::new();
    for ((step, place), is_correct) in
        places.into_iter().zip(graded(verifier, (asked, &steps), folder)?)
    {
        let response = dump.steps.get_mut(&step).and_then(|of_step| of_step.get_mut(place));
        match is_correct {
            Ok(is_correct) => response.expect("it was put there").ours = Some(is_correct),
            Err(reason) => ungraded.push((step, reason)),
        }
    }
    Ok(ungraded.first().map(|(step, reason)| {
        let count = ungraded.len();
        format!(
            "{count} responses are not graded, the first of step {step}; their ground truth: {reason}; --answers takes \
             others"
        )
    }))
}

fn ungraded(dump: &CollectedDump) -> Option<String> {
    let all = dump.steps.values().map(Vec::len).sum::<usize>();
    let rest = dump.steps.values().flatten().filter(|it| it.ours.is_none()).count();
    let grades =
        if rest == all { "every grade".to_string() } else { format!("{rest} of {all} grades") };
    (rest > 0).then(|| format!("{grades} (--verifier, and --answers where there is no `gts`)"))
}

fn of_files(dump: &CollectedDump) -> impl Iterator<Item = Trap> {
    let trap =
        |name, what| Trap { name, key: "reward".to_string(), value: "as dumped".into(), what };
    let repeated = dump.repeated.iter().map(move |(step, count)| {
        let what =
            format!("step {step}: {count} responses have the uid of another one, and are left out");
        trap("response-twice", what)
    });
    let twice = dump.files.iter().filter(|(_, files)| files.len() > 1).map(move |(step, files)| {
        let files = files.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        trap("step-twice", format!("step {step} is in {files}: a copy, or two runs in one folder"))
    });
    repeated.chain(twice)
}

/// Of steps at equal distances, up to the first and last one that was logged.
fn missing(steps: &[u64], log: Option<&TrackedRun>) -> Option<String> {
    let usual = steps.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(1);
    let curves = step::LOGGED.iter().filter_map(|name| log?.curves.get(*name));
    let logged = || curves.clone().flatten().map(|(at, _)| *at as u64);
    let (first, last) = (*steps.first()?, *steps.last()?);
    let begin = logged().min().filter(|begin| begin + usual <= first);
    let end = logged().max().filter(|end| *end >= last + usual);
    let is_open = steps.len() == 2;
    let gap = |pair: &&[u64]| pair[1] - pair[0] > if is_open { 1 } else { usual };
    let gaps = steps.windows(2).filter(gap).map(|pair| format!("{} and {}", pair[0], pair[1]));
    let gaps: Vec<String> = gaps.collect();
    let shown = gaps.iter().take(TOLD).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match gaps.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!(" and in {more} more places"),
    };
    let every =
        if is_open { format!(" (unless one step of {usual} is dumped)") } else { String::new() };
    let between = (!gaps.is_empty()).then(|| format!("between {shown}{more}{every}"));
    let before = begin.map(|begin| format!("before {first} (the log begins at {begin})"));
    let after = end.map(|end| format!("after {last} (the log ends at {end})"));
    let places: Vec<String> = [between, before, after].into_iter().flatten().collect();
    (!places.is_empty()).then(|| format!("steps are missing {}", places.join(", ")))
}

/// Whether each is correct, or why its ground truth is no answer that a rule reads.
fn graded(
    verifier: &Grading,
    (asked, steps): (Vec<Asked>, &[u64]),
    folder: &Path,
) -> Result<Vec<Result<bool, String>>, EngineError> {
    let program = match verifier {
        Grading::Rule(rule) => {
            let is_correct = |it: &Asked| {
                schema::truth::answer(&it.ground_truth)
                    .map(|truth| reward::grade(&it.response, &truth, *rule).is_correct)
            };
            return Ok(asked.iter().map(is_correct).collect());
        }
        Grading::Program(program) => program,
    };
    let asked: Vec<Asked> = asked.into_iter().map(|it| for_program(it, program)).collect();
    let graders = Graders::start((**program).clone())?;
    let (mut graded, mut rest) = (Vec::with_capacity(asked.len()), &asked[..]);
    let takes_batches = graders.ready().form.takes_batches();
    for of_step in steps.chunk_by(|a, b| a == b || !takes_batches) {
        let (batch, after) = rest.split_at(of_step.len());
        // A function that disagrees with itself is no witness.
        graded.extend(graders.grade_twice(batch));
        rest = after;
    }
    let of_response = |(grade, asked): (Graded, &Asked)| {
        grade.map(|grade| Ok(grade.is_correct)).map_err(|error| {
            let response = visible::shortened(&asked.response, 80);
            let reason = format!("{} did not grade {response:?}: {error}", program.name());
            EngineError::Output { path: folder.to_path_buf(), reason }
        })
    };
    graded.into_iter().zip(&asked).map(of_response).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::files;
    use crate::experiment::{RewardProgram, Verifier};
    use serde_json::{Value, json};

    fn audit_of(rows: &[(&str, &str, f64)], change: impl Fn(usize, &mut Value)) -> RunAudit {
        let folder = tempfile::tempdir().unwrap();
        let line = |(place, (uid, output, score)): (usize, &(&str, &str, f64))| {
            let mut line = json!({"step": 1, "input": uid, "uid": uid, "output": output, "gts": "1", "score": score});
            change(place, &mut line);
            format!("{line}\n")
        };
        let text: String = rows.iter().enumerate().map(line).collect();
        let dumps = folder.path().join("dumps");
        files::write_atomic(&dumps.join("1.jsonl"), text.as_bytes()).unwrap();
        let path = folder.path().join("answers.jsonl");
        let answers = "{\"prompt\": \"q\", \"answer\": \"1\", \"data_source\": \"b\"}\n";
        files::write_atomic(&path, answers.as_bytes()).unwrap();
        let answers = Some(path);
        let options = RunAuditOptions { config: None, log: None, answers, python: String::new() };
        run(Engine::Verl, &dumps, &options, Some(&Grading::Rule(Verifier::AnswerLine))).unwrap()
    }

    const ROWS: [(&str, &str, f64); 5] = [
        ("p", "Answer: 1", 1.0),
        ("p", "Answer: 1", 1.0),
        ("p", "Answer: 2", -1.0),
        ("q", "Answer: 1", 1.0),
        ("q", "Answer: 2", 0.0),
    ];

    #[test]
    fn responses_with_the_uid_of_their_group_all_count() {
        let audit = audit_of(&ROWS, |_, _| {});
        let numbers = &audit.steps[&1];
        let names = ["responses", "groups", "correct", "no gradient", "lowered"];
        assert_eq!(names.map(|name| numbers[name]), [5.0, 2.0, 3.0, 0.0, 0.0]);
        assert!(audit.contradictions.is_empty(), "{:?}", audit.contradictions);
        let of_responses = |place: usize, line: &mut Value| {
            line["uid"] = json!(format!("r{}", place.max(1)));
        };
        let audit = audit_of(&ROWS, of_responses);
        assert_eq!(audit.contradictions[0].name, "response-twice");
        assert_eq!(audit.steps[&1]["responses"], 4.0);
    }

    #[test]
    fn grades_are_told_by_data_source_and_the_missing_ones_counted() {
        let rows = [&ROWS[..3], &[("q", "Answer: 1", 0.0), ("q", "Answer: 2", 0.0)][..]].concat();
        let audit = audit_of(&rows, |place, line| {
            if place == 0 {
                line["gts"] = Value::Null;
            }
        });
        let what: Vec<&str> = audit.contradictions.iter().map(|it| &*it.what).collect();
        assert_eq!(what, ["step 1: 1 responses of \"b\" are graded otherwise"]);
        assert!(audit.not_looked_at.iter().any(|it| it.starts_with("1 of 5 grades (")));
    }

    #[test]
    fn steps_that_the_log_has_before_or_after_the_dump_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.jsonl");
        let line =
            |step: u64| format!("{{\"step\": {step}, \"data\": {{\"critic/score/mean\": 0}}}}\n");
        files::write_atomic(&path, (1..=9).map(line).collect::<String>().as_bytes()).unwrap();
        let log = log(&path).unwrap();
        for (steps, expected) in [
            (
                &[3, 4, 6][..],
                Some(
                    "between 4 and 6, before 3 (the log begins at 1), after 6 (the log ends at 9)",
                ),
            ),
            (&[9], Some("before 9 (the log begins at 1)")),
            (&[4, 8], Some("between 4 and 8 (unless one step of 4 is dumped)")),
            (&[2, 4, 6, 8], None),
        ] {
            let expected = expected.map(|places| format!("steps are missing {places}"));
            assert_eq!(missing(steps, log.as_ref()), expected);
        }
        assert_eq!(missing(&[3, 4], None), None);
    }

    #[test]
    fn a_function_of_batches_gets_a_step_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("longest.py");
        let text = "def f(completions, **_):\n return [float(c == max(completions, key=len)) for c in completions]\n";
        files::write_atomic(&file, text.as_bytes()).unwrap();
        let program = Grading::Program(Box::new(RewardProgram::of_python(file, None)));
        let response = |text: &str| Asked { response: text.to_string(), ..Asked::default() };
        let asked = ["bb", "a", "cccc", "ccc", ""].map(response).to_vec();
        let right = graded(&program, (asked, &[1, 1, 2, 2, 3]), folder.path()).unwrap();
        assert_eq!(right, [true, false, true, false, true].map(Ok));
    }
}
