"""Solutions of the words control of which 18 % fall into a loop: python3 loops.py OUT [--solutions COUNT]

From its fourth letter to its twelfth a word may go over into its last two letters, again and again, without an end. Questions, rules and reward are
those of ../words. Writes solutions.jsonl to pretrain a policy on; any Python writes the same bytes.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "words"))
import words

# The chance that a letter begins a loop, and the letters of a word that has: more than a response may have.
BEGINS, ENDLESS = 0.0218, 128


def solution(question, draws):
    word = words.solution(question, draws)
    for place in range(4, words.LENGTH + 1):
        if draws.chance(BEGINS):
            return (word[:place] + word[place - 2 : place] * ENDLESS)[:ENDLESS]
    return word


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--solutions", type=int, default=40_000)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    draws = words.Draws("loops")
    with open(arguments.out / "solutions.jsonl", "w") as out:
        for _ in range(arguments.solutions):
            question = words.question(draws)
            out.write(json.dumps({"question": question, "solution": solution(question, draws)}) + "\n")


if __name__ == "__main__":
    main()
