"""Prints problems of reasoning-gym as lines of JSON: what is known of them, then one line a problem.

Standard input has {"datasets": [names], "sizes": [train, dev, test], "seed", "settings": {key or dataset.key: value}}. A problem whose
question came before is passed over. `entry` is what the dataset's own scorer reads.
"""

import importlib.metadata
import json
import sys

import reasoning_gym

request = json.loads(sys.stdin.read())
sizes = dict(zip(("train", "dev", "test"), request["sizes"]))


def belongs(key, name):
    dataset, dot, _ = key.partition(".")
    if dot and dataset not in request["datasets"]:
        raise SystemExit(f"the setting {key} is of no dataset that is asked for")
    return not dot or dataset == name


known = set()
repeated = unscored = 0
print(json.dumps({"version": importlib.metadata.version("reasoning-gym")}))
for name in request["datasets"]:
    wanted = [(place, size) for place in ("test", "dev", "train") for size in [sizes[place]] for _ in range(size)]
    most = 4 * len(wanted) + 100
    settings = {key.removeprefix(f"{name}."): value for key, value in request["settings"].items() if belongs(key, name)}
    data = reasoning_gym.create_dataset(name, seed=request["seed"], size=most, **settings)
    index = 0
    while wanted and index < most:
        entry = data[index]
        index += 1
        if entry["question"] in known:
            repeated += 1
            continue
        known.add(entry["question"])
        entry = json.loads(json.dumps(entry))
        answer = entry["answer"]
        # The scorer must take what stands in the file.
        if answer is not None and data.score_answer(answer, entry) < 1:
            unscored += 1
            continue
        problem = {
            "question": entry["question"],
            "answer": "" if answer is None else answer,
            "tags": [name],
            "data_source": "reasoning-gym",
            "extra_info": {"dataset": name, "settings": settings, "entry": entry},
        }
        print(json.dumps({"set": wanted.pop(0)[0], "dataset": name, "problem": problem}))
    if wanted:
        raise SystemExit(f"{name} has too few different problems with these settings: {len(wanted)} are missing")
print(json.dumps({"repeated": repeated, "unscored": unscored}))
