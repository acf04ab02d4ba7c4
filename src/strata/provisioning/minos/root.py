"""The initrd's file tree, put together from packages, the agent's sources and the files beside this one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from strata.core.errors import Unavailable
from strata.provisioning.minos import elf, modules, python, standin
from strata.provisioning.minos.recipe import PROGRAMS, SETTINGS, STAND_INS, Recipe
from strata.provisioning.minos.tree import File, Tree, directory, link, regular

CRASH_HOOK = "etc/strata/crash-hook"
"""What a kernel runs that was started because another one crashed."""

_OURS = Path(__file__).parent / "rootfs"
_EMPTY = ("dev", "etc", "mnt", "proc", "run", "sbin", "sys", "tmp", "var")


def system(
    recipe: Recipe, files: Mapping[str, File], agent: Mapping[str, str], crash_hook: bytes | None = None
) -> Tree:
    """All but the kernel's modules: programs with their libraries, Python, the agent, and what starts them."""
    tree: Tree = {name: directory() for name in _EMPTY}
    tree["root"] = directory(0o700)
    tree["tmp"] = directory(0o1777)
    for path in PROGRAMS:
        tree[path] = _program(files, path)
    which = python.version(files)
    tree[f"usr/bin/python{which}"] = files[f"usr/bin/python{which}"]
    tree["usr/bin/python3"] = link(f"python{which}")
    tree |= {path: files[path] for path in SETTINGS}
    tree["usr/lib/ssl/openssl.cnf"] = link("/etc/ssl/openssl.cnf")
    tree |= python.library(files, which, agent)
    tree |= _libraries(recipe, files, tree.values())
    tree |= _ours()
    if crash_hook is not None:
        tree[CRASH_HOOK] = regular(crash_hook, executable=True)
    return tree


def _ours() -> Tree:
    def ours(name: str) -> bytes:
        return (_OURS / name).read_bytes().replace(b"@ALWAYS@", " ".join(modules.ALWAYS).encode())

    return {
        "init": regular(ours("init"), executable=True),
        "etc/inittab": regular(ours("inittab")),
        "etc/strata": directory(0o700),
        "etc/strata/minos.sh": regular(ours("minos.sh")),
        "etc/strata/agent": regular(ours("agent"), executable=True),
        CRASH_HOOK: regular(ours("crash-hook"), executable=True),
        "etc/strata/dhcp": regular(ours("dhcp"), executable=True),
        "etc/passwd": regular(b"root:x:0:0:root:/root:/bin/sh\n"),
        "etc/group": regular(b"root:x:0:\ntty:x:5:\n"),
        "etc/hosts": regular(b"127.0.0.1 localhost\n::1 localhost\n"),
        # The kernel calls this one by its path, for file systems and protocols that are not loaded yet.
        "sbin/modprobe": link("/bin/busybox"),
        "var/run": link("/run"),
    }


def _program(files: Mapping[str, File], path: str) -> File:
    found = files.get(path) or files.get(f"usr/{path}")
    if found is None:
        raise Unavailable(f"the packages hold no /{path}", where="minos build")
    return found


def _libraries(recipe: Recipe, files: Mapping[str, File], users: Iterable[File]) -> Tree:
    """Every library that ``users`` need, at the first place where the loader looks, and the loader itself."""
    folder = f"lib/{recipe.triplet}"
    found: Tree = {}
    functions: dict[str, dict[str, str]] = {}
    waiting = list(users)
    while waiting:
        data = waiting.pop().data
        header = elf.read(data)
        if header is None:
            continue
        if header.machine != recipe.machine:
            raise Unavailable(f"a program is not for {recipe.arch}", where="minos build")
        loader = header.interpreter.rpartition("/")[2]
        if loader and header.interpreter != f"/{folder}/{loader}":
            found[header.interpreter.lstrip("/")] = link(f"/{folder}/{loader}")
        for name in (*header.needed, *([loader] if loader else [])):
            if name in STAND_INS:
                functions[name] = functions.get(name, {}) | elf.imports(data, name)
            elif f"{folder}/{name}" not in found:
                found[f"{folder}/{name}"] = _library(recipe, files, name)
                waiting.append(found[f"{folder}/{name}"])
    for name, used in functions.items():
        found[f"{folder}/{name}"] = regular(standin.library(name, recipe.machine, used), executable=True)
    return found


def _library(recipe: Recipe, files: Mapping[str, File], name: str) -> File:
    for folder in (f"lib/{recipe.triplet}", f"usr/lib/{recipe.triplet}", "lib", "usr/lib"):
        path = f"{folder}/{name}"
        found = files.get(path)
        if found is not None and found.mode & 0o170000 == 0o120000:
            found = files.get(f"{folder}/{found.data.decode().rpartition('/')[2]}")
        if found is not None:
            return regular(found.data, executable=True)
    raise Unavailable(f"no package holds the library {name}", where="minos build")
