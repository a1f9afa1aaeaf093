//! The folder of a tuned policy: there as a whole with its record, or not there.

use crate::base::files;
use crate::experiment::{PromptSettings, Verifier};
use crate::policy::checkpoint;
use crate::task::Tokenizer;
use crate::training::{
    StageUpdate, TrainingError, TuneEvaluation, TuneRecipe, supervised, tuning, tuning::TuneData,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const RECORD: &str = "tune.json";

/// What the result is determined by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneKey {
    recipe: TuneRecipe,
    /// Where LibTorch computes, bits depend on them; else absent.
    threads: Option<u64>,
    /// SHA-256 of checkpoint files, data and chat template.
    inputs: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct TuneRecord {
    harness: String,
    key: TuneKey,
    stop_token: u32,
    pub before: TuneEvaluation,
    pub after: TuneEvaluation,
    updates: Vec<StageUpdate>,
    /// Digests of every other file of the folder.
    pub sha256: BTreeMap<String, String>,
}

#[derive(Debug)]
pub enum TuneEvent<'a> {
    /// `evaluate before` or `evaluate after`, and responses done.
    Evaluating(&'static str, usize),
    Updated(&'a StageUpdate),
}

/// Tunes the policy in `base` into the folder `out`. Returns the record, and whether the result was there before.
/// Errors: a checkpoint that cannot be used, a folder that holds something else, or divergence.
pub fn make(
    recipe: &TuneRecipe,
    data: &TuneData,
    base: &Path,
    out: &Path,
    threads: u64,
    watch: &mut dyn FnMut(TuneEvent) -> bool,
) -> Result<(TuneRecord, bool), TrainingError> {
    let inputs = tuning::digests(recipe, data, base)?;
    let model = checkpoint::load_model(base)?.with_numerics(recipe.numerics)?;
    let threads = (!model.is_native()).then_some(threads);
    let key = TuneKey { recipe: recipe.by_file_names(), threads, inputs };
    if let Some(record) = finished(out, &key)? {
        return Ok((record, true));
    }
    let may_replace = || match finished(out, &key)? {
        Some(_) => Err(TrainingError::InUse { folder: out.to_path_buf() }),
        None => Ok(()),
    };
    supervised::write_folder(out, may_replace, |partial| {
        tuning::write_companions(recipe, base, partial)?;
        let tokenizer = Tokenizer::load(partial)?;
        let stop_token = tuning::stop_token(&tokenizer, recipe.template, base)?;
        tokenizer.fits(base, model.config().vocab_size)?;
        data.fit(recipe, &tokenizer, model.config().max_position_embeddings)?;
        let before = tuning::evaluate(&model, recipe, data, &tokenizer, |done, _| {
            watch(TuneEvent::Evaluating("evaluate before", done));
        })?;
        let mut updates = Vec::new();
        let model = tuning::tune(model, recipe, data, &tokenizer, stop_token, |update| {
            updates.push(update.clone());
            watch(TuneEvent::Updated(update))
        })?;
        let after = tuning::evaluate(&model, recipe, data, &tokenizer, |done, _| {
            watch(TuneEvent::Evaluating("evaluate after", done));
        })?;
        checkpoint::save_model(partial, model.parameters(), partial)?;
        let mut sha256 = BTreeMap::new();
        for name in files::list(partial)? {
            let digest = files::sha256_file(&partial.join(&name))?;
            sha256.insert(name, digest);
        }
        let harness = env!("CARGO_PKG_VERSION").to_string();
        let record =
            TuneRecord { harness, key: key.clone(), stop_token, before, after, updates, sha256 };
        files::write_json(&partial.join(RECORD), &record)?;
        Ok((record, false))
    })
}

fn finished(out: &Path, key: &TuneKey) -> Result<Option<TuneRecord>, TrainingError> {
    if files::kind(out)?.is_none() || files::list(out)?.is_empty() {
        return Ok(None);
    }
    let refuse = |reason: String| TrainingError::Folder { folder: out.to_path_buf(), reason };
    if !out.join(RECORD).exists() {
        return Err(refuse(format!("is not empty and holds no {RECORD}; choose another --out")));
    }
    let record: TuneRecord = files::read_json(&out.join(RECORD))?;
    if record.key != *key {
        return Err(refuse(format!(
            "holds a policy that was tuned otherwise (recipe, threads or inputs differ; see its {RECORD}); \
             choose another --out or delete it"
        )));
    }
    for (name, written) in &record.sha256 {
        let path = files::foreign::inside(out, name)?;
        if files::optional(files::sha256_file(&path))?.as_ref() != Some(written) {
            return Err(refuse(format!(
                "is damaged: {name} is not what its {RECORD} says; delete the folder and tune again"
            )));
        }
    }
    Ok(Some(record))
}

/// How the policy was asked and graded; `None` where it was not tuned here. Errors: a record that cannot be read.
pub fn form_of(folder: &Path) -> Result<Option<(PromptSettings, Verifier)>, TrainingError> {
    let record: Option<TuneRecord> = files::optional(files::read_json(&folder.join(RECORD)))?;
    let recipe = record.map(|record| record.key.recipe);
    Ok(recipe.map(|recipe| (recipe.prompt(), recipe.evaluation.verifier)))
}
