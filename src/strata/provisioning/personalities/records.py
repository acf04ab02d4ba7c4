"""A personality as its owners write it: which images a node runs, and how. Pure: knows no store and no release.

The text of ``files`` may hold ``{node}``, ``{nid}``, ``{location}``, ``{address}``, ``{role}`` and ``{label:KEY}``:
each node gets its own. ``{{node}}`` stands for ``{node}`` itself; ``${node}`` is a shell's, and any other brace
(``{}``, ``{ a b }``, JSON) is just a brace.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.node import Node
from strata.core.texts import PLAIN, In

MOST_FILES_BYTES = 64 * 1024
"""Bytes of all files of a personality, on one node."""

_NAME = r"^[a-z0-9][a-z0-9_.-]{0,62}$(?!\n)"
_PATH = r"^/[^\u0000-\u001f]*$(?!\n)"
_ENV = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$(?!\n)"

NameText = Annotated[str, Meta(pattern=_NAME, max_length=63)]
PathText = Annotated[str, Meta(pattern=_PATH, max_length=255)]
Word = Annotated[str, Meta(max_length=4096, pattern=r"^[^\u0000]*$(?!\n)")]
Argv = Annotated[tuple[Word, ...], Meta(max_length=128)]

_LABEL = "label:"
_WORD = r"[A-Za-z_][A-Za-z0-9_.:/-]{0,127}"
_HOLE = re.compile(rf"\{{\{{({_WORD})\}}\}}|(?<!\$)\{{({_WORD})\}}")


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of what is written: an unknown field is a mistake that we name."""


class Ready(Part, frozen=True, kw_only=True):
    """When a member is ready: ``started``, a ``file`` is there, somebody listens at a ``tcp`` port, or a ``command``
    succeeds. Looked at again for as long as it runs."""

    kind: Literal["started", "file", "tcp", "command"] = "started"
    path: Annotated[str, Meta(max_length=255)] = ""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    argv: Argv = ()
    within: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    """Seconds; later it has failed."""
    every: Annotated[float, Meta(ge=1, le=3600)] = 30.0
    """Seconds between two looks at a member that is ready, whether it still is."""


class Restart(Part, frozen=True, kw_only=True):
    """How often a member that ends is started again within ten minutes, and after how many seconds at first."""

    most: Annotated[int, Meta(ge=0, le=1000)] = 5
    backoff: Annotated[float, Meta(gt=0, le=600)] = 1.0


class Mount(Part, frozen=True, kw_only=True):
    """A directory of the minimal OS that the member sees."""

    source: PathText
    target: PathText
    readonly: bool = True


class File(Part, frozen=True, kw_only=True):
    """A file that the member finds, with each node's own words in it."""

    path: PathText
    content: Annotated[str, Meta(max_length=MOST_FILES_BYTES)] = ""
    mode: Annotated[int, Meta(ge=0, le=0o7777)] = 0o644


class Member(Part, frozen=True, kw_only=True):
    """One image of the personality."""

    name: NameText
    release: Annotated[str, Meta(min_length=1, max_length=128)]
    """``name:tag`` of an image in the repository."""
    mode: Literal["ram", "demand"] = "ram"
    """``ram``: the whole image is fetched first. ``demand``: parts of it, as they are read."""
    argv: Argv = ()
    """What it runs; empty: what the image says."""
    env: Annotated[Mapping[Annotated[str, Meta(pattern=_ENV, max_length=128)], Word], Meta(max_length=128)] = {}
    init: bool = False
    """It runs a full init, such as systemd."""
    ready: Ready = msgspec.field(default_factory=Ready)
    restart: Restart = msgspec.field(default_factory=Restart)
    mounts: Annotated[tuple[Mount, ...], Meta(max_length=64)] = ()
    files: Annotated[tuple[File, ...], Meta(max_length=64)] = ()


class Personality(Part, frozen=True, kw_only=True):
    """One or more images that make up what a node is: its personality."""

    name: NameText
    members: Annotated[tuple[Member, ...], Meta(min_length=1, max_length=16)]
    description: Annotated[str, Meta(max_length=500)] = ""


class PersonalitySpec(In, frozen=True, kw_only=True):
    """What a personality is made of."""

    members: Annotated[tuple[Member, ...], Meta(min_length=1, max_length=16)]
    description: Annotated[str, Meta(pattern=PLAIN, max_length=500)] = ""


class PersonalityView(Personality, frozen=True, kw_only=True, omit_defaults=False, forbid_unknown_fields=False):
    """A personality, and what it stands for now. ``digest`` empty: it cannot be run, and ``problem`` says why."""

    digest: str
    problem: str
    releases: Mapping[str, str]
    """Member → digest of the image that its tag stands for."""
    wanted: int
    """Nodes whose owners want it."""
    running: int
    """Nodes that have it, as it is now."""
    revision: int


def check(personality: Personality) -> None:
    """Raise ``BadRequest`` for what is well formed and yet cannot be."""
    names = [member.name for member in personality.members]
    for member in personality.members:
        where = f"personality {personality.name}, member {member.name}"
        if names.count(member.name) > 1:
            raise BadRequest("two members have this name", where=where)
        ready = member.ready
        lacks = {"file": not ready.path.startswith("/"), "tcp": not ready.port, "command": not ready.argv}
        if lacks.get(ready.kind, False):
            field = {"file": "path", "tcp": "port", "command": "argv"}[ready.kind]
            raise BadRequest(f"readiness by {ready.kind} needs {field}", where=where)
        for path in (*(file.path for file in member.files), *(mount.target for mount in member.mounts)):
            if posixpath.normpath(path) != path or path == "/":
                raise BadRequest(
                    "a path must not contain '..' or '//', nor end with '/'", where=f"{where}, {path[:80]}"
                )
        for file in member.files:
            _check_holes(file, f"{where}, {file.path[:80]}")
    if sum(len(file.content.encode()) for member in personality.members for file in member.files) > MOST_FILES_BYTES:
        raise BadRequest(
            f"all files together have at most {MOST_FILES_BYTES} bytes", where=f"personality {personality.name}"
        )


_WORDS: Mapping[str, Callable[[Node], str]] = {
    "node": lambda node: node.name,
    "nid": lambda node: "" if node.nid is None else str(node.nid),
    "location": lambda node: node.location,
    "address": lambda node: next((interface.address for interface in node.interfaces if interface.address), ""),
    "role": lambda node: node.role,
}


def fill(text: str, node: Node) -> str:
    """``text`` with the node's own words."""

    def word(found: re.Match[str]) -> str:
        literal, name = found[1], found[2]
        if literal:
            return f"{{{literal}}}"
        if name.startswith(_LABEL):
            return node.labels.get(name.removeprefix(_LABEL), "")
        return _WORDS[name](node) if name in _WORDS else found[0]

    return _HOLE.sub(word, text)


def _check_holes(file: File, where: str) -> None:
    for found in _HOLE.finditer(file.content):
        name = found[2]
        if name is None or name in _WORDS or (name.startswith(_LABEL) and name != _LABEL):
            continue
        line = file.content.count("\n", 0, found.start()) + 1
        known = ", ".join(f"{{{word}}}" for word in (*_WORDS, "label:KEY"))
        raise BadRequest(
            f"there is nothing to put in place of {{{name[:40]}}} in line {line}; known are {known}",
            where=where,
            hint=f"to have it as it stands, write {{{{{name[:40]}}}}}",
        )
