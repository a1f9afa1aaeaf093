"""Prints the versions of Python and of the installed ones of these packages as JSON: python versions.py PACKAGE ..."""

import sys

sys.path[:] = filter(None, sys.path)  # not the working folder

import importlib.metadata
import json
import os
import platform

found = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
if "VERL_PLATFORM" in os.environ:
    found["platform"] = os.environ["VERL_PLATFORM"]
print(json.dumps(found))
