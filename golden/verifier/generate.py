"""Makes `math_dapo_cases.jsonl` and `normalize_final_answer.json` of this folder.

The rules are those of verl's `math_dapo.py` at commit b178a3c, re-implemented with Python's own
`re`, `str.strip` and `str.isdigit` (Python 3.11, Unicode 14), so that their quirks come out as
there. Hand-made cases first, then random strings of the fragments that the rules react to.
Run it in this folder: `python generate.py`.
"""

import json
import random
import re

REPLACED = [
    ("an ", ""), ("a ", ""), (".$", "$"), ("\\$", ""), ("\\ ", ""), (" ", ""), ("mbox", "text"),
    (",\\text{and}", ","), ("\\text{and}", ","), ("\\text{m}", "\\text{}"),
]
REMOVED = (
    "square ways integers dollars mph inches hours km units \\ldots sue points feet minutes digits cents "
    "degrees cm gm pounds meters meals edges students childrentickets multiples \\text{s} \\text{.}"
).split() + [
    "\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}", "\\text{}", "\\mathrm{th}", "^\\circ",
    "^{\\circ}", "\\;", ",\\!", "{,}", '"', "\\dots",
]


def normalise(text):
    text = text.split("=")[-1]
    for before, after in REPLACED:
        text = text.replace(before, after)
    for word in REMOVED:
        text = text.replace(word, "")
    text = re.sub(r"(.*?)(\$)(.*?)(\$)(.*)", "$\\3$", text)
    for command in ("text", "textbf", "overline"):
        text = re.sub(r"(\\" + command + r"\{)(.*?)(\})", "\\2", text)
    text = re.sub(r"(\\boxed\{)(.*)(\})", "\\2", text)
    text = re.sub(r"(frac)([^{])(.)", "frac{\\2}{\\3}", text)
    text = re.sub(r"(sqrt)([^{])", "sqrt{\\2}", text).replace("$", "")
    if text.replace(",", "").isdigit():
        text = text.replace(",", "")
    return text.strip()


def last_box(text):
    start, depth = text.rfind("\\boxed{"), 0
    for i in range(start, len(text)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0 and text[i] == "}":
            return text[start + 7 : i]
    return None


def score(response, truth, strict, pause=None):
    window = response[-300:]
    if strict:
        pred = last_box(window[-100:] if pause is None else window[pause[-1] - 100 :])
        correct = pred == truth
    else:
        found = re.findall(r"(?i)Answer\s*:\s*([^\n]+)", window)
        pred = normalise(found[-1] if found else "[INVALID]")
        correct = pred == normalise(truth)
    return {"score": 1.0 if correct else -1.0, "acc": correct, "pred": pred}


ANSWERS = [
    # white space of Python's \s, and what is none
    ("Answer\u00a0:\u2003540", "540"), ("Answer\x1c:\x1f540", "540"), ("Answer\x85:\u2028540", "540"),
    ("Answer\u200b: 540", "540"), ("Answer:\ufeff540", "540"), ("Answer:\r540", "540"), ("Answer:\r\n540\r\n", "540"),
    ("Answer:\x0b\x0c540", "540"), ("Answer\n:\n540", "540"), ("Answer:540 \x1d", "540"), ("Answer: 5\u20284", "5\u20284"),
    # case folding
    ("An\u017fwer: 540", "540"), ("AN\u017fWER: 540", "540"), ("\uff21nswer: 540", "540"), ("\u00c5nswer: 540", "540"),
    ("aNsWeR: 540", "540"), ("answ\u0435r: 540", "540"), ("A\u0301nswer: 540", "540"),
    # where the answer may stand
    ("Answer:", "540"), ("Answer: ", ""), ("Answer: \n", ""), ("Answer:\n\n", "540"), ("Answer:\nAnswer: 540", "540"),
    ("Answer::540", ":540"), ("Answer: : 540", ":540"), ("Answer 540", "540"), ("Answers: 540", "540"),
    ("Answer: 540\nanswer", "540"), ("TheAnswer:540", "540"), ("Answer:Answer: 540", "540"), ("no", "[INVALID]"),
    ("Answer: [INVALID]", "[INVALID]"), ("x" * 288 + "Answer: 540", "540"), ("Answer: 540" + "x" * 300, "540"),
    ("\U0001f600" * 289 + "Answer: 540", "540"), ("Answer: 540\n" + "\U0001f600" * 288, "540"),
    ("Answer: 540\n" + "\U0001f600" * 289, "540"), ("Answer: 540\n" + "e\u0301" * 144, "540"), ("Answer: 540\n" + "e\u0301" * 145, "540"),
    # numbers
    ("Answer: 1,024", "1024"), ("Answer: 1,,0,", "10"), ("Answer: ,", ""), ("Answer: 1.024", "1024"), ("Answer: 1 024", "1024"),
    ("Answer: 1\u00a0024", "1024"), ("Answer: \u0661\u0662,\u0663", "\u0661\u0662\u0663"), ("Answer: \u00b2,\u00b3", "\u00b2\u00b3"),
    ("Answer: \u00bd,1", "\u00bd1"), ("Answer: \u2460,\u2461", "\u2460\u2461"), ("Answer: \u2167,1", "\u21671"), ("Answer: -1,024", "-1024"),
    ("Answer: \u22127", "-7"), ("Answer: +7", "7"), ("Answer: 07", "7"), ("Answer: 7.0", "7"), ("Answer: 7.", "7"), ("Answer: 1e3", "1000"),
    ("Answer: \U0001d7d9,\U0001d7da", "\U0001d7d9\U0001d7da"), ("Answer: 10%", "10"), ("Answer: (1,2)", "(1, 2)"),
    # = and dollars
    ("Answer: x=1=2", "2"), ("Answer: =", ""), ("Answer: x == 2", "2"), ("Answer: 2 =", "2"), ("Answer: $x=2$", "2"),
    ("Answer: $2", "2"), ("Answer: $$2$$", "2"), ("Answer: a$1$b$2$c", "1"), ("Answer: $1$ or $2$", "2"), ("Answer: 2$", "2"),
    ("Answer: \\$2", "2"), ("Answer: \\$2.$", "2"), ("Answer: $2.$.", "2"), ("Answer: $2.5$", "2.5"), ("Answer: $", ""), ("Answer: $$", ""),
    # words and units
    ("Answer: pizza 5", "5"), ("Answer: an 5", "5"), ("Answer: a n 5", "n5"), ("Answer: banana 5", "banan5"), ("Answer: can a man", "cmm"),
    ("Answer: 5 square units", "5"), ("Answer: 5 km", "5"), ("Answer: 5 kmph", "5"), ("Answer: 5 sues", "5"), ("Answer: always 5", "al5"),
    ("Answer: 5 students' points", "5'"), ("Answer: 5 degrees", "5^\\circ"), ("Answer: 5\\;\\text{cm}", "5"), ("Answer: 5\\text{ cm}^2", "5"),
    ("Answer: 5\\text{m}^3", "5"), ("Answer: 5\\mbox{m}", "5"), ("Answer: 3\\mathrm{th}", "3"), ("Answer: \"5\"", "5"), ("Answer: 1,\\!024", "1024"),
    ("Answer: 1{,}024", "1024"), ("Answer: childrentickets 5", "5"), ("Answer: children tickets 5", "5"), ("Answer: 1, 2, \\ldots", "12"),
    ("Answer: 1,2,\\dots", "12"), ("Answer: 5\\ units", "5"), ("Answer: 1 \\text{and} 2", "12"), ("Answer: 1,\\text{and} 2", "1,2"),
    # commands
    ("Answer: \\text{a}\\text{b}", "ab"), ("Answer: \\textbf{7}", "7"), ("Answer: \\overline{7}", "7"), ("Answer: \\text{7", "7"),
    ("Answer: \\boxed{7}", "7"), ("Answer: \\boxed{\\boxed{7}}", "7"), ("Answer: \\boxed{1}\\boxed{2}", "2"), ("Answer: \\boxed{\\frac{1}{2}}", "\\frac12"),
    ("Answer: \\text{\\boxed{7}}", "7"), ("Answer: \\frac12", "\\frac{1}{2}"), ("Answer: \\frac1{2}", "\\frac{1}{2}"), ("Answer: \\frac{1}2", "\\frac{1}{2}"),
    ("Answer: \\frac 12", "\\frac{1}{2}"), ("Answer: \\frac1", "\\frac1"), ("Answer: \\frac123", "\\frac{1}{2}3"), ("Answer: \\dfrac12", "\\frac12"),
    ("Answer: frac", "frac"), ("Answer: \\sqrt3", "\\sqrt{3}"), ("Answer: \\sqrt", "\\sqrt"), ("Answer: \\sqrt\\frac12", "\\sqrt{\\}frac{1}{2}"),
    ("Answer: \\sqrt[3]{2}", "\\sqrt[3]{2}"), ("Answer: \\frac\U0001f600\U0001f601", "\\frac{\U0001f600}{\U0001f601}"), ("Answer: \\1", "\\1"), ("Answer: ${1}", "{1}"),
]
BOXES = [
    ("\\boxed{540}", "540"), ("\\boxed{540} and \\boxed{541", "540"), ("\\boxed{\\text{a}}", "\\text{a}"), ("\\boxed{}", ""),
    ("\\boxed{ 540}", "540"), ("\\boxed{{}", "{}"), ("\\boxed{}}", ""), ("\\fbox{540}", "540"), ("\\boxed {540}", "540"),
    ("\\boxed{1}" + "z" * 91, "1"), ("\\boxed{1}" + "z" * 92, "1"), ("\\boxed{1}" + "\U0001f600" * 91, "1"),
    ("\\boxed{1}" + "\U0001f600" * 92, "1"), ("\\boxed{" + "9" * 92 + "}", "9" * 92), ("\\boxed{" + "9" * 93 + "}", "9" * 93),
    ("\\boxed{\\}}", "\\"), ("\\boxed{\n7\n}", "\n7\n"), ("\\boxed{\\boxed{7}}", "7"), ("}\\boxed{7}{", "7"), ("", ""),
]
PAUSES = [("\\boxed{7}" + "z" * 120, "7", [0, 0, 0, 100]), ("\\boxed{7}" + "z" * 120, "7", [0, 0, 0, 101]), ("\\boxed{7}" + "z" * 20, "7", [1, 2, 3, 90])]
FRAGMENTS = (
    [" ", "  ", "\n", "\t", "\x1c", "\x85", "\u2028", "\u3000", "\u200b", "{", "}", ",", ".", "\"", "$", ".$", "=", "\\ ", "\\$", "a ", "an "]
    + ["Answer:", "answer :", "An\u017fwer: ", "\\text{", "\\textbf{", "\\overline{", "\\boxed{", "\\mbox{", "{,}", ",\\!", "^\\circ", "^2", "\\;"]
    + ["\\frac", "\\frac12", "\\sqrt", "\\sqrt3", "\\text{m}", "\\text{s}", "\\text{\ns}", "\\text{and}", "square", "sue", "cm", "units"]
    + ["0", "12", "045", "1,024", "-7", "\u22127", "\u00b2", "\u0663", "\u00bd", "x", "pizza ", "\U0001f600", "e\u0301", "\\1", "${1}"]
)


def main():
    rng = random.Random(2503_14476)
    made = [(f"answer_{i}", r, t, False, None) for i, (r, t) in enumerate(ANSWERS)]
    made += [(f"box_{i}", r, t, True, None) for i, (r, t) in enumerate(BOXES)]
    made += [(f"pause_{i}", r, t, True, p) for i, (r, t, p) in enumerate(PAUSES)]
    kept = {True: 0, False: 0}
    while min(kept.values()) < 30:
        core = "".join(rng.choice(FRAGMENTS) for _ in range(rng.randint(1, 6)))
        tail = "".join(rng.choice(FRAGMENTS) for _ in range(rng.randint(0, 3)))
        strict = rng.random() < 0.3
        response = ("so \\boxed{" + core + "}" if strict else "so\nAnswer: " + core) + tail
        truth = rng.choice([core, normalise(core), "12"])
        correct = score(response, truth, strict)["acc"]
        if kept[correct] < 30 and not (correct and core in ("12", truth) and rng.random() < 0.5):
            kept[correct] += 1
            made.append((f"random_{sum(kept.values())}", response, truth, strict, None))
    with open("math_dapo_cases.jsonl", "w", encoding="utf-8") as out:
        for name, response, truth, strict, pause in made:
            case = {"name": name, "response": response, "ground_truth": truth, "strict_box_verify": strict}
            if pause is not None:
                case["pause_tokens_index"] = pause
            case["expected"] = score(response, truth, strict, pause)
            out.write(json.dumps(case) + "\n")
    texts = sorted({t.split(":", 1)[-1] for t, _ in ANSWERS} | {r for n, r, *_ in made if n.startswith("random")})
    with open("normalize_final_answer.json", "w", encoding="utf-8") as out:
        rows = ",\n".join(json.dumps({"input": text, "output": normalise(text)}) for text in texts)
        out.write(f"[\n{rows}\n]\n")
    print(len(made), sum(score(r, t, s, p)["acc"] for _, r, t, s, p in made), len(texts))


if __name__ == "__main__":
    main()
