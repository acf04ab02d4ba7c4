"""Where the dynamic linker of a machine finds libraries: read from its cache, whichever machine's tree it is in."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from ..files import inside

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER, _ENTRY = 48, 24
_MOST = 64 << 20
_MOST_LINKS = 16
_ELSEWHERE = ("usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib", "usr/local/nvidia/lib64")
"""Looked into where there is no cache."""


def cached(root: Path) -> list[tuple[str, str]]:
    """What `ldconfig -p` would list in the tree below `root`: soname and path, as the linker would try them."""
    try:
        with (root / "etc/ld.so.cache").open("rb") as source:
            data = source.read(_MOST)
    except OSError:
        return []
    start = data.find(_MAGIC)
    if start < 0 or len(data) < start + _HEADER:
        return []
    (count,) = struct.unpack_from("<I", data, start + len(_MAGIC))
    found = []
    for number in range(min(count, (len(data) - start - _HEADER) // _ENTRY)):
        _, key, value = struct.unpack_from("<iII", data, start + _HEADER + number * _ENTRY)
        name, path = _word(data, start + key), _word(data, start + value)
        if path.startswith("/"):
            found.append((name, path))
    return found


def places(root: Path, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Soname and path of every library whose soname begins with one of `names` (`libcuda.so`)."""
    listed = cached(root)
    if not listed:
        for folder in _ELSEWHERE:
            listed += [(path.name, f"/{folder}/{path.name}") for path in sorted((root / folder).glob("lib*.so.*"))]
    for name, path in listed:
        if any(name == wanted or name.startswith(f"{wanted}.") for wanted in names):
            yield name, path


def of_driver(root: Path, names: tuple[str, ...], version: str) -> list[dict[str, str]]:
    """The libraries of the driver of this version: `name` is what programs look for, `path` the file itself.

    Machines keep others of the same soname: those of an older driver, those for building, those of another kind of
    processor. A program that gets one of them fails at its first call, so that a file that names another version, or
    that is for another kind of processor, is never taken.
    """
    ours = _kind(Path(sys.executable))
    chosen: dict[str, str] = {}
    for name, path in places(root, names):
        if name in chosen or name.endswith(".so"):
            continue  # one without a number is for building programs
        real = _real(root, path)
        said = real.rpartition(".so.")[2]
        if "." in said and version and said != version:
            continue
        if "/stubs/" in path or _kind(root / real.lstrip("/")) != ours:
            continue
        chosen[name] = real
    return [{"name": name, "path": path} for name, path in sorted(chosen.items())]


def _real(root: Path, path: str) -> str:
    """The file that a path in the tree stands for, its links followed inside the tree."""
    for _ in range(_MOST_LINKS):
        place = inside(root, path)
        path = f"/{place.relative_to(root)}"
        try:
            target = str(place.readlink())
        except OSError:
            break
        path = target if target.startswith("/") else f"{path.rpartition('/')[0]}/{target}"
    return path


def _kind(path: Path) -> bytes:
    """Word size and processor of a program or library; empty: it is none."""
    try:
        with path.open("rb") as source:
            head = source.read(20)
    except OSError:
        return b""
    return head[4:6] + head[18:20] if head.startswith(b"\x7fELF") else b""


def _word(data: bytes, at: int) -> str:
    end = data.find(b"\0", at, at + 4096)
    return data[at:end].decode("utf-8", "replace") if 0 <= at < end else ""
