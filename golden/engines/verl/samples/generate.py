"""What Hydra composes of command lines of verl's own examples and of verl-recipe.

    python generate.py record SOURCES STUBS RECORDED
    PYTHON generate.py compose RECORDED VERSION RECIPES > VERSION.json
    PYTHON generate.py check DAPO VERSION.json

`check` holds what `dapo engine check` shows of each list of overrides, composed by the verl of PYTHON, against what it shows of
the output of `--cfg job`: it is the same, or the list is refused with the sentence. `record` runs each script below SOURCES in bash, without network, with STUBS as PATH: there `python3`, `python`, `ray` and
`torchrun` are this file under those names, which note their arguments and do nothing. `compose` needs hydra-core and that
version of verl (`pip install --no-deps`), and the configurations of verl-recipe below RECIPES. It keeps, of the argument
lists, what `--cfg job` prints (whole for a command without overrides, else as edits: line from 0, lines that go, lines that come),
and a digest of what OmegaConf resolves.

The kept files are of verl 0.7.1 (examples of v0.7.1, bec9ef74; verl-recipe at 6d8d5c12, its submodule there) and of verl 0.9.1
(examples of v0.9.0, 483b8a00, the newest tag with them; verl-recipe at e7f88957), with hydra-core 1.3.8. In SOURCES those folders are
verl-v0.7.1, recipe-old, verl-v0.9.0 and recipe-new; scripts that a version does not compose are left out, with Hydra's reason on
standard error.
"""

import difflib
import hashlib
import importlib.util
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

# Of each folder of scripts, and bytes of arguments and of edits: the rest differs in names of models, and in settings of
# Megatron that no check looks at.
MOST_OF_A_FOLDER = 2
MOST_BYTES = (4500, 2500)  # of the first, and of the second


def record(sources, stubs, recorded):
    for script in sorted(pathlib.Path(sources).rglob("*.sh")):
        name = "%".join(script.relative_to(sources).parts)
        environment = {"HOME": "/nonexistent", "PATH": stubs, "RECORD": str(pathlib.Path(recorded).resolve() / name)}
        command = ["timeout", "5", "unshare", "-n", "-r", "/bin/bash", script.name]
        subprocess.run(command, cwd=script.parent, env=environment, capture_output=True, stdin=subprocess.DEVNULL, check=False)


def noted():
    argv = sys.argv[1:]
    if "--" in argv:  # ray job submit … -- python3 …
        argv = argv[argv.index("--") + 2 :]
    with open(os.environ["RECORD"], "a") as file:
        file.write(json.dumps(argv) + "\n")


def split(argv):
    """The folder and name of the primary configuration, and the overrides."""
    module, overrides, name = argv[1], [], None
    words = iter(argv[2:])
    for word in words:
        if not word.startswith("--"):
            overrides.append(word)
            continue
        flag, is_joined, value = word.partition("=")
        value = value if is_joined else next(words)
        if flag == "--config-name":
            name = value.removesuffix(".yaml")
    if module == "verl.trainer.main_ppo":
        return "verl", name or "ppo_trainer", overrides
    if module == "recipe.dapo.main_dapo":
        return "dapo", name or "dapo_trainer", overrides
    return None


def printed(folder, name, overrides):
    """The standard output of a Hydra application with `--cfg job`, and the resolved configuration."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(folder), version_base=None):
        config = compose(name, overrides=overrides)
    return OmegaConf.to_yaml(config) + "\n", OmegaConf.to_container(config, resolve=True, throw_on_missing=False)


def written(value):
    """A value as its type and its bits."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{written(value[key])}" for key in sorted(value, key=str)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, float):
        return struct.pack(">d", value).hex()
    return json.dumps(value, ensure_ascii=False)


def compose_all(recorded, version, recipes):
    root = pathlib.Path(importlib.util.find_spec("verl").submodule_search_locations[0])
    folders = {"verl": root / "trainer/config", "dapo": pathlib.Path(recipes).resolve() / "dapo/config"}
    recipe = [f"hydra.searchpath=[file://{root}/trainer/config]"]
    bases, samples, count = {}, [], {}
    for path in sorted(pathlib.Path(recorded).iterdir()):
        for line in path.read_text().splitlines():
            argv = json.loads(line)
            found = split(argv) if argv[:1] == ["-m"] else None
            where = "/".join(path.name.split("%"))
            family = where.rsplit("/", 1)[0]
            if found is None or count.get(family, 0) >= MOST_OF_A_FOLDER:
                continue
            folder, name, overrides = found
            extra = recipe if folder == "dapo" else []
            try:
                text, resolved = printed(folders[folder], name, overrides + extra)
            except Exception as error:
                print(f"{where}: {type(error).__name__}: {' '.join(str(error).split())[:150]}", file=sys.stderr)
                continue
            base = f"{folder}/{name}"
            if base not in bases:
                bases[base], _ = printed(folders[folder], name, extra)
            before, after = bases[base].splitlines(), text.splitlines()
            matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
            edits = [[i, j - i, after[k:l]] for tag, i, j, k, l in matcher.get_opcodes() if tag != "equal"]
            if max(len(json.dumps(overrides)), len(json.dumps(edits))) > MOST_BYTES[count.get(family, 0)]:
                continue
            count[family] = count.get(family, 0) + 1
            digest = hashlib.sha256(written(resolved).encode()).hexdigest()
            samples.append({"script": where, "base": base, "overrides": overrides, "edits": edits, "resolved": digest})
    each = [sample["base"] for sample in samples]
    # A whole text for one sample would be much, but for that of the DAPO recipe.
    samples = [it for it in samples if each.count(it["base"]) > 1 or it["base"] == "dapo/dapo_trainer"]
    used = {sample["base"] for sample in samples}
    one = lambda value: json.dumps(value, ensure_ascii=False)
    print('{"version": %s, "bases": {' % one(version))
    print(",\n".join(f"{one(base)}: {one(bases[base])}" for base in sorted(used)))
    print('}, "samples": [')
    print(",\n".join(one(sample) for sample in samples))
    print("]}")


def check(dapo, path):
    with open(path) as file:
        kept = json.load(file)
    refused, work = 0, pathlib.Path(tempfile.mkdtemp())

    def shown(name, text):
        (work / name).write_text(text)
        command = [dapo, "engine", "check", "verl", str(work / name), "--json", "--python", sys.executable]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    for sample in kept["samples"]:
        lines = kept["bases"][sample["base"]].splitlines()
        for at, gone, new in reversed(sample["edits"]):
            lines[at : at + gone] = new
        job = json.loads(shown("job.yaml", "\n".join(lines) + "\n").stdout)
        name = sample["base"].split("/")[1]
        (work / "hydra.yaml").write_text(json.dumps({"hydra": {"job": {"config_name": name}}}))
        found = shown("overrides.yaml", "".join(f"- {json.dumps(word)}\n" for word in sample["overrides"]))
        if "--cfg job" in found.stderr and not found.stdout:
            print(f"refused: {sample['script']}: {found.stderr[:300]}")
            refused += 1
        elif json.loads(found.stdout)["settings"] != job["settings"]:
            sys.exit(f"{sample['script']}: its overrides show other values than its --cfg job")
    shutil.rmtree(work)
    print(f"{len(kept['samples'])} samples of verl {kept['version']}: {refused} refused, all others the same")


if pathlib.Path(sys.argv[0]).name in ("python", "python3", "ray", "torchrun"):
    noted()
elif sys.argv[1] == "record":
    record(*sys.argv[2:])
elif sys.argv[1] == "check":
    check(*sys.argv[2:])
else:
    compose_all(*sys.argv[2:])
