"""An image set as its owners write it: which images a node runs, and how. Pure: knows no store and no release.

The text of ``files`` may hold ``{node}``, ``{nid}``, ``{location}``, ``{address}``, ``{role}`` and ``{label:KEY}``:
each node gets its own.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.node import Node

MOST_FILES_BYTES = 64 * 1024
"""Bytes of all files of a set, on one node."""

_NAME = r"^[a-z0-9][a-z0-9_.-]{0,62}$(?!\n)"
_PATH = r"^/[^\u0000-\u001f]*$(?!\n)"
_ENV = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$(?!\n)"

NameText = Annotated[str, Meta(pattern=_NAME, max_length=63)]
PathText = Annotated[str, Meta(pattern=_PATH, max_length=255)]
Word = Annotated[str, Meta(max_length=4096, pattern=r"^[^\u0000]*$(?!\n)")]
Argv = Annotated[tuple[Word, ...], Meta(max_length=128)]

_HOLE = re.compile(r"\{(node|nid|location|address|role|label:[A-Za-z0-9_./-]{1,63})\}")


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of what is written: an unknown field is a mistake that we name."""


class Ready(Part, frozen=True, kw_only=True):
    """When a member is ready: ``started``, a ``file`` is there, a ``tcp`` port answers, or a ``command`` succeeds."""

    kind: Literal["started", "file", "tcp", "command"] = "started"
    path: Annotated[str, Meta(max_length=255)] = ""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    argv: Argv = ()
    within: Annotated[float, Meta(gt=0, le=3600)] = 60.0
    """Seconds; later it has failed."""


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
    """One image of the set."""

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


class ImageSet(Part, frozen=True, kw_only=True):
    """One or more images that make up what a node is: its personality."""

    name: NameText
    members: Annotated[tuple[Member, ...], Meta(min_length=1, max_length=16)]
    description: Annotated[str, Meta(max_length=500)] = ""


def check(image_set: ImageSet) -> None:
    """Raise ``BadRequest`` for what is well formed and yet cannot be."""
    names = [member.name for member in image_set.members]
    for member in image_set.members:
        where = f"image set {image_set.name}, member {member.name}"
        if names.count(member.name) > 1:
            raise BadRequest("two members have this name", where=where)
        ready = member.ready
        lacks = {"file": not ready.path.startswith("/"), "tcp": not ready.port, "command": not ready.argv}
        if lacks.get(ready.kind, False):
            field = {"file": "path", "tcp": "port", "command": "argv"}[ready.kind]
            raise BadRequest(f"readiness by {ready.kind} needs {field}", where=where)
        for path in (*(file.path for file in member.files), *(mount.target for mount in member.mounts)):
            if posixpath.normpath(path) != path or path == "/":
                raise BadRequest("a path has no '..', no '//' and no '/' at its end", where=f"{where}, {path[:80]}")
    if sum(len(file.content.encode()) for member in image_set.members for file in member.files) > MOST_FILES_BYTES:
        raise BadRequest(
            f"all files together have at most {MOST_FILES_BYTES} bytes", where=f"image set {image_set.name}"
        )


def fill(text: str, node: Node) -> str:
    """``text`` with the node's own words. Braces that mean nothing here stay as they are."""

    def word(found: re.Match[str]) -> str:
        name = found[1]
        if name.startswith("label:"):
            return node.labels.get(name.removeprefix("label:"), "")
        return {
            "node": node.name,
            "nid": "" if node.nid is None else str(node.nid),
            "location": node.location,
            "address": next((interface.address for interface in node.interfaces if interface.address), ""),
            "role": node.role,
        }[name]

    return _HOLE.sub(word, text)
