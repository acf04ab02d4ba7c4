"""A small Python for the initrd: the interpreter, and of its library only what is imported, compiled beforehand.

Imports are followed through the sources, those inside functions too. Bytecode without sources is most of a fast start
where every file is read from memory and every instruction is emulated.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from strata.core.errors import Unavailable
from strata.provisioning.minos.tree import File, Tree, directory, regular

# fmt: off
AT_RUN_TIME = (
    "encodings.aliases", "encodings.ascii", "encodings.idna", "encodings.latin_1", "encodings.utf_8", "stringprep",
    "_strptime", "runpy", "pkgutil", "importlib.util", "importlib.machinery", "os", "io", "abc", "codecs", "warnings",
    "traceback", "linecache",
)
# fmt: on
"""Imported by name, by C, or by the interpreter itself."""

AGENT = "strata_agent"
"""The import name of the agent in the minimal OS."""

# fmt: off
_SPARED = frozenset({
    "_bz2", "_lzma", "argparse", "bdb", "bz2", "cgi", "cmd", "code", "concurrent.futures.process", "ctypes.wintypes",
    "curses", "dbm", "decimal", "distutils", "doctest", "ensurepip", "fractions", "getpass", "gettext", "imaplib",
    "importlib.abc", "importlib.metadata", "importlib.readers", "importlib.resources", "lib2to3", "logging", "lzma",
    "multiprocessing", "netrc", "optparse", "pdb", "pickle", "plistlib", "pty", "py_compile", "pydoc", "pydoc_data",
    "readline", "rlcompleter", "smtplib", "sqlite3", "statistics", "tarfile", "test", "tkinter", "tracemalloc", "tty",
    "unittest", "venv", "webbrowser", "xml", "xmlrpc", "zipfile",
})
# fmt: on
"""Left out where the library names them in a function or under a condition: for other systems, for people at a
prompt, for debugging. What a module imports as it is loaded is never left out, nor anything that the agent names."""

_COMPILER = """
import importlib.util, json, marshal, struct, sys
out = sys.stdout.buffer
for line in sys.stdin:
    name, source = json.loads(line)
    code = compile(source, name, "exec", dont_inherit=True, optimize=2)
    # Unchecked hash: the interpreter never looks for a source.
    body = importlib.util.MAGIC_NUMBER + struct.pack("<I", 1) + bytes(8) + marshal.dumps(code)
    out.write(struct.pack("<I", len(body)) + body)
"""


def version(files: Iterable[str]) -> str:
    """Which Python the packages hold, as in "3.11"."""
    for path in sorted(files):
        if found := re.fullmatch(r"usr/bin/python(3\.\d+)", path):
            return found[1]
    raise Unavailable("the packages hold no Python", where="minos build")


def sources(package: Path) -> dict[str, str]:
    """The agent's files, by their path under its package."""
    return {
        str(path.relative_to(package)): path.read_text(encoding="utf-8")
        for path in sorted(package.rglob("*.py"))
        if "__pycache__" not in path.parts
    }


def library(files: Mapping[str, File], which: str, agent: Mapping[str, str]) -> Tree:
    """What ``agent`` needs of the library in ``files``, and the agent itself, compiled."""
    root = f"usr/lib/python{which}/"
    named = {name for path, text in agent.items() for name, _ in _imports(text, f"{AGENT}/{path}")}
    found = _Modules(files, root).closure({*named, *AT_RUN_TIME})
    texts = {path: files[path].data.decode() for path in found if path.endswith(".py")}
    texts |= {f"{root}{AGENT}/{path}": text for path, text in agent.items()}
    tree = {path: files[path] for path in found if not path.endswith(".py")}
    for path, code in zip(sorted(texts), _compile(which, [(path, texts[path]) for path in sorted(texts)]), strict=True):
        tree[path + "c"] = regular(code)
    # The interpreter looks for this folder, and complains without it.
    tree.setdefault(f"{root}lib-dynload", directory())
    return tree


class _Modules:
    """The library as files: finds what a module's name stands for."""

    def __init__(self, files: Mapping[str, File], root: str) -> None:
        self._files = files
        self._root = root
        dynamic = root + "lib-dynload/"
        self._extensions = {
            path.removeprefix(dynamic).partition(".")[0]: path
            for path in files
            if path.startswith(dynamic) and path.endswith(".so")
        }

    def closure(self, names: Iterable[str]) -> set[str]:
        """The files of these modules, and of all that they import."""
        found: set[str] = set()
        seen: set[str] = set()
        waiting = sorted(names)
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            if "." in name:
                waiting.append(name.rpartition(".")[0])
            path = self._path(name)
            if path is None or path in found:
                continue
            found.add(path)
            if path.endswith(".py"):
                imports = _imports(self._files[path].data.decode(), path.removeprefix(self._root))
                waiting += [below for below, always in imports if always or not _spared(below)]
        return found

    def _path(self, name: str) -> str | None:
        base = self._root + name.replace(".", "/")
        for path in (f"{base}/__init__.py", f"{base}.py"):
            if path in self._files:
                return path
        return self._extensions.get(name)


def _spared(name: str) -> bool:
    return any(".".join(name.split(".")[:depth]) in _SPARED for depth in range(1, name.count(".") + 2))


def _imports(source: str, path: str) -> Iterator[tuple[str, bool]]:
    """Every module that the source at ``path`` (under the root of imports) names, and whether loading it needs it."""
    package = path.removesuffix(".py").removesuffix("/__init__").split("/")
    if not path.endswith("/__init__.py"):
        package = package[:-1]
    for node, always in _nodes(ast.parse(source), always=True):
        if isinstance(node, ast.Import):
            yield from ((alias.name, always) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *(node.module.split(".") if node.module else [])])
            yield base, always
            # Each may be a module of the package, or only a name in it; what is no file is dropped later.
            yield from ((f"{base}.{alias.name}", always) for alias in node.names)


def _nodes(tree: ast.AST, *, always: bool) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes, and whether they always run; but for those that never do: a main part, and what type checkers see."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and _never(child.test):
            continue
        yield child, always
        yield from _nodes(child, always=always and isinstance(child, ast.ClassDef | ast.With))


def _never(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING", "__name__ == '__main__'")


def _compile(which: str, texts: list[tuple[str, str]]) -> list[bytes]:
    """Bytecode by a fresh interpreter: what it holds besides would show in the bytes."""
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    python = sys.executable if ours == which else shutil.which(f"python{which}")
    if python is None:
        raise Unavailable(
            f"bytecode for Python {which} takes that Python, and there is none here",
            where="minos build",
            hint=f"apt-get install python{which}-minimal",
        )
    done = subprocess.run(
        [python, "-S", "-s", "-c", _COMPILER],
        input="".join(json.dumps(["/" + path, text]) + "\n" for path, text in texts).encode(),
        env={"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        timeout=300,
    )
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise Unavailable(f"Python {which} could not compile it: {' '.join(last)[:300]}", where="minos build")
    return _framed(done.stdout)


def _framed(stream: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(stream):
        size = int.from_bytes(stream[at : at + 4], "little")
        found.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return found
