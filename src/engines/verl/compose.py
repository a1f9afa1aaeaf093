"""The configuration that the installed verl composes, as JSON on the last line of standard output.

Standard input is JSON: `overrides`, a list; or `text`, what a user wrote: YAML where `yaml` is true, else
overrides, one a line, or the shell script that passes them.
"""

import ast
import importlib.metadata
import importlib.util
import json
import operator
import pathlib
import re
import shlex
import sys

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf, open_dict

ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}


def computed(node):
    if isinstance(node, ast.BinOp):
        return ARITHMETIC[type(node.op)](computed(node.left), computed(node.right))
    return node.value


def filled(text, variables):
    """The text with its shell variables and arithmetic filled in."""

    def value(match):
        name, default = match.group("name") or match.group("bare"), match.group("default")
        if name in variables:
            return variables[name]
        if default is None:
            sys.exit(f"the script's variable {name} is not set in it; write its value")
        return filled(default, variables)

    def whole(match):
        names = re.sub(r"(?<![\w$}{])([A-Za-z_]\w*)", r"${\1}", match.group(1))
        return str(computed(ast.parse(filled(names, variables).strip(), mode="eval").body))

    text = re.sub(r"\$\(\((.*?)\)\)", whole, text)
    return re.sub(r"\$\{(?P<name>\w+)(:?-(?P<default>[^{}]*))?\}|\$(?P<bare>[A-Za-z_]\w*)", value, text)


def of_script(text):
    """The overrides that a shell script passes to main_ppo."""
    if "main_dapo" in text:
        sys.exit("the script starts main_dapo, whose configuration is not part of verl; check the YAML that its run prints")
    variables, overrides = {}, None
    for line in re.sub(r"\\\s*\n", " ", text).splitlines():
        assigned = re.fullmatch(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)", line)
        if overrides is None and assigned:
            words = shlex.split(filled(assigned.group(2), variables), comments=True)
            variables[assigned.group(1)] = words[0] if words else ""
        elif "main_ppo" in line and not line.lstrip().startswith("#"):
            words = shlex.split(filled(line.split("main_ppo", 1)[1], variables), comments=True)
            overrides = [word for word in words if word != "$@"]
    if overrides is None:
        sys.exit("the script does not start verl.trainer.main_ppo")
    for word in overrides:
        if "$" in word.replace("${oc.", ""):
            sys.exit(f"{word}: what the shell makes of it is not known; write its value")
    return overrides


def of_text(text):
    if "main_" in text or re.search(r"\\\s*\n", text):
        return of_script(text)
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def leaves(value, path=""):
    if not isinstance(value, dict) or not value:
        return {path: value}
    return {name: leaf for key, child in value.items() for name, leaf in leaves(child, f"{path}.{key}" if path else key).items()}


def migrated(config, root):
    """As `main` of an earlier version does it before anything reads the configuration."""
    if "migrate_legacy_reward_impl" not in (root / "trainer/main_ppo.py").read_text():
        return config
    from verl.experimental.reward_loop.reward_loop import migrate_legacy_reward_impl

    return migrate_legacy_reward_impl(config)


def validation(config):
    """Why verl's own validation refuses the configuration."""
    try:
        from verl.trainer.ppo.utils import need_reference_policy
        from verl.utils.config import validate_config
    except ImportError as error:
        return f"verl's validation cannot be loaded: {error}"
    try:
        # Without the critic, whose check reads a model from the disk.
        validate_config(config, need_reference_policy(config), False)
    except Exception as error:
        return " ".join(str(error).split())
    return None


def main():
    asked = json.load(sys.stdin)
    found = importlib.util.find_spec("verl")
    if found is None:
        sys.exit("verl is not installed")
    root = pathlib.Path(found.submodule_search_locations[0])
    with initialize_config_dir(str(root / "trainer/config"), version_base=None):
        overrides = asked.get("overrides") or ([] if asked.get("yaml") else of_text(asked["text"]))
        groups = [it for it in overrides if "." not in it.split("=")[0] and it[0] not in "+~"]
        base = compose("ppo_trainer", overrides=groups)
        known = set(leaves(OmegaConf.to_container(base)))
        if asked.get("yaml"):
            theirs = OmegaConf.create(asked["text"])
            with open_dict(theirs):
                for name in ("defaults", "hydra"):
                    theirs.pop(name, None)
            OmegaConf.set_struct(base, False)
            config = OmegaConf.merge(base, theirs)
        else:
            config = compose("ppo_trainer", overrides=overrides)
    tables = tuple(name + "." for name in known)
    # verl reads `reward_kwargs`, which its own configuration lacks.
    own = lambda name: name in known or name.startswith(tables) or ".reward_kwargs." in name
    added = [name for name in leaves(OmegaConf.to_container(config)) if not own(name)]
    config = migrated(config, root)
    problem = validation(config)
    effective = OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
    version = importlib.metadata.version("verl")
    print()
    print(json.dumps({"version": version, "effective": effective, "added": added, "validation": problem}))


try:
    main()
except Exception as error:
    sys.exit(" ".join(f"{type(error).__name__}: {error}".split()))
