"""Grades responses with a function of the user's: requests and answers are lines of JSON.

The first line states the functions; each further line has responses. What the function prints goes to standard
error, and a child that it forks never answers. The caller bounds time, and restarts this process when it ends.
"""

import asyncio
import decimal
import functools
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import json
import math
import numbers
import os
import platform
import re
import resource
import sys
import threading
import time
import traceback
import types

# Answers go where only this module writes; requests come from where the function cannot read.
answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
os.dup2(2, 1)
sys.stdout.reconfigure(line_buffering=True)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
OWN = os.getpid()


class Refusal(Exception):
    """What this module cannot do with a function or its answer: no error of the function's."""


def answer(value):
    if os.getpid() != OWN:
        os._exit(0)
    # Half of a pair of UTF-16, as a model's broken JSON has it, is no text.
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")
    answers.write(text + "\n")
    answers.flush()


def end_with_caller():
    # PR_SET_PDEATHSIG would end it with the thread that started it.
    while os.getppid() in (SETTINGS["caller"], 0):
        time.sleep(1)
    os._exit(0)


def load(path):
    if SETTINGS["text"]:
        # A user's file may have the name of the package.
        sys.path[:] = [each for each in sys.path if each not in ("", os.getcwd())]
        module = types.ModuleType("reward_program")
        exec(compile(SETTINGS["text"], path, "exec"), vars(module))
        return module
    folder, own = os.path.split(os.path.abspath(path))
    name, is_python = os.path.splitext(own)
    find = importlib.machinery.PathFinder.find_spec
    installed = [each for each in sys.path if os.path.abspath(each) not in (folder, os.getcwd())]
    is_package = getattr(find(name, installed), "loader", None) is not None
    if is_package:
        finder = lambda asked, *_rest, own=name: find(own, installed) if asked == own else None
        sys.meta_path.insert(0, types.SimpleNamespace(find_spec=finder))
    # By its own name a process that it spawns can import it.
    if is_package or is_python != ".py" or "." in name or name in sys.modules or name in sys.builtin_module_names:
        name = "reward_program"
    sys.path.insert(0, folder)
    loader = importlib.machinery.SourceFileLoader(name, path)
    specification = importlib.util.spec_from_file_location(name, path, loader=loader)
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def choose(module, name):
    # A decorated function, a method and an object that is called are functions, too.
    public = {
        each: value
        for each, value in vars(module).items()
        if callable(value) and not inspect.isclass(value) and not each.startswith("_")
    }
    own = {each: value for each, value in public.items() if getattr(value, "__module__", None) == module.__name__}
    # A file of imports alone: `from verl.utils.reward_score import default_compute_score`.
    own = own or {each: value for each, value in public.items() if inspect.isfunction(value)}
    if name:
        if not callable(getattr(module, name, None)):
            raise Refusal(f"it has no function `{name}`; its functions: {', '.join(own) or 'none'}")
        return getattr(module, name), name
    for usual in ("compute_score", "grade"):
        # It may be an object that is called, or come from another module.
        if callable(getattr(module, usual, None)):
            return getattr(module, usual), usual
    if len(own) != 1:
        raise Refusal(f"name one of its functions (FILE.py:NAME): {', '.join(own) or 'it has none'}")
    return next((value, each) for each, value in own.items())


# Words of a parameter's name that say what it is; those of a ground truth come first: `expected_output` is one.
TRUTHS = set("ground groundtruth truth truths gt gts gold golden label labels target targets reference references ref expected correct true".split())
RESPONSES = set(
    "response responses completion completions prediction predictions predicted pred preds generation generations generated "
    "model hyp hypothesis hypotheses candidate output outputs hat resp".split()
)
QUESTIONS = set("question questions prompt prompts problem problems query queries instruction instructions task tasks".split())
INPUTS = set("input inputs entry entries".split())
ANSWERS = set("answer answers solution solutions".split())


def words_of(name):
    return set(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_"))


def is_plural(name):
    known = TRUTHS | RESPONSES | QUESTIONS | INPUTS | ANSWERS
    return any(word == "hypotheses" or word.endswith("s") and word[:-1] in known for word in words_of(name))


def role(name):
    """`truth`, `response`, `question`, `input`, `answer` or `solution`, which may be either, or None."""
    words = words_of(name)
    if words & TRUTHS:
        return "truth"
    if words & RESPONSES:
        return "response"
    is_answer = words & ANSWERS
    kinds = [kind for kind, names in (("question", QUESTIONS), ("input", INPUTS)) if words & names and not is_answer]
    return kinds[0] if kinds else name if name in ("answer", "solution") else None


def kind_of(parameters, name):
    """How the function is called: by its parameters beside those of `kwargs`, as verl and TRL name them."""
    named = [each for each in parameters.values() if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    named = [each for each in named if each.name not in SETTINGS["kwargs"]]
    if "solution_str" in parameters:
        return "verl"
    if "solution_strs" in parameters:
        return "verl-batch"
    if "completions" in parameters or "completion_ids" in parameters:
        return "trl"
    if takes_all(parameters) and not named and name != "grade":
        # Both trainers pass everything by name.
        return "verl" if name == "compute_score" else "trl"
    needed = [each for each in named if each.default is each.empty]
    in_order = [each for each in named if each.kind is not each.KEYWORD_ONLY]
    if len(in_order) < len(named) and (len(in_order) < 2 or any(each not in in_order for each in needed)):
        return by_name(named, needed, shown(parameters))
    named = in_order
    if len(needed) == 2 or len(needed) < 2 <= len(named):
        names = [each.name for each in (needed if len(needed) == 2 else named[:2])]
        refuse_plural(names, shown(parameters))
        first, second = map(role, names)
        if second == "response" and first in ("truth", "answer", "solution"):
            return ("swapped", *names)
        # Neither of them is the response, or the ground truth: of (question, answer) the answer may be the model's.
        is_asked = "question" in (first, second) or second == "input" or (first == "input" and second != "truth")
        says_nothing = first is second is None and max(map(len, names)) > 2
        if is_asked or says_nothing or second == "response" or first == "truth" or (first == "answer" and second != "truth"):
            raise Refusal(f"{shown(parameters)}, of which it is not clear which one is the response; expected (response, answer)")
        return ("plain", *names)
    raise Refusal(
        f"{shown(parameters)}; expected solution_str and ground_truth (verl), completions (TRL), "
        "or a response and an answer"
    )


def takes_all(parameters):
    return any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def shown(parameters):
    """For a message."""
    stated = [each for each in SETTINGS["kwargs"] if each in parameters]
    return f"it takes ({', '.join(parameters)})" + (f", kwargs states {', '.join(stated)}" if stated else "")


def refuse_plural(names, takes):
    if all(map(is_plural, names)):
        raise Refusal(
            f"{takes}, which are names of lists, and it is called with one response at a time; expected (response, answer), "
            "or a batch as verl (solution_strs, ground_truths) or TRL (completions) call it"
        )


def by_name(named, needed, takes):
    """Names of the parameters for the response and the answer, where some are given by their names alone."""
    response = [each.name for each in named if role(each.name) == "response"]
    truth = [each.name for each in named if role(each.name) in ("truth", "answer", "solution")]
    refuse_plural(response + truth or [""], takes)
    if len(response) == len(truth) == 1 and {each.name for each in needed} <= {*response, *truth}:
        return "named", response[0], truth[0]
    raise Refusal(
        f"{takes}, some by their names alone; expected one called response and one called answer, "
        "and a default for every other"
    )


def finished(value):
    """The value of a function, which may be asynchronous."""

    async def awaited():
        return await value

    return event_loop().run_until_complete(awaited()) if inspect.isawaitable(value) else value


@functools.cache
def event_loop():
    """One for all calls: a function may keep a client or a semaphore, which belongs to its loop."""
    return asyncio.new_event_loop()


def of_row(item):
    """The columns of a row, as TRL passes them; verl's `extra_info` as one of them, and its entries."""
    row = {**item["extra"], **item.get("columns", {})}
    if "columns" in item:
        row["extra_info"] = item["extra"]
    if item["data_source"]:
        row.setdefault("data_source", item["data_source"])
    return row


TRUTH_COLUMNS = ("ground_truth", "answer", "solution")


def columns(items, parameters):
    """The columns of a data set, as TRL passes them; the ground truth under the names that data sets give it."""
    rows = [of_row(item) for item in items]
    names = {name for row in rows for name in row}
    table = {name: [row.get(name) for row in rows] for name in names}
    for name in TRUTH_COLUMNS:
        having = sum(name in row for row in rows)
        if name != "ground_truth" and 0 < having < len(rows):
            if name in parameters:
                raise Refusal(
                    f"it takes {name}, which {having} of these {len(rows)} responses have as a column and the others do not: "
                    f"give each row a {name}, or take `ground_truth`, which each has"
                )
            continue
        table[name] = [row.get(name, item["ground_truth"]) for row, item in zip(rows, items)]
    table["prompts"] = [item["prompt"] for item in items]
    # As TRL: an answer to messages is a message.
    is_chat = any(isinstance(item["prompt"], list) for item in items)
    answers_of = lambda text: [{"role": "assistant", "content": text}] if is_chat else text
    table["completions"] = [answers_of(item["response"]) for item in items]
    if all("completion_ids" in item for item in items):
        table["completion_ids"] = [item["completion_ids"] for item in items]
    elif "completion_ids" in parameters and parameters["completion_ids"].default is inspect.Parameter.empty:
        raise Refusal("it reads completion_ids, and the tokens of these responses are not known")
    # TRL logs what they get; here a reward is recorded, and numbers of a dictionary.
    table["log_extra"] = table["log_metric"] = lambda *_logged, **_named: None
    table["trainer_state"] = NoTrainer()
    return table


class NoTrainer:
    def __getattr__(self, name):
        raise Refusal("it reads trainer_state, and there is no trainer of TRL here")


def of_verl(item, of_run):
    return {
        "data_source": item["data_source"],
        "solution_str": item["response"],
        "ground_truth": item["ground_truth"],
        "extra_info": {**item["extra"], **of_run},
    }


# What verl's naive and batch reward managers add to extra_info after a rollout of one turn.
OF_RUN = {"verl": {"num_turns": 2, "rollout_reward_scores": {}}, "verl-batch": {"rollout_reward_scores": {}}}


class Called:
    """A function of the user's, and how it is called."""

    def __init__(self, module, name, weight):
        function, self.name = choose(module, name)
        self.weight, self.stated = weight, accepted(function, SETTINGS["kwargs"])
        self.function = functools.partial(function, **self.stated) if self.stated else function
        self.parameters = inspect.signature(self.function).parameters
        self.kind = kind_of(self.parameters, self.name)
        self.started = {}
        unnamed = [each.name for each in self.parameters.values() if each.kind is each.POSITIONAL_ONLY]
        if unnamed and self.kind in PASSED:
            raise Refusal(f"{self.name} takes {unnamed[0]} by its place alone, and calls pass it by its name: take out the `/`")
        for each in self.parameters.values() if self.kind in OF_RUN else ():
            is_named = each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
            if is_named and each.default is each.empty and each.name not in (*PASSED[self.kind], *self.stated):
                passed = ", ".join(PASSED[self.kind])
                raise Refusal(f"{self.name} needs {each.name}, which no call has; a call has {passed}: state it in kwargs, or give it a default")

    def form(self):
        return self.kind if self.kind in ("verl", "verl-batch", "trl") else "plain"

    def results(self, items):
        """What it returns of each item, as JSON can hold it."""
        if self.kind == "trl":
            values = finished(self.by_name(columns(items, self.parameters)))
        elif self.kind == "verl-batch":
            rows = [of_verl(item, OF_RUN["verl-batch"]) for item in items]
            values = finished(self.by_name({f"{name}s": [row[name] for row in rows] for name in rows[0]}))
        else:
            self.start(items)
            begun = [self.started.pop(id(item), None) or self.value(item) for item in items]
            values = [finished(each) for each in begun]
        if isinstance(values, (str, dict)) or not hasattr(values, "__iter__") or getattr(values, "shape", None) == ():
            raise Refusal(f"it returned {type(values).__name__}, expected a list, one number for each response")
        return [result(value) for value in values]

    def waits(self):
        """Whether its responses wait side by side, as verl awaits them."""
        is_awaited = inspect.iscoroutinefunction
        is_one = self.kind not in ("trl", "verl-batch")
        return is_one and (is_awaited(self.function) or is_awaited(getattr(self.function, "__call__", None)))

    def start(self, items):
        if not self.waits():
            return

        async def begun(item):
            # The caller's time is that since the last response began or ended.
            answer({"running": None})
            value = await self.value(item)
            answer({"running": None})
            return value

        for item in items:
            if id(item) not in self.started:
                self.started[id(item)] = event_loop().create_task(begun(item))

    def value(self, item):
        if self.kind == "verl":
            return self.by_name(of_verl(item, OF_RUN["verl"]))
        how, first, second = self.kind
        response, truth = item["response"], item["ground_truth"]
        if how == "named":
            return self.function(**{first: response, second: truth})
        return self.function(truth, response) if how == "swapped" else self.function(response, truth)

    def roles(self):
        """The parameters that get the response and the answer, where they are told by their names or places alone."""
        how, *names = self.kind if self.form() == "plain" else [None]
        return names[::-1] if how == "swapped" else names

    def truths(self):
        """The parameters of a function of TRL that get the ground truth where the rows have no such column."""
        return [each for each in TRUTH_COLUMNS if self.kind == "trl" and each in self.parameters]

    def by_name(self, arguments):
        twice = [name for name in self.stated if name in arguments]
        if twice:
            raise Refusal(f"kwargs states {twice[0]}, which each call gets of the problem and its response, too")
        if not takes_all(self.parameters):
            arguments = {name: value for name, value in arguments.items() if name in self.parameters}
        return self.function(**arguments)

    def number(self, score):
        """A score as both trainers count it; a truth value of `grade` as its reward is here. None: no number."""
        if "flag" in score:
            return 1.0 if score["flag"] else -1.0 if self.form() == "plain" else 0.0
        return score.get("number")


def accepted(function, stated):
    """Those of `kwargs` that a function takes."""
    parameters = inspect.signature(function).parameters
    if takes_all(parameters):
        return stated
    names = [each.name for each in parameters.values() if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    return {name: value for name, value in stated.items() if name in names}


def functions(module):
    names = SETTINGS["functions"] or [SETTINGS["function"]]
    weights = SETTINGS["weights"] or [1.0] * len(names)
    called = [Called(module, name, weight) for name, weight in zip(names, weights)]
    for stated in SETTINGS["kwargs"]:
        if not any(stated in each.stated for each in called):
            takes = " and ".join(f"{each.name}({', '.join(each.parameters)})" for each in called)
            raise Refusal(f"kwargs states {stated}, which is no parameter of {takes}")
        of_call = [each.name for each in called if stated in PASSED.get(each.form(), ())]
        if of_call:
            raise Refusal(f"kwargs states {stated}, which each call of {of_call[0]} gets of the problem and its response, too")
    return called


PASSED = {
    "verl": ("data_source", "solution_str", "ground_truth", "extra_info"),
    "verl-batch": ("data_sources", "solution_strs", "ground_truths", "extra_infos"),
    "trl": ("prompts", "completions", "completion_ids", *TRUTH_COLUMNS, "log_extra", "log_metric"),
}


def results(called, items):
    """Of each function a list with what it returned of each item; None where an answer says why there is none."""
    lists = []
    for each in called:
        of_function = f"{each.name}: " if len(called) > 1 else ""
        try:
            values = each.results(items)
            if len(values) != len(items) and of_function:
                raise Refusal(f"returned {len(values)} rewards for {len(items)} responses")
        except Exception as error:
            return failed(error, of_function, form_of_texts(error, items) if each.kind == "trl" else "")
        if answer_late():
            return None
        if len(values) != len(items):
            return answer({"length": len(values)})
        lists.append(values)
    return lists


def weighted(called, results):
    """As TRL: the sum of the functions' values times their weights, without those that are None. Beside it each value."""
    total, fields = 0.0, {}
    for each, value in zip(called, results):
        parts = value.get("fields", {"score": value})
        score = parts.pop("score", {"other": "a dictionary without `score`"})
        is_left_out = score == {"other": "None"}
        if each is called[0]:
            fields["acc"] = parts.pop("acc", {"flag": False} if is_left_out else score)
            fields.update({"pred": parts.pop("pred")} if "pred" in parts else {})
        fields.update((f"{each.name}.{name}", part) for name, part in parts.items())
        if is_left_out:
            continue
        number = each.number(score)
        if number is None:
            return {"other": f"{score.get('other', 'a text')} from {each.name}"}
        total += each.weight * number
        fields[each.name] = {"number": number}
    if not any(each.name in fields for each in called):
        return {"other": "None from every function"}
    return {"fields": {**fields, "score": plain(total)}}


def plain(value):
    """A number, a truth value or a dictionary of them as JSON can hold it; others are told by their type."""
    if hasattr(value, "item") and not isinstance(value, (bool, int, float, str, dict)):
        try:
            value = value.item()  # numpy, torch
        except Exception:
            return {"other": type(value).__name__}
    if isinstance(value, bool):
        return {"flag": value}
    if isinstance(value, (numbers.Real, decimal.Decimal)):
        try:
            number = float(value)
        except (OverflowError, ValueError):
            return {"other": f"{type(value).__name__} that no float can hold"}
        return {"number": number} if math.isfinite(number) else {"other": repr(number)}
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


def form_of_texts(error, items):
    """What a function that takes texts for messages, or messages for texts, has not seen."""
    if isinstance(items[0]["prompt"], list):
        is_of_list = re.search(r"\blist\b", str(error))
        told = '; completions are messages here, as the prompts are (completion[0]["content"])'
        return told if is_of_list else ""
    is_of_text = isinstance(error, TypeError) and "string ind" in str(error)
    told = (
        "; prompts and completions are texts here: they are messages with a template of messages (`chat`), and in "
        "`data grade` where a line's `prompt` is a list of messages"
    )
    return told if is_of_text else ""


def failed(error, of_function="", hint=""):
    if isinstance(error, Refusal):
        answer({"refused": of_function + str(error)})
        return
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f"line {each.lineno}" for each in reversed(frames) if each.filename == SETTINGS["file"]), "")
    text = f"{type(error).__name__}: {error}".strip().rstrip(":")
    text += (f" ({place})" if place else "") + hint
    if "relative import with no known parent" in text:
        text += (
            "; the file is loaded alone, as no part of a package: name a file beside the package that has "
            "`from PACKAGE.MODULE import FUNCTION` (or import without the dot, from the folder of the file)"
        )
    if isinstance(error, ModuleNotFoundError):
        text += f"; install it into {sys.executable}, or name a Python that has it (the key `python`, or DAPO_PYTHON)"
    answer({"failed": of_function + text})


def main():
    global SETTINGS, SOURCES
    SETTINGS = json.loads(requests.readline())
    threading.Thread(target=end_with_caller, daemon=True).start()
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    memory = SETTINGS["memory_bytes"]
    resource.setrlimit(resource.RLIMIT_AS, (memory if most < 0 else min(memory, most), most))
    SOURCES = None if SETTINGS["text"] else Sources(SETTINGS["file"], SETTINGS["files"])
    try:
        module = load(SETTINGS["file"])
        called = functions(module)
        packages = {each: importlib.metadata.version(each) for each in SETTINGS["packages"]}
        packages["python"] = platform.python_version()
    except importlib.metadata.PackageNotFoundError as missing:
        answer({"failed": f"{missing} is among its packages, and {sys.executable} does not have it"})
        return
    except BaseException as error:  # the user's file may even exit
        failed(error)
        return
    if SOURCES:
        SOURCES.take()
    files, data = (SOURCES.names(), SOURCES.data()) if SOURCES else ([], [])
    unstated = SOURCES.packages(packages) if SOURCES else []
    name, forms = ", ".join(each.name for each in called), {each.form() for each in called}
    stated = forms.pop() if len(forms) == 1 else "mixed"
    roles = called[0].roles() if len(called) == 1 else []
    truths = sorted({name for each in called for name in each.truths()})
    waits = len(called) == 1 and called[0].waits()
    answer({"ready": {"function": name, "form": stated, "roles": roles, "truths": truths, "packages": packages, "unstated_packages": unstated, "files": files, "data": data, "waits": waits}})
    for line in requests:
        items = json.loads(line)
        if len(called) == 1:
            called[0].start(items)
        for part in [items] if stated in ("verl-batch", "trl", "mixed") else [[item] for item in items]:
            for item, *values in zip(part, *(results(called, part) or [[]])):
                value = weighted(called, values) if SETTINGS["functions"] else values[0]
                truth = item.get("ground_truth")
                if value.get("other", "").startswith("None") and not isinstance(truth, str):
                    value["other"] += f" (the ground truth is {str(truth)[:20]}, which is no text)"
                answer(value)


main()
