"""The configuration that the installed verl composes, as JSON on the last line of standard output.

Standard input is JSON: `overrides`, a list, and `name`, the configuration that they are of; or `text`, YAML with a
`defaults` list, and `folder`, where it lies. What Hydra does not compose is `refused`, with Hydra's reason.
"""

import importlib.metadata
import importlib.util
import json
import pathlib
import sys
import tempfile

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

# Names that verl reads below tables that its own configuration lacks or has empty, and tables that are looked at as a whole.
READ = (".max_resp_len", *(f".overlong_buffer_cfg.{name}" for name in ("enable", "len", "penalty_factor", "log")))
ELSEWHERE = ("custom_reward_function", "override_optimizer_config", "mixed_precision")


def leaves(value, path=""):
    if not isinstance(value, dict) or not value:
        return {path: value}
    return {name: leaf for key, child in value.items() for name, leaf in leaves(child, f"{path}.{key}" if path else key).items()}


def migrated(config, root):
    """As `main` of an earlier version does it before anything reads the configuration."""
    if "migrate_legacy_reward_impl" not in (root / "trainer/main_ppo.py").read_text():
        return config
    try:
        from verl.experimental.reward_loop.reward_loop import migrate_legacy_reward_impl
    except ImportError:  # needs PyTorch; the caller moves the keys that it looks at
        return config
    return migrate_legacy_reward_impl(config)


def validation(config):
    """Why verl's own validation refuses the configuration, and why that is not known."""
    try:
        from verl.trainer.ppo.utils import need_reference_policy
        from verl.utils.config import validate_config
    except ImportError as error:
        return {"validation": None, "unchecked": str(error)}
    try:
        # Without the critic, whose check reads a model from the disk.
        validate_config(config, need_reference_policy(config), False)
    except Exception as error:
        return {"validation": " ".join(str(error).split())}
    return {"validation": None}


def composed(asked, own, work):
    """The configuration, and that of verl's own groups alone."""
    name, overrides = asked.get("name", "ppo_trainer"), asked.get("overrides", [])
    groups = [it for it in overrides if "." not in it.split("=")[0] and it[0] not in "+~"]
    with initialize_config_dir(str(own), version_base=None):
        if "text" not in asked:
            return compose(name, overrides=overrides), compose(name, overrides=groups)
        base = compose(name)
    (work / "theirs.yaml").write_text(asked["text"])
    places = ",".join(json.dumps(f"file://{place}") for place in (asked["folder"], own))
    with initialize_config_dir(str(work), version_base=None):
        return compose("theirs", overrides=[f"hydra.searchpath=[{places}]"]), base


def main():
    asked = json.load(sys.stdin)
    found = importlib.util.find_spec("verl")
    if found is None:
        sys.exit("verl is not installed")
    root = pathlib.Path(found.submodule_search_locations[0])
    with tempfile.TemporaryDirectory() as work:
        try:
            config, base = composed(asked, root / "trainer/config", pathlib.Path(work))
            before = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
        except (Exception, MemoryError) as error:
            print("\n" + json.dumps({"refused": " ".join(f"{type(error).__name__}: {error}".split())}))
            return
    known, written = leaves(OmegaConf.to_container(base)), leaves(OmegaConf.to_container(config))
    changed = [name for name, value in written.items() if name in known and value != known[name]]
    tables = tuple(name + "." for name in known)
    # verl reads `reward_kwargs`, which its own configuration lacks.
    is_read = lambda name: name.endswith(READ) or any(f".{table}." in name for table in ELSEWHERE)
    below = lambda name: name.startswith(tables) or ".reward_kwargs." in name
    own = lambda name: name in known or below(name) and (is_read(name) or ".overlong_buffer_cfg." not in name)
    changed += [name for name in written if name not in known and own(name) and not is_read(name)]
    added = [name for name in leaves(before) if not own(name)]
    trusted()
    config = migrated(config, root)
    problem = validation(config)
    effective = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    version = importlib.metadata.version("verl")
    print()
    recipe = "overlong_buffer" in (before.get("reward_model") or {})
    found = {"version": version, "effective": effective, "added": added, "changed": changed, "recipe": recipe}
    print(json.dumps({**found, **problem}))


try:
    main()
except Exception as error:
    sys.exit(" ".join(f"{type(error).__name__}: {error}".split()))
