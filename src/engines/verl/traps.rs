//! What a configuration of verl makes of a run, where its keys suggest something else. Each trap was
//! read in the sources of verl 0.7.1 and 0.9.1, and composed with both.

use crate::algorithm::{DualClip, DynamicSampling, Punishment};
use crate::engines::verl::compose::Composed;
use crate::engines::verl::settings::{self, Cards, NO_DUAL_CLIP};
use crate::engines::{DemandRefusal, Effective};
use crate::experiment::{Experiment, Verifier, WarmUpStart};
use serde::Serialize;
use serde_json::{Value, json};

/// One trap that a configuration is in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Trap {
    pub name: &'static str,
    /// verl's key.
    pub key: String,
    pub value: Value,
    /// What the run does.
    pub what: String,
}

/// The configuration, and what is asked of it.
struct Suspect<'a> {
    composed: &'a Composed,
    asked: &'a Experiment,
    traps: Vec<Trap>,
}

impl Suspect<'_> {
    fn value(&self, key: &str) -> Value {
        self.composed.get(key).cloned().unwrap_or_default()
    }

    fn number(&self, key: &str) -> f64 {
        self.value(key).as_f64().unwrap_or_default()
    }

    fn on(&self, key: &str) -> bool {
        self.value(key) == true
    }

    fn text(&self, key: &str) -> String {
        self.value(key).as_str().unwrap_or_default().to_string()
    }

    /// The trainer with a replay buffer.
    fn is_v1(&self) -> bool {
        self.on("trainer.use_v1")
    }

    fn found(&mut self, name: &'static str, key: &str, what: impl Into<String>) {
        let (value, key) = (self.value(key), key.to_string());
        self.traps.push(Trap { name, key, value, what: what.into() });
    }
}

/// Keys of an experiment that say what a run computes.
const COMPUTED: [&str; 6] =
    ["dapo.", "evaluation.", "optimizer", "reward.", "rollout.", "training."];

/// What is asked of a configuration beside what it does, and what no configuration of verl can do.
pub fn compared(
    composed: &Composed,
    asked: &Experiment,
    cards: Cards,
) -> (Vec<Effective>, Vec<DemandRefusal>) {
    let (mut settings, refusals) = settings::demand(asked, cards).into_parts();
    // The verifier and the names of files are the user's own.
    let theirs = ["reward.custom_reward_function.", "trainer.save_freq"];
    settings.retain(|setting| {
        COMPUTED.iter().any(|key| setting.key.starts_with(key))
            && !theirs.iter().any(|name| setting.name.starts_with(name))
    });
    let mut all = composed.beside(settings);
    // PyTorch's own epsilon, where none is stated.
    let unstated =
        |it: &Effective| it.setting.value == json!({"eps": 1e-8}) && it.value == Some(Value::Null);
    all.retain(|it| !unstated(it));
    (all, refusals)
}

/// The traps that a configuration is in, seen from what an arm asks.
pub fn traps(composed: &Composed, asked: &Experiment) -> Vec<Trap> {
    let mut suspect = Suspect { composed, asked, traps: Vec::new() };
    rewards(&mut suspect);
    dynamic_sampling(&mut suspect);
    batches(&mut suspect);
    loss(&mut suspect);
    schedule(&mut suspect);
    validation(&mut suspect);
    for key in &composed.added {
        let what = format!(
            "verl {}'s own configuration has no such key: unless its code reads it, it does nothing",
            composed.version
        );
        suspect.found("unknown-key", key, what);
    }
    if let Some(problem) = &composed.validation {
        suspect.found("validation", "", format!("verl's own validation: {problem}"));
    }
    suspect.traps
}

const MANAGER: &str = "reward.reward_manager.name";
const BUFFER: &str = "reward.reward_kwargs.overlong_buffer_cfg";

fn rewards(suspect: &mut Suspect) {
    // Versions with the migration delete these tables.
    for table in ["reward_model", "custom_reward_function", "sandbox_fusion"] {
        for key in stated(&suspect.value(table), table) {
            let what = "this version composes the key and reads another one, under `reward`; what the \
                        run does stands there";
            suspect.found("legacy-reward-key", &key, what);
        }
    }
    let punished = suspect.on(&format!("{BUFFER}.enable")) && suspect.text(MANAGER) == "dapo";
    if suspect.asked.dapo.overlong.punishment != (Punishment::None {}) && !punished {
        let what = "Soft Overlong Punishment is asked for, and no length is punished: it needs \
                    reward.reward_manager.name=dapo and reward.reward_kwargs.overlong_buffer_cfg.enable=True";
        suspect.found("no-length-penalty", MANAGER, what);
    }
    let log = format!("{BUFFER}.log");
    if punished && suspect.value(&log).is_null() {
        let what = "verl reads this key without a default: the first graded response ends the run";
        suspect.found("overlong-log", &log, what);
    }
    let path = "reward.custom_reward_function.path";
    let own = suspect.value(path).is_null();
    if own && suspect.composed.since(0, 9) && suspect.asked.reward.verifier == Verifier::AnswerLine
    {
        let what = "verl's math_dapo takes a boxed answer where a response has no answer line (seen in \
                    0.9.1; 0.7.1 and the released code do not): other rewards and other filtered groups";
        suspect.found("boxed-answers", path, what);
    }
}

/// The names below a table that have a value.
fn stated(value: &Value, name: &str) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::Object(members) => {
            members.iter().flat_map(|(key, it)| stated(it, &format!("{name}.{key}"))).collect()
        }
        _ => vec![name.to_string()],
    }
}

fn dynamic_sampling(suspect: &mut Suspect) {
    let filter = |name: &str| format!("algorithm.filter_groups.{name}");
    let asked = suspect.asked.dapo.dynamic_sampling != (DynamicSampling::None {});
    if !suspect.on(&filter("enable")) {
        if asked {
            let what = "Dynamic Sampling is asked for, and every group trains";
            suspect.found("no-dynamic-sampling", &filter("enable"), what);
        }
        return;
    }
    if !suspect.is_v1() {
        let what = "main_ppo filters in its V1 trainer alone, of 0.9.0 and later: every group trains \
                    (earlier versions need the DAPO recipe)";
        suspect.found("no-dynamic-sampling", &filter("enable"), what);
        return;
    }
    if suspect.text(&filter("metric")) != "acc" {
        let what = "the filter looks at another number than correctness; `reward` has the length \
                    penalty in it: a solved group with one long response trains";
        suspect.found("filter-metric", &filter("metric"), what);
    }
    if suspect.number(&filter("max_num_gen_batches")) > 0.0 {
        let what =
            "the V1 trainer ignores the cap with a warning: it samples until the batch is full";
        suspect.found("cap-ignored", &filter("max_num_gen_batches"), what);
    }
    let generated = suspect.value("data.gen_batch_size");
    if !generated.is_null() && generated != 1 {
        let prompts = suspect.number("data.train_batch_size");
        let inflight = prompts * suspect.number(&filter("max_inflight_gen_batches"));
        let what = format!(
            "filtering sets it to 1: a step begins with {prompts} prompts (data.train_batch_size), each \
             evicted group asks for two more, and at most {inflight} are in flight; a step whose groups \
             are mostly filtered waits for many short refills"
        );
        suspect.found("gen-batch-size", "data.gen_batch_size", what);
    }
}

fn batches(suspect: &mut Suspect) {
    let key = "actor_rollout_ref.actor.ppo_mini_batch_size";
    let (mini, group) = (suspect.number(key), suspect.number("actor_rollout_ref.rollout.n"));
    let (prompts, rows) =
        (suspect.number("data.train_batch_size"), suspect.asked.training.mini_batch_rollouts);
    if group > 1.0 && (mini == rows as f64 || mini > prompts) {
        let updates = (prompts / mini.max(1.0)).ceil();
        let what = format!(
            "the key counts prompts: a mini-batch has {} responses, and a step {updates} updates; {} \
             prompts are {rows} responses",
            mini * group,
            rows as f64 / group
        );
        suspect.found("mini-batch-in-prompts", key, what);
    } else if mini > 0.0 && prompts % mini != 0.0 && suspect.is_v1() {
        let what = "it does not divide data.train_batch_size: verl fills the last mini-batch with rows \
                    that have no loss";
        suspect.found("padded-mini-batch", key, what);
    }
    if suspect.is_v1() && !suspect.on("actor_rollout_ref.actor.shuffle") {
        let what = "mini-batches follow the order in which responses were completed, so short ones come \
                    first; True shuffles them";
        suspect.found("order-of-completion", "actor_rollout_ref.actor.shuffle", what);
    }
    let key = "actor_rollout_ref.rollout.full_determinism";
    if suspect.on(key) && suspect.is_v1() {
        let what = "verl's documentation demands trainer.use_v1=false for it, and that trainer has no \
                    Dynamic Sampling";
        suspect.found("determinism", key, what);
    }
}

fn loss(suspect: &mut Suspect) {
    let key = "algorithm.adv_estimator";
    if suspect.text(key) == "gae" {
        let what = "the default: PPO's advantages with a critic, not those of a group";
        suspect.found("default-estimator", key, what);
    }
    let key = "actor_rollout_ref.actor.clip_ratio_c";
    let c = suspect.number(key);
    if suspect.asked.dapo.dual_clip == (DualClip::None {}) && c < NO_DUAL_CLIP {
        let what = format!(
            "the loss of a negative advantage is bounded at ratio {c}, which is not asked for; it cannot \
             be switched off, and {NO_DUAL_CLIP:e} never acts"
        );
        suspect.found("dual-clip", key, what);
    }
    let read = "actor_rollout_ref.actor.optim.clip_grad";
    let key = "actor_rollout_ref.actor.grad_clip";
    if suspect.composed.since(0, 9) && suspect.value(key) != suspect.value(read) {
        let what = format!("not read: the gradient is clipped at {read}, {}", suspect.value(read));
        suspect.found("grad-clip", key, what);
    }
}

fn schedule(suspect: &mut Suspect) {
    let key = "actor_rollout_ref.actor.optim.lr_warmup_steps";
    let warm_up = suspect.asked.optimizer.warm_up;
    if suspect.number(key) > 0.0 && warm_up.start == WarmUpStart::FirstStep {
        let what = "the rate of the first rollout step is 0: it generates, and trains nothing";
        suspect.found("warm-up-from-zero", key, what);
    }
}

fn validation(suspect: &mut Suspect) {
    let kept = |name: &str| format!("actor_rollout_ref.rollout.val_kwargs.{name}");
    let asked = &suspect.asked.evaluation;
    let most = asked.samples.values().copied().max().unwrap_or(1);
    let temperature = suspect.number(&kept("temperature"));
    if temperature == 0.0 && asked.sampling.temperature > 0.0 {
        let what = format!(
            "validation takes the most probable tokens, whatever do_sample says; {} is asked for",
            asked.sampling.temperature
        );
        suspect.found("greedy-validation", &kept("temperature"), what);
    }
    if suspect.number(&kept("n")) == 1.0 && most > 1 {
        let what = format!("one response a row of the file; up to {most} a problem are asked for");
        suspect.found("validation-samples", &kept("n"), what);
    }
}
