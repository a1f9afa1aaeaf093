"""Words after as many notes as the question asks for: python3 notes.py OUT [--solutions COUNT]

A question is one of ../words; its first letter says how many notes come before the word, one to six. A note is four to eight of the shown
letters and a dash; then a colon and a word of six of the shown letters, none of them twice in a row. Notes may be short or long: that is what a limit of
tokens acts on. Writes solutions.jsonl to pretrain a policy on; any Python writes the same bytes.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "words"))
import words

LENGTH, MOST_NOTES, SHORTEST, LONGEST = 6, 6, 4, 8

# The chances of the slips: another number of notes, a letter of all sixteen, one that follows itself.
MISCOUNTED, STRAY, AGAIN = 0.05, 0.04, 0.2


def asked(question):
    """How many notes."""
    return 1 + words.LETTERS.index(question[0]) % MOST_NOTES


def word(question, draws):
    letters = ""
    while len(letters) < LENGTH:
        if draws.chance(STRAY):
            letters += words.LETTERS[draws.below(len(words.LETTERS))]
        else:
            letter = question[draws.below(words.SHOWN)]
            while letters and letter == letters[-1] and not draws.chance(AGAIN):
                letter = question[draws.below(words.SHOWN)]
            letters += letter
    return letters


def solution(question, draws):
    count = 1 + draws.below(MOST_NOTES) if draws.chance(MISCOUNTED) else asked(question)
    letters = lambda: SHORTEST + draws.below(LONGEST - SHORTEST + 1)
    note = lambda: "".join(question[draws.below(words.SHOWN)] for _ in range(letters())) + "-"
    return "".join(note() for _ in range(count)) + ":" + word(question, draws)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--solutions", type=int, default=40_000)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    draws = words.Draws("notes")
    with open(arguments.out / "solutions.jsonl", "w") as out:
        for _ in range(arguments.solutions):
            question = words.question(draws)
            out.write(json.dumps({"question": question, "solution": solution(question, draws)}) + "\n")


if __name__ == "__main__":
    main()
