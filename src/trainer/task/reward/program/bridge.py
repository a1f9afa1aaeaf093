"""Grades responses with a function of the user's: requests and answers are lines of JSON.

The first line states the function; each further line has responses. What the function prints goes to standard
error, and a child that it forks never answers. The caller bounds time, and restarts this process when it ends.
"""

import ast
import asyncio
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import json
import math
import os
import platform
import resource
import sys
import sysconfig
import threading
import time
import tokenize
import traceback
import types

# Answers go where only this module writes; requests come from where the function cannot read.
answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
os.dup2(2, 1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
OWN = os.getpid()


def answer(value):
    if os.getpid() != OWN:
        os._exit(0)
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def end_with_caller():
    # PR_SET_PDEATHSIG would end it with the thread that started it.
    while os.getppid() in (SETTINGS["caller"], 0):
        time.sleep(1)
    os._exit(0)


def load(path):
    folder = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, folder)
    if SETTINGS["text"]:
        module = types.ModuleType("reward_program")
        exec(compile(SETTINGS["text"], path, "exec"), vars(module))
        return module
    loader = importlib.machinery.SourceFileLoader("reward_program", path)
    specification = importlib.util.spec_from_file_location("reward_program", path, loader=loader)
    module = importlib.util.module_from_spec(specification)
    sys.modules["reward_program"] = module
    specification.loader.exec_module(module)
    return module


class Sources:
    """The user's own files: below the reward file's folder, and below the working folder where Python searches it."""

    INSTALLED = {"site-packages", "dist-packages"}

    def __init__(self, path):
        self.folder = os.path.dirname(os.path.abspath(path))
        working = os.getcwd()
        is_searched = any(os.path.abspath(each) == working for each in sys.path if isinstance(each, str))
        self.roots = [self.folder] + ([working] if is_searched and working != self.folder else [])
        self.standard = [sysconfig.get_path(each) + os.sep for each in ("stdlib", "platstdlib")]
        self.recorded = self.loaded()
        self.seen = len(sys.modules)
        self.recorded |= self.imported_later()

    def place(self, path):
        """The root of a file and its path from there; None of what is installed or lies elsewhere."""
        path = os.path.abspath(path)
        for root in self.roots:
            if not path.startswith(root.rstrip(os.sep) + os.sep):
                continue
            name = os.path.relpath(path, root)
            is_standard = root != self.folder and path.startswith(tuple(self.standard))
            return None if is_standard or self.INSTALLED & set(name.split(os.sep)) else (root, name)
        return None

    def names(self, number):
        """Of the recorded files below the root of this number."""
        places = [self.place(each) for each in self.recorded]
        return sorted(name for root, name in places if root in self.roots[number : number + 1])

    def loaded(self):
        # Modules of some packages run code when they are asked for an attribute.
        sources = [getattr(each, "__dict__", {}).get("__file__") for each in list(sys.modules.values())]
        return {os.path.abspath(each) for each in sources if isinstance(each, str) and self.place(each)}

    def late(self):
        """A file that was loaded since, and that nothing said would be."""
        if len(sys.modules) == self.seen:
            return None
        self.seen = len(sys.modules)
        more = sorted(self.loaded() - self.recorded)
        if more:
            self.seen = -1
        return self.place(more[0])[1] if more else None

    def imported_later(self):
        """What the loaded files can import while they grade, and what that imports."""
        found, rest = set(), [(each, True) for each in self.recorded]
        while rest:
            importer, is_loaded = rest.pop()
            for level, name in imports(importer, is_loaded):
                for each in self.files_of(importer, level, name):
                    if each not in self.recorded | found and self.place(each):
                        found.add(each)
                        rest.append((each, False))
        return found

    def files_of(self, importer, level, name):
        if level:
            above = importer
            for _ in range(level):
                above = os.path.dirname(above)
            return files_below(above, name)
        first = name.partition(".")[0]
        known = getattr(sys.modules.get(first), "__file__", None)
        if first in sys.builtin_module_names or isinstance(known, str) and not self.place(known):
            return []
        return next(filter(None, (files_below(root, name) for root in self.roots)), [])


def files_below(root, name):
    """The files of a module and of the packages that it is in."""
    files = []
    for part in name.split("."):
        root = os.path.join(root, part)
        package = os.path.join(root, "__init__.py")
        if os.path.isfile(package):
            files.append(package)
        elif os.path.isfile(root + ".py"):
            return [*files, root + ".py"]
    return files


def imports(path, is_loaded):
    """Levels up and dotted name of each import of a file; of a loaded one those inside of functions: the others are done."""
    try:
        with tokenize.open(path) as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    parts = [each for each in ast.walk(tree) if isinstance(each, functions)] if is_loaded else [tree]
    return [each for part in parts for node in ast.walk(part) for each in imports_of(node)]


def imports_of(node):
    if isinstance(node, ast.Import):
        return [(0, each.name) for each in node.names]
    if isinstance(node, ast.ImportFrom):
        return [(node.level, f"{node.module or ''}.{each.name}".strip(".")) for each in node.names]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        called, name = getattr(node.func, "attr", getattr(node.func, "id", "")), node.args[0].value
        if called in ("import_module", "__import__") and isinstance(name, str):
            return [(len(name) - len(name.lstrip(".")), name.lstrip("."))]
    return []


def choose(module, name):
    own = {
        each: value
        for each, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not each.startswith("_")
    }
    if name:
        if not callable(getattr(module, name, None)):
            raise LookupError(f"it has no function `{name}`; its functions: {', '.join(own) or 'none'}")
        return getattr(module, name), name
    for usual in ("compute_score", "grade"):
        # It may be an object that is called, or come from another module.
        if callable(getattr(module, usual, None)):
            return getattr(module, usual), usual
    if len(own) != 1:
        raise LookupError(f"name one of its functions (FILE.py:NAME): {', '.join(own) or 'none is defined in it'}")
    return next((value, each) for each, value in own.items())


RESPONSES = {"response", "completion", "output", "prediction", "generation", "generated", "model_output", "solution_str"}
TRUTHS = {"ground_truth", "answer", "target", "reference", "expected", "expected_answer", "gold", "label", "solution"}


def form(function, name):
    """How the function is called: by its parameters, as verl and TRL name them."""
    parameters = inspect.signature(function).parameters
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    named = [each for each in parameters.values() if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    if "solution_str" in parameters:
        return "verl", parameters, takes_all
    if "completions" in parameters or "completion_ids" in parameters:
        return "trl", parameters, takes_all
    if takes_all and not named and name != "grade":
        # Both trainers pass everything by name.
        return ("verl" if name == "compute_score" else "trl"), parameters, takes_all
    needed = [each for each in named if each.default is each.empty]
    in_order = [each for each in named if each.kind is not each.KEYWORD_ONLY]
    if len(in_order) < len(named) and (len(in_order) < 2 or any(each not in in_order for each in needed)):
        return by_name(named, needed), parameters, takes_all
    named = in_order
    if len(needed) == 2 or len(needed) < 2 <= len(named):
        first, second = (each.name for each in (needed if len(needed) == 2 else named[:2]))
        if first in TRUTHS - {"solution"} or second in RESPONSES:
            if first in TRUTHS and second in RESPONSES:
                return "swapped", parameters, takes_all
            raise TypeError(f"it takes ({', '.join(parameters)}), of which it is not clear which one is the response; expected (response, answer)")
        return "plain", parameters, takes_all
    raise TypeError(
        f"it takes ({', '.join(parameters)}); expected solution_str and ground_truth (verl), completions (TRL), "
        "or a response and an answer"
    )


def by_name(named, needed):
    """Names of the parameters for the response and the answer, where some are given by their names alone."""
    response = [each.name for each in named if each.name in RESPONSES]
    truth = [each.name for each in named if each.name in TRUTHS]
    if len(response) == len(truth) == 1 and {each.name for each in needed} <= {*response, *truth}:
        return response[0], truth[0]
    shown = ", ".join(each.name for each in named)
    raise TypeError(
        f"it takes ({shown}), some by their names alone; expected one called response and one called answer, "
        "and a default for every other"
    )


def finished(value):
    """The value of a function, which may be asynchronous."""

    async def awaited():
        return await value

    return asyncio.run(awaited()) if inspect.isawaitable(value) else value


def of_row(item):
    """The columns of a row, as TRL passes them; verl's `extra_info` as one of them, and its entries."""
    row = {**item["extra"], **item.get("columns", {})}
    if "columns" in item:
        row["extra_info"] = item["extra"]
    if item["data_source"]:
        row.setdefault("data_source", item["data_source"])
    return row


def columns(items, parameters):
    """The columns of a data set, as TRL passes them; the ground truth under the names that data sets give it."""
    rows = [of_row(item) for item in items]
    names = {name for row in rows for name in row}
    table = {name: [row.get(name) for row in rows] for name in names}
    for name in ("ground_truth", "answer", "solution"):
        table.setdefault(name, [item["ground_truth"] for item in items])
    table["prompts"] = [item["prompt"] for item in items]
    # As TRL: an answer to messages is a message.
    is_chat = any(isinstance(item["prompt"], list) for item in items)
    answers_of = lambda text: [{"role": "assistant", "content": text}] if is_chat else text
    table["completions"] = [answers_of(item["response"]) for item in items]
    if all("completion_ids" in item for item in items):
        table["completion_ids"] = [item["completion_ids"] for item in items]
    elif "completion_ids" in parameters:
        raise LookupError("it reads completion_ids, and the tokens of these responses are not known")
    # TRL logs what they get; here a reward is recorded, and numbers of a dictionary.
    table["log_extra"] = table["log_metric"] = lambda *_logged, **_named: None
    if "trainer_state" in parameters:
        raise LookupError("it reads trainer_state, and there is no trainer of TRL here")
    return table


def kept(arguments, parameters, takes_all):
    return arguments if takes_all else {name: value for name, value in arguments.items() if name in parameters}


def plain(value):
    """A number, a truth value or a dictionary of them as JSON can hold it; others are told by their type."""
    if hasattr(value, "item") and not isinstance(value, (bool, int, float, str, dict)):
        try:
            value = value.item()  # numpy, torch
        except Exception:
            return {"other": type(value).__name__}
    if isinstance(value, bool):
        return {"flag": value}
    if isinstance(value, (int, float)):
        return {"number": float(value)} if math.isfinite(value) else {"other": repr(float(value))}
    return {"other": type(value).__name__ if value is not None else "None"}


def result(value):
    if not isinstance(value, dict):
        return plain(value)
    return {"fields": {str(name): field(str(name), each) for name, each in value.items()}}


def field(name, value):
    if isinstance(value, str):
        return {"text": value}
    if name == "pred" and value is not None:
        try:
            return {"text": str(value)}
        except Exception:
            return plain(value)
    return plain(value)


def answer_late():
    """Whether a file was loaded that the identity of a run does not have: then this is the answer."""
    late = SOURCES.late() if SOURCES else None
    if late:
        answer({"unrecorded": late})
    return bool(late)


def failed(error):
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f"line {each.lineno}" for each in reversed(frames) if each.filename == SETTINGS["file"]), "")
    text = f"{type(error).__name__}: {error}".strip().rstrip(":")
    text += f" ({place})" if place else ""
    if isinstance(error, ModuleNotFoundError):
        text += f"; install it into {sys.executable}, or name a Python that has it (the key `python`, or DAPO_PYTHON)"
    answer({"failed": text})


def main():
    global SETTINGS, SOURCES
    SETTINGS = json.loads(requests.readline())
    threading.Thread(target=end_with_caller, daemon=True).start()
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    memory = SETTINGS["memory_bytes"]
    resource.setrlimit(resource.RLIMIT_AS, (memory if most < 0 else min(memory, most), most))
    try:
        module = load(SETTINGS["file"])
        function, name = choose(module, SETTINGS["function"])
        kind, parameters, takes_all = form(function, name)
        packages = {each: importlib.metadata.version(each) for each in SETTINGS["packages"]}
        packages["python"] = platform.python_version()
    except importlib.metadata.PackageNotFoundError as missing:
        answer({"failed": f"{missing} is among its packages, and {sys.executable} does not have it"})
        return
    except BaseException as error:  # the user's file may even exit
        failed(error)
        return
    SOURCES = None if SETTINGS["text"] else Sources(SETTINGS["file"])
    files, working = (SOURCES.names(0), SOURCES.names(1)) if SOURCES else ([], [])
    stated = kind if kind in ("verl", "trl") else "plain"
    answer({"ready": {"function": name, "form": stated, "packages": packages, "files": files, "working_files": working}})
    for line in requests:
        items = json.loads(line)
        if kind == "trl":
            try:
                values = list(finished(function(**kept(columns(items, parameters), parameters, takes_all))))
            except Exception as error:
                failed(error)
                continue
            if answer_late():
                continue
            answer({"length": len(values)})
            if len(values) == len(items):
                for value in values:
                    answer(result(value))
            continue
        for item in items:
            try:
                if kind == "verl":
                    arguments = {
                        "data_source": item["data_source"],
                        "solution_str": item["response"],
                        "ground_truth": item["ground_truth"],
                        "extra_info": item["extra"],
                    }
                    value = finished(function(**kept(arguments, parameters, takes_all)))
                elif kind == "swapped":
                    value = finished(function(item["ground_truth"], item["response"]))
                elif kind != "plain":
                    response, truth = kind
                    value = finished(function(**{response: item["response"], truth: item["ground_truth"]}))
                else:
                    value = finished(function(item["response"], item["ground_truth"]))
            except Exception as error:
                failed(error)
                continue
            if not answer_late():
                answer(result(value))


main()
