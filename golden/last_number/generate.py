"""Makes `cases.jsonl` of this folder by lm-eval's own code (lm-eval 0.4.9.1: its `regex` filter and
`exact_match` with the settings `flexible-extract` of tasks/gsm8k/gsm8k.yaml, which are written out below).
Hand-made cases first, then random strings of the fragments that the rule reacts to. Run it in this folder:
`python generate.py`.
"""

import json
import random

from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.filters.extraction import RegexFilter

FILTER = RegexFilter(regex_pattern="(-?[$0-9.,]{2,})|(-?[0-9]+)", group_select=-1)
IGNORED = [",", "\\$", "(?s).*#### ", "\\.$"]

CASES = [
    ("The answer is 30.", "30"), ("30", "30"), ("The answer is 30", "31"), ("So $1,024.50 in all.", "1024.50"),
    ("It costs $18.", "18"), ("1,000 and 2,000", "2000"), ("-7 degrees", "-7"), ("a -7", "7"), ("3-7", "-7"),
    ("3 - 7", "7"), ("no number", "7"), ("no number", "[invalid]"), ("", ""), ("...", "7"), ("7...", "7"),
    ("7 , 8", "8"), ("x = 7,", "7"), ("7.", "7"), ("7..", "7"), ("7.0", "7"), ("1/2", "2"), ("0.5", ".5"), (".5", "0.5"),
    ("5%", "5"), ("٣", "3"), ("é12é", "12"), ("1\n2\n", "2"), ("#### 18", "18"), ("18", "9*2=18\nso\n#### 18"),
    ("18", "a #### 1 #### 18"), ("18", "#### 1,8"), ("18", "####18"), ("18", "18."), ("18", "18.\n"), ("18", "$18"),
    ("$", "$"), ("$$", ""), (",,", ""), ("-$5", "-5"), ("$-5", "-5"), ("--5", "-5"), ("1e5", "5"), ("007", "7"),
    ("12" + "x" * 400, "12"), ("Answer: 12", "12"), ("12 apples, 5 left. The answer is 7", "7"), ("9.99.", "9.99"),
    ("1 000", "1000"), ("The answer is A.", "a"), ("[invalid]", "[INVALID]"), ("2.", "#### 2."), ("3,4", "34"),
]
FRAGMENTS = ["1", "12", "-", "$", ",", ".", " ", "\n", "x", "#### ", "é", "0", "7.5", "1,000", "The answer is "]


def expected(response, truth):
    [[prediction]] = FILTER.apply([[response]], [{}])
    settings = dict(regexes_to_ignore=IGNORED, ignore_case=True, ignore_punctuation=False)
    right = exact_match_hf_evaluate([prediction], [truth], **settings)["exact_match"] == 1.0
    return {"acc": bool(right), "extracted": prediction}


def main():
    draw = random.Random(7)
    cases = list(CASES)
    while len(cases) < 300:
        response = "".join(draw.choice(FRAGMENTS) for _ in range(draw.randrange(1, 8)))
        extracted = expected(response, "")["extracted"]
        truth = extracted if draw.random() < 0.5 else "".join(draw.choice(FRAGMENTS) for _ in range(draw.randrange(1, 4)))
        cases.append((response, truth))
    with open("cases.jsonl", "w", encoding="utf-8") as out:
        for response, truth in cases:
            line = {"response": response, "ground_truth": truth, "expected": expected(response, truth)}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
