"""The reward of words after notes: whether there are as many notes as asked, of four to eight letters, and the word keeps its two rules."""

LETTERS, SHOWN, LENGTH = "abcdefghijklmnop", 6, 6


def rules(response, answer):
    notes, _, word = response.partition(":")
    *notes, rest = notes.split("-")
    asked = 1 + LETTERS.index(answer[0]) % 6
    whole = len(word) == LENGTH
    held = [
        rest == "" and len(notes) == asked and all(4 <= len(note) <= 8 for note in notes),
        whole and set(word) <= set(answer[:SHOWN]),
        whole and all(a != b for a, b in zip(word, word[1:])),
    ]
    return {"score": 1.0 if all(held) else -1.0, "acc": all(held), "rules_kept": sum(held)}
