"""Two whole updates of a tiny Qwen2 under GRPO and DAPO settings, in plain PyTorch.

    python golden/update/generate.py       # with golden/requirements.txt

Everything is written from the equations of the papers (DAPO, arXiv 2503.14476: Eq. 5, 9,
10, 12, 13), in float64, and shares nothing with the code under test: the forward pass is
spelled out below and checked against transformers' logits in golden/qwen2. Only
`clip_grad_norm_` and `AdamW` are torch's own. Rerunning changes no byte (with one thread,
on the same kind of machine).
"""

import json
import math
import pathlib
import sys

import safetensors.torch
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from json_text import compact

HERE = pathlib.Path(__file__).parent
MODEL = HERE.parent / "qwen2" / "tied-4-heads-2-kv-theta-1e4"
SEED = 21
L_MAX, L_CACHE = 12, 4
# With torch's default epsilon of 1e-8 a gradient that is zero up to rounding becomes a whole
# step of either sign; 1e-6 is large enough to be tested and keeps float32 comparable.
OPTIMIZER = dict(learning_rate=2e-4, beta1=0.9, beta2=0.999, epsilon=1e-6, weight_decay=0.1,
                 max_gradient_norm=1.0)
# (length, correct, truncated): group 2 has a response of L_max tokens that did stop.
GROUPS = [
    [(3, 1, 0), (9, 0, 0), (12, 0, 1), (7, 1, 0)],
    [(5, 0, 0), (12, 1, 1), (10, 0, 0), (1, 0, 0)],
    [(12, 1, 0), (4, 0, 0), (6, 1, 0), (11, 1, 0)],
    [(9, 0, 0), (12, 0, 1), (12, 1, 1), (2, 0, 0)],
]
PROMPT_LENGTHS = (4, 2, 6, 3)
MINI_BATCHES = [[0, 1], [2, 3]]
GRPO = dict(clip_low=0.2, clip_high=0.2, aggregation="response-mean", token_mean_unit="mini-batch",
            overlong_filter=False, overlong_punishment=False, kl_coefficient=0.0)
DAPO = GRPO | dict(clip_high=0.28, aggregation="token-mean", overlong_punishment=True)
CASES = {
    "grpo": GRPO,
    "grpo-kl": GRPO | dict(kl_coefficient=0.04),
    "dapo": DAPO,
    "dapo-overlong-filter": DAPO | dict(overlong_filter=True),
    "dapo-token-mean-per-group": DAPO | dict(token_mean_unit="group"),
}


def forward(weights, config, ids):
    """Logits [length, vocab] of Qwen2 for one sequence."""
    length, hidden = len(ids), config["hidden_size"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    size, dtype = hidden // heads, weights["model.norm.weight"].dtype
    theta = config["rope_parameters"]["rope_theta"]
    frequencies = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies  # [length, size / 2]
    cosine, sine = angles.cos().to(dtype), angles.sin().to(dtype)
    future = torch.ones(length, length).triu(1).bool()

    def norm(x, name):
        scale = (x.square().mean(-1, keepdim=True) + config["rms_norm_eps"]).rsqrt()
        return x * scale * weights[name + ".weight"]

    def linear(x, name):
        y = x @ weights[name + ".weight"].T
        return y + weights[name + ".bias"] if name + ".bias" in weights else y

    def rotate(x):  # [heads, length, size]; component i turns with component i + size / 2
        first, second = x[..., : size // 2], x[..., size // 2:]
        return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)

    x = weights["model.embed_tokens.weight"][torch.tensor(ids)]
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        h = norm(x, at + "input_layernorm")
        query, key, value = (
            linear(h, at + f"self_attn.{part}_proj").view(length, -1, size).transpose(0, 1) for part in "qkv")
        key, value = (t.repeat_interleave(heads // kv_heads, 0) for t in (rotate(key), value))
        scores = rotate(query) @ key.transpose(1, 2) / math.sqrt(size)
        mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ value
        x = x + linear(mixed.transpose(0, 1).reshape(length, hidden), at + "self_attn.o_proj")
        h = norm(x, at + "post_attention_layernorm")
        gate = torch.nn.functional.silu(linear(h, at + "mlp.gate_proj"))
        x = x + linear(gate * linear(h, at + "mlp.up_proj"), at + "mlp.down_proj")
    head = "model.embed_tokens" if config["tie_word_embeddings"] else "lm_head"
    return norm(x, "model.norm") @ weights[head + ".weight"].T


def log_probs(weights, config, prompt, response):
    """log π(o_t | q, o_<t) for every response token, at temperature 1."""
    logits = forward(weights, config, prompt + response)[len(prompt) - 1: -1]
    return logits.log_softmax(-1)[torch.arange(len(response)), torch.tensor(response)]


def soft_punishment(length):
    """Eq. 13."""
    if length <= L_MAX - L_CACHE:
        return 0.0
    return (L_MAX - L_CACHE - length) / L_CACHE if length <= L_MAX else -1.0


def advantages(rewards):
    """Eq. 9, with the sample standard deviation plus 1e-6."""
    mean = sum(rewards) / len(rewards)
    std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
    return [(r - mean) / (std + 1e-6) for r in rewards]


def objective(weights, config, groups, settings):
    """−J of Eq. 5 or Eq. 12 over a mini-batch, its log-probs, and the tokens clipped."""
    rows, new, clipped = [], [], dict(low=0, high=0)
    for group in groups:
        for rollout in group["rollouts"]:
            now = log_probs(weights, config, group["prompt_ids"], rollout["response_ids"])
            old = torch.tensor(rollout["old_log_probs"], dtype=now.dtype)
            advantage = rollout["advantage"]
            ratio = (now - old).exp()
            bounded = ratio.clamp(1 - settings["clip_low"], 1 + settings["clip_high"])
            gain = torch.minimum(ratio * advantage, bounded * advantage)  # Eq. 10
            if settings["kl_coefficient"]:
                kappa = torch.tensor(rollout["ref_log_probs"], dtype=now.dtype) - now
                gain = gain - settings["kl_coefficient"] * (kappa.exp() - kappa - 1)  # k3
            mask = torch.tensor(rollout["response_mask"], dtype=now.dtype)
            rows.append((gain * mask, mask))
            new.append(now.detach().tolist())
            clipped["high"] += int(((ratio > 1 + settings["clip_high"]) & (mask > 0)).sum()) * (advantage > 0)
            clipped["low"] += int(((ratio < 1 - settings["clip_low"]) & (mask > 0)).sum()) * (advantage < 0)
            margin = torch.stack([(ratio - bound).abs().min() for bound in
                                  (1 - settings["clip_low"], 1 + settings["clip_high"])]).min()
            assert margin > 1e-5, "a ratio sits on the edge of the clip range: choose another seed"
    if settings["aggregation"] == "response-mean":  # Eq. 5
        total = sum(gain.sum() / mask.sum() for gain, mask in rows) / len(rows)
    elif settings["token_mean_unit"] == "mini-batch":  # Eq. 12 pooled over the mini-batch
        total = sum(gain.sum() for gain, _ in rows) / sum(mask.sum() for _, mask in rows)
    else:  # Eq. 12 as printed: the tokens of one prompt's group, then the mean over prompts
        size = len(groups[0]["rollouts"])
        parts = [rows[i: i + size] for i in range(0, len(rows), size)]
        total = sum(sum(g.sum() for g, _ in part) / sum(m.sum() for _, m in part) for part in parts) / len(parts)
    return -total, new, clipped


def rollouts(weights, config, settings, eos):
    """Random responses with their rewards, advantages, and the log-probs of two other
    policies near θ, so that the ratios lie on both sides of the clip range."""
    generator = torch.Generator().manual_seed(SEED)
    noisy = lambda size: {name: w + size * w.std() * torch.randn(w.shape, generator=generator).to(w.dtype)
                          for name, w in sorted(weights.items()) if w.dim() == 2}
    old, ref = weights | noisy(0.25), weights | noisy(0.3)
    groups = []
    for index, shape in enumerate(GROUPS):
        draw = lambda n: torch.randint(eos, (n,), generator=generator).tolist()  # ids below eos
        prompt, group = draw(PROMPT_LENGTHS[index]), []
        for length, correct, truncated in shape:
            response = draw(length) if truncated else draw(length - 1) + [eos]
            punishment = soft_punishment(length) if settings["overlong_punishment"] else 0.0
            group.append({
                "response_ids": response, "truncated": bool(truncated), "is_correct": bool(correct),
                "correctness_reward": 1.0 if correct else -1.0, "overlong_penalty": punishment,
                "reward": (1.0 if correct else -1.0) + punishment,
                "response_mask": [0 if truncated and settings["overlong_filter"] else 1] * length,
                "old_log_probs": log_probs(old, config, prompt, response).tolist(),
                "ref_log_probs": log_probs(ref, config, prompt, response).tolist(),
            })
        for rollout, advantage in zip(group, advantages([r["reward"] for r in group])):
            rollout["advantage"] = advantage
        groups.append({"prompt_ids": prompt, "rollouts": group})
    return groups


def train(start, config, groups, settings, dtype):
    """One update on each mini-batch; records of both, and the parameters after each."""
    weights = {name: w.to(dtype).clone().requires_grad_() for name, w in start.items()}
    adam = torch.optim.AdamW(
        weights.values(), lr=OPTIMIZER["learning_rate"], betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]),
        eps=OPTIMIZER["epsilon"], weight_decay=OPTIMIZER["weight_decay"], foreach=False)
    records, after = [], []
    for chosen in MINI_BATCHES:
        adam.zero_grad()
        loss, new, clipped = objective(weights, config, [groups[i] for i in chosen], settings)
        loss.backward()
        norms = {name: w.grad.norm().item() for name, w in sorted(weights.items())}
        total = torch.nn.utils.clip_grad_norm_(weights.values(), OPTIMIZER["max_gradient_norm"], foreach=False)
        adam.step()
        records.append({"groups": chosen, "loss": loss.item(), "clipped_low_tokens": clipped["low"],
                        "clipped_high_tokens": clipped["high"], "gradient_norm": total.item(),
                        "gradient_norms": norms, "log_probs": new})
        after.append({name: w.detach().clone() for name, w in weights.items()})
    return records, after


def largest(one, two, start):
    """Largest relative L2 difference of a tensor, and of its change since the start."""
    distance = lambda a, b: (a.double() - b.double()).norm().item()
    return (max(distance(one[n], two[n]) / two[n].double().norm().item() for n in one),
            max(distance(one[n], two[n]) / distance(two[n], start[n]) for n in one))


def check_forward(config, start):
    """Our float64 forward against the logits that transformers gave for the same weights."""
    expected = json.loads((MODEL / "expected.json").read_text())
    wide = {name: w.double() for name, w in start.items()}
    for case in expected["logits"]:
        ours = forward(wide, config, case["input_ids"])
        difference = (ours - torch.tensor(case["logits"], dtype=torch.float64)).abs().max().item()
        assert difference < 2e-6, f"the forward pass differs from transformers by {difference}"


def main():
    torch.set_num_threads(1)
    config = json.loads((MODEL / "config.json").read_text())
    start = safetensors.torch.load_file(MODEL / "model.safetensors")
    check_forward(config, start)
    for name, settings in CASES.items():
        wide = {key: w.double() for key, w in start.items()}
        groups = rollouts(wide, config, settings, config["eos_token_id"])
        records, after = train(start, config, groups, settings, torch.float64)
        narrow, narrow_after = train(start, config, groups, settings, torch.float32)
        noise = [largest(n, w, start) for n, w in zip(narrow_after, after)]
        if not settings["kl_coefficient"]:
            for group in groups:
                for rollout in group["rollouts"]:
                    del rollout["ref_log_probs"]
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        for number, weights in enumerate(after, 1):
            path = folder / f"after-{number}.safetensors"
            safetensors.torch.save_file({key: w.float().contiguous() for key, w in weights.items()}, path)
            path.chmod(0o644)
        case = {
            "provenance": {
                "command": "python golden/update/generate.py", "seed": SEED, "torch": torch.__version__,
                "safetensors": safetensors.__version__, "dtype": "float64, parameters stored as float32",
                "threads": 1,
                "float32_run": [
                    {"loss": n["loss"], "gradient_norm": n["gradient_norm"],
                     "largest_relative_difference_of_parameters": parameters,
                     "largest_relative_difference_of_the_change": change}
                    for n, (parameters, change) in zip(narrow, noise)],
            },
            "model": "../../qwen2/" + MODEL.name,
            "settings": settings | {
                "temperature": 1.0, "advantage_std": "sample", "advantage_epsilon": 1e-6,
                "max_response_tokens": L_MAX, "cache_tokens": L_CACHE, "optimizer": OPTIMIZER},
            "groups": groups,
            "updates": records,
        }
        (folder / "case.json").write_text(compact(case))
        for record, (parameters, change) in zip(records, noise):
            print(f"{name}: loss {record['loss']:+.6f}, gradient norm {record['gradient_norm']:.4f}, "
                  f"clipped {record['clipped_low_tokens']} low {record['clipped_high_tokens']} high, "
                  f"f32 noise {parameters:.1e} of the parameters, {change:.1e} of the change")


if __name__ == "__main__":
    main()
