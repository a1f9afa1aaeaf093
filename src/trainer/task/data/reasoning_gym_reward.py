"""Grades answers to problems of reasoning-gym by their dataset's own scorer, as verl calls a reward function.

The answer is what follows the last `Answer:`, else what the last <answer> tags hold, else the last line with text. Only
a full score counts as correct; the reward is the score.
"""

import re

import reasoning_gym


def answer_of(response):
    for pattern in (r"(?s).*Answer:[ \t]*([^\n]*)", r"(?s).*<answer>(.*?)</answer>"):
        match = re.match(pattern, response)
        if match:
            return match[1].strip()
    lines = [line.strip() for line in response.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def compute_score(data_source, solution_str, ground_truth, extra_info):
    answer = answer_of(solution_str)
    score = float(reasoning_gym.get_score_answer_fn(extra_info["dataset"])(answer, extra_info["entry"]))
    return {"score": score, "acc": score >= 1.0, "pred": answer}
