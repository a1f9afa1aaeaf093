"""Makes the vectors of this folder: edge cases of verl's functions.

An independent re-implementation of the arithmetic of verl at commit b178a3c in torch 2.11.0
(CPU) and numpy, operation by operation, so that NaN, infinities, kinds and rounding come out
as there. Run it in this folder: `python generate.py`. It writes the JSON files.
"""

import heapq
import json
import math
from collections import defaultdict

import numpy
import torch

NAN, INF = float("nan"), float("inf")
DTYPES = {"float64": torch.float64, "float32": torch.float32}


# --- verl's arithmetic -----------------------------------------------------------------------


def masked_sum(values, mask):
    return (torch.where(mask.bool(), values, 0.0) * mask).sum()


def masked_mean(values, mask):
    return masked_sum(values, mask) / (mask.sum() + 1e-8)


def agg_loss(loss, mask, mode, dp_size=1, batch_num_tokens=None, global_batch_size=None, loss_scale_factor=None):
    if mode == "token-mean":
        count = mask.sum() if batch_num_tokens is None else batch_num_tokens
        return masked_sum(loss, mask) / count * dp_size
    per_row = (loss * mask).sum(-1)
    if mode == "seq-mean-token-sum-norm":
        return per_row.sum() / (mask.shape[-1] if loss_scale_factor is None else loss_scale_factor)
    tokens = mask.sum(-1)
    if mode == "seq-mean-token-mean":
        per_row = per_row / (tokens + 1e-8)
    elif mode != "seq-mean-token-sum":
        raise ValueError(f"Invalid loss_agg_mode: {mode}")
    present = (tokens > 0).float()
    rows = present.sum() if global_batch_size is None else global_batch_size
    return masked_sum(per_row, present) / rows * dp_size


def policy_loss(old, new, advantages, mask, low, high, c, mode, weights=None, info=None):
    assert c > 1.0
    delta = torch.clamp(new - old, min=-20.0, max=20.0)
    ratio = torch.exp(delta)
    kl = masked_mean(-delta, mask)
    first = -advantages * ratio
    second = -advantages * torch.clamp(ratio, 1 - low, 1 + high)
    larger = torch.maximum(first, second)
    clipped = masked_mean(torch.gt(second, first).float(), mask)
    bound = -advantages * c
    bounded = torch.min(bound, larger)
    lower = masked_mean(torch.gt(larger, bound) * (advantages < 0).float(), mask)
    losses = torch.where(advantages < 0, bounded, larger)
    if weights is not None:
        losses = losses * weights
    return agg_loss(losses, mask, mode, **(info or {})), clipped, kl, lower


def grpo_advantage(rewards, mask, index, epsilon=1e-6, norm=True):
    scores = rewards.sum(dim=-1)
    groups = defaultdict(list)
    for i, group in enumerate(index):
        groups[group].append(scores[i])
    mean, std = {}, {}
    for group, values in groups.items():
        if len(values) == 1:
            mean[group], std[group] = torch.tensor(0.0), torch.tensor(1.0)
        else:
            stacked = torch.stack(values)
            mean[group], std[group] = torch.mean(stacked), torch.std(stacked)
    scores = scores.clone()
    for i, group in enumerate(index):
        scores[i] = scores[i] - mean[group]
        if norm:
            scores[i] = scores[i] / (std[group] + epsilon)
    return scores.unsqueeze(-1) * mask


def kl_penalty(new, ref, name):
    if name in ("kl", "k1"):
        return new - ref
    if name == "abs":
        return (new - ref).abs()
    if name in ("mse", "k2"):
        return 0.5 * (new - ref).square()
    if name in ("low_var_kl", "k3"):
        kappa = torch.clamp(ref - new, min=-20, max=20)
        return torch.clamp((torch.exp(kappa) - kappa - 1).contiguous(), min=-10, max=10)
    raise NotImplementedError


# The metrics that the recipe takes from float32 tensors (dapo_ray_trainer.py:239-248).
OF_TENSORS = ("seq_reward", "seq_final_reward")


def dynamic_sampling(batches, n, target, cap, name):
    steps, rows, prompts, rounds = [], [], 0, 0
    kind = numpy.float32 if name in OF_TENSORS else lambda value: value
    for batch in batches:
        rounds += 1
        metric = defaultdict(list)
        for uid, value in zip(batch["uid"], batch["metric_values"]):
            metric[uid].append(kind(value))
        kept = [uid for uid, values in metric.items() if numpy.std(values) > 0 or len(values) == 1]
        prompts += len(kept)
        rows += [t for uid, t in zip(batch["uid"], batch["traj_id"]) if uid in kept]
        if prompts < target:
            if cap <= 0 or rounds < cap:
                continue
            error = (
                f"num_gen_batches={rounds} >= max_num_gen_batches={cap}. Generated too many. Please check "
                "if your data are too difficult. You could also try set max_num_gen_batches=0 to enable "
                "endless trials."
            )
            return {"train_steps": steps, "end_of_data": None, "error": error}
        steps.append(
            {
                "num_gen_batches": rounds,
                "num_prompt_in_batch_before_truncation": prompts,
                "traj_ids": rows[: target * n],
            }
        )
        rows, prompts, rounds = [], 0, 0
    end = {"leftover_prompts_discarded": prompts, "leftover_traj_ids": rows, "num_gen_batches_in_progress": rounds}
    return {"train_steps": steps, "end_of_data": end, "error": None}


class Part:
    def __init__(self, items):
        self.items, self.sum = items, sum(work for _, work in items)

    def __lt__(self, other):
        return (self.sum, len(self.items), self.items) < (other.sum, len(other.items), other.items)


class State:
    def __init__(self, parts):
        self.parts = sorted(parts, reverse=True)
        self.spread = self.parts[0].sum - self.parts[-1].sum

    def __lt__(self, other):
        if self.spread != other.spread:
            return self.spread > other.spread
        return other.parts[0] < self.parts[0]


def balance_batch(lengths, k):
    work = [24576 * length + length * length for length in lengths]
    ordered = sorted((w, i) for i, w in enumerate(work))
    heap = []
    for start in range(0, len(ordered), k):
        heapq.heappush(heap, State([Part([(i, w)]) for w, i in ordered[start : start + k]]))
    while len(heap) > 1:
        a, b = heapq.heappop(heap), heapq.heappop(heap)
        heapq.heappush(heap, State([Part(x.items + y.items) for x, y in zip(a.parts, reversed(b.parts))]))
    partitions = [sorted(i for i, _ in part.items) for part in heap[0].parts]
    orders = []
    for partition in partitions:
        partition = sorted(partition, key=lambda i: (work[i], i))
        orders.append(partition[::2] + partition[1::2][::-1])
    return {
        "workload": work,
        "balanced_partitions": partitions,
        "final_order_per_rank": orders,
        "global_idx": [i for order in orders for i in order],
    }


# --- writing ---------------------------------------------------------------------------------


def plain(value):
    if isinstance(value, torch.Tensor):
        return plain(value.detach().tolist())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


FILES = defaultdict(list)


def add(file, name, inputs, outputs, note=""):
    FILES[file].append({"name": name, "note": note, "inputs": plain(inputs), "outputs": plain(outputs)})


def tensor(values, dtype="float64"):
    return torch.tensor(values, dtype=DTYPES[dtype])


def mask_of(values, kind, dtype):
    values = [[int(v) for v in row] for row in values]
    if kind == "bool":
        return torch.tensor(values).bool()
    return torch.tensor(values) if kind == "int" else tensor(values, dtype)


MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


def add_agg(name, loss, mask, kind="float", dtype="float64", **counts):
    for mode in MODES:
        leaf = tensor(loss, dtype).requires_grad_(True)
        m = mask_of(mask, kind, dtype)
        value = agg_loss(leaf, m, mode, **counts)
        (grad,) = torch.autograd.grad(value, leaf)
        inputs = {"loss_mat": loss, "loss_mask": m, "loss_agg_mode": mode, "dtype": dtype, **counts}
        add("agg_loss", f"{name}/{mode}", inputs, {"loss": value, "grad_loss_mat": grad})


def add_policy(name, new, old, adv, mask, kind="float", dtype="float64", modes=MODES, c=10.0, vanilla=None, **extra):
    for mode in modes:
        leaf = tensor(new, dtype).requires_grad_(True)
        m = mask_of(mask, kind, dtype)
        weights = None if vanilla is None or "weights" not in vanilla else tensor(vanilla["weights"], dtype)
        info = {} if vanilla is None else vanilla.get("info", {})
        loss, clipped, kl, lower = policy_loss(
            tensor(old, dtype), leaf, tensor(adv, dtype), m, 0.2, 0.28, c, mode, weights, info
        )
        (grad,) = torch.autograd.grad(loss, leaf)
        inputs = {"old_log_prob": old, "log_prob": new, "advantages": adv, "response_mask": m, "dtype": dtype}
        inputs |= {"loss_agg_mode": mode, "clip_ratio_c": c, **extra}
        if vanilla is None:
            inputs |= {"cliprange": 0.2, "cliprange_low": 0.2, "cliprange_high": 0.28}
            outputs = {"pg_loss": loss, "pg_clipfrac": clipped, "ppo_kl": kl, "pg_clipfrac_lower": lower}
            add("compute_policy_loss", f"{name}/{mode}", inputs, outputs | {"grad_log_prob": grad})
        else:
            inputs |= {"clip_ratio": 0.2, "clip_ratio_low": 0.2, "clip_ratio_high": 0.28}
            inputs |= {"global_batch_info": info, "rollout_is_weights": vanilla.get("weights")}
            metrics = {"actor/pg_clipfrac": clipped, "actor/ppo_kl": kl, "actor/pg_clipfrac_lower": lower}
            outputs = {"pg_loss": loss, "metrics": metrics, "grad_log_prob": grad}
            add("compute_policy_loss_vanilla", f"{name}/{mode}", inputs, outputs)


def losses():
    loss = [[0.5, -1.25, 2.0], [0.3, 0.7, -0.9], [1.5, -0.1, 0.2]]
    partial = [[1, 1, 1], [0, 0, 0], [1, 0, 0]]
    add_agg("all_masked_row", loss, partial)
    add_agg("all_masked_row_int_mask", loss, partial, kind="int")
    add_agg("all_masked_row_bool_mask", loss, partial, kind="bool")
    add_agg("all_masked_row_f32", loss, partial, dtype="float32")
    add_agg("all_masked_batch", loss, [[0, 0, 0]] * 3)
    add_agg("all_masked_part_of_a_batch", loss, [[0, 0, 0]] * 3, batch_num_tokens=40, global_batch_size=8, dp_size=2)
    for bad in (NAN, INF, -INF):
        add_agg(f"{bad}_under_mask", [[0.5, -1.25, bad], [0.3, 0.7, -0.9]], [[1, 1, 0], [1, 1, 1]])
        add_agg(f"{bad}_in_a_masked_row", [[0.5, -1.25, 1.0], [bad, 0.7, -0.9]], [[1, 1, 0], [0, 0, 0]])
        add_agg(f"{bad}_inside_mask", [[0.5, bad, 1.0], [0.1, 0.7, -0.9]], [[1, 1, 0], [1, 0, 0]])
    add_agg("one_token", [[0.75]], [[1]])
    add_agg("dp_size_alone", loss, partial, dp_size=3)
    leaf = tensor([[0.1]])
    inputs = {"loss_mat": leaf, "loss_mask": [[1.0]], "loss_agg_mode": "mean"}
    add("agg_loss", "unknown_mode", inputs, {"error": "ValueError: Invalid loss_agg_mode: mean"})


def policies():
    old = [[-1.0, -2.0, -0.5], [-0.25, -3.0, -1.5]]
    new = [[-0.8, -2.5, -0.1], [-0.3, -2.0, -1.6]]
    adv = [[1.5, 1.5, 1.5], [-0.75, -0.75, -0.75]]
    mask = [[1, 1, 0], [1, 1, 1]]

    def bad(matrix, value):
        return [[*matrix[0][:2], value], matrix[1]]

    for value in (NAN, INF, -INF):
        add_policy(f"log_prob_{value}_under_mask", bad(new, value), old, adv, mask)
        add_policy(f"old_log_prob_{value}_under_mask", new, bad(old, value), adv, mask)
        add_policy(f"advantage_{value}_under_mask", new, old, bad(adv, value), mask)
        inside = [[value, -2.5, -0.1], new[1]]
        add_policy(f"log_prob_{value}_inside_mask", inside, old, adv, mask, modes=MODES[:1])
    for dtype in DTYPES:
        for size in (19.5, 20.0, 20.5, 90.0, 1000.0):
            deltas = [[size, -size, size, -size, size, -size]]
            signs = [[1.0, 1.0, -1.0, -1.0, 0.0, 0.0]]
            add_policy(f"log_ratio_{size}_{dtype}", deltas, [[0.0] * 6], signs, [[1] * 6], dtype=dtype, modes=MODES[:1])
        edges = [[math.log(r) for r in (0.8, 1.0, 1.28, 3.0, 10.0, 12.0)]]
        for sign in (1.0, -1.0):
            add_policy(f"on_the_edges_{sign}_{dtype}", edges, [[0.0] * 6], [[sign] * 6], [[1] * 6], dtype=dtype, c=3.0)
            add_policy(f"on_the_edges_c10_{sign}_{dtype}", edges, [[0.0] * 6], [[sign] * 6], [[1] * 6], dtype=dtype)
    for kind in ("int", "bool"):
        add_policy(f"{kind}_mask", new, old, adv, mask, kind=kind)
        add_policy(f"{kind}_mask_f32", new, old, adv, mask, kind=kind, dtype="float32")
    add_policy("all_masked_row", new, old, adv, [[0, 0, 0], [1, 1, 1]])
    add_policy("all_masked_batch", new, old, adv, [[0, 0, 0], [0, 0, 0]])
    add_policy("zero_advantage", new, old, [[0.0] * 3] * 2, mask)
    case = {"old_log_prob": old, "log_prob": new, "advantages": adv, "response_mask": [[1.0] * 3] * 2}
    loss, clipped, kl, lower = policy_loss(
        *(tensor(case[k]) for k in case), 0.1, 0.1, 3.0, "token-mean"
    )
    outputs = {"pg_loss": loss, "pg_clipfrac": clipped, "ppo_kl": kl, "pg_clipfrac_lower": lower}
    add("compute_policy_loss", "only_required_keys", case | {"cliprange": 0.1}, outputs)
    error = {"error": "AssertionError"}
    add("compute_policy_loss", "c_of_one", case | {"cliprange": 0.2, "clip_ratio_c": 1.0}, error)

    info = {"dp_size": 4, "batch_num_tokens": 57, "global_batch_size": 16, "loss_scale_factor": 20480}
    add_policy("global_info", new, old, adv, mask, vanilla={"info": info})
    add_policy("global_info_all_masked", new, old, adv, [[0] * 3] * 2, vanilla={"info": info})
    weights = [[0.5, 2.0, NAN], [1.0, 0.25, 1.5]]
    add_policy("weight_nan_under_mask", new, old, adv, mask, vanilla={"weights": weights})
    add_policy("log_prob_nan_under_mask", bad(new, NAN), old, adv, mask, vanilla={})
    add_policy("int_mask", new, old, adv, mask, kind="int", vanilla={})


def advantages():
    def case(name, rewards, mask, index, kind="float", dtype="float64", **extra):
        for norm in (True, False):
            m = mask_of(mask, kind, dtype)
            result = grpo_advantage(tensor(rewards, dtype), m, index, extra.get("epsilon", 1e-6), norm)
            inputs = {"token_level_rewards": rewards, "response_mask": m, "index": index, **extra}
            inputs |= {"norm_adv_by_std_in_grpo": norm, "dtype": dtype}
            outputs = {"advantages": result, "returns": result}
            add("compute_grpo_outcome_advantage", f"{name}/norm_std={norm}", inputs, outputs)

    def ends(values, width=3):
        return [[0.0] * (width - 1) + [v] for v in values]

    for dtype in DTYPES:
        case(f"group_of_one_{dtype}", ends([1.0, -1.0, -1.3]), [[1, 1, 1]] * 3, ["a", "b", "c"], dtype=dtype)
        for value in (-1.3, 0.7, 1.0, 1 / 3, 1e-3):
            for size in (2, 5, 16):
                case(f"constant_{value:.3f}_x{size}_{dtype}", ends([value] * size), [[1, 1, 1]] * size, ["q"] * size, dtype=dtype)
        nearly = [1.0 + 1e-7 * i for i in range(6)]
        case(f"nearly_constant_{dtype}", ends(nearly), [[1, 1, 1]] * 6, ["q"] * 6, dtype=dtype)
    rewards = [[1.0, 0, 0], [0, 0, -1.0], [0, -0.5, 0], [0.0, 0, 0]]
    mask = [[1, 0, 0], [0, 0, 0], [1, 1, 0], [1, 1, 1]]
    case("empty_response_reward_on_the_last_column", rewards, mask, [7, 7, 7, 7])
    case("int_mask", rewards, mask, [1, 2, 1, 2], kind="int")
    case("bool_mask", rewards, mask, [1, 2, 1, 2], kind="bool")
    case("nan_reward_under_mask", [[1.0, 0, NAN], *rewards[1:]], mask, ["a", "a", "b", "b"])
    case("inf_reward", [[1.0, 0, INF], *rewards[1:]], mask, ["a", "a", "b", "b"])
    case("numbers_and_texts_are_groups", rewards, [[1, 1, 1]] * 4, [1, "1", 1, "1"])
    case("epsilon_of_a_tenth", rewards, [[1, 1, 1]] * 4, ["a"] * 4, epsilon=0.1)


def rewards():
    def rows(lengths, config, limit, padded, logged=True):
        result = []
        for i, length in enumerate(lengths):
            text = "Answer: 7" if i % 2 == 0 else ""
            # verl decodes the valid tokens (`__call__` of dapo.py): of none, empty text.
            graded = text if length > 0 else ""
            score = 1.0 if graded else -1.0
            reward, row = score, {}
            if config["enable"]:
                exceed = torch.tensor(length) - (limit - config["len"])
                penalty = min(-exceed / config["len"] * config["penalty_factor"], 0)
                reward = score + penalty
                if logged:
                    row = {"overlong_reward": float(penalty), "overlong": bool(penalty < 0)}
            line = torch.zeros(padded, dtype=torch.float32)
            line[length - 1] = reward
            row |= {
                "valid_response_length": length,
                "response_text": text,
                "ground_truth": "7",
                "score": score,
                "acc": bool(graded),
                "pred": "7" if graded else "[INVALID]",
                "reward_sum": float(line.sum()),
                "reward_nonzero_positions": line.nonzero().flatten().tolist(),
            }
            result.append(row)
        return {"rows": result, "reward_tensor_dtype": "float32"}

    def case(name, lengths, config, limit, padded, logged=True):
        inputs = {"padded_response_length": padded, "max_resp_len": limit, "overlong_buffer_cfg": config}
        add("dapo_overlong_reward_manager", name, inputs, rows(lengths, config, limit, padded, logged))

    def config(length, factor, **extra):
        return {"enable": True, "len": length, "penalty_factor": factor, "log": True, **extra}

    case("empty_response", [0, 0, 1], config(4, 1.0), 10, 10)
    case("buffer_of_seven", list(range(0, 21)), config(7, 1.0), 20, 20)
    case("odd_factor", list(range(10, 21)), config(7, 0.3), 20, 20)
    case("beyond_the_limit", [20, 21, 24, 30], config(7, 1.0), 20, 30)
    case("buffer_longer_than_the_limit", [0, 1, 5, 10], config(16, 1.0), 10, 10)
    case("not_logged", [3, 9, 10], config(4, 1.0, log=False), 10, 10, logged=False)
    case("disabled", [0, 5, 10], {"enable": False, "len": 4, "penalty_factor": 1.0, "log": True}, 10, 10)
    inputs = {"padded_response_length": 4, "max_resp_len": 4, "overlong_buffer_cfg": None}
    add("dapo_overlong_reward_manager", "no_config", inputs, {"error": "AttributeError"})


def sampling():
    def case(name, groups, n, target, cap, metric="acc"):
        batches, trajectory = [], 0
        for b, batch in enumerate(groups):
            made = {"uid": [], "traj_id": [], "metric_values": []}
            for uid, value in batch:
                made["uid"].append(f"b{b}{uid}")
                made["traj_id"].append(trajectory)
                made["metric_values"].append(value)
                trajectory += 1
            batches.append(made)
        inputs = {"rollout_n": n, "train_batch_size": target, "max_num_gen_batches": cap, "metric": metric}
        outputs = dynamic_sampling(batches, n, target, cap, metric)
        add("dynamic_sampling_filter", name, inputs | {"gen_batches": batches}, outputs)

    def group(uid, *values):
        return [(uid, value) for value in values]

    good, solved, failed = (1, 0), (1, 1), (0, 0)
    case("group_of_one_is_kept", [group("p", 1) + group("q", 0)], 1, 2, 10)
    case("cap_of_one", [group("p", *good) + group("q", *solved)], 2, 2, 1)
    case("cap_after_a_step", [group("p", *good), group("q", *solved), group("r", *failed), group("s", *good)], 2, 1, 2)
    case("full_at_the_cap", [group("p", *good), group("q", *good)], 2, 2, 2)
    case("data_end_with_a_rest", [group("p", *good) + group("q", *good), group("r", *good)], 2, 2, 10)
    case("negative_cap_is_none", [group("p", *solved)] * 5, 2, 1, -1)
    interleaved = [("p", 1), ("q", 0), ("r", 1), ("p", 0), ("q", 1), ("r", 1)]
    case("interleaved_prompts", [interleaved, interleaved], 2, 3, 10)
    case("unequal_groups_are_cut_by_row", [group("p", 1, 0, 1) + group("q", 0, 1) + group("r", 1, 0, 0)], 2, 3, 10)
    flags = group("p", True, False) + group("q", True, True)
    case("truth_values", [flags], 2, 1, 10)
    # One value in float32, two in float64.
    for metric in (*OF_TENSORS, "score"):
        for n in (2, 3, 8):
            batch = [group("p", *[0.3] * (n - 1), 0.1 + 0.2) + group("q", *[0.3] * (n - 1), 0.5)]
            case(f"tenths_as_{metric}_x{n}", batch, n, 1, 3, metric=metric)
    for value in (0.1, 0.7, -1.3, 1 / 3, 1.0):
        for n in (2, 3, 5, 7, 8, 9, 16, 130, 300):
            batch = [group("p", *[value] * n) + group("q", *[value] * (n - 1), value + 0.5)]
            case(f"constant_reward_{value:.3f}_x{n}", batch, n, 1, 3, metric="seq_final_reward")


def estimates():
    new = [[-0.5, -30.0, -1.0, -2.0], [-1.0, -40.0, -0.1, -5.0]]
    ref = [[-0.6, -1.0, -1.0, -25.0], [-4.5, -1.0, NAN, -5.0]]
    for dtype in DTYPES:
        for name in ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3"):
            leaf = tensor(new, dtype).requires_grad_(True)
            kl = kl_penalty(leaf, tensor(ref, dtype), name)
            (grad,) = torch.autograd.grad(kl.sum(), leaf)
            inputs = {"logprob": new, "ref_logprob": ref, "kl_penalty": name, "dtype": dtype}
            add("kl_penalty", f"{name}_far_apart_{dtype}", inputs, {"kl": kl, "grad_logprob_of_sum": grad})
    for name in ("k2+", "full", "K1"):
        inputs = {"logprob": new, "ref_logprob": new, "kl_penalty": name}
        add("kl_penalty", name, inputs, {"error": "NotImplementedError"})

    logits = [[[1e3, 0.0, -1e3], [2.0, 2.0, 2.0]], [[-0.5, 0.25, 3.0], [80.0, -80.0, 79.0]]]
    labels, mask = [[2, 0], [1, 2]], [[1, 1], [1, 0]]
    for dtype in DTYPES:
        for m in (mask, [[1, 0], [0, 0]]):
            leaf = tensor(logits, dtype).requires_grad_(True)
            index = torch.tensor(labels).unsqueeze(-1)
            entropy = torch.logsumexp(leaf, -1) - (torch.softmax(leaf, -1) * leaf).sum(-1)
            lp = torch.log_softmax(leaf, -1).gather(-1, index).squeeze(-1)
            short = leaf.detach().float().reshape(-1, 3)
            chunked = torch.logsumexp(short, -1) - (torch.softmax(short, -1) * short).sum(-1)
            loss_mask = tensor(m, dtype)
            outputs = {
                "entropy_from_logits": entropy,
                "grad_entropy_sum_wrt_logits": torch.autograd.grad(entropy.sum(), leaf, retain_graph=True)[0],
                "entropy_from_logits_with_chunking_f32_flat": chunked,
                "logprobs_naive": lp,
                "grad_logprob_sum_wrt_logits": torch.autograd.grad(lp.sum(), leaf, retain_graph=True)[0],
                "logprobs_v2": leaf.gather(-1, index).squeeze(-1) - torch.logsumexp(leaf, -1),
                "logprobs_temperature_scaled": torch.log_softmax(leaf / 0.5, -1).gather(-1, index).squeeze(-1),
                "compute_entropy_loss": {mode: agg_loss(entropy, loss_mask, mode) for mode in MODES},
            }
            inputs = {"logits": logits, "labels": labels, "response_mask": loss_mask, "temperature_for_scaled": 0.5}
            note = "tolerance 1e-3: logits of 1e3 in float32" if dtype == "float32" else ""
            add("entropy_and_logprobs", f"wide_logits_{dtype}_{m[0][1]}", inputs | {"dtype": dtype}, outputs, note)


def training():
    for warmup in (0, -1, 1, 3, 10):
        rates = [1e-6 * (min(1.0, s / max(1, warmup)) if s < warmup else 1.0) for s in range(31)]
        inputs = {"lr": 1e-6, "lr_warmup_steps": warmup}
        add("lr_schedule", f"warmup_{warmup}", inputs, {"lr_at_rollout_step_0..30": rates})

    def adamw(name, start, grads, lr, betas=(0.9, 0.999), eps=1e-8, decay=0.1, clip=1.0, drop=()):
        p = torch.nn.Parameter(tensor(start))
        optimizer = torch.optim.AdamW([p], lr=lr, betas=betas, eps=eps, weight_decay=decay)
        after, norms = [], []
        for grad in grads:
            p.grad = tensor(grad)
            norms.append(torch.nn.utils.clip_grad_norm_([p], clip))
            optimizer.step()
            after.append(p.detach().clone())
        inputs = {"p0": start, "grads": grads, "lr": lr, "betas": list(betas), "eps": eps}
        inputs |= {"weight_decay": decay, "grad_clip_max_norm": clip}
        inputs = {key: value for key, value in inputs.items() if key not in drop}
        add("adamw_with_grad_clip", name, inputs, {"params_after_each_step": after, "pre_clip_grad_norms": norms})

    adamw("zero_gradients", [1.0, -2.0], [[0.0, 0.0]] * 3, 1e-2)
    adamw("huge_and_tiny", [1.0, -2.0, 0.0], [[1e30, 1e-30, 0.0], [-1e30, 1e-30, 1.0]], 1e-3)
    adamw("nan_gradient", [1.0, -2.0], [[0.1, 0.2], [NAN, 0.1], [0.1, 0.1]], 1e-3)
    adamw("infinite_gradient", [1.0, -2.0], [[0.1, 0.2], [INF, 0.1]], 1e-3)
    adamw("no_decay_other_betas", [0.3], [[0.5], [0.25], [-0.75]], 0.1, (0.8, 0.95), 1e-6, 0.0, 100.0)
    adamw("long_run", [0.3, -0.4], [[math.sin(i), math.cos(3 * i)] for i in range(200)], 1e-2)
    adamw("defaults_left_out", [0.3, 1.0], [[0.5, -1.0]], 1e-2, decay=0.01, drop=("betas", "eps", "weight_decay"))

    for name, lengths, ranks in [
        ("ties", [7, 7, 7, 7, 7, 7, 7, 7], 4),
        ("many_ties", [5, 9, 5, 9, 9, 5, 1, 1, 1, 9, 5, 1], 3),
        ("one_rank", [50, 10, 40, 20, 30], 1),
        ("zero_length", [0, 3, 0, 8], 2),
        ("one_row_each", [4, 2, 9], 3),
        ("long", [(i * 7919) % 4096 + 1 for i in range(96)], 8),
    ]:
        add("balance_batch", name, {"seqlens": lengths, "dp_size": ranks}, balance_batch(lengths, ranks))
    add("balance_batch", "does_not_divide", {"seqlens": [1, 2, 3], "dp_size": 2}, {"error": "AssertionError"})

    def accumulation(name, ranks):
        per_rank, total, summed = [], 0.0, 0.0
        for rank in ranks:
            rows = sum(len(mask) for _, mask in rank)
            value = 0.0
            for loss, mask in rank:
                value = value + agg_loss(tensor(loss), tensor(mask), "token-mean") * (len(mask) / rows)
                total += float(tensor(mask).sum())
                summed += float(masked_sum(tensor(loss), tensor(mask)))
            per_rank.append(float(value))
        inputs = {
            "ranks_micro_lengths": [[[sum(row) for row in mask] for _, mask in rank] for rank in ranks],
            "loss_mats": [[loss for loss, _ in rank] for rank in ranks],
            "loss_masks": [[[[float(v) for v in row] for row in mask] for _, mask in rank] for rank in ranks],
            "loss_agg_mode": "token-mean",
        }
        outputs = {
            "legacy_fsdp_dynamic_bsz_loss": sum(per_rank) / len(per_rank),
            "per_rank_legacy": per_rank,
            "global_token_mean_loss": summed / total if total else NAN,
            "total_tokens": total,
        }
        add("token_mean_gradient_accumulation", name, inputs, outputs)

    first = ([[0.5, -1.0, 2.0], [0.25, NAN, NAN]], [[1, 1, 1], [1, 0, 0]])
    second = ([[1.5, 0.75, -0.5]], [[1, 1, 0]])
    empty = ([[0.1, 0.2, 0.3]], [[0, 0, 0]])
    accumulation("two_ranks", [[first, second], [second]])
    accumulation("one_row_each", [[second, second, ([[3.0, 0.0, 0.0]], [[1, 0, 0]])]])
    accumulation("empty_micro_batch", [[first, empty]])
    accumulation("empty_batch", [[empty]])


if __name__ == "__main__":
    torch.set_num_threads(1)
    for make in (losses, policies, advantages, rewards, sampling, estimates, training):
        make()
    for file, cases in sorted(FILES.items()):
        meta = {
            "function": file,
            "source": "generate.py: a re-implementation of verl b178a3cd56f58b2d502255daba591e92833930a7",
            "torch_version": torch.__version__,
            "numpy_version": numpy.__version__,
            "n_cases": len(cases),
        }
        body = ",\n".join(json.dumps(case) for case in cases)
        with open(f"{file}.json", "w", encoding="utf-8") as out:
            out.write(f'{{"meta": {json.dumps(meta)},\n"cases": [\n{body}\n]}}\n')
        print(file, len(cases))
