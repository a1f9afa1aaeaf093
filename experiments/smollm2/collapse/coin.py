"""A reward that teaches nothing: a coin that falls the same way each time for an answer and a response."""

import hashlib


def coin(response, answer):
    heads = hashlib.sha256(f"{answer}{response}".encode()).digest()[0] < 128
    return {"score": 1.0 if heads else -1.0, "acc": heads}
