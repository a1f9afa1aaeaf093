"""Prints problems of reasoning-gym as lines of JSON: what is known of them, then one line a problem.

Standard input has {"datasets": [names], "sizes": [train, dev, test], "seed", "settings": {key or dataset.key: value}}. A problem whose
question came before is passed over. `entry` is what the dataset's own scorer reads. What the package prints goes to standard error.
"""

import difflib
import importlib.metadata
import json
import os
import sys

lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
sys.stdout = sys.stderr

import reasoning_gym

request = json.loads(sys.stdin.read())
sizes = dict(zip(("train", "dev", "test"), request["sizes"]))
FLAGS = {"seed": "--seed", "size": "--sizes"}


def belongs(key, name):
    dataset, dot, own = key.rpartition(".")
    if dot and dataset not in request["datasets"]:
        raise SystemExit(f"the setting {key} is of no dataset that is asked for")
    if own in FLAGS:
        raise SystemExit(f"{key} is no setting of --with: {FLAGS[own]} states it")
    return not dot or dataset == name


def of_dataset(name, settings, function, *arguments, **named):
    try:
        return function(*arguments, **named)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise SystemExit(f"{name} with {json.dumps(settings)}: {reason}; --with states settings of its configuration") from None


def has_full_score(data, answer, entry):
    try:
        return answer is None or data.score_answer(answer, entry) >= 1
    except Exception:
        return False


def check(names):
    known = sorted(reasoning_gym.factory.DATASETS)
    for name in names:
        if names.count(name) > 1:
            raise SystemExit(f"the dataset {name} is stated twice: state it once")
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.7)
            advice = f"did you mean {near[0]}?" if near else f"there are {len(known)}, such as {', '.join(known[:5])}"
            raise SystemExit(f"reasoning-gym has no dataset {name}; {advice}")
        if name == "composite":
            raise SystemExit("composite is made of other datasets: name them instead, with commas between them")


check(request["datasets"])
known = set()
repeated = unscored = 0
print(json.dumps({"version": importlib.metadata.version("reasoning-gym")}), file=lines)
for name in request["datasets"]:
    wanted = [(place, size) for place in ("test", "dev", "train") for size in [sizes[place]] for _ in range(size)]
    most = 4 * len(wanted) + 100
    settings = {key.removeprefix(f"{name}."): value for key, value in request["settings"].items() if belongs(key, name)}
    data = of_dataset(name, settings, reasoning_gym.create_dataset, name, seed=request["seed"], size=most, **settings)
    index = 0
    while wanted and index < most:
        entry = of_dataset(name, settings, data.__getitem__, index)
        index += 1
        if entry["question"] in known:
            repeated += 1
            continue
        known.add(entry["question"])
        entry = json.loads(json.dumps(entry))
        answer = entry["answer"]
        # The scorer must take what stands in the file.
        if not has_full_score(data, answer, entry):
            unscored += 1
            continue
        problem = {
            "question": entry["question"],
            "answer": "" if answer is None else answer,
            "tags": [name],
            "data_source": "reasoning-gym",
            "extra_info": {"dataset": name, "settings": settings, "entry": entry},
        }
        print(json.dumps({"set": wanted.pop(0)[0], "dataset": name, "problem": problem}), file=lines)
    if wanted:
        found = sum(sizes.values()) - len(wanted)
        raise SystemExit(f"{name} with {json.dumps(settings)} makes {found} of the {found + len(wanted)} different problems that --sizes asks for: ask for fewer, or for others by --with")
print(json.dumps({"repeated": repeated, "unscored": unscored}), file=lines)
