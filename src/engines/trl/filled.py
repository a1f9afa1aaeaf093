"""Every value of the installed GRPOConfig that has the settings on standard input, as JSON on standard output.

Standard input is JSON: `values`, and the number of `processes` that share a pass. `unknown` are keys that TRL's own
command line does not take either, `changed` those whose values are not TRL's own; `version` is TRL's.
"""

trusted()

import dataclasses
import importlib
import importlib.metadata
import json
import sys
import tempfile

from trl import GRPOConfig

# What `trl grpo --config` takes besides.
BESIDE = [("trl", "ScriptArguments"), ("trl", "ModelConfig"), ("trl.scripts.grpo", "GRPOScriptArguments")]


def names(kind):
    return [field.name for field in dataclasses.fields(kind) if field.init]


def beside(module, name):
    try:
        return names(getattr(importlib.import_module(module), name))
    except (ImportError, AttributeError):
        return []


def main():
    asked = json.load(sys.stdin)
    stated, processes = asked["values"], asked["processes"]
    GRPOConfig.world_size = property(lambda config: processes)
    own = names(GRPOConfig)
    known = {name: value for name, value in stated.items() if name in own}
    if known.get("steps_per_generation") is not None:
        known.pop("generation_batch_size", None)  # a whole configuration states both, and TRL takes one
    # Without a card transformers refuses bf16 and tf32; what is computed where is not asked here.
    places = {"output_dir": tempfile.mkdtemp(), "use_cpu": True, "tf32": None}
    config, plain = GRPOConfig(**{**known, **places}), GRPOConfig(**places)
    value = lambda of, name: getattr(getattr(of, name), "value", getattr(of, name))
    others = {"config", "env"}.union(*(beside(*where) for where in BESIDE))
    found = {
        "values": {name: value(config, name) for name in own},
        "unknown": [name for name in stated if name not in own and name not in others and not name.startswith("harness.")],
        "version": importlib.metadata.version("trl"),
        "changed": [name for name in known if value(config, name) != value(plain, name)],
    }
    print("\n" + json.dumps(found, default=str))


main()
