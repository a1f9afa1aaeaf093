//! Samples some problems of challenged evaluations again and compares every response.

use crate::algorithm::Problem;
use crate::base::{rng::Id, visible};
use crate::experiment::Verifier;
use crate::policy::Qwen2;
use crate::records::tables::{self, OutcomeRecord};
use crate::records::{RunRecords, run_folder::is_portable};
use crate::task::Grader;
use crate::training::{Protocol, evaluation, evaluation::Set};
use crate::verification::AlteredProblems;
use crate::verification::verify::inputs::Local;
use crate::verification::verify::{replay, replay::ReplayRequest, replay::Replayed, scores};
use serde::Serialize;
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picked {
    pub set: String,
    pub step: u64,
    pub problems: Vec<Problem>,
}

impl Picked {
    pub fn name(&self) -> String {
        scores::name(&self.set, self.step)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Executed {
    pub all: u64,
    pub executed: Vec<String>,
    pub all_problems: u64,
    pub executed_problems: u64,
    pub detection: Vec<AlteredProblems>,
}

impl Executed {
    pub fn compared(&self) -> String {
        let Self { all, executed, all_problems, executed_problems, .. } = self;
        let part = if executed_problems < all_problems {
            format!(" of {executed_problems} of {all_problems} problems")
        } else {
            String::new()
        };
        format!("{} of {all} evaluations, every response{part} compared", executed.len())
    }
}

/// As many evaluations as steps; outside the native engine all problems: bits of a response depend on its batch.
pub fn pick(records: &RunRecords, local: &Local, request: &ReplayRequest) -> Vec<Picked> {
    let head = records.head();
    let steps = usize::try_from(request.steps).unwrap_or(usize::MAX);
    let purpose = [Id::from("evaluations")];
    let chosen = request.picked(head, &purpose, records.evaluations.len(), steps);
    let is_portable = is_portable(&records.manifest.exactness);
    let most = usize::try_from(request.problems).ok().filter(|_| is_portable);
    let most = most.unwrap_or(usize::MAX);
    let pick = |index: usize| {
        let record = &records.evaluations[index];
        let (set, step) = (record.set.clone(), record.counters.rollout_steps);
        local.grader_of(&set)?;
        let all = scores::set_of(local, &set)?;
        let purpose = [Id::from("problems"), Id::from(set.as_str()), Id::from(step)];
        let picked = request.picked(head, &purpose, all.len(), most).into_iter();
        let problems = picked.map(|problem| all[problem].clone()).collect();
        Some(Picked { set, step, problems })
    };
    chosen.into_iter().filter_map(pick).collect()
}

pub fn executed(records: &RunRecords, done: Vec<Picked>) -> Executed {
    let all = records.evaluations.len() as u64;
    let count = |picked: &Picked| picked.problems.len() as u64;
    let share = done.len() as f64 / all.max(1) as f64;
    let size = |picked: &Picked| {
        let record = records.evaluations.iter().find(|record| record.set == picked.set)?;
        Some((record.problems, count(picked)))
    };
    let sizes: Vec<(u64, u64)> = done.iter().filter_map(size).collect();
    Executed {
        all,
        all_problems: records.evaluations.iter().map(|record| record.problems).sum(),
        executed_problems: done.iter().map(count).sum(),
        detection: replay::altered_problems(share, &sizes),
        executed: done.iter().map(Picked::name).collect(),
    }
}

impl Replayed<'_> {
    pub(super) fn evaluation(&mut self, model: &Qwen2, picked: &Picked) {
        let name = picked.name();
        let of_set = Protocol::of_set(&self.inputs.experiment, &picked.set);
        let protocol = Protocol { keeps_rewards: true, ..of_set };
        let grader = self.inputs.grader_of(&picked.set);
        let by_rule = grader.takes_batches().then_some(Grader::Rule(Verifier::AnswerLine));
        let grading = (&protocol, by_rule.as_ref().unwrap_or(grader));
        let samples = self.inputs.samples(&picked.set).unwrap_or_default();
        let set = Set { name: &picked.set, problems: &picked.problems, samples };
        let stored = self.subject.folder.outcomes(&picked.set, picked.step);
        let Some(stored) = self.check.read(&name, tables::read_outcomes(&stored)) else { return };
        let again = evaluation::outcomes(model, &self.inputs.tokenizer, grading, set, |_, _| ());
        let mut again = match again {
            Ok(again) => again,
            Err(error) => return self.differs(&name, format!("cannot be made here: {error}")),
        };
        let ids: BTreeSet<&str> = picked.problems.iter().map(|it| it.id.as_str()).collect();
        let chosen: Vec<&OutcomeRecord> =
            stored.iter().filter(|row| ids.contains(row.problem.as_str())).collect();
        if chosen.len() != again.len() {
            let what = format!("{} outcomes stored, {} here", chosen.len(), again.len());
            return self.differs(&name, what);
        }
        for (stored, again) in chosen.iter().zip(&mut again) {
            again.reward = stored.reward.and(again.reward);
            if by_rule.is_some() {
                (again.is_correct, again.reward) = (stored.is_correct, stored.reward);
                again.prediction.clone_from(&stored.prediction);
            }
        }
        let differing: Vec<(&OutcomeRecord, &OutcomeRecord)> =
            chosen.into_iter().zip(&again).filter(|(stored, again)| stored != again).collect();
        let Some((stored, again)) = differing.first() else { return };
        let is_same_text = stored.response == again.response;
        let text = |row: &OutcomeRecord| {
            let shown = |text: &str| visible::shortened(&visible::visible(text), 120);
            let OutcomeRecord { is_correct, prediction, response_tokens: tokens, .. } = row;
            if !is_same_text {
                return format!("\"{}\" ({tokens} tokens)", shown(&row.response));
            }
            let reward = row.reward.map(|it| format!(", reward {it}")).unwrap_or_default();
            let prediction = shown(prediction.as_deref().unwrap_or_default());
            format!("{tokens} tokens, correct: {is_correct}{reward}, prediction \"{prediction}\"")
        };
        let (count, [old, new]) = (differing.len(), [stored, again].map(|row| text(row)));
        let OutcomeRecord { problem, sample, .. } = stored;
        let what = format!(
            "executed again {count} responses differ, first that of problem {problem}, sample {sample}: {old} stored, \
             {new} here"
        );
        self.differs(&name, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_problems_is_told_as_a_part() {
        let told = |executed_problems| {
            let executed = vec!["evaluations/dev-step-000000.parquet".to_string()];
            Executed { all: 6, executed, all_problems: 700, executed_problems, detection: vec![] }
                .compared()
        };
        let part = "1 of 6 evaluations, every response of 24 of 700 problems compared";
        assert_eq!(told(24), part);
        assert_eq!(told(700), "1 of 6 evaluations, every response compared");
    }
}
