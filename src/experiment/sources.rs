//! Every key of an experiment: its meaning, its unit, and where the paper and the released code
//! state its value. `dapo config diff`, `explain` and the comparison of an arm with the paper read
//! this table.
//!
//! Sources: the paper is DAPO, arXiv 2503.14476. "Released" is verl at commit b178a3cd56f5 (paths
//! that begin with `verl/`) and verl-recipe's folder `dapo/` at commit 48ea0a797fa2 (the rest; the
//! 32B script's name alone where the line was not noted).

use crate::algorithm::facts::{Key, is, is_and_says, key, says};
use crate::algorithm::methods;

pub fn all() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().chain(methods::KEYS.iter().copied().flatten())
}

pub fn of(path: &str) -> Option<&'static Key> {
    all().find(|key| key.matches(path))
}

const SCRIPT: &str = "run_dapo_qwen2.5_32b.sh";
const CLIP: &str = "run_dapo_qwen2.5_32b.sh; verl/trainer/ppo/core_algos.py:1195-1223";
const SAMPLING: &str = "run_dapo_qwen2.5_32b.sh:25-31";
const PUNISHMENT: &str = "verl/workers/reward_manager/dapo.py:116-125";
const NO_KL: &str = "run_dapo_qwen2.5_32b.sh:9-12";
const DUAL: &str = "run_dapo_qwen2.5_32b.sh; verl/trainer/ppo/core_algos.py:1229-1235";
const FSDP: &str = "verl/workers/fsdp_workers.py, its defaults";
const CLAMP: &str = "verl/trainer/ppo/core_algos.py:1210-1212";

const KEYS: &[Key] = &[
    key("name", "", "the arm's name in reports; not part of its identity"),
    key("numerics", "", "how numbers are computed: the same bits anywhere, or LibTorch's kernels"),
    key(
        "inputs.model",
        "",
        "folder of the base policy; its digest, not its path, is in a run's key",
    )
    .paper(says("Qwen2.5-32B", "§4.2"))
    .released(says("Qwen2.5-32B", SCRIPT)),
    key("inputs.data.kind", "", "where problems come from: the embedded benchmark or files")
        .paper(says("DAPO-Math-17K", "§3.5"))
        .released(says("dapo-math-17k.parquet: 1,791,700 rows of about 17 k problems", SCRIPT)),
    key("inputs.data.variant", "", "which problems of the embedded benchmark"),
    key("inputs.data.train", "", "file of training problems"),
    key("inputs.data.dev", "", "file of development problems, evaluated during training"),
    key("inputs.data.test", "", "files of final evaluation problems")
        .paper(says("AIME 2024", "§4.1"))
        .released(says("AIME 2024, 32 copies of each problem", "eval/aime-2024.parquet of DAPO")),
    key("execution.seed", "", "the run seed: every random draw derives from it")
        .released(says("data.seed is null: the data order is fixed by accident", SCRIPT)),
    key("execution.threads", "threads", "threads of LibTorch"),
    key("execution.micro_batch_rollouts", "rollouts", "rollouts of one forward and backward pass")
        .released(says("22,528 tokens a GPU, not a number of rollouts", SCRIPT)),
    key(
        "execution.generation_batch_rollouts",
        "rollouts",
        "responses that are generated at the same time",
    ),
    key(
        "execution.memory.recompute_layers",
        "",
        "the backward pass computes each layer again from what went into it",
    )
    .released(says("gradient checkpointing is on", SCRIPT)),
    key(
        "execution.memory.logits_chunk_tokens",
        "tokens",
        "targets whose logits are in memory at the same time; 0: all",
    ),
    key("execution.device", "", "what computes: \"cpu\", \"cuda\" or \"cuda:N\""),
    key("execution.weights", "", "the form in which the policy computes with its weights")
        .released(says("bf16 in the passes, f32 in the optimiser and for sums of gradients", FSDP)),
    key("execution.pass_tokens", "tokens", "tokens of one forward and backward pass")
        .released(says("22,528 a GPU, without padding", SCRIPT)),
    key(
        "checkpoints.every_steps",
        "rollout steps",
        "how often a checkpoint is written; 0: at the end",
    )
    .released(is("5", SCRIPT)),
    key("checkpoints.keep_last", "checkpoints", "how many of the newest are kept"),
    key(
        "checkpoints.keep_every",
        "rollout steps",
        "those of every so many steps are kept; 0: none",
    ),
    key("records.format", "", "form of metrics and ledger; 2: metrics of all rollouts; absent: 1"),
    key("prompt.template", "", "the text around a question").released(says(
        "\"dapo-chat\": the instruction that \"dapo\" is, inside the tokenizer's chat template",
        "README.md of DAPO",
    )),
    key("rollout.prompts_per_round", "prompts", "prompts of one generation round")
        .released(is_and_says("1536", "3 × 512", SAMPLING)),
    key("rollout.group_size", "rollouts", "G: responses for each prompt")
        .paper(is("16", "§4.1"))
        .released(is("16", SCRIPT)),
    key("rollout.max_prompt_tokens", "tokens", "longest prompt; a longer one is an error")
        .released(is_and_says("2048", "longer prompts are cut from the left", SCRIPT)),
    key("rollout.max_response_tokens", "tokens", "L_max: where a response is cut")
        .paper(is("20480", "§4.1"))
        .released(is("20480", SCRIPT)),
    key("rollout.sampling.temperature", "", "divides the logits when sampling for training")
        .released(is("1.0", SCRIPT)),
    key("rollout.sampling.top_p", "", "mass of the tokens that sampling for training keeps")
        .released(is("1.0", SCRIPT)),
    key("rollout.sampling.top_k", "tokens", "tokens that sampling for training keeps; 0: all")
        .released(is_and_says("0", "written −1 there", SCRIPT)),
    key("reward.verifier", "", "the rule that extracts and compares the answer")
        .paper(says("rule-based is_equivalent", "Eq. 7"))
        .released(is("\"answer-line\"", "verl/utils/reward_score/math_dapo.py:165-190")),
    key("training.rollout_steps", "rollout steps", "M: rollout steps of the run")
        .paper(says("330: Fig. 1 ends at 5,280 updates, 16 a step", "Fig. 1"))
        .released(says("until the data ends: one epoch of generation batches", SCRIPT)),
    key("training.prompts_per_step", "prompts", "N: groups that one rollout step trains on")
        .paper(is("512", "§4.1"))
        .released(is("512", SCRIPT)),
    key("training.mini_batch_rollouts", "rollouts", "rollouts of one update")
        .paper(is_and_says("512", "16 updates a rollout step", "§4.1"))
        .released(is_and_says(
            "512",
            "written as 32 prompts there",
            "run_dapo_qwen2.5_32b.sh; verl/workers/fsdp_workers.py:241",
        )),
    key("training.epochs_per_step", "passes", "μ: passes over a rollout step's batch")
        .paper(says("a loop of Algorithm 1 without a value", "Algorithm 1"))
        .released(is_and_says("1", "the default of ppo_epochs", SCRIPT)),
    key("training.mini_batch_order", "", "order of the rollouts before they are cut into updates")
        .released(is_and_says(
            "\"length-bands\"",
            "by balancing ranks",
            "verl/trainer/ppo/ray_trainer.py:1149-1156",
        )),
    key("optimizer.learning_rate", "", "AdamW's rate after warm-up")
        .paper(is("1e-6", "§4.1"))
        .released(is("1e-6", SCRIPT)),
    key("optimizer.beta1", "", "decay of AdamW's first moment").released(is_and_says(
        "0.9",
        "the default",
        SCRIPT,
    )),
    key("optimizer.beta2", "", "decay of AdamW's second moment").released(is_and_says(
        "0.999",
        "the default",
        SCRIPT,
    )),
    key("optimizer.epsilon", "", "added to the root of AdamW's second moment")
        .released(is_and_says("1e-8", "the default", SCRIPT)),
    key("optimizer.weight_decay", "", "decoupled weight decay, multiplied by the rate")
        .released(is("0.1", SCRIPT)),
    key("optimizer.max_gradient_norm", "L2 norm", "the norm that gradients are scaled down to")
        .released(is("1.0", SCRIPT)),
    key("optimizer.non_finite", "", "what happens at a gradient that is NaN or infinite").released(
        is_and_says(
            "\"skip\"",
            "the update is left out, with a printed warning",
            "verl/workers/actor/dp_actor.py:410-414",
        ),
    ),
    key("optimizer.warm_up.rollout_steps", "rollout steps", "length of the linear warm-up")
        .paper(is("20", "§4.1"))
        .released(is("10", SCRIPT)),
    key("optimizer.warm_up.start", "", "the rate of the first rollout step").released(is_and_says(
        "\"zero\"",
        "the first rollout step trains nothing",
        "verl/utils/torch_functional.py:769-772; verl/workers/fsdp_workers.py:919-921",
    )),
    key(
        "evaluation.every_steps",
        "rollout steps",
        "how often the sets of during_training are evaluated",
    )
    .released(is("5", SCRIPT)),
    key(
        "evaluation.during_training",
        "",
        "sets that are evaluated every so many rollout steps; the others before and at the end",
    )
    .released(says("AIME 2024, the one validation file", SCRIPT)),
    key("evaluation.samples.*", "samples", "k: responses to each problem of this set")
        .paper(says("32 on AIME 2024", "§4.1"))
        .released(says("n = 1 on a file that holds each problem 32 times", SCRIPT)),
    key("evaluation.sampling.temperature", "", "divides the logits in evaluation")
        .paper(is("1.0", "§4.1"))
        .released(is("1.0", SCRIPT)),
    key("evaluation.sampling.top_p", "", "mass of the tokens that evaluation keeps")
        .paper(is("0.7", "§4.1"))
        .released(is_and_says("0.7", "1.0 in test_dapo_7b.sh", SCRIPT)),
    key("evaluation.sampling.top_k", "tokens", "tokens that evaluation keeps; 0: all")
        .released(is_and_says("0", "written −1 there", SCRIPT)),
    key("dapo.clip.low", "", "ε_low: the ratio is clipped from below at 1 − ε_low")
        .paper(is("0.2", "§4.1, Eq. 10"))
        .released(is("0.2", CLIP)),
    key("dapo.clip.high", "", "ε_high: the ratio is clipped from above at 1 + ε_high")
        .paper(is("0.28", "§4.1, Eq. 10"))
        .released(is("0.28", CLIP)),
    key("dapo.aggregation", "", "how per-token losses become one number")
        .paper(is("\"token-mean\"", "§3.3, Eq. 12"))
        .released(is("\"token-mean\"", "run_dapo_qwen2.5_32b.sh:23")),
    key("dapo.token_mean_unit", "", "the tokens that the token mean is taken over")
        .paper(is_and_says("\"group\"", "as printed", "Eq. 12"))
        .released(is_and_says(
            "\"micro-batch\"",
            "its default path; it intends the mini-batch",
            "verl/workers/actor/dp_actor.py:575-578, 652-656",
        )),
    key("dapo.advantage.std", "", "which standard deviation divides the centred reward")
        .paper(says("std without saying which", "Eq. 9"))
        .released(is("\"sample\"", "verl/trainer/ppo/core_algos.py:320")),
    key("dapo.advantage.epsilon", "", "added to that standard deviation")
        .paper(is_and_says("0.0", "no epsilon in the formula", "Eq. 9"))
        .released(is("1e-6", "verl/trainer/ppo/core_algos.py:271, 325")),
    key("dapo.dynamic_sampling.kind", "", "Dynamic Sampling: whether useless groups are replaced")
        .paper(is("\"resample\"", "§3.2, Eq. 11"))
        .released(is("\"resample\"", SAMPLING)),
    key(
        "dapo.dynamic_sampling.max_rounds",
        "rounds",
        "cap on generation rounds of a step; 0: none",
    )
    .released(is("10", SAMPLING)),
    key("dapo.dynamic_sampling.at_cap", "", "what happens at the cap with the batch not full")
        .released(is("\"stop\"", "dapo_ray_trainer.py:286-290")),
    key("dapo.dynamic_sampling.surplus", "", "what happens to useful groups beyond the batch")
        .paper(says("\u{201c}keep sampling until the batch is fully filled\u{201d}", "§3.2"))
        .released(is("\"discard\"", "dapo_ray_trainer.py:291-294")),
    key("dapo.overlong.filter", "", "Overlong Filtering: truncated responses leave the loss")
        .paper(says("a row of Table 1; whether later rows keep it is not said", "§3.4, Table 1"))
        .released(is_and_says("false", "not implemented; off in the best run", "README.md, FAQ")),
    key("dapo.overlong.punishment.kind", "", "Soft Overlong Punishment: the length penalty")
        .paper(is("\"soft\"", "§3.4, Eq. 13"))
        .released(is_and_says(
            "\"soft\"",
            "printed as enabled, yet never applied with the reward loop of this commit",
            "run_dapo_qwen2.5_32b.sh; verl/experimental/reward_loop/reward_manager/dapo.py:33",
        )),
    key("dapo.overlong.punishment.cache_tokens", "tokens", "L_cache: where the penalty begins")
        .paper(is("4096", "§4.1"))
        .released(is("4096", SCRIPT)),
    key("dapo.overlong.punishment.factor", "", "multiplies the penalty")
        .paper(is_and_says("1.0", "no factor in the formula", "Eq. 13"))
        .released(is("1.0", SCRIPT)),
    key("dapo.overlong.punishment.beyond", "", "the penalty beyond L_max")
        .paper(is("\"clamped\"", "Eq. 13"))
        .released(is("\"unclamped\"", PUNISHMENT)),
    key("dapo.dual_clip.kind", "", "a bound on the loss of negative advantages")
        .paper(is_and_says("\"none\"", "no bound in the formula", "Eq. 8"))
        .released(is("\"constant\"", DUAL)),
    key("dapo.dual_clip.c", "", "that bound, as a multiple of the advantage")
        .released(is_and_says("10.0", "3.0 by default", DUAL)),
    key("dapo.log_ratio_clamp.kind", "", "a clamp on log π_θ − log π_old")
        .paper(is_and_says("\"none\"", "no clamp in the formula", "Eq. 9"))
        .released(is("\"symmetric\"", CLAMP)),
    key("dapo.log_ratio_clamp.bound", "nats", "that clamp").released(is("20.0", CLAMP)),
    key("dapo.kl.kind", "", "a KL penalty to the frozen base policy")
        .paper(is_and_says("\"none\"", "GRPO's term is removed", "§2.3"))
        .released(is("\"none\"", NO_KL)),
    key("dapo.kl.estimator", "", "which estimator of the divergence"),
    key("dapo.kl.coefficient", "", "β: the penalty's weight").released(says("0.0, unused", NO_KL)),
    key("dapo.method.kind", "", "another method than GRPO with the techniques of this table"),
];
