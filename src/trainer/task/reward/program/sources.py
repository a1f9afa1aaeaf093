"""The files that a reward function is made of. Python gets this text and then that of bridge.py, as one program."""

import ast
import importlib.metadata
import os
import re
import sys
import sysconfig
import tokenize


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

    def packages(self, stated):
        """Installed packages that these files import, but for those whose names are stated."""
        known = {normal_name(each) for each in stated}
        names = {
            name.partition(".")[0]
            for importer in self.recorded
            for level, name in imports(importer, False)
            if not level and not self.files_of(importer, level, name)
        }
        names = {each for each in names - getattr(sys, "stdlib_module_names", names) if normal_name(each) not in known}
        installed = importlib.metadata.packages_distributions() if names else {}
        return sorted({each for name in names for each in installed.get(name, []) if normal_name(each) not in known})

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


def normal_name(package):
    return re.sub(r"[-_.]+", "-", package).lower()


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
