"""Equivalence of formulas by Math-Verify: the ground truth in a box against what it extracts of the response, with the
settings of verl's utils/reward_score/math_verify.py. Its own time limits are off: on a busy machine they would decide.
"""

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify


def compute_score(solution_str, ground_truth):
    truth = parse("\\boxed{" + ground_truth + "}", [LatexExtractionConfig()], parsing_timeout=None)
    answer = parse(solution_str, [ExprExtractionConfig(), LatexExtractionConfig()], parsing_timeout=None)
    right = bool(answer) and verify(truth, answer, timeout_seconds=None)
    grade = {"score": 1.0 if right else -1.0, "acc": right}
    return grade | {"pred": str(answer[-1])} if answer else grade
