"""The rewards of the words: whether all rules are kept, and a coin that knows nothing of them."""

import hashlib

from words import kept


def rules(response, answer):
    held = kept(answer, response)
    return {"score": 1.0 if all(held) else -1.0, "acc": all(held), "rules_kept": sum(held)}


def coin(response, answer):
    """Falls the same way each time for a question and a word."""
    heads = hashlib.sha256(f"{answer}{response}".encode()).digest()[0] < 128
    return {"score": 1.0 if heads else -1.0, "acc": heads}
