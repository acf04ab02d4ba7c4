"""What stands in a repository's files: documents of several kinds, each with a place. Knows nothing of layers."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from strata.core.errors import BadRequest
from strata.core.input.yamltree import Document
from strata.core.texts import (
    DocumentNameText,
    GroupNameText,
    In,
    LabelText,
    NoteText,
    SelectText,
    WantedMap,
    check_wanted,
)
from strata.core.units import Seconds
from strata.platform.config.kept import KEPT
from strata.platform.config.records import MEMBERS, NodeEntry
from strata.platform.delivery.records import Entries, Policy
from strata.platform.written import times
from strata.provisioning.personalities.records import Member, NameText


class Shared(In, frozen=True, kw_only=True):
    """What many nodes can have in common."""

    role: LabelText | UnsetType = UNSET
    architecture: LabelText | UnsetType = UNSET
    labels: Annotated[Mapping[LabelText, LabelText], Meta(max_length=64)] | UnsetType = UNSET


class DefaultsDocument(Shared, frozen=True, kw_only=True):
    """What every node has, unless something says otherwise."""

    kind: Literal["defaults"]


class NodesDocument(Shared, frozen=True, kw_only=True):
    """Nodes (a nodeset, or a list of nodes) and what they have in common."""

    kind: Literal["nodes"]
    nodes: str | tuple[NodeEntry, ...]


class NodeDocument(NodeEntry, frozen=True, kw_only=True):
    """One node."""

    kind: Literal["node"]


class GroupDocument(In, frozen=True, kw_only=True):
    """A group, and what its members have in common. A later layer may leave out what an earlier one said."""

    kind: Literal["group"]
    name: GroupNameText
    members: str | tuple[MEMBERS, ...] | UnsetType = UNSET
    description: NoteText | UnsetType = UNSET
    nodes: Shared | UnsetType = UNSET
    absent: bool = False
    """This system does not have it, whatever earlier layers say."""


class DesireDocument(In, frozen=True, kw_only=True):
    """What is wanted of nodes. Without ``priority``: by layer, and the narrower selection wins."""

    kind: Literal["desire"]
    name: DocumentNameText
    select: SelectText | UnsetType = UNSET
    set: WantedMap | UnsetType = UNSET
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] | UnsetType = UNSET
    absent: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.set, UnsetType):
            check_wanted(self.set)


class PersonalityDocument(In, frozen=True, kw_only=True):
    """What nodes run."""

    kind: Literal["personality"]
    name: NameText
    members: Annotated[tuple[Member, ...], Meta(min_length=1, max_length=16)] | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=500)] | UnsetType = UNSET
    absent: bool = False


class OverlayDocument(Entries, frozen=True, kw_only=True, omit_defaults=True):
    """What nodes are configured with: files, users, packages, services, mounts, sysctls. A document of the same
    name in a later layer adds to it, and rules where both say something of the same entry."""

    kind: Literal["overlay"]
    name: DocumentNameText
    select: SelectText | UnsetType = UNSET
    """Without: as an earlier layer says; where none does, all nodes."""
    drift: Policy = "report"
    """What agents do about drift of these entries, where an entry says nothing of it."""
    absent: bool = False


_MODE = re.compile(r"0o?[0-7]{3,4}\Z")
KINDS: Mapping[str, type[msgspec.Struct]] = {
    "defaults": DefaultsDocument,
    "nodes": NodesDocument,
    "node": NodeDocument,
    "group": GroupDocument,
    "desire": DesireDocument,
    "personality": PersonalityDocument,
    "overlay": OverlayDocument,
    **{kind: kept.document for kind, kept in KEPT.items()},
}


def read(document: Document) -> Any:
    """The document as one of ``KINDS``; ``BadRequest`` says what is wrong, with file, line and column."""
    found = document.data
    if not isinstance(found, dict):
        raise BadRequest("must be a mapping with a kind", where=document.place(""), hint=f"kind: {', '.join(KINDS)}")
    kind = found.get("kind", "")
    if kind not in KINDS:
        words = f"is {str(kind)[:40]!r}" if kind else "is missing"
        raise BadRequest(f"kind {words}; it can be {', '.join(KINDS)}", where=document.place("kind"))
    if kind == "personality":
        document = document.saying(copy.deepcopy(found))
        _octal(document)
    return document.read(KINDS[kind], times)


def _octal(document: Document) -> None:
    """Modes of files as they are written everywhere else: 0644."""
    members = document.data.get("members")
    for at, member in enumerate(members if isinstance(members, list) else ()):
        files = member.get("files") if isinstance(member, dict) else None
        for number, file in enumerate(files if isinstance(files, list) else ()):
            if not isinstance(file, dict) or "mode" not in file:
                continue
            if not isinstance(file["mode"], str) or not _MODE.match(file["mode"]):
                raise BadRequest(
                    "a mode must be octal and begin with 0, such as 0644",
                    where=document.place(f"members[{at}].files[{number}].mode"),
                )
            file["mode"] = str(int(file["mode"].replace("o", ""), 8))


def schema() -> dict[str, Any]:
    """One JSON Schema for all files of a repository: what editors check and complete by."""
    kinds, parts = msgspec.json.schema_components(KINDS.values(), schema_hook=_times, ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Strata configuration",
        "anyOf": list(kinds),
        "$defs": parts,
    }


def _times(kind: type[Any]) -> dict[str, Any]:
    if kind is not Seconds:
        raise NotImplementedError(kind)
    return {"type": ["string", "number"], "examples": ["90s", "10m", "1h30m"]}
