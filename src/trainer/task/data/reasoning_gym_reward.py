"""Grades answers to problems of reasoning-gym by their dataset's own scorer, as verl calls a reward function.

The scorer has the settings that the problem was made with. The answer is what follows the last `Answer:`, to the end of its line or, where that scores more, of the response; else
what the last <answer> tags hold, else the last line with text. Only a full score counts as correct; the reward is the score. Where the scorer raises, the score is 0 and
`scorer_raised` is 1.
"""

import functools
import json
import math
import re

import reasoning_gym


def answers_of(response):
    _, mark, rest = response.rpartition("Answer:")
    if mark:
        return [rest.strip(" \t").partition("\n")[0].strip(), rest.strip()]
    tagged = re.match(r"(?s).*<answer>(.*?)</answer>", response)
    lines = [line.strip() for line in response.splitlines() if line.strip()]
    return [tagged[1].strip() if tagged else lines[-1] if lines else ""]


@functools.cache
def scorer_of(dataset, settings):
    return reasoning_gym.create_dataset(dataset, **json.loads(settings)).score_answer


def score_of(scorer, answer, entry):
    try:
        score = float(scorer(answer, entry))
    except Exception:
        return 0.0, False
    return (score, True) if math.isfinite(score) else (0.0, False)


def compute_score(data_source, solution_str, ground_truth, extra_info):
    scorer = scorer_of(extra_info["dataset"], json.dumps(extra_info.get("settings", {})))
    entry = extra_info["entry"]
    scored = [(*score_of(scorer, answer, entry), answer) for answer in answers_of(solution_str)]
    score, is_scored, answer = max(scored, key=lambda each: each[:2])
    return {"score": score, "acc": score >= 1.0, "pred": answer, "scorer_raised": 0.0 if is_scored else 1.0}
