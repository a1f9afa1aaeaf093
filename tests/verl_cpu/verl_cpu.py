"""verl 0.9.1 on a processor, through verl's own extension points: a test instrument, never a way to train.

VERL_USE_EXTERNAL_MODULES names this module, so that every process of verl imports it; the program `python` beside
it does. What verl needs, and where it takes it from:

| Piece | Place in verl |
|---|---|
| a platform "cpu": names of the device, gloo, CUDA's calls that do nothing here | plugin.platform.PlatformRegistry |
| a rollout "cpu": a Ray actor that samples | workers.rollout: RolloutReplicaRegistry, _ROLLOUT_REGISTRY (private) |
| an agent loop for tokenizers without a newline | rollout.agent.agent_loop_config_path |
| FSDP's engine, registered for cuda and npu alone | the environment: VERL_ENGINE_DEVICE=cuda |
| the backend of the process group, where verl's text names the device "cpu" twice | replaced here |
| pinned memory of the offloaded reference policy, which asks for a driver of CUDA | replaced here |

Where VERL_CPU_UPDATES names a folder, each rank writes a line for each update there: rows and result, unrounded.
"""

import contextlib
import functools
import json
import os
import pathlib
import resource
import types

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

# More threads than one are slower for policies of a million weights, and two ranks share two cores.
torch.set_num_threads(1)


def largest_memory(*_):
    """Bytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def free_and_all_memory(*_):
    page = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page


def nothing(*_, **__):
    pass


# verl calls these functions of torch.cuda; torch.cpu lacks most of them.
DEVICE = types.SimpleNamespace(
    current_device=lambda: 0,
    device_count=lambda: 1,
    empty_cache=nothing,
    get_device_name=lambda *_: "processor",
    get_rng_state=torch.get_rng_state,
    is_available=lambda: True,
    max_memory_allocated=largest_memory,
    max_memory_reserved=largest_memory,
    mem_get_info=free_and_all_memory,
    memory_allocated=largest_memory,
    memory_reserved=largest_memory,
    reset_peak_memory_stats=nothing,
    set_device=nothing,
    set_rng_state=torch.set_rng_state,
    synchronize=nothing,
)


@PlatformRegistry.register(platform="cpu")
class Processor(PlatformBase):
    device_name = "cpu"
    vendor_name = "cpu"
    device_module = DEVICE

    # Tensor.to takes it, and would read 0 as cuda:0.
    current_device = lambda self: "cpu"
    device_count = lambda self: 1
    is_available = lambda self: True
    is_ipc_supported = lambda self: False
    get_device_capability = lambda self, device_index=0: (None, None)
    communication_backend_name = lambda self: "gloo"
    # verl's pool counts the resource "GPU"; Ray is told that a machine has one for each rank.
    ray_resource_name = lambda self: "GPU"
    ray_noset_envvars = lambda self: []
    visible_devices_envvar = lambda self: "CUDA_VISIBLE_DEVICES"
    cudart = lambda self: None
    nvtx_range = lambda self, msg: contextlib.nullcontext()
    manual_seed = manual_seed_all = lambda self, seed: torch.manual_seed(seed)
    empty_cache = profiler_start = profiler_stop = set_allocator_settings = set_device = synchronize = nothing


def use_gloo():
    from verl.utils import distributed

    start = distributed.initialize_global_process_group_ray
    distributed.initialize_global_process_group_ray = functools.partial(start, backend="cpu:gloo")


def add_rollout():
    from verl.workers.rollout import base, replica

    def load():
        import verl_cpu_rollout

        return verl_cpu_rollout.Replica

    base._ROLLOUT_REGISTRY[("cpu", "async")] = "verl_cpu_rollout.Adapter"
    replica.RolloutReplicaRegistry.register("cpu", load)


def rows_of(batch):
    """The rows of an update: token ids, the advantage, log π_old of each token. No token of a response is masked here."""
    keys = ("prompts", "responses", "response_mask", "advantages", "old_log_probs")
    for prompt, response, mask, advantages, old in zip(*(batch[key].unbind() for key in keys), strict=True):
        assert mask.bool().all() and len(advantages.unique()) == 1, "a masked token, or several advantages in a row"
        yield {
            "prompt": prompt.tolist(),
            "response": response.tolist(),
            "advantage": advantages[0].item(),
            "old_log_probs": [float(f"{value:.9g}") for value in old.tolist()],  # 9 digits tell an f32 from its neighbours
        }


def record_updates(folder):
    from verl.utils import tensordict_utils
    from verl.workers import engine_workers

    update = engine_workers.TrainingWorker.train_batch

    @functools.wraps(update)
    def recorded(self, data):
        learning_rate = self.engine.optimizer.param_groups[0]["lr"]
        rows = list(rows_of(data))
        output = update(self, data)
        metrics = tensordict_utils.get(output, "metrics")
        result = {name: metrics[name] for name in ("loss", "grad_norm")}
        path = pathlib.Path(folder) / f"rank-{torch.distributed.get_rank()}.jsonl"
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps({"learning_rate": learning_rate, **result, "rows": rows}) + "\n")
        return output

    engine_workers.TrainingWorker.train_batch = recorded


torch.Tensor.pin_memory = lambda self, device=None: self
use_gloo()
add_rollout()
if "VERL_CPU_UPDATES" in os.environ:
    record_updates(os.environ["VERL_CPU_UPDATES"])
