//! Computes rewards, trained groups, advantages, metrics and ledger components again from stored responses.

use crate::algorithm::{Group, Prompt, ScoredRollout, Selected, Selection};
use crate::base::files;
use crate::experiment::{Engine, Experiment};
use crate::policy::optimizer;
use crate::records::{Counters, RolloutRow, metrics, tables};
use crate::task::{ResponseText, Twice, grader::Answered, reward::Grade};
use crate::training::{Metrics, effects, run::rows, trainer};
use crate::verification::verify::{Check, VerifySubject};
use serde_json::Value;
use std::collections::BTreeMap;
use std::convert::Infallible;

type ScoredGroup = Group<ScoredRollout>;

/// Step → groups that wait for the next one.
pub type Waiting = BTreeMap<u64, Vec<ScoredGroup>>;

const ROUNDING_OF_SUMS: f64 = 1e-9;

#[derive(Debug, Clone, Copy)]
pub struct StepTable<'a> {
    pub name: &'a str,
    pub rows: &'a [RolloutRow],
    /// From 1.
    pub step: u64,
    pub subject: VerifySubject<'a>,
}

pub fn check(subject: VerifySubject) -> (Check, Waiting) {
    let VerifySubject { folder, records, entries, local } = subject;
    let mut check = Check::new("rollout steps");
    let mut waiting = Waiting::new();
    let (mut clocks, mut rollouts) = (Counters::default(), 0);
    let config = local.base.as_ref().map(|base| files::read_json(&base.join("config.json")));
    let config: Option<Value> = config.and_then(Result::ok);
    let entropy = config.as_ref().and_then(metrics::largest_entropy);
    for line in &records.metrics {
        let name = format!("rollouts/step-{:06}.parquet", line.step);
        let rows = tables::read_rollouts(&folder.rollouts(line.step));
        let Some(rows) = check.read(&name, rows) else { continue };
        rollouts += rows.len();
        let unlike = records.entry(line.step).map(|entry| entry.unlike(&rows));
        for component in unlike.unwrap_or_default() {
            let place = format!("step {}, component {component}", line.step);
            check.mismatch(place, "the table of rollouts is not the one in the ledger");
        }
        let table = StepTable { name: &name, rows: &rows, step: line.step, subject };
        let Some((groups, carried)) = table.groups(&mut check, &waiting) else { continue };
        let selected = table.selected(&mut check, &groups, carried);
        let Some((selected, mut again)) = selected else { continue };
        let rate = optimizer::learning_rate(&records.experiment.optimizer, line.step - 1);
        again.insert("optimizer/learning_rate".to_string(), rate);
        let place = format!("metrics.jsonl, step {}", line.step);
        compare(&mut check, &place, &line.metrics, &again, &records.experiment);
        let value = |name: &str| match name {
            metrics::LARGEST_ENTROPY => entropy,
            name => line.metrics.get(name).copied(),
        };
        let lacking = metrics::lacking(&value, &records.experiment).into_iter();
        // `compare` names the others.
        for name in lacking.filter(|name| effects::is_of_updates(name, &records.experiment)) {
            check.mismatch(format!("{place}, {name}"), "is missing, every such step has it");
        }
        for broken in metrics::broken(&value, &records.experiment, ROUNDING_OF_SUMS) {
            check.mismatch(&place, broken);
        }
        let training = &records.experiment.training;
        let mini_batches = (selected.rows.len() as u64).div_ceil(training.mini_batch_rollouts);
        clocks.generation_rounds += selected.rounds;
        clocks.rollout_steps = line.step;
        clocks.updates += mini_batches * training.epochs_per_step;
        check.same_counters(format!("{place}, counters"), line.counters, clocks);
        waiting.insert(line.step, selected.waiting());
    }
    for step in entries.steps("rollouts/step-", ".parquet") {
        if step == 0 || step > records.steps() {
            let name = format!("rollouts/step-{step:06}.parquet");
            check.half_done(records, name, "is of no recorded step");
        }
    }
    let what = if local.grader.is_some() {
        "text, reward, filter, advantage, metrics and ledger components computed again"
    } else {
        "text, filter, advantage, metrics and ledger components computed again, rewards as recorded"
    };
    (check.compared(format!("{rollouts} rollouts of {} steps: {what}", records.steps())), waiting)
}

/// The prompts have no tokens.
pub fn groups(rows: &[RolloutRow]) -> Vec<ScoredGroup> {
    let bare = |problem| Ok::<_, Infallible>(Prompt { problem, tokens: Vec::new() });
    let Ok(groups) = rows::groups(rows, bare);
    groups
}

impl StepTable<'_> {
    /// The groups (`None` if the rows are none) and the number of carried ones. Compares grades, tokens and problems.
    pub fn groups(self, check: &mut Check, waiting: &Waiting) -> Option<(Vec<ScoredGroup>, usize)> {
        if !self.is_well_formed(check) {
            return None;
        }
        let groups = groups(self.rows);
        let carried = self.carried(check, &groups, waiting.get(&(self.step - 1)));
        let graded = self.graded(check, &groups, carried);
        let carried = carried.unwrap_or(0);
        let again = graded.iter().flat_map(|group| &group.rollouts);
        for ((number, row), again) in self.rows.iter().enumerate().zip(again) {
            let place = format!("{}, row {number}", self.name);
            same_grade(check, &place, row, again);
            self.decoded(check, &place, row);
        }
        self.drawn(check, &groups, carried);
        Some((groups, carried))
    }

    /// Groups must be whole and in order: later steps index them.
    fn is_well_formed(self, check: &mut Check) -> bool {
        let experiment = &self.subject.records.experiment;
        let size = experiment.rollout.group_size as usize;
        for (group, members) in self.rows.chunk_by(|a, b| a.group == b.group).enumerate() {
            let place = format!("{}, group {group}", self.name);
            let of = |row: &RolloutRow| {
                let problem = (row.problem.clone(), row.question.clone(), row.answer.clone());
                (problem, row.attempt, row.trained)
            };
            let numbered = members.iter().zip(0u32..).all(|(row, sample)| row.sample == sample);
            if members[0].group as usize != group || members.len() != size || !numbered {
                check.mismatch(
                    place,
                    format!("is not the next group, or does not have {size} rollouts"),
                );
                return false;
            }
            if !members.iter().all(|row| of(row) == of(&members[0])) {
                check.mismatch(place, "its rollouts are of several problems");
                return false;
            }
            let is_native = experiment.engine.is_native();
            if let Some(row) = members.iter().find(|row| !has_log_probs(row, is_native)) {
                let what = "a token has no log-prob, or one that is none";
                check.mismatch(format!("{place}, sample {}", row.sample), what);
                return false;
            }
        }
        true
    }

    /// A program that takes batches gets those of the run. Rewards are as recorded where nothing grades again.
    fn graded(
        self,
        check: &mut Check,
        groups: &[ScoredGroup],
        carried: Option<usize>,
    ) -> Vec<ScoredGroup> {
        let VerifySubject { records, local, .. } = self.subject;
        let (experiment, mut graded) = (&records.experiment, groups.to_vec());
        if let Some(grader) = &local.grader {
            let size = experiment.rollout.group_size as usize;
            let round = size.saturating_mul(trainer::prompts_per_round(experiment) as usize);
            let (first, batch) = match (grader.takes_batches(), &experiment.engine) {
                (false, _) => (0, size),
                (true, Engine::Verl) => (0, 1),
                (true, _) => (carried.map_or(self.rows.len(), |groups| groups * size), round),
            };
            let is_of_process = grader.takes_batches() && experiment.engine == Engine::Trl;
            let mut asked: Vec<Answered> = Vec::with_capacity(self.rows.len());
            for Group { prompt, rollouts, .. } in groups {
                let rollouts = rollouts.iter().map(|scored| &scored.rollout);
                let problem = &prompt.problem;
                asked.extend(rollouts.map(|it| (problem, &it.text[..], Some(&it.tokens[..]))));
            }
            let mut rollouts = graded.iter_mut().flat_map(|group| &mut group.rollouts).skip(first);
            for part in asked.get(first..).unwrap_or_default().chunks(batch.max(1)) {
                let scored: Vec<_> = rollouts.by_ref().take(part.len()).collect();
                if part.len() < batch {
                    check.inconclusive(
                        self.name,
                        "does not have all of a batch that was graded at once",
                    );
                    continue;
                }
                let grades = grader.grade(part, Twice::Never);
                let grades = grades.map_err(|error| check.inconclusive(self.name, error));
                let Ok((grades, _)) = grades else { continue };
                let is_other = |(scored, grade): (&&mut ScoredRollout, &Grade)| {
                    (scored.is_correct, scored.correctness_reward, &scored.prediction)
                        != (grade.is_correct, grade.reward, &grade.prediction)
                };
                if is_of_process && scored.iter().zip(&grades).any(is_other) {
                    let what = "its responses have other rewards as one batch, and of several processes of TRL each \
                                grades its own: rewards are taken as recorded";
                    check.inconclusive(self.name, what);
                    continue;
                }
                for (scored, grade) in scored.into_iter().zip(grades) {
                    (scored.is_correct, scored.correctness_reward) =
                        (grade.is_correct, grade.reward);
                    scored.prediction = grade.prediction;
                }
            }
        }
        let (limit, dapo) = (experiment.rollout.max_response_tokens, &experiment.dapo);
        for group in &mut graded {
            dapo.rules().shape(group, limit, dapo);
        }
        graded
    }

    fn decoded(self, check: &mut Check, place: &str, row: &RolloutRow) {
        let VerifySubject { records, local, .. } = self.subject;
        let limit = records.experiment.rollout.max_response_tokens;
        length(check, place, row.tokens.len() as u64, row.truncated, limit);
        let Some(tokenizer) = &local.tokenizer else { return };
        let text = ResponseText::of_rollouts(&records.experiment, tokenizer);
        if text.of(&row.tokens) != row.response {
            check.mismatch(format!("{place}, response"), "is not the text of its tokens");
        }
        let stops = |at: &usize| {
            let tokens = &row.tokens[..=*at];
            tokenizer.stop_tokens().contains(&tokens[*at]) || text.is_complete(tokens)
        };
        let first = (0..row.tokens.len()).find(stops);
        let expected = (!row.truncated).then(|| row.tokens.len() - 1);
        if first != expected {
            let what = "a response ends with its first stop token or stop string, a truncated one has none";
            check.mismatch(format!("{place}, tokens"), what);
        }
    }

    /// Carried groups must be those that waited after the step before.
    fn carried(
        self,
        check: &mut Check,
        groups: &[ScoredGroup],
        before: Option<&Vec<ScoredGroup>>,
    ) -> Option<usize> {
        let Some(before) = before else {
            if self.step > 1 {
                let what = "what was carried over is unknown: the step before is damaged";
                check.inconclusive(self.name, what);
                return None;
            }
            return Some(0);
        };
        if groups.get(..before.len()) != Some(before) {
            let what = format!("does not begin with the {} groups that waited", before.len());
            check.mismatch(self.name, what);
        }
        Some(before.len())
    }

    /// Problems must be those of the seed, in order, with earlier draws counted. Where not every drawn
    /// group is recorded, they must be training problems.
    fn drawn(self, check: &mut Check, groups: &[ScoredGroup], carried: usize) {
        let VerifySubject { records, local, .. } = self.subject;
        let Some(data) = local.data.as_ref().filter(|data| !data.train.is_empty()) else { return };
        let seed = records.experiment.execution.seed;
        let rounds_before = records.counters(self.step - 1).unwrap_or_default().generation_rounds;
        let before = rounds_before.saturating_mul(trainer::prompts_per_round(&records.experiment));
        let new = groups.get(carried..).unwrap_or_default();
        let mut expected = trainer::drawn(data.train.len(), seed, before, new.len() as u64);
        if !records.experiment.records_every_group() {
            let places = data.train.iter().zip(0..);
            let places: BTreeMap<&str, usize> = places.map(|(it, at)| (&it.id[..], at)).collect();
            for (expected, group) in expected.iter_mut().zip(new) {
                let place = places.get(group.prompt.problem.id.as_str()).copied();
                *expected = place.unwrap_or(*expected);
            }
        }
        let mut attempts: BTreeMap<&str, u32> = BTreeMap::new();
        for ((group, expected), number) in new.iter().zip(expected).zip(carried..) {
            let (problem, expected) = (&group.prompt.problem, &data.train[expected]);
            let place = format!("{}, group {number}", self.name);
            if problem.id != expected.id {
                let what = format!("is of {}, the seed draws {} here", problem.id, expected.id);
                check.mismatch(&place, what);
            } else if problem != expected {
                let what = format!("does not have the question and answer of {}", problem.id);
                check.mismatch(&place, what);
            }
            let attempt = attempts.entry(problem.id.as_str()).or_default();
            check.equal(format!("{place}, attempt"), group.attempt, *attempt);
            *attempt += 1;
        }
    }

    /// With the metrics that are functions of the rollouts; `None` when the rounds are not those of Dynamic Sampling.
    pub fn selected(
        self,
        check: &mut Check,
        groups: &[ScoredGroup],
        carried: usize,
    ) -> Option<(Selected, Metrics)> {
        let experiment = &self.subject.records.experiment;
        let selected = rounds(groups, carried, experiment);
        let selected = selected.map_err(|what| check.mismatch(self.name, what)).ok()?;
        self.trained(check, &selected);
        let metrics = effects::of_rollouts(&selected, experiment, None);
        Some((selected, metrics))
    }

    /// Advantages are 0 outside the batch.
    fn trained(self, check: &mut Check, selected: &Selected) {
        let advantages: BTreeMap<usize, &Vec<f64>> =
            selected.batch.iter().copied().zip(&selected.advantages).collect();
        for members in self.rows.chunk_by(|a, b| a.group == b.group) {
            let (group, trained) = (members[0].group, members[0].trained);
            let should = advantages.contains_key(&(group as usize));
            check.equal(format!("{}, group {group}, trained", self.name), trained, should);
        }
        for (number, row) in self.rows.iter().enumerate() {
            let group = advantages.get(&(row.group as usize));
            let expected = group.map_or(0.0, |values| values[row.sample as usize]);
            check.equal(format!("{}, row {number}, advantage", self.name), row.advantage, expected);
        }
    }
}

/// Another trainer may record none.
fn has_log_probs(row: &RolloutRow, is_native: bool) -> bool {
    let probable = |value: &f64| value.is_finite() && *value <= 0.0;
    let recorded = is_native || !row.rollout_log_probs.is_empty();
    !row.tokens.is_empty()
        && (!recorded || row.tokens.len() == row.rollout_log_probs.len())
        && row.rollout_log_probs.iter().all(probable)
}

/// Errors: why the rounds are not those of Dynamic Sampling.
fn rounds(
    groups: &[ScoredGroup],
    carried: usize,
    experiment: &Experiment,
) -> Result<Selected, String> {
    let per_round = trainer::prompts_per_round(experiment) as usize;
    let (before, new) = groups.split_at(carried.min(groups.len()));
    if new.is_empty() || !new.len().is_multiple_of(per_round) {
        return Err(format!("{} new groups are no whole rounds of {per_round}", new.len()));
    }
    let target = experiment.training.prompts_per_step;
    let mut selection = Selection::new(&experiment.dapo, target, before.to_vec());
    let rounds = new.len() / per_round;
    for (sampled, round) in new.chunks(per_round).zip(1..) {
        let cap = "the cap of rounds was reached, at which the run should stop";
        let more = selection.add_round(sampled.to_vec()).map_err(|_| cap)?;
        if more != (round < rounds) {
            return Err(format!(
                "has {rounds} rounds; sampling should not have ended so after round {round}"
            ));
        }
    }
    Ok(selection.select())
}

/// Other metrics must be of updates.
pub fn compare(
    check: &mut Check,
    place: &str,
    found: &Metrics,
    again: &Metrics,
    experiment: &Experiment,
) {
    let place = |name: &str| format!("{place}, {name}");
    for (name, value) in again {
        match found.get(name) {
            Some(found) if found.to_bits() == value.to_bits() => {}
            Some(found) => check.mismatch(place(name), format!("is {found}, should be {value}")),
            None => check.mismatch(place(name), format!("is missing, should be {value}")),
        }
    }
    // No table has the distributions: only the metric's presence can be checked.
    let native = experiment.engine.is_native();
    let sampled = native && experiment.record_format() > 1;
    let entropy = sampled.then_some(effects::ROLLOUT_ENTROPY);
    if let Some(name) = entropy.filter(|name| !found.contains_key(*name)) {
        check.mismatch(place(name), "is missing");
    }
    let counted = effects::generated_by_engine(found, experiment);
    if let (Some(stated), Some(counted)) = (found.get(effects::GENERATED_ROLLOUTS), counted)
        && *stated != counted
    {
        let what = format!("is {stated}, the groups that the trainer counted make {counted}");
        check.mismatch(place(effects::GENERATED_ROLLOUTS), what);
    }
    let known = |name: &String| {
        (counted.is_some() && name == effects::GENERATED_ROLLOUTS)
            || effects::is_of_updates(name, experiment)
            || again.contains_key(name)
            || Some(name.as_str()) == entropy
            || (!native && name.starts_with(effects::OF_ENGINE))
    };
    for name in found.keys().filter(|name| !known(name)) {
        check.mismatch(place(name), "does not exist in this step");
    }
    for (name, value) in found {
        if !metrics::is_possible(name, *value, experiment) {
            check.mismatch(place(name), format!("cannot be {value}"));
        }
    }
}

fn same_grade(check: &mut Check, place: &str, row: &RolloutRow, again: &ScoredRollout) {
    let at = |column: &str| format!("{place}, {column}");
    check.equal(at("is_correct"), row.is_correct, again.is_correct);
    check.equal(at("correctness_reward"), row.correctness_reward, again.correctness_reward);
    check.equal(at("overlong_penalty"), row.overlong_penalty, again.overlong_penalty);
    check.equal(at("reward"), row.reward, again.reward());
    same_prediction(check, place, [&row.prediction, &again.prediction]);
}

pub fn same_prediction(check: &mut Check, place: &str, [found, expected]: [&Option<String>; 2]) {
    if found != expected {
        let what = format!("is {found:?}, the response has {expected:?}");
        check.mismatch(format!("{place}, prediction"), what);
    }
}

/// Requires at most L_max tokens, and exactly L_max if truncated.
pub fn length(check: &mut Check, place: &str, length: u64, truncated: bool, limit: u64) {
    if length > limit || (truncated && length < limit) {
        let what = format!("is {truncated}, with {length} of at most {limit} tokens");
        check.mismatch(format!("{place}, truncated"), what);
    }
}
