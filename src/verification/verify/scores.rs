//! Computes evaluations and the report again.

use crate::algorithm::Problem;
use crate::base::files::{self, foreign};
use crate::experiment::Experiment;
use crate::records::{
    Ending, EvaluationRecord, Outcome, RunRecords, tables, tables::OutcomeRecord,
};
use crate::report::run;
use crate::study::cell::compare::{DifferingLeaf, leaves};
use crate::task::{Tokenizer, Twice};
use crate::training::evaluation;
use crate::training::run::{evaluations, inputs};
use crate::verification::verify::{Check, VerifySubject, inputs::Local, records, steps};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Each must exist once, in its turn (what is scheduled, then what is due at the end), and follow from its outcomes.
pub fn evaluations(subject: VerifySubject) -> Check {
    let VerifySubject { folder, records, local, entries } = subject;
    let mut check = Check::new("evaluations");
    let text = local.tokenizer.as_ref().map(|tokenizer| Text::of(tokenizer, &records.experiment));
    let mut outcomes = 0;
    for record in &records.evaluations {
        let name = name(&record.set, record.counters.rollout_steps);
        if !entries.files.contains(&name) {
            check.half_done(records, name, "is missing");
            continue;
        }
        let rows = tables::read_outcomes(&folder.path(&name));
        let Some(rows) = check.read(&name, rows) else { continue };
        outcomes += rows.len();
        OutcomeTable { name: &name, rows: &rows, record, subject }.check(&mut check);
        for (number, row) in rows.iter().enumerate() {
            let place = format!("{name}, row {number}");
            text.iter().for_each(|text| text.written(&mut check, &place, row));
        }
    }
    let key = |record: &EvaluationRecord| (record.set.clone(), record.counters.rollout_steps);
    let recorded: BTreeSet<(String, u64)> = records.evaluations.iter().map(key).collect();
    let RunRecords { experiment, manifest, outcome, .. } = records;
    let due = match outcome {
        Some(Outcome { ending, .. }) => {
            let complete = *ending != Ending::Diverged;
            evaluations::due(experiment, &manifest.inputs, records.steps(), complete)
        }
        // What is due at the end of an unfinished run is not known.
        None => recorded.clone(),
    };
    let faults = evaluations::schedule_faults(due, records.evaluations.iter().map(key));
    for ((set, step), fault) in faults {
        check.mismatch("evaluations.jsonl", format!("{set} at step {step} {fault}"));
    }
    for EvaluationRecord { set, counters, .. } in out_of_turn(subject) {
        let what = "comes after a set that a run evaluates later";
        let step = counters.rollout_steps;
        check.mismatch("evaluations.jsonl", format!("{set} at step {step} {what}"));
    }
    for name in entries.files.iter().filter(|name| name.starts_with("evaluations/")) {
        if !recorded.iter().any(|(set, step)| *name == self::name(set, *step)) {
            check.half_done(records, name, "no record in evaluations.jsonl is of it");
        }
    }
    let graded = match (&local.grader, local.ungraded_sets()) {
        (None, _) => "rewards as recorded".to_string(),
        (Some(_), sets) if sets.is_empty() => "graded again".to_string(),
        (Some(_), sets) => format!("graded again but for {}", sets.join(", ")),
    };
    check.compared(format!(
        "{outcomes} outcomes of {} evaluations: {graded}, lengths held against texts, every statistic computed again",
        records.evaluations.len()
    ))
}

fn out_of_turn<'a>(subject: VerifySubject<'a>) -> Vec<&'a EvaluationRecord> {
    let VerifySubject { records, local, .. } = subject;
    let Some(data) = &local.data else { return Vec::new() };
    let Experiment { evaluation, training, .. } = &records.experiment;
    let turn = |record: &EvaluationRecord| {
        let (set, step) = (&record.set, record.counters.rollout_steps);
        let is_scheduled = evaluation.is_due(set, step, step == training.rollout_steps);
        (!is_scheduled, data.evaluated().position(|(name, _)| name == set))
    };
    let of_steps = records.evaluations.chunk_by(|a, b| a.counters == b.counters);
    let pairs = of_steps.flat_map(|records| records.windows(2));
    pairs.filter(|pair| turn(&pair[0]) > turn(&pair[1])).map(|pair| &pair[1]).collect()
}

pub fn name(set: &str, step: u64) -> String {
    format!("evaluations/{set}-step-{step:06}.parquet")
}

struct Text<'a> {
    tokenizer: &'a Tokenizer,
    experiment: &'a Experiment,
    most_characters: usize,
    /// Text of stop tokens: empty if special.
    stops: Vec<String>,
}

impl<'a> Text<'a> {
    fn of(tokenizer: &'a Tokenizer, experiment: &'a Experiment) -> Self {
        let stops = tokenizer.stop_tokens().iter().map(|token| tokenizer.decode(&[*token]));
        let most_characters = tokenizer.most_characters();
        Self { tokenizer, experiment, most_characters, stops: stops.collect() }
    }

    /// Counts up to the stop token; the fewest where several tokens could be the last one.
    fn characters(&self, response: &str, row: &OutcomeRecord) -> usize {
        let all = response.chars().count();
        let last = |stop: &String| response.ends_with(stop).then(|| stop.chars().count());
        all - self.stops.iter().filter(|_| !row.truncated).filter_map(last).max().unwrap_or(0)
    }

    /// Needs a text of the vocabulary with enough tokens; there may be more (special tokens, words cut in other ways).
    fn written(&self, check: &mut Check, place: &str, row: &OutcomeRecord) {
        let prefix = self.experiment.prompt.response_prefix.as_deref().unwrap_or_default();
        let stop = self.experiment.evaluation_stop();
        let response = row.response.strip_prefix(prefix).unwrap_or_default();
        if !row.response.starts_with(prefix) || stop.iter().any(|stop| response.contains(stop)) {
            let what =
                "does not begin with prompt.response_prefix, or goes on behind a stop string";
            return check.mismatch(format!("{place}, response"), what);
        }
        let tokens = match self.tokenizer.encode(response) {
            Ok(tokens) => tokens,
            Err(error) => {
                // Decoders may write what their tokenizer cannot read, such as spaces.
                let known = self.tokenizer.alphabet();
                let is_known = response.chars().all(|character| known.contains(&character));
                let place = format!("{place}, response");
                if is_known {
                    return check.inconclusive(place, error);
                }
                return check.mismatch(place, error);
            }
        };
        if self.tokenizer.decode(&tokens) != response {
            let what = "the tokens of this text have another text";
            return check.inconclusive(format!("{place}, response"), what);
        }
        // The token that completes a stop string may have text before it.
        let stopped = u64::from(!row.truncated && stop.is_empty());
        let found = u64::from(row.response_tokens).checked_sub(stopped);
        let fewest = self.characters(response, row).div_ceil(self.most_characters.max(1)) as u64;
        if found.is_none_or(|found| found < fewest) {
            let tokens = row.response_tokens;
            let what = format!("is {tokens}, its text before the stop token has {fewest} or more");
            check.mismatch(format!("{place}, response_tokens"), what);
        }
    }
}

pub fn set_of<'a>(local: &'a Local, name: &str) -> Option<&'a [Problem]> {
    let sets = inputs::named_sets(local.data.as_ref()?);
    sets.into_iter().skip(1).find(|(set, _)| *set == name).map(|(_, problems)| problems)
}

#[derive(Clone, Copy)]
struct OutcomeTable<'a> {
    name: &'a str,
    rows: &'a [OutcomeRecord],
    record: &'a EvaluationRecord,
    subject: VerifySubject<'a>,
}

impl OutcomeTable<'_> {
    fn check(self, check: &mut Check) {
        let Self { name, rows, record, subject } = self;
        let VerifySubject { folder, records, local, .. } = subject;
        let experiment = &records.experiment;
        let asked = rows.chunk_by(|a, b| a.problem == b.problem);
        let asked = asked.map(|rows| (rows[0].problem.as_str(), rows[0].answer.as_str()));
        let set = set_of(local, &record.set).map(|set| set.iter());
        let wanted = set.map(|set| set.map(|it| (it.id.as_str(), it.answer.as_str())));
        if wanted.is_some_and(|wanted| !wanted.eq(asked)) {
            check.mismatch(name, "its problems and answers are not those of the set");
        }
        let samples = experiment.evaluation.samples.get(&record.set).copied().unwrap_or_default();
        check.equal(format!("{name}, samples"), record.samples, samples);
        for rows in rows.chunk_by(|a, b| a.problem == b.problem) {
            let whole = rows.len() as u64 == samples
                && rows.iter().zip(0u32..).all(|(row, sample)| row.sample == sample)
                && rows.iter().all(|row| row.answer == rows[0].answer);
            if !whole {
                let place = format!("{name}, problem {}", rows[0].problem);
                check.mismatch(place, "its samples are not 0 to k − 1");
            }
        }
        self.same_grades(check);
        let limit = experiment.rollout.max_response_tokens;
        for (number, row) in rows.iter().enumerate() {
            let place = format!("{name}, row {number}");
            steps::length(check, &place, row.response_tokens.into(), row.truncated, limit);
        }
        let step = record.counters.rollout_steps;
        let digest = files::sha256_file(&folder.path(name));
        let (Some(counters), Ok(digest)) = (records.counters(step), digest) else {
            return check.mismatch(name, "is of no recorded step");
        };
        let again = evaluation::record(&record.set, counters, rows, digest);
        let Some(again) = check.read(name, again) else { return };
        let place = format!("evaluations.jsonl, {} at step {step}", record.set);
        let value = |record| serde_json::to_value(record).unwrap_or_default();
        different(check, &place, &value(record), &value(&again));
    }

    /// Nothing is compared where no program grades again.
    fn same_grades(self, check: &mut Check) {
        let Self { name, rows, record, subject: VerifySubject { local, .. } } = self;
        let Some(grader) = local.grader_of(&record.set) else { return };
        let set = local.data.as_ref().map(|data| data.evaluated().flat_map(|(_, all)| all));
        let questions: BTreeMap<&str, &str> =
            set.into_iter().flatten().map(|it| (it.id.as_str(), it.question.as_str())).collect();
        let problem = |row: &OutcomeRecord| Problem {
            id: row.problem.clone(),
            question: questions.get(row.problem.as_str()).copied().unwrap_or_default().to_string(),
            answer: row.answer.clone(),
        };
        let problems: Vec<Problem> = rows.iter().map(problem).collect();
        let responses = problems.iter().zip(rows).map(|(it, row)| (it, &row.response[..], None));
        let grades = match grader.grade(&responses.collect::<Vec<_>>(), Twice::Never) {
            Ok((grades, _)) => grades,
            Err(error) => return check.inconclusive(name, error),
        };
        for ((number, row), grade) in rows.iter().enumerate().zip(grades) {
            let place = format!("{name}, row {number}");
            check.equal(format!("{place}, is_correct"), row.is_correct, grade.is_correct);
            if let Some(reward) = row.reward {
                check.equal(format!("{place}, reward"), reward, grade.reward);
            }
            steps::same_prediction(check, &place, [&row.prediction, &grade.prediction]);
        }
    }
}

pub fn report(VerifySubject { folder, records, entries, .. }: VerifySubject) -> Check {
    let mut check = Check::new("report");
    if records.is_unfinished() {
        let what = "is not compared: an unfinished run has written more since";
        check.inconclusive("report.json", what);
        return check.compared("nothing");
    }
    let gone = records::vouched_and_gone(entries);
    if !gone.is_empty() {
        let what =
            format!("is not compared: it has facts of what is missing ({})", gone.join(", "));
        check.inconclusive(run::JSON, what);
        return check.compared("nothing");
    }
    let Some(built) = check.read("report", run::build(folder)) else {
        return check.compared("nothing");
    };
    let again = serde_json::to_value(&built).expect("a report as JSON");
    let Some(kept) = written_here(&mut check, folder.root(), run::JSON, &again) else {
        return check.compared("nothing");
    };
    if kept["status"]["state"] == run::UNFINISHED {
        let what = "is of a time before the run ended; dapo report writes it again";
        check.inconclusive(run::JSON, what);
        return check.compared("nothing");
    }
    for leaf in leaves(run::JSON, &kept, &again).into_iter().filter(|leaf| !is_sentence(leaf)) {
        check.mismatch(leaf.place, format!("is {}, should be {}", leaf.one, leaf.other));
    }
    check.compared("every fact of report.json, not its sentences, computed again from the folder")
}

/// Of a field whose words another build may choose otherwise.
fn is_sentence(leaf: &DifferingLeaf) -> bool {
    const FIELDS: [&str; 6] = ["headline", "sentence", "evidence", "meaning", "withheld", "damage"];
    let field = leaf.place.rsplit(", ").next().unwrap_or_default();
    let field = field.split('[').next().unwrap_or_default();
    leaf.are_texts && FIELDS.contains(&field)
}

/// A document of the folder, if this version writes such a one as `again`.
pub fn written_here(check: &mut Check, folder: &Path, name: &str, again: &Value) -> Option<Value> {
    let read = foreign::inside(folder, name).and_then(|path| files::read_json::<Value>(&path));
    let Some(kept) = check.read(name, files::optional(read))? else {
        check.inconclusive(name, "is missing; dapo report writes it");
        return None;
    };
    if kept.is_object() && kept["schema"] != again["schema"] {
        let what =
            "is written by another version and was not compared; dapo report writes it again";
        check.inconclusive(name, what);
        return None;
    }
    Some(kept)
}

pub fn different(check: &mut Check, place: &str, found: &Value, expected: &Value) {
    for DifferingLeaf { place, one, other, .. } in leaves(place, found, expected) {
        check.mismatch(place, format!("is {one}, should be {other}"));
    }
}
