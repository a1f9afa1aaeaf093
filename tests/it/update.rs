//! Whole updates against PyTorch (golden/update, see generate.py there): forward, loss,
//! backward, clipping and AdamW, for GRPO and DAPO settings; and the laws of an update.

use crate::golden_data::{self, AdamWSettings};
use dapo::algorithm::{
    Advantage, Aggregation, Beyond, Clip, Dapo, DualClip, DynamicSampling, Finish, Group, Kl,
    KlEstimator, LogRatioClamp, Overlong, Problem, Prompt, Punishment, Rollout, Row, ScoredRollout,
    Std, StepTotals, TokenMeanUnit, overlong, step,
};
use dapo::base::{Purpose, rng::stream};
use dapo::policy::batch::Cut;
use dapo::policy::{Policy, checkpoint};
use dapo::training::update::{self, Settings};
use dapo::training::{MiniBatch, TrainingError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use tch::Tensor;

#[derive(Deserialize)]
struct Case {
    model: String,
    settings: CaseSettings,
    groups: Vec<CaseGroup>,
    updates: Vec<CaseUpdate>,
}

#[derive(Deserialize)]
struct CaseSettings {
    clip_low: f64,
    clip_high: f64,
    aggregation: Aggregation,
    token_mean_unit: TokenMeanUnit,
    overlong_filter: bool,
    overlong_punishment: bool,
    kl_coefficient: f64,
    temperature: f64,
    advantage_std: Std,
    advantage_epsilon: f64,
    max_response_tokens: u64,
    cache_tokens: u64,
    optimizer: AdamWSettings,
}

#[derive(Deserialize)]
struct CaseGroup {
    prompt_ids: Vec<u32>,
    rollouts: Vec<CaseRollout>,
}

#[derive(Deserialize)]
struct CaseRollout {
    response_ids: Vec<u32>,
    truncated: bool,
    is_correct: bool,
    correctness_reward: f64,
    reward: f64,
    response_mask: Vec<u8>,
    old_log_probs: Vec<f64>,
    ref_log_probs: Option<Vec<f64>>,
    advantage: f64,
}

#[derive(Deserialize)]
struct CaseUpdate {
    groups: Vec<usize>,
    loss: f64,
    clipped_low_tokens: u64,
    clipped_high_tokens: u64,
    gradient_norm: f64,
}

impl Case {
    fn dapo(&self) -> Dapo {
        let s = &self.settings;
        Dapo {
            clip: Clip { low: s.clip_low, high: s.clip_high },
            aggregation: s.aggregation,
            token_mean_unit: s.token_mean_unit,
            advantage: Advantage { std: s.advantage_std, epsilon: s.advantage_epsilon },
            dynamic_sampling: DynamicSampling::None {},
            overlong: Overlong {
                filter: s.overlong_filter,
                punishment: if s.overlong_punishment {
                    Punishment::Soft {
                        cache_tokens: s.cache_tokens,
                        factor: 1.0,
                        beyond: Beyond::Clamped,
                    }
                } else {
                    Punishment::None {}
                },
            },
            dual_clip: DualClip::None {},
            log_ratio_clamp: LogRatioClamp::None {},
            kl: match s.kl_coefficient {
                0.0 => Kl::None {},
                coefficient => Kl::Penalty { estimator: KlEstimator::K3, coefficient },
            },
            method: None,
        }
    }

    /// The rows as the trainer makes them: rewards shaped and advantages computed here.
    fn rows(&self) -> Vec<Row> {
        let dapo = self.dapo();
        let groups: Vec<Group<ScoredRollout>> = self
            .groups
            .iter()
            .map(|group| {
                let mut scored = scored(group);
                overlong::shape(&mut scored, self.settings.max_response_tokens, &dapo.overlong);
                scored
            })
            .collect();
        step::rows(&groups.iter().collect::<Vec<_>>(), &dapo).1
    }

    fn expected(&self) -> Vec<&CaseRollout> {
        self.groups.iter().flat_map(|group| &group.rollouts).collect()
    }

    fn policy(&self, case: &Path) -> Policy {
        Policy::new(
            checkpoint::load_model(&case.join(&self.model)).unwrap(),
            &self.settings.optimizer.optimizer(),
        )
    }

    fn members(&self, rows: &[Row], update: &CaseUpdate) -> Vec<usize> {
        (0..rows.len()).filter(|&row| update.groups.contains(&rows[row].group)).collect()
    }
}

fn scored(group: &CaseGroup) -> Group<ScoredRollout> {
    let problem = Problem { id: String::new(), question: String::new(), answer: String::new() };
    let rollouts = group.rollouts.iter().map(|rollout| ScoredRollout {
        rollout: Rollout::new(
            rollout.response_ids.clone(),
            rollout.old_log_probs.clone(),
            if rollout.truncated { Finish::Length } else { Finish::Stop },
            String::new(),
        ),
        is_correct: rollout.is_correct,
        prediction: None,
        correctness_reward: rollout.correctness_reward,
        overlong_penalty: 0.0,
    });
    let prompt = Prompt { problem, tokens: group.prompt_ids.clone() };
    Group { prompt, attempt: 0, rollouts: rollouts.collect() }
}

type Values = BTreeMap<String, (Vec<i64>, Vec<f32>)>;

struct Made {
    loss: f64,
    norm: f64,
    clipped: (u64, u64),
    after: Values,
}

/// Each update of a case from its policy on.
fn make(
    policy: &mut Policy,
    case: &Case,
    dapo: &Dapo,
    rows: &[Row],
    micro: usize,
) -> Result<Vec<Made>, TrainingError> {
    let old: Vec<Vec<f64>> = case.expected().iter().map(|r| r.old_log_probs.clone()).collect();
    let reference: Option<Vec<Vec<f64>>> =
        case.expected().iter().map(|r| r.ref_log_probs.clone()).collect();
    let cut = Cut { micro_batch_rollouts: micro, pass_tokens: 1024 };
    let settings = Settings { dapo, temperature: case.settings.temperature, cut };
    let totals = StepTotals {
        tokens: rows.iter().map(Row::loss_tokens).sum(),
        mini_batches: case.updates.len() as u64,
        max_response_tokens: 0,
    };
    let make = |update: &CaseUpdate| {
        let batch = MiniBatch {
            rows,
            members: &case.members(rows, update),
            old_log_probs: &old,
            ref_log_probs: reference.as_deref(),
            sampler_log_probs: None,
            choice: &stream(0, Purpose::TokenChoice, &[]),
            totals,
        };
        let rate = case.settings.optimizer.learning_rate;
        let made = update::update(policy, &batch, &settings, rate)?;
        let clipped = (made.sums.clipped_low, made.sums.clipped_high);
        let after = checkpoint::values(policy.model());
        Ok(Made { loss: made.sums.loss, norm: made.gradient_norm, clipped, after })
    };
    case.updates.iter().map(make).collect()
}

fn made(case: &Case, folder: &Path, dapo: &Dapo, rows: &[Row], micro: usize) -> Vec<Made> {
    make(&mut case.policy(folder), case, dapo, rows, micro).unwrap()
}

fn relative(ours: f64, theirs: f64) -> f64 {
    (ours - theirs).abs() / theirs.abs().max(1e-12)
}

#[test]
fn rewards_advantages_and_masks_are_those_of_the_reference() {
    for folder in golden_data::cases("update") {
        let case: Case = golden_data::read(&folder.join("case.json"));
        for (row, expected) in case.rows().iter().zip(case.expected()) {
            assert!((row.advantage - expected.advantage).abs() < 1e-9, "{}", folder.display());
            let masked = expected.response_mask.iter().all(|&bit| bit == 0);
            assert_eq!(row.in_loss, !masked, "{}", folder.display());
            assert!(expected.reward <= 1.0);
        }
    }
}

#[test]
fn two_updates_agree_with_pytorch_within_1e_6_of_the_parameters() {
    for folder in golden_data::cases("update") {
        let case: Case = golden_data::read(&folder.join("case.json"));
        let made = made(&case, &folder, &case.dapo(), &case.rows(), 3);
        let start = checkpoint::values(case.policy(&folder).model());
        for (number, (update, made)) in case.updates.iter().zip(&made).enumerate() {
            let name = format!("{} update {}", folder.display(), number + 1);
            assert!(relative(made.loss, update.loss) < 1e-4, "{name}: loss");
            assert!(relative(made.norm, update.gradient_norm) < 1e-5, "{name}: norm");
            let clipped = (update.clipped_low_tokens, update.clipped_high_tokens);
            assert_eq!(made.clipped, clipped, "{name}: clipped tokens");
            let path = folder.join(format!("after-{}.safetensors", number + 1));
            for (tensor, theirs) in checkpoint::read_tensors(&path).unwrap() {
                let flat = |shape_and_values: &(Vec<i64>, Vec<f32>)| {
                    Tensor::from_slice(&shape_and_values.1).to_kind(tch::Kind::Double)
                };
                let theirs = theirs.flatten(0, -1).to_kind(tch::Kind::Double);
                let ours = flat(&made.after[&tensor]);
                let length = |tensor: &Tensor| tensor.norm().double_value(&[]);
                let distance = length(&(&ours - &theirs));
                assert!(distance <= 1e-6 * length(&theirs), "{name}: {tensor} {distance}");
                // The change itself, which is a thousandth of the parameters.
                let change = length(&(theirs - flat(&start[&tensor])));
                assert!(distance <= 2e-3 * change, "{name}: change of {tensor}");
            }
        }
    }
}

#[test]
fn any_split_into_micro_batches_gives_the_same_update_to_rounding() {
    for folder in golden_data::cases("update") {
        let case: Case = golden_data::read(&folder.join("case.json"));
        let whole = made(&case, &folder, &case.dapo(), &case.rows(), 100);
        for micro in [1, 2, 5] {
            let split = made(&case, &folder, &case.dapo(), &case.rows(), micro);
            for (number, (a, b)) in whole.iter().zip(&split).enumerate() {
                assert!(relative(a.norm, b.norm) < 1e-5, "{} {number}", folder.display());
            }
        }
    }
}

#[test]
fn the_micro_batch_unit_alone_depends_on_the_split() {
    let folder = golden_data::folder("update/dapo");
    let case: Case = golden_data::read(&folder.join("case.json"));
    let dapo = Dapo { token_mean_unit: TokenMeanUnit::MicroBatch, ..case.dapo() };
    let norm = |micro| made(&case, &folder, &dapo, &case.rows(), micro)[0].norm;
    assert!(relative(norm(1), norm(100)) > 1e-3);
}

#[test]
fn switching_a_technique_off_changes_the_update() {
    let folder = golden_data::folder("update/dapo");
    let case: Case = golden_data::read(&folder.join("case.json"));
    let norm = |dapo: &Dapo| made(&case, &folder, dapo, &case.rows(), 8)[0].norm;
    let full = norm(&case.dapo());
    let off = [
        Dapo { clip: Clip { low: 0.2, high: 0.2 }, ..case.dapo() },
        Dapo { aggregation: Aggregation::ResponseMean, ..case.dapo() },
    ];
    for dapo in off {
        assert!(relative(norm(&dapo), full) > 1e-3, "{dapo:?}");
    }
    let filtered = golden_data::folder("update/dapo-overlong-filter");
    let case: Case = golden_data::read(&filtered.join("case.json"));
    let rows = case.rows();
    let unfiltered: Vec<Row> =
        rows.iter().map(|row| Row { in_loss: true, ..row.clone() }).collect();
    let norm = |rows: &[Row]| made(&case, &filtered, &case.dapo(), rows, 8)[0].norm;
    assert!(relative(norm(&unfiltered), norm(&rows)) > 1e-3);
}

#[test]
fn a_divergent_update_is_an_error_and_leaves_the_weights() {
    let folder = golden_data::folder("update/dapo");
    let case: Case = golden_data::read(&folder.join("case.json"));
    let rows: Vec<Row> =
        case.rows().into_iter().map(|row| Row { advantage: f64::NAN, ..row }).collect();
    let mut policy = case.policy(&folder);
    let before = checkpoint::values(policy.model());
    assert!(make(&mut policy, &case, &case.dapo(), &rows, 4).is_err());
    assert_eq!(before, checkpoint::values(policy.model()));
}
