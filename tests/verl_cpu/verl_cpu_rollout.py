"""verl's rollout "cpu": a Ray actor that samples with transformers; the requests that wait are one batch.

What is drawn for a request hangs on the seed, its prompt and how often that prompt was asked for since the weights came:
not on what else is in the batch, but for rounding. verl's own servers draw with one generator for all.
"""

import asyncio
import collections
import hashlib
import os

import ray
import torch
from transformers import AutoModelForCausalLM, DynamicCache
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput


class WithoutNewline(SingleTurnAgentLoop):
    """verl's own loop. For Qwen's types of model that one wants the token of a newline, which the tokenizer may lack."""

    def __init__(self, *args, hf_model_type=None, **kwargs):
        super().__init__(*args, hf_model_type=None, **kwargs)


def server_name(rank):
    return f"cpu_server_{rank}"


class Replica(RolloutReplica):
    """One server for each rank of the trainer."""

    async def launch_servers(self):
        options = {"name": server_name(self.replica_rank), "max_concurrency": self.max_concurrency, "num_cpus": 0}
        server = ray.remote(Server).options(**options).remote(self.config, self.model_config, self.replica_rank)
        await server.sleep.remote()  # it has loaded the policy
        self.servers = [server]
        self._server_handle, self._server_address = server, f"cpu:{self.replica_rank}"


class Adapter(BaseRollout):
    """In each trainer's process: hands the weights to its server."""

    async def resume(self, tags):
        pass

    async def release(self):
        pass

    async def update_weights(self, weights, wire_format="named_tensors", global_steps=None, **_):
        weights = {name: weight.detach().cpu() for name, weight in weights}
        await ray.get_actor(server_name(int(os.environ["RANK"]))).load.remote(weights, global_steps)


Request = collections.namedtuple("Request", "sampling prompt uniforms done")


class Server:
    def __init__(self, config, model_config, rank):
        torch.set_num_threads(1)
        path = getattr(model_config, "local_path", None) or model_config.path
        self.kind = {"bfloat16": torch.bfloat16, "float32": torch.float32}[config.dtype]
        self.model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="sdpa", dtype=self.kind).eval()
        stops = self.model.generation_config.eos_token_id
        self.stops = torch.tensor(stops if isinstance(stops, list) else [stops])
        self.config, self.rank, self.steps = config, rank, None
        self.asked = collections.Counter()
        self.waiting, self.running, self.sampler = [], 0, None

    async def load(self, weights, steps):
        weights = {name: weight.to(self.kind) for name, weight in weights.items()}
        missing, unknown = self.model.load_state_dict(weights, strict=False)
        assert not unknown and set(missing) <= {"lm_head.weight"}, f"{missing=} {unknown=}"
        self.steps = steps
        self.asked.clear()

    async def generate(self, prompt_ids, sampling_params, request_id, **_):
        prompt = tuple(prompt_ids)
        room = min(self.config.response_length, self.config.prompt_length + self.config.response_length - len(prompt))
        limit = sampling_params.get("max_tokens") or sampling_params.get("max_new_tokens") or room
        sampling = tuple(sampling_params[name] for name in ("temperature", "top_k", "top_p")) + (limit,)
        done = asyncio.get_running_loop().create_future()
        self.waiting.append(Request(sampling, prompt, self.uniforms(prompt, limit), done))
        if self.sampler is None:
            self.sampler = asyncio.create_task(self.sample_all())
        tokens, log_probs, stopped = await done
        return TokenOutput(
            token_ids=tokens,
            log_probs=log_probs,
            stop_reason="stop" if stopped else "length",
            extra_fields={"global_steps": self.steps},
        )

    def uniforms(self, prompt, limit):
        self.asked[prompt] += 1
        key = repr((self.config.seed, self.rank, self.steps, prompt, self.asked[prompt]))
        seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
        return torch.rand(limit, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    async def sample_all(self):
        while self.waiting:
            await asyncio.sleep(0.05)  # others are on their way
            sampling = self.waiting[0].sampling
            batch = [it for it in self.waiting if it.sampling == sampling][: self.config.max_num_seqs]
            taken = set(map(id, batch))
            self.waiting = [it for it in self.waiting if id(it) not in taken]
            self.running = len(batch)
            batch.sort(key=lambda it: (it.prompt, it.uniforms[0].item()))
            try:
                for request, output in zip(batch, await asyncio.to_thread(self.sample, batch, *sampling), strict=True):
                    request.done.set_result(output)
            except Exception as error:
                for request in batch:
                    request.done.set_exception(error)
            self.running = 0
        self.sampler = None

    @torch.no_grad()
    def sample(self, batch, temperature, top_k, top_p, limit):
        """(tokens, log-probs, whether it stopped) of each request."""
        torch.set_num_threads(1)
        longest = max(len(it.prompt) for it in batch)
        ids = torch.tensor([[0] * (longest - len(it.prompt)) + list(it.prompt) for it in batch])
        mask = torch.tensor([[0] * (longest - len(it.prompt)) + [1] * len(it.prompt) for it in batch])
        uniforms = torch.stack([it.uniforms for it in batch])
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        rows, cache, drawn = torch.arange(len(batch)), DynamicCache(), [[] for _ in batch]
        for place in range(limit):
            inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
            logits = self.model(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[:, -1]
            log_probs = distribution(logits, temperature, top_k, top_p)
            tokens = draw(log_probs, uniforms[rows, place], greedy=temperature == 0)
            chosen = log_probs.gather(1, tokens[:, None])[:, 0]
            stopped = torch.isin(tokens, self.stops)
            for row, *token in zip(rows.tolist(), tokens.tolist(), chosen.tolist(), stopped.tolist(), strict=True):
                drawn[row].append(token)
            left = (~stopped).nonzero()[:, 0]
            if len(left) == 0:
                break
            if len(left) < len(rows):
                cache.batch_select_indices(left)
            rows, ids, positions = rows[left], tokens[left, None], positions[left, -1:] + 1
            mask = torch.cat([mask[left], mask.new_ones(len(left), 1)], dim=1)
        return [([it[0] for it in row], [it[1] for it in row], row[-1][2]) for row in drawn]

    async def sleep(self):
        while self.waiting or self.running:
            await asyncio.sleep(0.02)

    async def wake_up(self, tags=None):
        pass

    async def clear_kv_cache(self):
        pass


def distribution(logits, temperature, top_k, top_p):
    """Log-probs after temperature, top-k and top-p."""
    logits = logits.float() / (temperature or 1.0)
    if 0 < top_k < logits.shape[-1]:
        logits = logits.masked_fill(logits < logits.topk(top_k).values[:, -1:], -torch.inf)
    if top_p < 1.0:
        ordered, order = logits.sort(descending=True)
        mass = ordered.softmax(-1)
        outside = mass.cumsum(-1) - mass >= top_p
        logits = logits.masked_fill(outside.scatter(1, order, outside), -torch.inf)
    return logits.log_softmax(-1)


def draw(log_probs, uniforms, greedy):
    """The token at which the sum of the probabilities passes the uniform number."""
    if greedy:
        return log_probs.argmax(-1)
    sums = log_probs.double().exp().cumsum(-1)
    passed = sums > uniforms[:, None] * sums[:, -1:]
    return passed.int().argmax(-1)
