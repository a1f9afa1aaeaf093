//! Overlong reward shaping, §3.4: Soft Overlong Punishment (Eq. 13) and Overlong Filtering.

use crate::algorithm::{Group, ScoredRollout};
use serde::{Deserialize, Serialize};

/// Overlong reward shaping, §3.4: two independent techniques.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overlong {
    /// Overlong Filtering: truncated responses leave the loss. Their reward stays in the group's statistics.
    pub filter: bool,
    /// Soft Overlong Punishment, Eq. 13.
    pub punishment: Punishment,
}

/// Eq. 13.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Punishment {
    None {},
    /// A penalty that grows linearly over the last `cache_tokens` before L_max.
    Soft {
        /// L_cache.
        cache_tokens: u64,
        /// Multiplies the penalty; 1 in the paper.
        factor: f64,
        beyond: Beyond,
    },
}

/// The soft punishment of a response longer than L_max.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beyond {
    /// −1 (Eq. 13).
    Clamped,
    /// The line goes on (released code).
    Unclamped,
}

/// Soft Overlong Punishment, DAPO Eq. 13: added to the ±1 reward of Eq. 7.
/// ```text
/// R_length = 0                                 |y| ≤ L_max − L_cache
///          = ((L_max − L_cache) − |y|)/L_cache  L_max − L_cache < |y| ≤ L_max
///          = −1                                L_max < |y|
/// ```
/// times `factor` (1 in the paper). `response_tokens` is |y| with the end-of-sequence token, `max_response_tokens` is
/// L_max. An L_cache of 0 leaves only the first and last cases. Deviation: `beyond = "unclamped"` continues the line
/// below −1 for |y| > L_max, as the released code does (verl/workers/reward_manager/dapo.py:116-125).
pub fn soft_punishment(
    response_tokens: u64,
    max_response_tokens: u64,
    punishment: &Punishment,
) -> f64 {
    let Punishment::Soft { cache_tokens, factor, beyond } = *punishment else { return 0.0 };
    let excess = response_tokens as f64 - (max_response_tokens as f64 - cache_tokens as f64);
    if excess <= 0.0 {
        return 0.0;
    }
    let line = -excess / cache_tokens as f64;
    match beyond {
        Beyond::Clamped => line.max(-1.0) * factor,
        Beyond::Unclamped => line * factor,
    }
}

/// Overlong Filtering, §3.4: whether a response's tokens enter the loss. A filtered response
/// keeps its reward in the group's statistics (the paper is silent; TRL and NeMo-RL do so).
pub fn enters_loss(truncated: bool, filter: bool) -> bool {
    !(truncated && filter)
}

/// Adds Eq. 13 to the rewards of a group, not to their correctness, at which Dynamic Sampling looks.
pub fn shape(group: &mut Group<ScoredRollout>, max_response_tokens: u64, overlong: &Overlong) {
    for scored in &mut group.rollouts {
        let response_tokens = scored.rollout.tokens.len() as u64;
        scored.overlong_penalty =
            soft_punishment(response_tokens, max_response_tokens, &overlong.punishment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Finish, Problem, Prompt, Rollout};
    use proptest::prelude::{prop_assert, prop_assert_eq};
    use proptest::proptest;

    fn soft(cache_tokens: u64, factor: f64, beyond: Beyond) -> Punishment {
        Punishment::Soft { cache_tokens, factor, beyond }
    }

    #[test]
    fn the_papers_setting_gives_the_papers_values() {
        let paper = soft(4096, 1.0, Beyond::Clamped);
        for (tokens, expected) in [
            (0, 0.0),
            (16_384, 0.0),
            (16_385, -0.000_244_140_625),
            (18_432, -0.5),
            (20_480, -1.0),
            (20_481, -1.0),
            (1_000_000, -1.0),
        ] {
            assert_eq!(soft_punishment(tokens, 20_480, &paper), expected, "{tokens} tokens");
        }
    }

    #[test]
    fn the_released_code_goes_on_below_minus_one() {
        let released = soft(4, 1.0, Beyond::Unclamped);
        assert_eq!(soft_punishment(12, 10, &released), -1.5);
        assert_eq!(soft_punishment(12, 10, &soft(4, 0.5, Beyond::Unclamped)), -0.75);
        assert_eq!(soft_punishment(12, 10, &soft(4, 0.5, Beyond::Clamped)), -0.5);
    }

    #[test]
    fn switched_off_the_punishment_is_gone() {
        assert_eq!(soft_punishment(10, 10, &soft(4, 1.0, Beyond::Clamped)), -1.0);
        assert_eq!(soft_punishment(10, 10, &Punishment::None {}), 0.0);
    }

    #[test]
    fn a_cache_longer_than_the_limit_or_empty_is_still_defined() {
        assert_eq!(soft_punishment(0, 4, &soft(8, 1.0, Beyond::Clamped)), -0.5);
        assert_eq!(soft_punishment(4, 4, &soft(0, 1.0, Beyond::Clamped)), 0.0);
        assert_eq!(soft_punishment(5, 4, &soft(0, 1.0, Beyond::Clamped)), -1.0);
    }

    #[test]
    fn only_truncated_responses_are_filtered_and_only_when_asked() {
        assert!(!enters_loss(true, true));
        assert!(enters_loss(true, false));
        assert!(enters_loss(false, true));
    }

    #[test]
    fn shaping_leaves_correctness_alone() {
        let problem = Problem { id: "p".into(), question: "?".into(), answer: "7".into() };
        let scored = |length: usize| {
            let log_probs = vec![0.0; length];
            let rollout =
                Rollout::new(vec![1; length], log_probs, Finish::Stop, "Answer: 7".into());
            ScoredRollout::new(rollout, true, 1.0)
        };
        let mut group = Group {
            prompt: Prompt { problem, tokens: vec![] },
            attempt: 0,
            rollouts: vec![scored(6), scored(9)],
        };
        let on = Overlong { filter: false, punishment: soft(4, 1.0, Beyond::Clamped) };
        shape(&mut group, 10, &on);
        let rewards: Vec<f64> = group.rollouts.iter().map(ScoredRollout::reward).collect();
        assert_eq!(rewards, [1.0, 0.25]);
        assert_eq!(group.correct(), 2);
        shape(&mut group, 10, &Overlong { filter: false, punishment: Punishment::None {} });
        assert_eq!(group.rollouts[1].reward(), 1.0);
    }

    proptest! {
        #[test]
        fn the_penalty_is_continuous_falling_and_within_minus_one_and_zero(
            tokens in 0u64..400, max in 1u64..300, cache in 1u64..200,
        ) {
            let paper = soft(cache, 1.0, Beyond::Clamped);
            let here = soft_punishment(tokens, max, &paper);
            let next = soft_punishment(tokens + 1, max, &paper);
            prop_assert!((-1.0..=0.0).contains(&here));
            prop_assert!(next <= here);
            // Lipschitz with the slope of Eq. 13: no jump anywhere, L_max included.
            prop_assert!(here - next <= 1.0 / cache as f64 + 1e-12);
        }

        #[test]
        fn the_clamp_acts_beyond_the_limit_only(tokens in 0u64..300, max in 1u64..300, cache in 1u64..200) {
            let clamped = soft_punishment(tokens, max, &soft(cache, 1.0, Beyond::Clamped));
            let released = soft_punishment(tokens, max, &soft(cache, 1.0, Beyond::Unclamped));
            prop_assert_eq!(clamped == released, tokens <= max);
        }
    }
}
