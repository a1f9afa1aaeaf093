//! Real runs, one arm a technique: what the run shows of each technique follows its switch.

use assert_cmd::Command;
use dapo::base::files;
use dapo::records::{RunFolder, StepMetrics};
use dapo::study::Effects;
use dapo::study::effect_checks::{self, EffectVerdict};
use std::path::Path;

/// The metrics that the checks read; every rollout step records them.
pub const METRICS: &str = "effect/clip_higher_clipped_above_tokens effect/clip_higher_let_through_tokens \
    effect/dynamic_sampling_batch_filled_share \
    effect/dynamic_sampling_dropped_all_correct_groups \
    effect/dynamic_sampling_dropped_all_wrong_groups effect/dynamic_sampling_refill_rounds \
    effect/dynamic_sampling_trained_useless_groups effect/loss_tokens \
    effect/overlong_filtering_masked_rollouts effect/overlong_filtering_masked_tokens \
    effect/overlong_filtering_truncated_rollouts effect/soft_punishment_moved_advantages \
    effect/soft_punishment_penalty_sum effect/soft_punishment_punished_rollouts \
    optimizer/learning_rate rollout/generated_rollouts rollout/groups train/rollouts";

/// How a short run on the embedded benchmark is made, beside its arm.
#[derive(Clone, Copy)]
struct Short {
    micro_batch_rollouts: u64,
    mini_batch_rollouts: u64,
    epochs_per_step: u64,
    start: &'static str,
}

const EIGHT_UPDATES: Short = Short {
    micro_batch_rollouts: 32,
    mini_batch_rollouts: 32,
    epochs_per_step: 2,
    start: "first-step",
};

/// Two rollout steps of 128 short responses, many of them cut, at a rate that moves ratios past
/// the clip bounds. What was found, the metrics, standard error, and the report.
fn train(parent: &str, dapo: &str, short: Short) -> (Effects, Vec<StepMetrics>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let file = folder.path().join("arm.toml");
    let Short { micro_batch_rollouts, mini_batch_rollouts, epochs_per_step, start } = short;
    let text = format!(
        "name = \"arm\"\nextends = \"{}\"\n\
         [execution]\nseed = 4\nthreads = 1\nmicro_batch_rollouts = {micro_batch_rollouts}\n\
         [rollout]\nprompts_per_round = 16\nmax_response_tokens = 48\n\
         [training]\nrollout_steps = 2\nprompts_per_step = 16\n\
         mini_batch_rollouts = {mini_batch_rollouts}\nepochs_per_step = {epochs_per_step}\n\
         [optimizer]\nlearning_rate = 5e-4\n\
         warm_up = {{ rollout_steps = 1, start = \"{start}\" }}\n\
         [evaluation]\nevery_steps = 0\n\
         samples = {{ dev = 1, mini-aime = 1, mini-aime-plus = 1 }}\n{dapo}\n",
        experiments.join(parent).display()
    );
    files::write_atomic(&file, text.as_bytes()).unwrap();
    let out = folder.path().join("run");
    let output = Command::cargo_bin("dapo")
        .unwrap()
        .arg("train")
        .args([&file, Path::new("--out"), &out])
        .output()
        .unwrap();
    let talk = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{talk}");
    let run = RunFolder::at(&out);
    let metrics = run.metrics().unwrap();
    let page = files::read_text(&run.path("report.md")).unwrap();
    (effect_checks::check(&run.experiment().unwrap(), &metrics), metrics, talk, page)
}

fn verdict(effects: &Effects, technique: &str) -> EffectVerdict {
    effects.findings.iter().find(|finding| finding.technique == technique).unwrap().verdict
}

#[test]
fn under_grpo_no_technique_acts_and_all_that_the_checks_read_is_recorded() {
    let (effects, metrics, talk, _) = train("base.toml", "", EIGHT_UPDATES);
    assert!(effects.findings.iter().all(|f| f.verdict == EffectVerdict::Off), "{effects:?}");
    assert_eq!(effects.warnings(), Vec::<String>::new());
    for step in &metrics {
        for name in METRICS.split_whitespace() {
            assert!(step.metrics.contains_key(name), "{name}");
        }
        assert!(step.metrics.values().all(|value| value.is_finite()));
        // Exact, not nearly: nothing was let through, no weight moved beyond rounding.
        assert_eq!(step.metrics["effect/clip_higher_let_through_tokens"], 0.0);
        assert!(step.metrics["effect/token_level_loss_moved_share_max"] < 1e-12);
    }
    let clipped: f64 = metrics.iter().map(|s| s.metrics["loss/clip_fraction_high"]).sum();
    assert!(clipped > 0.0, "the ratio has to pass the bounds for the comparison to mean something");
    assert!(talk.contains("what each technique did in 2 rollout steps"), "{talk}");
    assert!(!talk.contains("is off and acted"), "{talk}");
}

#[test]
fn each_technique_acts_when_it_alone_is_switched_on() {
    let soft = "[dapo.overlong.punishment]\nkind = \"soft\"\ncache_tokens = 16\nfactor = 1.0\n\
                beyond = \"clamped\"";
    for (technique, arm, change) in [
        ("Clip-Higher", "arms/clip-higher.toml", ""),
        ("Dynamic Sampling", "arms/dynamic-sampling.toml", ""),
        ("Token-level loss", "arms/token-level-loss.toml", ""),
        ("Overlong Filtering", "arms/overlong-filtering.toml", ""),
        ("Soft Overlong Punishment", "arms/soft-overlong-punishment.toml", soft),
    ] {
        let (effects, _, talk, _) = train(arm, change, EIGHT_UPDATES);
        for finding in &effects.findings {
            let expected = if finding.technique == technique {
                EffectVerdict::Acted
            } else {
                EffectVerdict::Off
            };
            assert_eq!(finding.verdict, expected, "{arm}: {finding:?}");
        }
        assert!(!talk.contains("did nothing:"), "{arm}: {talk}");
    }
}

#[test]
fn techniques_that_cannot_act_are_loud_in_terminal_and_report() {
    // One update a step: every ratio is 1. One response a micro-batch: the token mean is the
    // response mean. A factor of 0: a penalty of nothing.
    let change = "[dapo]\naggregation = \"token-mean\"\ntoken_mean_unit = \"micro-batch\"\n\
                  clip = { low = 0.2, high = 0.28 }\n\
                  [dapo.overlong.punishment]\nkind = \"soft\"\ncache_tokens = 16\nfactor = 0.0\n\
                  beyond = \"clamped\"";
    let short = Short {
        micro_batch_rollouts: 1,
        mini_batch_rollouts: 128,
        epochs_per_step: 1,
        start: "zero",
    };
    let (effects, _, talk, page) = train("base.toml", change, short);
    for technique in ["Clip-Higher", "Token-level loss", "Soft Overlong Punishment"] {
        assert_eq!(
            verdict(&effects, technique),
            EffectVerdict::EnabledButDidNothing,
            "{effects:?}"
        );
        let warning = format!("warning: {technique} is on and did nothing: ");
        assert!(talk.contains(&warning), "{talk}");
        assert!(page.contains(&warning), "{page}");
    }
    for name in ["micro-batch-token-mean", "learning-rate-zero"] {
        assert!(talk.contains(&format!("warning: {name}: ")), "{talk}");
    }
    assert!(!talk.contains('\u{1b}'), "no colour where no terminal is");
}
