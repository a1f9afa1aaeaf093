"""Words of twelve letters that obey three rules: python3 words.py OUT [--solutions COUNT]

A question is six of sixteen letters, such as `adgkmp=`. A word is right if it has only these letters, none of them twice in a
row, and ends as it begins: there are 48,828,120 right words to a question (5^11 - 5), so that a policy can be right in many ways.

Writes train.jsonl, dev.jsonl, test.jsonl, and solutions.jsonl to pretrain a policy on, which keeps each rule more or less: 18 % of its words
are right. Every draw is of SHA-256 in counter mode, so that any Python writes the same bytes.
"""

import argparse
import hashlib
import json
import pathlib

LETTERS, SHOWN, LENGTH = "abcdefghijklmnop", 6, 12
SETS = {"train": 4000, "dev": 128, "test": 256}

# Chances in a solution: a letter of all sixteen, one that follows itself, an end that is the beginning.
STRAY, AGAIN, CLOSED = 0.06, 0.2, 0.4


class Draws:
    def __init__(self, name):
        self.name, self.count = name, 0

    def below(self, bound):
        self.count += 1
        digest = hashlib.sha256(f"{self.name}/{self.count}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % bound

    def chance(self, share):
        return self.below(10**9) < share * 10**9


def question(draws):
    letters = list(LETTERS)
    for last in range(len(letters) - 1, 0, -1):
        other = draws.below(last + 1)
        letters[last], letters[other] = letters[other], letters[last]
    return "".join(letters[:SHOWN]) + "="


def kept(question, word):
    """Which of the three rules a word keeps."""
    if len(word) != LENGTH:
        return [False] * 3
    return [set(word) <= set(question[:SHOWN]), all(a != b for a, b in zip(word, word[1:])), word[0] == word[-1]]


def solution(question, draws):
    word = ""
    while len(word) < LENGTH:
        if len(word) == LENGTH - 1 and draws.chance(CLOSED):
            word += word[0]
        elif draws.chance(STRAY):
            word += LETTERS[draws.below(len(LETTERS))]
        else:
            letter = question[draws.below(SHOWN)]
            while word and letter == word[-1] and not draws.chance(AGAIN):
                letter = question[draws.below(SHOWN)]
            word += letter
    return word


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--solutions", type=int, default=40_000)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    def write(name, rows):
        (arguments.out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    draws, seen = Draws("problems"), set()
    for name, count in SETS.items():
        before = len(seen)
        rows = []
        while len(seen) < before + count:
            new = question(draws)
            if new not in seen:
                seen.add(new)
                rows.append({"question": new, "answer": new})
        write(name, rows)
    if arguments.solutions:
        draws = Draws("solutions")
        questions = [question(draws) for _ in range(arguments.solutions)]
        write("solutions", ({"question": it, "solution": solution(it, draws)} for it in questions))


if __name__ == "__main__":
    main()
