//! Configurations of verl that do not do what their keys suggest, each composed with verl 0.7.1 and 0.9.1.

use crate::algorithm::{Aggregation, DualClip, DynamicSampling, Punishment, TokenMeanUnit};
use crate::engines::verl::compose::Composed;
use crate::engines::verl::defaults;
use crate::engines::verl::earlier::{
    self, AGGREGATION, CLIP_GRAD, DUAL_CLIP, GRAD_CLIP, RESPONSE_MEANS, SHUFFLE, WARM_UP,
    WARM_UP_RATIO,
};
use crate::engines::verl::settings::{self, Cards, KEYS, MIXED_PRECISION, NO_DUAL_CLIP};
use crate::engines::{DemandRefusal, Effective, Setting, Trap, Unread};
use crate::experiment::{Experiment, MiniBatchOrder, Verifier, WarmUpStart, compare};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// A configuration and the demand.
struct Suspect<'a> {
    composed: &'a Composed,
    asked: &'a Experiment,
    traps: Vec<Trap>,
    read: RefCell<BTreeSet<String>>,
}

impl Suspect<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.read.borrow_mut().insert(key.to_string());
        self.composed.get(key)
    }

    fn value(&self, key: &str) -> Value {
        self.get(key).cloned().unwrap_or_default()
    }

    fn number(&self, key: &str) -> Option<f64> {
        self.get(key).and_then(Value::as_f64)
    }

    fn on(&self, key: &str) -> bool {
        self.value(key) == true
    }

    /// The key is known to have none of these values; a missing key is known in a whole configuration.
    fn is_other(&self, key: &str, values: &[Value]) -> bool {
        let stated = self.get(key);
        stated.map_or(!self.composed.partial, |value| !values.contains(value))
    }

    /// This trainer has a replay buffer.
    fn is_v1(&self) -> bool {
        self.on("trainer.use_v1")
    }

    /// The text is that of `keys.toml`.
    fn found(&mut self, name: &'static str, key: &str) {
        self.found_so(name, key, KEYS.trap(name, ""));
    }

    fn found_so(&mut self, name: &'static str, key: &str, what: String) {
        let value = self.get(key).cloned().unwrap_or_else(|| json!("not stated"));
        self.traps.push(Trap { name, key: key.to_string(), value, what });
    }
}

/// Differing demands, and what no configuration of verl can do.
pub fn compared(
    composed: &Composed,
    asked: &Experiment,
    cards: Cards,
) -> (Vec<Effective>, Vec<DemandRefusal>) {
    let (mut settings, refusals) = earlier::demand(composed, asked, cards);
    settings.retain(|setting| KEYS.is_held(&setting.name));
    let all = composed.beside(settings).into_iter();
    let mut all: Vec<Effective> = all.map(|row| earlier::as_read(composed, row)).collect();
    // PyTorch's default.
    let unstated =
        |it: &Effective| it.setting.value == json!({"eps": 1e-8}) && it.value == Some(Value::Null);
    all.retain(|it| !unstated(it));
    (all, refusals)
}

/// Seen from an arm's demands; and what the configuration sets besides, where that is known.
pub fn found(composed: &Composed, asked: &Experiment) -> (Vec<Trap>, Option<Vec<Unread>>) {
    let (traps, read) = (Vec::new(), RefCell::default());
    let mut suspect = Suspect { composed, asked, traps, read };
    rewards(&mut suspect);
    dynamic_sampling(&mut suspect);
    batches(&mut suspect);
    loss(&mut suspect);
    normaliser(&mut suspect);
    weights(&mut suspect);
    schedule(&mut suspect);
    overridden(&mut suspect);
    validation(&mut suspect);
    // FSDP's engine reads that one.
    for key in composed.added.iter().filter(|key| !key.contains(MIXED_PRECISION)) {
        let what = format!(
            "the own configuration of {} has no such key: unless its code reads it, it does nothing",
            composed.named()
        );
        suspect.found_so("unknown-key", key, what);
    }
    if let Some(problem) = &composed.validation {
        suspect.found_so("validation", "", format!("verl's own validation: {problem}"));
    }
    let settings = settings::demand(asked, Cards::default()).into_parts().0;
    let read = suspect.read.into_inner();
    let deciding = earlier::DECIDING;
    let is_rendered =
        |it: &Setting| it.name == OWN_VERIFIER && composed.get(&it.name) == Some(&it.value);
    let is_of_user = !settings.iter().any(is_rendered);
    let is_read = |key: &str| {
        let is_of = |name: &str| key == name || key.starts_with(&format!("{name}."));
        if key == OWN_PATH && is_of_user {
            return false;
        }
        !KEYS.is_held(key)
            || KEYS.is_of_machine(key)
            || deciding.contains(&key)
            || read.iter().any(|name| is_of(name))
            || settings.iter().any(|setting| is_of(&setting.name))
            || KEYS.megatron.values().any(|names| names.contains_key(key))
    };
    let value = |key: &String| composed.get(key).cloned().unwrap_or_default();
    let is_composed = !composed.version.is_empty();
    let changed =
        if is_composed { Some(composed.changed.clone()) } else { defaults::changed(composed) };
    let unread = changed.map(|keys| {
        let unread = keys.iter().filter(|key| !is_read(key));
        unread.map(|key| Unread { key: key.clone(), value: value(key) }).collect()
    });
    (suspect.traps, unread)
}

const OWN_PATH: &str = "reward.custom_reward_function.path";
const OWN_VERIFIER: &str = "reward.custom_reward_function.reward_kwargs.verifier";

const MANAGER: &str = "reward.reward_manager.name";
const BUFFER: &str = "reward.reward_kwargs.overlong_buffer_cfg";

fn rewards(suspect: &mut Suspect) {
    // Versions with the migration delete these tables.
    for table in ["reward_model", "custom_reward_function", "sandbox_fusion"] {
        for key in stated(&suspect.value(table), table) {
            suspect.found("legacy-reward-key", &key);
        }
    }
    let enable = format!("{BUFFER}.enable");
    let punished = suspect.on(&enable) && suspect.value(MANAGER) == "dapo";
    let unpunished =
        suspect.is_other(MANAGER, &[json!("dapo")]) || suspect.is_other(&enable, &[json!(true)]);
    if suspect.asked.dapo.overlong.punishment != (Punishment::None {}) && unpunished {
        suspect.found("no-length-penalty", MANAGER);
    }
    let log = format!("{BUFFER}.log");
    if punished && suspect.value(&log).is_null() {
        suspect.found("overlong-log", &log);
    }
    let own = suspect.is_other(OWN_PATH, &[]) && suspect.value(OWN_PATH).is_null();
    let rule = suspect.asked.reward.verifier.rule();
    if own && suspect.composed.since_0_9() && rule == Some(Verifier::AnswerLine) {
        suspect.found("boxed-answers", OWN_PATH);
    }
}

/// Lists names with a value below a table.
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
        if asked && suspect.is_other(&filter("enable"), &[json!(true)]) {
            suspect.found("no-dynamic-sampling", &filter("enable"));
        }
        return;
    }
    let is_recipe = suspect.composed.recipe;
    if !suspect.is_v1() && !is_recipe {
        if suspect.composed.partial && suspect.value("trainer.use_v1").is_null() {
            return;
        }
        let name = "no-dynamic-sampling";
        suspect.found_so(name, &filter("enable"), KEYS.trap(name, "main_ppo"));
        return;
    }
    if suspect.is_other(&filter("metric"), &[json!("acc")]) {
        suspect.found("filter-metric", &filter("metric"));
    }
    if is_recipe {
        if suspect.composed.counts_refills() {
            suspect.found("refills-counted", "trainer.total_training_steps");
        }
        return;
    }
    if suspect.number(&filter("max_num_gen_batches")).is_some_and(|most| most > 0.0) {
        suspect.found("cap-ignored", &filter("max_num_gen_batches"));
    }
    let generated = suspect.value("data.gen_batch_size");
    if !generated.is_null() && generated != 1 {
        suspect.found("gen-batch-size", "data.gen_batch_size");
    }
}

fn batches(suspect: &mut Suspect) {
    let key = "actor_rollout_ref.actor.ppo_mini_batch_size";
    let rows = suspect.asked.training.mini_batch_rollouts;
    let numbers = [key, "actor_rollout_ref.rollout.n", "data.train_batch_size"];
    let [mini, group, prompts] = numbers.map(|key| suspect.number(key).unwrap_or(f64::NAN));
    if group > 1.0 && (mini == rows as f64 || mini > prompts) {
        let updates = (prompts / mini.max(1.0)).ceil();
        let what = format!(
            "the key counts prompts: a mini-batch has {} responses, and a step {updates} updates; {} \
             prompts are {rows} responses",
            mini * group,
            rows as f64 / group
        );
        suspect.found_so("mini-batch-in-prompts", key, what);
    } else if mini > 0.0 && prompts % mini != 0.0 && suspect.is_v1() {
        suspect.found("padded-mini-batch", key);
    }
    if suspect.is_v1() && suspect.value(SHUFFLE) == false {
        suspect.found("order-of-completion", SHUFFLE);
    }
    let in_bands = suspect.asked.training.mini_batch_order == MiniBatchOrder::LengthBands;
    if suspect.composed.is_legacy_fsdp() == Some(true) && suspect.on(SHUFFLE) && !in_bands {
        suspect.found("no-shuffle", SHUFFLE);
    }
    let key = "actor_rollout_ref.rollout.full_determinism";
    if suspect.on(key) && suspect.is_v1() {
        suspect.found("determinism", key);
    }
}

/// verl's default of `actor.clip_ratio`.
const CLIP_RATIO: f64 = 0.2;

fn loss(suspect: &mut Suspect) {
    let key = "algorithm.adv_estimator";
    if suspect.value(key) == "gae" {
        suspect.found("default-estimator", key);
    }
    let key = "actor_rollout_ref.actor.entropy_coeff";
    if suspect.number(key).is_some_and(|coefficient| coefficient != 0.0) {
        suspect.found("entropy-bonus", key);
    }
    let reads = suspect.composed.reads(DUAL_CLIP);
    let bound = suspect.number(DUAL_CLIP).filter(|c| reads && *c < NO_DUAL_CLIP);
    if let (DualClip::None {}, Some(c)) = (suspect.asked.dapo.dual_clip, bound) {
        let what = format!(
            "the loss of a negative advantage is bounded at ratio {c}, which is not asked for; it cannot \
             be switched off, and {NO_DUAL_CLIP:e} never acts"
        );
        suspect.found_so("dual-clip", DUAL_CLIP, what);
    }
    let key = "actor_rollout_ref.actor.clip_ratio";
    let sides = ["low", "high"].map(|side| suspect.number(&format!("{key}_{side}")));
    if let (Some(both), [Some(low), Some(high)]) = (suspect.number(key), sides)
        && both != CLIP_RATIO
        && both != low
        && both != high
    {
        let what = format!(
            "not read: the ratio is clipped at 1 - clip_ratio_low = {} and 1 + clip_ratio_high = {}",
            1.0 - low,
            1.0 + high
        );
        suspect.found_so("clip-ratio", key, what);
    }
    let (key, read) = match suspect.composed.is_legacy_fsdp() {
        None => return,
        Some(true) => (CLIP_GRAD, GRAD_CLIP),
        Some(false) => (GRAD_CLIP, CLIP_GRAD),
    };
    let both = [key, read].map(|key| suspect.number(key));
    if both.iter().all(Option::is_some) && both[0] != both[1] {
        let what = format!("not read: the gradient is clipped at {read}, {}", suspect.value(read));
        suspect.found_so("grad-clip", key, what);
    }
}

fn normaliser(suspect: &mut Suspect) {
    let mode = suspect.value(AGGREGATION);
    let Some(mode) = mode.as_str() else { return };
    let (composed, dapo) = (suspect.composed, &suspect.asked.dapo);
    let is_token_mean = mode == "token-mean" && dapo.aggregation == Aggregation::TokenMean;
    let by_pass = is_token_mean && dapo.token_mean_unit != TokenMeanUnit::MicroBatch;
    let variant = if composed.ignores_aggregation() {
        (mode != RESPONSE_MEANS).then_some("ignored")
    } else if mode == "seq-mean-token-sum-norm" && composed.before_0_7_1() {
        Some("sum")
    } else {
        (by_pass && composed.is_legacy() == Some(true)).then_some("")
    };
    if let Some(variant) = variant {
        let name = "loss-normaliser";
        suspect.found_so(name, AGGREGATION, KEYS.trap(name, variant));
    }
}

fn weights(suspect: &mut Suspect) {
    let key = "actor_rollout_ref.model.lora_rank";
    if suspect.number(key).is_some_and(|rank| rank > 0.0) {
        suspect.found("lora", key);
    }
    let engine = suspect.value("actor_rollout_ref.actor.strategy");
    let key = "actor_rollout_ref.actor.fsdp_config.model_dtype";
    let value = suspect.value(key);
    let low = value.as_str().is_some_and(|kind| !["fp32", "float32", "float"].contains(&kind));
    if low && engine != "megatron" {
        suspect.found("low-precision-weights", key);
    }
    let key = "actor_rollout_ref.actor.optim.weight_decay";
    if engine == "megatron" && suspect.number(key).is_some_and(|decay| decay > 0.0) {
        suspect.found("decay-of-norms", key);
    }
}

fn schedule(suspect: &mut Suspect) {
    let key = if suspect.composed.warms_up_by_ratio() { WARM_UP_RATIO } else { WARM_UP };
    let is_on = suspect.number(key).is_some_and(|length| length > 0.0);
    if is_on && suspect.asked.optimizer.warm_up.start == WarmUpStart::FirstStep {
        suspect.found("warm-up-from-zero", key);
    }
}

/// Keys that verl takes in place of the key that an arm is compared with (0.9.1, workers/config/optimizer.py and
/// trainer/config/rollout/rollout.yaml).
const OVERRIDING: [(&str, &str); 3] = [
    ("actor_rollout_ref.actor.optim.grad_clip", CLIP_GRAD),
    (
        "actor_rollout_ref.actor.optim.warmup_style",
        "actor_rollout_ref.actor.optim.lr_scheduler_type",
    ),
    ("actor_rollout_ref.rollout.response_length", "data.max_response_length"),
];

fn overridden(suspect: &mut Suspect) {
    for (key, other) in OVERRIDING {
        let (value, compared) = (suspect.value(key), suspect.value(other));
        let is_other = !compare::same(&value, &compared);
        if !value.is_null() && !compared.is_null() && is_other {
            let what = format!("verl takes this key in place of {other}, {compared}");
            suspect.found_so("overriding-key", key, what);
        }
    }
}

fn validation(suspect: &mut Suspect) {
    let kept = |name: &str| format!("actor_rollout_ref.rollout.val_kwargs.{name}");
    let asked = &suspect.asked.evaluation;
    let most = asked.samples.values().copied().max().unwrap_or(1);
    let temperature = suspect.number(&kept("temperature"));
    if temperature == Some(0.0) && asked.sampling.temperature > 0.0 {
        let what = format!(
            "validation takes the most probable tokens, whatever do_sample says; {} is asked for",
            asked.sampling.temperature
        );
        suspect.found_so("greedy-validation", &kept("temperature"), what);
    }
    if suspect.number(&kept("n")) == Some(1.0) && most > 1 {
        let what = format!("one response a row of the file; up to {most} a problem are asked for");
        suspect.found_so("validation-samples", &kept("n"), what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::starter;

    fn composed(actor: Value, algorithm: Value) -> Composed {
        let effective = json!({"actor_rollout_ref": {"actor": actor}, "algorithm": algorithm,
            "trainer": {"total_training_steps": 200}});
        Composed { effective, ..Composed::default() }
    }

    fn agrees(composed: &Composed, name: &str) -> Option<Option<bool>> {
        let (rows, _) = compared(composed, &starter::paper().unwrap(), Cards::default());
        let row = rows.into_iter().find(|it| it.setting.name.ends_with(name))?;
        Some(row.value.as_ref().map(|_| row.agrees()))
    }

    #[test]
    fn an_earlier_name_of_a_key_is_read() {
        let (is, kl) = ("rollout_correction.rollout_is", "algorithm.use_kl_in_reward");
        let schedule = "lr_scheduler_type";
        for (actor, algorithm, name, expected) in [
            (json!({}), json!({}), is, Some(true)),
            (json!({}), json!({"rollout_is": true, "rollout_is_threshold": 2.0}), is, Some(false)),
            (json!({}), json!({"rollout_is": false, "rollout_is_threshold": 2.0}), is, Some(true)),
            (json!({}), json!({"rollout_is": "${oc.env:IS}"}), is, None),
            (json!({"tis_imp_ratio_cap": 2.0}), json!({}), is, Some(false)),
            (json!({"tis_imp_ratio_cap": -1}), json!({}), is, Some(true)),
            (json!({}), json!({"kl_ctrl": {"kl_coef": 0.001}}), kl, Some(false)),
            (json!({"optim": {"warmup_style": "cosine"}}), json!({}), schedule, Some(false)),
            (json!({"optim": {"warmup_style": null}}), json!({}), schedule, Some(true)),
        ] {
            let found = agrees(&composed(actor.clone(), algorithm.clone()), name);
            assert_eq!(found, Some(expected), "{actor} {algorithm}");
        }
    }

    #[test]
    fn what_a_loss_does_not_read_is_not_held() {
        for (mode, name, is_held) in [
            ("vanilla", "clip_ratio_c", true),
            ("gspo", "clip_ratio_c", false),
            ("cispo", "clip_ratio_c", false),
            ("gspo", "clip_ratio_low", true),
            ("sapo", "clip_ratio_low", false),
            ("sapo", "clip_ratio_high", false),
        ] {
            let loss = json!({"policy_loss": {"loss_mode": mode}, "clip_ratio_c": 2.5,
                "clip_ratio_low": 0.3, "clip_ratio_high": 0.4});
            let held = agrees(&composed(loss, json!({})), name).is_some();
            assert_eq!(held, is_held, "{mode} {name}");
        }
    }

    #[test]
    fn names_and_defaults_of_fsdp_are_not_those_of_another_engine() {
        let of = |strategy: &str, optim: Value, dtype: Value| {
            composed(json!({"strategy": strategy, "optim": optim, "megatron": dtype}), json!({}))
        };
        let megatron = of(
            "megatron",
            json!({"optimizer": "adam", "lr_decay_style": "cosine", "lr_warmup_init": 0.0,
                "betas": [0.5, 0.5], "override_optimizer_config": {}}),
            json!({"dtype": "float16"}),
        );
        for (name, expected) in [
            ("optim.optimizer", Some(Some(true))),
            ("optim.optimizer_impl", None),
            ("optim.lr_decay_style", Some(Some(false))),
            ("optim.lr_warmup_init", Some(Some(true))),
            ("optim.lr_scheduler_type", None),
            ("optim.betas", Some(None)),
            ("optim.override_optimizer_config", Some(None)),
            ("optim.use_precision_aware_optimizer", Some(Some(true))),
            ("megatron.dtype", Some(Some(false))),
        ] {
            assert_eq!(agrees(&megatron, name), expected, "{name}");
        }
        assert_eq!(agrees(&of("megatron", json!({}), json!({})), "lr_decay_style"), Some(None));
        for (engine, decay, expected) in
            [("megatron", 0.1, true), ("megatron", 0.0, false), ("fsdp", 0.1, false)]
        {
            let composed = of(engine, json!({"weight_decay": decay}), json!({}));
            let traps = found(&composed, &starter::paper().unwrap()).0;
            assert_eq!(traps.iter().any(|it| it.name == "decay-of-norms"), expected, "{engine}");
        }
        let other = of("veomni", json!({"optimizer": "AdamW"}), json!({}));
        assert_eq!(agrees(&other, "optim.optimizer"), Some(None));
    }

    #[test]
    fn the_ratio_of_a_warm_up_is_read_as_the_engine_reads_it() {
        for (strategy, steps, ratio, expected, by_ratio) in [
            ("fsdp", json!(0), 0.1, Some(false), false),
            ("fsdp", json!(-1), 0.1, Some(true), true),
            ("fsdp", json!(20), 0.5, Some(true), false),
            ("fsdp", json!(-1), 0.0, Some(false), false),
            ("megatron", json!(0), 0.1, Some(true), true),
            ("megatron", Value::Null, 0.1, Some(true), true),
        ] {
            let optim = json!({"lr_warmup_steps": steps, "lr_warmup_steps_ratio": ratio});
            let composed = composed(json!({"strategy": strategy, "optim": optim}), json!({}));
            let agreed = agrees(&composed, "optim.lr_warmup_steps");
            assert_eq!(agreed, Some(expected), "{strategy} {optim}");
            let traps = found(&composed, &starter::paper().unwrap()).0;
            let is_found = |it: &Trap| it.name == "warm-up-from-zero" && it.key.ends_with("_ratio");
            assert_eq!(traps.iter().any(is_found), by_ratio, "{strategy} {optim}");
        }
    }

    #[test]
    fn a_recipe_that_counts_refills_as_steps_is_told() {
        let filter = json!({"filter_groups": {"enable": true, "metric": "acc"}});
        let mut composed = composed(json!({}), filter);
        composed.recipe = true;
        let is_told = |composed: &Composed| {
            let traps = found(composed, &starter::paper().unwrap()).0;
            traps.iter().any(|it| it.name == "refills-counted")
        };
        assert!(!is_told(&composed));
        composed.effective["trainer"]["npu_profile"] = json!({"options": {}});
        assert!(is_told(&composed));
    }
}
