"""What is in force rather than in a file: parameters of the node's kernel; services and mounts of a member's init."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from ..errors import CommandFailed
from ..files import read_text
from ..paths import Paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Run = Callable[[list[str]], "tuple[int, str]"]
"""Runs a command in a member: its exit status and what it said."""
_RUNNING = ("active", "activating", "reloading")
_ENABLED = ("enabled", "enabled-runtime", "static", "alias", "indirect", "generated", "linked")
_MOST_SAID = 1 << 20
"""Bytes: an answer about all services or packages of a node is whole."""
WITHIN = 60.0
"""Seconds that a command in a member may take."""


def runner(command: Callable[[list[str]], tuple[list[str], Callable[[], None]]], within: float = WITHIN) -> Run:
    """Runs commands in a member; one that takes longer than `within` seconds is ended."""

    def inside(argv: list[str]) -> tuple[int, str]:
        words, end = command(argv)
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=within
            )
        except subprocess.TimeoutExpired:
            end()
            return 124, f"not over after {within:g} s"
        except OSError as error:
            return 127, str(error)
        return done.returncode, done.stdout[-_MOST_SAID:].decode("utf-8", "replace").strip()

    return inside


def must(inside: Run, argv: list[str]) -> str:
    """Run it; CommandFailed says what it said where it fails."""
    status, said = inside(argv)
    if status:
        raise CommandFailed(f"{' '.join(argv)[:200]}: {said[-300:] or f'exit status {status}'}")
    return said


# kernel


def sysctl_file(paths: Paths, name: str) -> Path:
    """Where the kernel shows a parameter."""
    return paths.proc("sys") / (name if "/" in name else name.replace(".", "/"))


def sysctl_differs(paths: Paths, entry: dict[str, Any]) -> str:
    """How a parameter is not what it should be; empty: it is."""
    file = sysctl_file(paths, str(entry["name"]))
    if not file.is_file():
        return "this kernel has no such parameter"
    found = " ".join(read_text(file).split())
    return "" if found == " ".join(str(entry["value"]).split()) else f"is {found[:200]}"


def set_sysctl(paths: Paths, entry: dict[str, Any]) -> None:
    """Have the kernel take it."""
    try:
        sysctl_file(paths, str(entry["name"])).write_text(str(entry["value"]))
    except OSError as error:
        raise CommandFailed(f"sysctl {entry['name']}={entry['value']}: {error.strerror or error}") from None


# services


def services_differ(inside: Run, entries: list[dict[str, Any]]) -> dict[str, str]:
    """Name of a service → how it is not what it should be. One question for all of them."""
    if not entries:
        return {}
    names = [str(entry["name"]) for entry in entries]
    fields = "Id,ActiveState,UnitFileState,LoadState"
    _, said = inside(["systemctl", "show", f"--property={fields}", "--", *names])
    blocks = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in said.split("\n\n")]
    found = {}
    for at, entry in enumerate(entries):
        told = blocks[at] if at < len(blocks) else {}
        if how := _service_differs(entry, told):
            found[names[at]] = how
    return found


def _service_differs(entry: dict[str, Any], told: dict[str, str]) -> str:
    if told.get("LoadState", "not-found") == "not-found":
        return "there is no such unit"
    active, enabled = told.get("ActiveState", ""), told.get("UnitFileState", "")
    words = []
    if entry["running"] is not None and (active in _RUNNING) != entry["running"]:
        words.append(f"is {active or 'not known'}")
    if entry["enabled"] is not None and (enabled in _ENABLED) != entry["enabled"]:
        words.append(f"is {enabled or 'not known'}")
    return ", ".join(words)


def set_service(inside: Run, entry: dict[str, Any]) -> None:
    """Have the member's init start, stop, enable or disable it."""
    name = str(entry["name"])
    if entry["enabled"] is not None:
        must(inside, ["systemctl", "enable" if entry["enabled"] else "disable", "--", name])
    if entry["running"] is not None:
        must(inside, ["systemctl", "start" if entry["running"] else "stop", "--", name])


# mounts


def mounts_of(paths: Paths, pid: int) -> dict[str, str]:
    """What is mounted in a member: place → source."""
    found = {}
    for line in read_text(paths.proc(f"{pid}/mountinfo"), 1 << 20).splitlines():
        before, _, after = line.partition(" - ")
        columns, source = before.split(), after.split()
        if len(columns) > 4 and len(source) > 1:
            found[_unescaped(columns[4])] = _unescaped(source[1])
    return found


def mount_differs(entry: dict[str, Any], there: dict[str, str]) -> str:
    """How a mount is not what it should be; empty: it is."""
    source = there.get(str(entry["target"]))
    if source is None:
        return "is not mounted"
    return "" if "bind" in str(entry["options"]).split(",") or source == str(entry["source"]) else f"is {source[:200]}"


def set_mount(inside: Run, entry: dict[str, Any]) -> None:
    """Mount it in a member."""
    options = ["-o", str(entry["options"])] if entry["options"] else []
    must(inside, ["mkdir", "-p", "--", str(entry["target"])])
    must(inside, ["mount", "-t", str(entry["type"]), *options, "--", str(entry["source"]), str(entry["target"])])


def _unescaped(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text
