"""What `training_args.bin` states, as JSON on standard output: no class of the pickle is loaded, no function called."""

import json
import pickle
import sys
import zipfile

MOST_BYTES = 16 << 20


class Kept:
    """Stands for every class and function of the file, and keeps what it is given."""

    values = ()

    def __init__(self, *values):
        self.values = values

    def __setstate__(self, state):
        self.__dict__.update(state if isinstance(state, dict) else {})


class Reader(pickle.Unpickler):
    def find_class(self, module, name):
        return type(name, (Kept,), {})

    def persistent_load(self, reference):
        return None


def plain(value, depth=0):
    if isinstance(value, Kept):
        value = value.values[0] if len(value.values) == 1 else None
    if isinstance(value, (list, tuple)) and depth < 8:
        return [plain(it, depth + 1) for it in value]
    return value if isinstance(value, (bool, int, float, str)) else None


with zipfile.ZipFile(json.load(sys.stdin)["path"]) as archive:
    name = next(it for it in archive.namelist() if it.endswith("/data.pkl"))
    with archive.open(name) as file:
        if archive.getinfo(name).file_size > MOST_BYTES:
            sys.exit("its pickle is larger than settings are")
        found = Reader(file).load()
if not isinstance(found, Kept):
    sys.exit("it holds no settings")
print("\n" + json.dumps({name: plain(value) for name, value in vars(found).items() if name != "values" and name[0] != "_"}))
