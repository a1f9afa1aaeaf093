//! Real runs, one arm a technique: what the run shows of each technique follows its switch.

use crate::binary::{line_in, succeeded};
use crate::repository::{self, few_problems};
use dapo::base::files;
use dapo::records::{RunFolder, StepMetrics};
use dapo::study::{Effects, effect_checks, effect_checks::EffectVerdict};

/// The metrics that the checks read; every rollout step records them.
const METRICS: &str = include_str!("effects/metrics.txt");

/// A short run of an arm with this `[dapo]` and these values set. What was found, the metrics, standard
/// error, and the report.
fn train(parent: &str, dapo: &str, set: &str) -> (Effects, Vec<StepMetrics>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let parent = repository::root().join("experiments").join(parent).display().to_string();
    let text = few_problems() + &include_str!("effects/arm.toml").replace("PARENT", &parent) + dapo;
    files::write_atomic(&folder.path().join("arm.toml"), text.as_bytes()).unwrap();
    let (_, talk) = succeeded(line_in(folder.path(), &format!("train arm.toml --out run {set}")));
    let run = RunFolder::at(folder.path().join("run"));
    let metrics = run.metrics().unwrap();
    let page = files::read_text(&run.path("report.md")).unwrap();
    (effect_checks::check(&run.experiment().unwrap(), &metrics), metrics, talk, page)
}

#[test]
fn under_grpo_no_technique_acts_and_all_that_the_checks_read_is_recorded() {
    let (effects, metrics, talk, _) = train("base.toml", "", "");
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
    for (technique, name, change) in [
        ("Clip-Higher", "clip-higher", ""),
        ("Dynamic Sampling", "dynamic-sampling", ""),
        ("Token-level loss", "token-level-loss", ""),
        ("Overlong Filtering", "overlong-filtering", ""),
        ("Soft Overlong Punishment", "soft-overlong-punishment", soft),
    ] {
        let (effects, _, talk, _) = train(&format!("arms/{name}.toml"), change, "");
        for finding in &effects.findings {
            let is_own = finding.technique == technique;
            let expected = if is_own { EffectVerdict::Acted } else { EffectVerdict::Off };
            assert_eq!(finding.verdict, expected, "{name}: {finding:?}");
        }
        assert!(!talk.contains("did nothing:"), "{name}: {talk}");
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
    let set = "--set execution.micro_batch_rollouts=1 --set training.mini_batch_rollouts=128 \
               --set training.epochs_per_step=1 --set optimizer.warm_up.start=zero";
    let (effects, _, talk, page) = train("base.toml", change, set);
    for technique in ["Clip-Higher", "Token-level loss", "Soft Overlong Punishment"] {
        let finding = effects.findings.iter().find(|finding| finding.technique == technique);
        assert_eq!(finding.unwrap().verdict, EffectVerdict::EnabledButDidNothing, "{effects:?}");
        let warning = format!("warning: {technique} is on and did nothing: ");
        assert!(talk.contains(&warning) && page.contains(&warning), "{talk}{page}");
    }
    for name in ["micro-batch-token-mean", "learning-rate-zero"] {
        assert!(talk.contains(&format!("warning: {name}: ")), "{talk}");
    }
    assert!(!talk.contains('\u{1b}'), "no colour where no terminal is");
}
