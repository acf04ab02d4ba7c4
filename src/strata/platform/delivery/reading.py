"""Overlays out of a repository's documents: their texts found, their entries placed and checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from strata.core.errors import BadRequest
from strata.core.input.yamltree import Document
from strata.platform.delivery.records import (
    FIELDS,
    MOST_TEXT,
    AnyEntry,
    Entries,
    FileEntry,
    GroupEntry,
    MountEntry,
    Overlay,
    PackageEntry,
    ServiceEntry,
    SysctlEntry,
    UserEntry,
)

_NOT_BELOW = ("/proc", "/sys", "/dev", "/run", "/tmp", "/var/run")
TEMPLATE = ".j2"
Layer = Literal["vendor", "site", "system"]
Texts = Callable[[str], tuple[str, str] | None]
"""A file of the repository as an entry names it → its path and text; None: there is none."""


def resolved(
    document: Document, found: Entries, *, name: str, layer: Layer, select: str, rank: int, drift: str, texts: Texts
) -> Overlay:
    """A document's entries, whole; ``BadRequest`` says where one is wrong."""
    entries: dict[str, Any] = {}
    for field in FIELDS:
        entries[field] = tuple(
            _resolved(entry, document.place(f"{field}[{at}]"), drift, texts)
            for at, entry in enumerate(getattr(found, field))
        )
    return Overlay(name=name, layer=layer, select=select, rank=rank, vars=found.vars, **entries)


def _resolved(entry: AnyEntry, place: str, drift: str, texts: Texts) -> AnyEntry:
    changes: dict[str, Any] = {"place": place, "drift": entry.drift or drift}
    if not entry.absent:
        if wrong := _wrong(entry):
            raise BadRequest(wrong, where=place)
        if isinstance(entry, FileEntry) and entry.source:
            changes.update(_text(entry, place, texts))
    return msgspec.structs.replace(entry, **changes)


def _text(entry: FileEntry, place: str, texts: Texts) -> dict[str, Any]:
    there = texts(entry.source)
    if there is None:
        raise BadRequest(
            f"there is no files/{entry.source} in this layer or an earlier one",
            where=place,
            hint="sources are below files/, vendor/files/ or systems/NAME/files/",
        )
    path, text = there
    if len(text) > MOST_TEXT:
        raise BadRequest(f"has {len(text)} characters; a file that is delivered has at most {MOST_TEXT}", where=path)
    field = "template" if path.endswith(TEMPLATE) else "content"
    return {"source": path, field: text}


def _wrong(entry: AnyEntry) -> str:
    """What an entry lacks, or cannot be; empty: nothing."""
    if isinstance(entry, FileEntry):
        given = (bool(entry.source), entry.content is not None, entry.template is not None)
        if sum(given) != 1:
            return "a file must have one of source, content and template"
        for folder in _NOT_BELOW:
            if entry.path == folder or entry.path.startswith(f"{folder}/"):
                return f"nothing is delivered below {folder}: that is the member's own memory"
        return ""
    if isinstance(entry, UserEntry):
        if entry.uid is None or entry.name.isdigit():
            return "a user must have a name and a uid"
        return "a user with keys must have a home" if entry.keys and not entry.home else ""
    if isinstance(entry, GroupEntry):
        return "a group must have a name and a gid" if entry.gid is None or entry.name.isdigit() else ""
    if isinstance(entry, ServiceEntry):
        return "a service must say enabled or running" if entry.enabled is entry.running is None else ""
    if isinstance(entry, PackageEntry):
        return ""
    if isinstance(entry, MountEntry):
        return "" if entry.source and entry.type else "a mount must have a source and a type"
    return "" if isinstance(entry, SysctlEntry) and entry.value else "a sysctl must have a value"
