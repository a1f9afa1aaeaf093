//! Methods. [`Rules`] is what a method decides, with GRPO and the paper's techniques, as the `[dapo]`
//! table sets them, as its default: a method states what differs, in a file of its own, and stands in the
//! list below. Trainer and verifier ask the same rules.

pub mod cispo;
pub mod clip_cov;
pub mod dppo_tv;
pub mod dr_grpo;
pub mod gmpo;
pub mod gspo;
pub mod kl_cov;
pub mod lite_ppo;
pub mod max_rl;
pub mod mis;
pub mod opo;
pub mod reinforce_plus_plus_baseline;
pub mod rloo;
pub mod sapo;
pub mod tis;
pub mod top_entropy;
pub mod vespo;

use crate::algorithm::aggregation::{self, ResponseRow};
use crate::algorithm::{
    Advantage, Aggregation, Clip, DualClip, DynamicSampling, FilterMetric, Group, Kl,
    LogRatioClamp, Overlong, Rewarded, ScoredRollout, Std, StepTotals, Surrogate, TokenMeanUnit,
    Tokens, advantage, clip, dynamic_sampling, overlong,
};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use tch::Tensor;

/// The `[dapo]` table: the paper's techniques and every choice that it leaves open. Each type stands in the
/// file of its technique. Empty variants are written `None {}`: serde lets a unit variant swallow stray keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dapo {
    /// Clip-Higher, §3.1, Eq. 10.
    pub clip: Clip,
    /// Token-level loss, §3.3, Eq. 12.
    pub aggregation: Aggregation,
    pub token_mean_unit: TokenMeanUnit,
    /// Group-relative advantage, Eq. 9.
    pub advantage: Advantage,
    /// Dynamic Sampling, §3.2, Eq. 11.
    pub dynamic_sampling: DynamicSampling,
    /// Overlong reward shaping, §3.4.
    pub overlong: Overlong,
    /// A bound on the loss of negative advantages; absent from the paper.
    pub dual_clip: DualClip,
    /// A clamp on the log-ratio; absent from the paper.
    pub log_ratio_clamp: LogRatioClamp,
    /// KL penalty to the frozen base policy (GRPO, Eq. 5); DAPO has none (§2.3).
    pub kl: Kl,
    /// Another method than GRPO with these techniques. Absent unless asked for: other arms keep their identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
}

impl Dapo {
    /// The rules of the arm: its method's, or GRPO's.
    pub fn rules(&self) -> &dyn Rules {
        self.method.as_ref().map_or(&Grpo, Method::rules)
    }

    /// Keys and tables that the arm may state and its training never reads.
    pub fn unread(&self) -> Vec<&'static str> {
        let mut unread = self.rules().unread().to_vec();
        let reads_std = unread.iter().all(|key| !key.starts_with("dapo.advantage"));
        if reads_std && self.advantage.std == Std::None {
            unread.push("dapo.advantage.epsilon");
        }
        if self.aggregation != Aggregation::TokenMean {
            unread.push("dapo.token_mean_unit");
        }
        unread
    }

    pub fn method_name(&self) -> &'static str {
        match (&self.method, self.aggregation) {
            (Some(Method::Gspo(_)), Aggregation::ResponseSum) => "LUSPO",
            _ => self.rules().about().name,
        }
    }

    pub fn counted(&self, metric: &str) -> Option<&'static str> {
        let [low, high] = self.rules().clipped()?;
        match metric {
            "loss/clip_fraction_low" => Some(low),
            "loss/clip_fraction_high" | "loss/up_clipped_probability_mean" => Some(high),
            _ => None,
        }
    }
}

/// The list of methods: `kind` and `file::Type`. The type holds the method's keys under `[dapo.method]` and
/// implements [`Rules`]; the file states `KEYS`, the facts about them, and `MEASURES`, the names of what
/// [`Rules::measures`] gives. `experiments/methods/` has an arm of each kind, which extends GRPO's.
macro_rules! methods {
    ($($kind:literal $file:ident::$name:ident,)*) => {
        /// A method with its keys, by `kind`.
        #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        pub enum Method {
            $(#[expect(missing_docs, reason = "documented in its file")] $name($file::$name),)*
        }

        impl Method {
            pub fn rules(&self) -> &dyn Rules {
                match *self {
                    $(Self::$name(ref method) => method,)*
                }
            }
        }

        pub const KINDS: &[&str] = &[$($kind),*];

        /// Facts about the keys of every method, in the form of `experiment/keys.toml`.
        pub const KEYS: &[&str] = &[$($file::KEYS),*];

        pub const ARMS: &[&str] =
            &[$(include_str!(concat!("../../experiments/methods/", $kind, ".toml"))),*];

        pub const MEASURES: &[&[&str]] = &[$($file::MEASURES),*];
    };
}

methods! {
    "cispo" cispo::Cispo,
    "clip-cov" clip_cov::ClipCov,
    "dppo-tv" dppo_tv::DppoTv,
    "dr-grpo" dr_grpo::DrGrpo,
    "gmpo" gmpo::Gmpo,
    "gspo" gspo::Gspo,
    "kl-cov" kl_cov::KlCov,
    "lite-ppo" lite_ppo::LitePpo,
    "max-rl" max_rl::MaxRl,
    "mis" mis::Mis,
    "opo" opo::Opo,
    "reinforce-plus-plus-baseline" reinforce_plus_plus_baseline::ReinforcePlusPlusBaseline,
    "rloo" rloo::Rloo,
    "sapo" sapo::Sapo,
    "tis" tis::Tis,
    "top-entropy" top_entropy::TopEntropy,
    "vespo" vespo::Vespo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    pub name: &'static str,
    /// Publication, and the code that it was compared with.
    pub source: &'static str,
    /// What differs from GRPO, as a formula or a sentence without a full stop.
    pub differs: &'static str,
}

/// A response of a mini-batch before its update. Lists have one number for each token, in nats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeenResponse<'a> {
    /// log π_θ.
    pub log_probs: &'a [f64],
    /// log π_old.
    pub old_log_probs: &'a [f64],
    /// Entropy of the distribution of π_θ that the token is in.
    pub entropy: &'a [f64],
    /// Â.
    pub advantage: f64,
    /// False when its loss is masked out.
    pub in_loss: bool,
}

pub type Uniform<'a> = &'a mut dyn FnMut() -> f64;

pub type Measures = Vec<(&'static str, Tensor)>;

/// The mean over steps of a metric; `None` when no step recorded it.
pub type Recorded<'a> = &'a dyn Fn(&str) -> Option<f64>;

/// Metric: the mean over responses of |Â − Â of GRPO with the arm's `dapo.advantage`|; recorded of every arm with a method.
pub const ADVANTAGE_DISTANCE: &str = "effect/method_advantage_distance";

/// What a method decides. Every default is GRPO with the techniques of the `[dapo]` table.
pub trait Rules: Debug {
    fn about(&self) -> About {
        About {
            name: "GRPO",
            source: "arXiv 2402.03300; DAPO, arXiv 2503.14476",
            differs: "nothing",
        }
    }

    /// Techniques of the paper, by its names, that the method does itself: what shows of them is no defect.
    fn does_itself(&self) -> &'static [&'static str] {
        &[]
    }

    /// A contradiction between its keys, whose ranges [`KEYS`] states: a sentence that begins with the key's path.
    fn problem(&self) -> Option<String> {
        None
    }

    fn needed_aggregation(&self) -> Option<Aggregation> {
        None
    }

    /// Keys and tables of `[dapo]` that the method never reads, whatever the others say.
    fn unread(&self) -> &'static [&'static str] {
        &[]
    }

    /// Adds to the rewards of a graded group. Correctness is left alone.
    fn shape(&self, group: &mut Group<ScoredRollout>, max_response_tokens: u64, dapo: &Dapo) {
        overlong::shape(group, max_response_tokens, &dapo.overlong);
    }

    /// Whether a group trains under Dynamic Sampling.
    fn is_useful(&self, group: &Group<ScoredRollout>, dapo: &Dapo) -> bool {
        if let DynamicSampling::Resample { metric: FilterMetric::Reward, .. } =
            dapo.dynamic_sampling
        {
            return group.rewards_differ();
        }
        dynamic_sampling::is_useful(group.correct(), group.rollouts.len())
    }

    /// Â of each response of a group, where the other groups of the step do not matter.
    fn group_advantages(&self, group: &[Rewarded], dapo: &Dapo) -> Vec<f64> {
        advantage::advantages(&advantage::rewards(group), &dapo.advantage)
    }

    /// Â of each response, from the rewarded of **all** groups of the step: `[group][i]`.
    fn advantages(&self, groups: &[Vec<Rewarded>], dapo: &Dapo) -> Vec<Vec<f64>> {
        groups.iter().map(|group| self.group_advantages(group, dapo)).collect()
    }

    /// Whether a response has a gradient where all rewards of its group are equal.
    fn equal_rewards_train(&self) -> bool {
        false
    }

    /// Whether [`Rules::marks`] is asked before each update: it costs a forward pass.
    fn looks_ahead(&self) -> bool {
        false
    }

    /// A number for each token, `[response][t]`, from all responses of a mini-batch as the policy
    /// sees them before its update: [`Tokens::marks`]. `uniform` gives numbers in [0, 1).
    fn marks(
        &self,
        _mini_batch: &[SeenResponse],
        _dapo: &Dapo,
        _uniform: Uniform,
    ) -> Vec<Vec<f64>> {
        Vec::new()
    }

    /// Weights of the responses of one mini-batch in the loss, `[batch]`.
    fn row_weights(&self, rows: &[ResponseRow], dapo: &Dapo, step: StepTotals) -> Vec<f64> {
        aggregation::row_weights(rows, dapo.aggregation, dapo.token_mean_unit, step)
    }

    /// log r of each token, or of its response: `[batch, length]`, with the graph to `log_probs`; 0 outside the mask.
    fn log_ratio(&self, tokens: &Tokens, dapo: &Dapo) -> Tensor {
        clip::log_ratio(tokens, &dapo.log_ratio_clamp)
    }

    /// Whether the ratio of the loss is one of the whole response: a mean, which stays nearer to 1 than a token's.
    fn has_response_ratio(&self) -> bool {
        false
    }

    fn clip(&self, dapo: &Dapo) -> Clip {
        dapo.clip
    }

    /// Tokens that count as clipped from below and from above; `None`: as `dapo.clip` says.
    fn clipped(&self) -> Option<[&'static str; 2]> {
        None
    }

    /// How much a token's penalty of the method adds at most to its derivative by log π_θ: exact arithmetic
    /// makes room for it.
    fn penalty_weight(&self) -> f64 {
        0.0
    }

    fn surrogate(&self, tokens: &Tokens, dapo: &Dapo) -> Surrogate {
        clip::surrogate(&self.log_ratio(tokens, dapo), tokens, &self.clip(dapo), &dapo.dual_clip)
    }

    /// What to sum over the tokens of the loss, by name: `effect/NAME` is the mean over tokens.
    fn measures(&self, _tokens: &Tokens, _surrogate: &Surrogate, _dapo: &Dapo) -> Measures {
        Vec::new()
    }

    /// Whether the method did anything in a run that plain GRPO would not have done, and the
    /// numbers that say so, as a sentence without a full stop. `None` when no step recorded them.
    fn effect(&self, recorded: Recorded) -> Option<(bool, String)> {
        let distance = recorded(ADVANTAGE_DISTANCE)?;
        let evidence = format!(
            "advantages lay {distance:.3} from those of GRPO with this dapo.advantage (mean over \
             responses and steps)"
        );
        Some((distance > 0.0, evidence))
    }
}

/// GRPO with the techniques of the `[dapo]` table.
#[derive(Debug)]
pub struct Grpo;

impl Rules for Grpo {}
