"""Starts the program of the wheel with the LibTorch of this Python's torch."""

import importlib.metadata
import importlib.util
import os
import sys

TORCH = "2.11.0"


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    advice = f"install it there: {sys.executable} -m pip install torch=={TORCH}"
    spec = importlib.util.find_spec("torch")
    places = list(spec.submodule_search_locations or []) if spec else []
    if not places:
        sys.exit(f"dapo: the Python {sys.executable} has no torch, whose LibTorch {TORCH} computes; {advice}")
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        version = TORCH
    if version.split("+")[0] != TORCH:
        sys.exit(f"dapo: the Python {sys.executable} has torch {version}, and the program needs {TORCH}; {advice}")
    libraries = os.path.join(places[0], "lib")
    # The program looks beside its own package; torch may lie in another folder of the same Python.
    if libraries != os.path.join(os.path.dirname(here), "torch", "lib"):
        others = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = os.pathsep.join([libraries] + ([others] if others else []))
    # Reward functions and other trainers: the packages installed beside the program are found, unless another Python is named.
    os.environ.setdefault("DAPO_PYTHON", sys.executable)
    program = os.path.join(here, "dapo")
    os.execv(program, [program, *sys.argv[1:]])
