"""Equivalence of formulas by Math-Verify: the ground truth in a box against what it extracts of the response, with the
settings of verl's utils/reward_score/math_verify.py. Its own time limits are off: on a busy machine they would decide.
A response has so many seconds of the processor instead; without a verdict it is wrong, as there.
"""

import resource
import signal

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

SECONDS = 5


def stop(*_):
    raise TimeoutError


signal.signal(signal.SIGVTALRM, stop)


def compute_score(solution_str, ground_truth):
    grade = {"score": -1.0, "acc": False, "without_verdict": 0.0}
    used = resource.getrusage(resource.RUSAGE_SELF)
    # Arithmetic on a tower of powers is one instruction of Python, which no signal interrupts: this ends the process.
    most = int(used.ru_utime + used.ru_stime) + SECONDS + 2
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS, 1)
    try:
        truth = parse("\\boxed{" + ground_truth + "}", [LatexExtractionConfig()], parsing_timeout=None)
        answer = parse(solution_str, [ExprExtractionConfig(), LatexExtractionConfig()], parsing_timeout=None)
        if answer:
            grade["pred"] = str(answer[-1])
            if verify(truth, answer, timeout_seconds=None):
                grade |= {"score": 1.0, "acc": True}
    except Exception:
        grade["without_verdict"] = 1.0
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return grade
