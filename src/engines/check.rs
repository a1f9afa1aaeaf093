//! What another trainer does, beside what an arm asks: an installed one, or as a configuration from outside says.

use crate::engines::run::{self, EngineOptions};
use crate::engines::{DemandRefusal, Effective, EngineError, Trap, Unread, process, trl, verl};
use crate::experiment::{Engine, Experiment};
use crate::training::run::inputs::Inputs;
use std::collections::BTreeMap;
use std::path::Path;

/// The installed trainer with an arm's settings.
#[derive(Debug)]
pub struct ArmCheck {
    pub versions: BTreeMap<String, String>,
    pub effective: Vec<Effective>,
    /// What the trainer's own validation says against them, or why it was not asked.
    pub problem: Option<String>,
    pub traps: Vec<Trap>,
}

impl ArmCheck {
    pub fn agrees(&self) -> bool {
        let settings = self.effective.iter().all(Effective::agrees);
        settings && self.problem.is_none() && self.traps.is_empty()
    }
}

/// Errors: an arm that the trainer cannot run, or a trainer that is not installed.
pub fn arm(inputs: &Inputs, options: &EngineOptions) -> Result<ArmCheck, EngineError> {
    let engine = inputs.experiment.engine;
    let versions = process::versions(&options.python(engine), run::packages(engine))?;
    let settings = run::all_settings(inputs, options)?;
    if engine != Engine::Verl {
        let effective = trl::check::effective(&options.python(engine), settings)?;
        return Ok(ArmCheck { versions, effective, problem: None, traps: Vec::new() });
    }
    let composed = verl::compose::of_settings(&options.python(engine), &settings)?;
    let unchecked = composed.unchecked.as_ref().map(|why| format!("it is not asked: {why}"));
    let effective = composed.beside(settings);
    let problem = composed.validation.or(unchecked);
    let traps = verl::tokenizer::traps(inputs, &options.python(engine))?;
    Ok(ArmCheck { versions, effective, problem, traps })
}

/// A configuration from outside, with what an arm asks.
#[derive(Debug)]
pub struct ConfigurationCheck {
    /// The trainer, with its version where that is stated.
    pub of: String,
    pub effective: Vec<Effective>,
    /// What no configuration of the trainer can do.
    pub refusals: Vec<DemandRefusal>,
    pub traps: Vec<Trap>,
    /// Set at other values than the trainer's own.
    pub unread: Vec<Unread>,
    pub note: Option<String>,
}

impl ConfigurationCheck {
    pub fn agrees(&self) -> bool {
        self.traps.is_empty() && self.effective.iter().all(Effective::agrees)
    }

    pub fn not_stated(&self) -> Vec<&str> {
        let absent = self.effective.iter().filter(|setting| setting.value.is_none());
        absent.map(|setting| setting.setting.name.as_str()).collect()
    }
}

/// `engine` is not the native one. Errors: a configuration that cannot be read.
pub fn configuration(
    engine: Engine,
    path: &Path,
    asked: &Experiment,
    options: &EngineOptions,
) -> Result<ConfigurationCheck, EngineError> {
    if engine != Engine::Verl {
        let python = options.python(engine);
        let config = trl::written::TrlConfig::of_file(&python, path, options.processes())?;
        let (effective, refusals) = config.compared(asked, options.processes());
        let (traps, unread) = (config.traps(asked), config.unread(asked));
        let is_whole = unread.is_empty() && effective.iter().all(|it| it.value.is_some());
        let of = config.named();
        let note = config.unasked.filter(|_| !is_whole).map(|reason| {
            format!("TRL's own values of keys that are not stated, or not looked at, are not known: {reason}")
        });
        return Ok(ConfigurationCheck { of, effective, refusals, traps, unread, note });
    }
    let composed = verl::compose::of_file(&options.python(engine), path)?;
    let (effective, refusals) = verl::traps::compared(&composed, asked, options.cards);
    let note = if composed.version.is_empty() {
        let what = "not checked: keys that were added to verl's own, keys that nothing here looks at, and verl's \
                    own validation; they need .hydra/overrides.yaml and a Python with that verl";
        Some(what.to_string())
    } else {
        let unchecked = composed.unchecked.as_ref();
        unchecked.map(|why| format!("not checked: verl's own validation: {why}"))
    };
    let (traps, unread) = verl::traps::found(&composed, asked);
    Ok(ConfigurationCheck { of: composed.named(), effective, refusals, traps, unread, note })
}
