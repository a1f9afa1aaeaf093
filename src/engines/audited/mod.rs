//! Another trainer's run: responses are graded again, groups rebuilt, and what was done to them is held against the
//! configuration. What a file does not have is not guessed: it is absent from the numbers.

pub mod stated;
pub mod dumps;
pub mod step;

use crate::base::{python, visible};
use crate::engines::audited::dumps::{DumpedResponse, FileRow, LengthPenalties};
use crate::engines::audited::stated::StatedSettings;
use crate::engines::{EngineError, Trap};
use crate::experiment::{Engine, Grading};
use crate::records::tracked;
use crate::task::data::schema;
use crate::task::grader::for_program;
use crate::task::reward::Grade;
use crate::task::reward::program::{Asked, Graders, Ungraded};
use crate::task::{TaskError, reward};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
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
    let size = stated.group_size.as_ref().and_then(|(_, value)| value.as_u64());
    let (lines, cut) =
        options.answers.as_deref().map(dumps::lines).transpose()?.unwrap_or_default();
    let given = lines.len();
    let answers = options.answers.as_deref().map(|path| dumps::answers(path, lines)).transpose()?;
    let answers = answers.unwrap_or_default();
    let mut unanswered = (0, String::new());
    let (mut prompts, mut unrewarded) = (BTreeSet::new(), BTreeMap::<u64, usize>::new());
    let log = options.log.as_deref().map(|path| tracked::read(path, "")).transpose();
    let log = log.map_err(TaskError::from)?.unwrap_or_default();
    if let [one, two, ..] = &log[..] {
        let reason = format!(
            "it has {} runs ({}, {}, …): give the log of one",
            log.len(),
            one.name,
            two.name
        );
        return Err(EngineError::Output { path: one.path.clone(), reason });
    }
    let mut steps: BTreeMap<u64, Vec<DumpedResponse>> = BTreeMap::new();
    let mut audit = RunAudit { notes: Vec::from_iter(cut), ..RunAudit::default() };
    if let Some(log) = log.first() {
        audit.notes.extend(log.notes.is_cut.then(|| dumps::cut_off(&log.path)));
        let names = step::LOGGED.iter();
        let replaced = names.map(|name| log.replaced.get(*name).map_or(0, |it| it.points)).max();
        audit.notes.extend(replaced.filter(|count| *count > 0).map(|count| {
            format!(
                "{}: {count} steps stand in it again, with other values or after a later step: the last line counts",
                log.path.display()
            )
        }));
    }
    let (mut asked, mut places) = (Vec::new(), Vec::new());
    let mut sources: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    let (mut all, cut) = dumps::rows(engine, folder)?;
    audit.notes.extend(cut);
    let is_verls = engine == Engine::Verl;
    let penalties = is_verls.then(|| dumps::add_length_penalties(&mut all, &stated));
    let has_rewards = penalties != Some(LengthPenalties::Unknown);
    if !has_rewards {
        let note = "rewards are not judged: verl before 0.9, or with trainer.use_v1=false, dumps the reward function's \
                    own `score`, and this dump has no number of the length penalty (`overlong_reward`, which \
                    overlong_buffer_cfg.log writes)";
        audit.notes.push(note.to_string());
    }
    let has_uids_of_groups = dumps::has_uids_of_groups(&all);
    let (mut seen, mut repeated) = (BTreeSet::new(), BTreeMap::<u64, usize>::new());
    let mut is_told = false;
    for FileRow { path, number, row, candidates } in all {
        let functions = dumps::weighted(&candidates, &stated.reward_weights)
            .map_err(|reason| EngineError::Output { path: path.clone(), reason })?;
        if functions.is_none() && !std::mem::replace(&mut is_told, true) {
            audit.notes.push(format!(
                "rewards are not judged: {} may each be a reward, or a number that a function logged; state \
                 reward_weights, one for each reward function, in the file of --config",
                candidates.join(", ")
            ));
        }
        let functions = functions.filter(|_| has_rewards);
        let is_rewarded = functions.is_some();
        let response = dumps::response(&row, functions.as_deref()).map_err(|what| {
            let reason = format!("row {number} lacks {what}, as verl and TRL write them");
            EngineError::Output { path: path.clone(), reason }
        })?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        sources.entry(response.step).or_default().insert(visible::visible(&name));
        let uid = row.get("uid").and_then(dumps::text);
        let of_group = uid.clone().filter(|_| has_uids_of_groups && response.session.is_none());
        let uid = uid.filter(|_| of_group.is_none()).map(|uid| (response.step, uid));
        if uid.is_some_and(|uid| !seen.insert(uid)) {
            *repeated.entry(response.step).or_default() += 1;
            continue;
        }
        if is_rewarded && response.reward.is_none() {
            *unrewarded.entry(response.step).or_default() += 1;
        }
        if answers.contains_key(&response.prompt) {
            prompts.insert(response.prompt.clone());
        } else {
            unanswered = (unanswered.0 + 1, response.prompt.clone());
        }
        let of_step = steps.entry(response.step).or_default();
        // TRL keeps the responses of a prompt together, and may draw a prompt twice.
        let place =
            size.filter(|_| engine == Engine::Trl).map(|size| of_step.len() as u64 / size.max(1));
        let session = of_group.as_ref().map(|_| of_step.len().to_string()).or(response.session);
        let group = place.map(|place| place.to_string()).or(of_group).unwrap_or(response.group);
        let source = [Some(&row), answers.get(&response.prompt)]
            .into_iter()
            .flatten()
            .find_map(|it| it.get("data_source").and_then(dumps::text));
        if let Some(question) =
            verifier.and_then(|_| dumps::question(row, &response.prompt, &answers))
        {
            places.push((response.step, of_step.len()));
            asked.push(question);
        }
        of_step.push(DumpedResponse { group, session, source, ..response });
    }
    let graded = verifier.map(|verifier| {
        let steps: Vec<u64> = places.iter().map(|(step, _)| *step).collect();
        graded(verifier, (asked, &steps), folder)
    });
    let graded = graded.transpose()?;
    let mut ungraded = Vec::new();
    for ((step, place), is_correct) in places.into_iter().zip(graded.unwrap_or_default()) {
        let response = steps.get_mut(&step).and_then(|of_step| of_step.get_mut(place));
        match is_correct {
            Ok(is_correct) => response.expect("it was put there").ours = Some(is_correct),
            Err(reason) => ungraded.push((step, reason)),
        }
    }
    if let Some((step, reason)) = ungraded.first() {
        audit.notes.push(format!(
            "{} responses are not graded, the first of step {step}; their ground truth: {reason}; --answers takes others",
            ungraded.len()
        ));
    }
    for (number, responses) in &steps {
        let (contradictions, numbers, merged) =
            step::audited(*number, responses, &stated, log.first());
        audit.notes.extend(merged);
        audit.contradictions.extend(contradictions);
        audit.steps.insert(*number, numbers);
    }
    if penalties == Some(LengthPenalties::Added) {
        let of_scores = audit.contradictions.iter_mut().filter(|it| it.name == "log-differs");
        of_scores.for_each(|it| {
            it.what += "; to the dump's `score` its `overlong_reward` was added, as verl before 0.9 dumps it without";
        });
    }
    if let Some((step, count)) = unrewarded.first_key_value() {
        audit.notes.push(format!(
            "step {step}: {count} responses have no reward of any function, which counts as 0{}",
            if unrewarded.len() > 1 { "; other steps too" } else { "" }
        ));
    }
    if let Some(path) = options.answers.as_ref().filter(|_| unanswered.0 > 0) {
        audit.notes.push(format!(
            "{}: {} of {given} lines of --answers fit a prompt; {} responses have none, such as those to {:?}: a \
             `prompt` is the dump's, with its template",
            path.display(),
            prompts.len(),
            unanswered.0,
            visible::shortened(&unanswered.1, 80)
        ));
    }
    if stated.is_sum() && verifier.is_some() {
        let note = "grades are not held against rewards, which are sums of several functions";
        audit.notes.push(note.to_string());
    }
    let all = steps.values().map(Vec::len).sum::<usize>();
    let rest = steps.values().flatten().filter(|it| it.ours.is_none()).count();
    let is_logged = step::LOGGED.iter().filter_map(|name| log.first()?.curves.get(*name));
    let is_logged = is_logged.flatten().any(|(at, _)| steps.keys().any(|step| *step as f64 == *at));
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
    let grades =
        if rest == all { "every grade".to_string() } else { format!("{rest} of {all} grades") };
    audit.not_looked_at.extend(
        (rest > 0).then(|| format!("{grades} (--verifier, and --answers where there is no `gts`)")),
    );
    let is_unheld = |log| engine == Engine::Trl && !steps.keys().all(|it| stated.is_held(log, *it));
    audit.not_looked_at.extend(log.first().filter(|log| is_unheld(log)).map(|_| {
        "whether log and completions are of the same responses, in steps where the log may average several \
         generations: that takes a --config with steps_per_generation of gradient_accumulation_steps or more and no \
         evaluation, and logging_steps = 1"
            .to_string()
    }));
    let told =
        |name, what| Trap { name, key: "reward".to_string(), value: "as dumped".into(), what };
    let repeated = repeated.into_iter().map(|(step, count)| {
        let what =
            format!("step {step}: {count} responses have the uid of another one, and are left out");
        told("response-twice", what)
    });
    audit.contradictions.extend(repeated);
    let twice = sources.iter().filter(|(_, files)| files.len() > 1).map(|(step, files)| {
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let what =
            format!("step {step} is in {}: a copy, or two runs in one folder", files.join(", "));
        told("step-twice", what)
    });
    audit.contradictions.extend(twice);
    audit.notes.extend(missing(&sources.into_keys().collect::<Vec<_>>()));
    Ok(audit)
}

/// Of steps at equal distances.
fn missing(steps: &[u64]) -> Option<String> {
    let distances = || steps.windows(2).map(|pair| pair[1] - pair[0]);
    let usual = distances().min()?;
    let gap = |pair: &&[u64]| pair[1] - pair[0] > usual;
    let gaps = steps.windows(2).filter(gap).map(|pair| format!("{} and {}", pair[0], pair[1]));
    let gaps: Vec<String> = gaps.collect();
    let shown = gaps.iter().take(TOLD).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match gaps.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!(" and in {more} more places"),
    };
    (!gaps.is_empty()).then(|| format!("steps are missing between {shown}{more}"))
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
    let takes_batches = graders.ready().takes_batches();
    for of_step in steps.chunk_by(|a, b| a == b || !takes_batches) {
        let (batch, after) = rest.split_at(of_step.len());
        let mut grades = graders.grade(batch);
        // A function that disagrees with itself is no witness.
        graders.grade_again(batch, &(0..batch.len()).collect::<Vec<_>>(), &mut grades);
        graded.extend(grades);
        rest = after;
    }
    let of_response = |(grade, asked): (Result<Grade, Ungraded>, &Asked)| {
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
