"""Small files, written so that a killed agent leaves either the old one or the new one."""

from __future__ import annotations

import json
import os
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only root reads, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(data)
    fresh.replace(path)


def save_json(path: Path, value: object) -> None:
    """Keep a record across a restart of the agent."""
    write_private(path, json.dumps(value, separators=(",", ":")).encode())


def load_json(path: Path) -> Any:
    """The record that an earlier agent of this boot kept, or None."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


def read_text(path: Path | str, limit: int = 4096) -> str:
    """A line from sysfs or procfs, bounded and printable; empty where the kernel does not say."""
    try:
        with Path(path).open("rb") as source:
            text = source.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text).strip()


def read_number(path: Path | str) -> int | None:
    """A whole number from sysfs, or None where there is none."""
    try:
        return int(read_text(path, 64))
    except ValueError:
        return None


def inside(root: Path, path: str) -> Path:
    """Where `path` leads within `root`, its symbolic links followed as a process rooted there would see them.

    The last component is not followed. Nothing outside `root` can be named, whatever links the image has.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    done: list[str] = []
    links = 0
    while parts:
        part = parts.pop(0)
        if part == "..":
            done = done[:-1]
            continue
        here = root.joinpath(*done, part)
        if parts and here.is_symlink():
            links += 1
            if links > 40:
                raise OSError(f"too many symbolic links in {path}")
            target = str(here.readlink())
            if target.startswith("/"):
                done = []
            parts = [piece for piece in target.split("/") if piece not in ("", ".")] + parts
            continue
        done.append(part)
    return root.joinpath(*done)
