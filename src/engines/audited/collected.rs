//! The responses of a dump by step and group, and what of its rows was left out or is unknown.

use crate::base::visible;
use crate::engines::EngineError;
use crate::engines::audited::dumps::{self, DumpedResponse, FileRow, LengthPenalties, Row};
use crate::engines::audited::stated::StatedSettings;
use crate::experiment::Engine;
use crate::task::reward::program::Asked;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub struct GivenAnswers {
    path: PathBuf,
    lines: usize,
    by_prompt: BTreeMap<String, Row>,
    pub cut: Option<String>,
}

impl GivenAnswers {
    pub fn read(path: &Path) -> Result<Self, EngineError> {
        let (rows, cut) = dumps::lines(path)?;
        let lines = rows.len();
        Ok(Self { path: path.to_path_buf(), lines, by_prompt: dumps::answers(path, rows)?, cut })
    }

    pub fn note(&self, dump: &CollectedDump) -> Option<String> {
        let (count, prompt) = dump.unanswered.as_ref()?;
        Some(format!(
            "{}: {} of {} lines of --answers fit a prompt; {count} responses have none, such as those to {:?}: a \
             `prompt` is the dump's, with its template",
            self.path.display(),
            dump.answered.len(),
            self.lines,
            visible::shortened(prompt, 80)
        ))
    }
}

#[derive(Default)]
pub struct CollectedDump {
    pub steps: BTreeMap<u64, Vec<DumpedResponse>>,
    /// With step and place in it, of each response that has a ground truth.
    pub questions: Vec<((u64, usize), Asked)>,
    /// `None` of a trainer that dumps whole rewards.
    pub penalties: Option<LengthPenalties>,
    pub files: BTreeMap<u64, BTreeSet<String>>,
    /// Responses that were left out, because they have the uid of another one.
    pub repeated: BTreeMap<u64, usize>,
    pub notes: Vec<String>,
    unrewarded: BTreeMap<u64, usize>,
    answered: BTreeSet<String>,
    /// How many responses no answer fits, and the prompt of the last one.
    unanswered: Option<(usize, String)>,
    seen: BTreeSet<(u64, String)>,
}

struct DumpContext<'a> {
    engine: Engine,
    stated: &'a StatedSettings,
    answers: &'a BTreeMap<String, Row>,
    has_uids_of_groups: bool,
}

impl CollectedDump {
    pub fn read(
        engine: Engine,
        folder: &Path,
        stated: &StatedSettings,
        answers: Option<&GivenAnswers>,
    ) -> Result<Self, EngineError> {
        let (mut rows, notes) = dumps::rows(engine, folder)?;
        let mut dump = Self { notes, ..Self::default() };
        if engine == Engine::Verl {
            dump.penalties = Some(dumps::add_length_penalties(&mut rows, stated));
        }
        if !dump.has_rewards() {
            let note = "rewards are not judged: verl before 0.9, or with trainer.use_v1=false, dumps the reward \
                        function's own `score`, and this dump has no number of the length penalty (`overlong_reward`, \
                        which overlong_buffer_cfg.log writes)";
            dump.notes.push(note.to_string());
        }
        let none = BTreeMap::new();
        let given = answers.map_or(&none, |answers| &answers.by_prompt);
        let has_uids_of_groups = dumps::has_uids_of_groups(&rows);
        let context = DumpContext { engine, stated, answers: given, has_uids_of_groups };
        let mut has_note = false;
        for FileRow { path, number, row, candidates } in rows {
            let refused = |reason: String| EngineError::Output { path: path.clone(), reason };
            let functions =
                dumps::weighted(&candidates, &stated.reward_weights).map_err(refused)?;
            if functions.is_none() && !std::mem::replace(&mut has_note, true) {
                dump.notes.push(format!(
                    "rewards are not judged: {} may each be a reward, or a number that a function logged; state \
                     reward_weights, one for each reward function, in the file of --config",
                    candidates.join(", ")
                ));
            }
            let functions = functions.filter(|_| dump.has_rewards());
            let response = dumps::response(&row, functions.as_deref()).map_err(|what| {
                refused(format!("row {number} lacks {what}, as verl and TRL write them"))
            })?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let step = response.step;
            dump.files.entry(step).or_default().insert(visible::visible(&name));
            let lacks_reward = functions.is_some() && response.reward.is_none();
            if dump.add(row, response, &context) && lacks_reward {
                *dump.unrewarded.entry(step).or_default() += 1;
            }
        }
        Ok(dump)
    }

    fn has_rewards(&self) -> bool {
        self.penalties != Some(LengthPenalties::Unknown)
    }

    fn add(&mut self, row: Row, response: DumpedResponse, context: &DumpContext) -> bool {
        let DumpContext { engine, stated, answers, has_uids_of_groups } = *context;
        let step = response.step;
        let uid = dumps::uid(&row);
        let of_group = uid.clone().filter(|_| has_uids_of_groups && response.session.is_none());
        let uid = uid.filter(|_| of_group.is_none()).map(|uid| (step, uid));
        if uid.is_some_and(|uid| !self.seen.insert(uid)) {
            *self.repeated.entry(step).or_default() += 1;
            return false;
        }
        let answer = answers.get(&response.prompt);
        if answer.is_some() {
            self.answered.insert(response.prompt.clone());
        } else {
            let (count, _) = self.unanswered.take().unwrap_or_default();
            self.unanswered = Some((count + 1, response.prompt.clone()));
        }
        let of_step = self.steps.entry(step).or_default();
        // TRL keeps the responses of a prompt together, and may draw a prompt twice.
        let size = stated.group_size.as_ref().and_then(|(_, value)| value.as_u64());
        let place =
            size.filter(|_| engine == Engine::Trl).map(|size| of_step.len() as u64 / size.max(1));
        let session = of_group.as_ref().map(|_| of_step.len().to_string()).or(response.session);
        let group = place.map(|place| place.to_string()).or(of_group).unwrap_or(response.group);
        let source = [Some(&row), answer].into_iter().flatten();
        let source = source.flat_map(|row| row.get("data_source").and_then(dumps::text)).next();
        let question = dumps::question(row, &response.prompt, answers);
        self.questions.extend(question.map(|question| ((step, of_step.len()), question)));
        of_step.push(DumpedResponse { group, session, source, ..response });
        true
    }

    pub fn note_of_rewards(&self) -> Option<String> {
        let (step, count) = self.unrewarded.first_key_value()?;
        let others = if self.unrewarded.len() > 1 { "; other steps too" } else { "" };
        Some(format!(
            "step {step}: {count} responses have no reward of any function; they are left out of their groups, as \
             by TRL 1.16, or count as 0 where the advantages are of that{others}"
        ))
    }
}
