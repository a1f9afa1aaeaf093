"""Losses, gradients and advantages of methods, by running verl's own functions.

    python golden/methods/generate.py [METHOD...]    # with the packages in golden/methods/README.md

One file a method, `<kind>.json`. Each loss case is a padded batch; `dapo` is what differs from
experiments/base.toml's `[dapo]` table so that this project computes the same. Rerunning changes
no byte (one thread, Linux x86-64).
"""

import json
import math
import pathlib
import sys

import numpy
import torch
from verl.trainer.ppo import core_algos
from verl.workers.config import ActorConfig

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from json_text import compact

HERE = pathlib.Path(__file__).parent
SEED = 20261123
LENGTH = 7
RELEASED = {
    "dual_clip": {"kind": "constant", "c": 10.0},
    "log_ratio_clamp": {"kind": "symmetric", "bound": 20.0},
}


def actor(low, high):
    return ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, use_dynamic_bsz=True,
        clip_ratio=low, clip_ratio_low=low, clip_ratio_high=high, clip_ratio_c=10.0,
    )


def batches():
    """(name, log_probs, old_log_probs, advantages of the rows, lengths, masked-out rows)."""
    generator = torch.Generator().manual_seed(SEED)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    for name, rows, spread in [("near", 6, 2e-4), ("far", 8, 0.3), ("on-policy", 4, 0.0)]:
        old = -normal(rows, LENGTH).abs() - 0.05
        lengths = [1 + int(x) for x in torch.randint(0, LENGTH, (rows,), generator=generator)]
        lengths[0] = LENGTH
        yield name, old + spread * normal(rows, LENGTH), old, normal(rows), lengths, []
    old = -normal(5, LENGTH).abs() - 0.05
    log_probs = old + 0.2 * normal(5, LENGTH)
    yield "a-masked-row", log_probs, old, normal(5), [7, 3, 5, 1, 6], [2]
    yield "an-empty-response", log_probs, old, normal(5), [7, 0, 5, 1, 6], []
    yield "no-advantage", log_probs, old, torch.zeros(5, dtype=torch.float64), [7, 3, 5, 1, 6], []
    for name, shift in [("a-ratio-that-overflows", 60.0), ("a-ratio-that-vanishes", -700.0)]:
        far = old.clone()
        far[1] += shift
        yield name, far, old, normal(5), [7, 3, 5, 1, 6], []


def losses(dapo, function, mode, config, changed={}):
    cases = []
    for name, log_probs, old, advantages, lengths, masked in batches():
        for dtype in (torch.float64, torch.float32):
            mask = torch.zeros_like(log_probs)
            for row, length in enumerate(lengths):
                mask[row, :length] = 0.0 if row in masked else 1.0
            leaf = log_probs.detach().to(dtype).clone().requires_grad_(True)
            loss, _ = function(
                old_log_prob=old.to(dtype), log_prob=leaf,
                advantages=advantages.to(dtype).unsqueeze(-1).expand(-1, LENGTH),
                response_mask=mask.to(dtype), loss_agg_mode=mode, config=config,
            )
            loss.backward()
            cases.append({
                "name": name, "dtype": str(dtype).removeprefix("torch."),
                "dapo": {**dapo, **changed.get(name, {})},
                "max_response_tokens": LENGTH,
                # agg_loss divides by the tokens of a response + 1e-8.
                "token_mean_epsilon": 1e-8 if mode == "seq-mean-token-mean" else 0.0,
                "log_probs": numbers(log_probs), "old_log_probs": numbers(old),
                "advantages": numbers(advantages), "mask": mask.int().tolist(),
                "loss": number(loss.item()), "gradient": numbers(leaf.grad),
            })
    return cases


def number(value):
    return value if math.isfinite(value) else str(value)


def numbers(tensor):
    def walk(value):
        return [walk(one) for one in value] if isinstance(value, list) else number(value)
    return walk(tensor.detach().double().tolist())


def advantages(**settings):
    """Outcome rewards of groups, each as a response of one token."""
    steps = [
        [[1.0, -1.0, -1.0, 1.0], [-1.0, -1.0, -1.0, 1.0], [0.5, -0.25, -1.0, 1.0]],
        [[1.0, 1.0, 1.0, 1.0], [-1.3] * 4, [1.0, -1.0, -1.0, -1.0]],
        [[-1.0] * 15 + [1.0]],
    ]
    cases = []
    for rewards in steps:
        flat = torch.tensor(sum(rewards, []), dtype=torch.float64).unsqueeze(-1)
        index = numpy.array(sum(([str(g)] * len(r) for g, r in enumerate(rewards)), []), dtype=object)
        made, _ = core_algos.compute_grpo_outcome_advantage(
            token_level_rewards=flat, response_mask=torch.ones_like(flat), index=index, **settings)
        values, at = made.squeeze(-1).tolist(), 0
        expected = []
        for group in rewards:
            expected.append(values[at:at + len(group)])
            at += len(group)
        cases.append({"rewards": rewards, "expected": expected})
    return cases


def dr_grpo():
    dapo = {"method": {"kind": "dr-grpo"}, **RELEASED}
    source = "compute_grpo_outcome_advantage(norm_adv_by_std_in_grpo=False), " \
        "compute_policy_loss_vanilla with seq-mean-token-sum-norm"
    return {
        "source": source,
        "advantages": advantages(norm_adv_by_std_in_grpo=False),
        "losses": losses(dapo, core_algos.compute_policy_loss_vanilla,
                         "seq-mean-token-sum-norm", actor(0.2, 0.2)),
    }


def gspo():
    dapo = {"method": {"kind": "gspo", "clip": {"low": 3e-4, "high": 4e-4}},
            "log_ratio_clamp": {"kind": "symmetric", "bound": 10.0}}
    return {
        "source": "compute_policy_loss_gspo with seq-mean-token-mean",
        "advantages": [],
        "losses": losses(dapo, core_algos.compute_policy_loss_gspo,
                         "seq-mean-token-mean", actor(3e-4, 4e-4),
                         # verl clamps log s from above alone.
                         {"a-ratio-that-vanishes": {"log_ratio_clamp": {"kind": "none"}}}),
    }


METHODS = {"dr-grpo": dr_grpo, "gspo": gspo}


def main():
    torch.set_num_threads(1)
    for kind in sys.argv[1:] or METHODS:
        made = METHODS[kind]()
        meta = {"made_by": "golden/methods/generate.py", "seed": SEED, "torch": torch.__version__.split("+")[0],
                "verl": "0.9.1", "functions": "verl/trainer/ppo/core_algos.py: " + made.pop("source")}
        (HERE / f"{kind}.json").write_text(compact({"meta": meta, **made}))


main()
