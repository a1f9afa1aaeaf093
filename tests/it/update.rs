//! Whole updates against PyTorch (golden/update, see generate.py there): forward, loss,
//! backward, clipping and AdamW, for GRPO and DAPO settings; and the laws of an update.

use crate::golden_data::{self, AdamWSettings};
use crate::repository;
use dapo::algorithm::{
    Advantage, Aggregation, Beyond, Clip, Dapo, Finish, Group, Kl, KlEstimator, Overlong, Problem,
    Prompt, Punishment, Rollout, Row, ScoredRollout, Std, StepTotals, TokenMeanUnit, overlong,
    step,
};
use dapo::base::{Purpose, rng::stream};
use dapo::policy::{Policy, batch::Cut, checkpoint};
use dapo::training::{MiniBatch, TrainingError, update, update::Settings, update::Updated};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tch::{Kind, Tensor};

#[derive(Deserialize)]
struct Case {
    #[serde(skip)]
    folder: PathBuf,
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
    fn of(folder: PathBuf) -> Self {
        Self { folder: folder.clone(), ..golden_data::read(&folder.join("case.json")) }
    }

    fn all() -> impl Iterator<Item = Self> {
        golden_data::cases("update").into_iter().map(Self::of)
    }

    fn dapo(&self) -> Dapo {
        let s = &self.settings;
        let (cache_tokens, coefficient) = (s.cache_tokens, s.kl_coefficient);
        let soft = Punishment::Soft { cache_tokens, factor: 1.0, beyond: Beyond::Clamped };
        let penalty = Kl::Penalty { estimator: KlEstimator::K3, coefficient };
        Dapo {
            clip: Clip { low: s.clip_low, high: s.clip_high },
            aggregation: s.aggregation,
            token_mean_unit: s.token_mean_unit,
            advantage: Advantage { std: s.advantage_std, epsilon: s.advantage_epsilon },
            overlong: Overlong {
                filter: s.overlong_filter,
                punishment: if s.overlong_punishment { soft } else { Punishment::None {} },
            },
            kl: if coefficient == 0.0 { Kl::None {} } else { penalty },
            ..repository::experiment("base.toml", "").dapo
        }
    }

    /// The rows as the trainer makes them: rewards shaped and advantages computed here.
    fn rows(&self) -> Vec<Row> {
        let dapo = self.dapo();
        let mut groups: Vec<Group<ScoredRollout>> = self.groups.iter().map(scored).collect();
        for group in &mut groups {
            overlong::shape(group, self.settings.max_response_tokens, &dapo.overlong);
        }
        step::rows(&groups.iter().collect::<Vec<_>>(), &dapo).1
    }

    fn expected(&self) -> Vec<&CaseRollout> {
        self.groups.iter().flat_map(|group| &group.rollouts).collect()
    }

    fn policy(&self) -> Policy {
        let model = checkpoint::load_model(&self.folder.join(&self.model)).unwrap();
        Policy::new(model, &self.settings.optimizer.optimizer())
    }

    /// Each update from a policy on, and the weights after it.
    fn update(
        &self,
        policy: &mut Policy,
        dapo: &Dapo,
        rows: &[Row],
        micro_batch_rollouts: usize,
    ) -> Result<Vec<(Updated, Values)>, TrainingError> {
        let old: Vec<Vec<f64>> = self.expected().iter().map(|r| r.old_log_probs.clone()).collect();
        let reference: Option<Vec<Vec<f64>>> =
            self.expected().iter().map(|r| r.ref_log_probs.clone()).collect();
        let cut = Cut { micro_batch_rollouts, pass_tokens: 1024 };
        let settings = Settings { dapo, temperature: self.settings.temperature, cut };
        let totals = StepTotals {
            tokens: rows.iter().map(Row::loss_tokens).sum(),
            mini_batches: self.updates.len() as u64,
            max_response_tokens: 0,
        };
        let one = |update: &CaseUpdate| {
            let is_member = |row: &usize| update.groups.contains(&rows[*row].group);
            let batch = MiniBatch {
                rows,
                members: &(0..rows.len()).filter(is_member).collect::<Vec<_>>(),
                old_log_probs: &old,
                ref_log_probs: reference.as_deref(),
                sampler_log_probs: None,
                choice: &stream(0, Purpose::TokenChoice, &[]),
                totals,
            };
            let rate = self.settings.optimizer.learning_rate;
            let updated = update::update(policy, &batch, &settings, rate)?;
            Ok((updated, checkpoint::values(policy.model())))
        };
        self.updates.iter().map(one).collect()
    }

    /// The norm of each update's gradient.
    fn norms(&self, dapo: &Dapo, rows: &[Row], micro_batch_rollouts: usize) -> Vec<f64> {
        let updates = self.update(&mut self.policy(), dapo, rows, micro_batch_rollouts).unwrap();
        updates.iter().map(|(updated, _)| updated.gradient_norm).collect()
    }
}

type Values = BTreeMap<String, (Vec<i64>, Vec<f32>)>;

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

fn relative(ours: f64, theirs: f64) -> f64 {
    (ours - theirs).abs() / theirs.abs().max(1e-12)
}

#[test]
fn rewards_advantages_and_masks_are_those_of_the_reference() {
    for case in Case::all() {
        for (row, expected) in case.rows().iter().zip(case.expected()) {
            let is_masked = expected.response_mask.iter().all(|&bit| bit == 0);
            let held =
                (row.advantage - expected.advantage).abs() < 1e-9 && row.in_loss != is_masked;
            assert!(held && expected.reward <= 1.0, "{}: {row:?}", case.folder.display());
        }
    }
}

#[test]
fn two_updates_agree_with_pytorch_within_1e_6_of_the_parameters() {
    let flat =
        |(_, values): &(Vec<i64>, Vec<f32>)| Tensor::from_slice(values).to_kind(Kind::Double);
    let length = |tensor: &Tensor| tensor.norm().double_value(&[]);
    for case in Case::all() {
        let updates = case.update(&mut case.policy(), &case.dapo(), &case.rows(), 3).unwrap();
        let start = checkpoint::values(case.policy().model());
        for (number, (expected, (updated, after))) in (1..).zip(case.updates.iter().zip(&updates)) {
            let name = format!("{} update {number}", case.folder.display());
            assert!(relative(updated.sums.loss, expected.loss) < 1e-4, "{name}: loss");
            assert!(relative(updated.gradient_norm, expected.gradient_norm) < 1e-5, "{name}: norm");
            let clipped = (updated.sums.clipped_low, updated.sums.clipped_high);
            let theirs = (expected.clipped_low_tokens, expected.clipped_high_tokens);
            assert_eq!(clipped, theirs, "{name}: clipped tokens");
            let path = case.folder.join(format!("after-{number}.safetensors"));
            for (tensor, theirs) in checkpoint::read_tensors(&path).unwrap() {
                let theirs = theirs.flatten(0, -1).to_kind(Kind::Double);
                let distance = length(&(flat(&after[&tensor]) - &theirs));
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
    for case in Case::all() {
        let norms = |micro| case.norms(&case.dapo(), &case.rows(), micro);
        let whole = norms(100);
        for micro in [1, 2, 5] {
            for (whole, split) in whole.iter().zip(norms(micro)) {
                assert!(relative(*whole, split) < 1e-5, "{} {micro}", case.folder.display());
            }
        }
    }
}

#[test]
fn the_micro_batch_unit_alone_depends_on_the_split() {
    let case = Case::of(golden_data::folder("update/dapo"));
    let dapo = Dapo { token_mean_unit: TokenMeanUnit::MicroBatch, ..case.dapo() };
    let norm = |micro| case.norms(&dapo, &case.rows(), micro)[0];
    assert!(relative(norm(1), norm(100)) > 1e-3);
}

#[test]
fn switching_a_technique_off_changes_the_update() {
    let case = Case::of(golden_data::folder("update/dapo"));
    let norm = |dapo: &Dapo| case.norms(dapo, &case.rows(), 8)[0];
    let full = norm(&case.dapo());
    for dapo in [
        Dapo { clip: Clip { low: 0.2, high: 0.2 }, ..case.dapo() },
        Dapo { aggregation: Aggregation::ResponseMean, ..case.dapo() },
    ] {
        assert!(relative(norm(&dapo), full) > 1e-3, "{dapo:?}");
    }
    let case = Case::of(golden_data::folder("update/dapo-overlong-filter"));
    let unfiltered = case.rows().into_iter().map(|row| Row { in_loss: true, ..row });
    let unfiltered: Vec<Row> = unfiltered.collect();
    let norm = |rows: &[Row]| case.norms(&case.dapo(), rows, 8)[0];
    assert!(relative(norm(&unfiltered), norm(&case.rows())) > 1e-3);
}

#[test]
fn a_divergent_update_is_an_error_and_leaves_the_weights() {
    let case = Case::of(golden_data::folder("update/dapo"));
    let rows = case.rows().into_iter().map(|row| Row { advantage: f64::NAN, ..row });
    let mut policy = case.policy();
    let before = checkpoint::values(policy.model());
    assert!(case.update(&mut policy, &case.dapo(), &rows.collect::<Vec<_>>(), 4).is_err());
    assert_eq!(before, checkpoint::values(policy.model()));
}
