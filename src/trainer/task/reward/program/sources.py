"""The files that a reward function is made of. Python gets this text and then that of bridge.py, as one program."""

import ast
import importlib.metadata
import importlib.util
import os
import re
import sys
import sysconfig
import time
import tokenize


class Sources:
    """The user's own files: what the process executes outside of the standard library and of installed packages."""

    INSTALLED = {"site-packages", "dist-packages"}

    def __init__(self, path, stated):
        self.folder = os.path.dirname(os.path.abspath(path))
        self.stated = {os.path.join(self.folder, each) for each in stated}
        folders = [sysconfig.get_path(each) for each in ("stdlib", "platstdlib")]
        self.standard = tuple({real(each) + os.sep for each in folders for real in (str, os.path.realpath)})
        self.temporary, self.since = os.path.realpath(os.environ.get("TMPDIR") or "/tmp"), time.time()
        self.executed, self.read, self.recorded = set(), set(), set()
        self.is_loaded, self.found_late, self.before = False, None, set(sys.modules)
        sys.addaudithook(self.watch)

    def watch(self, event, arguments):
        # Code of a cache names its source; a source that is read may be executed under another name.
        try:
            if event == "exec":
                self.executed.add(os.path.abspath(arguments[0].co_filename))
            elif event == "import" and isinstance(arguments[1], str):
                self.executed.add(os.path.abspath(arguments[1]))
            elif event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
                path = os.path.abspath(os.fsdecode(arguments[0]))
                is_source = path.endswith((".py", ".pyc"))
                if is_source or not self.is_loaded:
                    (self.executed if is_source else self.read).add(path)
        except Exception:
            pass  # of a name that is no path, and whoever opens it hears of it

    def take(self):
        self.is_loaded = True
        # Modules of some packages run code when they are asked for an attribute.
        modules = [getattr(each, "__dict__", {}).get("__file__") for name, each in list(sys.modules.items()) if name not in self.before]
        paths = {os.path.abspath(each) for each in modules if isinstance(each, str)}
        searched = [os.path.abspath(each) for each in sys.path if isinstance(each, str)]
        targets = [each for each in searched if not f"{self.folder}{os.sep}".startswith(f"{each}{os.sep}") and has_packages(each)]
        self.standard += tuple(real(each) + os.sep for each in targets for real in (str, os.path.realpath))
        while self.executed:
            paths.add(self.executed.pop())
        self.recorded = {each for each in map(source_of, paths) if self.name(each)}
        self.roots = [each for each in [self.folder, *searched] if each == self.folder or not self.is_installed(each)]
        self.recorded |= self.imported_later()

    def is_installed(self, path):
        parts = set(path.split(os.sep))
        return any(f"{each}{os.sep}".startswith(self.standard) for each in (path, os.path.realpath(path))) or bool(self.INSTALLED & parts)

    def name(self, path):
        """The path from the reward file's folder, with `above-2/` two folders above it; None of what is not the user's."""
        name = os.path.relpath(path, self.folder)
        if is_above(name):
            if self.is_installed(path):
                return None
            path = os.path.realpath(path)
            name = os.path.relpath(path, os.path.realpath(self.folder))
        parts = name.split(os.sep)
        if self.INSTALLED & set(parts) or not os.path.isfile(path) or self.is_made_here(path):
            return None
        levels = parts.count(os.pardir)
        return "/".join([f"above-{levels}", *parts[levels:]] if levels else parts)

    def is_made_here(self, path):
        is_temporary = os.path.realpath(path).startswith(self.temporary + os.sep)
        return is_temporary and os.stat(path).st_ctime >= self.since

    def names(self):
        return sorted({self.name(each) for each in self.recorded})

    def data(self):
        near = (os.path.dirname(self.folder), os.getcwd())
        read = [each for each in self.read - self.recorded - self.stated if each.startswith(tuple(f"{folder}{os.sep}" for folder in near if folder != os.sep))]
        names = [name for name in map(self.name, read) if name and not any(part.startswith(".") for part in name.split("/"))]
        return sorted(names)

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

    def late(self):
        """A file that was executed since, and that nothing said would be."""
        while self.executed and not self.found_late:
            path = source_of(self.executed.pop())
            if path not in self.recorded and path not in self.stated:
                self.found_late = self.name(path)
        return self.found_late

    def imported_later(self):
        """What the loaded files can import while they grade, and what that imports."""
        found, rest = set(), [(each, True) for each in self.recorded]
        while rest:
            importer, is_loaded = rest.pop()
            for level, name in imports(importer, is_loaded):
                for each in self.files_of(importer, level, name):
                    if each not in self.recorded | found and self.name(each):
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
        if first in sys.builtin_module_names or isinstance(known, str) and not self.name(source_of(os.path.abspath(known))):
            return []
        return next(filter(None, (files_below(root, name) for root in self.roots)), [])


def has_packages(folder):
    """Of `pip install --target`, say, as PYTHONPATH names it."""
    return os.path.isdir(folder) and any(each.endswith(".dist-info") for each in os.listdir(folder))


def is_above(name):
    return name.split(os.sep)[0] == os.pardir


def source_of(path):
    """The file that has the code of this path: the source of a cache, the archive around a module."""
    if path.endswith(".pyc"):
        try:
            source = importlib.util.source_from_cache(path)
        except ValueError:
            return path
        return source if os.path.isfile(source) else path
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


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
