"""Losses, gradients and advantages of methods, by running the functions of verl and TRL.

    python golden/methods/generate.py [METHOD...]    # with the packages in golden/methods/README.md

One file a method, `<kind>.json`. Each loss case is a padded batch; `dapo` is what differs from
experiments/base.toml's `[dapo]` table so that this project computes the same. Rerunning changes
no byte (one thread, Linux x86-64).
"""

import collections
import dataclasses
import fractions
import importlib.metadata
import math
import pathlib
import sys
import types

import numpy
import torch
from trl.experimental.gmpo.gmpo_trainer import GMPOTrainer
from trl.trainer.grpo_trainer import GRPOTrainer
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.utils import torch_functional
from verl.workers.config import ActorConfig
from verl.workers.config.actor import PolicyLossConfig

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from json_text import compact

HERE = pathlib.Path(__file__).parent
SEED = 20261123
LENGTH = 7
CORE = "verl/trainer/ppo/core_algos.py: "
HELPER = "verl/trainer/ppo/rollout_corr_helper.py: "
TRL = "trl/trainer/grpo_trainer.py: "
NO_CLAMP = {"log_ratio_clamp": {"kind": "none"}}
CLAMP = {"log_ratio_clamp": {"kind": "symmetric", "bound": 20.0}}
NO_DUAL_CLIP = {"dual_clip": {"kind": "none"}}
RELEASED = {"dual_clip": {"kind": "constant", "c": 10.0}, **CLAMP}
TOKENS = {"aggregation": "token-mean"}
RESPONSES = {"aggregation": "response-mean"}
ALL_ROWS = "The reference divides by all rows, also by those without tokens."
SOME = ("far", "an-empty-response")


# Batches


@dataclasses.dataclass
class Batch:
    name: str
    log_probs: torch.Tensor
    old: torch.Tensor
    advantages: torch.Tensor  # of the rows
    mask: torch.Tensor
    inputs: dict = dataclasses.field(default_factory=dict)  # what else the method reads

    def rows(self):
        """All rows / rows that have tokens."""
        return len(self.mask) / (self.mask.sum(-1) > 0).sum().item()


def generator(seed):
    made = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(*shape, generator=made, dtype=torch.float64), made


def batch(name, log_probs, old, advantages, lengths, masked=(), inputs=None):
    mask = torch.zeros_like(log_probs)
    for row, length in enumerate(lengths):
        mask[row, :length] = 0.0 if row in masked else 1.0
    return Batch(name, log_probs, old, advantages, mask, inputs or {})


def batches(*names):
    """Those of these names, or all."""
    return [one for one in all_batches() if not names or one.name in names]


def all_batches():
    normal, made = generator(SEED)
    for name, rows, spread in [("near", 6, 2e-4), ("far", 8, 0.3), ("on-policy", 4, 0.0)]:
        old = -normal(rows, LENGTH).abs() - 0.05
        lengths = [1 + int(x) for x in torch.randint(0, LENGTH, (rows,), generator=made)]
        lengths[0] = LENGTH
        yield batch(name, old + spread * normal(rows, LENGTH), old, normal(rows), lengths)
    old = -normal(5, LENGTH).abs() - 0.05
    log_probs = old + 0.2 * normal(5, LENGTH)
    yield batch("a-masked-row", log_probs, old, normal(5), [7, 3, 5, 1, 6], [2])
    yield batch("an-empty-response", log_probs, old, normal(5), [7, 0, 5, 1, 6])
    yield batch("no-advantage", log_probs, old, torch.zeros(5, dtype=torch.float64), [7, 3, 5, 1, 6])
    for name, shift in [("a-ratio-that-overflows", 60.0), ("a-ratio-that-vanishes", -700.0)]:
        far = old.clone()
        far[1] += shift
        yield batch(name, far, old, normal(5), [7, 3, 5, 1, 6])


def probabilities():
    """Log-probs of at most 0 and far apart, as a divergence of probabilities needs them."""
    normal, _ = generator(SEED + 1)
    log_probs, old = (-3.0 * normal(6, LENGTH).abs() - 0.02 for _ in range(2))
    return batch("probabilities", log_probs, old, normal(6), [7, 4, 6, 1, 7, 5])


def with_samplers(*names):
    """The batches with the sampler's log-probs: each response and each of its tokens is off by something."""
    normal, _ = generator(SEED + 6)
    made = []
    for one in all_batches():
        rows = len(one.old)
        sampler = one.old - 0.4 * normal(rows, 1) - 0.4 * normal(rows, LENGTH)
        one.inputs["sampler_log_probs"] = sampler.round(decimals=4)
        made.append(one)
    old, log_probs, advantages = made[3].old, made[3].log_probs, normal(5)
    for name, shift in [("a-sampler-ratio-that-overflows", -60.0), ("a-sampler-ratio-that-vanishes", 50.0)]:
        sampler = made[3].inputs["sampler_log_probs"].clone()
        sampler[1] += shift
        made.append(batch(name, log_probs, old, advantages, [7, 3, 5, 1, 6],
                          inputs={"sampler_log_probs": sampler.round(decimals=4)}))
    return [one for one in made if not names or one.name in names]


def with_entropies(ties, *names):
    """The batches with entropies that float32 holds exactly: of 512 values, or of 4, with ties."""
    _, made = generator(SEED + 3)
    chosen = []
    for one in all_batches():
        values = torch.randint(1, 5 if ties else 513, one.old.shape, generator=made).double()
        one.inputs["entropies"] = values / (2 if ties else 128)
        chosen.append(one)
    return [one for one in chosen if not names or one.name in names]


def opposite_tokens():
    """Two tokens of a response that a clamp of each log ratio turns into none."""
    one, = batches("far")
    log_probs = one.log_probs.clone()
    log_probs[0, 1] = one.old[0, 1] + 30.0
    log_probs[0, 4] = one.old[0, 4] - 28.5
    return dataclasses.replace(one, name="tokens-beyond-the-clamp", log_probs=log_probs)


# Losses


def cases(run, dapo, batches, prefix="", changed={}, epsilon=0.0, factor=None, difference=None, tolerance=None):
    """`run(batch, dtype)` gives the reference's loss and the log-probs it is a function of."""
    made = []
    for one in batches:
        losses = []
        for dtype in (torch.float64, torch.float32):
            loss, leaf = run(one, dtype)
            loss.backward()
            times = factor(one) if factor else 1.0
            case = {
                "name": prefix + one.name, "dtype": str(dtype).removeprefix("torch."),
                "dapo": {**dapo, **changed.get(one.name, {})},
                "max_response_tokens": LENGTH,
                "token_mean_epsilon": epsilon,
            }
            if times != 1.0:
                case["loss_factor"] = times
            if tolerance and dtype == torch.float64:
                case["tolerance"] = tolerance
            if difference and (times != 1.0 or "tolerance" in case):
                case["difference"] = difference
            case |= {"log_probs": numbers(one.log_probs), "old_log_probs": numbers(one.old)}
            case |= {name: numbers(values) for name, values in one.inputs.items()}
            case |= {
                "advantages": numbers(one.advantages), "mask": one.mask.int().tolist(),
                "loss": number(loss.item() * times), "gradient": numbers(leaf.grad.double() * times),
            }
            losses.append((loss.item(), leaf.grad.double()))
            made.append(case)
        # No choice that the method makes hangs on rounding.
        (double, gradient), (single, single_gradient) = losses
        assert math.isclose(double, single, rel_tol=1e-3, abs_tol=1e-4), (prefix, one.name, double, single)
        assert torch.allclose(gradient, single_gradient, rtol=1e-3, atol=1e-4), (prefix, one.name)
    return made


def number(value):
    return value if math.isfinite(value) else str(value)


def numbers(tensor):
    def walk(value):
        return [walk(one) for one in value] if isinstance(value, list) else number(value)
    return walk(tensor.detach().double().tolist())


def leaf_of(one, dtype):
    return one.log_probs.detach().to(dtype).clone().requires_grad_(True)


# verl


def actor(low, high, c=10.0, **policy_loss):
    return ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, use_dynamic_bsz=True,
        clip_ratio=low, clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=c,
        policy_loss=PolicyLossConfig(**policy_loss),
    )


def verl(function, mode, config, weights=None):
    """`weights(log_ratio, mask)`: of the tokens, by how much the sampler was off."""
    def run(one, dtype):
        leaf, old, mask = leaf_of(one, dtype), one.old.to(dtype), one.mask.to(dtype)
        made = weights and weights(old - one.inputs["sampler_log_probs"].to(dtype), mask)
        loss, _ = function(
            old_log_prob=old, log_prob=leaf,
            advantages=one.advantages.to(dtype).unsqueeze(-1).expand(-1, LENGTH),
            response_mask=mask, loss_agg_mode=mode, config=config, rollout_is_weights=made,
        )
        return loss, leaf
    return run


def losses(dapo, function, mode, config, changed={}, chosen=None, **settings):
    # agg_loss divides by the tokens of a response + 1e-8.
    epsilon = 1e-8 if mode == "seq-mean-token-mean" else 0.0
    return cases(verl(function, mode, config), dapo, chosen or batches(), changed=changed,
                 epsilon=epsilon, **settings)


def advantages(function, steps, lengths=None, more=lambda _: {}, **settings):
    """Outcome rewards of groups, each as a response of one token or of `lengths`."""
    made = []
    for step, rewards in enumerate(steps):
        tokens = torch.tensor(sum(lengths[step], []) if lengths else [1] * sum(map(len, rewards)))
        mask = (torch.arange(max(1, int(tokens.max()))) < tokens.unsqueeze(-1)).double()
        scores = torch.zeros_like(mask)
        scores[:, 0] = torch.tensor(sum(rewards, []), dtype=torch.float64)
        index = numpy.array(sum(([str(g)] * len(r) for g, r in enumerate(rewards)), []), dtype=object)
        values, _ = function(token_level_rewards=scores, response_mask=mask, index=index, **settings)
        case = {"rewards": rewards}
        if lengths:
            case["lengths"] = lengths[step]
        made.append({**case, **more(rewards), "expected": grouped(values[:, 0].tolist(), rewards)})
    return made


def grouped(values, like):
    values = iter(values)
    return [[next(values) for _ in group] for group in like]


STEPS = [
    [[1.0, -1.0, -1.0, 1.0], [-1.0, -1.0, -1.0, 1.0], [0.5, -0.25, -1.0, 1.0]],
    [[1.0, 1.0, 1.0, 1.0], [-1.3] * 4, [1.0, -1.0, -1.0, -1.0]],
    [[-1.0] * 15 + [1.0]],
]
UNEVEN = [[1.0, -1.0], [-1.0, -1.5, -1.0, 1.0, 1.0, 0.75, -1.0, -1.0], [1.0, 1.0, -1.0]]
ALONE = [[1.0], [-1.0, 1.0, -1.0], [-1.3]]
# verl subtracts no mean from a group of one; the advantage of one is 0 elsewhere in this project.
OWN_REWARD = {"group_of_one": "its-reward"}


def constant(rewards):
    """What is said of a step whose rewards are all equal: the mean's rounding error, divided by a small number."""
    equal = len({reward for group in rewards for reward in group}) == 1
    return {"tolerance": 1e-11, "difference": "The rounding error of the mean is divided by an epsilon."} if equal else {}


# TRL


class Accelerator:
    """One process."""

    num_processes, process_index, device, sync_gradients = 1, 0, torch.device("cpu"), True

    @staticmethod
    def gather(value, **_):
        return value

    pad_across_processes = reduce = gather_for_metrics = gather


def trainer(kind, **settings):
    """A trainer that was not built: its own methods, on the attributes that they read."""
    made = kind.__new__(kind)
    arguments = types.SimpleNamespace(
        delta=None, use_bias_correction_kl=False, steps_per_generation=1, gradient_accumulation_steps=1,
        per_device_train_batch_size=1, gradient_checkpointing_kwargs=None,
        sapo_temperature_pos=1.0, sapo_temperature_neg=1.05,
        vespo_k_pos=2.0, vespo_lambda_pos=3.0, vespo_k_neg=3.0, vespo_lambda_neg=2.0,
    )
    logs = {name: collections.defaultdict(list) if name in ("rewards", "extra") else []
            for name in ("prompt", "completion", "rewards", "advantages", "extra", "images")}
    vars(made).update({
        "accelerator": Accelerator(), "args": arguments,
        "model": types.SimpleNamespace(training=True, is_gradient_checkpointing=False),
        "_metrics": {"train": collections.defaultdict(list)}, "_logs": logs,
        "_pending_extra_logs": {}, "_pending_metrics": {},
        "aux_loss_enabled": False, "_entropy_bonus_enabled": False, "beta": 0.0,
        "top_entropy_quantile": 1.0, "off_policy_mask_threshold": None,
        "importance_sampling_level": "token", "epsilon_low": 0.2, "epsilon_high": 0.2,
        "use_vllm": False, "vllm_importance_sampling_correction": True, "num_iterations": 1,
        "current_gradient_accumulation_steps": 1, "max_completion_length": LENGTH,
        "environment_factories": None, "environments": None, "tools": None, "_is_vlm": False,
        "_tokenizer": types.SimpleNamespace(pad_token_id=0), "pad_to_multiple_of": None,
        "mask_truncated_completions": False, "multi_objective_aggregation": "sum_then_normalize",
        "scale_rewards": "group", "reward_funcs": [None], "reward_func_names": ["reward"],
        "reward_weights": torch.ones(1), **settings,
    })
    return made


def scored(made, rewards, group, rows, old=None, sampler=None):
    """`_generate_and_score_completions` of responses whose tokens, rewards and log-probs are given."""
    responses = len(rows)
    made._generate = lambda prompts: (
        [[1]] * responses, [[1] * len(row) for row in rows], rows, [""] * responses, sampler, {}, None, None)
    made._calculate_rewards = lambda *_: torch.tensor(rewards).unsqueeze(-1)
    made._get_per_token_logps_and_entropies = lambda *_, **__: (old, None, None)
    made.num_generations = group
    return made._generate_and_score_completions([{"prompt": ""}] * responses)


def trl(loss_type, kind=GRPOTrainer, **settings):
    """`_compute_loss` of a trainer; with `use_vllm` on what its own scoring makes of the sampler's log-probs."""
    def run(one, dtype):
        torch.set_default_dtype(dtype)  # TRL makes tensors from Python's numbers
        try:
            made = trainer(kind, loss_type=loss_type, **settings)
            rows = len(one.mask)
            if made.use_vllm:
                inputs = scored(made, [0.0] * rows, rows, one.mask.int().tolist(), one.old.to(dtype),
                                one.inputs["sampler_log_probs"].tolist())
            else:
                ones = torch.ones(rows, 1, dtype=torch.int64)
                mask = one.mask.long()
                inputs = {"prompt_ids": ones, "prompt_mask": ones, "completion_ids": mask,
                          "completion_mask": mask, "num_items_in_batch": mask.sum(),
                          "old_per_token_logps": one.old.to(dtype)}
            inputs["advantages"] = one.advantages.to(dtype)
            leaf = leaf_of(one, dtype)
            entropies = one.inputs.get("entropies", torch.zeros_like(one.old)).to(dtype)
            made._get_per_token_logps_and_entropies = lambda *_, **__: (leaf, entropies, None)
            return made._compute_loss(made.model, inputs), leaf
        finally:
            torch.set_default_dtype(torch.float32)
    return run


def trl_cases(loss_type, dapo, chosen, prefix="trl: ", **settings):
    """The mean over rows is one over all rows, except where the loss is a mean over tokens."""
    factor = None if loss_type in ("cispo", "dapo", "vespo") else Batch.rows
    return cases(trl(loss_type, **settings), dapo, chosen, prefix, factor=factor, difference=ALL_ROWS)


# Methods


def dr_grpo():
    dapo = {"method": {"kind": "dr-grpo"}, **RELEASED}
    source = "compute_grpo_outcome_advantage(norm_adv_by_std_in_grpo=False), " \
        "compute_policy_loss_vanilla with seq-mean-token-sum-norm"
    return {
        "source": CORE + source,
        "advantages": advantages(core_algos.compute_grpo_outcome_advantage, STEPS, norm_adv_by_std_in_grpo=False),
        "losses": losses(dapo, core_algos.compute_policy_loss_vanilla,
                         "seq-mean-token-sum-norm", actor(0.2, 0.2)),
    }


def gspo():
    dapo = {"method": {"kind": "gspo", "clip": {"low": 3e-4, "high": 4e-4}},
            "log_ratio_clamp": {"kind": "symmetric", "bound": 10.0}}
    return {
        "source": CORE + "compute_policy_loss_gspo with seq-mean-token-mean",
        "advantages": [],
        "losses": losses(dapo, core_algos.compute_policy_loss_gspo,
                         "seq-mean-token-mean", actor(3e-4, 4e-4),
                         # verl clamps log s from above alone.
                         {"a-ratio-that-vanishes": {"log_ratio_clamp": {"kind": "none"}}}),
    }


def rloo():
    function = core_algos.compute_rloo_outcome_advantage
    return {
        "source": CORE + "compute_rloo_outcome_advantage",
        "advantages": advantages(function, [*STEPS, UNEVEN, [[0.7] * 3] * 2])
        + advantages(function, [ALONE], more=lambda _: OWN_REWARD),
        "losses": [],
    }


LENGTHS = [
    [[7, 3, 1, 5], [2, 2, 7, 4], [1, 7, 7, 6]],
    [[1, 2, 3, 4], [7, 1, 1, 1], [5, 6, 7, 1]],
    [[120, 3, 45, 60, 7, 7, 7, 1, 2, 90, 33, 14, 15, 9, 26, 53]],
    [[140, 1], [9, 8, 7, 6, 5, 4, 3, 2], [2, 80, 11]],
    [[6, 0, 5, 1], [0, 3, 4, 2], [1, 1, 0, 9]],
    [[5, 1, 7], [2, 2, 2]],
]
ALONE_LENGTHS = [[[3], [7, 2, 4], [6]]]
LENGTHY = [*STEPS, UNEVEN, STEPS[0], [[0.7] * 3] * 2]


def reinforce_plus_plus_baseline():
    function = core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage
    return {
        "source": CORE + "compute_reinforce_plus_plus_baseline_outcome_advantage",
        "advantages": advantages(function, LENGTHY, LENGTHS, more=constant)
        + advantages(function, [ALONE], ALONE_LENGTHS, more=lambda _: OWN_REWARD),
        "losses": [],
    }


def opo():
    function = core_algos.compute_opo_outcome_advantage
    return {
        "source": CORE + "compute_opo_outcome_advantage",
        "advantages": advantages(function, LENGTHY, LENGTHS)
        + advantages(function, [ALONE], ALONE_LENGTHS, more=lambda _: OWN_REWARD),
        "losses": [],
    }


def lite_ppo():
    dapo = {"method": {"kind": "lite-ppo"}, "advantage": {"std": "sample", "epsilon": 1e-4}}
    steps = [*STEPS, [[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [0.25, -1.0]], [[0.7] * 3] * 2,
             [[1.0], [-1.0], [1.0]], [[-1.3]]]
    made = []
    torch.set_default_dtype(torch.float64)
    for rewards in steps:
        output = scored(trainer(GRPOTrainer, scale_rewards="batch"), sum(rewards, []), len(rewards[0]),
                        [[1]] * sum(map(len, rewards)))
        made.append({"dapo": dapo, "rewards": rewards, **constant(rewards),
                     "expected": grouped(output["advantages"].tolist(), rewards)})
    torch.set_default_dtype(torch.float32)
    return {
        "source": TRL + "GRPOTrainer._generate_and_score_completions with scale_rewards=\"batch\", "
        "on rewards in float64",
        "advantages": made, "losses": [],
    }


def max_rl():
    made = []
    for rewards in [*STEPS, UNEVEN, ALONE, [[0.7] * 3] * 2]:
        expected = []
        for group in rewards:
            exact = [(fractions.Fraction(reward) + 1) / 2 for reward in group]
            mean = sum(exact) / len(exact)
            expected.append([float((one - mean) / mean) if mean > 0 else 0.0 for one in exact])
        made.append({"rewards": rewards, "expected": expected})
    return {
        "source": "none: no package has it; (r - mean) / mean of arXiv 2602.02710 in exact fractions, "
        "r = (R + 1) / 2, 0 where the mean is not above 0",
        "advantages": made, "losses": [],
    }


def cispo():
    def dapo(low, high):
        return {"method": {"kind": "cispo", "weight": {"low": low, "high": high}}, **TOKENS, **NO_DUAL_CLIP}
    function = core_algos.compute_policy_loss_cispo
    return {
        "source": CORE + "compute_policy_loss_cispo with token-mean; "
        + TRL + "GRPOTrainer._compute_loss with loss_type=\"cispo\", epsilon_high=5.0",
        "advantages": [],
        "losses": losses({**dapo(0.2, 0.28), **CLAMP}, function, "token-mean", actor(0.2, 0.28), prefix="verl: ")
        + losses({**dapo(1.0, 4.0), **CLAMP}, function, "token-mean", actor(1.0, 4.0), prefix="verl, wide: ",
                 chosen=batches("far", "a-ratio-that-overflows", "a-ratio-that-vanishes"))
        + trl_cases("cispo", {**dapo(1.0, 4.0), **NO_CLAMP}, batches(), epsilon_high=5.0),
    }


def sapo():
    dapo = {"method": {"kind": "sapo", "tau_positive": 1.0, "tau_negative": 1.05}, **RESPONSES, **NO_DUAL_CLIP}
    return {
        "source": CORE + "compute_policy_loss_sapo with seq-mean-token-mean; "
        + TRL + "GRPOTrainer._compute_loss with loss_type=\"sapo\"",
        "advantages": [],
        "losses": losses({**dapo, **CLAMP}, core_algos.compute_policy_loss_sapo, "seq-mean-token-mean",
                         actor(0.2, 0.2), prefix="verl: ")
        + trl_cases("sapo", {**dapo, **NO_CLAMP}, batches()),
    }


def gmpo():
    dapo = {"method": {"kind": "gmpo", "log_clip": {"low": 0.4, "high": 0.4}}, **RESPONSES, **NO_DUAL_CLIP, **NO_CLAMP}
    # A row without tokens has the ratio 1 in TRL, and its loss is -A.
    with_tokens = [one for one in batches() if one.rows() == 1.0]
    difference = f"{ALL_ROWS} It divides the sum of a response's log ratios by its tokens + 1e-8."
    return {
        "source": CORE + "compute_policy_loss_geo_mean; "
        "trl/experimental/gmpo/gmpo_trainer.py: GMPOTrainer._compute_loss",
        "advantages": [],
        # In geo_mean the advantage of a response, too, is a mean over its tokens + 1e-8.
        "losses": losses(dapo, core_algos.compute_policy_loss_geo_mean, "seq-mean-token-mean", actor(0.4, 0.4),
                         prefix="verl: ", factor=Batch.rows, difference=difference, tolerance=1e-7)
        + trl_cases("gmpo", dapo, with_tokens, kind=GMPOTrainer, epsilon_low=0.4, epsilon_high=0.4),
    }


def dppo_tv():
    def made(low, high, chosen, prefix):
        dapo = {"method": {"kind": "dppo-tv", "divergence": {"low": low, "high": high}, "ratio_cap": 20.0},
                **TOKENS, **NO_DUAL_CLIP, **CLAMP}
        return losses(dapo, core_algos.compute_policy_loss_dppo_tv, "token-mean",
                      actor(low, high, c=20.0), prefix=prefix, chosen=chosen)
    return {
        "source": CORE + "compute_policy_loss_dppo_tv with token-mean, clip_ratio_c=20.0",
        "advantages": [],
        "losses": made(0.2, 0.2, [*batches(), probabilities()], "")
        + made(0.05, 0.05, [*batches("far", "a-masked-row"), probabilities()], "narrow: ")
        + made(0.03, 0.1, [*batches("far"), probabilities()], "uneven: "),
    }


def sampler_weights(level, threshold):
    def weights(log_ratio, mask):
        return rollout_corr_helper.compute_rollout_correction_weights(
            log_ratio, mask, rollout_is=level, rollout_is_threshold=threshold)[0]
    return weights


def corrected(dapo, weights, chosen, prefix, **settings):
    run = verl(core_algos.compute_policy_loss_vanilla, "token-mean", actor(0.2, 0.2), weights)
    return cases(run, {**dapo, **TOKENS, **RELEASED}, chosen, prefix, **settings)


def corrected_by_trl(dapo, loss_type, mode, least, chosen, prefix):
    aggregation = TOKENS if loss_type == "dapo" else RESPONSES
    return trl_cases(loss_type, {**dapo, **aggregation, **NO_DUAL_CLIP, **NO_CLAMP}, chosen, prefix, use_vllm=True,
                     vllm_importance_sampling_mode=mode, vllm_importance_sampling_clip_min=least,
                     vllm_importance_sampling_clip_max=2.0)


EXTREMES = ("a-sampler-ratio-that-overflows", "a-sampler-ratio-that-vanishes")


def tis():
    def dapo(level):
        return {"method": {"kind": "tis", "level": level, "cap": 2.0}}
    return {
        "source": HELPER + "compute_rollout_correction_weights with rollout_is_threshold=2.0, as rollout_is_weights of "
        + CORE + "compute_policy_loss_vanilla with token-mean; "
        + TRL + "GRPOTrainer._generate_and_score_completions and _compute_loss with "
        "vllm_importance_sampling_mode=\"token_truncate\" and \"sequence_truncate\"",
        "advantages": [],
        "losses": corrected(dapo("token"), sampler_weights("token", 2.0), with_samplers(), "verl, token: ")
        + corrected(dapo("sequence"), sampler_weights("sequence", 2.0),
                    with_samplers(*SOME, *EXTREMES), "verl, sequence: ")
        + corrected_by_trl(dapo("token"), "dapo", "token_truncate", None,
                           with_samplers(*SOME, EXTREMES[1]), "trl, token, dapo: ")
        + corrected_by_trl(dapo("sequence"), "grpo", "sequence_truncate", None,
                           with_samplers(*SOME), "trl, sequence, grpo: "),
    }


def mis():
    def dapo(level):
        return {"method": {"kind": "mis", "level": level, "at_least": 0.5, "at_most": 2.0}}

    def mean(log_ratio, mask):
        kept, _ = rollout_corr_helper.compute_rollout_rejection_mask(
            log_ratio, mask, rollout_rs="seq_mean_k1", rollout_rs_threshold="0.5_2.0")
        return torch_functional.masked_mean(log_ratio, mask, axis=-1).exp().unsqueeze(-1) * kept
    return {
        "source": HELPER + "compute_rollout_correction_weights with rollout_is_threshold=\"0.5_2.0\", as "
        "rollout_is_weights of " + CORE + "compute_policy_loss_vanilla with token-mean; level sequence-mean: exp of "
        "verl/utils/torch_functional.py: masked_mean of the log ratio, where compute_rollout_rejection_mask with "
        "seq_mean_k1 and \"0.5_2.0\" keeps the response, and the loss divides by the tokens of the full mask; "
        + TRL + "GRPOTrainer._generate_and_score_completions and _compute_loss with "
        "vllm_importance_sampling_mode=\"token_mask\" and \"sequence_mask\"",
        "advantages": [],
        "losses": corrected(dapo("token"), sampler_weights("token", "0.5_2.0"), with_samplers(), "verl, token: ")
        + corrected(dapo("sequence"), sampler_weights("sequence", "0.5_2.0"),
                    with_samplers(*SOME, "a-masked-row"), "verl, sequence: ")
        + corrected(dapo("sequence-mean"), mean, with_samplers(*SOME, "a-masked-row"),
                    "verl, sequence-mean: ", tolerance=1e-8,
                    difference="masked_mean divides the sum of a response's log ratios by its tokens + 1e-8.")
        + corrected_by_trl(dapo("token"), "dapo", "token_mask", 0.5, with_samplers(*SOME), "trl, token, dapo: ")
        + corrected_by_trl(dapo("sequence"), "grpo", "sequence_mask", 0.5, with_samplers(*SOME),
                           "trl, sequence, grpo: "),
    }


def clip_cov():
    def made(share, low, high, chosen, prefix):
        dapo = {"method": {"kind": "clip-cov", "clipped_share": share, "above": low, "below": high},
                "clip": {"low": 0.2, "high": 0.2}, **TOKENS, **NO_DUAL_CLIP, **NO_CLAMP}

        def run(one, dtype):
            # Whatever the permutation, and if the bounds were a little elsewhere.
            found = []
            for seed, nudge in enumerate((1 - 1e-5, 1 + 1e-5, 1 - 1e-5, 1.0)):
                torch.manual_seed(seed)
                config = actor(0.2, 0.2, clip_cov_ratio=share, clip_cov_lb=low * nudge, clip_cov_ub=high * nudge)
                found.append(verl(core_algos.compute_policy_loss_clip_cov, "token-mean", config)(one, dtype))
            assert len({loss.item() for loss, _ in found}) == 1, (prefix, one.name)
            return found[-1]
        return cases(run, dapo, chosen, prefix)
    return {
        "source": CORE + "compute_policy_loss_clip_cov with token-mean",
        "advantages": [],
        "losses": made(1.0, 0.1, 5.0, batches(), "")
        + made(0.5, 0.4, 1.2, batches("near", "far", "on-policy", "a-masked-row"), "half: ")
        + made(1.0, 1.0, 5.0, batches("far"), "released bounds: "),
    }


def kl_cov():
    def made(share, coefficient, chosen, prefix):
        dapo = {"method": {"kind": "kl-cov", "penalised_share": share, "coefficient": coefficient},
                **TOKENS, **NO_DUAL_CLIP, **NO_CLAMP}
        config = actor(0.2, 0.2, kl_cov_ratio=share, ppo_kl_coef=coefficient)
        return losses(dapo, core_algos.compute_policy_loss_kl_cov, "token-mean", config, prefix=prefix, chosen=chosen)
    # Without advantages all covariances are 0, and which are the largest is not defined.
    chosen = [one for one in batches() if one.name != "no-advantage"]
    return {
        "source": CORE + "compute_policy_loss_kl_cov with token-mean",
        "advantages": [],
        "losses": made(0.1, 1.0, chosen, "") + made(0.35, 0.5, batches(*SOME), "more: "),
    }


def top_entropy():
    def made(share, loss_type, ties, names, prefix):
        dapo = {"method": {"kind": "top-entropy", "trained_share": share}, "clip": {"low": 0.2, "high": 0.2},
                **(TOKENS if loss_type == "dapo" else RESPONSES), **NO_DUAL_CLIP, **NO_CLAMP}
        return trl_cases(loss_type, dapo, with_entropies(ties, *names), prefix, top_entropy_quantile=share)
    return {
        "source": TRL + "GRPOTrainer._compute_loss and get_high_entropy_mask with loss_type=\"dapo\" and \"grpo\"",
        "advantages": [],
        "losses": made(0.2, "dapo", False, (), "dapo: ")
        + made(0.2, "grpo", False, (*SOME, "a-masked-row"), "grpo: ")
        + made(0.5, "dapo", False, ("far", "near"), "half, dapo: ")
        + made(0.2, "dapo", True, SOME, "ties, dapo: ")
        + made(0.5, "grpo", True, ("far", "a-masked-row"), "ties, half, grpo: "),
    }


def vespo():
    dapo = {"method": {"kind": "vespo", "k_positive": 2.0, "lambda_positive": 3.0,
                       "k_negative": 3.0, "lambda_negative": 2.0}, **TOKENS, **NO_DUAL_CLIP, **CLAMP}
    return {
        "source": TRL + "GRPOTrainer._compute_loss and get_gamma_weights with loss_type=\"vespo\"",
        "advantages": [],
        "losses": trl_cases("vespo", dapo, [*batches(), opposite_tokens()], ""),
    }


def luspo():
    dapo = {"method": {"kind": "gspo", "clip": {"low": 3e-4, "high": 4e-4}}, "aggregation": "response-sum",
            **NO_DUAL_CLIP, **NO_CLAMP}
    return {
        "source": TRL + "GRPOTrainer._compute_loss with loss_type=\"luspo\", importance_sampling_level=\"sequence\"",
        "advantages": [],
        "losses": trl_cases("luspo", dapo, batches(), "", importance_sampling_level="sequence",
                            epsilon_low=3e-4, epsilon_high=4e-4),
    }


METHODS = {
    "dr-grpo": dr_grpo, "gspo": gspo, "rloo": rloo,
    "reinforce-plus-plus-baseline": reinforce_plus_plus_baseline, "opo": opo, "lite-ppo": lite_ppo,
    "max-rl": max_rl, "cispo": cispo, "sapo": sapo, "gmpo": gmpo, "dppo-tv": dppo_tv, "tis": tis, "mis": mis,
    "clip-cov": clip_cov, "kl-cov": kl_cov, "top-entropy": top_entropy, "vespo": vespo, "luspo": luspo,
}


def main():
    torch.set_num_threads(1)
    for kind in sys.argv[1:] or METHODS:
        made = METHODS[kind]()
        source = made.pop("source")
        packages = [name for name in ("verl", "trl") if f"{name}/" in source]
        meta = {"made_by": "golden/methods/generate.py", "seed": SEED, "torch": torch.__version__.split("+")[0],
                **{name: importlib.metadata.version(name) for name in packages}, "functions": source}
        (HERE / f"{kind}.json").write_text(compact({"meta": meta, **made}))


main()
